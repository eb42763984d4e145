"""A distance by the QRL objective: observations are pushed as far apart as the steps between them allow.

The objective is that of Wang, Torralba, Isola and Zhang (2023, Optimal Goal-Reaching Reinforcement Learning via
Quasimetric Learning). It maximises the mean distance of random pairs, under the constraint that the distance from an
observation to the next one of its episode is at most the number of steps between them. With deterministic dynamics
the quasimetric that does this is the length of the shortest path in steps. The length of a whole walk is never a
training target, so paths are stitched together from many episodes.

Deviations from the paper: MRN replaces IQE by default, because its tables are faster; vectors have random Fourier
features; the constraint holds for pairs of up to `reach` steps in place of single steps (the triangle inequality
implies this, but training is faster with it); there is no model of the dynamics, because only the distance is needed.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.nn import functional

from sgm.data.experience import Experience
from sgm.errors import InputError
from sgm.learning.embedding import BatchLoss
from sgm.learning.pairs import VECTORS, Rows

from .embedded import EmbeddedConfig, EmbeddedDistance, Embedder
from .learned import fit

_SPEED = 30.0  # learning rate of the multiplier relative to that of the weights


@dataclasses.dataclass(frozen=True)
class QuasimetricConfig(EmbeddedConfig):
    """Hyper-parameters."""

    reach: int = 5  # the constraint holds for pairs of one episode that are 1 to this many steps apart
    slack: float = 0.25  # the paper's ε: allowed root mean square by which distances exceed the steps between pairs
    softness: float = 0.1  # the paper's β of the softplus that limits the push at the offset; per step
    offset: int = 0  # distance at which the push ends, steps; 0: 1.5 times the cap

    def __post_init__(self) -> None:
        """Raise InputError for values that cannot be trained with."""
        super().__post_init__()
        if not (1 <= self.reach <= self.cap and self.slack > 0 and self.softness > 0 and self.offset >= 0):
            raise InputError(
                f"reach is {self.reach}, slack is {self.slack}, softness is {self.softness}, offset is {self.offset}: "
                f"expected 1 ≤ reach ≤ {self.cap} (the cap), a slack and a softness above 0, and an offset of 0 or more"
            )


# Without early stopping: the Lagrangian has no minimum to stop at, and stopping by `disorder` cost rank correlation.
FOR_IMAGES = QuasimetricConfig(cap=25, patience=0)
FOR_VECTORS = QuasimetricConfig(encoder=VECTORS, width=128, batch=256, waves=32, patience=0)


class Constrained(Embedder):
    """An embedder with the Lagrange multiplier λ of the constraint."""

    def __init__(self, config: QuasimetricConfig, size: tuple[int, int]) -> None:
        """Make an untrained network."""
        super().__init__(config, size)
        self.raw_multiplier = nn.Parameter(torch.zeros(()))

    @property
    def multiplier(self) -> Tensor:
        """λ, positive."""
        return functional.softplus(self.raw_multiplier * _SPEED)


class QuasimetricDistance(EmbeddedDistance):
    """Length of the shortest path in steps, learned by the QRL objective; see `EmbeddedDistance`."""

    kind = file_format = "sgm-quasimetric-1"
    config_type = QuasimetricConfig
    defaults = (FOR_IMAGES, FOR_VECTORS)
    network_type = Constrained


def train(
    data: Experience,
    config: QuasimetricConfig | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **settings: Any,
) -> QuasimetricDistance:
    """Train on experience: images or vectors, episodes of any length.

    Goals are the achieved goals of the experience; without them, its observations. With 10 or more episodes, the last
    5 % of them, at least two, are held out for the calibration, and for early stopping if `patience` is set, for
    example to 8 checks.

    Args:
        data: experience of an agent; random exploration is good enough. Actions are not needed.
        config: hyper-parameters; None: the defaults for images or for vectors.
        seed: seed of weights and batches.
        device: where to train: "auto", "cpu", "cuda", "cuda:1", "mps". The distance is on the CPU afterwards.
        checkpoint: a file from which an interrupted training resumes.
        progress: show a progress bar.
        settings: hyper-parameters that differ from `config`, by name. The most important ones are `cap`, the largest
            distance in steps, and `head`, "mrn" or "iqe".
    """
    return fit(
        QuasimetricDistance,
        data,
        config,
        settings,
        objective,
        disorder,
        seed=seed,
        device=device,
        checkpoint=checkpoint,
        progress=progress,
    )


def objective(network: Constrained, config: QuasimetricConfig) -> BatchLoss:
    """Make the Lagrangian of a batch: gradient steps descend it in the weights and ascend it in the multiplier."""
    offset = config.offset or 1.5 * config.cap

    def loss(rows: Rows, random: np.random.Generator) -> Tensor:
        first, second = rows.pairs(random, config.batch, max(config.reach, int(rows.gaps.min())))
        starts, goals, wrong = network.embed_pairs(rows, first, second)
        passed = torch.from_numpy((rows.steps[second] - rows.steps[first]).astype(np.float32)).to(starts.device)
        over = (network.head(starts, goals) - passed).relu()
        broken = over.square().mean() - config.slack**2
        pushed = network.across(starts, goals, config.negatives)
        push = functional.softplus(offset - pushed, beta=config.softness).mean()
        multiplier = network.multiplier
        return push + multiplier.detach() * broken - multiplier * broken.detach() + wrong

    return loss


def disorder(network: Constrained, config: QuasimetricConfig) -> BatchLoss:
    """Make the error for early stopping: 1 − the rank correlation of distances with steps, up to the cap.

    Random pairs count as `cap` steps apart. The Lagrangian cannot be used: its multiplier changes from check to check.
    """

    def error(rows: Rows, random: np.random.Generator) -> Tensor:
        first, second = rows.pairs(random, config.batch, config.cap)
        starts, goals, wrong = network.embed_pairs(rows, first, second)
        within, across = network.head(starts, goals), network.across(starts, goals, 1)[0]
        passed = np.concatenate([rows.steps[second] - rows.steps[first], np.full(len(first), config.cap)])
        order = spearmanr(passed, torch.cat([within, across]).cpu().numpy()).statistic
        return 1 - torch.tensor(float(order)) + wrong.cpu()

    return error
