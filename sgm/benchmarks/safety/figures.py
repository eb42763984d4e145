"""The figures of numbers of a SafetyGym run: how success grows with cleanup, and why; shares are 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

import sgm
from sgm.benchmarks import plots
from sgm.errors import printable

from .ground_truth import FALSE

LABELS = {"consptm": "dense (ConSPTM)", "both": "two-way and perceptual"}
METHOD = {"consptm": "#c2570c", "uniform": "#8a8f98", "two-way": plots.NODE, "both": "#4fa3d9"}
MARKERS = {"consptm": "s", "uniform": "^", "two-way": "o", "both": "v"}
BEFORE = "before cleanup"
STAGE = {
    BEFORE: "#b4b7bb", "first-failure": "#c2570c", "second-failure": "#e3b23c", "belief": plots.NODE,
    "guarded": "#4fa3d9",
}  # fmt: skip
MISPLACED = {"starts": "#7b4fa0", "goals": "#c3aad6"}
PAPER_STEPS = 1_000_000

Floats = NDArray[np.float64]


class Curve(NamedTuple):
    """One method against cleanup steps.

    Attributes:
        method: its name.
        steps: cleanup steps, ascending.
        rate: success at each, mean over seeds.
        low: lower ends of the 95 % intervals.
        high: upper ends.
        connected: share of the nodes in the largest strongly connected part at each; None where unknown.
    """

    method: str
    steps: Sequence[int]
    rate: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    connected: Sequence[float | None]


class Stage(NamedTuple):
    """A method before or after cleanup: shares, and the 95 % interval of success; None where unknown."""

    false_edges: float | None
    connected: float | None
    rate: float
    low: float
    high: float
    true: float | None = None  # share in the largest part without false edges


class Reasons(NamedTuple):
    """Why a method succeeds as often as it does.

    Attributes:
        label: of the method.
        stages: before cleanup and after it by policy.
        misplaced: share of the "starts" and of the "goals" that are taken to be where they are not.
        paper: success without and with cleanup in the paper, where it has them.
    """

    label: str
    stages: Mapping[str, Stage]
    misplaced: Mapping[str, float]
    paper: Sequence[float] = ()


def label(method: str) -> str:
    """What people call a method."""
    return LABELS.get(method, printable(method))


def success_curves(
    path: Path, curves: Mapping[tuple[str, str], Sequence[Curve]], paper: Mapping[str, float] | None = None
) -> None:
    """Success, and below it connectivity, against cleanup steps; a column for each policy, a row for each agent.

    Args:
        path: of the picture.
        curves: by policy and agent.
        paper: success by method, drawn as hollow diamonds at the right.
    """
    if not any(curves.values()):
        raise sgm.SGMError("no method with cleanup was run")
    policies, agents = (list(dict.fromkeys(key[place] for key in curves)) for place in (0, 1))
    shape = {"height_ratios": [2.9] * len(agents) + [1.5], "wspace": 0.15, "hspace": 0.14}
    figure, panels = plots.pyplot().subplots(
        len(agents) + 1, len(policies), figsize=(max(6.5, 2.2 + 3.9 * len(policies)), 2.9 * len(agents) + 2.2),
        squeeze=False, sharex=True, sharey="row", gridspec_kw=shape,
    )  # fmt: skip
    longest = max(max(curve.steps) for found in curves.values() for curve in found) or 1
    for column, policy in enumerate(policies):
        for row, agent in enumerate(agents):
            _success(panels[row, column], curves.get((policy, agent), ()), paper or {}, longest)
        _connected(panels[-1, column], next((curves[policy, a] for a in agents if curves.get((policy, a))), ()))
        panels[0, column].set_title(policy, fontsize=12)
        panels[-1, column].set_xlabel("cleanup steps")
    for row, agent in enumerate(agents):
        panels[row, 0].set(ylabel=f"success, %\n{agent} agent" if len(agents) > 1 else "success, %")
    panels[-1, 0].set_ylabel("in the largest\npart, % of nodes")
    panels[0, 0].set_xlim(-0.03 * longest, longest)
    steps = sorted({step for found in curves.values() for curve in found for step in curve.steps})
    far = [step for step in steps if step >= longest / 5]  # what is nearer to 0 has no room for a label
    panels[0, 0].set_xticks([0, *far] if len(far) <= 4 else np.linspace(0, longest, 5))
    panels[0, 0].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _legend_under(figure, panels, f"paper, after {PAPER_STEPS:,} steps" if paper else "", 0.55)
    plots.save(figure, path)


def _success(axes: Any, curves: Sequence[Curve], paper: Mapping[str, float], longest: int) -> None:
    for curve in curves:
        colour = METHOD.get(curve.method, plots.WALL)
        low, rate, high = (100 * np.asarray(values, np.float64) for values in (curve.low, curve.rate, curve.high))
        axes.fill_between(curve.steps, low, high, color=colour, alpha=0.14, linewidth=0)
        _line(axes, curve, rate)
        if curve.method in paper:
            look = {"marker": "D", "s": 42, "facecolors": "white", "edgecolors": colour, "linewidths": 1.5}
            axes.scatter([1.045 * longest], [100 * paper[curve.method]], **look, zorder=5, clip_on=False)
    axes.set(ylim=(0, 100))
    plots.plain(axes)


def _connected(axes: Any, curves: Sequence[Curve]) -> None:
    for curve in curves:
        _line(axes, curve, np.array([np.nan if share is None else 100 * share for share in curve.connected]))
    axes.set(ylim=(0, 105), yticks=(0, 50, 100))
    plots.plain(axes)


def _line(axes: Any, curve: Curve, values: Floats) -> None:
    look = {"color": METHOD.get(curve.method, plots.WALL), "marker": MARKERS.get(curve.method, "o"), "markersize": 5.5}
    axes.plot(curve.steps, values, **look, linewidth=1.8, label=label(curve.method), clip_on=False, zorder=4)


def _legend_under(figure: Any, panels: NDArray[Any], more: str, inches: float) -> None:
    """One legend for all panels, so many inches below the lowest, and a hollow diamond if `more` names one."""
    handles: dict[str, Any] = {}
    for axes in panels.flat:
        handles.update(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    if more:
        look = {"marker": "D", "linestyle": "", "markerfacecolor": "white", "color": plots.WALL}
        handles[more] = plots.pyplot().Line2D([], [], **look)
    low = min(axes.get_position().y0 for axes in panels.flat) - inches / figure.get_figheight()
    figure.legend(
        handles.values(), handles.keys(), loc="upper center", bbox_to_anchor=(0.5, low), ncol=min(len(handles), 8),
        frameon=False, fontsize=10, columnspacing=1.5,
    )  # fmt: skip


def reasons(path: Path, methods: Sequence[Reasons]) -> None:
    """Bars for each method before and after cleanup: false edges, connectivity, misplaced starts and goals, success."""
    if not methods:
        raise sgm.SGMError("no method was evaluated")
    stages = [name for name in STAGE if any(name in method.stages for method in methods)]
    figure, panels = plots.pyplot().subplots(
        1, 4, figsize=(13, 0.24 * (len(stages) + 1) * len(methods) + 0.9), sharey=True, gridspec_kw={"wspace": 0.12}
    )
    for number, name in enumerate(stages):
        place, height = _places(len(methods), number, len(stages)), 0.8 / len(stages)
        for axes, field in ((panels[0], "false_edges"), (panels[1], "connected")):
            shares = [getattr(method.stages.get(name), field, None) for method in methods]
            _bars(axes, place, shares, STAGE[name], name, height)
        for middle, method in zip(place, methods, strict=True):
            if name == BEFORE and (stage := method.stages.get(name)) and stage.true is not None:
                ends = [middle - 0.45 * height, middle + 0.45 * height]
                panels[1].plot([100 * stage.true] * 2, ends, color="#c0392b", linewidth=2.2, label="w/o false edges")
    for number, (name, colour) in enumerate(MISPLACED.items()):
        shares = [method.misplaced.get(name) for method in methods]
        _bars(panels[2], _places(len(methods), number, 2), shares, colour, f"{name} misplaced", 0.4)
    _success_bars(panels[3], methods, stages)
    titles = (
        f"false edges, %\nover {FALSE:g} m long", "largest part, %\nof nodes, strongly connected",
        f"misplaced, %\ntaken to be over {FALSE:g} m away", "success, %\nwith 95 % interval",
    )  # fmt: skip
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize=11)
        axes.tick_params(axis="y", length=0)
        plots.plain(axes, "x")
        axes.margins(x=0)
        axes.set_xlim(0, 115 if axes in panels[[1, 3]] else 1.25 * max(axes.get_xlim()[1], 4))
        axes.xaxis.set_major_locator(plots.pyplot().MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    panels[0].set_yticks(
        range(len(methods)), [method.label.replace(" and ", "\nand ") for method in methods], fontsize=11
    )
    panels[0].set_ylim(len(methods) - 0.5, -0.5)
    _legend_under(figure, panels, "", 0.35)
    plots.save(figure, path)


def _places(methods: int, number: int, of: int) -> Floats:
    """Where bar `number` of each method is drawn."""
    return np.arange(methods, dtype=np.float64) + 0.8 * ((number + 0.5) / of - 0.5)


def _bars(axes: Any, places: Floats, shares: Sequence[float | None], colour: str, name: str, height: float) -> None:
    """Horizontal bars of what is known."""
    known = [row for row, share in enumerate(shares) if share is not None]
    values = np.array([100 * share for share in shares if share is not None])
    axes.barh(places[known], values, 0.9 * height, color=colour, label=name)
    for place, value in zip(places[known], values, strict=True):
        _number(axes, value, value, place)


def _number(axes: Any, value: float, end: float, place: float) -> None:
    """A number beside the end of a bar."""
    text = f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
    axes.annotate(text, (end, place), (3, 0), textcoords="offset points", va="center", fontsize=8.5)


def _success_bars(axes: Any, methods: Sequence[Reasons], stages: Sequence[str]) -> None:
    """Success with intervals; the paper's as a line across the first bar, and across the others."""
    half = 0.36 / len(stages)
    for number, name in enumerate(stages):
        places = _places(len(methods), number, len(stages))
        for method, place in zip(methods, places, strict=True):
            if (stage := method.stages.get(name)) is None:
                continue
            paper = 100 * method.paper[name != BEFORE] if method.paper else np.nan
            if np.isfinite(paper):
                look = {"color": "black", "linewidth": 2.2, "zorder": 4, "solid_capstyle": "butt"}
                axes.plot([paper, paper], [place - half, place + half], **look, label="paper")
            low, value, high = 100 * stage.low, 100 * stage.rate, 100 * stage.high
            axes.barh(place, value, 2 * half, color=STAGE[name])
            axes.plot([low, high], [place, place], color="#6b6f75", linewidth=1.4, zorder=3)
            _number(axes, value, paper if high < paper < high + 15 else high, place)


def edge_lengths(path: Path, lengths: Mapping[str, Mapping[str, ArrayLike]]) -> None:
    """True lengths of edges, a panel for each method, before cleanup and after it by policy: (E,) m each."""
    known = {
        method: {name: np.asarray(stages[name], np.float64).ravel() for name in STAGE if name in stages}
        for method, stages in lengths.items()
        if stages
    }
    every = [values for stages in known.values() for values in stages.values() if len(values)]
    if not every:
        raise sgm.SGMError("no memory has an edge")
    columns = min(4, len(known))
    rows = -(-len(known) // columns)
    figure, panels = plots.pyplot().subplots(
        rows, columns, figsize=(max(6.0, 3.3 * columns), 2.7 * rows + 0.5), squeeze=False, sharex=True, sharey=True,
        gridspec_kw={"wspace": 0.07, "hspace": 0.24},
    )  # fmt: skip
    bins = np.arange(0, max(FALSE, max(values.max() for values in every)) + 0.2, 0.1)
    for axes, (method, stages) in zip(panels.flat, known.items(), strict=False):
        axes.axvline(FALSE, color=plots.WALL, linewidth=1, linestyle=":")
        for number, (name, values) in enumerate(stages.items()):
            fill = {"fill": True, "alpha": 0.45} if name == BEFORE else {"linewidth": 1.6}
            axes.stairs(np.histogram(values, bins)[0], bins, color=STAGE[name], label=name, **fill)
            share = (
                f"{len(values):,} edges, {100 * np.mean(values > FALSE):.1f} % false" if len(values) else "none left"
            )
            look = {"transform": axes.transAxes, "ha": "right", "va": "top", "fontsize": 8.5, "fontweight": "bold"}
            axes.text(0.99, 0.98 - 0.09 * number, share, color="#6f747b" if name == BEFORE else STAGE[name], **look)
        axes.set_title(label(method), fontsize=11)
        plots.plain(axes)
    for axes in panels.flat[len(known) :]:
        axes.set_axis_off()
    for axes in panels.flat[max(0, len(known) - columns) : len(known)]:
        axes.set_xlabel("true length, m")
        axes.tick_params(labelbottom=True)
    for axes in panels[:, 0]:
        axes.set_ylabel("edges per 0.1 m")
    panels[0, 0].set(yscale="log", ylim=(0.7, None), xlim=(0, bins[-1]))
    top = panels[0, 0].get_ylim()[1]
    panels[0, 0].set_ylim(0.7, top ** (1.05 + 0.12 * max(map(len, known.values()))))
    _legend_under(figure, panels, "", 0.55)
    plots.save(figure, path)
