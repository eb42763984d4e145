"""Options of `sgm run NAME`, made from the fields of a benchmark's settings; each field declares its help text."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import sgm

RUN, EVALUATION, MEMORY, TRAINING = "what is run", "evaluation", "memory", "training"  # groups, in the order of --help


def option(
    default: Any,
    help: str,
    group: str = RUN,
    *,
    choices: Iterable[str] = (),
    least: float | None = None,
    fewest: int = 0,
    metavar: Any = None,
    off: str | None = None,
) -> Any:
    """Declare a field of settings that is also a command-line option.

    Args:
        default: default value; None: `help` describes the default.
        help: help text, one line.
        group: heading under which `--help` lists it.
        choices: accepted values, of each item if it is a tuple.
        least: smallest accepted value, of each item if it is a tuple.
        fewest: smallest number of items of a tuple.
        metavar: name of the value in the help.
        off: flag that sets a bool to False; None: `--no-NAME`.
    """
    limits = {"choices": tuple(choices), "least": least, "fewest": fewest}
    return dataclasses.field(
        default=default, metadata={"help": help, "group": group, "metavar": metavar, "off": off, **limits}
    )


def count(default: int | None, help: str, group: str = RUN) -> Any:
    """Declare an option that is a whole number, 1 or more."""
    return option(default, help, group, least=1, metavar="N")


def some_of(
    choices: Iterable[str], default: tuple[str, ...], help: str, group: str = RUN, metavar: str = "NAME"
) -> Any:
    """Declare an option that is a tuple of at least one of these names."""
    return option(default, help, group, choices=choices, fewest=1, metavar=metavar)


def seed(default: Any, help: str, group: str = RUN, metavar: str = "SEED") -> Any:
    """Declare an option that is a seed, or a tuple of at least one seed."""
    return option(default, help, group, least=0, fewest=1, metavar=metavar)


def steps(default: Any) -> Any:
    """Declare the option for the length of cleanup (a number), or for the intermediate evaluations (a tuple)."""
    what = "cleanup steps of intermediate evaluations" if isinstance(default, tuple) else "environment steps of cleanup"
    return option(default, what, least=0, metavar="STEPS")


def check_values(settings: Any) -> None:
    """Raise InputError if a field has too few items, or a value that is too small or not among its choices."""
    for field in dataclasses.fields(settings):
        value, least, choices = getattr(settings, field.name), field.metadata["least"], field.metadata["choices"]
        items = value if isinstance(value, tuple) else (value,)
        if isinstance(value, tuple) and len(value) < field.metadata["fewest"]:
            fewest = field.metadata["fewest"]
            raise sgm.InputError(f"{field.name} is {value}: expected {fewest} or more{_listed(choices)}")
        if least is not None and (low := [item for item in items if item is not None and item < least]):
            verb = "has" if isinstance(value, tuple) else "is"
            raise sgm.InputError(f"{field.name} {verb} {low[0]}: expected {least} or more")
        if choices and (unknown := [item for item in items if item not in choices]):
            raise sgm.InputError(f"{field.name} has {unknown[0]!r}: expected some{_listed(choices)}")


def _listed(choices: tuple[str, ...]) -> str:
    return f" of {', '.join(choices)}" if choices else ""


def add_options(parser: argparse.ArgumentParser, kind: type[Any], out: Path) -> None:
    """Add a flag for every field of a settings dataclass, and the flags of all runs; `out` is the default folder."""
    groups = add_fields(parser, kind)
    quick = "tiny budgets, to test that everything works; the results are meaningless"
    groups[RUN].add_argument("--quick", action="store_true", help=quick)
    groups["folder"].add_argument("--out", type=Path, default=out, help="folder to write to (default: %(default)s)")
    add_resume(groups["folder"], "resume the run in the folder (default), or remove it and start over")


def add_fields(parser: argparse.ArgumentParser, kind: type[Any]) -> dict[str, Any]:
    """Add a flag for every field of a settings dataclass; return the groups of flags by name, including "folder"."""
    groups = {name: parser.add_argument_group(name) for name in (RUN, EVALUATION, MEMORY, TRAINING, "folder")}
    types = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        groups[field.metadata["group"]].add_argument(*_flags(field), dest=field.name, **_how(field, types[field.name]))
    return groups


def add_resume(group: Any, about: str) -> None:
    """Add `--resume`, `--no-resume` and `--no-progress`."""
    group.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True, help=about)
    group.add_argument("--no-progress", action="store_true", help="show no progress bars")


def read_settings(kind: type[Any], quick: Mapping[str, Any], options: argparse.Namespace) -> Any:
    """Settings of a run: given values, then the tiny budgets of --quick if given, then defaults."""
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(kind)}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    given = {name: value for name, value in given.items() if value is not None}
    return kind(**{**(quick if options.quick else {}), **given})


class _Switch(argparse.Action):
    """True for the first of its two flags, False for the second."""

    def __call__(self, _parser: Any, namespace: Any, _values: Any, flag: str | None = None) -> None:
        setattr(namespace, self.dest, flag == self.option_strings[0])


def _flags(field: dataclasses.Field[Any]) -> list[str]:
    name = field.name.replace("_", "-")
    return [f"--{name}", field.metadata["off"] or f"--no-{name}"] if isinstance(field.default, bool) else [f"--{name}"]


def _how(field: dataclasses.Field[Any], kind: Any) -> dict[str, Any]:
    """Arguments of `add_argument` for a field: bool, number or text, optionally None, or a tuple of them."""
    default: Any = field.default
    choices = field.metadata["choices"]
    if kind is bool:
        return {"action": _Switch, "nargs": 0, "help": _help(field, _flags(field)[not default])}
    parts = [part for part in typing.get_args(kind) if part not in (type(None), Ellipsis)]
    how = {"type": parts[0] if parts else kind, "metavar": field.metadata["metavar"], "choices": choices or None}
    if typing.get_origin(kind) is not tuple:
        return {**how, "help": _help(field, default)}
    nargs = "+" if Ellipsis in typing.get_args(kind) else len(parts)
    return {**how, "nargs": nargs, "help": _help(field, " ".join(map(str, default)), _listed(choices))}


def _help(field: dataclasses.Field[Any], default: Any, listed: str = "") -> str:
    text = field.metadata["help"] + (f": some{listed}" if listed else "")
    return (text if default is None or default == "" else f"{text} (default: {default})").replace("%", "%%")
