"""Where in the memory an observation is, for many observations at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arrays import Bools, Ints
from .distance import Distance, Floats, between
from .planner import Near

_PROBES = 8  # nodes that are enough to refute most "waypoint reached" claims


def nearest(distances: Floats) -> Near:
    """The nearest node of each row: (n, V) steps to (n,) nodes and (n,) steps. Ties go to the lower node."""
    node = distances.argmin(axis=1)
    return Near(node.astype(np.int64), distances[np.arange(len(node)), node])


def ranked(distances: NDArray[np.float32], allowed: Bools) -> Near:
    """The allowed nodes, nearest first, from (V,) steps; the very nearest is always among them."""
    order = np.argsort(distances, kind="stable")
    order = np.concatenate([order[:1], order[1:][allowed[order[1:]]]])
    return Near(order, distances[order])


def reached(distance: Distance, nodes: Floats, states: Floats, waypoints: Ints, cutoff: float) -> Bools:
    """Whether ‖d(s, ·) − d(w, ·)‖∞ < cutoff over all nodes, for (n, e) states and (n,) waypoint nodes.

    A few nodes suffice to refute it exactly, and nearly always do; only a pass needs all.
    """
    spread = np.linspace(0, len(nodes) - 1, min(_PROBES, len(nodes))).astype(np.int64)
    passed = np.arange(len(states))
    for columns in (np.unique(np.concatenate([waypoints, spread])), np.arange(len(nodes))):
        if len(passed):
            ours = between(distance, states[passed], nodes[columns])
            theirs = between(distance, nodes[waypoints[passed]], nodes[columns])
            passed = passed[np.abs(ours - theirs).max(axis=1) < np.float32(cutoff)]
    result = np.zeros(len(states), np.bool_)
    result[passed] = True
    return result
