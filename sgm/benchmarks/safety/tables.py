"""The tables of a SafetyGym run: the paper's ablation, what the memories are, thresholds, and the distance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sgm.benchmarks import tables
from sgm.benchmarks.paper import ABLATION, MAIN
from sgm.benchmarks.printed import Quoted, seeds_text
from sgm.benchmarks.tables import NONE, Cell, Pooled, Row, Table, share, three_digits
from sgm.navigation import paired_difference

from .figures import label
from .settings import METHODS, POLICIES

# Without and with cleanup: Table 3, and the two rows of Table 1 that it does not have.
PAPER: dict[str, tuple[Quoted | None, Quoted]] = {
    **{row.method: (None, row.success) for row in MAIN if row.benchmark == "safety"},
    **ABLATION,
}


AGAINST = ("consptm", "uniform", "perceptual", "incoming", "outgoing", "both")


class Key(NamedTuple):
    """What rows are pooled by, beside phase and cleanup steps."""

    layout: int
    method: str
    policy: str
    agent: str


def pooled(rows: Iterable[Row]) -> dict[Key, list[Pooled]]:
    """The stages of each method, policy and agent, each pooled over seeds; by layout, then in the paper's order."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(Key(row["layout"], row["method"], row["policy"], row["agent"]), []).append(row)

    def order(key: Key) -> tuple[Any, ...]:
        policies, methods = (list(names).index(name) if name in names else len(names) for name, names in
                             ((key.policy, POLICIES), (key.method, METHODS)))  # fmt: skip
        return key.layout, key.agent != "plain", key.agent, policies, methods

    return {key: tables.pool(groups[key]) for key in sorted(groups, key=order)}


def success_table(rows: Iterable[Row]) -> Table:
    """The paper's ablation: success without and with cleanup, the paper's beside it."""
    groups = pooled(rows)
    several, agents = (len({key[place] for key in groups}) > 1 for place in (0, 3))
    heads = [
        *(["Layout"] if several else []), "Method", "Policy", *(["Agent"] if agents else []), "Seeds",
        "W/o cleanup", "Paper", "W/ cleanup", "Paper", "Cleanup steps",
    ]  # fmt: skip
    lines = []
    for key, items in groups.items():
        before, after = (tables.stage(items, phase) for phase in ("initial", "cleaned"))
        paper = PAPER.get(key.method, (None, None))
        ours = [
            cell
            for item, quoted in zip((before, after), paper, strict=True)
            for cell in (_success(item), Cell(quoted.text() if quoted else NONE))
        ]
        lines.append([
            *([Cell(str(key.layout))] if several else []), Cell(label(key.method)), Cell(key.policy),
            *([Cell(key.agent)] if agents else []),
            Cell(str(tables.last_stages(items)[-1].seeds)), *ours,
            Cell(f"{after.cleanup_steps:,}" if after else NONE),
        ])  # fmt: skip
    return Table(heads, lines)


def comparison_table(rows: Iterable[Row], chosen: str = "two-way", others: Sequence[str] = AGAINST) -> Table:
    """How many points a method is above others on the same tasks, by cleanup steps."""
    groups = pooled(rows)
    several = len({key.layout for key in groups}) > 1
    others = [other for other in others if any(key.method == other for key in groups)]
    heads = [
        *(["Layout"] if several else []), "Policy", "Agent", "Cleanup steps",
        *(f"{label(chosen)} over {label(other)}" for other in others),
    ]  # fmt: skip
    lines = []
    for key, items in groups.items():
        if key.method != chosen:
            continue
        for item in items:
            rivals = (_same_stage(groups.get(key._replace(method=other), ()), item) for other in others)
            cells = [_above(item, rival) for rival in rivals]
            if any(cell.text != NONE for cell in cells):
                first = [Cell(str(key.layout))] if several else []
                lines.append([*first, Cell(key.policy), Cell(key.agent), Cell(f"{item.cleanup_steps:,}"), *cells])
    return Table(heads, lines)


def _same_stage(items: Sequence[Pooled], like: Pooled) -> Pooled | None:
    return next((item for item in items if item.cleanup_steps == like.cleanup_steps), None)


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


def memory_table(rows: Iterable[Row]) -> Table:
    """What the memories are before and after cleanup, the means over seeds; they are the same for all agents."""
    groups: dict[tuple[int, str, str], list[Pooled]] = {}
    for key, items in pooled(rows).items():
        groups.setdefault(key[:3], items)
    several = len({layout for layout, _, _ in groups}) > 1
    heads = [
        *(["Layout"] if several else []), "Method", "Policy", "Nodes", "Edges w/o", "Edges w/", "False w/o", "False w/",
        "Connected w/o", "But for false", "Connected w/", "Wrong starts", "Wrong goals", "Cleanup, s",
    ]  # fmt: skip
    lines = []
    for (layout, method, policy), items in groups.items():
        before, after = (tables.stage(items, phase) for phase in ("initial", "cleaned"))
        known = after or before
        seconds = tables.mean(_cleanup_seconds(items, after)) if after else None
        lines.append([
            *([Cell(str(layout))] if several else []), Cell(label(method)), Cell(policy),
            Cell(tables.rounded(known.nodes if known else None)),
            *(Cell(tables.rounded(item.edges if item else None)) for item in (before, after)),
            *(Cell(share(known_mean(item, "false_edges"))) for item in (before, after)),
            Cell(share(connected(before))), Cell(share(connected(before, "true_part"))), Cell(share(connected(after))),
            *(Cell(share(known_mean(known, name))) for name in ("false_starts", "false_goals")),
            Cell(tables.rounded(seconds)),
        ])  # fmt: skip
    return Table(heads, lines)


def steps_table(rows: Sequence[Row]) -> Table:
    """Success by cleanup steps: each seed, and all of them pooled; why episodes failed."""
    groups = pooled(rows)
    several = len({key.layout for key in groups}) > 1
    seeds = sorted({row["seed"] for row in rows})
    reasons = list(dict.fromkeys(name for row in rows for name, count in (row.get("reasons") or {}).items() if count))
    heads = [
        *(["Layout"] if several else []), "Method", "Policy", "Agent", "Cleanup steps",
        *(f"Seed {seed}" for seed in seeds), "Pooled", *(f"Failed: {reason}" for reason in reasons),
        "Steps to goal", "ms per action",
    ]  # fmt: skip
    lines = []
    for key, items in groups.items():
        for item in items:
            mine = {row["seed"]: row["successes"] / row["episodes"] for row in item.rows}
            lines.append([
                *([Cell(str(key.layout))] if several else []), Cell(label(key.method)), Cell(key.policy),
                Cell(key.agent), Cell(f"{item.cleanup_steps:,}"), *(Cell(share(mine.get(seed))) for seed in seeds),
                tables.success_cell(item), *(Cell(str(item.reasons.get(reason, NONE))) for reason in reasons),
                Cell(tables.rounded(item.mean_steps)), Cell(tables.milliseconds(item.seconds_per_action)),
            ])  # fmt: skip
    return Table(heads, lines)


def threshold_table(choices: Mapping[str, Mapping[str, Any]]) -> Table:
    """The thresholds that node count and connectivity chose."""
    heads = [
        "Piece", "Method", "Threshold", "Value", "τ_p beside", "Nodes asked", "Nodes", "Edges", "Largest part",
        "Graphs tried", "Order",
    ]  # fmt: skip
    lines = []
    for name, choice in choices.items():
        piece, _, method = name.rpartition("/")
        beside = (choice.get("settings") or {}).get("tau_p") if choice.get("name") == "tau_a" else None
        missed = "" if choice.get("within_tolerance", True) else "off target"
        lines.append([
            Cell(piece), Cell(label(method)), Cell(_THRESHOLDS.get(choice.get("name", ""), str(choice.get("name")))),
            Cell(three_digits(choice.get("value"))), Cell(three_digits(beside)),
            Cell(tables.rounded(choice.get("asked"))), Cell(tables.rounded(choice.get("nodes")), missed),
            Cell(tables.rounded(choice.get("edges"))), Cell(tables.rounded(choice.get("largest_part"))),
            Cell(str(choice.get("tried") or NONE)),
            Cell(three_digits(choice.get("redrawn"))),
        ])  # fmt: skip
    return Table(heads, lines)


_ACCEPTED = {"Near": "precision", "False": "false"}
_THRESHOLDS = {"tau_a": "τ_a, steps", "tau_p": "τ_p", "size": "size, nodes"}


def quality_table(quality: Mapping[str, Any]) -> Table:
    """How good the distance of each piece is, and how it was calibrated."""
    known = {name: judged["distance"] for name, judged in quality.items() if judged and judged.get("distance")}
    recalls = sorted({recall for found in known.values() for recall in found.get("precision") or {}}, key=float)
    lags = sorted({lag for found in known.values() for lag in _medians(found)}, key=int)
    shown = [lags[0], lags[len(lags) // 2], lags[-1]] if len(lags) > 3 else lags
    heads = [
        "Piece", "AUC", *(f"{what} at {float(recall):.0%} recall" for recall in recalls for what in _ACCEPTED),
        "c", "T", *(f"Median at {lag} step{'s' if lag != '1' else ''}" for lag in shown),
    ]  # fmt: skip
    lines = []
    for name, found in known.items():
        accepted, fitted = found.get("precision") or {}, found.get("calibration") or {}
        lines.append([
            Cell(name), Cell(f"{found['auc']:.4f}" if found.get("auc") is not None else NONE),
            *(Cell(share((accepted.get(recall) or {}).get(what))) for recall in recalls for what in _ACCEPTED.values()),
            *(Cell(three_digits(fitted.get(what))) for what in ("c", "T")),
            *(Cell(three_digits(_medians(found).get(lag))) for lag in shown),
        ])  # fmt: skip
    return Table(heads, lines)


def _medians(found: Mapping[str, Any]) -> Mapping[str, float]:
    return (found.get("calibration") or {}).get("medians") or {}


def _success(item: Pooled | None) -> Cell:
    """Mean over seeds, its standard error if there are several, the interval of all episodes, and what was counted."""
    if item is None:
        return Cell(NONE)
    pooled, mean = tables.success_cell(item), seeds_text(item)
    return Cell(pooled.text if mean == NONE else mean, f"{pooled.detail}; {item.successes:,}/{item.trials:,}")


def known_mean(item: Pooled | None, field: str) -> float | None:
    """Mean over seeds of a field of rows."""
    return None if item is None else tables.mean(row.get(field) for row in item.rows)


def connected(item: Pooled | None, field: str = "largest_part") -> float | None:
    """Share of the nodes in the largest strongly connected part, or in that without false edges; mean over seeds."""
    if item is None:
        return None
    known = [row for row in item.rows if row.get(field) is not None and row["nodes"]]
    return tables.mean(row[field] / row["nodes"] for row in known)


def _cleanup_seconds(items: Sequence[Pooled], after: Pooled) -> list[float]:
    """Wall time of the whole cleanup, for each seed that went through it: every row has that of its own part."""
    seeds = {row["seed"] for row in after.rows}
    parts = [row for item in items if item.cleanup_steps <= after.cleanup_steps for row in item.rows]
    return [sum(row.get("cleanup_seconds") or 0.0 for row in parts if row["seed"] == seed) for seed in seeds]
