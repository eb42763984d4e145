"""What the parts share: processes that are forked and killed, digests of memories, and the calls of a writer.

A part returns its figures as a dictionary. Those named in its `ZEROS` are promised to be 0, and `violations` says
of the first few that are not what happened.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sgm
from sgm.memory.policies import Evidence

Memory = sgm.SparseGraphicalMemory
Say = Callable[[str], None]
WATCHDOG = 5.0  # seconds of CPU time after which a process hangs
PATIENCE = 6.0  # so many times as long by the clock, for a process that others keep from running is not hung
MOST_VIOLATIONS = 20  # told in words


# -- places and sizes --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def scratch(on_disk: bool = False) -> Iterator[Path]:
    """A folder that is removed at the end: in RAM where there is such a place, unless it has to be on the disk."""
    shared = Path("/dev/shm")
    in_ram = not on_disk and shared.is_dir() and os.access(shared, os.W_OK)
    folder = tempfile.mkdtemp(prefix="sgm-torture-", dir=shared if in_ram else None)
    try:
        yield Path(os.path.realpath(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def bytes_of(what: str, process: int | str = "self") -> int:
    """Bytes of a process as Linux counts them, 0 if it has ended: "VmRSS" now, "VmHWM" at most, "VmSize" addresses."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/status") as status:
        for line in status:
            if line.startswith(f"{what}:"):
                return 1024 * int(line.split()[1])
    return 0


# -- processes ---------------------------------------------------------------------------------------------------


class Child:
    """A forked process that says lines through a pipe.

    Fork only from a process without threads and without a live memory.
    """

    def __init__(self, work: Callable[[Say], object], watchdog: float = 0.0) -> None:
        """Start `work(say)`, under a `time_limit` of `watchdog` seconds, if any."""
        self._pipe, ours = os.pipe()
        self._heard = b""
        self.status: int | None = None
        self.pid = os.fork()
        if not self.pid:
            os.close(self._pipe)
            _work(work, ours, watchdog)
        os.close(ours)

    def hear(self, timeout: float | None = None) -> str | None:
        """The next line; None at the end of what the process says, or after so many silent seconds."""
        while b"\n" not in self._heard:
            if not select.select([self._pipe], [], [], timeout)[0]:
                return None
            more = os.read(self._pipe, 1 << 16)
            if not more:
                return None
            self._heard += more
        line, self._heard = self._heard.split(b"\n", 1)
        return line.decode()

    def kill(self) -> None:
        """End the process at once, as `kill -9` does."""
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> list[str]:
        """Wait for the end; the lines not heard yet. `status` is then the exit code, or minus the signal."""
        lines = []
        while (line := self.hear()) is not None:
            lines.append(line)
        os.close(self._pipe)
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return lines

    def is_alive(self) -> bool:
        """Whether the process has not ended yet, and may say more."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None

    @property
    def hung(self) -> bool:
        """Whether the watchdog ended the process."""
        return self.status in (-signal.SIGALRM, -signal.SIGPROF)


def _work(work: Callable[[Say], object], pipe: int, watchdog: float) -> None:
    """The life of a forked process."""
    code = 1
    try:
        _set_timers(watchdog)
        work(lambda line: _write_line(pipe, line))
        code = 0
    except BaseException as error:
        with contextlib.suppress(OSError):
            _write_line(pipe, f"raised {said(error)}")
    finally:
        os._exit(code)


def _write_line(pipe: int, line: str) -> None:
    os.write(pipe, line.encode() + b"\n")


def said(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:500]


@contextlib.contextmanager
def time_limit(seconds: float = WATCHDOG) -> Iterator[None]:
    """In a child: what takes more CPU time than this, or `PATIENCE` times as long by the clock, ends the process."""
    _set_timers(seconds)
    try:
        yield
    finally:
        _set_timers(0.0)


def _set_timers(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)


# -- digests -----------------------------------------------------------------------------------------------------


def digest(memory: Memory) -> str:
    """All that the calls of a memory decide, in 16 characters; not when they happened, nor which events are folded."""
    return _hash_of_state(memory).hexdigest()


def full_digest(memory: Memory) -> str:
    """Everything that a memory holds, times and folded events included, in 16 characters."""
    total, log = _hash_of_state(memory), memory._log
    total.update(repr((memory._meta(), log.folded, log.folded_records)).encode())
    for array in (log.rows, log.growth, _evidence(log.evidence)):
        _update(total, array)
    return total.hexdigest()


def _hash_of_state(memory: Memory) -> Any:
    nodes, graph = memory._nodes, memory._graph
    total = hashlib.blake2b(digest_size=8)
    facts = (memory.settings, memory.policy.asdict(), memory.records, len(memory._log), len(nodes), len(graph))
    total.update(repr(facts).encode())
    columns = (nodes.stream, nodes.assignment, graph.source, graph.target, graph.distance, graph.temporal)
    for array in (*(column.values for column in columns), nodes.embedding, nodes.feature, _evidence(graph.evidence)):
        _update(total, array)
    if nodes.observation is not None:
        _update(total, nodes.observation)
    for name in sorted(nodes.attributes):
        total.update(name.encode())
        _update(total, nodes.attributes[name].values)
    return total


def _update(total: Any, array: np.ndarray) -> None:
    total.update(f"{array.dtype.newbyteorder('<')} {array.shape}".encode())
    total.update(np.ascontiguousarray(array).tobytes())


def _evidence(known: dict[int, Evidence]) -> np.ndarray:
    """(m, 6) int64: edge, successes, failures, streak, removed at (−1: it stands), guarded."""
    rows = [
        (edge, e.successes, e.failures, e.streak, -1 if e.removed_at is None else e.removed_at, e.guarded)
        for edge, e in known.items()
    ]
    return np.array(sorted(rows), np.int64).reshape(-1, 6)


# -- the calls of a writer ---------------------------------------------------------------------------------------

POINTS = np.random.default_rng(0).uniform(0, 16, (300, 2)).astype(np.float32)
CHANGES = ("extend", "record", "group", "attributes")
KINDS = (*CHANGES, "save", "backup", "close")
_SHARES = (0.14, 0.46, 0.1, 0.06, 0.08, 0.08, 0.08)
SETTINGS: tuple[dict[str, Any], ...] = (
    {"policy": "second-failure"},
    {"policy": sgm.Belief(guard=True), "keep_observations": True, "feature_average": 0.05},
    {"policy": "first-failure", "criterion": "perceptual", "scope": "memory"},
)


class Plane:
    """Observations are numbers of points in a square; steps are lengths, and going up costs more than going down."""

    fingerprint = "torture-plane-1"

    def embed(self, observations: Any) -> np.ndarray:
        """(n,) numbers to (n, 2) float32 points."""
        return POINTS[np.asarray(observations, np.int64)]

    def __call__(self, starts: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """(n, 2) and (m, 2) points to (n, m) float32 steps."""
        ahead = goals - starts[:, None]
        return np.sqrt((ahead**2).sum(axis=-1)) + np.float32(0.2) * np.maximum(ahead[..., 1], 0)


class Script:
    """The calls of a writer: which they are, and with what, follows from their numbers and the memory alone."""

    def __init__(self, seed: int, shares: tuple[float, ...] = _SHARES) -> None:
        """Draw another script for each seed; `shares` are those of `KINDS`."""
        self.seed = seed
        self._limits = np.cumsum(shares) / np.sum(shares)
        self._settings = {"tau_p": 1.0, "tau_a": 2.0, "max_dist": 5.0, **SETTINGS[seed % len(SETTINGS)]}
        self._settings["keep_events"] = 200

    def new(self) -> Memory:
        """An empty memory without a file."""
        return Memory(Plane(), _doubled, **self._settings)

    def open(self, path: Path) -> Memory:
        """The live memory at a path, new if there is none."""
        return Memory.open(path, Plane(), _doubled, **self._settings)

    def load(self, path: Path) -> Memory:
        """What the file at a path holds."""
        return Memory.load(path, Plane(), _doubled)

    def kind(self, call: int) -> str:
        """What the call with this number is: one of `KINDS`."""
        if call == 0:
            return "extend"
        return KINDS[int(np.searchsorted(self._limits, self._random(call, 1).random(), side="right"))]

    def perform(self, memory: Memory, call: int) -> None:
        """Make the call, if it is one that changes a memory."""
        kind, random = self.kind(call), self._random(call, 2)
        if kind == "group":
            with memory.group():
                for change in (_extend, _record, _record, _attributes):
                    change(memory, random)
        elif kind in CHANGES:
            {"extend": _extend, "record": _record, "attributes": _attributes}[kind](memory, random)

    def _random(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *numbers])


def _doubled(observations: Any) -> np.ndarray:
    return 2 * POINTS[np.asarray(observations, np.int64)]


def _extend(memory: Memory, random: np.random.Generator) -> None:
    number = int(random.choice([1, 1, 4, 12]))
    rows = random.integers(0, len(POINTS), number)
    given = {"reward": random.random((number, 2))} if random.random() < 0.5 else None
    memory.extend(rows, episode=int(random.integers(5)) if random.random() < 0.7 else None, attributes=given)


def _record(memory: Memory, random: np.random.Generator) -> None:
    edges = memory.edges(filtered=False)
    draw = random.random()
    if draw < 0.05:
        memory.restore()
    elif draw < 0.1:
        memory.filter([None, 2, 3, 6][random.integers(4)])
    elif len(edges.source):
        chosen = random.integers(len(edges.source), size=150 if draw < 0.2 else 1)
        reached = random.random(len(chosen)) < 0.7
        memory.record_many(edges.source[chosen], edges.target[chosen], reached, episode=int(random.integers(9)))


def _attributes(memory: Memory, random: np.random.Generator) -> None:
    name = str(random.choice(["heading", "colour"]))
    if name in memory.attributes and random.random() < 0.3:
        del memory.attributes[name]
    elif name == "heading":
        memory.attributes[name] = random.random(len(memory)).astype(np.float32)
    else:
        memory.attributes[name] = random.integers(0, 256, (len(memory), 2, 3)).astype(np.uint8)
