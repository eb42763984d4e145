"""Five agents as configurations of `Navigator`: SoRB's, SGM's, SPTM's, ConSPTM's and ours."""

from __future__ import annotations

import math
from typing import Any

from sgm.memory import SparseGraphicalMemory

from .arrive import TwoWay, WithinRadius, WithinSteps
from .blame import LastEdge, MostDoubtful
from .localise import BayesFilter, NearestNode, Odometry
from .navigator import Navigator
from .route import NearestPair, RankedGoals

# What a plain Navigator does beyond the paper: failures remembered in the episode, clipped distances not attached to.
AS_PUBLISHED: dict[str, Any] = {"removals": "none", "first_leg": False}


def sgm(
    memory: SparseGraphicalMemory,
    controller: Any,
    *,
    max_steps: int = 30,
    cutoff: float = 1.0,
    by: str = "distance",
    over: str = "all",
    **more: Any,
) -> Navigator:
    """SGM in PointEnv: two-way arrival, the nearest nodes, no second plan while it is evaluated."""
    parts = {"arrival": TwoWay(cutoff, over), "router": NearestPair(by, math.inf)}
    return Navigator(memory, controller, **{**AS_PUBLISHED, "max_steps": max_steps, "replan": False, **parts, **more})


def sorb(memory: SparseGraphicalMemory, controller: Any, *, max_steps: int = 18, **more: Any) -> Navigator:
    """SoRB, as in the authors' code: attached to all nodes within MaxDist, hops counted, the goal when it is near."""
    parts = {"arrival": WithinSteps(None), "router": NearestPair("hops", None, "all"), "hopping": True}
    return Navigator(memory, controller, **{**AS_PUBLISHED, "max_steps": max_steps, "replan": False, **parts, **more})


def sptm(
    memory: SparseGraphicalMemory,
    controller: Any,
    *,
    cutoff: float = 2.5,
    ahead: int = 6,
    penalty: float = 50.0,
    sharpness: float = 2.0,
    leak: float = 0.1,
    hops: int = 1,
    embedding: str | None = None,
    doubtful: bool = False,
    **more: Any,
) -> Navigator:
    """SPTM in ViZDoom: localised over time, waypoints ahead may be skipped, what failed costs more in the episode."""
    parts = {
        "localiser": BayesFilter(embedding, sharpness, leak, hops),
        "arrival": WithinSteps(cutoff),
        "router": RankedGoals(within=math.inf, ahead=ahead, penalty=penalty),
        "blame": MostDoubtful() if doubtful else LastEdge(),
    }
    return Navigator(memory, controller, **{**AS_PUBLISHED, "max_steps": 8, **parts, **more})


def ours(memory: SparseGraphicalMemory, controller: Any, **more: Any) -> Navigator:
    """`sptm` that blames the most doubtful of the last few edges."""
    return sptm(memory, controller, **{"doubtful": True, **more})


def consptm(
    memory: SparseGraphicalMemory,
    controller: Any,
    *,
    radius: float = 0.3,
    ahead: int = 3,
    penalty: float = 0.0,
    tries: int = 1,
    position: str = "pose",
    agreeing: int = 1,
    **more: Any,
) -> Navigator:
    """ConSPTM in SafetyGym: looks to know where it is, goes by odometry; with a penalty and tries it is persistent."""
    parts = {
        "localiser": Odometry(position=position, agreeing=agreeing),
        "arrival": WithinRadius(radius),
        "router": RankedGoals(within=math.inf, ahead=ahead, penalty=penalty, tries=tries),
        "blame": LastEdge(skipped_count=False),
        "acts_on": "odometry",
    }
    return Navigator(memory, controller, **{**AS_PUBLISHED, "max_steps": 25, **parts, **more})


__all__ = ["NearestNode", "consptm", "ours", "sgm", "sorb", "sptm"]
