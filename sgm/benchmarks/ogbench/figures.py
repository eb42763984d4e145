"""Figures of an OGBench run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sgm.benchmarks import label, plots, tables
from sgm.benchmarks.page import Figure
from sgm.benchmarks.runs import Files, RunFolder, attribute
from sgm.benchmarks.tables import Pooled

from .settings import DATASETS
from .worlds import maze_of

UNIT = 4.0  # side of a cell, map units; the middle of cell (1, 1) is at (0, 0)
COLOURS = {"sgm": plots.NODE, "uniform": "#7fa8cc", "sorb": "#c2570c", "gas": "#2a9d4a", "ttgs": "#e08e0b"}


def figures(run: RunFolder) -> list[Figure]:
    """Figures of success by dataset, then of the memory and an episode of the first seed of each maze."""
    initial = [item for item in tables.pool(run.rows) if item.phase == "initial"]
    found = []
    if initial:
        caption = "Offline success by dataset; bars are the Wilson 95 % interval over the pooled episodes of all seeds."
        found.append(Figure("success", caption, partial(draw_success, items=initial), wide=True))
    for dataset in [name for name in DATASETS if any(row.get("dataset") == name for row in run.rows)]:
        files = run.files(dataset=dataset)
        seed = files.first("sgm/episode.json")
        if files.has(seed, "sgm/episode.json"):
            caption = f"{dataset}, seed {seed}: the memory of SGM, a plan for task 1, and the path of the robot."
            name = f"memory-{dataset.removeprefix('pointmaze-').removesuffix('-v0')}"
            found.append(Figure(name, caption, partial(draw_memory, files=files, seed=seed, dataset=dataset)))
    return found


def draw_success(path: Path, items: Sequence[Pooled]) -> None:
    """Draw a group of bars for each dataset, a bar for each method."""
    datasets = list(dict.fromkeys(item.environment for item in items))
    methods = list(dict.fromkeys(item.method for item in items))
    figure, axes = plots.pyplot().subplots(figsize=(1.5 + 1.6 * len(datasets), 3.6))
    width = 0.85 / len(methods)
    for number, method in enumerate(methods):
        mine = {item.environment: item for item in items if item.method == method}
        known = [(place, mine[name]) for place, name in enumerate(datasets) if name in mine]
        places = [place + (number - (len(methods) - 1) / 2) * width for place, _ in known]
        rates = [100 * item.rate for _, item in known]
        errors = np.abs(np.array([[100 * end for end in item.ci95] for _, item in known]).T - rates)
        look: dict[str, Any] = {"color": COLOURS.get(method, plots.FAINT if method == "gcbc" else plots.FALSE_EDGE)}
        look |= {"label": label("ogbench", method), "error_kw": {"linewidth": 0.8}}
        axes.bar(places, rates, width, yerr=errors, **look)
    names = [name.removeprefix("ogbench:pointmaze-").removesuffix("-v0").replace("-", "\n") for name in datasets]
    axes.set(xticks=range(len(datasets)), xticklabels=names, ylabel="success, %", ylim=(0, 102))
    axes.legend(fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False)
    plots.save(figure, path)


def draw_memory(path: Path, files: Files, seed: int, dataset: str) -> None:
    """Draw the memory over the maze, a plan and the path of the robot."""
    memory, trace = files.memory(seed, "sgm/memory.sgm"), files.json(seed, "sgm/episode.json")
    nodes = to_cells(attribute(memory, "position", 2))
    way, goal = (to_cells(np.asarray(places, np.float64)) for places in (trace["observations"], [trace["goal"]]))
    figure, axes = plots.pyplot().subplots(figsize=(7.5, 6.2))
    draw_walls(axes, dataset)
    edges = memory.edges()
    plots.draw_edges(axes, nodes, edges, alpha=float(np.clip(6_000 / max(len(edges.source), 1), 0.1, 0.9)))
    plots.draw_nodes(axes, nodes, 5)
    axes.plot(way[:, 1], way[:, 0], color=plots.TRACK, linewidth=1.4, zorder=5, label=f"{len(way):,} steps")
    if trace["plans"]:
        plots.draw_path(axes, nodes[trace["plans"][0]["nodes"]], plots.PLANS[0], "first plan")
    plots.draw_ends(axes, way[0], goal[0])
    axes.set_title(f"{len(nodes):,} nodes, {len(edges.source):,} edges", fontsize=11)
    axes.legend(fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.01), frameon=False)
    plots.save(figure, path)


def to_cells(places: Any) -> Any:
    """Convert (n, 2) x and y to (n, 2) rows and columns of the map."""
    return np.asarray(places)[:, ::-1] / UNIT + 1.5


def draw_walls(axes: Any, dataset: str) -> None:
    """Draw the map of a point maze, in cells."""
    from matplotlib.colors import ListedColormap

    from sgm.envs.ogbench.maze import Maze

    walls = Maze(maze_of(dataset)).map == 1
    height, width = walls.shape
    axes.imshow(walls, cmap=ListedColormap([plots.FLOOR, plots.WALL]), extent=(0, width, height, 0), zorder=0)
    axes.set(xticks=[], yticks=[], xlim=(0, width), ylim=(height, 0), aspect="equal")
