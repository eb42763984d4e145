"""Damaged memory files: `check` says all that is wrong, and `repair` saves all that can be read."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import sgm
from sgm.errors import MemoryWarning
from sgm.memory import copies, pages, read, repair, schema, store
from sgm.memory.check import Verdict, check
from sgm.memory.events import numbered
from tests.memory.oracle import edge_list
from tests.memory.test_store import EDITS, SETTINGS, ImageDistance, edit, full_memory, images, same

PAGE = 4096


def features(observations):
    return ImageDistance().embed(observations) * 2


def everything(n=30) -> sgm.SparseGraphicalMemory:
    """A memory of everything a file can hold, on pages of every kind: its images go on on a second page each."""
    random = np.random.default_rng(0)
    observations = random.integers(0, 256, (n, 48, 36, 3), dtype=np.uint8)
    observations[:, 0, 0, :2] = random.integers(0, 160, (n, 2))
    observations[-3:] = observations[:3]
    memory = sgm.SparseGraphicalMemory(
        ImageDistance(), features, keep_observations=True, **{**SETTINGS, "max_dist": 14.0}
    )
    attributes = {
        "pose": random.random((n, 50)).astype(np.float32),
        "mask": random.integers(0, 256, (n, 8, 8), dtype=np.uint8),
        "visits": random.integers(1, 9, n),
    }
    memory.extend(observations, episode=np.arange(n) // 7, attributes=attributes)
    edges = memory.edges()
    memory.record_many(edges.source[:6], edges.target[:6], np.array([True, False, True, True, False, True]))
    memory.record(edges.source[0], edges.target[0], True, episode=3)
    return memory


@functools.cache
def original(n=30) -> tuple[sgm.SparseGraphicalMemory, bytes]:
    """`everything`, and the file it is saved to."""
    memory = everything(n)
    with tempfile.TemporaryDirectory() as folder:
        memory.save(Path(folder) / "m.sgm")
        return memory, (Path(folder) / "m.sgm").read_bytes()


@pytest.fixture(autouse=True)
def no_sync(monkeypatch):
    """Hundreds of files are written here, and the power stays on."""

    def connect(path, mode):
        connection = read.connect(path, mode)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    monkeypatch.setattr(store, "connect", connect)
    monkeypatch.setattr(store, "_sync", lambda path: None)


def load(path) -> sgm.SparseGraphicalMemory:
    return sgm.SparseGraphicalMemory.load(path, None)


def loads(path) -> bool:
    with contextlib.suppress(sgm.StoreError):
        load(path)
        return True
    return False


def all_same(a: sgm.SparseGraphicalMemory, b: sgm.SparseGraphicalMemory) -> bool:
    """Whether two memories hold the same to the last bit, with observations, attributes and events."""
    rows = [np.concatenate([np.ravel(part) for part in m._log.rows.tolist()] or [[]]) for m in (a, b)]
    return (
        len(a._graph) == len(b._graph)
        and same(a, b)
        and np.array_equal(a._nodes.observation, b._nodes.observation)
        and set(a.attributes) == set(b.attributes)
        and all(a.attributes[name].tobytes() == b.attributes[name].tobytes() for name in a.attributes)
        and np.array_equal(*rows)
        and np.array_equal(a._log.growth, b._log.growth)
        and {**a._meta(), "policy": None} == {**b._meta(), "policy": None}
    )


def repaired(source: Path, target: Path) -> tuple[repair.Repaired, sgm.SparseGraphicalMemory]:
    """Repair a file, which must not change, to one that must be whole."""
    before = {name.name: name.read_bytes() for name in source.parent.glob(f"{source.name}*")}
    target.unlink(missing_ok=True)
    result = repair.repair(source, target)
    assert {name.name: name.read_bytes() for name in source.parent.glob(f"{source.name}*")} == before
    assert check(target) == Verdict((), ())
    memory = load(target)
    memory.at(memory._log.folded)
    counts = (len(memory), len(memory._graph), len(memory.assignment), memory.records, len(memory.attributes))
    assert counts == tuple(result.kept[name] for name in ("nodes", "edges", "observations", "tries", "attributes"))
    return result, memory


def repaired_or_refused(source: Path, target: Path) -> tuple[repair.Repaired, sgm.SparseGraphicalMemory] | None:
    """Repair a file; None if nothing is left of it."""
    try:
        return repaired(source, target)
    except sgm.StoreError as error:
        reason = str(error)
    assert "can be saved: no node is left" in reason
    return None


def is_part_of(memory: sgm.SparseGraphicalMemory, whole: sgm.SparseGraphicalMemory, nodes: np.ndarray) -> bool:
    """Whether nodes and edges of a repaired memory are as they were in the whole one."""
    every = {(u, v): w for u, v, w in edge_list(whole.edges(filtered=False))}
    every |= {(u, v): w for u, v, w in edge_list(whole.removed())}
    kept = [*edge_list(memory.edges(filtered=False)), *edge_list(memory.removed())]
    return (
        np.array_equal(memory.embeddings, whole.embeddings[nodes])
        and np.array_equal(memory.features, whole.features[nodes])
        and np.array_equal(memory.nodes, whole.nodes[nodes])
        and all(every[int(nodes[u]), int(nodes[v])] == w for u, v, w in kept)
    )


def said(lost: tuple[str, ...], what: str) -> int:
    """How many of these things are said to be lost."""
    return sum(int(match[1]) for line in lost if (match := re.match(rf"(\d+) of \d+ {what} \(", line)))


def schema_1(path: Path) -> sgm.SparseGraphicalMemory:
    """Write a file of schema 1; the memory that it holds."""
    memory = full_memory()
    memory.save(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        checksum = connection.execute("SELECT checksum FROM state").fetchone()[0]
        rows, growth = memory._log.rows, memory._log.growth
        checksum -= schema.events_crc(numbered(1, rows.tolist())) + schema.rows_crc(growth) + schema.state_crc(0, 0)
        checksum -= schema.meta_crc("keep_events", memory._log.keep)
        for edge, evidence in memory._graph.evidence.items():
            connection.execute("INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?)", (edge, *schema.evidence_row(evidence)))
            checksum += schema.evidence_crc(edge, evidence)
        checksum += schema.meta_crc("records", memory.records)
        for table in ("events", "growth", "attributes", "attribute_rows", "state"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DELETE FROM meta WHERE key = 'keep_events'")
        facts = {"records": memory.records, "checksum": checksum}
        connection.executemany("INSERT INTO meta VALUES (?, ?)", [(key, json.dumps(v)) for key, v in facts.items()])
        connection.execute("PRAGMA user_version = 1")
        connection.execute("VACUUM")
    return memory


# -- check -------------------------------------------------------------------------------------------------------


def test_check_is_silent_about_a_whole_file(tmp_path):
    everything().save(tmp_path / "saved.sgm")
    sgm.SparseGraphicalMemory(ImageDistance()).save(tmp_path / "empty.sgm")
    with sgm.SparseGraphicalMemory.open(tmp_path / "closed.sgm", ImageDistance(), **SETTINGS) as memory:
        memory.extend(images(20), attributes={"x": np.arange(20)})
        memory.extend(images(20, seed=1))
        memory.record(*(int(end[0]) for end in memory.edges()[:2]), False)
    for name in ("saved", "empty", "closed"):
        assert check(tmp_path / f"{name}.sgm") == Verdict((), ())
        assert check(tmp_path / f"{name}.sgm").whole


def test_check_of_schema_1_says_what_the_first_write_does(tmp_path):
    memory = schema_1(tmp_path / "m.sgm")
    assert same(load(tmp_path / "m.sgm"), memory)
    verdict = check(tmp_path / "m.sgm")
    assert verdict.whole
    assert [note for note in verdict.notes if "schema version 1" in note]


def test_check_of_a_live_file_says_who_writes_it(tmp_path):
    path = tmp_path / "live.sgm"
    with sgm.SparseGraphicalMemory.open(path, ImageDistance(), **SETTINGS) as live:
        for seed in range(3):
            live.extend(images(20, seed=seed))
            verdict = check(path)
            assert verdict.whole
            assert re.search(f"written by process {os.getpid()}", verdict.notes[0])
            assert "live.sgm-wal" in verdict.notes[1] and "belongs to it" in verdict.notes[1]
        live.extend(images(20, seed=9))
    assert check(path) == Verdict((), ())
    assert os.listdir(tmp_path) == ["live.sgm"]


def test_check_of_a_file_with_two_names_says_that_it_cannot_be_written(tmp_path):
    full_memory().save(tmp_path / "m.sgm")
    os.link(tmp_path / "m.sgm", tmp_path / "other.sgm")
    verdict = check(tmp_path / "m.sgm")
    assert verdict.whole and "2 names" in verdict.notes[0]


def test_check_of_a_policy_of_ones_own_says_that_it_has_to_be_given(tmp_path):
    class Never(sgm.CleanupPolicy):
        def gives_up(self, evidence):
            return False

    full_memory(policy=Never()).save(tmp_path / "m.sgm")
    verdict = check(tmp_path / "m.sgm")
    assert verdict.whole and "'Never'" in verdict.notes[0]


@pytest.mark.parametrize("what", EDITS)
def test_check_says_what_was_edited(tmp_path, what):
    statement, reason = EDITS[what]
    path = tmp_path / "m.sgm"
    full_memory().save(path)
    edit(path, statement)
    before = path.read_bytes()
    verdict = check(path)
    assert not verdict.whole and not loads(path)
    assert any(re.search(reason, problem) for problem in verdict.problems) or reason == "damaged"
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["m.sgm"]


def test_check_says_everything_that_is_wrong(tmp_path):
    path = tmp_path / "m.sgm"
    everything().save(path)
    wrong = {
        "not JSON": "UPDATE meta SET value = '[' WHERE key = 'settings'",
        "for policy": """UPDATE meta SET value = '"belief"' WHERE key = 'policy'""",
        "last observation": "UPDATE meta SET value = '[1, 100000]' WHERE key = 'tail'",
        "not of one size": "UPDATE nodes SET embedding = x'0011' WHERE id = 3",
        "contradict each other": "UPDATE assignments SET nodes = zeroblob(length(nodes))",
        "no edge has": "UPDATE edges SET distance = -distance WHERE id = 3",
        "evidence about edge 3": "INSERT INTO evidence VALUES (3, -5, 5, 0, NULL, 0)",
        "no event has": "UPDATE events SET kind = 77 WHERE id = 2",
        "checksum is x": "UPDATE state SET checksum = 'x'",
    }
    for statement in wrong.values():
        edit(path, statement)
    problems = check(path).problems
    found = {what for what in wrong if any(what in problem for problem in problems)}
    assert found >= wrong.keys() - {"evidence about edge 3", "for policy"}
    edit(path, "UPDATE state SET checksum = 0")
    edit(path, "UPDATE meta SET value = '{}' WHERE key = 'settings'")
    problems = check(path).problems
    assert all(any(what in problem for problem in problems) for what in ("evidence about edge 3", "for policy"))


def test_check_says_which_pages_and_which_rows_are_damaged(tmp_path):
    path = tmp_path / "m.sgm"
    everything().save(path)
    edit(path, "UPDATE events SET kind = 77 WHERE id = 2")
    data = bytearray(path.read_bytes())
    data[PAGE * 3 : PAGE * 4] = bytes(PAGE)
    path.write_bytes(data)
    problems = check(path).problems
    assert [problem for problem in problems if "age 4" in problem]
    assert [problem for problem in problems if "no event has" in problem]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "empty"), (b"hello" * 50, "SQLite cannot read it"), (b"SQLite format 3\0" + bytes(4080), "SQLite cannot")],
    ids=["nothing", "text", "a header"],
)
def test_check_of_what_is_no_memory_file(tmp_path, content, reason):
    path = tmp_path / "m.sgm"
    path.write_bytes(content)
    assert reason in check(path).problems[0]
    assert path.read_bytes() == content


def test_check_of_another_database_says_that_it_is_not_a_memory(tmp_path):
    edit(tmp_path / "m.sgm", "CREATE TABLE nodes (id INTEGER PRIMARY KEY, name TEXT)")
    assert "not a memory file" in check(tmp_path / "m.sgm").problems[0]


def test_check_of_no_file_raises_and_of_a_pipe_does_not_wait(tmp_path):
    with pytest.raises(sgm.StoreError, match="there is no file"):
        check(tmp_path / "none.sgm")
    with pytest.raises(sgm.StoreError, match="is a folder"):
        check(tmp_path)
    os.mkfifo(tmp_path / "pipe.sgm")
    assert "is not a file" in check(tmp_path / "pipe.sgm").problems[0]
    full_memory().save(tmp_path / "m.sgm")
    os.mkfifo(tmp_path / "m.sgm-wal")
    assert "m.sgm-wal beside it is not a file" in check(tmp_path / "m.sgm").problems[0]


WRITER = """
import os, signal, sys
from tests.memory.test_repair import *
memory = sgm.SparseGraphicalMemory.open(sys.argv[1], ImageDistance(), keep_observations=True, **SETTINGS)
memory.extend(images(50), episode=1, attributes={"x": np.arange(50.0)})
memory.record(*(int(end[0]) for end in memory.edges()[:2]), False)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed(tmp_path) -> Path:
    """A file whose writer was killed: most of it is in the log beside it."""
    path = tmp_path / "live.sgm"
    done = subprocess.run([sys.executable, "-c", WRITER, path], check=False)
    assert done.returncode == -signal.SIGKILL and (tmp_path / "live.sgm-wal").stat().st_size
    return path


def test_what_a_killed_writer_left_is_no_damage_and_nothing_of_it_is_lost(killed, tmp_path):
    before = [killed.read_bytes(), (tmp_path / "live.sgm-wal").read_bytes()]
    verdict = check(killed)
    assert verdict.whole
    assert "left behind" in verdict.notes[0] and "belongs to it" in verdict.notes[0]
    assert [killed.read_bytes(), (tmp_path / "live.sgm-wal").read_bytes()] == before
    result, memory = repaired(killed, tmp_path / "new.sgm")
    assert result.lost == () and all_same(memory, load(killed))


def test_a_log_beside_an_emptied_file_is_not_deleted(killed, tmp_path):
    log = (tmp_path / "live.sgm-wal").read_bytes()
    os.truncate(killed, 0)
    assert check(killed).problems == ("it is empty: 0 bytes",)
    with pytest.raises(sgm.StoreError, match="nothing of .* can be saved"):
        repair.repair(killed, tmp_path / "new.sgm")
    assert (tmp_path / "live.sgm-wal").read_bytes() == log


def hot_journal(path: Path) -> None:
    """Leave a file half written, with the journal that takes it back."""
    full_memory().save(path)
    script = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA cache_size = 1'); c.execute('BEGIN')\n"
        "c.execute('UPDATE nodes SET embedding = zeroblob(3000)'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, path], check=True)
    assert path.with_name(path.name + "-journal").stat().st_size


def test_a_file_that_was_left_half_written_is_whole_without_being_changed(tmp_path):
    path = tmp_path / "m.sgm"
    hot_journal(path)
    before = path.read_bytes()
    verdict = check(path)
    assert verdict.whole and "m.sgm-journal" in verdict.notes[0]
    result, memory = repaired(path, tmp_path / "new.sgm")
    assert result.lost == () and same(memory, full_memory())
    assert path.read_bytes() == before


def test_a_journal_that_names_another_file_is_left_alone(tmp_path):
    path, other = tmp_path / "m.sgm", tmp_path / "precious.txt"
    hot_journal(path)
    other.write_text("x")
    name = str(other).encode()
    record = struct.pack(">I", 0) + name + struct.pack(">II", len(name), sum(name)) + bytes.fromhex("d9d505f920a163d7")
    journal = path.with_name("m.sgm-journal")
    journal.write_bytes(journal.read_bytes() + record)
    check(path)
    with contextlib.suppress(sgm.StoreError):
        repair.repair(path, tmp_path / "new.sgm")
    assert other.exists()


# -- repair ------------------------------------------------------------------------------------------------------


def test_repairing_a_whole_file_loses_nothing(tmp_path):
    memory, data = original()
    (tmp_path / "m.sgm").write_bytes(data)
    result, again = repaired(tmp_path / "m.sgm", tmp_path / "new.sgm")
    assert result.lost == () and result.problems == () and all_same(again, memory)
    assert result.nodes.tolist() == list(range(len(memory)))
    assert sorted(os.listdir(tmp_path)) == ["m.sgm", "new.sgm"]


def test_repairing_an_empty_memory_gives_an_empty_memory(tmp_path):
    sgm.SparseGraphicalMemory(ImageDistance(), k=3).save(tmp_path / "m.sgm")
    result, memory = repaired(tmp_path / "m.sgm", tmp_path / "new.sgm")
    assert result.lost == () and len(memory) == 0 and memory.settings.k == 3


def test_repairing_a_file_of_schema_1_loses_nothing(tmp_path):
    memory = schema_1(tmp_path / "m.sgm")
    result, again = repaired(tmp_path / "m.sgm", tmp_path / "new.sgm")
    assert result.lost == () and same(again, memory)


@pytest.mark.parametrize("page", [512, 1024, 65536])
def test_pages_may_have_any_size_even_if_the_header_is_gone(tmp_path, page):
    memory, data = original()
    path = tmp_path / "m.sgm"
    path.write_bytes(data)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {page}")
        connection.execute("VACUUM")
    result, again = repaired(path, tmp_path / "new.sgm")
    assert result.lost == () and all_same(again, memory)
    path.write_bytes(bytes(page) + path.read_bytes()[page:])
    result, again = repaired(path, tmp_path / "new.sgm")
    assert all_same(again, memory)
    assert len(result.lost) == 1 and "list of tables" in result.lost[0]


def test_rows_read_from_pages_are_those_that_sqlite_reads(tmp_path):
    path = tmp_path / "m.sgm"
    everything(60).save(path)
    found = pages.read_pages(path, distrustful=False, progress=False)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for table, columns in pages.COLUMNS.items():
            rows = {row[0]: list(row[1:]) for row in connection.execute(f"SELECT rowid, * FROM {table}")}
            if columns[0] == "n":
                rows = {row: [None, *values[1:]] for row, values in rows.items()}
            assert found.rows[table] == rows and not found.strays[table]


LOST = {  # what is said to be lost by an edit
    "a missing table": "the table evidence",
    "endless JSON": "last observation",
    "an enormous image": "kept observations of all",
    "a missing fact": "the settings.* defaults.*max_dist=10",
    "settings that are no JSON": "the settings",
    "a missing node": r"1 of 73 nodes \(3\)",
    "a short embedding": r"1 of 73 nodes \(3\): no embedding of 2 finite numbers",
    "an embedding that is text": r"1 of 73 nodes \(3\)",
    "NaN in an embedding": r"1 of 73 nodes \(3\)",
    "a broken image": r"1 of 73 kept observations of nodes \(3\): .* zeros",
    "an edge to nowhere": r"1 of 1082 edges \(3\): a node that is lost, or never existed",
    "an edge renumbered": r"1 of 1082 edges \(3\)",
    "another distance on an edge": "a value that was changed",
    "a forged success": "a value that was changed",
    "half a success": r"9 of 9 events \(1–9\)",
    "an event of another kind": r"1 of 9 events \(2\)",
    "an event at no time": r"1 of 9 events \(2\)",
    "an event of no edge": r"1 of 9 events \(2\): an edge that is lost, or never existed",
    "a missing event": r"1 of 9 events \(2\)",
    "events without growth": "how many nodes and edges there were",
    "growth beyond the end": "how many nodes and edges there were",
    "negative evidence": r"1 of 1 edges with evidence \(3\)",
    "evidence about no edge": r"1 of 1 edges with evidence \(100000\)",
    "a moved observation": r"7 of 80 observations",
    "half a node": r"1 of 1082 edges \(3\): values that no edge has",
    "a negative distance": r"1 of 1082 edges \(3\): values that no edge has",
    "an edge of no length": r"1 of 1082 edges \(3\): values that no edge has",
    "an edge twice": r"1 of 1082 edges \(3\): another edge joins the same nodes",
    "an edge to itself": r"1 of 1082 edges \(3\): from a node to itself",
    "a last observation of text": "last observation",
    "a last observation elsewhere": "last observation",
    "a policy of one word": "the cleanup policy: now it is 'first-failure'",
    "a policy of nothing": "the cleanup policy",
    "a number for a fingerprint": "the fingerprint",
    "text for a number of events": "how many events to keep",
    "values of no attribute": "values of attributes .number 9.",
    "an attribute without values": "the attribute 'x'",
    "an attribute of objects": "the attribute 'x'",
    "an attribute of no size": "the attribute 'x'",
    "an attribute of escapes": "the attribute .*2J",
    "another threshold": "a value that was changed",
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_file_is_repaired_and_what_is_lost_is_said(tmp_path, what):
    path = tmp_path / "m.sgm"
    memory = full_memory()
    memory.save(path)
    edit(path, EDITS[what][0])
    result, again = repaired(path, tmp_path / "new.sgm")
    assert result.problems == check(path).problems
    assert any(re.search(LOST.get(what, ""), line) for line in result.lost) or what not in LOST
    assert said(result.lost, "nodes") == len(memory) - len(again) <= 1
    assert said(result.lost, "edges") == len(memory._graph) - len(again._graph)
    assert result.lost or same(again, memory) or what == "evidence from nowhere"


def damage(page: int, garbage: bool) -> bytes:
    """The original file with one page overwritten."""
    data = bytearray(original()[1])
    data[PAGE * (page - 1) : PAGE * page] = np.random.default_rng(page).bytes(PAGE) if garbage else bytes(PAGE)
    return bytes(data)


@pytest.mark.parametrize("garbage", [False, True], ids=["zeros", "garbage"])
def test_what_is_not_on_a_destroyed_page_is_saved_and_what_was_on_it_is_said(tmp_path, garbage):
    memory, data = original()
    path = tmp_path / "m.sgm"
    where = [data.index(row.tobytes()) // PAGE + 1 for row in memory.embeddings.astype("<f4")]
    whole = 0
    for page in range(1, len(data) // PAGE + 1):
        path.write_bytes(damage(page, garbage))
        result, again = repaired(path, tmp_path / "new.sgm")
        assert result.nodes.tolist() == [node for node, there in enumerate(where) if there != page]
        assert is_part_of(again, memory, result.nodes)
        assert said(result.lost, "nodes") == len(memory) - len(again)
        assert said(result.lost, "edges") == len(memory._graph) - len(again._graph)
        assert result.lost or all_same(again, memory)
        if again._nodes.observation is not None:
            right = (again.observations == memory.observations[result.nodes]).all(axis=(1, 2, 3))
            assert said(result.lost, "kept observations of nodes") == (~right).sum() <= 1
            assert not again.observations[~right].any()
        whole += all_same(again, memory)
    assert whole > 3


def test_values_of_an_attribute_around_a_destroyed_page_are_saved(tmp_path):
    distance = sgm.TableDistance(np.ones((400, 400), np.float32))
    memory = sgm.SparseGraphicalMemory(distance, criterion="none", max_dist=0.5)
    with pytest.warns(MemoryWarning, match="no edge"):
        memory.extend(np.arange(400), attributes={"x": np.random.default_rng(0).random((400, 40))})
    path = tmp_path / "m.sgm"
    memory.save(path)
    data = bytearray(path.read_bytes())
    for node in (100, 300, 314):  # the last two are on pages next to each other
        start = data.index(memory.attributes["x"][node, 20].tobytes()) // PAGE * PAGE
        data[start : start + PAGE] = bytes(PAGE)
    path.write_bytes(data)
    result, again = repaired(path, tmp_path / "new.sgm")
    gone = np.isnan(again.attributes["x"]).any(axis=1)
    assert gone[[100, 300, 314]].all() and gone.sum() < 3 * (PAGE // 320 + 2)
    np.testing.assert_array_equal(again.attributes["x"][~gone], memory.attributes["x"][~gone])
    assert f"{gone.sum()} of 400 values of the attribute 'x'" in result.lost[0]


def test_edges_that_were_removed_stay_removed_if_events_are_lost(tmp_path):
    memory = full_memory()
    path = tmp_path / "m.sgm"
    memory.save(path)
    removed = edge_list(memory.removed())
    kinds = memory._log.rows["kind"].tolist()
    for number, kind in enumerate(kinds, 1):
        memory.save(path)
        edit(path, f"DELETE FROM events WHERE id = {number}")
        result, again = repaired(path, tmp_path / "new.sgm")
        assert again.records >= memory.records - 1
        assert len(again.removed().source) == len(removed) - (kind == 2)
        after = memory._log.rows[number:]
        assert again._log.rows.tolist() == after[int(kind == 1) :].tolist() or number == len(kinds)
        assert said(result.lost, "events") == 1 or number == len(kinds)


def test_evidence_before_the_first_event_is_saved(tmp_path):
    path = tmp_path / "m.sgm"
    memory = schema_1(path)
    sgm.SparseGraphicalMemory.load(path, ImageDistance()).save(path)  # schema 2, with evidence and no events
    victim = next(edge for edge, known in memory._graph.evidence.items() if known.removed_at is None)
    tries = memory._graph.evidence[victim].attempts
    edit(path, f"DELETE FROM evidence WHERE edge = {victim}")
    result, again = repaired(path, tmp_path / "new.sgm")
    assert result.lost == (f"{tries} of 7 tries of edges before the first event: cannot be read",)
    assert edge_list(again.removed()) == edge_list(memory.removed())
    assert again.records == memory.records - tries


def test_events_that_were_folded_long_ago_do_not_come_back(tmp_path):
    path = tmp_path / "m.sgm"
    random = np.random.default_rng(0)
    with sgm.SparseGraphicalMemory.open(path, ImageDistance(), keep_events=5, policy="belief", **SETTINGS) as memory:
        for seed in range(3):
            memory.extend(images(20, seed=seed), episode=seed)
            edges = memory.edges(filtered=False)
            chosen = random.integers(0, len(edges.source), 2500)
            memory.record_many(edges.source[chosen], edges.target[chosen], random.random(2500) < 0.7)
    assert memory._log.folded > 2500
    for data in (path.read_bytes(), bytes(PAGE) + path.read_bytes()[PAGE:]):
        path.write_bytes(data)
        _, again = repaired(path, tmp_path / "new.sgm")
        assert all_same(again, memory)
        assert again.events().sequence.tolist() == memory.events().sequence.tolist()


def test_lost_nodes_leave_no_gap_and_everything_follows_its_node(tmp_path):
    path = tmp_path / "m.sgm"
    memory = everything()
    memory.save(path)
    edit(path, "DELETE FROM nodes WHERE id IN (2, 9, 10)")
    result, again = repaired(path, tmp_path / "new.sgm")
    kept = [node for node in range(len(memory)) if node not in (2, 9, 10)]
    assert result.nodes.tolist() == kept and is_part_of(again, memory, result.nodes)
    assert f"3 of {len(memory)} nodes (2, 9–10): cannot be read" in result.lost
    expected = [kept.index(node) if node in kept else -1 for node in memory.assignment.tolist()]
    assert again.assignment.tolist() == expected
    for name in memory.attributes:
        np.testing.assert_array_equal(again.attributes[name], memory.attributes[name][kept])
    tried = {(kept[u], kept[v]): known.attempts for (u, v), known in again.tried().items()}
    assert tried == {pair: known.attempts for pair, known in memory.tried().items() if not {2, 9, 10} & set(pair)}


def test_the_place_of_a_node_in_the_stream_is_found_again(tmp_path):
    path = tmp_path / "m.sgm"
    memory = everything()
    for stream in (-5, 3, 7, 10**15, "'x'", "NULL", 1.5):
        memory.save(path)
        with contextlib.suppress(sqlite3.IntegrityError):
            edit(path, f"UPDATE nodes SET stream = {stream} WHERE id = 5")
            result, again = repaired(path, tmp_path / "new.sgm")
            assert result.lost == () and all_same(again, memory)


def test_most_nodes_decide_how_wide_embeddings_and_features_are(tmp_path):
    path = tmp_path / "m.sgm"
    memory = full_memory()
    memory.save(path)
    edit(path, "UPDATE nodes SET embedding = zeroblob(12) WHERE id < 10")
    edit(path, "UPDATE nodes SET feature = NULL WHERE id = 20")
    result, again = repaired(path, tmp_path / "new.sgm")
    assert result.nodes.tolist() == [node for node in range(10, len(memory)) if node != 20]
    plain = sgm.SparseGraphicalMemory(ImageDistance(), **SETTINGS)
    plain.extend(images())
    plain.save(path)
    edit(path, "UPDATE nodes SET feature = embedding WHERE id = 20")
    result, again = repaired(path, tmp_path / "new.sgm")
    assert same(again, plain) and "1 of 54 features of nodes (20)" in result.lost[0]


def test_a_repaired_memory_can_be_opened_and_grows(tmp_path):
    path, target = tmp_path / "m.sgm", tmp_path / "new.sgm"
    full_memory().save(path)
    edit(path, "DELETE FROM nodes WHERE id = 3")
    edit(path, "DELETE FROM events WHERE id = 2")
    repaired(path, target)
    with sgm.SparseGraphicalMemory.open(target, ImageDistance(), features) as memory:
        before = len(memory)
        memory.extend(images(40, seed=3), episode=1)
        memory.record(*(int(end[0]) for end in memory.edges()[:2]), True)
        assert len(memory) > before and check(target).whole
    assert check(target) == Verdict((), ())


def test_default_settings_allow_the_longest_edge(tmp_path):
    path = tmp_path / "m.sgm"
    memory = everything()
    memory.save(path)
    edit(path, "DELETE FROM meta")
    result, again = repaired(path, tmp_path / "new.sgm")
    assert again.settings.max_dist >= memory.edges(filtered=False).weight.max() > 10
    assert again.settings.keep_observations is False and again.policy.name == "first-failure"
    assert len(result.lost) == 7 and again.fingerprint is None


def test_truncated_files_are_saved_as_far_as_they_go(tmp_path):
    memory, data = original()
    path = tmp_path / "m.sgm"
    saved = []
    for cut in [0, 1, 99, 100, 4095, 4097, *range(10_000, len(data), 15_000), len(data) - 1]:
        path.write_bytes(data[:cut])
        found = repaired_or_refused(path, tmp_path / "new.sgm")
        saved.append(len(found[1]) if found else 0)
        assert found is None or (is_part_of(found[1], memory, found[0].nodes) and found[0].lost)
    assert saved == sorted(saved) and saved[0] == 0 and saved[-1] == len(memory)


def test_flipped_bytes_are_repaired_or_refused(tmp_path):
    memory, data = original(16)
    path = tmp_path / "m.sgm"
    random = np.random.default_rng(0)
    nodes = []
    for case in range(200):
        broken = bytearray(data)
        for _ in range((1, 3, 30)[case % 3]):
            place = int(random.integers(len(data) if random.random() < 0.5 else 16 * PAGE))
            broken[place] ^= 1 << int(random.integers(8))
        path.write_bytes(broken)
        whole = check(path).whole
        assert loads(path) or not whole
        found = repaired_or_refused(path, tmp_path / "new.sgm")
        nodes.append(len(found[1]) if found else 0)
        assert not whole or all_same(found[1], load(path))
    assert np.mean(nodes) > 0.9 * len(memory)


def test_noise_and_other_files_are_refused(tmp_path):
    path = tmp_path / "m.sgm"
    random = np.random.default_rng(0)
    for content in (random.bytes(100_000), bytes(100_000), b"\x0d" * 20_000, b"\x05" * 20_000, b"hello"):
        for header in (b"", original()[1][:100]):
            path.write_bytes(header + content)
            with pytest.raises(sgm.StoreError, match="nothing of .* can be saved"):
                repair.repair(path, tmp_path / "new.sgm")
    path.unlink()
    edit(path, "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)")
    with pytest.raises(sgm.StoreError, match="nothing of .* can be saved"):
        repair.repair(path, tmp_path / "new.sgm")
    assert sorted(os.listdir(tmp_path)) == ["m.sgm"]


def interior(children: list[int]) -> bytes:
    """An interior page with these pages below it."""
    cells = [struct.pack(">IB", child, 1) for child in children[:-1]]
    places = [PAGE - 5 * (number + 1) for number in range(len(cells))]
    head = struct.pack(">BHHHBI", 5, 0, len(cells), places[-1], 0, children[-1])
    page = bytearray(head + struct.pack(f">{len(places)}H", *places)).ljust(PAGE, b"\0")
    for place, cell in zip(places, cells, strict=True):
        page[place : place + 5] = cell
    return bytes(page)


def test_a_tree_without_end_is_walked_once(tmp_path):
    """Eighteen pages, each of which leads to the next four times, would be 4^18 ways to the last."""
    memory, data = original()
    pages = len(data) // PAGE
    (edges,) = (root for name, root in roots(data) if name == "edges")
    leaf = int.from_bytes(data[PAGE * (edges - 1) + 8 :][:4], "big")
    levels = b"".join(interior([pages + level + 2 if level < 17 else leaf] * 4) for level in range(18))
    broken = data[: PAGE * (edges - 1)] + interior([pages + 1] * 4) + data[PAGE * edges :] + levels
    broken = broken[:28] + struct.pack(">I", len(broken) // PAGE) + broken[32:]
    path = tmp_path / "m.sgm"
    path.write_bytes(broken)
    assert not check(path).whole
    result, again = repaired(path, tmp_path / "new.sgm")
    assert is_part_of(again, memory, result.nodes) and len(again._graph) == len(memory._graph)


def roots(data: bytes) -> list[tuple[str, int]]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "m").write_bytes(data)
        with contextlib.closing(sqlite3.connect(Path(folder) / "m")) as connection:
            return connection.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'").fetchall()


def test_bytes_that_the_disk_cannot_read_become_zeros():
    class Disk:
        def seek(self, place):
            self.place = place

        def read(self, length):
            if self.place <= 100_000 < self.place + length:
                raise OSError("bad sector")
            return b"x" * length

    holes = []
    data = copies.read_tolerantly(Disk(), 0, 1 << 20, holes)
    ((start, end),) = holes
    assert start <= 100_000 <= end and end - start < 4096
    assert data == b"x" * start + bytes(end - start + 1) + b"x" * ((1 << 20) - end - 1)


def test_an_existing_target_is_refused(tmp_path):
    full_memory().save(tmp_path / "m.sgm")
    (tmp_path / "new.sgm").write_bytes(b"precious")
    for target in ("new.sgm", "m.sgm"):
        with pytest.raises(sgm.StoreError, match=f"{target} exists already"):
            repair.repair(tmp_path / "m.sgm", tmp_path / target)
    assert (tmp_path / "new.sgm").read_bytes() == b"precious"
    with pytest.raises(sgm.StoreError, match="there is no folder"):
        repair.repair(tmp_path / "m.sgm", tmp_path / "none" / "new.sgm")


def test_a_source_that_is_being_written_is_refused(tmp_path):
    with sgm.SparseGraphicalMemory.open(tmp_path / "live.sgm", ImageDistance(), **SETTINGS) as live:
        live.extend(images(20))
        with pytest.raises(sgm.StoreError, match=f"being written by process {os.getpid()}"):
            repair.repair(tmp_path / "live.sgm", tmp_path / "new.sgm")
        live.extend(images(20, seed=1))
    assert os.listdir(tmp_path) == ["live.sgm"]
    with pytest.raises(sgm.StoreError, match="there is no file"):
        repair.repair(tmp_path / "none.sgm", tmp_path / "new.sgm")


def test_a_repair_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch):
    full_memory().save(tmp_path / "m.sgm")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk on fire")))
    with pytest.raises(sgm.StoreError, match="new.sgm could not be written: disk on fire"):
        repair.repair(tmp_path / "m.sgm", tmp_path / "new.sgm")
    assert os.listdir(tmp_path) == ["m.sgm"]


def test_a_progress_bar_is_shown_only_if_asked_for(tmp_path, capsys):
    full_memory().save(tmp_path / "m.sgm")
    repair.repair(tmp_path / "m.sgm", tmp_path / "a.sgm")
    assert capsys.readouterr().err == ""
    repair.repair(tmp_path / "m.sgm", tmp_path / "b.sgm", progress=True)
    assert "repair" in capsys.readouterr().err
    shutil.rmtree(tmp_path)
