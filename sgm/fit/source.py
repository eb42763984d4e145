"""Sources of experience, by name: `gym:ID`, `minari:ID`, `ogbench:NAME`, `images:FOLDER`, or a file or folder."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium

import sgm
from sgm import data as sources
from sgm.benchmarks.seeds import Purpose, seed_for
from sgm.data.experience import joined
from sgm.data.images import empty_folders
from sgm.distributed.collecting import Part, collect_parts

from .environment import make_env
from .folder import DATA
from .settings import FitSettings, arguments

ACCEPTED = (
    "gym:ID (a Gymnasium environment), minari:ID, ogbench:NAME, images:FOLDER (of walks, or a video), or an .npz file "
    "or folder that sgm.data.save has written"
)
KINDS = ("gym", "minari", "ogbench", "images")
# Arguments in error messages of the library, and the options of the command that replace them.
_OPTIONS = {"download=True": "--download", "size=(width, height)": "--size N", "key is ": "--key is "}
PART = 20_000  # environment steps collected between two writes


class Source(NamedTuple):
    """A source of experience.

    Attributes:
        kind: "gym", "minari", "ogbench", "images" or "file".
        name: id, name or path of the source.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        """Return the source as an argument of the command."""
        return self.name if self.kind == "file" else f"{self.kind}:{self.name}"

    @property
    def env(self) -> str | None:
        """Environment of the source, as an argument of `sgm evaluate --env`; None if it is unknown."""
        return {"gym": self.name, "ogbench": str(self)}.get(self.kind)


def parse_source(text: str) -> Source:
    """Parse the name of a source; InputError if it is invalid or does not exist."""
    kind, colon, name = text.partition(":")
    if colon and kind in KINDS:
        if not name:
            raise sgm.InputError(f"the source is {text!r}, without a name: expected {ACCEPTED}")
        if kind == "images" and not Path(name).exists():
            raise sgm.InputError(f"the source is {text!r}, but {name} does not exist: expected {ACCEPTED}")
        return Source(kind, name)
    path = Path(text)
    if path.suffix == ".npz" or path.exists():
        _require_experience(path)
        return Source("file", text)
    raise sgm.InputError(f"the source is {text!r}: expected {ACCEPTED}")


def _require_experience(path: Path) -> None:
    if not path.exists():
        raise sgm.InputError(f"the source is {path}, which does not exist: expected {ACCEPTED}")
    if path.is_dir() and not (path / "observations.npy").is_file():
        raise sgm.InputError(
            f"the source is the folder {path}, which has no observations.npy: expected {ACCEPTED}; for images give "
            f"images:{path}"
        )


def open_source(source: Source, settings: FitSettings, folder: Path, resume: bool) -> sgm.Experience | None:
    """Read the experience of a source; None if it must be collected, after testing the environment for one step.

    Nothing is written, so a source that cannot be used leaves the folder unchanged.

    Args:
        source: source of experience.
        settings: settings of the fit.
        folder: folder of the agent.
        resume: use experience already collected in the folder; then the environment is not tested.
    """
    with _options_named():
        if source.kind != "gym":
            return _read(source, settings)
        if not (resume and (folder / DATA).is_file()):
            env, _ = make_env(source.name, 1, arguments(settings.env_arg))
            with contextlib.closing(env):
                _collect_part(env, source.name, settings, 1, 0, False)
        return None


@contextlib.contextmanager
def _options_named() -> Iterator[None]:
    """Replace arguments by options of the command in errors of the library."""
    try:
        yield
    except sgm.InputError as error:
        text = str(error)
        for word, option in _OPTIONS.items():
            text = text.replace(word, option)
        raise sgm.InputError(text) from error


def _read(source: Source, settings: FitSettings) -> sgm.Experience:
    if source.kind == "minari":
        keys = {"key": settings.key, "position_key": settings.position_key, "download": settings.download}
        return sources.from_minari(source.name, **keys)  # type: ignore[arg-type]
    if source.kind == "ogbench":
        return sources.from_ogbench(source.name, settings.dataset_dir, seed=settings.seed)
    if source.kind == "images":
        for path in empty_folders(Path(source.name)):
            print(f"left out: {path}, which has no images")
        return sources.from_images(source.name, settings.size, every=settings.every, skip_empty=True)
    return sources.load(source.name)


# -- collecting in parts, so that an interrupted collection resumes ----------------------------------------------


def collect(source: Source, settings: FitSettings, folder: Path, progress: bool) -> sgm.Experience:
    """Collect the experience of a `gym:` source into the folder; parts that are already there are kept."""
    with _options_named():
        return _collect(source.name, settings, folder, progress)


def _collect(name: str, settings: FitSettings, folder: Path, progress: bool) -> sgm.Experience:
    whole = folder / DATA
    if whole.is_file():
        return sources.load(whole)
    parts = [folder / "data" / f"part-{number}.npz" for number in range(-(-settings.steps // PART))]
    missing = [number for number, path in enumerate(parts) if not path.is_file()]
    if missing and settings.workers > 1:
        _collect_by_workers(name, settings, {number: parts[number] for number in missing}, progress)
    elif missing:
        env, _ = make_env(name, settings.envs, arguments(settings.env_arg))
        try:
            for number in missing:
                data = _collect_part(env, name, settings, _steps_of(settings, number), number, progress)
                sources.save(data, parts[number])
        finally:
            env.close()
    data = joined([sources.load(path) for path in parts])
    sources.save(data, whole)
    for path in parts:
        path.unlink()
    (folder / "data").rmdir()
    return sources.load(whole)


def _steps_of(settings: FitSettings, part: int) -> int:
    return min(PART, settings.steps - part * PART)


def _collect_by_workers(name: str, settings: FitSettings, files: dict[int, Path], progress: bool) -> None:
    """Collect parts with several workers; each part is written as soon as it is finished."""
    env, _ = make_env(name, 1, arguments(settings.env_arg))
    with contextlib.closing(env):
        hold = _hold(env, settings)
    parts = [Part(number, _steps_of(settings, number), _seed_of(settings, number)) for number in files]
    make = functools.partial(_make_env, name, settings.envs, arguments(settings.env_arg))
    how = {"hold": hold, **_how(settings)}
    workers = min(settings.workers, len(parts))
    for part, data in collect_parts(make, parts, workers, settings.backend, progress=progress, how=how):
        sources.save(dataclasses.replace(data, source=_made(name, hold)), files[part.number])


def _make_env(name: str, number: int, given: dict[str, Any]) -> Any:
    return make_env(name, number, given)[0]


def _collect_part(
    env: Any, name: str, settings: FitSettings, steps: int, number: int, progress: bool
) -> sgm.Experience:
    hold = _hold(env, settings)
    seed = _seed_of(settings, number)
    data = sgm.collect(env, steps, hold=hold, seed=seed, progress=progress, **_how(settings))
    return dataclasses.replace(data, source=_made(name, hold))


def _how(settings: FitSettings) -> dict[str, Any]:
    keys = {"key": settings.key, "position_key": settings.position_key}
    return {"episode_steps": settings.episode_steps, **keys}


def _hold(env: Any, settings: FitSettings) -> int:
    return settings.hold or (10 if isinstance(env.single_action_space, gymnasium.spaces.Box) else 1)


def _seed_of(settings: FitSettings, part: int) -> int:
    return seed_for([settings.seed, part], Purpose.EXPLORATION)


def _made(name: str, hold: int) -> str:
    return f"gym:{name}, random actions held for {hold} steps"
