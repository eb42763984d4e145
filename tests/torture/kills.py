"""Kill a writer at a thousand moments, while others read its file, and look what it left behind.

Half of the kills come from outside, as soon as a drawn number of calls has been acknowledged. The other half strike
inside a call, at a drawn file operation. No moment is drawn in seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sgm
from sgm.memory.lock import WriterLock
from sgm.progress import progress_bar
from tests.memory import faulty_disk
from tests.torture.figures import (
    KINDS,
    MOST_VIOLATIONS,
    WATCHDOG,
    Child,
    Memory,
    Say,
    Script,
    digest,
    said,
    scratch,
    time_limit,
)

ZEROS = ("lost", "wrong", "refused", "locked", "raw", "hung", "writer_errors", "reader_errors", "left_behind")
UNDER_WAY = ("open", *KINDS)
ROUND = 25  # kills of one file
_MOST_CALLS = 60  # of one writer; then it kills itself
_COUNTED = faulty_disk.CHANGES | faulty_disk.PYTHON
_TARGETS = ("save", "backup")


def run(kills: int = 1000, seed: int = 0, readers: int = 2, progress: bool = False) -> dict[str, Any]:
    """Figures about so many kills; see `ZEROS` for what they have to be."""
    figures = Figures()
    with scratch() as folder, progress_bar(shown=progress, total=kills, desc="kills", unit="kill") as bar:
        for number, first in enumerate(range(0, kills, ROUND)):
            file = Round(folder / f"{number}", seed + number, figures, readers)
            for kill in range(first, min(first + ROUND, kills)):
                file.kill_writer(kill)
                bar.update()
            file.end()
    return figures.asdict()


@dataclasses.dataclass
class Figures:
    """What was counted."""

    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    under_way: Counter[str] = dataclasses.field(default_factory=Counter)
    operations: dict[str, int] = dataclasses.field(default_factory=dict)  # most file operations of a call, by kind
    violations: list[str] = dataclasses.field(default_factory=list)

    def violated(self, name: str, what: str) -> None:
        """Count something that must not be, and say what it was."""
        self.counts[name] += 1
        self.violations.append(f"{name}: {what}")

    def learn(self, state: str, operations: int) -> None:
        """Remember how many file operations a part has, so that kills are drawn from all of them."""
        part = {"opened": "open", "closed": "close", "close": "open"}.get(state, state)
        self.operations[part] = max(self.operations.get(part, 1), operations)

    def asdict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        counts = {name: self.counts[name] for name in ("kills", "from_outside", "inside", *ZEROS)}
        counts |= {name: self.counts[name] for name in ("calls", "calls_under_way_kept", "loads", "reader_loads")}
        return {
            **counts,
            "under_way": {kind: self.under_way[kind] for kind in UNDER_WAY},
            "violations": self.violations[:MOST_VIOLATIONS],
        }


@dataclasses.dataclass
class Plan:
    """When one writer is to die.

    Attributes:
        outside: whether it is killed from outside, or kills itself.
        call: the number of the call to strike; the one before the first for `open`.
        part: "open", or the kind of the call.
        turns: from outside: turns of an empty loop between the acknowledgement and the kill.
        operation: inside: the file operation of the call.
        how: inside: "before" or "after" it takes effect, or "torn", with half of the bytes written; "unsaid": after
            all of the call, but before it is acknowledged.
    """

    outside: bool
    call: int
    part: str
    turns: int
    operation: int
    how: Any


class Round:
    """One file, whose writers are killed one after the other."""

    def __init__(self, folder: Path, seed: int, figures: Figures, readers: int) -> None:
        """Begin without a file, with readers waiting for it."""
        folder.mkdir()
        self.folder, self.path, self.figures = folder, folder / "live.sgm", figures
        self.script, self.mirror = Script(seed), Script(seed).new()
        self.random = np.random.default_rng([seed, 7])
        self.done = 0  # calls known to be in the file
        self.history = [digest(self.mirror)]
        self.targets: dict[str, str | None] = dict.fromkeys(_TARGETS)
        self.readers = [Child(lambda say, n=n: self._read(n, say)) for n in range(readers)]

    def kill_writer(self, number: int) -> None:
        """Start a writer, kill it, and check what it left."""
        plan = self._plan(number)
        writer = Child(lambda say: self._write(plan, say))
        lines = self._strike(writer, plan) if plan.outside else []
        lines += writer.end()
        self.figures.counts["kills"] += writer.status == -signal.SIGKILL
        self.figures.counts["from_outside" if plan.outside else "inside"] += 1
        if writer.hung:
            self.figures.violated("hung", f"writer, {plan}, seed {self.script.seed}")
        state, before = "ready", 0
        for line in lines:
            if line.startswith("raised"):
                self.figures.violated("writer_errors", f"{line}, {plan}, seed {self.script.seed}")
                continue
            state, operations = self._acknowledge(line)
            self.figures.learn(state, operations - before)
            before = operations
        self._check(number, state)

    def end(self) -> None:
        """Stop the readers, check what they saw, and leave plain files behind."""
        (self.folder / "stop").touch()
        for reader in self.readers:
            for line in reader.end():
                self.figures.violated("reader_errors", line)
            if reader.hung:
                self.figures.violated("hung", "reader")
        self._check_what_was_read()
        (self.folder / "stop").unlink()
        self._check_leftovers()

    # -- the writer ----------------------------------------------------------------------------------------------

    def _plan(self, number: int) -> Plan:
        """Strike each part of a writer's life as often as any other."""
        outside, part = number % 2 == 0, UNDER_WAY[number // 2 % len(UNDER_WAY)]
        call = self.done - 1
        if part != "open" or self.random.random() < 0.5:
            call += 1 + int(self.random.integers(6))
            while self.script.kind(call) != ("close" if part == "open" else part):
                call += 1
        most = max(1, self.figures.operations.get(part, 20))
        how = ("before", "after", "torn", "unsaid")[self.random.integers(4)]
        turns = int(10 ** self.random.uniform(0, 5.5))
        return Plan(outside, call, part, turns, int(self.random.integers(most)), how)

    def _write(self, plan: Plan, say: Say) -> None:
        """The life of a writer: it says after each part how many file operations there have been."""
        warnings.simplefilter("ignore")  # readers are there at most closes
        if plan.outside:
            self._live(plan, say, None)
            return
        with faulty_disk.faulty_disk(_COUNTED, lambda path: path.startswith(str(self.folder))) as disk:
            self._live(plan, say, disk)

    def _live(self, plan: Plan, say: Say, disk: faulty_disk.Disk | None) -> None:
        def tell(what: object) -> None:
            say(f"{what} {len(disk.operations) if disk else 0}")

        @contextlib.contextmanager
        def struck(call: int, part: str) -> Iterator[None]:
            """A part of the writer's life, which may be the one that is to be struck."""
            planned = disk is not None and (call, part) == (plan.call, plan.part)
            if disk and planned and plan.how != "unsaid":
                disk.call(len(disk.operations) + plan.operation, faulty_disk.kill, plan.how)
            with time_limit():
                yield
            if planned and plan.how == "unsaid":
                faulty_disk.kill()

        tell("ready")
        with struck(self.done - 1, "open"):
            memory = self.script.open(self.path)
        tell("opened")
        for call in range(self.done, plan.call + _MOST_CALLS):
            kind = self.script.kind(call)
            with struck(call, kind):
                self._call(memory, call, kind)
            if kind == "close":
                tell("closed")
                with struck(call, "open"):
                    memory = self.script.open(self.path)
            tell(call)
        faulty_disk.kill()

    def _call(self, memory: Memory, call: int, kind: str) -> None:
        if kind == "close":
            memory.close()
        elif kind in _TARGETS:
            getattr(memory, kind)(self.folder / kind)
        else:
            self.script.perform(memory, call)

    def _strike(self, writer: Child, plan: Plan) -> list[str]:
        """Kill the writer when the part before the planned one has been acknowledged; the lines heard until then."""
        before = str(plan.call - 1) if plan.call > self.done else "opened"
        if plan.part == "open":
            before = "closed" if plan.call >= self.done else "ready"
        lines: list[str] = []
        call = self.done - 1
        while (line := writer.hear()) is not None:
            lines.append(line)
            word = line.split()[0]
            call = int(word) if word.isdigit() else call
            if word == before and (word != "closed" or call == plan.call - 1):
                break
        for _ in range(plan.turns):
            pass
        writer.kill()
        return lines

    def _acknowledge(self, line: str) -> tuple[str, int]:
        """Take in a part that the writer has finished; its name and the file operations until its end."""
        word, operations = line.split()
        if not word.isdigit():
            return word, int(operations)
        call = int(word)
        kind = self.script.kind(call)
        if kind in _TARGETS:
            self.targets[kind] = self.history[-1]
        self._advance()
        return kind, int(operations)

    def _advance(self) -> None:
        """Make the next call on the mirror, too."""
        self.script.perform(self.mirror, self.done)
        self.history.append(digest(self.mirror))
        self.done += 1
        self.figures.counts["calls"] += 1

    # -- what it left --------------------------------------------------------------------------------------------

    def _check(self, number: int, state: str) -> None:
        """Look at the files, in a process of its own that may hang."""
        part = "open" if state in ("ready", "closed") else self.script.kind(self.done)
        self.figures.under_way[part] += 1
        where = f"after kill {number}, {part} under way, call {self.done}, seed {self.script.seed}"
        checker = Child(lambda say: self._look(number, state, part, say))
        found: dict[str, Any] = {}
        for line in checker.end():
            name, what = line.split(" ", 1)
            if name == "found":
                found = json.loads(what)
            else:
                self.figures.violated("raw" if name == "raised" else name, f"{what}, {where}")
        if checker.hung or not found:
            self.figures.violated("hung", f"checker {where}, status {checker.status}")
            return
        self.figures.counts["loads"] += found["loads"]
        self.targets = found["targets"]
        if found["more"]:
            self.figures.counts["calls_under_way_kept"] += 1
            self._advance()

    def _look(self, number: int, state: str, part: str, say: Say) -> None:
        """Open and load in different orders; in one of three the next writer finds what the killed one left."""
        warnings.simplefilter("ignore")
        before = self.history[-1]
        self.script.perform(self.mirror, self.done)
        accepted = {before: False, digest(self.mirror): True}
        never = self.done == 0 and state == "ready"
        orders = (("load", "open"), ("open", "load"), ("load", "open and leave"))
        seen = set()
        for way in orders[number % len(orders)]:
            if never and way == "load" and not self.path.exists():
                seen.add(before)
                continue
            with time_limit():
                seen.add(self._seen(way, say))
        for value in seen - set(accepted) - {None}:
            say(f"lost state {self.history.index(value)}" if value in self.history else "wrong state")
        if len(seen - {None}) > 1:
            say("wrong open() and load() differ")
        targets = {kind: self._target(kind, before if kind == part else None, say) for kind in _TARGETS}
        more = before not in seen and accepted.get(next(iter(seen)), False)
        say("found " + json.dumps({"more": more, "targets": targets, "loads": len(orders[0])}))

    def _seen(self, way: str, say: Say) -> str | None:
        try:
            memory = self.script.load(self.path) if way == "load" else self.script.open(self.path)
        except sgm.StoreError as error:
            say(f"{'locked' if 'being written' in str(error) else 'refused'} {way}: {said(error)}")
            return None
        except Exception as error:
            say(f"raw {way}: {said(error)}")
            return None
        value = digest(memory)
        self._compare_events(memory, say)
        if way == "open":
            memory.close()
        return value

    def _compare_events(self, memory: Memory, say: Say) -> None:
        """The events kept by both, in whatever number, must be the same but for their times."""
        names = ["edge", "kind", "episode"]
        ours, theirs = (m._log.rows[names][: len(memory._log) - m._log.folded] for m in (self.mirror, memory))
        number = min(len(ours), len(theirs))
        if number and (ours[-number:] != theirs[-number:]).any():
            say("wrong events")

    def _target(self, kind: str, new: str | None, say: Say) -> str | None:
        """The digest of what was saved; it has to be as before, or complete if it was being written."""
        path, old = self.folder / kind, self.targets[kind]
        if not path.exists():
            if old is not None:
                say(f"lost {kind}")
            return None
        try:
            with time_limit():
                value = digest(Memory.load(path, None))
                WriterLock(path).release()
        except sgm.StoreError as error:
            say(f"{'locked' if 'being written' in str(error) else 'refused'} {kind}: {said(error)}")
            return old
        if value not in (old, new):
            say(f"wrong {kind}")
        return value

    # -- the readers ---------------------------------------------------------------------------------------------

    def _read(self, number: int, say: Say) -> None:
        """Load until told to stop, and write down what was seen."""
        seen = False
        parent = os.getppid()
        with open(self.folder / f"reader-{number}", "w") as log:
            while not (self.folder / "stop").exists() and os.getppid() == parent:
                there = self.path.exists()
                try:
                    with time_limit():
                        log.write(digest(self.script.load(self.path)) + "\n")
                    seen = True
                except Exception as error:
                    if seen or there or not isinstance(error, sgm.StoreError):
                        say(said(error))

    def _check_what_was_read(self) -> None:
        known = set(self.history)
        for log in self.folder.glob("reader-*"):
            for line in log.read_text().splitlines():
                self.figures.counts["reader_loads"] += 1
                if line not in known:
                    self.figures.violated("wrong", f"a reader saw what never was, seed {self.script.seed}")
            log.unlink()

    def _check_leftovers(self) -> None:
        """After one more writer that is not killed there are its files and no others."""
        cleaner = Child(self._clean_up, watchdog=WATCHDOG)
        for line in cleaner.end():
            self.figures.violated("writer_errors", line)
        names = sorted(path.name for path in self.folder.iterdir())
        if names != ["backup", "live.sgm", "save"]:
            self.figures.violated("left_behind", f"{names}, seed {self.script.seed}")

    def _clean_up(self, say: Say) -> None:
        with self.script.open(self.path) as memory:
            for kind in _TARGETS:
                getattr(memory, kind)(self.folder / kind)
