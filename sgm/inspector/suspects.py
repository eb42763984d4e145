"""Which edges are wrong: a ranking without ground truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .view import GUARDED, View

Ints = NDArray[np.int64]

TEXT = (
    "Edges that stand, the most suspicious first. Places that are near each other are near the same others, so an edge "
    "is suspicious if its ends have few of their neighbours in common. What tries have shown counts: every failure "
    "against it, every success for it; so does own motion: episodes that went through it, or round it in two edges. "
    "Nobody has said which edges are wrong: look at both images, and try them."
)
BACKED = 10.0  # times that an edge is less suspicious if own motion backs it
_PART = 4096  # edges that are looked at together


def suspects(view: View, limit: int) -> dict[str, Any]:
    """The most suspicious edges, each with its reasons."""
    ranking = ranked(view)
    listed = [_listed(view, int(edge)) for edge in ranking.order[: max(0, limit)]]
    return {"version": view.version, "suspects": listed, "total": len(ranking.order), "text": TEXT}


def of_edge(view: View, edge: int) -> dict[str, Any] | None:
    """How suspicious an edge is; None if it does not stand."""
    ranking = ranked(view)
    if ranking.rank[edge] < 0:
        return None
    return {
        "score": float(ranking.score[edge]),
        "rank": int(ranking.rank[edge]) + 1,
        "reasons": reasons(view, edge),
    }


class Ranking:
    """Every edge that stands, by how suspicious it is.

    The odds that an edge is wrong begin with the share of neighbours that its ends do not have in common, are
    multiplied by (1 + failures) / (1 + successes), and divided by BACKED where own motion backs it. The score is these
    odds as a number from 0 to 1; it orders edges, and is not a probability.

    Attributes:
        edges: (S,) which edges of the table stand.
        common: (S,) neighbours that both ends have.
        fewest: (S,) neighbours of the end that has fewer, the other end not counted.
        backed: (S,) whether an episode went through the edge, or round it in two edges.
        score: (E,) over all edges of the table; −∞ for those that do not stand.
        order: (S,) edges, the most suspicious first.
        rank: (E,) places in that order; −1 for those that do not stand.
        place: (E,) places in `edges`; likewise.
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
    """The ranking of a view, made once."""
    if "suspects" not in view.cache:
        view.cache["suspects"] = Ranking(view)
    found: Ranking = view.cache["suspects"]
    return found


def shared_neighbours(view: View, edges: Ints) -> tuple[Ints, Ints]:
    """For each edge how many neighbours its ends share, and how many the end with fewer has; directions do not count.

    Neighbours are those of the graph before the k-nearest filter, but for removed edges.
    """
    graph = _undirected(view, ~view.table.removed)
    degree = np.diff(graph.indptr)
    source, target = view.table.source[edges], view.table.target[edges]
    return _two_edges(graph, source, target), np.minimum(degree[source], degree[target]) - 1


def backed_by_motion(view: View, edges: Ints) -> NDArray[np.bool_]:
    """For each edge whether an episode went through it, or from one end to the other in two edges, either way."""
    walked = view.table.walked > 0
    if not walked.any():
        return np.zeros(len(edges), np.bool_)
    source, target = view.table.source[edges], view.table.target[edges]
    return walked[edges] | (_two_edges(_undirected(view, walked), source, target) > 0)


def _undirected(view: View, chosen: NDArray[np.bool_]) -> csr_array:
    """Which nodes some edges join: (V, V) of ones."""
    source, target = view.table.source[chosen], view.table.target[chosen]
    ends = np.concatenate([source, target]), np.concatenate([target, source])
    graph = csr_array((np.ones(len(ends[0]), np.int32), ends), shape=(len(view), len(view)))
    graph.data[:] = 1
    return graph


def _two_edges(graph: csr_array, source: Ints, target: Ints) -> Ints:
    """For each pair of nodes how many ways of two edges join them."""
    found = np.zeros(len(source), np.int64)
    for low in range(0, len(source), _PART):
        part = slice(low, low + _PART)
        found[part] = np.asarray(graph[source[part]].multiply(graph[target[part]]).sum(axis=1)).ravel()
    return found


def reasons(view: View, edge: int) -> list[str]:
    """What speaks for and against an edge, a sentence each."""
    ranking, table = ranked(view), view.table
    place = ranking.place[edge]
    found = [f"Its ends have {ranking.common[place]} of {max(0, ranking.fewest[place])} neighbours in common."]
    tries = int(table.successes[edge] + table.failures[edge])
    found.append(f"{table.failures[edge]} of {tries} tries failed." if tries else "It was never tried.")
    if table.walked[edge] > 0:
        found.append(f"An episode went through it, in {table.walked[edge]} steps.")
    elif ranking.backed[place]:
        found.append("An episode went from one end to the other in two edges.")
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
