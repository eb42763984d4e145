"""Training pairs: observations of an episode a few steps apart, drawn from experience, which is checked first."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sgm.data.experience import Experience
from sgm.errors import InputError

from .encoders import as_images, check_pictures, check_vectors, data_digest

Ints = NDArray[np.int64]
Config = TypeVar("Config")
VECTORS = "mlp"  # the encoder of vectors
LEAST_EPISODES = 10  # with fewer, none is held out


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Experience as networks take it: float32 vectors or uint8 images, and how far each episode still goes.

    Attributes:
        observations: (n, d) float32 or uint8, or (n, height, width, 3) uint8.
        goals: the same of what the observations achieve; the same array where observations are goals.
        steps: (n,) step of each observation within its episode; thinned experience has gaps.
        left: (n,) steps from each observation to the last one of its episode.
        size: (width, height) of images; of vectors, the numbers of an observation and of a goal, which are 0 where
            observations and goals have the same shape.
    """

    observations: NDArray[Any]
    goals: NDArray[Any]
    steps: Ints
    left: Ints
    size: tuple[int, int]

    @property
    def vectors(self) -> bool:
        """Whether observations are vectors, not images."""
        return self.observations.ndim == 2

    def pairs(self, random: np.random.Generator, number: int, reach: int) -> tuple[Ints, Ints]:
        """Rows of two observations of one episode, 1 to `reach` steps apart: (number,) and (number,).

        In thinned experience the second row is the first one from the drawn step on that `reach` allows.
        """
        clock = self._clock
        if reach not in self._near:
            self._near[reach] = np.flatnonzero(self.gaps <= reach)
        near = self._near[reach]
        if not len(near):
            raise InputError(
                f"no two observations of an episode are within {reach} steps of each other: give a larger reach, or "
                "experience that is thinned less"
            )
        first = random.choice(near, number)
        ahead = np.minimum(random.integers(1, reach + 1, number), self.left[first])
        second = np.searchsorted(clock, clock[first] + ahead)
        return first, second - (clock[second] > clock[first] + reach)

    def far_pairs(self, random: np.random.Generator, number: int, apart: int) -> tuple[Ints, Ints]:
        """Rows of two observations of different episodes, or at least `apart` steps apart: (number,) and (number,)."""
        ends = self._clock + self.left  # the same for the rows of one episode only
        if ends[0] == ends[-1] and self.left[0] < apart:
            raise InputError(
                f"the only episode is {self.left[0]} steps long: expected at least {apart} steps, or further episodes, "
                "to know what is far apart"
            )
        if ends[0] == ends[-1]:
            early = random.choice(np.flatnonzero(self.left >= apart), number)
            late = random.integers(np.searchsorted(self.steps, self.steps[early] + apart), len(ends))
            swap = random.random(number) < 0.5
            return np.where(swap, late, early), np.where(swap, early, late)
        first, second = np.empty(0, np.int64), np.empty(0, np.int64)
        while len(first) < number:  # with two episodes or more, few draws are in vain
            a, b = random.integers(len(ends), size=(2, 2 * number))
            far = (ends[a] != ends[b]) | (np.abs(self.steps[a] - self.steps[b]) >= apart)
            first, second = np.append(first, a[far]), np.append(second, b[far])
        return first[:number], second[:number]

    def apart(self, lag: int) -> tuple[Ints, Ints]:
        """All rows of two observations of one episode that are exactly `lag` steps apart: (m,) and (m,)."""
        clock = self._clock
        first = np.flatnonzero(self.left >= lag)
        second = np.searchsorted(clock, clock[first] + lag)
        exact = clock[second] == clock[first] + lag
        return first[exact], second[exact]

    @functools.cached_property
    def _clock(self) -> Ints:
        """(n,) steps that go on from episode to episode, so that they increase: one search finds a later row."""
        lasts = np.concatenate([[0], (self.steps + self.left)[self.left == 0] + 1])
        begins = np.cumsum(lasts)[np.concatenate([[0], np.cumsum(self.left[:-1] == 0)])]
        return np.asarray(begins + self.steps, np.int64)

    @functools.cached_property
    def gaps(self) -> NDArray[np.float32]:
        """(n,) steps from each observation to the next one of its episode; infinity from the last."""
        gaps = np.append(np.diff(self._clock), 1).astype(np.float32)
        gaps[self.left == 0] = np.inf
        return gaps

    @functools.cached_property
    def _near(self) -> dict[int, Ints]:
        """By reach: the rows that have a later one within it."""
        return {}

    def sample(self, seed: int, number: int = 1_000) -> Ints:
        """Draw (number,) rows to estimate a mean on, or return all rows if there are fewer."""
        total = len(self.left)
        return np.sort(np.random.default_rng(seed).permutation(total)[:number])

    def digest(self, *more: NDArray[Any]) -> str:
        """Fingerprint of these rows and of further arrays over them; checkpoints store it."""
        goals = () if self.goals is self.observations else (self.goals,)
        return data_digest(self.observations, *goals, self.steps, self.left, *more)

    def part(self, rows: slice) -> Rows:
        """Select rows that are whole episodes."""
        return Rows(self.observations[rows], self.goals[rows], self.steps[rows], self.left[rows], self.size)


def as_rows(data: Experience, encoder: str | None = None) -> Rows:
    """Check experience and bring it into the form that networks take; for encoder "mlp", images become vectors."""
    if not isinstance(data, Experience):
        raise InputError(
            f"data is {type(data).__name__}: expected sgm.Experience, which sgm.collect makes; from your own arrays, "
            "Experience(observations, episodes, actions)"
        )
    parts = data.rows_by_episode()
    lasts = np.array([part.stop - 1 for part in parts], np.int64)
    left = np.repeat(data.steps[lasts], [part.stop - part.start for part in parts]) - data.steps
    if not left.any():
        raise InputError(f"{data!r} has no two observations in a row: expected episodes of 2 observations or more")
    flat = encoder == VECTORS
    observations, size = _prepare(data.observations, "observations", flat)
    if data.achieved_goals is None:
        return Rows(observations, observations, data.steps, left, size)
    goals, goal_size = _prepare(data.achieved_goals, "achieved_goals", flat)
    if observations.ndim != goals.ndim or (goals.ndim == 4 and size != goal_size):
        raise InputError(
            f"observations have shape {observations.shape[1:]} and achieved goals {goals.shape[1:]}: expected images "
            "of one size, or vectors; leave achieved_goals out where observations can be goals"
        )
    if goals.ndim == 2 and goal_size != size:
        size = size[0], goal_size[0]
    return Rows(observations, goals, data.steps, left, size)


def _prepare(values: NDArray[Any], name: str, flat: bool) -> tuple[NDArray[Any], tuple[int, int]]:
    if values.ndim == 2 or flat:
        numbers = int(np.prod(values.shape[1:]))
        return check_vectors(values, numbers, name), (numbers, 0)
    images = as_images(values)
    if images.ndim != 4:
        raise InputError(
            f"{name} have shape {values.shape}: expected vectors (n, d) or images (n, height, width[, 1 or 3]); give "
            + (f"{name}[:, None]" if values.ndim == 1 else f"{name}.reshape(len({name}), -1), which makes vectors")
        )
    size = images.shape[2], images.shape[1]
    return check_pictures(images, size, name), size


def hold_out(data: Experience, rows: Rows) -> tuple[Rows, Rows]:
    """Split rows into those to train on and those to calibrate on: the last 5 % of the episodes, at least two.

    With fewer than 10 episodes, both are all rows.
    """
    episodes = data.rows_by_episode()
    if len(episodes) < LEAST_EPISODES:
        return rows, rows
    begin = episodes[-max(2, len(episodes) // 20)].start
    kept, held_out = rows.part(slice(begin)), rows.part(slice(begin, None))
    return (kept, held_out) if kept.left.any() and held_out.left.any() else (rows, rows)


def settle(
    rows: Rows,
    config: Config | None,
    defaults: tuple[Config, Config],
    changes: dict[str, Any],
    further: tuple[str, ...] = (),
) -> Config:
    """Return the given configuration, or the default one of (images, vectors), with the changes of a call.

    `further` names settings that the call takes beside the configuration, for the error about unknown ones.
    """
    base: Any = defaults[rows.vectors] if config is None else config
    names = [field.name for field in dataclasses.fields(base)]
    unknown = sorted(set(changes) - set(names))
    if unknown:
        raise InputError(f"{', '.join(unknown)} is no setting: expected {', '.join([*names, *further])}")
    chosen: Any = dataclasses.replace(base, **changes)
    if rows.vectors and chosen.encoder != VECTORS:
        raise InputError(f"encoder is {chosen.encoder!r}, but observations are vectors: expected {VECTORS!r}")
    return chosen


def episodes_of_one_length(data: Experience, least: int = 2) -> Experience:
    """Experience cut into pieces of one length, of `least` observations or more, so that most of it is kept.

    Its arrays then reshape to (episodes, length, ...), which some networks are trained on. Observations within a piece
    are one step apart.
    """
    if not isinstance(data, Experience):
        raise InputError(f"data is a {type(data).__name__}: expected an sgm.Experience, such as sgm.collect returns")
    parts = dataclasses.replace(data, episodes=_unbroken(data)).rows_by_episode()
    lengths = np.array([part.stop - part.start for part in parts], np.int64)
    candidates = np.unique(lengths[lengths >= least])
    if not len(candidates):
        raise InputError(
            f"no episode has {least} observations or more, one step apart: collect longer episodes, do not thin them"
        )
    length = int(max(candidates, key=lambda size: size * (lengths // size).sum()))
    rows = [np.arange(part.start, part.stop - length + 1, length) for part in parts]
    begins = np.concatenate(rows)
    kept = data[(begins[:, None] + np.arange(length)).ravel()]
    return dataclasses.replace(kept, episodes=np.repeat(np.arange(len(begins)), length))


def _unbroken(data: Experience) -> Ints:
    """(n,) number of the stretch of each observation: stretches end where an episode ends or leaves steps out."""
    broken = (np.diff(data.episodes) != 0) | (np.diff(data.steps) != 1)
    return np.concatenate([[0], np.cumsum(broken)])[: len(data)].astype(np.int64)


def as_rollouts(values: NDArray[Any], data: Experience) -> NDArray[Any]:
    """(n, ...) values of experience in episodes of one length as (episodes, length, ...)."""
    return values.reshape(data.number_of_episodes, -1, *values.shape[1:])
