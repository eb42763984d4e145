"""The folder of an agent: its files, the record of finished stages, and reading the agent from it.

`settings.json`: source and settings. `fit.json`: the finished stages, each with its facts. `data.npz`: collected
experience. `memory_distance.safetensors`, `controller.safetensors`, `memory.sgm` and `agent.json`: the agent, see
`sgm.navigation.folder`; without actions there is no controller and no agent.json. `cleanup.json`: cleanup so far;
`memory-built.sgm`: the memory before cleanup. `floor.json`, `episodes.npz` and `guarantee.json`: data for the
inspector, see `sgm.navigation.beside`. `evaluations/`: a file for each evaluation. `plans/`, `figures/`, `report.html`.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sgm
from sgm.benchmarks.checks import COUNT, NUMBER, SOME, TEXT, Each, Several, Shape
from sgm.benchmarks.provenance import provenance
from sgm.benchmarks.results import claim_folder, read_object, require_own_files, write_json

# Module and class of each distance.
DISTANCES = {
    "regression": ("sgm.distances.regression", "RegressionDistance"),
    "quasimetric": ("sgm.distances.quasimetric", "QuasimetricDistance"),
    "contrastive": ("sgm.distances.contrastive", "ContrastiveDistance"),
    "closeness": ("sgm.distances.sptm", "ClosenessDistance"),
}
DISTANCE, CONTROLLER, MEMORY = "memory_distance.safetensors", "controller.safetensors", "memory.sgm"
BUILT, DATA, SETTINGS = "memory-built.sgm", "data.npz", "settings.json"
SEEN = "seen.npz"  # positions of the experience
BUILT_GUARANTEE = "memory-built.guarantee.json"
_BESIDE = ("floor.json", "episodes.npz", "guarantee.json", BUILT_GUARANTEE)  # see `sgm.navigation.beside`
_MAY_DIFFER = {"device", "workers", "backend"}  # settings that may change when a fit is resumed
_FACTS = ("fit.json", "agent.json", "cleanup.json", "report.html")
_FILES = (*_FACTS, DATA, SEEN, DISTANCE, CONTROLLER, MEMORY, BUILT, *_BESIDE)
_FOLDERS = ("data", "checkpoints", "evaluations", "plans", "cleanup", "figures")
_CURVE: Shape = {**dict.fromkeys(("lags", "low", "median", "high"), Several(NUMBER)), "others": NUMBER}
_QUALITY: Shape = {
    **dict.fromkeys(("near", "far", "rank_correlation"), NUMBER),
    "judged_by": TEXT,
    "accepted": Several(dict.fromkeys(("recall", "threshold", "false"), NUMBER)),
}
_STAGE: Shape = {
    "quality": _QUALITY,
    **dict.fromkeys(("seconds", "noise", "far"), NUMBER),
    **dict.fromkeys(("kind", "source", "digest", "dtype", "position"), TEXT),
    **dict.fromkeys(("observations", "episodes", "reach"), COUNT),
    **dict.fromkeys(("shape", "actions", "goals"), Several(COUNT)),
    "why": Several(TEXT),
    "curve": _CURVE,
}
_RESULT: Shape = {
    **dict.fromkeys(("success_rate", "mean_steps", "seconds_per_action"), NUMBER),
    "episodes": SOME,
    "ci95": Several(NUMBER),
    "reasons": Each(TEXT, COUNT),
    "by_task": Each(TEXT, {"episodes": SOME, "successes": COUNT}),
}
EVALUATION: Shape = {"env": TEXT, "seed": COUNT, "cleanup_steps": COUNT, "methods": Each(TEXT, _RESULT), "date": TEXT}
_IN_RESULTS = ("success_rate", "seconds_per_action", "episodes", "ci95", "reasons")
_REMEDY = "make the agent again with --no-resume, or in another folder"


def require_claimable(folder: Path, source: str, settings: Any, resume: bool) -> None:
    """Raise SGMError if a folder cannot be used for a source and settings; the folder is not changed."""
    _require_own(folder, source)
    require_own_files(folder, _FOLDERS)
    if resume:
        _require_same(folder, _asked(source, settings))


def claim(folder: Path, source: str, settings: Any, resume: bool) -> None:
    """Prepare a folder for a source and settings, and remove the files of an earlier fit unless it is resumed.

    Call `require_claimable` first: it refuses a folder with other contents.
    """
    if not resume or not _holds_work(folder):
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
    (folder / SETTINGS).unlink(missing_ok=True)  # `require_claimable` has compared them
    claim_folder(folder, _asked(source, settings), (), _FOLDERS, resume=resume)


def _asked(source: str, settings: Any) -> dict[str, Any]:
    """Return the content of `settings.json`."""
    asked: dict[str, Any] = plain({"source": source, **dataclasses.asdict(settings)})
    return asked


def _holds_work(folder: Path) -> bool:
    """Whether a folder has results of a fit: collected experience, a network, a checkpoint or a memory."""
    kept = [folder / name for name in (DATA, DISTANCE, CONTROLLER, MEMORY)]
    parts = [path for name in ("data", "checkpoints") for path in (folder / name).glob("*")]
    return bool(parts) or any(path.exists() for path in kept)


def _require_same(folder: Path, mine: dict[str, Any]) -> None:
    """Raise SGMError if a folder was made with other settings, except those of `_MAY_DIFFER`."""
    theirs = read_object(folder / SETTINGS, {}, _REMEDY)
    if theirs is None or not _holds_work(folder):
        return
    names = {**mine, **theirs}.keys() - _MAY_DIFFER
    if differing := sorted(name for name in names if theirs.get(name) != mine.get(name)):
        raise sgm.SGMError(
            f"{folder} holds a run with other settings ({', '.join(differing)} differ). Choose another folder with "
            "--out, or start over in this one with --no-resume."
        )


def _require_own(folder: Path, source: str) -> None:
    """Raise SGMError if a folder contains the source, or files with the names of a fit that no fit has made."""
    if folder.exists() and Path(source).exists() and Path(source).resolve().is_relative_to(folder.resolve()):
        raise sgm.SGMError(f"the source {source} is in {folder}: choose another folder with --out")
    settings = read_object(folder / SETTINGS, {}, _REMEDY)
    foreign = [name for name in (*_FILES, *_FOLDERS) if (folder / name).exists()]
    if foreign and (settings is None or "source" not in settings):
        raise sgm.SGMError(
            f"{folder} holds {', '.join(foreign)}, which sgm fit has not made: choose another folder with --out"
        )


class Record:
    """`fit.json`: the finished stages of a fit with their facts, written after each."""

    def __init__(self, folder: Path, command: str = "") -> None:
        """Read the finished stages of a folder."""
        self.path = folder / "fit.json"
        shape: Shape = {"stages": Each(TEXT, _STAGE), "versions": Each(TEXT, TEXT)}
        self.content: dict[str, Any] = read_object(self.path, shape, _REMEDY) or {"stages": {}}
        self.command = command

    @property
    def stages(self) -> dict[str, Any]:
        """Facts of each finished stage, by name."""
        found: dict[str, Any] = self.content.setdefault("stages", {})
        return found

    @contextmanager
    def stage(self, name: str, begin: float | None = None) -> Iterator[dict[str, Any]]:
        """Run a stage: yields a dict of facts to fill in, and stores it with the time since `begin` at the end."""
        begin, facts = time.monotonic() if begin is None else begin, dict[str, Any]()
        yield facts
        self.stages[name] = {**facts, "seconds": round(time.monotonic() - begin, 1)}
        self.content = {**provenance(self.command), "stages": self.stages}
        write_json(self.path, self.content)


class Agent:
    """An agent, or a memory without a controller, read from a folder."""

    def __init__(self, folder: Path, memory: str = MEMORY) -> None:
        """Read networks and memory; `memory` is the file of the memory, `MEMORY` or `BUILT`."""
        self.folder = Path(folder)
        if not (self.folder / memory).is_file():
            raise sgm.StoreError(
                f"{folder} holds no {MEMORY}: give the folder of an agent, made with sgm fit SOURCE --out {folder}"
            )
        self.record = Record(self.folder)  # read before any work is done
        self.navigator: sgm.Navigator | None = None
        if (self.folder / "agent.json").is_file():
            self.navigator = sgm.Navigator.load(self.folder, memory=memory)
            self.memory = self.navigator.memory
        else:
            self.memory = sgm.SparseGraphicalMemory.load(self.folder / memory, self._distance())

    def _distance(self) -> Any:
        kind = (self.record.stages.get("distance") or {}).get("kind")
        if kind not in DISTANCES or not (self.folder / DISTANCE).is_file():
            raise sgm.StoreError(f"{self.folder} does not say which distance its memory was made with: {_REMEDY}")
        return load_distance(self.folder, kind)

    def require_controller(self, what: str) -> sgm.Navigator:
        """Return the agent; InputError if there is only a memory."""
        if self.navigator is None:
            lacks = f"{self.folder} holds a memory without a controller, which can plan but not act: "
            if (self.record.stages.get("experience") or {}).get("actions") is not None:
                raise sgm.InputError(
                    f"{lacks}it was made with --no-controller. For {what} run sgm fit again without that, in another "
                    "folder, or in this one with --no-resume"
                )
            raise sgm.InputError(
                f"{lacks}{what} needs an agent made from a source with actions (gym:, minari:, ogbench:, or an .npz "
                "with actions)"
            )
        return self.navigator


def evaluations(folder: Path) -> list[dict[str, Any]]:
    """Read the results of all evaluations of an agent, by date; StoreError if a file is damaged."""
    found = []
    for path in sorted((folder / "evaluations").glob("*.json")):
        remedy = "remove the file, or evaluate again"
        each = read_object(path, EVALUATION, remedy) or {}
        results = (each.get("methods") or {}).values()
        whole = all(each.get(name) is not None for name in ("env", "seed", "cleanup_steps", "methods"))
        if not whole or any(result.get(name) is None for result in results for name in _IN_RESULTS):
            raise sgm.StoreError(f"{path} is incomplete: {remedy}")
        if any(len(result["ci95"]) != 2 for result in results):
            raise sgm.StoreError(f"{path} has a confidence interval without two ends: {remedy}")
        found.append(each)
    return sorted(found, key=lambda each: str(each.get("date")))


def load_distance(folder: Path, kind: str) -> Any:
    """Read the distance of this kind from a folder."""
    module, name = DISTANCES[kind]
    return getattr(importlib.import_module(module), name).load(folder / DISTANCE)


def cleanup_steps(folder: Path) -> int:
    """Number of cleanup steps of the memory in a folder."""
    found = read_object(folder / "cleanup.json", {}, _REMEDY) or {}
    return int(found.get("done", 0))


def plain(value: Any) -> Any:
    """Convert a value to plain JSON types."""
    return json.loads(json.dumps(value, default=float))
