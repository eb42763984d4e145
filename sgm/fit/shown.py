"""Data for the inspector and figures: positions and images of nodes, walls, episodes and the guarantee."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.data.thumbnails import are_images, thumbnails
from sgm.data.writing import writing
from sgm.envs.floors import walls_of
from sgm.memory.given import POSITION
from sgm.navigation import Recorder
from sgm.navigation.beside import EPISODES, FLOOR, GUARANTEE, Floor, write_episodes, write_floor, write_guarantee
from sgm.navigation.guarantee import absent, guarantee
from sgm.navigation.record import CLEANED, EVALUATED, seen_by

from .environment import make_env
from .folder import BUILT, BUILT_GUARANTEE, Agent
from .settings import FitSettings, arguments
from .source import Source

_BEYOND = 0.1  # share of the size of a floor plan by which nodes may be outside of it


def decorate(memory: sgm.SparseGraphicalMemory, data: sgm.Experience, rows: NDArray[np.int64]) -> None:
    """Add positions and thumbnails to the nodes of a memory built over these rows of the data, if they are known."""
    kept = rows[memory.nodes]
    flat = [values for values in (data.achieved_goals, data.observations) if values is not None and _is_flat(values)]
    if POSITION not in memory.attributes and flat:
        memory.attributes[POSITION] = np.asarray(flat[0][kept])
    if "thumbnail" not in memory.attributes and are_images(data.observations):
        memory.attributes["thumbnail"] = thumbnails(np.asarray(data.observations[kept]))


def _is_flat(values: NDArray[Any]) -> bool:
    return values.ndim == 2 and values.shape[1] == 2


def where(data: sgm.Experience, source: Source, settings: FitSettings) -> str | None:
    """Return the entry of an environment's observations that has the position; None if it is unknown."""
    if data.positions is not None:
        return {"gym": settings.position_key, "minari": settings.position_key, "ogbench": "observation"}.get(
            source.kind
        )
    if data.achieved_goals is not None and _is_flat(data.achieved_goals):
        return "achieved_goal"
    return "observation" if _is_flat(data.observations) else None


def keep_floor(folder: Path, memory: sgm.SparseGraphicalMemory, env: Any) -> None:
    """Write the walls of an environment, if they are known and all nodes are inside them."""
    if (walls := walls_of(env)) is None or POSITION not in memory.attributes or not len(walls.lines):
        return
    places = np.asarray(memory.attributes[POSITION], np.float64)[:, :2]
    ends = walls.lines.reshape(-1, 2)
    low, high = ends.min(axis=0), ends.max(axis=0)
    margin = _BEYOND * (high - low)
    inside = ((places >= low - margin) & (places <= high + margin)).all(axis=1)
    if inside[np.isfinite(places).all(axis=1)].all():
        write_floor(folder / FLOOR, Floor(*walls))


def keep_floor_of(folder: Path, memory: sgm.SparseGraphicalMemory, source: Source, settings: FitSettings) -> None:
    """Write the walls of the environment of a source, if there is one."""
    if source.env is None or POSITION not in memory.attributes:
        return
    with contextlib.suppress(sgm.SGMError):  # the simulator of a dataset's environment may not be installed
        env, _ = make_env(source.env, 1, arguments(settings.env_arg))
        with contextlib.closing(env):
            keep_floor(folder, memory, env)


def keep_guarantee(folder: Path, memory: sgm.SparseGraphicalMemory, observations: Any) -> None:
    """Write the certificate of Theorem 1 for a new memory, or the reason why there is none."""
    write_guarantee(folder / GUARANTEE, guarantee(memory, observations))


def keep_guarantee_of_built(folder: Path) -> None:
    """Keep a copy of the guarantee of the memory before cleanup."""
    if (folder / GUARANTEE).is_file():
        _copy(folder / GUARANTEE, folder / BUILT_GUARANTEE)


def update_guarantee(folder: Path, memory: sgm.SparseGraphicalMemory) -> None:
    """Replace the guarantee by a note if cleanup has removed edges; otherwise restore that of the built memory."""
    if number := len(memory.removed().source):
        why = f"Cleanup has removed {number:,} edges, and Theorem 1 holds only for a memory with all of its edges."
        write_guarantee(folder / GUARANTEE, absent(f"{why} The earlier certificate is that of {BUILT}."))
    elif (folder / BUILT_GUARANTEE).is_file():
        _copy(folder / BUILT_GUARANTEE, folder / GUARANTEE)


def _copy(path: Path, to: Path) -> None:
    with writing(to) as file:
        file.write(path.read_bytes())


def recorder(agent: Agent, kind: str, about: str) -> Recorder:
    """Make a recorder for episodes of an agent."""
    entry = (agent.record.stages.get("memory") or {}).get("position")
    return Recorder(kind, EVALUATED if kind == "evaluation" else CLEANED, seen_by(entry), about)


def keep_episodes(folder: Path, recorded: Recorder) -> None:
    """Write the recorded episodes, if there are any."""
    if recorded.episodes:
        write_episodes(folder / EPISODES, recorded.episodes)
