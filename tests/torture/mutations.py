"""Damage memory files in a hundred thousand ways and load each: it is refused, or it is what it was.

There are three files: one of schema 2, one of schema 1, and one of a killed writer with its write-ahead log. They are
damaged byte by byte, page by page, and by SQL. Some of the edits by SQL make the checksum right again, as a forger
would.
`write` puts the mutated file with a given number into a folder, for a closer look.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import mmap
import os
import re
import resource
import shutil
import sqlite3
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

import sgm
from sgm.memory.read import read
from sgm.progress import progress_bar
from tests.torture.figures import (
    MOST_VIOLATIONS,
    POINTS,
    Child,
    Memory,
    Plane,
    Say,
    bytes_of,
    full_digest,
    said,
    scratch,
    time_limit,
)

ZEROS = ("silently_wrong", "unusable", "raw", "hung", "crashed", "over_1_GB")
OUTCOMES = ("refused", "harmless", "prefix", "forged_but_valid", *ZEROS[:-1])
MOST_BYTES = 1 << 30
SCHEMA_1 = Path(__file__).parents[1] / "data" / "schema1.sgm"
_PAGE = 4096
_EXERCISED = 10  # what was planned on, exported and saved before is so again one time in so many


def run(files: int = 100_000, seed: int = 0, progress: bool = False) -> dict[str, Any]:
    """Figures about so many mutated files; see `ZEROS` for what some of them have to be."""
    shared = np.frombuffer(mmap.mmap(-1, 8 * (3 + len(KINDS) * len(OUTCOMES))), np.int64)
    state, counts = shared[:3], shared[3:].reshape(len(KINDS), len(OUTCOMES))
    violations: list[str] = []
    warned: list[str] = []
    with scratch() as folder, progress_bar(shown=progress, total=files, desc="mutations", unit="file") as bar:
        bases = Bases(folder)
        while state[0] < files:
            worker = Child(lambda say: Worker(bases, folder, seed, state, counts).work(files, say))
            while (line := worker.hear(0.5)) is not None or worker.is_alive():
                bar.update(int(state[0]) - bar.n if progress else 0)
                if line is not None:
                    (warned if line.startswith("warning") else violations).append(line)
            worker.end()
            if worker.status:
                outcome = "hung" if worker.hung else "crashed"
                kind = kind_of(Random(f"{seed} {state[0]}"))
                counts[list(KINDS).index(kind), OUTCOMES.index(outcome)] += 1
                violations.append(f"{outcome}: file {state[0]}, {kind}, seed {seed}, status {worker.status}")
                state[0] += 1
    return _figures(counts, state, violations, warned)


def _figures(counts: np.ndarray, state: np.ndarray, violations: list[str], warned: list[str]) -> dict[str, Any]:
    total = dict(zip(OUTCOMES, counts.sum(axis=0).tolist(), strict=True))
    return {
        "files": int(counts.sum()),
        **total,
        "over_1_GB": int(state[1] > MOST_BYTES),
        "peak_rss_bytes": int(state[1]),
        "files_with_warnings": int(state[2]),
        "kinds": {
            kind: {outcome: int(number) for outcome, number in zip(OUTCOMES, row, strict=True) if number}
            for kind, row in zip(KINDS, counts, strict=True)
        },
        "violations": violations[:MOST_VIOLATIONS],
        "warnings": list({line.split("|")[1]: line for line in reversed(warned)}.values())[:MOST_VIOLATIONS],
    }


def write(number: int, seed: int, folder: Path) -> str:
    """Write the mutated file with this number as `m.sgm`, and its log; what was done to it."""
    with scratch() as place:
        worker = Worker(Bases(place), folder, seed, np.zeros(3, np.int64), np.zeros((len(KINDS), len(OUTCOMES))))
        return worker.mutate(number).what


# -- the files that are damaged ----------------------------------------------------------------------------------


@dataclasses.dataclass
class Base:
    """A whole file.

    Attributes:
        main: its bytes.
        log: those of its write-ahead log, if it has one.
        digest: what it holds.
        earlier: what it held after earlier calls whose log was not yet complete.
        tables: names, columns and row numbers of its tables.
    """

    main: bytes
    log: bytes | None
    digest: str
    earlier: frozenset[str]
    tables: list[tuple[str, list[str], list[int]]]


class Bases:
    """The three files."""

    def __init__(self, folder: Path) -> None:
        """Make them, in a folder for the time being."""
        path = folder / "base.sgm"
        small_memory().save(path)
        self.schema_2 = _base(path)
        path.unlink()
        shutil.copy(SCHEMA_1, path)
        self.schema_1 = _base(path)
        path.unlink()
        writer = Child(functools.partial(_write_and_die, path))
        states = writer.end()
        assert writer.status == -9, states
        self.killed = _base(path, states[:-1])
        assert self.killed.digest == states[-1] and self.killed.log
        for name in folder.iterdir():
            name.unlink()

    def of(self, file: str) -> Base:
        """The one that a name of `FILES` stands for."""
        return {FILES[0]: self.schema_2, FILES[1]: self.schema_1}.get(file, self.killed)


def _base(path: Path, earlier: list[str] | None = None) -> Base:
    log = path.with_name(path.name + "-wal")
    main, logged = path.read_bytes(), log.read_bytes() if log.exists() else None
    found = full_digest(Memory.load(path, None))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = [
            (name, [row[1] for row in connection.execute(f"PRAGMA table_info({name})")], _row_numbers(connection, name))
            for name in names
        ]
    return Base(main, logged, found, frozenset(earlier or []), [table for table in tables if table[2]])


def _row_numbers(connection: sqlite3.Connection, table: str) -> list[int]:
    return [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")]


def small_memory() -> Memory:
    """A memory of a few pages with something in every table: folded events, attributes, observations, features."""
    memory = Memory(
        Plane(), _halved, tau_p=1.0, tau_a=2.0, max_dist=6.0, k=3, keep_observations=True, keep_events=3,
        policy="belief",
    )  # fmt: skip
    with _steady_clock():
        rows = np.arange(14)
        pictures = np.arange(14 * 6, dtype=np.uint8).reshape(14, 2, 3)
        memory.extend(rows, episode=rows // 5, attributes={"position": POINTS[rows], "picture": pictures})
        edges = memory.edges()
        random = np.random.default_rng(0)
        chosen = random.integers(0, len(edges.source), 4100)  # enough to be folded
        memory.record_many(edges.source[chosen], edges.target[chosen], random.random(4100) < 0.5, episode=3)
        memory.record(*_ends(edges, 0), False)
        memory.restore()
        memory.add(20, episode=2)
        memory.record(*_ends(edges, 1), True, episode=1)
        memory.record_many(*(np.repeat(_ends(edges, 2), 20).reshape(2, 20)), [False] * 20)
    return memory


def _write_and_die(path: Path, say: Say) -> None:
    """Write a live file, say what it holds after each call, and be killed."""
    small_memory().save(path)
    memory = Memory.open(path, Plane(), _halved)
    say(full_digest(Memory.load(path, None)))
    with _steady_clock():
        for call in range(6):
            if call % 2:
                memory.record(*_ends(memory.edges(), call), bool(call % 3))
            else:
                memory.extend(np.arange(20 + 2 * call, 22 + 2 * call), episode=1)
            say(full_digest(Memory.load(path, None)))
    os.kill(os.getpid(), 9)


def _halved(observations: Any) -> np.ndarray:
    return POINTS[np.asarray(observations, np.int64)] / 2


def _ends(edges: sgm.Edges, number: int) -> tuple[int, int]:
    return int(edges.source[number]), int(edges.target[number])


def _steady_clock() -> Any:
    """The same times in every run, so that a mutated file can be made again."""
    return mock.patch("time.time", side_effect=map(float, range(1_700_000_000, 1_800_000_000)))


# -- damage byte by byte and page by page ------------------------------------------------------------------------


def _place(random: Random, data: bytes | bytearray) -> int:
    """Somewhere in a file; most of a small file is empty, so that bytes which are not are preferred."""
    for _ in range(4):
        place = random.randrange(len(data))
        if data[place] or random.random() < 0.1:
            break
    return place


def _bits(random: Random, data: bytearray, unit: int, start: int) -> None:
    for _ in range(random.choice([1, 1, 1, 2, 8])):
        data[_place(random, data)] ^= 1 << random.randrange(8)


def _runs(random: Random, data: bytearray, unit: int, start: int) -> None:
    place = _place(random, data)
    length = min(random.choice([1, 2, 4, 8, 30, 200]), len(data) - place)
    data[place : place + length] = random.choice([random.randbytes(length), bytes(length), b"\xff" * length])


def _truncated(random: Random, data: bytearray, unit: int, start: int) -> None:
    cut = random.randrange(len(data))
    if random.random() < 0.5:
        cut = start + unit * random.randrange(1 + (len(data) - start) // unit)
    del data[cut:]


def _longer(random: Random, data: bytearray, unit: int, start: int) -> None:
    place = random.choice([len(data), random.randrange(len(data))])
    length = random.choice([1, 7, 512, unit])
    data[place:place] = random.choice([random.randbytes(length), bytes(length)])


def _inserted_page(random: Random, data: bytearray, unit: int, start: int) -> None:
    place, other = _page(random, data, unit, start), _page(random, data, unit, start)
    data[place:place] = random.choice([random.randbytes(unit), bytes(unit), data[other : other + unit]])


def _duplicated_page(random: Random, data: bytearray, unit: int, start: int) -> None:
    place, other = _page(random, data, unit, start), _page(random, data, unit, start)
    data[place : place + unit] = data[other : other + unit]


def _zeroed_page(random: Random, data: bytearray, unit: int, start: int) -> None:
    place = _page(random, data, unit, start)
    length = random.choice([unit, unit // 2, 512])
    data[place : place + length] = bytes(length)


def _swapped_pages(random: Random, data: bytearray, unit: int, start: int) -> None:
    place, other = _page(random, data, unit, start), _page(random, data, unit, start)
    data[place : place + unit], data[other : other + unit] = data[other : other + unit], data[place : place + unit]


def _removed_page(random: Random, data: bytearray, unit: int, start: int) -> None:
    place = _page(random, data, unit, start)
    del data[place : place + unit]


def _header(random: Random, data: bytearray, unit: int, start: int) -> None:
    """Values in the header of the file, as wide as its fields."""
    for _ in range(random.choice([1, 1, 2])):
        place = 4 * random.randrange(8 if start else 25)
        number = random.choice([0, 1, 2, 3, 255, 4096, 65536, 2**31 - 1, 2**31, 2**32 - 1, random.getrandbits(32)])
        width = random.choice([1, 2, 4])
        data[place : place + width] = struct.pack(">I", number)[-width:]


def _page_header(random: Random, data: bytearray, unit: int, start: int) -> None:
    """The head of a page: its type, and where its cells are."""
    place = _page(random, data, unit, start) + (100 if random.random() < 0.1 else 0) + random.randrange(40)
    width = min(random.choice([1, 2, 4]), len(data) - place)
    data[place : place + width] = random.choice([random.randbytes(width), bytes(width), b"\xff" * width])


def _page(random: Random, data: bytearray, unit: int, start: int) -> int:
    return start + unit * random.randrange(max(1, (len(data) - start) // unit))


BYTES: dict[str, Callable[[Random, bytearray, int, int], None]] = {
    "bits flipped": _bits,
    "runs of bytes": _runs,
    "truncated": _truncated,
    "longer": _longer,
    "page inserted": _inserted_page,
    "page duplicated": _duplicated_page,
    "page zeroed": _zeroed_page,
    "pages swapped": _swapped_pages,
    "page removed": _removed_page,
    "header": _header,
    "page header": _page_header,
}
SQL = ("SQL, checksum as it was", "SQL, checksum made right")
FILES = ("schema 2", "schema 1", "killed writer's file", "killed writer's log")
KINDS = (
    *(f"{how}, {file}" for file in FILES for how in BYTES),
    *(f"{how}, {file}" for how in SQL for file in FILES[:2]),
)


def kind_of(random: Random) -> str:
    """What is done to a file: one in three is edited by SQL; files of schema 1 are fewer, since they are larger."""
    if random.random() < 0.35:
        return f"{random.choice(SQL)}, {random.choices(FILES[:2], [3, 1])[0]}"
    return f"{random.choice(list(BYTES))}, {random.choices(FILES, [3, 1, 2, 4])[0]}"


# -- damage by SQL -----------------------------------------------------------------------------------------------

_INTEGERS = (0, 1, -1, 2, 3, 7, 255, 256, 4096, 2**31 - 1, 2**31, 2**32, 2**53 - 1, 2**53, 2**62, 2**63 - 1, -(2**63))
_REALS = (0.5, -0.5, 1.0, 2.5, 1e-320, 1e30, 3.4e38, 3.5e38, 1e308, math.inf, -math.inf, -0.0)
_TEXTS = (
    "", "x", "0", "1", "-1", "1.0", "1e5", "NaN", "null", "true", "[]", "{}", "[0]", '"x"', "\0", "a\0b", "'",
    "\x1b[2J", "\u202e", "é", "[" * 5000, "9" * 5000, "a" * 9000, "stream", "position", "belief", "1e999", "-Infinity",
)  # fmt: skip
_BLOBS = (
    b"", b"\0", bytes(4), bytes(8), bytes(16), bytes(9000), b"\xff" * 8, struct.pack("<2f", math.nan, 1),
    struct.pack("<2f", math.inf, 1), struct.pack("<2f", 3e38, -3e38), struct.pack("<2q", 2**63 - 1, -1),
    zlib.compress(bytes(10_000_000), 9), zlib.compress(bytes(8)), zlib.compress(b""),
)  # fmt: skip
_DTYPES = (
    "f4", "f8", "f2", "f16", "u1", "i1", "i8", "u8", "?", "b1", "O", "V8", "S5", "U3", "M8[s]", "m8", "c8", "f4,f4",
    "(2,3)f4", ">f4", "<f4", "=f4", "|u1", "float32", "int", "1000000000f4", "V1000000000", "e", "g", "",
    "{'names':[]}",
)  # fmt: skip
_LEAVES = (
    None, True, False, 0, 1, -1, 2, 4, 2**31, 2**53, 2**63, 10**40, 10**400, 0.0, 0.5, -1.5, 1e30, 1e31, 1e308,
    math.nan, math.inf, -math.inf, "", "x", "belief", "first-failure", "perceptual", "uniform", "none", "memory", "f4",
    "O", [], [0], [1, 2], [10**9, 10**9], [2] * 40, {}, {"name": "x"}, [[]],
)  # fmt: skip
_SCHEMA_CHANGES = (
    "DROP TABLE evidence", "DROP TABLE edges", "CREATE INDEX i ON edges (source)", "CREATE TABLE extra (x)",
    "CREATE VIEW v AS SELECT * FROM nodes", "ALTER TABLE nodes RENAME COLUMN stream TO streams",
    "CREATE TRIGGER t AFTER INSERT ON evidence BEGIN DELETE FROM nodes; END", "ALTER TABLE edges ADD COLUMN x",
    "PRAGMA user_version = 1", "PRAGMA user_version = 2", "PRAGMA user_version = 3", "PRAGMA user_version = -1",
    "PRAGMA application_id = 0", "PRAGMA application_id = 1397181745", "VACUUM",
)  # fmt: skip


def edit(random: Random, connection: sqlite3.Connection, base: Base) -> str:
    """Change a file by SQL; what was done."""
    if random.random() < 0.03:
        statement = random.choice(_SCHEMA_CHANGES)
        connection.execute(statement)
        return statement
    done = []
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        way = random.choices([_edit_cell, _edit_column, _delete_row, _copy_row, _swap_cells], [12, 1, 1, 2, 2])[0]
        with contextlib.suppress(sqlite3.IntegrityError):  # NULL where the schema has none, a number twice
            done.append(way(random, connection, base))
    return "; ".join(done)


def _edit_cell(random: Random, connection: sqlite3.Connection, base: Base) -> str:
    table, columns, rows = random.choice(base.tables)
    column, row = random.choice(columns), random.choice(rows)
    found = connection.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (row,)).fetchone()
    if found is None:
        return f"no row {row} in {table}"
    value = hostile(random, found[0], column)
    connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row))
    return f"{table}.{column} of row {row}: {_short(found[0])} becomes {_short(value)}"


def _edit_column(random: Random, connection: sqlite3.Connection, base: Base) -> str:
    table, columns, _ = random.choice(base.tables)
    column = random.choice(columns)
    value = hostile(random, None, column)
    connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
    return f"{table}.{column} becomes {_short(value)}"


def _delete_row(random: Random, connection: sqlite3.Connection, base: Base) -> str:
    table, _, rows = random.choice(base.tables)
    row = random.choice([rows[-1], random.choice(rows)])
    connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
    return f"row {row} of {table} removed"


def _copy_row(random: Random, connection: sqlite3.Connection, base: Base) -> str:
    table, columns, rows = random.choice(base.tables)
    found = connection.execute(f"SELECT * FROM {table} WHERE rowid = ?", (random.choice(rows),)).fetchone()
    if found is None:
        return f"no such row in {table}"
    values = [hostile(random, value, column) if random.random() < 0.3 else value
              for column, value in zip(columns, found, strict=True)]  # fmt: skip
    if type(values[0]) is int:
        values[0] = random.choice([max(rows) + 1, max(rows) + 1, -1, values[0]])
    connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    return f"into {table}: {', '.join(map(_short, values))}"


def _swap_cells(random: Random, connection: sqlite3.Connection, base: Base) -> str:
    table, columns, rows = random.choice(base.tables)
    column = random.choice(columns[1:])
    pair = [random.choice(rows), random.choice(rows)]
    query = f"SELECT {column} FROM {table} WHERE rowid = ?"
    found = [connection.execute(query, (row,)).fetchone() for row in pair]
    if None in found:
        return f"no such rows in {table}"
    for row, (value,) in zip(pair, reversed(found), strict=True):
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row))
    return f"{table}.{column} of rows {pair} swapped"


def hostile(random: Random, old: Any, column: str) -> Any:
    """A value for a cell: near the old one, or of any type and size."""
    if column in ("value", "shape") and random.random() < 0.7:
        return _hostile_json(random, old)
    if column == "dtype" and random.random() < 0.8:
        return random.choice(_DTYPES)
    if old is not None and random.random() < 0.5:
        return _near(random, old)
    return random.choice([*_INTEGERS, random.randrange(100), *_REALS, None, *_TEXTS, *_BLOBS])


def _near(random: Random, old: Any) -> Any:
    """A value of the same type that is not much different."""
    if isinstance(old, int):
        return max(-(2**63), min(2**63 - 1, old + random.choice([1, -1, 2, old, -2 * old, random.randrange(-9, 9)])))
    if isinstance(old, float):
        return old * random.choice([1.0001, 0.5, -1.0, 2.0]) + random.choice([0.0, 1e-6])
    if isinstance(old, str):
        place = random.randrange(len(old) + 1)
        return old[:place] + random.choice(["", "0", " ", "x", '"', "]"]) + old[place + random.randrange(2) :]
    data = bytearray(old)
    if data and random.random() < 0.6:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(data)
    return bytes(data[: random.randrange(len(data) + 1)]) + random.randbytes(random.choice([0, 1, 4, 8]))


def _hostile_json(random: Random, old: Any) -> str:
    try:
        value = json.loads(old)
    except (TypeError, ValueError, RecursionError):
        value = None
    changed = _changed(random, value)
    text = json.dumps(changed)
    return text if random.random() < 0.9 else text.replace(" ", "  ")


def _changed(random: Random, value: Any) -> Any:
    """JSON with one of its leaves changed, added or removed."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        if random.random() < 0.1:
            return {name: leaf for name, leaf in value.items() if name != key}
        return {**value, key if random.random() < 0.95 else "x": _changed(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.7:
        place = random.randrange(len(value))
        return [*value[:place], _changed(random, value[place]), *value[place + 1 :]]
    if type(value) in (int, float) and random.random() < 0.4:
        return value + random.choice([1, -1, 0.5])
    return random.choice(_LEAVES)


def make_right(path: Path, schema: int) -> bool:
    """Put the sum of the rows where the checksum is; whether there was anything to put right."""
    try:
        read(path)
    except sgm.StoreError as error:
        found = re.search(r"do not add up to its checksum \((\d+), not", str(error))
    else:
        return False
    if found is None:
        return False
    statement = "UPDATE state SET checksum = ?" if schema == 2 else "UPDATE meta SET value = ? WHERE key = 'checksum'"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(statement, (int(found[1]) if schema == 2 else found[1],))
    return True


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:50]}… ({len(text)})"


# -- loading them ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Mutated:
    """A mutated file that has been written."""

    kind: str
    base: Base
    forged: bool
    what: str


class Worker:
    """A process that mutates and loads files, with less than 1 GB of RAM."""

    def __init__(self, bases: Bases, folder: Path, seed: int, state: np.ndarray, counts: np.ndarray) -> None:
        """Work in a folder; `state` is the file under way, the peak of RAM and the number of files with warnings."""
        self.bases, self.folder, self.seed, self.state, self.counts = bases, folder, seed, state, counts
        self.path = folder / "m.sgm"
        self.beside = [folder / f"m.sgm{suffix}" for suffix in ("-wal", "-shm", "-journal")]
        self.exercised: set[str] = set()

    def work(self, files: int, say: Say) -> None:
        """Go on from where the last worker stopped."""
        size = bytes_of("VmSize") + MOST_BYTES - bytes_of("VmRSS")
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        warnings.simplefilter("ignore")
        while self.state[0] < files:
            number = int(self.state[0])
            with time_limit():
                mutated = self.mutate(number)
            with time_limit(), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                outcome, detail = self.judge(mutated, number)
            self.counts[KINDS.index(mutated.kind), OUTCOMES.index(outcome)] += 1
            where = f"file {number}, {mutated.kind}, {mutated.what}, seed {self.seed}"
            if outcome in ZEROS:
                say(f"{outcome}: {detail} | {where}")
            if caught:
                self.state[2] += 1
                say(f"warning | {caught[0].category.__name__}: {str(caught[0].message)[:150]} | {where}")
            if number % 200 == 0 or number == files - 1:
                self.state[1] = max(self.state[1], bytes_of("VmHWM"))
            self.state[0] += 1

    def mutate(self, number: int) -> Mutated:
        """Write the file with this number."""
        random = Random(f"{self.seed} {number}")
        kind = kind_of(random)
        for path in self.beside:
            path.unlink(missing_ok=True)
        if kind.startswith("SQL"):
            return self._mutate_by_sql(random, kind)
        how, file = kind.split(", ")
        base, in_log = self.bases.of(file), file == FILES[3]
        data = bytearray(base.log if in_log else base.main)
        BYTES[how](random, data, *((_PAGE + 24, 32) if in_log else (_PAGE, 0)))
        self.path.write_bytes(base.main if in_log else data)
        if base.log is not None:
            self.beside[0].write_bytes(data if in_log else base.log)
        return Mutated(kind, base, False, "")

    def _mutate_by_sql(self, random: Random, kind: str) -> Mutated:
        schema = int(kind[-1])
        base = self.bases.of(f"schema {schema}")
        self.path.write_bytes(base.main)
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            for pragma in ("journal_mode = OFF", "synchronous = OFF"):
                connection.execute(f"PRAGMA {pragma}")
            what = edit(random, connection, base)
        forged = kind.startswith(SQL[1]) and make_right(self.path, schema)
        return Mutated(kind, base, forged, what)

    def judge(self, mutated: Mutated, number: int) -> tuple[str, str]:
        """What became of a file, one of `OUTCOMES`, and more about it."""
        distance = Plane() if number % 4 == 0 and mutated.base is not self.bases.schema_1 else None
        try:
            memory = Memory.load(self.path, distance)
        except sgm.StoreError:
            return "refused", ""
        except Exception as error:
            return "raw", f"load: {said(error)}"
        found = full_digest(memory)
        outcome = self._compare(mutated, found)
        if found in self.exercised and number % _EXERCISED:
            return outcome, ""
        self.exercised.add(found)
        try:
            exercise(memory, self.folder)
            again = full_digest(Memory.load(self.folder / "saved", distance))
        except sgm.SGMError as error:
            return "unusable", said(error)
        except Exception as error:
            return "raw", said(error)
        if again != found:
            return "unusable", "what save() wrote is not what was loaded"
        return outcome, ""

    def _compare(self, mutated: Mutated, found: str) -> str:
        if found == mutated.base.digest:
            return "harmless"
        if mutated.kind.endswith(FILES[3]) and found in mutated.base.earlier:
            return "prefix"
        return "forged_but_valid" if mutated.forged else "silently_wrong"


def exercise(memory: Memory, folder: Path) -> None:
    """Everything that can be asked of a memory that was loaded."""
    memory.save(folder / "saved")
    for text in (repr(memory), memory._repr_html_(), str(memory.stats())):
        assert text
    events, log = memory.events(), memory._log
    assert len(events.sequence) == len(log) - log.folded
    for event in sorted({log.folded, (log.folded + len(log)) // 2, len(log)}):
        past = memory.at(event)
        assert past.records <= memory.records and len(past.edges().source) <= len(memory._graph)
    memory.at(log.folded).save(folder / "past")
    Memory.load(folder / "past", None)
    edges = memory.edges(filtered=False)
    assert len(memory.removed().source) + len(edges.source) == len(memory._graph) and memory.tried() is not None
    for by in ("distance", "hops"):
        _plan(memory, by)
    memory.to_scipy()
    memory.to_networkx()
    memory.to_graphml(folder / "export.graphml")
    memory.to_csv(folder / "export.csv")
    _change(memory, edges)


def _plan(memory: Memory, by: str) -> None:
    last = len(memory) - 1
    for start, goal in ((0, last), (last, 0), (last // 2, last)):
        with contextlib.suppress(sgm.NoPath, sgm.UnknownNode):
            assert memory.plan_nodes(start, goal, by=by).nodes[-1] == goal
    if last >= 0:
        memory.next_nodes(np.arange(last + 1), np.zeros(last + 1, np.int64), by=by)
        memory.largest_part()
    if last >= 0 and memory._distance is not None:
        with contextlib.suppress(sgm.NoPath):
            memory.plan(0, 13, by=by)


def _change(memory: Memory, edges: sgm.Edges) -> None:
    """In RAM; a policy that is not there refuses to be asked."""
    memory.filter(2)
    if len(edges.source):
        memory.record(*_ends(edges, 0), True)
        with contextlib.suppress(sgm.InputError):
            memory.record(*_ends(edges, len(edges.source) - 1), False)
    memory.restore()
