"""The paper's benchmarks, and OGBench: each is a declaration (`base.Benchmark`) that one engine runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Benchmark

# What `sgm run` offers: a benchmark, or the module that has one as BENCHMARK, which is imported when it is needed.
BENCHMARKS: dict[str, str | Benchmark] = {
    "point": "sgm.benchmarks.point.benchmark",
    "doom": "sgm.benchmarks.doom.benchmark",
    "safety": "sgm.benchmarks.safety.benchmark",
    "ogbench": "sgm.benchmarks.ogbench.benchmark",
}


def load(name: str) -> Benchmark:
    """The benchmark of this name."""
    found = BENCHMARKS[name]
    return importlib.import_module(found).BENCHMARK if isinstance(found, str) else found
