"""Choose the settings of a memory from data: MaxDist, τ_a, k and the number of nodes, with the reasons.

1. Noise: the spread of the distance between observations one step apart. Thresholds below it mean nothing.
2. MaxDist: the reach of the controller, measured on the actions of the data, in steps of the distance, and at most half
   of the value at which the distance is clipped (`far`). Without a controller a third of `far`, and at least three
   times the noise. If no pair of the data is so far apart, 10 steps as in the paper, or half of `far` if that is less.
3. τ_a: half of MaxDist, as in the paper, and at least the noise of a whole row of distances, so that neighbours merge.
4. Graphs are built over a part of the observations until one is connected: first with a smaller τ_a, which keeps more
   nodes, then with a larger MaxDist. A graph with too many nodes gets a larger τ_a. Noise or poor connectivity may
   raise MaxDist up to 0.65 of `far`; above half of `far` there is a warning.
5. k: the smallest number of successors with which the graph stays connected and paths are hardly longer than without
   the filter.
6. The memory is built over all observations, or at most as many as asked for, and consolidated: each node keeps the
   medoid of its observations, see `SparseGraphicalMemory.consolidated`. Edges in time weigh at least the distance, up
   to MaxDist: an episode passes from one node to the next in a step, but the observations of the two nodes are further
   apart. An edge is longer than MaxDist only where the data has a gap of more steps.

The procedure uses observations, distances and recorded actions, and never an outcome of navigation. Data does not show
which edges are blocked by walls; an agent finds out, see `sgm.cleanup`.
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError, MemoryWarning
from sgm.progress import progress_bar

from .arrays import Ints
from .build import Builder
from .choose_measures import Rows
from .choose_search import MOST, Search, Try
from .distance import Distance
from .given import OF_THE_DATA, unpack
from .memory import SparseGraphicalMemory
from .policies import CleanupPolicy
from .settings import number, shortened, whole
from .single_steps import ONE_STEP, measure
from .stats import look_at
from .threshold import _Buffer, _keeping

LEAST_APART = 1.0  # steps; if all distances of a sample are below this, the distance cannot tell observations apart
FEW_NODES = 10  # with fewer nodes, planning is of little use
WHOLE = 0.9  # share of nodes in the largest component below which a memory is in pieces
NOISY = 1.0  # noise over one step, as a share of MaxDist, above which edges are random


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """Chosen settings, the memory built with them, and the reasons.

    Attributes:
        memory: the memory of the data with these settings.
        max_dist: MaxDist, steps.
        tau_a: τ_a, steps.
        tau_p: threshold of the perceptual check; None: off.
        k: successors kept for each node; None: all.
        noise: standard deviation of the distance over one step, steps; NaN if unknown.
        reach: number of steps over which the controller is good; None if unknown.
        connected: share of the nodes in the largest strongly connected component.
        why: the reasons, one sentence each.
        tried: the graphs that were built during the search.
        rows: (n,) int64 rows of the given observations from which the memory was built.
        seconds: wall time, s.
    """

    memory: SparseGraphicalMemory
    max_dist: float
    tau_a: float
    tau_p: float | None
    k: int | None
    noise: float
    reach: float | None
    connected: float
    why: list[str]
    tried: list[Try]
    rows: Ints
    seconds: float

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of `SparseGraphicalMemory` that give the same merges; further steps are described in the module."""
        return {"tau_a": self.tau_a, "tau_p": self.tau_p, "max_dist": self.max_dist, "k": self.k}

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.memory)

    def __repr__(self) -> str:
        """Summary: the settings, and a line for each reason."""
        chosen = f"max_dist={self.max_dist:.4g}, tau_a={self.tau_a:.4g}, tau_p={self.tau_p}, k={self.k}"
        size = f"{self.nodes:,} nodes of {len(self.rows):,} observations, {self.connected:.1%} of them connected"
        return "\n".join([f"<Choice {chosen}: {size}", *(f"  {reason}" for reason in self.why), f"  {self.memory!r}>"])

    def asdict(self) -> dict[str, Any]:
        """Return plain numbers and sentences, ready for JSON."""
        names = ("max_dist", "tau_a", "tau_p", "k", "nodes", "reach", "connected", "why", "seconds")
        noise = self.noise if math.isfinite(self.noise) else None
        tried = [dataclasses.asdict(each) for each in self.tried]
        return {**{name: getattr(self, name) for name in names}, "noise": noise, "tried": tried}


def choose(
    data: Any,
    distance: Distance,
    controller: Any = None,
    *,
    nodes: int = 1_000,
    reach: float | None = None,
    max_dist: float | None = None,
    tau_a: float | None = None,
    k: int | str | None = "auto",
    connected: float = 0.98,
    most: int = 20_000,
    sample: int = 4_000,
    keep_observations: bool | None = None,
    policy: str | CleanupPolicy = "guarded",
    seed: int = 0,
    progress: bool = True,
) -> Choice:
    """Choose MaxDist, τ_a, k and the number of nodes for a memory of this data, and build it.

    The procedure is described at the top of this module. A `MemoryWarning` says what is probably wrong: a distance that
    hardly tells observations apart or is very noisy, very few nodes, a memory in pieces.

    Args:
        data: an `sgm.Experience`; or (n, ...) observations, which give neither the noise nor edges in time.
        distance: see `SparseGraphicalMemory`.
        controller: the controller that will follow the plans, a function of observations and targets, which is compared
            with the actions of the data; or a report with `lags`, `controller` and `constant`, as `sgm.controllers`
            makes for held-out episodes. None: the reach of the controller is not measured.
        nodes: largest number of nodes. There may be more if τ_a would have to be above 0.6 × MaxDist, or if `tau_a` is
            given; a sentence in `why` then says so.
        reach: number of steps over which the controller is good, if you know it.
        max_dist: MaxDist in steps, if you know it.
        tau_a: τ_a in steps, if you know it.
        k: successors kept for each node, if you know it; None keeps all.
        connected: share of the nodes in one strongly connected component that is enough.
        most: largest number of observations to build the memory from; longer data is thinned out evenly, and then by
            whole episodes.
        sample: number of observations with which graphs are tried.
        keep_observations: store the observation of each node. None: store it if the data has no achieved goals, since
            the controller needs one or the other as its target.
        policy: cleanup policy of the memory; the default is the paper's policy with a guard, see docs/sparsity.md.
        seed: seed of the samples.
        progress: show progress bars.
    """
    begin = time.perf_counter()
    rows = Rows.of(data)
    if distance is None or not rows.number:
        raise InputError(f"got {rows.number} observations and distance {distance!r}: expected some, and a distance")
    if not isinstance(distance, Distance):
        raise InputError(
            f"distance is {shortened(distance)}: expected a distance, with embed and __call__; see sgm.Distance"
        )
    if not (controller is None or callable(controller) or hasattr(controller, "lags")):
        raise InputError(
            f"controller is {shortened(controller)}: expected a function of observations and targets, a report of "
            "sgm.controllers.quality, or None"
        )
    search = Search(rows, distance, whole("nodes", nodes, 1), number("connected", connected, high=1.0), seed)
    search.begin(controller, reach, max_dist, tau_a)
    chosen = rows.thinned(whole("most", most, 1), max(1, int(search.max_dist / 2)))
    if len(chosen) < rows.number:
        search.say(f"The memory is built over {len(chosen):,} of {rows.number:,} observations (most={most:,}).")
    observations, episode, attributes, _, _ = unpack(data, OF_THE_DATA)
    parts = observations if len(chosen) == rows.number else _Part(observations, chosen)
    with progress_bar(shown=progress, total=len(chosen), desc="embed", unit="obs", leave=False) as bar:
        search.buffer = _Buffer(distance, None, parts, bar)
    search.chosen = chosen
    with progress_bar(shown=progress, desc="choose", unit="graph", leave=False) as bar:
        found = search.run(whole("sample", sample, 1), fixed_tau=tau_a is not None, bar=bar)
    with progress_bar(shown=progress, total=len(chosen), desc="build", unit="obs") as bar:
        builder = search.finish(found, bar)
    kept = search.filter(builder, k)
    keep = attributes is None or "achieved_goal" not in attributes if keep_observations is None else keep_observations
    memory = _memory(distance, policy, builder, parts if keep else None)
    stream = chosen[builder.nodes.stream.values]
    for name, values in (attributes or {}).items():
        memory.attributes[name] = np.asarray(values)[stream]
    if episode is not None:
        memory.attributes[ONE_STEP] = measure(distance, builder.nodes.embedding, stream, observations, rows.episodes)
    share = memory.largest_part() / len(memory)
    settings = builder.settings
    if doubts := _doubts(memory, len(chosen), search):
        warnings.warn(" ".join(doubt[0].upper() + doubt[1:] for doubt in doubts), MemoryWarning, stacklevel=2)
    search.say(
        f"{len(memory):,} nodes of {len(chosen):,} observations with these settings; {share:.1%} of the nodes are in "
        "one strongly connected component."
    )
    seconds = time.perf_counter() - begin
    numbers = settings.max_dist, settings.tau_a, None, kept, search.measured.noise, search.reach, share
    return Choice(memory, *numbers, search.why, search.tried, chosen, seconds)


def _doubts(memory: SparseGraphicalMemory, given: int, search: Search) -> list[str]:
    """Return warnings about the data, the distance or the memory, each with advice."""
    settings, stats, measured = memory.settings, memory.stats(), search.measured
    number, largest = stats.nodes, stats.largest_component
    found = []
    if measured.greatest < LEAST_APART and given > 1:
        found.append(
            f"the distance tells hardly any observations apart: those of a sample are {measured.greatest:.3g} steps or "
            "less from each other. Collect data with more variation, or train the distance for longer."
        )
    elif number < FEW_NODES and given > 1:
        found.append(
            f"there are only {number} nodes, of {given:,} observations. Give a smaller max_dist (now "
            f"{settings.max_dist:.3g}) or tau_a (now {settings.tau_a:.3g}), or collect more."
        )
    wanted = min(search.wanted, settings.max_dist)
    over_rows = measured.row_noise(wanted)
    if measured.noise > NOISY * wanted or over_rows > wanted:
        noise = f"{measured.noise:.3g} steps over one step"
        if measured.noise <= NOISY * wanted or math.isnan(measured.noise):
            noise = f"after one step, distances to other observations have changed by up to {over_rows:.3g} steps"
        found.append(
            f"the distance is very noisy: {noise}, for edges of up to {wanted:.3g} steps. Train it for longer or on "
            "more data; otherwise settings by hand may be better, such as sgm.choose_threshold with a number of nodes."
        )
    if not search.given and settings.max_dist > (1 + 1e-6) * MOST * search.far:
        found.append(
            f"MaxDist {settings.max_dist:.3g} is over half of the {search.far:.3g} steps at which the distance is "
            "clipped, where it is inaccurate. Collect more, train the distance for longer paths (`cap` or `reach`), or "
            "give max_dist."
        )
    found += look_at(number, given, settings, stats.edges, largest, asked=True)
    if WHOLE * number > largest >= number / 2:
        found.append(
            f"the memory is in {stats.components} pieces (strongly connected components), and the largest has "
            f"{largest:,} of {number:,} nodes: no plan leads from one piece to another and back. Collect more, or "
            "raise max_dist."
        )
    return found


class _Part:
    """Some rows of the observations, read on access."""

    def __init__(self, observations: Any, rows: Ints) -> None:
        self.observations, self.rows = observations, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: Any) -> NDArray[Any]:
        return np.asarray(self.observations[self.rows[part]])


def _memory(distance: Distance, policy: Any, built: Builder, observations: Any) -> SparseGraphicalMemory:
    """Make a memory with the given distance from a graph that was built over row numbers."""
    settings = built.settings
    keep = observations is not None
    facts: dict[str, Any] = {"tau_p": None, "max_dist": settings.max_dist, "tau_a": settings.tau_a, "k": settings.k}
    memory = SparseGraphicalMemory(distance, policy=policy, keep_observations=keep, **facts)
    nodes = _keeping(built.nodes, np.asarray(observations[built.nodes.stream.values])) if keep else built.nodes
    held = memory.settings, memory.policy, nodes, built.graph, built.log, built.tail
    memory._set_up(distance, None, *held)
    return memory
