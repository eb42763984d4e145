"""The agent for pictures: follows a path loosely, localises itself over time, and does not repeat its mistakes."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from sgm.memory import Distance, InputError, SparseGraphicalMemory
from sgm.memory.settings import whole

from .navigator import AT_LAST, FOLLOWING, FRESH, LOST, NOWHERE, Bools, Ints, Navigator
from .timefilter import TimeFilter

BLAMES = ("last", "doubtful")
_UNCONFIRMED = 3  # edges that may be to blame when the robot finds itself elsewhere


class VisualController(Protocol):
    """Short-range control from pictures: what was seen before and now, and what should be seen."""

    def __call__(self, previous: Any, current: Any, goals: Any) -> NDArray[Any]:
        """(n, ...) pictures each to (n,) actions."""
        ...


class Sight(Protocol):
    """What connects pictures with the nodes of a memory."""

    def to_nodes(self, pictures: Any) -> NDArray[np.float32]:
        """(n, ...) pictures to (n, V) steps from each to every node."""
        ...

    def from_nodes(self, picture: Any) -> NDArray[np.float32]:
        """One picture to (V,) steps from every node to it."""
        ...

    def pictures(self, nodes: Ints) -> NDArray[Any]:
        """(n,) nodes to what is seen there."""
        ...


class MemorySight:
    """The sight of a memory that was built over pictures and keeps them."""

    def __init__(self, memory: SparseGraphicalMemory, distance: Distance | None = None) -> None:
        """Look with the memory's own distance, or with another one over the same embeddings."""
        self.memory = memory
        self.distance = memory.distance if distance is None else distance

    def to_nodes(self, pictures: Any) -> NDArray[np.float32]:
        """(n, V) steps."""
        return self.distance(self.distance.embed(pictures), self.memory.embeddings)

    def from_nodes(self, picture: Any) -> NDArray[np.float32]:
        """(V,) steps."""
        return self.distance(self.memory.embeddings, self.distance.embed(np.asarray(picture)[None]))[:, 0]

    def pictures(self, nodes: Ints) -> NDArray[Any]:
        """What the memory keeps."""
        return self.memory.waypoints(nodes)


class FrameSight:
    """The sight of a memory that was built over frame numbers, for example with a table of distances."""

    def __init__(
        self, memory: SparseGraphicalMemory, distance: Distance, frames: NDArray[Any], embeddings: NDArray[np.float32]
    ) -> None:
        """Look with `distance`; frames and embeddings are of all that the memory was built from, in that order."""
        self.distance, self.frames = distance, frames
        self.nodes = memory.nodes
        self.embeddings = embeddings[self.nodes]

    def to_nodes(self, pictures: Any) -> NDArray[np.float32]:
        """(n, V) steps."""
        return self.distance(self.distance.embed(pictures), self.embeddings)

    def from_nodes(self, picture: Any) -> NDArray[np.float32]:
        """(V,) steps."""
        return self.distance(self.embeddings, self.distance.embed(np.asarray(picture)[None]))[:, 0]

    def pictures(self, nodes: Ints) -> NDArray[Any]:
        """The frames of these nodes."""
        return self.frames[self.nodes[nodes]]


class VisualNavigator(Navigator):
    """Follows plans through a memory of pictures.

    Beyond what `Navigator` does:
    - it knows where it is from all it has seen in the episode (`TimeFilter`), not from the last picture alone;
    - of the waypoints ahead on its path, up to `ahead` of them, the farthest that looks near counts as reached;
    - an edge that failed is dear for the rest of the episode, and a goal's node where the goal was not is not tried
      again;
    - with blame="doubtful" a failure counts against the edge that has proven itself least among the last few: a false
      edge joins places that look alike, so it seems to work, and only what comes after it fails.
    """

    def __init__(
        self,
        memory: SparseGraphicalMemory,
        controller: VisualController,
        *,
        max_steps: int = 10,
        cutoff: float = 1.0,
        ahead: int = 6,
        sight: Sight | None = None,
        localiser: TimeFilter | None = None,
        penalty: float = 20.0,
        blame: str = "last",
        look: int | None = None,
        confident: float = 2.0,
        patience: int = 8,
        tries: int = 8,
        clean: bool = False,
    ) -> None:
        """Make an agent.

        Args:
            memory: where to plan.
            controller: short-range control.
            max_steps: MaxSteps, the steps given to a waypoint.
            cutoff: a waypoint within so many steps is reached.
            ahead: waypoints looked at beyond the next one.
            sight: tells how far nodes are from what is seen; None: the memory's own distance, over the pictures it
                keeps.
            localiser: knows where the robots are; None: the nearest node to what is seen now.
            penalty: steps added to the price of an edge each time it fails in an episode.
            blame: which edge a failure counts against: the "last" one (the paper), or the most "doubtful" one of the
                last few.
            look: the action that turns the robot round; while the nearest node is not within `confident` steps, the
                robot looks round before it plans. None: it plans at once.
            confident: steps within which the nearest node tells where the robot is.
            patience: steps after which it plans all the same.
            tries: nodes near the goal that are tried in turn.
            clean: record successes and failures in the memory.
        """
        if blame not in BLAMES:
            raise InputError(f"blame is {blame!r}: expected {' or '.join(map(repr, BLAMES))}")
        if ahead < 0:
            raise InputError(f"ahead is {ahead!r}: expected a number of waypoints, 0 or more")
        self.sight = MemorySight(memory) if sight is None else sight
        self.look, self.confident, self.patience = look, confident, patience
        self.localiser, self.ahead, self.penalty, self.blame = localiser, ahead, penalty, blame
        self.tries = whole("tries", tries, 1)
        super().__init__(memory, controller, max_steps=max_steps, cutoff=cutoff, clean=clean, replan=True)  # type: ignore[arg-type]

    def reset(self, episodes: int | None = None, mask: Bools | None = None) -> None:
        """Forget everything for `episodes` new episodes, or only for those of `mask`."""
        super().reset(episodes, mask)
        number = len(self.phase)
        if mask is None:
            self.paths: list[Ints] = [np.empty(0, np.int64)] * number
            self.place = np.zeros(number, np.int64)
            self.bans: list[dict[tuple[int, int], int]] = [{} for _ in range(number)]
            self.wrong_goals: list[set[int]] = [set() for _ in range(number)]
            self.pending: list[list[tuple[int, int]]] = [[] for _ in range(number)]
            self.goal_order: list[Ints | None] = [None] * number
            self.before: NDArray[Any] | None = None
            self.new = np.ones(number, np.bool_)
            self.looked = np.zeros(number, np.int64)
            if self.localiser is not None:
                self.localiser.reset(number)
            return
        for episode in np.flatnonzero(mask):
            self.bans[episode], self.wrong_goals[episode], self.pending[episode] = {}, set(), []
            self.goal_order[episode] = None
        self.new[mask] = True
        self.looked[mask] = 0
        if self.localiser is not None:
            self.localiser.forget(mask)

    def act_many(
        self, observations: Any, goals: Any, *, goal_nodes: ArrayLike | None = None, active: Bools | None = None
    ) -> NDArray[Any]:
        """The actions of many robots; see `Navigator.act_many`."""
        number = len(observations)
        if len(self.phase) != number:
            self.reset(number)
        active = np.ones(number, np.bool_) if active is None else active
        rows = np.flatnonzero(active)
        self.planned, self.blamed = [], []
        to_nodes = np.empty((number, len(self.memory)), np.float32)
        to_nodes[rows] = self.sight.to_nodes(observations[rows])
        if self.localiser is not None:
            self.localiser.update(rows, to_nodes[rows])
        self._give_up(active)
        looking = self._look_round(active & (self.phase == FRESH), to_nodes)
        self._route(active & ~looking & (self.phase == FRESH), to_nodes, goals, goal_nodes)
        self._follow(active & (self.phase == FOLLOWING), to_nodes)
        self.attempts[active] += 1
        targets = np.array(goals)
        chosen = np.flatnonzero(active & (self.phase == FOLLOWING))
        targets[chosen] = self.sight.pictures(self.waypoint[chosen])
        before = np.array(observations)
        if self.before is not None:
            before[~self.new] = self.before[~self.new]
        actions = np.full(number, -1)
        actions[rows] = self.controller(before[rows], observations[rows], targets[rows])  # type: ignore[call-arg]
        if self.look is not None:
            actions[looking] = self.look
        self.before = np.array(observations)
        self.new[rows] = False
        return actions

    def seen_at(self, nodes: Ints) -> NDArray[Any]:
        """The pictures of (n,) nodes."""
        return self.sight.pictures(nodes)

    def locate(self, observations: Any) -> Ints:
        """The nodes, (n,), nearest to where these (n, ...) pictures are seen."""
        return self.sight.to_nodes(observations).argmin(axis=1)

    def path(self, episode: int) -> Ints:
        """The nodes of an episode's plan, from the first to the goal's; empty without one."""
        return np.empty(0, np.int64) if self.phase[episode] in (FRESH, LOST) else self.paths[episode]

    def _give_up(self, active: Bools) -> None:
        """Blame and plan anew where a waypoint was not reached in time."""
        late = active & (self.phase != FRESH) & (self.attempts >= self.max_steps)
        self.given_up[late] += 1
        failed: list[tuple[int, int]] = []
        for episode in np.flatnonzero(late).tolist():
            if self.phase[episode] == FOLLOWING and self.previous[episode] != NOWHERE:
                edge = int(self.previous[episode]), int(self.waypoint[episode])
                if self.penalty:
                    self.bans[episode][edge] = self.bans[episode].get(edge, 0) + 1
                if self.clean:
                    edge = self._culprit(episode, edge)
                    failed.append(edge)
                    self.blamed.append((episode, *edge))
            elif self.phase[episode] == AT_LAST:
                self.wrong_goals[episode].add(int(self.goal_node[episode]))
            self.pending[episode] = []
        if failed:
            record(self.memory, failed, False)
        self.phase[late] = FRESH

    def _look_round(self, fresh: Bools, to_nodes: NDArray[np.float32]) -> Bools:
        """Who looks round before planning."""
        looking = np.zeros(len(fresh), np.bool_)
        if self.look is None or not fresh.any():
            return looking
        unsure = to_nodes[fresh].min(axis=1) > self.confident
        looking[fresh] = unsure & (self.looked[fresh] < self.patience)
        self.looked[looking] += 1
        self.looked[fresh & ~looking] = 0
        return looking

    def _culprit(self, episode: int, edge: tuple[int, int]) -> tuple[int, int]:
        """The edge that a failure counts against."""
        if self.blame == "last":
            return edge
        suspects = [*self.pending[episode], edge]
        return min(suspects, key=lambda suspect: _worth(self.memory, suspect))

    def _route(self, fresh: Bools, to_nodes: NDArray[np.float32], goals: Any, goal_nodes: ArrayLike | None) -> None:
        """Localise and plan where that is due."""
        for episode in np.flatnonzero(fresh).tolist():
            order = self.goal_order[episode]
            if order is None:
                if goal_nodes is not None:
                    order = np.asarray(goal_nodes)[episode : episode + 1]
                else:
                    order = self._rank_goals(self.sight.from_nodes(goals[episode]))
                self.goal_order[episode] = order
            belief = -to_nodes[episode] if self.localiser is None else self.localiser.belief[episode]
            self.attempts[episode], self.previous[episode], self.phase[episode] = 0, NOWHERE, LOST
            matrix = self._matrix(episode)
            left = [int(node) for node in order if int(node) not in self.wrong_goals[episode]] or order[:1].tolist()
            self.goal_node[episode] = left[0]
            for goal in left:
                cost, following = dijkstra(matrix, indices=goal, return_predecessors=True)
                at = int(np.where(np.isfinite(cost), belief, -np.inf).argmax())
                if np.isfinite(cost).sum() > 1 or self._goes_alone(goal, belief, len(left)):
                    self._set_out(episode, at, goal, following)
                    break

    def _goes_alone(self, goal: int, belief: NDArray[Any], left: int) -> bool:
        """Whether to go for a node that no other one leads to; `left` counts the nodes still to be tried."""
        return left == 1

    def _rank_goals(self, steps: NDArray[np.float32]) -> Ints:
        """The nodes to try, by (V,) steps from each to the goal."""
        return np.argsort(steps, kind="stable")[: self.tries]

    def _set_out(self, episode: int, start: int, goal: int, following: NDArray[np.int32]) -> None:
        nodes = [start]
        while nodes[-1] != goal:
            nodes.append(int(following[nodes[-1]]))
        self.paths[episode] = np.array(nodes)
        self.place[episode] = 0
        self.start_node[episode], self.goal_node[episode], self.waypoint[episode] = start, goal, start
        self.phase[episode] = FOLLOWING
        self.planned.append(episode)

    def _matrix(self, episode: int) -> csr_array:
        """What edges cost, by target and source, for this episode."""
        matrix = self.memory.prices()
        if not self.bans[episode]:
            return matrix
        data = matrix.data.copy()
        for (source, target), times in self.bans[episode].items():
            low, high = matrix.indptr[target : target + 2]
            place = low + np.searchsorted(matrix.indices[low:high], source)
            if place < high and matrix.indices[place] == source:
                data[place] += self.penalty * times
        return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)

    def _follow(self, following: Bools, to_nodes: NDArray[np.float32]) -> None:
        """Go on along the path where waypoints are reached."""
        worked: list[tuple[int, int]] = []
        for episode in np.flatnonzero(following).tolist():
            path, place = self.paths[episode], int(self.place[episode])
            window = path[place : place + self.ahead + 1]
            near = np.flatnonzero(to_nodes[episode, window] <= self.cutoff)
            if not len(near):
                continue
            worked += self._pass(episode, place + int(near[-1]))
        if self.clean and worked:
            record(self.memory, worked, True)

    def _pass(self, episode: int, last: int) -> list[tuple[int, int]]:
        """Go on behind the waypoint at this place of the path; the edges that have shown to work."""
        path, pending = self.paths[episode], self.pending[episode]
        for number in range(max(1, int(self.place[episode])), last + 1):
            pending.append((int(path[number - 1]), int(path[number])))
        self.attempts[episode] = 0
        arrived = last == len(path) - 1
        keep = 0 if arrived or self.blame == "last" else _UNCONFIRMED
        confirmed = max(0, len(pending) - keep)
        worked, self.pending[episode] = pending[:confirmed], pending[confirmed:]
        if arrived:
            self.phase[episode] = AT_LAST
        else:
            self.place[episode] = last + 1
            self.previous[episode], self.waypoint[episode] = path[last], path[last + 1]
        return worked


def record(memory: SparseGraphicalMemory, edges: list[tuple[int, int]], reached: bool) -> None:
    """Note that tries of these edges worked, or that they failed."""
    source, target = np.array(edges).T
    memory.record_many(source, target, np.full(len(edges), reached))


def _worth(memory: SparseGraphicalMemory, edge: tuple[int, int]) -> float:
    """How much an edge has proven itself."""
    known = memory.evidence(*edge)
    return (1 + known.successes) / (2 + known.attempts)
