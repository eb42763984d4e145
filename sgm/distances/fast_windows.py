"""Fast code: aggregates over temporal windows of a whole table of distances.

A maximum over a square of a table is a maximum along its rows and then along its columns: two filters over one table
in place of 25 passes. The plain version is `window_steps` in window.py, which compares all pairs of every two windows.
The tests compare the two.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray


def fold(table: NDArray[Any], combine: np.ufunc) -> NDArray[Any]:
    """Reduce (n, s, m, g) to (n, m); by slices, because NumPy is slow at reducing a short last axis."""
    return combine.reduce(reduce(combine, np.moveaxis(table, 3, 0)), axis=1)


def over_rows(block: NDArray[Any], own: NDArray[np.int64], combine: np.ufunc) -> NDArray[Any]:
    """Combine rows: (b, n) and (r, w) rows of each window to (r, n)."""
    return reduce(combine, (block[rows] for rows in own.T))


def over_columns(block: NDArray[Any], index: NDArray[np.int64], combine: np.ufunc) -> NDArray[Any]:
    """Combine columns: (r, n) and (n, w) columns of each window to (r, n)."""
    combined, window = block.copy(), index.shape[1] // 2
    for shift in range(1, window + 1):  # long runs of neighbours, as if all were one episode …
        for to, of in ((combined[:, shift:], block[:, :-shift]), (combined[:, :-shift], block[:, shift:])):
            combine(to, of, out=to)
    ends = np.flatnonzero(index[:, -1] - index[:, 0] < 2 * window)  # … and then the columns where one begins or ends
    combined[:, ends] = reduce(combine, (block[:, columns] for columns in index[ends].T))
    return combined
