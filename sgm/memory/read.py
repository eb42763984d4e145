"""Read a memory file: all values are checked, and no array is allocated that the file is too small to hold."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import sqlite3
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError, SGMError, StoreError

from .attributes import check_name
from .events import EVENT, GROWTH, KINDS, NO_EPISODE, WALKED, EventLog, numbered
from .evidence import STANDS, EvidenceColumns
from .graph import MOST_BETWEEN, Graph
from .nodes import Nodes
from .schema import (
    APPLICATION,
    EDGE,
    FACTS,
    MOST_RATIO,
    SCHEMA,
    attribute_crc,
    attribute_rows_crc,
    checked_form,
    events_crc,
    evidence_row_crc,
    expected_schema,
    meta_crc,
    node_crc,
    rows_crc,
    schema_of,
    state_crc,
    unpack,
    unpack_attribute,
)
from .schema import crc as blob_crc

_MOST = 2**53  # all counts and numbers in a file must be below this


@dataclasses.dataclass
class Contents:
    """The contents of a memory file, in the form in which a memory stores them.

    Attributes:
        nodes: nodes with their attributes, and the assignment of observations.
        graph: edges, with their evidence after all events.
        log: the events.
        meta: facts about the memory as JSON values, by name.
        records: number of tries recorded so far.
    """

    nodes: Nodes
    graph: Graph
    log: EventLog
    meta: dict[str, Any]
    records: int = 0

    @property
    def tail(self) -> tuple[int, int] | None:
        """(episode, node) of the last observation; None if it has no episode."""
        return None if self.meta["tail"] is None else (self.meta["tail"][0], self.meta["tail"][1])


@dataclasses.dataclass
class FileState:
    """The state of a file that a writer needs in order to continue.

    Attributes:
        schema: schema version.
        calls: number of transactions so far.
        checksum: sum of the checksums of all rows.
        attributes: number of each attribute and checksum of its rows, by name.
        next_run: number of the next run of attribute values.
    """

    schema: int = SCHEMA
    calls: int = 0
    checksum: int = 0
    attributes: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    next_run: int = 0


def read(path: Path) -> tuple[Contents, FileState]:
    """Read and check a whole file at a real path; StoreError if it is not a valid memory file."""
    if not path.is_file():
        raise StoreError(f"{path} is not a file: expected a memory file written by save() or open()")
    with reading(path) as connection, damaged(path):
        version = check_header(connection, path)
        return read_contents(connection, version)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection in a read transaction; SQLite first recovers from a killed writer."""
    with translated(path):
        if not path.stat().st_size:
            # SQLite would treat it as a new file, and delete the log beside it.
            raise StoreError(f"{path} is empty: expected a memory file written by save() or open()")
        connection = _begun(path)
    try:
        yield connection
    finally:
        with contextlib.suppress(sqlite3.Error):
            connection.close()


def _begun(path: Path) -> sqlite3.Connection:
    try:
        return begin(path, "ro")
    except sqlite3.OperationalError as error:
        # Only a connection that may write can roll back the unfinished transaction of a killed writer.
        left = [suffix for suffix in ("-journal", "-wal") if path.with_name(path.name + suffix).exists()]
        if not left or "locked" in str(error):
            raise
    return begin(path, "rw")


def begin(path: Path, mode: str) -> sqlite3.Connection:
    """Open a connection in a read transaction."""
    connection = connect(path, mode, Reader)
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


class Reader(sqlite3.Connection):
    """A connection whose `close` unlocks the file even if cursors of it still exist.

    From Python 3.11 on, `sqlite3` leaves the statement of a cursor running when its connection is closed, and SQLite
    keeps its lock on the file until the cursor is deleted. The traceback of a refused load holds such a cursor.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        """Open a connection, with the arguments of `sqlite3.Connection`."""
        self._cursors: weakref.WeakSet[sqlite3.Cursor] = weakref.WeakSet()
        super().__init__(*given, **named)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Run one statement; `close` ends it if it is still running."""
        cursor = self.cursor()
        self._cursors.add(cursor)
        return cursor.execute(sql, parameters)

    def close(self) -> None:
        """End all statements, and close the connection."""
        for cursor in list(self._cursors):
            with contextlib.suppress(sqlite3.Error):
                cursor.close()
        super().close()


def connect(path: Path, mode: str, factory: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    """Open a connection in SQLite's mode "ro" or "rw"; the lock of the memory lets one thread at a time use it."""
    refuse_forked(path)
    refuse_planted(path)
    uri = f"{path.as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, factory=factory)
    try:
        for statement in ("PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON"):
            connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


FORKED: set[tuple[int, int]] = set()  # (device, inode) of files that the parent was writing when it forked this process


def refuse_forked(path: Path) -> None:
    """Raise StoreError for a file that the parent of this process writes: SQLite's locks do not survive a fork."""
    if FORKED:
        with contextlib.suppress(OSError):
            found = os.stat(path)
            if (found.st_dev, found.st_ino) in FORKED:
                raise StoreError(
                    f"{path} was open for writing in the process that this one was forked from, and cannot be used "
                    "here: use the memory that the child has in RAM, or start the child with 'spawn'"
                )


def refuse_planted(path: Path) -> None:
    """Raise StoreError if SQLite would write through a link beside a file, or delete a file named in a journal."""
    for suffix in ("-wal", "-journal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if beside.is_symlink():
            raise StoreError(f"{beside} is a link, which SQLite does not make, and is left alone: remove it")
    if names_another_file(path):
        raise StoreError(
            f"{path.name}-journal beside {path} names another file, which SQLite would delete. No journal of this "
            "library does that: remove it"
        )


def names_another_file(path: Path) -> bool:
    """Whether a journal beside a file names another file, as journals of transactions over several databases do."""
    journal = path.with_name(path.name + "-journal")
    if not journal.is_file():
        return False
    try:
        with open(journal, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8))
            return file.read() == b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
    except FileNotFoundError:  # a writer has just finished with it
        return False


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Convert errors of SQLite and of the system into a StoreError that names the file."""
    try:
        yield
    except (sqlite3.Error, UnicodeError, OSError) as error:
        raise StoreError(f"{path} cannot be used as a memory file: {error}") from None


@contextlib.contextmanager
def damaged(path: Path) -> Iterator[None]:
    """Convert any exception of the reader into a StoreError that names the file."""
    try:
        yield
    except StoreError as error:
        raise StoreError(str(error) if str(path) in str(error) else f"{path} is damaged: {error}") from None
    except (MemoryError, SGMError):
        raise
    except Exception as error:
        raise StoreError(f"{path} is damaged: {type(error).__name__}: {error}") from None


# -- header ------------------------------------------------------------------------------------------------------


def check_header(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version; StoreError unless this is a memory file and SQLite finds it intact."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION:
        raise StoreError(f"{path} is not a memory file: its application id is {application:#x}, not {APPLICATION:#x}")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if not 1 <= version <= SCHEMA:
        raise StoreError(
            f"{path} has schema version {version}; this release reads versions 1 to {SCHEMA}. Use the release that "
            "wrote it, or a newer one: pip install -U sparse-graphical-memory"
        )
    if schema_of(connection) != expected_schema(version):
        raise StoreError(f"its tables are not those of schema version {version}, or not only those")
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise StoreError(str(verdict))
    return version


# -- contents ----------------------------------------------------------------------------------------------------


def read_contents(connection: sqlite3.Connection, version: int) -> tuple[Contents, FileState]:
    """Read and check all contents of a file of this schema version."""
    meta, total = read_meta(connection)
    file = FileState(schema=version)
    nodes, more = read_nodes(connection, meta["observation"])
    total += more
    graph, more = read_edges(connection, len(nodes), is_reversible(meta))
    total += more
    if version == 1:
        checksum, records = meta.pop("checksum", None), count(meta.pop("records", None), "records")
        total += meta_crc("records", records)
        log = EventLog()
        log.folded_records = records
        log.evidence, more = read_evidence(connection, len(graph), records)
        graph.evidence = log.evidence.copy()
    else:
        file.calls, checksum, folded, folded_records = read_state(connection)
        log, more = read_log(connection, len(graph), folded, folded_records, meta.get("keep_events"))
        more += read_attributes(connection, nodes, file)
        total += state_crc(folded, folded_records)
        graph.evidence, records = log.replayed()
        check_growth(log, len(nodes), len(graph), len(nodes.assignment))
        check_past(log, nodes, graph, is_reversible(meta))
    total += more
    if type(checksum) is not int or total != checksum:
        raise StoreError(f"its rows do not add up to its checksum ({total}, not {checksum}): it was changed by hand")
    check_tail(meta["tail"], len(nodes))
    file.checksum = total
    return Contents(nodes, graph, log, meta, records), file


def read_meta(connection: sqlite3.Connection) -> tuple[dict[str, Any], int]:
    """Return the facts by name, including checksum and records of schema 1, and the checksum of the others."""
    meta = {key: json.loads(value) for key, value in connection.execute("SELECT key, value FROM meta")}
    if missing := sorted(set(FACTS) - set(meta)):
        raise StoreError(f"the table meta lacks {', '.join(missing)}")
    for name, accepted in (("settings", dict), ("policy", dict), ("features", dict), ("fingerprint", str)):
        if not isinstance(meta[name], accepted) and not (name == "fingerprint" and meta[name] is None):
            raise StoreError(f"meta has {str(meta[name])[:200]!r} for {name}")
    return meta, sum(meta_crc(key, value) for key, value in meta.items() if key not in ("checksum", "records"))


def read_state(connection: sqlite3.Connection) -> tuple[int, int, int, int]:
    """Return the numbers of calls, the checksum, and the numbers of folded events and of their tries."""
    rows = connection.execute("SELECT id, calls, checksum, folded, records FROM state").fetchall()
    if len(rows) != 1 or rows[0][0] != 0:
        raise StoreError(f"the table state has {len(rows)} rows, not one with id 0")
    _, calls, checksum, folded, records = rows[0]
    if type(checksum) is not int:
        raise StoreError(f"its checksum is {str(checksum)[:200]}: expected a whole number")
    return count(calls, "calls"), checksum, count(folded, "folded events"), count(records, "folded tries")


def read_nodes(connection: sqlite3.Connection, form: Any) -> tuple[Nodes, int]:
    """Return the nodes with the assignment of observations, and the checksum of their rows."""
    number, least, most = connection.execute(
        "SELECT count(*), min(length(embedding)), max(length(embedding)) FROM nodes"
    ).fetchone()
    if number and not (least == most and least > 0 and least % 4 == 0):
        raise StoreError("its embeddings or features are not of one size")
    packed = connection.execute("SELECT sum(length(observation)) FROM nodes").fetchone()[0]
    kept = None if form is None else checked_form(form, "observations")
    if kept is not None and number:
        # Checked for all nodes at once, before any observation is unpacked.
        unpack_size(number, kept[2], packed or 0)
    nodes, total = Nodes(), 0
    streams, embeddings, features, observations = [], [], [], []
    rows = connection.execute("SELECT id, stream, embedding, feature, observation FROM nodes ORDER BY id")
    for place, (node, stream, embedding, feature, observation) in enumerate(rows):
        if node != place:
            raise StoreError(f"its {number} nodes are not numbered 0 to {number - 1}")
        total += node_crc(node, stream, embedding, feature, observation)
        streams.append(stream)
        embeddings.append(embedding)
        features.append(feature)
        if kept is not None:
            observations.append(unpack(observation, 1, kept, f"the observation of node {node}")[0])
    if number:
        nodes.append(
            np.array(streams, np.int64),
            _matrix(embeddings),
            None if features[0] is None else _matrix(features),
            None if kept is None else np.stack(observations),
        )
    return nodes, total + read_assignments(connection, nodes)


def unpack_size(number: int, size: int, packed: int) -> None:
    """Raise StoreError if `packed` bytes are too few for `number` compressed arrays of `size` bytes."""
    if number * size > MOST_RATIO * packed:
        raise StoreError(
            f"it declares {number} observations of {size} bytes but holds {packed}: at most {MOST_RATIO} times that "
            "could be unpacked"
        )


def read_assignments(connection: sqlite3.Connection, nodes: Nodes) -> int:
    """Read the assignment of observations into `nodes`; return the checksum of its rows."""
    total = 0
    for first, blob in connection.execute("SELECT first, nodes FROM assignments ORDER BY first"):
        run = np.frombuffer(blob, "<i8")
        if first != len(nodes.assignment) or (len(run) and not (run.min() >= -1 and run.max() < len(nodes))):
            raise StoreError(f"the assignments from observation {first} on do not fit the {len(nodes)} nodes")
        nodes.assignment.append(run)
        total += blob_crc("assignment", first, blob)
    stream, assignment = nodes.stream.values, nodes.assignment.values
    if len(stream) and (stream.min() < 0 or stream.max() >= len(assignment) or (np.diff(stream) <= 0).any()):
        raise StoreError(f"its nodes do not keep observations of the {len(assignment)} it was given, in order")
    if (assignment[stream] != np.arange(len(stream))).any():
        raise StoreError("its nodes and the assignment of observations contradict each other")
    return total


def is_reversible(meta: Mapping[str, Any]) -> bool:
    """Whether a memory with these facts is reversible: every edge has an opposite edge."""
    settings = meta.get("settings")
    return isinstance(settings, dict) and settings.get("reversible") is not None


def read_edges(connection: sqlite3.Connection, nodes: int, reversible: bool) -> tuple[Graph, int]:
    """Return the edges, and the checksum of their rows; StoreError if they are invalid."""
    number, first, last = connection.execute("SELECT count(*), min(id), max(id) FROM edges").fetchone()
    if number and (first != 0 or last != number - 1):
        raise StoreError(f"its {number} edges are not numbered from 0 on")
    columns = "source, target, ifnull(distance, 9e999), temporal"
    values = numbers(connection, f"SELECT {columns} FROM edges ORDER BY id", number, 4, "edge")
    rows = np.empty(number, EDGE)
    rows["id"] = np.arange(number)
    source, target, distance, temporal = values
    with np.errstate(over="ignore", invalid="ignore"):
        rows["source"], rows["target"], rows["distance"], rows["temporal"] = source, target, distance, temporal
    for column in (source, target):
        if number and not (column.min() >= 0 and column.max() < nodes):
            raise StoreError(f"its {number} edges join nodes it does not have")
    odd = (source != rows["source"]) | (target != rows["target"]) | ~(distance >= 0)
    finite = np.isfinite(rows["distance"])
    odd |= temporal != rows["temporal"]
    odd |= ~finite & (temporal == 0) & (not reversible)
    if odd.any():
        raise StoreError(f"{np.count_nonzero(odd)} of its edges have values that no edge has")
    if (np.isfinite(distance) != finite).any():
        raise StoreError("some of its edges are longer than single precision can represent")
    graph = Graph()
    graph.append(nodes, rows["source"], rows["target"], rows["distance"], rows["temporal"])
    if not graph.is_simple():
        raise StoreError("some of its edges are there twice, or lead from a node to itself")
    if reversible and not graph.is_reversible():
        raise StoreError("it is reversible, but some of its edges have no opposite edge, or no weight")
    return graph, rows_crc(rows)


def numbers(connection: sqlite3.Connection, query: str, rows: int, columns: int, what: str) -> NDArray[np.float64]:
    """Return the (columns, rows) float64 results of a query; StoreError if a value is not a number."""
    values = itertools.chain.from_iterable(connection.execute(query))
    try:
        return np.asarray(np.fromiter(values, np.float64, rows * columns).reshape(rows, columns).T)
    except (TypeError, ValueError):
        raise StoreError(f"some of its {what}s have values that no {what} has") from None


def read_evidence(connection: sqlite3.Connection, edges: int, records: int) -> tuple[EvidenceColumns, int]:
    """Return the evidence by edge number, and the checksum of the rows."""
    found: dict[int, tuple[int, ...]] = {}
    total = 0
    columns = "edge, successes, failures, streak, removed_at, guarded"
    for row in connection.execute(f"SELECT {columns} FROM evidence ORDER BY edge"):
        check_evidence(row, edges, records)
        edge, successes, failures, streak, removed_at, flags = row
        found[edge] = (edge, successes, failures, streak, STANDS if removed_at is None else removed_at, flags)
        total += evidence_row_crc(row)
    if (tries := sum(row[1] + row[2] for row in found.values())) != records:
        raise StoreError(f"its evidence about edges is from {tries} tries, not {records}")
    return EvidenceColumns.from_rows(list(found.values())), total


def check_evidence(row: tuple[Any, ...], edges: int, records: int) -> None:
    """Check a row of `evidence`; StoreError if it is invalid."""
    edge, successes, failures, streak, removed_at, guarded = row
    if not 0 <= edge < edges:
        raise StoreError(f"there is evidence about edge {edge}, but only {edges} edges")
    numbers = (successes, failures, streak, guarded, 0 if removed_at is None else removed_at)
    if not all(type(value) is int and 0 <= value < _MOST for value in numbers) or guarded > 3:
        raise StoreError(f"the evidence about edge {edge} is not in whole numbers, 0 or more")
    if streak > failures or successes + failures > records or not (removed_at is None or 0 <= removed_at <= records):
        raise StoreError(f"the evidence about edge {edge} contradicts itself or the {records} tries recorded")


def read_log(
    connection: sqlite3.Connection, edges: int, folded: int, folded_records: int, keep: Any
) -> tuple[EventLog, int]:
    """Return events, growth and the evidence before the events, and the checksum of their rows."""
    if keep is not None and (type(keep) is not int or not 0 <= keep < _MOST):
        raise StoreError(f"it keeps {str(keep)[:200]} events: expected a whole number, or null for all")
    log = EventLog(keep)
    log.folded, log.folded_records = folded, folded_records
    log.evidence, total = read_evidence(connection, edges, folded_records)
    rows, numbers = read_events(connection)
    growth = read_growth(connection)
    if (numbers != np.arange(folded + 1, folded + 1 + len(rows))).any():
        raise StoreError(f"its {len(rows)} events are not numbered from {folded + 1} on")
    if len(rows) and rows["edge"].max() >= edges:
        raise StoreError(f"it has events of edges it does not have: there are {edges}")
    log.put(rows, growth)
    return log, total + events_crc(numbered(folded + 1, rows.tolist())) + rows_crc(growth)


def read_growth(connection: sqlite3.Connection, after: int = 0) -> NDArray[np.int64]:
    """(m, 4) rows of growth at or after an event: event, nodes, edges, observations."""
    rows = connection.execute("SELECT * FROM growth WHERE event >= ? ORDER BY event", (after,))
    return np.array([[count(value, "growth") for value in row] for row in rows], np.int64).reshape(-1, GROWTH)


def read_events(connection: sqlite3.Connection, after: int = 0) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the events after a number, `EVENT`, and their numbers; StoreError if a value is invalid."""
    later = f"FROM events WHERE id > {after:d}" if after else "FROM events"
    (number,) = connection.execute(f"SELECT count(*) {later}").fetchone()
    query = f"SELECT id, time, edge, kind, ifnull(episode, {NO_EPISODE}) {later} ORDER BY id"
    columns = numbers(connection, query, number, 5, "event")
    rows = np.empty(number, EVENT)
    with np.errstate(invalid="ignore"):
        for name, column in zip(EVENT.names or (), columns[1:], strict=True):
            rows[name] = column
    _, time, edge, kind, episode = columns
    odd = ~np.isfinite(time) | (edge != rows["edge"]) | (kind != rows["kind"]) | (episode != rows["episode"])
    odd |= (edge < 0) | (kind < 0) | (kind >= len(KINDS)) | (episode < NO_EPISODE)
    if odd.any():
        raise StoreError(f"{np.count_nonzero(odd)} of its events have values that no event has")
    return rows, columns[0].astype(np.int64)


def check_growth(log: EventLog, nodes: int, edges: int, observations: int) -> None:
    """Raise StoreError for growth that decreases, or exceeds the present size of the memory."""
    growth = log.growth
    limits = [max(0, len(log) - 1), nodes, edges, observations]
    steps = np.diff(growth, axis=0)
    if len(growth) and ((steps < 0).any() or (steps[:, 0] == 0).any() or (growth[-1] > limits).any()):
        raise StoreError("its events do not fit the nodes and edges there were")
    if len(log.rows) and (not len(growth) or growth[0, 0] > log.folded):
        raise StoreError("it does not say how many nodes and edges there were when its events happened")


def check_past(log: EventLog, nodes: Nodes, graph: Graph, reversible: bool) -> None:
    """Raise StoreError for events and growth from which earlier states of the memory could not be rebuilt."""
    growth, rows = log.growth, log.rows
    if not len(growth):
        return
    event, had_nodes, had_edges, had_observations = growth.T
    ends = np.maximum(graph.source.values, graph.target.values)
    odd = _most_before(ends, had_edges) >= had_nodes
    odd |= _most_before(nodes.stream.values, had_nodes) >= had_observations
    odd |= _most_before(nodes.assignment.values, had_observations) >= had_nodes
    place = np.searchsorted(event, np.arange(log.folded + 1, log.folded + 1 + len(rows))) - 1
    walked = rows[rows["kind"] == WALKED]
    # An edge that only an episode made was walked before, in more steps, unless it existed as an opposite edge; see
    # `Events.episode`.
    before, steps = walked["episode"], graph.temporal.values[walked["edge"]].astype(np.int64)
    again = (before > steps) & (before <= MOST_BETWEEN)
    had_weight = np.isfinite(graph.distance.values[walked["edge"]]) | reversible
    never = (steps == 0) | ~(again | ((before == NO_EPISODE) & had_weight))
    before = max(log.evidence, default=-1) >= had_edges[0]  # evidence from before the events
    if odd.any() or before or (rows["edge"] >= had_edges[place]).any() or never.any():
        raise StoreError("its events do not fit the nodes and edges there were when they happened")


def _most_before(values: NDArray[Any], ends: NDArray[np.int64]) -> NDArray[Any]:
    """Return the largest of the values before each of these positions; −1 if there are none."""
    return np.concatenate([[-1], np.maximum.accumulate(values)])[ends]


def read_attributes(connection: sqlite3.Connection, nodes: Nodes, file: FileState) -> int:
    """Read the attributes into `nodes`, and their state for a writer into `file`; return the checksum of their rows."""
    total = 0
    for number, name, dtype, shape in connection.execute("SELECT id, name, dtype, shape FROM attributes ORDER BY id"):
        form = {"dtype": dtype, "shape": json.loads(shape)}
        try:
            check_name(name)
        except InputError as error:
            raise StoreError(str(error)) from None
        if name in file.attributes:
            raise StoreError(f"it has two attributes {name!r}")
        values, rows = _read_attribute(connection, number, len(nodes), checked_form(form, f"attributes {name!r}"))
        nodes.set_attribute(name, values)
        file.attributes[name] = (number, rows)
        total += rows + attribute_crc(number, name, form)
    known = {number for number, _ in file.attributes.values()}
    runs = connection.execute("SELECT attribute, max(id) FROM attribute_rows GROUP BY attribute").fetchall()
    if any(attribute not in known for attribute, _ in runs):
        raise StoreError("it has values of attributes that it does not declare")
    file.next_run = max((last + 1 for _, last in runs), default=0)
    return total


def _read_attribute(
    connection: sqlite3.Connection, number: int, nodes: int, form: tuple[np.dtype[Any], tuple[int, ...], int]
) -> tuple[NDArray[Any], int]:
    columns = "first, count, rows"
    runs: list[NDArray[Any]] = []
    have = total = 0
    for first, amount, data in connection.execute(
        f"SELECT {columns} FROM attribute_rows WHERE attribute = ? ORDER BY first", (number,)
    ):
        if type(first) is not int or first != have or type(amount) is not int or not 0 < amount <= nodes - have:
            raise StoreError(f"the values of attribute {number} do not fit its {nodes} nodes")
        runs.append(unpack_attribute(data, amount, form))
        total += attribute_rows_crc(number, first, amount, data)
        have += amount
    if have != nodes:
        raise StoreError(f"attribute {number} has {have} values for {nodes} nodes")
    return np.concatenate([np.empty((0, *form[1]), form[0]), *runs]), total


def check_tail(tail: Any, nodes: int) -> None:
    """Raise StoreError if the episode and node of the last observation are invalid."""
    right = tail is None or (
        isinstance(tail, list)
        and len(tail) == 2
        and all(type(value) is int for value in tail)
        and -(2**63) <= tail[0] < 2**63
        and -1 <= tail[1] < nodes
    )
    if not right:
        raise StoreError(f"its last observation is {str(tail)[:200]}: expected an episode and a node")


def count(value: Any, what: str) -> int:
    """Return a whole number, 0 or more; StoreError for anything else."""
    if type(value) is not int or not 0 <= value < _MOST:
        raise StoreError(f"{what} is {str(value)[:200]!r}: expected a whole number, 0 or more")
    return value


def _matrix(blobs: list[bytes]) -> NDArray[np.float32]:
    if len({len(blob) for blob in blobs}) != 1 or not len(blobs[0]) or len(blobs[0]) % 4:
        raise StoreError("its embeddings or features are not of one size")
    matrix = np.frombuffer(b"".join(blobs), "<f4").reshape(len(blobs), -1)
    if not np.isfinite(matrix).all():
        raise StoreError("its embeddings or features are not all finite")
    return matrix
