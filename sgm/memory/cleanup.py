"""Cleanup: tries of edges become evidence, and evidence removes, re-prices and restores edges."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from .graph import Graph
from .planner import Planner
from .policies import CleanupPolicy, Evidence

Changes = list[tuple[int, Evidence | None, Evidence]]  # edge, what was known before, what is known after


class Journal(Protocol):
    """Where evidence is written, if the memory is live."""

    def write_evidence(self, changes: Changes, records: int) -> None:
        """Write changes, all or nothing."""
        ...

    def wrote(self, token: object) -> bool:
        """Whether these changes have been written."""
        ...


class Cleanup:
    """Keeps the evidence of a graph, all of a batch of tries or none."""

    def __init__(self, graph: Graph, planner: Planner, policy: CleanupPolicy, records: int) -> None:
        """Go on after `records` tries."""
        self.graph = graph
        self.planner = planner
        self.policy = policy
        self.records = records

    def record(self, edges: list[int], outcomes: list[bool], store: Journal | None) -> list[bool]:
        """Take in tries in order and write them; whether each removed its edge."""
        before = {edge: self.graph.evidence.get(edge) for edge in edges}
        records = self.records
        changes: Changes = []
        try:
            removals = [self._try_edge(edge, outcome) for edge, outcome in zip(edges, outcomes, strict=True)]
            if store is not None:
                changes += [(edge, old, self.graph.evidence[edge]) for edge, old in before.items()]
                store.write_evidence(changes, self.records)
        except BaseException:
            if store is None or not store.wrote(changes):
                self.records = records
                self._put(before)
            raise
        return removals

    def restore(self, edges: list[int], store: Journal | None) -> int:
        """Bring back those of these edges that are removed, and write that; how many they are."""
        known = self.graph.evidence
        removed = [edge for edge in edges if edge in known and known[edge].removed_at is not None]
        after = {edge: dataclasses.replace(known[edge], removed_at=None, streak=0) for edge in removed}
        changes: Changes = [(edge, known[edge], after[edge]) for edge in removed]
        try:
            if store is not None:
                store.write_evidence(changes, self.records)
        finally:
            if store is None or store.wrote(changes):
                self._put(after)
        return len(removed)

    def _try_edge(self, edge: int, reached: bool) -> bool:
        self.records += 1
        evidence = self.graph.evidence.get(edge, Evidence()).after(reached)
        removes = not reached and evidence.removed_at is None and self.policy.gives_up(evidence)
        if removes and self.policy.guard:
            removes = self.planner.largest_part(without=edge) == self.planner.largest_part()
            evidence = dataclasses.replace(evidence, guarded=not removes)
        if removes:
            evidence = dataclasses.replace(evidence, removed_at=self.records)
        self._put({edge: evidence})
        return removes

    def _put(self, changes: Mapping[int, Evidence | None]) -> None:
        for edge, evidence in changes.items():
            if evidence is None:
                self.graph.evidence.pop(edge, None)
            else:
                self.graph.evidence[edge] = evidence
            self.planner.update(edge)
