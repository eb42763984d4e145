"""Tables of the SafetyGym benchmark: the paper's ablation, memories and thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sgm.benchmarks import label, paper, tables
from sgm.benchmarks.tables import NONE, Cell, Pooled, Row, Table, rounded, share, stage, three_digits

from .settings import METHODS, POLICIES

_THRESHOLDS = {"tau_a": "τ_a, steps", "tau_p": "τ_p", "size": "size, nodes"}


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Rows by layout, agent, policy and method, each in the paper's order."""

    def order(row: Row) -> tuple[Any, ...]:
        policy, method = (
            list(known).index(name) if name in known else len(known)
            for name, known in ((row["policy"], POLICIES), (row["method"], METHODS))
        )
        return row["layout"], row["agent"] != "plain", row["agent"], policy, method

    return sorted(rows, key=order)


def success_table(rows: Iterable[Row], title: str = "") -> Table:
    """Table of the paper's ablation: success without and with cleanup, beside the paper's."""
    columns: dict[str, Callable[[list[Pooled]], Cell | str]] = {
        "Seeds": lambda items: str(tables.last_stages(items)[-1].seeds),
        "W/o cleanup": lambda items: _success(stage(items, "initial")),
        "Paper w/o": lambda items: _quoted(items, 0),
        "W/ cleanup": lambda items: _success(stage(items, "cleaned")),
        "Paper w/": lambda items: _quoted(items, 1),
        "Cleanup steps": lambda items: rounded(tables.last_stages(items)[-1].cleanup_steps or None),
    }
    return tables.table(tables.by_group(tables.pool(rows)).items(), columns, title)


def _quoted(items: Sequence[Pooled], with_cleanup: int) -> str:
    number = paper.ablation(items[0].method)[with_cleanup]
    return number.text() if number else NONE


def _success(item: Pooled | None) -> Cell:
    """Cell with the mean over seeds ± standard error, the interval over all episodes, and successes / episodes."""
    if item is None:
        return Cell(NONE)
    pooled, mean = tables.success_cell(item), tables.seeds_text(item)
    return Cell(pooled.text if mean == NONE else mean, f"{pooled.detail}; {item.successes:,}/{item.trials:,}")


def memory_table(rows: Sequence[Row]) -> Table:
    """Table of the memories before and after cleanup, means over seeds; they are the same for all agents."""
    pooled = tables.pool(row for row in rows if row["agent"] == rows[0]["agent"])

    def at(phase: str, text: Callable[[Pooled], str]) -> Callable[[list[Pooled]], str]:
        """Make a column that shows the stage of a phase; "last" is the last available stage."""
        return lambda items: text(item) if (item := _stage(items, phase)) else NONE

    columns = {
        "Nodes": at("last", lambda item: rounded(item.mean("nodes"))),
        "Edges w/o": at("initial", lambda item: rounded(item.mean("edges"))),
        "Edges w/": at("cleaned", lambda item: rounded(item.mean("edges"))),
        "False w/o": at("initial", lambda item: share(item.mean("false_edges"))),
        "False w/": at("cleaned", lambda item: share(item.mean("false_edges"))),
        "Connected w/o": at("initial", lambda item: share(item.share_of_nodes("largest_part"))),
        "But for false": at("initial", lambda item: share(item.share_of_nodes("true_part"))),
        "Connected w/": at("cleaned", lambda item: share(item.share_of_nodes("largest_part"))),
        "Wrong starts": at("last", lambda item: share(item.mean("false_starts"))),
        "Wrong goals": at("last", lambda item: share(item.mean("false_goals"))),
        "Cleanup, s": _cleanup_seconds,
    }
    return tables.table(tables.by_group(pooled).items(), columns)


def _stage(items: Sequence[Pooled], phase: str) -> Pooled | None:
    return tables.last_stages(items)[-1] if phase == "last" else stage(items, phase)


def _cleanup_seconds(items: Sequence[Pooled]) -> str:
    """Wall-clock time of the whole cleanup, the sum over stages, mean over the seeds that finished it."""
    after = stage(items, "cleaned")
    if after is None:
        return NONE
    seeds = {row["seed"] for row in after.rows}
    rows = [row for item in items if item.cleanup_steps <= after.cleanup_steps for row in item.rows]
    return rounded(sum(row.get("cleanup_seconds") or 0.0 for row in rows if row["seed"] in seeds) / len(seeds))


def threshold_table(choices: Mapping[str, Mapping[str, Any] | None]) -> Table:
    """Table of the thresholds chosen by node count and connectivity, by layout, seed and method."""
    heads = ["Run", "Method", "Threshold", "Value", "τ_p beside", "Nodes asked", "Nodes", "Edges", "Largest component"]
    lines = []
    for name, choice in choices.items():
        if not choice:
            continue
        piece, _, method = name.rpartition("/")
        beside = (choice.get("settings") or {}).get("tau_p") if choice.get("name") == "tau_a" else None
        missed = "" if choice.get("within_tolerance", True) else "off target"
        lines.append(
            [
                Cell(piece),
                Cell(label("safety", method)),
                Cell(_THRESHOLDS.get(choice.get("name", ""), str(choice.get("name")))),
                Cell(three_digits(choice.get("value"))),
                Cell(three_digits(beside)),
                Cell(rounded(choice.get("asked"))),
                Cell(rounded(choice.get("nodes")), missed),
                Cell(rounded(choice.get("edges"))),
                Cell(rounded(choice.get("largest_part"))),
                Cell(str(choice.get("tried") or NONE)),
                Cell(three_digits(choice.get("redrawn"))),
            ]
        )
    return Table([*heads, "Graphs tried", "Order"], lines)
