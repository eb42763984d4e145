"""`sgm demo`: a memory of a maze, a plan through a wall, the edges that fail, and the plan that works.

The distance has a typical fault of learned distances: it is right along corridors, but ignores walls at close range.
The first plan therefore leads through a wall, and following it repairs the memory.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.envs.outlines import outline
from sgm.envs.point.mazes import Maze, load_maze
from sgm.navigation.beside import FLOOR, GUARANTEE, Floor, write_floor, write_guarantee
from sgm.navigation.guarantee import guarantee

from . import plots
from .provenance import provenance

Positions = NDArray[np.float64]
ENDS = ((8.0, 20.0), (44.0, 20.0))  # (row, column) in cells, with a wall between them and the door far to the side
BLIND = 3.5  # cells; up to this range, walls are ignored


def sample_positions(maze: Maze, number: int, seed: int) -> Positions:
    """(n, 2) uniform positions in free space, cells."""
    random = np.random.default_rng(seed)
    return maze.cells[random.integers(len(maze.cells), size=number)] + random.random((number, 2))


def blind_distances(maze: Maze, positions: Positions) -> NDArray[np.float32]:
    """(n, n) steps: the true path length for far pairs, the straight line through any wall for near pairs."""
    straight = np.linalg.norm(positions[:, None] - positions, axis=-1)
    ids = maze.cell_ids(positions)
    around = maze.distances[np.ix_(ids, ids)]
    return np.where(straight <= BLIND, straight, np.maximum(straight, around)).astype(np.float32)


def can_walk(maze: Maze, start: Positions, goal: Positions) -> bool:
    """Whether the straight line from start to goal crosses no wall."""
    share = np.linspace(0, 1, 200)[:, None]
    return bool(maze.is_free(start + share * (goal - start)).all())


def first_blocked_leg(maze: Maze, positions: Positions, nodes: NDArray[np.int64]) -> tuple[int, int] | None:
    """First edge of a plan that crosses a wall, as node ids; `positions` are those of the nodes."""
    for u, v in itertools.pairwise(nodes.tolist()):
        if not can_walk(maze, positions[u], positions[v]):
            return u, v
    return None


def run(out: Path, seed: int = 0, command: str = "", observations: int = 1500) -> Path:
    """Build, plan, fail, replan, and write `memory.sgm` with its side files, `run.json` and `plan.png` to `out`."""
    plots.pyplot()  # fail before the work if matplotlib is missing
    maze = load_maze("FourRooms", resize=5, thin=True)
    positions = sample_positions(maze, observations, seed)
    distance = sgm.TableDistance(blind_distances(maze, positions))
    memory = sgm.SparseGraphicalMemory(
        distance,
        features=lambda rows: positions[np.asarray(rows, int)],
        tau_p=2.0,
        tau_a=3.0,
        max_dist=5.0,
        k=8,
        policy="first-failure",
    )
    report = memory.extend(np.arange(observations), attributes={"position": positions}, progress=True)
    print(f"{observations} observations: {report.added} nodes, {report.merged} merged")
    start, goal = (int(np.linalg.norm(positions - place, axis=1).argmin()) for place in ENDS)
    places = memory.attributes["position"]
    first = plan = memory.plan(start, goal)
    print(f"first plan: {len(plan)} nodes, {plan.length:.1f} steps")
    while blocked := first_blocked_leg(maze, places, plan.nodes):
        memory.record(*blocked, reached=False)
        plan = memory.plan(start, goal)
        print(f"a wall between nodes {blocked[0]} and {blocked[1]}: edge removed; new plan of {plan.length:.1f} steps")
    print(plan)
    out.mkdir(parents=True, exist_ok=True)
    memory.save(out / "memory.sgm")
    write_floor(out / FLOOR, Floor(outline(maze.walls), "rc", "cells"))
    write_guarantee(out / GUARANTEE, guarantee(memory, np.arange(observations)))
    (out / "run.json").write_text(
        json.dumps({**provenance(command), "seed": seed, "plan": plan.asdict()}, indent=2) + "\n"
    )
    draw(out / "plan.png", maze, memory, places, (first, plan), positions[[start, goal]])
    print(
        f"wrote {out / 'plan.png'} and {out / 'memory.sgm'}; to look at the memory:\nsgm inspect {out / 'memory.sgm'}"
    )
    return out / "plan.png"


def draw(
    path: Path,
    maze: Maze,
    memory: sgm.SparseGraphicalMemory,
    places: Positions,
    plans: tuple[sgm.Plan, sgm.Plan],
    ends: Positions,
) -> None:
    """Draw the memory over its maze, with the removed edges and the plans before and after."""
    figure, axes = plots.pyplot().subplots(figsize=(7, 7.4))
    plots.draw_maze(axes, maze)
    plots.draw_edges(axes, places, memory.edges())
    plots.draw_nodes(axes, places)
    plots.draw_edges(axes, places, memory.removed(), plots.CUT, linewidths=2.2, zorder=5, label="edges removed")
    for plan, colour, label in zip(plans, plots.PLANS, ("first plan", "last plan"), strict=True):
        plots.draw_path(axes, np.concatenate([ends[:1], places[plan.nodes], ends[1:]]), colour, label)
    plots.draw_ends(axes, *ends)
    axes.set_title(f"{len(memory)} nodes, {len(memory.edges().source)} edges", fontsize=11)
    plots.legend_below(axes, 5)
    plots.save(figure, path)
