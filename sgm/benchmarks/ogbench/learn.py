"""Distance and controller of the OGBench benchmark, learned offline from the dataset alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.benchmarks.base import Piece
from sgm.benchmarks.networks import load_networks, train_once
from sgm.benchmarks.seeds import Purpose
from sgm.envs.ogbench.maze import SPEED

Floats = NDArray[np.float32]


class ThereAndBack:
    """The larger of another distance's values from a to b and from b to a; follows the Distance contract.

    A distance learned from observed transitions is optimistic about random outcomes: near a teleporter, all of its
    exits seem close. The path back from an exit is long, so the larger of the two directions corrects this. It changes
    little where every path can be reversed.
    """

    def __init__(self, distance: Any) -> None:
        """Wrap a distance that has `pairs` and `far`."""
        self.distance, self.far, self.noise = distance, distance.far, distance.noise
        self.fingerprint = f"there-and-back:{distance.fingerprint}"

    def embed(self, observations: ArrayLike) -> Floats:
        """(n, d) to (n, e)."""
        found: Floats = self.distance.embed(observations)
        return found

    def __call__(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (m, e) to (n, m) steps."""
        return np.maximum(self.distance(starts, goals), self.distance(goals, starts).T)

    def pairs(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (n, e) to (n,) steps, row by row."""
        return np.maximum(self.distance.pairs(starts, goals), self.distance.pairs(goals, starts))


class Euclid:
    """Euclidean distance in steps, for the control row: in these mazes walls are thicker than MaxDist."""

    noise = 0.0
    fingerprint = "ogbench-euclid"

    def __init__(self, cap: float) -> None:
        """Clip distances at `cap` steps, as the learned distance does."""
        self.far = cap

    def embed(self, observations: ArrayLike) -> Floats:
        """(n, d) observations that begin with x and y, map units, to (n, 2) steps."""
        return np.asarray(np.asarray(observations, np.float64)[:, :2] / SPEED, np.float32)

    def __call__(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, 2) and (m, 2) to (n, m) steps."""
        gaps = np.asarray(starts, np.float32)[:, None] - np.asarray(goals, np.float32)
        return self._clipped(gaps)

    def pairs(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, 2) and (n, 2) to (n,) steps, row by row."""
        return self._clipped(np.asarray(starts, np.float32) - np.asarray(goals, np.float32))

    def _clipped(self, gaps: Floats) -> Floats:
        return np.asarray(np.minimum(np.sqrt((gaps**2).sum(axis=-1)), self.far), np.float32)


def learn(piece: Piece) -> tuple[ThereAndBack, Any]:
    """Distance and controller of a seed: loaded, or trained if missing."""
    from sgm.controllers import cloned
    from sgm.distances import regression
    from sgm.learning.loop import CHECKS

    settings, seed = piece.settings, piece.seed_for(Purpose.TRAINING)
    how: dict[str, Any] = {"seed": seed, "device": "cpu", "progress": piece.progress}
    train_once(
        piece,
        piece.folder / "distance.safetensors",
        f"distance, {settings.distance_iterations:,} updates",
        lambda checkpoint: regression.train(
            piece.rollouts, cap=settings.cap, iterations=settings.distance_iterations, checkpoint=checkpoint, **how
        ),
    )
    train_once(
        piece,
        piece.folder / "controller.safetensors",
        f"controller, {settings.controller_iterations:,} updates",
        lambda checkpoint: cloned.train(
            piece.rollouts,
            reach=settings.reach,
            iterations=settings.controller_iterations,
            full_speed=piece.numbers["dataset"].startswith("pointmaze"),
            patience=CHECKS,  # the best of 20 held-out checks, as in results/ogbench
            checkpoint=checkpoint,
            **how,
        ),
    )
    kinds = {"distance": regression.RegressionDistance, "controller": cloned.ClonedController}
    distance, controller = load_networks(piece.folder, kinds)
    if not math.isfinite(distance.noise):
        piece.say("warning: too few held-out episodes to estimate the noise of the distance")
    return ThereAndBack(distance), controller
