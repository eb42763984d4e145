"""The quality report: on distances whose quality is known, by positions and by episodes alone."""

from __future__ import annotations

import json

import numpy as np
import pytest

import sgm
from sgm.distances import distance_quality
from sgm.errors import InputError


class Line:
    """Steps along x, 2 units each, of observations (x, y); what is beyond 30 steps is clipped."""

    far = 30.0

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        return np.minimum(np.abs(starts[:, None, 0] - goals[:, 0]) / 2, self.far)


class Aliased(Line):
    """Takes places 100 units apart for one another."""

    def embed(self, observations):
        return np.asarray(observations, np.float32) % 100


class Twice(Line):
    """Says twice as many steps as there are."""

    far = 60.0

    def __call__(self, starts, goals):
        return 2 * np.abs(starts[:, None, 0] - goals[:, 0]) / 2


def walks(episodes: int = 30, steps: int = 61, width: float = 400, positions: bool = True) -> sgm.Experience:
    """Straight walks of 2 units a step."""
    random = np.random.default_rng(0)
    x = (random.uniform(0, width, (episodes, 1)) + 2 * np.arange(steps)).ravel()
    observations = np.stack([x, 0 * x], axis=1)
    labels = np.repeat(np.arange(episodes), steps)
    return sgm.Experience(observations, labels, positions=observations if positions else None)


def test_the_truth_is_perfect_by_positions_and_by_episodes():
    for positions in (True, False):
        result = distance_quality(Line(), walks(positions=positions), number=300)
        assert result.judged_by == ("positions" if positions else "episodes")
        assert [a.false for a in result.accepted] == [0, 0] and result.rank_correlation > 0.99
        assert result.calibration_error < 0.01 and max(result.noise) < 1e-3
        assert result.near == (20 if positions else 10)
    assert result.lags[0] == 1 and result.medians[0] == pytest.approx(1)


def test_places_that_look_alike_are_seen_by_positions_and_hardly_by_episodes():
    data = walks()
    seen = distance_quality(Aliased(), data, number=500).accepted[1]
    assert seen.false > 0.4
    long_walks, blind = walks(steps=121, positions=False), walks(positions=False, steps=41)
    assert distance_quality(Aliased(), long_walks, number=300).accepted[1].false > 0.05  # a walk that passes both
    assert distance_quality(Aliased(), blind, number=300).accepted[1].false < 0.01  # walks of 80 units hardly do


def test_a_walk_that_comes_back_is_counted_as_false_by_episodes_alone():
    x = 2.0 * np.concatenate([np.arange(40), np.arange(40)[::-1]])
    data = sgm.Experience(np.stack([x, 0 * x], axis=1), np.zeros(80, int))
    result = distance_quality(Line(), data, number=200)
    assert result.accepted[1].false > 0.1
    true = distance_quality(Line(), data, np.stack([x, 0 * x], axis=1), number=80)
    assert true.accepted[1].false == 0


def test_wrong_steps_are_a_calibration_error_and_nothing_else():
    result = distance_quality(Twice(), walks(), number=300)
    assert result.calibration_error == pytest.approx(1, abs=0.02)
    assert result.accepted[1].false == 0 and result.rank_correlation > 0.99


def test_ways_round_walls_can_be_the_truth():
    """Two corridors one unit apart, which the distance takes for one."""
    data = walks()
    places = data.positions.copy()
    places[:, 1] = data.episodes % 2

    def round_the_wall(a, b):
        return np.abs(a[:, None, 0] - b[:, 0]) + 1000 * (a[:, None, 1] != b[:, 1])

    assert distance_quality(Line(), data, places, number=300).accepted[1].false == 0
    assert distance_quality(Line(), data, places, truth=round_the_wall, number=300).accepted[1].false > 0.3


def test_thinned_experience_is_judged_by_true_steps():
    result = distance_quality(Line(), walks(positions=False)[::4], number=100)
    assert set(result.lags) <= {4, 8, 12, 16, 20, 24, 28, 32, 36, 40} and result.calibration_error < 0.01


def test_it_is_printed_and_ready_for_json():
    result = distance_quality(Line(), walks(), number=200)
    assert "at 90% recall" in str(result) and "1 steps apart: median 1.0" in str(result)
    assert json.loads(json.dumps(result.asdict()))["judged_by"] == "positions"


def test_what_cannot_be_judged_is_refused():
    with pytest.raises(InputError, match=r"positions have shape \(3, 2\): expected \(1830, p\)"):
        distance_quality(Line(), walks(), np.zeros((3, 2)))
    with pytest.raises(InputError, match="near < far"):
        distance_quality(Line(), walks(), near=5, far=2, number=100)
    with pytest.raises(InputError, match="data is list"):
        distance_quality(Line(), [1, 2])
    with pytest.raises(InputError, match="no two observations"):
        distance_quality(Line(), sgm.Experience(np.zeros((5, 2)), np.arange(5)))
