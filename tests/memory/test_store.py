"""Memory files: what goes in comes out, and what is not a memory file is refused."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import zlib

import numpy as np
import pytest

import sgm
from tests.conftest import plane
from tests.memory.oracle import edge_list

SETTINGS = {"tau_p": 1.5, "tau_a": 3.0, "max_dist": 6.0, "k": 4}


class ImageDistance:
    """Images whose first two bytes are a position; the embedding is that position."""

    fingerprint = "image-distance-1"

    def embed(self, observations):
        return np.asarray(observations).reshape(len(observations), -1)[:, :2].astype(np.float32) / 8

    def __call__(self, starts, goals):
        return np.linalg.norm(starts[:, None] - goals, axis=-1).astype(np.float32)


def images(n=80, seed=0) -> np.ndarray:
    random = np.random.default_rng(seed)
    ramp = np.add.outer(np.arange(12), np.arange(16)).astype(np.uint8)
    result = np.repeat(np.repeat(ramp[None, :, :, None], 3, axis=3), n, axis=0)
    result[:, 0, 0, :2] = random.integers(0, 160, (n, 2))
    return result


def full_memory(**settings) -> sgm.SparseGraphicalMemory:
    """A memory with merges, features, images, temporal edges, evidence and a removed edge."""
    memory = sgm.SparseGraphicalMemory(
        ImageDistance(), lambda x: ImageDistance().embed(x) * 2, keep_observations=True, **{**SETTINGS, **settings}
    )
    memory.extend(images(), episode=np.arange(80) // 9)
    edges = memory.edges()
    memory.record_many(edges.source[:6], edges.target[:6], np.array([True, False, True, True, False, True]))
    memory.record(edges.source[0], edges.target[0], True)
    return memory


def same(a: sgm.SparseGraphicalMemory, b: sgm.SparseGraphicalMemory) -> bool:
    """Whether two memories hold the same, to the last bit."""
    keys = set(a._graph.evidence) | set(b._graph.evidence)
    pairs = [(int(a._graph.source.values[e]), int(a._graph.target.values[e])) for e in keys]
    return (
        a.settings == b.settings
        and a.policy == b.policy
        and a.records == b.records
        and a.nodes.tolist() == b.nodes.tolist()
        and a.assignment.tolist() == b.assignment.tolist()
        and a.embeddings.tobytes() == b.embeddings.tobytes()
        and a.features.tobytes() == b.features.tobytes()
        and all(edge_list(a.edges(f)) == edge_list(b.edges(f)) for f in (True, False))
        and edge_list(a.removed()) == edge_list(b.removed())
        and [a.evidence(*pair) for pair in pairs] == [b.evidence(*pair) for pair in pairs]
    )


def test_a_saved_memory_comes_back_to_the_last_bit(tmp_path):
    memory = full_memory(policy=sgm.Belief(threshold=0.3, guard=True))
    memory.save(tmp_path / "m.sgm")
    loaded = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", ImageDistance())
    assert same(memory, loaded)
    np.testing.assert_array_equal(loaded.observations, memory.observations)
    assert loaded.observations.dtype == np.uint8
    assert os.listdir(tmp_path) == ["m.sgm"]


def test_a_loaded_memory_goes_on_as_if_it_had_never_been_saved(tmp_path):
    one, other = full_memory(), full_memory()
    one.save(tmp_path / "m.sgm")
    one = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", ImageDistance(), lambda x: ImageDistance().embed(x) * 2)
    for memory in (one, other):
        memory.extend(images(40, seed=1), episode=8)
        memory.record(*(int(end[3]) for end in memory.edges()[:2]), False)
    assert same(one, other)


def test_uint8_images_are_stored_compactly_and_without_loss(tmp_path):
    full_memory().save(tmp_path / "m.sgm")
    with contextlib.closing(sqlite3.connect(tmp_path / "m.sgm")) as connection:
        rows = connection.execute("SELECT length(observation) FROM nodes").fetchall()
    assert np.mean(rows) < 0.15 * images()[0].nbytes


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16, np.bool_])
def test_observations_of_any_number_type_are_kept(tmp_path, dtype):
    _, table = plane(20)

    class Points(sgm.TableDistance):
        def embed(self, observations):
            return super().embed(np.asarray(observations)[:, 0].astype(int))

    observations = np.stack([np.arange(20), np.arange(20) % 3], axis=1).astype(dtype)
    memory = sgm.SparseGraphicalMemory(Points(table), criterion="none", keep_observations=True)
    memory.extend(observations)
    memory.save(tmp_path / "m.sgm")
    loaded = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", Points(table))
    np.testing.assert_array_equal(loaded.observations, observations)
    assert loaded.observations.dtype == dtype


def test_a_live_memory_is_in_its_file_after_every_call(tmp_path):
    path = tmp_path / "live.sgm"
    live = sgm.SparseGraphicalMemory.open(path, ImageDistance(), keep_observations=True, **SETTINGS)
    mirror = sgm.SparseGraphicalMemory(ImageDistance(), keep_observations=True, **SETTINGS)

    def check(act):
        for memory in (live, mirror):
            act(memory)
        assert same(sgm.SparseGraphicalMemory.load(path, ImageDistance()), mirror)

    check(lambda m: m.extend(images(50), episode=1))
    check(lambda m: m.add(images(60)[-1], episode=1))
    check(lambda m: m.record(*(int(end[0]) for end in m.edges()[:2]), True))
    check(lambda m: m.record(*(int(end[0]) for end in m.edges()[:2]), False))
    check(lambda m: m.filter(2))
    check(lambda m: m.restore())
    check(lambda m: m.remove(*(int(end[1]) for end in m.edges()[:2])))
    check(lambda m: m.extend(images(0)))
    live.close()
    assert os.listdir(tmp_path) == ["live.sgm"]
    with sgm.SparseGraphicalMemory.open(path, ImageDistance()) as again:
        assert same(again, mirror)
        again.extend(images(30, seed=5))
        mirror.extend(images(30, seed=5))
    assert same(sgm.SparseGraphicalMemory.load(path, ImageDistance()), mirror)


def test_averaged_features_are_durable(tmp_path):
    path = tmp_path / "live.sgm"
    with sgm.SparseGraphicalMemory.open(path, ImageDistance(), feature_average=0.05, **SETTINGS) as live:
        for image in images(60):
            live.add(image)
        expected = live.features
    loaded = sgm.SparseGraphicalMemory.load(path, ImageDistance())
    np.testing.assert_array_equal(loaded.features, expected)
    assert not np.array_equal(loaded.features, loaded.embeddings)


def test_calls_in_a_group_share_one_transaction(tmp_path):
    path = tmp_path / "live.sgm"
    with sgm.SparseGraphicalMemory.open(path, ImageDistance(), **SETTINGS) as live:
        live.extend(images(30))
        with live.group():
            live.extend(images(30, seed=1))
            live.record(*(int(end[0]) for end in live.edges()[:2]), False)
            before = sgm.SparseGraphicalMemory.load(path, ImageDistance())
            assert len(before.assignment) == 30 and before.records == 0
        assert same(sgm.SparseGraphicalMemory.load(path, ImageDistance()), live)


def test_a_group_that_raises_keeps_what_had_returned_in_memory_and_in_the_file(tmp_path):
    path = tmp_path / "live.sgm"
    with sgm.SparseGraphicalMemory.open(path, ImageDistance(), **SETTINGS) as live:
        with pytest.raises(sgm.UnknownNode), live.group():
            live.extend(images(30))
            live.record(0, 999, False)
        assert len(live.assignment) == 30
        assert same(sgm.SparseGraphicalMemory.load(path, ImageDistance()), live)


def test_a_second_writer_is_refused_and_readers_are_not(tmp_path):
    path = tmp_path / "live.sgm"
    live = sgm.SparseGraphicalMemory.open(path, ImageDistance(), **SETTINGS)
    live.extend(images(30))
    with pytest.raises(sgm.StoreError, match=f"being written by process {os.getpid()}"):
        sgm.SparseGraphicalMemory.open(path, ImageDistance())
    with pytest.raises(sgm.StoreError, match="being written"):
        full_memory().save(path)
    script = (
        "import sgm, sys; from tests.memory.test_store import ImageDistance\n"
        "print(len(sgm.SparseGraphicalMemory.load(sys.argv[1], ImageDistance())))\n"
        "try: sgm.SparseGraphicalMemory.open(sys.argv[1], ImageDistance())\n"
        "except sgm.StoreError as error: print(error)\n"
    )
    shown = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[0] == str(len(live))
    assert f"process {os.getpid()}" in shown
    live.close()
    sgm.SparseGraphicalMemory.open(path, ImageDistance()).close()


def test_saving_over_a_file_leaves_either_the_old_or_the_new(tmp_path, monkeypatch):
    path = tmp_path / "m.sgm"
    old = full_memory()
    old.save(path)
    new = full_memory(k=2)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk on fire")))
    with pytest.raises(sgm.StoreError, match="disk on fire"):
        new.save(path)
    assert os.listdir(tmp_path) == ["m.sgm"]
    assert same(sgm.SparseGraphicalMemory.load(path, ImageDistance()), old)
    monkeypatch.undo()
    new.save(path)
    assert same(sgm.SparseGraphicalMemory.load(path, ImageDistance()), new)


def test_a_write_that_fails_leaves_memory_and_file_as_they_were(tmp_path):
    path = tmp_path / "live.sgm"
    with sgm.SparseGraphicalMemory.open(path, ImageDistance(), **SETTINGS) as live:
        live.extend(images(30))
        before = sgm.SparseGraphicalMemory.load(path, ImageDistance())
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        live._store._connection.execute("PRAGMA busy_timeout = 0")
        u, v = (int(end[0]) for end in live.edges()[:2])
        for call in (lambda: live.extend(images(9, seed=3)), lambda: live.record(u, v, False), lambda: live.filter(1)):
            with pytest.raises(sgm.StoreError, match="locked"):
                call()
            assert same(live, before)
        blocker.close()
        live.extend(images(9, seed=3))
        assert same(sgm.SparseGraphicalMemory.load(path, ImageDistance()), live)


class InterruptedAfter:
    """A connection in which Ctrl-C arrives just after a statement has been carried out."""

    def __init__(self, connection, statement):
        self.connection, self.statement = connection, statement

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def execute(self, statement, *values):
        result = self.connection.execute(statement, *values)
        if statement == self.statement:
            self.statement = None
            raise KeyboardInterrupt
        return result


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "COMMIT", "SAVEPOINT call", "RELEASE call"])
@pytest.mark.parametrize("call", ["extend", "record", "restore", "filter"])
def test_memory_and_file_agree_whenever_an_interrupt_arrives(tmp_path, call, statement):
    path = tmp_path / "live.sgm"
    live = sgm.SparseGraphicalMemory.open(path, ImageDistance(), **SETTINGS)
    live.extend(images(40))
    u, v = (int(end[0]) for end in live.edges()[:2])
    live.record(u, v, False)
    calls = {
        "extend": lambda: live.extend(images(20, seed=1)),
        "record": lambda: live.record(u, v, False),
        "restore": lambda: live.restore(),
        "filter": lambda: live.filter(2),
    }
    grouped = statement.endswith("call")
    with live.group() if grouped else contextlib.nullcontext():
        plain = live._store._connection
        live._store._connection = InterruptedAfter(plain, statement)
        with pytest.raises(KeyboardInterrupt):
            calls[call]()
        live._store._connection = plain
        live.extend(images(10, seed=2))
    live.record(u, v, True)
    assert same(sgm.SparseGraphicalMemory.load(path, ImageDistance()), live)
    live.close()
    sgm.SparseGraphicalMemory.open(path, ImageDistance()).close()


def test_closing_while_somebody_reads_says_that_the_log_still_belongs_to_the_file(tmp_path):
    path = tmp_path / "live.sgm"
    live = sgm.SparseGraphicalMemory.open(path, ImageDistance(), **SETTINGS)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM nodes").fetchone()
        live.extend(images(30))
        live._store._connection.execute("PRAGMA busy_timeout = 10")
        with pytest.warns(UserWarning, match="-wal still belongs to it"):
            live.close()
    assert len(sgm.SparseGraphicalMemory.load(path, ImageDistance())) == len(live)
    sgm.SparseGraphicalMemory.open(path, ImageDistance()).close()
    assert os.listdir(tmp_path) == ["live.sgm"]


def test_closing_inside_a_group_keeps_what_had_returned(tmp_path):
    path = tmp_path / "live.sgm"
    live = sgm.SparseGraphicalMemory.open(path, ImageDistance(), **SETTINGS)
    with live.group():
        live.extend(images(30))
        live.close()
    assert same(sgm.SparseGraphicalMemory.load(path, ImageDistance()), live)


def test_another_feature_function_is_refused_when_building(tmp_path):
    def phi(x):
        return ImageDistance().embed(x) * 2

    full_memory().save(tmp_path / "with.sgm")
    plain = sgm.SparseGraphicalMemory(ImageDistance(), **SETTINGS)
    plain.extend(images())
    plain.save(tmp_path / "without.sgm")
    averaging = sgm.SparseGraphicalMemory(ImageDistance(), phi, feature_average=0.05, **SETTINGS)
    averaging.extend(images())
    averaging.save(tmp_path / "averaging.sgm")
    for name, features in (("with", None), ("without", phi), ("averaging", None)):
        memory = sgm.SparseGraphicalMemory.load(tmp_path / f"{name}.sgm", ImageDistance(), features)
        with pytest.raises(sgm.InputError, match="built with features"):
            memory.extend(images())
    marked = sgm.SparseGraphicalMemory.load(tmp_path / "with.sgm", ImageDistance(), phi)
    assert marked.extend(images()).added == 0


def test_another_distance_is_refused_by_fingerprint_and_by_behaviour(tmp_path):
    class Renamed(ImageDistance):
        fingerprint = "image-distance-2"

    class Longer(ImageDistance):
        fingerprint = None

        def __call__(self, starts, goals):
            return 1.1 * super().__call__(starts, goals)

    class Narrow(ImageDistance):
        fingerprint = None

        def __call__(self, starts, goals):
            return starts[:, 5] - goals

    full_memory().save(tmp_path / "m.sgm")
    for distance, reason in (
        (Renamed(), "image-distance-1, not image-distance-2"),
        (Longer(), "steps"),
        (Narrow(), ""),
    ):
        with pytest.raises(sgm.StoreError, match=f"another distance.*{reason}"):
            sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", distance)
        with pytest.raises(sgm.StoreError, match="another distance"):
            sgm.SparseGraphicalMemory.open(tmp_path / "m.sgm", distance)
    assert os.listdir(tmp_path) == ["m.sgm"]


def test_other_settings_than_the_files_are_refused(tmp_path):
    full_memory().save(tmp_path / "m.sgm")
    with pytest.raises(sgm.StoreError, match=r"made with tau_a=3.0, not 4"):
        sgm.SparseGraphicalMemory.open(tmp_path / "m.sgm", ImageDistance(), tau_a=4)
    with pytest.raises(sgm.InputError, match="tau_x is not a setting"):
        sgm.SparseGraphicalMemory.open(tmp_path / "m.sgm", ImageDistance(), tau_x=4)
    sgm.SparseGraphicalMemory.open(tmp_path / "m.sgm", ImageDistance(), tau_a=3).close()


def test_a_policy_of_ones_own_has_to_be_given_again(tmp_path):
    class Never(sgm.CleanupPolicy):
        def gives_up(self, evidence):
            return False

    full_memory(policy=Never()).save(tmp_path / "m.sgm")
    with pytest.raises(sgm.StoreError, match="'Never'.*policy="):
        sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", ImageDistance())
    assert sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", ImageDistance(), policy=Never()).policy.name == ""


def edit(path, statement, *values):
    connection = sqlite3.connect(path)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


EDITS = {
    "another schema version": ("PRAGMA user_version = 3", "schema version 3; this release reads versions 1 to 2"),
    "another application": ("PRAGMA application_id = 7", "not a memory file"),
    "a missing table": ("DROP TABLE evidence", "tables are not those"),
    "a missing column": ("ALTER TABLE evidence DROP COLUMN guarded", "tables are not those"),
    "a trigger": (
        "CREATE TRIGGER x AFTER INSERT ON evidence BEGIN DELETE FROM nodes WHERE id > 3; END",
        "or not only those",
    ),
    "a view": ("CREATE VIEW v AS SELECT * FROM nodes", "or not only those"),
    "text for a number": ("UPDATE nodes SET stream = 'x' WHERE id = 3", "damaged"),
    "endless JSON": (f"UPDATE meta SET value = '{'[' * 100_000}' WHERE key = 'tail'", "damaged"),
    "an enormous image": (
        """UPDATE meta SET value = '{"dtype": "u1", "shape": [99999999, 99999999]}' WHERE key = 'observation'""",
        "damaged",
    ),
    "a missing fact": ("DELETE FROM meta WHERE key = 'settings'", "lacks settings"),
    "no checksum": ("DELETE FROM state", "state has 0 rows"),
    "a checksum that is text": ("UPDATE state SET checksum = 'x'", "checksum is x"),
    "settings that are no JSON": ("UPDATE meta SET value = 'k=5' WHERE key = 'settings'", "damaged"),
    "a missing node": ("DELETE FROM nodes WHERE id = 3", "not numbered"),
    "a short embedding": ("UPDATE nodes SET embedding = x'0011' WHERE id = 3", "not of one size"),
    "an embedding that is text": ("UPDATE nodes SET embedding = 'cos\nsystem' WHERE id = 3", "damaged"),
    "NaN in an embedding": ("UPDATE nodes SET embedding = x'0000c07f0000c07f' WHERE id = 3", "not all finite"),
    "a broken image": ("UPDATE nodes SET observation = x'00' WHERE id = 3", "damaged"),
    "an edge to nowhere": ("UPDATE edges SET target = 1000 WHERE id = 3", "nodes it does not have"),
    "an edge renumbered": ("UPDATE edges SET id = 100000 WHERE id = 3", "not numbered"),
    "another distance on an edge": ("UPDATE edges SET distance = distance * 0.5 WHERE id = 3", "changed by hand"),
    "a forged success": ("UPDATE events SET kind = 0 WHERE kind = 1", "changed by hand"),
    "half a success": ("UPDATE events SET kind = kind + 0.5", "values that no event has"),
    "an event of another kind": ("UPDATE events SET kind = 77 WHERE id = 2", "values that no event has"),
    "an event at no time": ("UPDATE events SET time = 9e999 WHERE id = 2", "values that no event has"),
    "an event of no edge": ("UPDATE events SET edge = 100000 WHERE id = 2", "events of edges it does not have"),
    "a missing event": ("DELETE FROM events WHERE id = 2", "not numbered"),
    "events without growth": ("DELETE FROM growth", "how many nodes and edges there were"),
    "growth beyond the end": ("UPDATE growth SET nodes = 100000", "do not fit the nodes"),
    "evidence from nowhere": ("INSERT INTO evidence VALUES (3, 1, 0, 0, NULL, 0)", "contradicts itself or the 0 tries"),
    "negative evidence": ("INSERT INTO evidence VALUES (3, -5, 5, 0, NULL, 0)", "whole numbers, 0 or more"),
    "evidence about no edge": ("INSERT INTO evidence VALUES (100000, 1, 0, 0, NULL, 0)", "but only"),
    "folded events that never were": ("UPDATE state SET folded = 3", "not numbered"),
    "a moved observation": ("UPDATE assignments SET nodes = zeroblob(length(nodes))", "contradict each other"),
    "half a node": ("UPDATE edges SET source = source + 0.5 WHERE id = 3", "values that no edge has"),
    "a negative distance": ("UPDATE edges SET distance = -distance WHERE id = 3", "values that no edge has"),
    "an edge of no length": ("UPDATE edges SET distance = NULL, temporal = 0 WHERE id = 3", "values that no edge has"),
    "an edge twice": (
        "UPDATE edges SET source = (SELECT source FROM edges WHERE id = 2), target = (SELECT target FROM edges WHERE "
        "id = 2) WHERE id = 3",
        "there twice",
    ),
    "an edge to itself": ("UPDATE edges SET target = source WHERE id = 3", "from a node to itself"),
    "a last observation of text": ("""UPDATE meta SET value = '"x"' WHERE key = 'tail'""", "damaged"),
    "a last observation elsewhere": ("UPDATE meta SET value = '[1, 100000]' WHERE key = 'tail'", "damaged"),
    "a policy of one word": ("""UPDATE meta SET value = '"belief"' WHERE key = 'policy'""", "for policy"),
    "a policy of nothing": ("UPDATE meta SET value = '{}' WHERE key = 'policy'", "damaged"),
    "a number for a fingerprint": ("UPDATE meta SET value = '7' WHERE key = 'fingerprint'", "for fingerprint"),
    "text for a number of events": ("""UPDATE meta SET value = '"x"' WHERE key = 'keep_events'""", "keeps x events"),
    "values of no attribute": ("INSERT INTO attribute_rows VALUES (9, 9, 0, 1, x'00')", "attributes that it does not"),
    "an attribute without values": ("INSERT INTO attributes VALUES (9, 'x', 'f4', '[2]')", "0 values for"),
    "an attribute of objects": ("INSERT INTO attributes VALUES (9, 'x', 'O', '[2]')", "declared as"),
    "an attribute of no size": ("INSERT INTO attributes VALUES (9, 'x', 'f4', '[0]')", "declared as"),
    "an attribute of escapes": ("INSERT INTO attributes VALUES (9, char(27) || '[2J', 'f4', '[2]')", "an attribute is"),
    "another threshold": ("UPDATE meta SET value = replace(value, '3.0', '9.0') WHERE key = 'settings'", "by hand"),
}


@pytest.mark.parametrize("what", EDITS)
def test_a_file_edited_by_hand_is_refused(tmp_path, what):
    statement, reason = EDITS[what]
    path = tmp_path / "m.sgm"
    full_memory().save(path)
    edit(path, statement)
    with pytest.raises(sgm.StoreError, match=reason):
        sgm.SparseGraphicalMemory.load(path, ImageDistance())
    with pytest.raises(sgm.StoreError, match=reason):
        sgm.SparseGraphicalMemory.open(path, ImageDistance())


@pytest.mark.parametrize("name", ["load", "open"])
@pytest.mark.parametrize("what", EDITS)
def test_a_refused_file_is_free_for_others_while_the_error_is_kept(tmp_path, what, name):
    path = tmp_path / "m.sgm"
    full_memory().save(path)
    edit(path, EDITS[what][0])
    with pytest.raises(sgm.StoreError) as kept:
        getattr(sgm.SparseGraphicalMemory, name)(path, ImageDistance())
    with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        other.execute("UPDATE nodes SET stream = stream")
    assert kept.value.__traceback__ is not None


def test_truncated_random_and_empty_files_are_refused(tmp_path):
    whole = tmp_path / "whole.sgm"
    full_memory().save(whole)
    data = whole.read_bytes()
    random = np.random.default_rng(0)
    contents = [data[:cut] for cut in random.integers(0, len(data), 12)] + [b"", b"hello", random.bytes(5000)]
    for content in contents:
        path = tmp_path / "broken.sgm"
        path.write_bytes(content)
        with pytest.raises(sgm.StoreError):
            sgm.SparseGraphicalMemory.load(path, ImageDistance())
        with pytest.raises(sgm.StoreError):
            sgm.SparseGraphicalMemory.open(path, ImageDistance())
    with pytest.raises(sgm.StoreError, match="is not a file"):
        sgm.SparseGraphicalMemory.load(tmp_path / "none.sgm", ImageDistance())


def test_flipped_bytes_are_noticed_or_harmless(tmp_path):
    whole = tmp_path / "whole.sgm"
    memory = full_memory()
    memory.save(whole)
    data = bytearray(whole.read_bytes())
    random = np.random.default_rng(1)
    noticed = 0
    for position in random.integers(100, len(data), 120):
        broken = data.copy()
        broken[position] ^= 1 << int(random.integers(8))
        path = tmp_path / "broken.sgm"
        path.write_bytes(broken)
        try:
            assert same(sgm.SparseGraphicalMemory.load(path, ImageDistance()), memory)
        except sgm.StoreError:
            noticed += 1
    assert noticed > 20


def test_a_compressed_bomb_is_not_unpacked(tmp_path):
    path = tmp_path / "m.sgm"
    full_memory().save(path)
    edit(path, "UPDATE nodes SET observation = ? WHERE id = 0", zlib.compress(bytes(10_000_000)))
    with pytest.raises(sgm.StoreError, match="does not unpack"):
        sgm.SparseGraphicalMemory.load(path, ImageDistance())


def test_a_memory_without_its_distance_can_be_looked_at(tmp_path):
    full_memory().save(tmp_path / "m.sgm")
    memory = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", None)
    assert memory.plan_nodes(0, 0).cost == 0
    with pytest.raises(sgm.InputError, match="without a distance"):
        memory.plan(images()[0], images()[1])


def test_features_are_asked_for_only_when_building(tmp_path):
    full_memory().save(tmp_path / "m.sgm")
    memory = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", ImageDistance())
    memory.plan(images()[0], images()[1])
    with pytest.raises(sgm.InputError, match="features=…"):
        memory.extend(images(3))


def test_a_backup_of_a_live_memory_is_what_its_file_holds(tmp_path):
    path, copy = tmp_path / "live.sgm", tmp_path / "copy.sgm"
    with sgm.SparseGraphicalMemory.open(path, ImageDistance(), **SETTINGS) as live:
        live.extend(images(30), attributes={"x": np.arange(30)})
        live.record(*(int(end[0]) for end in live.edges()[:2]), False)
        live.backup(copy)
        assert same(sgm.SparseGraphicalMemory.load(copy, ImageDistance()), live)
        assert sgm.SparseGraphicalMemory.load(copy, ImageDistance()).attributes["x"].tolist()
        before = sgm.SparseGraphicalMemory.load(path, ImageDistance())
        with live.group():
            live.extend(images(30, seed=1))
            live.backup(copy)
            assert same(sgm.SparseGraphicalMemory.load(copy, ImageDistance()), before)
        live.backup(copy)
        assert same(sgm.SparseGraphicalMemory.load(copy, ImageDistance()), live)
        with pytest.raises(sgm.StoreError, match="own file"):
            live.backup(path)
    assert sorted(os.listdir(tmp_path)) == ["copy.sgm", "live.sgm"]
    live.backup(copy)  # of a memory that is not live: the same as save
    assert same(sgm.SparseGraphicalMemory.load(copy, ImageDistance()), live)
    with sgm.SparseGraphicalMemory.open(copy, ImageDistance()), pytest.raises(sgm.StoreError, match="being written"):
        live.backup(copy)


def test_copy_on_the_command_line_copies_a_live_file(tmp_path, capsys):
    from sgm.cli import main

    path, copy = tmp_path / "live.sgm", tmp_path / "copy.sgm"
    with sgm.SparseGraphicalMemory.open(path, ImageDistance(), **SETTINGS) as live:
        live.extend(images(30))
        assert main(["copy", str(path), str(copy)]) == 0
        assert same(sgm.SparseGraphicalMemory.load(copy, ImageDistance()), live)
        live.extend(images(30, seed=1))
        assert main(["copy", str(path), str(copy)]) == 2
        assert main(["copy", str(path), str(copy), "--force"]) == 0
        assert same(sgm.SparseGraphicalMemory.load(copy, ImageDistance()), live)
        assert main(["copy", str(tmp_path / "none"), str(tmp_path / "x")]) == 2
    shown = capsys.readouterr()
    assert "copied" in shown.out and "--force" in shown.err and "is not a file" in shown.err


def test_a_copy_of_a_live_memory_is_not_live(tmp_path):
    import copy

    with sgm.SparseGraphicalMemory.open(tmp_path / "m.sgm", ImageDistance(), **SETTINGS) as live:
        live.extend(images(30))
        twin = copy.deepcopy(live)
        assert same(twin, live) and "live" not in repr(twin)
        twin.extend(images(30, seed=1))
        twin.record(*(int(end[0]) for end in twin.edges()[:2]), False)
        assert len(live.assignment) == 30 and not len(live.events().sequence) and twin.at(1).records == 1
        assert same(sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", ImageDistance()), live)


def test_readers_of_a_live_memory_that_nothing_was_written_to_leave_nothing_behind(tmp_path):
    path = tmp_path / "live.sgm"
    with sgm.SparseGraphicalMemory.open(path, ImageDistance(), **SETTINGS) as live:
        live.backup(tmp_path / "copy.sgm")
        sgm.SparseGraphicalMemory.load(path, ImageDistance())
    assert sorted(os.listdir(tmp_path)) == ["copy.sgm", "live.sgm"]


@pytest.mark.parametrize("statement", ["PRAGMA synchronous = EXTRA", "PRAGMA journal_mode = DELETE"])
def test_an_interrupt_while_closing_lets_go_of_the_file(tmp_path, statement):
    path = tmp_path / "live.sgm"
    live = sgm.SparseGraphicalMemory.open(path, ImageDistance(), **SETTINGS)
    live.extend(images(30))
    live._store._connection = InterruptedAfter(live._store._connection, statement)
    with pytest.raises(KeyboardInterrupt):
        live.close()
    sgm.SparseGraphicalMemory.open(path, ImageDistance()).close()
    assert os.listdir(tmp_path) == ["live.sgm"]
    assert same(sgm.SparseGraphicalMemory.load(path, ImageDistance()), live)


def test_an_interrupt_when_a_group_begins_leaves_no_transaction_behind(tmp_path):
    live = sgm.SparseGraphicalMemory.open(tmp_path / "live.sgm", ImageDistance(), **SETTINGS)
    plain = live._store._connection
    live._store._connection = InterruptedAfter(plain, "BEGIN IMMEDIATE")
    with pytest.raises(KeyboardInterrupt), live.group():
        live.extend(images(30))
    live._store._connection = plain
    with live.group():
        live.extend(images(30))
    live.close()
    assert same(sgm.SparseGraphicalMemory.load(tmp_path / "live.sgm", ImageDistance()), live)
