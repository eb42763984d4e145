"""Unpack an `sgm.Experience` given instead of observations; by attribute names, so that sgm.data is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

OF_THE_DATA: Any = object()  # default of `episode`: the episodes of the data, if it has any
ACHIEVED_GOAL = "achieved_goal"  # attribute with the achieved goal of each node
POSITION = "position"  # attribute with the ground-truth position of each node, for figures and evaluation


class Given(NamedTuple):
    """The arguments of `extend` or `choose_threshold`, unpacked.

    Attributes:
        observations: (n, ...) observations.
        episode: see `extend`.
        attributes: see `extend`.
        whole_episodes: whether the episodes are those of an Experience, which end with it.
        steps: (n,) int64 step of each observation within its episode, if the episodes are those of an Experience that
            has them; otherwise None.
    """

    observations: Any
    episode: Any
    attributes: Any
    whole_episodes: bool
    steps: NDArray[np.int64] | None


def unpack(data: Any, episode: Any, attributes: Any = None) -> Given:
    """Return the arrays of an `sgm.Experience`; other data is taken as observations."""
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
