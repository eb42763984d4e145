"""A small maze, an agent in it, and environments that workers in other processes can make."""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

import numpy as np

import sgm
from sgm.distributed.cleaning import CleanupWorker, Crew
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
        time.sleep(3600)


def hanging_env():
    return HangingEnv(2, MAZE, autoreset_mode="Disabled", max_episode_steps=None)


class JournalingWorker(CleanupWorker):
    """Writes down every try in a file of its own when it is made, before anybody else knows of it."""

    def __init__(self, *, how, **more):
        how = dict(how)
        folder = Path(how.pop("journal"))
        self.journal = open(folder / f"{more['name']}.txt", "a", buffering=1)  # noqa: SIM115 (closed with the process)
        (folder / f"{os.getpid()}.pid").touch()
        super().__init__(how=how, **more)

    def _note(self, edges, reached):
        # Under the lock: what is in the journal is what `leave` finds.
        with self._lock:
            for source, target in edges:
                self.journal.write(f"{source} {target} {int(reached)}\n")
                self._source.append(source)
                self._target.append(target)
                self._reached.append(reached)


class JournalingCrew(Crew):
    """Notes the batches that its owner took in, and keeps the journals of its workers in a folder."""

    kind = JournalingWorker

    def __init__(self, navigator, make_env, folder, **how):
        self.taken = []
        super().__init__(navigator, make_env, journal=str(folder), **how)
        take = self.owner.take
        self.owner.take = lambda batch: (self.taken.append(batch), take(batch))[1]


def journal(path):
    """The tries of a worker, (u, v, reached) each; a line that a kill cut short does not count."""
    lines = [line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [(int(u), int(v), bool(int(reached))) for u, v, reached in lines]


def journals(folder):
    """Of all workers, by name."""
    return {path.stem: journal(path) for path in Path(folder).glob("*-*.txt")}


def tries(memory):
    """The tries that a memory's events tell of, in order."""
    _, _, source, target, kind, _ = memory.events()
    known = np.isin(kind, ("reached", "failed"))
    rows = zip(source[known].tolist(), target[known].tolist(), (kind[known] == "reached").tolist(), strict=True)
    return list(rows)


def replayed(memory):
    """A memory as it was built, given the same tries one by one."""
    fresh = build(policy=memory.policy)
    for u, v, reached in tries(memory):
        fresh.record(u, v, reached)
    return fresh
