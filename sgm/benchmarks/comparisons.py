"""Methods against each other on the same tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sgm.navigation import paired_difference

from . import tables
from .tables import NONE, Cell, Group, Pooled, Row, Table


def note(method: str) -> str:
    """What the numbers of a comparison mean."""
    return (
        f"How much higher the success of {method} is, percentage points, with the 95 % interval of Agresti and Min "
        "(2005) for outcomes of the same tasks. The interval is over episodes; seeds may differ by more."
    )


class Tally(NamedTuple):
    """How often a method is above another with the whole interval of the difference, below it, or neither."""

    leads: int
    ties: int
    loses: int


def comparison_table(rows: Iterable[Row], chosen: str, others: Sequence[str]) -> Table:
    """How many points a method is above others on the same tasks, by cleanup steps."""
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
    """How often a method leads another in the stages from so many cleanup steps on."""
    items = tables.by_stage(rows)
    rival = _rivals(items)
    mine = [item for group, item in items if group.method == chosen and item.cleanup_steps >= least]
    found = [ends for item in mine if (ends := _above(item, rival(item, other))) is not None]
    leads, loses = sum(low > 0 for _, low, _ in found), sum(high < 0 for *_, high in found)
    return Tally(leads, len(found) - leads - loses, loses)


def _rivals(items: Sequence[tuple[Group, Pooled]]) -> Callable[[Pooled, str], Pooled | None]:
    """What finds the same stage of another method."""
    stages = {(item.group, item.phase, item.cleanup_steps): item for _, item in items}
    return lambda item, other: stages.get((item.group._replace(method=other), item.phase, item.cleanup_steps))


def _above(item: Pooled, rival: Pooled | None) -> tuple[float, float, float] | None:
    """The paired difference over the seeds that both have, in points, and its interval."""
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
