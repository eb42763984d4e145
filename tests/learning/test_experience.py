"""Every network is trained on an Experience, episodes of any length."""

from __future__ import annotations

import numpy as np
import pytest

import sgm

pytest.importorskip("torch")

from sgm.controllers import proprioceptive
from sgm.distances import bilinear, sptm, vae
from sgm.learning.pairs import as_rollouts, episodes_of_one_length

RANDOM = np.random.default_rng(0)


def walks(lengths, shape, dtype=np.uint8, actions=()):
    number = sum(lengths)
    seen = RANDOM.integers(0, 255, (number, *shape)).astype(dtype)
    return sgm.Experience(seen, np.repeat(np.arange(len(lengths)), lengths), RANDOM.uniform(-1, 1, (number, *actions)))


def test_episodes_are_cut_so_that_most_is_kept():
    data = walks((10, 21, 3, 9), (1,))
    kept = episodes_of_one_length(data)
    assert len(kept) == 42 and kept.number_of_episodes == 14  # of length 3
    longer = episodes_of_one_length(data, 9)
    assert as_rollouts(longer.observations, longer).shape == (4, 9, 1)
    first = as_rollouts(longer.observations, longer)[0]
    assert (first == data.observations[:9]).all()
    with pytest.raises(sgm.InputError, match="no episode has 30"):
        episodes_of_one_length(data, 30)
    with pytest.raises(sgm.InputError, match="expected an sgm.Experience"):
        episodes_of_one_length(data.observations)


@pytest.mark.parametrize(
    ("module", "config"),
    [
        (sptm, sptm.ClosenessConfig(width=4, iterations=2, batch=4, reach=1, apart=3)),
        (bilinear, bilinear.BilinearConfig(iterations=2)),
        (vae, vae.VAEConfig(iterations=2)),
    ],
)
def test_networks_over_images_train_on_experience(module, config):
    size = 16 if module is sptm else 64
    data = walks((40, 60, 45), (size, size, 3))
    trained = module.train(data, config, progress=False)
    embed = getattr(trained, "embed", trained)
    assert len(embed(data.observations[:5])) == 5


def test_the_controller_by_odometry_trains_on_experience():
    data = walks((40, 60), (6,), np.float32, (2,))
    config = proprioceptive.ProprioceptiveConfig(iterations=2, model_iterations=2)
    controller = proprioceptive.train(data, config, progress=False)
    assert controller(data.observations[:3], data.observations[:3, :3]).shape == (3, 2)
    without = sgm.Experience(data.observations, data.episodes)
    with pytest.raises(sgm.InputError, match="no actions"):
        proprioceptive.train(without, config, progress=False)
