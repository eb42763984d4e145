"""The sweep on the engine: tiny runs of its worlds, what is left out, and what is read off its curves."""

from __future__ import annotations

import dataclasses
import json
import warnings

import numpy as np
import pytest

import sgm
from sgm.benchmarks import load, tables
from sgm.benchmarks.base import Piece
from sgm.benchmarks.point.benchmark import drop_for_itself
from sgm.benchmarks.sweep import costs, figures, report, worlds
from sgm.benchmarks.sweep.settings import CRITERIA, METHODS, SweepSettings
from sgm.benchmarks.sweep.worlds import KINDS
from sgm.cli import main
from sgm.navigation import verify
from tests.benchmarks.left import check_left

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

TINY = ["--sample", "30", "--episodes", "4", "--cleanup-steps", "60", "--checkpoints", "30", "--no-progress"]


def row(method, steps, successes, size=1_000, seed=0, **more):
    found = {
        "environment": f"sweep:point/{size:,}",
        "world": "point",
        "size": size,
        "seed": seed,
        "method": method,
        "policy": "first-failure",
        "agent": "plain",
        "phase": "cleaned" if steps else "initial",
        "cleanup_steps": steps,
        "cleanup_seconds": steps / 1_000 if steps else None,
        "episodes": 100,
        "successes": successes,
        "outcomes": "1" * successes + "0" * (100 - successes),
        "mean_steps": 50.0,
        "seconds_per_action": 1e-4,
        "nodes": 100,
        "edges": 500,
        "largest_part": 90,
        "bytes": 10_000,
        "plan_seconds": 1e-3,
        "false_edges": 0.1,
    }
    return {**found, **more}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny run in PointEnv."""
    out = tmp_path_factory.mktemp("sweep") / "run"
    command = ["run", "sweep", "--worlds", "point", "--sizes", "40", "80", "--iterations", "20", *TINY]
    command += ["--largest-dense", "40", "--out", str(out)]
    assert main(command) == 0
    return out, command


def test_a_run_leaves_memories_to_look_at_with_places_walls_and_episodes(run):
    paths = sorted(run[0].rglob("memory.sgm"))
    assert paths
    for path in paths:
        check_left(path, images=False, cleaned=True, followed=False)


def test_every_method_runs_at_every_size_but_the_dense_one_ends(run):
    out, _ = run
    results = json.loads((out / "results.json").read_text())
    methods = {size: {each["method"] for each in results["rows"] if each["size"] == size} for size in (40, 80)}
    assert methods == {40: {*METHODS} - {"verified"}, 80: {*CRITERIA, "consolidated"}}
    assert {each["cleanup_steps"] for each in results["rows"]} == {0, 30, 60}
    assert all(each["bytes"] > 0 and each["plan_seconds"] > 0 for each in results["rows"])
    assert set(results["build_seconds"]) >= {costs.build_key(each) for each in results["rows"]}
    dense = [each["nodes"] for each in results["rows"] if each["method"] == "dense"]
    assert dense and set(dense) == {40}


def test_the_page_has_the_three_figures_and_says_who_leads(run):
    out, _ = run
    text = (out / "report.html").read_text()
    assert {path.stem for path in (out / "figures").iterdir()} == {"steps-point", "seconds-point", "front-point"}
    for method in ("two-way and perceptual", "two-way", "consolidated"):
        assert f"PointEnv: {method} against the others" in text
    assert "Over dense" in text and "it leads" not in text  # too few steps to count
    assert "Dense memories of 80 observations were left out" in text


def test_the_page_counts_who_leads_once_there_is_something_to_count():
    rows = [row(method, steps, won) for method, won in (("both", 99), ("dense", 40)) for steps in (0, 20_000, 50_000)]
    (section,) = report._compared("PointEnv", rows)
    assert "against dense 2 wins, 0 ties and 0 losses" in section.parts[0].text


def test_all_robots_take_as_many_steps_before_an_evaluation(tmp_path, capsys):
    assert main(["run", "sweep", "--out", str(tmp_path), "--checkpoints", "333"]) == 2
    assert "multiples of --robots" in capsys.readouterr().err


def test_sizes_share_the_networks_of_a_seed_and_a_longer_cleanup_goes_on(run, capsys):
    out, command = run
    assert [path.name for path in out.glob("networks/point/seed0/*.safetensors")] == ["weights.safetensors"]
    before = json.loads((out / "results.json").read_text())["rows"]
    longer = [*command, "--cleanup-steps", "90", "--checkpoints", "30", "60", "--methods", "two-way", "--sizes", "40"]
    capsys.readouterr()
    assert main(longer) == 0
    assert "training" not in capsys.readouterr().out
    after = json.loads((out / "results.json").read_text())["rows"]
    assert [each for each in after if each["cleanup_steps"] <= 60] == before
    assert [(each["method"], each["size"]) for each in after if each["cleanup_steps"] == 90] == [("two-way", 40)]


def test_as_released_a_node_takes_one_of_its_own_places():
    """Nodes 0 to 3 in a row; the distance to itself is 1.5 steps, so it is nearer than what is 2 steps away."""

    class Row:
        def embed(self, places):
            return np.asarray(places, np.float32)[:, None]

        def __call__(self, starts, goals):
            gaps = np.abs(starts - goals.T)
            return np.where(gaps == 0, np.float32(1.5), gaps)

    memory = sgm.SparseGraphicalMemory(Row(), criterion="none", max_dist=2.5, k=2, policy="first-failure")
    memory.extend([0.0, 1.0, 2.0, 3.0])
    assert set(zip(*memory.edges()[:2], strict=True)) == {
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 2),
        (2, 1),
        (2, 3),
        (3, 1),
        (3, 2),
    }
    drop_for_itself(memory)
    assert set(zip(*memory.edges()[:2], strict=True)) == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}


def test_steps_until_a_success_are_those_of_the_first_stage_that_has_it():
    items = tables.pool([row("two-way", 0, 20), row("two-way", 1_000, 94), row("two-way", 2_000, 96)])
    assert costs.steps_until(items, 0.95) == 2_000
    assert costs.steps_until(items[:2], 0.95) is None and costs.steps_until(items, 0.2) == 0


def test_each_seed_has_its_own_first_stage():
    rows = [row("two-way", 0, 20, seed=0), row("two-way", 1_000, 96, seed=0), row("two-way", 2_000, 90, seed=0)]
    rows += [row("two-way", steps, 50, seed=1) for steps in (0, 1_000, 2_000)]
    assert costs.steps_by_seed(tables.pool(rows), 0.95) == [1_000, float("inf")]


def test_seconds_add_up_building_and_all_cleanup():
    rows = [row("two-way", steps, 50, seed=seed) for seed in (0, 1) for steps in (0, 1_000, 3_000)]
    builds = {"world-point/size1000/seed0/two-way": 10.0, "world-point/size1000/seed1/two-way": 20.0}
    assert costs.total_seconds(tables.pool(rows), builds) == pytest.approx([15, 16, 19])


def test_the_front_has_what_nothing_is_cheaper_and_better_than():
    points = [(1.0, 50.0), (2.0, 40.0), (2.0, 60.0), (3.0, 60.0), (4.0, 90.0)]
    assert figures.pareto(points) == [(1.0, 50.0), (2.0, 60.0), (4.0, 90.0)]


def test_sparse_memories_have_at_most_nine_in_ten_observations(tmp_path):
    benchmark, settings = load("sweep"), SweepSettings()
    assert set(KINDS) == set(settings.worlds) and tuple(benchmark.methods) == METHODS
    for size, nodes in ((500, 450), (5_000, 900)):
        piece = Piece(benchmark, settings, {"world": "giant", "size": size, "seed": 0}, tmp_path)
        assert piece.world.nodes() == nodes
        assert (piece.world.inner.settings.observations, piece.world.inner.settings.nodes) == (size, nodes)


def test_in_safety_edges_that_own_motion_speaks_against_are_left_out_before_the_filter(tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    pytest.importorskip("threadpoolctl")
    from sgm.envs.safety import pool
    from sgm.envs.safety.worker import NoImages

    try:
        pool.check()
    except NoImages as error:
        pytest.skip(str(error))

    def doubt_the_first_five(*given, **how):
        found = verify(*given, **how)
        return dataclasses.replace(found, posterior=np.where(np.arange(len(found)) < 5, 0.1, 0.9))

    monkeypatch.setattr(worlds, "verify", doubt_the_first_five)
    command = ["run", "sweep", "--worlds", "safety", "--pretrained", "--simulators", "1", "--rollouts", "6"]
    command += ["--rollout-steps", "60", "--sizes", "300", "--nodes", "60", "--methods", "consolidated", "verified"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)  # so few observations jump over the number of nodes
        assert main([*command, *TINY, "--out", str(tmp_path)]) == 0
    every, kept = (
        sgm.SparseGraphicalMemory.load(tmp_path / f"world-safety/size300/seed0/{method}/built.sgm", None)
        for method in ("consolidated", "verified")
    )
    pairs = [list(zip(*memory.edges(filtered=False)[:2], strict=True)) for memory in (every, kept)]
    assert pairs[1] == pairs[0][5:] and len(every) == len(kept)
    np.testing.assert_array_equal(every.attributes["pose"], kept.attributes["pose"])
