"""Arrival tests: whether robots have reached their next waypoints."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError
from sgm.memory.fast_waypoints import OVER
from sgm.memory.single_steps import ONE_STEP

from .localise import Bools, Ints, Odometry

if TYPE_CHECKING:
    from .navigator import Navigator


@dataclasses.dataclass
class TwoWay:
    """A waypoint w is reached when ‖d(s, ·) − d(w, ·)‖∞ over the memory is below `cutoff` steps (SGM).

    Attributes:
        cutoff: ActingCutoff of the paper, steps; "auto": calibrated on the memory, see `calibrate`.
        over: "all" nodes of the memory (as in the paper), or the "neighbours" of the waypoint, see
            `SparseGraphicalMemory.reached`.
    """

    cutoff: float | str = "auto"
    over: str = "all"

    def bind(self, agent: Navigator) -> None:
        """Test the robots of this agent."""
        if self.over not in OVER:
            raise InputError(f"over is {self.over!r}: expected one of {', '.join(map(repr, OVER))}")
        self._agent = agent
        self.limit = _limit(self.cutoff, agent)

    def __call__(self, rows: Ints, nodes: Ints) -> Bools:
        """(m,) rows of the batch and (m, a) nodes to (m, a) bool."""
        vectors = self._agent.localiser.vectors(rows)
        reached, over = self._agent.memory.reached, self.over
        columns = [reached(vectors, column, self.limit, over=over, embedded=True) for column in nodes.T]
        return columns[0][:, None] if len(columns) == 1 else np.stack(columns, axis=1)


@dataclasses.dataclass
class WithinSteps:
    """A waypoint w is reached when d(s, w) is below `cutoff` steps.

    Attributes:
        cutoff: steps; None: MaxDist of the memory (SoRB); "auto": calibrated on the memory, see `calibrate`.
    """

    cutoff: float | str | None = "auto"

    def bind(self, agent: Navigator) -> None:
        """Test the robots of this agent."""
        self._agent = agent
        self.limit = agent.memory.settings.max_dist if self.cutoff is None else _limit(self.cutoff, agent)

    def __call__(self, rows: Ints, nodes: Ints) -> Bools:
        """(m,) rows of the batch and (m, a) nodes to (m, a) bool."""
        localiser = self._agent.localiser
        if localiser.every_step or self._agent.distance is not None:
            return np.take_along_axis(localiser.to_nodes(rows), nodes, axis=1) < self.limit
        vectors = localiser.vectors(rows)
        columns = [self._agent.memory.steps_to(vectors, column) < self.limit for column in nodes.T]
        return columns[0][:, None] if len(columns) == 1 else np.stack(columns, axis=1)


@dataclasses.dataclass
class WithinRadius:
    """A waypoint is reached within `radius` of the position of its node, by odometry.

    Attributes:
        radius: in the units of odometry.
    """

    radius: float = 0.3

    def bind(self, agent: Navigator) -> None:
        """Test the robots of this agent."""
        if not isinstance(agent.localiser, Odometry):
            raise InputError("arrival within a radius needs odometry: give localiser=Odometry(...)")
        if not self.radius > 0:
            raise InputError(f"radius is {self.radius!r}: expected a length over 0, in the units of odometry")
        self._agent, self._localiser = agent, agent.localiser

    def __call__(self, rows: Ints, nodes: Ints) -> Bools:
        """(m,) rows of the batch and (m, a) nodes to (m, a) bool."""
        gaps = self._localiser.places[nodes, :2] - np.asarray(self._agent.acted_on)[rows, None, :2]
        return np.square(gaps).sum(axis=2) < self.radius**2


ARRIVALS = {"two-way": TwoWay, "distance": WithinSteps, "radius": WithinRadius}
SAMPLE = 500  # edges on which a cutoff is calibrated


def _limit(cutoff: float | str, agent: Navigator) -> float:
    if cutoff == "auto":
        return calibrate(agent)
    if isinstance(cutoff, str) or not cutoff > 0:
        raise InputError(f"cutoff is {cutoff!r}: expected a number of steps over 0, or 'auto'")
    return float(cutoff)


def calibrate(agent: Navigator) -> float:
    """Calibrate the cutoff of an arrival test on a memory, steps: the largest of three values.

    - One step.
    - The noise of the distance: the 90 % quantile over observations one step from a node. A memory that was built from
      an `Experience` has measured its distance over single steps (attribute "one_step").
    - Half of the median gap between nodes that an edge joins, within which a robot is nearer to the one than to the
      other.
    """
    memory, column = agent.memory, 1 if isinstance(agent.arrival, TwoWay) else 0
    noise = 0.0
    if ONE_STEP in memory.attributes:
        measured = memory.attributes[ONE_STEP][:, column]
        measured = measured[np.isfinite(measured)]
        noise = float(np.quantile(measured, 0.9)) if len(measured) else 0.0
    return max(1.0, noise, _median_gap(agent, column) / 2)


def _median_gap(agent: Navigator, column: int) -> float:
    edges, memory = agent.memory.edges(), agent.memory
    if not len(edges.source):
        return 0.0
    if column == 0:
        return float(np.median(edges.weight))
    chosen = np.unique(np.linspace(0, len(edges.source) - 1, SAMPLE).astype(int))
    vectors = memory.embeddings
    starts, ends = (memory.steps_to_nodes(vectors[nodes[chosen]], embedded=True) for nodes in edges[:2])
    gaps: NDArray[np.float32] = np.abs(starts - ends).max(axis=1)
    return float(np.median(gaps))
