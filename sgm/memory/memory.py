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
_SHARE_TO_JUDGE = 0.1  # smallest share of all observations in a batch after which the graph is checked


class SparseGraphicalMemory:
    """A sparse directed graph over the observations of an agent, on which it plans and which it repairs.

    Emmons et al., "Sparse Graphical Memory for Robust Planning", NeurIPS 2020. Deviations from the paper: the test of
    Algorithm 1 is inverted in print (a state is novel when no node passes); the k-nearest filter is updated when
    observations are added later; edges removed by cleanup still count among the k nearest of a node. Merges depend on
    distances only, so neither cleanup nor edges in time change later merges.

    Threads may share a memory: their calls run one after another.
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
            distance: steps from one observation to another, see `Distance`; None for a memory that is only read.
            features: φ of the perceptual check, (n, ...) observations to (n, f) float32; None: the embedding itself.
            criterion: "two-way" (the paper's), "incoming", "outgoing", "perceptual", "uniform" or "none" (dense).
            tau_a: threshold on C_in and C_out, steps (Eq. 3).
            tau_p: threshold in feature space (Eq. 4), also checked before any consistency; None switches it off.
            max_dist: MaxDist, the longest edge, steps.
            k: successors kept for each node; None keeps all.
            scope: the nodes that ω and s0 range over: "neighbors" of the candidate (the authors' code, strict
                comparisons) or the whole "memory" (Eq. 3, comparisons as printed).
            policy: when failed tries remove an edge: "first-failure" (the paper's), "guarded" (the same, unless the
                removal would cut the graph apart), "second-failure", "belief", or a `CleanupPolicy` object.
            size: number of nodes for criterion "uniform", which samples within one call of `extend`: give all
                observations in one call.
            seed: seed of criterion "uniform".
            feature_average: how far a merge moves the feature of a node towards the new one (authors: 0.05; 0: off).
            keep_observations: store the observation of each node.
            keep_events: least number of the newest events that are stored one by one; None: all. Older events are
                folded into the evidence of their edges, and `at` cannot go back beyond them.
            reversible: edges can also be followed backwards, for environments that allow it. Every edge then has an
                opposite edge with its own evidence, whose weight is this factor (True: 1.2) times that of the edge, or
                less if its own distance is shorter. It passes the k-nearest filter if the edge does. Merges do not
                change.
            candidates: compare an observation with this number of nodes only, those with the nearest embeddings. Use it
                if a memory is large, its distance cannot be searched, and building is slow. Edges to other nodes are
                missed; `audit` estimates how many. None: no edge is missed.
            approximate: find these candidates by an approximate index (extra `usearch`), which may miss some of the
                nearest, instead of an exact one. Use it for embeddings that are all about equally far apart, where an
                exact index must compare an observation with every node.
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
        self._applied: dict[str, int] = {}  # number of the last batch recorded from each worker, see _record_batch
        self._store: store.Store | None = None
        self._interrupted = False  # whether the last `extend` was; the next one may then continue its episode
        self._read_only = ""  # the reason why the memory cannot be changed, if any
        self._turn = threading.RLock()
        _MEMORIES.add(self)

    def __getstate__(self) -> dict[str, Any]:
        """State of a copy: everything except the live file and the lock."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_store", "_turn")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a copy, which is not live."""
        self.__dict__.update(state)
        self._store = None
        self._turn = threading.RLock()
        _MEMORIES.add(self)

    # -- contents ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self._nodes)

    @takes_turns
    def __repr__(self) -> str:
        """Summary: criterion, nodes, edges, attributes and live file."""
        edges, removed = int(np.count_nonzero(self._planner.standing())), int(np.count_nonzero(self._graph.removed()))
        size = f"{len(self):,} nodes of {len(self._nodes.assignment):,} observations, {edges:,} edges"
        gone = f", {removed:,} removed" if removed else ""
        held = f", attributes {', '.join(self.attributes)}" if self.attributes else ""
        where = f", live in {self._store.path}" if self._store else ""
        return f"<SparseGraphicalMemory {self.settings.criterion}: {size}{gone}{held}{where}>"

    def _repr_html_(self) -> str:
        """Return the HTML table that notebooks show."""
        return as_html(self.stats())

    def view(self, *, height: int = 700) -> Page:
        """Show the inspector page of this memory in a notebook (extra `inspect`); `close()` of the result ends it.

        The page of a live memory follows its changes; otherwise it shows a copy of the present state. The page is
        read-only, and works for a notebook in a browser on this machine.

        Args:
            height: height of the page, pixels.
        """
        from sgm.inspector.notebook import show  # the only import of this package from a package above it

        return show(self, None if self._store is None else self._store.path, height)

    @takes_turns
    def stats(self) -> Stats:
        """Return sizes, connectivity, numbers of tries, and warnings."""
        where = None if self._store is None else self._store.path
        held = self._nodes, self._graph, self._planner, self._log
        return measure(*held, self.settings, self.records, where, self._builder.index_kind, self.nbytes)

    @property
    def settings(self) -> Settings:
        """The settings with which the graph is built."""
        return self._settings

    @property
    def policy(self) -> CleanupPolicy:
        """The cleanup policy, which decides when failed tries remove an edge."""
        return self._policy

    @property
    def distance(self) -> Distance:
        """The distance with which this memory was made; InputError if it was loaded without one."""
        if self._distance is None:
            raise InputError("this memory was loaded without a distance: give one to load() to embed observations")
        return self._distance

    @property
    def nodes(self) -> Ints:
        """(V,) int64 number of the observation that each node keeps; 0 is the first observation given."""
        return np.array(self._nodes.stream.values)

    @property
    def assignment(self) -> Ints:
        """(n,) int64 node of each observation given so far; −1 if uniform subsampling or consolidation left it out."""
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
        """(V, ...) observations of the nodes; InputError if they are not stored."""
        if not self.settings.keep_observations:
            raise InputError("this memory keeps no observations: make it with keep_observations=True")
        kept = self._nodes.observation
        return np.empty(0) if kept is None else kept.copy()

    @property
    def attributes(self) -> Attributes:
        """Named arrays over the nodes, see `Attributes`. Set one by `memory.attributes["position"] = ...`."""
        return Attributes(self._nodes, self._set_attribute)

    @property
    def nbytes(self) -> int:
        """RAM used for nodes, edges, events and the index over the nodes, bytes; cached plans are not counted."""
        return self._nodes.nbytes + self._graph.nbytes + self._log.nbytes + self._builder.index_bytes

    @takes_turns
    def edges(self, filtered: bool = True) -> Edges:
        """Return the edges that are not removed, sorted by source, then target.

        Args:
            filtered: only edges that plans may use; False: also those that the k-nearest filter leaves out.
        """
        mask = self._planner.standing() if filtered else ~self._graph.removed()
        return self._graph.edges(mask)

    @takes_turns
    def removed(self) -> Edges:
        """Return the edges that were removed by cleanup or by hand."""
        return self._graph.edges(self._graph.removed())

    @takes_turns
    def evidence(self, u: int, v: int) -> Evidence:
        """Return the outcomes of tries of the edge from u to v, which may be removed."""
        found: Evidence = self._graph.evidence.get(self._edge(u, v), Evidence())
        return found

    @takes_turns
    def tried(self) -> dict[tuple[int, int], Evidence]:
        """Return the evidence of every edge that was tried, by edge (u, v)."""
        source, target = self._graph.source.values, self._graph.target.values
        known = self._graph.evidence.items()
        return {(int(source[edge]), int(target[edge])): tries for edge, tries in known if tries.attempts}

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the distance, or that of the file from which this memory was loaded."""
        return getattr(self._distance, "fingerprint", None) or self._loaded_fingerprint

    @property
    def records(self) -> int:
        """Number of tries recorded so far, as used in `Evidence.removed_at`."""
        return self._cleanup.records

    @takes_turns
    def largest_part(self) -> int:
        """Number of nodes in the largest strongly connected component of the graph."""
        return self._planner.largest_part() if len(self) else 0

    @takes_turns
    def parts(self) -> Ints:
        """(V,) number of the strongly connected component of each node: 0 is the largest, 1 the next, and so on."""
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
        """Add a batch of observations, in order, in a single pass; on an error none of the batch is added.

        After an interrupt (Ctrl-C) the memory and its file keep the observations processed so far, as if only these had
        been given. The KeyboardInterrupt says how many they are, and `extend` with the rest gives the graph of all
        observations. Nothing of the batch is kept if the interrupt comes while the batch is written to a file, or with
        criterion "uniform".

        After a batch of at least 200 observations, and at least a tenth of all so far, a `MemoryWarning` says what to
        try if hardly any observations were merged, if there are no edges, or if the largest strongly connected
        component has less than half of the nodes.

        Args:
            observations: (n, ...) as the `embed` of the distance takes them, or an `sgm.Experience`, whose achieved
                goals and positions become the attributes "achieved_goal" and "position". With the first Experience the
                distance over single steps is measured (attribute "one_step"), by which agents calibrate their cutoff.
            episode: a whole number, or (n,) of them: consecutive observations of one episode are joined by edges of
                weight 1 after merging. An episode may continue in the next call. None: no such edges. Default: the
                episodes of the Experience, which end with it; none for plain observations. Between observations of an
                Experience that are several steps apart, as in `data[::5]`, the weight of the edge is the number of
                steps; there is no edge if they are more than 255.
            attributes: (n, ...) numbers by name, one row for each observation; a node has those of the observation that
                it keeps.
            block: number of observations processed at once; the result does not depend on it.
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
                f"interrupted: the memory keeps {kept:,} of these {total:,} observations, {held:,} in all. Continue "
                f"with extend(observations[{kept}:])."
            )
        if whole_episodes and episodes is not None:
            self._measure_single_steps(observations, episodes)
        if total >= max(ENOUGH_TO_JUDGE, _SHARE_TO_JUDGE * len(self._nodes.assignment)):
            self._warn()
        return report

    def _measure_single_steps(self, observations: Any, episodes: Ints) -> None:
        """Set the attribute "one_step", unless it is set. The batch is added already, so errors here are ignored."""
        if len(self) and single_steps.ONE_STEP not in self.attributes:
            rows = self.nodes - (len(self._nodes.assignment) - len(episodes))
            with contextlib.suppress(SGMError):
                measured = single_steps.measure(self.distance, self._nodes.embedding, rows, observations, episodes)
                self.attributes[single_steps.ONE_STEP] = measured

    def _warn(self) -> None:
        """Warn if the memory is probably not what the user wants."""
        given = int(np.count_nonzero(self._nodes.assignment.values >= 0))
        edges = int(np.count_nonzero(self._planner.standing()))
        if found := look_at(len(self), given, self.settings, edges, self._planner.largest_part()):
            warnings.warn("; ".join(found), MemoryWarning, stacklevel=4)  # the caller of extend

    def add(self, observation: Any, *, episode: int | None = None, attributes: Mapping[str, Any] | None = None) -> int:
        """Add one observation with its attributes; return the node that it became or was merged into."""
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
        """Return a memory with the same nodes in which each keeps the medoid of its observations, not the first.

        The medoid has the smallest sum of distances to and from the other observations of its node. It was not compared
        with them when they were merged, and may differ from them by up to 2 τ_a; `certificate` measures by how much.
        Edges are made again, so consolidate before cleanup: evidence and averaged features are not copied. Nodes are
        numbered in the order of the observations that they keep. The new memory is not live, and can be extended like
        any other.

        Args:
            observations: all observations given to `extend` and `add` so far, in order (for a memory of
                `choose_threshold` `observations[choice.order]`); or the `sgm.Experience` that was given.
            min_support: leave out nodes with fewer observations than this; their observations are then assigned to −1.
                "auto": a fifth of the average number of observations of a node.
            episode: as given to `extend`.
            attributes: as given to `extend`; those that are not given again are lost, with a `MemoryWarning`.
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
        """Return a copy of this memory without some edges, as if they had never been made.

        Edges removed by `remove` or cleanup still count among the k nearest successors of a node. Edges left out here
        do not: the next nearest take their places. So leave out edges that are known to be false before cleanup (see
        `sgm.navigation.verify_edges`). Evidence is not copied. The copy is not live. In a reversible memory the
        opposite edges are left out too.

        Args:
            source: (m,) sources of the edges, which may be beyond the k nearest.
            target: (m,) targets of the edges.
        """
        graph = without(self._graph, source, target, self.settings.k)
        memory = SparseGraphicalMemory.__new__(SparseGraphicalMemory)
        how = self._distance, self._features, self.settings, self.policy
        memory._set_up(*how, copy.deepcopy(self._nodes), graph, EventLog(self._log.keep), self._builder.tail)
        return memory

    @takes_turns
    def merge(self, other: SparseGraphicalMemory, *, progress: bool = False) -> MergeReport:
        """Add another memory of the same distance, with its tries and attributes; on an error nothing is added.

        Each node of the other memory is merged into a node or becomes one by the same rule as observations, as if the
        observations of these nodes were given to `extend`. The observations of the other memory follow those of this
        memory in `assignment`. Its edges in time are added. Its tries are recorded in order, and the policy of this
        memory decides which edges they remove; an edge that was removed there by hand, without a try, is removed. The
        other memory is not changed.

        Args:
            other: a memory with the same criterion, thresholds, MaxDist, scope and features. Its distance must have the
                same fingerprint, or give its edges the same lengths. If this memory stores observations, the other must
                too.
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
        """Change k, the number of nearest successors kept for each node; None keeps all."""
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
        """Embed (n, ...) observations with the distance, and check the result: (n, e) float32.

        Methods with an argument `embedded` take these embeddings instead of observations with `embedded=True`, so that
        an agent embeds each observation only once.
        """
        return embed(self.distance, observations, self._nodes.embedding_width)

    def steps_to_nodes(self, observations: Any, *, embedded: bool = False) -> Floats:
        """Compute d(s, ·): (n, V) float32 steps from (n, ...) observations to each node."""
        return between(self.distance, self._embedding(observations, embedded), self._nodes.embedding)

    def steps_from_nodes(self, observations: Any, *, embedded: bool = False) -> Floats:
        """Compute d(·, g): (n, V) float32 steps from each node to (n, ...) observations."""
        steps = between(self.distance, self._nodes.embedding, self._embedding(observations, embedded))
        return np.ascontiguousarray(steps.T)

    def steps(self, starts: Any, goals: Any, *, embedded: bool = False) -> Floats:
        """Compute d(s, g) of each pair of (n, ...) starts and (n, ...) goals: (n,) float32 steps."""
        ends = self._embedding(starts, embedded), self._embedding(goals, embedded)
        if len(ends[0]) != len(ends[1]):
            raise InputError(f"got {len(ends[0])} starts and {len(ends[1])} goals: expected as many of each")
        return paired(self.distance, *ends)

    def steps_to(self, embedding: Floats, nodes: ArrayLike) -> Floats:
        """Compute d(s, w) of each pair of (n, e) embeddings and (n,) nodes: (n,) float32 steps."""
        vectors, chosen = self._embedding(embedding, embedded=True), self._node_ids(nodes, "nodes")
        if chosen.shape != (len(vectors),):
            raise InputError(f"nodes has shape {chosen.shape}: expected one for each of {len(vectors)} embeddings")
        return paired(self.distance, vectors, self._nodes.embedding[chosen])

    def localise(self, observations: Any, *, as_goals: bool = False, embedded: bool = False) -> Near:
        """Find the nearest node of each of (n, ...) observations: (n,) nodes and (n,) distances in steps.

        Args:
            observations: (n, ...) observations.
            as_goals: nearest by the distance from the node to the observation; False: from the observation to the node.
            embedded: observations are embedded already, see `embed`.
        """
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
        """Whether agents have reached their waypoints: ‖d(s, ·) − d(w, ·)‖∞ < `cutoff`, (n,) bool.

        Args:
            observations: (n, ...) present observations s of the agents.
            waypoints: (n,) nodes w to which they go.
            cutoff: steps.
            over: the nodes over which the maximum is taken: "all" of the memory (as in the paper), or the waypoint and
                its "neighbours": its k nearest successors and the nodes of which it is one, removed edges included.
                The latter takes only a few distances, and passes a little more often.
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
        """Return the controller targets of (n,) nodes: their observations if stored, otherwise their embeddings."""
        chosen = self._node_ids(nodes, "nodes")
        kept = self._nodes.observation
        return np.array(self._nodes.embedding[chosen] if kept is None else kept[chosen])

    # -- planning ------------------------------------------------------------------------------------------------

    @takes_turns
    def plan(self, start: Any, goal: Any, *, by: str = "distance", within: float | None = None) -> Plan:
        """Find the shortest path from one observation to another; NoPath if there is none.

        Args:
            start: an observation.
            goal: an observation.
            by: the cost to minimise: "distance" (steps) or "hops" (number of edges).
            within: start and goal are attached to their nearest node first, then to the next nearest, … until a path
                exists, but never farther than this many steps (the nearest node is always allowed). None: MaxDist,
                and never to a node that is `distance.far` steps away or more, if the distance has this attribute;
                math.inf: any node, as in the authors' code.
        """
        within = self._reach(by, within)
        if (plan := self._plan_through_index(start, goal, by, within)) is not None:
            return plan
        starts, goals = self._attachments(batch_of_one(start), batch_of_one(goal))
        return self._plan_rows(starts[0], goals[0], by, within)

    @takes_turns
    def prepare_plans(self, *, by: str = "distance") -> None:
        """Prepare planning on a large graph now instead of during one of the next plans.

        It takes seconds for 100,000 nodes. From 16,384 nodes on, with the extra `fast`, the search for plans uses
        landmarks, which are chosen once and kept while edges are tried, removed and added. Smaller graphs need no
        preparation.

        Args:
            by: see `plan`.
        """
        self._require_nodes()
        self._planner.prepare(checked_mode(by))

    @takes_turns
    def plan_many(
        self, starts: Any, goals: Any, *, by: str = "distance", within: float | None = None
    ) -> list[Plan | None]:
        """Call `plan` for (n, ...) starts and (n, ...) goals; None for pairs without a path."""
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
        """Choose the first and the last node of a plan for many agents: (n,) and (n,) nodes, −1 without a path.

        Args:
            to_nodes: (n, V) `steps_to_nodes` of the present observations of the agents.
            goals: (n, V) `steps_from_nodes` of their goals, or (n,) goal nodes.
            by: see `plan`.
            within: see `plan`.
            candidates: "nearest": the nearest node first, then the next nearest, … as in `plan` (the authors' SGM);
                "all": the nodes within reach that give the shortest path (SoRB).
            without: edges (u, v) that must not be used, in this search only.
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
        """Find the shortest path from one node to another; NoPath if there is none."""
        return self._plan_between(self._node(start), self._node(goal), by, 0.0, 0.0)

    @takes_turns
    def next_nodes(self, nodes: ArrayLike, goals: ArrayLike, *, by: str = "distance") -> Ints:
        """Return the next waypoints of many agents at (n,) nodes with (n,) goal nodes: (n,) nodes.

        An agent at its goal gets the goal; an agent without a path gets −1.
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
        """Whether a path leads from each of (n,) nodes to its goal node: (n,) bool."""
        checked_mode(by)
        starts, ends = self._node_ids(nodes, "nodes").tolist(), self._node_ids(goals, "goals").tolist()
        return np.array([self._planner.reaches(*pair, by) for pair in zip(starts, ends, strict=True)], np.bool_)

    @takes_turns
    def routes_to(
        self, goal: int, *, by: str = "distance", raised: Mapping[tuple[int, int], float] | None = None
    ) -> Tree:
        """Find the shortest paths from all nodes to a goal node.

        Args:
            goal: a node.
            by: see `plan`.
            raised: steps added to the costs of edges (u, v), in this search only.
        """
        return self._planner.tree(self._node(goal), by, raised)

    @takes_turns
    def prices(self) -> csr_array:
        """Return the costs of edges for the planner: (V, V) steps by target and source; infinite for removed edges.

        Use it for your own searches, for example `scipy.sparse.csgraph.dijkstra` from a goal. It is the matrix of the
        planner itself: do not change it.
        """
        return self._planner.matrix("distance")

    # -- cleanup -------------------------------------------------------------------------------------------------

    def record(self, u: int, v: int, reached: bool, *, episode: int | None = None) -> bool:
        """Record a try of the edge from u to v; return whether it removed the edge.

        Args:
            u: source of the edge.
            v: target of the edge.
            reached: whether v was reached.
            episode: a whole number, which is only stored in the log of events.
        """
        return self.record_many([u], [v], [reached], episode=episode)[0]

    @takes_turns
    def record_many(self, u: ArrayLike, v: ArrayLike, reached: ArrayLike, *, episode: Any = None) -> list[bool]:
        """Call `record` for (n,) edges in order, all or none; return (n,) whether each try removed its edge."""
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
        """Record a batch of (n,) tries of a worker exactly once: in one transaction, with the number of the batch.

        Returns how many of the tries were of removed edges, which are recorded all the same; None if the batch was
        recorded before. The batches of a worker must come in order.
        """
        self._require_writable()
        if sequence <= (last := self._applied.get(worker, 0)):
            return None
        if sequence != last + 1:
            raise InputError(f"batch {sequence} of worker {worker} came after batch {last}: one is missing")
        edges = self._edges_between(u, v)
        _, known = self._graph.evidence.of(np.array(edges, np.int64))
        gone = int(np.count_nonzero(known.removed))
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
        """Set the workers whose batches are expected, with the number of the last batch of each; others are dropped."""
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
        """Restore the removed edge from u to v, or all removed edges; return how many. Evidence is kept."""
        if (u is None) != (v is None):
            raise InputError(f"restore takes both ends of an edge, or none; got u={shortened(u)}, v={shortened(v)}")
        self._require_writable()
        edges = sorted(self._graph.evidence) if u is None else [self._edge(u, v)]
        return self._cleanup.restore(edges, self._store)

    @takes_turns
    def remove(self, u: int, v: int) -> bool:
        """Remove the edge from u to v by hand, regardless of the policy and its guard; evidence is kept.

        Returns False if the edge was removed before. `restore` undoes it.
        """
        self._require_writable()
        return self._cleanup.remove(self._edge(u, v), self._store)

    @takes_turns
    def bridge(self) -> int:
        """Add edges beyond the k nearest successors that join parts of the graph; return how many.

        A k-nearest filter can cut a graph apart: where many nodes are close together, none of the k shortest edges may
        lead out through the door. This method adds the shortest edge from each strongly connected component to each
        other one to which it has no edge, if that makes components larger. These are spare edges, like those of
        `FirstFailure(spares=True)`: in plans, cleanup and files they are like any other edge.

        Long edges are more often false than short ones. So use it if edges have been verified (see
        `sgm.navigation.verify_edges`), or before cleanup that can try them.
        """
        self._require_writable()
        edges = self._planner.find_bridges() if len(self) else []
        self._cleanup.let_in(edges, self._store)
        return len(edges)

    # -- history -------------------------------------------------------------------------------------------------

    @takes_turns
    def events(self, u: int | None = None, v: int | None = None) -> Events:
        """Return the stored events of all edges, or of the edge from u to v, oldest first. See `keep_events`."""
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
        """Return the memory as it was right after an event, read-only; 0: just before the first event.

        It has the nodes, edges and evidence of that time, and the present settings, policy, features and attributes.
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
        """Estimate how many edges and merges a build with `candidates` missed, by comparing some nodes with all.

        A memory without `candidates` misses none, up to rounding of the distances.

        Args:
            sample: number of nodes to compare, drawn at random; all if there are fewer.
            seed: seed of the draw.
        """
        self._require_nodes()
        sample, seed = whole("sample", sample, 1), whole("seed", seed, 0)
        return audit(self.distance, self._nodes, self._graph, self.settings, sample, seed)

    # -- the bound -----------------------------------------------------------------------------------------------

    def certificate(
        self, observations: Any, *, max_dist: float | None = None, pairs: int | None = None, seed: int = 0
    ) -> Certificate:
        """Measure Theorem 1 on this memory: compare its paths with those of the dense graph of all observations.

        Args:
            observations: all observations given to `extend` and `add` so far, in order.
            max_dist: MaxDist of the dense graph, steps; None: that of this memory. A condition of the theorem is that
                the MaxDist of this memory is larger by at least 2 τ.
            pairs: number of pairs of nodes to measure, drawn at random; None: all.
            seed: seed of the draw.
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
        """Write the memory to a file; a failed write leaves no partial file, and an existing file as it was."""
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
        """Copy the memory to another file; a failed copy leaves no partial file.

        Use it to copy a live memory: copying the file by other means would miss its write-ahead log. The contents of
        the file are copied, without the calls of a `group` that has not ended.
        """
        target = real_path(path)
        if self._store is None:
            self.save(target)
        elif target.exists() and target.samefile(self._store.path):
            raise StoreError(f"{target} is the memory's own file: give the backup another name")
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
        """Read a memory file; another process may be writing it. StoreError if the file is damaged or does not fit.

        Args:
            path: the file.
            distance: the distance with which it was made; with None the memory can be read and exported, and plans are
                possible from node to node.
            features: the feature function with which it was made, needed only to add observations.
            policy: a cleanup policy that replaces the stored one.
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
        """Open a live memory: every call has written its changes to the file when it returns.

        The changes survive even if the process is killed afterwards. The file is made if it does not exist. Close the
        memory (or use `with`) to leave a single file without logs. After a failed write, for example to a full disk,
        memory and file are as they were before the call. If that is uncertain, the memory refuses further writes, and
        the error says that it must be opened again. docs/file.md lists all guarantees.

        Args:
            path: the file.
            distance: the distance with which the file was or will be made; None for a memory whose edges are only
                tried, removed and restored.
            features: the feature function with which the file was or will be made.
            policy: for an existing file: replaces the stored cleanup policy. None keeps it; a new file has "guarded".
            keep_events: see the constructor; for an existing file it replaces the stored value, if given.
            synchronous: "normal": a returned call survives a crash of the process, but a crash of the machine may undo
                the last calls; "full": it survives both, at the cost of one disk sync for each call.
            settings: settings as in the constructor; for an existing file they must be equal to those stored.
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
        """Write several calls of a live memory in one transaction: `with memory.group(): ...`.

        The changes are durable when the block ends. If the block raises, the calls that had returned are kept, in RAM
        and in the file. Other threads wait until the block ends.
        """
        with self._turn, self._store.group() if self._store else contextlib.nullcontext():
            yield

    @takes_turns
    def close(self) -> None:
        """Close the live file; the memory itself stays usable."""
        if self._store:
            live, self._store = self._store, None
            live.close()

    def __enter__(self) -> SparseGraphicalMemory:
        """Return the memory, for `with SparseGraphicalMemory.open(...) as memory`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the live file."""
        self.close()

    # -- other formats -------------------------------------------------------------------------------------------

    def to_networkx(self, filtered: bool = True) -> Any:
        """Return a networkx.DiGraph: nodes with `stream` and attributes, edges with `weight` and evidence.

        It needs networkx. `filtered` as in `edges`.
        """
        return export.to_networkx(self, filtered)

    def to_scipy(self, filtered: bool = True) -> Any:
        """Return the weights as a (V, V) scipy.sparse.csr_array, steps; `filtered` as in `edges`."""
        return export.to_scipy(self, filtered)

    def to_graphml(self, path: Path_, filtered: bool = True) -> None:
        """Write a GraphML file, for Gephi, yEd, Cytoscape, igraph and others.

        An attribute of several numbers has a key for each: position_0, position_1; images are left out. `filtered` as
        in `edges`.
        """
        export.to_graphml(self, real_path(path), filtered)

    def to_csv(self, path: Path_, filtered: bool = True) -> Path:
        """Write a CSV file with a line for each edge, and NAME.nodes.csv with a line for each node; return its path.

        `filtered` as in `edges`.
        """
        return export.to_csv(self, real_path(path), filtered)

    # -- private -------------------------------------------------------------------------------------------------

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
        """Return the search for near nodes by an index; None if there are few nodes or the distance has no search."""
        return self._builder.search(self.distance) if len(self) >= MANY else None

    def _plan_through_index(self, start: Any, goal: Any, by: str, within: float | None) -> Plan | None:
        """Plan between the nearest nodes, found by an index; None without an index or a path between them."""
        if self._search() is None:
            return None
        first, last = self.localise(batch_of_one(start)), self.localise(batch_of_one(goal), as_goals=True)
        self._refuse_clipped(first.distance, last.distance, within)
        ends = int(first.node[0]), int(last.node[0])
        if not self._planner.reaches(*ends, by):
            return None
        return self._plan_between(*ends, by, float(first.distance[0]), float(last.distance[0]))

    def _reach(self, by: str, within: float | None) -> float | None:
        """Check the arguments of `plan`; return `within` as a finite number of steps, or None."""
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
        """Return the first and the last node of a plan, from (V,) steps to and from nodes; `goal` may be a node."""
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
        """Raise NoPath if the distances to all nodes are clipped: then the nearest node is unknown."""
        far = far_of(self.distance)
        if within is None and far is not None:
            for name, steps in (("start", start), ("goal", goal)):
                if not steps.min() < far:
                    raise NoPath(
                        f"no node near the {name}: all are {far:.4g} steps away or more, where this distance is "
                        "clipped. Explore more, or allow any node (within=math.inf)."
                    )

    def _plan_between(self, start: int, goal: int, by: str, before: float, after: float) -> Plan:
        route = self._planner.route(start, goal, by)
        nodes = np.array(route.nodes)
        along = self._planner.along(nodes)
        return Plan(nodes, self.waypoints(nodes), *along, route.cost, before, after)

    def _require_features(self) -> None:
        """Raise InputError if the file was made with another feature function."""
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
        """Return the edges from (n,) nodes to (n,) nodes; UnknownNode or UnknownEdge if one does not exist."""
        u, v = self._node_ids(sources, "u"), self._node_ids(targets, "v")
        found = self._graph.find_many(u, v)
        if len(found) and found.min() < 0:
            first = int(np.flatnonzero(found < 0)[0])
            self._edge(u[first], v[first])
        return [int(edge) for edge in found]

    def _meta(self) -> dict[str, Any]:
        """Return the facts that a file stores in addition to nodes and edges."""
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
        """Apply events that another process has added to the file from which this memory was read."""
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
    """Return the policy stored in a file; for reading only, a user's own policy becomes a placeholder."""
    if only_looked_at and isinstance(stored.get("name"), str) and stored["name"] not in POLICIES:
        return ForeignPolicy(stored)
    return policy_from_dict(stored)


def _keep(events: Any) -> int | None:
    return None if events is None else whole("keep_events", events, 0, "; None keeps all", high=2**53 - 1)


def _refuse_links(path: Path) -> None:
    """Raise StoreError for a file with hard links: its write-ahead log would be missed under another name."""
    links = path.stat().st_nlink
    if links > 1:
        raise StoreError(
            f"{path} has {links} names (hard links), and another process could write it under another one: copy it "
            "(sgm copy), or remove the other names, to write it"
        )


_MEMORIES: weakref.WeakSet[SparseGraphicalMemory] = weakref.WeakSet()


def _after_fork() -> None:
    """Replace the locks of memories in a forked child, where no other thread exists that could release them."""
    for memory in list(_MEMORIES):
        memory._turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
