"""Memory files: one SQLite file, readable while it is written, refused when anything in it is not as it should be.

Schema version 1. `PRAGMA application_id` is 0x53474D31 ("SGM1") and `PRAGMA user_version` the schema version.

| table         | one row for               | columns                                                            |
|---------------|---------------------------|--------------------------------------------------------------------|
| `meta`        | a fact about the memory   | `key`, `value` (JSON)                                              |
| `nodes`       | a node                    | `id`, `stream`, `embedding`, `feature`, `observation`              |
| `edges`       | an edge                   | `id`, `source`, `target`, `distance`, `temporal`                   |
| `evidence`    | an edge that was tried    | `edge`, `successes`, `failures`, `streak`, `removed_at`, `guarded` |
| `assignments` | a run of observations     | `first`, `nodes`                                                   |

Embeddings and features are little-endian float32, assignments little-endian int64, observations zlib-compressed (uint8
images as differences along each row). `feature` is NULL where it is the embedding, `distance` where only time joins
the ends, `removed_at` while an edge stands. `meta.checksum` is the sum of the CRC-32 of every row.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Ints
from .build import Builder, Undo
from .cleanup import Changes
from .errors import StoreError
from .graph import Graph
from .lock import WriterLock
from .nodes import Nodes
from .policies import Evidence

SCHEMA = 1
APPLICATION = 0x53474D31
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE nodes (id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, embedding BLOB NOT NULL, feature BLOB,
    observation BLOB);
CREATE TABLE edges (id INTEGER PRIMARY KEY, source INTEGER NOT NULL, target INTEGER NOT NULL, distance REAL,
    temporal INTEGER NOT NULL);
CREATE TABLE evidence (edge INTEGER PRIMARY KEY, successes INTEGER NOT NULL, failures INTEGER NOT NULL,
    streak INTEGER NOT NULL, removed_at INTEGER, guarded INTEGER NOT NULL);
CREATE TABLE assignments (first INTEGER PRIMARY KEY, nodes BLOB NOT NULL);
"""
_EDGE = np.dtype([("id", "<i8"), ("source", "<i8"), ("target", "<i8"), ("distance", "<f4"), ("temporal", "u1")])


@dataclasses.dataclass
class Contents:
    """Everything a memory file holds, as the memory itself holds it."""

    nodes: Nodes
    graph: Graph
    meta: dict[str, Any]

    @property
    def tail(self) -> tuple[int, int] | None:
        """The last observation's (episode, node)."""
        return None if self.meta["tail"] is None else (self.meta["tail"][0], self.meta["tail"][1])


class Store:
    """A memory file open for writing: each call of the memory is one transaction."""

    def __init__(self, path: Path, lock: WriterLock, meta: dict[str, Any], checksum: int) -> None:
        """Open an existing, checked file whose lock is held."""
        self.path = path
        self._lock = lock
        self._meta = meta
        self._checksum = checksum
        self._grouped = False
        self._last: object = None
        self._connection = _connect(path, write=True)

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """One transaction for several calls; those that returned are kept even if the block raises."""
        if self._grouped:
            yield
            return
        self._grouped = True
        try:
            with _translated(self.path):
                self._connection.execute("BEGIN IMMEDIATE")
            yield
        finally:
            self._end_group()

    def wrote(self, token: object) -> bool:
        """Whether what `token` stands for is in the file, also if the call that wrote it was interrupted afterwards."""
        return self._last is token

    def write_batch(self, builder: Builder, undo: Undo, meta: dict[str, Any]) -> None:
        """Write what a batch changed; `undo` is the token."""
        with self._transaction(undo):
            self._checksum += _write_nodes(self._connection, builder.nodes, undo.nodes, undo.stream)
            self._checksum += _write_edges(self._connection, builder.graph, undo.edges)
            for edges in undo.temporal:
                self._mark_temporal(builder.graph, edges)
            for node, feature in undo.features.items():
                self._move_feature(builder.nodes, node, feature)
            self._put_meta(meta)

    def write_evidence(self, changes: Changes, records: int) -> None:
        """Write new evidence about edges, and how many tries have been recorded; `changes` is the token."""
        with self._transaction(changes):
            for edge, before, after in changes:
                self._checksum += _evidence_crc(edge, after) - (0 if before is None else _evidence_crc(edge, before))
                self._connection.execute(
                    "INSERT OR REPLACE INTO evidence VALUES (?, ?, ?, ?, ?, ?)", (edge, *_evidence_row(after))
                )
            self._put_meta({"records": records})

    def write_meta(self, meta: dict[str, Any]) -> None:
        """Write facts about the memory; `meta` is the token."""
        with self._transaction(meta):
            self._put_meta(meta)

    def close(self) -> None:
        """Leave one plain file behind, unless somebody is reading it, and let others write it."""
        self._end_group()
        try:
            mode = self._connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
        except sqlite3.Error:
            mode = "wal"
        self._connection.close()
        self._lock.release()
        if mode != "delete":
            warnings.warn(
                f"{self.path} is being read, so {self.path.name}-wal still belongs to it: copy or move both, or open "
                "and close the memory again when nobody reads it",
                stacklevel=3,
            )

    def _end_group(self) -> None:
        if self._grouped:
            self._grouped = False
            if self._connection.in_transaction:
                with _translated(self.path):
                    self._connection.execute("COMMIT")

    @contextlib.contextmanager
    def _transaction(self, token: object) -> Iterator[None]:
        saved = self._checksum, dict(self._meta)
        begin, end = ("SAVEPOINT call", "RELEASE call") if self._grouped else ("BEGIN IMMEDIATE", "COMMIT")
        ending = False
        with _translated(self.path):
            try:
                self._connection.execute(begin)
                yield
                values = (json.dumps(self._checksum),)
                self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('checksum', ?)", values)
                ending = True
                self._connection.execute(end)
                self._last = token
            except BaseException:
                # A signal may arrive when the transaction has just ended; what is in the file then stays.
                if self._rolled_back() or not ending:
                    self._checksum, self._meta = saved
                else:
                    self._last = token
                raise

    def _rolled_back(self) -> bool:
        """Undo the call's transaction; False if there is none any more."""
        statements = ("ROLLBACK TO call", "RELEASE call") if self._grouped else ("ROLLBACK",)
        try:
            for statement in statements:
                self._connection.execute(statement)
        except sqlite3.Error:
            return False
        return True

    def _put_meta(self, meta: dict[str, Any]) -> None:
        changed = {key: value for key, value in meta.items() if key not in self._meta or self._meta[key] != value}
        self._checksum -= sum(_meta_crc(key, self._meta[key]) for key in changed if key in self._meta)
        self._checksum += _write_meta(self._connection, changed)
        self._meta = {**self._meta, **changed}

    def _mark_temporal(self, graph: Graph, edges: Ints) -> None:
        after = _edge_rows(graph, edges)
        before = after.copy()
        before["temporal"] = 0
        self._checksum += _edges_crc(after) - _edges_crc(before)
        self._connection.executemany("UPDATE edges SET temporal = 1 WHERE id = ?", [(int(edge),) for edge in edges])

    def _move_feature(self, nodes: Nodes, node: int, before: NDArray[np.float32]) -> None:
        after = _floats(nodes.feature[node])
        self._checksum += _crc("feature", node, after) - _crc("feature", node, _floats(before))
        self._connection.execute("UPDATE nodes SET feature = ? WHERE id = ?", (after, node))


def create(path: Path, contents: Contents) -> int:
    """Write a whole memory to a new file that appears complete or not at all. Returns its checksum.

    The writer's lock of `path` must be held.
    """
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    try:
        connection = _connect(temporary, write=False, create=True)
        with contextlib.closing(connection), _translated(temporary):
            connection.executescript(f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA};{_TABLES}")
            connection.execute("BEGIN")
            checksum = _write_nodes(connection, contents.nodes, 0, 0)
            checksum += _write_edges(connection, contents.graph, 0)
            for edge, evidence in contents.graph.evidence.items():
                connection.execute("INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?)", (edge, *_evidence_row(evidence)))
                checksum += _evidence_crc(edge, evidence)
            checksum += _write_meta(connection, contents.meta)
            connection.execute("INSERT INTO meta VALUES ('checksum', ?)", (json.dumps(checksum),))
            connection.execute("COMMIT")
        # A write-ahead log left by a killed writer belongs to the file being replaced and would spoil the new one.
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        os.replace(temporary, path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return checksum


def read(path: Path) -> tuple[Contents, int]:
    """Read and check a whole file, and its checksum; StoreError if anything is not as it should be."""
    if not path.is_file():
        raise StoreError(f"{path} is not a file: expected a memory file written by save() or open()")
    with _translated(path), contextlib.closing(_connect(path)) as connection:
        connection.execute("BEGIN")
        _check_header(connection, path)
        try:
            return _read_contents(connection)
        except StoreError as error:
            raise StoreError(f"{path} is damaged: {error}") from error
        except Exception as error:  # whatever a file makes the reader stumble over
            raise StoreError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def _check_header(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION:
        raise StoreError(f"{path} is not a memory file: its application id is {application:#x}, not {APPLICATION:#x}")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA:
        raise StoreError(
            f"{path} has schema version {version}; this release reads and writes version {SCHEMA}. Use the release "
            "that wrote it."
        )
    if _schema(connection) != _expected_schema():
        raise StoreError(f"{path} is damaged: its tables are not those of schema version {SCHEMA}, or not only those")
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise StoreError(f"{path} is damaged: {verdict}")


def _schema(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Every table, index, view and trigger, with the statement that made it."""
    return connection.execute("SELECT type, name, ifnull(sql, '') FROM sqlite_master ORDER BY type, name").fetchall()


def _expected_schema() -> list[tuple[str, str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_TABLES)
        return _schema(connection)


def _read_contents(connection: sqlite3.Connection) -> tuple[Contents, int]:
    meta = {key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM meta")}
    checksum = meta.pop("checksum")
    missing = {"settings", "policy", "fingerprint", "features", "records", "tail", "observation"} - set(meta)
    if missing:
        raise StoreError(f"the table meta lacks {', '.join(sorted(missing))}")
    nodes, total = _read_nodes(connection, meta["observation"])
    graph, more = _read_edges(connection, len(nodes))
    total += more + _read_evidence(connection, graph)
    total += sum(_meta_crc(key, value) for key, value in meta.items())
    if total != checksum:
        raise StoreError(f"its rows do not add up to its checksum ({total}, not {checksum}): it was changed by hand")
    return Contents(nodes, graph, meta), checksum


def _read_nodes(connection: sqlite3.Connection, form: dict[str, Any] | None) -> tuple[Nodes, int]:
    rows = connection.execute("SELECT id, stream, embedding, feature, observation FROM nodes ORDER BY id").fetchall()
    nodes, total = Nodes(), 0
    if [row[0] for row in rows] != list(range(len(rows))):
        raise StoreError(f"its {len(rows)} nodes are not numbered 0 to {len(rows) - 1}")
    for number, stream, embedding, feature, observation in rows:
        total += _crc("node", number, struct.pack("<q", stream) + embedding)
        total += _crc("feature", number, feature) + _crc("observation", number, observation)
    if rows:
        features = [row[3] for row in rows]
        observations = [row[4] for row in rows]
        nodes.append(
            np.array([row[1] for row in rows], np.int64),
            _matrix([row[2] for row in rows]),
            None if features[0] is None else _matrix(features),
            None if form is None else np.stack([_unpack(blob, form) for blob in observations]),
        )
    for first, blob in connection.execute("SELECT first, nodes FROM assignments ORDER BY first"):
        run = np.frombuffer(blob, "<i8")
        if first != len(nodes.assignment) or (len(run) and not (run.min() >= -1 and run.max() < len(rows))):
            raise StoreError(f"the assignments from observation {first} on do not fit the {len(rows)} nodes")
        nodes.assignment.append(run)
        total += _crc("assignment", first, blob)
    return nodes, total


def _read_edges(connection: sqlite3.Connection, nodes: int) -> tuple[Graph, int]:
    columns = "id, source, target, ifnull(distance, 9e999), temporal"
    rows = np.array(connection.execute(f"SELECT {columns} FROM edges ORDER BY id").fetchall(), _EDGE)
    graph = Graph()
    ends = np.concatenate([rows["source"], rows["target"]])
    if (rows["id"] != np.arange(len(rows))).any() or (len(ends) and not (ends.min() >= 0 and ends.max() < nodes)):
        raise StoreError(f"its {len(rows)} edges are not numbered from 0 on, or join nodes it does not have")
    graph.append(nodes, rows["source"], rows["target"], rows["distance"], rows["temporal"].astype(np.bool_))
    return graph, _edges_crc(rows)


def _read_evidence(connection: sqlite3.Connection, graph: Graph) -> int:
    total = 0
    for edge, *row in connection.execute("SELECT * FROM evidence"):
        evidence = Evidence(row[0], row[1], row[2], row[3], bool(row[4]))
        if not 0 <= edge < len(graph):
            raise StoreError(f"there is evidence about edge {edge}, but only {len(graph)} edges")
        graph.evidence[edge] = evidence
        total += _evidence_crc(edge, evidence)
    return total


def _write_nodes(connection: sqlite3.Connection, nodes: Nodes, first: int, stream: int) -> int:
    total = 0
    observations = nodes.observation
    for node in range(first, len(nodes)):
        position, embedding = int(nodes.stream.values[node]), _floats(nodes.embedding[node])
        feature = _floats(nodes.feature[node]) if nodes.has_own_features else None
        observation = None if observations is None else _pack(observations[node])
        connection.execute(
            "INSERT INTO nodes VALUES (?, ?, ?, ?, ?)", (node, position, embedding, feature, observation)
        )
        total += _crc("node", node, struct.pack("<q", position) + embedding)
        total += _crc("feature", node, feature) + _crc("observation", node, observation)
    run = nodes.assignment.values[stream:].astype("<i8").tobytes()
    if run:
        connection.execute("INSERT INTO assignments VALUES (?, ?)", (stream, run))
        total += _crc("assignment", stream, run)
    return total


def _write_edges(connection: sqlite3.Connection, graph: Graph, first: int) -> int:
    rows = _edge_rows(graph, np.arange(first, len(graph)))
    values = rows.tolist()
    if np.isinf(rows["distance"]).any():
        values = [(*row[:3], None if row[3] == np.inf else row[3], row[4]) for row in values]
    connection.executemany("INSERT INTO edges VALUES (?, ?, ?, ?, ?)", values)
    return _edges_crc(rows)


def _write_meta(connection: sqlite3.Connection, meta: dict[str, Any]) -> int:
    rows = [(key, json.dumps(value)) for key, value in meta.items()]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)
    return sum(_meta_crc(key, value) for key, value in meta.items())


def _edge_rows(graph: Graph, edges: Ints) -> NDArray[Any]:
    rows = np.empty(len(edges), _EDGE)
    rows["id"] = edges
    for name in ("source", "target", "distance", "temporal"):
        rows[name] = getattr(graph, name).values[edges]
    return rows


def _evidence_row(evidence: Evidence) -> tuple[Any, ...]:
    return dataclasses.astuple(evidence)


def _crc(kind: str, number: int, data: bytes | None) -> int:
    return zlib.crc32(data or b"", zlib.crc32(f"{kind} {number}".encode()))


def _meta_crc(key: str, value: Any) -> int:
    return zlib.crc32(json.dumps([key, value]).encode())


def _evidence_crc(edge: int, evidence: Evidence) -> int:
    return zlib.crc32(repr((edge, *map(_plain, _evidence_row(evidence)))).encode())


def _plain(value: Any) -> int | None:
    return None if value is None else int(value)


def _edges_crc(rows: NDArray[Any]) -> int:
    data, width = memoryview(rows.tobytes()), _EDGE.itemsize
    return sum(zlib.crc32(data[start : start + width]) for start in range(0, len(data), width))


def _floats(values: NDArray[np.float32]) -> bytes:
    return values.astype("<f4").tobytes()


def _matrix(blobs: list[bytes]) -> NDArray[np.float32]:
    if len({len(blob) for blob in blobs}) != 1 or not len(blobs[0]) or len(blobs[0]) % 4:
        raise StoreError("its embeddings or features are not of one size")
    matrix = np.frombuffer(b"".join(blobs), "<f4").reshape(len(blobs), -1)
    if not np.isfinite(matrix).all():
        raise StoreError("its embeddings or features are not all finite")
    return matrix


def _pack(observation: NDArray[Any]) -> bytes:
    """Compress one observation without loss."""
    if observation.dtype == np.uint8 and observation.ndim >= 2:
        observation = np.diff(observation, axis=1, prepend=np.zeros_like(observation[:, :1]))
    return zlib.compress(observation.astype(observation.dtype.newbyteorder("<")).tobytes(), 6)


def _unpack(blob: bytes, form: dict[str, Any]) -> NDArray[Any]:
    """The inverse of `_pack`, for an observation of the dtype and shape that `form` names."""
    dtype, shape = np.dtype(form["dtype"]), tuple(form["shape"])
    if dtype.kind not in "fiub":
        raise StoreError(f"its observations have dtype {dtype}")
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    data = zlib.decompressobj().decompress(blob, size + 1)
    if len(data) != size:
        raise StoreError(f"an observation does not unpack to {size} bytes")
    observation = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    if dtype == np.uint8 and observation.ndim >= 2:
        observation = np.cumsum(observation, axis=1, dtype=np.uint8)
    return observation


def _connect(path: Path, *, write: bool = False, create: bool = False) -> sqlite3.Connection:
    mode = "rwc" if create else "rw" if write else "ro"
    with _translated(path):
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None)
        connection.execute("PRAGMA trusted_schema = OFF")
        if write:
            # NORMAL loses nothing when the process is killed; FULL would also cover power loss, at a sync a call.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
    return connection


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be used as a memory file: {error}") from error
