"""Growable arrays and ragged gathers, used throughout this package."""

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
        """View of the rows; valid until the next append."""
        return self._data[: self._size]

    @property
    def nbytes(self) -> int:
        """Size of the rows in bytes, without the room to grow."""
        return int(self.values.nbytes)

    def append(self, rows: ArrayLike) -> None:
        """Add (n, *shape) rows at the end."""
        rows = np.asarray(rows)
        size = self._size + len(rows)
        self._make_room(size)
        self._data[self._size : size] = rows
        self._size = size

    def with_room(self, rows: int) -> NDArray[Any]:
        """Return the array with room for at least `rows` more rows, which become part of it by `extend_to`."""
        self._make_room(self._size + rows)
        return self._data

    def extend_to(self, size: int) -> None:
        """Set the length to `size`, after rows were written to the room of `with_room`."""
        self._size = size

    def _make_room(self, size: int) -> None:
        if size > len(self._data):
            grown = np.empty((max(size, 2 * len(self._data)), *self._data.shape[1:]), self._data.dtype)
            grown[: self._size] = self.values
            self._data = grown

    def cut(self, size: int) -> None:
        """Remove the rows from `size` on."""
        self._size = size


def as_array(name: str, values: Any) -> NDArray[Any]:
    """Convert values to an array; InputError if that is impossible."""
    try:
        return np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name} cannot be an array: {error}. Expected rows of one shape.") from None


def ragged(starts: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """Flatten runs [start, start + length); return the positions, and the number of the run of each."""
    owner = np.repeat(np.arange(len(starts)), lengths)
    offsets = np.cumsum(lengths) - lengths
    return np.arange(len(owner)) + (starts - offsets)[owner], owner
