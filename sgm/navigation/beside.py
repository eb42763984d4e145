"""Files beside a memory file: floor plan, episodes and guarantee, for the inspector.

For `FOLDER/NAME.sgm` they are `FOLDER/NAME.floor.json`, `NAME.episodes.npz` and `NAME.guarantee.json`; if one of them
does not exist, `FOLDER/floor.json`, `episodes.npz` or `guarantee.json` is used. Data about nodes is stored in the
memory, not in these files. They may come from an untrusted source, and are checked when they are read.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgm.data.archive import Archive, write_archive
from sgm.data.writing import writing
from sgm.errors import SGMError, StoreError

SCHEMA = 1
FLOOR, EPISODES, GUARANTEE = "floor.json", "episodes.npz", "guarantee.json"
AXES = ("xy", "rc")
KINDS = ("evaluation", "cleanup")
NOWHERE = -1
MOST_LINES = 20_000
MOST_EPISODES, MOST_STEPS, MOST_IMAGES = 1_000, 1_000_000, 4_096  # largest numbers in one file
_MOST_BYTES, _MOST_INFLATED = 2**25, 2**27
_AGAIN = "remove the file, and the next run writes it again"
_COUNTS = ("observations", "nodes", "merges", "within_nominal", "pairs", "unreachable", "exceeded", "without_path")
NUMBERS = (*_COUNTS, "tau_a", "tau", "mean_gap", "largest_gap", "mean_bound", "largest_bound")

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Edge = tuple[int, int, int]


class Floor(NamedTuple):
    """A floor plan, in the units of the node attribute "position".

    Attributes:
        lines: (n, 4) float64: both ends of each wall, coordinates in the order of positions.
        axes: how coordinates are drawn: "xy", y upwards; or "rc", rows downwards and columns to the right.
        unit: name of the unit, such as "m"; may be empty.
    """

    lines: Floats
    axes: str = "xy"
    unit: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Episode:
    """One episode, step by step.

    Attributes:
        title: display name.
        kind: "evaluation" or "cleanup".
        success: whether the goal was reached; in cleanup, whether its node was.
        reason: why it failed; empty if it succeeded.
        goal_node: last node of the plan; −1: unknown.
        goal_position: (2,) position of the goal; None: unknown.
        positions: (s, 2) float32 positions of the robot before each step, and at the end; NaN: unknown.
        nodes: (s,) int32 the waypoint reached last; −1: none yet.
        waypoints: (s,) int32 the waypoint to which it was going; −1: the goal itself, or no plan.
        plans: (step, nodes) of every plan.
        cuts: (step, u, v) of every edge that failed.
        gave_up: (step, u, v) of the edge that it was following when it ended without success; u is −1 before the first
            node. None: it followed no plan, or it succeeded.
        images: (h, w, 3) uint8 images seen, by step.
    """

    title: str
    kind: str
    success: bool
    reason: str
    goal_node: int
    goal_position: Floats | None
    positions: NDArray[np.float32]
    nodes: Ints
    waypoints: Ints
    plans: list[tuple[int, list[int]]] = dataclasses.field(default_factory=list)
    cuts: list[Edge] = dataclasses.field(default_factory=list)
    gave_up: Edge | None = None
    images: dict[int, NDArray[np.uint8]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        """Number of steps, including the end."""
        return len(self.positions)


def beside(memory: Path | str, name: str) -> Path | None:
    """Return the path of the file of this name that belongs to a memory file; None if there is none."""
    memory = Path(memory)
    for path in (memory.with_name(f"{memory.stem}.{name}"), memory.with_name(name)):
        if path.exists():
            return path
    return None


# -- the floor plan ----------------------------------------------------------------------------------------------


def write_floor(path: Path, floor: Floor) -> None:
    """Write a floor plan."""
    lines = np.round(np.asarray(floor.lines, np.float64).reshape(-1, 4), 4)[:MOST_LINES]
    _write_json(path, {"schema": SCHEMA, "unit": floor.unit, "axes": floor.axes, "lines": lines.tolist()})


def read_floor(memory: Path | str) -> Floor | None:
    """Read the floor plan of a memory file; None if there is none. StoreError if the file is invalid."""
    if (path := beside(memory, FLOOR)) is None:
        return None
    content = _read_json(path)
    lines, axes, unit = _picked(content, "lines", "axes", "unit")
    _require(axes in AXES, path, "its axes are neither 'xy' nor 'rc'")
    _require(isinstance(unit, str) and len(unit) <= 40, path, "its unit is no short text")
    _require(isinstance(lines, list) and len(lines) <= MOST_LINES, path, f"it has no list of up to {MOST_LINES} lines")
    _require(all(_are_numbers(line, 4) for line in lines), path, "a line is not four numbers")
    return Floor(np.array(lines, np.float64).reshape(-1, 4), axes, unit)


# -- episodes ----------------------------------------------------------------------------------------------------


def write_episodes(path: Path, episodes: Sequence[Episode]) -> None:
    """Write episodes; episodes of the same kinds in the file are replaced, those of other kinds are kept."""
    kinds = {episode.kind for episode in episodes}
    try:
        before = _read_episodes(path) if path.exists() else []
    except StoreError:  # a damaged file is replaced
        before = []
    kept = [*(episode for episode in before if episode.kind not in kinds), *episodes]
    kept.sort(key=lambda episode: KINDS.index(episode.kind))
    offsets = np.cumsum([0, *map(len, kept)])
    images = [
        (first + step, image)
        for episode, first in zip(kept, offsets.tolist(), strict=False)
        for step, image in sorted(episode.images.items())
    ]
    images = [(step, image) for step, image in images if image.shape == images[0][1].shape]
    arrays: dict[str, NDArray[Any]] = {
        "about": np.frombuffer(json.dumps({"schema": SCHEMA, "episodes": list(map(_facts, kept))}).encode(), np.uint8),
        "positions": _joined([episode.positions for episode in kept], np.float32, (0, 2)),
        "nodes": _joined([episode.nodes for episode in kept], np.int32, (0,)),
        "waypoints": _joined([episode.waypoints for episode in kept], np.int32, (0,)),
        "image_steps": np.array([step for step, _ in images], np.int64),
        "images": _joined([image[None] for _, image in images], np.uint8, (0, 1, 1, 3)),
    }
    with writing(path) as file:
        write_archive(file, arrays, {}, compress=True)


def _facts(episode: Episode) -> dict[str, Any]:
    goal = episode.goal_position
    return {
        "title": episode.title,
        "kind": episode.kind,
        "success": bool(episode.success),
        "reason": episode.reason,
        "goal_node": int(episode.goal_node),
        "goal_position": None if goal is None or not np.isfinite(goal).all() else [float(value) for value in goal],
        "gave_up": episode.gave_up,
        "plans": episode.plans,
        "cuts": episode.cuts,
        "steps": len(episode),
    }


def _joined(parts: Sequence[NDArray[Any]], dtype: Any, empty: tuple[int, ...]) -> NDArray[Any]:
    return np.concatenate(parts).astype(dtype) if parts else np.empty(empty, dtype)


def read_episodes(memory: Path | str, nodes: int | None = None) -> list[Episode]:
    """Read the episodes of a memory file; an empty list if there is no such file. StoreError if it is invalid.

    `nodes` is the number of nodes of the memory; episodes with other nodes belong to another memory, and are refused.
    """
    path = beside(memory, EPISODES)
    return [] if path is None else _read_episodes(path, nodes)


def _read_episodes(path: Path, nodes: int | None = None) -> list[Episode]:
    _require_plain(path)
    try:
        archive = Archive(path)
        names = ("about", "positions", "nodes", "waypoints", "image_steps", "images")
        size = sum(archive.nbytes(name) for name in names if name in archive)
        _require(size <= _MOST_INFLATED, path, f"its arrays have {size:,} bytes, over {_MOST_INFLATED:,}")
        arrays = {name: np.array(archive.array(name)) for name in names if name in archive}
    except StoreError:
        raise
    except SGMError as error:
        raise StoreError(f"{path} cannot be used: {error}; {_AGAIN}") from error
    _require(len(arrays) == len(names), path, f"it has not all of {', '.join(names)}")
    about = _parse(path, arrays["about"].tobytes())
    (episodes,) = _picked(about, "episodes")
    _require(isinstance(episodes, list) and len(episodes) <= MOST_EPISODES, path, "it has no list of episodes")
    _check_arrays(path, arrays)
    found, first = [], 0
    for facts in episodes:
        _require(isinstance(facts, dict) and _is_whole(facts.get("steps"), 1), path, "an episode has no steps")
        rows = slice(first, first + facts["steps"])
        _require(rows.stop <= len(arrays["nodes"]), path, "its episodes have more steps than it has places")
        found.append(_episode(path, facts, rows, arrays))
        first = rows.stop
    _require(first == len(arrays["nodes"]), path, "its episodes have fewer steps than it has places")
    if nodes is not None:
        most = max((_largest_node(episode) for episode in found), default=NOWHERE)
        _require(most < nodes, path, f"it has node {most}, and the memory has {nodes}: it belongs to another memory")
    return found


def _check_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Check shapes, types and ranges of the arrays."""
    number, images, at = len(arrays["nodes"]), arrays["images"], arrays["image_steps"]
    _require(number <= MOST_STEPS, path, f"it has {number:,} steps, over {MOST_STEPS:,}")
    _require(arrays["positions"].shape == (number, 2) and arrays["positions"].dtype.kind == "f", path, "no positions")
    for name in ("nodes", "waypoints"):
        values = arrays[name]
        fits = values.shape == (number,) and values.dtype.kind == "i" and values.min(initial=0) >= NOWHERE
        _require(fits and values.max(initial=0) < 2**31, path, f"its {name} are no numbers of nodes")
    fits = images.ndim == 4 and images.dtype == np.uint8 and images.shape[3] == 3 and len(images) <= MOST_IMAGES
    _require(fits, path, "its images are not (n, height, width, 3) uint8")
    fits = at.shape == (len(images),) and at.dtype.kind == "i"
    _require(fits and bool(((at >= 0) & (at < number)).all()), path, "its images are of steps that it does not have")


def _episode(path: Path, facts: Mapping[str, Any], rows: slice, arrays: Mapping[str, NDArray[Any]]) -> Episode:
    """Check and return one episode."""
    steps, goal = facts["steps"], facts.get("goal_position")
    for name in ("title", "reason"):
        _require(isinstance(facts.get(name), str) and len(facts[name]) <= 200, path, f"a {name} is no short text")
    _require(facts.get("kind") in KINDS, path, f"an episode is neither of {' nor of '.join(KINDS)}")
    _require(isinstance(facts.get("success"), bool), path, "an episode does not say whether it succeeded")
    _require(_is_whole(facts.get("goal_node"), NOWHERE), path, "a goal is no node")
    _require(goal is None or _are_numbers(goal, 2), path, "a goal's position is not two numbers")
    plans, cuts, gave_up = _picked(facts, "plans", "cuts", "gave_up")
    planned = isinstance(plans, list) and all(
        isinstance(plan, list)
        and len(plan) == 2
        and _is_whole(plan[0], 0, steps)
        and isinstance(plan[1], list)
        and all(_is_whole(node, 0) for node in plan[1])
        for plan in plans
    )
    _require(planned, path, "a plan is not a step and nodes")
    _require(isinstance(cuts, list) and all(_is_edge(cut, steps, 0) for cut in cuts), path, "a cut is no step and edge")
    _require(gave_up is None or _is_edge(gave_up, steps, NOWHERE), path, "where an episode gave up is no step and edge")
    at = arrays["image_steps"]
    mine = np.flatnonzero((at >= rows.start) & (at < rows.stop)).tolist()
    return Episode(
        title=facts["title"],
        kind=facts["kind"],
        success=facts["success"],
        reason=facts["reason"],
        goal_node=facts["goal_node"],
        goal_position=None if goal is None else np.array(goal, np.float64),
        positions=arrays["positions"][rows].astype(np.float32),
        nodes=arrays["nodes"][rows].astype(np.int32),
        waypoints=arrays["waypoints"][rows].astype(np.int32),
        plans=[(step, nodes) for step, nodes in plans],
        cuts=[(step, u, v) for step, u, v in cuts],
        gave_up=None if gave_up is None else (gave_up[0], gave_up[1], gave_up[2]),
        images={int(at[place]) - rows.start: arrays["images"][place] for place in mine},
    )


def _largest_node(episode: Episode) -> int:
    named = [episode.goal_node, int(episode.nodes.max(initial=NOWHERE)), int(episode.waypoints.max(initial=NOWHERE))]
    named += [node for _, nodes in episode.plans for node in nodes]
    named += [node for _, *edge in [*episode.cuts, *([episode.gave_up] if episode.gave_up else [])] for node in edge]
    return max(named)


# -- the guarantee -----------------------------------------------------------------------------------------------


def write_guarantee(path: Path, content: Mapping[str, Any]) -> None:
    """Write the result of `sgm.navigation.guarantee.guarantee`."""
    _write_json(path, {"schema": SCHEMA, **content})


def read_guarantee(memory: Path | str) -> dict[str, Any] | None:
    """Read the guarantee of a memory file, or the reason why there is none; None if there is no such file.

    StoreError if the file is invalid.
    """
    if (path := beside(memory, GUARANTEE)) is None:
        return None
    content = _read_json(path)
    applies = content.get("applies", ...)
    if applies is None:
        reason = content.get("reason")
        _require(isinstance(reason, str) and len(reason) <= 1_000, path, "it does not say why there is no guarantee")
        return {"applies": None, "reason": reason}
    conditions, numbers, text = _picked(content, "conditions", "numbers", "text")
    _require(isinstance(applies, bool), path, "it does not say whether the theorem applies")
    _require(isinstance(text, str) and len(text) <= 10_000, path, "it has no text")
    known = isinstance(conditions, dict) and 0 < len(conditions) <= 20
    known = known and all(isinstance(holds, bool) and len(name) <= 200 for name, holds in conditions.items())
    _require(known, path, "its conditions are not true or false")
    known = isinstance(numbers, dict) and set(numbers) == set(NUMBERS)
    known = known and all(value is None or _are_numbers([value], 1) for value in numbers.values())
    _require(known, path, f"its numbers are not {', '.join(NUMBERS)}")
    return {"applies": applies, "conditions": conditions, "numbers": numbers, "text": text}


# -- JSON --------------------------------------------------------------------------------------------------------


def _write_json(path: Path, content: Any) -> None:
    with writing(path) as file:
        file.write((json.dumps(content, allow_nan=False) + "\n").encode())


def _read_json(path: Path) -> dict[str, Any]:
    _require_plain(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror or error}): {_AGAIN}") from error
    return _parse(path, data)


def _require_plain(path: Path) -> None:
    """Raise StoreError unless this is a regular file of an acceptable size."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror or error}): {_AGAIN}") from error
    _require(stat.S_ISREG(found.st_mode), path, "it is not a regular file")
    _require(found.st_size <= _MOST_BYTES, path, f"it is larger than {_MOST_BYTES:,} bytes")


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not JSON ({error}): {_AGAIN}") from error
    _require(isinstance(content, dict) and content.get("schema") == SCHEMA, path, f"it is not of schema {SCHEMA}")
    found: dict[str, Any] = content
    return found


def _picked(content: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(content.get(name) for name in names)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _require(holds: bool, path: Path, what: str) -> None:
    if not holds:
        raise StoreError(f"{path} cannot be used: {what}; {_AGAIN}")


def _are_numbers(values: Any, number: int) -> bool:
    if not isinstance(values, list) or len(values) != number:
        return False
    plain = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    return plain and all(abs(value) <= 1e15 and math.isfinite(value) for value in values)


def _is_whole(value: Any, low: int, below: int = 2**31) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value < below


def _is_edge(value: Any, steps: int, low: int) -> bool:
    """Whether a value is [step, u, v]."""
    fits = isinstance(value, list) and len(value) == 3 and _is_whole(value[0], 0, steps)
    return fits and _is_whole(value[1], low) and _is_whole(value[2], 0)
