"""Tables of measurements: printed, and written with the command, versions and date."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sgm.benchmarks.provenance import provenance


def seconds(call: Callable[[], Any], repeat: int = 1) -> float:
    """Median wall time of a call, s."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


class Report:
    """Rows of measurements in sections."""

    def __init__(self, module: str) -> None:
        """Start a report of `python -m MODULE`."""
        self.facts = provenance(" ".join(["python -m", module, *sys.argv[1:]]))
        self.sections: dict[str, list[dict[str, Any]]] = {}

    def add(self, section: str, **row: Any) -> None:
        """Add a row and print it."""
        if section not in self.sections:
            print(f"\n{section}", flush=True)
        self.sections.setdefault(section, []).append(row)
        print("  " + "  ".join(f"{name}: {_shown(value)}" for name, value in row.items()), flush=True)

    def ratio(self, section: str, what: str, baseline: float, ours: float, at_least: float) -> None:
        """Add a speed claim: seconds of the baseline divided by ours."""
        times = {"baseline_seconds": baseline, "seconds": ours, "ratio": baseline / ours, "at_least": at_least}
        self.add(section, what=what, **times, holds="yes" if baseline / ours >= at_least else "NO")

    def write(self, out: Path) -> None:
        """Write `bench.json` and `bench.md`."""
        out.mkdir(parents=True, exist_ok=True)
        (out / "bench.json").write_text(json.dumps({**self.facts, "sections": self.sections}, indent=2) + "\n")
        (out / "bench.md").write_text(self.markdown())
        print(f"\nwrote {out / 'bench.json'} and {out / 'bench.md'}")

    def markdown(self) -> str:
        """Format the sections as Markdown tables."""
        versions = ", ".join(f"{name} {number}" for name, number in self.facts["versions"].items())
        lines = [f"`{self.facts['command']}`, {self.facts['date']}, {self.facts['machine']}, {versions}", ""]
        for title, rows in self.sections.items():
            names = list(rows[0])
            lines += [f"## {title}", "", "| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
            lines += ["| " + " | ".join(_shown(row[name]) for name in names) + " |" for row in rows]
            lines.append("")
        return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
