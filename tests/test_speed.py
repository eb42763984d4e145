"""The benchmarks run, and check for themselves that the baseline yields the same results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "memory",
        "files",
        "scale",
        "planning",
        "d3pg",
        "navigation",
        "safety",
        "distances",
        "distributed",
        "verification",
    ],
)
def test_a_benchmark_runs_with_small_sizes_and_says_what_made_it(module, tmp_path):
    if module not in ("memory", "files", "scale", "planning"):
        pytest.importorskip("torch")
    if module in ("files", "scale") and not (Path(__file__).parents[1] / ".git").exists():
        pytest.skip("compares with another commit")
    if module in ("safety", "verification"):
        pytest.importorskip("mujoco")
    if module == "verification":
        pytest.importorskip("vizdoom")
    if module == "distances":
        pytest.importorskip("ogbench")
    command = [sys.executable, "-m", f"speed.{module}", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "bench.json").read_text())
    assert facts["command"].startswith(f"python -m speed.{module} --quick")
    assert all(rows for rows in facts["sections"].values())
    assert (tmp_path / "bench.md").read_text().count("|") > 10
