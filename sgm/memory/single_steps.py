"""Measure a distance over single steps of the buffer, as the scale of its noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import Ints
from .distance import Distance, Floats, between, embed, paired

ONE_STEP = "one_step"  # name of the node attribute with the result
_SAMPLE = 300  # number of nodes whose next observation is compared


def measure(distance: Distance, nodes: Floats, rows: Ints, observations: Any, episodes: Ints) -> Floats:
    """Compute d(s, s') and ‖d(s, ·) − d(s', ·)‖∞ over the memory, where s' is the observation one step after node s.

    Args:
        distance: distance of the memory.
        nodes: (V, e) embeddings of the nodes.
        rows: (V,) row of the observation of each node; out of range for nodes of another batch.
        observations: (n, ...) the buffer.
        episodes: (n,) episode of each observation.

    Returns:
        (V, 2) float32 steps; NaN for nodes that are not in the sample or at the end of an episode.
    """
    inside = (rows >= 0) & (rows + 1 < len(episodes))
    known = np.flatnonzero(inside)
    known = known[episodes[rows[known] + 1] == episodes[rows[known]]]
    chosen = known[np.unique(np.linspace(0, len(known) - 1, min(len(known), _SAMPLE)).astype(np.int64))]
    measured = np.full((len(nodes), 2), np.nan, np.float32)
    if len(chosen):
        here, following = nodes[chosen], embed(distance, observations[rows[chosen] + 1], nodes.shape[1])
        measured[chosen, 0] = paired(distance, here, following)
        measured[chosen, 1] = np.abs(between(distance, here, nodes) - between(distance, following, nodes)).max(axis=1)
    return measured
