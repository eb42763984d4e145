"""The options of `sgm fit`, `sgm evaluate`, `sgm cleanup` and `sgm plan`, each with its help."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import sgm
from sgm.benchmarks.options import EVALUATION, MEMORY, RUN, TRAINING, check_values, count, option
from sgm.distributed.backends import BACKENDS

DISTANCES = ("auto", "regression", "quasimetric", "contrastive", "closeness")
_ENV_ARG = "arguments of the environment, NAME=VALUE each, such as continuing_task=false max_episode_steps=400"
_BACKEND = "where several workers run"
_ENV = "environment: a Gymnasium id (PointMaze_Large-v3 or module:ID), or ogbench:NAME"


@dataclasses.dataclass(frozen=True)
class FitSettings:
    """Settings of `sgm fit`."""

    seed: int = option(0, "seed of all random numbers", least=0, metavar="N")
    steps: int = count(40_000, "gym: environment steps to collect, with random actions", RUN)
    hold: int | None = count(
        None, "gym: steps for which a random action is held (default: 10 for continuous actions, 1 otherwise)", RUN
    )
    episode_steps: int = count(200, "gym: start a new episode after N steps", RUN)
    envs: int = count(20, "gym: number of environments stepped at once", RUN)
    env_arg: tuple[str, ...] = option((), "gym: " + _ENV_ARG, metavar="NAME=VALUE")
    workers: int = count(
        1, "gym: workers that collect, 20,000 steps each at a time; the result does not depend on their number", RUN
    )
    backend: str = option("multiprocessing", "gym: " + _BACKEND, choices=BACKENDS)
    key: str = option("observation", "gym, minari: the entry of Dict observations to learn from", metavar="NAME")
    position_key: str | None = option(
        None, "gym, minari: the entry of Dict observations that is the true position, for figures only", metavar="NAME"
    )
    download: bool = option(False, "minari: fetch a dataset that is not on this machine")
    dataset_dir: str | None = option(
        None, "ogbench: folder of the official files (default: where the ogbench package puts them)", metavar="FOLDER"
    )
    size: int | None = count(None, "images: resize to N × N pixels (default: original size)", RUN)
    every: int = count(1, "images: keep every N-th image", RUN)
    distance: str = option("auto", "distance to learn; auto is regression", TRAINING, choices=DISTANCES)
    iterations: int | None = count(
        None, "updates of each network (default: those of the distance and controller)", TRAINING
    )
    controller: bool = option(True, "also learn a controller, if the source has actions", TRAINING)
    device: str = option("auto", "where to train: auto, cpu, cuda, cuda:1, mps", TRAINING, metavar="DEVICE")
    nodes: int | None = count(None, "nodes of the memory, at most about N (default: sgm.choose decides)", MEMORY)

    def __post_init__(self) -> None:
        """Raise InputError for invalid values."""
        check_values(self)


@dataclasses.dataclass(frozen=True)
class EvaluateSettings:
    """Settings of `sgm evaluate`."""

    env: str = option("", _ENV, metavar="ID")
    env_arg: tuple[str, ...] = option((), _ENV_ARG, metavar="NAME=VALUE")
    episodes: int = count(200, "episodes of the agent, and of the controller alone", EVALUATION)
    max_steps: int | None = count(None, "end episodes after N steps (default: when the environment does)", EVALUATION)
    envs: int = count(20, "number of environments stepped at once", EVALUATION)
    seed: int = option(0, "seed of starts and goals; episode i has seed + i", EVALUATION, least=0, metavar="N")
    controller: bool = option(True, "also evaluate the controller alone", EVALUATION)
    goal_from: str | None = option(
        None,
        "the entry of Dict observations, or of the info of reset, that is the goal (default: desired_goal, "
        "otherwise info['goal'])",
        EVALUATION,
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        """Raise InputError for invalid values."""
        check_values(self)
        require_env(self.env)


@dataclasses.dataclass(frozen=True)
class CleanupSettings:
    """Settings of `sgm cleanup`."""

    env: str = option("", _ENV, metavar="ID")
    env_arg: tuple[str, ...] = option((), _ENV_ARG, metavar="NAME=VALUE")
    steps: int = count(50_000, "total number of environment steps; a larger number continues an earlier cleanup", RUN)
    goals: str = option(
        "random", "how goals are chosen: random nodes, or ends of uncertain edges", choices=("random", "active")
    )
    episode_steps: int = count(500, "steps after which a robot gets another goal", RUN)
    envs: int = count(20, "number of environments stepped at once, by all workers together", RUN)
    seed: int = option(0, "seed of starts and goals", least=0, metavar="N")
    workers: int = count(1, "workers that clean up, each with its share of the environments; 1: this process", RUN)
    backend: str = option("multiprocessing", _BACKEND, choices=BACKENDS)

    def __post_init__(self) -> None:
        """Raise InputError for invalid values."""
        check_values(self)
        require_env(self.env)


def used_by(source: str) -> set[str]:
    """Names of the settings that apply to a source: those whose help names no kind of source, or this one."""
    kind = source.partition(":")[0]
    named = {field.name: field.metadata["help"].partition(":") for field in dataclasses.fields(FitSettings)}
    kinds = {name: begin.split(", ") for name, (begin, colon, _) in named.items() if colon}
    of_one = {name for name, each in kinds.items() if {*each} <= {"gym", "minari", "ogbench", "images"}}
    return {"source", *(name for name in named if name not in of_one or kind in kinds[name])}


def require_env(env: str) -> None:
    """Raise InputError unless an environment is given."""
    if not env:
        raise sgm.InputError("no environment is given: add --env ID, such as --env PointMaze_Large-v3")


def arguments(given: Iterable[str]) -> dict[str, Any]:
    """Parse arguments of an environment such as `continuing_task=false`; values are JSON, otherwise strings."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise sgm.InputError(f"env-arg is {text!r}: expected NAME=VALUE, such as continuing_task=false")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = {"True": True, "False": False, "None": None}.get(value, value)
    return found
