"""Tables of a memory file, and the packing and checksums of rows.

`PRAGMA application_id` is 0x53474D31 ("SGM1") and `PRAGMA user_version` the schema version, now 2.

| table            | one row for               | columns                                                            |
|------------------|---------------------------|--------------------------------------------------------------------|
| `meta`           | a fact about the memory   | `key`, `value` (JSON)                                              |
| `nodes`          | a node                    | `id`, `stream`, `embedding`, `feature`, `observation`              |
| `edges`          | an edge                   | `id`, `source`, `target`, `distance`, `temporal`                   |
| `assignments`    | a run of observations     | `first`, `nodes`                                                   |
| `events`         | an event of an edge       | `id`, `time`, `edge`, `kind`, `episode`                            |
| `evidence`       | an edge with older events | `edge`, `successes`, `failures`, `streak`, `removed_at`, `guarded` |
| `growth`         | growth between events     | `event`, `nodes`, `edges`, `observations`                          |
| `attributes`     | an attribute of nodes     | `id`, `name`, `dtype`, `shape` (JSON)                              |
| `attribute_rows` | a run of its values       | `id`, `attribute`, `first`, `count`, `rows`                        |
| `state`          | the file, one row         | `id`, `calls`, `checksum`, `folded`, `records`                     |

Embeddings and features are little-endian float32, assignments little-endian int64. Observations, and attributes that
are uint8 images, are compressed by zlib (images as differences along each row) and padded to at least 1/256 of their
size; other attributes are stored as they are, little-endian. NULL means: in `feature`, the feature is the embedding; in
`distance`, only an episode made the edge; in `removed_at`, the edge is not removed; in `episode`, none was given.
`temporal` is the fewest steps in which an episode went along an edge, at most 255; 0 if none did. The first releases
accept only 0 and 1. `guarded` is 1 if only the guard keeps an edge, 2 for a spare edge, 3 for both.

The evidence of an edge is its row in `evidence`, if any, followed by its `events` in order; `kind` is an index of
`KINDS` in events.py. The oldest events may be folded into `evidence`: `state.folded` is the number of folded events,
`state.records` the number of tries among them. A row of `growth` holds the numbers of nodes, edges and observations at
the event after `event`. `state.checksum` is the sum of the CRC-32 of every other row, `state.calls` counts
transactions.

Schema 1 had no events, growth, attributes and state: `evidence` held the whole evidence of edges, and `meta` the
checksum and the number of tries.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import StoreError

from .policies import Evidence

SCHEMA = 2
APPLICATION = 0x53474D31
MOST_RATIO = 256  # largest ratio of decompression, so that no small file can fill the RAM
FACTS = ("settings", "policy", "fingerprint", "features", "tail", "observation")  # in `meta`, in both schemas

_TABLES_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE nodes (id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, embedding BLOB NOT NULL, feature BLOB,
    observation BLOB);
CREATE TABLE edges (id INTEGER PRIMARY KEY, source INTEGER NOT NULL, target INTEGER NOT NULL, distance REAL,
    temporal INTEGER NOT NULL);
CREATE TABLE evidence (edge INTEGER PRIMARY KEY, successes INTEGER NOT NULL, failures INTEGER NOT NULL,
    streak INTEGER NOT NULL, removed_at INTEGER, guarded INTEGER NOT NULL);
CREATE TABLE assignments (first INTEGER PRIMARY KEY, nodes BLOB NOT NULL);
"""
NEW_TABLES = (
    "CREATE TABLE events (id INTEGER PRIMARY KEY, time REAL NOT NULL, edge INTEGER NOT NULL, kind INTEGER NOT NULL, "
    "episode INTEGER)",
    "CREATE TABLE growth (event INTEGER PRIMARY KEY, nodes INTEGER NOT NULL, edges INTEGER NOT NULL, "
    "observations INTEGER NOT NULL)",
    "CREATE TABLE attributes (id INTEGER PRIMARY KEY, name TEXT NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL)",
    "CREATE TABLE attribute_rows (id INTEGER PRIMARY KEY, attribute INTEGER NOT NULL, first INTEGER NOT NULL, "
    "count INTEGER NOT NULL, rows BLOB NOT NULL)",
    "CREATE TABLE state (id INTEGER PRIMARY KEY, calls INTEGER NOT NULL, checksum INTEGER NOT NULL, "
    "folded INTEGER NOT NULL, records INTEGER NOT NULL)",
)
TABLES = {1: _TABLES_1, 2: _TABLES_1 + ";\n".join(NEW_TABLES) + ";"}
_EVENT = struct.Struct("<qdiBq")
_MANY, _PART = 64, 1 << 14  # fewest rows for vectorised checksums, and rows at once, so that they fit the CPU cache


def _crc_table() -> NDArray[np.uint32]:
    """Return the lookup table of CRC-32, one value for each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> np.uint32(1)) ^ np.uint32(0xEDB88320), table >> np.uint32(1))
    return table


_CRC_TABLE = _crc_table()
EDGE = np.dtype([("id", "<i8"), ("source", "<i8"), ("target", "<i8"), ("distance", "<f4"), ("temporal", "u1")])


def schema_of(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Return type, name and SQL statement of every table, index, view and trigger."""
    return connection.execute("SELECT type, name, ifnull(sql, '') FROM sqlite_master ORDER BY type, name").fetchall()


@functools.lru_cache
def expected_schema(version: int) -> list[tuple[str, str, str]]:
    """Return the result of `schema_of` for a valid file of this schema version."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES[version])
        return schema_of(connection)


# -- checksums ---------------------------------------------------------------------------------------------------


def crc(kind: str, number: int, data: bytes | None) -> int:
    """Checksum of a row of blobs."""
    return zlib.crc32(data or b"", zlib.crc32(f"{kind} {number}".encode()))


def node_crc(node: int, stream: int, embedding: bytes, feature: bytes | None, observation: bytes | None) -> int:
    """Checksum of a row of `nodes`."""
    total = crc("node", node, struct.pack("<q", stream) + embedding)
    return total + crc("feature", node, feature) + crc("observation", node, observation)


def meta_crc(key: str, value: Any) -> int:
    """Checksum of a row of `meta`."""
    return zlib.crc32(json.dumps([key, value]).encode())


def evidence_crc(edge: int, evidence: Evidence) -> int:
    """Checksum of a row of `evidence`."""
    row = (edge, *evidence_row(evidence))
    return evidence_row_crc(tuple(None if value is None else int(value) for value in row))


def evidence_row_crc(row: tuple[int | None, ...]) -> int:
    """Checksum of a row of `evidence` of plain Python numbers, as SQLite returns it."""
    return zlib.crc32(repr(row).encode())


def rows_crc(rows: NDArray[Any]) -> int:
    """Sum of the checksums of rows of `edges` or `growth`, given as a structured array or an array of numbers."""
    if not len(rows):
        return 0
    data = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    if len(data) < _MANY:
        return sum([zlib.crc32(row.tobytes()) for row in data])
    return sum(int(_crcs(data[low : low + _PART]).sum(dtype=np.int64)) for low in range(0, len(data), _PART))


def _crcs(data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Compute zlib.crc32 of many rows: (n, width) bytes to (n,), one column of bytes at a time."""
    value = np.full(len(data), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(data.T):
        value = _CRC_TABLE[(value ^ column) & 0xFF] ^ (value >> np.uint32(8))
    return np.asarray(value ^ np.uint32(0xFFFFFFFF))


def events_crc(events: Iterable[tuple[int, float, int, int, int]]) -> int:
    """Sum of the checksums of rows of `events`, each (number, time, edge, kind, episode)."""
    return sum([zlib.crc32(_EVENT.pack(*event)) for event in events])


def state_crc(folded: int, records: int) -> int:
    """Checksum of the columns of `state` about folded events."""
    return crc("folded", folded, struct.pack("<q", records))


def attribute_crc(number: int, name: str, form: dict[str, Any]) -> int:
    """Checksum of a row of `attributes`."""
    return zlib.crc32(json.dumps(["attribute", number, name, form]).encode())


def attribute_rows_crc(attribute: int, first: int, number: int, rows: bytes) -> int:
    """Checksum of a row of `attribute_rows`."""
    return zlib.crc32(rows, zlib.crc32(struct.pack("<qqq", attribute, first, number)))


# -- packing -----------------------------------------------------------------------------------------------------


def evidence_row(evidence: Evidence) -> tuple[int, int, int, int | None, int]:
    """Return the columns of `evidence` after the edge."""
    kept = evidence.guarded + 2 * evidence.spare
    return evidence.successes, evidence.failures, evidence.streak, evidence.removed_at, kept


def floats(values: NDArray[np.float32]) -> bytes:
    """Encode a vector as it is stored."""
    return values.astype("<f4", copy=False).tobytes()


def form_of(rows: NDArray[Any]) -> dict[str, Any]:
    """Return dtype and row shape of an array over nodes, as they are stored in a file."""
    return {"dtype": rows.dtype.str[1:], "shape": list(rows.shape[1:])}


def checked_form(form: Any, what: str) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Return dtype, shape and size in bytes of one row from the result of `form_of`; StoreError for anything else."""
    try:
        dtype, shape = np.dtype(form["dtype"]), tuple(form["shape"])
        wrong = dtype.kind not in "fiub" or set(form) != {"dtype", "shape"}
        wrong |= len(shape) > 16 or not all(type(length) is int and 0 < length < 2**40 for length in shape)
    except (TypeError, KeyError, ValueError, AttributeError, SyntaxError):
        wrong = True
    if wrong:
        raise StoreError(f"its {what} are declared as {str(form)[:200]}: expected the dtype and shape of numbers")
    size = dtype.itemsize
    for length in shape:
        size *= length
    return dtype, shape, size


def pack(rows: NDArray[Any]) -> bytes:
    """Compress (n, ...) rows losslessly; uint8 images, (n, height, width, ...), as differences along each row."""
    plain = rows
    if rows.dtype == np.uint8 and rows.ndim >= 3:
        plain = np.diff(rows, axis=2, prepend=np.zeros_like(rows[:, :, :1]))
    data = zlib.compress(plain.astype(plain.dtype.newbyteorder("<"), copy=False).tobytes(), 6)
    return data.ljust(-(-rows.nbytes // MOST_RATIO), b"\0")


def unpack(data: bytes, number: int, form: tuple[np.dtype[Any], tuple[int, ...], int], what: str) -> NDArray[Any]:
    """Invert `pack` for `number` rows; StoreError, before any allocation, if they cannot be in so few bytes."""
    dtype, shape, size = form
    if number * size > MOST_RATIO * len(data):
        raise StoreError(f"{what} should unpack {len(data)} bytes to {number * size}, over {MOST_RATIO} times as many")
    plain = zlib.decompressobj().decompress(data, number * size + 1)
    if len(plain) != number * size:
        raise StoreError(f"{what} does not unpack to {number * size} bytes")
    rows = np.frombuffer(plain, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(number, *shape)
    if dtype == np.uint8 and rows.ndim >= 3:
        rows = np.cumsum(rows, axis=2, dtype=np.uint8)
    return rows


def is_packed(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Whether the rows of an attribute are compressed, as images are."""
    return dtype == np.uint8 and len(shape) >= 2


def pack_attribute(rows: NDArray[Any]) -> bytes:
    """Encode a run of attribute values as it is stored."""
    if is_packed(rows.dtype, rows.shape[1:]):
        return pack(rows)
    return rows.astype(rows.dtype.newbyteorder("<"), copy=False).tobytes()


def unpack_attribute(data: bytes, number: int, form: tuple[np.dtype[Any], tuple[int, ...], int]) -> NDArray[Any]:
    """Invert `pack_attribute`."""
    dtype, shape, size = form
    if is_packed(dtype, shape):
        return unpack(data, number, form, "a run of an attribute")
    if len(data) != number * size:
        raise StoreError(f"a run of an attribute has {len(data)} bytes, not {number} times {size}")
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(number, *shape)
