"""Memories to look at: points on a plane, a maze whose walls a distance does not see, and large ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sgm
from sgm.benchmarks import demo
from sgm.envs.point.mazes import load_maze


class Straight:
    """The straight line between positions, (n, 2) observations, in steps."""

    fingerprint = "straight"

    def embed(self, observations) -> np.ndarray:
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals) -> np.ndarray:
        return np.linalg.norm(starts[:, None] - goals, axis=-1).astype(np.float32)


def plane(nodes: int = 60, seed: int = 0, k: int | None = 5, policy="guarded", side: float = 10.0, **options):
    """A memory of random points, all of which are nodes, with their positions."""
    points = np.random.default_rng(seed).uniform(0, side, (nodes, 2)).astype(np.float32)
    memory = sgm.SparseGraphicalMemory(Straight(), criterion="none", max_dist=side / 3, k=k, policy=policy, **options)
    memory.extend(points, attributes={"position": points})
    return memory


def live_for(memory, tries: int, seed: int = 0, reach: float = 0.6) -> None:
    """Try edges at random; `reach` of the tries succeed."""
    random = np.random.default_rng(seed)
    for episode in range(tries):
        edges = memory.edges()
        if not len(edges.source):
            return
        place = int(random.integers(len(edges.source)))
        reached = bool(random.random() < reach)
        memory.record(int(edges.source[place]), int(edges.target[place]), reached, episode=episode)


def maze(seed: int = 0, observations: int = 700):
    """A memory of FourRooms whose distance does not see walls from close by, its maze, and which edges are false."""
    rooms = load_maze("FourRooms", resize=5, thin=True)
    positions = demo.sample_positions(rooms, observations, seed)
    memory = sgm.SparseGraphicalMemory(
        sgm.TableDistance(demo.blind_distances(rooms, positions)),
        features=lambda rows: positions[np.asarray(rows, int)],
        tau_p=2.0, tau_a=3.0, max_dist=5.0, k=8, policy="first-failure",
    )  # fmt: skip
    memory.extend(np.arange(observations), attributes={"position": positions})
    return memory, rooms


def is_false(rooms, positions, source, target) -> np.ndarray:
    """Which edges a wall blocks."""
    return np.array([not demo.can_walk(rooms, positions[u], positions[v]) for u, v in zip(source, target, strict=True)])


def large(path: Path, nodes: int = 10_000, k: int = 6, images: bool = False, tries: int = 3_000) -> Path:
    """A memory file of so many nodes, each with its k nearest successors."""
    side = 4.0 * np.sqrt(nodes)
    points = np.random.default_rng(0).uniform(0, side, (nodes, 2)).astype(np.float32)
    memory = sgm.SparseGraphicalMemory(Straight(), criterion="none", max_dist=12.0, k=k, policy="belief")
    given = {"position": points}
    if images:
        given["thumbnail"] = np.random.default_rng(1).integers(0, 255, (nodes, 32, 32, 3), np.uint8)
    memory.extend(points, attributes=given, block=512)
    edges, random = memory.edges(), np.random.default_rng(2)
    chosen = random.integers(len(edges.source), size=tries)
    memory.record_many(edges.source[chosen], edges.target[chosen], random.random(tries) < 0.7)
    memory.save(path)
    return path
