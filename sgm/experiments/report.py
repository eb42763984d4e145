"""A run folder as a page: tables, figures and how to rerun, in one file that needs no network.

What a run folder holds and what the fields of `results.json` mean: `docs/results.md`.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import sgm
from sgm.envs.mazes import Maze, load_maze
from sgm.navigation import wilson

from . import figures, plots

SCHEMA = 1
PHASES = ("initial", "filtered", "cleaned")
LABELS = {
    "sorb": "SoRB", "sorb+sgm": "SoRB + SGM", "d3pg": "D3PG", "ddpg+her": "DDPG + HER", "sac+her": "SAC + HER"
}  # fmt: skip
PAPER_ENVIRONMENT = "point:FourRooms-thin"
PAPER = {
    "sorb": "28.0 ± 6.3 %", "sorb+sgm": "100.0 ± 0.1 %",
    "d3pg": "near zero", "ddpg+her": "near zero", "sac+her": "near zero",
}  # fmt: skip
PAPER_FINAL = {"sorb": (0.28, "paper, SoRB: 28 %\n(400k steps)"), "sorb+sgm": (1.0, "paper, SGM: 100 %\n(400k steps)")}
NONE = "–"

Row = dict[str, Any]
_NEEDED = (
    "environment", "method", "seed", "phase", "cleanup_steps", "episodes", "successes", "mean_steps", "nodes", "edges",
    "seconds_per_action",
)  # fmt: skip
_BROKEN = (sgm.SGMError, OSError, ValueError, KeyError, IndexError, TypeError)


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


class Picture(NamedTuple):
    """A figure that was drawn."""

    path: Path
    caption: str


# -- reading -----------------------------------------------------------------------------------------------------


def read_results(folder: Path) -> dict[str, Any]:
    """The content of `results.json`; SGMError if it is not what this version reads."""
    path = folder / "results.json"
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise sgm.SGMError(f"{folder} holds no results.json: give the folder of a run (sgm run point)") from error
    except ValueError as error:
        raise sgm.SGMError(f"{path} is not JSON ({error}): run again with the same --out") from error
    schema = results.get("schema") if isinstance(results, dict) else None
    if schema != SCHEMA:
        raise sgm.SGMError(f"{path} has schema {schema!r}; this version of sgm reads schema {SCHEMA}")
    if not isinstance(results.get("rows"), list):
        raise sgm.SGMError(f"{path} has no list of rows: see docs/results.md for what is accepted")
    for number, row in enumerate(results["rows"]):
        check_row(row, f"row {number} of {path}")
    return results


def check_row(row: Row, what: str = "a row") -> None:
    """SGMError unless the row has every field that tables are made from."""
    if missing := [name for name in _NEEDED if name not in row]:
        raise sgm.SGMError(f"{what} has no {', '.join(missing)}; accepted: rows as in docs/results.md")
    if row["phase"] not in PHASES:
        raise sgm.SGMError(f"{what} has phase {row['phase']!r}; accepted: {', '.join(PHASES)}")


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
            reasons[reason] = reasons.get(reason, 0) + count
    arrived = [(row["mean_steps"], row["successes"]) for row in rows if row["mean_steps"] is not None]
    arrivals = sum(count for _, count in arrived)
    return Pooled(
        first["environment"], first["method"], first["phase"], first["cleanup_steps"],
        seeds=len({row["seed"] for row in rows}),
        episodes=tuple(row["episodes"] for row in rows),
        successes=sum(row["successes"] for row in rows),
        mean_steps=sum(steps * count for steps, count in arrived) / arrivals if arrivals else None,
        nodes=_mean(row["nodes"] for row in rows),
        edges=_mean(row["edges"] for row in rows),
        largest_part=_mean(row.get("largest_part") for row in rows),
        seconds_per_action=_mean(row["seconds_per_action"] for row in rows),
        reasons=reasons,
    )  # fmt: skip


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _by_method(pooled: Sequence[Pooled]) -> dict[tuple[str, str], list[Pooled]]:
    groups: dict[tuple[str, str], list[Pooled]] = {}
    for item in pooled:
        groups.setdefault((item.environment, item.method), []).append(item)
    return groups


def _stage(items: Sequence[Pooled], phase: str) -> Pooled | None:
    """The phase of a method; for "cleaned" the longest cleanup, of those that most seeds have reached."""
    found = [item for item in items if item.phase == phase]
    return max(found, key=lambda item: (item.seeds, item.cleanup_steps), default=None)


def _stages(items: Sequence[Pooled]) -> list[Pooled]:
    return [item for phase in PHASES if (item := _stage(items, phase))]


# -- tables ------------------------------------------------------------------------------------------------------


def main_table(rows: Iterable[Row]) -> Table:
    """One line for each method: success in each phase, and what the last phase cost."""
    groups = _by_method(pool(rows))
    several = len({environment for environment, _ in groups}) > 1
    paper = any(environment.startswith(PAPER_ENVIRONMENT) for environment, _ in groups)
    heads = [
        *(["Environment"] if several else []), "Method", "Seeds × episodes", "Initial", "Filtered", "After cleanup",
        "Cleanup steps", "Steps to goal", "Nodes", "Edges", "ms per action", *(["Paper"] if paper else []),
    ]  # fmt: skip
    lines = []
    for (environment, method), items in groups.items():
        last, cleaned = _stages(items)[-1], _stage(items, "cleaned")
        quoted = PAPER.get(method, NONE) if environment.startswith(PAPER_ENVIRONMENT) else NONE
        lines.append([
            *([Cell(environment)] if several else []),
            Cell(label(method)),
            Cell(_episodes(last)),
            *(_success(_stage(items, phase)) for phase in PHASES),
            Cell(f"{cleaned.cleanup_steps:,}" if cleaned else NONE),
            *(Cell(_number(value)) for value in (last.mean_steps, last.nodes, last.edges)),
            Cell(_milliseconds(last.seconds_per_action)),
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
        each = [Cell(_percent(row["successes"] / row["episodes"]) if row else NONE) for row in cells]
        steps = "before filtering" if item.phase == "initial" else f"{item.cleanup_steps:,}"
        lines.append([Cell(steps), *each, _success(item), Cell(_number(item.edges))])
    return Table(["Cleanup steps", *(f"Seed {seed}" for seed in seeds), "Pooled", "Edges"], lines)


def failure_table(pooled: Sequence[Pooled]) -> Table:
    """Why episodes failed, how long the others took, and how much of the graph hangs together."""
    stages = [stage for items in _by_method(pooled).values() for stage in _stages(items)]
    reasons = list(dict.fromkeys(reason for stage in stages for reason in stage.reasons))
    lines = [
        [
            Cell(label(stage.method)),
            Cell(stage.phase if stage.phase != "cleaned" else f"cleaned, {stage.cleanup_steps:,} steps"),
            Cell(f"{stage.trials - stage.successes:,} of {stage.trials:,}"),
            *(Cell(f"{stage.reasons[reason]:,}" if reason in stage.reasons else NONE) for reason in reasons),
            Cell(_number(stage.mean_steps)),
            Cell(_number(stage.largest_part)),
        ]
        for stage in stages
    ]
    heads = ["Method", "Phase", "Failed", *(f"Failed: {reason}" for reason in reasons), "Steps to goal"]
    return Table([*heads, "Largest connected part, nodes"], lines)


def markdown_table(rows: Iterable[Row]) -> str:
    """The main table in Markdown."""
    table = main_table(rows)
    texts = [table.heads, *([_plain(cell).replace("|", "\\|") for cell in line] for line in table.lines)]
    lines = [f"| {' | '.join(line)} |" for line in texts]
    left = table.heads.index("Method") + 1
    rule = "|" + "|".join(["---"] * left + ["---:"] * (len(table.heads) - left)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


def console_table(rows: Iterable[Row]) -> str:
    """The main table in columns of plain text."""
    table = main_table(rows)
    texts = [table.heads, *([_plain(cell) for cell in line] for line in table.lines)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    left = table.heads.index("Method") + 1
    aligned = [f"<{width}" if number < left else f">{width}" for number, width in enumerate(widths)]
    lines = ["  ".join(map(format, line, aligned)).rstrip() for line in texts]
    return "\n".join([lines[0], "  ".join("─" * width for width in widths), *lines[1:]])


def label(method: str) -> str:
    """What people call a method."""
    return LABELS.get(method, method)


def _plain(cell: Cell) -> str:
    return f"{cell.text} [{cell.detail}]" if cell.detail else cell.text


def _success(item: Pooled | None) -> Cell:
    if item is None:
        return Cell(NONE)
    low, high = item.ci95
    return Cell(_percent(item.rate), f"{100 * low:.1f}–{100 * high:.1f}")


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"


def _episodes(item: Pooled) -> str:
    if len(set(item.episodes)) == 1:
        return f"{item.seeds} × {item.episodes[0]:,}"
    return f"{item.seeds} seeds, {item.trials:,} in all"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def _milliseconds(seconds: float | None) -> str:
    return NONE if seconds is None else f"{1000 * seconds:.3g}"


# -- figures -----------------------------------------------------------------------------------------------------


def draw_figures(folder: Path, results: dict[str, Any]) -> tuple[list[Picture], list[str]]:
    """Draw what the folder has data for; the pictures, and a sentence for each one that could not be drawn."""
    out = folder / "figures"
    pictures: list[Picture] = []
    problems: list[str] = []

    def attempt(name: str, caption: str, draw: Callable[[Path], None]) -> None:
        path = out / f"{name}.png"
        try:
            out.mkdir(exist_ok=True)
            draw(path)
        except _BROKEN as error:
            problems.append(f"{name}.png was not drawn: {error}")
        else:
            pictures.append(Picture(path, caption))

    for name, caption, curves in _curves(results["rows"]):
        attempt(name, caption, partial(figures.success_curves, curves=curves))
    for method, seed, home in _memories(folder, results["rows"]):
        whose, suffix = f"{label(method)}, seed {seed}", method.replace("+", "-")
        attempt(
            f"memory-{suffix}",
            f"{whose}: the memory before the k-nearest filter, after it, and after cleanup, with the edges that "
            "cleanup removed in red.",
            partial(_draw_stages, results=results, home=home),
        )
        if (home / "episode.json").is_file():
            attempt(
                f"episode-{suffix}",
                f"{whose}: an episode in which an edge failed (crossed out in red) and the robot planned anew.",
                partial(_draw_episode, results=results, home=home),
            )
    return pictures, problems


def _draw_stages(path: Path, results: dict[str, Any], home: Path) -> None:
    figures.memory_stages(path, _maze(results), _memory(home))


def _draw_episode(path: Path, results: dict[str, Any], home: Path) -> None:
    trace = json.loads((home / "episode.json").read_text(encoding="utf-8"))
    figures.episode(path, _maze(results), _memory(home), trace)


def _maze(results: dict[str, Any]) -> Maze:
    settings = results.get("settings") or {}
    if "maze" not in settings:
        raise sgm.SGMError("results.json has no settings.maze")
    return load_maze(
        settings["maze"], settings.get("resize", 1), settings.get("thin", False), settings.get("maze_seed", 0)
    )


def _memory(home: Path) -> sgm.SparseGraphicalMemory:
    return sgm.SparseGraphicalMemory.load(home / "memory.sgm", None)


def _memories(folder: Path, rows: Sequence[Row]) -> list[tuple[str, int, Path]]:
    """Method, seed and folder of the first seed's memory of each method that has one."""
    found: dict[str, tuple[str, int, Path]] = {}
    for seed in sorted({row["seed"] for row in rows}):
        for method in dict.fromkeys(row["method"] for row in rows):
            home = folder / f"seed{seed}" / method
            if method not in found and (home / "memory.sgm").is_file():
                found[method] = (method, seed, home)
    return list(found.values())


def _curves(rows: Sequence[Row]) -> list[tuple[str, str, list[figures.Curve]]]:
    """File name, caption and curves of the success figure, for each environment."""
    groups = _by_method(pool(rows))
    environments = list(dict.fromkeys(environment for environment, _ in groups))
    found = []
    for number, environment in enumerate(environments):
        curves = [
            _curve(items, method)
            for (where, method), items in groups.items()
            if where == environment and any(item.phase == "cleaned" for item in items)
        ]
        if curves:
            seeds = max(item.seeds for (where, _), items in groups.items() if where == environment for item in items)
            caption = f"Success against cleanup steps ({environment}): {_band(seeds)}"
            if any(curve.paper for curve in curves):
                caption += " Dotted: the paper's values after 400,000 steps."
            found.append((f"success{f'-{number + 1}' if number else ''}", caption, curves))
    return found


def _band(seeds: int) -> str:
    if seeds == 1:
        return "one seed; the band is the Wilson 95 % interval over its episodes."
    return f"mean over {seeds} seeds; the band is the Wilson 95 % interval over the pooled episodes of all seeds."


def _curve(items: Sequence[Pooled], method: str) -> figures.Curve:
    line = [item for item in items if item.phase != "initial"]
    initial = _stage(items, "initial")
    low, high = zip(*(item.ci95 for item in line), strict=True)
    paper = PAPER_FINAL.get(method) if line[0].environment.startswith(PAPER_ENVIRONMENT) else None
    return figures.Curve(
        label(method), plots.METHOD.get(method, plots.WALL), [item.cleanup_steps for item in line],
        [item.rate for item in line], low, high, initial.rate if initial else None, paper,
    )  # fmt: skip


# -- the page ----------------------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #22252a; background: #fff; max-width: 62rem; margin: 0 auto;
  padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #ddd; padding-bottom: .2rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; margin: .5rem 0; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid #e6e6e2; vertical-align: top; }
td { white-space: nowrap; }
th { background: #f4f3ef; font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: .3rem; }
small { color: #666; display: block; font-size: .78rem; }
pre { background: #f4f3ef; padding: .7rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; }
figure { margin: 1rem 0 1.6rem; break-inside: avoid; }
figure img { max-width: 100%; height: auto; display: block; margin: 0 auto; }
figure.narrow img { width: 40rem; }
figure .wide img { max-width: none; width: 100%; min-width: 42rem; }
figcaption, .note { font-size: .85rem; color: #555; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .85rem; margin: .5rem 0; }
dt { color: #666; } dd { margin: 0; overflow-wrap: anywhere; }
@media print { body { font-size: 11px; max-width: none; padding: 0; } .wide { overflow: visible; }
  th, td { padding: .15rem .3rem; } table, figure { break-inside: avoid; } h2, h3 { break-after: avoid; }
  figure.narrow img { width: 60%; } figure .wide img { min-width: 0; } }
"""


def write_report(folder: Path) -> Path:
    """Draw `figures/*.png` and write `report.html` from what a run folder holds; optional parts may be missing."""
    folder = Path(folder)
    results = read_results(folder)
    pictures, problems = draw_figures(folder, results)
    path = folder / "report.html"
    path.write_text(_page(results, pictures, problems), encoding="utf-8")
    return path


def _page(results: dict[str, Any], pictures: Sequence[Picture], problems: Sequence[str]) -> str:
    rows: list[Row] = results["rows"]
    environments = ", ".join(dict.fromkeys(row["environment"] for row in rows)) or "no results yet"
    title = f"Sparse Graphical Memory: {environments}"
    shown = "".join(map(_figure, pictures)) + "".join(f'<p class="note">{escape(text)}</p>\n' for text in problems)
    parts = [
        f"<h1>{escape(title)}</h1>\n",
        _section("What was run", _how(results)),
        _section("Results", _html(main_table(rows)) + _RESULTS_NOTE) if rows else "",
        _section("Figures", shown) if shown else "",
        _section("Success by cleanup steps", _cleanup_tables(rows)),
        _section("Failures and steps to goal", _html(failure_table(pool(rows)))) if rows else "",
        _section("Made with", _facts(_made_with(results))),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{''.join(parts)}</body>\n</html>\n"
    )


_RESULTS_NOTE = (
    '<p class="note">Success with the Wilson 95 % interval over the pooled episodes of all seeds. Initial: before the '
    "k-nearest filter, or without a memory. Filtered: k nearest successors, no cleanup. Steps to goal (successes "
    "only), nodes, edges and time per action are those of the last phase. Paper: Emmons et al., NeurIPS 2020, after "
    "400,000 cleanup steps.</p>\n"
)


def _how(results: dict[str, Any]) -> str:
    command = f"<p>To run it again:</p>\n<pre>{escape(str(results.get('command', 'not recorded')))}</pre>\n"
    return command + _facts(results.get("settings") or {})


def _made_with(results: dict[str, Any]) -> dict[str, Any]:
    plain = {name: results[name] for name in ("date", "machine") if name in results}
    return {**plain, **(results.get("versions") or {})}


def _cleanup_tables(rows: Sequence[Row]) -> str:
    groups = _by_method(pool(rows))
    parts = []
    for (environment, method), items in groups.items():
        if any(item.phase != "initial" for item in items):
            mine = [row for row in rows if (row["environment"], row["method"]) == (environment, method)]
            title = f"{label(method)}, {environment}"
            parts.append(f"<h3>{escape(title)}</h3>\n{_html(cleanup_table(items, mine))}")
    return "".join(parts)


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}</section>\n" if content else ""


def _facts(facts: dict[str, Any]) -> str:
    lines = "".join(f"<dt>{escape(str(name))}</dt><dd>{escape(_fact(value))}</dd>\n" for name, value in facts.items())
    return f"<dl>\n{lines}</dl>\n" if lines else ""


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_fact, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _html(table: Table) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in table.heads)
    body = "".join(f"<tr>{''.join(map(_html_cell, line))}</tr>\n" for line in table.lines)
    return f'<div class="wide"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n'


def _html_cell(cell: Cell) -> str:
    detail = f"<small>{escape(cell.detail)}</small>" if cell.detail else ""
    return f"<td>{escape(cell.text)}{detail}</td>"


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.path.read_bytes()).decode("ascii")
    caption = escape(picture.caption)
    image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
    if picture.path.name.startswith("memory"):
        return f'<figure><div class="wide">{image}</div><figcaption>{caption}</figcaption></figure>\n'
    return f'<figure class="narrow">{image}<figcaption>{caption}</figcaption></figure>\n'
