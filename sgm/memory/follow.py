"""Copies of a memory that follow it: what an owner sends to those who try edges elsewhere, and how they take it over.

A copy plans and records like any memory, so that what just failed is not tried again. What it recorded is its own guess
until the owner has taken it in: then the copy takes its guesses back and takes over what the owner made of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError

from .arrays import Ints
from .events import WALKED, Size
from .policies import Evidence

if TYPE_CHECKING:
    from .memory import SparseGraphicalMemory

_STANDS = -1  # in the place of `Evidence.removed_at`


class Changes(NamedTuple):
    """What has become of edges since a version.

    Attributes:
        version: of the memory now: events ever logged.
        size: how much it holds; a copy of another size cannot follow.
        records: tries ever recorded.
        edge: (n,) int64 the edges about which something else is known now.
        evidence: (n, 6) int64 successes, failures, streak, removed_at (−1: it stands), guarded, spare of each.
    """

    version: int
    size: Size
    records: int
    edge: Ints
    evidence: NDArray[np.int64]


def version_of(memory: SparseGraphicalMemory) -> int:
    """The version of a memory: how many events were ever logged."""
    return len(memory._log)


def changes_since(memory: SparseGraphicalMemory, version: int) -> Changes:
    """What has become of edges since a version; of all edges, if the events since then are folded already."""
    with memory._turn:
        log, known = memory._log, memory._graph.evidence
        if version < log.folded:
            edges = np.array(sorted(known), np.int64)
        else:
            rows = log.rows[version - log.folded :]
            edges = np.unique(rows["edge"][rows["kind"] != WALKED]).astype(np.int64)
        values = [_row(known.get(edge, Evidence())) for edge in edges.tolist()]
        table = np.array(values, np.int64).reshape(len(edges), 6)
        return Changes(len(log), memory._builder.size, memory.records, edges, table)


class Follower:
    """Keeps a copy of a memory like its owner's."""

    def __init__(self, memory: SparseGraphicalMemory) -> None:
        """Follow the memory that this copy was made of, as it was then."""
        self.memory, self.version = memory, version_of(memory)
        memory._log.keep = None  # guesses are taken back by cutting the log, and so nothing of it may be folded
        self._mark, self._records = memory._log.mark(), memory.records
        memory._cleanup.before = {}

    def take(self, changes: Changes) -> None:
        """Take back what was recorded here, and take over what the owner knows."""
        memory = self.memory
        with memory._turn:
            if changes.size != memory._builder.size:
                raise InputError(
                    f"the memory had {len(memory)} nodes and {len(memory._graph)} edges when its workers started, and "
                    f"has {changes.size.nodes} and {changes.size.edges} now: extend it before or after, not meanwhile"
                )
            cleanup = memory._cleanup
            memory._log.back_to(self._mark)
            known = zip(changes.edge.tolist(), map(_evidence, changes.evidence.tolist()), strict=True)
            cleanup.put({**(cleanup.before or {}), **dict(known)}, changes.records)
            cleanup.before = {}
            self.version = changes.version


def _row(known: Evidence) -> tuple[int, ...]:
    removed = _STANDS if known.removed_at is None else known.removed_at
    return known.successes, known.failures, known.streak, removed, known.guarded, known.spare


def _evidence(row: list[int]) -> Evidence:
    successes, failures, streak, removed, guarded, spare = row
    return Evidence(successes, failures, streak, None if removed == _STANDS else removed, bool(guarded), bool(spare))
