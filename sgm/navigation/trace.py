"""The steps of an episode, recorded for figures."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .navigator import FOLLOWING, NOWHERE, Navigator


@dataclasses.dataclass
class Trace:
    """One episode, step by step.

    Attributes:
        goal: the goal, as an observation or as a pose.
        observations: one for each step, or the poses of the robot.
        waypoints: the node that was the target at each step; −1: the goal itself.
        plans: (step, nodes) of every plan.
        cuts: (step, u, v) of every edge that was blamed.
        success: whether the goal was reached.
    """

    goal: Any
    observations: list[NDArray[Any]] = dataclasses.field(default_factory=list)
    waypoints: list[int] = dataclasses.field(default_factory=list)
    plans: list[tuple[int, list[int]]] = dataclasses.field(default_factory=list)
    cuts: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)
    success: bool = False

    def note(self, agent: Any, row: int, step: int, seen: NDArray[Any]) -> None:
        """Add a step of the episode in this row of the batch."""
        self.observations.append(np.array(seen))
        if isinstance(agent, Navigator):
            following = agent.phase[row] == FOLLOWING
            self.waypoints.append(int(agent.waypoint[row]) if following else NOWHERE)
            if row in agent.planned:
                self.plans.append((step, agent.path(row).tolist()))
            self.cuts += [(step, u, v) for episode, u, v in agent.blamed if episode == row]

    def asdict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON."""
        return {
            "goal": np.asarray(self.goal).tolist(),
            "observations": [np.asarray(item).tolist() for item in self.observations],
            "waypoints": self.waypoints,
            "plans": [{"step": step, "nodes": nodes} for step, nodes in self.plans],
            "cuts": [{"step": step, "u": u, "v": v} for step, u, v in self.cuts],
            "success": self.success,
        }
