"""Ranking of edges by how likely they are false, without ground truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .view import GUARDED, View

Ints = NDArray[np.int64]

TEXT = (
    "Edges in use, the most suspicious first. Nearby places share most of their neighbours, so an edge is suspicious "
    "if its ends have few neighbours in common. A failed try raises the score, a success lowers it, and so does an "
    "episode that went through the edge, or from one end to the other over two edges. The ranking uses no ground "
    "truth: compare both images, and try the edge."
)
BACKED = 10.0  # factor by which the odds fall if an episode supports the edge
_PART = 4096  # edges processed at once


def suspects(view: View, limit: int) -> dict[str, Any]:
    """List the most suspicious edges, each with its reasons."""
    ranking = ranked(view)
    listed = [_listed(view, int(edge)) for edge in ranking.order[: max(0, limit)]]
    return {"version": view.version, "suspects": listed, "total": len(ranking.order), "text": TEXT}


def of_edge(view: View, edge: int) -> dict[str, Any] | None:
    """Score, rank and reasons of an edge; None if it is not in use."""
    ranking = ranked(view)
    if ranking.rank[edge] < 0:
        return None
    return {
        "score": float(ranking.score[edge]),
        "rank": int(ranking.rank[edge]) + 1,
        "reasons": reasons(view, edge),
    }


class Ranking:
    """All edges in use, ranked by suspicion.

    The odds of an edge start with those of the share of neighbours that its ends do not have in common. They are
    multiplied by (1 + failures) / (1 + successes), and divided by BACKED if an episode supports the edge. The score
    maps the odds to a number from 0 to 1; it only ranks edges, and is not a probability.

    Attributes:
        edges: (S,) indices in the table of the edges in use.
        common: (S,) number of neighbours that both ends have in common.
        fewest: (S,) number of neighbours of the end that has fewer, without the other end.
        backed: (S,) whether an episode went through the edge, or from one end to the other over two edges.
        score: (E,) score of all edges of the table; −∞ for those not in use.
        order: (S,) edges, the most suspicious first.
        rank: (E,) index in that order; −1 for edges not in use.
        place: (E,) index in `edges`; −1 for edges not in use.
    """

    def __init__(self, view: View) -> None:
        """Rank the edges of a view."""
        table = view.table
        self.edges = np.flatnonzero(view.state <= GUARDED)
        self.common, self.fewest = shared_neighbours(view, self.edges)
        self.backed = backed_by_motion(view, self.edges)
        share = (self.common + 1) / (self.fewest + 2)
        tries = (1 + table.failures[self.edges]) / (1 + table.successes[self.edges])
        odds = (1 - share) / share * tries / np.where(self.backed, BACKED, 1.0)
        suspicion = odds / (1 + odds)
        self.score = np.full(len(table.source), -np.inf)
        self.score[self.edges] = suspicion
        self.order = self.edges[np.argsort(-suspicion, kind="stable")]
        self.rank, self.place = np.full((2, len(table.source)), -1)
        self.rank[self.order] = np.arange(len(self.order))
        self.place[self.edges] = np.arange(len(self.edges))


def ranked(view: View) -> Ranking:
    """Return the ranking of a view, which is computed once."""
    if "suspects" not in view.cache:
        view.cache["suspects"] = Ranking(view)
    found: Ranking = view.cache["suspects"]
    return found


def shared_neighbours(view: View, edges: Ints) -> tuple[Ints, Ints]:
    """Number of neighbours that the ends of each edge share, and number of neighbours of the end with fewer.

    Directions are ignored. Neighbours are those of the graph before the k-nearest filter, without removed edges.
    """
    graph = _undirected(view, ~view.table.removed)
    degree = np.diff(graph.indptr)
    source, target = view.table.source[edges], view.table.target[edges]
    return _two_edges(graph, source, target), np.minimum(degree[source], degree[target]) - 1


def backed_by_motion(view: View, edges: Ints) -> NDArray[np.bool_]:
    """Whether an episode went through each edge, or between its ends over two edges, in either direction."""
    walked = view.table.walked > 0
    if not walked.any():
        return np.zeros(len(edges), np.bool_)
    source, target = view.table.source[edges], view.table.target[edges]
    return walked[edges] | (_two_edges(_undirected(view, walked), source, target) > 0)


def _undirected(view: View, chosen: NDArray[np.bool_]) -> csr_array:
    """(V, V) undirected adjacency matrix of the chosen edges."""
    source, target = view.table.source[chosen], view.table.target[chosen]
    ends = np.concatenate([source, target]), np.concatenate([target, source])
    graph = csr_array((np.ones(len(ends[0]), np.int32), ends), shape=(len(view), len(view)))
    graph.data[:] = 1
    return graph


def _two_edges(graph: csr_array, source: Ints, target: Ints) -> Ints:
    """Number of paths of two edges between each pair of nodes."""
    found = np.zeros(len(source), np.int64)
    for low in range(0, len(source), _PART):
        part = slice(low, low + _PART)
        found[part] = np.asarray(graph[source[part]].multiply(graph[target[part]]).sum(axis=1)).ravel()
    return found


def reasons(view: View, edge: int) -> list[str]:
    """Reasons for and against an edge, a sentence each."""
    ranking, table = ranked(view), view.table
    place = ranking.place[edge]
    found = [f"Its ends have {ranking.common[place]} of {max(0, ranking.fewest[place])} neighbours in common."]
    tries = int(table.successes[edge] + table.failures[edge])
    found.append(f"{table.failures[edge]} of {tries} tries failed." if tries else "It was never tried.")
    if table.walked[edge] > 0:
        found.append(f"An episode went through it, in {table.walked[edge]} steps.")
    elif ranking.backed[place]:
        found.append("An episode went from one end to the other over two edges.")
    elif bool((table.walked > 0).any()):
        found.append("No episode went through it or near it.")
    return found


def _listed(view: View, edge: int) -> dict[str, Any]:
    return {
        "source": int(view.table.source[edge]),
        "target": int(view.table.target[edge]),
        **(of_edge(view, edge) or {}),
        "state": int(view.state[edge]),
    }
