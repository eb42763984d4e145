"""The search box: nodes and edges that match a query."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from sgm.memory.snapshot import node_values

from .view import View

_MOST = 200
_LONGEST = 200  # characters of a query
_EDGE = re.compile(r"(\d{1,12})\s*(?:→|->|,|\s)\s*(\d{1,12})")
_VALUE = re.compile(r"(.{1,100}?)\s*=\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")
HELP = "Type a node (12), an edge (12 40, 12→40) or an attribute and its value (heading=0.5)."


def find(view: View, text: str) -> dict[str, Any]:
    """Find the nodes and edges that a query names."""
    query = text.strip()[:_LONGEST]
    if query.isascii() and query.isdecimal():
        return _nodes(view, query)
    if matched := _EDGE.fullmatch(query):
        return _edges(view, int(matched[1]), int(matched[2]))
    if matched := _VALUE.fullmatch(query):
        return _by_value(view, matched[1], float(matched[2]))
    return _found(view, [], [], HELP)


def _found(view: View, nodes: list[int], edges: list[list[int]], text: str) -> dict[str, Any]:
    return {"version": view.version, "nodes": nodes, "edges": edges, "text": text}


def _nodes(view: View, query: str) -> dict[str, Any]:
    if len(query) > 12 or int(query) >= len(view):
        return _found(view, [], [], f"There is no node {query}: this memory has {len(view):,}, numbered from 0.")
    return _found(view, [int(query)], [], f"Node {int(query)}.")


def _edges(view: View, u: int, v: int) -> dict[str, Any]:
    if max(u, v) >= len(view):
        return _found(view, [], [], f"There is no node {max(u, v)}: this memory has {len(view):,}, numbered from 0.")
    edges = [[a, b] for a, b in ((u, v), (v, u)) if a * len(view) + b in view.keys[_near(view, a, b)]]
    text = f"{len(edges)} edges between nodes {u} and {v}." if edges else f"No edge connects nodes {u} and {v}."
    return _found(view, [u, v], edges, text)


def _near(view: View, u: int, v: int) -> slice:
    place = int(np.searchsorted(view.keys, u * len(view) + v))
    return slice(place, place + 1)


def _by_value(view: View, name: str, value: float) -> dict[str, Any]:
    values = node_values(view.memory, name)
    if values is None:
        held = ", ".join(view.memory.attributes) or "none"
        return _found(view, [], [], f"There is no attribute {name!r}; this memory has {held}.")
    if values.ndim != 1:
        return _found(
            view, [], [], f"The attribute {name!r} has several numbers per node: only attributes with one can be found."
        )
    near = np.isclose(values.astype(np.float64), value, rtol=1e-3, atol=1e-6)
    nodes = np.flatnonzero(near)
    more = f", the first {_MOST} are shown" if len(nodes) > _MOST else ""
    return _found(view, nodes[:_MOST].tolist(), [], f"{len(nodes):,} nodes have {name} {value:g}{more}.")
