"""A small maze, an agent in it, and environments that workers in other processes can make."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np

import sgm
from sgm.envs.point.env import PointMazeVectorEnv
from sgm.envs.point.mazes import load_maze
from sgm.navigation import Navigator

MAZE = load_maze("FourRooms", resize=3, thin=True)
SETTINGS = {"tau_p": 0.05, "tau_a": 2.5, "max_dist": 5.0, "k": 8}


class BlindDistance:
    """Steps in a straight line, whatever walls there are."""

    fingerprint = "straight through walls"

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        return np.linalg.norm((starts[:, None] - goals) * MAZE.size, axis=-1).astype(np.float32)


class StraightOn:
    """A controller that knows no walls, with noise of its own."""

    def __init__(self, seed=0):
        self.random = np.random.default_rng(seed)

    def __call__(self, observations, goals):
        way = (np.asarray(goals) - observations) * MAZE.size
        return np.clip(way + self.random.normal(0, 0.05, way.shape), -1, 1)


def make_env(number=4):
    return PointMazeVectorEnv(number, MAZE, autoreset_mode="Disabled", max_episode_steps=None, action_noise=0.2)


def observations(number=150, seed=1):
    return make_env(number).reset(seed=seed, options={"uniform": True})[0]["observation"]


def build(path=None, policy="first-failure", **settings):
    how = {**SETTINGS, "policy": policy, **settings}
    if path is None:
        memory = sgm.SparseGraphicalMemory(BlindDistance(), **how)
    else:
        memory = sgm.SparseGraphicalMemory.open(path, BlindDistance(), **how)
    if not len(memory):
        memory.extend(observations())
    return memory


def agent(memory):
    return Navigator(memory, StraightOn(), max_steps=8, cutoff=1.5)


ENV = functools.partial(make_env, 4)
HOW = {"episode_steps": 60, "options": {"uniform": True}}


class Breaking:
    """Environments that fail or kill their process when a file says so, or after so many steps."""


def raising_env():
    raise RuntimeError("no display")


class RaisingEnv(PointMazeVectorEnv):
    def step(self, actions):
        raise ValueError("the simulator broke")


def env_that_raises():
    return RaisingEnv(2, MAZE, autoreset_mode="Disabled", max_episode_steps=None)


class DyingEnv(PointMazeVectorEnv):
    """Kills its own process at a random step, as long as there is a token for it in a folder."""

    def __init__(self, tokens, chance, *args, **settings):
        super().__init__(*args, **settings)
        self.tokens, self.chance = Path(tokens), chance
        self.dice = np.random.default_rng(int.from_bytes(os.urandom(4), "little"))

    def step(self, actions):
        if self.dice.random() < self.chance:
            for token in self.tokens.glob("*"):
                try:
                    token.unlink()
                except FileNotFoundError:
                    continue
                os.kill(os.getpid(), 9)
        return super().step(actions)


def dying_env(tokens, chance=0.05):
    return DyingEnv(tokens, chance, 4, MAZE, autoreset_mode="Disabled", max_episode_steps=None, action_noise=0.2)


class HangingEnv(PointMazeVectorEnv):
    def step(self, actions):
        import time

        time.sleep(3600)


def hanging_env():
    return HangingEnv(2, MAZE, autoreset_mode="Disabled", max_episode_steps=None)
