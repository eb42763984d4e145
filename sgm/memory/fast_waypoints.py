"""Fast code: test whether waypoints have been reached, with as few distances as possible.

The readable version is `reached` in localise.py, which compares the distances to all nodes. It is the oracle of the
tests. `python -m speed.navigation` times cleanup, which does this test at every step.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Bools, Ints
from .distance import Distance, Floats, between, differing, paired
from .graph import Graph
from .nodes import Nodes

OVER = ("all", "neighbours")
_WITNESSES = 8  # refuted states stored for each waypoint
_PAIRS = 1 << 16  # pairs whose distances are computed at once
_FIRST_ASKED = 6  # nodes compared first, the nearest to the waypoint; each next group is six times as large
_PROOF_WORTH = 8  # tests of a waypoint against all nodes after which proofs about it are made; one costs about as much
_MANY = 4096  # with this many nodes or more, the neighbours of a waypoint are tested before all nodes
_ROUNDING = 1e-3  # rounding error of distances, as a share of the cutoff
_ROW_BYTES = 1 << 26  # size of the caches of distances from waypoints to all nodes, and of proofs


class _Witnesses:
    """The last states that had not reached each waypoint, each with a node that showed it (the witness).

    They are stored only for waypoints that were tested, since a memory may have many nodes.
    """

    def __init__(self) -> None:
        self._row: dict[int, int] = {}  # row of each waypoint in the following arrays
        self._states: Floats = np.empty((0, _WITNESSES, 0), np.float32)
        self._node: Ints = np.empty((0, _WITNESSES), np.int64)
        self._steps: Floats = np.empty((0, _WITNESSES), np.float32)  # from the waypoint to that node
        self._next: Ints = np.empty(0, np.int64)

    def clear(self) -> None:
        self._row.clear()

    def likely(self, states: Floats, waypoints: Ints) -> tuple[Ints, Floats]:
        """(n,) witness of the most similar stored state, −1: none, and (n,) steps from the waypoint to the witness."""
        row = np.array([self._row.get(waypoint, -1) for waypoint in waypoints.tolist()], np.int64)
        known = np.flatnonzero(row >= 0)
        node, steps = np.full(len(row), -1), np.zeros(len(row), np.float32)
        if len(known):
            row = row[known]
            gaps = np.square(self._states[row] - states[known, None]).sum(axis=2)
            place = gaps.argmin(axis=1)
            node[known], steps[known] = self._node[row, place], self._steps[row, place]
        return node, steps

    def likely_one(self, state: Floats, waypoint: int) -> tuple[int, Floats]:
        """The same for one (e,) state: a node, and (1,) steps."""
        row = self._row.get(waypoint)
        if row is None:
            return -1, np.empty(0, np.float32)
        gap = self._states[row] - state
        place = int((gap * gap).sum(axis=1).argmin())
        return int(self._node[row, place]), self._steps[row, place : place + 1]

    def remember(self, states: Floats, waypoints: Ints, nodes: Ints, steps: Floats) -> None:
        """Store witnesses: `nodes`, `steps` from the waypoints, show that the states have not reached them."""
        for state, waypoint, node, far in zip(states, waypoints.tolist(), nodes.tolist(), steps.tolist(), strict=True):
            row = self._row.get(waypoint)
            if row is None:
                row = self._row[waypoint] = len(self._row)
                self._make_room(row, len(state))
                self._states[row], self._node[row], self._next[row] = np.inf, -1, 0
            place = self._next[row]
            self._states[row, place], self._node[row, place], self._steps[row, place] = state, node, far
            self._next[row] = (place + 1) % _WITNESSES

    def _make_room(self, row: int, width: int) -> None:
        if row < len(self._next) and self._states.shape[2] == width:
            return
        size = max(16, 2 * row)
        if self._states.shape[2] != width:
            self._states = np.zeros((size, _WITNESSES, width), np.float32)
        for name in ("_states", "_node", "_steps", "_next"):
            before = getattr(self, name)
            after = np.zeros((size, *before.shape[1:]), before.dtype)
            after[: len(before)] = before[:size]
            setattr(self, name, after)


class WaypointTest:
    """Tests whether waypoints have been reached: ‖d(s, ·) − d(w, ·)‖∞ < cutoff over all nodes.

    A single node with a larger difference refutes this. The first node compared is the one that refuted it before for
    this waypoint, from the most similar state; then the waypoint itself. All nodes are compared only for states that
    pass both. If the triangle inequality holds (`distance.triangle`), the difference at any node is at most the
    distance between state and waypoint, so states that are near enough need no comparison. If the distance can bound
    its changes close to a waypoint (`distance.nearby`), only nodes without such a proof are compared.
    """

    def __init__(self, nodes: Nodes, graph: Graph) -> None:
        """Test against these nodes; neighbours are those in this graph."""
        self._nodes = nodes
        self._graph = graph
        self._distance: Distance | None = None
        self._to_itself: Floats = np.empty(0, np.float32)
        self._witnesses = {nearby: _Witnesses() for nearby in (False, True)}
        self._rows: OrderedDict[int, NDArray[np.float32]] = OrderedDict()
        self._checks: Ints = np.empty(0, np.int64)
        self._proofs: OrderedDict[tuple[int, float], tuple[Callable[[Floats], Bools], int]] = OrderedDict()
        self._known_neighbours: dict[tuple[int, bool], tuple[Ints, Floats]] = {}
        self._version = -1  # version of the graph to which the known neighbours belong

    def __getstate__(self) -> dict[str, Any]:
        """State of a copy: without the large caches, which are filled again."""
        return {**self.__dict__, "_rows": OrderedDict(), "_proofs": OrderedDict()}

    def __call__(
        self, distance: Distance, states: Floats, waypoints: Ints, cutoff: float, nearby: bool = False
    ) -> Bools:
        """Test (n, e) states against (n,) waypoint nodes: (n,) bool.

        With `nearby` only the waypoint and its neighbours in the graph are compared.
        """
        self._refresh(distance)
        limit = np.float32(cutoff)
        result = np.zeros(len(states), np.bool_)
        left = self._unrefuted(distance, states, waypoints, limit, nearby)
        if not len(left):
            return result
        if nearby:
            told = self._told_apart_nearby(distance, states[left], waypoints[left], limit, kept=True)
            result[left] = ~told
            return result
        standing = self._nodes.embedding
        if getattr(distance, "triangle", False) is True:
            ends = states[left], standing[waypoints[left]]
            both_ways = np.maximum(paired(distance, *ends), paired(distance, *ends[::-1]))
            result[left] = proven = both_ways < (1 - _ROUNDING) * limit
            left = left[~proven]
        if len(left) and len(standing) >= _MANY:
            left = left[~self._told_apart_nearby(distance, states[left], waypoints[left], limit)]
        if len(left):
            result[left] = self._nowhere_told_apart(distance, states[left], waypoints[left], cutoff)
        return result

    def _unrefuted(self, distance: Distance, states: Floats, waypoints: Ints, limit: np.float32, nearby: bool) -> Ints:
        """Return the rows that neither the likely witness nor the waypoint itself refutes."""
        if nearby:
            self._forget_old_neighbours()
        if len(states) == 1:
            return self._unrefuted_one(distance, states, waypoints, limit, self._witnesses[nearby])
        standing, witnesses = self._nodes.embedding, self._witnesses[nearby]
        node, theirs = witnesses.likely(states, waypoints)
        itself = node < 0
        if itself.any():
            node = np.where(itself, waypoints, node)
            theirs = np.where(itself, self._steps_to_itself(distance, waypoints), theirs)
        left = np.flatnonzero(~differing(distance, states, standing[node], theirs, limit))
        again = left[node[left] != waypoints[left]]
        if len(again):
            own = self._steps_to_itself(distance, waypoints[again])
            told = differing(distance, states[again], standing[waypoints[again]], own, limit)
            witnesses.remember(states[again[told]], waypoints[again[told]], waypoints[again[told]], own[told])
            passed = np.ones(len(states), np.bool_)
            passed[again[told]] = False
            left = left[passed[left]]
        return left

    def _unrefuted_one(
        self, distance: Distance, state: Floats, waypoints: Ints, limit: np.float32, witnesses: _Witnesses
    ) -> Ints:
        """`_unrefuted` for a single robot, without the overhead of arrays."""
        standing, waypoint = self._nodes.embedding, int(waypoints[0])
        node, theirs = witnesses.likely_one(state[0], waypoint)
        if node not in (-1, waypoint) and differing(distance, state, standing[node : node + 1], theirs, limit)[0]:
            return waypoints[:0]
        own = self._steps_to_itself(distance, waypoints)
        if not differing(distance, state, standing[waypoint : waypoint + 1], own, limit)[0]:
            return np.zeros(1, np.int64)
        if node != -1:
            witnesses.remember(state, waypoints, waypoints, own)
        return waypoints[:0]

    def _steps_to_itself(self, distance: Distance, waypoints: Ints) -> Floats:
        """(n,) distances of waypoints to themselves, which need not be 0."""
        steps: Floats = self._to_itself[waypoints]
        missing = np.isnan(steps)
        if missing.any():
            chosen = self._nodes.embedding[waypoints[missing]]
            steps[missing] = self._to_itself[waypoints[missing]] = paired(distance, chosen, chosen)
        return steps

    def _told_apart_nearby(
        self, distance: Distance, states: Floats, waypoints: Ints, limit: np.float32, kept: bool = False
    ) -> Bools:
        """(n,) whether a neighbour of the waypoint refutes each row; `kept`: only over edges that pass the filter."""
        found = [self._neighbours(distance, waypoint, kept) for waypoint in waypoints.tolist()]
        node, theirs = (np.concatenate(parts) for parts in zip(*found, strict=True))
        owner = np.repeat(np.arange(len(found)), [len(nodes) for nodes, _ in found])
        told = np.zeros(len(states), np.bool_)
        if len(node):
            apart = np.flatnonzero(differing(distance, states[owner], self._nodes.embedding[node], theirs, limit))
            told[owner[apart]] = True
            apart = apart[np.flatnonzero(np.diff(owner[apart], prepend=-1))]  # one witness for each row is enough
            rows = owner[apart]
            self._witnesses[kept].remember(states[rows], waypoints[rows], node[apart], theirs[apart])
        return told

    def _forget_old_neighbours(self) -> None:
        """Clear the cached neighbours if the graph has changed."""
        if self._version != self._graph.version:
            self._known_neighbours.clear()
            self._witnesses[True].clear()
            self._version = self._graph.version

    def _neighbours(self, distance: Distance, waypoint: int, kept: bool) -> tuple[Ints, Floats]:
        """Return the neighbours of a waypoint, and the steps from it to them."""
        self._forget_old_neighbours()
        graph = self._graph
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

    def _nowhere_told_apart(self, distance: Distance, states: Floats, waypoints: Ints, cutoff: float) -> Bools:
        """(n,) whether no node refutes that each state has reached its waypoint; about `_PAIRS` pairs at once."""
        passed = np.ones(len(states), np.bool_)
        size = max(1, _PAIRS // len(self._nodes.embedding))
        for low in range(0, len(states), size):
            part = slice(low, low + size)
            passed[part] = self._pass_all(distance, states[part], waypoints[part], cutoff)
        return passed

    def _pass_all(self, distance: Distance, states: Floats, waypoints: Ints, cutoff: float) -> Bools:
        """(n,) whether no node refutes that each state has reached its waypoint.

        Nodes are compared in groups of growing size, the nearest to the waypoint first: if any node refutes a state,
        a near one usually does.
        """
        standing, limit = self._nodes.embedding, np.float32(cutoff)
        rows = self._rows_of(distance, waypoints)
        order = rows.argsort(axis=1)
        asked = order != waypoints[:, None]  # the waypoint itself was compared before
        self._leave_out_proven(distance, states, waypoints, cutoff, order, asked)
        passed, low, high = np.ones(len(states), np.bool_), 0, _FIRST_ASKED
        while low < len(standing) and passed.any():
            row, place = (asked[:, low:high] & passed[:, None]).nonzero()
            column = order[row, low + place]
            low, high = high, high * _FIRST_ASKED
            if not len(row):
                continue  # all nodes of this group are proven
            theirs = rows[row, column]
            apart = differing(distance, states[row], standing[column], theirs, limit).nonzero()[0]
            passed[row[apart]] = False
            apart = apart[np.flatnonzero(np.diff(row[apart], prepend=-1))]  # one witness for each row is enough
            told = row[apart]
            self._witnesses[False].remember(states[told], waypoints[told], column[apart], theirs[apart])
        return passed

    def _leave_out_proven(
        self, distance: Distance, states: Floats, waypoints: Ints, cutoff: float, order: Ints, asked: Bools
    ) -> None:
        """Clear `asked` for nodes that provably do not refute a state, if it is close to its waypoint."""
        radius = getattr(distance, "unchanged_radius", -1.0)
        close = np.flatnonzero(np.abs(states - self._nodes.embedding[waypoints]).max(axis=1) <= radius)
        np.add.at(self._checks, waypoints[close], 1)
        for number in close[self._checks[waypoints[close]] > _PROOF_WORTH].tolist():
            proof = self._proof(distance, int(waypoints[number]), cutoff)
            asked[number] &= proof(states[number : number + 1])[0][order[number]]

    def _proof(self, distance: Any, waypoint: int, cutoff: float) -> Callable[[Floats], Bools]:
        """Return a function from (n, e) states close to a waypoint to (n, V) bool: the nodes that may refute them."""
        key = (waypoint, cutoff)
        if key not in self._proofs:
            standing = self._nodes.embedding
            facts = standing[waypoint], standing, self._rows_of(distance, np.array([waypoint]))[0], cutoff
            bounds = distance.nearby(*facts) if hasattr(distance, "nearby") else None
            proof = _always(~distance.unchanged_nearby(*facts)) if bounds is None else bounds.undecided
            self._proofs[key] = proof, getattr(bounds, "nbytes", 0) + len(standing)
            while len(self._proofs) > 1 and sum(size for _, size in self._proofs.values()) > _ROW_BYTES:
                self._proofs.popitem(last=False)
        return self._proofs[key][0]

    def _refresh(self, distance: Distance) -> None:
        """Update the caches after nodes were added or removed; existing nodes never change."""
        size, known = len(self._nodes.embedding), len(self._to_itself)
        if size == known:
            return
        self._rows.clear()
        self._proofs.clear()
        if size < max(known, _MANY) or distance is not self._distance:
            known = 0
        self._distance = distance
        more = size - known
        unknown = np.full(more, np.nan, np.float32)
        if size < _MANY:
            unknown = paired(distance, self._nodes.embedding, self._nodes.embedding)
        self._to_itself = np.concatenate([self._to_itself[:known], unknown])
        self._checks = np.concatenate([self._checks[:known], np.zeros(more, np.int64)])
        if not known:
            for witnesses in self._witnesses.values():
                witnesses.clear()

    def _rows_of(self, distance: Distance, waypoints: Ints) -> Floats:
        """(n, V) steps from waypoints to all nodes; computed rows are cached."""
        standing, names = self._nodes.embedding, waypoints.tolist()
        missing = sorted({name for name in names if name not in self._rows})
        if missing:
            if len(standing) ** 2 <= _PAIRS:
                missing = list(range(len(standing)))  # the whole table takes only a moment
            self._rows.update(zip(missing, between(distance, standing[missing], standing), strict=True))
        rows = np.stack([self._rows[name] for name in names])
        while len(self._rows) > max(1, _ROW_BYTES // (4 * len(standing))):
            self._rows.popitem(last=False)
        return rows


def _always(may_tell: Bools) -> Callable[[Floats], Bools]:
    return lambda states: np.broadcast_to(may_tell, (len(states), len(may_tell)))
