"""Why a plan is longer than the shortest path by weight, split into causes.

Two paths are compared. The *shortest* has the least weight over all edges that pass the k-nearest filter, including
removed ones, as if every edge worked at the first try. The *chosen* path is the plan, which has the least cost over the
edges in use. The difference is the weight of the chosen path minus that of the shortest, in steps; it is never
negative.

The causes add up to the difference exactly, and none is negative:

1. Removed edges. As long as the shortest path contains a removed edge, that edge is excluded and the shortest path is
   computed again; the additional steps are attributed to that edge. After three such edges, all other removed edges are
   excluded together. The result is the shortest path over edges in use.
2. Costs. If the plan differs from that path, the plan has a lower cost. The extra cost of edges beyond their weight is
   added up over the edges that only one of the two paths has, by kind: edges that the guard keeps, that failed, that
   were never tried, or that always worked but were tried rarely. The remaining steps are divided among these kinds in
   proportion to how much more each kind adds to the shorter path than to the plan. Each kind is represented by its most
   expensive edge.

If both paths have the same cost, that is the cause ("weight"). Weights of paths and shares are rounded to 2⁻²⁰ steps,
so that sums are exact in floating point.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from sgm.errors import NoPath

from .view import View, finite

Floats = NDArray[np.float64]
KINDS = ("removed", "guarded", "failed", "untried", "tried")
ONE_BY_ONE = 3  # removed edges that are excluded one by one
_GRID = 2.0**20
_NEARLY = 1e-6  # costs that differ by less are equal, steps


class Ways:
    """Shortest paths over the edges that pass the k-nearest filter, with changing costs."""

    def __init__(self, view: View) -> None:
        """Start with the weight of every edge as its cost."""
        self.edges = np.flatnonzero(view.table.kept)
        self.source, self.target = view.table.source[self.edges], view.table.target[self.edges]
        self.weight = view.table.weight[self.edges]
        self.price = view.price[self.edges]
        self.cost = self.weight.copy()
        self.kind = _kinds(view)[self.edges]
        self._start = np.searchsorted(self.source, np.arange(len(view) + 1))
        self._keys = view.keys[self.edges]
        self._nodes = len(view)

    def best(self, start: int, goal: int) -> list[int] | None:
        """Nodes of the path with the least current cost; None if there is no path."""
        matrix = csr_array((self.cost, self.target, self._start), shape=(self._nodes, self._nodes))
        steps, before = dijkstra(matrix, indices=start, return_predecessors=True)
        if not math.isfinite(steps[goal]):
            return None
        nodes = [goal]
        while nodes[-1] != start:
            nodes.append(int(before[nodes[-1]]))
        return nodes[::-1]

    def along(self, nodes: list[int]) -> NDArray[np.int64]:
        """Indices of the edges of a path."""
        ends = np.asarray(nodes, np.int64)
        return np.searchsorted(self._keys, ends[:-1] * self._nodes + ends[1:])

    def length(self, nodes: list[int]) -> float:
        """Weight of a path, steps."""
        return rounded(self.weight[self.along(nodes)])

    def removed_on(self, nodes: list[int]) -> NDArray[np.int64]:
        """Removed edges of a path that are not excluded yet."""
        edges = self.along(nodes)
        return edges[np.isinf(self.price[edges]) & np.isfinite(self.cost[edges])]


def rounded(weights: Floats) -> float:
    """Sum of weights, rounded to 2⁻²⁰ steps."""
    return round(math.fsum(weights.tolist()) * _GRID) / _GRID


def _kinds(view: View) -> NDArray[np.int64]:
    """(E,) index in KINDS of the reason why an edge costs more than its weight; −1: it does not."""
    table = view.table
    tried = table.successes + table.failures > 0
    kind = np.where(
        tried, np.where(table.failures > 0, KINDS.index("failed"), KINDS.index("tried")), KINDS.index("untried")
    )
    kind[table.guarded] = KINDS.index("guarded")
    kind[view.price == table.weight] = -1
    kind[table.removed] = KINDS.index("removed")
    return kind


def why(view: View, start: int, goal: int) -> dict[str, Any]:
    """Compare the plan with the shortest path, and explain the difference."""
    view.node(start), view.node(goal)
    ways = Ways(view)
    shortest = ways.best(start, goal)
    if shortest is None:
        text = f"There is no path from node {start} to node {goal}, not even over removed edges."
        return _answer(view, ways, None, None, [], None, text)
    try:
        chosen = view.memory.plan_nodes(start, goal).nodes.tolist()
    except NoPath:
        causes = [_cause(view, ways, int(edge), "removed", None, 0) for edge in ways.removed_on(shortest)]
        text = f"There is no plan from node {start} to node {goal}: the shortest path needs edges that were removed."
        return _answer(view, ways, None, shortest, causes, None, text)
    difference = ways.length(chosen) - ways.length(shortest)
    causes = _causes(view, ways, shortest, chosen)
    return _answer(view, ways, chosen, shortest, causes, difference, _text(view, ways, chosen, shortest, difference))


def _causes(view: View, ways: Ways, shortest: list[int], chosen: list[int]) -> list[dict[str, Any]]:
    """Causes of the difference between the shortest path and the chosen one."""
    if shortest == chosen:
        return []
    causes, way = _removals(view, ways, shortest)
    return causes if way == chosen else [*causes, *_charges(view, ways, way, chosen)]


def _removals(view: View, ways: Ways, way: list[int]) -> tuple[list[dict[str, Any]], list[int]]:
    """A cause for each removed edge that makes the path longer, and the shortest path without removed edges."""
    causes: list[dict[str, Any]] = []
    while len(gone := ways.removed_on(way)):
        others = 0
        if len(causes) < ONE_BY_ONE:
            ways.cost[gone[0]] = np.inf
        else:
            left = np.isinf(ways.price) & np.isfinite(ways.cost)
            others = int(np.count_nonzero(left)) - 1
            ways.cost[left] = np.inf
        after = ways.best(way[0], way[-1])
        assert after is not None  # there is a plan, and it has no removed edge
        causes.append(_cause(view, ways, int(gone[0]), "removed", ways.length(after) - ways.length(way), others))
        way = after
    return causes, way


def _charges(view: View, ways: Ways, way: list[int], chosen: list[int]) -> list[dict[str, Any]]:
    """A cause for each kind of extra cost that makes a shorter path more expensive than the chosen one."""
    longer = ways.length(chosen) - ways.length(way)
    own, other = set(ways.along(way).tolist()), set(ways.along(chosen).tolist())
    against, spared = np.array(sorted(own - other), np.int64), np.array(sorted(other - own), np.int64)
    charge = ways.price - ways.weight
    more: dict[int, float] = {}
    for kind in range(1, len(KINDS)):
        excess = charge[against[ways.kind[against] == kind]].sum() - charge[spared[ways.kind[spared] == kind]].sum()
        if excess > _NEARLY:
            more[kind] = float(excess)
    if not more:
        return [_cause(view, ways, int(spared[0]), "weight", longer, 0)]
    causes = []
    for kind, steps in _shared(longer, more).items():
        edges = against[ways.kind[against] == kind]
        edges = edges[np.argsort(-charge[edges], kind="stable")]
        causes.append(_cause(view, ways, int(edges[0]), KINDS[kind], steps, len(edges) - 1))
    return causes


def _shared(steps: float, parts: dict[int, float]) -> dict[int, float]:
    """Divide steps in proportion to parts, rounded; the largest part gets the rest, so that the sum is exact."""
    total, largest = sum(parts.values()), max(parts, key=lambda kind: parts[kind])
    shares = {kind: math.floor(steps * part / total * _GRID) / _GRID for kind, part in parts.items()}
    shares[largest] = steps - sum(share for kind, share in shares.items() if kind != largest)
    return shares


def _cause(view: View, ways: Ways, place: int, kind: str, steps: float | None, others: int) -> dict[str, Any]:
    edge = view.edge_facts(int(ways.edges[place]))
    return {"kind": kind, "edge": edge, "steps": steps, "others": others, "text": _because(edge, kind, steps, others)}


def _because(edge: dict[str, Any], kind: str, steps: float | None, others: int) -> str:
    name = f"{edge['source']}→{edge['target']}"
    tries = edge["successes"] + edge["failures"]
    price = (
        "" if edge["price"] is None else f", so its cost is {edge['price']:.1f} steps instead of {edge['weight']:.1f}"
    )
    reason = {
        "removed": f"edge {name} was removed",
        "guarded": f"edge {name} failed in {edge['failures']} of {tries} tries and only the guard keeps it{price}",
        "failed": f"edge {name} failed in {edge['failures']} of {tries} tries{price}",
        "untried": f"edge {name} was never tried{price}",
        "tried": f"edge {name} worked in all {tries} tries, which is not yet certain{price}",
        "weight": f"two paths have the same cost, and the planner chooses the one over {name}",
    }[kind]
    if others:
        reason += (
            f" (and {others:,} more {kind} edges)" if kind == "removed" else f" (and {others:,} more on this path)"
        )
    if steps is None:
        return f"{reason[:1].upper()}{reason[1:]}."
    return f"{reason[:1].upper()}{reason[1:]}: {steps:+.1f} steps."


def _way(view: View, nodes: list[int] | None) -> dict[str, Any] | None:
    if nodes is None:
        return None
    edges = view.along(nodes)
    return {
        "nodes": nodes,
        "price": finite(view.price[edges].sum()),
        "weight": rounded(view.table.weight[edges]),
        "legs": [view.edge_facts(edge) for edge in edges.tolist()],
        "images": [view.image_url(node) for node in nodes],
    }


def _answer(
    view: View,
    ways: Ways,
    chosen: list[int] | None,
    shortest: list[int] | None,
    causes: list[dict[str, Any]],
    difference: float | None,
    text: str,
) -> dict[str, Any]:
    return {
        "version": view.version,
        "chosen": _way(view, chosen),
        "shortest": _way(view, shortest),
        "same": chosen is not None and chosen == shortest,
        "causes": causes,
        "difference": difference,
        "text": text,
    }


def _text(view: View, ways: Ways, chosen: list[int], shortest: list[int], difference: float) -> str:
    if chosen == shortest:
        return f"The plan is the shortest path: {ways.length(chosen):.1f} steps."
    price = float(view.price[view.along(shortest)].sum())
    paid = float(view.price[view.along(chosen)].sum())
    other = "cannot be taken, because edges on it were removed" if math.isinf(price) else f"costs {price:.1f}"
    return (
        f"The plan takes {ways.length(chosen):.1f} steps if every edge works at the first try, {difference:.1f} more "
        f"than the shortest path, and costs {paid:.1f}. The shortest path {other}."
    )
