"""Recover the readable parts of a damaged memory file."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from sgm.errors import StoreError, printable

from .arrays import Ints
from .check import check
from .copies import private_copy, stat_of
from .lock import WriterLock, real_path
from .pages import read_pages
from .read import (
    Contents,
    damaged,
    read,
)
from .salvage import Salvage
from .store import create

Path_ = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, eq=False)
class Repaired:
    """Result of `repair`.

    Attributes:
        kept: numbers of nodes, edges, observations, events, tries and attributes in the new file, by name.
        lost: descriptions of the losses, one sentence each; numbers are those of the damaged file.
        problems: the problems that `check` found in the damaged file.
        nodes: (V,) int64 number in the damaged file of each node of the new file.
    """

    kept: dict[str, int]
    lost: tuple[str, ...]
    problems: tuple[str, ...]
    nodes: Ints


def repair(source: Path_, target: Path_, *, progress: bool = False) -> Repaired:
    """Copy the readable parts of a damaged memory file into a new, valid file.

    The damaged file is not changed. Nodes are renumbered if some are lost, see `Repaired.nodes`.

    Args:
        source: the damaged file; no process may be writing it.
        target: the file to make; StoreError if it exists already.
        progress: show a progress bar over the pages of the file.
    """
    damaged_file, new_file = real_path(source), real_path(target)
    if not stat.S_ISREG(stat_of(damaged_file).st_mode):
        raise StoreError(f"{damaged_file} is not a file: expected a memory file written by save() or open()")
    with _locked(new_file):
        if os.path.lexists(new_file):
            raise StoreError(f"{new_file} exists already: choose an unused name for the repaired memory")
        with _locked(damaged_file), damaged(damaged_file), private_copy(damaged_file, new_file.parent) as copy:
            problems = check(copy.path).problems
            found = read_pages(copy.path, distrustful=bool(problems), progress=progress)
            salvage = Salvage(found, copy.path.stat().st_size)
            contents = salvage.contents()
        if not len(contents.nodes) and problems:
            raise StoreError(f"nothing of {damaged_file} can be saved: no node is left in it. {_first(problems)}")
        _write(new_file, contents)
    lost = [*copy.lost, *salvage.lost]
    if not lost and problems and all("add up to its checksum" in problem for problem in problems):
        lost = ["a value that was changed by hand or by the disk: it is not known which one"]
    kept = {
        "nodes": len(contents.nodes),
        "edges": len(contents.graph),
        "observations": len(contents.nodes.assignment),
        "events": len(contents.log.rows),
        "tries": contents.records,
        "attributes": len(contents.nodes.attributes),
    }
    return Repaired(kept, tuple(map(printable, lost)), problems, salvage.nodes)


def _first(problems: Sequence[str]) -> str:
    return f"The first problem of {len(problems)}: {problems[0]}" if problems else ""


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = WriterLock(path)
    try:
        yield
    finally:
        lock.release()


def _write(target: Path, contents: Contents) -> None:
    create(target, contents)
    try:
        read(target)
    except StoreError as error:
        target.unlink()
        raise StoreError(f"the parts that are left do not make a memory: {error}") from None
