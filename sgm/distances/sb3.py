"""Steps from the values that a critic of Stable-Baselines3 gives to goals."""

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
# Of steps; values are aggregated the other way.
AGGREGATES: dict[str, Any] = {"max": torch.amin, "mean": torch.mean, "min": torch.amax}
_FORMAT = "sgm-sb3-distance-1"
_FAINT = 0.05  # share of its whole range that a value still has to go at the default `far`
_SAMPLE = 2_000  # pairs of experience on which noise and far are measured


@dataclasses.dataclass(frozen=True)
class Returns:
    """What a policy that needs d steps to a goal gets in all, discounted by γ, and the way back from that to d.

    With a reward of `step` for each step and of `arrival` for the one that arrives, and S = step / (1 − γ):
    V = S + γ^(d−1) (A − S), where A = arrival if the episode `ends` there, and arrival / (1 − γ) if the robot stays
    there and it goes on. So d = 1 + log((V − S) / (A − S)) / log γ.

    Attributes:
        gamma: γ, the discount.
        step: reward of a step that does not arrive.
        arrival: reward of the step that arrives, and of those after it.
        ends: whether the episode ends at the goal.
    """

    gamma: float
    step: float = -1.0
    arrival: float = 0.0
    ends: bool = True

    def __post_init__(self) -> None:
        """Check that values fall with the distance."""
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
        """Steps, 1 to `far`, for values of any shape."""
        if self.gamma == 1:
            return (1 + (values - self.arrival) / self.step).clamp(1, far)
        share = (values - self._never) / (self._at_goal - self._never)
        return 1 + share.clamp(self.gamma ** (far - 1), 1).log() / math.log(self.gamma)

    def value(self, steps: float) -> float:
        """The value of being so many steps from the goal."""
        if self.gamma == 1:
            return self.arrival + self.step * (steps - 1)
        return self._never + self.gamma ** (steps - 1) * (self._at_goal - self._never)


class SB3Distance:
    """Steps that a policy of Stable-Baselines3 needs, as its critics see it; follows the Distance contract.

    The embedding is the observation itself, with what it achieves: critics mix start and goal from the first layer on,
    so that every pair costs a pass through the networks. Small networks make memories fast. Distances lie between 1
    (the step that arrives counts) and `far`.

    The values of SAC include the entropy of its actions, which makes steps shorter or longer than they are unless
    `ent_coef` is small at the end of training.

    Attributes:
        far: steps beyond which distances are not told apart.
        noise: standard deviation, steps, of the distance to the next observation; NaN where that was not measured.
        offset: steps that the critics add to every distance, which are taken off; 0 where that was not measured.
    """

    def __init__(
        self, networks: GoalPolicy, returns: Returns, *, aggregate: str = "max", far: float | None = None
    ) -> None:
        """Take a policy with critics; see `from_sb3`."""
        if networks.algorithm not in ALGORITHMS:
            raise InputError(f"the model has no critic that tells steps: expected one of {', '.join(ALGORITHMS)}")
        if aggregate not in AGGREGATES:
            raise InputError(f"aggregate is {aggregate!r}: expected one of {', '.join(map(repr, AGGREGATES))}")
        require_columns(networks)
        self.networks, self.returns, self.aggregate = networks, returns, aggregate
        self.noise, self.offset = math.nan, 0.0
        if far is None and returns.gamma == 1:
            raise InputError("values without a discount never end: give far=, the steps at which distances end")
        self.far = 1 + math.log(_FAINT) / math.log(returns.gamma) if far is None else float(far)
        if not 1 < self.far < math.inf:
            raise InputError(f"far is {far!r}: expected a number of steps over 1")

    def embed(self, observations: Any) -> Floats:
        """(n, ...) observations to (n, e): their numbers, and what they achieve."""
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
        """Measure offset and noise on experience, and lower `far` to the largest distance that the critics tell.

        - The offset is the median of what is said beyond one step about goals that are reached already. HerReplayBuffer
          of Stable-Baselines3 makes it several steps where episodes end at the goal, see docs/sb3.md.
        - The noise is the standard deviation over single steps.
        - The largest distance is the 99 % quantile between random observations and goals.
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
        """What tells this distance from another one, for memory files."""
        facts = f"{self.networks.digest()} {self.returns} {self.aggregate} {self.far!r} {self.offset!r}"
        return hashlib.sha256(facts.encode()).hexdigest()

    @property
    def can_be_saved(self) -> bool:
        """Whether `save` can keep it; see `GoalPolicy.can_be_saved`."""
        return self.networks.can_be_saved

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file; InputError if the policy is not a standard one."""
        noise = None if math.isnan(self.noise) else self.noise
        facts = {"returns": dataclasses.asdict(self.returns), "aggregate": self.aggregate, "far": self.far}
        self.networks.save(path, _FORMAT, {**facts, "noise": noise, "offset": self.offset})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SB3Distance:
        """Read what `save` wrote; StoreError if the file is anything else."""
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
    """A distance from the critics of a trained model of Stable-Baselines3 with MultiInputPolicy.

    Args:
        model: SAC, TD3, DDPG or DQN, usually with HerReplayBuffer, trained on sparse rewards.
        data: experience, to measure `offset`, `noise` and `far` on, and to see which numbers of an observation are its
            achieved goal; None: that is seen from the model's replay buffer, if it has one.
        achieved: what an observation achieves, where neither tells: the columns of an observation that are its achieved
            goal, or a function from (n, ...) observations to (n, ...) achieved goals.
        step_reward: the reward of a step that does not arrive.
        arrival_reward: the reward of the step that arrives: −1 and 0 are usual, 0 and 1 are PointMaze's of
            Gymnasium-Robotics, −1 and −1 count the last step too.
        ends: whether episodes end at the goal; if not, the robot is taken to stay there and to go on collecting
            `arrival_reward`.
        aggregate: steps by the "max" of the critics (pessimistic), the "mean" or the "min".
        far: steps at which distances end; None: where the value has less than 5 % of its range left, or less with
            `data`, see `SB3Distance.measure`.
        device: where to compute: "auto", "cpu", "cuda", "cuda:1", "mps"; None: where the model is.
    """
    _require_rewards(model, step_reward, arrival_reward)
    returns = Returns(float(getattr(model, "gamma", 0.99)), float(step_reward), float(arrival_reward), bool(ends))
    distance = SB3Distance(GoalPolicy.of(model, achieved, data, device), returns, aggregate=aggregate, far=far)
    if data is not None:
        distance.measure(data)
    return distance


def _require_rewards(model: Any, *expected: float) -> None:
    """InputError if the model was trained on other rewards, as far as its replay buffer tells."""
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
            "rewards do not tell steps"
        )
