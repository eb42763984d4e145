"""Evidence is taken in exactly once, whoever dies: batches, files, workers that are killed, owners that are killed."""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import sgm
from sgm.distributed.messages import Batch
from sgm.distributed.owner import Owner, evidence_file, temporary_file, write_batches
from sgm.errors import MemoryWarning
from tests.distributed.world import (
    HOW,
    BlindDistance,
    JournalingCrew,
    agent,
    build,
    dying_env,
    journals,
    replayed,
    tries,
)

ROOT = Path(__file__).parents[2]
POSIX = pytest.mark.skipif(os.name != "posix", reason="kills processes as POSIX has them")


def batch(memory, sequence, worker="a" * 12 + "-0", number=5, seed=0):
    edges, dice = memory.edges(), np.random.default_rng([seed, sequence])
    chosen = dice.integers(len(edges.source), size=number)
    return Batch(worker, sequence, edges.source[chosen], edges.target[chosen], dice.random(number) < 0.5)


def take(memory, one):
    return memory._record_batch(one.worker, one.sequence, one.source, one.target, one.reached)


def known(memory):
    return memory.tried(), memory.records, memory._applied


def test_a_batch_counts_once_however_often_it_is_sent():
    memory, other = build(), build()
    for number in (1, 2, 3):
        one = batch(memory, number)
        assert take(memory, one) is not None and take(memory, one) is None
        other.record_many(one.source, one.target, one.reached)
    assert take(memory, batch(memory, 1)) is None
    assert memory.tried() == other.tried() and memory.records == other.records == 15
    with pytest.raises(sgm.InputError, match="one is missing"):
        take(memory, batch(memory, 5))


def test_tries_of_edges_that_are_gone_count_and_are_told():
    memory = build()
    u, v = (int(ends[0]) for ends in memory.edges()[:2])
    memory.remove(u, v)
    owner = Owner(memory)
    owner.take(Batch(owner.enlist(0), 1, np.array([u, u]), np.array([v, v]), np.array([False, True])))
    assert owner.counts.stale == owner.counts.records == 2 and memory.evidence(u, v).attempts == 2


def test_the_last_batch_of_a_worker_is_in_the_file_with_its_evidence(tmp_path):
    with build(tmp_path / "a.sgm") as memory:
        first, second = batch(memory, 1), batch(memory, 2)
        take(memory, first)
        take(memory, second)
    with build(tmp_path / "a.sgm") as memory:
        before = known(memory)
        assert memory._applied == {first.worker: 2} and take(memory, second) is None
        assert known(memory) == before
        take(memory, batch(memory, 3))
        memory.save(tmp_path / "b.sgm")
    assert sgm.SparseGraphicalMemory.load(tmp_path / "b.sgm", None)._applied == {first.worker: 3}


class Faulty(sqlite3.Connection):
    """Fails at one of its statements, before or after it took effect."""

    left, after = -1, False

    def _strike(self, call, *args):
        Faulty.left -= 1
        if Faulty.left == 0 and not Faulty.after:
            raise sqlite3.OperationalError("disk I/O error")
        result = call(*args)
        if Faulty.left == 0:
            raise sqlite3.OperationalError("disk I/O error")
        return result

    def execute(self, *args):
        return self._strike(super().execute, *args)

    def executemany(self, *args):
        return self._strike(super().executemany, *args)


@pytest.mark.parametrize("after", [False, True])
def test_evidence_and_its_number_are_written_together_or_not_at_all(tmp_path, monkeypatch, after):
    """Every statement of the transaction fails in turn; then the batch is sent again, as a worker would."""
    connect = sqlite3.connect

    def faulty(*args, factory=sqlite3.Connection, **how):
        return connect(*args, factory=type("FaultyToo", (Faulty, factory), {}), **how)

    monkeypatch.setattr(sqlite3, "connect", faulty)
    expected = build()
    one = batch(expected, 1)
    take(expected, one)
    for place in range(1, 9):
        Faulty.left = -1
        with build(tmp_path / f"{after}{place}.sgm") as memory:
            Faulty.left, Faulty.after = place, after
            with contextlib.suppress(sgm.StoreError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                take(memory, one)
            Faulty.left = -1
            assert (memory._applied.get(one.worker, 0) == 1) == (memory.records == 5)
            take(memory, one)
            assert known(memory) == known(expected)
        with build(tmp_path / f"{after}{place}.sgm") as memory:
            assert known(memory) == known(expected)


# -- what workers of a dead owner leave behind -------------------------------------------------------------------


def test_what_workers_left_behind_is_taken_in_once(tmp_path):
    path = tmp_path / "a.sgm"
    with build(path) as memory:
        name = Owner(memory).enlist(0)
        one, two, three = (batch(memory, number, name) for number in (1, 2, 3))
        take(memory, one)  # the owner dies before the worker knows that it has this
    write_batches(evidence_file(path, name), [one, two, three])
    with build(path) as memory:
        owner = Owner(memory)
        assert (owner.counts.left_behind, owner.counts.resent) == (2, 1) and memory.records == 15
        assert tries(memory) == [
            row for b in (one, two, three) for row in zip(b.source, b.target, b.reached, strict=True)
        ]
        owner.close()
    assert not list(tmp_path.glob("*evidence*"))
    with build(path) as memory:
        assert memory.records == 15 and not memory._applied


def test_what_a_worker_was_writing_when_it_was_killed_is_cleared_away(tmp_path):
    path = tmp_path / "a.sgm"
    with build(path) as memory:
        name = Owner(memory).enlist(0)
        half = temporary_file(evidence_file(path, name))
        half.write_bytes(b"PK\x03\x04 half of an archive")
        others = temporary_file(evidence_file(path, "b" * 12 + "-7"))
        others.touch()
        Owner(memory)
        assert not half.exists() and others.exists() and memory.records == 0


def test_files_of_others_and_damaged_ones_are_left_alone(tmp_path):
    path = tmp_path / "a.sgm"
    with build(path) as memory:
        name = Owner(memory).enlist(0)
        stranger = evidence_file(path, "b" * 12 + "-7")
        write_batches(stranger, [batch(memory, 1, "b" * 12 + "-7")])
        evidence_file(path, name).write_bytes(b"PK\x03\x04 no archive")
        with pytest.warns(MemoryWarning, match=r"is ignored") as warned:
            Owner(memory)
        assert len(warned) == 2 and stranger.exists() and memory.records == 0


# -- kills -------------------------------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize("order", ["rounds", "arrival"])
def test_killed_workers_lose_what_they_had_not_sent_and_are_replaced(tmp_path, order):
    tokens, notes = tmp_path / "tokens", tmp_path / "journals"
    tokens.mkdir()
    notes.mkdir()
    for number in range(2):
        (tokens / str(number)).touch()
    memory = build()
    env = functools.partial(dying_env, str(tokens), 0.05)
    with JournalingCrew(agent(memory), env, notes, workers=2, turns=4, seed=5, order=order, **HOW) as crew:
        report = crew.run(1500)
    assert report.steps == 1500 and report.died == 2 and not list(tokens.iterdir())
    assert_taken_in_order(memory, crew.taken, journals(notes))
    gone = replayed(memory)
    assert memory.tried() == gone.tried() and set(zip(*memory.removed()[:2], strict=True)) == set(
        zip(*gone.removed()[:2], strict=True)
    )


def assert_taken_in_order(memory, batches, written):
    """Each worker's tries are in the memory, once and in order; only the last of a dead one may be missing."""
    taken = collections.defaultdict(list)
    for one in batches:
        taken[one.worker] += zip(one.source.tolist(), one.target.tolist(), one.reached.tolist(), strict=True)
    for worker, rows in taken.items():
        assert written[worker][: len(rows)] == rows
    assert collections.Counter(tries(memory)) == sum(
        (collections.Counter(rows) for rows in taken.values()), collections.Counter()
    )


def counted(rows_of):
    """How often each try is among those of all workers."""
    return sum(map(collections.Counter, rows_of.values()), collections.Counter())


def alive(pid):
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes as Linux shows them")
def test_a_killed_owner_leaves_no_process_and_no_try_is_lost_or_counts_twice(tmp_path):
    """Owner after owner is killed at random moments; workers leave what it had not taken in to the next one."""
    for seed in range(2):
        command = [sys.executable, "-m", "tests.distributed.run_owner", str(tmp_path), "1000000", str(seed)]
        owner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert owner.stdout is not None and owner.stdout.readline() == "begun\n"
        wait_until(lambda n=seed: len([rows for rows in journals(tmp_path).values() if len(rows) > 20]) >= 2 * n + 2)
        time.sleep(random.random())
        owner.kill()
        owner.wait()
        owner.stdout.close()
        wait_until(lambda: not any(alive(int(path.stem)) for path in tmp_path.glob("*.pid")))
    with build(tmp_path / "memory.sgm") as memory:
        left = Owner(memory)
        left.close()
        written = counted(journals(tmp_path))
        assert collections.Counter(tries(memory)) == written
        assert memory.tried() == replayed(memory).tried()
    assert not list(tmp_path.glob("*evidence*"))
    check = sgm.SparseGraphicalMemory.load(tmp_path / "memory.sgm", BlindDistance())
    assert check.records == sum(written.values())


def wait_until(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


@POSIX
def test_ctrl_c_keeps_what_was_done(tmp_path):
    command = [sys.executable, "-m", "tests.distributed.run_owner", str(tmp_path), "1000000", "0"]
    owner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len([rows for rows in journals(tmp_path).values() if len(rows) > 20]) == 2)
    owner.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in owner.communicate(timeout=240)[1]
    assert not any(alive(int(path.stem)) for path in tmp_path.glob("*.pid"))
    with build(tmp_path / "memory.sgm") as memory:
        written = journals(tmp_path)
        assert not memory._applied and memory.records == sum(map(len, written.values())) > 40
