"""Outlines of walls as lines, for floor plans."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
CORNERS = 12  # corners of the polygon that approximates a disc


def outline(walls: ArrayLike) -> Floats:
    """(n, 4) lines between walls and free cells of a (height, width) grid of booleans: row, column, row, column.

    Cell (i, j) is the square from (i, j) to (i + 1, j + 1). Cells outside the grid count as walls.
    """
    padded = np.pad(np.asarray(walls, np.bool_), 1, constant_values=True)
    lines = [(at, begin, at, end) for at, begin, end in _runs(padded[1:] != padded[:-1])]
    lines += [(begin, at, end, at) for at, begin, end in _runs((padded[:, 1:] != padded[:, :-1]).T)]
    return np.array(lines, np.float64).reshape(-1, 4)


def _runs(borders: NDArray[np.bool_]) -> Iterable[tuple[int, int, int]]:
    """Yield the runs of a border: the line between two rows of cells, and its first and last column."""
    for at, row in enumerate(borders):
        steps = np.flatnonzero(np.diff(row.astype(np.int8), prepend=0, append=0)) - 1  # of the padding
        yield from ((at, int(begin), int(end)) for begin, end in steps.reshape(-1, 2))


def boxes(boxes: ArrayLike) -> Floats:
    """(n, 4) boxes as (left, bottom, right, top) to the (4 n, 4) lines around them."""
    left, bottom, right, top = np.asarray(boxes, np.float64).reshape(-1, 4).T
    sides = [
        (left, bottom, right, bottom),
        (right, bottom, right, top),
        (right, top, left, top),
        (left, top, left, bottom),
    ]
    return np.concatenate([np.stack(side, axis=1) for side in sides])


def discs(discs: ArrayLike) -> Floats:
    """(n, 3) discs as (x, y, radius) to the (12 n, 4) lines of polygons around them."""
    middle = np.asarray(discs, np.float64).reshape(-1, 3)
    angles = np.linspace(0, 2 * np.pi, CORNERS + 1)
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    corners = middle[:, None, :2] + middle[:, 2, None, None] * around
    return np.concatenate([corners[:, :-1], corners[:, 1:]], axis=2).reshape(-1, 4)
