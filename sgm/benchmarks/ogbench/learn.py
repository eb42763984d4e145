"""The distance and the controller of the OGBench benchmark: learned offline, from the dataset alone."""

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
    """The longer of the ways there and back, by another distance; follows the Distance contract.

    A distance that is learned from what followed what takes the best outcome of a gamble for its price: beside a
    teleport, all of its exits seem near. The way back from an exit is long. In a world where every way can be gone
    back, this changes little.
    """

    def __init__(self, distance: Any) -> None:
        """Take a distance with `pairs` and `far`."""
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
    """Steps as the crow flies, for the control row: in these mazes walls are thicker than MaxDist."""

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
    """Distance and controller of a seed, trained now or before."""
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
            patience=CHECKS,  # the best of 20 held-out checks, as results/ogbench was made
            checkpoint=checkpoint,
            **how,
        ),
    )
    kinds = {"distance": regression.RegressionDistance, "controller": cloned.ClonedController}
    distance, controller = load_networks(piece.folder, kinds)
    if not math.isfinite(distance.noise):
        piece.say("warning: the noise of the distance is not known: too few held-out episodes")
    return ThereAndBack(distance), controller
