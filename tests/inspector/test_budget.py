"""What the inspector may cost at 10,000 nodes and 60,000 edges, and that it opens what is larger."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sgm.inspector
from sgm.inspector import answers, layout
from sgm.inspector.view import MOST_DRAWN, View, drawn_edges
from sgm.inspector.why import why
from sgm.memory.snapshot import EdgeTable
from tests.inspector.client import ask
from tests.inspector.worlds import large

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
ROOT = Path(__file__).parents[2]
PROBE = """
import json, sys
import sgm.inspector
from tests.inspector.client import ask
with sgm.inspector.serve(sys.argv[1]) as server:
    last = server.live.view.memory.nodes.size - 1
    for path in ("summary", "graph", "state?at=10", "state?at=900", f"plan?from=0&to={last}", f"why?from=0&to={last}",
                 "suspects", "components", "events", "node/5", "image/5"):
        assert ask(server.url, "/api/" + path, Accept_Encoding="gzip").status == 200, path
    with open("/proc/self/statm") as file:
        print(int(file.read().split()[1]) * __import__("os").sysconf("SC_PAGE_SIZE"))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return large(tmp_path_factory.mktemp("large") / "m.sgm", images=True)


def test_the_map_takes_at_most_600_kilobytes(path):
    with sgm.inspector.serve(path) as server:
        answer = ask(server.url, "/api/graph", Accept_Encoding="gzip")
        facts = ask(server.url).json()
    assert facts["nodes"] == 10_000 and 55_000 < facts["edges"] <= 60_000 and facts["limits"] == []
    assert len(answer.sent) <= 600_000


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="resident memory is read as Linux tells it")
def test_the_server_stays_below_250_megabytes(path):
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(path)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert int(done.stdout) <= 250_000_000


def test_a_change_is_read_without_reading_the_file_again(path):
    from sgm.memory.snapshot import Snapshot

    snapshot = Snapshot.take(path)
    with sgm.SparseGraphicalMemory.open(path, None) as live:
        for place in range(3):
            live.record(*(int(end[place]) for end in live.edges()[:2]), True)
            assert snapshot.refreshed() is snapshot
    assert len(snapshot.memory.events().sequence) == len(live.events().sequence)


def test_a_plan_and_why_need_few_searches(path, monkeypatch):
    from scipy.sparse import csgraph

    from sgm.inspector import why as module

    memory = sgm.SparseGraphicalMemory.load(path, None)
    view, searches = View(memory), []

    def counted(*arguments, **options):
        searches.append(1)
        return csgraph.dijkstra(*arguments, **options)

    monkeypatch.setattr(module, "dijkstra", counted)
    for start, goal in ((0, 9_999), (17, 4_000), (5_000, 123)):
        searches.clear()
        json.dumps([answers.plan(view, start, goal), why(view, start, goal)])
        assert len(searches) <= 5


def test_a_hundred_thousand_nodes_are_laid_out_and_too_many_edges_are_thinned_and_said(monkeypatch):
    nodes, k = 100_000, 5
    source = np.repeat(np.arange(nodes), k)
    target = (source + np.tile([1, 2, 3, 317, 318], nodes)) % nodes
    order = np.lexsort((target, source))
    source, target = source[order], target[order]
    none, zeros = np.zeros(len(source), bool), np.zeros(len(source), np.int32)
    weight = np.random.default_rng(0).uniform(1, 5, len(source))
    table = EdgeTable(source, target, weight, zeros.astype(np.uint8), ~none, zeros, zeros, zeros, none, none)
    drawn = drawn_edges(table)
    assert len(drawn) == MOST_DRAWN and len(np.unique(source[drawn])) == nodes
    monkeypatch.setattr(layout, "FEW_LANDMARKS", 4)
    places = layout.computed(nodes, source, target, weight)
    assert places.shape == (nodes, 2) and np.isfinite(places).all()


def test_the_page_says_which_edges_it_leaves_out(path, monkeypatch):
    from sgm.inspector import view as module

    memory = sgm.SparseGraphicalMemory.load(path, None)
    monkeypatch.setattr(module, "drawn_edges", lambda table: drawn_edges(table, 20_000))
    shown = View(memory)
    (said,) = answers.limits(shown)
    assert said.startswith("20,000 of ") and "Plans, why, suspects and components use all" in said
