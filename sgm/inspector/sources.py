"""The memory file to inspect, given a file, the folder of an agent, or the folder of a run with many memories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from sgm.errors import InputError, StoreError

_MOST = 10_000  # largest number of memories that are searched for in a folder


class Source(NamedTuple):
    """A memory file, and the other memory files of the given folder."""

    path: Path
    others: list[Path]


def find(given: Any) -> Source:
    """Find the memory file of a file, agent folder or run folder; StoreError if there is none."""
    if not isinstance(given, (str, os.PathLike)) or not os.fspath(given):
        raise InputError(f"{given!r} cannot be inspected: give a memory file, an agent folder or a run folder")
    path = Path(given)
    if not path.is_dir():
        if not path.exists():
            raise StoreError(f"there is no {path}: give a memory file (.sgm), an agent folder or a run folder")
        return Source(path, [])
    if (path / "memory.sgm").is_file():
        return Source(path / "memory.sgm", sorted(set(path.glob("*.sgm")) - {path / "memory.sgm"}))
    found = _in_run(path)
    if not found:
        raise StoreError(
            f"{path} holds no memory (memory.sgm, at any depth): give a memory file, an agent folder, or the folder "
            "of a run (sgm run, sgm fit, sgm demo)"
        )
    chosen = min(found, key=lambda file: (not _is_sparse(file.relative_to(path)), file))
    return Source(chosen, [file for file in found if file != chosen])


def _in_run(folder: Path) -> list[Path]:
    """Memory files of a run: those named memory.sgm, or any others if there is none."""
    for pattern in ("memory.sgm", "*.sgm"):
        found = []
        for file in folder.rglob(pattern):
            found.append(file)
            if len(found) >= _MOST:
                break
        if found:
            return sorted(found)
    return []


def _is_sparse(file: Path) -> bool:
    """Whether a memory of a run is a sparse one (the paper's method), by the name of its folder."""
    return any("sgm" in part or part == "both" for part in file.parts[:-1])
