"""Evaluation of the distance for the report: distances by steps between observations, and the share of errors."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

import sgm
from sgm.distances.quality import distance_quality
from sgm.learning.pairs import LEAST_EPISODES, as_rows

_NUMBER = 500  # number of observations that are compared with each other


def distance_report(data: sgm.Experience, distance: Any, seed: int) -> dict[str, Any]:
    """Evaluate a distance on held-out episodes: a dict with `quality`, ready for JSON; {} if episodes are too short.

    The held-out episodes are those of training, the last 5 %. With fewer than 10 episodes all are used.
    """
    parts = data.rows_by_episode()
    held_out = len(parts) >= LEAST_EPISODES
    judged = data[parts[-max(2, len(parts) // 20)].start :] if held_out else data
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SciPy warns about a constant distance
            found = distance_quality(distance, judged, number=_NUMBER, seed=seed)
    except sgm.InputError:  # episodes are too short
        return {}
    numbers = {"near": found.near, "far": found.far, "rank_correlation": found.rank_correlation}
    accepted = [{name: getattr(each, name) for name in ("recall", "threshold", "false")} for each in found.accepted]
    kept = {name: float(value) for name, value in numbers.items() if math.isfinite(value)}
    whole = [each for each in accepted if all(map(math.isfinite, each.values()))]
    return {"quality": {**kept, "judged_by": found.judged_by, "held_out": held_out, "accepted": whole}}


def distance_curve(data: sgm.Experience, distance: Any, seed: int, samples: int = 300) -> dict[str, Any]:
    """Quantiles of distances between observations of an episode, by the steps between them, and of different episodes.

    Returns:
        `lags` (steps), `low`, `median` and `high` (0.1, 0.5 and 0.9 quantile at each lag, steps), and `others`, the
        median distance between observations of different episodes, steps.
    """
    random = np.random.default_rng(seed)
    rows = as_rows(data, distance.config.encoder)
    longest = max(1, min(int(1.5 * distance.far), int(rows.left.max())))
    found: dict[str, Any] = {"lags": [], "low": [], "median": [], "high": []}
    for lag in np.unique(np.rint(np.linspace(1, longest, 24)).astype(int)).tolist():
        first, second = rows.apart(lag)
        if len(first):
            chosen = random.choice(len(first), samples)
            steps = _between(data, distance, first[chosen], second[chosen])
            found["lags"].append(lag)
            for name, share in (("low", 0.1), ("median", 0.5), ("high", 0.9)):
                found[name].append(float(np.quantile(steps, share)))
    first, second = random.integers(len(data), size=(2, 4 * samples))
    other = data.episodes[first] != data.episodes[second]
    far = _between(data, distance, first[other], second[other]) if other.any() else np.array([distance.far])
    return {**found, "others": float(np.median(far))}


def _between(data: sgm.Experience, distance: Any, first: Any, second: Any) -> Any:
    """(n,) distances from the observations in (n,) rows to the goals in (n,) rows."""
    embed_goal = getattr(distance, "embed_goal", distance.embed)
    starts, goals = distance.embed(data.observations[first]), embed_goal(data.goals[second])
    if hasattr(distance, "pairs"):
        return distance.pairs(starts, goals)
    return np.array([float(distance(starts[row : row + 1], goals[row : row + 1])[0, 0]) for row in range(len(starts))])
