"""Data for the figures of a ViZDoom run: edge lengths, chosen images, one episode."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.base import Piece
from sgm.benchmarks.engine import rollout
from sgm.benchmarks.ground_truth import edge_lengths
from sgm.benchmarks.results import write_arrays, write_json
from sgm.benchmarks.seeds import Purpose

from .figures import FALSE

ALIASED = 600.0  # map units, least distance between the images of an aliased pair
SHOWN = 23  # images of a plan
_DENSE = 2_000_000  # edges of the dense graph whose lengths are stored
_ALL = 1 << 15  # frames up to which all are compared with all; of more frames about _SOME are compared with all
_SOME, _GROUP = 1 << 12, 16  # consecutive ones in groups, which distances in blocks compare at once


def is_written(piece: Piece) -> bool:
    """Whether the data of the figures is stored, or no method has a memory."""
    planned = any(piece.benchmark.methods[method].build for method in piece.settings.methods)
    return (piece.folder / "images.npz").exists() or not planned


def write(piece: Piece) -> None:
    """Write lengths.npz, images.npz and episode.json into a seed's folder."""
    memories = {
        method: piece.load(path)
        for method in ("sptm+sgm", "ours", "verified")
        if (path := piece.folder / method / "memory.sgm").exists()
    }
    write_arrays(piece.folder / "lengths.npz", _lengths(piece.buffer, memories))
    chosen = {"poses": piece.buffer.poses, **_reference(piece), **_aliased(piece.buffer)}
    for method in ("verified", "ours"):
        if method in memories:
            chosen |= _episode(piece, method, memories[method])
            break
    write_arrays(piece.folder / "images.npz", chosen)


def _lengths(buffer: Any, memories: dict[str, sgm.SparseGraphicalMemory]) -> dict[str, NDArray[np.float32]]:
    """True lengths of edges after each stage, map units."""
    from .benchmark import BUILD

    limit, count = BUILD["max_dist"] / buffer.table.step, len(buffer.poses)
    rows = _compared(count)
    columns = [np.flatnonzero(buffer.table.row(row) <= limit) for row in rows]
    near = np.stack([np.repeat(rows, [len(some) for some in columns]), np.concatenate(columns)], axis=1)
    near = near[near[:, 0] != near[:, 1]]
    share = max(1, -(-len(near) // _DENSE))
    ends = buffer.poses[near[::share], :2].astype(np.float64)
    found = {"dense": np.hypot(*(ends[:, 0] - ends[:, 1]).T)}
    if (memory := memories.get("sptm+sgm")) is not None:
        poses, standing, removed = memory.attributes["pose"], memory.edges(), memory.removed()
        for stage, edges in (("two-way", memory.edges(filtered=False)), ("filtered", standing)):
            found[stage] = np.concatenate([edge_lengths(part, poses) for part in (edges, removed)])
        found["cleaned"] = edge_lengths(standing, poses)
    for method in ("ours", "verified"):
        if (memory := memories.get(method)) is not None:
            found[method] = edge_lengths(memory.edges(), memory.attributes["pose"])
    return {name: lengths.astype(np.float32) for name, lengths in found.items()}


def _compared(count: int) -> NDArray[np.int64]:
    """The frames of so many that are compared with all others."""
    rows = np.arange(count)
    return rows if count <= _ALL else rows[rows // _GROUP % -(-count // _SOME) == 0]


def _reference(piece: Piece) -> dict[str, Any]:
    """Distances in steps from one image to all others, from single images and from windows."""
    from .benchmark import BUILD

    buffer = piece.buffer
    frame = int(np.random.default_rng(piece.seed_for(Purpose.CHOICES)).integers(len(buffer.frames)))
    return {
        "reference": buffer.frames[frame],
        "reference_pose": buffer.poses[frame],
        "steps": piece.networks[0](buffer.embeddings[frame : frame + 1], buffer.embeddings)[0],
        "steps_window": buffer.table.row(frame) * buffer.table.step,
        "threshold": BUILD["max_dist"],
    }


def _aliased(buffer: Any) -> dict[str, Any]:
    """The pair of images with the smallest distance among those taken far apart."""
    best = (np.inf, 0, 0, 0.0)
    for row in _compared(len(buffer.frames)).tolist():
        levels = buffer.table.row(row)
        nearer = np.flatnonzero(levels < best[0])  # few, once a pair is found
        apart = np.hypot(*(buffer.poses[nearer, :2] - buffer.poses[row, :2]).T)
        nearer, apart = nearer[apart >= ALIASED], apart[apart >= ALIASED]
        if len(nearer):
            other = int(levels[nearer].argmin())
            best = (float(levels[nearer[other]]), row, int(nearer[other]), float(apart[other]))
    level, one, other, units = best
    if level == np.inf:
        return {}
    return {
        "alias": buffer.frames[[one, other]],
        "alias_poses": buffer.poses[[one, other]],
        "alias_steps": level * float(buffer.table.step),
        "alias_apart": units,
    }


def _episode(piece: Piece, method: str, memory: sgm.SparseGraphicalMemory) -> dict[str, Any]:
    """A successful hard episode, preferably with a plan of true edges only, and the images along it."""
    from sgm.envs.doom.env import LEVELS, Tasks

    level = {"hard": LEVELS["hard"]}
    tasks = Tasks.draw(piece.world, piece.settings.engines, piece.seed_for(Purpose.EPISODE), level)
    traces = rollout(piece.make_agent(method, memory), piece.env, tasks, traces=len(tasks)).traces
    walls, poses = piece.world.segments[piece.world.solid], memory.attributes["pose"]
    good = [place for place, trace in enumerate(traces) if trace.success and trace.plans]
    true = [place for place in good if is_true(poses[traces[place].plans[0][1], :2], walls)]
    place = next(iter([*true, *good]), 0)
    trace = traces[place]
    write_json(piece.folder / "episode.json", trace.asdict())
    if not trace.plans:
        return {}
    plan = np.array(trace.plans[0][1], np.int64)
    shown = plan[np.unique(np.linspace(0, len(plan) - 1, min(len(plan), SHOWN)).round().astype(int))]
    piece.env.reset(options={"starts": tasks.starts, "goals": tasks.goals})
    return {
        "strip": memory.attributes["image"][shown],
        "strip_poses": poses[shown],
        "strip_goal": piece.env.goal_seen[place].copy(),
    }


def is_true(way: NDArray[Any], walls: NDArray[Any]) -> bool:
    """Whether no edge between the (n, 2) positions of a plan is too long or crosses one of the (w, 2, 2) walls."""
    legs = np.stack([way[:-1], way[1:]], axis=1).astype(np.float64)
    if (np.hypot(*(legs[:, 1] - legs[:, 0]).T) > FALSE).any():
        return False
    one, other = legs[:, None, 0], legs[:, None, 1]
    begin, end = walls[None, :, 0], walls[None, :, 1]
    crossed = (_side(one, other, begin) * _side(one, other, end) < 0) & (
        _side(begin, end, one) * _side(begin, end, other) < 0
    )
    return not crossed.any()


def _side(one: NDArray[Any], other: NDArray[Any], point: NDArray[Any]) -> NDArray[np.float64]:
    """Sign that tells on which side of the line through two points a third point is."""
    ahead, aside = other - one, point - one
    return np.asarray(ahead[..., 0] * aside[..., 1] - ahead[..., 1] * aside[..., 0])
