"""The contrastive distance: what it learns from, what it says, and its file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from scipy.ndimage import gaussian_filter1d  # noqa: E402

import sgm  # noqa: E402
from sgm.distances.contrastive import (  # noqa: E402
    Contrast,
    ContrastiveConfig,
    ContrastiveDistance,
    draw_pairs,
    falling_curve,
    to_steps,
    train,
    train_contrastive,
)
from sgm.distances.precision import evaluate_distance  # noqa: E402
from sgm.errors import InputError, StoreError  # noqa: E402

TINY = ContrastiveConfig(width=4, embedding=16, iterations=100, rollouts=8, pairs=2)
SIZE = (16, 12)


def corridor(episodes: int, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Walks along a corridor with a smooth random wall, whose pictures are 16 × 12 cuts of it: frames and poses."""
    noise = gaussian_filter1d(np.random.default_rng(0).normal(size=(12, 216, 3)), 6, axis=1)
    wall = np.clip(127 + 400 * noise, 0, 255).astype(np.uint8)
    random = np.random.default_rng(seed)
    walks = random.integers(0, 200, (episodes, 1)) + random.integers(-1, 3, (episodes, steps)).cumsum(1)
    places = np.abs((walks + 199) % 398 - 199)  # reflected at the ends
    frames = wall[:, places[..., None] + np.arange(16)].transpose(1, 2, 0, 3, 4)
    return np.ascontiguousarray(frames), np.stack([10.0 * places, 0 * places, 0 * places], axis=2)


@pytest.fixture(scope="module")
def trained() -> ContrastiveDistance:
    return train_contrastive(corridor(30, 60, 1)[0], TINY, progress=False)


def test_it_learns_what_is_near_in_walks_it_has_not_seen(trained):
    frames, poses = corridor(10, 60, 2)
    result = evaluate_distance(trained, frames, poses, number=400, pairs=400)
    torch.manual_seed(0)
    untrained = ContrastiveDistance(Contrast(TINY, SIZE).eval(), SIZE, TINY)
    untrained.calibrate(frames)
    before = evaluate_distance(untrained, frames, poses, number=400, pairs=400)
    assert result.auc > 0.8  # which says little: an untrained encoder has 0.9, and half of what it accepts is false
    assert result.accepted[0].false < 0.05 < 0.25 < before.accepted[0].false


def test_a_seed_makes_one_distance():
    frames, short = corridor(30, 60, 1)[0], dataclasses.replace(TINY, iterations=5)
    prints = [train_contrastive(frames, short, seed=seed, progress=False).fingerprint for seed in (0, 0, 1)]
    assert prints[0] == prints[1] != prints[2]


def test_training_can_go_on_from_another_distance(trained):
    more = dataclasses.replace(TINY, iterations=0)
    again = train_contrastive(corridor(30, 60, 1)[0], more, start=trained, progress=False)
    assert again.fingerprint == trained.fingerprint
    with pytest.raises(InputError, match="another architecture"):
        train_contrastive(corridor(2, 30, 1)[0], dataclasses.replace(more, width=2), start=trained, progress=False)


def test_table_pairs_and_calibration_agree(trained):
    a = trained.embed(corridor(2, 40, 3)[0].reshape(-1, 12, 16, 3))
    np.testing.assert_allclose(np.linalg.norm(a, axis=1), 1, atol=1e-5)
    table = trained(a[:30], a)
    assert table.dtype == np.float32 and table.shape == (30, 80)
    np.testing.assert_allclose(trained.pairs(a[:30], a[30:60]), np.diagonal(table[:, 30:]), atol=1e-2)
    np.testing.assert_allclose(np.diagonal(table), 0, atol=1e-2)
    assert table.min() >= 0 and table.max() <= trained.far
    expected = np.interp(-trained.closeness(a[:30], a), -trained.cosines, trained.lags)
    np.testing.assert_allclose(table, expected, atol=1e-5)


def test_steps_grow_with_the_lag(trained):
    frames = corridor(40, 30, 4)[0]
    first = trained.embed(frames[:, 0])
    medians = [np.median(trained.pairs(first, trained.embed(frames[:, lag]))) for lag in (1, 5, 15)]
    assert medians[0] < medians[1] < medians[2]
    assert abs(medians[1] - 5) < 3


def test_the_curve_falls_whatever_the_medians_do():
    lags, levels = falling_curve(1.0, np.array([0.9, 0.95, 0.5, 0.5, 0.6, 0.1], np.float32))
    np.testing.assert_array_equal(lags, [0, 1, 3, 6])
    np.testing.assert_allclose(levels, [1, 0.9, 0.5, 0.1])
    np.testing.assert_allclose(
        to_steps(np.array([[2, 1, 0.95], [0.7, 0.1, -1]], np.float32), levels, lags),
        [[0, 0, 0.5], [2, 6, 6]],
        atol=1e-5,
    )
    lags, levels = falling_curve(1.0, np.ones(5, np.float32))
    assert list(lags) == [0, 1] and levels[1] < 1


@pytest.mark.parametrize(("length", "pairs"), [(12, 4), (61, 2), (200, 16), (1000, 16)])
def test_pairs_of_one_rollout_are_close_and_far_from_one_another(length, pairs):
    config = ContrastiveConfig(rollouts=6, pairs=pairs)
    rows, first, second = draw_pairs(np.random.default_rng(0), 9, length, config)
    assert (np.abs(second - first) >= 1).all() and (np.abs(second - first) <= config.reach).all()
    assert min(first.min(), second.min()) >= 0 and max(first.max(), second.max()) < length
    assert len(set(rows.tolist())) == 6
    for row in set(rows.tolist()):
        times = np.stack([first, second])[:, rows == row]
        gaps = np.sort(times.min(0))[1:] - np.sort(times.max(0))[:-1]
        assert (gaps >= config.apart).all()


def test_it_comes_back_from_its_file(trained, tmp_path: Path):
    trained.save(tmp_path / "d.safetensors", {"seed": 0})
    back = ContrastiveDistance.load(tmp_path / "d.safetensors")
    assert back.fingerprint == trained.fingerprint and back.config == TINY and back.size == SIZE
    frames = corridor(1, 20, 5)[0][0]
    # One array for both ends on each side: BLAS may round the product of an array with itself another way.
    np.testing.assert_array_equal(back(*[back.embed(frames)] * 2), trained(*[trained.embed(frames)] * 2))
    (tmp_path / "d.safetensors").write_bytes(b"anything")
    with pytest.raises(StoreError):
        ContrastiveDistance.load(tmp_path / "d.safetensors")


def test_a_memory_over_it_is_saved_and_loaded(trained, tmp_path: Path):
    frames = corridor(3, 40, 6)[0].reshape(-1, 12, 16, 3)
    memory = sgm.SparseGraphicalMemory(trained, tau_p=None)
    memory.extend(frames)
    assert 1 < len(memory) < len(frames)
    memory.save(tmp_path / "m.sgm")
    assert len(sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", trained)) == len(memory)
    other = ContrastiveDistance(Contrast(TINY, SIZE).eval(), SIZE, TINY)
    with pytest.raises(StoreError, match="another distance"):
        sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", other)


def test_wrong_pictures_are_refused(trained):
    with pytest.raises(InputError, match=r"\(n, 12, 16, 3\)"):
        trained.embed(np.zeros((2, 16, 12, 3), np.uint8))
    assert trained.embed(np.zeros((0, 12, 16, 3), np.uint8)).shape == (0, 16)
    with pytest.raises(InputError, match="expected at least 7"):
        train_contrastive(np.zeros((3, 6, 12, 16, 3), np.uint8), TINY)
    with pytest.raises(InputError, match="episodes, images, height, width"):
        train_contrastive(np.zeros((3, 12, 16, 3), np.uint8), TINY)
    with pytest.raises(InputError, match="0 lags"):
        trained.calibrate(np.zeros((3, 6, 12, 16, 3), np.uint8), lags=0)


# -- from experience ---------------------------------------------------------------------------------------------


def images_as_experience(episodes: int, seed: int) -> sgm.Experience:
    """Walks of different length along the corridor."""
    frames = corridor(episodes, 60, seed)[0]
    lengths = 40 + np.arange(episodes) % 21
    observations = np.concatenate([frames[e, :n] for e, n in enumerate(lengths)])
    return sgm.Experience(observations, np.repeat(np.arange(episodes), lengths))


def ring(episodes: int, steps: int, seed: int) -> sgm.Experience:
    """Walks round a circle, 100 steps long; observations are the position and a useless number, goals the position."""
    random = np.random.default_rng(seed)
    moves = random.choice([-1, 1], (episodes, steps // 10)).repeat(10, axis=1)
    angle = 2 * np.pi / 100 * (random.integers(0, 100, (episodes, 1)) + moves.cumsum(1)).ravel()
    goals = 10 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    observations = np.concatenate([goals, random.normal(size=(len(goals), 1))], axis=1)
    return sgm.Experience(observations, np.repeat(np.arange(episodes), moves.shape[1]), achieved_goals=goals)


@pytest.fixture(scope="module")
def round_the_ring() -> ContrastiveDistance:
    return train(ring(40, 60, 0), iterations=500, width=64, reach=8, progress=False)


def test_it_learns_from_images_in_episodes_of_any_length():
    distance = train(images_as_experience(30, 1), TINY, pairs=6, standardise=True, progress=False)
    frames, poses = corridor(10, 60, 2)
    assert evaluate_distance(distance, frames, poses, number=400, pairs=400).accepted[0].false < 0.1
    assert distance.far <= 4 * TINY.reach and 0 < distance.noise < 5


def test_vectors_and_goals_of_another_shape_are_in_one_space(round_the_ring):
    held = ring(4, 60, 1)
    observations, goals = round_the_ring.embed(held.observations), round_the_ring.embed_goal(held.goals)
    assert np.median(round_the_ring.pairs(observations, goals)) < 1
    medians = [np.median(round_the_ring.pairs(observations[:-lag], goals[lag:])) for lag in (1, 4, 9)]
    assert medians[0] < medians[1] < medians[2] and abs(medians[1] - 4) < 2
    assert 0 < round_the_ring.noise < 2


def test_a_memory_of_experience_has_goals_to_send_a_controller_to(round_the_ring):
    memory = sgm.SparseGraphicalMemory(round_the_ring, tau_a=3.0, tau_p=None, max_dist=8.0)
    memory.extend(ring(20, 60, 2))
    assert 5 < len(memory) < 300
    assert memory.attributes["achieved_goal"].shape == (len(memory), 2)


def test_a_distance_between_vectors_comes_back_from_its_file(round_the_ring, tmp_path: Path):
    round_the_ring.save(tmp_path / "d.safetensors")
    back = ContrastiveDistance.load(tmp_path / "d.safetensors")
    assert back.fingerprint == round_the_ring.fingerprint and back.size == (3, 2)
    held = ring(1, 20, 1)
    np.testing.assert_array_equal(back.embed(held.observations), round_the_ring.embed(held.observations))
    assert back.noise == pytest.approx(round_the_ring.noise) and back.noise > 0


def test_images_are_flattened_for_a_perceptron():
    distance = train(images_as_experience(3, 1), encoder="mlp", iterations=3, progress=False)
    assert distance.embed(np.zeros((2, 12, 16, 3), np.uint8)).shape == (2, distance.config.embedding)


def test_experience_that_cannot_be_learned_from_is_refused(round_the_ring):
    data = ring(2, 20, 0)
    with pytest.raises(InputError, match="no two observations in a row"):
        train(sgm.Experience(data.observations, np.arange(len(data))))
    with pytest.raises(InputError, match="expected images of one size, or vectors"):
        train(sgm.Experience(np.zeros((9, 8, 8, 3), np.uint8), np.zeros(9, int), achieved_goals=np.zeros((9, 2))))
    with pytest.raises(InputError, match=r"shape \(9, 2, 2, 2, 2\)"):
        train(sgm.Experience(np.zeros((9, 2, 2, 2, 2)), np.zeros(9, int)))
    with pytest.raises(InputError, match=r"goals are float64 of shape \(1, 3\): expected numbers \(n, 2\)"):
        round_the_ring.embed_goal(data.observations[:1])
