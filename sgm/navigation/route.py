"""Routers: choose the nodes to plan between, and the next waypoints, with the planner of the memory."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError, NoPath
from sgm.memory import Tree
from sgm.memory.settings import whole

from .failures import Edge, Failures
from .localise import BayesFilter, Bools, Floats, Ints

if TYPE_CHECKING:
    from .navigator import Navigator

NOWHERE = -1
PENALTY = 20.0  # default penalty, steps added to the cost of a failed edge for the rest of an episode


@dataclasses.dataclass
class NearestPair:
    """Plans between the nodes nearest to start and goal, and looks up the next waypoint when one is reached (SGM).

    Edges that other episodes have removed in the meantime are never followed. Failures of an episode are avoided for
    the rest of it (`Navigator(removals=..., first_leg=...)`), unless there is no other path.

    Attributes:
        by: the cost that plans minimise: "distance" or "hops".
        within: largest distance at which start and goal may be attached to a node, steps; see
            `SparseGraphicalMemory.plan`. "auto": to any node whose distance is not clipped, see `NearestNode.ceiling`;
            if all distances are clipped, there is no path.
        candidates: the nodes to which they may be attached: the "nearest" (SGM) or "all" within reach (SoRB).
    """

    by: str = "distance"
    within: float | str | None = "auto"
    candidates: str = "nearest"
    ahead = 0  # number of waypoints tested beyond the next one
    live = True  # the next waypoint is looked up when one is reached, not when the plan is made

    def __post_init__(self) -> None:
        """Check the names."""
        if self.by not in ("distance", "hops"):
            raise InputError(f"by is {self.by!r}: expected 'distance' or 'hops'")
        if self.candidates not in ("nearest", "all"):
            raise InputError(f"candidates is {self.candidates!r}: expected 'nearest' or 'all'")
        if isinstance(self.within, str) and self.within != "auto":
            raise InputError(f"within is {self.within!r}: expected a number of steps, None or 'auto'")

    def bind(self, agent: Navigator) -> None:
        """Route the robots of this agent."""
        self._agent = agent

    def reset(self, episodes: int) -> None:
        """Begin `episodes` new episodes."""
        self._failures = [Failures() for _ in range(episodes)]
        self._trees: list[Tree | None] = [None] * episodes  # own trees of episodes that avoid some edges

    def forget(self, episode: int) -> None:
        """Begin a new episode in this row."""
        self._failures[episode], self._trees[episode] = Failures(), None

    def failed(self, episode: int, edge: Edge | None) -> None:
        """Note that the target of an edge was not reached, or (None) that the goal was not reached from its node."""
        if not self._agent.removes:
            return
        if edge is None:
            self._failures[episode].goals.add(int(self._agent.goal_node[episode]))
        else:
            self._failures[episode].edges.add(edge)

    def start_failed(self, episode: int) -> None:
        """Note that the first waypoint was not reached."""
        self._failures[episode].starts.add(int(self._agent.start_node[episode]))

    def passed(self, episode: int) -> None:
        """Note that the robot has passed an edge, so that failed first waypoints may be tried again."""
        self._failures[episode].starts.clear()

    def visit(self, active: Bools) -> None:
        """Note the present positions of the robots."""

    def plan(self, rows: Ints, goals: Any, goal_nodes: Ints | None) -> tuple[Ints, Ints]:
        """Plan for these rows of the batch; return (m,) first nodes and (m,) last nodes, −1 without a path."""
        start, goal = np.full((2, len(rows)), NOWHERE)
        left = self._plan_nearest(rows, goals, goal_nodes, start, goal)
        if len(left):
            start[left], goal[left] = self._plan_ranked(rows[left], goals, goal_nodes)
        return start, goal

    def _plan_nearest(self, rows: Ints, goals: Any, goal_nodes: Ints | None, start: Ints, goal: Ints) -> Ints:
        """Fill in start and goal nodes of rows whose nearest nodes are joined by a path; return the other positions.

        This is cheaper than computing the distances to all nodes.
        """
        agent, every = self._agent, np.arange(len(rows))
        fresh = np.array([not self._failures[episode] for episode in rows.tolist()], np.bool_)
        ready = every[fresh] if self.candidates == "nearest" else every[:0]
        first = agent.localiser.nearest_start(rows[ready]) if len(ready) else None
        if first is None:
            return every
        at = rows[ready]
        last = None if goal_nodes is not None else agent.localiser.nearest_goal(np.asarray(goals)[at])
        ends = goal_nodes[at] if last is None else last.node  # type: ignore[index]
        steps = first.distance if last is None else np.maximum(first.distance, last.distance)
        ceiling = agent.localiser.ceiling if self.within == "auto" else math.inf
        found = (steps < ceiling) & agent.memory.joined(first.node, ends, by=self.by)
        place, episodes = ready[found], at[found]
        start[place], goal[place] = first.node[found], ends[found]
        agent.far_from_nodes[episodes] = first.distance[found] > agent.memory.settings.max_dist
        agent.far_from_goal[episodes] = agent.passed_over[episodes] = False
        for episode in episodes.tolist():
            self._trees[episode] = None
        return np.delete(every, place)

    def _plan_ranked(self, rows: Ints, goals: Any, goal_nodes: Ints | None) -> tuple[Ints, Ints]:
        """Return start and goal nodes from the distances to all nodes, nearest nodes first."""
        agent = self._agent
        to_nodes = self._known(agent.localiser.start_steps(rows))
        ends: NDArray[Any]
        if goal_nodes is None:
            ends = self._known(agent.localiser.from_nodes(np.asarray(goals)[rows]))
        else:
            ends = goal_nodes[rows]
        ready = self._note_far(rows, to_nodes, ends)
        again = np.array([bool(self._failures[episode]) for episode in rows.tolist()], np.bool_)
        start, goal = np.full((2, len(rows)), NOWHERE)
        first = ready & ~again
        if first.any():
            start[first], goal[first] = self._attach(to_nodes[first], ends[first])
        for place in np.flatnonzero(ready & again).tolist():
            start[place], goal[place] = self._attach_again(int(rows[place]), to_nodes[place], ends[place])
        if self.candidates == "nearest":
            nearest = ends.argmin(axis=1) if ends.ndim == 2 else ends
            agent.passed_over[rows] = ready & ~again & ((start != to_nodes.argmin(axis=1)) | (goal != nearest))
        for episode, tried in zip(rows.tolist(), again.tolist(), strict=True):
            if not tried:
                self._trees[episode] = None
        self._note_beyond_reach(rows)
        return start, goal

    def coming(self, rows: Ints) -> Ints:
        """(m, a) next waypoints of these rows."""
        return self._agent.waypoint[rows][:, None]

    def next(self, rows: Ints, passed: Ints) -> Ints:
        """(m,) waypoints after the last one reached, `passed` nodes further on; −1 if the path is cut."""
        agent = self._agent
        own = [self._trees[episode] for episode in rows.tolist()]
        shared = np.array([tree is None for tree in own], np.bool_)
        following = np.full(len(rows), NOWHERE)
        if shared.any():
            at = rows[shared]
            following[shared] = agent.memory.next_nodes(agent.waypoint[at], agent.goal_node[at], by=self.by)
        for place, tree in enumerate(own):
            if tree is not None:
                following[place] = max(int(tree.next[agent.waypoint[rows[place]]]), NOWHERE)
        return following

    def path(self, episode: int) -> Ints:
        """Return the nodes of the plan of an episode on the present graph; empty without a path."""
        agent, tree = self._agent, self._trees[episode]
        start, goal = int(agent.start_node[episode]), int(agent.goal_node[episode])
        if tree is not None:
            return follow(tree, start, goal)
        try:
            return agent.memory.plan_nodes(start, goal, by=self.by).nodes
        except NoPath:
            return np.empty(0, np.int64)

    def _known(self, steps: Floats) -> Floats:
        """(m, V) steps, infinite where the distance is clipped."""
        ceiling = self._agent.localiser.ceiling if self.within == "auto" else math.inf
        return steps if ceiling == math.inf else np.where(steps < ceiling, steps, np.float32(np.inf))

    def _note_far(self, rows: Ints, to_nodes: NDArray[Any], ends: NDArray[Any]) -> Bools:
        """(m,) bool: rows whose start and goal are near some node; also sets the flags of the agent."""
        near = to_nodes.min(axis=1) < np.inf
        near_goal = ends.min(axis=1) < np.inf if ends.ndim == 2 else np.ones(len(rows), np.bool_)
        self._agent.far_from_nodes[rows], self._agent.far_from_goal[rows] = ~near, ~near_goal
        ready: Bools = near & near_goal
        return ready

    def _note_beyond_reach(self, rows: Ints) -> None:
        """Set the flag of the agent for robots that are farther than MaxDist from every node."""
        agent = self._agent
        agent.far_from_nodes[rows] |= agent.localiser.to_nodes(rows).min(axis=1) > agent.memory.settings.max_dist

    def _attach(self, to_nodes: Floats, ends: NDArray[Any], failures: Failures | None = None) -> tuple[Ints, Ints]:
        within = math.inf if isinstance(self.within, str) else self.within
        if failures is not None and within is not None and within > self._agent.memory.settings.max_dist:
            within = None  # trying a failed edge again is better than heading straight for a far node
        without = () if failures is None else failures.edges
        how: dict[str, Any] = {"by": self.by, "within": within, "candidates": self.candidates}
        return self._agent.memory.attach(to_nodes, ends, without=without, **how)

    def _attach_again(self, episode: int, to_nodes: Floats, ends: NDArray[Any]) -> tuple[int, int]:
        """Return start and goal node in an episode with failures, which are avoided if there is another path."""
        failures = self._failures[episode]
        while True:
            start, goal = self._attach_without(failures, to_nodes, ends)
            if start != NOWHERE or not failures.forgive():
                break
        raised = dict.fromkeys(failures.edges, math.inf)
        own = raised and start != NOWHERE
        self._trees[episode] = self._agent.memory.routes_to(goal, by=self.by, raised=raised) if own else None
        return start, goal

    def _attach_without(self, failures: Failures, to_nodes: Floats, ends: NDArray[Any]) -> tuple[int, int]:
        to_nodes, ends = _ruled_out(to_nodes, failures.starts), _ruled_out(ends, failures.goals)
        if not np.isfinite(to_nodes).any() or (ends.ndim and not np.isfinite(ends).any()):
            return NOWHERE, NOWHERE
        start, goal = self._attach(to_nodes[None], ends[None], failures)
        return int(start[0]), int(goal[0])


def _ruled_out(steps: NDArray[Any], nodes: set[int]) -> NDArray[Any]:
    """Return (V,) steps, infinite for these nodes; a goal that is a node is returned as it is."""
    if not nodes or not steps.ndim:
        return steps
    steps = steps.copy()
    steps[list(nodes)] = np.inf
    return steps


def follow(tree: Tree, start: int, goal: int) -> Ints:
    """Return the nodes from start to goal on a tree that contains the path."""
    nodes = [start]
    while nodes[-1] != goal:
        nodes.append(int(tree.next[nodes[-1]]))
    return np.array(nodes)


@dataclasses.dataclass
class RankedGoals(NearestPair):
    """Plans from the most likely node of the robot to several nodes near the goal in turn, and follows the path.

    A failed edge is avoided for the rest of the episode, or costs more (`penalty`), and a node from which the goal was
    not reached is not tried again.

    Attributes:
        ahead: number of waypoints tested beyond the next one; the farthest one reached counts.
        penalty: steps added to the cost of an edge each time it fails in an episode; 0: no penalty. None: the edge is
            not used again in the episode if the agent has removals="episode", otherwise 20.
        tries: number of nodes near the goal that are tried in turn.
    """

    ahead: int = 6
    penalty: float | None = None
    tries: int = 8
    live = False

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        self.tries = whole("tries", self.tries, 1)
        if self.ahead < 0:
            raise InputError(f"ahead is {self.ahead!r}: expected a number of waypoints, 0 or more")

    @property
    def _positions(self) -> NDArray[np.float32] | None:
        """(V, 2) positions of nodes by odometry; None without odometry."""
        localiser = self._agent.localiser
        return localiser.places[:, :2] if localiser.by_odometry else None

    def reset(self, episodes: int) -> None:
        """Begin `episodes` new episodes."""
        super().reset(episodes)
        self.paths: list[Ints] = [np.empty(0, np.int64)] * episodes
        self.place = np.zeros(episodes, np.int64)
        self._coming = np.zeros((episodes, self.ahead + 1), np.int64)
        self._raised: list[dict[tuple[int, int], float]] = [{} for _ in range(episodes)]
        self._ruled_out: list[set[int]] = [set() for _ in range(episodes)]
        self._goals: list[Ints | None] = [None] * episodes

    def forget(self, episode: int) -> None:
        """Begin a new episode in this row."""
        super().forget(episode)
        self._raised[episode], self._ruled_out[episode], self._goals[episode] = {}, set(), None

    def failed(self, episode: int, edge: tuple[int, int] | None) -> None:
        """Penalise an edge whose target was not reached, or (None) rule out the node from which the goal was not."""
        if edge is None:
            self._ruled_out[episode].add(int(self._agent.goal_node[episode]))
        elif self.penalty is None and self._agent.removes:
            self._failures[episode].edges.add(edge)
        elif penalty := PENALTY if self.penalty is None else self.penalty:
            self._raised[episode][edge] = self._raised[episode].get(edge, 0.0) + penalty

    def visit(self, active: Bools) -> None:
        """Rule out nodes near the goal that the robot visits: the goal is not there, since the episode continues."""
        places = self._positions
        if self.tries == 1 or places is None:
            return
        here = np.asarray(self._agent.acted_on)
        for episode in np.flatnonzero(active).tolist():
            order = self._goals[episode]
            if order is not None and len(order) > 1:
                gaps = np.hypot(*(places[order] - here[episode, :2]).T)
                self._ruled_out[episode].update(order[gaps < self._agent.arrival.radius].tolist())

    def plan(self, rows: Ints, goals: Any, goal_nodes: Ints | None) -> tuple[Ints, Ints]:
        """Return start and goal nodes; the paths between them are stored."""
        beliefs = self._agent.localiser.belief(rows)
        allowed = self._near_enough(rows)
        ends = np.full((len(rows), 2), NOWHERE)
        for number, (episode, belief) in enumerate(zip(rows.tolist(), beliefs, strict=True)):
            if self._goals[episode] is None:
                own = None if goal_nodes is None else goal_nodes[episode : episode + 1]
                self._goals[episode] = self._rank(goals[episode]) if own is None else own
            order = self._goals[episode]
            near, near_goal = bool(allowed[number].any()), len(order) > 0
            self._agent.far_from_nodes[episode], self._agent.far_from_goal[episode] = not near, not near_goal
            if near and near_goal:
                ends[number] = self._plan_again(episode, belief, allowed[number], order)
                self._agent.passed_over[episode] = ends[number, 0] != belief.argmax()
        self._note_beyond_reach(rows)
        return ends[:, 0], ends[:, 1]

    def coming(self, rows: Ints) -> Ints:
        """(m, ahead + 1) next waypoints, padded with the last one."""
        return self._coming[rows]

    def next(self, rows: Ints, passed: Ints) -> Ints:
        """(m,) waypoints after the last one reached."""
        self.place[rows] += passed
        for episode in rows.tolist():
            self._look_ahead(episode)
        return self._coming[rows, 0]

    def path(self, episode: int) -> Ints:
        """Return the nodes of the plan of an episode as it was made."""
        return self.paths[episode]

    def _near_enough(self, rows: Ints) -> NDArray[np.bool_]:
        """(m, V) bool: nodes where plans may begin; with a filter, any node, since it uses more than one distance."""
        localiser, nodes = self._agent.localiser, len(self._agent.memory)
        if self.within != "auto" or isinstance(localiser, BayesFilter) or localiser.ceiling == math.inf:
            return np.ones((len(rows), nodes), np.bool_)
        return np.isfinite(self._known(localiser.to_nodes(rows)))

    def _plan_again(self, episode: int, belief: NDArray[Any], allowed: Bools, order: Ints) -> tuple[int, int]:
        """Plan in an episode; failures are avoided if there is another path."""
        failures = self._failures[episode]
        while True:
            left = allowed.copy()
            left[list(failures.starts)] = False
            ends = self._plan_one(episode, belief, left, order)
            if ends[0] != NOWHERE or not failures.forgive():
                return ends

    def _plan_one(self, episode: int, belief: NDArray[Any], allowed: Bools, order: Ints) -> tuple[int, int]:
        left = [int(node) for node in order if int(node) not in self._ruled_out[episode]] or order[:1].tolist()
        raised = {**self._raised[episode], **dict.fromkeys(self._failures[episode].edges, math.inf)}
        for goal in left:
            routes = self._agent.memory.routes_to(goal, by=self.by, raised=raised)
            begins = np.isfinite(routes.cost) & allowed
            start = int(np.where(begins, belief, -np.inf).argmax())
            joined = np.isfinite(routes.cost).sum() > 1 or self._goes_alone(goal, belief, len(left))
            if joined and begins[start]:
                self.paths[episode], self.place[episode] = follow(routes, start, goal), 0
                self._look_ahead(episode)
                return start, goal
        return NOWHERE, left[0]

    def _goes_alone(self, goal: int, belief: NDArray[Any], left: int) -> bool:
        """Whether to head for a node to which no other node leads; with odometry only if the robot is there already.

        Otherwise the robot would go straight through walls.
        """
        return left == 1 if self._positions is None else int(belief.argmax()) == goal

    def _rank(self, goal: Any) -> Ints:
        """Return the nodes to try for a goal, nearest first; with odometry none within the radius of a nearer one."""
        steps = self._known(self._agent.localiser.from_nodes(np.asarray(goal)[None]))[0]
        order = np.argsort(steps, kind="stable")
        order = order[np.isfinite(steps[order])]
        places = self._positions
        if places is None:
            return order[: self.tries]
        chosen: list[int] = []
        for node in order.tolist():
            gaps = places[chosen] - places[node]
            if not (np.square(gaps).sum(axis=1) < self._agent.arrival.radius**2).any():
                chosen.append(node)
            if len(chosen) == self.tries:
                break
        return np.array(chosen, np.int64)

    def _look_ahead(self, episode: int) -> None:
        path, place = self.paths[episode], self.place[episode]
        coming = path[place : place + self.ahead + 1]
        self._coming[episode, : len(coming)], self._coming[episode, len(coming) :] = coming, path[-1]


ROUTERS = {"nearest": NearestPair, "ranked": RankedGoals}
