"""Reset options that differ between episodes, and goals that environments report in `info` at reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError

Bools = NDArray[np.bool_]
Options = Mapping[str, Any] | Sequence[Mapping[str, Any]]
TASK = "task_id"  # the option that names a task
GOAL = "goal"  # the entry of info in which OGBench and others report the goal


class OptionCycle:
    """The reset options of episodes 0, 1, 2, …: one mapping for all, or several that are used in turn.

    Attributes:
        options: reset options of each task.
        tasks: name of each task: its option "task_id", otherwise its index among the options.
    """

    def __init__(self, options: Options | None) -> None:
        """Use one mapping for all episodes, or those of a list in turn."""
        given: Any = [{}] if options is None else [options] if isinstance(options, Mapping) else options
        listed = isinstance(given, Sequence) and not isinstance(given, str) and len(given)
        if not listed or not all(isinstance(each, Mapping) for each in given):
            raise InputError(
                f"options is {options!r}: expected reset options, a dict, or a list of them, which episodes use in turn"
            )
        self.options = [dict(each) for each in given]
        self.tasks = np.array([_name(each, place) for place, each in enumerate(self.options)])

    def __len__(self) -> int:
        """Number of different options."""
        return len(self.options)

    def of(self, episodes: NDArray[np.int64]) -> Any:
        """Return the options of (n,) episodes, one for each sub-environment; the first for a negative number."""
        if len(self.options) == 1:
            return self.options[0]
        return [self.options[max(0, number) % len(self.options)] for number in episodes.tolist()]

    def names(self, episodes: int) -> NDArray[Any]:
        """(episodes,) names of the tasks of the first episodes."""
        return self.tasks[np.arange(episodes) % len(self.tasks)]


def _name(options: Mapping[str, Any], place: int) -> Any:
    task = options.get(TASK, place)
    return task if isinstance(task, (int, str, np.integer)) else place


def in_groups(options: Any, mask: Bools | None, number: int) -> list[tuple[dict[str, Any], Bools | None]]:
    """Group the sub-environments of a reset by their options; return (options, mask) of each group."""
    if options is None or isinstance(options, Mapping):
        return [(dict(options or {}), mask)]
    if len(options) != number:
        raise InputError(f"got options for {len(options)} sub-environments: expected {number}, or one dict for all")
    begun = np.ones(number, np.bool_) if mask is None else np.asarray(mask, np.bool_)
    rows: dict[int, list[int]] = {}
    for row in np.flatnonzero(begun).tolist():
        rows.setdefault(id(options[row]), []).append(row)
    groups: list[tuple[dict[str, Any], Bools | None]] = []
    for members in rows.values():
        groups.append((dict(options[members[0]]), np.isin(np.arange(number), members)))
    if mask is None:  # the first reset must reset all; the other groups are then reset again with their own options
        groups[0] = (groups[0][0], None)
    return groups


class GoalsFromInfo:
    """The goals that `info` reported at reset, one for each sub-environment.

    Attributes:
        values: (n, ...) goals; None until one is reported.
    """

    def __init__(self, number: int, name: str) -> None:
        """Read the entry `name` of the info of `number` sub-environments."""
        self.number, self.name = number, name
        self.values: NDArray[Any] | None = None

    def note(self, info: Mapping[str, Any], mask: Bools | None = None) -> None:
        """Store goals from info; those of the mask (None: all) unless info has its own mask."""
        told = info.get(self.name)
        # An entry of another type is ignored: the environment may use the name for something else.
        if not isinstance(told, np.ndarray) or told.dtype.kind not in "fiub" or len(told) != self.number:
            return
        whose = info.get(f"_{self.name}", np.ones(self.number, np.bool_) if mask is None else mask)
        fits = self.values is not None and self.values.shape == told.shape
        self.values = np.array(self.values if fits else told)  # a copy, since callers may hold the previous goals
        self.values[np.asarray(whose, np.bool_)] = told[np.asarray(whose, np.bool_)]
