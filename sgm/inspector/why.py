"""Why not the shorter way: what makes the plan longer than the shortest way by weight, cause by cause.

Two ways are compared. The *shortest* has the least weight over all edges of the filter, removed ones included, as if every
edge worked at once. The *chosen* one is the plan: least price over the edges that stand. The difference is how much longer
the plan is: the weight of the chosen way minus that of the shortest, steps, never negative.

Causes add up to it exactly. Begin with the shortest way. Take one thing into account that speaks against an edge on it
(that it was removed, that the guard re-priced it, that it failed, that it was never tried, that it works only mostly), find
the best way again, and the steps by which it became longer are due to that edge. Go on until everything that speaks against
edges counts: then the best way is the plan. Kinds count one after the other in this order, and within a kind the edge that
costs most counts first; from the fourth edge on all others of the kind count together. Where two ways cost the same, and the
planner takes the longer one, that is a cause too ("weight"). Later causes may shorten the way again: their steps are
negative.

Weights of ways are rounded to 2⁻²⁰ steps, so that sums are exact in floating point.
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
ONE_BY_ONE = 3  # edges of a kind that count by themselves
_GRID = 2.0**20


class Ways:
    """Shortest ways over the edges of the filter, at prices that change."""

    def __init__(self, view: View) -> None:
        """Begin with every edge at its weight."""
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
        """The nodes of the cheapest way now; None if there is none."""
        matrix = csr_array((self.cost, self.target, self._start), shape=(self._nodes, self._nodes))
        steps, before = dijkstra(matrix, indices=start, return_predecessors=True)
        if not math.isfinite(steps[goal]):
            return None
        nodes = [goal]
        while nodes[-1] != start:
            nodes.append(int(before[nodes[-1]]))
        return nodes[::-1]

    def along(self, nodes: list[int]) -> NDArray[np.int64]:
        """The places of a way's edges."""
        ends = np.asarray(nodes, np.int64)
        return np.searchsorted(self._keys, ends[:-1] * self._nodes + ends[1:])

    def length(self, nodes: list[int]) -> float:
        """The weight of a way, steps."""
        return rounded(self.weight[self.along(nodes)])

    def against(self, nodes: list[int], kind: int) -> NDArray[np.int64]:
        """The edges of a way that something of this kind speaks against and that are not charged yet, worst first."""
        edges = self.along(nodes)
        edges = edges[(self.kind[edges] == kind) & (self.cost[edges] != self.price[edges])]
        return edges[np.argsort(-self.price[edges], kind="stable")]

    def charge(self, edges: Any) -> None:
        """Let edges cost their price."""
        self.cost[edges] = self.price[edges]


def rounded(weights: Floats) -> float:
    """A sum of weights, to 2⁻²⁰ steps."""
    return round(math.fsum(weights.tolist()) * _GRID) / _GRID


def _kinds(view: View) -> NDArray[np.int64]:
    """(E,) what speaks against each edge: its place in KINDS; −1: nothing, its price is its weight."""
    table = view.table
    tried = table.successes + table.failures > 0
    kind = np.where(tried, np.where(table.failures > 0, KINDS.index("failed"), KINDS.index("tried")), KINDS.index("untried"))
    kind[table.guarded] = KINDS.index("guarded")
    kind[view.price == table.weight] = -1
    kind[table.removed] = KINDS.index("removed")
    return kind


def why(view: View, start: int, goal: int) -> dict[str, Any]:
    """The plan beside the shortest way, and what the difference is due to."""
    view.node(start), view.node(goal)
    ways = Ways(view)
    shortest = ways.best(start, goal)
    if shortest is None:
        text = f"No way leads from node {start} to node {goal}, not even through edges that were removed."
        return _answer(view, ways, None, None, [], None, text)
    try:
        chosen = view.memory.plan_nodes(start, goal).nodes.tolist()
    except NoPath:
        causes = [_cause(view, ways, int(edge), "removed", None, 0) for edge in ways.against(shortest, 0)]
        text = f"No plan leads from node {start} to node {goal}: the shortest way needs edges that were removed."
        return _answer(view, ways, None, shortest, causes, None, text)
    difference = ways.length(chosen) - ways.length(shortest)
    causes = _causes(view, ways, shortest, chosen)
    return _answer(view, ways, chosen, shortest, causes, difference, _text(view, ways, chosen, shortest, difference))


def _causes(view: View, ways: Ways, shortest: list[int], chosen: list[int]) -> list[dict[str, Any]]:
    """What leads from the shortest way to the chosen one, step by step."""
    causes: list[dict[str, Any]] = []
    way, start, goal = shortest, shortest[0], shortest[-1]
    for number, kind in enumerate(KINDS):
        for turn in range(ONE_BY_ONE + 1):
            against = ways.against(way, number)
            if not len(against):
                break
            others = 0
            if turn < ONE_BY_ONE:
                ways.charge(against[:1])
            else:
                others = int(np.count_nonzero((ways.kind == number) & (ways.cost != ways.price))) - 1
                ways.charge(ways.kind == number)
            after = ways.best(start, goal)
            assert after is not None  # the plan is a way at every price
            if after != way:
                steps = ways.length(after) - ways.length(way)
                causes.append(_cause(view, ways, int(against[0]), kind, steps, others))
            way = after
        ways.charge(ways.kind == number)
    if way != chosen:
        steps = ways.length(chosen) - ways.length(way)
        other = next(edge for edge in ways.along(chosen).tolist() if edge not in set(ways.along(way).tolist()))
        causes.append(_cause(view, ways, other, "weight", steps, 0))
    return causes


def _cause(view: View, ways: Ways, place: int, kind: str, steps: float | None, others: int) -> dict[str, Any]:
    edge = view.edge_facts(int(ways.edges[place]))
    return {"kind": kind, "edge": edge, "steps": steps, "others": others, "text": _because(edge, kind, steps, others)}


def _because(edge: dict[str, Any], kind: str, steps: float | None, others: int) -> str:
    name = f"{edge['source']}→{edge['target']}"
    tries = edge["successes"] + edge["failures"]
    price = "" if edge["price"] is None else f", so it counts as {edge['price']:.1f} steps instead of {edge['weight']:.1f}"
    reason = {
        "removed": f"edge {name} was removed",
        "guarded": f"edge {name} failed {edge['failures']} of {tries} tries and only the guard keeps it{price}",
        "failed": f"edge {name} failed {edge['failures']} of {tries} tries{price}",
        "untried": f"edge {name} was never tried{price}",
        "tried": f"edge {name} was reached in all of {tries} tries, which is not yet certain{price}",
        "weight": f"two ways cost the same, and the planner takes the one over {name}",
    }[kind]
    if others:
        reason += f"; with it {others:,} more edges of which the same is to be said"
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
        return f"The plan is the shortest way: {ways.length(chosen):.1f} steps."
    price = float(view.price[view.along(shortest)].sum())
    paid = float(view.price[view.along(chosen)].sum())
    other = "cannot be taken, because edges on it were removed" if math.isinf(price) else f"is priced at {price:.1f}"
    return (
        f"The plan takes {ways.length(chosen):.1f} steps if every edge works at once, {difference:.1f} more than the shortest "
        f"way, and is priced at {paid:.1f}. The shortest way {other}."
    )
