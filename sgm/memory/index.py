"""Exact search for near vectors, at a cost that hardly grows with their number if the data allows it.

The index chooses one of three methods by the data, and chooses again whenever its size has doubled:
- "brute force" compares a query with every key, by matrix products. It is the fastest method for few keys, and for keys
  that are all about equally far apart, where none can be skipped.
- "cells" is for keys that lie close to a subspace of few dimensions. Keys are projected orthogonally onto it, which
  makes no distance longer, and only keys that are near in the projection are compared.
- "cover tree" is for keys without such a subspace whose distances differ. It needs compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .arrays import Bools, Column, Ints
from .compiled import kernels

Floats = NDArray[np.float32]
Vectors = NDArray[np.floating]
BRUTE, CELLS, TREE = "brute force", "cells", "cover tree"
SMALL = 2048  # up to this number of keys brute force is always used
_SAMPLE = 1024  # number of keys by which the method is chosen
_MOST_AXES = 8  # most dimensions of the projection
_CELL_AXES = 3  # most dimensions that are divided into cells
_WORSE = 3.0  # largest ratio of near keys after projection to those before
_PER_KEY = {BRUTE: 1.5, CELLS: 15.0, TREE: 90.0}  # approximate nanoseconds for each compared key
_AT_ONCE = 512  # keys added to cells between two checks of the size of the hash table
_NUMBERS = 1 << 22  # most elements of an intermediate array


class Pairs(NamedTuple):
    """Queries and the keys near them, sorted by query, then key: (m,) and (m,) int64."""

    query: Ints
    key: Ints


class Way(Protocol):
    """A search method; its results may include a few keys that are not near."""

    def add(self, keys: Floats) -> None:
        """Add those of all (V, k) keys that are not included yet."""
        ...

    def near(self, queries: Vectors, radius: float, keys: Floats) -> Pairs:
        """Find all keys within a radius of each query, and perhaps others; keys of a query are in any order."""
        ...

    @property
    def nbytes(self) -> int:
        """Size in bytes, without the keys."""
        ...


class Index:
    """(V, k) float32 keys, numbered from 0, and a search for those near a query."""

    def __init__(self, radius: float, keys: Callable[[], Floats] | None = None) -> None:
        """Make an empty index.

        Args:
            radius: typical radius of a search; any radius can be searched.
            keys: returns all added keys, (V, k), if they are stored elsewhere; they must not change. None: the index
                stores a copy of the keys.
        """
        self.radius = max(float(radius), 1e-12)
        self.kind = BRUTE
        self._own: Column | None = None
        self._shared = keys
        self._size = 0
        self._choose_at = SMALL
        self._way: Way = _Brute()

    def __len__(self) -> int:
        """Number of keys."""
        return self._size

    @property
    def nbytes(self) -> int:
        """Size in bytes, without keys that are stored elsewhere."""
        return self._way.nbytes + (0 if self._own is None else self._own.nbytes)

    @property
    def keys(self) -> Floats:
        """(V, k) float32 keys."""
        if self._shared is not None:
            return self._shared()[: self._size]
        return np.empty((0, 0), np.float32) if self._own is None else self._own.values

    def add(self, keys: Floats) -> None:
        """Add (n, k) keys, which get the next numbers."""
        if self._shared is None:
            if self._own is None:
                self._own = Column(np.float32, keys.shape[1:])
            self._own.append(keys)
        self._size += len(keys)

    def cut(self, size: int) -> None:
        """Remove the keys with this number and higher."""
        if size >= self._size:
            return
        self._size = size
        if self._own is not None:
            self._own.cut(size)
        self.kind, self._way, self._choose_at = BRUTE, _Brute(), SMALL

    def within(self, queries: Vectors, radius: float) -> Pairs:
        """Find the keys within a radius of each of (n, k) queries, by the Euclidean distance in double precision."""
        pairs = self.near(queries, radius)
        close = self._lengths(queries, pairs) <= radius
        return Pairs(pairs.query[close], pairs.key[close])

    def near(self, queries: Vectors, radius: float) -> Pairs:
        """Find all keys of `within` and perhaps some farther ones, for callers that compute the distances anyway."""
        if not self._size or not len(queries) or radius < 0:
            return Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
        keys = self.keys
        if not np.isfinite(radius):
            query = np.repeat(np.arange(len(queries)), self._size)
            return Pairs(query, np.tile(np.arange(self._size), len(queries)))
        self._sync(keys)
        return self._way.near(queries, float(radius), keys)

    def nearest(self, queries: Vectors, number: int) -> tuple[Ints, NDArray[np.float64]]:
        """Find the nearest keys of each query, nearest first: (n, m) keys and (n, m) distances, m = min(number, V).

        Of equally near keys the lower one comes first.
        """
        number = min(number, self._size)
        if number and self.kind == BRUTE:
            self._sync(self.keys)
        if number and self.kind == BRUTE and len(queries):
            return self._nearest_of_all(queries, number)
        keys = np.zeros((len(queries), number), np.int64)
        lengths = np.zeros((len(queries), number))
        waiting, radius = np.arange(len(queries)), self.radius
        while len(waiting) and number:
            pairs = self.within(queries[waiting], radius)
            counts = np.bincount(pairs.query, minlength=len(waiting))
            enough = counts >= number
            chosen = enough[pairs.query]
            query, key = pairs.query[chosen], pairs.key[chosen]
            length = self._lengths(queries[waiting], Pairs(query, key))
            order = np.lexsort((key, length, query))
            first = np.cumsum(counts[enough]) - counts[enough]
            place = order[first[:, None] + np.arange(number)]
            keys[waiting[enough]], lengths[waiting[enough]] = key[place], length[place]
            waiting = waiting[~enough]
            radius *= 2
        return keys, lengths

    def _nearest_of_all(self, queries: Vectors, number: int) -> tuple[Ints, NDArray[np.float64]]:
        """Compute `nearest` by brute force in single precision, and again in double precision for possible results."""
        found = []
        keys, norms = self.keys, np.square(self.keys, dtype=np.float64).sum(axis=1).astype(np.float32)
        some = max(1, _NUMBERS // len(keys))
        for low in range(0, len(queries), some):
            part = queries[low : low + some]
            own = np.square(part, dtype=np.float64).sum(axis=1)
            slack = 5e-7 * (keys.shape[1] + 8) * max(own.max(), float(norms.max()))
            squares = part.astype(np.float32) @ keys.T
            squares *= -2
            squares += norms
            last = np.partition(squares, number - 1, axis=1)[:, number - 1]
            query, key = np.divmod(np.flatnonzero(squares <= (last + np.float32(slack))[:, None]), len(keys))
            length = lengths(part, keys, Pairs(query, key))
            order = np.lexsort((key, length, query))
            counts = np.bincount(query, minlength=len(part))
            place = order[(np.cumsum(counts) - counts)[:, None] + np.arange(number)]
            found.append((key[place], length[place]))
        return np.concatenate([one for one, _ in found]), np.concatenate([two for _, two in found])

    def _lengths(self, queries: Vectors, pairs: Pairs) -> NDArray[np.float64]:
        """Return the distances of pairs; each is computed on its own, so that its rounding is always the same."""
        return lengths(queries, self.keys, pairs)

    def _sync(self, keys: Floats) -> None:
        """Pass new keys to the search method; choose the method again if there are twice as many keys."""
        if self._size > self._choose_at:
            self._choose_at = 2 * self._size
            self._choose(keys)
        self._way.add(keys)

    def _choose(self, keys: Floats) -> None:
        """Choose the method with the lowest estimated cost, by a sample of the keys."""
        some = np.random.default_rng(0).choice(len(keys), min(_SAMPLE, len(keys)), replace=False)
        sample = keys[np.sort(some)].astype(np.float64)
        basis, share = flat_basis(sample, self.radius)
        cost = {BRUTE: _PER_KEY[BRUTE] * len(keys), CELLS: _PER_KEY[CELLS] * share * len(keys)}
        if kernels() is not None:
            cost[TREE] = _PER_KEY[TREE] * _looked_at(sample.astype(np.float32), self.radius, len(keys))
        kind = min(cost, key=cost.__getitem__)
        if kind == CELLS:
            self._way = _Cells(sample.mean(axis=0), basis, self.radius)
        elif kind != self.kind:
            self._way = _Tree() if kind == TREE else _Brute()
        self.kind = kind


def lengths(queries: Vectors, keys: Floats, pairs: Pairs) -> NDArray[np.float64]:
    """Compute the Euclidean distances of (query, key) pairs in double precision: (m,)."""
    result = np.empty(len(pairs.query))
    step = max(1, _NUMBERS // max(1, keys.shape[1]))
    for low in range(0, len(result), step):
        part = slice(low, low + step)
        gap = queries[pairs.query[part]].astype(np.float64) - keys[pairs.key[part]]
        result[part] = np.sqrt(np.square(gap).sum(axis=1))
    return result


def flat_basis(sample: NDArray[np.float64], radius: float) -> tuple[NDArray[np.float64], float]:
    """Return a (k, q) orthonormal basis for the projection of keys, and the share of keys that a search compares.

    It has the fewest columns with which about as many keys are near as without the projection.

    Args:
        sample: (s, k) some of the keys.
        radius: radius of a search.
    """
    centred = sample - sample.mean(axis=0)
    basis = np.linalg.svd(centred, full_matrices=False)[2].T
    places = centred @ basis
    first, second = np.triu_indices(len(sample), 1)
    near = np.count_nonzero(_squares(places, first, second) <= radius**2)
    squares = np.zeros(len(first))
    boxed = np.ones(len(first), np.bool_)
    for axis in range(min(_MOST_AXES, basis.shape[1])):
        gap = np.abs(places[first, axis] - places[second, axis])
        squares += np.square(gap)
        if axis < _CELL_AXES:
            boxed &= gap <= 1.5 * radius  # a query compares the keys of its own cell and of those beside it
        if np.count_nonzero(squares <= radius**2) <= _WORSE * near + len(first) / 2000:
            break
    return np.ascontiguousarray(basis[:, : axis + 1]), float(boxed.mean())


def _squares(places: NDArray[np.float64], first: Ints, second: Ints) -> NDArray[np.float64]:
    norms = np.square(places).sum(axis=1)
    table = norms[:, None] + norms - 2 * (places @ places.T)
    return np.asarray(table[first, second])


def _looked_at(sample: Floats, radius: float, size: int) -> float:
    """Estimate how many of `size` keys a search in a cover tree compares, by extrapolation from the sample."""
    looked = []
    for part in (sample[::2], sample):
        tree = _Tree()
        tree.add(part)
        tree.near(part[:: max(1, len(part) // 64)], radius, part)
        looked.append(tree.looked * len(part))
    power = np.clip(np.log2(looked[1] / looked[0]), 0.0, 1.0)
    return float(looked[1] * (size / len(sample)) ** power)


class _Brute:
    """Compares every key, by one matrix product in single precision."""

    def __init__(self) -> None:
        self._norm = Column(np.float64)

    @property
    def nbytes(self) -> int:
        return self._norm.nbytes

    def add(self, keys: Floats) -> None:
        self._norm.append(np.square(keys[len(self._norm) :], dtype=np.float64).sum(axis=1))

    def near(self, queries: Vectors, radius: float, keys: Floats) -> Pairs:
        some = max(1, _NUMBERS // len(keys))
        parts = [
            near_by_product(queries[low : low + some], keys, self._norm.values, radius)
            for low in range(0, len(queries), some)
        ]
        query = [pairs.query + number * some for number, pairs in enumerate(parts)]
        return Pairs(np.concatenate(query), np.concatenate([pairs.key for pairs in parts]))


def near_by_product(queries: Vectors, keys: Floats, norms: NDArray[np.float64], radius: float) -> Pairs:
    """Find all keys within a radius, and a few others: |a − b|² ≤ r² is equivalent to a·b − |b|²/2 ≥ (|a|² − r²)/2.

    Computed in single precision, with a slack above the rounding error of products of k numbers.
    """
    single = queries.astype(np.float32)
    own = np.square(queries, dtype=np.float64).sum(axis=1)
    largest = np.sqrt(max(own.max(initial=0), norms.max(initial=0)))
    slack = 1.2e-7 * (keys.shape[1] + 8) * largest**2 + 1e-30
    products = single @ keys.T
    products -= (0.5 * norms).astype(np.float32)
    least = (0.5 * (own - radius**2) - slack).astype(np.float32)
    near: Bools = products >= np.nextafter(least, np.float32(-np.inf))[:, None]
    query, key = np.divmod(np.flatnonzero(near), len(keys))
    return Pairs(query, key)


class _Cells:
    """Searches keys in a projection onto few axes: by a hash table of cells (compiled), or by SciPy's k-d trees."""

    def __init__(self, centre: NDArray[np.float64], basis: NDArray[np.float64], radius: float) -> None:
        self._centre, self._basis = centre, basis
        self._side = radius
        self._axes = min(_CELL_AXES, basis.shape[1])
        self._places = Column(np.float32, (basis.shape[1],))
        self._largest = 0.0
        self._following = Column(np.int32)
        self._cells = np.full(2 * _AT_ONCE, -1, np.int64)
        self._heads = np.full(2 * _AT_ONCE, -1, np.int32)
        self._used = 0
        self._compiled: Any = kernels()
        self._trees: list[tuple[int, int, Any]] = []  # first, end, SciPy's k-d tree of these points

    @property
    def nbytes(self) -> int:
        cells = self._cells.nbytes + self._heads.nbytes
        trees = 8 * len(self._places)
        return self._places.nbytes + (trees if self._compiled is None else self._following.nbytes + cells)

    def add(self, keys: Floats) -> None:
        first = len(self._places)
        if first == len(keys):
            return
        for low in range(first, len(keys), 4096):
            places = self._project(keys[low : low + 4096])
            self._largest = max(self._largest, float(np.abs(places).max()))
            self._places.append(places)
        if self._compiled is None:
            self._grow_trees()
        else:
            self._fill(first)

    def near(self, queries: Vectors, radius: float, keys: Floats) -> Pairs:
        wanted = self._project(queries)
        # Projected keys are rounded to single precision.
        largest = max(self._largest, float(np.abs(wanted).max()))
        radius = radius * (1 + 1e-6) + 4e-7 * len(self._basis.T) * largest
        if self._compiled is None:
            return self._near_in_trees(wanted, radius)
        if (2 * radius / self._side + 2) ** self._axes > len(keys):
            return self._near_anywhere(wanted, radius)
        table = self._side, self._axes, self._cells, self._heads, self._following.values
        found, starts = self._compiled.search_cells(wanted, radius, self._places.values, *table)
        if len(wanted) == 1:
            return Pairs(np.zeros(len(found), np.int64), found)
        return Pairs(np.repeat(np.arange(len(wanted)), np.diff(starts)), found)

    def _project(self, keys: Vectors) -> NDArray[np.float64]:
        return np.asarray((keys - self._centre) @ self._basis)

    def _fill(self, first: int) -> None:
        """Add the points from `first` on to cells, in a hash table that stays at most half full."""
        places = self._places.values
        self._following.append(np.full(len(places) - first, -1, np.int32))
        while first < len(places):
            end = min(len(places), first + _AT_ONCE)
            if 2 * (self._used + end - first) > len(self._cells):  # each point may need a new cell
                self._cells = np.full(2 * len(self._cells), -1, np.int64)
                self._heads = np.full(len(self._cells), -1, np.int32)
                self._used = first = 0
                continue
            table = self._side, self._axes, self._cells, self._heads, self._following.values
            self._used += self._compiled.fill_cells(places[:end], first, *table)
            first = end

    def _near_anywhere(self, wanted: NDArray[np.float64], radius: float) -> Pairs:
        """Compare every point, for searches with a large radius."""
        places = self._places.values
        masks = [np.square(places - place).sum(axis=1) <= radius**2 for place in wanted]
        found = [np.flatnonzero(mask) for mask in masks]
        return Pairs(np.repeat(np.arange(len(wanted)), [len(keys) for keys in found]), np.concatenate(found))

    def _grow_trees(self) -> None:
        """Add points to trees, each at most half as large as the one before it; a rest stays without a tree."""
        from scipy.spatial import cKDTree  # imported here because importing it takes long

        end = len(self._places)
        first = self._trees[-1][1] if self._trees else 0
        if end - first < 256:
            return
        while self._trees and self._trees[-1][1] - self._trees[-1][0] <= 2 * (end - first):
            first = self._trees.pop()[0]
        self._trees.append((first, end, cKDTree(self._places.values[first:end].astype(np.float64))))

    def _near_in_trees(self, wanted: NDArray[np.float64], radius: float) -> Pairs:
        from scipy.spatial import cKDTree

        tree = cKDTree(wanted)
        query, key = [], []
        for first, _, others in self._trees:
            found = tree.sparse_distance_matrix(others, radius, output_type="ndarray")
            query.append(found["i"].astype(np.int64))
            key.append(found["j"].astype(np.int64) + first)
        rest = self._trees[-1][1] if self._trees else 0
        loose = Pairs(*self._near_rest(wanted, self._places.values[rest:], radius))
        query.append(loose.query)
        key.append(loose.key + rest)
        queries, keys = np.concatenate(query), np.concatenate(key)
        order = np.lexsort((keys, queries))
        return Pairs(queries[order], keys[order])

    def _near_rest(self, wanted: NDArray[np.float64], places: Floats, radius: float) -> tuple[Ints, Ints]:
        squares = np.zeros((len(wanted), len(places)))
        for mine, theirs in zip(wanted.T, places.T, strict=True):
            squares += np.square(np.subtract.outer(mine, theirs))
        query, key = np.nonzero(squares <= radius**2)
        return query, key


class _Tree:
    """A cover tree of the keys, without projection; compiled."""

    def __init__(self) -> None:
        self._level = Column(np.int16)
        self._child = Column(np.int32)
        self._sibling = Column(np.int32)
        self._to_parent = Column(np.float64)
        self._span = Column(np.float64)
        self.looked = 0.0  # share of the keys that the last search compared

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._columns)

    @property
    def _columns(self) -> tuple[Column, ...]:
        return self._level, self._child, self._sibling, self._to_parent, self._span

    def add(self, keys: Floats) -> None:
        first = len(self._level)
        if first == len(keys):
            return
        for column in self._columns:
            column.append(np.zeros(len(keys) - first))
        compiled = kernels()
        assert compiled is not None
        compiled.grow_tree(keys, first, *(column.values for column in self._columns))

    def near(self, queries: Vectors, radius: float, keys: Floats) -> Pairs:
        compiled = kernels()
        assert compiled is not None
        held = tuple(column.values for column in self._columns[1:])
        wanted = np.ascontiguousarray(queries, np.float64)
        found, starts, looked = compiled.search_tree(wanted, radius, keys, *held)
        self.looked = looked / (len(queries) * len(keys))
        return Pairs(np.repeat(np.arange(len(queries)), np.diff(starts)), found)
