"""Collecting experience in any Gymnasium environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.data import Experience
from sgm.errors import InputError
from sgm.memory.settings import whole
from sgm.progress import progress_bar

from .goals import count
from .navigator import GOAL
from .rollout import Driver, Env

Behaviour = Callable[[Any], NDArray[Any]]


def collect(
    env: Env,
    steps: int,
    *,
    behaviour: Behaviour | None = None,
    hold: int = 1,
    episode_steps: int | None = None,
    key: str = "observation",
    goal_key: str = GOAL,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Experience:
    """Act in an environment and keep what was seen.

    Args:
        env: any Gymnasium environment, single or vector, in any autoreset mode.
        steps: environment steps in all.
        behaviour: (n, ...) observations, as the environment gives them, to (n, ...) actions; None: random actions.
        hold: how many steps a random action is held: more cover more ground.
        episode_steps: begin a new episode after so many steps; None: when the environment ends it, as vector
            environments that reset themselves and cannot be told to always do.
        key: the entry of Dict observations to keep.
        goal_key: the entry of Dict observations that says what is achieved, if there is one.
        seed: of the environment and of random actions.
        options: reset options.
        progress: show a progress bar.
    """
    steps, hold, seed = whole("steps", steps, 1), whole("hold", hold, 1), whole("seed", seed, 0)
    episode_steps = None if episode_steps is None else whole("episode_steps", episode_steps, 1)
    record = _Record(Driver(env, success=_nothing), key, goal_key)
    random, space = np.random.default_rng(seed), record.driver.env.single_action_space
    space.seed(int(random.integers(2**31)))
    record.begin(seeds=seed, options=options)
    number = record.driver.num_envs
    held, age = np.stack([space.sample() for _ in range(number)]), np.zeros(number, np.int64)
    with progress_bar(shown=progress, total=steps, desc="collect", unit="step", leave=False) as bar:
        while record.steps < steps:
            moving = np.arange(number) < steps - record.steps
            if behaviour is None:
                for row in np.flatnonzero(moving & (age % hold == 0)).tolist():
                    held[row] = space.sample()
                actions = held
            else:
                actions = np.asarray(behaviour(record.driver.observation))
            age += 1
            before = record.steps
            ended = record.step(actions, moving, episode_steps)
            age[ended] = 0
            if ended.any():
                record.driver.begin(ended, options=options)
                record.start(ended)
            bar.update(record.steps - before)
    return record.experience()


def _nothing(observation: Any, info: Any) -> NDArray[np.bool_]:
    """Success does not matter here."""
    return np.zeros(count(observation), np.bool_)


class _Record:
    """The episodes under way and those that are over."""

    def __init__(self, driver: Driver, key: str, goal_key: str) -> None:
        self.driver, self.key, self.goal_key, self.steps = driver, key, goal_key, 0
        self._over: list[_Episode] = []

    def begin(self, **how: Any) -> None:
        self.driver.begin(**how)
        self._open: list[_Episode | None] = [None] * self.driver.num_envs
        self.start(np.ones(self.driver.num_envs, np.bool_))

    def start(self, mask: NDArray[np.bool_]) -> None:
        """Open new episodes with what is seen now; where the environment has yet to reset, that is seen later."""
        for row in np.flatnonzero(mask).tolist():
            self._close(row)
            if not self.driver.resetting[row]:
                self._open[row] = _Episode(*self._entries(self.driver.observation, row))

    def step(self, actions: NDArray[Any], moving: NDArray[np.bool_], limit: int | None) -> NDArray[np.bool_]:
        """Take a step; which episodes are over."""
        outcome = self.driver.step(actions, moving)
        self.steps += int(outcome.taken.sum())
        ended = outcome.terminated | outcome.truncated | outcome.lost
        for row in np.flatnonzero(moving).tolist():
            episode = self._open[row]
            if episode is None or not outcome.taken[row]:
                self._open[row] = _Episode(*self._entries(self.driver.observation, row))
                continue
            episode.add(actions[row], *self._entries(outcome.observation, row))
            ended[row] |= limit is not None and len(episode.actions) >= limit and not self.driver.begins_itself
        return ended

    def experience(self) -> Experience:
        for row in range(self.driver.num_envs):
            self._close(row)
        done = [episode for episode in self._over if episode.actions]
        if not done:
            raise InputError("no step was taken: give more steps")
        lengths = [len(episode.observations) for episode in done]
        goals = [goal for episode in done for goal in episode.goals]
        return Experience(
            np.stack([observation for episode in done for observation in episode.observations]),
            np.repeat(np.arange(len(done)), lengths),
            np.stack([action for episode in done for action in (*episode.actions, episode.actions[-1])]),
            np.stack(goals) if goals and goals[0] is not None else None,
        )

    def _close(self, row: int) -> None:
        if (episode := self._open[row]) is not None:
            self._over.append(episode)
            self._open[row] = None

    def _entries(self, observation: Any, row: int) -> tuple[Any, Any]:
        if not isinstance(observation, Mapping):
            return observation[row], None
        if self.key not in observation:
            raise InputError(f"key is {self.key!r}: observations have {', '.join(observation)}")
        return observation[self.key][row], observation[self.goal_key][row] if self.goal_key in observation else None


class _Episode:
    """One episode: a list of observations, what each achieves, and the actions between them."""

    def __init__(self, observation: Any, goal: Any) -> None:
        self.observations, self.goals, self.actions = [observation], [goal], list[Any]()

    def add(self, action: Any, observation: Any, goal: Any) -> None:
        self.actions.append(np.array(action))
        self.observations.append(observation)
        self.goals.append(goal)
