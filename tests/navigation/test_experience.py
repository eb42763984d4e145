"""Experience: what belongs together, episode by episode."""

from __future__ import annotations

import numpy as np
import pytest

import sgm
from sgm.navigation import TwoWay, WithinSteps, calibrate
from tests.navigation.test_rollout import Line, controller


def data(lengths=(4, 1, 3)):
    number = sum(lengths)
    episodes = np.repeat(np.arange(len(lengths)), lengths)
    return sgm.Experience(np.arange(number)[:, None], episodes, np.arange(number), -np.arange(number)[:, None])


def test_episodes_come_one_by_one_with_what_belongs_to_them():
    parts = list(data())
    assert [len(part) for part in parts] == [4, 1, 3]
    assert parts[2].actions.tolist() == [5, 6, 7] and parts[2].goals[:, 0].tolist() == [-5, -6, -7]
    assert "8 observations (1,), 3 episodes" in repr(data())
    assert data()[:0].rows_by_episode() == []


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ((np.zeros((3, 2)), np.array([2, 1, 0], np.uint8)), "episodes decrease"),
        ((np.zeros((3, 2)), np.zeros(2, int)), "expected \\(3,\\) whole numbers"),
        ((np.zeros((3, 2)), np.zeros(3)), "whole numbers"),
        ((np.zeros((3, 2)), np.zeros(3, int), np.zeros(2)), "actions has 2 rows"),
    ],
)
def test_arrays_that_do_not_fit_are_named(arrays, reason):
    with pytest.raises(sgm.InputError, match=reason):
        sgm.Experience(*arrays)
    with pytest.raises(sgm.InputError, match="backwards"):
        data()[::-1]


class Noisy(Line):
    """Steps along the corridor with noise of up to three steps that depends on both places."""

    def __call__(self, starts, goals):
        noise = (starts[:, 0][:, None] * 7 + goals[:, 0] * 3) % 4
        return super().__call__(starts, goals) + np.where(starts[:, 0][:, None] == goals[:, 0], 0, noise)


def test_cutoffs_are_calibrated_by_the_noise_on_the_buffer():
    walk = sgm.Experience(np.arange(40, dtype=np.float32)[:, None], np.zeros(40, int))
    exact, noisy = (
        sgm.SparseGraphicalMemory(distance, criterion="none", max_dist=8.0, k=None, keep_observations=True)
        for distance in (Line(), Noisy())
    )
    for memory in (exact, noisy):
        memory.extend(walk)
        assert memory.attributes["one_step"].shape == (40, 2)
    agents = {
        name: [sgm.Navigator(memory, controller("discrete"), arrival=arrival) for memory in (exact, noisy)]
        for name, arrival in (("two-way", TwoWay()), ("distance", WithinSteps()))
    }
    assert np.nanmax(exact.attributes["one_step"]) == 1.0
    for found in agents.values():
        quiet, loud = (calibrate(agent) for agent in found)
        assert 1.0 <= quiet <= 4.0 and loud >= quiet
        assert found[1].arrival.limit == loud and found[1].max_steps == round(24 + loud)
    plain = sgm.SparseGraphicalMemory(Line(), criterion="none", max_dist=8.0, k=None, keep_observations=True)
    plain.extend(walk.observations)
    assert "one_step" not in plain.attributes and sgm.Navigator(plain, controller("discrete")).arrival.limit >= 1
