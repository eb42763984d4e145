"""What a run of the PointEnv benchmark does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from sgm.benchmarks.base import Settings
from sgm.benchmarks.options import EVALUATION, MEMORY, TRAINING, count, option, seed, some_of, steps

METHODS = ("sorb+sgm", "sorb", "d3pg", "ddpg+her", "sac+her", "released")
_METHODS = "methods to run; released is sorb with the successors of the authors' code, where a node may be its own"
_STARTS = "where agents begin when they clean up; far is far from the environment's goal, as in the authors' code"
_REPLAY = "transitions that D3PG's replay buffer holds, the last ones; the authors' holds 1000"
_MAZE = "FourRooms, U, Tree, Spiral11, Random15, Random15+4, … or a text file with # for walls and . for free cells"


@dataclasses.dataclass(frozen=True)
class PointSettings(Settings):
    """What a run of the benchmark does; everything here decides its result."""

    methods: tuple[str, ...] = some_of(METHODS, ("sorb+sgm", "sorb", "d3pg"), _METHODS)
    cleanup_steps: int = steps(50_000)
    checkpoints: tuple[int, ...] = steps((5_000, 10_000, 20_000, 50_000))
    maze: str = option("FourRooms", _MAZE)
    maze_seed: int = seed(0, "which of the random mazes")
    resize: int = count(5, "inflate the cells of the maze by this factor")
    thin: bool = option(True, "walls one cell thick as in the paper, or inflated like free space", off="--thick")
    episodes: int = count(200, "evaluation episodes for each seed, method and phase", EVALUATION)
    difficulty: float = option(0.95, "goal distance as a share of the largest", EVALUATION, metavar="SHARE")
    buffer_size: int = count(1_000, "observations that the memories are built from", MEMORY)
    criterion: str = option("two-way", "merging criterion of sorb+sgm", MEMORY)
    policy: str = option("first-failure", "cleanup policy: first-failure, guarded, second-failure or belief", MEMORY)
    by: str = option("distance", "what plans minimise; sorb always counts hops", MEMORY, choices=("distance", "hops"))
    agents: int = count(50, "agents that clean up at once", MEMORY)
    starts: str = option("anywhere", _STARTS, MEMORY, choices=("anywhere", "far"))
    iterations: int = count(30_000, "training iterations of D3PG, and training steps of the baselines", TRAINING)
    replay: int = count(100_000, _REPLAY, TRAINING)

    @property
    def environment(self) -> str:
        """What results call the environment."""
        return f"point:{Path(self.maze).stem}-{'thin' if self.thin else 'thick'}"

    def maze_settings(self) -> dict[str, Any]:
        """What the environment is made with."""
        return {"maze": self.maze, "maze_seed": self.maze_seed, "resize": self.resize, "thin": self.thin}


_CLEANUP: dict[str, Any] = {"cleanup_steps": 1_000, "checkpoints": (500,), "agents": 20}
QUICK: dict[str, Any] = {**_CLEANUP, "episodes": 20, "buffer_size": 200, "iterations": 1_000}
