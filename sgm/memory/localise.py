"""Where in the memory an observation is, for many observations at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arrays import Bools, Ints
from .distance import Distance, Floats, between
from .planner import Near


def ranked(distances: NDArray[np.float32], allowed: Bools) -> Near:
    """The allowed nodes, nearest first, from (V,) steps; the very nearest is always among them."""
    order = np.argsort(distances, kind="stable")
    order = np.concatenate([order[:1], order[1:][allowed[order[1:]]]])
    return Near(order, distances[order])


def reached(distance: Distance, nodes: Floats, states: Floats, waypoints: Ints, cutoff: float) -> Bools:
    """Whether ‖d(s, ·) − d(w, ·)‖∞ over all nodes is under a cutoff, steps.

    (V, e) nodes, (n, e) states and (n,) waypoint nodes to (n,) bool. fast_waypoints.py has what a memory uses.
    """
    gaps = np.abs(between(distance, states, nodes) - between(distance, nodes[waypoints], nodes))
    is_reached: Bools = gaps.max(axis=1, initial=0) < np.float32(cutoff)
    return is_reached
