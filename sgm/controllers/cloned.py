"""A controller cloned from random exploration: which action leads from this observation towards that goal (SPTM).

`train` takes the experience of any environment: images or vectors, discrete or continuous actions. `train_cloned` takes
images of episodes of one length, as the ViZDoom benchmark has them.
"""

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

from sgm.data.experience import Experience
from sgm.errors import InputError
from sgm.learning.encoders import (
    Pictures,
    Standardised,
    check_pictures,
    check_rollouts,
    check_vectors,
    digest,
    for_inference,
    make_encoder,
    make_mlp,
    run,
    to_input,
)
from sgm.learning.loop import copy_weights, load_network, save_network, train_network
from sgm.learning.pairs import VECTORS, Rows, as_rows, settle

_FORMAT = "sgm-cloned-controller-1"


@dataclasses.dataclass(frozen=True)
class ClonedConfig:
    """Hyper-parameters."""

    encoder: str = "small"  # or "resnet18"; "mlp" for vectors, and for images that it flattens
    width: int = 32  # channels of the small encoder, units of the perceptron
    hidden: int = 256  # units between encoder and actions
    iterations: int = 5_000  # updates
    batch: int = 256  # of an update
    reach: int = 8  # a goal is 1 to so many steps ahead
    learning_rate: float = 1e-3  # of AdamW, at its highest
    continuous: bool = False  # actions are vectors, not numbers from 0; `train` sees that from the actions
    standardise: bool = False  # subtract the mean image; `train` does


FOR_IMAGES = ClonedConfig(standardise=True)
FOR_VECTORS = ClonedConfig(encoder=VECTORS, width=128, hidden=128, iterations=4_000, reach=20)


class Inverse(nn.Module):
    """Observation and goal to the logits of discrete actions, or to continuous actions.

    Images are on top of each other: previous, current and goal. Vectors are beside each other: current and goal.
    """

    low: Tensor
    high: Tensor

    def __init__(self, config: ClonedConfig, size: tuple[int, int], actions: int) -> None:
        """Make an untrained network for images of this (width, height), or for vectors; see `Rows.size`."""
        super().__init__()
        if config.encoder == VECTORS:
            observation, goal = size
            self.encoder: nn.Module = make_mlp(observation + (goal or observation), config.hidden, config.width)
        else:
            self.encoder = make_encoder(config.encoder, 9, size, config.hidden, width=config.width)
            if config.standardise:
                self.encoder = Standardised((9, size[1], size[0]), self.encoder)
        self.head = nn.Linear(config.hidden, actions)
        self.continuous = config.continuous
        if config.continuous:
            self.register_buffer("low", -torch.ones(actions))
            self.register_buffer("high", torch.ones(actions))

    def forward(self, observations: Tensor) -> Tensor:
        """(n, 9, height, width) or (n, d) to (n, actions)."""
        found = self.head(torch.relu(self.encoder(observations)))
        return (self.low + self.high) / 2 + found * self.half_range() if self.continuous else found

    def half_range(self) -> Tensor:
        """(actions,) half of the range of each continuous action."""
        return ((self.high - self.low) / 2).clamp(min=1e-6)


class ClonedController:
    """Discrete actions are drawn from the softmax of the logits, sharpened by a temperature; continuous ones are told.

    Attributes:
        uses_previous: whether it looks at the observation before the current one, as `previous`.
        temperature: of discrete actions.
        excluded: discrete actions that are never taken.
        random: draws discrete actions.
    """

    def __init__(self, network: Inverse, size: tuple[int, int], actions: int, config: ClonedConfig) -> None:
        """Take a trained network."""
        self.network, self.size, self.actions, self.config = network, size, actions, config
        self.inference = for_inference(network)
        self.uses_previous = config.encoder != VECTORS
        self.temperature = 0.3
        self.excluded: tuple[int, ...] = ()
        self.random = np.random.default_rng(0)

    def __call__(self, observations: Any, targets: Any, previous: Any = None) -> NDArray[Any]:
        """(n, ...) observations and targets, in goal space, to (n,) discrete or (n, a) continuous actions.

        `previous` is what was seen a step before, for images; None: the same as now.
        """
        outputs = self.outputs(observations, targets, previous)
        if self.config.continuous:
            return np.clip(outputs, self.network.low.numpy(), self.network.high.numpy())
        logits = outputs.astype(np.float64) / self.temperature
        logits[:, list(self.excluded)] = -np.inf
        # The greatest of logits with Gumbel noise is a draw from their softmax.
        return (logits + self.random.gumbel(size=logits.shape)).argmax(axis=1)

    def outputs(self, observations: Any, targets: Any, previous: Any = None) -> NDArray[np.float32]:
        """(n, actions) logits of discrete actions, or continuous actions before they are clipped."""
        if self.config.encoder == VECTORS:
            observation, goal = self.size
            given = {
                "observations": check_vectors(observations, observation),
                "targets": check_vectors(targets, goal or observation, "targets"),
            }
        else:
            before = observations if previous is None else previous
            named = (("previous", before), ("observations", observations), ("targets", targets))
            given = {name: check_pictures(images, self.size, name) for name, images in named}
        if len({len(values) for values in given.values()}) > 1:
            counts = ", ".join(f"{len(values)} {name}" for name, values in given.items())
            raise InputError(f"{counts}: expected as many of each")
        return run(self.inference, np.concatenate(list(given.values()), axis=-1))

    def save(self, path: str | os.PathLike[str], facts: dict[str, Any] | None = None) -> None:
        """Write a safetensors file; `facts` say how it was made."""
        integers = {"actions": self.actions}
        save_network(path, _FORMAT, self.network, self.size, self.config, facts, integers=integers)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ClonedController:
        """Read what `save` wrote; StoreError if the file is anything else."""
        network, size, config, _ = load_network(path, _FORMAT, ClonedConfig, Inverse, integers=("actions",))
        return cls(network, size, network.head.out_features, config)


def train(
    data: Experience,
    config: ClonedConfig | None = None,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> ClonedController:
    """Train on experience: images or vectors, discrete (integers) or continuous actions, episodes of any length.

    Goals are the achieved goals of the experience; without them, its observations. Continuous actions are regressed and
    stay between the least and the greatest ones in the experience.

    Args:
        data: what an agent has seen and done; random exploration is good enough.
        config: hyper-parameters; None: the default ones for images or for vectors.
        seed: of weights and batches.
        checkpoint: a file from which an interrupted training resumes.
        progress: show a progress bar.
        settings: hyper-parameters that differ from `config`, by name. The one to think about is `reach`: goals are 1
            to so many steps ahead.
    """
    rows = as_rows(data, settings.get("encoder", config.encoder if config else None))
    actions = _actions(data)
    config = settle(rows, config, (FOR_IMAGES, FOR_VECTORS), settings)
    config = dataclasses.replace(config, continuous=actions.ndim == 2)
    torch.manual_seed(seed)
    number = actions.shape[1] if config.continuous else int(actions[rows.left > 0].max()) + 1
    network = Inverse(config, rows.size, number)
    if isinstance(network.encoder, Standardised):
        sample = rows.sample(seed)
        network.encoder.measure(to_input(_beside(rows, sample, sample)))
    if config.continuous:
        network.low.copy_(torch.from_numpy(actions[rows.left > 0].min(axis=0)))
        network.high.copy_(torch.from_numpy(actions[rows.left > 0].max(axis=0)))

    def loss(random: np.random.Generator) -> Tensor:
        first, second = rows.pairs(random, config.batch, config.reach)
        found, taken = network(to_input(_beside(rows, first, second))), torch.from_numpy(actions[first])
        if not config.continuous:
            return functional.cross_entropy(found, taken)
        return ((found - taken) / network.half_range()).square().mean()

    facts = {**dataclasses.asdict(config), "kind": "cloned", "observations": list(rows.observations.shape)}
    train_network(
        network,
        loss,
        config.iterations,
        seed=seed,
        learning_rate=config.learning_rate,
        checkpoint=checkpoint,
        settings=facts,
        description="train controller",
        progress=progress,
    )
    return ClonedController(network, rows.size, number, config)


def _beside(rows: Rows, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[Any]:
    """Observations and goals as the network takes them; images with the one before the first."""
    if rows.vectors:
        return np.concatenate([rows.observations[first], rows.goals[second]], axis=1)
    began = (first == 0) | (rows.left[first - 1] == 0)
    before = rows.observations[np.where(began, first, first - 1)]
    return np.concatenate([before, rows.observations[first], rows.goals[second]], axis=3)


def _actions(data: Experience) -> NDArray[Any]:
    """(n,) int64 discrete or (n, a) float32 continuous actions."""
    if data.actions is None:
        raise InputError(
            f"{data!r} has no actions to learn from: give Experience its actions, or use sgm.collect; a distance, a "
            "memory and plans need none"
        )
    actions = data.actions
    if actions.ndim == 1 and actions.dtype.kind in "iu":
        return actions.astype(np.int64)
    if actions.ndim == 2 and actions.dtype.kind == "f":
        return actions.astype(np.float32)
    raise InputError(
        f"actions are {actions.dtype} of shape {actions.shape}: expected integers (n,) of a Discrete space or floats "
        "(n, a) of a Box; number the combinations of any other space"
    )


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
        copy_weights(network, start.network)

    def loss(random: np.random.Generator) -> Tensor:
        rows, now, goal = draw_triples(random, episodes, length, config)
        stacked = np.concatenate([frames[rows, now - 1], frames[rows, now], frames[rows, goal]], axis=3)
        return functional.cross_entropy(network(to_input(stacked)), torch.from_numpy(taken[rows, now]))

    settings = {**dataclasses.asdict(config), "kind": "cloned", "frames": list(frames.shape)}
    if start is not None:
        settings["start"] = digest(start.network)
    train_network(
        network,
        loss,
        config.iterations,
        seed=seed,
        learning_rate=config.learning_rate,
        checkpoint=checkpoint,
        settings=settings,
        description="train controller",
        progress=progress,
    )
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
        logits = controller.outputs(frames[rows, now], frames[rows, now + lag], frames[rows, now - 1])
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
