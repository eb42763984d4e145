"""Routers: between which nodes to plan, and which waypoints are next; both by the memory's own planner."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError, NoPath
from sgm.memory.settings import whole

from .localise import Bools, Ints, Odometry

if TYPE_CHECKING:
    from .navigator import Navigator

NOWHERE = -1


@dataclasses.dataclass
class NearestPair:
    """Plans between the nodes nearest to start and goal, and asks for the next waypoint when one is reached (SGM).

    Edges that other episodes have removed meanwhile are never followed.

    Attributes:
        by: what plans minimise: "distance" or "hops".
        within: how far start and goal may be attached, steps; see `SparseGraphicalMemory.plan`.
        candidates: what they are attached to: the "nearest" nodes (SGM) or "all" within reach (SoRB).
    """

    by: str = "distance"
    within: float | None = math.inf
    candidates: str = "nearest"
    ahead = 0  # waypoints looked at beyond the next one
    live = True  # the next waypoint is looked up when one is reached, not when the plan is made

    def __post_init__(self) -> None:
        """Check the names."""
        if self.by not in ("distance", "hops"):
            raise InputError(f"by is {self.by!r}: expected 'distance' or 'hops'")
        if self.candidates not in ("nearest", "all"):
            raise InputError(f"candidates is {self.candidates!r}: expected 'nearest' or 'all'")

    def bind(self, agent: Navigator) -> None:
        """Route the robots of this agent."""
        self._agent = agent

    def reset(self, episodes: int) -> None:
        """Plan nothing yet in so many episodes."""

    def forget(self, episode: int) -> None:
        """Forget what was tried in this episode."""

    def failed(self, episode: int, edge: tuple[int, int] | None) -> None:
        """Take note that an edge was not passed, or, without one, that the goal was not at the goal's node."""

    def visit(self, active: Bools) -> None:
        """Take note of where the robots are."""

    def plan(self, rows: Ints, goals: Any, goal_nodes: Ints | None) -> tuple[Ints, Ints]:
        """(m,) start nodes and (m,) goal nodes for these rows of the batch; −1 and −1 where there is no path."""
        agent = self._agent
        to_nodes = agent.localiser.to_nodes(rows)
        ends = agent.localiser.from_nodes(np.asarray(goals)[rows]) if goal_nodes is None else goal_nodes[rows]
        start, goal = agent.memory.attach(to_nodes, ends, by=self.by, within=self.within, candidates=self.candidates)
        if self.candidates == "nearest":
            nearest = ends.argmin(axis=1) if ends.ndim == 2 else ends
            agent.passed_over[rows] = (start != to_nodes.argmin(axis=1)) | (goal != nearest)
        return start, goal

    def coming(self, rows: Ints) -> Ints:
        """(m, a) the next waypoints of these rows."""
        return self._agent.waypoint[rows][:, None]

    def next(self, rows: Ints, passed: Ints) -> Ints:
        """(m,) the waypoints after the last one reached, `passed` places on; −1 where the way is cut off."""
        agent = self._agent
        return agent.memory.next_nodes(agent.waypoint[rows], agent.goal_node[rows], by=self.by)

    def path(self, episode: int) -> Ints:
        """The nodes of an episode's plan on the graph as it stands; empty without one."""
        agent = self._agent
        try:
            return agent.memory.plan_nodes(agent.start_node[episode], agent.goal_node[episode], by=self.by).nodes
        except NoPath:
            return np.empty(0, np.int64)


@dataclasses.dataclass
class RankedGoals(NearestPair):
    """Plans to the best of several nodes near the goal, from where the robot most likely is, and follows that path.

    What failed in an episode costs more for the rest of it, and a node where the goal turned out not to be is not
    tried again.

    Attributes:
        ahead: waypoints looked at beyond the next one: the farthest that is reached counts.
        penalty: steps added to the price of an edge each time it fails in an episode; 0: the episode forgets.
        tries: nodes near the goal that are tried in turn.
    """

    ahead: int = 6
    penalty: float = 20.0
    tries: int = 8
    live = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        self.tries = whole("tries", self.tries, 1)
        if self.ahead < 0:
            raise InputError(f"ahead is {self.ahead!r}: expected a number of waypoints, 0 or more")

    @property
    def _positions(self) -> NDArray[np.float32] | None:
        """(V, 2) where nodes are, if odometry knows it."""
        localiser = self._agent.localiser
        return localiser.places[:, :2] if isinstance(localiser, Odometry) else None

    def reset(self, episodes: int) -> None:
        """Plan nothing yet in so many episodes."""
        self.paths: list[Ints] = [np.empty(0, np.int64)] * episodes
        self.place = np.zeros(episodes, np.int64)
        self._coming = np.zeros((episodes, self.ahead + 1), np.int64)
        self._raised: list[dict[tuple[int, int], float]] = [{} for _ in range(episodes)]
        self._ruled_out: list[set[int]] = [set() for _ in range(episodes)]
        self._goals: list[Ints | None] = [None] * episodes

    def forget(self, episode: int) -> None:
        """Forget what was tried in this episode."""
        self._raised[episode], self._ruled_out[episode], self._goals[episode] = {}, set(), None

    def failed(self, episode: int, edge: tuple[int, int] | None) -> None:
        """Raise the price of an edge that was not passed, or rule out a goal's node where the goal was not."""
        if edge is None:
            self._ruled_out[episode].add(int(self._agent.goal_node[episode]))
        elif self.penalty:
            self._raised[episode][edge] = self._raised[episode].get(edge, 0.0) + self.penalty

    def visit(self, active: Bools) -> None:
        """Rule out nodes near the goal where the robot is now: the goal is not there, since the episode goes on."""
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
        """Start and goal nodes; the paths between them are kept."""
        beliefs = self._agent.localiser.belief(rows)
        ends = np.full((len(rows), 2), NOWHERE)
        for number, (episode, belief) in enumerate(zip(rows.tolist(), beliefs, strict=True)):
            if self._goals[episode] is None:
                own = None if goal_nodes is None else goal_nodes[episode : episode + 1]
                self._goals[episode] = self._rank(goals[episode]) if own is None else own
            ends[number] = self._plan_one(episode, belief, self._goals[episode])
            self._agent.passed_over[episode] = ends[number, 0] != belief.argmax()
        return ends[:, 0], ends[:, 1]

    def coming(self, rows: Ints) -> Ints:
        """(m, ahead + 1) the next waypoints; the last one fills up what is left."""
        return self._coming[rows]

    def next(self, rows: Ints, passed: Ints) -> Ints:
        """(m,) the waypoints after the last one reached."""
        self.place[rows] += passed
        for episode in rows.tolist():
            self._look_ahead(episode)
        return self._coming[rows, 0]

    def path(self, episode: int) -> Ints:
        """The nodes of an episode's plan as it was made."""
        return self.paths[episode]

    def _plan_one(self, episode: int, belief: NDArray[Any], order: Ints) -> tuple[int, int]:
        left = [int(node) for node in order if int(node) not in self._ruled_out[episode]] or order[:1].tolist()
        for goal in left:
            routes = self._agent.memory.routes_to(goal, by=self.by, raised=self._raised[episode])
            start = int(np.where(np.isfinite(routes.cost), belief, -np.inf).argmax())
            if np.isfinite(routes.cost).sum() > 1 or self._goes_alone(goal, belief, len(left)):
                nodes = [start]
                while nodes[-1] != goal:
                    nodes.append(int(routes.next[nodes[-1]]))
                self.paths[episode], self.place[episode] = np.array(nodes), 0
                self._look_ahead(episode)
                return start, goal
        return NOWHERE, left[0]

    def _goes_alone(self, goal: int, belief: NDArray[Any], left: int) -> bool:
        """Whether to go for a node that no other one leads to; with odometry only from there, or through walls."""
        return left == 1 if self._positions is None else int(belief.argmax()) == goal

    def _rank(self, goal: Any) -> Ints:
        """The nodes to try for a goal; with odometry none of them within the radius of a nearer one."""
        steps = self._agent.localiser.from_nodes(np.asarray(goal)[None])[0]
        order = np.argsort(steps, kind="stable")
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
        return np.array(chosen)

    def _look_ahead(self, episode: int) -> None:
        path, place = self.paths[episode], self.place[episode]
        coming = path[place : place + self.ahead + 1]
        self._coming[episode, : len(coming)], self._coming[episode, len(coming) :] = coming, path[-1]


ROUTERS = {"nearest": NearestPair, "ranked": RankedGoals}
