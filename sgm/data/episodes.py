"""Experience from a list of episodes, each with arrays of its own length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.errors import InputError

from .experience import Experience

Episodes = Sequence[ArrayLike]


def from_episodes(
    observations: Episodes,
    actions: Episodes | None = None,
    achieved_goals: Episodes | None = None,
    *,
    positions: Episodes | None = None,
    rewards: Episodes | None = None,
    source: str = "",
) -> Experience:
    """Make experience from one array for each episode; the arrays are concatenated into a copy.

    Args:
        observations: one (length, ...) array for each episode; lengths may differ and are at least 1.
        actions: one (length, ...) array for each episode, or one row less without an action at the last observation;
            None if unknown. Memories and plans need no actions, controllers do.
        achieved_goals: one (length, ...) array for each episode; None if observations themselves are goals.
        positions: one (length, p) array of ground truth for each episode, or None.
        rewards: one (length,) array for each episode, or one value less; or None.
        source: description of the source, for reports.
    """
    if isinstance(observations, np.ndarray) and 0 < observations.ndim <= 2 and observations.dtype != object:
        raise InputError(
            f"observations is one array of shape {observations.shape}: expected (length, ...) arrays, one an episode; "
            "for a single episode give [observations], for episodes of single numbers observations[..., None]"
        )
    seen = [_rows(observations, "observations", number) for number in range(len(observations))]
    lengths = [len(episode) for episode in seen]
    if not seen:
        raise InputError("observations has no episodes: expected a sequence of (length, ...) arrays")
    for number, length in enumerate(lengths):
        if not length:
            raise InputError(f"observations[{number}] is empty: expected 1 observation or more; leave the episode out")
    given = {"actions": actions, "achieved_goals": achieved_goals, "positions": positions, "rewards": rewards}
    arrays = {
        name: _joined(_filled(values, name, lengths), name) for name, values in given.items() if values is not None
    }
    episodes = np.repeat(np.arange(len(lengths)), lengths)
    return Experience(_joined(seen, "observations"), episodes, **arrays, source=source)


def _rows(values: Episodes, name: str, number: int) -> NDArray[Any]:
    try:
        rows = np.asarray(values[number])
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}[{number}] is not of one shape: expected a (length, ...) array ({error})") from error
    if not rows.ndim or rows.dtype.kind not in "iufb":
        raise InputError(f"{name}[{number}] is {rows.dtype} of shape {rows.shape}: expected (length, ...) numbers")
    return rows


def _filled(values: Episodes, name: str, lengths: list[int]) -> list[NDArray[Any]]:
    """Return one row for each observation; a missing row at the last observation of an episode is filled in."""
    if len(values) != len(lengths):
        raise InputError(f"{name} has {len(values)} episodes, observations has {len(lengths)}: expected as many")
    last_may_miss = name in ("actions", "rewards")
    filled = []
    for number, length in enumerate(lengths):
        rows = _rows(values, name, number)
        if last_may_miss and len(rows) == length - 1:
            end = rows[-1:] if len(rows) else np.zeros((1, *rows.shape[1:]), rows.dtype)
            rows = np.concatenate([rows, end])
        if len(rows) != length:
            accepted = f"{length} or {length - 1}" if last_may_miss else f"{length}"
            raise InputError(f"{name}[{number}] has {len(rows)} rows: its episode has {length} observations, expected "
                             f"{accepted} rows")  # fmt: skip
        filled.append(rows)
    return filled


def _joined(episodes: list[NDArray[Any]], name: str) -> NDArray[Any]:
    shape = episodes[0].shape[1:]
    for number, rows in enumerate(episodes):
        if rows.shape[1:] != shape:
            raise InputError(
                f"{name}[{number}] has rows of shape {rows.shape[1:]}, {name}[0] of {shape}: expected one shape; "
                "resize images first, as sgm.data.from_images does"
            )
    return np.concatenate(episodes)
