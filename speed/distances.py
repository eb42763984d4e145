"""Learned distances against shortest paths on OGBench's giant point maze: false pairs, rank correlation, times.

python -m speed.distances --out results/distances
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import sgm
from sgm.data import from_ogbench
from sgm.distances import contrastive, distance_quality, quasimetric, regression, sptm
from sgm.envs.ogbench.maze import Maze
from speed.report import Report, seconds

DATASET = "pointmaze-giant-stitch-v0"
NEAR, FAR, ORDERED = 4.0, 8.0, 12.0  # limits of near pairs, of false ones, and of the rank correlation, map units
FINE = 0.25  # spacing of the grid on which shortest paths are computed, map units
MOVES = ((0, 1), (1, 0), (1, 1), (1, -1), (1, 2), (2, 1), (1, -2), (2, -1))  # and their opposites
TABLE = 1_500  # rows and columns of the table that is timed
SECTION = f"Distances learned on {DATASET}, judged by true ways on episodes of another draw"
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "regression": (regression, {}),
    "quasimetric": (quasimetric, {}),
    "quasimetric, iqe": (quasimetric, {"head": "iqe"}),
    "contrastive": (contrastive, {}),
    "sptm": (sptm, {}),
}


def ways(maze: Maze) -> Callable[[Any, Any], Any]:
    """Return a function from (a, 2) and (b, 2) positions to (a, b) lengths of the sphere's shortest paths, map units.

    Paths go along a grid of free points, from each to sixteen around it; their lengths are correct within 3 %.
    """
    height, width = maze.map.shape
    low = maze.centres(np.zeros((1, 2), np.int64))[0] - maze.unit / 2
    columns, rows = (int(size * maze.unit / FINE) + 1 for size in (width, height))
    grid = low + FINE * np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=-1).reshape(-1, 2)
    inside = maze.contains(grid)
    free = np.zeros(len(grid), np.bool_)
    free[inside] = ~maze.touching(grid[inside])
    number = np.where(free, np.cumsum(free) - 1, -1).reshape(rows, columns)
    starts, ends, lengths = [], [], []
    for down, right in MOVES:
        here = number[: rows - down, max(0, -right) : columns - max(0, right)]
        there = number[down:, max(0, right) : columns + min(0, right)]
        both = (here >= 0) & (there >= 0)
        starts.append(here[both])
        ends.append(there[both])
        lengths.append(np.full(int(both.sum()), FINE * np.hypot(down, right)))
    entries = np.concatenate(lengths), (np.concatenate(starts), np.concatenate(ends))
    graph, points = csr_array(entries, shape=(int(free.sum()),) * 2), grid[free]

    def nearest(places: Any) -> Any:
        """Nearest free grid point of each position."""
        return np.array([int(((points - place) ** 2).sum(axis=1).argmin()) for place in np.asarray(places)])

    def truth(first: Any, second: Any) -> Any:
        found = dijkstra(graph, directed=False, indices=nearest(first))[:, nearest(second)]
        straight = np.linalg.norm(np.asarray(first)[:, None] - np.asarray(second), axis=-1)
        return np.where(found < 4 * FINE, straight, np.maximum(found, straight))

    return truth


def judge(report: Report, name: str, seed: int, data: sgm.Experience, held: sgm.Experience, **how: Any) -> None:
    """Train a distance and evaluate it."""
    module, changes = KINDS[name]
    begin = time.process_time()
    distance = module.train(data, seed=seed, device="cpu", progress=False, **changes, **how)
    trained = time.process_time() - begin
    truth = ways(Maze("giant"))
    found = distance_quality(distance, held, truth=truth, near=NEAR, far=FAR, recalls=(0.9,), number=600, seed=seed)
    rows = np.random.default_rng(seed).choice(len(held), TABLE)
    vectors = distance.embed(held.observations[rows])
    table = seconds(lambda: distance(vectors, vectors), 3) / TABLE**2
    report.add(
        SECTION,
        distance=name,
        seed=seed,
        false_at_90_recall=100 * found.accepted[0].false,
        rank_correlation=found.rank_correlation,
        noise_steps=distance.noise,
        training_seconds=trained,
        table_ns_a_pair=1e9 * table,
    )


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    parser.add_argument("--seeds", type=int, default=2, help="seeds of each distance (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few updates, to test that it runs")
    options = parser.parse_args()
    report = Report("speed.distances")
    data, held = (from_ogbench(DATASET, seed=seed) for seed in (0, 1))
    held = held[: 40_000 if options.quick else None]
    for name in KINDS:
        for seed in range(1 if options.quick else options.seeds):
            judge(report, name, seed, data, held, **({"iterations": 20} if options.quick else {}))
    if options.out:
        report.write(options.out)


if __name__ == "__main__":
    main()
