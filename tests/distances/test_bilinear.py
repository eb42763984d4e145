"""The bilinear distance: what it learns from, what it says, its calibration and its file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from scipy.ndimage import gaussian_filter1d  # noqa: E402

import sgm  # noqa: E402
from sgm.distances.bilinear import (  # noqa: E402
    Bilinear,
    BilinearConfig,
    BilinearDistance,
    draw_ahead,
    train_bilinear,
)
from sgm.distances.precision import evaluate_distance  # noqa: E402
from sgm.errors import InputError, StoreError  # noqa: E402
from sgm.learning import loop as fitting  # noqa: E402

TINY = BilinearConfig(width=8, embedding=16, iterations=100, batch=64, reach=5, learning_rate=3e-3)
SIZE = (16, 24)


def corridor(episodes: int, steps: int, seed: int, back: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Walks around a ring with a smooth random wall, of which pictures are 16 × 24 cuts: frames, and poses in metres.

    A step goes from `back` to 2 columns of 0.1 m ahead, and the light flickers.
    """
    noise = gaussian_filter1d(np.random.default_rng(0).normal(size=(24, 200, 3)), 6, axis=1, mode="wrap")
    wall = np.clip(90 + 300 * noise, 0, 175)
    random = np.random.default_rng(seed)
    walks = random.integers(0, 200, (episodes, 1)) + random.integers(back, 3, (episodes, steps)).cumsum(1)
    frames = wall[:, (walks[..., None] + np.arange(16)) % 200].transpose(1, 2, 0, 3, 4)
    frames = (frames + random.uniform(0, 80, (episodes, steps, 1, 1, 1))).astype(np.uint8)
    angle = 2 * np.pi * walks / 200
    return frames, np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=2) * 20 / (2 * np.pi)


@pytest.fixture(scope="module")
def trained() -> BilinearDistance:
    return train_bilinear(corridor(30, 60, 1)[0], TINY, progress=False)


def test_it_learns_what_is_near_in_walks_it_has_not_seen(trained):
    frames, poses = corridor(10, 60, 2)
    metres = {"near": 0.5, "heading": 45.0, "far": 1.2, "reach": 5, "apart": 30, "recalls": (0.5,)}
    result = evaluate_distance(trained, frames, poses, number=400, pairs=400, **metres)
    untrained = train_bilinear(corridor(30, 60, 1)[0], dataclasses.replace(TINY, iterations=0), progress=False)
    before = evaluate_distance(untrained, frames, poses, number=400, pairs=400, **metres)
    assert result.auc > 0.7  # walks come back: some of what lies 30 steps apart is near
    assert result.accepted[0].false < 0.05 < before.accepted[0].false


def test_it_knows_the_way_there_from_the_way_back():
    """On a ring where all walks go one way, what lies behind is far."""
    distance = train_bilinear(corridor(30, 60, 1, back=1)[0], TINY, progress=False)
    embeddings = distance.embed(corridor(1, 60, 2, back=1)[0][0])
    ahead, behind = (
        np.median(distance.pairs(*pair))
        for pair in ((embeddings[:-5], embeddings[5:]), (embeddings[5:], embeddings[:-5]))
    )
    assert ahead < 7 and behind > 1.3 * ahead


def test_the_calibration_has_a_median_of_1_step_at_lag_1_and_9_at_lag_9(trained):
    calibration = json.loads(json.dumps(trained.calibration))
    assert list(calibration["medians"]) == [str(lag) for lag in range(1, 10)]
    assert calibration["medians"]["1"] == pytest.approx(1, rel=1e-3)
    assert calibration["medians"]["9"] == pytest.approx(9, rel=1e-2)
    assert calibration["longest"] == 10 and calibration["T"] > 0
    frames = corridor(200, 10, 4)[0]
    first = trained.embed(frames[:, 0])
    medians = [np.median(trained.pairs(first, trained.embed(frames[:, lag]))) for lag in (1, 9)]
    assert 0.6 < medians[0] < 1.6 and 3 < medians[1] <= 10


def test_distances_end_at_the_longest():
    config = dataclasses.replace(TINY, iterations=20, longest=6.5)
    distance = train_bilinear(corridor(30, 60, 1)[0], config, progress=False)
    embeddings = distance.embed(corridor(4, 60, 3)[0].reshape(-1, 24, 16, 3))
    assert distance(embeddings, embeddings).max() == 6.5
    assert distance.calibration["medians"]["9"] == 6.5
    with np.errstate(over="raise"):
        assert distance.steps(np.array([-1e30], np.float32)) == 6.5


def test_without_an_end_it_tells_far_pairs_apart_and_near_ones_are_as_before(trained):
    embeddings = trained.embed(corridor(1, 60, 5)[0][0])
    ended, endless = trained(embeddings, embeddings), trained.unlimited()(embeddings, embeddings)
    assert (ended == np.minimum(endless, 10)).all() and np.isfinite(endless).all()
    assert len(np.unique(endless[ended == 10])) > 100


def test_table_pairs_and_formula_agree(trained):
    a = trained.embed(corridor(2, 40, 3)[0].reshape(-1, 24, 16, 3))
    table = trained(a[:30], a)
    assert a.dtype == table.dtype == np.float32 and table.shape == (30, 80)
    np.testing.assert_allclose(trained.pairs(a[:30], a[30:60]), np.diagonal(table[:, 30:]), rtol=1e-4)
    closeness = a[:30].astype(float) @ trained.network.W.detach().numpy() @ a.T
    c, temperature = trained.calibration["c"], trained.calibration["T"]
    np.testing.assert_allclose(table, np.minimum(np.exp(-(closeness - c) / temperature), 10), rtol=1e-3)


def test_embeddings_are_those_of_the_trained_network(trained):
    frames = corridor(1, 30, 3)[0][0]
    with torch.inference_mode():
        expected = trained.network(torch.from_numpy(frames).permute(0, 3, 1, 2) / 127.5 - 1).numpy()
    np.testing.assert_allclose(trained.embed(frames), expected, atol=1e-4)


@pytest.mark.parametrize(("rollouts", "length"), [(0, 12), (0, 60), (4, 12), (4, 200), (1, 1000)])
def test_goals_are_ahead_and_pairs_of_chosen_rollouts_far_from_one_another(rollouts, length):
    config = BilinearConfig(rollouts=rollouts, batch=64, reach=8)
    rows, first, second = draw_ahead(np.random.default_rng(0), 9, length, config)
    assert (second - first >= 1).all() and (second - first <= 8).all()
    assert first.min() >= 0 and second.max() < length
    if not rollouts:
        assert len(rows) == 64 and set(rows.tolist()) == set(range(9))
        return
    assert len(set(rows.tolist())) == rollouts
    for row in set(rows.tolist()):
        assert (np.sort(first[rows == row])[1:] - np.sort(second[rows == row])[:-1] >= config.apart).all()


def test_a_training_goes_on_from_its_checkpoint_as_if_it_had_never_stopped(tmp_path: Path, monkeypatch):
    frames, short = corridor(30, 60, 1)[0], dataclasses.replace(TINY, iterations=6)
    whole = train_bilinear(frames, short, progress=False).fingerprint
    checkpoint = tmp_path / "ck"
    write = fitting._Run.write

    def stop(*args):
        write(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting._Run, "write", stop)
    monkeypatch.setattr(
        fitting.train_network, "__kwdefaults__", {**fitting.train_network.__kwdefaults__, "checkpoint_every": 3}
    )
    with pytest.raises(KeyboardInterrupt):
        train_bilinear(frames, short, checkpoint=checkpoint, progress=False)
    monkeypatch.setattr(fitting._Run, "write", write)
    assert train_bilinear(frames, short, checkpoint=checkpoint, progress=False).fingerprint == whole
    assert train_bilinear(frames, short, seed=1, progress=False).fingerprint != whole
    with pytest.raises(InputError, match="another training"):
        train_bilinear(frames, dataclasses.replace(short, reach=6), checkpoint=checkpoint, progress=False)


def test_it_comes_back_from_its_file(trained, tmp_path: Path):
    trained.save(tmp_path / "d.safetensors", {"seed": 0})
    back = BilinearDistance.load(tmp_path / "d.safetensors")
    assert back.fingerprint == trained.fingerprint and back.config == TINY and back.size == SIZE
    assert back.calibration == trained.calibration
    frames = corridor(1, 20, 5)[0][0]
    np.testing.assert_array_equal(back(back.embed(frames), back.embed(frames)), trained(*[trained.embed(frames)] * 2))
    (tmp_path / "d.safetensors").write_bytes(b"anything")
    with pytest.raises(StoreError):
        BilinearDistance.load(tmp_path / "d.safetensors")


def test_the_calibration_is_part_of_the_fingerprint(trained):
    other = BilinearDistance(trained.network, SIZE, TINY)
    assert other.fingerprint != trained.fingerprint
    other.calibrate(corridor(30, 60, 1)[0])
    assert other.fingerprint == trained.fingerprint


def test_a_memory_over_it_is_saved_and_loaded(trained, tmp_path: Path):
    frames = corridor(3, 40, 6)[0].reshape(-1, 24, 16, 3)
    memory = sgm.SparseGraphicalMemory(trained, tau_p=None)
    memory.extend(frames)
    assert 1 < len(memory) < len(frames)
    memory.save(tmp_path / "m.sgm")
    assert len(sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", trained)) == len(memory)
    other = BilinearDistance(Bilinear(TINY, SIZE).eval(), SIZE, TINY)
    with pytest.raises(StoreError, match="another distance"):
        sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", other)


def test_wrong_input_is_refused(trained):
    with pytest.raises(InputError, match=r"\(n, 24, 16, 3\)"):
        trained.embed(np.zeros((2, 16, 24, 3), np.uint8))
    assert trained.embed(np.zeros((0, 24, 16, 3), np.uint8)).shape == (0, 16)
    with pytest.raises(InputError, match="expected at least 11"):
        train_bilinear(np.zeros((3, 10, 24, 16, 3), np.uint8), TINY)
    with pytest.raises(InputError, match="episodes, images, height, width"):
        train_bilinear(np.zeros((3, 24, 16, 3), np.uint8), TINY)
    with pytest.raises(InputError, match="at least 8 × 8"):
        train_bilinear(np.zeros((3, 20, 7, 16, 3), np.uint8), TINY)
    with pytest.raises(InputError, match="expected it to fall"):
        trained.calibrate(np.zeros((3, 20, 24, 16, 3), np.uint8))
    with pytest.raises(InputError, match="max_steps is 1"):
        BilinearConfig(max_steps=1)
