"""Other formats."""

from __future__ import annotations

import networkx
import numpy as np
import pytest

import sgm
from tests.conftest import plane


@pytest.fixture
def memory():
    points, table = plane(80)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), lambda rows: points[rows], tau_p=1.0, max_dist=6.0)
    memory.extend(np.arange(80))
    u, v = (int(end[0]) for end in memory.edges()[:2])
    memory.record(u, v, True)
    return memory


@pytest.mark.parametrize("filtered", [True, False])
def test_networkx_scipy_and_graphml_hold_the_same_graph(memory, filtered, tmp_path):
    edges = memory.edges(filtered)
    graph = memory.to_networkx(filtered)
    expected = {(u, v): w for u, v, w in zip(*(column.tolist() for column in edges), strict=True)}
    assert {(u, v): w for u, v, w in graph.edges(data="weight")} == expected
    assert [graph.nodes[node]["stream"] for node in range(len(memory))] == memory.nodes.tolist()
    matrix = memory.to_scipy(filtered).tocoo()
    assert {(int(u), int(v)): float(w) for u, v, w in zip(*matrix.coords, matrix.data, strict=True)} == expected
    memory.to_graphml(tmp_path / "g.graphml", filtered)
    read = networkx.read_graphml(tmp_path / "g.graphml", node_type=int)
    assert dict(read.nodes(data=True)) == dict(graph.nodes(data=True))
    assert list(read.edges(data=True)) == list(graph.edges(data=True))


def test_edges_carry_their_evidence(memory):
    u, v = (int(end[0]) for end in memory.edges()[:2])
    assert memory.to_networkx()[u][v]["successes"] == 1


def test_reports_are_plain_data(memory):
    report = memory.extend(np.arange(5))
    assert report.asdict() == {"added": 0, "merged": 5, "dropped": 0, "assignment": report.assignment.tolist()}


def test_repr_says_what_it_is(memory):
    edges = len(memory.edges().source)
    assert repr(memory) == f"<SparseGraphicalMemory two-way: {len(memory)} nodes of 80 observations, {edges} edges>"
