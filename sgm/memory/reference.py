"""Algorithm 1 of the paper, BuildSparseGraph, one state and one pair at a time.

This is the readable version of the array code in build.py, fast_merges.py and graph.py, and the oracle of their tests:
both make the same nodes, edges and features, bit for bit.

Deviations from the printed algorithm:
- The test of line 5 is inverted in print: as printed, a state would be novel when it agrees with every node. Here it is
  novel when it agrees with no node. Otherwise it is merged into the oldest node that it agrees with.
- A state is compared with a node in feature space first (Eq. 4, in the paper's appendix).
- scope="memory" is Eq. 3 with its comparisons (≤) as printed. scope="neighbors" is the authors' code: ω and s0 range
  over the successors and predecessors of the node, no state is merged into a node without any, and comparisons are
  strict.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .nodes import Floats

Edge = tuple[int, int, float]  # source, target, weight in steps


@dataclasses.dataclass(eq=False)
class SparseGraph:
    """The graph G = (V, E, W) while it is being built.

    Attributes:
        d: (n, n) float32 steps; d[a, b] is the distance from state a to state b.
        phi: (n, f) float32 features φ of the states.
        criterion, tau_a, tau_p, max_dist, scope, feature_average: see `Settings`.
        nodes: V, the state of each node.
        features: (f,) float32 for each node: φ of its state, moved by merges unless `feature_average` is 0.
        assignment: the node of each state added so far.
    """

    d: Floats
    phi: Floats
    criterion: str = "two-way"
    tau_a: float = 5.0
    tau_p: float = math.inf
    max_dist: float = 10.0
    scope: str = "neighbors"
    feature_average: float = 0.0
    nodes: list[int] = dataclasses.field(default_factory=list)
    features: list[Floats] = dataclasses.field(default_factory=list)
    assignment: list[int] = dataclasses.field(default_factory=list)

    def add(self, s: int) -> int:
        """Lines 5 to 7: merge state s into the oldest node that it agrees with, or make it a node. Return that node."""
        node = next((node for node in range(len(self.nodes)) if self.agrees(node, s)), len(self.nodes))
        if node == len(self.nodes):
            self.nodes.append(s)
            self.features.append(self.phi[s])
        else:
            old = self.features[node]
            self.features[node] = old + np.float32(self.feature_average) * (self.phi[s] - old)
        self.assignment.append(node)
        return node

    def agrees(self, node: int, s: int) -> bool:
        """Whether state s is near a node in feature space (Eq. 4) and consistent with it (Eq. 3)."""
        if self.criterion in ("uniform", "none"):
            return False
        gap = np.square(self.features[node].astype(np.float64) - self.phi[s]).sum()
        if not self.is_within(np.sqrt(gap), self.tau_p):
            return False
        if self.criterion == "perceptual":
            return True
        differences: list[np.float32] = []
        if self.criterion in ("two-way", "outgoing"):
            differences += self.differences(node, s, self.d)  # the greatest of them is C_out
        if self.criterion in ("two-way", "incoming"):
            differences += self.differences(node, s, self.d.T)  # the greatest of them is C_in
        return bool(differences) and self.is_within(max(differences), np.float32(self.tau_a))

    def differences(self, node: int, s: int, d: Floats) -> list[np.float32]:
        """Return |d(c, ω) − d(s, ω)| for each ω in scope, where c is the state of the node."""
        c = self.nodes[node]
        others = [
            w
            for other, w in enumerate(self.nodes)
            if self.scope == "memory" or (other != node and self.is_within(d[c, w], np.float32(self.max_dist)))
        ]
        return [abs(d[c, w] - d[s, w]) for w in others]

    def is_within(self, value: np.floating[Any], threshold: float | np.float32) -> bool:
        """Whether a value is within a threshold: below it with scope="neighbors", otherwise at most equal to it."""
        return bool(value < threshold if self.scope == "neighbors" else value <= threshold)

    def edges(self) -> list[Edge]:
        """Lines 8 and 11: all pairs of nodes within MaxDist with their distances, sorted by source, then target."""
        pairs = itertools.permutations(range(len(self.nodes)), 2)
        weighted = [(u, v, self.d[self.nodes[u], self.nodes[v]]) for u, v in pairs]
        return [(u, v, float(w)) for u, v, w in weighted if self.is_within(w, np.float32(self.max_dist))]


def k_nearest(edges: Iterable[Edge], k: int | None) -> list[Edge]:
    """Line 12: the k outgoing edges of least weight of each node, sorted by source, then target.

    Of edges with equal weights, those with the lower target are kept.
    """
    nearest_first = sorted(edges, key=lambda edge: (edge[0], edge[2], edge[1]))
    by_source = itertools.groupby(nearest_first, key=lambda edge: edge[0])
    return [edge for _, outgoing in by_source for edge in sorted(itertools.islice(outgoing, k))]


def build_sparse_graph(
    buffer: Iterable[int], d: Floats, phi: Floats, *, k: int | None = 5, **settings: Any
) -> tuple[SparseGraph, list[Edge]]:
    """Algorithm 1: build the graph of a replay buffer of states; return it with the edges after the k-nearest filter.

    Args:
        buffer: states as row numbers of `d` and `phi`, in the order of their visit.
        d: (n, n) float32 steps.
        phi: (n, f) float32 features.
        k: successors kept for each node; None keeps all.
        settings: settings of `SparseGraph`.
    """
    graph = SparseGraph(d, phi, **settings)
    for s in buffer:
        graph.add(s)
    return graph, k_nearest(graph.edges(), k)
