"""Read the rows of a damaged SQLite file from its pages, without SQLite.

SQLite stops at the first damaged page of a table, and finds nothing without page 1. The file format is described at
https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import mmap
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

from sgm.progress import progress_bar

from .events import KINDS

_MAGIC = b"SQLite format 3\0"
_INTERIOR, _LEAF = 0x05, 0x0D
_WIDTHS = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)  # bytes of a number by its serial type; 7 is the only real one
_MOST_LOST = 16  # unreadable pages in a row after which an overflow chain is given up
_MOST_HEADER = 64  # bytes; no row of a memory file has a longer record header

# Types of the columns of each table: n NULL, i integer, r real, t text, b blob; capitals may also be NULL. A first
# column that is the row number is stored as NULL.
COLUMNS = {
    "meta": "tt",
    "nodes": "nibBB",
    "edges": "niiRi",
    "evidence": "niiiIi",
    "assignments": "nb",
    "events": "nriiI",
    "growth": "niii",
    "attributes": "nttt",
    "attribute_rows": "niiib",
    "state": "niiii",
}
_MASTER = "tttit"  # SQLite's list of tables


class Torn(NamedTuple):
    """A value that can be read only in part.

    Attributes:
        kind: type as a letter of `COLUMNS`.
        data: its bytes as far as they were found, with zeros in the parts that cannot be read.
        length: number of bytes that it should have.
        holes: the parts that cannot be read, [start, end).
    """

    kind: str
    data: bytes
    length: int
    holes: list[tuple[int, int]]


class _Cell(NamedTuple):
    """A row as stored on its page.

    Attributes:
        id: number of the row.
        types: serial type of each column.
        body: offset of the columns in the payload, bytes.
        length: size of the payload, bytes.
        local: the part of the payload on this page.
        overflow: page with the next part of the payload; 0 if there is none.
    """

    id: int
    types: list[int]
    body: int
    length: int
    local: bytes
    overflow: int


Rows = dict[int, list[Any]]


@dataclasses.dataclass
class Found:
    """Rows found in a file.

    Attributes:
        rows: the columns of each row, by table and row number.
        strays: by table, the numbers of the rows found on pages outside its tree; some may be old versions or deleted.
        roots: the root page of each table in the list of tables.
        damaged: by table, the pages that cannot be read or only in part.
    """

    rows: dict[str, Rows] = dataclasses.field(default_factory=lambda: {name: {} for name in COLUMNS})
    strays: dict[str, set[int]] = dataclasses.field(default_factory=lambda: {name: set() for name in COLUMNS})
    roots: dict[str, int] = dataclasses.field(default_factory=dict)
    damaged: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    def is_complete(self, table: str) -> bool:
        """Whether every page of a table could be read."""
        return self.damaged.get(table) == []


def read_pages(path: Path, *, distrustful: bool, progress: bool) -> Found:
    """Read all rows of the tables of a memory file that a damaged file still holds.

    Args:
        path: the file.
        distrustful: treat pages of zeros as destroyed pages.
        progress: show a progress bar.
    """
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return Found()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            pages = _Pages(data, distrustful)
            with progress_bar(shown=progress, total=pages.number, unit="page", desc="repair", leave=False) as bar:
                found = Found()
                _read_tables(pages, found, bar)
                _read_strays(pages, found, bar)
                return found


def _read_tables(pages: _Pages, found: Found, bar: Any) -> None:
    """Read the tables in the list of tables on page 1."""
    master, _ = pages.tree(_MASTER, 1, bar)
    for kind, name, _, root, _ in (values for values in master.values() if len(values) == len(_MASTER)):
        if kind == "table" and isinstance(name, str) and name in COLUMNS and isinstance(root, int):
            found.roots[name] = root
            found.rows[name], found.damaged[name] = pages.tree(name, root, bar)


def _read_strays(pages: _Pages, found: Found, bar: Any) -> None:
    """Read rows on pages that no tree contains; of two rows with one number, the one on the later page is taken."""
    free = pages.free()
    for number in range(pages.number, 1, -1):
        if number in pages.used or number in (free or ()):
            continue
        bar.update()
        name = pages.table_of(number)
        # Without the list of free pages this may be a free page with deleted rows.
        if name and not (free is None and found.is_complete(name) and found.rows[name]):
            fresh = {row: values for row, values in pages.rows(number, name).items() if row not in found.rows[name]}
            found.rows[name].update(fresh)
            found.strays[name].update(fresh)


class _Pages:
    """The pages of an SQLite file, numbered from 1. Every number read from a page is checked before use."""

    def __init__(self, data: mmap.mmap, distrustful: bool) -> None:
        """Read from `data`; with `distrustful`, pages of zeros count as destroyed."""
        self.data = data
        self.distrustful = distrustful
        self.size = _page_size(data)
        self.number = -(-len(data) // self.size)
        self.used: set[int] = set()  # pages of trees and of overflow chains that were read
        self.stated = 0  # number of pages according to the header
        self.usable = self.size
        self._freelist: tuple[int, int] | None = None
        self._depths: dict[int, int] = {}
        if data[:16] == _MAGIC and len(data) >= 100:
            self.stated, *freelist = struct.unpack(">III", data[28:40])
            self._freelist = (freelist[0], freelist[1])
            if data[20]:  # reserved bytes at the end of each page
                self.usable = max((self.size - data[20], self.size), key=self._whole_pages)

    def _whole_pages(self, usable: int) -> int:
        """Count the whole leaf pages among the first 500, if `usable` bytes of each page are used."""
        self.usable = usable
        some = [number for number in range(2, min(self.number, 500) + 1) if self._kind(number) == _LEAF]
        return sum(self._cells(number)[1] for number in some) if usable >= 480 else -1

    def page(self, number: int) -> bytes:
        """Return the bytes of a page; the last page of a truncated file is short."""
        return self.data[(number - 1) * self.size : number * self.size]

    # -- trees --

    def tree(self, table: str, root: int, bar: Any) -> tuple[Rows, list[int]]:
        """Return the rows below a root page, and the pages of the tree that cannot be read or only in part."""
        rows: Rows = {}
        damaged_pages = []
        pages, seen = [root], set()
        while pages:
            number = pages.pop()
            found: Rows | None = None
            whole = False
            if 1 <= number <= self.number and number not in self.used and number not in seen:
                seen.add(number)
                children, whole = self._children(number)
                if children:
                    pages.extend(reversed(children))
                    found = {}
                else:
                    found, whole = self._leaf(number, table, number == root)
            if found is not None:
                self.used.add(number)
                for row, values in found.items():
                    rows.setdefault(row, values)
            if not whole:
                damaged_pages.append(number)
            bar.update()
        return rows, damaged_pages

    def free(self) -> set[int] | None:
        """Return the free pages; None if the list of free pages is missing or inconsistent."""
        if self._freelist is None:
            return None
        trunk, number = self._freelist
        free: list[int] = []
        if number >= self.number:
            return None
        while trunk and len(free) < number:
            page = self.page(trunk) if 1 < trunk <= self.number else b""
            if len(page) < self.size:
                return None
            following, leaves = struct.unpack_from(">II", page)
            if leaves > self.usable // 4 - 2:
                return None
            free += [trunk, *struct.unpack_from(f">{leaves}I", page, 8)]
            trunk = following
        return set(free) if len(set(free)) == len(free) == number else None

    def table_of(self, number: int) -> str:
        """Guess the table of a leaf page from the types of its rows; "" if they fit no table."""
        votes: collections.Counter[str] = collections.Counter()
        if self._kind(number) == _LEAF:
            for cell in self._cells(number)[0]:
                values = self._values(cell, follow=False)
                votes.update([next((name for name in COLUMNS if _fits(name, cell.id, values)), "")])
        return votes.most_common(1)[0][0] if votes else ""

    def rows(self, number: int, table: str) -> Rows:
        """Return the rows of a leaf page whose types fit this table."""
        cells = self._cells(number)[0]
        fitting = [cell for cell in cells if _fits(table, cell.id, self._values(cell, follow=False))]
        return {cell.id: self._values(cell) for cell in fitting}

    def _leaf(self, number: int, table: str, is_root: bool) -> tuple[Rows | None, bool]:
        """Return the rows of a page in the tree of a table, odd ones included, and whether they are all its rows.

        The rows are None if the page is destroyed or belongs to another table.
        """
        cells, whole = self._cells(number)
        if self._kind(number) != _LEAF:
            return self.rows(number, table) or None, False
        if not cells:
            return ({}, whole) if is_root else (None, False)
        if not any(_fits(table, cell.id, self._values(cell, follow=False)) for cell in cells) and self.table_of(number):
            return None, False
        return {cell.id: self._values(cell) for cell in cells}, whole

    # -- one page --

    def _kind(self, number: int) -> int:
        start = (number - 1) * self.size + (100 if number == 1 else 0)
        return self.data[start] if start < len(self.data) else 0

    def _children(self, number: int) -> tuple[list[int], bool]:
        """Return the child pages of an interior page (none for other pages), and whether all cells could be read."""
        if self._kind(number) != _INTERIOR:
            return [], False
        page, start = self.page(number), 100 if number == 1 else 0
        pointers, whole = self._pointers(page, start, 12)
        children = [int.from_bytes(page[at : at + 4], "big") for at in (*pointers, start + 8) if at + 4 <= len(page)]
        possible = [child for child in children if 1 < child <= max(self.number, self.stated)]
        return possible, whole and len(possible) == len(pointers) + 1

    def _pointers(self, page: bytes, start: int, header: int) -> tuple[tuple[int, ...], bool]:
        """Return the offsets of the cells of a page, and whether the page has room for as many as it states."""
        stated = int.from_bytes(page[start + 3 : start + 5], "big")
        cells = max(0, min(stated, (len(page) - start - header) // 2))
        return struct.unpack_from(f">{cells}H", page, start + header) if cells else (), cells == stated

    def _cells(self, number: int) -> tuple[list[_Cell], bool]:
        """Return the rows of a leaf page that can be read, and whether these are all its rows."""
        page = self.page(number)
        pointers, whole = self._pointers(page, 100 if number == 1 else 0, 8)
        cells: list[_Cell] = []
        room = len(page)
        for pointer in pointers:
            cell = self._cell(page, pointer)
            room -= len(cell.local) if cell else 0
            if room < 0:  # cells overlap: a forged page could hold any amount of data
                return cells, False
            if cell:
                cells.append(cell)
        return cells, whole and len(cells) == len(pointers)

    def _cell(self, page: bytes, pointer: int) -> _Cell | None:
        try:
            length, at = _varint(page, pointer)
            row, at = _varint(page, at)
            if not 2 <= length <= len(self.data):
                return None
            local = self._local(length)
            end = at + local
            if end + (4 if local < length else 0) > min(len(page), self.usable):
                return None
            overflow = int.from_bytes(page[end : end + 4], "big") if local < length else 0
            payload = page[at:end]
            types, body = _types(payload)
        except IndexError:
            return None
        if sum(map(_width, types)) != length - body or 10 in types or 11 in types:
            return None
        return _Cell(row - 2**64 if row >= 2**63 else row, types, body, length, payload, overflow)

    def _local(self, length: int) -> int:
        """Number of bytes of a payload of this length that are on the leaf page itself."""
        if length <= self.usable - 35:
            return length
        least = (self.usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (self.usable - 4)
        return local if local <= self.usable - 35 else least

    # -- payloads --

    def _values(self, cell: _Cell, follow: bool = True) -> list[Any]:
        """Return the columns of a row, each None, int, float, str, bytes or `Torn`."""
        payload = cell.local
        holes: list[tuple[int, int]] = []
        if cell.overflow and follow:
            payload, holes = self._joined(cell)
        elif len(payload) < cell.length:
            holes = [(len(payload), cell.length)]
        values: list[Any] = []
        start = cell.body
        for kind in cell.types:
            end = start + _width(kind)
            data = payload[start:end]
            torn = holes and [(max(a, start) - start, min(b, end) - start) for a, b in holes if a < end and b > start]
            values.append(Torn(_letter(kind), data, end - start, torn) if torn else _value(kind, data))
            start = end
        return values

    def _joined(self, cell: _Cell) -> tuple[bytes, list[tuple[int, int]]]:
        """Return the payload of a row that continues on overflow pages, and the holes in it, [start, end).

        After destroyed pages of the chain, the chain is looked for on the pages that follow them in the file, where it
        continues if the file was written in one go.
        """
        parts, have, holes = [cell.local], len(cell.local), []
        room = self.usable - 4
        page, left = cell.overflow, -(-(cell.length - have) // room)
        while left:
            lost = 0 if self._is_link(page, left) else self._lost_links(page, left)
            expected = min(max(1, lost) * room, cell.length - have)
            part = b"" if lost else self.page(page)[4 : 4 + expected]
            if len(part) < expected:
                holes.append((have + len(part), have + expected))
            if lost == left:
                break
            parts.append(part.ljust(expected, b"\0"))
            have += expected
            if not lost:
                self.used.add(page)
            page, left = (page + lost, left - lost) if lost else (self._next(page), left - 1)
        return b"".join(parts), holes

    def _is_link(self, page: int, left: int) -> bool:
        """Whether a page may be the next one of an overflow chain of which `left` pages are left."""
        if not 1 < page <= self.number or page in self.used:
            return False
        depth = self._depth(page)
        return depth == left or (depth == 0 and left > 1 and 1 < self._next(page) <= self.number)

    def _lost_links(self, page: int, left: int) -> int:
        """Number of pages of an overflow chain that are lost from this page on; `left` if no later page is found."""
        for lost in range(1, min(left, _MOST_LOST)):
            after, depth = page + lost, self._depth(page + lost)
            broken = depth == 0 and left - lost > 1 and after <= self.number and self._next(after) == after + 1
            if after not in self.used and (depth == left - lost or broken):
                return lost
        return left

    def _next(self, page: int) -> int:
        """Return the next page of an overflow chain; 0 after the last page, -1 after a page overwritten with zeros."""
        after = int.from_bytes(self.page(page)[:4], "big")
        return after if after or not self.distrustful or any(self.page(page)) else -1

    def _depth(self, page: int) -> int:
        """Number of pages of an overflow chain from this page to its end; 0 if the chain has no end."""
        path = []
        while 1 < page <= self.number and page not in self._depths:
            self._depths[page] = 0  # ends the walk if the chain returns to this page
            path.append(page)
            page = self._next(page)
        depth = self._depths.get(page, 0)
        if page == 0 or depth:
            for member in reversed(path):
                depth += 1
                self._depths[member] = depth
        return self._depths.get(path[0], 0) if path else depth


def _page_size(data: mmap.mmap) -> int:
    """Find the size of a page, bytes: the size with which most pages look like leaf pages; no header is needed."""
    stated = int.from_bytes(data[16:18], "big")
    stated = 65536 if stated == 1 else stated
    sizes = sorted((512 << power for power in range(8)), key=lambda size: (size != stated, size != 4096))
    return max(sizes, key=lambda size: _leaf_pages(data, size))


def _leaf_pages(data: mmap.mmap, size: int) -> int:
    return sum(data[start] == _LEAF and _is_leaf(data[start : start + size]) for start in range(0, len(data), size))


def _is_leaf(page: bytes) -> bool:
    if len(page) < 8:
        return False
    cells, content = struct.unpack_from(">HH", page, 3)
    content = content or 65536
    if not cells or not 8 + 2 * cells <= content < len(page):
        return False
    pointers = struct.unpack_from(f">{cells}H", page, 8)
    return bool(content <= min(pointers) and max(pointers) < len(page))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode an SQLite varint of 1 to 9 bytes; return it and the offset of its end; IndexError if the data ends."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for place in range(at + 1, at + 8):
        byte = data[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    return value << 8 | data[at + 8], at + 9


def _types(payload: bytes) -> tuple[list[int], int]:
    """Return the serial types in a record header and the offset of the columns; IndexError if there is no header."""
    body, at = _varint(payload, 0)
    if not at <= body <= min(len(payload), _MOST_HEADER):
        raise IndexError
    if payload[at:body].isascii():  # each type is one byte
        return list(payload[at:body]), body
    types = []
    while at < body:
        kind, at = _varint(payload, at)
        types.append(kind)
    if at != body:
        raise IndexError
    return types, body


def _width(kind: int) -> int:
    """Size of a column of this serial type, bytes."""
    return (kind - 12) // 2 if kind >= 12 else _WIDTHS[kind]


def _letter(kind: int) -> str:
    """Return the letter of `COLUMNS` for a serial type."""
    if kind >= 12:
        return "t" if kind % 2 else "b"
    return "n" if kind == 0 else "r" if kind == 7 else "i"


def _value(kind: int, data: bytes) -> Any:
    """Decode a column of this serial type; text that is not UTF-8 becomes `Torn`."""
    if kind >= 12:
        try:
            return data.decode() if kind % 2 else data
        except UnicodeDecodeError:
            return Torn("t", data, len(data), [(0, len(data))])
    if kind == 7:
        number = struct.unpack(">d", data)[0]
        return None if math.isnan(number) else number
    return int.from_bytes(data, "big", signed=True) if data else {8: 0, 9: 1}.get(kind)


def _fits(table: str, row: int, values: list[Any]) -> bool:
    """Whether a row may belong to this table, according to the types of its columns."""
    columns = COLUMNS.get(table, table)
    if len(values) != len(columns) or not all(map(_may_be, columns, values)):
        return False
    if table == "edges":  # SQLite stores an integral distance as an integer, so more than types must be compared
        return bool(0 <= values[1] < 2**30 and 0 <= values[2] < 2**30 and values[4] in (0, 1))
    if table == "events":  # the same holds for the time
        return bool(abs(values[1]) > 1e9 and 0 <= values[2] < 2**30 and 0 <= values[3] < len(KINDS))
    if table == "state":
        return row == 0 and bool(values[2] >= 2**31)
    return row >= 0


_LETTERS: dict[type, str] = {type(None): "n", int: "i", float: "r", str: "t", bytes: "b"}


def _may_be(column: str, value: Any) -> bool:
    letter = value.kind if isinstance(value, Torn) else _LETTERS[type(value)]
    if letter == "n":
        return column == "n" or column.isupper()
    return letter == column.lower() or (letter == "i" and column.lower() == "r")
