"""Report of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sgm.benchmarks import comparisons, page, tables
from sgm.benchmarks.checks import COUNT, NUMBER, TEXT, Each
from sgm.benchmarks.page import Figures, Note, Part, Section
from sgm.benchmarks.runs import RunFolder
from sgm.benchmarks.tables import NONE, Cell, Group, Pooled, Row, Table, rounded, share, stage

from .costs import build_time, steps_until, total_seconds
from .figures import figures
from .settings import METHODS, POLICIES, WORLDS

TITLES = {"point": "PointEnv", "safety": "SafetyGym", "giant": "OGBench's giant point maze"}
SUBJECTS = ("both", "two-way", "consolidated", "verified")  # methods that are compared with all others
FROM = 20_000  # cleanup steps from which on wins and losses are counted
_NOTE = (
    "Success in percent, all seeds pooled; below it the Wilson 95 % interval. Steps to 95 %: the fewest cleanup steps "
    "after which at least 95 % of the episodes succeeded; – if no stage reached it."
)
_COST_NOTE = (
    "Means over seeds, before cleanup except in the last column. False: share of edges whose true path is too long for "
    "the controller, or which cross a wall. Connected: share of nodes in the largest strongly connected component. "
    "Plan: shortest paths from all nodes to one goal. Seconds are wall-clock, of building alone, and of building and "
    "the whole cleanup."
)


def report(run: RunFolder) -> list[Section]:
    """Sections of the report page."""
    run.require("world", "size", "policy", "agent")
    run = run._replace(results={**run.results, "rows": ordered(run.rows)})
    builds = run.checked("build_seconds", Each(TEXT, NUMBER))
    sections = []
    for world in dict.fromkeys(row["world"] for row in run.rows):
        rows = [row for row in run.rows if row["world"] == world]
        sections += [
            Section(
                f"{TITLES.get(world, world)}: success",
                [Figures(figures(world, rows, builds)), success_table(rows), Note(_NOTE + _left_out(run, rows))],
            ),
            Section(f"{TITLES.get(world, world)}: cost", [cost_table(rows, builds), Note(_COST_NOTE)]),
            *_compared(TITLES.get(world, world), rows),
        ]
    return page.standard(run, *sections)


def _compared(world: str, rows: Sequence[Row]) -> list[Section]:
    """Sections that compare each sparse memory of the paper, and the consolidated ones, with all others."""
    sections = []
    names = {item.group.method: item.group.label for item in tables.pool(rows)}
    for chosen in [method for method in SUBJECTS if method in names]:
        others = [method for method in METHODS if method in names and method != chosen]
        table = comparisons.comparison_table(rows, chosen, others)
        if table.lines:
            who = names[chosen]
            verdicts = [text for other in others if (text := _verdict(rows, chosen, other, names[other]))]
            counted = (
                f"From {FROM:,} cleanup steps on, counted over sizes, policies, agents and stages (not independent)"
            )
            said = [Note(f"{counted}: {'; '.join(verdicts)}.")] if verdicts else []
            parts: list[Part] = [*said, table, Note(comparisons.note(who))]
            sections.append(Section(f"{world}: {who} against the others", parts))
    return sections


def _verdict(rows: Sequence[Row], chosen: str, other: str, name: str) -> str:
    """Wins, ties and losses of a method against another, as text; empty if there is nothing to count."""
    leads, ties, loses = comparisons.tally(rows, chosen, other, FROM)
    if not leads + ties + loses:
        return ""
    return f"against {name} {leads} wins, {ties} ties and {loses} losses"


def _left_out(run: RunFolder, rows: Sequence[Row]) -> str:
    """Sentence about dense memories that were too large to run; empty if all were run."""
    most = run.checked("settings", {"largest_dense": COUNT}).get("largest_dense")
    larger = sorted({row["size"] for row in rows if most is not None and row["size"] > most})
    if not larger:
        return ""
    sizes = ", ".join(f"{size:,}" for size in larger)
    return f" Dense memories of {sizes} observations were left out: the limit is {most:,} nodes (--largest-dense)."


def console(rows: Sequence[Row]) -> list[Table]:
    """Table of success by size, method and cleanup."""
    return [success_table(ordered(rows))]


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Rows by world, size, agent, policy and method."""

    def order(row: Row) -> tuple[int, ...]:
        names = ((row["world"], WORLDS), (row["policy"], tuple(POLICIES)), (row["method"], METHODS))
        world, policy, method = (known.index(name) if name in known else len(known) for name, known in names)
        return world, row["size"], row["agent"] != "plain", policy, method

    return sorted(rows, key=order)


def success_table(rows: Sequence[Row]) -> Table:
    """Table of success with a line for each size and method, and a column for each stage."""
    groups = tables.by_group(tables.pool(rows))
    stages = sorted({item.cleanup_steps for items in groups.values() for item in items})

    def at(steps: int) -> Callable[[list[Pooled]], Cell | str]:
        return lambda items: tables.success_cell(next((item for item in items if item.cleanup_steps == steps), None))

    columns: dict[str, Callable[[list[Pooled]], Cell | str]] = {
        "Nodes": lambda items: rounded(items[0].mean("nodes")),
        "Seeds × episodes": lambda items: tables.episodes_text(items[0]),
        **{f"{steps:,} steps" if steps else "No cleanup": at(steps) for steps in stages},
        "Steps to 95 %": lambda items: rounded(steps_until(items, 0.95)),
    }
    return tables.table(groups.items(), columns)


def cost_table(rows: Sequence[Row], builds: dict[str, float]) -> Table:
    """Table of the size, quality and cost of memories, which are the same for all agents."""
    agent = rows[0]["agent"]
    groups: dict[Group, list[Pooled]] = tables.by_group(tables.pool(row for row in rows if row["agent"] == agent))

    def first(text: Callable[[Pooled], str]) -> Callable[[list[Pooled]], str]:
        return lambda items: text(item) if (item := stage(items, "initial")) else NONE

    columns: dict[str, Callable[[list[Pooled]], Cell | str]] = {
        "Edges": first(lambda item: rounded(item.mean("edges"))),
        "False": first(lambda item: share(item.mean("false_edges"))),
        "Connected": first(lambda item: share(item.share_of_nodes("largest_part"))),
        "MB": first(lambda item: tables.three_digits((item.mean("bytes") or 0) / 1e6)),
        "Plan, ms": first(lambda item: tables.milliseconds(item.mean("plan_seconds"))),
        "Action, ms": first(lambda item: tables.milliseconds(item.mean("seconds_per_action"))),
        "Build, s": first(lambda item: tables.three_digits(build_time(item, builds))),
        "Build and cleanup, s": lambda items: tables.three_digits(total_seconds(items, builds)[-1]),
    }
    return tables.table(groups.items(), columns)
