"""Distances over temporal windows without a table of all frames: blocks of the table are computed on demand.

The distances equal those of `WindowDistance(window_table(...))`. The table of n frames takes n² bytes, 10 GB for
100,000 frames, but a memory compares each frame only with its nodes.
"""

from __future__ import annotations

import hashlib
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.errors import DistanceError, InputError
from sgm.memory.distance import Distance, between

from .window import SCALE, WindowDistance, _check_aggregate, _check_scale, _quantised, window_index, window_table

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
TABLE = 1 << 30  # largest size of a table of all frames, bytes; more frames are compared in blocks
_NUMBERS = 1 << 23  # distances computed at once: 32 MB
_PAIRS = 1 << 12


class WindowBlocks:
    """Distances over the windows of frames, equal to those of `WindowDistance`; observations are frame numbers.

    Give the memory a `features` function or `tau_p=None`: the embedding is the frame number.
    """

    def __init__(
        self,
        distance: Distance,
        embeddings: ArrayLike,
        episodes: ArrayLike,
        window: int = 2,
        aggregate: str = "farthest",
        scale: float = SCALE,
    ) -> None:
        """Make a distance; arguments are those of `window_table`, and distances are rounded as in its uint8 tables."""
        self.distance = distance
        self.vectors: Floats = np.asarray(embeddings, np.float32)
        self.index: Ints = window_index(episodes, window)
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.index):
            raise InputError(f"embeddings have shape {self.vectors.shape}: expected ({len(self.index)}, e)")
        if len(self.index) >= 2**24:
            raise InputError(f"there are {len(self.index)} frames; float32 frame numbers are exact below {2**24}")
        self.aggregate, self.scale = aggregate, _check_scale(scale)
        self.step = np.float32(1 / self.scale)
        self._combine = _check_aggregate(aggregate)
        self._block: tuple[int, NDArray[np.uint8]] = (-1, np.empty((0, 0), np.uint8))

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the frames and of the settings, for memory files."""
        digest = hashlib.sha256(f"{self.aggregate} {self.scale} {getattr(self.distance, 'fingerprint', None)}".encode())
        digest.update(self.index.tobytes())
        digest.update(self.vectors.tobytes())
        return "window-blocks-" + digest.hexdigest()[:32]

    def embed(self, observations: Any) -> Floats:
        """(n,) or (n, 1) frame numbers to (n, 1) float32."""
        rows = np.asarray(observations)
        rows = rows[:, None] if rows.ndim == 1 else rows
        right = rows.shape[1:] == (1,) and rows.dtype.kind in "fiu"
        inside = right and (rows >= 0).all() and (rows < len(self.index)).all() and (rows == np.floor(rows)).all()
        if not inside:
            raise InputError(f"observations are frame numbers, (n,), from 0 to {len(self.index) - 1}")
        return rows.astype(np.float32)

    def __call__(self, starts: Floats, goals: Floats) -> Floats:
        """(n, 1) and (m, 1) frame numbers to (n, m) float32 steps."""
        return self.levels(self._frames(starts), self._frames(goals)) * self.step

    def pairs(self, starts: Floats, goals: Floats) -> Floats:
        """(n, 1) and (n, 1) frame numbers, row by row, to (n,) float32 steps."""
        one, other = self._frames(starts), self._frames(goals)
        first, row = np.unique(one, return_inverse=True)
        last, column = np.unique(other, return_inverse=True)
        if len(first) * len(last) <= 4 * _PAIRS:
            return self.levels(first, last)[row, column] * self.step
        found = [self.levels(one[k : k + 1], other[k : k + 1])[0] for k in range(len(one))]
        return np.concatenate(found) * self.step

    def row(self, frame: int) -> NDArray[np.uint8]:
        """(n,) levels from a frame to all frames; neighbouring rows are computed too and cached."""
        first = frame - frame % 16
        if self._block[0] != first:
            everything = np.arange(len(self.index))
            self._block = first, self.levels(everything[first : first + 16], everything)
        return self._block[1][frame - first]

    def levels(self, starts: Ints, goals: Ints) -> NDArray[np.uint8]:
        """(n,) and (m,) frames to (n, m) levels, `scale` of them per step."""
        table = np.empty((len(starts), len(goals)), np.uint8)
        columns, place = np.unique(self.index[goals], return_inverse=True)
        place = place.reshape(len(goals), -1)
        whole = self.index[goals, -1] - self.index[goals, 0] == self.index.shape[1] - 1
        some = max(1, _NUMBERS // max(1, len(columns)) // self.index.shape[1])
        for low in range(0, len(starts), some):
            rows, own = np.unique(self.index[starts[low : low + some]], return_inverse=True)
            steps = between(self.distance, self.vectors[rows], self.vectors[columns])
            block: NDArray[Any] = steps if self.aggregate == "mean" else _quantised(steps, self.scale)
            block = reduce(self._combine, (block[row] for row in own.reshape(-1, self.index.shape[1]).T))
            block = self._over_columns(block, place, whole)
            if self.aggregate == "mean":
                block = _quantised(block / np.float32(self.index.shape[1] ** 2), self.scale)
            table[low : low + some] = block
        return table

    def _over_columns(self, block: NDArray[Any], place: Ints, whole: NDArray[np.bool_]) -> NDArray[Any]:
        """Combine the columns of each goal's window, in the same order as `window_table`, so that sums agree."""
        window = place.shape[1] // 2
        order = [window] + [window + sign * shift for shift in range(1, window + 1) for sign in (-1, 1)]
        combined = np.empty((len(block), len(place)), block.dtype)
        for chosen, columns in ((whole, place[whole][:, order]), (~whole, place[~whole])):
            if chosen.any():
                combined[:, chosen] = reduce(self._combine, (block[:, one] for one in columns.T))
        return combined

    def _frames(self, embeddings: Floats) -> Ints:
        frames = np.asarray(embeddings)[:, 0].astype(np.int64)
        if len(frames) and not (frames.min() >= 0 and frames.max() < len(self.index)):
            raise DistanceError(f"an embedding is not a frame number: frames are 0 to {len(self.index) - 1}")
        return frames


def window_distance(
    distance: Distance, embeddings: ArrayLike, episodes: ArrayLike, **how: Any
) -> WindowDistance | WindowBlocks:
    """Make a distance over windows: from a table of all frames if that takes at most 1 GB, otherwise in blocks.

    Args:
        distance: distance between single frames.
        embeddings: (n, e) embeddings of the frames.
        episodes: (n,) the episode of each frame.
        how: `window`, `aggregate` and `scale`, see `window_table`.
    """
    if len(np.asarray(episodes)) ** 2 <= TABLE:
        return WindowDistance(window_table(distance, embeddings, episodes, **how), how.get("scale", SCALE))
    return WindowBlocks(distance, embeddings, episodes, **how)
