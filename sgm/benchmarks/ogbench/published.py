"""Success that others have published for OGBench's point mazes, percent: beside our rows, and marked as published.

They were made with the official datasets, other networks and other hardware: numbers to compare with, not to reproduce.
What is not here was not looked up.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """Success of a method, percent, and the paper that says so."""

    method: str
    success: float
    source: str


OGBENCH = "Park et al., OGBench, ICLR 2025"
TTGS = "Opryshko et al., Test-Time Graph Search, 2025: GCIQL with 4,000 nodes"
NUMBERS: dict[str, tuple[Published, ...]] = {
    "pointmaze-medium-stitch-v0": (Published("QRL", 80, OGBENCH), Published("TTGS", 44, TTGS)),
    "pointmaze-large-stitch-v0": (Published("QRL", 84, OGBENCH), Published("TTGS", 29, TTGS)),
    "pointmaze-giant-stitch-v0": (
        Published("QRL", 50, OGBENCH),
        Published("HIQL", 0, OGBENCH),
        Published("TTGS", 98.0, TTGS),
    ),
    "pointmaze-giant-navigate-v0": (Published("QRL", 68, OGBENCH), Published("TTGS", 91.9, TTGS)),
    "pointmaze-teleport-navigate-v0": (Published("GCIVL", 45, OGBENCH),),
}


def quoted(dataset: str) -> str:
    """The published numbers of a dataset in a line; empty if there are none."""
    return ", ".join(f"{item.method} {item.success:g}" for item in NUMBERS.get(dataset, ()))
