"""Ground truth about a memory of the SafetyGym benchmark, from the true poses of its nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.base import Piece, Row
from sgm.benchmarks.ground_truth import edge_lengths, largest_component, share_over

FALSE = 1.2  # metres above which an edge, or a pair that passes a check, is false


def facts(piece: Piece, memory: sgm.SparseGraphicalMemory) -> Row:
    """Shares of false edges and of misplaced starts and goals, and the sizes of connected components."""
    poses, edges = memory.attributes["pose"], memory.edges()
    lengths = edge_lengths(edges, poses)
    # Not the memory's own distance, which is capped at MaxDist: all nodes beyond it would be equally far.
    distance = piece.networks.distance.unlimited()
    starts, goals = (piece.env.see(ends) for ends in (piece.tasks.starts, piece.tasks.goals))
    first = distance(distance.embed(starts), memory.embeddings).argmin(axis=1)
    last = [int(distance(memory.embeddings, distance.embed(goal[None]))[:, 0].argmin()) for goal in goals]
    return {
        "true_part": true_component(len(memory), edges, lengths),
        "false_edges": share_over(lengths, FALSE),
        "false_starts": _share_elsewhere(poses[first], piece.tasks.starts),
        "false_goals": _share_elsewhere(poses[last], piece.tasks.goals),
    }


def true_component(nodes: int, edges: sgm.Edges, lengths: NDArray[np.float64]) -> int:
    """Size of the largest strongly connected component without false edges, the result of a perfect cleanup."""
    true = lengths <= FALSE
    return int(largest_component(nodes, edges.source[true], edges.target[true]).sum())


def _share_elsewhere(found: NDArray[Any], true: NDArray[Any]) -> float:
    return float((np.hypot(*(found[:, :2] - true[:, :2]).T) > FALSE).mean())
