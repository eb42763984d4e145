"""The figures of a run: the memory's stages, success against cleanup, and an episode that replans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks import plots
from sgm.envs.point.mazes import Maze

Positions = NDArray[np.float64]


class Curve(NamedTuple):
    """Success of one method against cleanup steps.

    Attributes:
        label: what the legend calls it.
        colour: of its line.
        steps: cleanup steps, ascending; 0 is the filtered graph before any cleanup.
        rate: success, 0 to 1, at each.
        low: lower ends of the 95 % intervals.
        high: upper ends.
        initial: success before the k-nearest filter, if known.
        paper: the paper's final success and what to call it, if there is one.
    """

    label: str
    colour: str
    steps: Sequence[int]
    rate: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    initial: float | None = None
    paper: tuple[float, str] | None = None


def places(maze: Maze, observations: Any) -> Positions:
    """(n, 2) observations in [0, 1]² as (row, column) positions in cells."""
    points = np.asarray(observations, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
        raise sgm.InputError(f"got points of shape {points.shape}: a maze is drawn from finite (n, 2) in [0, 1]²")
    return points * (maze.height, maze.width)


def memory_stages(path: Path, maze: Maze, memory: sgm.SparseGraphicalMemory) -> None:
    """Three panels: all edges, those the k-nearest filter kept, and those that stand after cleanup."""
    positions, removed = places(maze, memory.embeddings), memory.removed()
    standing = memory.edges()
    stages = (
        ("before filtering", _joined(memory.edges(filtered=False), removed)),
        ("after filtering", _joined(standing, removed)),
        ("after cleanup", standing),
    )
    figure, panels = plots.pyplot().subplots(1, 3, figsize=(15, 5.6), gridspec_kw={"wspace": 0.04})
    for axes, (stage, edges) in zip(panels, stages, strict=True):
        number = len(edges.source)
        plots.draw_maze(axes, maze)
        plots.draw_edges(axes, positions, edges, alpha=float(np.clip(4000 / max(number, 1), 0.15, 0.9)))
        plots.draw_nodes(axes, positions, size=8 if len(positions) < 400 else 4)
        axes.set_title(f"{stage}\n{len(positions):,} nodes, {number:,} edges", fontsize=12)
    if gone := len(removed.source):
        plots.draw_edges(axes, positions, removed, plots.CUT, linewidths=0.9, alpha=0.85, zorder=2)
        axes.set_title(f"after cleanup\n{len(positions):,} nodes, {number:,} edges, {gone:,} removed", fontsize=12)
    plots.save(figure, path)


def success_curves(path: Path, curves: Sequence[Curve]) -> None:
    """Success against cleanup steps, with 95 % bands and the paper's final values as dotted lines."""
    figure, axes = plots.pyplot().subplots(figsize=(7.5, 4.4))
    longest = max((max(curve.steps, default=0) for curve in curves), default=0) or 1
    for curve in curves:
        steps, rate, low, high = (
            np.asarray(values, float) for values in (curve.steps, curve.rate, curve.low, curve.high)
        )
        axes.fill_between(steps, 100 * low, 100 * high, color=curve.colour, alpha=0.18, linewidth=0)
        axes.plot(steps, 100 * rate, "-o", color=curve.colour, markersize=4.5, label=curve.label, clip_on=False)
        if curve.initial is not None:
            hollow = {"marker": "D", "s": 40, "facecolors": "white", "edgecolors": curve.colour, "linewidths": 1.6}
            label = f"{curve.label}, before filtering"
            axes.scatter([-0.035 * longest], [100 * curve.initial], **hollow, label=label, zorder=5, clip_on=False)
        if curve.paper is not None:
            value, text = curve.paper
            axes.axhline(100 * value, color=curve.colour, linewidth=1, linestyle=":", zorder=1)
            style = {"color": curve.colour, "fontsize": 9, "va": "center"}
            axes.annotate(text, (1, 100 * value), (7, 0), axes.get_yaxis_transform(), "offset points", **style)
    axes.set(xlim=(-0.07 * longest, longest), ylim=(-3, 103), xlabel="cleanup steps", ylabel="success, %")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(axis="y", color="#e4e4e0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2, frameon=False, fontsize=9)
    plots.save(figure, path)


def episode(path: Path, maze: Maze, memory: sgm.SparseGraphicalMemory, trace: Mapping[str, Any]) -> None:
    """One episode (`Trace.asdict()`): the first plan, the way taken, the edges that failed, the last plan."""
    positions = places(maze, memory.embeddings)
    way, goal = places(maze, trace["observations"]), places(maze, [trace["goal"]])
    figure, axes = plots.pyplot().subplots(figsize=(7, 7.4))
    plots.draw_maze(axes, maze)
    plots.draw_edges(axes, positions, memory.edges(), alpha=0.5)
    plots.draw_nodes(axes, positions, size=5)
    plans = trace["plans"]
    chosen = [(plan, f"plan at step {plan['step']}") for plan in (plans if len(plans) < 2 else (plans[0], plans[-1]))]
    styles: tuple[dict[str, Any], ...] = ({"linestyle": (0, (3, 1.2))}, {})
    for (plan, label), colour, style in zip(chosen, plots.PLANS, styles, strict=False):
        begin = way[min(plan["step"], len(way) - 1)]
        line = np.concatenate([begin[None], positions[np.asarray(plan["nodes"], int)], goal])
        plots.draw_path(axes, line, colour, label, **style)
    taken = {"marker": None, "linewidth": 1.3, "zorder": 4.5}
    plots.draw_path(axes, np.concatenate([way, goal]) if trace["success"] else way, plots.TRACK, "way taken", **taken)
    if cuts := trace["cuts"]:
        ends = np.array([(cut["u"], cut["v"]) for cut in cuts])
        failed = sgm.Edges(ends[:, 0], ends[:, 1], np.zeros(len(cuts), np.float32))
        label = "failed edge" if len(cuts) == 1 else f"{len(cuts)} failed edges"
        plots.draw_failed(axes, positions, failed, label)
    plots.draw_ends(axes, way[0], goal[0])
    outcome = "goal reached" if trace["success"] else "goal not reached"
    axes.set_title(f"{outcome}, {len(way):,} steps, {len(plans)} plans", fontsize=11)
    plots.legend_below(axes, 3)
    plots.save(figure, path)


def _joined(first: sgm.Edges, second: sgm.Edges) -> sgm.Edges:
    return sgm.Edges(
        np.concatenate([first.source, second.source]),
        np.concatenate([first.target, second.target]),
        np.concatenate([first.weight, second.weight]),
    )
