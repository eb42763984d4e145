"""Comparisons of Algorithm 1: short enough for an edge, near in feature space (Eq. 4), inconsistent (Eq. 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arrays import Bools, Ints
from .settings import Settings

Floats = NDArray[np.float32]


def within(distance: Floats, settings: Settings) -> Bools:
    """Whether distances are short enough for an edge."""
    limit = np.float32(settings.max_dist)
    near: Bools = distance < limit if settings.strict else distance <= limit
    return near


def exceeds(difference: Floats, settings: Settings) -> Bools:
    """Whether differences of distances are too large for a merge (Eq. 3)."""
    tau = np.float32(settings.tau_a)
    apart: Bools = difference >= tau if settings.strict else difference > tau
    return apart


def perceptual_pairs(node_features: Floats, features: Floats, settings: Settings) -> tuple[Ints, Ints]:
    """Find the pairs (observation, earlier candidate) within τ_p in feature space (Eq. 4).

    They are sorted by observation, then candidate. Candidates are numbered as in fast_merges.py.
    """
    nodes, size = len(node_features), len(features)
    if np.isinf(settings.tau_p):
        return nonzero(np.arange(nodes + size) < nodes + np.arange(size)[:, None])
    universe = np.concatenate([node_features, features])
    sieve = _sieve_by_differences if universe.shape[1] <= 8 else _sieve_by_product
    observation, candidate = nonzero(sieve(universe, nodes, settings.tau_p))
    earlier = candidate < nodes + observation
    observation, candidate = observation[earlier], candidate[earlier]
    return measured_pairs(universe, nodes, observation, candidate, settings)


def measured_pairs(
    universe: Floats, nodes: int, observation: Ints, candidate: Ints, settings: Settings
) -> tuple[Ints, Ints]:
    """Keep the pairs that are within τ_p.

    The rounding of a sieve depends on the block, so each pair that passes the sieve is measured again on its own.
    """
    gap = universe[nodes + observation].astype(np.float64) - universe[candidate]
    length = np.sqrt(np.square(gap).sum(axis=1))
    near = length < settings.tau_p if settings.strict else length <= settings.tau_p
    return observation[near], candidate[near]


def _sieve_by_differences(universe: Floats, nodes: int, tau_p: float) -> Bools:
    """(B, V + B) mask of all pairs within τ_p and a few others; for short features."""
    squares = np.zeros((len(universe) - nodes, len(universe)), np.float32)
    for coordinate in universe.T:
        gap = np.subtract.outer(coordinate[nodes:], coordinate)
        squares += np.multiply(gap, gap, out=gap)
    near: Bools = squares <= np.float32(tau_p**2 * (1 + 1e-5) + 1e-30)
    return near


def _sieve_by_product(universe: Floats, nodes: int, tau_p: float) -> Bools:
    """(B, V + B) mask of all pairs within τ_p and a few others; for long features.

    |a − b|² ≤ τ² is equivalent to a·b − |b|²/2 ≥ (|a|² − τ²)/2: one matrix product and one comparison.
    """
    wide = universe.astype(np.float64)
    norms = np.square(wide).sum(axis=1)
    slack = 1e-12 * wide.shape[1] * norms.max(initial=0) + 1e-30
    left = np.concatenate([wide[nodes:], np.ones((len(wide) - nodes, 1))], axis=1)
    right = np.concatenate([wide, -0.5 * norms[:, None]], axis=1)
    near: Bools = left @ right.T >= 0.5 * (norms[nodes:, None] - tau_p**2) - slack
    return near


def nonzero(mask: Bools) -> tuple[Ints, Ints]:
    """Return np.nonzero of a matrix, several times as fast."""
    row, column = np.divmod(np.flatnonzero(mask), max(1, mask.shape[1]))
    return row, column
