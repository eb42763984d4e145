"""Success published by others for OGBench's point mazes, percent; reports show it beside our rows as "published".

They were made with the official datasets, other networks and other hardware: numbers to compare with, not to reproduce.
Numbers that are missing here were not looked up.
"""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """Success of a method, percent, and the paper that reports it."""

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
    """Published numbers of a dataset in one line; empty if there are none."""
    return ", ".join(f"{item.method} {item.success:g}" for item in NUMBERS.get(dataset, ()))
