"""The report of a PointEnv run."""

from __future__ import annotations

from collections.abc import Sequence

from sgm.benchmarks import page, paper, tables
from sgm.benchmarks.page import Figures, Note, Section
from sgm.benchmarks.runs import RunFolder
from sgm.benchmarks.tables import NONE, Group, Row, Table

from .figures import figures

PAIR = ("sorb+sgm", "sorb")
_NOTE = (
    "Success with the Wilson 95 % interval over the pooled episodes of all seeds. Initial: before the k-nearest filter "
    "or without a memory. Filtered: k nearest successors, no cleanup. Steps to goal (successes only), nodes, edges and "
    "time per action are those of the last phase. Paper: Emmons et al., NeurIPS 2020, after 400,000 cleanup steps."
)


def report(run: RunFolder) -> list[Section]:
    """The sections of the page."""
    said = [Note(text, loud=True) for text in verdict(run.rows)]
    results = Section("Results", [*said, *console(run.rows), Note(_NOTE)])
    return page.standard(run, results, Section("Figures", [Figures(figures(run))]))


def verdict(rows: Sequence[Row]) -> list[str]:
    """In a sentence or two, what the run says of the sparse memory and the dense one; nothing without both."""
    by_method = {name: tables.by_group(tables.pool(row for row in rows if row["method"] == name)) for name in PAIR}
    if any(len(groups) != 1 for groups in by_method.values()):
        return []
    sparse, dense = (next(iter(by_method[name].values())) for name in PAIR)
    stages = {item.cleanup_steps: item for item in dense if item.phase == "cleaned"}
    pairs = [
        (item, stages[item.cleanup_steps])
        for item in sparse
        if item.phase == "cleaned" and item.cleanup_steps in stages
    ]
    if not pairs:
        return []
    ahead = [(mine, theirs) for mine, theirs in pairs if mine.ci95[0] > theirs.ci95[1]]
    mine, theirs = ahead[-1] if ahead else pairs[-1]
    figures = (
        f"{100 * mine.rate:.1f} % with the sparse memory of {tables.rounded(mine.mean('nodes'))} nodes and "
        f"{100 * theirs.rate:.1f} % with the dense one of {tables.rounded(theirs.mean('nodes'))}"
    )
    after = f"After {mine.cleanup_steps:,} steps of cleanup {figures}"
    if ahead:
        steps = ", ".join(f"{item.cleanup_steps:,}" for item, _ in ahead)
        return [f"{after}. The sparse memory is ahead, with intervals that do not overlap, after {steps} steps."]
    if any(theirs.ci95[0] > mine.ci95[1] for mine, theirs in pairs[-1:]):
        return [f"{after}: here the dense memory is ahead."]
    return [f"{after}: no clear difference. It grows with the observations (--buffer-size), see docs/sparsity.md."]


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
