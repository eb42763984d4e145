"""Searches on graphs of many nodes: one way at a time, with landmarks, on trees that grow and are repaired.

Where `Planner` would compute the shortest ways from everywhere to a goal, this computes the one that is asked for, by
A* with landmarks (Goldberg and Harrelson, "Computing the shortest path: A* search meets graph theory", 2005), and keeps
what it found out on the way. The result is exact, to the last bit. It needs numba (extra `fast`).
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
_COLUMNS = 8  # bounds looked at in one search: those that are the highest between its ends
_EARLY = 8  # times the nodes that searches without landmarks expand before landmarks pay
_ROUNDING = 1e-9  # share of the longest way that sums of prices may be off
_OFTEN = 0.25  # times the nodes that searches for one goal go through, before its whole tree pays
_STALE = 0.1  # share of the edges whose prices changed, from which on a tree, or landmarks, are better made anew


def with_room(column: NDArray[Any], size: int) -> NDArray[Any]:
    """An array with at least so many rows, and room for more; new rows are zeros."""
    grown = np.zeros((size + size // 8 + 64, *column.shape[1:]), column.dtype)
    grown[: len(column)] = column
    return grown


class Rows:
    """Adjacency lists in one pool, with room to grow: of each node the other ends and prices of its edges."""

    def __init__(self, nodes: int, near: Ints, far: Ints, distance: Prices, hops: Prices, edge: Ints) -> None:
        """Hold (m,) edges, by their end `near`."""
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
        """Rows, their lengths, other ends and prices, as the compiled searches take them."""
        return self.row, self.count, self.other, self.distance if by == "distance" else self.hops

    def add_nodes(self, nodes: int) -> None:
        """Grow to so many nodes."""
        if nodes > len(self.row):
            self.row, self.count, self.room = (with_room(column, nodes) for column in (self.row, self.count, self.room))

    def put(self, near: Ints, far: Ints, distance: Prices, hops: Prices, edge: Ints) -> None:
        """Add edges, or set what they cost."""
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
        """Take edges out."""
        from . import fast_paths

        columns = self.row, self.count, self.other, self.distance, self.hops, self.edge
        fast_paths.take_out(*columns, near, far)


class _Ends:
    """The sources and targets of edges, in the order in which they were noted."""

    def __init__(self) -> None:
        self._ends = Column(np.int64, (2,))

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, ends: Ints) -> None:
        """Note (2, m) sources and targets."""
        self._ends.append(ends.T)

    def since(self, first: int) -> Ints:
        """(2, m) those from a number on."""
        ends: Ints = self._ends.values[first:].T
        return ends


@dataclasses.dataclass(eq=False)
class Growing:
    """Ways to a goal as far as they are known.

    Attributes:
        cost: (V,) labels, what the best way found so far costs; anything where none was found.
        following: (V,) the next node on it; likewise.
        state: (V,) whether a label was found, and what it is worth, see fast_paths.py.
        frontier: open nodes, whose label fell since they were expanded.
        changes: how many changes of prices are accounted for.
        start: the node whose label is final; −1: all are; None: unknown.
        work: nodes expanded, and open ones gone through, since the tree was made.
    """

    cost: Prices
    following: Nodes
    state: NDArray[np.uint8]
    frontier: Nodes
    changes: int
    start: int | None = None
    work: int = 0

    def add_nodes(self, nodes: int) -> None:
        """Grow to so many nodes."""
        if nodes > len(self.cost):
            self.cost, self.following = with_room(self.cost, nodes), with_room(self.following, nodes)
            self.state = with_room(self.state, nodes)


class Searches:
    """Shortest ways under one kind of price, on rows that the planner keeps up to date."""

    def __init__(self, nodes: int, into: Rows, out: Rows, by: str, tree_bytes: int) -> None:
        """Search on the rows of edges into and out of nodes."""
        self.into, self.out, self.by = into, out, by
        self.nodes = nodes
        self.trees: OrderedDict[int, Growing] = OrderedDict()
        self._unused: Growing | None = None  # a tree that is not kept any more, for its arrays
        self.potentials: Prices | None = None  # (V, 2 · LANDMARKS) steps to and from landmarks, or less
        self._no_bounds = np.empty((0, 0))
        self._slack = 0.0
        self._tree_bytes = tree_bytes
        self._changed = _Ends()
        self._forgotten = 0  # changes that no tree needs to know of any more
        self._cheaper = _Ends()  # edges that became so since the potentials were made
        self._lowered = np.zeros(0, np.int64)  # how many of them each column accounts for
        self._work = 0  # nodes expanded without landmarks

    def change(self, ends: Ints, cheaper: Ints) -> None:
        """Take note that edges, (2, m), have another price, are new, or are gone; and of those that became cheaper."""
        self._changed.add(ends)
        if self.potentials is not None:
            self._cheaper.add(cheaper)

    def add_nodes(self, nodes: int) -> None:
        """Grow to so many nodes."""
        self.nodes = nodes
        if self.potentials is not None and nodes > len(self.potentials):
            known = len(self.potentials)
            self.potentials = with_room(self.potentials, nodes)
            self.potentials[known:] = np.inf

    def cost(self, start: int, goal: int) -> float:
        """What the shortest way between two nodes costs; infinite if there is none."""
        tree = self._grown(goal, start)
        return float(tree.cost[start]) if tree.state[start] else math.inf

    def path(self, start: int, goal: int) -> Ints:
        """The nodes of the shortest way between two nodes that are joined."""
        from . import fast_paths

        path: Ints = fast_paths.follow(self._grown(goal, start).following, start, goal)
        return path

    def following(self, start: int, goal: int) -> int:
        """The next node on the way to the goal; −1 at the goal and where there is no way."""
        tree = self._grown(goal, start)
        return int(tree.following[start]) if tree.state[start] else -1

    def whole(self, goal: int) -> tuple[Prices, Nodes]:
        """What the ways from everywhere cost, and the next nodes on them."""
        tree = self._grown(goal, -1)
        known = tree.state[: self.nodes] > 0
        cost = np.where(known, tree.cost[: self.nodes], np.inf)
        return cost, np.where(known, tree.following[: self.nodes], np.int32(-1))

    def leads_round(self, edges: Ints) -> bool:
        """Whether a way leads from the source to the target of the first of (m, 2) edges that has none of them."""
        from . import fast_paths

        return bool(fast_paths.leads_round(*self.into.lists(self.by), edges[0, 0], edges[0, 1], edges))

    def _grown(self, goal: int, start: int) -> Growing:
        """The tree of a goal, grown until the label of `start` is final; −1: until all are."""
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
        """The tree of a goal as far as it is known, true to the prices of now."""
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
        """A tree that has only its goal; in the arrays of one that is gone, if there is one: RAM that was used before.

        Where the state says that nothing is known, cost and next node may be anything.
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
        """Drop the older half of many changes; trees that have not taken them over go when they are asked for."""
        if len(self._changed) > 2 * _STALE * self.nodes + 1024:
            half = len(self._changed) // 2
            newer, self._changed = self._changed.since(half), _Ends()
            self._changed.add(newer)
            self._forgotten += half

    # -- landmarks -----------------------------------------------------------------------------------------------

    def _have_bounds(self) -> bool:
        """Whether there are potentials; they are made when they pay, and dropped when much has become cheaper."""
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
        """The columns to bound ways from start to goal with, true to the prices of now."""
        from . import fast_paths

        assert self.potentials is not None
        lists = *self.into.lists(self.by), *self.out.lists(self.by)
        columns: Ints = fast_paths.choose_columns(*lists, self.potentials, start, goal, _COLUMNS)
        for column in columns.tolist():
            self._lower(column)
        return columns

    def prepare(self) -> None:
        """Choose landmarks, each as far as can be from those before it, and compute what ways to and from them cost."""
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
        """What ways from a node cost that many can be reached from."""
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
        """Make potentials bounds again after edges became cheaper."""
        from . import fast_paths

        assert self.potentials is not None
        if self._lowered[column] == len(self._cheaper):
            return
        source, target = self._cheaper.since(self._lowered[column])
        rows, ends = (self.out, (source, target)) if column % 2 else (self.into, (target, source))
        fast_paths.lower(*rows.lists(self.by), self.potentials, column, *ends)
        self._lowered[column] = len(self._cheaper)
