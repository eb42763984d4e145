"""A distance given as a table: exact, for tests and small known worlds."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.errors import DistanceError, InputError


class TableDistance:
    """Distances looked up in a matrix; observations are its row numbers.

    The embedding of an observation is its row number, so without `features` the perceptual check compares row
    numbers: give the memory a `features` function, or `tau_p=None` to switch the check off.
    """

    def __init__(self, matrix: ArrayLike) -> None:
        """Make a distance from an (n, n) matrix of steps: entry [i, j] is the distance from i to j."""
        try:
            table = np.array(matrix, np.float32, order="C")
        except (TypeError, ValueError) as error:
            raise DistanceError(f"a distance table is an (n, n) array of numbers: {error}") from error
        if table.ndim != 2 or table.shape[0] != table.shape[1]:
            raise DistanceError(f"a distance table is square, (n, n); got shape {table.shape}")
        if table.size and not (table.min() >= 0 and table.max() < np.inf):
            row, column = np.argwhere(~(np.isfinite(table) & (table >= 0)))[0]
            raise DistanceError(
                f"the table holds {table[row, column]} at [{row}, {column}]: a distance is finite and 0 or more"
            )
        if len(table) >= 2**24:
            raise DistanceError(f"the table has {len(table)} rows; float32 row numbers are exact below {2**24}")
        self.matrix: NDArray[np.float32] = table
        self.matrix.setflags(write=False)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the table, for memory files."""
        return "table-" + hashlib.sha256(self.matrix.tobytes()).hexdigest()[:32]

    def embed(self, observations: Any) -> NDArray[np.float32]:
        """(n,) or (n, 1) row numbers to (n, 1) float32."""
        rows = np.asarray(observations)
        rows = rows[:, None] if rows.ndim == 1 else rows
        if rows.shape[1:] != (1,) or rows.dtype.kind not in "fiu":
            raise InputError(
                f"observations of a TableDistance are row numbers, (n,); got shape {np.shape(observations)}, "
                f"dtype {rows.dtype}"
            )
        if rows.size and not (rows.min() >= 0 and rows.max() < len(self.matrix) and (rows == np.floor(rows)).all()):
            bad = rows[~((rows >= 0) & (rows < len(self.matrix)) & (rows == np.floor(rows)))][0]
            raise InputError(f"row {bad} is not in the table: rows are whole numbers from 0 to {len(self.matrix) - 1}")
        return rows.astype(np.float32)

    def __call__(self, starts: NDArray[np.float32], goals: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, 1) and (m, 1) row numbers to (n, m) float32 steps."""
        rows, columns = starts[:, 0].astype(np.intp), goals[:, 0].astype(np.intp)
        try:
            return self.matrix.ravel().take(rows[:, None] * len(self.matrix) + columns)
        except IndexError:
            raise self._not_in_table() from None

    def table(self, embeddings: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """Return the table and the (n,) rows of (n, 1) embeddings in it; None in a class with another `__call__`.

        Compiled code reads single entries from it in place of computing all distances of a block.
        """
        if type(self).__call__ is not TableDistance.__call__:
            return None
        rows = embeddings[:, 0].astype(np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self.matrix)):
            raise self._not_in_table()
        return self.matrix, rows

    def _not_in_table(self) -> DistanceError:
        most = len(self.matrix) - 1
        return DistanceError(f"an embedding is not in the table: rows are whole numbers from 0 to {most}")
