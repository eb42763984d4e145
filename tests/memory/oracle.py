"""What tests compare memories with: Algorithm 1 in plain Python, and edges as plain lists."""

from __future__ import annotations

import sgm
from sgm.memory.reference import SparseGraph, build_sparse_graph, k_nearest

__all__ = ["SparseGraph", "build_sparse_graph", "edge_list", "k_nearest"]


def edge_list(edges: sgm.Edges) -> list[tuple[int, int, float]]:
    """Edges as a list of (source, target, weight)."""
    return list(zip(*(column.tolist() for column in edges), strict=True))
