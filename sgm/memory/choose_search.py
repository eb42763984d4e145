"""The search of `sgm.choose`: its measurements, the graphs that it tries, and the reasons that it gives."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.progress import progress_bar

from .arrays import Bools, Ints
from .build import Builder
from .choose_measures import Rows, measure_distance, measure_reach
from .consolidate import rebuilt
from .csgraph import dijkstra
from .distance import Distance, far_of, paired
from .events import EventLog
from .given import Given
from .graph import MOST_BETWEEN, Graph
from .nodes import Nodes
from .planner import Planner
from .policies import FirstFailure
from .settings import Settings, number, whole
from .threshold import _Buffer

PAPER = 10.0  # MaxDist of the paper, steps
SHARE = 1 / 3  # MaxDist without a controller, as a share of the value at which the distance is clipped
MOST = 1 / 2  # the same, upper limit for any controller
LONGEST = 0.65  # the same, upper limit because of noise or connectivity; agents failed at 0.8, docs/own-environment.md
FINEST, COARSEST = 1 / 8, 0.6  # smallest and largest τ_a, as shares of MaxDist
FILTERS = (5, 8, 12, 20)  # values of k that are tried
STRETCH = 1.1  # largest median ratio of path lengths with and without the filter
_GOALS = 24  # number of goals whose paths are compared
_PART = 512  # observations between two checks of the node count
_PLAIN = FirstFailure()  # costs are weights, as long as no edge was tried


@dataclasses.dataclass(frozen=True)
class Try:
    """One graph that was built during the search, without the k-nearest filter.

    Attributes:
        max_dist: MaxDist, steps.
        tau_a: τ_a, steps.
        observations: number of observations.
        nodes: number of nodes; if not `complete`, the number when the build was stopped because of too many.
        connected: share of its nodes in the largest strongly connected component; 0 if not complete.
        complete: whether it was built completely.
    """

    max_dist: float
    tau_a: float
    observations: int
    nodes: int
    connected: float
    complete: bool


class Search:
    """The search for settings."""

    buffer: _Buffer
    chosen: Ints

    def __init__(self, rows: Rows, distance: Distance, nodes: int, connected: float, seed: int) -> None:
        self.rows, self.distance, self.most_nodes, self.connected, self.seed = rows, distance, nodes, connected, seed
        self.why: list[str] = []
        self.tried: list[Try] = []

    def say(self, sentence: str) -> None:
        self.why.append(sentence)

    # -- measurements ------------------------------------------------------------------------------------------------

    def begin(self, controller: Any, reach: float | None, max_dist: float | None, tau_a: float | None) -> None:
        """Measure the distance, and choose the first MaxDist."""
        self.measured = measure_distance(self.rows, self.distance, self.seed)
        far = far_of(self.distance)
        self.far = math.inf if far is None else float(self.distance.far)  # type: ignore[attr-defined]
        self.clips = far is not None and self.measured.greatest >= 0.9 * far  # somewhere in the data
        self.reach = None if reach is None else number("reach", reach)
        self.given, self.tau_a = max_dist is not None, tau_a
        if max_dist is not None:
            self.max_dist = number("max_dist", max_dist)
            self.say(f"MaxDist {self.max_dist:.4g}: given.")
        else:
            self.max_dist = self._from_reach(controller)
        self.wanted = self.max_dist  # before it is raised because of noise
        self._respect_noise()

    def _from_reach(self, controller: Any) -> float:
        """Choose MaxDist by the reach of the controller; by the distance too if only a lower bound of it is known."""
        known = self.reach is not None
        at_least = False
        if not known and controller is not None:
            found = measure_reach(self.rows, controller, self.seed)
            if found is None:
                self.say(
                    "The reach of the controller is unknown: the data has no actions, or by them it is hardly better "
                    "than a constant action."
                )
            else:
                self.reach, at_least = found
        by_distance = self.far * SHARE if self.clips else min(PAPER, MOST * self.far)
        if self.reach is not None:
            steps = self.measured.over(self.reach)
            start = max(steps, by_distance) if at_least else steps
            least = "at least " if at_least else ""
            self.say(f"The controller is good over {least}{self.reach:g} steps, a distance of {steps:.4g}.")
            if start > MOST * self.far:
                start = MOST * self.far
                self.say(
                    f"MaxDist {start:.4g}: half of the {self.far:.4g} steps at which the distance is clipped. Close to "
                    "this value it is inaccurate, and too many observations would be merged."
                )
            elif start > steps:
                self.say(f"MaxDist {start:.4g}: its reach over longer paths is unknown; {self._rule()}.")
            else:
                self.say(f"MaxDist {start:.4g}: as far as the controller is good.")
            return start
        self.say(f"MaxDist {by_distance:.4g}: {self._rule()}.")
        return by_distance

    def _rule(self) -> str:
        if self.clips:
            return f"a third of the {self.far:.4g} steps at which the distance is clipped"
        if MOST * self.far < PAPER:
            return f"half of the {self.far:.4g} steps at which the distance is clipped"
        return "as in the paper, since no distance in the data is clipped"

    def _respect_noise(self) -> None:
        noise = self.measured.noise
        if not math.isfinite(noise):
            lacking = "episodes of two observations or more" if self.rows.walks else "episodes"
            self.say(f"Noise of the distance: not known, the data has no {lacking}.")
            return
        self.say(f"Noise of the distance: {noise:.3g} steps over one step.")
        least = min(3 * noise, LONGEST * self.far)
        if self.given or self.max_dist >= least:
            return
        if self.reach is not None:
            # In MiniGrid (noise 1.9, reach 2) agents reached 97 % of 60 goals with MaxDist 2, and 30 % with 5.6, three
            # times the noise.
            self.say("This is high for this MaxDist, but the controller is good over no more.")
        else:
            self.say(f"MaxDist is raised to {least:.4g}, three times the noise: shorter edges would be random.")
            self.max_dist = least

    # -- graphs ------------------------------------------------------------------------------------------------------

    def run(self, sample: int, *, fixed_tau: bool, bar: Any) -> Try:
        """Return the best of the graphs over a part of the observations."""
        part = self.rows.among(self.chosen, sample)
        best: Try | None = None
        for max_dist, tau_a in self._candidates(fixed_tau):
            found = self._try(max_dist, tau_a, part, bar)
            if best is None or (found.complete, found.connected) > (best.complete, best.connected):
                best = found
            if found.complete and found.connected >= self.connected:
                break
        assert best is not None
        found = best
        if not found.complete:
            found = self._try(found.max_dist, found.tau_a, part, bar, math.inf)
        self._explain(found)
        return found

    def _candidates(self, fixed_tau: bool) -> Any:
        """Yield pairs of MaxDist and τ_a to try; each depends on the results of the previous ones."""
        longest = max(LONGEST * self.far, self.max_dist)
        for factor in (1.0,) if self.given else (1.0, 1.4, 2.0):
            max_dist = min(self.max_dist * factor, longest)
            if factor > 1 and (max_dist <= self.tried[-1].max_dist or self.tried[-1].connected >= self.connected):
                return
            if fixed_tau:
                assert self.tau_a is not None
                yield max_dist, self.tau_a
                continue
            floor = min(self.measured.row_noise(max_dist), COARSEST * max_dist)
            tau_a = max(max_dist / 2, floor)
            while True:
                yield max_dist, tau_a
                following = tau_a * (0.7 if self.tried[-1].complete else 1.3)
                if self._in_vain(max_dist) or not FINEST * max_dist <= following <= COARSEST * max_dist:
                    break
                tau_a = following

    def _in_vain(self, max_dist: float) -> bool:
        """Whether to stop the search over τ_a: the last one did not help, or jumped from too few to too many nodes."""
        mine = [each for each in self.tried if each.max_dist == max_dist][-2:]
        if len(mine) < 2:
            return False
        before, last = mine
        return before.complete != last.complete or (last.complete and last.connected < before.connected + 0.01)

    def _try(self, max_dist: float, tau_a: float, part: Ints, bar: Any, limit: float | None = None) -> Try:
        limit = self.most_nodes if limit is None else limit
        settings = Settings(tau_a=tau_a, tau_p=math.inf, max_dist=max_dist, k=None)
        builder, complete = self._build(settings, part, limit)
        size = len(builder.nodes)
        share = Planner(builder.graph, _PLAIN).largest_part() / size if complete else 0.0
        found = Try(max_dist, tau_a, len(part), size, share, complete)
        self.tried.append(found)
        bar.set_postfix_str(f"max_dist={max_dist:.4g}, tau_a={tau_a:.4g}: {size} nodes", refresh=False)
        bar.update()
        return found

    def _build(self, settings: Settings, part: Ints, limit: float, bar: Any = None) -> tuple[Builder, bool]:
        """Build a graph of these positions in the chosen rows; False if stopped because of more than `limit` nodes."""
        builder = Builder(Nodes(), Graph(), EventLog(), settings)
        builder.graph.set_filter(settings.k)
        builder.graph.set_reversible(settings.reversible)
        rows, silent = self.chosen[part], bar if bar is not None else progress_bar(shown=False)
        episodes, steps = self.rows.episodes, self.rows.steps
        for low in range(0, len(part), _PART):
            here = slice(low, low + _PART)
            times = episodes[rows[here]] if self.rows.walks else None
            builder.extend(self.buffer, None, part[here], times, {}, None, builder.mark(), silent, steps[rows[here]])
            if len(builder.nodes) > limit:
                return builder, False
        return builder, True

    def _explain(self, found: Try) -> None:
        if self.tau_a is not None:
            self.say(f"τ_a {found.tau_a:.4g}: given.")
            return
        floor = self.measured.row_noise(found.max_dist)
        because = "half of MaxDist, as in the paper" if found.tau_a == found.max_dist / 2 else "found by the search"
        if floor > found.max_dist / 2 and abs(found.tau_a - floor) < 1e-6 * floor:
            because = "the noise of a row of distances one step apart, below which neighbours would not merge"
        if len(self.tried) > 1:
            because += f", after {len(self.tried)} graphs"
        self.say(
            f"τ_a {found.tau_a:.4g}: {because}; over {found.observations:,} observations {found.nodes:,} nodes, "
            f"{found.connected:.1%} connected."
        )
        if found.max_dist > self.max_dist:
            self.say(f"MaxDist is raised to {found.max_dist:.4g}: below it the graph falls apart.")
        if found.connected < self.connected:
            self.say(
                f"No graph had {self.connected:.0%} of its nodes connected: collect more, or give a larger max_dist."
            )

    def filter(self, builder: Builder, k: int | str | None) -> int | None:
        """Set the k-nearest filter of the graph, and return k: the given one, or the smallest that is good enough."""
        kept = self._fewest(builder) if k == "auto" else None if k is None else whole("k", k, 1)
        if k != "auto":
            self.say(f"k {k}: given.")
        builder.graph.set_filter(kept)
        builder.settings = dataclasses.replace(builder.settings, k=kept)
        return kept

    def _fewest(self, builder: Builder) -> int | None:
        planner = Planner(builder.graph, _PLAIN)
        full, ways = planner.largest_part(), self._ways(planner, builder)
        for kept in FILTERS:
            builder.graph.set_filter(kept)
            share, mine = planner.largest_part() / max(1, full), self._ways(planner, builder)
            both = np.isfinite(ways) & np.isfinite(mine) & (ways > 0)
            stretch = float(np.median(mine[both] / ways[both])) if both.any() else 1.0
            if share >= 0.99 and stretch <= STRETCH:
                self.say(f"k {kept}: the graph stays connected; paths are {stretch:.2f} times as long as without k.")
                return kept
        self.say(f"k None: even with k {FILTERS[-1]} the graph falls apart, or paths are over {STRETCH} times as long.")
        return None

    def _ways(self, planner: Planner, builder: Builder) -> NDArray[np.float64]:
        """(goals, V) lengths of the shortest paths from all nodes to some of them, steps."""
        random = np.random.default_rng(self.seed)
        size = len(builder.nodes)
        goals = random.choice(size, min(size, _GOALS), replace=False)
        return np.asarray(dijkstra(planner.matrix("distance"), indices=goals))

    def finish(self, found: Try, bar: Any) -> Builder:
        """Build the graph of all chosen observations, without filter; τ_a is raised while it has too many nodes."""
        tau_a, everything = found.tau_a, np.arange(len(self.chosen))
        while True:
            settings = Settings(tau_a=tau_a, tau_p=math.inf, max_dist=found.max_dist, k=None)
            coarser = tau_a * 1.2
            last = self.tau_a is not None or coarser > COARSEST * found.max_dist
            builder, complete = self._build(settings, everything, math.inf if last else self.most_nodes, bar)
            if complete:
                if len(builder.nodes) > self.most_nodes:
                    self.say(f"Over {self.most_nodes:,} nodes: fewer need a larger max_dist, or a given tau_a.")
                builder = self._consolidated(builder)
                self._weigh_passages(builder)
                return builder
            self.say(
                f"τ_a is raised to {coarser:.4g}: with all observations there were over {self.most_nodes:,} nodes."
            )
            bar.reset()
            tau_a = coarser

    def _consolidated(self, builder: Builder) -> Builder:
        """Return the same nodes, each with the medoid of its observations."""
        times = self.rows.episodes[self.chosen] if self.rows.walks else None
        given = Given(np.arange(len(self.chosen)), times, None, self.rows.walks, self.rows.steps[self.chosen])
        held = self.buffer.embeddings, builder.nodes.assignment.values
        return rebuilt(builder.settings, self.buffer, None, given, *held, least=1)

    def _weigh_passages(self, builder: Builder) -> None:
        """Set the weights of edges in time to the distance, at most MaxDist, if that is more than an episode took.

        An episode goes in one step from the last observation of a node to the first of the next, but the observations
        that the two nodes keep are further apart; plans that add up single steps are several times too short. The
        observations of a node are within about τ_a, half of MaxDist: if the distance is above MaxDist, or clipped, it
        contradicts the episode.
        """
        graph, nodes, longest = builder.graph, builder.nodes.embedding, builder.settings.max_dist
        edges = np.flatnonzero(graph.temporal.values > 0)
        if not len(edges):
            return
        steps = paired(self.distance, nodes[graph.source.values[edges]], nodes[graph.target.values[edges]])
        took = graph.temporal.values[edges]
        far = steps > longest
        weights = np.maximum(took, np.where(far, math.floor(longest), np.ceil(steps)))
        graph.set_temporal(edges, np.minimum(weights, MOST_BETWEEN).astype(np.uint8))
        self._explain_passages(far, took > longest, weights > MOST_BETWEEN, longest)

    def _explain_passages(self, far: Bools, slow: Bools, cut: Bools, longest: float) -> None:
        """Report which of the (m,) edges in time have another weight than the distance of their ends."""
        if far.any():
            self.say(
                f"{far.sum():,} of {len(far):,} edges in time count as MaxDist: their distance is longer, but an "
                "episode went along them."
            )
        if slow.any():
            self.say(
                f"{slow.sum():,} edges in time are longer than MaxDist, {longest:.4g}: the recorded observations that "
                "they join are more steps apart."
            )
        if cut.any():
            self.say(f"{cut.sum():,} edges in time count as {MOST_BETWEEN} steps, the most that a memory keeps.")
