"""What to inspect: a memory file, the folder of an agent, or the folder of a run with many memories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from sgm.errors import InputError, StoreError

_MOST = 10_000  # memories that are looked for in a folder


class Source(NamedTuple):
    """A memory file, and which others there are beside it in the folder given."""

    path: Path
    others: list[Path]


def find(given: Any) -> Source:
    """The memory file that a file, agent folder or run folder stands for; StoreError if there is none."""
    if not isinstance(given, (str, os.PathLike)) or not os.fspath(given):
        raise InputError(f"{given!r} is nothing to inspect: give a memory file, an agent folder or a run folder")
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
    """The memories of a run; where there is none of the usual name, any."""
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
    """Whether a memory of a run is one of the paper's method, by the name of its folder."""
    return any("sgm" in part or part == "both" for part in file.parts[:-1])
