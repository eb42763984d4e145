"""An index that may miss keys, for data in which everything is about equally far: no exact index is flat there.

usearch (extra `usearch`) keeps a graph in which each key is linked to near ones (HNSW, Malkov and Yashunin 2018) and
walks along it towards a query. It is used only where it was asked for, see `Settings.approximate`; `memory.audit` says
what it missed. Keys are added and searched in one thread and in their order, so that a stream gives one result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import MissingExtra

from .arrays import Ints
from .index import BRUTE, Floats, Index, Pairs, Vectors, lengths

APPROXIMATE = "usearch"
_LINKS = 16  # of a key to others
_LOOKED_AT = 64  # keys that are kept in view while a key is added, or a query is searched, at least
_FIRST = 32  # nearest keys that a search within a radius begins with


class ApproximateIndex(Index):
    """Like `Index`, but most of what is near is found instead of all of it, once there are more than a few keys."""

    def __init__(self, radius: float, keys: Callable[[], Floats] | None = None) -> None:
        """Make an empty index, see `Index`; MissingExtra without usearch."""
        super().__init__(radius, keys)
        library()

    def nearest(self, queries: Vectors, number: int) -> tuple[Ints, NDArray[np.float64]]:
        """The keys nearest to each query, of those found; as many as `Index.nearest` returns."""
        number = min(number, len(self))
        if number and len(queries):
            self._sync(self.keys)
        if not number or not len(queries) or not isinstance(self._way, _Links):
            return super().nearest(queries, number)
        keys, far = (found[:, :number].copy() for found in self._way.nearest(queries, number, self.keys))
        if (lost := np.flatnonzero(keys[:, -1] < 0)).size:  # links that lead to fewer keys than there are
            keys[lost], far[lost] = self._nearest_of_all(queries[lost], number)
        return keys, far

    def _choose(self, keys: Floats) -> None:
        if self.kind == BRUTE:
            self.kind, self._way = APPROXIMATE, _Links(keys.shape[1])


class _Links:
    """usearch's index over the keys, and what was searched for last."""

    def __init__(self, size: int) -> None:
        self._graph = _empty(size)
        self._last: tuple[Vectors, int, Ints, NDArray[np.float64]] | None = None  # queries, V, and what was found

    @property
    def nbytes(self) -> int:
        return int(self._graph.memory_usage)

    def add(self, keys: Floats) -> None:
        first = len(self._graph)
        if first < len(keys):
            self._graph.add(np.arange(first, len(keys), dtype=np.uint64), _single(keys[first:]), threads=1)

    def near(self, queries: Vectors, radius: float, keys: Floats) -> Pairs:
        """The nearest keys of each query, twice as many again and again while the last one is within the radius."""
        query, key = [], []
        waiting, number = np.arange(len(queries)), min(_FIRST, len(keys))
        while len(waiting):
            found, far = self.nearest(queries[waiting], number, keys)
            done = (far[:, -1] > radius) | (found[:, -1] < 0) | (found.shape[1] >= len(keys))
            row, column = np.nonzero((far <= radius) & done[:, None])
            query.append(waiting[row])
            key.append(found[row, column])
            waiting, number = waiting[~done], min(2 * found.shape[1], len(keys))
        queries_, keys_ = np.concatenate(query), np.concatenate(key)
        order = np.lexsort((keys_, queries_))
        return Pairs(queries_[order], keys_[order])

    def nearest(self, queries: Vectors, number: int, keys: Floats) -> tuple[Ints, NDArray[np.float64]]:
        """(n, m) keys, nearest first, and their distances, m ≥ number; −1 and infinity where fewer were found.

        Ties go to the lower key. What was searched for last is remembered: a build asks for the same queries twice.
        """
        if self._last is not None:
            last, size, found, far = self._last
            if size == len(keys) and found.shape[1] >= number and np.array_equal(last, queries):
                return found, far
        found = self._search(_single(queries), number)
        row, column = np.nonzero(found >= 0)
        far = np.full(found.shape, np.inf)
        far[row, column] = lengths(queries, keys, Pairs(row, found[row, column]))
        order = np.lexsort((found, far), axis=-1)
        found, far = np.take_along_axis(found, order, 1), np.take_along_axis(far, order, 1)
        self._last = queries.copy(), len(keys), found, far
        return found, far

    def _search(self, queries: Floats, number: int) -> Ints:
        """(n, number) keys; −1 where fewer were found."""
        matches = self._graph.search(queries, number, threads=1)
        keys = np.full((len(queries), number), -1)
        if len(queries) == 1:  # of which usearch returns only what it found
            keys[0, : len(matches.keys)] = matches.keys
        else:
            there = np.arange(number) < matches.counts[:, None]
            keys[there] = matches.keys[there]
        return keys


def _single(vectors: Vectors) -> Floats:
    return np.ascontiguousarray(vectors, np.float32)


def _empty(size: int) -> Any:
    how = {"metric": "l2sq", "dtype": "f32", "connectivity": _LINKS}
    return library().Index(ndim=size, expansion_add=_LOOKED_AT, expansion_search=_LOOKED_AT, **how)


def library() -> Any:
    """The module usearch.index; MissingExtra where it is not installed."""
    try:
        import usearch.index
    except ModuleNotFoundError as error:
        raise MissingExtra("approximate=True", "usearch", error) from None
    return usearch.index
