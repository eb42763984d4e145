"""`sgm plan`: a plan between two nodes, images or positions, printed and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.plots import pyplot
from sgm.benchmarks.results import read_arrays
from sgm.errors import MissingExtra
from sgm.memory.distance import far_of
from sgm.memory.given import ACHIEVED_GOAL, POSITION

from . import figures
from .folder import SEEN, Agent
from .layout import lay_out
from .report import plan_titles

_ACCEPTED = "a node number, an image file, or coordinates such as 3.5,-1"


class End(NamedTuple):
    """Start or goal of a plan.

    Attributes:
        text: the argument of the command.
        node: the node, if it is one.
        value: the observation, goal or position, if it is not a node.
    """

    text: str
    node: int | None = None
    value: NDArray[Any] | None = None


class _Nearest(NamedTuple):
    """Nearest node of a start or goal, and the distance between them in "map units" or "steps"."""

    node: int
    gap: float
    unit: str


def plan(folder: Path, start: str, goal: str, out: Path | None = None) -> Path:
    """Plan on the memory of a folder, print the plan, draw it and return the path of the figure.

    Args:
        folder: folder of an agent, or of a memory without a controller.
        start: a node number, the path of an image, or coordinates.
        goal: the same.
        out: path of the figure; None: `plans/START-GOAL.png` in the folder.
    """
    if out is not None and out.suffix.lower() != ".png":
        raise sgm.InputError(f"--out is {out}: expected a name that ends in .png, since the figure is a PNG file")
    pyplot()
    start, goal = start.strip(), goal.strip()
    memory = Agent(folder).memory
    ends = [_end(memory, text, name) for text, name in ((start, "START"), (goal, "GOAL"))]
    near = attachments(memory, *ends) if len(memory) else []
    found = make_plan(memory, *ends)
    print("\n".join([str(found), *near]))
    path = out or Path(folder) / "plans" / f"{_short(start)}-{_short(goal)}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(path, Path(folder), memory, found, *ends)
    print(f"wrote {path}")
    return path


def make_plan(memory: sgm.SparseGraphicalMemory, start: End, goal: End) -> sgm.Plan:
    """Plan between start and goal; NoPath, with advice, if there is no path."""
    try:
        if start.node is not None and goal.node is not None:
            return memory.plan_nodes(start.node, goal.node)
        # Observations are attached to the nodes near them.
        if start.value is not None and goal.value is not None and _same_space(memory, start.value, goal.value):
            return memory.plan(start.value, goal.value)
        return memory.plan_nodes(_node(memory, start, False), _node(memory, goal, True))
    except sgm.EmptyMemory:
        raise
    except sgm.NoPath as error:
        raise sgm.NoPath(
            f"no path from {start.text} to {goal.text}: {error}. The largest strongly connected component has "
            f"{memory.largest_part()} of {len(memory)} nodes; the map in the report shows the memory"
        ) from error


def _same_space(memory: sgm.SparseGraphicalMemory, start: NDArray[Any], goal: NDArray[Any]) -> bool:
    """Whether start and goal are observations, which the memory can attach to nodes itself."""
    kept = memory.observations.shape[1:] if memory.settings.keep_observations and len(memory) else None
    shapes = {start.shape, goal.shape}
    return ACHIEVED_GOAL not in memory.attributes and kept is not None and shapes == {kept}


def _node(memory: sgm.SparseGraphicalMemory, end: End, as_goal: bool) -> int:
    return _nearest(memory, end, as_goal).node if end.node is None else end.node


def _places(memory: sgm.SparseGraphicalMemory, shape: tuple[int, ...]) -> NDArray[Any] | None:
    """Positions or achieved goals of nodes, (V, ...), of this shape; None if there are none."""
    for name in (POSITION, ACHIEVED_GOAL):
        places = memory.attributes.get(name)
        if places is not None and places.shape[1:] == shape:
            return np.asarray(places)
    return None


def _nearest(memory: sgm.SparseGraphicalMemory, end: End, as_goal: bool, by_steps: bool = False) -> _Nearest:
    """Find the node nearest to a position, in map units, or to an observation, in steps."""
    value = np.asarray(end.value)
    places = None if by_steps else _places(memory, value.shape)
    if places is not None:
        gaps = np.linalg.norm(places.reshape(len(places), -1) - value.ravel(), axis=1)
        return _Nearest(int(gaps.argmin()), float(gaps.min()), "map units")
    near = memory.localise(value[None], as_goals=as_goal)
    return _Nearest(int(np.asarray(near.node).ravel()[0]), float(np.asarray(near.distance).ravel()[0]), "steps")


def attachments(memory: sgm.SparseGraphicalMemory, start: End, goal: End) -> list[str]:
    """Describe the nearest node of a start or goal that is not a node, a line each; InputError if it is off the map."""
    both = start.value is not None and goal.value is not None
    by_steps = both and _same_space(memory, np.asarray(start.value), np.asarray(goal.value))
    lines = []
    for name, end in (("START", start), ("GOAL", goal)):
        if end.value is None:
            continue
        near = _nearest(memory, end, name == "GOAL", by_steps)
        _require_on_map(memory, name, end, near)
        line, usual = (
            f"{name} is {near.gap:.3g} {near.unit} from the nearest node, {near.node}",
            _usual(memory, near, end),
        )
        if near.gap > usual:
            line += (
                f". Warning: that is far, edges are up to {usual:.3g} {near.unit}; the experience has nothing similar"
            )
        lines.append(line)
    return lines


def _usual(memory: sgm.SparseGraphicalMemory, near: _Nearest, end: End) -> float:
    """Length of a long edge: MaxDist in steps, or the 0.95 quantile of edge lengths in map units."""
    places, edges = _places(memory, np.asarray(end.value).shape), memory.edges()
    if near.unit == "steps" or places is None:
        return float(memory.settings.max_dist)
    if not len(edges.source):
        return np.inf
    flat = places.reshape(len(places), -1)
    return float(np.quantile(np.linalg.norm(flat[edges.source] - flat[edges.target], axis=1), 0.95))


def _require_on_map(memory: sgm.SparseGraphicalMemory, name: str, end: End, near: _Nearest) -> None:
    """Raise InputError for coordinates far outside those of all nodes, or if the distance is clipped."""
    value = np.asarray(end.value)
    places = _places(memory, value.shape) if near.unit == "map units" else None
    if places is None and memory.settings.keep_observations and memory.observations.ndim == 2:
        places = memory.observations
    if places is not None and value.ndim == 1:
        low, high = (np.asarray(each, np.float64) for each in (places.min(axis=0), places.max(axis=0)))
        if (np.maximum(low - value, value - high) > np.maximum(high - low, 1e-9)).any():
            raise sgm.InputError(
                f"{name} is {end.text}, {near.gap:.3g} {near.unit} from the nearest node and off the map: nodes are "
                f"from {_listed(low)} to {_listed(high)}"
            )
    far = far_of(memory.distance)
    if near.unit == "steps" and far is not None and near.gap >= far:
        raise sgm.InputError(
            f"{name} is {end.text}, {near.gap:.3g} steps or more from every node, where the distance is clipped: give "
            f"an observation like those of the source, or {_ACCEPTED}"
        )


def _listed(values: NDArray[np.float64]) -> str:
    return ",".join(f"{value:.3g}" for value in values)


def _end(memory: sgm.SparseGraphicalMemory, text: str, name: str) -> End:
    if text.strip().lstrip("-").isdecimal():
        node = int(text)
        if not 0 <= node < len(memory):
            raise sgm.InputError(
                f"{name} is node {node}: expected 0 to {len(memory) - 1}, the memory has {len(memory)}"
            )
        return End(text, node)
    if (numbers := _numbers(text)) is not None:
        return End(text, value=_checked_place(memory, numbers, name))
    if Path(text).is_file():
        return End(text, value=read_image(memory, Path(text), name))
    raise sgm.InputError(f"{name} is {text!r}: expected {_ACCEPTED}")


def _numbers(text: str) -> NDArray[np.float64] | None:
    try:
        return np.array([float(part) for part in text.split(",")]) if "," in text else None
    except ValueError:
        return None


def _checked_place(memory: sgm.SparseGraphicalMemory, values: NDArray[np.float64], name: str) -> NDArray[Any]:
    shapes = {key: memory.attributes[key].shape[1:] for key in (POSITION, ACHIEVED_GOAL) if key in memory.attributes}
    if memory.settings.keep_observations:
        shapes["observation"] = memory.observations.shape[1:]
    if values.shape not in shapes.values():
        known = ", ".join(f"{' × '.join(map(str, shape))} for an {key}" for key, shape in shapes.items())
        raise sgm.InputError(f"{name} has {len(values)} coordinates: expected {known or 'a node number'}")
    if not np.isfinite(values).all():
        raise sgm.InputError(f"{name} is {','.join(map(str, values))}: expected finite coordinates")
    return values


def read_image(memory: sgm.SparseGraphicalMemory, path: Path, name: str) -> NDArray[Any]:
    """Read an image file in the format of the memory's observations; it is resized if necessary."""
    shape = memory.observations.shape[1:] if memory.settings.keep_observations else ()
    if len(shape) not in (2, 3):
        raise sgm.InputError(
            f"{name} is the file {path}, but the memory's observations are not images: give {_ACCEPTED}"
        )
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError as error:
        raise MissingExtra("reading images", "images", error) from error
    try:
        with Image.open(path) as image:
            resized = image.convert("RGB" if shape[2:] == (3,) else "L")
            if resized.size != (shape[1], shape[0]):
                resized = resized.resize((shape[1], shape[0]), Image.Resampling.BOX)
            values = np.asarray(resized)
    except (UnidentifiedImageError, OSError, ValueError) as error:
        raise sgm.InputError(f"{name} is {path}, which cannot be read as an image: {error}") from error
    values = values[..., None] if shape[2:] == (1,) else values
    dtype = memory.observations.dtype
    return values if dtype == np.uint8 else (values / 255).astype(dtype)


def draw(path: Path, folder: Path, memory: sgm.SparseGraphicalMemory, found: sgm.Plan, start: End, goal: End) -> None:
    """Draw a plan: as a strip of images if the memory has them, otherwise as a map."""
    if memory.settings.keep_observations and memory.observations.ndim > 2:
        images, titles = list(memory.observations[found.nodes]), plan_titles(found)
        if start.value is not None:
            images, titles = [start.value, *images], ["start", *titles]
        if goal.value is not None:
            images, titles = [*images, goal.value], [*titles, f"goal · {found.length:.0f} steps"]
        figures.strip(path, np.stack(images), titles, f"{len(found)} nodes, {found.length:.0f} steps")
        return
    layout = lay_out(memory)
    seen = None
    if layout.true and (folder / SEEN).is_file():
        seen = read_arrays(folder, SEEN, "places")["places"].astype(np.float64)
    figures.plan_map(path, memory, layout, seen, found)


def _short(text: str) -> str:
    """Shorten a text for use in a file name."""
    name = Path(text).stem if not text.replace(",", "").replace(".", "").replace("-", "").isdecimal() else text
    return "".join(c if c.isalnum() or c in ".,_" else "_" for c in name)[:40]
