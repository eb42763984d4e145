"""Effect of the waypoint test over neighbours, and of compiled single pairs, on success in PointEnv, on the same tasks.

python -m speed.waypoints --weights seed0.safetensors seed1.safetensors seed2.safetensors --out results/waypoints

Networks are those of `sgm run point`, one file for each seed; without weights, seed 0 is trained first.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sgm
from sgm.benchmarks.point.benchmark import EPISODE_STEPS
from sgm.controllers.d3pg import Actor
from sgm.distances.sorb import DistributionalDistance, GoalNetworks
from sgm.envs.point.env import PointMazeVectorEnv
from sgm.navigation import agents
from speed.navigation import UNIFORM, buffer, trained
from speed.report import Report

TASKS = {"difficulty": 0.95}  # the most difficult starts and goals of `sgm run point`
SETTINGS: dict[str, Any] = {"tau_a": 5.0, "tau_p": 0.05, "max_dist": 10.0, "k": 5, "policy": "first-failure"}
MODES = ("all", "neighbours")


def maze(number: int, steps: int | None = None) -> PointMazeVectorEnv:
    """Make `number` mazes."""
    return PointMazeVectorEnv(number, autoreset_mode="Disabled", max_episode_steps=steps)


def evaluated(
    memory: Any, actor: Actor, over: str, episodes: int, at_once: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Evaluate an agent: success and number of steps of each episode, and CPU seconds."""
    env, begin = maze(at_once, EPISODE_STEPS), time.process_time()
    found = sgm.evaluate(agents.sgm(memory, actor, over=over), env, episodes, seed=10_000, options=TASKS)
    return np.asarray(found.successes), np.asarray(found.steps), time.process_time() - begin


def difference(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Mean difference of success on the same tasks, and half of its 95 % interval, percentage points."""
    gaps = 100.0 * (ours.astype(float) - theirs.astype(float))
    return float(gaps.mean()), float(1.96 * gaps.std(ddof=1) / np.sqrt(len(gaps)))


def one_seed(report: Report, seed: int, networks: GoalNetworks, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Measure one seed; return the successes of each mode after cleanup."""
    distance, actor, after = DistributionalDistance(networks, compiled=False), Actor(networks, compiled=False), {}
    for over in MODES:
        memory = sgm.SparseGraphicalMemory(distance, **SETTINGS)
        memory.extend(buffer(options.observations, seed=seed + 1))
        before, _, _ = evaluated(memory, actor, over, options.episodes, options.episodes)
        begin, edges = time.process_time(), len(memory.edges().source)
        cleaning = agents.sgm(memory, actor, over=over, clean=True)
        sgm.navigation.cleanup(cleaning, maze(50), options.steps, seed=seed, options=UNIFORM, progress=False)
        seconds = time.process_time() - begin
        after[over], _, _ = evaluated(memory, actor, over, options.episodes, options.episodes)
        report.add(
            "Success before and after cleanup, by the nodes that the waypoint test asks",
            seed=seed,
            over=over,
            nodes=len(memory),
            edges=edges,
            removed=len(memory.removed().source),
            before_percent=100 * float(before.mean()),
            after_percent=100 * float(after[over].mean()),
            cleanup_cpu_s=seconds,
        )
        if over == "all":
            _compiled(report, seed, memory, networks, options)
    return after


def _compiled(report: Report, seed: int, memory: Any, networks: GoalNetworks, options: argparse.Namespace) -> None:
    """Compare torch and compiled single pairs, one robot at a time on the cleaned memory."""
    found = []
    for compiled in (False, True):
        memory._distance = DistributionalDistance(networks, compiled=compiled)
        actor = Actor(networks, compiled=compiled)
        found.append(evaluated(memory, actor, "all", options.single, 1))
    memory._distance = DistributionalDistance(networks, compiled=False)
    (torch_success, torch_steps, torch_seconds), (success, steps, seconds) = found
    report.add(
        "One robot: compiled single pairs against torch, the same memory and tasks",
        seed=seed,
        episodes=options.single,
        torch_percent=100 * float(torch_success.mean()),
        compiled_percent=100 * float(success.mean()),
        same_outcome=int((success == torch_success).sum()),
        same_steps=int((steps == torch_steps).sum()),
        torch_cpu_s=torch_seconds,
        compiled_cpu_s=seconds,
    )


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, nargs="*", help="weights of `sgm run point`, a file for each seed")
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    parser.add_argument("--steps", type=int, default=20_000, help="cleanup steps (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=200, help="episodes of each evaluation (default: %(default)s)")
    parser.add_argument("--single", type=int, default=100, help="episodes of one robot (default: %(default)s)")
    parser.add_argument("--observations", type=int, default=5_000, help="size of the buffer (default: %(default)s)")
    options = parser.parse_args()
    report = Report("speed.waypoints")
    torch.set_num_threads(1)
    seeds = [GoalNetworks.load(path) for path in options.weights] if options.weights else [trained(30_000)]
    every = [one_seed(report, seed, networks, options) for seed, networks in enumerate(seeds)]
    ours, theirs = (np.concatenate([found[over] for found in every]) for over in ("neighbours", "all"))
    mean, half = difference(ours, theirs)
    report.add(
        "Neighbours against all nodes after cleanup, paired over the same tasks",
        episodes=len(ours),
        all_percent=100 * float(theirs.mean()),
        neighbours_percent=100 * float(ours.mean()),
        difference=mean,
        half_interval_95=half,
    )
    if options.out:
        report.write(options.out)


if __name__ == "__main__":
    main()
