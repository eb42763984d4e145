"""Make a memory from the rows that could be read from a damaged memory file."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import json
import math
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError, SGMError, StoreError

from .arrays import Bools, Ints
from .attributes import check_name
from .check import checked_policy, facts_of
from .events import EVENT, GROWTH, GUARDED, KEEP_EVENTS, KINDS, NO_EPISODE, REMOVED, SPARE, EventLog, replay
from .evidence import STANDS, EvidenceColumns, evidence_of
from .graph import MOST_BETWEEN, Graph
from .nodes import Nodes, missing
from .pages import COLUMNS, Found, Rows, Torn
from .policies import Evidence, FirstFailure
from .read import (
    Contents,
    check_evidence,
    check_growth,
    check_tail,
    is_reversible,
    unpack_size,
)
from .schema import (
    MOST_RATIO,
    SCHEMA,
    checked_form,
    expected_schema,
    form_of,
    is_packed,
    unpack,
    unpack_attribute,
)
from .settings import MOST_STEPS, Settings, shortened

_MOST = 2**53


_MOST_RUNS = 12  # runs of numbers listed in one sentence
_UNKNOWN = -2  # assignment of an observation whose node cannot be read


class Salvage:
    """Makes a memory from rows of a file, and lists what is lost.

    Attributes:
        lost: descriptions of the losses, one sentence each.
        nodes: (V,) int64 previous numbers of the nodes that are kept.
        edges: (E,) int64 previous numbers of the edges that are kept.
    """

    def __init__(self, found: Found, size: int) -> None:
        """Use the rows found in a file of `size` bytes."""
        self.found = found
        self.size = size
        self.lost: list[str] = []
        self.nodes: Ints = np.empty(0, np.int64)
        self.edges: Ints = np.empty(0, np.int64)
        self.total_nodes = 0
        self.total_edges = 0
        strays = found.strays["meta"]
        meta = sorted(found.rows["meta"].items(), key=lambda row: (row[0] not in strays, row[0]))
        self.facts, _ = facts_of([tuple(values) for _, values in meta if len(values) == 2])
        self.version = 1 if "records" in self.facts and not found.rows["state"] else SCHEMA

    def contents(self) -> Contents:
        """Make the memory, as the reader of an undamaged file returns it."""
        self._pages()
        nodes = self._nodes()
        graph = self._graph()
        log = self._log(len(nodes.assignment))
        self._attributes(nodes)
        meta = self._meta(nodes, graph, log)
        graph.evidence, records = log.replayed()
        return Contents(nodes, graph, log, meta, records)

    def _pages(self) -> None:
        """Report which pages of which tables are lost."""
        if not self.found.damaged:
            self.lost.append(
                "the list of tables, page 1: rows are known by their columns, and some may be missed unnoticed"
            )
        tables = {entry[1] for entry in expected_schema(self.version) if entry[0] == "table"}
        for table in sorted(tables - self.found.roots.keys() if self.found.roots else ()):
            self.lost.append(f"the table {table}: it is not in the list of tables")
        for table, pages in self.found.damaged.items():
            # If rows were found on other pages, the root page held only the numbers of those pages, and no row is lost.
            root = self.found.roots[table] if self.found.strays[table] else 0
            if lost := sorted(set(pages) - {root}):
                self.lost.append(
                    f"the table {table}: rows on page {_listed(_runs(lost))}, which cannot be read completely"
                )

    def _say(self, numbers: Iterable[int], total: int, what: str, reason: str) -> None:
        """Report that the items with these numbers, of `total` items, are lost."""
        self._say_runs(_runs(sorted(numbers)), total, what, reason)

    def _say_runs(self, runs: Sequence[tuple[int, int]], total: int, what: str, reason: str) -> None:
        """Report that items of `total` are lost, given as (first, last) of each run of numbers."""
        if runs:
            number = sum(last - first + 1 for first, last in runs)
            self.lost.append(f"{number} of {total} {what} ({_listed(runs)}): {reason}")

    def _numbered(self, table: str) -> Rows:
        """Return the rows of a table in order, without rows whose number is impossible in a file of this size."""
        rows, columns = self.found.rows[table], len(COLUMNS[table])
        most = max(4 * len(rows) + 1000, self.size // 8)
        odd = [row for row in rows if not 0 <= row < most]
        self._say(odd, len(rows), f"rows of the table {table}", "no row has such a number")
        return {row: rows[row] for row in sorted(rows) if 0 <= row < most and len(rows[row]) == columns}

    # -- nodes --

    def _nodes(self) -> Nodes:
        rows = self._numbered("nodes")
        known = self._known_assignment(len(rows))
        self.total_nodes = total = self._total_nodes(rows, known)
        self._say_runs(_gaps(list(rows), 0, total), total, "nodes", "cannot be read")
        embeddings = {node: values for node, row in rows.items() if (values := _floats(row[2])) is not None}
        width = _most_common(map(len, embeddings.values()))
        embeddings = {node: values for node, values in embeddings.items() if len(values) == width}
        self._say(rows.keys() - embeddings, total, "nodes", f"no embedding of {width or 'some'} finite numbers")
        features = self._features({node: rows[node][3] for node in embeddings}, total)
        streams = self._streams({node: rows[node][1] for node in features}, known)
        self._say(features.keys() - streams, total, "nodes", "no valid number of an observation")
        self.nodes = np.array(sorted(streams), np.int64)
        kept = self.nodes.tolist()
        nodes = Nodes()
        if kept:
            own = [feature for node in kept if (feature := features[node]) is not None]
            nodes.append(
                np.array([streams[node] for node in kept], np.int64),
                np.stack([embeddings[node] for node in kept]),
                np.stack(own) if own else None,
                self._observations({node: rows[node][4] for node in kept}),
            )
        nodes.assignment.append(self._assignment(known, nodes.stream.values))
        return nodes

    def _total_nodes(self, rows: Rows, known: Ints) -> int:
        """Estimate the original number of nodes; every node had at least one observation assigned to it."""
        total = max(rows, default=-1) + 1
        if not self.found.is_complete("nodes"):
            assigned = set(known[known >= total].tolist())
            while total in assigned:
                total += 1
        return total

    def _features(self, blobs: Mapping[int, Any], total: int) -> dict[int, NDArray[np.float32] | None]:
        """Return the features by node, or None for every node; the kind that most nodes have decides."""
        features = {node: _floats(blob) for node, blob in blobs.items()}
        lengths = {node: 0 if blobs[node] is None else -1 if v is None else len(v) for node, v in features.items()}
        width = _most_common(length for length in lengths.values() if length >= 0)
        if not width:
            odd = [node for node, length in lengths.items() if length]
            self._say(odd, total, "features of nodes", "most nodes have none of their own")
            return dict.fromkeys(blobs)
        odd = [node for node, length in lengths.items() if length != width]
        self._say(odd, total, "nodes", f"no feature of {width} finite numbers")
        return {node: values for node, values in features.items() if lengths[node] == width}

    def _observations(self, blobs: Mapping[int, Any]) -> NDArray[Any] | None:
        """(V, ...) stored observations, zeros where they cannot be read; None if there are none."""
        if all(blob is None for blob in blobs.values()):
            return None
        form = None
        with contextlib.suppress(StoreError):
            form = checked_form(self.facts.get("observation"), "observations")
            # The same limit as in the reader, so that a few bytes cannot fill the RAM; half of the data may be lost.
            unpack_size(len(blobs), form[2], 2 * sum(map(_length, blobs.values())))
            images = np.zeros((len(blobs), *form[1]), form[0])
            odd = [node for row, node in enumerate(blobs) if not _unpacked(blobs[node], form, images[row])]
            if len(odd) < len(blobs):
                self._say(odd, len(blobs), "kept observations of nodes", "cannot be unpacked, zeros now")
                return images
        self.lost.append(f"the kept observations of all {len(blobs)} nodes: they are not of the dtype and shape stated")
        return None

    # -- the stream --

    def _known_assignment(self, nodes: int) -> Ints:
        """(n,) node of each observation, `_UNKNOWN` where it cannot be read."""
        most = self.size + 2**20
        runs = []
        for first, values in sorted(self.found.rows["assignments"].items()):
            if len(values) == 2 and _is_blob(values[1]) and 0 <= first <= most - _length(values[1]) // 8:
                runs.append((first, values[1]))
        known = np.full(max((first + _length(blob) // 8 for first, blob in runs), default=0), _UNKNOWN, np.int64)
        for first, blob in runs:
            data, holes = (blob.data, blob.holes) if isinstance(blob, Torn) else (blob, [])
            run = np.frombuffer(data[: len(data) // 8 * 8], "<i8")
            known[first : first + len(run)] = run
            for start, end in holes:
                known[first + start // 8 : first - -end // 8] = _UNKNOWN
        known[(known < -1) | (known >= max(4 * nodes + 1000, self.size // 8))] = _UNKNOWN
        return known

    def _streams(self, stated: Mapping[int, Any], known: Ints) -> dict[int, int]:
        """Return the stream number of each node, ascending, without the nodes whose number is unknown.

        A node whose stored number contradicts the order of the others gets that of the first observation assigned to
        it.
        """
        most = len(known) if len(known) and self.found.is_complete("assignments") else self.size + 2**20
        streams = {node: s for node, s in stated.items() if type(s) is int and 0 <= s < most}
        streams = _ascending(streams)
        found, places = np.unique(known, return_index=True)
        first = dict(zip(found.tolist(), places.tolist(), strict=True))
        guessed = {node: first[node] for node in stated if node not in streams and node in first}
        return _ascending({**streams, **guessed}) if guessed else streams

    def _assignment(self, known: Ints, stream: Ints) -> Ints:
        """(n,) new number of the node of each observation; −1 if the node is lost or cannot be read."""
        total = max(len(known), int(stream[-1]) + 1 if len(stream) else 0)
        known = np.concatenate([known, np.full(total - len(known), _UNKNOWN)])
        own = np.zeros(total, np.bool_)
        own[stream] = True
        stated = known[stream]
        if 2 * int(((stated != self.nodes) & (stated != _UNKNOWN)).sum()) > len(stream):
            known[:] = _UNKNOWN
        reason = "the node cannot be read, −1 now"
        self._say(np.flatnonzero((known == _UNKNOWN) & ~own), total, "observations", reason)
        places, there = _renumbered(self.nodes, known)
        reason = "the node is lost, −1 now"
        self._say(np.flatnonzero((known >= 0) & ~there & ~own), total, "observations", reason)
        assignment = np.where(there, places, -1)
        assignment[stream] = np.arange(len(stream))
        return assignment

    # -- edges --

    def _graph(self) -> Graph:
        rows = self._numbered("edges")
        self.total_edges = total = self._total_edges(rows)
        self._say_runs(_gaps(list(rows), 0, total), total, "edges", "cannot be read")
        reversible = is_reversible(self.facts)
        good = {edge: row for edge, row in rows.items() if _is_edge(*row[1:], reversible=reversible)}
        self._say(rows.keys() - good, total, "edges", "values that no edge has")
        edges = np.array(list(good), np.int64)
        values = [
            (s, t, math.inf if distance is None else distance, temporal)
            for _, s, t, distance, temporal in good.values()
        ]
        table = np.array(values, np.float64).reshape(-1, 4)
        source, has_source = _renumbered(self.nodes, table[:, 0].astype(np.int64))
        target, has_target = _renumbered(self.nodes, table[:, 1].astype(np.int64))
        joins = has_source & has_target
        self._say(edges[~joins], total, "edges", "a node that is lost, or never existed")
        self._say(edges[joins & (source == target)], total, "edges", "from a node to itself")
        joins &= source != target
        keys = np.where(joins, source * max(1, len(self.nodes)) + target, -1 - np.arange(len(edges)))
        first = np.zeros(len(edges), np.bool_)
        first[np.unique(keys, return_index=True)[1]] = True
        self._say(edges[joins & ~first], total, "edges", "another edge joins the same nodes")
        kept = joins & first
        if reversible:
            alone = kept & ~_has_way_back(source, target, table, kept, len(self.nodes))
            self._say(edges[alone], total, "edges", "the opposite edge is lost")
            kept &= ~alone
        self.edges = edges[kept]
        graph = Graph()
        ends = (source[kept], target[kept])
        graph.append(len(self.nodes), *ends, table[kept, 2].astype(np.float32), table[kept, 3].astype(np.uint8))
        return graph

    def _total_edges(self, rows: Rows) -> int:
        """Estimate the original number of edges."""
        total = max(rows, default=-1) + 1
        if not self.found.is_complete("edges"):
            stated = self._growth()[:, 2]
            total = max(total, *stated[stated < max(4 * len(rows) + 1000, self.size // 8)].tolist(), 0)
        return total

    # -- the log --

    def _log(self, observations: int) -> EventLog:
        """Make the log from the events after the last missing one, with their growth; older events become evidence."""
        evidence, records, folded = self._evidence()
        numbers, rows, total = self._events()
        numbers, rows, folded = self._without_old(numbers, rows, folded)
        total = max(total, folded)
        gaps = _gaps(numbers.tolist(), folded + 1, total + 1)
        self._say_runs(gaps, total - folded, "events", "cannot be read")
        begin = _after_gaps(numbers, rows["kind"], gaps)
        edges, there = _renumbered(self.edges, rows["edge"].astype(np.int64))
        self._say(numbers[~there], total - folded, "events", "an edge that is lost, or never existed")
        rows = rows.copy()
        rows["edge"] = np.where(there, edges, 0)
        older = there & (np.arange(len(rows)) < begin)
        newer = there & ~older
        log = EventLog(self._keep_events())
        log.folded = total if begin == len(rows) else int(numbers[begin]) - 1
        after, records = replay(EvidenceColumns(evidence), records, rows[older])
        known, log.folded_records = _consistent({**evidence, **dict(after.items())})
        log.evidence = EvidenceColumns(known)
        growth = self._renumbered_growth(numbers[newer], log.folded, observations)
        log.put(rows[newer], growth)
        if not self._fits_growth(log, observations):
            self.lost.append("how many nodes and edges there were when the events happened")
            log = self._folded(log, total)
        if older.any() or len(log.rows) < newer.sum():
            self.lost.append(
                f"the order of {there.sum() - len(log.rows)} events (up to number {log.folded}): they are kept as the "
                "evidence of their edges"
            )
        return log

    def _evidence(self) -> tuple[dict[int, Evidence], int, int | None]:
        """Return evidence by new edge number, its number of tries, and the number of events folded into it.

        The number of events is None if unknown.
        """
        stated, folded = self._stated()
        evidence, odd, gone, tries = {}, [], [], 0
        for edge, values in sorted(self.found.rows["evidence"].items()):
            known = _salvaged_evidence(edge, values)
            if known is None:
                odd.append(edge)
                continue
            tries += known.attempts
            place = int(np.searchsorted(self.edges, edge))
            if place < len(self.edges) and self.edges[place] == edge:
                evidence[place] = known
            else:
                gone.append(edge)
        total = len(self.found.rows["evidence"])
        self._say(odd, total, "edges with evidence", "numbers of tries that contradict each other")
        self._say(gone, total, "edges with evidence", "an edge that is lost, or never existed, and its tries")
        if stated is not None and tries < stated:
            self.lost.append(f"{stated - tries} of {stated} tries of edges before the first event: cannot be read")
        evidence, records = _consistent(evidence)
        return evidence, records, folded

    def _stated(self) -> tuple[int | None, int | None]:
        """Return the numbers of tries and of folded events in the evidence, as stored in the file; None if unknown."""
        if self.version == 1:
            records = self.facts.get("records")
            return (records if _is_count(records) else None), 0
        values = self.found.rows["state"].get(0, [])
        if len(values) != len(COLUMNS["state"]) or not all(map(_is_count, values[3:])):
            return None, None
        return values[4], values[3]

    def _events(self) -> tuple[Ints, NDArray[Any], int]:
        """Return the numbers of the readable events, ascending, these events, and the number of the last event."""
        numbers = np.array(sorted(row for row in self.found.rows["events"] if 0 < row < _MOST), np.int64)
        if len(numbers):
            most = max(4 * len(numbers) + 1000, self.size // 8)
            numbers = numbers[np.abs(numbers - numbers[len(numbers) // 2]) <= most]
        last = int(numbers[-1]) if len(numbers) else 0
        good = [(row, values) for row in numbers.tolist() if _is_event(values := self.found.rows["events"][row])]
        rows = [(*values[1:4], NO_EPISODE if values[4] is None else values[4]) for _, values in good]
        return np.array([row for row, _ in good], np.int64), np.array(rows, EVENT), last

    def _without_old(self, numbers: Ints, rows: NDArray[Any], folded: int | None) -> tuple[Ints, NDArray[Any], int]:
        """Return the events without those that were folded already, and the number of folded events."""
        if not len(numbers):
            return numbers, rows, folded or 0
        if folded is None and (numbers[0] > 1 or self.found.rows["evidence"]):
            self.lost.append("the number of events in the evidence: all before the first event that is left")
        in_table = (number for number in numbers.tolist() if number not in self.found.strays["events"])
        if folded is None or next(in_table, _MOST) <= folded:
            folded = int(numbers[0]) - 1
        return numbers[numbers > folded], rows[numbers > folded], folded

    def _growth(self) -> Ints:
        """(m, 4) readable rows of growth: event, nodes, edges, observations."""
        rows = [
            [row, *values[1:]] for row, values in sorted(self.found.rows["growth"].items()) if len(values) == GROWTH
        ]
        return np.array([row for row in rows if all(map(_is_count, row))], np.int64).reshape(-1, GROWTH)

    def _renumbered_growth(self, numbers: Ints, folded: int, observations: int) -> Ints:
        """Return the rows of growth for the events with these numbers, in new numbers of events, nodes and edges."""
        growth = self._growth()
        limits = (("nodes", 1, self.total_nodes), ("edges", 2, self.total_edges))
        if any(self.found.is_complete(table) and (growth[:, column] > total).any() for table, column, total in limits):
            return growth[:0]
        growth = growth[max(0, int(np.searchsorted(growth[:, 0], folded)) - 1) :]
        late = growth[:, 0] > folded
        growth[late, 0] = folded + np.searchsorted(numbers, growth[late, 0], "right")
        growth[:, 1] = np.searchsorted(self.nodes, growth[:, 1])
        growth[:, 2] = np.searchsorted(self.edges, growth[:, 2])
        growth[:, 3] = np.minimum(growth[:, 3], observations)
        last = np.append(growth[1:, 0] != growth[:-1, 0], True)[: len(growth)]
        return growth[last & (growth[:, 0] < folded + len(numbers))]

    def _fits_growth(self, log: EventLog, observations: int) -> bool:
        """Whether the growth fits the events: no event refers to an edge that did not exist yet."""
        try:
            check_growth(log, len(self.nodes), len(self.edges), observations)
        except StoreError:
            return False
        rows, growth = log.rows, log.growth
        if not len(rows):
            return True
        places = np.searchsorted(growth[:, 0], log.folded + 1 + np.arange(len(rows))) - 1
        return bool((rows["edge"] < growth[places, 2]).all()) and max(log.evidence, default=-1) < growth[0, 2]

    def _folded(self, log: EventLog, total: int) -> EventLog:
        """Return the log with all its events folded into evidence."""
        folded = EventLog(log.keep)
        folded.folded = total
        known, folded.folded_records = _consistent(log.replayed()[0])
        folded.evidence = EvidenceColumns(known)
        return folded

    def _keep_events(self) -> int | None:
        keep = self.facts.get("keep_events", "lost")
        if keep is None or _is_count(keep):
            return keep  # type: ignore[no-any-return]
        if self.version != 1:
            self.lost.append(f"how many events to keep: {KEEP_EVENTS} now")
        return KEEP_EVENTS

    # -- attributes --

    def _attributes(self, nodes: Nodes) -> None:
        runs: dict[int, list[tuple[int, list[Any]]]] = {}
        for run, values in sorted(self.found.rows["attribute_rows"].items()):
            if len(values) == len(COLUMNS["attribute_rows"]):
                runs.setdefault(values[1] if type(values[1]) is int else -1, []).append((run, values))
        declared = {row: v for row, v in sorted(self.found.rows["attributes"].items()) if len(v) == 4}
        for number, (_, name, dtype, shape) in declared.items():
            self._attribute(nodes, name, dtype, shape, [values for _, values in runs.pop(number, [])])
        if runs:
            self.lost.append(
                f"values of attributes (number {_listed(_runs(sorted(runs)))}): their names and types cannot be read"
            )

    def _attribute(self, nodes: Nodes, name: Any, dtype: Any, shape: Any, runs: list[list[Any]]) -> None:
        """Put an attribute into `nodes`, as far as its values can be read."""
        try:
            check_name(name)
            form = checked_form({"dtype": dtype, "shape": json.loads(shape)}, f"attributes {name!r}")
        except (SGMError, TypeError, ValueError, RecursionError):
            self.lost.append(f"the attribute {shortened(name)}: this name, dtype or shape is not one of an attribute")
            return
        stored = sum(_length(values[4]) for values in runs)
        if name in nodes.attributes or len(nodes) * form[2] > 2 * MOST_RATIO * stored:
            self.lost.append(
                f"the attribute {name!r}: " + ("there are two" if name in nodes.attributes else "no values")
            )
            return
        values = missing(len(nodes), form[0], form[1])
        have = np.zeros(len(nodes), np.bool_)
        for _, _, first, amount, data in runs:
            if _is_count(first) and _is_count(amount) and 0 < amount <= self.size + 2**20:
                self._fill(values, have, first, _rows_of(data, amount, form))
        if len(nodes) and not have.any():
            self.lost.append(f"the attribute {name!r}: its values cannot be read")
            return
        reason = f"cannot be read, {'NaN' if form[0].kind == 'f' else '0'} now"
        self._say(self.nodes[~have], len(nodes), f"values of the attribute {name!r}", reason)
        nodes.set_attribute(name, values)

    def _fill(self, values: NDArray[Any], have: Bools, first: int, rows: list[tuple[int, NDArray[Any]]]) -> None:
        """Copy the readable parts of a run of values, which begins at old node number `first`, to the kept nodes."""
        for place, part in rows:
            begin, end = np.searchsorted(self.nodes, [first + place, first + place + len(part)])
            values[begin:end] = part[self.nodes[begin:end] - first - place]
            have[begin:end] = True

    # -- facts --

    def _meta(self, nodes: Nodes, graph: Graph, log: EventLog) -> dict[str, Any]:
        settings = self._settings(nodes, graph)
        kept = nodes.observation
        return {
            "settings": settings.asdict(),
            "policy": self._policy(settings),
            "fingerprint": self._fact("fingerprint", (str, type(None)), None, "the fingerprint of its distance"),
            "features": self._fact(
                "features",
                (dict,),
                {"given": nodes.has_own_features, "fingerprint": None},
                "the facts about its feature function",
            ),
            "tail": self._tail(),
            "observation": None if kept is None else form_of(kept),
            "keep_events": log.keep,
        }

    def _fact(self, name: str, types: tuple[type, ...], otherwise: Any, what: str) -> Any:
        if name in self.facts and isinstance(self.facts[name], types):
            return self.facts[name]
        self.lost.append(f"{what}: now it is {json.dumps(otherwise)}")
        return otherwise

    def _settings(self, nodes: Nodes, graph: Graph) -> Settings:
        """Return the settings; if they are lost, the defaults with a MaxDist of at least the longest edge."""
        keeps = nodes.observation is not None
        try:
            settings = Settings.fromdict(self.facts.get("settings"))
        except (InputError, TypeError):
            distance = graph.distance.values[np.isfinite(graph.distance.values)]
            longest = math.floor(float(distance.max())) + 1.0 if len(distance) else 0.0
            settings = Settings(max_dist=min(max(Settings.max_dist, longest), MOST_STEPS), keep_observations=keeps)
            self.lost.append(f"the settings: now they are the defaults, with max_dist={settings.max_dist:g}")
        if settings.keep_observations and len(nodes) and not keeps:
            settings = dataclasses.replace(settings, keep_observations=False)
        return settings

    def _policy(self, settings: Settings) -> dict[str, Any]:
        values = self.facts.get("policy")
        try:
            if isinstance(values, dict):
                checked_policy(values)
                return values
        except InputError:
            pass
        self.lost.append(f"the cleanup policy: now it is {FirstFailure.name!r}")
        return FirstFailure().bound_to(settings.max_dist).asdict()

    def _tail(self) -> list[int] | None:
        tail: list[int] | None = self.facts.get("tail", ())
        try:
            check_tail(tail, _MOST)
        except StoreError:
            self.lost.append("the episode of the last observation: no edge in time joins it to the next observation")
            return None
        if tail is None or tail[1] == -1:
            return tail
        place, there = _renumbered(self.nodes, np.array([tail[1]]))
        if not there[0]:
            self.lost.append("the node of the last observation: no edge in time joins it to the next observation")
            return None
        return [tail[0], int(place[0])]


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return (first, last) of each run of consecutive numbers in ascending ones."""
    values = np.array(numbers, np.int64)
    starts = np.flatnonzero(np.diff(values, prepend=-_MOST, append=_MOST) != 1)
    return list(zip(values[starts[:-1]].tolist(), values[starts[1:] - 1].tolist(), strict=True))


def _gaps(numbers: Sequence[int], begin: int, end: int) -> list[tuple[int, int]]:
    """Return (first, last) of each run of numbers from `begin` to `end` − 1 that these ascending numbers leave out."""
    edges = itertools.pairwise([begin - 1, *numbers, end])
    return [(before + 1, after - 1) for before, after in edges if after > before + 1]


def _listed(runs: Sequence[tuple[int, int]]) -> str:
    """Format runs of numbers as "3–7, 9", at most `_MOST_RUNS` of them."""
    shown = [str(first) if first == last else f"{first}–{last}" for first, last in runs[:_MOST_RUNS]]
    more = sum(last - first + 1 for first, last in runs[_MOST_RUNS:])
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _after_gaps(numbers: Ints, kinds: NDArray[Any], gaps: Sequence[tuple[int, int]]) -> int:
    """Return the position of the first event after the last gap whose cause, a failed try, is not missing either."""
    if not gaps:
        return 0
    begin = int(np.searchsorted(numbers, gaps[-1][1]))
    while begin < len(numbers) and kinds[begin] in (REMOVED, GUARDED, SPARE):
        begin += 1  # the failed try that caused it is lost
    return begin


def _most_common(lengths: Iterable[int]) -> int:
    common = collections.Counter(lengths).most_common(1)
    return common[0][0] if common else 0


def _renumbered(kept: Ints, numbers: Ints) -> tuple[Ints, Bools]:
    """Return the positions of numbers among those kept, and whether each is kept."""
    places = np.searchsorted(kept, numbers)
    there = np.zeros(len(numbers), np.bool_)
    inside = places < len(kept)
    there[inside] = kept[places[inside]] == numbers[inside]
    return places, there


def _ascending(values: Mapping[int, int]) -> dict[int, int]:
    """Return the longest subsequence of the items, sorted by key, whose values ascend strictly."""
    ends: list[int] = []  # smallest last value of an ascending sequence of each length
    last: list[int] = []  # the key it belongs to
    before: dict[int, int | None] = {}
    for key, value in sorted(values.items()):
        place = bisect_left(ends, value)
        before[key] = last[place - 1] if place else None
        ends[place : place + 1], last[place : place + 1] = [value], [key]
    kept = []
    key_ = last[-1] if last else None
    while key_ is not None:
        kept.append(key_)
        key_ = before[key_]
    return {key: values[key] for key in reversed(kept)}


def _floats(blob: Any) -> NDArray[np.float32] | None:
    """Decode a stored vector; None if it is damaged or not finite."""
    if not isinstance(blob, bytes) or not blob or len(blob) % 4:
        return None
    values = np.frombuffer(blob, "<f4").astype(np.float32, copy=False)
    return values if np.isfinite(values).all() else None


def _is_blob(value: Any) -> bool:
    return isinstance(value, bytes) or (isinstance(value, Torn) and value.kind == "b")


def _length(value: Any) -> int:
    """Size of a blob in bytes, lost parts included; 0 if the value is not a blob."""
    if isinstance(value, Torn):
        return value.length if value.kind == "b" else 0
    return len(value) if isinstance(value, bytes) else 0


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _has_way_back(source: Ints, target: Ints, table: NDArray[Any], kept: Bools, nodes: int) -> Bools:
    """(n,) whether each kept edge has a kept opposite edge, and one of the two has a weight of its own."""
    keys, back = source * max(1, nodes) + target, target * max(1, nodes) + source
    weighty = kept & (np.isfinite(table[:, 2]) | (table[:, 3] > 0))
    found = kept & np.isin(back, keys[kept]) & (weighty | np.isin(back, keys[weighty]))
    return np.asarray(found, np.bool_)


def _is_edge(source: Any, target: Any, distance: Any, temporal: Any, *, reversible: bool) -> bool:
    """Whether these are valid columns of an edge; SQLite stores an integral distance as an integer."""
    if not all(type(value) is int and 0 <= value < 2**31 for value in (source, target)):
        return False
    if type(temporal) is not int or not 0 <= temporal <= MOST_BETWEEN:
        return False
    return temporal > 0 or reversible if distance is None else type(distance) in (int, float) and 0 <= distance < 3.4e38


def _is_event(values: list[Any]) -> bool:
    """Whether these are valid columns of an event; SQLite stores an integral time as an integer."""
    if len(values) != len(COLUMNS["events"]):
        return False
    _, time, edge, kind, episode = values
    return (
        type(time) in (int, float)
        and abs(time) < 1e300
        and type(edge) is int
        and 0 <= edge < 2**31
        and type(kind) is int
        and 0 <= kind < len(KINDS)
        and (episode is None or (type(episode) is int and episode >= 0))
    )


def _salvaged_evidence(edge: int, values: list[Any]) -> Evidence | None:
    """Return the evidence in a row. If its numbers are inconsistent, a removed edge counts as failed once."""
    if len(values) != len(COLUMNS["evidence"]):
        return None
    try:
        check_evidence((edge, *values[1:]), 2**62, _MOST)
    except (StoreError, TypeError):
        removed_at = values[4]
        return Evidence(0, 1, 1, removed_at) if _is_count(removed_at) and removed_at else None
    successes, failures, streak, removed_at, flags = values[1:]
    return evidence_of((successes, failures, streak, STANDS if removed_at is None else removed_at, flags))


def _consistent(evidence: Mapping[int, Evidence]) -> tuple[dict[int, Evidence], int]:
    """Make evidence consistent with the number of tries in it; return both.

    A removed edge without a failure gets one: its failed try is lost.
    """
    known = {
        edge: dataclasses.replace(each, failures=1, streak=1)
        if each.removed_at is not None and not each.failures
        else each
        for edge, each in evidence.items()
    }
    records = sum(each.attempts for each in known.values())
    return {
        edge: each
        if each.removed_at is None
        else dataclasses.replace(each, removed_at=min(max(1, each.removed_at), records))
        for edge, each in known.items()
    }, records


def _unpacked(blob: Any, form: tuple[np.dtype[Any], tuple[int, ...], int], into: NDArray[Any]) -> bool:
    """Unpack the stored observation of a node; return whether that was possible."""
    if not isinstance(blob, bytes):
        return False
    try:
        into[...] = unpack(blob, 1, form, "an observation")[0]
    except (StoreError, zlib.error, ValueError):
        return False
    return True


def _rows_of(
    data: Any, number: int, form: tuple[np.dtype[Any], tuple[int, ...], int]
) -> list[tuple[int, NDArray[Any]]]:
    """Read the undamaged parts of a run of attribute values: (n, ...) parts, each with its first row."""
    if isinstance(data, bytes):
        with contextlib.suppress(StoreError, zlib.error, ValueError):
            return [(0, unpack_attribute(data, number, form))]
        return []
    if not isinstance(data, Torn) or data.kind != "b":
        return []
    size = form[2]
    if is_packed(*form[:2]):
        return []
    if data.length != number * size:
        return []
    parts, begin = [], 0
    for start, end in [*data.holes, (len(data.data), data.length)]:
        stop = start // size
        if stop > begin:
            parts.append((begin, unpack_attribute(data.data[begin * size : stop * size], stop - begin, form)))
        begin = max(begin, -(-end // size))
    return parts
