"""Candidates within τ_p are found in a grid; comparing all pairs finds the same ones."""

import numpy as np
import pytest

pytest.importorskip("numba")

from sgm.memory.fast_table import near_features


def all_pairs(columns, nodes, limit):
    """Pairs (observation, earlier candidate) within the limit, by comparing everything with everything."""
    gaps = columns[:, :, None].astype(np.float64) - columns[:, None]
    own, candidate = np.nonzero((gaps**2).sum(axis=0) <= limit)
    kept = (own >= nodes) & (candidate < own)
    return own[kept] - nodes, candidate[kept]


@pytest.mark.parametrize("axes", [1, 2, 5])
@pytest.mark.parametrize("limit", [0.0, 0.01, 0.3, 4.0, np.inf])
@pytest.mark.parametrize("kind", ["spread", "repeated", "equal", "far"])
def test_the_grid_finds_the_pairs_that_comparing_all_finds(axes, limit, kind):
    random = np.random.default_rng(axes)
    columns = random.normal(size=(axes, 90)).astype(np.float32)
    if kind == "repeated":
        columns = columns[:, random.integers(0, 12, 90)]
    elif kind == "equal":
        columns[:] = columns[:, :1]
    elif kind == "far":
        columns[0, ::7] += 1e6
    found, expected = near_features(np.ascontiguousarray(columns), 40, limit), all_pairs(columns, 40, limit)
    np.testing.assert_array_equal(found, expected)
