"""Positions of the nodes of a memory in figures: true positions, or a layout by path lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import sgm
from sgm.memory.given import ACHIEVED_GOAL, POSITION

Floats = NDArray[np.float64]
LANDMARKS = 100  # nodes whose distances to all others determine a layout
_BEYOND = 1.3  # distance of nodes without a path, as a multiple of the longest path


class Layout(NamedTuple):
    """Positions of nodes in a figure.

    Attributes:
        places: (V, 2) positions with the vertical coordinate first, as the figures expect.
        about: description of the positions, for captions.
        true: whether distances between positions are those of the environment.
    """

    places: Floats
    about: str
    true: bool


def lay_out(memory: sgm.SparseGraphicalMemory) -> Layout:
    """Positions of the nodes: true ones, else 2-D achieved goals or observations, else a layout by path lengths."""
    for name, about in ((POSITION, "true positions"), (ACHIEVED_GOAL, "achieved goals")):
        values = memory.attributes.get(name)
        if values is not None and _is_flat(values, name == POSITION):
            return Layout(np.asarray(values[:, 1::-1], np.float64), f"nodes at their {about}", True)
    if memory.settings.keep_observations and memory.observations.shape[1:] == (2,):
        return Layout(np.asarray(memory.observations[:, ::-1], np.float64), "nodes at their observations", True)
    return Layout(
        by_paths(len(memory), memory.edges()),
        "no positions are known: nodes are laid out by the lengths of paths between them (multidimensional scaling)",
        False,
    )


def places_of(data: sgm.Experience) -> Floats | None:
    """(n, 2) positions of observations, vertical coordinate first, in the same space as `lay_out`; None if unknown."""
    known: Mapping[str, Any] = {"position": data.positions, "goal": data.achieved_goals, "seen": data.observations}
    for name, values in known.items():
        if values is not None and _is_flat(values, name == "position"):
            return np.asarray(values[:, 1::-1], np.float64)
    return None


def _is_flat(values: NDArray[Any], more: bool) -> bool:
    """Whether values have shape (n, 2), or, with `more`, (n, 3 or more) of which the first two are x and y."""
    return values.ndim == 2 and (values.shape[1] == 2 or (more and values.shape[1] > 2))


def by_paths(number: int, edges: sgm.Edges) -> Floats:
    """(number, 2) positions whose distances approximate path lengths; an edge counts in both directions.

    Landmark multidimensional scaling (de Silva and Tenenbaum, 2004): classical scaling of some nodes spread over the
    graph; the others are positioned by their distances to these.
    """
    if number < 3 or not len(edges.source):
        return np.stack([np.zeros(number), np.arange(number, dtype=np.float64)], axis=1)
    graph = csr_array((np.maximum(edges.weight, 1e-3), (edges.source, edges.target)), shape=(number, number))
    steps = _from_landmarks(graph, min(LANDMARKS, number))
    landmarks = steps.argmin(axis=1)
    squares = steps[:, landmarks] ** 2
    means = squares.mean(axis=1)
    centred = -0.5 * (squares - means[:, None] - means + squares.mean())
    values, vectors = np.linalg.eigh(centred)
    values, vectors = np.maximum(values[-2:], 1e-9)[::-1], vectors[:, -2:][:, ::-1]
    places: Floats = -0.5 * (steps**2 - means[:, None]).T @ (vectors / np.sqrt(values))
    return places[:, ::-1]  # the longest extent is drawn from left to right


def _from_landmarks(graph: Any, number: int) -> Floats:
    """(number, V) path lengths from landmarks, each as far as possible from those before it, steps."""
    found: list[Floats] = []
    nearest = np.full(graph.shape[0], np.inf)
    following = int(np.asarray(graph.sum(axis=1)).argmax())
    for _ in range(number):
        steps = dijkstra(graph, directed=False, indices=following)
        found.append(steps)
        nearest = np.minimum(nearest, steps)
        following = int(np.where(np.isfinite(nearest), nearest, -1).argmax())
        if nearest[following] == 0:  # every reachable node is a landmark
            break
    steps = np.stack(found)
    longest = steps[np.isfinite(steps)].max()
    return np.where(np.isfinite(steps), steps, _BEYOND * longest)


def longest_plan(memory: sgm.SparseGraphicalMemory) -> sgm.Plan | None:
    """Return a plan between two nodes that are nearly the farthest apart; None if no two are connected."""
    edges = memory.edges()
    if not len(edges.source):
        return None
    size = len(memory)
    graph = csr_array((np.maximum(edges.weight, 1e-3), (edges.source, edges.target)), shape=(size, size))
    goal = int(np.bincount(edges.target, minlength=size).argmax())
    start = goal
    for turn in range(2):  # first the farthest start, then the farthest goal from there
        steps = dijkstra(graph.T if turn == 0 else graph, indices=goal if turn == 0 else start)
        steps[~np.isfinite(steps)] = -1
        if turn == 0:
            start = int(steps.argmax())
        else:
            goal = int(steps.argmax())
    return memory.plan_nodes(start, goal) if start != goal else None
