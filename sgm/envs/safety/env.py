"""Rooms in first-person view, `sgm/SafetyRooms-v0`: Safety Gym's Point robot with a camera, one or many at once.

Safety Gym is archived and its successor does not install with current packages. This environment uses MuJoCo's Python
bindings, with the published parameters and costs of Safety Gym, and random rooms. Linux and macOS only.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from sgm.envs.vector import SeededVectorEnv, SingleEnv, check_mask, is_number, require, spread_seeds
from sgm.errors import InputError
from sgm.progress import progress_bar

from .layouts import Layout, generate
from .model import TIMESTEP
from .pool import Workers
from .worker import FASTEST, FRAME_SKIP

for _needed in ("mujoco", "OpenGL"):  # only the worker processes import them
    if importlib.util.find_spec(_needed) is None:
        raise ImportError(
            f"sgm/SafetyRooms-v0 cannot import {_needed}: install the extra with "
            "pip install 'sparse-graphical-memory[safety]'",
            name=_needed,
        )

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Frame = NDArray[np.uint8]
Observation = dict[str, Any]

SIZE = 64  # side of images, pixels
LEAST, RENDERED = 8, 256  # side of the smallest and of the largest image, pixels; render() uses the largest
RADIUS = 0.4  # distance within which a goal is reached, m
EPISODE_STEPS = 300
SPINNING = 50.0  # rad/s, more than a robot reaches, even if something hits its nose
IMAGES = 128  # least number of images that can be rendered at once
ODOMETRY = ("x", "y", "heading", "forward", "sideways", "turning")  # m, m, rad, m/s, m/s, rad/s


@dataclasses.dataclass(frozen=True)
class Tasks:
    """Starts and goals of evaluation episodes, the same for all agents.

    Attributes:
        starts: (n, 3) x, y in m and heading in rad.
        goals: (n, 3) likewise; the goal image is taken there.
    """

    starts: Floats
    goals: Floats

    def __len__(self) -> int:
        """Number of tasks."""
        return len(self.starts)

    @classmethod
    def draw(cls, layout: Layout, number: int, seed: int, *, least: float = 2.0) -> Tasks:
        """Draw `number` tasks, uniform over the layout, with a Euclidean distance of at least `least` metres."""
        require(is_number(number, 1), "number", number, "a number of tasks, 1 or more")
        random = np.random.default_rng(seed)
        pairs = np.empty((0, 2, 3))
        for _ in range(200):
            drawn = layout.draw_poses(random, 2 * max(number, 32)).reshape(-1, 2, 3)
            apart = np.hypot(*(drawn[:, 0, :2] - drawn[:, 1, :2]).T) >= least
            pairs = np.concatenate([pairs, drawn[apart]])
            if len(pairs) >= number:
                return cls(pairs[:number, 0], pairs[:number, 1])
        width, height = layout.size
        raise InputError(
            f"least is {least!r}; give a distance that start and goal in {width:g} × {height:g} m can be apart"
        )


class SafetyRoomsVectorEnv(SeededVectorEnv[Observation, np.ndarray, np.ndarray]):
    """Many robots in separate copies of one layout, simulated and rendered by one process per core.

    Observations are `observation`, (n, size, size, 3) uint8, the camera image; `odometry`, (n, 6) float32: x and y in
    m, heading in rad (−π to π), forward and sideways speed in m/s, turning rate in rad/s; and `desired_goal`, the image
    at the goal, black without a goal. Actions are (n, 2), forward force and turning rate, clipped to [−1, 1]. A robot
    with a row of nan, `idle_action`, does not advance. A step is 50 simulator time steps, 0.1 s. The robot reaches
    1.5 m/s and 3 rad/s. As in Safety Gym, its force is limited so that all values above 0.05 have the same effect, and
    its turning servo is too stiff for the time step: turning rates oscillate by about 1 rad/s.

    An episode terminates, with reward 0 in place of −1, within 0.4 m of the goal. `infos` contain the ground truth, for
    evaluation only: `pose` (n, 3), `goal_pose` (n, 3), nan without a goal, `distance` (n,) between them in m, `success`
    and `is_success` (n,); and costs of 0 or 1, as in Safety Gym for the position at the end of the step:
    `cost_pillars` (n,) if the robot touches a pillar, `cost_hazards` if its centre is in a hazard, `cost` if either is.

    `reset(seed=s)` seeds sub-environment `i` with `s + i`. Reset options, all optional: `starts` and `goals`, (n, 3) or
    (3,) poses; `goals=None` for episodes without a goal; and `reset_mask`, (n,) bool: reset only these, and only these
    rows of the result are valid. Starts and goals that are not given are drawn uniformly over the layout. Robots start
    at rest.

    With `images=False` there is no `observation`, goals are not drawn at random, and only the images of given goals are
    rendered. `look` renders the current images on demand.

    Autoreset is disabled: after an episode has ended, actions still have an effect until it is reset.

    Attributes:
        layout: the layout.
        max_episode_steps: truncate episodes after this many steps; None: never. It may be changed.
        elapsed: (n,) steps of the current episodes.
    """

    metadata = {  # noqa: RUF012 (Gymnasium's name and type)
        "autoreset_mode": AutoresetMode.DISABLED,
        "render_modes": ["rgb_array"],
        "render_fps": round(1 / (FRAME_SKIP * TIMESTEP)),
    }
    idle_action = np.nan  # a robot with this action does not advance

    def __init__(
        self,
        num_envs: int = 1,
        *,
        layout: Layout | None = None,
        layout_seed: int = 0,
        size: int = SIZE,
        workers: int | None = None,
        images: bool = True,
        max_episode_steps: int | None = EPISODE_STEPS,
        render_mode: str | None = None,
    ) -> None:
        """Start the processes.

        Args:
            num_envs: number of robots.
            layout: the layout; None: `generate(layout_seed)`.
            layout_seed: seed of the layout, if none is given.
            size: side of images, pixels.
            workers: number of processes; None: one per available core. It does not affect the result.
            images: whether observations have images.
            max_episode_steps: truncate episodes after this many steps; None: never.
            render_mode: None or "rgb_array", images of 256 × 256 pixels.
        """
        require(is_number(num_envs, 1), "num_envs", num_envs, "a number of robots, 1 or more")
        wanted = "a Layout: generate(seed) or Layout.from_dict(...) of sgm.envs.safety.layouts"
        require(layout is None or isinstance(layout, Layout), "layout", layout, wanted)
        whole = isinstance(size, (int, np.integer)) and LEAST <= size <= RENDERED
        require(whole, "size", size, f"the side of images, {LEAST} to {RENDERED} pixels")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = min(num_envs, cores) if workers is None else workers
        require(is_number(workers, 1), "workers", workers, "a number of processes, 1 or more, or None for one per core")
        can_last = max_episode_steps is None or is_number(max_episode_steps, 1)
        require(can_last, "max_episode_steps", max_episode_steps, "1 or more, or None for no limit")
        require(render_mode in (None, "rgb_array"), "render_mode", render_mode, "None or 'rgb_array'")
        self.layout = generate(layout_seed) if layout is None else layout
        self.num_envs, self.size, self.images = num_envs, int(size), bool(images)
        self.max_episode_steps, self.render_mode = max_episode_steps, render_mode
        image = spaces.Box(0, 255, (self.size, self.size, 3), np.uint8)
        contents: dict[str, Any] = {"observation": image} if images else {}
        contents |= {"odometry": self._odometry_space(), "desired_goal": image}
        self.single_observation_space = spaces.Dict(contents)
        self.single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.goal = np.full((num_envs, 3), np.nan)
        self.goal_seen = np.zeros((num_envs, self.size, self.size, 3), np.uint8)
        self.elapsed = np.zeros(num_envs, np.int64)
        self._begun = np.zeros(num_envs, np.bool_)
        self._rngs, self._seeds = map(list, zip(*(seeding.np_random() for _ in range(num_envs)), strict=True))
        self._capacity = max(num_envs, IMAGES)
        self.workers = Workers(workers, self.layout, num_envs, self._capacity, self.size, RENDERED)
        self._state = self.workers.shared.state

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start episodes in all sub-environments, or in those of options["reset_mask"]; see the class for `options`."""
        self._check_open()
        options = dict(options or {})
        mask = check_mask(options.pop("reset_mask", None), self.num_envs)
        chosen = np.flatnonzero(mask)
        for i, new in enumerate(spread_seeds(seed, self.num_envs)):
            if mask[i] and new is not None:
                self._rngs[i], self._seeds[i] = seeding.np_random(new)
        starts, goals = self._settle(options, chosen)
        self.goal_seen[chosen] = 0
        aimed = chosen[np.isfinite(goals[chosen, 0])]
        self.goal_seen[aimed] = self.see(goals[aimed])
        self._state[chosen] = 0.0
        self._state[chosen, :3] = starts[chosen]
        self.workers.shared.touched[chosen] = 0  # only `step` detects contacts
        self.goal[chosen], self.elapsed[chosen], self._begun[chosen] = goals[chosen], 0, True
        return self._observation(), self._infos()

    def step(self, actions: ArrayLike) -> tuple[Observation, Floats, Bools, Bools, dict[str, Any]]:
        """Take one action each, (n, 2) forward force and turning rate; robots with a row of nan do not advance."""
        self._check_open()
        actions = np.asarray(actions, np.float64)
        resting = np.isnan(actions)
        clear = actions.shape == (self.num_envs, 2) and not np.isinf(actions).any()
        clear = clear and bool((resting[:, 0] == resting[:, 1]).all())
        wanted = f"({self.num_envs}, 2) force and turning rate, −1 to 1, or two nan to leave a robot alone"
        require(clear, "actions", actions, wanted)
        moving = np.flatnonzero(~resting[:, 0])
        if not self._begun[moving].all():
            raise gymnasium.error.ResetNeeded("step was called before any reset of the environment; call reset first")
        self.workers.shared.actions[moving] = np.clip(actions[moving], -1.0, 1.0)
        self.workers.run("step", moving)
        self.elapsed[moving] += 1
        infos = self._infos()
        late = self.elapsed >= (np.inf if self.max_episode_steps is None else self.max_episode_steps)
        reached = infos["success"]
        return self._observation(), np.where(reached, 0.0, -1.0), reached.copy(), late, infos

    def look(self, rows: ArrayLike) -> Frame:
        """Render the current images of these robots: (m,) integers -> (m, size, size, 3) uint8."""
        rows = np.asarray(rows)
        known = rows.shape == (0,) or (rows.ndim == 1 and np.issubdtype(rows.dtype, np.integer))
        known = known and bool(((rows >= 0) & (rows < self.num_envs)).all())
        require(known, "rows", rows, f"a list of numbers from 0 to {self.num_envs - 1}")
        rows = rows.astype(np.intp)
        if not self._begun[rows].all():
            raise gymnasium.error.ResetNeeded("look was called before any reset of the environment; call reset first")
        return self.see(self._poses()[rows])

    def see(self, poses: ArrayLike, *, size: int | None = None) -> Frame:
        """Render the images at given poses: (m, 3) -> (m, size, size, 3) uint8."""
        self._check_open()
        poses = np.asarray(poses, np.float64)
        fits = poses.ndim == 2 and poses.shape[1] == 3 and bool(np.isfinite(poses).all())
        require(fits, "poses", poses, "(m, 3) finite x, y in metres and heading in radians")
        size = self.size if size is None else size
        require(is_number(size, 1, RENDERED), "size", size, f"a side of 1 to {RENDERED} pixels")
        room = self.workers.shared.images
        at_once = min(self._capacity, len(room) // (size * size * 3))
        seen = np.empty((len(poses), size, size, 3), np.uint8)
        for low in range(0, len(poses), at_once):
            part = poses[low : low + at_once]
            self.workers.shared.poses[: len(part)] = part
            self.workers.run("see", np.arange(len(part)), size)
            seen[low : low + len(part)] = room[: part.shape[0] * size * size * 3].reshape(-1, size, size, 3)
        return seen

    def render(self) -> tuple[Frame, ...] | None:
        """Render the image of every robot, (256, 256, 3) each, independent of the size of observations."""
        if self.render_mode != "rgb_array":
            return None
        return tuple(self.see(self._poses(), size=RENDERED))

    def close_extras(self, **_: Any) -> None:
        """Stop the processes."""
        self.workers.close()

    def _check_open(self) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError("this environment is closed: make another one")

    def _settle(self, options: Mapping[str, Any], chosen: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Starts and goals, (n, 3) each, from the options or drawn; only the rows `chosen` are set."""
        if unknown := sorted(set(options) - {"starts", "goals"}):
            raise InputError(f"reset got unknown options {unknown}; accepted: starts, goals, reset_mask")
        starts, goals = np.full((2, self.num_envs, 3), np.nan)
        for poses, name in ((starts, "starts"), (goals, "goals")):
            if options.get(name) is not None:
                poses[chosen] = self._check_poses(options[name], name)[chosen]
                self._check_free(poses, name, chosen)
        draw_starts, draw_goals = options.get("starts") is None, "goals" not in options and self.images
        if draw_starts or draw_goals:
            for i in chosen.tolist():
                start, goal = self.layout.draw_poses(self._rngs[i], 2)
                starts[i] = start if draw_starts else starts[i]
                goals[i] = goal if draw_goals else goals[i]
        return starts, goals

    def _check_poses(self, given: ArrayLike, name: str) -> Floats:
        try:
            return np.broadcast_to(np.asarray(given, np.float64), (self.num_envs, 3))
        except (TypeError, ValueError):
            wanted = f"x and y in metres and heading in radians, of shape (3,) or ({self.num_envs}, 3)"
            raise InputError(f"{name} is {given!r}; give {wanted}") from None

    def _check_free(self, poses: Floats, name: str, chosen: NDArray[np.intp]) -> None:
        """Raise InputError if a robot cannot be at one of the chosen rows."""
        fits = self.layout.fits(poses[chosen])
        for i in chosen[~fits][:1]:
            width, height = self.layout.size
            raise InputError(
                f"{name}[{i}] is x, y, heading = {', '.join(f'{value:g}' for value in poses[i])}; give one within "
                f"{width:g} × {height:g} m where the robot fits between walls and pillars: draw_poses of the layout "
                "draws such poses, fits checks one"
            )

    @property
    def poses(self) -> Floats:
        """(n, 3) float64 poses of the robots, x and y in m, heading in rad (a copy); nan before the first reset."""
        return self._poses()

    def _poses(self) -> Floats:
        """(n, 3) x, y in m and heading in rad, −π to π; nan before the first reset."""
        poses = self._state[:, :3].copy()
        poses[:, 2] = (poses[:, 2] + np.pi) % (2 * np.pi) - np.pi
        poses[~self._begun] = np.nan
        return poses

    def _odometry_space(self) -> spaces.Box:
        """Space of odometry, with generous bounds."""
        width, height = self.layout.size
        most = np.array([width + 1, height + 1, np.pi + 1e-3, FASTEST, FASTEST, SPINNING], np.float32)
        least = np.array([-1, -1, *-most[2:]], np.float32)
        return spaces.Box(least, most, dtype=np.float32)

    def _odometry(self) -> NDArray[np.float32]:
        poses = self._poses()
        cos, sin = np.cos(poses[:, 2]), np.sin(poses[:, 2])
        speed_x, speed_y, turning = self._state[:, 3:6].T
        moving = np.column_stack([cos * speed_x + sin * speed_y, cos * speed_y - sin * speed_x, turning])
        return np.nan_to_num(np.column_stack([poses, moving]).astype(np.float32))

    def _observation(self) -> Observation:
        observation: Observation = {"odometry": self._odometry(), "desired_goal": self.goal_seen.copy()}
        if self.images:
            seen = np.zeros_like(self.goal_seen)
            seen[self._begun] = self.see(self._poses()[self._begun])
            observation = {"observation": seen, **observation}
        return observation

    def _infos(self) -> dict[str, Any]:
        """Vector infos of Gymnasium: an array per key, and a mask of its valid rows under `_key`."""
        poses = self._poses()
        distance = np.hypot(*(poses[:, :2] - self.goal[:, :2]).T)
        success = distance <= RADIUS
        pillars = self.workers.shared.touched.astype(np.float64)
        hazards = self.layout.hazardous(poses[:, :2]).astype(np.float64)
        values = {"pose": poses, "goal_pose": self.goal.copy(), "distance": distance}
        values |= {"success": success, "is_success": success.copy()}
        values |= {"cost": np.maximum(pillars, hazards), "cost_pillars": pillars, "cost_hazards": hazards}
        return values | {f"_{key}": self._begun.copy() for key in values}


class SafetyRoomsEnv(SingleEnv):
    """One robot as an ordinary environment: a `SafetyRoomsVectorEnv` with one sub-environment.

    Reset options: `start` and `goal` poses (x and y in m, heading in rad), `goal=None` for no goal.

    With `gymnasium.make` Gymnasium's wrapper limits an episode: to 300 steps, or to `max_episode_steps` (−1: no limit).
    Constructed directly, an environment has no limit unless `max_episode_steps` sets one.
    """

    metadata = {  # noqa: RUF012 (Gymnasium's name and type)
        "render_modes": SafetyRoomsVectorEnv.metadata["render_modes"],
        "render_fps": SafetyRoomsVectorEnv.metadata["render_fps"],
    }

    def __init__(self, layout: Layout | None = None, *, max_episode_steps: int | None = None, **settings: Any) -> None:
        """Start the worker process; `settings` are those of `SafetyRoomsVectorEnv`."""
        super().__init__(SafetyRoomsVectorEnv(1, layout=layout, max_episode_steps=max_episode_steps, **settings))

    @property
    def layout(self) -> Layout:
        """The layout."""
        return self.vector.layout


@dataclasses.dataclass(frozen=True)
class Rollouts:
    """Random exploration.

    Attributes:
        frames: (episodes, steps + 1, size, size, 3) uint8 images.
        odometry: (episodes, steps + 1, 6) float32, see `SafetyRoomsVectorEnv`.
        actions: (episodes, steps, 2) float32 actions between them.
    """

    frames: Frame
    odometry: NDArray[np.float32]
    actions: NDArray[np.float32]

    @property
    def poses(self) -> NDArray[np.float32]:
        """(episodes, steps + 1, 3) x, y in m and heading in rad."""
        return self.odometry[..., :3]


def wander(random: np.random.Generator, episodes: int, steps: int) -> NDArray[np.float32]:
    """Draw smooth random actions, mostly forward: (episodes, steps, 2) float32, −1 to 1.

    The noise is correlated over time: over 1 s for the force, which is forward two times in three and otherwise takes
    the robot away from walls; and over 2 s for turning, which makes arcs.
    """
    noise = random.standard_normal((episodes, steps, 2))
    keep = np.exp(-FRAME_SKIP * TIMESTEP / np.array([1.0, 2.0]))
    noise[:, 1:] *= np.sqrt(1 - keep**2)
    for step in range(1, steps):
        noise[:, step] += keep * noise[:, step - 1]
    return np.clip(noise + np.array([0.5, 0.0]), -1.0, 1.0).astype(np.float32)


def explore(env: SafetyRoomsVectorEnv, episodes: int, steps: int, seed: int, *, progress: bool = False) -> Rollouts:
    """Explore with smooth random actions from random poses.

    The result does not depend on the number of robots and of processes.

    Args:
        env: the environment, with or without images.
        episodes: number of episodes.
        steps: actions of an episode, independent of the limit of `env`.
        seed: seed of starts and actions.
        progress: show a progress bar.
    """
    require(is_number(episodes, 1) and is_number(steps, 1), "episodes, steps", (episodes, steps), "1 or more of each")
    random = np.random.default_rng(seed)
    begin = env.layout.draw_poses(random, episodes)
    taken = wander(random, episodes, steps)
    frames = np.empty((episodes, steps + 1, env.size, env.size, 3), np.uint8)
    odometry = np.empty((episodes, steps + 1, len(ODOMETRY)), np.float32)
    with progress_bar(shown=progress, total=episodes * steps, desc="explore", unit="step", leave=False) as bar:
        for begun in range(0, episodes, env.num_envs):
            rows = np.arange(begun, min(begun + env.num_envs, episodes))
            used = len(rows)
            mask = np.arange(env.num_envs) < used
            starts = begin[np.resize(rows, env.num_envs)]
            observation, _ = env.reset(options={"starts": starts, "goals": None, "reset_mask": mask})
            act = np.full((env.num_envs, 2), env.idle_action)
            for step in range(steps + 1):
                if step:
                    act[:used] = taken[rows, step - 1]
                    observation, *_ = env.step(act)
                    bar.update(used)
                seen = observation["observation"][:used] if env.images else env.look(np.arange(used))
                frames[rows, step], odometry[rows, step] = seen, observation["odometry"][:used]
    return Rollouts(frames, odometry, taken)
