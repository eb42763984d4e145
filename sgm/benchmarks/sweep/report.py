"""The report of a sweep."""

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
SUBJECTS = ("both", "two-way", "consolidated", "verified")  # what is compared with all others
FROM = 20_000  # cleanup steps from which on it is counted who leads
_NOTE = (
    "Success in percent, all seeds pooled; below it the Wilson 95 % interval. Steps to 95 %: the fewest cleanup steps "
    "after which at least 95 % of the episodes succeeded; – if none of the stages did."
)
_COST_NOTE = (
    "Means over seeds, before cleanup but for the last column. False: the share of edges whose true way is too long "
    "for the controller, or leads through a wall. Connected: the share of nodes in the largest strongly connected "
    "component. Plan: the ways from all nodes to a goal. Seconds are wall-clock, of building alone and of building and "
    "all of the cleanup."
)


def report(run: RunFolder) -> list[Section]:
    """The sections of the page."""
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
    """Each sparse memory of the paper, and the consolidated one, against all others."""
    sections = []
    names = {item.group.method: item.group.label for item in tables.pool(rows)}
    for chosen in [method for method in SUBJECTS if method in names]:
        others = [method for method in METHODS if method in names and method != chosen]
        table = comparisons.comparison_table(rows, chosen, others)
        if table.lines:
            who = names[chosen]
            verdicts = [text for other in others if (text := _verdict(rows, chosen, other, names[other]))]
            counted = (
                f"From {FROM:,} cleanup steps on, over sizes, policies, agents and stages, some of them of one memory"
            )
            said = [Note(f"{counted}: {'; '.join(verdicts)}.")] if verdicts else []
            parts: list[Part] = [*said, table, Note(comparisons.note(who))]
            sections.append(Section(f"{world}: {who} against the others", parts))
    return sections


def _verdict(rows: Sequence[Row], chosen: str, other: str, name: str) -> str:
    """How often a method leads, ties and loses against another; empty if there is nothing to count."""
    leads, ties, loses = comparisons.tally(rows, chosen, other, FROM)
    if not leads + ties + loses:
        return ""
    return f"against {name} it leads {leads} times, ties {ties} and loses {loses}"


def _left_out(run: RunFolder, rows: Sequence[Row]) -> str:
    """What is said of dense memories that were too large to be run; nothing if all were run."""
    most = run.checked("settings", {"largest_dense": COUNT}).get("largest_dense")
    larger = sorted({row["size"] for row in rows if most is not None and row["size"] > most})
    if not larger:
        return ""
    sizes = ", ".join(f"{size:,}" for size in larger)
    return f" Dense memories of {sizes} observations were left out: they end at {most:,} nodes (--largest-dense)."


def console(rows: Sequence[Row]) -> list[Table]:
    """Success by size, method and cleanup."""
    return [success_table(ordered(rows))]


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Rows by world, size, agent, policy and method."""

    def order(row: Row) -> tuple[int, ...]:
        names = ((row["world"], WORLDS), (row["policy"], tuple(POLICIES)), (row["method"], METHODS))
        world, policy, method = (known.index(name) if name in known else len(known) for name, known in names)
        return world, row["size"], row["agent"] != "plain", policy, method

    return sorted(rows, key=order)


def success_table(rows: Sequence[Row]) -> Table:
    """A line for each size and method, a column for each stage."""
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
    """What the memories are, and what they cost; the same for all agents."""
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
