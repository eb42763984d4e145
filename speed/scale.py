"""Growth of the memory to a million observations: cost of an insertion, RAM, files; against an earlier commit.

python -m speed.scale --out results/scale

Every row is measured in a separate process, in CPU time, and written at once, with the tables: an interrupted run
resumes when it is repeated. `--fresh` repeats measurements of other commits. Worlds have a constant density, so that
the number of nodes near an observation does not depend on their size: a memory of 10,000 observations is compared with
one of a million that is a hundred times as large.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

EARLIER = "816cfd8"
SIZES = (10_000, 100_000, 1_000_000)
CURVED = (10_000, 100_000)
EXACT = 50_000  # observations for which the graph must be the same with and without an index
SETTINGS = {"tau_p": 1.0, "tau_a": 2.0, "max_dist": 3.7, "k": 5}
CURVED_SETTINGS = {"tau_p": 0.45, "tau_a": 0.4, "max_dist": 1.6, "k": 5}
CANDIDATES = 64
AUDITED = 200  # nodes of a saturating world for which all distances are computed, to count what was missed
_CHUNK = 10_000  # observations given to `extend` at once
_LAST = 0.1  # share of the observations over which the cost of an insertion is measured


class Leaning:
    """The distance ‖g − s‖ + max(0, u · (g − s)) of embeddings, which are the observations; in double precision."""

    def __init__(self, size: int = 64) -> None:
        self.u = np.full(size, 0.3 / size**0.5)

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        a, b = starts.astype(np.float64), goals.astype(np.float64)
        squares = a @ (-2 * b.T)
        squares += np.square(a).sum(axis=1)[:, None]
        squares += np.square(b).sum(axis=1)
        steps = np.sqrt(np.maximum(squares, 0, out=squares), out=squares)
        steps += np.maximum(b @ self.u - (a @ self.u)[:, None], 0)
        return steps.astype(np.float32)

    def pairs(self, starts, goals):
        gap = goals.astype(np.float64) - starts
        return (np.sqrt(np.einsum("ne,ne->n", gap, gap)) + np.maximum(gap @ self.u, 0)).astype(np.float32)


class Searchable(Leaning):
    """The same distance with an index: the Euclidean distance is a lower bound."""

    def keys(self, embeddings):
        return embeddings

    def probes(self, embeddings, outgoing):
        return embeddings

    def reach(self, steps):
        return steps * (1 + 1e-6) + 1e-6


def places(number: int, order: str, seed: int) -> np.ndarray:
    """(n, 2) positions in a square of constant density: random, or along walks of a robot with 1,000 steps each."""
    random = np.random.default_rng(seed)
    side = number**0.5
    if order == "random":
        return random.uniform(0, side, (number, 2))
    episodes = -(-number // 1000)
    heading = random.uniform(0, 2 * np.pi, (episodes, 1)) + np.cumsum(random.normal(0, 0.25, (episodes, 1000)), axis=1)
    steps = np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    path = random.uniform(0, side, (episodes, 1, 2)) + np.cumsum(steps, axis=1)
    return (side - np.abs(side - np.abs(path) % (2 * side))).reshape(-1, 2)[:number]  # walls reflect


def world(number: int, order: str, seed: int = 0) -> np.ndarray:
    """(n, 64) float32: positions embedded linearly in 64 dimensions with a little noise."""
    random = np.random.default_rng(1)
    basis = np.linalg.qr(random.normal(size=(64, 2)))[0]
    flat = places(number, order, seed)
    observations = np.empty((number, 64), np.float32)
    for low in range(0, number, _CHUNK):
        part = flat[low : low + _CHUNK]
        noise = 0.02 * np.random.default_rng([seed, low]).normal(size=(len(part), 64))
        observations[low : low + _CHUNK] = part @ basis.T + noise
    return observations


def curved(number: int, order: str, seed: int = 0) -> np.ndarray:
    """(n, 64) float32: waves of position and heading; distances saturate, as those of contrastive embeddings."""
    random = np.random.default_rng(2)
    waves = random.normal(size=(3, 32)) * np.array([[0.25], [0.25], [0.5]])
    heading = np.random.default_rng(seed + 1).uniform(0, 2 * np.pi, (number, 1))
    phase = np.concatenate([places(number, order, seed), heading], axis=1) @ waves
    return (np.concatenate([np.cos(phase), np.sin(phase)], axis=1) / 2).astype(np.float32)


WORLDS = {"flat": (world, SETTINGS), "saturating": (curved, CURVED_SETTINGS)}


def peak() -> float:
    """Peak memory of this process, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def cpu(call: Any) -> tuple[float, Any]:
    """CPU seconds of a call, and its result."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def measure_build(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Build a memory, and measure the cost of the last insertions, RAM and file size."""
    import sgm

    make, settings = WORLDS[case["world"]]
    warm_up(make, settings)
    observations = make(case["observations"], case["order"])
    before = peak()
    how = {name: case[name] for name in ("candidates", "approximate") if name in case}
    memory = sgm.SparseGraphicalMemory(Searchable(), **how, **settings)
    last = int(len(observations) * (1 - _LAST))
    whole = 0.0
    from sgm.progress import progress_bar

    with progress_bar(shown=sys.stderr.isatty(), total=len(observations), desc="build", unit="obs") as bar:
        for low in range(0, last, _CHUNK):
            some = observations[low : min(last, low + _CHUNK)]
            whole += cpu(lambda some=some: memory.extend(some))[0]
            bar.update(len(some))
        spent, _ = cpu(lambda: memory.extend(observations[last:]))
        bar.update(len(observations) - last)
    one, _ = cpu(lambda: [memory.add(x) for x in make(200, "random", 5)])
    row = {
        "nodes": len(memory),
        "edges": len(memory._graph),
        "index": memory.stats().index,
        "microseconds": 1e6 * spent / (len(observations) - last),
        "microseconds_mean": 1e6 * (whole + spent) / len(observations),
        "microseconds_of_add": 1e6 * one / 200,
        "bytes_per_node": memory.nbytes / len(memory),
        "peak_MB": peak(),
        "observations_MB": before,
    }
    if case["world"] == "saturating":
        found = memory.audit(AUDITED)
        row.update(audited=AUDITED, edge_recall=found.edge_recall, merge_recall=found.merge_recall)
    row["save_s"], _ = cpu(lambda: memory.save(folder / name_of(case)))
    row["file_MB"] = (folder / name_of(case)).stat().st_size / 1e6
    return row


def measure_files(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Measure loading and opening the file of a build."""
    import sgm

    path = folder / name_of(case)
    load, memory = cpu(lambda: sgm.SparseGraphicalMemory.load(path, Searchable()))
    nodes = len(memory)
    del memory
    opened, live = cpu(lambda: sgm.SparseGraphicalMemory.open(path, Searchable()))
    close, _ = cpu(live.close)
    return {"nodes": nodes, "load_s": load, "open_s": opened, "close_s": close, "peak_MB": peak()}


def measure_live(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Measure building a live memory in one call of `extend`."""
    import sgm

    make, settings = WORLDS[case["world"]]
    warm_up(make, settings)
    observations = make(case["observations"], case["order"])
    live = sgm.SparseGraphicalMemory.open(folder / "live.sgm", Searchable(), **settings)
    spent, _ = cpu(lambda: live.extend(observations))
    one, _ = cpu(lambda: [live.add(x) for x in make(200, "random", 5)])
    row = {
        "nodes": len(live),
        "microseconds": 1e6 * spent / len(observations),
        "microseconds_of_add": 1e6 * one / 200,
        "peak_MB": peak(),
        "peak_MB_beyond_observations_and_nodes": peak() - (observations.nbytes + live.nbytes) / 1e6,
    }
    live.close()
    (folder / "live.sgm").unlink()
    return row


def measure_every(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Measure insertions into the file of a build without an index; with an earlier commit, or with this one."""
    import sgm

    make, _ = WORLDS[case["world"]]
    memory = sgm.SparseGraphicalMemory.load(folder / name_of(case), Leaning())
    number = max(20, min(1000, 20_000_000 // len(memory)))
    more = make(case["observations"], case["order"], 7)[:number]
    nodes = len(memory)
    memory.extend(more[:10])
    spent, _ = cpu(lambda: memory.extend(more[10:]))
    return {"nodes": nodes, "measured": number - 10, "microseconds": 1e6 * spent / (number - 10), "peak_MB": peak()}


def measure_same(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Check whether builds with and without an index give the same graph."""
    import sgm

    make, settings = WORLDS[case["world"]]
    observations = make(case["observations"], case["order"])
    by_index, every = (sgm.SparseGraphicalMemory(d, **settings) for d in (Searchable(), Leaning()))
    fast, _ = cpu(lambda: by_index.extend(observations))
    slow, _ = cpu(lambda: every.extend(observations))
    same = np.array_equal(by_index.assignment, every.assignment)
    for filtered in (False, True):
        mine, theirs = by_index.edges(filtered), every.edges(filtered)
        same = same and all(np.array_equal(a, b) for a, b in zip(mine[:2], theirs[:2], strict=True))
        same = same and np.allclose(mine.weight, theirs.weight, rtol=1e-5)
    return {"nodes": len(every), "same": bool(same), "seconds": fast, "seconds_asking_for_every_node": slow}


def warm_up(make: Any, settings: dict[str, Any]) -> None:
    """Compile the compiled code, which happens once on a machine."""
    import sgm

    memory = sgm.SparseGraphicalMemory(Searchable(), **{**settings, "tau_p": 1e-3})
    memory.extend(make(6000, "random"))


def name_of(case: dict[str, Any]) -> str:
    """Name of the file of a build."""
    how = "-approximate" if case.get("approximate") else ""
    return f"{case['world']}-{case['order']}-{case['observations']}-{case.get('candidates')}{how}.sgm"


def cases(quick: bool) -> list[dict[str, Any]]:
    """List all measurements, in order; the longest come last."""
    sizes, curved_sizes, exact = ((2_000,), (2_000,), 2_000) if quick else (SIZES, CURVED, EXACT)
    random, robot = (
        [{"world": "flat", "order": order, "observations": size} for size in sizes] for order in ("random", "robot")
    )
    found = [{"kind": "build", **case} for case in random[:-1] + robot[:-1]]
    for size in curved_sizes:
        case = {"kind": "build", "world": "saturating", "order": "random", "observations": size}
        found += [{**case, "candidates": CANDIDATES, "approximate": way} for way in (True, False)]
    found.append({"kind": "same", "world": "flat", "order": "robot", "observations": exact})
    for case in random[:-1]:
        found += [{"kind": "every", **case}, {"kind": "earlier", **case}]
    found += [{"kind": "build", **random[-1]}, {"kind": "files", **random[-1]}]
    found += [{"kind": "build", **robot[-1]}, {"kind": "live", **robot[-1]}]
    found += [{"kind": "every", **random[-1]}, {"kind": "earlier", **random[-1]}]
    case = {"kind": "build", "world": "saturating", "order": "random", "candidates": None}
    found += [{**case, "observations": size} for size in curved_sizes]
    return found


def run(case: dict[str, Any], folder: Path, tree: Path) -> dict[str, Any]:
    """Measure one case in a separate process, with the sgm of a source tree."""
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", json.dumps(case), "--folder", str(folder)]
    env = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, cwd=tree, stdout=subprocess.PIPE, text=True, check=True)
    return {**case, **json.loads(done.stdout.splitlines()[-1])}


def measure_all(out: Path | None, folder: Path, quick: bool, fresh: bool, minutes: float) -> list[dict[str, Any]]:
    """Measure what is not in `out` yet, and keep each row as it comes; no row begins after so many minutes."""
    end = time.monotonic() + 60 * minutes
    here = Path(__file__).resolve().parents[1]
    kept = out / "rows.json" if out else None
    rows = json.loads(kept.read_text()) if kept and kept.exists() else []
    commit = commit_of(here)
    rows = [row for row in rows if not fresh or row.get("commit") == commit]
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "earlier"
        for case in cases(quick):
            if any(case.items() <= row.items() for row in rows):
                continue
            if time.monotonic() > end:
                print(f"not measured, the same command goes on: {case}")
                continue
            if case["kind"] == "earlier" and not tree.exists():
                earlier = "HEAD" if quick else EARLIER
                command = ["git", "-C", str(here), "worktree", "add", "-q", "--detach", str(tree), earlier]
                subprocess.run(command, check=True)
            needs = case["kind"] in ("files", "every", "earlier")
            if needs and not (folder / name_of(case)).exists():
                run({**case, "kind": "build"}, folder, here)
            rows.append({**run(case, folder, tree if case["kind"] == "earlier" else here), "commit": commit})
            print("  ".join(f"{key}: {value:.4g}" if isinstance(value, float) else f"{key}: {value}"
                            for key, value in rows[-1].items()), flush=True)  # fmt: skip
            if kept:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(rows, indent=1) + "\n")
                with contextlib.redirect_stdout(io.StringIO()):
                    report(rows, out)
        if tree.exists():
            subprocess.run(["git", "-C", str(here), "worktree", "remove", "--force", str(tree)], check=True)
    return rows


def commit_of(tree: Path) -> str:
    """Commit of a source tree; empty without git."""
    done = subprocess.run(["git", "-C", str(tree), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()


def of(rows: list[dict[str, Any]], kind: str, **wanted: Any) -> list[dict[str, Any]]:
    """Select the rows of a kind."""
    return [row for row in rows if row["kind"] == kind and wanted.items() <= row.items()]


def report(rows: list[dict[str, Any]], out: Path | None) -> None:
    """Write tables, claims and the figure."""
    from speed.report import Report

    tables = Report("speed.scale")
    titles = {
        "build": "Builds, CPU time of an insertion over the last tenth",
        "files": "Files of these memories",
        "live": "A live memory, built in one call",
        "same": "The same graph as asking for every node",
        "every": "Asking for every node",
        "earlier": f"Asking for every node, in commit {EARLIER}",
    }
    names = ("nodes", "edges", "index", "microseconds", "microseconds_of_add", "bytes_per_node", "peak_MB", "save_s",
             "file_MB", "load_s", "open_s", "close_s", "peak_MB_beyond_observations_and_nodes", "same", "seconds",
             "seconds_asking_for_every_node", "audited", "edge_recall", "merge_recall", "measured")  # fmt: skip
    for kind, title in titles.items():
        for row in of(rows, kind):
            shown = {name: row[name] for name in names if name in row}
            saturating = row["world"] == "saturating"
            section = f"{title}: saturating embeddings" if saturating else title
            more = {"candidates": row.get("candidates") or "none"} if saturating else {}
            shown["commit"] = row.get("commit", "not recorded")
            tables.add(section, order=row["order"], observations=row["observations"], **more, **shown)
    for order in ("robot", "random"):
        claim_growth(tables, of(rows, "build", world="flat", order=order))
    for row in of(rows, "same"):
        what = f"{row['observations']:,} observations: the graph is that of asking for every node"
        tables.add("Claims", what=what, is_=row["same"], at_most="", holds="yes" if row["same"] else "NO")
    if out:
        tables.write(out)
        draw(rows, out / "scale.svg")


def claim_growth(tables: Any, builds: list[dict[str, Any]]) -> None:
    """Add the claims of builds in one order: insertions into the largest against the smallest, of the same commit."""
    if not builds:
        return
    large = max(builds, key=lambda row: row["observations"])
    same = [row for row in builds if row.get("commit") == large.get("commit")]
    small = min(same, key=lambda row: row["observations"])
    order, number = large["order"], large["observations"]
    if len(same) > 1:
        growth = large["microseconds"] / small["microseconds"]
        what = f"{order} order: an insertion at {number:,} costs as many times one at {small['observations']:,}"
        tables.add("Claims", what=what, is_=growth, at_most=2.0, holds="yes" if growth <= 2 else "NO")
    held = large["bytes_per_node"]
    what = f"{order} order: bytes of a node at {number:,} observations"
    tables.add("Claims", what=what, is_=held, at_most=800.0, holds="yes" if held <= 800 else "NO")


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot the cost of an insertion over the number of observations, with log axes."""
    importlib.import_module("matplotlib").use("Agg")
    from matplotlib import pyplot as plt

    lines = [
        ("index, robot order", "build", {"world": "flat", "order": "robot"}, "o-"),
        ("index, random order", "build", {"world": "flat", "order": "random"}, "s-"),
        ("every node (brute force)", "every", {"world": "flat"}, "^--"),
        (f"earlier commit {EARLIER}", "earlier", {"world": "flat"}, "v--"),
        (
            f"saturating, {CANDIDATES} candidates, exact",
            "build",
            {"candidates": CANDIDATES, "approximate": False},
            "D:",
        ),
        (
            f"saturating, {CANDIDATES} candidates, usearch",
            "build",
            {"candidates": CANDIDATES, "approximate": True},
            "P:",
        ),
    ]
    figure, axes = plt.subplots(figsize=(7, 5.5))
    for number, (label, kind, wanted, style) in enumerate(lines):
        some = sorted(of(rows, kind, **wanted), key=lambda row: row["observations"])
        for commit in sorted({row.get("commit", "") for row in some}, reverse=True):  # one line for each
            line = [(row["observations"], row["microseconds"]) for row in some if row.get("commit", "") == commit]
            how = f"{label} ({commit or 'commit not recorded'})" if kind != "earlier" else label
            axes.loglog(*zip(*line, strict=True), style, color=f"C{number}", alpha=1 if commit else 0.5, label=how)
    axes.set(xlabel="observations", ylabel="CPU time of an insertion, µs")
    axes.grid(True, which="both", alpha=0.25)
    axes.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    """Measure everything, or one case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for rows.json, bench.json, bench.md and scale.svg")
    parser.add_argument("--folder", type=Path, help="folder for memory files, up to 2 GB (default: a temporary one)")
    parser.add_argument("--fresh", action="store_true", help="measure again what another commit measured")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no row begins later")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs; no claim applies")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        case = json.loads(options.measure)
        measures = {"build": measure_build, "files": measure_files, "live": measure_live, "same": measure_same}
        warnings.simplefilter("ignore")  # these graphs are only measured
        print(json.dumps(measures.get(case["kind"], measure_every)(case, options.folder)))
        return
    with tempfile.TemporaryDirectory() as folder:
        where = options.folder or Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        rows = measure_all(options.out, where, options.quick, options.fresh, options.minutes)
        report(rows, options.out)


if __name__ == "__main__":
    main()
