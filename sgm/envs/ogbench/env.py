"""Point mazes of OGBench as one vector environment: many robots in one maze, moved as arrays.

The protocol is that of the `ogbench` package (Park et al. 2024): five tasks, start and goal each anywhere in the middle
quarter of a cell, 1,000 steps, success within 1.0 of the goal after a step, teleports that lead to a random exit. The
maps, tasks and contacts with walls are those of the package; the random numbers differ. See `sgm.envs.ogbench.maze`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from sgm.envs.vector import check_mask, is_number, require, spread_seeds
from sgm.errors import InputError

from .maze import Floats, Ints, Maze
from .names import MAZES

EPISODE_STEPS = 1_000
REACHED = 1.0  # distance within which a goal is reached, map units
NOISE = 1.0  # largest offset of starts and goals from the centre of their cell on each axis, map units
OPTIONS = ("task_id", "cells", "starts", "goals", "reset_mask")
Observation = dict[str, Floats]


class PointMazes(VectorEnv[Observation, np.ndarray, np.ndarray]):
    """`num_envs` robots in a point maze of OGBench, each with its own goal and its own random generator.

    Observations are `observation`, `achieved_goal` (the same) and `desired_goal`, each (2,) float64: x and y in map
    units. An action is (2,), clipped to [−1, 1]; it moves the robot by 0.2 times the action. `info` has `success` and
    `position`, the position of the robot: after entering a teleport, that is the exit, while the observation is still
    the place where it entered.

    `reset(options=...)` accepts `reset_mask` and one of:

    - `task_id`: 1 to 5, a number or (num_envs,) of them;
    - `cells`: (num_envs, 2, 2) rows and columns of start and goal cells, with the noise of the tasks;
    - `starts` and `goals`: (num_envs, 2) each, x and y, without noise. Without `goals`, the goals stay.

    Without these options it draws one of the five tasks.

    There is no autoreset: a robot whose episode has ended stays where it is until it is reset.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012 (Gymnasium's)
    idle_action = 0.0

    def __init__(
        self,
        num_envs: int = 1,
        maze: str = "giant",
        *,
        max_episode_steps: int | None = EPISODE_STEPS,
        starts: ArrayLike | None = None,
    ):
        """Make `num_envs` robots in a maze: "medium", "large", "giant" or "teleport".

        With `starts`, (m, 2) positions, resets without options start at a random one of them, without a goal.
        """
        require(maze in MAZES, "maze", maze, f"one of {', '.join(MAZES)}")
        require(is_number(num_envs, 1), "num_envs", num_envs, "a number of sub-environments, 1 or more")
        can_last = max_episode_steps is None or is_number(max_episode_steps, 1)
        require(can_last, "max_episode_steps", max_episode_steps, "1 or more, or None for no limit")
        self.maze, self.num_envs, self.max_episode_steps = Maze(maze), num_envs, max_episode_steps
        keys = ("observation", "achieved_goal", "desired_goal")
        box = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.single_observation_space = spaces.Dict(dict.fromkeys(keys, box))
        self.single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.tasks: Ints = np.array([(task["init_ij"], task["goal_ij"]) for task in self.maze.env.task_infos])
        self._random = [np.random.default_rng() for _ in range(num_envs)]
        # Before its first reset a robot is in the first cell, so that the positions of all robots are numbers.
        self.places, self.goals, self._seen = np.zeros((3, num_envs, 2))
        self._warm = np.zeros((num_envs, 2))
        self._elapsed = np.zeros(num_envs, np.int64)
        self._finished = np.zeros(num_envs, np.bool_)
        self.starts = None if starts is None else np.asarray(starts, np.float64)
        self.simulated = 0  # steps of robots for which the simulator was called

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in every sub-environment, or in those of `options["reset_mask"]`."""
        given = dict(options or {})
        if unknown := sorted(set(given) - set(OPTIONS)):
            raise InputError(f"reset got unknown options {unknown}; accepted: {', '.join(OPTIONS)}")
        mask = check_mask(given.pop("reset_mask", None), self.num_envs)
        rows = np.flatnonzero(mask)
        for row, own in enumerate(spread_seeds(seed, self.num_envs)):
            if own is not None and mask[row]:
                self._random[row] = np.random.default_rng(own)
        if "starts" in given or "goals" in given:
            self._put(rows, given)
        elif self.starts is not None and not given:
            chosen = [self._random[row].integers(len(self.starts)) for row in rows.tolist()]
            self.places[rows], self.goals[rows] = self.starts[chosen], np.nan
        else:
            cells = self._cells(rows, given)
            noise = np.stack([self._random[row].uniform(-NOISE, NOISE, (2, 2)) for row in rows.tolist()])
            ends = self.maze.centres(cells.reshape(-1, 2)).reshape(-1, 2, 2) + noise
            self.places[rows], self.goals[rows] = ends[:, 0], ends[:, 1]
        self._seen[rows] = self.places[rows]
        self._warm[rows], self._elapsed[rows], self._finished[rows] = 0, 0, False
        return self._observe(), self._info(np.zeros(self.num_envs, np.bool_))

    def step(self, actions: ArrayLike) -> tuple[Observation, Floats, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take (num_envs, 2) actions in sub-environments whose episode has not ended."""
        checked = np.asarray(actions, np.float64)
        if checked.shape != (self.num_envs, 2) or np.isnan(checked).any():
            raise InputError(f"got actions of shape {checked.shape}: expected ({self.num_envs}, 2) numbers in [−1, 1]")
        going = np.flatnonzero(~self._finished)
        warm = self._warm[going]
        places, asked = self.maze.move(self.places[going], np.clip(checked[going], -1, 1), warm)
        self.places[going], self._warm[going] = places, warm
        self.simulated += asked
        self._elapsed[going] += 1
        self._seen[going] = places
        success = np.zeros(self.num_envs, np.bool_)
        success[going] = np.linalg.norm(places - self.goals[going], axis=1) <= REACHED
        for row in going[self.maze.entered(places)].tolist():
            self.places[row] = self.maze.exits[self._random[row].integers(len(self.maze.exits))]
        late = np.zeros(self.num_envs, np.bool_)
        if self.max_episode_steps is not None:
            late[going] = self._elapsed[going] >= self.max_episode_steps
        self._finished |= success | late
        return self._observe(), success.astype(np.float64), success, late, self._info(success)

    def set_goals(self, goals: ArrayLike, mask: NDArray[np.bool_] | None = None) -> Observation:
        """Set new goals, (num_envs, 2), within episodes; robots that had reached their goal continue.

        Positions and step counts do not change.
        """
        mask = check_mask(mask, self.num_envs)
        self.goals[mask] = np.asarray(goals, np.float64)[mask]
        late = np.inf if self.max_episode_steps is None else self.max_episode_steps
        self._finished[mask] = self._elapsed[mask] >= late
        return self._observe()

    def _cells(self, rows: Ints, given: Mapping[str, Any]) -> Ints:
        """(m, 2, 2) start and goal cells for the robots `rows`, from the options or drawn."""
        if "cells" in given:
            cells, shape = np.asarray(given["cells"]), (self.num_envs, 2, 2)
            fits = cells.shape == shape and cells.dtype.kind in "iu"
            require(fits, "cells", given["cells"], f"whole numbers of shape {shape}")
            free = self.maze.map[tuple(cells[rows].reshape(-1, 2).T)] == 0
            require(free.all(), "cells", cells[rows].tolist(), "rows and columns of cells without a wall")
            return np.asarray(cells[rows], np.int64)
        if "task_id" in given:
            tasks = np.broadcast_to(np.asarray(given["task_id"]), self.num_envs)[rows]
            known = tasks.dtype.kind in "iu" and ((tasks >= 1) & (tasks <= len(self.tasks))).all()
            require(known, "task_id", given["task_id"], f"whole numbers from 1 to {len(self.tasks)}")
            return self.tasks[tasks - 1]
        return self.tasks[[self._random[row].integers(len(self.tasks)) for row in rows.tolist()]]

    def _put(self, rows: Ints, given: Mapping[str, Any]) -> None:
        for name, kept in (("starts", self.places), ("goals", self.goals)):
            if name in given:
                places = np.asarray(given[name], np.float64)
                shape = (self.num_envs, 2)
                require(places.shape == shape, name, given[name], f"x and y of each robot, of shape {shape}")
                inside = self.maze.contains(places[rows]).all()
                free = inside and (self.maze.map[tuple(self.maze.cells_at(places[rows]).T)] == 0).all()
                require(free, name, places[rows].tolist(), "places in cells without a wall")
                kept[rows] = places[rows]

    def _observe(self) -> Observation:
        return {
            "observation": self._seen.copy(),
            "achieved_goal": self._seen.copy(),
            "desired_goal": self.goals.copy(),
        }

    def _info(self, success: NDArray[np.bool_]) -> dict[str, Any]:
        every = np.ones(self.num_envs, np.bool_)
        values = {"success": success.copy(), "position": self.places.copy()}
        return values | {f"_{name}": every.copy() for name in values}
