"""Experience in files: one .npz, or a folder of .npy files; both can be larger than the main memory."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError, printable

from .archive import Archive, reading, sync, write_archive
from .experience import OF_EACH_OBSERVATION, Experience

FACTS = "experience.json"
ARRAYS = ("observations", "episodes", "steps", *OF_EACH_OBSERVATION)
VERSION = 1
_ENDS = "terminals"  # stands for episodes in the files of OGBench and others


def save(data: Experience, path: str | os.PathLike[str], *, compress: bool = False) -> None:
    """Write experience; an existing file or folder of experience is replaced as a whole.

    Args:
        data: experience to write.
        path: a file if it ends in .npz, otherwise a folder of .npy files.
        compress: write a smaller file, which `load` reads into memory as a whole; .npz only.
    """
    if not isinstance(data, Experience):
        raise InputError(f"data is {type(data).__name__}: expected sgm.Experience")
    target = Path(path)
    arrays = {name: values for name in ARRAYS if (values := getattr(data, name)) is not None}
    shapes = {name: list(values.shape) for name, values in arrays.items()}
    facts = json.dumps({"format": "sgm experience", "version": VERSION, "source": data.source, "shapes": shapes})
    if target.suffix == ".npz":
        _save_file(target, arrays, facts, compress)
    elif compress:
        raise InputError(f"compress is for .npz files, {target} is a folder: give a name that ends in .npz")
    else:
        _save_folder(target, arrays, facts)


def load(path: str | os.PathLike[str]) -> Experience:
    """Read experience from an .npz or a folder of .npy files; arrays that are not compressed stay on disk.

    Files of your own work too: `observations` (n, ...), and `episodes` (n,) whole numbers or `terminals` (n,) that are
    true at the last observation of each episode; `actions`, `achieved_goals`, `steps`, `positions` and `rewards` where
    there are any. Other arrays are left alone. Checksums of arrays that stay on disk are not verified.
    """
    archive = Archive(Path(path))
    if "observations" not in archive or not ("episodes" in archive or _ENDS in archive):
        found = ", ".join(archive.names) or "no arrays"
        raise InputError(
            f"{printable(str(path))} has {printable(found)}: expected observations, and episodes (the number of each "
            f"one's episode) or {_ENDS} (true at the last one of each episode)"
        )
    arrays = {name: archive.array(name) for name in ARRAYS if name in archive}
    if "episodes" not in arrays:
        arrays["episodes"] = episodes_of(archive.array(_ENDS))
    with reading(archive.path):
        return Experience(**arrays, source=_source(archive))


def episodes_of(terminals: NDArray[Any]) -> NDArray[np.int64]:
    """(n,) number of the episode of each observation, from (n,) whether it is its episode's last one."""
    ends = np.asarray(terminals) != 0
    if ends.ndim != 1:
        raise InputError(f"{_ENDS} have shape {ends.shape}: expected (n,), true at the last observation of an episode")
    return np.concatenate([[0], np.cumsum(ends)])[: len(ends)].astype(np.int64)


def _source(archive: Archive) -> str:
    text = archive.text(FACTS)
    if text is None:
        return str(archive.path.name)
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{FACTS} is no JSON: {error}") from error
    if not isinstance(facts, dict) or facts.get("format") != "sgm experience" or facts.get("version") != VERSION:
        raise InputError(f"{FACTS} is not of sgm experience, version {VERSION}: it was written by something else")
    source = facts.get("source", "")
    return source if isinstance(source, str) else ""


def _save_file(target: Path, arrays: dict[str, NDArray[Any]], facts: str, compress: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        try:
            write_archive(file, arrays, {FACTS: facts}, compress)
            sync(file)
            os.chmod(file.name, 0o666 & ~_umask())
            os.replace(file.name, target)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _save_folder(target: Path, arrays: dict[str, NDArray[Any]], facts: str) -> None:
    old = target.exists()
    if old and not (target.is_dir() and ((target / FACTS).is_file() or not any(target.iterdir()))):
        raise InputError(f"{target} exists and holds no experience: give the name of a new folder, or of an .npz")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as work:
        fresh, aside = Path(work, "new"), Path(work, "old")
        fresh.mkdir()
        for name, values in arrays.items():
            with (fresh / f"{name}.npy").open("wb") as file:
                np.lib.format.write_array(file, values, allow_pickle=False)
                sync(file)
        (fresh / FACTS).write_text(facts, encoding="utf-8")
        if old:
            target.rename(aside)
        fresh.rename(target)
        shutil.rmtree(aside, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
