"""Rasters of a map: points along lines, and cells near other cells."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
PAIRS = 2**20  # pairs of positions and lines, or points on lines, computed at once; about 100 bytes each


def points_along(ends: Floats, numbers: NDArray[np.int64]) -> Iterator[Floats]:
    """Yield (p, 2) points on lines, in blocks.

    Args:
        ends: (m, 2, 2) ends of the lines.
        numbers: (m,) number of points on each line, at equal distances from one end to the other, both included.
    """
    parts = np.searchsorted(np.cumsum(numbers), np.arange(PAIRS, numbers.sum(), PAIRS))
    for lines in np.split(np.arange(len(ends)), parts):
        line = np.repeat(lines, numbers[lines])
        before = np.cumsum(numbers[lines]) - numbers[lines]
        number = np.arange(len(line)) - np.repeat(before, numbers[lines])
        last = numbers[line] - 1
        share = np.where(number == last, 1.0, number * (1 / last))[:, None]
        yield ends[line, 0] + (ends[line, 1] - ends[line, 0]) * share


def widened(cells: Bools, reach: int) -> Bools:
    """(w, h) mask of the cells within √`reach` cells of one of `cells`.

    A Euclidean distance transform gives the same, with thirty times the memory.
    """
    found, rows, width = cells.copy(), cells.copy(), 0  # `rows` is `cells`, widened by `width` cells within rows
    for up in range(math.isqrt(reach), -1, -1):
        while width < math.isqrt(reach - up * up):
            width += 1
            _spread(rows.T, cells.T, width)
        _spread(found, rows, up)
    return found


def _spread(target: Bools, source: Bools, by: int) -> None:
    """Mark the cells of `target` that lie `by` rows above or below one of `source`."""
    rest = max(0, len(source) - by)
    target[by:] |= source[:rest]
    target[:rest] |= source[by:]
