"""Pictures of memories over mazes (needs matplotlib)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import sgm
from sgm.envs.point.mazes import Maze

WALL, FLOOR = "#3b3f46", "#f7f6f2"
NODE, EDGE, CUT = "#1f4e79", "#7fa8cc", "#d1495b"
PLANS = ("#e08e0b", "#2a9d4a")
TRACK = "#6b2c91"
METHOD = {"sorb": "#c2570c", "sorb+sgm": NODE}


def pyplot() -> Any:
    """matplotlib.pyplot, drawing to files."""
    try:
        import matplotlib
    except ImportError as error:
        raise sgm.SGMError("pictures need matplotlib: pip install 'sparse-graphical-memory[viz]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def draw_maze(axes: Any, maze: Maze) -> None:
    """Walls and floor; positions are (row, column), rows downwards."""
    from matplotlib.colors import ListedColormap

    extent = (0, maze.width, maze.height, 0)
    axes.imshow(maze.walls, cmap=ListedColormap([FLOOR, WALL]), extent=extent, interpolation="nearest", zorder=0)
    axes.set(xticks=[], yticks=[], xlim=(0, maze.width), ylim=(maze.height, 0), aspect="equal")
    for spine in axes.spines.values():
        spine.set(color=WALL, linewidth=2)


def draw_edges(axes: Any, positions: NDArray[Any], edges: sgm.Edges, colour: str = EDGE, **style: Any) -> None:
    """Edges between nodes at (V, 2) positions."""
    from matplotlib.collections import LineCollection

    segments = np.stack([positions[edges.source], positions[edges.target]], axis=1)[:, :, ::-1]
    axes.add_collection(LineCollection(list(segments), colors=colour, **{"linewidths": 0.5, "zorder": 1, **style}))


def draw_nodes(axes: Any, positions: NDArray[Any], size: float = 6) -> None:
    """Nodes at (V, 2) positions."""
    axes.scatter(positions[:, 1], positions[:, 0], s=size, color=NODE, linewidths=0, zorder=3)


def draw_path(axes: Any, path: NDArray[Any], colour: str, label: str, **style: Any) -> None:
    """A plan through (L, 2) positions."""
    look = {"linestyle": "-", "marker": "o", "linewidth": 2.2, "markersize": 3.5, "zorder": 4, **style}
    axes.plot(path[:, 1], path[:, 0], color=colour, label=label, **look)


def draw_failed(axes: Any, positions: NDArray[Any], edges: sgm.Edges, label: str) -> None:
    """Edges that failed, each with a cross on its middle: not by colour alone."""
    draw_edges(axes, positions, edges, CUT, linewidths=2.2, zorder=5)
    middle = (positions[edges.source] + positions[edges.target]) / 2
    axes.scatter(middle[:, 1], middle[:, 0], s=46, marker="x", color=CUT, linewidths=2.2, label=label, zorder=5.5)


def draw_ends(axes: Any, start: NDArray[Any], goal: NDArray[Any]) -> None:
    """Where a plan begins and where it should lead."""
    for place, marker, label in ((start, "o", "start"), (goal, "*", "goal")):
        size = 90 if marker == "o" else 220
        axes.scatter(
            place[1], place[0], s=size, marker=marker, color="white", edgecolors="black", label=label, zorder=6
        )


def draw_picture(axes: Any, picture: ArrayLike, frame: str | None = None) -> None:
    """A picture without scales, in a frame of this colour if there is one."""
    axes.imshow(np.asarray(picture), interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=frame is not None, color=frame, linewidth=3)


def some(edges: sgm.Edges, chosen: NDArray[np.bool_]) -> sgm.Edges:
    """The edges of a mask."""
    return sgm.Edges(edges.source[chosen], edges.target[chosen], edges.weight[chosen])


def ink(drawn: NDArray[np.bool_], most: int) -> float:
    """How opaque to draw edges: the more there are, the less."""
    return float(np.clip(most / max(int(drawn.sum()), 1), 0.15, 0.9))


def plain(axes: Any, grid: str = "y") -> None:
    """Two spines and a faint grid."""
    axes.grid(axis=grid, color="#e4e4e0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def legend_below(axes: Any, columns: int) -> None:
    """A legend that covers nothing of the picture."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.01), ncol=columns, frameon=False, fontsize=9)


def save(figure: Any, path: Path) -> None:
    """Write a figure and close it."""
    figure.savefig(path, dpi=150, bbox_inches="tight")
    pyplot().close(figure)
