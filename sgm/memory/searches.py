"""Shortest-path searches on large graphs: one path at a time, with landmarks, on trees that grow and are repaired.

On smaller graphs `Planner` computes the shortest paths from all nodes to a goal. Here only the requested path is
computed, by A* with landmarks (Goldberg and Harrelson, "Computing the shortest path: A* search meets graph theory",
2005), and the part of the tree found so far is kept. Costs are equal to those of `Planner` bit for bit. It needs numba
(extra `fast`).
"""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .arrays import Column, Ints, ragged

Prices = NDArray[np.float64]
Nodes = NDArray[np.int32]
LANDMARKS = 24
_COLUMNS = 8  # number of landmark bounds used in one search: those that are highest between its ends
_EARLY = 8  # landmarks are made after searches have expanded this number times the nodes
_ROUNDING = 1e-9  # rounding error of a sum of costs, as a share of the longest path
_OFTEN = 0.25  # the whole tree of a goal is computed after its searches have visited this share of the nodes
_STALE = 0.1  # changed edges, as a share of the number of nodes, above which a tree is made again


def with_room(column: NDArray[Any], size: int) -> NDArray[Any]:
    """Return a copy of an array with at least `size` rows, and room for more; new rows are zeros."""
    grown = np.zeros((size + size // 8 + 64, *column.shape[1:]), column.dtype)
    grown[: len(column)] = column
    return grown


class Rows:
    """Adjacency lists in one pool, with room to grow: the other ends and costs of the edges of each node."""

    def __init__(self, nodes: int, near: Ints, far: Ints, distance: Prices, hops: Prices, edge: Ints) -> None:
        """Store (m,) edges, grouped by their end `near`."""
        grouped = csr_array((np.arange(len(near)), (near, far)), shape=(nodes, nodes))
        count = np.diff(grouped.indptr)
        room = count + 4
        self.count, self.room = with_room(count.astype(np.int32), nodes), with_room(room.astype(np.int32), nodes)
        self.row = with_room((np.cumsum(room) - room).astype(np.int64), nodes)
        self.used = int(room.sum())
        places, _ = ragged(self.row[:nodes], count.astype(np.int64))
        size = self.used + self.used // 8 + 1024
        self.other, self.edge = np.zeros(size, np.int32), np.zeros(size, np.int64)
        self.distance, self.hops = np.zeros(size), np.zeros(size)
        self.other[places] = grouped.indices
        for column, values in ((self.distance, distance), (self.hops, hops), (self.edge, edge)):
            column[places] = values[grouped.data]

    def lists(self, by: str) -> tuple[Ints, Nodes, Nodes, Prices]:
        """Return rows, their lengths, other ends and costs, as the compiled searches take them."""
        return self.row, self.count, self.other, self.distance if by == "distance" else self.hops

    def add_nodes(self, nodes: int) -> None:
        """Grow to `nodes` nodes."""
        if nodes > len(self.row):
            self.row, self.count, self.room = (with_room(column, nodes) for column in (self.row, self.count, self.room))

    def put(self, near: Ints, far: Ints, distance: Prices, hops: Prices, edge: Ints) -> None:
        """Add edges, or set the costs of existing ones."""
        from . import fast_paths

        done = 0
        while done < len(near):
            columns = self.row, self.count, self.room, self.other, self.distance, self.hops, self.edge
            self.used, done = fast_paths.put(*columns, self.used, done, near, far, distance, hops, edge)
            if done < len(near):
                for name in ("other", "distance", "hops", "edge"):
                    column = getattr(self, name)
                    setattr(self, name, np.concatenate([column, np.zeros(len(column) // 2 + 1024, column.dtype)]))

    def take_out(self, near: Ints, far: Ints) -> None:
        """Remove edges."""
        from . import fast_paths

        columns = self.row, self.count, self.other, self.distance, self.hops, self.edge
        fast_paths.take_out(*columns, near, far)


class _Ends:
    """Sources and targets of edges, in the order in which they were added."""

    def __init__(self) -> None:
        self._ends = Column(np.int64, (2,))

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, ends: Ints) -> None:
        """Add (2, m) sources and targets."""
        self._ends.append(ends.T)

    def since(self, first: int) -> Ints:
        """(2, m) sources and targets from number `first` on."""
        ends: Ints = self._ends.values[first:].T
        return ends


@dataclasses.dataclass(eq=False)
class Growing:
    """The tree of shortest paths to a goal, as far as it is known.

    Attributes:
        cost: (V,) labels: cost of the best path found so far; undefined if none was found.
        following: (V,) the next node on that path; undefined if none was found.
        state: (V,) state of the label, see fast_paths.py.
        frontier: open nodes, whose label fell since they were expanded.
        changes: number of cost changes that the tree includes.
        start: the node whose label is final; −1: all labels are; None: unknown.
        work: number of nodes expanded, and of open nodes visited, since the tree was made.
    """

    cost: Prices
    following: Nodes
    state: NDArray[np.uint8]
    frontier: Nodes
    changes: int
    start: int | None = None
    work: int = 0

    def add_nodes(self, nodes: int) -> None:
        """Grow to `nodes` nodes."""
        if nodes > len(self.cost):
            self.cost, self.following = with_room(self.cost, nodes), with_room(self.following, nodes)
            self.state = with_room(self.state, nodes)


class Searches:
    """Shortest paths by one kind of cost, on rows that the planner keeps up to date."""

    def __init__(self, nodes: int, into: Rows, out: Rows, by: str, tree_bytes: int) -> None:
        """Search on the rows of incoming and outgoing edges of nodes."""
        self.into, self.out, self.by = into, out, by
        self.nodes = nodes
        self.trees: OrderedDict[int, Growing] = OrderedDict()
        self._unused: Growing | None = None  # a dropped tree whose arrays are used again
        self.potentials: Prices | None = None  # (V, 2 · LANDMARKS) costs to and from landmarks, or lower bounds of them
        self._no_bounds = np.empty((0, 0))
        self._slack = 0.0
        self._tree_bytes = tree_bytes
        self._changed = _Ends()
        self._forgotten = 0  # number of dropped changes
        self._cheaper = _Ends()  # edges whose cost fell since the potentials were made
        self._lowered = np.zeros(0, np.int64)  # number of them that each column of potentials includes
        self._work = 0  # number of nodes expanded without landmarks

    def change(self, ends: Ints, cheaper: Ints) -> None:
        """Note the (2, m) ends of edges that are new, removed or have another cost, and of those whose cost fell."""
        self._changed.add(ends)
        if self.potentials is not None:
            self._cheaper.add(cheaper)

    def add_nodes(self, nodes: int) -> None:
        """Grow to `nodes` nodes."""
        self.nodes = nodes
        if self.potentials is not None and nodes > len(self.potentials):
            known = len(self.potentials)
            self.potentials = with_room(self.potentials, nodes)
            self.potentials[known:] = np.inf

    def cost(self, start: int, goal: int) -> float:
        """Cost of the shortest path between two nodes; infinite if there is none."""
        tree = self._grown(goal, start)
        return float(tree.cost[start]) if tree.state[start] else math.inf

    def path(self, start: int, goal: int) -> Ints:
        """Return the nodes of the shortest path between two nodes; there must be one."""
        from . import fast_paths

        path: Ints = fast_paths.follow(self._grown(goal, start).following, start, goal)
        return path

    def following(self, start: int, goal: int) -> int:
        """Return the next node on the shortest path to the goal; −1 at the goal and without a path."""
        tree = self._grown(goal, start)
        return int(tree.following[start]) if tree.state[start] else -1

    def whole(self, goal: int) -> tuple[Prices, Nodes]:
        """Return the costs of the shortest paths from all nodes to a goal, and the next nodes on them."""
        tree = self._grown(goal, -1)
        known = tree.state[: self.nodes] > 0
        cost = np.where(known, tree.cost[: self.nodes], np.inf)
        return cost, np.where(known, tree.following[: self.nodes], np.int32(-1))

    def leads_round(self, edges: Ints) -> bool:
        """Whether a path leads from the source to the target of the first of (m, 2) edges without using any of them."""
        from . import fast_paths

        return bool(fast_paths.leads_round(*self.into.lists(self.by), edges[0, 0], edges[0, 1], edges))

    def _grown(self, goal: int, start: int) -> Growing:
        """Return the tree of a goal, grown until the label of `start` is final; −1: until all labels are."""
        from . import fast_paths

        tree = self._up_to_date(goal)
        if tree.start in (-1, start) and tree.start is not None:
            return tree
        if tree.work > _OFTEN * self.nodes:
            start = -1
        columns = self._columns(start, goal) if start >= 0 and self._have_bounds() else np.empty(0, np.int64)
        bounds = self._no_bounds if self.potentials is None or not len(columns) else self.potentials
        labels = tree.cost, tree.following, tree.state, tree.frontier
        opened = len(tree.frontier)
        tree.frontier, expanded = fast_paths.search(
            *self.into.lists(self.by), *labels, bounds, columns, start, self._slack
        )
        tree.start = start if len(tree.frontier) else -1
        tree.work += expanded + opened if tree.start >= 0 else 0
        if not len(columns) and start >= 0:
            self._work += expanded
        return tree

    def _up_to_date(self, goal: int) -> Growing:
        """Return the known part of the tree of a goal, updated to the present costs."""
        known = self._forgotten + len(self._changed)
        tree = self.trees.pop(goal, None)
        if tree is not None and (tree.changes < self._forgotten or known - tree.changes > _STALE * self.nodes):
            tree = None
        if tree is None:
            tree = self._new_tree(goal, known)
        tree.add_nodes(self.nodes)
        if tree.changes < known:
            self._repair(tree)
        self.trees[goal] = tree
        while len(self.trees) > max(1, self._tree_bytes // (13 * self.nodes + 1)):
            self._unused = self.trees.popitem(last=False)[1]
        self._forget_changes()
        return tree

    def _new_tree(self, goal: int, changes: int) -> Growing:
        """Make a tree that has only its goal; arrays of a dropped tree are used again.

        Costs and next nodes are undefined where the state is UNKNOWN.
        """
        size, frontier = len(self.into.row), np.array([goal], np.int32)
        old, self._unused = self._unused, None
        if old is None or len(old.cost) < size:
            old = Growing(np.zeros(size), np.zeros(size, np.int32), np.zeros(size, np.uint8), frontier, 0)
        old.state[:] = 0
        tree = Growing(old.cost, old.following, old.state, frontier, changes)
        tree.cost[goal], tree.following[goal], tree.state[goal] = 0.0, -1, 1
        return tree

    def _repair(self, tree: Growing) -> None:
        from . import fast_paths

        labels = tree.cost, tree.following, tree.state, tree.frontier
        rows = *self.into.lists(self.by), *self.out.lists(self.by)
        tree.frontier = fast_paths.repair(*rows, *labels, *self._changed.since(tree.changes - self._forgotten))
        tree.changes, tree.start = self._forgotten + len(self._changed), None

    def _forget_changes(self) -> None:
        """Drop the older half of the changes if there are many; trees that lack them are made again on next use."""
        if len(self._changed) > 2 * _STALE * self.nodes + 1024:
            half = len(self._changed) // 2
            newer, self._changed = self._changed.since(half), _Ends()
            self._changed.add(newer)
            self._forgotten += half

    # -- landmarks -----------------------------------------------------------------------------------------------

    def _have_bounds(self) -> bool:
        """Whether there are potentials; they are made after much search, and dropped after many costs fell."""
        if self.potentials is not None and len(self._cheaper) > self.nodes:
            self.potentials = None
        elif self.potentials is not None and len(self._cheaper) > self.nodes // 16 + 64:
            for column in range(self.potentials.shape[1]):
                self._lower(column)
            self._cheaper, self._lowered = _Ends(), np.zeros_like(self._lowered)
        if self.potentials is None and self._work > _EARLY * self.nodes:
            self.prepare()
        return self.potentials is not None

    def _columns(self, start: int, goal: int) -> Ints:
        """Choose the columns of potentials that bound paths from start to goal, updated to the present costs."""
        from . import fast_paths

        assert self.potentials is not None
        lists = *self.into.lists(self.by), *self.out.lists(self.by)
        columns: Ints = fast_paths.choose_columns(*lists, self.potentials, start, goal, _COLUMNS)
        for column in columns.tolist():
            self._lower(column)
        return columns

    def prepare(self) -> None:
        """Choose landmarks, each as far as possible from the previous ones, and compute the costs to and from them."""
        from . import fast_paths

        steps = np.full((len(self.into.row), 2 * LANDMARKS), np.inf)
        column = np.empty(self.nodes)
        nearest = self._from_the_middle()
        for number in range(LANDMARKS):
            landmark = int(np.where(np.isfinite(nearest), nearest, -1.0).argmax())
            fast_paths.distances(*self.into.lists(self.by), landmark, column)
            steps[: self.nodes, 2 * number] = column
            fast_paths.distances(*self.out.lists(self.by), landmark, column)
            steps[: self.nodes, 2 * number + 1] = column
            away = np.maximum(column, steps[: self.nodes, 2 * number])
            nearest = np.minimum(nearest, away) if number else away
        finite = steps[np.isfinite(steps)]
        self._slack = _ROUNDING * float(finite.max(initial=0.0))
        self.potentials, self._cheaper, self._work = steps, _Ends(), 0
        self._lowered = np.zeros(steps.shape[1], np.int64)

    def _from_the_middle(self) -> Prices:
        """Return the costs of paths from a node from which many nodes can be reached."""
        from . import fast_paths

        steps, most, best = np.empty(self.nodes), -1, np.zeros(self.nodes)
        for node in np.linspace(0, self.nodes - 1, 5).astype(np.int64).tolist():
            fast_paths.distances(*self.out.lists(self.by), node, steps)
            if (found := int(np.isfinite(steps).sum())) > most:
                most, best = found, steps.copy()
            if 2 * most > self.nodes:
                break
        return best

    def _lower(self, column: int) -> None:
        """Lower a column of potentials so that they are lower bounds again after costs fell."""
        from . import fast_paths

        assert self.potentials is not None
        if self._lowered[column] == len(self._cheaper):
            return
        source, target = self._cheaper.since(self._lowered[column])
        rows, ends = (self.out, (source, target)) if column % 2 else (self.into, (target, source))
        fast_paths.lower(*rows.lists(self.by), self.potentials, column, *ends)
        self._lowered[column] = len(self._cheaper)
