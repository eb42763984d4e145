"""The process that moves robots and draws what they see, for `sgm.envs.safety.pool`.

What it knows of either is in memory shared with others like it: a robot is a row of numbers and an image is a pose, so
that any of them can do any part of the work, in any order, with the same result.
"""

from __future__ import annotations

import functools
import importlib
import json
import mmap
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import SGMError

from .layouts import ROBOT_REACH, Layout
from .model import EYE_HEIGHT, EYE_TILT, TIMESTEP, physics, scenery

Floats = NDArray[np.float64]
Frame = NDArray[np.uint8]

FRAME_SKIP = 50  # time steps of a step
STATE = 9  # numbers a robot is: three positions, three velocities, three accelerations the solver begins with
FASTEST = 2.5  # m/s, more than a robot can be by itself
SWERVE = 0.5  # m/s, more than a robot can gain within a step
TILE = 0.1  # side of the squares that are told apart by what is near them, m
PACKAGES = "libegl1 libopengl0 libgl1-mesa-dri (EGL), or libosmesa6 (OSMesa)"
OFF = ("disable", "disabled", "off", "false", "0")  # values of MUJOCO_GL that mean no OpenGL at all,
ON = ("", "enable", "enabled", "on", "true", "1")  # any,
SCREEN = {"glx": "glfw"}  # and one by another name


class NoImages(SGMError, RuntimeError):
    """There is no OpenGL here that works without a screen."""


class Shared:
    """Arrays in a file that all processes map.

    Attributes:
        state: (robots, STATE) float64.
        actions: (robots, 2) float64.
        touched: (robots,) uint8, whether a robot touches a pillar.
        poses: (images, 3) float64, from where to look.
        images: (images · side · side · 3,) uint8, what is seen.
    """

    def __init__(self, file: int, robots: int, images: int, bytes_of_images: int) -> None:
        """Map a file, by its descriptor; it grows to what is needed."""
        shapes = {"state": (robots, STATE), "actions": (robots, 2), "poses": (images, 3)}
        length = sum(8 * rows * columns for rows, columns in shapes.values()) + robots + bytes_of_images
        if os.fstat(file).st_size < length:
            os.ftruncate(file, length)
        memory = mmap.mmap(file, length)
        offset = 0
        arrays: dict[str, Floats] = {}
        for name, shape in shapes.items():
            arrays[name] = np.frombuffer(memory, np.float64, shape[0] * shape[1], offset).reshape(shape)
            offset += arrays[name].nbytes
        self.state, self.actions, self.poses = arrays["state"], arrays["actions"], arrays["poses"]
        self.touched: Frame = np.frombuffer(memory, np.uint8, robots, offset)
        self.images: Frame = np.frombuffer(memory, np.uint8, bytes_of_images, offset + robots)


class Physics:
    """Moves robots, one at a time.

    A robot moves in a model of what it can reach within the step: there are a few things near every place, and the
    engine takes its time for each it is told of. The numbers are the same, bit for bit, as in a model of everything.
    """

    def __init__(self, layout: Layout) -> None:
        """Find out what is near which place; models are made when a robot comes there."""
        self.mujoco = mujoco = _mujoco()
        kinds = mujoco.mjtState
        self.signature = int(kinds.mjSTATE_QPOS | kinds.mjSTATE_QVEL | kinds.mjSTATE_WARMSTART | kinds.mjSTATE_CTRL)
        self.layout = layout
        counts = [int(np.ceil(side / TILE)) for side in layout.size]
        centres = np.stack(np.meshgrid(*((np.arange(count) + 0.5) * TILE for count in counts), indexing="ij"), -1)
        reach = ROBOT_REACH + FASTEST * FRAME_SKIP * TIMESTEP + TILE / np.sqrt(2)
        near = np.stack([distance < reach for distance in layout.distances(centres)], -1)
        self.near, number = np.unique(near.reshape(-1, near.shape[-1]), axis=0, return_inverse=True)
        self.tiles: list[list[int]] = np.reshape(number, counts).tolist()  # which row of `near` is true of a tile
        self.last = counts[0] - 1, counts[1] - 1
        self.models: list[tuple[Any, Any, list[int]] | None] = [None] * len(self.near)
        self.row = np.zeros(STATE + 2)

    def step(self, state: Floats, action: Floats) -> bool:
        """Move a robot for one step, in place, (STATE,) and (2,); whether it touches a pillar then."""
        row = self.row
        row[:STATE], row[STATE:] = state, action
        x, y, _, speed_x, speed_y = row[:5].tolist()
        slow = speed_x * speed_x + speed_y * speed_y < (FASTEST - SWERVE) ** 2
        model, data, pillars = self._model(x, y) if slow else self._everything
        self.mujoco.mj_setState(model, data, row, self.signature)
        self.mujoco.mj_step(model, data, FRAME_SKIP)
        self.mujoco.mj_getState(model, data, row, self.signature)
        state[:] = row[:STATE]
        return bool(pillars) and self._touches(model, data, pillars)

    def _touches(self, model: Any, data: Any, pillars: list[int]) -> bool:
        """Whether the robot touches a pillar; as in Safety Gym, where it is when the step is over."""
        self.mujoco.mj_kinematics(model, data)
        self.mujoco.mj_collision(model, data)
        return bool(np.isin(data.contact.geom, pillars).any())

    def _model(self, x: float, y: float) -> tuple[Any, Any, list[int]]:
        """Model and data of the surroundings of a place, and the numbers of pillars in it."""
        tile = self.tiles[min(max(int(x / TILE), 0), self.last[0])][min(max(int(y / TILE), 0), self.last[1])]
        found = self.models[tile]
        if found is None:
            walls, pillars = np.split(self.near[tile], [len(self.layout.walls)])
            found = self.models[tile] = self._compile(np.flatnonzero(walls), np.flatnonzero(pillars))
        return found

    @functools.cached_property
    def _everything(self) -> tuple[Any, Any, list[int]]:
        """For a robot that is faster than it can be by itself: put down by force in a wall, say."""
        return self._compile(np.arange(len(self.layout.walls)), np.arange(len(self.layout.pillars)))

    def _compile(self, walls: NDArray[np.intp], pillars: NDArray[np.intp]) -> tuple[Any, Any, list[int]]:
        mujoco = self.mujoco
        model = mujoco.MjModel.from_xml_string(
            physics([self.layout.walls[i] for i in walls], [self.layout.pillars[i] for i in pillars])
        )
        if not len(walls) + len(pillars):
            model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
        return model, mujoco.MjData(model), [model.geom(f"pillar{number}").id for number in range(len(pillars))]


class Eye:
    """Draws what is seen from a pose."""

    def __init__(self, layout: Layout, size: int, wanted: str | None) -> None:
        """Find an OpenGL that works; `wanted` is the user's choice, if they have one."""
        self.mujoco = mujoco = _mujoco()
        xml, files = scenery(layout, size)
        model = mujoco.MjModel.from_xml_string(xml, files)
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        font = mujoco.mjtFontScale.mjFONTSCALE_50
        self.gl, self.context, self.drawing = open_context(size, wanted, lambda: mujoco.MjrContext(model, font))
        self.scene = mujoco.MjvScene(model, model.ngeom + 1)
        camera = mujoco.MjvCamera()
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, camera, everything, self.scene)
        for name in ("SHADOW", "REFLECTION", "SKYBOX", "FOG", "HAZE"):
            self.scene.flags[getattr(mujoco.mjtRndFlag, f"mjRND_{name}")] = False
        self.size = 0
        self._resize(size)

    def _resize(self, size: int) -> None:
        if size != self.size:
            self.mujoco.mjr_resizeOffscreen(size, size, self.drawing)
            self.mujoco.mjr_setBuffer(self.mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self.drawing)
            self.rectangle = self.mujoco.MjrRect(0, 0, size, size)
            self.size, self.pixels = size, np.zeros((size, size, 3), np.uint8)

    def see(self, pose: Floats, into: Frame) -> None:
        """Draw what is seen from x, y (m) and heading (rad) into a (side, side, 3) array."""
        self._resize(len(into))
        x, y, heading = pose.tolist()
        ahead, down = np.array([np.cos(heading), np.sin(heading), 0.0]), np.array([0.0, 0.0, -1.0])
        for camera in self.scene.camera:
            camera.pos[:] = x, y, EYE_HEIGHT
            camera.forward[:] = np.cos(EYE_TILT) * ahead + np.sin(EYE_TILT) * down
            camera.up[:] = np.sin(EYE_TILT) * ahead - np.cos(EYE_TILT) * down
        self.mujoco.mjr_render(self.rectangle, self.scene, self.drawing)
        self.mujoco.mjr_readPixels(self.pixels, None, self.rectangle, self.drawing)
        into[:] = self.pixels[::-1]  # OpenGL begins at the bottom

    def close(self) -> None:
        """Give everything back, which OpenGL wants in this order."""
        self.drawing.free()
        self.context.free()


def open_context(
    size: int,
    wanted: str | None,
    prepare: Callable[[], Any],
    load: Callable[[str], Any] = importlib.import_module,
) -> tuple[str, Any, Any]:
    """The name of an OpenGL that draws without a screen, a context of it, current, and what could be prepared in it.

    Args:
        size: side of images.
        wanted: the user's MUJOCO_GL; None or "": the first of EGL and OSMesa that works (on macOS: CGL).
        prepare: called with the context current; if it fails, the next one is tried.
        load: imports a module.
    """
    wanted = (wanted or "").strip().lower()
    if wanted in OFF:
        raise NoImages(f"MUJOCO_GL is {wanted!r}, so that nothing can be drawn: unset it, or set it to egl or osmesa")
    found = "cgl" if sys.platform == "darwin" else "egl osmesa"
    reasons = []
    for name in (found if wanted in ON else SCREEN.get(wanted, wanted)).split():
        os.environ["MUJOCO_GL"] = name  # MuJoCo's own loader reads it
        if name in ("egl", "osmesa"):
            os.environ["PYOPENGL_PLATFORM"] = name
        try:
            context = load(f"mujoco.{name}").GLContext(size, size)
            context.make_current()
            return name, context, prepare()
        except Exception as error:
            reasons.append(f"{name}: {' '.join(str(error).split()) or type(error).__name__}")
            for module in [key for key in sys.modules if key.partition(".")[0] == "OpenGL" or key == f"mujoco.{name}"]:
                del sys.modules[module]  # PyOpenGL binds to one platform when it is imported
    raise NoImages(
        f"no OpenGL works here without a screen ({'; '.join(reasons)}). On Debian or Ubuntu install {PACKAGES} "
        "with apt-get; MUJOCO_GL=egl or MUJOCO_GL=osmesa makes the choice yours"
    )


def _mujoco() -> Any:
    """MuJoCo without its choice of OpenGL, which fails where there is none: ours comes with the first image."""
    before = os.environ.get("MUJOCO_GL")
    os.environ["MUJOCO_GL"] = "disable"
    try:
        return importlib.import_module("mujoco")
    finally:
        if before is None:
            del os.environ["MUJOCO_GL"]
        else:
            os.environ["MUJOCO_GL"] = before


def _work() -> None:
    """Do what is asked for over standard input until whoever asks hangs up."""
    connection = Connection(os.dup(0))
    settings = json.loads(sys.argv[1])
    layout = Layout.from_dict(json.loads(connection.recv_bytes()))
    shared = Shared(**settings["shared"])
    bodies, eye = Physics(layout), None
    try:
        while True:
            what, rows, size = connection.recv()
            try:
                if what == "step":
                    for row in rows:
                        shared.touched[row] = bodies.step(shared.state[row], shared.actions[row])
                else:
                    eye = eye or Eye(layout, settings["size"], settings["gl"])
                    length = size * size * 3
                    for row in rows:
                        image = shared.images[row * length : (row + 1) * length].reshape(size, size, 3)
                        eye.see(shared.poses[row], image)
                connection.send(None)
            except NoImages as error:
                connection.send(str(error))
    except (EOFError, OSError):
        pass
    finally:
        if eye is not None:
            eye.close()


def _check() -> None:
    """Print the name of the OpenGL that works, or why none does."""
    from .layouts import generate

    try:
        eye = Eye(generate(rooms=(1, 1), pillars=0, hazards=0), 8, os.environ.get("MUJOCO_GL"))
    except NoImages as error:
        sys.exit(str(error))
    print(eye.gl)
    eye.close()


if __name__ == "__main__":
    _work() if len(sys.argv) > 1 else _check()
