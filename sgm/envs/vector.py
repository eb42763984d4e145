"""What environments that are many at once have in common: the checks of what they are given."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.memory.errors import InputError


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
