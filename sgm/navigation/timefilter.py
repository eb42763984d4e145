"""Localisation that uses time: where a robot probably is, given all that it has seen in this episode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from sgm.memory import InputError, SparseGraphicalMemory

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]


class TimeFilter:
    """A Bayes filter over the nodes of a memory, one for each episode.

    Between two observations a robot stays where it is or goes along an edge, in either direction, as often as `hops`
    times; with the probability `leak` it is anywhere, which lets it recover. An observation is as likely at a node as
    exp(−d / sharpness), d the steps from the observation to the node.
    """

    def __init__(
        self, memory: SparseGraphicalMemory, *, sharpness: float = 1.0, leak: float = 0.02, hops: int = 2
    ) -> None:
        """Localise in this memory."""
        if not sharpness > 0:
            raise InputError(f"sharpness is {sharpness!r}: expected a number of steps over 0")
        if not 0 < leak <= 1:
            raise InputError(f"leak is {leak!r}: expected a probability over 0")
        self.memory, self.sharpness, self.leak, self.hops = memory, sharpness, leak, hops
        self.belief = np.empty((0, 0), np.float32)
        self._moves: csr_array | None = None

    def reset(self, episodes: int) -> None:
        """Know nothing for so many episodes."""
        self.belief = np.full((episodes, len(self.memory)), 1 / max(1, len(self.memory)), np.float32)

    def forget(self, mask: Bools) -> None:
        """Know nothing for these episodes."""
        self.belief[mask] = 1 / len(self.memory)

    def update(self, rows: NDArray[np.int64], to_nodes: Floats) -> None:
        """Take in what the robots of these rows see: (m, V) steps to all nodes."""
        self._refresh()
        prior = self.belief[rows].T
        for _ in range(self.hops):
            prior = self._moves @ prior
        prior = (1 - self.leak) * prior.T + self.leak / len(self.memory)
        nearest = to_nodes.min(axis=1, keepdims=True)
        posterior = prior * np.exp((nearest - to_nodes) / self.sharpness)
        self.belief[rows] = posterior / posterior.sum(axis=1, keepdims=True)

    def _refresh(self) -> None:
        """Rebuild the motion model when the memory has grown; removed edges go on counting until then."""
        if self._moves is not None and self._moves.shape[0] == len(self.memory):
            return
        edges = self.memory.edges()
        ones = np.ones(len(edges.source), np.float32)
        shape = (len(self.memory), len(self.memory))
        there = csr_array((ones, (edges.source, edges.target)), shape=shape)
        both = ((there + there.T) > 0).astype(np.float32) + diags_array(np.ones(shape[0], np.float32), format="csr")
        leaving = np.asarray(both.sum(axis=1)).ravel()
        self._moves = csr_array((diags_array(1 / leaving) @ both).T.astype(np.float32))
