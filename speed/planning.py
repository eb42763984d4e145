"""Speed of plans on a memory of many nodes, against SciPy's trees and distances to all nodes, in the same run.

python -m speed.planning --out results/planning

Times are CPU times of one thread. The baseline is the same memory without an index and without compiled searches: it
computes the distances to all nodes, and whole shortest-path trees.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sgm
from sgm.memory import memory as memory_module
from speed.report import Report

LIMITS = "At most so many milliseconds, mean"
ONCE = "Once"
K = 10


class Plain:
    """The distance |s − g| + relu(u · (g − s)), steps in a plane with one uphill direction, of observations."""

    def __init__(self, width: int = 64) -> None:
        """Make a distance for embeddings of this size."""
        self.up = np.random.default_rng(5).normal(size=width) / width**0.5
        self.up32 = self.up.astype(np.float32)

    def embed(self, observations: Any) -> np.ndarray:
        """(n, 64) observations to (n, 64) embeddings: the same numbers."""
        return np.asarray(observations, np.float32)

    def __call__(self, starts: Any, goals: Any) -> np.ndarray:
        """(n, e) and (m, e) to (n, m)."""
        if len(starts) == 1 or len(goals) == 1:
            return self._of(goals - starts).reshape(len(starts), len(goals))
        starts, goals = np.asarray(starts, np.float64), np.asarray(goals, np.float64)
        squares = starts @ (-2 * goals.T)
        squares += np.square(starts).sum(axis=1)[:, None]
        squares += np.square(goals).sum(axis=1)
        climb = (goals @ self.up)[None] - (starts @ self.up)[:, None]
        return (np.sqrt(np.maximum(squares, 0)) + np.maximum(climb, 0)).astype(np.float32)

    def pairs(self, starts: Any, goals: Any) -> np.ndarray:
        """(n, e) and (n, e) to (n,)."""
        return self._of(goals - starts)

    def _of(self, gap: np.ndarray) -> np.ndarray:
        return np.sqrt(np.einsum("ij,ij->i", gap, gap)) + np.maximum(gap @ self.up32, 0)


class Slope(Plain):
    """The same distance, declared to have the lower bound |s − g| and to satisfy the triangle inequality."""

    triangle = True

    def keys(self, embeddings: Any) -> Any:
        """Vectors that are indexed: the embeddings."""
        return embeddings

    def probes(self, embeddings: Any, outgoing: bool) -> Any:
        """Vectors of queries: the embeddings."""
        return embeddings

    def reach(self, steps: float) -> float:
        """Largest Euclidean distance of keys within `steps` steps."""
        return steps * (1 + 1e-6) + 1e-3


def world(nodes: int) -> np.ndarray:
    """(n, 64) float32: points of a square with one point per unit area, embedded linearly in 64 dimensions."""
    random = np.random.default_rng(4)
    basis = np.linalg.qr(random.normal(size=(64, 2)))[0]
    return (random.uniform(0, nodes**0.5, (nodes, 2)) @ basis.T).astype(np.float32)


def memories(observations: np.ndarray) -> tuple[sgm.SparseGraphicalMemory, sgm.SparseGraphicalMemory]:
    """Make a memory of these nodes, and the baseline: the same without an index, with SciPy's trees."""
    ours = sgm.SparseGraphicalMemory(Slope(), criterion="none", max_dist=3.5, k=K, policy="first-failure")
    ours.extend(observations)
    with tempfile.TemporaryDirectory() as folder:
        ours.save(Path(folder) / "memory.sgm")
        baseline = sgm.SparseGraphicalMemory.load(Path(folder) / "memory.sgm", Plain())
    baseline._planner.many = 10**9
    return ours, baseline


@contextlib.contextmanager
def asking_all_nodes() -> Iterator[None]:
    """Localise by computing the distances to all nodes."""
    many, memory_module.MANY = memory_module.MANY, 10**9
    try:
        yield
    finally:
        memory_module.MANY = many


def cpu(call: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and its result."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


class Bench:
    """Measures the two memories on the same work."""

    def __init__(self, report: Report, nodes: int, many: int, few: int) -> None:
        """Build the memories; `many` calls of ours and `few` of the baseline are measured."""
        self.report, self.many, self.few = report, many, few
        self.random = np.random.default_rng(0)
        self.observations = world(nodes)
        building, (self.ours, self.baseline) = cpu(lambda: memories(self.observations))
        edges = len(self.ours.edges().source)
        report.add(ONCE, what=f"build, save and load, {len(self.ours):,} nodes, {edges:,} edges", seconds=building)
        self.warm_up()
        self.ours._planner._large = None
        self.ours._planner._version = -1
        seconds, _ = cpu(self.ours._planner.refresh)
        report.add(ONCE, what="make the planning graph", seconds=seconds)
        seconds, _ = cpu(self.ours._graph.into)
        report.add(ONCE, what="list edges by target, for the neighbours of waypoints", seconds=seconds)
        seconds, _ = cpu(self.ours.prepare_plans)
        report.add(ONCE, what="choose landmarks (prepare_plans)", seconds=seconds)

    def warm_up(self) -> None:
        """Compile and load the compiled code."""
        self.ours.prepare_plans()
        plan = self.ours.plan(*self.near(2))
        nodes = [node for node in plan.nodes.tolist() if node != plan.nodes[-1]]
        if nodes:
            self.ours.remove(*plan.nodes[:2].tolist())
            self.ours.plan_nodes(int(plan.nodes[0]), int(plan.nodes[-1]))
            self.ours.restore()
        self.ours.plan(*self.near(2))
        self.ours.reached(self.near(1), [0])
        self.ours.add(self.near(1)[0])

    def near(self, number: int) -> np.ndarray:
        """Observations near nodes."""
        rows = self.random.integers(len(self.observations), size=number)
        others = self.observations[self.random.integers(len(self.observations), size=number)]
        away = others - self.observations[rows]
        length = np.linalg.norm(away, axis=1, keepdims=True)
        return (self.observations[rows] + 0.3 * away / np.maximum(length, 1e-6)).astype(np.float32)

    def limit(self, what: str, ours: list[float], baseline: list[float], most: float) -> None:
        """Add a row: means in milliseconds, and whether ours is within its limit."""
        mean = 1e3 * float(np.mean(ours))
        self.report.add(
            LIMITS,
            what=what,
            baseline_ms=1e3 * float(np.mean(baseline)),
            mean_ms=mean,
            median_ms=1e3 * float(np.median(ours)),
            most_ms=1e3 * max(ours),
            ratio=float(np.mean(baseline) / np.mean(ours)),
            at_most_ms=most,
            holds="yes" if mean <= most else "NO",
        )

    def new_goals(self) -> None:
        """Measure first plans to new goals, from observations."""
        ours, baseline = [], []
        for number in range(self.many):
            start, goal = self.near(2)
            seconds, plan = cpu(lambda start=start, goal=goal: self.ours.plan(start, goal))
            ours.append(seconds)
            if number < self.few:
                with asking_all_nodes():
                    seconds, other = cpu(lambda start=start, goal=goal: self.baseline.plan(start, goal))
                baseline.append(seconds)
                assert plan.cost == other.cost, "the baseline found another cost"
        self.limit("first plan to a new goal, from observations", ours, baseline, 3.0)

    def removals(self) -> None:
        """Measure removing an edge of the path and planning again, between nodes."""
        ours, baseline = [], []
        for number in range(self.many):
            start, goal = self.random.integers(len(self.ours), size=2).tolist()
            path = self.ours.plan_nodes(start, goal).nodes
            if len(path) < 2:
                continue
            place = int(self.random.integers(len(path) - 1))
            edge = int(path[place]), int(path[place + 1])
            if number < self.few:
                self.baseline.plan_nodes(start, goal)
            seconds, cost = cpu(lambda: self.after_removal(self.ours, edge, start, goal))  # noqa: B023
            ours.append(seconds)
            if number >= self.few:
                self.baseline.record(*edge, False)
                continue
            seconds, other = cpu(lambda: self.after_removal(self.baseline, edge, start, goal))  # noqa: B023
            baseline.append(seconds)
            assert cost == other, "the baseline found another cost"
        self.limit("removal on the route, then the next plan", ours, baseline, 6.0)

    @staticmethod
    def after_removal(memory: sgm.SparseGraphicalMemory, edge: tuple[int, int], start: int, goal: int) -> float:
        """Remove an edge and plan again; return the cost of the plan."""
        memory.record(*edge, False)
        return memory.plan_nodes(start, goal).cost

    def known_goal(self) -> None:
        """Measure plans from many places to one goal, after the first one."""
        goal = self.near(1)[0]
        ours, baseline = [], []
        self.ours.plan(self.near(1)[0], goal)
        with asking_all_nodes():
            self.baseline.plan(self.near(1)[0], goal)
        for number in range(2 * self.many):
            start = self.near(1)[0]
            seconds, plan = cpu(lambda: self.ours.plan(start, goal))  # noqa: B023
            ours.append(seconds)
            if number < self.few:
                with asking_all_nodes():
                    seconds, other = cpu(lambda: self.baseline.plan(start, goal))  # noqa: B023
                baseline.append(seconds)
                assert plan.cost == other.cost, "the baseline found another cost"
        self.limit("plan to a known goal, from observations", ours, baseline, 1.0)

    def reached(self) -> None:
        """Measure the test whether a robot near a waypoint has reached it, within one step and a half."""
        ours, baseline = [], []
        for number in range(self.many):
            (place,), node = self.near(1), int(self.random.integers(len(self.ours)))
            towards = place - self.observations[node]
            place = self.observations[node] + towards * self.random.uniform(0.05, 2.0) / np.linalg.norm(towards)
            call = lambda memory: memory.reached(place[None], [node], 1.5)[0]  # noqa: B023, E731
            seconds, answer = cpu(lambda: call(self.ours))  # noqa: B023
            ours.append(seconds)
            if number < self.few:
                seconds, other = cpu(lambda: call(self.baseline))  # noqa: B023
                baseline.append(seconds)
                assert answer == other, "the baseline gave another answer"
        self.limit("`reached` for one waypoint, robots up to 2 steps away", ours, baseline, 1.0)

    def additions(self) -> None:
        """Measure `add` of one observation, until the planning graph has its node."""
        ours, baseline, after = [], [], []
        goal = int(self.random.integers(len(self.ours)))
        self.ours.plan_nodes(0, goal)
        for number in range(self.many // 2):
            observation = self.near(1)[0]
            seconds, node = cpu(lambda: self.add(self.ours, observation))  # noqa: B023
            ours.append(seconds)
            after.append(cpu(lambda: self.ours.plan_nodes(node, goal))[0])  # noqa: B023
            if number < min(5, self.few):
                with asking_all_nodes():
                    baseline.append(cpu(lambda: self.add(self.baseline, observation))[0])  # noqa: B023
        self.limit("`add` of one observation, graph usable at once", ours, baseline, 1.0)
        self.report.add(
            "Beside", what="plan from the added node, landmarks' bounds lowered", mean_ms=1e3 * float(np.mean(after))
        )

    @staticmethod
    def add(memory: sgm.SparseGraphicalMemory, observation: np.ndarray) -> int:
        """Add an observation and update the planning graph; return its node."""
        node = memory.add(observation)
        memory._planner.refresh()
        return node


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    parser.add_argument("--nodes", type=int, default=100_000, help="nodes of the memory (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few calls on few nodes, to test that it runs")
    options = parser.parse_args()
    report = Report("speed.planning")
    nodes, many, few = (17_000, 10, 3) if options.quick else (options.nodes, 200, 20)
    bench = Bench(report, nodes, many, few)
    bench.new_goals()
    bench.removals()
    bench.known_goal()
    bench.reached()
    bench.additions()
    if options.out:
        report.write(options.out)


if __name__ == "__main__":
    main()
