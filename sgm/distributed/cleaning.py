"""Cleanup by many workers: each acts on a copy of the memory and sends its evidence; the owner removes edges.

The owner gives every worker steps to take, in rounds. A worker's answer is a batch of evidence. The owner applies the
batches and sends every worker the changes of edges since its last round.
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

TURNS = 16  # steps of each of a worker's robots between two batches
ORDERS = ("rounds", "arrival")
GOODBYE = 5.0  # seconds after Ctrl-C in which answers of workers are still applied
_LOOK = "look"

Seed = int | Sequence[int]


class Round(NamedTuple):
    """A request to a worker.

    Attributes:
        steps: environment steps to take.
        changes: changes of edges since its last round; None: none.
        seed: start new episodes with this seed; None: continue the current ones.
    """

    steps: int
    changes: Changes | None
    seed: Seed | None


@dataclasses.dataclass(frozen=True)
class CrewReport(CleanupReport):
    """Report of a cleanup by many workers; see also `CleanupReport`.

    Attributes:
        workers: number of workers at once.
        died: number of workers that died and were replaced. Evidence that a dead worker had not sent is lost, and its
            steps were taken again.
        records: number of tries that were applied.
        stale: number of these tries whose edge had been removed in the meantime.
    """

    workers: int = 1
    died: int = 0
    records: int = 0
    stale: int = 0


# -- in the worker -----------------------------------------------------------------------------------------------


class CleanupWorker:
    """Worker that tests edges with robots on its copy of the memory."""

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
            agent: the worker's own agent, with a copy of the memory.
            make_env: function that makes the environment.
            look: name of the environment's method for the agent's `look`; None: the agent has none.
            name: name of this worker.
            seed: seed of all random numbers of this worker.
            alone: whether the worker has its own process; then global random generators are seeded too.
            outbox: the memory file, if it is live on this machine.
            how: further arguments of `Cleaner`.
            at_once: the owner's machine, if workers may be killed together with the owner, before they can save their
                evidence. On that machine every batch is written beside the memory file before it is sent.
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
        """Take steps and return the evidence."""
        self._kept = []  # a new request means that the last batch was applied
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
        """Write evidence that the owner may not have applied to a file beside the memory file; then the worker ends."""
        self._lock.acquire()  # never released: later tries could not be saved
        batches = [*self._kept, *([self._packed()] if self._source else [])]
        if self.outbox is not None and batches:
            write_batches(evidence_file(self.outbox, self.name), batches)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _note(self, edges: Sequence[tuple[int, int]], reached: bool) -> None:
        with self._lock:
            for source, target in edges:
                self._source.append(source)
                self._target.append(target)
                self._reached.append(reached)

    def _packed(self) -> Batch:
        """Make the next batch, of the tries since the last one."""
        self._sequence += 1
        columns = np.array(self._source, np.int64), np.array(self._target, np.int64), np.array(self._reached, np.bool_)
        self._source, self._target, self._reached = [], [], []
        return Batch(self.name, self._sequence, *columns)

    def _seed_all(self, seed: Seed, alone: bool) -> None:
        """Seed all random generators of this worker; copies would draw the same numbers as the original."""
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
    """Call `make_env`; InputError if it raises."""
    try:
        return make_env()
    except Exception as error:
        raise InputError(f"make_env() raised {type(error).__name__}: {error}") from error


def _method(env: Any, name: str) -> Any:
    for holder in (env, getattr(env, "unwrapped", None)):
        if callable(found := getattr(holder, name, None)):
            return found
    raise InputError(f"the agent uses {name}() of its environment, but the environment of make_env() has no {name}()")


# -- in the owner ------------------------------------------------------------------------------------------------


class Crew:
    """Workers that clean up one memory; episodes continue from one call of `run` to the next.

    Attributes:
        owner: owner of the memory.
        pool: the workers.
    """

    kind: type[CleanupWorker] = CleanupWorker  # class of the workers

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
        """Start workers; `close` stops them. See `sgm.cleanup`.

        Args:
            navigator: the agent whose memory is cleaned up; workers have copies of it.
            make_env: function that makes an environment, single or vector, in each worker.
            workers: number of workers.
            backend: where they run: "multiprocessing", "ray" or "in-process".
            seed: seed of all random numbers; each worker draws its own.
            order: "rounds": evidence is applied in rounds, in the order of workers, so that the result is deterministic
                for a seed and number of workers unless a worker dies. "arrival": evidence is applied as it arrives,
                without waiting for slow workers.
            turns: steps of each of a worker's robots between two batches.
            timeout: seconds that a worker may take for one batch; one that takes longer is killed and replaced.
            how: further arguments of `Cleaner`: options, goals, episode_steps.
        """
        if not isinstance(navigator, Navigator):
            raise InputError(f"got {navigator!r}: expected a Navigator, whose memory is cleaned up by acting")
        if not callable(make_env) or hasattr(make_env, "step"):
            raise InputError(
                f"env is {make_env!r}: with workers give a function that makes an environment, because each worker "
                "needs its own: sgm.cleanup(agent, make_env, ...)"
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
        """Start new episodes for all robots, with another seed."""
        self._seed = _as_list(seed)
        self._begin = {member.number: [*self._seed, member.number] for member in self.pool.members}

    def run(self, steps: int, progress: bool = False) -> CrewReport:
        """Take `steps` environment steps, over all workers, and report. After Ctrl-C the evidence so far is kept."""
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
        """Stop the workers."""
        try:
            self.pool.close()
        finally:
            self.owner.close()

    def __enter__(self) -> Crew:
        """Return the crew, for `with Crew(...) as crew`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the workers."""
        self.close()

    # -- rounds --

    def _grant(self, work: _Work) -> None:
        """Give steps to idle workers; with `order="rounds"`, only when all workers are idle."""
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
        """Apply the answers of workers, at once or when their round is complete; return the number of steps."""
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
        """After Ctrl-C or the failure of a worker, wait briefly for outstanding answers and apply them."""
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
        """Return the function that makes worker `number`."""
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
    """State of a run: steps done and granted, and batches whose round is not complete."""

    def __init__(self, steps: int) -> None:
        self.steps, self.began = steps, time.perf_counter()
        self.done = self.granted = self.episodes = self.arrived = 0
        self.waiting: list[tuple[int, Batch]] = []

    @property
    def left(self) -> int:
        """Steps that no worker has been given yet."""
        return self.steps - self.granted

    def add(self, batch: Batch) -> None:
        self.done += batch.steps
        self.episodes += batch.episodes
        self.arrived += batch.arrived


def _as_list(seed: Seed) -> list[int]:
    return [seed] if isinstance(seed, (int, np.integer)) else list(seed)
