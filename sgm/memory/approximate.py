"""An approximate index, for data in which all keys are about equally far apart, where exact indexes are slow.

usearch (extra `usearch`) links each key to near keys in a graph (HNSW, Malkov and Yashunin 2018) and follows the links
towards a query. It is used only with `Settings.approximate`; `memory.audit` measures how many keys it misses. Keys are
added and searched in one thread and in their order, so that results are reproducible.
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
_LINKS = 16  # links of each key (connectivity of usearch)
_LOOKED_AT = 64  # candidates kept while a key is added or a query is searched (expansion of usearch)
_FIRST = 32  # number of nearest keys with which a search within a radius begins


class ApproximateIndex(Index):
    """Like `Index`, but with more than a few keys it finds most of the near keys instead of all."""

    def __init__(self, radius: float, keys: Callable[[], Floats] | None = None) -> None:
        """Make an empty index, see `Index`; MissingExtra without usearch."""
        super().__init__(radius, keys)
        library()

    def nearest(self, queries: Vectors, number: int) -> tuple[Ints, NDArray[np.float64]]:
        """Return the nearest keys found for each query; as many as `Index.nearest` returns."""
        number = min(number, len(self))
        if number and len(queries):
            self._sync(self.keys)
        if not number or not len(queries) or not isinstance(self._way, _Links):
            return super().nearest(queries, number)
        keys, far = (found[:, :number].copy() for found in self._way.nearest(queries, number, self.keys))
        if (lost := np.flatnonzero(keys[:, -1] < 0)).size:  # the links lead to fewer keys than asked for
            keys[lost], far[lost] = self._nearest_of_all(queries[lost], number)
        return keys, far

    def _choose(self, keys: Floats) -> None:
        if self.kind == BRUTE:
            self.kind, self._way = APPROXIMATE, _Links(keys.shape[1])


class _Links:
    """The usearch index over the keys, with a cache of the last search."""

    def __init__(self, size: int) -> None:
        self._graph = _empty(size)
        self._last: tuple[Vectors, int, Ints, NDArray[np.float64]] | None = None  # queries, V, keys and distances found

    @property
    def nbytes(self) -> int:
        return int(self._graph.memory_usage)

    def add(self, keys: Floats) -> None:
        first = len(self._graph)
        if first < len(keys):
            self._graph.add(np.arange(first, len(keys), dtype=np.uint64), _single(keys[first:]), threads=1)

    def near(self, queries: Vectors, radius: float, keys: Floats) -> Pairs:
        """Find the keys within a radius of each query: the number of nearest keys is doubled until it covers them."""
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

        Of equally near keys the lower one comes first. The last search is cached, because a build searches for the same
        queries twice.
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
        if len(queries) == 1:  # usearch then returns only the keys found, without padding
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
    """Import the module usearch.index; MissingExtra if it is not installed."""
    try:
        import usearch.index
    except ModuleNotFoundError as error:
        raise MissingExtra("approximate=True", "usearch", error) from None
    return usearch.index
