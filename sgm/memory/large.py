"""The planning graph of a large memory: adjacency rows that are updated edge by edge, and searches on them."""

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
    """Edges that pass the filter, grouped by either end, with their costs; removed edges have infinite costs.

    Internally nodes are renumbered so that neighbours are close in RAM.
    """

    def __init__(self, graph: Graph, pricing: Pricing, tree_bytes: int) -> None:
        """Make the planning graph of a graph; `pricing` returns the costs of (m,) edges by distance and by hops."""
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
        """Cost of the shortest path between two nodes; infinite if there is none."""
        return self.searches[by].cost(int(self._inner[start]), int(self._inner[goal]))

    def path(self, start: int, goal: int, by: str) -> Ints:
        """Return the nodes of the shortest path between two nodes; there must be one."""
        return self._outer[self.searches[by].path(int(self._inner[start]), int(self._inner[goal]))]

    def following(self, start: int, goal: int, by: str) -> int:
        """Return the next node on the shortest path to a goal; −1 at the goal and without a path."""
        node = self.searches[by].following(int(self._inner[start]), int(self._inner[goal]))
        return int(self._outer[node]) if node >= 0 else -1

    def whole(self, goal: int, by: str) -> tuple[Prices, NDArray[np.int32]]:
        """Return the costs of the shortest paths from all nodes to a goal, and the next nodes on them; −1: none."""
        cost, following = self.searches[by].whole(int(self._inner[goal]))
        inner = self._inner[: len(cost)]
        following = np.where(following >= 0, self._outer[following], -1)[inner]
        return cost[inner], following.astype(np.int32)

    def leads_round(self, ends: list[tuple[int, int]]) -> bool:
        """Whether a path leads from the source to the target of the first of these edges without using any of them."""
        return self.searches["distance"].leads_round(self._inner[np.array(ends)])

    def follow(self, sources: Ints) -> None:
        """Update the outgoing edges of these nodes, and add new nodes."""
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
        """Give new nodes internal numbers, equal to their own."""
        known = len(self._inner)
        if nodes > known:
            self._inner, self._outer = with_room(self._inner, nodes), with_room(self._outer, nodes)
            self._inner[known:] = self._outer[known:] = np.arange(known, len(self._inner))

    def update(self, edges: Ints) -> bool:
        """Update the costs of those of (m,) edges that pass the filter; return whether one is removed or restored."""
        from . import fast_paths

        places = fast_paths.find_many(self.out.row, self.out.count, self.out.other, *self._ends(edges))
        edges, places = edges[places >= 0], places[places >= 0]
        if not len(edges):
            return False
        before = np.stack([self.out.distance[places], self.out.hops[places]])
        self._put(edges, np.ones(len(edges), np.bool_), before, np.empty((2, 0), np.int64))
        return bool((np.isfinite(before[0]) != np.isfinite(self.out.distance[places])).any())

    def along(self, nodes: Ints) -> tuple[Prices, Ints]:
        """Return (L − 1,) costs in steps and (L − 1,) edges of a path of (L,) nodes."""
        from . import fast_paths

        inner = self._inner[nodes]
        places = fast_paths.find_many(self.into.row, self.into.count, self.into.other, inner[1:], inner[:-1])
        return self.into.distance[places], self.into.edge[places]

    def _ends(self, edges: Ints) -> Ints:
        """(2, m) sources and targets of edges, in internal numbers."""
        graph, ends = self._graph, np.empty((2, len(edges)), np.int64)
        ends[0], ends[1] = graph.source.values[edges], graph.target.values[edges]
        return self._inner[ends]

    def _take_out(self, ends: Ints) -> None:
        """Remove edges, given by (2, m) sources and targets, from the rows."""
        if ends.size:
            self.out.take_out(ends[0], ends[1])
            self.into.take_out(ends[1], ends[0])

    def _put(self, edges: Ints, known: Bools, before: Prices, gone: Ints) -> None:
        """Add edges or update their costs, and report the changes to the searches.

        Args:
            edges: (m,) edges.
            known: (m,) whether each is in the rows already.
            before: (2, m) previous costs of the known edges, by distance and by hops.
            gone: (2, g) sources and targets of edges that were removed from the rows.
        """
        prices = self._pricing(edges)
        ends = self._ends(edges)
        # Searches hear of a change before the rows hold it: if the call is interrupted in between, the next one still
        # sees the previous costs, and reports the change again.
        for by, searches in self.searches.items():
            now, was = prices[MODES.index(by)], before[MODES.index(by)]
            changed = ends[:, (now != was) | ~known]
            searches.change(np.concatenate([gone, changed], axis=1), ends[:, now < was])
        if len(edges):
            self.out.put(ends[0], ends[1], *prices, edges)
            self.into.put(ends[1], ends[0], *prices, edges)


class _ByMode(dict[str, Searches]):
    """The searches by each kind of cost, made on first use, so that unused ones need no updates."""

    def __init__(self, graph: Graph, into: Rows, out: Rows, tree_bytes: int) -> None:
        super().__init__()
        self._graph, self._rows, self._tree_bytes = graph, (into, out), tree_bytes

    def __missing__(self, by: str) -> Searches:
        self[by] = Searches(self._graph.nodes, *self._rows, by, self._tree_bytes)
        return self[by]


def _by_place(graph: Graph, edges: Ints) -> Ints:
    """(V,) nodes in an order that puts neighbours close together."""
    ends = graph.source.values[edges], graph.target.values[edges]
    joined = csr_array((np.ones(len(edges), np.bool_), ends), shape=(graph.nodes, graph.nodes))
    return np.asarray(reverse_cuthill_mckee(joined), np.int64)
