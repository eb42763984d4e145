"""Report page of a run folder: tables, figures and the command, in one HTML file that loads nothing from elsewhere.

A benchmark's `report(run)` returns the sections; this module turns them into HTML. `docs/results.md` describes run
folders and the fields of `results.json`.
"""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sgm.errors import printable

from .checks import Several
from .results import require_own_files, write_text
from .runs import RunFolder
from .tables import Cell, Pooled, Table, failure_table, steps_table

if TYPE_CHECKING:
    from .base import Benchmark

# -- parts of a page ---------------------------------------------------------------------------------------------


class Note(NamedTuple):
    """A note in small print; a loud one is emphasised."""

    text: str
    loud: bool = False


class Facts(NamedTuple):
    """A list of names and values."""

    values: Mapping[str, Any]
    title: str = ""


class Figure(NamedTuple):
    """A figure, drawn into `figures/<name>.png`; a wide one takes the whole width of the page."""

    name: str
    caption: str
    draw: Callable[[Path], None]
    wide: bool = False


class Figures(NamedTuple):
    """A group of figures, drawn when the page is written."""

    items: Sequence[Figure]


Part: TypeAlias = Table | Note | Facts | Figures


class Section(NamedTuple):
    """A section with a heading; it is left out if it holds only notes."""

    title: str
    parts: Sequence[Part]


# -- sections of all benchmarks ----------------------------------------------------------------------------------


def standard(run: RunFolder, *sections: Section) -> list[Section]:
    """Settings, the benchmark's own sections, success by seed, failures, and provenance."""
    return [what_was_run(run), *sections, by_seed(run), failures(run), made_with(run)]


def distance_note(far: str) -> str:
    """Explanation of the columns of `distance_table`; pairs more than `far` apart are false."""
    return (
        "Measured on held-out rollouts. AUC: pairs a few steps apart against pairs many steps apart. At each recall of "
        "truly near pairs across rollouts: the threshold in steps, and the shares of accepted pairs that are near and "
        f"that are over {far} apart."
    )


def what_was_run(run: RunFolder) -> Section:
    """Section with the command and all settings."""
    command = {"command": str(run.results.get("command") or "not recorded")}
    return Section("What was run", [Facts(command), Facts(run.settings), Facts(run.results.get("agent") or {})])


def by_seed(run: RunFolder) -> Section:
    """Section with the success of every seed at every stage."""
    return Section("Success by cleanup steps and seed", [steps_table(run.rows)])


def failures(run: RunFolder) -> Section:
    """Section with the reasons for failed episodes."""
    about = "Steps to goal: mean over successful episodes. Largest component: the largest strongly connected component."
    return Section("Failures", [failure_table(run.rows), Note(about)])


def made_with(run: RunFolder) -> Section:
    """Section with date, machine and versions."""
    known = {name: run.results[name] for name in ("date", "machine") if name in run.results}
    parts = [
        ", ".join(str(part.get(name)) for name in ("command", "date", "machine") if part.get(name))
        for part in run.checked("parts", Several({})) or []
    ]
    said = [Facts({f"part {number}": text for number, text in enumerate(parts, 1)})] if parts else []
    return Section("Made with", [Facts({**known, **(run.results.get("versions") or {})}), *said])


def band(pooled: Sequence[Pooled]) -> str:
    """Explanation of the band around a success curve."""
    seeds = max((item.seeds for item in pooled), default=1)
    if seeds == 1:
        return "One seed; the band is the Wilson 95 % interval over its episodes."
    return f"Mean over {seeds} seeds; the band is the Wilson 95 % interval over the pooled episodes of all seeds."


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
figure { margin: 1rem 0 1.6rem; break-inside: avoid; }
figure img { max-width: 100%; height: auto; display: block; margin: 0 auto; }
figure.narrow img { width: 40rem; }
figure .wide img { max-width: none; width: 100%; min-width: 42rem; }
figcaption, .note { font-size: .85rem; color: #555; }
dl { columns: 18rem; font-size: .85rem; margin: .7rem 0; }
dl div { display: flex; gap: 1rem; break-inside: avoid; } dl div:only-child { column-span: all; }
dt { color: #666; flex: 0 0 8.5rem; } dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
@media print { body { font-size: 11px; max-width: none; padding: 0; } .wide { overflow: visible; }
  th, td { padding: .15rem .3rem; } table, figure { break-inside: avoid; } h2, h3 { break-after: avoid; }
  figure.narrow img { width: 60%; } figure .wide img { min-width: 0; } }
"""


def write_report(benchmark: Benchmark, folder: Path, trusted: Mapping[str, Any] | None = None) -> Path:
    """Draw `figures/*.png` and write `report.html` from a run folder; return the path of the page.

    Args:
        benchmark: the declaration; its report gives the sections.
        folder: folder of the run; parts of it may be missing.
        trusted: settings of the run that the caller vouches for, as in `RunFolder`.
    """
    require_own_files(Path(folder), benchmark.held)
    run = RunFolder.read(folder, trusted)
    return write(run, benchmark.report(run))


def write(run: RunFolder, sections: Sequence[Section]) -> Path:
    """Draw the figures of these sections and write `report.html`; return its path."""
    environments = list(dict.fromkeys(row["environment"] for row in run.rows)) or ["no results yet"]
    more = f" and {len(environments) - 2} more" if len(environments) > 3 else ""
    shown = ", ".join(environments[:2] if more else environments)
    return write_page(run.folder, f"Sparse Graphical Memory: {shown}{more}", sections)


def write_page(folder: Path, title: str, sections: Sequence[Section]) -> Path:
    """Draw the figures of these sections and write `report.html` with this title to a folder; return its path."""
    title, path = _text(title), folder / "report.html"
    body = "".join(_section(section, folder / "figures") for section in sections)
    write_text(
        path,
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n",
    )
    return path


def _section(section: Section, figures: Path) -> str:
    parts = [(part, _part(part, figures)) for part in section.parts]
    if not any(html for part, html in parts if not isinstance(part, Note)):
        return ""
    return f"<section>\n<h2>{_text(section.title)}</h2>\n{''.join(html for _, html in parts)}</section>\n"


def _part(part: Part, figures: Path) -> str:
    """Convert a part to HTML; empty if it has no content."""
    if isinstance(part, Note):
        words = f"<strong>{_text(part.text)}</strong>" if part.loud else _text(part.text)
        return f'<p class="note">{words}</p>\n' if part.text else ""
    if isinstance(part, Figures):
        return "".join(_gallery(part.items, figures))
    html = _table(part) if isinstance(part, Table) else _facts(part)
    return f"<h3>{_text(part.title)}</h3>\n{html}" if part.title and html else html


def _gallery(items: Sequence[Figure], folder: Path) -> Iterator[str]:
    """Draw figures; list those that cannot be drawn below the others, by reason."""
    problems: dict[str, list[str]] = {}
    for item in items:
        path = folder / f"{item.name}.png"
        try:
            _draw(item, path)
        except Exception as error:  # a damaged file may raise anything; write the rest of the page
            problems.setdefault(str(error), []).append(path.name)
        else:
            yield _figure(item, path)
    for reason, names in problems.items():
        yield _part(Note(f"Not drawn: {', '.join(names)}, because {reason}"), folder)


def _draw(item: Figure, path: Path) -> None:
    """Draw a figure into a file."""
    path.parent.mkdir(exist_ok=True)
    with warnings.catch_warnings():
        # The warning would print control characters of a file to the terminal.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        item.draw(path)


def _figure(item: Figure, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    caption = _text(item.caption)
    image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
    if item.wide:
        return f'<figure><div class="wide">{image}</div><figcaption>{caption}</figcaption></figure>\n'
    return f'<figure class="narrow">{image}<figcaption>{caption}</figcaption></figure>\n'


def _table(table: Table) -> str:
    """Convert a table to HTML that scrolls sideways on narrow pages."""
    if not table.lines:
        return ""
    heads = "".join(f"<th>{_text(head)}</th>" for head in table.heads)
    body = "".join(f"<tr>{''.join(map(_cell, line))}</tr>\n" for line in table.lines)
    kind = ' class="named"' if table.heads[1] in ("Method", "Policy") else ""
    return (
        f'<div class="wide"><table{kind}>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n'
    )


def _cell(cell: Cell) -> str:
    detail = f"<small>{_text(cell.detail)}</small>" if cell.detail else ""
    return f"<td>{_text(cell.text)}{detail}</td>"


def _facts(facts: Facts) -> str:
    pairs = [(_text(str(name)), _text(_fact(value))) for name, value in facts.values.items()]
    lines = [f"<div><dt>{name}</dt><dd>{value}</dd></div>\n" for name, value in pairs]
    return f"<dl>\n{''.join(lines)}</dl>\n" if lines else ""


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_fact, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(value: str) -> str:
    """Escape text for HTML, and drop invisible characters."""
    return escape(printable(value))
