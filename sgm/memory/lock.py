"""One writer a file: a lock beside the file, let go by the system when its process dies."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from .errors import StoreError

try:
    import fcntl

    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

except ImportError:  # Windows
    import msvcrt

    def _take(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]


class WriterLock:
    """An exclusive lock on `path`, held from construction to `release`."""

    def __init__(self, path: Path) -> None:
        """Take the lock, or raise StoreError saying who holds it."""
        self._path = path.with_name(path.name + "-lock")
        self._descriptor: int | None = None
        while self._descriptor is None:
            self._descriptor = self._try(path)

    def release(self) -> None:
        """Let the lock go; a second call does nothing."""
        if self._descriptor is not None:
            # Removed while still held, so that nobody can lock a file that is about to disappear.
            with contextlib.suppress(OSError):
                self._path.unlink()
            os.close(self._descriptor)
            self._descriptor = None

    def _try(self, path: Path) -> int | None:
        """The locked descriptor, or None if the lock file was removed by its last holder meanwhile."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StoreError(f"cannot write beside {path}: {error}") from error
        try:
            _take(descriptor)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace") if hasattr(os, "pread") else ""
            os.close(descriptor)
            raise StoreError(
                f"{path} is being written by process {holder or '(unknown)'}: one writer at a time. "
                "Close it there, or read the file with load()."
            ) from error
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(self._path)):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
                return descriptor
        os.close(descriptor)
        return None
