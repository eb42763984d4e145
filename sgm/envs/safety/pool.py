"""Processes that share the work on robots.

They are started as programs of their own, not forked: they need no guard in anybody's main module, and whoever asks
for images needs no OpenGL in their own process. Linux and macOS only.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import IO

import numpy as np
from numpy.typing import NDArray

from sgm.errors import SGMError

from .layouts import Layout
from .worker import NoImages, Shared

WORKER = "sgm.envs.safety.worker"
PATIENCE = 300.0  # seconds without an answer after which a worker counts as dead
FAREWELL = 5.0  # seconds a worker is given to stop
CHUNKS = 4  # parts of the work for each worker: robots in contact take four times as long as others


class WorkerDied(SGMError, RuntimeError):
    """A process that moves robots ended, or does not answer any more."""


class Workers:
    """Processes that share the work on one set of robots.

    Attributes:
        shared: the arrays they work on.
    """

    def __init__(self, number: int, layout: Layout, robots: int, images: int, size: int, largest: int) -> None:
        """Start them; `size` is the side of images, `images` how many at once, `largest` the largest side."""
        self.number, self.layout = number, layout
        self._file = _memory_file()
        weakref.finalize(self, os.close, self._file)
        room = max(images * size * size, largest * largest) * 3
        self._settings = {
            "size": size,
            "gl": os.environ.get("MUJOCO_GL"),
            "shared": {"file": self._file, "robots": robots, "images": images, "bytes_of_images": room},
        }
        self.shared = Shared(**self._settings["shared"])  # type: ignore[arg-type]
        self._start()

    def _start(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (it is closed by _stop)
        self.close = weakref.finalize(self, _stop, self.processes, self._connections, self._log)
        layout = json.dumps(self.layout.asdict()).encode()
        for _ in range(self.number):
            ours, theirs = Pipe()
            with contextlib.closing(theirs):
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", WORKER, json.dumps(self._settings)],
                        stdin=theirs.fileno(),
                        stdout=self._log,
                        stderr=self._log,
                        env=_environment(),
                        pass_fds=[self._file],
                        start_new_session=True,  # no Ctrl-C
                    )
                )
            self._connections.append(ours)
            with contextlib.suppress(OSError):  # if it died already, the first question finds out
                ours.send_bytes(layout)

    def run(self, what: str, rows: NDArray[np.integer], size: int = 0) -> None:
        """Do something, "step" or "see", with these rows of the shared arrays, and wait until it is done."""
        if not len(rows):
            return
        if not self.close.alive:
            self._start()
        parts = np.array_split(rows, min(len(rows), CHUNKS * self.number if self.number > 1 else 1))
        waiting = [part.tolist() for part in parts][::-1]
        idle = list(self._connections)
        busy: list[Connection] = []
        try:
            while waiting or busy:
                while waiting and idle:
                    busy.append(idle.pop())
                    busy[-1].send((what, waiting.pop(), size))
                answers = wait(busy, PATIENCE)
                if not answers:
                    raise WorkerDied(f"a process that moves robots has not answered for {PATIENCE:g} seconds")
                for connection in answers:
                    assert isinstance(connection, Connection)
                    if (problem := connection.recv()) is not None:
                        raise NoImages(problem)
                    busy.remove(connection)
                    idle.append(connection)
        except (EOFError, OSError):
            words = self._last_words()
            self.close()
            raise WorkerDied(f"a process that moves robots died: {words}; reset the environment to go on") from None
        except BaseException:
            self.close()  # what was asked for in vain must not be taken for an answer later
            raise

    def _last_words(self) -> str:
        """Why it died."""
        codes = []
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                codes.append(process.wait(0.2))
        self._log.seek(0)
        said = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return "; ".join([f"it ended with {', '.join(map(str, codes)) or 'no code'}", *said[-1:]])


def _environment() -> dict[str, str]:
    """What a worker sees of ours: the same packages, and one thread for everything."""
    kept = {key: value for key, value in os.environ.items() if key not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {"LP_NUM_THREADS": "0", **kept, **threads, "PYTHONPATH": path}


def _memory_file() -> int:
    """The descriptor of a file without a name, which goes when nobody maps it any more."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("sgm-safety")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _stop(processes: Sequence[subprocess.Popen[bytes]], connections: Sequence[Connection], log: IO[bytes]) -> None:
    for connection in connections:
        connection.close()  # which a worker takes for goodbye
    for process in processes:
        try:
            process.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    log.close()


def check() -> str:
    """The OpenGL that images are drawn with, found out in a process of its own; NoImages if there is none."""
    found = subprocess.run(
        [sys.executable, "-m", WORKER],
        capture_output=True,
        text=True,
        check=False,
        env={**_environment(), **({"MUJOCO_GL": os.environ["MUJOCO_GL"]} if "MUJOCO_GL" in os.environ else {})},
    )
    if found.returncode:
        raise NoImages(found.stderr.strip().rpartition("\n")[2])
    return found.stdout.strip()
