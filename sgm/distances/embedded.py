"""Distances that are a quasimetric of two embeddings: what `regression` and `quasimetric` share.

An observation is embedded once; a pair then costs a few dozen additions in NumPy (see `heads`).
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sgm.data.experience import Experience
from sgm.errors import InputError
from sgm.learning.embedding import BatchLoss, Embedded, Embedding, train_embedding
from sgm.learning.encoders import digest
from sgm.learning.loop import load_network, save_network
from sgm.learning.pairs import Ints, Rows, as_rows, hold_out, settle

from .calibration import QUANTILE, kept_noise, level_by_lag, noise_of, rising_curve, rising_steps
from .heads import make_head

if TYPE_CHECKING:
    from typing_extensions import Self

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


class EmbeddedDistance(Embedded):
    """Steps from one observation to another by a quasimetric of their embeddings; follows the Distance contract.

    Observations are images or vectors. Goals are observations too, unless the experience it was trained on has achieved
    goals of another shape: then distances are those between goals, and an observation counts as what it achieves.

    The calibration turns what the head says into steps: `levels[i]` is its 0.9 quantile at `lags[i]` steps within
    held-out episodes; in between it is linear. The quantile is high because exploration dawdles: of all pairs 20 steps
    apart, those that moved on tell what 20 steps are. What is beyond the last level counts `far` steps: "at least so
    far".

    Attributes:
        noise: standard deviation, steps, of the distance to the next observation, in episodes held out from training.
    """

    file_format: ClassVar[str]
    config_type: ClassVar[type[EmbeddedConfig]]
    network_type: ClassVar[type[Embedder]]
    network: Embedder

    def __init__(self, network: Embedder, size: tuple[int, int], config: EmbeddedConfig) -> None:
        """Take a trained network; it is calibrated with `calibrate`."""
        super().__init__(network, size, config)
        self.noise = math.nan
        self.lags = np.array([0, config.cap], np.float32)
        self.levels = np.array([0, config.cap], np.float32)

    @property
    def far(self) -> float:
        """Steps at which distances end."""
        return float(self.lags[-1])

    def _finish(self, outputs: Floats) -> Floats:
        return outputs * np.float32(self.network.scale)

    def __call__(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (m, e) to (n, m) steps."""
        return self.steps(self.network.head.table(starts, goals))

    def pairs(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (n, e) to (n,) steps, row by row."""
        return self.steps(self.network.head.rows(starts, goals))

    def steps(self, raw: Floats) -> Floats:
        """Steps for what the head says, of any shape."""
        return rising_steps(raw, self.levels, self.lags)

    def calibrate(self, rows: Rows, seed: int = 0) -> None:
        """Find the level of every lag up to the cap, and the noise, in episodes that were not trained on."""

        def raw(first: Ints, second: Ints) -> Floats:
            return self.network.head.rows(self.embed(rows.observations[first]), self.embed_goal(rows.goals[second]))

        longest = min(self.config.cap, int(rows.left.max()))
        self.lags, self.levels = rising_curve(*level_by_lag(raw, rows, longest, QUANTILE, seed))
        self.noise = noise_of(lambda first, second: self.steps(raw(first, second)), rows, seed)

    @property
    def fingerprint(self) -> str:
        """What tells this distance from another one, for memory files."""
        return digest(self.network, self.lags, self.levels)

    def save(self, path: str | os.PathLike[str], facts: dict[str, Any] | None = None) -> None:
        """Write a safetensors file; `facts` say how it was made."""
        calibration = {"lags": self.lags, "levels": self.levels, **kept_noise(self.noise)}
        save_network(path, self.file_format, self.network, self.size, self.config, facts, calibration=calibration)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; StoreError if the file is anything else."""
        network, size, config, (lags, levels, noise) = load_network(
            path,
            cls.file_format,
            cls.config_type,
            cls.network_type,
            calibration=("lags", "levels"),
            optional=("noise",),
        )
        distance = cls(network, size, config)
        distance.lags, distance.levels, distance.noise = lags, levels, float(noise[0])
        return distance


AnyDistance = TypeVar("AnyDistance", bound=EmbeddedDistance)
# (network, its config) to a function of (rows, generator) that draws a batch and returns its loss, or its error on
# held-out episodes.
Objective = Callable[[Any, Any], BatchLoss]


def fit(
    kind: type[AnyDistance],
    data: Experience,
    config: EmbeddedConfig | None,
    defaults: tuple[EmbeddedConfig, EmbeddedConfig],
    changes: dict[str, Any],
    objective: Objective,
    error: Objective,
    *,
    seed: int,
    **options: Any,
) -> AnyDistance:
    """Train the network of a distance on an objective, and calibrate it; `error` is what early stopping looks at."""
    rows = as_rows(data, changes.get("encoder", config.encoder if config else None))
    chosen = settle(rows, config, defaults, changes)
    kept, held_out = hold_out(data, rows)
    torch.manual_seed(seed)
    network = kind.network_type(chosen, rows.size)
    network.measure(rows, seed)
    loss, wrong = objective(network, chosen), error(network, chosen)
    train_embedding(network, loss, kept, held_out, chosen, kind=kind.file_format, seed=seed, error=wrong, **options)
    distance = kind(network, rows.size, chosen)
    distance.calibrate(held_out, seed)
    return distance
