"""The figures of a Doom run: what the metric sees, what the memory becomes, and how far it carries the agent.

Positions are (x, y) in map units, poses (x, y, heading in degrees). Maps have y upwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import sgm
from sgm.benchmarks import plots
from sgm.envs.doom.drawing import draw_map
from sgm.envs.doom.wad import DoomMap

FALSE = 200.0  # edges longer than this are false, map units
COLUMNS = 8  # pictures in a row of the strip
FAINT = "#c9c8c3"
FALSE_EDGE = "#6b2c91"
STAGES = {
    "dense": "dense", "two-way": "two-way consistent", "filtered": "filtered", "cleaned": "cleaned, first failure",
    "ours": "ours",
}  # fmt: skip
STAGE_COLOURS = {
    "dense": "#8a8f98", "two-way": "#7fa8cc", "filtered": plots.NODE, "cleaned": "#c2570c", "ours": "#2a9d4a",
}  # fmt: skip
METHOD = {
    "random": "#8a8f98", "controller": "#5f6670", "dense": plots.WALL, "sptm": "#c2570c", "sptm+sgm": plots.NODE,
    "ours": "#2a9d4a", "ours-random-goals": "#8a5aa8",
}  # fmt: skip
LEVEL_MARKERS = {"easy": "o", "medium": "^", "hard": "s"}

Floats = NDArray[np.float64]


class Curve(NamedTuple):
    """Success of one method against cleanup steps.

    Attributes:
        label: what the legend calls it.
        colour: of its line.
        steps: cleanup steps, ascending.
        rate: success, 0 to 1, at each.
        low: lower ends of the 95 % intervals.
        high: upper ends.
        paper: (cleanup steps, success) of the paper.
    """

    label: str
    colour: str
    steps: Sequence[int]
    rate: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    paper: Sequence[tuple[int, float]] = ()


class Bar(NamedTuple):
    """Steps to the goal of one method, over its successes.

    Attributes:
        label: of the bar.
        colour: of the bar.
        steps: mean over all successes.
        levels: mean over those of each level that has any.
    """

    label: str
    colour: str
    steps: float
    levels: Mapping[str, float]


# -- numbers -----------------------------------------------------------------------------------------------------


def edge_lengths(path: Path, lengths: Mapping[str, ArrayLike]) -> None:
    """True lengths of the edges after each stage, as step histograms with a logarithmic count."""
    known = {stage: np.asarray(lengths[stage], np.float64).ravel() for stage in STAGES if stage in lengths}
    known = {stage: values for stage, values in known.items() if len(values)}
    if not known:
        raise sgm.SGMError(f"no lengths of edges: expected some of {', '.join(STAGES)}")
    longest = max(values.max() for values in known.values())
    bins = np.arange(0, max(longest, FALSE) + 50, 25)
    figure, axes = plots.pyplot().subplots(figsize=(7.5, 4.4))
    for stage, values in known.items():
        share = f"{100 * np.mean(values > FALSE):.1f} % over {FALSE:.0f}"
        look = {"color": STAGE_COLOURS[stage], "linewidth": 1.8, "baseline": None}
        axes.stairs(
            np.histogram(values, bins)[0], bins, label=f"{STAGES[stage]}: {len(values):,} edges, {share}", **look
        )
    axes.axvline(FALSE, color=plots.CUT, linewidth=1.2, linestyle=":")
    axes.set(yscale="log", ylim=(0.7, None), xlim=(0, bins[-1]))
    axes.set(xlabel="true length of an edge, map units", ylabel="edges in a bin of 25 units")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    plots.plain(axes)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2, frameon=False, fontsize=9)
    plots.save(figure, path)


def success_curves(path: Path, curves: Sequence[Curve]) -> None:
    """Success against cleanup steps, with 95 % bands and the paper's values as hollow diamonds."""
    if not curves:
        raise sgm.SGMError("no method with cleanup was run")
    figure, axes = plots.pyplot().subplots(figsize=(7.5, 4.4))
    for curve in curves:
        low, rate, high = (100 * np.asarray(values, np.float64) for values in (curve.low, curve.rate, curve.high))
        axes.fill_between(curve.steps, low, high, color=curve.colour, alpha=0.16, linewidth=0)
        axes.plot(curve.steps, rate, "-o", color=curve.colour, markersize=5, label=curve.label, clip_on=False)
        if curve.paper:
            steps, values = zip(*curve.paper, strict=True)
            look = {"color": curve.colour, "linestyle": ":", "marker": "D", "markerfacecolor": "white"}
            axes.plot(steps, 100 * np.array(values), **look, label=f"{curve.label}, paper", clip_on=False)
    longest = max(max([*curve.steps, *(steps for steps, _ in curve.paper)]) for curve in curves) or 1
    axes.set(xlim=(-0.02 * longest, 1.02 * longest), ylim=(0, 100), xlabel="cleanup steps", ylabel="success, %")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    plots.plain(axes)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=2, frameon=False, fontsize=9)
    plots.save(figure, path)


def steps_to_goal(path: Path, bars: Sequence[Bar], limit: int) -> None:
    """Mean steps of the successful episodes of each method, over all of them and by level, up to the limit."""
    if not bars:
        raise sgm.SGMError("no episode reached its goal")
    height = 0.5 * len(bars) + 0.6
    figure, axes = plots.pyplot().subplots(figsize=(7.5, height))
    places = np.arange(len(bars))
    axes.barh(places, [bar.steps for bar in bars], 0.62, color=[bar.colour for bar in bars], alpha=0.75)
    for place, bar in zip(places, bars, strict=True):
        axes.text(0.015 * limit, place, f"{bar.steps:.0f}", color="white", fontsize=9, va="center", fontweight="bold")
    for level, marker in LEVEL_MARKERS.items():
        points = [(bar.levels[level], place) for place, bar in zip(places, bars, strict=True) if level in bar.levels]
        if points:
            look = {"marker": marker, "s": 36, "color": "white", "edgecolors": "black", "linewidths": 1, "zorder": 3}
            axes.scatter(*zip(*points, strict=True), label=level, **look)
    axes.axvline(limit, color=plots.WALL, linewidth=1.2, linestyle=":", label="limit of an episode")
    axes.set(xlim=(0, 1.02 * limit), ylim=(len(bars) - 0.4, -0.6), xlabel="steps to the goal, successful episodes")
    axes.set_yticks(places, [bar.label for bar in bars])
    axes.tick_params(axis="y", length=0)
    plots.plain(axes, "x")
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.8 / height), ncol=4, frameon=False, fontsize=9)
    plots.save(figure, path)


# -- maps --------------------------------------------------------------------------------------------------------


def floor_plan(path: Path, doom_map: DoomMap) -> None:
    """The map itself, with a scale."""
    figure, axes = plots.pyplot().subplots(figsize=(6, 6.2))
    _map(axes, doom_map)
    low, high = doom_map.bounds
    y = low[1] - 0.045 * (high[1] - low[1])
    axes.plot([low[0], low[0] + FALSE], [y, y], color=plots.WALL, linewidth=3, solid_capstyle="butt", clip_on=False)
    axes.text(low[0] + FALSE * 1.08, y, f"{FALSE:.0f} map units", va="center", fontsize=9, color=plots.WALL)
    plots.save(figure, path)


def heat_map(path: Path, doom_map: DoomMap, poses: Floats, data: Mapping[str, Any]) -> None:
    """Steps from one picture to all frames: its place, by single frames, by windows of frames, and thresholded."""
    poses, frame = _poses(poses), int(data["reference_frame"])
    threshold = float(data["threshold"])
    plain, window = (_steps(data[name], poses, name) for name in ("steps", "steps_window"))
    figure = plots.pyplot().figure(figsize=(16, 5.2))
    shape = {"width_ratios": (2.7, 4.4, 4.4, 4.4), "height_ratios": (2.15, 2.25, 0.14), "wspace": 0.04, "hspace": 0.06}
    grid = figure.add_gridspec(3, 4, left=0, right=1, bottom=0.09, top=0.94, **shape)
    picture, place = (figure.add_subplot(grid[row, 0]) for row in (0, 1))
    panels = [figure.add_subplot(grid[:2, column]) for column in (1, 2, 3)]
    for axes in (place, *panels):
        _map(axes, doom_map)
    plots.draw_picture(picture, data["reference"])
    picture.set_title("reference picture and its place", fontsize=11)
    _arrow(place, doom_map, poses[frame], plots.CUT, 0.18)
    shades = {"vmin": 0.0, "vmax": float(np.quantile(window, 0.98)), "cmap": "viridis", "linewidths": 0}
    for axes, steps, title in zip(panels, (plain, window), ("single frames", "windows of frames"), strict=False):
        order = np.argsort(-steps)
        dots = axes.scatter(*poses[order, :2].T, c=steps[order], s=_dot(len(poses)), rasterized=True, **shades)
        axes.set_title(title, fontsize=11)
    bar = figure.colorbar(dots, cax=figure.add_subplot(grid[2, 1:3]), orientation="horizontal", extend="max")
    bar.set_label("steps from the reference picture, by the metric")
    _accepted(panels[2], poses, frame, window, threshold)
    ring = {"s": 80, "facecolors": "none", "edgecolors": "black", "linewidths": 1.5, "zorder": 5}
    for axes in panels:
        axes.scatter(*poses[frame, :2], **ring)
    plots.save(figure, path)


def _accepted(axes: Any, poses: Floats, frame: int, steps: Floats, threshold: float) -> None:
    """Frames within the threshold, the false ones apart."""
    close = steps <= threshold
    far = np.hypot(*(poses[:, :2] - poses[frame, :2]).T) > FALSE
    size = _dot(len(poses))
    axes.scatter(*poses[~close, :2].T, s=size / 2, color=FAINT, linewidths=0, zorder=1, rasterized=True)
    for chosen, colour, marker, name in (
        (close & ~far, plots.NODE, "o", "near"), (close & far, plots.CUT, "X", f"over {FALSE:.0f} units away"),
    ):  # fmt: skip
        look = {"s": 14 if marker == "o" else 24, "color": colour, "marker": marker, "linewidths": 0, "zorder": 3}
        axes.scatter(*poses[chosen, :2].T, label=f"{chosen.sum():,} {name}", **look)
    axes.set_title(f"windows, at most {threshold:.3g} steps", fontsize=11)
    plots.legend_below(axes, 2)


def memory_stages(path: Path, doom_map: DoomMap, poses: Floats, memory: sgm.SparseGraphicalMemory) -> None:
    """All edges, those the k-nearest filter kept, and, if any was removed, those that stand after cleanup."""
    positions = _poses(poses)[memory.nodes, 1::-1]
    removed, standing = memory.removed(), memory.edges()
    stages = [
        ("before the filter", _joined(memory.edges(filtered=False), removed)),
        ("filtered", _joined(standing, removed)),
    ]
    if gone := len(removed.source):
        stages.append(("cleaned", standing))
    shape = {"figsize": (5.2 * len(stages), 5.9), "squeeze": False, "gridspec_kw": {"wspace": 0.04}}
    figure, panels = plots.pyplot().subplots(1, len(stages), **shape)
    for axes, (stage, edges) in zip(panels[0], stages, strict=True):
        _map(axes, doom_map)
        false = _false(positions, edges)
        plots.draw_edges(axes, positions, plots.some(edges, ~false), rasterized=True, alpha=plots.ink(~false, 12_000))
        look = {"rasterized": True, "linewidths": 0.6, "zorder": 2.5}
        plots.draw_edges(axes, positions, plots.some(edges, false), FALSE_EDGE, alpha=plots.ink(false, 400), **look)
        plots.draw_nodes(axes, positions, size=8 if len(positions) < 400 else 2)
        title = f"{stage}\n{len(false):,} edges, {false.sum():,} over {FALSE:.0f} units"
        if axes is panels[0, -1] and gone:
            wrong = _false(positions, removed)
            dashed = {"linestyles": (0, (4, 2)), "linewidths": 0.6, "zorder": 2}
            plots.draw_edges(axes, positions, removed, plots.CUT, alpha=plots.ink(wrong, 400), **dashed)
            title += f"\n{gone:,} removed, {wrong.sum():,} over {FALSE:.0f} units"
        axes.set_title(title, fontsize=11)
    plots.save(figure, path)


def waypoint_strip(path: Path, doom_map: DoomMap, poses: Floats, data: Mapping[str, Any]) -> None:
    """The pictures along one plan in rows, numbered, the goal at the end; above them the plan on the map."""
    pictures, way = np.asarray(data["strip"]), _poses(poses)[np.asarray(data["strip_frames"], int)]
    if not len(pictures) or len(pictures) != len(way):
        raise sgm.SGMError(f"the strip has {len(pictures)} pictures and {len(way)} frames: expected as many of each")
    rows = -(-(len(pictures) + 1) // COLUMNS)
    figure = plots.pyplot().figure(figsize=(12, 4.8 + 1.35 * rows))
    above, below = figure.subfigures(2, 1, height_ratios=(4.8, 1.35 * rows))
    whole, detail = above.subplots(1, 2, gridspec_kw={"wspace": 0.06, "left": 0.02, "right": 0.98, "bottom": 0.03})
    _plan_on_map(whole, detail, doom_map, way)
    shape = {"left": 0.01, "right": 0.99, "top": 0.92, "bottom": 0.02, "wspace": 0.06, "hspace": 0.28}
    panels = below.subplots(rows, COLUMNS, squeeze=False, gridspec_kw=shape)
    names = [*map(str, range(1, len(pictures) + 1)), "goal"]
    for axes in panels.flat[len(names) :]:
        axes.set_axis_off()
    for axes, picture, name in zip(panels.flat, [*pictures, data["strip_goal"]], names, strict=False):
        plots.draw_picture(axes, picture, plots.PLANS[1] if name == "goal" else None)
        axes.set_title(name, fontsize=10, pad=3, fontweight="bold" if name == "goal" else "normal")
    plots.save(figure, path)


def _plan_on_map(whole: Any, detail: Any, doom_map: DoomMap, way: Floats) -> None:
    """A plan on the whole map, and the part of the map around it with the waypoints numbered."""
    for axes in (whole, detail):
        _map(axes, doom_map)
        plots.draw_path(axes, way[:, 1::-1], plots.PLANS[0], "plan", markersize=3, linewidth=1.6)
    half = _magnify(whole, detail, way[:, :2])
    x, y, heading = way.T
    angle = np.radians(heading)
    arrows = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.004, "color": plots.NODE, "zorder": 5}
    detail.quiver(x, y, 0.12 * half * np.cos(angle), 0.12 * half * np.sin(angle), **arrows)
    look = {"fontsize": 8.5, "ha": "center", "va": "center", "zorder": 7}
    circle = {"boxstyle": "circle,pad=0.18", "facecolor": "white", "edgecolor": plots.PLANS[0], "alpha": 0.9}
    for number, (place_x, place_y) in enumerate(way[:, :2], start=1):
        detail.text(place_x, place_y, str(number), bbox=circle, clip_on=True, **look)
    whole.set_title("the plan on the map", fontsize=11)
    detail.set_title("its waypoints, with the headings of their pictures", fontsize=11)


def _magnify(whole: Any, detail: Any, points: Floats) -> float:
    """Show the square around these points in detail and mark it on the whole map; half its side in map units."""
    low, high = points.min(0), points.max(0)
    half = max(*(high - low), FALSE) / 2 * 1.25
    (left, bottom), (right, top) = (low + high) / 2 - half, (low + high) / 2 + half
    frame = {"fill": False, "edgecolor": plots.TRACK, "linewidth": 1.4, "zorder": 6}
    whole.add_patch(plots.pyplot().Rectangle((left, bottom), 2 * half, 2 * half, **frame))
    detail.set(xlim=(left, right), ylim=(bottom, top))
    detail.spines[:].set(visible=True, color=plots.TRACK, linewidth=1.4)
    return float(half)


def alias(path: Path, doom_map: DoomMap, poses: Floats, data: Mapping[str, Any]) -> None:
    """Two pictures that the metric takes for close, and how far apart they were taken."""
    ends = _poses(poses)[np.asarray(data["alias_frames"], int)]
    figure, panels = plots.pyplot().subplots(1, 3, figsize=(14, 4.8), gridspec_kw={"wspace": 0.05})
    _map(panels[1], doom_map)
    panels[1].plot(*ends[:, :2].T, color=plots.CUT, linewidth=1.8, linestyle="--", zorder=4)
    for axes, picture, pose, name in zip(panels[::2], data["alias"], ends, "AB", strict=True):
        plots.draw_picture(axes, picture)
        axes.set_title(f"picture {name}", fontsize=12)
        _arrow(panels[1], doom_map, pose, plots.CUT)
        badge = {"boxstyle": "circle,pad=0.2", "facecolor": "white", "edgecolor": plots.CUT}
        panels[1].text(*pose[:2], name, fontsize=10, ha="center", va="center", bbox=badge, zorder=7)
    steps, apart = float(data["alias_steps"]), float(data["alias_apart"])
    panels[1].set_title(f"{steps:.2g} steps by the metric, {apart:,.0f} map units apart", fontsize=12)
    plots.save(figure, path)


def episode(
    path: Path, doom_map: DoomMap, poses: Floats, memory: sgm.SparseGraphicalMemory, trace: Mapping[str, Any]
) -> None:
    """One episode (`Trace.asdict()` with true poses): the way taken, the first plan and the last one."""
    positions = _poses(poses)[memory.nodes, 1::-1]
    way, goal = _poses(trace["observations"])[:, 1::-1], _poses([trace["goal"]])[:, 1::-1]
    plans = trace["plans"]
    chosen = plans if len(plans) < 2 else (plans[0], plans[-1])
    lines = [_line(plan, way, positions, goal) for plan in chosen]
    edges = memory.edges()
    true = plots.some(edges, ~_false(positions, edges))
    figure, (whole, detail) = plots.pyplot().subplots(1, 2, figsize=(12, 6.2), gridspec_kw={"wspace": 0.04})
    styles: tuple[dict[str, Any], ...] = ({"linestyle": (0, (3, 1.2))}, {})
    for axes, size in ((whole, 2), (detail, 12)):
        _map(axes, doom_map)
        plots.draw_edges(axes, positions, true, alpha=0.45, rasterized=True)
        plots.draw_nodes(axes, positions, size=size)
        for plan, line, colour, style in zip(chosen, lines, plots.PLANS, styles, strict=False):
            plots.draw_path(axes, line, colour, f"plan at step {plan['step']}", **style)
        plots.draw_path(axes, way, plots.TRACK, "way taken", marker=None, linewidth=1.5, zorder=4.5)
        plots.draw_ends(axes, way[0], goal[0])
    _magnify(whole, detail, np.concatenate([way, goal, *lines])[:, ::-1])
    whole.set_title("the episode on the map", fontsize=11)
    outcome = "goal reached" if trace["success"] else "goal not reached"
    detail.set_title(f"{outcome}, {len(way):,} steps, {len(plans):,} plans", fontsize=11)
    plots.legend_below(detail, 3)
    plots.save(figure, path)


def _line(plan: Mapping[str, Any], way: Floats, positions: Floats, goal: Floats) -> Floats:
    """A plan from where it was made over its nodes to the goal."""
    begin = way[min(plan["step"], len(way) - 1)]
    return np.concatenate([begin[None], positions[np.asarray(plan["nodes"], int)], goal])


# -- parts -------------------------------------------------------------------------------------------------------


def _map(axes: Any, doom_map: DoomMap) -> None:
    """The map as a background, without scales."""
    draw_map(axes, doom_map)
    low, high = doom_map.bounds
    margin = 0.015 * float((high - low).max())
    axes.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin), aspect="equal")
    axes.set_axis_on()
    axes.set(xticks=[], yticks=[], xlabel="", ylabel="")
    axes.spines[:].set_visible(False)


def _arrow(axes: Any, doom_map: DoomMap, pose: Floats, colour: str, share: float = 0.09) -> None:
    """A place and the way it looks, as an arrow of this share of the map's size."""
    low, high = doom_map.bounds
    length = share * float((high - low).max())
    x, y, heading = pose
    tip = x + length * np.cos(np.radians(heading)), y + length * np.sin(np.radians(heading))
    axes.annotate("", tip, (x, y), arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2.4}, zorder=6)
    axes.scatter(x, y, s=30, color=colour, zorder=6)


def _poses(poses: ArrayLike) -> Floats:
    values = np.asarray(poses, np.float64)
    if values.ndim != 2 or values.shape[1] != 3 or not np.isfinite(values).all():
        raise sgm.InputError(f"got poses of shape {values.shape}: expected finite (n, 3), x, y and heading")
    return values


def _steps(steps: ArrayLike, poses: Floats, name: str) -> Floats:
    values = np.asarray(steps, np.float64)
    if values.shape != (len(poses),):
        raise sgm.InputError(f"{name} has shape {values.shape}: expected a number for each of {len(poses)} frames")
    return values


def _dot(number: int) -> float:
    return float(np.clip(40_000 / number, 4, 20))


def _false(positions: Floats, edges: sgm.Edges) -> NDArray[np.bool_]:
    return np.hypot(*(positions[edges.source] - positions[edges.target]).T) > FALSE


def _joined(first: sgm.Edges, second: sgm.Edges) -> sgm.Edges:
    return sgm.Edges(
        np.concatenate([first.source, second.source]),
        np.concatenate([first.target, second.target]),
        np.concatenate([first.weight, second.weight]),
    )
