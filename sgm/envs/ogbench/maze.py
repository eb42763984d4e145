"""Point mazes of OGBench: their cells, shortest paths between cells, and their physics for many robots at once.

The simulator is called only if the sphere may touch a wall: an action sets the position of the sphere and its speed is
0, so physics changes nothing elsewhere. The numbers are the same with and without the simulator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.envs.outlines import outline

from .package import register

SPEED = 0.2  # map units that an action of length 1 moves the sphere
RADIUS = 0.7  # of the sphere, map units
TOUCH = 1e-6  # distance to a wall within which the simulator is called, map units
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1))  # in the order of the package, which decides between equal paths
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Maze:
    """A point maze: its cells, the shortest paths of the oracle policy, and its physics."""

    def __init__(self, name: str) -> None:
        """Make the environment of the package, for its map and simulator."""
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
        """(n, 4) x, y, x, y of both ends of the lines of walls, map units."""
        ends = outline(self.map == 1).reshape(-1, 2)[:, ::-1]
        return np.asarray(((ends - 0.5) * self.unit - self.offset).reshape(-1, 4), np.float64)

    def cells_at(self, places: Floats) -> Ints:
        """(n, 2) x and y to (n, 2) rows and columns."""
        return ((places[:, ::-1] + self.offset + 0.5 * self.unit) / self.unit).astype(np.int64)

    def contains(self, places: Floats) -> NDArray[np.bool_]:
        """(n, 2) x and y to (n,) bool: whether a position is on the map."""
        cells = (places[:, ::-1] + self.offset + 0.5 * self.unit) / self.unit
        return np.asarray(((cells >= 0) & (cells < self.map.shape)).all(axis=1))

    def towards(self, places: Floats, goals: Floats) -> Floats:
        """(n, 2) unit vectors from positions to the centre of the next cell on the shortest path to (n, 2) goals."""
        (i, j), (goal_i, goal_j) = self.cells_at(places).T, self.cells_at(goals).T
        ahead = self.centres(self._next[goal_i, goal_j, i, j]) - places
        return np.asarray(ahead / (np.sqrt((ahead**2).sum(axis=1, keepdims=True)) + 1e-6))

    def touching(self, places: Floats) -> NDArray[np.bool_]:
        """(n,) whether the sphere may touch a wall."""
        cells = self.cells_at(places)
        inside = places - self.centres(cells)
        edge = 0.5 * self.unit - np.abs(inside)  # from the centre of the sphere to the nearest edges of its cell
        near = edge < RADIUS + TOUCH
        (x, y), (near_x, near_y) = np.where(inside < 0, -1, 1).T, near.T
        i, j = cells.T
        corner = near_x & near_y & ((edge**2).sum(axis=1) < (RADIUS + TOUCH) ** 2)
        beside = near_x & self._is_wall[i, j + x] | near_y & self._is_wall[i + y, j]
        return np.asarray(beside | corner & self._is_wall[i + y, j + x] | self._is_wall[i, j])

    def simulate(self, place: Floats, warm: Floats) -> None:
        """Simulate one step of a sphere; updates its (2,) `place` and the (2,) warm start of the solver in place."""
        data = self.env.data
        data.qpos[:], data.qvel[:], data.qacc_warmstart[:] = place, 0.0, warm
        self._step(self.env.model, data, nstep=self.env.frame_skip)
        place[:], warm[:] = data.qpos, data.qacc_warmstart

    def _in_a_corridor(self, i: int, j: int) -> bool:
        up, down, left, right = (self.map[i + a, j + b] for a, b in ((-1, 0), (1, 0), (0, -1), (0, 1)))
        return bool(up == down != left == right)

    def _search(self, i: int, j: int) -> Ints:
        """(height, width) number of cells on the shortest path from each cell to a cell; −1 where there is no path."""
        steps = np.full(self.map.shape, -1)
        steps[i, j], queue = 0, [(i, j)]
        for a, b in queue:
            for c, d in ((a + da, b + db) for da, db in NEIGHBOURS):
                if self.map[c, d] == 0 and steps[c, d] < 0:
                    steps[c, d] = steps[a, b] + 1
                    queue.append((c, d))
        return steps

    def _following(self, steps: Ints) -> Ints:
        """(height, width, 2) the neighbour nearest to the goal; the cell itself at the goal and without a path."""
        following: Ints = np.moveaxis(np.indices(steps.shape), 0, -1).copy()
        for i, j in np.argwhere(steps > 0).tolist():
            ways = [(i + a, j + b) for a, b in NEIGHBOURS if self.map[i + a, j + b] == 0]
            following[i, j] = min(ways, key=lambda cell: int(steps[cell]))
        return following

    def move(self, places: Floats, actions: Floats, warm: Floats) -> tuple[Floats, int]:
        """Move spheres for one step: (n, 2) positions and (n, 2) actions to (n, 2) positions, and the number simulated.

        `warm`, (n, 2), is the warm start of the solver for each sphere, 0 at the start of an episode; it is updated.
        """
        places = places + SPEED * actions
        touching = self.touching(places)
        warm[~touching] = 0
        rows = np.flatnonzero(touching)
        for row in rows.tolist():
            self.simulate(places[row], warm[row])
        return places, len(rows)

    def entered(self, places: Floats) -> Ints:
        """Indices of those of (n, 2) positions that are in a teleport."""
        if not len(self.doors):
            return np.empty(0, np.int64)
        apart = ((places[:, None] - self.doors) ** 2).sum(axis=2).min(axis=1)
        return np.flatnonzero(apart <= self.door_radius**2)
