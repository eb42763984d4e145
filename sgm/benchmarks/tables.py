"""Tables of a run: rows are pooled over seeds and laid out for a terminal, Markdown or HTML.

`docs/results.md` describes the fields of `results.json`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from sgm.errors import printable
from sgm.navigation import wilson

from . import label
from .checks import PHASES, check_row

NONE = "–"

Row = dict[str, Any]
T = TypeVar("T")


class Group(NamedTuple):
    """Values that pooled rows share, besides phase and cleanup steps."""

    environment: str
    method: str
    policy: str
    agent: str

    @property
    def label(self) -> str:
        """Display name of the method."""
        return label(self.environment, self.method)


@dataclasses.dataclass(frozen=True)
class Pooled:
    """The rows of one group, phase and number of cleanup steps, over all seeds.

    Attributes:
        group: environment, method, policy and agent.
        phase: phase of the memory.
        cleanup_steps: cleanup steps before these episodes.
        rows: rows, one for each seed.
    """

    group: Group
    phase: str
    cleanup_steps: int
    rows: tuple[Row, ...] = dataclasses.field(repr=False)

    @property
    def environment(self) -> str:
        """Of the group."""
        return self.group.environment

    @property
    def method(self) -> str:
        """Of the group."""
        return self.group.method

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len({row["seed"] for row in self.rows})

    @property
    def successes(self) -> int:
        """Number of successful episodes, all seeds pooled."""
        return sum(row["successes"] for row in self.rows)

    @property
    def trials(self) -> int:
        """Number of episodes, all seeds pooled."""
        return sum(row["episodes"] for row in self.rows)

    @property
    def rate(self) -> float:
        """Share of all episodes that reached their goal."""
        return self.successes / self.trials

    @property
    def ci95(self) -> tuple[float, float]:
        """Wilson 95 % interval over all episodes of all seeds."""
        return wilson(self.successes, self.trials)

    @property
    def mean_steps(self) -> float | None:
        """Steps to the goal, averaged over all successes; None if there are none."""
        arrived = [(row["mean_steps"], row["successes"]) for row in self.rows if row["mean_steps"] is not None]
        arrivals = sum(count for _, count in arrived)
        return sum(steps * count for steps, count in arrived) / arrivals if arrivals else None

    @property
    def reasons(self) -> dict[str, int]:
        """Number of failures by reason, all seeds pooled."""
        found: dict[str, int] = {}
        for row in self.rows:
            for reason, count in (row.get("reasons") or {}).items():
                found[reason] = found.get(reason, 0) + (count or 0)
        return found

    def mean(self, field: str) -> float | None:
        """Mean over seeds of a field of rows; None if it is unknown."""
        return mean(row.get(field) for row in self.rows)

    def share_of_nodes(self, field: str) -> float | None:
        """Mean over seeds of a number of nodes divided by all nodes; None if it is unknown."""
        return mean(row[field] / row["nodes"] for row in self.rows if row.get(field) is not None and row["nodes"])


class Cell(NamedTuple):
    """A cell of a table: its text, and an interval or other detail."""

    text: str
    detail: str = ""


class Table(NamedTuple):
    """A table: headings of the columns, lines of as many cells, and an optional title."""

    heads: Sequence[str]
    lines: Sequence[Sequence[Cell]]
    title: str = ""


# -- pooling --------------------------------------------------------------------------------------------------


def pool(rows: Iterable[Row]) -> list[Pooled]:
    """Pool rows over seeds; ordered by first appearance of the group, then phase, then cleanup steps."""
    groups: dict[Group, dict[tuple[int, int], list[Row]]] = {}
    for row in rows:
        check_row(row)
        key = Group(row["environment"], row["method"], row.get("policy") or NONE, row.get("agent") or NONE)
        stages = groups.setdefault(key, {})
        stages.setdefault((PHASES.index(row["phase"]), row["cleanup_steps"]), []).append(row)
    return [
        Pooled(key, PHASES[phase], steps, tuple(stages[phase, steps]))
        for key, stages in groups.items()
        for phase, steps in sorted(stages)
    ]


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def by_group(pooled: Iterable[Pooled]) -> dict[Group, list[Pooled]]:
    """Stages of each group."""
    groups: dict[Group, list[Pooled]] = {}
    for item in pooled:
        groups.setdefault(item.group, []).append(item)
    return groups


def stage(items: Sequence[Pooled], phase: str) -> Pooled | None:
    """Stage of a phase; for "cleaned" the longest cleanup that most seeds have finished."""
    found = [item for item in items if item.phase == phase]
    return max(found, key=lambda item: (item.seeds, item.cleanup_steps), default=None)


def last_stages(items: Sequence[Pooled]) -> list[Pooled]:
    """Stage of each phase of a group, as returned by `stage`."""
    return [item for phase in PHASES if (item := stage(items, phase))]


# -- tables of all benchmarks ------------------------------------------------------------------------------------


def table(items: Iterable[tuple[Group, T]], columns: Mapping[str, Callable[[T], Cell | str]], title: str = "") -> Table:
    """Make a table with a line for each item; the first columns give the method and whatever else differs."""
    items = list(items)
    environments, policies, agents = ({group[place] for group, _ in items} for place in (0, 2, 3))
    names: dict[str, Callable[[Group], str]] = {"Method": lambda group: group.label}
    if len(environments) > 1:
        names = {"Environment": lambda group: group.environment, **names}
    if policies - {NONE}:
        names["Policy"] = lambda group: group.policy
    if len(agents) > 1:
        names["Agent"] = lambda group: group.agent
    lines = [
        [*(Cell(name(group)) for name in names.values()), *(_cell(column(item)) for column in columns.values())]
        for group, item in items
    ]
    return Table([*names, *columns], lines, title)


def _cell(content: Cell | str) -> Cell:
    return Cell(content) if isinstance(content, str) else content


def by_stage(rows: Iterable[Row]) -> list[tuple[Group, Pooled]]:
    """Pool rows into (group, stage) items for `table`."""
    return [(item.group, item) for item in pool(rows)]


def main_table(rows: Iterable[Row], paper: Callable[[Group], str] | None = None) -> Table:
    """Table with a line for each group: success in each phase, cost in the last phase, and the paper's success."""
    columns: dict[str, Callable[[list[Pooled]], Cell | str]] = {
        "Seeds × episodes": lambda items: episodes_text(last_stages(items)[-1]),
        "Initial": lambda items: success_cell(stage(items, "initial")),
        "Filtered": lambda items: success_cell(stage(items, "filtered")),
        "After cleanup": lambda items: success_cell(stage(items, "cleaned")),
        "Cleanup steps": lambda items: rounded(last_stages(items)[-1].cleanup_steps or None),
        "Steps to goal": lambda items: rounded(last_stages(items)[-1].mean_steps),
        "Nodes": lambda items: rounded(last_stages(items)[-1].mean("nodes")),
        "Edges": lambda items: rounded(last_stages(items)[-1].mean("edges")),
        "ms per action": lambda items: milliseconds(last_stages(items)[-1].mean("seconds_per_action")),
    }
    if paper:
        columns["Paper"] = lambda items: paper(items[0].group)
    return table(by_group(pool(rows)).items(), columns)


def steps_table(rows: Sequence[Row]) -> Table:
    """Table of success by cleanup steps, for each seed and pooled."""

    def of(seed: int) -> Callable[[Pooled], str]:
        return lambda item: share(mean(row["successes"] / row["episodes"] for row in item.rows if row["seed"] == seed))

    seeds = {f"Seed {seed}": of(seed) for seed in sorted({row["seed"] for row in rows})}
    columns: dict[str, Callable[[Pooled], Cell | str]] = {
        "Cleanup steps": stage_text,
        **seeds,
        "Pooled": success_cell,
        "Edges": lambda item: rounded(item.mean("edges")),
    }
    return table(by_stage(rows), columns)


def failure_table(rows: Iterable[Row]) -> Table:
    """Table of reasons for failures, steps to the goal, and the largest component."""
    items = by_stage(rows)

    def of(reason: str) -> Callable[[Pooled], str]:
        return lambda item: f"{item.reasons.get(reason, 0):,}"

    reasons = dict.fromkeys(name for _, item in items for name, count in item.reasons.items() if count)
    columns: dict[str, Callable[[Pooled], Cell | str]] = {
        "Cleanup steps": stage_text,
        "Failed": lambda item: f"{item.trials - item.successes:,} of {item.trials:,}",
        **{f"Failed: {reason}": of(reason) for reason in reasons},
        "Steps to goal": lambda item: rounded(item.mean_steps),
        "ms per action": lambda item: milliseconds(item.mean("seconds_per_action")),
        "Largest component, nodes": lambda item: rounded(item.mean("largest_part")),
    }
    return table(items, columns)


def distance_table(quality: Mapping[str, Mapping[str, Any] | None]) -> Table:
    """Table of the quality and calibration of the distance of each part of a run."""
    known = {name: judged["distance"] for name, judged in quality.items() if judged and judged.get("distance")}
    accepted = {name: found.get("precision") or {} for name, found in known.items()}
    medians = {name: (found.get("calibration") or {}).get("medians") or {} for name, found in known.items()}
    recalls = sorted({recall for found in accepted.values() for recall in found}, key=float)
    lags = sorted({lag for found in medians.values() for lag in found}, key=int)
    lags = [lags[0], lags[len(lags) // 2], lags[-1]] if len(lags) > 3 else lags
    fields = {"Threshold": "threshold", "Near": "precision", "False": "false"}
    lines = []
    for name, found in known.items():
        at = [(accepted[name].get(recall) or {}).get(field) for recall in recalls for field in fields.values()]
        fitted = found.get("calibration") or {}
        lines.append(
            [
                Cell(name or "all seeds"),
                Cell(NONE if found.get("auc") is None else f"{found['auc']:.4f}"),
                *(Cell(share(value) if number % 3 else three_digits(value)) for number, value in enumerate(at)),
                *(Cell(three_digits(fitted.get(what))) for what in "cT"),
                *(Cell(three_digits(medians[name].get(lag))) for lag in lags),
            ]
        )
    heads = [
        "Run",
        "AUC",
        *(f"{what} at {float(recall):.0%} recall" for recall in recalls for what in fields),
        "c",
        "T",
    ]
    return Table([*heads, *(f"Median at {lag} step{'s' if lag != '1' else ''}" for lag in lags)], lines)


# -- layout ------------------------------------------------------------------------------------------------------


def markdown(table: Table) -> str:
    """Format a table as Markdown; the label columns are left-aligned."""
    escaped = [[text.replace("|", "\\|") for text in line] for line in texts(table)]
    lines = [f"| {' | '.join(line)} |" for line in escaped]
    left = _labels(table)
    rule = "|" + "|".join(["---"] * left + ["---:"] * (len(table.heads) - left)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _labels(table: Table) -> int:
    """Number of label columns: those up to the method, or the first."""
    return table.heads.index("Method") + 1 if "Method" in table.heads else 1


def columns(table: Table) -> str:
    """Format a table as columns of plain text; the label columns are left-aligned."""
    shown = texts(table)
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    left = _labels(table)
    aligned = [f"<{width}" if number < left else f">{width}" for number, width in enumerate(widths)]
    lines = ["  ".join(map(format, line, aligned)).rstrip() for line in shown]
    return "\n".join([lines[0], "  ".join("─" * width for width in widths), *lines[1:]])


def console(tables: Iterable[Table]) -> str:
    """Format tables as columns of plain text, one below the other."""
    return "\n\n".join(columns(table) for table in tables)


def texts(table: Table) -> list[list[str]]:
    """Headings and lines of a table as plain text, without control characters."""
    return [list(map(printable, table.heads)), *([printable(plain(cell)) for cell in line] for line in table.lines)]


def plain(cell: Cell) -> str:
    """Format a cell as text."""
    return f"{cell.text} [{cell.detail}]" if cell.detail else cell.text


def success_cell(item: Pooled | None) -> Cell:
    """Success and its Wilson 95 % interval."""
    if item is None:
        return Cell(NONE)
    low, high = item.ci95
    return Cell(percent(item.rate), f"{100 * low:.1f}–{100 * high:.1f}")


def seeds_text(item: Pooled | None) -> str:
    """Mean over seeds and its standard error; a dash for one seed."""
    rates = [100 * row["successes"] / row["episodes"] for row in item.rows] if item else []
    if len(rates) < 2:
        return NONE
    return f"{statistics.mean(rates):.1f} ± {statistics.stdev(rates) / math.sqrt(len(rates)):.1f} %"


def percent(rate: float) -> str:
    """Format a share, 0 to 1, as a percentage with one decimal."""
    return f"{100 * rate:.1f} %"


def share(value: float | None) -> str:
    """Format a share as `percent` does; a dash for None."""
    return NONE if value is None else percent(value)


def three_digits(value: Any) -> str:
    """Format a number with three digits; other values as JSON."""
    if value is None:
        return NONE
    if isinstance(value, float):
        return f"{value:.3g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def episodes_text(item: Pooled | None) -> str:
    """Numbers of pooled seeds and episodes, as text."""
    if item is None:
        return NONE
    episodes = {row["episodes"] for row in item.rows}
    return f"{item.seeds} × {min(episodes):,}" if len(episodes) == 1 else f"{item.seeds} seeds, {item.trials:,} in all"


def stage_text(item: Pooled) -> str:
    """Name of a stage: its phase before any cleanup, otherwise the number of cleanup steps."""
    return f"{item.cleanup_steps:,}" if item.cleanup_steps else item.phase


def rounded(value: float | None) -> str:
    """Format as a whole number."""
    return NONE if value is None else f"{value:,.0f}"


def milliseconds(seconds: float | None) -> str:
    """Format seconds as milliseconds with three digits."""
    return NONE if seconds is None else f"{1000 * seconds:.3g}"
