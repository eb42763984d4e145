"""Progress bars never wait for another process."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "sgm"

# From here on, whoever takes tqdm's own lock waits for ever: the process that holds it was killed.
KILLED = """
import os, signal
import tqdm

tqdm.tqdm(disable=True)
if not os.fork():
    tqdm.tqdm.get_lock().acquire()
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
"""
NAVIGATION = """
import numpy as np
import sgm
from sgm.envs.point.env import PointMazeVectorEnv
from sgm.navigation import Cleaner, Navigator, PolicyAgent, evaluate

class Straight:
    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        return 20 * np.linalg.norm(starts[:, None] - goals, axis=-1).astype(np.float32)

def env(steps):
    return PointMazeVectorEnv(3, autoreset_mode="Disabled", max_episode_steps=steps)

def towards(observations, goals):
    return np.clip(goals - observations, -1, 1).astype(np.float32)

options = {"uniform": True}
memory = sgm.SparseGraphicalMemory(Straight(), max_dist=9.0)
"""
TRAINING = """
import torch
from sgm.controllers.d3pg import D3PGConfig, train
from sgm.learning.loop import train_network
from sgm.envs.point.env import PointMazeVectorEnv
from sgm.navigation.rollout import Stream

env = PointMazeVectorEnv(20, max_episode_steps=20)
network = torch.nn.Linear(1, 1)
"""
USES = {
    "build": (NAVIGATION, "memory.extend(np.random.default_rng(0).random((40, 2)), progress={shown})"),
    "evaluate": (NAVIGATION, "evaluate(PolicyAgent(towards), env(5), seed=0, options=options, progress={shown})"),
    "clean up": (
        NAVIGATION + "memory.extend(np.random.default_rng(0).random((40, 2)))",
        "Cleaner(Navigator(memory, towards, clean=True), env(None), seed=[0], options=options).run(30, {shown})",
    ),
    "train": (
        TRAINING,
        "train_network(network, lambda _: network(torch.ones(1, 1)).sum(), 5, seed=0, progress={shown})",
    ),
    "20/20": (TRAINING, "train(Stream(env), D3PGConfig(iterations=20), seed=0, progress={shown})"),
}


def imports(path):
    """The modules that a file imports, at any place."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def test_only_one_module_imports_tqdm():
    using = [path for path in PACKAGE.rglob("*.py") if any(name.split(".")[0] == "tqdm" for name in imports(path))]
    assert [path.relative_to(PACKAGE).as_posix() for path in using] == ["progress.py"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only forked processes share tqdm's lock")
@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("use", USES)
def test_a_process_killed_with_the_lock_of_tqdm_stops_nothing_of_ours(use, shown):
    prepared, used = USES[use]
    if prepared == TRAINING:
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", prepared + KILLED + used.format(shown=shown)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,  # far more than it takes: without the bar's own lock it would never end
    )
    assert done.returncode == 0, done.stderr
    assert (use in done.stderr) == shown
