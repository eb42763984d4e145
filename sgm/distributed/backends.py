"""Backends: workers in this process, in processes of this machine, or on a Ray cluster.

A backend only starts workers and transports requests and answers. Everything else is the same for all backends:
pool.py, cleaning.py, collecting.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sgm.errors import InputError, SGMError

from .messages import Failed, Ready, Worker, failure

MakeWorker = Callable[[], Worker]


class Ended(SGMError):
    """A worker ended without an answer: it was killed, it crashed, or its machine is unreachable."""


class Handle(Protocol):
    """The owner's handle of a worker. The worker answers `Ready` after its start, and then each request."""

    def ask(self, request: Any) -> None:
        """Send a request; errors of the worker are raised by `answer`."""
        ...

    def answer(self) -> Any:
        """Return the answer; raises `Ended` if the worker has ended. Call it only after `wait` returned this worker."""
        ...

    def stop(self) -> None:
        """Stop the worker, by force if it does not end by itself."""
        ...


class Backend(Protocol):
    """Starts workers."""

    def start(self, make: MakeWorker) -> Handle:
        """Start a worker; `make` is called where it runs."""
        ...

    def wait(self, handles: Sequence[Any], timeout: float) -> list[Any]:
        """Wait for workers; return those that have answered or ended, or none after `timeout` seconds."""
        ...

    def close(self) -> None:
        """Stop all workers."""
        ...


class InProcess:
    """Workers that take turns in this process, for tests and debugging."""

    def start(self, make: MakeWorker) -> Handle:
        """See `Backend`."""
        return _Here(make)

    def wait(self, handles: Sequence[Any], timeout: float) -> list[Any]:
        """See `Backend`."""
        return list(handles[:1])

    def close(self) -> None:
        """See `Backend`."""


class _Here:
    def __init__(self, make: MakeWorker) -> None:
        self._make, self._request = make, None
        self._worker: Worker | None = None

    def ask(self, request: Any) -> None:
        self._request = request

    def answer(self) -> Any:
        try:
            if self._worker is None:
                self._worker = self._make()
                return Ready(self._worker.num_envs)
            return self._worker.answer(self._request)
        except Exception as error:
            return failure(error)

    def stop(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def make_backend(name: Any, workers: int) -> Backend:
    """Make the backend of a name for `workers` workers; a backend object is returned unchanged."""
    if name == "in-process":
        return InProcess()
    if name == "multiprocessing":
        from .processes import Processes

        return Processes()
    if name == "ray":
        from .ray_backend import RayBackend

        return RayBackend(workers)
    if isinstance(name, str) or not hasattr(name, "start"):
        raise InputError(f"backend is {name!r}: expected one of {', '.join(map(repr, BACKENDS))}")
    made: Backend = name
    return made


BACKENDS = ("multiprocessing", "ray", "in-process")

__all__ = ["BACKENDS", "Backend", "Ended", "Failed", "Handle", "InProcess", "make_backend"]
