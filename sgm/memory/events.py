"""What happened to edges, in order: the log from which the memory as it was can be rebuilt."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import Column, Ints
from .policies import Evidence

KINDS = ("reached", "failed", "removed", "restored", "guarded", "walked", "spare")
REACHED, FAILED, REMOVED, RESTORED, GUARDED, WALKED, SPARE = range(len(KINDS))
KEEP_EVENTS = 250_000
NO_EPISODE = -1
EVENT = np.dtype([("time", "<f8"), ("edge", "<i4"), ("kind", "u1"), ("episode", "<i8")])
GROWTH = 4  # event, nodes, edges, observations
_CHUNK = 4096  # events folded at once, so that folding costs little a call


class Events(NamedTuple):
    """Events as parallel arrays, oldest first.

    Attributes:
        sequence: (n,) int64 number of the event; 1 is the first ever.
        time: (n,) float64 seconds since 1970.
        source: (n,) int64 node ids.
        target: (n,) int64 node ids.
        kind: (n,) text. "reached" and "failed" are tries of the edge, "removed" and "restored" what became of it,
            "guarded" that the policy gave it up but the guard kept it, "walked" that an episode went through it, in
            fewer steps than any before: its weight is now at most these; "spare" that the guard or
            `memory.bridge` let it in although it is not among the k nearest.
        episode: (n,) int64 the episode given with a try; −1 where there was none. For "walked" the steps in which an
            episode had gone through the edge until then; −1 if none had.
    """

    sequence: Ints
    time: NDArray[np.float64]
    source: Ints
    target: Ints
    kind: NDArray[np.str_]
    episode: Ints


class Size(NamedTuple):
    """How much a memory holds."""

    nodes: int
    edges: int
    observations: int


class Mark(NamedTuple):
    """A place in the log: events ever logged, and rows of growth."""

    events: int
    growth: int


@dataclasses.dataclass(frozen=True, eq=False)
class Fold:
    """The oldest events as evidence, which takes their place.

    Attributes:
        rows: the events, `EVENT`.
        evidence: of each edge among them, before and after.
        records: tries among all events folded so far, these included.
        growth: (m, 4) rows of growth that are needed no more.
    """

    rows: NDArray[Any]
    evidence: Mapping[int, tuple[Evidence | None, Evidence]]
    records: int
    growth: Ints


class EventLog:
    """The newest events one by one, and the evidence that the older ones left behind."""

    def __init__(self, keep: int | None = KEEP_EVENTS) -> None:
        """Keep at least the newest `keep` events; None keeps all."""
        self.keep = keep
        self.folded = 0
        self.folded_records = 0
        self.evidence: dict[int, Evidence] = {}  # after the folded events
        self._rows = Column(EVENT)
        self._recent: list[tuple[float, int, int, int]] = []  # not in `_rows` yet
        self._growth = Column(np.int64, (GROWTH,))
        self._last_size: Size | None = None

    def __len__(self) -> int:
        """Number of events ever logged."""
        return self.folded + len(self._rows) + len(self._recent)

    @property
    def rows(self) -> NDArray[Any]:
        """The events kept, `EVENT`; the first is number `folded` + 1."""
        if self._recent:
            self._rows.append(np.array(self._recent, EVENT))
            self._recent = []
        return self._rows.values

    @property
    def growth(self) -> Ints:
        """(m, 4) event, nodes, edges, observations: how much there was when the event after this one happened."""
        return self._growth.values

    @property
    def nbytes(self) -> int:
        """Bytes of the events kept."""
        return self.rows.nbytes + self._growth.nbytes

    def append(self, events: Iterable[tuple[int, int, int]], size: Size) -> None:
        """Log (edge, kind, episode) now, in a memory of this size."""
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
        """Take over events and growth that were read from a file."""
        self._rows.append(rows)
        self._growth.append(growth)
        self._last_size = Size(*growth[-1, 1:].tolist()) if len(growth) else None

    def mark(self) -> Mark:
        """Where the log ends now."""
        return Mark(len(self), len(self._growth))

    def since(self, mark: Mark) -> tuple[list[tuple[int, float, int, int, int]], Ints]:
        """The events, (number, time, edge, kind, episode), and the rows of growth after a mark."""
        fresh = len(self) - mark.events
        recent: list[tuple[float, int, int, int]] = self._recent[len(self._recent) - fresh :]
        if fresh > len(self._recent):
            rows = self.rows
            recent = rows[len(rows) - fresh :].tolist()
        return numbered(mark.events + 1, recent), self.growth[mark.growth :]

    def back_to(self, mark: Mark) -> None:
        """Forget what came after a mark."""
        _ = self.rows
        self._rows.cut(mark.events - self.folded)
        self._growth.cut(mark.growth)
        self._last_size = Size(*self.growth[-1, 1:].tolist()) if mark.growth else None

    def fold(self) -> Fold | None:
        """What folding the oldest events would make of them; None if there are not enough to spare."""
        spare = 0 if self.keep is None else len(self) - self.folded - self.keep
        if spare < _CHUNK:
            return None
        rows = self.rows[:spare].copy()
        after, records = replay(self.evidence, self.folded_records, rows)
        evidence = {edge: (self.evidence.get(edge), known) for edge, known in after.items()}
        needed = max(0, int(np.searchsorted(self.growth[:, 0], self.folded + spare)) - 1)
        return Fold(rows, evidence, records, self.growth[:needed].copy())

    def apply(self, fold: Fold) -> None:
        """Fold."""
        rows, growth = self.rows[len(fold.rows) :].copy(), self.growth[len(fold.growth) :].copy()
        self.evidence.update({edge: after for edge, (_, after) in fold.evidence.items()})
        self.folded += len(fold.rows)
        self.folded_records = fold.records
        self._rows.cut(0)
        self._growth.cut(0)
        self.put(rows, growth)

    def size_at(self, event: int) -> Size | None:
        """How much the memory held right after this event (0: before the first one); None: as much as now."""
        if not len(self.growth):
            return None
        place = max(0, int(np.searchsorted(self.growth[:, 0], event)) - 1)
        return Size(*self.growth[place, 1:].tolist())

    def until(self, event: int) -> EventLog:
        """The log as it was right after this event."""
        log = EventLog(self.keep)
        log.folded, log.folded_records, log.evidence = self.folded, self.folded_records, dict(self.evidence)
        kept = int(np.searchsorted(self.growth[:, 0], max(event, 1)))
        log.put(self.rows[: event - self.folded], self.growth[:kept])
        return log

    def replayed(self) -> tuple[dict[int, Evidence], int]:
        """What is known about edges after all events, and how many tries there were."""
        after, records = replay(self.evidence, self.folded_records, self.rows)
        return {**self.evidence, **after}, records

    def walked_since(self, event: int) -> tuple[Ints, Ints]:
        """Edges that an episode went through in fewer steps after this event, and their steps until it; 0: none."""
        rows = self.rows[event - self.folded :]
        rows = rows[rows["kind"] == WALKED]
        edges, first = np.unique(rows["edge"].astype(np.int64), return_index=True)
        return edges, np.maximum(rows["episode"][first], 0).astype(np.int64)


def numbered(first: int, events: Iterable[tuple[float, int, int, int]]) -> list[tuple[int, float, int, int, int]]:
    """Events with their numbers."""
    return [(number, *event) for number, event in enumerate(events, first)]


def replay(before: Mapping[int, Evidence], records: int, rows: NDArray[Any]) -> tuple[dict[int, Evidence], int]:
    """The evidence about the edges of these events after them, and how many tries there have been.

    Args:
        before: evidence before the first of the events.
        records: tries before them.
        rows: the events, `EVENT`.
    """
    known: dict[int, list[Any]] = {}
    nothing = Evidence()
    for edge, kind in zip(rows["edge"].tolist(), rows["kind"].tolist(), strict=True):
        if kind == WALKED:
            continue
        state = known.get(edge)
        if state is None:
            old = before.get(edge, nothing)
            state = known[edge] = [old.successes, old.failures, old.streak, old.removed_at, old.guarded, old.spare]
        if kind == REACHED:
            records += 1
            state[0] += 1
            state[2], state[4] = 0, False
        elif kind == FAILED:
            records += 1
            state[1] += 1
            state[2] += 1
        elif kind == REMOVED:
            state[3], state[4] = records, False
        elif kind == RESTORED:
            state[2], state[3] = 0, None
        elif kind == GUARDED:
            state[4] = True
        else:
            state[5] = True
    return {edge: Evidence(*state) for edge, state in known.items()}, records
