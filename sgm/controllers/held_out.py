"""Evaluation of a controller: its actions against those taken in held-out episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.data.experience import Experience
from sgm.errors import InputError

from .actions import taken_actions

Ints = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class ControllerQuality:
    """Agreement of a controller's actions with those that led to the goal, by the number of steps to the goal.

    Experience reaches a goal in many ways, so no controller agrees in every step. A controller that is no better than
    the constant action at a lag has learned nothing for goals that far away: plan with shorter edges.

    Attributes:
        lags: (l,) steps from observation to goal; those that occur in the experience.
        measure: "accuracy", the share of discrete actions that are equal, or "error", the mean absolute difference of
            continuous ones, in their units.
        controller: (l,) accuracy or error of the controller; of discrete actions, the likeliest ones count.
        constant: (l,) accuracy or error of always taking the most common action, or the mean action.
        samples: (l,) number of pairs of observation and goal that were compared.
    """

    lags: Ints
    measure: str
    controller: NDArray[np.float64]
    constant: NDArray[np.float64]
    samples: Ints

    @property
    def useful(self) -> NDArray[np.bool_]:
        """(l,) whether the controller is better than the constant action."""
        better = self.controller > self.constant if self.measure == "accuracy" else self.controller < self.constant
        return np.asarray(better)

    def __str__(self) -> str:
        """Format the quality as a table."""
        rows = zip(self.lags, self.controller, self.constant, self.samples, strict=True)
        lines = [f"{lag:>10} {own:>12.3f} {other:>16.3f} {count:>9,}" for lag, own, other, count in rows]
        return "\n".join([f"{'steps':>10} {self.measure:>12} {'constant action':>16} {'samples':>9}", *lines])


def quality(
    controller: Any,
    data: Experience,
    lags: Sequence[int] = (1, 2, 4, 8, 16, 32),
    *,
    samples: int = 1_000,
    seed: int = 0,
) -> ControllerQuality:
    """Compare a controller's actions with those of held-out experience.

    Args:
        controller: any controller; if it has `likeliest`, that is called in place of sampling actions.
        data: episodes that it was not trained on, with actions.
        lags: steps to the goal. Lags that occur in no episode are left out.
        samples: largest number of observations to compare for each lag.
        seed: seed of the random observations.
    """
    taken = taken_actions(data)
    random = np.random.default_rng(seed)
    act = getattr(controller, "likeliest", controller)
    discrete = taken.dtype.kind == "i"
    kept: dict[int, tuple[float, float, int]] = {}
    for lag in lags:
        first, second = _apart(data, int(lag))
        if not len(first):
            continue
        chosen = random.permutation(len(first))[:samples]
        first, second = first[chosen], second[chosen]
        extra = {"previous": data.observations[_before(data, first)]} if _looks_back(controller) else {}
        told = np.asarray(act(data.observations[first], data.goals[second], **extra)).reshape(taken[first].shape)
        compare = _accuracy if discrete else _error
        kept[int(lag)] = compare(told, taken[first]), compare(_constant(taken[first]), taken[first]), len(first)
    if not kept:
        raise InputError(
            f"no two observations of an episode are {', '.join(map(str, lags))} steps apart: give other lags"
        )
    own, constant, counts = (np.array(column) for column in zip(*kept.values(), strict=True))
    return ControllerQuality(np.array([*kept]), "accuracy" if discrete else "error", own, constant, counts)


def _apart(data: Experience, lag: int) -> tuple[Ints, Ints]:
    """Rows of all pairs of observations of one episode that are exactly `lag` steps apart: (m,) and (m,)."""
    if lag < 1:
        raise InputError(f"a lag is {lag}: expected steps, 1 or more")
    stride = int(data.steps.max(initial=0)) + lag + 1
    clock = (np.cumsum(np.diff(data.episodes, prepend=data.episodes[:1]) != 0)) * stride + data.steps
    later = np.searchsorted(clock, clock + lag)
    exact = np.append(clock, -1)[later] == clock + lag
    return np.flatnonzero(exact), later[exact]


def _looks_back(controller: Any) -> bool:
    return bool(getattr(controller, "uses_previous", False))


def _before(data: Experience, rows: Ints) -> Ints:
    """(m,) rows one step before, or the same rows where there is none."""
    earlier = np.maximum(rows - 1, 0)
    follows = (data.episodes[earlier] == data.episodes[rows]) & (data.steps[earlier] + 1 == data.steps[rows])
    return np.where(follows, earlier, rows)


def _constant(taken: NDArray[Any]) -> NDArray[Any]:
    """Repeat the mean of (n, ...) continuous actions, or the most common discrete action, n times."""
    if taken.dtype.kind == "f":
        best = taken.mean(axis=0)
    else:
        kinds, counts = np.unique(taken, axis=0, return_counts=True)
        best = kinds[counts.argmax()]
    return np.broadcast_to(best, taken.shape)


def _accuracy(told: NDArray[Any], taken: NDArray[Any]) -> float:
    return float((told == taken).reshape(len(taken), -1).all(axis=1).mean())


def _error(told: NDArray[Any], taken: NDArray[Any]) -> float:
    return float(np.abs(told - taken).mean())
