"""The network of the cloned controller: an inverse model, from observation and goal to the action between them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sgm.learning.encoders import Standardised, make_encoder, make_mlp, to_input
from sgm.learning.pairs import VECTORS, Rows

from .actions import ActionSpace

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class ClonedConfig:
    """Hyper-parameters."""

    encoder: str = "small"  # or "resnet18"; "mlp" for vectors, and for images that it flattens
    width: int = 32  # channels of the small encoder, units of the perceptron
    hidden: int = 256  # units between encoder and actions
    iterations: int = 5_000  # updates
    batch: int = 256  # pairs of an update
    reach: int = 8  # a goal is 1 to this many steps ahead
    learning_rate: float = 1e-3  # peak, of AdamW
    continuous: bool = False  # actions are vectors, not numbers from 0; `train` sets it from the actions
    standardise: bool = False  # subtract the mean image; True in the defaults of `train` for images


FOR_IMAGES = ClonedConfig(standardise=True)
FOR_VECTORS = ClonedConfig(encoder=VECTORS, width=128, hidden=128, iterations=4_000, reach=20)


class Inverse(nn.Module):
    """Maps observation and goal to the logits of discrete actions, or to continuous actions.

    Images are stacked as channels: previous, current and goal. Vectors are concatenated: current and goal.
    """

    low: Tensor
    high: Tensor

    def __init__(self, config: ClonedConfig, size: tuple[int, int], actions: int) -> None:
        """Make an untrained network for images of this (width, height), or for vectors; see `Rows.size`."""
        super().__init__()
        if config.encoder == VECTORS:
            observation, goal = size
            self.encoder: nn.Module = make_mlp(observation + (goal or observation), config.hidden, config.width)
        else:
            self.encoder = make_encoder(config.encoder, 9, size, config.hidden, width=config.width)
            if config.standardise:
                self.encoder = Standardised((9, size[1], size[0]), self.encoder)
        self.head = nn.Linear(config.hidden, actions)
        self.continuous = config.continuous
        if config.continuous:
            self.register_buffer("low", -torch.ones(actions))
            self.register_buffer("high", torch.ones(actions))

    def forward(self, observations: Tensor) -> Tensor:
        """(n, 9, height, width) or (n, d) to (n, actions)."""
        found = self.head(torch.relu(self.encoder(observations)))
        return (self.low + self.high) / 2 + found * self.half_range() if self.continuous else found

    def half_range(self) -> Tensor:
        """(actions,) half of the range of each continuous action."""
        return ((self.high - self.low) / 2).clamp(min=1e-6)

    def measure(self, rows: Rows, taken: NDArray[Any], seed: int) -> None:
        """Measure the mean and standard deviation of inputs, and the range of (n, actions) continuous actions."""
        if isinstance(self.encoder, Standardised):
            sample = rows.sample(seed)
            self.encoder.measure(to_input(beside(rows, sample, sample)))
        if self.continuous:
            acted = taken[rows.left > 0]
            self.low.copy_(torch.from_numpy(acted.min(axis=0)))
            self.high.copy_(torch.from_numpy(acted.max(axis=0)))


def imitation_loss(
    network: Inverse, space: ActionSpace, rows: Rows, taken: NDArray[Any], first: Ints, second: Ints
) -> Tensor:
    """Loss of the network on the actions taken at `first` on the way to `second`, (n,) rows each.

    `taken` are the actions of the rows, encoded by `space`. The loss is the cross entropy of discrete actions, and the
    mean squared error of continuous ones, in units of half their range.
    """
    device = network.head.weight.device
    found = network(to_input(beside(rows, first, second)).to(device))
    told = torch.from_numpy(taken[first]).to(device)
    if not network.continuous:
        return space.cross_entropy(found, told)
    return ((found - told) / network.half_range()).square().mean()


def beside(rows: Rows, first: Ints, second: Ints) -> NDArray[Any]:
    """Concatenate observations and goals to inputs of the network; images also with the image one step before."""
    if rows.vectors:
        return np.concatenate([rows.observations[first], rows.goals[second]], axis=1)
    earlier = np.maximum(first - 1, 0)
    before = rows.observations[np.where(rows.gaps[earlier] == 1, earlier, first)]
    return np.concatenate([before, rows.observations[first], rows.goals[second]], axis=3)
