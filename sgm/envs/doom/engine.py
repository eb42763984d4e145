"""Client of a Doom engine in another process: `Engine` starts it, sends it requests and stops it.

Every engine has its own Python process (`driver`): the ViZDoom library terminates its process if the engine does not
start, waits forever if the engine hangs, and leaves the engine running if the process is killed. Separate processes
avoid this, and let many engines run at once without threads. Linux and macOS only.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import operator
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sgm.errors import InputError, SGMError

from . import driver
from .driver import IMAGE, IWAD, POSE, RENDERED, REQUEST, RESET, Frame, Pose, pose_text
from .wad import DoomMap, check_textures, flats, wall_textures, write_lumps

SIZE = 80, 60  # default width and height of images
LEAST = 8  # smallest width and height, pixels
PATIENCE = 120.0  # seconds without an answer after which an engine counts as dead
FAREWELL = 5.0  # seconds to wait for an engine to stop
TEXT = 2**16  # least length of a map's text, bytes: the engine would not read a smaller, buffered file again

log = logging.getLogger(__name__)


class EngineDied(SGMError, RuntimeError):
    """An engine does not start, or no longer answers."""


class Engine:
    """One Doom engine on one map; every episode starts at a given pose, at rest.

    `reset`, `step` and `image` send a request and wait for the answer. To run many engines at once, `ask` all of them,
    then collect every `answer`. Every failure of an engine raises `EngineDied`; `restart` starts it again.

    Attributes:
        map: the map.
        size: (width, height) of the images, pixels.
        pose: x, y in map units and heading in degrees at the last image: ground truth, for evaluation only.
    """

    def __init__(self, doom_map: DoomMap, *, size: Sequence[int] = SIZE) -> None:
        """Launch the engine without waiting for it; `wait` returns once it has started."""
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
                    [sys.executable, driver.__file__, json.dumps({"size": self.size, "talkative": talkative})],
                    stdin=theirs.fileno(),
                    stdout=output,
                    stderr=output,
                    cwd=self._folder,
                    env=_environment(),
                    start_new_session=True,  # own process group: killed together with the engine, and no Ctrl-C
                )
        except BaseException:
            self._connection.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._stop = weakref.finalize(self, _stop, self._process, self._connection, self._folder)
        self._awaited: tuple[int, int] | None = self.size
        self._started = False

    def _write_map(self) -> None:
        start = f"thing {{ {pose_text(self.map.start)} type = 1; skill3 = true; single = true; }}\n"
        text = self.map.stripped().text().ljust(TEXT) + start
        write_lumps(self._folder / "map.wad", [("MAP01", b""), ("TEXTMAP", text.encode()), ("ENDMAP", b"")])
        if self._own_textures:
            (self._folder / "own.wad").symlink_to(self.map.wad)

    def wait(self) -> None:
        """Wait until the engine has started; if it fails, try once more, with console output for the error message."""
        if self._started:
            return
        try:
            self.answer()
        except EngineDied as error:
            log.error("A Doom engine does not start on map %s (%s): trying again", self.map.name, error)
            self.close()
            self._launch(talkative=True)
            try:
                self.answer()
            except EngineDied as again:
                self.close()
                raise EngineDied(f"no Doom engine starts on map {self.map.name}: {again}") from None
        self._started = True

    def restart(self) -> None:
        """Stop the engine, if it is running, and start it again."""
        self.close()
        self._launch()
        self.wait()

    def reset(self, pose: Pose) -> Frame:
        """Start an episode at x, y (map units) and heading (rounded to integer degrees), and return the image there."""
        self.ask(RESET, pose)
        return self.answer()

    def step(self, action: int) -> Frame:
        """Take an action for four tics, and return the image after it."""
        self.ask(action)
        return self.answer()

    def image(self) -> Frame:
        """Return the current image, (120, 160, 3), at the engine's resolution."""
        self.ask(IMAGE)
        return self.answer()

    def ask(self, what: int, pose: Pose = (0.0, 0.0, 0.0)) -> None:
        """Request an action, RESET or IMAGE without waiting for the answer."""
        self.wait()
        if self._awaited is not None:
            raise EngineDied("it was interrupted during an action")
        try:
            self._connection.sendall(REQUEST.pack(what, *pose))
        except OSError:
            raise EngineDied(self._last_words()) from None
        self._awaited = RENDERED if what == IMAGE else self.size

    def answer(self) -> Frame:
        """Wait for the answer to the last request: an image, (height, width, 3)."""
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
        """Describe why the engine died: exit code and last lines of its log."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(FAREWELL)
        lines = (self._folder / "log").read_text(errors="replace").split("\n") if self._folder.exists() else []
        said = [line.strip() for line in lines if line.strip()]
        said = said[-1:] if any(line.startswith("Traceback") for line in said) else said[-6:]
        code = self._process.returncode
        return "; ".join(["its process does not end" if code is None else f"its process ended with {code}", *said])

    def hang_up(self) -> None:
        """Ask the engine to stop, without waiting for it."""
        self._connection.close()

    def close(self) -> None:
        """Stop the engine and remove its files."""
        self._stop()


def _environment() -> dict[str, str]:
    """Environment variables of a driver: the same packages as this process, one thread, no display."""
    display = ("DISPLAY", "WAYLAND_DISPLAY")
    kept = {key: value for key, value in os.environ.items() if key not in display}
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _stop(process: subprocess.Popen[bytes], connection: socket.socket, folder: Path) -> None:
    """End a driver and its engine; remove their files and shared memory."""
    connection.close()  # a driver then stops its engine and ends
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
    """Return the (width, height) of images; InputError if the engine cannot deliver them."""
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
    """Whether a map has textures of its own WAD; MapError if a texture is neither there nor in the engine."""
    if doom_map.textures <= _textures():
        return False
    check_textures(doom_map.textures, IWAD, *([doom_map.wad] if doom_map.wad else []))
    return True


@functools.cache
def _textures() -> frozenset[str]:
    """Names of all textures of the engine."""
    return frozenset([*wall_textures(IWAD), *flats(IWAD)])
