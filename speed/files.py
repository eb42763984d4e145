"""Speed of memory files, against another commit in the same run.

python -m speed.files --against 8a7de24 --out results/files

The other commit is checked out into a temporary folder, and both are measured in turn in separate processes, so that
other load on the machine affects both.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import sgm

SECTION = "Memory files of {nodes:,} nodes: times the speed of commit {commit}"
LEAST = 0.9


class Plane:
    """Euclidean distance in the first two of 64 dimensions."""

    def embed(self, observations):
        return observations

    def __call__(self, starts, goals):
        return np.hypot(starts[:, None, 0] - goals[:, 0], starts[:, None, 1] - goals[:, 1])


def world(nodes: int, seed: int) -> np.ndarray:
    """(n, 64) float32: points of a square of constant density in the first two dimensions."""
    random = np.random.default_rng(seed)
    observations = random.normal(size=(nodes, 64)).astype(np.float32)
    observations[:, :2] = random.uniform(0, nodes**0.5, (nodes, 2))
    return observations


def measure(nodes: int, records: int) -> dict[str, float]:
    """Seconds of each kind of call, with the sgm that is imported."""
    times: dict[str, float] = {}

    def timed(name: str, call: Any) -> Any:
        start = time.perf_counter()
        result = call()
        times[name] = time.perf_counter() - start
        return result

    settings = {"criterion": "none", "max_dist": 3.0, "k": 5, "policy": "first-failure"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.sgm"
        memory = sgm.SparseGraphicalMemory(Plane(), **settings)
        memory.extend(world(nodes, 0))
        timed("save", lambda: memory.save(path))
        timed("load", lambda: sgm.SparseGraphicalMemory.load(path, Plane()))
        live = timed("open", lambda: sgm.SparseGraphicalMemory.open(path, Plane()))
        source, target, _ = (column.tolist() for column in live.edges())
        tries = list(zip(source, target, itertools.cycle([True, True, False])))[: 2 * records]

        def record(some: list) -> None:
            for u, v, outcome in some:
                live.record(u, v, outcome)

        def grouped() -> None:
            with live.group():
                record(tries[records:])

        timed("record, each durable", lambda: record(tries[:records]))
        timed("record, in one group", grouped)
        timed("close", live.close)
        live = sgm.SparseGraphicalMemory.open(Path(folder) / "live.sgm", Plane(), **settings)
        batches = np.array_split(world(nodes, 0), max(1, nodes // 100))
        timed("extend by 100", lambda: [live.extend(batch, episode=0) for batch in batches])
        one = world(max(1, nodes // 40), 1)
        timed("add", lambda: [live.add(observation, episode=0) for observation in one])
        live.close()
    return times


def run(tree: Path, nodes: int, records: int) -> dict[str, float]:
    """Measure the sgm of a source tree in a separate process."""
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", f"--nodes={nodes}", f"--records={records}"]
    env = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, cwd=tree, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def compare(commit: str, nodes: int, records: int, repeat: int, out: Path | None) -> None:
    """Measure the other commit and this one in turn, and report the ratios of the shortest times."""
    from speed.report import Report

    here = Path(__file__).resolve().parents[1]
    report = Report("speed.files")
    rows: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "other"
        subprocess.run(["git", "-C", str(here), "worktree", "add", "-q", "--detach", str(tree), commit], check=True)
        try:
            for _ in range(repeat):
                theirs, ours = run(tree, nodes, records), run(here, nodes, records)
                for name in ours:
                    rows.setdefault(name, []).append((theirs[name], ours[name]))
        finally:
            subprocess.run(["git", "-C", str(here), "worktree", "remove", "--force", str(tree)], check=True)
    for name, pairs in rows.items():
        theirs_least, ours_least = (min(times) for times in zip(*pairs, strict=True))
        section = SECTION.format(nodes=nodes, commit=commit)
        report.ratio(section, name, theirs_least, ours_least, LEAST if name not in ("open", "close") else 0.0)
    if out:
        report.write(out)


def main() -> None:
    """Compare two commits, or measure one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", default="8a7de24", help="the commit to compare with (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=10_000, help="nodes of the memory (default: %(default)s)")
    parser.add_argument("--records", type=int, default=4_000, help="record calls of each kind (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="number of measurements of both (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to test that it runs; no claim applies")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.nodes, options.records)))
    elif options.quick:
        compare("HEAD", 200, 50, 1, options.out)
    else:
        compare(options.against, options.nodes, options.records, options.repeat, options.out)


if __name__ == "__main__":
    main()
