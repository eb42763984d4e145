"""The owner of a memory: it applies every batch of evidence exactly once, and lists changes for workers."""

from __future__ import annotations

import dataclasses
import os
import re
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sgm.errors import MemoryWarning, StoreError
from sgm.memory import SparseGraphicalMemory
from sgm.memory.follow import Changes, changes_since, version_of

from .messages import Batch

_NAME = re.compile(r"[0-9a-f]{12}-[0-9]{1,9}")
_LARGEST = 2**28  # largest size of a file of evidence, bytes


@dataclasses.dataclass
class Counts:
    """Evidence that an owner has applied.

    Attributes:
        batches: number of batches.
        records: number of tries in them.
        stale: number of tries of edges that were already removed when they arrived. They count like all others.
        resent: number of batches that arrived again and were ignored.
        left_behind: number of batches, included above, that workers of an earlier owner have saved to files.
    """

    batches: int = 0
    records: int = 0
    stale: int = 0
    resent: int = 0
    left_behind: int = 0


class Owner:
    """Applies evidence to one memory.

    The number of the last batch of each worker is stored in the same transaction as its evidence. So after an owner was
    killed, the next one knows which batches were applied, and ignores a batch that is sent again.

    Attributes:
        memory: the memory, live or not.
        counts: evidence that was applied.
        outbox: the memory file, beside which workers save evidence that a dead owner did not apply; None: no file.
    """

    def __init__(self, memory: SparseGraphicalMemory) -> None:
        """Become the owner of a memory, and apply evidence that workers of its last owner have saved."""
        self.memory, self.counts = memory, Counts()
        self._run = uuid.uuid4().hex[:12]
        self.outbox = None if memory._store is None else Path(memory._store.path)
        self._take_in_leftovers()

    def enlist(self, number: int) -> str:
        """Return the name of a new worker, which is stored in the file before it starts."""
        name = f"{self._run}-{number}"
        self.memory._enlist({**self.memory._applied, name: 0})
        return name

    def take(self, batch: Batch) -> bool:
        """Apply a batch, unless it was applied before; return whether it is new."""
        arrays = batch.source, batch.target, batch.reached
        gone = self.memory._record_batch(batch.worker, batch.sequence, *arrays)
        if gone is None:
            self.counts.resent += 1
            return False
        self.counts.batches += 1
        self.counts.records += len(batch.source)
        self.counts.stale += gone
        return True

    @property
    def version(self) -> int:
        """Current version of the memory."""
        return version_of(self.memory)

    def changes(self, version: int) -> Changes:
        """Changes since a version, for a worker that has this version."""
        return changes_since(self.memory, version)

    def close(self) -> None:
        """Apply evidence that workers have saved since, and remove all workers from the file."""
        self._take_in_leftovers()
        if self.memory._applied:
            self.memory._enlist({})

    def _take_in_leftovers(self) -> None:
        if (file := self.outbox) is None:
            return
        known = self.memory._applied
        for path in sorted(file.parent.glob(f"{_escaped(file.name)}-evidence-*.npz")):
            name = path.name.removeprefix(f"{file.name}-evidence-").removesuffix(".npz")
            if name not in known:
                warnings.warn(f"{path} is not of a worker of {file}, and is ignored: remove it", MemoryWarning, 5)
                continue
            try:
                for batch in read_batches(path, name):
                    self.counts.left_behind += self.take(batch)
            except StoreError:
                raise
            except Exception as error:  # NumPy may raise anything for a damaged file
                warnings.warn(f"{path} cannot be used, and is ignored: {error}", MemoryWarning, 5)
                continue
            path.unlink()
        for name in known:  # an incomplete file of a worker that was killed: its evidence was never sent
            temporary_file(evidence_file(file, name)).unlink(missing_ok=True)


# -- evidence saved by workers -----------------------------------------------------------------------------------


def evidence_file(file: Path, worker: str) -> Path:
    """Path at which a worker saves evidence that the owner of a memory file has not applied."""
    return file.with_name(f"{file.name}-evidence-{worker}.npz")


def temporary_file(path: Path) -> Path:
    """Path of a file of evidence until it is complete."""
    return path.with_name(path.name + ".new")


def write_batches(path: Path, batches: list[Batch]) -> None:
    """Write batches of one worker to a file, atomically."""
    numbers = np.repeat([batch.sequence for batch in batches], [len(batch.source) for batch in batches])
    columns: dict[str, Any] = {
        "sequence": numbers.astype(np.int64),
        "source": np.concatenate([batch.source for batch in batches]),
        "target": np.concatenate([batch.target for batch in batches]),
        "reached": np.concatenate([batch.reached for batch in batches]),
        "batches": np.array([batch.sequence for batch in batches], np.int64),
    }
    temporary = temporary_file(path)
    with open(temporary, "wb") as stream:
        np.savez(stream, **columns)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def read_batches(path: Path, worker: str) -> Iterator[Batch]:
    """Read the batches of a file written by `write_batches`; ValueError if it is any other file."""
    if not _NAME.fullmatch(worker) or path.stat().st_size > _LARGEST:
        raise ValueError(f"it is not a file of evidence, or has over {_LARGEST:,} bytes")
    with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as content:
        columns = {name: content[name] for name in ("sequence", "source", "target", "reached", "batches")}
    kinds = {name: column.dtype.kind for name, column in columns.items()}
    lengths = {len(columns[name]) for name in ("sequence", "source", "target", "reached")}
    if kinds != {**dict.fromkeys(columns, "i"), "reached": "b"} or len(lengths) != 1:
        raise ValueError("its columns are not those of evidence")
    for number in columns["batches"].tolist():
        rows = columns["sequence"] == number
        yield Batch(worker, number, *(columns[name][rows] for name in ("source", "target", "reached")))


def _escaped(name: str) -> str:
    """Escape the wildcards of a name for `glob`."""
    return re.sub(r"([*?\[])", r"[\1]", name)
