"""Settings of the OGBench benchmark."""

from __future__ import annotations

import dataclasses
from typing import Any

import sgm
from sgm.benchmarks.base import Settings
from sgm.benchmarks.options import EVALUATION, MEMORY, TRAINING, count, option, some_of, steps
from sgm.envs.ogbench.names import POINT_MAZES

METHODS = ("sgm", "uniform", "sorb", "gas", "ttgs", "gcbc", "euclid")
DATASETS = POINT_MAZES
_METHODS = "sgm merges by two-way consistency, sorb is dense; gas and ttgs are planners in the style of these papers"
_DIRECTORY = "folder of official files, NAME.npz (default: ~/.ogbench/data; missing point mazes are generated)"
_TASKS = "the five tasks of OGBench, or other tasks between random cells of a point maze, for tuning"
_MOST_NODES = 1_000  # in memories that are compared at equal numbers of nodes


@dataclasses.dataclass(frozen=True)
class OGBenchSettings(Settings):
    """Settings of a run. The defaults were tuned on random tasks, see docs/ogbench.md."""

    datasets: tuple[str, ...] = option(DATASETS, "names of OGBench datasets", fewest=1, metavar="NAME")
    methods: tuple[str, ...] = some_of(METHODS, METHODS, _METHODS)
    cleanup_steps: int = steps(20_000)
    dataset_dir: str | None = option(None, _DIRECTORY, metavar="FOLDER")
    data_seed: int = option(0, "seed of generated datasets, shared by all seeds of a run", least=0, metavar="SEED")
    tasks: str = option("ogbench", _TASKS, EVALUATION, choices=("ogbench", "random"))
    episodes: int = count(250, "evaluation episodes for each seed, method and phase; tasks alternate", EVALUATION)
    nodes: int = count(800, "approximate number of nodes of each memory except that of ttgs", MEMORY)
    observations: int = count(5_000, "random observations of the dataset from which memories are built", MEMORY)
    max_dist: float = option(20.0, "MaxDist, the longest edge, steps", MEMORY, metavar="STEPS")
    cutoff: float = option(4.0, "distance at which a waypoint counts as reached, steps", MEMORY, metavar="STEPS")
    max_steps: int = count(40, "steps after which the agent gives up a waypoint", MEMORY)
    sorb_dist: float = option(19.0, "MaxDist of sorb, steps", MEMORY, metavar="STEPS")
    gas_observations: int = count(20_000, "random observations from which the nodes of gas are chosen", MEMORY)
    gas_dist: float = option(18.0, "distance between the nodes of gas, steps", MEMORY, metavar="STEPS")
    gas_efficiency: float = option(0.9, "lowest temporal efficiency of states that gas uses", MEMORY, metavar="COSINE")
    ttgs_nodes: int = count(4_000, "observations in the graph of ttgs", MEMORY)
    ttgs_dist: float = option(16.0, "length above which edges of ttgs are penalised, steps", MEMORY, metavar="STEPS")
    ttgs_longest: float = option(24.0, "the longest edge of ttgs, steps", MEMORY, metavar="STEPS")
    agents: int = count(50, "robots that clean up in parallel", MEMORY)
    distance_iterations: int = count(3_000, "gradient updates of the distance", TRAINING)
    controller_iterations: int = count(4_000, "gradient updates of the controller", TRAINING)
    cap: int = option(40, "largest distance, steps", TRAINING, least=2, metavar="STEPS")
    reach: int = count(20, "longest distance to goals in controller training, steps", TRAINING)

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        if self.nodes > min(_MOST_NODES, self.observations):
            most = min(_MOST_NODES, self.observations)
            raise sgm.InputError(f"nodes is {self.nodes}: expected at most {most}, of {self.observations} observations")
        if not self.max_dist < self.cap:
            raise sgm.InputError(f"max_dist is {self.max_dist}: expected less than the cap of the distance, {self.cap}")


QUICK: dict[str, Any] = {
    "datasets": ("pointmaze-medium-stitch-v0",),
    "methods": ("sgm", "uniform", "gcbc"),
    "cleanup_steps": 2_000,
    "episodes": 25,
    "nodes": 400,
    "observations": 2_000,
    "distance_iterations": 1_500,
    "controller_iterations": 1_500,
}
