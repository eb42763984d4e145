"""Distances from the critics of a trained Stable-Baselines3 model: goal-conditioned values converted to steps."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sgm.data.experience import Experience
from sgm.errors import InputError, StoreError
from sgm.learning.sb3 import ALGORITHMS, Achieved, GoalPolicy, require_columns

Floats = NDArray[np.float32]
# Names refer to steps. A high value means few steps, so the "max" of steps is the minimum of values.
AGGREGATES: dict[str, Any] = {"max": torch.amin, "mean": torch.mean, "min": torch.amax}
_FORMAT = "sgm-sb3-distance-1"
_FAINT = 0.05  # share of the range of values that lies beyond the default `far`
_SAMPLE = 2_000  # pairs of experience on which offset, noise and far are measured


@dataclasses.dataclass(frozen=True)
class Returns:
    """Conversion between steps to a goal and the discounted return V of a policy that needs d steps.

    With a reward of `step` for each step and of `arrival` for the step that reaches the goal, and S = step / (1 − γ):
    V = S + γ^(d−1) (A − S), where A = arrival if the episode `ends` there, and arrival / (1 − γ) if the episode
    continues and the robot stays at the goal. So d = 1 + log((V − S) / (A − S)) / log γ.

    Attributes:
        gamma: γ, the discount.
        step: reward of a step that does not reach the goal.
        arrival: reward of the step that reaches the goal, and of those after it.
        ends: whether the episode ends at the goal.
    """

    gamma: float
    step: float = -1.0
    arrival: float = 0.0
    ends: bool = True

    def __post_init__(self) -> None:
        """Raise InputError unless values fall with the distance."""
        if not 0 < self.gamma <= 1 or (self.gamma == 1 and (self.step >= 0 or (self.arrival and not self.ends))):
            raise InputError(
                f"the discount is {self.gamma!r} with a reward of {self.step} for a step: expected a discount under 1, "
                "or one of 1 with a negative reward for each step"
            )
        if self.gamma < 1 and not self._at_goal > self._never:
            raise InputError(
                f"rewards are {self.step} for a step and {self.arrival} on arrival: expected ones that make arriving "
                "worth more than not arriving, such as −1 and 0, or 0 and 1"
            )

    @property
    def _never(self) -> float:
        return self.step / (1 - self.gamma)

    @property
    def _at_goal(self) -> float:
        return self.arrival if self.ends else self.arrival / (1 - self.gamma)

    def steps(self, values: Tensor, far: float) -> Tensor:
        """Convert values of any shape to steps, 1 to `far`."""
        if self.gamma == 1:
            return (1 + (values - self.arrival) / self.step).clamp(1, far)
        share = (values - self._never) / (self._at_goal - self._never)
        return 1 + share.clamp(self.gamma ** (far - 1), 1).log() / math.log(self.gamma)

    def value(self, steps: float) -> float:
        """Value V of a state `steps` steps from the goal."""
        if self.gamma == 1:
            return self.arrival + self.step * (steps - 1)
        return self._never + self.gamma ** (steps - 1) * (self._at_goal - self._never)


class SB3Distance:
    """Steps that a Stable-Baselines3 policy needs, estimated by its critics; follows the Distance contract.

    The embedding is the observation itself with its achieved goal: critics mix start and goal from the first layer on,
    so every pair needs a forward pass of the networks. Memories are faster with small networks. Distances lie between
    1 (the step that reaches the goal counts) and `far`.

    The values of SAC include the entropy of its actions, which biases steps unless `ent_coef` is small at the end of
    training.

    Attributes:
        far: largest distance, steps.
        noise: standard deviation of the distance to the next observation, steps; NaN if it was not measured.
        offset: steps that the critics add to every distance, which are subtracted; 0 if it was not measured.
    """

    def __init__(
        self, networks: GoalPolicy, returns: Returns, *, aggregate: str = "max", far: float | None = None
    ) -> None:
        """Make a distance from a policy with critics; see `from_sb3`."""
        if networks.algorithm not in ALGORITHMS:
            raise InputError(f"the model has no critic whose values are steps: expected one of {', '.join(ALGORITHMS)}")
        if aggregate not in AGGREGATES:
            raise InputError(f"aggregate is {aggregate!r}: expected one of {', '.join(map(repr, AGGREGATES))}")
        require_columns(networks)
        self.networks, self.returns, self.aggregate = networks, returns, aggregate
        self.noise, self.offset = math.nan, 0.0
        if far is None and returns.gamma == 1:
            raise InputError("values without a discount are unbounded: give far=, the largest distance in steps")
        self.far = 1 + math.log(_FAINT) / math.log(returns.gamma) if far is None else float(far)
        if not 1 < self.far < math.inf:
            raise InputError(f"far is {far!r}: expected a number of steps over 1")

    def embed(self, observations: Any) -> Floats:
        """(n, ...) observations to (n, e): their numbers, and their achieved goals if those are not among them."""
        return self.networks.embed(observations)

    def embed_goal(self, goals: Any) -> Floats:
        """(n, ...) goals, in goal space, to (n, e)."""
        return self.networks.embed_goal(goals)

    @torch.inference_mode()
    def __call__(self, starts: Any, goals: Any) -> Floats:
        """(n, e) and (m, e) to (n, m) steps."""
        starts, goals = self._checked(starts, "starts"), self._checked(goals, "goals")[:, self.networks.columns]
        table = np.empty((len(starts), len(goals)), np.float32)
        if not table.size:
            return table
        columns = max(1, min(len(goals), self.networks.batch))
        rows = max(1, self.networks.batch // columns)
        for left in range(0, len(goals), columns):
            wanted = goals[left : left + columns]
            for top in range(0, len(starts), rows):
                block = starts[top : top + rows]
                steps = self._steps(block.repeat_interleave(len(wanted), 0), wanted.repeat(len(block), 1))
                table[top : top + rows, left : left + columns] = steps.view(len(block), -1).cpu().numpy()
        return table

    @torch.inference_mode()
    def pairs(self, starts: Any, goals: Any) -> Floats:
        """(n, e) and (n, e) to (n,) steps, row by row."""
        starts, goals = self._checked(starts, "starts"), self._checked(goals, "goals")[:, self.networks.columns]
        if len(starts) != len(goals):
            raise InputError(f"pairs got {len(starts)} starts and {len(goals)} goals: expected as many of each")
        parts = zip(starts.split(self.networks.batch), goals.split(self.networks.batch), strict=True)
        return np.concatenate([self._steps(*part).cpu().numpy() for part in parts])

    def measure(self, data: Experience, seed: int = 0) -> None:
        """Measure offset and noise on experience, and lower `far` to the largest distance that the critics express.

        - The offset is the median distance to goals that are already reached, minus one step. HerReplayBuffer of
          Stable-Baselines3 makes it several steps if episodes end at the goal, see docs/sb3.md.
        - The noise is the standard deviation of distances to the next observation.
        - The largest distance is the 0.99 quantile over random observations and goals.
        """
        random = np.random.default_rng(seed)
        first, second = random.integers(len(data), size=(2, _SAMPLE))
        self.offset = 0.0
        here = self.pairs(self.embed(data.observations[first]), self.embed_goal(data.goals[first]))
        self.offset = float(np.median(here)) - 1
        told = self.pairs(self.embed(data.observations[first]), self.embed_goal(data.goals[second]))
        self.far = max(2.0, min(self.far, float(np.quantile(told, 0.99))))
        following = np.diff(data.episodes) == 0
        steps = getattr(data, "steps", None)
        if steps is not None:
            following &= np.diff(steps) == 1
        if following.any():
            first = random.choice(np.flatnonzero(following), _SAMPLE)
            next_to = self.pairs(self.embed(data.observations[first]), self.embed_goal(data.goals[first + 1]))
            self.noise = float(next_to.std())

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the distance, for memory files."""
        facts = f"{self.networks.digest()} {self.returns} {self.aggregate} {self.far!r} {self.offset!r}"
        return hashlib.sha256(facts.encode()).hexdigest()

    @property
    def can_be_saved(self) -> bool:
        """Whether `save` can write it; see `GoalPolicy.can_be_saved`."""
        return self.networks.can_be_saved

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file; InputError if the policy is not a standard one."""
        noise = None if math.isnan(self.noise) else self.noise
        facts = {"returns": dataclasses.asdict(self.returns), "aggregate": self.aggregate, "far": self.far}
        self.networks.save(path, _FORMAT, {**facts, "noise": noise, "offset": self.offset})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SB3Distance:
        """Read a file written by `save`; StoreError if it is any other file."""
        networks, facts = GoalPolicy.load(path, _FORMAT)
        try:
            distance = cls(networks, Returns(**facts["returns"]), aggregate=facts["aggregate"], far=facts["far"])
            distance.noise = math.nan if facts["noise"] is None else float(facts["noise"])
            distance.offset = float(facts["offset"])
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{path} has other contents than this version writes: {error}") from error
        return distance

    def _steps(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(n, e) and (n, g) to (n,) steps."""
        values = AGGREGATES[self.aggregate](self.networks.values(starts, goals), dim=0)
        return (self.returns.steps(values, self.far + self.offset) - self.offset).clamp(min=1)

    def _checked(self, values: Any, name: str) -> Tensor:
        array = np.array(values, np.float32)
        if array.ndim != 2 or array.shape[1] != self.networks.width:
            raise InputError(f"{name} has shape {array.shape}: expected embeddings (n, {self.networks.width})")
        return torch.from_numpy(array).to(self.networks.policy.device)


def from_sb3(
    model: Any,
    *,
    data: Experience | None = None,
    achieved: Achieved = None,
    step_reward: float = -1.0,
    arrival_reward: float = 0.0,
    ends: bool = True,
    aggregate: str = "max",
    far: float | None = None,
    device: str | None = None,
) -> SB3Distance:
    """Make a distance from the critics of a trained Stable-Baselines3 model with MultiInputPolicy.

    Args:
        model: SAC, TD3, DDPG or DQN, usually with HerReplayBuffer, trained on sparse rewards.
        data: experience, to measure `offset`, `noise` and `far` on, and to find the columns of an observation that are
            its achieved goal; None: the columns are found in the model's replay buffer, if it has one.
        achieved: the achieved goal of an observation, if neither data nor replay buffer shows it: the columns of an
            observation that are its achieved goal, or a function from (n, ...) observations to (n, ...) achieved goals.
        step_reward: the reward of a step that does not reach the goal.
        arrival_reward: the reward of the step that reaches the goal. −1 and 0 are usual, PointMaze of
            Gymnasium-Robotics has 0 and 1; −1 and −1 count the last step too.
        ends: whether episodes end at the goal; if not, the robot is assumed to stay there and to receive
            `arrival_reward` in every further step.
        aggregate: aggregate of the steps over the critics: "max" (pessimistic), "mean" or "min".
        far: largest distance, steps; None: the distance at which 5 % of the range of values is left. `data` may lower
            it, see `SB3Distance.measure`.
        device: where to compute: "auto", "cpu", "cuda", "cuda:1", "mps"; None: the device of the model.
    """
    _require_rewards(model, step_reward, arrival_reward)
    returns = Returns(float(getattr(model, "gamma", 0.99)), float(step_reward), float(arrival_reward), bool(ends))
    distance = SB3Distance(GoalPolicy.of(model, achieved, data, device), returns, aggregate=aggregate, far=far)
    if data is not None:
        distance.measure(data)
    return distance


def _require_rewards(model: Any, *expected: float) -> None:
    """Raise InputError if the replay buffer of the model holds other rewards than expected."""
    buffer = getattr(model, "replay_buffer", None)
    kept = getattr(buffer, "rewards", None)
    if kept is None:
        return
    rewards = kept if getattr(buffer, "full", False) else kept[: int(getattr(buffer, "pos", 0))]
    others = np.unique(rewards[~np.isclose(rewards[..., None], expected).any(axis=-1)])
    if len(others):
        raise InputError(
            f"the model was trained on rewards such as {', '.join(f'{reward:g}' for reward in others[:5])}: expected "
            f"{expected[0]:g} for a step and {expected[1]:g} on arrival. Give step_reward= and arrival_reward=; dense "
            "rewards cannot be converted to steps"
        )
