"""Where workers run: in this process, in processes of this machine, or on a Ray cluster. Each backend is a thin pipe.

A backend starts workers and carries requests and answers. What these mean, who is replaced and what is counted is the
same for all of them: pool.py, cleaning.py, collecting.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sgm.errors import InputError, SGMError

from .messages import Failed, Ready, Worker, failure

MakeWorker = Callable[[], Worker]


class Ended(SGMError):
    """A worker has ended without an answer: it was killed, crashed, or its machine is gone."""


class Handle(Protocol):
    """A worker as its owner sees it. It answers `Ready` when it has been started, and then each request."""

    def ask(self, request: Any) -> None:
        """Send a request; what is wrong with the worker is said by `answer`."""
        ...

    def answer(self) -> Any:
        """What it answered; `Ended` if it has ended instead. Only after `wait` has named this worker."""
        ...

    def stop(self) -> None:
        """End it, at once if it does not end by itself."""
        ...


class Backend(Protocol):
    """Starts workers."""

    def start(self, make: MakeWorker) -> Handle:
        """A worker of its own, made by `make` where it will run."""
        ...

    def wait(self, handles: Sequence[Any], timeout: float) -> list[Any]:
        """Those of these workers that have answered, or ended; none after so many seconds."""
        ...

    def close(self) -> None:
        """End everything that was started."""
        ...


class InProcess:
    """Workers that take turns in this process: for tests, and for debugging what others do."""

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
    """The backend of a name for so many workers, or a backend as it is."""
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
