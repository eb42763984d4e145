"""PointEnv, the paper's first benchmark: a point in a maze, distance and controller learned together by D3PG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.base import Benchmark, Draws, Method, Piece, Row
from sgm.benchmarks.engine import rollout
from sgm.benchmarks.networks import train_once
from sgm.benchmarks.results import write_json
from sgm.benchmarks.seeds import Purpose
from sgm.benchmarks.shown import Shown
from sgm.envs.outlines import outline
from sgm.envs.point.env import PointMazeVectorEnv
from sgm.navigation import PolicyAgent, Stream, View, agents
from sgm.navigation.beside import Floor

from .report import console, report
from .settings import QUICK, PointSettings

EPISODE_STEPS = 600
TRAINING_ENVS = 20  # stepped together, once every TRAINING_ENVS iterations
TRAINING_EPISODE_STEPS = 20
ATTEMPTS = 8  # episodes that are searched for one with a failed edge, for a figure
# The paper's settings (appendix, PointEnv).
MAX_DIST, K = 10.0, 5
_SGM: dict[str, Any] = {"tau_a": 5.0, "tau_p": 0.05, "max_dist": MAX_DIST}
_SORB: dict[str, Any] = {"criterion": "none", "max_dist": 6.0}
_UNIFORM = {"uniform": True}


def make_env(settings: PointSettings, number: int, steps: int | None = EPISODE_STEPS) -> PointMazeVectorEnv:
    """Make a vector environment of `number` mazes with episodes of `steps` steps."""
    return PointMazeVectorEnv(number, autoreset_mode="Disabled", max_episode_steps=steps, **settings.maze_settings())


def check(settings: PointSettings) -> None:
    """Raise an error if the maze, the difficulty or the memory settings are invalid."""
    make_env(settings, 1).reset(seed=0, options={"difficulty": settings.difficulty})
    sgm.SparseGraphicalMemory(None, **_sgm_settings(settings, size=1))
    if "released" in settings.methods and settings.policy != "first-failure":
        raise sgm.InputError(f"policy is {settings.policy!r}: the method released needs first-failure, the authors'")


def learn(piece: Piece) -> tuple[Any, Any]:
    """Distance and controller of a seed: loaded, or trained if missing."""
    from sgm.controllers.d3pg import Actor, D3PGConfig, train
    from sgm.distances.sorb import DistributionalDistance, GoalNetworks

    def learned(checkpoint: Path) -> Any:
        maze = piece.settings.maze_settings()
        stream = Stream(PointMazeVectorEnv(TRAINING_ENVS, max_episode_steps=TRAINING_EPISODE_STEPS, **maze))
        config = D3PGConfig(iterations=piece.settings.iterations, capacity=piece.settings.replay)
        seed = piece.seed_for(Purpose.TRAINING)
        return train(stream, config, seed=seed, progress=piece.progress, checkpoint=checkpoint, resume=True)

    path = piece.folder / "weights.safetensors"
    what = f"distance and controller, {piece.settings.iterations:,} iterations"
    train_once(piece, path, what, learned, lambda learner: learner.save(path))
    networks = GoalNetworks.load(path)
    # Computed by torch, as all published rows: compiled code rounds differently.
    return DistributionalDistance(networks, compiled=False), Actor(networks, compiled=False)


def make_buffer(piece: Piece) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """(n, 2) observations spread evenly over the maze, as in the authors' code, and their (n, 2) cells."""
    env = make_env(piece.settings, piece.settings.buffer_size)
    observations = env.reset(seed=piece.seed_for(Purpose.BUFFER), options=_UNIFORM)[0]["observation"]
    return observations, env.to_cells(observations)


def build_sgm(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build the memory of SoRB + SGM, before the k-nearest filter."""
    size = None
    if piece.settings.criterion == "uniform":  # as many nodes as two-way consistency keeps
        twin = {**_sgm_settings(piece.settings), "criterion": "two-way"}
        size = len(_build(piece, twin))
    return _build(piece, _sgm_settings(piece.settings, size))


def build_sorb(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build the dense memory of SoRB, before the k-nearest filter."""
    return _build(piece, {**_SORB, "k": None, "policy": piece.settings.policy})


def build_released(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build the memory of SoRB with the successors that the authors' code keeps."""
    memory = build_sorb(piece)
    memory.filter(K)
    drop_for_itself(memory)
    return memory


def drop_for_itself(memory: sgm.SparseGraphicalMemory) -> None:
    """Drop the farthest of k successors of each node whose distance to itself would make it one of its own successors.

    The authors' SoRB has an edge from every node to itself, and its k-nearest filter counts that edge.
    """
    edges, vectors = memory.edges(), memory.embeddings
    itself = np.array([memory.distance(vector[None], vector[None])[0, 0] for vector in vectors])
    number = np.bincount(edges.source, minlength=len(memory))
    farthest = np.lexsort((edges.weight, edges.source))[np.cumsum(number)[number == memory.settings.k] - 1]
    farthest = farthest[edges.weight[farthest] > itself[edges.source[farthest]]]
    source, target = edges.source[farthest], edges.target[farthest]
    memory.record_many(source, target, np.zeros(len(farthest), np.bool_))


def cleanup_reset(piece: Piece) -> dict[str, Any]:
    """Reset options that decide where cleanup agents start."""
    return _UNIFORM if piece.settings.starts == "anywhere" else {"difficulty": piece.settings.difficulty}


def _sgm_settings(settings: PointSettings, size: int | None = None) -> dict[str, Any]:
    size = size if settings.criterion == "uniform" else None
    return {**_SGM, "criterion": settings.criterion, "k": None, "policy": settings.policy, "size": size}


def _build(piece: Piece, settings: Mapping[str, Any]) -> sgm.SparseGraphicalMemory:
    observations, cells = piece.buffer
    memory = sgm.SparseGraphicalMemory(piece.networks[0], **settings)
    memory.extend(observations, attributes={"position": cells}, progress=piece.progress)
    return memory


def make_agent(piece: Piece, method: str, memory: Any, _name: str | None, clean: bool) -> Any:
    """Make the agent of a method: a navigator, or a policy without a memory."""
    if method == "sorb+sgm":
        return agents.sgm(memory, piece.networks[1], by=piece.settings.by, clean=clean)
    if method in ("sorb", "released"):
        return agents.sorb(memory, piece.networks[1], clean=clean)
    if method == "d3pg":
        return PolicyAgent(piece.networks[1])
    from .baselines import train_baseline

    how = {"steps": piece.settings.iterations, "seed": piece.seed_for(Purpose.TRAINING), "progress": piece.progress}
    piece.say(f"training {method}, {piece.settings.iterations:,} steps")
    maze = piece.settings.maze_settings()
    return PolicyAgent(train_baseline(method, maze, folder=piece.folder / method, **how))


def record_episode(piece: Piece, method: str, path: Path, row: Row) -> None:
    """Search for an episode in which an edge fails, the robot replans and arrives, and store it for a figure."""
    kept = piece.folder / method / "episode.json"
    if kept.exists() or not (row["successes"] and row["edges"]):
        return
    env, seed = make_env(piece.settings, 1), piece.seed_for(Purpose.EPISODE)
    for attempt in range(ATTEMPTS):
        agent = piece.make_agent(method, piece.load(path), clean=True)
        tasks = Draws(seed + attempt, {"difficulty": piece.settings.difficulty})
        trace = rollout(agent, env, tasks, traces=1).traces[0]
        if trace.success and 1 <= len(trace.cuts) <= 4:
            write_json(kept, trace.asdict())
            return


def floor(piece: Piece) -> Floor:
    """Walls of the maze."""
    return Floor(outline(make_env(piece.settings, 1).maze.walls), "rc", "cells")


def view(_piece: Piece, env: PointMazeVectorEnv) -> View:
    """Positions of the points."""
    return View(lambda _: env.positions, lambda _: env.goals)


_BASELINES = {"baselines": ("stable_baselines3", "safetensors")}

BENCHMARK = Benchmark(
    name="point",
    label="PointEnv",
    title="SoRB, SoRB + SGM and agents without a memory",
    description="Train a distance and a controller, build the memories, evaluate them before and after the k-nearest "
    "filter, clean up, evaluate again, and write results.json, memories, weights, figures and report.html. Takes a few "
    "minutes on two cores. An interrupted run resumes when the same command is given again.",
    settings=PointSettings,
    quick=QUICK,
    methods={
        "sorb+sgm": Method("SoRB + SGM", build=build_sgm, filter=K),
        "sorb": Method("SoRB", build=build_sorb, filter=K),
        "d3pg": Method("D3PG"),
        "ddpg+her": Method("DDPG + HER", learned=False, extras=_BASELINES),
        "sac+her": Method("SAC + HER", learned=False, extras=_BASELINES),
        "released": Method("SoRB, as released", build=build_released),
    },
    environment=lambda piece: piece.settings.environment,
    env=lambda piece: make_env(piece.settings, piece.settings.episodes),
    cleanup_env=lambda piece: make_env(piece.settings, piece.settings.agents, steps=None),
    cleanup_reset=cleanup_reset,
    tasks=lambda piece: Draws(piece.seed_for(Purpose.TASKS), {"difficulty": piece.settings.difficulty}),
    check=check,
    learn=learn,
    distance=lambda piece: (piece.networks[0], None),
    buffer=make_buffer,
    agent=make_agent,
    record=record_episode,
    shown=Shown(floor=floor, view=view, stream=lambda piece, _: piece.buffer[0]),
    report=report,
    console=console,
    robots="agents",
    added={"starts": "anywhere", "replay": 100_000},
    paper_command="sgm run point --cleanup-steps 400000",
    extras={"learn": ("torch", "safetensors"), "viz": ("matplotlib",)},
)
