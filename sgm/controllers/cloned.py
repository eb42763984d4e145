"""A visual controller cloned from random exploration: which action leads from this picture towards that one (SPTM)."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from sgm.errors import InputError
from sgm.learning.encoders import (
    Pictures,
    check_pictures,
    check_rollouts,
    digest,
    for_inference,
    make_encoder,
    run,
    to_input,
)
from sgm.learning.loop import fit, go_on_from, load_network, save_network

_FORMAT = "sgm-cloned-controller-1"


@dataclasses.dataclass(frozen=True)
class ClonedConfig:
    """Hyper-parameters."""

    encoder: str = "small"  # or "resnet18"
    width: int = 32  # of the small encoder
    hidden: int = 256  # units between encoder and actions
    iterations: int = 5_000  # updates
    batch: int = 256  # of an update
    reach: int = 8  # a goal is 1 to so many steps ahead
    learning_rate: float = 1e-3  # of AdamW, at its highest


class Inverse(nn.Module):
    """Previous, current and goal picture on top of each other to the logits of actions."""

    def __init__(self, config: ClonedConfig, size: tuple[int, int], actions: int) -> None:
        """Make an untrained network for pictures of this (width, height)."""
        super().__init__()
        self.encoder = make_encoder(config.encoder, 9, size, config.hidden, width=config.width)
        self.head = nn.Linear(config.hidden, actions)

    def forward(self, pictures: Tensor) -> Tensor:
        """(n, 9, height, width) to (n, actions)."""
        return self.head(torch.relu(self.encoder(pictures)))


class ClonedController:
    """Draws actions from the softmax of the logits, sharpened by a temperature."""

    def __init__(self, network: Inverse, size: tuple[int, int], actions: int, config: ClonedConfig) -> None:
        """Take a trained network."""
        self.network, self.size, self.actions, self.config = network, size, actions, config
        self.inference = for_inference(network)
        self.temperature = 0.3
        self.excluded: tuple[int, ...] = ()
        self.random = np.random.default_rng(0)

    def __call__(self, previous: Pictures, current: Pictures, goals: Pictures) -> NDArray[np.int64]:
        """(n, height, width, 3) pictures each to (n,) actions."""
        logits = self.logits(previous, current, goals).astype(np.float64) / self.temperature
        logits[:, list(self.excluded)] = -np.inf
        # The greatest of logits with Gumbel noise is a draw from their softmax.
        return (logits + self.random.gumbel(size=logits.shape)).argmax(axis=1)

    def logits(self, previous: Pictures, current: Pictures, goals: Pictures) -> NDArray[np.float32]:
        """(n, height, width, 3) uint8 pictures each to (n, actions)."""
        names = ("previous pictures", "current pictures", "goals")
        three = [check_pictures(p, self.size, name) for p, name in zip((previous, current, goals), names, strict=True)]
        if len({len(pictures) for pictures in three}) > 1:
            raise InputError(f"{', '.join(str(len(p)) for p in three)} {', '.join(names)}: expected as many of each")
        return run(self.inference, np.concatenate(three, axis=3))

    def save(self, path: str | os.PathLike[str], facts: dict[str, Any] | None = None) -> None:
        """Write a safetensors file; `facts` say how it was made."""
        integers = {"actions": self.actions}
        save_network(path, _FORMAT, self.network, self.size, self.config, facts, integers=integers)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ClonedController:
        """Read what `save` wrote; StoreError if the file is anything else."""
        network, size, config, _ = load_network(path, _FORMAT, ClonedConfig, Inverse, integers=("actions",))
        return cls(network, size, network.head.out_features, config)


def train_cloned(
    frames: Pictures,
    actions: ArrayLike,
    number: int,
    config: ClonedConfig | None = None,
    *,
    seed: int = 0,
    start: ClonedController | None = None,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> ClonedController:
    """Train on random exploration: (episodes, steps + 1, height, width, 3) pictures, (episodes, steps) actions.

    The actions are 0 … `number` − 1. `start` is a controller of the same architecture to go on from. Deviation from
    SPTM: goals are up to 8 steps ahead, not 5.
    """
    config = config or ClonedConfig()
    episodes, length, size = check_rollouts(frames, config.reach + 2)
    taken = _check_actions(actions, episodes, length, number)
    torch.manual_seed(seed)
    network = Inverse(config, size, number)
    if start is not None:
        go_on_from(network, start.network)

    def loss(random: np.random.Generator) -> Tensor:
        rows, now, goal = draw_triples(random, episodes, length, config)
        stacked = np.concatenate([frames[rows, now - 1], frames[rows, now], frames[rows, goal]], axis=3)
        return functional.cross_entropy(network(to_input(stacked)), torch.from_numpy(taken[rows, now]))

    settings = {**dataclasses.asdict(config), "kind": "cloned", "frames": list(frames.shape)}
    if start is not None:
        settings["start"] = digest(start.network)
    fit(
        network, loss, config.iterations, seed=seed, learning_rate=config.learning_rate, checkpoint=checkpoint,
        settings=settings, description="train controller", progress=progress,
    )  # fmt: skip
    return ClonedController(network, size, number, config)


def draw_triples(
    random: np.random.Generator, episodes: int, length: int, config: ClonedConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rollouts, a time in each with one before it, and the time of a goal ahead."""
    rows = random.integers(episodes, size=config.batch)
    lag = random.integers(1, config.reach + 1, size=config.batch)
    now = 1 + (random.random(config.batch) * (length - 1 - lag)).astype(np.int64)
    return rows, now, now + lag


def action_accuracy(
    controller: ClonedController, frames: Pictures, actions: ArrayLike, lags: int = 8, samples: int = 500, seed: int = 0
) -> NDArray[np.float64]:
    """How often the likeliest action is the one that was taken, for goals 1 … `lags` steps ahead: (lags,) shares.

    (episodes, steps + 1, height, width, 3) pictures and (episodes, steps) actions that it was not trained on; `samples`
    of them for each lag. Random exploration has many ways to arrive, so even the best controller stays below 1.
    """
    episodes, length, _ = check_rollouts(frames, lags + 2)
    taken = _check_actions(actions, episodes, length, controller.actions)
    random = np.random.default_rng(seed)
    shares = np.empty(lags)
    for lag in range(1, lags + 1):
        rows = random.integers(episodes, size=samples)
        now = random.integers(1, length - lag, size=samples)
        logits = controller.logits(frames[rows, now - 1], frames[rows, now], frames[rows, now + lag])
        shares[lag - 1] = np.mean(logits.argmax(1) == taken[rows, now])
    return shares


def _check_actions(actions: ArrayLike, episodes: int, length: int, number: int) -> NDArray[np.int64]:
    taken = np.asarray(actions)
    if taken.shape != (episodes, length - 1) or taken.dtype.kind not in "iu":
        raise InputError(
            f"actions are {taken.dtype} of shape {taken.shape}: expected integers ({episodes}, {length - 1}) for "
            f"{length} pictures in each of {episodes} episodes"
        )
    if not (taken.min() >= 0 and taken.max() < number):
        raise InputError(f"actions go from {taken.min()} to {taken.max()}: expected 0 to {number - 1}")
    return taken.astype(np.int64)
