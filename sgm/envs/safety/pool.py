"""Pool of worker processes that simulate robots and render images.

The processes are started as separate programs, not forked: the user's main module needs no guard, and the main process
needs no OpenGL. Linux and macOS only.
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
FAREWELL = 5.0  # seconds to wait for a worker to stop
CHUNKS = 4  # parts of the work per worker, for balance: robots in contact take four times as long as others


class WorkerDied(SGMError, RuntimeError):
    """A worker process has ended, or no longer answers."""


class Workers:
    """Worker processes for one set of robots.

    Attributes:
        shared: arrays shared with the processes.
    """

    def __init__(self, number: int, layout: Layout, robots: int, images: int, size: int, largest: int) -> None:
        """Start the processes.

        Args:
            number: number of processes.
            layout: the layout of the rooms.
            robots: number of robots.
            images: largest number of images rendered at once.
            size: side of images, pixels.
            largest: side of the largest image that may be rendered, pixels.
        """
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
            with contextlib.suppress(OSError):  # if it has died already, the first request raises
                ours.send_bytes(layout)

    def run(self, what: str, rows: NDArray[np.integer], size: int = 0) -> None:
        """Run "step" or "see" on these rows of the shared arrays, and wait until it is done."""
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
                    raise WorkerDied(f"a worker process has not answered for {PATIENCE:g} seconds")
                for connection in answers:
                    assert isinstance(connection, Connection)
                    if (problem := connection.recv()) is not None:
                        raise NoImages(problem)
                    busy.remove(connection)
                    idle.append(connection)
        except (EOFError, OSError):
            words = self._last_words()
            self.close()
            raise WorkerDied(f"a worker process died: {words}; reset the environment to continue") from None
        except BaseException:
            self.close()  # outstanding answers must not be taken for those of later requests
            raise

    def _last_words(self) -> str:
        """Describe why a worker died: exit codes and the last line of the log."""
        codes = []
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                codes.append(process.wait(0.2))
        self._log.seek(0)
        said = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        return "; ".join([f"it ended with {', '.join(map(str, codes)) or 'no code'}", *said[-1:]])


def _environment() -> dict[str, str]:
    """Environment variables of a worker: the same packages as this process, and one thread."""
    kept = {key: value for key, value in os.environ.items() if key not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {"LP_NUM_THREADS": "0", **kept, **threads, "PYTHONPATH": path}


def _memory_file() -> int:
    """Open a file without a name, which is removed when no process maps it any longer; return its descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("sgm-safety")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _stop(processes: Sequence[subprocess.Popen[bytes]], connections: Sequence[Connection], log: IO[bytes]) -> None:
    for connection in connections:
        connection.close()  # a worker then ends
    for process in processes:
        try:
            process.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    log.close()


def check() -> str:
    """Return the name of the OpenGL implementation that works, tested in a separate process; NoImages if none does."""
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
