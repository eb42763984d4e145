"""A contrastive distance (InfoNCE): it learns to separate observations a few steps apart from all others.

`train` takes the experience of any environment, images or vectors. `train_contrastive` takes images in episodes of one
length, as in the ViZDoom benchmark.
"""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from sgm.data.experience import Experience
from sgm.learning.embedding import BatchLoss, Embedding
from sgm.learning.encoders import Pictures, check_rollouts, to_input
from sgm.learning.pairs import VECTORS, Rows
from sgm.learning.rollouts import train_on_rollouts

from .calibration import Raw, draw_windows, falling_by_lag, falling_curve, to_steps
from .learned import LearnedDistance, fit

Floats = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class ContrastiveConfig:
    """Hyper-parameters."""

    encoder: str = "small"  # or "resnet18"; "mlp" for vectors, and for images that it flattens
    width: int = 32  # channels of the small encoder, units of the perceptron
    embedding: int = 128  # size of an embedding, which has norm 1
    iterations: int = 4_000  # updates
    rollouts: int = 12  # rollouts of a batch
    pairs: int = 16  # pairs of each rollout in a batch; all others in the batch are negatives of a pair
    reach: int = 5  # the observations of a pair are 1 to this many steps apart
    apart: int = 25  # least distance between pairs of one rollout, steps; `train` draws pairs without this limit
    learning_rate: float = 1e-3  # peak, of AdamW
    standardise: bool = False  # subtract the mean image; True in the defaults of `train` for images
    patience: int = 0  # `train` stops after this many of 20 held-out checks in a row without improvement, and keeps the
    # best weights; 0: no early stopping, the last weights are kept


FOR_IMAGES = ContrastiveConfig(standardise=True)
FOR_VECTORS = ContrastiveConfig(encoder=VECTORS, width=128, embedding=32, iterations=3_000, reach=20)


class Contrast(Embedding):
    """An encoder and a learned inverse temperature for the cosines of its embeddings."""

    def __init__(self, config: ContrastiveConfig, size: tuple[int, int]) -> None:
        """Make an untrained network for images of this (width, height), or for vectors; see `Rows.size`."""
        super().__init__(config, size)
        self.sharpness = nn.Parameter(torch.tensor(2.3))

    def embed(self, observations: Tensor) -> Tensor:
        """(n, 3, height, width) images or (n, d) vectors, in goal space, to (n, e) vectors of norm 1."""
        return functional.normalize(self.encoder(observations), dim=1)

    def compare(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(n, e) and (m, e) embeddings to (n, m) closeness: scaled cosines."""
        return self.sharpness.clamp(max=4.0).exp() * (starts @ goals.T)

    def loss(self, starts: Tensor, goals: Tensor) -> Tensor:
        """InfoNCE in both directions, for (n, e) starts and their (n, e) goals."""
        scores = self.compare(starts, goals)
        own = torch.arange(len(starts), device=starts.device)
        return (functional.cross_entropy(scores, own) + functional.cross_entropy(scores.T, own)) / 2


class ContrastiveDistance(LearnedDistance):
    """Steps from one observation to another, by the cosine of their embeddings; see `LearnedDistance`.

    Deviation from the paper, whose contrastive distance (SafetyGym) is a bilinear form zᵀ W z': embeddings have norm 1
    and are compared by their cosine, so the distance is symmetric.

    Calibration: `cosines[i]` is the median cosine of observations `lags[i]` steps apart. `train` measures it in
    episodes held out from training.

    Attributes:
        cosines: (l,) falling, one for each of `lags`.
    """

    kind, file_format = "contrastive", "sgm-contrastive-1"
    config_type = ContrastiveConfig
    network_type = Contrast
    measured = ("lags", "cosines")
    defaults = (FOR_IMAGES, FOR_VECTORS)
    network: Contrast

    def __init__(self, network: Contrast, size: tuple[int, int], config: ContrastiveConfig) -> None:
        """Make a distance from a trained network; calibrate it before use, as `train` does."""
        super().__init__(network, size, config)
        self.lags = np.array([0.0, 1.0], np.float32)
        self.cosines = np.array([1.0, 0.0], np.float32)

    def _finish(self, outputs: Floats) -> Floats:
        return outputs / np.maximum(np.linalg.norm(outputs, axis=1, keepdims=True), 1e-12)

    def __call__(self, starts: Floats, goals: Floats) -> Floats:
        """(n, e) and (m, e) to (n, m) steps."""
        return self.steps(self.closeness(starts, goals))

    def closeness(self, starts: Floats, goals: Floats) -> Floats:
        """(n, e) and (m, e) to (n, m) cosines."""
        return np.asarray(starts, np.float32) @ np.asarray(goals, np.float32).T

    def _of_pairs(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        return np.einsum("ne,ne->n", np.asarray(starts), np.asarray(goals))

    def steps(self, cosines: Floats) -> Floats:
        """Convert cosines of any shape to steps."""
        return to_steps(cosines, self.cosines, self.lags)

    def keys(self, embeddings: Floats) -> Floats:
        """Return the embeddings: for vectors of norm 1, ‖a − b‖² is 2 − 2 a·b; see `sgm.Distance`."""
        return embeddings

    def probes(self, embeddings: Floats, outgoing: bool) -> Floats:
        """Return the embeddings, for both directions."""
        return embeddings

    def reach(self, steps: float) -> float:
        """Largest Euclidean distance of embeddings within `steps` steps; infinite from the end of the curve on."""
        if steps >= self.lags[-1]:
            return math.inf
        return math.sqrt(max(0.0, 2 - 2 * float(np.interp(steps, self.lags, self.cosines))) + 1e-4)

    def calibrate(self, frames: Pictures, lags: int = 20, samples: int = 2_000, seed: int = 0) -> None:
        """Measure the median cosine at every lag in rollouts (episodes, images, height, width, 3)."""
        windows = draw_windows(self.embed, frames, lags, samples, seed)
        medians = np.median(np.einsum("ne,nle->nl", windows[:, 0], windows[:, 1:]), axis=0)
        self.lags, self.cosines = falling_curve(1.0, medians)

    def _find_curve(self, raw: Raw, rows: Rows, seed: int) -> None:
        longest = min(4 * self.config.reach, int(rows.left.max()))
        self.lags, self.cosines = falling_by_lag(raw, rows, longest, 0.5, 1.0, seed)


def train(
    data: Experience,
    config: ContrastiveConfig | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **settings: Any,
) -> ContrastiveDistance:
    """Train on experience: images or vectors, episodes of any length.

    Goals are the achieved goals of the experience; without them, its observations. With 10 or more episodes, the last
    5 % of them, at least two, are held out for the calibration, and for early stopping if `patience` is set, for
    example to 8 checks. By default there is no early stopping: the loss on a few held-out episodes is flat and noisy,
    and the weights at its minimum are worse than those after the learning rate has fallen (docs/own-distance.md).

    Args:
        data: experience of an agent; random exploration is good enough. Actions are not needed.
        config: hyper-parameters; None: the defaults for images or for vectors.
        seed: seed of weights and batches.
        device: where to train: "auto", "cpu", "cuda", "cuda:1", "mps". The distance is on the CPU afterwards.
        checkpoint: a file from which an interrupted training resumes.
        progress: show a progress bar.
        settings: hyper-parameters that differ from `config`, by name. The most important one is `reach`, in steps:
            pairs up to this far apart count as close, and distances are calibrated up to 4 times as far.
    """
    return fit(
        ContrastiveDistance,
        data,
        config,
        settings,
        objective,
        seed=seed,
        device=device,
        checkpoint=checkpoint,
        progress=progress,
    )


def objective(network: Contrast, config: ContrastiveConfig) -> BatchLoss:
    """Make the InfoNCE loss of a batch: all other pairs of the batch are negatives of a pair."""

    def loss(rows: Rows, random: np.random.Generator) -> Tensor:
        first, second = rows.pairs(random, config.rollouts * config.pairs, config.reach)
        starts, goals, wrong = network.embed_pairs(rows, first, second)
        return network.loss(starts, goals) + wrong

    return loss


def train_contrastive(
    frames: Pictures,
    config: ContrastiveConfig | None = None,
    *,
    seed: int = 0,
    start: ContrastiveDistance | None = None,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> ContrastiveDistance:
    """Train on random exploration: (episodes, images, height, width, 3) uint8.

    `start` is a distance of the same architecture to start from, for example one that was trained in another maze.
    """
    config = config or ContrastiveConfig()
    episodes, length, size = check_rollouts(frames, config.reach + 2)
    torch.manual_seed(seed)
    network = Contrast(config, size)

    def loss(random: np.random.Generator) -> Tensor:
        rows, first, second = draw_pairs(random, episodes, length, config)
        both = to_input(np.concatenate([frames[rows, first], frames[rows, second]]))
        return network.loss(*network.embed(both).chunk(2))

    train_on_rollouts(
        network,
        loss,
        frames,
        config,
        kind="contrastive",
        start=start,
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
    )
    distance = ContrastiveDistance(network, size, config)
    distance.calibrate(frames, seed=seed)
    return distance


def draw_pairs(
    random: np.random.Generator, episodes: int, length: int, config: ContrastiveConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw rollouts and two times in each: the times of a pair are close, the pairs of one rollout are far apart."""
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
