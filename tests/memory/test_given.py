"""Experience in the place of observations, and what a newcomer is warned about."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import sgm
from sgm.data.experience import Experience
from sgm.errors import MemoryWarning
from tests.conftest import plane
from tests.memory.test_store import same
from tests.memory.test_threshold import Plane

SETTINGS = {"tau_a": 2.0, "tau_p": 1.0, "max_dist": 5.0}


def walks(episodes: int = 6, steps: int = 40, achieved: bool = True, seed: int = 0) -> Experience:
    """Random walks in a square of 20 × 20; the achieved goal is ten times the place."""
    random = np.random.default_rng(seed)
    moves = random.normal(size=(episodes, steps, 2)).cumsum(axis=1) + random.uniform(0, 20, (episodes, 1, 2))
    places = np.clip(moves, 0, 20).astype(np.float32).reshape(-1, 2)
    numbers = np.repeat(np.arange(episodes), steps)
    return Experience(places, numbers, achieved_goals=10 * places if achieved else None)


def memory_of(data, **options) -> sgm.SparseGraphicalMemory:
    memory = sgm.SparseGraphicalMemory(Plane(), **SETTINGS)
    memory.extend(data, **options)
    return memory


def test_experience_gives_observations_episodes_and_achieved_goals():
    data = walks()
    memory = memory_of(data)
    by_hand = memory_of(data.observations, episode=data.episodes, attributes={"achieved_goal": data.achieved_goals})
    assert same(memory, by_hand)
    np.testing.assert_array_equal(memory.attributes["achieved_goal"], 10 * memory.embeddings)


def test_episodes_can_be_switched_off_and_attributes_be_given_in_the_place_of_the_datas():
    data, twice = walks(), 2 * walks().observations
    memory = memory_of(data, episode=None, attributes={"achieved_goal": twice, "double": twice})
    assert same(memory, memory_of(data.observations, attributes={"achieved_goal": twice, "double": twice}))
    assert "achieved_goal" not in memory_of(walks(achieved=False)).attributes


def test_episodes_of_one_experience_do_not_go_on_in_the_next():
    first, second = walks(1, 20), walks(1, 20, seed=1)
    apart = Experience(
        np.concatenate([first.observations, second.observations]),
        np.repeat([0, 1], 20),
        achieved_goals=np.concatenate([first.goals, second.goals]),
    )
    memory = memory_of(first)
    memory.extend(second)
    assert same(memory, memory_of(apart))


def test_a_threshold_is_chosen_over_experience_with_its_episodes_and_goals():
    data = walks()
    choice = sgm.choose_threshold(Plane(), data, 40, max_dist=5.0, progress=False)
    by_hand = sgm.SparseGraphicalMemory(Plane(), policy=choice.memory.policy, **choice.memory.settings.asdict())
    goals = {"achieved_goal": data.achieved_goals[choice.order]}
    by_hand.extend(data.observations[choice.order], episode=data.episodes[choice.order], attributes=goals)
    assert same(choice.memory, by_hand)
    plain = sgm.choose_threshold(Plane(), data, 40, max_dist=5.0, episode=None, progress=False)
    of_arrays = sgm.choose_threshold(Plane(), data.observations, 40, max_dist=5.0, progress=False)
    assert plain.chosen == of_arrays.chosen
    assert list(plain.memory.attributes) == ["achieved_goal"] and not of_arrays.memory.attributes


def test_experience_can_be_certified():
    data = walks()
    memory = memory_of(data, episode=None)
    of_data, of_arrays = memory.certificate(data, pairs=20), memory.certificate(data.observations, pairs=20)
    assert of_data.asdict() == of_arrays.asdict()


def test_a_memory_that_merged_nothing_has_no_edges_or_is_in_pieces_warns_with_what_to_try():
    points, _ = plane(240)
    with pytest.warns(MemoryWarning, match=r"nothing was merged: 240 .* Raise tau_p \(0\.0001\) or tau_a") as said:
        sgm.SparseGraphicalMemory(Plane(), tau_p=0.0001).extend(points)
    assert len(said) == 1 and said[0].filename == __file__
    with pytest.warns(MemoryWarning, match=r"no edge can be used.* max_dist=0\.01.* Raise max_dist"):
        sgm.SparseGraphicalMemory(Plane(), criterion="none", max_dist=0.01).extend(points)
    with pytest.warns(MemoryWarning, match=r"the largest strongly connected component has \d+ of 240 nodes"):
        sgm.SparseGraphicalMemory(Plane(), criterion="none", max_dist=0.5).extend(points)
    with pytest.warns(MemoryWarning, match="largest strongly connected component"):
        sgm.choose_threshold(Plane(), points, 60, max_dist=1.0, tolerance=1.0, progress=False)


def test_hardly_anything_merged_is_said_too_but_not_where_nothing_was_to_be_merged():
    points, _ = plane(240)
    twins = np.concatenate([points, points[:5]])
    with pytest.warns(MemoryWarning, match="hardly anything was merged: 245 observations are 240 nodes"):
        sgm.SparseGraphicalMemory(Plane(), tau_p=0.0001).extend(twins)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sgm.SparseGraphicalMemory(Plane(), criterion="none", k=None).extend(points)
        sgm.SparseGraphicalMemory(Plane(), criterion="uniform", size=240, k=None).extend(points)
        sgm.SparseGraphicalMemory(Plane(), tau_p=0.0001).extend(points[:199])
