"""The paper's contrastive distance between images: a bilinear form that separates images close in time from others.

The paper (appendix, SafetyGym) uses the energy f(z, z') = zᵀ W z' with a square matrix W, an encoder of three
convolutions, a dense layer and a LayerNorm with 50 outputs, and the multiclass cross entropy of pairs from one window
of a rollout against random other images. Deviations:
- The raw d = exp(−f) is about 5e-8 for neighbours, so d = exp(−(f − c) / T), with c and T calibrated in steps.
- Distances are capped at `longest` steps: beyond, exp(−f) grows without bound and carries no information.
- The cross entropy is taken in both directions: over the goals of each start and over the starts of each goal.
- The goal of a pair is always after the start, so that W can learn that the two directions differ.
- AdamW with a peak learning rate of 1e-3 replaces Adam with 1e-4: over a training of minutes, 1e-3 was better than
  5e-4.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from sgm.data.experience import Experience
from sgm.errors import InputError
from sgm.learning.device import resolve_device
from sgm.learning.encoders import Pictures, check_pictures, check_rollouts, digest, for_inference, run, to_input
from sgm.learning.rollouts import image_rollouts, train_on_rollouts
from sgm.learning.trained import Trained

from .contrastive import ContrastiveConfig, draw_pairs, draw_windows
from .precision import close_pairs

_ENDLESS = 1e30  # steps; a distance must be finite
_SAMPLES = 6_000  # pairs for the calibration, over all lags
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class BilinearConfig:
    """Hyper-parameters."""

    width: int = 32  # channels of each convolution
    embedding: int = 50  # size of an embedding
    iterations: int = 5_000  # updates
    batch: int = 128  # pairs of an update; all others in the batch are negatives of a pair
    reach: int = 10  # a goal is 1 to this many steps after its start
    rollouts: int = 0  # rollouts of a batch, for negatives from the same rollout; 0 (the paper's): no limit
    apart: int = 25  # least distance between pairs of one rollout, steps; used if `rollouts` is not 0
    learning_rate: float = 1e-3  # peak, of AdamW
    max_steps: int = 9  # the paper's MaxSteps: the median distance at this lag is calibrated to this many steps
    longest: float = 10.0  # cap of distances, steps

    def __post_init__(self) -> None:
        """Raise InputError for values that cannot be calibrated."""
        if not (self.max_steps >= 2 and self.longest > 1):
            raise InputError(
                f"max_steps is {self.max_steps}, longest is {self.longest}: expected at least 2, and more than 1 step"
            )


class Bilinear(nn.Module):
    """An encoder and the matrix W that compares its embeddings."""

    def __init__(self, config: BilinearConfig, size: tuple[int, int]) -> None:
        """Make an untrained network for images of this (width, height)."""
        super().__init__()
        body, (channels, height, width) = convolutions(size, config.width)
        dense = nn.Linear(channels * height * width, config.embedding)
        self.encoder = nn.Sequential(*body, nn.Flatten(), dense, nn.LayerNorm(config.embedding))
        # After the LayerNorm zᵀz equals the embedding size, so the initial closeness is between -1 and 1.
        self.W = nn.Parameter(torch.eye(config.embedding) / config.embedding)

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, height, width) images to (n, e)."""
        return self.encoder(images)

    def compare(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(n, m) closeness f of embeddings."""
        return (starts @ self.W) @ goals.T


def convolutions(size: tuple[int, int], width: int) -> tuple[nn.Sequential, tuple[int, int, int]]:
    """Make three convolutions with ReLU and a total stride of 8; also return the (channels, height, width) they output.

    The first convolution has a kernel of 8 × 8 pixels and stride 4: with a finer first layer, half of the time goes
    into arrays that do not fit into the caches.
    """
    body = nn.Sequential(
        nn.Conv2d(3, width, 8, 4, 2),
        nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 4, 2, 1),
        nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 3, 1, 1),
        nn.ReLU(inplace=True),
    )
    if min(size) < 8:
        raise InputError(f"images are {size[0]} × {size[1]}: expected at least 8 × 8 pixels")
    body = body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return body, (width, size[1] // 8, size[0] // 8)


class BilinearDistance(Trained):
    """Steps from one image to another, exp(−(f − c) / T) of their closeness f; follows the Distance contract.

    It is asymmetric. The distance from an image to itself is not 0 but a fraction of a step.
    """

    file_format = "sgm-bilinear-1"
    config_type = BilinearConfig
    network_type = Bilinear
    measured = ("scale", "medians")

    def __init__(self, network: Bilinear, size: tuple[int, int], config: BilinearConfig) -> None:
        """Make a distance from a trained network; call `calibrate` before using it."""
        self.network, self.size, self.config = network, size, config
        self.inference = for_inference(network.encoder)
        self.matrix: Floats = network.W.detach().numpy().copy()
        self.scale = np.array([0.0, 1.0, config.longest], np.float32)  # c, T, longest
        self.medians = np.empty(0, np.float32)

    @property
    def calibration(self) -> dict[str, Any]:
        """c, T, the cap, and the median distance at lags 1 … MaxSteps in the calibration, steps; ready for JSON."""
        c, temperature, longest = self.scale.tolist()
        medians = {str(lag): median for lag, median in enumerate(self.medians.tolist(), start=1)}
        return {"c": c, "T": temperature, "longest": longest, "medians": medians}

    def embed(self, observations: ArrayLike) -> Floats:
        """(n, height, width, 3) uint8 images to (n, e)."""
        return run(self.inference, check_pictures(observations, self.size))

    def __call__(self, starts: Floats, goals: Floats) -> Floats:
        """(n, e) and (m, e) to (n, m) steps."""
        return self.steps(self.closeness(starts, goals))

    def pairs(self, starts: Floats, goals: Floats) -> Floats:
        """(n, e) and (n, e) to (n,) steps, row by row."""
        return self.steps(np.einsum("ne,ne->n", np.asarray(starts, np.float32) @ self.matrix, goals))

    def closeness(self, starts: Floats, goals: Floats) -> Floats:
        """(n, e) and (m, e) to (n, m) closeness f."""
        return (np.asarray(starts, np.float32) @ self.matrix) @ np.asarray(goals, np.float32).T

    def steps(self, closeness: Floats) -> Floats:
        """Convert closeness of any shape to steps."""
        c, temperature, longest = self.scale
        exponents = closeness - c
        exponents /= -temperature
        # Most pairs of a table are far: without a cap before the exponential they would overflow.
        np.minimum(exponents, np.log(longest), out=exponents)
        np.exp(exponents, out=exponents)
        return np.minimum(exponents, longest, out=exponents)

    def keys(self, embeddings: Floats) -> Floats:
        """(n, e) embeddings to (n, e + 2) keys: two more numbers give all keys the same norm M, the largest ‖z‖.

        Probes are Wᵀ z (or W z) divided by the spectral norm of W, and extended to the norm M in the same way. Then
        ‖key − probe‖² is 2 M² − 2 f / ‖W‖, so keys with a large f are near the probe. See `sgm.Distance`.
        """
        return self._lengthened(np.asarray(embeddings, np.float32), of_keys=True)

    def probes(self, embeddings: Floats, outgoing: bool) -> Floats:
        """(n, e) embeddings to (n, e + 2) probes: keys at a short distance are near them; see `keys`."""
        matrix = self.matrix if outgoing else self.matrix.T
        return self._lengthened(np.asarray(embeddings, np.float32) @ (matrix / self._norms[1]), of_keys=False)

    def reach(self, steps: float) -> float:
        """Largest Euclidean distance between a key and a probe within `steps` steps; infinite from the cap on."""
        c, temperature, longest = self.scale.astype(np.float64)
        if steps >= longest:
            return math.inf
        length, norm = self._norms
        least = c - temperature * math.log(max(steps, 1e-300))
        return math.sqrt(max(0.0, 2 * length**2 - 2 * least / norm) + 1e-4 * length**2)

    @cached_property
    def _norms(self) -> tuple[float, float]:
        """Upper bound of the norm of an embedding, from its LayerNorm, and the spectral norm of W."""
        layer = self.network.encoder[-1]
        assert isinstance(layer, nn.LayerNorm)
        weight, bias = (parameter.detach().numpy().astype(np.float64) for parameter in (layer.weight, layer.bias))
        length = np.abs(weight).max() * math.sqrt(len(weight)) + np.linalg.norm(bias)
        return float(length * (1 + 1e-5)), float(np.linalg.norm(self.matrix, 2) * (1 + 1e-5))

    def _lengthened(self, vectors: Floats, of_keys: bool) -> Floats:
        """(n, e) to (n, e + 2) vectors of equal norm; the last column is 0 for keys, the one before it for probes."""
        squares = np.square(vectors, dtype=np.float64).sum(axis=1)
        rest = self._norms[0] ** 2 - squares
        if len(rest) and rest.min() < 0:
            raise InputError(
                f"an embedding has length {math.sqrt(squares.max()):.4g}: expected {self._norms[0]:.4g} at most"
            )
        more = np.zeros((len(vectors), 2), np.float32)
        more[:, 0 if of_keys else 1] = np.sqrt(rest)
        return np.concatenate([vectors, more], axis=1)

    def unlimited(self) -> BilinearDistance:
        """Return a copy without a cap, for evaluation: beyond the cap all pairs are equally far."""
        other = copy.copy(self)
        other.scale = np.array([*self.scale[:2], _ENDLESS], np.float32)
        return other

    def calibrate(self, frames: Pictures, seed: int = 0) -> None:
        """Fit c and T to rollouts (episodes, images, height, width, 3).

        The median distance becomes 1 step at lag 1 and MaxSteps steps at lag MaxSteps, or `longest` if that is less.
        """
        last = self.config.max_steps
        closeness = self._closeness_ahead(frames, seed)
        medians = np.median(closeness, axis=0)
        if not medians[0] > medians[-1]:
            raise InputError(
                f"the median closeness is {medians[0]} at lag 1 and {medians[-1]} at lag {last}: expected it to fall; "
                "train for longer, or on rollouts that cover more ground in this many steps"
            )
        temperature = (medians[0] - medians[-1]) / np.log(last)
        self.scale = np.array([medians[0], temperature, self.config.longest], np.float32)
        self.medians = np.median(self.steps(closeness), axis=0).astype(np.float32)

    def medians_of(self, frames: Pictures, seed: int = 0) -> dict[str, float]:
        """Median distance at lags 1 … MaxSteps in rollouts other than those of the calibration, steps."""
        medians = np.median(self.steps(self._closeness_ahead(frames, seed)), axis=0)
        return {str(lag): float(median) for lag, median in enumerate(medians, start=1)}

    def _closeness_ahead(self, frames: Pictures, seed: int) -> Floats:
        """(n, MaxSteps) closeness from images to the images 1 … MaxSteps steps later."""
        last = self.config.max_steps
        check_rollouts(frames, last + 1)
        windows = draw_windows(self.embed, frames, last, _SAMPLES, seed)
        return np.einsum("ne,nle->nl", windows[:, 0] @ self.matrix, windows[:, 1:])

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the distance, for memory files."""
        return digest(self.network, self.scale)  # the medians only describe it


def train(
    data: Experience,
    config: BilinearConfig | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> BilinearDistance:
    """Train on the images of experience, cut into episodes of one length; see `train_bilinear`."""
    where = None if checkpoint is None else Path(checkpoint)
    frames = image_rollouts(data)
    return train_bilinear(frames, config, seed=seed, device=device, checkpoint=where, progress=progress)


def train_bilinear(
    frames: Pictures,
    config: BilinearConfig | None = None,
    *,
    seed: int = 0,
    device: str = "cpu",
    checkpoint: Path | None = None,
    progress: bool = True,
) -> BilinearDistance:
    """Train on random exploration: (episodes, images, height, width, 3) uint8."""
    config = config or BilinearConfig()
    episodes, length, size = check_rollouts(frames, max(config.reach, config.max_steps) + 2)
    torch.manual_seed(seed)
    where = resolve_device(device)
    network = Bilinear(config, size)

    def loss(random: np.random.Generator) -> Tensor:
        rows, first, second = draw_ahead(random, episodes, length, config)
        both = to_input(np.concatenate([frames[rows, first], frames[rows, second]])).to(where)
        scores = network.compare(*network(both).chunk(2))
        own = torch.arange(len(rows), device=where)
        return (functional.cross_entropy(scores, own) + functional.cross_entropy(scores.T, own)) / 2

    train_on_rollouts(
        network,
        loss,
        frames,
        config,
        kind="bilinear",
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
        device=where,
    )
    distance = BilinearDistance(network, size, config)
    distance.calibrate(frames, seed=seed)
    return distance


def draw_ahead(
    random: np.random.Generator, episodes: int, length: int, config: BilinearConfig
) -> tuple[Ints, Ints, Ints]:
    """Draw rollouts and two times in each, the second 1 to `reach` steps after the first."""
    if not config.rollouts:
        return close_pairs(random, episodes, length, config.batch, config.reach)
    spread = ContrastiveConfig(
        rollouts=config.rollouts, pairs=config.batch // config.rollouts, reach=config.reach, apart=config.apart
    )
    rows, first, second = draw_pairs(random, episodes, length, spread)
    return rows, np.minimum(first, second), np.maximum(first, second)
