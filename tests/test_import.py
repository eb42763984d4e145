"""`import sgm` is light."""

from __future__ import annotations

import json
import subprocess
import sys

PROBE = """
import sys, time, json
import numpy, scipy.sparse
start = time.process_time()
import sgm
print(json.dumps([time.process_time() - start, sorted(sys.modules)]))
"""
HEAVY = ["torch", "matplotlib", "networkx", "vizdoom", "mujoco", "gymnasium", "ray", "stable_baselines3", "numba"]


def probe() -> tuple[float, list[str]]:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    seconds, modules = json.loads(done.stdout)
    return seconds, modules


def test_importing_sgm_costs_little_more_than_numpy_and_scipy():
    # Processor time, and the best of a few, because other work on the machine only ever makes it slower.
    assert min(probe()[0] for _ in range(5)) < 0.3


def test_importing_sgm_imports_no_framework_no_plotting_and_no_simulator():
    _, modules = probe()
    assert "sgm.memory.memory" in modules
    assert [name for name in HEAVY if name in modules] == []
