"""What failed in an episode, and is not tried again in it; the memory knows nothing of it."""

from __future__ import annotations

import dataclasses

Edge = tuple[int, int]


@dataclasses.dataclass
class Failures:
    """What one episode does without.

    Attributes:
        edges: edges (u, v) that were not passed.
        starts: nodes that were not reached from where the robot was when it planned. Once it has passed an edge it is
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
        """Forget something, because nothing is left to try: nodes first, then edges; False if there was nothing."""
        for kind in (self.starts, self.goals, self.edges):
            if kind:
                kind.clear()
                return True
        return False
