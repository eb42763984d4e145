"""Combine run folders of one benchmark, for example parts that were run on several machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sgm

from . import BENCHMARKS, load, page
from .base import Benchmark
from .provenance import provenance
from .results import write_json
from .runs import SCHEMA, RunFolder
from .tables import PHASES, Row

_MADE = ("command", "date", "versions", "machine")  # provenance of a part
_SCHEDULE = ("cleanup_steps", "checkpoints")  # parts may have been cleaned up for longer than others


def combine(folders: Sequence[Path], out: Path, command: str = "") -> Path:
    """Write `results.json`, figures and a report from all rows of several run folders; return the path of the report.

    A row that occurs in several folders must have the same outcome in all of them; the first is kept. Runs may differ
    only in the settings that select parts. `parts` in the results records command, date and versions of each folder.

    Args:
        folders: run folders, or folders written by `combine`, of one benchmark.
        out: folder to write to; it may be one of `folders`.
        command: the command line that the results record.
    """
    runs = [RunFolder.read(folder) for folder in folders]
    benchmark = _benchmark(runs)
    settings = _settings(benchmark, runs)
    rows = _rows(benchmark, runs)
    tables = {name: _joined(run.results.get(name) for run in runs) for name in _tables(runs)}
    parts = [part for run in runs for part in run.results.get("parts") or [_part(run)]]
    content = {
        "schema": SCHEMA,
        "benchmark": benchmark.name,
        **provenance(command),
        "parts": parts,
        "settings": {**settings, **benchmark.found(rows)},
        "agent": runs[0].results.get("agent") or {},
        **tables,
        "rows": rows,
    }
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "results.json", content)
    return page.write_report(benchmark, out)


def _benchmark(runs: Sequence[RunFolder]) -> Benchmark:
    """Return the benchmark of all runs; InputError if there are several."""
    names = list(dict.fromkeys(str(run.results.get("benchmark")) for run in runs))
    if len(names) != 1 or names[0] not in BENCHMARKS:
        raise sgm.InputError(
            f"the folders hold results of {', '.join(names)}: expected one benchmark, of {', '.join(BENCHMARKS)}"
        )
    return load(names[0])


def _settings(benchmark: Benchmark, runs: Sequence[RunFolder]) -> dict[str, Any]:
    """Settings of the combined run; InputError if the runs differ in a setting that changes results."""
    free = {*benchmark.free_settings, *_SCHEDULE}
    first = _given(benchmark, runs[0])
    for run in runs[1:]:
        other = _given(benchmark, run)
        unlike = [name for name in {**first, **other} if name not in free and first.get(name) != other.get(name)]
        if unlike:
            raise sgm.InputError(
                f"{runs[0].folder} and {run.folder} differ in {', '.join(unlike)}: results of different settings "
                "cannot be combined"
            )
    schedules = {name: [run.settings[name] for run in runs if name in run.settings] for name in _SCHEDULE}
    longest = {"cleanup_steps": max(schedules["cleanup_steps"], default=0)}
    stages = sorted({step for steps in schedules["checkpoints"] for step in steps})
    return {**first, **longest, "checkpoints": stages}


def _given(benchmark: Benchmark, run: RunFolder) -> dict[str, Any]:
    """Settings of a run; settings that its version did not have yet get the values that it used."""
    settings = dict(run.settings)
    if settings.get("workers", 1) is None:  # in version 0.1.0 the number of simulator processes, now --simulators
        del settings["workers"]
    return {**benchmark.earlier, **settings}


def _rows(benchmark: Benchmark, runs: Sequence[RunFolder]) -> list[Row]:
    """All rows, each once, ordered by piece, method, policy, agent and stage."""
    found: dict[tuple[Any, ...], tuple[Row, Path]] = {}
    for run in runs:
        for row in run.rows:
            key = _key(benchmark, row)
            known, where = found.setdefault(key, (row, run.folder))
            if _outcome(known) != _outcome(row):
                what = ", ".join(str(value) for value in key if value is not None)
                raise sgm.InputError(
                    f"{where} and {run.folder} have different outcomes of {what}: they are not parts of one run"
                )
    places = {name: place for place, name in enumerate([*benchmark.methods, *benchmark.policies])}

    def order(row: Row) -> tuple[Any, ...]:
        axes = [(isinstance(row[axis], str), row[axis]) for axis in benchmark.axes]
        names = [places.get(str(row.get(name)), -1) for name in ("method", "policy")]
        return (*axes, *names, PHASES.index(row["phase"]), row["cleanup_steps"])

    return sorted((row for row, _ in found.values()), key=order)


def _key(benchmark: Benchmark, row: Row) -> tuple[Any, ...]:
    """Values that identify a row."""
    names = (*benchmark.axes, "method", "policy", "agent", "phase", "cleanup_steps")
    return tuple(row.get(name) for name in names)


def _outcome(row: Row) -> tuple[Any, ...]:
    """Values that must be equal whenever a row is run again."""
    return row["episodes"], row["successes"], row.get("outcomes"), row["nodes"], row["edges"]


def _tables(runs: Sequence[RunFolder]) -> list[str]:
    """Names of the entries beside the rows that describe pieces."""
    known = {"schema", "benchmark", *_MADE, "parts", "settings", "agent", "rows"}
    return list(dict.fromkeys(name for run in runs for name in run.results if name not in known))


def _joined(values: Iterable[Any]) -> dict[str, Any]:
    """Merge objects; the first value of a name wins."""
    joined: dict[str, Any] = {}
    for value in values:
        joined = {**(value if isinstance(value, Mapping) else {}), **joined}
    return dict(sorted(joined.items()))


def _part(run: RunFolder) -> dict[str, Any]:
    """Provenance of a run, and its number of rows."""
    return {**{name: run.results.get(name) for name in _MADE}, "rows": len(run.rows)}
