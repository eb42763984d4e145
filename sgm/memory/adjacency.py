"""Adjacency lists in one array, each with room to grow, so that adding an edge takes amortised constant time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arrays import Column, Ints, ragged
from .compiled import kernels, loaded

_FEW, _MANY = 512, 4096  # numba is loaded for at most so many new edges, if there are more than so many nodes
_MOST = 1 << 16  # most new edges for which compiled code is used
_HOLES = 0.25  # largest unused share of the array; above it the array is packed


class Adjacency:
    """The outgoing (or incoming) edges of each node n, ascending: `edge[start[n] : start[n] + length[n]]`."""

    def __init__(self) -> None:
        """Make it empty, without nodes and edges."""
        self._start = Column(np.int32)
        self._length = Column(np.int32)
        self._room = Column(np.int32)
        self._edge = Column(np.int32)
        self._edges = 0  # number of edges added so far
        self._moved = 0  # places of the array that became unused when runs moved

    @property
    def start(self) -> NDArray[np.int32]:
        """(V,) offset of the run of each node in `edge`."""
        return self._start.values

    @property
    def length(self) -> NDArray[np.int32]:
        """(V,) number of edges of each node."""
        return self._length.values

    @property
    def edge(self) -> NDArray[np.int32]:
        """The runs of edge numbers; values between the runs mean nothing."""
        return self._edge.values

    @property
    def nbytes(self) -> int:
        """Size in bytes, including the room to grow."""
        return sum(column.nbytes for column in (self._start, self._length, self._room, self._edge))

    def sync(self, nodes: int, ends: NDArray[np.int32]) -> Adjacency:
        """Add the nodes and edges that are not included yet.

        Args:
            nodes: number of nodes.
            ends: (E,) the node at which each edge begins (or ends), for all edges.
        """
        fresh = nodes - len(self._start)
        if fresh:
            for column in (self._start, self._length, self._room):
                column.append(np.zeros(fresh, np.int32))
        if self._edges < len(ends):
            self._append(ends[self._edges :])
            self._edges = len(ends)
            if self._moved > _HOLES * len(self._edge) + 1024:
                self._pack()
        return self

    def cut(self, nodes: int, edges: int, ends: NDArray[np.int32]) -> None:
        """Remove the nodes and edges with these numbers and higher; `ends` as in `sync`, before the removal."""
        if edges < self._edges:
            gone = np.bincount(ends[edges : self._edges], minlength=len(self._length))
            self.length[:] -= gone[: len(self._length)].astype(np.int32)
            self._edges = edges
        if nodes < len(self._start):
            self._moved += int(self._room.values[nodes:].sum())
            for column in (self._start, self._length, self._room):
                column.cut(nodes)

    def at(self, node: int) -> NDArray[np.int32]:
        """Return the edges at one node, ascending."""
        start = self.start[node]
        return self.edge[start : start + self.length[node]]

    def of(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Return the edges at (n,) nodes, one node after the other, and for each edge the row of its node."""
        positions, owner = ragged(self.start[nodes].astype(np.int64), self.length[nodes].astype(np.int64))
        return self.edge[positions].astype(np.int64), owner

    def _append(self, ends: NDArray[np.int32]) -> None:
        is_worth_it = len(ends) <= _FEW and len(self._start) > _MANY
        if len(self._edge) and len(ends) <= _MOST and (kernels() if is_worth_it else loaded()) is not None:
            self._append_few(ends)
            return
        order = np.argsort(ends, kind="stable")
        sorted_ends = ends[order]
        first = np.flatnonzero(np.concatenate([[True], sorted_ends[1:] != sorted_ends[:-1]]))
        node = sorted_ends[first].astype(np.int64)
        number = np.diff(np.append(first, len(ends)))
        needed = self.length[node].astype(np.int64) + number
        full = needed > self._room.values[node]
        self._move(node[full], needed[full])
        place = self.start[node].astype(np.int64) + self.length[node]
        positions, _ = ragged(place, number)
        self.edge[positions] = order + self._edges
        self.length[node] = needed

    def _append_few(self, ends: NDArray[np.int32]) -> None:
        """Add a few edges by compiled code."""
        from .fast_paths import append_edges

        done, spare = 0, 4 * len(ends) + 1024
        while done < len(ends):
            runs = self.start, self.length, self._room.values, self._edge.with_room(spare)
            used, moved, done = append_edges(*runs, len(self._edge), ends, done, self._edges)
            self._edge.extend_to(used)
            self._moved += moved
            spare *= 2

    def _move(self, node: Ints, needed: Ints) -> None:
        """Move the runs of these nodes to the end of the array, with more room."""
        room = needed + np.maximum(2, needed // 4)
        if not len(self._edge):
            room = needed  # the first edges mostly come from a file, and mostly no more will follow
        start = len(self._edge) + np.cumsum(room) - room
        old, length = self.start[node].astype(np.int64), self.length[node].astype(np.int64)
        self._moved += int(self._room.values[node].sum())
        self._edge.append(np.zeros(int(room.sum()), np.int32))
        positions, owner = ragged(old, length)
        self.edge[positions + (start - old)[owner]] = self.edge[positions]
        self.start[node], self._room.values[node] = start, room

    def _pack(self) -> None:
        """Remove unused places between the runs; the runs are then in the order of the nodes."""
        length = self.length.astype(np.int64)
        room = np.minimum(self._room.values, length + np.maximum(2, length // 8))
        start = np.cumsum(room) - room
        packed = Column(np.int32)
        packed.append(np.zeros(int(room.sum()), np.int32))
        if loaded() is not None:
            from .fast_paths import copy_runs

            copy_runs(self.start, self.length, self.edge, start, packed.values)
        else:
            positions, owner = ragged(self.start.astype(np.int64), length)
            packed.values[positions + (start - self.start)[owner]] = self.edge[positions]
        self._edge, self._moved = packed, 0
        self.start[:], self._room.values[:] = start, room
