"""`import sgm` is light."""

from __future__ import annotations

import json
import subprocess
import sys

PROBE = """
import sys, time, json
begin = time.process_time()
import numpy, scipy.sparse
before = set(sys.modules)
middle = time.process_time()
import sgm
print(json.dumps([middle - begin, time.process_time() - middle, sorted(set(sys.modules) - before)]))
"""
HEAVY = [
    "torch",
    "matplotlib",
    "networkx",
    "vizdoom",
    "mujoco",
    "gymnasium",
    "ray",
    "stable_baselines3",
    "numba",
    "usearch",
]
# What only some calls need, and what takes a while to import.
LATER = ["tqdm", "scipy.sparse.csgraph", "scipy.linalg", "scipy.spatial", "urllib.request", "ssl"]


def probe() -> tuple[float, float, list[str]]:
    """Processor seconds of NumPy and SciPy's sparse arrays, and of sgm, in a new process; the modules that sgm adds."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    needed, own, modules = json.loads(done.stdout)
    return needed, own, modules


def test_importing_sgm_costs_less_than_importing_numpy_and_scipy():
    # Processor time, and the best of a few, because other work on the machine only ever makes it slower. Compared with
    # what it needs anyway, in the same processes, it depends neither on the machine nor on the version of Python.
    found = [probe()[:2] for _ in range(5)]
    needed, own = min(needed for needed, _ in found), min(own for _, own in found)
    assert own < needed
    assert own < 0.3


def test_importing_sgm_imports_no_framework_no_plotting_and_no_simulator():
    _, _, modules = probe()
    assert "sgm.memory.memory" in modules
    assert [name for name in HEAVY + LATER if name in modules] == []
