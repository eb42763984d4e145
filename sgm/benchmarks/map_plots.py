"""Figures of a memory and of an episode over a map; each benchmark gives its own background.

Positions are (n, 2) with the vertical coordinate first, as in `plots`. `draw_map(axes)` is a function that draws the
background and sets its limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sgm

from .ground_truth import edge_lengths, largest_component
from .plots import (
    CUT,
    EDGE,
    FAINT,
    FALSE_EDGE,
    NODE,
    PLANS,
    TRACK,
    Floats,
    checked,
    draw_edges,
    draw_ends,
    draw_nodes,
    draw_path,
    legend_below,
    legend_under,
    pyplot,
    save,
)

DrawMap = Callable[[Any], None]


class Stage(NamedTuple):
    """Edges of a memory at some stage, and the edges removed before it."""

    title: str
    edges: sgm.Edges
    removed: sgm.Edges | None = None


def stages_of(memory: sgm.SparseGraphicalMemory) -> list[Stage]:
    """A memory before the k-nearest filter, after it and, if any edge was removed, after cleanup."""
    removed, standing = memory.removed(), memory.edges()
    stages = [
        Stage("before the k-nearest filter", joined(memory.edges(filtered=False), removed)),
        Stage("filtered", joined(standing, removed)),
    ]
    return [*stages, Stage("after cleanup", standing, removed)] if len(removed.source) else stages


def joined(first: sgm.Edges, second: sgm.Edges) -> sgm.Edges:
    """Concatenate two sets of edges."""
    source, target, weight = (np.concatenate([first[column], second[column]]) for column in range(3))
    return sgm.Edges(source, target, weight)


def some(edges: sgm.Edges, chosen: NDArray[np.bool_]) -> sgm.Edges:
    """Edges selected by a boolean mask."""
    return sgm.Edges(edges.source[chosen], edges.target[chosen], edges.weight[chosen])


# -- a memory ---------------------------------------------------------------------------------------------------------


def memory_stages(
    path: Path,
    draw_map: DrawMap,
    positions: NDArray[Any],
    stages: Sequence[Stage],
    limit: float = np.inf,
    unit: str = "",
) -> None:
    """Draw a memory over a map at each stage, and highlight false edges, removed edges and disconnected nodes.

    Args:
        path: file of the figure.
        draw_map: draws the background.
        positions: (V, 2) positions of the nodes.
        stages: stages, one for each panel.
        limit: length above which an edge is false.
        unit: unit of positions.
    """
    nodes = checked(positions, 2, "positions of nodes")
    shape = {"figsize": (5.1 * len(stages), 5.8), "squeeze": False, "gridspec_kw": {"wspace": 0.03}}
    figure, panels = pyplot().subplots(1, len(stages), **shape)
    for axes, stage in zip(panels[0], stages, strict=True):
        draw_map(axes)
        _draw_stage(axes, nodes, stage, limit)
    legend_under(figure, panels, 0.1, _stage_handles(stages, limit, unit))
    save(figure, path)


def _draw_stage(axes: Any, nodes: Floats, stage: Stage, limit: float) -> None:
    false, inside = edge_lengths(stage.edges, nodes) > limit, largest_component(len(nodes), *stage.edges[:2])
    for chosen, colour, most, style in (
        (~false, EDGE, 6_000, {"zorder": 1.5}),
        (false, FALSE_EDGE, 400, {"zorder": 2, "linewidths": 0.7}),
    ):
        draw_edges(axes, nodes, some(stage.edges, chosen), colour, alpha=_opacity(chosen.sum(), most), **style)
    words = [f"{len(false):,} edges", f"{false.sum():,} false", f"{100 * inside.mean():.0f} % connected"]
    if limit == np.inf:
        del words[1]
    if stage.removed is not None and len(stage.removed.source):
        gone = len(stage.removed.source)
        dashed = {"linestyles": (0, (4, 2)), "linewidths": 0.8, "zorder": 2.5}
        draw_edges(axes, nodes, stage.removed, CUT, alpha=_opacity(gone, 400), **dashed)
        words.insert(1, f"{gone:,} removed")
    size = float(np.clip(6_000 / len(nodes), 3, 14))
    draw_nodes(axes, nodes[inside], size)
    ring = {"color": None, "facecolors": "white", "edgecolors": NODE, "linewidths": 0.8, "zorder": 3.1}
    draw_nodes(axes, nodes[~inside], 1.5 * size, **ring)
    axes.set_title(f"{stage.title}\n{', '.join(words)}", fontsize=11)


def _opacity(number: int, most: int) -> float:
    """Opacity of edges, lower the more there are."""
    return float(np.clip(most / max(number, 1), 0.15, 0.9))


def _stage_handles(stages: Sequence[Stage], limit: float, unit: str) -> dict[str, Any]:
    line, dot = pyplot().Line2D, {"linestyle": "", "marker": "o", "color": NODE, "markersize": 5}
    handles = {
        "edge": line([], [], color=EDGE),
        f"false edge, over {limit:g} {unit}": line([], [], color=FALSE_EDGE),
        "removed edge": line([], [], color=CUT, linestyle="--"),
        "node": line([], [], **dot),
        "node outside the largest strongly connected component": line([], [], **dot, markerfacecolor="white"),
    }
    removed = any(stage.removed is not None and len(stage.removed.source) for stage in stages)
    shown = (True, limit < np.inf, removed, True, True)
    return {name: handle for (name, handle), is_shown in zip(handles.items(), shown, strict=True) if is_shown}


# -- an episode -------------------------------------------------------------------------------------------------------


def main_cut(cuts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Failed edge to show: preferably one through a wall, then the longest, then the last."""
    return max(cuts, key=lambda cut: (cut.get("blocked", False), cut.get("length", 0.0), cut["step"]))


def episode(path: Path, draw_map: DrawMap, positions: NDArray[Any], edges: sgm.Edges, trace: Mapping[str, Any]) -> None:
    """Draw one episode over a map, in two panels.

    If an edge failed: the steps before the failure, and those from the next plan on. Otherwise: the first and the last
    plan on the whole map, and the same magnified.

    Args:
        path: file of the figure.
        draw_map: draws the background.
        positions: (V, 2) positions of the nodes.
        edges: edges to draw behind the episode.
        trace: `Trace.asdict()` whose "observations" are (n, 2) positions, and "goal" (2,).
    """
    nodes, way = (
        checked(positions, 2, "positions of nodes"),
        checked(trace["observations"], 2, "positions of the agent"),
    )
    goal = checked([trace["goal"]], 2, "positions of the goal")
    figure, panels = pyplot().subplots(1, 2, figsize=(12, 6.3), gridspec_kw={"wspace": 0.03})
    for axes in panels:
        draw_map(axes)
        draw_edges(axes, nodes, edges, FAINT, alpha=0.35, zorder=1.4)
        draw_nodes(axes, nodes, 5, color=FAINT, zorder=1.5)
    outcome = "goal reached" if trace["success"] else "goal not reached"
    if trace["cuts"]:
        _draw_detour(panels, nodes, way, goal, trace, outcome)
    else:
        _draw_whole(panels, nodes, way, goal, trace, outcome)
    for axes in panels:
        draw_ends(axes, way[0], goal[0])
        legend_below(axes, 3)
    save(figure, path)


def _draw_detour(panels: Any, nodes: Floats, way: Floats, goal: Floats, trace: Mapping[str, Any], outcome: str) -> None:
    """Draw the steps before an edge failed on the left, and those from the next plan on the right."""
    cuts, plans, cut = trace["cuts"], trace["plans"], main_cut(trace["cuts"])
    turn = min(int(cut["step"]), len(way) - 1)
    before = [plan for plan in plans if plan["step"] < cut["step"]][-1:]
    after = [plan for plan in plans if plan["step"] >= cut["step"]][:1]
    halves = (
        (before, range(turn + 1), [item for item in cuts if item["step"] <= cut["step"]]),
        (after, range(turn, len(way)), [item for item in cuts if item["step"] >= cut["step"]]),
    )
    for axes, (chosen, steps, failed), colour, dashes in zip(panels, halves, PLANS, ((0, (2, 0.8)), "-"), strict=True):
        draw_path(axes, way, TRACK, "", marker=None, linewidth=1, alpha=0.25, zorder=3)
        for plan in chosen:
            _draw_plan(axes, plan, nodes, way, goal, colour, linestyle=dashes, linewidth=3.4)
        draw_path(axes, way[steps], TRACK, "path taken", marker=None, linewidth=1.5, zorder=4.5)
        _draw_failed(axes, nodes, failed)
        _draw_step_numbers(axes, way, steps)
    panels[0].set_title(f"steps 0 to {turn}: an edge that cannot be passed", fontsize=12)
    panels[1].set_title(f"steps {turn} to {len(way):,}: another plan, {outcome}", fontsize=12)


def _draw_whole(panels: Any, nodes: Floats, way: Floats, goal: Floats, trace: Mapping[str, Any], outcome: str) -> None:
    """Draw the whole map on the left, and the part with the episode magnified on the right."""
    plans = trace["plans"]
    chosen = plans if len(plans) < 2 else (plans[0], plans[-1])
    lines = [way, goal]
    for axes in panels:
        for plan, colour, dashes in zip(chosen, PLANS, ((0, (3, 1.2)), "-"), strict=False):
            lines.append(_draw_plan(axes, plan, nodes, way, goal, colour, linestyle=dashes))
        draw_path(axes, way, TRACK, "path taken", marker=None, linewidth=1.5, zorder=4.5)
    magnify(panels[0], panels[1], np.concatenate(lines))
    panels[0].set_title("the episode on the map", fontsize=12)
    panels[1].set_title(f"{outcome}, {len(way):,} steps, {len(plans):,} plans", fontsize=12)


def _draw_plan(
    axes: Any, plan: Mapping[str, Any], nodes: Floats, way: Floats, goal: Floats, colour: str, **style: Any
) -> Floats:
    """Draw a plan from the agent's position over its nodes to the goal; return its (L, 2) positions."""
    begin = way[min(int(plan["step"]), len(way) - 1)]
    line = np.concatenate([begin[None], nodes[np.asarray(plan["nodes"], int)], goal])
    draw_path(axes, line, colour, f"plan at step {plan['step']}", **style)
    return line


def _draw_failed(axes: Any, nodes: Floats, cuts: Sequence[Mapping[str, Any]]) -> None:
    """Draw failed edges, each with a cross on its middle, so that they do not differ by colour alone."""
    ends = np.array([(cut["u"], cut["v"]) for cut in cuts], int).reshape(-1, 2)
    draw_edges(
        axes, nodes, sgm.Edges(ends[:, 0], ends[:, 1], np.zeros(len(ends), np.float32)), CUT, linewidths=2.2, zorder=5
    )
    middle = nodes[ends].mean(axis=1)
    label = "failed edge" if len(ends) == 1 else f"{len(ends)} failed edges"
    axes.scatter(middle[:, 1], middle[:, 0], s=46, marker="x", color=CUT, linewidths=2.2, label=label, zorder=5.5)


def _draw_step_numbers(axes: Any, way: Floats, steps: range) -> None:
    """Draw about six step numbers along the path."""
    apart = next(size for size in (5, 10, 20, 25, 50, 100, 1_000_000) if len(steps) <= 7 * size)
    box = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
    look = {"textcoords": "offset points", "fontsize": 8.5, "color": TRACK, "bbox": box, "zorder": 5.2}
    for step in (step for step in steps if step and (step % apart == 0 or step == steps[0])):
        axes.scatter(way[step, 1], way[step, 0], s=16, color=TRACK, zorder=5)
        axes.annotate(str(step), way[step, ::-1], (6, 5), **look)


def magnify(whole: Any, detail: Any, points: Floats, least: float = 1e-9) -> float:
    """Show the square around (n, 2) points in detail and mark it on the whole map; return half the side length."""
    low, high = points.min(axis=0), points.max(axis=0)
    half = float(max(*(high - low), least)) / 2 * 1.25
    bottom, left = (low + high) / 2 - half
    frame = {"fill": False, "edgecolor": TRACK, "linewidth": 1.4, "zorder": 6}
    whole.add_patch(pyplot().Rectangle((left, bottom), 2 * half, 2 * half, **frame))
    detail.set(xlim=(left, left + 2 * half), ylim=(bottom, bottom + 2 * half))
    if whole.yaxis_inverted():
        detail.invert_yaxis()
    detail.set_frame_on(True)
    detail.spines[:].set(visible=True, color=TRACK, linewidth=1.4)
    return half
