"""Paired comparisons of methods on the same tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sgm.navigation import paired_difference

from . import tables
from .tables import NONE, Cell, Group, Pooled, Row, Table


def note(method: str) -> str:
    """Explanation of the numbers in a comparison table."""
    return (
        f"Success of {method} minus that of the other method, percentage points, with the 95 % interval of Agresti and "
        "Min (2005) for paired outcomes. The interval is over episodes; seeds may differ by more."
    )


class Tally(NamedTuple):
    """Number of stages in which the interval of the difference is above zero, contains zero, or is below zero."""

    leads: int
    ties: int
    loses: int


def comparison_table(rows: Iterable[Row], chosen: str, others: Sequence[str]) -> Table:
    """Success of a method minus that of each other method on the same tasks, percentage points, by cleanup steps."""
    items = tables.by_stage(rows)
    rival = _rivals(items)

    def over(other: str) -> Callable[[Pooled], Cell]:
        return lambda item: _cell(_above(item, rival(item, other)))

    known = {group.method: group.label for group, _ in items}
    columns = {f"Over {known[other]}": over(other) for other in others if other in known}
    shown = [(group, item) for group, item in items if group.method == chosen]
    shown = [(group, item) for group, item in shown if any(above(item).text != NONE for above in columns.values())]
    return tables.table(shown, {"Cleanup steps": tables.stage_text, **columns})


def tally(rows: Iterable[Row], chosen: str, other: str, least: int) -> Tally:
    """Count wins, ties and losses of a method against another, over stages with at least `least` cleanup steps."""
    items = tables.by_stage(rows)
    rival = _rivals(items)
    mine = [item for group, item in items if group.method == chosen and item.cleanup_steps >= least]
    found = [ends for item in mine if (ends := _above(item, rival(item, other))) is not None]
    leads, loses = sum(low > 0 for _, low, _ in found), sum(high < 0 for *_, high in found)
    return Tally(leads, len(found) - leads - loses, loses)


def _rivals(items: Sequence[tuple[Group, Pooled]]) -> Callable[[Pooled, str], Pooled | None]:
    """Return a function that finds the same stage of another method."""
    stages = {(item.group, item.phase, item.cleanup_steps): item for _, item in items}
    return lambda item, other: stages.get((item.group._replace(method=other), item.phase, item.cleanup_steps))


def _above(item: Pooled, rival: Pooled | None) -> tuple[float, float, float] | None:
    """Paired difference over the seeds that both methods have, percentage points, and its interval."""
    mine, theirs = (
        {row["seed"]: str(row["outcomes"]) for row in (each.rows if each else ()) if row.get("outcomes")}
        for each in (item, rival)
    )
    seeds = [seed for seed in mine if len(theirs.get(seed, "")) == len(mine[seed])]
    if not seeds:
        return None
    outcomes = [np.array(list("".join(each[seed] for seed in seeds))) == "1" for each in (mine, theirs)]
    difference, low, high = (100 * value for value in paired_difference(*outcomes))
    return difference, low, high


def _cell(above: tuple[float, float, float] | None) -> Cell:
    if above is None:
        return Cell(NONE)
    difference, low, high = above
    return Cell(f"{difference:+.1f}", f"[{low:+.1f}, {high:+.1f}]")
