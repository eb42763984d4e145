"""A writer killed at any moment loses nothing that it acknowledged.

The moments are drawn in acknowledged calls, not in seconds. Kills inside a call are in test_torture.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.memory.test_store import same
from tests.torture.figures import Child, Memory, Say, Script, scratch

pytestmark = pytest.mark.skipif(os.name != "posix", reason="forks and SIGKILL as POSIX has them")
KILLS = 25
MOST_CALLS = 20  # between two kills
# Without saves, backups and closes: these are killed in test_torture.py.
SCRIPT = Script(seed=0, shares=(0.2, 0.6, 0.15, 0.05, 0, 0, 0))


def write(path: Path, first: int, say: Say) -> None:
    """Make calls, and acknowledge each, until killed."""
    memory = SCRIPT.open(path)
    for call in range(first, sys.maxsize):
        SCRIPT.perform(memory, call)
        say(str(call))


def kill_writer(path: Path, first: int, calls: int) -> int:
    """Kill a writer as soon as it has acknowledged so many calls; the number of the next call after those it made."""
    writer = Child(lambda say: write(path, first, say))
    heard = [writer.hear() for _ in range(calls)]
    writer.kill()
    heard += writer.end()
    assert heard == [str(call) for call in range(first, first + len(heard))]
    return first + len(heard)


def on_new_file(function: Callable[[Path], None]) -> None:
    """Call a function with the name of a file that does not exist yet."""
    with scratch() as folder:
        function(folder / "live.sgm")


def run_apart(function: str) -> None:
    """Run a function of this module in a process without threads, from which writers can be forked."""
    command = f"from tests.memory import test_crash as t; t.on_new_file(t.{function})"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_acknowledged_is_lost_by_killing_the_writer():
    run_apart("kill_many_writers")


def kill_many_writers(path: Path) -> None:
    """Kill writers of one file one after the other, and compare what is left with a memory without a file."""
    random, mirror, done = np.random.default_rng(0), SCRIPT.new(), 0
    for _ in range(KILLS):
        acknowledged = kill_writer(path, done, int(random.integers(1, MOST_CALLS)))
        for call in range(done, acknowledged):
            SCRIPT.perform(mirror, call)
        with SCRIPT.open(path) as left:
            if not same(left, mirror):
                # The call that was under way when the signal came may have been written; nothing else may differ.
                SCRIPT.perform(mirror, acknowledged)
                acknowledged += 1
            assert same(left, mirror)
        done = acknowledged
    assert done >= KILLS and len(mirror) > 50 and mirror.records > 50
    assert os.listdir(path.parent) == [path.name]


def test_a_file_left_by_a_killed_writer_can_be_read_and_replaced():
    run_apart("replace_what_a_killed_writer_left")


def replace_what_a_killed_writer_left(path: Path) -> None:
    """Load the file of a killed writer, and save another memory in its place."""
    acknowledged = kill_writer(path, 0, 20)
    mirror, other = SCRIPT.new(), SCRIPT.new()
    for call in range(acknowledged):
        SCRIPT.perform(mirror, call)
    left = SCRIPT.load(path)
    if not same(left, mirror):
        SCRIPT.perform(mirror, acknowledged)
    assert same(left, mirror) and len(left.assignment) > 0
    other.extend(np.arange(40))
    other.save(path)
    assert same(Memory.load(path, other.distance), other)
    assert os.listdir(path.parent) == [path.name]
