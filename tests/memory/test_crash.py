"""A writer killed at any moment loses nothing that it acknowledged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np

import sgm
from tests.conftest import plane
from tests.memory.test_store import same

KILLS = 50
CALLS = 4000
SETTINGS = {"tau_p": 1.0, "tau_a": 2.0, "max_dist": 5.0, "k": 4, "policy": "second-failure"}

WRITER = """
import sys
import numpy as np
from tests.memory.test_crash import open_memory, perform, CALLS
memory = open_memory(sys.argv[1])
first = int(sys.argv[2])
print("ready", flush=True)
for call in range(first, CALLS):
    perform(memory, call)
    sys.stdout.write(f"{call}\\n")
    sys.stdout.flush()
"""


def open_memory(path) -> sgm.SparseGraphicalMemory:
    points, table = plane(600, side=40)
    return sgm.SparseGraphicalMemory.open(path, sgm.TableDistance(table), lambda rows: points[rows], **SETTINGS)


def fresh_memory() -> sgm.SparseGraphicalMemory:
    points, table = plane(600, side=40)
    return sgm.SparseGraphicalMemory(sgm.TableDistance(table), lambda rows: points[rows], **SETTINGS)


def perform(memory: sgm.SparseGraphicalMemory, call: int) -> None:
    """The call with this number: which one, and with what, follows from the number and the memory alone."""
    random = np.random.default_rng(call)
    kind = random.integers(10)
    if kind == 0 or not len(memory):
        memory.extend(random.integers(0, 600, 12), episode=call)
    elif kind == 1:
        memory.add(int(random.integers(600)))
    elif kind == 2 and len(memory.edges().source):
        with memory.group():
            pick(memory, random)
            pick(memory, random)
    else:
        pick(memory, random)


def pick(memory: sgm.SparseGraphicalMemory, random: np.random.Generator) -> None:
    edges = memory.edges(filtered=False)
    if len(edges.source):
        number = random.integers(len(edges.source))
        memory.record(edges.source[number], edges.target[number], bool(random.random() < 0.6))


def test_nothing_acknowledged_is_lost_by_killing_the_writer(tmp_path):
    path = tmp_path / "live.sgm"
    random = np.random.default_rng(0)
    mirror = fresh_memory()
    done, kills_while_writing = 0, 0
    for _ in range(KILLS):
        command = [sys.executable, "-c", WRITER, str(path), str(done)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            time.sleep(random.uniform(0, 0.05))
            os.kill(writer.pid, signal.SIGKILL)
            lines = [line for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        acknowledged = int(lines[-1]) + 1 if lines else done
        kills_while_writing += acknowledged > done
        for call in range(done, acknowledged):
            perform(mirror, call)
        reopened = open_memory(path)
        if not same(reopened, mirror):
            # The call that was under way when the signal came may have been written; nothing else may differ.
            perform(mirror, acknowledged)
            acknowledged += 1
            assert same(reopened, mirror)
        reopened.close()
        done = acknowledged
    assert kills_while_writing > KILLS // 2
    assert len(mirror) > 50 and mirror.records > 50


def test_a_file_left_by_a_killed_writer_can_be_read_and_replaced(tmp_path):
    path = tmp_path / "live.sgm"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "0"], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(20):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
    _, table = plane(600, side=40)
    left = sgm.SparseGraphicalMemory.load(path, sgm.TableDistance(table))
    assert len(left.assignment) > 0
    other = fresh_memory()
    other.extend(np.arange(40))
    other.save(path)
    assert same(sgm.SparseGraphicalMemory.load(path, sgm.TableDistance(table)), other)
