"""Lock file beside a memory file, so that it has one writer; the system releases the lock if the process dies."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from sgm.errors import InputError, StoreError

from .settings import shortened

try:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

except ImportError:  # Windows
    import msvcrt

    def _take(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]


_MOST_BYTES = 32  # a lock file of this library holds a process number and nothing else
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a memory file, with links resolved; it need not exist yet.

    InputError or StoreError if there cannot be a memory file at this path.
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(text, str):
        raise InputError(f"the path is {shortened(path)}: expected the name of a memory file, text or a pathlib.Path")
    if not text or "\0" in text:
        raise StoreError(f"{text!r} is not the name of a file: expected one with at least a character and no NUL")
    try:
        real = Path(os.path.realpath(text))
        if real.is_dir() or not real.name:
            raise StoreError(f"{text} is a folder: expected the name of a memory file")
        if not real.parent.is_dir():
            raise StoreError(f"{text} cannot be a memory file: there is no folder {real.parent}. Make it first.")
        with contextlib.suppress(FileNotFoundError):
            os.lstat(real.with_name(real.name + "-lock"))  # also fails if the name of the lock file would be too long
    except (OSError, ValueError) as error:
        raise StoreError(f"{text} cannot be a memory file: {error}") from None
    return real


class WriterLock:
    """An exclusive lock on the memory file at a path from `real_path`, held from construction to `release`."""

    def __init__(self, path: Path) -> None:
        """Take the lock; StoreError names the process that holds it already."""
        self._path = path.with_name(path.name + "-lock")
        self._process = os.getpid()
        self._descriptor: int | None = None
        while self._descriptor is None:
            self._descriptor = self._try(path)

    def release(self) -> None:
        """Release the lock. A second call, or a call in a forked child, does nothing."""
        if self._descriptor is None or os.getpid() != self._process:
            return
        # Removed while still locked, so that no other process can lock a file that is about to be removed.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._descriptor), os.lstat(self._path)):
                self._path.unlink()
        self.abandon()

    def abandon(self) -> None:
        """Close the descriptor of this process. If this is a forked child, the parent keeps the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _try(self, path: Path) -> int | None:
        """Return the locked descriptor; None if the previous holder removed the lock file in the meantime."""
        try:
            descriptor = os.open(self._path, _FLAGS, 0o666)
        except OSError as error:
            raise StoreError(f"{path} cannot be locked for writing: {error}") from None
        try:
            if self._locked(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def _locked(self, path: Path, descriptor: int) -> bool:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_size > _MOST_BYTES:
            raise StoreError(
                f"{self._path} is not a lock of this library but another file or a link to one, and is left alone: "
                f"remove it if you know that no process writes {path}"
            )
        try:
            _take(descriptor)
        except OSError:
            holder = os.pread(descriptor, _MOST_BYTES, 0).decode(errors="replace") if hasattr(os, "pread") else ""
            raise StoreError(
                f"{path} is being written by process {holder or '(unknown)'}: one writer at a time. "
                "Close it there, or read the file with load()."
            ) from None
        try:
            if not os.path.samestat(os.fstat(descriptor), os.lstat(self._path)):
                return False
        except FileNotFoundError:
            return False
        with contextlib.suppress(OSError):  # on a full disk the process number is missing, but the lock still works
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(self._process).encode())
        return True
