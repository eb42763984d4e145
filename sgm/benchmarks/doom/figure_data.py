"""What the figures of a ViZDoom run are drawn from: lengths of edges, chosen pictures, one episode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.results import write_json, writing
from sgm.navigation import evaluate_tasks

if TYPE_CHECKING:
    from .benchmark import Buffer, DoomRun

ALIASED = 600.0  # map units that an aliased pair is apart at least
_DENSE = 2_000_000  # edges of the dense graph whose lengths are kept


def write(run: DoomRun, seed: int, buffer: Buffer, distance: Any, controller: Any) -> None:
    """Write lengths.npz, pictures.npz and episode.json into a seed's folder."""
    folder = run.out / f"seed{seed}"
    memories = {
        method: sgm.SparseGraphicalMemory.load(path, None)
        for method in ("sptm+sgm", "ours")
        if (path := folder / method / "memory.sgm").exists()
    }
    with writing(folder / "lengths.npz") as file:
        np.savez_compressed(file, **_lengths(buffer, memories))  # type: ignore[arg-type]
    chosen = _reference(seed, buffer, distance) | _aliased(buffer)
    if "ours" in memories:
        chosen |= _episode(run, seed, buffer, distance, controller, folder)
    with writing(folder / "pictures.npz") as file:
        np.savez_compressed(file, **chosen)


def _lengths(buffer: Buffer, memories: dict[str, sgm.SparseGraphicalMemory]) -> dict[str, NDArray[np.float32]]:
    """True lengths of edges after each stage."""
    from .benchmark import BUILD, edge_lengths

    near = np.argwhere(buffer.table.matrix <= BUILD["max_dist"] / buffer.table.step)
    near = near[near[:, 0] != near[:, 1]]
    share = max(1, -(-len(near) // _DENSE))
    ends = buffer.poses[near[::share], :2].astype(np.float64)
    found = {"dense": np.hypot(*(ends[:, 0] - ends[:, 1]).T)}
    if (memory := memories.get("sptm+sgm")) is not None:
        standing, removed = memory.edges(), memory.removed()
        stages = {"two-way": (memory.edges(filtered=False), removed), "filtered": (standing, removed)}
        for stage, parts in stages.items():
            found[stage] = np.concatenate([edge_lengths(memory.nodes, part, buffer.poses) for part in parts])
        found["cleaned"] = edge_lengths(memory.nodes, standing, buffer.poses)
    if (memory := memories.get("ours")) is not None:
        found["ours"] = edge_lengths(memory.nodes, memory.edges(), buffer.poses)
    return {name: lengths.astype(np.float32) for name, lengths in found.items()}


def _reference(seed: int, buffer: Buffer, distance: Any) -> dict[str, Any]:
    """Distances from one picture to all others, alone and over windows."""
    from .benchmark import BUILD

    frame = int(np.random.default_rng(seed).integers(len(buffer.frames)))
    return {
        "reference": buffer.frames[frame],
        "reference_frame": frame,
        "steps": distance(buffer.embeddings[frame : frame + 1], buffer.embeddings)[0],
        "steps_window": buffer.table.matrix[frame] * buffer.table.step,
        "threshold": BUILD["max_dist"],
    }


def _aliased(buffer: Buffer) -> dict[str, Any]:
    """The two pictures that look nearest to each other of all that are far apart."""
    best = (np.inf, 0, 0, 0.0)
    for row in range(len(buffer.frames)):
        apart = np.hypot(*(buffer.poses[:, :2] - buffer.poses[row, :2]).T)
        levels = np.where(apart >= ALIASED, buffer.table.matrix[row], np.inf)
        other = int(levels.argmin())
        if levels[other] < best[0]:
            best = (float(levels[other]), row, other, float(apart[other]))
    level, one, other, units = best
    if level == np.inf:
        return {}
    return {
        "alias": buffer.frames[[one, other]], "alias_frames": np.array([one, other]),
        "alias_steps": level * float(buffer.table.step), "alias_apart": units,
    }  # fmt: skip


def _episode(run: DoomRun, seed: int, buffer: Buffer, distance: Any, controller: Any, folder: Path) -> dict[str, Any]:
    """One hard episode that succeeds, and what is seen along its first plan."""
    from sgm.envs.doom.env import LEVELS, Tasks

    memory = sgm.SparseGraphicalMemory.load(
        folder / "ours" / "memory.sgm", buffer.table, features=lambda frames: buffer.embeddings[np.asarray(frames)]
    )
    level = {"hard": LEVELS["hard"]}
    tasks = Tasks.draw(run.map, run.settings.engines, 9_000_000 * (seed + 1), level)
    agent = run.navigator("ours", memory, buffer, distance, controller)
    traces = evaluate_tasks(agent, run.env, tasks, traces=len(tasks)).traces
    place = next((place for place, trace in enumerate(traces) if trace.success and trace.plans), 0)
    trace = traces[place]
    write_json(folder / "episode.json", trace.asdict())
    if not trace.plans:
        return {}
    frames = memory.nodes[np.array(trace.plans[0][1], np.int64)]
    shown = frames[np.unique(np.linspace(0, len(frames) - 1, min(len(frames), 23)).round().astype(int))]
    run.env.reset(options={"starts": tasks.starts, "goals": tasks.goals})
    return {"strip": buffer.frames[shown], "strip_frames": shown, "strip_goal": run.env.goal_seen[place].copy()}
