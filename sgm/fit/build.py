"""Building of the memory of a fit, and of the agent that uses it."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.errors import MemoryWarning

from .settings import FitSettings


class Built(NamedTuple):
    """A memory, the agent that uses it if there is a controller, and the reasons for its settings.

    Attributes:
        memory: memory built over the experience.
        agent: the agent; None without a controller.
        choice: the settings that were chosen and how, ready for JSON.
        why: reasons and warnings of the memory, a sentence each.
        rows: (n,) int64 rows of the observations that it was built over.
    """

    memory: sgm.SparseGraphicalMemory
    agent: sgm.Navigator | None
    choice: dict[str, Any]
    why: list[str]
    rows: NDArray[np.int64]


def build(data: sgm.Experience, distance: Any, controller: Any, settings: FitSettings, progress: bool) -> Built:
    """Choose the settings of a memory from the experience (`sgm.choose`), and build it."""
    more: dict[str, Any] = {} if settings.nodes is None else {"nodes": settings.nodes}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", MemoryWarning)
        # Observations are kept if nothing else describes a node.
        keep = data.achieved_goals is None or data.observations.ndim > 2
        more |= {"seed": settings.seed, "keep_observations": keep, "progress": progress}
        choice = sgm.choose(data, distance, controller, **more)
    why = [*choice.why, *(f"Warning: {each.message}" for each in heard if issubclass(each.category, MemoryWarning))]
    agent = None if controller is None else make_agent(choice.memory, controller)
    return Built(choice.memory, agent, choice.asdict(), why, choice.rows)


def make_agent(memory: sgm.SparseGraphicalMemory, controller: Any) -> sgm.Navigator:
    """Make the agent of a fit: a waypoint is reached within MaxDist / 2, and goals are ranked by the whole path.

    The robot need not meet a waypoint exactly: a robot with inertia loses time at each waypoint that it must meet. In
    PointMaze_Large this took about 60 % of the steps of the two-way test, and success did not depend on MaxDist (100 %
    of 40 tasks from 6.7 to 25 steps; the two-way test 68 % to 100 %). The setting was chosen on these 40 tasks.
    """
    cutoff = memory.settings.max_dist / 2
    return sgm.Navigator(memory, controller, router="ranked", arrival="distance", cutoff=cutoff)
