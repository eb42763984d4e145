"""Short reads of a memory file that another process may be writing, for viewers such as the inspector.

A writer that closes its memory waits at most half a second for readers. So the file is open only while SQLite copies
it, and the copy is read and checked. If only events were added since the last read, only these are read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import StoreError

from .arrays import Bools, Ints
from .events import SPARE, WALKED, numbered
from .evidence import EvidenceColumns
from .lock import real_path
from .memory import SparseGraphicalMemory
from .read import (
    FileState,
    check_header,
    damaged,
    read_contents,
    read_events,
    read_growth,
    read_state,
    reading,
    translated,
)
from .schema import SCHEMA, events_crc, rows_crc

Counts = NDArray[np.int32]
_MOST = 2**31 - 1


@dataclasses.dataclass
class Snapshot:
    """The state of a memory file when it was last read.

    Attributes:
        path: real path of the file.
        memory: the memory, read-only and without a distance.
        file: schema version, checksum and counters of the file.
    """

    path: Path
    memory: SparseGraphicalMemory
    file: FileState

    @classmethod
    def take(cls, path: Any) -> Snapshot:
        """Read a file; StoreError if it is not a valid memory file."""
        source = real_path(path)
        with _copied(source) as connection, damaged(source):
            contents, file = read_contents(connection, check_header(connection, source))
        return cls(source, SparseGraphicalMemory._from_contents(source, contents, None, None, None), file)

    @property
    def version(self) -> str:
        """Text that identifies the contents of the file, and changes when they change."""
        return f"{self.file.calls}-{self.file.checksum:x}"

    def refreshed(self) -> Snapshot:
        """Return the present state of the file: this snapshot, updated, if only events were added, or a new one."""
        if not self.path.is_file():
            raise StoreError(f"there is no file {self.path} any more")
        if self.file.schema == SCHEMA and self._caught_up():
            return self
        return Snapshot.take(self.path)

    def _caught_up(self) -> bool:
        """Apply the events added since the last read; return False if anything else has changed too.

        If nothing else has changed, the checksum of the file has grown by just the checksums of these events.
        """
        log = self.memory._log
        with reading(self.path) as connection, translated(self.path), contextlib.suppress(StoreError):
            if int(connection.execute("PRAGMA user_version").fetchone()[0]) != SCHEMA:
                return False
            calls, checksum, folded, _ = read_state(connection)
            if (calls, checksum) == (self.file.calls, self.file.checksum):
                return True
            rows, numbers = read_events(connection, len(log))
            growth = read_growth(connection, len(log))
            added = events_crc(numbered(len(log) + 1, rows.tolist())) + rows_crc(growth)
            follow = (numbers == np.arange(len(log) + 1, len(log) + 1 + len(rows))).all()
            known = len(rows) and rows["edge"].max() < len(self.memory._graph) and not (rows["kind"] == WALKED).any()
            if folded != log.folded or not follow or not known or checksum != self.file.checksum + added:
                return False
            self.memory._take_over(rows, growth)
            self.file.calls, self.file.checksum = calls, checksum
            return True
        return False


@contextlib.contextmanager
def _copied(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a private copy of a file: in RAM, or if it is large, in a temporary file of SQLite."""
    if not path.is_file():
        raise StoreError(f"there is no file {path}: expected a memory file written by save() or open()")
    with contextlib.closing(sqlite3.connect("", isolation_level=None, check_same_thread=False)) as copy:
        with reading(path) as connection, translated(path):
            connection.backup(copy)
        with translated(path):
            for statement in ("PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON"):
                copy.execute(statement)
        yield copy


@dataclasses.dataclass(frozen=True, eq=False)
class EdgeTable:
    """All edges, including removed and filtered ones, by source, then target, with their evidence.

    Attributes:
        source: (E,) int64 node ids.
        target: (E,) int64 node ids.
        weight: (E,) float64 steps.
        walked: (E,) uint8 the fewest steps in which an episode went along it; 0: none did.
        kept: (E,) whether the k-nearest filter keeps it.
        successes: (E,) int32 tries that reached the target.
        failures: (E,) int32 tries that did not.
        streak: (E,) int32 failures since the last success.
        removed: (E,) whether it has been removed.
        guarded: (E,) whether only the guard keeps it.
        backwards: (E,) whether it exists only because the memory is reversible.
    """

    source: Ints
    target: Ints
    weight: NDArray[np.float64]
    walked: NDArray[np.uint8]
    kept: Bools
    successes: Counts
    failures: Counts
    streak: Counts
    removed: Bools
    guarded: Bools
    backwards: Bools


def edge_table(memory: SparseGraphicalMemory) -> EdgeTable:
    """Return all edges of a memory with their present evidence."""
    return _table(memory, memory._graph.evidence)


def first_edge_table(memory: SparseGraphicalMemory) -> EdgeTable | None:
    """Return all edges as they were before the stored events.

    None if since then edges were added, became spare edges or changed their weights.
    """
    log, first = memory._log, memory._log.folded
    grown = (size := log.size_at(first)) is not None and (size.nodes, size.edges) != memory._builder.size[:2]
    changed = np.isin(log.rows["kind"], (WALKED, SPARE)).any()
    return None if grown or changed else _table(memory, log.evidence)


def _table(memory: SparseGraphicalMemory, evidence: EvidenceColumns) -> EdgeTable:
    with memory._turn:
        graph = memory._graph
        order = graph.by_source().edge
        known = np.zeros((len(graph), 5), np.int32)
        held = evidence.known()
        for column, counts in enumerate((held.successes, held.failures, held.streak)):
            known[held.edge, column] = np.minimum(counts, _MOST)
        known[held.edge, 3], known[held.edge, 4] = held.removed, held.guarded
        successes, failures, streak, removed, guarded = known[order].T
        return EdgeTable(
            graph.source.values[order].astype(np.int64),
            graph.target.values[order].astype(np.int64),
            graph.weights(order).astype(np.float64),
            graph.temporal.values[order],
            graph.in_filter()[order],
            successes.copy(),
            failures.copy(),
            streak.copy(),
            removed.astype(np.bool_),
            guarded.astype(np.bool_),
            np.isinf(graph.distance.values[order]) & (graph.temporal.values[order] == 0),
        )


def node_values(memory: SparseGraphicalMemory, name: str) -> NDArray[Any] | None:
    """(V, ...) values of an attribute; None if it does not exist. This is the array of the memory: do not change it."""
    column = memory._nodes.attributes.get(name)
    return None if column is None else column.values


def kept_observations(memory: SparseGraphicalMemory) -> NDArray[Any] | None:
    """(V, ...) observations of the nodes; None if not stored. This is the array of the memory: do not change it."""
    return memory._nodes.observation


def event_range(memory: SparseGraphicalMemory) -> tuple[int, int]:
    """Return the numbers of the first and the last event after which the memory can be shown."""
    return memory._log.folded, len(memory._log)
