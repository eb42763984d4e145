"""Driver of one Doom engine: the program that `engine.Engine` runs in a separate process, as a file, not as a module.

It imports nothing of this package, because every import here delays the start of every engine.
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
RENDERED = 160, 120  # width and height of the engine's image
IWAD = Path(vizdoom.__file__).parent / "freedoom2.wad"  # part of the vizdoom package

POSE_TEXT = 48  # bytes reserved for the pose in the map's text
REQUEST = struct.Struct("<bddd")  # an action, RESET or IMAGE; and a pose
RESET, IMAGE = -1, -2
POSE = struct.Struct("<ddd")  # first part of an answer; the image follows

Frame = NDArray[np.uint8]
Pose = tuple[float, float, float]


def pose_text(pose: Pose) -> str:
    """Format a pose for the map's text, always with the same length."""
    x, y, heading = pose
    return f"x = {x:.4f}; y = {y:.4f}; angle = {round(heading) % 360};".ljust(POSE_TEXT)


def drive() -> None:
    """Serve requests for an engine over the socket at standard input until the other end closes it.

    `Engine` runs this in a separate process, in the folder of the map. If something fails the process ends, with the
    reason in the log, and `Engine` removes the folder.
    """
    cv2.setNumThreads(1)
    threading.Thread(target=_note_shared_memory, daemon=True).start()
    connection = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the engine must not keep the socket open after the driver has ended
    game = Game(**json.loads(sys.argv[1]))
    try:
        image = game.see()
        while True:
            connection.sendall(POSE.pack(*game.pose) + image.tobytes())
            request = connection.recv(REQUEST.size, socket.MSG_WAITALL)
            if len(request) < REQUEST.size:
                break
            what, *pose = REQUEST.unpack(request)
            if what == IMAGE:
                image = game.rendered
            else:
                image = game.reset(*pose) if what == RESET else game.step(what)
    except OSError:
        pass
    game.close()
    shutil.rmtree(Path.cwd(), ignore_errors=True)


def _note_shared_memory() -> None:
    """Write the names of the shared memory of driver and engine to a file: it remains if either is killed."""
    maps = Path("/proc/self/maps")
    while maps.exists():
        if names := set(re.findall(r"/dev/shm/ViZDoomMQCtr(\w+)", maps.read_text())):
            Path("shared").write_text(
                " ".join(f"ViZDoom{kind}{name}" for name in names for kind in ("SM", "MQCtr", "MQDoom"))
            )
            return
        time.sleep(0.01)


class Game:
    """The ViZDoom game of a driver process."""

    def __init__(self, size: Sequence[int], talkative: bool) -> None:
        self.size = tuple(size)
        self.file = Path("map.wad").absolute()
        self.offset = self.file.read_bytes().rindex(b"thing {") + len(b"thing { ")
        self.game = game = vizdoom.DoomGame()
        game.set_doom_config_path(str(Path("vizdoom.ini").absolute()))
        game.set_doom_game_path(str(IWAD))
        if Path("own.wad").exists():
            game.set_doom_scenario_path(str(Path("own.wad").absolute()))
            game.add_game_args("-file map.wad")  # the map in a later file replaces the one in an earlier file
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
        """Start an episode: the engine reads the map again, which contains the start of the player."""
        with self.file.open("r+b") as file:
            file.seek(self.offset)
            file.write(pose_text((x, y, heading)).encode())
        self.game.set_seed(0)  # an episode must not depend on those before it
        self.game.new_episode()
        image = self.see()
        if max(abs(self.pose[0] - x), abs(self.pose[1] - y)) > 2:
            raise RuntimeError(f"the player is at {self.pose[:2]} instead of {(x, y)}")
        return image

    def step(self, action: int) -> Frame:
        """Take an action for four tics, and return the image after it."""
        self.game.make_action(PRESSED[action], REPEAT)
        return self.see()

    def see(self) -> Frame:
        """Return the image at the requested size, and update the pose."""
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
    drive()
