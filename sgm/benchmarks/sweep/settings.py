"""Settings of the sweep."""

from __future__ import annotations

import dataclasses
from typing import Any

import sgm
from sgm.benchmarks.base import Settings
from sgm.benchmarks.options import EVALUATION, MEMORY, TRAINING, count, option, seed, some_of, steps

WORLDS = ("point", "safety", "giant")
CRITERIA = ("uniform", "perceptual", "incoming", "outgoing", "two-way", "both")  # both: two-way and perceptual
WIDER = 20  # successors of a node in "wider"
DENSE = ("dense", "wider", "released")  # wider, released: dense with other successors, PointEnv only
METHODS = ("dense", *CRITERIA, "wider", "released", "consolidated", "verified")
AGENTS = ("plain", "persistent")
POLICIES: dict[str, sgm.CleanupPolicy] = {
    "first-failure": sgm.FirstFailure(),  # the paper's
    "guarded": sgm.FirstFailure(guard=True),  # the paper's, but never disconnects the graph
    "spares": sgm.FirstFailure(guard=True, spares=True),  # guarded, and spare edges are let in
    "belief": sgm.Belief(),
}
_SIZES = "numbers of observations from which memories are built"
_WORLDS = "point: PointEnv; safety: SafetyGym's rooms; giant: OGBench's giant point maze"
_METHODS = (
    f"dense is SoRB's or ConSPTM's memory; wider has {WIDER} successors per node instead of 5; released has those of "
    "the authors' code, where a node may be its own successor (both point only); consolidated is two-way, with the "
    "middle observation of each node; verified is consolidated without edges that contradict the robot's odometry "
    "(safety only); the others are merging criteria"
)
_AGENTS = "agents to evaluate in safety; persistent avoids failed edges for the rest of an episode"
_NODES = "nodes of a sparse memory in safety and giant, at most 90 % of the observations"
_PRETRAINED = "use the networks shipped with the package in safety; they were not trained on the seed's exploration"
_LARGEST = "largest number of nodes of a dense memory; larger ones are left out, and the report says so"


@dataclasses.dataclass(frozen=True)
class SweepSettings(Settings):
    """Settings of a run; results depend on all of them."""

    worlds: tuple[str, ...] = some_of(WORLDS, WORLDS, _WORLDS)
    sizes: tuple[int, ...] = option(
        (1_000, 2_000, 5_000, 10_000, 20_000, 50_000), _SIZES, least=10, fewest=1, metavar="N"
    )
    methods: tuple[str, ...] = some_of(METHODS, METHODS, _METHODS)
    policies: tuple[str, ...] = some_of(POLICIES, ("first-failure",), "when cleanup removes an edge")
    cleanup_steps: int = steps(50_000)
    robots: int = count(10, "robots that clean up in parallel", MEMORY)
    checkpoints: tuple[int, ...] = steps((1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000))
    episodes: int = count(200, "evaluation episodes for each world, size, seed, method and stage", EVALUATION)
    agents: tuple[str, ...] = some_of(AGENTS, AGENTS, _AGENTS, EVALUATION)
    sample: int = count(2_000, "observations to choose thresholds on in point, the same for all sizes", MEMORY)
    layout: int = seed(0, "seed of the room layout of safety")
    agreeing: int = count(10, "number of nearest nodes that localise a start or goal, in safety", EVALUATION)
    nodes: int = count(900, _NODES, MEMORY)
    largest_dense: int = count(20_000, _LARGEST, MEMORY)
    simulators: int | None = count(None, "processes that simulate safety (default: one for each core)", MEMORY)
    iterations: int = count(30_000, "training iterations of D3PG in point", TRAINING)
    pretrained: bool = option(False, _PRETRAINED, TRAINING, off="--train")
    rollouts: int = count(60, "random episodes in safety from which observations are drawn", MEMORY)
    rollout_steps: int = count(1_000, "steps of each of these episodes", MEMORY)


QUICK: dict[str, Any] = {
    "worlds": ("point",),
    "sizes": (100, 200),
    "sample": 100,
    "cleanup_steps": 500,
    "checkpoints": (200,),
    "episodes": 10,
    "largest_dense": 200,
    "iterations": 500,
}
