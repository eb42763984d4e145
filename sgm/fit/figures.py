"""Figures of an agent's report and of its plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks import plots
from sgm.benchmarks.map_plots import Stage, memory_stages

from .layout import Floats, Layout

SEEN = "#dcdad2"  # positions of the experience
_MOST_IMAGES = 24  # largest number of images of a strip


def draw_seen(axes: Any, layout: Layout, seen: Floats | None) -> None:
    """Draw the background: the (n, 2) positions of the experience, if they are known."""
    every = layout.places if seen is None else np.concatenate([layout.places, seen])
    low, high = every.min(axis=0), every.max(axis=0)
    margin = 0.03 * max(*(high - low), 1e-6)
    axes.set(xticks=[], yticks=[], aspect="equal", facecolor="white")
    axes.set_xlim(low[1] - margin, high[1] + margin)
    axes.set_ylim(low[0] - margin, high[0] + margin)
    axes.spines[:].set(color=plots.FAINT)
    if seen is not None:
        axes.scatter(seen[:, 1], seen[:, 0], s=5, color=SEEN, linewidths=0, zorder=0.5)


def memory_map(path: Path, memory: sgm.SparseGraphicalMemory, layout: Layout, seen: Floats | None) -> None:
    """Draw the memory as built and, if edges were removed, also after cleanup."""
    removed, standing = memory.removed(), memory.edges()
    stages = [Stage("as built", _both(standing, removed))]
    if len(removed.source):
        stages.append(Stage("after cleanup", standing, removed))
    memory_stages(path, lambda axes: draw_seen(axes, layout, seen), layout.places, stages)


def _both(first: sgm.Edges, second: sgm.Edges) -> sgm.Edges:
    return sgm.Edges(*(np.concatenate([a, b]) for a, b in zip(first, second, strict=True)))


def plan_map(
    path: Path, memory: sgm.SparseGraphicalMemory, layout: Layout, seen: Floats | None, plan: sgm.Plan
) -> None:
    """Draw a plan on the memory."""
    figure, axes = plots.pyplot().subplots(figsize=(6.4, 6.0))
    draw_seen(axes, layout, seen)
    plots.draw_edges(axes, layout.places, memory.edges(), alpha=0.5)
    plots.draw_nodes(axes, layout.places, float(np.clip(6_000 / len(memory), 3, 14)))
    way = layout.places[plan.nodes]
    plots.draw_path(axes, way, plots.PLANS[0], f"plan of {len(plan)} nodes, {plan.length:.0f} steps")
    plots.draw_ends(axes, way[0], way[-1])
    plots.legend_below(axes, 3)
    plots.save(figure, path)


def strip(path: Path, images: NDArray[Any], titles: Sequence[str], title: str = "", columns: int = 8) -> None:
    """Draw images in order, in rows, each with a title; of many, evenly spaced ones with the first and the last."""
    chosen = np.unique(np.rint(np.linspace(0, len(images) - 1, min(len(images), _MOST_IMAGES))).astype(int))
    columns = min(columns, len(chosen))
    rows = -(-len(chosen) // columns)
    shape = np.shape(images)[1:3]
    width = 1.35
    size = (width * columns + 0.2, (width * shape[0] / shape[1] + 0.32) * rows + 0.45)
    figure, panels = plots.pyplot().subplots(rows, columns, figsize=size, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    for axes, number in zip(panels.flat, chosen, strict=False):
        axes.set_axis_on()
        ends = {0: plots.NODE, len(images) - 1: plots.PLANS[0]}
        plots.draw_image(axes, as_rgb(images[number]), "", ends.get(int(number), plots.FAINT))
        axes.spines[:].set_linewidth(2.5 if int(number) in ends else 0.6)
        axes.set_title(titles[number], fontsize=8, pad=3)
    figure.suptitle(title, fontsize=10.5, y=1.0)
    figure.tight_layout(pad=0.4, h_pad=0.7)
    plots.save(figure, path)


def as_rgb(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert an image of any accepted kind to (height, width, 3) uint8."""
    values = np.asarray(image)
    values = values[..., 0] if values.ndim == 3 and values.shape[2] == 1 else values
    if values.dtype.kind == "f":
        values = np.rint(255 * np.clip(values, 0, 1))
    values = values.astype(np.uint8)
    return np.repeat(values[..., None], 3, axis=2) if values.ndim == 2 else values


def image_map(path: Path, memory: sgm.SparseGraphicalMemory, layout: Layout, number: int = 28) -> None:
    """Draw the memory, with the images of some nodes that are spread over it."""
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    figure, axes = plots.pyplot().subplots(figsize=(8.4, 7.2))
    draw_seen(axes, layout, None)
    axes.margins(0.1)
    axes.set_aspect("auto" if not layout.true else "equal")
    plots.draw_edges(axes, layout.places, memory.edges(), alpha=0.6)
    plots.draw_nodes(axes, layout.places, 9)
    images = memory.observations
    zoom = 40 / max(images.shape[1:3])
    for node in spread(layout.places, min(number, len(images))):
        shown = OffsetImage(as_rgb(images[node]), zoom=zoom, interpolation="nearest")
        frame = {"edgecolor": plots.NODE, "linewidth": 0.8}
        axes.add_artist(
            AnnotationBbox(shown, (layout.places[node, 1], layout.places[node, 0]), pad=0.12, bboxprops=frame, zorder=5)
        )
    low, high = layout.places.min(axis=0), layout.places.max(axis=0)
    margin = 0.06 * np.maximum(high - low, 1e-6)
    axes.set_xlim(low[1] - margin[1], high[1] + margin[1])
    axes.set_ylim(low[0] - margin[0], high[0] + margin[0])
    plots.save(figure, path)


def spread(places: Floats, number: int) -> list[int]:
    """Choose `number` rows of (n, 2) positions, each as far as possible from those before it."""
    scaled = (places - places.mean(axis=0)) / np.maximum(places.std(axis=0), 1e-9)
    chosen = [int(np.linalg.norm(scaled, axis=1).argmax())]
    nearest = np.linalg.norm(scaled - scaled[chosen[0]], axis=1)
    while len(chosen) < number:
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.linalg.norm(scaled - scaled[chosen[-1]], axis=1))
    return chosen


def distance_curve(path: Path, curve: Mapping[str, Any], max_dist: float | None = None) -> None:
    """Plot the distance between observations of an episode over the steps between them."""
    figure, axes = plots.pyplot().subplots(figsize=(6.4, 3.6))
    lags = curve["lags"]
    axes.fill_between(lags, curve["low"], curve["high"], color=plots.EDGE, alpha=0.35, linewidth=0, label="middle 80 %")
    axes.plot(lags, curve["median"], color=plots.NODE, linewidth=1.8, label="median")
    axes.plot(lags, lags, color=plots.FAINT, linewidth=1, linestyle=":", label="distance = steps apart")
    axes.axhline(curve["others"], color=plots.CUT, linewidth=1.2, linestyle="--", label="median across episodes")
    if max_dist is not None:
        axes.axhline(max_dist, color=plots.PLANS[1], linewidth=1.2, label=f"MaxDist {max_dist:.3g}")
    axes.set(xlabel="steps apart in an episode", ylabel="distance, steps", xlim=(0, max(lags)), ylim=(0, None))
    plots.tidy(axes)
    axes.legend(frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    plots.save(figure, path)


def cleanup_curve(path: Path, parts: Sequence[Mapping[str, Any]]) -> None:
    """Plot removed edges and reached goals over cleanup steps."""
    figure, panels = plots.pyplot().subplots(1, 2, figsize=(8.0, 2.9))
    steps = [part["steps"] for part in parts]
    removed = [part["removed"] for part in parts]
    arrived = [100 * part["arrived"] / max(1, part["episodes"]) for part in parts]
    for axes, values, label in ((panels[0], removed, "edges removed"), (panels[1], arrived, "goals reached, %")):
        axes.plot(steps, values, color=plots.NODE, marker="o", markersize=4)
        axes.set(xlabel="cleanup steps", ylabel=label, xlim=(0, None), ylim=(0, 103 if "%" in label else None))
        plots.thousands(axes.xaxis)
        plots.tidy(axes)
    figure.tight_layout()
    plots.save(figure, path)
