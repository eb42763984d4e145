"""OGBench on the engine: the declaration, a tiny run of every method, the planners, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import sgm
from sgm.benchmarks import load
from sgm.benchmarks.results import find_pieces, piece_name
from sgm.cli import main
from tests.benchmarks.left import check_left

pytest.importorskip("ogbench")
pytest.importorskip("torch")
pytest.importorskip("matplotlib")

from sgm.benchmarks.ogbench import rivals
from sgm.benchmarks.ogbench.learn import Euclid, ThereAndBack
from sgm.benchmarks.ogbench.published import NUMBERS
from sgm.benchmarks.ogbench.settings import DATASETS, METHODS, OGBenchSettings
from sgm.benchmarks.ogbench.worlds import make_env, random_cells
from sgm.data import pointmaze
from sgm.envs.ogbench.maze import Maze

NAME = "pointmaze-medium-stitch-v0"
FEW = ["--distance-iterations", "20", "--controller-iterations", "20", "--episodes", "5", "--cleanup-steps", "200"]
SMALL = ["--observations", "300", "--nodes", "100", "--ttgs-nodes", "200", "--agents", "5", "--no-progress"]


@pytest.fixture(scope="module", autouse=True)
def _headless():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUJOCO_GL", "disabled")
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small dataset in the form of an official file."""
    folder = tmp_path_factory.mktemp("data")
    walks = pointmaze.walk(Maze("medium"), "stitch", 40, 101, np.random.default_rng(0))
    ends = np.zeros((40, 101), bool)
    ends[:, -1] = True
    arrays = {"observations": walks.observations, "actions": walks.actions}
    flat = {name: values.reshape(-1, 2).astype(np.float32) for name, values in arrays.items()}
    np.savez(folder / f"{NAME}.npz", **flat, terminals=ends.ravel())
    return folder


def test_every_method_runs_and_resumes_and_the_page_says_where_the_data_came_from(files, tmp_path, capsys):
    out = tmp_path / "run"
    command = ["run", "ogbench", "--datasets", NAME, "--dataset-dir", str(files), "--out", str(out), *FEW, *SMALL]
    assert main(command) == 0
    results = json.loads((out / "results.json").read_text())
    rows = results["rows"]
    assert [row["method"] for row in rows if row["phase"] == "initial"] == list(METHODS)
    assert [row["method"] for row in rows if row["phase"] == "cleaned"] == ["sgm"]
    assert {row["source"] for row in rows} == {f"ogbench:{NAME} (official file)"}
    assert all(set(row["by_task"]) == set("12345") for row in rows)
    nodes = {row["method"]: row["nodes"] for row in rows}
    assert nodes["uniform"] == nodes["sorb"] == nodes["sgm"] <= 130 and nodes["ttgs"] == 200
    assert nodes["gcbc"] is None
    assert "official file" in (out / "report.html").read_text() and (out / "figures/memory-medium-stitch.png").exists()
    assert "GAS-style" in capsys.readouterr().out
    for method in ("sgm", "uniform", "sorb", "gas", "ttgs", "euclid"):
        path = out / f"dataset-{NAME}" / "seed0" / method / "memory.sgm"
        check_left(path, images=False, cleaned=method == "sgm", followed=False)
    assert main(command) == 0
    assert json.loads((out / "results.json").read_text())["rows"] == rows
    assert find_pieces(out, ("dataset", "seed")) == [{"dataset": NAME, "seed": 0}]


def test_settings_are_one_for_all_datasets_and_within_the_budget_of_nodes():
    settings = OGBenchSettings()
    assert settings.datasets == DATASETS and settings.nodes * 1.1 <= 1_000 and settings.cleanup_steps <= 20_000
    assert set(NUMBERS) <= set(DATASETS) and tuple(load("ogbench").methods) == METHODS
    with pytest.raises(sgm.InputError, match="nodes is 2000: expected at most 1000"):
        OGBenchSettings(nodes=2_000)
    with pytest.raises(sgm.InputError, match="max_dist is 50"):
        OGBenchSettings(max_dist=50.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--datasets", "visual-antmaze-giant-stitch-v0"],
            "is not supported: expected a dataset of OGBench with states",
        ),
        (["--datasets", "antmaze-giant-stitch-v0"], "does not exist, and only point mazes can be generated"),
    ],
)
def test_what_is_not_supported_is_said_before_any_work(arguments, said, tmp_path, capsys):
    assert main(["run", "ogbench", *arguments, "--dataset-dir", str(tmp_path), "--out", str(tmp_path / "run")]) != 0
    assert said in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_an_official_file_of_another_maze_needs_settings_that_it_can_have(tmp_path):
    (tmp_path / "antmaze-giant-stitch-v0.npz").touch()
    settings = OGBenchSettings(datasets=("antmaze-giant-stitch-v0",), dataset_dir=str(tmp_path))
    with pytest.raises(sgm.InputError, match="give --cleanup-steps 0"):
        load("ogbench").check(settings)


def test_tuning_tasks_are_far_apart_and_none_of_the_five():
    env = make_env("pointmaze-medium-stitch-v0", 1)
    cells = random_cells(env, 500, 0)
    tasks = {tuple(task.ravel().tolist()) for task in env.tasks}
    assert not tasks & {tuple(both.ravel().tolist()) for both in cells}
    assert min(env.maze.steps_to[tuple(start)][tuple(goal)] for start, goal in cells.tolist()) >= 8


def test_pieces_may_have_names(tmp_path):
    for name in ("dataset-b", "dataset-a-v0", "dataset-../x", "other"):
        (tmp_path / name / "seed1").mkdir(parents=True, exist_ok=True)
    assert find_pieces(tmp_path, ("dataset", "seed")) == [{"dataset": "a-v0", "seed": 1}, {"dataset": "b", "seed": 1}]
    assert piece_name("dataset", "b") == "dataset-b" and piece_name("seed", 3) == "seed3"


# -- distances and planners --------------------------------------------------------------------------------------


class OneWay:
    """Steps on a line: 1 a unit upwards, 3 downwards."""

    far, noise, fingerprint = 40.0, 0.0, "one-way"

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        return self._steps(np.asarray(goals)[:, 0] - np.asarray(starts)[:, :1])

    def pairs(self, starts, goals):
        return self._steps((np.asarray(goals) - np.asarray(starts))[:, 0])

    def _steps(self, gaps):
        return np.minimum(np.where(gaps > 0, gaps, -3 * gaps), self.far).astype(np.float32)


def test_there_and_back_is_the_longer_of_both_ways():
    both, line = ThereAndBack(OneWay()), np.array([[0.0], [2.0], [20.0]], np.float32)
    assert both(line, line).tolist() == [[0, 6, 40], [6, 0, 40], [40, 40, 0]]
    assert both.pairs(line[:2], line[1:]).tolist() == [6, 40]


def test_euclid_counts_steps_at_full_speed_and_ends_at_the_cap():
    euclid = Euclid(40.0)
    vectors = euclid.embed(np.array([[0.0, 0.0], [0.6, 0.8], [30.0, 0.0]]))
    assert np.allclose(euclid(vectors, vectors)[0], [0, 5, 40]) and np.allclose(
        euclid.pairs(vectors[:1], vectors[1:2]), 5
    )


def square():
    """A grid of places, 0.5 apart, without its middle: a wall to go round."""
    grid = np.stack(np.meshgrid(np.arange(0, 6.1, 0.5), np.arange(0, 6.1, 0.5)), axis=-1).reshape(-1, 2)
    return grid[(np.abs(grid - 3) > 2).any(axis=1)]


@pytest.mark.parametrize("style", ["gas", "ttgs"])
def test_planners_go_round_a_wall(style):
    euclid, places = Euclid(40.0), square()
    vectors = euclid.embed(places)
    graph = rivals.joined(vectors, euclid, 6.0) if style == "gas" else rivals.penalised(vectors, euclid, 6.0, 9.0)
    agent = rivals.PathAgent(places, vectors, graph, euclid, lambda seen, aims: aims - seen, 6.0, style == "gas")
    at, goal = np.array([[0.0, 3.0], [3.0, 0.0]]), np.array([[6.0, 3.0], [3.0, 6.0]])
    agent.reset(2)
    way = [at]
    for _ in range(100):
        step = agent.act_many({"observation": at}, goal)
        at = at + step * np.minimum(1, 0.2 / np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-9))
        way.append(at)
    assert np.linalg.norm(at - goal, axis=1).max() < 0.5
    assert (np.abs(np.concatenate(way) - 3) > 1.5).any(axis=1).all(), "it went through the wall"


def test_penalised_edges_cost_more_than_their_length_and_components_are_joined():
    euclid = Euclid(40.0)
    vectors = euclid.embed(np.array([[0.0, 0.0], [1.0, 0.0], [2.4, 0.0], [6.0, 0.0]]))
    costs = rivals.penalised(vectors, euclid, 6.0, 9.0).toarray()
    assert costs[0, 1] == pytest.approx(5) and costs[1, 2] == pytest.approx(7 * (7 / 6) ** 3) and costs[0, 3] == 0
    joined = rivals.joined(vectors, euclid, 6.0).toarray()
    assert joined[1, 2] == joined[2, 1] == pytest.approx(7) and joined[2, 3] == pytest.approx(18)


def test_clusters_are_apart_and_dawdling_is_filtered_out():
    euclid, random = Euclid(1000.0), np.random.default_rng(0)
    vectors = euclid.embed(random.uniform(0, 4, (300, 2)))
    chosen = rivals.cluster(vectors, euclid, 5.0)
    assert 5 < len(chosen) < 60 and (euclid(vectors, vectors[chosen]).min(axis=1) <= 10).all()
    straight = np.stack([np.arange(100) * 0.2, np.zeros(100)], axis=1)
    turning = np.stack([np.abs((np.arange(100) + 5) % 20 - 10) * 0.2, np.zeros(100)], axis=1)
    data = sgm.Experience(np.concatenate([straight, turning]), np.repeat([0, 1], 100))
    kept = rivals.efficient(data, np.arange(200), euclid, 6.0, 0.9)
    assert (kept < 100).sum() == 100 - 6 and 0 < (kept >= 100).sum() < 70


def test_a_goal_farther_than_the_distance_tells_is_gone_for_straight():
    euclid, places = Euclid(40.0), square()
    vectors = euclid.embed(places)
    graph = rivals.penalised(vectors, euclid, 6.0, 9.0)
    agent = rivals.PathAgent(places, vectors, graph, euclid, lambda seen, aims: aims - seen, 6.0, False)
    at, goals = np.array([[0.0, 0.0], [-50.0, 0.0]]), np.array([[50.0, 0.0], [0.0, 0.0]])
    assert np.allclose(agent.act_many({"observation": at}, goals), goals - at)
