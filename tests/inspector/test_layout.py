"""The layout of memories without positions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import procrustes

from sgm.inspector.layout import LANDMARKS, beside_neighbours, computed


def neighbours(points, radius):
    steps = np.linalg.norm(points[:, None] - points, axis=-1)
    source, target = np.nonzero((steps < radius) & (steps > 0))
    return source, target, steps[source, target]


def test_points_of_a_plane_come_back_where_they_were():
    points = np.random.default_rng(0).uniform(0, 10, (400, 2))
    found = computed(400, *neighbours(points, 2.5))
    _, _, disparity = procrustes(points, found)
    assert disparity < 0.02


def test_the_layout_is_the_same_every_time():
    points = np.random.default_rng(1).uniform(0, 10, (LANDMARKS * 3, 2))
    edges = neighbours(points, 2.0)
    np.testing.assert_array_equal(computed(len(points), *edges), computed(len(points), *edges))


def test_components_stand_side_by_side_and_do_not_overlap():
    random = np.random.default_rng(2)
    one, two = random.uniform(0, 5, (60, 2)), random.uniform(0, 5, (40, 2))
    first, second = neighbours(one, 2.0), neighbours(two, 2.0)
    source = np.concatenate([first[0], second[0] + 60])
    target = np.concatenate([first[1], second[1] + 60])
    places = computed(103, source, target, np.concatenate([first[2], second[2]]))
    assert np.isfinite(places).all()
    boxes = [
        (places[part].min(axis=0), places[part].max(axis=0))
        for part in (slice(60), slice(60, 100), *(slice(n, n + 1) for n in (100, 101, 102)))
    ]
    for number, (low, high) in enumerate(boxes):
        for other_low, other_high in boxes[number + 1 :]:
            assert (high < other_low).any() or (other_high < low).any()


@pytest.mark.parametrize("nodes", [0, 1, 2, 3])
def test_small_memories_have_a_layout(nodes):
    source, target = np.arange(max(0, nodes - 1)), np.arange(1, max(1, nodes))
    places = computed(nodes, source, target, np.ones(len(source)))
    assert places.shape == (nodes, 2) and np.isfinite(places).all()
    if nodes > 1:
        assert np.linalg.norm(places[1] - places[0]) == pytest.approx(1.0)


def test_edges_of_weight_zero_join_too():
    places = computed(3, np.array([0, 1]), np.array([1, 2]), np.array([0.0, 2.0]))
    assert np.linalg.norm(places[1] - places[0]) < 1e-3 < np.linalg.norm(places[2] - places[1])


def test_what_has_no_place_goes_amid_its_neighbours_or_amid_all():
    places = np.array([[0.0, 0.0], [2.0, 0.0], [np.nan, np.nan], [np.nan, 1.0]])
    filled = beside_neighbours(places, np.array([2, 0]), np.array([1, 2]))
    assert np.isfinite(filled).all() and 0 <= filled[2, 0] <= 2 and filled[3].tolist() == [1.0, 0.0]
