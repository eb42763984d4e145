"""Evaluation of any distance on held-out experience: against true positions, or by the steps within episodes."""

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
_LAGS = 12  # largest number of lags that are measured
_SAMPLES = 1_000  # pairs of each lag


@dataclasses.dataclass(frozen=True)
class Quality:
    """Quality of a distance; `print` shows it as a table.

    Attributes:
        judged_by: "positions", or "episodes" if no positions are known.
        accepted: for each recall, the threshold in steps and the share of accepted pairs that are false.
        rank_correlation: Spearman correlation of distances with the ground truth: true distances of up to 1.5 × `far`,
            or up to `far` steps ahead within episodes.
        lags: steps between the observations of pairs of one episode.
        medians: median distance at each lag, steps.
        fast: 0.9 quantile of the distance at each lag, steps: that of pairs that moved on rather than turned back.
        noise: standard deviation of the distance at each lag, steps. At large lags it is mostly due to detours of the
            exploration.
        calibration_error: mean of |fast − lag| / lag.
        near: pairs up to this far apart are near: map units, or steps of one episode.
        far: pairs farther apart than this are far: map units, or steps of one episode.
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
        """Return the fields as a dict, ready for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """Format the quality as a few lines of text."""
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
    """Evaluate a distance on held-out episodes.

    With positions, all pairs of random observations are compared. A pair is false if it is accepted although it is
    truly far apart. This finds every kind of error: distances across walls, and different places that look alike.

    Without positions, pairs of one episode are compared: pairs 1 to `near` steps apart are near, pairs at least `far`
    steps apart are far. The share of false pairs is then overestimated if episodes return to earlier places, because
    such a pair is accepted correctly but counted as false. It is underestimated if false pairs are of different
    episodes, which are never compared: a wall between two corridors that no episode connects, or two rooms that look
    alike, are not found. So this measure can show that a distance is bad, but not prove that it is good.

    Args:
        distance: any distance.
        data: episodes that the distance was not trained on, images or vectors.
        positions: (n, p) true positions; None: those of the data, if it has any.
        truth: function from (a, p) and (b, p) positions to (a, b) true distances in map units, such as the lengths of
            shortest paths between walls; None: Euclidean distances, which take both sides of a thin wall for near.
        near: largest distance of a near pair: map units, or steps without positions. None: the 0.9 quantile of the true
            distance covered in `reach` steps of an episode; without positions, `reach`.
        far: distance beyond which a pair is far, in the same unit. None: 2 × near with positions, otherwise 3 × near.
        reach: steps; see `near`. Lags of up to 4 times as many steps are measured.
        recalls: shares of the near pairs that a threshold must accept.
        number: number of random observations with positions; without positions, about 100 times as many pairs.
        seed: seed of the random observations.
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
    """Distances and true distances of (p,) pairs, with masks of the pairs that are near and far."""

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
    """Evaluate pairs of one episode by the steps between them."""
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
    """Evaluate all pairs of random observations by their true distances, map units."""
    steps, true = _across(distance, data, places, truth, number, random)
    far = far or 2 * near
    return _Judged(steps, true, near, far, true <= near, true > far, true <= 1.5 * far)


def _by_lag(distance: Distance, data: Experience, longest: int, random: np.random.Generator) -> dict[str, Any]:
    """Measure distances at each lag, the steps between two observations of one episode: fields of `Quality`."""
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
    # Lags beyond the largest distance have no calibration error: all of them are mapped to `far`.
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
    """Rows of all pairs of observations of one episode that are exactly `lag` steps apart."""
    longest = int(data.steps.max()) + 1
    keys = data.episodes * longest + data.steps  # ascending: time goes on within an episode
    wanted = np.flatnonzero(data.steps + lag < longest)
    second = np.minimum(np.searchsorted(keys, keys[wanted] + lag), len(keys) - 1)
    exact = keys[second] == keys[wanted] + lag
    return wanted[exact], second[exact]


def _within_episodes(
    distance: Distance, data: Experience, number: int, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Distances of random pairs of one episode, and the steps from first to second, negative if that goes back."""
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
    """Distances and true distances of all pairs of different observations out of a random sample."""
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
    """0.9 quantile of the true distance between observations of one episode `reach` steps apart, map units."""
    first, second = _apart(data, reach)
    if not len(first):
        raise InputError(f"no episode has two observations {reach} steps apart: give `near`, or a smaller reach")
    chosen = random.choice(len(first), 200)
    pairs = zip(places[first[chosen]], places[second[chosen]], strict=True)
    return float(np.quantile([np.asarray(truth(a[None], b[None])).item() for a, b in pairs], 0.9))


def _pairs(distance: Distance, data: Experience, first: Ints, second: Ints) -> Floats:
    """(n,) distances from the observations in rows `first` to the goals in rows `second`; each row is embedded once."""
    starts, start = np.unique(first, return_inverse=True)
    goals, goal = np.unique(second, return_inverse=True)
    a, b = _embedded(distance, data, starts), _embedded_goals(distance, data, goals)
    return paired(distance, a[start], b[goal]).astype(np.float64)


def _embedded(distance: Distance, data: Experience, rows: Ints) -> NDArray[np.float32]:
    return embed(distance, data.observations[rows], None)


def _embedded_goals(distance: Distance, data: Experience, rows: Ints) -> NDArray[np.float32]:
    """Embed the goals of rows: achieved goals if there are any and the distance has `embed_goal`, else observations."""
    function = getattr(distance, "embed_goal", None)
    if function is None or data.achieved_goals is None:
        return _embedded(distance, data, rows)
    return np.asarray(function(data.goals[rows]), np.float32)


def _euclid(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.linalg.norm(a[:, None] - b, axis=2)
