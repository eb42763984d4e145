"""Algorithm 1 written as slowly and as literally as it can be, to check the memory against."""

from __future__ import annotations

import numpy as np

import sgm


class Oracle:
    """One observation at a time, one pair at a time."""

    def __init__(self, table, features, criterion, tau_a, tau_p, max_dist, k, scope, feature_average=0.0):
        self.table, self.phi = table, np.asarray(features, np.float32)
        self.criterion, self.scope, self.k = criterion, scope, k
        self.tau_a, self.tau_p, self.max_dist = np.float32(tau_a), tau_p, np.float32(max_dist)
        self.average = np.float32(feature_average)
        self.nodes: list[int] = []
        self.features: list[np.ndarray] = []
        self.assignment: list[int] = []
        for observation in range(len(table)):
            self.add(observation)

    def less(self, a, b) -> bool:
        return bool(a < b) if self.scope == "neighbors" else bool(a <= b)

    def add(self, s: int) -> None:
        for node in range(len(self.nodes)):
            if self.merges(node, s):
                self.features[node] = self.features[node] + self.average * (self.phi[s] - self.features[node])
                self.assignment.append(node)
                return
        self.assignment.append(len(self.nodes))
        self.nodes.append(s)
        self.features.append(self.phi[s])

    def merges(self, node: int, s: int) -> bool:
        if self.criterion == "none":
            return False
        gap = self.features[node].astype(np.float64) - self.phi[s]
        if not (np.isinf(self.tau_p) or self.less(np.sqrt((gap * gap).sum()), self.tau_p)):
            return False
        if self.criterion == "perceptual":
            return True
        d, c = self.table, self.nodes[node]
        others = [x for x in self.nodes if self.scope == "memory" or x != c]
        differences = []
        for x in others:
            if self.criterion in ("two-way", "incoming") and (self.scope == "memory" or d[x, c] < self.max_dist):
                differences.append(abs(d[x, c] - d[x, s]))
            if self.criterion in ("two-way", "outgoing") and (self.scope == "memory" or d[c, x] < self.max_dist):
                differences.append(abs(d[c, x] - d[s, x]))
        return bool(differences) and all(self.less(difference, self.tau_a) for difference in differences)

    def edges(self, filtered: bool) -> list[tuple[int, int, float]]:
        result = []
        for u, i in enumerate(self.nodes):
            out = [(self.table[i, j], v) for v, j in enumerate(self.nodes) if v != u]
            out = sorted((w, v) for w, v in out if self.less(w, self.max_dist))
            result += sorted((u, v, float(w)) for w, v in (out[: self.k] if filtered and self.k else out))
        return result


def edge_list(edges: sgm.Edges) -> list[tuple[int, int, float]]:
    """Edges as a list of (source, target, weight)."""
    return list(zip(*(column.tolist() for column in edges), strict=True))
