"""Checkpoints belong to data: training on other data of the same shape does not resume from them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import sgm

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from sgm.controllers import cloned  # noqa: E402
from sgm.controllers.inverse import ClonedConfig  # noqa: E402
from sgm.distances import regression  # noqa: E402
from sgm.learning.encoders import data_digest  # noqa: E402


def walk(seed):
    random = np.random.default_rng(seed)
    actions = random.choice([-1.0, 1.0], (600, 2))
    return sgm.Experience(np.cumsum(actions, axis=0), np.arange(600) // 50, actions)


def weights(trained):
    return torch.cat([value.flatten().double() for value in trained.network.state_dict().values()])


@pytest.mark.parametrize("train", [regression.train, cloned.train])
def test_a_checkpoint_of_other_data_is_refused_and_one_of_the_same_data_resumes(train, tmp_path):
    def run(data, **more):
        return train(data, iterations=4, batch=16, progress=False, device="cpu", **more)

    first = run(walk(0), checkpoint=tmp_path / "ck")
    assert torch.equal(weights(run(walk(0), checkpoint=tmp_path / "ck")), weights(first))
    assert torch.equal(weights(run(walk(0))), weights(first))
    with pytest.raises(sgm.InputError, match="another training"):
        run(walk(1), checkpoint=tmp_path / "ck")


def test_a_checkpoint_of_other_actions_is_refused_whatever_the_last_row_of_an_episode_says(tmp_path):
    def run(data):
        return cloned.train(data, iterations=2, batch=16, progress=False, device="cpu", checkpoint=tmp_path / "ck")

    run(data := walk(0))
    last, other = data.actions.copy(), data.actions.copy()
    last[49], other[48] = 7.0, -other[48]
    run(dataclasses.replace(data, actions=last))
    with pytest.raises(sgm.InputError, match="another training"):
        run(dataclasses.replace(data, actions=other))


def test_a_checkpoint_of_other_rollouts_is_refused(tmp_path):
    random = np.random.default_rng(0)
    frames = random.integers(0, 255, (3, 12, 16, 16, 3), np.uint8)
    actions = random.integers(0, 2, (3, 11))

    def run(frames, actions):
        short = ClonedConfig(iterations=1, batch=4, reach=3)
        cloned.train_cloned(frames, actions, 2, short, checkpoint=tmp_path / "ck", progress=False)

    run(frames, actions)
    run(frames, actions)
    for others in ((255 - frames, actions), (frames, 1 - actions)):
        with pytest.raises(sgm.InputError, match="another training"):
            run(*others)


def test_a_digest_of_much_data_reads_rows_from_all_over():
    large = np.zeros((200, 2**20), np.uint8)  # 210 MB, of which 100 rows are read
    before = data_digest(large)
    large[-1, 0] = 1
    assert data_digest(large) != before
    assert data_digest(np.empty((0, 2))) != data_digest(np.empty((0, 3)))
