"""Goals of cleanup: nodes drawn at random, or goals whose plans use doubtful edges that many plans need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.memory import InputError, NoPath
from sgm.memory.settings import whole

from .localise import Ints
from .navigator import FOLLOWING, NOWHERE, Navigator

Floats = NDArray[np.float64]

TREE_NODES = 1 << 21  # most nodes in all trees of a survey, which bounds its time and RAM on large graphs
CLAIMED = 1e-3  # factor on the worth of an edge on the plan of one robot, for the other robots
LEAST = 1e-100  # worth below which claims change nothing, so that it does not vanish if many robots share few edges


def count(observations: Any) -> int:
    """Number of robots in a batch of observations, an array or a dict of arrays."""
    while isinstance(observations, Mapping):
        observations = next(iter(observations.values()))
    return len(observations)


class Goals(Protocol):
    """Draws the goals of cleanup."""

    def draw(self, navigator: Navigator, random: np.random.Generator, observations: Any) -> Ints:
        """Draw (n,) goal nodes for robots that begin an episode with (n, ...) observations."""
        ...


class RandomGoals:
    """The goals of the paper (Sec. 4.3): nodes drawn uniformly."""

    def draw(self, navigator: Navigator, random: np.random.Generator, observations: Any) -> Ints:
        """Draw one node for each robot, independent of its position."""
        return random.integers(len(navigator.memory), size=count(observations))


class ActiveGoals:
    """Goals whose plans use doubtful edges that many shortest paths need. Not in the paper.

    The worth of an edge is its doubt times its use, see `Survey`. Of a sample of goals a robot gets the one whose plan,
    from the node nearest to the robot, has the most worth per step. Edges on the plan of one robot are worth next to
    nothing to the others, so that the robots spread. A robot without a path to any of these goals gets the target of a
    doubtful edge.

    Late edges of a plan count as much as early ones, because a robot that fails plans again and continues.
    """

    def __init__(self, candidates: int = 48, refresh: int | None = None) -> None:
        """Choose goals by a survey of the memory, which is repeated from time to time.

        Args:
            candidates: number of goals to choose from, sampled again for each survey; the survey counts the use of
                edges on the plans to them. There are fewer on graphs of more than 40,000 nodes.
            refresh: number of episodes after which the memory is surveyed again; None: one for every 20 nodes, at least
                32, and at least one for each robot.
        """
        self.candidates = whole("candidates", candidates, 1)
        self.refresh = None if refresh is None else whole("refresh", refresh, 1)
        self._survey: Survey | None = None
        self._subject: tuple[Any, ...] = ()
        self._drawn = 0

    def draw(self, navigator: Navigator, random: np.random.Generator, observations: Any) -> Ints:
        """Choose the best goal for each robot in turn."""
        starts = navigator.locate(observations)
        survey = self._current(navigator, random)
        self._drawn += len(starts)
        return np.array([survey.goal_from(int(start), random) for start in starts], np.int64)

    def _current(self, navigator: Navigator, random: np.random.Generator) -> Survey:
        """Return the last survey, or a new one if it is out of date."""
        memory = navigator.memory
        # Each cleaner has its own generator, and begins with a new survey, so that its results are reproducible.
        subject = (random, navigator, memory, len(memory), memory.settings)
        lasts = self.refresh or max(32, len(memory) // 20, len(navigator.phase))
        if self._survey is None or subject != self._subject or self._drawn >= lasts:
            self._survey = Survey(navigator, random, self.candidates)
            self._subject, self._drawn = subject, 0
        return self._survey


def doubt(successes: ArrayLike, failures: ArrayLike) -> Floats:
    """Expected reduction of uncertainty by one more try of an edge.

    The uncertainty is the variance of Beta(1 + successes, 1 + failures); doubt is its expected decrease by one more
    try. It is 1/36 for an edge that was never tried, and decreases with tries.
    """
    a, b = 1.0 + np.asarray(successes, np.float64), 1.0 + np.asarray(failures, np.float64)
    variance = a * b / ((a + b) ** 2 * (a + b + 1.0))
    return np.asarray(variance / (a + b + 1.0))


class Survey:
    """The worth of trying each edge of a memory, and the goals whose plans use these edges.

    The worth of an edge is its doubt times its use. The use is the number of plans from all nodes to a sample of goals
    that contain the edge, an estimate of its betweenness.

    Attributes:
        edges: the E edges that plans could use at the time of the survey.
        use: (E,) float64 number of plans.
        worth: (E + 1,) float64 worth, lowered for edges that robots have claimed since; the last entry is no edge.
        goals: (G,) the sampled goals.
    """

    def __init__(self, navigator: Navigator, random: np.random.Generator, candidates: int) -> None:
        """Survey the memory of `navigator`; the edges on the present plans of its robots are claimed."""
        self.memory, self.by, self.max_steps = navigator.memory, navigator.router.by, navigator.max_steps
        nodes = len(self.memory)
        self.edges = self.memory.edges()
        self._keys = self.edges.source * nodes + self.edges.target
        self.goals = random.choice(nodes, min(nodes, candidates, max(4, TREE_NODES // nodes)), replace=False)
        # Trees of plans to the G goals in one array, each with V nodes and one place beyond its goal.
        self._roots = np.arange(len(self.goals)) * (nodes + 1)
        self._leads = self._trees()
        self._weight = np.append(self.edges.weight, 0.0)
        self._target = np.append(self.edges.target, nodes)
        self.use = self._count_plans()
        self.worth = np.append(doubt(*self._evidence()) * self.use, 0.0)
        for robot in np.flatnonzero(navigator.phase == FOLLOWING):
            self._claim(self._along(navigator.path(int(robot))))

    def goal_from(self, start: int, random: np.random.Generator) -> int:
        """Choose a goal for a robot at the node `start`."""
        goal = self.best_goal(start)
        return self.doubtful_goal(random) if goal == NOWHERE else goal

    def best_goal(self, start: int) -> int:
        """Choose the goal with the most worth per step on the path from `start`, and claim its edges; −1: none."""
        most, goal, way = 0.0, NOWHERE, np.empty(0, np.int64)
        expected = self._expected(start)
        # Edges may have been removed since the survey, so the best goals by its trees are planned again.
        for place in np.argsort(-expected, kind="stable"):
            if expected[place] <= most:
                break
            edges = self._plan(start, int(self.goals[place]))
            rate = float(self._rate(self.worth[edges].sum(), self._weight[edges].sum()))
            if rate > most:
                most, goal, way = rate, int(self.goals[place]), edges
        self._claim(way)
        return goal

    def doubtful_goal(self, random: np.random.Generator) -> int:
        """Draw an edge in proportion to its worth, claim it, and return its target; any node if no edge has worth."""
        while (total := self.worth.sum()) > 0:
            edge = random.choice(len(self.worth), p=self.worth / total)
            source, target = int(self.edges.source[edge]), int(self.edges.target[edge])
            if self.memory.evidence(source, target).removed_at is None:
                self._claim(np.array([edge]))
                return target
            self.worth[edge] = 0.0
        return int(random.integers(len(self.memory)))

    def _claim(self, edges: Ints) -> None:
        """Lower the worth of edges that a robot is going to try."""
        self.worth[edges] *= np.where(self.worth[edges] > LEAST, CLAIMED, 1.0)

    def _rate(self, worth: ArrayLike, steps: ArrayLike) -> Floats:
        """Worth per step; the steps of a failed try are added to every plan, so that short plans have no advantage."""
        return np.asarray(np.asarray(worth) / (np.asarray(steps) + self.max_steps), np.float64)

    def _expected(self, start: int) -> Floats:
        """(G,) worth per step of the paths to all goals, by the trees of the survey; 0 without a path."""
        worth, steps = np.zeros((2, len(self.goals)))
        edge = self._leads[self._roots + start]
        while edge.max() >= 0:
            worth += self.worth[edge]
            steps += self._weight[edge]
            edge = self._leads[self._roots + self._target[edge]]
        return self._rate(worth, steps)

    def _plan(self, start: int, goal: int) -> Ints:
        """Return the edges of the present plan between two nodes; empty without a path."""
        try:
            return self._along(self.memory.plan_nodes(start, goal, by=self.by).nodes)
        except NoPath:
            return np.empty(0, np.int64)

    def _along(self, nodes: Ints) -> Ints:
        """Return the edges of a path, without those added since the survey."""
        edges = self._find(nodes[:-1], nodes[1:])
        return edges[edges >= 0]

    def _find(self, source: Ints, target: Ints) -> Ints:
        """Return the edges between pairs of nodes; −1 without an edge or a target."""
        keys = np.where(target < 0, -1, source * len(self.memory) + target)
        place = np.searchsorted(self._keys, keys)
        return np.where(np.append(self._keys, -2)[place] == keys, place, -1)

    def _evidence(self) -> tuple[Floats, Floats]:
        """(E,) successes and (E,) failures of the edges."""
        tried = self.memory.tried()
        ends = np.array(list(tried), np.int64).reshape(-1, 2)
        known = np.array([(item.successes, item.failures) for item in tried.values()], np.float64).reshape(-1, 2)
        found = self._find(ends[:, 0], ends[:, 1])
        counts = np.zeros((2, len(self._keys)))
        counts[:, found[found >= 0]] = known[found >= 0].T
        return counts[0], counts[1]

    def _trees(self) -> Ints:
        """(G · (V + 1),) the next edge from each place of the trees; −1 at a goal, beyond it and without a path."""
        nodes = np.arange(len(self.memory))
        leads = np.full((len(self.goals), len(nodes) + 1), -1)
        for row, goal in zip(leads, self.goals, strict=True):
            row[:-1] = self._find(nodes, self.memory.next_nodes(nodes, np.full(len(nodes), goal), by=self.by))
            row[goal] = -1
        return leads.ravel()

    def _count_plans(self) -> Floats:
        """(E,) number of plans that contain each edge.

        In round r each place adds the plans counted so far to the place 2^r edges further on, so that the number of
        rounds is the number of binary digits of the longest plan.
        """
        beyond = len(self._leads)
        onward = np.repeat(self._roots, len(self.memory) + 1) + self._target[self._leads]
        stride = np.append(np.where(self._leads >= 0, onward, beyond), beyond)
        plans = np.ones(beyond + 1)
        while (stride < beyond).any():
            plans[-1] = 0.0
            plans = plans + np.bincount(stride, plans, len(plans))
            stride = stride[stride]
        used = self._leads >= 0
        return np.bincount(self._leads[used], plans[:-1][used], len(self._keys)).astype(np.float64)


GOALS: dict[str, type[RandomGoals] | type[ActiveGoals]] = {"random": RandomGoals, "active": ActiveGoals}


def make_goals(goals: str | Goals) -> Goals:
    """Return the goals of this name; an object is returned as it is."""
    if isinstance(goals, str) and goals in GOALS:
        return GOALS[goals]()
    if isinstance(goals, (str, type)) or not callable(getattr(goals, "draw", None)):
        raise InputError(
            f"goals is {goals!r}: expected {', '.join(map(repr, GOALS))} or an object with draw(navigator, random, "
            "observations), such as ActiveGoals(refresh=100)"
        )
    return goals
