"""Networks of the ViZDoom benchmark: explore at random, train distance and controller, measure their quality."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import sgm
from sgm.benchmarks.base import Piece
from sgm.benchmarks.engine import one_thread
from sgm.benchmarks.networks import by_recall, judge_once, learn_once, shipped, train_once
from sgm.benchmarks.seeds import Purpose, seed_for
from sgm.progress import progress_bar

if TYPE_CHECKING:
    from sgm.envs.doom.env import Rollouts

COLD_RATE, WARM_RATE = 1e-3, 5e-4  # highest learning rates, from scratch and from trained weights
HELD_OUT = 20  # held-out rollouts on which the networks are measured
TEMPERATURE = 0.3  # of the controller's actions


def learn(piece: Piece) -> tuple[Any, Any]:
    """Distance and controller of a run: loaded, trained if missing, or those shipped with the package."""
    from sgm.envs.doom.env import IDLE

    settings, folder = piece.settings, piece.out / "networks"
    distance, controller = learn_once(piece, folder, _kinds(settings.distance), _train)
    if distance.size != tuple(settings.size):
        raise sgm.InputError(f"the distance expects images of size {distance.size}, the run has {settings.size}")
    controller.temperature, controller.excluded = TEMPERATURE, (IDLE,)
    if settings.pretrained and settings.is_elsewhere:
        piece.say(
            "warning: the shipped weights were trained on the default maze, not on this map; their quality here is "
            "measured first. --warm-start continues training them on this map"
        )
    with one_thread():  # training is over: the engines need the other cores
        judge_once(piece, folder, lambda: judge(piece, distance, controller))
    return distance, controller


def _kinds(distance: str) -> dict[str, Any]:
    """Classes of the networks by name."""
    from sgm.controllers.cloned import ClonedController
    from sgm.distances.contrastive import ContrastiveDistance
    from sgm.distances.sptm import ClosenessDistance

    return {
        "distance": ContrastiveDistance if distance == "contrastive" else ClosenessDistance,
        "controller": ClonedController,
    }


def _seed(piece: Piece, purpose: Purpose) -> int:
    """Seed for the networks, which all pieces of a run share."""
    return seed_for((piece.settings.network_seed,), purpose)


def _train(piece: Piece, folder: Path) -> None:
    """Train the networks that are missing."""
    from sgm.controllers.cloned import ClonedConfig, train_cloned
    from sgm.distances.contrastive import ContrastiveConfig, train_contrastive
    from sgm.distances.sptm import ClosenessConfig, train_closeness
    from sgm.envs.doom.env import ACTIONS

    settings, found = piece.settings, piece.rollouts
    common: dict[str, Any] = {"seed": _seed(piece, Purpose.TRAINING), "progress": piece.progress}
    starts = shipped("doom", _kinds("contrastive")) if settings.warm_start else (None, None)
    shape = {"encoder": settings.encoder, "learning_rate": WARM_RATE if settings.warm_start else COLD_RATE}

    def distance(checkpoint: Path) -> Any:
        iterations = settings.distance_iterations
        if settings.distance == "contrastive":
            config = ContrastiveConfig(iterations=iterations, **shape)
            return train_contrastive(found.frames, config, start=starts[0], checkpoint=checkpoint, **common)
        closeness = ClosenessConfig(encoder=settings.encoder, iterations=iterations)
        return train_closeness(found.frames, closeness, checkpoint=checkpoint, **common)

    def controller(checkpoint: Path) -> Any:
        config = ClonedConfig(iterations=settings.controller_iterations, **shape)
        data = found.frames, found.actions, len(ACTIONS)
        return train_cloned(*data, config, start=starts[1], checkpoint=checkpoint, **common)

    what = f"distance ({settings.distance}, {settings.encoder}): {settings.distance_iterations:,} updates"
    train_once(piece, folder / "distance.safetensors", what, distance)
    what = f"controller: {settings.controller_iterations:,} updates"
    train_once(piece, folder / "controller.safetensors", what, controller)


def explore(piece: Piece) -> Rollouts:
    """Collect random exploration for training."""
    from sgm.envs.doom import env

    episodes, steps = piece.settings.rollouts, piece.settings.rollout_steps
    piece.say(f"exploring for training: {episodes} episodes of {steps:,} random steps")
    with progress_bar(shown=piece.progress, total=episodes * steps, desc="explore", unit="step", leave=False) as bar:
        return env.explore(piece.env, episodes, steps, _seed(piece, Purpose.EXPLORATION), progress=bar.update)


def judge(piece: Piece, distance: Any, controller: Any) -> dict[str, Any]:
    """Measure the quality of the networks on held-out rollouts."""
    from sgm.controllers.cloned import action_accuracy
    from sgm.distances.precision import evaluate_distance
    from sgm.envs.doom.env import explore

    episodes, steps = max(2, min(HELD_OUT, piece.settings.rollouts)), piece.settings.rollout_steps
    held = explore(piece.env, episodes, steps, _seed(piece, Purpose.HELD_OUT))
    accuracy = action_accuracy(controller, held.frames, held.actions)
    return {
        "distance": {
            "kind": piece.settings.distance,
            **by_recall(evaluate_distance(distance, held.frames, held.poses)),
        },
        "controller": {"accuracy": {str(lag): float(share) for lag, share in enumerate(accuracy, start=1)}},
        "rollouts": episodes,
        "steps": steps,
    }
