"""Measure a distance and a controller on data: noise, the largest distance, and the reach of the controller."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError

from .arrays import Ints
from .distance import Distance, Floats, between, count, embed, paired
from .given import OF_THE_DATA, unpack

OFFSETS = (1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 64)  # numbers of rows between the observations of a measured pair
GOOD = 0.5  # share of its largest skill above which a controller counts as good at a lag
LEAST_SKILL = 0.1  # if the largest skill is below this, the reach of the controller is unknown
TELLING = 0.3  # least agreement of the first action with the actions up to the goal; other lags are not used
_PAIRS, _COLUMNS, _COMPARED, _FEWEST = 256, 1024, 512, 20


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The given data by row number.

    Attributes:
        observations: (n, ...) observations.
        goals: (n, ...) the observations as goals.
        actions: (n, ...) actions, or None.
        episodes: (n,) episode of each observation; all 0 if unknown.
        steps: (n,) step of each observation within its episode.
        walks: whether the episodes are known.
    """

    observations: Any
    goals: Any
    actions: NDArray[Any] | None
    episodes: Ints
    steps: Ints
    walks: bool

    @classmethod
    def of(cls, data: Any) -> Rows:
        """Make the rows of an `sgm.Experience` or of plain observations."""
        given = unpack(data, OF_THE_DATA)
        number = count(given.observations)
        walks = given.episode is not None
        episodes = np.asarray(given.episode, np.int64) if walks else np.zeros(number, np.int64)
        steps = np.arange(number) if given.steps is None else given.steps
        goals = getattr(data, "goals", given.observations) if walks else given.observations
        return cls(given.observations, goals, getattr(data, "actions", None), episodes, steps, walks)

    @property
    def number(self) -> int:
        """Number of observations."""
        return len(self.episodes)

    def pairs(self, offset: int, most: int, random: np.random.Generator) -> tuple[Ints, Ints]:
        """Draw pairs of rows of one episode that are `offset` rows apart: (m,) and (m,) rows, m ≤ `most`, ascending."""
        first = np.arange(max(0, self.number - offset)) if self.walks else np.empty(0, np.int64)
        first = first[self.episodes[first] == self.episodes[first + offset]] if len(first) else first
        if len(first) > most:
            first = np.sort(random.choice(first, most, replace=False))
        return first, first + offset

    def thinned(self, most: int, stride: int) -> Ints:
        """Select at most `most` rows, evenly spaced.

        With episodes the spacing is at most `stride`, and if there are still too many rows, whole episodes are left
        out. Rows that are still too many, as of a single long episode, are spaced more widely.
        """
        everything = np.arange(self.number)
        if self.number <= most:
            return everything
        if not self.walks:
            return everything[:: -(-self.number // most)]
        kept = everything[:: min(self.number // most, stride)]
        names = np.unique(self.episodes[kept])
        share = min(1.0, most / len(kept))
        chosen = names[np.unique(np.linspace(0, len(names) - 1, max(1, int(share * len(names)))).astype(np.int64))]
        kept = kept[np.isin(self.episodes[kept], chosen)]
        return kept[self.among(kept, most)]

    def among(self, rows: Ints, most: int) -> Ints:
        """Return at most `most` evenly spaced positions in `rows`."""
        if len(rows) <= most:
            return np.arange(len(rows))
        return np.unique(np.linspace(0, len(rows) - 1, most).astype(np.int64))


@dataclasses.dataclass(frozen=True, eq=False)
class Measures:
    """Measurements of a distance on data.

    Attributes:
        noise: standard deviation of the distance over one step, steps; NaN if unknown.
        greatest: the largest distance in a sample, steps.
        lags: (l,) numbers of steps between two observations of one episode.
        says: (l,) median distance of pairs at each lag, steps.
        here: (m, c) distances from observations to a sample of others.
        following: (m, c) distances from the next observations to the same sample.
    """

    noise: float
    greatest: float
    lags: NDArray[np.float64]
    says: NDArray[np.float64]
    here: Floats
    following: Floats

    def over(self, steps: float) -> float:
        """Median distance between observations `steps` steps apart, interpolated; `steps` itself if unknown."""
        return float(np.interp(steps, self.lags, self.says)) if len(self.lags) else steps

    def row_noise(self, max_dist: float) -> float:
        """Median of ‖d(s, ·) − d(s', ·)‖∞ over observations within MaxDist of s, where s' is one step after s."""
        near = self.here < max_dist
        gaps = np.where(near, np.abs(self.here - self.following), 0).max(axis=1, initial=0)[near.any(axis=1)]
        return float(np.median(gaps)) if len(gaps) else 0.0


def measure_distance(rows: Rows, distance: Distance, seed: int) -> Measures:
    """Measure a distance on a sample of the data."""
    random = np.random.default_rng(seed)
    columns = np.sort(random.choice(rows.number, min(rows.number, _COLUMNS), replace=False))
    others = embed(distance, np.asarray(rows.observations[columns]), None)
    lags, says = [], []
    noise = getattr(distance, "noise", None)
    here = following = np.empty((0, len(columns)), np.float32)
    for offset in OFFSETS:
        first, second = rows.pairs(offset, _PAIRS, random)
        if not len(first):
            break
        ends = [embed(distance, np.asarray(rows.observations[part]), others.shape[1]) for part in (first, second)]
        steps = paired(distance, *ends)
        lags.append(float(np.median(rows.steps[second] - rows.steps[first])))
        says.append(float(np.median(steps)))
        if offset == 1:
            here, following = (between(distance, end, others) for end in ends)
            if not isinstance(noise, (int, float, np.number)) or not math.isfinite(noise):
                noise = float(np.std(steps))
    table = here if len(here) else between(distance, others[:_PAIRS], others)
    known = isinstance(noise, (int, float, np.number)) and math.isfinite(noise)
    found = float(noise) if known else math.nan  # type: ignore[arg-type]
    return Measures(found, float(table.max()), np.array(lags), np.array(says), here, following)


class Reach(NamedTuple):
    """Reach of a controller.

    Attributes:
        steps: the longest lag at which it is good.
        at_least: whether it is good at every lag that could be measured.
    """

    steps: float
    at_least: bool


def measure_reach(rows: Rows, controller: Any, seed: int) -> Reach | None:
    """Find the longest lag at which a controller has half of its largest skill; None if unknown.

    Skill compares the actions of the controller with those of the data. For discrete actions it is the accuracy above
    that of the best constant action; for continuous actions the mean cosine above that of the best constant direction,
    because the controller may be faster than the data. Since the actions of the data may change on the way to a goal,
    skill is divided by that of the mean action up to the goal. `controller` is a function, or a report with `measure`,
    `lags`, `controller` and `constant`.
    """
    if hasattr(controller, "lags") and hasattr(controller, "constant"):
        lags = np.asarray(controller.lags, np.float64)
        own, other = np.asarray(controller.controller), np.asarray(controller.constant)
        best = 1.0 if getattr(controller, "measure", "error") == "accuracy" else 0.0
        skills = 1 - (best - own) / np.where(other == best, np.inf, best - other)
        lags, skills = lags[np.isfinite(skills)], skills[np.isfinite(skills)]
    else:
        lags, skills = _compare(rows, controller, seed)
    if not len(skills) or skills.max() < LEAST_SKILL:
        return None
    good = skills >= GOOD * skills.max()
    peak = int(skills.argmax())
    last = peak + int(np.argmin(np.append(good[peak:], False))) - 1
    return Reach(float(lags[last]), bool(good[peak:].all()))


def _compare(rows: Rows, controller: Any, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(l,) lags that the data allows to measure, and (l,) skills."""
    lags, skills = [], []
    random, act = np.random.default_rng(seed), getattr(controller, "likeliest", controller)
    if rows.actions is None or getattr(controller, "uses_previous", False):
        return np.empty(0), np.empty(0)
    for offset in OFFSETS:
        first, second = rows.pairs(offset, _COMPARED, random)
        if len(first) < _FEWEST:
            break
        taken = np.asarray(rows.actions[first])
        ahead = np.stack([np.asarray(rows.actions[first + later]) for later in range(offset)])
        possible = _agreement(taken, _summary(ahead))
        if not possible >= TELLING:
            break
        chosen = _checked(act(np.asarray(rows.observations[first]), np.asarray(rows.goals[second])), taken)
        agreed = _agreement(taken, chosen)
        lags.append(float(np.median(rows.steps[second] - rows.steps[first])))
        skills.append(agreed / possible if agreed >= LEAST_SKILL else 0.0)  # a lower value may be chance
    return np.array(lags), np.array(skills)


def _checked(chosen: Any, taken: NDArray[Any]) -> NDArray[Any]:
    """Return the actions of a controller in the shape of those of the data; InputError if they are invalid."""
    actions = np.asarray(chosen)
    if actions.dtype.kind not in "iufb" or actions.size != taken.size or len(actions) != len(taken):
        raise InputError(
            f"the controller returned {actions.dtype} of shape {actions.shape} for {len(taken)} observations and "
            f"targets: expected {taken.shape}, actions as the data has them"
        )
    if not np.isfinite(actions).all():
        raise InputError("the controller returned actions that are not finite: expected finite numbers; train it again")
    return actions.reshape(taken.shape)


def _summary(ahead: NDArray[Any]) -> NDArray[Any]:
    """Summarise (l, m, ...) actions as (m, ...): the mean of continuous ones, the most common of discrete ones."""
    if ahead.dtype.kind not in "iub":
        return np.asarray(ahead.mean(axis=0))
    times = (ahead[:, None] == ahead[None]).reshape(len(ahead), *ahead.shape[:2], -1).all(axis=3).sum(axis=1)
    return np.asarray(ahead[times.argmax(axis=0), np.arange(ahead.shape[1])])


def _agreement(taken: NDArray[Any], chosen: NDArray[Any]) -> float:
    """Agreement of two sets of actions: 1 if equal (continuous: in direction), 0 if no better than a constant one."""
    flat, own = taken.reshape(len(taken), -1), chosen.reshape(len(taken), -1)
    if taken.dtype.kind in "iub":
        values, times = np.unique(flat, axis=0, return_counts=True)
        wrong, constant = float((flat != own).any(axis=1).mean()), 1 - times.max() / len(flat)
        return 1 - wrong / constant if len(values) > 1 else 0.0
    middle = flat.mean(axis=0)  # directions are relative to the mean, because actions may all be positive
    directions, told = _directions(flat - middle), _directions(own - middle)
    constant = float(np.linalg.norm(directions.mean(axis=0)))  # mean cosine of the best constant direction
    return (float((directions * told).sum(axis=1).mean()) - constant) / max(1 - constant, 1e-9)


def _directions(vectors: NDArray[Any]) -> NDArray[Any]:
    """Normalise (m, a) vectors to length 1; zero vectors stay zero."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9))
