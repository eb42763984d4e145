"""The state of the memory after any stored event, for the Time screen."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from sgm.errors import InputError
from sgm.memory.snapshot import EdgeTable, event_range, first_edge_table

from .answers import graph_arrays
from .container import short
from .view import GUARDED, View, prices, states

Arrays = dict[str, NDArray[Any]]
NOWHERE = 0xFFFFFFFF  # component of a node that does not exist yet


def check(view: View, event: int) -> int:
    """Return the event; InputError if the memory cannot be shown after it."""
    first, last = event_range(view.memory)
    if not first <= event <= last:
        raise InputError(f"event {event} cannot be shown: there are events {first} to {last}")
    return event


def past(view: View, event: int) -> View:
    """View of the memory after an event, with the current positions of nodes."""
    memory = view.memory.at(check(view, event))
    return View(memory, view.version, view.axes, view.places)


def state_arrays(view: View, event: int) -> Arrays:
    """State after an event: evidence, state and cost of edges, and components of nodes.

    Arrays are over the edges that are drawn now. If the edges were different at the event, arrays are over those edges
    and include their ends and weights.
    """
    check(view, event)
    first = _first(view)
    if first is None:
        return _looked_up(view, past(view, event))
    then = _replayed(view, first, event)
    drawn = view.drawn
    return {
        "successes": then.successes[drawn].astype(np.uint32),
        "failures": then.failures[drawn].astype(np.uint32),
        "state": states(then)[drawn],
        "price": short(prices(view.memory, then)[drawn]),
        "component": parts(len(view), then).astype(np.uint32),
    }


def _first(view: View) -> EdgeTable | None:
    """Edges before the first stored event; None if edges were added or weights changed since: no replay then."""
    if "first" not in view.cache:
        view.cache["first"] = first_edge_table(view.memory)
    found: EdgeTable | None = view.cache["first"]
    return found


def _replayed(view: View, first: EdgeTable, event: int) -> EdgeTable:
    """Edges after an event, by replaying the events until then on the first edges."""
    rows = view.memory.events()
    until = int(np.searchsorted(rows.sequence, event, side="right"))
    kind = rows.kind[:until]
    edge = np.searchsorted(view.keys, rows.source[:until] * len(view) + rows.target[:until])
    count = len(view.keys)
    removed, guarded = first.removed.copy(), first.guarded.copy()
    # If an edge occurs several times, the last assignment counts.
    fate = np.isin(kind, ["removed", "restored"])
    removed[edge[fate]] = kind[fate] == "removed"
    kept = np.isin(kind, ["guarded", "reached", "removed"])
    guarded[edge[kept]] = kind[kept] == "guarded"
    return dataclasses.replace(
        first,
        successes=first.successes + np.bincount(edge[kind == "reached"], minlength=count).astype(np.int32),
        failures=first.failures + np.bincount(edge[kind == "failed"], minlength=count).astype(np.int32),
        removed=removed,
        guarded=guarded,
    )


def _looked_up(view: View, then: View) -> Arrays:
    """State of a memory that had fewer nodes, other edges or other weights, over its own edges."""
    arrays = graph_arrays(then)
    for name in ("position", "visits", "age"):  # nodes keep their current look
        del arrays[name]
    component = np.full(len(view), NOWHERE, np.uint32)
    component[: len(then)] = arrays["component"]
    return {**arrays, "component": component}


def parts(nodes: int, table: EdgeTable) -> NDArray[np.int64]:
    """(V,) strongly connected component of each node over the edges in use; 0 is the largest."""
    stands = states(table) <= GUARDED
    ends = table.target[stands], table.source[stands]
    graph = csr_array((np.ones(len(ends[0])), ends), shape=(nodes, nodes))
    labels = connected_components(graph, connection="strong")[1]
    order = np.argsort(-np.bincount(labels, minlength=1), kind="stable")
    return np.argsort(order, kind="stable")[labels]
