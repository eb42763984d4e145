"""The tables of docs/sparsity.md, made from results/sweep: `python -m tests.sparsity` writes them into the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from sgm.benchmarks import comparisons, paper, tables
from sgm.benchmarks.tables import NONE

RESULTS = Path(__file__).parents[1] / "results" / "sweep" / "results.json"
SPARES = RESULTS.parents[1] / "sweep-spares" / "results.json"
ONE_ROBOT = RESULTS.parents[1] / "one-robot" / "results.json"
CRITERIA = RESULTS.parents[1] / "sweep-criteria" / "results.json"
STAGES = (0, 2_000, 5_000, 10_000, 20_000, 50_000)
NAMES = {
    "both": "sparse",
    "dense": "dense",
    "uniform": "uniform",
    "consolidated": "two-way, consolidated",
    "verified": "consolidated and verified",
    "perceptual": "perceptual",
    "incoming": "incoming",
    "outgoing": "outgoing",
    "two-way": "two-way",
}


def load(path: Path = RESULTS) -> list[dict[str, Any]]:
    """All rows."""
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return rows


def chosen(rows: list[dict[str, Any]], **facts: Any) -> list[dict[str, Any]]:
    """The rows that these are true of."""
    return [row for row in rows if all(row[name] == value for name, value in facts.items())]


def rate(rows: list[dict[str, Any]]) -> str:
    """Success in percent with the Wilson interval over all episodes."""
    if not rows:
        return NONE
    (item,) = tables.pool(rows)
    low, high = item.ci95
    return f"{100 * item.rate:.1f} [{100 * low:.1f}–{100 * high:.1f}]"


def success(
    world: str, methods: tuple[str, ...], agent: str = "plain", stages: tuple[int, ...] = STAGES, path: Path = RESULTS
) -> list[str]:
    """A line for each size and method: first-failure cleanup."""
    rows = chosen(load(path), world=world, agent=agent, policy="first-failure")
    heads = ["observations", "memory", "nodes", "connected", "seeds"]
    heads += ["no cleanup" if not steps else f"{steps:,}" for steps in stages]
    lines = [f"| {' | '.join(heads)} |", "|---:|---|" + "---:|" * (len(heads) - 2)]
    for size in sorted({row["size"] for row in rows}):
        first = f"{size:,}"
        for method in methods:
            mine = chosen(rows, size=size, method=method)
            begin = chosen(mine, cleanup_steps=0)
            if not begin:
                continue
            nodes = np.mean([row["nodes"] for row in begin])
            part = np.mean([row["largest_part"] / row["nodes"] for row in begin])
            cells = [first, NAMES[method], f"{nodes:,.0f}", f"{part:.0%}".replace("%", " %"), str(len(begin))]
            cells += [rate(chosen(mine, cleanup_steps=steps)) for steps in stages]
            lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
            first = ""
    return lines


def agents(world: str, methods: tuple[str, ...], steps: int, policy: str = "first-failure") -> list[str]:
    """A line for each size: both agents after so many steps, and the paired difference of the first two methods.

    Of the seeds that all these methods have.
    """
    rows = chosen(load(), world=world, policy=policy, cleanup_steps=steps)
    heads = ["observations", "seeds"]
    for agent in ("persistent", "plain"):
        heads += [f"{agent}: {NAMES[method]}" for method in methods] + ["difference"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---:|" * len(heads)]
    for size in sorted({row["size"] for row in rows}):
        here = chosen(rows, size=size)
        seeds = set.intersection(*({row["seed"] for row in chosen(here, method=method)} for method in methods))
        if not seeds:
            continue
        here = [row for row in here if row["seed"] in seeds]
        cells = [f"{size:,}", str(len(seeds))]
        for agent in ("persistent", "plain"):
            mine = chosen(here, agent=agent)
            cells += [rate(chosen(mine, method=method)) for method in methods]
            table = comparisons.comparison_table(mine, methods[0], methods[1:2])
            cells.append(" ".join([table.lines[0][-1].text, table.lines[0][-1].detail]) if table.lines else NONE)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def by_size(
    methods: tuple[str, ...], steps: int, path: Path, *, world: str = "point", agent: str = "plain"
) -> list[str]:
    """A line for each size: the success of each method after so many steps, of the seeds that all of them have."""
    rows = chosen(load(path), world=world, agent=agent, policy="first-failure", cleanup_steps=steps)
    lines = [
        "| observations | seeds | " + " | ".join(NAMES[method] for method in methods) + " |",
        "|" + "---:|" * (len(methods) + 2),
    ]
    for size in sorted({row["size"] for row in rows}):
        here = _of_common_seeds(chosen(rows, size=size), methods)
        cells = [rate(chosen(here, method=method)) for method in methods]
        lines.append(f"| {size:,} | {len({row['seed'] for row in here})} | {' | '.join(cells)} |")
    return lines


def nodes_by_size(methods: tuple[str, ...], path: Path, *, world: str = "point") -> list[str]:
    """A line for each size: nodes of each method, mean over seeds."""
    rows = chosen(load(path), world=world, agent="plain", policy="first-failure", cleanup_steps=0)
    lines = [
        "| observations | " + " | ".join(NAMES[method] for method in methods) + " |",
        "|" + "---:|" * (len(methods) + 1),
    ]
    for size in sorted({row["size"] for row in rows}):
        known = [[row["nodes"] for row in chosen(rows, size=size, method=method)] for method in methods]
        lines.append(f"| {size:,} | {' | '.join(f'{np.mean(each):,.0f}' if each else NONE for each in known)} |")
    return lines


def paired_by_size(
    methods: tuple[str, ...], steps: int, path: Path, *, world: str = "point", agent: str = "plain"
) -> list[str]:
    """A line for each size: the paired difference of the first method over each other one after so many steps."""
    first, *others = methods
    rows = chosen(load(path), world=world, agent=agent, policy="first-failure", cleanup_steps=steps)
    lines = [
        f"| observations | {NAMES[first]} minus " + " | ".join(NAMES[other] for other in others) + " |",
        "|" + "---:|" * (len(others) + 1),
    ]
    for size in sorted({row["size"] for row in rows}):
        table = comparisons.comparison_table(chosen(rows, size=size), first, others)
        cells = [" ".join([cell.text, cell.detail]) for cell in table.lines[0][-len(others) :]]
        lines.append(f"| {size:,} | {' | '.join(cells)} |")
    return lines


def _of_common_seeds(rows: list[dict[str, Any]], methods: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of seeds that have all these methods; methods that no seed has do not count."""
    known = [{row["seed"] for row in chosen(rows, method=method)} for method in methods]
    seeds = set.intersection(*filter(None, known))
    return [row for row in rows if row["seed"] in seeds]


def policies(
    world: str, size: int, method: str, names: tuple[str, ...], stages: tuple[int, ...], path: Path = RESULTS
) -> list[str]:
    """A line for each policy and agent, of the seeds that all policies have."""
    rows = chosen(load(path), world=world, size=size, method=method)
    ran = [{row["seed"] for row in chosen(rows, policy=policy, cleanup_steps=stages[-1])} for policy in names]
    rows = [row for row in rows if row["seed"] in set.intersection(*ran)]
    lines = [
        "| policy | agent | seeds | " + " | ".join(f"{steps:,}" for steps in stages) + " | connected at the end |",
        "|---|---|---:|" + "---:|" * (len(stages) + 1),
    ]
    for policy in names:
        for agent in dict.fromkeys(row["agent"] for row in rows):
            mine = chosen(rows, policy=policy, agent=agent)
            last = chosen(mine, cleanup_steps=stages[-1])
            if not last:
                continue
            part = np.mean([row["largest_part"] / row["nodes"] for row in last])
            cells = [policy, agent, str(len(last)), *(rate(chosen(mine, cleanup_steps=steps)) for steps in stages)]
            lines.append(f"| {' | '.join([*cells, f'{part:.1%}'.replace('%', ' %')])} |")
    return lines


def by_seed(path: Path, names: dict[str, str], steps: int) -> list[str]:
    """A line for each method of PointEnv: success after so many steps, of all seeds and of each with its component."""
    rows = chosen(load(path), cleanup_steps=steps)
    seeds = sorted({row["seed"] for row in rows})
    lines = [
        "| memory | all seeds | " + " | ".join(f"seed {seed}" for seed in seeds) + " |",
        "|---|" + "---:|" * (len(seeds) + 1),
    ]
    for method, name in names.items():
        mine = {row["seed"]: row for row in chosen(rows, method=method)}
        cells = [f"{100 * row['success_rate']:.1f} ({row['largest_part'] / row['nodes']:.0%})" for row in mine.values()]
        lines.append(f"| {name} | {rate(list(mine.values()))} | {' | '.join(cells)} |".replace("%", " %"))
    return lines


def table_1(size: int, stages: tuple[int, ...]) -> list[str]:
    """Both rows of the paper's Table 1 beside ours, at these stages."""
    rows = chosen(load(), world="point", size=size, policy="first-failure")
    lines = [
        "| | paper, 400,000 steps | " + " | ".join(f"{steps:,} steps" for steps in stages) + " |",
        "|---|---:|" + "---:|" * len(stages),
    ]
    quoted = {row.method: row.success.text("") for row in paper.MAIN if row.benchmark == "point"}
    for method, name, theirs in (("dense", "SoRB", "sorb"), ("both", "SoRB + SGM", "sorb+sgm")):
        found = (chosen(rows, method=method, cleanup_steps=steps) for steps in stages)
        cells = [f"{rate(some)}, {len(some)} × 200" if some else NONE for some in found]
        lines.append(f"| {name} | {quoted[theirs]} | {' | '.join(cells)} |")
    return lines


SPARSE = ("consolidated", "uniform")
RIVALS = ("two-way", "uniform", "perceptual", "incoming", "outgoing")
ROOMS = ("verified", "both", *RIVALS, "dense")
MAZE = ("both", *RIVALS, "consolidated", "dense")
TABLES = {
    "point": lambda: success("point", ("both", "dense")),
    "safety-50000": lambda: agents("safety", SPARSE, 50_000),
    "safety-20000": lambda: agents("safety", SPARSE, 20_000),
    "policies": lambda: policies(
        "safety", 1_000, "consolidated", ("first-failure", "guarded", "belief"), (5_000, 20_000, 50_000)
    ),
    "verified-50000": lambda: agents("safety", ("verified", "uniform"), 50_000),
    "verified-0": lambda: agents("safety", ("verified", "uniform"), 0),
    "criteria-nodes": lambda: nodes_by_size(("both", *RIVALS), CRITERIA),
    "criteria-5000": lambda: by_size(("both", *RIVALS), 5_000, CRITERIA),
    "criteria-20000": lambda: by_size(("both", *RIVALS), 20_000, CRITERIA),
    "criteria-50000": lambda: by_size(("both", *RIVALS), 50_000, CRITERIA),
    "criteria-paired-5000": lambda: paired_by_size(("both", *RIVALS), 5_000, CRITERIA),
    "criteria-paired-20000": lambda: paired_by_size(("both", *RIVALS), 20_000, CRITERIA),
    "rooms-nodes": lambda: nodes_by_size(ROOMS, CRITERIA, world="safety"),
    "rooms-persistent-0": lambda: by_size(ROOMS, 0, CRITERIA, world="safety", agent="persistent"),
    "rooms-persistent-50000": lambda: by_size(ROOMS, 50_000, CRITERIA, world="safety", agent="persistent"),
    "rooms-plain-50000": lambda: by_size(ROOMS, 50_000, CRITERIA, world="safety"),
    "rooms-paired-persistent": lambda: paired_by_size(ROOMS, 50_000, CRITERIA, world="safety", agent="persistent"),
    "rooms-paired-plain": lambda: paired_by_size(ROOMS, 50_000, CRITERIA, world="safety"),
    "giant-nodes": lambda: nodes_by_size(MAZE, RESULTS, world="giant"),
    "giant-0": lambda: by_size(MAZE, 0, RESULTS, world="giant"),
    "giant-50000": lambda: by_size(MAZE, 50_000, RESULTS, world="giant"),
    "one-robot": lambda: by_seed(
        ONE_ROBOT, {"released": "SoRB as released", "sorb": "SoRB", "sorb+sgm": "SGM"}, 20_000
    ),
    "paper": lambda: table_1(10_000, (20_000, 50_000, 100_000, 400_000)),
    "spares": lambda: policies(
        "safety", 5_000, "consolidated", ("first-failure", "guarded", "spares"), (0, 20_000, 50_000), SPARES
    ),
}
PAGE = Path(__file__).parents[1] / "docs" / "sparsity.md"


def filled(text: str) -> str:
    """The page with every table as the results have it: what follows a mark, up to the next blank line."""

    def table(match: re.Match[str]) -> str:
        lines = TABLES[match[2]]()
        if len(lines) < 3:
            raise LookupError(f"the results have no rows for the table {match[2]}")
        return match[1] + "\n".join(lines) + "\n\n"

    text, number = re.subn(r"(<!-- table ([a-z0-9-]+) -->\n)(?:\|.*\n)*\n", table, text)
    if number != text.count("<!-- table "):
        raise LookupError("a table is not followed by a blank line")
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
