"""Estimate the edges and merges that an approximate build has missed, by comparing some nodes with all others."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .arrays import Bools, Ints
from .criteria import Floats, exceeds, within
from .distance import Distance, between
from .graph import Graph
from .nodes import Nodes
from .settings import MERGE, Settings


@dataclasses.dataclass(frozen=True)
class Audit:
    """Result of comparing a sample of nodes with all nodes.

    Attributes:
        nodes: number of nodes in the sample.
        edges: number of edges within MaxDist that they should have, in both directions.
        edges_found: number of these edges that the memory has.
        merges_missed: number of nodes in the sample that agree with an older node and should have been merged into it.
        edge_recall: share of the edges that the memory has; None if there should be none.
        merge_recall: estimated share of the observations to merge that were merged; the missed ones are extrapolated
            from the sample, and wrong merges are not detected. None if there is nothing to merge.
    """

    nodes: int
    edges: int
    edges_found: int
    merges_missed: int
    edge_recall: float | None
    merge_recall: float | None

    def asdict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return dataclasses.asdict(self)


def audit(distance: Distance, nodes: Nodes, graph: Graph, settings: Settings, sample: int, seed: int) -> Audit:
    """Compare a random sample of `sample` nodes with all nodes."""
    number = min(sample, len(nodes))
    chosen = np.sort(np.random.default_rng(seed).choice(len(nodes), number, replace=False))
    edges = found = missed = 0
    for node in chosen.tolist():
        own = nodes.embedding[node : node + 1]
        out, into = between(distance, own, nodes.embedding)[0], between(distance, nodes.embedding, own)[:, 0]
        for steps, at_each, ends in (
            (out, graph.out_of(), graph.target.values),
            (into, graph.into(), graph.source.values),
        ):
            near = within(steps, settings)
            near[node] = False
            held = at_each.at(node)
            held = held[np.isfinite(graph.distance.values[held])]
            edges += int(np.count_nonzero(near))
            found += int(np.count_nonzero(near[ends[held]]))
        missed += settings.criterion in MERGE and _merges(distance, nodes, settings, node, out, into)
    merged = int(np.count_nonzero(nodes.assignment.values >= 0)) - len(nodes)
    lost = missed / number * len(nodes)
    return Audit(
        number,
        edges,
        found,
        missed,
        found / edges if edges else None,
        merged / (merged + lost) if merged + lost else None,
    )


def _merges(distance: Distance, nodes: Nodes, settings: Settings, node: int, out: Floats, into: Floats) -> bool:
    """Whether a node agrees with an older node by Algorithm 1, with the older nodes as the memory."""
    older = nodes.feature[:node].astype(np.float64)
    gap = np.sqrt(np.square(older - nodes.feature[node]).sum(axis=1))
    alike = np.flatnonzero(gap < settings.tau_p if settings.strict else gap <= settings.tau_p)
    if settings.criterion == "perceptual":
        return bool(len(alike))
    embedding = nodes.embedding[:node]
    apart = np.zeros(len(alike), np.bool_)
    known = np.zeros(len(alike), np.bool_)
    if settings.criterion in ("two-way", "outgoing"):
        known |= _compared(between(distance, embedding[alike], embedding), out[:node], alike, settings, apart)
    if settings.criterion in ("two-way", "incoming"):
        theirs = between(distance, embedding, embedding[alike]).T
        known |= _compared(theirs, into[:node], alike, settings, apart)
    return bool((known & ~apart).any())


def _compared(theirs: Floats, own: Floats, candidate: Ints, settings: Settings, apart: Bools) -> Bools:
    """Mark in `apart` which of (c,) candidates are inconsistent; return which have any node to be compared by."""
    counts = np.ones(theirs.shape, np.bool_)
    if settings.scope == "neighbors":
        counts = within(theirs, settings)
        counts[np.arange(len(candidate)), candidate] = False
    apart |= (counts & exceeds(np.abs(theirs - own), settings)).any(axis=1)
    return np.asarray(counts.any(axis=1))
