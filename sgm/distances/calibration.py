"""Calibration: a curve from the output of a network to steps, fitted on held-out episodes, and the noise around it."""

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
QUANTILE = 0.9  # share of the pairs at a lag whose distance is below the level of that lag
_LAGS = 40  # number of lags measured, evenly spaced


def level_by_lag(raw: Raw, rows: Rows, longest: int, quantile: float, seed: int) -> tuple[Floats, Floats]:
    """Measure a quantile of `raw` at lags of up to `longest` steps: (l,) lags, ascending, and (l,) levels.

    Args:
        raw: (n,) rows of starts and (n,) rows of goals to (n,) values.
        rows: episodes; lags at which no episode has a pair of observations are left out.
        longest: the largest lag, steps.
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
            f"no two observations of an episode are 1 to {longest} steps apart: expected longer episodes, or episodes "
            "with fewer steps left out"
        )
    return np.array(lags, np.float32), np.array(levels, np.float32)


def rising_curve(lags: Floats, levels: Floats) -> tuple[Floats, Floats]:
    """Make a strictly increasing curve of lags and levels, from level 0 at lag 0.

    Lags at which the level does not rise are left out. Of several lags with the same level the smallest is kept: a
    distance may then be too short, never too long.
    """
    kept_lags, kept_levels = [0.0], [0.0]
    for lag, level in zip(lags.tolist(), levels.tolist(), strict=True):
        if level > kept_levels[-1] + 1e-4:
            kept_lags.append(lag)
            kept_levels.append(level)
    if len(kept_lags) == 1:  # a constant network: every distance is one step
        return np.array([0, 1], np.float32), np.array([0, 1e-4], np.float32)
    return np.array(kept_lags, np.float32), np.array(kept_levels, np.float32)


def rising_steps(raw: Floats, levels: Floats, lags: Floats) -> Floats:
    """Convert values of any shape to steps by linear interpolation from rising `levels` to `lags`."""
    steps = np.full(raw.shape, lags[-1], np.float32)
    near = raw < levels[-1]  # most pairs of a table are far: interpolating all would be most of the work
    steps[near] = np.interp(raw[near], levels, lags)
    return steps


def draw_windows(embed: Callable[[Pictures], Floats], frames: Pictures, lags: int, samples: int, seed: int) -> Floats:
    """Draw random windows of rollouts and embed them: (n, lags + 1, e), with about `samples` pairs over all lags.

    If rollouts are shorter than `lags` + 1 images, windows have their length.
    """
    episodes, length, _ = check_rollouts(frames, 2)
    random = np.random.default_rng(seed)
    lags = min(lags, length - 1)
    if lags < 1:
        raise InputError(f"a calibration over {lags} lags: expected at least 1")
    number = max(1, samples // lags)
    episode, first = random.integers(episodes, size=number), random.integers(length - lags, size=number)
    return np.stack([embed(frames[e, f : f + lags + 1]) for e, f in zip(episode, first, strict=True)])


def falling_curve(top: float, medians: Floats) -> tuple[Floats, Floats]:
    """Make a strictly falling curve of closeness: lags and levels, from `top` at lag 0 and (l,) medians at 1 … l."""
    falling = np.minimum.accumulate(np.minimum(medians, top - 1e-4))
    keep = np.concatenate([[True], np.diff(falling) < -1e-4])  # np.interp needs them to differ
    lags = np.concatenate([[0], 1 + np.flatnonzero(keep)]).astype(np.float32)
    return lags, np.concatenate([[top], falling[keep]]).astype(np.float32)


def to_steps(closeness: Floats, levels: Floats, lags: Floats) -> Floats:
    """Convert closeness of any shape to steps by linear interpolation from falling `levels` to `lags`."""
    steps = np.full(closeness.shape, lags[-1], np.float32)
    near = closeness > levels[-1]  # most pairs of a table are far: interpolating all would be most of the work
    steps[near] = np.interp(-closeness[near], -levels, lags)
    return steps


def falling_by_lag(
    closeness: Raw, rows: Rows, longest: int, quantile: float, top: float | None, seed: int
) -> tuple[Floats, Floats]:
    """Make a falling curve of closeness: at each lag, the closeness that a share `quantile` of the pairs exceeds.

    `top` is the closeness at lag 0; None: the median closeness of observations to themselves, or the level of the
    first lag if that is higher.
    """
    lags, levels = level_by_lag(closeness, rows, longest, 1 - quantile, seed)
    if top is None:
        same = rows.sample(seed, SAMPLES)
        top = max(float(np.median(closeness(same, same))), float(levels[0]))
    # Some lags are not measured, or do not occur in experience that leaves steps out.
    every = np.interp(np.arange(1, 1 + lags[-1]), np.append(0, lags), np.append(top, levels))
    return falling_curve(top, every.astype(np.float32))


def noise_of(steps: Raw, rows: Rows, seed: int, samples: int = 2_000) -> float:
    """Standard deviation of the distance from an observation to the next one of its episode, steps."""
    first, second = rows.apart(int(rows.gaps.min()))
    chosen = np.random.default_rng(seed).choice(len(first), samples)
    return float(steps(first[chosen], second[chosen]).std())
