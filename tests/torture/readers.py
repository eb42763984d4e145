"""Twenty processes load a file again and again while another one writes it.

Each load has to give what the file held between two calls of the writer, and nothing older than the load before gave.
Readers are killed from time to time, and the writer closes and opens its file again.
"""

from __future__ import annotations

import bisect
import dataclasses
import os
import time
import warnings
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import sgm
from sgm.progress import progress_bar
from tests.torture.figures import (
    KINDS,
    MOST_VIOLATIONS,
    WATCHDOG,
    Child,
    Memory,
    Say,
    Script,
    bytes_of,
    digest,
    said,
    scratch,
    time_limit,
)

ZEROS = ("reader_errors", "writer_errors", "wrong", "backwards", "hung", "left_behind")
_SHARES = dict(zip(KINDS, (0.04, 0.79, 0.05, 0.04, 0.02, 0.02, 0.04), strict=True))
_CALLS_BETWEEN_KILLS = 60  # of a reader, on average
_PAUSE = 0.005  # seconds after a call of the writer, so that its calls can be made again in less time than they took


def run(
    seconds: float = 600.0, readers: int = 20, calls: int | None = None, seed: int = 0, progress: bool = False
) -> dict[str, Any]:
    """Figures about so many seconds, or about so many calls of the writer if these are given."""
    with scratch() as folder:
        watch = Watch(folder, seed)
        total, unit = (calls, "call") if calls else (seconds, "s")
        with progress_bar(shown=progress, total=total, desc="readers", unit=unit) as bar:
            watch.watch(seconds, readers, calls, bar)
        watch.replay(progress)
    return watch.asdict()


@dataclasses.dataclass
class Reader:
    """A process that loads, and where it writes down what it sees."""

    child: Child
    log: Path


class Watch:
    """The writer, its readers, and what is counted about them."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Use a folder for the file and for what the readers write down."""
        self.folder, self.path, self.script = folder, folder / "live.sgm", Script(seed, tuple(_SHARES.values()))
        self.random = np.random.default_rng([seed, 9])
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.readers: list[Reader] = []
        self.logs: list[Path] = []
        self.acknowledged = 0
        self.peak = {"writer": 0, "reader": 0}

    def watch(self, seconds: float, readers: int, calls: int | None, bar: Any) -> None:
        """Let them work, kill a reader now and then, and stop all of them."""
        writer = Child(self._write)
        while writer.hear(1.0) is None and writer.is_alive():  # until there is a file
            pass
        self.readers = [self._new_reader() for _ in range(readers)]
        start, done, next_kill = time.monotonic(), 0.0, _CALLS_BETWEEN_KILLS // 2
        most = calls or seconds
        while done < most:
            self._take(writer.hear(1.0), writer)
            now = min(most, self.acknowledged if calls else time.monotonic() - start)
            bar.update(now - done)
            done = now
            if not writer.is_alive():
                break
            if self.acknowledged >= next_kill:
                next_kill += int(self.random.integers(1, 2 * _CALLS_BETWEEN_KILLS))
                self._kill_a_reader()
        self.counts["seconds"] = round(time.monotonic() - start)
        self._stop(writer)

    def replay(self, progress: bool) -> None:
        """Make the writer's calls again without a file, and compare what the readers saw with it."""
        memory, places = self.script.new(), {}
        for call in progress_bar_over(range(self.acknowledged + 1), progress):
            places.setdefault(digest(memory), []).append(call)
            self.script.perform(memory, call)
        places.setdefault(digest(memory), []).append(self.acknowledged + 1)
        for log in self.logs:
            self._compare(log, places)

    def asdict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        names = ("seconds", "calls", "loads", "states_seen", *ZEROS, "readers_killed", "closes", "closes_with_log_left")
        return {
            **{name: self.counts[name] for name in names},
            "peak_rss_bytes_of_writer": self.peak["writer"],
            "peak_rss_bytes_of_a_reader": self.peak["reader"],
            "violations": self.violations[:MOST_VIOLATIONS],
        }

    def violated(self, name: str, what: str) -> None:
        """Count something that must not be, and say what it was."""
        self.counts[name] += 1
        self.violations.append(f"{name}: {what}")

    # -- the writer ----------------------------------------------------------------------------------------------

    def _write(self, say: Say) -> None:
        """Make calls until told to stop."""
        with time_limit():
            memory = self._open(say)
        say("opened")
        parent = os.getppid()
        for call in count():
            if (self.folder / "stop").exists() or os.getppid() != parent:
                break
            with time_limit():
                memory = self._call(memory, call, say)
            say(str(call))
            time.sleep(_PAUSE)
        _close(memory)

    def _call(self, memory: Memory, call: int, say: Say) -> Memory:
        kind = self.script.kind(call)
        if kind == "close":
            say("closed" if _close(memory) else "closed with its log left")
            return self._open(say)
        if kind in ("save", "backup"):
            getattr(memory, kind)(self.folder / kind)
        self.script.perform(memory, call)
        return memory

    def _open(self, say: Say) -> Memory:
        """Open the file; an error is told, and it is tried again."""
        while True:
            try:
                return self.script.open(self.path)
            except sgm.SGMError as error:
                say(f"error open: {said(error)}")

    def _take(self, line: str | None, writer: Child) -> None:
        """Count what the writer says."""
        if line is None:
            return
        self.peak["writer"] = max(self.peak["writer"], bytes_of("VmHWM", writer.pid) if not line.isdigit() else 0)
        if line.isdigit():
            self.acknowledged = int(line) + 1
        elif line.startswith("closed"):
            self.counts["closes"] += 1
            self.counts["closes_with_log_left"] += line != "closed"
        elif line != "opened":
            self.violated("writer_errors", line)

    # -- the readers ---------------------------------------------------------------------------------------------

    def _new_reader(self) -> Reader:
        log = self.folder / f"reader-{len(self.logs)}"
        self.logs.append(log)
        return Reader(Child(lambda say: self._read(log, say)), log)

    def _read(self, path: Path, say: Say) -> None:
        """Load until told to stop, and write down what was seen."""
        os.nice(5)  # the writer is one of many, and it is what they see
        parent = os.getppid()
        log = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        while not (self.folder / "stop").exists() and os.getppid() == parent:
            try:
                with time_limit():
                    os.write(log, f"{digest(self.script.load(self.path))}\n".encode())
            except Exception as error:
                say(said(error))

    def _kill_a_reader(self) -> None:
        place = int(self.random.integers(len(self.readers)))
        reader = self.readers[place]
        self.peak["reader"] = max(self.peak["reader"], bytes_of("VmHWM", reader.child.pid))
        reader.child.kill()
        self.counts["readers_killed"] += 1
        self._end(reader)
        self.readers[place] = self._new_reader()

    def _stop(self, writer: Child) -> None:
        for reader in self.readers:
            self.peak["reader"] = max(self.peak["reader"], bytes_of("VmHWM", reader.child.pid))
        (self.folder / "stop").touch()
        for line in writer.end():
            self._take(line, writer)
        if writer.hung:
            self.violated("hung", "the writer")
        for reader in self.readers:
            self._end(reader)
        self.counts["calls"] = self.acknowledged
        cleaner = Child(lambda say: self.script.open(self.path).close(), WATCHDOG)
        cleaner.end()
        names = sorted(path.name for path in self.folder.glob("live.sgm*"))
        if cleaner.status or names != ["live.sgm"]:
            self.violated("left_behind", f"status {cleaner.status}, {names}")

    def _end(self, reader: Reader) -> None:
        for line in reader.child.end():
            self.violated("reader_errors", line)
        if reader.child.hung:
            self.violated("hung", "a reader")

    # -- what they saw -------------------------------------------------------------------------------------------

    def _compare(self, log: Path, places: dict[str, list[int]]) -> None:
        """Find each state that a reader saw in the writer's history, not before the one it saw last."""
        last = 0
        lines = log.read_text().split("\n")[:-1] if log.exists() else []
        for number, line in enumerate(lines):
            self.counts["loads"] += 1
            known = places.get(line, [])
            place = bisect.bisect_left(known, last)
            if not known:
                self.violated("wrong", f"load {number} of {log.name} gave what never was, after call {last}")
            elif place == len(known):
                self.violated("backwards", f"load {number} of {log.name}: call {known[-1]} after {last}")
            else:
                self.counts["states_seen"] += known[place] > last
                last = known[place]


def _close(memory: Memory) -> bool:
    """Close; whether nothing is left beside the file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        memory.close()
    return not caught


def progress_bar_over(numbers: range, shown: bool) -> Any:
    """The numbers, with a bar."""
    with progress_bar(shown=shown, total=len(numbers), desc="replay", unit="call") as bar:
        for number in numbers:
            yield number
            bar.update()
