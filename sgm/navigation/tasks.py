"""Success on given tasks, more of them than there are environments: whoever is done takes the next one."""

from __future__ import annotations

import time
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from sgm.memory import InputError
from sgm.memory.progress import progress_bar

from .evaluation import Agent, Evaluation, rest
from .navigator import FOLLOWING, LOST, Navigator
from .trace import Trace


class Tasks(Protocol):
    """Starts and goals."""

    @property
    def starts(self) -> NDArray[Any]:
        """(n, ...) where episodes begin."""
        ...

    @property
    def goals(self) -> NDArray[Any]:
        """(n, ...) where they should end."""
        ...


def evaluate_tasks(
    agent: Agent, env: VectorEnv[Any, Any, Any], tasks: Tasks, *, traces: int = 0, progress: bool = False
) -> Evaluation:
    """Run one episode for every task.

    Args:
        agent: a `Navigator` (one that cleans is refused: evaluation must not change the memory) or another agent.
        env: a vector of goal environments with disabled autoreset and a step limit, whose reset takes the options
            `starts`, `goals` and `reset_mask`; a negative action, or `env.rest` where actions are continuous, leaves a
            sub-environment alone. `infos["lost"]`, if there is one, says whose simulator died: such an episode has
            failed.
        tasks: starts and goals.
        traces: how many episodes to record, the first ones; what they saw is noted as the true pose.
        progress: show a progress bar.
    """
    if isinstance(agent, Navigator) and agent.clean:
        raise InputError("this navigator cleans (clean=True): evaluate with one that does not")
    return run_tasks(agent, env, tasks, traces=traces, progress=progress)


def run_tasks(
    agent: Agent, env: VectorEnv[Any, Any, Any], tasks: Tasks, *, traces: int = 0, progress: bool = False
) -> Evaluation:
    """`evaluate_tasks` for an agent that may clean as it goes."""
    number, total = env.num_envs, len(tasks.starts)
    successes, steps = np.zeros(total, np.bool_), np.zeros(total, np.int64)
    reasons = {"no path": 0, "waypoint never reached": 0, "time": 0, "simulator lost": 0}
    recorded = [Trace(goal) for goal in tasks.goals[:traces]]
    task = np.full(number, -1)
    waiting = 0
    agent.reset(number)
    observation: dict[str, Any] = {}
    infos: dict[str, Any] = {}
    seconds = 0.0
    with progress_bar(shown=progress, total=total, desc="evaluate", unit="episode", leave=False) as bar:
        while True:
            free = np.flatnonzero(task < 0)[: total - waiting]
            if len(free):
                task[free] = np.arange(waiting, waiting + len(free))
                waiting += len(free)
                observation, infos = _begin(agent, env, tasks, task, free)
            active = task >= 0
            if not active.any():
                break
            begin = time.perf_counter()
            seen = observation[getattr(agent, "senses", "observation")]
            actions = agent.act_many(seen, observation["desired_goal"], active=active)
            seconds += time.perf_counter() - begin
            _note(recorded, agent, infos, task, steps)
            observation, _, terminated, truncated, infos = env.step(rest(env, actions, active))
            steps[task[active]] += 1
            lost = active & np.asarray(infos.get("lost", np.zeros(number)), np.bool_)
            ended = active & (terminated | truncated | lost)
            for place in np.flatnonzero(ended).tolist():
                successes[task[place]] = terminated[place] and not lost[place]
                if not successes[task[place]]:
                    reasons["simulator lost" if lost[place] else _reason(agent, place)] += 1
            bar.update(int(ended.sum()))
            task[ended] = -1
    for row, trace in enumerate(recorded):
        trace.success = bool(successes[row])
    return Evaluation(successes, steps, reasons, seconds / int(steps.sum()), recorded)


def _begin(
    agent: Agent, env: VectorEnv[Any, Any, Any], tasks: Tasks, task: NDArray[np.int64], free: NDArray[np.int64]
) -> tuple[dict[str, Any], dict[str, Any]]:
    mask = np.isin(np.arange(env.num_envs), free)
    chosen = np.maximum(task, 0)
    agent.reset(mask=mask)
    return env.reset(options={"starts": tasks.starts[chosen], "goals": tasks.goals[chosen], "reset_mask": mask})


def _note(
    traces: list[Trace], agent: Agent, infos: dict[str, Any], task: NDArray[np.int64], steps: NDArray[np.int64]
) -> None:
    for place, number in enumerate(task):
        if not 0 <= number < len(traces):
            continue
        trace = traces[number]
        trace.observations.append(np.array(infos["pose"][place]))
        if isinstance(agent, Navigator):
            following = agent.phase[place] == FOLLOWING
            trace.waypoints.append(int(agent.waypoint[place]) if following else -1)
            if place in agent.planned:
                trace.plans.append((int(steps[number]), agent.path(place).tolist()))
            trace.cuts += [(int(steps[number]), u, v) for episode, u, v in agent.blamed if episode == place]


def _reason(agent: Agent, place: int) -> str:
    if not isinstance(agent, Navigator):
        return "time"
    if agent.phase[place] == LOST:
        return "no path"
    stuck = agent.phase[place] == FOLLOWING and agent.attempts[place] >= agent.max_steps
    return "waypoint never reached" if stuck else "time"
