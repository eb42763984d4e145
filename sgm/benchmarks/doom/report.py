"""Report of a ViZDoom run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sgm.benchmarks import page, paper, tables
from sgm.benchmarks.checks import QUALITY
from sgm.benchmarks.page import Facts, Figures, Note, Part, Section
from sgm.benchmarks.runs import RunFolder
from sgm.benchmarks.tables import NONE, Cell, Pooled, Row, Table, rounded, share, success_cell, three_digits

from .figures import FALSE, LEVELS, by_level, figures, floor_plan

_NOTE = (
    "Success with the Wilson 95 % interval over the pooled episodes of all seeds, for starts up to 200 (easy), 400 "
    "(medium) and 600 map units (hard) from the goal; all methods have the same starts and goals. False edges: share "
    f"of edges between places over {FALSE:.0f} map units apart. Paper: overall success, and easy / medium / hard below "
    "it (Emmons et al., NeurIPS 2020). Code, weights and data of the paper's benchmark were not released, so its "
    "numbers can be compared but not reproduced exactly."
)


def report(run: RunFolder) -> list[Section]:
    """Sections of the report page."""
    quality = run.checked("quality", QUALITY)
    lost = sum(row.get("lost_engines") or 0 for row in run.rows)
    warning = f"{lost:,} engines died during evaluation; their episodes count as failures." if lost else ""
    return [
        Section("The maze", [Figures([floor_plan(run)])]),
        *page.standard(
            run,
            Section("Results", [*console(run.rows), Note(warning, loud=True), Note(_NOTE)]),
            Section("The distance and the controller", _quality(quality)),
            Section("Figures", [Figures(figures(run))]),
        ),
    ]


def console(rows: Sequence[Row]) -> list[Table]:
    """Table with a line for each method and number of cleanup steps: success by level, the paper's success, cost."""

    def of(level: str) -> Callable[[Pooled], Cell]:
        return lambda item: success_cell(next(iter(by_level(item.rows, level)), None))

    columns: dict[str, Callable[[Pooled], Cell | str]] = {
        "Cleanup steps": tables.stage_text,
        "Seeds × episodes": tables.episodes_text,
        **{level.capitalize(): of(level) for level in LEVELS},
        "Overall": success_cell,
        "Paper": lambda item: _quoted(item.method, item.cleanup_steps),
        "Nodes": lambda item: rounded(item.mean("nodes")),
        "Edges": lambda item: rounded(item.mean("edges")),
        "False edges": lambda item: share(item.mean("false_edges")),
        "ms per action": lambda item: tables.milliseconds(item.mean("seconds_per_action")),
    }
    return [tables.table(tables.by_stage(rows), columns)]


def _quoted(method: str, steps: int) -> Cell:
    """The paper's overall success, and its success by level."""
    overall = paper.doom_overall(method, steps)
    if overall is None:
        return Cell(NONE)
    return Cell(overall.text(), " / ".join(f"{value:.1f}" for value in paper.LEVELS[method, steps][:3]))


def _quality(quality: Mapping[str, Any]) -> list[Part]:
    """Parts about the quality of distance and controller; other values are shown unchanged."""
    accuracy = (quality.get("controller") or {}).get("accuracy") or {}
    guessed = [[Cell("Actions predicted correctly"), *(Cell(share(value)) for value in accuracy.values())]]
    rest = {name: three_digits(value) for name, value in quality.items() if name not in ("distance", "controller")}
    return [
        tables.distance_table({"": quality}),
        Note(page.distance_note(f"{FALSE:.0f} map units") if quality.get("distance") else ""),
        Table(["Controller, steps to the goal", *accuracy], guessed if accuracy else []),
        Facts(rest),
    ]
