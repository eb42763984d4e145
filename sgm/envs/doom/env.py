"""ViZDoom mazes in first-person view: `sgm/DoomMaze-v0`, one engine or many at once. Linux and macOS only."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
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

from . import mazes as doom_mazes
from .driver import ACTIONS, IMAGE, RENDERED, REPEAT, RESET, Frame
from .driver import IDLE as IDLE  # number of the idle action, part of this module's interface
from .engine import SIZE, Engine, EngineDied, check_size
from .wad import DoomMap, MapError

RADIUS = 63.0  # distance within which a goal is reached, map units
EPISODE_STEPS = 200
LEVELS = {"easy": (RADIUS, 200.0), "medium": (200.0, 400.0), "hard": (400.0, 600.0)}  # start to goal, map units
TRIES = 3  # attempts to start an episode
AT_ONCE = 4  # engines that start at the same time

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Tasks:
    """Starts and goals of evaluation episodes, the same for all agents.

    Attributes:
        starts: (n, 3) x, y in map units and heading in degrees.
        goals: (n, 3) likewise; the goal image is taken there.
        levels: (n,) level of each task.
    """

    starts: Floats
    goals: Floats
    levels: NDArray[np.str_]

    def __len__(self) -> int:
        """Number of tasks."""
        return len(self.starts)

    @classmethod
    def draw(cls, doom_map: DoomMap, each: int, seed: int, levels: Mapping[str, tuple[float, float]] = LEVELS) -> Tasks:
        """Draw `each` tasks of every level; starts, goals and headings are uniform over the map."""
        random = np.random.default_rng(seed)
        found: dict[str, list[tuple[Any, Any]]] = {level: [] for level in levels}
        for _ in range(1000):
            starts, goals = (doom_map.draw_positions(random, 1000) for _ in range(2))
            length = np.hypot(*(starts - goals).T)
            for level, (least, most) in levels.items():
                chosen = np.flatnonzero((length > least) & (length <= most))
                found[level] += zip(starts[chosen], goals[chosen], strict=True)
            if all(len(pairs) >= each for pairs in found.values()):
                break
        else:
            short = min(found, key=lambda level: len(found[level]))
            raise MapError(
                f"map {doom_map.name} is too small for {each} {short} tasks: start and goal {levels[short][0]:.0f} to "
                f"{levels[short][1]:.0f} map units apart were found {len(found[short])} times in a million tries"
            )
        pairs = np.array([pair for level in levels for pair in found[level][:each]]).reshape(-1, 2, 2)
        # The engine accepts integer degrees only.
        heading = random.integers(360, size=(len(pairs), 2)).astype(float)
        poses = np.concatenate([pairs, heading[..., None]], axis=2)
        return cls(poses[:, 0], poses[:, 1], np.repeat(list(levels), each))


class DoomMazeVectorEnv(SeededVectorEnv[dict[str, Frame], np.ndarray, np.ndarray]):
    """Many engines on one map, running in parallel.

    Observations are images, (n, height, width, 3) uint8: `observation`, the current view, also as `achieved_goal` (the
    same array), and `desired_goal`, the view at the goal, black without a goal. Actions are indices into `ACTIONS`. An
    episode terminates, with reward 0 in place of −1, within `radius` map units of the goal. `infos` contain the ground
    truth, for evaluation only: `pose` (n, 3), `distance` (n,) to the goal in map units, nan without a goal, `success`
    and `is_success` (n,), and `lost` (n,), see below.

    `reset(seed=s)` seeds sub-environment `i` with `s + i`. Reset options, all optional: `starts` and `goals`, (n, 3) or
    (3,) poses (x, y in map units, heading in degrees, rounded to integers); or `level`, one of `LEVELS`, from which
    both are drawn; `goals=None` for episodes without a goal, which saves rendering its image; and `reset_mask`, (n,)
    bool: reset only these, and only these rows of the result are valid. Starts and goals that are not given are drawn
    uniformly over the map.

    An engine that dies is restarted. If it dies within an episode, the episode is lost: it is truncated and marked in
    `infos["lost"]` until it is reset, counted in the attribute `lost`, and logged as an error. Autoreset is disabled:
    after an episode has ended, actions still have an effect until it is reset.
    """

    metadata = {  # noqa: RUF012 (Gymnasium's name and type)
        "autoreset_mode": AutoresetMode.DISABLED,
        "render_modes": ["rgb_array"],
        "render_fps": 35 // REPEAT,
    }

    idle_action = -1  # an engine with this action does not advance

    def __init__(
        self,
        num_envs: int = 1,
        *,
        doom_map: DoomMap | None = None,
        size: Sequence[int] = SIZE,
        radius: float = RADIUS,
        max_episode_steps: int | None = EPISODE_STEPS,
        render_mode: str | None = None,
    ) -> None:
        """Start the engines.

        Args:
            num_envs: number of engines.
            doom_map: the map; None: the default maze.
            size: (width, height) of images, pixels, at most 160 × 120, the resolution of the engine.
            radius: distance within which a goal is reached, map units.
            max_episode_steps: truncate episodes after this many steps; None: never.
            render_mode: None or "rgb_array", images at the resolution of the engine.
        """
        self.engines: list[Engine] = []
        require(is_number(num_envs, 1), "num_envs", num_envs, "a number of engines, 1 or more")
        require(is_number(radius, 0) and radius > 0, "radius", radius, "a distance > 0, in map units")
        can_last = max_episode_steps is None or is_number(max_episode_steps, 1)
        require(can_last, "max_episode_steps", max_episode_steps, "1 or more, or None for no limit")
        require(render_mode in (None, "rgb_array"), "render_mode", render_mode, "None or 'rgb_array'")
        wanted = "a DoomMap: DoomMap.read(wad, name) of sgm.envs.doom.wad or generate(seed) of sgm.envs.doom.mazes"
        require(doom_map is None or isinstance(doom_map, DoomMap), "doom_map", doom_map, wanted)
        self.map = doom_mazes.generate() if doom_map is None else doom_map
        self.num_envs, self.size, self.radius = num_envs, check_size(size), radius
        self.max_episode_steps, self.render_mode = max_episode_steps, render_mode
        width, height = self.size
        names = "observation", "achieved_goal", "desired_goal"
        self.single_observation_space = spaces.Dict(
            {name: spaces.Box(0, 255, (height, width, 3), np.uint8) for name in names}
        )
        self.single_action_space = spaces.Discrete(len(ACTIONS))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.seen, self.goal_seen = np.zeros((2, num_envs, height, width, 3), np.uint8)
        self.pose, self.goal = np.full((2, num_envs, 3), np.nan)
        self.elapsed = np.zeros(num_envs, np.int64)
        self.lost = 0
        self._lost = np.zeros(num_envs, np.bool_)
        self._rngs, self._seeds = map(list, zip(*(seeding.np_random() for _ in range(num_envs)), strict=True))
        try:
            for i in range(num_envs):
                self.engines.append(Engine(self.map, size=self.size))
                if i >= AT_ONCE:
                    self.engines[i - AT_ONCE].wait()
            for engine in self.engines:
                engine.wait()
        except BaseException:
            self.close()
            raise

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Frame], dict[str, Any]]:
        """Start episodes in all sub-environments, or in those of options["reset_mask"]; see the class for `options`."""
        self._check_open()
        options = dict(options or {})
        mask = check_mask(options.pop("reset_mask", None), self.num_envs)
        chosen = np.flatnonzero(mask).tolist()
        for i, new in enumerate(spread_seeds(seed, self.num_envs)):
            if mask[i] and new is not None:
                self._rngs[i], self._seeds[i] = seeding.np_random(new)
        starts, goals = self._settle(options, chosen)
        self.goal_seen[chosen] = 0
        self._look([i for i in chosen if np.isfinite(goals[i, 0])], goals, self.goal_seen)
        self._look(chosen, starts, self.seen)
        self.goal[chosen], self.elapsed[chosen], self._lost[chosen] = goals[chosen], 0, False
        return self._observation(), self._infos()

    def step(self, actions: ArrayLike) -> tuple[dict[str, Frame], Floats, Bools, Bools, dict[str, Any]]:
        """Take one action each, (n,) integers; engines with a negative action or a lost episode do not advance."""
        self._check_open()
        actions = np.asarray(actions)
        require(
            actions.shape == (self.num_envs,)
            and np.issubdtype(actions.dtype, np.integer)
            and (actions < len(ACTIONS)).all(),
            "actions",
            actions,
            f"({self.num_envs},) integers from 0 to {len(ACTIONS) - 1}, or less to leave an engine alone",
        )
        moving = np.flatnonzero((actions >= 0) & ~self._lost)
        if np.isnan(self.pose[moving]).any():
            raise gymnasium.error.ResetNeeded("step was called before any reset of the environment; call reset first")
        died = self._ask(moving.tolist(), lambda i: self.engines[i].ask(int(actions[i])), self.seen)
        self._lose(died)
        self.elapsed[moving] += 1
        infos = self._infos()
        late = self.elapsed >= (np.inf if self.max_episode_steps is None else self.max_episode_steps)
        reached = infos["success"]
        return self._observation(), np.where(reached, 0.0, -1.0), reached.copy(), late | self._lost, infos

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Whether the goal is reached by the distance in `info`, because images alone do not show it."""
        distance = info["distance"] if isinstance(info, Mapping) else [one["distance"] for one in info]
        return (np.asarray(distance) <= self.radius)[()]

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """0 where the goal is reached by the distance in `info`, else −1; images alone do not show it."""
        return np.where(self.compute_terminated(achieved_goal, desired_goal, info), 0.0, -1.0)[()]

    def render(self) -> tuple[Frame, ...] | None:
        """Return the view of every engine, (120, 160, 3) each."""
        if self.render_mode != "rgb_array":
            return None
        self._check_open()
        images = np.zeros((self.num_envs, RENDERED[1], RENDERED[0], 3), np.uint8)
        self._lose(self._ask(range(self.num_envs), lambda i: self.engines[i].ask(IMAGE), images))
        return tuple(images)

    def close_extras(self, **_: Any) -> None:
        """Stop the engines."""
        for engine in self.engines:
            engine.hang_up()
        for engine in self.engines:
            engine.close()

    def _check_open(self) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError("this environment is closed: make another one")

    def _settle(self, options: Mapping[str, Any], chosen: Sequence[int]) -> tuple[Floats, Floats]:
        """Starts and goals, (n, 3) each, from the options or drawn; only the rows `chosen` are set."""
        accepted = ("starts", "goals", "level")
        if unknown := sorted(set(options) - set(accepted)):
            raise InputError(f"reset got unknown options {unknown}; accepted: {', '.join(accepted)}, reset_mask")
        level = options.get("level")
        require(level is None or level in LEVELS, "level", level, f"one of {', '.join(LEVELS)}")
        draw_starts, draw_goals = options.get("starts") is None, "goals" not in options
        if level is not None and not (draw_starts and draw_goals):
            raise InputError(f"reset got level {level!r} with starts or goals; a level draws both: drop one")
        starts, goals = np.full((2, self.num_envs, 3), np.nan)
        for poses, name in ((starts, "starts"), (goals, "goals")):
            if options.get(name) is not None:
                poses[chosen] = self._check_poses(options[name], name)[chosen]
                self._check_free(poses, name, chosen)
        if draw_starts or draw_goals:
            for i in chosen:
                start, goal = self._draw(self._rngs[i], level)
                starts[i] = start if draw_starts else starts[i]
                goals[i] = goal if draw_goals else goals[i]
        return starts, goals

    def _check_poses(self, given: ArrayLike, name: str) -> Floats:
        try:
            return np.broadcast_to(np.asarray(given, np.float64), (self.num_envs, 3))
        except (TypeError, ValueError):
            wanted = f"x, y and heading in degrees, of shape (3,) or ({self.num_envs}, 3)"
            raise InputError(f"{name} is {given!r}; give {wanted}") from None

    def _check_free(self, poses: Floats, name: str, chosen: Sequence[int]) -> None:
        """Raise InputError if the player cannot be at one of the chosen rows."""
        for i in chosen:
            if not (np.isfinite(poses[i]).all() and self.map.is_free(poses[i, :2])[0]):
                raise InputError(
                    f"{name}[{i}] is x, y, heading = {', '.join(f'{value:g}' for value in poses[i])}; give a place on "
                    f"map {self.map.name} that is not in a wall and that can be reached from the player's start: "
                    "draw_positions of the map draws such places, is_free checks one"
                )

    def _draw(self, rng: np.random.Generator, level: str | None) -> tuple[Floats, Floats]:
        """Draw a start and a goal, (3,) each."""
        if level is not None:
            task = Tasks.draw(self.map, 1, int(rng.integers(2**31)), {level: LEVELS[level]})
            return task.starts[0], task.goals[0]
        start, goal = np.column_stack([self.map.draw_positions(rng, 2), rng.integers(360, size=2)])
        return start, goal

    def _look(self, chosen: Sequence[int], poses: Floats, into: Frame) -> None:
        """Start episodes of the chosen engines at these poses, and store their images; engines that die try again."""
        for _ in range(TRIES):
            chosen = self._ask(chosen, lambda i: self.engines[i].ask(RESET, tuple(poses[i].tolist())), into)
            if not chosen:
                return
        raise EngineDied(f"Doom engines {chosen} died {TRIES} times at the start of an episode")

    def _ask(self, chosen: Iterable[int], ask: Callable[[int], None], into: Frame) -> list[int]:
        """Send requests to all chosen engines, then collect their images -> engines that died, which are restarted."""
        died = []
        waiting = []
        for i in chosen:
            try:
                ask(i)
                waiting.append(i)
            except EngineDied as error:
                self._replace(i, error)
                died.append(i)
        for i in waiting:
            try:
                into[i] = self.engines[i].answer()
                self.pose[i] = self.engines[i].pose
            except EngineDied as error:
                self._replace(i, error)
                died.append(i)
        return died

    def _replace(self, i: int, error: EngineDied) -> None:
        log.error("Doom engine %d died (%s) and is restarted", i, error)
        self.engines[i].restart()

    def _lose(self, died: Sequence[int]) -> None:
        for i in died:
            log.error("The episode of Doom engine %d is lost, after %d steps", i, self.elapsed[i])
        self._lost[died] = True
        self.lost += len(died)

    def _observation(self) -> dict[str, Frame]:
        seen = self.seen.copy()
        return {"observation": seen, "achieved_goal": seen, "desired_goal": self.goal_seen.copy()}

    def _infos(self) -> dict[str, Any]:
        """Vector infos of Gymnasium: an array per key, and a mask of its valid rows under `_key`."""
        distance = np.hypot(*(self.pose[:, :2] - self.goal[:, :2]).T)
        success = (distance <= self.radius) & ~self._lost
        values = {"pose": self.pose.copy(), "distance": distance, "success": success, "is_success": success.copy()}
        values |= {"lost": self._lost.copy()}
        return values | {f"_{key}": ~np.isnan(self.pose[:, 0]) for key in values}


class DoomMazeEnv(SingleEnv):
    """One engine as an ordinary goal environment: a `DoomMazeVectorEnv` with one sub-environment.

    Reset options: `start` and `goal` poses (x, y in map units, heading in degrees), `goal=None` for no goal; or
    `level`.

    With `gymnasium.make` Gymnasium's wrapper limits an episode: to 200 steps, or to `max_episode_steps` (−1: no limit).
    Constructed directly, an environment has no limit unless `max_episode_steps` sets one.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 35 // REPEAT}  # noqa: RUF012 (Gymnasium's name and type)

    reset_options = {**SingleEnv.reset_options, "level": "level"}  # noqa: RUF012

    def __init__(self, *, max_episode_steps: int | None = None, **settings: Any) -> None:
        """Start the engine; `settings` are those of `DoomMazeVectorEnv`."""
        super().__init__(DoomMazeVectorEnv(1, max_episode_steps=max_episode_steps, **settings))

    @property
    def map(self) -> DoomMap:
        """The map."""
        return self.vector.map

    @property
    def lost(self) -> int:
        """Number of episodes that were lost because the engine died."""
        return self.vector.lost

    def step(self, action: np.int64) -> tuple[dict[str, Frame], float, bool, bool, dict[str, Any]]:
        """Take an action for four tics."""
        wanted = ", ".join(f"{number} ({name})" for number, name in enumerate(ACTIONS))
        require(self.action_space.contains(action), "action", action, f"one of {wanted}")
        return super().step(action)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Whether the goal is reached by the distance in `info`, because images alone do not show it."""
        return self.vector.compute_terminated(achieved_goal, desired_goal, info)

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """0 where the goal is reached by the distance in `info`, else −1; images alone do not show it."""
        return self.vector.compute_reward(achieved_goal, desired_goal, info)


@dataclasses.dataclass(frozen=True)
class Rollouts:
    """Random exploration.

    Attributes:
        frames: (episodes, steps + 1, height, width, 3) uint8 images.
        actions: (episodes, steps) uint8 actions between them.
        poses: (episodes, steps + 1, 3) float32 ground truth, for evaluation only.
    """

    frames: Frame
    actions: NDArray[np.uint8]
    poses: NDArray[np.float32]


def explore(
    env: DoomMazeVectorEnv,
    episodes: int,
    steps: int,
    seed: int,
    *,
    actions: Sequence[int] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Rollouts:
    """Explore with uniformly random actions from uniformly random poses.

    The result does not depend on the number of engines.

    Args:
        env: the environment.
        episodes: number of episodes.
        steps: actions of an episode, independent of the limit of `env`.
        seed: seed of starts and actions.
        actions: the actions to draw from; None: all.
        progress: called now and then with the number of steps taken since the last call.
    """
    require(is_number(episodes, 1) and is_number(steps, 1), "episodes, steps", (episodes, steps), "1 or more of each")
    allowed = np.arange(len(ACTIONS)) if actions is None else np.asarray(actions)
    known = allowed.ndim == 1 and len(allowed) and np.isin(allowed, range(len(ACTIONS))).all()
    require(known, "actions", actions, f"some of 0 to {len(ACTIONS) - 1}")
    random = np.random.default_rng(seed)
    width, height = env.size
    frames = np.empty((episodes, steps + 1, height, width, 3), np.uint8)
    taken = allowed[random.integers(len(allowed), size=(episodes, steps))].astype(np.uint8)
    poses = np.empty((episodes, steps + 1, 3), np.float32)
    begin = np.concatenate([env.map.draw_positions(random, episodes), random.integers(360, size=(episodes, 1))], 1)
    begun = 0
    while begun < episodes:
        rows = np.arange(begun, min(begun + env.num_envs, episodes))
        used = len(rows)
        starts = np.zeros((env.num_envs, 3))
        starts[:used] = begin[rows]
        mask = np.arange(env.num_envs) < used
        observation, infos = env.reset(options={"starts": starts, "goals": None, "reset_mask": mask})
        act = np.full(env.num_envs, -1)
        for step in range(steps + 1):
            if step:
                act[:used] = taken[rows, step - 1]
                observation, _, _, _, infos = env.step(act)
            frames[rows, step], poses[rows, step] = observation["observation"][:used], infos["pose"][:used]
            if infos["lost"][:used].any():
                break
        else:
            begun += used  # if an episode was lost, the same episodes start again
            if progress:
                progress(used * steps)
    return Rollouts(frames, taken, poses)
