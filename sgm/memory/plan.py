"""The result of planning."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Ints


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """A shortest path through the memory.

    Attributes:
        nodes: (L,) int64 node ids, from the node to which the start is attached to the node to which the goal is
            attached.
        waypoints: (L, ...) targets of the controller: the observations of the nodes if the memory stores them,
            otherwise their embeddings.
        weights: (L − 1,) float64 cost of each edge, steps: its weight, or the cost that the cleanup policy gives it.
        steps: (L − 1,) float64 weight of each edge: the steps that it takes if the first try succeeds.
        cost: the value that the planner minimised: the sum of `weights`, or the number of hops when planning by hops.
        start_distance: steps from the start to the first node; 0 when the start was given as a node.
        goal_distance: steps from the last node to the goal; 0 when the goal was given as a node.
    """

    nodes: Ints
    waypoints: NDArray[Any]
    weights: NDArray[np.float64]
    steps: NDArray[np.float64]
    cost: float
    start_distance: float = 0.0
    goal_distance: float = 0.0

    @property
    def total(self) -> float:
        """Cost of the whole path in steps, the sum of the costs of edges, `start_distance` and `goal_distance`."""
        return self.start_distance + float(self.weights.sum()) + self.goal_distance

    @property
    def length(self) -> float:
        """Length of the whole path if the first try of every edge succeeds, steps."""
        return self.start_distance + float(self.steps.sum()) + self.goal_distance

    def __len__(self) -> int:
        """Number of nodes on the path."""
        return len(self.nodes)

    def __str__(self) -> str:
        """Table with one line for each node: steps so far, node, steps of the edge that leads there."""
        lines = [f"plan of {len(self)} nodes, {self.length:.1f} steps", f"{'steps':>8}  {'node':>6}  {'edge':>6}"]
        so_far = self.start_distance
        for position, node in enumerate(self.nodes):
            steps = "start" if not position else f"{self.steps[position - 1]:.1f}"
            so_far += 0.0 if not position else float(self.steps[position - 1])
            lines.append(f"{so_far:>8.1f}  {node:>6}  {steps:>6}")
        lines.append(f"{so_far + self.goal_distance:>8.1f}    goal  {self.goal_distance:>6.1f}")
        return "\n".join(lines)

    def asdict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
