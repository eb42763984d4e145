"""The one owner of a memory: it takes in every batch of evidence exactly once, and tells what has changed since."""

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
_LARGEST = 2**28  # bytes of a file of evidence


@dataclasses.dataclass
class Counts:
    """What an owner has taken in.

    Attributes:
        batches: batches of evidence.
        records: tries in them.
        stale: of these, tries of edges that were gone when they came. They count like all others.
        resent: batches that came again and were left out.
        left_behind: batches, among the others, that workers of an owner that is gone have left for this one.
    """

    batches: int = 0
    records: int = 0
    stale: int = 0
    resent: int = 0
    left_behind: int = 0


class Owner:
    """Takes in evidence for one memory.

    The last batch of each worker is noted in the transaction that writes its evidence. So an owner that was killed
    knows, when the file is opened again, what it has: a batch that is sent once more is left out.

    Attributes:
        memory: the memory, live or not.
        counts: what was taken in.
        outbox: where workers leave what a dead owner did not take in: beside the file; None: the memory has no file.
    """

    def __init__(self, memory: SparseGraphicalMemory) -> None:
        """Own a memory, and take in what workers of its last owner have left behind."""
        self.memory, self.counts = memory, Counts()
        self._run = uuid.uuid4().hex[:12]
        self.outbox = None if memory._store is None else Path(memory._store.path)
        self._take_in_leftovers()

    def enlist(self, number: int) -> str:
        """The name of a new worker, noted in the file before it begins."""
        name = f"{self._run}-{number}"
        self.memory._enlist({**self.memory._applied, name: 0})
        return name

    def take(self, batch: Batch) -> bool:
        """Take in a batch, unless it was taken in before; whether it is new."""
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
        """Of the memory now."""
        return version_of(self.memory)

    def changes(self, version: int) -> Changes:
        """What a worker that has this version must know."""
        return changes_since(self.memory, version)

    def close(self) -> None:
        """Take in what workers of the last owner have left since, and forget all workers."""
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
                warnings.warn(f"{path} is not of a worker of {file}, and is left alone: remove it", MemoryWarning, 5)
                continue
            try:
                for batch in read_batches(path, name):
                    self.counts.left_behind += self.take(batch)
            except StoreError:
                raise
            except Exception as error:  # whatever a damaged file makes NumPy raise
                warnings.warn(f"{path} cannot be used, and is left alone: {error}", MemoryWarning, 5)
                continue
            path.unlink()
        for name in known:  # of a worker that was killed while it wrote: it had not sent that
            temporary_file(evidence_file(file, name)).unlink(missing_ok=True)


# -- what workers leave behind -----------------------------------------------------------------------------------


def evidence_file(file: Path, worker: str) -> Path:
    """Where a worker leaves what the owner of a memory file has not taken in."""
    return file.with_name(f"{file.name}-evidence-{worker}.npz")


def temporary_file(path: Path) -> Path:
    """What a file of evidence is called until it is complete."""
    return path.with_name(path.name + ".new")


def write_batches(path: Path, batches: list[Batch]) -> None:
    """Write batches of one worker to a file that appears complete or not at all."""
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
    """The batches of a file that `write_batches` made; ValueError if it is anything else."""
    if not _NAME.fullmatch(worker) or path.stat().st_size > _LARGEST:
        raise ValueError(f"it is no file of evidence, or has over {_LARGEST:,} bytes")
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
    """A name in which no character stands for others when files are looked for."""
    return re.sub(r"([*?\[])", r"[\1]", name)
