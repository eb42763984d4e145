"""Settings of the PointEnv benchmark."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from sgm.benchmarks.base import Settings
from sgm.benchmarks.options import EVALUATION, MEMORY, TRAINING, count, option, seed, some_of, steps

METHODS = ("sorb+sgm", "sorb", "d3pg", "ddpg+her", "sac+her", "released")
_METHODS = "methods to run; released is sorb with the authors' k-nearest filter, where a node may be its own successor"
_STARTS = "where cleanup agents start; far: far from the environment's goal, as in the authors' code"
_REPLAY = "size of D3PG's replay buffer, transitions; the authors use 1000"
_MAZE = "FourRooms, U, Tree, Spiral11, Random15, Random15+4, … or a text file with # for walls and . for free cells"


@dataclasses.dataclass(frozen=True)
class PointSettings(Settings):
    """Settings of a run; results depend on all of them."""

    methods: tuple[str, ...] = some_of(METHODS, ("sorb+sgm", "sorb", "d3pg"), _METHODS)
    cleanup_steps: int = steps(50_000)
    checkpoints: tuple[int, ...] = steps((5_000, 10_000, 20_000, 50_000))
    maze: str = option("FourRooms", _MAZE)
    maze_seed: int = seed(0, "seed of a random maze")
    resize: int = count(5, "inflate the cells of the maze by this factor")
    thin: bool = option(True, "walls one cell thick as in the paper, or inflated like free cells", off="--thick")
    episodes: int = count(200, "evaluation episodes for each seed, method and phase", EVALUATION)
    difficulty: float = option(0.95, "goal distance as a share of the largest distance", EVALUATION, metavar="SHARE")
    buffer_size: int = count(1_000, "observations from which memories are built", MEMORY)
    criterion: str = option("two-way", "merging criterion of sorb+sgm", MEMORY)
    policy: str = option("first-failure", "cleanup policy: first-failure, guarded, second-failure or belief", MEMORY)
    by: str = option("distance", "path cost to minimise; sorb always uses hops", MEMORY, choices=("distance", "hops"))
    agents: int = count(50, "agents that clean up in parallel", MEMORY)
    starts: str = option("anywhere", _STARTS, MEMORY, choices=("anywhere", "far"))
    iterations: int = count(30_000, "training iterations of D3PG, and training steps of the baselines", TRAINING)
    replay: int = count(100_000, _REPLAY, TRAINING)

    @property
    def environment(self) -> str:
        """Name of the environment in results."""
        return f"point:{Path(self.maze).stem}-{'thin' if self.thin else 'thick'}"

    def maze_settings(self) -> dict[str, Any]:
        """Arguments of the environment."""
        return {"maze": self.maze, "maze_seed": self.maze_seed, "resize": self.resize, "thin": self.thin}


_CLEANUP: dict[str, Any] = {"cleanup_steps": 1_000, "checkpoints": (500,), "agents": 20}
QUICK: dict[str, Any] = {**_CLEANUP, "episodes": 20, "buffer_size": 200, "iterations": 1_000}
