"""Copies of a memory that follow it: the changes that the owner sends to workers, and how their copies apply them.

A copy plans and records like any memory, so that an edge that just failed is not tried again. Its own records are
provisional until the owner has recorded them: then the copy undoes them and applies the changes of the owner.
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

_STANDS = -1  # stands for None in `Evidence.removed_at`


class Changes(NamedTuple):
    """Changes of edges since a version.

    Attributes:
        version: present version of the memory: the number of events logged so far.
        size: size of the memory; a copy of another size cannot follow.
        records: number of tries recorded so far.
        edge: (n,) int64 the edges whose evidence has changed.
        evidence: (n, 6) int64 successes, failures, streak, removed_at (−1: not removed), guarded, spare of each edge.
    """

    version: int
    size: Size
    records: int
    edge: Ints
    evidence: NDArray[np.int64]


def version_of(memory: SparseGraphicalMemory) -> int:
    """Version of a memory: the number of events logged so far."""
    return len(memory._log)


def changes_since(memory: SparseGraphicalMemory, version: int) -> Changes:
    """Return the changes of edges since a version; of all edges with evidence if those events are folded already."""
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
    """Keeps a copy of a memory in step with its owner."""

    def __init__(self, memory: SparseGraphicalMemory) -> None:
        """Follow the memory of which `memory` is a fresh copy."""
        self.memory, self.version = memory, version_of(memory)
        memory._log.keep = None  # records are undone by cutting the log, so none of it may be folded
        self._mark, self._records = memory._log.mark(), memory.records
        memory._cleanup.before = {}

    def take(self, changes: Changes) -> None:
        """Undo the records of this copy, and apply the changes of the owner."""
        memory = self.memory
        with memory._turn:
            if changes.size != memory._builder.size:
                raise InputError(
                    f"the memory had {len(memory)} nodes and {len(memory._graph)} edges when its workers started, and "
                    f"has {changes.size.nodes} and {changes.size.edges} now: extend it before or after they run"
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
