"""Cleanup by several workers: each makes its own environment of the piece, with its share of the robots."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import load
from .base import Benchmark, Piece


def worker_env(piece: Piece) -> Callable[[], Any]:
    """Return a picklable function that makes the cleanup environment of a piece in another process."""
    settings = shared(piece.benchmark, piece.settings)
    return functools.partial(_make, piece.benchmark.name, settings, dict(piece.numbers), piece.out.resolve())


def shared(benchmark: Benchmark, settings: Any) -> Any:
    """Settings of one of several workers: robots and simulators are divided among them."""
    workers, changed = settings.workers, dict[str, int]()
    if benchmark.robots:
        changed[benchmark.robots] = -(-getattr(settings, benchmark.robots) // workers)
    if hasattr(settings, "simulators"):
        changed["simulators"] = max(1, (settings.simulators or os.cpu_count() or 1) // workers)
    return dataclasses.replace(settings, **changed)


def _make(name: str, settings: Any, numbers: Mapping[str, int | str], out: Path) -> Any:
    env = Piece(load(name), settings, numbers, out, progress=False).cleanup_env
    env.max_episode_steps = None  # cleanup decides when a robot gets another goal
    return env
