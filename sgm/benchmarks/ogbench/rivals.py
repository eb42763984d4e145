"""Planners in the style of two papers, written from their descriptions, with our distance and controller.

- GAS (Baek et al., Graph-Assisted Stitching, ICML 2025): states of high temporal efficiency are clustered so that nodes
  are half of H_TD apart; nodes within H_TD are joined, and so are components. It replans in every step.
- TTGS (Opryshko et al., Test-Time Graph Search, 2025): thousands of random observations; long edges cost more than
  their length. It plans once and heads for the farthest vertex of its path within reach.

They are not reproductions. Both papers learn their own distance and controller; here ours replace them, so that rows
differ only in the graph and in how it is followed. Our distances are in steps and capped, which also limits edges. A
node of GAS is a mean of embeddings; here it is the observation nearest to it, since our controller needs observations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from sgm.data import Experience

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
AHEAD = 40  # vertices of a path that TTGS considers


# -- nodes -------------------------------------------------------------------------------------------------------


def efficient(data: Experience, rows: Ints, distance: Any, horizon: float, least: float) -> Ints:
    """Select the rows of the data with a temporal efficiency of `least` or more (GAS).

    The efficiency of a state is the cosine between two displacements in embedding space: to the state H_TD steps later
    in the episode, and to the first state at a distance of H_TD. States whose episode ends before the first are left
    out; if it ends before the second, its last state is used.
    """
    steps = round(horizon)
    window = np.arange(1, 3 * steps + 1)
    rows = rows[rows + steps < len(data)]
    rows = rows[data.episodes[rows + steps] == data.episodes[rows]]
    kept = [part[_are_efficient(data, part, distance, window, horizon, least)] for part in _parts(rows, 256)]
    return np.concatenate(kept) if kept else rows


def _are_efficient(data: Experience, rows: Ints, distance: Any, window: Ints, horizon: float, least: float) -> Bools:
    now = distance.embed(np.asarray(data.observations[rows]))
    last = np.searchsorted(data.episodes, data.episodes[rows], side="right") - 1
    later = np.minimum(rows[:, None] + window, last[:, None])
    future = distance.embed(np.asarray(data.observations[later.ravel()]))
    apart = distance.pairs(np.repeat(now, len(window), axis=0), future).reshape(len(rows), -1)
    far = apart >= horizon
    first = np.where(far.any(axis=1), far.argmax(axis=1), len(window) - 1)
    future = future.reshape(len(rows), len(window), -1)
    best = future[np.arange(len(rows)), first] - now
    reached = future[:, round(horizon) - 1] - now
    lengths = np.linalg.norm(best, axis=1) * np.linalg.norm(reached, axis=1)
    return np.asarray((best * reached).sum(axis=1) >= least * np.maximum(lengths, 1e-9))


def cluster(vectors: Floats, distance: Any, radius: float) -> Ints:
    """Rows of (n, e) embeddings that represent clusters (GAS): the member nearest to the mean of each cluster.

    A state joins the nearest cluster if its centre is within `radius` steps, otherwise it starts a new cluster.
    """
    centres: list[int] = []
    members: list[list[int]] = []
    for row in range(len(vectors)):
        steps = distance(vectors[centres], vectors[row : row + 1])[:, 0] if centres else np.full(1, np.inf)
        nearest = int(steps.argmin())
        if steps[nearest] <= radius:
            members[nearest].append(row)
        else:
            centres.append(row)
            members.append([row])
    chosen = []
    for rows in members:
        mean = vectors[rows].mean(axis=0)
        chosen.append(rows[int(((vectors[rows] - mean) ** 2).sum(axis=1).argmin())])
    return np.array(chosen, np.int64)


# -- edges -------------------------------------------------------------------------------------------------------


def joined(vectors: Floats, distance: Any, longest: float) -> csr_array:
    """Edges up to `longest` steps, plus the shortest edges that join the components (GAS)."""
    steps = distance(vectors, vectors)
    graph = _edges(steps, longest)
    number, part = connected_components(graph, directed=True, connection="strong")
    while number > 1:
        mine = part == part[0]
        for inside, outside in ((mine, ~mine), (~mine, mine)):
            block = steps[np.ix_(inside, outside)]
            u, v = np.unravel_index(int(block.argmin()), block.shape)
            u, v = np.flatnonzero(inside)[u], np.flatnonzero(outside)[v]
            graph = graph + coo_array(([steps[u, v]], ([u], [v])), shape=graph.shape).tocsr()
        number, part = connected_components(graph, directed=True, connection="strong")
    return graph


def penalised(vectors: Floats, distance: Any, limit: float, longest: float) -> csr_array:
    """Edges whose cost beyond `limit` steps is their length times the cube of length / limit (TTGS).

    Edges are at most `longest` steps long, and shorter than the cap of the distance.
    """
    longest = min(longest, np.nextafter(np.float32(distance.far), np.float32(0)))
    parts = [_edges(distance(vectors[rows], vectors), longest) for rows in _parts(np.arange(len(vectors)), 500)]
    data = np.concatenate([part.data for part in parts])
    columns = np.concatenate([part.indices for part in parts])
    ends = np.cumsum([0, *np.concatenate([np.diff(part.indptr) for part in parts])])
    weights = data * np.maximum(1, data / limit) ** 3
    return csr_array((weights, columns, ends), shape=(len(vectors), len(vectors)))


def _edges(steps: Floats, longest: float) -> csr_array:
    rows, columns = np.nonzero(steps <= longest)
    weights = np.maximum(steps[rows, columns], 1e-3)  # SciPy treats 0 as no edge
    return csr_array((weights, (rows, columns)), shape=steps.shape)


def _parts(rows: Ints, size: int) -> list[Ints]:
    return [rows[low : low + size] for low in range(0, len(rows), size)]


# -- the agent ---------------------------------------------------------------------------------------------------


class PathAgent:
    """Agent that heads for the goal if it is within reach, otherwise for the farthest vertex of its path within reach.

    Attributes:
        targets: (V, ...) observations of the vertices.
        reach: steps within which a vertex or the goal is approached directly.
        replans: plan in every step (GAS), or once and again when the path is lost (TTGS).
    """

    def __init__(
        self,
        targets: NDArray[Any],
        vectors: Floats,
        graph: csr_array,
        distance: Any,
        controller: Any,
        reach: float,
        replans: bool,
    ) -> None:
        """Follow a graph over (V, ...) observations with (V, e) embeddings."""
        self.targets, self.vectors, self.distance, self.controller = targets, vectors, distance, controller
        self.reach, self.replans = reach, replans
        self._back = graph.T.tocoo()
        self._new = np.empty(0, np.bool_)
        self.reset(0)

    def reset(self, episodes: int | None = None, mask: Bools | None = None) -> None:
        """Start `episodes` new episodes, or only those of `mask`."""
        if mask is None:
            number = len(self._new) if episodes is None else episodes
            self._new, self._lost = np.ones(number, np.bool_), np.zeros(number, np.bool_)
            self._cost = np.full((number, len(self.vectors)), np.inf, np.float32)  # steps from vertices to the goal
            self._next = np.full((number, len(self.vectors)), -1, np.int32)  # next vertex of each vertex
            self._paths: list[Ints] = [np.empty(0, np.int64)] * number
            self._goal_vectors = np.zeros((number, self.vectors.shape[1]), np.float32)
        else:
            self._new[mask] = True
            self._lost[mask] = False

    def act_many(self, observations: Any, goals: Any, *, active: Bools | None = None) -> NDArray[Any]:
        """Actions for a batch: (n, ...) observations, or a dict of them, and (n, ...) goals."""
        seen = np.asarray(observations["observation"] if isinstance(observations, dict) else observations)
        goals = np.asarray(goals)
        rows = np.arange(len(seen)) if active is None else np.flatnonzero(active)
        if len(self._new) != len(seen):
            self.reset(len(seen))
        vectors = self.distance.embed(seen[rows])
        if self._new[rows].any():
            self._search(rows[self._new[rows]], goals)
        plans = self._new[rows] | self._lost[rows] | self.replans
        if plans.any():
            self._plan(rows[plans], vectors[plans])
        self._new[rows] = False
        aims = np.array(goals)
        chosen = self._farthest(rows, vectors)
        near = self.distance.pairs(vectors, self._goal_vectors[rows]) <= self.reach
        follows = (chosen >= 0) & ~near
        aims[rows[follows]] = self.targets[chosen[follows]]
        actions = np.asarray(self.controller(seen[rows], aims[rows]))
        complete = np.zeros((len(seen), *actions.shape[1:]), actions.dtype)
        complete[rows] = actions
        return complete

    def _search(self, rows: Ints, goals: NDArray[Any]) -> None:
        """Find the shortest paths from all vertices to the goals of these episodes."""
        size = len(self.vectors)
        self._goal_vectors[rows] = self.distance.embed(goals[rows])
        steps = self.distance(self.vectors, self._goal_vectors[rows]).T
        attached = (steps <= np.maximum(self.reach, steps.min(axis=1, keepdims=True))) & (steps < self.distance.far)
        number, column = np.nonzero(attached)
        back = self._back
        graph = csr_array(
            (
                np.concatenate([back.data, np.maximum(steps[number, column], 1e-3)]),
                (np.concatenate([back.row, size + number]), np.concatenate([back.col, column])),
            ),
            shape=(size + len(rows), size + len(rows)),
        )
        cost, following = dijkstra(graph, indices=size + np.arange(len(rows)), return_predecessors=True)
        self._cost[rows], self._next[rows] = cost[:, :size], following[:, :size]

    def _plan(self, rows: Ints, vectors: Floats) -> None:
        """Choose the first vertices, and follow the shortest paths from there."""
        steps, cost = self.distance(vectors, self.vectors), self._cost[rows]
        total = np.where(steps <= self.reach, steps + cost, np.inf)
        away = ~np.isfinite(total).any(axis=1)
        near = np.isfinite(cost[away]) & (steps[away] < self.distance.far)
        total[away] = np.where(near, steps[away], np.inf)
        for place, row in enumerate(rows.tolist()):
            start = int(total[place].argmin())
            known = np.isfinite(total[place, start])
            self._paths[row] = self._follow(row, start) if known else np.empty(0, np.int64)

    def _follow(self, row: int, start: int) -> Ints:
        """Vertices of the path from one vertex on; only as many as are considered if the next step replans."""
        path, following = [start], self._next[row]
        while 0 <= following[path[-1]] < len(self.vectors) and not (self.replans and len(path) >= AHEAD):
            path.append(int(following[path[-1]]))
        return np.array(path, np.int64)

    def _farthest(self, rows: Ints, vectors: Floats) -> Ints:
        """(m,) last vertex of each path that is within reach, otherwise the next vertex; −1 without a path."""
        heads = [self._paths[row][:AHEAD] for row in rows.tolist()]
        sizes = np.array([len(head) for head in heads])
        chosen = np.full(len(rows), -1)
        if not sizes.any():
            return chosen
        flat = np.concatenate(heads)
        steps = self.distance.pairs(np.repeat(vectors, sizes, axis=0), self.vectors[flat])
        ends = np.cumsum(sizes)
        for place, (row, size, end) in enumerate(zip(rows.tolist(), sizes.tolist(), ends.tolist(), strict=True)):
            if size:
                mine = steps[end - size : end]
                within = np.flatnonzero(mine <= self.reach)
                last = int(within[-1]) if len(within) else 0
                self._paths[row] = self._paths[row][last:]
                self._lost[row] = mine[last] >= self.distance.far
                chosen[place] = self._paths[row][0]
        return chosen
