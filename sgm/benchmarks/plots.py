"""Figures and parts of figures that all benchmarks share (needs matplotlib).

Positions are (n, 2) with the vertical coordinate first: (row, column) of a maze, (y, x) of a map.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import sgm
from sgm.envs.point.mazes import Maze

from .tables import Pooled

WALL, FLOOR, FAINT = "#3b3f46", "#f7f6f2", "#a9adb3"
NODE, EDGE, FALSE_EDGE, CUT = "#1f4e79", "#7fa8cc", "#6b2c91", "#d1495b"
PLANS = ("#e08e0b", "#2a9d4a")
TRACK = "#6b2c91"
LARGEST_FILE = 200_000  # bytes of a figure

Floats = NDArray[np.float64]


class Curve(NamedTuple):
    """Success of one method against cleanup steps; rates and shares are 0 to 1.

    Attributes:
        label: label in the legend.
        colour: colour of the line.
        steps: cleanup steps, ascending.
        rate: success after each number of steps.
        low: lower ends of the 95 % intervals.
        high: upper ends of the 95 % intervals.
        marker: marker of the points.
        initial: success before the k-nearest filter, if known.
        paper: (cleanup steps, success) in the paper.
        connected: share of nodes in the largest strongly connected component after each number of steps; None where
            unknown.
    """

    label: str
    colour: str
    steps: Sequence[int]
    rate: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    marker: str = "o"
    initial: float | None = None
    paper: Sequence[tuple[int, float]] = ()
    connected: Sequence[float | None] = ()


def curve(items: Sequence[Pooled], label: str, colour: str, **other: Any) -> Curve:
    """Make a curve from stages pooled over seeds."""
    low, high = zip(*(item.ci95 for item in items), strict=True)
    steps, rate = zip(*((item.cleanup_steps, item.rate) for item in items), strict=True)
    return Curve(label, colour, steps, rate, low, high, **other)


def pyplot() -> Any:
    """Import matplotlib.pyplot with a backend that draws to files."""
    try:
        import matplotlib
    except ImportError as error:
        raise sgm.SGMError("figures need matplotlib: pip install 'sparse-graphical-memory[viz]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


# -- parts of figures --------------------------------------------------------------------------------------------


def draw_maze(axes: Any, maze: Maze) -> None:
    """Draw walls and floor; positions are (row, column), rows downwards."""
    from matplotlib.colors import ListedColormap

    extent = (0, maze.width, maze.height, 0)
    axes.imshow(maze.walls, cmap=ListedColormap([FLOOR, WALL]), extent=extent, interpolation="nearest", zorder=0)
    axes.set(xticks=[], yticks=[], xlim=(0, maze.width), ylim=(maze.height, 0), aspect="equal")
    for spine in axes.spines.values():
        spine.set(color=WALL, linewidth=2)


def draw_edges(axes: Any, positions: NDArray[Any], edges: sgm.Edges, colour: str = EDGE, **style: Any) -> None:
    """Draw edges between nodes at (V, 2) positions."""
    from matplotlib.collections import LineCollection

    segments = np.stack([positions[edges.source], positions[edges.target]], axis=1)[:, :, ::-1]
    axes.add_collection(LineCollection(list(segments), colors=colour, **{"linewidths": 0.5, "zorder": 1, **style}))


def draw_nodes(axes: Any, positions: NDArray[Any], size: float = 6, **style: Any) -> None:
    """Draw nodes at (V, 2) positions."""
    look = {"color": NODE, "linewidths": 0, "zorder": 3, **style}
    axes.scatter(positions[:, 1], positions[:, 0], s=size, **look)


def draw_path(axes: Any, path: NDArray[Any], colour: str, label: str, **style: Any) -> None:
    """Draw a path through (L, 2) positions."""
    look = {"linestyle": "-", "marker": "o", "linewidth": 2.2, "markersize": 3.5, "zorder": 4, **style}
    axes.plot(path[:, 1], path[:, 0], color=colour, label=label, **look)


def draw_ends(axes: Any, start: NDArray[Any], goal: NDArray[Any]) -> None:
    """Draw the start and the goal of an episode."""
    for place, marker, label, size in ((start, "o", "start", 90), (goal, "*", "goal", 220)):
        look = {"color": "white", "edgecolors": "black", "zorder": 6}
        axes.scatter(place[1], place[0], s=size, marker=marker, label=label, **look)


def draw_image(axes: Any, image: ArrayLike, title: str = "", frame: str | None = None) -> None:
    """Draw an image without axes, in a frame of this colour if one is given."""
    axes.imshow(np.asarray(image), interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=frame is not None, color=frame, linewidth=3)
    axes.set_title(title, fontsize=10, pad=3)


def draw_arrow(axes: Any, pose: ArrayLike, length: float, colour: str, name: str = "") -> None:
    """Draw an arrow from a pose (x, y, heading in radians), with a name in a circle at its tail."""
    x, y, heading = np.asarray(pose, np.float64)
    tip = x + length * np.cos(heading), y + length * np.sin(heading)
    axes.annotate("", tip, (x, y), arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2.2}, zorder=6)
    circle = {"boxstyle": "circle,pad=0.18", "facecolor": "white", "edgecolor": colour, "alpha": 0.9}
    if name:
        axes.text(x, y, name, fontsize=9, ha="center", va="center", bbox=circle, clip_on=True, zorder=7)
    else:
        axes.scatter(x, y, s=26, color=colour, zorder=6)


def draw_scale(axes: Any, x: float, y: float, length: float, unit: str) -> None:
    """Draw a scale bar with its length beside it."""
    axes.plot([x, x + length], [y, y], color=WALL, linewidth=3, solid_capstyle="butt", clip_on=False)
    axes.text(x + 1.08 * length, y, f"{length:g} {unit}", va="center", fontsize=9, color=WALL)


def checked(positions: ArrayLike, width: int, what: str) -> Floats:
    """Return positions as a finite (n, width) array; InputError otherwise, with `what` in the message."""
    values = np.asarray(positions, np.float64)
    if values.ndim != 2 or values.shape[1] != width or not len(values) or not np.isfinite(values).all():
        raise sgm.InputError(f"{what} have shape {values.shape}: expected finite (n, {width}), n at least 1")
    return values


def tidy(axes: Any, grid: str = "y") -> None:
    """Keep two spines and add a faint grid."""
    axes.grid(axis=grid, color="#e4e4e0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def thousands(axis: Any) -> None:
    """Format the numbers of an axis with commas."""
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def legend_below(axes: Any, columns: int) -> None:
    """Put the legend below the axes."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.01), ncol=columns, frameon=False, fontsize=9)


def legend_under(figure: Any, panels: NDArray[Any], inches: float, more: Mapping[str, Any] | None = None) -> None:
    """Put one legend for all panels `inches` below the lowest; `more` holds further handles by label."""
    handles: dict[str, Any] = {}
    for axes in panels.flat:
        handles.update(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    handles.update(more or {})
    for axes in panels.flat:
        axes.apply_aspect()
    low = min(axes.get_position().y0 for axes in panels.flat) - inches / figure.get_figheight()
    columns = max(1, min(len(handles), int(figure.get_figwidth() / 1.7)))
    look = {"ncol": columns, "frameon": False, "fontsize": 9.5, "columnspacing": 1.5}
    figure.legend(handles.values(), handles.keys(), loc="upper center", bbox_to_anchor=(0.5, low), **look)


def save(figure: Any, path: Path) -> None:
    """Write a figure as a PNG file of at most 200 kB, and close it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=150, bbox_inches="tight", format="png")
    pyplot().close(figure)
    path.write_bytes(shrunk(buffer.getvalue()))


def shrunk(png: bytes, most: int = LARGEST_FILE) -> bytes:
    """Reduce a PNG image to 256 colours, and to fewer pixels if needed, so that it has at most `most` bytes."""
    from PIL import Image

    image, scale = Image.open(io.BytesIO(png)).convert("RGB"), 1.0
    while len(png) > most:
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        smaller = image.resize(size, Image.Resampling.LANCZOS)
        # Maximum coverage keeps rare colours, such as that of a removed edge; k-means keeps that of the floor.
        fewer = smaller.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
        buffer = io.BytesIO()
        fewer.save(buffer, "PNG", optimize=True)
        png = buffer.getvalue()
        scale *= min(0.95, (most / len(png)) ** 0.5)
    return png


# -- figures -----------------------------------------------------------------------------------------------------


def success_curves(path: Path, curves: Mapping[tuple[str, str], Sequence[Curve]], steps: str = "cleanup steps") -> None:
    """Plot success against cleanup steps, with 95 % bands and the paper's values as hollow diamonds.

    Args:
        path: file of the figure.
        steps: label of the horizontal axis.
        curves: curves of each panel, by the titles of its column and row. If any curve has `connected`, an extra row
            at the bottom shows it.
    """
    every = [curve for found in curves.values() for curve in found]
    if not every:
        raise sgm.SGMError("no method with cleanup was run")
    columns, rows = (list(dict.fromkeys(key[place] for key in curves)) for place in (0, 1))
    heights = [2.9] * len(rows) + [1.5] * any(curve.connected for curve in every)
    wide = 7.5 if len(columns) == 1 else 2.2 + 3.9 * len(columns)
    figure, panels = pyplot().subplots(
        len(heights),
        len(columns),
        figsize=(wide, sum(heights) + 0.8 + 0.7 * (len(heights) == 1)),
        squeeze=False,
        sharex=True,
        sharey="row",
        gridspec_kw={"height_ratios": heights, "wspace": 0.15, "hspace": 0.14},
    )
    longest = max(max(curve.steps) for curve in every) or 1
    for column, name in enumerate(columns):
        for row, other in enumerate(rows):
            for curve in curves.get((name, other), ()):
                _draw_curve(panels[row, column], curve, longest)
            panels[row, column].set(ylim=(0, 103))
        if len(heights) > len(rows):
            _draw_connected(
                panels[-1, column], next((curves[name, row] for row in rows if curves.get((name, row))), ())
            )
        panels[0, column].set_title(name, fontsize=12)
        panels[-1, column].set_xlabel(steps)
    for row, other in enumerate(rows):
        panels[row, 0].set_ylabel(f"success, %\n{other}" if len(rows) > 1 else "success, %")
    for axes in panels.flat:
        tidy(axes)
    initial = any(curve.initial is not None for curve in every)
    panels[0, 0].set_xlim((-0.07 if initial else -0.03) * longest, longest)
    _step_ticks(panels[0, 0], every, longest)
    legend_under(figure, panels, 0.55, _curve_handles(every))
    save(figure, path)


def _draw_curve(axes: Any, curve: Curve, longest: int) -> None:
    low, rate, high = (100 * np.asarray(values, np.float64) for values in (curve.low, curve.rate, curve.high))
    axes.fill_between(curve.steps, low, high, color=curve.colour, alpha=0.15, linewidth=0)
    look = {"color": curve.colour, "marker": curve.marker, "markersize": 5, "linewidth": 1.8}
    axes.plot(curve.steps, rate, **look, label=curve.label, clip_on=False, zorder=4)
    hollow = {"s": 42, "facecolors": "white", "edgecolors": curve.colour, "linewidths": 1.5, "zorder": 5}
    if curve.initial is not None:
        axes.scatter([-0.035 * longest], [100 * curve.initial], marker="o", **hollow, clip_on=False)
    for steps, value in curve.paper:
        axes.scatter([min(steps, 1.045 * longest)], [100 * value], marker="D", **hollow, clip_on=False)


def _draw_connected(axes: Any, curves: Sequence[Curve]) -> None:
    for curve in curves:
        shares = [np.nan if share is None else 100 * share for share in curve.connected]
        look = {"color": curve.colour, "marker": curve.marker, "markersize": 5, "linewidth": 1.8}
        axes.plot(curve.steps[: len(shares)], shares, **look, label=curve.label, clip_on=False, zorder=4)
    axes.set(
        ylim=(0, 105),
        yticks=(0, 50, 100),
        ylabel="connected,\n% of nodes" if axes.get_subplotspec().is_first_col() else "",
    )


def _step_ticks(axes: Any, curves: Sequence[Curve], longest: int) -> None:
    """Set ticks at the evaluated steps if there are few and their numbers fit."""
    far = [step for step in sorted({step for curve in curves for step in curve.steps}) if step >= longest / 5]
    if len(far) <= 4 and all(gap >= longest / 6 for gap in np.diff(far)):
        axes.set_xticks([0, *far])
    thousands(axes.xaxis)


def _curve_handles(curves: Sequence[Curve]) -> dict[str, Any]:
    """Legend entries for the hollow marks."""
    line, hollow = pyplot().Line2D, {"linestyle": "", "markerfacecolor": "white", "color": WALL}
    handles = {}
    if any(curve.initial is not None for curve in curves):
        handles["before the k-nearest filter"] = line([], [], marker="o", **hollow)
    if steps := {step for curve in curves for step, _ in curve.paper}:
        handles[f"paper, {' and '.join(f'{step:,}' for step in sorted(steps))} steps"] = line(
            [], [], marker="D", **hollow
        )
    return handles


def edge_lengths(
    path: Path, panels: Mapping[str, Mapping[str, ArrayLike]], colours: Mapping[str, str], limit: float, unit: str
) -> None:
    """Plot histograms of true edge lengths with a logarithmic count.

    Args:
        path: file of the figure.
        panels: (E,) lengths of each stage, by the title of the panel and the name of the stage.
        colours: colours of the stages, in drawing order.
        limit: length above which an edge is false; a bin is at most a twelfth of it.
        unit: unit of lengths.
    """
    known = {
        title: {name: np.asarray(stages[name], np.float64).ravel() for name in colours if name in stages}
        for title, stages in panels.items()
        if stages
    }
    every = [values for stages in known.values() for values in stages.values() if len(values)]
    if not every:
        raise sgm.SGMError("no memory has an edge")
    columns = min(4, len(known))
    rows = -(-len(known) // columns)
    figure, grid = pyplot().subplots(
        rows,
        columns,
        figsize=(max(7.0, 3.3 * columns), 2.7 * rows + 0.5 + 1.2 * (len(known) == 1)),
        squeeze=False,
        sharex=True,
        sharey=True,
        gridspec_kw={"wspace": 0.07, "hspace": 0.24},
    )
    width = limit / (12 if len(known) > 1 else 8)
    bins = np.arange(0, max(limit, max(values.max() for values in every)) + 2 * width, width)
    for axes, (title, stages) in zip(grid.flat, known.items(), strict=False):
        _draw_lengths(axes, stages, colours, bins, limit)
        axes.set_title(title, fontsize=11)
        tidy(axes)
    for axes in grid.flat[len(known) :]:
        axes.set_axis_off()
    for axes in grid.flat[max(0, len(known) - columns) : len(known)]:
        axes.set_xlabel(f"true length, {unit}")
        axes.tick_params(labelbottom=True)
    for axes in grid[:, 0]:
        axes.set_ylabel(f"edges per {width:g} {unit}")
    grid[0, 0].set(yscale="log", ylim=(0.7, None), xlim=(0, bins[-1]))
    if limit >= 100:
        thousands(grid[0, 0].xaxis)
    crowded = max(map(len, known.values())) / (1 if len(known) > 1 else 1.7)
    grid[0, 0].set_ylim(0.7, grid[0, 0].get_ylim()[1] ** (1.05 + 0.12 * crowded))
    legend_under(figure, grid, 0.55)
    save(figure, path)


def _draw_lengths(
    axes: Any, stages: Mapping[str, Floats], colours: Mapping[str, str], bins: Floats, limit: float
) -> None:
    """Draw one panel; the first stage is filled."""
    axes.axvline(limit, color=WALL, linewidth=1, linestyle=":")
    inches = axes.get_position().height * axes.figure.get_figheight()
    for number, (name, values) in enumerate(stages.items()):
        fill = {"linewidth": 1.6} if number else {"fill": True, "alpha": 0.45}
        axes.stairs(np.histogram(values, bins)[0], bins, color=colours[name], label=name, **fill)
        share = f"{len(values):,} edges, {100 * np.mean(values > limit):.1f} % false" if len(values) else "none left"
        look = {"transform": axes.transAxes, "ha": "right", "va": "top", "fontsize": 8.5, "fontweight": "bold"}
        axes.text(0.99, 0.98 - 0.19 * number / inches, share, color=colours[name] if number else "#6f747b", **look)
