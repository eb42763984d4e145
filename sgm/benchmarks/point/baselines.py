"""Policies without a planner: DDPG and SAC with hindsight replay, from Stable-Baselines3.

They learn from the same environment, training episodes and number of steps as our D3PG, with networks, batches and
optimiser of the same size. Where this differs from Stable-Baselines3:
- Its `HerReplayBuffer` relabels goals and rewards, but not terminations, so that the target at a relabelled arrival
  includes future rewards, and at a real one it does not. Here both end the episode, as in the environment.
- Files hold the actor only, as safetensors with JSON metadata; its own .zip is a pickle, which can run code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

from sgm.envs.point.env import PointMazeEnv
from sgm.errors import InputError, SGMError, StoreError
from sgm.progress import progress_bar

if TYPE_CHECKING:
    from stable_baselines3.her.her_replay_buffer import HerReplayBuffer
    from stable_baselines3.sac.policies import SACPolicy
    from stable_baselines3.td3.policies import TD3Policy

    Policy: TypeAlias = TD3Policy | SACPolicy

NAMES = ("ddpg+her", "sac+her")
EPISODE_STEPS = 20  # of a training episode, as for D3PG

# D3PG's values where it has one. Part of a file's identity: with other values, the networks are trained again.
SETTINGS: dict[str, Any] = {
    "learning_rate": 3e-4,  # Adam, actor and critics
    "batch_size": 64,  # transitions in an update
    "buffer_size": 100_000,  # transitions; holds all of them at the default number of steps
    "learning_starts": 1_000,  # environment steps, with uniform actions, before the first update
    "train_freq": 1,  # environment steps between updates
    "gradient_steps": 1,  # updates each time
    "tau": 0.01,  # soft update of the targets, every step; D3PG: 0.05 every 5 steps
    # D3PG is undiscounted, but its bins end at 20 steps. A plain critic has no such bound: without a discount, the
    # value of a goal that is never reached falls without limit; with this discount, the limit is −100.
    "gamma": 0.99,
}
HINDSIGHT = {"n_sampled_goal": 4, "goal_selection_strategy": "future"}
HIDDEN = [256, 256]  # units of the ReLU layers, actor and critics
NOISE = 1.0  # standard deviation of DDPG's exploration noise; SAC explores by its own randomness
_FORMAT = "sgm-baseline-1"


class Baseline:
    """A trained policy without a planner: `policy(observations, goals)` gives actions."""

    def __init__(self, policy: Policy) -> None:
        """Wrap a policy of Stable-Baselines3 and act without exploration."""
        self.policy = policy

    def __call__(self, observations: ArrayLike, goals: ArrayLike) -> NDArray[np.float32]:
        """(n, 2) observations and (n, 2) goals, row by row, to (n, 2) float32 actions in [−1, 1]."""
        seen, wanted = np.asarray(observations, np.float32), np.asarray(goals, np.float32)
        if not seen.shape == wanted.shape == (len(np.atleast_1d(seen)), 2):
            raise InputError(
                f"observations and goals have shapes {seen.shape} and {wanted.shape}: expected (n, 2) each"
            )
        observation = {"observation": seen, "achieved_goal": seen, "desired_goal": wanted}
        actions, _ = self.policy.predict(observation, deterministic=True)
        return actions.astype(np.float32, copy=False)


def train_baseline(
    name: str,
    maze_settings: Mapping[str, Any] | None = None,
    *,
    steps: int = 30_000,
    seed: int = 0,
    progress: bool = True,
    folder: str | os.PathLike[str],
) -> Baseline:
    """Train a policy, or load it if `folder` holds one trained with the same settings; deterministic for a seed.

    Interrupted training stores nothing and starts over.

    Args:
        name: "ddpg+her" or "sac+her".
        maze_settings: arguments of `PointMazeEnv`; its defaults are the paper's maze and training episodes.
        steps: updates; also the environment steps after the initial 1,000, as D3PG's `iterations`.
        seed: seed of initial weights, exploration, batches and the environment.
        progress: show a progress bar.
        folder: folder of the weights, one file for each combination of settings.
    """
    _require_name(name)
    for what, value, least in (("steps", steps, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**32:
            raise InputError(f"{what} is {value!r}: expected a whole number, {least} or more and less than 2^32")
    _require_packages()
    env = PointMazeEnv(**{"max_episode_steps": EPISODE_STEPS, **(maze_settings or {})})
    run = _describe(name, env, steps, seed)
    path = Path(folder) / f"{name}-seed{seed}-{hashlib.sha256(run.encode()).hexdigest()[:12]}.safetensors"
    if not path.exists():
        _write(path, _train(name, env, steps, seed, progress), run)
    return _read(path, run)


def _require_name(name: str) -> None:
    if name not in NAMES:
        raise InputError(f"name is {name!r}: expected one of {', '.join(map(repr, NAMES))}")


def _require_packages() -> None:
    try:
        import safetensors  # noqa: F401
        import stable_baselines3  # noqa: F401
    except ModuleNotFoundError as error:
        raise SGMError(
            f"the baselines need {error.name}, which is not installed: "
            "pip install 'sparse-graphical-memory[baselines]', or leave the baselines out"
        ) from error


def _describe(name: str, env: PointMazeEnv, steps: int, seed: int) -> str:
    """All settings on which the weights depend, as JSON."""
    drawing = ("action_noise", "noise", "success_radius", "prob_near", "near", "reset_options", "max_episode_steps")
    facts = {
        "name": name,
        "steps": steps,
        "seed": seed,
        "settings": {**SETTINGS, **HINDSIGHT, "hidden": HIDDEN, "noise": NOISE if name == "ddpg+her" else None},
        "environment": {key: getattr(env, key) for key in drawing} | {"maze": str(env.maze)},
    }
    return json.dumps(facts, sort_keys=True, default=lambda value: np.asarray(value).tolist())


def _train(name: str, env: PointMazeEnv, steps: int, seed: int, progress: bool) -> Policy:
    from stable_baselines3 import DDPG, SAC
    from stable_baselines3.common.noise import NormalActionNoise

    from sgm.controllers.d3pg import one_thread

    algorithm: type[DDPG] | type[SAC] = DDPG if name == "ddpg+her" else SAC
    noise = NormalActionNoise(np.zeros(2), np.full(2, NOISE)) if name == "ddpg+her" else None
    shared: dict[str, Any] = {
        **SETTINGS,
        "policy_kwargs": {"net_arch": HIDDEN, "optimizer_kwargs": {"fused": True}},
        "replay_buffer_class": _replay(),
        "replay_buffer_kwargs": HINDSIGHT,
        "seed": seed,
        "device": "cpu",
    }
    total = SETTINGS["learning_starts"] + steps
    bar = progress_bar(shown=progress, total=total, desc=name, unit="step")
    with one_thread(), _same_randomness_afterwards(), bar:
        model = algorithm("MultiInputPolicy", env, action_noise=noise, **shared)
        model.learn(total, callback=lambda *_: bar.update() or True)
    return model.policy


def _replay() -> type[HerReplayBuffer]:
    """Hindsight replay buffer in which relabelled arrivals end the episode as well."""
    from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

    class Replay(HerReplayBuffer):
        def sample(self, batch_size: int, env: Any = None) -> Any:
            samples = super().sample(batch_size, env)
            return samples._replace(dones=(samples.rewards == 0).to(samples.dones))  # reward 0: arrived, otherwise −1

    return Replay


@contextlib.contextmanager
def _same_randomness_afterwards() -> Iterator[None]:
    """Restore the global random generators, which Stable-Baselines3 seeds."""
    import torch

    plain, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (theirs)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(numpy)  # noqa: NPY002


def _write(path: Path, policy: Policy, run: str) -> None:
    from sgm.learning.tensors import write_tensors

    write_tensors(path, policy.actor.state_dict(), {"format": _FORMAT, "run": run})


def _read(path: str | os.PathLike[str], expected: str | None = None) -> Baseline:
    """Load the policy from a file; StoreError if it was trained with other settings than `expected`."""
    from sgm.learning.tensors import read_tensors

    tensors, metadata = read_tensors(path, _FORMAT)
    run = metadata.get("run", "")
    if expected is not None and run != expected:
        raise StoreError(f"{path} holds weights of {run}, not of {expected}: move it away")
    try:
        policy = _untrained(json.loads(run)["name"])
        policy.actor.load_state_dict(tensors)
    except (ValueError, LookupError, TypeError, RuntimeError) as error:
        raise StoreError(f"{path} holds no weights of a baseline ({error}): move it away") from error
    policy.set_training_mode(False)
    return Baseline(policy)


def _untrained(name: str) -> Policy:
    """Make a policy with random weights for the spaces of the point maze."""
    from stable_baselines3 import DDPG, SAC

    _require_name(name)
    place = spaces.Box(0.0, 1.0, (2,), np.float32)
    seen = spaces.Dict({"observation": place, "achieved_goal": place, "desired_goal": place})
    moves = spaces.Box(-1.0, 1.0, (2,), np.float32)
    algorithm: type[DDPG] | type[SAC] = DDPG if name == "ddpg+her" else SAC
    kind: Any = algorithm.policy_aliases["MultiInputPolicy"]
    with _same_randomness_afterwards():
        return kind(seen, moves, lr_schedule=lambda _: 0.0, net_arch=HIDDEN)
