"""The ranking of suspicious edges, where it is known which are wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

import sgm
from sgm.inspector.suspects import BACKED, of_edge, ranked, reasons, suspects
from sgm.inspector.view import View
from speed import suspects as measuring
from tests.inspector.worlds import Straight, is_false, maze, plane


@pytest.fixture(scope="module", params=[0, 1, 2])
def blind(request):
    """A memory of a maze whose distance does not see walls, and which of its edges walls block."""
    memory, rooms = maze(request.param)
    edges = memory.edges()
    return memory, is_false(rooms, memory.attributes["position"], edges.source, edges.target)


def test_among_the_first_fifty_there_are_more_false_edges_than_by_chance(blind):
    memory, wrong = blind
    facts = measuring.measure(memory, wrong)
    assert 0 < facts["chance"] < 0.5
    assert facts["first"] > 1.5 * facts["chance"] and facts["auc"] > 0.6


def test_the_ranking_does_not_know_where_nodes_are(blind):
    memory, _ = blind
    order = ranked(View(memory)).order
    position = memory.attributes["position"]
    memory.attributes["position"] = position[::-1]
    np.testing.assert_array_equal(ranked(View(memory)).order, order)
    memory.attributes["position"] = position


def wormhole():
    """Two crowds of points far from each other, and one edge between them."""
    random = np.random.default_rng(0)
    points = np.concatenate([random.uniform(0, 4, (30, 2)), random.uniform(100, 104, (30, 2))])
    steps = np.linalg.norm(points[:, None] - points, axis=-1).astype(np.float32)
    steps[3, 40] = 1.0
    memory = sgm.SparseGraphicalMemory(
        sgm.TableDistance(steps), criterion="none", max_dist=3.0, k=6, policy=sgm.Belief()
    )
    memory.extend(np.arange(60))
    return memory


def test_an_edge_between_strangers_is_the_first_suspect_and_says_why():
    told = suspects(View(wormhole()), 3)
    json.dumps(told, allow_nan=False)
    first = told["suspects"][0]
    assert (first["source"], first["target"], first["rank"]) == (3, 40, 1) and len(told["suspects"]) == 3
    assert first["reasons"][0].startswith("Its ends have 0 of ") and "never tried" in first["reasons"][1]
    assert told["total"] == len(wormhole().edges().source)


def test_tries_move_an_edge_up_and_down():
    memory = wormhole()
    edges = memory.edges()
    u, v = int(edges.source[7]), int(edges.target[7])
    before = of_edge(View(memory), View(memory).edge(u, v))
    memory.record(u, v, False)
    failed = of_edge(View(memory), View(memory).edge(u, v))
    for _ in range(5):
        memory.record(u, v, True)
    worked = of_edge(View(memory), View(memory).edge(u, v))
    assert failed["score"] > before["score"] > worked["score"] and failed["rank"] < before["rank"]
    assert "1 of 6 tries failed." in worked["reasons"]


def test_removed_and_filtered_edges_are_no_suspects():
    memory = wormhole()
    memory.remove(3, 40)
    view = View(memory)
    assert of_edge(view, view.edge(3, 40)) is None
    assert len(ranked(view).order) == len(memory.edges().source)


def test_own_motion_speaks_for_an_edge():
    points = np.random.default_rng(0).uniform(0, 6, (40, 2)).astype(np.float32)
    memory = sgm.SparseGraphicalMemory(Straight(), criterion="none", max_dist=3.0, k=6)
    memory.extend(points, episode=0)
    view = View(memory)
    ranking = ranked(view)
    walked = view.table.walked[ranking.edges] > 0
    assert walked.any() and ranking.backed[walked].all() and not ranking.backed.all()
    edge = int(ranking.edges[np.flatnonzero(walked)[0]])
    assert any("An episode went through it" in text for text in reasons(view, edge))
    place = ranking.place[edge]
    share = (ranking.common[place] + 1) / (ranking.fewest[place] + 2)
    odds = (1 - share) / share / BACKED
    assert ranking.score[edge] == pytest.approx(odds / (1 + odds))
    assert not ranked(View(plane())).backed.any()


def test_a_memory_without_edges_has_no_suspects():
    memory = sgm.SparseGraphicalMemory(Straight(), criterion="none", max_dist=0.1)
    memory.extend(np.arange(6, dtype=np.float32).reshape(3, 2))
    assert suspects(View(memory), 10)["suspects"] == []


def test_the_measurement_runs_on_memories_of_the_benchmarks_and_writes_its_results(tmp_path):
    from pathlib import Path

    data = Path(__file__).parents[1] / "data" / "inspector"
    files = [str(data / f"{name}.sgm") for name in ("point", "doom", "safety")]
    measuring.main([*files, "--out", str(tmp_path)])
    results = json.loads((tmp_path / "suspects.json").read_text())
    assert [(row["benchmark"], row["stage"]) for row in results["rows"]] == [
        (name, stage) for name in ("point", "doom", "safety") for stage in ("built", "cleaned")
    ]
    for row in results["rows"]:
        assert 0 <= row["chance"] <= 1 and 0 <= row["first"] <= row["most"] + 1e-9 and row["edges"] > 100
    with pytest.raises(sgm.SGMError, match="no run of a benchmark"):
        measuring.measured([tmp_path])


def test_the_table_of_the_documentation_is_that_of_the_results():
    from pathlib import Path

    root = Path(__file__).parents[2]
    rows = json.loads((root / "results" / "suspects" / "suspects.json").read_text())["pooled"]
    text = (root / "docs" / "inspector.md").read_text().split("<!-- suspects -->\n")[1].split("<!-- end -->")[0]
    names = {"point": "PointEnv", "doom": "ViZDoom", "safety": "SafetyGym"}
    stages = {"built": "as built", "cleaned": "cleaned"}
    expected = [
        f"| {names[row['benchmark']]}, {stages[row['stage']]} | {row['memories']} | {row['edges']:,} | "
        f"{100 * row['chance']:.1f} % | {100 * row['first']:.1f} % | {row['auc']:.2f} |"
        for row in rows
    ]
    assert text.strip().splitlines()[2:] == expected
