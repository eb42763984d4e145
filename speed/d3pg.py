"""Speed of D3PG training and of distance tables: each is a ratio to a plain version of the same computation.

python -m speed.d3pg --out results/d3pg
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sgm.controllers.d3pg import D3PG, D3PGConfig, Replay, one_thread, train
from sgm.controllers.d3pg_reference import ReferenceD3PG
from sgm.distances.sorb import DistributionalDistance
from sgm.envs.point.env import PointMazeVectorEnv
from sgm.navigation.rollout import Stream
from speed.report import Report, seconds

CLAIMS = "On one thread, against a plain implementation"
TRAINING = "Training, with collection"


def compare(plain: Callable[[], Any], ours: Callable[[], Any], turns: int) -> tuple[float, float]:
    """Median seconds of each, measured in turn, so that other load on the machine affects both."""
    plain(), ours()
    times = np.array([(seconds(plain), seconds(ours)) for _ in range(turns)])
    first, second = np.median(times, axis=0)
    return float(first), float(second)


def bench_update(report: Report, turns: int) -> None:
    """Measure an iteration of training: three critics in a loop against three stacked critics."""
    learner = D3PG(2, 2, D3PGConfig())
    config, plain = learner.config, ReferenceD3PG(learner)
    replay, generator = some_experience(learner), torch.Generator().manual_seed(0)

    def sample() -> Tensor:
        rows = replay.sample(config.target_period * config.batch_size, generator)
        return rows.unflatten(0, (config.target_period, config.batch_size))

    def loop() -> None:
        for _ in range(0, 100, config.target_period):
            for batch in sample():
                plain.update(batch)

    def stacked() -> None:
        for _ in range(0, 100, config.target_period):
            learner.update(sample())

    first, second = compare(loop, stacked, turns)
    report.ratio(CLAIMS, "one iteration of training", first / 100, second / 100, 2)


def some_experience(learner: D3PG, count: int = 5_000) -> Replay:
    """Make transitions of a point that moves at random; the time of an update does not depend on them."""
    random = np.random.default_rng(0)
    observations, goals = random.random((2, count, 2))
    actions = random.uniform(-1, 1, (count, 2))
    reached = random.random(count) < 0.1
    replay = Replay(count, learner.transitions.width)
    replay.add(learner.transitions.pack(observations, goals, actions, observations + actions / 50, reached))
    return replay


def bench_training(report: Report, iterations: int) -> D3PG:
    """Measure the whole training: with collection, replay and progress, without imports."""
    env = PointMazeVectorEnv(20, max_episode_steps=20)
    took = -time.perf_counter()
    learner = train(Stream(env), D3PGConfig(iterations=iterations), progress=False)
    took += time.perf_counter()
    report.add(TRAINING, iterations=iterations, seconds=took, iterations_per_second=iterations / took)
    return learner


def bench_table(report: Report, distance: DistributionalDistance, count: int, turns: int) -> None:
    """Measure a table of distances: every pair evaluated by the networks against tiles."""
    points = PointMazeVectorEnv(count).reset(seed=0, options={"uniform": True})[0]["observation"]
    rows, columns = np.divmod(np.arange(count**2), count)
    first, second = compare(
        lambda: distance.pairs(points[rows], points[columns]), lambda: distance(points, points), turns
    )
    report.ratio(CLAIMS, f"{count} × {count} distances, against pair by pair", first, second, 2)


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    parser.add_argument(
        "--weights", type=Path, help="trained networks for the table (default: those of a short training)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to test that it runs; the claims do not apply"
    )
    options = parser.parse_args()
    report = Report("speed.d3pg")
    small = options.quick
    with one_thread():
        learner = bench_training(report, 100 if small else 3000)
        bench_update(report, 2 if small else 11)
        distance = DistributionalDistance.load(options.weights) if options.weights else learner.distance()
        bench_table(report, distance, 100 if small else 1000, 1 if small else 5)
    if options.out:
        report.write(options.out)


if __name__ == "__main__":
    main()
