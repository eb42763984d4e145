"""Layout of nodes whose positions are unknown: landmark MDS of path lengths.

De Silva and Tenenbaum, "Sparse multidimensional scaling using landmark points", 2004. A few landmarks, each the
farthest from those before it, are positioned by classical scaling of the path lengths between them; every other node is
positioned by its path lengths to the landmarks. The result is deterministic.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LANDMARKS = 64
FEW_LANDMARKS = 24  # above MANY nodes, because a shortest-path tree then takes a tenth of a second
MANY = 30_000
_GAP = 0.1  # gap between components, as a share of the largest extent


def computed(nodes: int, source: Ints, target: Ints, weight: Floats) -> Floats:
    """(V, 2) positions in steps: nodes with short paths between them are near each other, components side by side."""
    graph = _undirected(nodes, source, target, weight)
    number, label = connected_components(graph, directed=False)
    members = np.argsort(label, kind="stable")
    ends = np.cumsum(np.bincount(label, minlength=number)) if nodes else np.empty(0, np.int64)
    groups = [members[end - size : end] for end, size in zip(ends, np.diff(ends, prepend=0), strict=True)]
    groups.sort(key=lambda group: (-len(group), group[0]))
    places = np.zeros((nodes, 2))
    boxes = []
    for group in groups:
        inside = (
            _component(graph[group][:, group] if len(groups) > 1 else graph) if len(group) > 1 else np.zeros((1, 2))
        )
        places[group] = inside - inside.min(axis=0)
        boxes.append(places[group].max(axis=0))
    for group, corner in zip(groups, _shelves(np.array(boxes).reshape(-1, 2)), strict=True):
        places[group] += corner
    return places


def _undirected(nodes: int, source: Ints, target: Ints, weight: Floats) -> csr_array:
    """Undirected graph with the shorter weight of both directions; weights are positive, because 0 means no edge."""
    low, high = np.minimum(source, target), np.maximum(source, target)
    order = np.lexsort((weight, high, low))
    low, high, weight = low[order], high[order], np.maximum(weight[order], 1e-6)
    first = np.ones(len(low), np.bool_)
    first[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    ends = np.concatenate([low[first], high[first]]), np.concatenate([high[first], low[first]])
    return csr_array((np.tile(weight[first], 2), ends), shape=(nodes, nodes))


def _component(graph: csr_array) -> Floats:
    """(n, 2) positions of the nodes of a connected graph."""
    nodes = graph.shape[0]
    most = LANDMARKS if nodes <= MANY else FEW_LANDMARKS
    chosen = [0]
    steps: list[Floats] = []
    nearest = np.full(nodes, math.inf)
    while len(steps) < min(most, nodes):
        steps.append(dijkstra(graph, directed=True, indices=chosen[-1]))
        nearest = np.minimum(nearest, steps[-1])
        chosen.append(int(nearest.argmax()))
    return _scaled(np.array(steps), np.array(chosen[: len(steps)]))


def _scaled(steps: Floats, landmarks: Ints) -> Floats:
    """(n, 2) positions from (L, n) path lengths to the landmarks; `landmarks` are (L,) node numbers."""
    squares = steps**2
    among = squares[:, landmarks]
    centre = among.mean(axis=1)
    inner = -0.5 * (among - centre - centre[:, None] + centre.mean())
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    axes = []
    for value, vector in zip(values[::-1][:2], vectors.T[::-1][:2], strict=True):
        vector = vector * (1 if vector[np.abs(vector).argmax()] >= 0 else -1)
        axes.append(-0.5 * (vector @ (squares - centre[:, None])) / math.sqrt(value) if value > 1e-9 else None)
    places = [np.zeros(steps.shape[1]) if axis is None else axis for axis in axes]
    places += [np.zeros(steps.shape[1])] * (2 - len(places))
    return np.stack(places, axis=1)


def _shelves(boxes: Floats) -> Floats:
    """(n, 2) lower left corners of (n, 2) boxes (width, height), packed in rows into about a square."""
    corners = np.zeros_like(boxes)
    if not len(boxes):
        return corners
    gap = max(1.0, _GAP * float(boxes.max()))
    row = max(float(boxes[:, 0].max()), math.sqrt(float(((boxes + gap).prod(axis=1)).sum())))
    x = y = height = 0.0
    for place, (width, tall) in enumerate(boxes.tolist()):
        if x and x + width > row:
            x, y, height = 0.0, y - height - gap, 0.0
        corners[place] = x, y - tall
        x, height = x + width + gap, max(height, tall)
    return corners


def beside_neighbours(places: Floats, source: Ints, target: Ints) -> Floats:
    """Fill in positions that are not finite: the mean of their neighbours, or the mean of all."""
    known = np.asarray(np.isfinite(places).all(axis=1))
    if known.all():
        return places
    filled = np.where(known[:, None], places, places[known].mean(axis=0) if known.any() else 0.0)
    for one, other in ((source, target), (target, source)):
        use = known[other] & ~known[one]
        number = np.bincount(one[use], minlength=len(places))
        middle = [np.bincount(one[use], places[other[use], axis], len(places)) for axis in (0, 1)]
        found = number > 0
        filled[found] = (np.stack(middle, axis=1) / np.maximum(number, 1)[:, None])[found]
    return filled
