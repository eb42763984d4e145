"""Similarity of the surroundings of two observations, overlaid by odometry."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .motion import Floats, to_own_frame

Ints = NDArray[np.int64]
Similarity = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]]  # (n, e), (m, e) to (n, m)
_CHUNK = 256  # pairs compared at once


@dataclasses.dataclass(frozen=True)
class Overlap:
    """When two observations of two stretches of motion count as made in the same place.

    Attributes:
        window: number of observations on either side that are overlaid.
        radius: distance within which places coincide, units of the poses.
        angle: difference within which headings coincide, radians.
        moved: distance from the joined observations, units of the poses, below which an observation is left out as
            uninformative, unless its heading differs by more than half of `angle`.
    """

    window: int
    radius: float
    angle: float
    moved: float


class Surroundings:
    """Compares the surroundings of observations of an exploration."""

    def __init__(
        self,
        embeddings: NDArray[np.float32],
        poses: Floats,
        episodes: Ints,
        overlap: Overlap,
        similarity: Similarity | None = None,
    ) -> None:
        """Compare (n, e) embeddings with (n, 3) poses and (n,) episodes; similarity None: the cosine of embeddings."""
        self.poses, self.episodes, self.overlap = poses, episodes, overlap
        self.compare = similarity
        if similarity is None:
            length = np.linalg.norm(embeddings, axis=1, keepdims=True)
            embeddings = embeddings / np.maximum(length, np.float32(1e-12))
        self.embeddings = embeddings
        begins = np.flatnonzero(np.diff(episodes, prepend=episodes[0] - 1))
        lengths = np.diff(np.append(begins, len(episodes)))
        self.first, self.end = np.repeat(begins, lengths), np.repeat(begins + lengths, lengths)

    def similarity(self, one: Ints, other: Ints) -> Floats:
        """(w, v) similarities of (w,) rows and (v,) rows."""
        near, far = self.embeddings[one], self.embeddings[other]
        return np.asarray(near @ far.T if self.compare is None else self.compare(near, far), np.float64)

    def score(self, one: Ints, other: Ints) -> tuple[Floats, Ints]:
        """Compute the similarity of the surroundings of (m,) pairs of rows: (m,) scores and (m,) numbers of matches.

        The stretches of motion around the two are overlaid as if both were at one pose. Each observation that coincides
        with some of the other stretch is matched with the most similar of them; the score is the mean similarity, NaN
        without matches.
        """
        found = [self._chunk(one[i : i + _CHUNK], other[i : i + _CHUNK]) for i in range(0, len(one), _CHUNK)]
        if not found:
            return np.empty(0), np.empty(0, np.int64)
        total, number = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return np.where(number > 0, total / np.maximum(number, 1), np.nan), number

    def _chunk(self, one: Ints, other: Ints) -> tuple[Floats, Ints]:
        (rows, seen, tells), (others, other_seen, other_tells) = self._stretch(one), self._stretch(other)
        here, there = seen[:, :, None], other_seen[:, None]
        apart = here[..., :2] - there[..., :2]
        turned = np.abs((here[..., 2] - there[..., 2] + np.pi) % (2 * np.pi) - np.pi)
        same = (np.square(apart).sum(axis=-1) < self.overlap.radius**2) & (turned < self.overlap.angle)
        same &= (rows >= 0)[:, :, None] & (others >= 0)[:, None]
        alike = np.where(same, self._tables(rows, others), -np.inf)
        total, number = np.zeros(len(one)), np.zeros(len(one), np.int64)
        for axis, telling in ((2, tells), (1, other_tells)):
            best = alike.max(axis=axis)
            counts = telling & (best > -np.inf)
            total += np.where(counts, best, 0.0).sum(axis=1)
            number += counts.sum(axis=1)
        return total, number

    def _tables(self, rows: Ints, others: Ints) -> Floats:
        """(m, w, w) similarities of all pairs of observations of each two stretches."""
        if self.compare is None:
            return np.asarray(self.embeddings[rows] @ self.embeddings[others].transpose(0, 2, 1), np.float64)
        return np.stack([self.similarity(*pair) for pair in zip(rows, others, strict=True)])

    def _stretch(self, middle: Ints) -> tuple[Ints, Floats, NDArray[np.bool_]]:
        """Return the rows around each observation, −1 beyond its episode, their relative poses, and which are used."""
        reach = self.overlap.window
        rows = middle[:, None] + np.arange(-reach, reach + 1)
        inside = (rows >= self.first[middle][:, None]) & (rows < self.end[middle][:, None])
        rows = np.where(inside, rows, middle[:, None])
        seen = to_own_frame(self.poses[middle][:, None], self.poses[rows])
        went = np.hypot(seen[..., 0], seen[..., 1]) > self.overlap.moved
        turned = np.abs(seen[..., 2]) > self.overlap.angle / 2
        return np.where(inside, rows, -1), seen, inside & (went | turned)
