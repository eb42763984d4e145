"""The whole SafetyGym command with the real simulator and budgets that mean nothing."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

import sgm
from sgm.benchmarks.ground_truth import edge_lengths
from sgm.benchmarks.safety.ground_truth import true_component
from sgm.benchmarks.safety.settings import SafetySettings
from sgm.benchmarks.seeds import Purpose, seed_for
from sgm.cli import main
from sgm.navigation.beside import read_floor, read_guarantee
from tests.benchmarks.left import check_left

pytest.importorskip("mujoco")
pytest.importorskip("threadpoolctl")

from sgm.envs.safety import pool as safety_pool
from sgm.envs.safety.worker import NoImages

METHODS = ("consptm", "uniform", "perceptual", "both")
SMALL = ("--tasks", "4", "--cleanup-steps", "200", "--checkpoints", "100", "--robots", "4", "--workers", "1")


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    try:
        safety_pool.check()
    except NoImages as error:
        pytest.skip(str(error))
    out = tmp_path_factory.mktemp("run") / "safety"
    chosen = ["--methods", *METHODS, "--policies", "first-failure"]
    return ["run", "safety", "--quick", *SMALL, *chosen, "--no-progress", "--out", str(out)]


@pytest.fixture(scope="module")
def folder(command, tmp_path_factory):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*nodes", category=UserWarning)  # so few jump over the target
        assert main(command) == 0
    return tmp_path_factory.getbasetemp() / command[-1]


def test_every_method_agent_and_phase_has_a_row(folder):
    results = json.loads((folder / "results.json").read_text())
    found = {(row["method"], row["agent"], row["cleanup_steps"]) for row in results["rows"]}
    assert found == {(m, a, steps) for m in METHODS for a in ("plain", "persistent") for steps in (0, 100, 200)}
    assert all(row["episodes"] == 4 and 0 <= row["false_edges"] <= 1 for row in results["rows"])
    assert all(1 <= row["true_part"] <= row["largest_part"] for row in results["rows"])
    sizes = {row["method"]: row["nodes"] for row in results["rows"]}
    assert sizes["consptm"] == 300 and sizes["uniform"] == 60
    assert set(results["thresholds"]) == {f"layout0/seed0/{method}" for method in METHODS if method != "consptm"}
    calibration = results["quality"]["layout0/seed0"]["distance"]["calibration"]
    assert calibration["medians"]["1"] == pytest.approx(1, rel=0.01)


def test_the_true_component_is_what_is_connected_without_false_edges():
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(np.ones((4, 4))), criterion="none", k=None)
    memory.extend(np.arange(4))
    positions = np.array([[0, 0], [0.5, 0], [1.0, 0], [5, 0]], np.float32)
    edges = memory.edges()
    assert memory.largest_part() == 4
    assert true_component(4, edges, edge_lengths(edges, positions)) == 3


def test_nodes_know_their_pose_and_which_observation_of_the_buffer_they_are(folder):
    piece = folder / "layout0" / "seed0"
    buffer = np.load(piece / "buffer.npz")
    for method in ("both", "consptm"):
        memory = sgm.SparseGraphicalMemory.load(piece / method / "built.sgm", None)
        frame = memory.attributes["frame"]
        assert (memory.attributes["pose"] == buffer["odometry"][frame, :3]).all()
        assert len(set(frame.tolist())) == len(memory)


def test_the_report_is_whole(folder):
    page = (folder / "report.html").read_text()
    few = "Not drawn: episode-layout0.png, because no episode was found in which an edge failed"  # 4 robots, 40 steps
    assert "</html>" in page and "Not drawn" not in page.replace(few, "")
    assert page.count("<img") >= 5


def test_a_finished_run_is_not_run_again(folder, command, capsys):
    before = json.loads((folder / "results.json").read_text())["rows"]
    assert main(command) == 0
    assert json.loads((folder / "results.json").read_text())["rows"] == before
    assert "exploring" not in capsys.readouterr().out


def test_another_setting_is_refused(folder, capsys):
    assert main(["run", "safety", "--quick", "--out", str(folder), "--no-progress"]) == 2
    assert "tasks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tasks": 0}, "tasks is 0"),
        ({"methods": ("magic",)}, "'magic'"),
        ({"policies": ()}, "first-failure"),
        ({"nodes": 4_000}, "nodes is 4000: expected at most 3000"),
        ({"candidates": 10**6}, "explore more"),
        ({"pretrained": True, "layouts": (0, 1)}, "layout 0"),
        ({"seeds": ()}, "seeds is"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, message):
    with pytest.raises(sgm.InputError, match=message):
        SafetySettings(**given)


def test_cleanup_steps_end_the_schedule():
    assert SafetySettings(cleanup_steps=90, checkpoints=(50, 100)).schedule == [50, 90]
    assert SafetySettings(cleanup_steps=0).schedule == []


def test_no_two_purposes_of_a_piece_share_a_seed():
    for numbers in ((0, 1), (1, 0)):
        assert len({seed_for(numbers, purpose) for purpose in Purpose}) == len(Purpose)


def test_a_run_leaves_memories_to_look_at_with_places_images_walls_and_episodes(folder):
    paths = sorted(folder.rglob("memory.sgm"))
    assert len(paths) == len(METHODS)
    for path in paths:
        memory = check_left(path, images=True, cleaned=True, followed=False)
        np.testing.assert_array_equal(memory.attributes["position"], memory.attributes["pose"][:, :2])
        built = sgm.SparseGraphicalMemory.load(path.parents[1] / "built.sgm", None)
        np.testing.assert_array_equal(built.attributes["thumbnail"], memory.attributes["thumbnail"])
        assert read_floor(path.parents[1] / "built.sgm") is not None
        assert read_guarantee(path)["applies"] is False  # measured: the k-nearest filter leaves edges out
