"""Report of a SafetyGym run."""

from __future__ import annotations

from collections.abc import Sequence

from sgm.benchmarks import comparisons, page, tables
from sgm.benchmarks.checks import COUNT, QUALITY, TEXT, Each, Several
from sgm.benchmarks.page import Figures, Note, Section
from sgm.benchmarks.runs import RunFolder
from sgm.benchmarks.tables import Row, Table

from .figures import figures, rooms
from .ground_truth import FALSE
from .settings import METHODS
from .tables import memory_table, ordered, success_table, threshold_table

_SUCCESS_NOTE = (
    "Success: mean over seeds and, for several seeds, its standard error; below it the Wilson 95 % interval over the "
    "pooled episodes of all seeds, and successes / episodes. All methods have the same starts and goals. Paper: Emmons "
    "et al., NeurIPS 2020, success without and with 1,000,000 steps of cleanup. The paper does not define its ±, and "
    "code, weights and rooms of its benchmark were not released, so its numbers can be compared but not reproduced "
    "exactly. Its SGM merges by both criteria, its ablation lists two-way alone. Policy: when cleanup removes an edge; "
    "first-failure is the paper's. Agent: plain forgets failed edges, persistent avoids them for the rest of the "
    "episode."
)
_MEMORY_NOTE = (
    "Means over seeds, without (w/o) and with (w/) cleanup. False: share of edges between places over "
    f"{FALSE:g} m apart. Connected: share of nodes in the largest strongly connected component; but for false: "
    "before cleanup without the false edges, the best possible result of cleanup. Wrong starts and "
    f"goals: share of starts and goals whose nearest node by the learned distance is over {FALSE:g} m away."
)
_THRESHOLD_NOTE = (
    "Chosen by node count and connectivity from the buffer alone, in the same way for every criterion; navigation "
    "results were not used. Order: 0 is the order of the buffer; others were drawn because the count jumped over its "
    "target or the graph was not connected. Off target: the closest count that was found."
)
_CALIBRATION_NOTE = "c and T scale exp(−(f − c) / T) to steps; the medians are from the calibration."


def report(run: RunFolder) -> list[Section]:
    """Sections of the report page."""
    run.require("layout", "policy", "agent")
    run = run._replace(results={**run.results, "rows": ordered(run.rows)})
    quality, settings = (
        run.checked("quality", Each(TEXT, QUALITY)),
        run.checked("settings", {"layouts": Several(COUNT)}),
    )
    asked = {layout for layout in settings.get("layouts") or () if layout is not None}
    layouts = sorted({row["layout"] for row in run.rows} or asked)
    note = f"{page.distance_note(f'{FALSE:g} m')} {_CALIBRATION_NOTE}"
    return [
        Section("The rooms", [Figures([rooms(run, layout) for layout in layouts])]),
        *page.standard(
            run,
            Section("Results", [*_success(run.rows), Note(_SUCCESS_NOTE)]),
            Section("The memories", [memory_table(run.rows), Note(_MEMORY_NOTE)]),
            Section("Thresholds", [threshold_table(run.results.get("thresholds") or {}), Note(_THRESHOLD_NOTE)]),
            Section("The distance", [tables.distance_table(quality), Note(note)]),
            *(_figures(run, layout, len(layouts)) for layout in layouts if run.rows),
            Section("Two-way against the others", [_compared(run.rows), Note(comparisons.note("two-way consistency"))]),
        ),
    ]


def console(rows: Sequence[Row]) -> list[Table]:
    """Tables of success and of the memories."""
    rows = ordered(rows)
    return [success_table(rows), memory_table(rows)]


def _success(rows: Sequence[Row]) -> list[Table]:
    """Table of success for each agent."""
    agents = dict.fromkeys(row["agent"] for row in rows)
    return [
        success_table([row for row in rows if row["agent"] == agent], f"{agent.capitalize()} agent") for agent in agents
    ]


def _compared(rows: Sequence[Row]) -> Table:
    return comparisons.comparison_table(rows, "two-way", [method for method in METHODS if method != "two-way"])


def _figures(run: RunFolder, layout: int, layouts: int) -> Section:
    return Section("Figures" if layouts == 1 else f"Figures, layout {layout}", [Figures(figures(run, layout))])
