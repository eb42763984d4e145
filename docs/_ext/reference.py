"""The reference, generated from the code: a page for each room of the package, and one for each command.

Pages are written to docs/reference/generated before Sphinx reads its sources. What is new in the code is there at the
next build, without a line to add by hand.
"""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from public import Public, public_names
from sphinx.application import Sphinx

TITLES = {
    "memory": "The memory: sgm and sgm.memory",
    "data": "Experience and its sources: sgm.data",
    "distances": "Distances: sgm.distances",
    "controllers": "Controllers: sgm.controllers",
    "navigation": "The agent: sgm.navigation",
    "distributed": "Many workers: sgm.distributed",
    "envs": "Environments: sgm.envs",
    "benchmarks": "Benchmarks: sgm.benchmarks",
    "inspector": "The inspector: sgm.inspector",
}
WIDTH = 92  # characters of a line of code that a page of a laptop shows
ORDER = {"class": 0, "function": 1, "data": 2, "exception": 3}


def write_pages(app: Sphinx) -> None:
    """Write all generated pages, and remove those of before that are not among them."""
    folder = Path(app.srcdir) / "reference" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    made = {**api_pages(), **command_pages()}
    for name, text in made.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.glob("*.md"):
        if path.name not in made:
            path.unlink()


def api_pages() -> dict[str, str]:
    """Names and texts of the pages about Python names."""
    by_room: dict[str, list[Public]] = {}
    for public in public_names():
        by_room.setdefault(public.room, []).append(public)
    rooms = [*(room for room in TITLES if room in by_room), *sorted(by_room.keys() - TITLES.keys())]
    pages = {f"api-{room}.md": _room_page(room, by_room[room]) for room in rooms}
    entries = "\n".join(f"api-{room}" for room in rooms)
    pages["api.md"] = (
        "# The Python names\n\nWhat is listed here is public: it keeps its meaning between releases "
        "([how names are deprecated](../stability.md)). Shapes and units are in the descriptions; distances and "
        "weights are in environment steps.\n\n"
        f"{_table([p for p in public_names() if p.path.count('.') == 1])}\n"
        f"```{{toctree}}\n:maxdepth: 1\n:hidden:\n\n{entries}\n```\n"
    )
    return pages


def _room_page(room: str, found: list[Public]) -> str:
    ordered = sorted(found, key=lambda public: (ORDER[public.kind], public.path.count("."), public.path.lower()))
    title = TITLES.get(room, f"sgm.{room}")
    parts = [f"# {title}\n", _table(ordered)]
    for module, names in _by_module(ordered).items():
        parts.append(f"## {module}\n")
        parts += [_directive(public) for public in names]
    return "\n".join(parts)


def _by_module(found: list[Public]) -> dict[str, list[Public]]:
    """Public names by the module that users find them in, those of `sgm` first."""
    groups: dict[str, list[Public]] = {}
    for public in sorted(found, key=lambda public: public.path.count(".")):
        groups.setdefault(public.path.rpartition(".")[0], []).append(public)
    return groups


def _table(found: list[Public]) -> str:
    lines = ["| name | what it is |", "|---|---|"]
    for public in found:
        role = {"class": "class", "exception": "exc", "function": "func", "data": "data"}[public.kind]
        lines.append(f"| {{py:{role}}}`{public.path}` | {_summary(public.thing)} |")
    return "\n".join(lines) + "\n"


def _summary(thing: Any) -> str:
    """The first sentence of a docstring, for a table."""
    first = (inspect.getdoc(thing) or "").split("\n\n", 1)[0].replace("\n", " ")
    return first.replace("|", r"\|").replace("``", "`")


def _directive(public: Public) -> str:
    kind = "class" if public.kind == "class" else public.kind
    return f"```{{eval-rst}}\n.. auto{kind}:: {public.path}\n```\n"


def command_pages() -> dict[str, str]:
    """Names and texts of the pages about commands."""
    from sgm import cli
    from sgm.fit.commands import COMMANDS

    plain = dict(_commands(cli._parser([])))
    pages, listed = {}, []
    for name in plain:
        parser = dict(_commands(cli._parser([name])))[name] if name in ("run", *COMMANDS) else plain[name]
        pages[f"command-{name}.md"] = _command_page(f"sgm {name}", parser)
        listed.append(f"| [`sgm {name}`](command-{name}.md) | {_help_of(cli._parser([]), name)} |")
    entries = "\n".join(page.removesuffix(".md") for page in pages)
    pages["commands.md"] = (
        "# The commands\n\nEvery command says the same with `--help`. Errors are one line and exit code 2; an "
        "interrupted command exits with 130. `SGM_DEBUG=1` shows where an error in sgm itself happened.\n\n"
        "| command | what it does |\n|---|---|\n"
        + "\n".join(listed)
        + f"\n\n```{{toctree}}\n:maxdepth: 1\n:hidden:\n\n{entries}\n```\n"
    )
    return pages


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _help_of(parser: argparse.ArgumentParser, name: str) -> str:
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return next(choice.help or "" for action in actions for choice in action._choices_actions if choice.dest == name)


def _command_page(title: str, parser: argparse.ArgumentParser, level: int = 1) -> str:
    parser.prog = title
    parts = [f"{'#' * level} {title}\n", *_text(parser.description)]
    inner = list(_commands(parser))
    if not inner:
        usage = re.sub(r"^usage: ", "", " ".join(parser.format_usage().split()))
        lines = textwrap.wrap(usage, WIDTH, subsequent_indent=" " * 4, break_on_hyphens=False)
        parts.append("```\n" + "\n".join(lines) + "\n```\n")
        parts += [_options(parser, group) for group in parser._action_groups if _shown(group)]
    parts += _text(parser.epilog)
    parts += [_command_page(f"{title} {name}", command, level + 1) for name, command in inner]
    return "\n".join(parts)


def _text(text: str | None) -> list[str]:
    """Text of a parser: as it stands if it is laid out in columns, otherwise as a paragraph."""
    if not text:
        return []
    laid_out = re.search(r"^  \S", text, re.MULTILINE)
    return [f"```text\n{_wrapped(text)}\n```\n" if laid_out else f"{_escaped(text)}\n"]


def _wrapped(text: str) -> str:
    """Lines of a text in columns that are not too long for a page; what is too long goes on under its column."""
    lines = []
    for line in re.sub(r"(?<=[^\s:])\n(?=\S)", " ", text).splitlines():  # lines of one paragraph
        column = re.match(r"  \S+ {2,}", line)
        indent = " " * (column.end() if column else len(line) - len(line.lstrip()))
        lines += textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def _shown(group: Any) -> list[argparse.Action]:
    return [action for action in group._group_actions if not isinstance(action, argparse._HelpAction)]


def _options(parser: argparse.ArgumentParser, group: Any) -> str:
    formatter = parser._get_formatter()
    lines = [f"**{group.title}**\n", "| option | what it is |", "|---|---|"]
    for action in _shown(group):
        help_text = _cell(_escaped(formatter._expand_help(action)))
        lines.append(f"| {_cell(_signature(formatter, action))} | {help_text} |")
    return "\n".join(lines) + "\n"


def _signature(formatter: argparse.HelpFormatter, action: argparse.Action) -> str:
    """How an option, or an argument, is written."""
    if not action.option_strings:
        return f"`{formatter._metavar_formatter(action, action.dest)(1)[0]}`"
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    if action.nargs == 0:
        return names
    value = formatter._metavar_formatter(action, action.dest.upper())(1)[0]
    return f"{names} `{formatter._format_args(action, value)}`"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _escaped(text: str) -> str:
    """Plain text as Markdown that shows it as it is."""
    return re.sub(r"([*_<>\[\]$])", r"\\\1", " ".join(text.split()))


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
