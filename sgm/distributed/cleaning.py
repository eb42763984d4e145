"""Cleanup by many workers: each acts on a copy of the memory and sends what it found; the owner decides.

The owner gives every worker steps to take, in rounds. A worker's answer is a batch of evidence. The owner takes the
batches in and tells every worker what has become of edges since its last round.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import platform
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sgm.errors import InputError, WorkerError
from sgm.memory.follow import Changes, Follower
from sgm.memory.settings import whole
from sgm.navigation import Cleaner, CleanupReport, Navigator
from sgm.progress import progress_bar

from .backends import InProcess, MakeWorker, make_backend
from .messages import Batch
from .owner import Owner, evidence_file, write_batches
from .pool import TIMEOUT, Member, Pool

TURNS = 16  # steps of all of a worker's robots between two batches
ORDERS = ("rounds", "arrival")
GOODBYE = 5.0  # seconds after Ctrl-C in which what workers are about to send is taken in
_LOOK = "look"

Seed = int | Sequence[int]


class Round(NamedTuple):
    """What a worker is asked for.

    Attributes:
        steps: environment steps to take.
        changes: what has become of edges since its last round; None: nothing.
        seed: begin new episodes with this seed; None: go on.
    """

    steps: int
    changes: Changes | None
    seed: Seed | None


@dataclasses.dataclass(frozen=True)
class CrewReport(CleanupReport):
    """What many workers did; see also `CleanupReport`.

    Attributes:
        workers: how many there were at once.
        died: how many died and were replaced. What a dead one had not sent is lost, and its steps were taken anew.
        records: tries that were taken in.
        stale: of these, tries of edges that others had removed meanwhile.
    """

    workers: int = 1
    died: int = 0
    records: int = 0
    stale: int = 0


# -- in the worker -----------------------------------------------------------------------------------------------


class CleanupWorker:
    """Sends robots through the edges of its copy of the memory."""

    def __init__(
        self,
        agent: Navigator,
        make_env: Callable[[], Any],
        look: str | None,
        name: str,
        seed: Seed,
        alone: bool,
        outbox: Path | None,
        how: dict[str, Any],
        at_once: str | None = None,
    ) -> None:
        """Make the environment.

        Args:
            agent: this worker's own, with a copy of the memory.
            make_env: makes the environment.
            look: the method of the environment that the agent looks with; None: it does not look.
            name: of this worker.
            seed: of everything random here.
            alone: this process is the worker's own, so that generators shared by all of it are seeded, too.
            outbox: the file of the memory, if it is live on this machine.
            how: further arguments of `Cleaner`.
            at_once: the machine of the owner, if a worker may be ended with it before it can leave anything behind.
                There every batch is written beside the file before it is sent.
        """
        self.env = made_env(make_env)
        self.agent, self.name, self.how, self.outbox = agent, name, how, outbox
        self._at_once = outbox is not None and at_once == platform.node()
        agent.clean = True
        agent.recorded = self._note
        if look is not None:
            agent.look = _method(self.env, look)
        self._seed_all(seed, alone)
        self.num_envs = int(getattr(self.env, "num_envs", 1))
        self.follower = Follower(agent.memory)
        self._sequence, self._kept = 0, list[Batch]()
        self._source, self._target, self._reached = list[int](), list[int](), list[bool]()
        self._lock = threading.Lock()
        self.cleaner = Cleaner(agent, self.env, seed=seed, **how)

    def answer(self, request: Round) -> Batch:
        """Take steps; what was tried."""
        self._kept = []  # who asks for more has taken in what was sent
        if request.changes is not None:
            self.follower.take(request.changes)
        if request.seed is not None:
            self._seed_all(request.seed, False)
            self.cleaner = Cleaner(self.agent, self.env, seed=request.seed, **self.how)
        report = self.cleaner.run(request.steps)
        with self._lock:
            batch = self._packed()._replace(steps=report.steps, episodes=report.episodes, arrived=report.arrived)
            self._kept.append(batch)
            if self._at_once and self.outbox is not None and len(batch.source):
                write_batches(evidence_file(self.outbox, self.name), self._kept)
        return batch

    def leave(self) -> None:
        """Write what the owner may not have taken in to a file beside the memory's; this worker ends now."""
        self._lock.acquire()  # for good: what is tried from now on nobody would know of
        batches = [*self._kept, *([self._packed()] if self._source else [])]
        if self.outbox is not None and batches:
            write_batches(evidence_file(self.outbox, self.name), batches)

    def close(self) -> None:
        """Stop simulators."""
        self.env.close()

    def _note(self, edges: Sequence[tuple[int, int]], reached: bool) -> None:
        with self._lock:
            for source, target in edges:
                self._source.append(source)
                self._target.append(target)
                self._reached.append(reached)

    def _packed(self) -> Batch:
        """The tries since the last batch as one, with the next number."""
        self._sequence += 1
        columns = np.array(self._source, np.int64), np.array(self._target, np.int64), np.array(self._reached, np.bool_)
        self._source, self._target, self._reached = [], [], []
        return Batch(self.name, self._sequence, *columns)

    def _seed_all(self, seed: Seed, alone: bool) -> None:
        """Give whatever draws random numbers here numbers of its own; a copy would draw those of the original."""
        sequence = np.random.SeedSequence(seed)
        controller: Any = self.agent.controller
        if isinstance(getattr(controller, "random", None), np.random.Generator):
            controller.random = np.random.default_rng(sequence.spawn(1)[0])
        if alone:
            drawn = [int(word) for word in sequence.generate_state(3)]
            random.seed(drawn[0])
            np.random.seed(drawn[1])  # noqa: NPY002 (for environments and controllers that draw from it)
            if torch := sys.modules.get("torch"):
                torch.manual_seed(drawn[2])


def made_env(make_env: Callable[[], Any]) -> Any:
    """What `make_env` makes; InputError if it raises."""
    try:
        return make_env()
    except Exception as error:
        raise InputError(f"make_env() raised {type(error).__name__}: {error}") from error


def _method(env: Any, name: str) -> Any:
    for holder in (env, getattr(env, "unwrapped", None)):
        if callable(found := getattr(holder, name, None)):
            return found
    raise InputError(f"the agent looks with {name}() of its environment, and what make_env() makes has no {name}()")


# -- in the owner ------------------------------------------------------------------------------------------------


class Crew:
    """Workers that clean one memory; they go on where they were from one call of `run` to the next.

    Attributes:
        owner: of the memory.
        pool: the workers.
    """

    kind: type[CleanupWorker] = CleanupWorker  # what a worker is

    def __init__(
        self,
        navigator: Navigator,
        make_env: Callable[[], Any],
        *,
        workers: int,
        backend: Any = "multiprocessing",
        seed: Seed = 0,
        order: str = "rounds",
        turns: int = TURNS,
        timeout: float = TIMEOUT,
        **how: Any,
    ) -> None:
        """Start workers; `close` ends them. See `sgm.cleanup`.

        Args:
            navigator: the agent whose memory is cleaned; workers have copies of it.
            make_env: makes an environment, single or vector, in each worker.
            workers: how many.
            backend: where they run: "multiprocessing", "ray" or "in-process".
            seed: of everything random; each worker draws numbers of its own.
            order: "rounds": evidence is taken in by rounds, in the order of workers: one seed and number of workers
                gives one result, unless a worker dies. "arrival": as it comes; nobody waits for a slow worker.
            turns: steps of all of a worker's robots between two batches.
            timeout: seconds that a worker may take for one batch; one that takes longer is killed and replaced.
            how: further arguments of `Cleaner`: options, goals, episode_steps.
        """
        if not isinstance(navigator, Navigator):
            raise InputError(f"got {navigator!r}: expected a Navigator, whose memory is cleaned up by acting")
        if not callable(make_env) or hasattr(make_env, "step"):
            raise InputError(
                f"env is {make_env!r}: with workers give a function that makes an environment, for each worker has its "
                "own: sgm.cleanup(agent, make_env, ...)"
            )
        if order not in ORDERS:
            raise InputError(f"order is {order!r}: expected one of {', '.join(map(repr, ORDERS))}")
        self.navigator, self.order, self.turns = navigator, order, whole("turns", turns, 1)
        self._make_env, self._seed, self._how = make_env, _as_list(seed), how
        workers = whole("workers", workers, 1)
        self.workers, self._versions, self._begin = workers, dict[int, int](), dict[int, Seed]()
        backend = make_backend(backend, workers)
        self._here = isinstance(backend, InProcess)
        self._at_once = platform.node() if getattr(backend, "ends_at_once", False) else None
        self.owner = Owner(navigator.memory)
        try:
            self.pool = Pool(self._making, workers, backend, timeout=timeout)
        except BaseException:
            self.owner.close()
            raise

    def begin(self, seed: Seed) -> None:
        """Let all robots begin new episodes, with another seed."""
        self._seed = _as_list(seed)
        self._begin = {member.number: [*self._seed, member.number] for member in self.pool.members}

    def run(self, steps: int, progress: bool = False) -> CrewReport:
        """Take so many environment steps, all workers together. Ctrl-C keeps what was done until then."""
        work = _Work(whole("steps", steps, 0))
        counts, died = dataclasses.replace(self.owner.counts), self.pool.died
        memory = self.navigator.memory
        removed = len(memory.removed().source)
        bar = progress_bar(shown=progress, total=steps, desc="clean up", unit="step", leave=False)
        with bar, self._ending_well(work):
            while work.done < work.steps:
                self._grant(work)
                bar.update(self._take(work, self.pool.wait()))
        taken = self.owner.counts
        return CrewReport(
            work.done,
            work.episodes,
            work.arrived,
            len(memory.removed().source) - removed,
            time.perf_counter() - work.began,
            self.workers,
            self.pool.died - died,
            taken.records - counts.records,
            taken.stale - counts.stale,
        )

    def close(self) -> None:
        """End the workers."""
        try:
            self.pool.close()
        finally:
            self.owner.close()

    def __enter__(self) -> Crew:
        """For `with Crew(...) as crew`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # -- rounds --

    def _grant(self, work: _Work) -> None:
        """Give steps to the workers that have none; by rounds, to all of them at once."""
        members = sorted(self.pool.members, key=lambda member: member.number)
        free = [member for member in members if member.num_envs and member.task is None]
        if self.order == "rounds" and (work.waiting or len(free) < len(members)):
            return
        for member in free:
            steps = min(self.turns * member.num_envs, work.left)
            if steps <= 0:
                return
            version = self._versions.get(member.number)
            changes = None if version == self.owner.version else self.owner.changes(version or 0)
            self._versions[member.number] = self.owner.version
            work.granted += steps
            self.pool.ask(member, Round(steps, changes, self._begin.pop(member.number, None)), steps)

    def _take(self, work: _Work, answers: list[tuple[Member, Any]]) -> int:
        """Take in what workers sent, now or when their round is complete; the steps that were taken."""
        for member, answer in answers:
            if isinstance(answer, Batch):
                work.waiting.append((member.number, answer))
            elif answer is None and member.task is not None:
                work.granted -= member.task
        if self.order == "rounds" and any(member.task is not None for member in self.pool.members):
            return 0
        return self._apply(work)

    def _apply(self, work: _Work) -> int:
        before = work.done
        while work.waiting:
            work.waiting.sort(key=lambda item: item[0])
            _, batch = work.waiting[0]
            self.owner.take(batch)
            work.add(batch)
            work.waiting.pop(0)
        return work.done - before

    @contextlib.contextmanager
    def _ending_well(self, work: _Work) -> Iterator[None]:
        """After Ctrl-C or the failure of a worker, take in what workers have sent or are about to send."""
        try:
            yield
        except (KeyboardInterrupt, WorkerError):
            for member, answer in [] if self._here else self.pool.wait_briefly(GOODBYE):
                if isinstance(answer, Batch):
                    work.waiting.append((member.number, answer))
            self._apply(work)
            raise

    # -- workers --

    def _making(self, number: int) -> MakeWorker:
        """What makes the worker of a number."""
        self._versions[number] = self.owner.version
        agent, look = self.navigator, self.navigator.look
        return functools.partial(
            self.kind,
            agent=copy.deepcopy(agent) if self._here else agent,
            make_env=self._make_env,
            look=None if look is None else getattr(look, "__name__", _LOOK),
            name=self.owner.enlist(number),
            seed=[*self._seed, number],
            alone=not self._here,
            outbox=self.owner.outbox,
            how=self._how,
            **({"at_once": self._at_once} if self._at_once else {}),
        )


class _Work:
    """A run under way: steps done and granted, and batches whose round is not complete."""

    def __init__(self, steps: int) -> None:
        self.steps, self.began = steps, time.perf_counter()
        self.done = self.granted = self.episodes = self.arrived = 0
        self.waiting: list[tuple[int, Batch]] = []

    @property
    def left(self) -> int:
        """Steps that nobody has been given."""
        return self.steps - self.granted

    def add(self, batch: Batch) -> None:
        self.done += batch.steps
        self.episodes += batch.episodes
        self.arrived += batch.arrived


def _as_list(seed: Seed) -> list[int]:
    return [seed] if isinstance(seed, (int, np.integer)) else list(seed)
