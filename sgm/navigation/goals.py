"""Where cleanup sends its robots: to nodes drawn at random, or over the doubtful edges that many plans use."""

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

TREE_NODES = 1 << 21  # in all trees of a survey together, at most: bounds its time and memory on large graphs
CLAIMED = 1e-3  # of its worth is what an edge on one robot's plan is worth to the others
LEAST = 1e-100  # worth that is not made less by claims, so that it does not vanish where many robots share few edges


def count(observations: Any) -> int:
    """How many robots these observations, an array or a dict of arrays, are of."""
    while isinstance(observations, Mapping):
        observations = next(iter(observations.values()))
    return len(observations)


class Goals(Protocol):
    """Whatever sets the goals of cleanup."""

    def draw(self, navigator: Navigator, random: np.random.Generator, observations: Any) -> Ints:
        """Goal nodes, (n,), for robots that begin an episode where they see these (n, ...) observations."""
        ...


class RandomGoals:
    """The paper's goals (Sec. 4.3): every node is as likely as any other."""

    def draw(self, navigator: Navigator, random: np.random.Generator, observations: Any) -> Ints:
        """One node for each robot, wherever it is."""
        return random.integers(len(navigator.memory), size=count(observations))


class ActiveGoals:
    """Goals whose plans run over the doubtful edges that most shortest paths use. Not in the paper.

    An edge is worth its doubt times its use, see `Survey`. Of a sample of goals a robot gets the one whose plan, from
    the node nearest to the robot, has the most worth per step. What is on one robot's plan is worth next to nothing to
    the others, so that they spread. A robot that is cut off from all of these goals gets the far end of a doubtful
    edge.

    Late edges of a plan count as much as early ones: a robot that fails plans again and goes on.
    """

    def __init__(self, candidates: int = 48, refresh: int | None = None) -> None:
        """Choose goals by surveying the memory from time to time.

        Args:
            candidates: goals to choose among, sampled anew for each survey, which counts use on the plans to them;
                fewer on graphs of more than 40,000 nodes.
            refresh: episodes after which the memory is surveyed again; None: one for every 20 nodes, and at least 32
                and one for each robot.
        """
        self.candidates = whole("candidates", candidates, 1)
        self.refresh = None if refresh is None else whole("refresh", refresh, 1)
        self._survey: Survey | None = None
        self._subject: tuple[Any, ...] = ()
        self._drawn = 0

    def draw(self, navigator: Navigator, random: np.random.Generator, observations: Any) -> Ints:
        """The best goal for each robot in turn."""
        starts = navigator.locate(observations)
        survey = self._current(navigator, random)
        self._drawn += len(starts)
        return np.array([survey.goal_from(int(start), random) for start in starts], np.int64)

    def _current(self, navigator: Navigator, random: np.random.Generator) -> Survey:
        """The last survey, or a new one if it is out of date."""
        memory = navigator.memory
        # Each cleaner has a generator of its own, and its first survey: one that begins anew repeats itself.
        subject = (random, navigator, memory, len(memory), memory.settings)
        lasts = self.refresh or max(32, len(memory) // 20, len(navigator.phase))
        if self._survey is None or subject != self._subject or self._drawn >= lasts:
            self._survey = Survey(navigator, random, self.candidates)
            self._subject, self._drawn = subject, 0
        return self._survey


def doubt(successes: ArrayLike, failures: ArrayLike) -> Floats:
    """How much there is to learn from trying an edge once more.

    The outcome of a try is as uncertain as the variance of Beta(1 + successes, 1 + failures) says; doubt is what one
    more try is expected to take off that. It is 1/36 for an edge that was never tried, and settles with tries.
    """
    a, b = 1.0 + np.asarray(successes, np.float64), 1.0 + np.asarray(failures, np.float64)
    variance = a * b / ((a + b) ** 2 * (a + b + 1.0))
    return np.asarray(variance / (a + b + 1.0))


class Survey:
    """What trying each edge of a memory is worth, and which goals lead there.

    The worth of an edge is its doubt times its use: how many of the plans from every node to a sample of goals run over
    it, an estimate of its betweenness.

    Attributes:
        edges: the E edges that stood at the time.
        use: (E,) float64 plans.
        worth: (E + 1,) float64, less what robots have claimed since; the last is no edge.
        goals: (G,) the sampled goals.
    """

    def __init__(self, navigator: Navigator, random: np.random.Generator, candidates: int) -> None:
        """Survey the memory of `navigator`, whose robots under way keep what is on their plans."""
        self.memory, self.by, self.max_steps = navigator.memory, navigator.router.by, navigator.max_steps
        nodes = len(self.memory)
        self.edges = self.memory.edges()
        self._keys = self.edges.source * nodes + self.edges.target
        self.goals = random.choice(nodes, min(nodes, candidates, max(4, TREE_NODES // nodes)), replace=False)
        # Trees of plans to the goals, as places in a row: G of them, each with V nodes and a place beyond its goal.
        self._roots = np.arange(len(self.goals)) * (nodes + 1)
        self._leads = self._trees()
        self._weight = np.append(self.edges.weight, 0.0)
        self._target = np.append(self.edges.target, nodes)
        self.use = self._count_plans()
        self.worth = np.append(doubt(*self._evidence()) * self.use, 0.0)
        for robot in np.flatnonzero(navigator.phase == FOLLOWING):
            self._claim(self._along(navigator.path(int(robot))))

    def goal_from(self, start: int, random: np.random.Generator) -> int:
        """A goal for a robot at the node `start`."""
        goal = self.best_goal(start)
        return self.doubtful_goal(random) if goal == NOWHERE else goal

    def best_goal(self, start: int) -> int:
        """The goal with the most worth per step on the way to it from `start`, claimed; −1 if there is none."""
        most, goal, way = 0.0, NOWHERE, np.empty(0, np.int64)
        expected = self._expected(start)
        # Edges may be gone since the survey, so what is best by its trees is compared with the plans of now.
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
        """The target of an edge that stands, drawn by worth and claimed; any node if no edge is worth a try."""
        while (total := self.worth.sum()) > 0:
            edge = random.choice(len(self.worth), p=self.worth / total)
            source, target = int(self.edges.source[edge]), int(self.edges.target[edge])
            if self.memory.evidence(source, target).removed_at is None:
                self._claim(np.array([edge]))
                return target
            self.worth[edge] = 0.0
        return int(random.integers(len(self.memory)))

    def _claim(self, edges: Ints) -> None:
        """Leave little of the worth of edges that a robot is about to try, however many share them."""
        self.worth[edges] *= np.where(self.worth[edges] > LEAST, CLAIMED, 1.0)

    def _rate(self, worth: ArrayLike, steps: ArrayLike) -> Floats:
        """Worth per step; every plan is charged a failed try, lest the shortest win for being short."""
        return np.asarray(np.asarray(worth) / (np.asarray(steps) + self.max_steps), np.float64)

    def _expected(self, start: int) -> Floats:
        """(G,) worth per step of the ways to all goals, by the trees of the survey; 0 where there is none."""
        worth, steps = np.zeros((2, len(self.goals)))
        edge = self._leads[self._roots + start]
        while edge.max() >= 0:
            worth += self.worth[edge]
            steps += self._weight[edge]
            edge = self._leads[self._roots + self._target[edge]]
        return self._rate(worth, steps)

    def _plan(self, start: int, goal: int) -> Ints:
        """The edges that a robot would follow now."""
        try:
            return self._along(self.memory.plan_nodes(start, goal, by=self.by).nodes)
        except NoPath:
            return np.empty(0, np.int64)

    def _along(self, nodes: Ints) -> Ints:
        """The edges of a path, without those that are new since the survey."""
        edges = self._find(nodes[:-1], nodes[1:])
        return edges[edges >= 0]

    def _find(self, source: Ints, target: Ints) -> Ints:
        """The edges between nodes; −1 where there is none, or no target."""
        keys = np.where(target < 0, -1, source * len(self.memory) + target)
        place = np.searchsorted(self._keys, keys)
        return np.where(np.append(self._keys, -2)[place] == keys, place, -1)

    def _evidence(self) -> tuple[Floats, Floats]:
        """(E,) successes and (E,) failures."""
        tried = self.memory.tried()
        ends = np.array(list(tried), np.int64).reshape(-1, 2)
        known = np.array([(item.successes, item.failures) for item in tried.values()], np.float64).reshape(-1, 2)
        found = self._find(ends[:, 0], ends[:, 1])
        counts = np.zeros((2, len(self._keys)))
        counts[:, found[found >= 0]] = known[found >= 0].T
        return counts[0], counts[1]

    def _trees(self) -> Ints:
        """(G · (V + 1),) the edge that leads on from each place; −1 at a goal, beyond it and where there is no path."""
        nodes = np.arange(len(self.memory))
        leads = np.full((len(self.goals), len(nodes) + 1), -1)
        for row, goal in zip(leads, self.goals, strict=True):
            row[:-1] = self._find(nodes, self.memory.next_nodes(nodes, np.full(len(nodes), goal), by=self.by))
            row[goal] = -1
        return leads.ravel()

    def _count_plans(self) -> Floats:
        """(E,) how many plans run over each edge.

        In round r each place hands the plans that have come to it to the place 2^r edges on, so that all are counted
        after as many rounds as the longest plan has binary digits.
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
    """Goals from their name, or the object itself."""
    if isinstance(goals, str) and goals in GOALS:
        return GOALS[goals]()
    if isinstance(goals, (str, type)) or not callable(getattr(goals, "draw", None)):
        raise InputError(
            f"goals is {goals!r}: expected {', '.join(map(repr, GOALS))} or an object with draw(navigator, random, "
            "observations), such as ActiveGoals(refresh=100)"
        )
    return goals
