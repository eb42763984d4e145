"""Comparison of two memories of one stream: edges added, removed, or with a changed cost in the second."""

from __future__ import annotations

from typing import Any

import numpy as np

from .view import GUARDED, View

MOST = 2000  # largest number of edges listed of each kind


def compare(before: View, after: View, names: tuple[str, str]) -> dict[str, Any]:
    """List the edges that differ between two memories; if they are not of one stream, explain why."""
    reason = why_not(before, after, names)
    if reason:
        empty: dict[str, Any] = {"added": [], "removed": [], "repriced": [], "counts": {}}
        return {"version": before.version, "same_stream": False, "text": reason, **empty}
    nodes = max(len(before), len(after))
    old, new = _standing(before, nodes), _standing(after, nodes)
    added, removed = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    repriced = [key for key in sorted(old.keys() & new.keys()) if old[key] != new[key]]
    counts = {
        "added": len(added),
        "removed": len(removed),
        "repriced": len(repriced),
        "nodes": len(after) - len(before),
    }
    return {
        "version": before.version,
        "same_stream": True,
        "text": _text(counts, names),
        "added": [list(divmod(key, nodes)) for key in added[:MOST]],
        "removed": [list(divmod(key, nodes)) for key in removed[:MOST]],
        "repriced": [[*divmod(key, nodes), old[key], new[key]] for key in repriced[:MOST]],
        "counts": counts,
    }


def why_not(before: View, after: View, names: tuple[str, str]) -> str:
    """Explain why two memories cannot be compared edge by edge; "" if they can."""
    one, other = before.memory, after.memory
    shared, seen = min(len(one), len(other)), min(len(one.assignment), len(other.assignment))
    differ = np.flatnonzero(one.nodes[:shared] != other.nodes[:shared])
    begin = (
        f"{names[0]} and {names[1]} are not memories of one stream of observations, so their nodes are not the same: "
    )
    if not shared:
        return begin + "one of them is empty."
    if len(differ):
        node = int(differ[0])
        return (
            begin + f"node {node} keeps observation {one.nodes[node]:,} in one and {other.nodes[node]:,} in the other."
        )
    if (one.assignment[:seen] != other.assignment[:seen]).any():
        place = int(np.flatnonzero(one.assignment[:seen] != other.assignment[:seen])[0])
        return (
            f"{begin}observation {place:,} went to node {one.assignment[place]} in one and "
            f"{other.assignment[place]} in the other."
        )
    vectors = one.embeddings[:shared], other.embeddings[:shared]
    if vectors[0].shape != vectors[1].shape or not np.allclose(*vectors, rtol=1e-3, atol=1e-5):
        return begin + "the embeddings of their nodes differ."
    return ""


def _standing(view: View, nodes: int) -> dict[int, float]:
    """Cost of each edge in use, by source · nodes + target."""
    stands = np.flatnonzero(view.state <= GUARDED)
    keys = view.table.source[stands] * nodes + view.table.target[stands]
    return dict(zip(keys.tolist(), view.price[stands].tolist(), strict=True))


def _text(counts: dict[str, int], names: tuple[str, str]) -> str:
    changed = f"{counts['added']:,} edges added, {counts['removed']:,} removed, {counts['repriced']:,} changed in cost"
    grown = f", {counts['nodes']:+,} nodes" if counts["nodes"] else ""
    capped = max(counts["added"], counts["removed"], counts["repriced"]) > MOST
    more = f" The first {MOST:,} of each are listed." if capped else ""
    return f"From {names[0]} to {names[1]}: {changed}{grown}.{more}"
