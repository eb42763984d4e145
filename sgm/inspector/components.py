"""Strongly connected components, and the removed edges that connected them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .view import REMOVED, View

_MOST = 500  # largest number of components and of edges that are listed
_SAMPLE = 12


def components(view: View) -> dict[str, Any]:
    """List components by size, and the removed edges between different components."""
    sizes = np.bincount(view.parts) if len(view) else np.zeros(0, np.int64)
    order = np.argsort(view.parts, kind="stable")
    begin = np.cumsum(sizes) - sizes
    listed = [
        {"id": part, "size": int(sizes[part]), "sample": order[begin[part] :][: min(_SAMPLE, sizes[part])].tolist()}
        for part in range(min(len(sizes), _MOST))
    ]
    cut = _cuts(view, sizes)
    return {
        "version": view.version,
        "components": listed,
        "total": len(sizes),
        "cut": [
            {
                "edge": view.edge_facts(edge),
                "from_component": int(view.parts[view.table.source[edge]]),
                "to_component": int(view.parts[view.table.target[edge]]),
            }
            for edge in cut[:_MOST].tolist()
        ],
        "cut_total": len(cut),
        "text": _text(sizes, len(cut)),
    }


def _cuts(view: View, sizes: Any) -> Any:
    """Removed edges between components, ordered by the size of the smaller component, largest first."""
    edges = np.flatnonzero(view.state == REMOVED)
    one, other = view.parts[view.table.source[edges]], view.parts[view.table.target[edges]]
    joined = one != other
    edges, smaller = edges[joined], np.minimum(sizes[one[joined]], sizes[other[joined]])
    return edges[np.argsort(-smaller, kind="stable")]


def _text(sizes: Any, cuts: int) -> str:
    if not len(sizes):
        return "The memory has no nodes yet."
    if len(sizes) == 1:
        return f"The graph is strongly connected: each of the {sizes[0]:,} nodes has a path to every other."
    alone = int(np.count_nonzero(sizes == 1))
    rest = f"{len(sizes) - 1:,} others with {int(sizes[1:].sum()):,} nodes, {alone:,} of them single nodes"
    joined = f"{cuts:,} removed edges connected two of them." if cuts else "No removed edge connected two of them."
    return f"The largest strongly connected component has {sizes[0]:,} nodes; there are {rest}. {joined}"
