"""A run folder as a page: tables, figures and how to rerun, in one file that needs no network.

What a run folder holds and what the fields of `results.json` mean: `docs/results.md`.
"""

from __future__ import annotations

import base64
import json
import re
import reprlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import sgm
from sgm.envs.point.mazes import Maze, load_maze
from sgm.errors import printable

from . import plots
from .checks import COUNT
from .point import figures
from .results import find_file, read_json, require_own_files, write_text
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
    three_digits,
)

# What a damaged file leads to.
BROKEN = (
    sgm.SGMError, OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError,
    MemoryError,
)  # fmt: skip
_MAZE = re.compile(r"FourRooms|U|Tree|Spiral(?P<spiral>[0-9]{1,3})|Random(?P<random>[0-9]{1,3})(\+[0-9]{1,4})?")
_WIDEST = 512  # cells: a maze may have 16,384 free ones, which in none of ours are less than a quarter of all
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")  # a method whose name may be part of a file's name


class Picture(NamedTuple):
    """A figure that was drawn; a wide one takes the whole width of the page, and scrolls where that is narrow."""

    path: Path
    caption: str
    wide: bool = False


class Gallery:
    """The figures of a run folder: those that were drawn, and a sentence for each one that could not be."""

    def __init__(self, folder: Path) -> None:
        """Draw into `folder/figures`."""
        self.folder = folder / "figures"
        self.pictures: list[Picture] = []
        self.problems: list[str] = []

    def add(self, name: str, caption: str, draw: Callable[[Path], None], wide: bool = False) -> None:
        """Draw a figure, or note why it cannot be drawn."""
        path = self.folder / f"{name}.png"
        try:
            self.folder.mkdir(exist_ok=True)
            with warnings.catch_warnings():
                # It would print characters of a file, such as those that a terminal obeys, as they are.
                warnings.filterwarnings("ignore", "Glyph .* missing")
                draw(path)
        except BROKEN as error:
            self.problems.append(f"{name}.png was not drawn: {error}")
        else:
            self.pictures.append(Picture(path, caption, wide))

    def html(self) -> str:
        """All figures, then all notes."""
        return "".join(map(_figure, self.pictures)) + "".join(map(note, self.problems))


# -- figures -----------------------------------------------------------------------------------------------------


def draw_figures(folder: Path, results: dict[str, Any], maze: str | None = None) -> Gallery:
    """Draw what the folder has data for; `maze` as in `write_report`."""
    gallery = Gallery(folder)
    for name, caption, curves in _curves(results["rows"]):
        gallery.add(name, caption, partial(figures.success_curves, curves=curves))
    for method, seed, home in _memories(folder, results["rows"]):
        whose, suffix = f"{label(method)}, seed {seed}", method.replace("+", "-")
        gallery.add(
            f"memory-{suffix}",
            f"{whose}: the memory before the k-nearest filter, after it, and after cleanup, with the edges that "
            "cleanup removed in red.",
            partial(_draw_stages, results=results, home=home, given=maze),
            wide=True,
        )
        if (home / "episode.json").is_file():
            gallery.add(
                f"episode-{suffix}",
                f"{whose}: an episode in which an edge failed (crossed out in red) and the robot planned anew.",
                partial(_draw_episode, results=results, home=home, given=maze),
            )
    return gallery


def _draw_stages(path: Path, results: dict[str, Any], home: Path, given: str | None) -> None:
    figures.memory_stages(path, _maze(results, given), _memory(home))


def _draw_episode(path: Path, results: dict[str, Any], home: Path, given: str | None) -> None:
    figures.episode(path, _maze(results, given), _memory(home), read_json(find_file(home, "episode.json")))


def _maze(results: dict[str, Any], given: str | None) -> Maze:
    """The maze of a run. A file is read if the caller names it, not because results.json does."""
    settings = results.get("settings") or {}
    if "maze" not in settings:
        raise sgm.SGMError("results.json has no settings.maze")
    resize, thin, seed = settings.get("resize", 1), settings.get("thin", False), settings.get("maze_seed", 0)
    if given is not None:
        return load_maze(given, resize, thin, seed)
    name = settings["maze"]
    if not isinstance(name, str) or not (named := _MAZE.fullmatch(name)):
        raise sgm.StoreError(
            f"the maze of this run is {reprlib.repr(name)}, which is not the name of one of ours: give its text file, "
            "write_report(folder, maze)"
        )
    if not COUNT.holds(resize) or int(named["spiral"] or named["random"] or 15) * resize > _WIDEST:
        raise sgm.StoreError(
            f"results.json has maze {name!r} and resize {reprlib.repr(resize)}; accepted: at most {_WIDEST} cells"
        )
    return load_maze(name, resize, thin, seed)


def _memory(home: Path) -> sgm.SparseGraphicalMemory:
    return sgm.SparseGraphicalMemory.load(find_file(home, "memory.sgm"), None)


def _memories(folder: Path, rows: Sequence[Row]) -> list[tuple[str, int, Path]]:
    """Method, seed and folder of the first seed's memory of each method that has one."""
    found: dict[str, tuple[str, int, Path]] = {}
    for seed in sorted({row["seed"] for row in rows}):
        for method in dict.fromkeys(row["method"] for row in rows if _PLAIN.fullmatch(row["method"])):
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
            caption = f"Success against cleanup steps ({environment}): {band(seeds)}"
            if any(curve.paper for curve in curves):
                caption += " Dotted: the paper's values after 400,000 steps."
            found.append((f"success{f'-{number + 1}' if number else ''}", caption, curves))
    return found


def band(seeds: int) -> str:
    """What the band around a curve is."""
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
.named th:nth-child(2), .named td:nth-child(2) { text-align: left; }
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


def write_report(folder: Path, maze: str | None = None) -> Path:
    """Draw `figures/*.png` and write `report.html` from what a run folder holds; optional parts may be missing.

    Args:
        folder: of a run.
        maze: the name or the text file of its maze. A text file that only `results.json` names is not opened.
    """
    folder = Path(folder)
    require_own_files(folder)
    results = read_results(folder)
    shown = draw_figures(folder, results, maze).html()
    path = folder / "report.html"
    write_text(path, _page(results, shown))
    return path


def _page(results: dict[str, Any], shown: str) -> str:
    rows: list[Row] = results["rows"]
    parts = [
        section("What was run", how(results)),
        section("Results", html_table(main_table(rows)) + _RESULTS_NOTE) if rows else "",
        section("Figures", shown) if shown else "",
        section("Success by cleanup steps", _cleanup_tables(rows)),
        section("Failures and steps to goal", html_table(failure_table(pool(rows)))) if rows else "",
        section("Made with", facts(made_with(results))),
    ]
    return document(rows, parts)


def document(rows: Sequence[Row], parts: Sequence[str]) -> str:
    """A page of these parts, titled after the environments of these rows."""
    environments = ", ".join(dict.fromkeys(row["environment"] for row in rows)) or "no results yet"
    title = text(f"Sparse Graphical Memory: {environments}")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{title}</h1>\n{''.join(parts)}</body>\n</html>\n"
    )


_RESULTS_NOTE = (
    '<p class="note">Success with the Wilson 95 % interval over the pooled episodes of all seeds. Initial: before the '
    "k-nearest filter, or without a memory. Filtered: k nearest successors, no cleanup. Steps to goal (successes "
    "only), nodes, edges and time per action are those of the last phase. Paper: Emmons et al., NeurIPS 2020, after "
    "400,000 cleanup steps.</p>\n"
)


def how(results: dict[str, Any]) -> str:
    """The command and all settings."""
    command = f"<p>To run it again:</p>\n<pre>{text(str(results.get('command', 'not recorded')))}</pre>\n"
    return command + facts(results.get("settings") or {})


def made_with(results: dict[str, Any]) -> dict[str, Any]:
    """Date, machine and versions."""
    plain = {name: results[name] for name in ("date", "machine") if name in results}
    return {**plain, **(results.get("versions") or {})}


def _cleanup_tables(rows: Sequence[Row]) -> str:
    groups = by_method(pool(rows))
    parts = []
    for (environment, method), items in groups.items():
        if any(item.phase != "initial" for item in items):
            mine = [row for row in rows if (row["environment"], row["method"]) == (environment, method)]
            title = f"{label(method)}, {environment}"
            parts.append(f"<h3>{text(title)}</h3>\n{html_table(cleanup_table(items, mine))}")
    return "".join(parts)


def text(value: str) -> str:
    """Text for a page, without anything that is markup, or that is not to be seen."""
    return escape(printable(value))


def note(words: str) -> str:
    """Small print."""
    return f'<p class="note">{text(words)}</p>\n'


def shown(values: Mapping[str, Any]) -> str:
    """Names and values, numbers with three digits."""
    return facts({name: three_digits(value) for name, value in values.items()})


def section(title: str, content: str) -> str:
    """A headed part of the page; nothing if it has no content."""
    return f"<section>\n<h2>{text(title)}</h2>\n{content}</section>\n" if content else ""


def facts(values: dict[str, Any]) -> str:
    """Names and values."""
    lines = "".join(f"<dt>{text(str(name))}</dt><dd>{text(_fact(value))}</dd>\n" for name, value in values.items())
    return f"<dl>\n{lines}</dl>\n" if lines else ""


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_fact, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def html_table(table: Table) -> str:
    """A table that scrolls on its own where the page is narrow."""
    heads = "".join(f"<th>{text(head)}</th>" for head in table.heads)
    body = "".join(f"<tr>{''.join(map(_html_cell, line))}</tr>\n" for line in table.lines)
    kind = ' class="named"' if table.heads[1:2] == ["Method"] else ""
    return (
        f'<div class="wide"><table{kind}>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n'
    )


def _html_cell(cell: Cell) -> str:
    detail = f"<small>{text(cell.detail)}</small>" if cell.detail else ""
    return f"<td>{text(cell.text)}{detail}</td>"


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.path.read_bytes()).decode("ascii")
    caption = text(picture.caption)
    image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
    if picture.wide:
        return f'<figure><div class="wide">{image}</div><figcaption>{caption}</figcaption></figure>\n'
    return f'<figure class="narrow">{image}<figcaption>{caption}</figcaption></figure>\n'
