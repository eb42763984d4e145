"""Distances that can be searched, to build memories with."""

from __future__ import annotations

import numpy as np


class Leaning:
    """‖g − s‖ + max(0, u · (g − s)): asymmetric, and at least the Euclidean distance; observations are embeddings.

    Tables and pairs are computed in double precision from differences, so that both give the same numbers.
    """

    def __init__(self, size: int, lean: float = 0.5, own_probes: bool = False) -> None:
        self.u = np.full(size, lean / size**0.5)
        self.own_probes = own_probes  # keys and probes that are not the embeddings, and differ by direction

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def _of(self, gap):
        return (np.sqrt(np.square(gap).sum(axis=-1)) + np.maximum(gap @ self.u, 0)).astype(np.float32)

    def __call__(self, starts, goals):
        return self._of(goals[None].astype(np.float64) - starts[:, None])

    def pairs(self, starts, goals):
        return self._of(goals.astype(np.float64) - starts)

    def keys(self, embeddings):
        return 2 * embeddings if self.own_probes else embeddings

    def probes(self, embeddings, outgoing):
        if not self.own_probes:
            return embeddings
        return 2 * embeddings + np.float32(0.5 if outgoing else -0.5)

    def reach(self, steps):
        more = 0.5 * len(self.u) ** 0.5
        return (2 * steps + more if self.own_probes else steps) * (1 + 1e-6) + 1e-6
