"""Rasters of a map: points along lines, and cells near other cells."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
PAIRS = 2**20  # of positions and lines, or points on lines, that are computed together, about 100 bytes each


def points_along(ends: Floats, numbers: NDArray[np.int64]) -> Iterator[Floats]:
    """(p, 2) points on lines, some at a time.

    Args:
        ends: (m, 2, 2) of the lines.
        numbers: (m,) of points on each, at equal distances from one end to the other, both included.
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
    """(w, h) cells within √`reach` cells of one of these.

    A Euclidean distance transform says the same, in thirty times the memory.
    """
    found, rows, width = cells.copy(), cells.copy(), 0  # `rows` are widened by `width` cells within their rows
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
