"""The graph: edges as columns, indexed by source and by target, with an up-to-date k-nearest filter."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .adjacency import Adjacency
from .arrays import Bools, Column, Ints, ragged
from .compiled import kernels, loaded
from .evidence import EvidenceColumns

Steps = NDArray[np.uint8]
_HISTORY = 64  # number of versions whose changes are stored for `changed_since`
_FEW, _MANY = 512, 4096  # numba is loaded to filter at most so many nodes, in a graph of more than so many
_FIND = 4096  # edges searched for at once
MOST_BETWEEN = 255  # most steps between two observations that an edge in time joins


class Edges(NamedTuple):
    """Edges as parallel arrays, ordered by source, then target.

    Attributes:
        source: (E,) int64 node ids.
        target: (E,) int64 node ids.
        weight: (E,) float32 steps.
    """

    source: Ints
    target: Ints
    weight: NDArray[np.float32]


class Index(NamedTuple):
    """Edges grouped by one end: those of node n are at positions start[n] … start[n + 1] − 1.

    Attributes:
        start: (V + 1,) int64 first position of each node.
        other: (E,) int64 the other end of each edge.
        edge: (E,) int64 edge numbers.
    """

    start: Ints
    other: Ints
    edge: Ints


class Graph:
    """A directed graph that only grows; removed edges are marked in `evidence`.

    An edge has a distance d(source, target), which is infinite if only an episode made the edge, and the fewest steps
    in which an episode went along it, 0 if none did (`temporal`). Its weight is the smaller of the two.

    In a reversible graph every edge has an opposite edge. The weight of an edge is at most `reversible` times that of
    its opposite, and it passes the filter if its opposite does. An edge that exists only for this reason has an
    infinite distance and no steps.
    """

    def __init__(self) -> None:
        """Make an empty graph."""
        self.source = Column(np.int32)
        self.target = Column(np.int32)
        self.distance = Column(np.float32)
        self.temporal = Column(np.uint8)
        self.kept = Column(np.bool_)
        self.evidence = EvidenceColumns()
        self.spares: list[int] = []  # spare edges at the time of the last `in_filter`
        self._spares_changed = True
        self.nodes = 0
        self.version = 0
        self.reversible: float | None = None
        self._k: int | None = None
        self._passing: Bools | None = None
        self._partner: Ints | None = None
        self._stale = Column(np.bool_)  # nodes whose successors must be filtered again
        self._any_stale = False
        self._filtered = 0  # the version that was filtered last
        self._only_grown = False  # whether edges were only added since then
        self._out, self._into = Adjacency(), Adjacency()
        self._by_source: Index | None = None
        self._by_target: Index | None = None
        self._history: list[tuple[int, NDArray[Any]]] = []  # for each version, the nodes whose outgoing edges changed

    def __len__(self) -> int:
        """Number of edges, including removed and filtered ones."""
        return len(self.source)

    @property
    def nbytes(self) -> int:
        """Size of the edge columns, of the evidence and of the adjacency lists, bytes."""
        columns = (self.source, self.target, self.distance, self.temporal, self.kept, self._stale)
        held = sum(column.nbytes for column in columns) + self.evidence.nbytes
        return held + self._out.nbytes + self._into.nbytes

    def append(self, nodes: int, source: Ints, target: Ints, distance: NDArray[np.float32], temporal: Steps) -> None:
        """Grow to `nodes` nodes and add edges, which must be new."""
        if nodes == self.nodes and not len(source):
            return
        self.nodes = nodes
        self.source.append(source)
        self.target.append(target)
        self.distance.append(distance)
        self.temporal.append(temporal)
        self.kept.append(np.ones(len(source), np.bool_))
        only_grown = self._only_grown
        self._changed(source)
        self._only_grown = only_grown

    def cut(self, nodes: int, edges: int) -> None:
        """Remove the nodes and edges with these numbers and higher."""
        sources = self.source.values[edges:].copy()
        self._out.cut(nodes, edges, self.source.values)
        self._into.cut(nodes, edges, self.target.values)
        for column in (self.source, self.target, self.distance, self.temporal, self.kept):
            column.cut(edges)
        self.nodes = nodes
        self._stale.cut(min(nodes, len(self._stale)))
        self._changed(sources[sources < nodes])
        self._history = []

    def drop_runs(self) -> None:
        """Free the adjacency lists; they are made again on next use."""
        self._out, self._into = Adjacency(), Adjacency()

    def set_temporal(self, edges: Ints, steps: Steps) -> None:
        """Set the number of steps in which an episode went along (m,) edges; 0: none did."""
        if len(edges):
            self.temporal.values[edges] = steps
            self._changed(self.source.values[edges])

    def weights(self, edges: Ints | slice = slice(None)) -> NDArray[np.float32]:
        """Return the weights of these edges, steps."""
        if self.reversible is None:
            return self._forward(edges)
        back = np.float32(self.reversible) * self._forward(self.partner()[edges])
        lighter: NDArray[np.float32] = np.minimum(self._forward(edges), back)
        return lighter

    def _forward(self, edges: Ints | slice) -> NDArray[np.float32]:
        """Return the weights of these edges without their opposite edges; infinite without distance and steps."""
        distance, temporal = self.distance.values[edges], self.temporal.values[edges]
        return np.where(temporal > 0, np.minimum(distance, temporal.astype(np.float32)), distance)

    def partner(self) -> Ints:
        """(E,) opposite edge of each edge of a reversible graph."""
        if self._partner is None:
            source, target = self.source.values.astype(np.int64), self.target.values.astype(np.int64)
            order = np.lexsort((target, source))
            self._partner = np.empty(len(self), np.int64)
            self._partner[np.lexsort((source, target))] = order
        return self._partner

    def is_reversible(self) -> bool:
        """Whether every edge has an opposite edge, and one of the two has a weight of its own."""
        source, target = self.source.values.astype(np.int64), self.target.values.astype(np.int64)
        keys, back = np.sort(source * self.nodes + target), np.sort(target * self.nodes + source)
        if (keys != back).any():
            return False
        own = self._forward(slice(None))
        return bool(np.isfinite(np.minimum(own, own[self.partner()])).all())

    def find(self, source: int, target: int) -> int | None:
        """Return the edge from `source` to `target`; None if there is none."""
        edges = self.out_of().at(source)
        place = np.flatnonzero(self.target.values[edges] == target)
        return int(edges[place[0]]) if len(place) else None

    def find_many(self, sources: Ints, targets: Ints) -> Ints:
        """Return the edges from (m,) sources to (m,) targets; −1 where there is none."""
        if len(sources) == 1:
            edge = self.find(int(sources[0]), int(targets[0]))
            return np.array([-1 if edge is None else edge])
        found = np.full(len(sources), -1)
        at_each = self.out_of()
        for low in range(0, len(sources), _FIND):
            edges, owner = at_each.of(sources[low : low + _FIND])
            match = self.target.values[edges] == targets[low + owner]
            found[low + owner[match]] = edges[match]
        return found

    def out_of(self) -> Adjacency:
        """Outgoing edges of each node, in the order in which they were made."""
        return self._out.sync(self.nodes, self.source.values)

    def into(self) -> Adjacency:
        """Incoming edges of each node, in the order in which they were made."""
        return self._into.sync(self.nodes, self.target.values)

    def by_source(self) -> Index:
        """Edges grouped by source, targets ascending."""
        if self._by_source is None:
            self._by_source = _index(self._rows())
        return self._by_source

    def by_target(self) -> Index:
        """Edges grouped by target, sources ascending."""
        if self._by_target is None:
            self._by_target = _index(self._rows().tocsc())
        return self._by_target

    def set_reversible(self, factor: float | None) -> None:
        """Set the factor of a reversible graph, see the class; None: the graph is not reversible."""
        if factor != self.reversible:
            self.reversible = factor
            self._changed(np.arange(self.nodes))

    def set_filter(self, k: int | None) -> None:
        """Keep the k outgoing edges of least weight of each node; None keeps all.

        Of edges with equal weights, those with the lower target are kept.
        """
        if k != self._k:
            self._k = k
            self._changed(np.arange(self.nodes))

    def in_filter(self) -> Bools:
        """(E,) whether each edge passes the k-nearest filter or is a spare edge, removed or not.

        Removed edges count among the k, so that no longer edge takes the place of an edge removed by cleanup, just as
        if the filter were applied once before cleanup. The guard may add longer edges (`Evidence.spare`).
        """
        if self._any_stale:
            stale = self._sources_since(self._filtered)
            self._filter(np.flatnonzero(self._stale.values) if stale is None else stale)
            self._stale.values[slice(None) if stale is None else stale] = self._any_stale = False
            self._filtered, self._only_grown = self.version, True
            if self._spares_changed:
                self.spares = self.evidence.spares()
                self._spares_changed = False
            self._passing = self.kept.values if self.reversible is None else self._both_ways()
            self._passing[self.spares] = True
        return self.kept.values if self._passing is None else self._passing

    def _both_ways(self) -> Bools:
        """(E,) whether each edge or its opposite edge is among the k nearest."""
        nearest: Bools = self.kept.values & np.isfinite(self._forward(slice(None)))
        return nearest | nearest[self.partner()]

    def filter_again(self, edge: int) -> None:
        """Filter the successors of the source of an edge again, because the edge is or was a spare edge."""
        self._spares_changed = True
        self.version += 1
        self._mark_stale(self.source.values[[edge]])

    def removed(self) -> Bools:
        """(E,) whether each edge has been removed."""
        mask = np.zeros(len(self), np.bool_)
        mask[self.evidence.removed()] = True
        return mask

    def edges(self, mask: Bools) -> Edges:
        """Return the edges of an (E,) mask, ordered by source, then target."""
        chosen = self.by_source().edge
        chosen = chosen[mask[chosen]]
        source, target = self.source.values[chosen], self.target.values[chosen]
        return Edges(source.astype(np.int64), target.astype(np.int64), self.weights(chosen))

    def is_simple(self) -> bool:
        """Whether no edge occurs twice or leads from a node to itself."""
        source, target = self.source.values.astype(np.int64), self.target.values
        keys = np.sort(source * self.nodes + target)
        return bool((source != target).all() and (keys[1:] != keys[:-1]).all())

    def first(self, nodes: int, edges: int) -> Graph:
        """Return a copy of the first `nodes` nodes and the first `edges` edges, without evidence."""
        copy = Graph()
        columns = (self.source, self.target, self.distance, self.temporal)
        copy.append(nodes, *(column.values[:edges] for column in columns))
        return copy

    def changed_since(self, version: int) -> Ints | None:
        """Return the nodes whose outgoing edges or their weights may have changed since a version; None: any node."""
        return None if self.reversible is not None else self._sources_since(version)

    def _sources_since(self, version: int) -> Ints | None:
        """Return the sources of edges that changed since a version, ascending; None if the history is too short."""
        newer = [sources for at, sources in self._history[-(self.version - version) :] if at > version]
        if len(newer) != self.version - version or not newer:
            return None
        if sum(map(len, newer)) < self.nodes:
            return np.unique(newer[0] if len(newer) == 1 else np.concatenate(newer)).astype(np.int64, copy=False)
        changed = np.zeros(self.nodes, np.bool_)
        for sources in newer:
            changed[sources] = True
        return changed.nonzero()[0]

    def _mark_stale(self, sources: NDArray[Any]) -> None:
        if self.nodes > len(self._stale):
            self._stale.append(np.zeros(self.nodes - len(self._stale), np.bool_))
        self._stale.values[sources] = self._any_stale = True
        self._only_grown = False
        self._history.append((self.version, sources))
        del self._history[:-_HISTORY]

    def _changed(self, sources: NDArray[Any]) -> None:
        self.version += 1
        self._mark_stale(sources)
        self._by_source = self._by_target = self._partner = self._passing = None

    def _rows(self) -> csr_array:
        ends = (self.source.values, self.target.values)
        return csr_array((np.arange(len(self), dtype=np.int64), ends), shape=(self.nodes, self.nodes))

    def _filter(self, sources: Ints) -> None:
        """Filter the successors of these nodes again."""
        is_worth_it = len(sources) <= _FEW and self.nodes > _MANY
        if self._k is not None and self.reversible is None and (kernels() if is_worth_it else loaded()):
            self._filter_few(sources, self._k)
            return
        edges, lengths = self._successors(sources)
        if self._k is None:
            self.kept.values[edges] = True
            return
        owner = np.repeat(np.arange(len(sources)), lengths)
        weights = self._forward(edges)
        limit = kth_smallest(weights, lengths, self._k)[owner]
        # Of the edges that tie for the last place, those to the lowest targets stay; targets ascend within a source.
        ties = weights == limit
        first = np.cumsum(lengths) - lengths
        seen, below = _running_count(ties, first, owner), np.bincount(owner[weights < limit], minlength=len(sources))
        self.kept.values[edges] = (weights < limit) | (ties & (seen <= self._k - below[owner]))

    def _filter_few(self, sources: Ints, k: int) -> None:
        """Filter the successors of a few nodes by compiled code."""
        from .fast_paths import keep_nearest

        at_each = self.out_of()
        columns = (self.distance.values, self.temporal.values, self.target.values)
        runs = at_each.start, at_each.length, at_each.edge
        keep_nearest(*runs, sources, *columns, k, self.kept.values, self._only_grown)

    def _successors(self, sources: Ints) -> tuple[Ints, Ints]:
        """Return the outgoing edges of (n,) nodes, sorted by target within each node, and the (n,) numbers of them."""
        if self._by_source is not None or 2 * len(sources) > self.nodes:
            index = self.by_source()
            lengths = index.start[sources + 1] - index.start[sources]
            return index.edge[ragged(index.start[sources], lengths)[0]], lengths
        at_each = self.out_of()
        edges, owner = at_each.of(sources)
        return edges[np.lexsort((self.target.values[edges], owner))], at_each.length[sources].astype(np.int64)


def _index(matrix: Any) -> Index:
    """Convert a CSR or CSC matrix of edge numbers to an `Index`."""
    return Index(*(np.asarray(part, np.int64) for part in (matrix.indptr, matrix.indices, matrix.data)))


def kth_smallest(values: NDArray[np.float32], lengths: Ints, k: int) -> NDArray[np.float32]:
    """Return the k-th smallest number of each run of `values`; infinity for runs of fewer than k."""
    starts = np.cumsum(lengths) - lengths
    result = np.full(len(lengths), np.inf, np.float32)
    # Runs of similar length are padded to a common one, so that NumPy can select in all of them at once.
    magnitude = np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    for group in np.unique(magnitude[lengths >= k]):
        rows = np.flatnonzero((magnitude == group) & (lengths >= k))
        column = np.arange(lengths[rows].max())
        inside = column < lengths[rows, None]
        padded = np.where(inside, values[np.where(inside, starts[rows, None] + column, 0)], np.float32(np.inf))
        result[rows] = np.partition(padded, k - 1, axis=1)[:, k - 1]
    return result


def _running_count(mask: Bools, first: Ints, owner: Ints) -> NDArray[Any]:
    """Count, for each element, the set elements of its run up to and including it; runs begin at `first`."""
    total = np.cumsum(mask)
    before = np.concatenate([[0], total])[first]
    count: NDArray[Any] = total - before[owner]
    return count
