"""`sgm run point`, whole, with tiny budgets: what it writes, and that interrupting it loses nothing."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

import sgm
from sgm.cli import main
from sgm.navigation.beside import read_episodes
from tests.benchmarks.left import check_left

pytest.importorskip("torch")

BUDGET = {"iterations": 100, "episodes": 4, "buffer-size": 60, "cleanup-steps": 300, "checkpoints": 100, "agents": 5}
TINY = ["--no-progress", *(word for name, value in BUDGET.items() for word in (f"--{name}", str(value)))]


def run(out, *more) -> dict:
    assert main(["run", "point", *TINY, "--out", str(out), *more]) == 0
    return json.loads((out / "results.json").read_text())


def timeless(results: dict) -> list[dict]:
    """Rows without what depends on the clock."""
    clock = ("seconds_per_action", "cleanup_seconds")
    return [{name: value for name, value in row.items() if name not in clock} for row in results["rows"]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    return out, run(out)


def test_every_row_says_what_the_documentation_says(finished):
    _, results = finished
    assert results["schema"] == 1
    assert results["command"].startswith("sgm ")
    assert "python" in results["versions"]
    phases = [(row["method"], row["phase"], row["cleanup_steps"]) for row in results["rows"]]
    stages = [("initial", 0), ("filtered", 0), ("cleaned", 100), ("cleaned", 300)]
    expected = [(method, *stage) for method in ("sorb+sgm", "sorb") for stage in stages]
    assert phases == [*expected, ("d3pg", "initial", 0)]
    for row in results["rows"]:
        assert row["environment"] == "point:FourRooms-thin"
        assert row["episodes"] == 4
        assert row["success_rate"] == row["successes"] / 4
        assert 0 <= row["ci95"][0] <= row["success_rate"] <= row["ci95"][1] <= 1
        assert sum(row["reasons"].values()) == 4 - row["successes"]
        assert len(row["outcomes"]) == 4 and row["outcomes"].count("1") == row["successes"]


def test_the_page_says_in_a_sentence_whether_the_sparse_memory_is_ahead(finished):
    from sgm.benchmarks.point.report import verdict

    rows = finished[1]["rows"]

    def after(sparse: int, dense: int, steps=(100, 300)) -> list[str]:
        success = {"sorb+sgm": sparse, "sorb": dense}
        known = [{**row, "episodes": 200, "outcomes": ""} for row in rows if row["cleanup_steps"] in steps]
        return verdict([{**row, "successes": success[row["method"]]} for row in known])

    (ahead,) = after(198, 90)
    assert ahead.startswith("Success after 300 cleanup steps: 99.0 % with the sparse memory of ")
    assert (
        "45.0 % with the dense memory of 60. The sparse memory is better, " in ahead
        and "after 100, 300 steps." in ahead
    )
    assert "dense memory is better" not in ahead and "no clear" not in ahead
    assert "no clear difference" in after(198, 197)[0] and "The dense memory is better" in after(90, 198)[0]
    turned = [{**row, "successes": {"sorb+sgm": 198, "sorb": 90}[row["method"]]} for row in rows[2:3] + rows[6:7]]
    turned += [{**row, "successes": {"sorb+sgm": 90, "sorb": 198}[row["method"]]} for row in rows[3:4] + rows[7:8]]
    (both,) = verdict([{**row, "episodes": 200, "outcomes": ""} for row in turned])
    assert both.startswith("Success after 300 cleanup steps: 45.0 %")
    assert "sparse memory is better, with disjoint intervals, after 100 steps." in both
    assert "dense memory is better, with disjoint intervals, after 300 steps." in both
    assert verdict([row for row in rows if row["method"] != "sorb"]) == [] == verdict(rows[:1])
    assert "cleanup steps: " in (finished[0] / "report.html").read_text()


def test_a_run_of_an_earlier_version_goes_on_if_a_new_setting_is_as_it_was(finished, tmp_path, capsys):
    out = tmp_path / "run"
    shutil.copytree(finished[0], out)
    settings = json.loads((out / "settings.json").read_text())
    del settings["starts"]
    (out / "settings.json").write_text(json.dumps(settings))
    assert main(["run", "point", *TINY, "--out", str(out), "--starts", "far"]) == 2
    assert "starts differ" in capsys.readouterr().err
    assert timeless(run(out)) == timeless(finished[1])


def test_sorb_as_released_keeps_fewer_successors_and_begins_far_away(finished, tmp_path, capsys):
    more = ["--methods", "released", "sorb", "--agents", "1", "--starts", "far"]
    rows = run(tmp_path / "run", *more)["rows"]
    by_method = {name: [row for row in rows if row["method"] == name] for name in ("released", "sorb")}
    assert [row["phase"] for row in by_method["released"]] == ["initial", "cleaned", "cleaned"]
    assert by_method["released"][0]["edges"] <= by_method["sorb"][1]["edges"]
    assert main(["run", "point", *TINY, "--out", str(tmp_path / "no"), *more, "--policy", "belief"]) == 2
    assert "the method released needs first-failure" in capsys.readouterr().err and not (tmp_path / "no").exists()


def test_memories_weights_and_report_lie_beside_the_results(finished):
    out, results = finished
    for method in ("sorb+sgm", "sorb"):
        memory = sgm.SparseGraphicalMemory.load(out / "seed0" / method / "memory.sgm", None)
        row = next(row for row in results["rows"] if row["method"] == method and row["cleanup_steps"] == 300)
        assert (len(memory), len(memory.edges().source)) == (row["nodes"], row["edges"])
        assert memory.attributes["position"].shape == (row["nodes"], 2)
    assert (out / "seed0" / "weights.safetensors").exists()
    page = (out / "report.html").read_text()
    assert "sorb" in page.lower()
    assert not list(out.rglob("*.new")) and not list(out.rglob("checkpoint*"))


def test_the_same_command_again_finds_everything_done(finished):
    out, results = finished
    before = (out / "seed0" / "weights.safetensors").stat().st_mtime_ns
    assert run(out)["rows"] == results["rows"]
    assert (out / "seed0" / "weights.safetensors").stat().st_mtime_ns == before


def test_a_run_interrupted_anywhere_goes_on_to_the_same_result(finished, tmp_path, monkeypatch):
    from sgm.benchmarks import engine

    calls = {"left": 0}
    real = engine.rollout

    def fragile(*arguments, **options):
        if calls["left"] == 0:
            raise KeyboardInterrupt
        calls["left"] -= 1
        return real(*arguments, **options)

    monkeypatch.setattr(engine, "rollout", fragile)
    interruptions = 0
    for patience in (1, 2, 3, 2, 9):
        calls["left"] = patience
        code = main(["run", "point", *TINY, "--out", str(tmp_path)])
        interruptions += code == 130
    assert code == 0
    assert interruptions == 4
    again = json.loads((tmp_path / "results.json").read_text())
    assert timeless(again) == timeless(finished[1])


@pytest.mark.parametrize("left", ["", '{"rows": [{"environment": "point:Fo'], ids=["empty", "half-written"])
def test_a_state_that_a_crash_has_damaged_is_named_and_once_removed_the_run_goes_on(finished, tmp_path, capsys, left):
    out = tmp_path / "run"
    shutil.copytree(finished[0], out)
    state = out / "seed0" / "sorb" / "state.json"
    state.write_text(left)
    assert main(["run", "point", *TINY, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert str(state) in said and "remove the file, and this part of the run is made again" in said
    assert "--no-resume" in said
    state.unlink()
    assert timeless(run(out)) == timeless(finished[1])


def test_other_settings_in_the_same_folder_are_refused_and_more_methods_are_not(finished, capsys):
    out, _ = finished
    assert main(["run", "point", *TINY, "--out", str(out), "--difficulty", "0.5"]) == 2
    assert "difficulty differ" in capsys.readouterr().err
    again = run(out, "--methods", "d3pg")
    assert len(again["rows"]) == 9 and again["settings"]["methods"] == ["sorb+sgm", "sorb", "d3pg"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--episodes", "0"], "episodes is 0"),
        (["--cleanup-steps", "-1"], "cleanup_steps is -1"),
        (["--criterion", "both"], "criterion is 'both'"),
        (["--policy", "never"], "policy is 'never'"),
        (["--maze", "Nowhere"], "Nowhere"),
    ],
)
def test_bad_options_are_clear_errors(options, reason, tmp_path, capsys):
    assert main(["run", "point", *TINY, "--out", str(tmp_path / "x"), *options]) == 2
    assert reason in capsys.readouterr().err


def test_other_mazes_criteria_and_policies_run(tmp_path):
    maze = tmp_path / "mine.txt"
    maze.write_text(".....\n.###.\n.....\n")
    options = ["--maze", str(maze), "--thick", "--resize", "3", "--criterion", "uniform", "--policy", "belief"]
    results = run(tmp_path / "out", *options, "--methods", "sorb+sgm", "--by", "hops")
    assert {row["environment"] for row in results["rows"]} == {"point:mine-thick"}


@pytest.mark.parametrize("module", ["torch", "matplotlib"])
def test_a_missing_extra_is_said_in_a_line_before_a_folder_is_made(module, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["run", "point", *TINY, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr()
    assert f"sgm run point needs {module}: pip install" in said.err and said.err.count("\n") == 1
    assert not said.out and not (tmp_path / "run").exists()


def test_a_baseline_without_its_extra_is_refused_before_the_others_are_trained(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    assert main(["run", "point", *TINY, "--methods", "d3pg", "sac+her", "--out", str(tmp_path / "run")]) == 2
    assert "method sac+her needs stable_baselines3" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_memory_without_edges_is_warned_about(tmp_path, capsys):
    run(tmp_path / "run", "--methods", "sorb+sgm", "--buffer-size", "2")
    assert "warning: sorb+sgm: no edge can be used" in capsys.readouterr().out


def test_a_run_leaves_memories_to_look_at_with_places_walls_and_episodes(finished):
    out, _ = finished
    for method in ("sorb+sgm", "sorb"):
        check_left(out / "seed0" / method / "memory.sgm", images=False, cleaned=True, followed=method == "sorb+sgm")
    assert not (out / "seed0" / "d3pg" / "episodes.npz").exists()  # it has no memory
    episodes = read_episodes(out / "seed0" / "sorb+sgm" / "memory.sgm")
    assert {each.title.partition(", ")[2] for each in episodes} == {"after 300 cleanup steps", "after 100 steps"}
