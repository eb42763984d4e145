"""Make a private copy of a file and its logs, for code that must not change the file itself."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sgm.errors import StoreError

from .read import (
    connect,
    names_another_file,
)

_LOGS = ("-wal", "-journal")


def stat_of(path: Path) -> os.stat_result:
    try:
        return os.stat(path)
    except FileNotFoundError:
        raise StoreError(f"there is no file {path}: expected a memory file written by save() or open()") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from None


def logs_of(path: Path) -> list[Path]:
    """Return SQLite's logs beside a file that exist."""
    beside = (path.with_name(path.name + suffix) for suffix in _LOGS)
    return [log for log in beside if os.path.lexists(log)]


class Copy(NamedTuple):
    """A private copy of a file that includes its log, and a description of each part that could not be copied."""

    path: Path
    lost: list[str]


@contextlib.contextmanager
def private_copy(source: Path, beside: Path | None = None) -> Iterator[Copy]:
    """Copy a file and its logs, so that SQLite may change the copy; it is removed afterwards.

    The copy is in a temporary folder in `beside`, which needs room for a file of this size.
    """
    try:
        with tempfile.TemporaryDirectory(dir=beside, prefix=".sgm-repair-") as folder:
            copy = Copy(Path(folder) / "copy.sgm", [])
            for suffix in ("", *_LOGS):
                original = source.with_name(source.name + suffix)
                if not suffix or (original.is_file() and not original.is_symlink()):
                    holes = _copy_file(original, copy.path.with_name(copy.path.name + suffix))
                    copy.lost.extend(
                        f"bytes {a} to {b} of {original.name}: the disk cannot read them" for a, b in holes
                    )
            copy.lost.extend(_settle(copy.path, source))
            yield copy
    except OSError as error:
        raise StoreError(f"{source} could not be copied: {error}") from None


def _copy_file(source: Path, target: Path) -> list[tuple[int, int]]:
    """Copy a file; unreadable parts become zeros and are returned as (first, last) byte offsets."""
    holes: list[tuple[int, int]] = []
    block = 1 << 20
    with open(source, "rb", buffering=0) as reader, open(target, "wb") as writer:
        size = os.fstat(reader.fileno()).st_size
        for start in range(0, size, block):
            writer.write(read_tolerantly(reader, start, min(block, size - start), holes))
    return holes


def read_tolerantly(reader: Any, start: int, length: int, holes: list[tuple[int, int]]) -> bytes:
    try:
        reader.seek(start)
        return bytes(reader.read(length))
    except OSError:
        if length <= 4096:
            holes.append((start, start + length - 1))
            return bytes(length)
    half = length // 2
    return read_tolerantly(reader, start, half, holes) + read_tolerantly(reader, start + half, length - half, holes)


def _settle(copy: Path, source: Path) -> list[str]:
    """Let SQLite bring the logs of a killed writer into the copy; return a description of each lost log."""
    if copy.stat().st_size and logs_of(copy) and not names_another_file(copy):
        with contextlib.suppress(sqlite3.Error, UnicodeError), contextlib.closing(connect(copy, "rw")) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            connection.execute("PRAGMA journal_mode = DELETE")
    left = [log for log in logs_of(copy) if log.stat().st_size]
    for log in left:
        log.unlink()
    names = [source.name + log.name[len(copy.name) :] for log in left]
    return [f"changes that were only in {name}: SQLite cannot bring them into the file" for name in names]
