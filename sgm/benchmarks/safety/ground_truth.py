"""What is true of a memory of the SafetyGym benchmark, by where its nodes were seen; no agent knows it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import sgm

FALSE = 1.2  # metres beyond which a pair that is taken for near, or an edge, is false


def edge_lengths(edges: sgm.Edges, places: NDArray[np.floating]) -> NDArray[np.float64]:
    """(E,) true lengths of edges, metres; (V, 2 or more) places are where the nodes were seen."""
    ends = places[:, :2].astype(np.float64)
    return np.hypot(*(ends[edges.source] - ends[edges.target]).T)


def largest_part(nodes: int, edges: sgm.Edges, chosen: NDArray[np.bool_] | slice = slice(None)) -> NDArray[np.bool_]:
    """Which nodes are in the largest strongly connected part of the graph, or of that of some edges."""
    source, target = edges.source[chosen], edges.target[chosen]
    graph = csr_array((np.ones(len(source)), (source, target)), shape=(nodes, nodes))
    part = connected_components(graph, connection="strong")[1]
    inside: NDArray[np.bool_] = part == np.bincount(part).argmax()
    return inside


def true_part(edges: sgm.Edges, lengths: NDArray[np.float64], nodes: int) -> int:
    """Nodes of the largest strongly connected part without the false edges: what a perfect cleanup would leave."""
    return int(largest_part(nodes, edges, lengths <= FALSE).sum())
