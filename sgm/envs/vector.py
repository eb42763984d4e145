"""What environments that are many at once have in common: checks, seeds, and being one of them alone."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError


def is_number(value: Any, least: float, largest: float = np.inf) -> bool:
    """Whether this is a number from `least` to `largest`; NaN and booleans are not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and least <= float(value) <= largest


def require(condition: Any, what: str, given: Any, accepted: str) -> None:
    """Raise InputError with what was given and what is accepted, unless the condition holds."""
    if not condition:
        raise InputError(f"{what} is {given!r}; give {accepted}")


def check_mask(mask: Any, count: int) -> NDArray[np.bool_]:
    """A mask of sub-environments as (count,) bool; None stands for all."""
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
    """One seed, or None, for each of so many sub-environments."""
    if seed is None:
        return [None] * count
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + i for i in range(count)]
    require(len(seed) == count, "seed", seed, f"a number, or a list of {count}")
    return list(seed)


def first(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of sub-environment 0."""
    return {key: value[0] for key, value in values.items()}


def info_of(infos: Mapping[str, Any]) -> dict[str, Any]:
    """The info of the only sub-environment, with Python's own numbers."""
    own = {key: value for key, value in first(infos).items() if not key.startswith("_")}
    return {key: value if isinstance(value, np.ndarray) else value.item() for key, value in own.items()}
