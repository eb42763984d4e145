"""Experience given in the place of observations: its arrays, found by name, so that this room imports no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

OF_THE_DATA: Any = object()  # the default of `episode`: the episodes that the data has, if it has any
ACHIEVED_GOAL = "achieved_goal"  # the attribute that holds a node's achieved goal
POSITION = "position"  # the attribute that holds a node's true position, for figures and evaluation


class Given(NamedTuple):
    """What was given to `extend` or `choose_threshold`.

    Attributes:
        observations: (n, ...) observations.
        episode: see `extend`.
        attributes: see `extend`.
        whole_episodes: whether the episodes are those of the data, which end with it.
        steps: (n,) int64 step of each observation within its episode, if these are the data's episodes; or None.
    """

    observations: Any
    episode: Any
    attributes: Any
    whole_episodes: bool
    steps: NDArray[np.int64] | None


def unpack(data: Any, episode: Any, attributes: Any = None) -> Given:
    """The arrays of an `sgm.Experience`, or observations as they are."""
    of_the_data = episode is OF_THE_DATA
    if not (hasattr(data, "observations") and hasattr(data, "episodes")):
        return Given(data, None if of_the_data else episode, attributes, False, None)
    if attributes is None or isinstance(attributes, Mapping):
        known = {ACHIEVED_GOAL: getattr(data, "achieved_goals", None), POSITION: getattr(data, "positions", None)}
        own = {name: values for name, values in known.items() if values is not None}
        attributes = {**own, **(attributes or {})} or None
    steps = getattr(data, "steps", None) if of_the_data else None
    steps = None if steps is None else np.asarray(steps, np.int64)
    return Given(data.observations, data.episodes if of_the_data else episode, attributes, of_the_data, steps)
