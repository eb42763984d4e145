"""Figures of a PointEnv run."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

import sgm
from sgm.benchmarks import label, map_plots, paper, plots, tables
from sgm.benchmarks.checks import COUNT
from sgm.benchmarks.page import Figure, band
from sgm.benchmarks.runs import Files, RunFolder, attribute
from sgm.benchmarks.tables import Pooled
from sgm.envs.point.mazes import Maze, load_maze

COLOURS = {"sorb": "#c2570c", "sorb+sgm": plots.NODE}
_MAZE = re.compile(r"FourRooms|U|Tree|Spiral(?P<spiral>[0-9]{1,3})|Random(?P<random>[0-9]{1,3})(\+[0-9]{1,4})?")
_WIDEST = 512  # cells; a maze may have 16,384 free cells, at least a quarter of all cells in each of our mazes
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")  # names of methods that may be part of a file name


def figures(run: RunFolder) -> list[Figure]:
    """Figures of success by environment, then of the memory and an episode of the first seed of each method."""
    found = [_success(items, number) for number, items in enumerate(_cleaned(run)) if items]
    files = run.files()
    for method in dict.fromkeys(row["method"] for row in run.rows if _PLAIN.fullmatch(row["method"])):
        name = label("point", method)
        seed, whose = files.first(f"{method}/memory.sgm"), method.replace("+", "-")
        if files.has(seed, f"{method}/memory.sgm"):
            caption = f"{name}, seed {seed}: the memory before the k-nearest filter, after it, and after cleanup."
            draw = partial(_draw_stages, run=run, files=files, seed=seed, method=method)
            found.append(Figure(f"memory-{whose}", caption, draw, wide=True))
        if files.has(seed, f"{method}/episode.json"):
            caption = f"{name}, seed {seed}: an episode in which an edge failed and the agent planned again."
            draw = partial(_draw_episode, run=run, files=files, seed=seed, method=method)
            found.append(Figure(f"episode-{whose}", caption, draw, wide=True))
    return found


def _cleaned(run: RunFolder) -> list[list[Pooled]]:
    """Stages of all methods with cleanup, by environment."""
    groups = tables.by_group(tables.pool(run.rows)).values()
    cleaned = [item for items in groups if any(item.phase == "cleaned" for item in items) for item in items]
    environments = dict.fromkeys(row["environment"] for row in run.rows)
    return [[item for item in cleaned if item.environment == name] for name in environments]


def _success(pooled: Sequence[Pooled], number: int) -> Figure:
    curves = [_curve(items) for items in tables.by_group(pooled).values()]
    caption = f"Success against cleanup steps in {pooled[0].environment}. {band(pooled)}"
    draw = partial(plots.success_curves, curves={("", ""): curves})
    return Figure(f"success-{number + 1}" if number else "success", caption, draw)


def _curve(items: Sequence[Pooled]) -> plots.Curve:
    method, line = items[0].method, [item for item in items if item.phase != "initial"]
    initial = tables.stage(items, "initial")
    quoted = paper.final("point", method) if items[0].environment.startswith(paper.POINT_ENVIRONMENT) else ()
    return plots.curve(
        line,
        label("point", method),
        COLOURS.get(method, plots.WALL),
        initial=initial.rate if initial else None,
        paper=quoted,
    )


def _draw_stages(path: Path, run: RunFolder, files: Files, seed: int, method: str) -> None:
    memory = files.memory(seed, f"{method}/memory.sgm")
    draw_map = partial(plots.draw_maze, maze=load(run))
    map_plots.memory_stages(path, draw_map, attribute(memory, "position", 2), map_plots.stages_of(memory))


def _draw_episode(path: Path, run: RunFolder, files: Files, seed: int, method: str) -> None:
    memory, maze = files.memory(seed, f"{method}/memory.sgm"), load(run)
    trace = files.json(seed, f"{method}/episode.json")
    size = np.array([maze.height, maze.width])  # observations are in [0, 1]²
    seen, goal = (np.asarray(trace[name], np.float64) * size for name in ("observations", "goal"))
    draw_map = partial(plots.draw_maze, maze=maze)
    trace = {**trace, "observations": seen, "goal": goal}
    map_plots.episode(path, draw_map, attribute(memory, "position", 2), memory.edges(), trace)


def load(run: RunFolder) -> Maze:
    """Load the maze of a run. A text file is read only if the caller vouches for it, whatever results.json names."""
    settings = run.settings if run.trusted is None else run.trusted
    if "maze" not in settings:
        raise sgm.SGMError("results.json has no settings.maze")
    name, resize = settings["maze"], settings.get("resize", 1)
    if run.trusted is None:
        _require_known(name, resize)
    return load_maze(name, resize, settings.get("thin", False), settings.get("maze_seed", 0))


def _require_known(name: object, resize: object) -> None:
    """Raise StoreError unless the maze is one of ours and not too large."""
    if not isinstance(name, str) or not (named := _MAZE.fullmatch(name)):
        raise sgm.StoreError(
            f"the maze of this run is {reprlib.repr(name)}, which is not one of ours: give its text file with "
            "write_report(benchmark, folder, trusted=settings)"
        )
    if not COUNT.holds(resize) or int(named["spiral"] or named["random"] or 15) * int(str(resize)) > _WIDEST:
        raise sgm.StoreError(
            f"results.json has maze {name!r} and resize {reprlib.repr(resize)}; accepted: at most {_WIDEST} cells"
        )
