"""A memory file that is looked at while others write it: read again when it changes, in short reads.

Nothing is held open. Whether the file has changed is seen from the size and time of the file and of its write-ahead
log.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sgm.errors import SGMError, StoreError
from sgm.memory import SparseGraphicalMemory
from sgm.memory.snapshot import Snapshot
from sgm.navigation.beside import EPISODES, FLOOR, GUARANTEE, beside

from . import compare as comparing
from .records import Records
from .view import Places, View

Stamp = tuple[Any, ...]
_TRIES = 3  # times that a file may be unreadable in a row before that is said: it may just be changing hands


@dataclasses.dataclass
class Message:
    """What happened to the file: "change", "gone", "damaged" or "back", and a sentence or the new version."""

    kind: str
    text: str = ""
    version: str = ""


class Live:
    """The memory file that is inspected, as it was last read."""

    def __init__(self, path: Path, second: Path | None = None, *, write: bool = False) -> None:
        """Read a file, and one to compare it with; StoreError if either is not what it should be."""
        self.path, self.second, self.write = Path(path), second, write
        self.turn = threading.RLock()
        self._stamp, self._again, self._unsure, self._tries = stamp(self.path), False, False, 0
        self._snapshot = Snapshot.take(self.path)
        self._beside, self._rewritten = beside_stamp(self._snapshot.path), 0
        self.records = Records.read(self._snapshot.path, len(self._snapshot.memory))
        self._places: tuple[Any, Places] | None = None
        self.problem: Message | None = None
        self.view = self._look()
        self._other: View | None = None
        self._other_stamp: Stamp | None = None
        if second is not None:
            self.other()

    def _look(self) -> View:
        """The memory as it is now, with nodes where they were drawn before if there are no others."""
        memory = self._snapshot.memory
        places = None
        if self._places is not None and self._places[0] == (len(memory), self.records.axes):
            places = self._places[1] if self._places[1].attribute is None else None
        view = View(memory, self._version, self.records.axes, places)
        self._places = ((len(memory), self.records.axes), view.places)
        give_back()
        return view

    @property
    def _version(self) -> str:
        """A text that is another one when the memory, or a file beside it, has another content."""
        return f"{self._snapshot.version}-{self._rewritten}"

    # -- watching ------------------------------------------------------------------------------------------------

    def poll(self) -> list[Message]:
        """Read the file again if it looks changed; what is to be told.

        What was added is read at once. Whether all of the file is still whole is seen a moment later: writers add to
        the log beside the file, and where the file itself was touched anything may have happened to it.
        """
        now, around = stamp(self.path), beside_stamp(self._snapshot.path)
        if around != self._beside:
            self._beside, self._again = around, True
            self._rewritten += 1
        elif now != self._stamp:
            # Two writes within a tick of the file system's clock look like one: look once more after the last change.
            self._again, self._unsure = True, self._unsure or now[0] != self._stamp[0]
            self._stamp = now
        elif self._again:
            self._again = False
        elif self._unsure:
            self._unsure = False
            return self._verified()
        else:
            return []
        with self.turn:
            return self._read_again()

    def _verified(self) -> list[Message]:
        """Read the whole file, to see whether it can be read."""
        try:
            Snapshot.take(self.path)
        except (SGMError, OSError, MemoryError) as error:
            self._tries = _TRIES
            return self._trouble(str(error))
        finally:
            give_back()
        return []

    def _read_again(self) -> list[Message]:
        before = self.view.version
        try:
            whole = self.problem is not None  # after trouble nothing is taken for granted
            self._snapshot = Snapshot.take(self.path) if whole else self._snapshot.refreshed()
        except (SGMError, OSError, MemoryError) as error:
            return self._trouble(str(error))
        self._tries = 0
        messages = []
        if self.problem is not None:
            self.problem = None
            messages.append(Message("back", version=self._version))
        if self._version != before:
            self.records = Records.read(self._snapshot.path, len(self._snapshot.memory))
            self.view = self._look()
            messages.append(Message("change", version=self.view.version))
        return messages

    def _trouble(self, text: str) -> list[Message]:
        gone = not self.path.is_file()
        self._tries += 1
        if self._tries < _TRIES:
            self._again = True
            return []
        kind = "gone" if gone else "damaged"
        said = f"{self.path} is gone: it was moved or deleted" if gone else text
        message = Message(kind, f"{said}. What is shown is as it was before.")
        if self.problem == message:
            return []
        self.problem = message
        return [message]

    # -- comparing -----------------------------------------------------------------------------------------------

    def other(self) -> View | None:
        """The second memory, read again if its file has changed."""
        if self.second is None:
            return None
        now = stamp(self.second)
        if self._other is None or now != self._other_stamp:
            snapshot = Snapshot.take(self.second)
            self._other, self._other_stamp = View(snapshot.memory, snapshot.version, self.records.axes), now
        return self._other

    def compare(self) -> dict[str, Any]:
        """What is different in the second memory."""
        other = self.other()
        if other is None:
            text = "There is no second memory: sgm inspect FILE SECOND compares two of one stream."
            empty: dict[str, Any] = {"added": [], "removed": [], "repriced": [], "counts": {}}
            return {"version": self.view.version, "same_stream": False, "text": text, **empty}
        return comparing.compare(self.view, other, (str(self.path), str(self.second)))

    # -- writing -------------------------------------------------------------------------------------------------

    def remove(self, u: int, v: int) -> None:
        """Remove an edge by hand."""
        self._change(lambda memory: memory.remove(u, v))

    def restore(self, u: int, v: int) -> None:
        """Bring a removed edge back."""
        self._change(lambda memory: memory.restore(u, v))

    def _change(self, change: Callable[[SparseGraphicalMemory], Any]) -> None:
        """Open the memory, change it and close it again, as any writer would; and read the change."""
        if not self.write:
            raise StoreError("this page only reads: start it with --write to remove and restore edges")
        with self.turn:
            if not self.path.is_file():
                raise StoreError(f"nothing was changed: there is no file {self.path} any more")
            with SparseGraphicalMemory.open(self.path, None) as memory:
                change(memory)
            self._again = True


def stamp(path: Path) -> Stamp:
    """What a file and its write-ahead log look like from outside."""
    return tuple(_seen(name) for name in (path, path.with_name(path.name + "-wal")))


def beside_stamp(path: Path) -> Stamp:
    """What the files beside a memory file look like from outside: floor plan, episodes and guarantee."""
    found = (beside(path, name) for name in (FLOOR, EPISODES, GUARANTEE))
    return tuple(None if file is None else _seen(file) for file in found)


def _seen(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def give_back() -> None:
    """Give the system back what reading a file needed and nobody uses any more, where the C library can do that."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
