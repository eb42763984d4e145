"""Failures of an episode, which are avoided for the rest of it; the memory is not changed."""

from __future__ import annotations

import dataclasses

Edge = tuple[int, int]


@dataclasses.dataclass
class Failures:
    """Edges and nodes that one episode avoids.

    Attributes:
        edges: edges (u, v) whose target was not reached.
        starts: first waypoints that were not reached from where the robot planned. After it has passed an edge it is
            somewhere else, and they may be tried again.
        goals: nodes from which the goal was not reached.
    """

    edges: set[Edge] = dataclasses.field(default_factory=set)
    starts: set[int] = dataclasses.field(default_factory=set)
    goals: set[int] = dataclasses.field(default_factory=set)

    def __bool__(self) -> bool:
        """Whether anything has failed."""
        return bool(self.edges or self.starts or self.goals)

    def forgive(self) -> bool:
        """Clear one kind of failures, because no plan is left: first nodes, then edges; False if there are none."""
        for kind in (self.starts, self.goals, self.edges):
            if kind:
                kind.clear()
                return True
        return False
