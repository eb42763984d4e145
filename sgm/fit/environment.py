"""Environments by name: `ID` or `gym:ID` of Gymnasium, `ogbench:NAME` of OGBench."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import gymnasium

import sgm
from sgm.envs.ogbench.names import environment_of, maze_of
from sgm.envs.ogbench.package import make_vec

# Packages that register environments when they are imported, and the extra that installs each.
PACKAGES = {"gymnasium_robotics": "examples", "minigrid": "examples", "ogbench": "ogbench"}

Options = list[dict[str, Any]]


def make_env(name: str, number: int, arguments: Mapping[str, Any]) -> tuple[Any, Options | None]:
    """Make a vector environment; also return the reset options that episodes use in turn, or None.

    Args:
        name: an id of Gymnasium, also as `gym:ID` or `module:ID`; or `ogbench:NAME`, the name of an environment or of
            one of its datasets.
        number: number of sub-environments.
        arguments: arguments of the environment.
    """
    if name.startswith("ogbench:"):
        return _make_ogbench(name.removeprefix("ogbench:"), number, arguments)
    name = name.removeprefix("gym:")
    _register(name)
    try:
        return gymnasium.make_vec(name, number, vectorization_mode="sync", **arguments), None
    except TypeError as error:
        raise sgm.InputError(f"{name} does not take {_listed(arguments)}: {error}") from error
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise sgm.InputError(f"the environment {name} cannot be made: {error}{_advice(name)}") from error
    except Exception as error:  # the code of an environment may raise anything
        raise sgm.InputError(f"the environment {name} cannot be made: {type(error).__name__}: {error}") from error


def _make_ogbench(name: str, number: int, arguments: Mapping[str, Any]) -> tuple[Any, Options]:
    known, maze = environment_of(name), maze_of(name)
    if maze is not None and not arguments:
        from sgm.envs.ogbench.env import PointMazes  # the same environment, faster

        return PointMazes(number, maze), [{"task_id": task} for task in range(1, 6)]
    try:
        env = make_vec(known, number, **arguments)
    except TypeError as error:
        raise sgm.InputError(f"{known} does not take {_listed(arguments)}: {error}") from error
    except gymnasium.error.Error as error:
        raise sgm.InputError(f"OGBench has no environment {known!r}: {error}{_advice(known)}") from error
    tasks = getattr(env.envs[0].unwrapped, "num_tasks", 0)
    return env, [{"task_id": task} for task in range(1, tasks + 1)] or [{}]


def _listed(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in arguments.items()) or "these arguments"


def _register(name: str) -> None:
    """Import packages that register environments until the id is known."""
    for package in PACKAGES:
        if name in gymnasium.registry or ":" in name:
            return
        try:
            gymnasium.register_envs(importlib.import_module(package))
        except ModuleNotFoundError:
            continue


def _advice(name: str) -> str:
    """Return advice for an unknown id."""
    near = difflib.get_close_matches(name, list(gymnasium.registry), 3)
    hint = f"; similar ids: {', '.join(near)}" if near else ""
    absent = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    for package in absent:
        hint += f"; {package} is not installed: pip install 'sparse-graphical-memory[{PACKAGES[package]}]'"
    return f"{hint}. For your own environment give module:ID, and the module is imported"
