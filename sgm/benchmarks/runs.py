"""Run folders found, read, and chosen among: what the tables of the paper are assembled from.

What the fields of `results.json` mean: `docs/results.md`.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sgm

from .checks import NUMBER, TEXT, Several, Shape, check, check_row
from .paper import POINT_ENVIRONMENT
from .results import read_json
from .tables import NONE, Pooled, Row, last_stages, pool

RESULTS = Path("results")  # those that come with the repository
# By how the environment begins; of PointEnv's mazes only the paper's.
BENCHMARKS = {POINT_ENVIRONMENT: "point", "doom:": "doom", "safety:": "safety"}
BENCH = RESULTS / "navigation" / "bench.json"
_SPEED = "Time to take an action"  # how the section of bench.json begins
_DOOM_POLICIES = {"sptm+sgm": "first-failure", "ours": "belief", "ours-random-goals": "belief"}
_SPEED_LINES: Shape = Several({"method": TEXT, "ours_s": NUMBER, "reference_s": NUMBER, "nodes": NUMBER})
_UNKNOWN: Row = dict.fromkeys(("mean_steps", "nodes", "edges", "seconds_per_action"))
# What the paper's PointEnv is; a run with other values comes after those that have these.
_POINT: dict[str, Any] = {"criterion": "two-way", "difficulty": 0.95, "resize": 5, "buffer_size": 1000}
# Settings that may differ between runs that are compared: lines say them, or they decide nothing.
_FREE = ("seeds", "methods", "layouts", "policies", "agents", "workers", "engines")


class Run(NamedTuple):
    """A run folder: the place of what it was found under among the folders given, and what its results.json says."""

    folder: Path
    given: int
    facts: dict[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """All options of the run."""
        return self.facts.get("settings") or {}

    @property
    def made(self) -> str:
        """Folder, command and machine."""
        known = [f"`{self.facts.get('command') or 'command not recorded'}`", self.facts.get("machine")]
        return f"{self.folder.as_posix()}: {', '.join(str(item) for item in known if item)}"


@dataclasses.dataclass(frozen=True)
class Series:
    """One method of one run, with one cleanup policy and one agent: its stages, each pooled over seeds."""

    run: Run
    benchmark: str
    environment: str
    method: str
    policy: str
    agent: str
    stages: tuple[Pooled, ...]

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What only one run may stand for in a table."""
        return self.environment, self.method, self.policy, self.agent

    @property
    def last(self) -> Pooled:
        """After the longest cleanup, of those that most seeds have reached."""
        return last_stages(self.stages)[-1]

    @property
    def cleanup(self) -> str:
        """Policy and agent, as a table says it."""
        return f"{self.policy}, {self.agent} agent" if self.agent not in ("", "plain") else self.policy

    @property
    def odd(self) -> list[str]:
        """Settings that are not the paper's."""
        known = self.run.settings if self.benchmark == "point" else {}
        return [f"{name} = {known[name]}" for name, value in _POINT.items() if known.get(name, value) != value]


@dataclasses.dataclass(frozen=True)
class Found:
    """What there is to make tables from.

    Attributes:
        series: one run for each environment, method, cleanup policy and agent.
        unused: series of other runs with the same.
        speed: seconds per action of one agent by method, from bench.json.
        speed_run: what made that file.
        notes: files that were passed over, and why.
        folders: where this was found.
    """

    series: tuple[Series, ...]
    unused: tuple[Series, ...]
    speed: dict[str, dict[str, Any]]
    speed_run: Run | None
    notes: tuple[str, ...]
    folders: tuple[Path, ...]

    def of(self, benchmark: str, method: str = "") -> list[Series]:
        """The series of a benchmark, or of one of its methods."""
        return [item for item in self.series if item.benchmark == benchmark and method in ("", item.method)]


def default_folders() -> list[Path]:
    """Where to look if nobody says: `runs` if there are any, otherwise the results of the repository."""
    runs = Path("runs")
    return [runs] if next(runs.rglob("results.json"), None) else [RESULTS] if RESULTS.is_dir() else []


def find(folders: Sequence[Path]) -> Found:
    """Read everything under these folders. Of several runs of the same, those under an earlier folder come first, then
    those with the paper's settings, then those with more episodes.
    """
    runs, notes = _runs(folders)
    every = [item for run in runs for item in _series(run)]
    every.sort(key=lambda item: (item.run.given, len(item.odd), -item.last.trials))
    chosen: dict[tuple[str, ...], Series] = {}
    for item in every:
        chosen.setdefault(item.identity, item)
    unused = tuple(item for item in every if chosen[item.identity] is not item)
    order = list(BENCHMARKS.values())
    used = sorted(chosen.values(), key=lambda item: (order.index(item.benchmark), item.run.given, item.run.folder))
    speed, speed_run = _speed(folders)
    return Found(_finished(used), unused, speed, speed_run, notes, tuple(folders))


def _runs(folders: Sequence[Path]) -> tuple[list[Run], tuple[str, ...]]:
    """Run folders at any depth, each once, and a sentence for each file that is none of ours."""
    runs: dict[Path, Run] = {}
    notes: dict[str, None] = {}
    for given, folder in enumerate(folders):
        if not folder.is_dir():
            raise sgm.SGMError(f"{folder} is no folder: give one that holds results.json, at any depth")
        for path in sorted(folder.rglob("results.json")):
            facts = _read(path)
            schema = facts.get("schema")
            if schema == 1:
                check(facts, {"settings": {}}, str(path))
                runs.setdefault(path.resolve(), Run(path.parent, given, facts))
            else:
                notes[f"{path} was not read: it has schema {reprlib.repr(schema)}, known is 1."] = None
    return list(runs.values()), tuple(notes)


def _finished(series: Sequence[Series]) -> tuple[Series, ...]:
    """Without what was only evaluated before cleanup, where another policy of the same method went on to clean.

    Before cleanup all policies have the same graph, but not the same prices: an evaluation of another policy stands in
    only where there is none of its own.
    """
    groups: dict[tuple[Any, ...], list[Series]] = {}
    for item in series:
        groups.setdefault((item.run.folder, item.environment, item.method, item.agent), []).append(item)
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
    """A sentence for each environment whose lines come from runs with different settings."""
    groups: dict[str, dict[Path, Run]] = {}
    for item in series:
        groups.setdefault(item.environment, {})[item.run.folder] = item.run
    notes = []
    for environment, runs in groups.items():
        first, *others = runs.values()
        for other in others:
            names = sorted({*first.settings, *other.settings} - {*_FREE})
            unlike = [name for name in names if first.settings.get(name) != other.settings.get(name)]
            notes.append(
                f"Lines of {environment} come from both {first.folder} and {other.folder}, whose settings "
                + (f"differ in {', '.join(unlike)}." if unlike else "are the same.")
            )
    return notes


# -- reading -----------------------------------------------------------------------------------------------------


def _read(path: Path) -> dict[str, Any]:
    content = read_json(path, "make it again, or give other folders with --runs")
    return content if isinstance(content, dict) else {}


def _series(run: Run) -> list[Series]:
    """The series of the paper's benchmarks that a run has; other environments are left out."""
    rows, path = run.facts.get("rows"), run.folder / "results.json"
    if not isinstance(rows, list):
        raise sgm.StoreError(f"{path} has no list of rows: see docs/results.md for what is accepted")
    groups: dict[tuple[str, str, str, str, str], list[Row]] = {}
    for number, row in enumerate(rows):
        row = _complete(row, f"row {number} of {path}")
        benchmark = next((name for begin, name in BENCHMARKS.items() if row["environment"].startswith(begin)), None)
        if benchmark:
            key = (benchmark, row["environment"], row["method"], _policy(run, row), str(row.get("agent") or ""))
            groups.setdefault(key, []).append(row)
    for key, mine in groups.items():
        once = {(row["phase"], row["cleanup_steps"], row["seed"]) for row in mine}
        if len(once) < len(mine):
            raise sgm.StoreError(
                f"{path} has rows of {' '.join(filter(None, key[1:]))} that cannot be told apart: "
                "expected one for each seed, phase and number of cleanup steps"
            )
    return [
        Series(run, benchmark, environment, method, policy, agent, tuple(pool(mine)))
        for (benchmark, environment, method, policy, agent), mine in groups.items()
    ]


def _complete(row: Any, what: str) -> Row:
    """A row with everything that pooling needs; what is not known is None."""
    if isinstance(row, dict):
        row = {**_UNKNOWN, "cleanup_steps": 0, **row}
        row["environment"] = row.get("environment") or f"safety:rooms{row.get('layout', 0)}"
        row.setdefault("phase", "cleaned" if row["cleanup_steps"] else "initial")
    check_row(row, what)
    return row


def _policy(run: Run, row: Row) -> str:
    """The cleanup policy of a row's method; none where nothing is cleaned."""
    if row["environment"].startswith("doom:"):
        return _DOOM_POLICIES.get(row["method"], NONE)
    if row["environment"].startswith("point:"):
        return str(run.settings.get("policy", NONE)) if row["method"].startswith("sorb") else NONE
    return str(row.get("policy") or NONE)


def _speed(folders: Sequence[Path]) -> tuple[dict[str, dict[str, Any]], Run | None]:
    """Seconds per action of one agent, by method, from the first bench.json that has them; the repository's is last."""
    under = [sorted(folder.rglob("bench.json"), key=lambda path: (len(path.parts), path)) for folder in folders]
    for path in [*(path for paths in under for path in paths), *([BENCH] if BENCH.is_file() else [])]:
        facts = _read(path)
        check(facts, {"sections": {}}, str(path))
        for heading, lines in (facts.get("sections") or {}).items():
            if heading.startswith(_SPEED):
                check(lines, _SPEED_LINES, str(path), "Time to take an action")
                known = [line for line in lines or () if line and line.get("method")]
                return {line["method"]: line for line in known}, Run(path, 0, facts)
    return {}, None
