"""Cleanup: tries of edges become evidence; evidence removes edges, changes their costs and restores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from .events import FAILED, GUARDED, NO_EPISODE, REACHED, REMOVED, RESTORED, SPARE, EventLog, Fold, Mark, Size, replay
from .evidence import GUARDED_FLAG, NOTHING, SPARE_FLAG, STANDS, Row, evidence_of
from .graph import Graph
from .planner import Planner
from .policies import CleanupPolicy


class Journal(Protocol):
    """The file of a live memory, to which events are written."""

    def write_log(self, log: EventLog, mark: Mark, facts: dict[str, Any] | None = None) -> None:
        """Write the events since a mark, with facts about the memory, in one transaction."""
        ...

    def write_fold(self, log: EventLog, fold: Fold) -> None:
        """Replace the oldest events by the evidence that they add up to, in one transaction."""
        ...

    def wrote(self, token: object) -> bool:
        """Whether the events since this mark, or this fold, have been written."""
        ...


class Holder(Protocol):
    """The memory, as far as cleanup needs it."""

    @property
    def size(self) -> Size:
        """Numbers of nodes, edges and observations."""
        ...


class Cleanup:
    """Updates the evidence of a graph and logs the changes; a batch of tries is recorded as a whole or not at all."""

    def __init__(
        self,
        graph: Graph,
        planner: Planner,
        policy: CleanupPolicy,
        log: EventLog,
        holder: Holder,
        records: int,
    ) -> None:
        """Continue after `records` tries."""
        self.graph = graph
        self.planner = planner
        self.policy = policy
        self.log = log
        self.holder = holder
        self.records = records
        self._untold: set[int] = set()  # edges that were tried and whose costs the planner has not updated yet
        self.before: dict[int, Row | None] | None = None  # evidence that a copy which follows this must restore

    def record(
        self,
        edges: list[int],
        outcomes: list[bool],
        episodes: list[int],
        store: Journal | None,
        facts: dict[str, Any] | None = None,
    ) -> list[bool]:
        """Record tries in order and write them, with facts about the memory; return whether each removed its edge."""
        self.make_room(store)
        # Evidence to put back if the write fails; later also that of the spare edges that are added.
        before = dict(zip(edges, self.graph.evidence.rows_of(edges), strict=True))
        records, mark = self.records, self.log.mark()
        events: list[tuple[int, int, int]] = []
        try:
            tries = zip(edges, outcomes, episodes, strict=True)
            removals = [self._try_edge(edge, outcome, episode, events, before) for edge, outcome, episode in tries]
            self._tell_planner()
            self.log.append(events, self.holder.size)
            if store is not None and (events or facts):
                store.write_log(self.log, mark, facts)
        except BaseException:
            if store is None or not store.wrote(mark):
                self.records = records
                self.log.back_to(mark)
                self._put(before)
            self._tell_planner()
            raise
        if self.before is not None:
            self.before = {**before, **self.before}
        return removals

    def put(self, changes: Mapping[int, Row | None], records: int) -> None:
        """Set the evidence of these edges (None: they have none) and the number of tries, without an event."""
        self._put(changes)
        self.records = records

    def restore(self, edges: list[int], store: Journal | None) -> int:
        """Restore those of these edges that were removed, and write the events; return how many they are."""
        self.make_room(store)
        after: dict[int, Row] = {}
        for edge, row in zip(edges, self.graph.evidence.rows_of(edges), strict=True):
            if row is not None and row[3] != STANDS:
                after[edge] = (row[0], row[1], 0, STANDS, row[4])
        self._write(after, RESTORED, store)
        return len(after)

    def remove(self, edge: int, store: Journal | None) -> bool:
        """Remove an edge by hand, and write the event; return False if it was removed before."""
        self.make_room(store)
        successes, failures, streak, removed_at, flags = self.graph.evidence.row(edge) or NOTHING
        if removed_at != STANDS:
            return False
        self._write({edge: (successes, failures, streak, self.records, flags & ~GUARDED_FLAG)}, REMOVED, store)
        return True

    def let_in(self, edges: list[int], store: Journal | None) -> None:
        """Add edges that the k-nearest filter leaves out (spare edges), and write the events."""
        self.make_room(store)
        rows = zip(edges, self.graph.evidence.rows_of(edges), strict=True)
        self._write({edge: _as_spare(row) for edge, row in rows}, SPARE, store)

    def replay(self, rows: NDArray[Any]) -> None:
        """Apply events (`EVENT` rows) that are in the log already."""
        after, self.records = replay(self.graph.evidence, self.records, rows)
        edges = list(after)
        self._put(dict(zip(edges, after.rows_of(edges), strict=True)))

    def _write(self, after: Mapping[int, Row], kind: int, store: Journal | None) -> None:
        """Log and write one event for each of these edges, and set their evidence; all or nothing."""
        mark = self.log.mark()
        try:
            self.log.append([(edge, kind, NO_EPISODE) for edge in after], self.holder.size)
            if store is not None and after:
                store.write_log(self.log, mark)
        except BaseException:
            if store is None or not store.wrote(mark):
                self.log.back_to(mark)
                raise
            self._put(after)
            raise
        self._put(after)

    def make_room(self, store: Journal | None) -> None:
        """Fold the oldest events into evidence if the log holds more than it should keep."""
        fold = self.log.fold()
        if fold is None:
            return
        try:
            if store is not None:
                store.write_fold(self.log, fold)
        finally:
            if store is None or store.wrote(fold):
                self.log.apply(fold)

    def _try_edge(
        self,
        edge: int,
        reached: bool,
        episode: int,
        events: list[tuple[int, int, int]],
        before: dict[int, Row | None],
    ) -> bool:
        self.records += 1
        if edge in self._untold:
            self._tell_planner()
        known = self.graph.evidence
        successes, failures, streak, removed_at, flags = known.row(edge) or NOTHING  # the numbers of `Evidence.after`
        events.append((edge, REACHED if reached else FAILED, episode))
        removes = False
        if reached:
            successes, streak, flags = successes + 1, 0, flags & ~GUARDED_FLAG
        else:
            failures, streak = failures + 1, streak + 1
            if removed_at == STANDS:
                removes = self.policy.gives_up(evidence_of((successes, failures, streak, removed_at, flags)))
        if removes and self.policy.guard and self._holds_together(edge):
            removes = False
            flags |= GUARDED_FLAG
            events.append((edge, GUARDED, episode))
            if self.policy.spares and (spare := self.planner.find_spare(edge)) is not None:
                was = before.setdefault(spare, known.row(spare))
                events.append((spare, SPARE, episode))
                self._put({spare: _as_spare(was)})
        if removes:
            removed_at, flags = self.records, flags & ~GUARDED_FLAG
            events.append((edge, REMOVED, episode))
        known.set_row(edge, (successes, failures, streak, removed_at, flags))
        self._untold.add(edge)
        return removes

    def _holds_together(self, edge: int) -> bool:
        """Whether the removal of an edge would shrink the largest component, by the current costs."""
        self._tell_planner()
        return self.planner.holds_together(edge)

    def _tell_planner(self) -> None:
        """Update the costs of tried edges in the planner; many at once take little more time than one."""
        self.planner.update(sorted(self._untold))
        self._untold.clear()

    def _put(self, changes: Mapping[int, Row | None]) -> None:
        known = self.graph.evidence
        gone = []
        for edge, row in changes.items():
            if _is_spare(known.row(edge)) != _is_spare(row):
                self.graph.filter_again(edge)
            if row is None:
                gone.append(edge)
            else:
                known.set_row(edge, row)
        if gone:
            known.drop(gone)
        self.planner.update(changes)


def _is_spare(row: Row | None) -> bool:
    return row is not None and bool(row[4] & SPARE_FLAG)


def _as_spare(row: Row | None) -> Row:
    """Return the evidence of an edge that becomes a spare edge."""
    successes, failures, streak, removed_at, flags = row or NOTHING
    return successes, failures, streak, removed_at, flags | SPARE_FLAG
