"""OGBench's point mazes: their cells, the way through them, and their physics for many robots at once.

The simulator is asked only where the sphere may touch a wall: an action moves the sphere as such and leaves it without
speed, so that physics does nothing elsewhere. Both ways give the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.envs.outlines import outline

from .package import register

SPEED = 0.2  # map units that an action of length 1 moves the sphere
RADIUS = 0.7  # of the sphere, map units
TOUCH = 1e-6  # map units around a wall within which the simulator is asked
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1))  # in the recipe's order, which decides between equal paths
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Maze:
    """A point maze: its cells, the oracle's way through them, and its physics."""

    def __init__(self, name: str) -> None:
        """Make the environment, whose map and simulator are used."""
        register("a point maze of OGBench")
        import gymnasium
        import mujoco

        env: Any = gymnasium.make(f"pointmaze-{name}-v0")
        self.env: Any = env.unwrapped
        self._step = mujoco.mj_step
        self.map = np.asarray(self.env.maze_map)
        self.unit, self.offset = float(self.env._maze_unit), float(self.env._offset_x)
        teleports = self.env._teleport_info
        self.doors = np.array(teleports["teleport_in_xys"] if teleports else []).reshape(-1, 2)
        self.exits = np.array(teleports["teleport_out_xys"] if teleports else []).reshape(-1, 2)
        self.door_radius = 1.5 * teleports["teleport_radius"] if teleports else 0.0
        self.cells = np.argwhere(self.map == 0)
        self.vertices = np.array([cell for cell in self.cells if not self._in_a_corridor(*cell)])
        self.steps_to = {tuple(cell): self._search(*cell) for cell in self.cells.tolist()}
        self._next = np.zeros((*self.map.shape, *self.map.shape, 2), np.int64)
        for goal, steps in self.steps_to.items():
            self._next[goal] = self._following(steps)
        self._is_wall = np.pad(self.map == 1, ((0, 1), (0, 1)))  # index −1 finds the padding too

    def centres(self, cells: Ints) -> Floats:
        """(n, 2) rows and columns to (n, 2) x and y."""
        return np.asarray(cells[:, ::-1] * self.unit - self.offset, np.float64)

    @property
    def lines(self) -> Floats:
        """(n, 4) x, y, x, y of the ends of walls, map units."""
        ends = outline(self.map == 1).reshape(-1, 2)[:, ::-1]
        return np.asarray(((ends - 0.5) * self.unit - self.offset).reshape(-1, 4), np.float64)

    def cells_at(self, places: Floats) -> Ints:
        """(n, 2) x and y to (n, 2) rows and columns."""
        return ((places[:, ::-1] + self.offset + 0.5 * self.unit) / self.unit).astype(np.int64)

    def contains(self, places: Floats) -> NDArray[np.bool_]:
        """(n, 2) x and y to (n,) bool: on the map."""
        cells = (places[:, ::-1] + self.offset + 0.5 * self.unit) / self.unit
        return np.asarray(((cells >= 0) & (cells < self.map.shape)).all(axis=1))

    def towards(self, places: Floats, goals: Floats) -> Floats:
        """(n, 2) unit vectors from places to the centre of the next cell on the way to (n, 2) goals."""
        (i, j), (goal_i, goal_j) = self.cells_at(places).T, self.cells_at(goals).T
        ahead = self.centres(self._next[goal_i, goal_j, i, j]) - places
        return np.asarray(ahead / (np.sqrt((ahead**2).sum(axis=1, keepdims=True)) + 1e-6))

    def touching(self, places: Floats) -> NDArray[np.bool_]:
        """(n,) whether the sphere may touch a wall."""
        cells = self.cells_at(places)
        inside = places - self.centres(cells)
        edge = 0.5 * self.unit - np.abs(inside)  # how far the sphere's middle is from the nearest edges of its cell
        near = edge < RADIUS + TOUCH
        (x, y), (near_x, near_y) = np.where(inside < 0, -1, 1).T, near.T
        i, j = cells.T
        corner = near_x & near_y & ((edge**2).sum(axis=1) < (RADIUS + TOUCH) ** 2)
        beside = near_x & self._is_wall[i, j + x] | near_y & self._is_wall[i + y, j]
        return np.asarray(beside | corner & self._is_wall[i + y, j + x] | self._is_wall[i, j])

    def simulate(self, place: Floats, warm: Floats) -> None:
        """Let physics act for one step on a sphere at (2,) `place`; changes it and the (2,) memory of the solver."""
        data = self.env.data
        data.qpos[:], data.qvel[:], data.qacc_warmstart[:] = place, 0.0, warm
        self._step(self.env.model, data, nstep=self.env.frame_skip)
        place[:], warm[:] = data.qpos, data.qacc_warmstart

    def _in_a_corridor(self, i: int, j: int) -> bool:
        up, down, left, right = (self.map[i + a, j + b] for a, b in ((-1, 0), (1, 0), (0, -1), (0, 1)))
        return bool(up == down != left == right)

    def _search(self, i: int, j: int) -> Ints:
        """Cells to walk from everywhere to a cell, over its neighbours; −1 where there is no way."""
        steps = np.full(self.map.shape, -1)
        steps[i, j], queue = 0, [(i, j)]
        for a, b in queue:
            for c, d in ((a + da, b + db) for da, db in NEIGHBOURS):
                if self.map[c, d] == 0 and steps[c, d] < 0:
                    steps[c, d] = steps[a, b] + 1
                    queue.append((c, d))
        return steps

    def _following(self, steps: Ints) -> Ints:
        """(height, width, 2) the neighbour nearest to the goal, or the cell itself where none is nearer."""
        following: Ints = np.moveaxis(np.indices(steps.shape), 0, -1).copy()
        for i, j in np.argwhere(steps > 0).tolist():
            ways = [(i + a, j + b) for a, b in NEIGHBOURS if self.map[i + a, j + b] == 0]
            following[i, j] = min(ways, key=lambda cell: int(steps[cell]))
        return following

    def move(self, places: Floats, actions: Floats, warm: Floats) -> tuple[Floats, int]:
        """One step of physics: (n, 2) places and (n, 2) actions to (n, 2) places, and how many asked the simulator.

        Changes `warm`, (n, 2), what the solver remembers of each sphere; 0 at the beginning of an episode.
        """
        places = places + SPEED * actions
        touching = self.touching(places)
        warm[~touching] = 0
        rows = np.flatnonzero(touching)
        for row in rows.tolist():
            self.simulate(places[row], warm[row])
        return places, len(rows)

    def entered(self, places: Floats) -> Ints:
        """Which of (n, 2) places are in a teleport."""
        if not len(self.doors):
            return np.empty(0, np.int64)
        apart = ((places[:, None] - self.doors) ** 2).sum(axis=2).min(axis=1)
        return np.flatnonzero(apart <= self.door_radius**2)
