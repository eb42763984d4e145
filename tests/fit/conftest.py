"""A room in which a point is moved: a goal environment without a simulator."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Room(gymnasium.Env):
    """A point in the unit square; it is at its goal within 0.15."""

    def __init__(self, speed: float = 0.1) -> None:
        box = spaces.Box(-1, 2, (2,), np.float32)
        self.observation_space = spaces.Dict({"observation": box, "achieved_goal": box, "desired_goal": box})
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)
        self.speed = speed

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.random((2, 2)).astype(np.float32)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.place = np.clip(self.place + self.speed * np.asarray(action, np.float32), 0, 1)
        won = bool(np.linalg.norm(self.place - self.goal) < 0.15)
        return self._seen(), float(won), won, False, {"success": won}

    def _seen(self) -> dict[str, Any]:
        return {"observation": self.place.copy(), "achieved_goal": self.place.copy(), "desired_goal": self.goal.copy()}


gymnasium.register("SgmTestRoom-v0", entry_point=Room, max_episode_steps=30)


class OtherGoals(gymnasium.ObservationWrapper):
    """The room, with its goal under another name."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        known: Any = env.observation_space
        self.observation_space = spaces.Dict({"observation": known["observation"], "target": known["desired_goal"]})

    def observation(self, observation: Any) -> dict[str, Any]:
        return {"observation": observation["observation"], "target": observation["desired_goal"]}


gymnasium.register("SgmTestTarget-v0", entry_point=lambda: OtherGoals(Room()), max_episode_steps=30)
