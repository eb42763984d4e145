"""The whole ViZDoom command on a tiny map of its own, with the real engine, and budgets that mean nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

import sgm
from sgm.benchmarks.doom.figure_data import _compared, is_true
from sgm.benchmarks.doom.settings import DoomSettings
from sgm.cli import main
from sgm.envs.doom import mazes as doom_mazes
from sgm.envs.doom.wad import DoomMap
from tests.benchmarks.left import check_left

pytest.importorskip("vizdoom")

METHODS = ("random", "sptm", "sptm+sgm", "ours")  # the golden rows are of all of them


@pytest.fixture(scope="module")
def wad(tmp_path_factory):
    doom_map = doom_mazes.generate(0, size=768, rooms=3)
    path = tmp_path_factory.mktemp("wad") / "tiny.wad"
    doom_map.write(path)
    return path


@pytest.fixture(scope="module")
def folder(wad, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "doom"
    command = ["run", "doom", "--quick", "--wad", str(wad), "--map", "MAP01", "--out", str(out), "--no-progress"]
    assert main([*command, "--methods", *METHODS]) == 0
    return out


def test_every_chosen_method_and_phase_has_a_row(folder):
    results = json.loads((folder / "results.json").read_text())
    found = {(row["method"], row["cleanup_steps"]) for row in results["rows"]}
    cleaned = {(method, steps) for method in ("sptm+sgm", "ours") for steps in (0, 300, 600)}
    assert found == cleaned | {("random", 0), ("sptm", 0)}
    for row in results["rows"]:
        levels = row["levels"].values()
        assert row["episodes"] == 12 == sum(level["episodes"] for level in levels)
        assert row["successes"] == sum(level["successes"] for level in levels)
        assert row["lost_engines"] == 0
    sizes = {row["method"]: row["nodes"] for row in results["rows"]}
    assert sizes["sptm"] == sizes["sptm+sgm"] < 10 * 61
    assert 0 <= results["quality"]["distance"]["auc"] <= 1


def test_the_folder_holds_what_the_figures_need(folder, wad):
    page = (folder / "report.html").read_text()
    assert "</html>" in page and "Not drawn" not in page
    lengths = np.load(folder / "seed0" / "lengths.npz")
    assert set(lengths) == {"dense", "two-way", "filtered", "cleaned", "ours"}
    images = np.load(folder / "seed0" / "images.npz")
    assert images["reference"].shape == (60, 80, 3) and len(images["steps"]) == len(images["steps_window"]) == 610
    tiny, kept = DoomMap.read(wad), DoomMap.read(folder / "map.wad")
    assert kept.start == tiny.start and (kept.segments == tiny.segments).all()
    memory = sgm.SparseGraphicalMemory.load(folder / "seed0" / "ours" / "memory.sgm", None)
    shapes = {name: values.shape[1:] for name, values in memory.attributes.items()}
    assert shapes["pose"] == (3,) and shapes["image"] == (60, 80, 3) and memory.attributes["image"].dtype == np.uint8
    assert (memory.attributes["pose"] == images["poses"][memory.nodes]).all()


def test_a_finished_run_is_not_run_again(folder, wad, capsys):
    before = json.loads((folder / "results.json").read_text())["rows"]
    command = ["run", "doom", "--quick", "--wad", str(wad), "--map", "MAP01", "--out", str(folder), "--no-progress"]
    assert main([*command, "--methods", *METHODS]) == 0
    assert json.loads((folder / "results.json").read_text())["rows"] == before
    assert "exploring" not in capsys.readouterr().out


def test_another_setting_is_refused(folder, capsys):
    assert main(["run", "doom", "--quick", "--out", str(folder), "--no-progress"]) == 2
    assert "wad" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--wad", "nowhere.wad"], "nowhere.wad"),
        (["--map", "MAP02"], "--wad"),
        (["--tasks", "0"], "tasks"),
        (["--pretrained", "--warm-start"], "not both"),
        (["--budget", "1000"], "expected both"),
        (["--budget", "1000", "--exploration", "1.5"], "up to 1"),
        (["--budget", "1000", "--exploration", "0.1"], "less than an episode"),
        (["--size", "320", "240", "--quick"], "160"),
        (["--warm-start", "--distance", "closeness"], "contrastive"),
        (["--pretrained", "--encoder", "resnet18"], "contrastive"),
    ],
)
def test_errors_say_what_to_do(given, message, tmp_path, capsys):
    assert main(["run", "doom", *given, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err


def test_a_budget_is_split_between_exploring_and_cleanup():
    settings = DoomSettings(budget=134_000, exploration=0.3)
    assert (settings.buffer_episodes, settings.cleanup_steps, settings.checkpoints) == (201, 93_800, (54_000,))
    all_of_it = DoomSettings(budget=40_000, exploration=1.0)
    assert (all_of_it.buffer_episodes, all_of_it.cleanup_steps, all_of_it.checkpoints) == (200, 0, ())
    assert DoomSettings(budget=134_000, exploration=20_000 / 134_000).buffer_episodes == 100


def test_a_maze_of_another_style_is_elsewhere_and_named_so():
    default, other = DoomSettings(), DoomSettings(maze_seed=7, maze_rooms=10, maze_open=0.15)
    assert (default.environment, other.environment) == ("doom:maze0", "doom:maze7-10-0.15")
    assert [default.is_elsewhere, other.is_elsewhere, DoomSettings(maze_open=0.5).is_elsewhere] == [False, True, True]
    made = doom_mazes.generate(7, rooms=10, open_share=0.15)
    assert np.array_equal(other.load_map().segments, made.segments)
    assert len(made.segments) > len(doom_mazes.generate(7).segments)


def test_frames_compared_for_figures_are_all_or_a_spread_sample():
    assert np.array_equal(_compared(20_100), np.arange(20_100))
    rows = _compared(134_670)
    assert 3_000 < len(rows) < 6_000 and rows[0] == 0 and rows[-1] > 130_000


def test_verified_memories_and_their_variants_run_zero_shot_on_another_map(wad, tmp_path, capsys):
    methods = ["verified", "both-ways", "verified-one-way", "verified-no-chains", "verified-uniform", "verified-prior"]
    command = ["run", "doom", "--quick", "--pretrained", "--wad", str(wad), "--out", str(tmp_path), "--no-progress"]
    command += [
        "--budget",
        "1000",
        "--exploration",
        "0.9",
        "--checkpoints",
        "50",
        "--tasks",
        "2",
        "--buffer-steps",
        "90",
    ]
    assert main([*command, "--methods", *methods]) == 0
    said = capsys.readouterr().out
    assert "warning: the shipped weights were trained on the default maze" in said
    assert said.index("warning") < said.index("across rollouts") < said.index("exploring, 10 episodes")
    assert said.count("<Verification") == 5
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert {(row["method"], row["cleanup_steps"]) for row in rows} == {
        (method, steps) for method in methods for steps in (0, 50, 100)
    }
    edges = {row["method"]: row["edges"] for row in rows if not row["cleanup_steps"]}
    assert edges["verified"] < edges["both-ways"] and edges["verified-one-way"] < edges["verified"]
    nodes = {row["method"]: row["nodes"] for row in rows}
    assert nodes["verified"] == nodes["verified-uniform"] == nodes["both-ways"]
    memory = sgm.SparseGraphicalMemory.load(tmp_path / "seed0" / "verified" / "memory.sgm", None)
    assert memory.settings.reversible == 1.2 and len(memory.removed().source) > 0
    images = np.load(tmp_path / "seed0" / "images.npz")
    if "strip" in images:
        poses = memory.attributes["pose"]
        for image, pose in zip(images["strip"], images["strip_poses"], strict=True):
            row = np.flatnonzero((poses == pose).all(axis=1))[0]
            assert (memory.attributes["image"][row] == image).all()


def test_a_plan_is_true_if_its_legs_are_short_and_meet_no_wall():
    walls = np.array([[[50.0, -10.0], [50.0, 10.0]]])
    assert is_true(np.array([[0.0, 0.0], [40.0, 0.0], [40.0, 150.0]]), walls)
    assert not is_true(np.array([[0.0, 0.0], [100.0, 0.0]]), walls)
    assert is_true(np.array([[0.0, 20.0], [100.0, 20.0]]), walls)
    assert not is_true(np.array([[0.0, 20.0], [100.0, 20.0], [100.0, 250.0]]), walls)


def test_unknown_methods_are_refused():
    with pytest.raises(sgm.InputError, match="'magic': expected some of random"):
        DoomSettings(methods=("magic",))


def test_a_run_leaves_memories_to_look_at_with_places_images_walls_and_episodes(folder):
    for method in ("sptm", "sptm+sgm", "ours"):
        memory = check_left(
            folder / "seed0" / method / "memory.sgm", images=True, cleaned=method != "sptm", followed=False
        )
        assert memory.attributes["thumbnail"].shape[1:] == (48, 64, 3)
        np.testing.assert_array_equal(memory.attributes["position"], memory.attributes["pose"][:, :2])
        assert np.abs(memory.attributes["heading"]).max() <= 2 * np.pi
