"""Networks of the SafetyGym benchmark: train them on random exploration, and measure their quality."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sgm.benchmarks.base import Piece
from sgm.benchmarks.networks import by_recall, judge_once, learn_once, train_once
from sgm.benchmarks.seeds import Purpose

from .ground_truth import FALSE

if TYPE_CHECKING:
    from sgm.envs.safety.env import Rollouts

HELD_OUT = 10  # held-out rollouts on which the distance is measured
NEAR, HEADING = 0.5, 45.0  # metres and degrees within which a pair is near


class Networks(NamedTuple):
    """Networks trained on random exploration."""

    distance: Any
    features: Any
    controller: Any


def learn(piece: Piece) -> Networks:
    """Networks of a piece: loaded, trained if missing, or those shipped with the package."""
    folder = piece.folder / "networks"
    found = Networks(*learn_once(piece, folder, _kinds(), _train))
    judge_once(piece, folder, lambda: judge(found, explore(piece, Purpose.HELD_OUT, HELD_OUT)))
    return found


def explore(piece: Piece, purpose: Purpose, most: int | None = None) -> Rollouts:
    """Explore at random, for as many episodes as the settings say, or `most`."""
    from sgm.envs.safety import env

    episodes, steps = piece.settings.rollouts, piece.settings.rollout_steps
    episodes = episodes if most is None else min(most, episodes)
    piece.say(f"exploring, {episodes} × {steps:,} random steps")
    return env.explore(piece.env, episodes, steps, piece.seed_for(purpose), progress=piece.progress)


def _kinds() -> dict[str, Any]:
    """Classes of the networks by name."""
    from sgm.controllers.proprioceptive import ProprioceptiveController
    from sgm.distances.bilinear import BilinearDistance
    from sgm.distances.vae import VAEFeatures

    return {"distance": BilinearDistance, "features": VAEFeatures, "controller": ProprioceptiveController}


def _train(piece: Piece, folder: Path) -> None:
    """Train the networks that are missing."""
    from sgm.controllers.proprioceptive import ProprioceptiveConfig, train_controller
    from sgm.distances.bilinear import BilinearConfig, train_bilinear
    from sgm.distances.vae import VAEConfig, train_vae

    settings, found, seed = piece.settings, piece.rollouts, piece.seed_for(Purpose.TRAINING)
    steering = _config(ProprioceptiveConfig, settings.controller_iterations)
    if settings.controller_iterations is not None:
        steering = dataclasses.replace(steering, model_iterations=2 * steering.iterations)
    trainings: dict[str, tuple[Any, tuple[Any, ...], Any]] = {
        "distance": (train_bilinear, (found.frames,), _config(BilinearConfig, settings.distance_iterations)),
        "features": (train_vae, (found.frames,), _config(VAEConfig, settings.features_iterations)),
        "controller": (train_controller, (found.odometry, found.actions), steering),
    }
    for name, (train, data, how) in trainings.items():

        def trained(checkpoint: Path, train: Any = train, data: Any = data, how: Any = how) -> Any:
            return train(*data, how, seed=seed, checkpoint=checkpoint, progress=piece.progress)

        train_once(piece, folder / f"{name}.safetensors", f"{name}: {how.iterations:,} updates", trained, seed=seed)


def _config(kind: Any, iterations: int | None) -> Any:
    return kind() if iterations is None else kind(iterations=iterations)


def judge(found: Networks, held: Rollouts) -> dict[str, Any]:
    """Measure the quality of the distance on held-out rollouts."""
    from sgm.distances.precision import evaluate_distance

    poses = held.odometry[..., :3] * np.array([1, 1, 180 / np.pi])
    limits: dict[str, Any] = {"near": NEAR, "heading": HEADING, "far": FALSE, "reach": 10, "apart": 50}
    judged = by_recall(evaluate_distance(found.distance.unlimited(), held.frames, poses, **limits))
    calibrated = {
        "calibration": found.distance.calibration,
        "held_out_medians": found.distance.medians_of(held.frames),
    }
    return {
        "distance": {**judged, **calibrated},
        "rollouts": held.frames.shape[0],
        "steps": held.frames.shape[1] - 1,
    }
