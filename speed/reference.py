"""Baseline of the speed claims: the pattern of the released reference code, with the same results as the memory.

It uses a NetworkX graph. For every observation, the whole node × node table of the ensemble is reduced to its maximum
and enlarged by copying; for every plan, the graph is copied and start and goal are added to the copy.
"""

from __future__ import annotations

import itertools

import networkx
import numpy as np
from numpy.typing import NDArray


class ReferenceMemory:
    """Two-way consistency with the authors' semantics, from an (ensemble, n, n) table of distances."""

    def __init__(
        self,
        tables: NDArray[np.float32],
        features: NDArray[np.float32],
        tau_a: float,
        tau_p: float,
        max_dist: float,
        k: int | None,
    ) -> None:
        """Build the graph over all rows of the tables, in order, then filter it."""
        self.tables, self.features = tables, features
        self.tau_a, self.tau_p, self.max_dist = tau_a, tau_p, max_dist
        self.graph = networkx.DiGraph()
        self.nodes = np.array([], np.int64)
        self.node_features = np.empty((0, features.shape[1]), np.float32)
        self.pairs = np.empty((len(tables), 0, 0), np.float32)
        for number in range(tables.shape[1]):
            self.add(number)
        if k is not None:
            self.keep_nearest(k)

    @classmethod
    def over_graph(
        cls, tables: NDArray[np.float32], nodes: NDArray[np.int64], graph: networkx.DiGraph
    ) -> ReferenceMemory:
        """Make a baseline that plans on a given graph, because building it would take hours."""
        memory = cls(tables[:, :0, :0], np.empty((0, 1), np.float32), 0.0, 0.0, 0.0, None)
        memory.tables, memory.nodes, memory.graph = tables, nodes, graph
        return memory

    def add(self, number: int) -> None:
        """Merge one observation into a node, or make it a new node."""
        near = np.flatnonzero(np.linalg.norm(self.node_features - self.features[number], axis=1) < self.tau_p)
        out = self.tables[:, [number]][:, :, self.nodes]
        into = self.tables[:, self.nodes][:, :, [number]]
        reduced = np.max(self.pairs, axis=0)
        out_max, into_max = np.max(out, axis=0).ravel(), np.max(into, axis=0).ravel()
        if any(self.consistent(int(node), reduced, out_max, into_max) for node in near):
            return
        new = len(self.nodes)
        self.graph.add_node(new)
        for node in np.flatnonzero(into_max < self.max_dist):
            self.graph.add_edge(int(node), new, weight=into_max[node])
        for node in np.flatnonzero(out_max < self.max_dist):
            self.graph.add_edge(new, int(node), weight=out_max[node])
        self.nodes = np.append(self.nodes, number)
        self.node_features = np.concatenate([self.node_features, self.features[[number]]])
        grown = np.concatenate([self.pairs, out], axis=1)
        self.pairs = np.concatenate([grown, np.concatenate([into, self.tables[:, [[number]], [number]]], axis=1)], 2)

    def consistent(self, node: int, reduced: NDArray, out: NDArray, into: NDArray) -> bool:
        """Whether an observation passes the two-way test against a node, over the node's neighbours."""
        before, after = list(self.graph.predecessors(node)), list(self.graph.successors(node))
        if not before and not after:
            return False
        stored = np.append(reduced[before, node], reduced[node, after])
        fresh = np.append(into[before], out[after])
        return bool(np.linalg.norm(fresh - stored, np.inf) < self.tau_a)

    def keep_nearest(self, k: int) -> None:
        """Keep the k outgoing edges of least weight of each node."""
        for node in self.graph.nodes():
            edges = sorted(self.graph.edges(nbunch=node, data="weight"), key=lambda edge: edge[2])
            self.graph.remove_edges_from(edges[k:])

    def plan(self, start: int, goal: int) -> tuple[list[int], float]:
        """Shortest path between two rows of the table: nodes, and steps over the edges."""
        to_nodes = self.tables[:, start, self.nodes].max(axis=0)
        to_goal = self.tables[:, self.nodes, goal].max(axis=0)
        graph = self.graph.copy()
        starts, goals = np.argsort(to_nodes, kind="stable"), np.argsort(to_goal, kind="stable")
        for first, last in zip(starts, goals, strict=True):
            graph.add_edge("start", int(first), weight=to_nodes[first])
            graph.add_edge(int(last), "goal", weight=to_goal[last])
            try:
                path = networkx.shortest_path(graph, "start", "goal", weight="weight")
            except networkx.NetworkXNoPath:
                continue
            nodes = path[1:-1]
            return nodes, float(sum(graph[u][v]["weight"] for u, v in itertools.pairwise(nodes)))
        raise networkx.NetworkXNoPath("no path")

    def record(self, u: int, v: int, reached: bool) -> None:
        """Remove an edge that failed, as in the paper's cleanup."""
        if not reached and self.graph.has_edge(u, v):
            self.graph.remove_edge(u, v)
