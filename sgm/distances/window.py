"""Distances over temporal windows: the distance of two frames is aggregated over the frames just before and after them.

The paper takes the maximum distance over the 25 pairs of ±2 frames (appendix, ViZDoom), so that two places must look
alike for a while before they count as close. `window_steps` computes this directly for a few frames; `window_table`
computes the same for all pairs of frames, by the fast code of fast_windows.py.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.errors import InputError
from sgm.memory.distance import Distance, between

from .fast_windows import fold, over_columns, over_rows
from .table import TableDistance

Floats = NDArray[np.float32]
AGGREGATES = {"farthest": np.maximum, "closest": np.minimum, "mean": np.add}
SCALE = 8  # levels per step in a uint8 table, whose largest distance is then 31.9 steps
_BLOCK = 1 << 22  # distances computed at once: 16 MB


class WindowDistance(TableDistance):
    """Distances looked up in a table from `window_table`; observations are frame numbers, which are its rows.

    The table is neither copied nor converted. As for a `TableDistance`, give the memory a `features` function or
    `tau_p=None`: the embedding is the frame number.
    """

    def __init__(self, table: NDArray[Any], scale: float = SCALE) -> None:
        """Make a distance from an (n, n) table, uint8 with `scale` levels per step, or float32 in steps."""
        if table.ndim != 2 or table.shape[0] != table.shape[1] or table.dtype not in (np.uint8, np.float32):
            raise InputError(f"the table is {table.dtype} of shape {table.shape}: expected (n, n) uint8 or float32")
        self.matrix = np.ascontiguousarray(table).view()
        self.matrix.setflags(write=False)
        self.step = np.float32(1 / _check_scale(scale) if table.dtype == np.uint8 else 1)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the table, for memory files."""
        digest = hashlib.sha256(f"{self.matrix.dtype} {self.step}".encode())
        for row in self.matrix:
            digest.update(row.tobytes())
        return "window-" + digest.hexdigest()[:32]

    def __call__(self, starts: Floats, goals: Floats) -> Floats:
        """(n, 1) and (m, 1) frame numbers to (n, m) float32 steps."""
        return super().__call__(starts, goals) * self.step

    def row(self, frame: int) -> NDArray[Any]:
        """(n,) levels from a frame to all frames."""
        return self.matrix[frame]

    def pairs(self, starts: Floats, goals: Floats) -> Floats:
        """(n, 1) and (n, 1) frame numbers, row by row, to (n,) float32 steps."""
        return self.matrix[starts[:, 0].astype(np.intp), goals[:, 0].astype(np.intp)] * self.step


def window_table(
    distance: Distance,
    embeddings: ArrayLike,
    episodes: ArrayLike,
    window: int = 2,
    aggregate: str = "farthest",
    *,
    dtype: type[np.uint8] | type[np.float32] = np.uint8,
    scale: float = SCALE,
) -> NDArray[Any]:
    """Compute (n, n) distances between all frames, aggregated over their windows, in blocks of rows.

    Args:
        distance: distance between single frames.
        embeddings: (n, e) embeddings of the frames, in order of time.
        episodes: (n,) the episode of each frame; windows are cut off at the ends of episodes.
        window: frames on either side, so that (2 window + 1)² pairs are aggregated; 0 for the frames alone.
        aggregate: "farthest" pair (pessimistic, the paper's), "closest" pair, or the "mean", for which frames beyond
            the end of an episode count as its last one.
        dtype: np.uint8, a quarter of the size, or np.float32 for exact steps.
        scale: levels per step in a uint8 table; distances above 255 levels are stored as 255.
    """
    vectors, index = np.asarray(embeddings, np.float32), window_index(episodes, window)
    if vectors.ndim != 2 or len(vectors) != len(index):
        raise InputError(f"embeddings have shape {vectors.shape} for {len(index)} frames: expected ({len(index)}, e)")
    combine, scale = _check_aggregate(aggregate), _check_scale(scale)
    table = np.empty((len(index), len(index)), dtype)
    if table.dtype not in (np.uint8, np.float32):
        raise InputError(f"dtype is {table.dtype}: expected uint8 or float32")
    rows = max(1, _BLOCK // max(1, len(index)))
    for begin in range(0, len(index), rows):
        own = index[begin : begin + rows]
        first, last = own[0, 0], own[-1, -1] + 1
        steps = between(distance, vectors[first:last], vectors)
        # Rounding preserves the order, and uint8 is compared faster; a mean is rounded at the end.
        block = _quantised(steps, scale) if table.dtype == np.uint8 and aggregate != "mean" else steps
        block = over_columns(over_rows(block, own - first, combine), index, combine)
        if aggregate == "mean":
            block = block / np.float32(index.shape[1] ** 2)
            block = _quantised(block, scale) if table.dtype == np.uint8 else block
        table[begin : begin + rows] = block
    return table


def window_index(episodes: ArrayLike, window: int) -> NDArray[np.int64]:
    """(n, 2 window + 1) frames in each frame's window; beyond an end of the episode its first or last frame repeats."""
    labels = np.asarray(episodes)
    if labels.ndim != 1 or window < 0:
        raise InputError(f"episodes have shape {labels.shape}, window is {window}: expected (n,), and 0 or more")
    if not len(labels):
        return np.empty((0, 2 * window + 1), np.int64)
    starts = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
    if len(np.unique(labels)) != len(starts):
        raise InputError("the frames of an episode are not contiguous: expected one episode after the other")
    lengths = np.diff(np.append(starts, len(labels)))
    first = np.repeat(starts, lengths)[:, None]
    last = first + np.repeat(lengths, lengths)[:, None] - 1
    return np.clip(np.arange(len(labels))[:, None] + np.arange(-window, window + 1), first, last)


def window_embeddings(embeddings: ArrayLike, episodes: ArrayLike, window: int = 2) -> Floats:
    """Collect the embeddings in each frame's window, (n, e) to (n, 2 window + 1, e), for `window_steps`."""
    return np.asarray(embeddings, np.float32)[window_index(episodes, window)]


def window_steps(distance: Distance, starts: Floats, goals: Floats, aggregate: str = "farthest") -> Floats:
    """Compute distances over the windows of a few frames: (n, s, e) and (m, g, e) embeddings to (n, m) float32 steps.

    It compares live frames, whose windows hold only the past (s may be 1), with the windows of nodes. If the distance
    has `closeness` and `steps`, closeness is aggregated first, and only the result is converted to steps.
    """
    combine = _check_aggregate(aggregate)
    shape = (*np.shape(starts)[:2], *np.shape(goals)[:2])
    flat = [np.reshape(vectors, (-1, np.shape(vectors)[-1])) for vectors in (starts, goals)]
    if aggregate != "mean" and hasattr(distance, "closeness") and hasattr(distance, "steps"):
        opposite = np.minimum if aggregate == "farthest" else np.maximum
        return distance.steps(fold(distance.closeness(*flat).reshape(shape), opposite))
    steps = fold(between(distance, *flat).reshape(shape), combine)
    return steps / np.float32(shape[1] * shape[3]) if aggregate == "mean" else steps


def _quantised(steps: Floats, scale: float) -> NDArray[np.uint8]:
    levels = steps * np.float32(scale)
    levels += 0.5
    return np.minimum(levels, 255, out=levels).astype(np.uint8)


def _check_aggregate(aggregate: str) -> np.ufunc:
    if aggregate not in AGGREGATES:
        raise InputError(f"aggregate is {aggregate!r}: expected one of {', '.join(map(repr, AGGREGATES))}")
    return AGGREGATES[aggregate]


def _check_scale(scale: float) -> float:
    if not 0 < scale < np.inf:
        raise InputError(f"scale is {scale}: expected levels per step, above 0")
    return float(scale)
