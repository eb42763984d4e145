"""Fast code: whether waypoints have been reached, asking as few nodes as can be.

The plain version is `reached` in localise.py, which compares distances to all nodes. It is the oracle of the tests.
`python -m speed.navigation` times cleanup, which asks this at every step.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Bools, Ints
from .distance import Distance, Floats, between, paired
from .graph import Graph
from .nodes import Nodes

OVER = ("all", "neighbours")
_WITNESSES = 3  # nodes kept for each waypoint that told it apart from where an agent was
_PROOF_WORTH = 8  # checks of a waypoint against all nodes after which proofs about it pay
_MANY = 4096  # nodes from which on the neighbours of a waypoint are asked before all
_ROUNDING = 1e-3  # share of the cutoff that distances may be off
_ROW_BYTES = 1 << 26  # worth of waypoints' distances to all nodes that is kept


class WaypointTest:
    """Whether waypoints have been reached: ‖d(s, ·) − d(w, ·)‖∞ < cutoff over all nodes.

    One node suffices to refute that exactly. The waypoint itself does so nearly always; then those nodes are asked that
    refuted it for this waypoint before; only what passes them needs all nodes. Where the distance keeps the triangle
    inequality (`distance.triangle`), no node tells two places apart by more than the way between them.
    """

    def __init__(self, nodes: Nodes, graph: Graph) -> None:
        """Test against these nodes, which this graph joins."""
        self._nodes = nodes
        self._graph = graph
        self._distance: Distance | None = None
        self._to_itself: Floats = np.empty(0, np.float32)
        self._witnesses: Ints = np.empty((0, _WITNESSES), np.int64)
        self._rows: OrderedDict[int, NDArray[np.float32]] = OrderedDict()
        self._checks: Ints = np.empty(0, np.int64)
        self._telling: dict[tuple[int, float], Ints] = {}
        self._known_neighbours: dict[tuple[int, bool], tuple[Ints, Floats]] = {}
        self._version = -1  # of the graph that has these neighbours

    def __call__(
        self, distance: Distance, states: Floats, waypoints: Ints, cutoff: float, nearby: bool = False
    ) -> Bools:
        """(n, e) states and (n,) waypoint nodes to (n,) bool; `nearby`: only neighbours of the waypoints are asked."""
        self._refresh(distance)
        limit = np.float32(cutoff)
        standing = self._nodes.embedding
        steps = paired(distance, states, standing[waypoints])
        left = np.flatnonzero(np.abs(steps - self._steps_to_itself(distance, waypoints)) < limit)
        result = np.zeros(len(states), np.bool_)
        if nearby:
            if len(left):
                result[left] = ~self._told_apart_nearby(distance, states[left], waypoints[left], limit, kept=True)
            return result
        if len(left) and getattr(distance, "triangle", False) is True:
            back = paired(distance, standing[waypoints[left]], states[left])
            result[left] = proven = np.maximum(steps[left], back) < (1 - _ROUNDING) * limit
            left = left[~proven]
        if len(left):
            left = left[~self._refuted(distance, states[left], waypoints[left], limit)]
        if len(left) and len(standing) >= _MANY:
            left = left[~self._told_apart_nearby(distance, states[left], waypoints[left], limit)]
        if len(left):
            worst, gap = self._widest_gaps(distance, states[left], waypoints[left], cutoff)
            result[left] = passed = gap < limit
            self._remember(waypoints[left[~passed]], worst[~passed])
        return result

    def _steps_to_itself(self, distance: Distance, waypoints: Ints) -> Floats:
        """(n,) what the distance says of waypoints to themselves."""
        steps: Floats = self._to_itself[waypoints]
        missing = np.isnan(steps)
        if missing.any():
            chosen = self._nodes.embedding[waypoints[missing]]
            steps[missing] = self._to_itself[waypoints[missing]] = paired(distance, chosen, chosen)
        return steps

    def _told_apart_nearby(
        self, distance: Distance, states: Floats, waypoints: Ints, limit: np.float32, kept: bool = False
    ) -> Bools:
        """Which claims the neighbours of the waypoints in the graph refute; `kept`: those over edges in the filter."""
        found = [self._neighbours(distance, waypoint, kept) for waypoint in waypoints.tolist()]
        node, theirs = (np.concatenate(parts) for parts in zip(*found, strict=True))
        owner = np.repeat(np.arange(len(found)), [len(nodes) for nodes, _ in found])
        told = np.zeros(len(states), np.bool_)
        if len(node):
            ours = paired(distance, states[owner], self._nodes.embedding[node])
            told[owner[np.abs(ours - theirs) >= limit]] = True
        return told

    def _neighbours(self, distance: Distance, waypoint: int, kept: bool) -> tuple[Ints, Floats]:
        """The neighbours of a waypoint, and the steps from it to them."""
        graph = self._graph
        if self._version != graph.version:
            self._known_neighbours.clear()
            self._version = graph.version
        known = self._known_neighbours.get((waypoint, kept))
        if known is None:
            after, before = graph.out_of().at(waypoint), graph.into().at(waypoint)
            if kept:
                passing = graph.in_filter()
                after, before = after[passing[after]], before[passing[before]]
            nodes = np.unique(np.concatenate([graph.target.values[after], graph.source.values[before]]))
            standing = self._nodes.embedding
            own = np.broadcast_to(standing[waypoint], (len(nodes), standing.shape[1]))
            known = self._known_neighbours[waypoint, kept] = (
                nodes.astype(np.int64),
                paired(distance, own, standing[nodes]),
            )
        return known

    def _widest_gaps(
        self, distance: Distance, states: Floats, waypoints: Ints, cutoff: float
    ) -> tuple[Ints, NDArray[np.float32]]:
        """The node that tells each state and its waypoint apart most, and by how much; exact where it matters.

        Where the distance can prove that a node tells nobody close to the waypoint apart, that node is left out.
        """
        standing = self._nodes.embedding
        radius = getattr(distance, "unchanged_radius", -1.0)
        np.add.at(self._checks, waypoints, 1)
        close = np.abs(states - standing[waypoints]).max(axis=1) <= radius
        close &= self._checks[waypoints] > _PROOF_WORTH
        worst, gap = np.zeros(len(states), np.int64), np.zeros(len(states), np.float32)
        far = np.flatnonzero(~close)
        if len(far):
            gaps = np.abs(between(distance, states[far], standing) - self._rows_of(distance, waypoints[far]))
            worst[far], gap[far] = gaps.argmax(axis=1), gaps.max(axis=1)
        near = np.flatnonzero(close)
        if len(near):
            columns = [self._telling_nodes(distance, int(node), cutoff) for node in waypoints[near]]
            column, owner = np.concatenate(columns), np.repeat(near, [len(some) for some in columns])
            theirs = self._rows_of(distance, waypoints[near])[np.searchsorted(near, owner), column]
            gaps = np.abs(paired(distance, states[owner], standing[column]) - theirs)
            order = np.lexsort((-gaps, owner))
            first = order[np.searchsorted(owner[order], near)]
            worst[near], gap[near] = column[first], gaps[first]
        return worst, gap

    def _telling_nodes(self, distance: Any, waypoint: int, cutoff: float) -> Ints:
        """The nodes that may tell a state close to a waypoint apart from it; the waypoint is always one."""
        key = (waypoint, cutoff)
        if key not in self._telling:
            standing = self._nodes.embedding
            row = self._rows_of(distance, np.array([waypoint]))[0]
            proven = distance.unchanged_nearby(standing[waypoint], standing, row, cutoff)
            proven[waypoint] = False
            self._telling[key] = np.flatnonzero(~proven)
        return self._telling[key]

    def _refuted(self, distance: Distance, states: Floats, waypoints: Ints, limit: np.float32) -> Bools:
        """Which claims the known witnesses refute."""
        refuted = np.zeros(len(states), np.bool_)
        for witness in self._witnesses[waypoints].T:
            asked = np.flatnonzero(~refuted & (witness >= 0))
            if len(asked):
                theirs = self._rows_of(distance, waypoints[asked])[np.arange(len(asked)), witness[asked]]
                ours = paired(distance, states[asked], self._nodes.embedding[witness[asked]])
                refuted[asked] = np.abs(ours - theirs) >= limit
        return refuted

    def _remember(self, waypoints: Ints, witnesses: Ints) -> None:
        """The latest witness is asked first from now on."""
        for waypoint, witness in zip(waypoints, witnesses, strict=True):
            others = [other for other in self._witnesses[waypoint] if other != witness]
            self._witnesses[waypoint] = [witness, *others][:_WITNESSES]

    def _refresh(self, distance: Distance) -> None:
        """Nodes never change, but there may be more of them than last time, or none of those known any more."""
        size, known = len(self._nodes.embedding), len(self._to_itself)
        if size == known:
            return
        self._rows.clear()
        self._telling.clear()
        if size < max(known, _MANY) or distance is not self._distance:
            known = 0
        self._distance = distance
        more = size - known
        unknown = np.full(more, np.nan, np.float32)
        if size < _MANY:
            unknown = paired(distance, self._nodes.embedding, self._nodes.embedding)
        self._to_itself = np.concatenate([self._to_itself[:known], unknown])
        self._checks = np.concatenate([self._checks[:known], np.zeros(more, np.int64)])
        self._witnesses = np.concatenate([self._witnesses[:known], np.full((more, _WITNESSES), -1)])

    def _rows_of(self, distance: Distance, waypoints: Ints) -> Floats:
        """(n, V) steps from waypoints to all nodes, from the cache where they are known."""
        missing = np.array([node for node in np.unique(waypoints) if int(node) not in self._rows], np.int64)
        standing = self._nodes.embedding
        if len(missing):
            self._rows.update(zip(missing.tolist(), between(distance, standing[missing], standing), strict=True))
        rows = np.stack([self._rows[node] for node in waypoints.tolist()])
        while len(self._rows) > max(1, _ROW_BYTES // (4 * len(standing))):
            self._rows.popitem(last=False)
        return rows
