"""Online single-pass build: add a batch of observations as nodes, merges and edges, as a whole or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError

from .arrays import Ints, as_array
from .compiled import kernels
from .criteria import Floats, measured_pairs, nonzero, perceptual_pairs, within
from .distance import Distance, Features, between, compute_features, count, embed
from .events import NO_EPISODE, WALKED, EventLog, Mark, Size
from .fast_merges import NOVEL, Block, decide
from .fast_nearby import decide_nearby
from .graph import MOST_BETWEEN, Graph, Steps
from .index import Pairs
from .nearby import ENOUGH, NearestCandidates, Neighbourhood, new_edges
from .nodes import Nodes
from .search import Search, is_searchable, measured
from .settings import Settings

NewEdges = tuple[Ints, Ints, Floats]  # (m,) sources, (m,) targets and (m,) distances
DROPPED = -1
_BLOCK = 256
_LOOKED_UP_BLOCK = 512  # the same if compiled code reads distances from a table, which need not be computed
_NEARBY_BLOCK = 64  # observations processed at once if near nodes are found by an index
_COMPILE = 512  # fewest nodes and observations for which numba is loaded
_FEW_AXES = 8  # longest features that compiled code compares
_BLOCK_NUMBERS = 1 << 22  # most distances computed at once, in each direction


@dataclasses.dataclass(frozen=True, eq=False)
class ExtendReport:
    """Result of adding a batch of observations.

    Attributes:
        added: number of observations that became nodes.
        merged: number of observations merged into a node.
        dropped: number of observations that uniform subsampling left out.
        assignment: (n,) int64 node id of each observation; −1 for those left out.
    """

    added: int
    merged: int
    dropped: int
    assignment: Ints

    def asdict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON."""
        return {**dataclasses.asdict(self), "assignment": self.assignment.tolist()}


@dataclasses.dataclass
class Undo:
    """The state before a batch, to undo the batch and to find its changes."""

    nodes: int
    edges: int
    stream: int
    tail: tuple[int, int] | None
    log: Mark
    attributes: frozenset[str]
    features: dict[int, Floats] = dataclasses.field(default_factory=dict)
    temporal: list[tuple[Ints, Steps]] = dataclasses.field(default_factory=list)  # edges, and their steps before
    tail_step: int | None = None


class Builder:
    """Adds observations to nodes and graph."""

    def __init__(
        self, nodes: Nodes, graph: Graph, log: EventLog, settings: Settings, tail: tuple[int, int] | None = None
    ) -> None:
        """Add to these nodes and this graph; `tail` is (episode, node) of the last observation, None: no episode."""
        self.nodes = nodes
        self.graph = graph
        self.log = log
        self.settings = settings
        self.tail = tail
        self.neighbourhood: Neighbourhood | None = None  # set if near nodes are found by an index, in a large memory
        self._search: Search | None = None
        self._moving: tuple[int, int, Floats] | None = None  # observation of the batch, node, and its previous feature
        self._compiled = False  # whether compiled code processes the tables of distances
        self._tail_step: int | None = None  # step of the last observation within its episode, if known

    def __getstate__(self) -> dict[str, Any]:
        """State of a copy: everything except the indexes, which refer to these nodes and are made again on use."""
        return {**self.__dict__, "neighbourhood": None, "_search": None}

    @property
    def size(self) -> Size:
        """Numbers of nodes, edges and observations."""
        return Size(len(self.nodes), len(self.graph), len(self.nodes.assignment))

    def mark(self) -> Undo:
        """Return the present state, to which `back_to` can return."""
        known = frozenset(self.nodes.attributes)
        return Undo(*self.size, self.tail, self.log.mark(), known, tail_step=self._tail_step)

    def back_to(self, undo: Undo, torn: bool = False) -> None:
        """Undo a batch; `torn`: after an interrupt, which may have left indexes inconsistent."""
        if torn:
            self._drop_indexes()
        for edges, before in reversed(undo.temporal):
            self.graph.set_temporal(edges, before)
        for node, feature in undo.features.items():
            self.nodes.feature[node] = feature
        for name in self.nodes.attributes.keys() - undo.attributes:
            del self.nodes.attributes[name]
        self.nodes.cut(undo.nodes, undo.stream)
        for index in (self.neighbourhood, self._search):
            if index is not None:
                index.cut(undo.nodes)
        self.graph.cut(undo.nodes, undo.edges)
        self.log.back_to(undo.log)
        self.tail, self._tail_step = undo.tail, undo.tail_step

    def extend(
        self,
        distance: Distance,
        features: Features | None,
        observations: Any,
        episodes: Ints | None,
        attributes: Mapping[str, NDArray[Any]],
        block: int | None,
        undo: Undo,
        progress: Any,
        steps: Ints | None = None,
        keep_part: bool = False,
    ) -> ExtendReport:
        """Add a batch; changes that cutting columns does not undo are noted in `undo`.

        `steps`, (n,), are the steps of the observations within their episodes; None: one step after each other. With
        `keep_part` an interrupt (Ctrl-C) keeps the observations processed so far, unless the criterion is "uniform";
        the assignment in the report is then shorter than the batch.
        """
        number = count(observations)
        chosen = np.arange(number)
        if self.settings.criterion == "uniform":
            chosen = self._uniform_choice(number)
            observations = as_array("observations", observations)
            self._check_dropped(distance, observations, len(chosen))
            observations = observations[chosen]
        assignment = np.full(number, DROPPED)
        low = 0
        self._moving = None  # observations are counted by batch
        done = 0, len(self.nodes), len(self.graph)
        try:
            self._look_around(distance)
            self._compiled = self._compiles(len(chosen))
            while low < len(chosen):
                part = slice(low, low + self._block_size(block, hasattr(distance, "table")))
                stream = undo.stream + chosen[part]
                assignment[chosen[part]] = self._extend_block(distance, features, observations[part], stream, undo)
                low = part.stop
                done = low, len(self.nodes), len(self.graph)
                progress.update(len(stream))
        except KeyboardInterrupt:
            if not keep_part or not done[0] or self.settings.criterion == "uniform":
                raise
            self._cut_to(*done)
            number = min(done[0], number)
            chosen, assignment = chosen[:number], assignment[:number]
            episodes, steps = (None if each is None else each[:number] for each in (episodes, steps))
        self.nodes.assignment.append(assignment)
        if self.nodes.attributes or attributes:
            kept = self.nodes.stream.values[undo.nodes :] - undo.stream
            self.nodes.append_attributes(undo.nodes, {name: values[kept] for name, values in attributes.items()})
        if episodes is not None:
            self.join_in_time(assignment, episodes, steps, undo)
        elif number:
            self.tail = None
        added, dropped = len(self.nodes) - undo.nodes, number - len(chosen)
        return ExtendReport(added, number - added - dropped, dropped, assignment)

    def goes_on(self, episodes: Ints | None, steps: Ints | None) -> bool:
        """Whether a batch with these episodes and steps continues the episode of the last observation."""
        if self.tail is None or self._tail_step is None or episodes is None or steps is None or not len(steps):
            return False
        return int(episodes[0]) == self.tail[0] and int(steps[0]) > self._tail_step

    def _cut_to(self, done: int, nodes: int, edges: int) -> None:
        """After an interrupt, keep the first `done` observations of a batch, and undo the rest."""
        if self._moving is not None and self._moving[0] == done:
            self.nodes.feature[self._moving[1]] = self._moving[2]
        self._drop_indexes()
        self.nodes.cut(nodes, len(self.nodes.assignment))
        self.graph.cut(nodes, edges)

    def _drop_indexes(self) -> None:
        """Drop the indexes over nodes and edges, which an interrupt may have left inconsistent; they are made again."""
        self.neighbourhood = self._search = None
        self.graph.drop_runs()

    def _block_size(self, block: int | None, looks_up: bool) -> int:
        if self.settings.feature_average:
            return 1  # each merge moves a feature with which the next observation is compared
        if self.neighbourhood is not None:
            return block or _BLOCK
        most = _LOOKED_UP_BLOCK if self._compiled and looks_up else _BLOCK
        return block or max(1, min(most, _BLOCK_NUMBERS // (len(self.nodes) + 1)))

    def _uniform_choice(self, number: int) -> Ints:
        """Choose the observations of a batch that uniform subsampling keeps, ascending."""
        assert self.settings.size is not None
        room = min(number, self.settings.size - len(self.nodes))
        random = np.random.default_rng([self.settings.seed, len(self.nodes.assignment)])
        return np.sort(random.choice(number, room, replace=False))

    def _check_dropped(self, distance: Distance, observations: NDArray[Any], chosen: int) -> None:
        """Check the observations of a batch of which none is kept, as if they were kept."""
        if len(observations) and not chosen:
            embed(distance, observations[:1], self.nodes.embedding_width)
            if self.settings.keep_observations:
                self.nodes.check_observations(observations)

    def _extend_block(
        self, distance: Distance, features: Features | None, observations: Any, stream: Ints, undo: Undo
    ) -> Ints:
        """Add one block of observations with numbers `stream`; return their node ids."""
        nodes, settings, before = self.nodes, self.settings, len(self.nodes)
        embedding = embed(distance, observations, nodes.embedding_width)
        feature = embedding
        if features is not None:
            feature = compute_features(features, observations, nodes.feature_width)
        kept = None
        if settings.keep_observations:
            kept = as_array("observations", observations)
            nodes.check_observations(kept)
        self._look_around(distance)
        step = len(stream) if self.neighbourhood is None else _NEARBY_BLOCK
        assignment = np.empty(len(stream), np.int64)
        for low in range(0, len(stream), step):
            part = slice(low, low + step)
            own = feature[part] if features is not None or settings.feature_average else None
            some = stream[part], embedding[part], own, None if kept is None else kept[part]
            assignment[part] = self._add(distance, feature[part], *some)
        if settings.feature_average and assignment[0] < before:
            self._average_feature(int(assignment[0]), feature[0], undo, int(stream[0]) - undo.stream)
        return assignment

    def search(self, distance: Distance) -> Search | None:
        """Return the search over the nodes by an index; None if the distance cannot be searched."""
        if self._search is None or self._search.distance is not distance:
            able = is_searchable(distance, self.settings.max_dist)
            self._search = Search(distance, self.nodes, self.settings.max_dist) if able else None
        return self._search

    @property
    def index_kind(self) -> str:
        """Description of how nodes near an observation are found."""
        if self.settings.candidates is not None:
            return f"{self.settings.candidates} nearest candidates" + (", usearch" if self.settings.approximate else "")
        return "every node" if self.neighbourhood is None else self.neighbourhood.kind

    @property
    def index_bytes(self) -> int:
        """Size of the indexes over the nodes, bytes."""
        around = 0 if self.neighbourhood is None else self.neighbourhood.nbytes
        return around + (0 if self._search is None else self._search.nbytes)

    def _look_around(self, distance: Distance) -> None:
        """Use an index for near nodes if there are enough nodes and the settings allow it."""
        if self.neighbourhood is not None and self.neighbourhood.distance is not distance:
            self.neighbourhood = None
        if self.neighbourhood is not None or len(self.nodes) < ENOUGH:
            return
        if self.settings.candidates is not None:
            self.neighbourhood = NearestCandidates(distance, self.nodes, self.settings)
        elif Neighbourhood.suits(distance, self.settings):
            search = self.search(distance)
            assert search is not None
            self.neighbourhood = Neighbourhood(search, self.settings)

    def _add(
        self,
        distance: Distance,
        feature: Floats,
        stream: Ints,
        embedding: Floats,
        own_feature: Floats | None,
        kept: NDArray[Any] | None,
    ) -> Ints:
        """Merge a block or add its nodes and edges; return the node ids of its observations."""
        before = len(self.nodes)
        around = self.neighbourhood
        if around is None and self._compiled:
            matches, edges = self._decide_and_join(distance, feature, embedding)
        elif around is None:
            table = self._distances(distance, embedding)
            matches = self._decide(distance, feature, table)
        else:
            near = around.around(embedding)

            def measure(observation: Ints, node: Ints, outgoing: bool) -> Floats:
                return measured(distance, self.nodes, embedding, Pairs(observation, node), outgoing)

            matches = decide_nearby(self.settings, self.graph, *around.perceptual(feature), near, measure)
        new = np.flatnonzero(matches == NOVEL)
        features = None if own_feature is None else own_feature[new]
        self.nodes.append(stream[new], embedding[new], features, None if kept is None else kept[new])
        if around is not None:
            edges = new_edges(near, new, self.settings)
        elif not self._compiled:
            edges = self._edges(table, new)
        self.graph.append(len(self.nodes), *edges, np.zeros(len(edges[0]), np.uint8))
        if len(stream) == 1:
            return np.array([before]) if len(new) else matches
        node_of = np.full(len(stream), NOVEL)
        node_of[new] = before + np.arange(len(new))
        inside = np.where(matches >= before, matches - before, 0)
        merged = np.where(matches < before, matches, node_of[inside])
        return np.where(matches == NOVEL, node_of, merged)

    def _compiles(self, number: int) -> bool:
        """Whether compiled code processes the next `number` observations; it needs tables of distances."""
        if self.neighbourhood is not None or len(self.nodes) + number < _COMPILE:
            return False
        known = self.settings.criterion in ("none", "uniform", "perceptual") or self.settings.scope == "neighbors"
        return known and kernels() is not None

    def _decide_and_join(self, distance: Distance, feature: Floats, embedding: Floats) -> tuple[Ints, NewEdges]:
        """Do `_decide` and `_edges` in one compiled pass."""
        from . import fast_table

        settings, graph = self.settings, self.graph
        tables = self._tables(distance, embedding)
        observation, candidate = self._near_in_features(feature)
        first = np.searchsorted(observation, np.arange(len(embedding) + 1))
        out, into = graph.out_of(), graph.into()
        leaving = out.start, out.length, out.edge, graph.target.values
        arriving = into.start, into.length, into.edge, graph.source.values
        both = settings.criterion == "two-way"
        limits = np.float32(settings.max_dist), np.float32(settings.tau_a), settings.strict
        ways = both or settings.criterion == "outgoing", both or settings.criterion == "incoming"
        found: Any = fast_table.decide_and_join(
            tables, first, candidate, leaving, arriving, graph.distance.values, limits, ways,
            settings.reversible is not None,
        )  # fmt: skip
        return found[0], found[1:]

    def _tables(self, distance: Distance, embedding: Floats) -> tuple[NDArray[Any], ...]:
        """Return distances from a block to the nodes, from the nodes to it and within it, and the positions in them."""
        standing, number = self.nodes.embedding, np.arange(len(embedding))
        if not len(standing):
            standing = np.empty((0, embedding.shape[1]), np.float32)
        look_up: Any = getattr(distance, "table", lambda _: None)
        if (whole := look_up(embedding)) is not None:
            (table, rows), nodes = whole, look_up(standing)[1]
            return table, table, table, rows, rows, rows, nodes
        ends = (embedding, standing), (standing, embedding), (embedding, embedding)
        tables = [np.require(between(distance, *pair), np.float32, ["C", "W"]) for pair in ends]
        return *tables, number, number, number, np.arange(len(standing))

    def _near_in_features(self, feature: Floats) -> tuple[Ints, Ints]:
        """Find the pairs (observation, earlier candidate) within τ_p; compiled for short features.

        See `perceptual_pairs`.
        """
        from . import fast_table

        settings, known = self.settings, self.nodes.feature
        if settings.criterion in ("none", "uniform"):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        known = known if len(known) else np.empty((0, feature.shape[1]), np.float32)
        if np.isinf(settings.tau_p) or feature.shape[1] > _FEW_AXES:
            return perceptual_pairs(known, feature, settings)
        universe = np.concatenate([known, feature])
        columns, limit = np.ascontiguousarray(universe.T), settings.tau_p**2 * (1 + 1e-9) + 1e-30
        observation, candidate = fast_table.near_features(columns, len(known), limit)
        return measured_pairs(universe, len(known), observation, candidate, settings)

    def _distances(self, distance: Distance, embedding: Floats) -> Block:
        """Compute the distances between a block and its universe, in at most three calls of the distance."""
        standing = self.nodes.embedding
        inside = between(distance, embedding, embedding)
        if not len(standing):
            return Block(inside, np.ascontiguousarray(inside.T), 0)
        out = np.concatenate([between(distance, embedding, standing), inside], axis=1)
        into = np.concatenate([between(distance, standing, embedding), inside], axis=0)
        return Block(out, np.ascontiguousarray(into.T), len(standing))

    def _decide(self, distance: Distance, feature: Floats, table: Block) -> Ints:
        standing = self.nodes.embedding

        def rows(chosen: Ints, outgoing: bool) -> Floats:
            if outgoing:
                return between(distance, standing[chosen], standing)
            return np.transpose(between(distance, standing, standing[chosen]))

        node_features = self.nodes.feature if table.nodes else np.empty((0, feature.shape[1]), np.float32)
        return decide(self.settings, self.graph, node_features, feature, table, rows)

    def _edges(self, table: Block, new: Ints) -> tuple[Ints, Ints, Floats]:
        """Return the edges between each new node and all earlier nodes, in the order of adding them one by one.

        Of each new node the incoming edges come first.
        """
        before = table.nodes
        everything = np.concatenate([np.arange(before), before + new])
        pair = np.stack([table.into[np.ix_(new, everything)], table.out[np.ix_(new, everything)]], axis=1)
        near = within(pair, self.settings)
        near &= (np.arange(len(everything)) < before + np.arange(len(new))[:, None])[:, None, :]
        if self.settings.reversible is not None:
            pair = np.where(near, pair, np.float32(np.inf))
            near |= near[:, ::-1]
        number, column = nonzero(near.reshape(len(new), 2 * len(everything)))
        outgoing, other = np.divmod(column, max(1, len(everything)))
        node = before + number
        source, target = np.where(outgoing, node, other), np.where(outgoing, other, node)
        return source, target, pair[near]

    def _average_feature(self, node: int, feature: Floats, undo: Undo, number: int) -> None:
        stored = self.nodes.feature[node]
        self._moving = number, node, stored.copy()
        if node < undo.nodes:
            undo.features.setdefault(node, stored.copy())
        stored += np.float32(self.settings.feature_average) * (feature - stored)

    def join_in_time(self, assignment: Ints, episodes: Ints, steps: Ints | None, undo: Undo) -> None:
        """Add edges between the nodes of consecutive observations of one episode, with the steps between as weights."""
        pairs, took = self._passages(assignment, episodes, steps)
        found = self.graph.find_many(*pairs.T)
        is_new, known = found < 0, found[found >= 0]
        took_known, before = took[~is_new], self.graph.temporal.values[known]
        shorter = (before == 0) | (took_known < before)
        known, before, took_known = known[shorter], before[shorter], took_known[shorter]
        older = known < undo.edges
        undo.temporal.append((known[older], before[older]))
        self.graph.set_temporal(known, took_known.astype(np.uint8))
        fresh, took_fresh = self._and_back(pairs[is_new], took[is_new])
        never = np.full(len(fresh), np.inf, np.float32)
        self.graph.append(len(self.nodes), fresh[:, 0], fresh[:, 1], never, took_fresh.astype(np.uint8))
        was = np.where(before[older] > 0, before[older].astype(np.int64), NO_EPISODE)
        events = zip(known[older].tolist(), was.tolist(), strict=True)
        self.log.append([(edge, WALKED, steps_before) for edge, steps_before in events], self.size)
        if len(episodes):
            self.tail = (int(episodes[-1]), int(assignment[-1]))
            self._tail_step = None if steps is None else int(steps[-1])

    def _and_back(self, fresh: Ints, took: Ints) -> tuple[Ints, Ints]:
        """Return new edges, (p, 2), with the opposite edges that a reversible graph needs; the latter have 0 steps."""
        if self.settings.reversible is None or not len(fresh):
            return fresh, took
        there = set(map(tuple, fresh.tolist()))
        back = [(v, u) for u, v in fresh.tolist() if (v, u) not in there and self.graph.find(v, u) is None]
        return np.concatenate([fresh, np.array(back, np.int64).reshape(-1, 2)]), np.append(took, [0] * len(back))

    def _passages(self, assignment: Ints, episodes: Ints, steps: Ints | None) -> tuple[Ints, Ints]:
        """Return (p, 2) pairs of nodes that an episode visited one after the other, and (p,) the fewest steps between.

        These are the steps between the last observation of the one node and the first of the other.
        """
        node, episode = assignment, episodes
        between = np.ones(max(0, len(node) - 1), np.int64) if steps is None else np.diff(steps)
        if self.tail is not None:
            node, episode = np.append(self.tail[1], node), np.append(self.tail[0], episode)
            known = steps is not None and len(steps) and self._tail_step is not None
            since = int(steps[0]) - int(self._tail_step) if known else 1  # type: ignore[index, arg-type]
            between = np.append(since, between)[: len(node) - 1]
        together = (episode[1:] == episode[:-1]) & (node[1:] != node[:-1]) & (node[1:] >= 0) & (node[:-1] >= 0)
        together &= (between >= 1) & (between <= MOST_BETWEEN)
        pairs = np.stack([node[:-1][together], node[1:][together]], axis=1)
        pairs, place = np.unique(pairs, axis=0, return_inverse=True)
        took = np.full(len(pairs), MOST_BETWEEN, np.int64)
        np.minimum.at(took, place.ravel(), between[together])
        return pairs, took


def as_episodes(episode: Any, number: int) -> Ints | None:
    """Return (n,) episode numbers of a batch, from one number for all or one for each; None stays None."""
    if episode is None:
        return None
    values = as_array("episode", episode)
    if not values.size and values.shape == (number,):
        return np.empty(0, np.int64)
    if values.dtype.kind not in "iu" or values.shape not in ((), (number,)):
        raise InputError(
            f"episode has dtype {values.dtype} and shape {values.shape}: expected a whole number, or {number} of them"
        )
    if values.size and values.max() > np.iinfo(np.int64).max:
        raise InputError(f"episode is {values.max()}: expected a whole number that fits 64 bits")
    return np.broadcast_to(values.astype(np.int64), (number,))
