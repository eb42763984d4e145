"""Success on the environment's own goals, with the memory left as it is."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from sgm.memory import InputError
from sgm.memory.progress import progress_bar

from .navigator import FOLLOWING, LOST, NOWHERE, Navigator
from .trace import Trace

Bools = NDArray[np.bool_]
REASONS = ("no path", "waypoint never reached", "time")


class Agent(Protocol):
    """Whatever acts for a batch of episodes: a navigator, or a policy without a memory."""

    def reset(self, episodes: int | None = None, mask: Bools | None = None) -> None:
        """Begin episodes."""
        ...

    def act_many(self, observations: Any, goals: Any, *, active: Bools | None = None) -> NDArray[Any]:
        """Actions for a batch."""
        ...


class PolicyAgent:
    """A goal-conditioned policy as an agent, without a memory."""

    def __init__(self, policy: Any) -> None:
        """Act with `policy(observations, goals)`."""
        self.policy = policy

    def reset(self, episodes: int | None = None, mask: Bools | None = None) -> None:
        """Nothing is remembered."""

    def act_many(self, observations: Any, goals: Any, *, active: Bools | None = None) -> NDArray[Any]:
        """The policy's actions."""
        return np.asarray(self.policy(observations, goals))


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What came of a batch of episodes.

    Attributes:
        successes: (n,) bool, which episodes reached their goal.
        steps: (n,) int64 steps each episode took.
        reasons: how many of the failures are due to what; see `REASONS`.
        seconds_per_action: wall time of choosing an action, s, averaged over the batch.
        traces: the episodes that were recorded.
    """

    successes: Bools
    steps: NDArray[np.int64]
    reasons: dict[str, int]
    seconds_per_action: float
    traces: list[Trace] = dataclasses.field(default_factory=list)

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.successes)

    @property
    def rate(self) -> float:
        """Share of episodes that reached their goal."""
        return float(self.successes.mean())

    @property
    def ci95(self) -> tuple[float, float]:
        """Wilson 95 % interval of the rate."""
        return wilson(int(self.successes.sum()), self.episodes)

    @property
    def mean_steps(self) -> float | None:
        """Steps to the goal, averaged over the successes; None if there are none."""
        return float(self.steps[self.successes].mean()) if self.successes.any() else None

    def asdict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON; without the traces."""
        return {
            "episodes": self.episodes,
            "successes": int(self.successes.sum()),
            "success_rate": self.rate,
            "ci95": list(self.ci95),
            "mean_steps": self.mean_steps,
            "reasons": self.reasons,
            "seconds_per_action": self.seconds_per_action,
        }


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """The Wilson score interval of a proportion; 95 % by default."""
    if trials < 1 or not 0 <= successes <= trials:
        raise InputError(f"got {successes} successes of {trials} trials: expected 0 to n of n, with n at least 1")
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # The ends are exact where rounding would leave 1e-17 or 0.9999999999999998.
    low = (centre - half) / scale if successes else 0.0
    return low, (centre + half) / scale if successes < trials else 1.0


def paired_difference(first: Bools, second: Bools, z: float = 1.959964) -> tuple[float, float, float]:
    """How much higher the first success rate is than the second, and the interval of that; 95 % by default.

    (n,) and (n,) outcomes of the same n tasks: what makes a task hard for both is not counted as chance. The interval
    is Agresti and Min's (2005): Wald's, with half an outcome more of each of the four kinds, which moves its middle a
    little towards 0.
    """
    first, second = np.asarray(first, np.bool_), np.asarray(second, np.bool_)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise InputError(f"got outcomes of shapes {first.shape} and {second.shape}: expected the same tasks, (n,)")
    only_first, only_second, tasks = (first & ~second).sum() + 0.5, (second & ~first).sum() + 0.5, len(first) + 2
    centre = (only_first - only_second) / tasks
    half = z * math.sqrt(only_first + only_second - (only_first - only_second) ** 2 / tasks) / tasks
    return float(first.mean() - second.mean()), float(max(centre - half, -1)), float(min(centre + half, 1))


def evaluate(
    agent: Agent,
    env: VectorEnv[Any, Any, Any],
    *,
    seed: int,
    options: Mapping[str, Any] | None = None,
    traces: int = 0,
    progress: bool = False,
) -> Evaluation:
    """Run one episode in every sub-environment, all at once, to the end of the last one.

    Args:
        agent: a `Navigator` (one that cleans is refused: evaluation must not change the memory) or a `PolicyAgent`.
        env: a vector of goal environments with disabled autoreset and a step limit.
        seed: seeds the starts and goals (and the noise) of the sub-environments, so that agents can be compared.
        options: reset options, for example {"difficulty": 0.95}.
        traces: how many episodes to record.
        progress: show a progress bar.
    """
    if isinstance(agent, Navigator) and agent.clean:
        raise InputError("this navigator cleans (clean=True): evaluate with one that does not")
    return run_episodes(agent, env, seed=seed, options=options, traces=traces, progress=progress)


def run_episodes(
    agent: Agent,
    env: VectorEnv[Any, Any, Any],
    *,
    seed: int,
    options: Mapping[str, Any] | None = None,
    traces: int = 0,
    progress: bool = False,
) -> Evaluation:
    """`evaluate` for an agent that may clean as it goes."""
    observation, _ = env.reset(seed=seed, options=dict(options or {}))
    number = env.num_envs
    agent.reset(number)
    active, successes = np.ones(number, np.bool_), np.zeros(number, np.bool_)
    steps, seconds = np.zeros(number, np.int64), 0.0
    recorded = [Trace(goal) for goal in observation["desired_goal"][:traces]]
    with progress_bar(shown=progress, total=number, desc="evaluate", unit="episode", leave=False) as bar:
        while active.any():
            start = time.perf_counter()
            seen = observation[getattr(agent, "senses", "observation")]
            actions = agent.act_many(seen, observation["desired_goal"], active=active)
            seconds += time.perf_counter() - start
            note(recorded, agent, seen, int(steps.max(initial=0)), active)
            observation, _, terminated, truncated, _ = env.step(actions)
            steps[active] += 1
            successes |= active & terminated
            ended = active & (terminated | truncated)
            active &= ~ended
            bar.update(int(ended.sum()))
    for number, trace in enumerate(recorded):
        trace.success = bool(successes[number])
    return Evaluation(successes, steps, _reasons(agent, ~successes), seconds / int(steps.sum()), recorded)


def rest(env: VectorEnv[Any, Any, Any], actions: NDArray[Any], moving: Bools) -> NDArray[Any]:
    """Nothing done where a robot does not move: −1 where actions are numbered, else what `env.rest` says, or zero."""
    if np.issubdtype(actions.dtype, np.integer) and actions.ndim == 1:
        return np.where(moving, actions, -1)
    return np.where(moving[:, None], actions, getattr(env, "rest", 0.0))


def note(traces: list[Trace], agent: Agent, observations: NDArray[Any], step: int, active: Bools) -> None:
    """Add a step to the traces of the episodes that go on."""
    for number, trace in enumerate(traces):
        if not active[number]:
            continue
        trace.observations.append(np.array(observations[number]))
        if isinstance(agent, Navigator):
            following = agent.phase[number] == FOLLOWING
            trace.waypoints.append(int(agent.waypoint[number]) if following else NOWHERE)
            if number in agent.planned:
                trace.plans.append((step, agent.path(number).tolist()))
            trace.cuts += [(step, u, v) for episode, u, v in agent.blamed if episode == number]


def _reasons(agent: Agent, failed: Bools) -> dict[str, int]:
    if not isinstance(agent, Navigator):
        return {"time": int(failed.sum())}
    lost = failed & (agent.phase == LOST)
    stuck = failed & ~lost & (agent.phase == FOLLOWING) & (agent.attempts >= agent.max_steps)
    counts = (lost.sum(), stuck.sum(), (failed & ~lost & ~stuck).sum())
    return {reason: int(count) for reason, count in zip(REASONS, counts, strict=True)}
