"""What a run of the ViZDoom benchmark does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import sgm
from sgm.benchmarks.base import Settings
from sgm.benchmarks.options import EVALUATION, MEMORY, TRAINING, count, option, seed, some_of, steps
from sgm.envs.doom import mazes
from sgm.envs.doom.wad import DoomMap

# What "verified" is without one of its parts, or with another one in its place.
ABLATIONS = ("both-ways", "verified-one-way", "verified-no-chains", "verified-uniform", "verified-prior")
METHODS = ("random", "controller", "sptm", "dense", "sptm+sgm", "ours", "ours-random-goals", "verified", *ABLATIONS)
_DISTANCE = "kind of distance; closeness is the paper's classifier"
_ENCODER = "network of distance and controller; resnet18 is the paper's and takes hours on a CPU"
_PRETRAINED = "use the weights that come with the package, or train from scratch"
_BUDGET = "environment steps for exploring and cleanup together; it sets buffer-episodes and cleanup-steps"
_EXPLORATION = "share of the budget that is explored with, 0 to 1; the rest is cleanup"
_WARM = "train, but begin with the weights that come with the package: for other maps, with fewer updates"


@dataclasses.dataclass(frozen=True)
class DoomSettings(Settings):
    """What a run of the benchmark does; everything here decides its result."""

    methods: tuple[str, ...] = some_of(METHODS, ("random", "controller", "sptm", "sptm+sgm", "ours"), "methods to run")
    cleanup_steps: int = steps(114_000)
    checkpoints: tuple[int, ...] = steps((54_000,))
    budget: int | None = count(None, _BUDGET)
    exploration: float | None = option(None, _EXPLORATION, metavar="SHARE")
    maze_seed: int = seed(0, "which of our own mazes")
    wad: str | None = option(None, "use a map of this WAD instead of one of our own mazes", metavar="FILE")
    map: str | None = option(None, "its name, for example MAP01 (default: the first map of the WAD)", metavar="NAME")
    retexture: bool = option(False, "put a random texture on every wall side of that map, as SPTM does")
    tasks: int = count(100, "evaluation tasks of each level and seed", EVALUATION)
    episode_steps: int = count(200, "steps of an evaluation episode", EVALUATION)
    buffer_episodes: int = count(100, "random episodes that the memories are built from", MEMORY)
    buffer_steps: int = count(200, "steps of each of them", MEMORY)
    engines: int = count(16, "Doom engines at once", MEMORY)
    pretrained: bool = option(False, _PRETRAINED, TRAINING, off="--train")
    warm_start: bool = option(False, _WARM, TRAINING)
    distance: str = option("contrastive", _DISTANCE, TRAINING, choices=("contrastive", "closeness"))
    encoder: str = option("small", _ENCODER, TRAINING, choices=("small", "resnet18"))
    size: tuple[int, int] = option((80, 60), "size of images in pixels", TRAINING, metavar=("WIDTH", "HEIGHT"))
    rollouts: int = count(200, "random episodes to train on", TRAINING)
    rollout_steps: int = count(1_000, "steps of each of them", TRAINING)
    distance_iterations: int = count(4_000, "updates of the distance", TRAINING)
    controller_iterations: int = count(5_000, "updates of the controller", TRAINING)
    network_seed: int = seed(0, "seed of training; all seeds of a run share the networks", TRAINING)

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        if self.wad is None and (self.map is not None or self.retexture):
            raise sgm.InputError("--map and --retexture go with --wad, the file that holds the map")
        if self.pretrained and self.warm_start:
            raise sgm.InputError("pretrained weights are not trained: give pretrained or warm_start, not both")
        if (self.pretrained or self.warm_start) and (self.distance, self.encoder) != ("contrastive", "small"):
            raise sgm.InputError("the weights that come with the package are of a small, contrastive distance")
        self._split_budget()

    def _split_budget(self) -> None:
        """Let a budget decide how much is explored and how much is cleanup."""
        if self.budget is None and self.exploration is None:
            return
        if self.budget is None or self.exploration is None or not 0 < self.exploration <= 1:
            raise sgm.InputError(
                f"budget is {self.budget}, exploration is {self.exploration}: expected both, a number of environment "
                "steps and the share of it that is explored with, over 0 and up to 1; or neither"
            )
        episodes = int(self.budget * self.exploration + 1e-6) // self.buffer_steps
        if not episodes:
            raise sgm.InputError(
                f"a share of {self.exploration} of {self.budget:,} steps is less than an episode of "
                f"{self.buffer_steps}: give a larger budget or share"
            )
        cleanup = self.budget - episodes * self.buffer_steps if self.exploration < 1 else 0
        object.__setattr__(self, "buffer_episodes", episodes)
        object.__setattr__(self, "cleanup_steps", cleanup)
        object.__setattr__(self, "checkpoints", tuple(steps for steps in self.checkpoints if steps < cleanup))

    @property
    def is_elsewhere(self) -> bool:
        """Whether the map is another one than that of the weights that come with the package."""
        return self.wad is not None or bool(self.maze_seed)

    @property
    def environment(self) -> str:
        """What results call the environment."""
        if self.wad is None:
            return f"doom:maze{self.maze_seed}"
        return f"doom:{Path(self.wad).stem}{':' + self.map if self.map else ''}"

    def load_map(self) -> DoomMap:
        """The map."""
        if self.wad is None:
            return mazes.generate(self.maze_seed)
        doom_map = DoomMap.read(self.wad, self.map)
        return doom_map.retextured(mazes.TEXTURES, 0, mazes.FLOOR, mazes.CEILING) if self.retexture else doom_map


_RUN: dict[str, Any] = {"cleanup_steps": 600, "checkpoints": (300,), "tasks": 4, "episode_steps": 40, "engines": 4}
_DATA = {"buffer_episodes": 10, "buffer_steps": 60, "rollouts": 12, "rollout_steps": 100}
QUICK: dict[str, Any] = {**_RUN, **_DATA, "distance_iterations": 30, "controller_iterations": 30}
