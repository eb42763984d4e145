"""Runs that split a budget of environment steps differently, in one table and one figure."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import sgm
from sgm.benchmarks.doom.splits import find_splits, main, splits_table
from sgm.benchmarks.runs import RunFolder
from sgm.benchmarks.tables import plain

pytest.importorskip("matplotlib")

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def other(tmp_path):
    """The run of the repository as if it had explored twice as much."""
    folder = tmp_path / "other"
    shutil.copytree(RESULTS / "doom", folder)
    content = json.loads((folder / "results.json").read_text())
    content["settings"]["buffer_episodes"] = 200
    (folder / "results.json").write_text(json.dumps(content))
    return folder


def test_environment_steps_are_those_of_exploring_and_of_cleanup(other):
    splits = find_splits([RunFolder.read(RESULTS / "doom"), RunFolder.read(other)])
    ours = [(split.explored, split.steps) for split in splits if split.label == "ours"]
    assert ours == [
        (20_000, 20_000),
        (20_000, 74_000),
        (20_000, 134_000),
        (40_000, 40_000),
        (40_000, 94_000),
        (40_000, 154_000),
    ]
    assert not any(split.label == "random actions" for split in splits)
    lines = [[plain(cell) for cell in line] for line in splits_table(splits).lines]
    assert ["doom:maze0", "ours", "20,000", "114,000", "134,000", "3 × 300"] in [line[:6] for line in lines]


def test_the_command_writes_a_table_and_a_figure(other, tmp_path, capsys):
    assert main([str(RESULTS / "doom"), str(other), "--out", str(tmp_path / "splits")]) == 0
    assert "154,000" in capsys.readouterr().out
    assert "| 154,000 |" in (tmp_path / "splits" / "splits.md").read_text()
    assert (tmp_path / "splits" / "splits.png").stat().st_size > 5_000


def test_a_run_of_something_else_is_refused(capsys, tmp_path):
    with pytest.raises(SystemExit):
        main([str(RESULTS / "point"), "--out", str(tmp_path)])
    assert "not a run of the ViZDoom benchmark" in capsys.readouterr().err
    with pytest.raises(sgm.StoreError):
        RunFolder.read(tmp_path)
