"""Walls of known mazes as lines: those of OGBench, of Gymnasium-Robotics and of this package."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .outlines import Floats, outline

_OGBENCH = ("maze_map", "_maze_unit", "_offset_x", "_offset_y")
_ROBOTICS = ("maze_map", "maze_size_scaling", "x_map_center", "y_map_center")


class Walls(NamedTuple):
    """Walls as lines, in the coordinates of an environment's positions.

    Attributes:
        lines: (n, 4) float64 coordinates of both ends of each line.
        axes: "xy", or "rc" for rows, downwards, and columns.
    """

    lines: Floats
    axes: str = "xy"


def walls_of(env: Any) -> Walls | None:
    """Return the walls of an environment, single or vector; None if it is not a known maze."""
    single = getattr(env, "envs", None)
    base = getattr(single[0] if single else env, "unwrapped", env)
    maze: Any = getattr(base, "maze", None)
    if hasattr(maze, "lines"):  # sgm.envs.ogbench
        return Walls(np.asarray(maze.lines, np.float64))
    if hasattr(maze, "walls") and hasattr(maze, "size"):  # sgm.envs.point: observations are shares of height and width
        return Walls(outline(maze.walls) / np.tile(maze.size, 2), "rc")
    if all(hasattr(base, name) for name in _OGBENCH):
        ends = outline(np.asarray(base.maze_map) == 1).reshape(-1, 2)[:, ::-1] - 0.5
        return Walls((ends * base._maze_unit - (base._offset_x, base._offset_y)).reshape(-1, 4))
    if all(hasattr(maze, name) for name in _ROBOTICS):
        return Walls(_robotics(maze))
    return None


def _robotics(maze: Any) -> Floats:
    """(n, 4) lines of a Gymnasium-Robotics maze: cells with a 1 in the map are walls, and y is opposite to the rows."""
    walls = [[str(cell) == "1" for cell in row] for row in maze.maze_map]
    row, column = outline(walls).reshape(-1, 2).T * maze.maze_size_scaling
    places = np.stack([column - maze.x_map_center, maze.y_map_center - row], axis=1)
    return np.asarray(places.reshape(-1, 4), np.float64)
