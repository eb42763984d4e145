"""A memory beside a model of it in plain Python: whatever is called, in whatever order, the two hold the same.

The model is made of dictionaries and lists. Its nodes and edges come from sgm.memory.reference, its shortest paths from
a heap, its evidence from counters, and it keeps a copy of its state after every event. SGM_TORTURE=1 makes the run
long; `run(examples)` is for programs and returns figures.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import functools
import heapq
import itertools
import math
import os
import shutil
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import sgm
from sgm.memory import events as event_log
from tests.memory.oracle import SparseGraph, edge_list, k_nearest
from tests.memory.test_store import same

Memory = sgm.SparseGraphicalMemory
FIGURES: collections.Counter[str] = collections.Counter()  # how often what was done
Pair = tuple[int, int]
Form = tuple[str, tuple[int, ...]]  # dtype and shape of an attribute of one node
IN_RAM = Path("/dev/shm")  # where syncing costs nothing; what a disk makes of files is told in test_faults.py
KINDS = ("reached", "failed", "removed", "restored", "guarded", "walked", "spare")
CRITERIA = ("two-way", "incoming", "outgoing", "perceptual", "uniform", "none")
FORMS = (("f4", ()), ("f8", (2,)), ("i2", ()), ("u1", (2, 3)), ("?", ()), ("f2", (1,)), (">i4", ()))
NAMES = ("position", "heading", "ü 1", "a'b")


# -- the world ---------------------------------------------------------------------------------------------------


class Broken(Exception):
    """What a distance raises that is at fault itself."""


class World(sgm.TableDistance):
    """A table of distances whose observations are row numbers, or pictures of them, and which can be made to fail."""

    def __init__(self, table: np.ndarray, phi: np.ndarray | None, pictures: bool) -> None:
        super().__init__(table)
        self.pictures, self.has_features = pictures, phi is not None
        self.phi = np.arange(len(table), dtype=np.float32)[:, None] if phi is None else phi
        self.calls_until_fault, self.fault = math.inf, math.nan

    def __repr__(self) -> str:
        return f"World({self.matrix.tolist()}, {self.phi.tolist() if self.has_features else None}, {self.pictures})"

    def show(self, rows) -> np.ndarray:
        """(n,) rows as observations, (n,) int64 or (n, 2, 3) uint8."""
        rows = np.asarray(rows, np.int64)
        return np.add.outer(rows, np.arange(6).reshape(2, 3)).astype(np.uint8) if self.pictures else rows

    def rows(self, observations) -> np.ndarray:
        observations = np.asarray(observations)
        return observations[:, 0, 0] if self.pictures and observations.ndim == 3 else observations

    def embed(self, observations) -> np.ndarray:
        return super().embed(self.rows(observations))

    def __call__(self, starts, goals) -> np.ndarray:
        self.calls_until_fault -= 1
        steps = super().__call__(starts, goals)
        if self.calls_until_fault >= 0:
            return steps
        if isinstance(self.fault, Exception):
            raise self.fault
        return np.full_like(steps, self.fault)

    @property
    def features(self):
        """The feature function that a memory is made with."""
        return (lambda observations: self.phi[self.rows(observations)]) if self.has_features else None


@st.composite
def worlds(draw) -> World:
    """Asymmetric tables without a triangle inequality and with many equal entries, so that comparisons tie."""
    n = draw(st.sampled_from([1, 2, *range(4, 15)]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    step, high = draw(st.sampled_from([1.0, 0.5, 0.001])), draw(st.sampled_from([3.0, 8.0]))
    table = np.round(random.uniform(0, high, (n, n)) / step) * step
    if draw(st.booleans()):
        np.fill_diagonal(table, 0)
    width = draw(st.integers(0, 3))
    phi = random.integers(0, 4, (n, width)).astype(np.float32) if width else None
    return World(table.astype(np.float32), phi, draw(st.booleans()))


@st.composite
def all_settings(draw) -> dict[str, Any]:
    criterion = draw(st.sampled_from([*CRITERIA, "two-way", "perceptual"]))
    return {
        "criterion": criterion,
        "scope": draw(st.sampled_from(["neighbors", "memory"])),
        "tau_a": draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0])),
        "tau_p": draw(st.sampled_from([0.0, 1.0, 2.0, None, None])),
        "max_dist": draw(st.sampled_from([0.0, 1.0, 3.0, 3.0, 3.0, 10.0])),
        "k": draw(st.sampled_from([None, 1, 2, 5])),
        "size": draw(st.integers(1, 12)) if criterion == "uniform" else None,
        "seed": draw(st.integers(0, 3)),
        "feature_average": draw(st.sampled_from([0.0, 0.0, 0.05, 1.0])),
        "keep_observations": draw(st.booleans()),
        "reversible": draw(st.sampled_from([None, None, 1.2, 3.0])),
    }


POLICIES = st.one_of(
    st.builds(sgm.FirstFailure, guard=st.booleans(), max_steps=st.sampled_from([None, 7.0])),
    st.builds(sgm.FirstFailure, guard=st.just(True), spares=st.just(True)),
    st.builds(sgm.SecondFailure, guard=st.booleans()),
    st.builds(sgm.Belief, guard=st.booleans(), threshold=st.sampled_from([0.15, 0.4, 1.0])),
)


def some_values(form: Form, number: int, seed: int) -> np.ndarray:
    """(number, ...) values of an attribute."""
    dtype, shape = form
    return (np.arange(number * math.prod(shape)).reshape(number, *shape) * 7 + seed).astype(dtype)


# -- the model ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Known:
    """Counters about an edge that was tried."""

    successes: int = 0
    failures: int = 0
    streak: int = 0
    removed_at: int | None = None
    guarded: bool = False
    spare: bool = False


@dataclasses.dataclass
class State:
    """Nodes, edges and evidence.

    Attributes:
        nodes: the place in the stream of the observation that each node keeps.
        rows: the row of the table that this observation is.
        assignment: the node of each observation.
        edges: (distance, walked) of each edge.
        known: counters of the edges that were tried.
        tries: how many tries there have been.
        reversible: what an edge weighs backwards, as a share of its weight.
    """

    nodes: list[int] = dataclasses.field(default_factory=list)
    rows: list[int] = dataclasses.field(default_factory=list)
    assignment: list[int] = dataclasses.field(default_factory=list)
    edges: dict[Pair, tuple[float, bool]] = dataclasses.field(default_factory=dict)
    known: dict[Pair, Known] = dataclasses.field(default_factory=dict)
    tries: int = 0
    reversible: float | None = None

    def copy(self) -> State:
        held = self.nodes, self.rows, self.assignment, self.edges, self.known, self.tries, self.reversible
        return State(*map(copy.copy, held))

    def forward(self, pair: Pair) -> float:
        """The weight of an edge by itself; infinite where it is only there for the other way."""
        distance, walked = self.edges[pair]
        return min(distance, 1.0) if walked else distance

    def weighted(self) -> list[tuple[int, int, float]]:
        """All edges with their weights, by source, then target."""
        weights = {pair: self.forward(pair) for pair in self.edges}
        if self.reversible is not None:
            factor = np.float32(self.reversible)
            weights = {(u, v): min(w, float(factor * np.float32(weights[v, u]))) for (u, v), w in weights.items()}
        return sorted((u, v, weight) for (u, v), weight in weights.items())

    def add_ways_back(self) -> None:
        """Edges the other way, where there are none."""
        if self.reversible is not None:
            for u, v in list(self.edges):
                self.edges.setdefault((v, u), (math.inf, False))

    def is_removed(self, pair: Pair) -> bool:
        return pair in self.known and self.known[pair].removed_at is not None

    def standing(self, k: int | None) -> dict[Pair, float]:
        """Weights of the edges that plans may use."""
        return {pair: weight for pair, weight in self.filtered(k).items() if not self.is_removed(pair)}

    def filtered(self, k: int | None) -> dict[Pair, float]:
        """Weights of the k nearest successors, of the ways back from them, and of the spares."""
        own = sorted((u, v, weight) for u, v in self.edges if (weight := self.forward((u, v))) < math.inf)
        kept = {(u, v) for u, v, _ in k_nearest(own, k)}
        kept |= {(v, u) for u, v in kept if self.reversible is not None}
        kept |= {pair for pair, known in self.known.items() if known.spare}
        return {(u, v): weight for u, v, weight in self.weighted() if (u, v) in kept}


class Model:
    """What a memory should be after the calls made so far."""

    def __init__(self, world: World, options: dict[str, Any], policy: sgm.CleanupPolicy) -> None:
        self.world, self.options, self.k, self.policy = world, options, options["k"], policy
        names = ("criterion", "tau_a", "max_dist", "scope", "feature_average")
        tau_p = math.inf if options["tau_p"] is None else options["tau_p"]
        self.graph = SparseGraph(world.matrix, world.phi, tau_p=tau_p, **{name: options[name] for name in names})
        self.state = State(reversible=options["reversible"])
        self.tail: Pair | None = None  # episode and node of the last observation
        self.attributes: dict[str, np.ndarray] = {}
        self.events: list[tuple[Pair, str, int]] = []
        self.past: list[State] = []  # before the first event, then after each
        self.batches: list[tuple[list[int], Any]] = []

    def copy(self) -> Model:
        """A copy that further calls do not change."""
        twin = copy.copy(self)
        twin.graph = dataclasses.replace(
            self.graph, nodes=[*self.graph.nodes], features=[*self.graph.features], assignment=[]
        )
        twin.state, twin.attributes = self.state.copy(), dict(self.attributes)
        twin.events, twin.past, twin.batches = [*self.events], [*self.past], [*self.batches]
        return twin

    # building

    def extend(self, rows: list[int], episodes: list[int] | None, given: dict[str, np.ndarray], kept: list[bool]):
        """Take in a batch; `kept` says which observations uniform subsampling keeps."""
        state, first, old = self.state, len(self.state.nodes), set(self.state.edges)
        places = []
        for place, (row, keep) in enumerate(zip(rows, kept, strict=True)):
            node = self.graph.add(row) if keep else -1
            if node == len(state.nodes):
                state.nodes.append(len(state.assignment))
                state.rows.append(row)
                places.append(place)
            state.assignment.append(node)
        for u, v, weight in self.graph.edges():
            state.edges.setdefault((u, v), (weight, False))
        state.add_ways_back()
        self.add_attributes(first, places, given)
        walked = self.join_in_time(state.assignment[len(state.assignment) - len(rows) :], episodes, old)
        state.add_ways_back()
        for pair in walked:
            self.happens(pair, "walked", -1)

    def add_attributes(self, first: int, places: list[int], given: dict[str, np.ndarray]) -> None:
        """Values for the nodes from `first` on, which keep the observations at these places of a batch."""
        for name in {*self.attributes, *given}:
            example = self.attributes[name] if name in self.attributes else given[name]
            nothing = np.nan if example.dtype.kind == "f" else 0
            column = np.full((first + len(places), *example.shape[1:]), nothing, example.dtype)
            column[:first] = self.attributes.get(name, nothing)
            column[first:] = given[name][places] if name in given else nothing
            self.attributes[name] = column

    def join_in_time(self, nodes: list[int], episodes: list[int] | None, old: set[Pair]) -> list[Pair]:
        """New edges between consecutive nodes of an episode; those of the old edges that were not walked before."""
        if episodes is None:
            self.tail = None if nodes else self.tail
            return []
        steps = [*([self.tail] if self.tail else []), *zip(episodes, nodes, strict=True)]
        self.tail = steps[-1] if steps else None
        pairs = {(u, v) for (a, u), (b, v) in itertools.pairwise(steps) if a == b and u != v and u >= 0 and v >= 0}
        walked = []
        for pair in sorted(pairs):
            distance, before = self.state.edges.get(pair, (math.inf, False))
            if pair in old and not before:
                walked.append(pair)
            else:
                self.state.edges[pair] = (distance, True)
        return walked

    # cleanup

    def happens(self, pair: Pair, kind: str, episode: int) -> None:
        """Carry out an event and remember the state after it."""
        state = self.state
        if not self.events:
            self.past = [state.copy()]
        known = state.known.get(pair, Known())
        if kind == "walked":
            state.edges[pair] = (state.edges[pair][0], True)
        else:
            state.tries += kind in ("reached", "failed")
            state.known[pair] = {
                "reached": dataclasses.replace(known, successes=known.successes + 1, streak=0, guarded=False),
                "failed": dataclasses.replace(known, failures=known.failures + 1, streak=known.streak + 1),
                "removed": dataclasses.replace(known, removed_at=state.tries, guarded=False),
                "restored": dataclasses.replace(known, removed_at=None, streak=0),
                "guarded": dataclasses.replace(known, guarded=True),
                "spare": dataclasses.replace(known, spare=True),
            }[kind]
        self.events.append((pair, kind, episode))
        FIGURES[f"event: {kind}"] += 1
        self.past.append(state.copy())

    def record(self, pair: Pair, reached: bool, episode: int) -> bool:
        """One try of an edge; whether it removes the edge."""
        self.happens(pair, "reached" if reached else "failed", episode)
        if reached or self.state.is_removed(pair) or not self.gives_up(self.state.known[pair]):
            return False
        doubtful = {other for other, known in self.state.known.items() if known.spare and not known.successes}
        standing = self.state.standing(self.k).keys() - doubtful
        without, nodes = standing - {pair}, len(self.state.nodes)
        guarded = self.policy.guard and max(components(nodes, without)) < max(components(nodes, standing))
        self.happens(pair, "guarded" if guarded else "removed", episode)
        if guarded and self.policy.spares:
            self.let_in(pair, without, episode)
        return not guarded

    def let_in(self, pair: Pair, standing: set[Pair], episode: int) -> None:
        """Let in the shortest edge that leads round one, if there is one."""
        filtered = self.state.filtered(self.k)
        spares = [(w, u, v) for u, v, w in self.state.weighted() if (u, v) not in filtered]
        for _, u, v in sorted(spares):
            if not self.state.is_removed((u, v)) and math.isfinite(
                costs_to(pair[1], dict.fromkeys(standing | {(u, v)}, 1.0)).get(pair[0], math.inf)
            ):
                self.happens((u, v), "spare", episode)
                return

    def gives_up(self, known: Known) -> bool:
        if self.policy.name == "belief":
            tries = known.successes + known.failures
            return (1 + known.successes) / (2 + tries) < self.policy.threshold
        return known.streak >= 2 if self.policy.name == "second-failure" else True

    # planning

    def prices(self, by: str, state: State | None = None) -> dict[Pair, float]:
        """What plans pay for each edge they may use."""
        state = state or self.state
        failure = 3.0 * self.options["max_dist"] if self.policy.max_steps is None else self.policy.max_steps
        found = {}
        for pair, weight in state.standing(self.k).items():
            known = state.known.get(pair, Known())
            expected = weight + failure * (1 + known.failures) / (1 + known.successes)
            price = expected if known.guarded or self.policy.name == "belief" else weight
            found[pair] = price if by == "distance" else 1.0 + known.guarded * known.failures
        return found

    def steps_to_nodes(self, row: int) -> list[float]:
        return self.world.matrix[row, self.state.rows].tolist()

    def steps_from_nodes(self, row: int) -> list[float]:
        return self.world.matrix[self.state.rows, row].tolist()

    def near(self, steps: list[float], within: float | None) -> dict[int, float]:
        """Nodes within reach of a start or a goal with their steps, nearest first; the nearest is always one."""
        limit = np.float32(self.options["max_dist"])
        order = sorted(range(len(steps)), key=lambda node: (steps[node], node))
        reach = [self.graph.is_within(np.float32(n), limit) if within is None else n <= within for n in steps]
        return {node: steps[node] for node in order if reach[node] or node == order[0]}

    def ways(self, starts: dict[int, float], goals: dict[int, float], by: str, candidates: str) -> dict[Pair, float]:
        """What ways between candidates cost: between the nearest that are joined, or between all of them."""
        prices, legs = self.prices(by), by == "distance"
        costs = {goal: costs_to(goal, prices) for goal in goals}
        most = max(len(starts), len(goals))
        for rank in range(1 if candidates == "nearest" else most, most + 1):
            pairs = itertools.product(list(starts)[:rank], list(goals)[:rank])
            found = {(s, g): costs[g][s] + legs * (starts[s] + goals[g]) for s, g in pairs if s in costs[g]}
            if found:
                return found
        return {}


def costs_to(goal: int, prices: dict[Pair, float]) -> dict[int, float]:
    """Dijkstra's algorithm: what the cheapest way to a goal costs, from every node that has one."""
    into = collections.defaultdict(list)
    for (u, v), price in prices.items():
        into[v].append((u, price))
    best: dict[int, float] = {}
    heap = [(0.0, goal)]
    while heap:
        cost, node = heapq.heappop(heap)
        if node not in best:
            best[node] = cost
            for other, price in into[node]:
                heapq.heappush(heap, (cost + price, other))
    return best


def components(nodes: int, standing: Iterable[Pair]) -> list[int]:
    """The number of nodes in each strongly connected component."""
    after = collections.defaultdict(list)
    for u, v in standing:
        after[u].append(v)
    reached = []
    for node in range(nodes):
        found, left = {node}, [node]
        while left:
            new = set(after[left.pop()]) - found
            found |= new
            left += new
        reached.append(found)
    return [len(part) for part in {frozenset(u for u in reached[v] if v in reached[u]) for v in range(nodes)}]


# -- the comparison ----------------------------------------------------------------------------------------------


def agree(memory: Memory, model: Model, state: State | None = None) -> None:
    """Whether a memory holds what the model says, as it is now or as it was in an earlier state."""
    state = state or model.state
    edges, total = state.weighted(), len(state.nodes)
    assert len(memory) == total and memory.nodes.tolist() == state.nodes
    assert memory.assignment.tolist() == state.assignment
    assert memory.embeddings.ravel().tolist() == state.rows
    assert edge_list(memory.edges(filtered=False)) == [edge for edge in edges if not state.is_removed(edge[:2])]
    assert edge_list(memory.removed()) == [edge for edge in edges if state.is_removed(edge[:2])]
    assert {(u, v): w for u, v, w in edge_list(memory.edges())} == state.standing(model.k)
    tried = {pair: Known(**evidence.asdict()) for pair, evidence in memory.tried().items()}
    assert tried == {pair: known for pair, known in state.known.items() if known.successes + known.failures}
    assert all(Known(**memory.evidence(*pair).asdict()) == known for pair, known in state.known.items())
    assert memory.records == state.tries
    assert memory.settings.k == model.k
    assert set(memory.attributes) == set(model.attributes)
    for name, expected in model.attributes.items():
        found = memory.attributes[name]
        assert (found.dtype.kind, found.dtype.itemsize) == (expected.dtype.kind, expected.dtype.itemsize)
        np.testing.assert_array_equal(found, expected[:total])


def agree_in_full(memory: Memory, model: Model) -> None:
    """What `agree` compares, and all that takes longer or never changes by itself."""
    agree(memory, model)
    agree_on_events(memory, model.events)
    if model.state.nodes:
        np.testing.assert_array_equal(memory.features, np.stack(model.graph.features))
    kept = model.world.show(model.state.rows)
    if model.options["keep_observations"]:
        assert memory.observations.tolist() == kept.tolist()
        assert not len(memory) or memory.observations.dtype == kept.dtype
    expected = {**model.options, "k": model.k}
    assert {name: value for name, value in memory.settings.asdict().items() if name in expected} == expected
    assert memory.policy == model.policy.bound_to(model.options["max_dist"])
    for by, goal in itertools.product(("distance", "hops"), {0, len(memory) - 1} if len(memory) else ()):
        check_costs(memory, model.prices(by), goal, by)
    agree_on_stats(memory, model)


def agree_on_events(memory: Memory, events: list[tuple[Pair, str, int]]) -> None:
    found = memory.events()
    folded = len(events) - len(found.sequence)
    assert found.sequence.tolist() == list(range(folded + 1, len(events) + 1))
    ends = zip(found.source.tolist(), found.target.tolist(), strict=True)
    assert list(zip(ends, found.kind.tolist(), found.episode.tolist(), strict=True)) == events[folded:]
    assert np.isfinite(found.time).all()


def agree_on_stats(memory: Memory, model: Model) -> None:
    stats, state = memory.stats(), model.state
    standing, parts = state.standing(model.k), components(len(state.nodes), state.standing(model.k))
    removed, known = sum(map(state.is_removed, state.edges)), state.known.values()
    weights = list(standing.values())
    tried = {pair for pair, item in state.known.items() if item.successes + item.failures}
    untested = sum(pair not in tried for pair in standing)
    expected = {
        "observations": len(state.assignment),
        "nodes": len(state.nodes),
        "merged": sum(node >= 0 for node in state.assignment) - len(state.nodes),
        "edges": len(standing),
        "filtered_edges": len(state.edges) - removed - len(standing),
        "removed_edges": removed,
        "guarded_edges": sum(item.guarded for item in known),
        "spare_edges": sum(item.spare and item.removed_at is None for item in known),
        "components": len(parts),
        "largest_component": max(parts, default=0),
        "untested_share": round(untested / len(weights), 4) if weights else None,
        "median_edge": round(float(np.median(np.float32(weights))), 4) if weights else None,
        "longest_edge": round(max(weights), 4) if weights else None,
        "tries": state.tries,
        "successes": sum(item.successes for item in known),
        "failures": sum(item.failures for item in known),
        "events": len(model.events),
        "events_kept": len(memory.events().sequence),
        "embedding_size": 1 if state.nodes else 0,
        "feature_size": model.world.phi.shape[1] if state.nodes else 0,
        "bytes": memory.nbytes,
    }
    assert {name: stats.asdict()[name] for name in expected} == expected
    assert set(stats.attributes) == set(model.attributes)
    assert memory.largest_part() == max(parts, default=0)
    assert str(stats) and repr(memory) and memory._repr_html_()


def agree_on_exports(memory: Memory, model: Model, folder: Path) -> None:
    state, standing = model.state, model.state.standing(model.k)
    if state.nodes:
        found = memory.prices().tocoo()
        entries = zip(found.col.tolist(), found.row.tolist(), found.data.tolist(), strict=True)
        assert {(u, v): price for u, v, price in entries if price < math.inf} == pytest.approx(model.prices("distance"))
    graph = memory.to_networkx()
    assert {(u, v): weight for u, v, weight in graph.edges(data="weight")} == standing
    assert [graph.nodes[node]["stream"] for node in graph] == state.nodes
    assert memory.to_scipy().nnz == len(standing)
    memory.to_graphml(folder / "m.graphml")
    written = networkx.read_graphml(folder / "m.graphml", node_type=int)
    assert set(written) == set(graph) and set(written.edges) == set(graph.edges)
    nodes = memory.to_csv(folder / "m.csv")
    lines = [len(path.read_text().splitlines()) for path in (folder / "m.csv", nodes)]
    assert lines == [1 + len(standing), 1 + len(state.nodes)]


def check_plan(plan: sgm.Plan, prices: dict[Pair, float], model: Model) -> None:
    """A plan is a path over edges that plans may use, and its figures are those of that path."""
    nodes = plan.nodes.tolist()
    legs = list(itertools.pairwise(nodes))
    paid = model.prices("distance")
    assert plan.weights.tolist() == pytest.approx([paid[leg] for leg in legs])
    assert plan.steps.tolist() == pytest.approx([model.state.standing(model.k)[leg] for leg in legs])
    assert plan.cost == pytest.approx(sum(prices[leg] for leg in legs))
    rows = [model.state.rows[node] for node in nodes]
    shown = model.world.show(rows) if model.options["keep_observations"] else np.float32(rows)[:, None]
    assert plan.waypoints.tolist() == shown.tolist()
    assert plan.total == pytest.approx(plan.start_distance + plan.weights.sum() + plan.goal_distance)
    assert str(plan) and plan.asdict()["nodes"] == nodes


def check_costs(memory: Memory, prices: dict[Pair, float], goal: int, by: str) -> None:
    """What the way from every node to a goal costs; none leads from a node that is not told."""
    costs = costs_to(goal, prices)
    for start in range(len(memory)):
        if start in costs:
            assert memory.plan_nodes(start, goal, by=by).cost == pytest.approx(costs[start])
        else:
            assert memory.next_nodes([start], [goal], by=by) == [-1]


# -- wrong calls -------------------------------------------------------------------------------------------------

# fmt: off
HUGE = (2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 10**5000)
RAGGED = [[0], [0, 1]]
ODD = ("0", b"0", 1j, object(), np.array(["a"]), np.datetime64("2020-01-01"), [None], slice(2), [10**5000], RAGGED)
NO_NODES = (-1, *HUGE, 0.0, 0.5, math.nan, None, True, [], [0], [[0]], np.zeros(2), {"a": 1}, {1}, *ODD)
NO_COUNTS = (-1, *HUGE, 0.5, math.nan, True, [], [1], {}, *ODD)
NO_EPISODES = (*HUGE[1:], 0.5, math.nan, True, [], [[1]], [0] * 40, *ODD)
NO_NAMES = ("", "node", "stream", "id", "a\nb", "x" * 101, 5, None, ("a",), b"a")
NO_OBSERVATIONS = (5, None, 0.5, math.nan, [math.nan], [-1], [99], [10**30], [True], {1}, {"a": 1}, *ODD)
NO_VALUES = (None, "a", 5, [None], RAGGED, 1j, [10**400], np.zeros(99), np.zeros((99, 0)), object(), {}, np.float32(3))
NO_BATCHES = (5, "a", [1], {"": [1]}, {"id": [1]}, {"b": [1, 2]}, {"b": 1}, {"b": ["x"]}, {"b": [None]}, {"b": [1j]},
              {1: [1]}, {"b": [[]]}, {"b": RAGGED}, {"b": [10**400]}, {"b": None}, {"b": [1], "node": [1]})
NO_PATHS = ("", "\0", b"m.sgm", "/", "/dev/null/m.sgm", "no/such/folder/m.sgm", "x" * 300)
NO_STEPS = (-1, math.nan, "a", True, [1], 10**400, 1e39, *ODD)
NO_SETTINGS = (-1, math.nan, math.inf, *HUGE[:-1], "a", b"a", None, True, [], [1], {}, object(), 1j, 0.5)
SETTINGS = ("criterion", "tau_a", "tau_p", "max_dist", "k", "scope", "policy", "size", "seed", "feature_average",
            "keep_observations", "keep_events", "features")

# Bad arguments, and a call of a memory m in a world w with one of them, x: it must raise and change nothing.
CHANGES = {
    "extend": (NO_OBSERVATIONS, lambda m, w, x: m.extend(x)),
    "extend, episode": (NO_EPISODES, lambda m, w, x: m.extend(w.show([0]), episode=x)),
    "extend, block": ((0, -1, 0.5, math.nan, True, [1], *ODD), lambda m, w, x: m.extend(w.show([0]), block=x)),
    "extend, attributes": (NO_BATCHES, lambda m, w, x: m.extend(w.show([0]), attributes=x)),
    "add": ((-1, 99, math.nan, 0.5, None, 10**30, *ODD), lambda m, w, x: m.add(x)),
    "record": (NO_NODES, lambda m, w, x: m.record(x, 0, True)),
    "record, target": (NO_NODES, lambda m, w, x: m.record(0, x, False)),
    "record, no edge": ((0,), lambda m, w, x: m.record(0, x, False)),
    "record, reached": ((0, 1, 0.7, None, [True], [], math.nan, *ODD), lambda m, w, x: m.record(0, 1, x)),
    "record, episode": ((-1, *NO_EPISODES), lambda m, w, x: m.record(0, 1, True, episode=x)),
    "record_many": (([0, 1], [[0]], 0, None, {}, *ODD), lambda m, w, x: m.record_many(x, [1], [True])),
    "remove": (NO_NODES, lambda m, w, x: m.remove(x, 0)),
    "restore": (NO_NODES, lambda m, w, x: m.restore(x, 0)),
    "restore, half": ((0,), lambda m, w, x: m.restore(x)),
    "filter": ((0, *NO_COUNTS), lambda m, w, x: m.filter(x)),
    "attributes, name": (NO_NAMES, lambda m, w, x: m.attributes.__setitem__(x, np.zeros(len(m)))),
    "attributes, values": (NO_VALUES, lambda m, w, x: m.attributes.__setitem__("b", x)),
    "attributes, delete": (("nobody", 5, None, [1], ""), lambda m, w, x: m.attributes.__delitem__(x)),
    "at": ((None, 10**9, *NO_COUNTS), lambda m, w, x: m.at(x)),
    "save": (NO_PATHS, lambda m, w, x: m.save(x)),
    "backup": (NO_PATHS, lambda m, w, x: m.backup(x)),
    "load": (NO_PATHS, lambda m, w, x: Memory.load(x, w)),
    "open": (NO_PATHS, lambda m, w, x: Memory.open(x, w)),
    "to_graphml": (NO_PATHS, lambda m, w, x: m.to_graphml(x)),
}

# The same for calls that change nothing anyway: they answer, or raise an error of ours.
QUERIES = {
    "plan_nodes": (NO_NODES, lambda m, w, x: m.plan_nodes(x, 0)),
    "plan_nodes, goal": (NO_NODES, lambda m, w, x: m.plan_nodes(0, x)),
    "plan_nodes, by": (("time", "", None, 5, ["hops"], {}), lambda m, w, x: m.plan_nodes(0, 0, by=x)),
    "plan": ((-1, 99, math.nan, None, *ODD), lambda m, w, x: m.plan(x, w.show([0])[0])),
    "plan, within": (NO_STEPS, lambda m, w, x: m.plan(w.show([0])[0], w.show([0])[0], within=x)),
    "plan_many": (([0, 0], *NO_OBSERVATIONS), lambda m, w, x: m.plan_many(w.show([0]), x)),
    "evidence": (NO_NODES, lambda m, w, x: m.evidence(x, 0)),
    "events": (NO_NODES, lambda m, w, x: m.events(0, x)),
    "next_nodes": (([], [0], [0, 1], *NO_NODES), lambda m, w, x: m.next_nodes(x, [0])),
    "next_nodes, one": (NO_NODES, lambda m, w, x: m.next_nodes([0], [x])),
    "waypoints": (([], *NO_NODES), lambda m, w, x: m.waypoints(x)),
    "waypoints, one": (([], [0], *NO_NODES), lambda m, w, x: m.waypoints([x])),
    "reached": (([], [0], *NO_NODES), lambda m, w, x: m.reached(w.show([0]), [x])),
    "reached, cutoff": (NO_STEPS, lambda m, w, x: m.reached(w.show([0]), [0], x)),
    "steps_to": (NO_NODES, lambda m, w, x: m.steps_to(w.embed(w.show([0])), [x])),
    "localise": (NO_OBSERVATIONS, lambda m, w, x: m.localise(x)),
    "localise, embedded": ((5, None, [["a"]], np.zeros((1, 7)), np.zeros(3), *ODD),
                           lambda m, w, x: m.localise(x, embedded=True)),
    "steps": (([0, 0], *NO_OBSERVATIONS), lambda m, w, x: m.steps(w.show([0]), x)),
    "attach": ((5, None, np.zeros((1, 99)), np.zeros(3), np.zeros((0, 0)), [["a"]], [[1j]], *ODD),
               lambda m, w, x: m.attach(x, np.array([0]))),
    "attach, goals": ((0, [0.5], [-1], [99], np.zeros((1, 99)), [True], None, *ODD),
                      lambda m, w, x: m.attach(np.zeros((1, len(m))), x)),
    "attach, candidates": (("some", None, 5), lambda m, w, x: m.attach(np.zeros((1, len(m))), [0], candidates=x)),
    "certificate": (([0] * 70, *NO_OBSERVATIONS), lambda m, w, x: m.certificate(x)),
    "attributes": (("nobody", 5, None, [1]), lambda m, w, x: m.attributes[x]),
    **{f"make, {name}": (NO_SETTINGS, lambda m, w, x, name=name: Memory(w, **{name: x})) for name in SETTINGS},
}
# fmt: on

WRONG_SIGNATURES = (
    lambda m: m.extend(),
    lambda m: m.extend([0], epsiode=1),
    lambda m: m.record(0, 1),
    lambda m: m.record(0, 1, True, 3),
    lambda m: m.plan_nodes(0),
    lambda m: m.filter(),
    lambda m: m.at(),
    lambda m: m.save(),
    lambda m: Memory.load(),
)


# -- the machine -------------------------------------------------------------------------------------------------

NUMBER = st.integers(0, 63)
NUMBERS = st.lists(NUMBER, max_size=8)
ENDS = st.lists(st.tuples(NUMBER, NUMBER), min_size=1, max_size=4)
EPISODE = st.sampled_from([1, 1, 1, 2, 2**53 - 1])
BLOCK = st.none() | st.integers(1, 7)
BY = st.sampled_from(["distance", "hops"])
WITHIN = st.sampled_from([None, None, 0.0, 1.0, 2.5, 1e30, math.inf])
MOST_NODES = 24
KEEP = st.sampled_from([None, 0, 1, 5, 250_000])


# What changes a memory, and the arguments of it. Every step makes a few such changes first.
CHANGES_MADE = {
    "extend": {
        "numbers": NUMBERS,
        "block": BLOCK,
        "episode": st.none() | EPISODE | st.lists(EPISODE, min_size=8, max_size=8) | st.just(-5),
        "forms": st.dictionaries(st.sampled_from(NAMES), st.sampled_from(FORMS), max_size=2),
    },
    "add": {"number": NUMBER, "episode": st.none() | EPISODE, "name": st.sampled_from(NAMES)},
    "extend_with_a_fault": {
        "numbers": NUMBERS,
        "calls": st.integers(0, 6),
        "fault": st.sampled_from([math.nan, -1.0, Broken()]),
    },
    "walk": {"numbers": st.lists(NUMBER, min_size=1, max_size=4), "episode": EPISODE},
    "filter": {"k": st.none() | st.integers(1, 5)},
    "set_attribute": {"name": st.sampled_from(NAMES), "form": st.sampled_from(FORMS), "seed": NUMBER},
    "delete_attribute": {"number": NUMBER},
    "record": {"number": NUMBER, "reached": st.booleans(), "episode": st.none() | EPISODE},
    "record_many": {"numbers": NUMBERS, "seed": NUMBER, "same": st.none() | EPISODE | st.just("each")},
    "fail_six_times": {"number": NUMBER},
    "remove_one": {"number": NUMBER},
    "restore_one": {"number": NUMBER},
    "restore_all": {},
}
CHANGE = st.one_of([st.tuples(st.just(name), st.fixed_dictionaries(given)) for name, given in CHANGES_MADE.items()])
SOME_CHANGES = st.lists(CHANGE, max_size=6)


def step(when=lambda machine: True, **arguments: Any):
    """A rule: a few changes, and then what the function does. Calls are counted."""

    def decorate(function):
        @functools.wraps(function)
        def call(machine, first, **values) -> None:
            machine.change(first)
            FIGURES[function.__name__] += 1
            function(machine, **values)

        return precondition(when)(rule(first=SOME_CHANGES, **arguments)(call))

    return decorate


def has_nodes(machine: MemoryMachine) -> bool:
    return bool(machine.model.state.nodes)


def has_edges(machine: MemoryMachine) -> bool:
    return bool(machine.model.state.edges)


def is_live(machine: MemoryMachine) -> bool:
    return machine.live


def is_not_live(machine: MemoryMachine) -> bool:
    return not machine.live


class MemoryMachine(RuleBasedStateMachine):
    """A memory and its model, to which the same is done.

    Attributes:
        eager: compare after every step; otherwise only at the end, so that comparing does not refresh what is cached.
        keep: `keep_events` of the memory.
        live: whether the memory is live, in `path`.
        in_group: whether a group has begun since.
        in_file: the model of what `path` holds, with its `keep`, where that is not the model itself.
    """

    def __init__(self) -> None:
        super().__init__()
        FIGURES["examples"] += 1
        self.folder = Path(tempfile.mkdtemp(prefix="sgm-stateful-", dir=IN_RAM if IN_RAM.is_dir() else None))
        self.path = self.folder / "live.sgm"
        self.chunk = event_log._CHUNK
        self.live = self.in_group = False
        self.in_file: tuple[Model, int | None] | None = None

    @initialize(
        world=worlds(),
        options=all_settings(),
        policy=POLICIES,
        keep=KEEP,
        chunk=st.sampled_from([1, 3, 4096]),
        live=st.booleans(),
        eager=st.booleans(),
        rows=st.just([]) | st.lists(NUMBER, min_size=10, max_size=20),
    )
    def begin(self, world, options, policy, keep, chunk, live, eager, rows) -> None:
        event_log._CHUNK = chunk
        self.world, self.keep, self.eager, self.live = world, keep, eager, live
        self.model = Model(world, options, policy)
        make = functools.partial(Memory.open, self.path) if live else Memory
        self.memory = make(world, world.features, policy=policy, keep_events=keep, **options)
        self.take_in([self.row(number) for number in rows])

    def teardown(self) -> None:
        try:
            if hasattr(self, "memory") and sys.exc_info()[0] is None:
                agree_in_full(self.memory, self.model)
        finally:
            event_log._CHUNK = self.chunk
            if hasattr(self, "memory"):
                self.memory.close()
            shutil.rmtree(self.folder)

    @invariant()
    def memory_and_model_agree(self) -> None:
        if hasattr(self, "memory") and self.eager:
            agree(self.memory, self.model)

    def change(self, changes: list[tuple[str, dict[str, Any]]]) -> None:
        for name, given in changes:
            FIGURES[name] += 1
            getattr(self, name)(**given)

    def row(self, number: int) -> int:
        return number % len(self.world.matrix)

    def node(self, number: int) -> int:
        return number % len(self.model.state.nodes)

    def edge(self, number: int) -> Pair:
        """One of the edges; three times of four one that plans may use."""
        edges = sorted((number % 4 and self.model.state.standing(self.model.k)) or self.model.state.edges)
        return edges[number // 4 % len(edges)]

    def rows_along(self, numbers: list[int]) -> list[int]:
        """The rows at both ends of some edges; any rows as long as there is none."""
        if not self.model.state.edges:
            return [self.row(number) for number in numbers]
        return [self.model.state.rows[node] for number in numbers for node in self.edge(number)]

    @contextlib.contextmanager
    def folding(self):
        """After a call at least `keep` events are kept one by one, and at most a chunk and those just made besides."""
        if not self.eager or self.keep is None:
            yield
            return
        total, before = len(self.model.events), len(self.memory.events().sequence)
        yield
        made, after = len(self.model.events) - total, len(self.memory.events().sequence)
        assert min(self.keep, before + made) <= after <= self.keep + event_log._CHUNK - 1 + made

    # building

    def take_in(self, rows, episode=None, given=None, block=None, one=False) -> None:
        """Extend memory and model, or with `one` add a single observation."""
        if len(self.model.state.nodes) + len(rows) > MOST_NODES:
            return
        model, shown, given = self.model, self.world.show(rows), given or {}
        first, room = len(model.state.nodes), len(rows)
        with self.folding():
            if one:
                values = {name: column[0] for name, column in given.items()}
                assignment = [self.memory.add(shown[0], episode=episode, attributes=values)]
            else:
                report = self.memory.extend(shown, episode=episode, attributes=given, block=block)
                assignment = report.assignment.tolist()
            kept = [node >= 0 for node in assignment]
            model.extend(rows, None if episode is None else np.broadcast_to(episode, len(rows)).tolist(), given, kept)
        if model.options["criterion"] == "uniform":
            room = min(room, model.options["size"] - first)
        assert sum(kept) == room
        assert assignment == model.state.assignment[len(model.state.assignment) - len(rows) :]
        model.batches.append((rows, episode))
        if not one:
            assert (report.added, report.dropped) == (len(model.state.nodes) - first, len(rows) - room)
            assert report.added + report.merged + report.dropped == len(rows)

    def fits(self, name: str, form: Form) -> bool:
        """Whether values of this form can be given with observations."""
        held = self.model.attributes.get(name)
        return held is None or (form[1] == held.shape[1:] and np.can_cast(np.dtype(form[0]), held.dtype, "same_kind"))

    def extend(self, numbers, block, episode, forms) -> None:
        rows = [self.row(number) for number in numbers]
        episode = episode[: len(rows)] if isinstance(episode, list) else episode
        given = {name: some_values(form, len(rows), len(self.model.batches)) for name, form in forms.items()}
        if all(self.fits(name, form) for name, form in forms.items()):
            self.take_in(rows, episode, given, block)
        else:
            with pytest.raises(sgm.InputError):
                self.memory.extend(self.world.show(rows), episode=episode, attributes=given)

    def add(self, number, episode, name) -> None:
        given = {name: some_values(FORMS[0], 1, number)} if self.fits(name, FORMS[0]) else {}
        self.take_in([self.row(number)], episode, given, one=True)

    def extend_with_a_fault(self, numbers, calls, fault) -> None:
        """Either the distance was not asked so often, or nothing has changed."""
        given = {"fault": some_values(FORMS[0], len(numbers), 0)}
        self.world.calls_until_fault, self.world.fault = calls, fault
        try:
            self.take_in([self.row(number) for number in numbers], 3, given, block=2)
        except Broken:
            assert isinstance(fault, Broken)
        except sgm.DistanceError:
            assert not isinstance(fault, Broken)
        finally:
            self.world.calls_until_fault = math.inf

    def walk(self, numbers, episode) -> None:
        """An episode through some of the edges, which makes their weight 1 if its observations are merged."""
        self.take_in(self.rows_along(numbers), episode)

    def filter(self, k) -> None:
        self.memory.filter(k)
        self.model.k = k

    def set_attribute(self, name, form, seed) -> None:
        values = some_values(form, len(self.model.state.nodes), seed)
        self.memory.attributes[name] = values
        self.model.attributes[name] = values.copy()
        values[:] = 0  # an array that was given is the caller's again

    def delete_attribute(self, number) -> None:
        if self.model.attributes:
            name = sorted(self.model.attributes)[number % len(self.model.attributes)]
            del self.memory.attributes[name], self.model.attributes[name]

    # cleanup

    def record(self, number, reached, episode) -> None:
        if self.model.state.edges:
            pair = self.edge(number)
            with self.folding():
                removed = self.memory.record(*pair, reached, episode=episode)
                assert removed == self.model.record(pair, reached, -1 if episode is None else episode)

    def record_many(self, numbers, seed, same) -> None:
        pairs = [self.edge(number) for number in numbers if self.model.state.edges]
        outcomes = [bool(seed >> place & 1) for place in range(len(pairs))]
        episode = np.arange(len(pairs)) if same == "each" else same
        with self.folding():
            sources, targets = [u for u, _ in pairs], [v for _, v in pairs]
            removed = self.memory.record_many(sources, targets, outcomes, episode=episode)
            episodes = np.broadcast_to(-1 if episode is None else episode, len(pairs)).tolist()
            tries = zip(pairs, outcomes, episodes, strict=True)
            assert removed == [self.model.record(*one) for one in tries]

    def fail_six_times(self, number) -> None:
        """By then every policy has removed the edge, or the guard keeps it."""
        if self.model.state.edges:
            pair = self.edge(number)
            for _ in range(6):
                with self.folding():
                    assert self.memory.record(*pair, False) == self.model.record(pair, False, -1)

    def remove_one(self, number) -> None:
        if self.model.state.edges:
            pair = self.edge(number)
            stood = not self.model.state.is_removed(pair)
            with self.folding():
                assert self.memory.remove(*pair) == stood
                if stood:
                    self.model.happens(pair, "removed", -1)

    def restore_one(self, number) -> None:
        if self.model.state.edges:
            pair = self.edge(number)
            removed = self.model.state.is_removed(pair)
            with self.folding():
                assert self.memory.restore(*pair) == removed
                if removed:
                    self.model.happens(pair, "restored", -1)

    def restore_all(self) -> None:
        """In which order removed edges come back is not promised."""
        removed = set(filter(self.model.state.is_removed, self.model.state.edges))
        with self.folding():
            assert self.memory.restore() == len(removed)
            events = self.memory.events()
            newest = slice(len(events.kind) - len(removed), None)
            order = list(zip(events.source[newest].tolist(), events.target[newest].tolist(), strict=True))
            assert set(order) == removed
            for pair in order:
                self.model.happens(pair, "restored", -1)

    # planning

    @step(when=has_nodes, ends=ENDS, by=BY)
    def plan_nodes(self, ends, by) -> None:
        starts, goals = ([self.node(end) for end in column] for column in zip(*ends, strict=True))
        following = self.memory.next_nodes(starts, goals, by=by).tolist()
        prices = self.model.prices(by)
        for start, goal, after in zip(starts, goals, following, strict=True):
            costs = costs_to(goal, prices)
            if start not in costs:
                assert after == -1
                with pytest.raises(sgm.NoPath):
                    self.memory.plan_nodes(start, goal, by=by)
                continue
            plan = self.memory.plan_nodes(start, goal, by=by)
            assert (plan.nodes[0], plan.nodes[-1]) == (start, goal)
            assert plan.cost == pytest.approx(costs[start])
            if start == goal:
                assert after == goal
            else:
                assert costs[start] == pytest.approx(prices[start, after] + costs[after])
            check_plan(plan, prices, self.model)

    @step(
        when=has_edges, goal=NUMBER, tries=st.lists(st.tuples(NUMBER, st.sampled_from(["reached", "failed", "back"])))
    )
    def plan_between_tries(self, goal, tries) -> None:
        """Plans that are kept for a goal are given up when an edge that matters to them changes."""
        for number, what in tries:
            if what == "back":
                self.restore_one(number)
            else:
                self.record(number, what == "reached", None)
            for by in ("distance", "hops"):
                check_costs(self.memory, self.model.prices(by), self.node(goal), by)

    @step(when=has_nodes, ends=ENDS, by=BY, within=WITHIN)
    def plan(self, ends, by, within) -> None:
        model, show = self.model, self.world.show
        starts, goals = ([self.row(end) for end in column] for column in zip(*ends, strict=True))
        plans = self.memory.plan_many(show(starts), show(goals), by=by, within=within)
        prices = model.prices(by)
        for start, goal, plan in zip(starts, goals, plans, strict=True):
            to_nodes, from_nodes = model.steps_to_nodes(start), model.steps_from_nodes(goal)
            ways = model.ways(model.near(to_nodes, within), model.near(from_nodes, within), by, "nearest")
            if plan is None:
                assert not ways
                continue
            first, last = int(plan.nodes[0]), int(plan.nodes[-1])
            assert (plan.start_distance, plan.goal_distance) == (to_nodes[first], from_nodes[last])
            assert ways[first, last] == pytest.approx(min(ways.values()))
            assert ways[first, last] == pytest.approx(plan.total if by == "distance" else plan.cost)
            check_plan(plan, prices, model)
        if plans[0] is None:
            with pytest.raises(sgm.NoPath):
                self.memory.plan(show(starts)[0], show(goals)[0], by=by, within=within)
        else:
            plan = self.memory.plan(show(starts)[0], show(goals)[0], by=by, within=within)
            assert (plan.nodes.tolist(), plan.total) == (plans[0].nodes.tolist(), plans[0].total)

    @step(when=has_nodes, ends=ENDS, by=BY, within=WITHIN, every=st.booleans(), to_nodes=st.booleans())
    def attach(self, ends, by, within, every, to_nodes) -> None:
        model, candidates = self.model, "all" if every else "nearest"
        starts = [self.row(start) for start, _ in ends]
        goals = [self.node(goal) if to_nodes else self.row(goal) for _, goal in ends]
        start_steps = self.memory.steps_to_nodes(self.world.show(starts))
        goal_steps = np.array(goals) if to_nodes else self.memory.steps_from_nodes(self.world.show(goals))
        found = self.memory.attach(start_steps, goal_steps, by=by, within=within, candidates=candidates)
        for start, goal, *pair in zip(starts, goals, *(end.tolist() for end in found), strict=True):
            last = {goal: 0.0} if to_nodes else model.near(model.steps_from_nodes(goal), within)
            ways = model.ways(model.near(model.steps_to_nodes(start), within), last, by, candidates)
            if ways:
                assert ways[tuple(pair)] == pytest.approx(min(ways.values()))
            else:
                assert pair == [-1, -1]

    @step(when=has_nodes, ends=ENDS, cutoff=st.sampled_from([0.0, 0.5, 1.0, 3.0]))
    def localise(self, ends, cutoff) -> None:
        memory, model, table = self.memory, self.model, self.world.matrix
        rows, waypoints = [self.row(a) for a, _ in ends], [self.node(b) for _, b in ends]
        shown, kept = self.world.show(rows), [model.state.rows[node] for node in waypoints]
        to_nodes, from_nodes = list(map(model.steps_to_nodes, rows)), list(map(model.steps_from_nodes, rows))
        assert memory.steps_to_nodes(shown).tolist() == to_nodes
        assert memory.steps_from_nodes(shown).tolist() == from_nodes
        for as_goals, steps in ((False, to_nodes), (True, from_nodes)):
            nearest = memory.localise(shown, as_goals=as_goals)
            assert nearest.node.tolist() == [each.index(min(each)) for each in steps]
            assert nearest.distance.tolist() == list(map(min, steps))
        assert memory.steps(shown, self.world.show(kept)).tolist() == table[rows, kept].tolist()
        assert memory.steps_to(memory.embed(shown), waypoints).tolist() == table[rows, kept].tolist()
        gaps = np.abs(np.float32(to_nodes) - np.float32(list(map(model.steps_to_nodes, kept)))).max(axis=1)
        assert memory.reached(shown, waypoints, cutoff).tolist() == (gaps < cutoff).tolist()

    # history

    def agree_on_the_past(self, memory: Memory, event: int) -> None:
        then = memory.at(event)
        agree(then, self.model, self.state_after(event))
        agree_on_events(then, self.model.events[:event])

    def state_after(self, event: int) -> State:
        return self.model.past[event] if self.model.events else self.model.state

    @step(number=NUMBER)
    def look_back(self, number) -> None:
        agree_on_events(self.memory, self.model.events)
        if self.model.state.edges:
            pair, every = self.edge(number), self.memory.events()
            assert Known(**self.memory.evidence(*pair).asdict()) == self.model.state.known.get(pair, Known())
            chosen = [ends == pair for ends in zip(every.source, every.target, strict=True)]
            for found, column in zip(self.memory.events(*pair), every, strict=True):
                np.testing.assert_array_equal(found, column[chosen])
        last = len(self.model.events)
        folded = last - len(self.memory.events().sequence)
        for event in range(max(folded, last - 12), last + 1):
            self.agree_on_the_past(self.memory, event)
        for event in (folded - 1, last + 1):
            with pytest.raises(sgm.InputError):
                self.memory.at(event)

    @step(number=NUMBER, other=NUMBER)
    def use_the_past(self, number, other) -> None:
        """The memory of then can be planned on, looked back from and saved, and cannot be changed."""
        folded = len(self.model.events) - len(self.memory.events().sequence)
        event = folded + number % (len(self.model.events) - folded + 1)
        then, state = self.memory.at(event), self.state_after(event)
        refused = (
            lambda: then.extend(self.world.show([0])),
            lambda: then.restore(),
            lambda: then.filter(1),
            lambda: then.attributes.__setitem__("position", np.zeros(len(then))),
        )
        for call in refused:
            with pytest.raises(sgm.InputError):
                call()
        for by in ("distance", "hops"):
            check_costs(then, self.model.prices(by, state), other % max(1, len(state.nodes)), by)
        assert then.largest_part() == max(components(len(state.nodes), state.standing(self.model.k)), default=0)
        self.agree_on_the_past(then, folded + other % (event - folded + 1))
        then.save(self.folder / "then.sgm")
        loaded = Memory.load(self.folder / "then.sgm", self.world, self.world.features)
        agree(loaded, self.model, state)
        agree_on_events(loaded, self.model.events[:event])

    # all of it

    @step(exports=st.booleans())
    def compare_in_full(self, exports) -> None:
        agree_in_full(self.memory, self.model)
        if exports:
            agree_on_exports(self.memory, self.model, self.folder)

    @step(block=BLOCK)
    def build_again(self, block) -> None:
        """The same observations give the same graph in other blocks, without a file and without cleanup."""
        again = Memory(self.world, self.world.features, **{**self.model.options, "k": self.model.k})
        for rows, episode in self.model.batches:
            again.extend(self.world.show(rows), episode=episode, block=block)
        state = self.model.state
        assert again.nodes.tolist() == state.nodes and again.assignment.tolist() == state.assignment
        assert edge_list(again.edges(filtered=False)) == state.weighted()
        filtered = dataclasses.replace(state, known={}).filtered(self.model.k)
        assert edge_list(again.edges()) == [(u, v, weight) for (u, v), weight in filtered.items()]
        assert again.features.tobytes() == self.memory.features.tobytes()
        if state.nodes:
            found = self.memory.certificate(self.world.show([row for rows, _ in self.model.batches for row in rows]))
            assert found.nodes == len(state.nodes) and str(found) and found.asdict()
            assert not (found.applies and found.exceeded.any())  # Theorem 1

    @step(number=NUMBER)
    def copy(self, number) -> None:
        """A copy is not live, and what is done to it is not done to the memory."""
        twin = copy.deepcopy(self.memory)
        agree_in_full(twin, self.model)
        twin.add(self.world.show([self.row(number)])[0], attributes={"fault": 1.0})
        if self.model.state.edges:
            twin.record(*self.edge(number), False)
        agree(self.memory, self.model)
        if not self.live and number % 2:
            self.memory = copy.deepcopy(self.memory)

    # files

    def loaded(self, path: Path, model: Model) -> Memory:
        memory = Memory.load(path, self.world, self.world.features)
        agree_in_full(memory, model)
        return memory

    def filed(self) -> Model:
        """The model of what the live file holds: the calls of a group are not in it."""
        return self.model if self.live and not self.in_group else self.in_file[0]

    @step(how=st.sampled_from(["save", "back up", "save and go on"]))
    def save_and_load(self, how) -> None:
        if how == "back up":
            self.check_a_backup()
            return
        path = self.folder / "saved.sgm"
        self.memory.save(path)
        memory = self.loaded(path, self.model)
        for mine, theirs in zip(self.memory.events(), memory.events(), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        if how == "save and go on" and not self.live:
            self.memory = memory

    def check_a_backup(self) -> None:
        self.memory.backup(self.folder / "backup.sgm")
        self.loaded(self.folder / "backup.sgm", self.filed() if self.live else self.model)

    @step(when=lambda machine: machine.live or machine.in_file)
    def load_the_live_file(self) -> None:
        self.check_the_live_file()

    def check_the_live_file(self) -> None:
        """With its distance, without one, and without its features, which only building needs."""
        model, rows = self.filed(), self.world.show([0])
        self.loaded(self.path, model)
        looked_at = [Memory.load(self.path, None)]
        if self.world.has_features:
            looked_at.append(Memory.load(self.path, self.world))
        for memory in looked_at:
            agree(memory, model)
            with pytest.raises(sgm.InputError):
                memory.extend(rows)

    @step(when=is_live, numbers=NUMBERS, number=NUMBER)
    def write_while_the_file_is_locked(self, numbers, number) -> None:
        """A call that cannot be written changes nothing."""
        rows = self.world.show(self.rows_along(numbers))
        calls = [
            lambda: self.memory.extend(rows, episode=1, attributes={"fault": np.zeros(len(rows))}),
            lambda: self.memory.filter(number + 1),
            lambda: self.memory.attributes.__setitem__("fault", np.zeros(len(self.memory))),
        ]
        if self.model.state.edges:
            calls.append(lambda: self.memory.record(*self.edge(number), False))
        if any(map(self.model.state.is_removed, self.model.state.edges)):
            calls.append(self.memory.restore)
        live = self.memory._store._connection
        live.execute("PRAGMA busy_timeout = 0")
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for call in calls:
                with pytest.raises(sgm.StoreError):
                    call()
        live.execute("PRAGMA busy_timeout = 5000")
        self.take_in([self.row(number)], episode=1)  # the episode goes on from where it was

    @step(number=NUMBER)
    def open_wrongly(self, number) -> None:
        """A file has one writer at a time, and is opened with its own settings and distance."""
        if self.live:
            refused = [
                lambda: Memory.open(self.path, self.world),
                lambda: Memory(self.world).save(self.path),
                lambda: self.memory.backup(self.path),
            ]
            self.memory.save(self.path)  # it is there already
        else:
            path, another = self.folder / "saved.sgm", World(self.world.matrix + 1, self.world.phi, self.world.pictures)
            self.memory.save(path)
            refused = [
                lambda: Memory.open(path, self.world, tau_a=77.0),
                lambda: Memory.open(path, self.world, criterion="all"),
                lambda: Memory.open(path, another),
                lambda: Memory.load(path, another),
            ]
        with pytest.raises(sgm.StoreError):
            refused[number % len(refused)]()

    def open(self, policy, keep, synchronous="normal") -> None:
        """Go on with what is in the live file; the settings may be given again."""
        model = self.model
        if policy is not None:
            # A policy without a guard would still be charged for edges that an earlier guard kept, but not in hops.
            guard = model.policy.guard
            policy = model.policy = dataclasses.replace(policy, guard=guard, spares=guard and policy.spares)
        self.keep = self.keep if keep == "as it is" else keep
        options = {**model.options, "k": model.k} if keep is None else {}
        options |= {"policy": policy, "keep_events": keep, "synchronous": synchronous}
        self.memory = Memory.open(self.path, self.world, self.world.features, **options)
        self.live = True

    @step(when=is_not_live, policy=st.none() | POLICIES, keep=st.just("as it is") | KEEP, full=st.booleans())
    def go_live(self, policy, keep, full) -> None:
        self.memory.save(self.path)
        self.open(policy, keep, "full" if full else "normal")

    @step(when=lambda m: m.in_file and not m.live, policy=st.none() | POLICIES, keep=st.just("as it is") | KEEP)
    def reopen(self, policy, keep) -> None:
        """What was done to the memory since it was closed is not in the file."""
        held, self.keep = self.in_file
        self.model = held.copy()
        self.open(policy, keep)

    @step(when=is_live)
    def close(self) -> None:
        self.check_close()

    def check_close(self) -> None:
        """A single file stays behind, also if a group had begun."""
        self.memory.close()
        self.live, self.in_file = False, (self.model.copy(), self.keep)
        assert [path.name for path in self.folder.glob("live*")] == ["live.sgm"]

    @step(changes=SOME_CHANGES, inside=st.sampled_from(["load", "back up", "close", "nest"]), raises=st.booleans())
    def group(self, changes, inside, raises) -> None:
        """The file has none of the calls of a group until it ends; then it has all that returned, also if it raises."""
        if self.live:
            self.in_file, self.in_group = (self.model.copy(), self.keep), True
        with contextlib.suppress(Broken), self.memory.group():
            self.change(changes[:3])
            if inside == "nest":
                with contextlib.suppress(Broken), self.memory.group():
                    self.change(changes[3:])
                    raise Broken
            elif self.live:
                {"load": self.check_the_live_file, "back up": self.check_a_backup, "close": self.check_close}[inside]()
            self.change(changes[3:])
            if raises:
                raise Broken
        self.in_group = False

    # wrong calls

    @step(name=st.sampled_from([*CHANGES, *(f"query: {name}" for name in QUERIES)]), place=NUMBER)
    def wrong_call(self, name, place) -> None:
        bad, call = CHANGES[name] if name in CHANGES else QUERIES[name.removeprefix("query: ")]
        if name in ("extend", "add") and self.model.options["criterion"] == "uniform":
            return  # what uniform subsampling leaves out is not looked at
        with pytest.raises(sgm.SGMError) if name in CHANGES else contextlib.suppress(sgm.SGMError):
            call(self.memory, self.world, bad[place % len(bad)])
        with pytest.raises(TypeError):
            WRONG_SIGNATURES[place % len(WRONG_SIGNATURES)](self.memory)


# -- how much of it ----------------------------------------------------------------------------------------------

CHECKS = {"deadline": None, "suppress_health_check": list(HealthCheck)}
LONG = {"max_examples": 2000, "stateful_step_count": 50, "derandomize": False}
SHORT = {"max_examples": 40, "stateful_step_count": 25}

TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(**CHECKS, **(LONG if "SGM_TORTURE" in os.environ else SHORT))


def run(examples: int, steps: int = 50, seed: int | None = None) -> dict[str, Any]:
    """Figures about a run of the machine.

    Args:
        examples: how many memories are made.
        steps: how many calls of rules there are for each.
        seed: makes a run repeatable.

    Returns:
        `examples`, `calls` by rule and `events` by kind, those that shrinking made included; `mismatches`, the number
        of distinct ones; and `reports`, the shortest program that leads to each.
    """
    before, reports = FIGURES.copy(), []
    MemoryMachine._hypothesis_internal_use_seed = seed
    size = {"max_examples": examples, "stateful_step_count": steps, "derandomize": False, "database": None}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run_state_machine_as_test(MemoryMachine, settings=settings(**CHECKS, **size))
    except Exception as error:
        for one in getattr(error, "exceptions", [error]):
            reports.append("\n".join([f"{type(one).__name__}: {one}", *getattr(one, "__notes__", [])]))
    finally:
        MemoryMachine._hypothesis_internal_use_seed = None
    figures = dict(sorted((FIGURES - before).items()))
    examples = figures.pop("examples", 0)
    events = {kind: figures.pop(f"event: {kind}", 0) for kind in KINDS}
    return {
        "examples": examples,
        "calls": figures,
        "events": events,
        "mismatches": len(reports),
        "reports": reports,
    }


def test_a_run_returns_its_figures():
    figures = run(3, steps=4, seed=0)
    assert figures["examples"] >= 3 and sum(figures["calls"].values()) > 0
    assert figures["mismatches"] == 0 and figures["reports"] == []


@pytest.fixture(params=[0, 1, 4])
def small(request, tmp_path, monkeypatch):
    """A memory of a few nodes and its world."""
    monkeypatch.chdir(tmp_path)
    world = World(np.random.default_rng(0).integers(0, 4, (5, 5)), None, pictures=False)
    memory = Memory(world, criterion="none", max_dist=3.0, keep_observations=True)
    memory.extend(range(request.param))
    return memory, world


@pytest.mark.parametrize("name", [*CHANGES, *(f"query: {name}" for name in QUERIES)])
def test_every_wrong_call_raises_an_error_of_ours_and_changes_nothing(small, name):
    memory, world = small
    untouched = copy.deepcopy(memory)
    bad, call = CHANGES[name] if name in CHANGES else QUERIES[name.removeprefix("query: ")]
    for argument in bad:
        with pytest.raises(sgm.SGMError) if name in CHANGES else contextlib.suppress(sgm.SGMError):
            call(memory, world, argument)
    assert same(memory, untouched) and not memory.attributes


# What is not yet as it should be: the marks go when it is.


@pytest.mark.parametrize("name", ["policy", "size", "keep_observations", "features"])
def test_a_setting_too_long_to_print_is_refused(name):
    with pytest.raises(sgm.InputError):
        Memory(World(np.zeros((1, 1)), None, pictures=False), **{name: 10**5000})


@pytest.mark.parametrize("small", [4], indirect=True)
def test_a_file_is_not_opened_with_an_array_for_a_setting(small):
    memory, world = small
    memory.save("m.sgm")
    with pytest.raises(sgm.SGMError):
        Memory.open("m.sgm", world, tau_a=np.array([1.0, 2.0]))


@pytest.mark.parametrize("small", [4], indirect=True)
def test_attaching_may_reach_beyond_single_precision(small):
    memory, world = small
    for node in range(4):
        for other in range(4):
            with contextlib.suppress(sgm.UnknownEdge):
                memory.record(node, other, False)
    with contextlib.suppress(sgm.SGMError):
        memory.plan(*world.show([0, 3]), within=1e39)


def test_a_wrong_way_to_synchronise_leaves_no_file_behind(tmp_path):
    with pytest.raises(sgm.InputError):
        Memory.open(tmp_path / "m.sgm", World(np.zeros((1, 1)), None, pictures=False), synchronous="sometimes")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_memory_can_be_looked_back_to():
    memory = Memory(World(np.zeros((1, 1)), None, pictures=False))
    assert memory.steps_to_nodes([0]).shape == memory.at(0).steps_to_nodes([0]).shape == (1, 0)


@pytest.mark.parametrize("small", [4], indirect=True)
def test_attributes_with_names_alike_are_all_exported(small, tmp_path):
    memory, _ = small
    memory.attributes["a"], memory.attributes["a_0"] = np.zeros((4, 2)), np.ones(4)
    header = memory.to_csv(tmp_path / "m.csv").read_text().splitlines()[0]
    assert len(set(header.split(","))) == len(header.split(",")) == 2 + 3


def test_an_empty_batch_may_have_an_empty_list_of_episodes():
    memory = Memory(World(np.zeros((1, 1)), None, pictures=False))
    assert memory.extend([], episode=[]).added == 0
    assert memory.record_many([], [], [], episode=[]) == []


def test_closing_leaves_one_file_also_if_it_was_read_before_anything_was_written(tmp_path):
    world = World(np.zeros((1, 1)), None, pictures=False)
    with Memory.open(tmp_path / "m.sgm", world):
        Memory.load(tmp_path / "m.sgm", world)
    assert [path.name for path in tmp_path.iterdir()] == ["m.sgm"]
