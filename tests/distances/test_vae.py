"""The β-VAE's features: what they tell apart, and their file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import sgm  # noqa: E402
from sgm.distances import TableDistance  # noqa: E402
from sgm.distances.vae import VAE, VAEConfig, VAEFeatures, negative_bound, train_vae  # noqa: E402
from sgm.errors import InputError, StoreError  # noqa: E402
from sgm.learning.encoders import to_input  # noqa: E402

TINY = VAEConfig(width=8, latent=6, iterations=150, batch=32, learning_rate=3e-3)
SIZE = (16, 24)


def blots(episodes: int, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures 16 × 24 of a bright spot somewhere, with noise: frames, and (episodes, length, 2) where it is."""
    random = np.random.default_rng(seed)
    places = random.uniform([0, 0], SIZE, (episodes, length, 2))
    x, y = np.meshgrid(np.arange(16), np.arange(24))
    off = (x - places[..., None, None, 0]) ** 2 + (y - places[..., None, None, 1]) ** 2
    bright = 200 * np.exp(-off / 40)[..., None] + random.integers(0, 50, (*off.shape, 3))
    return bright.astype(np.uint8), places


@pytest.fixture(scope="module")
def trained() -> VAEFeatures:
    return train_vae(blots(10, 50, 1)[0], TINY, progress=False)


def test_what_looks_alike_has_features_alike(trained):
    frames, places = blots(1, 200, 2)
    features = trained(frames[0])
    assert features.shape == (200, 6) and features.dtype == np.float32
    apart = np.linalg.norm(places[0, :, None] - places[0], axis=2)
    alike = np.linalg.norm(features[:, None] - features, axis=2)
    assert np.median(alike[(apart < 2) & (apart > 0)]) < 0.5 * np.median(alike[apart > 8])


def test_training_lowers_the_bound():
    pictures, noise = to_input(blots(1, 64, 3)[0][0]), torch.zeros(64, 6)
    torch.manual_seed(0)
    network = VAE(TINY, SIZE)
    assert network.decode(torch.zeros(2, 6)).shape == (2, 3, 24, 16)
    before = negative_bound(network, pictures, noise, 1.0).item()
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        negative_bound(network, pictures, noise, 1.0).backward()
        optimizer.step()
    assert negative_bound(network, pictures, noise, 1.0).item() < 0.5 * before


def test_the_divergence_is_0_for_a_standard_normal_and_counts_beta_times():
    network = VAE(TINY, SIZE)
    for layer in (network.means[2], network.log_variances):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    pictures, noise = to_input(blots(1, 8, 3)[0][0]), torch.zeros(8, 6)
    plain, weighted = (negative_bound(network, pictures, noise, beta).item() for beta in (0.0, 4.0))
    assert plain == weighted
    network.means[2].bias.data.fill_(2.0)  # mean 2, variance 1: half of 2² for each of 6 latents
    plain, weighted = (negative_bound(network, pictures, noise, beta).item() for beta in (0.0, 4.0))
    assert weighted - plain == pytest.approx(4 * 6 * 2, rel=1e-3)


def test_a_seed_makes_one_network_read_from_a_checkpoint_or_not(tmp_path: Path):
    frames, short = blots(4, 20, 1)[0], dataclasses.replace(TINY, iterations=5)
    made = [train_vae(frames, short, checkpoint=c, progress=False) for c in (None, tmp_path / "ck", tmp_path / "ck")]
    assert len({features.fingerprint for features in made}) == 1
    assert train_vae(frames, short, seed=1, progress=False).fingerprint != made[0].fingerprint
    with pytest.raises(InputError, match="another training"):
        train_vae(frames, dataclasses.replace(short, beta=2.0), checkpoint=tmp_path / "ck", progress=False)


def test_they_come_back_from_a_file_without_the_decoder(trained, tmp_path: Path):
    trained.save(tmp_path / "f.safetensors", {"seed": 0})
    back = VAEFeatures.load(tmp_path / "f.safetensors")
    assert back.fingerprint == trained.fingerprint and back.config == TINY and back.size == SIZE
    frames = blots(1, 20, 5)[0][0]
    np.testing.assert_array_equal(back(frames), trained(frames))
    assert (
        (tmp_path / "f.safetensors").stat().st_size < 20_000 < 4 * sum(p.numel() for p in VAE(TINY, SIZE).parameters())
    )
    (tmp_path / "f.safetensors").write_bytes(b"anything")
    with pytest.raises(StoreError):
        VAEFeatures.load(tmp_path / "f.safetensors")


def test_a_memory_takes_them_as_features(trained):
    frames = blots(1, 40, 6)[0][0]
    distance = TableDistance(np.random.default_rng(0).uniform(0, 3, (40, 40)))
    memory = sgm.SparseGraphicalMemory(
        distance, tau_p=0.5, features=lambda numbers: trained(frames[np.asarray(numbers).ravel()])
    )
    memory.extend(np.arange(40))
    alone = sgm.SparseGraphicalMemory(distance, tau_p=None)
    alone.extend(np.arange(40))
    assert len(memory) >= len(alone) > 0


def test_wrong_input_is_refused(trained):
    with pytest.raises(InputError, match=r"\(n, 24, 16, 3\)"):
        trained(np.zeros((2, 16, 24, 3), np.uint8))
    assert trained(np.zeros((0, 24, 16, 3), np.uint8)).shape == (0, 6)
    with pytest.raises(InputError, match="multiples of 8"):
        train_vae(np.zeros((2, 3, 24, 20, 3), np.uint8), TINY)
    with pytest.raises(InputError, match="episodes, images, height, width"):
        train_vae(np.zeros((3, 24, 16, 3), np.uint8), TINY)
