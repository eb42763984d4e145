"""From what a network says of a pair to steps: a curve found on held-out episodes, and the noise around it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError
from sgm.learning.encoders import Pictures, check_rollouts
from sgm.learning.pairs import Ints, Rows

Floats = NDArray[np.float32]
Raw = Callable[[Ints, Ints], Floats]
SAMPLES = 500  # pairs of each lag
QUANTILE = 0.9  # of pairs at a lag are nearer than what counts as so many steps
_LAGS = 40  # lags that are measured, spread over all


def level_by_lag(raw: Raw, rows: Rows, longest: int, quantile: float, seed: int) -> tuple[Floats, Floats]:
    """The quantile of `raw` at lags of up to `longest` steps: (l,) lags, ascending, and (l,) levels.

    Args:
        raw: (n,) rows of starts and (n,) rows of goals to (n,) values.
        rows: episodes; lags that no two of their observations are apart are left out.
        longest: the greatest lag, steps.
        quantile: of the values at a lag.
        seed: of the pairs.
    """
    random = np.random.default_rng(seed)
    lags, levels = [], []
    for lag in np.unique(np.rint(np.linspace(1, longest, min(longest, _LAGS))).astype(int)):
        first, second = rows.apart(int(lag))
        if len(first):
            chosen = random.choice(len(first), SAMPLES)
            lags.append(lag)
            levels.append(np.quantile(raw(first[chosen], second[chosen]), quantile))
    if not lags:
        raise InputError(
            f"no two observations of an episode are 1 to {longest} steps apart: expected longer episodes, or ones that "
            "are thinned less"
        )
    return np.array(lags, np.float32), np.array(levels, np.float32)


def rising_curve(lags: Floats, levels: Floats) -> tuple[Floats, Floats]:
    """Lags and levels that rise from each to the next, from 0 at lag 0; lags at which nothing rises are left out.

    A stretch of lags with one level is kept at its least lag: what lies so far apart may be nearer, never farther.
    """
    kept_lags, kept_levels = [0.0], [0.0]
    for lag, level in zip(lags.tolist(), levels.tolist(), strict=True):
        if level > kept_levels[-1] + 1e-4:
            kept_lags.append(lag)
            kept_levels.append(level)
    if len(kept_lags) == 1:  # everything is equally far: one step, whatever the network says
        return np.array([0, 1], np.float32), np.array([0, 1e-4], np.float32)
    return np.array(kept_lags, np.float32), np.array(kept_levels, np.float32)


def rising_steps(raw: Floats, levels: Floats, lags: Floats) -> Floats:
    """Steps for values of any shape, linear between `levels`, which rise, and the `lags` they stand for."""
    steps = np.full(raw.shape, lags[-1], np.float32)
    near = raw < levels[-1]  # most pairs of a table are not, and a search for each would be most of the work
    steps[near] = np.interp(raw[near], levels, lags)
    return steps


def draw_windows(embed: Callable[[Pictures], Floats], frames: Pictures, lags: int, samples: int, seed: int) -> Floats:
    """(n, lags + 1, e) embeddings of random stretches of rollouts, about `samples` in all; fewer lags in short ones."""
    episodes, length, _ = check_rollouts(frames, 2)
    random = np.random.default_rng(seed)
    lags = min(lags, length - 1)
    if lags < 1:
        raise InputError(f"a calibration over {lags} lags: expected at least 1")
    number = max(1, samples // lags)
    episode, first = random.integers(episodes, size=number), random.integers(length - lags, size=number)
    return np.stack([embed(frames[e, f : f + lags + 1]) for e, f in zip(episode, first, strict=True)])


def falling_curve(top: float, medians: Floats) -> tuple[Floats, Floats]:
    """Lags and a closeness that falls from each to the next: `top` at lag 0, then (l,) medians at lags 1 … l."""
    falling = np.minimum.accumulate(np.minimum(medians, top - 1e-4))
    keep = np.concatenate([[True], np.diff(falling) < -1e-4])  # np.interp needs them to differ
    lags = np.concatenate([[0], 1 + np.flatnonzero(keep)]).astype(np.float32)
    return lags, np.concatenate([[top], falling[keep]]).astype(np.float32)


def to_steps(closeness: Floats, levels: Floats, lags: Floats) -> Floats:
    """Steps for closeness of any shape, linear between `levels`, which fall, and the `lags` they stand for."""
    steps = np.full(closeness.shape, lags[-1], np.float32)
    near = closeness > levels[-1]  # most pairs of a table are not, and a search for each would be most of the work
    steps[near] = np.interp(-closeness[near], -levels, lags)
    return steps


def falling_by_lag(
    closeness: Raw, rows: Rows, longest: int, quantile: float, top: float | None, seed: int
) -> tuple[Floats, Floats]:
    """Lags and a closeness that falls from each to the next: the one that a share `quantile` of pairs exceed.

    `top` is the closeness at lag 0; None: that of observations and themselves, or of what is one step apart if more.
    """
    lags, levels = level_by_lag(closeness, rows, longest, 1 - quantile, seed)
    if top is None:
        same = rows.sample(seed, SAMPLES)
        top = max(float(np.median(closeness(same, same))), float(levels[0]))
    every = np.interp(np.arange(1, 1 + lags[-1]), np.append(0, lags), np.append(top, levels))  # thinned: some missing
    return falling_curve(top, every.astype(np.float32))


def noise_of(steps: Raw, rows: Rows, seed: int, samples: int = 2_000) -> float:
    """Standard deviation, steps, of a distance from an observation to the next one of its episode."""
    first, second = rows.apart(int(rows.gaps.min()))
    chosen = np.random.default_rng(seed).choice(len(first), samples)
    return float(steps(first[chosen], second[chosen]).std())
