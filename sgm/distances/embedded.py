"""Distances that are a quasimetric of two embeddings: the base of `regression` and `quasimetric`.

An observation is embedded once; a pair then costs a few dozen additions in NumPy (see `heads`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sgm.errors import InputError
from sgm.learning.embedding import Embedding
from sgm.learning.pairs import Rows

from .calibration import QUANTILE, Raw, level_by_lag, rising_curve, rising_steps
from .heads import make_head
from .learned import LearnedDistance

Floats = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class EmbeddedConfig:
    """Hyper-parameters that these distances share."""

    encoder: str = "small"  # or "resnet18"; "mlp" for vectors, and for images that it flattens
    width: int = 32  # channels of the small encoder, units of the perceptron
    embedding: int = 32  # size of an embedding; even for the head "mrn", a multiple of 8 for "iqe"
    head: str = "mrn"  # or "iqe", whose tables take much longer
    waves: int = 0  # random Fourier features of a vector, as further inputs of the perceptron
    frequency: float = 1.5  # of these features, radians per standard deviation of the inputs
    standardise: bool = True  # subtract the mean image
    cap: int = 40  # largest distance, steps
    iterations: int = 3_000  # updates
    batch: int = 128  # pairs of an update
    negatives: int = 4  # random pairs for each of them
    learning_rate: float = 1e-3  # peak, of AdamW
    patience: int = 8  # training stops after this many of 20 held-out checks in a row without improvement, and keeps
    # the best weights; 0: no early stopping, the last weights are kept

    def __post_init__(self) -> None:
        """Raise InputError for values that cannot be trained with."""
        if self.cap < 2 or self.batch < 2 or not 1 <= self.negatives < self.batch:
            raise InputError(
                f"cap is {self.cap}, batch is {self.batch}, negatives is {self.negatives}: expected a cap of 2 steps "
                "or more, and 1 ≤ negatives < batch"
            )


class Embedder(Embedding):
    """An encoder and the head that compares its embeddings."""

    def __init__(self, config: EmbeddedConfig, size: tuple[int, int]) -> None:
        """Make an untrained network for images of this (width, height), or for vectors; see `Rows.size`."""
        super().__init__(config, size)
        self.head = make_head(config.head, config.embedding)
        self.scale = config.cap / 4  # outputs of an untrained encoder are about 1: distances start at about the cap

    def embed(self, observations: Tensor) -> Tensor:
        """(n, 3, height, width) images or (n, d) vectors, in goal space, to (n, e)."""
        return self.encoder(observations) * self.scale

    def across(self, starts: Tensor, goals: Tensor, number: int) -> Tensor:
        """(number, n) distances of random pairs: from each of (n, e) starts to the goals of `number` other starts."""
        others = torch.stack([goals.roll(shift, dims=0) for shift in range(1, number + 1)])
        return self.head(starts.expand_as(others), others)


class EmbeddedDistance(LearnedDistance):
    """Steps from one observation to another by a quasimetric of their embeddings; see `LearnedDistance`.

    Calibration: `levels[i]` is the 0.9 quantile of the head's output for observations `lags[i]` steps apart in held-out
    episodes. A high quantile is used because exploration turns back: of all pairs 20 steps apart, only the fastest are
    20 steps apart by the shortest path.

    Attributes:
        levels: (l,) rising, one for each of `lags`.
    """

    measured = ("lags", "levels")
    network_type: ClassVar[type[Embedder]] = Embedder
    network: Embedder

    def __init__(self, network: Embedder, size: tuple[int, int], config: EmbeddedConfig) -> None:
        """Make a distance from a trained network; call `calibrate` before using it."""
        super().__init__(network, size, config)
        self.lags = np.array([0, config.cap], np.float32)
        self.levels = np.array([0, config.cap], np.float32)

    def _finish(self, outputs: Floats) -> Floats:
        return outputs * np.float32(self.network.scale)

    def __call__(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (m, e) to (n, m) steps."""
        return self.steps(self.network.head.table(starts, goals))

    def _of_pairs(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        return self.network.head.rows(starts, goals)

    def steps(self, raw: Floats) -> Floats:
        """Convert outputs of the head, of any shape, to steps."""
        return rising_steps(raw, self.levels, self.lags)

    def keys(self, embeddings: Floats) -> Floats:
        """(n, e) embeddings to (n, e / 2) keys: the half that MRN compares by Euclidean distance; see `sgm.Distance`.

        For IQE, which has no such half, keys are the whole embeddings.
        """
        return embeddings[:, : self.network.head.middle or None]

    def probes(self, embeddings: Floats, outgoing: bool) -> Floats:
        """Return the keys of the embeddings, for both directions."""
        return self.keys(embeddings)

    def reach(self, steps: float) -> float:
        """Largest Euclidean distance of keys within `steps` steps; infinite for IQE, and from the end of the curve."""
        if not self.network.head.middle or steps >= self.lags[-1]:
            return math.inf
        return float(np.interp(steps, self.lags, self.levels) + 1e-5 * self.levels[-1])

    def calibrate(self, rows: Rows, seed: int = 0) -> None:
        """Measure the level of every lag up to the cap, and the noise, in episodes held out from training."""
        self.calibrate_on(rows, seed)

    def _find_curve(self, raw: Raw, rows: Rows, seed: int) -> None:
        longest = min(self.config.cap, int(rows.left.max()))
        self.lags, self.levels = rising_curve(*level_by_lag(raw, rows, longest, QUANTILE, seed))
