"""The judge of distances: on distances whose quality is known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sgm.distances import TableDistance
from sgm.distances.precision import close_pairs, evaluate_distance, far_pairs
from sgm.distances.window import WindowDistance, window_table
from sgm.errors import InputError


class Truth:
    """The distance between poses, in steps of 10 units, of observations that are poses; headings count for nothing."""

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        return np.linalg.norm(starts[:, None, :2] - goals[:, :2], axis=2) / 10


class Blind(Truth):
    """Knows nothing."""

    def __call__(self, starts, goals):
        return np.full((len(starts), len(goals)), 7.0)


class Aliased(Truth):
    """Takes places 1,000 units apart in x for one another."""

    def embed(self, observations):
        return np.asarray(observations, np.float32) * [1, 1, 0] % [1000, 1e9, 1]

    def __call__(self, starts, goals):
        return super().__call__(starts.astype(np.float32), goals.astype(np.float32))


def rollouts(episodes: int = 12, steps: int = 80, width: float = 2000, seed: int = 0) -> np.ndarray:
    """Straight walks of 10 units a step in the direction of x: (episodes, steps, 3) poses."""
    random = np.random.default_rng(seed)
    x = random.uniform(0, width, (episodes, 1)) + 10 * np.arange(steps)
    y = np.broadcast_to(random.uniform(0, 300, (episodes, 1)), x.shape)
    return np.stack([x, y, np.broadcast_to(random.uniform(0, 360, (episodes, 1)), x.shape)], axis=2)


def test_the_truth_is_perfect_up_to_headings():
    poses = rollouts()
    result = evaluate_distance(Truth(), poses, poses, heading=180)
    assert result.auc == 1
    for accepted in result.accepted:
        assert accepted.precision == 1 and accepted.false == 0
        assert accepted.threshold <= 10 and abs(accepted.reached - accepted.recall) < 0.01
    assert evaluate_distance(Truth(), poses, poses).accepted[0].precision < 1
    assert evaluate_distance(Truth(), poses, poses).near < result.near


def test_a_blind_distance_accepts_everything_or_nothing():
    poses = rollouts()
    result = evaluate_distance(Blind(), poses, poses)
    assert result.auc == 0.5
    units = np.linalg.norm(poses[:, None, :, None, :2] - poses[:, None, :, :2], axis=4)
    across = ~np.eye(len(poses), dtype=bool)
    for accepted in result.accepted:
        assert accepted.reached == 1 and accepted.threshold == 7
        assert accepted.precision == pytest.approx(result.near)
        assert accepted.false == pytest.approx((units[across] > 200).mean())
    assert result.pairs == 12 * 11 * 80**2


def test_aliasing_shows_across_rollouts_and_hardly_in_the_auc():
    poses = rollouts(width=4000)
    result = evaluate_distance(Aliased(), poses, poses)
    assert result.auc > 0.9
    assert result.accepted[0].false > 0.3


def test_headings_are_compared_around_the_circle():
    poses = np.zeros((2, 30, 3))
    poses[0, :, 2], poses[1, :, 2] = 359, 3
    assert evaluate_distance(Truth(), poses, poses, heading=5).near == 1
    with pytest.raises(InputError, match="no two of different rollouts"):
        evaluate_distance(Truth(), poses, poses, heading=3)


def test_a_window_table_is_judged_by_frame_numbers():
    poses = rollouts(6, 40)
    vectors, episodes = poses.reshape(-1, 3), np.repeat(np.arange(6), 40)
    frames = np.arange(240).reshape(6, 40)
    alone = WindowDistance(window_table(Truth(), vectors, episodes, 0, dtype=np.float32))
    assert evaluate_distance(alone, frames, poses) == evaluate_distance(Truth(), poses.astype(np.float32), poses)
    judged = evaluate_distance(WindowDistance(window_table(Truth(), vectors, episodes)), frames, poses, heading=180)
    assert judged.accepted[0].false == 0


def test_it_is_repeatable_random_and_ready_for_json():
    poses = rollouts(40)
    distance = TableDistance(np.random.default_rng(0).random((3200, 3200)))
    frames = np.arange(3200).reshape(40, 80)
    result = evaluate_distance(distance, frames, poses, number=500, pairs=300, seed=1)
    assert result == evaluate_distance(distance, frames, poses, number=500, pairs=300, seed=1)
    assert result != evaluate_distance(distance, frames, poses, number=500, pairs=300, seed=2)
    assert abs(result.auc - 0.5) < 0.1
    assert json.loads(json.dumps(result.asdict()))["accepted"][1]["recall"] == 0.1


@pytest.mark.parametrize("length", [26, 30, 200])
def test_pairs_are_as_far_apart_as_they_should_be(length):
    random = np.random.default_rng(0)
    rows, first, second = close_pairs(random, 3, length, 500, 5)
    assert set((second - first).tolist()) == {1, 2, 3, 4, 5}
    assert first.min() >= 0 and second.max() <= length - 1 and set(rows.tolist()) == {0, 1, 2}
    rows, first, second = far_pairs(random, 3, length, 500, 25)
    assert np.abs(second - first).min() >= 25 and np.abs(second - first).max() <= length - 1
    assert min(first.min(), second.min()) >= 0 and set(rows.tolist()) == {0, 1, 2}
    assert 150 < (second > first).sum() < 350


def test_wrong_input_is_refused():
    poses = rollouts()
    with pytest.raises(InputError, match=r"expected \(episodes, steps, \.\.\.\) and \(episodes, steps, 3\)"):
        evaluate_distance(Truth(), poses[:, 1:], poses)
    with pytest.raises(InputError, match="recall is 0"):
        evaluate_distance(Truth(), poses, poses, recalls=(0.0,))
    with pytest.raises(InputError, match="reach < apart < 20"):
        evaluate_distance(Truth(), poses[:, :20], poses[:, :20])
