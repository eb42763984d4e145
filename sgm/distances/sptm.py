"""The paper's distance for ViZDoom (SPTM): a classifier whether two observations are a few steps apart.

`train` takes the experience of any environment, images or vectors. `train_closeness` takes images in episodes of one
length, as in the ViZDoom benchmark.
"""

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
from sgm.learning.embedding import BatchLoss, Embedding
from sgm.learning.encoders import Pictures, check_rollouts, to_input
from sgm.learning.pairs import VECTORS, Rows
from sgm.learning.rollouts import train_on_rollouts

from .calibration import QUANTILE, Raw, draw_windows, falling_by_lag, falling_curve, to_steps
from .learned import LearnedDistance, fit
from .precision import close_pairs, far_pairs

_PAIRS = 8192  # pairs evaluated by the head at once: 16 MB for each layer of 512 units
_GOALS = 1024  # goals among them
Floats = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class ClosenessConfig:
    """Hyper-parameters."""

    encoder: str = "small"  # or "resnet18"; "mlp" for vectors, and for images that it flattens
    width: int = 32  # channels of the small encoder, units of the perceptron
    embedding: int = 0  # size of an embedding; 0: 512 for resnet18 (the paper's), 128 for others
    hidden: int = 0  # units in each of the head's four layers; 0: 512 for resnet18, 128 for others
    iterations: int = 4_000  # updates
    batch: int = 128  # pairs of an update, half of them close
    reach: int = 5  # a close pair is 1 to this many steps apart
    apart: int = 25  # a far pair is at least this many steps apart
    learning_rate: float = 1e-3  # peak, of AdamW
    standardise: bool = False  # subtract the mean image; True in the defaults of `train` for images
    patience: int = 0  # `train` stops after this many of 20 held-out checks in a row without improvement, and keeps the
    # best weights; 0: no early stopping, the last weights are kept

    def __post_init__(self) -> None:
        """Set sizes of 0 to those that fit the encoder."""
        usual = 512 if self.encoder == "resnet18" else 128
        for name in ("embedding", "hidden"):
            object.__setattr__(self, name, getattr(self, name) or usual)


FOR_IMAGES = ClosenessConfig(standardise=True)
FOR_VECTORS = ClosenessConfig(encoder=VECTORS, embedding=32, hidden=64, batch=512, reach=20, apart=60)
PAPER = ClosenessConfig(encoder="resnet18", batch=64, learning_rate=1e-4)


class Closeness(Embedding):
    """One encoder for both observations, and a head that takes the two concatenated embeddings.

    The head has four layers with ReLU and one for the logit, as in SPTM's code (the paper says "4 layer dense
    network"). Deviation from that code: no batch normalisation in the head.
    """

    def __init__(self, config: ClosenessConfig, size: tuple[int, int]) -> None:
        """Make an untrained network for images of this (width, height), or for vectors; see `Rows.size`."""
        super().__init__(config, size)
        layers: list[nn.Module] = []
        for units in (2 * config.embedding, *[config.hidden] * 3):
            layers += [nn.Linear(units, config.hidden), nn.ReLU(inplace=True)]
        self.head = nn.Sequential(*layers, nn.Linear(config.hidden, 1))

    def forward(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(n, 3, height, width) starts and goals to (n,) logits that the goal is a few steps after the start."""
        return self.compare(*self.encoder(torch.cat([starts, goals])).chunk(2))

    def compare(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(n, e) and (n, e) embeddings to (n,) logits."""
        return self.head(torch.cat([starts, goals], dim=1))[:, 0]


class ClosenessDistance(LearnedDistance):
    """Steps from one observation to another, from the logit that they are close; see `LearnedDistance`.

    It is asymmetric. Calibration: `logits[i]` is the logit for observations `lags[i]` steps later. After `train` it is
    the logit that 90 % of the pairs at that lag in held-out episodes exceed; after `train_closeness` it is the median.
    A classifier hardly distinguishes distances within its `reach`: with a reach of 5, 1 step and 5 steps look alike.

    Attributes:
        logits: (l,) falling, one for each of `lags`.
    """

    kind, file_format = "closeness", "sgm-closeness-1"
    config_type = ClosenessConfig
    network_type = Closeness
    measured = ("lags", "logits")
    defaults = (FOR_IMAGES, FOR_VECTORS)
    network: Closeness

    def __init__(self, network: Closeness, size: tuple[int, int], config: ClosenessConfig) -> None:
        """Make a distance from a trained network; calibrate it before use, as `train` does."""
        super().__init__(network, size, config)
        first, *rest = network.head
        assert isinstance(first, nn.Linear)
        self._first, self._rest = first, nn.Sequential(*rest)
        self.lags = np.array([0.0, 1.0], np.float32)
        self.logits = np.array([1.0, 0.0], np.float32)

    def __call__(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (m, e) to (n, m) steps."""
        return self.steps(self.closeness(starts, goals))

    @torch.inference_mode()
    def closeness(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (m, e) to (n, m) logits.

        The first layer is linear, so it is computed once for each start and each goal, and added for the pairs.
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
        """Outputs of the first layer for (n, e) starts and for (m, e) goals; their sum is the output for a pair."""
        weight, size = self._first.weight, self.config.embedding
        a, b = (torch.tensor(_vectors(v, size, name)) for v, name in ((starts, "starts"), (goals, "goals")))
        return functional.linear(a, weight[:, :size], self._first.bias), functional.linear(b, weight[:, size:])

    def steps(self, logits: Floats) -> Floats:
        """Convert logits of any shape to steps."""
        return to_steps(logits, self.logits, self.lags)

    def calibrate(self, frames: Pictures, lags: int = 20, samples: int = 2_000, seed: int = 0) -> None:
        """Measure the median logit at every lag in rollouts (episodes, images, height, width, 3)."""
        windows = draw_windows(self.embed, frames, lags, samples, seed)
        medians = np.array([np.median(self._of_pairs(windows[:, 0], later)) for later in windows.swapaxes(0, 1)])
        top = float(medians[:2].max())  # no training pair had twice the same image: its logit is arbitrary
        self.lags, self.logits = falling_curve(top, medians[1:])

    def _find_curve(self, raw: Raw, rows: Rows, seed: int) -> None:
        longest = min(4 * self.config.reach, int(rows.left.max()))
        self.lags, self.logits = falling_by_lag(raw, rows, longest, QUANTILE, None, seed)


def train(
    data: Experience,
    config: ClosenessConfig | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **settings: Any,
) -> ClosenessDistance:
    """Train on experience: images or vectors, episodes of any length.

    Goals are the achieved goals of the experience; without them, its observations. With 10 or more episodes, the last
    5 % of them, at least two, are held out for the calibration, and for early stopping if `patience` is set, for
    example to 8 checks. Deviation from the paper: far pairs may be of different episodes, because episodes may be
    short.

    Args:
        data: experience of an agent; random exploration is good enough. Actions are not needed.
        config: hyper-parameters; None: the defaults for images or for vectors.
        seed: seed of weights and batches.
        device: where to train: "auto", "cpu", "cuda", "cuda:1", "mps". The distance is on the CPU afterwards.
        checkpoint: a file from which an interrupted training resumes.
        progress: show a progress bar.
        settings: hyper-parameters that differ from `config`, by name. The most important ones are `reach` and `apart`,
            in steps: the limits of close and of far pairs. Distances are calibrated up to 4 times the reach.
    """
    return fit(
        ClosenessDistance,
        data,
        config,
        settings,
        objective,
        seed=seed,
        device=device,
        checkpoint=checkpoint,
        progress=progress,
    )


def objective(network: Closeness, config: ClosenessConfig) -> BatchLoss:
    """Make the cross entropy of a batch, half of whose pairs are close and half far."""
    _check_reach(config)
    half = config.batch // 2
    labels = torch.from_numpy((np.arange(2 * half) < half).astype(np.float32))

    def loss(rows: Rows, random: np.random.Generator) -> Tensor:
        drawn = rows.pairs(random, half, config.reach), rows.far_pairs(random, half, config.apart)
        first, second = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
        starts, goals, wrong = network.embed_pairs(rows, first, second)
        close = labels.to(starts.device)
        return functional.binary_cross_entropy_with_logits(network.compare(starts, goals), close) + wrong

    return loss


def _check_reach(config: ClosenessConfig) -> None:
    if not 1 <= config.reach < config.apart:
        raise InputError(f"reach is {config.reach}, apart is {config.apart}: expected 1 ≤ reach < apart")


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

    `start` is a distance of the same architecture to start from. Deviations from the paper, which finetunes SPTM's
    weights with Adam: training is from scratch unless there is a `start`, and uses AdamW.
    """
    config = config or ClosenessConfig()
    _check_reach(config)
    episodes, length, size = check_rollouts(frames, config.apart + 1)
    torch.manual_seed(seed)
    network = Closeness(config, size)

    def loss(random: np.random.Generator) -> Tensor:
        rows, first, second, close = draw_labelled(random, episodes, length, config)
        logits = network(to_input(frames[rows, first]), to_input(frames[rows, second]))
        return functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(close))

    train_on_rollouts(
        network,
        loss,
        frames,
        config,
        kind="closeness",
        start=start,
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
    )
    distance = ClosenessDistance(network, size, config)
    distance.calibrate(frames, seed=seed)
    return distance


def draw_labelled(
    random: np.random.Generator, episodes: int, length: int, config: ClosenessConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Floats]:
    """Draw rollouts, two times in each, and labels: 1 for close pairs, the first half, and 0 for far pairs."""
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
