"""The log of events of edges, from which earlier states of the memory can be rebuilt."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import Column, Ints
from .evidence import GUARDED_FLAG, NOTHING, SPARE_FLAG, STANDS, EvidenceColumns
from .policies import Evidence

KINDS = ("reached", "failed", "removed", "restored", "guarded", "walked", "spare")
REACHED, FAILED, REMOVED, RESTORED, GUARDED, WALKED, SPARE = range(len(KINDS))
KEEP_EVENTS = 250_000
NO_EPISODE = -1
EVENT = np.dtype([("time", "<f8"), ("edge", "<i4"), ("kind", "u1"), ("episode", "<i8")])
GROWTH = 4  # event, nodes, edges, observations
_CHUNK = 4096  # fewest events to fold at once, so that the average cost of a call stays small


class Events(NamedTuple):
    """Events as parallel arrays, oldest first.

    Attributes:
        sequence: (n,) int64 number of the event; 1 is the first ever.
        time: (n,) float64 seconds since 1970.
        source: (n,) int64 node ids.
        target: (n,) int64 node ids.
        kind: (n,) text. "reached" and "failed": a try of the edge. "removed" and "restored": the edge was removed or
            restored. "guarded": the policy gave it up, but the guard kept it. "walked": an episode went along it in
            fewer steps than any before, which are now an upper bound of its weight. "spare": the guard or
            `memory.bridge` added it although it is not among the k nearest.
        episode: (n,) int64 the episode given with a try; −1 without one. For "walked", the fewest steps in which an
            episode had gone along the edge before; −1 if none had.
    """

    sequence: Ints
    time: NDArray[np.float64]
    source: Ints
    target: Ints
    kind: NDArray[np.str_]
    episode: Ints


class Size(NamedTuple):
    """Numbers of nodes, edges and observations of a memory."""

    nodes: int
    edges: int
    observations: int


class Mark(NamedTuple):
    """A position in the log: the number of events logged so far, and of rows of growth."""

    events: int
    growth: int


@dataclasses.dataclass(frozen=True, eq=False)
class Fold:
    """The oldest events, and the evidence that replaces them.

    Attributes:
        rows: the events, `EVENT`.
        evidence: evidence of each of their edges before and after these events.
        records: number of tries among all events folded so far, including these.
        growth: (m, 4) rows of growth that are no longer needed.
    """

    rows: NDArray[Any]
    evidence: Mapping[int, tuple[Evidence | None, Evidence]]
    records: int
    growth: Ints


class EventLog:
    """The newest events one by one, and the older ones folded into evidence."""

    def __init__(self, keep: int | None = KEEP_EVENTS) -> None:
        """Keep at least the newest `keep` events; None keeps all."""
        self.keep = keep
        self.folded = 0
        self.folded_records = 0
        self.evidence = EvidenceColumns()  # after the folded events
        self._rows = Column(EVENT)
        self._recent: list[tuple[float, int, int, int]] = []  # not in `_rows` yet
        self._growth = Column(np.int64, (GROWTH,))
        self._last_size: Size | None = None

    def __len__(self) -> int:
        """Number of events logged so far."""
        return self.folded + len(self._rows) + len(self._recent)

    @property
    def rows(self) -> NDArray[Any]:
        """The stored events, `EVENT`; the first has number `folded` + 1."""
        if self._recent:
            self._rows.append(np.array(self._recent, EVENT))
            self._recent = []
        return self._rows.values

    @property
    def growth(self) -> Ints:
        """(m, 4) event, nodes, edges, observations, the size at the event after this one."""
        return self._growth.values

    @property
    def nbytes(self) -> int:
        """Size of the stored events and of the evidence before them, bytes."""
        return self.rows.nbytes + self._growth.nbytes + self.evidence.nbytes

    def append(self, events: Iterable[tuple[int, int, int]], size: Size) -> None:
        """Log events (edge, kind, episode) with the present time, in a memory of this size."""
        now = time.time()
        fresh = [(now, edge, kind, episode) for edge, kind, episode in events]
        if fresh:
            if size != self._last_size:
                self._growth.append(np.array([[len(self), *size]]))
                self._last_size = size
            self._recent += fresh
            if len(self._recent) > _CHUNK:
                _ = self.rows

    def put(self, rows: NDArray[Any], growth: Ints) -> None:
        """Append events and growth that were read from a file."""
        self._rows.append(rows)
        self._growth.append(growth)
        self._last_size = Size(*growth[-1, 1:].tolist()) if len(growth) else None

    def mark(self) -> Mark:
        """Return the end of the log as a mark."""
        return Mark(len(self), len(self._growth))

    def since(self, mark: Mark) -> tuple[list[tuple[int, float, int, int, int]], Ints]:
        """Return the events (number, time, edge, kind, episode) and the rows of growth after a mark."""
        fresh = len(self) - mark.events
        recent: list[tuple[float, int, int, int]] = self._recent[len(self._recent) - fresh :]
        if fresh > len(self._recent):
            rows = self.rows
            recent = rows[len(rows) - fresh :].tolist()
        return numbered(mark.events + 1, recent), self.growth[mark.growth :]

    def back_to(self, mark: Mark) -> None:
        """Remove the events and growth after a mark."""
        _ = self.rows
        self._rows.cut(mark.events - self.folded)
        self._growth.cut(mark.growth)
        self._last_size = Size(*self.growth[-1, 1:].tolist()) if mark.growth else None

    def fold(self) -> Fold | None:
        """Compute the fold of the oldest events, without applying it; None if there are too few of them."""
        spare = 0 if self.keep is None else len(self) - self.folded - self.keep
        if spare < _CHUNK:
            return None
        rows = self.rows[:spare].copy()
        after, records = replay(self.evidence, self.folded_records, rows)
        evidence = {edge: (self.evidence.get(edge), known) for edge, known in after.items()}
        needed = max(0, int(np.searchsorted(self.growth[:, 0], self.folded + spare)) - 1)
        return Fold(rows, evidence, records, self.growth[:needed].copy())

    def apply(self, fold: Fold) -> None:
        """Apply a fold: replace its events by its evidence."""
        rows, growth = self.rows[len(fold.rows) :].copy(), self.growth[len(fold.growth) :].copy()
        self.evidence.update({edge: after for edge, (_, after) in fold.evidence.items()})
        self.folded += len(fold.rows)
        self.folded_records = fold.records
        self._rows.cut(0)
        self._growth.cut(0)
        self.put(rows, growth)

    def size_at(self, event: int) -> Size | None:
        """Size of the memory right after this event (0: before the first event); None: the same as now."""
        if not len(self.growth):
            return None
        place = max(0, int(np.searchsorted(self.growth[:, 0], event)) - 1)
        return Size(*self.growth[place, 1:].tolist())

    def until(self, event: int) -> EventLog:
        """Return the log as it was right after this event."""
        log = EventLog(self.keep)
        log.folded, log.folded_records, log.evidence = self.folded, self.folded_records, self.evidence.copy()
        kept = int(np.searchsorted(self.growth[:, 0], max(event, 1)))
        log.put(self.rows[: event - self.folded], self.growth[:kept])
        return log

    def replayed(self) -> tuple[EvidenceColumns, int]:
        """Return the evidence by edge after all events, and the number of tries."""
        after, records = replay(self.evidence, self.folded_records, self.rows)
        known = self.evidence.copy()
        known.update(after)
        return known, records

    def walked_since(self, event: int) -> tuple[Ints, Ints]:
        """Return the edges with "walked" events after this event, and their steps before these events; 0: none."""
        rows = self.rows[event - self.folded :]
        rows = rows[rows["kind"] == WALKED]
        edges, first = np.unique(rows["edge"].astype(np.int64), return_index=True)
        return edges, np.maximum(rows["episode"][first], 0).astype(np.int64)


def numbered(first: int, events: Iterable[tuple[float, int, int, int]]) -> list[tuple[int, float, int, int, int]]:
    """Number events from `first` on."""
    return [(number, *event) for number, event in enumerate(events, first)]


def replay(before: EvidenceColumns, records: int, rows: NDArray[Any]) -> tuple[EvidenceColumns, int]:
    """Apply events to evidence; return the new evidence of their edges, and the number of tries so far.

    Args:
        before: evidence before the first of the events.
        records: number of tries before them.
        rows: the events, `EVENT`.
    """
    known: dict[int, list[int]] = {}
    rows = rows[rows["kind"] != WALKED]
    for edge, kind in zip(rows["edge"].tolist(), rows["kind"].tolist(), strict=True):
        state = known.get(edge)
        if state is None:
            state = known[edge] = list(before.row(edge) or NOTHING)
        if kind == REACHED:
            records += 1
            state[0] += 1
            state[2], state[4] = 0, state[4] & ~GUARDED_FLAG
        elif kind == FAILED:
            records += 1
            state[1] += 1
            state[2] += 1
        elif kind == REMOVED:
            state[3], state[4] = records, state[4] & ~GUARDED_FLAG
        elif kind == RESTORED:
            state[2], state[3] = 0, STANDS
        elif kind == GUARDED:
            state[4] |= GUARDED_FLAG
        else:
            state[4] |= SPARE_FLAG
    return EvidenceColumns.from_rows([(edge, *state) for edge, state in known.items()]), records
