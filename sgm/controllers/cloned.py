"""A controller by behavioural cloning of random exploration (SPTM): it predicts the action that leads towards a goal.

`train` takes the experience of any environment: images or vectors, discrete or continuous actions. `train_cloned` takes
images in episodes of one length, as in the ViZDoom benchmark.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

from sgm.data.experience import Experience
from sgm.errors import InputError, StoreError
from sgm.learning.encoders import Pictures, check_pictures, check_rollouts, check_vectors, for_inference, run, to_input
from sgm.learning.loop import load_network, save_network, train_network
from sgm.learning.pairs import VECTORS, as_rows, hold_out, settle
from sgm.learning.rollouts import train_on_rollouts
from sgm.learning.tensors import read_tensors

from .actions import ActionSpace, taken_actions
from .inverse import FOR_IMAGES, FOR_VECTORS, ClonedConfig, Inverse, imitation_loss

_FORMAT = "sgm-cloned-controller-1"
_CHECKED = 1_024  # held-out pairs of a check for early stopping


class ClonedController:
    """Controller that imitates the actions of experience.

    Discrete actions are drawn from the softmax of the logits over a temperature; continuous actions are regressed.

    Attributes:
        space: the actions that it predicts.
        uses_previous: whether it uses the observation before the current one, as `previous`.
        temperature: temperature of the softmax of discrete actions; the logits are divided by it.
        excluded: Discrete actions that are never taken.
        full_speed: scale continuous actions up until one of their numbers is the minimum or maximum of the experience.
        random: generator for drawing discrete actions.
    """

    def __init__(
        self,
        network: Inverse,
        size: tuple[int, int],
        actions: int,
        config: ClonedConfig,
        space: ActionSpace | None = None,
        *,
        full_speed: bool = False,
    ) -> None:
        """Make a controller from a trained network with `actions` outputs; `space` None: numbers from 0, or vectors."""
        self.network, self.size, self.actions, self.config = network, size, actions, config
        plain = ActionSpace((actions,)) if config.continuous else ActionSpace((), (tuple(range(actions)),))
        self.space = plain if space is None else space
        self.inference = for_inference(network)
        self.uses_previous = config.encoder != VECTORS
        self.temperature = 0.3
        self.excluded: tuple[int, ...] = ()
        self.full_speed = full_speed
        self.random = np.random.default_rng(0)

    def __call__(self, observations: Any, targets: Any, previous: Any = None) -> NDArray[Any]:
        """(n, ...) observations and targets, in goal space, to (n, ...) discrete or continuous actions.

        `previous` are the observations one step before, for images; None: the current observations.
        """
        if self.config.continuous:
            return self.likeliest(observations, targets, previous)
        logits = self._logits(observations, targets, previous)
        # The argmax of logits with Gumbel noise is a sample from their softmax.
        return self.space.decode(logits + self.random.gumbel(size=logits.shape))

    def likeliest(self, observations: Any, targets: Any, previous: Any = None) -> NDArray[Any]:
        """The same without sampling: discrete actions have the largest logits."""
        if not self.config.continuous:
            return self.space.decode(self._logits(observations, targets, previous))
        low, high = self.network.low.numpy(), self.network.high.numpy()
        outputs = self.outputs(observations, targets, previous)
        if self.full_speed:
            middle, half = (low + high) / 2, self.network.half_range().numpy()
            speed = np.abs((outputs - middle) / half).max(axis=1, keepdims=True, initial=0)
            outputs = middle + (outputs - middle) / np.maximum(speed, 1e-6)
        return self.space.decode(np.clip(outputs, low, high))

    def _logits(self, observations: Any, targets: Any, previous: Any) -> NDArray[np.float64]:
        logits = self.outputs(observations, targets, previous).astype(np.float64) / self.temperature
        logits[:, [self.space.place(action) for action in self.excluded]] = -np.inf
        return logits

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
        """Write a safetensors file with all attributes except `random`; `facts` describes the training."""
        acting = {
            "shape": self.space.shape,
            "choices": self.space.choices,
            "temperature": self.temperature,
            "excluded": self.excluded,
            "full_speed": self.full_speed,
        }
        notes, integers = {"acting": json.dumps(acting)}, {"actions": self.actions}
        save_network(path, _FORMAT, self.network, self.size, self.config, facts, integers=integers, notes=notes)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ClonedController:
        """Read a file written by `save`; StoreError if it is any other file."""
        network, size, config, _ = load_network(path, _FORMAT, ClonedConfig, Inverse, integers=("actions",))
        made = cls(network, size, network.head.out_features, config)
        written = read_tensors(path, _FORMAT)[1].get("acting")
        if written is None:  # files of the first version
            return made
        try:
            acting = json.loads(written)
            made.space = ActionSpace(tuple(acting["shape"]), tuple(tuple(values) for values in acting["choices"]))
            made.temperature, made.full_speed = float(acting["temperature"]), bool(acting["full_speed"])
            made.excluded = tuple(acting["excluded"])
            if made.space.outputs != made.actions:
                raise ValueError(f"{made.space} has {made.space.outputs} outputs, the network {made.actions}")
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{path} has other contents than this version writes: {error}") from error
        return made


def train(
    data: Experience,
    config: ClonedConfig | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
    patience: int = 0,
    full_speed: bool = False,
    **settings: Any,
) -> ClonedController:
    """Train on experience: images or vectors, discrete or continuous actions, episodes of any length.

    Goals are the achieved goals of the experience; without them, its observations. Integers are discrete actions: (n,)
    of a Discrete space with any start, or (n, a) of a MultiDiscrete or MultiBinary space, whose numbers are predicted
    independently of each other. Floats are continuous: they are regressed, and clipped to the range of the experience.

    With 10 or more episodes, the last 5 % of them, at least two, are held out; with `patience`, they are used for early
    stopping. `sgm.controllers.quality` measures what the controller has learned.

    Args:
        data: experience of an agent, with actions; random exploration is good enough.
        config: hyper-parameters; None: the defaults for images or for vectors.
        seed: seed of weights and batches.
        device: where to train: "auto", "cpu", "cuda", "cuda:1", "mps". The controller acts on the CPU.
        checkpoint: a file from which an interrupted training resumes.
        progress: show a progress bar.
        patience: stop after this many of 20 checks on held-out episodes in a row without improvement, and keep the best
            weights; 20: never stop, but keep the best weights; 0: never stop, and keep the last ones.
        full_speed: scale continuous actions up until one of their numbers is the minimum or maximum of the experience.
            For robots whose action is a force or velocity (point masses): the mean of several possible actions is slow
            but points in the right direction. Not for arms, nor if stopping at the target matters.
        settings: hyper-parameters that differ from `config`, by name. The most important one is `reach`: goals are 1
            to this many steps ahead.
    """
    rows = as_rows(data, settings.get("encoder", config.encoder if config else None))
    actions = taken_actions(data)
    space = _space_of(actions[rows.left > 0])
    config = settle(rows, config, (FOR_IMAGES, FOR_VECTORS), settings, ("patience", "full_speed"))
    config = dataclasses.replace(config, continuous=not space.choices)
    if full_speed and space.choices:
        raise InputError("full_speed is for continuous actions, and these are integers: leave it out")
    torch.manual_seed(seed)
    network = Inverse(config, rows.size, space.outputs)
    taken = space.encode(actions)
    network.measure(rows, taken, seed)
    kept, held_out = hold_out(data, rows)

    def loss(random: np.random.Generator) -> Tensor:
        first, second = kept.pairs(random, config.batch, config.reach)
        return imitation_loss(network, space, kept, taken, first, second)

    def validate() -> Tensor:
        """Loss on held-out pairs, the same ones at every call, in batches."""
        first, second = held_out.pairs(np.random.default_rng(seed), _CHECKED, config.reach)
        parts = [slice(low, low + config.batch) for low in range(0, _CHECKED, config.batch)]
        theirs = taken[len(kept.left) :]
        losses = [imitation_loss(network, space, held_out, theirs, first[part], second[part]) for part in parts]
        return torch.stack(losses).mean()

    told = {"observations": list(rows.observations.shape), "data": rows.digest(actions[rows.left > 0])}
    facts = {**dataclasses.asdict(config), "kind": "cloned", **told}
    train_network(
        network,
        loss,
        config.iterations,
        seed=seed,
        learning_rate=config.learning_rate,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        settings=facts,
        description="train controller",
        progress=progress,
        device=device,
        validate=None if held_out is kept else validate,
        patience=patience,
    )
    return ClonedController(network, rows.size, space.outputs, config, space, full_speed=full_speed)


def _space_of(acted: NDArray[Any]) -> ActionSpace:
    """Infer the space of actions that were taken; InputError if they are not finite."""
    if not np.isfinite(acted).all():
        raise InputError(
            "actions have values that are not finite: expected finite numbers, except at the last observation of an "
            "episode"
        )
    return ActionSpace.of(acted)


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
    """Train on random exploration: (episodes, steps + 1, height, width, 3) images, (episodes, steps) actions.

    The actions are 0 … `number` − 1. `start` is a controller of the same architecture to start from. Deviation from
    SPTM: goals are up to 8 steps ahead, not 5.
    """
    config = config or ClonedConfig()
    episodes, length, size = check_rollouts(frames, config.reach + 2)
    taken = _check_actions(actions, episodes, length, number)
    torch.manual_seed(seed)
    network = Inverse(config, size, number)

    def loss(random: np.random.Generator) -> Tensor:
        rows, now, goal = draw_triples(random, episodes, length, config)
        stacked = np.concatenate([frames[rows, now - 1], frames[rows, now], frames[rows, goal]], axis=3)
        return functional.cross_entropy(network(to_input(stacked)), torch.from_numpy(taken[rows, now]))

    train_on_rollouts(
        network,
        loss,
        frames,
        config,
        taken,
        kind="cloned",
        start=start,
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
        description="train controller",
    )
    return ClonedController(network, size, number, config)


def draw_triples(
    random: np.random.Generator, episodes: int, length: int, config: ClonedConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw rollouts, a time in each that is not the first, and the time of a goal 1 to `reach` steps later."""
    rows = random.integers(episodes, size=config.batch)
    lag = random.integers(1, config.reach + 1, size=config.batch)
    now = 1 + (random.random(config.batch) * (length - 1 - lag)).astype(np.int64)
    return rows, now, now + lag


def action_accuracy(
    controller: ClonedController, frames: Pictures, actions: ArrayLike, lags: int = 8, samples: int = 500, seed: int = 0
) -> NDArray[np.float64]:
    """Share of likeliest actions that equal the action taken, for goals 1 … `lags` steps ahead: (lags,).

    (episodes, steps + 1, height, width, 3) images and (episodes, steps) actions that it was not trained on; `samples`
    of them for each lag. Random exploration reaches a goal in many ways, so even the best controller stays below 1.
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
            f"{length} images in each of {episodes} episodes"
        )
    if not (taken.min() >= 0 and taken.max() < number):
        raise InputError(f"actions go from {taken.min()} to {taken.max()}: expected 0 to {number - 1}")
    return taken.astype(np.int64)
