"""Figures of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sgm.benchmarks import page, plots, tables
from sgm.benchmarks.page import Figure
from sgm.benchmarks.tables import Pooled, Row

from .costs import steps_by_seed, total_seconds

GOOD = 0.95
LOOKS = {
    "dense": ("#c2570c", "s"),
    "wider": ("#e39a6b", "P"),
    "released": ("#7a3b12", "X"),
    "uniform": ("#8a8f98", "D"),
    "perceptual": ("#7b4fa3", "v"),
    "incoming": ("#2a9d4a", "<"),
    "outgoing": ("#e0a30b", ">"),
    "two-way": (plots.NODE, "o"),
    "both": ("#0b7f9e", "^"),
    "consolidated": ("#c2185b", "*"),
    "verified": ("#4a148c", "h"),
}


def figures(world: str, rows: Sequence[Row], builds: Mapping[str, float]) -> list[Figure]:
    """Figures: steps to 95 % against buffer size, success against seconds, Pareto front of success and cost."""
    found = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        for agent in dict.fromkeys(row["agent"] for row in rows):
            groups = _groups([row for row in rows if (row["policy"], row["agent"]) == (policy, agent)])
            if not groups:
                continue
            name = "-".join(
                [world, *([] if policy == "first-failure" else [policy]), *([] if agent == "plain" else [agent])]
            )
            who = f"{policy} cleanup, {agent} agent."
            caption = (
                f"Cleanup steps until {GOOD:.0%} of the episodes succeed, against the number of observations: median "
                f"and range over seeds; {who} Shaded band: not reached during the cleanup that was run."
            )
            found.append(Figure(f"steps-{name}", caption, partial(draw_steps, groups=groups)))
            seconds = f"Success against wall-clock seconds of building and cleanup, by number of observations; {who} "
            band = page.band([item for items in groups.values() for item in items])
            draw = partial(draw_seconds, groups=groups, builds=builds)
            found.append(Figure(f"seconds-{name}", seconds + band, draw, wide=len({size for size, _ in groups}) > 1))
            front = (
                f"Success and cost of every memory at every stage; {who} The line is the Pareto front: no other point "
                "is cheaper and at least as good."
            )
            found.append(Figure(f"front-{name}", front, partial(draw_front, groups=groups, builds=builds)))
    return found


def _groups(rows: Sequence[Row]) -> dict[tuple[int, str], list[Pooled]]:
    """Stages by size and method."""
    pooled = tables.by_group(tables.pool(rows))
    return {(items[0].rows[0]["size"], group.method): items for group, items in pooled.items()}


def _methods(groups: Mapping[tuple[int, str], Any]) -> list[str]:
    found = {method for _, method in groups}
    return [method for method in LOOKS if method in found]


def draw_steps(path: Path, groups: Mapping[tuple[int, str], list[Pooled]]) -> None:
    """Draw steps to 95 % success against observations, one line for each method."""
    figure, axes = plots.pyplot().subplots(figsize=(6.4, 4.2))
    longest = max(items[-1].cleanup_steps for items in groups.values())
    floor, never = 500, max(longest, 1_000) * 2.2
    methods = _methods(groups)
    for number, method in enumerate(methods):
        sizes = sorted(size for size, name in groups if name == method)
        seeds = [np.clip(steps_by_seed(groups[size, method], GOOD), floor, never) for size in sizes]
        shift = 1.018 ** (number - (len(methods) - 1) / 2)  # keeps coinciding lines visible
        colour, marker = LOOKS[method]
        label = groups[sizes[0], method][0].group.label
        middle = [float(steps[(len(steps) - 1) // 2]) * shift for steps in seeds]
        axes.plot(sizes, middle, color=colour, marker=marker, markersize=5.5, linewidth=1.6, label=label)
        ends = [[steps[place] * shift for steps in seeds] for place in (0, -1)]
        axes.vlines(np.array(sizes) * shift, *ends, color=colour, linewidth=1, alpha=0.6)
    axes.set(xscale="log", yscale="log", xlabel="observations", ylabel=f"cleanup steps to {GOOD:.0%} success")
    every = sorted({size for size, _ in groups})
    axes.set_xticks(every, [f"{size:,}" for size in every])
    stages = sorted({item.cleanup_steps for items in groups.values() for item in items if item.cleanup_steps})
    ticks: dict[float, str] = {floor: "0", **{steps: f"{steps:,}" for steps in stages}, never: "never"}
    lowest = min(steps_by_seed(items, GOOD)[0] for items in groups.values())
    lowest = max(floor, min(lowest, stages[-1] if stages else floor))
    ticks = {place: text for place, text in ticks.items() if place >= lowest / 2}
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.axhspan(never / 1.3, never * 1.3, color="#f4e9e2", zorder=0)
    axes.set_ylim(min(ticks) / 1.3, never * 1.3)
    plots.tidy(axes)
    plots.legend_under(figure, np.array([axes]), 0.55)
    plots.save(figure, path)


def draw_seconds(path: Path, groups: Mapping[tuple[int, str], list[Pooled]], builds: Mapping[str, float]) -> None:
    """Draw success against seconds, one panel for each size."""
    sizes = sorted({size for size, _ in groups})
    columns = min(len(sizes), 3)
    lines = -(-len(sizes) // columns)
    figure, panels = plots.pyplot().subplots(
        lines, columns, figsize=(3.6 * columns, 2.9 * lines), squeeze=False, sharex=True, sharey=True
    )
    for axes, size in zip(panels.flat, sizes, strict=False):
        for method in _methods(groups):
            if items := groups.get((size, method)):
                colour, marker = LOOKS[method]
                seconds, rates = total_seconds(items, builds), [100 * item.rate for item in items]
                low, high = zip(*((100 * a, 100 * b) for a, b in (item.ci95 for item in items)), strict=True)
                axes.plot(
                    seconds, rates, color=colour, marker=marker, markersize=4, linewidth=1.4, label=items[0].group.label
                )
                axes.fill_between(seconds, low, high, color=colour, alpha=0.13, linewidth=0)
        axes.set(title=f"{size:,} observations", ylim=(0, 102))
        _in_seconds(axes)
        axes.title.set_fontsize(10)
        plots.tidy(axes)
    for axes in list(panels.flat)[len(sizes) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("success, %")
    for column in panels.T:
        lowest = next(axes for axes in column[::-1] if axes.get_visible())
        lowest.set_xlabel("seconds")
        lowest.tick_params(labelbottom=True, which="both")
    figure.tight_layout()
    plots.legend_under(figure, panels, 0.5)
    plots.save(figure, path)


def _in_seconds(axes: Any) -> None:
    """Make the horizontal axis logarithmic, with plain numbers at 1, 2 and 5 times powers of ten."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")


def draw_front(path: Path, groups: Mapping[tuple[int, str], list[Pooled]], builds: Mapping[str, float]) -> None:
    """Draw every memory at every stage, and the Pareto front."""
    figure, axes = plots.pyplot().subplots(figsize=(6.4, 4.2))
    every = []
    for method in _methods(groups):
        colour, marker = LOOKS[method]
        mine = [items for (_, name), items in groups.items() if name == method]
        points = [
            (seconds, 100 * item.rate)
            for items in mine
            for seconds, item in zip(total_seconds(items, builds), items, strict=True)
        ]
        every += points
        axes.scatter(
            *zip(*points, strict=True),
            s=16,
            color=colour,
            marker=marker,
            alpha=0.75,
            label=mine[0][0].group.label,
            zorder=3,
        )
    front = pareto(every)
    axes.step(*zip(*front, strict=True), where="post", color="#444", linewidth=1, zorder=2, label="front")
    axes.set(xlabel="seconds of building and cleanup", ylabel="success, %", ylim=(0, 102))
    _in_seconds(axes)
    plots.tidy(axes)
    plots.legend_under(figure, np.array([axes]), 0.55)
    plots.save(figure, path)


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Pareto front of (cost, success) points, ordered by cost."""
    front: list[tuple[float, float]] = []
    for cost, success in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or success > front[-1][1]:
            front.append((cost, success))
    return front
