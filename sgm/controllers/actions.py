"""Conversion between actions of any Gymnasium space and outputs of a network: logits, or continuous numbers."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sgm.data.experience import Experience
from sgm.errors import InputError

LARGEST = 4_096  # outputs of a network for discrete actions


@dataclasses.dataclass(frozen=True)
class ActionSpace:
    """The actions that a controller predicts.

    A discrete action is one number (Discrete) or several (MultiDiscrete, MultiBinary), which are predicted
    independently of each other: each has its own slice of the network's outputs, its logits.

    Attributes:
        shape: shape of one action: () for Discrete, (a,) for MultiDiscrete and most Boxes.
        choices: the possible values of each number of a discrete action; empty for continuous actions.
    """

    shape: tuple[int, ...]
    choices: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, actions: NDArray[Any]) -> ActionSpace:
        """Infer the space from (n, ...) actions that were taken: integers are discrete, floats continuous."""
        if actions.dtype.kind == "f":
            return cls(actions.shape[1:])
        numbers = actions.reshape(len(actions), -1).astype(np.int64)
        space = cls(actions.shape[1:], tuple(_values(column) for column in numbers.T))
        if space.outputs > LARGEST:
            raise InputError(
                f"actions are {actions.dtype} with {space.outputs:,} different values in all: expected {LARGEST:,} or "
                "fewer of a Discrete or MultiDiscrete space. Give the actions of a Box as floats"
            )
        return space

    @property
    def outputs(self) -> int:
        """Number of outputs of a network for one action."""
        return sum(map(len, self.choices)) if self.choices else int(np.prod(self.shape))

    @property
    def stretches(self) -> list[slice]:
        """Slices of the outputs that are the logits of each number of a discrete action."""
        ends = np.cumsum([0, *map(len, self.choices)]).tolist()
        return [slice(low, high) for low, high in itertools.pairwise(ends)]

    def encode(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Encode (n, ...) actions as training targets: (n, c) int64 indices into the choices, or (n, a) float32."""
        flat = actions.reshape(len(actions), int(np.prod(self.shape)))
        if not self.choices:
            return flat.astype(np.float32)
        columns = [
            np.searchsorted(values, column).clip(max=len(values) - 1)  # the action at a last observation is arbitrary
            for values, column in zip(self.choices, flat.T, strict=True)
        ]
        return np.stack(columns, axis=1).astype(np.int64)

    def decode(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """Decode (n, outputs) to (n, ...) actions; a discrete action is the choice with the largest output."""
        if self.choices:
            chosen = [
                np.array(values, np.int64)[outputs[:, stretch].argmax(axis=1)]
                for values, stretch in zip(self.choices, self.stretches, strict=True)
            ]
            outputs = np.stack(chosen, axis=1)
        return outputs.reshape(len(outputs), *self.shape)

    def place(self, action: int) -> int:
        """Index of the output that is the logit of a Discrete action."""
        if self.shape or not self.choices or action not in self.choices[0]:
            known = (
                f"{self.choices[0][0]} to {self.choices[0][-1]}" if self.choices and not self.shape else "no Discrete"
            )
            raise InputError(f"action {action} cannot be excluded: the controller has {known} actions")
        return self.choices[0].index(action)

    def cross_entropy(self, found: Tensor, taken: Tensor) -> Tensor:
        """Cross entropy of (n, outputs) logits and (n, c) encoded actions, summed over the numbers of an action."""
        terms = [functional.cross_entropy(found[:, s], taken[:, column]) for column, s in enumerate(self.stretches)]
        return sum(terms[1:], terms[0])


def taken_actions(data: Experience) -> NDArray[Any]:
    """(n, ...) actions of experience: integers, which are discrete actions, as int64, floats as float32."""
    if data.actions is None:
        raise InputError(
            f"{data!r} has no actions to learn from: give Experience its actions, or use sgm.collect; a distance, a "
            "memory and plans need none"
        )
    actions = data.actions
    return actions.astype(np.float32 if actions.dtype.kind == "f" else np.int64)


def _values(column: NDArray[np.int64]) -> tuple[int, ...]:
    """Choices for one number: 0 to the largest one taken, or only those taken if some are negative or very large."""
    low, high = int(column.min()), int(column.max())
    return tuple(range(high + 1)) if low >= 0 and high < LARGEST else tuple(np.unique(column).tolist())
