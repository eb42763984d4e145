"""What data tells about a distance and a controller: noise, the greatest distance, and how far a controller is good."""

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

OFFSETS = (1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 64)  # rows apart at which distance and controller are measured
GOOD = 0.5  # share of its greatest skill that a controller must have over a lag
LEAST_SKILL = 0.1  # a controller that never gets so much better than a constant action tells nothing
TELLING = 0.3  # agreement of the data's own action with those up to the goal, under which a lag tells nothing
_PAIRS, _COLUMNS, _COMPARED, _FEWEST = 256, 1024, 512, 20


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The given data by row number.

    Attributes:
        observations: (n, ...) observations.
        goals: (n, ...) what each is as a goal.
        actions: (n, ...) actions, or None.
        episodes: (n,) episode of each; all 0 if not known.
        steps: (n,) step of each within its episode.
        walks: whether there are episodes.
    """

    observations: Any
    goals: Any
    actions: NDArray[Any] | None
    episodes: Ints
    steps: Ints
    walks: bool

    @classmethod
    def of(cls, data: Any) -> Rows:
        """The rows of an `sgm.Experience`, or of plain observations."""
        given = unpack(data, OF_THE_DATA)
        number = count(given.observations)
        walks = given.episode is not None
        episodes = np.asarray(given.episode, np.int64) if walks else np.zeros(number, np.int64)
        steps = np.arange(number) if given.steps is None else given.steps
        goals = getattr(data, "goals", given.observations) if walks else given.observations
        return cls(given.observations, goals, getattr(data, "actions", None), episodes, steps, walks)

    @property
    def number(self) -> int:
        """N."""
        return len(self.episodes)

    def pairs(self, offset: int, most: int, random: np.random.Generator) -> tuple[Ints, Ints]:
        """(m,) and (m,) rows of one episode, so many rows apart; at most `most` of them, ascending."""
        first = np.arange(max(0, self.number - offset)) if self.walks else np.empty(0, np.int64)
        first = first[self.episodes[first] == self.episodes[first + offset]] if len(first) else first
        if len(first) > most:
            first = np.sort(random.choice(first, most, replace=False))
        return first, first + offset

    def thinned(self, most: int, stride: int) -> Ints:
        """At most `most` rows: every so many, `stride` at most where there are episodes, then of fewer episodes.

        Where a single episode has more, every so many of its rows whatever the stride.
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
        """At most `most` places in `rows`, evenly from all over."""
        if len(rows) <= most:
            return np.arange(len(rows))
        return np.unique(np.linspace(0, len(rows) - 1, most).astype(np.int64))


@dataclasses.dataclass(frozen=True, eq=False)
class Measures:
    """What a distance says of the data.

    Attributes:
        noise: standard deviation of the distance over one step, steps; NaN if nothing tells.
        greatest: the greatest distance in a sample, steps.
        lags: (l,) steps between observations of one episode.
        says: (l,) the median distance between observations so many steps apart.
        here: (m, c) distances from observations to a sample of others.
        following: (m, c) those from what was seen one step later.
    """

    noise: float
    greatest: float
    lags: NDArray[np.float64]
    says: NDArray[np.float64]
    here: Floats
    following: Floats

    def over(self, steps: float) -> float:
        """What the distance says, in the middle, of observations so many steps apart; `steps` if nothing tells."""
        return float(np.interp(steps, self.lags, self.says)) if len(self.lags) else steps

    def row_noise(self, max_dist: float) -> float:
        """The median of ‖d(s, ·) − d(s', ·)‖∞ over what is within MaxDist of s, where s' came one step after s."""
        near = self.here < max_dist
        gaps = np.where(near, np.abs(self.here - self.following), 0).max(axis=1, initial=0)[near.any(axis=1)]
        return float(np.median(gaps)) if len(gaps) else 0.0


def measure_distance(rows: Rows, distance: Distance, seed: int) -> Measures:
    """Measure a distance on a sample of the data, which is embedded for it."""
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
    """How far a controller is good.

    Attributes:
        steps: the greatest lag over which it is.
        at_least: whether it is good over every lag that the data can tell of.
    """

    steps: float
    at_least: bool


def measure_reach(rows: Rows, controller: Any, seed: int) -> Reach | None:
    """Up to which lag a controller has half of its greatest skill; None if nothing tells.

    Skill is measured by the actions of the data: of discrete ones, how much more often the controller takes them than
    one action for all would; of continuous ones, how much greater the mean cosine is than that of one direction for
    all, since a controller may well be faster than the data was. The data changes its mind: skill is a share of what
    the mean action up to the goal has. `controller` is a function, or a report with `measure`, `lags`,
    `controller` and `constant`.
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
    """(l,) lags that the data can tell of, and (l,) skills."""
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
        skills.append(agreed / possible if agreed >= LEAST_SKILL else 0.0)  # less may be chance
    return np.array(lags), np.array(skills)


def _checked(chosen: Any, taken: NDArray[Any]) -> NDArray[Any]:
    """The actions of a controller in the shape of those taken; InputError if they are no such actions."""
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
    """(l, m, ...) actions to (m, ...): the mean of continuous ones, the most common of discrete ones."""
    if ahead.dtype.kind not in "iub":
        return np.asarray(ahead.mean(axis=0))
    times = (ahead[:, None] == ahead[None]).reshape(len(ahead), *ahead.shape[:2], -1).all(axis=3).sum(axis=1)
    return np.asarray(ahead[times.argmax(axis=0), np.arange(ahead.shape[1])])


def _agreement(taken: NDArray[Any], chosen: NDArray[Any]) -> float:
    """1: the same actions, or directions from the mean one; 0: no better than one action, or direction, for all."""
    flat, own = taken.reshape(len(taken), -1), chosen.reshape(len(taken), -1)
    if taken.dtype.kind in "iub":
        values, times = np.unique(flat, axis=0, return_counts=True)
        wrong, constant = float((flat != own).any(axis=1).mean()), 1 - times.max() / len(flat)
        return 1 - wrong / constant if len(values) > 1 else 0.0
    middle = flat.mean(axis=0)  # actions may all be positive
    directions, told = _directions(flat - middle), _directions(own - middle)
    constant = float(np.linalg.norm(directions.mean(axis=0)))  # the mean cosine of the best direction for all
    return (float((directions * told).sum(axis=1).mean()) - constant) / max(1 - constant, 1e-9)


def _directions(vectors: NDArray[Any]) -> NDArray[Any]:
    """(m, a) vectors of length 1, or 0 where they were."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9))
