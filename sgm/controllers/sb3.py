"""A policy trained with Stable-Baselines3 as a controller."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.data.experience import Experience
from sgm.errors import InputError
from sgm.learning.sb3 import ACHIEVED, Achieved, GoalPolicy, flatten, require_columns

_FORMAT = "sgm-sb3-controller-1"


class SB3Controller:
    """Controller that takes the deterministic actions of a Stable-Baselines3 policy.

    Attributes:
        networks: the policy; a copy, so that training the model further does not change the controller.
    """

    def __init__(self, networks: GoalPolicy) -> None:
        """Make a controller from a policy."""
        self.networks = networks
        if ACHIEVED in networks.policy.observation_space.spaces:
            require_columns(networks)

    def __call__(self, observations: Any, targets: Any, previous: Any = None) -> NDArray[Any]:
        """(n, ...) observations and (n, ...) targets, in goal space, to (n, ...) actions; `previous` is not used."""
        starts = self.networks.embed(observations)
        goals = flatten(targets, self.networks.goal_shape, "targets")
        if len(starts) != len(goals):
            raise InputError(f"got {len(starts)} observations and {len(goals)} targets: expected as many of each")
        return np.asarray(self.networks.act(starts, goals))

    @property
    def can_be_saved(self) -> bool:
        """Whether `save` can write it; see `GoalPolicy.can_be_saved`."""
        return self.networks.can_be_saved

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file; InputError if the policy is not a standard one."""
        self.networks.save(path, _FORMAT, {})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SB3Controller:
        """Read a file written by `save`; StoreError if it is any other file."""
        return cls(GoalPolicy.load(path, _FORMAT)[0])


def from_sb3(
    model: Any, *, data: Experience | None = None, achieved: Achieved = None, device: str | None = None
) -> SB3Controller:
    """Make a controller from a trained Stable-Baselines3 model with MultiInputPolicy.

    Args:
        model: SAC, TD3, DDPG or DQN, usually with HerReplayBuffer; other algorithms work too, but their controllers
            cannot be saved.
        data: experience with achieved goals, to find the columns of an observation that are its achieved goal; None:
            the columns are found in the model's replay buffer, if it has one.
        achieved: the achieved goal of an observation, if neither data nor replay buffer shows it: the columns of an
            observation that are its achieved goal, or a function from (n, ...) observations to (n, ...) achieved goals.
        device: where to compute: "auto", "cpu", "cuda", "cuda:1", "mps"; None: the device of the model.
    """
    return SB3Controller(GoalPolicy.of(model, achieved, data, device))
