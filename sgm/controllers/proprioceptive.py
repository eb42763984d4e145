"""A controller that drives from odometry to the odometry of a waypoint, learned only from random exploration.

It first learns a dynamics model of the robot, and then a policy, by back-propagation through the model.
The paper (appendix, SafetyGym) does not describe its controller; nothing here is taken from it.

Odometry is x and y (m), heading (rad), forward and sideways speed (m/s, in the robot's frame) and turning rate (rad/s).
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
from sgm.learning.encoders import digest
from sgm.learning.loop import load_network, save_network, train_network
from sgm.learning.pairs import as_rollouts, episodes_of_one_length

_FORMAT = "sgm-proprioceptive-controller-1"
_SIZE = (6, 2)  # sizes of odometry and of an action; files of other networks have the size of an image here
_HELD_OUT = 0.1  # share of the steps that are held out to measure the error of the model
_HASTE = 5.0  # learning rate of the gain relative to that of the weights, because the gain has further to go
_ERRORS = ("position", "heading", "speed", "turning")
_UNKNOWN = (np.nan,) * len(_ERRORS)
Floats = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class ProprioceptiveConfig:
    """Hyper-parameters."""

    hidden: int = 64  # units in each of the two layers of the model and of the policy
    model_iterations: int = 3_000  # updates of the model
    model_batch: int = 512  # steps of an update of the model
    iterations: int = 1_500  # updates of the policy
    batch: int = 256  # imagined walks of an update of the policy
    horizon: int = 20  # steps of an imagined walk
    reach: float = 1.5  # largest distance of a target in training, metres
    noise: float = 0.1  # standard deviation of the noise on efforts in imagined walks
    learning_rate: float = 3e-3  # peak, of AdamW, for both


class Layers(nn.Module):
    """Two tanh layers and a linear one, plus a linear shortcut, which extrapolates where there was no data."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        """Make an untrained network."""
        super().__init__()
        self.first, self.second = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        self.last, self.shortcut = nn.Linear(hidden, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs) to (n, outputs)."""
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x))))) + self.shortcut(x)


class Dynamics(nn.Module):
    """Dynamics model of a step, in the robot's frame: speeds and action to the change of pose and the next speeds.

    It is linear in the forward effort, which is the action times a learned `gain`, clipped to [−1, 1]: a motor may
    saturate at a small part of the action range, as that of Safety Gym does at a twentieth. The policy is trained to
    choose efforts: in the saturated range of actions, its gradients would be 0.
    """

    def __init__(self, hidden: int, inputs: Tensor, outputs: Tensor) -> None:
        """Make an untrained model with the scales of these (n, 3) speeds and (n, 6) outputs."""
        super().__init__()
        self.layers = Layers(4, hidden, 12)
        self.slack = nn.Parameter(torch.zeros(()))
        self.register_buffer("inputs", _spread(inputs))
        self.register_buffer("outputs", _spread(outputs))
        self.inputs: Tensor
        self.outputs: Tensor

    def gain(self) -> Tensor:
        """Effort of an action of 1 before clipping; at least 1."""
        return 1 + (_HASTE * self.slack).exp()

    def efforts(self, actions: Tensor) -> Tensor:
        """(n, 2) actions to (n, 2) efforts, forward and turn."""
        return torch.stack([(actions[:, 0] * self.gain()).clamp(-1, 1), actions[:, 1]], dim=1)

    def forward(self, speeds: Tensor, efforts: Tensor) -> Tensor:
        """(n, 3) speeds and (n, 2) efforts to (n, 6): metres ahead and to the left, radians, and the three speeds."""
        alone, pushed = self.layers(torch.cat([speeds / self.inputs, efforts[:, 1:]], dim=1)).chunk(2, dim=1)
        return (alone + pushed * efforts[:, :1]) * self.outputs


class Policy(nn.Module):
    """Maps the relative position of the target and the speeds of the robot to efforts."""

    def __init__(self, config: ProprioceptiveConfig, size: tuple[int, int] = _SIZE) -> None:
        """Make an untrained policy."""
        super().__init__()
        self.layers = Layers(8, config.hidden, size[1])

    def forward(self, targets: Tensor, speeds: Tensor) -> Tensor:
        """(n, 2) metres ahead and to the left and (n, 3) speeds to (n, 2) efforts between -1 and 1."""
        far = (targets.square().sum(1, keepdim=True) + 1e-4).sqrt()
        return torch.tanh(self.layers(torch.cat([targets, targets / far, far, speeds], dim=1)))


class ProprioceptiveController:
    """Controller that drives to the position of a target, with any heading."""

    def __init__(
        self, network: Policy, config: ProprioceptiveConfig, gain: ArrayLike = 1.0, errors: ArrayLike = _UNKNOWN
    ) -> None:
        """Make a controller from a trained policy, and the gain and errors of the model it was trained with."""
        self.network, self.config = network, config
        self.gain, self._errors = np.asarray(gain, np.float32), np.asarray(errors, np.float32)
        self._weights = {name: value.numpy().copy() for name, value in network.layers.state_dict().items()}

    @property
    def model_error(self) -> dict[str, float]:
        """Median errors of the model one step ahead, on held-out steps: metres, radians, m/s and rad/s."""
        return dict(zip(_ERRORS, self._errors.tolist(), strict=True))

    def __call__(self, odometry: ArrayLike, targets: ArrayLike) -> Floats:
        """(n, 6) odometry and (n, 3 or 6) odometry of targets to (n, 2) actions, forward and turn, in [-1, 1].

        Only x and y of a target are used.
        """
        here, there = np.asarray(odometry, np.float64), np.asarray(targets, np.float64)
        if here.ndim != 2 or here.shape[1] != 6 or there.ndim != 2 or there.shape not in ((len(here), 3), here.shape):
            raise InputError(
                f"odometry has shape {here.shape} and targets {there.shape}: expected (n, 6) and (n, 3) or (n, 6)"
            )
        east, north = (there[:, :2] - here[:, :2]).T
        cos, sin = np.cos(here[:, 2]), np.sin(here[:, 2])
        ahead, left = cos * east + sin * north, cos * north - sin * east
        # Targets farther away than those of training are replaced by a target at `reach` in the same direction.
        shrink = np.minimum(1, self.config.reach / np.maximum(np.hypot(ahead, left), 1e-9))
        ahead, left = ahead * shrink, left * shrink
        far = np.sqrt(ahead**2 + left**2 + 1e-4)
        inputs = np.column_stack([ahead, left, ahead / far, left / far, far, here[:, 3:]]).astype(np.float32)
        actions = self._efforts(inputs)
        actions[:, 0] /= self.gain
        return actions

    def _efforts(self, x: Floats) -> Floats:
        """Evaluate the policy in NumPy, which is several times as fast for such a small network."""
        w = self._weights
        y = np.tanh(x @ w["first.weight"].T + w["first.bias"])
        y = np.tanh(y @ w["second.weight"].T + w["second.bias"])
        return np.tanh(y @ w["last.weight"].T + w["last.bias"] + x @ w["shortcut.weight"].T)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the controller."""
        return digest(self.network, self.gain)

    def save(self, path: str | os.PathLike[str], facts: dict[str, Any] | None = None) -> None:
        """Write a safetensors file with the policy, without the model; `facts` describes the training."""
        calibration = {"gain": self.gain, "errors": self._errors}
        save_network(path, _FORMAT, self.network, _SIZE, self.config, facts, calibration=calibration)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ProprioceptiveController:
        """Read a file written by `save`; StoreError if it is any other file."""
        network, _, config, (gain, errors) = load_network(
            path, _FORMAT, ProprioceptiveConfig, Policy, calibration=("gain", "errors")
        )
        return cls(network, config, gain, errors)


def train(
    data: Experience,
    config: ProprioceptiveConfig | None = None,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> ProprioceptiveController:
    """Train on experience whose observations are odometry, cut into episodes of one length; see `train_controller`."""
    kept = episodes_of_one_length(data)
    if kept.actions is None:
        raise InputError(
            f"{data!r} has no actions to learn from: give Experience its actions; a distance, a memory and plans need "
            "none"
        )
    odometry, actions = (as_rollouts(values, kept) for values in (kept.observations, kept.actions))
    return train_controller(odometry, actions[:, :-1], config, seed=seed, checkpoint=checkpoint, progress=progress)


def train_controller(
    odometry: ArrayLike,
    actions: ArrayLike,
    config: ProprioceptiveConfig | None = None,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> ProprioceptiveController:
    """Train on random exploration: (episodes, steps + 1, 6) odometry and (episodes, steps, 2) actions in [-1, 1].

    Only the policy has a checkpoint: the model takes seconds, and is trained again when training resumes.
    """
    config = config or ProprioceptiveConfig()
    before, acted, after = transitions(odometry, actions)
    torch.manual_seed(seed)
    model = Dynamics(config.hidden, before, after)
    policy = Policy(config)
    errors = _fit_model(model, before, acted, after, config, seed, progress)
    model.requires_grad_(False)

    def loss(random: np.random.Generator) -> Tensor:
        speeds = before[torch.from_numpy(random.integers(len(before), size=config.batch))]
        noise = random.normal(0, config.noise, (config.horizon, config.batch, 2)).astype(np.float32)
        return imagined_distance(model, policy, speeds, draw_targets(random, config), torch.from_numpy(noise))

    settings = {**dataclasses.asdict(config), "kind": "proprioceptive", "steps": len(before)}
    train_network(
        policy,
        loss,
        config.iterations,
        seed=seed,
        learning_rate=config.learning_rate,
        checkpoint=checkpoint,
        settings=settings,
        description="train controller",
        progress=progress,
    )
    return ProprioceptiveController(policy, config, model.gain().numpy(), errors)


def transitions(odometry: ArrayLike, actions: ArrayLike) -> tuple[Tensor, Tensor, Tensor]:
    """Extract all steps of exploration: (n, 3) speeds, (n, 2) actions, (n, 6) changes of pose and next speeds.

    Takes (episodes, steps + 1, 6) odometry and (episodes, steps, 2) actions; InputError for other shapes or values.
    Changes of pose are in the robot's frame.
    """
    poses, acted = np.asarray(odometry, np.float64), np.asarray(actions, np.float64)
    if poses.ndim != 3 or poses.shape[2] != 6 or acted.shape != (len(poses), poses.shape[1] - 1, 2) or not acted.size:
        raise InputError(
            f"odometry has shape {poses.shape} and actions {acted.shape}: expected (episodes, steps + 1, 6) and "
            "(episodes, steps, 2)"
        )
    if not (np.isfinite(poses).all() and np.abs(acted).max() <= 1):
        raise InputError("odometry must be finite, and actions between -1 and 1")
    before, after = poses[:, :-1].reshape(-1, 6), poses[:, 1:].reshape(-1, 6)
    east, north, turn = (after[:, :3] - before[:, :3]).T
    cos, sin = np.cos(before[:, 2]), np.sin(before[:, 2])
    turn = (turn + np.pi) % (2 * np.pi) - np.pi
    result = np.column_stack([cos * east + sin * north, cos * north - sin * east, turn, after[:, 3:]])
    parts = before[:, 3:], acted.reshape(-1, 2), result
    return tuple(torch.from_numpy(part.astype(np.float32)) for part in parts)  # type: ignore[return-value]


def draw_targets(random: np.random.Generator, config: ProprioceptiveConfig) -> Tensor:
    """Draw (batch, 2) targets, metres ahead and to the left: any distance up to `reach`, any direction."""
    far, angle = random.uniform(0, config.reach, config.batch), random.uniform(-np.pi, np.pi, config.batch)
    return torch.from_numpy(np.stack([far * np.cos(angle), far * np.sin(angle)], axis=1).astype(np.float32))


def imagined_distance(model: Dynamics, policy: Policy, speeds: Tensor, targets: Tensor, noise: Tensor) -> Tensor:
    """Mean distance to the target over a rollout in the model, metres; it is low if the robot arrives soon and stays.

    (n, 3) speeds and (n, 2) targets in the robot's frame at the beginning, and (steps, n, 2) noise on the efforts:
    without noise a policy learns to exploit details of the model that are wrong.
    """
    total = torch.zeros(())
    for shake in noise:
        result = model(speeds, (policy(targets, speeds) + shake).clamp(-1, 1))
        ahead, left = (targets - result[:, :2]).T
        cos, sin = torch.cos(result[:, 2]), torch.sin(result[:, 2])
        targets = torch.stack([cos * ahead + sin * left, cos * left - sin * ahead], dim=1)
        speeds = result[:, 3:]
        total = total + (targets.square().sum(1) + 1e-4).sqrt().mean()
    return total / len(noise)


def _fit_model(
    model: Dynamics,
    before: Tensor,
    acted: Tensor,
    after: Tensor,
    config: ProprioceptiveConfig,
    seed: int,
    progress: bool,
) -> list[float]:
    """Fit the model; return its median errors on held-out steps, in the order of `_ERRORS`."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(before)))
    number = int(np.ceil(_HELD_OUT * len(order)))
    held, used = order[:number], order[number:]

    def loss(random: np.random.Generator) -> Tensor:
        chosen = used[torch.from_numpy(random.integers(len(used), size=config.model_batch))]
        wrong = (model(before[chosen], model.efforts(acted[chosen])) - after[chosen]) / model.outputs
        # Nearly the absolute error: contacts with walls are outliers, which are no property of the robot.
        return functional.smooth_l1_loss(wrong, torch.zeros_like(wrong), beta=0.02)

    train_network(
        model,
        loss,
        config.model_iterations,
        seed=seed,
        learning_rate=config.learning_rate,
        description="train model",
        progress=progress,
    )
    with torch.inference_mode():
        wrong = model(before[held], model.efforts(acted[held])) - after[held]
    parts = wrong[:, :2].norm(dim=1), wrong[:, 2].abs(), wrong[:, 3:5].norm(dim=1), wrong[:, 5].abs()
    return [float(part.median()) for part in parts]


def _spread(values: Tensor) -> Tensor:
    """(n, k) to (k,) root mean square of each column."""
    return values.square().mean(0).sqrt().clamp(min=1e-6)
