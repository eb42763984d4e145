"""A run folder as a page: tables, figures and how to rerun, in one file that needs no network.

What a run folder holds and what the fields of `results.json` mean: `docs/results.md`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import sgm
from sgm.envs.mazes import Maze, load_maze

from . import figures, plots
from .tables import (
    PAPER_ENVIRONMENT,
    PAPER_FINAL,
    Cell,
    Pooled,
    Row,
    Table,
    by_method,
    cleanup_table,
    failure_table,
    label,
    main_table,
    pool,
    read_results,
    stage,
)

_BROKEN = (sgm.SGMError, OSError, ValueError, KeyError, IndexError, TypeError)


class Picture(NamedTuple):
    """A figure that was drawn."""

    path: Path
    caption: str


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
    groups = by_method(pool(rows))
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
    initial = stage(items, "initial")
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
    groups = by_method(pool(rows))
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
