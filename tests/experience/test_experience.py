"""Experience: what belongs together stays together, true steps are kept, and what is wrong is named."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import sgm
from sgm.data import Experience, from_episodes

RANDOM = np.random.default_rng(0)


def full(lengths=(6, 1, 9)) -> Experience:
    number = sum(lengths)
    return Experience(
        RANDOM.normal(size=(number, 3)),
        np.repeat(np.arange(len(lengths)), lengths),
        RANDOM.normal(size=(number, 2)),
        positions=np.arange(2 * number).reshape(-1, 2),
        rewards=np.arange(number),
        source="a test",
    )


def test_thinned_experience_keeps_its_true_steps():
    data = full()
    assert data.steps.tolist() == [*range(6), 0, *range(9)]
    thin = data[::4]
    assert thin.steps.tolist() == [0, 4, 1, 5] and thin.episodes.tolist() == [0, 0, 2, 2]
    assert thin[1:].steps.tolist() == [4, 1, 5]
    assert data[data.rewards % 2 == 0].steps.tolist() == [0, 2, 4, 0, 1, 3, 5, 7]


def test_parts_have_all_that_belongs_to_their_observations():
    data = full()
    part = data[np.array([2, 7, 15])]
    for name in ("observations", "actions", "positions", "rewards", "episodes", "steps"):
        assert (getattr(part, name) == getattr(data, name)[[2, 7, 15]]).all()
    assert part.source == "a test" and part.achieved_goals is None
    assert "positions, rewards, from a test" in repr(part)
    assert [len(episode) for episode in data] == [6, 1, 9]


def test_slices_and_arrays_are_not_copied(tmp_path):
    mapped = np.lib.format.open_memmap(tmp_path / "seen.npy", "w+", np.uint8, (40, 8, 8, 3))
    data = Experience(mapped, np.repeat([0, 1], 20))
    assert np.shares_memory(data.observations, mapped)
    assert all(np.shares_memory(episode.observations, mapped) for episode in data)
    assert np.shares_memory(data[::5].observations, mapped) and not np.shares_memory(data[[1, 3]].observations, mapped)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"steps": [0, 1, 1]}, "steps do not increase"),
        ({"steps": [-1, 0, 1]}, "from 0 on"),
        ({"steps": [0, 1]}, r"steps has shape \(2,\) .*expected \(3,\) whole numbers"),
        ({"positions": np.zeros(3)}, r"positions are float64 of shape \(3,\): expected numbers \(3, p\)"),
        ({"rewards": np.zeros((3, 1))}, r"rewards are float64 of shape \(3, 1\): expected numbers \(3,\)"),
        ({"actions": np.zeros((2, 1))}, "actions has 2 rows: expected 3.*last observation has a row too"),
        ({"actions": ["left"] * 3}, "actions are <U4"),
        ({"observations": [[1, 2], [1], [3]]}, "observations are not of one shape.*from_episodes"),
        ({"observations": 3.0}, r"of shape \(\): expected an \(n, ...\) array of numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_named(arrays, reason):
    with pytest.raises(sgm.InputError, match=reason):
        Experience(**{"observations": np.zeros((3, 2)), "episodes": np.zeros(3, int), **arrays})


def test_rows_out_of_order_are_refused():
    with pytest.raises(sgm.InputError, match="steps do not increase"):
        full()[[3, 2]]
    with pytest.raises(sgm.InputError, match="expected a slice"):
        full()[3]


def test_episodes_of_any_length_become_experience():
    lengths = (4, 1, 7)
    seen = [np.full((length, 2), length, np.float32) for length in lengths]
    done = [np.full((length - 1, 1), length) for length in lengths]
    data = from_episodes(seen, done, rewards=[np.zeros(length) for length in lengths], source="mine")
    assert data.observations.dtype == np.float32 and data.source == "mine"
    for episode, length in zip(data, lengths, strict=True):
        assert len(episode) == length and (episode.observations == length).all()
        assert (episode.actions[:-1] == length).all()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (([np.zeros((3, 2)), np.zeros((0, 2))],), r"observations\[1\] is empty.*leave the episode out"),
        (([np.zeros((3, 2)), np.zeros((3, 4))],), r"observations\[1\] has rows of shape \(4,\).*expected one shape"),
        (([np.zeros((3, 2))], [np.zeros((5, 1))]), r"actions\[0\] has 5 rows.*expected 3 or 2 rows"),
        (([np.zeros((3, 2))], None, [np.zeros((2, 1))]), r"achieved_goals\[0\] has 2 rows.*expected 3 rows"),
        (([np.zeros((3, 2))], []), "actions has 0 episodes, observations has 1"),
        (([],), "no episodes"),
    ],
)
def test_wrong_episodes_are_named(arguments, reason):
    with pytest.raises(sgm.InputError, match=reason):
        from_episodes(*arguments)


MISSING = {
    "PIL": ("images", lambda folder: sgm.data.from_images(folder)),
    "minari": ("minari", lambda folder: sgm.data.from_minari("corridor/random-v0")),
    "ogbench": ("ogbench", lambda folder: sgm.data.from_ogbench("pointmaze-medium-stitch-v0", folder)),
}


@pytest.mark.parametrize("library", MISSING)
def test_a_missing_library_names_the_extra(library, tmp_path, monkeypatch):
    extra, source = MISSING[library]
    for name in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(sgm.SGMError, match=rf"needs {library}.*sparse-graphical-memory\[{extra}\]"):
        source(tmp_path)


class Euclid:
    """A distance without training."""

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        return np.linalg.norm(starts[:, None] - goals, axis=-1)


def test_a_memory_plans_without_actions_and_keeps_positions():
    places = np.cumsum(np.full((60, 2), 0.5), axis=0)
    data = Experience(places, np.zeros(60, int), positions=100 * places)
    memory = sgm.SparseGraphicalMemory(Euclid(), tau_a=1.5, max_dist=3.0, keep_observations=True)
    memory.extend(data)
    assert (memory.attributes["position"] == 100 * places[memory.nodes]).all()
    assert len(memory.plan(places[0], places[-1]).nodes) > 3


def test_a_controller_says_that_it_needs_actions():
    cloned = pytest.importorskip("sgm.controllers.cloned")
    with pytest.raises(sgm.InputError, match="no actions to learn from.*a distance, a memory and plans need none"):
        cloned.train(Experience(np.zeros((9, 2), np.float32), np.zeros(9, int)), progress=False)


def test_rows_that_do_not_exist_are_refused_in_words():
    data = sgm.Experience(np.zeros((4, 2)), np.zeros(4, np.int64))
    for rows in (np.array([1, 9]), np.ones(7, np.bool_)):
        with pytest.raises(sgm.InputError, match=r"from 0 to 3, or a mask of shape \(4,\)"):
            data[rows]


def test_one_plain_array_is_not_taken_for_episodes_of_single_numbers():
    with pytest.raises(sgm.InputError, match=r"one array of shape \(5, 2\).* give \[observations\]"):
        from_episodes(np.zeros((5, 2)))
    assert from_episodes([np.zeros((5, 2))]).number_of_episodes == 1
    assert from_episodes(np.zeros((5, 2, 1))).number_of_episodes == 5
