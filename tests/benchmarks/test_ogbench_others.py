"""Datasets of OGBench that are no point maze: official files, and the package's own environments."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sgm.cli import main

pytest.importorskip("ogbench")
pytest.importorskip("torch")
pytest.importorskip("matplotlib")

NAME = "antmaze-medium-stitch-v0"
FEW = ["--distance-iterations", "10", "--controller-iterations", "10", "--episodes", "5", "--cleanup-steps", "0"]
SMALL = ["--observations", "150", "--nodes", "50", "--ttgs-nodes", "80", "--no-progress"]
METHODS = ["sgm", "uniform", "sorb", "gas", "ttgs", "gcbc"]


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Episodes of 20 steps, without a screen."""
    import gymnasium

    monkeypatch.setenv("MUJOCO_GL", "disabled")
    import ogbench  # noqa: F401

    monkeypatch.setattr(gymnasium.spec("antmaze-medium-v0"), "max_episode_steps", 20)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An official file of an ant that drifts through the maze, 6 episodes of 90 observations."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    seen = 0.01 * random.normal(size=(6, 90, 29))
    seen[..., :2] += np.arange(90)[:, None] * random.uniform(-0.2, 0.2, (6, 1, 2))
    ends = np.zeros((6, 90), bool)
    ends[:, -1] = True
    actions = random.uniform(-1, 1, (540, 8)).astype(np.float32)
    arrays = {"observations": seen.reshape(540, 29).astype(np.float32), "actions": actions, "terminals": ends.ravel()}
    for more, width in (("qpos", 15), ("qvel", 14)):
        arrays[more] = np.zeros((540, width), np.float32)
    np.savez(folder / f"{NAME}.npz", **arrays)
    return folder


def test_every_method_but_euclid_runs_in_the_packages_own_environment(files, tmp_path):
    out = tmp_path / "run"
    how = ["run", "ogbench", "--datasets", NAME, "--dataset-dir", str(files), "--out", str(out), *FEW, *SMALL]
    assert main([*how, "--methods", *METHODS, "--gas-efficiency", "-1"]) == 0
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert [row["method"] for row in rows] == METHODS
    assert all(row["source"] == f"ogbench:{NAME} (official file)" for row in rows)
    assert all(set(row["by_task"]) == set("12345") for row in rows)
    page = (out / "report.html").read_text()
    assert NAME in page and "Not drawn" not in page


def test_starts_goals_and_steps_repeat_with_the_seed():
    from sgm.benchmarks.ogbench.worlds import make_env

    def episode():
        env = make_env(NAME, 3)
        _, info = env.reset(seed=[1, 2, 3], options={"task_id": 1})
        seen = env.step(np.full((3, 8), 0.5, np.float32))[0]
        env.close()
        return info["goal"], seen

    for first, second in zip(episode(), episode(), strict=True):
        assert (first == second).all()


def test_a_planner_without_states_says_what_to_change(files, tmp_path, capsys):
    how = ["run", "ogbench", "--datasets", NAME, "--dataset-dir", str(files), "--out", str(tmp_path), *FEW, *SMALL]
    assert main([*how, "--methods", "gas", "--gas-efficiency", "1.5"]) == 2
    assert "smaller --gas-efficiency" in capsys.readouterr().err
