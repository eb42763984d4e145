"""What a run of the SafetyGym benchmark does."""

from __future__ import annotations

import dataclasses
from typing import Any

import sgm

CRITERIA = ("uniform", "perceptual", "incoming", "outgoing", "two-way", "both")  # both: two-way and perceptual
METHODS = ("consptm", *CRITERIA)
AGENTS = ("plain", "persistent")
POLICIES: dict[str, sgm.CleanupPolicy] = {
    "first-failure": sgm.FirstFailure(),  # the paper's
    "second-failure": sgm.SecondFailure(),
    "belief": sgm.Belief(),
    "guarded": sgm.FirstFailure(guard=True),  # the paper's, but the graph is never cut apart
}
SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class SafetySettings:
    """What a run of the benchmark does; everything here decides its result."""

    layouts: tuple[int, ...] = (0,)  # seeds of the rooms
    seeds: tuple[int, ...] = (0,)  # each explores, trains, builds, cleans and is evaluated anew
    methods: tuple[str, ...] = ("consptm", "uniform", "two-way", "both")
    policies: tuple[str, ...] = ("first-failure", "belief")  # of cleanup
    agents: tuple[str, ...] = AGENTS  # who is evaluated; cleanup is done by the plain one
    nodes: int = 900  # of every sparse memory
    candidates: int = 3_000  # observations the memories are built from; the dense one keeps all
    tasks: int = 200  # evaluation episodes of each seed, each seed its own
    episode_steps: int = 300  # steps of an evaluation episode
    cleanup_steps: int = 200_000  # environment steps of cleanup in all
    checkpoints: tuple[int, ...] = (20_000, 50_000, 100_000)  # cleanup steps after which to evaluate
    robots: int = 128  # at once
    workers: int | None = None  # processes that simulate them; None: one for each core
    pretrained: bool = False  # the weights that come with the package, for the default layout
    rollouts: int = 60  # random episodes to learn from
    rollout_steps: int = 1_000  # steps of each
    distance_iterations: int | None = None  # updates of each network; None: as many as make it good
    features_iterations: int | None = None
    controller_iterations: int | None = None

    def __post_init__(self) -> None:
        """Check what no other part checks."""
        for name, known in (("methods", METHODS), ("policies", tuple(POLICIES)), ("agents", AGENTS)):
            unknown = [item for item in getattr(self, name) if item not in known]
            if unknown or not getattr(self, name):
                given = repr(unknown[0]) if unknown else "nothing"
                raise sgm.InputError(f"{name}: got {given}, expected some of {', '.join(known)}")
        for name in ("nodes", "candidates", "tasks", "episode_steps", "robots", "rollouts", "rollout_steps"):
            if getattr(self, name) < 1:
                raise sgm.InputError(f"{name} is {getattr(self, name)}: expected 1 or more")
        if self.cleanup_steps < 0 or not self.seeds or not self.layouts:
            raise sgm.InputError(
                f"cleanup_steps is {self.cleanup_steps}, seeds {self.seeds} and layouts {self.layouts}: expected 0 or "
                "more steps, a seed and a layout"
            )
        if self.candidates > self.rollouts * (self.rollout_steps + 1):
            raise sgm.InputError(
                f"{self.candidates} candidates of {self.rollouts} × {self.rollout_steps + 1} observations: explore for "
                "longer, or take fewer"
            )
        if self.nodes > self.candidates:
            raise sgm.InputError(f"{self.nodes} nodes of {self.candidates} candidates: expected at most as many")
        if self.pretrained and self.layouts != (0,):
            raise sgm.InputError("the weights that come with the package are for layout 0: train for others")

    @property
    def schedule(self) -> list[int]:
        """Cleanup steps at which success is evaluated, the last one included."""
        return sorted({step for step in self.checkpoints if step < self.cleanup_steps} | {self.cleanup_steps} - {0})


# Each has folders of its own, so that runs of some of them make up one of all.
FREE = ("layouts", "seeds", "methods", "policies", "workers")

QUICK: dict[str, Any] = {
    "tasks": 8, "episode_steps": 40, "cleanup_steps": 600, "checkpoints": (300,), "candidates": 300, "nodes": 60,
    "robots": 8, "rollouts": 8, "rollout_steps": 100, "distance_iterations": 30, "features_iterations": 30,
    "controller_iterations": 30,
}  # fmt: skip
