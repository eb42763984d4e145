"""A memory file that is watched while other processes write it, and read again when it changes.

The file is not kept open. A change is detected by the size and time of the file and of its write-ahead log.
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
_TRIES = 3  # failed reads in a row before they are reported: the file may be about to be replaced


@dataclasses.dataclass
class Message:
    """An event of the file: "change", "gone", "damaged" or "back", with a sentence or the new version."""

    kind: str
    text: str = ""
    version: str = ""


class Live:
    """The inspected memory file in its last read state."""

    def __init__(self, path: Path, second: Path | None = None, *, write: bool = False) -> None:
        """Read a memory file, and a second one to compare it with; StoreError if either cannot be read."""
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
        """Make a view of the current memory; a computed layout is kept as long as the nodes are the same."""
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
        """Version of the contents of the memory file and the files beside it; it changes with them."""
        return f"{self._snapshot.version}-{self._rewritten}"

    # -- watching ------------------------------------------------------------------------------------------------

    def poll(self) -> list[Message]:
        """Read the file again if it has changed; return messages for the page.

        New contents are read at once. If the file itself has changed, and not only the write-ahead log beside it, the
        whole file is checked for damage a moment later.
        """
        now, around = stamp(self.path), beside_stamp(self._snapshot.path)
        if around != self._beside:
            self._beside, self._again = around, True
            self._rewritten += 1
        elif now != self._stamp:
            # Two writes within one tick of the file system's clock look like one: read again after the last change.
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
        """Read the whole file, to check that it is not damaged."""
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
            whole = self.problem is not None  # after an error the whole file is read again
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
        message = Message(kind, f"{said}. The page shows the last state.")
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
        """Compare the memory with the second one, for the page."""
        other = self.other()
        if other is None:
            text = "There is no second memory: sgm inspect FILE SECOND compares two memories of one stream."
            empty: dict[str, Any] = {"added": [], "removed": [], "repriced": [], "counts": {}}
            return {"version": self.view.version, "same_stream": False, "text": text, **empty}
        return comparing.compare(self.view, other, (str(self.path), str(self.second)))

    # -- writing -------------------------------------------------------------------------------------------------

    def remove(self, u: int, v: int) -> None:
        """Remove an edge by hand."""
        self._change(lambda memory: memory.remove(u, v))

    def restore(self, u: int, v: int) -> None:
        """Restore a removed edge."""
        self._change(lambda memory: memory.restore(u, v))

    def _change(self, change: Callable[[SparseGraphicalMemory], Any]) -> None:
        """Open the memory, change it and close it again, as any writer would; `poll` then reads the change."""
        if not self.write:
            raise StoreError("this page is read-only: start it with --write to remove and restore edges")
        with self.turn:
            if not self.path.is_file():
                raise StoreError(f"nothing was changed: the file {self.path} no longer exists")
            with SparseGraphicalMemory.open(self.path, None) as memory:
                change(memory)
            self._again = True


def stamp(path: Path) -> Stamp:
    """Inode, size and time of a file and of its write-ahead log."""
    return tuple(_seen(name) for name in (path, path.with_name(path.name + "-wal")))


def beside_stamp(path: Path) -> Stamp:
    """Inode, size and time of the files beside a memory file: floor plan, episodes and guarantee."""
    found = (beside(path, name) for name in (FLOOR, EPISODES, GUARANTEE))
    return tuple(None if file is None else _seen(file) for file in found)


def _seen(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def give_back() -> None:
    """Return unused memory to the operating system after reading a file, if the C library supports it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
