"""Which edges are wrong: a ranking without ground truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .view import GUARDED, View

TEXT = (
    "Edges that stand, the most suspicious first. Two places that are near each other are near the same others: an edge whose "
    "ends have few neighbours in common is suspicious. Failed tries make it more so, successful ones and episodes that went "
    "through it less."
)


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
    """Every edge that stands, by how suspicious it is."""

    def __init__(self, view: View) -> None:
        """Rank the edges of a view."""
        table = view.table
        self.edges = np.flatnonzero(view.state <= GUARDED)
        self.common, self.fewest = shared_neighbours(view, self.edges)
        share = (self.common + 1) / (self.fewest + 2)
        works = (1 + table.successes[self.edges]) / (2 + table.successes[self.edges] + table.failures[self.edges])
        walked = table.walked[self.edges] > 0
        suspicion = (1 - share) + 2 * (0.5 - works) - 0.5 * walked
        self.score = np.full(len(table.source), -np.inf)
        self.score[self.edges] = suspicion
        self.order = self.edges[np.argsort(-suspicion, kind="stable")]
        self.rank = np.full(len(table.source), -1)
        self.rank[self.order] = np.arange(len(self.order))
        self.place = np.full(len(table.source), -1)
        self.place[self.edges] = np.arange(len(self.edges))


def ranked(view: View) -> Ranking:
    """The ranking of a view, made once."""
    if "suspects" not in view.cache:
        view.cache["suspects"] = Ranking(view)
    found: Ranking = view.cache["suspects"]
    return found


def shared_neighbours(view: View, edges: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each edge how many neighbours its ends share, and how many the one with fewer has; directions do not count."""
    table, nodes = view.table, len(view)
    there = ~table.removed
    ends = np.concatenate([table.source[there], table.target[there]]), np.concatenate([table.target[there], table.source[there]])
    graph = csr_array((np.ones(len(ends[0]), np.int32), ends), shape=(nodes, nodes))
    graph.data[:] = 1
    degree = np.diff(graph.indptr)
    source, target = table.source[edges], table.target[edges]
    common = np.empty(len(edges), np.int64)
    for low in range(0, len(edges), 4096):
        part = slice(low, low + 4096)
        both = graph[source[part]].multiply(graph[target[part]])
        common[part] = np.asarray(both.sum(axis=1)).ravel()
    return common, np.minimum(degree[source], degree[target]) - 1


def reasons(view: View, edge: int) -> list[str]:
    """What speaks for and against an edge, a sentence each."""
    ranking, table = ranked(view), view.table
    place = ranking.place[edge]
    found = [f"Its ends share {ranking.common[place]} of {ranking.fewest[place]} possible neighbours."]
    tries = int(table.successes[edge] + table.failures[edge])
    if tries:
        found.append(f"{table.failures[edge]} of {tries} tries failed.")
    else:
        found.append("It was never tried.")
    if table.walked[edge] > 0:
        found.append(f"An episode went through it in {table.walked[edge]} steps.")
    return found


def _listed(view: View, edge: int) -> dict[str, Any]:
    return {
        "source": int(view.table.source[edge]),
        "target": int(view.table.target[edge]),
        **(of_edge(view, edge) or {}),
        "state": int(view.state[edge]),
    }
