"""Share of false edges among those the inspector suspects, against chance, in memories of the three benchmarks.

python -m speed.suspects runs/point runs/doom runs/safety --out results/suspects

Every memory.sgm of the folders is ranked as built and after cleanup. The ranking does not use the positions of nodes;
they are the ground truth. An edge is false if its ends are farther apart than the limit of the benchmark: PointEnv 15
steps by the shortest path, ViZDoom 200 map units, SafetyGym 1.2 m.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.provenance import provenance
from sgm.benchmarks.results import write_json
from sgm.envs.point.mazes import load_maze
from sgm.inspector.suspects import ranked
from sgm.inspector.view import View

FIRST = 50
FAR = {"point": 15.0, "doom": 200.0, "safety": 1.2}  # cells of the shortest path, map units, metres
MAZE = ("FourRooms", 5, True)  # of PointEnv: name, resize, thin

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def far_apart(name: str, starts: Floats, ends: Floats) -> Bools:
    """(E,) whether the ends of edges are farther apart than the limit of the benchmark."""
    if name == "point":
        kind, resize, thin = MAZE
        return np.asarray(load_maze(kind, resize=resize, thin=thin).distance(starts, ends) > FAR[name])
    return np.asarray(np.hypot(*(starts - ends).T) > FAR[name])


def false_edges(name: str, memory: sgm.SparseGraphicalMemory) -> Bools:
    """(E,) whether each edge in use is false."""
    places = np.asarray(memory.attributes["position" if "position" in memory.attributes else "pose"], np.float64)[:, :2]
    return far_apart(name, places[memory.edges().source], places[memory.edges().target])


def measure(memory: sgm.SparseGraphicalMemory, wrong: Bools) -> dict[str, Any]:
    """Evaluate the ranking of a memory: share of false edges among the first ones and among all, and AUC."""
    ranking = ranked(View(memory))
    order = np.searchsorted(ranking.edges, ranking.order)
    by_rank = wrong[order]
    false, true = int(wrong.sum()), int((~wrong).sum())
    places = np.flatnonzero(by_rank)
    auc = None if not false or not true else 1 - float((places.sum() - false * (false - 1) / 2) / (false * true))
    return {
        "nodes": len(memory),
        "edges": len(wrong),
        "false": false,
        "chance": float(wrong.mean()) if len(wrong) else None,
        "first": float(by_rank[:FIRST].mean()) if len(wrong) else None,
        "most": min(1.0, false / FIRST),
        "auc": auc,
    }


def look(name: str, path: Path) -> list[dict[str, Any]]:
    """Rows of one memory file, as built and after cleanup."""
    now = sgm.SparseGraphicalMemory.load(path, None)
    stages = {"built": now.at(int(now.events().sequence[0]) - 1) if len(now.events().sequence) else now, "cleaned": now}
    rows = []
    for stage, memory in stages.items():
        row = {"benchmark": name, "memory": path.as_posix(), "stage": stage, "tries": memory.records}
        rows.append({**row, **measure(memory, false_edges(name, memory))})
    return rows


def measured(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Rows of every memory.sgm in run folders; the name of a folder begins with that of its benchmark."""
    rows = []
    for folder in folders:
        name = next((name for name in FAR if folder.name.startswith(name)), None)
        if name is None:
            raise sgm.SGMError(f"{folder} is no run of a benchmark: its name must begin with one of {', '.join(FAR)}")
        for path in sorted(folder.rglob("memory.sgm")) if folder.is_dir() else [folder]:
            rows += look(name, path)
    return rows


def pooled(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make a row for each benchmark and stage: sums of edges, and means of the shares over memories."""
    found = []
    for name, stage in dict.fromkeys((row["benchmark"], row["stage"]) for row in rows):
        mine = [row for row in rows if (row["benchmark"], row["stage"]) == (name, stage)]
        means = {
            key: float(np.mean(known)) if (known := [row[key] for row in mine if row[key] is not None]) else None
            for key in ("chance", "first", "most", "auc")
        }
        sums = {key: sum(row[key] for row in mine) for key in ("edges", "false")}
        found.append({"benchmark": name, "stage": stage, "memories": len(mine), **sums, **means})
    return found


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table."""
    print(f"{'benchmark':<10} {'stage':<8} {'edges':>7} {'false':>6} {'chance':>7} {f'first {FIRST}':>9} {'AUC':>6}")
    for row in rows:
        chance, first = (f"{100 * row[name]:.1f} %" for name in ("chance", "first"))
        auc = "–" if row["auc"] is None else f"{row['auc']:.2f}"
        counts = f"{row['edges']:>7} {row['false']:>6}"
        print(f"{row['benchmark']:<10} {row['stage']:<8} {counts} {chance:>7} {first:>9} {auc:>6}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "runs", type=Path, nargs="+", help="folders of runs, or memory files, named after the benchmark"
    )
    parser.add_argument("--out", type=Path, help="folder for suspects.json")
    options = parser.parse_args(arguments)
    rows = measured(options.runs)
    show(rows)
    show(pooled(rows))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        facts = {
            "schema": 1,
            **provenance("python -m speed.suspects"),
            "first": FIRST,
            "far": FAR,
            "pooled": pooled(rows),
            "rows": rows,
        }
        write_json(options.out / "suspects.json", facts)
        print(f"wrote {options.out / 'suspects.json'}")


if __name__ == "__main__":
    main()
