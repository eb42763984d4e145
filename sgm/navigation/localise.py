"""Localisers: where in the memory each robot is, and how far nodes are from goals."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from sgm.errors import InputError
from sgm.memory.distance import Distance, between, far_of
from sgm.memory.planner import Near
from sgm.memory.settings import whole

if TYPE_CHECKING:
    from .navigator import Navigator

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
ENOUGH = 50  # nodes from which on equal distances are no chance
SAMPLE = 64  # nodes whose distances are looked at
CLIPPED = 0.05  # share of distances that are equal to the greatest, from which on that is a ceiling


def clipped_at(distance: Distance, nodes: Floats) -> float:
    """The greatest distance between (V, e) nodes if many of them have it; infinity otherwise."""
    if len(nodes) < ENOUGH:
        return math.inf
    chosen = np.unique(np.linspace(0, len(nodes) - 1, SAMPLE).astype(np.int64))
    steps = between(distance, nodes[chosen], nodes)
    greatest = float(steps.max())
    return greatest if greatest > 0 and (steps == greatest).mean() >= CLIPPED else math.inf


@dataclasses.dataclass
class NearestNode:
    """The node nearest to what is seen now, by the learned distance (the paper's).

    Attributes:
        embedding: the node attribute with embeddings for the agent's own distance; None: the memory's embeddings.
    """

    embedding: str | None = None
    every_step = False  # distances to all nodes are computed in every step, not only for planning
    by_odometry = False  # the robot acts on odometry, and looks only to plan
    places: Floats = dataclasses.field(init=False, repr=False, compare=False)  # (V, p) where nodes are, for odometry
    _agent: Navigator = dataclasses.field(init=False, repr=False, compare=False)

    def bind(self, agent: Navigator) -> None:
        """Localise the robots of this agent."""
        self._agent = agent
        self._own = agent.distance is not None
        self.refresh()
        self._observations: Any = None
        self._vectors: Floats | None = None
        self._known: dict[int, Floats] = {}

    def refresh(self) -> None:
        """Take over the nodes that the memory has now."""
        memory = self._agent.memory
        self._nodes = memory.attributes[self.embedding] if self.embedding else memory.embeddings
        self._ceiling: float | None = None

    def reset(self, episodes: int) -> None:
        """Know nothing for so many episodes."""

    def forget(self, mask: Bools) -> None:
        """Know nothing for these episodes."""

    @property
    def ceiling(self) -> float:
        """Steps from which on the distance says only "at least so far"; infinite if it always tells.

        `distance.far`, where the distance has it. Otherwise the greatest distance between nodes, if so many pairs of
        nodes have exactly that distance that it must be where the distance was clipped.
        """
        if self._ceiling is None:
            distance = self._agent.distance or self._agent.memory.distance
            far = far_of(distance)
            self._ceiling = clipped_at(distance, self._nodes) if far is None else far
        return self._ceiling

    def see(self, observations: Any, active: Bools) -> None:
        """Take in what the robots see, (n, ...)."""
        self._observations, self._vectors, self._known = observations, None, {}
        if self.every_step:
            rows = np.flatnonzero(active)
            self._known = dict(zip(rows.tolist(), self._measure(rows), strict=True))

    def to_nodes(self, rows: Ints) -> Floats:
        """(m, V) steps from these robots to every node."""
        missing = np.array([row for row in rows.tolist() if row not in self._known], np.int64)
        if len(missing):
            self._known.update(zip(missing.tolist(), self._measure(missing), strict=True))
        return np.stack([self._known[row] for row in rows.tolist()])

    def nearest_start(self, rows: Ints) -> Near | None:
        """The nodes nearest to these robots; None where a plan goes by more than what is nearest."""
        known = self._own or self.every_step or self.by_odometry
        if known or getattr(self._agent.memory.distance, "nearest", None) is None:
            return None
        return self._agent.memory.localise(self.vectors(rows), embedded=True)

    def nearest_goal(self, goals: Any) -> Near:
        """The nodes nearest to each of (m, ...) goals; only where `nearest_start` tells where robots are."""
        memory = self._agent.memory
        embed = getattr(memory.distance, "embed_goal", None)
        return memory.localise(goals if embed is None else embed(goals), as_goals=True, embedded=embed is not None)

    def belief(self, rows: Ints) -> NDArray[Any]:
        """(m, V) how likely each robot is at each node; only the order of the values means something."""
        return -self.to_nodes(rows)

    def start_steps(self, rows: Ints) -> Floats:
        """(m, V) steps from these robots to every node, by all that the localiser knows."""
        return self.to_nodes(rows)

    def vectors(self, rows: Ints) -> Floats:
        """(m, e) embeddings of what these robots see."""
        if self._vectors is None:
            self._vectors = self._agent.memory.embed(self._observations)
        return self._vectors[rows]

    def from_nodes(self, goals: Any) -> Floats:
        """(m, V) steps from every node to each of (m, ...) goals."""
        memory, distance = self._agent.memory, self._agent.distance
        embed = getattr(distance or memory.distance, "embed_goal", None)
        if not self._own:
            return memory.steps_from_nodes(goals if embed is None else embed(goals), embedded=embed is not None)
        assert distance is not None
        embed = embed or distance.embed
        return np.stack([distance(self._nodes, embed(np.asarray(goal)[None]))[:, 0] for goal in goals])

    def goal_places(self, rows: Ints, goals: Any, nodes: Ints) -> Floats:
        """(m, p) where robots that have come to these nodes find their (m, ...) goals, for odometry: there."""
        return self.places[nodes]

    def nearest(self, observations: Any) -> Ints:
        """(m,) the nodes nearest to where these (m, ...) observations are made."""
        if not self._own:
            return self._agent.memory.localise(observations).node
        assert self._agent.distance is not None
        return self._agent.distance(self._agent.distance.embed(observations), self._nodes).argmin(axis=1)

    def seen(self, rows: Ints) -> Any:
        """(m, ...) what these robots see."""
        return self._observations[rows]

    def _measure(self, rows: Ints) -> Floats:
        if not self._own:
            return self._agent.memory.steps_to_nodes(self.vectors(rows), embedded=True)
        assert self._agent.distance is not None
        return self._agent.distance(self._agent.distance.embed(self.seen(rows)), self._nodes)


@dataclasses.dataclass
class BayesFilter(NearestNode):
    """Where a robot probably is, given all that it has seen in this episode: a Bayes filter over the nodes.

    Between two observations a robot stays where it is or goes along an edge, in either direction, as often as `hops`
    times; with the probability `leak` it is anywhere, which lets it recover. An observation is as likely at a node as
    exp(−d / sharpness), d the steps from the observation to the node.
    """

    sharpness: float = 1.0
    leak: float = 0.02
    hops: int = 2
    every_step = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not self.sharpness > 0:
            raise InputError(f"sharpness is {self.sharpness!r}: expected a number of steps over 0")
        if not 0 < self.leak <= 1:
            raise InputError(f"leak is {self.leak!r}: expected a probability over 0")

    def bind(self, agent: Navigator) -> None:
        """Localise the robots of this agent."""
        super().bind(agent)
        self.beliefs = np.empty((0, 0), np.float32)
        self._moves: csr_array | None = None

    def refresh(self) -> None:
        """Take over the nodes that the memory has now; beliefs begin anew."""
        super().refresh()
        self.reset(len(getattr(self, "beliefs", ())))

    def reset(self, episodes: int) -> None:
        """Know nothing for so many episodes."""
        nodes = len(self._agent.memory)
        self.beliefs = np.full((episodes, nodes), 1 / max(1, nodes), np.float32)

    def forget(self, mask: Bools) -> None:
        """Know nothing for these episodes."""
        self.beliefs[mask] = 1 / max(1, len(self._agent.memory))

    def see(self, observations: Any, active: Bools) -> None:
        """Take in what the robots see."""
        super().see(observations, active)
        rows = np.flatnonzero(active)
        if len(rows):
            self.update(rows, self.to_nodes(rows))

    def belief(self, rows: Ints) -> NDArray[Any]:
        """(m, V) probabilities."""
        return self.beliefs[rows]

    def start_steps(self, rows: Ints) -> Floats:
        """(m, V) steps that one observation would have to say for these probabilities; the least is the nearest's."""
        doubt = -self.sharpness * np.log(np.maximum(self.beliefs[rows], np.finfo(np.float32).tiny))
        nearest = self.to_nodes(rows).min(axis=1, keepdims=True)
        return (doubt - doubt.min(axis=1, keepdims=True) + nearest).astype(np.float32)

    def update(self, rows: Ints, to_nodes: Floats) -> None:
        """Move and weigh the beliefs of these rows: (m, V) steps to all nodes."""
        self._refresh()
        prior = self.beliefs[rows].T
        for _ in range(self.hops):
            prior = self._moves @ prior
        prior = (1 - self.leak) * prior.T + self.leak / len(self._agent.memory)
        nearest = to_nodes.min(axis=1, keepdims=True)
        posterior = prior * np.exp((nearest - to_nodes) / self.sharpness)
        self.beliefs[rows] = posterior / posterior.sum(axis=1, keepdims=True)

    def _refresh(self) -> None:
        """Rebuild the motion model when the memory has grown; removed edges go on counting until then."""
        memory = self._agent.memory
        if self._moves is not None and self._moves.shape[0] == len(memory):
            return
        edges = memory.edges()
        ones, shape = np.ones(len(edges.source), np.float32), (len(memory), len(memory))
        there = csr_array((ones, (edges.source, edges.target)), shape=shape)
        both = ((there + there.T) > 0).astype(np.float32) + diags_array(np.ones(shape[0], np.float32), format="csr")
        leaving = np.asarray(both.sum(axis=1)).ravel()
        self._moves = csr_array((diags_array(1 / leaving) @ both).T.astype(np.float32))


FEWEST = 3  # nodes that can agree: two have no midst
AROUND = 3.0  # nodes within so many times the median gap to the one in their midst are around it


@dataclasses.dataclass
class Odometry(NearestNode):
    """The nearest node by what is seen, looked at only to plan; between plans the robot goes by odometry.

    The robot acts on odometry, x and y first, and knows where each node was seen from a node attribute in the same
    frame. It looks (the agent's `look`) at the beginning of an episode and when it plans anew.

    Attributes:
        position: the node attribute that says where nodes are: (V, p), x and y first.
        agreeing: so many nodes, nearest both ways to what is seen or to a goal, say together where it is: the one in
            their midst counts as the nearest, and a goal is taken to be at the mean of those around it. One that lies
            elsewhere is outvoted. They should lie closer together than a goal has to be met: more of them draw goals at
            the border of what was explored inwards. 1: the nearest itself, one way.
    """

    position: str = "pose"
    agreeing: int = 1
    by_odometry = True

    def __post_init__(self) -> None:
        """Check the number."""
        self.agreeing = whole("agreeing", self.agreeing, 1)

    def bind(self, agent: Navigator) -> None:
        """Localise the robots of this agent."""
        super().bind(agent)
        self._spots: dict[int, tuple[int, NDArray[Any]]] = {}
        if agent.look is None:
            raise InputError("an agent with odometry needs look, a function from (m,) rows to what these robots see")

    def refresh(self) -> None:
        """Take over the nodes that the memory has now, and where they are."""
        super().refresh()
        attributes = self._agent.memory.attributes
        if self.position not in attributes:
            raise InputError(f"the memory has no attribute {self.position!r}, where its nodes are")
        self.places = np.asarray(attributes[self.position], np.float32)
        if self.places.ndim != 2 or self.places.shape[1] < 2:
            raise InputError(f"attribute {self.position!r} has shape {self.places.shape}: expected (V, 2 or more)")
        if missing := int((~np.isfinite(self.places[:, :2]).all(axis=1)).sum()):
            raise InputError(f"{missing} nodes have no place in {self.position!r}: give one with every observation")

    def seen(self, rows: Ints) -> Any:
        """(m, ...) what these robots see."""
        assert self._agent.look is not None
        return self._agent.look(rows)

    def nearest(self, observations: Any) -> Ints:
        """(m,) the nodes nearest to (m, o) odometry."""
        here = np.asarray(observations)[:, None, :2]
        return np.square(here - self.places[:, :2]).sum(axis=2).argmin(axis=1)

    def reset(self, episodes: int) -> None:
        """Know nothing for so many episodes."""
        self._spots = {}

    def forget(self, mask: Bools) -> None:
        """Know nothing for these episodes."""
        for episode in np.flatnonzero(mask).tolist():
            self._spots.pop(episode, None)

    def from_nodes(self, goals: Any) -> Floats:
        """(m, V) steps from every node to each of (m, ...) goals; the least is that of the node the others agree on."""
        return self._agreed(self._both_ways(goals), self._connected())

    def goal_places(self, rows: Ints, goals: Any, nodes: Ints) -> Floats:
        """(m, p) where robots that have come to these nodes find their (m, ...) goals.

        A goal has been seen, not visited: it is where the nodes that agree on it are in the mean. A robot that was sent
        to another node looks for the goal there. Without goals they are these nodes.
        """
        aims = super().goal_places(rows, goals, nodes)
        if goals is None or self.agreeing < FEWEST:
            return aims
        for number, (episode, node) in enumerate(zip(rows.tolist(), nodes.tolist(), strict=True)):
            if episode not in self._spots:
                nearest, gaps, middle = self._agreement(self._both_ways(goals[number : number + 1]), self._connected())
                around = nearest[0, gaps[0] <= AROUND * np.median(gaps[0])]
                self._spots[episode] = int(middle[0]), self.places[around, :2].mean(axis=0)
            if self._spots[episode][0] == node:
                aims[number, :2] = self._spots[episode][1]
        return aims

    def _measure(self, rows: Ints) -> Floats:
        distance = self._agent.distance or self._agent.memory.distance
        seen = distance.embed(self.seen(rows))
        there = distance(seen, self._nodes)
        return there if self.agreeing < FEWEST else self._agreed((there + distance(self._nodes, seen).T) / 2)

    def _both_ways(self, goals: Any) -> Floats:
        """(m, V) steps between every node and each of (m, ...) goals: there, or if nodes agree there and back."""
        there = super().from_nodes(goals)
        if self.agreeing < FEWEST:
            return there
        distance = self._agent.distance or self._agent.memory.distance
        embed = getattr(distance, "embed_goal", distance.embed)
        back = np.stack([distance(embed(goal[None]), self._nodes)[0] for goal in np.asarray(goals)])
        return (there + back) / 2

    def _connected(self) -> Bools | None:
        """(V,) which nodes are asked where a goal is: not those of parts too small to agree, where few plans lead."""
        if self.agreeing < FEWEST:
            return None
        parts = self._agent.memory.parts()
        large = np.asarray(np.bincount(parts)[parts] >= self.agreeing)
        return large if large.any() else None

    def _agreed(self, steps: Floats, asked: Bools | None = None) -> Floats:
        """(m, V) steps in which the node that the nearest ones agree on is just below all others."""
        if self.agreeing < FEWEST:
            return steps
        steps = np.array(steps, np.float32)
        _, _, middle = self._agreement(steps, asked)
        steps[np.arange(len(steps)), middle] = np.nextafter(steps.min(axis=1), np.float32(-np.inf))
        return steps

    def _agreement(self, steps: Floats, asked: Bools | None = None) -> tuple[Ints, Floats, Ints]:
        """(m, n) nearest nodes of those asked, how far they are from the one in their midst, and (m,) which that is."""
        rows, number = np.arange(len(steps)), self.agreeing
        if asked is not None:
            steps, number = np.where(asked, steps, np.inf), min(number, int(asked.sum()))
        nearest = np.argsort(steps, axis=1, kind="stable")[:, :number]
        places = self.places[nearest, :2]
        gaps = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1)
        midst = gaps.sum(axis=2).argmin(axis=1)
        return nearest, gaps[rows, midst], nearest[rows, midst]


LOCALISERS = {"nearest": NearestNode, "filter": BayesFilter, "odometry": Odometry}
