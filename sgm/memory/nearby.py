"""Neighbours of a block of observations: nodes and other observations within reach of a merge or an edge."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .approximate import ApproximateIndex
from .arrays import Ints
from .criteria import Floats, perceptual_pairs, within
from .distance import Distance, paired
from .fast_nearby import Nearby
from .index import BRUTE, Index, Pairs, near_by_product
from .nodes import Nodes
from .search import Search, is_searchable, measured_both, reach_of
from .settings import Settings

ENOUGH = 1500  # with this many nodes or more, a search is faster than computing the distances to all nodes
_ROUNDING = 1 + 1e-6


class Neighbourhood:
    """Finds all neighbours of the observations of a block, by an index; needs a distance that can be searched."""

    def __init__(self, search: Search, settings: Settings) -> None:
        """Search the nodes of `search`, with its index."""
        self.search = search
        self.distance: Any = search.distance
        self.nodes = search.nodes
        self.settings = settings
        self._features: Index | None = None

    @staticmethod
    def suits(distance: Distance, settings: Settings) -> bool:
        """Whether distances to neighbours suffice to build a memory of these settings.

        They do not suffice for Eq. 3 over the whole memory, which needs every distance; for features that move, which
        cannot be indexed; and without τ_p, when every node is a candidate.
        """
        if not is_searchable(distance, settings.max_dist):
            return False
        if settings.criterion in ("none", "uniform"):
            return True
        if settings.feature_average or math.isinf(settings.tau_p):
            return False
        if settings.criterion == "perceptual":
            return True
        return settings.scope == "neighbors" and is_searchable(distance, settings.max_dist + settings.tau_a)

    @property
    def kind(self) -> str:
        """Search method that the index over the keys uses now."""
        return self.search.kind or BRUTE

    @property
    def nbytes(self) -> int:
        """Size of the index over features, bytes."""
        return 0 if self._features is None else self._features.nbytes

    def cut(self, nodes: int) -> None:
        """Remove the nodes with this number and higher."""
        if self._features is not None:
            self._features.cut(nodes)
            self._features = self._features if nodes else None

    def around(self, embedding: Floats) -> Nearby:
        """Compute the distances between (B, e) observations and the nodes near them, and within the block."""
        pairs = self._candidates(embedding)
        out, into = measured_both(self.distance, self.nodes, embedding, pairs)
        start = np.zeros(len(embedding) + 1, np.int64)
        np.cumsum(np.bincount(pairs.query, minlength=len(embedding)), out=start[1:])
        return Nearby(start, pairs.key, out, into, self._inside(embedding), len(self.nodes))

    def perceptual(self, feature: Floats) -> tuple[Ints, Ints]:
        """Find the pairs (observation, earlier candidate) within τ_p in feature space (Eq. 4).

        They are sorted by observation, then candidate. Candidates are numbered as in fast_merges.py.
        """
        settings = self.settings
        if settings.criterion in ("none", "uniform"):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        index = self._feature_index()
        observation, node = index.near(feature, settings.tau_p * _ROUNDING)
        gap = feature[observation].astype(np.float64) - index.keys[node] if len(node) else np.empty((0, 1))
        length = np.sqrt(np.square(gap).sum(axis=1))
        close = length < settings.tau_p if settings.strict else length <= settings.tau_p
        nothing = np.empty((0, feature.shape[1]), np.float32)
        own, other = perceptual_pairs(nothing, feature, settings)
        rows = np.concatenate([observation[close], own])
        columns = np.concatenate([node[close], other + len(self.nodes)])
        order = np.lexsort((columns, rows))
        return rows[order], columns[order]

    def _candidates(self, embedding: Floats) -> Pairs:
        """Find all nodes within MaxDist in either direction; some farther nodes are found too."""
        search, steps = self.search, self.settings.max_dist * _ROUNDING
        if not len(self.nodes):
            return Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
        out, into = (search.probes(embedding, outgoing) for outgoing in (True, False))
        radius = reach_of(search.distance, steps)
        found = search.index.near(out, radius)
        if np.array_equal(out, into):
            return found
        other, size = search.index.near(into, radius), len(self.nodes)
        both = np.union1d(found.query * size + found.key, other.query * size + other.key)
        return Pairs(*np.divmod(both, size))

    def _inside(self, embedding: Floats) -> Floats:
        """(B, B) distances within the block; infinite if too long for an edge or a merge."""
        merges = self.settings.criterion in ("two-way", "incoming", "outgoing")
        steps = (self.settings.max_dist + (self.settings.tau_a if merges else 0)) * _ROUNDING
        distance = self.distance
        if len(embedding) == 1:
            return np.full((1, 1), np.inf, np.float32)  # an observation is not compared with itself
        keys = np.asarray(self.search.keys(embedding), np.float32)
        norms = np.square(keys, dtype=np.float64).sum(axis=1)
        radius = reach_of(distance, steps)
        found = [near_by_product(self.search.probes(embedding, True), keys, norms, radius)]
        found.append(near_by_product(self.search.probes(embedding, False), keys, norms, radius))
        close = np.eye(len(embedding), dtype=np.bool_)
        close[found[0].query, found[0].key] = close[found[1].key, found[1].query] = True
        one, other = np.nonzero(close)
        table = np.full(close.shape, np.inf, np.float32)
        table[one, other] = paired(distance, embedding[one], embedding[other])
        return table

    def _feature_index(self) -> Index:
        """Return the index over the features of the nodes; the index over the keys if both are the same vectors."""
        feature = self.nodes.feature
        keys = self._keys_index()
        if not self.nodes.has_own_features and keys is not None:
            return keys
        if self._features is None:
            self._features = self._empty_index(self.settings.tau_p, lambda: self.nodes.feature)
        self._features.add(feature[len(self._features) :])
        return self._features

    def _empty_index(self, radius: float, keys: Callable[[], Floats]) -> Index:
        """Make an index over vectors that the nodes hold, see `Index`."""
        return Index(radius, keys)

    def _keys_index(self) -> Index | None:
        """Return the index over the keys if the keys are the embeddings, otherwise None."""
        return self.search.index if self.search.indexes(self.nodes.embedding) else None


class NearestCandidates(Neighbourhood):
    """Finds the nodes with the nearest embeddings, for any distance; not exact, see `Settings.candidates`.

    All observations of a block are compared with each other. With `Settings.approximate` the search finds most of the
    nearest nodes, not all.
    """

    def __init__(self, distance: Distance, nodes: Nodes, settings: Settings) -> None:
        """Search these nodes."""
        self.distance = distance
        self.nodes = nodes
        self.settings = settings
        self._features = None
        self._index = self._empty_index(self._guess(), lambda: self.nodes.embedding)

    @property
    def kind(self) -> str:
        """Search method that the index over the embeddings uses now."""
        return self._index.kind

    @property
    def nbytes(self) -> int:
        """Size of the indexes, bytes."""
        return super().nbytes + self._index.nbytes

    def cut(self, nodes: int) -> None:
        """Remove the nodes with this number and higher."""
        super().cut(nodes)
        self._index.cut(nodes)

    def _empty_index(self, radius: float, keys: Callable[[], Floats]) -> Index:
        return ApproximateIndex(radius, keys) if self.settings.approximate else Index(radius, keys)

    def _guess(self) -> float:
        """Estimate how far the candidates are in embedding space: the radius with which a search begins."""
        some = self.nodes.embedding[:: max(1, len(self.nodes) // 64)].astype(np.float64)
        brute = Index(1.0)
        brute.add(self.nodes.embedding)
        number = min(int(self.settings.candidates or 1), len(self.nodes))
        gaps = np.stack([np.sort(np.linalg.norm(brute.keys - one, axis=1))[number - 1] for one in some[:64]])
        return float(np.median(gaps))

    def _candidates(self, embedding: Floats) -> Pairs:
        index = self._keys_index()
        keys, _ = index.nearest(embedding, int(self.settings.candidates or 1))
        keys.sort(axis=1)
        return Pairs(np.repeat(np.arange(len(embedding)), keys.shape[1]), keys.ravel())

    def _inside(self, embedding: Floats) -> Floats:
        number = len(embedding)
        one, other = np.repeat(np.arange(number), number), np.tile(np.arange(number), number)
        return paired(self.distance, embedding[one], embedding[other]).reshape(number, number)

    def _keys_index(self) -> Index:
        self._index.add(self.nodes.embedding[len(self._index) :])
        return self._index


def new_edges(near: Nearby, new: Ints, settings: Settings) -> tuple[Ints, Ints, Floats]:
    """Find the edges between each new node and all earlier nodes, in the order of adding the nodes one by one.

    Of each new node the incoming edges come first.

    Args:
        near: distances.
        new: observations of the block that became nodes, ascending.
        settings: settings of the memory.

    Returns:
        (m,) sources, (m,) targets and (m,) distances.
    """
    if len(near.inside) == 1 and settings.reversible is None:
        return _edges_of_one(near, len(new), settings)
    number_of = np.full(len(near.inside), -1)
    number_of[new] = np.arange(len(new))
    owner = np.repeat(number_of, np.diff(near.start))
    mine = np.flatnonzero(owner >= 0)
    later, earlier = np.tril_indices(len(new), -1)
    number = np.concatenate([owner[mine], later])
    other = np.concatenate([near.node[mine], near.nodes + earlier])
    pair = np.stack(
        [
            np.concatenate([near.into[mine], near.inside[new[earlier], new[later]]]),
            np.concatenate([near.out[mine], near.inside[new[later], new[earlier]]]),
        ]
    )
    close = within(pair, settings)
    if settings.reversible is not None:
        pair = np.where(close, pair, np.float32(np.inf))
        close |= close[::-1]
    outgoing, place = np.nonzero(close)
    order = np.lexsort((other[place], outgoing, number[place]))
    outgoing, place = outgoing[order], place[order]
    node = near.nodes + number[place]
    source, target = np.where(outgoing, node, other[place]), np.where(outgoing, other[place], node)
    return source, target, pair[outgoing, place]


def _edges_of_one(near: Nearby, new: int, settings: Settings) -> tuple[Ints, Ints, Floats]:
    """`new_edges` for a block of one observation, which became a node if `new` is 1."""
    into, out = (np.flatnonzero(within(steps, settings))[: new * len(steps)] for steps in (near.into, near.out))
    own = np.full(len(into) + len(out), near.nodes)
    source, target = own.copy(), own
    source[: len(into)], target[len(into) :] = near.node[into], near.node[out]
    return source, target, np.concatenate([near.into[into], near.out[out]])
