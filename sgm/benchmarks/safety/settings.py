"""Settings of the SafetyGym benchmark."""

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
    "guarded": sgm.FirstFailure(guard=True),  # the paper's, but never disconnects the graph
}
_METHODS = "consptm is dense; the others are merging criteria"
_AGENTS = "agents to evaluate; persistent avoids failed edges for the rest of an episode"
_PRETRAINED = "use the weights shipped with the package, or train from scratch"


@dataclasses.dataclass(frozen=True)
class SafetySettings(Settings):
    """Settings of a run; results depend on all of them."""

    layouts: tuple[int, ...] = seed((0,), "seeds of the room layouts", metavar="LAYOUT")
    methods: tuple[str, ...] = some_of(METHODS, ("consptm", "uniform", "two-way", "both"), _METHODS)
    policies: tuple[str, ...] = some_of(POLICIES, ("first-failure", "belief"), "when cleanup removes an edge")
    cleanup_steps: int = steps(200_000)
    checkpoints: tuple[int, ...] = steps((20_000, 50_000, 100_000))
    agents: tuple[str, ...] = some_of(AGENTS, AGENTS, _AGENTS, EVALUATION)
    tasks: int = count(200, "evaluation episodes for each layout and seed", EVALUATION)
    agreeing: int = count(1, "number of nearest nodes that localise a start or goal; 1 in the paper", EVALUATION)
    episode_steps: int = count(300, "steps of an evaluation episode", EVALUATION)
    nodes: int = count(900, "approximate number of nodes of each sparse memory", MEMORY)
    candidates: int = count(3_000, "observations from which memories are built; the dense one keeps all", MEMORY)
    robots: int = count(128, "robots in parallel", MEMORY)
    simulators: int | None = count(
        None, "processes that simulate the robots, --workers in 0.1.0 (default: one for each core)", MEMORY
    )
    pretrained: bool = option(False, _PRETRAINED, TRAINING, off="--train")
    rollouts: int = count(60, "random episodes to train on", TRAINING)
    rollout_steps: int = count(1_000, "steps of each of these episodes", TRAINING)
    distance_iterations: int | None = count(None, "gradient updates of the distance (default: 5000)", TRAINING)
    features_iterations: int | None = count(None, "gradient updates of the features (default: 1500)", TRAINING)
    controller_iterations: int | None = count(
        None, "gradient updates of the controller; its model gets twice as many (default: 1500)", TRAINING
    )

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        explored = self.rollouts * (self.rollout_steps + 1)
        if self.candidates > explored:
            raise sgm.InputError(
                f"candidates is {self.candidates}: expected at most {explored}, the explored observations: "
                "explore more, or take fewer"
            )
        if self.nodes > self.candidates:
            raise sgm.InputError(f"nodes is {self.nodes}: expected at most {self.candidates}, the candidates")
        if self.pretrained and self.layouts != (0,):
            raise sgm.InputError("the shipped weights are for layout 0: train for other layouts")


_RUN: dict[str, Any] = {"cleanup_steps": 600, "checkpoints": (300,), "tasks": 8, "episode_steps": 40, "robots": 8}
_DATA = {"candidates": 300, "nodes": 60, "rollouts": 8, "rollout_steps": 100}
QUICK: dict[str, Any] = {
    **_RUN,
    **_DATA,
    **dict.fromkeys(("distance_iterations", "features_iterations", "controller_iterations"), 30),
}
