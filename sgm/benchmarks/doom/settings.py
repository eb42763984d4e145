"""What a run of the ViZDoom benchmark does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import sgm
from sgm.envs.doom import mazes as doom_mazes
from sgm.envs.doom.wad import DoomMap

GRAPH_METHODS = ("sptm", "dense", "sptm+sgm", "ours", "ours-random-goals")
METHODS = ("random", "controller", *GRAPH_METHODS)
CLEANED = ("sptm+sgm", "ours", "ours-random-goals")
SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class DoomSettings:
    """What a run of the benchmark does; everything here decides its result."""

    seeds: tuple[int, ...] = (0,)  # each explores, builds, cleans and is evaluated anew, with the same networks
    methods: tuple[str, ...] = ("random", "controller", "sptm", "sptm+sgm", "ours")
    maze_seed: int = 0  # which of our own mazes
    wad: str | None = None  # a map of a WAD instead
    map: str | None = None  # its name, the first one by default
    retexture: bool = False  # a random texture on every wall side of that map
    tasks: int = 100  # evaluation tasks of each level, each seed its own
    episode_steps: int = 200  # steps of an evaluation episode
    cleanup_steps: int = 114_000  # environment steps of cleanup in all
    checkpoints: tuple[int, ...] = (54_000,)  # cleanup steps after which to evaluate
    buffer_episodes: int = 100  # random episodes the memories are built from
    buffer_steps: int = 200  # steps of each
    engines: int = 16  # Doom engines at once
    size: tuple[int, int] = (80, 60)  # width and height of pictures
    distance: str = "contrastive"  # or "closeness", the paper's classifier
    encoder: str = "small"  # or "resnet18", the paper's
    pretrained: bool = False  # the weights that come with the package, for the default maze
    warm_start: bool = False  # training goes on from the weights that come with the package
    rollouts: int = 200  # random episodes to train on
    rollout_steps: int = 1_000  # steps of each
    distance_iterations: int = 4_000  # updates of the distance
    controller_iterations: int = 5_000  # updates of the controller
    network_seed: int = 0  # of exploration for training, and of training

    def __post_init__(self) -> None:
        """Check what no other part checks."""
        unknown = [method for method in self.methods if method not in METHODS]
        if unknown:
            raise sgm.InputError(f"no method is called {unknown[0]!r}: expected some of {', '.join(METHODS)}")
        for name in ("tasks", "episode_steps", "buffer_episodes", "buffer_steps", "engines", "rollouts"):
            if getattr(self, name) < 1:
                raise sgm.InputError(f"{name} is {getattr(self, name)}: expected 1 or more")
        if self.cleanup_steps < 0 or not self.seeds:
            raise sgm.InputError(
                f"cleanup_steps is {self.cleanup_steps} and seeds {self.seeds}: expected 0 or more steps and a seed"
            )
        if self.wad is None and (self.map is not None or self.retexture):
            raise sgm.InputError("--map and --retexture go with --wad, the file that holds the map")
        if self.pretrained and self.warm_start:
            raise sgm.InputError("pretrained weights are not trained: give pretrained or warm_start, not both")
        if (self.pretrained or self.warm_start) and (self.distance, self.encoder) != ("contrastive", "small"):
            raise sgm.InputError("the weights that come with the package are of a small, contrastive distance")
        if self.pretrained and (self.wad is not None or self.maze_seed):
            raise sgm.InputError("the weights that come with the package are for the default maze: train for others")

    @property
    def schedule(self) -> list[int]:
        """Cleanup steps at which success is evaluated, the last one included."""
        return sorted({step for step in self.checkpoints if step < self.cleanup_steps} | {self.cleanup_steps} - {0})

    @property
    def environment(self) -> str:
        """What results call the environment."""
        if self.wad is None:
            return f"doom:maze{self.maze_seed}"
        return f"doom:{Path(self.wad).stem}{':' + self.map if self.map else ''}"

    def load_map(self) -> DoomMap:
        """The map."""
        if self.wad is None:
            return doom_mazes.generate(self.maze_seed)
        doom_map = DoomMap.read(self.wad, self.map)
        if self.retexture:
            doom_map = doom_map.retextured(doom_mazes.TEXTURES, 0, doom_mazes.FLOOR, doom_mazes.CEILING)
        return doom_map


QUICK: dict[str, Any] = {
    "tasks": 4, "cleanup_steps": 600, "checkpoints": (300,), "buffer_episodes": 10, "buffer_steps": 60, "rollouts": 12,
    "rollout_steps": 100, "distance_iterations": 30, "controller_iterations": 30, "engines": 4, "episode_steps": 40,
}  # fmt: skip
