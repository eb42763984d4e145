"""Ground truth about a memory's edges, from the true positions of its nodes. Agents have no access to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import sgm


def edge_lengths(edges: sgm.Edges, positions: NDArray[np.floating]) -> NDArray[np.float64]:
    """(E,) true lengths of edges; `positions` are (V, 2 or more), x and y of the nodes first."""
    ends = positions[:, :2].astype(np.float64)
    return np.hypot(*(ends[edges.source] - ends[edges.target]).T)


def share_over(lengths: NDArray[np.float64], limit: float) -> float | None:
    """Share of edges longer than a limit; None if there are no edges."""
    return float((lengths > limit).mean()) if len(lengths) else None


def largest_component(nodes: int, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(nodes,) bool, the members of the largest strongly connected component of the graph of these edges."""
    graph = csr_array((np.ones(len(source)), (source, target)), shape=(nodes, nodes))
    component = connected_components(graph, connection="strong")[1]
    inside: NDArray[np.bool_] = component == np.bincount(component).argmax()
    return inside
