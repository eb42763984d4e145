"""Report of a PointEnv run."""

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
    "or without a memory. Filtered: after the k-nearest filter, before cleanup. Steps to goal (successes only), nodes, "
    "edges and time per action: last phase. Paper: Emmons et al., NeurIPS 2020, after 400,000 cleanup steps."
)


def report(run: RunFolder) -> list[Section]:
    """Sections of the report page."""
    said = [Note(text, loud=True) for text in verdict(run.rows)]
    results = Section("Results", [*said, *console(run.rows), Note(_NOTE)])
    return page.standard(run, results, Section("Figures", [Figures(figures(run))]))


def verdict(rows: Sequence[Row]) -> list[str]:
    """Compare the sparse and the dense memory in a sentence or two; empty unless the run has both."""
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
    mine, theirs = pairs[-1]
    figures = (
        f"Success after {mine.cleanup_steps:,} cleanup steps: {100 * mine.rate:.1f} % with the sparse memory of "
        f"{tables.rounded(mine.mean('nodes'))} nodes, {100 * theirs.rate:.1f} % with the dense memory of "
        f"{tables.rounded(theirs.mean('nodes'))}."
    )
    sparse_leads = [each.cleanup_steps for each, other in pairs if each.ci95[0] > other.ci95[1]]
    dense_leads = [each.cleanup_steps for each, other in pairs if other.ci95[0] > each.ci95[1]]
    said = [
        f"The {name} memory is better, with disjoint intervals, after {', '.join(f'{at:,}' for at in leads)} steps."
        for name, leads in (("sparse", sparse_leads), ("dense", dense_leads))
        if leads
    ]
    if mine.cleanup_steps not in sparse_leads + dense_leads:
        said.append("There is no clear difference at the end; there is one with more observations (docs/sparsity.md).")
    return [" ".join([figures, *said])]


def console(rows: Sequence[Row]) -> list[Table]:
    """Main table, with the paper's numbers if this is the paper's maze."""
    ours = any(row["environment"].startswith(paper.POINT_ENVIRONMENT) for row in rows)
    return [tables.main_table(rows, _quoted if ours else None)]


def _quoted(group: Group) -> str:
    """The paper's success of a method."""
    if not group.environment.startswith(paper.POINT_ENVIRONMENT):
        return NONE
    row = paper.main_row("point", group.method)
    return row.success.text() if row else "near zero" if group.method in paper.NEAR_ZERO else NONE
