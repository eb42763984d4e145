"""Distances over temporal windows: the filters, the ends of episodes, and a memory over frame numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sgm
from sgm.distances import window as module
from sgm.distances.window import (
    AGGREGATES,
    WindowDistance,
    window_embeddings,
    window_index,
    window_steps,
    window_table,
)
from sgm.errors import InputError

aggregates = st.sampled_from(sorted(AGGREGATES))
lengths = st.lists(st.integers(1, 9), min_size=1, max_size=6)


class Plane:
    """An asymmetric distance between points of the plane."""

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        way = goals[None] - starts[:, None]
        return np.linalg.norm(way, axis=2) + np.maximum(way[..., 0], 0)


class ByCloseness(Plane):
    """The same with a closeness that falls with the steps, and a count of what was calibrated."""

    calibrated = 0

    def closeness(self, starts, goals):
        return -super().__call__(starts, goals)

    def steps(self, closeness):
        self.calibrated += closeness.size
        return -closeness


def points(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 6, (count, 2)).astype(np.float32)


def episode_numbers(sizes: list[int]) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


def one_by_one(steps: np.ndarray, episodes: np.ndarray, window: int, aggregate: str) -> np.ndarray:
    """The definition: every pair of windows, cut at the ends of episodes (the mean repeats what is there)."""
    result = np.empty_like(steps)
    for i in range(len(steps)):
        for j in range(len(steps)):
            pairs = []
            for a in range(i - window, i + window + 1):
                for b in range(j - window, j + window + 1):
                    inside = all(0 <= t < len(steps) and episodes[t] == episodes[o] for t, o in ((a, i), (b, j)))
                    if inside:
                        pairs.append(steps[a, b])
                    elif aggregate == "mean":
                        own = [np.flatnonzero(episodes == episodes[o]) for o in (i, j)]
                        pairs.append(steps[np.clip(a, own[0][0], own[0][-1]), np.clip(b, own[1][0], own[1][-1])])
            result[i, j] = {"farthest": np.max, "closest": np.min, "mean": np.mean}[aggregate](pairs)
    return result


@given(lengths, st.integers(0, 3), aggregates, st.integers(0, 100))
def test_the_filters_are_the_aggregate_over_all_pairs_of_two_windows(sizes, window, aggregate, seed):
    episodes, vectors = episode_numbers(sizes), points(sum(sizes), seed)
    expected = one_by_one(Plane()(vectors, vectors), episodes, window, aggregate)
    exact = window_table(Plane(), vectors, episodes, window, aggregate, dtype=np.float32)
    np.testing.assert_allclose(exact, expected, rtol=1e-5, atol=1e-6)
    small = window_table(Plane(), vectors, episodes, window, aggregate)
    assert small.dtype == np.uint8
    assert np.abs(small / 8 - expected).max() <= 1 / 16 + 1e-5


@pytest.mark.parametrize("aggregate", sorted(AGGREGATES))
def test_blocks_of_rows_make_the_same_table_as_all_rows_at_once(aggregate, monkeypatch):
    episodes, vectors = episode_numbers([11, 1, 7, 2, 20]), points(41)
    whole = window_table(Plane(), vectors, episodes, 2, aggregate)
    for rows in (1, 3, 10):
        monkeypatch.setattr(module, "_BLOCK", 41 * rows)
        np.testing.assert_array_equal(window_table(Plane(), vectors, episodes, 2, aggregate), whole)


def test_windows_end_where_episodes_do():
    index = window_index([5, 5, 5, 2, 7, 7], 2)
    np.testing.assert_array_equal(
        index,
        [[0, 0, 0, 1, 2], [0, 0, 1, 2, 2], [0, 1, 2, 2, 2], [3, 3, 3, 3, 3], [4, 4, 4, 5, 5], [4, 4, 5, 5, 5]],
    )
    assert window_index([], 2).shape == (0, 5)


@given(lengths, st.integers(0, 2), aggregates)
def test_windows_gathered_for_live_use_give_the_same_numbers(sizes, window, aggregate):
    episodes, vectors = episode_numbers(sizes), points(sum(sizes))
    table = window_table(Plane(), vectors, episodes, window, aggregate, dtype=np.float32)
    windows = window_embeddings(vectors, episodes, window)
    assert windows.shape == (sum(sizes), 2 * window + 1, 2)
    for distance in (Plane(), ByCloseness()):
        steps = window_steps(distance, windows[:3], windows, aggregate)
        np.testing.assert_allclose(steps, table[:3], rtol=1e-5, atol=1e-6)


def test_only_the_pair_that_counts_is_calibrated():
    distance, windows = ByCloseness(), window_embeddings(points(30), np.zeros(30), 2)
    assert window_steps(distance, windows[:4, 2:3], windows).shape == (4, 30)
    assert distance.calibrated == 4 * 30


def test_farthest_is_never_closer_and_closest_never_farther():
    episodes, vectors = episode_numbers([20, 20]), points(40)
    closest, alone, mean, farthest = (
        window_table(Plane(), vectors, episodes, window, aggregate, dtype=np.float32)
        for window, aggregate in ((2, "closest"), (0, "mean"), (2, "mean"), (2, "farthest"))
    )
    assert (closest <= alone).all() and (alone <= farthest).all()
    assert (closest <= mean).all() and (mean <= farthest).all()


def test_a_uint8_table_ends_at_255_levels():
    vectors = np.array([[0, 0], [0, 100], [0, 3]], np.float32)
    table = window_table(Plane(), vectors, [0, 1, 2], 2)
    np.testing.assert_array_equal(table, [[0, 255, 24], [255, 0, 255], [24, 255, 0]])
    np.testing.assert_array_equal(window_table(Plane(), vectors, [0, 1, 2], 2, scale=1)[0], [0, 100, 3])


def test_a_table_is_looked_up_by_frame_number():
    table = np.arange(9, dtype=np.uint8).reshape(3, 3)
    distance = WindowDistance(table)
    rows = distance.embed([2, 0])
    np.testing.assert_array_equal(distance(rows, distance.embed([0, 1, 2])), np.array([[6, 7, 8], [0, 1, 2]]) / 8)
    np.testing.assert_array_equal(distance.pairs(rows, rows), [1, 0])
    assert distance(rows, rows).dtype == distance.pairs(rows, rows).dtype == np.float32
    assert np.shares_memory(distance.matrix, table)
    exact = WindowDistance(table.astype(np.float32))
    np.testing.assert_array_equal(exact(rows, rows), [[8, 6], [2, 0]])
    prints = {d.fingerprint for d in (distance, exact, WindowDistance(table, 4), WindowDistance(table.T.copy()))}
    assert len(prints) == 4 and WindowDistance(table.copy()).fingerprint in prints


def test_a_memory_is_built_over_a_window_table():
    episodes, vectors = episode_numbers([30, 30]), points(60)
    distance = WindowDistance(window_table(Plane(), vectors, episodes, 1))
    memory = sgm.SparseGraphicalMemory(distance, tau_a=3.0, tau_p=None, scope="memory")
    report = memory.extend(np.arange(60))
    by_table = sgm.SparseGraphicalMemory(sgm.TableDistance(distance.matrix / 8), tau_a=3.0, tau_p=None, scope="memory")
    np.testing.assert_array_equal(by_table.extend(np.arange(60)).assignment, report.assignment)
    assert 1 < len(memory) < 60


def test_wrong_input_is_refused():
    vectors = points(4)
    with pytest.raises(InputError, match="'median'.*'farthest', 'closest', 'mean'"):
        window_table(Plane(), vectors, np.zeros(4), aggregate="median")
    with pytest.raises(InputError, match=r"\(4, 2\) for 3 frames"):
        window_table(Plane(), vectors, np.zeros(3))
    with pytest.raises(InputError, match="one episode after the other"):
        window_table(Plane(), vectors, [0, 1, 1, 0])
    with pytest.raises(InputError, match="window is -1"):
        window_table(Plane(), vectors, np.zeros(4), -1)
    with pytest.raises(InputError, match="scale is 0"):
        window_table(Plane(), vectors, np.zeros(4), scale=0)
    with pytest.raises(InputError, match="int16: expected uint8 or float32"):
        window_table(Plane(), vectors, np.zeros(4), dtype=np.int16)
    with pytest.raises(InputError, match="expected one of"):
        window_steps(Plane(), vectors[None], vectors[None], "nearest")
    with pytest.raises(InputError, match=r"expected \(n, n\) uint8 or float32"):
        WindowDistance(np.zeros((2, 3), np.uint8))
    with pytest.raises(InputError, match="row 4 is not in the table"):
        WindowDistance(np.zeros((4, 4), np.uint8)).embed([4])
    assert window_table(Plane(), points(0), []).shape == (0, 0)
