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
from .evidence import GUARDED_FLAG, NOTHING, SPARE_FLAG, Row

if TYPE_CHECKING:
    from .memory import SparseGraphicalMemory


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
            edges = np.sort(known.known().edge).astype(np.int64)
        else:
            rows = log.rows[version - log.folded :]
            edges = np.unique(rows["edge"][rows["kind"] != WALKED]).astype(np.int64)
        table = _with_flags_apart([row or NOTHING for row in known.rows_of(edges.tolist())])
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
            known = zip(changes.edge.tolist(), map(_row, changes.evidence.tolist()), strict=True)
            cleanup.put({**(cleanup.before or {}), **dict(known)}, changes.records)
            cleanup.before = {}
            self.version = changes.version


def _with_flags_apart(rows: list[Row]) -> NDArray[np.int64]:
    """Return evidence as (n, 6) numbers, see `Changes`."""
    table = np.array(rows, np.int64).reshape(len(rows), 5)
    flags = table[:, 4]
    return np.column_stack([table[:, :4], flags & GUARDED_FLAG > 0, flags & SPARE_FLAG > 0]).astype(np.int64)


def _row(values: list[int]) -> Row:
    """Return six numbers, see `Changes`, as a row."""
    successes, failures, streak, removed, guarded, spare = values
    return successes, failures, streak, removed, GUARDED_FLAG * guarded + SPARE_FLAG * spare
