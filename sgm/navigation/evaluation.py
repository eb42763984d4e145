"""Evaluation: success on the goals of the environment, without changing the memory."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError
from sgm.memory.settings import whole
from sgm.progress import progress_bar

from .navigator import FOLLOWING, LOST, NOWHERE, Navigator, entry
from .record import Recorder
from .reset_options import OptionCycle, Options
from .rollout import Driver, Env, Outcome
from .trace import Trace

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
FAR = "no node near the start"
FAR_GOAL = "no node near the goal"
CUT_OFF = "start not connected to goal"
STUCK = "waypoint not reached"
TIME = "time"
DIED = "simulator lost"
ENOUGH = 3  # fewest episodes for a warning that the environment reports no success
LONGEST_DRAIN = 100_000  # most steps while waiting for the environment to begin new episodes
REASONS = (FAR, CUT_OFF, STUCK, TIME)
RARE = (FAR_GOAL, DIED)  # reported only if they occur


class Agent(Protocol):
    """Acts for a batch of episodes: a navigator, or a policy without a memory."""

    def reset(self, episodes: int | None = None, mask: Bools | None = None) -> None:
        """Begin episodes."""
        ...

    def act_many(self, observations: Any, goals: Any, *, active: Bools | None = None) -> NDArray[Any]:
        """Return the actions of a batch."""
        ...


class PolicyAgent:
    """An agent without a memory: a goal-conditioned policy whose target is always the goal."""

    def __init__(self, policy: Any, acts_on: str = "observation") -> None:
        """Use a policy as a `Controller`, on the entry `acts_on` of Dict observations."""
        self.policy, self.acts_on = policy, acts_on
        self._before: Any = None
        self._new = np.empty(0, np.bool_)

    def reset(self, episodes: int | None = None, mask: Bools | None = None) -> None:
        """Begin new episodes, all or those of the mask: their previous observations are dropped."""
        if mask is None:
            self._before, self._new = None, np.ones(episodes or len(self._new), np.bool_)
        else:
            self._new[mask] = True

    def act_many(self, observations: Any, goals: Any, *, active: Bools | None = None) -> NDArray[Any]:
        """Return the actions of the policy."""
        now = entry(observations, self.acts_on, "acts_on")
        if not getattr(self.policy, "uses_previous", False):
            return np.asarray(self.policy(now, goals))
        before = np.array(now)
        if self._before is not None:
            before[~self._new] = self._before[~self._new]
        self._before, self._new = np.array(now), np.zeros(len(now), np.bool_)
        return np.asarray(self.policy(now, goals, previous=before))


class TaskResult(NamedTuple):
    """Result of one task: successes, episodes, and the Wilson 95 % interval of the success rate."""

    successes: int
    episodes: int
    ci95: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Results of a batch of episodes.

    Attributes:
        successes: (n,) bool, whether each episode reached its goal.
        steps: (n,) int64 number of steps of each episode.
        failures: (n,) reason why each episode failed, see `REASONS` and `RARE`; empty for successes.
        stuck_at: (n,) int64 the waypoint that was not reached, if that is the reason; otherwise −1.
        seconds_per_action: mean wall time of choosing an action, s.
        traces: the recorded episodes.
        tasks: (n,) task of each episode: the option "task_id" of its reset, otherwise the index of its options in the
            list; all equal if there is one dict of options.
    """

    successes: Bools
    steps: Ints
    failures: NDArray[np.str_]
    stuck_at: Ints
    seconds_per_action: float
    traces: list[Trace] = dataclasses.field(default_factory=list)
    tasks: NDArray[Any] = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))

    def __repr__(self) -> str:
        """Summary: success rate with its interval, and the reasons of failures."""
        low, high = self.ci95
        why = ", ".join(f"{count} {reason}" for reason, count in self.reasons.items() if count)
        shown = f"{self.successes.sum()} of {self.episodes} = {self.rate:.1%} [{low:.1%}, {high:.1%}]"
        tasks = ", ".join(f"{task}: {each.successes}/{each.episodes}" for task, each in self.by_task.items())
        by_task = f"; by task {tasks}" if len(self.by_task) > 1 else ""
        return f"<Evaluation: {shown}{by_task}{'; failed: ' + why if why else ''}>"

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
        """Mean number of steps of the successful episodes; None if there are none."""
        return float(self.steps[self.successes].mean()) if self.successes.any() else None

    @property
    def by_task(self) -> dict[Any, TaskResult]:
        """Successes, episodes and Wilson 95 % interval of each task, in the order of the tasks."""
        tasks = self.tasks if len(self.tasks) else np.zeros(self.episodes, np.int64)
        found = {}
        for task in dict.fromkeys(tasks.tolist()):
            won = self.successes[tasks == task]
            found[task] = TaskResult(int(won.sum()), len(won), wilson(int(won.sum()), len(won)))
        return found

    @property
    def reasons(self) -> dict[str, int]:
        """Number of failures by reason."""
        found = {reason: int((self.failures == reason).sum()) for reason in (*REASONS, *RARE)}
        return {reason: count for reason, count in found.items() if count or reason in REASONS}

    def asdict(self) -> dict[str, Any]:
        """Return plain numbers, ready for JSON, without the traces; results by task only for several tasks."""
        by_task = {
            str(task): {"successes": each.successes, "episodes": each.episodes, "ci95": list(each.ci95)}
            for task, each in self.by_task.items()
        }
        return {
            "episodes": self.episodes,
            "successes": int(self.successes.sum()),
            "success_rate": self.rate,
            "ci95": list(self.ci95),
            "mean_steps": self.mean_steps,
            "reasons": self.reasons,
            "outcomes": "".join("01"[int(won)] for won in self.successes),
            "seconds_per_action": self.seconds_per_action,
            **({"by_task": by_task} if len(by_task) > 1 else {}),
        }


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion; 95 % by default."""
    if trials < 1 or not 0 <= successes <= trials:
        raise InputError(f"got {successes} successes of {trials} trials: expected 0 to n of n, with n at least 1")
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # The ends are set exactly to 0 and 1, where rounding would give 1e-17 or 0.9999999999999998.
    low = (centre - half) / scale if successes else 0.0
    return low, (centre + half) / scale if successes < trials else 1.0


def paired_difference(first: Bools, second: Bools, z: float = 1.959964) -> tuple[float, float, float]:
    """Return the first success rate minus the second, and both ends of its interval; 95 % by default.

    (n,) and (n,) are outcomes of the same n tasks, so the difficulty of a task does not count as noise. The interval is
    that of Agresti and Min (2005): the Wald interval with half an outcome added to each of the four kinds, which moves
    its centre a little towards 0.
    """
    first, second = np.asarray(first, np.bool_), np.asarray(second, np.bool_)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise InputError(f"got outcomes of shapes {first.shape} and {second.shape}: expected the same tasks, (n,)")
    only_first, only_second, tasks = (first & ~second).sum() + 0.5, (second & ~first).sum() + 0.5, len(first) + 2
    centre = (only_first - only_second) / tasks
    half = z * math.sqrt(only_first + only_second - (only_first - only_second) ** 2 / tasks) / tasks
    return float(first.mean() - second.mean()), float(max(centre - half, -1)), float(min(centre + half, 1))


class Tasks(Protocol):
    """Starts and goals for environments whose reset takes the options `starts` and `goals`."""

    @property
    def starts(self) -> NDArray[Any]:
        """(n, ...) starts of the episodes."""
        ...

    @property
    def goals(self) -> NDArray[Any]:
        """(n, ...) goals of the episodes."""
        ...


def evaluate(
    agent: Agent | Any,
    env: Env,
    episodes: int | None = None,
    *,
    seed: int | None = 0,
    tasks: Tasks | None = None,
    options: Options | None = None,
    goal_from: str | None = None,
    success: Any = None,
    max_steps: int | None = None,
    traces: int = 0,
    recorder: Recorder | None = None,
    progress: bool = False,
) -> Evaluation:
    """Run episodes, one in each sub-environment at a time, and count successes.

    Args:
        agent: a `Navigator` (one with `clean=True` is refused: evaluation must not change the memory), a controller
            whose target is always the goal, or another agent.
        env: a goal environment, single or vector, in any autoreset mode: Dict observations with `observation` and
            `desired_goal`, or any observations with the goal in `info["goal"]` at reset (OGBench).
        episodes: number of episodes; None: one for each sub-environment, or for each task.
        seed: episode i begins with the seed `seed + i`, so that agents meet the same starts and goals for any number of
            sub-environments; None: the environment is not seeded. A native vector environment that resets itself is
            seeded once, with `seed`.
        tasks: starts and goals for the reset of the environment.
        options: reset options, for example {"difficulty": 0.95}; or a list of them, which episodes use in turn, for
            example [{"task_id": 1}, {"task_id": 2}]: results are then also given by task (`Evaluation.by_task`). A
            native vector environment that resets itself accepts no such list.
        goal_from: the entry of observations or info that is the goal, see `Driver`.
        success: how success is determined, see `Driver`; by default from `info`, otherwise from `terminated`.
        max_steps: end episodes after so many steps; None: when the environment ends them.
        traces: number of episodes to record as `Trace`, the first ones.
        recorder: records episodes for the inspector, see `Recorder`.
        progress: show a progress bar.
    """
    if isinstance(agent, Navigator) and agent.clean:
        raise InputError("this navigator cleans (clean=True): evaluate with one that does not")
    return run_episodes(
        agent,
        env,
        episodes,
        seed=seed,
        tasks=tasks,
        options=options,
        goal_from=goal_from,
        success=success,
        max_steps=max_steps,
        traces=traces,
        recorder=recorder,
        progress=progress,
    )


def run_episodes(
    agent: Agent | Any,
    env: Env,
    episodes: int | None = None,
    *,
    seed: int | None = 0,
    tasks: Tasks | None = None,
    options: Options | None = None,
    goal_from: str | None = None,
    success: Any = None,
    max_steps: int | None = None,
    traces: int = 0,
    recorder: Recorder | None = None,
    progress: bool = False,
) -> Evaluation:
    """Like `evaluate`, for an agent that may also clean up."""
    if not hasattr(agent, "act_many"):
        if not callable(agent):
            raise InputError(
                f"agent is {agent!r}: expected a Navigator, or a controller, a function from observations and goals to "
                "actions"
            )
        agent = PolicyAgent(agent)
    driver, chosen = Driver(env, success, goal_from), OptionCycle(options)
    if len(chosen) > 1 and tasks is not None:
        raise InputError(f"got tasks and a list of {len(chosen)} options: give tasks with one dict of options")
    driver.require_one_option(len(chosen))
    seed = None if seed is None else whole("seed", seed, 0)
    max_steps = None if max_steps is None else whole("max_steps", max_steps, 1)
    if episodes is None:
        episodes = driver.num_envs if tasks is None else len(tasks.starts)
    episodes = whole("episodes", episodes, 1)
    if tasks is not None and episodes > len(tasks.starts):
        raise InputError(f"episodes is {episodes!r}: expected 1 to {len(tasks.starts)}, one for each task")
    run = _Run(agent, driver, episodes, None if tasks is not None else seed, tasks, chosen, max_steps)
    run.recorder = recorder
    with progress_bar(shown=progress, total=episodes, desc="evaluate", unit="episode", leave=False) as bar:
        while run.begin_free():
            bar.update(run.step(traces))
    run.warn()
    return run.result()


class _Run:
    """The episodes of an evaluation: which sub-environment runs which episode, and their results."""

    def __init__(
        self,
        agent: Agent,
        driver: Driver,
        episodes: int,
        seed: int | None,
        tasks: Tasks | None,
        options: OptionCycle,
        max_steps: int | None,
    ) -> None:
        self.agent, self.driver, self.total = agent, driver, episodes
        self.seed, self.tasks, self.options, self.max_steps = seed, tasks, options, max_steps
        self.episode = np.full(driver.num_envs, NOWHERE)  # number of the episode in each sub-environment
        self.draining = np.zeros(driver.num_envs, np.bool_)  # counted already, but not yet ended by the environment
        self.begun, self.drained, self.seconds, self.terminated = 0, 0, 0.0, False
        self.by_end = np.zeros(episodes, np.bool_)  # successes that follow only from the end of the episode
        self.successes = np.zeros(episodes, np.bool_)
        self.steps, self.stuck_at = np.zeros(episodes, np.int64), np.full(episodes, NOWHERE)
        self.failures = np.full(episodes, "", f"U{max(map(len, (*REASONS, *RARE)))}")
        self.traces: dict[int, Trace] = {}
        self.recorder: Recorder | None = None
        agent.reset(driver.num_envs)

    def begin_free(self) -> bool:
        """Begin episodes in free sub-environments; return whether any episode is running."""
        free = np.flatnonzero((self.episode == NOWHERE) & ~self.draining)[: self.total - self.begun]
        if len(free):
            mask = np.isin(np.arange(self.driver.num_envs), free)
            self.episode[free] = np.arange(self.begun, self.begun + len(free))
            self.begun += len(free)
            self.agent.reset(mask=mask)
            self.driver.begin(mask, seeds=self._seeds(mask), options=self._options())
            _ = self.driver.goals  # raises InputError for an environment without goals
        return bool((self.episode != NOWHERE).any() or (self.draining.any() and self.begun < self.total))

    def step(self, traces: int) -> int:
        """Take one step in every episode; return how many of them ended."""
        active, observation = (self.episode != NOWHERE) & ~self.driver.resetting, self.driver.observation
        actions: Any = ()
        if active.any():
            begin = time.perf_counter()
            actions = self.agent.act_many(observation, self.driver.goals, active=active)
            self.seconds += time.perf_counter() - begin
            self._trace(traces, observation, active)
            if self.recorder is not None:
                self.recorder.note(self.agent, self.episode, active, observation)
        outcome = self.driver.step(actions, active)
        self.steps[self.episode[outcome.taken]] += 1
        self.terminated |= bool(outcome.terminated.any())
        over = outcome.terminated | outcome.truncated
        ended = outcome.success | over | outcome.lost
        if self.max_steps is not None:
            ended |= outcome.taken & (self.steps[np.maximum(self.episode, 0)] >= self.max_steps)
        ended &= active
        for row in np.flatnonzero(ended).tolist():
            self._end(row, outcome)
        if self.driver.begins_itself:
            self.draining = (self.draining | ended) & ~self.driver.ended
            self.drained = self.drained + 1 if not active.any() else 0
            if self.drained > LONGEST_DRAIN:
                raise InputError(
                    f"an episode continues {LONGEST_DRAIN:,} steps after it was counted, and this vector environment "
                    "cannot be reset from outside: give it a step limit, or autoreset mode DISABLED"
                )
        self.episode[ended] = NOWHERE
        return int(ended.sum())

    def result(self) -> Evaluation:
        """Return the results."""
        if self.driver.success_known:  # info reports success, perhaps only in successful episodes
            wrong = self.successes & self.by_end
            self.successes[wrong], self.failures[wrong] = False, TIME
        if self.recorder is not None:
            self.recorder.settle(self.successes, self.failures)
        for number, trace in self.traces.items():
            trace.success = bool(self.successes[number])
        traces = [self.traces[number] for number in sorted(self.traces)]
        pace = self.seconds / max(1, int(self.steps.sum()))
        came = self.successes, self.steps, self.failures, self.stuck_at
        return Evaluation(*came, pace, traces, self.options.names(self.total))

    def warn(self) -> None:
        """Warn if this environment reports no success at all."""
        told = self.terminated or self.driver.success_known or callable(self.driver.success)
        if isinstance(self.driver.success, str) and not self.driver.success_known:
            raise InputError(
                f"success is {self.driver.success!r}: info had no such entry in any step, only "
                f"{', '.join(self.driver.info) or 'nothing'} in the last one"
            )
        if self.total >= ENOUGH and not told:
            warnings.warn(
                f"none of {self.total} episodes succeeded, and it is unknown whether any could: the environment "
                'terminated none of them, and its info has no "success" or "is_success". If it reports success in '
                "another way, give success=, the name of an entry of info or a function of (observation, info).",
                stacklevel=4,
            )

    def _seeds(self, mask: Bools) -> list[int | None] | None:
        if self.seed is None:
            return None
        return [self.seed + int(number) if new else None for number, new in zip(self.episode, mask, strict=True)]

    def _options(self) -> Any:
        if self.tasks is None:
            return self.options.of(self.episode)
        chosen = np.maximum(self.episode, 0)
        return {**self.options.options[0], "starts": self.tasks.starts[chosen], "goals": self.tasks.goals[chosen]}

    def _end(self, row: int, outcome: Outcome) -> None:
        number = self.episode[row]
        self.successes[number] = outcome.success[row]
        self.by_end[number] = not self.driver.success_known and self.driver.success is None
        if outcome.lost[row]:
            self.failures[number] = DIED
        elif not outcome.success[row]:
            self.failures[number], self.stuck_at[number] = _reason(self.agent, row)
        if self.recorder is not None:
            came = bool(self.successes[number]), str(self.failures[number])
            self.recorder.end(self.agent, int(number), row, *came, outcome.observation)

    def _trace(self, traces: int, observation: Any, active: Bools) -> None:
        """Add a step to the traces of the first episodes."""
        for row, number in enumerate(self.episode.tolist()):
            if active[row] and 0 <= number < traces:
                if number not in self.traces:
                    goal = self.tasks.goals[number] if self.tasks is not None else self.driver.goals[row]
                    self.traces[number] = Trace(goal)
                where = self.driver.info.get("pose") if self.tasks is not None else None
                if where is None:
                    where = entry(observation, getattr(self.agent, "acts_on", "observation"), "acts_on")
                self.traces[number].note(self.agent, row, int(self.steps[number]), where[row])


def _reason(agent: Agent, row: int) -> tuple[str, int]:
    """Return the reason why an episode failed, and the waypoint that was not reached, if that is the reason."""
    if not isinstance(agent, Navigator):
        return TIME, NOWHERE
    if not agent.arrived[row]:  # reasons that were known from the beginning
        signs = {FAR: agent.far_from_nodes, FAR_GOAL: agent.far_from_goal, CUT_OFF: agent.passed_over}
        if wrong := [reason for reason, sign in signs.items() if sign[row]]:
            return wrong[0], NOWHERE
    if agent.phase[row] == LOST:
        return CUT_OFF, NOWHERE
    if agent.phase[row] == FOLLOWING and (agent.given_up[row] or agent.attempts[row] >= agent.max_steps):
        return STUCK, int(agent.waypoint[row])
    return TIME, NOWHERE
