"""Live memory files: each call of the memory is one SQLite transaction, and RAM and file agree after every failure.

This module writes, copies and replaces files. The tables are described in schema.py, and checked in read.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import sqlite3
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError, StoreError

from .arrays import Ints
from .build import Builder, Undo
from .events import KEEP_EVENTS, NO_EPISODE, EventLog, Fold, Mark, numbered
from .graph import Graph
from .lock import WriterLock
from .nodes import Nodes
from .read import FORKED, Contents, FileState, connect, damaged, read, read_contents, reading, translated
from .schema import (
    APPLICATION,
    EDGE,
    NEW_TABLES,
    SCHEMA,
    TABLES,
    attribute_crc,
    attribute_rows_crc,
    crc,
    events_crc,
    evidence_crc,
    evidence_row,
    floats,
    form_of,
    meta_crc,
    node_crc,
    pack,
    pack_attribute,
    rows_crc,
    state_crc,
)
from .settings import shortened

SYNCHRONOUS = ("normal", "full")
_REOPEN = "Planning and reading still work; close() the memory and reopen it with open() to write again."
_SAFEST = "PRAGMA synchronous = EXTRA"  # otherwise a power loss while the journal mode changes could damage the file
_PATIENCE = 25  # number of attempts of close() to get exclusive access to the file
_SIDECARS = ("-wal", "-journal", "-shm")
_ROWS = 1 << 16  # rows written at once
_EVIDENCE = "INSERT OR REPLACE INTO evidence VALUES (?, ?, ?, ?, ?, ?)"
_EDGES = "INSERT INTO edges VALUES (?, ?, ?, nullif(?, 9e999), ?)"
_EVENTS = f"INSERT INTO events VALUES (?, ?, ?, ?, nullif(?, {NO_EPISODE}))"
_GROWTH = "INSERT INTO growth VALUES (?, ?, ?, ?)"
# Values that files of version 0.1.0 do not store, because that version had no others.
_UNSAID: dict[str, dict[str, Any]] = {"settings": {"reversible": None}, "policy": {"spares": False}}


class Store:
    """A memory file open for writing.

    After an exception the store reads from the file whether the call was written, so that the memory can keep or undo
    it. If that is uncertain, or if calls that returned are not in the file, all further writes are refused.
    """

    def __init__(self, path: Path, lock: WriterLock, meta: dict[str, Any], file: FileState, synchronous: str) -> None:
        """Open an existing, checked file at a real path whose lock is held."""
        self.path = path
        self._lock = lock
        self._meta = {"keep_events": KEEP_EVENTS, **meta}  # schema 1 does not store keep_events
        self._file = file
        self._grouped = False
        self._last: object = None
        self._refusal: str | None = None
        self._process = os.getpid()
        self._connection = _connect_live(path, synchronous)
        self._identity = _identity(path)
        _LIVE.add(self)

    def check_open(self) -> None:
        """Raise StoreError if this process may not write the file, or not any more."""
        if os.getpid() != self._process:
            raise StoreError(
                f"{self.path} was opened by process {self._process}, and this is process {os.getpid()}, forked from "
                "it: only the process that opened a memory can write it. Close it there and open() it here."
            )
        if self._refusal is not None:
            raise StoreError(self._refusal)

    def check_there(self) -> None:
        """Call `check_open`, and raise StoreError if the file was moved, deleted or replaced."""
        self.check_open()
        if _identity(self.path) != self._identity:
            lost = "it was deleted, moved or replaced while it was open. save() keeps the memory in a new file"
            raise StoreError(self._refuse(lost))

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Open one transaction for several calls; calls that returned are kept even if the block raises."""
        if self._grouped:
            yield
            return
        self.check_there()
        self._upgrade()
        with translated(self.path):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        self._grouped = True
        try:
            yield
        finally:
            self._end_group()

    def wrote(self, token: object) -> bool:
        """Whether the last write was that of `token`, even if the call was interrupted after the write."""
        return self._last is token

    def holds(self, key: str, value: Any) -> bool:
        """Whether a fact about the memory has this value in the file."""
        return bool(self._meta.get(key) == value)

    def write_batch(self, builder: Builder, undo: Undo, meta: dict[str, Any]) -> None:
        """Write the changes of a batch; `undo` is the token."""
        with self._transaction(undo):
            self._file.checksum += _write_nodes(self._connection, builder.nodes, undo.nodes, undo.stream)
            self._file.checksum += _write_edges(self._connection, builder.graph, undo.edges)
            for edges, steps_before in undo.temporal:
                self._mark_temporal(builder.graph, edges, steps_before)
            for node, feature in undo.features.items():
                self._move_feature(builder.nodes, node, feature)
            self._file.checksum += _write_log(self._connection, builder.log, undo.log)
            self._append_attributes(builder.nodes, undo.nodes)
            self._put_meta(meta)

    def write_log(self, log: EventLog, mark: Mark, facts: dict[str, Any] | None = None) -> None:
        """Write the events since a mark, which is the token, and facts about the memory in the same transaction."""
        with self._transaction(mark):
            self._file.checksum += _write_log(self._connection, log, mark)
            self._put_meta(facts or {})

    def write_fold(self, log: EventLog, fold: Fold) -> None:
        """Replace the oldest events by evidence; `fold` is the token."""
        with self._transaction(fold):
            folded = log.folded + len(fold.rows)
            self._connection.execute("DELETE FROM events WHERE id <= ?", (folded,))
            self._file.checksum -= events_crc(numbered(log.folded + 1, fold.rows.tolist()))
            for edge, (before, after) in fold.evidence.items():
                self._connection.execute(_EVIDENCE, (edge, *evidence_row(after)))
                self._file.checksum += evidence_crc(edge, after) - (0 if before is None else evidence_crc(edge, before))
            if len(fold.growth):
                self._connection.execute("DELETE FROM growth WHERE event <= ?", (int(fold.growth[-1, 0]),))
                self._file.checksum -= rows_crc(fold.growth)
            self._connection.execute("UPDATE state SET folded = ?, records = ? WHERE id = 0", (folded, fold.records))
            self._file.checksum += state_crc(folded, fold.records) - state_crc(log.folded, log.folded_records)

    def write_meta(self, meta: dict[str, Any]) -> None:
        """Write facts about the memory; `meta` is the token."""
        with self._transaction(meta):
            self._put_meta(meta)

    def write_changed_meta(self, meta: dict[str, Any]) -> None:
        """Write facts about the memory, unless the file holds the same values already."""
        if any(key not in self._meta or not _says(self._meta[key], key, value) for key, value in meta.items()):
            self.write_meta(meta)

    def newer(self) -> Contents | None:
        """Return the contents of the file if they differ from those read before this connection was made, else None.

        If a writer is killed when its last call is in the log but not yet in the index that readers share, that call is
        invisible until the last reader has closed the file.
        """
        with translated(self.path), damaged(self.path):
            version = self._schema_in_file()
            if version == self._file.schema and self._in_file() == self._expected():
                return None
            contents, self._file = read_contents(self._connection, version)
        self._meta = {"keep_events": KEEP_EVENTS, **contents.meta}
        return contents

    def write_attribute(self, name: str, values: NDArray[Any] | None, token: object) -> None:
        """Write an attribute of all nodes; None removes it."""
        with self._transaction(token):
            number = None
            if name in self._file.attributes:
                number, rows = self._file.attributes.pop(name)
                execute = self._connection.execute
                dtype, shape = execute("SELECT dtype, shape FROM attributes WHERE id = ?", (number,)).fetchone()
                execute("DELETE FROM attributes WHERE id = ?", (number,))
                execute("DELETE FROM attribute_rows WHERE attribute = ?", (number,))
                form = {"dtype": dtype, "shape": json.loads(shape)}
                self._file.checksum -= rows + attribute_crc(number, name, form)
            if values is not None:
                self._add_run(name, 0, values, number)

    def close(self) -> None:
        """Close the file, so that others can write it; its log is moved into it unless a process is reading it."""
        if os.getpid() != self._process:
            return  # the file, its log and its lock belong to the parent
        _LIVE.discard(self)
        left, unmoved = "", _identity(self.path) == self._identity
        with contextlib.ExitStack() as at_the_end:
            at_the_end.callback(self._lock.release)
            at_the_end.callback(self._disconnect)
            self._end_group()
            if unmoved:
                left = _to_one_file(self._connection)
        if unmoved and not left and os.path.lexists(f"{self.path}-wal"):
            left = "it could not be removed"
        if left:
            warnings.warn(
                f"{self.path}: {self.path.name}-wal still belongs to it ({left}). Copy or move both, or open and close "
                "the memory again when no process reads it and the disk has room.",
                stacklevel=4,
            )

    def _disconnect(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def after_fork(self) -> None:
        """Keep a forked child from using, or even closing, the connection and the lock of its parent."""
        if self._identity is not None:
            FORKED.add(self._identity)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
        self._lock.abandon()

    # -- transactions --------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self, token: object) -> Iterator[None]:
        self.check_there()
        if not self._grouped:
            self._upgrade()
        file, saved, meta = self._file, (self._file.calls, self._file.checksum, self._file.next_run), dict(self._meta)
        attributes = dict(file.attributes)
        file.calls += 1
        begin, end = ("SAVEPOINT call", "RELEASE call") if self._grouped else ("BEGIN IMMEDIATE", "COMMIT")
        try:
            self._connection.execute(begin)
            yield
            values = (file.calls, file.checksum)
            self._connection.execute("UPDATE state SET calls = ?, checksum = ? WHERE id = 0", values)
            self._connection.execute(end)
            self._last = token
        except BaseException as error:
            if self._is_written():
                self._last = token
                self._forgive(error)
                return
            file.calls, file.checksum, file.next_run = saved
            file.attributes, self._meta = attributes, meta
            if isinstance(error, sqlite3.Error):
                raise StoreError(self._failed(error)) from None
            raise

    def _is_written(self) -> bool:
        """End the transaction after an exception; return whether the present call is in the file."""
        connection = self._connection
        lost = self._grouped and not connection.in_transaction
        try:
            if self._grouped and not lost:
                with contextlib.suppress(sqlite3.Error):  # the savepoint may not exist yet, or not any more
                    connection.execute("ROLLBACK TO call")
                    connection.execute("RELEASE call")
                lost = not connection.in_transaction
            elif connection.in_transaction:
                connection.execute("ROLLBACK")
            found = self._in_file()
        except sqlite3.Error as error:
            self._refuse(f"a write failed, and it is unknown what it left in the file ({error})")
            return False
        if lost:
            self._refuse("a write failed, and undid the calls since group() began, which are not in the file")
        return found == self._expected()

    def _forgive(self, error: BaseException) -> None:
        """Handle an exception after the call was written: an SQLite error becomes a warning, others are raised.

        COMMIT also reports an error if the transaction is in the log but the log cannot be moved into the file.
        """
        if not isinstance(error, (sqlite3.Error, MemoryError)):
            raise error
        warnings.warn(
            f"{self.path}: the call is in the file, but its log could not be shortened ({error})", stacklevel=5
        )

    def _in_file(self) -> tuple[int, int]:
        """Return the number of calls and the checksum in the file; schema 1 does not count calls."""
        if self._file.schema < SCHEMA:
            (text,) = self._connection.execute("SELECT value FROM meta WHERE key = 'checksum'").fetchone()
            return 0, json.loads(text)
        calls, checksum = self._connection.execute("SELECT calls, checksum FROM state WHERE id = 0").fetchone()
        return calls, checksum

    def _expected(self) -> tuple[int, int]:
        return self._file.calls, self._file.checksum

    def _end_group(self) -> None:
        if not self._grouped:
            return
        self._grouped = False
        connection = self._connection
        if self._refusal is not None or not connection.in_transaction:
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            return
        try:
            connection.execute("COMMIT")
        except BaseException as error:
            reason = self._commit_again(error)
            if reason is None:
                self._forgive(error)
                return
            raise StoreError(
                self._refuse(f"the calls since group() began could not be written ({reason}) and are not in the file")
            ) from None

    def _commit_again(self, error: BaseException) -> BaseException | None:
        """Handle a COMMIT that raised; return why the group is not in the file, None if it is."""
        connection = self._connection
        try:
            if not isinstance(error, (sqlite3.Error, MemoryError)) and connection.in_transaction:
                connection.execute("COMMIT")  # a signal interrupted the first COMMIT before it was done
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return None if self._in_file() == self._expected() else error
        except sqlite3.Error as second:
            return second

    def _refuse(self, reason: str) -> str:
        """Refuse all further writes; return the error message."""
        self._refusal = f"{self.path} is not written any more: {reason}. {_REOPEN}"
        return self._refusal

    def _failed(self, error: sqlite3.Error) -> str:
        more = self._refusal or "Memory and file are as they were before the call."
        return f"{self.path} could not be written: {error}. {more}"

    def _upgrade(self) -> None:
        """Convert a file of schema 1 to schema 2, and keep a copy of the old file beside it."""
        if self._file.schema == SCHEMA:
            return
        with translated(self.path):
            if self._schema_in_file() < SCHEMA:
                _copy_to(self._connection, _free_name(self.path, ".schema1"))
                self._change_schema()
            calls, checksum = self._connection.execute("SELECT calls, checksum FROM state").fetchone()
        self._file.calls, self._file.checksum, self._file.schema = calls, checksum, SCHEMA

    def _change_schema(self) -> None:
        connection = self._connection
        records = json.loads(connection.execute("SELECT value FROM meta WHERE key = 'records'").fetchone()[0])
        keep = {"keep_events": self._meta["keep_events"]}
        checksum = self._file.checksum - meta_crc("records", records) + state_crc(0, records)
        checksum += sum(meta_crc(key, value) for key, value in keep.items())
        try:
            connection.execute("BEGIN IMMEDIATE")
            for statement in NEW_TABLES:
                connection.execute(statement)
            connection.execute("DELETE FROM meta WHERE key IN ('checksum', 'records')")
            _write_meta(connection, keep)
            connection.execute("INSERT INTO state VALUES (0, 0, ?, 0, ?)", (checksum, records))
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if self._schema_in_file() < SCHEMA:
                raise
            self._forgive(error)

    def _schema_in_file(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    # -- rows ----------------------------------------------------------------------------------------------------

    def _put_meta(self, meta: dict[str, Any]) -> None:
        changed = {key: value for key, value in meta.items() if key not in self._meta or self._meta[key] != value}
        for key in changed.keys() & self._meta.keys():
            self._file.checksum -= meta_crc(key, self._meta[key])
        self._file.checksum += _write_meta(self._connection, changed)
        self._meta = {**self._meta, **changed}

    def _mark_temporal(self, graph: Graph, edges: Ints, steps_before: NDArray[np.uint8]) -> None:
        after = _edge_rows(graph, edges)
        before = after.copy()
        before["temporal"] = steps_before
        self._file.checksum += rows_crc(after) - rows_crc(before)
        changed = [(int(row["temporal"]), int(row["id"])) for row in after]
        self._connection.executemany("UPDATE edges SET temporal = ? WHERE id = ?", changed)

    def _move_feature(self, nodes: Nodes, node: int, before: NDArray[np.float32]) -> None:
        after = floats(nodes.feature[node])
        self._file.checksum += crc("feature", node, after) - crc("feature", node, floats(before))
        self._connection.execute("UPDATE nodes SET feature = ? WHERE id = ?", (after, node))

    def _append_attributes(self, nodes: Nodes, first: int) -> None:
        for name, column in nodes.attributes.items():
            begin = first if name in self._file.attributes else 0
            if begin < len(column) or name not in self._file.attributes:
                self._add_run(name, begin, column.values[begin:])

    def _add_run(self, name: str, first: int, values: NDArray[Any], number: int | None = None) -> None:
        """Add attribute values of the nodes from `first` on; a new attribute is added first, with this number."""
        file = self._file
        if name not in file.attributes:
            if number is None:
                number = 1 + max((known for known, _ in file.attributes.values()), default=-1)
            file.attributes[name] = (number, 0)
            file.checksum += _write_attribute(self._connection, number, name, values)
        number, rows = file.attributes[name]
        added = _write_run(self._connection, file.next_run, number, first, values)
        file.next_run += 1
        file.attributes[name] = (number, rows + added)
        file.checksum += added


def check_synchronous(value: Any) -> None:
    """Raise InputError unless the value is one of `SYNCHRONOUS`."""
    if not isinstance(value, str) or value not in SYNCHRONOUS:
        raise InputError(
            f"synchronous is {shortened(value)}: expected 'normal' (a returned call survives a crash of the process) "
            "or 'full' (it also survives a power loss; one disk sync for each call)"
        )


# -- fork --------------------------------------------------------------------------------------------------------

_LIVE: weakref.WeakSet[Store] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_LIVE):
        store.after_fork()
    _LIVE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# -- whole files -------------------------------------------------------------------------------------------------


def create(path: Path, contents: Contents) -> FileState:
    """Write a whole memory to a file at a real path; a failed write leaves no partial file.

    The caller must hold the writer lock of `path`.
    """
    file = FileState()
    with _new_file(path) as temporary, translated(path), contextlib.closing(connect(temporary, "rw")) as connection:
        # This file is invisible until it is complete, and it is synced as a whole before it replaces `path`.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA};")
        connection.executescript(TABLES[SCHEMA])
        connection.execute("BEGIN")
        log = contents.log
        file.checksum = _write_nodes(connection, contents.nodes, 0, 0) + _write_edges(connection, contents.graph, 0)
        for edge, evidence in log.evidence.items():
            connection.execute(_EVIDENCE, (edge, *evidence_row(evidence)))
            file.checksum += evidence_crc(edge, evidence)
        file.checksum += _write_log(connection, log, Mark(log.folded, 0))
        for number, (name, column) in enumerate(contents.nodes.attributes.items()):
            rows = _write_run(connection, file.next_run, number, 0, column.values) if len(column) else 0
            file.next_run += 1
            file.attributes[name] = (number, rows)
            file.checksum += rows + _write_attribute(connection, number, name, column.values)
        file.checksum += _write_meta(connection, contents.meta) + state_crc(log.folded, log.folded_records)
        state = (0, file.calls, file.checksum, log.folded, log.folded_records)
        connection.execute("INSERT INTO state VALUES (?, ?, ?, ?, ?)", state)
        connection.execute("COMMIT")
    return file


def copy(source: Path, target: Path) -> None:
    """Copy a memory file, which may be live, to another file; a failed copy leaves no partial file."""
    if not source.is_file():
        raise StoreError(f"{source} is not a file: expected a memory file written by save() or open()")
    with reading(source) as connection:
        _copy_to(connection, target)


def _copy_to(connection: sqlite3.Connection, target: Path) -> None:
    lock = WriterLock(target)
    try:
        with _new_file(target) as temporary:
            with translated(target), contextlib.closing(connect(temporary, "rw")) as out:
                connection.backup(out)
                out.execute("PRAGMA journal_mode = DELETE")
            read(temporary)
    finally:
        lock.release()


def _free_name(path: Path, suffix: str) -> Path:
    """Return an unused name beside `path`."""
    for number in range(1, 1000):
        name = path.with_name(f"{path.name}{suffix}" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(name):
            return name
    raise StoreError(f"there are a thousand copies {path.name}{suffix} beside {path}: remove some")


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """Make a new empty file, which replaces `path` at the end, or is removed on an error."""
    temporary = path.with_name(path.name + "-new")
    try:
        try:
            _remove(temporary)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
            os.close(os.open(temporary, flags, 0o666))
            yield temporary
            _sync(temporary)
            _settle(path)
            if path.exists():
                shutil.copymode(path, temporary)
            os.replace(temporary, path)
            _sync(path.parent)
        finally:
            with contextlib.suppress(OSError):
                _remove(temporary)
    except OSError as error:
        raise StoreError(f"{path} could not be written: {error}") from None


def _remove(path: Path) -> None:
    for suffix in ("", *_SIDECARS):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Sync a file or folder to disk; not every system can sync folders."""
    folder = path.is_dir()
    if folder and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not folder or error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def _settle(path: Path) -> None:
    """Move the log of a killed writer into its file, so that the file is whole until it is replaced.

    Otherwise SQLite would treat the old log as one of the new file, and damage it.
    """
    left = [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")]
    if not any(map(os.path.lexists, left)):
        return
    if path.exists() and path.stat().st_size:
        try:
            with contextlib.closing(connect(path, "rw")) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                reason = _to_one_file(connection)
        except sqlite3.OperationalError as error:
            reason = str(error)
        except sqlite3.DatabaseError:
            reason = ""  # the file is not an SQLite file, so the log does not belong to it
        if reason:
            raise StoreError(f"{path} cannot be replaced now ({reason}): try again")
    for log in filter(os.path.lexists, left):
        os.replace(log, _free_name(log, "-old"))


def _to_one_file(connection: sqlite3.Connection) -> str:
    """Move the log into the file and remove it; return the reason if that failed, otherwise ""."""
    for _ in range(_PATIENCE):
        try:
            connection.execute(_SAFEST)
            if connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete":
                return ""
        except sqlite3.Error as error:
            if "locked" not in str(error):
                return str(error)
        time.sleep(0.02)  # readers of this library hold the file only for a short time
    return "somebody is reading it"


def _connect_live(path: Path, synchronous: str) -> sqlite3.Connection:
    with translated(path):
        connection = connect(path, "rw")
        try:
            connection.execute(_SAFEST)
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreError(
                    f"{path} cannot be opened for writing: SQLite has no write-ahead log here (a network drive?). "
                    "Use load() and save(), or a local disk."
                )
            connection.execute(f"PRAGMA synchronous = {synchronous.upper()}")
            # The first read opens the log. Without it, a log made by a reader would not be removed at the end.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# -- tables ------------------------------------------------------------------------------------------------------


def _write_nodes(connection: sqlite3.Connection, nodes: Nodes, first: int, stream: int) -> int:
    total = 0
    observations = nodes.observation
    for node in range(first, len(nodes)):
        position, embedding = int(nodes.stream.values[node]), floats(nodes.embedding[node])
        feature = floats(nodes.feature[node]) if nodes.has_own_features else None
        observation = None if observations is None else pack(observations[node : node + 1])
        connection.execute(
            "INSERT INTO nodes VALUES (?, ?, ?, ?, ?)", (node, position, embedding, feature, observation)
        )
        total += node_crc(node, position, embedding, feature, observation)
    run = nodes.assignment.values[stream:].astype("<i8").tobytes()
    if run:
        connection.execute("INSERT INTO assignments VALUES (?, ?)", (stream, run))
        total += crc("assignment", stream, run)
    return total


def _write_edges(connection: sqlite3.Connection, graph: Graph, first: int) -> int:
    total = 0
    for low in range(first, len(graph), _ROWS):  # rows of SQLite take many times the RAM of the edges
        rows = _edge_rows(graph, np.arange(low, min(low + _ROWS, len(graph))))
        connection.executemany(_EDGES, rows.tolist())
        total += rows_crc(rows)
    return total


def _edge_rows(graph: Graph, edges: Ints) -> NDArray[Any]:
    rows = np.empty(len(edges), EDGE)
    rows["id"] = edges
    for name in ("source", "target", "distance", "temporal"):
        rows[name] = getattr(graph, name).values[edges]
    return rows


def _write_log(connection: sqlite3.Connection, log: EventLog, mark: Mark) -> int:
    events, growth = log.since(mark)
    connection.executemany(_EVENTS, events)
    connection.executemany(_GROWTH, growth.tolist())
    return events_crc(events) + rows_crc(growth)


def _says(stored: Any, key: str, value: Any) -> bool:
    """Whether a stored fact equals this value; missing parts in files of 0.1.0 have the values of that version."""
    return bool((_UNSAID[key] | stored if key in _UNSAID and isinstance(stored, dict) else stored) == value)


def _write_meta(connection: sqlite3.Connection, meta: dict[str, Any]) -> int:
    for key, value in meta.items():
        text = json.dumps(value)
        if not connection.execute("UPDATE meta SET value = ? WHERE key = ?", (text, key)).rowcount:
            connection.execute("INSERT INTO meta VALUES (?, ?)", (key, text))
    return sum(meta_crc(key, value) for key, value in meta.items())


def _write_attribute(connection: sqlite3.Connection, number: int, name: str, values: NDArray[Any]) -> int:
    form = form_of(values)
    row = (number, name, form["dtype"], json.dumps(form["shape"]))
    connection.execute("INSERT INTO attributes VALUES (?, ?, ?, ?)", row)
    return attribute_crc(number, name, form)


def _write_run(connection: sqlite3.Connection, run: int, attribute: int, first: int, values: NDArray[Any]) -> int:
    if not len(values):
        return 0
    rows = pack_attribute(values)
    connection.execute("INSERT INTO attribute_rows VALUES (?, ?, ?, ?, ?)", (run, attribute, first, len(values), rows))
    return attribute_rows_crc(attribute, first, len(values), rows)
