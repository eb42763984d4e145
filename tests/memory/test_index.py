"""The index finds what brute force finds, whatever the data looks like, with compiled code and without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgm.memory import compiled, index
from sgm.memory.index import BRUTE, CELLS, TREE, Index


@pytest.fixture(params=["compiled", "plain"])
def path(request, monkeypatch):
    """With numba, and with NumPy and SciPy alone."""
    if request.param == "compiled":
        pytest.importorskip("numba")
    else:
        monkeypatch.setenv(compiled.SWITCH, "0")
    return request.param


def flat(number, seed=0, size=16):
    random = np.random.default_rng(seed)
    basis = np.linalg.qr(random.normal(size=(size, 2)))[0]
    points = random.uniform(0, number**0.5, (number, 2)) @ basis.T
    return (points + 0.02 * random.normal(size=points.shape)).astype(np.float32)


def curved(number, seed=0):
    """A curve that turns through eight planes: not flat, but near and far differ."""
    random = np.random.default_rng(seed)
    angle = random.uniform(0, 60, number)
    turns = angle[:, None] * np.linspace(0.3, 2, 8)
    return (3 * np.concatenate([np.cos(turns), np.sin(turns)], axis=1)).astype(np.float32)


def clustered(number, seed=0):
    """Balls in many dimensions, far apart in different directions: a tree leaves most of them out."""
    random = np.random.default_rng(seed)
    centres = 30 * random.normal(size=(64, 32))
    return (centres[random.integers(64, size=number)] + 0.3 * random.normal(size=(number, 32))).astype(np.float32)


def noise(number, seed=0):
    return np.random.default_rng(seed).normal(size=(number, 32)).astype(np.float32)


def brute(queries, keys, radius):
    gaps = np.sqrt(np.square(queries[:, None].astype(np.float64) - keys).sum(axis=2))
    return [row.tolist() for row in np.nonzero(gaps <= radius)], gaps


WORLDS = {"flat": (flat, 2.0), "curved": (curved, 1.5), "clustered": (clustered, 2.5), "noise": (noise, 5.0)}


@pytest.mark.parametrize("world", WORLDS)
def test_every_way_finds_what_brute_force_finds(path, world, monkeypatch):
    monkeypatch.setattr(index, "SMALL", 200)
    make, radius = WORLDS[world]
    keys = make(1500)
    found = Index(radius)
    for part in np.array_split(keys, 11):
        found.add(part)
        for some in (0.3 * radius, radius, 3 * radius):
            queries = make(40, 1)
            expected, _ = brute(queries, found.keys, some)
            pairs = found.within(queries, some)
            assert [pairs.query.tolist(), pairs.key.tolist()] == expected
            near = found.near(queries, some)
            assert set(zip(*expected, strict=True)) <= set(zip(near.query.tolist(), near.key.tolist(), strict=True))


def test_the_way_is_chosen_by_what_the_data_looks_like(path, monkeypatch):
    monkeypatch.setattr(index, "SMALL", 200)
    kinds = {}
    for world, (make, radius) in WORLDS.items():
        keys = make(4000)
        some = Index(radius)
        some.add(keys[:100])
        some.near(keys[:1], radius)
        assert some.kind == BRUTE
        some.add(keys[100:])
        some.near(keys[:1], radius)
        kinds[world] = some.kind
    assert kinds["flat"] == CELLS and kinds["noise"] == BRUTE
    assert kinds["clustered"] in ((TREE, CELLS) if path == "compiled" else (BRUTE, CELLS))


@given(st.integers(0, 99), st.integers(1, 400), st.integers(1, 6), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
@settings(max_examples=60, deadline=None)
def test_a_cover_tree_leaves_nothing_out_even_of_equal_keys(seed, number, size, radius):
    pytest.importorskip("numba")
    random = np.random.default_rng(seed)
    keys = random.integers(-3, 4, (number, size)).astype(np.float32) / 2
    tree = index._Tree()
    for end in (number // 2, number):
        tree.add(keys[:end])
    queries = random.normal(size=(5, size)).astype(np.float32)
    expected, _ = brute(queries, keys, radius)
    pairs = tree.near(queries, radius, keys)
    assert [pairs.query.tolist(), pairs.key.tolist()] == expected


def test_the_nearest_keys_come_in_order_and_of_equals_the_lower(path, monkeypatch):
    monkeypatch.setattr(index, "SMALL", 200)
    keys = np.concatenate([flat(900), flat(900)])  # every key twice
    some = Index(0.1)
    some.add(keys)
    queries = flat(30, 2)
    found, apart = some.nearest(queries, 5)
    _, gaps = brute(queries, keys, 1.0)
    expected = np.argsort(gaps, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(apart, np.take_along_axis(gaps, expected, axis=1))
    assert some.nearest(queries, 5000)[0].shape == (30, 1800)


def test_keys_that_are_forgotten_are_not_found_and_can_be_others(path, monkeypatch):
    monkeypatch.setattr(index, "SMALL", 200)
    keys, others = flat(1200), flat(1200, 3)
    some = Index(2.0)
    some.add(keys)
    some.within(keys[:5], 2.0)
    some.cut(700)
    some.add(others)
    now = np.concatenate([keys[:700], others])
    pairs = some.within(others[:20], 2.0)
    assert [pairs.query.tolist(), pairs.key.tolist()] == brute(others[:20], now, 2.0)[0]


def test_keys_can_be_held_by_somebody_else(path):
    held = flat(3000)
    some = Index(2.0, lambda: held[:, :8])
    some.add(held[:, :8])
    pairs = some.within(held[:10, :8], 2.0)
    assert [pairs.query.tolist(), pairs.key.tolist()] == brute(held[:10, :8], held[:, :8], 2.0)[0]
    assert some.nbytes < held[:, :8].nbytes


def test_large_offsets_lose_no_neighbour(path, monkeypatch):
    # In single precision |a|² + |b|² − 2 a·b is off by more than the distance of neighbours here.
    monkeypatch.setattr(index, "SMALL", 200)
    for make in (flat, noise):
        keys = make(1000) + np.float32(3000)
        some = Index(2.0)
        some.add(keys)
        expected, _ = brute(keys[:50], keys, 2.0)
        pairs = some.within(keys[:50], 2.0)
        assert [pairs.query.tolist(), pairs.key.tolist()] == expected
