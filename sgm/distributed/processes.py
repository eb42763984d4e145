"""Workers in processes of this machine, started with `spawn`, each with a pipe to its owner.

A worker ends when its owner ends, for any reason: a thread of the worker waits for that. Before it ends, it saves
evidence that the owner has not applied.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import connection
from typing import Any

import sgm
from sgm.errors import InputError

from .backends import Ended, MakeWorker
from .messages import Failed, Ready, Worker, failure, version_problem

PATIENCE = 5.0  # seconds to wait for a worker to end by itself
_FITS = 1 << 15  # bytes that a pipe buffers without a reader
# Workers share the machine's cores; numerical libraries that use all cores in each worker would slow each other down.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Processes:
    """Backend that starts a process for each worker."""

    def __init__(self) -> None:
        """Make a backend without workers."""
        self._started: list[_Process] = []

    def start(self, make: MakeWorker) -> _Process:
        """See `Backend`."""
        handle = _Process(packed(make))
        self._started.append(handle)
        return handle

    def wait(self, handles: Sequence[_Process], timeout: float) -> list[_Process]:
        """See `Backend`."""
        found = connection.wait([handle.pipe for handle in handles], timeout)
        return [handle for handle in handles if handle.pipe in found]

    def close(self) -> None:
        """See `Backend`."""
        for handle in self._started:
            handle.say_goodbye()
        while self._started:
            self._started.pop().stop()


def packed(make: MakeWorker) -> bytes:
    """Pickle the function that makes a worker; InputError if it cannot be sent to another process."""
    try:
        return pickle.dumps(make)
    except Exception as error:
        parts = {**getattr(make, "keywords", {}), **dict(enumerate(getattr(make, "args", ())))}
        names = [name for name, value in parts.items() if not _can_be_packed(value)]
        culprit = next((str(name) for name in names if isinstance(name, str)), "an argument of the workers")
        raise InputError(
            f"{culprit} cannot be sent to another process: {error}. Give functions and classes that a module defines "
            "at its top level, or functools.partial of one, and no lambda; backend='ray' can send lambdas too"
        ) from error


def _can_be_packed(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


class _Process:
    """The process of one worker."""

    def __init__(self, make: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        # Not a daemon, because a daemon cannot start processes, as some vector environments do.
        self.process = context.Process(target=_serve, args=(theirs,), name="sgm worker", daemon=False)
        try:
            with _one_thread():
                self.process.start()
        finally:
            theirs.close()
        self._sending: threading.Thread | None = None
        self.ask((sgm.__version__, make))

    def ask(self, request: Any) -> None:
        data = pickle.dumps(request)
        if len(data) < _FITS:
            self._send(data)
            return
        # A worker that does not read must block only a thread.
        self._sending = threading.Thread(target=self._send, args=(data,), daemon=True)
        self._sending.start()

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # if it has died already, `answer` raises
            self.pipe.send_bytes(data)

    def answer(self) -> Any:
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(PATIENCE)
            raise Ended(_ending(self.process.exitcode)) from None

    def say_goodbye(self) -> None:
        """Ask the worker to end, without waiting."""
        if not self.pipe.closed and not (self._sending and self._sending.is_alive()):
            self._send(pickle.dumps(None))

    def stop(self) -> None:
        if self.pipe.closed:
            return
        self.say_goodbye()
        self.process.join(PATIENCE)
        for end in (self.process.terminate, self.process.kill):
            if self.process.is_alive():
                end()
                self.process.join(PATIENCE)
        self.pipe.close()
        self.process.close()


def _ending(code: int | None) -> str:
    if code is None:
        return "it closed its pipe but does not end"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"it was killed by {signal.Signals(-code).name}"
    advice = ""
    if code == 1:
        advice = (
            ". In a program that starts workers, put the code that runs under if __name__ == '__main__', because every "
            "worker imports the program"
        )
    return f"it ended with code {code}{advice}"


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Set numerical libraries to one thread in processes started meanwhile, unless the user has set the variables."""
    unsaid = [name for name in _ONE_THREAD if name not in os.environ]
    os.environ.update(dict.fromkeys(unsaid, "1"))
    try:
        yield
    finally:
        for name in unsaid:
            os.environ.pop(name, None)


# -- in the worker's process -------------------------------------------------------------------------------------


def _serve(pipe: Any) -> None:
    """Make a worker and answer requests until the owner asks it to end, or has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner handles Ctrl-C and stops its workers
    post = _Post()
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=post.watch, args=(parent.sentinel,), daemon=True).start()
    try:
        post.worker = _made(pipe)
        if post.worker is None:
            return
        pipe.send(Ready(post.worker.num_envs))
        while (request := pipe.recv()) is not None:
            pipe.send(_answered(post.worker, request))
    except (EOFError, OSError):
        post.leave()
    finally:
        post.close()


def _made(pipe: Any) -> Worker | None:
    version, make = pipe.recv()
    if problem := version_problem(version):
        pipe.send(Failed(problem))
        return None
    try:
        worker: Worker = pickle.loads(make)()
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)
    except AttributeError as error:
        where = "; in a notebook, define functions for workers in a module" if "__main__" in str(error) else ""
        pipe.send(Failed(failure(error).text + where))
        return None
    except Exception as error:
        pipe.send(failure(error))
        return None
    return worker


def _answered(worker: Worker, request: Any) -> Any:
    try:
        return worker.answer(request)
    except Exception as error:
        return failure(error)


class _Post:
    """A worker that saves its evidence once, whichever thread first notices that the owner has ended."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self._leaving, self._left = threading.Lock(), False

    def watch(self, owner: Any) -> None:
        """End this process when the process of the owner has ended."""
        connection.wait([owner])
        self.leave()
        os._exit(1)

    def leave(self) -> None:
        with self._leaving:  # the second thread waits until the evidence is saved
            if not self._left and self.worker is not None:
                with contextlib.suppress(Exception):
                    self.worker.leave()
            self._left = True

    def close(self) -> None:
        if self.worker is not None:
            with contextlib.suppress(Exception):
                self.worker.close()
