"""Read run folders, find them, and choose among them.

`docs/results.md` describes run folders and the fields of `results.json`.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sgm

from . import find_benchmark, paper
from .checks import NUMBER, RESULTS, TEXT, Several, Shape, check, check_row
from .results import find_file, piece_name, read_arrays, read_json
from .tables import NONE, Group, Pooled, Row, by_group, last_stages, pool

SCHEMA = 1
COMMITTED = Path("results")  # the results that come with the repository
BENCH = COMMITTED / "navigation" / "bench.json"
_SPEED = "Time to take an action"  # prefix of the section in bench.json
_SPEED_LINES: Shape = Several({"method": TEXT, "ours_s": NUMBER, "reference_s": NUMBER, "nodes": NUMBER})
_REMEDY = "run again with the same --out, or give other folders with --runs"


# -- one run folder ----------------------------------------------------------------------------------------------


class UnknownSchema(sgm.StoreError):
    """A results.json written by another version of sgm, or by another program."""


class RunFolder(NamedTuple):
    """A run folder, to report on or to make tables from.

    Attributes:
        folder: folder of the run.
        results: checked content of `results.json`.
        trusted: settings that the caller vouches for. A file that only `results.json` names is not opened.
    """

    folder: Path
    results: Mapping[str, Any]
    trusted: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, folder: Path, trusted: Mapping[str, Any] | None = None) -> RunFolder:
        """Read `results.json`; SGMError if this version cannot read it."""
        path = Path(folder) / "results.json"
        results = read_json(path, _REMEDY)
        if results is None and not path.exists():
            raise sgm.StoreError(f"{folder} holds no results.json: give the folder of a run (sgm run)")
        schema = results.get("schema") if isinstance(results, dict) else None
        if schema != SCHEMA:
            raise UnknownSchema(f"{path} has schema {reprlib.repr(schema)}; this version of sgm reads schema {SCHEMA}")
        if not isinstance(results.get("rows"), list):
            raise sgm.StoreError(f"{path} has no list of rows: see docs/results.md for what is accepted")
        check(results, RESULTS, str(path))
        run = cls(Path(folder), results, trusted)
        run.require()
        return run

    @property
    def rows(self) -> list[Row]:
        """A row for each seed, method, phase and number of cleanup steps."""
        rows: list[Row] = self.results["rows"]
        return rows

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the run."""
        return self.results.get("settings") or {}

    @property
    def made(self) -> str:
        """Folder, command and machine, as text."""
        return made(self.folder, self.results)

    def require(self, *fields: str) -> None:
        """Raise StoreError unless every row has these fields and those of all benchmarks."""
        for number, row in enumerate(self.rows):
            check_row(row, f"row {number} of {self.folder / 'results.json'}", fields)

    def checked(self, name: str, shape: Shape) -> Any:
        """Return an object of `results.json`; empty if it is missing, StoreError if it has another shape."""
        check(self.results.get(name), shape, f"{self.folder / 'results.json'}", name)
        return self.results.get(name) or {}

    def files(self, **numbers: int | str) -> Files:
        """Files of the seeds in the folder; `numbers` gives the other axes, for example `layout=0`."""
        return Files(self.folder, "".join(f"{piece_name(axis, value)}/" for axis, value in numbers.items()))


def made(path: Path, facts: Mapping[str, Any]) -> str:
    """Describe a file or folder by its path, command and machine."""
    known = [f"`{facts.get('command') or 'command not recorded'}`", facts.get("machine")]
    return f"{path.as_posix()}: {', '.join(str(item) for item in known if item)}"


class Files(NamedTuple):
    """Files of the seeds in a run folder; a missing or damaged file raises an SGMError."""

    folder: Path
    prefix: str = ""

    @property
    def seeds(self) -> list[int]:
        """Seeds that have a folder."""
        names = (path.name[4:] for path in self.folder.glob(f"{self.prefix}seed*"))
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def name(self, seed: int, name: str) -> str:
        """Path of a seed's file relative to the run folder."""
        return f"{self.prefix}seed{seed}/{name}"

    def has(self, seed: int, name: str) -> bool:
        """Whether a seed has a file."""
        return (self.folder / self.name(seed, name)).is_file()

    def first(self, name: str) -> int:
        """First seed that has this file; the first seed if none has it."""
        return next((seed for seed in self.seeds if self.has(seed, name)), min(self.seeds, default=0))

    def arrays(self, seed: int, name: str, *needed: str) -> dict[str, NDArray[Any]]:
        """Read the arrays of a seed's .npz file; StoreError if one of `needed` is missing."""
        return read_arrays(self.folder, self.name(seed, name), *needed)

    def json(self, seed: int, name: str) -> Any:
        """Read a seed's JSON file."""
        return read_json(find_file(self.folder, self.name(seed, name)))

    def memory(self, seed: int, name: str) -> sgm.SparseGraphicalMemory:
        """Read a seed's memory for display; it cannot plan."""
        return sgm.SparseGraphicalMemory.load(find_file(self.folder, self.name(seed, name)), None)


def attribute(memory: sgm.SparseGraphicalMemory, name: str, width: int) -> NDArray[np.float64]:
    """(V, width) values of a node attribute; StoreError if it is missing or has another shape."""
    if name not in memory.attributes:
        raise sgm.StoreError(
            f"the memory has no attribute {name!r} (files of schema 1 have none): run again with --no-resume"
        )
    values = np.asarray(memory.attributes[name], np.float64)
    if values.shape != (len(memory), width) or not np.isfinite(values).all():
        raise sgm.StoreError(
            f"the attribute {name!r} of the memory has shape {values.shape}; accepted: finite ({len(memory)}, {width})"
        )
    return values


# -- many run folders --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Series:
    """One method of one run, with one cleanup policy and one agent.

    Attributes:
        run: the run.
        given: index of the given folder in which the run was found.
        group: environment, method, policy and agent; a table shows one run for each group.
        stages: stages, each pooled over seeds.
    """

    run: RunFolder
    given: int
    group: Group
    stages: tuple[Pooled, ...]

    @property
    def benchmark(self) -> str:
        """Name of the benchmark."""
        return self.group.environment.partition(":")[0]

    @property
    def last(self) -> Pooled:
        """Stage after the longest cleanup that most seeds have finished."""
        return last_stages(self.stages)[-1]

    @property
    def cleanup(self) -> str:
        """Policy and agent, as shown in a table."""
        policy, agent = self.group[2:]
        return policy if agent in (NONE, "plain") else f"{policy}, {agent} agent"

    @property
    def odd(self) -> list[str]:
        """Settings that differ from the paper's."""
        known, expected = self.run.settings, paper.SETTINGS.get(self.benchmark, {})
        return [f"{name} = {known[name]}" for name, value in expected.items() if known.get(name, value) != value]


@dataclasses.dataclass(frozen=True)
class Found:
    """Results found in run folders, the input of the tables.

    Attributes:
        series: one series for each environment, method, cleanup policy and agent.
        unused: series of other runs of the same groups.
        speed: seconds per action of one agent by method, from bench.json.
        speed_made: provenance of bench.json; empty if there is none.
        notes: skipped files, with the reasons.
        folders: folders that were searched.
    """

    series: tuple[Series, ...]
    unused: tuple[Series, ...]
    speed: dict[str, dict[str, Any]]
    speed_made: str
    notes: tuple[str, ...]
    folders: tuple[Path, ...]

    def of(self, benchmark: str, method: str = "") -> list[Series]:
        """Series of a benchmark, or of one of its methods."""
        return [item for item in self.series if item.benchmark == benchmark and method in ("", item.group.method)]


def default_folders() -> list[Path]:
    """Folders that are searched by default: `runs` if it holds any, otherwise the repository's results."""
    runs = Path("runs")
    return [runs] if next(runs.rglob("results.json"), None) else [COMMITTED] if COMMITTED.is_dir() else []


def find(folders: Sequence[Path]) -> Found:
    """Read all results under these folders. Of several runs of the same group, one in an earlier folder is preferred,
    then one with the paper's settings, then one with more episodes.
    """
    every, notes = _all_series(folders)
    every.sort(key=lambda item: (item.given, len(item.odd), -item.last.trials))
    chosen: dict[Group, Series] = {}
    for item in every:
        chosen.setdefault(item.group, item)
    unused = tuple(item for item in every if chosen[item.group] is not item)
    order = list(paper.ENVIRONMENTS)
    used = sorted(chosen.values(), key=lambda item: (order.index(item.benchmark), item.given, item.run.folder))
    return Found(_finished(used), unused, *_speed(folders), notes, tuple(folders))


def _all_series(folders: Sequence[Path]) -> tuple[list[Series], tuple[str, ...]]:
    """Series of run folders at any depth, each once, and a sentence for each file that is skipped."""
    found: dict[Path, list[Series]] = {}
    notes: dict[str, None] = {}
    for given, folder in enumerate(folders):
        if not folder.is_dir():
            raise sgm.SGMError(f"{folder} is not a folder: give one that holds results.json, at any depth")
        for path in sorted(folder.rglob("results.json")):
            try:
                if path.resolve() not in found:
                    found[path.resolve()] = _series(RunFolder.read(path.parent), given)
            except UnknownSchema as error:
                notes[f"{error}."] = None
    return [item for series in found.values() for item in series], tuple(notes)


def _series(run: RunFolder, given: int) -> list[Series]:
    """Series of a run in the paper's environments; other environments are left out."""
    begin = tuple(paper.ENVIRONMENTS.values())
    rows = [{**row, "policy": _policy(run, row)} for row in run.rows if row["environment"].startswith(begin)]
    groups = by_group(pool(rows))
    for group, stages in groups.items():
        if any(len(stage.rows) > stage.seeds for stage in stages):
            raise sgm.StoreError(
                f"{run.folder / 'results.json'} has rows of {' '.join(group)} that cannot be told apart: "
                "expected one for each seed, phase and number of cleanup steps"
            )
    return [Series(run, given, group, tuple(stages)) for group, stages in groups.items()]


def _policy(run: RunFolder, row: Row) -> str | None:
    """Cleanup policy of a row: its own, its method's, or the run's; None without cleanup."""
    benchmark = find_benchmark(row["environment"])
    method = benchmark.methods.get(row["method"]) if benchmark else None
    if row.get("policy") or method is None or not (method.build and method.cleaned):
        return row.get("policy")
    return method.policy or str(run.settings.get("policy", NONE))


def _finished(series: Sequence[Series]) -> tuple[Series, ...]:
    """Drop series evaluated only before cleanup if another policy of the same method was also cleaned up.

    Before cleanup all policies have the same graph, but not the same edge costs: the evaluation of another policy is
    used only if a policy has none.
    """
    groups: dict[tuple[Path, Group], list[Series]] = {}
    for item in series:
        groups.setdefault((item.run.folder, item.group._replace(policy="")), []).append(item)
    kept = []
    for group in groups.values():
        initial = [stage for item in group for stage in item.stages if stage.phase == "initial"][:1]
        cleaned = [item for item in group if any(stage.phase == "cleaned" for stage in item.stages)]
        for item in cleaned or group:
            begun = any(stage.phase == "initial" for stage in item.stages)
            stages = item.stages if begun else (*initial, *item.stages)
            kept.append(dataclasses.replace(item, stages=stages))
    return tuple(kept)


def differing(series: Iterable[Series]) -> list[str]:
    """A sentence for each environment whose table rows come from runs with different settings."""
    groups: dict[str, dict[Path, RunFolder]] = {}
    for item in series:
        groups.setdefault(item.group.environment, {})[item.run.folder] = item.run
    notes = []
    for environment, runs in groups.items():
        first, *others = runs.values()
        benchmark = find_benchmark(environment)
        free = {*(benchmark.free_settings if benchmark else ()), "agents"}
        for other in others:
            names = sorted({*first.settings, *other.settings} - free)
            unlike = [name for name in names if first.settings.get(name) != other.settings.get(name)]
            notes.append(
                f"Lines of {environment} come from both {first.folder} and {other.folder}, whose settings "
                + (f"differ in {', '.join(unlike)}." if unlike else "are the same.")
            )
    return notes


def _speed(folders: Sequence[Path]) -> tuple[dict[str, dict[str, Any]], str]:
    """Seconds per action of one agent, by method, from the first bench.json that has them, and its provenance.

    The repository's own file is read last.
    """
    under = [sorted(folder.rglob("bench.json"), key=lambda path: (len(path.parts), path)) for folder in folders]
    for path in [*(path for paths in under for path in paths), *([BENCH] if BENCH.is_file() else [])]:
        content = read_json(path, _REMEDY)
        facts = content if isinstance(content, dict) else {}
        check(facts, {"sections": {}}, str(path))
        for heading, lines in (facts.get("sections") or {}).items():
            if heading.startswith(_SPEED):
                check(lines, _SPEED_LINES, str(path), "Time to take an action")
                known = [line for line in lines or () if line and line.get("method")]
                known = [line for line in known if line.get("waypoint_test") != "neighbours"]  # not the paper's test
                return {line["method"]: line for line in known}, made(path, facts)
    return {}, ""
