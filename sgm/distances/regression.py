"""A distance by Monte-Carlo regression: how many steps passed between two observations of one episode.

The network is told the steps between pairs of up to `cap` steps, and that random pairs are at least `cap` steps apart.
Exploration dawdles and turns round, so the steps that passed are more than were needed: overestimates cost `1 −
optimism` and underestimates `optimism`, an expectile in place of the mean, as in implicit Q-learning. Random pairs cost
only where they are said to be nearer than the cap, so that the triangle inequality has room to hold beyond it.
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

    optimism: float = 0.2  # weight of underestimates; overestimates have the rest. 0.5: the mean of the steps

    def __post_init__(self) -> None:
        """Refuse what cannot be learned."""
        super().__post_init__()
        if not 0 < self.optimism < 1:
            raise InputError(f"optimism is {self.optimism}: expected between 0 and 1")


FOR_IMAGES = RegressionConfig(cap=25)
FOR_VECTORS = RegressionConfig(encoder=VECTORS, width=128, batch=256)


class RegressionDistance(EmbeddedDistance):
    """Steps by regression on the steps between observations of one episode; see `EmbeddedDistance`."""

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

    Goals are the achieved goals of the experience; without them, its observations. The last twentieth of the episodes,
    at least two, is held out where there are 10 or more: training stops early by them, and they calibrate the distance.

    Args:
        data: what an agent has seen; random exploration is good enough. Actions are not needed.
        config: hyper-parameters; None: the default ones for images or for vectors.
        seed: of weights and batches.
        device: where to train: "auto", "cpu", "cuda", "cuda:1", "mps". The distance is on the CPU afterwards.
        checkpoint: a file from which an interrupted training resumes.
        progress: show a progress bar.
        settings: hyper-parameters that differ from `config`, by name. The one to think about is `cap`, steps: distances
            end there. It should be more than the longest edge that a memory is to have.
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
    """The loss of a batch, in (steps / cap)²."""

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
    """The mean of squared errors, of which those under 0 weigh `optimism` and the others the rest."""
    weights = torch.where(errors > 0, 1 - optimism, optimism)
    return (weights * errors.square()).mean()
