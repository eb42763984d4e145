"""Collect experience in any Gymnasium environment."""

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
    mix: float = 0.0,
    hold: int = 1,
    episode_steps: int | None = None,
    key: str = "observation",
    goal_key: str = GOAL,
    position_key: str | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Experience:
    """Act in an environment, and return the experience.

    Args:
        env: any Gymnasium environment, single or vector, in any autoreset mode.
        steps: number of environment steps in total.
        behaviour: (n, ...) observations of the environment to (n, ...) actions; None: random actions.
        mix: share of random actions if a behaviour is given: with this probability, one random action is held for
            `hold` steps instead of the actions of the behaviour.
        hold: number of steps for which a random action is held; larger values explore farther.
        episode_steps: begin a new episode after so many steps; None: when the environment ends it. It has no effect
            with native vector environments that reset themselves.
        key: the entry of Dict observations to store.
        goal_key: the entry of Dict observations that is the achieved goal, if it exists.
        position_key: the entry of Dict observations with the ground-truth position, for figures and evaluation; None:
            there is none.
        seed: seed of the environment and of random actions.
        options: reset options.
        progress: show a progress bar.
    """
    steps, hold, seed = whole("steps", steps, 1), whole("hold", hold, 1), whole("seed", seed, 0)
    episode_steps = None if episode_steps is None else whole("episode_steps", episode_steps, 1)
    record = _Record(Driver(env, success=_nothing), key, goal_key, position_key)
    actor = _Actor(record.driver, behaviour, mix, hold, seed)
    record.begin(seeds=seed, options=options)
    actor.begin()
    number = record.driver.num_envs
    with progress_bar(shown=progress, total=steps, desc="collect", unit="step", leave=False) as bar:
        while record.steps < steps:
            moving = np.arange(number) < steps - record.steps
            before = record.steps
            ended = record.step(actor.act(moving), moving, episode_steps)
            actor.age[ended] = 0
            if ended.any():
                record.driver.begin(ended, options=options)
                record.start(ended)
            bar.update(record.steps - before)
    return record.experience()


def _nothing(observation: Any, info: Any) -> NDArray[np.bool_]:
    """Return False for each robot: success does not matter here."""
    return np.zeros(count(observation), np.bool_)


class _Actor:
    """Random actions that are held, a behaviour, or stretches of both."""

    def __init__(self, driver: Driver, behaviour: Behaviour | None, mix: float, hold: int, seed: int) -> None:
        if isinstance(mix, bool) or not isinstance(mix, (int, float)) or not 0 <= mix <= 1:
            raise InputError(f"mix is {mix!r}: expected a share from 0 to 1")
        if behaviour is None and mix:
            raise InputError(f"mix is {mix} without a behaviour, where all actions are random: give one, or no mix")
        self.driver, self.behaviour, self.hold = driver, behaviour, hold
        self.share = 1.0 if behaviour is None else mix
        self.random, self.space = np.random.default_rng(seed), driver.env.single_action_space
        self.space.seed(int(self.random.integers(2**31)))

    def begin(self) -> None:
        number = self.driver.num_envs
        self.held, self.age = np.stack([self.space.sample() for _ in range(number)]), np.zeros(number, np.int64)
        self.at_random = np.full(number, self.behaviour is None)

    def act(self, moving: NDArray[np.bool_]) -> NDArray[Any]:
        """Return the (n, ...) actions of all sub-environments."""
        for row in np.flatnonzero(moving & (self.age % self.hold == 0)).tolist() if self.share else ():
            self.at_random[row] = self.share == 1 or self.random.random() < self.share
            if self.at_random[row]:
                self.held[row] = self.space.sample()
        self.age += 1
        if self.behaviour is None:
            return self.held
        actions = np.array(self.behaviour(self.driver.observation))
        if actions.shape == self.held.shape:  # otherwise the driver raises an error
            actions[self.at_random] = self.held[self.at_random]
        return actions


class _Record:
    """The running and the finished episodes."""

    def __init__(self, driver: Driver, key: str, goal_key: str, position_key: str | None) -> None:
        self.driver, self.key, self.goal_key, self.position_key, self.steps = driver, key, goal_key, position_key, 0
        self._over: list[_Episode] = []

    def begin(self, **how: Any) -> None:
        self.driver.begin(**how)
        self._open: list[_Episode | None] = [None] * self.driver.num_envs
        self.start(np.ones(self.driver.num_envs, np.bool_))

    def start(self, mask: NDArray[np.bool_]) -> None:
        """Begin new episodes with the present observations; those of pending resets begin a step later."""
        for row in np.flatnonzero(mask).tolist():
            self._close(row)
            if not self.driver.resetting[row]:
                self._open[row] = _Episode(*self._entries(self.driver.observation, row))

    def step(self, actions: NDArray[Any], moving: NDArray[np.bool_], limit: int | None) -> NDArray[np.bool_]:
        """Take a step; return (n,) which episodes ended."""
        outcome = self.driver.step(actions, moving)
        self.steps += int(outcome.taken.sum())
        ended = outcome.terminated | outcome.truncated | outcome.lost
        for row in np.flatnonzero(moving).tolist():
            episode = self._open[row]
            if episode is None or not outcome.taken[row]:
                self._open[row] = _Episode(*self._entries(self.driver.observation, row))
                continue
            reward = outcome.reward[row] if outcome.reward.shape == moving.shape else None
            episode.add(actions[row], reward, *self._entries(outcome.observation, row))
            ended[row] |= limit is not None and len(episode.actions) >= limit and not self.driver.begins_itself
        return ended

    def experience(self) -> Experience:
        for row in range(self.driver.num_envs):
            self._close(row)
        done = [episode for episode in self._over if episode.actions]
        if not done:
            raise InputError("no step was taken: give more steps")
        lengths = [len(episode.observations) for episode in done]
        return Experience(
            np.stack([observation for episode in done for observation in episode.observations]),
            np.repeat(np.arange(len(done)), lengths),
            np.stack([action for episode in done for action in (*episode.actions, episode.actions[-1])]),
            _stacked([goal for episode in done for goal in episode.goals]),
            positions=_stacked([position for episode in done for position in episode.positions]),
            rewards=_stacked([reward for episode in done for reward in (*episode.rewards, episode.rewards[-1])]),
            source=f"gym:{name}" if (name := _id(self.driver.env)) else "",
        )

    def _close(self, row: int) -> None:
        if (episode := self._open[row]) is not None:
            self._over.append(episode)
            self._open[row] = None

    def _entries(self, observation: Any, row: int) -> tuple[Any, Any, Any]:
        """Return observation, achieved goal and position of a sub-environment; None where there is none."""
        named = observation if isinstance(observation, Mapping) else {self.key: observation}
        for argument, key in (("key", self.key), ("position_key", self.position_key)):
            if key is not None and key not in named:
                found = ", ".join(observation) if isinstance(observation, Mapping) else "no entries"
                raise InputError(f"{argument} is {key!r}: observations have {found}")
        goal = named[self.goal_key][row] if self.goal_key in named and self.goal_key != self.key else None
        return named[self.key][row], goal, None if self.position_key is None else named[self.position_key][row]


def _stacked(values: list[Any]) -> NDArray[Any] | None:
    return None if values[0] is None else np.stack(values)


def _id(env: Any) -> str | None:
    """Return the id with which an environment was made; None if unknown."""
    inner = [env, getattr(env, "env", None), *getattr(env, "envs", [])[:1]]
    return next((one.spec.id for one in inner if getattr(one, "spec", None) is not None), None)


class _Episode:
    """One episode: observations with achieved goals and positions, and the actions and rewards between them."""

    def __init__(self, observation: Any, goal: Any, position: Any) -> None:
        self.observations, self.goals, self.positions = [observation], [goal], [position]
        self.actions, self.rewards = list[Any](), list[Any]()

    def add(self, action: Any, reward: Any, observation: Any, goal: Any, position: Any) -> None:
        self.actions.append(np.array(action))
        self.rewards.append(reward)
        self.observations.append(observation)
        self.goals.append(goal)
        self.positions.append(position)
