"""Sparse Graphical Memory: the data structure of the paper, behind one class."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import os
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from sgm.errors import EmptyMemory, InputError, MemoryWarning, NoPath, SGMError, StoreError, UnknownEdge, UnknownNode
from sgm.progress import progress_bar

from . import export, localise, single_steps, store
from .approximate import library
from .arrays import Bools, Ints, as_array
from .attributes import Attributes, checked_batch
from .audit import Audit, audit
from .build import Builder, ExtendReport, as_episodes
from .certificate import Certificate, certify
from .cleanup import Cleanup
from .consolidate import consolidate
from .criteria import within as is_within
from .distance import Distance, Features, Floats, batch_of_one, between, count, embed, far_of, nearest, paired
from .events import KEEP_EVENTS, KINDS, NO_EPISODE, EventLog, Events
from .fast_waypoints import OVER, WaypointTest
from .given import OF_THE_DATA, unpack
from .graph import Edges, Graph
from .load_checks import check_distance, check_names, check_settings, checked_workers
from .lock import WriterLock, real_path
from .merge import MergeReport, check_mergeable, merge
from .nodes import Nodes
from .plan import Plan
from .planner import MANY, Near, Planner, Tree, checked_mode
from .policies import POLICIES, CleanupPolicy, Evidence, ForeignPolicy, make_policy, policy_from_dict
from .prune import without
from .read import Contents, read
from .schema import form_of
from .search import Search
from .settings import MOST_STEPS, Settings, number, off_is_infinite, shortened, whole
from .stats import ENOUGH_TO_JUDGE, Stats, as_html, look_at, measure
from .turns import takes_turns

if TYPE_CHECKING:
    from sgm.inspector.notebook import Page

Path_ = str | os.PathLike[str]
_SHARE_TO_JUDGE = 0.1  # of all observations that a batch must have for the whole graph to be looked at


class SparseGraphicalMemory:
    """A sparse directed graph over what an agent has seen, on which it plans and which it repairs.

    Emmons et al., "Sparse Graphical Memory for Robust Planning", NeurIPS 2020. Deviations from the paper: Algorithm 1
    has its test inverted in print (a state is novel when no node passes); the k-nearest filter stays true when
    observations are added later; edges removed by cleanup go on counting among a node's k nearest. Merging is decided
    by distances alone, so neither cleanup nor temporal edges change what merges later.

    Threads may share a memory: its calls take turns.
    """

    def __init__(
        self,
        distance: Distance | None,
        features: Features | None = None,
        criterion: str = "two-way",
        tau_a: float = 5.0,
        tau_p: float | None = 0.05,
        max_dist: float = 10.0,
        k: int | None = 5,
        scope: str = "neighbors",
        *,
        policy: str | CleanupPolicy = "guarded",
        size: int | None = None,
        seed: int = 0,
        feature_average: float = 0.0,
        keep_observations: bool = False,
        keep_events: int | None = KEEP_EVENTS,
        reversible: bool | float | None = None,
        candidates: int | None = None,
        approximate: bool = False,
    ) -> None:
        """Make an empty memory.

        Args:
            distance: steps from one observation to another, see `Distance`; None for a memory that is only looked at.
            features: φ of the perceptual check, (n, ...) observations to (n, f) float32; None: the embedding itself.
            criterion: "two-way" (the paper's), "incoming", "outgoing", "perceptual", "uniform" or "none" (dense).
            tau_a: threshold on C_in and C_out, steps (Eq. 3).
            tau_p: threshold in feature space (Eq. 4), also checked before any consistency; None switches it off.
            max_dist: MaxDist, the longest edge, steps.
            k: successors kept for each node; None keeps all.
            scope: what ω and s0 range over: "neighbors" of the candidate (the authors' code, strict comparisons) or
                the whole "memory" (Eq. 3, comparisons as printed).
            policy: what failed tries do to an edge: "first-failure" (the paper's: it is removed), "guarded" (it is
                removed unless that would cut the graph apart), "second-failure", "belief", or a `CleanupPolicy` object.
            size: number of nodes for criterion "uniform", which samples within one call of `extend`: give it
                everything at once.
            seed: seed of criterion "uniform".
            feature_average: how far a merge moves a node's feature towards the new one (authors: 0.05).
            keep_observations: keep each node's observation.
            keep_events: how many of the newest events are kept one by one, at least; None: all. Older ones are folded
                into the evidence about their edges, and `at` cannot go back beyond them.
            reversible: edges can be taken backwards too, where the world allows it: an edge has one the other way, at
                this many times its weight (True: 1.2) unless the distance says less, with evidence of its own. It
                passes the k-nearest filter if the first one does, and changes nothing about merging.
            candidates: ask for the distances of an observation to this many nodes only, those whose embeddings are
                nearest, where a large memory of a distance that cannot be searched would be slow. Edges to other nodes
                are missed: `audit` says how many. None: none is.
            approximate: find these candidates by an approximate index (extra `usearch`), which may miss some of the
                nearest, instead of by an exact one. For embeddings that are all about equally far from each other,
                where an exact index has to compare an observation with every node.
        """
        off = off_is_infinite(tau_p)
        names = criterion, tau_a, off, max_dist, k, scope, size, seed, feature_average, keep_observations, reversible
        settings = Settings(*names, candidates, approximate)
        if settings.approximate:
            library()
        log = EventLog(_keep(keep_events))
        self._set_up(distance, features, settings, make_policy(policy), Nodes(), Graph(), log)

    def _set_up(
        self,
        distance: Distance | None,
        features: Features | None,
        settings: Settings,
        policy: CleanupPolicy,
        nodes: Nodes,
        graph: Graph,
        log: EventLog,
        tail: tuple[int, int] | None = None,
        records: int = 0,
    ) -> None:
        if distance is not None and (isinstance(distance, type) or not isinstance(distance, Distance)):
            raise InputError(
                f"distance is {distance!r}: expected an object with embed(observations) and "
                "__call__(starts, goals), see sgm.Distance"
            )
        if features is not None and not callable(features):
            raise InputError(
                f"features is {shortened(features)}: expected a function from observations to (n, f) vectors"
            )
        self._distance = distance
        self._features = features
        self._settings = settings
        self._policy = policy.bound_to(settings.max_dist)
        self._nodes = nodes
        self._graph = graph
        self._graph.set_filter(settings.k)
        self._graph.set_reversible(settings.reversible)
        self._log = log
        self._builder = Builder(nodes, graph, log, settings, tail)
        self._planner = Planner(graph, self.policy)
        self._waypoint_test = WaypointTest(nodes, graph)
        self._cleanup = Cleanup(graph, self._planner, self.policy, log, self._builder, records)
        self._loaded_fingerprint: str | None = None
        self._made_with: dict[str, Any] | None = None
        self._applied: dict[str, int] = {}  # the last batch of evidence taken in from each worker, see _record_batch
        self._store: store.Store | None = None
        self._interrupted = False  # whether the last `extend` was, so that the next one may go on in its episode
        self._read_only = ""  # why nothing may be changed, if so
        self._turn = threading.RLock()
        _MEMORIES.add(self)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes over: all but the file that this memory is live in, and its turns."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_store", "_turn")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a copy, which is not live."""
        self.__dict__.update(state)
        self._store = None
        self._turn = threading.RLock()
        _MEMORIES.add(self)

    # -- what it holds -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self._nodes)

    @takes_turns
    def __repr__(self) -> str:
        """Criterion, nodes, edges, and where the memory lives."""
        edges, removed = int(np.count_nonzero(self._planner.standing())), int(np.count_nonzero(self._graph.removed()))
        size = f"{len(self):,} nodes of {len(self._nodes.assignment):,} observations, {edges:,} edges"
        gone = f", {removed:,} removed" if removed else ""
        held = f", attributes {', '.join(self.attributes)}" if self.attributes else ""
        where = f", live in {self._store.path}" if self._store else ""
        return f"<SparseGraphicalMemory {self.settings.criterion}: {size}{gone}{held}{where}>"

    def _repr_html_(self) -> str:
        """The table that notebooks show."""
        return as_html(self.stats())

    def view(self, *, height: int = 700) -> Page:
        """Show the inspector's page of this memory in a notebook (extra `inspect`); `close()` of the result ends it.

        A live memory is followed as it changes; of any other one a copy is shown, as it is now. The page only reads,
        and is for a notebook in a browser on this machine.

        Args:
            height: of the page, pixels.
        """
        from sgm.inspector.notebook import show  # the one thing above this room that it knows

        return show(self, None if self._store is None else self._store.path, height)

    @takes_turns
    def stats(self) -> Stats:
        """Sizes, connectivity, evidence and what a user should look at."""
        where = None if self._store is None else self._store.path
        held = self._nodes, self._graph, self._planner, self._log
        return measure(*held, self.settings, self.records, where, self._builder.index_kind, self.nbytes)

    @property
    def settings(self) -> Settings:
        """What decides which graph a stream of observations becomes."""
        return self._settings

    @property
    def policy(self) -> CleanupPolicy:
        """What failed tries do to an edge."""
        return self._policy

    @property
    def distance(self) -> Distance:
        """The distance this memory was made with."""
        if self._distance is None:
            raise InputError("this memory was loaded without a distance: give one to load() to embed observations")
        return self._distance

    @property
    def nodes(self) -> Ints:
        """(V,) int64: which observation of the stream each node keeps; 0 is the first ever given."""
        return np.array(self._nodes.stream.values)

    @property
    def assignment(self) -> Ints:
        """(n,) int64: the node of each observation ever given; −1 where uniform subsampling left one out."""
        return np.array(self._nodes.assignment.values)

    @property
    def embeddings(self) -> Floats:
        """(V, e) float32 embeddings of the nodes."""
        return np.array(self._nodes.embedding)

    @property
    def features(self) -> Floats:
        """(V, f) float32 features of the nodes."""
        return np.array(self._nodes.feature)

    @property
    def observations(self) -> NDArray[Any]:
        """(V, ...) observations of the nodes; InputError unless they are kept."""
        if not self.settings.keep_observations:
            raise InputError("this memory keeps no observations: make it with keep_observations=True")
        kept = self._nodes.observation
        return np.empty(0) if kept is None else kept.copy()

    @property
    def attributes(self) -> Attributes:
        """Named arrays over the nodes: `memory.attributes["position"] = ...`; see `Attributes`."""
        return Attributes(self._nodes, self._set_attribute)

    @property
    def nbytes(self) -> int:
        """Bytes held for nodes, edges, events and the index over the nodes; cached trees are not counted."""
        return self._nodes.nbytes + self._graph.nbytes + self._log.nbytes + self._builder.index_bytes

    @takes_turns
    def edges(self, filtered: bool = True) -> Edges:
        """The edges that stand, by source, then target; `filtered=False`: as before the k-nearest filter."""
        mask = self._planner.standing() if filtered else ~self._graph.removed()
        return self._graph.edges(mask)

    @takes_turns
    def removed(self) -> Edges:
        """The edges that cleanup has removed."""
        return self._graph.edges(self._graph.removed())

    def evidence(self, u: int, v: int) -> Evidence:
        """What trying the edge from u to v has shown, removed or not."""
        return self._graph.evidence.get(self._edge(u, v), Evidence())

    @takes_turns
    def tried(self) -> dict[tuple[int, int], Evidence]:
        """What trying has shown, by edge (u, v), for every edge that was tried."""
        source, target = self._graph.source.values, self._graph.target.values
        known = self._graph.evidence.items()
        return {(int(source[edge]), int(target[edge])): tries for edge, tries in known if tries.attempts}

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the distance, its own or that of the file this memory was loaded from."""
        return getattr(self._distance, "fingerprint", None) or self._loaded_fingerprint

    @property
    def records(self) -> int:
        """How many tries have been recorded: the clock of `Evidence.removed_at`."""
        return self._cleanup.records

    @takes_turns
    def largest_part(self) -> int:
        """Number of nodes in the largest strongly connected component of the graph."""
        return self._planner.largest_part() if len(self) else 0

    @takes_turns
    def parts(self) -> Ints:
        """(V,) which strongly connected component each node is in: 0 is the largest, 1 the next, and so on."""
        if not len(self):
            return np.empty(0, np.int64)
        labels = self._planner.parts()
        order = np.argsort(-np.bincount(labels), kind="stable")
        return np.argsort(order, kind="stable")[labels]

    # -- building ------------------------------------------------------------------------------------------------

    @takes_turns
    def extend(
        self,
        observations: Any,
        *,
        episode: Any = OF_THE_DATA,
        attributes: Mapping[str, Any] | None = None,
        block: int | None = None,
        progress: bool = False,
    ) -> ExtendReport:
        """Take in a batch of observations, in order, in a single pass; all of it or, on an error, nothing.

        An interrupt (Ctrl-C) keeps the observations until then, in the memory and in its file, as if only these had
        been given; the KeyboardInterrupt says how many they are, and `extend` of the rest makes the graph of them all.
        It keeps nothing of this batch while that is written to a file, or with criterion "uniform".

        From 200 observations on, a tenth of all so far, a `MemoryWarning` says what to try if hardly any were merged,
        if there are no edges, or if the largest strongly connected component has less than half of the nodes.

        Args:
            observations: (n, ...) as the distance's `embed` takes them, or an `sgm.Experience`, whose achieved goals
                and positions become the attributes "achieved_goal" and "position". The first Experience also tells what
                the distance says of single steps (attribute "one_step"), which an agent's cutoff is calibrated by.
            episode: a whole number, or (n,) of them: consecutive observations of one episode are joined by edges of
                weight 1 after merging. An episode may go on in the next call. None: no such edges. Left out: the
                episodes of the Experience, which end with it; none for plain observations. Between observations of an
                Experience that are several steps apart, as in `data[::5]`, the edge weighs these steps; where they are
                more than 255, there is none.
            attributes: (n, ...) numbers by name, one for each observation; a node has those of the observation that it
                keeps.
            block: how many observations are decided at once; the result does not depend on it.
            progress: show a progress bar.
        """
        observations, episode, attributes, whole_episodes, steps = unpack(observations, episode, attributes)
        total = count(observations)
        episodes = as_episodes(episode, total)
        given = checked_batch(attributes, total, self._nodes)
        if block is not None:
            block = whole("block", block, 1)
        self._require_writable()
        self._require_features()
        self._cleanup.make_room(self._store)
        undo = self._builder.mark()
        if whole_episodes and not (self._interrupted and self._builder.goes_on(episodes, steps)):
            self._builder.tail = None
        self._interrupted = False
        with progress_bar(shown=progress, total=total, desc="build", unit="obs") as bar:
            try:
                report = self._builder.extend(
                    self.distance, self._features, observations, episodes, given, block, undo, bar, steps, True
                )
                if self._store:
                    self._store.write_batch(self._builder, undo, self._meta())
            except BaseException as error:
                if self._store is None or not self._store.wrote(undo):
                    self._builder.back_to(undo, torn=not isinstance(error, Exception))
                raise
        if (kept := len(report.assignment)) < total:
            self._interrupted = True
            held = len(self._nodes.assignment)
            raise KeyboardInterrupt(
                f"interrupted: the memory keeps {kept:,} of these {total:,} observations, {held:,} in all. Go on with "
                f"extend(observations[{kept}:])."
            )
        if whole_episodes and episodes is not None:
            self._measure_single_steps(observations, episodes)
        if total >= max(ENOUGH_TO_JUDGE, _SHARE_TO_JUDGE * len(self._nodes.assignment)):
            self._warn()
        return report

    def _measure_single_steps(self, observations: Any, episodes: Ints) -> None:
        """Note what the distance says of single steps, once. The batch is in: what fails here costs only the note."""
        if len(self) and single_steps.ONE_STEP not in self.attributes:
            rows = self.nodes - (len(self._nodes.assignment) - len(episodes))
            with contextlib.suppress(SGMError):
                measured = single_steps.measure(self.distance, self._nodes.embedding, rows, observations, episodes)
                self.attributes[single_steps.ONE_STEP] = measured

    def _warn(self) -> None:
        """Say what is probably not as the user wants it, if anything is."""
        given = int(np.count_nonzero(self._nodes.assignment.values >= 0))
        edges = int(np.count_nonzero(self._planner.standing()))
        if found := look_at(len(self), given, self.settings, edges, self._planner.largest_part()):
            warnings.warn("; ".join(found), MemoryWarning, stacklevel=4)  # whoever called extend

    def add(self, observation: Any, *, episode: int | None = None, attributes: Mapping[str, Any] | None = None) -> int:
        """Take in one observation with its attributes; returns the node it became or was merged into."""
        if isinstance(attributes, Mapping):
            attributes = {name: batch_of_one(value) for name, value in attributes.items()}
        batch = batch_of_one(observation)
        return int(self.extend(batch, episode=episode, attributes=attributes).assignment[0])

    @takes_turns
    def consolidated(
        self,
        observations: Any,
        *,
        min_support: int | Literal["auto"] = 1,
        episode: Any = OF_THE_DATA,
        attributes: Mapping[str, Any] | None = None,
        progress: bool = False,
    ) -> SparseGraphicalMemory:
        """A memory of the same places in which each node keeps the middle one of its observations, not the first.

        The middle one has the least sum of distances to and from the others. It was not compared with them when they
        were merged, and may differ from one by up to 2 τ_a; `certificate` says by how much. Edges are made anew, so
        consolidate before cleaning up: evidence stays behind, and so do averaged features. Nodes are numbered in the
        order of the observations they keep. The new memory is not live, and can be extended like any other.

        Args:
            observations: everything given to `extend` and `add` so far, in order (for a memory of `choose_threshold`
                `observations[choice.order]`); or the `sgm.Experience` it was.
            min_support: leave out nodes with fewer observations than this; theirs are then assigned to −1. "auto": a
                fifth of what nodes have on average.
            episode: as they were given to `extend`.
            attributes: likewise; those that are not given again are gone, and a `MemoryWarning` says so.
            progress: show a progress bar.
        """
        self._require_nodes()
        self._require_features()
        given = unpack(observations, episode, attributes)
        built = consolidate(self._builder, self.distance, self._features, given, min_support, progress)
        memory = SparseGraphicalMemory.__new__(SparseGraphicalMemory)
        log = EventLog(self._log.keep)
        memory._set_up(
            self._distance, self._features, self.settings, self.policy, built.nodes, built.graph, log, built.tail
        )
        if given.whole_episodes:
            memory._measure_single_steps(given.observations, np.asarray(given.episode))
        return memory

    @takes_turns
    def pruned(self, source: ArrayLike, target: ArrayLike) -> SparseGraphicalMemory:
        """A copy of this memory without some edges, as if they had never been made.

        Edges that `remove` or cleanup takes away still count among the k nearest successors of a node. Those left out
        here do not: the next nearest take their places. So leave out what is known to be false before cleaning up (see
        `sgm.navigation.verify_edges`). Evidence stays behind. The copy is not live; reversible edges go both ways.

        Args:
            source: (m,) the nodes that the edges lead from; edges beyond the k nearest count, too.
            target: (m,) the nodes that they lead to.
        """
        graph = without(self._graph, source, target, self.settings.k)
        memory = SparseGraphicalMemory.__new__(SparseGraphicalMemory)
        how = self._distance, self._features, self.settings, self.policy
        memory._set_up(*how, copy.deepcopy(self._nodes), graph, EventLog(self._log.keep), self._builder.tail)
        return memory

    @takes_turns
    def merge(self, other: SparseGraphicalMemory, *, progress: bool = False) -> MergeReport:
        """Take in another memory of the same distance, with its tries and attributes; all of it or nothing.

        Each node of the other is merged into a node or becomes one by the rule that observations are, as if the
        observations that these nodes keep were given to `extend`; the observations of the other follow those of this
        memory in `assignment`. Its episodes join nodes in time, as they did there. Its tries are recorded here, in
        their order, so that this memory's policy decides what they lead to; an edge that was removed there by hand, and
        was never tried, is removed. The other memory stays as it is.

        Args:
            other: with the same criterion, thresholds, MaxDist, scope and features; its distance must have the same
                fingerprint, or say the same of its edges. Where this memory keeps observations, so must it.
            progress: show a progress bar.
        """
        check_mergeable(self, other)
        self._require_writable()
        self._require_features()
        self._cleanup.make_room(self._store)
        undo, records, keep = self._builder.mark(), self.records, self._log.keep
        self._cleanup.before, self._log.keep = {}, None
        with other._turn, progress_bar(shown=progress, total=len(other), desc="merge", unit="node") as bar:
            try:
                report = merge(self, other, undo, bar)
                self._log.keep = keep
                if self._store:
                    self._store.write_batch(self._builder, undo, self._meta())
            except BaseException:
                if self._store is None or not self._store.wrote(undo):
                    self._cleanup.put(self._cleanup.before, records)
                    self._builder.back_to(undo)
                raise
            finally:
                self._cleanup.before, self._log.keep = None, keep
        return report

    @takes_turns
    def filter(self, k: int | None) -> None:
        """Change how many nearest successors each node keeps; None keeps all."""
        settings = dataclasses.replace(self.settings, k=k)
        self._require_writable()
        meta = {"settings": settings.asdict()}
        try:
            if self._store:
                self._store.write_meta(meta)
        finally:
            if self._store is None or self._store.wrote(meta):
                self._settings = self._builder.settings = settings
                self._graph.set_filter(settings.k)

    @takes_turns
    def _set_attribute(self, name: str, values: NDArray[Any] | None) -> None:
        """Write an attribute to the file, if there is one, and then to the nodes; None removes it."""
        self._require_writable()
        token = object()
        try:
            if self._store:
                self._store.write_attribute(name, values, token)
        finally:
            if self._store is None or self._store.wrote(token):
                if values is None:
                    del self._nodes.attributes[name]
                else:
                    self._nodes.set_attribute(name, values)

    # -- localisation --------------------------------------------------------------------------------------------

    def embed(self, observations: Any) -> Floats:
        """The distance's embeddings of (n, ...) observations, checked: (n, e) float32.

        The methods below take them in the place of observations with `embedded=True`, so that an agent embeds what it
        sees once a step.
        """
        return embed(self.distance, observations, self._nodes.embedding_width)

    def steps_to_nodes(self, observations: Any, *, embedded: bool = False) -> Floats:
        """d(s, ·): (n, ...) observations to (n, V) float32 steps to each node."""
        return between(self.distance, self._embedding(observations, embedded), self._nodes.embedding)

    def steps_from_nodes(self, observations: Any, *, embedded: bool = False) -> Floats:
        """d(·, g): (n, ...) observations to (n, V) float32 steps from each node."""
        steps = between(self.distance, self._nodes.embedding, self._embedding(observations, embedded))
        return np.ascontiguousarray(steps.T)

    def steps(self, starts: Any, goals: Any, *, embedded: bool = False) -> Floats:
        """d(s, g) for each pair: (n, ...) and (n, ...) observations to (n,) float32 steps."""
        ends = self._embedding(starts, embedded), self._embedding(goals, embedded)
        if len(ends[0]) != len(ends[1]):
            raise InputError(f"got {len(ends[0])} starts and {len(ends[1])} goals: expected as many of each")
        return paired(self.distance, *ends)

    def steps_to(self, embedding: Floats, nodes: ArrayLike) -> Floats:
        """d(s, w) for each pair of an (n, e) embedding and one of (n,) nodes: (n,) float32 steps."""
        vectors, chosen = self._embedding(embedding, embedded=True), self._node_ids(nodes, "nodes")
        if chosen.shape != (len(vectors),):
            raise InputError(f"nodes has shape {chosen.shape}: expected one for each of {len(vectors)} embeddings")
        return paired(self.distance, vectors, self._nodes.embedding[chosen])

    def localise(self, observations: Any, *, as_goals: bool = False, embedded: bool = False) -> Near:
        """The nearest node of each observation and its distance: d(s, ·), or d(·, g) for goals; (n,) and (n,)."""
        self._require_nodes()
        if (search := self._search()) is not None:
            return search.nearest(self._embedding(observations, embedded), outgoing=not as_goals)
        vectors, nodes = self._embedding(observations, embedded), self._nodes.embedding
        return Near(*nearest(self.distance, *((nodes, vectors) if as_goals else (vectors, nodes)), not as_goals))

    @takes_turns
    def reached(
        self,
        observations: Any,
        waypoints: ArrayLike,
        cutoff: float = 1.0,
        *,
        over: str = "all",
        embedded: bool = False,
    ) -> Bools:
        """Whether ‖d(s, ·) − d(w, ·)‖∞ is under `cutoff`: (n, ...) observations and (n,) node ids to (n,) bool.

        Args:
            observations: where agents are.
            waypoints: nodes they go to.
            cutoff: steps.
            over: the nodes that are asked: "all" of the memory (the paper's), or the waypoint and its "neighbours": the
                k nearest successors it has and the nodes it is one of, removed edges included. These are a few
                distances instead of as many as there are nodes, and pass a little more often.
            embedded: observations are embedded already, see `embed`.
        """
        if over not in OVER:
            raise InputError(f"over is {over!r}: expected one of {', '.join(map(repr, OVER))}")
        embedding = self._embedding(observations, embedded)
        waypoints = self._node_ids(waypoints, "waypoints")
        if waypoints.shape != (len(embedding),):
            raise InputError(f"waypoints has shape {waypoints.shape}: expected one node for each of {len(embedding)}")
        cutoff = number("cutoff", cutoff, high=MOST_STEPS) if cutoff != math.inf else cutoff
        return self._waypoint_test(self.distance, embedding, waypoints, cutoff, nearby=over != "all")

    def waypoints(self, nodes: ArrayLike) -> NDArray[Any]:
        """What a controller is sent to: (n,) nodes' observations if they are kept, else their embeddings."""
        chosen = self._node_ids(nodes, "nodes")
        kept = self._nodes.observation
        return np.array(self._nodes.embedding[chosen] if kept is None else kept[chosen])

    # -- planning ------------------------------------------------------------------------------------------------

    @takes_turns
    def plan(self, start: Any, goal: Any, *, by: str = "distance", within: float | None = None) -> Plan:
        """The shortest way from one observation to another; NoPath if there is none.

        Args:
            start: an observation.
            goal: an observation.
            by: what is least: "distance" (steps) or "hops" (number of edges).
            within: start and goal are attached to their nearest node first, then to the next nearest, … until a path
                exists, but never farther than this many steps (the nearest node is always allowed). None: MaxDist,
                and never to a node that is `distance.far` steps away or more, where the distance has that;
                math.inf: to any node, as the authors' code does.
        """
        within = self._reach(by, within)
        if (plan := self._plan_through_index(start, goal, by, within)) is not None:
            return plan
        starts, goals = self._attachments(batch_of_one(start), batch_of_one(goal))
        return self._plan_rows(starts[0], goals[0], by, within)

    @takes_turns
    def prepare_plans(self, *, by: str = "distance") -> None:
        """Do now what one of the next plans on a large graph would take the time for, in seconds for 100,000 nodes.

        From 16,384 nodes on, with the extra `fast`, plans are searched for with landmarks, which are chosen once and
        kept while edges are tried, removed and added. On smaller graphs there is nothing to prepare.

        Args:
            by: see `plan`.
        """
        self._require_nodes()
        self._planner.prepare(checked_mode(by))

    @takes_turns
    def plan_many(
        self, starts: Any, goals: Any, *, by: str = "distance", within: float | None = None
    ) -> list[Plan | None]:
        """`plan` for (n, ...) starts and (n, ...) goals at once; None where there is no path."""
        within = self._reach(by, within)
        one_by_one = self._search() is not None and count(starts) == count(goals)
        ends = zip(starts, goals, strict=True) if one_by_one else zip(*self._attachments(starts, goals), strict=True)
        plans: list[Plan | None] = []
        for start, goal in ends:
            try:
                if one_by_one:
                    plans.append(self.plan(start, goal, by=by, within=within))
                else:
                    plans.append(self._plan_rows(start, goal, by, within))
            except NoPath:
                plans.append(None)
        return plans

    @takes_turns
    def attach(
        self,
        to_nodes: Floats,
        goals: NDArray[Any],
        *,
        by: str = "distance",
        within: float | None = None,
        candidates: str = "nearest",
        without: Iterable[tuple[int, int]] = (),
    ) -> tuple[Ints, Ints]:
        """The nodes to plan between for many agents; −1 and −1 where there is no path.

        Args:
            to_nodes: (n, V) `steps_to_nodes` of where the agents are.
            goals: (n, V) `steps_from_nodes` of where they should go, or (n,) goal nodes.
            by: see `plan`.
            within: see `plan`.
            candidates: "nearest": the nearest node first, then the next nearest, … as `plan` does (the authors' SGM);
                "all": whichever nodes within reach make the shortest way (SoRB).
            without: edges (u, v) that may not be used, in this search only.
        """
        if candidates not in ("nearest", "all"):
            raise InputError(f"candidates is {candidates!r}: expected 'nearest' or 'all'")
        within = self._reach(by, within)
        self._require_nodes()
        to_nodes, goals = as_array("to_nodes", to_nodes), as_array("goals", goals)
        if to_nodes.dtype.kind not in "fiub" or goals.dtype.kind not in "fiub" or not goals.ndim:
            raise InputError(
                f"to_nodes has dtype {to_nodes.dtype} and goals {goals.dtype} and shape {goals.shape}: expected numbers"
            )
        with np.errstate(over="ignore"):
            to_nodes = to_nodes.astype(np.float32, copy=False)
        if goals.ndim == 1:
            goals = self._node_ids(goals, "goals")
        if to_nodes.shape != (len(goals), len(self)) or goals.shape not in (to_nodes.shape, to_nodes.shape[:1]):
            raise InputError(
                f"to_nodes has shape {to_nodes.shape} and goals {goals.shape}: expected (n, {len(self)}) and the same, "
                "or (n,) nodes"
            )
        for name, steps in (("to_nodes", to_nodes), ("goals", goals)):
            if np.isnan(steps.min(initial=0)):
                raise InputError(f"{name} holds NaN in row {np.argwhere(np.isnan(steps))[0][0]}: expected steps")
        ends = np.full((len(to_nodes), 2), -1)
        without = list(without)
        planner = self._planner.without(without) if without else self._planner
        for agent, (start, goal) in enumerate(zip(to_nodes, goals, strict=True)):
            with contextlib.suppress(NoPath):
                ends[agent] = self._attach_row(planner, start, goal, by, within, candidates)
        return ends[:, 0], ends[:, 1]

    @takes_turns
    def plan_nodes(self, start: int, goal: int, *, by: str = "distance") -> Plan:
        """The shortest way from one node to another; NoPath if there is none."""
        return self._plan_between(self._node(start), self._node(goal), by, 0.0, 0.0)

    @takes_turns
    def next_nodes(self, nodes: ArrayLike, goals: ArrayLike, *, by: str = "distance") -> Ints:
        """The next waypoint for many agents: (n,) node ids and (n,) goal nodes to (n,) node ids.

        An agent at its goal gets the goal; one without a path gets −1.
        """
        checked_mode(by)
        at, to = self._node_ids(nodes, "nodes"), self._node_ids(goals, "goals")
        if at.shape != to.shape or at.ndim != 1:
            raise InputError(f"nodes has shape {at.shape} and goals {to.shape}: expected (n,) and (n,)")
        following = np.full(len(at), -1)
        for goal in np.unique(to):
            mine = to == goal
            following[mine] = self._planner.following(at[mine], int(goal), by)
        return np.where(at == to, to, following)

    @takes_turns
    def joined(self, nodes: ArrayLike, goals: ArrayLike, *, by: str = "distance") -> Bools:
        """Whether a path leads from each of (n,) nodes to the goal node beside it: (n,) bool."""
        checked_mode(by)
        starts, ends = self._node_ids(nodes, "nodes").tolist(), self._node_ids(goals, "goals").tolist()
        return np.array([self._planner.reaches(*pair, by) for pair in zip(starts, ends, strict=True)], np.bool_)

    @takes_turns
    def routes_to(
        self, goal: int, *, by: str = "distance", raised: Mapping[tuple[int, int], float] | None = None
    ) -> Tree:
        """The shortest ways from every node to a goal node.

        Args:
            goal: a node.
            by: see `plan`.
            raised: steps added to what the planner pays for edges (u, v), in this search only.
        """
        return self._planner.tree(self._node(goal), by, raised)

    @takes_turns
    def prices(self) -> csr_array:
        """What the planner pays for edges, steps: (V, V), by target and source; infinite where cleanup removed one.

        It is the planner's own: for a search of one's own, for example `scipy.sparse.csgraph.dijkstra` from a goal,
        and not to be written to.
        """
        return self._planner.matrix("distance")

    # -- cleanup -------------------------------------------------------------------------------------------------

    def record(self, u: int, v: int, reached: bool, *, episode: int | None = None) -> bool:
        """Evidence about the edge from u to v: whether v was reached. Returns whether that removed the edge.

        `episode`, a whole number, is only noted in the log of events.
        """
        return self.record_many([u], [v], [reached], episode=episode)[0]

    @takes_turns
    def record_many(self, u: ArrayLike, v: ArrayLike, reached: ArrayLike, *, episode: Any = None) -> list[bool]:
        """`record` for (n,) edges at once, in order, all or nothing; (n,) whether each removed its edge."""
        outcomes = as_array("reached", reached)
        if outcomes.dtype != np.bool_ and outcomes.size:
            raise InputError(f"reached is {shortened(reached)}: expected True or False")
        sources, targets = as_array("u", u), as_array("v", v)
        if not sources.shape == targets.shape == outcomes.shape or outcomes.ndim != 1:
            raise InputError(f"u, v and reached have shapes {sources.shape}, {targets.shape} and {outcomes.shape}")
        episodes = as_episodes(episode, len(outcomes))
        if episodes is not None and len(episodes) and not (episodes.min() >= 0 and episodes.max() < 2**53):
            raise InputError(f"episode is {shortened(episode)}: expected whole numbers from 0 to 2^53")
        self._require_writable()
        edges = self._edges_between(sources, targets)
        numbers = [NO_EPISODE] * len(edges) if episodes is None else episodes.tolist()
        return self._cleanup.record(edges, outcomes.tolist(), numbers, self._store)

    @takes_turns
    def _record_batch(self, worker: str, sequence: int, u: Ints, v: Ints, reached: Bools) -> int | None:
        """Take in a worker's batch of tries, (n,) each, once: all of it in one transaction, with its number.

        Returns how many of them were of edges that are gone, which count all the same; None if the batch was taken in
        before. Batches of a worker have to come in order.
        """
        self._require_writable()
        if sequence <= (last := self._applied.get(worker, 0)):
            return None
        if sequence != last + 1:
            raise InputError(f"batch {sequence} of worker {worker} came after batch {last}: one is missing")
        edges = self._edges_between(u, v)
        known = self._graph.evidence
        gone = sum(edge in known and known[edge].removed_at is not None for edge in edges)
        applied = {**self._applied, worker: sequence}
        try:
            self._cleanup.record(
                edges, reached.tolist(), [NO_EPISODE] * len(edges), self._store, {"workers": dict(applied)}
            )
        except BaseException:
            if self._store is not None and self._store.holds("workers", applied):
                self._applied = applied
            raise
        self._applied = applied
        return gone

    @takes_turns
    def _enlist(self, workers: Mapping[str, int]) -> None:
        """Say whose batches may come, and which was the last of each; all others are forgotten."""
        self._require_writable()
        facts = {"workers": dict(workers)}
        try:
            if self._store:
                self._store.write_meta(facts)
        finally:
            if self._store is None or self._store.wrote(facts):
                self._applied = dict(workers)

    @takes_turns
    def restore(self, u: int | None = None, v: int | None = None) -> int:
        """Bring back the removed edge from u to v, or all of them; its evidence stays. Returns how many."""
        if (u is None) != (v is None):
            raise InputError(f"restore takes both ends of an edge, or none; got u={shortened(u)}, v={shortened(v)}")
        self._require_writable()
        edges = sorted(self._graph.evidence) if u is None else [self._edge(u, v)]
        return self._cleanup.restore(edges, self._store)

    @takes_turns
    def remove(self, u: int, v: int) -> bool:
        """Remove the edge from u to v by hand, whatever the policy and its guard say; its evidence stays.

        Returns whether it stood until now. `restore` brings it back.
        """
        self._require_writable()
        return self._cleanup.remove(self._edge(u, v), self._store)

    @takes_turns
    def bridge(self) -> int:
        """Let in edges beyond the k nearest successors where they join parts of the graph; returns how many.

        A k-nearest filter can cut a graph apart: where many nodes lie close together, none of the k shortest edges
        may lead out through the door. This adds the shortest edge from each strongly connected component to each other
        one that it has no edge to, as far as that makes components larger. They are spares, like those of
        `FirstFailure(spares=True)`: edges like any other in plans, cleanup and file.

        Long edges are more often false than short ones. So use it where they have been verified (see
        `sgm.navigation.verify_edges`), or before cleanup that can try them.
        """
        self._require_writable()
        edges = self._planner.find_bridges() if len(self) else []
        self._cleanup.let_in(edges, self._store)
        return len(edges)

    # -- history -------------------------------------------------------------------------------------------------

    @takes_turns
    def events(self, u: int | None = None, v: int | None = None) -> Events:
        """What happened to edges, oldest first: to all of them, or to the one from u to v. See `keep_events`."""
        if (u is None) != (v is None):
            raise InputError(f"events takes both ends of an edge, or none; got u={shortened(u)}, v={shortened(v)}")
        rows = self._log.rows
        number = np.arange(self._log.folded + 1, self._log.folded + 1 + len(rows))
        if u is not None:
            chosen = rows["edge"] == self._edge(u, v)
            rows, number = rows[chosen], number[chosen]
        edge = rows["edge"]
        return Events(
            number,
            rows["time"].astype(np.float64),
            self._graph.source.values[edge].astype(np.int64),
            self._graph.target.values[edge].astype(np.int64),
            np.array(KINDS)[rows["kind"]],
            rows["episode"].astype(np.int64),
        )

    @takes_turns
    def at(self, event: int) -> SparseGraphicalMemory:
        """The memory as it was right after an event, read-only; 0: just before the first event.

        It has the nodes, edges and evidence of that moment, and the settings, policy, features and attributes of now.
        """
        log, last = self._log, len(self._log)
        event = whole("event", event, 0)
        if not log.folded <= event <= last:
            older = f"; the first {log.folded} are folded, see keep_events" if log.folded else ""
            raise InputError(f"event is {shortened(event)}: expected a number from {log.folded} to {last}{older}")
        size = log.size_at(event) or self._builder.size
        nodes, graph = self._nodes.first(size.nodes, size.observations), self._graph.first(size.nodes, size.edges)
        walked, steps = log.walked_since(event)
        there = walked < size.edges
        graph.set_temporal(walked[there], steps[there].astype(np.uint8))
        past = log.until(event)
        graph.evidence, records = past.replayed()
        memory = SparseGraphicalMemory.__new__(SparseGraphicalMemory)
        memory._set_up(self._distance, self._features, self.settings, self.policy, nodes, graph, past, records=records)
        memory._loaded_fingerprint, memory._made_with = self.fingerprint, self._made_with or self._feature_facts()
        memory._read_only = f"this is the memory as it was after event {event}: change the present one"
        return memory

    @takes_turns
    def audit(self, sample: int = 200, *, seed: int = 0) -> Audit:
        """Ask for every distance of some nodes, and compare: which edges and merges a build with `candidates` missed.

        A memory without `candidates` misses none, up to how distances round.

        Args:
            sample: how many nodes to look at, drawn with `seed`; fewer if there are fewer.
            seed: seed of that draw.
        """
        self._require_nodes()
        sample, seed = whole("sample", sample, 1), whole("seed", seed, 0)
        return audit(self.distance, self._nodes, self._graph, self.settings, sample, seed)

    # -- the bound -----------------------------------------------------------------------------------------------

    def certificate(
        self, observations: Any, *, max_dist: float | None = None, pairs: int | None = None, seed: int = 0
    ) -> Certificate:
        """Measure Theorem 1 on this memory, against the dense graph over all that it was built from.

        Args:
            observations: everything given to `extend` and `add` so far, in order.
            max_dist: MaxDist of the dense graph; None: that of this memory. The theorem's condition is that this
                memory's is larger by 2 τ.
            pairs: how many pairs of nodes to measure, drawn with `seed`; None: all.
            seed: seed of that draw.
        """
        self._require_nodes()
        if pairs is not None:
            pairs = whole("pairs", pairs, 1)
        seed = whole("seed", seed, 0)
        embedding = self.embed(unpack(observations, None).observations)
        longest = self.settings.max_dist if max_dist is None else max_dist
        held = self.distance, self._nodes, self._graph, self._planner.standing(), self.settings
        return certify(*held, embedding, longest, pairs, seed)

    # -- files ---------------------------------------------------------------------------------------------------

    @takes_turns
    def save(self, path: Path_) -> None:
        """Write the memory to one file, which appears complete or not at all."""
        target = real_path(path)
        if self._store and target.exists() and target.samefile(self._store.path):
            self._store.check_there()
            return  # a live memory is on disk already
        lock = WriterLock(target)
        try:
            store.create(target, Contents(self._nodes, self._graph, self._log, self._meta()))
        finally:
            lock.release()

    @takes_turns
    def backup(self, path: Path_) -> None:
        """Copy the memory to another file, which appears complete or not at all; a live one by SQLite's backup.

        It is the way to copy a live memory: copying its file by other means would miss its write-ahead log. What is
        copied is what is in the file: the calls of a `group` that has not ended are not.
        """
        target = real_path(path)
        if self._store is None:
            self.save(target)
        elif target.exists() and target.samefile(self._store.path):
            raise StoreError(f"{target} is the memory's own file: give a backup another name")
        else:
            self._store.check_there()
            store.copy(self._store.path, target)

    @classmethod
    def load(
        cls,
        path: Path_,
        distance: Distance | None,
        features: Features | None = None,
        *,
        policy: str | CleanupPolicy | None = None,
    ) -> SparseGraphicalMemory:
        """Read a memory file, also while another process writes it; StoreError if it is not what it should be.

        Args:
            path: the file.
            distance: the distance it was made with; with None the memory can be looked at, planned on from node to
                node, and exported.
            features: the feature function it was made with, needed only to add observations.
            policy: a cleanup policy in the place of the stored one.
        """
        source = real_path(path)
        contents, _ = read(source)
        return cls._from_contents(source, contents, distance, features, policy)

    @classmethod
    def open(
        cls,
        path: Path_,
        distance: Distance | None,
        features: Features | None = None,
        *,
        policy: str | CleanupPolicy | None = None,
        keep_events: int | str | None = "as it is",
        synchronous: str = "normal",
        **settings: Any,
    ) -> SparseGraphicalMemory:
        """A live memory: what a returned call changed is in the file, even if the process is killed after it.

        The file is made if there is none. Close the memory (or use `with`) to leave a single plain file behind. After
        a failed write, to a full disk for example, memory and file are as they were before the call; where that cannot
        be known the memory refuses every further write and says that it has to be opened again. docs/file.md has all
        that is promised.

        Args:
            path: the file.
            distance: the distance it was, or will be, made with; None for a memory whose edges are only tried, removed
                and restored.
            features: likewise, the feature function.
            policy: for an existing file: replaces the stored cleanup policy. None keeps it; a new file has "guarded".
            keep_events: see the constructor; for an existing file replaces what it has, if given.
            synchronous: "normal": a returned call survives a crash of the process, and a crash of the machine may take
                the last of them; "full": it survives that too, at a sync of the disk a call.
            settings: those of the constructor; for an existing file they must be the ones it has.
        """
        target = real_path(path)
        store.check_synchronous(synchronous)
        lock = WriterLock(target)
        try:
            if target.exists():
                _refuse_links(target)
                contents, file = read(target)
                memory = cls._from_contents(target, contents, distance, features, policy)
                check_settings(target, memory.settings, settings)
            else:
                if distance is None:
                    raise StoreError(f"there is no file {target}, and a new memory needs a distance")
                check_names(settings)
                keep = KEEP_EVENTS if keep_events == "as it is" else _keep(keep_events)
                memory = cls(
                    distance, features, policy="guarded" if policy is None else policy, keep_events=keep, **settings
                )
                contents = Contents(memory._nodes, memory._graph, memory._log, memory._meta())
                file = store.create(target, contents)
            live = store.Store(target, lock, contents.meta, file, synchronous)
            try:
                if (newer := live.newer()) is not None:
                    memory = cls._from_contents(target, newer, distance, features, policy)
                if keep_events != "as it is":
                    memory._log.keep = _keep(keep_events)
                live.write_changed_meta(memory._meta())
            except BaseException:
                live.close()
                raise
            memory._store = live
        except BaseException:
            lock.release()
            raise
        return memory

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """`with memory.group():` calls of a live memory share one transaction: durable when the block ends.

        If the block raises, the calls that had returned are kept, in memory and in the file alike. Other threads wait
        until it ends.
        """
        with self._turn, self._store.group() if self._store else contextlib.nullcontext():
            yield

    @takes_turns
    def close(self) -> None:
        """Stop being live; the memory itself stays usable."""
        if self._store:
            live, self._store = self._store, None
            live.close()

    def __enter__(self) -> SparseGraphicalMemory:
        """For `with SparseGraphicalMemory.open(...) as memory`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # -- other formats -------------------------------------------------------------------------------------------

    def to_networkx(self, filtered: bool = True) -> Any:
        """A networkx.DiGraph: nodes have `stream` and attributes, edges `weight` and evidence (needs networkx)."""
        return export.to_networkx(self, filtered)

    def to_scipy(self, filtered: bool = True) -> Any:
        """A (V, V) scipy.sparse.csr_array of weights, steps."""
        return export.to_scipy(self, filtered)

    def to_graphml(self, path: Path_, filtered: bool = True) -> None:
        """Write GraphML, for Gephi, yEd, Cytoscape, igraph and others.

        An attribute of several numbers has a key for each: position_0, position_1; images are left out.
        """
        export.to_graphml(self, real_path(path), filtered)

    def to_csv(self, path: Path_, filtered: bool = True) -> Path:
        """Write one line an edge, and one line a node with its attributes to NAME.nodes.csv, whose path is returned."""
        return export.to_csv(self, real_path(path), filtered)

    # -- inside --------------------------------------------------------------------------------------------------

    def _require_writable(self) -> None:
        if self._read_only:
            raise InputError(f"{self._read_only}")
        if self._store:
            self._store.check_open()

    def _embedding(self, observations: Any, embedded: bool) -> Floats:
        if not embedded:
            return self.embed(observations)
        vectors = as_array("observations", observations)
        if vectors.dtype.kind not in "fiub":
            raise InputError(f"embedded observations have dtype {vectors.dtype}: expected numbers")
        vectors = vectors.astype(np.float32, copy=False)
        if vectors.ndim != 2 or vectors.shape[1] != (self._nodes.embedding_width or vectors.shape[1]):
            raise InputError(
                f"embedded observations have shape {vectors.shape}: expected (n, {self._nodes.embedding_width})"
            )
        if not np.isfinite(vectors).all():
            row, column = np.argwhere(~np.isfinite(vectors))[0]
            raise InputError(f"embedded observation {row} holds {vectors[row, column]}: expected finite numbers")
        return vectors

    def _attachments(self, starts: Any, goals: Any) -> tuple[Floats, Floats]:
        self._require_nodes()
        if count(starts) != count(goals):
            raise InputError(f"got {count(starts)} starts and {count(goals)} goals: expected as many of each")
        return self.steps_to_nodes(starts), self.steps_from_nodes(goals)

    def _search(self) -> Search | None:
        """How to find near nodes without asking for every node; None where there are few, or the distance says not."""
        return self._builder.search(self.distance) if len(self) >= MANY else None

    def _plan_through_index(self, start: Any, goal: Any, by: str, within: float | None) -> Plan | None:
        """A plan between the nearest nodes, where they can be searched for; None if there is no path between them."""
        if self._search() is None:
            return None
        first, last = self.localise(batch_of_one(start)), self.localise(batch_of_one(goal), as_goals=True)
        self._refuse_clipped(first.distance, last.distance, within)
        ends = int(first.node[0]), int(last.node[0])
        if not self._planner.reaches(*ends, by):
            return None
        return self._plan_between(*ends, by, float(first.distance[0]), float(last.distance[0]))

    def _reach(self, by: str, within: float | None) -> float | None:
        """Check how to plan; `within` as steps that a distance can have."""
        checked_mode(by)
        return None if within is None else min(number("within", within), MOST_STEPS)

    def _attach_row(
        self,
        planner: Planner,
        start: Floats,
        goal: NDArray[Any],
        by: str,
        within: float | None,
        candidates: str = "nearest",
    ) -> tuple[int, int]:
        """First and last node of a plan, from (V,) steps to and from nodes; `goal` may be a node instead."""
        first, last = int(start.argmin()), int(goal.argmin() if goal.ndim else goal)
        if candidates == "nearest" and planner.reaches(first, last, by):
            return first, last
        starts = self._ranked(start, within)
        goals = self._ranked(goal, within) if goal.ndim else Near(np.array([last]), np.zeros(1, np.float32))
        choose = planner.attach if candidates == "nearest" else planner.attach_all
        place, other = choose(starts, goals, by)
        return int(starts.node[place]), int(goals.node[other])

    def _ranked(self, steps: Floats, within: float | None) -> Near:
        return localise.ranked(steps, is_within(steps, self.settings) if within is None else steps <= within)

    def _plan_rows(self, start: Floats, goal: Floats, by: str, within: float | None) -> Plan:
        self._refuse_clipped(start, goal, within)
        first, last = self._attach_row(self._planner, start, goal, by, within)
        return self._plan_between(first, last, by, float(start[first]), float(goal[last]))

    def _refuse_clipped(self, start: Floats, goal: Floats, within: float | None) -> None:
        """NoPath if the nearest node is "at least `far`" away: where all are equally far, none is the nearest."""
        far = far_of(self.distance)
        if within is None and far is not None:
            for name, steps in (("start", start), ("goal", goal)):
                if not steps.min() < far:
                    raise NoPath(
                        f"no node near the {name}: all are {far:.4g} steps away or more, where this distance does not "
                        "tell them apart. Explore more, or attach to any node all the same (within=math.inf)."
                    )

    def _plan_between(self, start: int, goal: int, by: str, before: float, after: float) -> Plan:
        route = self._planner.route(start, goal, by)
        nodes = np.array(route.nodes)
        along = self._planner.along(nodes)
        return Plan(nodes, self.waypoints(nodes), *along, route.cost, before, after)

    def _require_features(self) -> None:
        """Refuse to build with another feature function than the file was made with."""
        if self._made_with is not None and self._made_with != self._feature_facts():
            raise InputError(
                f"this memory was built with features {self._made_with}, now they are {self._feature_facts()}: give "
                "the same feature function, or none, to load() or open(), features=…"
            )

    def _feature_facts(self) -> dict[str, Any]:
        return {"given": self._features is not None, "fingerprint": getattr(self._features, "fingerprint", None)}

    def _require_nodes(self) -> None:
        if not len(self):
            raise EmptyMemory("the memory holds no node yet: give it observations with extend() first")

    def _node(self, node: Any) -> int:
        found = self._node_ids([node], "node")
        if found.shape != (1,):
            raise UnknownNode(f"node is {shortened(node)}: expected one node id, a whole number")
        return int(found[0])

    def _node_ids(self, nodes: ArrayLike, name: str) -> Ints:
        values = as_array(name, nodes)
        if values.dtype.kind not in "iu" and values.size:
            raise UnknownNode(f"{name} is {shortened(nodes)}: expected node ids, whole numbers")
        wrong = values[(values < 0) | (values >= len(self))]
        if wrong.size:
            held = f"0 to {len(self) - 1}" if len(self) else "none: the memory is empty"
            raise UnknownNode(f"{wrong.flat[0]} is not a node of this memory; its nodes are {held}")
        return values.astype(np.int64)

    def _edge(self, u: Any, v: Any) -> int:
        source, target = self._node(u), self._node(v)
        edge = self._graph.find(source, target)
        if edge is None:
            raise UnknownEdge(f"no edge leads from node {source} to node {target}; see edges(filtered=False)")
        return edge

    def _edges_between(self, sources: ArrayLike, targets: ArrayLike) -> list[int]:
        """The edges from (n,) nodes to (n,) nodes; UnknownNode or UnknownEdge if one is none."""
        u, v = self._node_ids(sources, "u"), self._node_ids(targets, "v")
        found = self._graph.find_many(u, v)
        if len(found) and found.min() < 0:
            first = int(np.flatnonzero(found < 0)[0])
            self._edge(u[first], v[first])
        return [int(edge) for edge in found]

    def _meta(self) -> dict[str, Any]:
        """The facts that a file keeps beside nodes and edges."""
        kept = self._nodes.observation
        return {
            "settings": self.settings.asdict(),
            "policy": self.policy.asdict(),
            "fingerprint": self.fingerprint,
            "features": self._made_with or self._feature_facts(),
            "tail": None if self._builder.tail is None else list(self._builder.tail),
            "observation": None if kept is None else form_of(kept),
            "keep_events": self._log.keep,
            **({"workers": dict(self._applied)} if self._applied else {}),
        }

    @takes_turns
    def _take_over(self, rows: NDArray[Any], growth: Ints) -> None:
        """Take over events that another process has added to the file this memory was read from."""
        self._log.put(rows, growth)
        self._cleanup.replay(rows)

    @classmethod
    def _from_contents(
        cls,
        path: Path,
        contents: Contents,
        distance: Distance | None,
        features: Features | None,
        policy: str | CleanupPolicy | None,
    ) -> SparseGraphicalMemory:
        memory = cls.__new__(cls)
        given = None if policy is None else make_policy(policy)
        try:
            settings = Settings.fromdict(contents.meta["settings"])
            chosen = given or _stored_policy(contents.meta["policy"], only_looked_at=distance is None)
        except (InputError, TypeError) as error:
            raise StoreError(f"{path} cannot be read: {error}") from None
        held = contents.nodes, contents.graph, contents.log, contents.tail, contents.records
        memory._set_up(distance, features, settings, chosen, *held)
        memory._loaded_fingerprint = contents.meta["fingerprint"]
        memory._made_with = contents.meta["features"]
        memory._applied = checked_workers(contents.meta.get("workers", {}))
        if distance is not None:
            check_distance(path, contents, distance)
        return memory


def _stored_policy(stored: Any, only_looked_at: bool) -> CleanupPolicy:
    """The policy that a file names; one that only its author has is not needed by who only looks."""
    if only_looked_at and isinstance(stored.get("name"), str) and stored["name"] not in POLICIES:
        return ForeignPolicy(stored)
    return policy_from_dict(stored)


def _keep(events: Any) -> int | None:
    return None if events is None else whole("keep_events", events, 0, "; None keeps all", high=2**53 - 1)


def _refuse_links(path: Path) -> None:
    """A write-ahead log belongs to one name of a file: under another name it would be missed."""
    links = path.stat().st_nlink
    if links > 1:
        raise StoreError(
            f"{path} has {links} names (hard links), and a second one could be opened unnoticed: copy it (sgm copy), "
            "or remove the other names, to write it"
        )


_MEMORIES: weakref.WeakSet[SparseGraphicalMemory] = weakref.WeakSet()


def _after_fork() -> None:
    """In a forked child no other thread runs that could end its turn."""
    for memory in list(_MEMORIES):
        memory._turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
