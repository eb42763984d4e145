"""The agent that looks to know where it is, and moves by odometry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.memory import InputError, SparseGraphicalMemory
from sgm.memory.settings import steps

from .navigator import AT_LAST, FOLLOWING, FRESH, LOST, NOWHERE, Bools, Ints
from .visual import Sight, VisualNavigator, record

Look = Callable[[Ints], NDArray[Any]]


class OdometryNavigator(VisualNavigator):
    """Follows plans through a memory of pictures whose nodes know where they were seen.

    It sees only when it has to: at the beginning of an episode and when it plans anew. Between, a waypoint is where
    odometry says that the node was seen, and it is reached when the robot is within `radius` of there. Goals are
    pictures, without odometry. Where the robot takes itself to be when it plans is decided by what it sees alone.

    What was tried without success in an episode is dear (`penalty`), and with `tries` above 1 a node near the goal is
    passed over if the robot has been there and the episode has gone on, see `VisualNavigator`. A waypoint that is
    skipped proves nothing: an edge has worked if both of its ends were reached. A robot that cleans plans anew when
    another one has removed the next edge of its path.
    """

    senses = "odometry"

    def __init__(
        self,
        memory: SparseGraphicalMemory,
        controller: Callable[[Any, Any], NDArray[Any]],
        *,
        places: ArrayLike,
        look: Look,
        max_steps: int = 25,
        radius: float = 0.3,
        ahead: int = 3,
        penalty: float = 0.0,
        tries: int = 1,
        blame: str = "last",
        sight: Sight | None = None,
        clean: bool = False,
    ) -> None:
        """Make an agent.

        Args:
            memory: where to plan.
            controller: (n, o) odometry and (n, p) places to (n, a) actions.
            places: (V, p) odometry of the nodes, x and y first.
            look: (m,) rows of the batch to (m, ...) pictures of what these robots see now.
            max_steps: MaxSteps, the steps given to a waypoint.
            radius: a waypoint within this distance is reached, in the units of odometry.
            ahead: waypoints looked at beyond the next one: the farthest that is within `radius` counts as reached.
            penalty: see `VisualNavigator`; 0: an episode remembers nothing of what failed.
            tries: see `VisualNavigator`; 1: only the node nearest to the goal.
            blame: see `VisualNavigator`.
            sight: see `VisualNavigator`.
            clean: record successes and failures in the memory.
        """
        self.places = np.asarray(places, np.float32)
        if self.places.ndim != 2 or len(self.places) != len(memory) or self.places.shape[1] < 2:
            raise InputError(f"places has shape {self.places.shape}: expected ({len(memory)}, 2 or more), one per node")
        self.radius = steps("radius", radius)
        self.see = look
        super().__init__(
            memory, controller,  # type: ignore[arg-type]
            max_steps=max_steps, ahead=ahead, penalty=penalty, tries=tries, blame=blame,
            sight=sight, clean=clean,
        )  # fmt: skip

    def reset(self, episodes: int | None = None, mask: Bools | None = None) -> None:
        """Forget everything for `episodes` new episodes, or only for those of `mask`."""
        super().reset(episodes, mask)
        if mask is None:
            self.coming = np.zeros((len(self.phase), self.ahead + 1), np.int64)

    def act_many(
        self, observations: Any, goals: Any, *, goal_nodes: ArrayLike | None = None, active: Bools | None = None
    ) -> NDArray[Any]:
        """The actions of many robots: (n, o) odometry and (n, ...) pictures of goals; see `Navigator.act_many`."""
        odometry = np.asarray(observations)
        if len(self.phase) != len(odometry):
            self.reset(len(odometry))
        active = np.ones(len(odometry), np.bool_) if active is None else active
        self.planned, self.blamed = [], []
        self._note_visits(active, odometry)
        self._give_up(active)
        fresh = np.flatnonzero(active & (self.phase == FRESH))
        if len(fresh):
            to_nodes = np.empty((len(odometry), len(self.memory)), np.float32)
            to_nodes[fresh] = self.sight.to_nodes(self.see(fresh))
            self._route(active & (self.phase == FRESH), to_nodes, goals, goal_nodes)
        self._move_on(active & (self.phase == FOLLOWING), odometry)
        self.attempts[active] += 1
        # A goal has no odometry: behind the last waypoint the place of its node has to do. A lost robot stays.
        ends = self.places[np.where(self.phase == AT_LAST, self.goal_node, np.maximum(self.waypoint, 0))]
        ends = np.where((self.phase == LOST)[:, None], odometry[:, : ends.shape[1]], ends)
        return self.controller(odometry, ends)

    def locate(self, observations: Any) -> Ints:
        """The nodes, (n,), nearest to (n, o) odometry; active goals of cleanup are chosen from there."""
        here = np.asarray(observations)[:, None, :2]
        return np.square(here - self.places[:, :2]).sum(axis=2).argmin(axis=1)

    def _note_visits(self, active: Bools, odometry: NDArray[Any]) -> None:
        """Pass over nodes near the goal where the robot is now: the goal is not there, since the episode goes on."""
        if self.tries == 1:
            return
        for episode in np.flatnonzero(active).tolist():
            order = self.goal_order[episode]
            if order is not None and len(order) > 1:
                gaps = np.hypot(*(self.places[order, :2] - odometry[episode, :2]).T)
                self.wrong_goals[episode].update(order[gaps < self.radius].tolist())

    def _goes_alone(self, goal: int, belief: NDArray[Any], left: int) -> bool:
        """Only from there: the way would lead through walls."""
        return int(belief.argmax()) == goal

    def _rank_goals(self, steps: NDArray[np.float32]) -> Ints:
        """The nodes to try; none of them within `radius` of a nearer one, where the goal would be found as well."""
        chosen: list[int] = []
        for node in np.argsort(steps, kind="stable").tolist():
            gaps = self.places[chosen, :2] - self.places[node, :2]
            if not (np.square(gaps).sum(axis=1) < self.radius**2).any():
                chosen.append(node)
            if len(chosen) == self.tries:
                break
        return np.array(chosen)

    def _set_out(self, episode: int, start: int, goal: int, following: NDArray[np.int32]) -> None:
        super()._set_out(episode, start, goal, following)
        self._look_ahead(episode)

    def _look_ahead(self, episode: int) -> None:
        """Note the next waypoints; the last one fills up what is left."""
        path, place = self.paths[episode], self.place[episode]
        coming = path[place : place + self.ahead + 1]
        self.coming[episode, : len(coming)], self.coming[episode, len(coming) :] = coming, path[-1]

    def _move_on(self, following: Bools, odometry: NDArray[Any]) -> None:
        """Go on along the path where waypoints are reached."""
        rows = np.flatnonzero(following)
        gaps = self.places[self.coming[rows], :2] - odometry[rows, None, :2]
        near = np.square(gaps).sum(axis=2) < self.radius**2
        worked: list[tuple[int, int]] = []
        for episode, hits in zip(rows[near.any(axis=1)].tolist(), near[near.any(axis=1)].tolist(), strict=True):
            place, end = int(self.place[episode]), len(self.paths[episode])
            came = [self.previous[episode] != NOWHERE, *hits[: end - place]]
            last = place + max(number for number, hit in enumerate(came[1:]) if hit)
            both = {place + number for number in range(len(came) - 1) if came[number] and came[number + 1]}
            path = self.paths[episode]
            proven = {(int(path[number - 1]), int(path[number])) for number in both if number}
            worked += [edge for edge in self._pass(episode, last) if edge in proven]
            self._look_ahead(episode)
            if self.clean and self.phase[episode] == FOLLOWING and self._is_gone(episode):
                self.phase[episode] = FRESH
        if self.clean and worked:
            record(self.memory, worked, True)

    def _is_gone(self, episode: int) -> bool:
        """Whether the edge to the next waypoint has been removed since the path was planned."""
        edge = int(self.previous[episode]), int(self.waypoint[episode])
        return self.memory.evidence(*edge).removed_at is not None
