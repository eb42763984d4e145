"""A Doom engine at the other end of a socket: `Engine` starts it, talks to it and buries it.

Every engine is driven by a Python process of its own (`driver`): the ViZDoom library brings down the process it is
in if its engine does not start, waits for ever if its engine hangs, and leaves its engine running if the process is
killed. None of this can happen here, and many engines run at once without threads. Linux and macOS only.
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

SIZE = 80, 60  # width and height delivered by default
LEAST = 8  # pixels of a side
PATIENCE = 120.0  # seconds without an answer after which an engine counts as dead
FAREWELL = 5.0  # seconds an engine is given to stop
TEXT = 2**16  # bytes of a map's text at least: the engine would not read a smaller file again, from a buffer it has

log = logging.getLogger(__name__)


class EngineDied(SGMError, RuntimeError):
    """An engine does not start, or does not answer any more."""


class Engine:
    """One Doom engine on one map; every episode begins at a pose of one's choice, at rest.

    `reset`, `step` and `image` ask and wait. To keep many engines busy, `ask` all of them, then collect every
    `answer`. Whatever goes wrong with an engine is an `EngineDied`; `restart` brings it back.

    Attributes:
        map: where it is.
        size: (width, height) of the images it delivers.
        pose: x, y in map units and heading in degrees at the last image: the truth, for evaluation only.
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
                    [sys.executable, driver.__file__, json.dumps({"size": self.size, "talkative": talkative})],
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
        start = f"thing {{ {pose_text(self.map.start)} type = 1; skill3 = true; single = true; }}\n"
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

    def image(self) -> Frame:
        """What is seen now, (120, 160, 3), as the engine draws it."""
        self.ask(IMAGE)
        return self.answer()

    def ask(self, what: int, pose: Pose = (0.0, 0.0, 0.0)) -> None:
        """Ask for an action, or for RESET or IMAGE, without waiting for the answer."""
        self.wait()
        if self._awaited is not None:
            raise EngineDied("it was interrupted while it acted")
        try:
            self._connection.sendall(REQUEST.pack(what, *pose))
        except OSError:
            raise EngineDied(self._last_words()) from None
        self._awaited = RENDERED if what == IMAGE else self.size

    def answer(self) -> Frame:
        """Wait for what was asked for: an image, (height, width, 3)."""
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
    """The (width, height) of images, if the engine can deliver them."""
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
