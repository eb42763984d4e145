"""The paper's benchmarks, and OGBench: each is a declaration (`base.Benchmark`) that one engine runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from sgm.errors import printable

if TYPE_CHECKING:
    from .base import Benchmark

# The benchmarks of `sgm run`: a declaration, or the module that holds one as BENCHMARK, imported on first use.
BENCHMARKS: dict[str, str | Benchmark] = {
    "point": "sgm.benchmarks.point.benchmark",
    "doom": "sgm.benchmarks.doom.benchmark",
    "safety": "sgm.benchmarks.safety.benchmark",
    "ogbench": "sgm.benchmarks.ogbench.benchmark",
    "sweep": "sgm.benchmarks.sweep.benchmark",
}


def load(name: str) -> Benchmark:
    """Return the benchmark with this name."""
    found = BENCHMARKS[name]
    return importlib.import_module(found).BENCHMARK if isinstance(found, str) else found


def find_benchmark(environment: object) -> Benchmark | None:
    """Return the benchmark of an environment that results call "BENCHMARK:…"; None if there is no such benchmark."""
    name = str(environment).partition(":")[0]
    return load(name) if name in BENCHMARKS else None


def label(environment: str, method: str) -> str:
    """Display name of a method of this environment or benchmark; the name itself if no benchmark declares it."""
    benchmark = find_benchmark(environment)
    known = benchmark.methods.get(method) if benchmark else None
    return known.label if known else printable(method)
