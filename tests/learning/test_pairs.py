"""Pairs of observations are drawn by true steps, in whole and in thinned experience."""

from __future__ import annotations

import numpy as np
import pytest

import sgm

pytest.importorskip("torch")

from sgm.controllers import cloned
from sgm.distances import contrastive
from sgm.learning.pairs import as_rows, episodes_of_one_length

RANDOM = np.random.default_rng(0)
LENGTHS = RANDOM.integers(1, 40, 30)


def whole() -> sgm.Experience:
    seen = RANDOM.normal(size=(LENGTHS.sum(), 2)).astype(np.float32)
    return sgm.Experience(seen, np.repeat(3 * np.arange(30), LENGTHS))


def thinned() -> list[sgm.Experience]:
    data = whole()
    return [data, data[::5], data[np.sort(RANDOM.permutation(len(data))[:200])], data[7:]]


@pytest.mark.parametrize("data", thinned(), ids=["whole", "every fifth", "irregular", "cut"])
def test_pairs_are_of_one_episode_and_within_reach(data):
    rows = as_rows(data)
    first, second = rows.pairs(np.random.default_rng(1), 2_000, 12)
    apart = data.steps[second] - data.steps[first]
    assert (data.episodes[first] == data.episodes[second]).all() and apart.min() >= 1 and apart.max() <= 12
    possible = {int(b - a) for part in data for a in part.steps for b in part.steps if 0 < b - a <= 12}
    assert set(apart.tolist()) == possible


@pytest.mark.parametrize("data", thinned(), ids=["whole", "every fifth", "irregular", "cut"])
@pytest.mark.parametrize("lag", [1, 5, 7])
def test_all_pairs_at_a_lag_are_found(data, lag):
    first, second = as_rows(data).apart(lag)
    assert (data.steps[second] - data.steps[first] == lag).all() and (
        data.episodes[first] == data.episodes[second]
    ).all()
    assert len(first) == sum(int((part.steps[:, None] + lag == part.steps).sum()) for part in data)


def test_whole_experience_is_drawn_from_as_ever():
    """First rows evenly among those that have a next one, then 1 to `reach` steps ahead, not past the end."""
    left = np.concatenate([np.arange(length)[::-1] for length in LENGTHS])
    expected = np.random.default_rng(1)
    first = expected.choice(np.flatnonzero(left), 500)
    second = first + np.minimum(expected.integers(1, 8, 500), left[first])
    rows = as_rows(whole())
    found = rows.pairs(np.random.default_rng(1), 500, 7)
    assert (found[0] == first).all() and (found[1] == second).all() and (rows.left == left).all()


def test_a_reach_below_the_gaps_is_refused():
    with pytest.raises(sgm.InputError, match="within 4 steps of each other: give a larger reach"):
        as_rows(whole()[::5]).pairs(RANDOM, 10, 4)


def test_pieces_of_one_length_have_no_gaps():
    data = whole()
    kept = episodes_of_one_length(data[(data.steps + data.episodes) % 7 != 0])
    assert len(kept) and all((np.diff(part.steps) == 1).all() for part in kept)
    with pytest.raises(sgm.InputError, match="no episode has 2 observations or more, one step apart"):
        episodes_of_one_length(data[::5])


def test_a_distance_learned_from_thinned_experience_is_in_true_steps():
    """Walks along a line, one unit a step: what lies 20 units ahead is about 20 steps away, not 4."""
    begins = np.arange(40) % 10
    places = np.concatenate([begin + np.arange(60) for begin in begins]).astype(np.float32)
    data = sgm.Experience(np.stack([places, 0 * places], axis=1), np.repeat(np.arange(40), 60))[::5]
    distance = contrastive.train(data, reach=15, iterations=150, progress=False)
    start, goal = (distance.embed(np.array([[x, 0]], np.float32)) for x in (20.0, 40.0))
    assert 12 < distance(start, goal)[0, 0] < 30


def test_vectors_on_disk_are_not_copied_for_training(tmp_path):
    sgm.data.save(whole(), tmp_path / "walks")
    data = sgm.data.load(tmp_path / "walks")
    assert np.shares_memory(as_rows(data).observations, data.observations)


def test_observations_of_another_shape_are_told_how_to_become_vectors():
    episodes = np.arange(40) // 4
    with pytest.raises(sgm.InputError, match=r"shape \(40,\).* give observations\[:, None\]"):
        as_rows(sgm.Experience(np.arange(40.0), episodes))
    assert as_rows(sgm.Experience(np.arange(40.0)[:, None], episodes)).size == (1, 0)
    with pytest.raises(sgm.InputError, match=r"give observations\.reshape\(len\(observations\), -1\)"):
        as_rows(sgm.Experience(np.zeros((40, 2, 2, 2, 2)), episodes))


def test_unknown_settings_are_told_all_that_a_call_takes():
    rows = as_rows(sgm.Experience(np.zeros((40, 2)), np.arange(40) // 4))
    with pytest.raises(sgm.InputError, match="speed is no setting: expected .*patience, full_speed$"):
        cloned.train(sgm.Experience(rows.observations, np.arange(40) // 4, rows.observations), speed=1)
