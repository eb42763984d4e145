"""Shared code of the vector environments: checks, seeds, and a single environment made of a vector environment."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.core import ActType, ObsType
from gymnasium.vector import VectorEnv
from gymnasium.vector.vector_env import ArrayType
from numpy.typing import NDArray

from sgm.errors import InputError


def is_number(value: Any, least: float, largest: float = np.inf) -> bool:
    """Whether a value is a number from `least` to `largest`; NaN and booleans are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and least <= float(value) <= largest


def require(condition: Any, what: str, given: Any, accepted: str) -> None:
    """Raise InputError with the given value and the accepted ones, unless the condition holds."""
    if not condition:
        raise InputError(f"{what} is {given!r}; give {accepted}")


def check_mask(mask: Any, count: int) -> NDArray[np.bool_]:
    """Return a mask of sub-environments as (count,) bool; None stands for all."""
    if mask is None:
        return np.ones(count, dtype=np.bool_)
    array = np.asarray(mask)
    require(
        array.shape == (count,) and array.dtype == np.bool_ and array.any(),
        "reset_mask",
        mask,
        f"a boolean array of shape ({count},) with at least one True",
    )
    return array


def spread_seeds(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """Return a seed, or None, for each of `count` sub-environments: `seed` + i for sub-environment i."""
    if seed is None:
        return [None] * count
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + i for i in range(count)]
    require(len(seed) == count, "seed", seed, f"a number, or a list of {count}")
    return list(seed)


class SeededVectorEnv(VectorEnv[ObsType, ActType, ArrayType]):
    """A vector environment in which each sub-environment has its own random generator."""

    _rngs: list[np.random.Generator]
    _seeds: list[int]

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Random generators of the sub-environments."""
        return tuple(self._rngs)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """Seeds of the sub-environments."""
        return tuple(self._seeds)


class SingleEnv(gymnasium.Env[dict[str, NDArray[Any]], Any]):
    """An ordinary environment that wraps a vector environment with one sub-environment.

    Attributes:
        vector: the vector environment.
        reset_options: names of the options of `reset`, and the corresponding names in the vector environment.
    """

    reset_options: Mapping[str, str] = {"start": "starts", "goal": "goals"}

    def __init__(self, vector: Any) -> None:
        """Wrap a vector environment with one sub-environment."""
        self.vector, self.render_mode = vector, vector.render_mode
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Start an episode; see the class for `options`."""
        super().reset(seed=seed)
        self.vector._rngs[0] = self.np_random
        given, accepted = options or {}, self.reset_options
        if unknown := sorted(set(given) - set(accepted)):
            raise InputError(f"reset got unknown options {unknown}; accepted: {', '.join(accepted)}")
        observation, infos = self.vector.reset(options={accepted[key]: value for key, value in given.items()})
        return _first(observation), _info(infos)

    def step(self, action: Any) -> tuple[dict[str, NDArray[Any]], float, bool, bool, dict[str, Any]]:
        """Take one action."""
        observation, reward, terminated, truncated, infos = self.vector.step(np.asarray(action)[None])
        return _first(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _info(infos)

    def render(self) -> NDArray[np.uint8] | None:
        """Return the camera image, (height, width, 3), independent of the size of observations."""
        images = self.vector.render()
        return None if images is None else images[0]

    def close(self) -> None:
        """Stop the simulator."""
        self.vector.close()


def _first(values: Mapping[str, Any]) -> dict[str, Any]:
    """Select the values of sub-environment 0."""
    return {key: value[0] for key, value in values.items()}


def _info(infos: Mapping[str, Any]) -> dict[str, Any]:
    """Return the info of the only sub-environment, with NumPy scalars converted to Python numbers."""
    own = {key: value for key, value in _first(infos).items() if not key.startswith("_")}
    return {key: value if isinstance(value, np.ndarray) else value.item() for key, value in own.items()}
