"""Distances that are a quasimetric of two embeddings: what `regression` and `quasimetric` share.

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
    """Hyper-parameters of every distance of this kind."""

    encoder: str = "small"  # or "resnet18"; "mlp" for vectors, and for images that it flattens
    width: int = 32  # channels of the small encoder, units of the perceptron
    embedding: int = 32  # numbers of an embedding; even for the head "mrn", a multiple of 8 for "iqe"
    head: str = "mrn"  # or "iqe", whose tables take much longer
    waves: int = 0  # random Fourier waves of a vector that the perceptron sees too
    frequency: float = 1.5  # of these waves, radians over a standard deviation of the inputs
    standardise: bool = True  # subtract the mean image
    cap: int = 40  # steps; what lies farther apart counts as so far
    iterations: int = 3_000  # updates
    batch: int = 128  # pairs of an update
    negatives: int = 4  # random pairs of an update for each of them
    learning_rate: float = 1e-3  # of AdamW, at its highest
    patience: int = 8  # training stops after so many of 20 held-out checks in a row without a better one, and keeps the
    # best weights; 0: never, the last weights are kept

    def __post_init__(self) -> None:
        """Refuse what cannot be learned."""
        if self.cap < 2 or self.batch < 2 or not 1 <= self.negatives < self.batch:
            raise InputError(
                f"cap is {self.cap}, batch is {self.batch}, negatives is {self.negatives}: expected a cap of 2 steps "
                "or more, and 1 ≤ negatives < batch"
            )


class Embedder(Embedding):
    """An encoder and the head that compares what it makes of observations."""

    def __init__(self, config: EmbeddedConfig, size: tuple[int, int]) -> None:
        """Make an untrained network for images of this (width, height), or for vectors; see `Rows.size`."""
        super().__init__(config, size)
        self.head = make_head(config.head, config.embedding)
        self.scale = config.cap / 4  # an untrained encoder's outputs are about 1: so the head's begin at about the cap

    def embed(self, observations: Tensor) -> Tensor:
        """(n, 3, height, width) images or (n, d) vectors, in goal space, to (n, e)."""
        return self.encoder(observations) * self.scale

    def across(self, starts: Tensor, goals: Tensor, number: int) -> Tensor:
        """Distances (number, n) from each of (n, e) starts to the goals of `number` other ones: random pairs."""
        others = torch.stack([goals.roll(shift, dims=0) for shift in range(1, number + 1)])
        return self.head(starts.expand_as(others), others)


class EmbeddedDistance(LearnedDistance):
    """Steps from one observation to another by a quasimetric of their embeddings; see `LearnedDistance`.

    The calibration: `levels[i]` is the 0.9 quantile of what the head says at `lags[i]` steps within held-out episodes.
    It is high because exploration dawdles: of all pairs 20 steps apart, those that moved on tell what 20 steps are.

    Attributes:
        levels: (l,) rising, beside `lags`.
    """

    measured = ("lags", "levels")
    network_type: ClassVar[type[Embedder]] = Embedder
    network: Embedder

    def __init__(self, network: Embedder, size: tuple[int, int], config: EmbeddedConfig) -> None:
        """Take a trained network; it is calibrated with `calibrate`."""
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
        """Steps for what the head says, of any shape."""
        return rising_steps(raw, self.levels, self.lags)

    def keys(self, embeddings: Floats) -> Floats:
        """(n, e) embeddings to (n, e / 2): the half of which MRN takes the Euclidean distance; see `sgm.Distance`."""
        return embeddings[:, : self.network.head.middle or None]

    def probes(self, embeddings: Floats, outgoing: bool) -> Floats:
        """(n, e) embeddings to (n, e / 2), in both directions alike."""
        return self.keys(embeddings)

    def reach(self, steps: float) -> float:
        """How far apart keys within so many steps are, at most; infinite at the end of the curve, and for IQE."""
        if not self.network.head.middle or steps >= self.lags[-1]:
            return math.inf
        return float(np.interp(steps, self.lags, self.levels) + 1e-5 * self.levels[-1])

    def calibrate(self, rows: Rows, seed: int = 0) -> None:
        """Find the level of every lag up to the cap, and the noise, in episodes that were not trained on."""
        self.calibrate_on(rows, seed)

    def _find_curve(self, raw: Raw, rows: Rows, seed: int) -> None:
        longest = min(self.config.cap, int(rows.left.max()))
        self.lags, self.levels = rising_curve(*level_by_lag(raw, rows, longest, QUANTILE, seed))
