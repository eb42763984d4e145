"""Growable arrays and ragged gathers: the two tools the rest of the memory is written with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from sgm.errors import InputError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Column:
    """A growable array: appending is amortised O(1), and cutting back to an earlier length undoes appends."""

    def __init__(self, dtype: DTypeLike, shape: tuple[int, ...] = ()) -> None:
        """Make an empty column of rows of `shape`."""
        self._data: NDArray[Any] = np.empty((16, *shape), dtype)
        self._size = 0

    def __len__(self) -> int:
        """Number of rows."""
        return self._size

    @property
    def values(self) -> NDArray[Any]:
        """The rows, as a view: valid until the next append."""
        return self._data[: self._size]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows held, spare room not counted."""
        return int(self.values.nbytes)

    def append(self, rows: ArrayLike) -> None:
        """Add (n, *shape) rows at the end."""
        rows = np.asarray(rows)
        size = self._size + len(rows)
        self._make_room(size)
        self._data[self._size : size] = rows
        self._size = size

    def with_room(self, rows: int) -> NDArray[Any]:
        """The rows and at least so many places after them, which mean nothing until `extend_to` takes them in."""
        self._make_room(self._size + rows)
        return self._data

    def extend_to(self, size: int) -> None:
        """Take in the rows that were written after the last one."""
        self._size = size

    def _make_room(self, size: int) -> None:
        if size > len(self._data):
            grown = np.empty((max(size, 2 * len(self._data)), *self._data.shape[1:]), self._data.dtype)
            grown[: self._size] = self.values
            self._data = grown

    def cut(self, size: int) -> None:
        """Forget every row from `size` on."""
        self._size = size


def as_array(name: str, values: Any) -> NDArray[Any]:
    """The values as an array; InputError if they cannot be one."""
    try:
        return np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name} cannot be an array: {error}. Expected rows of one shape.") from None


def ragged(starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Flatten runs [start, start + length): the positions, and which run each belongs to."""
    owner = np.repeat(np.arange(len(starts)), lengths)
    offsets = np.cumsum(lengths) - lengths
    return np.arange(len(owner)) + (starts - offsets)[owner], owner
