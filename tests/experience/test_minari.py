"""Minari datasets become experience: Dict or plain observations, any action space of numbers."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import sgm
from sgm.data import from_minari, load, save
from tests.experience.test_files import equal

minari = pytest.importorskip("minari")
from minari.data_collector import EpisodeBuffer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
LENGTH = 12


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Write five random walks of 1 to 9 steps in a corridor as a local dataset."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))

    def recorded(name="corridor/random-v0", plain=False, actions=None):
        random, place = np.random.default_rng(0), spaces.Box(0, 10 * LENGTH, (1,), np.float32)
        actions = actions or spaces.Discrete(2, seed=0)
        buffers = []
        for length in (9, 3, 1, 6, 4):
            walk = random.integers(LENGTH, size=(length + 1, 1)).astype(np.float32)
            taken = [actions.sample() for _ in range(length)]
            if isinstance(actions, spaces.Tuple):
                taken = tuple(map(list, zip(*taken, strict=True)))
            ends = [False] * (length - 1) + [True]
            seen = walk if plain else {"observation": walk, "achieved_goal": 10 * walk, "desired_goal": walk}
            buffers.append(
                EpisodeBuffer(
                    observations=seen,
                    actions=taken,
                    rewards=walk[1:, 0].tolist(),
                    terminations=[False] * length,
                    truncations=ends,
                )
            )
        shape = place if plain else spaces.Dict(dict.fromkeys(seen, place))
        return minari.create_dataset_from_buffers(name, buffers, observation_space=shape, action_space=actions)

    return recorded


def test_a_local_dataset_makes_the_round_trip(make, tmp_path):
    dataset = make()
    data = from_minari("corridor/random-v0", position_key="achieved_goal")
    recorded = list(dataset.iterate_episodes())
    assert data.number_of_episodes == len(recorded) == 5 and data.source == "minari:corridor/random-v0"
    for episode, truth in zip(data, recorded, strict=True):
        assert (episode.observations == truth.observations["observation"]).all()
        assert (episode.achieved_goals == truth.observations["achieved_goal"]).all()
        assert (episode.positions == truth.observations["achieved_goal"]).all()
        assert (episode.actions[:-1] == truth.actions).all() and (episode.rewards[:-1] == truth.rewards).all()
        assert len(episode) == len(truth.actions) + 1
    save(data, tmp_path / "corridor.npz")
    assert equal(load(tmp_path / "corridor.npz"), data)


def test_datasets_that_are_loaded_or_filtered_are_accepted(make):
    dataset = make()
    long = dataset.filter_episodes(lambda episode: len(episode.actions) >= 4)
    data = from_minari(long, actions=False)
    assert 0 < data.number_of_episodes < 5 and all(len(episode) >= 5 for episode in data) and data.actions is None


@pytest.mark.parametrize(
    ("space", "shape"), [(spaces.Box(-1, 1, (2,), np.float32), (2,)), (spaces.MultiDiscrete([2, 3]), (2,))]
)
def test_plain_observations_and_other_actions(make, space, shape):
    data = from_minari(make(plain=True, actions=space))
    assert data.achieved_goals is None and data.observations.shape[1:] == (1,) and data.actions.shape[1:] == shape
    assert data.actions.dtype == space.dtype


def test_what_cannot_be_used_is_named(make):
    dataset = make(actions=spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]))
    with pytest.raises(sgm.InputError, match="actions are a tuple.*actions=False: a memory and plans need none"):
        from_minari(dataset)
    assert len(from_minari(dataset, actions=False))
    with pytest.raises(sgm.InputError, match="key is 'image': observations have .*observation"):
        from_minari(dataset, key="image", actions=False)
    with pytest.raises(sgm.InputError, match=r"'corridor/other-v0'.*there: corridor/random-v0.*download=True"):
        from_minari("corridor/other-v0")
    with pytest.raises(sgm.InputError, match="got a int: expected a Minari dataset"):
        from_minari(3)
