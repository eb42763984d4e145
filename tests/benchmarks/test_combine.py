"""Results of several run folders as one."""

from __future__ import annotations

import json

import pytest

import sgm
from sgm.benchmarks.combine import combine
from sgm.benchmarks.runs import RunFolder
from sgm.cli import main
from tests.benchmarks.test_sweep import row

pytest.importorskip("matplotlib")

SETTINGS = {"robots": 10, "nodes": 900, "cleanup_steps": 2_000, "checkpoints": [1_000], "seeds": [0]}


def written(folder, rows, settings=None, **more):
    """A folder with these results."""
    content = {
        "schema": 1,
        "benchmark": "sweep",
        "command": f"sgm run sweep --out {folder.name}",
        "date": "2026-11-18T00:00:00+00:00",
        "versions": {"sgm": "0"},
        "machine": folder.name,
        "settings": {**SETTINGS, **(settings or {})},
        "agent": {},
        "build_seconds": {f"world-point/size1000/seed{each['seed']}/{each['method']}": 1.0 for each in rows},
        "rows": rows,
        **more,
    }
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def parts(tmp_path):
    """Seed 0 cleaned up for 2,000 steps, and seed 1, of which seed 0 is there again, for 4,000."""
    first = written(tmp_path / "first", [row("both", steps, 90) for steps in (0, 1_000, 2_000)])
    rows = [row("both", steps, 80, seed=1) for steps in (0, 1_000, 4_000)] + [row("both", 1_000, 90)]
    longer = {"cleanup_steps": 4_000, "checkpoints": [1_000, 3_000], "seeds": [0, 1]}
    return first, written(tmp_path / "second", rows, longer)


def test_every_row_is_there_once_with_what_made_it(parts, tmp_path):
    report = combine(parts, tmp_path / "all", "sgm combine")
    run = RunFolder.read(tmp_path / "all")
    assert [(each["seed"], each["cleanup_steps"]) for each in run.rows] == [
        *((0, steps) for steps in (0, 1_000, 2_000)),
        *((1, steps) for steps in (0, 1_000, 4_000)),
    ]
    assert run.settings["seeds"] == [0, 1] and run.settings["methods"] == ["both"]
    assert run.settings["cleanup_steps"] == 4_000 and run.settings["checkpoints"] == [1_000, 3_000]
    assert set(run.results["build_seconds"]) == {f"world-point/size1000/seed{seed}/both" for seed in (0, 1)}
    made = [(part["command"], part["machine"], part["rows"]) for part in run.results["parts"]]
    assert made == [("sgm run sweep --out first", "first", 3), ("sgm run sweep --out second", "second", 4)]
    page = report.read_text()
    assert "sgm run sweep --out first" in page and "sgm run sweep --out second" in page


def test_combined_results_can_be_combined_again_and_keep_their_parts(parts, tmp_path):
    combine(parts, tmp_path / "all")
    third = written(tmp_path / "third", [row("dense", 0, 10, seed=2)])
    assert main(["combine", str(tmp_path / "all"), str(third), "--out", str(tmp_path / "all")]) == 0
    run = RunFolder.read(tmp_path / "all")
    assert len(run.rows) == 7 and [part["machine"] for part in run.results["parts"]] == ["first", "second", "third"]


def test_a_row_with_another_outcome_is_refused(parts, tmp_path):
    other = written(tmp_path / "other", [row("both", 1_000, 91)])
    with pytest.raises(sgm.InputError, match=r"first and .*other have different outcomes of point, 1000, 0, both"):
        combine([parts[0], other], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_settings_that_decide_results_must_agree(parts, tmp_path):
    other = written(tmp_path / "other", [row("both", 0, 9, seed=5)], {"nodes": 600})
    with pytest.raises(sgm.InputError, match="differ in nodes: results of different settings"):
        combine([parts[0], other], tmp_path / "all")


@pytest.mark.parametrize("earlier", [{}, {"workers": None}])
def test_runs_of_earlier_versions_had_one_worker(parts, tmp_path, earlier):
    old = written(tmp_path / "old", [row("both", 0, 9, seed=5)], earlier)
    new = written(tmp_path / "new", [row("both", 0, 9, seed=6)], {"workers": 1})
    combine([old, new], tmp_path / "all")
    assert RunFolder.read(tmp_path / "all").settings["workers"] == 1
    two = written(tmp_path / "two", [row("both", 0, 9, seed=7)], {"workers": 2})
    with pytest.raises(sgm.InputError, match="differ in workers"):
        combine([old, two], tmp_path / "more")


def test_results_of_two_benchmarks_are_refused(parts, tmp_path):
    other = written(tmp_path / "other", [], benchmark="safety")
    with pytest.raises(sgm.InputError, match="results of sweep, safety: expected one benchmark"):
        combine([parts[0], other], tmp_path / "all")
