"""Measure Theorem 1 on a memory: how much longer its paths are than those of the dense graph, and the bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sgm.errors import InputError

from .arrays import Bools, Ints
from .criteria import within
from .csgraph import dijkstra
from .distance import Distance, Floats, between
from .graph import Graph
from .nodes import Nodes
from .settings import Settings

_BLOCK = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Certificate:
    """The bound of Theorem 1 for a memory, and the measured path costs.

    The theorem: if C_in and C_out between every observation and its node are at most τ, then a shortest path of k edges
    in the dense graph costs at most 2kτ less than the shortest path between the same nodes in the memory.

    Attributes:
        observations: number of observations, which are the nodes of the dense graph.
        nodes: number of nodes of the memory.
        merged: (m,) int64 the observations that were merged.
        c_in: (m,) float64 C_in of each merge over all observations, steps (Eq. 3).
        c_out: (m,) float64 C_out of each merge over all observations, steps.
        tau_a: the nominal threshold τ_a, steps.
        tau: the effective threshold τ: the largest value of `c_in` and `c_out`, steps.
        conditions: conditions of the theorem by name, and whether each holds for this memory.
        source, target: (p,) int64 the measured pairs of nodes that have a path in the dense graph.
        dense_cost: (p,) float64 cost of the path in the dense graph, steps.
        sparse_cost: (p,) float64 cost of the path in the memory, steps; infinite without a path.
        hops: (p,) int64 k, number of edges on the dense path.
        unreachable: number of pairs without a path in the dense graph, to which the theorem does not apply.
    """

    observations: int
    nodes: int
    merged: Ints
    c_in: NDArray[np.float64]
    c_out: NDArray[np.float64]
    tau_a: float
    tau: float
    conditions: dict[str, bool]
    source: Ints
    target: Ints
    dense_cost: NDArray[np.float64]
    sparse_cost: NDArray[np.float64]
    hops: Ints
    unreachable: int

    @property
    def gap(self) -> NDArray[np.float64]:
        """(p,) sparse cost minus dense cost, steps."""
        return np.subtract(self.sparse_cost, self.dense_cost)

    @property
    def bound(self) -> NDArray[np.float64]:
        """(p,) 2kτ with the effective τ, steps."""
        return np.multiply(2.0 * self.tau, self.hops)

    @property
    def exceeded(self) -> Bools:
        """(p,) whether each pair exceeds its bound, by more than rounding."""
        return self.gap > self.bound + 1e-6 * (1.0 + self.dense_cost)

    @property
    def within_nominal(self) -> int:
        """Number of merges that meet the nominal threshold in both directions."""
        return int(np.count_nonzero(np.maximum(self.c_in, self.c_out) <= self.tau_a))

    @property
    def applies(self) -> bool:
        """Whether all conditions of the theorem hold, so that the bound is guaranteed."""
        return all(self.conditions.values())

    def asdict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON; infinite values become None."""
        names = [field.name for field in dataclasses.fields(self)]
        values = {name: getattr(self, name) for name in (*names, "gap", "bound", "within_nominal", "applies")}
        return {name: _plain(value) for name, value in values.items()}

    def __str__(self) -> str:
        """A readable summary."""
        finite = self.gap[np.isfinite(self.gap)]
        measured = f"{finite.mean():.2f} mean, {finite.max():.2f} largest" if len(finite) else "none"
        allowed = f"{self.bound.mean():.2f} mean, {self.bound.max():.2f} largest" if len(finite) else "none"
        lines = [
            f"observations {self.observations}, nodes {self.nodes}, merges {len(self.merged)}",
            f"nominal tau_a {self.tau_a:g}: met by {self.within_nominal} of {len(self.merged)} merges over all "
            "observations",
            f"effective tau {self.tau:.4g} (largest C_in {self.c_in.max(initial=0):.4g}, C_out "
            f"{self.c_out.max(initial=0):.4g})",
            f"pairs of nodes {len(self.source)} (and {self.unreachable} without a dense path)",
            f"gap in steps: {measured}",
            f"bound 2k tau: {allowed}",
            f"pairs over their bound: {np.count_nonzero(self.exceeded)} (of those without any sparse path: "
            f"{np.count_nonzero(np.isinf(self.gap))})",
            *(f"condition {'holds ' if holds else 'FAILS '} {name}" for name, holds in self.conditions.items()),
            "the bound is guaranteed" if self.applies else "the bound is not guaranteed",
        ]
        return "\n".join(lines)


def certify(
    distance: Distance,
    nodes: Nodes,
    graph: Graph,
    standing: Bools,
    settings: Settings,
    embedding: Floats,
    dense_max_dist: float,
    pairs: int | None,
    seed: int,
) -> Certificate:
    """Compare a memory with the dense graph over the (n, e) embeddings of all observations that it was given.

    Args:
        distance: distance of the memory.
        nodes: its nodes.
        graph: its graph.
        standing: (E,) edges that plans may use.
        settings: its settings.
        embedding: (n, e) embeddings of all observations, in the order in which they were given.
        dense_max_dist: MaxDist of the dense graph, steps.
        pairs: number of pairs of nodes to measure; None: all.
        seed: seed of the sample of pairs.
    """
    _check_stream(nodes, embedding)
    assignment = nodes.assignment.values
    merged = np.flatnonzero((assignment >= 0) & (nodes.stream.values[assignment] != np.arange(len(assignment))))
    c_in, c_out = _consistency(distance, embedding, merged, nodes.stream.values[assignment[merged]])
    tau = float(max(c_in.max(initial=0.0), c_out.max(initial=0.0)))
    conditions = {
        "every observation is a node or merged into one": bool((assignment >= 0).all()),
        "no edge is left out by the k-nearest filter": settings.k is None or bool(graph.in_filter().all()),
        "no edge has been removed by cleanup": not graph.removed().any(),
        "MaxDist is at least the dense graph's + 2 tau": settings.max_dist >= dense_max_dist + 2.0 * tau,
    }
    source, target = _draw_pairs(len(nodes), pairs, seed)
    dense_graph = _dense_graph(distance, embedding, dataclasses.replace(settings, max_dist=dense_max_dist))
    edges = graph.edges(standing)
    sparse_graph = csr_array((edges.weight.astype(np.float64), edges[:2]), shape=(len(nodes), len(nodes)))
    dense, hops = _path_costs(dense_graph, nodes.stream.values[source], nodes.stream.values[target])
    sparse, _ = _path_costs(sparse_graph, source, target)
    known = np.isfinite(dense)
    return Certificate(
        observations=len(embedding),
        nodes=len(nodes),
        merged=merged,
        c_in=c_in,
        c_out=c_out,
        tau_a=settings.tau_a,
        tau=tau,
        conditions=conditions,
        source=source[known],
        target=target[known],
        dense_cost=dense[known],
        sparse_cost=sparse[known],
        hops=hops[known],
        unreachable=int(np.count_nonzero(~known)),
    )


def _check_stream(nodes: Nodes, embedding: Floats) -> None:
    if len(embedding) != len(nodes.assignment):
        raise InputError(
            f"certificate got {len(embedding)} observations, but the memory was given {len(nodes.assignment)}: it "
            "needs all of them, in the same order"
        )
    if not np.allclose(embedding[nodes.stream.values], nodes.embedding, rtol=1e-3, atol=1e-5):
        raise InputError("these are not the observations that the memory was built from, or not in the same order")


def _consistency(
    distance: Distance, embedding: Floats, merged: Ints, kept: Ints
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute C_in and C_out (Eq. 3) over all observations, between each merged observation and that of its node."""
    c_in, c_out = np.zeros(len(merged)), np.zeros(len(merged))
    for part in _blocks(len(merged)):
        one, other = embedding[merged[part]], embedding[kept[part]]
        into = between(distance, embedding, one).astype(np.float64) - between(distance, embedding, other)
        out = between(distance, one, embedding).astype(np.float64) - between(distance, other, embedding)
        c_in[part], c_out[part] = np.abs(into).max(axis=0), np.abs(out).max(axis=1)
    return c_in, c_out


def _dense_graph(distance: Distance, embedding: Floats, settings: Settings) -> csr_array:
    rows, columns, weights = [], [], []
    for part in _blocks(len(embedding)):
        steps = between(distance, embedding[part], embedding)
        near = within(steps, settings)
        near[np.arange(len(steps)), np.arange(part.start, part.start + len(steps))] = False
        row, column = np.nonzero(near)
        rows.append(row + part.start)
        columns.append(column)
        weights.append(steps[near].astype(np.float64))
    ends = (np.concatenate(rows), np.concatenate(columns))
    return csr_array((np.concatenate(weights), ends), shape=(len(embedding), len(embedding)))


def _draw_pairs(nodes: int, pairs: int | None, seed: int) -> tuple[Ints, Ints]:
    """Return all ordered pairs of distinct nodes, or a seeded sample of them."""
    total = nodes * (nodes - 1)
    if pairs is None or pairs >= total:
        chosen = np.arange(total)
    else:
        chosen = np.sort(np.random.default_rng(seed).choice(total, pairs, replace=False))
    source, target = np.divmod(chosen, max(1, nodes - 1))
    return source, target + (target >= source)


def _path_costs(graph: csr_array, source: Ints, target: Ints) -> tuple[NDArray[np.float64], Ints]:
    """Return the costs of the shortest paths of pairs, and their numbers of edges (0 without a path)."""
    cost, hops = np.empty(len(source)), np.zeros(len(source), np.int64)
    distinct, which = np.unique(source, return_inverse=True)
    for part in _blocks(len(distinct)):
        costs, before = dijkstra(graph, indices=distinct[part], return_predecessors=True)
        mine = np.flatnonzero((which >= part.start) & (which < part.stop))
        row, at = which[mine] - part.start, target[mine].copy()
        cost[mine] = costs[row, at]
        walking = np.flatnonzero(np.isfinite(cost[mine]) & (at != source[mine]))
        while len(walking):
            at[walking] = before[row[walking], at[walking]]
            hops[mine[walking]] += 1
            walking = walking[at[walking] != source[mine[walking]]]
    return cost, hops


def _blocks(number: int) -> Iterator[slice]:
    for start in range(0, number, _BLOCK):
        yield slice(start, min(start + _BLOCK, number))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return [number if np.isfinite(number) else None for number in value.tolist()]
    return value.tolist() if isinstance(value, np.ndarray) else value
