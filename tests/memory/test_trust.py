"""What people do to a memory file they trust: fork, link, move, delete, fill the disk, plant files, kill the writer.

Faults of every single operation are in test_faults.py, kills in test_crash.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

import sgm
from tests.memory.oracle import edge_list
from tests.memory.test_store import SETTINGS, ImageDistance, edit, full_memory, images, same

SGM = sgm.SparseGraphicalMemory
POSIX = pytest.mark.skipif(os.name != "posix", reason="forks, links and resource limits as POSIX has them")
SCHEMA_1 = Path(__file__).parents[1] / "data" / "schema1.sgm"


def live_memory(path, **settings) -> SGM:
    memory = SGM.open(path, ImageDistance(), **{**SETTINGS, **settings})
    if not len(memory):
        memory.extend(images(30), episode=1)
    return memory


def first_edge(memory) -> tuple[int, int]:
    return tuple(int(end[0]) for end in memory.edges()[:2])


def loaded(path) -> SGM:
    return SGM.load(path, ImageDistance())


def run_script(script: str, *arguments) -> str:
    """What a script in a process of its own prints; it must end well."""
    header = "import os, sys, sgm, numpy as np\nfrom tests.memory.test_trust import *\n"
    command = [sys.executable, "-c", header + textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- the disk is full --------------------------------------------------------------------------------------------

FULL_DISK = """
import resource
path, call = sys.argv[1:]
live, mirror = live_memory(path), sgm.SparseGraphicalMemory(ImageDistance(), **SETTINGS)
mirror.extend(images(30), episode=1)
u, v = first_edge(live)
calls = {
    "extend": lambda memory, number: memory.extend(images(40, seed=number), episode=number),
    "record": lambda memory, number: memory.record_many([u] * 99, [v] * 99, [True] * 99),
    "attributes": lambda memory, number: memory.attributes.update({"x": np.full((len(memory), 50), number)}),
}
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path + "-wal") + 60_000, resource.RLIM_INFINITY))
failed = done = 0
for number in range(40):
    try:
        calls[call](live, number)
    except sgm.StoreError as error:
        assert "full" in str(error) or "I/O" in str(error), error
        failed += 1
    else:
        calls[call](mirror, number)
        done += 1
    assert same(live, mirror)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert failed and done, (failed, done)
assert same(loaded(path), mirror)
for memory in (live, mirror):
    calls[call](memory, 99)
live.close()
assert same(loaded(path), mirror)
assert os.listdir(os.path.dirname(path)) == ["m.sgm"]
"""


@POSIX
@pytest.mark.parametrize("call", ["extend", "record", "attributes"])
def test_a_full_disk_costs_the_call_that_failed_and_no_other(tmp_path, call):
    run_script(FULL_DISK, tmp_path / "m.sgm", call)


FULL_IN_A_GROUP = """
import resource
path = sys.argv[1]
live = live_memory(path)
before = loaded(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path + "-wal") + 20_000, resource.RLIM_INFINITY))
try:
    with live.group():
        for number in range(40):
            live.extend(images(40, seed=number))
except sgm.StoreError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert same(loaded(path), before) or len(loaded(path).assignment) == len(live.assignment)
if same(loaded(path), live):
    live.extend(images(3, seed=77))
else:
    for call in (lambda: live.extend(images(3)), lambda: live.record(*first_edge(live), True), lambda: live.filter(2),
                 lambda: live.restore(), lambda: live.attributes.update({"x": np.zeros(len(live))})):
        size = len(live.assignment)
        try:
            call()
        except sgm.StoreError as error:
            assert "reopen" in str(error), error
        else:
            raise AssertionError("a write was not refused")
        assert len(live.assignment) == size
    live.plan_nodes(0, 0)
    live.save(path + ".saved")
    live.close()
live = sgm.SparseGraphicalMemory.open(path, ImageDistance())
live.extend(images(5, seed=3))
live.close()
assert same(loaded(path), live)
"""


@POSIX
def test_a_group_that_the_disk_has_no_room_for_makes_the_memory_refuse_to_write_until_it_is_reopened(tmp_path):
    assert "reopen" in run_script(FULL_IN_A_GROUP, tmp_path / "m.sgm")


def test_an_error_of_commit_after_the_call_was_written_is_a_warning_and_not_a_lost_call(tmp_path):
    class Late:
        """A connection whose COMMIT succeeds and then reports that the log could not be moved into the file."""

        def __init__(self, connection):
            self.connection = connection

        def __getattr__(self, name):
            return getattr(self.connection, name)

        def execute(self, statement, *values):
            result = self.connection.execute(statement, *values)
            if statement == "COMMIT":
                raise sqlite3.OperationalError("database or disk is full")
            return result

    live = live_memory(tmp_path / "m.sgm")
    plain = live._store._connection
    live._store._connection = Late(plain)
    with pytest.warns(UserWarning, match="the call is in the file"):
        live.record(*first_edge(live), True)
    with pytest.warns(UserWarning, match="the call is in the file"), live.group():
        live.extend(images(9, seed=3))
    live._store._connection = plain
    live.record(*first_edge(live), True)
    assert live.records == 2 and same(loaded(tmp_path / "m.sgm"), live)
    live.close()


def test_no_room_for_the_lock_is_a_store_error_and_lets_go_of_it(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "m.sgm"
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(sgm.StoreError, match="No space left"):
        live_memory(path)
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(sgm.StoreError, match="No space left"):
        live_memory(path)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []
    monkeypatch.setattr(os, "write", full)  # nobody can be told who writes, but the lock holds
    memory = live_memory(path)
    with pytest.raises(sgm.StoreError, match="being written by process"):
        live_memory(path)
    memory.close()


# -- fork and threads --------------------------------------------------------------------------------------------

FORK = """
path, how = sys.argv[1:]
live = live_memory(path)
u, v = first_edge(live)
child = os.fork()
if not child:
    try:
        for call in (lambda: live.record(u, v, False), lambda: live.extend(images(3)), lambda: live.filter(1),
                     lambda: live.restore(), lambda: live.group().__enter__()):
            try:
                call()
            except sgm.StoreError as error:
                assert "forked" in str(error) and str(os.getppid()) in str(error), error
            else:
                raise AssertionError("a forked child wrote")
        assert live.records == 0
        live.plan_nodes(u, v)  # what it has in RAM it may use
        for call in (sgm.SparseGraphicalMemory.load, sgm.SparseGraphicalMemory.open):
            try:
                call(path, ImageDistance())
            except sgm.StoreError as error:
                assert "forked" in str(error) or "being written" in str(error), error
            else:
                raise AssertionError("a forked child used its parent's file")
        if how == "close":
            live.close()
        sys.exit(7)  # an ordinary end of the interpreter
    except AssertionError as error:
        print(error, flush=True)
        os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert os.path.exists(path + "-lock")
try:
    live_memory(path)
except sgm.StoreError as error:
    assert "being written" in str(error)
else:
    raise AssertionError("the child took the lock away")
live.record(u, v, False)
live.extend(images(10, seed=3))
assert same(loaded(path), live)
live.close()
assert same(loaded(path), live)
assert os.listdir(os.path.dirname(path)) == ["m.sgm"]
"""


@POSIX
@pytest.mark.parametrize("how", ["close", "leave"])
def test_a_forked_child_cannot_write_nor_take_the_lock_away(tmp_path, how):
    run_script(FORK, tmp_path / "m.sgm", how)


ORPHAN = """
import signal
path = sys.argv[1]
live = live_memory(path)
child = os.fork()
if not child:
    print("child", flush=True)
    sys.stdin.read()
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@POSIX
def test_a_child_that_outlives_its_parent_does_not_hold_the_lock(tmp_path):
    header = "import os, sys, sgm, numpy as np\nfrom tests.memory.test_trust import *\n"
    command = [sys.executable, "-c", header + ORPHAN, str(tmp_path / "m.sgm")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "child\n"
        os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)
        with live_memory(tmp_path / "m.sgm") as memory:
            assert len(memory.assignment) == 30
        writer.communicate("")


def test_threads_take_turns_and_lose_nothing(tmp_path):
    live = live_memory(tmp_path / "m.sgm", policy="belief")
    u, v = first_edge(live)
    errors = []

    def work(number):
        try:
            for step in range(50):
                live.record(u, v, True)
                live.plan_nodes(u, int(np.random.default_rng(step).integers(len(live))))
                if step % 10 == 0:
                    live.extend(images(5, seed=100 * number + step))
        except sgm.NoPath:
            pass
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert live.evidence(u, v).successes == live.records
    closer = threading.Thread(target=live.close)
    closer.start()
    closer.join()
    assert same(loaded(tmp_path / "m.sgm"), live)
    assert os.listdir(tmp_path) == ["m.sgm"]


# -- one writer a file, whatever its name ------------------------------------------------------------------------


@POSIX
def test_a_symbolic_link_is_the_file_it_leads_to(tmp_path):
    (tmp_path / "real").mkdir()
    link, real = tmp_path / "link.sgm", tmp_path / "real" / "m.sgm"
    live = live_memory(real)
    link.symlink_to(real)
    for call in (lambda: live_memory(link), lambda: full_memory().save(link)):
        with pytest.raises(sgm.StoreError, match="being written"):
            call()
    assert same(loaded(link), live)
    live.close()
    with live_memory(link) as again, pytest.raises(sgm.StoreError, match="being written"):
        again.record(*first_edge(again), True)
        live_memory(real)
    full_memory().save(link)
    assert link.is_symlink() and same(loaded(real), full_memory())
    assert sorted(os.listdir(tmp_path)) == ["link.sgm", "real"] and os.listdir(tmp_path / "real") == ["m.sgm"]


@POSIX
def test_a_file_with_two_names_cannot_be_opened_for_writing(tmp_path):
    live_memory(tmp_path / "m.sgm").close()
    os.link(tmp_path / "m.sgm", tmp_path / "n.sgm")
    for name in ("m.sgm", "n.sgm"):
        with pytest.raises(sgm.StoreError, match="2 names"):
            live_memory(tmp_path / name)
        assert len(loaded(tmp_path / name).assignment) == 30
    (tmp_path / "n.sgm").unlink()
    live_memory(tmp_path / "m.sgm").close()


@POSIX
def test_a_second_name_made_while_a_memory_is_live_lets_no_second_writer_in(tmp_path):
    live = live_memory(tmp_path / "m.sgm")
    os.link(tmp_path / "m.sgm", tmp_path / "n.sgm")
    with pytest.raises(sgm.StoreError, match="2 names"):
        live_memory(tmp_path / "n.sgm")
    live.extend(images(3, seed=1))
    live.close()
    assert same(loaded(tmp_path / "m.sgm"), live)


def test_relative_names_stay_what_they_were_after_chdir(tmp_path, monkeypatch):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    first = live_memory("m.sgm")
    monkeypatch.chdir(tmp_path / "b")
    second = live_memory("m.sgm")
    first.extend(images(5, seed=5))
    first.close()
    with pytest.raises(sgm.StoreError, match="being written"):
        live_memory("m.sgm")
    second.extend(images(5, seed=6))
    second.close()
    assert same(loaded(tmp_path / "a" / "m.sgm"), first) and same(loaded(tmp_path / "b" / "m.sgm"), second)


def test_a_live_file_that_was_deleted_or_replaced_is_noticed_at_the_next_write(tmp_path):
    for number, damage in enumerate((lambda p: p.unlink(), lambda p: (p.unlink(), p.write_bytes(b"other")))):
        path = tmp_path / f"{number}.sgm"
        live = live_memory(path)
        damage(path)
        for _ in range(2):
            with pytest.raises(sgm.StoreError, match=r"deleted, moved or replaced .* save\(\) keeps"):
                live.extend(images(3))
        live.save(tmp_path / "rescued.sgm")
        assert same(loaded(tmp_path / "rescued.sgm"), live)
        live.close()
        assert not path.exists() or path.read_bytes() == b"other"


# -- what others planted -----------------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize("kind", ["symlink", "hard link", "dangling", "file", "folder", "fifo"])
def test_a_planted_lock_is_refused_and_what_it_leads_to_is_left_alone(tmp_path, kind):
    victim, lock = tmp_path / "victim", tmp_path / "m.sgm-lock"
    text = "what nobody may overwrite, longer than a process number is"
    victim.write_text(text)
    {
        "symlink": lambda: lock.symlink_to(victim),
        "hard link": lambda: os.link(victim, lock),
        "dangling": lambda: lock.symlink_to(tmp_path / "new"),
        "file": lambda: shutil.copy(victim, lock),
        "folder": lock.mkdir,
        "fifo": lambda: os.mkfifo(lock),
    }[kind]()
    for call in (lambda: live_memory(tmp_path / "m.sgm"), lambda: full_memory().save(tmp_path / "m.sgm")):
        with pytest.raises(sgm.StoreError, match="m.sgm-lock"):
            call()
    assert victim.read_text() == text and lock.is_symlink() == (kind in ("symlink", "dangling"))
    assert not (tmp_path / "new").exists() and not (tmp_path / "m.sgm").exists()


@POSIX
def test_what_lies_at_the_name_of_a_file_in_the_making_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    for name in ("m.sgm-new", "m.sgm-new-journal", "m.sgm-new-wal"):
        victim.write_text("untouched")
        (tmp_path / name).symlink_to(victim)
        full_memory().save(tmp_path / "m.sgm")
        assert victim.read_text() == "untouched" and same(loaded(tmp_path / "m.sgm"), full_memory())
    assert sorted(os.listdir(tmp_path)) == ["m.sgm", "victim"]


# -- what lies beside a file -------------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
def test_sqlite_never_writes_through_a_link_beside_a_file(tmp_path, suffix):
    path, victim = tmp_path / "m.sgm", tmp_path / "victim"
    full_memory().save(path)
    victim.write_text("untouched")
    path.with_name(f"m.sgm{suffix}").symlink_to(victim)
    for call in (lambda: loaded(path), lambda: live_memory(path)):
        with pytest.raises(sgm.StoreError, match="is a link"):
            call()
    assert victim.read_text() == "untouched"


def test_a_journal_that_names_another_file_does_not_get_it_deleted(tmp_path):
    """SQLite deletes the file that a journal of several databases names, once it has rolled the journal back."""
    path, victim = tmp_path / "m.sgm", tmp_path / "victim"
    full_memory().save(path)
    victim.write_text("untouched")
    name = os.fsencode(victim)
    magic = bytes.fromhex("d9d505f920a163d7")
    header = magic + bytes(4) + bytes(4) + (path.stat().st_size // 4096).to_bytes(4, "big") + (512).to_bytes(4, "big")
    end = (1 << 30).to_bytes(4, "big") + name + len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big") + magic
    journal = header + (4096).to_bytes(4, "big") + bytes(512 - len(header) - 4) + end
    for call in (lambda: loaded(path), lambda: live_memory(path), lambda: full_memory().save(path)):
        path.with_name("m.sgm-journal").write_bytes(journal)
        with pytest.raises(sgm.StoreError, match="names another file"):
            call()
        assert victim.read_text() == "untouched"


def test_an_empty_file_does_not_cost_the_log_beside_it(tmp_path):
    path = tmp_path / "m.sgm"
    for call in (lambda: loaded(path), lambda: live_memory(path)):
        path.write_bytes(b"")
        (tmp_path / "m.sgm-wal").write_bytes(b"what a killed writer left" * 1000)
        with pytest.raises(sgm.StoreError, match="is empty"):
            call()
        assert (tmp_path / "m.sgm-wal").stat().st_size
    full_memory().save(path)
    assert same(loaded(path), full_memory()) and (tmp_path / "m.sgm-wal-old").stat().st_size


# -- a killed writer's file --------------------------------------------------------------------------------------

KILLED = """
import signal
live = live_memory(sys.argv[1])
for number in range(5):
    live.extend(images(10, seed=number))
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_writers_file(path: Path) -> SGM:
    """A file that a killed writer left, its write-ahead log beside it; what it holds."""
    header = "import os, sys, sgm, numpy as np\nfrom tests.memory.test_trust import *\n"
    done = subprocess.run([sys.executable, "-c", header + KILLED, str(path)])
    assert done.returncode == -signal.SIGKILL and path.with_name(path.name + "-wal").stat().st_size
    mirror = SGM(ImageDistance(), **SETTINGS)
    for batch in (images(30), *(images(10, seed=number) for number in range(5))):
        mirror.extend(batch, episode=1 if len(batch) == 30 else None)
    return mirror


@POSIX
@pytest.mark.parametrize("failing", ["replace", "fsync", "open"])
def test_saving_over_a_killed_writers_file_loses_nothing_if_it_fails(tmp_path, monkeypatch, failing):
    path = tmp_path / "m.sgm"
    mirror = killed_writers_file(path)
    real = getattr(os, failing)

    def fail(*arguments, **options):
        if "m.sgm-new" in str(arguments[0]) or failing == "fsync":
            raise OSError("disk on fire")
        return real(*arguments, **options)

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(sgm.StoreError, match="disk on fire"):
        full_memory().save(path)
    monkeypatch.undo()
    assert same(loaded(path), mirror)
    full_memory().save(path)
    assert same(loaded(path), full_memory())
    assert not [name for name in os.listdir(tmp_path) if "wal" in name or "new" in name]


@POSIX
def test_a_file_cannot_be_replaced_while_somebody_reads_what_a_killed_writer_left(tmp_path):
    path = tmp_path / "m.sgm"
    mirror = killed_writers_file(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM nodes").fetchone()
        with pytest.raises(sgm.StoreError, match="somebody is reading it"):
            full_memory().save(path)
    assert same(loaded(path), mirror)
    full_memory().save(path)
    assert same(loaded(path), full_memory())


def test_a_log_without_its_file_is_put_aside_and_does_not_spoil_a_new_file(tmp_path):
    for suffix in ("-wal", "-journal"):
        (tmp_path / f"m.sgm{suffix}").write_bytes(bytes(5000))
    with live_memory(tmp_path / "m.sgm") as live:
        assert sorted(name for name in os.listdir(tmp_path) if "old" in name) == ["m.sgm-journal-old", "m.sgm-wal-old"]
    assert same(loaded(tmp_path / "m.sgm"), live)


@POSIX
def test_a_journal_that_has_to_be_rolled_back_first_is(tmp_path):
    """Killed while the journal mode changes: a reader that may not write could not take that back."""
    path = tmp_path / "m.sgm"
    full_memory().save(path)
    script = """
    import sqlite3, signal
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("PRAGMA cache_spill = 1")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE nodes SET stream = stream + 1000")
    connection.execute("UPDATE nodes SET observation = zeroblob(9000)")
    os.kill(os.getpid(), signal.SIGKILL)
    """
    header = "import os, sys\n"
    subprocess.run([sys.executable, "-c", header + textwrap.dedent(script), str(path)])
    assert path.with_name("m.sgm-journal").stat().st_size
    assert same(loaded(path), full_memory())
    assert os.listdir(tmp_path) == ["m.sgm"]


# -- values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_dist": 1e308}, "max_dist is 1e.308: expected a number from 0 to 1e.30"),
        ({"tau_a": 10**400}, "tau_a is a whole number of about"),
        ({"k": 2**70}, "k is .*at most 2147483647"),
        ({"seed": 2**70}, "seed is .*at most"),
        ({"criterion": "uniform", "size": 2**70}, "size is .*at most"),
        ({"keep_events": -1}, "keep_events is -1"),
        ({"keep_events": "many"}, "keep_events is 'many'"),
    ],
)
def test_settings_that_could_not_be_kept_are_refused_at_once(settings, reason):
    with pytest.raises(sgm.InputError, match=reason):
        SGM(ImageDistance(), **settings)


def test_the_largest_settings_can_be_saved_and_loaded(tmp_path):
    memory = SGM(ImageDistance(), max_dist=1e30, tau_a=1e30, k=2**31 - 1, seed=2**63 - 1, policy="belief")
    memory.extend(images(20))
    memory.record(*first_edge(memory), False)
    memory.save(tmp_path / "m.sgm")
    assert same(loaded(tmp_path / "m.sgm"), memory)


def test_only_our_errors_leave_the_memory_for_bad_values(tmp_path):
    memory = full_memory()
    u, v = first_edge(memory)
    ragged, huge = [[1, 2], [3]], 10**400
    for call in (
        lambda: memory.filter(2**70),
        lambda: memory.filter(huge),
        lambda: memory.extend(ragged),
        lambda: memory.extend(images(2), episode=ragged),
        lambda: memory.extend(images(2), attributes=[1, 2]),
        lambda: memory.extend(images(2), attributes={"x": ragged}),
        lambda: memory.extend(images(2), attributes={"x": [1]}),
        lambda: memory.extend(images(2), attributes={"": [1, 2]}),
        lambda: memory.extend(images(2), attributes={"stream": [1, 2]}),
        lambda: memory.extend(images(2), attributes={"x": ["a", "b"]}),
        lambda: memory.add(ragged),
        lambda: memory.plan(ragged, ragged),
        lambda: memory.record(huge, v, True),
        lambda: memory.record(ragged, v, True),
        lambda: memory.record(u, v, ragged),
        lambda: memory.record(u, v, True, episode=huge),
        lambda: memory.record(u, v, True, episode=-1),
        lambda: memory.restore(huge, v),
        lambda: memory.plan_nodes(huge, 0),
        lambda: memory.next_nodes(ragged, [0]),
        lambda: memory.reached(images(1), ragged),
        lambda: memory.reached(images(1), [0], cutoff=huge),
        lambda: memory.plan(images(1)[0], images(1)[0], within=huge),
        lambda: memory.steps_to_nodes(ragged, embedded=True),
        lambda: memory.at(huge),
        lambda: memory.at(-1),
        lambda: memory.at(1.5),
        lambda: memory.attributes.update({"x": [1, 2]}),
        lambda: memory.attributes.update({"x": ragged}),
        lambda: memory.attributes.update({7: np.zeros(len(memory))}),
        lambda: memory.attributes["none"],
        lambda: memory.attributes.__delitem__("none"),
        lambda: memory.to_graphml(tmp_path / "none" / "x.graphml"),
        lambda: memory.to_csv("\0"),
    ):
        with pytest.raises(sgm.SGMError):
            call()
    assert same(memory, full_memory())


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 300, "folder", "none/m.sgm", "x" * 253])
def test_names_that_no_file_can_have_are_store_errors(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    memory = full_memory()
    for call in (
        lambda: memory.save(name),
        lambda: memory.backup(name),
        lambda: SGM.open(name, ImageDistance()),
        lambda: SGM.load(name, ImageDistance()),
    ):
        with pytest.raises(sgm.StoreError):
            call()
    with pytest.raises(sgm.InputError):
        memory.save(name.encode())
    assert os.listdir(tmp_path) == ["folder"]


# -- hostile files -----------------------------------------------------------------------------------------------


def forged(path: Path, *statements: str) -> None:
    """Edit a file and make its checksum right again, as somebody who knows how would."""
    for statement in statements:
        edit(path, statement)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            loaded(path)
        except sgm.StoreError as error:
            found = str(error)
            if "do not add up" in found:
                right = int(found.split("(")[1].split(",")[0])
                connection.execute("UPDATE state SET checksum = ?", (right,))
                connection.commit()


HOSTILE = {
    "negative evidence": "INSERT INTO evidence VALUES (0, -9, 9, 0, NULL, 0)",
    "more successes than 64 bits": "INSERT INTO evidence VALUES (0, 9e30, 0, 0, NULL, 0)",
    "a filter beyond 64 bits": """UPDATE meta SET value = replace(value, '"k": 4', '"k": 1180591620717411303424')
        WHERE key = 'settings'""",
    "an endless MaxDist": """UPDATE meta SET value = replace(value, '"max_dist": 6.0', '"max_dist": 1e308')
        WHERE key = 'settings'""",
    "a MaxDist that is no number": """UPDATE meta SET value = replace(value, '"max_dist": 6.0', '"max_dist": NaN')
        WHERE key = 'settings'""",
    "enormous observations": """UPDATE meta SET value = '{"dtype": "f8", "shape": [100000, 100000]}'
        WHERE key = 'observation'""",
    "objects for observations": """UPDATE meta SET value = '{"dtype": "O", "shape": [2]}' WHERE key = 'observation'""",
    "a structured dtype": """UPDATE meta SET value = '{"dtype": "f4,f4", "shape": [2]}' WHERE key = 'observation'""",
    "a policy of another kind": """UPDATE meta SET value = '{"name": ["x"]}' WHERE key = 'policy'""",
    "a policy with odd parameters": """UPDATE meta SET value = '{"name": "belief", "guard": 1}' WHERE key = 'policy'""",
    "a loop edge": "UPDATE edges SET target = source WHERE id = 1",
    "an edge twice": """UPDATE edges SET source = (SELECT source FROM edges WHERE id = 2), target = (SELECT target FROM
        edges WHERE id = 2) WHERE id = 3""",
    "a negative weight": "UPDATE edges SET distance = -1e30 WHERE id = 1",
    "an infinite weight": "UPDATE edges SET distance = 9e999 WHERE id = 1",
    "a tail of one number": "UPDATE meta SET value = '[1]' WHERE key = 'tail'",
    "a fingerprint that is a list": "UPDATE meta SET value = '[1]' WHERE key = 'fingerprint'",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_values_are_refused_even_with_the_right_checksum(tmp_path, what):
    path = tmp_path / "m.sgm"
    full_memory().save(path)
    forged(path, HOSTILE[what])
    for call in (lambda: loaded(path), lambda: SGM.load(path, None), lambda: SGM.open(path, ImageDistance())):
        with pytest.raises(sgm.StoreError):
            call()


BOMB = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))
for path in sys.argv[1:]:
    try:
        sgm.SparseGraphicalMemory.load(path, None)
    except sgm.StoreError as error:
        print(error)
"""


@POSIX
def test_a_small_file_that_declares_much_is_refused_before_memory_is_taken_for_it(tmp_path):
    """Each image is a row of zeros that zlib packs a thousandfold: 700 MB in less than a megabyte."""
    paths = []
    for version in ("2", "1"):
        path = tmp_path / f"{version}.sgm"
        full_memory().save(path) if version == "2" else shutil.copy(SCHEMA_1, path)
        size = 10_000_000
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE nodes SET observation = ?", (zlib.compress(bytes(size), 9),))
            form = json.dumps({"dtype": "u1", "shape": [size]})
            connection.execute("UPDATE meta SET value = ? WHERE key = 'observation'", (form,))
            connection.commit()
        assert path.stat().st_size < 2_000_000
        paths.append(path)
    shown = run_script(BOMB, *paths).splitlines()
    assert len(shown) == 2 and all("at most 256 times" in line for line in shown)


def test_nothing_that_a_file_contains_reaches_a_terminal_unescaped(tmp_path, capsys):
    from sgm.cli import main

    escape = "\x1b]0;owned\x07\u202e\n"

    class Evil(ImageDistance):
        fingerprint = f"print{escape}"

    path = tmp_path / "m.sgm"
    memory = SGM(Evil(), **SETTINGS)
    memory.extend(images(20))
    memory.save(path)
    assert main(["info", str(path)]) == 0
    assert main(["export", str(path)]) == 0
    with pytest.raises(sgm.StoreError) as refused:
        loaded(path)
    shown = capsys.readouterr()
    edit(path, "UPDATE meta SET value = ? WHERE key = 'policy'", json.dumps({"name": escape}))
    with pytest.raises(sgm.StoreError) as damaged:
        loaded(path)
    edit(path, f'CREATE TABLE "{escape}" (x)')
    with pytest.raises(sgm.StoreError) as strange:
        loaded(path)
    assert main(["info", str(path)]) == 2
    shown_later = capsys.readouterr()
    for text in (shown.out, shown_later.err, *(str(error.value) for error in (refused, damaged, strange))):
        assert not any(not character.isprintable() for character in text.replace("\n", ""))
        assert "\x1b" not in text
    data = path.read_bytes()
    for word in (b"CREATE TABLE nodes", b"CREATE TABLE meta", b"INTEGER PRIMARY KEY"):
        path.write_bytes(data.replace(word, bytes([0xFF, 0xFE, 0x1B]) + word[3:]))
        with pytest.raises(sgm.StoreError) as unreadable:
            loaded(path)
        assert str(unreadable.value).isprintable()


# -- schema 1 ----------------------------------------------------------------------------------------------------


def schema_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def features(observations):
    return ImageDistance().embed(observations) * 2


def test_a_file_of_schema_1_opens_and_becomes_schema_2_on_the_first_write_with_a_copy_beside_it(tmp_path):
    path, beside = tmp_path / "m.sgm", tmp_path / "m.sgm.schema1"
    shutil.copy(SCHEMA_1, path)
    old = loaded(path)
    assert (len(old), old.records, len(old.removed().source)) == (73, 23, 6) and len(old.events().sequence) == 0
    with SGM.open(path, ImageDistance(), features) as live:
        assert same(live, old) and not beside.exists() and schema_of(path) == 1
    with SGM.open(path, ImageDistance(), features) as live:
        live.record(*first_edge(live), True)
        live.extend(images(9, seed=8), attributes={"position": np.arange(18.0).reshape(9, 2)})
        assert beside.exists() and schema_of(path) == 2 and schema_of(beside) == 1
        assert same(loaded(path), live) and same(loaded(beside), old)
        assert same_history(live.at(0), old)
    assert sorted(os.listdir(tmp_path)) == ["m.sgm", "m.sgm.schema1"]
    assert same(loaded(path), live)


def same_history(a: SGM, b: SGM) -> bool:
    """Whether two memories have the same edges, removed ones and evidence."""
    pairs = ((a.edges(), b.edges()), (a.removed(), b.removed()))
    return all(edge_list(one) == edge_list(other) for one, other in pairs) and a.tried() == b.tried()


@pytest.mark.parametrize("call", ["record", "extend", "restore", "filter", "attributes", "group"])
def test_any_first_write_makes_a_file_schema_2(tmp_path, call):
    shutil.copy(SCHEMA_1, tmp_path / "m.sgm")
    with SGM.open(tmp_path / "m.sgm", ImageDistance(), features) as live:
        {
            "record": lambda: live.record(*first_edge(live), False),
            "extend": lambda: live.extend(images(5, seed=4), episode=3),
            "restore": live.restore,
            "filter": lambda: live.filter(2),
            "attributes": lambda: live.attributes.update({"x": np.zeros(len(live))}),
            "group": lambda: live.group().__enter__(),
        }[call]()
        assert schema_of(tmp_path / "m.sgm") == 2
    assert same(loaded(tmp_path / "m.sgm"), live)


def test_a_schema_1_file_stays_as_it_is_if_there_is_no_room_for_the_copy(tmp_path, monkeypatch):
    path = tmp_path / "m.sgm"
    shutil.copy(SCHEMA_1, path)
    with SGM.open(path, ImageDistance(), features) as live:
        monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(sgm.StoreError, match="No space"):
            live.record(*first_edge(live), True)
        monkeypatch.undo()
        assert live.records == 23 and schema_of(path) == 1
        live.record(*first_edge(live), True)
    assert same(loaded(path), live) and schema_of(path) == 2


def test_a_call_that_surfaces_while_a_file_is_opened_is_not_missed(tmp_path, monkeypatch):
    """The last call of a killed writer may be in the log but not yet in the index that readers share."""
    from sgm.memory import store

    path, later = tmp_path / "m.sgm", tmp_path / "later.sgm"
    memory = full_memory()
    memory.save(path)
    memory.record(*first_edge(memory), True)
    memory.save(later)
    connect = store._connect_live

    def surfacing(*arguments):
        shutil.copy(later, path)
        return connect(*arguments)

    monkeypatch.setattr(store, "_connect_live", surfacing)
    live = SGM.open(path, ImageDistance(), features)
    monkeypatch.undo()
    assert same(live, memory)
    live.extend(images(9, seed=8))
    live.record(*first_edge(live), False)
    assert same(loaded(path), live)
    live.close()
    assert same(loaded(path), live)


def test_a_past_that_could_not_have_been_is_refused(tmp_path):
    memory = full_memory()
    memory.extend(images(20, seed=3))
    memory.record(*first_edge(memory), True)
    for column in ("nodes", "edges", "observations"):
        for value in ("1", "0", f"{column} + 1"):
            memory.save(tmp_path / "m.sgm")
            forged(
                tmp_path / "m.sgm",
                f"UPDATE growth SET {column} = {value} WHERE event = (SELECT max(event) FROM growth)",
            )
            try:
                found = loaded(tmp_path / "m.sgm")
            except sgm.StoreError:
                continue
            found.at(len(found.events().sequence)).save(tmp_path / "past.sgm")
            loaded(tmp_path / "past.sgm")


def test_restored_edges_come_back_in_one_order_before_and_after_reopening(tmp_path):
    memory = full_memory()
    edges = memory.edges()
    for place in (30, 9, 20):
        memory.record(edges.source[place], edges.target[place], False)
    memory.save(tmp_path / "m.sgm")
    back = loaded(tmp_path / "m.sgm")
    for one in (memory, back):
        one.restore()
    assert memory.events().source.tolist() == back.events().source.tolist()


def test_attributes_keep_their_order(tmp_path):
    with live_memory(tmp_path / "m.sgm") as live:
        for name in ("b", "a", "c", "b"):
            live.attributes[name] = np.zeros(len(live))
        assert list(live.attributes) == list(loaded(tmp_path / "m.sgm").attributes) == ["b", "a", "c"]


def test_an_interrupt_at_the_end_of_an_upgrade_does_not_spoil_the_file(tmp_path):
    from tests.memory.test_store import InterruptedAfter

    path = tmp_path / "m.sgm"
    shutil.copy(SCHEMA_1, path)
    live = SGM.open(path, ImageDistance(), features)
    plain = live._store._connection
    live._store._connection = InterruptedAfter(plain, "SELECT calls, checksum FROM state")
    with pytest.raises(KeyboardInterrupt):
        live.record(*first_edge(live), True)
    live._store._connection = plain
    live.record(*first_edge(live), True)
    assert live.records == 24 and same(loaded(path), live)
    live.close()
    assert same(loaded(path), live)


def test_a_new_file_keeps_as_many_events_as_it_was_told_from_the_beginning(tmp_path):
    with pytest.raises(sgm.InputError, match="keep_events is -1"):
        SGM.open(tmp_path / "m.sgm", ImageDistance(), keep_events=-1)
    assert os.listdir(tmp_path) == []
    live = SGM.open(tmp_path / "m.sgm", ImageDistance(), keep_events=7)
    assert live._store._file.calls == 0 and loaded(tmp_path / "m.sgm")._log.keep == 7
    live.close()
