"""Kill, break and damage memory files for about an hour, and write what was found to `torture.json` and `torture.md`.

    python -m tests.torture --out results/trust [--only PART] [--scale 0.1]

A part that is finished is kept, and skipped the next time. The exit code is 1 if a figure is not 0 that has to be.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes that are forked must not have threads
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sgm.benchmarks.provenance import provenance
from sgm.progress import progress_bar
from tests.torture import endurance, faults, kills, mutations, readers

Run = Callable[[float, int], dict[str, Any]]
_CHUNKS = 10  # steps of a progress bar where a part has none of its own
WHAT = {
    "kills": "A writer is killed at drawn calls and file operations, while others load its file.",
    "mutations": "Damaged files are loaded by a process that may take less than 1 GB.",
    "readers": "Processes load a file again and again while another one writes it.",
    "endurance": "One live file takes in tries and observations.",
    "faults": "Every file operation and every statement fails in turn.",
    "stateful": "Calls in any order, beside a model in plain Python.",
}


def main() -> int:
    """Run the parts that are not there yet, and write the report."""
    options = _options()
    tqdm.monitor_interval = 0  # its thread would be forked half
    report = Report(options.out)
    for name, (zeros, run) in parts().items():
        if options.only and name.split(":")[0] != options.only:
            continue
        if not options.again and report.has(name, options.scale, options.seed):
            print(f"{name}: kept from {report.parts[name]['date']}")
            continue
        start = time.monotonic()
        figures = run(options.scale, options.seed)
        facts = {"scale": options.scale, "seed": options.seed, "seconds": round(time.monotonic() - start)}
        report.add(name, zeros, figures, facts)
    print(f"wrote {options.out / 'torture.json'} and {options.out / 'torture.md'}")
    return report.exit_code()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/trust"), help="folder of the figures")
    parser.add_argument("--only", choices=list(WHAT), help="one part instead of all")
    parser.add_argument("--scale", type=float, default=1.0, help="size of every part; 1 is an hour")
    parser.add_argument("--seed", type=int, default=0, help="seed of what is drawn")
    parser.add_argument("--again", action="store_true", help="also run what is finished")
    return parser.parse_args()


# -- the parts ---------------------------------------------------------------------------------------------------


def parts() -> dict[str, tuple[tuple[str, ...], Run]]:
    """By name: which figures have to be 0, and how to get them for a scale and a seed."""

    def sized(number: int, scale: float) -> int:
        return max(10, round(number * scale))

    found: dict[str, tuple[tuple[str, ...], Run]] = {
        "kills": (kills.ZEROS, lambda scale, seed: kills.run(sized(1000, scale), seed, progress=True)),
        "mutations": (
            mutations.ZEROS,
            lambda scale, seed: mutations.run(sized(100_000, scale), seed, progress=True),
        ),
        "readers": (readers.ZEROS, lambda scale, seed: readers.run(600 * scale, seed=seed, progress=True)),
        "endurance": (
            endurance.ZEROS,
            lambda scale, seed: endurance.run(sized(2_000_000, scale), sized(200_000, scale), seed, progress=True),
        ),
    }
    for kind in faults.KINDS:
        found[f"faults: {kind}"] = (tuple(faults.COUNTS), lambda scale, _, kind=kind: _faults(kind, scale))
    return {**found, "stateful": (("mismatches",), _states)}


def _faults(kind: str, scale: float) -> dict[str, Any]:
    """Every so many-th fault of a kind, in chunks, so that there is a bar."""
    stride, chunks = max(1, round(1 / scale)), []
    with progress_bar(shown=True, total=_CHUNKS, desc=f"faults: {kind}", unit="part") as bar:
        for first in range(_CHUNKS):
            chunks.append(faults.run(kind, stride * _CHUNKS, stride * first))
            bar.update()
    return {**_sums(chunks), "violations": _joined(chunks, "violations")}


def _states(scale: float, seed: int) -> dict[str, Any]:
    """Examples of the stateful test, in chunks."""
    from tests.memory import test_stateful  # here, since pytest and Hypothesis would be forked with the other parts

    chunks = []
    with progress_bar(shown=True, total=_CHUNKS, desc="stateful", unit="part") as bar:
        for chunk in range(_CHUNKS):
            chunks.append(test_stateful.run(max(1, round(2000 * scale / _CHUNKS)), seed=1000 * seed + chunk))
            bar.update()
    calls = sum((Counter(chunk["calls"]) for chunk in chunks), Counter())
    return {**_sums(chunks), "calls": dict(sorted(calls.items())), "violations": _joined(chunks, "reports")}


def _sums(chunks: list[dict[str, Any]]) -> dict[str, int]:
    names = [name for name, value in chunks[0].items() if isinstance(value, int)]
    return {name: sum(chunk.get(name, 0) for chunk in chunks) for name in names}


def _joined(chunks: list[dict[str, Any]], name: str) -> list[str]:
    return [line for chunk in chunks for line in chunk[name]]


# -- the report --------------------------------------------------------------------------------------------------


class Report:
    """The figures of all parts, in `torture.json`, and as tables in `torture.md`."""

    def __init__(self, out: Path) -> None:
        """Go on with what is in a folder."""
        self.out = out
        self.file = out / "torture.json"
        self.parts: dict[str, dict[str, Any]] = {}
        if self.file.exists():
            self.parts = json.loads(self.file.read_text())["parts"]

    def has(self, name: str, scale: float, seed: int) -> bool:
        """Whether a part was finished before, at this scale and with this seed."""
        part = self.parts.get(name, {})
        return (part.get("scale"), part.get("seed")) == (scale, seed)

    def add(self, name: str, zeros: tuple[str, ...], figures: dict[str, Any], facts: dict[str, Any]) -> None:
        """Show a part, and write everything."""
        made_by = provenance(" ".join(["python -m tests.torture", *sys.argv[1:]]))
        versions = {name: made_by["versions"][name] for name in ("python", "sgm", "numpy", "scipy")}
        made_by["versions"] = {**versions, "sqlite": sqlite3.sqlite_version}
        self.parts[name] = {**facts, **made_by, "zeros": list(zeros), "figures": figures}
        broken = not_zero(self.parts[name])
        print(f"{name}: {facts['seconds']} s, {', '.join(broken) if broken else 'all as promised'}", flush=True)
        for line in figures.get("violations", []):
            print(f"  {line}", flush=True)
        self.out.mkdir(parents=True, exist_ok=True)
        _write(self.file, json.dumps({"parts": self.parts}, indent=2) + "\n")
        _write(self.out / "torture.md", self.markdown())

    def exit_code(self) -> int:
        """1 if a figure is not 0 that has to be."""
        return int(any(not_zero(part) for part in self.parts.values()))

    def markdown(self) -> str:
        """A table of all parts, then their figures."""
        lines = ["# What a memory file survives", "", "`make torture` writes this page. Bold figures have to be 0.", ""]
        lines += ["| part | what has to be 0 | holds | seconds |", "|---|---|---|---|"]
        for name, part in self.parts.items():
            holds = "yes" if not not_zero(part) else "**NO**: " + ", ".join(not_zero(part))
            lines.append(f"| {name} | {', '.join(map(_words, part['zeros']))} | {holds} | {part['seconds']:,} |")
        for name, part in self.parts.items():
            lines += ["", *_section(name, part)]
        return "\n".join(lines) + "\n"


def not_zero(part: dict[str, Any]) -> list[str]:
    """The figures of a part that should be 0 and are not, with their values."""
    return [f"{_words(name)} {part['figures'].get(name)}" for name in part["zeros"] if part["figures"].get(name) != 0]


def _section(name: str, part: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{package} {number}" for package, number in part["versions"].items())
    made_by = f"`{part['command']}`, seed {part['seed']}, scale {part['scale']:g}, {part['date']}, {part['machine']}"
    lines = [f"## {name}", "", WHAT[name.split(":")[0]], "", f"{made_by}, {versions}", ""]
    lines += ["| figure | value |", "|---|---|"]
    tables = {}
    for figure, value in part["figures"].items():
        if isinstance(value, dict):
            tables[figure] = value
        elif isinstance(value, list) and figure in ("violations", "warnings"):
            continue
        else:
            shown = f"**{_shown(value)}**" if figure in part["zeros"] else _shown(value)
            lines.append(f"| {_words(figure)} | {shown} |")
    for figure, table in tables.items():
        lines += ["", *_table(_words(figure), table)]
    for figure in ("violations", "warnings"):
        if told := part["figures"].get(figure):
            lines += ["", f"{_words(figure)}:", "", *(f"- `{line}`" for line in told)]
    return lines


def _table(title: str, values: dict[str, Any]) -> list[str]:
    """Numbers by name, or rows of numbers by name."""
    if not any(isinstance(value, dict) for value in values.values()):
        rows = [f"| {name} | {_shown(value)} |" for name, value in values.items()]
        return [f"| {title} | number |", "|---|---|", *rows]
    columns = list(dict.fromkeys(column for row in values.values() for column in row))
    lines = [f"| {title} | {' | '.join(map(_words, columns))} |", "|---|" + "---|" * len(columns)]
    return lines + [
        f"| {name} | {' | '.join(_shown(row.get(column, 0)) for column in columns)} |" for name, row in values.items()
    ]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def _write(path: Path, text: str) -> None:
    """Write a file that appears complete or not at all."""
    temporary = path.with_name(path.name + "-new")
    temporary.write_text(text)
    os.replace(temporary, path)


if __name__ == "__main__":
    sys.exit(main())
