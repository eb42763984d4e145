"""The walls of mazes that others have made, as lines: OGBench's, Gymnasium-Robotics', and our own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .outlines import Floats, outline

_OGBENCH = ("maze_map", "_maze_unit", "_offset_x", "_offset_y")
_ROBOTICS = ("maze_map", "maze_size_scaling", "x_map_center", "y_map_center")


class Walls(NamedTuple):
    """Lines in the coordinates of an environment's positions.

    Attributes:
        lines: (n, 4) float64 both ends of each.
        axes: "xy", or "rc" for rows, downwards, and columns.
    """

    lines: Floats
    axes: str = "xy"


def walls_of(env: Any) -> Walls | None:
    """The walls of an environment, single or vector; None if it is no maze that we know."""
    single = getattr(env, "envs", None)
    base = getattr(single[0] if single else env, "unwrapped", env)
    maze: Any = getattr(base, "maze", None)
    if hasattr(maze, "lines"):  # our point mazes of OGBench
        return Walls(np.asarray(maze.lines, np.float64))
    if hasattr(maze, "walls") and hasattr(maze, "size"):  # ours, whose observations are shares of height and width
        return Walls(outline(maze.walls) / np.tile(maze.size, 2), "rc")
    if all(hasattr(base, name) for name in _OGBENCH):
        ends = outline(np.asarray(base.maze_map) == 1).reshape(-1, 2)[:, ::-1] - 0.5
        return Walls((ends * base._maze_unit - (base._offset_x, base._offset_y)).reshape(-1, 4))
    if all(hasattr(maze, name) for name in _ROBOTICS):
        return Walls(_robotics(maze))
    return None


def _robotics(maze: Any) -> Floats:
    """Of Gymnasium-Robotics: cells are walls where the map has a 1, and y runs against the rows."""
    walls = [[str(cell) == "1" for cell in row] for row in maze.maze_map]
    row, column = outline(walls).reshape(-1, 2).T * maze.maze_size_scaling
    places = np.stack([column - maze.x_map_center, maze.y_map_center - row], axis=1)
    return np.asarray(places.reshape(-1, 4), np.float64)
