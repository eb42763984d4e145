"""The disk that fails on demand tells the truth: about SQLite itself, which is known to survive what it simulates."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.memory.faulty_disk import (
    CHANGES,
    FULL,
    LOCKS,
    PYTHON,
    READS,
    Disk,
    available,
    failing_os,
    faulty_disk,
)

needs_faulty_disk = pytest.mark.skipif(not available(), reason="ctypes cannot reach the SQLite that Python uses here")

TABLE = "CREATE TABLE IF NOT EXISTS numbers (number INTEGER PRIMARY KEY, filler BLOB)"
INSERT = "INSERT INTO numbers VALUES (?, zeroblob(2000))"


def connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=60, isolation_level=None)


def live(connection: sqlite3.Connection, acknowledged: list[int], synchronous: str = "FULL", end: str = "DELETE"):
    """A short life of a database in WAL mode; a number is acknowledged once its transaction has been committed."""

    def insert(number: int) -> None:
        connection.execute(INSERT, (number,))
        acknowledged.append(number)

    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 8")
    connection.execute(TABLE)
    insert(0)
    insert(1)
    insert(2)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    insert(3)
    connection.execute(f"PRAGMA journal_mode = {end}")


def live_and_close(path: Path, acknowledged: list[int], **options: str) -> None:
    with contextlib.closing(connect(path)) as connection:
        live(connection, acknowledged, **options)


def live_in_rollback_mode(connection: sqlite3.Connection, acknowledged: list[int], synchronous: str) -> None:
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(TABLE)
    for number in range(3):
        connection.execute(INSERT, (number,))
        acknowledged.append(number)


def held(path: Path) -> list[int]:
    """The numbers in a database, which must be sound."""
    with contextlib.closing(connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not connection.execute("SELECT 1 FROM sqlite_master").fetchall():
            return []
        return [number for (number,) in connection.execute("SELECT number FROM numbers ORDER BY number")]


def healthy_operations(path: Path) -> list[tuple[str, str]]:
    with faulty_disk() as disk:
        live_and_close(path, [])
    return disk.operations


@needs_faulty_disk
def test_the_operations_of_a_transaction_are_counted_and_are_the_same_each_time(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    operations = healthy_operations(tmp_path / "a" / "db")
    assert operations == healthy_operations(tmp_path / "b" / "db")
    assert {name for name, _ in operations} == CHANGES
    assert {file for _, file in operations} == {"db", "db-journal", "db-wal", "db-shm"}


@needs_faulty_disk
def test_a_commit_in_wal_mode_writes_frames_and_syncs_the_log(tmp_path):
    with faulty_disk() as disk, contextlib.closing(connect(tmp_path / "db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(TABLE)
        disk.operations.clear()
        connection.execute(INSERT, (0,))
        assert disk.operations == [("write", "db-wal")] * 2 + [("sync", "db-wal")]


@needs_faulty_disk
@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("how", ["before", "after", "torn", "forget"])
def test_sqlite_keeps_what_it_acknowledged_whichever_operation_fails(tmp_path, how, forever):
    for at in itertools.count():
        path = tmp_path / f"{at}.db"
        acknowledged: list[int] = []
        with faulty_disk() as disk:
            disk.fail(at=at, how=how, forever=forever)
            with contextlib.suppress(sqlite3.Error):
                live_and_close(path, acknowledged)
            disk.heal()
            # A commit that reported an error may be found all the same, but only that one.
            assert held(path) in (acknowledged, [*acknowledged, len(acknowledged)])
        if not disk.struck:
            assert acknowledged == [0, 1, 2, 3]
            break
    assert at > 40


@needs_faulty_disk
@pytest.mark.parametrize("how", ["before", "after"])
def test_a_connection_goes_on_once_the_disk_is_healthy_again(tmp_path, how):
    for at in itertools.count():
        path = tmp_path / f"{at}.db"
        with faulty_disk() as disk, contextlib.closing(connect(path)) as connection:
            disk.fail(at=at + 1, how=how, code=FULL)
            acknowledged: list[int] = []
            with contextlib.suppress(sqlite3.Error):
                live(connection, acknowledged)
            if disk.struck:
                connection.execute(TABLE)
                connection.execute(INSERT, (9,))
                acknowledged.append(9)
        assert set(acknowledged) <= set(held(path)) <= {*acknowledged, len(acknowledged) - 1}
        if not disk.struck:
            break


@needs_faulty_disk
def test_reads_and_locks_fail_when_they_are_asked_to(tmp_path):
    live_and_close(tmp_path / "db", [], end="WAL")
    kinds = set()
    for at in itertools.count():
        with faulty_disk(READS | LOCKS) as disk:
            disk.sleeps = False
            disk.fail(at=at)
            with contextlib.suppress(sqlite3.Error), contextlib.closing(connect(tmp_path / "db")) as connection:
                assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (4,)
            disk.heal()
            assert held(tmp_path / "db") == [0, 1, 2, 3]
        if not disk.struck:
            break
        kinds.add(disk.struck[0].name)
    assert kinds == READS | LOCKS


@needs_faulty_disk
@pytest.mark.parametrize("check", ["integrity_check", "quick_check"])
def test_a_check_for_integrity_takes_a_failed_read_for_damage(tmp_path, check):
    live_and_close(tmp_path / "db", [])
    verdicts = []
    for at in itertools.count():
        with faulty_disk(frozenset({"read"})) as disk, contextlib.closing(connect(tmp_path / "db")) as connection:
            disk.operations.clear()
            disk.fail(at=at)
            with contextlib.suppress(sqlite3.OperationalError):
                verdicts += connection.execute(f"PRAGMA {check}(1)").fetchone()
        if not disk.struck:
            break
    assert len(verdicts) > 1 and verdicts.pop() == "ok"
    assert all("unable to get the page" in verdict for verdict in verdicts)


@needs_faulty_disk
def test_a_failed_lock_is_busy_until_the_disk_is_healthy_again(tmp_path):
    with faulty_disk(LOCKS) as disk, contextlib.closing(connect(tmp_path / "db")) as connection:
        disk.sleeps = False
        disk.fail(at=0, forever=True)
        with pytest.raises(sqlite3.OperationalError, match="database is locked"):
            connection.execute(TABLE)
        disk.heal()
        connection.execute(TABLE)


@needs_faulty_disk
def test_half_of_a_torn_write_is_in_the_file(tmp_path):
    with faulty_disk() as disk, contextlib.closing(connect(tmp_path / "db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA page_size = 4096")
        disk.fail(at=lambda operation: operation == ("write", "db-wal"), how="torn")
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            connection.execute(TABLE)
        assert os.path.getsize(tmp_path / "db-wal") == 16  # of the 32 bytes of a header


@needs_faulty_disk
def test_only_some_files_can_be_made_to_fail(tmp_path):
    with faulty_disk(only=lambda path: path == str(tmp_path / "b")) as disk:
        disk.fail(at=0, forever=True)
        live_and_close(tmp_path / "a", [])
        with pytest.raises(sqlite3.OperationalError, match="unable to open"):
            connect(tmp_path / "b")
    assert disk.operations == disk.struck == [("open", "b")]


@needs_faulty_disk
@pytest.mark.parametrize("names", ["kept", "lost"])
@pytest.mark.parametrize("seed", [None, 1])
def test_a_power_cut_loses_no_commit_that_was_synced(tmp_path, seed, names):
    for at in itertools.count():
        path = tmp_path / f"{at}.db"
        acknowledged: list[int] = []
        with faulty_disk() as disk:
            disk.call(at=at, function=lambda disk=disk: disk.power_cut(seed, names))
            with contextlib.suppress(sqlite3.Error):
                live_and_close(path, acknowledged)
            if not disk.struck:
                disk.power_cut(seed, names)
            disk.heal()
            assert held(path) in (acknowledged, [*acknowledged, len(acknowledged)])
        if not disk.struck:
            break


@needs_faulty_disk
def test_a_power_cut_loses_commits_that_were_not_synced(tmp_path):
    lost = 0
    for at in itertools.count(1):
        path = tmp_path / f"{at}.db"
        acknowledged: list[int] = []
        with faulty_disk() as disk, contextlib.closing(connect(path)) as connection:
            disk.call(at=at, function=disk.power_cut)
            with contextlib.suppress(sqlite3.Error):
                live(connection, acknowledged, synchronous="OFF")
            disk.heal()
            if not disk.struck:
                break
            assert os.path.getsize(path) == 0  # without a single sync, nothing is durable but the names
            assert held(path) == []
            lost += bool(acknowledged)
    assert lost > 10


@needs_faulty_disk
def test_a_power_cut_may_lose_the_last_commits_with_synchronous_normal_but_the_file_is_sound(tmp_path):
    acknowledged: list[int] = []
    with faulty_disk() as disk, contextlib.closing(connect(tmp_path / "db")) as connection:
        live(connection, acknowledged, synchronous="NORMAL", end="WAL")
        disk.power_cut()
        disk.heal()
        assert acknowledged == [0, 1, 2, 3]
        assert held(tmp_path / "db") == [0, 1, 2]  # up to the checkpoint


@needs_faulty_disk
@pytest.mark.parametrize(("synchronous", "kept"), [("FULL", [0, 1]), ("EXTRA", [0, 1, 2])])
def test_without_a_sync_of_the_directory_a_rollback_journal_may_return_and_undo_a_commit(tmp_path, synchronous, kept):
    """SQLite documents it: in rollback mode, only synchronous = EXTRA syncs the directory after each deletion."""
    acknowledged: list[int] = []
    with faulty_disk() as disk, contextlib.closing(connect(tmp_path / "db")) as connection:
        live_in_rollback_mode(connection, acknowledged, synchronous)
        disk.power_cut(names="lost")
        disk.heal()
        assert acknowledged == [0, 1, 2]
        assert held(tmp_path / "db") == kept


@needs_faulty_disk
@pytest.mark.parametrize(("how", "kept"), [("before", "new"), ("forget", "old")])
def test_a_later_sync_makes_up_for_a_failed_one_unless_that_one_forgot(tmp_path, how, kept):
    with faulty_disk() as disk, contextlib.closing(connect(tmp_path / "db")) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("CREATE TABLE one AS SELECT 'old' AS text")
        connection.execute("CREATE TABLE two AS SELECT 'old' AS text")
        disk.fail(at=lambda operation: operation.name == "sync", how=how)
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            connection.execute("UPDATE one SET text = 'new'")
        connection.execute("UPDATE two SET text = 'new'")
        disk.power_cut()
        disk.heal()
        with contextlib.closing(connect(tmp_path / "db")) as after:
            assert after.execute("SELECT text FROM one UNION ALL SELECT text FROM two").fetchall() == [
                (kept,),
                ("new",),
            ]


@needs_faulty_disk
def test_a_connection_from_before_a_power_cut_is_dead_and_harms_nobody(tmp_path):
    with faulty_disk() as disk:
        old = connect(tmp_path / "db")
        live(old, [], end="WAL")
        disk.power_cut()
        with pytest.raises(sqlite3.OperationalError):
            connect(tmp_path / "db").execute("SELECT 1 FROM numbers")
        disk.heal()
        with contextlib.closing(connect(tmp_path / "db")) as new:
            new.execute(INSERT, (4,))
            with pytest.raises(sqlite3.OperationalError):
                old.execute(INSERT, (5,))
            old.close()
            new.execute(INSERT, (6,))
        assert held(tmp_path / "db") == [0, 1, 2, 3, 4, 6]


@needs_faulty_disk
def test_a_power_cut_concerns_only_the_files_that_count(tmp_path):
    with faulty_disk(only=lambda path: os.path.basename(path).startswith("db")) as disk:
        with contextlib.closing(connect(tmp_path / "other")) as other:
            live_and_close(tmp_path / "db", [], synchronous="OFF")
            live(other, [], synchronous="OFF")
            disk.power_cut()
            (tmp_path / "note").write_text("written")
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                os.unlink(tmp_path / "db")
            assert other.execute("SELECT count(*) FROM numbers").fetchone() == (4,)
        disk.heal()
        assert held(tmp_path / "db") == []
        assert held(tmp_path / "other") == [0, 1, 2, 3]


@needs_faulty_disk
def test_a_power_cut_is_refused_if_others_wrote_to_a_file_of_sqlite(tmp_path):
    with faulty_disk() as disk:
        live_and_close(tmp_path / "db", [])
        with open(tmp_path / "db", "ab") as file:
            file.write(b"more")
        with pytest.raises(RuntimeError, match="db was changed by others than SQLite"):
            disk.power_cut()


@needs_faulty_disk
@pytest.mark.parametrize("synced", [False, True], ids=["not synced", "synced"])
def test_a_power_cut_undoes_a_renaming_whose_directory_was_not_synced(tmp_path, synced):
    live_and_close(tmp_path / "db", [])
    with faulty_disk() as disk:
        with contextlib.closing(connect(tmp_path / "new")) as connection:
            live_in_rollback_mode(connection, [], "EXTRA")
        os.replace(tmp_path / "new", tmp_path / "db")
        if synced:
            folder = os.open(tmp_path, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        disk.power_cut(names="lost")
        disk.heal()
        assert held(tmp_path / "db") == ([0, 1, 2] if synced else [0, 1, 2, 3])
        assert (tmp_path / "new").exists() is not synced


KILLED = """
import sys
from tests.memory.faulty_disk import faulty_disk, kill
from tests.memory.test_faulty_disk import live_and_close
class Aloud(list):
    def append(self, number):
        print(number, flush=True)
with faulty_disk() as disk:
    disk.call(at=int(sys.argv[2]), function=kill, how=sys.argv[3])
    live_and_close(sys.argv[1], Aloud())
"""


@needs_faulty_disk
@pytest.mark.parametrize("how", ["before", "after", "torn"])
def test_a_process_can_be_killed_at_an_operation(tmp_path, how):
    operations = healthy_operations(tmp_path / "healthy.db")
    for at in range(5, len(operations), 24):
        path = tmp_path / f"{at}.db"
        command = [sys.executable, "-c", KILLED, str(path), str(at), how]
        killed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL
        acknowledged = [int(line) for line in killed.stdout.split()]
        assert held(path) in (acknowledged, [*acknowledged, len(acknowledged)])


@needs_faulty_disk
@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_threads_read_and_write_at_once(tmp_path, mode):
    path, seen, done = tmp_path / "db", [], threading.Event()
    with faulty_disk(CHANGES | READS) as disk:
        with contextlib.closing(connect(path)) as connection:
            connection.execute(f"PRAGMA journal_mode = {mode}")
            connection.execute(TABLE)

        def read() -> None:
            with contextlib.closing(connect(path)) as connection:
                while not done.is_set():
                    seen.append(connection.execute("SELECT count(*), max(number) FROM numbers").fetchone())

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        with contextlib.closing(connect(path)) as connection:
            for number in range(30):
                connection.execute(INSERT, (number,))
        done.set()
        for reader in readers:
            reader.join()
        assert held(path) == list(range(30))
        assert all(count == (0 if last is None else last + 1) for count, last in seen)
        assert not disk._files


@needs_faulty_disk
def test_an_error_in_a_function_is_an_io_error_to_sqlite_and_is_raised_at_the_end(tmp_path):
    def wrong() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"), faulty_disk() as disk:
        disk.call(at=1, function=wrong)
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            live_and_close(tmp_path / "db", [])


@needs_faulty_disk
@pytest.mark.parametrize("end", ["WAL", "DELETE"])
def test_a_python_error_while_rows_are_read_is_passed_on(tmp_path, end):
    def wrong(text: bytes) -> str:
        raise ValueError("wrong")

    with faulty_disk(), contextlib.closing(connect(tmp_path / "db")) as connection:
        live(connection, [], end=end)
        connection.text_factory = wrong
        with pytest.raises(ValueError, match="wrong"):
            connection.execute("SELECT 'text' FROM numbers").fetchall()


@needs_faulty_disk
def test_after_the_block_all_is_as_before(tmp_path):
    with faulty_disk() as disk:
        disk.fail(at=1, forever=True)
        connection = connect(tmp_path / "db")
    live(connection, [])
    connection.close()
    live_and_close(tmp_path / "other", [])
    assert disk.operations == [("open", "db")]


@needs_faulty_disk
def test_one_disk_at_a_time():
    with faulty_disk(), pytest.raises(RuntimeError, match="a faulty disk already"), faulty_disk():
        pass


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no kinds of operations: \\['sing'\\]"):
        Disk(frozenset({"sing"}))
    with failing_os() as disk:
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match="operation 0 is in the past: 1 operations so far"):
            disk.fail(at=0)
        with pytest.raises(ValueError, match="how = 'instead'"):
            disk.fail(at=1, how="instead")
        with pytest.raises(RuntimeError, match="what was synced"):
            disk.power_cut()


def save(folder: Path, text: str) -> None:
    """Replaces a file as one should: written aside, synced, renamed, and the directory synced."""
    descriptor = os.open(folder / "new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    Path(folder / "new").replace(folder / "file")
    if os.name == "posix":
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


@pytest.mark.parametrize("how", ["before", "after", "torn"])
def test_every_operation_of_python_code_fails_in_turn(tmp_path, how):
    for at in itertools.count():
        folder = tmp_path / str(at)
        folder.mkdir()
        save(folder, "old")
        with failing_os(at, how, only=lambda path: str(tmp_path) in path) as disk:
            expected = pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) if at < 6 else contextlib.nullcontext()
            with expected:
                save(folder, "newer")
        renamed = len(disk.operations) > 4 or (at == 3 and how == "after")
        assert (folder / "file").read_text() == ("newer" if renamed else "old")
        if at == 1:
            assert (folder / "new").read_text() == {"before": "", "after": "newer", "torn": "ne"}[how]
        if not disk.struck:
            break
    names = ["os.open", "os.write", "os.fsync", "os.replace", "os.open", "os.fsync"]
    assert [name for name, _ in disk.operations] == (names if os.name == "posix" else names[:4])


@pytest.mark.parametrize("how", ["before", "after"])
def test_the_methods_of_paths_fail_too(tmp_path, how):
    (tmp_path / "there").touch()
    calls = {
        "open to write": lambda: (tmp_path / "a").write_text("a"),
        "os.open": lambda: (tmp_path / "b").touch(),
        "os.mkdir": lambda: (tmp_path / "c").mkdir(),
        "os.rename": lambda: (tmp_path / "there").rename(tmp_path / "d"),
        "os.unlink": lambda: (tmp_path / ("d" if how == "after" else "there")).unlink(),
    }
    for name, call in calls.items():
        expected = pytest.raises(OSError, match=os.strerror(errno.EIO))
        with failing_os(at=0, how=how, error=errno.EIO) as disk, expected:
            call()
        assert [operation.name for operation in disk.struck] == [name]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == (["a", "b", "c"] if how == "after" else ["there"])


def test_pipes_are_no_files():
    with failing_os(at=0, forever=True) as disk:
        source, target = os.pipe()
        os.write(target, b"through")
        assert os.read(source, 7) == b"through"
        os.close(source)
        os.close(target)
    assert disk.operations == []


@needs_faulty_disk
def test_operations_of_sqlite_and_python_can_be_counted_in_one_sequence(tmp_path):
    with faulty_disk(CHANGES | PYTHON, only=lambda path: str(tmp_path) in path) as disk:
        with contextlib.closing(connect(tmp_path / "new")) as connection:
            live_in_rollback_mode(connection, [], "FULL")
        os.replace(tmp_path / "new", tmp_path / "db")
    assert disk.operations[0] == ("open", "new")
    assert disk.operations[-2:] == [("delete", "new-journal"), ("os.replace", "db")]
