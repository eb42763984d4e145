"""SafetyGym, the paper's third benchmark: first-person images of rooms, odometry, and all merging criteria."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.base import Benchmark, Method, Piece, Row
from sgm.benchmarks.checks import NUMBER
from sgm.benchmarks.results import read_arrays, read_choice, read_quality, write_arrays, write_json
from sgm.benchmarks.seeds import Purpose
from sgm.benchmarks.shown import Shown, keep_order, read_order
from sgm.envs import outlines
from sgm.envs.safety.layouts import generate
from sgm.navigation import View, agents
from sgm.navigation.beside import Floor

from . import figure_data
from .ground_truth import facts
from .learn import explore, learn
from .report import console, report
from .settings import AGENTS, CRITERIA, METHODS, POLICIES, QUICK, SafetySettings

# All methods share the agent and the settings of building: the paper's MaxSteps and k, and its equations as printed.
# Over neighbours only, node counts jump so much with τ_a that for some networks no order has a threshold for 900.
BUILD: dict[str, Any] = {"max_dist": 9.0, "k": 6, "scope": "memory"}
AGENT: dict[str, Any] = {"max_steps": 25, "radius": 0.3, "ahead": 3}
BY_NAME: dict[str, dict[str, Any]] = {
    "plain": {},  # forgets failed edges
    "persistent": {"penalty": 50.0, "tries": 8},  # avoids failed edges for the rest of the episode
}
CLEANUP_EPISODE = 300


def make_env(piece: Piece, robots: int | None = None) -> Any:
    """Make the vector environment of robots; their images are rendered on demand."""
    from sgm.envs.safety.env import SafetyRoomsVectorEnv

    settings = piece.settings
    return SafetyRoomsVectorEnv(
        robots or settings.robots,
        layout=piece.world,
        workers=settings.simulators,
        images=False,
        max_episode_steps=settings.episode_steps,
    )


def draw_tasks(piece: Piece) -> Any:
    """Draw starts and goals far from each other, different for each layout and seed."""
    from sgm.envs.safety.env import Tasks

    return Tasks.draw(piece.world, piece.settings.tasks, piece.seed_for(Purpose.TASKS))


def make_buffer(piece: Piece) -> dict[str, NDArray[Any]]:
    """Random sample of the exploration, in random order: (n, 64, 64, 3) "frames" and (n, 6) "odometry"."""
    path = piece.folder / "buffer.npz"
    if not path.exists():
        found = piece.rollouts
        frames = found.frames.reshape(-1, *found.frames.shape[2:])
        chosen = np.random.default_rng(piece.seed_for(Purpose.BUFFER)).permutation(len(frames))
        chosen = chosen[: piece.settings.candidates]
        odometry = found.odometry.reshape(len(frames), -1)[chosen]
        write_arrays(path, {"frames": frames[chosen], "odometry": odometry})
    return read_arrays(piece.folder, path.name, "frames", "odometry")


def build_dense(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build the memory of ConSPTM, with all observations."""
    frames, odometry = piece.buffer["frames"], piece.buffer["odometry"]
    memory = sgm.SparseGraphicalMemory(*metric(piece), criterion="none", **BUILD)
    nodes = {"pose": odometry[:, :3], "frame": np.arange(len(frames))}
    memory.extend(frames, attributes=nodes, progress=piece.progress)
    return memory


def build_sparse(piece: Piece, method: str) -> sgm.SparseGraphicalMemory:
    """Build the memory of a merging criterion, with the threshold that gives about `settings.nodes` nodes."""
    distance, features = metric(piece)
    choice = sgm.choose_threshold(
        distance,
        piece.buffer["frames"],
        piece.settings.nodes,
        features=features,
        seed=piece.seed_for(Purpose.THRESHOLD),
        criterion="two-way" if method == "both" else method,
        tau_p="auto" if method == "both" else None,
        policy="first-failure",  # replaced by the policy of the chain when the file is loaded
        progress=piece.progress,
        **BUILD,
    )
    write_json(piece.folder / method / "choice.json", choice.asdict())
    keep_order(piece, method, choice.order)
    choice.memory.attributes["pose"] = piece.buffer["odometry"][choice.stream, :3]
    choice.memory.attributes["frame"] = choice.stream
    return choice.memory


def _merging(name: str) -> Method:
    """Declare the method of a merging criterion."""
    label = "two-way and perceptual" if name == "both" else name
    return Method(label, f"ConSPTM + SGM, {label}", build=partial(build_sparse, method=name))


def metric(piece: Piece) -> tuple[Any, Any]:
    """Distance and features of the memories of a piece."""
    return piece.networks.distance, piece.networks.features


def make_agent(piece: Piece, _method: str, memory: Any, name: str | None, clean: bool) -> Any:
    """Make the agent with this name; cleanup always uses the plain agent."""
    return agents.consptm(
        memory,
        piece.networks.controller,
        # Uncapped: the memory's own distance is capped at MaxDist, so that all nodes beyond it would be equally far.
        distance=piece.networks.distance.unlimited(),
        look=(piece.cleanup_env if clean else piece.env).look,
        clean=clean,
        agreeing=piece.settings.agreeing,
        **AGENT,
        **BY_NAME[name or "plain"],
    )


def summary(out: Path, folders: Sequence[Path]) -> Row:
    """Quality of the networks of each piece, and how the threshold of each memory was chosen."""
    quality, choices = {}, {}
    for folder in folders:
        name = folder.relative_to(out).as_posix()
        quality[name] = read_quality(folder / "networks")
        for method in METHODS:
            if choice := read_choice(folder / method):
                choices[f"{name}/{method}"] = {**choice, "tried": len(choice["tried"])}
    return {"quality": quality, "thresholds": choices}


def places(_piece: Piece, memory: sgm.SparseGraphicalMemory) -> dict[str, NDArray[Any]]:
    """True positions (m) and headings (radians) of the images of nodes."""
    poses = memory.attributes["pose"]
    return {"position": poses[:, :2], "heading": poses[:, 2]}


def floor(piece: Piece) -> Floor:
    """Walls and pillars."""
    lines = [outlines.boxes(piece.world.walls), outlines.discs(piece.world.pillars)]
    return Floor(np.concatenate(lines), unit="m")


def view(_piece: Piece, env: Any) -> View:
    """Positions of robots and their images, rendered on demand."""
    return View(lambda _: env.poses, lambda _: env.goal, lambda _, rows: env.look(rows))


def stream(piece: Piece, method: str) -> Any:
    """Observations from which a memory was built, in building order."""
    frames = piece.buffer["frames"]
    order = np.arange(len(frames)) if method == "consptm" else read_order(piece, method, len(frames))
    return None if order is None else frames[order]


SHOWN = Shown(
    attributes=places,
    images=lambda piece, memory: piece.buffer["frames"][memory.attributes["frame"]],
    floor=floor,
    view=view,
    stream=stream,
)
BENCHMARK = Benchmark(
    name="safety",
    label="SafetyGym",
    title="ConSPTM, ConSPTM + SGM and the merging criteria",
    description="Explore rooms at random, train a distance between images, features and a controller, build memories "
    "by each merging criterion, evaluate them, clean up, evaluate again, and write results.json, memories, weights, "
    "figures and report.html. Training takes about 15 minutes on two cores; --pretrained uses the weights shipped "
    "with the package. An interrupted run resumes when the same command is given again.",
    settings=SafetySettings,
    quick=QUICK,
    methods={
        "consptm": Method("dense (ConSPTM)", "ConSPTM", build=build_dense),
        **{name: _merging(name) for name in CRITERIA},
    },
    axes={"layout": "layouts", "seed": "seeds"},
    policies=POLICIES,
    agents=AGENTS,
    environment=lambda piece: f"safety:rooms{piece.numbers['layout']}",
    world=lambda piece: generate(piece.numbers["layout"]),
    env=make_env,
    cleanup_reset=lambda _: {"goals": None},
    cleanup_episode=lambda _: CLEANUP_EPISODE,
    tasks=draw_tasks,
    explore=lambda piece: explore(piece, Purpose.EXPLORATION),
    learn=learn,
    buffer=make_buffer,
    distance=metric,
    agent=make_agent,
    agent_settings={**BUILD, **AGENT, "agents": BY_NAME, "cleanup_episode": CLEANUP_EPISODE},
    facts=facts,
    summary=summary,
    shown=SHOWN,
    figure_data=figure_data.write,
    has_figure_data=lambda piece: figure_data.is_written(piece.folder),
    report=report,
    console=console,
    fields=dict.fromkeys(("true_part", "false_starts", "false_goals"), NUMBER),
    robots="robots",
    may_differ=("simulators",),
    added={"agreeing": 1},
    paper_command="sgm run safety --methods consptm uniform perceptual incoming outgoing two-way both",
    extras={"safety": ("torch", "safetensors", "matplotlib", "mujoco", "OpenGL", "threadpoolctl")},
)
