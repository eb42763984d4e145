"""The programs in examples/ run, with small budgets."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FEW = pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")  # small budgets make bad distances
EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested_and_says_what_it_shows_and_how_long_it_takes():
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert names == [
        "image_walk",
        "images",
        "live_file",
        "minari_maze",
        "own_distance",
        "own_env",
        "sb3_agent",
        "ten_lines",
    ]
    for name in names:
        opening = (EXAMPLES / f"{name}.py").read_text().split('"""')[1]
        assert "akes" in opening and ("second" in opening or "minute" in opening)


def test_ten_lines(capsys):
    memory = load("ten_lines").main(observations=500)
    assert len(memory.removed().source) == 1
    assert capsys.readouterr().out.count("plan of") == 2


def test_own_distance(tmp_path: Path):
    memory = load("own_distance").main(tmp_path / "corridor.sgm", observations=500)
    assert len(memory.removed().source) == 1


def test_live_file(tmp_path: Path):
    memory = load("live_file").main(rounds=5, path=tmp_path / "live.sgm")
    assert len(memory.assignment) == 500


def test_own_env(capsys):
    pytest.importorskip("torch")
    pytest.importorskip("gymnasium_robotics")
    results = load("own_env").main(steps=2_000, iterations=30, tasks=4, cleanup_steps=200, episode_steps=60)
    assert [len(result.successes) for result in results.values()] == [4, 4]
    assert capsys.readouterr().out.count("of 4 tasks [") == 2


def test_sb3_agent(capsys):
    pytest.importorskip("torch")
    pytest.importorskip("stable_baselines3")
    results = load("sb3_agent").main(steps=600, observations=300, cleanup_steps=200, tasks=4)
    assert [len(result.successes) for result in results.values()] == [4, 4, 4]
    assert capsys.readouterr().out.count("of 4 tasks [") == 3


def test_images(capsys):
    pytest.importorskip("torch")
    pytest.importorskip("minigrid")
    results = load("images").main(steps=600, iterations=20, tasks=4, num_envs=4)
    assert [len(result.successes) for result in results.values()] == [4, 4]
    assert capsys.readouterr().out.count("of 4 tasks [") == 2


def test_the_goal_of_four_rooms_is_the_image_at_a_free_cell():
    pytest.importorskip("torch")
    pytest.importorskip("minigrid")
    env = load("images").FourRooms()
    observation, info = env.reset(seed=3)
    assert observation["observation"].shape == observation["desired_goal"].shape == (38, 38, 3)
    assert not info["success"] and env.goal_cell in env.free
    env.rooms.agent_pos = env.goal_cell
    observation, reward, terminated, truncated, info = env.step(0)
    assert info["success"] and terminated and reward == 1 and not truncated
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(again["desired_goal"], observation["desired_goal"])


@FEW
def test_image_walk(tmp_path: Path, capsys):
    pytest.importorskip("torch")
    pytest.importorskip("PIL")
    plan = load("image_walk").main(tmp_path, walks=10, length=30, iterations=20)
    assert len(plan) and (tmp_path / "plan.png").exists() and len(list((tmp_path / "walks").rglob("*.png"))) == 300
    assert "plan of" in capsys.readouterr().out


@FEW
def test_minari_maze(tmp_path: Path, capsys, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("gymnasium_robotics")
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))  # and the example's own is undone with it
    results = load("minari_maze").main(tmp_path, steps=2_000, iterations=20, tasks=4)
    assert [len(result.successes) for result in results.values()] == [4, 4]
    assert "sgm fit minari:" in capsys.readouterr().out


def test_an_example_runs_as_a_program():
    done = subprocess.run([sys.executable, EXAMPLES / "ten_lines.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("plan of") == 2, done.stderr
