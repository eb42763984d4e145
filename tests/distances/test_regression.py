"""Distances of embeddings, by regression and by the quasimetric objective: what they learn, say and keep."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import sgm  # noqa: E402
from sgm.distances import quasimetric, regression  # noqa: E402
from sgm.distances.embedded import EmbeddedDistance  # noqa: E402
from sgm.distances.regression import RegressionConfig, RegressionDistance, expectile  # noqa: E402
from sgm.errors import InputError, StoreError  # noqa: E402
from tests.distances.test_contrastive import images_as_experience, ring  # noqa: E402

KINDS = [regression, quasimetric]
SHORT = {"iterations": 400, "batch": 128, "width": 64, "cap": 25, "progress": False}


def one_way(episodes: int, seed: int, stride: int = 1) -> sgm.Experience:
    """Walks round a circle of 60 places in one direction: the way back is the way round. Each dawdles at its end."""
    random = np.random.default_rng(seed)
    places = random.integers(0, 60, (episodes, 1)) + np.minimum(np.arange(60), 40)
    angle = (2 * np.pi / 60 * places).ravel()
    observations = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    observations += random.normal(scale=0.01, size=observations.shape)
    return sgm.Experience(observations, np.repeat(np.arange(episodes), 60))[::stride]


def along(distance: EmbeddedDistance, lag: int) -> np.ndarray:
    """Distances from each place of the circle to the one `lag` steps on."""
    angle = 2 * np.pi / 60 * np.arange(60)
    embeddings = distance.embed(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    return distance.pairs(embeddings, np.roll(embeddings, -lag, axis=0))


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__.rsplit(".", 1)[1])
def trained(request) -> EmbeddedDistance:
    return request.param.train(one_way(60, 0), **SHORT)


def test_it_tells_steps_and_the_way_there_from_the_way_back(trained):
    for lag in (3, 8, 16):
        assert abs(np.median(along(trained, lag)) - lag) < 0.3 * lag + 1
    assert np.median(along(trained, -8)) > 1.25 * np.median(along(trained, 8))
    assert 20 <= trained.far <= 25 and 0 < trained.noise < 1.5


def test_pairs_and_table_agree_and_stay_between_zero_and_far(trained):
    embeddings = trained.embed(one_way(2, 1).observations)
    table = trained(embeddings[:50], embeddings)
    assert table.dtype == np.float32 and table.shape == (50, 120)
    assert table.min() >= 0 and table.max() == trained.far
    np.testing.assert_allclose(
        trained.pairs(embeddings[:50], embeddings[50:100]), np.diagonal(table[:, 50:]), atol=0.05
    )
    np.testing.assert_allclose(np.diagonal(table), 0, atol=0.05)


def test_it_comes_back_from_its_file_with_its_noise(trained, tmp_path: Path):
    trained.save(tmp_path / "d.safetensors", {"seed": 0})
    back = type(trained).load(tmp_path / "d.safetensors")
    assert back.fingerprint == trained.fingerprint and back.config == trained.config
    assert back.noise == pytest.approx(trained.noise) and back.far == trained.far
    observations = one_way(1, 2).observations
    np.testing.assert_array_equal(back(*[back.embed(observations)] * 2), trained(*[trained.embed(observations)] * 2))
    (tmp_path / "d.safetensors").write_bytes(b"anything")
    with pytest.raises(StoreError):
        type(trained).load(tmp_path / "d.safetensors")


def test_a_memory_over_it_plans_the_way_round(trained):
    memory = sgm.SparseGraphicalMemory(trained, tau_a=3.0, tau_p=None, max_dist=12.0)
    data = one_way(40, 3)
    memory.extend(data.observations)
    assert 5 < len(memory) < 120
    assert memory.plan(data.observations[0], data.observations[30]).total > 15


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_makes_one_distance(kind):
    data, few = one_way(12, 0), {**SHORT, "iterations": 5}
    prints = [kind.train(data, seed=seed, **few).fingerprint for seed in (0, 0, 1)]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_training_ends_with_the_same_distance(kind, tmp_path: Path, monkeypatch):
    """Interrupted between two checkpoints; early stopping goes on from where it was."""
    data, few = one_way(20, 0), {**SHORT, "iterations": 450}
    whole = kind.train(data, **few)
    real, calls = kind.objective, []

    def failing(*arguments):
        loss = real(*arguments)

        def counted(*batch):
            calls.append(1)
            if len(calls) == 420:
                raise KeyboardInterrupt
            return loss(*batch)

        return counted

    monkeypatch.setattr(kind, "objective", failing)
    with pytest.raises(KeyboardInterrupt):
        kind.train(data, checkpoint=tmp_path / "c", **few)
    assert (tmp_path / "c").exists()
    monkeypatch.setattr(kind, "objective", real)
    assert kind.train(data, checkpoint=str(tmp_path / "c"), **few).fingerprint == whole.fingerprint


@pytest.mark.parametrize("kind", KINDS)
def test_goals_of_another_shape_are_in_one_space(kind):
    distance = kind.train(ring(40, 60, 0), **{**SHORT, "iterations": 600, "cap": 20})
    held = ring(4, 60, 1)
    observations, goals = distance.embed(held.observations), distance.embed_goal(held.goals)
    assert np.median(distance.pairs(observations, goals)) < 1.5
    medians = [np.median(distance.pairs(observations[:-lag], goals[lag:])) for lag in (1, 4, 9)]
    assert medians[0] < medians[1] < medians[2] and abs(medians[1] - 4) < 2
    with pytest.raises(InputError, match=r"goals are float64 of shape \(1, 3\): expected numbers \(n, 2\)"):
        distance.embed_goal(held.observations[:1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["rgb", "grey", "float"])
def test_it_learns_from_images_in_episodes_of_any_length(kind, form):
    data = images_as_experience(30, 1)
    if form != "rgb":
        grey = data.observations[..., 0]
        data = dataclasses.replace(data, observations=grey if form == "grey" else (grey / 255).astype(np.float32))
    distance = kind.train(data, width=4, iterations=60, batch=48, cap=15, progress=False)
    first, *_ = data
    embeddings = distance.embed(first.observations)
    assert np.median(distance.pairs(embeddings[:-1], embeddings[1:])) < 0.5 * np.median(
        distance.pairs(embeddings[:-12], embeddings[12:])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_thinned_experience_has_the_same_steps(kind):
    distance = kind.train(one_way(90, 0, stride=4), **SHORT)
    for lag in (4, 12):
        assert abs(np.median(along(distance, lag)) - lag) < 0.35 * lag + 1.5


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_settings_are_refused(kind):
    data = one_way(12, 0)
    with pytest.raises(InputError, match="depth is no setting: expected encoder, width"):
        kind.train(data, depth=5)
    with pytest.raises(InputError, match="cap is 1"):
        kind.train(data, cap=1)
    with pytest.raises(InputError, match="device is 'cuda:9'"):
        kind.train(data, device="cuda:9")
    with pytest.raises(InputError, match="expected an even number"):
        kind.train(data, embedding=5)


def test_optimism_is_between_the_least_and_the_mean():
    values = torch.tensor([4.0, 8.0])
    candidates = torch.linspace(3, 9, 601)
    best = [candidates[torch.stack([expectile(c - values, o) for c in candidates]).argmin()] for o in (0.5, 0.2, 0.01)]
    np.testing.assert_allclose(best, [6, 4.8, 4.04], atol=0.02)
    with pytest.raises(InputError, match="optimism is 1"):
        RegressionConfig(optimism=1)


def test_iqe_is_a_head_too():
    distance = regression.train(one_way(60, 0), head="iqe", **SHORT)
    assert isinstance(distance, RegressionDistance)
    assert np.median(along(distance, 3)) < np.median(along(distance, 12)) < np.median(along(distance, -8))


def test_a_reach_beyond_the_cap_is_refused():
    with pytest.raises(InputError, match=r"reach is 50, .* expected 1 ≤ reach ≤ 40"):
        quasimetric.train(one_way(12, 0), reach=50)
