"""A distance between pictures, learned by telling what comes a few steps later from everything else (InfoNCE)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from sgm.errors import InputError
from sgm.learning.encoders import (
    Pictures,
    check_pictures,
    check_rollouts,
    digest,
    for_inference,
    make_encoder,
    run,
    to_input,
)
from sgm.learning.loop import fit, go_on_from, load_network, save_network

_FORMAT = "sgm-contrastive-1"
Floats = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class ContrastiveConfig:
    """Hyper-parameters."""

    encoder: str = "small"  # or "resnet18"
    width: int = 32  # of the small encoder
    embedding: int = 128  # numbers of an embedding, which has length 1
    iterations: int = 4_000  # updates
    rollouts: int = 12  # of a batch
    pairs: int = 16  # of each rollout in a batch; all others in the batch are negatives of a pair
    reach: int = 5  # a pair is 1 to so many steps apart
    apart: int = 25  # pairs of one rollout are at least so many steps apart
    learning_rate: float = 1e-3  # of AdamW, at its highest


class Contrast(nn.Module):
    """An encoder and the sharpness of its comparisons."""

    def __init__(self, config: ContrastiveConfig, size: tuple[int, int]) -> None:
        """Make an untrained network for pictures of this (width, height)."""
        super().__init__()
        self.encoder = make_encoder(config.encoder, 3, size, config.embedding, width=config.width)
        self.sharpness = nn.Parameter(torch.tensor(2.3))

    def forward(self, pictures: Tensor) -> Tensor:
        """(n, 3, height, width) pictures to (n, e) vectors of length 1."""
        return functional.normalize(self.encoder(pictures), dim=1)

    def compare(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(n, m) closeness of embeddings."""
        return self.sharpness.clamp(max=4.0).exp() * (starts @ goals.T)


class ContrastiveDistance:
    """Steps from one picture to another, by the cosine of their embeddings; follows the Distance contract.

    Deviations from the paper, whose contrastive distance (SafetyGym) compares by a bilinear form zᵀ W z': embeddings
    have length 1, so that all pairs are one product of matrices, and the distance is symmetric.

    The calibration turns closeness into steps: `cosines[i]` is the median cosine of what lies `lags[i]` steps apart in
    random exploration; in between it is linear, and closeness below the last one counts `far` steps.
    """

    def __init__(self, network: Contrast, size: tuple[int, int], config: ContrastiveConfig) -> None:
        """Take a trained network; it is calibrated with `calibrate`."""
        self.network, self.size, self.config = network, size, config
        self.inference = for_inference(network.encoder)
        self.lags = np.array([0.0, 1.0], np.float32)
        self.cosines = np.array([1.0, 0.0], np.float32)

    @property
    def far(self) -> float:
        """Steps of what is not close at all."""
        return float(self.lags[-1])

    def embed(self, observations: ArrayLike) -> Floats:
        """(n, height, width, 3) uint8 pictures to (n, e)."""
        vectors = run(self.inference, check_pictures(observations, self.size))
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

    def __call__(self, starts: Floats, goals: Floats) -> Floats:
        """(n, e) and (m, e) to (n, m) steps."""
        return self.steps(self.closeness(starts, goals))

    def closeness(self, starts: Floats, goals: Floats) -> Floats:
        """(n, e) and (m, e) to (n, m) cosines."""
        return np.asarray(starts, np.float32) @ np.asarray(goals, np.float32).T

    def pairs(self, starts: Floats, goals: Floats) -> Floats:
        """(n, e) and (n, e) to (n,) steps, row by row."""
        return self.steps(np.einsum("ne,ne->n", starts, goals))

    def steps(self, cosines: Floats) -> Floats:
        """Steps for cosines, of any shape."""
        return to_steps(cosines, self.cosines, self.lags)

    def calibrate(self, frames: Pictures, lags: int = 20, samples: int = 2_000, seed: int = 0) -> None:
        """Find the median cosine at every lag in rollouts (episodes, pictures, height, width, 3)."""
        windows = draw_windows(self.embed, frames, lags, samples, seed)
        medians = np.median(np.einsum("ne,nle->nl", windows[:, 0], windows[:, 1:]), axis=0)
        self.lags, self.cosines = falling_curve(1.0, medians)

    @property
    def fingerprint(self) -> str:
        """What tells this distance from another one, for memory files."""
        return digest(self.network, self.lags, self.cosines)

    def save(self, path: str | os.PathLike[str], facts: dict[str, Any] | None = None) -> None:
        """Write a safetensors file; `facts` say how it was made."""
        calibration = {"lags": self.lags, "cosines": self.cosines}
        save_network(path, _FORMAT, self.network, self.size, self.config, facts, calibration=calibration)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ContrastiveDistance:
        """Read what `save` wrote; StoreError if the file is anything else."""
        network, size, config, (lags, cosines) = load_network(
            path, _FORMAT, ContrastiveConfig, Contrast, calibration=("lags", "cosines")
        )
        distance = cls(network, size, config)
        distance.lags, distance.cosines = lags, cosines
        return distance


def train_contrastive(
    frames: Pictures,
    config: ContrastiveConfig | None = None,
    *,
    seed: int = 0,
    start: ContrastiveDistance | None = None,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> ContrastiveDistance:
    """Train on random exploration: (episodes, pictures, height, width, 3) uint8.

    `start` is a distance of the same architecture to go on from, for example one that was trained in another maze.
    """
    config = config or ContrastiveConfig()
    episodes, length, size = check_rollouts(frames, config.reach + 2)
    torch.manual_seed(seed)
    network = Contrast(config, size)
    if start is not None:
        go_on_from(network, start.network)

    def loss(random: np.random.Generator) -> Tensor:
        rows, first, second = draw_pairs(random, episodes, length, config)
        both = to_input(np.concatenate([frames[rows, first], frames[rows, second]]))
        starts, goals = network(both).chunk(2)
        scores = network.compare(starts, goals)
        own = torch.arange(len(rows))
        return (functional.cross_entropy(scores, own) + functional.cross_entropy(scores.T, own)) / 2

    settings = {**dataclasses.asdict(config), "kind": "contrastive", "frames": list(frames.shape)}
    if start is not None:
        settings["start"] = digest(start.network)
    fit(
        network, loss, config.iterations, seed=seed, learning_rate=config.learning_rate, checkpoint=checkpoint,
        settings=settings, description="train distance", progress=progress,
    )  # fmt: skip
    distance = ContrastiveDistance(network, size, config)
    distance.calibrate(frames, seed=seed)
    return distance


def draw_pairs(
    random: np.random.Generator, episodes: int, length: int, config: ContrastiveConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rollouts and two times in each: pairs close in time, of one rollout far from one another."""
    chosen = random.permutation(episodes)[: config.rollouts]
    stride = max(length // config.pairs, config.apart + config.reach)
    per_rollout = max(1, min(config.pairs, length // stride))
    spare = max(1, stride - config.apart - config.reach)
    phase = random.integers(max(1, length - per_rollout * stride + 1), size=(len(chosen), 1))
    slots = phase + np.arange(per_rollout) * stride
    first = slots + random.integers(spare, size=slots.shape)
    second = first + random.integers(1, config.reach + 1, size=slots.shape)
    over = np.maximum(second - (length - 1), 0)
    first, second = first - over, second - over
    swap = random.random(slots.shape) < 0.5
    first, second = np.where(swap, second, first), np.where(swap, first, second)
    return np.repeat(chosen, per_rollout), first.ravel(), second.ravel()


def draw_windows(embed: Callable[[Pictures], Floats], frames: Pictures, lags: int, samples: int, seed: int) -> Floats:
    """(n, lags + 1, e) embeddings of random stretches of rollouts, about `samples` in all; fewer lags in short ones."""
    episodes, length, _ = check_rollouts(frames, 2)
    random = np.random.default_rng(seed)
    lags = min(lags, length - 1)
    if lags < 1:
        raise InputError(f"a calibration over {lags} lags: expected at least 1")
    number = max(1, samples // lags)
    episode, first = random.integers(episodes, size=number), random.integers(length - lags, size=number)
    return np.stack([embed(frames[e, f : f + lags + 1]) for e, f in zip(episode, first, strict=True)])


def falling_curve(top: float, medians: Floats) -> tuple[Floats, Floats]:
    """Lags and a closeness that falls from each to the next: `top` at lag 0, then (l,) medians at lags 1 … l."""
    falling = np.minimum.accumulate(np.minimum(medians, top - 1e-4))
    keep = np.concatenate([[True], np.diff(falling) < -1e-4])  # np.interp needs them to differ
    lags = np.concatenate([[0], 1 + np.flatnonzero(keep)]).astype(np.float32)
    return lags, np.concatenate([[top], falling[keep]]).astype(np.float32)


def to_steps(closeness: Floats, levels: Floats, lags: Floats) -> Floats:
    """Steps for closeness of any shape, linear between `levels`, which fall, and the `lags` they stand for."""
    steps = np.full(closeness.shape, lags[-1], np.float32)
    near = closeness > levels[-1]  # most pairs of a table are not, and a search for each would be most of the work
    steps[near] = np.interp(-closeness[near], -levels, lags)
    return steps
