"""Worker process that simulates robots and renders their images, for `sgm.envs.safety.pool`.

All state is in memory shared by the workers: a robot is a row of numbers, and an image is determined by a pose. So any
worker can do any part of the work, in any order, with the same result.
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

FRAME_SKIP = 50  # simulator time steps of a step
STATE = 9  # numbers of a robot's state: 3 positions, 3 velocities, 3 accelerations for the warm start of the solver
FASTEST = 2.5  # m/s, more than a robot reaches by its own force
SWERVE = 0.5  # m/s, more than a robot gains within a step
TILE = 0.1  # side of the squares for which nearby obstacles are found, m
PACKAGES = "libegl1 libopengl0 libgl1-mesa-dri (EGL), or libosmesa6 (OSMesa)"
OFF = ("disable", "disabled", "off", "false", "0")  # values of MUJOCO_GL for no OpenGL
ON = ("", "enable", "enabled", "on", "true", "1")  # values for any OpenGL
SCREEN = {"glx": "glfw"}  # alias of a value


class NoImages(SGMError, RuntimeError):
    """No OpenGL implementation works without a display on this machine."""


class Shared:
    """Arrays in a file that all processes map.

    Attributes:
        state: (robots, STATE) float64.
        actions: (robots, 2) float64.
        touched: (robots,) uint8, whether a robot touches a pillar.
        poses: (images, 3) float64, camera poses of the images to render.
        images: (images · side · side · 3,) uint8, rendered images.
    """

    def __init__(self, file: int, robots: int, images: int, bytes_of_images: int) -> None:
        """Map a file, given its descriptor; it is enlarged if necessary."""
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
    """Simulates robots, one at a time.

    A robot is simulated in a model of only the obstacles it can reach within the step, because simulation time grows
    with the number of obstacles. The numbers are the same, bit for bit, as in a model of all obstacles.
    """

    def __init__(self, layout: Layout) -> None:
        """Find the obstacles near every tile; a model is compiled when a robot first needs it."""
        self.mujoco = mujoco = _mujoco()
        kinds = mujoco.mjtState
        self.signature = int(kinds.mjSTATE_QPOS | kinds.mjSTATE_QVEL | kinds.mjSTATE_WARMSTART | kinds.mjSTATE_CTRL)
        self.layout = layout
        counts = [int(np.ceil(side / TILE)) for side in layout.size]
        centres = np.stack(np.meshgrid(*((np.arange(count) + 0.5) * TILE for count in counts), indexing="ij"), -1)
        reach = ROBOT_REACH + FASTEST * FRAME_SKIP * TIMESTEP + TILE / np.sqrt(2)
        near = np.stack([distance < reach for distance in layout.distances(centres)], -1)
        self.near, number = np.unique(near.reshape(-1, near.shape[-1]), axis=0, return_inverse=True)
        self.tiles: list[list[int]] = np.reshape(number, counts).tolist()  # row of `near` for each tile
        self.last = counts[0] - 1, counts[1] - 1
        self.models: list[tuple[Any, Any, list[int]] | None] = [None] * len(self.near)
        self.row = np.zeros(STATE + 2)

    def step(self, state: Floats, action: Floats) -> bool:
        """Simulate one step; updates the (STATE,) state in place, and returns whether the robot touches a pillar."""
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
        """Whether the robot touches a pillar at the end of the step, as in Safety Gym."""
        self.mujoco.mj_kinematics(model, data)
        self.mujoco.mj_collision(model, data)
        return bool(np.isin(data.contact.geom, pillars).any())

    def _model(self, x: float, y: float) -> tuple[Any, Any, list[int]]:
        """Model and data of the surroundings of a position, and the geom ids of the pillars in it."""
        tile = self.tiles[min(max(int(x / TILE), 0), self.last[0])][min(max(int(y / TILE), 0), self.last[1])]
        found = self.models[tile]
        if found is None:
            walls, pillars = np.split(self.near[tile], [len(self.layout.walls)])
            found = self.models[tile] = self._compile(np.flatnonzero(walls), np.flatnonzero(pillars))
        return found

    @functools.cached_property
    def _everything(self) -> tuple[Any, Any, list[int]]:
        """Model of all obstacles, for a robot faster than its own force allows, for example pushed by a wall."""
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
    """Renders the camera image at a pose."""

    def __init__(self, layout: Layout, size: int, wanted: str | None) -> None:
        """Open an OpenGL context; `wanted` is the user's choice of implementation, or None."""
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
        """Render the image at x, y (m) and heading (rad) into a (side, side, 3) array."""
        self._resize(len(into))
        x, y, heading = pose.tolist()
        ahead, down = np.array([np.cos(heading), np.sin(heading), 0.0]), np.array([0.0, 0.0, -1.0])
        for camera in self.scene.camera:
            camera.pos[:] = x, y, EYE_HEIGHT
            camera.forward[:] = np.cos(EYE_TILT) * ahead + np.sin(EYE_TILT) * down
            camera.up[:] = np.sin(EYE_TILT) * ahead - np.cos(EYE_TILT) * down
        self.mujoco.mjr_render(self.rectangle, self.scene, self.drawing)
        self.mujoco.mjr_readPixels(self.pixels, None, self.rectangle, self.drawing)
        into[:] = self.pixels[::-1]  # the first row of OpenGL is the bottom one

    def close(self) -> None:
        """Free all resources, in the order that OpenGL requires."""
        self.drawing.free()
        self.context.free()


def open_context(
    size: int,
    wanted: str | None,
    prepare: Callable[[], Any],
    load: Callable[[str], Any] = importlib.import_module,
) -> tuple[str, Any, Any]:
    """Open an OpenGL context that works without a display; return its name, the context and the result of `prepare`.

    Args:
        size: side of images, pixels.
        wanted: the user's MUJOCO_GL; None or "": the first of EGL and OSMesa that works (on macOS: CGL).
        prepare: called while the context is current; if it fails, the next implementation is tried.
        load: function that imports a module.
    """
    wanted = (wanted or "").strip().lower()
    if wanted in OFF:
        raise NoImages(f"MUJOCO_GL is {wanted!r}, so images cannot be rendered: unset it, or set it to egl or osmesa")
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
        f"no OpenGL works here without a display ({'; '.join(reasons)}). On Debian or Ubuntu install {PACKAGES} "
        "with apt-get; MUJOCO_GL=egl or MUJOCO_GL=osmesa selects one of them"
    )


def _mujoco() -> Any:
    """Import MuJoCo without its own choice of OpenGL, which fails if there is none: `Eye` opens a context later."""
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
    """Serve requests over the connection at standard input until the other end closes it."""
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
    """Print the name of the OpenGL implementation that works, or exit with the reasons why none does."""
    from .layouts import generate

    try:
        eye = Eye(generate(rooms=(1, 1), pillars=0, hazards=0), 8, os.environ.get("MUJOCO_GL"))
    except NoImages as error:
        sys.exit(str(error))
    print(eye.gl)
    eye.close()


if __name__ == "__main__":
    _work() if len(sys.argv) > 1 else _check()
