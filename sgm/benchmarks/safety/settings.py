"""What a run of the SafetyGym benchmark does."""

from __future__ import annotations

import dataclasses
from typing import Any

import sgm
from sgm.benchmarks.base import Settings
from sgm.benchmarks.options import EVALUATION, MEMORY, TRAINING, count, option, seed, some_of, steps

CRITERIA = ("uniform", "perceptual", "incoming", "outgoing", "two-way", "both")  # both: two-way and perceptual
METHODS = ("consptm", *CRITERIA)
AGENTS = ("plain", "persistent")
POLICIES: dict[str, sgm.CleanupPolicy] = {
    "first-failure": sgm.FirstFailure(),  # the paper's
    "second-failure": sgm.SecondFailure(),
    "belief": sgm.Belief(),
    "guarded": sgm.FirstFailure(guard=True),  # the paper's, but the graph is never cut apart
}
_METHODS = "consptm is dense, the others name how observations are merged"
_AGENTS = "who is evaluated; the persistent one avoids what failed for the rest of an episode"
_PRETRAINED = "use the weights that come with the package, or train from scratch"


@dataclasses.dataclass(frozen=True)
class SafetySettings(Settings):
    """What a run of the benchmark does; everything here decides its result."""

    layouts: tuple[int, ...] = seed((0,), "which rooms, by seed", metavar="LAYOUT")
    methods: tuple[str, ...] = some_of(METHODS, ("consptm", "uniform", "two-way", "both"), _METHODS)
    policies: tuple[str, ...] = some_of(POLICIES, ("first-failure", "belief"), "when cleanup removes an edge")
    cleanup_steps: int = steps(200_000)
    checkpoints: tuple[int, ...] = steps((20_000, 50_000, 100_000))
    agents: tuple[str, ...] = some_of(AGENTS, AGENTS, _AGENTS, EVALUATION)
    tasks: int = count(200, "evaluation episodes of each layout and seed", EVALUATION)
    agreeing: int = count(1, "nearest nodes that say together where a start or goal is; 1 as in the paper", EVALUATION)
    episode_steps: int = count(300, "steps of an evaluation episode", EVALUATION)
    nodes: int = count(900, "nodes of every sparse memory, about", MEMORY)
    candidates: int = count(3_000, "observations that memories are built from; the dense one keeps all", MEMORY)
    robots: int = count(128, "robots at once", MEMORY)
    simulators: int | None = count(None, "processes that simulate them (default: one for each core)", MEMORY)
    pretrained: bool = option(False, _PRETRAINED, TRAINING, off="--train")
    rollouts: int = count(60, "random episodes to learn from", TRAINING)
    rollout_steps: int = count(1_000, "steps of each of them", TRAINING)
    distance_iterations: int | None = count(None, "updates of the distance (default: 5000)", TRAINING)
    features_iterations: int | None = count(None, "updates of the perceptual features (default: 1500)", TRAINING)
    controller_iterations: int | None = count(
        None, "updates of the controller, whose model has twice as many (default: 1500)", TRAINING
    )

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        explored = self.rollouts * (self.rollout_steps + 1)
        if self.candidates > explored:
            raise sgm.InputError(
                f"{self.candidates} candidates of {explored} observations: explore more, or take fewer"
            )
        if self.nodes > self.candidates:
            raise sgm.InputError(f"{self.nodes} nodes of {self.candidates} candidates: expected at most as many")
        if self.pretrained and self.layouts != (0,):
            raise sgm.InputError("the weights that come with the package are for layout 0: train for others")


_RUN: dict[str, Any] = {"cleanup_steps": 600, "checkpoints": (300,), "tasks": 8, "episode_steps": 40, "robots": 8}
_DATA = {"candidates": 300, "nodes": 60, "rollouts": 8, "rollout_steps": 100}
QUICK: dict[str, Any] = {
    **_RUN,
    **_DATA,
    **dict.fromkeys(("distance_iterations", "features_iterations", "controller_iterations"), 30),
}
