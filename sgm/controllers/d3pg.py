"""D3PG: a goal-reaching actor and the distributional critics that measure distances, trained together (SoRB).

d3pg_reference.py is a readable version of the same updates, with autograd; fast_gradients.py has the fast code.

Deviations from the authors' code:
- N environments advance together, once every N iterations. There is still one step of experience for each iteration,
  but the weights of the acting actor are up to N iterations old.
- The authors' buffer also stores a transition from the last step of an episode to the first of the next; here such
  transitions are not stored. As in their code, a time limit does not count as reaching the goal.
- The authors keep the last 1,000 steps (the default of their replay buffer); the default `capacity` here keeps all.
- Every `checkpoint_every` iterations, episodes in progress are cut off and all random generators restart from a derived
  seed, which makes a resumed run equal to an uninterrupted one, bit by bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import numbers
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.errors import InputError, MissingExtra, StoreError
from sgm.progress import progress_bar

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingExtra("D3PG", "learn", error) from error

from sgm.distances.sorb import DistributionalDistance, GoalNetworks, Layers, Shape, single_pairs
from sgm.learning.tensors import read_tensors, write_tensors

from .fast_gradients import TrainedNetworks

Floats = NDArray[np.float32]
_FORMAT = "sgm-d3pg-checkpoint-1"


@dataclasses.dataclass(frozen=True)
class D3PGConfig:
    """Hyper-parameters; the defaults are the paper's (appendix, PointEnv) and its released code's."""

    iterations: int = 30_000  # updates of critics and actor; also the environment steps after the initial ones
    batch_size: int = 64  # transitions in an update
    hidden: int = 256  # units in each of the two hidden layers, actor and critics
    ensemble: int = 3  # critics, each with its own target network
    bins: int = 20  # largest distance the critics can express, steps; the length of a training episode
    learning_rate: float = 3e-4  # Adam, actor and critics
    target_rate: float = 0.05  # share by which a soft update moves a target network towards its network
    target_period: int = 5  # iterations between soft updates
    initial_steps: int = 1_000  # environment steps, with the untrained actor, before the first update
    capacity: int = 100_000  # transitions in the replay buffer; the oldest are overwritten
    noise: float = 1.0  # standard deviation of the Ornstein-Uhlenbeck noise on actions during exploration
    noise_damping: float = 1.0  # 1: the noise of each step is independent of the previous step
    checkpoint_every: int = 2_500  # iterations between checkpoints; it affects the result, see the module's docstring

    def __post_init__(self) -> None:
        """Check every field, and convert NumPy scalars to Python numbers."""
        for field in dataclasses.fields(self):
            value = _number(field.name, getattr(self, field.name), whole=field.type == "int")
            object.__setattr__(self, field.name, value)
        for name in ("target_rate", "noise_damping"):
            if getattr(self, name) > 1:
                raise InputError(f"{name} is {getattr(self, name)}: expected a share, at most 1")
        for name in ("iterations", "checkpoint_every"):
            if getattr(self, name) % self.target_period:
                raise InputError(
                    f"{name} is {getattr(self, name)}: expected a multiple of target_period, {self.target_period}"
                )
        if self.bins < 2:
            raise InputError(f"bins is {self.bins}: expected 2 or more, the steps of a training episode")


def _number(name: str, value: Any, *, whole: bool) -> int | float:
    """Return a positive Python number, an integer if `whole`; noise may also be 0."""
    kind: Any = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind) or not 0 <= float(value) < math.inf:
        raise InputError(f"{name} is {value!r}: expected a {'whole ' if whole else ''}number, positive and finite")
    number = int(value) if whole else float(value)
    if number == 0 and not name.startswith("noise"):
        raise InputError(f"{name} is 0: expected more")
    return number


class Actor:
    """A trained controller: `actor(observations, goals)` returns actions."""

    def __init__(self, networks: GoalNetworks, *, compiled: bool | None = None) -> None:
        """Make a controller from the actor of `networks`; see `DistributionalDistance` for `compiled`."""
        self.networks = networks
        self._single = single_pairs(networks, compiled)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Actor:
        """Read the networks from a `.safetensors` file, and make a controller from their actor."""
        return cls(GoalNetworks.load(path))

    def __call__(self, observations: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, o) observations and (n, o) goals, row by row, to (n, a) float32 actions in [−1, 1]."""
        shape = (len(np.atleast_1d(observations)), self.networks.observation_size)
        if not np.shape(observations) == np.shape(goals) == shape:
            raise InputError(
                f"observations and goals have shapes {np.shape(observations)} and {np.shape(goals)}: expected "
                f"(n, {self.networks.observation_size}) each"
            )
        if self._single is not None and shape[0] <= self._single.most:
            return self._single.act(*(np.ascontiguousarray(ends, np.float32) for ends in (observations, goals)))
        pairs = np.concatenate([observations, goals], axis=1, dtype=np.float32)
        with torch.inference_mode():
            return self.networks.act(torch.from_numpy(pairs)).numpy()


class Transitions:
    """Columns of a (…, width) array of transitions, ordered so that a batch needs no copying."""

    def __init__(self, observation_size: int, action_size: int) -> None:
        """Set the order: observation, goal, 1, next observation, goal, 1, action, reached."""
        pair = 2 * observation_size + 1
        self.width = 2 * pair + action_size + 1
        self.now = slice(0, pair)
        self.next = slice(pair, 2 * pair)
        self.action = slice(2 * pair, -1)

    def pack(
        self, observations: ArrayLike, goals: ArrayLike, actions: ArrayLike, following: ArrayLike, reached: ArrayLike
    ) -> Tensor:
        """(n, o) observations, goals and next observations, (n, a) actions, (n,) reached to (n, width)."""
        one = np.ones((len(np.asarray(goals)), 1))
        columns = [observations, goals, one, following, goals, one, actions, np.reshape(reached, (-1, 1))]
        return torch.tensor(np.hstack(columns).astype(np.float32))


class Replay:
    """The last `capacity` transitions, sampled uniformly."""

    def __init__(self, capacity: int, width: int) -> None:
        """Allocate `capacity` transitions of `width` numbers."""
        self.rows = torch.zeros(capacity, width)
        self.added = 0

    def add(self, rows: Tensor) -> None:
        """Store (n, width) transitions; if the buffer is full, they replace the oldest ones."""
        self.added += len(rows)
        rows = rows[-len(self.rows) :]
        self.rows[torch.arange(self.added - len(rows), self.added) % len(self.rows)] = rows

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Sample (count, width) transitions, with replacement."""
        chosen = torch.randint(min(self.added, len(self.rows)), (count,), generator=generator)
        return self.rows[chosen]


class D3PG:
    """The learner: networks, targets and optimisers, updated one batch of transitions at a time."""

    def __init__(self, observation_size: int, action_size: int, config: D3PGConfig, seed: int = 0) -> None:
        """Initialise random weights, which depend only on `seed`."""
        self.config = config
        self.action_size = action_size
        self.iteration = 0
        self.transitions = Transitions(observation_size, action_size)
        generator = torch.Generator().manual_seed(seed)
        sizes = (2 * observation_size, config.hidden)
        batch = (config.batch_size, config.learning_rate, generator)
        self._actors = TrainedNetworks(Shape(*sizes, 0, action_size), 1, *batch)
        self._critics = TrainedNetworks(Shape(*sizes, action_size, config.bins), config.ensemble, *batch)
        self._bins = torch.arange(1.0, config.bins + 1)

    @property
    def networks(self) -> GoalNetworks:
        """A copy of the current networks."""
        actor, critics = (Layers(*(layer.clone() for layer in kind.layers)) for kind in (self._actors, self._critics))
        return GoalNetworks(actor, critics, dataclasses.asdict(self.config))

    @property
    def actor(self) -> Actor:
        """The controller with the current networks."""
        return Actor(self.networks)

    def distance(self, aggregate: str = "max") -> DistributionalDistance:
        """Make a distance from the current networks; `aggregate` over the ensemble is "max" or "mean"."""
        return DistributionalDistance(self.networks, aggregate)

    @torch.no_grad()
    def update(self, batches: Tensor) -> None:
        """Make one update for each of (k, batch_size, width) batches of transitions.

        The target networks are constant between two soft updates, so their predictions for all k batches are one
        forward pass; k batches must not go beyond the next soft update.
        """
        left = self.config.target_period - self.iteration % self.config.target_period
        accepted = (self.config.batch_size, self.transitions.width)
        if batches.ndim != 3 or len(batches) > left or batches.shape[1:] != accepted:
            raise InputError(
                f"batches have shape {tuple(batches.shape)}: expected (k, {accepted[0]}, {accepted[1]}), k ≤ {left}"
            )
        targets = self.targets(batches.flatten(0, 1)).unflatten(1, batches.shape[:2])
        for batch, target in zip(batches, targets.unbind(1), strict=True):
            self._update_critics(batch, target)
            self._update_actor(batch)
            self.iteration += 1
            if self.iteration % self.config.target_period == 0:
                self._critics.move_targets(self.config.target_rate)
                self._actors.move_targets(self.config.target_rate)

    def targets(self, batch: Tensor) -> Tensor:
        """Targets of the critics for a (n, width) batch: (E, n, B) probabilities."""
        inputs = batch[:, self.transitions.next][:, :-1]
        actions = torch.tanh(self._actors.target_layers.forward(inputs)[0])
        following = torch.softmax(self._critics.target_layers.forward(inputs, actions), dim=2)
        return one_step_more(following, batch[:, -1])

    def _update_critics(self, batch: Tensor, targets: Tensor) -> None:
        """Make a gradient step on the cross-entropy, averaged over batch and ensemble."""
        inputs, stack = batch[:, self.transitions.now], self._critics.stack
        predicted = torch.softmax(stack.forward(inputs, batch[:, self.transitions.action]), dim=2)
        gradient = predicted.sub_(targets).div_(targets.shape[0] * targets.shape[1])
        stack.backward(inputs, gradient, self._critics.gradients)
        self._critics.descend()

    def _update_actor(self, batch: Tensor) -> None:
        """Make a deterministic policy gradient step on the expected steps, averaged over batch and ensemble."""
        inputs, stack = batch[:, self.transitions.now], self._actors.stack
        actions = torch.tanh(stack.forward(inputs)[0])
        predicted = torch.softmax(self._critics.stack.forward(inputs, actions), dim=2)
        above_mean = self._bins - (predicted @ self._bins)[:, :, None]
        gradient = above_mean.mul_(predicted).div_(predicted.shape[0] * predicted.shape[1])
        by_action = self._critics.stack.backward_to_extra(gradient).sum(0)
        by_action *= 1 - actions.square()
        stack.backward(inputs, by_action[None], self._actors.gradients)
        self._actors.descend()

    @torch.no_grad()
    def losses(self, batch: Tensor) -> dict[str, float]:
        """Cross-entropy of the critics and expected steps of the actor on a (n, width) batch, without an update."""
        inputs = batch[:, self.transitions.now]
        targets = self.targets(batch)
        logits = self._critics.layers.forward(inputs[:, :-1], batch[:, self.transitions.action])
        critic = -(targets * torch.log_softmax(logits, dim=2)).sum(2).mean()
        return {"critic": float(critic), "actor": float(self.networks.steps(inputs[:, :-1]).mean())}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the networks, without training state; `Actor.load` and `DistributionalDistance.load` read them."""
        self.networks.save(path)


def one_step_more(following: Tensor, reached: Tensor) -> Tensor:
    """Convert (E, n, B) probabilities of 1…B steps from the next observation to those from the current one.

    All probabilities shift by one step, and the last bin, "B or more", keeps its own. Where the goal was `reached`,
    (n,), the distance is one step with probability 1.
    """
    shifted = torch.zeros_like(following)
    shifted[:, :, 1:] = following[:, :, :-1]
    shifted[:, :, -1] += following[:, :, -1]
    shifted *= 1 - reached[:, None]
    shifted[:, :, 0] = reached
    return shifted


class Stream(Protocol):
    """N goal environments that start a new episode whenever one ends; see `sgm.navigation.rollout.Stream`."""

    num_envs: int
    single_observation_space: gym.Space[Any]
    single_action_space: gym.Space[Any]

    @property
    def observation(self) -> dict[str, NDArray[Any]]:
        """Current observations, for choosing the next actions, by key, (N, ...) each."""
        ...

    def begin(self, seed: int) -> Any:
        """Start new episodes in all environments."""
        ...

    def step(self, actions: NDArray[Any]) -> Any:
        """Take (N, a) actions, and return their outcome; see `sgm.navigation.rollout.Steps`."""
        ...


class _Explorer:
    """Acts with the actor plus noise and collects transitions."""

    def __init__(self, stream: Stream, learner: D3PG, seed: np.random.SeedSequence) -> None:
        self.stream, self.learner = stream, learner
        environment_seed, own_seed = (int(word) for word in seed.generate_state(2))
        stream.begin(environment_seed)
        self.generator = torch.Generator().manual_seed(own_seed)
        self.noise = torch.zeros(stream.num_envs, learner.action_size)
        self.arrivals: list[bool] = []  # whether each finished episode reached its goal

    @torch.inference_mode()
    def actions(self) -> Floats:
        """The actor's actions with exploration noise, (N, a) in [−1, 1]."""
        config = self.learner.config
        fresh = torch.randn(self.noise.shape, generator=self.generator) * config.noise
        self.noise = (1 - config.noise_damping) * self.noise + fresh
        seen = self.stream.observation
        pairs = torch.tensor(np.hstack([seen["observation"], seen["desired_goal"]]).astype(np.float32))
        acted = torch.tanh(self.learner._actors.layers.forward(pairs)[0])
        return (acted + self.noise).clamp_(-1, 1).numpy()

    def step(self) -> Tensor:
        """Advance every environment, and return at most (N, width) transitions."""
        steps = self.stream.step(self.actions())
        kept = steps.kept
        self.arrivals += steps.terminated[steps.ended & kept].tolist()
        return self.learner.transitions.pack(
            steps.before["observation"][kept],
            steps.before["desired_goal"][kept],
            steps.actions[kept],
            steps.after["observation"][kept],
            steps.terminated[kept],
        )


def train(
    stream: Stream,
    config: D3PGConfig | None = None,
    *,
    seed: int = 0,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
) -> D3PG:
    """Train actor and critics from scratch, or resume from `checkpoint`; the result is deterministic for a seed.

    Args:
        stream: goal environments, `sgm.navigation.rollout.Stream(env)`; `terminated` means that the goal was reached,
            `truncated` that the time limit was.
        config: hyper-parameters; None: the defaults.
        seed: seed of initial weights, exploration, batches and the environments.
        progress: show a progress bar.
        checkpoint: a `.safetensors` file, written every `config.checkpoint_every` iterations and at the end.
        resume: resume from `checkpoint` if that file exists; the result equals that of an uninterrupted run.
    """
    config = config or D3PGConfig()
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed is {seed!r}: expected a whole number, 0 or more")
    observation_size, action_size = _sizes(stream)
    with one_thread():
        learner = D3PG(observation_size, action_size, config, seed)
        replay = Replay(config.capacity, learner.transitions.width)
        if resume and checkpoint is not None and Path(checkpoint).exists():
            _read_checkpoint(checkpoint, learner, replay, seed)
        with progress_bar(shown=progress, total=config.iterations, initial=learner.iteration, unit="it") as bar:
            while learner.iteration < config.iterations:
                _train_until_checkpoint(stream, learner, replay, seed, bar)
                if checkpoint is not None:
                    _write_checkpoint(checkpoint, learner, replay, seed)
    return learner


def _train_until_checkpoint(stream: Stream, learner: D3PG, replay: Replay, seed: int, bar: Any) -> None:
    """Train to the next checkpoint. All state except `learner` and `replay` starts afresh, from a derived seed."""
    config = learner.config
    explorer = _Explorer(stream, learner, np.random.SeedSequence([seed, learner.iteration]))
    steps = -config.initial_steps if learner.iteration == 0 else 0
    end = min(learner.iteration + config.checkpoint_every, config.iterations)
    for done in range(0, end - learner.iteration, config.target_period):
        while steps <= done:
            replay.add(explorer.step())
            steps += stream.num_envs
        rows = replay.sample(config.target_period * config.batch_size, explorer.generator)
        learner.update(rows.unflatten(0, (config.target_period, config.batch_size)))
        bar.update(config.target_period)
    recent = explorer.arrivals[-200:]
    bar.set_postfix(reached=f"{sum(recent) / max(len(recent), 1):.0%}", **learner.losses(rows))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, without denormal numbers.

    Batches are too small for several threads, and with one thread sums do not depend on the machine's load. Adam's
    moments of dead units decay to denormal numbers, with which it is ten times slower.
    """
    threads = torch.get_num_threads()
    flushed = (torch.tensor(1e-39) * 1).item() == 0  # torch has no function that returns the setting
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)
        torch.set_num_threads(threads)


def _sizes(stream: Stream) -> tuple[int, int]:
    """Sizes of an observation and of an action; InputError unless these are goal environments with box actions."""
    if not hasattr(stream, "begin"):
        raise InputError(f"stream is {stream!r}: expected sgm.navigation.rollout.Stream(env)")
    space, actions = stream.single_observation_space, stream.single_action_space
    if not isinstance(space, gym.spaces.Dict) or not {"observation", "desired_goal"} <= space.keys():
        raise InputError(f"the observation space is {space}: expected a Dict with observation and desired_goal")
    shape, goal_shape = space["observation"].shape, space["desired_goal"].shape
    if shape is None or len(shape) != 1 or goal_shape != shape:
        raise InputError(f"an observation has shape {shape} and a goal {goal_shape}: expected the same (o,) for both")
    if not isinstance(actions, gym.spaces.Box) or not (np.all(actions.low == -1) and np.all(actions.high == 1)):
        raise InputError(
            f"the action space is {actions}: expected Box(-1, 1, (a,)); gymnasium's RescaleAction makes it"
        )
    return shape[0], actions.shape[0]


def _facts(learner: D3PG, seed: int) -> dict[str, Any]:
    """Settings that must be equal for training to resume from a checkpoint."""
    config = dataclasses.asdict(learner.config)
    return {"config": config, "seed": seed, "transition": learner.transitions.width}


def _write_checkpoint(path: str | os.PathLike[str], learner: D3PG, replay: Replay, seed: int) -> None:
    kinds = {"actor": learner._actors, "critics": learner._critics}
    tensors = {f"{kind}.{name}": tensor for kind, net in kinds.items() for name, tensor in net.tensors().items()}
    tensors["replay"] = replay.rows[: replay.added]
    facts = _facts(learner, seed)
    progress = {"iteration": learner.iteration, "added": replay.added}
    write_tensors(path, tensors, {"format": _FORMAT, "run": json.dumps(facts), "progress": json.dumps(progress)})


def _read_checkpoint(path: str | os.PathLike[str], learner: D3PG, replay: Replay, seed: int) -> None:
    tensors, metadata = read_tensors(path, _FORMAT)
    run, expected = json.loads(metadata["run"]), _facts(learner, seed)
    if run != expected:
        raise StoreError(f"{path} is a checkpoint of {run}, not of {expected}: use those settings or another file")
    for kind, net in {"actor": learner._actors, "critics": learner._critics}.items():
        net.restore({name: tensors[f"{kind}.{name}"] for name in net.tensors()})
    progress = json.loads(metadata["progress"])
    learner.iteration, replay.added = progress["iteration"], progress["added"]
    replay.rows[: len(tensors["replay"])] = tensors["replay"]
