"""Settings of the ViZDoom benchmark."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import sgm
from sgm.benchmarks.base import Settings
from sgm.benchmarks.options import EVALUATION, MEMORY, TRAINING, count, option, seed, some_of, steps
from sgm.envs.doom import mazes
from sgm.envs.doom.wad import DoomMap

# Ablations of "verified": one part is left out or replaced.
ABLATIONS = ("both-ways", "verified-one-way", "verified-no-chains", "verified-uniform", "verified-prior")
METHODS = ("random", "controller", "sptm", "dense", "sptm+sgm", "ours", "ours-random-goals", "verified", *ABLATIONS)
_STYLE = (8, 0.3)  # rooms along a side of the default maze, and the share of walls that is removed
_DISTANCE = "type of distance; closeness is the paper's classifier"
_ENCODER = "encoder of distance and controller; resnet18 is the paper's and takes hours on a CPU"
_PRETRAINED = "use the weights shipped with the package, or train from scratch"
_BUDGET = "environment steps of exploration and cleanup together; sets buffer-episodes and cleanup-steps"
_EXPLORATION = "share of the budget for exploration, 0 to 1; the rest is for cleanup"
_WARM = "start training from the weights shipped with the package: for other maps, with fewer updates"


@dataclasses.dataclass(frozen=True)
class DoomSettings(Settings):
    """Settings of a run; results depend on all of them."""

    methods: tuple[str, ...] = some_of(METHODS, ("random", "controller", "sptm", "sptm+sgm", "ours"), "methods to run")
    cleanup_steps: int = steps(114_000)
    checkpoints: tuple[int, ...] = steps((54_000,))
    budget: int | None = count(None, _BUDGET)
    exploration: float | None = option(None, _EXPLORATION, metavar="SHARE")
    maze_seed: int = seed(0, "seed of the generated maze")
    maze_rooms: int = count(_STYLE[0], "rooms along a side of the generated maze")
    maze_open: float = option(
        _STYLE[1], "share of the walls that is removed from the generated maze, 0 to 1", least=0, metavar="SHARE"
    )
    wad: str | None = option(None, "use a map of this WAD file instead of a generated maze", metavar="FILE")
    map: str | None = option(None, "name of the map, for example MAP01 (default: the first in the WAD)", metavar="NAME")
    retexture: bool = option(False, "put a random texture on every wall side of the map, as SPTM does")
    tasks: int = count(100, "evaluation tasks for each level and seed", EVALUATION)
    episode_steps: int = count(200, "steps of an evaluation episode", EVALUATION)
    buffer_episodes: int = count(100, "random episodes from which memories are built", MEMORY)
    buffer_steps: int = count(200, "steps of each of these episodes", MEMORY)
    engines: int = count(16, "Doom engines in parallel", MEMORY)
    pretrained: bool = option(False, _PRETRAINED, TRAINING, off="--train")
    warm_start: bool = option(False, _WARM, TRAINING)
    distance: str = option("contrastive", _DISTANCE, TRAINING, choices=("contrastive", "closeness"))
    encoder: str = option("small", _ENCODER, TRAINING, choices=("small", "resnet18"))
    size: tuple[int, int] = option((80, 60), "size of images in pixels", TRAINING, metavar=("WIDTH", "HEIGHT"))
    rollouts: int = count(200, "random episodes to train on", TRAINING)
    rollout_steps: int = count(1_000, "steps of each of these episodes", TRAINING)
    distance_iterations: int = count(4_000, "gradient updates of the distance", TRAINING)
    controller_iterations: int = count(5_000, "gradient updates of the controller", TRAINING)
    network_seed: int = seed(0, "seed of training; all seeds of a run share the networks", TRAINING)

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        if self.wad is None and (self.map is not None or self.retexture):
            raise sgm.InputError("--map and --retexture need --wad, the file that holds the map")
        if self.pretrained and self.warm_start:
            raise sgm.InputError("pretrained weights are not trained further: give pretrained or warm_start, not both")
        if (self.pretrained or self.warm_start) and (self.distance, self.encoder) != ("contrastive", "small"):
            raise sgm.InputError("the shipped weights are for distance contrastive and encoder small: give these")
        self._split_budget()

    def _split_budget(self) -> None:
        """Set the numbers of exploration and cleanup steps from the budget."""
        if self.budget is None and self.exploration is None:
            return
        if self.budget is None or self.exploration is None or not 0 < self.exploration <= 1:
            raise sgm.InputError(
                f"budget is {self.budget}, exploration is {self.exploration}: expected both, a number of environment "
                "steps and the share of it for exploration, over 0 and up to 1; or neither"
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
        """Whether the map differs from the one on which the shipped weights were trained."""
        return self.wad is not None or (self.maze_seed, *self._style) != (0, *_STYLE)

    @property
    def _style(self) -> tuple[int, float]:
        """Rooms along a side of the generated maze, and the share of its walls that is removed."""
        return self.maze_rooms, self.maze_open

    @property
    def environment(self) -> str:
        """Name of the environment in results."""
        if self.wad is None:
            style = "" if self._style == _STYLE else f"-{self.maze_rooms}-{self.maze_open:g}"
            return f"doom:maze{self.maze_seed}{style}"
        return f"doom:{Path(self.wad).stem}{':' + self.map if self.map else ''}"

    def load_map(self) -> DoomMap:
        """Load or generate the map."""
        if self.wad is None:
            return mazes.generate(self.maze_seed, rooms=self.maze_rooms, open_share=self.maze_open)
        doom_map = DoomMap.read(self.wad, self.map)
        return doom_map.retextured(mazes.TEXTURES, 0, mazes.FLOOR, mazes.CEILING) if self.retexture else doom_map


_RUN: dict[str, Any] = {"cleanup_steps": 600, "checkpoints": (300,), "tasks": 4, "episode_steps": 40, "engines": 4}
_DATA = {"buffer_episodes": 10, "buffer_steps": 60, "rollouts": 12, "rollout_steps": 100}
QUICK: dict[str, Any] = {**_RUN, **_DATA, "distance_iterations": 30, "controller_iterations": 30}
