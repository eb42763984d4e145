"""The paper's tables with our results beside the paper's.

`sgm table 1` to `4` print them, `sgm table --write FILE` puts them into a page. They are assembled from run folders; a
missing result is shown as a dash, with the command that makes it.
"""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import sgm
from sgm.errors import printable

from . import label, load, tables
from .doom.figures import by_level
from .paper import ABLATION, LEVELS, MAIN, TIME
from .runs import COMMITTED, Found, Series, default_folders, differing, find
from .tables import NONE, Cell, Pooled, Table, episodes_text, rounded, seeds_text

SPEED_COMMAND = "python -m speed.navigation --out results/navigation"
PAPER_POLICY = "first-failure"
_QUOTED = {method for method, _ in LEVELS}
_CRITERIA = (*ABLATION, "both", "consptm")  # the last two are not in the paper's table
_SUCCESS_NOTE = (
    "In brackets: the Wilson 95 % interval over the pooled episodes of all seeds. Mean over seeds: ± is the standard "
    "error (none for one seed); where seeds differ much, it is more informative than the interval. The paper does not "
    "define its ±."
)


class Printed(NamedTuple):
    """A table of the paper.

    Attributes:
        title: title of the table.
        parts: tables, some with their own titles.
        notes: explanations of the numbers.
        sources: run folders of the numbers, with command and machine.
    """

    title: str
    parts: Sequence[Table]
    notes: Sequence[str]
    sources: Sequence[str]

    def console(self) -> str:
        """Format as columns of plain text, without control characters."""
        blocks = [self.title]
        for table in self.parts:
            blocks += [printable(table.title), tables.columns(table)]
        # Lines with a command are not wrapped, so that they can be copied.
        notes = map(printable, self.notes)
        wrapped = [note if "`" in note else textwrap.fill(note, 120) for note in notes]
        blocks += ["\n".join(wrapped), "\n".join(map(printable, self.sources))]
        return "\n\n".join(block for block in blocks if block).replace("`", "")

    def markdown(self) -> str:
        """Format as Markdown, without the title."""
        blocks = []
        for table in self.parts:
            blocks += [f"**{printable(table.title)}**" if table.title else "", tables.markdown(table)]
        blocks.append("\n".join(f"- {printable(line)}" for line in [*self.notes, *self.sources]))
        return "\n\n".join(block for block in blocks if block)


# -- the four tables ---------------------------------------------------------------------------------------------


def main_results(found: Found) -> Printed:
    """Table 1: success of every method after the longest cleanup, with the paper's cleanup policy where it was run."""
    heads = ["Environment", "Method", "Cleanup policy", "Cleanup steps", "Seeds × episodes"]
    heads += ["Success", "Mean over seeds", "Paper", "Paper's steps"]
    lines, used, missing, more = list[list[Cell]](), list[Series](), _Missing(found), False
    for row in MAIN:
        benchmark, every = load(row.benchmark), found.of(row.benchmark, row.method)
        method = benchmark.methods[row.method]
        name = method.title or method.label
        series = [item for item in every if item.group.policy in (PAPER_POLICY, NONE)] or every
        more |= row.benchmark == "safety" and len(series) < len(every)
        paper = [row.success.text(), rounded(row.cleanup_steps)]
        if not series:
            missing.add(row.benchmark, name)
            lines.append(cells(benchmark.label, name, *[NONE] * 5, *paper))
        for item in series:
            last, steps = item.last, rounded(item.last.cleanup_steps or None)
            ours = [item.cleanup, steps, episodes_text(last), success_text(last), seeds_text(last)]
            lines.append(cells(item.group.environment, name, *ours, *paper))
        used += series
    elsewhere = [f"Policies other than the paper's ({PAPER_POLICY}) are in Table 3."] if more else []
    return missing.printed("Table 1: main results", [Table(heads, lines)], [_SUCCESS_NOTE, *elsewhere], used)


def doom_levels(found: Found) -> Printed:
    """Table 2: success in ViZDoom by distance of the goal."""
    heads = ["Method", "Explored", "Cleanup steps", "Seeds × episodes", "Easy", "Medium"]
    heads += ["Hard", "Overall", "Mean over seeds", "Paper: easy / medium / hard", "Paper: overall"]
    benchmark, used, missing, parts = load("doom"), found.of("doom"), _Missing(found), []
    order = list(benchmark.methods)
    for environment in dict.fromkeys(item.group.environment for item in used) or [benchmark.label]:
        mine = [item for item in used if item.group.environment == environment]
        stages = {(stage.method, stage.cleanup_steps): stage for item in mine for stage in item.stages}
        explored = {item.group.method: _explored(item) for item in mine}
        # On maps without any of the paper's methods, their rows do not count as missing.
        wanted = {*stages, *(LEVELS if not mine or any(method in _QUOTED for method, _ in stages) else ())}
        cleaned = {method for method, steps in wanted if steps}
        lines = []
        for method, steps in sorted(wanted, key=lambda key: (_place(order, key[0]), key)):
            stage, name = stages.get((method, steps)), label("doom", method)
            if stage is None:
                missing.add("doom", f"{name}{f' after {steps:,} steps' if steps else ''}{_where(environment)}")
            shown = rounded(steps if method in cleaned else None)
            spent = rounded(explored.get(method)) if stage is None or stage.rows[0].get("nodes") else NONE
            lines.append(cells(name, spent, shown, *_level_texts(stage), *_quoted_levels(method, steps)))
        parts.append(Table(heads, lines, environment))
    notes = [
        "Easy, medium and hard: start and goal up to 200, 400 and 600 map units apart. The paper's dense oracle is in "
        "its appendix.",
        "Explored: environment steps of random exploration from which the memory is built; 20,100 in the paper.",
        _SUCCESS_NOTE,
    ]
    return missing.printed("Table 2: ViZDoom by level", parts, notes, used)


def _explored(series: Series) -> int | None:
    """Environment steps of exploration from which the memories of a ViZDoom run are built, if its settings say so."""
    episodes, steps = (series.run.settings.get(name) for name in ("buffer_episodes", "buffer_steps"))
    return episodes * steps if isinstance(episodes, int) and isinstance(steps, int) else None


def ablation(found: Found) -> Printed:
    """Table 3: success of each merging criterion in SafetyGym, before and after cleanup."""
    heads = ["Cleanup policy", "Method", "Seeds × episodes", "Nodes", "W/o cleanup", "Mean over seeds"]
    heads += ["Paper", "W/ cleanup", "Mean over seeds", "Paper", "Cleanup steps"]
    used, missing, parts = [item for item in found.of("safety") if item.group.method in _CRITERIA], _Missing(found), []
    for environment in dict.fromkeys(item.group.environment for item in used) or [load("safety").label]:
        mine = [item for item in used if item.group.environment == environment]
        ways = list(dict.fromkeys(item.cleanup for item in mine))
        mine.sort(key=lambda item: (ways.index(item.cleanup), _CRITERIA.index(item.group.method)))
        lines = [_criterion_line(item.group.method, item) for item in mine]
        for method in (name for name in ABLATION if name not in {item.group.method for item in mine}):
            missing.add("safety", f"{method}{_where(environment)}")
            lines.append(_criterion_line(method, None))
        parts.append(Table(heads, lines, environment))
    notes = [
        "W/ cleanup: after the longest cleanup (1,000,000 steps in the paper). The paper's two-way row here and its "
        "SGM row in Table 1 have the same success and different ±.",
        _SUCCESS_NOTE,
    ]
    return missing.printed("Table 3: merging criteria in SafetyGym", parts, notes, used)


def time_per_action(found: Found) -> Printed:
    """Table 4: wall-clock time to take one action in PointEnv, milliseconds."""
    heads = ["Method", "Nodes", "One agent, ms", "Reference pattern, ms", "In a batch, ms", "Paper, ms"]
    lines, used, missing, times = list[list[Cell]](), list[Series](), _Missing(found), list[list[float | None]]()
    for method, paper in TIME.items():
        series, speed, name = found.of("point", method)[:1], found.speed.get(method, {}), label("point", method)
        last = series[0].last if series else None
        if not last:
            missing.add("point", f"{name} in a batch")
        if not speed:
            missing.add("speed", f"{name}, one agent")
        seconds = [speed.get("ours_s"), speed.get("reference_s"), last.mean("seconds_per_action") if last else None]
        alone, reference, batch = (None if value is None else 1000 * value for value in seconds)
        times.append([alone, reference, batch, paper.value])
        nodes = rounded(speed.get("nodes", last.mean("nodes") if last else None))
        ours = [number_text(alone), number_text(reference), batch_text(last)]
        lines.append(cells(name, nodes, *ours, paper.text("", 0)))
        used += series
    ratios = [sorb / mine if sorb and mine else None for sorb, mine in zip(*times, strict=True)]
    lines.append(cells("SoRB ÷ SGM", "", *map(number_text, ratios)))
    note = (
        "One agent: a single robot. Reference pattern: the same graph and networks, computed as in the released code. "
        "Both are single measurements. In a batch: time of an evaluation divided by its number of actions, after the "
        "longest cleanup; ± is the standard deviation over seeds. The paper's ± is the deviation over actions."
    )
    printed = missing.printed("Table 4: time per action in PointEnv", [Table(heads, lines)], [note], used)
    return printed._replace(sources=[*printed.sources, *filter(None, [found.speed_made])])


TABLES: dict[int, Callable[[Found], Printed]] = {1: main_results, 2: doom_levels, 3: ablation, 4: time_per_action}


# -- output ------------------------------------------------------------------------------------------------------

_PLACE = re.compile(r"(<!-- table ([1-4]) -->\n)(?:(?!<!-- table ).)*?(<!-- end -->)", re.DOTALL)


def show(numbers: Iterable[int], folders: Sequence[Path] | None = None, markdown: bool = False) -> str:
    """Format tables as text, by default from the folder `runs` if it exists."""
    found = find(folders or default_folders())
    printed = [TABLES[number](found) for number in numbers]
    return "\n\n\n".join(item.markdown() if markdown else item.console() for item in printed)


def filled(page: str, folders: Sequence[Path]) -> str:
    """Return a Markdown page in which every table between `<!-- table 1 -->` and `<!-- end -->` is replaced."""
    begun, whole = page.count("<!-- table "), len(_PLACE.findall(page))
    if not whole or whole != begun:
        raise sgm.SGMError(
            f"the page has {begun} places for tables, of which {whole} are complete; expected one or more, each a line "
            "<!-- table 1 --> (or 2, 3, 4) and a line <!-- end -->"
        )
    found = find(folders)
    return _PLACE.sub(lambda place: f"{place[1]}\n{TABLES[int(place[2])](found).markdown()}\n\n{place[3]}", page)


def write(path: Path, folders: Sequence[Path] | None = None) -> None:
    """Replace the tables in a page, by default with those of the repository's results."""
    path.write_text(filled(path.read_text(encoding="utf-8"), folders or [COMMITTED]), encoding="utf-8")


# -- lines and notes ---------------------------------------------------------------------------------------------


def _level_texts(stage: Pooled | None) -> list[str]:
    """Cells of a row: seeds, success of the three levels, overall, mean over seeds."""
    rows = stage.rows if stage else ()
    levels = [success_text(next(iter(by_level(rows, level)), None)) for level in ("easy", "medium", "hard")]
    return [episodes_text(stage), *levels, success_text(stage), seeds_text(stage)]


def _quoted_levels(method: str, steps: int) -> list[str]:
    if (method, steps) not in LEVELS:
        return [NONE, NONE]
    *levels, overall = LEVELS[method, steps]
    return [" / ".join(f"{value:.1f}" for value in levels), overall.text()]


def _criterion_line(method: str, item: Series | None) -> list[Cell]:
    before, after = (tables.stage(item.stages, phase) if item else None for phase in ("initial", "cleaned"))
    known = after or before
    quoted = [value.text() for value in ABLATION[method]] if method in ABLATION else [NONE, NONE]
    return cells(
        item.cleanup if item else NONE,
        label("safety", method),
        episodes_text(known),
        rounded(known.mean("nodes") if known else None),
        success_text(before),
        seeds_text(before),
        quoted[0],
        success_text(after),
        seeds_text(after),
        quoted[1],
        rounded(after.cleanup_steps if after else None),
    )


class _Missing:
    """Results that no run holds, grouped by the benchmark that makes them."""

    def __init__(self, found: Found) -> None:
        self._found, self._names = found, dict[str, list[str]]()

    def add(self, source: str, name: str) -> None:
        self._names.setdefault(source, []).append(name)

    def printed(self, title: str, parts: Sequence[Table], notes: Sequence[str], used: Sequence[Series]) -> Printed:
        """Add notes about missing results, unusual settings and sources to a table."""
        every = [*notes, *self._notes(), *_doubts(self._found, used)]
        return Printed(title, parts, every, list(dict.fromkeys(item.run.made for item in used)))

    def _notes(self) -> list[str]:
        elsewhere = COMMITTED.is_dir() and COMMITTED not in self._found.folders
        hint = " For the repository's results: `--runs results`." if elsewhere else ""
        return [
            f"{NONE} missing from the runs: {', '.join(names)}. To make them: `{command(source)}`.{hint}"
            for source, names in self._names.items()
        ]


def command(source: str) -> str:
    """Command that makes the results of a benchmark, or the times of one agent."""
    return SPEED_COMMAND if source == "speed" else load(source).paper_command


def _doubts(found: Found, used: Sequence[Series]) -> list[str]:
    """Notes about settings that differ from the paper's, choices between runs, and skipped files."""
    odd = {item.run.folder: item.odd for item in used if item.odd}
    kept = {item.group: item.run.folder for item in used}
    pairs = dict.fromkeys((kept[item.group], item.run.folder) for item in found.unused if item.group in kept)
    return [
        *(f"Settings of {folder} differ from the paper's: {', '.join(names)}." for folder, names in odd.items()),
        *differing(used),
        *(f"{mine} is used instead of {other}, which has the same methods (see --runs)." for mine, other in pairs),
        *found.notes,
    ]


def _where(environment: str) -> str:
    return "" if ":" not in environment else f" in {environment}"


def _place(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def cells(*texts: str) -> list[Cell]:
    """Make a line of a table from texts."""
    return [Cell(text) for text in texts]


def success_text(item: Pooled | None) -> str:
    """Success over all pooled episodes and its interval."""
    return tables.plain(tables.success_cell(item))


def batch_text(item: Pooled | None) -> str:
    """Milliseconds per action: mean and standard deviation over seeds."""
    known = [row["seconds_per_action"] for row in item.rows] if item else []
    times = [1000 * seconds for seconds in known if seconds is not None]
    if not times:
        return NONE
    return number_text(statistics.mean(times)) + (f" ± {number_text(statistics.stdev(times))}" if times[1:] else "")


def number_text(value: float | None) -> str:
    """Format with two digits, or as a whole number from 10 on."""
    return NONE if value is None else f"{value:#.2g}" if value < 10 else f"{value:,.0f}"
