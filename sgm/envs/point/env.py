"""A point robot in a maze, the paper's first benchmark: one (`PointMazeEnv`) or many (`PointMazeVectorEnv`).

Both are Gymnasium goal environments around the same array functions: sub-environment `i` of a vector environment seeded
with `s` and a single environment seeded with `s + i` give the same trajectory, bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from sgm.envs.point.mazes import PAD, Maze, load_maze
from sgm.envs.vector import SeededVectorEnv, check_mask, is_number, require, spread_seeds
from sgm.errors import InputError

Floats = NDArray[np.float64]
Observation = dict[str, NDArray[np.float32]]

SUBSTEPS = 10  # of one step, as in the authors' code
NOISE_CHUNK = 64  # steps of noise drawn at once: one call of a generator costs as much as sixty samples
NOISE_WIDTH = {"shared": 1, "independent": 2}  # samples per step
DIFFICULTY_MARGIN = 0.05  # share of the largest distance, on both sides, as in the authors' code
BOUNDS = {"min_distance", "max_distance"}
OPTIONS = ("difficulty", "min_distance", "max_distance", "uniform", "start", "goal")


def move(maze: Maze, positions: Floats, actions: Floats) -> Floats:
    """Move points for one step, in sub-steps, axis by axis; moves into a wall or off the map are left out.

    Args:
        maze: the maze that the points are in.
        positions: (n, 2) float64, cells; each in a free cell.
        actions: (n, 2) float64, cells; each component in [−1, 1].

    Returns:
        (n, 2) float64, cells; each in a free cell. Every row depends only on the same row of the arguments.
    """
    increments = actions / SUBSTEPS
    ends = positions.copy()
    for _ in range(SUBSTEPS):
        ends += increments
    # A move is monotone on each axis, so it stays within the block of cells between its ends: if all of these are
    # free, no sub-step is left out, and `_creep` would give the same sums.
    (top, left), (bottom, right) = _cells(positions).T, _cells(ends).T
    is_open = maze.open_cells
    clear = is_open[top, right] & is_open[bottom, left] & is_open[bottom, right]
    clear &= (abs(bottom - top) <= 1) & (abs(right - left) <= 1)
    if not clear.all():
        ends[~clear] = _creep(maze, positions[~clear], increments[~clear])
    return ends


def _creep(maze: Maze, positions: Floats, increments: Floats) -> Floats:
    """Move points in sub-steps, each one checked against the walls; see `move`."""
    places = list(positions.T)
    cells = list(_cells(positions).T)
    for _ in range(SUBSTEPS):
        for axis in (0, 1):
            ahead = places[axis] + increments[:, axis]
            probe = cells.copy()
            probe[axis] = _cells(ahead)
            free = maze.open_cells[probe[0], probe[1]]
            places[axis] = np.where(free, ahead, places[axis])
            cells[axis] = np.where(free, probe[axis], cells[axis])
    return np.stack(places, axis=1)


def _cells(coordinates: Floats) -> NDArray[np.intp]:
    """Indices into `Maze.open_cells`, same shape."""
    return np.floor(coordinates).astype(np.intp) + PAD


class _Noise:
    """Action noise, drawn from each sub-environment's own generator in chunks."""

    def __init__(self, count: int, width: int, deviation: float):
        self._deviation = deviation
        self._chunks = np.zeros((count, NOISE_CHUNK, width))
        self._used = np.full(count, NOISE_CHUNK)
        self._sources: list[np.random.Generator | None] = [None] * count

    def follow(self, index: int, rng: np.random.Generator) -> None:
        """Draw noise of sub-environment `index` from `rng` from now on; noise of another generator is discarded."""
        if self._sources[index] is not rng:
            self._sources[index] = rng
            self._used[index] = NOISE_CHUNK

    def draw(self, indices: NDArray[np.intp]) -> Floats:
        """Noise for one step of these sub-environments: (m,) int -> (m, width) float64."""
        if self._deviation == 0:
            return np.zeros((len(indices), self._chunks.shape[2]))
        for index in indices[self._used[indices] == NOISE_CHUNK]:
            rng = self._sources[index]
            assert rng is not None  # `_advance` raises before the first reset
            self._chunks[index] = rng.normal(0.0, self._deviation, self._chunks.shape[1:])
            self._used[index] = 0
        noise = self._chunks[indices, self._used[indices]]
        self._used[indices] += 1
        return noise


@dataclass(frozen=True)
class _Draw:
    """Settings for drawing a start and a goal."""

    interval: tuple[int, int] | None  # least and largest admissible distance, cells; None: the training mixture
    start: Floats | None  # (2,), or (n, 2) for a batch, cells; None: drawn
    goal: Floats | None

    def row(self, index: int) -> _Draw:
        """Select the settings of one sub-environment from those of a batch."""
        return _Draw(self.interval, _row(self.start, index), _row(self.goal, index))


def _row(batch: Floats | None, index: int) -> Floats | None:
    return None if batch is None else batch[index]


class PointMaze:
    """Base of the single and the vector environment: settings, spaces, rewards, drawing of starts and goals.

    Args:
        maze: a name or path for `load_maze`, or a `Maze`, which is not resized.
        resize: enlarge every cell by this factor.
        thin: enlarge free space only; walls stay one cell thick.
        maze_seed: seed of a random maze.
        action_noise: standard deviation of the noise added to an action before it is clipped, cells.
        noise: "shared" adds one sample to both components (the authors' code), "independent" one to each.
        success_radius: the goal is reached at less than this Euclidean distance, cells.
        prob_near: probability that the goal of a training episode is near its start; otherwise it is anywhere.
        near: largest geodesic distance of a near goal, cells.
        reset_options: default options of `reset`, also of automatic resets; None: training episodes.
        max_episode_steps: truncate episodes after this many steps; None: never.
        render_mode: None or "rgb_array".
    """

    _noise: _Noise

    def __init__(
        self,
        maze: str | os.PathLike[str] | Maze = "FourRooms",
        *,
        resize: int = 5,
        thin: bool = True,
        maze_seed: int = 0,
        action_noise: float = 1.0,
        noise: str = "shared",
        success_radius: float = 1.0,
        prob_near: float = 0.8,
        near: float = 4.0,
        reset_options: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
    ):
        require(noise in NOISE_WIDTH, "noise", noise, "'shared' or 'independent'")
        require(is_number(action_noise, 0), "action_noise", action_noise, "a standard deviation ≥ 0, in cells")
        can_succeed = is_number(success_radius, 0) and success_radius > 0
        require(can_succeed, "success_radius", success_radius, "a distance > 0, in cells")
        require(is_number(prob_near, 0, 1), "prob_near", prob_near, "a probability from 0 to 1")
        require(is_number(near, 0), "near", near, "a distance ≥ 0, in cells")
        can_last = max_episode_steps is None or is_number(max_episode_steps, 1)
        require(can_last, "max_episode_steps", max_episode_steps, "1 or more, or None for no limit")
        require(render_mode in (None, "rgb_array"), "render_mode", render_mode, "None or 'rgb_array'")
        self.maze = maze if isinstance(maze, Maze) else load_maze(maze, resize, thin, maze_seed)
        self.action_noise, self.noise = action_noise, noise
        self.success_radius, self.prob_near, self.near = success_radius, prob_near, near
        self.reset_options = dict(reset_options or {})
        self.max_episode_steps = max_episode_steps
        self.render_mode = render_mode

    def _noise_for(self, count: int) -> _Noise:
        """Make a source of noise for `count` sub-environments."""
        return _Noise(count, NOISE_WIDTH[self.noise], self.action_noise)

    def _single_spaces(self) -> tuple[Any, Any]:
        """Observation and action space of one environment."""
        keys = ("observation", "achieved_goal", "desired_goal")
        observations = spaces.Dict({key: spaces.Box(0.0, 1.0, (2,), np.float32) for key in keys})
        return observations, spaces.Box(-1.0, 1.0, (2,), np.float32)

    def to_observation(self, positions: ArrayLike) -> NDArray[np.float32]:
        """Convert positions, (..., 2) in cells, to observations: (..., 2) float32 in [0, 1]."""
        return (np.asarray(positions, dtype=np.float64) / self.maze.size).astype(np.float32)

    def to_cells(self, observations: ArrayLike) -> Floats:
        """Convert observations, (..., 2) in [0, 1], to positions: (..., 2) float64 in cells."""
        return np.asarray(observations, dtype=np.float64) * self.maze.size

    def compute_terminated(self, achieved_goal: ArrayLike, desired_goal: ArrayLike, info: Any = None) -> Any:
        """Whether goals are reached: (..., 2) and (..., 2) in [0, 1] -> (...) bool."""
        offsets = self.to_cells(achieved_goal) - self.to_cells(desired_goal)
        return np.hypot(offsets[..., 0], offsets[..., 1]) < self.success_radius

    def compute_truncated(self, achieved_goal: ArrayLike, desired_goal: ArrayLike, info: Any = None) -> Any:
        """Always False, because no position truncates an episode: (..., 2) and (..., 2) -> (...) bool."""
        return np.zeros(np.broadcast_shapes(np.shape(achieved_goal), np.shape(desired_goal))[:-1], dtype=np.bool_)[()]

    def compute_reward(self, achieved_goal: ArrayLike, desired_goal: ArrayLike, info: Any = None) -> Any:
        """−1, or 0 where the goal is reached: (..., 2) and (..., 2) in [0, 1] -> (...) float64.

        In the authors' code the step that reaches the goal also has reward −1, so returns differ by one.
        """
        return np.where(self.compute_terminated(achieved_goal, desired_goal), 0.0, -1.0)[()]

    def _observe(self, positions: Floats, goals: Floats) -> Observation:
        """Make observations from positions and goals, (..., 2) each in cells; the arrays are copies."""
        seen = self.to_observation(positions)
        return {"observation": seen, "achieved_goal": seen.copy(), "desired_goal": self.to_observation(goals)}

    def _advance(self, positions: Floats, actions: Floats, indices: NDArray[np.intp]) -> Floats:
        """Take actions in the sub-environments `indices`: (m, 2), (m, 2), (m,) -> (m, 2) float64, cells.

        Noise is added before clipping, as in the authors' code.
        """
        if np.isnan(positions).any():
            raise gymnasium.error.ResetNeeded("step was called before any reset of the environment; call reset first")
        return move(self.maze, positions, np.clip(actions + self._noise.draw(indices), -1.0, 1.0))

    def _parse(self, options: Mapping[str, Any], shape: tuple[int, ...], rows: Any = ...) -> _Draw:
        """Check reset options; `shape` is that of all starts, and only `rows` are used."""
        options = options or self.reset_options
        if unknown := sorted(set(options) - set(OPTIONS)):
            raise InputError(f"reset got unknown options {unknown}; accepted: {', '.join(OPTIONS)}")
        places: dict[str, Floats | None] = {"start": None, "goal": None}
        for what in places:
            if options.get(what) is not None:
                places[what] = self._settle(options[what], what, shape, rows)
        return _Draw(self._interval(options), places["start"], places["goal"])

    def _settle(self, given: ArrayLike, what: str, shape: tuple[int, ...], rows: Any) -> Floats:
        """Broadcast given positions to `shape`, float64 in cells, and check those of `rows`."""
        try:
            positions = np.array(np.broadcast_to(np.asarray(given, dtype=np.float64), shape))
        except ValueError as error:
            raise InputError(f"{what} is {given!r}; give (row, column) in cells, of shape (2,) or {shape}") from error
        positions[rows] = self.maze.settle(positions[rows], what)
        return positions

    def _interval(self, options: Mapping[str, Any]) -> tuple[int, int] | None:
        """Least and largest admissible distance, cells; None for the training mixture."""
        asked = {key: options[key] for key in OPTIONS[:4] if options.get(key) is not None}
        if asked.get("uniform") is False:
            del asked["uniform"]
        if not asked:
            return None
        if len(asked) > 1 and not asked.keys() <= BOUNDS:
            raise InputError(f"reset got {asked}; give difficulty, uniform, or min_distance and/or max_distance")
        if options.get("start") is not None and options.get("goal") is not None:
            raise InputError(f"reset got start, goal and {asked}; start and goal leave nothing to draw: drop one")
        low, high = self._bounds(asked)
        # Distances are integers; the slack admits a bound with a rounding error, such as 3.0000000000000004.
        least, largest = max(0, int(np.ceil(low - 1e-9))), int(min(np.floor(high + 1e-9), self.maze.diameter))
        if least > largest:
            raise InputError(
                f"reset got {asked}, but no two cells are from {low:g} to {high:g} cells apart: "
                f"distances in {self.maze!r} are the whole numbers from 0 to {self.maze.diameter}"
            )
        return least, largest

    def _bounds(self, asked: Mapping[str, Any]) -> tuple[float, float]:
        """Least and largest distance of the options, cells, not rounded yet."""
        farthest = self.maze.diameter
        if "difficulty" in asked:
            share = asked["difficulty"]
            require(is_number(share, 0, 1), "difficulty", share, "a share of the largest distance, from 0 to 1")
            return farthest * (share - DIFFICULTY_MARGIN), farthest * (share + DIFFICULTY_MARGIN)
        for key in BOUNDS & asked.keys():
            require(is_number(asked[key], 0), key, asked[key], "a distance ≥ 0, in cells")
        return asked.get("min_distance", 0), asked.get("max_distance", farthest)

    def _draw(self, rng: np.random.Generator, draw: _Draw) -> tuple[Floats, Floats]:
        """Draw start and goal, (2,) each, cells.

        A drawn start is uniform over the free cells that have an admissible goal, a drawn goal uniform over the
        admissible cells, both with a uniform position within the cell.
        """
        if draw.start is not None and draw.goal is not None:
            return draw.start, draw.goal
        low, high = draw.interval or (0, self.maze.diameter)
        if draw.interval is None and rng.random() < self.prob_near:
            high = int(min(high, self.near))
        if draw.goal is not None:
            return self._place_around(draw.goal, rng, low, high), draw.goal
        # Moves are between neighbours, so every integer distance up to that of the farthest cell occurs.
        start = draw.start if draw.start is not None else self._place(rng, self.maze.eccentricity >= low)
        return start, self._place_around(start, rng, low, high)

    def _place_around(self, anchor: Floats, rng: np.random.Generator, low: int, high: int) -> Floats:
        """Draw a random position from `low` to `high` cells from `anchor`: (2,) -> (2,) float64, cells."""
        distances = self.maze.distances[self.maze.cell_ids(anchor)]
        if distances.max() < low:
            raise InputError(
                f"no cell is {low} cells or more from ({anchor[0]:g}, {anchor[1]:g}): the farthest is "
                f"{distances.max()} away; give another position or a smaller distance"
            )
        return self._place(rng, (distances >= low) & (distances <= high))

    def _place(self, rng: np.random.Generator, admissible: NDArray[np.bool_]) -> Floats:
        """Draw a random position in one of the admissible free cells: (F,) bool -> (2,) float64, cells."""
        choices = np.flatnonzero(admissible)
        return self.maze.cells[choices[rng.integers(len(choices))]] + rng.random(2)

    def _frame(self, position: Floats, goal: Floats) -> NDArray[np.uint8]:
        return render(self.maze, position, goal, self.success_radius)


class PointMazeEnv(PointMaze, gymnasium.Env[Observation, np.ndarray]):
    """Goal environment of a point in a maze.

    Observations are `observation`, `achieved_goal` (the same) and `desired_goal`, each (2,) float32: row and column
    divided by the maze's height and width. An action is a displacement, (2,) in [−1, 1] cells. The reward is −1 until
    the goal is reached, which ends the episode. `info` has `success` (and `is_success`, the same), `position` ((2,)
    float64, cells) and, after a reset, `distance` (geodesic, from start to goal, cells).

    `reset(options=...)` accepts `start` and/or `goal`, (2,) in cells, and at most one of:

    - `difficulty`: the distance lies within 0.05 of this share of the maze's largest distance;
    - `min_distance`, `max_distance`: the distance in cells, ends included;
    - `uniform=True`: start and goal are anywhere.

    Without these options it starts a training episode.

    With `gymnasium.make` Gymnasium's wrapper limits an episode: to 20 steps, or to `max_episode_steps` (−1: no limit).
    Constructed directly, an environment has no limit unless `max_episode_steps` sets one.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's name and type)

    def __init__(self, maze: str | os.PathLike[str] | Maze = "FourRooms", **settings: Any):
        super().__init__(maze, **settings)
        self.observation_space, self.action_space = self._single_spaces()
        self._noise = self._noise_for(1)
        self._position = self._goal = np.full(2, np.nan)
        self._elapsed = 0

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; see the class for `options`."""
        super().reset(seed=seed)
        draw = self._parse(options or {}, (2,))
        self._noise.follow(0, self.np_random)
        self._position, self._goal = self._draw(self.np_random, draw)
        self._elapsed = 0
        observation = self._observe(self._position, self._goal)
        distance = float(self.maze.distance(self._position, self._goal))
        return observation, self._info(observation) | {"distance": distance}

    def step(self, action: ArrayLike) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take an action, (2,) in cells; it is clipped after the noise is added."""
        actions = _check_actions(np.asarray(action)[None], 1)
        self._position = self._advance(self._position[None], actions, np.zeros(1, dtype=np.intp))[0]
        self._elapsed += 1
        observation = self._observe(self._position, self._goal)
        info = self._info(observation)
        truncated = self.max_episode_steps is not None and self._elapsed >= self.max_episode_steps
        return observation, 0.0 if info["success"] else -1.0, info["success"], truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """Draw the maze, the point and its goal as a (pixels, pixels, 3) uint8 image."""
        return self._frame(self._position, self._goal) if self.render_mode == "rgb_array" else None

    def _info(self, observation: Observation) -> dict[str, Any]:
        success = bool(self.compute_terminated(observation["achieved_goal"], observation["desired_goal"]))
        return {"success": success, "is_success": success, "position": self._position.copy()}


class PointMazeVectorEnv(PointMaze, SeededVectorEnv[Observation, np.ndarray, np.ndarray]):
    """`num_envs` points, each with its own goal and random generator, moved as arrays; see `PointMazeEnv`.

    `reset(seed=s)` seeds sub-environment `i` with `s + i`. `reset(options=...)` accepts the options of a single
    environment, with `start` and `goal` of shape (2,) or (num_envs, 2), and `reset_mask`, (num_envs,) bool: reset only
    these.

    `autoreset_mode` is that of Gymnasium. "NextStep" (the default) and "SameStep" work as in `SyncVectorEnv`. With
    "Disabled" a sub-environment whose episode has ended stays where it is, with reward 0, until a reset or a new goal
    (`set_goals`), so that a batch of episodes can be run to the end of the last one (`SyncVectorEnv` would fail).
    """

    metadata = {  # noqa: RUF012 (Gymnasium's name and type)
        **PointMazeEnv.metadata,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    idle_action = 0.0  # a point whose episode has ended does not move; others move only by the noise

    def __init__(
        self,
        num_envs: int = 1,
        maze: str | os.PathLike[str] | Maze = "FourRooms",
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        **settings: Any,
    ):
        super().__init__(maze, **settings)
        require(is_number(num_envs, 1), "num_envs", num_envs, "a number of sub-environments, 1 or more")
        modes = {mode.value: mode for mode in AutoresetMode}
        mode = autoreset_mode if isinstance(autoreset_mode, AutoresetMode) else modes.get(autoreset_mode)
        require(mode is not None, "autoreset_mode", autoreset_mode, f"one of {list(modes)}")
        self.num_envs = num_envs
        self.autoreset_mode = mode
        self.metadata = {**self.metadata, "autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = self._single_spaces()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._noise = self._noise_for(num_envs)
        self._rngs, self._seeds = map(list, zip(*(seeding.np_random() for _ in range(num_envs)), strict=True))
        self._positions, self._goals = np.full((2, num_envs, 2), np.nan)
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._finished = np.zeros(num_envs, dtype=np.bool_)

    @property
    def positions(self) -> Floats:
        """(num_envs, 2) float64 positions of the points, cells (a copy)."""
        return self._positions.copy()

    @property
    def goals(self) -> Floats:
        """(num_envs, 2) float64 goals, cells (a copy)."""
        return self._goals.copy()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in every sub-environment, or in those of `options["reset_mask"]`."""
        choice = dict(options or {})
        mask = check_mask(choice.pop("reset_mask", None), self.num_envs)
        draw = self._parse(choice, (self.num_envs, 2), mask)
        seeds = spread_seeds(seed, self.num_envs)
        for index in np.flatnonzero(mask):
            if seeds[index] is not None:
                self._rngs[index], self._seeds[index] = seeding.np_random(seeds[index])
        self._begin(mask, draw)
        observation = self._observe(self._positions, self._goals)
        return observation, self._infos(observation, mask, begun=mask)

    def step(self, actions: ArrayLike) -> tuple[Observation, Floats, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take actions, (num_envs, 2) in cells, in sub-environments whose episode has not ended."""
        checked = _check_actions(actions, self.num_envs)
        idle = self._finished.copy()
        going = np.flatnonzero(~idle)
        self._positions[going] = self._advance(self._positions[going], checked[going], going)
        self._elapsed[going] += 1
        begun = idle & (self.autoreset_mode == AutoresetMode.NEXT_STEP)
        self._begin(begun)
        observation = self._observe(self._positions, self._goals)
        reached = self.compute_terminated(observation["achieved_goal"], observation["desired_goal"])
        rewards = np.where(reached | idle, 0.0, -1.0)
        terminated, truncated = reached & ~begun, self._out_of_time()
        self._finished = terminated | truncated
        infos = self._infos(observation, np.ones_like(idle), begun)
        if self.autoreset_mode == AutoresetMode.SAME_STEP and self._finished.any():
            observation, infos = self._begin_same_step(observation)
        return observation, rewards, terminated, truncated, infos

    def set_goals(self, goals: ArrayLike, mask: NDArray[np.bool_] | None = None) -> Observation:
        """Set new goals within episodes; points that had reached their goal continue.

        Positions and step counts do not change.

        Args:
            goals: (num_envs, 2) or (2,), cells.
            mask: (num_envs,) bool, sub-environments whose goal changes; None: all.
        """
        mask = check_mask(mask, self.num_envs)
        self._goals[mask] = self._settle(goals, "goal", (self.num_envs, 2), mask)[mask]
        self._finished[mask] = self._out_of_time()[mask]
        return self._observe(self._positions, self._goals)

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Draw one image per sub-environment, as in a single environment."""
        if self.render_mode != "rgb_array":
            return None
        return tuple(self._frame(*both) for both in zip(self._positions, self._goals, strict=True))

    def _begin(self, mask: NDArray[np.bool_], draw: _Draw | None = None) -> None:
        """Start an episode in the sub-environments of `mask`, (num_envs,) bool."""
        if not mask.any():
            return
        draw = draw or self._parse({}, (self.num_envs, 2), mask)
        for index in np.flatnonzero(mask).tolist():
            self._noise.follow(index, self._rngs[index])
            self._positions[index], self._goals[index] = self._draw(self._rngs[index], draw.row(index))
        self._elapsed[mask] = 0
        self._finished[mask] = False

    def _begin_same_step(self, final: Observation) -> tuple[Observation, dict[str, Any]]:
        """Start episodes where one has just ended; the last observation and info go into the info of this step."""
        ended = self._finished.copy()
        final_obs = np.full(self.num_envs, None, dtype=object)
        for index in np.flatnonzero(ended):
            final_obs[index] = {key: value[index] for key, value in final.items()}
        final_info = self._infos(final, ended)
        self._begin(ended)
        observation = self._observe(self._positions, self._goals)
        infos = self._infos(observation, np.ones_like(ended), begun=ended)
        infos |= {"final_obs": final_obs, "_final_obs": ended, "final_info": final_info, "_final_info": ended}
        return observation, infos

    def _out_of_time(self) -> NDArray[np.bool_]:
        """(num_envs,) bool: whether an episode has lasted for `max_episode_steps`."""
        return self._elapsed >= (np.inf if self.max_episode_steps is None else self.max_episode_steps)

    def _infos(
        self, observation: Observation, mask: NDArray[np.bool_], begun: NDArray[np.bool_] | None = None
    ) -> dict[str, Any]:
        """Vector infos of Gymnasium: an array per key, and a mask of its valid rows under `_key`."""
        success = self.compute_terminated(observation["achieved_goal"], observation["desired_goal"]) & mask
        values = {"success": success, "is_success": success.copy(), "position": self._positions * mask[:, None]}
        infos = values | {f"_{key}": mask.copy() for key in values}
        if begun is not None and begun.any():
            infos["distance"], infos["_distance"] = np.zeros(self.num_envs), begun.copy()
            infos["distance"][begun] = self.maze.distance(self._positions[begun], self._goals[begun])
        return infos


def render(maze: Maze, position: Floats, goal: Floats, success_radius: float = 1.0, size: int = 512) -> np.ndarray:
    """Draw a maze, its point (blue) and goal (orange) -> (height · s, width · s, 3) uint8, about `size` pixels wide."""
    scale = max(1, round(size / max(maze.height, maze.width)))
    colours = np.array([[250, 249, 245], [52, 60, 76]])  # free, wall
    image = colours[maze.walls.astype(int)].repeat(scale, axis=0).repeat(scale, axis=1).astype(np.float64)
    dot = max(0.3 * scale, 6.0)  # pixels; visible in large mazes too
    orange, white, blue = (230, 126, 20), (255, 255, 255), (28, 100, 210)
    if np.isfinite(goal).all():
        _disc(image, goal * scale, max(success_radius * scale, dot + 4), orange, opacity=0.3)
        _disc(image, goal * scale, dot, orange)
    if np.isfinite(position).all():
        _disc(image, position * scale, dot + 2, white)
        _disc(image, position * scale, dot, blue)
    return image.round().astype(np.uint8)


def _disc(image: Floats, centre: Floats, radius: float, colour: tuple[int, int, int], opacity: float = 1.0) -> None:
    """Paint a disc with smooth edges, in place; lengths in pixels."""
    rows, columns = np.ogrid[: image.shape[0], : image.shape[1]]
    distances = np.hypot(rows + 0.5 - centre[0], columns + 0.5 - centre[1])
    cover = opacity * np.clip(radius - distances + 0.5, 0.0, 1.0)[..., None]
    image += cover * (np.array(colour) - image)


def _check_actions(actions: ArrayLike, count: int) -> Floats:
    """Return actions as (count, 2) float64; InputError if they have another shape or are not finite."""
    array = np.asarray(actions, dtype=np.float64)
    require(
        array.shape == (count, 2) and np.isfinite(array).all(),
        "action",
        actions,
        f"finite displacements in cells, two for each of {count} environment{'s' if count > 1 else ''}",
    )
    return array
