"""What a memory costs: cleanup steps until it is good, and seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from sgm.benchmarks.results import piece_name
from sgm.benchmarks.tables import Pooled, Row, mean

AXES = {"world": "worlds", "size": "sizes", "seed": "seeds"}


def build_key(row: Row) -> str:
    """The name under which results keep how long the memory of a row took to build."""
    return "/".join([*(piece_name(axis, row[axis]) for axis in AXES), row["method"]])


def build_time(item: Pooled, builds: Mapping[str, float]) -> float | None:
    """Mean over seeds of the seconds of building; None if it is not known."""
    return mean(builds.get(build_key(row)) for row in item.rows)


def total_seconds(items: Sequence[Pooled], builds: Mapping[str, float]) -> list[float]:
    """For each stage of a group the seconds of building and of all cleanup until then, the mean over seeds."""
    cleanup = np.cumsum([item.mean("cleanup_seconds") or 0.0 for item in items])
    return [(build_time(items[0], builds) or 0.0) + float(seconds) for seconds in cleanup]


def steps_until(items: Sequence[Pooled], rate: float) -> int | None:
    """The fewest cleanup steps after which a group has this success; None if no stage has it."""
    return next((item.cleanup_steps for item in items if item.rate >= rate), None)


def steps_by_seed(items: Sequence[Pooled], rate: float) -> list[float]:
    """The same for each seed by itself, fewest first; infinite where no stage has it."""
    found: dict[int, float] = {}
    for item in items:
        for row in item.rows:
            found.setdefault(row["seed"], math.inf)
            if row["successes"] >= rate * row["episodes"] and found[row["seed"]] == math.inf:
                found[row["seed"]] = item.cleanup_steps
    return sorted(found.values())
