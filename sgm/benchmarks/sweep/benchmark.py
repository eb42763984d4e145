"""The sweep: success by number of observations, merging criterion and cleanup, to find when sparsity pays off."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import sgm
from sgm.benchmarks.base import Benchmark, Method, Piece, Row
from sgm.benchmarks.checks import COUNT, NUMBER, TEXT
from sgm.benchmarks.shown import Shown

from .costs import AXES
from .report import console, report
from .settings import AGENTS, DENSE, METHODS, POLICIES, QUICK, WIDER, SweepSettings
from .worlds import KINDS, World, read_build


def build(piece: Piece, method: str) -> sgm.SparseGraphicalMemory:
    """Build the memory of a method."""
    world: World = piece.world
    return world.build(method)


def declined(piece: Piece, method: str) -> str:
    """Reason why a method is left out of a piece; empty if it is run."""
    most = piece.settings.largest_dense
    if method in DENSE and piece.numbers["size"] > most:
        return f"dense memories are limited to {most:,} nodes (--largest-dense)"
    if method in DENSE and method != "dense" and piece.numbers["world"] != "point":
        return "it is available in PointEnv only"
    if method == "verified" and piece.numbers["world"] != "safety":
        return "it needs odometry, which only SafetyGym has"
    return ""


def check(settings: SweepSettings) -> None:
    """Raise InputError unless all robots have taken equally many steps at every evaluation.

    Otherwise the next stage of the cleanup would depend on the evaluation.
    """
    for steps in settings.schedule:
        if steps % settings.robots:
            raise sgm.InputError(
                f"{steps:,} cleanup steps with {settings.robots} robots: give --cleanup-steps and --checkpoints that "
                "are multiples of --robots"
            )


def cleanup_env(piece: Piece) -> Any:
    """Make the cleanup environment of the world's benchmark."""
    return piece.world.inner.cleanup_env


def summary(out: Path, folders: Sequence[Path]) -> Row:
    """Building time of each memory, s."""
    found = {}
    for folder in folders:
        for method in METHODS:
            if (seconds := read_build(folder / method).get("seconds")) is not None:
                found[f"{folder.relative_to(out).as_posix()}/{method}"] = seconds
    return {"build_seconds": found}


def floor(piece: Piece) -> Any:
    """Walls, as in the world's benchmark."""
    return piece.world.inner.benchmark.shown.floor(piece.world.inner)


def view(piece: Piece, env: Any) -> Any:
    """Positions and images of robots, as in the world's benchmark."""
    return piece.world.inner.benchmark.shown.view(piece.world.inner, env)


_LABELS = {
    "both": "two-way and perceptual",
    "wider": f"dense, k = {WIDER}",
    "released": "dense, as released",
    "consolidated": "consolidated",
    "verified": "consolidated and verified",
}

BENCHMARK = Benchmark(
    name="sweep",
    label="Sweep",
    title="when sparsity pays off: dense and sparse memories from buffers of many sizes",
    description="Build dense and sparse memories from more and more observations in PointEnv, SafetyGym and OGBench's "
    "giant point maze, and evaluate them before, during and after cleanup. Writes results.json, memories, weights, "
    "figures and report.html. A full run takes hours; --worlds, --sizes, --methods and --seeds select a part, and "
    "parts in one folder are combined. An interrupted run resumes when the same command is given again.",
    settings=SweepSettings,
    quick=QUICK,
    methods={name: Method(_LABELS.get(name, name), build=partial(build, method=name)) for name in METHODS},
    axes=AXES,
    policies=POLICIES,
    agents=AGENTS,
    evaluated=lambda piece: piece.world.agents(),
    declined=declined,
    environment=lambda piece: f"sweep:{piece.numbers['world']}/{piece.numbers['size']:,}",
    world=lambda piece: KINDS[piece.numbers["world"]](piece),
    env=lambda piece: piece.world.inner.env,
    cleanup_env=cleanup_env,
    unbroken=True,
    cleanup_reset=lambda piece: piece.world.inner.benchmark.cleanup_reset(piece.world.inner),
    cleanup_episode=lambda piece: piece.world.inner.benchmark.cleanup_episode(piece.world.inner),
    tasks=lambda piece: piece.world.inner.tasks,
    learn=lambda piece: piece.world.inner.networks,
    distance=lambda piece: piece.world.inner.benchmark.distance(piece.world.inner),
    agent=lambda piece, method, memory, name, clean: piece.world.agent(method, memory, name or "plain", clean),
    facts=lambda piece, memory: piece.world.facts(memory),
    shown=Shown(floor=floor, view=view),
    summary=summary,
    check=check,
    report=report,
    console=console,
    shared=("networks",),
    fields={"world": TEXT, "size": COUNT, "bytes": COUNT, "plan_seconds": NUMBER},
    robots="robots",
    may_differ=("cleanup_steps", "checkpoints", "largest_dense", "simulators"),
    extras={"learn": ("torch", "safetensors"), "viz": ("matplotlib",)},
)
