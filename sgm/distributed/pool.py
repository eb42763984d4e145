"""A pool with a constant number of workers: dead ones are replaced, errors are raised, and every wait has a limit."""

from __future__ import annotations

import atexit
import dataclasses
import time
from collections.abc import Callable
from typing import Any

from sgm.errors import WorkerError

from .backends import Backend, Ended, Handle, MakeWorker, make_backend
from .messages import Failed, Ready

TIMEOUT = 300.0  # seconds that a worker may take for an answer
_LOOK = 0.5  # seconds between checks of workers that have not answered


@dataclasses.dataclass(eq=False)
class Member:
    """A worker of a pool.

    Attributes:
        number: number of the worker; replacements have new numbers.
        handle: handle for requests to the worker.
        num_envs: number of sub-environments that it steps at once; 0: it is not ready yet.
        task: the task of its last request, as named by the user of the pool; None: it is idle.
        since: time of the request, of `time.monotonic`.
    """

    number: int
    handle: Handle
    num_envs: int = 0
    task: Any = None
    since: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def waited_for(self) -> bool:
        """Whether an answer of the worker is outstanding."""
        return self.num_envs == 0 or self.task is not None


class Pool:
    """Workers of one kind.

    Attributes:
        members: the current workers.
        died: number of workers that have ended and were replaced.
    """

    def __init__(
        self, make: Callable[[int], MakeWorker], workers: int, backend: Any, *, timeout: float = TIMEOUT
    ) -> None:
        """Start workers.

        Args:
            make: function of the number of a worker that returns the function which makes it, where it runs.
            workers: number of workers.
            backend: a name, see `BACKENDS`, or a `Backend`.
            timeout: seconds that a worker may take for an answer; one that takes longer is killed and replaced.
        """
        self._make, self.timeout = make, timeout
        self.backend: Backend = make_backend(backend, workers)
        self.members: list[Member] = []
        self.died = self._next = self._deaths_in_a_row = 0
        self._error: WorkerError | None = None
        self._most_deaths = 3 * workers + 3
        atexit.register(self.close)  # before multiprocessing waits for its processes
        try:
            for _ in range(workers):
                self._start()
        except BaseException:
            self.close()
            raise

    def ask(self, member: Member, request: Any, task: Any) -> None:
        """Send a request to a worker that is ready; `task` is the caller's name for it."""
        member.task, member.since = task, time.monotonic()
        member.handle.ask(request)

    def wait(self) -> list[tuple[Member, Any]]:
        """Wait for the next answers, including `Ready` of a new worker; None for a worker that died and was replaced.

        The `task` of a dead worker was not done.
        """
        while True:
            if self._error is not None:
                raise self._error
            waited = [member for member in self.members if member.waited_for]
            if not waited:
                raise WorkerError("all workers are idle, but the work is not done")
            found = self.backend.wait([member.handle for member in waited], _LOOK)
            answers = [(member, self._answer(member)) for member in waited if member.handle in found]
            answers = [(member, answer) for member, answer in answers if not isinstance(answer, Failed)]
            for member in waited:
                if member.handle not in found and time.monotonic() - member.since > self.timeout:
                    self._give_up(member)
                    answers.append((member, None))
            if answers:
                return answers

    def wait_briefly(self, seconds: float) -> list[tuple[Member, Any]]:
        """Return the answers that arrive within `seconds`; no worker is replaced, and errors are ignored."""
        end, answers = time.monotonic() + seconds, []
        while (waited := [m for m in self.members if m.task is not None]) and (left := end - time.monotonic()) > 0:
            for member in waited:
                if member.handle not in self.backend.wait([member.handle], min(_LOOK, left)):
                    continue
                member.task = None
                try:
                    answers.append((member, member.handle.answer()))
                except Ended:
                    continue
        return [(member, answer) for member, answer in answers if not isinstance(answer, (Failed, Ready))]

    def close(self) -> None:
        """Stop all workers."""
        atexit.unregister(self.close)
        members, self.members = self.members, []
        try:
            self.backend.close()
        finally:
            for member in members:
                member.handle.stop()  # if the backend was interrupted

    def _start(self) -> Member:
        member = Member(self._next, self.backend.start(self._make(self._next)))
        self._next += 1
        self.members.append(member)
        return member

    def _answer(self, member: Member) -> Any:
        try:
            answer = member.handle.answer()
        except Ended as ended:
            self._replace(member, str(ended))
            return None
        if isinstance(answer, Failed):  # raised after the answers of the others were applied
            self._error = self._error or WorkerError(f"worker {member.number}: {answer.text}")
            return answer
        if isinstance(answer, Ready):
            member.num_envs = answer.num_envs
            return answer
        self._deaths_in_a_row = 0
        member.task = None
        return answer

    def _give_up(self, member: Member) -> None:
        """Replace a worker that does not answer; WorkerError if it never started, because another would not either."""
        why = f"it has not answered for {self.timeout:g} seconds"
        if not member.num_envs:
            hint = getattr(self.backend, "why_not_started", lambda: "")()
            raise WorkerError(f"worker {member.number} has not started: {why}{hint}. A longer timeout= may help")
        self._replace(member, why)

    def _replace(self, member: Member, why: str) -> None:
        """Replace a worker that has ended; WorkerError if too many have ended in a row."""
        self.died += 1
        self._deaths_in_a_row += 1
        self.members.remove(member)
        member.handle.stop()
        if self._deaths_in_a_row >= self._most_deaths or (not member.num_envs and "ended with code" in why):
            raise WorkerError(f"worker {member.number} has ended: {why}")
        self._start()
