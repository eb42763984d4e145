"""The pictures of a SafetyGym run: rooms, memories over the floor plan, what looks alike, and an episode.

Places are (x, y, heading) in metres and radians.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import sgm
from sgm.benchmarks import plots

from .ground_truth import FALSE, edge_lengths, largest_part

if TYPE_CHECKING:
    from sgm.envs.safety.layouts import Layout

FAINT = "#a9adb3"

Floats = NDArray[np.float64]


def rooms(path: Path, layout: Layout, views: ArrayLike = (), poses: ArrayLike = ()) -> None:
    """The rooms from above and, if there are any, (n, 64, 64, 3) views from (n, 3) places in it."""
    pictures, places = np.asarray(views), np.asarray(poses, np.float64).reshape(-1, 3)
    if len(pictures) != len(places):
        raise sgm.SGMError(f"there are {len(pictures)} views from {len(places)} places: expected as many of each")
    columns = -(-len(pictures) // 2)
    figure = plots.pyplot().figure(figsize=(5.2 + 2.35 * columns, 5.2))
    shape = {"width_ratios": [5.2] + [2.35] * columns, "wspace": 0.06, "hspace": 0.1}
    grid = figure.add_gridspec(2 if columns else 1, 1 + columns, **shape)
    plan = figure.add_subplot(grid[:, 0])
    _plan(plan, layout, textures=True)
    plan.plot([0, 1], [-0.2, -0.2], color=plots.WALL, linewidth=3, solid_capstyle="butt", clip_on=False)
    plan.text(1.1, -0.2, "1 m", va="center", fontsize=10, color=plots.WALL)
    for number, (picture, place) in enumerate(zip(pictures, places, strict=True)):
        axes = figure.add_subplot(grid[number // columns, 1 + number % columns])
        plots.draw_picture(axes, picture)
        axes.set_title(str(number + 1), fontsize=11, pad=3)
        _arrow(plan, place, plots.TRACK)
        badge = {"boxstyle": "circle,pad=0.2", "facecolor": "white", "edgecolor": plots.TRACK}
        plan.text(*place[:2], str(number + 1), fontsize=9, ha="center", va="center", bbox=badge, zorder=7)
    plots.save(figure, path)


def memory_stages(path: Path, layout: Layout, places: ArrayLike, stages: Sequence[tuple[str, sgm.Edges]]) -> None:
    """The edges of a memory over the floor plan at each stage, false ones in colour, nodes that are cut off hollow."""
    nodes = _checked(places)
    shape = {"figsize": (5.0 * len(stages), 5.6), "squeeze": False, "gridspec_kw": {"wspace": 0.03}}
    figure, panels = plots.pyplot().subplots(1, len(stages), **shape)
    for axes, (stage, edges) in zip(panels[0], stages, strict=True):
        _plan(axes, layout)
        false = edge_lengths(edges, nodes) > FALSE
        apart = ~largest_part(len(nodes), edges)
        look: dict[str, Any] = {"rasterized": True, "linewidths": 0.5, "zorder": 1.5}
        plots.draw_edges(
            axes, nodes[:, 1::-1], plots.some(edges, ~false), FAINT, alpha=plots.ink(~false, 6_000), **look
        )
        look |= {"linewidths": 0.6, "zorder": 2}
        plots.draw_edges(
            axes, nodes[:, 1::-1], plots.some(edges, false), plots.CUT, alpha=plots.ink(false, 300), **look
        )
        size = float(np.clip(9_000 / len(nodes), 4, 14))
        axes.scatter(*nodes[~apart, :2].T, s=size, color=plots.NODE, linewidths=0, zorder=3)
        ring = {"facecolors": "white", "edgecolors": plots.NODE, "linewidths": 0.9}
        axes.scatter(*nodes[apart, :2].T, s=1.5 * size, **ring, zorder=3.1)
        share = f", {100 * false.mean():.1f} % false" if len(false) else ""
        axes.set_title(f"{stage}\n{len(false):,} edges{share}, {100 * (1 - apart.mean()):.0f} % connected", fontsize=11)
    _legend_of_edges(figure)
    plots.save(figure, path)


def _legend_of_edges(figure: Any) -> None:
    line = plots.pyplot().Line2D
    dot = {"linestyle": "", "marker": "o", "color": plots.NODE, "markersize": 5}
    handles = [
        line([], [], color=FAINT, label=f"edge up to {FALSE:g} m"),
        line([], [], color=plots.CUT, label=f"false edge, over {FALSE:g} m"),
        line([], [], **dot, label="node"),
        line([], [], **dot, markerfacecolor="white", label="node outside the largest part"),
    ]
    figure.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.14), ncol=4, frameon=False, fontsize=10)


def similarity(path: Path, layout: Layout, data: Mapping[str, Any]) -> None:
    """A picture and its place; beside it those that pass the perceptual and those that pass the two-way check.

    Args:
        path: of the picture.
        layout: of the rooms.
        data: what `safety_evidence` stores: "reference", "reference_pose" and, for "perceptual" and "two-way" each,
            "_pictures", "_poses", "_apart" (m), "_turned" (degrees) and "_passed" (all, false ones).
    """
    checks = [name for name in ("perceptual", "two-way") if f"{name}_pictures" in data]
    figure = plots.pyplot().figure(figsize=(2.6 + 5.4 * len(checks), 5.0))
    left, *others = figure.subfigures(1, 1 + len(checks), width_ratios=[2.6] + [5.4] * len(checks), squeeze=False)[0]
    picture, plan = left.subplots(
        2, 1, gridspec_kw={"left": 0.04, "right": 0.96, "top": 0.9, "bottom": 0.03, "hspace": 0.06}
    )
    plots.draw_picture(picture, data["reference"], plots.TRACK)
    picture.set_title("reference", fontsize=11)
    _plan(plan, layout)
    for name, part, marker, colour in zip(checks, others, "os", (plots.PLANS[0], plots.NODE), strict=False):
        apart, poses = (np.asarray(data[f"{name}_{what}"], np.float64) for what in ("apart", "poses"))
        look = {"marker": marker, "s": 26, "facecolors": "none", "edgecolors": colour, "linewidths": 1.4, "zorder": 4}
        plan.scatter(*poses.reshape(-1, 3)[:, :2].T, **look, label=name)
        _matches(part, name, data, apart)
    plan.scatter(*np.asarray(data["reference_pose"])[:2], s=14, color=plots.TRACK, zorder=5)
    _arrow(plan, np.asarray(data["reference_pose"], np.float64), plots.TRACK)
    plan.legend(loc="upper center", bbox_to_anchor=(0.5, 0.01), ncol=2, frameon=False, fontsize=9, handletextpad=0.1)
    plots.save(figure, path)


def _matches(part: Any, name: str, data: Mapping[str, Any], apart: Floats) -> None:
    """Up to twelve pictures, the false ones framed."""
    passed, false = (int(number) for number in data[f"{name}_passed"])
    part.suptitle(f"pass the {name} check: {passed:,}, of which {false:,} false", fontsize=12, y=0.985)
    shape = {"left": 0.02, "right": 0.98, "top": 0.885, "bottom": 0.01, "wspace": 0.1, "hspace": 0.22}
    panels = part.subplots(3, 4, gridspec_kw=shape)
    for axes in panels.flat[len(apart) :]:
        axes.set_axis_off()
    turned = np.asarray(data[f"{name}_turned"], np.float64)
    for axes, seen, metres, degrees in zip(panels.flat, data[f"{name}_pictures"], apart, turned, strict=False):
        wrong = metres > FALSE
        plots.draw_picture(axes, seen, plots.CUT if wrong else None)
        look = {"color": plots.CUT, "fontweight": "bold"} if wrong else {}
        axes.set_title(f"{'✗ ' if wrong else ''}{metres:.2f} m, {degrees:.0f}°", fontsize=9.5, pad=3, **look)


def episode(path: Path, layout: Layout, places: ArrayLike, edges: sgm.Edges, trace: Mapping[str, Any]) -> None:
    """An episode in which an edge failed: until then on the left, and from the next plan on on the right.

    Args:
        path: of the picture.
        layout: of the rooms.
        places: (V, 3) of the nodes.
        edges: those that the memory had before the episode.
        trace: `Trace.asdict()` over poses.
    """
    if not trace["cuts"]:
        raise sgm.SGMError("no episode was found in which an edge failed")
    nodes, way = _checked(places), _checked(trace["observations"])
    goal = np.asarray(trace["goal"], np.float64)[:2]
    cut = main_cut(trace["cuts"])
    turn = min(int(cut["step"]), len(way) - 1)
    before = next((plan for plan in reversed(trace["plans"]) if plan["step"] < cut["step"]), None)
    after = next((plan for plan in trace["plans"] if plan["step"] >= cut["step"]), None)
    parts = (
        (before, way[: turn + 1], plots.PLANS[0], [item for item in trace["cuts"] if item["step"] <= cut["step"]]),
        (after, way[turn:], plots.PLANS[1], [item for item in trace["cuts"] if item["step"] >= cut["step"]]),
    )
    figure, panels = plots.pyplot().subplots(1, 2, figsize=(12, 6.3), gridspec_kw={"wspace": 0.03})
    true = plots.some(edges, edge_lengths(edges, nodes) <= FALSE)
    for axes, (plan, taken, colour, cuts) in zip(panels, parts, strict=True):
        _plan(axes, layout)
        plots.draw_edges(axes, nodes[:, 1::-1], true, FAINT, alpha=0.35, rasterized=True, zorder=1.4)
        axes.scatter(*nodes[:, :2].T, s=5, color=FAINT, linewidths=0, zorder=1.5)
        plots.draw_path(axes, way[:, 1::-1], plots.TRACK, "", marker=None, linewidth=1, alpha=0.25, zorder=3)
        if plan is not None:
            begin = way[min(int(plan["step"]), len(way) - 1), :2]
            line = np.concatenate([begin[None], nodes[np.asarray(plan["nodes"], int), :2], goal[None]])
            style = {"linewidth": 3.6, "markersize": 5, "linestyle": (0, (2, 0.8)) if plan is before else "-"}
            plots.draw_path(axes, line[:, ::-1], colour, f"plan at step {plan['step']}", **style)
        plots.draw_path(axes, taken[:, 1::-1], plots.TRACK, "way taken", marker=None, linewidth=1.5, zorder=4.5)
        _failed(axes, nodes, cuts)
        _numbers(axes, way, range(turn + 1) if plan is before else range(turn, len(way)))
        plots.draw_ends(axes, way[0, 1::-1], goal[::-1])
        plots.legend_below(axes, 3)
    panels[0].set_title(f"steps 0 to {turn}: an edge that cannot be passed", fontsize=12)
    outcome = "goal reached" if trace["success"] else "goal not reached"
    panels[1].set_title(f"steps {turn} to {len(way):,}: another way, {outcome}", fontsize=12)
    plots.save(figure, path)


def main_cut(cuts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The cut that says most: of an edge through a wall, the longest one."""
    return max(cuts, key=lambda cut: (cut.get("blocked", False), cut.get("length", 0.0)))


def _failed(axes: Any, nodes: Floats, cuts: Sequence[Mapping[str, Any]]) -> None:
    ends = np.array([(cut["u"], cut["v"]) for cut in cuts], int).reshape(-1, 2)
    failed = sgm.Edges(ends[:, 0], ends[:, 1], np.zeros(len(ends), np.float32))
    plots.draw_failed(axes, nodes[:, 1::-1], failed, "edge removed" if len(ends) == 1 else f"{len(ends)} edges removed")


def _numbers(axes: Any, way: Floats, steps: range) -> None:
    """Step numbers along the way, some six in a panel, and where the panel begins and ends."""
    apart = next(size for size in (5, 10, 20, 25, 50, 100, 1_000_000) if len(steps) <= 7 * size)
    chosen = [step for step in steps if step and (step % apart == 0 or step == steps[0]) and step < len(way)]
    box = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    for step in chosen:
        axes.scatter(*way[step, :2], s=16, color=plots.TRACK, zorder=5)
        look = {"textcoords": "offset points", "fontsize": 8.5, "color": plots.TRACK, "bbox": box, "zorder": 5.2}
        axes.annotate(str(step), way[step, :2], (6, 5), **look)


# -- parts -------------------------------------------------------------------------------------------------------


def _plan(axes: Any, layout: Layout, textures: bool = False) -> None:
    from sgm.envs.safety.drawing import draw_layout

    draw_layout(axes, layout, textures=textures)
    axes.set(xticks=[], yticks=[])


def _arrow(axes: Any, place: Floats, colour: str, metres: float = 0.4) -> None:
    """A place and the way it looks."""
    x, y, heading = place
    tip = x + metres * np.cos(heading), y + metres * np.sin(heading)
    axes.annotate("", tip, (x, y), arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2}, zorder=6)


def _checked(places: ArrayLike) -> Floats:
    values = np.asarray(places, np.float64)
    if values.ndim != 2 or values.shape[1] < 2 or not len(values) or not np.isfinite(values).all():
        raise sgm.InputError(f"got places of shape {values.shape}: expected finite (n, 3), x, y and heading")
    return values
