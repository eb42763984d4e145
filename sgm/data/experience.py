"""Experience: observations in the order in which they were made, episode by episode, with the actions between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError

OF_EACH_OBSERVATION = ("actions", "achieved_goals", "positions", "rewards")  # arrays that may be missing


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Experience:
    """Observations and actions of an agent. Arrays are not copied: memory-mapped ones stay on disk.

    Attributes:
        observations: (n, ...) observations, each episode's in order, one episode after the other. Images are
            (n, height, width), (n, height, width, 1) or (n, height, width, 3), uint8 or floats from 0 to 1.
        episodes: (n,) int64 number of the episode of each observation; never decreasing.
        actions: (n, ...) action taken at each observation, or None. The last observation of an episode has none: its
            row means nothing. Memories and plans need no actions, controllers do.
        achieved_goals: (n, ...) what each observation achieves as a goal, in goal space; None where observations
            themselves are goals.
        steps: (n,) int64 environment step of each observation within its episode, increasing. Default: 0, 1, 2, ...
            in each episode. A part such as `data[::5]` keeps them, so that it is known how far apart observations are.
        positions: (n, p) ground truth, for figures and evaluation only, or None.
        rewards: (n,) reward for the action taken at each observation, or None. The last row of an episode means
            nothing.
        source: description of the source, for reports.
    """

    observations: NDArray[Any]
    episodes: NDArray[np.int64]
    actions: NDArray[Any] | None = None
    achieved_goals: NDArray[Any] | None = None
    _: dataclasses.KW_ONLY
    steps: NDArray[np.int64] = None  # type: ignore[assignment]  # always there once made
    positions: NDArray[Any] | None = None
    rewards: NDArray[Any] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        """Check that all arrays are of the same observations, and that episodes and steps are in order."""
        for name in ("observations", *OF_EACH_OBSERVATION):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _array(name, getattr(self, name)))
        number = len(self.observations)
        episodes = _whole_numbers("episodes", self.episodes, number)
        if (np.diff(episodes) < 0).any():
            raise InputError("episodes decrease: expected the observations of one episode after the other, in order")
        object.__setattr__(self, "episodes", episodes)
        object.__setattr__(self, "steps", self._checked_steps())
        for name in OF_EACH_OBSERVATION:
            values = getattr(self, name)
            if values is not None and len(values) != number:
                raise InputError(
                    f"{name} has {len(values)} rows: expected {number}, one for each observation; an episode's last "
                    "observation has a row too, which means nothing for actions and rewards"
                )
        for name, dimensions in (("positions", 2), ("rewards", 1)):
            values = getattr(self, name)
            if values is not None and (values.ndim != dimensions or values.dtype.kind not in "iufb"):
                shape = f"({number}, p)" if dimensions == 2 else f"({number},)"
                raise InputError(f"{name} are {values.dtype} of shape {values.shape}: expected numbers {shape}")

    def _checked_steps(self) -> NDArray[np.int64]:
        if self.steps is None:
            lengths = [rows.stop - rows.start for rows in self.rows_by_episode()]
            return np.concatenate([np.arange(length) for length in lengths] or [np.empty(0, np.int64)])
        steps = _whole_numbers("steps", self.steps, len(self))
        if ((np.diff(steps) <= 0) & (np.diff(self.episodes) == 0)).any() or (steps < 0).any():
            raise InputError(
                "steps do not increase within every episode: expected whole numbers from 0 on, each observation once "
                "and in the order in which it was made"
            )
        return steps

    def __len__(self) -> int:
        """Number of observations."""
        return len(self.observations)

    def __repr__(self) -> str:
        """Sizes and shapes."""
        acted = "no actions" if self.actions is None else f"actions {self.actions.shape[1:]}"
        more = "" if self.achieved_goals is None else f", achieved goals {self.achieved_goals.shape[1:]}"
        more += "" if self.positions is None else ", positions"
        more += "" if self.rewards is None else ", rewards"
        more += f", from {self.source}" if self.source else ""
        shape = self.observations.shape[1:]
        return f"<Experience: {len(self):,} observations {shape}, {self.number_of_episodes:,} episodes, {acted}{more}>"

    def __iter__(self) -> Iterator[Experience]:
        """Iterate over the episodes."""
        return (self[rows] for rows in self.rows_by_episode())

    def __getitem__(self, rows: slice | NDArray[Any]) -> Experience:
        """Select observations, in ascending order and each once, with their actions and other arrays.

        A slice copies nothing. An array of row numbers or a mask copies these rows only.
        """
        if isinstance(rows, slice):
            if rows.step is not None and rows.step < 0:
                raise InputError(f"got the slice {rows}: expected a step over 0, time does not run backwards")
        elif np.ndim(rows) != 1:
            raise InputError(f"got rows of shape {np.shape(rows)}: expected a slice, (m,) row numbers or an (n,) mask")
        names = ("observations", "episodes", "steps", *OF_EACH_OBSERVATION)
        try:
            chosen = {name: values[rows] for name in names if (values := getattr(self, name)) is not None}
        except IndexError as error:
            raise InputError(
                f"got rows of {np.asarray(rows).dtype} and shape {np.asarray(rows).shape}: expected a slice, (m,) row "
                f"numbers from 0 to {len(self) - 1}, or a mask of shape ({len(self)},) ({error})"
            ) from error
        return Experience(**chosen, source=self.source)

    @property
    def number_of_episodes(self) -> int:
        """Number of episodes."""
        return int(np.count_nonzero(np.diff(self.episodes)) + 1) if len(self) else 0

    @property
    def goals(self) -> NDArray[Any]:
        """(n, ...) goals: the achieved goals, or the observations themselves if there are none."""
        return self.observations if self.achieved_goals is None else self.achieved_goals

    def rows_by_episode(self) -> list[slice]:
        """Rows of the observations of each episode."""
        if not len(self):
            return []
        begins = np.flatnonzero(np.diff(self.episodes, prepend=self.episodes[:1] - 1)).tolist()
        return [slice(low, high) for low, high in zip(begins, [*begins[1:], len(self)], strict=True)]


def joined(parts: list[Experience]) -> Experience:
    """Concatenate the episodes of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    numbers = np.cumsum([0, *(int(part.episodes[-1]) + 1 for part in parts)])
    episodes = np.concatenate([part.episodes + first for part, first in zip(parts, numbers, strict=False)])
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("observations", "steps", *OF_EACH_OBSERVATION)
        if getattr(parts[0], name) is not None
    }
    return Experience(episodes=episodes, source=parts[0].source, **columns)


def _array(name: str, values: Any) -> NDArray[Any]:
    """Return values as an array over observations; an array is not copied."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{name} are not of one shape: expected an (n, ...) array of numbers; episodes of different length go in "
            f"one after the other, with sgm.data.from_episodes ({error})"
        ) from error
    if not array.ndim or array.dtype.kind not in "iufb":
        raise InputError(f"{name} are {array.dtype} of shape {array.shape}: expected an (n, ...) array of numbers")
    return array


def _whole_numbers(name: str, values: Any, number: int) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.shape != (number,) or (number and array.dtype.kind not in "iu"):
        raise InputError(
            f"{name} has shape {array.shape} and dtype {array.dtype}: expected ({number},) whole numbers, one for each "
            "observation"
        )
    return array.astype(np.int64, copy=False)
