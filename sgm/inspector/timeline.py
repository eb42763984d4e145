"""The memory after any event that is kept: what the time scrubber shows."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from sgm.errors import InputError
from sgm.memory.snapshot import EdgeTable, event_range, first_edge_table

from .container import short
from .view import ABSENT, GUARDED, View, prices, states

Arrays = dict[str, NDArray[Any]]
NOWHERE = 0xFFFFFFFF  # component of a node that is not there yet


def check(view: View, event: int) -> int:
    """An event after which the memory can be shown; InputError if there is none such."""
    first, last = event_range(view.memory)
    if not first <= event <= last:
        raise InputError(f"event {event} cannot be shown: there are events {first} to {last}")
    return event


def past(view: View, event: int) -> View:
    """The memory as it was after an event, with nodes where they are drawn now."""
    memory = view.memory.at(check(view, event))
    return View(memory, view.version, view.axes, view.places)


def state_arrays(view: View, event: int) -> Arrays:
    """What changes with time, over the edges that are drawn now: evidence, state, price; and components of nodes."""
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
    """The edges before the events kept; None if edges were added or re-weighted since: replaying is not enough then."""
    if "first" not in view.cache:
        view.cache["first"] = first_edge_table(view.memory)
    found: EdgeTable | None = view.cache["first"]
    return found


def _replayed(view: View, first: EdgeTable, event: int) -> EdgeTable:
    """The edges after an event: the evidence of before, and the events until then in order."""
    rows = view.memory.events()
    until = int(np.searchsorted(rows.sequence, event, side="right"))
    kind = rows.kind[:until]
    edge = np.searchsorted(view.keys, rows.source[:until] * len(view) + rows.target[:until])
    count = len(view.keys)
    removed, guarded = first.removed.copy(), first.guarded.copy()
    # Where an edge is there several times the last value stays.
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
    """The state of a memory that had fewer nodes, fewer edges or other weights."""
    drawn = view.drawn
    source, target = view.table.source[drawn], view.table.target[drawn]
    keys = source * len(then) + target
    place = np.minimum(np.searchsorted(then.keys, keys), max(0, len(then.keys) - 1))
    there = (source < len(then)) & (target < len(then))
    there &= (then.keys[place] == keys) if len(then.keys) else False
    state = np.full(len(drawn), ABSENT, np.uint8)
    state[there] = np.minimum(then.state[place[there]], ABSENT)  # what the filter left out then was not there either
    arrays: Arrays = {"state": state}
    for name, values, dtype in (
        ("successes", then.table.successes, np.uint32),
        ("failures", then.table.failures, np.uint32),
        ("price", short(then.price), np.float32),
    ):
        arrays[name] = np.zeros(len(drawn), dtype)
        arrays[name][there] = values[place[there]]
    arrays["component"] = np.full(len(view), NOWHERE, np.uint32)
    arrays["component"][: len(then)] = then.parts
    return arrays


def parts(nodes: int, table: EdgeTable) -> NDArray[np.int64]:
    """(V,) the strongly connected component of each node over the edges that stand; 0 is the largest."""
    stands = states(table) <= GUARDED
    ends = table.target[stands], table.source[stands]
    graph = csr_array((np.ones(len(ends[0])), ends), shape=(nodes, nodes))
    labels = connected_components(graph, connection="strong")[1]
    order = np.argsort(-np.bincount(labels, minlength=1), kind="stable")
    return np.argsort(order, kind="stable")[labels]
