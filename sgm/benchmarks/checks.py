"""Checks of the values in a run's JSON files, before anything is computed or drawn from them.

A run folder may come from somebody else. Any value that does not follow `docs/results.md` raises a StoreError, in whose
message control characters are escaped.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import sgm

from . import find_benchmark

PHASES = ("initial", "filtered", "cleaned")
LARGEST = 2**53  # whole numbers beyond it are not exact as floats
_HINT = "see docs/results.md"


class Kind(NamedTuple):
    """A kind of value: its description and its test."""

    text: str
    holds: Callable[[Any], bool]


class Each(NamedTuple):
    """A JSON object whose names are all of one kind and whose values are all of one shape."""

    names: Kind
    values: Shape


class Several(NamedTuple):
    """A JSON list whose items are all of one shape."""

    items: Shape


Shape: TypeAlias = "Kind | Each | Several | dict[str, Shape]"  # a dict: an object, and the shapes of some of its values


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def _is_numeral(value: Any) -> bool:
    return type(value) is str and len(value) <= 20 and value.isascii() and value.replace(".", "", 1).isdigit()


TEXT = Kind("text", lambda value: type(value) is str)
COUNT = Kind("a whole number, 0 or more", _is_count)
SOME = Kind("a whole number, 1 or more", lambda value: _is_count(value) and value > 0)
NUMBER = Kind("a number", lambda value: type(value) in (int, float) and abs(value) <= LARGEST)
NUMERAL = Kind("a number in digits", _is_numeral)
DIGITS = Kind("a whole number in digits", lambda value: _is_numeral(value) and value.isdigit())
PHASE = Kind(", ".join(PHASES), lambda value: value in PHASES)
_ANYTHING = Kind("a value", lambda _: True)
OUTCOMES = Kind("a 1 or a 0 for each task", lambda value: type(value) is str and not value.strip("01"))

LEVEL: Shape = {"episodes": COUNT, "successes": COUNT, "mean_steps": NUMBER}
_NAMES: dict[str, Shape] = {"environment": TEXT, "method": TEXT, "seed": COUNT, "phase": PHASE}
NEEDED: dict[str, Shape] = {**_NAMES, "cleanup_steps": COUNT, "episodes": SOME, "successes": COUNT}
KNOWN: dict[str, Shape] = dict.fromkeys(("mean_steps", "nodes", "edges", "seconds_per_action"), NUMBER)  # or null
OPTIONAL: dict[str, Shape] = {
    **dict.fromkeys(("largest_part", "false_edges", "cleanup_seconds"), NUMBER),
    **dict.fromkeys(("policy", "agent"), TEXT),
    "reasons": Each(TEXT, COUNT),
    "levels": Each(TEXT, LEVEL),
    "by_task": Each(TEXT, {"episodes": SOME, "successes": COUNT}),
    "outcomes": OUTCOMES,
}
QUALITY: Shape = {
    "distance": {
        "auc": NUMBER,
        "precision": Each(NUMERAL, {"precision": NUMBER, "false": NUMBER, "false_share": NUMBER}),
        "calibration": {"medians": Each(DIGITS, NUMBER)},
    },
    "controller": {"accuracy": Each(TEXT, NUMBER)},
}
CHOICE: Shape = {"name": TEXT, "settings": {}, **dict.fromkeys(("asked", "nodes", "edges", "largest_part"), NUMBER)}
RESULTS: Shape = {"settings": {}, "agent": {}, "versions": {}, "quality": {}, "thresholds": Each(TEXT, CHOICE)}


def check(value: Any, shape: Shape, what: str, name: str = "") -> None:
    """Raise StoreError unless a value has this shape; null stands for an unknown value and is always accepted.

    Args:
        value: value from a file.
        shape: expected shape.
        what: the file, or the row of it, for the error.
        name: dotted name of the value in the file, for the error.
    """
    if value is None:
        return
    begin = f"{name}." if name else ""
    if isinstance(shape, Kind):
        _require(shape.holds(value), value, shape.text, what, name)
    elif isinstance(shape, Several):
        _require(isinstance(value, list), value, "a list", what, name)
        for number, item in enumerate(value):
            check(item, shape.items, what, f"{begin}{number}")
    else:
        _require(isinstance(value, dict), value, "an object", what, name)
        if isinstance(shape, Each):
            for key in value:
                _require(shape.names.holds(key), key, shape.names.text, what, f"{begin}name")
            shape = dict.fromkeys(value, shape.values)
        for key, expected in shape.items():
            check(value.get(key), expected, what, begin + reprlib.repr(key).strip("'"))


def check_row(
    row: Any, what: str = "a row", needed: Sequence[str] = (), shapes: Mapping[str, Shape] | None = None
) -> None:
    """Raise StoreError unless a row has every field that tables use, each of the right kind.

    Args:
        row: a row of `results.json` or `state.json`.
        what: description of the row, for the error.
        needed: fields that must not be missing or null, beyond those of all benchmarks.
        shapes: shapes of fields that only rows of one benchmark have; None: of the benchmark of its environment.
    """
    _require(isinstance(row, dict), row, "an object", what)
    every = (*NEEDED, *KNOWN, *needed)
    if missing := [name for name in every if name not in row]:
        raise sgm.StoreError(f"{what} has no {', '.join(missing)}; accepted: rows as in docs/results.md")
    known = {**NEEDED, **KNOWN, **OPTIONAL, **(_declared(row["environment"]) if shapes is None else shapes)}
    check(row, known, what)
    for name in (*NEEDED, *needed):
        shape = known.get(name, _ANYTHING)
        _require(row[name] is not None, None, shape.text if isinstance(shape, Kind) else "an object", what, name)
    if row["successes"] > row["episodes"]:
        raise sgm.StoreError(
            f"{what} has {row['successes']} successes in {row['episodes']} episodes; "
            f"accepted: no more successes than episodes, {_HINT}"
        )


def _declared(environment: Any) -> Mapping[str, Shape]:
    """Fields declared by the benchmark of an environment; none if no benchmark has this environment."""
    benchmark = find_benchmark(environment)
    return {**dict.fromkeys(benchmark.axes, COUNT), **benchmark.fields} if benchmark else {}


def check_facts(row: Mapping[str, Any], facts: Mapping[str, Any], what: str) -> None:
    """Raise StoreError unless a row has these values."""
    for name, value in facts.items():
        _require(row.get(name) == value, row.get(name), f"{value!r}, as in the name of the folder", what, name)


def _require(holds: bool, value: Any, text: str, what: str, name: str = "") -> None:
    if not holds:
        shown = f"has {name} {reprlib.repr(value)}" if name else f"is {reprlib.repr(value)}"
        raise sgm.StoreError(f"{what} {shown}; accepted: {text}, {_HINT}")
