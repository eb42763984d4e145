"""Choose a threshold that gives a well connected memory with about a given number of nodes.

The paper tunes its thresholds "to maintain connectivity and achieve a desired sparsity level". This module does so by
one procedure, the same for every criterion, so that criteria can be compared at equal size. It uses observations and
distances, and never an outcome of navigation.

1. The search for the threshold τ begins at the value below which 1 / `nodes` of the distances in a sample of the buffer
   lie. τ is raised or lowered in growing steps of log τ until one node count is above the target and one below; then
   log τ is bisected.
2. The node count is neither continuous nor monotone in τ. If it jumps over the target (the interval of log₂ τ is
   narrower than 2⁻¹⁰ without a hit), another order of the observations is drawn, and the search continues from there.
3. A hit is a count within the tolerance. A hit whose largest strongly connected component has at least the share
   `connected` of its nodes ends the search. After any other hit the remaining orders are tried too, and the hit with
   the largest such share is chosen; of equal ones, the hit closest to the target, then the earliest.
4. Without a hit the memory with the closest count is returned, with a warning.

With `consolidate` every graph is consolidated before its nodes are counted, except with "uniform", which merges
nothing.

With "uniform" the size is given, so each order is one draw, judged by rule 3. With tau_p="auto" every τ_a is combined
with the τ_p that alone keeps about as many nodes as this τ_a alone, so that neither check dominates. Both together keep
more nodes than each alone.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from sgm.errors import InputError, MemoryWarning
from sgm.progress import progress_bar

from .arrays import Ints, ragged
from .build import Builder, as_episodes
from .consolidate import EMBED, rebuilt, support
from .distance import Distance, Features, Floats, between, compute_features, count, embed
from .events import EventLog
from .given import OF_THE_DATA, Given, unpack
from .graph import Graph
from .memory import SparseGraphicalMemory
from .nodes import Nodes
from .planner import Planner
from .policies import CleanupPolicy
from .settings import Settings, number, whole
from .single_steps import ONE_STEP, measure
from .stats import look_at

_THRESHOLDS = {
    "two-way": "tau_a",
    "incoming": "tau_a",
    "outgoing": "tau_a",
    "perceptual": "tau_p",
    "uniform": "size",
}
_PART = 512  # observations between two checks of the node count
_SAMPLE = (256, 2048)  # rows and columns of the sample of distances from which the first τ is taken
_UNSUPPORTED = 4  # most nodes before consolidation, as a multiple of the target
_REACH = 32.0  # largest change of log₂ τ from its first value
_NARROW = 2.0**-10  # width of the interval of log₂ τ below which the count is taken to jump over the target
_NUDGE = 0.125  # first step of log₂ τ in a redrawn order, where the threshold is nearly right already


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One graph that was built during the search.

    Attributes:
        value: the threshold (or size) it was built with.
        redrawn: number of the order of the observations: 0 as given, 1 the first one drawn, …
        nodes: number of nodes; if not `complete`, the number when the build was stopped, which with tau_p="auto" may
            have been before τ_p was known.
        complete: False if the build was stopped because of too many nodes for a hit or for the closest count.
        edges: number of edges that the k-nearest filter keeps; 0 if not complete.
        largest_part: number of nodes in the largest strongly connected component; 0 if not complete.
        within_tolerance: whether the node count is a hit.
    """

    value: float
    redrawn: int
    nodes: int
    complete: bool
    edges: int
    largest_part: int
    within_tolerance: bool


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ThresholdChoice:
    """A threshold, the memory it makes, and how it was found.

    `extend(observations[order], episode=episode[order])` with the settings of `memory` builds the same memory. The
    stream of that memory is in the order `order`: the stream numbers of its nodes are positions in `order`. The
    `stream` here holds positions in the given observations.

    Attributes:
        memory: the chosen memory, with the given distance and features.
        name: name of the threshold: "tau_a", "tau_p" or "size".
        value: the value found for it.
        order: (n,) int64 rows of the given observations, in the order in which they were added.
        stream: (V,) int64 row of the given observation that each node holds.
        chosen: the attempt that became `memory`.
        tried: all attempts, in order, without those that search for the τ_p of a τ_a.
        asked: number of nodes asked for.
        tolerance: allowed deviation from `asked`, as a share of it.
        seed: seed of the orders.
    """

    memory: SparseGraphicalMemory
    name: str
    value: float
    order: Ints
    stream: Ints
    chosen: Attempt
    tried: list[Attempt]
    asked: int
    tolerance: float
    seed: int

    def __repr__(self) -> str:
        """Summary: the threshold, the size of its memory, and the size asked for."""
        asked = f"asked for {self.asked:,} ± {self.tolerance:.0%}"
        return (
            f"<ThresholdChoice {self.name}={self.value:.6g}: {self.nodes:,} nodes ({asked}), {self.edges:,} edges, "
            f"largest component {self.largest_part:,} nodes\n"
            f"  found among {len(self.tried)} graphs in {1 + max(attempt.redrawn for attempt in self.tried)} orders "
            f"of the observations\n"
            f"  memory: {self.memory!r}>"
        )

    @property
    def nodes(self) -> int:
        """Number of nodes when it was chosen."""
        return self.chosen.nodes

    @property
    def edges(self) -> int:
        """Number of edges, after the k-nearest filter, when it was chosen."""
        return self.chosen.edges

    @property
    def largest_part(self) -> int:
        """Number of nodes in the largest strongly connected component when it was chosen."""
        return self.chosen.largest_part

    @property
    def within_tolerance(self) -> bool:
        """Whether the node count is within the tolerance."""
        return self.chosen.within_tolerance

    def asdict(self) -> dict[str, Any]:
        """Return the choice and all attempts, ready for JSON; `order` and `stream` follow from the seed."""
        return {
            "name": self.name,
            "asked": self.asked,
            "tolerance": self.tolerance,
            "seed": self.seed,
            **dataclasses.asdict(self.chosen),
            "settings": self.memory.settings.asdict(),
            "tried": [dataclasses.asdict(attempt) for attempt in self.tried],
        }


def choose_threshold(
    distance: Distance,
    observations: Any,
    nodes: int,
    *,
    criterion: str = "two-way",
    features: Features | None = None,
    tau_p: float | Literal["auto"] | None = None,
    max_dist: float = 10.0,
    k: int | None = 5,
    scope: str = "neighbors",
    episode: Any = OF_THE_DATA,
    policy: str | CleanupPolicy = "guarded",
    feature_average: float = 0.0,
    keep_observations: bool = False,
    reversible: bool | float | None = None,
    consolidate: bool = False,
    tolerance: float = 0.05,
    connected: float = 0.98,
    orders: int = 10,
    seed: int = 0,
    progress: bool = True,
) -> ThresholdChoice:
    """Build a memory of about `nodes` nodes: find the threshold of a criterion by node count and connectivity.

    The procedure is described at the top of this module. Observations are embedded once, independent of the number of
    graphs. Invalid arguments raise InputError. If no graph has about `nodes` nodes, the closest memory is returned,
    with a warning. A `MemoryWarning` says what to try if there are no edges, or if the largest strongly connected
    component has less than half of the nodes.

    Args:
        distance: see `SparseGraphicalMemory`.
        observations: (n, ...) the whole buffer, as the distance's `embed` takes it, or an `sgm.Experience`, whose
            achieved goals become the attribute "achieved_goal" of the memory.
        nodes: number of nodes to aim for.
        criterion: "two-way", "incoming" and "outgoing" search for τ_a, "perceptual" for τ_p; "uniform" takes `nodes` as
            its size. "none" has no threshold and is refused.
        features: φ of the perceptual check; None: the embedding itself.
        tau_p: threshold of the perceptual check before a consistency. None: no check; this is the default here, unlike
            that of a memory. "auto": the τ_p that alone keeps about as many nodes as the τ_a alone; a warning if none
            was found for the chosen τ_a.
        max_dist: MaxDist, the longest edge, steps.
        k: successors kept for each node; None keeps all. Connectivity is that of the filtered graph.
        scope: "neighbors" or "memory".
        episode: episode number, or (n,) of them, for edges between consecutive observations. Orders are then
            permutations of whole episodes; a single episode has no other order. None: no such edges. Default: the
            episodes of the Experience; none for plain observations.
        policy: cleanup policy of the memory, see `SparseGraphicalMemory`; the paper's is "first-failure".
        feature_average: how far a merge moves the feature of a node towards the new one, 0 to 1; every build is slow
            unless it is 0.
        keep_observations: store the observation of each node.
        reversible: edges can also be followed backwards, see `SparseGraphicalMemory`.
        consolidate: each node keeps the medoid of its observations; nodes with fewer than a fifth of
            observations / `nodes` are left out and not counted; see `SparseGraphicalMemory.consolidated`. False: nodes
            keep their first observation, as in the paper.
        tolerance: allowed deviation of the node count from `nodes`, as a share of it.
        connected: share of the nodes in one strongly connected component that is enough.
        orders: most orders to try; the first is the given one.
        seed: seed of the other orders, and of the sample that "uniform" takes.
        progress: show progress bars of the embedding and of the graphs.
    """
    given = unpack(observations, episode)
    total = count(given.observations)
    nodes = whole("nodes", nodes, 1)
    if nodes > total:
        raise InputError(f"nodes is {nodes}, but there are {total} observations: ask for at most as many nodes")
    name = _threshold_of(criterion, tau_p)
    least = support("auto", total, nodes) if consolidate and name != "size" else None
    if distance is None:
        raise InputError("distance is None: choosing a threshold needs one, see sgm.Distance")
    memory = SparseGraphicalMemory(
        distance,
        features,
        criterion,
        tau_p=None if tau_p == "auto" else tau_p,
        max_dist=max_dist,
        k=k,
        scope=scope,
        policy=policy,
        size=nodes if name == "size" else None,
        seed=whole("seed", seed, 0) if name == "size" else 0,
        feature_average=feature_average,
        keep_observations=keep_observations,
        reversible=reversible,
    )
    visits = _Orders(total, as_episodes(given.episode, total), whole("seed", seed, 0), given.steps)
    orders = min(whole("orders", orders, 1), visits.most)
    tolerance = number("tolerance", tolerance, high=1.0)
    connected = number("connected", connected, high=1.0)
    with progress_bar(shown=progress, total=total, desc="embed", unit="obs", leave=False) as bar:
        buffer = _Buffer(distance, features, given.observations, bar)
    with progress_bar(shown=progress, desc="choose", unit="graph") as bar:
        settings = dataclasses.replace(memory.settings, keep_observations=False)
        how = visits, nodes, tolerance, bar, tau_p == "auto", least
        search = _Search(buffer, settings, name, memory.policy, *how)
        found = search.run(range(orders), connected)
    attempt, order = found.attempt, visits.order(found.attempt.redrawn)
    for complaint in search.complaints(found):
        warnings.warn(complaint, stacklevel=2)
    if lost := look_at(attempt.nodes, total, found.builder.settings, attempt.edges, attempt.largest_part, asked=True):
        warnings.warn("; ".join(lost), MemoryWarning, stacklevel=2)
    stream = order[found.builder.nodes.stream.values]
    _take_over(memory, found.builder, given, visits.episodes, stream)
    return ThresholdChoice(
        memory, name, attempt.value, order, stream, attempt, search.tried, nodes, tolerance, visits.seed
    )


def _threshold_of(criterion: str, tau_p: float | str | None) -> str:
    """Return the name of the threshold of a criterion; InputError if it has none."""
    if criterion not in _THRESHOLDS:
        hint = '; "none" keeps every observation, so there is nothing to choose' if criterion == "none" else ""
        raise InputError(f"criterion is {criterion!r}: expected one of {', '.join(map(repr, _THRESHOLDS))}{hint}")
    name = _THRESHOLDS[criterion]
    if tau_p is not None and name != "tau_a":
        raise InputError(
            f"tau_p is {tau_p!r}: it is only used with a consistency ('two-way', 'incoming', 'outgoing'); with "
            f"{criterion!r} leave it out"
        )
    if isinstance(tau_p, str) and tau_p != "auto":
        raise InputError(f"tau_p is {tau_p!r}: expected a number, None for no perceptual check, or 'auto'")
    return name


def _take_over(
    memory: SparseGraphicalMemory, built: Builder, given: Given, episodes: Ints | None, stream: Ints
) -> None:
    """Fill an empty memory with a graph that was built over row numbers, and set the attributes of its nodes.

    The memory then uses its own distance and features. (V,) `stream` holds the row of each node.
    """
    distance, keeps = memory.distance, memory.settings.keep_observations
    nodes = _keeping(built.nodes, np.asarray(given.observations)[stream]) if keeps else built.nodes
    settings = dataclasses.replace(built.settings, keep_observations=keeps)
    memory._set_up(distance, memory._features, settings, memory.policy, nodes, built.graph, built.log, built.tail)
    for name, values in (given.attributes or {}).items():
        memory.attributes[name] = np.asarray(values)[stream]
    if given.whole_episodes and episodes is not None:
        memory.attributes[ONE_STEP] = measure(distance, nodes.embedding, stream, given.observations, episodes)


def _keeping(nodes: Nodes, observations: Any) -> Nodes:
    """Return a copy of the nodes that also stores (V, ...) observations."""
    nodes.check_observations(observations)
    kept = Nodes()
    own = nodes.feature if nodes.has_own_features else None
    kept.append(nodes.stream.values, nodes.embedding, own, observations)
    kept.assignment.append(nodes.assignment.values)
    return kept


class _Buffer:
    """All observations, embedded once: a distance and a feature function over row numbers."""

    def __init__(self, distance: Distance, features: Features | None, observations: Any, bar: Any) -> None:
        self.distance = distance
        embeddings: list[Floats] = []
        vectors: list[Floats] = []
        for low in range(0, len(observations), EMBED):
            part = observations[low : low + EMBED]
            embeddings.append(embed(distance, part, embeddings[0].shape[1] if embeddings else None))
            if features is not None:
                vectors.append(compute_features(features, part, vectors[0].shape[1] if vectors else None))
            bar.update(len(part))
        self.embeddings = np.concatenate(embeddings)
        self.features = np.concatenate(vectors) if vectors else self.embeddings
        self.lookup = self.features.__getitem__ if vectors else None

    def embed(self, rows: Ints) -> Floats:
        """Return the (n, e) float32 embeddings of (n,) row numbers."""
        return self.embeddings[rows]

    def __call__(self, starts: Floats, goals: Floats) -> Any:
        """Compute the distances between embeddings."""
        return self.distance(starts, goals)

    def typical(self, name: str, share: float, seed: int) -> float:
        """Return a quantile of the positive distances (τ_a) or feature distances (τ_p) in a sample; never 0."""
        random = np.random.default_rng(seed)
        total = len(self.embeddings)
        rows, columns = (random.choice(total, min(total, most), replace=False) for most in _SAMPLE)
        if name == "tau_p":
            gaps = _gaps(self.features[rows], self.features[columns])
        else:
            gaps = between(self, self.embeddings[rows], self.embeddings[columns])
        apart = gaps[rows[:, None] != columns]
        apart = apart[apart > 0]
        return float(np.quantile(apart, share)) if len(apart) else 1.0


def _gaps(left: Floats, right: Floats) -> Floats:
    """(n, m) Euclidean distances between (n, f) and (m, f) vectors, with rounding errors."""
    squares = np.square(left).sum(axis=1)[:, None] + np.square(right).sum(axis=1) - 2 * left @ right.T
    gaps: Floats = np.sqrt(np.maximum(squares, 0))
    return gaps


class _Orders:
    """The orders in which the observations may be added: permutations of observations, or of whole episodes."""

    def __init__(self, total: int, episodes: Ints | None, seed: int, steps: Ints | None = None) -> None:
        self.episodes = episodes
        self.steps = steps
        self.seed = seed
        self._starts = np.arange(total)
        if episodes is not None:
            self._starts = np.flatnonzero(np.append(True, episodes[1:] != episodes[:-1]))
            values, times = np.unique(episodes[self._starts], return_counts=True)
            if (times > 1).any():
                raise InputError(
                    f"episode {values[times > 1][0]} stops and continues later: give each piece a number of its own, "
                    "so that episodes can be added in another order"
                )
        self._lengths = np.diff(self._starts, append=total)
        self.most = 1 if len(self._starts) == 1 else 1 << 62

    def order(self, redrawn: int) -> Ints:
        """Return (n,) int64 rows in the order in which they are added; `redrawn` 0: as given."""
        pieces = np.arange(len(self._starts))
        if redrawn:
            pieces = np.random.default_rng([self.seed, redrawn]).permutation(pieces)
        return ragged(self._starts[pieces], self._lengths[pieces])[0]


@dataclasses.dataclass(frozen=True, eq=False)
class _Found:
    """An attempt and its graph."""

    attempt: Attempt
    builder: Builder
    beside: Attempt | None = None  # with tau_p="auto": "perceptual" alone, with the τ_p that was found


class _Search:
    """The search for one threshold."""

    def __init__(
        self,
        buffer: _Buffer,
        settings: Settings,
        name: str,
        policy: CleanupPolicy,
        visits: _Orders,
        target: int,
        tolerance: float,
        bar: Any,
        paired: bool = False,
        least: int | None = None,
    ) -> None:
        self.tried: list[Attempt] = []
        self._buffer, self._settings, self._name, self._policy, self._visits = buffer, settings, name, policy, visits
        self._target, self._tolerance, self._bar, self._paired = target, tolerance, bar, paired
        self._least = least
        self._best: _Found | None = None

    def run(self, orders: Sequence[int], connected: float) -> _Found:
        """Return the best graph of these orders; the search ends with the first order that gives a good one."""
        power, step = 0.0, 1.0
        if self._name != "size":
            power = math.log2(self._buffer.typical(self._name, 1 / self._target, self._visits.seed))
        reach = (power - _REACH, power + _REACH)
        for redrawn in orders:
            power = self._visit(redrawn, power, step, reach)
            step = _NUDGE
            best = self._best.attempt if self._best else None
            if best and best.within_tolerance and best.largest_part >= connected * best.nodes:
                break
        if self._best is None:  # every build was stopped for its size: the sparsest graph is built completely
            self._try(orders[0], max(attempt.value for attempt in self.tried), limit=math.inf)
        assert self._best is not None
        return self._best

    def complaints(self, found: _Found) -> list[str]:
        """Warnings about conditions that the result does not meet."""
        said = [] if found.attempt.within_tolerance else [self._missed(found)]
        if found.beside and not found.beside.within_tolerance:
            said.append(
                f"tau_p={found.beside.value:.6g} is not as strong as tau_a={found.attempt.value:.6g}: alone it keeps "
                f"{found.beside.nodes} nodes, and no tau_p closer to the count of tau_a was found. Give tau_p yourself."
            )
        return said

    def _missed(self, found: _Found) -> str:
        """Warning that no count was within the tolerance, with advice."""
        name, attempt = self._name, found.attempt
        if all(tried.nodes > self._target for tried in self.tried):
            ways = ["max_dist"] if self._settings.scope == "neighbors" else []
            ways += ["tau_p"] if np.isfinite(self._settings.tau_p) and name == "tau_a" else []
            advice = f"No {name} keeps fewer" + (f": raise {' or '.join(ways)}" if ways else "")
        elif all(tried.nodes < self._target for tried in self.tried):
            advice = f"No {name} keeps more: are many observations equal?"
        else:
            advice = "The count jumps over it: allow more orders or a larger tolerance"
        return (
            f"asked for {self._target} nodes within {self._tolerance:.1%}; the closest of {len(self.tried)} graphs has "
            f"{attempt.nodes} ({name}={attempt.value:.6g}). {advice}."
        )

    def _visit(self, redrawn: int, power: float, step: float, reach: tuple[float, float]) -> float:
        """Search one order, beginning at this log₂ τ; return the last log₂ τ."""
        if self._name == "size":
            self._try(redrawn, self._target)
            return power
        too_many, too_few = -math.inf, math.inf
        while True:
            attempt = self._try(redrawn, 2.0**power)
            if attempt.within_tolerance:
                return power
            many = attempt.nodes > self._target
            too_many, too_few = (power, too_few) if many else (too_many, power)
            if math.isfinite(too_few - too_many):
                following = (too_many + too_few) / 2
            else:
                following, step = power + (step if many else -step), 2 * step
            if too_few - too_many < _NARROW or not reach[0] <= following <= reach[1]:
                return power
            power = following

    def _try(self, redrawn: int, value: float, limit: float | None = None) -> Attempt:
        """Build one graph and keep it if it is the best so far."""
        threshold: dict[str, Any] = {self._name: value}
        settings = dataclasses.replace(self._settings, **threshold)
        limit = self._most() if limit is None else limit
        builder, complete = self._build(settings, redrawn, limit)
        beside = None
        if complete and self._paired:
            beside = self._equally_strong(redrawn, len(builder.nodes))
            builder, complete = self._build(dataclasses.replace(settings, tau_p=beside.value), redrawn, limit)
        edges = largest = 0
        if complete and self._least is not None:
            builder = self._consolidated(builder, redrawn, self._least)
        if complete:
            planner = Planner(builder.graph, self._policy)
            edges, largest = int(np.count_nonzero(planner.standing())), planner.largest_part()
        size = len(builder.nodes)
        hit = complete and abs(size - self._target) <= self._tolerance * self._target
        attempt = Attempt(value, redrawn, size, complete, edges, largest, hit)
        self.tried.append(attempt)
        if complete and (self._best is None or self._rank(attempt) < self._rank(self._best.attempt)):
            self._best = _Found(attempt, builder, beside)
        self._bar.set_postfix_str(f"{self._name}={value:.4g}: {size} nodes", refresh=False)
        self._bar.update()
        return attempt

    def _most(self) -> float:
        """Number of nodes above which a build is stopped, since it can be neither a hit nor the closest so far.

        Without a graph so far, it must be closer to the target than a graph of one node. With consolidation many nodes
        are left out: with more than this number, τ is so small that hardly any node has enough observations.
        """
        if self._least is not None and self._least > 1:
            return _UNSUPPORTED * self._target
        off = abs(self._best.attempt.nodes - self._target) if self._best else self._target
        return self._target + max(off, self._tolerance * self._target)

    def _equally_strong(self, redrawn: int, nodes: int) -> Attempt:
        """Find the τ_p with which the perceptual check alone keeps `nodes` nodes, or the closest count."""
        alone = dataclasses.replace(self._settings, criterion="perceptual")
        search = _Search(self._buffer, alone, "tau_p", self._policy, self._visits, nodes, self._tolerance, self._bar)
        return search.run([redrawn], connected=0.0).attempt

    def _build(self, settings: Settings, redrawn: int, limit: float) -> tuple[Builder, bool]:
        """Build a graph of the buffer in one of its orders; False if stopped because of more than `limit` nodes."""
        builder = Builder(Nodes(), Graph(), EventLog(), settings)
        builder.graph.set_filter(settings.k)
        builder.graph.set_reversible(settings.reversible)
        order, episodes = self._visits.order(redrawn), self._visits.episodes
        part = len(order) if self._name == "size" else _PART  # uniform subsampling draws from one batch
        silent = progress_bar(shown=False)
        for low in range(0, len(order), part):
            rows = order[low : low + part]
            times = None if episodes is None else episodes[rows]
            steps = None if self._visits.steps is None else self._visits.steps[rows]
            builder.extend(self._buffer, self._buffer.lookup, rows, times, {}, None, builder.mark(), silent, steps)
            if len(builder.nodes) > limit:
                return builder, False
        return builder, True

    def _consolidated(self, builder: Builder, redrawn: int, least: int) -> Builder:
        """Consolidate: keep nodes with at least `least` observations, each with the medoid of its observations.

        If no node has so many, those with the most are kept.
        """
        order, episodes, steps = self._visits.order(redrawn), self._visits.episodes, self._visits.steps
        times = None if episodes is None else episodes[order]
        given = Given(order, times, None, False, None if steps is None else steps[order])
        assignment = builder.nodes.assignment.values
        most = int(np.bincount(assignment[assignment >= 0]).max(initial=1))
        held = self._buffer.embeddings[order], assignment, min(least, most)
        return rebuilt(builder.settings, self._buffer, self._buffer.lookup, given, *held)

    def _rank(self, attempt: Attempt) -> tuple[bool, float, float]:
        """Sort key, lower is better: hits by connectivity, then by count; misses by count, then by connectivity."""
        apart, gap = -attempt.largest_part / attempt.nodes, abs(attempt.nodes - self._target)
        return (False, apart, gap) if attempt.within_tolerance else (True, gap, apart)
