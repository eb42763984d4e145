"""Edges in time weigh the steps between their observations: in thinned data, over batches, files and the past."""

from __future__ import annotations

import numpy as np
import pytest

import sgm
from sgm.memory.check import check
from sgm.memory.repair import repair


class Line:
    fingerprint = "line"

    def embed(self, observations):
        return np.asarray(observations, np.float32).reshape(-1, 1)

    def __call__(self, starts, goals):
        return 10 * np.abs(starts[:, 0][:, None] - goals[:, 0])


def empty(**settings):
    return sgm.SparseGraphicalMemory(Line(), **{"criterion": "none", "max_dist": 0.5, "k": None, **settings})


def walk(places, steps=None, episodes=None):
    places = np.asarray(places, np.float32)[:, None]
    return sgm.Experience(places, np.zeros(len(places), int) if episodes is None else np.asarray(episodes), steps=steps)


def weights(memory):
    edges = memory.edges()
    return {(int(u), int(v)): float(w) for u, v, w in zip(*edges, strict=True)}


def test_consecutive_observations_weigh_one_and_thinned_ones_the_steps_between_them():
    data = walk(np.arange(20))
    every, fifth = empty(), empty()
    every.extend(data)
    fifth.extend(data[::5])
    assert set(weights(every).values()) == {1.0}
    assert weights(fifth) == {(0, 1): 5.0, (1, 2): 5.0, (2, 3): 5.0}


def test_gaps_of_any_length_are_known_and_the_longest_join_nothing():
    memory = empty()
    memory.extend(walk([0, 1, 2, 3], steps=[0, 3, 258, 514]))
    assert weights(memory) == {(0, 1): 3.0, (1, 2): 255.0}


def test_merged_observations_count_from_the_last_in_one_node_to_the_first_in_the_next():
    memory = empty(criterion="perceptual", tau_p=0.5)
    memory.extend(walk([0, 0.1, 0.2, 3, 3.1, 0], steps=[0, 2, 4, 7, 9, 15]))
    assert len(memory) == 2 and weights(memory) == {(0, 1): 3.0, (1, 0): 6.0}


def test_the_shortest_passage_counts_within_a_batch_and_over_batches():
    again = walk([0, 1, 0, 1], steps=[0, 7, 8, 11])
    memory = empty(criterion="perceptual", tau_p=0.1)
    memory.extend(again)
    assert weights(memory)[0, 1] == 3.0
    apart = empty(criterion="perceptual", tau_p=0.1)
    apart.extend(walk([0, 1], steps=[0, 7]))
    apart.extend(walk([0, 1], steps=[0, 3]))
    apart.extend(walk([0, 1], steps=[0, 5]))
    assert weights(apart) == {(0, 1): 3.0}
    assert apart.events().kind.tolist() == ["walked"] and apart.events().episode.tolist() == [7]
    assert weights(apart.at(0)) == {(0, 1): 7.0}


def test_an_edge_by_distance_is_never_longer_than_its_distance():
    memory = empty(max_dist=40.0)
    memory.extend(walk([0, 0.3, 4], steps=[0, 9, 10]))
    assert weights(memory)[0, 1] == pytest.approx(3.0) and weights(memory)[1, 2] == 1.0


def test_steps_of_the_data_go_with_its_own_episodes_only():
    memory = empty()
    memory.extend(walk([0, 1, 2], steps=[0, 4, 8]), episode=np.zeros(3, int))
    assert set(weights(memory).values()) == {1.0}


def test_a_file_holds_steps_and_a_failed_batch_leaves_them_as_they_were(tmp_path):
    path = tmp_path / "memory.sgm"
    settings = {"criterion": "perceptual", "tau_p": 0.1, "max_dist": 0.5, "k": None}
    with sgm.SparseGraphicalMemory.open(path, Line(), **settings) as memory:
        memory.extend(walk([0, 1, 2], steps=[0, 7, 27]))
        memory.extend(walk([0, 1], steps=[0, 3]))
        before = weights(memory)
        with pytest.raises(sgm.SGMError):
            memory.extend(walk([0, 1, np.nan], steps=[0, 2, 4]))
        assert weights(memory) == before == {(0, 1): 3.0, (1, 2): 20.0}
    again = sgm.SparseGraphicalMemory.load(path, Line())
    assert weights(again) == before and weights(again.at(0)) == {(0, 1): 7.0, (1, 2): 20.0}


def test_choosing_a_threshold_visits_thinned_experience_with_its_steps():
    random = np.random.default_rng(0)
    places = np.cumsum(random.normal(size=1500)) / 10
    data = walk(places, episodes=np.repeat(np.arange(15), 100))[::4]
    choice = sgm.choose_threshold(
        Line(), data, 40, criterion="perceptual", max_dist=1e-6, k=None, tolerance=0.3, progress=False
    )
    assert set(np.unique(choice.memory.edges().weight)) == {4.0}


def test_a_file_with_steps_is_sound_and_its_steps_survive_a_repair(tmp_path):
    memory = empty()
    memory.extend(walk([0, 1, 2], steps=[0, 200, 210]))
    memory.save(tmp_path / "a.sgm")
    assert check(tmp_path / "a.sgm").whole
    repair(tmp_path / "a.sgm", tmp_path / "b.sgm")
    assert weights(sgm.SparseGraphicalMemory.load(tmp_path / "b.sgm", None)) == {(0, 1): 200.0, (1, 2): 10.0}
