"""Workers as actors of a Ray cluster (extra `ray`): transport of requests and answers.

Every wait has a limit. Ray itself waits forever for an actor that no machine has resources for, so each worker requests
a share of the CPUs such that all workers fit, and the pool raises an error if a worker does not start.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sgm
from sgm.errors import InputError, MissingExtra

from .backends import Ended, MakeWorker
from .messages import Failed, Ready, Worker, failure, version_problem

_LOOK = 0.05  # seconds between two checks of the owner
PATIENCE = 5.0  # seconds to wait for workers to close their environments


class RayBackend:
    """Backend that starts an actor for each worker, on an existing cluster or on a new one on this machine."""

    ends_at_once = True  # Ray kills the actors of a killed program without notice

    def __init__(self, workers: int = 1) -> None:
        """Connect to the cluster, or start one on this machine, which `close` stops."""
        self.ray = _ray()
        self._started: list[_Actor] = []
        self._own = not self.ray.is_initialized()
        if self._own:
            _connect(self.ray)
        self.share = self._share(workers)

    def start(self, make: MakeWorker) -> _Actor:
        """See `Backend`."""
        handle = _Actor(self.ray, _packed(self.ray, make), self.share)
        self._started.append(handle)
        return handle

    def wait(self, handles: Sequence[_Actor], timeout: float) -> list[_Actor]:
        """See `Backend`."""
        refs = [handle.ref for handle in handles]
        found, _ = self.ray.wait(refs, num_returns=1, timeout=timeout) if refs else ([], [])
        return [handle for handle in handles if handle.ref in found]

    def close(self) -> None:
        """See `Backend`."""
        last = [ref for handle in self._started if (ref := handle.say_goodbye()) is not None]
        with contextlib.suppress(Exception):
            self.ray.wait(last, num_returns=len(last), timeout=PATIENCE)
        while self._started:
            self._started.pop().stop()
        if self._own:
            self._own = False
            self.ray.shutdown()

    def why_not_started(self) -> str:
        """Describe the resources of the cluster, for the error about a worker that has not started."""
        with contextlib.suppress(Exception):
            have, free = self.ray.cluster_resources().get("CPU", 0), self.ray.available_resources().get("CPU", 0)
            return f" (each worker needs {self.share:g} CPU; the Ray cluster has {have:g}, of which {free:g} are free)"
        return ""

    def _share(self, workers: int) -> float:
        """Number of CPUs for each worker: 1, or less if the cluster has fewer CPUs than workers."""
        have = float(self.ray.cluster_resources().get("CPU", 1))
        return 1.0 if have >= workers else max(0.001, int(1000 * have / workers) / 1000)


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtra("backend='ray'", "ray", error) from error
    return ray


def _connect(ray: Any) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        try:
            ray.init(address="auto", **quiet)
        except ConnectionError:  # there is no cluster
            ray.init(include_dashboard=False, **quiet)
    except Exception as error:
        raise InputError(f"Ray cannot be started, and no cluster can be reached: {error}") from error


def _packed(ray: Any, make: MakeWorker) -> bytes:
    try:
        packed: bytes = ray.cloudpickle.dumps(make)
    except Exception as error:
        raise InputError(f"an argument of the workers cannot be sent to the Ray cluster: {error}") from error
    return packed


class _Actor:
    """The actor of one worker."""

    def __init__(self, ray: Any, make: bytes, share: float) -> None:
        self._ray, self._dead = ray, False
        # Ray must not retry anything: the pool replaces workers, and batches are numbered.
        options = {"num_cpus": share, "max_restarts": 0, "max_task_retries": 0}
        self._actor = ray.remote(**options)(_Serving).remote()
        self.ref = self._actor.make.remote(sgm.__version__, make, (platform.node(), os.getpid()))

    def ask(self, request: Any) -> None:
        self.ref = self._actor.answer.remote(request)

    def answer(self) -> Any:
        try:
            return self._ray.get(self.ref, timeout=PATIENCE)
        except self._ray.exceptions.GetTimeoutError:
            raise Ended("Ray reported an answer but did not deliver it") from None
        except self._ray.exceptions.RayActorError as error:
            text = str(error)
            if "ModuleNotFoundError" in text or "ImportError" in text:
                return Failed(f"sgm cannot be imported where it runs: {text.strip().splitlines()[-1]}")
            raise Ended(f"Ray's actor has ended ({_first_line(text)})") from None
        except self._ray.exceptions.RayError as error:
            return Failed(_last_line(str(error)))

    def say_goodbye(self) -> Any:
        """Ask the worker to close its environment."""
        if self._dead:
            return None
        with contextlib.suppress(Exception):
            return self._actor.close.remote()
        return None

    def stop(self) -> None:
        if not self._dead:
            self._dead = True
            with contextlib.suppress(Exception):
                self._ray.kill(self._actor)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else "unknown reason"


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1][:500] if text.strip() else "unknown reason"


def alive(process: int) -> bool:
    """Whether a process of this machine is running, by /proc; True if there is no /proc."""
    if not Path("/proc/self/stat").exists():
        return True
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (OSError, IndexError):
        return False


class _Serving:
    """The actor class: a worker in a process of the cluster."""

    def __init__(self) -> None:
        self.worker: Worker | None = None

    def make(self, version: str, make: bytes, owner: tuple[str, int]) -> Any:
        """Make the worker and return the first answer; `owner` is the owner's machine and process id."""
        if problem := version_problem(version):
            return Failed(problem)
        try:
            from ray import cloudpickle

            self.worker = cloudpickle.loads(make)()
            assert self.worker is not None
            if owner[0] == platform.node():
                threading.Thread(target=self._watch, args=(owner[1],), daemon=True).start()
            return Ready(self.worker.num_envs)
        except Exception as error:
            return failure(error)

    def answer(self, request: Any) -> Any:
        """Answer a request."""
        assert self.worker is not None
        try:
            return self.worker.answer(request)
        except Exception as error:
            return failure(error)

    def _watch(self, owner: int) -> None:
        """Save the evidence when the process of the owner has ended, if Ray leaves time for it."""
        while alive(owner):
            time.sleep(_LOOK)
        assert self.worker is not None
        with contextlib.suppress(Exception):
            self.worker.leave()
        os._exit(1)

    def close(self) -> None:
        """Close the environment."""
        if self.worker is not None:
            self.worker.close()
