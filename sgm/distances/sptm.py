"""The paper's distance between images: a classifier of what lies a few steps apart (SPTM)."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from sgm.data.experience import Experience
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
from sgm.learning.loop import copy_weights, load_network, save_network, train_network
from sgm.learning.pairs import as_rollouts, episodes_of_one_length

from .contrastive import draw_windows, falling_curve, to_steps
from .precision import close_pairs, far_pairs

_FORMAT = "sgm-closeness-1"
_PAIRS = 8192  # pairs that go through the head at once: 16 MB for each layer of 512 units
_GOALS = 1024  # goals among them
Floats = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class ClosenessConfig:
    """Hyper-parameters."""

    encoder: str = "small"  # or "resnet18"
    width: int = 32  # of the small encoder
    embedding: int = 0  # numbers of an embedding; 0: 512 for resnet18 (the paper's), 128 for small
    hidden: int = 0  # units in each of the head's four layers; 0: as many
    iterations: int = 4_000  # updates
    batch: int = 128  # pairs of an update, half of them close
    reach: int = 5  # a close pair is 1 to so many steps apart
    apart: int = 25  # a far pair is at least so many steps apart
    learning_rate: float = 1e-3  # of AdamW, at its highest

    def __post_init__(self) -> None:
        """Fill in the sizes that go with the encoder."""
        usual = 512 if self.encoder == "resnet18" else 128
        for name in ("embedding", "hidden"):
            object.__setattr__(self, name, getattr(self, name) or usual)


PAPER = ClosenessConfig(encoder="resnet18", batch=64, learning_rate=1e-4)


class Closeness(nn.Module):
    """One encoder for both images, and a head that takes the two embeddings side by side.

    Four layers with ReLU and then one for the logit, as in SPTM's code (the paper says "4 layer dense network").
    Deviation from that code: no batch normalisation in the head.
    """

    def __init__(self, config: ClosenessConfig, size: tuple[int, int]) -> None:
        """Make an untrained network for images of this (width, height)."""
        super().__init__()
        self.encoder = make_encoder(config.encoder, 3, size, config.embedding, width=config.width)
        layers: list[nn.Module] = []
        for units in (2 * config.embedding, *[config.hidden] * 3):
            layers += [nn.Linear(units, config.hidden), nn.ReLU(inplace=True)]
        self.head = nn.Sequential(*layers, nn.Linear(config.hidden, 1))

    def forward(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(n, 3, height, width) images each to (n,) logits: is the goal a few steps after the start?"""
        both = self.encoder(torch.cat([starts, goals])).chunk(2)
        return self.head(torch.cat(both, dim=1))[:, 0]


class ClosenessDistance:
    """Steps from one image to another, by the logit that they are close; follows the Distance contract.

    It is asymmetric. The calibration turns logits into steps: `logits[i]` is the median logit of what comes `lags[i]`
    steps later in random exploration; in between it is linear, and below the last one it counts `far` steps.
    """

    def __init__(self, network: Closeness, size: tuple[int, int], config: ClosenessConfig) -> None:
        """Take a trained network; it is calibrated with `calibrate`."""
        self.network, self.size, self.config = network, size, config
        self.inference = for_inference(network.encoder)
        first, *rest = network.head
        assert isinstance(first, nn.Linear)
        self._first, self._rest = first, nn.Sequential(*rest)
        self.lags = np.array([0.0, 1.0], np.float32)
        self.logits = np.array([1.0, 0.0], np.float32)

    @property
    def far(self) -> float:
        """Steps of what is not close at all."""
        return float(self.lags[-1])

    def embed(self, observations: ArrayLike) -> Floats:
        """(n, height, width, 3) uint8 images to (n, e)."""
        return run(self.inference, check_pictures(observations, self.size))

    def __call__(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (m, e) to (n, m) steps."""
        return self.steps(self.closeness(starts, goals))

    def pairs(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (n, e) to (n,) steps, row by row."""
        return self.steps(self._of_pairs(starts, goals))

    @torch.inference_mode()
    def closeness(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (m, e) to (n, m) logits.

        The first layer is linear in both, so it is computed for each start and each goal and added up for the pairs.
        """
        of_starts, of_goals = self._halves(starts, goals)
        table = np.empty((len(of_starts), len(of_goals)), np.float32)
        for column in range(0, len(of_goals), _GOALS):
            some = of_goals[column : column + _GOALS]
            rows = _PAIRS // len(some)
            for row in range(0, len(of_starts), rows):
                layer = of_starts[row : row + rows, None] + some
                logits = self._rest(layer.flatten(0, 1)).view(layer.shape[:2])
                table[row : row + rows, column : column + _GOALS] = logits.numpy()
        return table

    @torch.inference_mode()
    def _of_pairs(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        of_starts, of_goals = self._halves(starts, goals)
        if len(of_starts) != len(of_goals):
            raise InputError(f"{len(of_starts)} starts and {len(of_goals)} goals: expected as many of each")
        return torch.cat([self._rest(part)[:, 0] for part in (of_starts + of_goals).split(_PAIRS)]).numpy()

    def _halves(self, starts: ArrayLike, goals: ArrayLike) -> tuple[Tensor, Tensor]:
        """What the first layer makes of (n, e) starts and of (m, e) goals, whose sum it makes of pairs."""
        weight, size = self._first.weight, self.config.embedding
        a, b = (torch.tensor(_vectors(v, size, name)) for v, name in ((starts, "starts"), (goals, "goals")))
        return functional.linear(a, weight[:, :size], self._first.bias), functional.linear(b, weight[:, size:])

    def steps(self, logits: Floats) -> Floats:
        """Steps for logits, of any shape."""
        return to_steps(logits, self.logits, self.lags)

    def calibrate(self, frames: Pictures, lags: int = 20, samples: int = 2_000, seed: int = 0) -> None:
        """Find the median logit at every lag in rollouts (episodes, images, height, width, 3)."""
        windows = draw_windows(self.embed, frames, lags, samples, seed)
        medians = np.array([np.median(self._of_pairs(windows[:, 0], later)) for later in windows.swapaxes(0, 1)])
        top = float(medians[:2].max())  # an image and itself were no pair in training: its logit may be anything
        self.lags, self.logits = falling_curve(top, medians[1:])

    @property
    def fingerprint(self) -> str:
        """What tells this distance from another one, for memory files."""
        return digest(self.network, self.lags, self.logits)

    def save(self, path: str | os.PathLike[str], facts: dict[str, Any] | None = None) -> None:
        """Write a safetensors file; `facts` say how it was made."""
        calibration = {"lags": self.lags, "logits": self.logits}
        save_network(path, _FORMAT, self.network, self.size, self.config, facts, calibration=calibration)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ClosenessDistance:
        """Read what `save` wrote; StoreError if the file is anything else."""
        network, size, config, (lags, logits) = load_network(
            path, _FORMAT, ClosenessConfig, Closeness, calibration=("lags", "logits")
        )
        distance = cls(network, size, config)
        distance.lags, distance.logits = lags, logits
        return distance


def train(
    data: Experience,
    config: ClosenessConfig | None = None,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> ClosenessDistance:
    """Train on experience: images, cut into episodes of one length; see `train_closeness`."""
    config = config or ClosenessConfig()
    kept = episodes_of_one_length(data, config.apart + 1)
    frames = as_rollouts(kept.observations, kept)
    return train_closeness(frames, config, seed=seed, checkpoint=checkpoint, progress=progress)


def train_closeness(
    frames: Pictures,
    config: ClosenessConfig | None = None,
    *,
    seed: int = 0,
    start: ClosenessDistance | None = None,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> ClosenessDistance:
    """Train on random exploration: (episodes, images, height, width, 3) uint8.

    `start` is a distance of the same architecture to go on from. Deviations from the paper, which finetunes SPTM's
    weights with Adam: from scratch unless there is a `start`, and with AdamW.
    """
    config = config or ClosenessConfig()
    if not 1 <= config.reach < config.apart:
        raise InputError(f"reach is {config.reach}, apart is {config.apart}: expected 1 ≤ reach < apart")
    episodes, length, size = check_rollouts(frames, config.apart + 1)
    torch.manual_seed(seed)
    network = Closeness(config, size)
    if start is not None:
        copy_weights(network, start.network)

    def loss(random: np.random.Generator) -> Tensor:
        rows, first, second, close = draw_labelled(random, episodes, length, config)
        logits = network(to_input(frames[rows, first]), to_input(frames[rows, second]))
        return functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(close))

    settings = {**dataclasses.asdict(config), "kind": "closeness", "frames": list(frames.shape)}
    if start is not None:
        settings["start"] = digest(start.network)
    train_network(
        network,
        loss,
        config.iterations,
        seed=seed,
        learning_rate=config.learning_rate,
        checkpoint=checkpoint,
        settings=settings,
        description="train distance",
        progress=progress,
    )
    distance = ClosenessDistance(network, size, config)
    distance.calibrate(frames, seed=seed)
    return distance


def draw_labelled(
    random: np.random.Generator, episodes: int, length: int, config: ClosenessConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Floats]:
    """Rollouts, two times in each, and whether they are close: 1 for the first half of the pairs, 0 for the others."""
    half = config.batch // 2
    close = close_pairs(random, episodes, length, half, config.reach)
    far = far_pairs(random, episodes, length, config.batch - half, config.apart)
    rows, first, second = (np.concatenate(parts) for parts in zip(close, far, strict=True))
    return rows, first, second, (np.arange(config.batch) < half).astype(np.float32)


def _vectors(values: ArrayLike, size: int, name: str) -> Floats:
    vectors = np.asarray(values, np.float32)
    if vectors.ndim != 2 or vectors.shape[1] != size:
        raise InputError(f"{name} have shape {vectors.shape}: expected (n, {size}), what embed returns")
    return vectors
