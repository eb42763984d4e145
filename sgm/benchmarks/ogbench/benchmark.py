"""OGBench, fully offline: SGM, planners in the style of other papers and behaviour cloning, with the same networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.base import Benchmark, Draws, Method, Piece, Row
from sgm.benchmarks.checks import TEXT
from sgm.benchmarks.engine import rollout
from sgm.benchmarks.results import StateFile, write_json
from sgm.benchmarks.seeds import Purpose
from sgm.benchmarks.shown import Shown, keep_order, read_order
from sgm.data import Experience
from sgm.navigation import PolicyAgent, View, agents
from sgm.navigation.arrive import WithinSteps
from sgm.navigation.beside import Floor
from sgm.navigation.record import seen_by

from . import rivals
from .learn import Euclid, learn
from .report import console, report
from .settings import QUICK, OGBenchSettings
from .worlds import check, is_point_maze, make_env, maze_of, random_cells

TASKS = 5
TOLERANCE = 0.1  # relative, of the number of nodes


def read_data(piece: Piece) -> Experience:
    """Read the training data: the official file, or a generated dataset."""
    from sgm.data import from_ogbench

    settings = piece.settings
    data = from_ogbench(piece.numbers["dataset"], settings.dataset_dir, seed=settings.data_seed)
    piece.say(f"learning from {data.source}, {len(data):,} observations")
    return data


def make_buffer(piece: Piece) -> NDArray[np.int64]:
    """(n,) random rows of the data, ascending, from which memories are built."""
    random = np.random.default_rng(piece.seed_for(Purpose.BUFFER))
    number = min(piece.settings.observations, len(piece.rollouts))
    return np.sort(random.choice(len(piece.rollouts), number, replace=False))


def make_tasks(piece: Piece) -> Draws:
    """Make the five tasks, used in turn, or tasks between random cells."""
    settings, seed = piece.settings, piece.seed_for(Purpose.TASKS)
    options: Any = [{"task_id": task} for task in range(1, TASKS + 1)]
    if settings.tasks == "random":
        options = {"cells": random_cells(piece.env, settings.episodes, seed)}
    return Draws(seed, options, settings.episodes)


# -- memories ----------------------------------------------------------------------------------------------------


def build_two_way(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build a memory by two-way consistency, with the threshold that gives about `settings.nodes` nodes."""
    return _two_way(piece, "sgm", piece.networks[0])


def build_euclid(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build the same memory with the Euclidean distance."""
    return _two_way(piece, "euclid", Euclid(piece.settings.cap))


def _two_way(piece: Piece, method: str, distance: Any) -> sgm.SparseGraphicalMemory:
    settings = piece.settings
    data = piece.rollouts[piece.buffer]
    choice = sgm.choose_threshold(
        distance,
        data,
        min(settings.nodes, len(data)),
        max_dist=settings.max_dist,
        k=None,
        episode=None,
        keep_observations=True,
        policy="first-failure",
        tolerance=TOLERANCE,
        seed=piece.seed_for(Purpose.THRESHOLD),
        progress=piece.progress,
    )
    keep_order(piece, method, choice.order)
    return choice.memory


def build_uniform(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build a memory of random observations, as many as two-way consistency keeps."""
    seed = piece.seed_for(Purpose.CHOICES)
    return build_memory(
        piece, piece.buffer, piece.settings.max_dist, criterion="uniform", size=_nodes(piece), seed=seed
    )


def build_sorb(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build a dense memory of random observations, as many as two-way consistency keeps."""
    random = np.random.default_rng(piece.seed_for(Purpose.CHOICES))
    rows = np.sort(random.choice(piece.buffer, _nodes(piece), replace=False))
    return build_memory(piece, rows, piece.settings.sorb_dist)


def build_gas(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build a memory of clusters of states with high temporal efficiency (GAS)."""
    settings, distance = piece.settings, piece.networks[0]
    random, least = np.random.default_rng(piece.seed_for(Purpose.CHOICES)), settings.gas_efficiency
    rows = random.choice(len(piece.rollouts), min(settings.gas_observations, len(piece.rollouts)), replace=False)
    rows = rivals.efficient(piece.rollouts, rows, distance, settings.gas_dist, least)
    if not len(rows):
        raise sgm.SGMError(
            f"gas: no observation has a temporal efficiency of {least:g} or more over {settings.gas_dist:g} steps; "
            "give a smaller --gas-efficiency or --gas-dist, or leave gas out of --methods"
        )
    vectors = distance.embed(np.asarray(piece.rollouts.observations[rows]))
    return build_memory(
        piece, np.sort(rows[rivals.cluster(vectors, distance, settings.gas_dist / 2)]), settings.gas_dist
    )


def build_ttgs(piece: Piece) -> sgm.SparseGraphicalMemory:
    """Build a memory of random observations (TTGS): it holds the unpenalised edges, the agent's graph all edges."""
    random = np.random.default_rng(piece.seed_for(Purpose.CHOICES))
    number = min(piece.settings.ttgs_nodes, len(piece.rollouts))
    rows = np.sort(random.choice(len(piece.rollouts), number, replace=False))
    return build_memory(piece, rows, piece.settings.ttgs_dist)


def build_memory(piece: Piece, rows: NDArray[np.int64], max_dist: float, **settings: Any) -> sgm.SparseGraphicalMemory:
    """Build a memory of these rows of the data."""
    how: dict[str, Any] = {"criterion": "none", "tau_p": None, "k": None, "keep_observations": True}
    how |= {"policy": "first-failure", **settings}
    memory = sgm.SparseGraphicalMemory(piece.networks[0], max_dist=max_dist, **how)
    memory.extend(piece.rollouts[rows], episode=None)
    return memory


def _nodes(piece: Piece) -> int:
    """Number of nodes that two-way consistency kept; `settings.nodes` if it was not run."""
    facts = {**piece.numbers, "method": "sgm"}
    rows = StateFile(piece.folder / "sgm", facts).rows()
    return min(int(rows[0]["nodes"]) if rows else piece.settings.nodes, len(piece.buffer))


# -- agents ------------------------------------------------------------------------------------------------------


def make_agent(piece: Piece, method: str, memory: Any, _name: str | None, clean: bool) -> Any:
    """Make the agent of a method."""
    settings, (distance, controller) = piece.settings, piece.networks
    if method == "gcbc":
        return PolicyAgent(controller)
    if method == "sorb":
        return agents.sorb(memory, controller, max_steps=settings.max_steps, clean=clean)
    if method in ("gas", "ttgs"):
        vectors, reach = memory.embeddings, settings.gas_dist if method == "gas" else settings.ttgs_dist
        if method == "gas":
            graph = rivals.joined(vectors, distance, reach)
        else:
            graph = rivals.penalised(vectors, distance, reach, settings.ttgs_longest)
        targets = memory.waypoints(np.arange(len(memory)))
        return rivals.PathAgent(targets, vectors, graph, distance, controller, reach, replans=method == "gas")
    arrival = WithinSteps(settings.cutoff)
    return sgm.Navigator(memory, controller, arrival=arrival, max_steps=settings.max_steps, clean=clean)


def facts(piece: Piece, memory: Any) -> Row:
    """Source of the data, and the share of edges between places on two sides of a wall."""
    found: Row = {"source": piece.rollouts.source}
    if memory is not None and is_point_maze(piece.numbers["dataset"]):
        edges, places = memory.edges(), np.asarray(memory.attributes["position"], np.float64)
        maze = piece.env.maze
        cells = maze.cells_at(places)
        steps = np.array([maze.steps_to[tuple(cell)] for cell in cells.tolist()])
        apart = steps[edges.source, cells[edges.target, 0], cells[edges.target, 1]]
        straight = np.abs(cells[edges.source] - cells[edges.target]).sum(axis=1)
        found["false_edges"] = float(((apart > straight) | (apart < 0)).mean()) if len(apart) else None
    return found


def record_episode(piece: Piece, method: str, path: Path, row: Row) -> None:
    """Store an episode of the first task and its path for a figure."""
    kept = piece.folder / method / "episode.json"
    if method != "sgm" or kept.exists() or not row["edges"] or not is_point_maze(piece.numbers["dataset"]):
        return
    env = make_env(piece.numbers["dataset"], 1)
    agent = piece.make_agent(method, piece.load(path))
    trace = rollout(agent, env, Draws(piece.seed_for(Purpose.EPISODE), {"task_id": 1}), traces=1).traces[0]
    write_json(kept, trace.asdict())


def floor(piece: Piece) -> Floor | None:
    """Walls of a point maze."""
    return Floor(piece.env.maze.lines) if is_point_maze(piece.numbers["dataset"]) else None


def view(piece: Piece, env: Any) -> View:
    """Positions of robots."""
    if is_point_maze(piece.numbers["dataset"]):
        return View(lambda _: env.places, lambda _: env.goals)
    return seen_by(None)


def stream(piece: Piece, method: str) -> Any:
    """Observations from which a memory was built, in building order; None for methods that merge nothing."""
    order = read_order(piece, method, len(piece.buffer)) if method in ("sgm", "euclid") else None
    return None if order is None else np.asarray(piece.rollouts.observations)[piece.buffer][order]


def cleanup_env(piece: Piece) -> Any:
    """Make the cleanup environment: robots start at states of the dataset, and cleanup sets their goals."""
    starts = np.asarray(piece.rollouts.observations[piece.buffer], np.float64)
    return make_env(piece.numbers["dataset"], piece.settings.agents, steps=None, starts=starts)


BENCHMARK = Benchmark(
    name="ogbench",
    robots="agents",
    label="OGBench",
    title="offline point mazes: memories and planners with the same distance and controller",
    description="Read or generate the datasets, train a distance and a controller on each, build the memories, and "
    "evaluate all methods on OGBench's tasks without any earlier step in the environment; then clean up the memory of "
    "sgm and evaluate it again. Writes results.json, memories, weights, figures and report.html. Takes half a minute "
    "to two minutes for each dataset and seed. An interrupted run resumes when the same command is given again.",
    settings=OGBenchSettings,
    quick=QUICK,
    methods={
        "sgm": Method("SGM, two-way", build=build_two_way),
        "uniform": Method("uniform", build=build_uniform, cleaned=False),
        "sorb": Method("SoRB, dense", build=build_sorb, cleaned=False),
        "gas": Method("GAS-style", build=build_gas, cleaned=False),
        "ttgs": Method("TTGS-style", build=build_ttgs, cleaned=False),
        "gcbc": Method("behaviour cloning alone"),
        "euclid": Method("SGM on Euclid's distance", build=build_euclid, cleaned=False),
    },
    axes={"dataset": "datasets", "seed": "seeds"},
    environment=lambda piece: f"ogbench:{piece.numbers['dataset']}",
    env=lambda piece: make_env(piece.numbers["dataset"], piece.settings.episodes),
    world=lambda piece: maze_of(piece.numbers["dataset"]),
    cleanup_env=cleanup_env,
    tasks=make_tasks,
    check=check,
    explore=read_data,
    learn=learn,
    distance=lambda piece: (piece.networks[0], None),
    buffer=make_buffer,
    agent=make_agent,
    facts=facts,
    record=record_episode,
    shown=Shown(floor=floor, view=view, stream=stream),
    report=report,
    console=console,
    fields={"dataset": TEXT, "source": TEXT},
    may_differ=("dataset_dir",),
    extras={"learn": ("torch", "safetensors"), "ogbench": ("ogbench",), "viz": ("matplotlib",)},
)
