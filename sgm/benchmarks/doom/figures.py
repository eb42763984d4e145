"""Figures of a ViZDoom run: success, edge lengths, the distance on images, memories and one episode.

Poses are (x, y, heading), map units and degrees; maps have y upwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks import label, map_plots, paper, plots, tables
from sgm.benchmarks.ground_truth import edge_lengths
from sgm.benchmarks.page import Figure, band
from sgm.benchmarks.results import find_file
from sgm.benchmarks.runs import RunFolder, attribute
from sgm.benchmarks.tables import Pooled, Row
from sgm.envs.doom.drawing import draw_map
from sgm.envs.doom.wad import DoomMap
from sgm.errors import printable

FALSE = 200.0  # map units above which an edge is false
COLUMNS = 8  # images in a row of the strip
EPISODE_STEPS = 200  # unless the settings say otherwise
COLOURS = {
    "random": "#8a8f98",
    "controller": "#5f6670",
    "dense": plots.WALL,
    "sptm": "#c2570c",
    "sptm+sgm": plots.NODE,
    "ours": "#2a9d4a",
    "ours-random-goals": "#8a5aa8",
    "verified": "#1d6b8f",
}
CLEANED = ("sptm+sgm", "ours", "ours-random-goals", "verified")
MEMORIES = ("sptm", "sptm+sgm", "ours", "verified")
# Stages of lengths.npz, with their labels and colours.
STAGES = {
    "dense": ("dense", "#8a8f98"),
    "two-way": ("two-way consistent", plots.EDGE),
    "filtered": ("filtered", plots.NODE),
    "cleaned": ("cleaned, first failure", "#c2570c"),
    "ours": ("ours", "#2a9d4a"),
    "verified": ("ours, verified", "#1d6b8f"),
}
LEVELS = {"easy": "o", "medium": "^", "hard": "s"}  # levels and their markers

Floats = NDArray[np.float64]


def floor_plan(run: RunFolder) -> Figure:
    """Figure of the map."""
    caption = "The maze from above: dark lines are walls, light ones can be crossed."
    return Figure("map", caption, lambda path: draw_floor_plan(path, read_map(run)))


def figures(run: RunFolder) -> list[Figure]:
    """All other figures; those about a single seed show the first seed that has the data."""
    return [*_numbers(run), *_images(run), *_memories(run), _episode(run)]


def _numbers(run: RunFolder) -> list[Figure]:
    pooled, files = tables.pool(run.rows), run.files()
    cleaned, seed = [item for item in pooled if item.method in CLEANED], files.first("lengths.npz")
    limit = run.settings.get("episode_steps") or EPISODE_STEPS

    def lengths(path: Path) -> None:
        kept = files.arrays(seed, "lengths.npz")
        panel = {name: kept[stage] for stage, (name, _) in STAGES.items() if stage in kept}
        plots.edge_lengths(path, {"": panel}, dict(STAGES.values()), FALSE, "map units")

    return [
        Figure(
            "success",
            f"Success against cleanup steps, all levels pooled. {band(cleaned)}",
            lambda path: plots.success_curves(path, {("", ""): _curves(cleaned)}),
        ),
        Figure(
            "steps",
            "Steps to the goal, mean over successful episodes: bars for all of them, markers for each level. A method "
            "that reaches only near goals looks fast here: compare markers, and consider success as well.",
            lambda path: steps_to_goal(path, pooled, limit),
        ),
        Figure(
            "lengths",
            f"True lengths of the edges after each stage, seed {seed}. Edges between places over {FALSE:.0f} map units "
            "apart (right of the dotted line) are false: there is no such short path. Of the dense graph at most two "
            "million edges are counted.",
            lengths,
        ),
    ]


def _images(run: RunFolder) -> list[Figure]:
    files = run.files()
    seed = files.first("images.npz")

    def drawn_by(draw: Callable[..., None], *needed: str) -> Callable[[Path], None]:
        return lambda path: draw(path, read_map(run), files.arrays(seed, "images.npz", *needed))

    heat = (
        f"Steps from one image (left) to every observation of the buffer by the learned distance, seed {seed}; dark: "
        "close. Second: single images. Third: windows of images around both ends. Right: observations within the "
        f"threshold for an edge; red crosses are over {FALSE:.0f} map units away. Where observations overlap, the "
        "closest is on top."
    )
    strip = (
        f"Images along one plan, seed {seed}: the images of waypoints in order, with the goal image at the end; above, "
        "positions and headings of the waypoints."
    )
    alias = (
        f"Two images that are close by the learned distance but were taken far apart, seed {seed}: an edge between "
        "them is false, which the agent finds out only by trying it."
    )
    reference = ("reference", "reference_pose", "poses", "steps", "steps_window", "threshold")
    return [
        Figure("heat", heat, drawn_by(heat_map, *reference), wide=True),
        Figure("strip", strip, drawn_by(waypoint_strip, "strip", "strip_poses", "strip_goal"), wide=True),
        Figure("alias", alias, drawn_by(aliased, "alias", "alias_poses", "alias_steps", "alias_apart"), wide=True),
    ]


def _memories(run: RunFolder) -> list[Figure]:
    files, methods = run.files(), {row["method"] for row in run.rows}
    found = []
    for method in (name for name in MEMORIES if name in methods):
        seed = files.first(f"{method}/memory.sgm")

        def draw(path: Path, method: str = method, seed: int = seed) -> None:
            memory = files.memory(seed, f"{method}/memory.sgm")
            positions, on = attribute(memory, "pose", 3)[:, 1::-1], partial(draw_map, doom_map=read_map(run))
            map_plots.memory_stages(path, on, positions, map_plots.stages_of(memory), FALSE, "map units")

        caption = f"{label('doom', method)}, seed {seed}: the memory before and after the k-nearest filter and cleanup."
        found.append(Figure(f"memory-{method.replace('+', '-')}", caption, draw, wide=True))
    return found


def _episode(run: RunFolder) -> Figure:
    files = run.files()
    seed = files.first("episode.json")

    def draw(path: Path) -> None:
        memory, trace = files.memory(seed, "ours/memory.sgm"), files.json(seed, "episode.json")
        positions, edges = attribute(memory, "pose", 3)[:, 1::-1], memory.edges()
        edges = map_plots.some(edges, edge_lengths(edges, positions) <= FALSE)
        seen, goal = plots.checked(trace["observations"], 3, "poses"), plots.checked([trace["goal"]], 3, "poses")
        trace = {**trace, "observations": seen[:, 1::-1], "goal": goal[0, 1::-1]}
        map_plots.episode(path, partial(draw_map, doom_map=read_map(run)), positions, edges, trace)

    caption = (
        f"One episode of ours, seed {seed}: the path of the agent and its plans, over the nodes and true edges of its "
        "memory."
    )
    return Figure("episode", caption, draw, wide=True)


def _curves(pooled: Sequence[Pooled]) -> list[plots.Curve]:
    groups = tables.by_group(pooled)
    several = len({group.environment for group in groups}) > 1
    found = []
    for group, items in groups.items():
        name = f"{group.label}, {printable(group.environment)}" if several else group.label
        last = items[-1].cleanup_steps
        quoted = [
            (steps, levels[-1].value / 100)
            for (method, steps), levels in paper.LEVELS.items()
            if method == group.method
        ]
        found.append(
            plots.curve(items, name, COLOURS[group.method], paper=[point for point in quoted if 0 < point[0] <= last])
        )
    return found


# -- numbers -----------------------------------------------------------------------------------------------------


def by_level(rows: Sequence[Row], level: str) -> list[Pooled]:
    """Pool the episodes of one level over seeds."""
    known = [(row, (row.get("levels") or {}).get(level) or {}) for row in rows]
    return tables.pool({**row, **result} for row, result in known if result.get("episodes"))


def steps_to_goal(path: Path, pooled: Sequence[Pooled], limit: int) -> None:
    """Plot mean steps of the successful episodes of each method, overall and by level, up to the step limit."""
    last = [tables.last_stages(items)[-1] for items in tables.by_group(pooled).values()]
    last = [item for item in last if item.mean_steps is not None]
    if not last:
        raise sgm.SGMError("no episode reached its goal")
    height = 0.5 * len(last) + 0.6
    figure, axes = plots.pyplot().subplots(figsize=(7.5, height))
    for place, item in enumerate(last):
        axes.barh(place, item.mean_steps, 0.62, color=COLOURS.get(item.method, plots.FAINT), alpha=0.75)
        look = {"color": "white", "fontsize": 9, "va": "center", "fontweight": "bold"}
        axes.text(0.015 * limit, place, f"{item.mean_steps:.0f}", **look)
        for level, marker in LEVELS.items():
            alone = by_level(item.rows, level)
            if alone and alone[0].mean_steps is not None:
                mark = {"marker": marker, "s": 36, "color": "white", "edgecolors": "black", "zorder": 3}
                axes.scatter(alone[0].mean_steps, place, label=level, **mark)
    axes.axvline(limit, color=plots.WALL, linewidth=1.2, linestyle=":", label="step limit of an episode")
    axes.set(xlim=(0, 1.02 * limit), ylim=(len(last) - 0.4, -0.6), xlabel="steps to the goal, successful episodes")
    after = [f"\n{item.cleanup_steps:,} cleanup steps" if item.cleanup_steps else "" for item in last]
    axes.set_yticks(range(len(last)), [item.group.label + text for item, text in zip(last, after, strict=True)])
    axes.tick_params(axis="y", length=0)
    plots.tidy(axes, "x")
    plots.legend_under(figure, np.array([axes]), 0.55)
    plots.save(figure, path)


# -- maps and images ---------------------------------------------------------------------------------------------


def read_map(run: RunFolder) -> DoomMap:
    """Read the map of a run."""
    return DoomMap.read(find_file(run.folder, "map.wad"))


def draw_floor_plan(path: Path, doom_map: DoomMap) -> None:
    """Draw the map, with a scale."""
    figure, axes = plots.pyplot().subplots(figsize=(6, 6.2))
    draw_map(axes, doom_map)
    (left, bottom), (_, top) = doom_map.bounds
    plots.draw_scale(axes, left, bottom - 0.045 * (top - bottom), FALSE, "map units")
    plots.save(figure, path)


def _arrow(axes: Any, doom_map: DoomMap, pose: Floats, share: float, name: str = "") -> None:
    """Draw an arrow whose length is this share of the map's size."""
    low, high = doom_map.bounds
    x, y, heading = pose
    plots.draw_arrow(axes, (x, y, np.radians(heading)), share * float((high - low).max()), plots.CUT, name)


def heat_map(path: Path, doom_map: DoomMap, data: Mapping[str, Any]) -> None:
    """Draw steps from one image to all observations: its pose, single images, windows of images, and thresholded."""
    poses, here = plots.checked(data["poses"], 3, "poses"), plots.checked([data["reference_pose"]], 3, "poses")[0]
    threshold = float(data["threshold"])
    single, window = (_steps(data[name], len(poses), name) for name in ("steps", "steps_window"))
    figure = plots.pyplot().figure(figsize=(16, 5.2))
    shape = {"width_ratios": (2.7, 4.4, 4.4, 4.4), "height_ratios": (2.15, 2.25, 0.14), "wspace": 0.04, "hspace": 0.06}
    grid = figure.add_gridspec(3, 4, left=0, right=1, bottom=0.09, top=0.94, **shape)
    image, place = (figure.add_subplot(grid[row, 0]) for row in (0, 1))
    panels = [figure.add_subplot(grid[:2, column]) for column in (1, 2, 3)]
    for axes in (place, *panels):
        draw_map(axes, doom_map)
    plots.draw_image(image, data["reference"], "reference image and its pose")
    _arrow(place, doom_map, here, 0.18)
    size = float(np.clip(40_000 / len(poses), 4, 20))
    shades = {"vmin": 0.0, "vmax": float(np.quantile(window, 0.98)), "cmap": "viridis", "linewidths": 0, "s": size}
    for axes, steps, title in zip(panels, (single, window), ("single images", "windows of images"), strict=False):
        order = np.argsort(-steps)
        dots = axes.scatter(*poses[order, :2].T, c=steps[order], **shades)
        axes.set_title(title, fontsize=11)
    bar = figure.colorbar(dots, cax=figure.add_subplot(grid[2, 1:3]), orientation="horizontal", extend="max")
    bar.set_label("steps from the reference image, by the learned distance")
    _draw_accepted(panels[2], poses, np.hypot(*(poses[:, :2] - here[:2]).T) > FALSE, window <= threshold, size)
    panels[2].set_title(f"windows, at most {threshold:.3g} steps", fontsize=11)
    ring = {"s": 80, "facecolors": "none", "edgecolors": "black", "linewidths": 1.5, "zorder": 5}
    for axes in panels:
        axes.scatter(*here[:2], **ring)
    plots.save(figure, path)


def _draw_accepted(axes: Any, poses: Floats, far: NDArray[np.bool_], close: NDArray[np.bool_], size: float) -> None:
    """Draw the observations within the threshold, with false ones marked."""
    axes.scatter(*poses[~close, :2].T, s=size / 2, color="#c9c8c3", linewidths=0, zorder=1)
    near = {"label": f"{(close & ~far).sum():,} near", "s": 14, "color": plots.NODE, "marker": "o"}
    false = {
        "label": f"{(close & far).sum():,} over {FALSE:.0f} units away",
        "s": 24,
        "color": plots.CUT,
        "marker": "X",
    }
    for chosen, look in ((close & ~far, near), (close & far, false)):
        axes.scatter(*poses[chosen, :2].T, linewidths=0, zorder=3, **look)
    plots.legend_below(axes, 2)


def _steps(steps: Any, number: int, name: str) -> Floats:
    values = np.asarray(steps, np.float64)
    if values.shape != (number,):
        raise sgm.InputError(f"{name} has shape {values.shape}: expected a number for each of {number} observations")
    return values


def waypoint_strip(path: Path, doom_map: DoomMap, data: Mapping[str, Any]) -> None:
    """Draw the numbered images along one plan in rows, the goal last, and above them the plan on the map."""
    images, way = np.asarray(data["strip"]), plots.checked(data["strip_poses"], 3, "poses")
    if len(images) != len(way):
        raise sgm.InputError(f"the strip has {len(images)} images and {len(way)} poses: expected as many of each")
    rows = -(-(len(images) + 1) // COLUMNS)
    figure = plots.pyplot().figure(figsize=(12, 4.8 + 1.35 * rows))
    above, below = figure.subfigures(2, 1, height_ratios=(4.8, 1.35 * rows))
    whole, detail = above.subplots(1, 2, gridspec_kw={"wspace": 0.06, "left": 0.02, "right": 0.98, "bottom": 0.03})
    _draw_plan(whole, detail, doom_map, way)
    shape = {"left": 0.01, "right": 0.99, "top": 0.92, "bottom": 0.02, "wspace": 0.06, "hspace": 0.28}
    panels = below.subplots(rows, COLUMNS, squeeze=False, gridspec_kw=shape)
    for axes in panels.flat[len(images) + 1 :]:
        axes.set_axis_off()
    for number, (axes, image) in enumerate(zip(panels.flat, images, strict=False), start=1):
        plots.draw_image(axes, image, str(number))
    plots.draw_image(panels.flat[len(images)], data["strip_goal"], "goal", plots.PLANS[1])
    plots.save(figure, path)


def _draw_plan(whole: Any, detail: Any, doom_map: DoomMap, way: Floats) -> None:
    """Draw a plan on the whole map, and the part of the map around it with numbered waypoints."""
    for axes in (whole, detail):
        draw_map(axes, doom_map)
        plots.draw_path(axes, way[:, 1::-1], plots.PLANS[0], "plan", markersize=3, linewidth=1.6)
    half = map_plots.magnify(whole, detail, way[:, 1::-1], FALSE)
    for number, (x, y, heading) in enumerate(way, start=1):
        plots.draw_arrow(detail, (x, y, np.radians(heading)), 0.14 * half, plots.NODE, str(number))
    whole.set_title("the plan on the map", fontsize=11)
    detail.set_title("its waypoints, with the headings of their images", fontsize=11)


def aliased(path: Path, doom_map: DoomMap, data: Mapping[str, Any]) -> None:
    """Draw two images that are close by the distance, and the places where they were taken."""
    ends = plots.checked(data["alias_poses"], 3, "poses")
    figure, panels = plots.pyplot().subplots(1, 3, figsize=(14, 4.8), gridspec_kw={"wspace": 0.05})
    draw_map(panels[1], doom_map)
    panels[1].plot(*ends[:, :2].T, color=plots.CUT, linewidth=1.8, linestyle="--", zorder=4)
    for axes, image, pose, name in zip(panels[::2], data["alias"], ends, "AB", strict=True):
        plots.draw_image(axes, image, f"image {name}")
        _arrow(panels[1], doom_map, pose, 0.09, name)
    steps, apart = float(data["alias_steps"]), float(data["alias_apart"])
    panels[1].set_title(f"{steps:.2g} steps by the distance, {apart:,.0f} map units apart", fontsize=12)
    plots.save(figure, path)
