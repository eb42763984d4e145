"""Figures of a SafetyGym run: rooms, success and its causes, memories, similar images, an episode.

Poses are (x, y, heading), metres and radians; shares are 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import sgm
from sgm.benchmarks import label, map_plots, paper, plots, tables
from sgm.benchmarks.ground_truth import edge_lengths
from sgm.benchmarks.page import Figure, band
from sgm.benchmarks.runs import Files, RunFolder, attribute
from sgm.benchmarks.tables import Pooled, Row
from sgm.errors import printable

from .ground_truth import FALSE
from .settings import METHODS, POLICIES

if TYPE_CHECKING:
    from sgm.envs.safety.layouts import Layout

COLOURS = {"consptm": "#c2570c", "uniform": "#8a8f98", "two-way": plots.NODE, "both": "#4fa3d9"}  # of success
MARKERS = {"consptm": "s", "uniform": "^", "two-way": "o", "both": "v"}
MEMORY = ("two-way", "both")  # the first of these methods that was run is drawn over the floor plan
DRAWN_POLICIES = ("first-failure", "belief")
BEFORE = "before cleanup"
STAGES = {
    BEFORE: "#b4b7bb",
    "first-failure": "#c2570c",
    "second-failure": "#e3b23c",
    "belief": plots.NODE,
    "guarded": "#4fa3d9",
}
MISPLACED = {"starts": "#7b4fa0", "goals": "#c3aad6"}

Floats = NDArray[np.float64]


def rooms(run: RunFolder, layout: int) -> Figure:
    """Figure of the floor plan, with views if there are any."""
    files = run.files(layout=layout)
    data = _figure_data(files, {})
    caption = f"Layout {layout} from above: walls with the colours of their textures, pillars, hazards in pink."
    caption += " Right: what the robot sees at the numbered poses." if "views" in data else ""
    return Figure(
        f"rooms-layout{layout}",
        caption,
        lambda path: draw_rooms(path, read_layout(layout), data.get("views", ()), data.get("view_poses", ())),
        wide="views" in data,
    )


def figures(run: RunFolder, layout: int) -> list[Figure]:
    """All other figures of a layout."""
    rows, files = [row for row in run.rows if row["layout"] == layout], run.files(layout=layout)
    found = [*_numbers(files, rows), *_memory(files, layout), *_similarity(files, layout), *_episode(files, layout)]
    return [figure._replace(name=f"{figure.name}-layout{layout}") for figure in found]


def read_layout(number: int) -> Layout:
    """Layout of rooms with this number."""
    from sgm.envs.safety.layouts import generate

    return generate(number)


def _draw_layout(axes: Any, layout: Layout, textures: bool = False) -> None:
    from sgm.envs.safety.drawing import draw_layout

    draw_layout(axes, layout, textures=textures)


def _figure_data(files: Files, otherwise: dict[str, Any]) -> dict[str, Any]:
    """Arrays of the first seed that has images; `otherwise` if they cannot be read."""
    try:
        return files.arrays(files.first("images.npz"), "images.npz")
    except sgm.SGMError:
        return otherwise


# -- figures and their data --------------------------------------------------------------------------------------


def _numbers(files: Files, rows: Sequence[Row]) -> list[Figure]:
    pooled = tables.pool(rows)
    curves, agent = _curves(pooled), next((item.group.agent for item in pooled), "plain")
    return [
        Figure(
            "success",
            f"Success against cleanup steps, a column for each cleanup policy. {band(pooled)} Below: the share of "
            "nodes in the largest strongly connected component, mean over seeds; where it falls, cleanup "
            "disconnects the memory.",
            lambda path: plots.success_curves(path, curves),
            wide=len({policy for policy, _ in curves}) > 1,
        ),
        Figure(
            "reasons",
            f"Causes: faults of the memory of each method before and after cleanup, and success of the {agent} agent; "
            f"black: the paper's success. False edges join places over {FALSE:g} m apart; red: share of nodes "
            "connected without false edges, the best possible result of cleanup. Misplaced: the node nearest to a "
            f"start or goal by the learned distance is over {FALSE:g} m away; cleanup does not change this. Means "
            "over seeds.",
            lambda path: draw_reasons(path, _states(pooled, agent)),
            wide=True,
        ),
        Figure(
            "lengths",
            "True lengths of the edges of each memory, all seeds pooled, before and after cleanup. Right of the dotted "
            f"line, over {FALSE:g} m, an edge is false: its ends look alike but are far apart.",
            lambda path: plots.edge_lengths(path, _lengths(files, rows), STAGES, FALSE, "m"),
            wide=True,
        ),
    ]


def _curves(pooled: Sequence[Pooled]) -> dict[tuple[str, str], list[plots.Curve]]:
    """Curves by policy and agent. The paper's SGM corresponds to two of our methods and is marked once."""
    groups = {group: items for group, items in tables.by_group(pooled).items() if group.method in COLOURS}
    methods = {group.method for group in groups}
    found: dict[tuple[str, str], list[plots.Curve]] = {}
    for group, items in groups.items():
        if len(items) < 2:
            continue
        marked = group.method != "both" or "two-way" not in methods
        curve = plots.curve(
            items,
            group.label,
            COLOURS[group.method],
            marker=MARKERS[group.method],
            paper=paper.final("safety", group.method) if marked else (),
            connected=[item.share_of_nodes("largest_part") for item in items],
        )
        found.setdefault((printable(group.policy), printable(f"{group.agent} agent")), []).append(curve)
    return found


def _states(pooled: Sequence[Pooled], agent: str) -> dict[str, dict[str, Pooled]]:
    """Stages of one agent, by method: before cleanup, and after cleanup by policy."""
    groups = {group: items for group, items in tables.by_group(pooled).items() if group.agent == agent}
    found: dict[str, dict[str, Pooled]] = {}
    for method in sorted({group.method for group in groups}, key=METHODS.index):
        found[method] = {}
        for group, items in groups.items():
            stages = {BEFORE: tables.stage(items, "initial"), group.policy: tables.stage(items, "cleaned")}
            for name, item in stages.items():
                if item is not None and group.method == method:
                    found[method].setdefault(name, item)
    return found


def _stages(files: Files, seed: int, method: str) -> dict[str, str]:
    """Existing memory files of a method: before cleanup, and after cleanup by policy."""
    known = {BEFORE: f"{method}/built.sgm", **{policy: f"{method}/{policy}/memory.sgm" for policy in POLICIES}}
    return {stage: name for stage, name in known.items() if files.has(seed, name)}


def _lengths(files: Files, rows: Sequence[Row]) -> dict[str, dict[str, Floats]]:
    """True lengths of edges by method and stage, all seeds pooled."""
    found: dict[str, dict[str, Floats]] = {}
    for method in sorted({row["method"] for row in rows}, key=METHODS.index):
        lengths: dict[str, list[Floats]] = {}
        for seed in files.seeds:
            for stage, name in _stages(files, seed, method).items():
                memory = files.memory(seed, name)
                lengths.setdefault(stage, []).append(edge_lengths(memory.edges(), attribute(memory, "pose", 3)))
        found[label("safety", method)] = {stage: np.concatenate(each) for stage, each in lengths.items()}
    return found


def _memory(files: Files, layout: int) -> list[Figure]:
    """Figure of the memory of the first available method and seed."""
    known = [(method, seed) for method in (*MEMORY, *METHODS) for seed in files.seeds if _stages(files, seed, method)]
    if not known:
        return []
    method, seed = known[0]
    stages = _stages(files, seed, method)
    after = [stage for stage in stages if stage in DRAWN_POLICIES] or [stage for stage in stages if stage != BEFORE][:1]

    def draw(path: Path) -> None:
        built = files.memory(seed, f"{method}/built.sgm")
        drawn = [map_plots.Stage(BEFORE, built.edges())]
        drawn += [map_plots.Stage(f"after cleanup, {name}", files.memory(seed, stages[name]).edges()) for name in after]
        on, positions = partial(_draw_layout, layout=read_layout(layout)), attribute(built, "pose", 3)[:, 1::-1]
        map_plots.memory_stages(path, on, positions, drawn, FALSE, "m")

    caption = (
        f"{label('safety', method)}, seed {seed}: the memory over the floor plan before and after cleanup. Edges are "
        "drawn as straight lines, even where the path is not straight."
    )
    return [Figure("memory", caption, draw, wide=True)]


def _similarity(files: Files, layout: int) -> list[Figure]:
    seed = files.first("images.npz")
    data = _figure_data(files, {"reference": 0})
    if not files.has(seed, "images.npz") or "reference" not in data:
        return []
    caption = (
        "Images that pass the perceptual check with a reference image, and images that pass the two-way check, most "
        f"similar first, with their true distance and difference in heading, seed {seed}. Framed and crossed: false "
        f"matches, over {FALSE:g} m away.{_sampled(data)}"
    )

    def draw(path: Path) -> None:
        draw_similarity(path, read_layout(layout), files.arrays(seed, "images.npz", "reference_pose"))

    return [Figure("similarity", caption, draw, wide=True)]


def _sampled(data: Mapping[str, Any]) -> str:
    """Sentence with the share of false matches over many references; empty if it cannot be read."""
    try:
        texts = [
            f"{100 * false / passed:.1f} % of {passed:,} matches of the {name} check are false"
            for name in ("perceptual", "two-way")
            if f"{name}_sample" in data
            for passed, false in [(int(count) for count in data[f"{name}_sample"])]
            if passed
        ]
        return f" Over {int(data['references']):,} random references: {', '.join(texts)}." if texts else ""
    except (ValueError, TypeError, LookupError, ArithmeticError):  # the figure itself says what is wrong
        return ""


def _episode(files: Files, layout: int) -> list[Figure]:
    seed = files.first("episode.json")
    if not files.has(seed, "episode.json"):
        return []

    def draw(path: Path) -> None:
        trace = files.json(seed, "episode.json")
        if trace["method"] not in METHODS:
            raise sgm.StoreError(f"episode.json is of method {trace['method']!r:.80}; accepted: {', '.join(METHODS)}")
        if not trace["cuts"]:
            raise sgm.SGMError("no episode was found in which an edge failed")
        memory = files.memory(seed, f"{trace['method']}/built.sgm")
        positions, edges = attribute(memory, "pose", 3)[:, 1::-1], memory.edges()
        edges = map_plots.some(edges, edge_lengths(edges, positions) <= FALSE)
        seen, goal = (np.asarray(trace[name], np.float64) for name in ("observations", "goal"))
        trace = {**trace, "observations": seen[:, 1::-1], "goal": goal[1::-1]}
        map_plots.episode(path, partial(_draw_layout, layout=read_layout(layout)), positions, edges, trace)

    caption = (
        f"An episode with cleanup, seed {seed}: the robot cannot pass an edge (crossed out), removes it and plans "
        "again. Small numbers: steps. Background: nodes and true edges of the memory."
    )
    return [Figure("episode", caption, draw, wide=True)]


# -- drawing -----------------------------------------------------------------------------------------------------


def draw_rooms(path: Path, layout: Layout, views: ArrayLike = (), poses: ArrayLike = ()) -> None:
    """Draw the rooms from above and, if given, (n, 64, 64, 3) views from (n, 3) poses."""
    images, seen_from = np.asarray(views), np.asarray(poses, np.float64).reshape(-1, 3)
    if len(images) != len(seen_from):
        raise sgm.InputError(f"there are {len(images)} views from {len(seen_from)} poses: expected as many of each")
    columns = -(-len(images) // 2)
    figure = plots.pyplot().figure(figsize=(5.2 + 2.35 * columns, 5.2))
    shape = {"width_ratios": [5.2] + [2.35] * columns, "wspace": 0.06, "hspace": 0.1}
    grid = figure.add_gridspec(2 if columns else 1, 1 + columns, **shape)
    plan = figure.add_subplot(grid[:, 0])
    _draw_layout(plan, layout, textures=True)
    plots.draw_scale(plan, 0, -0.2, 1, "m")
    for number, (image, pose) in enumerate(zip(images, seen_from, strict=True)):
        plots.draw_image(figure.add_subplot(grid[number // columns, 1 + number % columns]), image, str(number + 1))
        plots.draw_arrow(plan, pose, 0.4, plots.TRACK, str(number + 1))
    plots.save(figure, path)


def draw_reasons(path: Path, methods: Mapping[str, Mapping[str, Pooled]]) -> None:
    """Draw bars for each method and stage: false edges, connectivity, misplaced starts and goals, success."""
    if not methods:
        raise sgm.SGMError("no method was evaluated")
    states = [name for name in STAGES if any(name in known for known in methods.values())]
    size = (13, 0.24 * (len(states) + 1) * len(methods) + 0.9)
    figure, panels = plots.pyplot().subplots(1, 4, figsize=size, sharey=True, gridspec_kw={"wspace": 0.12})
    for row, (method, known) in enumerate(methods.items()):
        for name, place, height in _places(row, states):
            if item := known.get(name):
                _draw_bar(panels[0], place, height, item.mean("false_edges"), STAGES[name], name)
                _draw_bar(panels[1], place, height, item.share_of_nodes("largest_part"), STAGES[name], name)
                _draw_bar(panels[3], place, height, item.rate, STAGES[name], name, item.ci95)
                _draw_tick(panels[3], place, height, paper.ablation(method)[name != BEFORE], "black", "paper")
            if item and name == BEFORE and (best := item.share_of_nodes("true_part")) is not None:
                _draw_tick(panels[1], place, height, paper.Quoted(100 * best), "#c0392b", "w/o false edges")
        for name, place, height in _places(row, list(MISPLACED)):
            share = next((share for item in known.values() if (share := item.mean(f"false_{name}")) is not None), None)
            _draw_bar(panels[2], place, height, share, MISPLACED[name], f"{name} misplaced")
    titles = (
        f"false edges, %\nover {FALSE:g} m long",
        "connected, %\nof nodes, largest component",
        f"misplaced, %\nnearest node over {FALSE:g} m away",
        "success, %\nwith 95 % interval",
    )
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize=11)
        axes.tick_params(axis="y", length=0)
        plots.tidy(axes, "x")
        axes.margins(x=0)
        axes.set_xlim(0, 118 if axes in panels[[1, 3]] else 1.25 * max(axes.get_xlim()[1], 4))
        axes.xaxis.set_major_locator(plots.pyplot().MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    labels = [label("safety", method).replace(" and ", "\nand ") for method in methods]
    panels[0].set_yticks(range(len(methods)), labels, fontsize=11)
    panels[0].set_ylim(len(methods) - 0.5, -0.5)
    plots.legend_under(figure, panels, 0.35)
    plots.save(figure, path)


def _places(row: int, names: Sequence[str]) -> list[tuple[str, float, float]]:
    """Name, position and height of each bar of a method."""
    height = 0.8 / len(names)
    return [(name, row - 0.4 + height * (number + 0.5), height) for number, name in enumerate(names)]


def _draw_bar(
    axes: Any,
    place: float,
    height: float,
    share: float | None,
    colour: str,
    name: str,
    interval: tuple[float, float] | None = None,
) -> None:
    """Draw a horizontal bar with its interval and its number, percent, if the share is known."""
    if share is None:
        return
    axes.barh(place, 100 * share, 0.9 * height, color=colour, label=name)
    if interval:
        axes.plot([100 * end for end in interval], [place, place], color="#6b6f75", linewidth=1.4, zorder=3)
    text = f"{100 * share:.1f}" if share < 0.0995 else f"{100 * share:.0f}"
    end = 100 * (interval[1] if interval else share)
    axes.annotate(text, (end, place), (4, 0), textcoords="offset points", va="center", fontsize=8.5)


def _draw_tick(axes: Any, place: float, height: float, value: paper.Quoted | None, colour: str, name: str) -> None:
    """Draw a line across a bar at a number of percent, if there is one."""
    if value is not None:
        look = {"color": colour, "linewidth": 2.2, "zorder": 4, "solid_capstyle": "butt", "label": name}
        axes.plot([value.value] * 2, [place - 0.45 * height, place + 0.45 * height], **look)


def draw_similarity(path: Path, layout: Layout, data: Mapping[str, Any]) -> None:
    """Draw a reference image and its pose, with the images that pass the perceptual and the two-way check.

    Args:
        path: file of the figure.
        layout: layout of the rooms.
        data: arrays of images.npz: "reference", "reference_pose" and, for "perceptual" and "two-way" each, "_images",
            "_poses", "_apart" (m), "_turned" (degrees) and "_passed" (all, false ones).
    """
    checks = [name for name in ("perceptual", "two-way") if f"{name}_images" in data]
    figure = plots.pyplot().figure(figsize=(2.6 + 5.4 * len(checks), 5.0))
    left, *others = figure.subfigures(1, 1 + len(checks), width_ratios=[2.6] + [5.4] * len(checks), squeeze=False)[0]
    shape = {"left": 0.04, "right": 0.96, "top": 0.9, "bottom": 0.03, "hspace": 0.06}
    image, plan = left.subplots(2, 1, gridspec_kw=shape)
    plots.draw_image(image, data["reference"], "reference", plots.TRACK)
    _draw_layout(plan, layout)
    for name, part, marker, colour in zip(checks, others, "os", (plots.PLANS[0], plots.NODE), strict=False):
        poses = np.asarray(data[f"{name}_poses"], np.float64).reshape(-1, 3)
        look = {"marker": marker, "s": 26, "facecolors": "none", "edgecolors": colour, "linewidths": 1.4, "zorder": 4}
        plan.scatter(*poses[:, :2].T, **look, label=name)
        _draw_matches(part, name, data)
    plots.draw_arrow(plan, data["reference_pose"], 0.4, plots.TRACK)
    plots.legend_below(plan, 2)
    plots.save(figure, path)


def _draw_matches(part: Any, name: str, data: Mapping[str, Any]) -> None:
    """Draw up to twelve images, with the false ones framed."""
    passed, false = (int(number) for number in data[f"{name}_passed"])
    part.suptitle(f"pass the {name} check: {passed:,}, of which {false:,} false", fontsize=12, y=0.985)
    shape = {"left": 0.02, "right": 0.98, "top": 0.885, "bottom": 0.01, "wspace": 0.1, "hspace": 0.22}
    panels = part.subplots(3, 4, gridspec_kw=shape)
    images, apart, turned = (data[f"{name}_{what}"] for what in ("images", "apart", "turned"))
    for axes in panels.flat[len(apart) :]:
        axes.set_axis_off()
    for axes, image, metres, degrees in zip(panels.flat, images, apart, turned, strict=False):
        wrong = metres > FALSE
        title = f"{'✗ ' if wrong else ''}{metres:.2f} m, {degrees:.0f}°"
        plots.draw_image(axes, image, title, plots.CUT if wrong else None)
