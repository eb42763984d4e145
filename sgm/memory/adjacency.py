"""The edges at each node: runs of one array, each with room to grow, so that adding an edge costs the same always."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arrays import Column, Ints, ragged
from .compiled import kernels, loaded

_FEW, _MANY = 512, 4096  # edges that numba is loaded for, if there are so many nodes
_MOST = 1 << 16  # edges that compiled code takes in at once
_HOLES = 0.25  # share of the array that runs have moved away from, at most, before it is packed again


class Adjacency:
    """For each node the edges that begin (or end) there, ascending: `edge[start[n] : start[n] + length[n]]`."""

    def __init__(self) -> None:
        """Make an empty one."""
        self._start = Column(np.int32)
        self._length = Column(np.int32)
        self._room = Column(np.int32)
        self._edge = Column(np.int32)
        self._edges = 0  # how many are known
        self._moved = 0  # places of the array that runs have moved away from

    @property
    def start(self) -> NDArray[np.int32]:
        """(V,) where the run of each node begins."""
        return self._start.values

    @property
    def length(self) -> NDArray[np.int32]:
        """(V,) how many edges each node has."""
        return self._length.values

    @property
    def edge(self) -> NDArray[np.int32]:
        """The runs; between them are places without a meaning."""
        return self._edge.values

    @property
    def nbytes(self) -> int:
        """Bytes held, the room to grow included."""
        return sum(column.nbytes for column in (self._start, self._length, self._room, self._edge))

    def sync(self, nodes: int, ends: NDArray[np.int32]) -> Adjacency:
        """Take in the edges that it does not know yet; `ends` are the nodes of all edges, (E,)."""
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
        """Forget nodes and edges from these numbers on; `ends` are those of all edges until now."""
        if edges < self._edges:
            gone = np.bincount(ends[edges : self._edges], minlength=len(self._length))
            self.length[:] -= gone[: len(self._length)].astype(np.int32)
            self._edges = edges
        if nodes < len(self._start):
            self._moved += int(self._room.values[nodes:].sum())
            for column in (self._start, self._length, self._room):
                column.cut(nodes)

    def at(self, node: int) -> NDArray[np.int32]:
        """The edges at one node, ascending."""
        start = self.start[node]
        return self.edge[start : start + self.length[node]]

    def of(self, nodes: Ints) -> tuple[Ints, Ints]:
        """The edges at (n,) nodes, one node after the other, and which of the nodes each is at."""
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
        """The same for a few edges, compiled."""
        from .fast_paths import append_edges

        done, spare = 0, 4 * len(ends) + 1024
        while done < len(ends):
            runs = self.start, self.length, self._room.values, self._edge.with_room(spare)
            used, moved, done = append_edges(*runs, len(self._edge), ends, done, self._edges)
            self._edge.extend_to(used)
            self._moved += moved
            spare *= 2

    def _move(self, node: Ints, needed: Ints) -> None:
        """Give these nodes a longer run at the end of the array."""
        room = needed + np.maximum(2, needed // 4)
        if not len(self._edge):
            room = needed  # the first edges of all, as a file has them: mostly there will be no more
        start = len(self._edge) + np.cumsum(room) - room
        old, length = self.start[node].astype(np.int64), self.length[node].astype(np.int64)
        self._moved += int(self._room.values[node].sum())
        self._edge.append(np.zeros(int(room.sum()), np.int32))
        positions, owner = ragged(old, length)
        self.edge[positions + (start - old)[owner]] = self.edge[positions]
        self.start[node], self._room.values[node] = start, room

    def _pack(self) -> None:
        """Move the runs together again, in the order of the nodes."""
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
