"""Answers about the memory, a node, an edge, a plan and events, ready for JSON."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import NoPath
from sgm.memory.policies import Belief, Evidence, FirstFailure, ForeignPolicy, SecondFailure
from sgm.memory.snapshot import event_range, node_values

from . import suspects
from .container import short
from .view import COMPUTED, FILTERED, GUARDED, REMOVED, View, finite

MOST_LISTED = 200  # observations of a node, events of an edge
_MOST_NUMBERS = 16  # largest size of an attribute whose numbers are shown


def summary(view: View) -> dict[str, Any]:
    """Describe the memory: counts, settings, layout, limits and warnings."""
    memory, table = view.memory, view.table
    first, last = event_range(memory)
    sizes = np.bincount(view.parts) if len(view) else np.zeros(1, np.int64)
    return {
        "version": view.version,
        "nodes": len(view),
        "edges": int(np.count_nonzero(view.state <= GUARDED)),
        "removed": int(np.count_nonzero(table.removed)),
        "guarded": int(np.count_nonzero(view.state == GUARDED)),
        "observations": len(memory.assignment),
        "attributes": _attributes(view),
        "settings": memory.settings.asdict(),
        "policy": memory.policy.asdict(),
        "layout": layout(view),
        "images": view.images is not None,
        "own_motion": bool((table.walked > 0).any()),
        "events": {"first": first, "last": last},
        "components": len(sizes) if len(view) else 0,
        "largest_component": int(sizes[0]),
        "limits": limits(view),
        "warnings": warnings(view),
    }


def _attributes(view: View) -> list[dict[str, Any]]:
    found = []
    for name in view.memory.attributes:
        values = node_values(view.memory, name)
        if values is not None:
            found.append({"name": name, "shape": list(values.shape[1:]), "dtype": str(values.dtype)})
    return found


def layout(view: View) -> dict[str, Any]:
    """Describe the source of the positions on the map."""
    attribute = view.places.attribute
    if attribute is None:
        return {"kind": "computed", "attribute": None, "text": COMPUTED}
    return {"kind": "positions", "attribute": attribute, "text": ""}


def limits(view: View) -> list[str]:
    """Describe what the page leaves out, a sentence each."""
    found = []
    every = int(np.count_nonzero(view.table.kept | view.table.removed))
    if len(view.drawn) < every:
        found.append(
            f"{len(view.drawn):,} of {every:,} edges are drawn: all that were tried or removed, then the shortest "
            "edges of each node. Plans, why, suspects and components use all edges."
        )
    if view.places.unplaced:
        found.append(f"{view.places.unplaced:,} nodes have no position and are drawn between their neighbours.")
    first, _ = event_range(view.memory)
    if first:
        found.append(f"The first {first:,} events are folded into the evidence and cannot be shown one by one.")
    return found


def warnings(view: View) -> list[str]:
    """Warnings about the memory, a sentence each."""
    found = [f"{text[:1].upper()}{text[1:]}" for text in view.memory.stats().warnings]
    if isinstance(view.memory.policy, ForeignPolicy):
        name = str(view.memory.policy.asdict().get("name"))[:80]
        found.append(f"The cleanup policy {name!r} is not part of this package: costs are weights here.")
    return found


# -- the map -----------------------------------------------------------------------------------------------------


def graph_arrays(view: View) -> dict[str, NDArray[Any]]:
    """Arrays over nodes and drawn edges, for the page."""
    drawn, table = view.drawn, view.table
    return {
        "position": short(view.places.xy[: len(view)], 16),
        "component": view.parts.astype(np.uint32),
        "visits": view.visits.astype(np.uint32),
        "age": view.memory.nodes.astype(np.uint32),
        "source": table.source[drawn].astype(np.uint32),
        "target": table.target[drawn].astype(np.uint32),
        "weight": short(table.weight[drawn]),
        "price": short(view.price[drawn]),
        "successes": table.successes[drawn].astype(np.uint32),
        "failures": table.failures[drawn].astype(np.uint32),
        "state": view.state[drawn],
    }


# -- a node ------------------------------------------------------------------------------------------------------


def node(view: View, number: int) -> dict[str, Any]:
    """Describe a node: position, attributes, merged observations and edges."""
    view.node(number)
    table = view.table
    shown = view.state != FILTERED
    merged = np.flatnonzero(view.memory.assignment == number)
    return {
        "version": view.version,
        "node": number,
        "stream": int(view.memory.nodes[number]),
        "visits": int(view.visits[number]),
        "component": int(view.parts[number]),
        "position": [float(value) for value in view.places.xy[number]],
        "attributes": {name: _shown(view, name, number) for name in view.memory.attributes},
        "image": view.image_url(number),
        "observations": merged[:MOST_LISTED].tolist(),
        "in": [view.edge_facts(edge) for edge in np.flatnonzero(shown & (table.target == number)).tolist()],
        "out": [view.edge_facts(edge) for edge in np.flatnonzero(shown & (table.source == number)).tolist()],
    }


def _shown(view: View, name: str, number: int) -> Any:
    """Convert the value of an attribute to JSON; of large arrays only the shape."""
    values = node_values(view.memory, name)
    if values is None:
        return None
    value = values[number]
    if value.size > _MOST_NUMBERS:
        return {"shape": list(value.shape)}
    plain = [_plain(item) for item in np.ravel(value).tolist()]
    return plain[0] if not value.ndim else plain


def _plain(item: Any) -> Any:
    return finite(item) if isinstance(item, float) else item


# -- an edge -----------------------------------------------------------------------------------------------------


def edge(view: View, u: int, v: int) -> dict[str, Any]:
    """Describe an edge: evidence, state and its reason, events, suspicion."""
    place = view.edge(u, v)
    known, table = view.memory.evidence(u, v), view.table
    events = _events(view, u, v)
    removal = next((event for event in reversed(events) if event["kind"] == "removed"), None)
    removal = removal if known.removed_at is not None else None
    return {
        "version": view.version,
        **view.edge_facts(place),
        "removed_at": known.removed_at,
        "removed_event": removal and {"sequence": removal["sequence"], "time": removal["time"]},
        "rule": " ".join([rule(view, place, events), *_origin(view, place, known)]),
        "streak": known.streak,
        "guarded": known.guarded,
        "walked": bool(table.walked[place] > 0),
        "walked_steps": int(table.walked[place]) or None,
        "events": events[-MOST_LISTED:],
        "suspicion": suspects.of_edge(view, place),
        "images": [view.image_url(u), view.image_url(v)],
    }


def _events(view: View, u: int, v: int) -> list[dict[str, Any]]:
    rows = view.memory.events(u, v)
    return [
        {"sequence": number, "time": time, "kind": str(kind), "episode": episode if episode >= 0 else None}
        for number, time, kind, episode in zip(
            rows.sequence.tolist(), rows.time.tolist(), rows.kind.tolist(), rows.episode.tolist(), strict=True
        )
    ]


def rule(view: View, place: int, events: list[dict[str, Any]]) -> str:
    """Explain why an edge is in use, guarded or removed, in a sentence or two."""
    table, state = view.table, int(view.state[place])
    tries = int(table.successes[place] + table.failures[place])
    worked = f"{table.successes[place]} of {tries} tries reached its target"
    if state == FILTERED:
        return f"Left out by the k-nearest filter: its source has {view.memory.settings.k} shorter edges."
    if state == REMOVED:
        return _why_removed(view, place, events)
    if state == GUARDED:
        return (
            f"Guarded: {_gave_up(view, place)}, but without it the largest strongly connected component would shrink. "
            f"It stays in use, at a cost of the expected steps to get through it; {worked}."
        )
    return f"In use: {worked}." if tries else "In use: never tried."


def _origin(view: View, place: int, known: Evidence) -> list[str]:
    """Explain why an edge exists, if not because its ends are near; a sentence each."""
    found = []
    if known.spare:
        found.append(
            "It is not among the k nearest edges of its source: the guard of cleanup or memory.bridge added it."
        )
    if view.table.backwards[place]:
        found.append("It is the reverse of another edge: this memory is reversible.")
    return found


def _why_removed(view: View, place: int, events: list[dict[str, Any]]) -> str:
    removal = next((number for number in range(len(events) - 1, -1, -1) if events[number]["kind"] == "removed"), None)
    if removal is None:
        return "Removed before the first event in the log."
    at = f"event {events[removal]['sequence']:,}"
    if by_hand(events, removal):
        return f"Removed by hand, {at}."
    return f"Removed, {at}: {_gave_up(view, place)}."


def by_hand(events: list[dict[str, Any]], removal: int) -> bool:
    """Whether an edge was removed by hand: a removal by cleanup directly follows the event of the failed try."""
    if not removal:
        return True
    before, event = events[removal - 1], events[removal]
    follows = before["sequence"] == event["sequence"] - 1 and before["time"] == event["time"]
    return not (follows and before["kind"] == "failed")


def _gave_up(view: View, place: int) -> str:
    policy = view.memory.policy
    successes, failures = int(view.table.successes[place]), int(view.table.failures[place])
    if isinstance(policy, SecondFailure) and failures < 2:
        return "a try failed, and an earlier policy rejected the edge; the current policy is second-failure"
    if isinstance(policy, FirstFailure):
        return "the policy first-failure rejected it, because a try failed"
    if isinstance(policy, SecondFailure):
        return "the policy second-failure rejected it, because it failed twice without a success between"
    if isinstance(policy, Belief):
        mean = (1 + successes) / (2 + successes + failures)
        if mean >= policy.threshold and not successes:
            return "a try failed, and an earlier policy rejected the edge; the current policy is belief"
        return (
            f"the policy belief rejected it, because the mean probability that it works, now {mean:.2f}, fell below "
            f"{policy.threshold:g}"
        )
    return f"the policy {str(policy.asdict().get('name'))[:80]} rejected it after a failed try"


# -- a plan ------------------------------------------------------------------------------------------------------


def plan(view: View, start: int, goal: int) -> dict[str, Any]:
    """Describe the plan of `memory.plan_nodes`: its nodes, cost and edges; or why there is no path."""
    ends = {"version": view.version, "from": view.node(start), "to": view.node(goal)}
    try:
        found = view.memory.plan_nodes(start, goal)
    except NoPath:
        return {**ends, "error": f"No path leads from node {start} to node {goal}: {_cut(view, start, goal)}."}
    nodes = found.nodes.tolist()
    return {
        **ends,
        "nodes": nodes,
        "cost": found.cost,
        "steps": float(found.steps.sum()),
        "legs": [view.edge_facts(edge) for edge in view.along(nodes).tolist()],
        "images": [view.image_url(node) for node in nodes],
    }


def _cut(view: View, start: int, goal: int) -> str:
    one, other = int(view.parts[start]), int(view.parts[goal])
    sizes = np.bincount(view.parts)
    return (
        f"they are in strongly connected components {one} ({sizes[one]:,} nodes) and {other} ({sizes[other]:,} nodes), "
        "and no edges in use connect them in this direction"
    )


# -- events ------------------------------------------------------------------------------------------------------


def events(view: View, after: int, limit: int) -> dict[str, Any]:
    """List at most `limit` events of edges after event `after`."""
    first, last = event_range(view.memory)
    rows = view.memory.events()
    begin = int(np.searchsorted(rows.sequence, after, side="right"))
    columns = [column[begin : begin + limit].tolist() for column in rows]
    names = ("sequence", "time", "source", "target", "kind", "episode")
    listed = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    for event in listed:
        event["episode"] = event["episode"] if event["episode"] >= 0 else None
    return {"version": view.version, "events": listed, "first": first, "last": last}
