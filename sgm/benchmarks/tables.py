"""The tables of a run: its rows read, checked, pooled over seeds, and laid out for a terminal, Markdown or a page.

What the fields of `results.json` mean: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
import json
import reprlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sgm
from sgm.errors import printable
from sgm.navigation import wilson

from .checks import PHASES, RESULTS, check, check_row
from .results import read_json

SCHEMA = 1
LABELS = {
    "sorb": "SoRB", "sorb+sgm": "SoRB + SGM", "d3pg": "D3PG", "ddpg+her": "DDPG + HER", "sac+her": "SAC + HER",
    "random": "random actions", "controller": "visual controller", "sptm": "SPTM", "dense": "dense oracle",
    "sptm+sgm": "SPTM + SGM", "ours-random-goals": "ours, random goals",
}  # fmt: skip
PAPER_ENVIRONMENT = "point:FourRooms-thin"
PAPER = {
    "sorb": "28.0 ± 6.3 %", "sorb+sgm": "100.0 ± 0.1 %",
    "d3pg": "near zero", "ddpg+her": "near zero", "sac+her": "near zero",
}  # fmt: skip
PAPER_FINAL = {"sorb": (0.28, "paper, SoRB: 28 %\n(400k steps)"), "sorb+sgm": (1.0, "paper, SGM: 100 %\n(400k steps)")}
NONE = "–"

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Pooled:
    """The rows of one environment, method, phase and number of cleanup steps, over all seeds.

    Attributes:
        seeds: number of seeds.
        episodes: episodes of each seed.
        successes: of all seeds together.
        mean_steps: steps to the goal, averaged over all successes; None if there are none.
        nodes: mean over seeds; None without a memory.
        edges: mean over seeds; None without a memory.
        largest_part: mean over seeds; None if unknown.
        seconds_per_action: mean over seeds.
        reasons: failures by reason, of all seeds together.
        rows: what was pooled.
    """

    environment: str
    method: str
    phase: str
    cleanup_steps: int
    seeds: int
    episodes: tuple[int, ...]
    successes: int
    mean_steps: float | None
    nodes: float | None
    edges: float | None
    largest_part: float | None
    seconds_per_action: float | None
    reasons: dict[str, int]
    rows: tuple[Row, ...] = dataclasses.field(repr=False)

    @property
    def trials(self) -> int:
        """Episodes of all seeds together."""
        return sum(self.episodes)

    @property
    def rate(self) -> float:
        """Share of all episodes that reached their goal."""
        return self.successes / self.trials

    @property
    def ci95(self) -> tuple[float, float]:
        """Wilson 95 % interval over all episodes of all seeds."""
        return wilson(self.successes, self.trials)


class Cell(NamedTuple):
    """What a table says in one place, and its interval or other detail."""

    text: str
    detail: str = ""


class Table(NamedTuple):
    """A heading for each column, and lines of as many cells."""

    heads: Sequence[str]
    lines: Sequence[Sequence[Cell]]


# -- reading -----------------------------------------------------------------------------------------------------


def read_results(folder: Path, *needed: str) -> dict[str, Any]:
    """The content of `results.json`, with these fields in every row; SGMError if it is not what this version reads."""
    path = folder / "results.json"
    results = read_json(path, "run again with the same --out")
    if results is None and not path.exists():
        raise sgm.StoreError(f"{folder} holds no results.json: give the folder of a run (sgm run)")
    schema = results.get("schema") if isinstance(results, dict) else None
    if schema != SCHEMA:
        raise sgm.StoreError(f"{path} has schema {reprlib.repr(schema)}; this version of sgm reads schema {SCHEMA}")
    if not isinstance(results.get("rows"), list):
        raise sgm.StoreError(f"{path} has no list of rows: see docs/results.md for what is accepted")
    check(results, RESULTS, str(path))
    for number, row in enumerate(results["rows"]):
        check_row(row, f"row {number} of {path}", needed)
    return results


# -- pooling -----------------------------------------------------------------------------------------------------


def pool(rows: Iterable[Row]) -> list[Pooled]:
    """Rows pooled over seeds, in the order in which environments and methods appear, then phase, then cleanup steps."""
    groups: dict[tuple[str, str], dict[tuple[int, int], list[Row]]] = {}
    for row in rows:
        check_row(row)
        stages = groups.setdefault((row["environment"], row["method"]), {})
        stages.setdefault((PHASES.index(row["phase"]), row["cleanup_steps"]), []).append(row)
    return [_pool_group(stages[stage]) for stages in groups.values() for stage in sorted(stages)]


def _pool_group(rows: Sequence[Row]) -> Pooled:
    first, reasons = rows[0], dict[str, int]()
    for row in rows:
        for reason, count in (row.get("reasons") or {}).items():
            reasons[reason] = reasons.get(reason, 0) + (count or 0)
    arrived = [(row["mean_steps"], row["successes"]) for row in rows if row["mean_steps"] is not None]
    arrivals = sum(count for _, count in arrived)
    return Pooled(
        first["environment"], first["method"], first["phase"], first["cleanup_steps"],
        seeds=len({row["seed"] for row in rows}),
        episodes=tuple(row["episodes"] for row in rows),
        successes=sum(row["successes"] for row in rows),
        mean_steps=sum(steps * count for steps, count in arrived) / arrivals if arrivals else None,
        nodes=mean(row["nodes"] for row in rows),
        edges=mean(row["edges"] for row in rows),
        largest_part=mean(row.get("largest_part") for row in rows),
        seconds_per_action=mean(row["seconds_per_action"] for row in rows),
        reasons=reasons,
        rows=tuple(rows),
    )  # fmt: skip


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def by_method(pooled: Sequence[Pooled]) -> dict[tuple[str, str], list[Pooled]]:
    groups: dict[tuple[str, str], list[Pooled]] = {}
    for item in pooled:
        groups.setdefault((item.environment, item.method), []).append(item)
    return groups


def stage(items: Sequence[Pooled], phase: str) -> Pooled | None:
    """The phase of a method; for "cleaned" the longest cleanup, of those that most seeds have reached."""
    found = [item for item in items if item.phase == phase]
    return max(found, key=lambda item: (item.seeds, item.cleanup_steps), default=None)


def last_stages(items: Sequence[Pooled]) -> list[Pooled]:
    """Each phase that a method has, as `stage` gives it."""
    return [item for phase in PHASES if (item := stage(items, phase))]


# -- tables ------------------------------------------------------------------------------------------------------


def main_table(rows: Iterable[Row]) -> Table:
    """One line for each method: success in each phase, and what the last phase cost."""
    groups = by_method(pool(rows))
    several = len({environment for environment, _ in groups}) > 1
    paper = any(environment.startswith(PAPER_ENVIRONMENT) for environment, _ in groups)
    heads = [
        *(["Environment"] if several else []), "Method", "Seeds × episodes", "Initial", "Filtered", "After cleanup",
        "Cleanup steps", "Steps to goal", "Nodes", "Edges", "ms per action", *(["Paper"] if paper else []),
    ]  # fmt: skip
    lines = []
    for (environment, method), items in groups.items():
        last, cleaned = last_stages(items)[-1], stage(items, "cleaned")
        quoted = PAPER.get(method, NONE) if environment.startswith(PAPER_ENVIRONMENT) else NONE
        lines.append([
            *([Cell(environment)] if several else []),
            Cell(label(method)),
            Cell(episodes_text(last)),
            *(success_cell(stage(items, phase)) for phase in PHASES),
            Cell(f"{cleaned.cleanup_steps:,}" if cleaned else NONE),
            *(Cell(rounded(value)) for value in (last.mean_steps, last.nodes, last.edges)),
            Cell(milliseconds(last.seconds_per_action)),
            *([Cell(quoted)] if paper else []),
        ])  # fmt: skip
    return Table(heads, lines)


def cleanup_table(items: Sequence[Pooled], rows: Sequence[Row]) -> Table:
    """Success of one method by cleanup steps: each seed, and all of them pooled."""
    seeds = sorted({row["seed"] for row in rows})
    table = {(row["phase"], row["cleanup_steps"], row["seed"]): row for row in rows}
    lines = []
    for item in items:
        cells = [table.get((item.phase, item.cleanup_steps, seed)) for seed in seeds]
        each = [Cell(percent(row["successes"] / row["episodes"]) if row else NONE) for row in cells]
        steps = "before filtering" if item.phase == "initial" else f"{item.cleanup_steps:,}"
        lines.append([Cell(steps), *each, success_cell(item), Cell(rounded(item.edges))])
    return Table(["Cleanup steps", *(f"Seed {seed}" for seed in seeds), "Pooled", "Edges"], lines)


def failure_table(pooled: Sequence[Pooled]) -> Table:
    """Why episodes failed in the last stage of each phase."""
    return stage_table([item for items in by_method(pooled).values() for item in last_stages(items)])


def stage_table(stages: Sequence[Pooled]) -> Table:
    """Why episodes failed, how long the others took, and how much of the graph hangs together."""
    reasons = list(dict.fromkeys(reason for stage in stages for reason in stage.reasons))
    lines = [
        [
            Cell(label(stage.method)),
            Cell(stage.phase if stage.phase != "cleaned" else f"cleaned, {stage.cleanup_steps:,} steps"),
            Cell(f"{stage.trials - stage.successes:,} of {stage.trials:,}"),
            *(Cell(f"{stage.reasons[reason]:,}" if reason in stage.reasons else NONE) for reason in reasons),
            Cell(rounded(stage.mean_steps)),
            Cell(rounded(stage.largest_part)),
        ]
        for stage in stages
    ]
    heads = ["Method", "Phase", "Failed", *(f"Failed: {reason}" for reason in reasons), "Steps to goal"]
    return Table([*heads, "Largest connected part, nodes"], lines)


def markdown_table(rows: Iterable[Row]) -> str:
    """The main table in Markdown."""
    return markdown(main_table(rows)) + "\n"


def markdown(table: Table) -> str:
    """A table in Markdown; its first columns, up to the method, begin at the left."""
    escaped = [[text.replace("|", "\\|") for text in line] for line in texts(table)]
    lines = [f"| {' | '.join(line)} |" for line in escaped]
    left = table.heads.index("Method") + 1
    rule = "|" + "|".join(["---"] * left + ["---:"] * (len(table.heads) - left)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def console_table(rows: Iterable[Row]) -> str:
    """The main table in columns of plain text."""
    return columns(main_table(rows))


def columns(table: Table) -> str:
    """A table in columns of plain text; its first columns, up to the method, begin at the left."""
    shown = texts(table)
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    left = table.heads.index("Method") + 1
    aligned = [f"<{width}" if number < left else f">{width}" for number, width in enumerate(widths)]
    lines = ["  ".join(map(format, line, aligned)).rstrip() for line in shown]
    return "\n".join([lines[0], "  ".join("─" * width for width in widths), *lines[1:]])


def label(method: str) -> str:
    """What people call a method."""
    return LABELS.get(method, printable(method))


def texts(table: Table) -> list[list[str]]:
    """The heads and the lines of a table as plain text, in which nothing is left that a terminal would obey."""
    return [list(map(printable, table.heads)), *([printable(plain(cell)) for cell in line] for line in table.lines)]


def plain(cell: Cell) -> str:
    """A cell as text."""
    return f"{cell.text} [{cell.detail}]" if cell.detail else cell.text


def success_cell(item: Pooled | None) -> Cell:
    """Success and its Wilson 95 % interval."""
    if item is None:
        return Cell(NONE)
    low, high = item.ci95
    return Cell(percent(item.rate), f"{100 * low:.1f}–{100 * high:.1f}")


def percent(rate: float) -> str:
    """A share, 0 to 1, with one decimal."""
    return f"{100 * rate:.1f} %"


def share(value: float | None) -> str:
    """`percent` of what may be unknown."""
    return NONE if value is None else percent(value)


def three_digits(value: Any) -> str:
    """A number with three digits, anything else as JSON has it."""
    if value is None:
        return NONE
    if isinstance(value, float):
        return f"{value:.3g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def episodes_text(item: Pooled) -> str:
    """How many seeds and episodes were pooled."""
    if len(set(item.episodes)) == 1:
        return f"{item.seeds} × {item.episodes[0]:,}"
    return f"{item.seeds} seeds, {item.trials:,} in all"


def rounded(value: float | None) -> str:
    """A whole number."""
    return NONE if value is None else f"{value:,.0f}"


def milliseconds(seconds: float | None) -> str:
    """Seconds in milliseconds, three digits."""
    return NONE if seconds is None else f"{1000 * seconds:.3g}"
