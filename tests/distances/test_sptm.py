"""The closeness classifier: what it learns from, its table, and its file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from sgm.distances import sptm as module  # noqa: E402
from sgm.distances.precision import evaluate_distance  # noqa: E402
from sgm.distances.sptm import (  # noqa: E402
    PAPER,
    Closeness,
    ClosenessConfig,
    ClosenessDistance,
    draw_labelled,
    train_closeness,
)
from sgm.errors import InputError, StoreError  # noqa: E402
from sgm.learning.encoders import to_input  # noqa: E402
from tests.distances.test_contrastive import corridor  # noqa: E402

TINY = ClosenessConfig(width=4, embedding=16, hidden=24, iterations=60, batch=64, apart=20, learning_rate=3e-3)
SIZE = (16, 12)


def untrained(seed: int = 0, config: ClosenessConfig = TINY) -> ClosenessDistance:
    torch.manual_seed(seed)
    return ClosenessDistance(Closeness(config, SIZE).eval(), SIZE, config)


@pytest.fixture(scope="module")
def trained() -> ClosenessDistance:
    return train_closeness(corridor(30, 60, 1)[0], TINY, progress=False)


def test_it_learns_what_is_close_in_walks_it_has_not_seen(trained):
    frames, poses = corridor(10, 60, 2)
    assert evaluate_distance(trained, frames, poses, number=200, pairs=400).auc > 0.75


def test_the_table_is_the_head_on_embeddings_side_by_side(monkeypatch):
    distance = untrained()
    a, b = (np.random.default_rng(s).normal(size=(n, 16)).astype(np.float32) for s, n in ((0, 37), (1, 53)))
    with torch.inference_mode():
        side_by_side = np.concatenate([np.repeat(a, 53, 0), np.tile(b, (37, 1))], axis=1)
        expected = distance.network.head(torch.from_numpy(side_by_side)).view(37, 53).numpy()
    np.testing.assert_allclose(distance.closeness(a, b), expected, atol=1e-5)
    monkeypatch.setattr(module, "_PAIRS", 40)
    monkeypatch.setattr(module, "_GOALS", 20)
    np.testing.assert_allclose(distance.closeness(a, b), expected, atol=1e-5)
    np.testing.assert_allclose(distance.pairs(a, b[:37]), np.diagonal(distance(a, b)), atol=1e-4)


def test_the_distance_says_what_the_network_says_of_pictures(trained):
    frames = corridor(1, 40, 3)[0][0]
    with torch.inference_mode():
        expected = trained.network(to_input(frames[:20]), to_input(frames[20:])).numpy()
    vectors = trained.embed(frames)
    np.testing.assert_allclose(np.diagonal(trained.closeness(vectors[:20], vectors[20:])), expected, atol=1e-3)


def test_it_is_asymmetric_and_stays_between_zero_and_far(trained):
    vectors = trained.embed(corridor(1, 60, 3)[0][0])
    table = trained(vectors, vectors)
    assert table.dtype == np.float32 and table.shape == (60, 60)
    assert table.min() >= 0 and table.max() <= trained.far
    assert np.abs(table - table.T).max() > 0.1


def test_steps_fall_with_the_logit(trained):
    assert (np.diff(trained.lags) > 0).all() and (np.diff(trained.logits) < 0).all()
    np.testing.assert_allclose(trained.steps(trained.logits), trained.lags, atol=1e-4)


def test_pairs_are_labelled_by_the_time_between_them():
    config = ClosenessConfig(batch=401)
    rows, first, second, close = draw_labelled(np.random.default_rng(0), 7, 40, config)
    assert len(rows) == len(close) == 401 and close.sum() == 200 and close.dtype == np.float32
    lag = (second - first)[close == 1]
    assert set(lag.tolist()) == {1, 2, 3, 4, 5}
    apart = (second - first)[close == 0]
    assert np.abs(apart).min() >= 25 and apart.min() < 0 < apart.max()
    assert min(first.min(), second.min()) == 0 and max(first.max(), second.max()) == 39
    assert set(rows.tolist()) == set(range(7))


def test_the_papers_head_has_four_layers_of_512_units():
    network = Closeness(dataclasses.replace(PAPER, encoder="small", width=2), SIZE)
    layers = [layer for layer in network.head if isinstance(layer, torch.nn.Linear)]
    assert [layer.in_features for layer in layers] == [1024, 512, 512, 512, 512]
    assert PAPER.encoder == "resnet18" and layers[-1].out_features == 1
    assert (ClosenessConfig().embedding, ClosenessConfig(hidden=64).hidden) == (128, 64)


def test_training_can_go_on_from_another_distance(trained):
    more = dataclasses.replace(TINY, iterations=0)
    again = train_closeness(corridor(30, 60, 1)[0], more, start=trained, progress=False)
    assert again.fingerprint == trained.fingerprint
    with pytest.raises(InputError, match="another architecture"):
        train_closeness(corridor(2, 30, 1)[0], dataclasses.replace(more, hidden=8), start=trained, progress=False)


def test_a_checkpoint_is_taken_up_by_the_training_it_is_of(tmp_path: Path):
    frames, short = corridor(30, 60, 1)[0], dataclasses.replace(TINY, iterations=5)
    options = {"checkpoint": tmp_path / "ck", "progress": False}
    first, again = (train_closeness(frames, short, **options) for _ in range(2))
    assert again.fingerprint == first.fingerprint
    assert train_closeness(frames, short, progress=False).fingerprint == first.fingerprint
    for other in ({"seed": 1}, {"start": first}):
        with pytest.raises(InputError, match="another training"):
            train_closeness(frames, short, **options, **other)


def test_it_comes_back_from_its_file(trained, tmp_path: Path):
    trained.save(tmp_path / "d.safetensors", {"seed": 0})
    back = ClosenessDistance.load(tmp_path / "d.safetensors")
    assert back.fingerprint == trained.fingerprint and back.config == TINY and back.size == SIZE
    frames = corridor(1, 20, 5)[0][0]
    np.testing.assert_array_equal(back(back.embed(frames), back.embed(frames)), trained(*[trained.embed(frames)] * 2))
    (tmp_path / "d.safetensors").write_bytes(b"anything")
    with pytest.raises(StoreError):
        ClosenessDistance.load(tmp_path / "d.safetensors")


def test_other_weights_and_another_calibration_are_another_distance():
    distance, other = untrained(0), untrained(1)
    assert distance.fingerprint == untrained(0).fingerprint != other.fingerprint
    distance.calibrate(corridor(3, 30, 1)[0])
    assert distance.fingerprint != untrained(0).fingerprint


def test_wrong_input_is_refused(trained):
    with pytest.raises(InputError, match=r"\(n, 12, 16, 3\)"):
        trained.embed(np.full((2, 12, 16, 3), 7, np.float32))
    with pytest.raises(InputError, match=r"goals have shape \(2, 3\): expected \(n, 16\)"):
        trained(np.zeros((2, 16)), np.zeros((2, 3)))
    with pytest.raises(InputError, match="2 starts and 3 goals"):
        trained.pairs(np.zeros((2, 16)), np.zeros((3, 16)))
    with pytest.raises(InputError, match="expected at least 21"):
        train_closeness(np.zeros((3, 20, 12, 16, 3), np.uint8), TINY)
    with pytest.raises(InputError, match="reach < apart"):
        train_closeness(np.zeros((3, 30, 12, 16, 3), np.uint8), dataclasses.replace(TINY, reach=20))
    assert trained(np.zeros((0, 16)), np.zeros((3, 16))).shape == (0, 3)
    assert trained(np.zeros((3, 16)), np.zeros((0, 16))).shape == (3, 0)
    assert trained.pairs(np.zeros((0, 16)), np.zeros((0, 16))).shape == (0,)
