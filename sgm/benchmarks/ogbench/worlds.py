"""Environments of OGBench's datasets: point mazes as array programs, all others from the ogbench package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.envs.ogbench.names import environment_of

from .settings import DATASETS, OGBenchSettings

LEAST_APART = 8  # cells, shortest path between start and goal of a random task
_REAL_ENVS = 10  # simulators in parallel, for environments other than point mazes


def is_point_maze(dataset: str) -> bool:
    """Whether a dataset belongs to a point maze."""
    return dataset in DATASETS


def maze_of(dataset: str) -> str:
    """Name of the maze of a point maze dataset."""
    return dataset.split("-")[1]


def make_env(dataset: str, number: int, steps: int | None = 1_000, starts: NDArray[Any] | None = None) -> Any:
    """Make the vector environment of a dataset, without autoreset."""
    if is_point_maze(dataset):
        from sgm.envs.ogbench.env import PointMazes

        return PointMazes(number, maze_of(dataset), max_episode_steps=steps, starts=starts)
    from sgm.envs.ogbench.package import make_vec

    return make_vec(environment_of(dataset), min(number, _REAL_ENVS))


def require_supported(dataset: str) -> None:
    """Raise InputError unless a name is a dataset of states and goals."""
    parts = dataset.split("-")
    if parts[0] == "visual" or {"singletask", "oraclerep"} & {*parts} or environment_of(dataset) == dataset:
        raise sgm.InputError(
            f"{dataset} is not supported: expected a dataset of OGBench with states and goals, such as "
            f"antmaze-giant-stitch-v0 or {DATASETS[0]}; no images (visual-…), single tasks or oracle goals"
        )


def random_cells(env: Any, number: int, seed: int) -> NDArray[np.int64]:
    """(number, 2, 2) start and goal cells, at least 8 cells apart along the path, without tasks and their reverses."""
    random, maze = np.random.default_rng(seed), env.maze
    tasks = {tuple(way.ravel().tolist()) for task in env.tasks for way in (task, task[::-1])}
    found: list[NDArray[np.int64]] = []
    while len(found) < number:
        both = maze.cells[random.integers(len(maze.cells), size=2)]
        if maze.steps_to[tuple(both[0].tolist())][tuple(both[1])] >= LEAST_APART:
            found += [both] if tuple(both.ravel().tolist()) not in tasks else []
    return np.array(found)


def check(settings: OGBenchSettings) -> None:
    """Raise an error if a dataset cannot be used, before any work is done."""
    for dataset in settings.datasets:
        if is_point_maze(dataset):
            continue
        require_supported(dataset)
        from sgm.data.ogbench import DOWNLOADED, URL

        folder = Path(os.path.expanduser(settings.dataset_dir or DOWNLOADED))
        if not (folder / f"{dataset}.npz").exists():
            raise sgm.InputError(
                f"{folder / dataset}.npz does not exist, and only point mazes can be generated: download it "
                f"from {URL}/{dataset}.npz and give its folder with --dataset-dir, or choose from {', '.join(DATASETS)}"
            )
        if settings.cleanup_steps or settings.tasks == "random" or "euclid" in settings.methods:
            raise sgm.InputError(
                f"{dataset} is not a point maze: cleanup, random tasks and the method euclid work only in point mazes; "
                "give --cleanup-steps 0, --tasks ogbench and other methods"
            )
