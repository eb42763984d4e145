"""Choosing thresholds: about so many nodes, well connected, from the buffer alone.

The paper tunes its thresholds "to maintain connectivity and achieve a desired sparsity level". This is that sentence as
one procedure, the same for every criterion, so that criteria can be compared at equal size. It sees observations and
distances and never an outcome of navigation.

1. The threshold τ begins where a sample of the buffer has one in `nodes` of its distances under it. It is raised or
   lowered in growing steps of log τ until the node count has been on both sides of the target; then log τ is bisected.
2. The count is neither continuous nor monotone in τ. When an order of the observations jumps over the target (log₂ τ is
   pinned down to 2⁻¹⁰ without a hit), another order is drawn and the search goes on from there.
3. A hit is a count within the tolerance. A hit whose largest strongly connected component has at least the share
   `connected` of its nodes ends the search. After any other, the remaining orders are tried too, and the hit with the
   largest such share wins, then the one closest to the target, then the earliest.
4. Without a hit the closest count is returned, with a warning.

With `consolidate` every graph is consolidated before it is counted, but for "uniform", where nothing is merged.

"uniform" has its size given, so each order is one draw, judged by 3. With tau_p="auto" every τ_a is tried together with
the τ_p that alone keeps about as many nodes as that τ_a alone, fewer than the two together: neither check decides
everything.
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
_PART = 512  # observations between two looks at the node count
_SAMPLE = (256, 2048)  # rows and columns of the table that says where to begin
_UNSUPPORTED = 4  # nodes before those without support go, for each that is asked for
_REACH = 32.0  # how far from there log₂ τ may go
_NARROW = 2.0**-10  # an interval of log₂ τ in which a missed count counts as a jump
_NUDGE = 0.125  # first step of log₂ τ in a redrawn order, where the threshold is nearly right already


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One graph that was built on the way to a choice.

    Attributes:
        value: the threshold (or size) it was built with.
        redrawn: which order of the observations: 0 as given, 1 the first one drawn, …
        nodes: its nodes; if not `complete`, those it had when it was given up; with tau_p="auto" it may have been given
            up before there was a τ_p.
        complete: False if it was given up, having so many nodes that it could be neither a hit nor the closest.
        edges: edges that the k-nearest filter keeps; 0 if not complete.
        largest_part: nodes of its largest strongly connected component; 0 if not complete.
        within_tolerance: whether its node count is a hit.
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

    The same memory comes from `extend(observations[order], episode=episode[order])` with the settings of `memory`. What
    it calls its stream is that order: its `nodes` are places in `order`, and `stream` has them in the given one.

    Attributes:
        memory: the memory that was chosen, with the distance and features given.
        name: what was searched for: "tau_a", "tau_p" or "size".
        value: what was found.
        order: (n,) int64: which of the given observations was visited first, second, …
        stream: (V,) int64: which of the given observations each node keeps.
        chosen: the attempt that became `memory`.
        tried: all attempts, in order; those that look for a τ_p to go with a τ_a are not among them.
        asked: how many nodes were asked for.
        tolerance: how far from that a hit may be, as a share of it.
        seed: the seed of the orders.
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
        """The threshold, what it makes of the observations, and what was asked for."""
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
        """Whether the node count is what was asked for."""
        return self.chosen.within_tolerance

    def asdict(self) -> dict[str, Any]:
        """What was chosen and how, ready for JSON; `order` and `stream` are left out: the seed gives them again."""
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

    The procedure is described at the top of this module. Observations are embedded once, whatever the number of tries.
    InputError if what is asked for cannot be; a warning, and the closest memory, if it was not found. A `MemoryWarning`
    says what to try if there are no edges, or if the largest strongly connected component has less than half of the
    nodes.

    Args:
        distance: see `SparseGraphicalMemory`, as for every argument not listed here.
        observations: (n, ...) the whole buffer, as the distance's `embed` takes it, or an `sgm.Experience`, whose
            achieved goals become the attribute "achieved_goal" of the memory.
        nodes: how many nodes to aim for.
        criterion: "two-way", "incoming" and "outgoing" search for τ_a, "perceptual" for τ_p; "uniform" takes `nodes` as
            its size. "none" has nothing to choose.
        features: φ of the perceptual check; None: the embedding itself.
        tau_p: the perceptual check before a consistency: a threshold, None for no check (the default, unlike that of a
            memory), or "auto": as strong as the consistency, so that each alone would keep about as many nodes as the
            other alone. A warning if no such τ_p was found for the τ_a chosen.
        max_dist: MaxDist, the longest edge, steps.
        k: successors kept for each node; None keeps all. Connectivity is that of the filtered graph.
        scope: "neighbors" or "memory".
        episode: a whole number, or (n,) of them, for edges between consecutive observations. Orders are then drawn of
            whole episodes, each of which stays as it is; a single episode has no other order. None: no such edges.
            Left out: the episodes of the Experience; none for plain observations.
        policy: cleanup policy of the memory, see `SparseGraphicalMemory`; the paper's is "first-failure".
        feature_average: how far a merge moves a node's feature towards the new one; makes every try slow.
        keep_observations: keep each node's observation.
        reversible: edges can be taken backwards too, see `SparseGraphicalMemory`.
        consolidate: each node keeps the middle one of its observations, and those that have fewer than a fifth of
            observations / `nodes` are left out and not counted; see `SparseGraphicalMemory.consolidated`. False: nodes
            keep their first observation, as in the paper.
        tolerance: how far the node count may be from `nodes`, as a share of it.
        connected: share of the nodes in one strongly connected component that is enough.
        orders: how many orders may be visited; the first is the given one.
        seed: seed of the other orders, and of the sample that "uniform" takes.
        progress: show progress bars over the observations embedded and the graphs built.
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
    """The name of what is searched for."""
    if criterion not in _THRESHOLDS:
        hint = '; "none" keeps every observation, so there is nothing to choose' if criterion == "none" else ""
        raise InputError(f"criterion is {criterion!r}: expected one of {', '.join(map(repr, _THRESHOLDS))}{hint}")
    name = _THRESHOLDS[criterion]
    if tau_p is not None and name != "tau_a":
        raise InputError(
            f"tau_p is {tau_p!r}: it is given beside a consistency ('two-way', 'incoming', 'outgoing'); with "
            f"{criterion!r} leave it out"
        )
    if isinstance(tau_p, str) and tau_p != "auto":
        raise InputError(f"tau_p is {tau_p!r}: expected a number, None for no perceptual check, or 'auto'")
    return name


def _take_over(
    memory: SparseGraphicalMemory, built: Builder, given: Given, episodes: Ints | None, stream: Ints
) -> None:
    """Give an empty memory the graph that was built over row numbers, and attributes of its nodes.

    From here on it is a memory over its own distance and features. (V,) `stream` has the row of each node.
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
    """The same nodes with (V, ...) observations."""
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
        """(n,) row numbers to (n, e) float32."""
        return self.embeddings[rows]

    def __call__(self, starts: Floats, goals: Floats) -> Any:
        """The distance itself."""
        return self.distance(starts, goals)

    def typical(self, name: str, share: float, seed: int) -> float:
        """What this share of a sample of distances (τ_a) or gaps between features (τ_p) is under; never 0."""
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
    """(n, f) and (m, f) to (n, m) Euclidean distances, roughly."""
    squares = np.square(left).sum(axis=1)[:, None] + np.square(right).sum(axis=1) - 2 * left @ right.T
    gaps: Floats = np.sqrt(np.maximum(squares, 0))
    return gaps


class _Orders:
    """The orders in which the observations may be visited."""

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
                    f"episode {values[times > 1][0]} stops and goes on later: give each piece a number of its own, so "
                    "that episodes can be visited in another order"
                )
        self._lengths = np.diff(self._starts, append=total)
        self.most = 1 if len(self._starts) == 1 else 1 << 62

    def order(self, redrawn: int) -> Ints:
        """(n,) int64 which observation is visited when; 0: as given."""
        pieces = np.arange(len(self._starts))
        if redrawn:
            pieces = np.random.default_rng([self.seed, redrawn]).permutation(pieces)
        return ragged(self._starts[pieces], self._lengths[pieces])[0]


@dataclasses.dataclass(frozen=True, eq=False)
class _Found:
    """An attempt and what it built."""

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
        """The best graph of these orders; after one that is connected well enough the others are not tried."""
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
        if self._best is None:  # every graph was given up for its size: the sparsest is built to its end
            self._try(orders[0], max(attempt.value for attempt in self.tried), limit=math.inf)
        assert self._best is not None
        return self._best

    def complaints(self, found: _Found) -> list[str]:
        """What was not found."""
        said = [] if found.attempt.within_tolerance else [self._missed(found)]
        if found.beside and not found.beside.within_tolerance:
            said.append(
                f"tau_p={found.beside.value:.6g} is not as strong as tau_a={found.attempt.value:.6g}: alone it keeps "
                f"{found.beside.nodes} nodes, and none closer to that of tau_a was found. Give tau_p yourself."
            )
        return said

    def _missed(self, found: _Found) -> str:
        """What to say when no count was within the tolerance, and what to do."""
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
        """Search one order, from this log₂ τ on; returns where it ended."""
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
        """With more nodes than this a graph is neither a hit nor closer than the best so far, or than one node.

        Where nodes need support, many of them go: with more than this, τ is so small that hardly any has it.
        """
        if self._least is not None and self._least > 1:
            return _UNSUPPORTED * self._target
        off = abs(self._best.attempt.nodes - self._target) if self._best else self._target
        return self._target + max(off, self._tolerance * self._target)

    def _equally_strong(self, redrawn: int, nodes: int) -> Attempt:
        """The perceptual check alone, with so many nodes or the closest to that."""
        alone = dataclasses.replace(self._settings, criterion="perceptual")
        search = _Search(self._buffer, alone, "tau_p", self._policy, self._visits, nodes, self._tolerance, self._bar)
        return search.run([redrawn], connected=0.0).attempt

    def _build(self, settings: Settings, redrawn: int, limit: float) -> tuple[Builder, bool]:
        """Take in the buffer in one of its orders; False if given up for holding more than `limit` nodes."""
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
        """The nodes that have so many observations, or as many as any has, each with the middle one of these."""
        order, episodes, steps = self._visits.order(redrawn), self._visits.episodes, self._visits.steps
        times = None if episodes is None else episodes[order]
        given = Given(order, times, None, False, None if steps is None else steps[order])
        assignment = builder.nodes.assignment.values
        most = int(np.bincount(assignment[assignment >= 0]).max(initial=1))
        held = self._buffer.embeddings[order], assignment, min(least, most)
        return rebuilt(builder.settings, self._buffer, self._buffer.lookup, given, *held)

    def _rank(self, attempt: Attempt) -> tuple[bool, float, float]:
        """Hits by connectivity, then by count; misses the other way round; less is better."""
        apart, gap = -attempt.largest_part / attempt.nodes, abs(attempt.nodes - self._target)
        return (False, apart, gap) if attempt.within_tolerance else (True, gap, apart)
