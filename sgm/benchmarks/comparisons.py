"""Methods against each other on the same tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from sgm.navigation import paired_difference

from . import tables
from .tables import NONE, Cell, Pooled, Row, Table

NOTE = (
    "How much higher the success of two-way consistency is, percentage points, with the 95 % interval of Agresti and "
    "Min (2005) for outcomes of the same tasks. The interval is over episodes; seeds may differ by more."
)


def comparison_table(rows: Iterable[Row], chosen: str, others: Sequence[str]) -> Table:
    """How many points a method is above others on the same tasks, by cleanup steps."""
    items = tables.by_stage(rows)
    stages = {(item.group, item.phase, item.cleanup_steps): item for _, item in items}

    def over(other: str) -> Callable[[Pooled], Cell]:
        return lambda item: _above(
            item, stages.get((item.group._replace(method=other), item.phase, item.cleanup_steps))
        )

    known = {group.method: group.label for group, _ in items}
    columns = {f"Over {known[other]}": over(other) for other in others if other in known}
    shown = [(group, item) for group, item in items if group.method == chosen]
    shown = [(group, item) for group, item in shown if any(above(item).text != NONE for above in columns.values())]
    return tables.table(shown, {"Cleanup steps": tables.stage_text, **columns})


def _above(item: Pooled, rival: Pooled | None) -> Cell:
    """The paired difference over the seeds that both have."""
    mine, theirs = (
        {row["seed"]: str(row["outcomes"]) for row in (each.rows if each else ()) if row.get("outcomes")}
        for each in (item, rival)
    )
    seeds = [seed for seed in mine if len(theirs.get(seed, "")) == len(mine[seed])]
    if not seeds:
        return Cell(NONE)
    outcomes = [np.array(list("".join(each[seed] for seed in seeds))) == "1" for each in (mine, theirs)]
    difference, low, high = (100 * value for value in paired_difference(*outcomes))
    return Cell(f"{difference:+.1f}", f"[{low:+.1f}, {high:+.1f}]")
