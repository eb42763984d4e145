"""Speed of the SafetyGym benchmark: cleanup with one robot, with one process and one per core; rendering; physics.

python -m speed.safety --out results/safety-speed
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from sgm.benchmarks.base import Piece
from sgm.benchmarks.engine import one_thread
from sgm.benchmarks.safety.benchmark import BENCHMARK, CLEANUP_EPISODE
from sgm.benchmarks.safety.settings import QUICK, SafetySettings
from sgm.navigation import Cleaner
from speed.report import Report


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    parser.add_argument("--robots", type=int, default=128, help="robots at once (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few steps, to test that it runs")
    options = parser.parse_args()
    report = Report("speed.safety")
    cores = len(os.sched_getaffinity(0))
    small = ("rollouts", "rollout_steps", "candidates", "nodes")
    explored = {name: QUICK[name] for name in small} if options.quick else {"rollouts": 12}
    many = 1_000 if options.quick else 100_000
    rates: dict[tuple[int, int], float] = {}
    plans = ((1, 1, many // 50), (options.robots, 1, many // 2), (options.robots, cores, many))
    with tempfile.TemporaryDirectory() as folder:
        settings = SafetySettings(pretrained=True, **explored)
        for robots, workers, steps in plans:
            chosen = dataclasses.replace(settings, robots=robots, simulators=workers)
            piece = Piece(BENCHMARK, chosen, {"layout": 0, "seed": 0}, Path(folder), progress=False)
            piece.folder.mkdir(parents=True, exist_ok=True)
            built = Path(folder) / "built.sgm"
            if (robots, workers) == (1, 1):
                _networks(report, piece)
                piece.build("both").save(built)
            navigator = piece.make_agent("both", piece.load(built), clean=True)
            piece.env.max_episode_steps = None
            cleaner = Cleaner(navigator, piece.env, seed=2, options={"goals": None}, episode_steps=CLEANUP_EPISODE)
            with one_thread():
                cleaner.run(5 * robots)
                result = cleaner.run(steps)
            rate = rates[robots, workers] = result.steps / result.seconds
            holds = "" if (robots, workers) != (options.robots, cores) else ("yes" if rate >= 5_000 else "NO")
            report.add(
                "Cleanup",
                robots=robots,
                processes=workers,
                steps=result.steps,
                steps_per_second=rate,
                ratio=rate / rates[1, 1],
                at_least_5000=holds,
            )
            if holds:
                _simulator(report, piece, 20 if options.quick else 200)
            piece.close()
    if options.out:
        report.write(options.out)


def _networks(report: Report, piece: Piece) -> None:
    """Measure embedding and comparing the observations of a memory."""
    frames, distance = piece.buffer["frames"], piece.networks.distance
    begin = time.perf_counter()
    embeddings = distance.embed(frames)
    middle = time.perf_counter()
    distance(embeddings, embeddings)
    end = time.perf_counter()
    report.add("Distance", images=len(frames), embedded_per_second=len(frames) / (middle - begin), table_s=end - middle)


def _simulator(report: Report, piece: Piece, steps: int) -> None:
    """Measure the simulator alone."""
    env, number = piece.env, piece.env.num_envs
    env.reset(seed=3, options={"goals": None})
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, number, 2))
    begin = time.perf_counter()
    for action in actions:
        env.step(action)
    middle = time.perf_counter()
    for _ in range(max(1, steps // 10)):
        env.look(np.arange(number))
    end = time.perf_counter()
    images = number * max(1, steps // 10)
    report.add(
        "Simulator alone",
        robots=number,
        steps_per_second=number * steps / (middle - begin),
        images_per_second=images / (end - middle),
    )


if __name__ == "__main__":
    main()
