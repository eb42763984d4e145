"""Localisation in the memory: nodes by distance, and whether waypoints are reached."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arrays import Bools, Ints
from .distance import Distance, Floats, between
from .planner import Near


def ranked(distances: NDArray[np.float32], allowed: Bools) -> Near:
    """Sort the allowed nodes by (V,) distances, nearest first; the nearest node is always included."""
    order = np.argsort(distances, kind="stable")
    order = np.concatenate([order[:1], order[1:][allowed[order[1:]]]])
    return Near(order, distances[order])


def reached(distance: Distance, nodes: Floats, states: Floats, waypoints: Ints, cutoff: float) -> Bools:
    """Whether ‖d(s, ·) − d(w, ·)‖∞ over all nodes is below a cutoff, for each state s and its waypoint w: (n,) bool.

    This is the readable version; a memory uses fast_waypoints.py.

    Args:
        distance: distance of the memory.
        nodes: (V, e) embeddings of all nodes.
        states: (n, e) embeddings of states.
        waypoints: (n,) node of each waypoint.
        cutoff: steps.
    """
    gaps = np.abs(between(distance, states, nodes) - between(distance, nodes[waypoints], nodes))
    is_reached: Bools = gaps.max(axis=1, initial=0) < np.float32(cutoff)
    return is_reached
