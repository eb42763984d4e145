"""Copy a graph without some of its edges, as if they had never been made."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sgm.errors import InputError

from .arrays import Bools
from .graph import Graph


def without(graph: Graph, source: ArrayLike, target: ArrayLike, k: int | None) -> Graph:
    """Copy a graph without its evidence and without the edges from (m,) sources to (m,) targets.

    In a reversible graph the opposite edges are left out too. InputError if one of the edges does not exist.
    """
    gone = _named(graph, source, target)
    if graph.reversible is not None:
        gone |= gone[graph.partner()]
    kept = np.flatnonzero(~gone)
    copy = Graph()
    columns = (graph.source, graph.target, graph.distance, graph.temporal)
    copy.append(graph.nodes, *(column.values[kept] for column in columns))
    copy.set_filter(k)
    copy.set_reversible(graph.reversible)
    return copy


def _named(graph: Graph, source: ArrayLike, target: ArrayLike) -> Bools:
    """(E,) bool: whether each edge is one of these; InputError if one of these does not exist."""
    one, other = np.asarray(source), np.asarray(target)
    if one.shape != other.shape or one.ndim != 1 or (one.size and not {one.dtype.kind, other.dtype.kind} <= {"i", "u"}):
        raise InputError(
            f"sources have shape {one.shape} and dtype {one.dtype}, targets {other.shape} and {other.dtype}: expected "
            "two lists of node numbers, of equal length"
        )
    size = max(graph.nodes, 1)
    known = graph.source.values.astype(np.int64) * size + graph.target.values
    asked = one.astype(np.int64) * size + other.astype(np.int64)
    inside = (one >= 0) & (one < size) & (other >= 0) & (other < size)
    missing = np.flatnonzero(~inside | ~np.isin(asked, known))
    if len(missing):
        first = missing[0]
        raise InputError(f"there is no edge from {one[first]} to {other[first]}: see memory.edges(filtered=False)")
    named: Bools = np.isin(known, asked)
    return named
