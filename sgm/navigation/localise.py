"""Localisers: find the nodes near robots and goals."""

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
ENOUGH = 50  # fewest nodes for deciding that a distance is clipped
SAMPLE = 64  # nodes whose distances are compared
CLIPPED = 0.05  # smallest share of distances equal to the largest one for a clipped distance


def clipped_at(distance: Distance, nodes: Floats) -> float:
    """Return the largest distance between (V, e) nodes if many pairs have exactly this distance, else infinity."""
    if len(nodes) < ENOUGH:
        return math.inf
    chosen = np.unique(np.linspace(0, len(nodes) - 1, SAMPLE).astype(np.int64))
    steps = between(distance, nodes[chosen], nodes)
    greatest = float(steps.max())
    return greatest if greatest > 0 and (steps == greatest).mean() >= CLIPPED else math.inf


@dataclasses.dataclass
class NearestNode:
    """Localises by the node nearest to the present observation, by the learned distance (as in the paper).

    Attributes:
        embedding: the node attribute with embeddings for the distance of the agent; None: the embeddings of the memory.
    """

    embedding: str | None = None
    every_step = False  # distances to all nodes are computed in every step, not only for planning
    by_odometry = False  # the robot acts on odometry, and uses images only to plan
    places: Floats = dataclasses.field(init=False, repr=False, compare=False)  # (V, p) node positions, for odometry
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
        """Update the localiser after nodes were added to the memory."""
        memory = self._agent.memory
        self._nodes = memory.attributes[self.embedding] if self.embedding else memory.embeddings
        self._ceiling: float | None = None

    def reset(self, episodes: int) -> None:
        """Begin `episodes` new episodes."""

    def forget(self, mask: Bools) -> None:
        """Begin new episodes in these rows."""

    @property
    def ceiling(self) -> float:
        """Value at which the distance is clipped, steps; infinite if it is not clipped.

        It is `distance.far` if the distance has it. Otherwise it is the largest distance between nodes, if so many
        pairs of nodes have exactly this distance that it must be the value at which the distance was clipped.
        """
        if self._ceiling is None:
            distance = self._agent.distance or self._agent.memory.distance
            far = far_of(distance)
            self._ceiling = clipped_at(distance, self._nodes) if far is None else far
        return self._ceiling

    def see(self, observations: Any, active: Bools) -> None:
        """Set the present observations of the robots, (n, ...)."""
        self._observations, self._vectors, self._known = observations, None, {}
        if self.every_step:
            rows = np.flatnonzero(active)
            self._known = dict(zip(rows.tolist(), self._measure(rows), strict=True))

    def to_nodes(self, rows: Ints) -> Floats:
        """(m, V) steps from these robots to every node, by the present observation."""
        missing = np.array([row for row in rows.tolist() if row not in self._known], np.int64)
        if len(missing):
            self._known.update(zip(missing.tolist(), self._measure(missing), strict=True))
        return np.stack([self._known[row] for row in rows.tolist()])

    def nearest_start(self, rows: Ints) -> Near | None:
        """Return the nodes nearest to these robots; None if planning needs the distances to all nodes."""
        known = self._own or self.every_step or self.by_odometry
        if known or getattr(self._agent.memory.distance, "nearest", None) is None:
            return None
        return self._agent.memory.localise(self.vectors(rows), embedded=True)

    def nearest_goal(self, goals: Any) -> Near:
        """Return the nodes nearest to each of (m, ...) goals; used only if `nearest_start` is not None."""
        memory = self._agent.memory
        embed = getattr(memory.distance, "embed_goal", None)
        return memory.localise(goals if embed is None else embed(goals), as_goals=True, embedded=embed is not None)

    def belief(self, rows: Ints) -> NDArray[Any]:
        """(m, V) plausibility that each robot is at each node; only the order of the values is meaningful."""
        return -self.to_nodes(rows)

    def start_steps(self, rows: Ints) -> Floats:
        """(m, V) steps from these robots to every node, by all observations that the localiser uses."""
        return self.to_nodes(rows)

    def vectors(self, rows: Ints) -> Floats:
        """(m, e) embeddings of the present observations of these robots."""
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
        """(m, p) positions of goals for robots that have reached these nodes, for odometry: those of the nodes."""
        return self.places[nodes]

    def nearest(self, observations: Any) -> Ints:
        """(m,) nodes nearest to (m, ...) observations."""
        if not self._own:
            return self._agent.memory.localise(observations).node
        assert self._agent.distance is not None
        return self._agent.distance(self._agent.distance.embed(observations), self._nodes).argmin(axis=1)

    def seen(self, rows: Ints) -> Any:
        """(m, ...) present observations of these robots."""
        return self._observations[rows]

    def _measure(self, rows: Ints) -> Floats:
        if not self._own:
            return self._agent.memory.steps_to_nodes(self.vectors(rows), embedded=True)
        assert self._agent.distance is not None
        return self._agent.distance(self._agent.distance.embed(self.seen(rows)), self._nodes)


@dataclasses.dataclass
class BayesFilter(NearestNode):
    """Localises by a Bayes filter over the nodes, from all observations of the episode.

    In the motion model a robot stays or moves along an edge, in either direction, `hops` times between two
    observations; with probability `leak` it is at any node, which lets it recover. The likelihood of an observation at
    a node is proportional to exp(−d / sharpness), where d is the distance from the observation to the node.

    Attributes:
        sharpness: scale of the likelihood, steps.
        leak: probability of any node between two observations.
        hops: number of moves between two observations.
    """

    sharpness: float = 1.0
    leak: float = 0.02
    hops: int = 2
    every_step = True

    def __post_init__(self) -> None:
        """Check the parameters."""
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
        """Update the localiser after nodes were added to the memory; beliefs become uniform."""
        super().refresh()
        self.reset(len(getattr(self, "beliefs", ())))

    def reset(self, episodes: int) -> None:
        """Begin `episodes` new episodes, with uniform beliefs."""
        nodes = len(self._agent.memory)
        self.beliefs = np.full((episodes, nodes), 1 / max(1, nodes), np.float32)

    def forget(self, mask: Bools) -> None:
        """Begin new episodes in these rows, with uniform beliefs."""
        self.beliefs[mask] = 1 / max(1, len(self._agent.memory))

    def see(self, observations: Any, active: Bools) -> None:
        """Set the present observations of the robots, and update their beliefs."""
        super().see(observations, active)
        rows = np.flatnonzero(active)
        if len(rows):
            self.update(rows, self.to_nodes(rows))

    def belief(self, rows: Ints) -> NDArray[Any]:
        """(m, V) probabilities of the nodes."""
        return self.beliefs[rows]

    def start_steps(self, rows: Ints) -> Floats:
        """(m, V) beliefs as steps: distances at which one observation would give these probabilities.

        The smallest is the distance of the present observation to its nearest node.
        """
        doubt = -self.sharpness * np.log(np.maximum(self.beliefs[rows], np.finfo(np.float32).tiny))
        nearest = self.to_nodes(rows).min(axis=1, keepdims=True)
        return (doubt - doubt.min(axis=1, keepdims=True) + nearest).astype(np.float32)

    def update(self, rows: Ints, to_nodes: Floats) -> None:
        """Update the beliefs of these rows by the motion model and by (m, V) steps to all nodes."""
        self._refresh()
        prior = self.beliefs[rows].T
        for _ in range(self.hops):
            prior = self._moves @ prior
        prior = (1 - self.leak) * prior.T + self.leak / len(self._agent.memory)
        nearest = to_nodes.min(axis=1, keepdims=True)
        posterior = prior * np.exp((nearest - to_nodes) / self.sharpness)
        self.beliefs[rows] = posterior / posterior.sum(axis=1, keepdims=True)

    def _refresh(self) -> None:
        """Make the motion model again if the memory has grown; edges removed since then still count."""
        memory = self._agent.memory
        if self._moves is not None and self._moves.shape[0] == len(memory):
            return
        edges = memory.edges()
        ones, shape = np.ones(len(edges.source), np.float32), (len(memory), len(memory))
        there = csr_array((ones, (edges.source, edges.target)), shape=shape)
        both = ((there + there.T) > 0).astype(np.float32) + diags_array(np.ones(shape[0], np.float32), format="csr")
        leaving = np.asarray(both.sum(axis=1)).ravel()
        self._moves = csr_array((diags_array(1 / leaving) @ both).T.astype(np.float32))


FEWEST = 3  # fewest nodes for an agreement: the medoid of two is not defined
AROUND = 3.0  # nodes within this many times the median distance to the medoid count as agreeing with it


@dataclasses.dataclass
class Odometry(NearestNode):
    """Localises by the nearest node when the agent plans; between plans the robot moves by odometry.

    The robot acts on odometry, x and y first; a node attribute holds the positions of the nodes in the same frame.
    Images (`look` of the agent) are used only at the beginning of an episode and when the agent plans again.

    Attributes:
        position: the node attribute with the positions of nodes: (V, p), x and y first.
        agreeing: number of nodes that vote on the position of a robot or a goal: those nearest to its image, by the
            mean of both directions. The medoid of their positions counts as the nearest node, and a goal is taken to be
            at the mean position of the nodes around it, so a single wrong node is outvoted. They should be closer
            together than the tolerance of a goal; with too many, goals at the border of the explored area are moved
            inwards. 1: the nearest node itself, by one direction.
    """

    position: str = "pose"
    agreeing: int = 1
    by_odometry = True

    def __post_init__(self) -> None:
        """Check the parameters."""
        self.agreeing = whole("agreeing", self.agreeing, 1)

    def bind(self, agent: Navigator) -> None:
        """Localise the robots of this agent."""
        super().bind(agent)
        self._spots: dict[int, tuple[int, NDArray[Any]]] = {}
        if agent.look is None:
            raise InputError("an agent with odometry needs look, a function from (m,) rows to what these robots see")

    def refresh(self) -> None:
        """Update the localiser after nodes were added to the memory, with their positions."""
        super().refresh()
        attributes = self._agent.memory.attributes
        if self.position not in attributes:
            raise InputError(f"the memory has no attribute {self.position!r} with the positions of its nodes")
        self.places = np.asarray(attributes[self.position], np.float32)
        if self.places.ndim != 2 or self.places.shape[1] < 2:
            raise InputError(f"attribute {self.position!r} has shape {self.places.shape}: expected (V, 2 or more)")
        if missing := int((~np.isfinite(self.places[:, :2]).all(axis=1)).sum()):
            raise InputError(f"{missing} nodes have no position in {self.position!r}: give one with every observation")

    def seen(self, rows: Ints) -> Any:
        """(m, ...) present images of these robots."""
        assert self._agent.look is not None
        return self._agent.look(rows)

    def nearest(self, observations: Any) -> Ints:
        """(m,) nodes nearest to (m, o) odometry."""
        here = np.asarray(observations)[:, None, :2]
        return np.square(here - self.places[:, :2]).sum(axis=2).argmin(axis=1)

    def reset(self, episodes: int) -> None:
        """Begin `episodes` new episodes."""
        self._spots = {}

    def forget(self, mask: Bools) -> None:
        """Begin new episodes in these rows."""
        for episode in np.flatnonzero(mask).tolist():
            self._spots.pop(episode, None)

    def from_nodes(self, goals: Any) -> Floats:
        """(m, V) steps from every node to each of (m, ...) goals; smallest for the medoid of the nodes that vote."""
        return self._agreed(self._both_ways(goals), self._connected())

    def goal_places(self, rows: Ints, goals: Any, nodes: Ints) -> Floats:
        """(m, p) positions of (m, ...) goals for robots that have reached these nodes.

        Only the image of a goal is known: its position is the mean of the nodes that agree on it. For a robot that was
        sent to another node than their medoid, it is the position of that node. Without goals (None) the positions are
        those of the nodes.
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
        """(m, V) steps from every node to each of (m, ...) goals; if nodes vote, the mean of both directions."""
        there = super().from_nodes(goals)
        if self.agreeing < FEWEST:
            return there
        distance = self._agent.distance or self._agent.memory.distance
        embed = getattr(distance, "embed_goal", distance.embed)
        back = np.stack([distance(embed(goal[None]), self._nodes)[0] for goal in np.asarray(goals)])
        return (there + back) / 2

    def _connected(self) -> Bools | None:
        """(V,) nodes that may vote on a goal: those in components of at least `agreeing` nodes; None: all."""
        if self.agreeing < FEWEST:
            return None
        parts = self._agent.memory.parts()
        large = np.asarray(np.bincount(parts)[parts] >= self.agreeing)
        return large if large.any() else None

    def _agreed(self, steps: Floats, asked: Bools | None = None) -> Floats:
        """(m, V) steps, changed so that the medoid of the nearest nodes is just below all others."""
        if self.agreeing < FEWEST:
            return steps
        steps = np.array(steps, np.float32)
        _, _, middle = self._agreement(steps, asked)
        steps[np.arange(len(steps)), middle] = np.nextafter(steps.min(axis=1), np.float32(-np.inf))
        return steps

    def _agreement(self, steps: Floats, asked: Bools | None = None) -> tuple[Ints, Floats, Ints]:
        """Return (m, n) nearest nodes that may vote, their distances to the medoid of these, and (m,) the medoids."""
        rows, number = np.arange(len(steps)), self.agreeing
        if asked is not None:
            steps, number = np.where(asked, steps, np.inf), min(number, int(asked.sum()))
        nearest = np.argsort(steps, axis=1, kind="stable")[:, :number]
        places = self.places[nearest, :2]
        gaps = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1)
        midst = gaps.sum(axis=2).argmin(axis=1)
        return nearest, gaps[rows, midst], nearest[rows, midst]


LOCALISERS = {"nearest": NearestNode, "filter": BayesFilter, "odometry": Odometry}
