"""The networks of the SafetyGym benchmark: train them on random exploration, judge them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import sgm
from sgm.benchmarks.provenance import provenance
from sgm.benchmarks.results import read_quality, write_json

from .ground_truth import FALSE

if TYPE_CHECKING:
    from sgm.envs.safety.env import Rollouts

    from .settings import SafetySettings

NAMES = ("distance", "features", "controller")
HELD_OUT = 10  # rollouts the distance is judged on
NEAR, HEADING = 0.5, 45.0  # metres and degrees within which a pair is near


class Networks(NamedTuple):
    """What was learned from random exploration."""

    distance: Any
    features: Any
    controller: Any


def networks(
    settings: SafetySettings,
    folder: Path,
    seed: int,
    rollouts: Callable[[], Rollouts],
    held_out: Callable[[], Rollouts],
    say: Callable[[str], None],
    command: str,
    progress: bool,
) -> Networks:
    """The networks of a seed, trained now or before, or those that come with the package.

    Args:
        settings: how long to train.
        folder: where weights and checkpoints are.
        seed: of training.
        rollouts: gives the exploration to learn from, if that is needed.
        held_out: gives exploration to judge by, if that is needed.
        say: tells the user what happens.
        command: what the weights say made them.
        progress: show progress bars.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if settings.pretrained:
        found = shipped()
    else:
        if not all(_path(folder, name).exists() for name in NAMES):
            _train(settings, folder, seed, rollouts(), say, command, progress)
        found = _load(folder)
    if read_quality(folder) is None:
        judged = judge(found, held_out())
        write_json(folder / "quality.json", judged)
        say(judgement(judged))
    return found


def shipped() -> Networks:
    """The networks that come with the package, trained in the default layout."""
    with as_file(files("sgm") / "weights") as weights:
        for name in NAMES:
            if not _path(weights, f"safety-{name}").exists():
                raise sgm.SGMError(f"safety-{name}.safetensors is missing: train from scratch, sgm run safety --train")
        return _load(weights, "safety-")


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.safetensors"


def _load(folder: Path, prefix: str = "") -> Networks:
    from sgm.controllers.proprioceptive import ProprioceptiveController
    from sgm.distances.bilinear import BilinearDistance
    from sgm.distances.vae import VAEFeatures

    kinds: tuple[Any, ...] = (BilinearDistance, VAEFeatures, ProprioceptiveController)
    return Networks(*(kind.load(_path(folder, prefix + name)) for kind, name in zip(kinds, NAMES, strict=True)))


def _train(
    settings: SafetySettings, folder: Path, seed: int, rollouts: Rollouts, say: Callable[[str], None], command: str,
    progress: bool,
) -> None:  # fmt: skip
    """Train what is not there yet."""
    from sgm.controllers.proprioceptive import ProprioceptiveConfig, train_controller
    from sgm.distances.bilinear import BilinearConfig, train_bilinear
    from sgm.distances.vae import VAEConfig, train_vae

    def config(kind: Any, iterations: int | None) -> Any:
        return kind() if iterations is None else kind(iterations=iterations)

    steering = config(ProprioceptiveConfig, settings.controller_iterations)
    if settings.controller_iterations is not None:
        steering = dataclasses.replace(steering, model_iterations=2 * steering.iterations)
    trainings: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
        "distance": (train_bilinear, (rollouts.frames,), config(BilinearConfig, settings.distance_iterations)),
        "features": (train_vae, (rollouts.frames,), config(VAEConfig, settings.features_iterations)),
        "controller": (train_controller, (rollouts.odometry, rollouts.actions), steering),
    }
    for name, (train, data, how) in trainings.items():
        if _path(folder, name).exists():
            continue
        say(f"training the {name}: {how.iterations:,} updates")
        begin, checkpoint = time.monotonic(), _path(folder, f"{name}-checkpoint")
        trained = train(*data, how, seed=seed, checkpoint=checkpoint, progress=progress)
        facts = {
            **provenance(command), "settings": dataclasses.asdict(settings), "seed": seed,
            "seconds": round(time.monotonic() - begin),
        }  # fmt: skip
        trained.save(_path(folder, name), facts)
        checkpoint.unlink(missing_ok=True)


def judge(found: Networks, held: Rollouts) -> dict[str, Any]:
    """How good the networks are, on rollouts that they were not trained on."""
    from sgm.distances.precision import quality

    poses = held.odometry[..., :3] * np.array([1, 1, 180 / np.pi])
    judged = quality(
        found.distance.unlimited(), held.frames, poses, near=NEAR, heading=HEADING, far=FALSE, reach=10, apart=50
    ).asdict()  # fmt: skip
    accepted = {str(item.pop("recall")): item for item in judged.pop("accepted")}
    seen = {"held_out_medians": found.distance.medians_of(held.frames)}
    return {
        "distance": {**judged, "precision": accepted, "calibration": found.distance.calibration, **seen},
        "rollouts": held.frames.shape[0],
        "steps": held.frames.shape[1] - 1,
    }


def judgement(judged: dict[str, Any]) -> str:
    """The same in a line."""
    distance = judged["distance"]
    false = ", ".join(
        f"{item['false']:.1%} false at {float(r):.0%} recall" for r, item in distance["precision"].items()
    )
    fitted = distance["calibration"]
    return f"distance: AUC {distance['auc']:.3f}, across rollouts {false}; c = {fitted['c']:.2f}, T = {fitted['T']:.2f}"
