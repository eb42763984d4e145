"""What holds for every distance that `train(data)` gives: images and vectors, noise, files, devices, early stop."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import sgm  # noqa: E402
from sgm.distances import contrastive, quasimetric, regression, sptm  # noqa: E402
from sgm.errors import InputError  # noqa: E402
from tests.distances.test_contrastive import images_as_experience, ring  # noqa: E402

FEW = {"iterations": 20, "progress": False, "device": "cpu"}
VECTORS = {  # enough to learn the ring
    contrastive: {"iterations": 400, "width": 64, "reach": 8},
    sptm: {"iterations": 400, "width": 64, "reach": 6, "apart": 20, "batch": 256},
    regression: {"iterations": 400, "width": 64, "cap": 20, "batch": 128},
    quasimetric: {"iterations": 400, "width": 64, "cap": 20, "batch": 128},
}
IMAGES = {
    contrastive: {"iterations": 60, "width": 4, "rollouts": 8, "pairs": 6},
    sptm: {"iterations": 60, "width": 4, "embedding": 16, "hidden": 24, "apart": 20, "learning_rate": 3e-3},
    regression: {"iterations": 60, "width": 4, "cap": 15, "batch": 48},
    quasimetric: {"iterations": 60, "width": 4, "cap": 15, "batch": 48},
}
every_kind = pytest.mark.parametrize("kind", VECTORS, ids=lambda kind: kind.__name__.rsplit(".", 1)[1])


def medians(distance, data: sgm.Experience, lags=(1, 4, 9)) -> list[float]:
    """The median distance at each lag within episodes."""
    observations, goals = distance.embed(data.observations), distance.embed_goal(data.goals)
    found = []
    for lag in lags:
        same = data.episodes[:-lag] == data.episodes[lag:]
        found.append(float(np.median(distance.pairs(observations[:-lag][same], goals[lag:][same]))))
    return found


@every_kind
def test_one_signature_trains_every_distance(kind):
    parameters = inspect.signature(kind.train).parameters
    assert [*parameters] == ["data", "config", "seed", "device", "checkpoint", "progress", "settings"]
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    assert (defaults["seed"], defaults["device"], defaults["progress"]) == (0, "auto", True)


@every_kind
def test_vectors_with_goals_of_another_shape_are_told_apart_in_steps(kind):
    distance = kind.train(ring(60, 60, 0), progress=False, **VECTORS[kind])
    near, middle, far = medians(distance, ring(6, 60, 1))
    assert near <= middle < far and near < 2.5 and abs(far - 9) < 3.5
    assert abs(middle - 4) < 2 or kind is sptm  # within its reach a classifier hardly tells steps apart
    assert 0 < distance.noise < 2 and 9 < distance.far <= 32


@every_kind
@pytest.mark.parametrize("form", ["rgb", "grey", "one channel", "float"])
def test_images_of_any_form_in_episodes_of_any_length_are_learned_from(kind, form):
    data = images_as_experience(30, 1)
    grey = data.observations[..., 0]
    forms = {"rgb": data.observations, "grey": grey, "one channel": grey[..., None], "float": grey / 255}
    data = dataclasses.replace(data, observations=forms[form])
    near, _, far = medians(kind.train(data, progress=False, **IMAGES[kind]), data)
    assert near < 0.8 * far


@every_kind
def test_a_file_keeps_the_noise_and_where_distances_end(kind, tmp_path: Path):
    distance = kind.train(ring(12, 40, 0), **FEW)
    distance.save(tmp_path / "d.safetensors")
    back = type(distance).load(tmp_path / "d.safetensors")
    assert back.noise == pytest.approx(distance.noise, rel=1e-5) and np.isfinite(back.noise)
    assert (back.far, back.fingerprint) == (distance.far, distance.fingerprint)


@every_kind
def test_without_episodes_to_hold_out_it_is_calibrated_on_what_there_is(kind):
    distance = kind.train(ring(2, 80, 0), **FEW)
    assert np.isfinite(distance.noise) and distance.far > 1


@every_kind
def test_training_stops_early_and_keeps_the_best_weights(kind, monkeypatch):
    """Held-out episodes are noise, so that what is learned is worse for them than what was there at the beginning."""
    updates = []
    monkeypatch.setattr(torch.optim.AdamW, "step", counting(torch.optim.AdamW.step, updates))
    kind.train(ring_that_ends_in_noise(), progress=False, iterations=200, learning_rate=1e-2, patience=3)
    assert 30 <= len(updates) < 200


@pytest.mark.parametrize("kind", [contrastive, sptm, quasimetric], ids=["contrastive", "sptm", "quasimetric"])
def test_the_default_is_to_train_to_the_end_whatever_held_out_episodes_say(kind, monkeypatch):
    """The least loss of a few held-out episodes is a matter of chance, see docs/own-distance.md."""
    updates = []
    monkeypatch.setattr(torch.optim.AdamW, "step", counting(torch.optim.AdamW.step, updates))
    made = kind.train(ring_that_ends_in_noise(), progress=False, iterations=100, learning_rate=1e-2)
    assert len(updates) == 100
    last = kind.train(ring_that_ends_in_noise(), progress=False, iterations=100, learning_rate=1e-2, patience=0)
    assert made.fingerprint == last.fingerprint


def ring_that_ends_in_noise() -> sgm.Experience:
    """The held-out episodes, the last two, have nothing to do with the others."""
    data = ring(40, 60, 0)
    last = data.episodes >= 38
    goals = data.achieved_goals.copy()
    goals[last] = np.random.default_rng(0).normal(scale=10, size=(last.sum(), 2))
    return dataclasses.replace(data, achieved_goals=goals)


def counting(function, calls):
    def counted(*arguments, **keywords):
        calls.append(1)
        return function(*arguments, **keywords)

    return counted


@every_kind
def test_a_device_that_is_not_here_is_refused(kind):
    with pytest.raises(InputError, match=r"device is 'cuda:9', which is not here: expected 'auto', 'cpu'"):
        kind.train(ring(2, 40, 0), device="cuda:9", iterations=1, progress=False)


def test_closeness_knows_far_pairs_of_one_long_episode_or_of_many_short_ones():
    short = ring(30, 10, 0)
    assert sptm.train(short, **FEW).far >= 1
    with pytest.raises(InputError, match="the only episode is 19 steps long: expected at least 60 steps"):
        sptm.train(ring(1, 20, 0), **FEW)
