"""Run folders: JSON that is there whole or not at all, and a claim on a folder by a run's settings."""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm


def read_json(path: Path) -> Any:
    """What a JSON file holds; None if there is none."""
    return json.loads(path.read_text()) if path.exists() else None


def write_json(path: Path, content: Any) -> None:
    """Write a file that appears complete or not at all."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
    os.replace(temporary, path)


def find_file(folder: Path, name: str) -> Path:
    """A file of a run folder; SGMError if it is missing."""
    path = folder / name
    if not path.is_file():
        raise sgm.SGMError(f"the run has no {name}")
    return path


def read_arrays(folder: Path, name: str, *needed: str) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz file of a run folder, all these among them."""
    path = find_file(folder, name)
    try:
        with np.load(path) as content:
            arrays = dict(content)
    except (OSError, EOFError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise sgm.SGMError(f"{name} cannot be read: {error}") from error
    if missing := [key for key in needed if key not in arrays]:
        raise sgm.SGMError(f"{name} has no {', '.join(missing)}")
    return arrays


def read_array(folder: Path, name: str) -> NDArray[Any]:
    """The array of a .npy file of a run folder."""
    path = find_file(folder, name)
    try:
        return np.asarray(np.load(path))
    except (OSError, EOFError, ValueError, TypeError) as error:
        raise sgm.SGMError(f"{name} cannot be read: {error}") from error


def claim(
    out: Path,
    settings: Any,
    *,
    resume: bool,
    free: Iterable[str],
    left_overs: Iterable[str],
    constants: dict[str, Any] | None = None,
) -> None:
    """Take a folder for a run, or refuse one that holds a run of other settings.

    Args:
        out: the folder, made if need be.
        settings: a dataclass.
        resume: go on with what the folder holds; otherwise what matches `left_overs` is removed.
        free: names of settings that may differ: each of their values has a folder of its own.
        left_overs: patterns of files of an earlier run.
        constants: what else must not differ.
    """
    path = out / "settings.json"
    mine = json.loads(json.dumps({**dataclasses.asdict(settings), **(constants or {})}))
    for name in free:
        del mine[name]
    theirs = read_json(path) if resume else None
    if not resume:
        for pattern in left_overs:
            for left_over in out.glob(pattern):
                left_over.unlink()
    if theirs is not None and theirs != mine:
        differing = [name for name in mine if theirs.get(name) != mine[name]]
        raise sgm.SGMError(
            f"{out} holds a run with other settings ({', '.join(differing)} differ). Choose another folder with --out, "
            "or start over in this one with --no-resume."
        )
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, mine)
