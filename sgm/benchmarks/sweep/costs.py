"""Cost of a memory: cleanup steps until it reaches a success rate, and seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from sgm.benchmarks.results import piece_name
from sgm.benchmarks.tables import Pooled, Row, mean

AXES = {"world": "worlds", "size": "sizes", "seed": "seeds"}


def build_key(row: Row) -> str:
    """Key of the building time of a row's memory in results.json."""
    return "/".join([*(piece_name(axis, row[axis]) for axis in AXES), row["method"]])


def build_time(item: Pooled, builds: Mapping[str, float]) -> float | None:
    """Building time in seconds, mean over seeds; None if unknown."""
    return mean(builds.get(build_key(row)) for row in item.rows)


def total_seconds(items: Sequence[Pooled], builds: Mapping[str, float]) -> list[float]:
    """Seconds of building and of all cleanup before each stage of a group, mean over seeds."""
    cleanup = np.cumsum([item.mean("cleanup_seconds") or 0.0 for item in items])
    return [(build_time(items[0], builds) or 0.0) + float(seconds) for seconds in cleanup]


def steps_until(items: Sequence[Pooled], rate: float) -> int | None:
    """Fewest cleanup steps after which a group reaches this success rate; None if no stage reaches it."""
    return next((item.cleanup_steps for item in items if item.rate >= rate), None)


def steps_by_seed(items: Sequence[Pooled], rate: float) -> list[float]:
    """Fewest cleanup steps until each seed reaches this success rate, ascending; infinite if it never does."""
    found: dict[int, float] = {}
    for item in items:
        for row in item.rows:
            found.setdefault(row["seed"], math.inf)
            if row["successes"] >= rate * row["episodes"] and found[row["seed"]] == math.inf:
                found[row["seed"]] = item.cleanup_steps
    return sorted(found.values())
