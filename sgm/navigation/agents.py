"""Five agents as configurations of `Navigator`: those of SoRB, SGM, SPTM and ConSPTM, and ours."""

from __future__ import annotations

import math
from typing import Any

from sgm.memory import SparseGraphicalMemory

from .arrive import TwoWay, WithinRadius, WithinSteps
from .blame import LastEdge, MostDoubtful
from .localise import BayesFilter, NearestNode, Odometry
from .navigator import Navigator
from .route import NearestPair, RankedGoals

# Switches off what a plain Navigator does beyond the paper: it remembers failures for the rest of an episode.
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
    """SGM in PointEnv: two-way arrival test, plans between the nearest nodes, no replanning during evaluation."""
    parts = {"arrival": TwoWay(cutoff, over), "router": NearestPair(by, math.inf)}
    return Navigator(memory, controller, **{**AS_PUBLISHED, "max_steps": max_steps, "replan": False, **parts, **more})


def sorb(memory: SparseGraphicalMemory, controller: Any, *, max_steps: int = 18, **more: Any) -> Navigator:
    """SoRB as in the authors' code: attaches to all nodes within MaxDist, minimises hops, heads for a goal nearby."""
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
    """SPTM in ViZDoom: a Bayes filter for localisation, waypoints may be skipped, failed edges cost more.

    The higher cost of a failed edge lasts for the rest of the episode.
    """
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
    """ConSPTM in SafetyGym: localises by images and moves by odometry; with `penalty` and `tries` it is persistent."""
    parts = {
        "localiser": Odometry(position=position, agreeing=agreeing),
        "arrival": WithinRadius(radius),
        "router": RankedGoals(within=math.inf, ahead=ahead, penalty=penalty, tries=tries),
        "blame": LastEdge(skipped_count=False),
        "acts_on": "odometry",
    }
    return Navigator(memory, controller, **{**AS_PUBLISHED, "max_steps": 25, **parts, **more})


__all__ = ["NearestNode", "consptm", "ours", "sgm", "sorb", "sptm"]
