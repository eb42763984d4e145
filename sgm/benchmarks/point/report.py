"""The report of a PointEnv run."""

from __future__ import annotations

from collections.abc import Sequence

from sgm.benchmarks import page, paper, tables
from sgm.benchmarks.page import Figures, Note, Section
from sgm.benchmarks.runs import RunFolder
from sgm.benchmarks.tables import NONE, Group, Row, Table

from .figures import figures

_NOTE = (
    "Success with the Wilson 95 % interval over the pooled episodes of all seeds. Initial: before the k-nearest filter "
    "or without a memory. Filtered: k nearest successors, no cleanup. Steps to goal (successes only), nodes, edges and "
    "time per action are those of the last phase. Paper: Emmons et al., NeurIPS 2020, after 400,000 cleanup steps."
)


def report(run: RunFolder) -> list[Section]:
    """The sections of the page."""
    return [
        page.what_was_run(run),
        Section("Results", [*console(run.rows), Note(_NOTE)]),
        Section("Figures", [Figures(figures(run))]),
        page.by_seed(run),
        page.failures(run),
        page.made_with(run),
    ]


def console(rows: Sequence[Row]) -> list[Table]:
    """One table, with the paper's numbers if this is the paper's maze."""
    ours = any(row["environment"].startswith(paper.POINT_ENVIRONMENT) for row in rows)
    return [tables.main_table(rows, _quoted if ours else None)]


def _quoted(group: Group) -> str:
    """What the paper says of a method."""
    if not group.environment.startswith(paper.POINT_ENVIRONMENT):
        return NONE
    row = paper.main_row("point", group.method)
    return row.success.text() if row else "near zero" if group.method in paper.NEAR_ZERO else NONE
