"""Find the nodes near an observation with an index, instead of computing the distances to all nodes.

A distance can be searched if it has three optional methods:
- `keys(embeddings)`: (n, e) to (n, k) float32, the vectors to index;
- `probes(embeddings, outgoing)`: (n, e) to (n, k), the vectors to search with: for distances from these embeddings to
  those of the keys if `outgoing`, otherwise for distances in the opposite direction;
- `reach(steps)`: a radius such that d ≤ steps implies ‖key − probe‖₂ ≤ radius for the computed d, rounding included;
  math.inf if there is none.
The distances to the nodes found are then computed, so that results equal those of computing all distances.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from sgm.errors import DistanceError

from .arrays import Ints
from .distance import Distance, Floats, paired
from .index import Index, Pairs
from .nodes import Nodes
from .planner import Near

_MOST_PAIRS = 1 << 18  # pairs whose distances are computed at once


@runtime_checkable
class Searchable(Protocol):
    """The optional methods of a distance that can be searched."""

    def keys(self, embeddings: Floats) -> Floats:
        """Return the (n, k) vectors to index for (n, e) embeddings."""
        ...

    def probes(self, embeddings: Floats, outgoing: bool) -> Floats:
        """Return the (n, k) vectors to search with for (n, e) embeddings.

        They are for d(embeddings, keys) if `outgoing`, otherwise for d(keys, embeddings).
        """
        ...

    def reach(self, steps: float) -> float:
        """Return a radius such that d ≤ steps implies ‖key − probe‖₂ ≤ radius; math.inf if there is none."""
        ...


class Found(NamedTuple):
    """Pairs of an observation and a node, sorted by observation, then node, with their distances in steps."""

    query: Ints
    node: Ints
    steps: Floats


def is_searchable(distance: Any, steps: float) -> bool:
    """Whether an index can find the nodes within so many steps by this distance."""
    return isinstance(distance, Searchable) and math.isfinite(reach_of(distance, steps))


def reach_of(distance: Searchable, steps: float) -> float:
    """Return the search radius for so many steps; DistanceError if the distance returns an invalid one."""
    radius = distance.reach(float(steps))
    if isinstance(radius, bool) or not isinstance(radius, (int, float, np.number)) or math.isnan(radius):
        raise DistanceError(f"distance.reach({steps:g}) returned {radius!r}: expected a radius, or math.inf for none")
    return float(radius)


class Search:
    """Finds all nodes near observations, with an index; needs a distance that can be searched."""

    def __init__(self, distance: Distance, nodes: Nodes, steps: float) -> None:
        """Search `nodes`; the index is made for searches within so many `steps`."""
        assert isinstance(distance, Searchable)
        self.distance = distance
        self.nodes = nodes
        self._steps = steps
        self._index: Index | None = None

    @property
    def index(self) -> Index:
        """The index over the keys of all nodes."""
        embedding = self.nodes.embedding
        if self._index is None:
            radius = reach_of(self.distance, self._steps)
            shares = len(embedding) and np.shares_memory(self.distance.keys(embedding[:1]), embedding)
            self._index = Index(radius, (lambda: self.distance.keys(self.nodes.embedding)) if shares else None)
        if len(self._index) < len(embedding):
            self._index.add(self.keys(embedding[len(self._index) :]))
        return self._index

    @property
    def nbytes(self) -> int:
        """Size of the index, bytes."""
        return 0 if self._index is None else self._index.nbytes

    @property
    def kind(self) -> str | None:
        """Search method that the index uses now; None before the first search."""
        return None if self._index is None else self._index.kind

    def indexes(self, vectors: Floats) -> bool:
        """Whether the keys are these (V, k) vectors themselves, not a copy of them."""
        keys = self.index.keys
        return keys.shape == vectors.shape and keys.__array_interface__["data"] == vectors.__array_interface__["data"]

    def cut(self, nodes: int) -> None:
        """Remove the nodes with this number and higher."""
        if not nodes:
            self._index = None
        elif self._index is not None:
            self._index.cut(nodes)

    def candidates(self, embedding: Floats, steps: float, outgoing: bool) -> Pairs:
        """Find all nodes within so many steps of (n, e) embeddings, and some others: distances are not computed."""
        if not len(self.nodes):
            return Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
        return self.index.near(self.probes(embedding, outgoing), reach_of(self.distance, steps))

    def within(self, embedding: Floats, steps: float, outgoing: bool) -> Found:
        """Find the nodes with d(embedding, node) ≤ steps, or d(node, embedding) ≤ steps if not `outgoing`."""
        pairs = self.candidates(embedding, steps, outgoing)
        distance = self.measure(embedding, pairs, outgoing)
        near = distance <= np.float32(steps)
        return Found(pairs.query[near], pairs.key[near], distance[near])

    def nearest(self, embedding: Floats, outgoing: bool, *, within: float | None = None) -> Near:
        """Find the nearest node of each of (n, e) embeddings, and its distance.

        The distance is d(embedding, node) if `outgoing`, otherwise d(node, embedding). The search begins with `within`
        steps (None: those of the constructor) and doubles them until a node is found. Of equally near nodes, the one
        with the lowest number is returned. There must be a node.
        """
        number = len(embedding)
        node, steps = np.zeros(number, np.int64), np.full(number, np.inf, np.float32)
        waiting, radius = np.arange(number), self._steps if within is None else within
        while len(waiting):
            everywhere = not math.isfinite(reach_of(self.distance, radius)) or radius > 1e30
            found = self.within(embedding[waiting], math.inf if everywhere else radius, outgoing)
            order = np.lexsort((found.node, found.steps, found.query))
            query, first = np.unique(found.query[order], return_index=True)
            best = order[first]
            node[waiting[query]], steps[waiting[query]] = found.node[best], found.steps[best]
            waiting = np.delete(waiting, query)
            radius = max(2 * radius, 1e-6)
        return Near(node, steps)

    def measure(self, embedding: Floats, pairs: Pairs, outgoing: bool) -> Floats:
        """Compute the distance of each pair of an embedding and a node: (m,) steps."""
        return measured(self.distance, self.nodes, embedding, pairs, outgoing)

    def keys(self, embedding: Floats) -> Floats:
        """Return the (n, k) keys of (n, e) embeddings; DistanceError if they are invalid."""
        return _checked(self.distance.keys(embedding), len(embedding), "keys")

    def probes(self, embedding: Floats, outgoing: bool) -> Floats:
        """Return the (n, k) probes of (n, e) embeddings; DistanceError if they are invalid."""
        return _checked(self.distance.probes(embedding, outgoing), len(embedding), "probes")


def measured(distance: Any, nodes: Nodes, embedding: Floats, pairs: Pairs, outgoing: bool) -> Floats:
    """Compute the distance of each pair of one of (n, e) embeddings and a node: (m,) steps.

    It is d(embedding, node) if `outgoing`, otherwise d(node, embedding).
    """
    known = nodes.embedding
    steps = np.empty(len(pairs.query), np.float32)
    for low in range(0, len(steps), _MOST_PAIRS):
        part = slice(low, low + _MOST_PAIRS)
        own, theirs = embedding[pairs.query[part]], known[pairs.key[part]]
        steps[part] = paired(distance, *((own, theirs) if outgoing else (theirs, own)))
    return steps


def measured_both(distance: Any, nodes: Nodes, embedding: Floats, pairs: Pairs) -> tuple[Floats, Floats]:
    """Return `measured` in both directions; node embeddings, which are scattered in RAM, are read only once."""
    known = nodes.embedding
    out, into = np.empty((2, len(pairs.query)), np.float32)
    for low in range(0, len(out), _MOST_PAIRS):
        part = slice(low, low + _MOST_PAIRS)
        own, theirs = embedding[pairs.query[part]], known[pairs.key[part]]
        out[part], into[part] = paired(distance, own, theirs), paired(distance, theirs, own)
    return out, into


def _checked(vectors: Any, number: int, name: str) -> Floats:
    vectors = np.asarray(vectors)  # a view stays one, so that the index need not copy it
    if vectors.dtype.kind != "f" or vectors.ndim != 2 or len(vectors) != number or not np.isfinite(vectors).all():
        raise DistanceError(
            f"distance.{name} returned an array of dtype {vectors.dtype} and shape {vectors.shape}: expected finite "
            f"({number}, k) float32"
        )
    checked: Floats = vectors
    return checked
