"""Nodes near an observation by the distance itself, found through an index instead of by asking for every node.

A distance says how it can be searched by three optional methods:
- `keys(embeddings)`: (n, e) to (n, k) float32, the vectors to index;
- `probes(embeddings, outgoing)`: (n, e) to (n, k), the vectors to search with: for the way out of these embeddings to
  the keys' ones, or for the way into them;
- `reach(steps)`: a radius such that d ≤ steps implies ‖key − probe‖₂ ≤ radius, as the distance computes d, rounding
  included; math.inf where there is none.
What is found is then measured by the distance, so that results are those of asking for every node.
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

_MOST_PAIRS = 1 << 18  # pairs that are measured at once


@runtime_checkable
class Searchable(Protocol):
    """The optional methods of a distance that can be searched."""

    def keys(self, embeddings: Floats) -> Floats:
        """(n, e) embeddings to (n, k) vectors to index."""
        ...

    def probes(self, embeddings: Floats, outgoing: bool) -> Floats:
        """(n, e) embeddings to (n, k) vectors to search with, for d(these, keys) if outgoing, else d(keys, these)."""
        ...

    def reach(self, steps: float) -> float:
        """A radius such that d ≤ steps implies ‖key − probe‖₂ ≤ radius."""
        ...


class Found(NamedTuple):
    """Pairs of an observation and a node, by observation, then node, and the distance between them, steps."""

    query: Ints
    node: Ints
    steps: Floats


def is_searchable(distance: Any, steps: float) -> bool:
    """Whether a distance says how to find what is within so many steps."""
    return isinstance(distance, Searchable) and math.isfinite(reach_of(distance, steps))


def reach_of(distance: Searchable, steps: float) -> float:
    """The radius for so many steps, checked."""
    radius = distance.reach(float(steps))
    if isinstance(radius, bool) or not isinstance(radius, (int, float, np.number)) or math.isnan(radius):
        raise DistanceError(f"distance.reach({steps:g}) returned {radius!r}: expected a radius, or math.inf for none")
    return float(radius)


class Search:
    """Finds the nodes near observations, exactly, by a distance that can be searched."""

    def __init__(self, distance: Distance, nodes: Nodes, steps: float) -> None:
        """Search `nodes`, mostly for what is within so many `steps`."""
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
        """Bytes of the index."""
        return 0 if self._index is None else self._index.nbytes

    @property
    def kind(self) -> str | None:
        """How the index searches now; None if nothing was searched."""
        return None if self._index is None else self._index.kind

    def indexes(self, vectors: Floats) -> bool:
        """Whether these (V, k) vectors, not a copy of them, are the keys."""
        keys = self.index.keys
        return keys.shape == vectors.shape and keys.__array_interface__["data"] == vectors.__array_interface__["data"]

    def cut(self, nodes: int) -> None:
        """Forget the nodes from a number on."""
        if not nodes:
            self._index = None
        elif self._index is not None:
            self._index.cut(nodes)

    def candidates(self, embedding: Floats, steps: float, outgoing: bool) -> Pairs:
        """All nodes within so many steps of (n, e) embeddings, and others: d is not asked for."""
        if not len(self.nodes):
            return Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
        return self.index.near(self.probes(embedding, outgoing), reach_of(self.distance, steps))

    def within(self, embedding: Floats, steps: float, outgoing: bool) -> Found:
        """The nodes to which d ≤ steps from (n, e) embeddings; with `outgoing=False` those from which d ≤ steps."""
        pairs = self.candidates(embedding, steps, outgoing)
        distance = self.measure(embedding, pairs, outgoing)
        near = distance <= np.float32(steps)
        return Found(pairs.query[near], pairs.key[near], distance[near])

    def nearest(self, embedding: Floats, outgoing: bool, *, within: float | None = None) -> Near:
        """The nearest node of each of (n, e) embeddings, and its distance: d(these, ·) if outgoing, else d(·, these).

        The search begins with `within` steps (None: those of the constructor) and doubles them until a node is found.
        Ties go to the lower node. There must be a node.
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
        """The distance of each pair of an embedding and a node: (m,) steps."""
        nodes = self.nodes.embedding
        steps = np.empty(len(pairs.query), np.float32)
        for low in range(0, len(steps), _MOST_PAIRS):
            part = slice(low, low + _MOST_PAIRS)
            own, theirs = embedding[pairs.query[part]], nodes[pairs.key[part]]
            steps[part] = paired(self.distance, *((own, theirs) if outgoing else (theirs, own)))
        return steps

    def keys(self, embedding: Floats) -> Floats:
        """(n, e) embeddings to (n, k) keys, checked."""
        return _checked(self.distance.keys(embedding), len(embedding), "keys")

    def probes(self, embedding: Floats, outgoing: bool) -> Floats:
        """(n, e) embeddings to (n, k) probes, checked."""
        return _checked(self.distance.probes(embedding, outgoing), len(embedding), "probes")


def _checked(vectors: Any, number: int, name: str) -> Floats:
    vectors = np.asarray(vectors)  # a view stays one, so that the index need not copy it
    if vectors.dtype.kind != "f" or vectors.ndim != 2 or len(vectors) != number or not np.isfinite(vectors).all():
        raise DistanceError(
            f"distance.{name} returned an array of dtype {vectors.dtype} and shape {vectors.shape}: expected finite "
            f"({number}, k) float32"
        )
    checked: Floats = vectors
    return checked
