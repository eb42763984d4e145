# ruff: noqa: E402 (the process of an engine runs this file, too, and needs only its first part: half a second less)
"""ViZDoom mazes seen from within: `sgm/DoomMaze-v0`, one engine or many at once.

Every engine is driven by a Python process of its own, which talks to this one over a socket: the ViZDoom library brings
down the process it is in if its engine does not start, waits for ever if its engine hangs, and leaves its engine
running if the process is killed. None of this can happen here, and many engines run at once without threads.
Linux and macOS only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

try:
    import cv2
    import vizdoom
except ImportError as error:
    raise ImportError(
        f"sgm/DoomMaze-v0 cannot import {error.name or error}: install the extra with "
        "pip install 'sparse-graphical-memory[doom]'",
        name=error.name,
    ) from error

ACTIONS = ("forward", "back", "left", "right", "idle", "turn left", "turn right")
IDLE = ACTIONS.index("idle")
BUTTONS = ("MOVE_FORWARD", "MOVE_BACKWARD", "MOVE_LEFT", "MOVE_RIGHT", None, "TURN_LEFT", "TURN_RIGHT")
PRESSED = [[index == action for index in range(len(ACTIONS)) if index != IDLE] for action in range(len(ACTIONS))]
REPEAT = 4  # tics of an action
RENDERED = 160, 120  # width and height of the engine's picture
SIZE = 80, 60  # width and height delivered by default
LEAST = 8  # pixels of a side
RADIUS = 63.0  # a goal is reached within so many map units
EPISODE_STEPS = 200
LEVELS = {"easy": (RADIUS, 200.0), "medium": (200.0, 400.0), "hard": (400.0, 600.0)}  # start to goal, map units
IWAD = Path(vizdoom.__file__).parent / "freedoom2.wad"  # comes with vizdoom

PATIENCE = 120.0  # seconds without an answer after which an engine counts as dead
FAREWELL = 5.0  # seconds an engine is given to stop
TRIES = 3  # to begin an episode
AT_ONCE = 4  # engines that start at the same time
TEXT = 2**16  # bytes of a map's text at least: the engine would not read a smaller file again, from a buffer it has
POSE_TEXT = 48  # bytes kept for the pose in the map's text
REQUEST = struct.Struct("<bddd")  # an action, or one of the two below; and a pose
RESET, PICTURE = -1, -2
POSE = struct.Struct("<ddd")  # begins an answer; the picture follows

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Frame = NDArray[np.uint8]
Pose = tuple[float, float, float]


def _pose_text(pose: Pose) -> str:
    x, y, heading = pose
    return f"x = {x:.4f}; y = {y:.4f}; angle = {round(heading) % 360};".ljust(POSE_TEXT)


def _drive() -> None:
    """Drive an engine for whoever is at the other end of standard input, until they hang up.

    What `Engine` runs in a process of its own, in the folder of the map. If something goes wrong it just ends, and
    what it said is found in the log; the folder is then left to `Engine`.
    """
    cv2.setNumThreads(1)
    threading.Thread(target=_note_shared_memory, daemon=True).start()
    connection = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the engine must not hold the line when its driver is gone
    game = _Game(**json.loads(sys.argv[1]))
    try:
        picture = game.see()
        while True:
            connection.sendall(POSE.pack(*game.pose) + picture.tobytes())
            request = connection.recv(REQUEST.size, socket.MSG_WAITALL)
            if len(request) < REQUEST.size:
                break
            what, *pose = REQUEST.unpack(request)
            if what == PICTURE:
                picture = game.rendered
            else:
                picture = game.reset(*pose) if what == RESET else game.step(what)
    except OSError:
        pass
    game.close()
    shutil.rmtree(Path.cwd(), ignore_errors=True)


def _note_shared_memory() -> None:
    """Write down what this process shares with its engine, for it stays behind if either is killed."""
    maps = Path("/proc/self/maps")
    while maps.exists():
        if names := set(re.findall(r"/dev/shm/ViZDoomMQCtr(\w+)", maps.read_text())):
            Path("shared").write_text(
                " ".join(f"ViZDoom{kind}{name}" for name in names for kind in ("SM", "MQCtr", "MQDoom"))
            )
            return
        time.sleep(0.01)


class _Game:
    """The engine itself, for the process that drives it."""

    def __init__(self, size: Sequence[int], talkative: bool) -> None:
        self.size = tuple(size)
        self.file = Path("map.wad").absolute()
        self.offset = self.file.read_bytes().rindex(b"thing {") + len(b"thing { ")
        self.game = game = vizdoom.DoomGame()
        game.set_doom_config_path(str(Path("vizdoom.ini").absolute()))
        game.set_doom_game_path(str(IWAD))
        if Path("own.wad").exists():
            game.set_doom_scenario_path(str(Path("own.wad").absolute()))
            game.add_game_args("-file map.wad")  # the later file has the map
        else:
            game.set_doom_scenario_path(str(self.file))
        game.set_doom_map("MAP01")
        game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        for switch in ("hud", "weapon", "crosshair", "decals", "particles", "effects_sprites", "messages", "corpses"):
            getattr(game, f"set_render_{switch}")(False)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_console_enabled(talkative)
        game.set_mode(vizdoom.Mode.PLAYER)
        game.set_available_buttons([getattr(vizdoom.Button, name) for name in BUTTONS if name])
        game.set_available_game_variables(
            [vizdoom.GameVariable.POSITION_X, vizdoom.GameVariable.POSITION_Y, vizdoom.GameVariable.ANGLE]
        )
        game.set_episode_timeout(0)
        game.set_episode_start_time(1)
        game.set_doom_skill(3)
        game.add_game_args("+cl_run 1 +viz_nocheat 0 -nomonsters")
        game.set_seed(0)
        game.init()

    def reset(self, x: float, y: float, heading: float) -> Frame:
        """Begin an episode: the engine reads the map anew, and with it where the player starts."""
        with self.file.open("r+b") as file:
            file.seek(self.offset)
            file.write(_pose_text((x, y, heading)).encode())
        self.game.set_seed(0)  # every episode alike, whatever was before it
        self.game.new_episode()
        picture = self.see()
        if max(abs(self.pose[0] - x), abs(self.pose[1] - y)) > 2:
            raise RuntimeError(f"the player is at {self.pose[:2]} instead of {(x, y)}")
        return picture

    def step(self, action: int) -> Frame:
        """Act for four tics."""
        self.game.make_action(PRESSED[action], REPEAT)
        return self.see()

    def see(self) -> Frame:
        """The picture of the size that is wanted."""
        state = self.game.get_state()
        if state is None or state.game_variables is None:
            raise RuntimeError("the player died or left the map")
        self.pose = tuple(float(value) for value in state.game_variables)
        self.rendered = state.screen_buffer
        if self.size == RENDERED:
            return self.rendered
        return np.asarray(cv2.resize(self.rendered, self.size, interpolation=cv2.INTER_AREA), np.uint8)

    def close(self) -> None:
        """Stop the engine."""
        self.game.close()


if __name__ == "__main__":
    _drive()
    sys.exit()

import contextlib
import dataclasses
import functools
import logging
import operator
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike

from sgm.memory.errors import InputError, SGMError

from . import doom_mazes
from .point import _check_mask, _is_number, _require
from .wad import DoomMap, MapError, check_textures, flats, wall_textures, write_lumps

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Tasks:
    """Starts and goals, the same for whoever has to solve them.

    Attributes:
        starts: (n, 3) x, y in map units and heading in degrees.
        goals: (n, 3) likewise; the goal's image is what is seen there.
        levels: (n,) of each task.
    """

    starts: Floats
    goals: Floats
    levels: NDArray[np.str_]

    def __len__(self) -> int:
        """Number of tasks."""
        return len(self.starts)

    @classmethod
    def draw(cls, doom_map: DoomMap, each: int, seed: int, levels: Mapping[str, tuple[float, float]] = LEVELS) -> Tasks:
        """So many tasks of every level, starts and headings uniform over the map, from a seed."""
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
        # The engine takes whole degrees.
        heading = random.integers(360, size=(len(pairs), 2)).astype(float)
        poses = np.concatenate([pairs, heading[..., None]], axis=2)
        return cls(poses[:, 0], poses[:, 1], np.repeat(list(levels), each))


class EngineDied(SGMError, RuntimeError):
    """An engine does not start, or does not answer any more."""


class Engine:
    """One Doom engine on one map; every episode begins at a pose of one's choice, at rest.

    `reset`, `step` and `picture` ask and wait. To keep many engines busy, `ask` all of them, then collect every
    `answer`. Whatever goes wrong with an engine is an `EngineDied`; `restart` brings it back.

    Attributes:
        map: where it is.
        size: (width, height) of the pictures it delivers.
        pose: x, y in map units and heading in degrees at the last picture: the truth, for evaluation only.
    """

    def __init__(self, doom_map: DoomMap, *, size: Sequence[int] = SIZE) -> None:
        """Begin to start the engine; `wait` tells when it has."""
        self.map, self.size = doom_map, check_size(size)
        self.pose: Pose = doom_map.start
        self._own_textures = _needs_own_textures(doom_map)
        self._launch()

    def _launch(self, talkative: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sgm-doom-"))
        self._connection, theirs = socket.socketpair()
        self._connection.settimeout(PATIENCE)
        try:
            self._write_map()
            with theirs, (self._folder / "log").open("wb") as output:
                self._process = subprocess.Popen(
                    [sys.executable, __file__, json.dumps({"size": self.size, "talkative": talkative})],
                    stdin=theirs.fileno(),
                    stdout=output,
                    stderr=output,
                    cwd=self._folder,
                    env=_environment(),
                    start_new_session=True,  # a group of its own, to be killed with its engine, and no Ctrl-C
                )
        except BaseException:
            self._connection.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._stop = weakref.finalize(self, _stop, self._process, self._connection, self._folder)
        self._awaited: tuple[int, int] | None = self.size
        self._started = False

    def _write_map(self) -> None:
        start = f"thing {{ {_pose_text(self.map.start)} type = 1; skill3 = true; single = true; }}\n"
        text = self.map.stripped().text().ljust(TEXT) + start
        write_lumps(self._folder / "map.wad", [("MAP01", b""), ("TEXTMAP", text.encode()), ("ENDMAP", b"")])
        if self._own_textures:
            (self._folder / "own.wad").symlink_to(self.map.wad)

    def wait(self) -> None:
        """Wait until the engine has started; a second try, if it comes to that, says more."""
        if self._started:
            return
        try:
            self.answer()
        except EngineDied as error:
            log.error("A Doom engine does not start on map %s (%s): once more", self.map.name, error)
            self.close()
            self._launch(talkative=True)
            try:
                self.answer()
            except EngineDied as again:
                self.close()
                raise EngineDied(f"no Doom engine starts on map {self.map.name}: {again}") from None
        self._started = True

    def restart(self) -> None:
        """Stop the engine, dead or alive, and start it anew."""
        self.close()
        self._launch()
        self.wait()

    def reset(self, pose: Pose) -> Frame:
        """Begin an episode at x, y (map units) and heading (rounded to whole degrees); what is seen there."""
        self.ask(RESET, pose)
        return self.answer()

    def step(self, action: int) -> Frame:
        """Act for four tics; what is seen then."""
        self.ask(action)
        return self.answer()

    def picture(self) -> Frame:
        """What is seen now, (120, 160, 3), as the engine draws it."""
        self.ask(PICTURE)
        return self.answer()

    def ask(self, what: int, pose: Pose = (0.0, 0.0, 0.0)) -> None:
        """Ask for an action, or for RESET or PICTURE, without waiting for the answer."""
        self.wait()
        if self._awaited is not None:
            raise EngineDied("it was interrupted while it acted")
        try:
            self._connection.sendall(REQUEST.pack(what, *pose))
        except OSError:
            raise EngineDied(self._last_words()) from None
        self._awaited = RENDERED if what == PICTURE else self.size

    def answer(self) -> Frame:
        """Wait for what was asked for: a picture, (height, width, 3)."""
        assert self._awaited is not None
        width, height = self._awaited
        data = bytearray(POSE.size + width * height * 3)
        rest = memoryview(data)
        while len(rest):
            try:
                received = self._connection.recv_into(rest)
            except TimeoutError:
                os.killpg(self._process.pid, signal.SIGKILL)
                raise EngineDied(f"it has not answered for {self._connection.gettimeout():g} seconds") from None
            except OSError:
                received = 0
            if not received:
                raise EngineDied(self._last_words())
            rest = rest[received:]
        self._awaited = None
        self.pose = POSE.unpack_from(data)
        return np.frombuffer(data, np.uint8, offset=POSE.size).reshape(height, width, 3)

    def _last_words(self) -> str:
        """Why it died."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(FAREWELL)
        lines = (self._folder / "log").read_text(errors="replace").split("\n") if self._folder.exists() else []
        said = [line.strip() for line in lines if line.strip()]
        said = said[-1:] if any(line.startswith("Traceback") for line in said) else said[-6:]
        code = self._process.returncode
        return "; ".join(["its process does not end" if code is None else f"its process ended with {code}", *said])

    def hang_up(self) -> None:
        """Let the engine stop by itself, without waiting for it."""
        self._connection.close()

    def close(self) -> None:
        """Stop the engine and remove its files."""
        self._stop()


def _environment() -> dict[str, str]:
    """What the driver of an engine sees of ours: the same packages, one thread, no display."""
    display = ("DISPLAY", "WAYLAND_DISPLAY")
    kept = {key: value for key, value in os.environ.items() if key not in display}
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _stop(process: subprocess.Popen[bytes], connection: socket.socket, folder: Path) -> None:
    """End a driver and its engine; remove their files and shared memory."""
    connection.close()  # which a driver takes for goodbye
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(FAREWELL)
    if process.returncode != 0:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with contextlib.suppress(OSError):
            for name in (folder / "shared").read_text().split():
                Path("/dev/shm", name).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def check_size(size: Sequence[int]) -> tuple[int, int]:
    """The (width, height) of pictures, if the engine can deliver them."""
    try:
        width, height = map(operator.index, size)
    except (TypeError, ValueError):
        raise InputError(f"size is {size!r}: expected (width, height) in pixels") from None
    if not (LEAST <= width <= RENDERED[0] and LEAST <= height <= RENDERED[1]):
        raise InputError(
            f"size is {width} × {height}: expected {LEAST} × {LEAST} to {RENDERED[0]} × {RENDERED[1]} pixels, "
            "what the engine draws"
        )
    return width, height


def _needs_own_textures(doom_map: DoomMap) -> bool:
    """Whether a map wears textures of the WAD it came from; MapError if it wears some that nobody has."""
    if doom_map.textures <= _textures():
        return False
    check_textures(doom_map.textures, IWAD, *([doom_map.wad] if doom_map.wad else []))
    return True


@functools.cache
def _textures() -> frozenset[str]:
    """All that the engine has."""
    return frozenset([*wall_textures(IWAD), *flats(IWAD)])


class DoomMazeVectorEnv(gymnasium.vector.VectorEnv[dict[str, Frame], np.ndarray, np.ndarray]):
    """Many engines on one map, all at work at once.

    Observations are pictures, (n, height, width, 3) uint8: `observation`, what is seen, which is `achieved_goal`, too
    (the same array), and `desired_goal`, what is seen at the goal, black without one. Actions are numbers of `ACTIONS`.
    An episode is over (terminated, reward 0 instead of −1) within `radius` map units of the goal. `infos` carry the
    truth, for evaluation only: `pose` (n, 3), `distance` (n,) to the goal in map units, nan without one, `success` and
    `is_success` (n,), and `lost` (n,), see below.

    `reset(seed=s)` seeds sub-environment `i` with `s + i`. Reset options, all optional: `starts` and `goals`, (n, 3) or
    (3,) poses (x, y in map units, heading in degrees, rounded to whole ones); or `level`, one of `LEVELS`, from which
    both are drawn; `goals=None` for episodes without a goal, which saves drawing its picture; and `reset_mask`, (n,)
    bool: reset only these, and read only these rows. What is not given is drawn uniformly over the map.

    A dead engine is started anew. If that was in the middle of an episode, the episode is lost: it is truncated and
    marked in `infos["lost"]` until it is reset, counted in the attribute `lost`, and logged as an error.
    Autoreset is disabled: an episode that is over can be acted on until it is reset.
    """

    metadata = {  # noqa: RUF012 (Gymnasium's name and type)
        "autoreset_mode": AutoresetMode.DISABLED,
        "render_modes": ["rgb_array"],
        "render_fps": 35 // REPEAT,
    }

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
            doom_map: where; the default maze unless given.
            size: (width, height) of pictures, at most 160 × 120, which is what the engine draws.
            radius: of goals, map units.
            max_episode_steps: truncate after this many steps; None: never.
            render_mode: None or "rgb_array", the engine's own pictures.
        """
        self.engines: list[Engine] = []
        _require(_is_number(num_envs, 1), "num_envs", num_envs, "a number of engines, 1 or more")
        _require(_is_number(radius, 0) and radius > 0, "radius", radius, "a distance > 0, in map units")
        can_last = max_episode_steps is None or _is_number(max_episode_steps, 1)
        _require(can_last, "max_episode_steps", max_episode_steps, "1 or more, or None for no limit")
        _require(render_mode in (None, "rgb_array"), "render_mode", render_mode, "None or 'rgb_array'")
        wanted = "a DoomMap: DoomMap.read(wad, name) of sgm.envs.wad or generate(seed) of sgm.envs.doom_mazes"
        _require(doom_map is None or isinstance(doom_map, DoomMap), "doom_map", doom_map, wanted)
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

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The sub-environments' generators."""
        return tuple(self._rngs)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The sub-environments' seeds."""
        return tuple(self._seeds)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Frame], dict[str, Any]]:
        """Begin episodes, all or those of options["reset_mask"]; see the class for `options`."""
        self._check_open()
        options = dict(options or {})
        mask = _check_mask(options.pop("reset_mask", None), self.num_envs)
        chosen = np.flatnonzero(mask).tolist()
        for i, new in enumerate(self._spread_seeds(seed)):
            if mask[i] and new is not None:
                self._rngs[i], self._seeds[i] = seeding.np_random(new)
        starts, goals = self._settle(options, chosen)
        self.goal_seen[chosen] = 0
        self._look([i for i in chosen if np.isfinite(goals[i, 0])], goals, self.goal_seen)
        self._look(chosen, starts, self.seen)
        self.goal[chosen], self.elapsed[chosen], self._lost[chosen] = goals[chosen], 0, False
        return self._observation(), self._infos()

    def step(self, actions: ArrayLike) -> tuple[dict[str, Frame], Floats, Bools, Bools, dict[str, Any]]:
        """One action each, (n,) integers; a negative one leaves its engine alone, and so does a lost episode."""
        self._check_open()
        actions = np.asarray(actions)
        _require(
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
        """Whether `info` says that the goal is near; pictures alone do not tell."""
        distance = info["distance"] if isinstance(info, Mapping) else [one["distance"] for one in info]
        return (np.asarray(distance) <= self.radius)[()]

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """0 where `info` says that the goal is near, else −1; pictures alone do not tell."""
        return np.where(self.compute_terminated(achieved_goal, desired_goal, info), 0.0, -1.0)[()]

    def render(self) -> tuple[Frame, ...] | None:
        """What every engine sees, (120, 160, 3) each."""
        if self.render_mode != "rgb_array":
            return None
        self._check_open()
        pictures = np.zeros((self.num_envs, RENDERED[1], RENDERED[0], 3), np.uint8)
        self._lose(self._ask(range(self.num_envs), lambda i: self.engines[i].ask(PICTURE), pictures))
        return tuple(pictures)

    def close_extras(self, **_: Any) -> None:
        """Stop the engines."""
        for engine in self.engines:
            engine.hang_up()
        for engine in self.engines:
            engine.close()

    def _check_open(self) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError("this environment is closed: make another one")

    def _spread_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        """One seed, or None, for each sub-environment."""
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + i for i in range(self.num_envs)]
        _require(len(seed) == self.num_envs, "seed", seed, f"a number, or a list of {self.num_envs}")
        return list(seed)

    def _settle(self, options: Mapping[str, Any], chosen: Sequence[int]) -> tuple[Floats, Floats]:
        """Starts and goals, (n, 3) each, of which the rows of the chosen count: as asked, or drawn."""
        accepted = ("starts", "goals", "level")
        if unknown := sorted(set(options) - set(accepted)):
            raise InputError(f"reset got unknown options {unknown}; accepted: {', '.join(accepted)}, reset_mask")
        level = options.get("level")
        _require(level is None or level in LEVELS, "level", level, f"one of {', '.join(LEVELS)}")
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
        """Raise InputError if one of the chosen rows is no place for the player."""
        for i in chosen:
            if not (np.isfinite(poses[i]).all() and self.map.is_free(poses[i, :2])[0]):
                raise InputError(
                    f"{name}[{i}] is x, y, heading = {', '.join(f'{value:g}' for value in poses[i])}; give a place on "
                    f"map {self.map.name} that is not in a wall and that can be reached from the player's start: "
                    "draw_positions of the map draws some, is_free tells"
                )

    def _draw(self, rng: np.random.Generator, level: str | None) -> tuple[Floats, Floats]:
        """A start and a goal, (3,) each."""
        if level is not None:
            task = Tasks.draw(self.map, 1, int(rng.integers(2**31)), {level: LEVELS[level]})
            return task.starts[0], task.goals[0]
        start, goal = np.column_stack([self.map.draw_positions(rng, 2), rng.integers(360, size=2)])
        return start, goal

    def _look(self, chosen: Sequence[int], poses: Floats, into: Frame) -> None:
        """Put the chosen engines at these poses, and what they see there into an array; those that die try again."""
        for _ in range(TRIES):
            chosen = self._ask(chosen, lambda i: self.engines[i].ask(RESET, tuple(poses[i].tolist())), into)
            if not chosen:
                return
        raise EngineDied(f"Doom engines {chosen} died {TRIES} times at the beginning of an episode")

    def _ask(self, chosen: Iterable[int], ask: Callable[[int], None], into: Frame) -> list[int]:
        """Ask the chosen engines all at once and collect their pictures -> those that died, which run again."""
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
        log.error("Doom engine %d died (%s) and is started anew", i, error)
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
        """Gymnasium's vector infos: an array per key, and under `_key` which of its rows mean something: all."""
        distance = np.hypot(*(self.pose[:, :2] - self.goal[:, :2]).T)
        success = (distance <= self.radius) & ~self._lost
        values = {"pose": self.pose.copy(), "distance": distance, "success": success, "is_success": success.copy()}
        values |= {"lost": self._lost.copy()}
        return values | {f"_{key}": ~np.isnan(self.pose[:, 0]) for key in values}


class DoomMazeEnv(gymnasium.Env[dict[str, Frame], np.int64]):
    """One engine as an ordinary goal environment: see `DoomMazeVectorEnv`, of which it is one row.

    Reset options: `start` and `goal` poses (x, y in map units, heading in degrees), `goal=None` for none; or `level`.

    Through `gymnasium.make` an episode is limited by Gymnasium's own wrapper: 200 steps unless `max_episode_steps` says
    otherwise (−1: no limit). Constructed directly, it has no limit unless `max_episode_steps` sets one.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 35 // REPEAT}  # noqa: RUF012 (Gymnasium's name and type)

    def __init__(self, *, max_episode_steps: int | None = None, **settings: Any) -> None:
        """Start the engine; `settings` are those of `DoomMazeVectorEnv`."""
        self.vector = DoomMazeVectorEnv(1, max_episode_steps=max_episode_steps, **settings)
        self.render_mode = self.vector.render_mode
        self.observation_space = self.vector.single_observation_space
        self.action_space = self.vector.single_action_space

    @property
    def map(self) -> DoomMap:
        """The map."""
        return self.vector.map

    @property
    def lost(self) -> int:
        """Number of episodes that were lost because the engine died."""
        return self.vector.lost

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Frame], dict[str, Any]]:
        """Begin an episode; see the class for `options`."""
        super().reset(seed=seed)
        self.vector._rngs[0] = self.np_random
        accepted = {"start": "starts", "goal": "goals", "level": "level"}
        if unknown := sorted(set(options or {}) - set(accepted)):
            raise InputError(f"reset got unknown options {unknown}; accepted: {', '.join(accepted)}")
        observation, infos = self.vector.reset(options={accepted[key]: value for key, value in (options or {}).items()})
        return _first(observation), _info(infos)

    def step(self, action: np.int64) -> tuple[dict[str, Frame], float, bool, bool, dict[str, Any]]:
        """Act for four tics."""
        wanted = ", ".join(f"{number} ({name})" for number, name in enumerate(ACTIONS))
        _require(self.action_space.contains(action), "action", action, f"one of {wanted}")
        observation, reward, terminated, truncated, infos = self.vector.step(np.array([action]))
        return _first(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _info(infos)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Whether `info` says that the goal is near; pictures alone do not tell."""
        return self.vector.compute_terminated(achieved_goal, desired_goal, info)

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """0 where `info` says that the goal is near, else −1; pictures alone do not tell."""
        return self.vector.compute_reward(achieved_goal, desired_goal, info)

    def render(self) -> Frame | None:
        """What is seen, (120, 160, 3), whatever the size of observations."""
        pictures = self.vector.render()
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        """Stop the engine."""
        self.vector.close()


def _first(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value[0] for key, value in values.items()}


def _info(infos: Mapping[str, Any]) -> dict[str, Any]:
    """The info of the only sub-environment, with Python's own numbers."""
    own = {key: value for key, value in _first(infos).items() if not key.startswith("_")}
    return {key: value if isinstance(value, np.ndarray) else value.item() for key, value in own.items()}


@dataclasses.dataclass(frozen=True)
class Rollouts:
    """Random exploration.

    Attributes:
        frames: (episodes, steps + 1, height, width, 3) uint8 pictures.
        actions: (episodes, steps) uint8 actions between them.
        poses: (episodes, steps + 1, 3) float32 the truth, for evaluation only.
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
    """Uniformly random actions from uniformly random poses; the same whatever the number of engines.

    Args:
        env: where.
        episodes: number of episodes.
        steps: actions of an episode, whatever the limit of `env`.
        seed: of starts and actions.
        actions: those to draw from, all by default.
        progress: called with the number of steps taken now and then.
    """
    _require(
        _is_number(episodes, 1) and _is_number(steps, 1), "episodes, steps", (episodes, steps), "1 or more of each"
    )
    allowed = np.arange(len(ACTIONS)) if actions is None else np.asarray(actions)
    known = allowed.ndim == 1 and len(allowed) and np.isin(allowed, range(len(ACTIONS))).all()
    _require(known, "actions", actions, f"some of 0 to {len(ACTIONS) - 1}")
    random = np.random.default_rng(seed)
    width, height = env.size
    frames = np.empty((episodes, steps + 1, height, width, 3), np.uint8)
    taken = allowed[random.integers(len(allowed), size=(episodes, steps))].astype(np.uint8)
    poses = np.empty((episodes, steps + 1, 3), np.float32)
    begin = np.concatenate([env.map.draw_positions(random, episodes), random.integers(360, size=(episodes, 1))], 1)
    first = 0
    while first < episodes:
        rows = np.arange(first, min(first + env.num_envs, episodes))
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
            first += used  # if an episode was lost, the same ones begin again
            if progress:
                progress(used * steps)
    return Rollouts(frames, taken, poses)
