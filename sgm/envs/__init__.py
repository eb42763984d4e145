"""Gymnasium environments of the paper's benchmarks; importing this package registers them without loading them.

Example:
    >>> import gymnasium, sgm.envs
    >>> env = gymnasium.make("sgm/PointMaze-v0")  # training episodes
    >>> env = gymnasium.make("sgm/PointMaze-v0", max_episode_steps=600)  # evaluation episodes
    >>> envs = gymnasium.make_vec("sgm/PointMaze-v0", num_envs=100, max_episode_steps=600)  # arrays, not processes
    >>> env = gymnasium.make("sgm/DoomMaze-v0")  # needs the extra `doom`
    >>> env = gymnasium.make("sgm/SafetyRooms-v0")  # needs the extra `safety`
"""

from __future__ import annotations

import gymnasium

TRAINING_STEPS = 20  # steps of a training episode, the authors'
DOOM_STEPS = 200  # steps of an episode, the paper's
SAFETY_STEPS = 300  # steps of an episode


def _register() -> None:
    """Register environments that are not registered yet: reloading the package must not warn."""
    if "sgm/PointMaze-v0" not in gymnasium.registry:
        gymnasium.register(
            id="sgm/PointMaze-v0",
            entry_point="sgm.envs.point.env:PointMazeEnv",
            vector_entry_point="sgm.envs.point.env:PointMazeVectorEnv",
            max_episode_steps=TRAINING_STEPS,
        )
    if "sgm/DoomMaze-v0" not in gymnasium.registry:
        gymnasium.register(
            id="sgm/DoomMaze-v0",
            entry_point="sgm.envs.doom.env:DoomMazeEnv",
            vector_entry_point="sgm.envs.doom.env:DoomMazeVectorEnv",
            max_episode_steps=DOOM_STEPS,
        )
    if "sgm/SafetyRooms-v0" not in gymnasium.registry:
        gymnasium.register(
            id="sgm/SafetyRooms-v0",
            entry_point="sgm.envs.safety.env:SafetyRoomsEnv",
            vector_entry_point="sgm.envs.safety.env:SafetyRoomsVectorEnv",
            max_episode_steps=SAFETY_STEPS,
        )


_register()
