"""Cleanup of a run by several workers: robots are divided among them, and stages go on as they do in one process."""

from __future__ import annotations

import dataclasses
import functools
import warnings

import pytest

import sgm
from sgm.benchmarks import BENCHMARKS, load
from sgm.benchmarks.base import Piece
from sgm.benchmarks.engine import _Cleaning
from sgm.benchmarks.workers import shared, worker_env
from tests.distributed.world import BlindDistance, StraightOn, observations, tries

BLIND = {"tau_p": 0.05, "tau_a": 2.5, "max_dist": 5.0, "k": 8, "policy": "first-failure"}


def piece(tmp_path, workers, **settings):
    benchmark = load("point")
    chosen = benchmark.settings(agents=6, workers=workers, backend="in-process", **settings)
    made = Piece(benchmark, chosen, {"seed": 0}, tmp_path, progress=False)
    made.networks = (BlindDistance(), StraightOn())
    return made


def cleaned(tmp_path, workers, stages):
    memory = sgm.SparseGraphicalMemory(BlindDistance(), **BLIND)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory.extend(observations(100))
    cleaning = _Cleaning(piece(tmp_path, workers), "sorb+sgm", memory, 0)
    for steps in stages:
        cleaning.until(steps)
    assert (cleaning.crew is not None) == (workers > 1) and cleaning.done == stages[-1]
    cleaning.close()
    return tries(memory)


def test_stages_of_cleanup_by_workers_repeat(tmp_path):
    first, second = (cleaned(tmp_path, 2, (120, 300)) for _ in range(2))
    assert first == second and first != cleaned(tmp_path, 1, (120, 300))


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_divides_its_robots(name):
    benchmark = load(name)
    settings = benchmark.settings(workers=3)
    robots = getattr(settings, benchmark.robots)
    assert getattr(shared(benchmark, settings), benchmark.robots) == -(-robots // 3)
    assert {"workers", "backend"} <= {field.name for field in dataclasses.fields(benchmark.settings)}
    assert "backend" in benchmark.free_settings and "workers" not in benchmark.free_settings


def test_simulators_are_divided_too_and_are_no_workers():
    benchmark = load("safety")
    settings = benchmark.settings(workers=2, simulators=4, robots=10)
    each = shared(benchmark, settings)
    assert (each.simulators, each.robots, settings.workers) == (2, 5, 2)
    assert shared(benchmark, dataclasses.replace(settings, simulators=1)).simulators == 1


def test_a_worker_makes_the_environment_of_the_piece(tmp_path):
    env = worker_env(piece(tmp_path, 4))
    assert isinstance(env, functools.partial)
    made = env()
    assert made.num_envs == 2 and made.max_episode_steps is None
