"""The paper's benchmarks, and OGBench: each is a declaration (`base.Benchmark`) that one engine runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from sgm.errors import printable

if TYPE_CHECKING:
    from .base import Benchmark

# What `sgm run` offers: a benchmark, or the module that has one as BENCHMARK, which is imported when it is needed.
BENCHMARKS: dict[str, str | Benchmark] = {
    "point": "sgm.benchmarks.point.benchmark",
    "doom": "sgm.benchmarks.doom.benchmark",
    "safety": "sgm.benchmarks.safety.benchmark",
    "ogbench": "sgm.benchmarks.ogbench.benchmark",
    "sweep": "sgm.benchmarks.sweep.benchmark",
}


def load(name: str) -> Benchmark:
    """The benchmark of this name."""
    found = BENCHMARKS[name]
    return importlib.import_module(found).BENCHMARK if isinstance(found, str) else found


def find_benchmark(environment: object) -> Benchmark | None:
    """The benchmark of an environment, which is named "BENCHMARK:…" in results; None if that is not listed."""
    name = str(environment).partition(":")[0]
    return load(name) if name in BENCHMARKS else None


def label(environment: str, method: str) -> str:
    """What people call a method in an environment or benchmark of this name; as it is if no benchmark declares it."""
    benchmark = find_benchmark(environment)
    known = benchmark.methods.get(method) if benchmark else None
    return known.label if known else printable(method)
