"""How good any distance is, on experience that it was not trained on: by true positions, or by episodes alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import spearmanr

from sgm.data.experience import Experience
from sgm.errors import InputError
from sgm.memory.distance import Distance, between, embed, paired

from .precision import Accepted, accept

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Truth = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
_ROWS = 256  # observations compared with all others at once
_LAGS = 12  # at most so many lags are looked at
_SAMPLES = 1_000  # pairs of each lag


@dataclasses.dataclass(frozen=True)
class Quality:
    """How good a distance is. Print it for a table.

    Attributes:
        judged_by: "positions", or "episodes" where no positions are known.
        accepted: for each recall, the threshold in steps and the share of accepted pairs that are false.
        rank_correlation: Spearman's, of distances with the truth: true distances of up to 1.5 × `far`, or steps of up
            to `apart` within episodes.
        lags: steps between pairs of one episode.
        medians: median distance at each lag, steps.
        fast: 0.9 quantile of the distance at each lag, steps: of those pairs that moved on rather than dawdled.
        noise: standard deviation of the distance at each lag, steps. At large lags it is mostly the dawdling.
        calibration_error: mean of |fast − lag| / lag.
        near: what is truly near: map units, or steps of one episode.
        far: what is truly far: map units, or steps of one episode.
        pairs: number of pairs that were compared.
    """

    judged_by: str
    accepted: tuple[Accepted, ...]
    rank_correlation: float
    lags: tuple[int, ...]
    medians: tuple[float, ...]
    fast: tuple[float, ...]
    noise: tuple[float, ...]
    calibration_error: float
    near: float
    far: float
    pairs: int

    def asdict(self) -> dict[str, Any]:
        """Plain lists and numbers, ready for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """A few lines to read."""
        unit = "units" if self.judged_by == "positions" else "steps of one episode"
        lines = [
            f"judged by {self.judged_by}, {self.pairs:,} pairs: near is up to {self.near:g} {unit}, false is beyond "
            f"{self.far:g}; rank correlation {self.rank_correlation:.3f}, calibration error "
            f"{self.calibration_error:.0%}"
        ]
        lines += [
            f"  at {a.recall:.0%} recall (up to {a.threshold:.1f} steps): {a.false:.2%} false" for a in self.accepted
        ]
        table = zip(self.lags, self.medians, self.fast, self.noise, strict=True)
        lines += [f"  {lag} steps apart: median {m:.1f}, 0.9 quantile {q:.1f}, noise {s:.1f}" for lag, m, q, s in table]
        return "\n".join(lines)


def distance_quality(
    distance: Distance,
    data: Experience,
    positions: ArrayLike | None = None,
    *,
    truth: Truth | None = None,
    near: float | None = None,
    far: float | None = None,
    reach: int = 10,
    recalls: Sequence[float] = (0.5, 0.9),
    number: int = 2_000,
    seed: int = 0,
) -> Quality:
    """Judge a distance on held-out episodes.

    With positions, all pairs of random observations are compared, and a pair that is accepted although it is truly far
    is false. This sees everything: walls that are taken for open ways, and places that look alike.

    Without positions, pairs of one episode are compared: those 1 to `near` steps apart are near, those at least `far`
    steps apart are far. What it says is too high where walks come back to where they were, because such a pair is
    rightly accepted and counted as false. It is too low where false pairs are of different episodes, which it never
    compares: a wall between two corridors that no episode joins, or two rooms that look alike, are not seen. It tells
    a bad distance from a good one; it does not prove a good one.

    Args:
        distance: any.
        data: episodes that the distance was not trained on, images or vectors.
        positions: (n, p) true positions; None: those of the data, if it has any.
        truth: true distances, (a, p) and (b, p) positions to (a, b) map units, such as the lengths of shortest ways
            between walls; None: Euclidean distances, for which what is behind a thin wall is near.
        near: what is truly near: map units, or steps without positions. None: how far 9 of 10 pairs of one episode get
            in `reach` steps at most, or `reach`.
        far: what is truly far, in the same unit. None: 2 × near with positions, otherwise 3 × near.
        reach: steps; see `near`. Lags of up to 4 times as many steps are looked at.
        recalls: shares of the near pairs that a threshold is to accept.
        number: number of random observations with positions; 100 times as many pairs without.
        seed: of the random observations.
    """
    if not isinstance(data, Experience):
        raise InputError(f"data is {type(data).__name__}: expected sgm.Experience")
    random = np.random.default_rng(seed)
    places = getattr(data, "positions", None) if positions is None else np.asarray(positions)
    if places is not None and (places.ndim != 2 or len(places) != len(data)):
        raise InputError(f"positions have shape {places.shape}: expected ({len(data)}, p), one for each observation")
    lags = _by_lag(distance, data, 4 * reach, random)
    if places is None:
        judged = _by_episodes(distance, data, near or reach, far, number, random)
    else:
        truth = truth or _euclid
        near = near or _reached(truth, places, data, reach, random)
        judged = _by_positions(distance, data, places, truth, near, far, number, random)
    return Quality(
        judged_by="episodes" if places is None else "positions",
        accepted=tuple(accept(judged.steps, judged.is_near, judged.is_far, recall) for recall in recalls),
        rank_correlation=float(spearmanr(judged.steps[judged.counted], judged.true[judged.counted]).statistic),
        near=float(judged.near),
        far=float(judged.far),
        pairs=len(judged.steps),
        **lags,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Judged:
    """(p,) pairs: distances beside the truth, which is near and far up to and from where the two numbers say."""

    steps: Floats
    true: Floats
    near: float
    far: float
    is_near: Bools
    is_far: Bools
    counted: Bools  # for the rank correlation

    def __post_init__(self) -> None:
        if not self.is_near.any() or not self.near < self.far:
            raise InputError(
                f"of {len(self.true)} pairs {self.is_near.sum()} are near, up to {self.near:g}, and "
                f"{self.is_far.sum()} are far, beyond {self.far:g}: expected near pairs, and near < far"
            )


def _by_episodes(
    distance: Distance, data: Experience, near: float, far: float | None, number: int, random: np.random.Generator
) -> _Judged:
    """Pairs of one episode, by the steps between them."""
    steps, true = _within_episodes(distance, data, 100 * number, random)
    far = far or 3 * near
    ahead = true > 0
    return _Judged(steps, true, near, far, ahead & (true <= near), np.abs(true) >= far, ahead & (true <= far))


def _by_positions(
    distance: Distance,
    data: Experience,
    places: NDArray[Any],
    truth: Truth,
    near: float,
    far: float | None,
    number: int,
    random: np.random.Generator,
) -> _Judged:
    """All pairs of random observations, by true distances, map units."""
    steps, true = _across(distance, data, places, truth, number, random)
    far = far or 2 * near
    return _Judged(steps, true, near, far, true <= near, true > far, true <= 1.5 * far)


def _by_lag(distance: Distance, data: Experience, longest: int, random: np.random.Generator) -> dict[str, Any]:
    """Distances by the steps between two observations of one episode."""
    lags, medians, fast, noise = list[int](), list[float](), list[float](), list[float]()
    for lag in np.unique(np.rint(np.geomspace(1, longest, _LAGS)).astype(int)).tolist():
        first, second = _apart(data, lag)
        if not len(first):
            continue
        chosen = random.choice(len(first), _SAMPLES)
        steps = _pairs(distance, data, first[chosen], second[chosen])
        lags.append(lag)
        medians.append(float(np.median(steps)))
        fast.append(float(np.quantile(steps, 0.9)))
        noise.append(float(steps.std()))
    if not lags:
        raise InputError(f"{data!r} has no two observations of one episode up to {longest} steps apart")
    # Beyond its end a distance says no steps at all.
    kept = np.array(lags) <= getattr(distance, "far", np.inf)
    errors = np.abs(np.array(fast) / np.array(lags) - 1)[kept]
    error = float(errors.mean()) if len(errors) else float("nan")
    return {
        "lags": tuple(lags),
        "medians": tuple(medians),
        "fast": tuple(fast),
        "noise": tuple(noise),
        "calibration_error": error,
    }


def _apart(data: Experience, lag: int) -> tuple[Ints, Ints]:
    """Rows of all pairs of one episode that are exactly `lag` steps apart."""
    longest = int(data.steps.max()) + 1
    keys = data.episodes * longest + data.steps  # ascending: time goes on within an episode
    wanted = np.flatnonzero(data.steps + lag < longest)
    second = np.minimum(np.searchsorted(keys, keys[wanted] + lag), len(keys) - 1)
    exact = keys[second] == keys[wanted] + lag
    return wanted[exact], second[exact]


def _within_episodes(
    distance: Distance, data: Experience, number: int, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Distances of random pairs of one episode, and the steps from the first to the second, under 0 if it is before."""
    parts = data.rows_by_episode()
    begins = np.repeat([part.start for part in parts], [part.stop - part.start for part in parts])
    lengths = np.repeat([part.stop - part.start for part in parts], [part.stop - part.start for part in parts])
    rows = np.sort(random.permutation(len(data))[: max(1, number // 20)])  # embedded once, compared with 20 others
    first = np.repeat(rows, 20)
    second = begins[first] + (random.random(len(first)) * lengths[first]).astype(np.int64)
    true = (data.steps[second] - data.steps[first]).astype(np.float64)
    other = true != 0
    first, second, true = first[other], second[other], true[other]
    return _pairs(distance, data, first, second), true


def _across(
    distance: Distance,
    data: Experience,
    places: NDArray[Any],
    truth: Truth,
    number: int,
    random: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Distances and true distances of all pairs of random observations, without those of one with itself."""
    rows = np.sort(random.permutation(len(data))[:number])
    starts, goals = _embedded(distance, data, rows), _embedded_goals(distance, data, rows)
    steps, true = [], []
    for begin in range(0, len(rows), _ROWS):
        block = slice(begin, begin + _ROWS)
        others = rows[block, None] != rows
        steps.append(between(distance, starts[block], goals)[others])
        true.append(np.asarray(truth(places[rows[block]], places[rows]))[others])
    return np.concatenate(steps).astype(np.float64), np.concatenate(true).astype(np.float64)


def _reached(truth: Truth, places: NDArray[Any], data: Experience, reach: int, random: np.random.Generator) -> float:
    """How far 9 of 10 pairs of one episode get in `reach` steps, map units."""
    first, second = _apart(data, reach)
    if not len(first):
        raise InputError(f"no episode has two observations {reach} steps apart: give `near`, or a smaller reach")
    chosen = random.choice(len(first), 200)
    pairs = zip(places[first[chosen]], places[second[chosen]], strict=True)
    return float(np.quantile([np.asarray(truth(a[None], b[None])).item() for a, b in pairs], 0.9))


def _pairs(distance: Distance, data: Experience, first: Ints, second: Ints) -> Floats:
    """(n,) distances from observations to goals in these rows; each row is embedded once."""
    starts, start = np.unique(first, return_inverse=True)
    goals, goal = np.unique(second, return_inverse=True)
    a, b = _embedded(distance, data, starts), _embedded_goals(distance, data, goals)
    return paired(distance, a[start], b[goal]).astype(np.float64)


def _embedded(distance: Distance, data: Experience, rows: Ints) -> NDArray[np.float32]:
    return embed(distance, data.observations[rows], None)


def _embedded_goals(distance: Distance, data: Experience, rows: Ints) -> NDArray[np.float32]:
    """Goals as the distance takes them: observations, unless goals have another shape and it embeds those."""
    function = getattr(distance, "embed_goal", None)
    if function is None or data.achieved_goals is None:
        return _embedded(distance, data, rows)
    return np.asarray(function(data.goals[rows]), np.float32)


def _euclid(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.linalg.norm(a[:, None] - b, axis=2)
