"""Choosing the settings of a memory from data: MaxDist, τ_a, k and the number of nodes, with the reasons.

1. Noise. What the distance says of observations one step apart: thresholds under it mean nothing.
2. MaxDist: how far the controller is good, by the data's own actions, in steps of the distance, and at most half of
   where the distance is clipped (`far`). Without a controller a third of that, and at least three times the noise;
   where the data reaches nothing so far, 10 steps, the paper's, or half of `far` if that is less.
3. τ_a: half of MaxDist, as in the paper, and at least the noise of a whole row of distances, so that neighbours merge.
4. Graphs are built over a part of the observations until one is connected: with a smaller τ_a first, which keeps more
   nodes, then with a larger MaxDist. One with too many nodes gets a larger τ_a. For the noise and for connectivity
   MaxDist may rise to 0.65 of `far`; over a half there is a warning.
5. k: the fewest successors that leave the graph connected and its ways hardly longer than without the filter.
6. The memory is built over all observations, or over as many as asked for, and consolidated: each node keeps the middle
   one of its observations, see `SparseGraphicalMemory.consolidated`. Edges in time weigh at least what the
   distance says, up to MaxDist: an episode passes from one node to the next in a step, but nodes are further apart than
   that. An edge is longer than MaxDist only where the data itself has a gap of more steps.

It sees observations, distances and recorded actions, and never an outcome of navigation. Which edges walls block cannot
be seen from data: an agent finds out, see `sgm.cleanup`.
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

LEAST_APART = 1.0  # steps; a distance that says less of any two observations tells none apart
FEW_NODES = 10  # with fewer there is hardly anything to plan on
WHOLE = 0.9  # share of nodes in the largest component under which a memory is in pieces
NOISY = 1.0  # noise over one step, as a share of MaxDist, over which edges are chance


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """Settings for a memory, the memory, and why they were chosen.

    Attributes:
        memory: built over the data with these settings.
        max_dist: MaxDist, steps.
        tau_a: τ_a, steps.
        tau_p: the perceptual check; None: off.
        k: successors kept for each node; None: all.
        noise: standard deviation of the distance over one step, steps; NaN if nothing tells.
        reach: steps over which the controller is good; None if that is not known.
        connected: share of the nodes in the largest strongly connected component.
        why: the reasons, a sentence each.
        tried: the graphs that were built on the way.
        rows: (n,) int64 which of the given observations the memory was built over.
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
        """What to give to `SparseGraphicalMemory` for the same merges; the module says what else is done."""
        return {"tau_a": self.tau_a, "tau_p": self.tau_p, "max_dist": self.max_dist, "k": self.k}

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.memory)

    def __repr__(self) -> str:
        """The settings, and a line for each reason."""
        chosen = f"max_dist={self.max_dist:.4g}, tau_a={self.tau_a:.4g}, tau_p={self.tau_p}, k={self.k}"
        size = f"{self.nodes:,} nodes of {len(self.rows):,} observations, {self.connected:.1%} of them connected"
        return "\n".join([f"<Choice {chosen}: {size}", *(f"  {reason}" for reason in self.why), f"  {self.memory!r}>"])

    def asdict(self) -> dict[str, Any]:
        """Plain numbers and sentences, ready for JSON."""
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
    """Propose MaxDist, τ_a, k and a number of nodes for a memory over this data, and build it.

    The procedure is described at the top of this module. A `MemoryWarning` says what is probably not as you want it: a
    distance that tells hardly anything apart or is very noisy, very few nodes, a memory in pieces.

    Args:
        data: an `sgm.Experience`; or (n, ...) observations, whose noise and whose edges in time are not known.
        distance: see `SparseGraphicalMemory`.
        controller: what will follow the plans: a function of observations and targets, compared with the actions of
            the data; or a report with `lags`, `controller` and `constant`, as `sgm.controllers` makes for held-out
            episodes. None: not asked.
        nodes: most nodes; more, and it says so, if that takes τ_a over 0.6 × MaxDist or if τ_a is given.
        reach: steps over which the controller is good, if you know it.
        max_dist: MaxDist, if you know it.
        tau_a: τ_a, if you know it.
        k: successors kept for each node, if you know it; None keeps all.
        connected: share of the nodes in one strongly connected component that is enough.
        most: observations that the memory is built over, at most: of longer data every so many, and whole episodes.
        sample: observations that graphs are tried with.
        keep_observations: keep each node's observation. None: if the data has no achieved goals, since nodes must have
            something to send the controller to.
        policy: cleanup policy of the memory; the default is the paper's with a guard: see docs/sparsity.md.
        seed: of samples.
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
        f"{len(memory):,} nodes: what these settings keep of {len(chosen):,} observations; {share:.1%} of them are in "
        "one strongly connected component."
    )
    seconds = time.perf_counter() - begin
    numbers = settings.max_dist, settings.tau_a, None, kept, search.measured.noise, search.reach, share
    return Choice(memory, *numbers, search.why, search.tried, chosen, seconds)


def _doubts(memory: SparseGraphicalMemory, given: int, search: Search) -> list[str]:
    """Sentences about data or a distance from which nothing good can be chosen, each with what to do."""
    settings, stats, measured = memory.settings, memory.stats(), search.measured
    number, largest = stats.nodes, stats.largest_component
    found = []
    if measured.greatest < LEAST_APART and given > 1:
        found.append(
            f"the distance tells hardly any observations apart: those of a sample are {measured.greatest:.3g} steps or "
            "less from each other. Collect data in which something changes, or train the distance for longer."
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
            "clipped, and near there it tells places apart badly. Collect more, train the distance for longer ways "
            "(`cap` or `reach`), or give max_dist."
        )
    found += look_at(number, given, settings, stats.edges, largest, asked=True)
    if WHOLE * number > largest >= number / 2:
        found.append(
            f"the memory is in {stats.components} pieces (strongly connected components), and the largest has "
            f"{largest:,} of {number:,} nodes: no plan leads from one to another. Collect more, or raise max_dist."
        )
    return found


class _Part:
    """Some of the observations, read when they are asked for."""

    def __init__(self, observations: Any, rows: Ints) -> None:
        self.observations, self.rows = observations, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: Any) -> NDArray[Any]:
        return np.asarray(self.observations[self.rows[part]])


def _memory(distance: Distance, policy: Any, built: Builder, observations: Any) -> SparseGraphicalMemory:
    """A memory over the distance given, from a graph that was built over row numbers."""
    settings = built.settings
    keep = observations is not None
    facts: dict[str, Any] = {"tau_p": None, "max_dist": settings.max_dist, "tau_a": settings.tau_a, "k": settings.k}
    memory = SparseGraphicalMemory(distance, policy=policy, keep_observations=keep, **facts)
    nodes = _keeping(built.nodes, np.asarray(observations[built.nodes.stream.values])) if keep else built.nodes
    held = memory.settings, memory.policy, nodes, built.graph, built.log, built.tail
    memory._set_up(distance, None, *held)
    return memory
