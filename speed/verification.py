"""Verification of edges by the robot's own motion: how well it separates true from false edges in two benchmarks.

python -m speed.verification --out results/verification

Ground truth is used only for the evaluation. In ViZDoom the robot's motion is dead reckoning from actions; in SafetyGym
it is odometry within an episode, or a motion model fitted to the odometry of half of the episodes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

import sgm
from sgm.benchmarks.networks import shipped
from sgm.navigation import LinearMotion, verify
from speed.report import Report

SEED = 9_001  # of exploration; not used by any benchmark
SECTION = "Edges of a memory that join two episodes or distant parts of one; false beyond 200 map units, or 1.2 m"


class Case(NamedTuple):
    """An exploration and the edges of a memory over it.

    Attributes:
        episodes: (n,) episode of each row.
        poses: (n, 3) ground truth.
        tracks: tracks of the robot's own motion by name, (n, 3) each, with the drift of each.
        embeddings: (n, e) embeddings.
        similarity: similarity of embeddings; None: the cosine.
        pairs: (m, 2) rows that edges connect.
        steps: (m,) weights of these edges, steps.
        far: distance from which an edge is false, units of the poses.
    """

    episodes: NDArray[np.int64]
    poses: NDArray[np.float64]
    tracks: dict[str, tuple[NDArray[np.float64], float]]
    embeddings: NDArray[np.float32]
    similarity: Any
    pairs: NDArray[np.int64]
    steps: NDArray[np.float32]
    far: float


def doom(maze: int, episodes: int, steps: int) -> Case:
    """A maze of ours, random actions, and the networks that come with the package."""
    from sgm.benchmarks.doom.benchmark import BUILD, WINDOW
    from sgm.benchmarks.doom.learn import _kinds
    from sgm.distances.window import WindowDistance, window_table
    from sgm.envs.doom import env as doom_env
    from sgm.envs.doom import mazes
    from sgm.envs.doom.motion import reckon

    env = doom_env.DoomMazeVectorEnv(4, doom_map=mazes.generate(maze))
    try:
        found = doom_env.explore(env, episodes, steps, SEED)
    finally:
        env.close()
    labels = np.repeat(np.arange(episodes), steps + 1)
    distance = shipped("doom", _kinds("contrastive"))[0]
    vectors = distance.embed(found.frames.reshape(-1, *found.frames.shape[2:]))
    table = WindowDistance(window_table(distance, vectors, labels, **WINDOW))
    memory = sgm.SparseGraphicalMemory(table, lambda rows: vectors[np.asarray(rows)], reversible=True, **BUILD)
    memory.extend(np.arange(len(labels)), episode=labels)
    truth = found.poses.reshape(-1, 3).astype(np.float64)
    tracks = {"dead reckoning": (reckon(found.actions).reshape(-1, 3), 1.0)}
    return Case(labels, truth, tracks, vectors, None, *_edges(memory, memory.nodes), 200.0)


def safety(layout: int, episodes: int, steps: int) -> Case:
    """Explore rooms with smooth random actions; the networks are those of the package."""
    from sgm.benchmarks.safety.benchmark import BUILD
    from sgm.benchmarks.safety.learn import _kinds
    from sgm.envs.safety import env as safety_env
    from sgm.envs.safety.layouts import generate

    env = safety_env.SafetyRoomsVectorEnv(min(16, episodes), layout=generate(layout), images=False, workers=1)
    try:
        found = safety_env.explore(env, episodes, steps, SEED)
    finally:
        env.close()
    labels = np.repeat(np.arange(episodes), steps + 1)
    distance = shipped("safety", _kinds())[0]
    frames = found.frames.reshape(-1, *found.frames.shape[2:])
    chosen = np.sort(np.random.default_rng(SEED).permutation(len(frames))[: min(3_000, len(frames) // 2)])
    memory = sgm.SparseGraphicalMemory(distance, criterion="none", reversible=True, **BUILD)
    memory.extend(frames[chosen])
    vectors = memory.embed(frames)
    truth = found.odometry[..., :3].reshape(-1, 3).astype(np.float64)
    tracks = {"odometry": (own_frames(truth, labels), 0.1)}
    half = labels < episodes // 2
    last = np.zeros((episodes, 1, found.actions.shape[2]))
    actions = np.concatenate([found.actions, last], axis=1).reshape(len(labels), -1)
    motion = LinearMotion.fit(actions[half], truth[half], labels[half], memory=20)
    reckoned = np.concatenate([motion(acts) for acts in found.actions])
    tracks["fitted motion"] = (reckoned, 0.5)
    likeness = distance.unlimited()
    return Case(
        labels,
        truth,
        tracks,
        vectors,
        lambda one, other: -np.log1p(likeness(one, other)),
        *_edges(memory, chosen[memory.nodes]),
        1.2,
    )


def own_frames(poses: NDArray[np.float64], episodes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Convert poses to the frame of the first pose of each episode, so that the episodes are unrelated."""
    from sgm.navigation.motion import to_own_frame

    first = np.searchsorted(episodes, episodes)
    seen = to_own_frame(poses[first], poses)
    return np.column_stack([seen[:, :2], poses[:, 2] - poses[first, 2]])


def _edges(memory: sgm.SparseGraphicalMemory, kept: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Pairs of rows that edges connect, each once, and their weights."""
    edges = memory.edges()
    ends = np.sort(np.stack([kept[edges.source], kept[edges.target]], axis=1), axis=1)
    pairs, first = np.unique(ends, axis=0, return_index=True)
    return pairs, edges.weight[first]


def auc(score: NDArray[Any], true: NDArray[np.bool_]) -> float | None:
    """AUC of scores; pairs without a score get the median, and without true or false pairs the result is None."""
    hits, misses = int(true.sum()), int((~true).sum())
    if not hits or not misses:
        return None
    known = np.where(np.isfinite(score), score, np.nanmedian(score) if np.isfinite(score).any() else 0.0)
    return round(float((rankdata(known)[true].sum() - hits * (hits + 1) / 2) / (hits * misses)), 3)


def measure(name: str, case: Case) -> list[dict[str, Any]]:
    """Measure one row for each kind of motion."""
    rows = []
    for motion, (track, drift) in case.tracks.items():
        begin = time.process_time()
        found = verify(case.pairs, track, case.embeddings, case.episodes, similarity=case.similarity, drift=drift)
        seconds = time.process_time() - begin
        open_ = ~found.proven
        apart = np.hypot(*(case.poses[case.pairs[:, 0], :2] - case.poses[case.pairs[:, 1], :2]).T)
        true, kept = (apart <= case.far)[open_], found.posterior[open_] >= 0.5
        rows.append(
            {
                "environment": name,
                "own motion": motion,
                "edges": len(true),
                "AUC distance": auc(-case.steps[open_], true),
                "AUC surroundings": auc(found.surroundings[open_], true),
                "AUC heading": auc(-found.heading[open_], true),
                "AUC place": auc(-found.place[open_], true),
                "AUC together": auc(found.score[open_], true),
                "true, %": round(100 * float(true.mean()), 1),
                "estimated, %": round(100 * found.true_share, 1),
                "removed, %": round(100 * float((~kept).mean()), 1),
                "true ones kept, %": round(100 * float(kept[true].mean()), 1) if true.any() else None,
                "false after, %": round(100 * float((~true[kept]).mean()), 1) if kept.any() else None,
                "CPU seconds": round(seconds, 1),
            }
        )
    return rows


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    parser.add_argument("--quick", action="store_true", help="short explorations, to test that it runs")
    parser.add_argument("--only", choices=("doom", "safety"), help="only one of the environments")
    options = parser.parse_args()
    report = Report("speed.verification")
    mazes, rooms = ((0, 1), (0, 1)) if not options.quick else ((0,), (0,))
    sizes = {"doom": (6, 100) if options.quick else (100, 200), "safety": (6, 150) if options.quick else (20, 600)}
    rows = []
    if options.only != "safety":
        for maze in mazes:
            rows += measure(f"doom:maze{maze}", doom(maze, *sizes["doom"]))
    if options.only != "doom":
        for layout in rooms:
            rows += measure(f"safety:rooms{layout}", safety(layout, *sizes["safety"]))
    for row in rows:
        report.add(SECTION, **row)
    if options.out:
        report.write(options.out)


if __name__ == "__main__":
    main()
