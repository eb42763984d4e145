"""Evidence of edges as columns: one row of numbers for each tried edge instead of one object."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import Bools, Ints
from .policies import Evidence

Row = tuple[int, int, int, int, int]  # successes, failures, streak, removed_at (−1: it stands), flags
STANDS = -1  # stands for None in `Evidence.removed_at`
GUARDED_FLAG, SPARE_FLAG = 1, 2
NOTHING: Row = (0, 0, 0, STANDS, 0)  # an edge that was never tried
_EDGE, _WIDTH = 0, 6  # a row of the table is the edge, then its `Row`
_NARROW, _WIDE = struct.Struct("=6i"), struct.Struct("=6q")
_LARGEST = 2**31 - 1
_FEW = 16  # up to this number of edges, rows are looked up one by one


def row_of(known: Evidence) -> Row:
    """Return evidence as numbers."""
    removed = STANDS if known.removed_at is None else known.removed_at
    return known.successes, known.failures, known.streak, removed, known.guarded + 2 * known.spare


def evidence_of(row: Iterable[int]) -> Evidence:
    """Return the evidence with these numbers, a `Row`."""
    successes, failures, streak, removed, flags = row
    return Evidence(
        successes,
        failures,
        streak,
        None if removed == STANDS else removed,
        bool(flags & GUARDED_FLAG),
        bool(flags & SPARE_FLAG),
    )


class Known(NamedTuple):
    """Evidence of n edges as parallel arrays.

    Attributes:
        edge: (n,) edge numbers.
        successes: (n,) numbers of tries that reached the target.
        failures: (n,) numbers of tries that did not.
        streak: (n,) numbers of failures since the last success.
        removed_at: (n,) number of the try that removed the edge; −1: it stands.
        guarded: (n,) whether only the guard keeps the edge.
        spare: (n,) whether it is a spare edge.
    """

    edge: NDArray[Any]
    successes: NDArray[Any]
    failures: NDArray[Any]
    streak: NDArray[Any]
    removed_at: NDArray[Any]
    guarded: Bools
    spare: Bools

    @property
    def removed(self) -> Bools:
        """(n,) whether each edge is removed."""
        mask: Bools = self.removed_at != STANDS
        return mask


class EvidenceColumns(MutableMapping[int, Evidence]):
    """Evidence by edge number, like a dict, in the order in which edges were first tried.

    The numbers are rows of one int32 table, or int64 if a file holds larger counts. `_place` is an (at most E,) hint at
    which row an edge has, counted from 1. An edge is there only if its row is in use and holds its number. So a row
    becomes valid in one step, when `_size` includes it, and an interrupted call leaves nothing half done. Both arrays
    are made at the first try: a memory without cleanup needs no room.
    """

    def __init__(self, known: Mapping[int, Evidence] | None = None) -> None:
        """Copy evidence; None: there is none."""
        self._data: NDArray[Any] = np.empty((0, _WIDTH), np.int32)
        self._place: NDArray[np.int32] = np.zeros(0, np.int32)
        self._size = 0
        self._form_is_wide = False
        if isinstance(known, EvidenceColumns):
            self._data, self._place = known._table.copy(), known._place.copy()
            self._size, self._form_is_wide = known._size, known._form_is_wide
        elif known:
            self.update(known)

    @classmethod
    def from_rows(cls, rows: list[tuple[int, ...]]) -> EvidenceColumns:
        """Make columns of rows for different edges, each the edge and its `Row`."""
        made = cls()
        table = np.array(rows, np.int64).reshape(-1, _WIDTH)
        made.put_many(table[:, _EDGE], table[:, 1:])
        return made

    # -- like a dict --

    def __len__(self) -> int:
        """Number of edges with evidence."""
        return self._size

    def __iter__(self) -> Iterator[int]:
        """Edge numbers."""
        return iter(self._table[:, _EDGE].tolist())

    def __contains__(self, edge: object) -> bool:
        """Whether an edge has evidence."""
        return isinstance(edge, (int, np.integer)) and self._row(int(edge)) >= 0

    def __getitem__(self, edge: int) -> Evidence:
        """Evidence of an edge; KeyError if there is none."""
        row = self.row(edge)
        if row is None:
            raise KeyError(edge)
        return evidence_of(row)

    def get(self, edge: int, default: Any = None) -> Any:
        """Return the evidence of an edge, or `default`; written out because it is called for every try."""
        row = self.row(edge)
        return default if row is None else evidence_of(row)

    def __setitem__(self, edge: int, known: Evidence) -> None:
        """Set the evidence of an edge."""
        self.set_row(edge, row_of(known))

    def __delitem__(self, edge: int) -> None:
        """Remove the evidence of an edge; KeyError if there is none."""
        if self._row(edge) < 0:
            raise KeyError(edge)
        self.drop([edge])

    def items(self) -> Any:
        """Yield the edges with their evidence; all rows are converted at once."""
        return [(row[_EDGE], evidence_of(row[1:])) for row in self._table.tolist()]

    def update(self, known: Any = (), /, **_: Evidence) -> None:
        """Set the evidence of many edges."""
        if isinstance(known, EvidenceColumns):
            self.put_many(known._table[:, _EDGE], known._table[:, 1:])
            return
        self.update(EvidenceColumns.from_rows([(edge, *row_of(one)) for edge, one in dict(known).items()]))

    def copy(self) -> EvidenceColumns:
        """Return a copy, which shares nothing."""
        return EvidenceColumns(self)

    def __repr__(self) -> str:
        """Look like a dict."""
        return f"{type(self).__name__}({dict(self.items())!r})"

    # -- one edge as numbers --

    def row(self, edge: int) -> Row | None:
        """Return the evidence of an edge as numbers; None if there is none."""
        if not 0 <= edge < len(self._place):
            return None
        place = self._place.item(edge)
        if not 0 < place <= self._size:
            return None
        form = _WIDE if self._form_is_wide else _NARROW
        found = form.unpack_from(self._data.data, (place - 1) * form.size)
        return found[1:] if found[_EDGE] == edge else None

    def set_row(self, edge: int, row: Row) -> None:
        """Set the evidence of an edge, given as numbers."""
        place = self._row(edge)
        fresh = place < 0
        if fresh:
            place = self._size
            self._make_room(edge + 1, place + 1)
        form = _WIDE if self._form_is_wide else _NARROW
        try:
            form.pack_into(self._data.data, place * form.size, edge, *row)
        except struct.error:
            if self._form_is_wide:
                raise
            self._widen()
            _WIDE.pack_into(self._data.data, place * _WIDE.size, edge, *row)
        if fresh:
            self._place[edge] = place + 1
            self._size = place + 1

    # -- many edges --

    @property
    def nbytes(self) -> int:
        """Size of the rows and of the index from edges to rows, bytes, without the room to grow."""
        return int(self._table.nbytes + self._place.nbytes)

    def known(self) -> Known:
        """Return all evidence as columns; they are views, valid until the next change."""
        return _as_known(self._table)

    def removed(self) -> Ints:
        """(r,) removed edges."""
        known = self.known()
        return known.edge[known.removed].astype(np.int64)

    def spares(self) -> list[int]:
        """Spare edges."""
        known = self.known()
        return [int(edge) for edge in known.edge[known.spare]]

    def of(self, edges: Ints) -> tuple[Ints, Known]:
        """Return which of (m,) edges have evidence, as (t,) positions in `edges`, and their evidence."""
        if not self._size:
            return np.empty(0, np.int64), _as_known(self._table)
        if len(edges) <= _FEW:
            rows = [self._row(edge) for edge in edges.tolist()]
            places = [place for place, row in enumerate(rows) if row >= 0]
            return np.array(places, np.int64), _as_known(self._data[[rows[place] for place in places]])
        found = self._rows(edges)
        tried = np.flatnonzero(found >= 0)
        return tried, _as_known(self._data[found[tried]])

    def rows_of(self, edges: list[int]) -> list[Row | None]:
        """Return the evidence of (m,) edges as numbers; None where there is none."""
        if len(edges) <= _FEW:
            return [self.row(edge) for edge in edges]
        found = self._rows(np.array(edges, np.int64))
        if not self._size:
            return [None] * len(edges)
        values = self._data[found, 1:].tolist()
        return [tuple(row) if there else None for row, there in zip(values, (found >= 0).tolist(), strict=True)]

    def put_many(self, edges: NDArray[Any], rows: NDArray[Any]) -> None:
        """Set the evidence of (m,) different edges to (m, 5) numbers, the columns of a `Row`."""
        if not len(edges):
            return
        if not self._form_is_wide and rows.max() > _LARGEST:
            self._widen()
        found = self._rows(edges)
        fresh = found < 0
        more = int(np.count_nonzero(fresh))
        self._make_room(int(edges.max()) + 1, self._size + more)
        found[fresh] = np.arange(self._size, self._size + more)
        self._data[found, _EDGE] = edges
        self._data[found, 1:] = rows
        self._place[edges[fresh]] = found[fresh] + 1
        self._size += more

    def drop(self, edges: Iterable[int]) -> None:
        """Remove the evidence of these edges, if there is any; the others stay in order.

        It takes time for all rows: only a change that is undone does it.
        """
        table, place = self._table, self._place.copy()
        table = table[~np.isin(table[:, _EDGE], np.array(list(edges), np.int64))]
        place[table[:, _EDGE]] = np.arange(1, len(table) + 1)
        self._data, self._place, self._size = table, place, len(table)

    @property
    def _table(self) -> NDArray[Any]:
        """(n, 6) the rows in use: the edge, then its `Row`."""
        return self._data[: self._size]

    def _row(self, edge: int) -> int:
        """Position of the row of an edge; −1 if there is none."""
        if not 0 <= edge < len(self._place):
            return -1
        row = self._place.item(edge) - 1
        return row if 0 <= row < self._size and self._data.item(row, _EDGE) == edge else -1

    def _rows(self, edges: NDArray[Any]) -> Ints:
        """(m,) positions of the rows of (m,) edges; −1 where there is none."""
        rows = np.full(len(edges), -1)
        if self._size:
            inside = np.flatnonzero(edges < len(self._place))
            rows[inside] = self._place[edges[inside]].astype(np.int64) - 1
            rows[rows >= self._size] = -1
            rows[(rows >= 0) & (self._data[rows, _EDGE] != edges)] = -1
        return rows

    def _make_room(self, edges: int, rows: int) -> None:
        """Make room for this many edges and rows; arrays at least double, so that adding is amortised O(1)."""
        if edges > len(self._place):
            place = np.zeros(max(edges, min(2 * len(self._place), edges + (1 << 20))), np.int32)
            place[: len(self._place)] = self._place
            self._place = place
        if rows > len(self._data):
            grown = np.zeros((max(rows, 2 * len(self._data), 16), _WIDTH), self._data.dtype)
            grown[: self._size] = self._table
            self._data = grown

    def _widen(self) -> None:
        """Make room for numbers of 2³¹ and more, which only a file can hold."""
        self._data, self._form_is_wide = self._data.astype(np.int64), True


def _as_known(table: NDArray[Any]) -> Known:
    """Return (n, 6) rows as columns."""
    flags = table[:, 5]
    edge, successes, failures, streak, removed_at = table[:, :5].T
    guarded, spare = (flags & GUARDED_FLAG) > 0, (flags & SPARE_FLAG) > 0
    return Known(edge, successes, failures, streak, removed_at, guarded, spare)
