"""How fast plans are on a memory of many nodes, against trees computed by SciPy, in one run.

python -m speed.planning --out results/planning
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

import sgm
from sgm.memory.planner import Planner
from speed.report import Report

K = 10
TABLE = "Planning"


class Slope:
    """|s − g| + relu(u · (g − s)): steps in a plane where one direction is uphill. A quasimetric.

    Observations are embeddings. What is near by keys is near by distance: it is never less than |s − g|.
    """

    triangle = True

    def __init__(self, width: int = 64) -> None:
        self.up = np.random.default_rng(5).normal(size=width).astype(np.float32) / width**0.5

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        starts, goals = np.asarray(starts, np.float64), np.asarray(goals, np.float64)
        squares = (starts**2).sum(1)[:, None] + (goals**2).sum(1) - 2 * starts @ goals.T
        climb = (goals @ self.up)[None] - (starts @ self.up)[:, None]
        return (np.sqrt(np.maximum(squares, 0)) + np.maximum(climb, 0)).astype(np.float32)

    def pairs(self, starts, goals):
        gap = np.asarray(goals, np.float64) - np.asarray(starts, np.float64)
        return (np.sqrt((gap**2).sum(1)) + np.maximum(gap @ self.up, 0)).astype(np.float32)
