"""The only code that steps environments: any Gymnasium environment as a batch whose episodes begin on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from sgm.errors import InputError

from .reset_options import GOAL, GoalsFromInfo, in_groups

Bools = NDArray[np.bool_]
Env = gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]


class Outcome(NamedTuple):
    """Result of a step of the batch.

    Attributes:
        observation: (n, ...) observations after the step, or a dict of them; the last observation of ended episodes.
        terminated: (n,) bool, as reported by the environment; False if no step was taken.
        truncated: (n,) bool, as reported by the environment; False if no step was taken.
        success: (n,) bool: the goal was reached.
        lost: (n,) bool: the simulator crashed, and the episode was lost.
        info: info of the environment, with arrays over the batch.
        taken: (n,) bool: a step was taken. It is False if the step was spent on a reset.
        reward: (n,) reward of the step, as reported by the environment.
    """

    observation: Any
    terminated: Bools
    truncated: Bools
    success: Bools
    lost: Bools
    info: Mapping[str, Any]
    taken: Bools
    reward: NDArray[Any]


class Driver:
    """A batch of environments, each with its own episode.

    Accepts a single environment, Gymnasium's `SyncVectorEnv` and `AsyncVectorEnv`, and native vector environments, in
    any autoreset mode. `begin` begins episodes. A native vector environment with autoreset cannot be reset from
    outside: its episodes begin when it resets itself (`begins_itself`).

    Idle sub-environments are not stepped if possible: environments with an `idle_action` get that action, and a single
    environment is not stepped. Otherwise they get a valid action, and its result is ignored.

    Attributes:
        env: the vector environment.
        num_envs: number n of sub-environments.
        observation: present observations of all sub-environments.
        info: the last info.
        begins_itself: whether episodes begin only when the environment resets itself.
    """

    def __init__(self, env: Env, success: Any = None, goal_from: str | None = None) -> None:
        """Drive an environment.

        Args:
            env: any Gymnasium environment.
            success: how to determine whether an episode has reached its goal. None: by `info["success"]` or
                `info["is_success"]` if it exists, otherwise by `terminated`. A name: that entry of `info`. A function
                of (observation, info), both of the whole batch, that returns (n,) bool.
            goal_from: the entry of Dict observations, or of `info` at reset, that is the goal. None: `desired_goal` of
                Dict observations if it exists, otherwise `info["goal"]`.
        """
        if not isinstance(env, (gymnasium.Env, VectorEnv)):
            raise InputError(f"env is {env!r}: expected a Gymnasium environment, single or vector")
        if not (success is None or isinstance(success, str) or callable(success)):
            raise InputError(f"success is {success!r}: expected None, the name of an entry of info, or a function")
        if not (goal_from is None or isinstance(goal_from, str)):
            raise InputError(f"goal_from is {goal_from!r}: expected the name of an entry of observations or info")
        self.env: Any = env if isinstance(env, VectorEnv) else _Alone(env)
        if isinstance(getattr(self.env, "single_observation_space", None), spaces.Tuple):
            raise InputError("observations are tuples: expected arrays or a Dict; gymnasium's FlattenObservation helps")
        self.num_envs: int = self.env.num_envs
        self.mode = _mode(self.env)
        base = self.env.unwrapped
        self.idle_action = getattr(base, "idle_action", None)
        told = self.mode == AutoresetMode.DISABLED or isinstance(base, (SyncVectorEnv, AsyncVectorEnv))
        if isinstance(base, AsyncVectorEnv) and not base.shared_memory and self.mode == AutoresetMode.NEXT_STEP:
            told = False  # Gymnasium 1.4 resets such an environment a second time in the step after a requested reset
        self.begins_itself = not (told or self.idle_action is not None)
        self.observation: Any = None
        self.info: Mapping[str, Any] = {}
        self.success = success
        self.goal_from = goal_from
        self._told_goals = GoalsFromInfo(self.num_envs, goal_from or GOAL)
        self.success_known = False  # whether an entry of info has reported success or failure so far
        self.ended = np.zeros(self.num_envs, np.bool_)  # episodes that ended in the last step, idle ones included
        self._over = np.zeros(self.num_envs, np.bool_)  # ended, and not reset yet
        self._filler = _neutral_action(self.env.single_action_space)

    @property
    def resetting(self) -> Bools:
        """(n,) bool, sub-environments whose next step is spent on a reset; they still show the end of an episode."""
        return self._over & (self.mode == AutoresetMode.NEXT_STEP)

    def begin(
        self,
        mask: Bools | None = None,
        *,
        seeds: Sequence[int | None] | int | None = None,
        options: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Begin episodes in the sub-environments of a mask, or in all.

        With `begins_itself`, only the first call resets the environment. `options` are the reset options: one mapping
        for all, or a list with one for each sub-environment.
        """
        first = self.observation is None
        if self.begins_itself and not first:
            return
        if first and self.idle_action is None:  # all of them will be stepped, so all of them must be reset
            mask = None
        if self.begins_itself and isinstance(seeds, (list, tuple)):
            seeds = seeds[0]  # the environment is reset once, as a whole
        for chosen, part in in_groups(options, mask, self.num_envs):
            if part is not None:
                chosen["reset_mask"] = np.array(part, np.bool_)
            observation, self.info = self.env.reset(seed=seeds, options=chosen or None)
            self._told_goals.note(self.info, part)
            self.observation = _copied(observation)
        self._over[slice(None) if mask is None else mask] = False

    def require_one_option(self, different: int) -> None:
        """Raise InputError if episodes need different options but the environment resets itself."""
        if different > 1 and self.begins_itself:
            raise InputError(
                f"got a list of {different} options, but this vector environment resets itself, always with the same "
                "options: give one dict, or use autoreset mode DISABLED or gymnasium's SyncVectorEnv"
            )

    @property
    def goals(self) -> NDArray[Any]:
        """(n, ...) goals of the environment in the running episodes; InputError if it reports none."""
        shown = self.observation if isinstance(self.observation, Mapping) else {}
        if (name := self.goal_from or "desired_goal") in shown:
            return np.asarray(shown[name])
        if self._told_goals.values is None:
            found = f"a Dict with {', '.join(shown)}" if shown else "an array"
            raise InputError(
                f"observations are {found}, and info has no {self._told_goals.name} (an array) when an episode begins: "
                "expected a goal environment, a Dict with observation and desired_goal, or a goal in info. goal_from= "
                "names another entry; a gymnasium.ObservationWrapper can add the goal, see examples/images.py"
            )
        return self._told_goals.values

    def step(self, actions: NDArray[Any], moving: Bools) -> Outcome:
        """Take one step in each sub-environment of `moving`, (n,) bool; the others are not stepped if possible."""
        if self.observation is None:
            raise InputError("no episode has begun: call begin first")
        self._revive(moving)
        taken = moving & ~self.resetting
        observation, reward, terminated, truncated, info = self.env.step(self._complete(actions, taken))
        if not isinstance(info, Mapping):
            raise InputError(f"info is a {type(info).__name__}: expected a dict of arrays; remove DictInfoToList")
        after = observation = _copied(observation)
        self._told_goals.note(info)
        self.ended = np.asarray(terminated | truncated, np.bool_)
        if self.mode == AutoresetMode.SAME_STEP and self.ended.any():
            after = _with_final(observation, self.ended, info)
            info = _final_info(info)
        self.observation, self.info = observation, info
        self._over = self.ended & (self.mode != AutoresetMode.SAME_STEP)
        lost = np.zeros(self.num_envs, np.bool_)
        if self.idle_action is not None and "lost" in info:  # only environments of this package have both
            lost = taken & np.asarray(info["lost"], np.bool_)
        success = taken & self._reached(after, terminated, info) & ~lost
        return Outcome(after, taken & terminated, taken & truncated, success, lost, info, taken, np.array(reward))

    def _revive(self, moving: Bools) -> None:
        """Reset idle sub-environments whose episode is over, because they are stepped with the others."""
        if self.mode == AutoresetMode.DISABLED and self.idle_action is None and (idle := self._over & ~moving).any():
            if isinstance(self.env, _Alone):
                return
            observation, _ = self.env.reset(options={"reset_mask": idle})
            self.observation = _copied(observation)
            self._over[idle] = False

    def _complete(self, actions: Any, taken: Bools) -> Any:
        """Check the actions, and fill in a neutral one for idle sub-environments."""
        actions = self._checked(np.asarray(actions), taken)
        if isinstance(self.env, _Alone):
            return actions if taken.all() else None
        filler = self._filler if self.idle_action is None else self.idle_action
        complete = np.where(taken.reshape((-1,) + (1,) * (actions.ndim - 1)), actions, filler)
        return complete if self.idle_action is not None else complete.astype(actions.dtype)

    def _checked(self, actions: NDArray[Any], taken: Bools) -> NDArray[Any]:
        space = self.env.single_action_space
        shape = (self.num_envs, *(space.shape or ()))
        box = isinstance(space, spaces.Box)
        fits = actions.shape == shape and (actions.dtype.kind in "fiu" if box else actions.dtype.kind in "iub")
        if not fits and taken.any():
            raise InputError(
                f"got actions of shape {actions.shape} and dtype {actions.dtype}: expected {shape}, one for each of "
                f"{self.num_envs} sub-environments, in {space}"
            )
        if not fits:
            actions = np.stack([self._filler] * self.num_envs)
        # Environments of this package accept any precision of actions, and results depend on it.
        return actions if self.idle_action is not None else actions.astype(space.dtype)

    def _reached(self, observation: Any, terminated: Any, info: Mapping[str, Any]) -> Bools:
        """(n,) bool: whether the goal is reached."""
        if callable(self.success):
            return self._flags("what success returned", self.success(observation, info))
        for name in ("success", "is_success") if self.success is None else (self.success,):
            if name in info:
                self.success_known = True
                return self._flags(f"info[{name!r}]", info[name])
        by_end = self.success is None and not self.success_known
        return np.asarray(terminated, np.bool_) & by_end

    def _flags(self, what: str, given: Any) -> Bools:
        values = np.asarray(given)
        if values.dtype == np.object_ and all(isinstance(value, (bool, np.bool_)) for value in values.flat):
            values = values.astype(np.bool_)
        if (
            values.size != self.num_envs
            or values.ndim > 1
            or values.dtype.kind not in "biuf"
            or (values != values).any()
        ):
            raise InputError(
                f"{what} is {given!r}: expected ({self.num_envs},) True or False, one for each sub-environment"
            )
        return values.reshape(self.num_envs).astype(np.bool_)


class Steps(NamedTuple):
    """Transitions of one step of each sub-environment, see `Stream`.

    Attributes:
        before: observations before the step, a dict of (n, ...).
        actions: (n, ...) actions.
        after: observations after the step; the last observation of ended episodes.
        terminated: (n,) bool.
        ended: (n,) bool: terminated or truncated.
        kept: (n,) bool: False if the step was spent on a reset, and is not a transition.
    """

    before: dict[str, NDArray[Any]]
    actions: NDArray[Any]
    after: dict[str, NDArray[Any]]
    terminated: Bools
    ended: Bools
    kept: Bools


class Stream:
    """Endless episodes for online learning: an episode that ends is followed by the next one."""

    def __init__(self, env: Env) -> None:
        """Step this environment."""
        self.driver = Driver(env)
        self.num_envs = self.driver.num_envs
        self.single_observation_space = self.driver.env.single_observation_space
        self.single_action_space = self.driver.env.single_action_space

    @property
    def observation(self) -> dict[str, NDArray[Any]]:
        """Present observations, on which the next actions are chosen."""
        found: dict[str, NDArray[Any]] = self.driver.observation
        return found

    def begin(self, seed: int) -> dict[str, NDArray[Any]]:
        """Begin new episodes in all sub-environments."""
        self.driver.observation = None
        self.driver.begin(seeds=seed)
        return self.observation

    def step(self, actions: NDArray[Any]) -> Steps:
        """Take a step in all sub-environments."""
        before, every = self.observation, np.ones(self.num_envs, np.bool_)
        outcome = self.driver.step(actions, every)
        ended = outcome.terminated | outcome.truncated
        if self.driver.mode == AutoresetMode.DISABLED and ended.any():
            self.driver.begin(ended)
        return Steps(before, actions, outcome.observation, outcome.terminated, ended, outcome.taken)


class _Alone(VectorEnv[Any, Any, Any]):
    """A single environment as a batch of one, which is not stepped when it is idle."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env, self.num_envs = env, 1
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.observation_space = batch_space(env.observation_space, 1)
        self.action_space = batch_space(env.action_space, 1)
        self._last: Any = None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        own = {name: value for name, value in (options or {}).items() if name != "reset_mask"}
        seed = seed[0] if isinstance(seed, (list, tuple)) else seed
        observation, info = self.env.reset(seed=seed, options=own or None)
        going = np.zeros(1, np.bool_)
        self._last = (_batched(observation), np.zeros(1), going, going, _batched_info(info))
        return self._last[0], self._last[-1]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step; without an action (None), return the last result again."""
        if actions is not None:
            action = np.asarray(actions)[0]
            discrete = isinstance(self.single_action_space, spaces.Discrete)
            observation, reward, terminated, truncated, info = self.env.step(int(action) if discrete else action)
            flags = np.array([terminated], np.bool_), np.array([truncated], np.bool_)
            self._last = (_batched(observation), np.asarray(reward)[None], *flags, _batched_info(info))
        return self._last

    def close_extras(self, **_: Any) -> None:
        """Close the environment."""
        self.env.close()


def _mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)


def _neutral_action(space: spaces.Space[Any]) -> NDArray[Any]:
    """Return a valid neutral action: zero, or the value nearest to it."""
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return np.asarray(space.start)
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, space.dtype)
    raise InputError(f"the action space is {space}: expected Discrete, MultiDiscrete, MultiBinary or Box")


def _copied(observation: Any) -> Any:
    """Copy observations, so that the environment cannot overwrite them."""
    if isinstance(observation, Mapping):
        return {name: _copied(values) for name, values in observation.items()}
    return np.array(observation)


def rows_of(observation: Any, rows: Any) -> Any:
    """Select rows of a batch of observations."""
    if isinstance(observation, Mapping):
        return {name: rows_of(values, rows) for name, values in observation.items()}
    return observation[rows]


def _batched(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {name: _batched(values) for name, values in observation.items()}
    return np.asarray(observation)[None]


def _batched_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Add a batch axis of size one to entries that are numbers or arrays; others stay as they are."""
    plain = (bool, int, float, np.generic, np.ndarray)
    return {name: np.asarray(value)[None] if isinstance(value, plain) else value for name, value in info.items()}


def _with_final(observation: Any, ended: Bools, info: Mapping[str, Any]) -> Any:
    """Restore the last observation of each ended episode, which a reset in the same step has replaced."""
    if "final_obs" not in info:
        raise InputError('the autoreset mode is SAME_STEP, but info has no "final_obs" when an episode ends')
    restored, final = _copied(observation), info["final_obs"]
    for row in np.flatnonzero(ended).tolist():
        _put(
            restored,
            row,
            {name: values[row] for name, values in final.items()} if isinstance(final, Mapping) else final[row],
        )
    return restored


def _put(batch: Any, row: int, one: Any) -> None:
    """Write one observation into a row of a batch."""
    if isinstance(batch, dict):
        for name in batch:
            _put(batch[name], row, one[name])
    else:
        batch[row] = one


def _final_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the info of this step with the entries of ended episodes, which a reset in the same step has replaced."""
    final, merged = info.get("final_info"), dict(info)
    if isinstance(final, np.ndarray) or (isinstance(final, Sequence) and not isinstance(final, str)):
        final = _joined(final)
    if not isinstance(final, Mapping):
        return merged
    for name, values in final.items():
        mask = final.get(f"_{name}")
        if name.startswith("_") or mask is None or not isinstance(values, np.ndarray):
            continue
        before = np.asarray(merged.get(name))
        merged[name] = np.where(_like(mask, values), values, before) if before.shape == values.shape else values
    return merged


def _joined(infos: Any) -> dict[str, Any]:
    """Convert infos of single episodes, None if there is none, to arrays over the batch with masks."""
    known = {row: info for row, info in enumerate(infos) if isinstance(info, Mapping)}
    joined: dict[str, Any] = {}
    for name in dict.fromkeys(name for info in known.values() for name in info):
        values = [np.asarray(info[name]) for info in known.values() if name in info]
        if values[0].ndim or values[0].dtype.kind not in "biuf":
            continue
        joined[name], joined[f"_{name}"] = np.zeros(len(infos), values[0].dtype), np.zeros(len(infos), np.bool_)
        for row, info in known.items():
            if name in info:
                joined[name][row], joined[f"_{name}"][row] = info[name], True
    return joined


def _like(mask: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(mask, np.bool_).reshape((-1,) + (1,) * (values.ndim - 1))
