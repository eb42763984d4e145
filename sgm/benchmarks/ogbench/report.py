"""Report of an OGBench run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from sgm.benchmarks import label, page, tables
from sgm.benchmarks.page import Figures, Note, Section
from sgm.benchmarks.runs import RunFolder
from sgm.benchmarks.tables import NONE, Cell, Pooled, Row, Table, rounded, share, stage

from .figures import figures
from .published import OGBENCH, TTGS, quoted

_NOTE = (
    "Success, mean ± standard deviation over seeds, percent; below it the Wilson 95 % interval over the pooled "
    "episodes of all seeds. Offline: no step in the environment before the evaluation; sgm, uniform and euclid do not "
    "retry an edge that failed earlier in the same episode. After cleanup: robots started in states of the dataset. "
    "All methods share the distance and the controller of their seed, except euclid, a control: in these mazes walls "
    "are thicker than MaxDist. GAS-style and TTGS-style are our own planners after these papers, not reproductions. "
    f"Published: {OGBENCH}; {TTGS}. False edges join cells whose shortest path is longer than the straight line."
)


def report(run: RunFolder) -> list[Section]:
    """Sections of the report page."""
    sources = dict.fromkeys(str(row["source"]) for row in run.rows if row.get("source"))
    return [
        page.what_was_run(run),
        Section("Results", [summary_table(run.rows), Note(_NOTE), *console(run.rows)]),
        Section("Success by task", [task_table(run.rows)]),
        Section("Figures", [Figures(figures(run))]),
        Section("The data", [page.Facts({f"dataset {number}": name for number, name in enumerate(sources, 1)})]),
        page.by_seed(run),
        page.failures(run),
        page.made_with(run),
    ]


def console(rows: Sequence[Row]) -> list[Table]:
    """Table with a line for each dataset and method."""
    columns: dict[str, Callable[[list[Pooled]], Cell | str]] = {
        "Seeds × episodes": lambda items: tables.episodes_text(stage(items, "initial")),
        "Offline": lambda items: over_seeds(stage(items, "initial")),
        "After cleanup": lambda items: over_seeds(stage(items, "cleaned")),
        "Published": lambda items: published(items[0].group.environment),
        "Steps to goal": lambda items: rounded(_first(items).mean_steps),
        "Nodes": lambda items: rounded(_first(items).mean("nodes")),
        "Edges": lambda items: rounded(_first(items).mean("edges")),
        "False edges": lambda items: share(_first(items).mean("false_edges")),
        "ms per action": lambda items: tables.milliseconds(_first(items).mean("seconds_per_action")),
    }
    return [tables.table(tables.by_group(tables.pool(rows)).items(), columns)]


def summary_table(rows: Sequence[Row]) -> Table:
    """Table with a line for each dataset: offline success of every method, and of SGM after cleanup."""
    groups = tables.by_group(tables.pool(rows))
    datasets, methods = (dict.fromkeys(names) for names in zip(*(key[:2] for key in groups), strict=True))
    heads, lines = ["Dataset"], [[Cell(_short(name))] for name in datasets]
    for method in methods:
        found = [
            [item for key, items in groups.items() if key[:2] == (name, method) for item in items] for name in datasets
        ]
        for phase in ("initial", "cleaned"):
            if any(stage(items, phase) for items in found):
                heads.append(label("ogbench", method) + (", after cleanup" if phase == "cleaned" else ""))
                for line, items in zip(lines, found, strict=True):
                    line.append(over_seeds(stage(items, phase)))
    for line, name in zip(lines, datasets, strict=True):
        line.append(Cell(published(name)))
    return Table([*heads, "Published"], lines)


def _short(environment: str) -> str:
    return environment.removeprefix("ogbench:").removeprefix("pointmaze-").removesuffix("-v0")


def task_table(rows: Sequence[Row]) -> Table:
    """Table of offline success by task, over the pooled episodes of all seeds."""
    known = [row for row in rows if row.get("by_task")]
    tasks = sorted({task for row in known for task in row["by_task"]})

    def of(task: str) -> Callable[[Pooled], str]:
        def rate(item: Pooled) -> str:
            parts = [row["by_task"][task] for row in item.rows if task in row["by_task"]]
            episodes = sum(part["episodes"] for part in parts)
            return share(sum(part["successes"] for part in parts) / episodes) if episodes else NONE

        return rate

    columns: dict[str, Callable[[Pooled], Cell | str]] = {"Cleanup steps": tables.stage_text}
    return tables.table(tables.by_stage(known), {**columns, **{f"Task {task}": of(task) for task in tasks}})


def over_seeds(item: Pooled | None) -> Cell:
    """Cell with mean ± standard deviation over seeds, and the Wilson interval over all episodes."""
    if item is None:
        return Cell(NONE)
    rates = [100 * row["successes"] / row["episodes"] for row in item.rows]
    spread = f" ± {statistics.stdev(rates):.1f}" if len(rates) > 1 else ""
    low, high = item.ci95
    return Cell(f"{statistics.fmean(rates):.1f}{spread}", f"{100 * low:.1f}–{100 * high:.1f}")


def published(environment: str) -> str:
    """Numbers published by others for an environment."""
    return quoted(environment.removeprefix("ogbench:")) or NONE


def _first(items: Sequence[Pooled]) -> Pooled:
    return stage(items, "initial") or items[0]
