"""The networks of the ViZDoom benchmark: explore at random, train the distance and the controller, judge them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sgm
from sgm.benchmarks.provenance import provenance
from sgm.benchmarks.results import read_quality, write_json
from sgm.memory.progress import progress_bar

if TYPE_CHECKING:
    from .settings import DoomSettings

COLD_RATE, WARM_RATE = 1e-3, 5e-4  # highest learning rates, from scratch and from trained weights
HELD_OUT = 20  # rollouts the networks are judged on
DISTANCES = ("contrastive", "closeness")


def networks(
    settings: DoomSettings,
    folder: Path,
    engines: Callable[[], Any],
    say: Callable[[str], None],
    command: str,
    progress: bool,
) -> tuple[Any, Any]:
    """Distance and controller, trained now or before, or those that come with the package.

    Args:
        settings: what to train, and on which map.
        folder: where weights and checkpoints are.
        engines: gives the environment to explore in, if that is needed.
        say: tells the user what happens.
        command: what the weights say made them.
        progress: show progress bars.
    """
    import torch

    from sgm.controllers.cloned import ClonedController
    from sgm.envs.doom.env import IDLE

    from .benchmark import TEMPERATURE

    load = _distance_class(settings.distance).load
    if settings.pretrained:
        distance, controller = shipped()
        folder.mkdir(parents=True, exist_ok=True)
    else:
        if not (_path(folder, "distance").exists() and _path(folder, "controller").exists()):
            _train(settings, folder, engines(), say, command, progress)
        distance = load(_path(folder, "distance"))
        controller = ClonedController.load(_path(folder, "controller"))
    if distance.size != tuple(settings.size):
        raise sgm.InputError(f"the distance is for pictures of {distance.size}, the run for {settings.size}")
    controller.temperature, controller.excluded = TEMPERATURE, (IDLE,)
    torch.set_num_threads(1)  # training is over; from here on the engines need the other cores
    if read_quality(folder) is None:
        judged = judge(settings, distance, controller, engines())
        write_json(folder / "quality.json", judged)
        say(_judgement(judged))
    return distance, controller


def shipped() -> tuple[Any, Any]:
    """The distance and the controller that come with the package, trained in the default maze."""
    from sgm.controllers.cloned import ClonedController
    from sgm.distances.contrastive import ContrastiveDistance

    with as_file(files("sgm") / "weights") as weights:
        for name in ("doom-distance", "doom-controller"):
            if not _path(weights, name).exists():
                raise sgm.SGMError(f"{_path(weights, name)} is missing: train from scratch, sgm run doom --train")
        distance = ContrastiveDistance.load(_path(weights, "doom-distance"))
        return distance, ClonedController.load(_path(weights, "doom-controller"))


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.safetensors"


def _distance_class(kind: str) -> Any:
    if kind == "contrastive":
        from sgm.distances.contrastive import ContrastiveDistance

        return ContrastiveDistance
    if kind == "closeness":
        from sgm.distances.sptm import ClosenessDistance

        return ClosenessDistance
    raise sgm.InputError(f"distance is {kind!r}: expected {' or '.join(map(repr, DISTANCES))}")


def _train(
    settings: DoomSettings, folder: Path, env: Any, say: Callable[[str], None], command: str, progress: bool
) -> None:
    """Train what is not there yet."""
    from sgm.controllers.cloned import ClonedConfig, train_cloned
    from sgm.envs.doom.env import ACTIONS, explore

    folder.mkdir(parents=True, exist_ok=True)
    total = settings.rollouts * settings.rollout_steps
    say(f"exploring to learn from: {settings.rollouts} episodes of {settings.rollout_steps:,} random steps")
    with progress_bar(shown=progress, total=total, desc="explore", unit="step", leave=False) as bar:
        seed = 1_000 * settings.network_seed + 1
        rollouts = explore(env, settings.rollouts, settings.rollout_steps, seed, progress=bar.update)
    common: dict[str, Any] = {"seed": settings.network_seed, "progress": progress}
    starts = shipped() if settings.warm_start else (None, None)
    rate = WARM_RATE if settings.warm_start else COLD_RATE
    if not _path(folder, "distance").exists():
        kind = f"{settings.distance}, {settings.encoder}"
        say(f"training the distance ({kind}): {settings.distance_iterations:,} updates")
        begin, checkpoint = time.monotonic(), _path(folder, "distance-checkpoint")
        if settings.distance == "contrastive":
            from sgm.distances.contrastive import ContrastiveConfig, train_contrastive

            config = ContrastiveConfig(
                encoder=settings.encoder, iterations=settings.distance_iterations, learning_rate=rate
            )
            distance: Any = train_contrastive(rollouts.frames, config, start=starts[0], checkpoint=checkpoint, **common)
        else:
            from sgm.distances.sptm import ClosenessConfig, train_closeness

            closeness = ClosenessConfig(encoder=settings.encoder, iterations=settings.distance_iterations)
            distance = train_closeness(rollouts.frames, closeness, checkpoint=checkpoint, **common)
        distance.save(_path(folder, "distance"), _facts(settings, command, begin))
        checkpoint.unlink(missing_ok=True)
    if not _path(folder, "controller").exists():
        say(f"training the controller: {settings.controller_iterations:,} updates")
        begin, checkpoint = time.monotonic(), _path(folder, "controller-checkpoint")
        cloning = ClonedConfig(encoder=settings.encoder, iterations=settings.controller_iterations, learning_rate=rate)
        controller = train_cloned(
            rollouts.frames, rollouts.actions, len(ACTIONS), cloning, start=starts[1], checkpoint=checkpoint, **common
        )
        controller.save(_path(folder, "controller"), _facts(settings, command, begin))
        checkpoint.unlink(missing_ok=True)


def _facts(settings: DoomSettings, command: str, begin: float) -> dict[str, Any]:
    """How weights were made, written into them; the time is that of the last, uninterrupted part."""
    return {**provenance(command), "settings": dataclasses.asdict(settings), "seconds": round(time.monotonic() - begin)}


def judge(settings: DoomSettings, distance: Any, controller: Any, env: Any) -> dict[str, Any]:
    """How good the networks are, on rollouts that they were not trained on."""
    from sgm.controllers.cloned import action_accuracy
    from sgm.distances.precision import quality
    from sgm.envs.doom.env import explore

    episodes = max(2, min(HELD_OUT, settings.rollouts))
    held = explore(env, episodes, settings.rollout_steps, 1_000 * settings.network_seed + 2)
    found = quality(distance, held.frames, held.poses).asdict()
    accepted = {str(item.pop("recall")): item for item in found.pop("accepted")}
    accuracy = action_accuracy(controller, held.frames, held.actions)
    return {
        "distance": {"kind": settings.distance, **found, "precision": accepted},
        "controller": {"accuracy": {str(lag): float(share) for lag, share in enumerate(accuracy, start=1)}},
        "rollouts": episodes,
        "steps": settings.rollout_steps,
    }


def _judgement(judged: dict[str, Any]) -> str:
    accepted = judged["distance"]["precision"]
    false = ", ".join(f"{item['false']:.1%} false at {float(recall):.0%} recall" for recall, item in accepted.items())
    right = judged["controller"]["accuracy"]["1"]
    return f"distance: AUC {judged['distance']['auc']:.3f}, across rollouts {false}; controller: {right:.0%} at 1 step"
