"""Quasimetric heads: they compute the distance of a pair from its two embeddings.

`MRN` (Liu et al. 2022, Metric Residual Networks) and `IQE` (Wang and Isola 2022, Interval Quasimetric Embeddings). Each
is zero from an embedding to itself, asymmetric, and satisfies the triangle inequality. Training uses `forward`, in
torch; `table` and `rows` compute the same in NumPy. Both are homogeneous: scaling embeddings by 2 doubles distances.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from sgm.errors import InputError

Floats = NDArray[np.float32]
HEADS = ("mrn", "iqe")
INTERVALS = 8  # of a component of IQE
_STARTS, _GOALS = 128, 1024  # size of a block of a table: half a megabyte, which fits into the cache


class Head(Protocol):
    """A quasimetric of embeddings of size e.

    Attributes:
        middle: the Euclidean distance of the first `middle` components is a lower bound of the quasimetric; 0: there is
            no such bound.
    """

    middle: int

    def __call__(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(..., e) and (..., e) to (...), in torch."""
        ...

    def table(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (m, e) to (n, m), in NumPy."""
        ...

    def rows(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (n, e) to (n,), row by row, in NumPy."""
        ...


class MRN(nn.Module):
    """Sum of a symmetric and an asymmetric part: ‖s − s'‖ + maxᵢ max(0, aᵢ − a'ᵢ), for embeddings (s, a) of two halves.

    Deviation from the paper: the embedding is split into s and a, which two further networks compute there.
    """

    def __init__(self, size: int) -> None:
        """Make a head for embeddings of this size, an even number."""
        super().__init__()
        if size < 2 or size % 2:
            raise InputError(f"embedding is {size}: expected an even number for the head 'mrn', one half for each part")
        self.middle = size // 2

    def forward(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(..., e) and (..., e) to (...)."""
        apart = starts - goals
        symmetric = torch.linalg.vector_norm(apart[..., : self.middle], dim=-1)
        return symmetric + apart[..., self.middle :].amax(dim=-1).relu()

    def rows(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (n, e) to (n,)."""
        apart = np.asarray(starts, np.float32) - np.asarray(goals, np.float32)
        # In float64, as in `table`, so that both give the same numbers.
        symmetric = np.sqrt(np.square(apart[:, : self.middle], dtype=np.float64).sum(axis=1).astype(np.float32))
        return symmetric + np.maximum(apart[:, self.middle :].max(axis=1), 0)

    def table(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (m, e) to (n, m), computed in blocks so that temporary arrays stay small."""
        a, b = np.asarray(starts, np.float32), np.asarray(goals, np.float32)
        table = np.empty((len(a), len(b)), np.float32)
        for row, column in _blocks(len(a), len(b)):
            some, others = a[row], b[column]
            block = _euclid(some[:, : self.middle], others[:, : self.middle])
            block += _greatest_excess(some[:, self.middle :], others[:, self.middle :])
            table[row, column] = block
        return table


def _euclid(a: Floats, b: Floats) -> Floats:
    """(n, s) and (m, s) to (n, m) Euclidean distances, by ‖a − b‖² = ‖a‖² + ‖b‖² − 2 a·b.

    In float64: in float32, the distance between neighbours would be lost in the rounding of the squares.
    """
    x, y = a.astype(np.float64), b.astype(np.float64)
    squares = x @ (-2 * y.T)
    squares += np.square(x).sum(axis=1)[:, None]
    squares += np.square(y).sum(axis=1)
    return np.sqrt(np.maximum(squares, 0, out=squares).astype(np.float32))


def _greatest_excess(a: Floats, b: Floats) -> Floats:
    """(n, k) and (m, k) to (n, m): the largest difference of a component of a and that of b, at least 0."""
    excess = np.zeros((len(a), len(b)), np.float32)
    one = np.empty_like(excess)
    for mine, theirs in zip(a.T, np.ascontiguousarray(b.T), strict=True):
        np.subtract(mine[:, None], theirs, out=one)
        np.maximum(excess, one, out=excess)
    return excess


class IQE(nn.Module):
    """α · maximum + (1 − α) · mean over components, each the length of a union of intervals.

    An embedding has e / 8 components of 8 numbers; a component has the 8 intervals from u to max(u, u'). α is learned.
    Tables take much longer than those of MRN.
    """

    middle = 0

    def __init__(self, size: int) -> None:
        """Make a head for embeddings of this size, a multiple of 8."""
        super().__init__()
        if size < INTERVALS or size % INTERVALS:
            raise InputError(f"embedding is {size}: expected a multiple of {INTERVALS} for the head 'iqe'")
        self.raw_alpha = nn.Parameter(torch.zeros(()))

    def forward(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(..., e) and (..., e) to (...)."""
        shape = (*starts.shape[:-1], -1, INTERVALS)
        begins, order = starts.reshape(shape).sort(dim=-1)
        ends = goals.expand(starts.shape).reshape(shape).gather(-1, order)
        ends = torch.maximum(begins, ends).cummax(dim=-1).values  # the end of the union so far
        before = torch.cat([begins[..., :1], ends[..., :-1]], dim=-1)
        lengths = (ends - torch.maximum(begins, before)).relu().sum(dim=-1)
        alpha = self.raw_alpha.sigmoid()
        return alpha * lengths.amax(dim=-1) + (1 - alpha) * lengths.mean(dim=-1)

    @property
    def alpha(self) -> float:
        """Weight α of the largest component."""
        return float(self.raw_alpha.detach().sigmoid())

    def rows(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (n, e) to (n,)."""
        a, b = _intervals(starts), _intervals(goals)
        order = a.argsort(axis=2)
        begins, ends = np.take_along_axis(a, order, axis=2), np.take_along_axis(b, order, axis=2)
        return self._of_components(_union(begins.transpose(2, 0, 1), ends.transpose(2, 0, 1)))

    def table(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (m, e) to (n, m), one start at a time: its intervals are sorted once for all goals."""
        a, b = _intervals(starts), _intervals(goals)
        table = np.empty((len(a), len(b)), np.float32)
        goals_last = np.ascontiguousarray(b.transpose(2, 1, 0))  # (intervals, components, m)
        components = np.arange(a.shape[1])
        for number, order in enumerate(a.argsort(axis=2)):
            begins = np.take_along_axis(a[number], order, axis=1).T[:, :, None]
            table[number] = self._of_components(_union(begins, goals_last[order.T, components]).T)
        return table

    def _of_components(self, lengths: Floats) -> Floats:
        """(n, components) lengths to (n,)."""
        return np.float32(self.alpha) * lengths.max(axis=1) + np.float32(1 - self.alpha) * lengths.mean(axis=1)


def _intervals(embeddings: ArrayLike) -> Floats:
    """(n, e) embeddings to (n, components, intervals)."""
    vectors = np.asarray(embeddings, np.float32)
    return vectors.reshape(len(vectors), vectors.shape[1] // INTERVALS, INTERVALS)


def _union(begins: Floats, ends: Floats) -> Floats:
    """(intervals, ...) begins, ascending, and ends to the (...) length of the union of the intervals."""
    covered = begins[0]
    length = np.zeros(np.broadcast_shapes(begins.shape[1:], ends.shape[1:]), np.float32)
    for begin, end in zip(begins, ends, strict=True):
        covered = np.maximum(covered, begin)
        length += np.maximum(end - covered, 0)
        covered = np.maximum(covered, end)
    return length


def make_head(kind: str, size: int) -> MRN | IQE:
    """Make the head of this name for embeddings of this size."""
    if kind not in HEADS:
        raise InputError(f"head is {kind!r}: expected {' or '.join(map(repr, HEADS))}")
    return MRN(size) if kind == "mrn" else IQE(size)


def _blocks(rows: int, columns: int) -> list[tuple[slice, slice]]:
    return [
        (slice(row, row + _STARTS), slice(column, column + _GOALS))
        for row in range(0, rows, _STARTS)
        for column in range(0, columns, _GOALS)
    ]
