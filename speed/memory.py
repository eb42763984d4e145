"""Speed of the memory: every claim is a ratio to the reference pattern, measured in the same run.

python -m speed.memory --out results/memory
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import tempfile
import time
from pathlib import Path

import numpy as np

import sgm
from speed.reference import ReferenceMemory
from speed.report import Report, seconds

CLAIMS = "Against the reference pattern"
GROWTH = "How insertion grows (64-dimensional embeddings)"
FILES = "Files"


class Euclid:
    """Distance between embeddings, by one matrix product; observations are the embeddings."""

    def embed(self, observations):
        return observations

    def __call__(self, starts, goals):
        squares = (starts**2).sum(1)[:, None] + (goals**2).sum(1) - 2 * starts @ goals.T
        return np.sqrt(np.maximum(squares, 0))


def plane(n: int, side: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, 2) points in a square, and (n, n) Euclidean distances."""
    points = np.random.default_rng(seed).uniform(0, side, (n, 2)).astype(np.float32)
    return points, Euclid()(points.astype(np.float64), points.astype(np.float64)).astype(np.float32)


def bench_build(report: Report, n: int) -> None:
    """Measure building from a distance table, with the reference's ensemble of three and with a single table."""
    points, straight = plane(n, side=40.0)
    random = np.random.default_rng(1)
    tables = np.stack([straight * (1 + 0.1 * random.random((n, n), np.float32)) for _ in range(3)])
    settings = {"tau_a": 5.0, "tau_p": 0.8, "max_dist": 10.0, "k": 5}
    table = sgm.TableDistance(tables.max(axis=0))

    def ours() -> sgm.SparseGraphicalMemory:
        memory = sgm.SparseGraphicalMemory(table, lambda rows: points[rows], **settings)
        memory.extend(np.arange(n))
        memory.edges()
        return memory

    ours()
    fast = seconds(ours, repeat=7)
    memory = ours()
    for members, label, claim in (
        (tables, "an ensemble of three tables", 500.0),
        (table.matrix[None], "one table", 0.0),
    ):
        start = time.perf_counter()
        reference = ReferenceMemory(members, points, **settings)
        slow = time.perf_counter() - start
        assert memory.nodes.tolist() == reference.nodes.tolist(), "the baseline built another graph"
        expected = sorted((u, v, float(w)) for u, v, w in reference.graph.edges(data="weight"))
        assert list(zip(*(c.tolist() for c in memory.edges()), strict=True)) == expected, "the edges differ"
        what = f"build from a table, {n:,} observations, {len(memory):,} nodes (baseline holds {label})"
        report.ratio(CLAIMS, what, slow, fast, claim)


def planning_world(nodes: int) -> tuple[sgm.SparseGraphicalMemory, ReferenceMemory]:
    """Make a memory of this many nodes with k = 10, and the same graph for the baseline."""
    _, table = plane(nodes, side=nodes**0.5)
    memory = sgm.SparseGraphicalMemory(
        sgm.TableDistance(table), criterion="none", max_dist=4.0, k=10, policy="first-failure"
    )
    memory.extend(np.arange(nodes))
    return memory, ReferenceMemory.over_graph(table[None], memory.nodes, memory.to_networkx())


def bench_plan(report: Report, nodes: int, baseline_plans: int) -> None:
    """Measure plans to earlier goals, and to new ones."""
    memory, reference = planning_world(nodes)
    random = np.random.default_rng(2)
    pairs = [(int(a), int(b)) for a, b in random.integers(0, nodes, (baseline_plans, 2))]
    slow = seconds(lambda: [reference.plan(*pair) for pair in pairs]) / len(pairs)
    for start, goal in pairs:
        plan, (_, cost) = memory.plan(start, goal), reference.plan(start, goal)
        assert np.isclose(plan.cost, cost, rtol=1e-5), "the baseline found another cost"
    goal = pairs[0][1]
    starts = random.integers(0, nodes, 400).tolist()
    known = seconds(lambda: [memory.plan(start, goal) for start in starts], repeat=5) / len(starts)
    report.ratio(CLAIMS, f"plan to a goal already planned for, {nodes:,} nodes, k = 10", slow, known, 500.0)
    goals = random.permutation(nodes)[:200].tolist()
    fresh = iter(goals)
    new = seconds(lambda: [memory.plan(starts[0], next(fresh)) for _ in range(40)], repeat=5) / 40
    report.ratio(CLAIMS, f"first plan to a new goal, {nodes:,} nodes, k = 10", slow, new, 50.0)


def bench_record(report: Report, nodes: int, calls: int, baseline_calls: int) -> None:
    """Measure cleanup as an agent does it: each try of an edge is followed by a plan to the episode's goal."""
    random = np.random.default_rng(3)
    for episode, claim in ((20, 100.0), (1, 0.0)):
        memory, reference = planning_world(nodes)
        edges = memory.edges()
        picks = random.permutation(len(edges.source))[:calls]
        tries = list(zip(edges.source[picks].tolist(), edges.target[picks].tolist(), strict=True))
        reached = (random.random(calls) >= 0.05).tolist()
        starts = random.integers(0, nodes, calls).tolist()
        goals = np.repeat(random.integers(0, nodes, calls // episode + 1), episode)[:calls].tolist()
        work = list(zip(tries, reached, starts, goals, strict=True))

        def clean(memory: sgm.SparseGraphicalMemory, work: list) -> None:
            for (u, v), outcome, start, goal in work:
                memory.record(u, v, outcome)
                with contextlib.suppress(sgm.NoPath):
                    memory.plan(start, goal)

        def clean_reference(reference: ReferenceMemory, work: list) -> None:
            for (u, v), outcome, start, goal in work:
                reference.record(u, v, outcome)
                reference.plan(start, goal)

        slow = seconds(lambda: clean_reference(reference, work[:baseline_calls])) / baseline_calls  # noqa: B023
        fast = seconds(lambda: clean(memory, work)) / calls  # noqa: B023
        goals_text = f"a goal for {episode} calls" if episode > 1 else "a new goal every call"
        what = f"{calls:,} record calls, 5 % removing, each followed by plan ({goals_text}; per call)"
        report.ratio(CLAIMS, what, slow, fast, claim)


def embedded_world(n: int) -> np.ndarray:
    """(n, 64) float32: points of a square of constant density, embedded in 64 dimensions with a little noise."""
    random = np.random.default_rng(4)
    points = random.uniform(0, n**0.5, (n, 2))
    basis = np.linalg.qr(random.normal(size=(64, 2)))[0]
    return (points @ basis.T + 0.02 * random.normal(size=(n, 64))).astype(np.float32)


def bench_growth(report: Report, sizes: list[int]) -> None:
    """Measure time per insertion and bytes per node."""
    for n in sizes:
        world = embedded_world(n)
        memory = sgm.SparseGraphicalMemory(Euclid(), tau_p=1.0, tau_a=3.0, max_dist=4.0, k=5)
        whole = seconds(lambda memory=memory, world=world: memory.extend(world))
        probe = embedded_world(n)[:200] + 0.01
        one = seconds(lambda memory=memory, probe=probe: [memory.add(x) for x in probe]) / len(probe)
        report.add(
            GROWTH,
            observations=n,
            nodes=len(memory),
            edges_before_filter=len(memory.edges(False).source),
            microseconds_per_insertion_in_extend=1e6 * whole / n,
            microseconds_per_add=1e6 * one,
            bytes_per_node=memory.nbytes / len(memory),
        )


def bench_files(report: Report, nodes: int) -> None:
    """Measure saving, loading, and durable calls."""
    world = embedded_world(nodes)
    memory = sgm.SparseGraphicalMemory(Euclid(), criterion="none", max_dist=3.0, k=5, policy="first-failure")
    memory.extend(world)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.sgm"
        save = seconds(lambda: memory.save(path), repeat=3)
        load = seconds(lambda: sgm.SparseGraphicalMemory.load(path, Euclid()), repeat=3)
        edges, size = len(memory.edges(False).source), path.stat().st_size
        report.add(FILES, what="whole file", nodes=nodes, edges=edges, megabytes=size / 1e6, save_s=save, load_s=load)
        live = sgm.SparseGraphicalMemory.open(path, Euclid())
        source, target, _ = (column.tolist() for column in live.edges())
        tries = list(zip(source, target, itertools.cycle([True, True, False])))[:4000]

        def record(some: list) -> None:
            for u, v, outcome in some:
                live.record(u, v, outcome)

        single = len(tries) / 2 / seconds(lambda: record(tries[:2000]))

        def grouped() -> None:
            with live.group():
                record(tries[2000:])

        together = len(tries) / 2 / seconds(grouped)
        plain = len(tries) / 2 / seconds(lambda: [memory.record(u, v, True) for u, v, _ in tries[:2000]])
        report.add(
            FILES + ": record calls per second", durable_each=single, durable_in_one_group=together, not_durable=plain
        )
        live.close()


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to test that it runs; the claims do not apply"
    )
    options = parser.parse_args()
    report = Report("speed.memory")
    small = options.quick
    bench_build(report, 300 if small else 3000)
    bench_plan(report, 300 if small else 5000, 3 if small else 12)
    bench_record(report, 300 if small else 5000, 200 if small else 10_000, 10 if small else 40)
    bench_growth(report, [300] if small else [1000, 10_000, 50_000])
    bench_files(report, 300 if small else 10_000)
    if options.out:
        report.write(options.out)


if __name__ == "__main__":
    main()
