"""Tested as SQLite tests itself: every operation fails in turn, in the life of a memory that does everything.

These are samples. tests/torture/faults.py has the life and the checks; run as a program, it tries every position.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.memory.faulty_disk import available

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="forks and resource limits as POSIX has them")
NEEDS_FAULTY_DISK = pytest.mark.skipif(not available(), reason="ctypes cannot reach the SQLite that Python uses here")


def lives_with_faults(kind: str, stride: int, least: float = 0.9) -> dict[str, int]:
    """The figures of every so many-th fault, none of which may have done any harm; `least` of them must have struck.

    A process of its own forks without threads, and can be ended if it hangs.
    """
    command = [sys.executable, "-m", "tests.torture.faults", kind, "--stride", str(stride)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["lost"], figures["raw"], figures["wrong"], figures["hung"]) == (0, 0, 0, 0)
    assert figures["tried"] >= 15 and figures["struck"] >= least * figures["tried"]
    return figures


@pytest.mark.parametrize(
    ("kind", "stride"),
    [
        ("statements", 73),
        pytest.param("files", 89, marks=NEEDS_FAULTY_DISK),
        pytest.param("python", 31, marks=NEEDS_FAULTY_DISK),
    ],
)
def test_every_failing_operation_ends_well(kind, stride):
    """The call is not there, in RAM and file alike, and later calls work; or the memory says that it must be reopened.

    Statements and file operations of SQLite, and our own file operations, fail before or after they took effect, once
    or until the disk is healed. Statements are interrupted by Ctrl-C, too.
    """
    figures = lives_with_faults(kind, stride)
    assert figures["failed"] > figures["tried"] // 2  # the others struck where nobody has to be told


@NEEDS_FAULTY_DISK
def test_a_kill_at_any_file_operation_leaves_a_file_that_opens():
    """It holds what was acknowledged, and perhaps the call under way; so for open, close, save, backup and upgrade."""
    lives_with_faults("kills", 43)


def test_a_disk_that_is_full_at_any_size_loses_nothing_acknowledged():
    """Files cannot grow beyond a size, in steps of a page, until the disk has room again at the end."""
    assert lives_with_faults("limits", 6, least=0.5)["failed"] > 0


@NEEDS_FAULTY_DISK
def test_a_power_cut_with_full_syncs_loses_nothing_acknowledged():
    lives_with_faults("power cuts, full", 47)


@NEEDS_FAULTY_DISK
def test_a_power_cut_with_normal_syncs_leaves_what_an_earlier_call_left():
    """Never a mixture; and nothing is missing from before the file was opened or closed, nor from a saved file."""
    lives_with_faults("power cuts, normal", 43)
