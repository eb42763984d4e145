"""The planning graph of many nodes: adjacency rows that follow the graph edge by edge, and searches on them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .arrays import Bools, Ints
from .csgraph import reverse_cuthill_mckee
from .graph import Graph
from .searches import Prices, Rows, Searches, with_room

MODES = ("distance", "hops")
Pricing = Callable[[Ints], tuple[Prices, Prices]]


class LargeGraph:
    """Edges that pass the filter, by either end, with their prices; removed ones cost infinitely much.

    Inside, nodes are numbered so that those that are joined are close in memory too.
    """

    def __init__(self, graph: Graph, pricing: Pricing, tree_bytes: int) -> None:
        """Follow a graph; `pricing` tells for (m,) edges what they cost, and what they count as hops."""
        self._graph, self._pricing = graph, pricing
        edges = np.flatnonzero(graph.in_filter())
        order = _by_place(graph, edges)
        self._outer, self._inner = np.empty(0, np.int64), np.empty(0, np.int64)
        self._number(graph.nodes)
        self._outer[: graph.nodes], self._inner[: graph.nodes] = order, np.argsort(order)
        source, target = self._ends(edges)
        prices = pricing(edges)
        self.into = Rows(graph.nodes, target, source, *prices, edges)
        self.out = Rows(graph.nodes, source, target, *prices, edges)
        self.searches = _ByMode(graph, self.into, self.out, tree_bytes // len(MODES))

    def cost(self, start: int, goal: int, by: str) -> float:
        """What the shortest way between two nodes costs; infinite if there is none."""
        return self.searches[by].cost(int(self._inner[start]), int(self._inner[goal]))

    def path(self, start: int, goal: int, by: str) -> Ints:
        """The nodes of the shortest way between two nodes that are joined."""
        return self._outer[self.searches[by].path(int(self._inner[start]), int(self._inner[goal]))]

    def following(self, start: int, goal: int, by: str) -> int:
        """The next node on the way to a goal; −1 at the goal and where there is no way."""
        node = self.searches[by].following(int(self._inner[start]), int(self._inner[goal]))
        return int(self._outer[node]) if node >= 0 else -1

    def whole(self, goal: int, by: str) -> tuple[Prices, NDArray[np.int32]]:
        """What the ways from everywhere to a goal cost, and the next nodes on them; −1: none."""
        cost, following = self.searches[by].whole(int(self._inner[goal]))
        inner = self._inner[: len(cost)]
        following = np.where(following >= 0, self._outer[following], -1)[inner]
        return cost[inner], following.astype(np.int32)

    def leads_round(self, ends: list[tuple[int, int]]) -> bool:
        """Whether a way leads from the source to the target of the first of these edges that has none of them."""
        return self.searches["distance"].leads_round(self._inner[np.array(ends)])

    def follow(self, sources: Ints) -> None:
        """Take over the edges that leave these nodes now, and nodes that are new."""
        from . import fast_paths

        graph, out = self._graph, self.out
        self._number(graph.nodes)
        for rows in (self.into, out):
            rows.add_nodes(graph.nodes)
        for searches in self.searches.values():
            searches.add_nodes(graph.nodes)
        at_each, passing = graph.out_of(), graph.in_filter()
        pool = out.row, out.count, out.other, out.distance, out.hops
        held = at_each.start, at_each.length, at_each.edge, passing, graph.target.values, graph.temporal.values
        edges, known, before, gone = fast_paths.compare(*pool, *held, self._inner, sources)
        self._take_out(gone)
        self._put(edges, known, before, gone)

    def _number(self, nodes: int) -> None:
        """Give nodes that are new numbers inside: their own."""
        known = len(self._inner)
        if nodes > known:
            self._inner, self._outer = with_room(self._inner, nodes), with_room(self._outer, nodes)
            self._inner[known:] = self._outer[known:] = np.arange(known, len(self._inner))

    def update(self, edge: int) -> bool:
        """Take over what an edge costs now, if it passes the filter; whether it is removed or restored by that."""
        from . import fast_paths

        (source,), (target,) = self._ends(np.array([edge]))
        place = fast_paths.find(self.out.row, self.out.count, self.out.other, source, target)
        if place < 0:
            return False
        before = np.array([[self.out.distance[place]], [self.out.hops[place]]])
        self._put(np.array([edge]), np.ones(1, np.bool_), before, np.empty((2, 0), np.int64))
        return bool(np.isfinite(before[0, 0]) != np.isfinite(self.out.distance[place]))

    def along(self, nodes: Ints) -> tuple[Prices, Ints]:
        """Prices and edges of a path: (L,) nodes to (L − 1,) steps and (L − 1,) edges."""
        from . import fast_paths

        inner = self._inner[nodes]
        places = fast_paths.find_many(self.into.row, self.into.count, self.into.other, inner[1:], inner[:-1])
        return self.into.distance[places], self.into.edge[places]

    def _ends(self, edges: Ints) -> Ints:
        """(2, m) the nodes that edges lead from and to, as they are numbered inside."""
        graph, ends = self._graph, np.empty((2, len(edges)), np.int64)
        ends[0], ends[1] = graph.source.values[edges], graph.target.values[edges]
        return self._inner[ends]

    def _take_out(self, ends: Ints) -> None:
        """Take (2, m) edges, from one node to another, out of the rows."""
        if ends.size:
            self.out.take_out(ends[0], ends[1])
            self.into.take_out(ends[1], ends[0])

    def _put(self, edges: Ints, known: Bools, before: Prices, gone: Ints) -> None:
        """Give edges their present prices; `before`, (2, m), are those of the edges that were known.

        `gone`, (2, g), are edges that were taken out, of which searches are told with those that changed.
        """
        prices = self._pricing(edges)
        ends = self._ends(edges)
        if len(edges):
            self.out.put(ends[0], ends[1], *prices, edges)
            self.into.put(ends[1], ends[0], *prices, edges)
        for by, searches in self.searches.items():
            now, was = prices[MODES.index(by)], before[MODES.index(by)]
            changed = ends[:, (now != was) | ~known]
            searches.change(np.concatenate([gone, changed], axis=1), ends[:, now < was])


class _ByMode(dict[str, Searches]):
    """The searches under each kind of price, made when they are asked for: until then they need not follow anything."""

    def __init__(self, graph: Graph, into: Rows, out: Rows, tree_bytes: int) -> None:
        super().__init__()
        self._graph, self._rows, self._tree_bytes = graph, (into, out), tree_bytes

    def __missing__(self, by: str) -> Searches:
        self[by] = Searches(self._graph.nodes, *self._rows, by, self._tree_bytes)
        return self[by]


def _by_place(graph: Graph, edges: Ints) -> Ints:
    """(V,) nodes in an order in which those that are joined are close."""
    ends = graph.source.values[edges], graph.target.values[edges]
    joined = csr_array((np.ones(len(edges), np.bool_), ends), shape=(graph.nodes, graph.nodes))
    return np.asarray(reverse_cuthill_mckee(joined), np.int64)
