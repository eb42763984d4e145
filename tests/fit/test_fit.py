"""`sgm fit`, `evaluate`, `cleanup` and `plan` on a small world that needs no simulator."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import sgm
from sgm import cli
from sgm.benchmarks.options import read_settings
from sgm.cli import main
from sgm.fit.settings import FitSettings
from sgm.fit.shown import keep_guarantee_of_built, update_guarantee
from sgm.fit.source import collect, parse_source
from sgm.navigation.beside import read_episodes, read_floor, read_guarantee, write_guarantee
from sgm.navigation.guarantee import absent

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
WORLD = "SgmTestRoom-v0"  # see conftest
TINY = ["--steps", "400", "--iterations", "10", "--envs", "2", "--episode-steps", "20", "--no-progress"]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent in a room."""
    folder = tmp_path_factory.mktemp("fit") / "agent"
    assert main(["fit", f"gym:{WORLD}", "--out", str(folder), *TINY]) == 0
    return folder


@pytest.fixture
def copy(agent: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    import shutil

    return Path(shutil.copytree(agent, tmp_path / "copy"))


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three walks of images from left to right."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("walks")
    random = np.random.default_rng(0)
    world = random.integers(0, 256, (12, 60, 3), dtype=np.uint8)
    for walk in range(3):
        (folder / str(walk)).mkdir()
        for step in range(40):
            image.fromarray(world[:, step : step + 12]).save(folder / str(walk) / f"{step}.png")
    return folder


@pytest.fixture(scope="module")
def image_memory(walks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "memory"
    assert main(["fit", f"images:{walks}", "--out", str(folder), "--iterations", "30", "--no-progress"]) == 0
    return folder


def results(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((folder / "evaluations").glob("*.json"))]


def test_an_environment_becomes_an_agent_with_a_page(agent: Path):
    loaded = sgm.Navigator.load(agent)
    assert len(loaded.memory) > 1
    page = (agent / "report.html").read_text()
    assert "SgmTestRoom" in page and "<img" in page and "MaxDist" in page and "Not drawn" not in page
    made = json.loads((agent / "fit.json").read_text())
    assert made["command"].startswith("sgm fit") and made["versions"]["sgm"] and made["date"]
    assert list(made["stages"]) == ["experience", "distance", "controller", "memory"]


def test_an_agent_has_positions_and_a_guarantee_and_what_it_did_is_recorded(copy: Path, capsys):
    memory = sgm.SparseGraphicalMemory.load(copy / "memory.sgm", None)
    np.testing.assert_array_equal(memory.attributes["position"], memory.attributes["achieved_goal"])
    assert "thumbnail" not in memory.attributes and read_floor(copy / "memory.sgm") is None  # a room without images
    before = read_guarantee(copy / "memory.sgm")
    assert before["applies"] is not None or before["reason"]
    assert read_episodes(copy / "memory.sgm") == []
    short = ["--env", WORLD, "--envs", "2", "--no-progress"]
    assert main(["evaluate", str(copy), *short, "--episodes", "3"]) == 0
    found = read_episodes(copy / "memory.sgm", nodes=len(memory))
    (kept,) = results(copy)
    assert "".join("01"[each.success] for each in found) == kept["methods"]["agent"]["outcomes"]
    assert [len(each) - 1 for each in found] == kept["methods"]["agent"]["steps"]
    assert all(np.isfinite(each.positions).all() and each.goal_position is not None for each in found)
    assert main(["cleanup", str(copy), *short, "--steps", "60"]) == 0
    kinds = [each.kind for each in read_episodes(copy / "memory.sgm", nodes=len(memory))]
    assert kinds.count("evaluation") == 3 and 1 <= kinds.count("cleanup") <= 10
    assert read_guarantee(copy / "memory-built.sgm") == before
    removed = len(sgm.SparseGraphicalMemory.load(copy / "memory.sgm", None).removed().source)
    after = read_guarantee(copy / "memory.sgm")
    assert after == before if not removed else f"removed {removed}" in after["reason"]


def test_a_damaged_file_of_episodes_is_replaced_by_the_next_evaluation(copy: Path):
    (copy / "episodes.npz").write_bytes(b"no archive")
    with pytest.raises(sgm.StoreError, match=r"episodes\.npz"):
        read_episodes(copy / "memory.sgm")
    assert main(["evaluate", str(copy), "--env", WORLD, "--envs", "2", "--episodes", "2", "--no-progress"]) == 0
    assert len(read_episodes(copy / "memory.sgm")) == 2


def test_a_memory_of_images_has_thumbnails(image_memory: Path):
    memory = sgm.SparseGraphicalMemory.load(image_memory / "memory.sgm", None)
    assert memory.attributes["thumbnail"].shape == (len(memory), 12, 12, 3)
    np.testing.assert_array_equal(memory.attributes["thumbnail"], memory.observations)
    assert "position" not in memory.attributes and read_guarantee(image_memory / "memory.sgm") is not None


def test_cleanup_that_removes_edges_takes_the_guarantee_away(agent: Path, tmp_path: Path):
    memory = sgm.SparseGraphicalMemory.load(agent / "memory.sgm", None)
    write_guarantee(tmp_path / "guarantee.json", absent("so far."))
    keep_guarantee_of_built(tmp_path)
    update_guarantee(tmp_path, memory)
    assert read_guarantee(tmp_path / "memory.sgm")["reason"] == "so far."
    edges = memory.edges()
    memory.record(int(edges.source[0]), int(edges.target[0]), False)
    gone = len(memory.removed().source)
    update_guarantee(tmp_path, memory)
    assert not gone or "Cleanup has removed" in read_guarantee(tmp_path / "memory.sgm")["reason"]
    assert read_guarantee(tmp_path / "memory-built.sgm")["reason"] == "so far."


def test_the_page_says_how_often_the_distance_is_wrong(agent: Path, image_memory: Path):
    quality = json.loads((agent / "fit.json").read_text())["stages"]["distance"]["quality"]
    assert quality["judged_by"] == "episodes" and quality["held_out"]
    assert [each["recall"] for each in quality["accepted"]] == [0.5, 0.9]
    assert all(0 <= each["false"] <= 1 for each in quality["accepted"])
    page = (agent / "report.html").read_text()
    assert "False among accepted" in page and f"{quality['accepted'][1]['false']:.2%}" in page
    assert "because there are few" in (image_memory / "report.html").read_text()  # three walks


def test_a_finished_fit_does_nothing_again_and_other_settings_are_refused(copy: Path, capsys):
    before = (copy / "memory.sgm").read_bytes()
    assert main(["fit", f"gym:{WORLD}", "--out", str(copy), *TINY]) == 0
    assert (copy / "memory.sgm").read_bytes() == before
    assert main(["fit", f"gym:{WORLD}", "--out", str(copy), *TINY, "--seed", "1"]) == 2
    assert "seed differ" in capsys.readouterr().err
    assert main(["fit", f"gym:{WORLD}", "--out", str(copy), *TINY, "--seed", "1", "--no-resume"]) == 0
    assert (copy / "memory.sgm").read_bytes() != before


def test_an_interrupted_fit_goes_on_after_its_last_stage_and_gives_the_same_memory(copy: Path):
    whole = sgm.SparseGraphicalMemory.load(copy / "memory.sgm", None)
    made = json.loads((copy / "fit.json").read_text())
    for stage in ("controller", "memory"):
        del made["stages"][stage]
    (copy / "fit.json").write_text(json.dumps(made))
    for name in ("memory.sgm", "agent.json", "controller.safetensors"):
        (copy / name).unlink()
    assert main(["fit", f"gym:{WORLD}", "--out", str(copy), *TINY]) == 0
    again = sgm.SparseGraphicalMemory.load(copy / "memory.sgm", None)
    np.testing.assert_array_equal(again.embeddings, whole.embeddings)
    for mine, theirs in zip(again.edges(), whole.edges(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_evaluation_counts_the_agent_and_its_controller_and_keeps_what_made_it(copy: Path, capsys):
    command = ["evaluate", str(copy), "--env", WORLD, "--envs", "2", "--no-progress", "--episodes"]
    assert main([*command, "4"]) == 0
    (found,) = results(copy)
    assert found["command"].startswith("sgm evaluate") and found["versions"] and found["date"] and found["seed"] == 0
    assert [result["episodes"] for result in found["methods"].values()] == [4, 4]
    first = {name: result["outcomes"] for name, result in found["methods"].items()}
    assert main([*command, "7"]) == 0
    (more,) = results(copy)
    for name, result in more["methods"].items():
        assert result["episodes"] == 7 and result["outcomes"].startswith(first[name])
    assert "controller alone" in (copy / "report.html").read_text()
    assert main([*command, "2", "--env-arg", "max_episode_steps=3", "--no-controller"]) == 0
    assert len(results(copy)) == 2
    assert "of 2 episodes" in capsys.readouterr().out


def test_cleanup_goes_on_and_starts_over(copy: Path, capsys, monkeypatch):
    monkeypatch.setattr("sgm.fit.clean.PART", 40)
    command = ["cleanup", str(copy), "--env", WORLD, "--envs", "2", "--no-progress", "--steps"]
    built = sgm.SparseGraphicalMemory.load(copy / "memory.sgm", None).records
    assert main([*command, "80"]) == 0
    state = json.loads((copy / "cleanup.json").read_text())
    assert state["done"] == 80 and [part["steps"] for part in state["parts"]] == [40, 80]
    assert main([*command, "120"]) == 0
    once = sgm.SparseGraphicalMemory.load(copy / "memory.sgm", None)
    assert once.records > built == sgm.SparseGraphicalMemory.load(copy / "memory-built.sgm", None).records
    assert not list(copy.glob("memory-[0-9]*"))
    assert main([*command, "120", "--seed", "3"]) == 2
    assert "seed differ" in capsys.readouterr().err
    assert main([*command, "120", "--no-resume"]) == 0  # at once what was done in two goes
    again = sgm.SparseGraphicalMemory.load(copy / "memory.sgm", None)
    assert again.tried() == once.tried()
    assert "Cleanup" in (copy / "report.html").read_text()


def test_a_cleanup_that_was_killed_between_two_writes_is_made_good(copy: Path, monkeypatch):
    monkeypatch.setattr("sgm.fit.clean.PART", 200)
    command = ["cleanup", str(copy), "--env", WORLD, "--envs", "2", "--no-progress", "--steps", "200"]
    assert main(command) == 0
    tried = sgm.SparseGraphicalMemory.load(copy / "memory.sgm", None).tried()
    (copy / "memory.sgm").replace(copy / "memory-200.sgm")
    sgm.SparseGraphicalMemory.load(copy / "memory-built.sgm", None).save(copy / "memory.sgm")
    assert main(command) == 0
    assert tried and sgm.SparseGraphicalMemory.load(copy / "memory.sgm", None).tried() == tried


def test_a_plan_between_nodes_or_places_is_printed_and_drawn(copy: Path, capsys, tmp_path: Path):
    assert main(["plan", str(copy), "0", "1", "--out", str(tmp_path / "plan.png")]) == 0
    assert "plan of" in capsys.readouterr().out and (tmp_path / "plan.png").stat().st_size > 1_000
    assert main(["plan", str(copy), "0.1,0.1", "0.9,0.9"]) == 0
    assert "plan of" in capsys.readouterr().out and list((copy / "plans").glob("*.png"))


def test_images_without_actions_give_a_memory_a_map_and_plans(image_memory: Path, walks: Path, capsys):
    assert not (image_memory / "agent.json").exists()
    page = (image_memory / "report.html").read_text()
    assert "multidimensional scaling" in page and page.count("<img") >= 4 and "Not drawn" not in page
    ends = [str(walks / "0" / "2.png"), str(walks / "1" / "30.png")]
    assert main(["plan", str(image_memory), *ends]) == 0
    assert "plan of" in capsys.readouterr().out and (image_memory / "plans" / "2-30.png").exists()
    assert main(["evaluate", str(image_memory), "--env", WORLD]) == 2
    assert "without a controller" in capsys.readouterr().err


def test_a_file_of_experience_is_a_source(agent: Path, tmp_path: Path):
    out = tmp_path / "again"
    assert main(["fit", str(agent / "data.npz"), "--out", str(out), "--iterations", "5", "--no-progress"]) == 0
    assert (out / "agent.json").exists() and not (out / "data.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "nowhere"], ["'nowhere'", "gym:ID", "images:FOLDER"]),
        (["fit", "gym:"], ["without a name"]),
        (["fit", "images:/nowhere"], ["/nowhere does not exist"]),
        (["fit", "missing.npz"], ["missing.npz", "does not exist"]),
        (["fit", "gym:Bogus-v0"], ["Bogus-v0", "module:ID"]),
        (["fit", f"gym:{WORLD}", "--env-arg", "width"], ["'width'", "NAME=VALUE"]),
        (["fit", f"gym:{WORLD}", "--env-arg", "bogus=1"], ["bogus=1"]),
        (["evaluate", "/nowhere", "--env", WORLD], ["/nowhere", "sgm fit"]),
        (["cleanup", "/nowhere"], ["--env"]),
        (["plan", "/nowhere", "0", "1"], ["/nowhere"]),
    ],
)
def test_what_cannot_be_done_says_what_is_accepted(arguments, words, capsys, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words), said
    assert "error in sgm" not in said


@pytest.mark.parametrize("more", [[], ["--no-resume"]])
def test_files_that_are_not_of_a_fit_stay(agent: Path, tmp_path: Path, more: list[str], capsys):
    for name in ("data.npz", "agent.json"):
        folder = tmp_path / name / "mine"
        folder.mkdir(parents=True)
        (folder / name).write_bytes((agent / name).read_bytes())
        assert main(["fit", f"gym:{WORLD}", "--out", str(folder), *TINY, *more]) == 2
        assert f"holds {name}, which sgm fit has not made" in capsys.readouterr().err
        assert (folder / name).read_bytes() == (agent / name).read_bytes()
    source = tmp_path / "data.npz" / "mine" / "data.npz"
    assert main(["fit", str(source), "--out", str(source.parent), *more]) == 2
    assert "choose another folder" in capsys.readouterr().err and source.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("evaluations/x.json", {"methods": {"agent": {"success_rate": "x"}}, "env": 5}),
        ("evaluations/x.json", {"methods": {"agent": {"success_rate": 0.5}}, "env": "x", "seed": 0}),
        ("fit.json", {"stages": {"distance": 5}}),
        ("fit.json", {"stages": {"memory": {"why": 3}}}),
        ("fit.json", {"stages": 5}),
    ],
)
def test_damaged_records_are_told_before_any_work(copy: Path, name: str, content, capsys):
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_text(json.dumps(content))
    assert main(["evaluate", str(copy), "--env", WORLD, "--episodes", "2", "--no-progress"]) == 2
    said = capsys.readouterr()
    assert name.split("/")[-1] in said.err and "error in sgm" not in said.err and "episodes" not in said.out


def test_a_source_that_has_changed_is_not_resumed(agent: Path, tmp_path: Path, capsys):
    source, out = tmp_path / "mine.npz", tmp_path / "out"
    how = ["fit", str(source), "--out", str(out), "--iterations", "5", "--no-progress"]
    data = sgm.data.load(agent / "data.npz")
    sgm.data.save(data, source)
    assert main(how) == 0 and main(how) == 0
    sgm.data.save(data[: len(data) // 2], source)
    assert main(how) == 2
    assert "has changed since" in capsys.readouterr().err


def test_an_environment_without_goals_is_told_apart(tmp_path: Path, capsys):
    assert main(["fit", "gym:CartPole-v1", "--out", str(tmp_path / "cart"), *TINY]) == 0
    shown = capsys.readouterr().out
    assert "have no goals" in shown and "sgm plan" in shown and "sgm evaluate tmp" not in shown
    assert "evaluate and cleanup need" not in shown and f"sgm cleanup {tmp_path / 'cart'} --env CartPole-v1" in shown
    assert main(["cleanup", str(tmp_path / "cart"), "--env", "CartPole-v1", "--steps", "20", "--no-progress"]) == 0


def test_advice_is_given_in_options_of_the_command(walks: Path, tmp_path: Path, capsys):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "walk").mkdir()
    for number, size in enumerate((8, 9)):
        image.fromarray(np.zeros((size, size, 3), np.uint8)).save(tmp_path / "walk" / f"{number}.png")
    assert main(["fit", f"images:{tmp_path / 'walk'}", "--out", str(tmp_path / "out")]) == 2
    assert "--size N" in capsys.readouterr().err


def test_tasks_of_ogbench_are_the_same_in_every_evaluation(agent: Path, tmp_path: Path):
    import shutil

    pytest.importorskip("ogbench")
    drawing, found = os.environ.get("MUJOCO_GL"), []
    for number in range(2):
        folder = Path(shutil.copytree(agent, tmp_path / str(number)))
        how = ["--env", "ogbench:pointmaze-medium-navigate-v0", "--episodes", "5", "--max-steps", "60"]
        assert main(["evaluate", str(folder), *how, "--no-progress"]) == 0
        found.append(results(folder)[0]["methods"])
    for methods in found:
        for result in methods.values():
            del result["seconds_per_action"]
    assert found[0] == found[1] and set(found[0]["agent"]["by_task"]) == set("12345")
    assert os.environ.get("MUJOCO_GL") == drawing  # other tests want to draw


@pytest.mark.parametrize("end", ["9999", "nothing", "1,2,3", "nan,1"])
def test_an_end_that_is_none_is_refused(agent: Path, end: str, capsys):
    assert main(["plan", str(agent), "0", end]) == 2
    assert "GOAL" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "evaluate", "cleanup", "plan"])
def test_every_option_has_help(command: str, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert "AGENT" in shown and "(default: )" not in shown


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "wrong",
    [
        ["gym:Bogus-v0"],
        [f"gym:{WORLD}", "--env-arg", "bogus=1"],
        [f"gym:{WORLD}", "--key", "bogus"],
        [f"gym:{WORLD}", "--device", "cuda:99"],
        ["ogbench:bogus-v0"],
        ["bad.npz"],
        ["images:empty"],
    ],
)
def test_a_source_or_device_that_cannot_be_used_removes_nothing(copy: Path, wrong: list[str], monkeypatch, capsys):
    monkeypatch.chdir(copy.parent)
    Path("bad.npz").write_bytes(b"nothing")
    Path("empty").mkdir()
    before = contents(copy)
    assert main(["fit", *wrong, "--out", str(copy), *TINY, "--no-resume"]) == 2
    assert "error in sgm" not in capsys.readouterr().err
    assert contents(copy) == before


@pytest.mark.parametrize("wrong", ["Bogus-v0", "CartPole-v1"])
def test_a_cleanup_that_cannot_start_over_keeps_what_was_cleaned(copy: Path, wrong: str, capsys):
    command = ["cleanup", str(copy), "--envs", "2", "--no-progress", "--steps", "40", "--env"]
    assert main([*command, WORLD]) == 0
    before = contents(copy)
    assert main([*command, wrong, "--no-resume"]) == 2
    assert "error in sgm" not in capsys.readouterr().err
    assert contents(copy) == before


def test_a_fit_that_failed_with_nothing_made_does_not_stand_in_the_way_of_another(agent: Path, tmp_path: Path, capsys):
    source, out = tmp_path / "mine.npz", tmp_path / "out"
    how = ["--out", str(out), "--iterations", "5", "--no-progress", "--no-controller"]
    data = sgm.data.load(agent / "data.npz")
    np.savez(source, observations=np.zeros(6, np.float32), episodes=np.zeros(6, int))
    assert main(["fit", str(source), *how]) == 2  # read, and then of no use
    assert main(["fit", "gym:Bogus-v0", *how]) == 2
    sgm.data.save(data, source)
    assert main(["fit", str(source), *how]) == 0
    assert main(["fit", str(source), *how, "--seed", "1"]) == 2
    assert "seed differ" in capsys.readouterr().err


def test_another_device_is_no_reason_to_refuse(copy: Path, capsys):
    before = (copy / "memory.sgm").read_bytes()
    assert main(["fit", f"gym:{WORLD}", "--out", str(copy), *TINY, "--device", "bogus", "--seed", "1"]) == 2
    assert "device is 'bogus'" in capsys.readouterr().err
    assert main(["fit", f"gym:{WORLD}", "--out", str(copy), *TINY, "--device", "cpu"]) == 0
    assert (copy / "memory.sgm").read_bytes() == before


def test_a_plan_says_how_far_its_ends_are_from_their_nodes_and_refuses_what_is_off_the_map(copy: Path, capsys):
    assert main(["plan", str(copy), "0.1,0.1", "0"]) == 0
    shown = capsys.readouterr().out
    assert (
        "START is" in shown
        and "map units from the nearest node" in shown
        and "GOAL is" not in shown
        and "Warning" not in shown
    )
    assert main(["plan", str(copy), "0", "1.9,1.9"]) == 0
    assert "Warning: that is far" in capsys.readouterr().out
    assert main(["plan", str(copy), "1000,1000", "0.5,0.5"]) == 2
    said = capsys.readouterr().err
    assert "START is 1000,1000" in said and "off the map" in said


def test_a_plan_from_beyond_the_distance_is_refused(image_memory: Path, walks: Path, monkeypatch, capsys):
    ends = [str(walks / "0" / "2.png"), str(walks / "1" / "30.png")]
    assert main(["plan", str(image_memory), *ends]) == 0
    assert "steps from the nearest node" in capsys.readouterr().out
    monkeypatch.setattr("sgm.fit.plan.far_of", lambda distance: 0.0)
    assert main(["plan", str(image_memory), *ends]) == 2
    assert "clipped" in capsys.readouterr().err


def test_a_memory_made_without_its_controller_says_how_to_get_one(agent: Path, tmp_path: Path, capsys):
    out = tmp_path / "memory"
    how = ["--out", str(out), "--iterations", "5", "--no-progress", "--no-controller"]
    assert main(["fit", str(agent / "data.npz"), *how]) == 0
    shown = capsys.readouterr().out
    assert "coordinates such as" in shown and "image files" not in shown
    assert main(["evaluate", str(out), "--env", WORLD]) == 2
    said = capsys.readouterr().err
    assert "--no-controller" in said and "source with actions" not in said


def test_goals_under_another_name_are_named(copy: Path, capsys):
    command = ["evaluate", str(copy), "--env", "SgmTestTarget-v0", "--episodes", "2", "--envs", "2", "--no-progress"]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "--goal-from NAME" in said and "goal_from=" not in said
    assert main([*command, "--goal-from", "target"]) == 0
    assert [result["episodes"] for result in results(copy)[0]["methods"].values()] == [2, 2]


def test_starting_over_leaves_nothing_of_the_old_agent(copy: Path):
    from sgm.fit.folder import claim
    from sgm.fit.settings import FitSettings

    claim(copy, f"gym:{WORLD}", FitSettings(), resume=False)
    assert set(contents(copy)) <= {"settings.json"}


def test_coordinates_of_a_plan_may_be_negative(copy: Path, capsys):
    for command in (["-0.1,0.2", "0.9,0.9"], ["0.9,0.9", "-.1,0.2"], ["--", "-0.1,0.2", "0.9,0.9"]):
        assert main(["plan", str(copy), *command]) == 0
    assert capsys.readouterr().out.count("plan of") == 3 and (copy / "plans" / "_0.1,0.2-0.9,0.9.png").exists()


def test_a_figure_of_another_kind_is_refused(copy: Path, tmp_path: Path, capsys):
    assert main(["plan", str(copy), "0", "1", "--out", str(tmp_path / "plan.txt")]) == 2
    assert ".png" in capsys.readouterr().err and not (tmp_path / "plan.txt").exists()


def test_an_empty_folder_among_walks_is_left_out(walks: Path, tmp_path: Path, capsys):
    import shutil

    from sgm.fit.settings import FitSettings
    from sgm.fit.source import open_source, parse_source

    folder = Path(shutil.copytree(walks, tmp_path / "walks"))
    (folder / "empty").mkdir()
    data = open_source(parse_source(f"images:{folder}"), FitSettings(), tmp_path / "out", True)
    assert data is not None and data.number_of_episodes == 3
    assert f"left out: {folder / 'empty'}" in capsys.readouterr().out


WORKERS = ["--workers", "2", "--backend", "in-process"]


def test_workers_that_collect_change_nothing(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("sgm.fit.source.PART", 150)
    folders = [tmp_path / "alone", tmp_path / "together"]
    for folder, more in zip(folders, ([], WORKERS), strict=True):
        source = parse_source(f"gym:{WORLD}")
        options = cli_options(["fit", f"gym:{WORLD}", "--out", str(folder), *TINY, *more])
        folder.mkdir()
        collect(source, options, folder, False)
    alone, together = (sgm.data.load(folder / "data.npz") for folder in folders)
    assert alone.source == together.source and alone.number_of_episodes == together.number_of_episodes
    for name in ("observations", "actions", "episodes", "steps"):
        assert np.array_equal(getattr(alone, name), getattr(together, name))


def cli_options(words: list[str]):
    """The settings of a fit that a command line gives."""
    return read_settings(FitSettings, {}, cli._parser(words).parse_args(words))


def test_cleanup_by_workers_goes_on_and_is_not_mixed_with_cleanup_by_others(copy: Path, capsys, monkeypatch):
    monkeypatch.setattr("sgm.fit.clean.PART", 100)
    command = ["cleanup", str(copy), "--env", WORLD, "--envs", "3", "--no-progress", *WORKERS, "--steps"]
    assert main([*command, "100"]) == 0 and main([*command, "300"]) == 0
    state = json.loads((copy / "cleanup.json").read_text())
    assert [part["steps"] for part in state["parts"]] == [100, 200, 300] and state["settings"]["workers"] == 2
    assert "backend" not in state["settings"]
    capsys.readouterr()
    assert main(["cleanup", str(copy), "--env", WORLD, "--envs", "3", "--no-progress", "--steps", "400"]) == 2
    assert "workers differ" in capsys.readouterr().err
    assert main([*command, "300", "--no-resume"]) == 0
    again = json.loads((copy / "cleanup.json").read_text())
    for name in ("episodes", "arrived", "removed"):
        assert [part[name] for part in again["parts"]] == [part[name] for part in state["parts"]]
