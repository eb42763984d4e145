"""A distance by Monte-Carlo regression on the number of steps between two observations of one episode.

Training targets are the steps between pairs up to `cap` steps apart, and at least `cap` steps for random pairs.
Exploration makes detours, so the steps between two observations are more than the shortest path needs. The loss is
therefore an expectile in place of the mean, as in implicit Q-learning: squared overestimates have weight
`1 − optimism`, squared underestimates `optimism`. Random pairs are penalised only if their distance is below the cap,
so that the triangle inequality can hold beyond it.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgm.data.experience import Experience
from sgm.errors import InputError
from sgm.learning.embedding import BatchLoss
from sgm.learning.pairs import VECTORS, Rows

from .embedded import EmbeddedConfig, EmbeddedDistance, Embedder
from .learned import fit


@dataclasses.dataclass(frozen=True)
class RegressionConfig(EmbeddedConfig):
    """Hyper-parameters."""

    optimism: float = 0.2  # weight of underestimates; that of overestimates is 1 − optimism. 0.5: the mean of the steps

    def __post_init__(self) -> None:
        """Raise InputError for values that cannot be trained with."""
        super().__post_init__()
        if not 0 < self.optimism < 1:
            raise InputError(f"optimism is {self.optimism}: expected between 0 and 1")


FOR_IMAGES = RegressionConfig(cap=25)
FOR_VECTORS = RegressionConfig(encoder=VECTORS, width=128, batch=256)


class RegressionDistance(EmbeddedDistance):
    """Steps, learned by regression on the steps between observations of one episode; see `EmbeddedDistance`."""

    kind = file_format = "sgm-regression-1"
    config_type = RegressionConfig
    defaults = (FOR_IMAGES, FOR_VECTORS)


def train(
    data: Experience,
    config: RegressionConfig | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **settings: Any,
) -> RegressionDistance:
    """Train on experience: images or vectors, episodes of any length.

    Goals are the achieved goals of the experience; without them, its observations. With 10 or more episodes, the last
    5 % of them, at least two, are held out for early stopping and for the calibration.

    Args:
        data: experience of an agent; random exploration is good enough. Actions are not needed.
        config: hyper-parameters; None: the defaults for images or for vectors.
        seed: seed of weights and batches.
        device: where to train: "auto", "cpu", "cuda", "cuda:1", "mps". The distance is on the CPU afterwards.
        checkpoint: a file from which an interrupted training resumes.
        progress: show a progress bar.
        settings: hyper-parameters that differ from `config`, by name. The most important one is `cap`, the largest
            distance in steps. It should be greater than the longest edge of the memory.
    """
    return fit(
        RegressionDistance,
        data,
        config,
        settings,
        objective,
        seed=seed,
        device=device,
        checkpoint=checkpoint,
        progress=progress,
    )


def objective(network: Embedder, config: RegressionConfig) -> BatchLoss:
    """Make the loss of a batch, in (steps / cap)²."""

    def loss(rows: Rows, random: np.random.Generator) -> Tensor:
        first, second = rows.pairs(random, config.batch, config.cap)
        starts, goals, wrong = network.embed_pairs(rows, first, second)
        passed = torch.from_numpy((rows.steps[second] - rows.steps[first]).astype(np.float32)).to(starts.device)
        within = expectile(network.head(starts, goals) - passed, config.optimism)
        too_near = (config.cap - network.across(starts, goals, config.negatives)).relu()
        across = config.optimism * too_near.square().mean()
        return (within + across) / config.cap**2 + wrong

    return loss


def expectile(errors: Tensor, optimism: float) -> Tensor:
    """Mean of squared errors, with weight `optimism` for errors up to 0 and 1 − `optimism` for those above."""
    weights = torch.where(errors > 0, 1 - optimism, optimism)
    return (weights * errors.square()).mean()
