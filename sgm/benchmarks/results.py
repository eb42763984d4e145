"""Files of a run folder: checked reading, atomic writing, the state of unfinished runs, and the claim on a folder.

A run folder may come from somebody else, and a crash may leave damaged files. Nothing in a folder is loaded, moved,
removed or overwritten before its names and values are checked, and nothing outside it is ever touched.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.data.writing import writing

from .checks import CHOICE, COUNT, QUALITY, Shape, check, check_facts, check_row

AGAIN = "remove the file, and it is made again"
_OVER = "start over in this folder with --no-resume"
_PIECE = f"remove the file, and this part of the run is made again, or {_OVER}"
_CLAIM = f"remove the file if the run had the settings that you give now, or {_OVER}"
_MOST_BYTES = 2**26  # of a JSON file; a long run writes about 2^20
_DEEPEST = 50  # objects and lists inside each other
_MEMORY = re.compile(r"memory(-[0-9]{1,18})?\.sgm")
# Files that every run writes into its folder; a benchmark declares the others. Any other file in the folder is left
# alone.
_HELD = ("settings.json", "results.json", "report.html", "figures")
_FILES = (".html", ".json", ".npy", ".npz", ".png", ".safetensors", ".sgm", ".wad")
_NAMED = "-[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"  # the value of a piece that is a name, after the name of its axis


# -- reading -----------------------------------------------------------------------------------------------------


def read_json(path: Path, remedy: str = AGAIN) -> Any:
    """Read a JSON file; None if it does not exist. StoreError, with the remedy, if it cannot be read."""
    try:
        data = _read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise sgm.StoreError(f"{path} cannot be read ({error.strerror or error}): {remedy}") from error
    if not data.strip():
        raise sgm.StoreError(f"{path} is empty, as a crash may leave it: {remedy}")
    try:
        content = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
        _require_shallow(content)
    except (ValueError, RecursionError) as error:
        raise sgm.StoreError(f"{path} is not JSON ({error}): {remedy}") from error
    return content


def _read_bytes(path: Path) -> bytes:
    """Read a regular file; a FIFO is refused without waiting."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise OSError("it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file")
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise OSError(f"it is larger than {_MOST_BYTES:,} bytes")
    return data


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large")
    return value


def _require_shallow(content: Any) -> None:
    level = [content]
    for _ in range(_DEEPEST):
        level = [child for item in level for child in _children(item)]
    if level:
        raise ValueError(f"more than {_DEEPEST} objects and lists inside each other")


def _children(item: Any) -> Iterable[Any]:
    return item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()


def read_object(path: Path, shape: Shape, remedy: str = AGAIN) -> dict[str, Any] | None:
    """Read a JSON object of this shape; None if the file does not exist."""
    content = read_json(path, remedy)
    if content is None and not path.exists():
        return None
    if not isinstance(content, dict):
        raise sgm.StoreError(f"{path} holds no object: {remedy}")
    try:
        check(content, shape, str(path))
    except sgm.StoreError as error:
        raise sgm.StoreError(f"{error}: {remedy}") from error
    return content


def read_quality(folder: Path) -> dict[str, Any] | None:
    """Read the measured quality of the networks in a folder; None if it was not measured yet."""
    return read_object(folder / "quality.json", QUALITY)


def read_choice(folder: Path) -> dict[str, Any] | None:
    """Read how the threshold of the memory in a folder was chosen; None if it was not chosen by search."""
    remedy = "remove it and built.sgm beside it, and both are made again"
    choice = read_object(folder / "choice.json", CHOICE, remedy)
    if choice is not None and not (isinstance(choice.get("tried"), list) and isinstance(choice.get("settings"), dict)):
        raise sgm.StoreError(f"{folder / 'choice.json'} has no list of tried thresholds, or no settings: {remedy}")
    return choice


def find_file(folder: Path, name: str) -> Path:
    """Path of a file of a run folder; SGMError if it is missing, or if it is a link out of the folder."""
    path = folder / name
    if not path.is_file():
        raise sgm.StoreError(f"the run has no {name}")
    if not _is_inside(path, os.path.realpath(folder)):
        raise sgm.StoreError(f"{name} leads out of {folder}: put the file itself there")
    return path


def read_arrays(folder: Path, name: str, *needed: str) -> dict[str, NDArray[Any]]:
    """Read the arrays of a .npz file of a run folder; StoreError if one of `needed` is missing."""
    path = find_file(folder, name)
    try:
        with path.open("rb") as file, np.load(file) as content:
            arrays = dict(content)
    except Exception as error:  # a damaged file raises many kinds of errors
        raise sgm.StoreError(f"{name} cannot be read ({error}): {AGAIN}") from error
    if missing := [key for key in needed if key not in arrays]:
        raise sgm.StoreError(f"{name} has no {', '.join(missing)}")
    return arrays


# -- writing -----------------------------------------------------------------------------------------------------


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file that appears complete or not at all."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file that appears complete or not at all."""
    with writing(path) as file:
        file.write(text.encode("utf-8"))


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a .npz file that appears complete or not at all."""
    with writing(path) as file:
        np.savez_compressed(file, **arrays)


# -- finished stages ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class StateFile:
    """Finished stages of a method in one folder: `state.json`, and the memory file that it names.

    Attributes:
        folder: folder of both files.
        facts: values that every row must have.
        memory: whether the method has a memory.
        needed: fields that every row must have, beyond those of all benchmarks.
        shapes: shapes of the fields that only rows of this benchmark have: `Benchmark.fields`.
    """

    folder: Path
    facts: dict[str, Any]
    memory: bool = True
    needed: tuple[str, ...] = ()
    shapes: Mapping[str, Shape] = dataclasses.field(default_factory=dict)

    def read(self) -> dict[str, Any] | None:
        """Read the finished `rows`, cleanup steps `done` and the name of the `memory`; None if nothing is finished."""
        path = self.folder / "state.json"
        state = read_object(path, {"done": COUNT}, _PIECE)
        if state is None:
            return None
        try:
            self._check(state, path)
        except sgm.StoreError as error:
            raise sgm.StoreError(f"{error}: {_PIECE}") from error
        return state

    def rows(self) -> list[dict[str, Any]]:
        """The finished rows."""
        state = self.read()
        return state["rows"] if state else []

    def save_stage(
        self, memory: sgm.SparseGraphicalMemory | None, rows: list[Any], done: int, *, last: bool
    ) -> dict[str, Any]:
        """Write a finished stage: first the memory under a new name, then the state that points to it."""
        before = self.read()
        state: dict[str, Any] = {"rows": rows, "done": done}
        if memory is not None:
            state["memory"] = "memory.sgm" if last else f"memory-{done}.sgm"
            memory.save(self.folder / state["memory"])
        write_json(self.folder / "state.json", state)
        if before and before.get("memory") not in (None, state.get("memory")):
            (self.folder / before["memory"]).unlink(missing_ok=True)
        return state

    def has_memory(self, state: dict[str, Any]) -> bool:
        """Whether the memory file of a state exists, if the method has a memory."""
        return not self.memory or (self.folder / state["memory"]).is_file()

    def memory_file(self, state: dict[str, Any]) -> Path:
        """Path of the memory file to resume from; StoreError if it is missing."""
        path = self.folder / state["memory"]
        if not path.is_file():
            raise sgm.StoreError(
                f"{path} is missing, though state.json beside it names it: remove state.json, and this part of the run "
                f"is made again, or {_OVER}"
            )
        return path

    def _check(self, state: dict[str, Any], path: Path) -> None:
        rows = state.get("rows")
        if not isinstance(rows, list) or not rows:
            raise sgm.StoreError(f"{path} has no list of rows")
        for number, row in enumerate(rows):
            check_row(row, f"row {number} of {path}", self.needed, self.shapes)
            check_facts(row, self.facts, f"row {number} of {path}")
        if state.get("done") is None:
            raise sgm.StoreError(f"{path} has no number of finished cleanup steps")
        if not self.memory:
            return
        name = state.get("memory")
        if not isinstance(name, str) or not _MEMORY.fullmatch(name):
            raise sgm.StoreError(f"{path} has memory {str(name)[:80]!r}; accepted: memory.sgm or memory-NUMBER.sgm")
        if os.path.realpath(self.folder / name) != os.path.join(os.path.realpath(self.folder), name):
            raise sgm.StoreError(f"{self.folder / name} is a link; accepted: the file itself")


# -- claiming a folder -------------------------------------------------------------------------------------------


def claim_folder(
    out: Path,
    settings: dict[str, Any],
    states: Iterable[StateFile],
    held: Sequence[str],
    *,
    resume: bool,
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Claim a folder for a run; refuse it if it holds a run with other settings, or entries that no run writes.

    Args:
        out: the folder, created if needed.
        settings: settings that must be equal in all runs in the folder, as JSON values.
        states: state files to resume from; all are checked before anything is changed.
        held: names that runs of the benchmark write, with "*" for a number: `Benchmark.held`.
        resume: resume the run in the folder; otherwise remove the files of the earlier run from folders in `held`.
        defaults: values that earlier versions used for settings that they did not store.
    """
    path = out / "settings.json"
    mine, before = (json.loads(json.dumps(dict(values or {}))) for values in (settings, defaults))
    require_own_files(out, held)
    if resume:
        theirs = read_object(path, {}, _CLAIM)
        known = {name: value for name, value in before.items() if name in mine}
        _require_same(out, mine, None if theirs is None else {**known, **theirs})
        for state in states:
            state.read()
    else:
        _remove_files(out, held)
    write_json(path, mine)


def piece_name(axis: str, value: int | str) -> str:
    """Folder name of a piece along one axis: "seed3", "dataset-pointmaze-giant-stitch-v0"."""
    return f"{axis}-{value}" if isinstance(value, str) else f"{axis}{value}"


def find_pieces(out: Path, axes: Iterable[str]) -> list[dict[str, Any]]:
    """Pieces that have a folder in a run folder, for example {"layout": 0, "seed": 3} for layout0/seed3."""
    axes = tuple(axes)
    named = re.compile("/".join(f"{axis}(0|[1-9][0-9]{{0,17}}|{_NAMED})" for axis in axes))
    names = sorted(path.relative_to(out).as_posix() for path in out.glob("/".join(f"{axis}*" for axis in axes)))
    found = [tuple(map(_piece_value, match.groups())) for name in names if (match := named.fullmatch(name))]
    return [dict(zip(axes, values, strict=True)) for values in sorted(found)]


def _piece_value(text: str) -> int | str:
    return text[1:] if text.startswith("-") else int(text)


def _remove_files(out: Path, held: Sequence[str]) -> None:
    """Remove the files of a run from folders of these names; other files and the targets of links stay."""
    run = re.compile("|".join(re.escape(name).replace(r"\*", f"([0-9]*|{_NAMED})") for name in held))
    for path in list(_everything(out, held)):
        ours = run.fullmatch(path.relative_to(out).parts[0]) and path.suffix in (*_FILES, ".new")
        if ours and path.parent != out and (path.is_symlink() or not path.is_dir()):
            path.unlink(missing_ok=True)


def _require_same(out: Path, mine: dict[str, Any], theirs: dict[str, Any] | None) -> None:
    """Raise an error if settings differ. Files that they name, for example a map, are not opened."""
    if theirs is None or theirs == mine:
        return
    names = [name for name in mine if theirs.get(name) != mine[name]]
    differing = f"{', '.join(names)} differ" if names else "some are unknown to this version"
    raise sgm.SGMError(
        f"{out} holds a run with other settings ({differing}). Choose another folder with --out, "
        "or start over in this one with --no-resume."
    )


def require_own_files(out: Path, held: Sequence[str]) -> None:
    """Raise StoreError if a link leads out of a run folder, or if a file and a folder are interchanged in it.

    Args:
        out: the run folder.
        held: names that runs of the benchmark write: `Benchmark.held`.
    """
    root = os.path.realpath(out)
    for path in _everything(out, held):
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:  # another run in the same folder has just replaced it
            continue
        if stat.S_ISLNK(mode):
            if not _is_inside(path, root):
                raise sgm.StoreError(
                    f"{path} leads out of the run folder, to {os.path.realpath(path)}: remove the link, put what it "
                    "leads to in its place, or choose another folder with --out"
                )
        elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise sgm.StoreError(f"{path} is neither a file nor a folder: remove it")
        elif stat.S_ISDIR(mode) and path.suffix in _FILES:
            raise sgm.StoreError(f"{path} is a folder, expected a file: remove it")


def _everything(out: Path, held: Sequence[str]) -> Iterator[Path]:
    """All paths in a folder that a run may have written."""
    for pattern in (*_HELD, *held):
        for top in out.glob(pattern):
            yield top
            if not top.is_symlink():
                for folder, folders, files in os.walk(top):
                    yield from (Path(folder, name) for name in (*folders, *files))


def _is_inside(path: Path, root: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(root)
