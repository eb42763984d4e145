"""The short form of `make torture`: kills, damaged files, readers and many calls, and the figures that have to be 0."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.memory import faulty_disk

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="forks, limits and figures of processes as Linux has them"
)


def run_apart(part: str, **sizes: int) -> dict[str, Any]:
    """The figures of a part, run in a process without threads; those promised to be 0 are."""
    script = f"import json; from tests.torture import {part}; print(json.dumps([{part}.ZEROS, {part}.run(**{sizes})]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    zeros, figures = json.loads(done.stdout)
    assert [(name, figures[name]) for name in zeros if figures[name]] == [], figures["violations"]
    return figures


@pytest.mark.skipif(not faulty_disk.available(), reason="Python uses a SQLite whose functions ctypes cannot reach")
def test_a_writer_killed_in_any_call_leaves_what_it_acknowledged():
    figures = run_apart("kills", kills=16)
    assert figures["kills"] == 16 and figures["reader_loads"] > 0
    assert sum(figures["under_way"].values()) == 16


def test_mutated_files_are_refused_or_harmless():
    figures = run_apart("mutations", files=400)
    assert figures["files"] == 400
    assert min(figures[outcome] for outcome in ("refused", "harmless", "prefix", "forged_but_valid")) > 0


def test_readers_and_a_writer_never_see_anything_between_two_calls():
    figures = run_apart("readers", readers=3, calls=40)
    assert figures["calls"] >= 40 and figures["loads"] > 0


def test_many_calls_leave_a_file_that_is_equal_to_the_memory():
    figures = run_apart("endurance", records=3000, adds=300)
    assert figures["nodes"] > 1000 and figures["events_kept"] == 3000
