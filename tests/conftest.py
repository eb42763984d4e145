"""Worlds to build memories in."""

from __future__ import annotations

import os
import signal

# A shell without job control starts what it puts into the background deaf to Ctrl-C, which some tests send to programs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Two test processes share two cores; numerical libraries that each want both only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# New cases are tried on every run, except where a run decides about a change.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("default")


def plane(n: int, seed: int = 0, side: float = 20.0, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Points in a square and noisy, asymmetric distances between them: (n, 2) and (n, n) float32."""
    random = np.random.default_rng(seed)
    points = random.uniform(0, side, (n, 2)).astype(np.float32)
    steps = np.linalg.norm(points[:, None] - points, axis=-1) + noise * random.random((n, n))
    return points, steps.astype(np.float32)


@pytest.fixture
def world() -> tuple[np.ndarray, np.ndarray]:
    """120 points in a 20 × 20 square and distances between them."""
    return plane(120)


@st.composite
def tables(draw, most: int = 24):
    """Asymmetric tables with no triangle inequality, with many equal entries, so that every comparison can tie."""
    n = draw(st.integers(1, most))
    seed = draw(st.integers(0, 2**32 - 1))
    step = draw(st.sampled_from([1.0, 0.5, 0.001]))
    high = draw(st.sampled_from([3.0, 8.0]))
    random = np.random.default_rng(seed)
    table = np.round(random.uniform(0, high, (n, n)) / step) * step
    if draw(st.booleans()):
        np.fill_diagonal(table, 0)
    return table.astype(np.float32)
