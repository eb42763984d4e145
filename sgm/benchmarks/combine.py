"""Results of several run folders of one benchmark as one: parts that were run on other machines, or at other times."""

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

_MADE = ("command", "date", "versions", "machine")  # what made a part
_SCHEDULE = ("cleanup_steps", "checkpoints")  # parts may have been cleaned up for longer than others


def combine(folders: Sequence[Path], out: Path, command: str = "") -> Path:
    """Write `results.json`, figures and the report of all rows of these run folders; the path of the report.

    A row that several folders have must have the same outcome in all of them, and is taken from the first. Of the
    settings only those may differ that say which part is run. `parts` of the results says what made each folder.

    Args:
        folders: run folders, or results that `combine` wrote, of one benchmark.
        out: the folder to write to; it may be one of them.
        command: what the results say made them.
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
    """The benchmark that all runs are of."""
    names = list(dict.fromkeys(str(run.results.get("benchmark")) for run in runs))
    if len(names) != 1 or names[0] not in BENCHMARKS:
        raise sgm.InputError(
            f"the folders hold results of {', '.join(names)}: expected one benchmark, of {', '.join(BENCHMARKS)}"
        )
    return load(names[0])


def _settings(benchmark: Benchmark, runs: Sequence[RunFolder]) -> dict[str, Any]:
    """Those that all have; InputError if any differs that decides a result."""
    free = {*benchmark.free_settings, *_SCHEDULE}
    first = _given(benchmark, runs[0])
    for run in runs[1:]:
        other = _given(benchmark, run)
        unlike = [name for name in {**first, **other} if name not in free and first.get(name) != other.get(name)]
        if unlike:
            raise sgm.InputError(
                f"{runs[0].folder} and {run.folder} differ in {', '.join(unlike)}: results of other settings cannot "
                "be combined"
            )
    schedules = {name: [run.settings[name] for run in runs if name in run.settings] for name in _SCHEDULE}
    longest = {"cleanup_steps": max(schedules["cleanup_steps"], default=0)}
    stages = sorted({step for steps in schedules["checkpoints"] for step in steps})
    return {**first, **longest, "checkpoints": stages}


def _given(benchmark: Benchmark, run: RunFolder) -> dict[str, Any]:
    """The settings of a run, with what runs of earlier versions did where they had no such setting."""
    settings = dict(run.settings)
    if settings.get("workers", 1) is None:  # in version 0.1.0 the processes that simulate, now --simulators
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
                raise sgm.InputError(f"{where} and {run.folder} have other outcomes of {what}: they are not one run")
    places = {name: place for place, name in enumerate([*benchmark.methods, *benchmark.policies])}

    def order(row: Row) -> tuple[Any, ...]:
        axes = [(isinstance(row[axis], str), row[axis]) for axis in benchmark.axes]
        names = [places.get(str(row.get(name)), -1) for name in ("method", "policy")]
        return (*axes, *names, PHASES.index(row["phase"]), row["cleanup_steps"])

    return sorted((row for row, _ in found.values()), key=order)


def _key(benchmark: Benchmark, row: Row) -> tuple[Any, ...]:
    """What tells a row from all others."""
    names = (*benchmark.axes, "method", "policy", "agent", "phase", "cleanup_steps")
    return tuple(row.get(name) for name in names)


def _outcome(row: Row) -> tuple[Any, ...]:
    """What must be the same however often a row is run."""
    return row["episodes"], row["successes"], row.get("outcomes"), row["nodes"], row["edges"]


def _tables(runs: Sequence[RunFolder]) -> list[str]:
    """What a benchmark says of its pieces beside the rows."""
    known = {"schema", "benchmark", *_MADE, "parts", "settings", "agent", "rows"}
    return list(dict.fromkeys(name for run in runs for name in run.results if name not in known))


def _joined(values: Iterable[Any]) -> dict[str, Any]:
    """Objects as one; of a name that several have, the first."""
    joined: dict[str, Any] = {}
    for value in values:
        joined = {**(value if isinstance(value, Mapping) else {}), **joined}
    return dict(sorted(joined.items()))


def _part(run: RunFolder) -> dict[str, Any]:
    """What made a run, and how much of it there is."""
    return {**{name: run.results.get(name) for name in _MADE}, "rows": len(run.rows)}
