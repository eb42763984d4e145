"""Consolidation: every node keeps the middle one of its observations, and the rest of the memory follows from it."""

from __future__ import annotations

import numpy as np
import pytest

import sgm
from sgm.memory.consolidate import MEMBERS, middles, support
from tests.memory.test_store import same
from tests.memory.test_threshold import MAX_DIST, Plane, choose, points

pytestmark = pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")


def built(observations, **settings) -> sgm.SparseGraphicalMemory:
    memory = sgm.SparseGraphicalMemory(Plane(), tau_a=3.0, tau_p=None, **{"max_dist": MAX_DIST, "k": 6, **settings})
    memory.extend(observations)
    return memory


def middle_by_definition(observations, members) -> int:
    gaps = Plane()(observations[members], observations[members])
    return int(members[(gaps.sum(axis=0) + gaps.sum(axis=1)).argmin()])


@pytest.mark.parametrize("criterion", ["two-way", "incoming", "outgoing"])
def test_nodes_keep_the_middle_observation_and_all_else_is_as_if_built_from_these(criterion):
    observations = points(600)
    before = built(observations, criterion=criterion)
    after = before.consolidated(observations, attributes={"position": observations})
    groups = [np.flatnonzero(before.assignment == node) for node in range(len(before))]
    assert max(len(group) for group in groups) > 3
    expected = sorted(middle_by_definition(observations, group) for group in groups)
    assert after.nodes.tolist() == expected and (after.nodes != np.sort(before.nodes)).any()
    assert np.array_equal(after.attributes["position"], observations[after.nodes])
    dense = sgm.SparseGraphicalMemory(Plane(), criterion="none", max_dist=MAX_DIST, k=6)
    dense.extend(observations[after.nodes])
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(after.edges(), dense.edges(), strict=True))
    same_place = before.assignment[:, None] == before.assignment
    assert np.array_equal(after.assignment[:, None] == after.assignment, same_place)
    assert np.array_equal(after.assignment[after.nodes], np.arange(len(after)))


def test_places_that_were_seen_too_seldom_are_left_out():
    observations = points(600)
    before = built(observations)
    support = np.bincount(before.assignment)
    after = before.consolidated(observations, min_support=3)
    assert len(after) == (support >= 3).sum() < len(before)
    assert np.array_equal(after.assignment >= 0, support[before.assignment] >= 3)
    with pytest.raises(sgm.InputError, match=f"no node has more than {support.max()} observations"):
        before.consolidated(observations, min_support=int(support.max()) + 1)


def test_of_many_observations_some_are_looked_at():
    crowd = np.full((10 * MEMBERS, 2), 7, np.float32) + np.random.default_rng(0).normal(0, 0.1, (10 * MEMBERS, 2))
    rows, nodes = middles(Plane(), crowd.astype(np.float32), np.zeros(len(crowd), np.int64), 1)
    assert nodes.tolist() == [0] and np.hypot(*(crowd[rows[0]] - 7)) < 0.05


def test_it_can_be_saved_extended_cleaned_and_consolidated_again(tmp_path):
    observations, more = points(500), points(100, seed=1)
    after = built(observations, policy="first-failure").consolidated(observations)
    after.save(tmp_path / "memory.sgm")
    loaded = sgm.SparseGraphicalMemory.load(tmp_path / "memory.sgm", Plane())
    assert same(after, loaded)
    report = loaded.extend(more)
    assert report.merged > report.added
    edge = loaded.edges().source[0], loaded.edges().target[0]
    assert loaded.record(*edge, False)
    again = loaded.consolidated(np.concatenate([observations, more]))
    assert len(again) == len(loaded) and not len(again.removed().source)


def test_edges_in_time_follow_the_episodes():
    walk = np.cumsum(np.full((40, 2), 0.7, np.float32), axis=0)
    memory = sgm.SparseGraphicalMemory(Plane(), tau_a=1.5, tau_p=None, max_dist=0.5, k=None)
    memory.extend(walk, episode=3)
    after = memory.consolidated(walk, episode=3)
    edges = after.edges()
    assert len(edges.source) == len(after) - 1 and (edges.target == edges.source + 1).all()
    assert not len(memory.consolidated(walk).edges().source)


def test_an_experience_brings_its_goals_and_single_steps():
    walk = np.cumsum(np.random.default_rng(0).uniform(-1, 1, (300, 2)), axis=0).astype(np.float32)
    data = sgm.Experience(walk, episodes=np.repeat(np.arange(3), 100), achieved_goals=2 * walk)
    memory = sgm.SparseGraphicalMemory(Plane(), tau_a=2.0, tau_p=None, max_dist=MAX_DIST)
    memory.extend(data)
    after = memory.consolidated(data)
    assert np.array_equal(after.attributes["achieved_goal"], 2 * walk[after.nodes])
    assert after.attributes["one_step"].shape == memory.attributes["one_step"].shape


def test_it_takes_all_observations_and_says_so():
    memory = built(points(300))
    with pytest.raises(sgm.InputError, match="got 299 observations, but the memory was given 300"):
        memory.consolidated(points(300)[:299])
    with pytest.raises(sgm.InputError, match="min_support is 0"):
        memory.consolidated(points(300), min_support=0)


def test_other_observations_or_another_order_are_refused():
    memory = built(points(300))
    with pytest.raises(sgm.InputError, match="not in the same order"):
        memory.consolidated(points(300)[::-1])


def test_lists_are_taken_as_extend_takes_them():
    observations = points(300)
    memory = built(observations)
    assert same(memory.consolidated(list(observations)), memory.consolidated(observations))


@pytest.mark.parametrize("settings", [{"criterion": "uniform", "size": 50}, {"criterion": "none"}])
def test_where_nothing_is_merged_nothing_changes(settings):
    observations = points(120)
    memory = sgm.SparseGraphicalMemory(Plane(), max_dist=MAX_DIST, k=4, **settings)
    memory.extend(observations)
    assert same(memory.consolidated(observations), memory)
    with pytest.raises(sgm.InputError, match="no node has more than 1 observations"):
        memory.consolidated(observations, min_support=2)


def test_attributes_that_are_not_given_again_are_told():
    observations = points(120)
    memory = sgm.SparseGraphicalMemory(Plane(), tau_a=3.0, tau_p=None, max_dist=MAX_DIST)
    memory.extend(observations, attributes={"pose": observations})
    with pytest.warns(sgm.errors.MemoryWarning, match="has no pose"):
        assert not dict(memory.consolidated(observations).attributes)


@pytest.mark.parametrize("episodes", [None, np.repeat(np.arange(8), 100)])
@pytest.mark.parametrize("criterion", ["two-way", "perceptual", "uniform"])
def test_a_threshold_chosen_with_consolidation_gives_the_consolidated_memory(episodes, criterion):
    observations = points()
    choice = choose(observations, 40, consolidate=True, criterion=criterion, episode=episodes)
    assert choice.within_tolerance and choice.largest_part == choice.memory.largest_part()
    how = choice.memory.settings.asdict()
    memory = sgm.SparseGraphicalMemory(Plane(), policy=choice.memory.policy, **how)
    order = choice.order
    times = None if episodes is None else episodes[order]
    memory.extend(observations[order], episode=times)
    least = 1 if criterion == "uniform" else 4  # a fifth of 800 / 40
    expected = memory.consolidated(observations[order], episode=times, min_support=least)
    assert same(choice.memory, expected)
    assert np.array_equal(choice.stream, order[expected.nodes])
    assert np.bincount(expected.assignment[expected.assignment >= 0]).min() >= least


def test_support_is_a_number_or_a_fifth_of_the_average():
    assert [support("auto", *sizes) for sizes in ((3_000, 900), (12_000, 900), (50_000, 900))] == [1, 3, 11]
    assert support(7, 10, 10) == 7
    for wrong, said in ((0, "min_support is 0"), ("many", "min_support is 'many': expected a whole number, or 'auto'")):
        with pytest.raises(sgm.InputError, match=said):
            built(points(50)).consolidated(points(50), min_support=wrong)
