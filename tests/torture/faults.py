"""Faults at every position of a memory's life: failing statements and files, kills, full disks and power cuts.

A life is a script of calls, `LIFE`, in chapters. Each call is made on a memory with a file and, if it returned, on a
mirror in RAM: the replay of what was acknowledged. After every single fault, RAM and file are compared with the mirror.
A life with a fault is lived from the beginning of the chapter in which the fault strikes.

    python -m tests.torture.faults                       # every kind at every position
    python -m tests.torture.faults statements --stride 9

`run(kind, stride)` is the same from a program. It returns figures, and a sentence for each violation:
"raw", an exception left the API that is not a StoreError; "lost", a file lacks an acknowledged call; "wrong", RAM, a
file or its surroundings are not as they should be; "hung", a life took over a minute.
"""

from __future__ import annotations

import argparse
import atexit
import collections
import contextlib
import copy
import dataclasses
import errno
import functools
import itertools
import json
import os
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import sgm
from sgm.memory import events as event_log
from sgm.memory.read import Contents, read
from tests.memory.faulty_disk import CHANGES, FULL, PYTHON, Disk, Operation, faulty_disk, kill
from tests.memory.oracle import edge_list
from tests.memory.test_store import ImageDistance, images

SGM = sgm.SparseGraphicalMemory
SCHEMA_1 = Path(__file__).parents[1] / "data" / "schema1.sgm"
MAIN, OLD, SAVED, BACKUP, KILLED = "m.sgm", "old.sgm", "saved.sgm", "backup.sgm", "killed.sgm"
SETTINGS = {"tau_p": 1.5, "tau_a": 3.0, "max_dist": 6.0, "feature_average": 0.05, "keep_observations": True}
KEEP, KEEP_LATER = 5, 4
PATIENCE = 2  # calls made on a broken disk before it is healed
WATCHDOG = 60  # seconds
CHECKPOINT = 25  # pages of the log that are moved into the file at once, so that some calls do it
PAGE = 4096
IN_RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a sync takes no time


class Violation(Exception):
    """Something that must not happen: a `kind` of the figures, and what it was."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


class Hung(BaseException):
    """A life took too long."""


class Oops(Exception):
    """What a user's own code raises inside a group."""


# -- the script --------------------------------------------------------------------------------------------------


class _Clock:
    now = 0.0


@dataclasses.dataclass(frozen=True)
class Act:
    """A call of a memory, at a time of its own. What it does follows from the memory alone."""

    time: float
    function: Callable[[SGM], object]

    def __call__(self, memory: SGM) -> None:
        _Clock.now = self.time
        self.function(memory)


class Step(NamedTuple):
    """A step of a life: something done `of` a memory file, for most steps while it is open.

    Attributes:
        what: the method of `Life` that does it.
        of: the name of the memory file.
        acts: calls that change the memory, in one transaction.
        option: the target of a copy, or what goes wrong in a group.
        number: its place in the life.
    """

    what: str
    of: str
    acts: tuple[Act, ...] = ()
    option: str = ""
    number: int = 0

    def __str__(self) -> str:
        return f"step {self.number} ({self.what} {self.of} {self.option})"


def _extend(number: int, seed: int, **more: Any) -> Callable[[SGM], object]:
    position = np.arange(2.0 * number).reshape(number, 2) + seed
    return lambda memory: memory.extend(
        images(number, seed), episode=np.arange(number) // 3, attributes={"position": position}, **more
    )


def _record(*outcomes: bool, first: int = 0, **more: Any) -> Callable[[SGM], object]:
    """Tries of as many edges, from the first on, or of as many as there are."""

    def record(memory: SGM) -> None:
        edges = memory.edges(filtered=False)
        u, v = (end[first : first + len(outcomes)].tolist() for end in edges[:2])
        if len(u) == 1:
            memory.record(u[0], v[0], outcomes[0], **more)
        else:
            memory.record_many(u, v, list(outcomes[: len(u)]), **more)

    return record


def _add(memory: SGM) -> None:
    memory.add(images(20, 3)[-1], episode=7, attributes={"position": np.zeros(2)})


def _set_attribute(memory: SGM) -> None:
    memory.attributes["mark"] = np.arange(len(memory), dtype=np.int16)


def _delete_attribute(memory: SGM) -> None:
    if "mark" in memory.attributes:
        del memory.attributes["mark"]


def _keep(memory: SGM) -> None:
    """What `open(keep_events=…)` does to a memory."""
    memory._log.keep = KEEP_LATER


def _script() -> list[list[Step]]:
    times = itertools.count(1)

    def call(of: str, *functions: Callable[[SGM], object]) -> list[Step]:
        return [Step("call", of, (Act(next(times), function),)) for function in functions]

    def group(of: str, *functions: Callable[[SGM], object], option: str = "") -> Step:
        return Step("group", of, tuple(Act(next(times), function) for function in functions), option)

    chapters = [
        [
            Step("open", MAIN),
            *call(MAIN, _extend(6, 0), _add, _record(True, episode=2), _record(True, False, False)),
            *call(MAIN, lambda memory: memory.restore(), lambda memory: memory.filter(2)),
            Step("close", MAIN),
        ],
        [
            Step("open", MAIN),
            *call(MAIN, _set_attribute),
            group(MAIN, _extend(2, 1), _record(False, first=1), lambda memory: memory.filter(3)),
            *call(MAIN, _delete_attribute),
            group(MAIN, _record(True), _extend(2, 2), option="raises"),
            group(MAIN, _record(False, True), _set_attribute, _record(True), option="goes on"),
            Step("close", MAIN),
            Step("load", MAIN),
        ],
        [
            Step("open", MAIN),
            Step("backup", MAIN, option=BACKUP),
            Step("save", MAIN, option=SAVED),
            *call(MAIN, _record(False, first=2)),
            Step("save", MAIN, option=SAVED),
            Step("save", MAIN, option=KILLED),
            Step("close", MAIN),
        ],
        [
            Step("open", MAIN, (Act(next(times), _keep),)),
            *call(MAIN, _record(True, True, True, True), _extend(2, 4), _record(False, first=3)),
            Step("backup", MAIN, option=BACKUP),
            Step("close", MAIN),
        ],
        [
            Step("open", OLD),
            *call(OLD, _record(False, True), _extend(2, 5)),
            group(OLD, _record(True), lambda memory: memory.restore()),
            Step("close", OLD),
            Step("load", OLD),
        ],
    ]
    return [[step._replace(number=number) for number, step in enumerate(chapter)] for chapter in chapters]


LIFE = _script()


# -- what memories hold ------------------------------------------------------------------------------------------


def state(memory: SGM) -> dict[str, Any]:
    """Everything a memory holds, to be compared with `alike`."""
    events = zip(*(column.tolist() for column in memory.events()), strict=True)
    kept = memory.observations if memory.settings.keep_observations else np.empty(0)
    return {
        "settings": memory.settings,
        "policy": memory.policy,
        "records": memory.records,
        "nodes": memory.nodes.tolist(),
        "assignment": memory.assignment.tolist(),
        "embeddings": memory.embeddings.tobytes(),
        "features": memory.features.tobytes(),
        "observations": (kept.tobytes(), kept.dtype) if len(memory) else None,
        "attributes": {name: (a.dtype, a.shape, a.tobytes()) for name, a in memory.attributes.items()},
        "edges": [edge_list(memory.edges(filtered)) for filtered in (True, False)],
        "removed": edge_list(memory.removed()),
        "tried": memory.tried(),
        "tail": memory._builder.tail,
        "fingerprint": memory.fingerprint,
        "keep": memory._log.keep,
        "folded": memory._log.folded,
        "events": list(events),
    }


def different(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """In what two states differ. When events are folded is not part of what was called."""
    first = max(a["folded"], b["folded"])
    names = [name for name in a if name not in ("folded", "events") and a[name] != b[name]]
    kept = [[event for event in one["events"] if event[0] > first] for one in (a, b)]
    return names + ["events"] * (kept[0] != kept[1])


def size(of: dict[str, Any]) -> int:
    return len(of["assignment"]) + len(of["events"]) + of["folded"]


def features(observations: Any) -> np.ndarray:
    """φ of the file of schema 1."""
    return ImageDistance().embed(observations) * 2


def loaded(path: Path) -> dict[str, Any]:
    return state(SGM.load(path, ImageDistance()))


def refuses(memory: SGM) -> bool:
    """Whether a memory has said that it has to be reopened."""
    return memory._store is not None and memory._store._refusal is not None


def schema_of(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[60:64], "big")


WRITES: tuple[Callable[[SGM], object], ...] = (
    lambda memory: memory.extend(images(2, 9)),
    lambda memory: memory.record_many([], [], []),
    lambda memory: memory.restore(),
    lambda memory: memory.filter(1),
    _set_attribute,
    lambda memory: memory.group().__enter__(),
)


def check_refusal(memory: SGM) -> None:
    """A memory that refuses refuses every write, says that it has to be reopened, and can still be read."""
    before = state(memory)
    for write in WRITES:
        try:
            write(memory)
        except sgm.StoreError as error:
            if "reopen" not in str(error):
                raise Violation(
                    "wrong", f"a write is refused without saying that it can be reopened: {error}"
                ) from None
        else:
            raise Violation("wrong", "a write after a refusal is not refused")
    if names := different(state(memory), before):
        raise Violation("wrong", f"a refused write changed {names}")


# -- a life ------------------------------------------------------------------------------------------------------


class Subject:
    """A memory with a file, open or not, and its mirror in RAM.

    Attributes:
        done: acknowledged calls, by transaction.
        pending: calls of one transaction that may be in the file, although they failed.
        durable: how many of `done` were in the file when it was opened or closed last.
    """

    def __init__(self, path: Path, fresh: Callable[[], SGM], phi: Any, options: dict[str, Any], exists: bool) -> None:
        self.path = path
        self.fresh = fresh
        self.phi = phi
        self.options = options
        self.exists = exists
        self.memory: SGM | None = None
        self.mirror = fresh()
        self.done: list[tuple[Act, ...]] = []
        self.pending: tuple[Act, ...] = ()
        self.durable = 0

    def open(self, synchronous: str, **options: Any) -> None:
        options = {**({} if self.exists else self.options), **options}
        self.memory = SGM.open(self.path, ImageDistance(), self.phi, synchronous=synchronous, **options)
        self.exists = True

    def acknowledge(self, acts: tuple[Act, ...]) -> None:
        """Calls of a transaction were acknowledged, or found in the file."""
        for act in acts:
            act(self.mirror)
        if acts:
            self.done.append(acts)

    def replay(self, number: int) -> None:
        """Make the mirror hold the first transactions and no others."""
        del self.done[number:]
        self.mirror = self.fresh()
        for act in itertools.chain(*self.done):
            act(self.mirror)

    def agree(self, found: dict[str, Any], what: str) -> None:
        """Violation unless what was found is what was acknowledged."""
        expected = state(self.mirror)
        if names := different(found, expected):
            kind = "lost" if what != "RAM" and size(found) < size(expected) else "wrong"
            raise Violation(kind, f"{what} of {self.path.name} differs from what was acknowledged in {names}")

    def agree_on_the_past(self, memory: SGM) -> None:
        """Violation unless the memory was, after some of the events that are kept, what the mirror was."""
        first = max(memory._log.folded, self.mirror._log.folded)
        for event in {first, (first + len(memory._log)) // 2, len(memory._log)}:
            if names := different(state(memory.at(event)), state(self.mirror.at(event))):
                raise Violation("wrong", f"after event {event}, {self.path.name} was another in {names}")

    def settle(self, found: dict[str, Any], what: str) -> None:
        """Find out whether the pending calls took place."""
        pending, self.pending = self.pending, ()
        if different(found, state(self.mirror)):
            self.acknowledge(pending)
        self.agree(found, what)

    def settle_prefix(self, found: dict[str, Any]) -> None:
        """Find out how many calls survived; those from before the file was opened or closed last must have."""
        self.acknowledge(self.pending)
        self.pending = ()
        for number in range(len(self.done), self.durable - 1, -1):
            self.replay(number)
            if not different(found, state(self.mirror)):
                return
        raise Violation("lost", f"{self.path.name} is not what it was at any moment since it was opened")


class Life:
    """A chapter of a life: the memories in it, the files that they are copied to, and what the faults do to them.

    Attributes:
        folder: a copy of `beginning(chapter)`.
        faults: whether a fault has struck, and how it is healed.
        patience: how many calls are made on a broken disk before it is healed.
        interrupts: whether the faults are interrupts and not errors.
        subjects: the memories, by the names of their files.
        copies: what each of the other files may hold; None stands for no file.
    """

    def __init__(
        self,
        chapter: int,
        folder: Path,
        faults: Disk | Statements | Limit | None = None,
        *,
        synchronous: str = "normal",
        patience: int = 0,
        interrupts: bool = False,
    ) -> None:
        self.steps = LIFE[chapter]
        self.folder = folder
        self.faults = faults
        self.synchronous = synchronous
        self.patience = patience
        self.interrupts = interrupts
        self.healed = False
        self.figures: collections.Counter[str] = collections.Counter()
        self.subjects = {name: _subject(chapter, folder / name) for name in {step.of for step in self.steps}}
        copies = {step.option for step in self.steps if step.what in ("save", "backup")}
        self.copies = {name: [_copy_before(chapter, name)] for name in sorted(copies)}

    @property
    def broken(self) -> bool:
        return self.faults is not None and bool(self.faults.struck) and not self.healed

    def run(self) -> None:
        """The whole life. The fault strikes on the way; some calls later the disk is healed."""
        for step in self.steps:
            try:
                self.perform(step)
                if self.broken:
                    self.patience -= 1
                    if self.patience < 0:
                        self.heal()
            except Violation as violation:
                raise Violation(violation.kind, f"{step}: {violation}") from None
        if not self.healed:
            self.heal()
        self.end()

    def perform(self, step: Step) -> None:
        subject = self.subjects[step.of]
        if step.what in ("open", "load") or self.revive(subject):
            self.attempt(subject, step.acts, lambda: getattr(self, step.what)(subject, step))

    def attempt(self, subject: Subject, acts: tuple[Act, ...], function: Callable[[], None]) -> bool:
        """Do something that a fault may let fail, and see that only the right exceptions come."""
        memory, done = subject.memory, len(subject.done)
        try:
            function()
            return True
        except sgm.StoreError as error:
            self.failed(str(error))
            interrupted = False
        except KeyboardInterrupt:
            if not self.interrupts:
                raise
            interrupted = True
        except Violation:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise Violation("raw", f"{type(error).__name__}: {error} ({where.name}:{where.lineno})") from None
        self.figures["failed"] += 1
        if not subject.pending and len(subject.done) == done:
            subject.pending = acts
        if memory is not None and memory is subject.memory:
            self.after_failure(subject, memory, interrupted)
        return False

    def failed(self, error: str) -> None:
        if not self.broken:
            raise Violation("wrong", f"a call failed although nothing is broken (any more): {error}")

    def after_failure(self, subject: Subject, memory: SGM, interrupted: bool) -> None:
        """Either RAM is what was acknowledged, or every write is refused."""
        if refuses(memory):
            self.figures["refused"] += 1
            check_refusal(memory)
        elif interrupted:
            subject.settle(state(memory), "RAM")
        else:
            subject.pending = ()
            subject.agree(state(memory), "RAM")

    # -- steps ---------------------------------------------------------------------------------------------------

    def open(self, subject: Subject, step: Step) -> None:
        subject.open(self.synchronous, **({"keep_events": KEEP_LATER} if step.acts else {}))
        subject.pending = step.acts
        self.opened(subject)

    def opened(self, subject: Subject) -> None:
        assert subject.memory is not None
        subject.settle(state(subject.memory), "RAM")

    def close(self, subject: Subject, step: Step | None = None) -> None:
        memory, subject.memory = subject.memory, None
        if memory is not None:
            memory.close()

    def load(self, subject: Subject, step: Step) -> None:
        if subject.memory is None and subject.exists:
            subject.settle(loaded(subject.path), "the file")

    def call(self, subject: Subject, step: Step) -> None:
        assert subject.memory is not None
        step.acts[0](subject.memory)
        subject.acknowledge(step.acts)

    def group(self, subject: Subject, step: Step) -> None:
        """A group counts as acknowledged when it has ended and its memory does not refuse."""
        assert subject.memory is not None
        before = len(subject.done)
        try:
            with contextlib.suppress(Oops), subject.memory.group():
                for act in step.acts:
                    self.grouped(subject, act, goes_on=step.option == "goes on")
                if step.option == "raises":
                    raise Oops
        finally:
            acts = tuple(itertools.chain(*subject.done[before:]))
            if refuses(subject.memory):
                subject.replay(before)
                subject.pending = acts
            else:
                subject.done[before:] = [acts] if acts else []

    def grouped(self, subject: Subject, act: Act, goes_on: bool) -> None:
        assert subject.memory is not None
        try:
            act(subject.memory)
            subject.acknowledge((act,))
        except (sgm.StoreError, KeyboardInterrupt) as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            if not interrupted:
                self.failed(str(error))
            if not refuses(subject.memory):
                subject.pending = (act,) if interrupted else ()
                subject.settle(state(subject.memory), "RAM")
            if not goes_on:
                raise

    def save(self, subject: Subject, step: Step) -> None:
        assert subject.memory is not None
        now = state(subject.mirror)
        self.copies[step.option].append(now)
        getattr(subject.memory, step.what)(self.folder / step.option)
        self.copies[step.option] = [now]

    backup = save

    # -- after a fault -------------------------------------------------------------------------------------------

    def revive(self, subject: Subject) -> bool:
        """Open a memory that is not open or refuses; whether that was possible."""
        if subject.memory is not None and not refuses(subject.memory):
            return True
        if subject.memory is not None:
            self.attempt(subject, (), lambda: self.close(subject))
        return self.attempt(subject, (), lambda: self.reopen(subject))

    def reopen(self, subject: Subject) -> None:
        subject.open(self.synchronous)
        self.opened(subject)

    def heal(self) -> None:
        """The disk works again: everything is what was acknowledged."""
        if self.faults is not None:
            self.faults.heal()
        self.healed = True
        for subject in self.subjects.values():
            if subject.memory is not None and refuses(subject.memory):
                self.close(subject)
            if subject.exists or subject.path.exists():
                found = self.found(subject.path)
                if subject.memory is None:
                    subject.settle(found, "the file")
                else:
                    subject.agree(found, "the file")
        self.check_copies({name for name, allowed in self.copies.items() if len(allowed) > 1})

    def found(self, path: Path) -> dict[str, Any]:
        try:
            return loaded(path)
        except sgm.StoreError as error:
            raise Violation("lost", f"{path.name} cannot be loaded: {error}") from None

    def check_copies(self, names: Iterable[str]) -> None:
        """Each is one of what it may be. Which one is known from now on."""
        for name in names:
            path, allowed = self.folder / name, self.copies[name]
            found = self.found(path) if path.exists() else None
            same = [one for one in allowed if (one is found) or (one and found and not different(one, found))]
            if not same:
                raise Violation("lost", f"{name} is neither as it was nor complete")
            self.copies[name] = [found]

    def check_schema_1(self, old: Subject) -> None:
        """A file of schema 1 that was upgraded has a copy beside it."""
        beside = sorted(path for path in self.folder.glob(f"{OLD}.schema1*") if not path.name.endswith(SIDECARS))
        for path in beside:
            if different(self.found(path), state(old.fresh())) or schema_of(path) != 1:
                raise Violation("lost", f"{path.name} is not the file of schema 1 as it was")
        if not beside and schema_of(old.path) != 1:
            raise Violation("lost", "there is no copy of the file of schema 1")

    def end(self) -> None:
        """On a healthy disk: files are closed, reopened, written and replaced, and nothing is left beside them."""
        self.check_copies(self.copies)
        if OLD in self.subjects:
            self.check_schema_1(self.subjects[OLD])
        for name, subject in self.subjects.items():
            self.close_alone(subject)
            if subject.exists:
                subject.agree(self.found(subject.path), "the closed file")
            self.reopen(subject)
            for act in (Act(1000, _extend(2, 8)), Act(1001, _record(True, False))):
                act(subject.memory)
                subject.acknowledge((act,))
            self.close_alone(subject)
            subject.agree(self.found(subject.path), "the closed file")
            subject.agree_on_the_past(SGM.load(subject.path, ImageDistance()))
            self.check_alone(name)
        for name in filter(self.left_beside, self.copies):
            self.subjects[MAIN].mirror.save(self.folder / name)
            self.subjects[MAIN].agree(self.found(self.folder / name), f"the copy {name}")
            self.check_alone(name)

    def close_alone(self, subject: Subject) -> None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self.close(subject)
        if told:
            raise Violation("wrong", f"closing on a healthy disk warns: {told[0].message}")

    def check_alone(self, name: str) -> None:
        if left := self.left_beside(name):
            raise Violation("wrong", f"{left} is left beside {name}")

    def left_beside(self, name: str) -> list[str]:
        return [path.name for path in self.folder.glob(f"{name}-*") if not path.name.endswith("-old")]

    # -- a life that ended early -----------------------------------------------------------------------------------

    def assume(self, step: Step) -> None:
        """A step of a life that has ended was acknowledged."""
        subject = self.subjects[step.of]
        if step.what in ("save", "backup"):
            self.copies[step.option] = [state(subject.mirror)]
        if step.what in ("open", "close"):
            subject.durable = len(subject.done)
        subject.acknowledge(step.acts)
        subject.exists |= step.what == "open"

    def may_have(self, step: Step) -> None:
        """A step was under way when a life ended."""
        subject = self.subjects[step.of]
        subject.pending = step.acts
        if step.what in ("save", "backup"):
            self.copies[step.option].append(state(subject.mirror))


SIDECARS = ("-wal", "-journal", "-shm", "-new", "-lock")


def verify(chapter: int, folder: Path, acknowledged: int, prefix: bool = False) -> None:
    """Violation unless a life that ended early left what it acknowledged, or a `prefix` of that."""
    life = Life(chapter, folder)
    for step in life.steps[:acknowledged]:
        life.assume(step)
    for step in life.steps[acknowledged : acknowledged + 1]:
        life.may_have(step)
    if prefix:
        for subject in life.subjects.values():
            if subject.exists:
                subject.settle_prefix(life.found(subject.path))
    life.heal()
    life.end()


# -- where lives are lived ---------------------------------------------------------------------------------------


@functools.cache
def _root() -> Path:
    """A folder that is removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="sgm-faults-", dir=IN_RAM)
    owner = os.getpid()
    atexit.register(lambda: folder.cleanup() if os.getpid() == owner else None)
    return Path(os.path.realpath(folder.name))


@functools.cache
def beginning(chapter: int) -> Path:
    """The folder as a healthy life finds it at the beginning of a chapter, or after the last one."""
    folder = _root() / f"chapter-{chapter}"
    if chapter:
        shutil.copytree(beginning(chapter - 1), folder)
        life = Life(chapter - 1, folder)
        for step in life.steps:
            life.perform(step)
    else:
        folder.mkdir()
        shutil.copy(SCHEMA_1, folder / OLD)
        _leave_killed(folder / KILLED)
    return folder


def _leave_killed(path: Path) -> None:
    """A file that a killed writer left with its log."""

    def write(_: int) -> None:
        memory = SGM.open(path, ImageDistance(), keep_events=KEEP, **SETTINGS)
        for seed in range(3):
            Act(seed, _extend(4, 10 + seed))(memory)
        kill()

    in_child(write)
    for suffix in ("-shm", "-lock"):
        path.with_name(path.name + suffix).unlink()
    assert path.with_name(f"{path.name}-wal").exists()


@functools.cache
def _contents(chapter: int, name: str) -> Contents | None:
    """What a file holds at the beginning of a chapter."""
    with fresh_folder(chapter) as folder:
        return read(folder / name)[0] if (folder / name).exists() else None


def _before(chapter: int, name: str) -> SGM | None:
    """A file's memory at the beginning of a chapter, without looking at the file again."""
    contents = copy.deepcopy(_contents(chapter, name))
    return contents and SGM._from_contents(Path(name), contents, ImageDistance(), _phi(name), None)


def _phi(name: str) -> Any:
    return features if name == OLD else None


def _subject(chapter: int, path: Path) -> Subject:
    if _contents(chapter, path.name) is not None:
        return Subject(path, functools.partial(_before, chapter, path.name), _phi(path.name), {}, exists=True)
    options = {**SETTINGS, "keep_events": KEEP}
    return Subject(path, functools.partial(SGM, ImageDistance(), **options), None, options, exists=False)


@functools.cache
def _copy_before(chapter: int, name: str) -> dict[str, Any] | None:
    memory = _before(chapter, name)
    return memory and state(memory)


@contextlib.contextmanager
def fresh_folder(chapter: int) -> Iterator[Path]:
    """A copy of the beginning of a chapter."""
    template = beginning(chapter)
    with tempfile.TemporaryDirectory(dir=_root()) as parent:
        folder = Path(parent) / "life"
        shutil.copytree(template, folder)
        yield folder


def in_child(function: Callable[[int], None]) -> tuple[bytes, int]:
    """What a function wrote to its descriptor in a forked process, and the status of that process."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which the child does not need
        child = os.fork()
    if not child:
        try:
            os.close(read_end)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(WATCHDOG)
            function(write_end)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == -signal.SIGALRM:
        raise Hung
    return said, status


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Raise Hung in a block that takes over a minute."""

    def ring(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(WATCHDOG)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Statements:
    """Counts the statements of all connections, and lets one fail, or all from it on until `heal`."""

    def __init__(self) -> None:
        self.operations: list[str] = []
        self.struck: list[str] = []
        self.fault: tuple[int, str, BaseException, bool] | None = None

    def fail(self, at: int, how: str, error: BaseException, forever: bool = False) -> None:
        self.fault = (at, how, error, forever)

    def heal(self) -> None:
        self.fault = None

    def run(self, statement: str, perform: Callable[[], Any]) -> Any:
        number = len(self.operations)
        self.operations.append(statement)
        if self.fault is None or number < self.fault[0]:
            return perform()
        _, how, error, forever = self.fault
        if not forever:
            self.fault = None
        self.struck.append(statement)
        if how == "after":
            perform()
        raise type(error)(*error.args)


@contextlib.contextmanager
def counted() -> Iterator[Statements]:
    """All connections opened inside the block go by the statements it gives, and have short logs."""
    statements = Statements()

    class Connection(sqlite3.Connection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            super().execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")

        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            return statements.run(statement, lambda: super(Connection, self).execute(statement, *values))

        def executemany(self, statement: str, values: Iterable[Any]) -> sqlite3.Cursor:
            return statements.run(statement, lambda: super(Connection, self).executemany(statement, values))

        def executescript(self, script: str) -> sqlite3.Cursor:
            return statements.run(script, lambda: super(Connection, self).executescript(script))

        def backup(self, target: sqlite3.Connection, **options: Any) -> None:
            statements.run("backup", lambda: super(Connection, self).backup(target, **options))

    plain = sqlite3.connect

    def connect(*arguments: Any, factory: type[sqlite3.Connection] = sqlite3.Connection, **options: Any) -> Any:
        return plain(*arguments, factory=type("Counted", (Connection, factory), {}), **options)

    with mock.patch.object(sqlite3, "connect", connect):
        yield statements


class Limit:
    """No file of this process can grow beyond a size, until `heal`."""

    def __init__(self, limit: int) -> None:
        self.struck = [limit]
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def heal(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextlib.contextmanager
def disk_of(folder: Path, kinds: frozenset[str]) -> Iterator[Disk]:
    with faulty_disk(kinds, only=lambda path: path.startswith(f"{folder}{os.sep}")) as disk:
        disk.sleeps = False
        yield disk


# -- the kinds of faults -----------------------------------------------------------------------------------------

Fault = dict[str, Any]
Counts = collections.Counter[str]
ERRORS = ("database or disk is full", "disk I/O error", "database is locked")


def statements(fault: Fault) -> Counts:
    """A statement fails, or Ctrl-C arrives, before or after it took effect."""
    error, forever = fault["error"], fault["forever"]
    with fresh_folder(fault["chapter"]) as folder, counted() as counter:
        life = Life(fault["chapter"], folder, counter, patience=PATIENCE * forever, interrupts=error is None)
        counter.operations.clear()
        what = KeyboardInterrupt() if error is None else sqlite3.OperationalError(error)
        counter.fail(fault["at"], fault["how"], what, forever)
        return lived(life, counter)


def files(fault: Fault) -> Counts:
    """A file operation of SQLite's fails."""
    with fresh_folder(fault["chapter"]) as folder, counted(), disk_of(folder, CHANGES) as disk:
        disk.fail(fault["at"], fault["how"], code=fault["code"], forever=fault["forever"])
        return lived(Life(fault["chapter"], folder, disk, patience=PATIENCE * fault["forever"]), disk)


def python(fault: Fault) -> Counts:
    """A file operation of Python code fails."""
    with fresh_folder(fault["chapter"]) as folder, counted(), disk_of(folder, PYTHON) as disk:
        disk.fail(fault["at"], fault["how"], error=fault["error"], forever=fault["forever"])
        return lived(Life(fault["chapter"], folder, disk, patience=PATIENCE * fault["forever"]), disk)


def lived(life: Life, faults: Disk | Statements | Limit) -> Counts:
    """The figures of a life."""
    try:
        life.run()
    except Violation as violation:
        raise Violation(violation.kind, f"{violation} [struck {faults.struck[:1]}]") from None
    finally:
        faults.heal()
        for subject in life.subjects.values():
            if subject.memory is not None:
                with contextlib.suppress(Exception):
                    subject.memory.close()
    life.figures["struck"] += bool(faults.struck)
    return life.figures


def kills(fault: Fault) -> Counts:
    """The process is killed at a file operation."""
    with fresh_folder(fault["chapter"]) as folder, counted():

        def live(pipe: int) -> None:
            with disk_of(folder, CHANGES | PYTHON) as disk:
                disk.call(fault["at"], kill, fault["how"])
                life = Life(fault["chapter"], folder)
                for step in life.steps:
                    life.perform(step)
                    os.write(pipe, b".")

        said, status = in_child(live)
        if status not in (0, -signal.SIGKILL):
            raise Violation("raw", f"the life of the child ended with status {status}")
        verify(fault["chapter"], folder, len(said))
        return collections.Counter(struck=status != 0)


def limits(fault: Fault) -> Counts:
    """No file can grow beyond a size."""
    with fresh_folder(fault["chapter"]) as folder, counted():

        def live(pipe: int) -> None:
            try:
                limit = Limit(fault["limit"])
                found: dict[str, Any] = dict(lived(Life(fault["chapter"], folder, limit, patience=1000), limit))
            except Violation as violation:
                found = {"violation": [violation.kind, str(violation)]}
            os.write(pipe, json.dumps(found).encode())

        said, status = in_child(live)
        if status:
            raise Violation("raw", f"the life of the child ended with status {status}")
        found = json.loads(said)
        if "violation" in found:
            raise Violation(*found["violation"])
        return collections.Counter({**found, "struck": found.get("failed", 0) > 0})


def power_cuts(fault: Fault) -> Counts:
    """The power is cut at a file operation, or at the end of the chapter."""
    with fresh_folder(fault["chapter"]) as folder, counted():
        with disk_of(folder, CHANGES | PYTHON) as disk:
            cut = functools.partial(disk.power_cut, fault["seed"], fault["names"])
            disk.call(fault["at"], cut, fault["how"])
            life = Life(fault["chapter"], folder, disk, synchronous=fault["synchronous"])
            acknowledged = 0
            for step in life.steps:
                life.perform(step)
                if disk.off:
                    break
                acknowledged += 1
            else:
                cut()
            for subject in life.subjects.values():
                life.close(subject)
        verify(fault["chapter"], folder, acknowledged, prefix=fault["synchronous"] == "normal")
        return collections.Counter(struck=True, failed=life.figures["failed"])


# -- every position ----------------------------------------------------------------------------------------------


def _operations(kinds: frozenset[str], synchronous: str = "normal") -> Iterator[tuple[Fault, Operation | None]]:
    """The file operations of a healthy life; None at the end of each chapter."""
    for chapter in range(len(LIFE)):
        with fresh_folder(chapter) as folder, counted(), disk_of(folder, kinds) as disk:
            life = Life(chapter, folder, synchronous=synchronous)
            for step in life.steps:
                life.perform(step)
        for at, operation in enumerate([*disk.operations, None]):
            yield {"chapter": chapter, "at": at}, operation


def _hows(operation: Operation | None) -> tuple[str, ...]:
    if operation is None:
        return ()
    return ("before", "after", "torn") if "write" in operation.name else ("before", "after")


def _statement_faults() -> Iterator[Fault]:
    for chapter in range(len(LIFE)):
        with fresh_folder(chapter) as folder, counted() as counter:
            life = Life(chapter, folder)
            counter.operations.clear()
            for step in life.steps:
                life.perform(step)
        for at, statement in enumerate(counter.operations):
            where = {"chapter": chapter, "at": at, "statement": statement[:40]}
            for how, forever, error in itertools.product(("before", "after"), (False, True), ERRORS):
                yield {**where, "how": how, "error": error, "forever": forever}
            for how in ("before", "after"):
                yield {**where, "how": how, "error": None, "forever": False}


def _file_faults() -> Iterator[Fault]:
    for where, operation in _operations(CHANGES):
        for how, forever, code in itertools.product(_hows(operation), (False, True), (FULL, None)):
            yield {**where, "how": how, "forever": forever, "code": code}


def _python_faults() -> Iterator[Fault]:
    for where, operation in _operations(PYTHON):
        for how, forever, error in itertools.product(_hows(operation), (False, True), (errno.ENOSPC, errno.EIO)):
            yield {**where, "how": how, "forever": forever, "error": error}


def _kill_faults() -> Iterator[Fault]:
    for where, operation in _operations(CHANGES | PYTHON):
        for how in _hows(operation):
            yield {**where, "how": how}


def _limit_faults() -> Iterator[Fault]:
    """From no bytes at all to what the chapter needs."""
    for chapter in range(len(LIFE)):
        with fresh_folder(chapter) as folder, counted():
            life, most = Life(chapter, folder), 0
            for step in life.steps:
                life.perform(step)
                most = max(most, *(path.stat().st_size for path in folder.iterdir()))
        yield from ({"chapter": chapter, "limit": limit} for limit in range(0, most + 2 * PAGE, PAGE))


def _power_faults(synchronous: str) -> Iterator[Fault]:
    """At syncs, where most is at stake, where files appear and disappear, and when all is done."""
    combinations = list(itertools.product(("before", "after"), (None, 1, 2), ("kept", "lost")))
    for where, operation in _operations(CHANGES | PYTHON, synchronous):
        if operation is None or any(word in operation.name for word in ("sync", "delete", "unlink", "replace")):
            for how, seed, names in combinations:
                yield {**where, "how": how, "seed": seed, "names": names, "synchronous": synchronous}


KINDS: dict[str, tuple[Callable[[], Iterator[Fault]], Callable[[Fault], Counts]]] = {
    "statements": (_statement_faults, statements),
    "files": (_file_faults, files),
    "python": (_python_faults, python),
    "kills": (_kill_faults, kills),
    "limits": (_limit_faults, limits),
    "power cuts, full": (functools.partial(_power_faults, "full"), power_cuts),
    "power cuts, normal": (functools.partial(_power_faults, "normal"), power_cuts),
}


def run(kind: str, stride: int = 1, first: int = 0, log: Callable[[str], object] = lambda line: None) -> dict[str, Any]:
    """The figures of every `stride`-th fault of a kind, from the `first` on, one life each."""
    faults_of, live = KINDS[kind]
    figures = collections.Counter(dict.fromkeys(("tried", "struck", "failed", "refused", *COUNTS), 0))
    violations: list[str] = []
    with _deterministic():
        for fault in itertools.islice(faults_of(), first, None, stride):
            figures["tried"] += 1
            try:
                with watched():
                    figures.update(live(fault))
            except (Violation, Hung) as violation:
                what = violation.kind if isinstance(violation, Violation) else "hung"
                figures[what] += 1
                violations.append(f"{what}: {kind} {fault}: {violation}")
                log(violations[-1])
    return {"kind": kind, **figures, "violations": violations}


COUNTS = ("lost", "raw", "wrong", "hung")


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    """Events have the times of the script, and are folded three at a time."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(still belongs to it|the call is in the file)", UserWarning)
        clock = types.SimpleNamespace(time=lambda: _Clock.now)
        with mock.patch.object(event_log, "_CHUNK", 3), mock.patch.object(event_log, "time", clock):
            yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", help=f"any of: {', '.join(KINDS)}; all by default")
    parser.add_argument("--stride", type=int, default=1, help="try every so many-th fault")
    parser.add_argument("--first", type=int, default=0, help="the first fault to try")
    options = parser.parse_args()
    bad = 0
    for kind in options.kinds or KINDS:
        began = time.perf_counter()
        figures = run(kind, options.stride, options.first, log=lambda line: print(line, flush=True))
        bad += len(figures.pop("violations"))
        print(json.dumps({**figures, "seconds": round(time.perf_counter() - began, 1)}), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
