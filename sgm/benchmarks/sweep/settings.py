"""What a run of the sweep does."""

from __future__ import annotations

import dataclasses
from typing import Any

import sgm
from sgm.benchmarks.base import Settings
from sgm.benchmarks.options import EVALUATION, MEMORY, TRAINING, count, option, seed, some_of, steps

WORLDS = ("point", "safety", "giant")
CRITERIA = ("uniform", "perceptual", "incoming", "outgoing", "two-way", "both")  # both: two-way and perceptual
WIDER = 20  # successors of a node in "wider"
DENSE = ("dense", "wider", "released")  # wider, released: dense, but with other successors; PointEnv only
METHODS = ("dense", *CRITERIA, "wider", "released", "consolidated", "verified")
AGENTS = ("plain", "persistent")
POLICIES: dict[str, sgm.CleanupPolicy] = {
    "first-failure": sgm.FirstFailure(),  # the paper's
    "guarded": sgm.FirstFailure(guard=True),  # the paper's, but the graph is never cut apart
    "spares": sgm.FirstFailure(guard=True, spares=True),  # guarded, and longer edges are let in where it would be cut
    "belief": sgm.Belief(),
}
_SIZES = "observations that memories are built from"
_WORLDS = "point: PointEnv; safety: SafetyGym's rooms; giant: OGBench's giant point maze"
_METHODS = (
    f"dense is SoRB's or ConSPTM's memory; wider has {WIDER} successors a node instead of 5, released those of the "
    "authors' code, where a node may be its own (both point only); in consolidated, two-way, nodes keep their middle "
    "observation; verified is that without the edges that the robot's own motion speaks against (safety only); the "
    "others name how observations are merged"
)
_AGENTS = "who is evaluated in safety; the persistent one avoids what failed for the rest of an episode"
_NODES = "nodes of a sparse memory in safety and giant, but never more than nine in ten observations"
_PRETRAINED = "use the networks that come with the package in safety, which have not seen the seed's exploration"
_LARGEST = "nodes of the largest dense memory; larger ones are left out, and the page says so"


@dataclasses.dataclass(frozen=True)
class SweepSettings(Settings):
    """What a run of the sweep does; everything here decides its result."""

    worlds: tuple[str, ...] = some_of(WORLDS, WORLDS, _WORLDS)
    sizes: tuple[int, ...] = option(
        (1_000, 2_000, 5_000, 10_000, 20_000, 50_000), _SIZES, least=10, fewest=1, metavar="N"
    )
    methods: tuple[str, ...] = some_of(METHODS, METHODS, _METHODS)
    policies: tuple[str, ...] = some_of(POLICIES, ("first-failure",), "when cleanup removes an edge")
    cleanup_steps: int = steps(50_000)
    robots: int = count(10, "robots that clean up at once", MEMORY)
    checkpoints: tuple[int, ...] = steps((1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000))
    episodes: int = count(200, "evaluation episodes of each world, size, seed, method and stage", EVALUATION)
    agents: tuple[str, ...] = some_of(AGENTS, AGENTS, _AGENTS, EVALUATION)
    sample: int = count(2_000, "observations that thresholds of point are chosen by, one for all sizes", MEMORY)
    layout: int = seed(0, "which rooms of safety, by seed")
    agreeing: int = count(10, "nearest nodes that say together where a start or goal is, in safety", EVALUATION)
    nodes: int = count(900, _NODES, MEMORY)
    largest_dense: int = count(20_000, _LARGEST, MEMORY)
    simulators: int | None = count(None, "processes that simulate safety (default: one for each core)", MEMORY)
    iterations: int = count(30_000, "training iterations of D3PG in point", TRAINING)
    pretrained: bool = option(False, _PRETRAINED, TRAINING, off="--train")
    rollouts: int = count(60, "random episodes in safety that observations are taken from", MEMORY)
    rollout_steps: int = count(1_000, "steps of each of them", MEMORY)


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
