"""Experience: observations in the order in which they were made, episode by episode, with the actions between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError


@dataclasses.dataclass(frozen=True, eq=False)
class Experience:
    """What an agent has seen and done.

    Attributes:
        observations: (n, ...) observations, each episode's in order, one episode after the other.
        episodes: (n,) int64 number of the episode of each observation; never decreasing.
        actions: (n, ...) action taken at each observation, or None. The last observation of an episode has none: its
            row means nothing.
        achieved_goals: (n, ...) what each observation achieves as a goal, in goal space; None where observations
            themselves are goals.
    """

    observations: NDArray[Any]
    episodes: NDArray[np.int64]
    actions: NDArray[Any] | None = None
    achieved_goals: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        """Check that all arrays are of the same observations, and that episodes are in order."""
        for name in ("observations", "actions", "achieved_goals"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.asarray(getattr(self, name)))
        episodes = np.asarray(self.episodes)
        number = len(self.observations)
        if episodes.shape != (number,) or (number and episodes.dtype.kind not in "iu"):
            raise InputError(
                f"episodes has shape {episodes.shape} and dtype {episodes.dtype}: expected ({number},) whole numbers, "
                "one for each observation"
            )
        episodes = episodes.astype(np.int64)
        if (np.diff(episodes) < 0).any():
            raise InputError("episodes decrease: expected the observations of one episode after the other, in order")
        object.__setattr__(self, "episodes", episodes)
        for name in ("actions", "achieved_goals"):
            values = getattr(self, name)
            if values is not None and len(values) != number:
                raise InputError(f"{name} has {len(values)} rows: expected {number}, one for each observation")

    def __len__(self) -> int:
        """Number of observations."""
        return len(self.observations)

    def __repr__(self) -> str:
        """Sizes and shapes."""
        acted = "no actions" if self.actions is None else f"actions {self.actions.shape[1:]}"
        goals = "" if self.achieved_goals is None else f", achieved goals {self.achieved_goals.shape[1:]}"
        shape = self.observations.shape[1:]
        return f"<Experience: {len(self):,} observations {shape}, {self.number_of_episodes:,} episodes, {acted}{goals}>"

    def __iter__(self) -> Iterator[Experience]:
        """The episodes, one by one."""
        return (self[rows] for rows in self.rows_by_episode())

    def __getitem__(self, rows: slice | NDArray[Any]) -> Experience:
        """Some of the observations, in ascending order, with what belongs to them."""
        if isinstance(rows, slice) and rows.step is not None and rows.step < 0:
            raise InputError(f"got the slice {rows}: expected a step over 0, time does not run backwards")

        def part(values: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if values is None else values[rows]

        chosen = self.observations[rows], self.episodes[rows]
        return Experience(*chosen, part(self.actions), part(self.achieved_goals))

    @property
    def number_of_episodes(self) -> int:
        """How many episodes there are."""
        return len(np.unique(self.episodes))

    @property
    def goals(self) -> NDArray[Any]:
        """(n, ...) what each observation is as a goal: the achieved goals, or the observations themselves."""
        return self.observations if self.achieved_goals is None else self.achieved_goals

    def rows_by_episode(self) -> list[slice]:
        """Where each episode's observations are."""
        if not len(self):
            return []
        begins = np.flatnonzero(np.diff(self.episodes, prepend=self.episodes[:1] - 1)).tolist()
        return [slice(low, high) for low, high in zip(begins, [*begins[1:], len(self)], strict=True)]
