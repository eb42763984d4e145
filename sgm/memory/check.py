"""Find all problems of a memory file; the file is only read."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sgm.errors import InputError, SGMError, StoreError, printable

from .copies import logs_of, private_copy, stat_of
from .lock import WriterLock, real_path
from .nodes import Nodes
from .policies import POLICIES, policy_from_dict
from .read import (
    FileState,
    begin,
    check_growth,
    check_tail,
    count,
    is_reversible,
    read_assignments,
    read_attributes,
    read_edges,
    read_events,
    read_evidence,
    read_log,
    read_meta,
    read_nodes,
    read_state,
    refuse_planted,
)
from .schema import (
    APPLICATION,
    SCHEMA,
    expected_schema,
    meta_crc,
    schema_of,
    state_crc,
)
from .settings import Settings

Path_ = str | os.PathLike[str]
_MOST_LINES = 20  # lines of SQLite's integrity check that are reported
_MOST = 2**53
_TREES = "*** in database main ***"  # first line of SQLite's integrity check if a tree is damaged


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Result of `check` on a memory file.

    Attributes:
        problems: the problems of the file, one sentence each; empty if the file is whole.
        notes: facts about the file that are worth knowing but are no damage, one sentence each.
    """

    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether the file has no problems."""
        return not self.problems


def check(path: Path_) -> Verdict:
    """Find all problems of a memory file. The file may be live, and is not changed.

    StoreError if the file does not exist, or cannot be read now.
    """
    source = real_path(path)
    found = stat_of(source)
    if not stat.S_ISREG(found.st_mode):
        return Verdict((f"{source} is not a file: expected a memory file written by save() or open()",), ())
    if not os.access(source, os.R_OK):
        raise StoreError(f"{source} cannot be read: permission denied")
    notes = _notes(source, found)
    if odd := [log.name for log in logs_of(source) if not log.is_symlink() and not log.is_file()]:
        return Verdict((printable(f"{', '.join(odd)} beside it is not a file: move it away"),), tuple(notes))
    if not found.st_size:
        # SQLite must not open it: it would treat an empty file as a new one and delete the log beside it.
        return Verdict(("it is empty: 0 bytes",), tuple(notes))
    try:
        refuse_planted(source)
    except StoreError as error:
        return Verdict((str(error),), tuple(notes))
    findings = _Findings(found.st_size, notes)
    with _connected(source, findings) as connection:
        if connection is not None:
            _check_file(connection, findings)
    return Verdict(tuple(dict.fromkeys(findings.problems)), tuple(findings.notes))


@dataclasses.dataclass
class _Findings:
    """Problems and notes found so far."""

    size: int
    notes: list[str]
    problems: list[str] = dataclasses.field(default_factory=list)

    def say(self, problem: str) -> None:
        self.problems.append(printable(problem))

    def attempt(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function and return its result; if it raises, add a problem and return None."""
        try:
            return function(*arguments)
        except SGMError as error:
            self.say(str(error))
        except Exception as error:
            self.say(f"in {what}: {type(error).__name__}: {str(error)[:200]}")
        return None


def _notes(source: Path, found: os.stat_result) -> list[str]:
    notes = []
    writer = _writer(source)
    if writer:
        notes.append(f"it is being written by process {writer}: this is about the file as it is now")
    for log in logs_of(source):
        whose = "of its writer" if writer else "that a killed writer, or one whose file was being read, left behind"
        notes.append(
            f"{log.name} is a log {whose} and belongs to it: copy or move both, or use sgm copy. The next open() "
            "brings it into the file."
        )
    if found.st_nlink > 1:
        notes.append(f"it has {found.st_nlink} names (hard links): open() refuses to write it")
    return [printable(note) for note in notes]


def _writer(source: Path) -> str:
    """Number of the process that writes a file; "" if there is none."""
    if not os.path.lexists(source.with_name(source.name + "-lock")):
        return ""
    try:
        WriterLock(source).release()
    except StoreError as error:
        holder = re.search(r"being written by process (\S+):", str(error))
        return holder[1] if holder else ""
    return ""


@contextlib.contextmanager
def _connected(source: Path, findings: _Findings) -> Iterator[sqlite3.Connection | None]:
    """Open a connection in a read transaction that cannot change the file.

    If SQLite cannot read the file, add a problem and yield None.
    """
    with contextlib.ExitStack() as stack:
        connection = None
        try:
            try:
                connection = begin(source, "ro")
            except sqlite3.OperationalError as error:
                if "locked" in str(error):
                    raise StoreError(f"{source} cannot be read now: {error}. Try again.") from None
                if not logs_of(source):
                    raise
                # Only a connection that may write can roll back the unfinished transaction of a killed writer.
                connection = begin(stack.enter_context(private_copy(source)).path, "ro")
        except (sqlite3.Error, UnicodeError) as error:
            findings.say(f"SQLite cannot read it: {error}")
        if connection is not None:
            stack.callback(connection.close)
        yield connection


def _check_file(connection: sqlite3.Connection, findings: _Findings) -> None:
    try:
        version = _check_header(connection, findings)
        sound = _check_trees(connection, version, findings)
    except (sqlite3.Error, UnicodeError) as error:
        findings.say(f"SQLite cannot read it: {error}")
        return
    findings.attempt("its rows", _RowCheck(connection, version, sound, findings).run)


def _check_header(connection: sqlite3.Connection, findings: _Findings) -> int:
    """Check application id and schema version; return the schema version to read the file with."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION:
        findings.say(f"it is not a memory file: its application id is {application:#x}, not {APPLICATION:#x}")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version == 1:
        findings.notes.append(f"it has schema version 1: the first write makes that {SCHEMA} and keeps a copy")
    if not 1 <= version <= SCHEMA:
        findings.say(
            f"it has schema version {version}; this release reads versions 1 to {SCHEMA}. If a newer release wrote it, "
            "use that one: pip install -U sparse-graphical-memory"
        )
    return version if 1 <= version <= SCHEMA else SCHEMA


def _check_trees(connection: sqlite3.Connection, version: int, findings: _Findings) -> set[str]:
    """Return the tables whose declaration is correct and that SQLite can read completely."""
    expected, found = expected_schema(version), schema_of(connection)
    known = [entry[1] for entry in expected if entry in found and entry[0] == "table"]
    lines = []
    if found == expected:
        lines = _integrity(connection)
        if not lines:
            return set(known)
    else:
        findings.say(
            f"its tables are not those of schema version {version}, or not only those: {_odd(found, expected)}"
        )
    damage = {table: _integrity(connection, table) for table in known}
    lines = list(dict.fromkeys([*lines, *(line for more in damage.values() for line in more)]))
    for line in lines[:_MOST_LINES]:
        findings.say(f"SQLite: {line}")
    if len(lines) > _MOST_LINES:
        findings.say(f"SQLite: and {len(lines) - _MOST_LINES} more like these")
    return {table for table in known if not damage[table]}


def _odd(found: list[tuple[str, str, str]], expected: list[tuple[str, str, str]]) -> str:
    """Describe how the tables, indexes, views and triggers differ from the expected ones."""
    had, wanted = {entry[:2] for entry in found}, {entry[:2] for entry in expected}
    changed = {entry[:2] for entry in expected if entry not in found} & had
    parts = [
        *(f"there is no {kind} {name}" for kind, name in sorted(wanted - had)),
        *(f"the {kind} {name} has other columns" for kind, name in sorted(changed)),
        *(f"the {kind} {name[:100]} is not one of them" for kind, name in sorted(had - wanted)),
    ]
    return "; ".join(parts[:10])


def _integrity(connection: sqlite3.Connection, table: str | None = None) -> list[str]:
    """Return the problems that SQLite finds in the file, or in one of its tables; none if it is sound."""
    # Without an argument the check stops after 100 problems. SQLite 3.53 takes a number here for the name of a table.
    query = "SELECT integrity_check FROM pragma_integrity_check" + ("" if table is None else "(?)")
    given = () if table is None else (table,)
    try:
        # The first row lists all problems of the trees. Reading on in a damaged tree might never end.
        texts = connection.execute(f"{query} LIMIT 1", given).fetchall()
        if texts[0][0] != "ok" and not texts[0][0].startswith(_TREES):
            texts = connection.execute(query, given).fetchall()
    except (sqlite3.Error, UnicodeError) as error:
        return [str(error)]
    lines = [line.strip() for (text,) in texts for line in str(text).splitlines()]
    return [line for line in lines if line not in ("ok", _TREES)]


class _RowCheck:
    """Checks the rows of each table in the same way as the reader, and continues after a problem."""

    def __init__(self, connection: sqlite3.Connection, version: int, sound: set[str], findings: _Findings) -> None:
        """Prepare to check the tables in `sound`; the others cannot be read completely."""
        self.connection = connection
        self.version = version
        self.sound = sound
        self.findings = findings
        self.total = 0  # checksum of the valid rows
        self.facts: dict[str, Any] = {}

    def run(self) -> None:
        """Check all tables and the checksum."""
        self._facts()
        nodes = self._nodes()
        number = self._size("nodes") if nodes is None else len(nodes)
        graph = self._sum("edges", read_edges, self.connection, number, is_reversible(self.facts))
        edges = self._size("edges") if graph is None else len(graph)
        checksum = self._log_1(edges) if self.version == 1 else self._log_2(nodes, number, edges)
        if "tail" in self.facts:
            self.findings.attempt("meta", check_tail, self.facts["tail"], number)
        if not self.findings.problems and checksum != self.total:
            self.findings.say(
                f"its rows do not add up to its checksum ({self.total}, not {checksum}): it was changed by hand, or "
                "damaged by the disk"
            )

    def _sum(self, table: str, function: Callable[..., tuple[Any, int]], *arguments: Any) -> Any:
        """Call a function of read.py, add its checksum to the total and return its result.

        Return None if one of its tables (joined by " and ") is unsound, or if the function raises.
        """
        if not self.sound.issuperset(table.split(" and ")):
            return None
        result = self.findings.attempt(table, function, *arguments)
        if result is None:
            return None
        self.total += result[1]
        return result[0]

    def _size(self, table: str) -> int:
        """Estimate the number of rows of a damaged table, from above."""
        if table not in self.sound:
            return 2**31 - 1
        rows, last = self.connection.execute(f"SELECT count(*), max(rowid) FROM {table}").fetchone()
        return max(rows, last + 1) if rows and last < self.findings.size else int(rows)

    def _facts(self) -> None:
        if "meta" not in self.sound:
            return
        rows = self.findings.attempt("meta", lambda: self.connection.execute("SELECT key, value FROM meta").fetchall())
        self.facts, odd = facts_of(rows or [])
        for name in odd:
            self.findings.say(f"the fact {name[:100]!r} in the table meta is damaged: it is not JSON")
        if not odd:
            self._sum("meta", read_meta, self.connection)
        for name, function in (("settings", Settings.fromdict), ("policy", checked_policy)):
            if isinstance(self.facts.get(name), dict):
                self.findings.attempt("meta", function, self.facts[name])
        policy = self.facts["policy"].get("name") if isinstance(self.facts.get("policy"), dict) else None
        if isinstance(policy, str) and policy not in POLICIES:
            self.findings.notes.append(
                printable(f"its cleanup policy, {policy[:100]!r}, is its author's own: give it to load() and open()")
            )

    def _nodes(self) -> Nodes | None:
        form = self.facts.get("observation")
        nodes: Nodes | None = self._sum("nodes and assignments", read_nodes, self.connection, form)
        if nodes is None and {"nodes", "assignments"} <= self.sound:
            self._assignments()
        return nodes

    def _assignments(self) -> None:
        """Check the assignments although the nodes are damaged, if the stream number of each node is readable."""
        rows = self.connection.execute("SELECT id, stream FROM nodes ORDER BY id").fetchall()
        if all(type(stream) is int and node == place for place, (node, stream) in enumerate(rows)):
            nodes = Nodes()
            nodes.stream.append(np.array([stream for _, stream in rows], np.int64))
            self.findings.attempt("assignments", read_assignments, self.connection, nodes)

    def _log_1(self, edges: int) -> int | None:
        records = self.findings.attempt("meta", count, self.facts.get("records"), "records")
        if records is None:
            return None
        self._sum("evidence", read_evidence, self.connection, edges, records)
        self.total += meta_crc("records", records)
        checksum = self.facts.get("checksum")
        return checksum if type(checksum) is int else None

    def _log_2(self, nodes: Nodes | None, number: int, edges: int) -> int | None:
        attempt, connection = self.findings.attempt, self.connection
        state = attempt("state", read_state, connection) if "state" in self.sound else None
        log, checksum = None, None
        if state is not None:
            _, checksum, folded, records = state
            keep = self.facts.get("keep_events")
            log = self._sum("evidence and events and growth", read_log, connection, edges, folded, records, keep)
            self.total += state_crc(folded, records)
            if log is None and "evidence" in self.sound:
                attempt("evidence", read_evidence, connection, edges, records)
        if log is None and "events" in self.sound:
            attempt("events", read_events, connection)
        if log is not None:
            attempt("growth", check_growth, log, number, edges, _MOST if nodes is None else len(nodes.assignment))
        if nodes is not None and {"attributes", "attribute_rows"} <= self.sound:
            self.total += attempt("attributes", read_attributes, connection, nodes, FileState()) or 0
        return checksum


def checked_policy(values: dict[str, Any]) -> None:
    """Raise InputError if these are invalid parameters of a policy of this package."""
    if not isinstance(values.get("name"), str) or values["name"] in POLICIES:
        try:
            policy_from_dict(values)
        except TypeError as error:
            raise InputError(f"the policy is damaged: {error}") from None


def facts_of(rows: Iterable[tuple[Any, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return the facts in rows of `meta` by name, and the names of those that are not JSON."""
    facts: dict[str, Any] = {}
    odd = []
    for key, value in rows:
        if isinstance(key, str):
            try:
                facts[key] = json.loads(value)
            except (TypeError, ValueError, RecursionError):
                odd.append(key)
    return facts, odd
