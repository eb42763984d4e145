"""The baselines without a planner: one seed, one policy; the same one from its file; nothing pickled."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sgm
from sgm.benchmarks.point import baselines
from sgm.benchmarks.point.baselines import NAMES, Baseline, train_baseline
from sgm.envs.point.env import PointMazeEnv

MAZE = {"maze": "U", "resize": 1}
STEPS = 20


@pytest.fixture(autouse=True)
def few_initial_steps(monkeypatch):
    monkeypatch.setitem(baselines.SETTINGS, "learning_starts", 60)


@pytest.fixture
def stable_baselines3():
    pytest.importorskip("safetensors")
    return pytest.importorskip("stable_baselines3")


def train(name: str, folder: Path, seed: int = 0, steps: int = STEPS, **maze) -> Baseline:
    return train_baseline(name, MAZE | maze, steps=steps, seed=seed, progress=False, folder=folder)


def pairs(count: int = 7) -> np.ndarray:
    """Observations and goals: (2, count, 2) float32."""
    return np.random.default_rng(0).random((2, count, 2), dtype=np.float32)


@pytest.mark.usefixtures("stable_baselines3")
class TestTraining:
    @pytest.mark.parametrize("name", NAMES)
    def test_a_policy_gives_an_action_for_every_row(self, name, tmp_path):
        actions = train(name, tmp_path)(*pairs())
        assert actions.shape == (7, 2) and actions.dtype == np.float32 and (abs(actions) <= 1).all()
        assert len(np.unique(actions, axis=0)) == 7

    @pytest.mark.parametrize("name", NAMES)
    def test_one_seed_gives_one_policy_and_another_seed_another(self, name, tmp_path):
        once, again, other = (train(name, tmp_path / str(i), seed)(*pairs()) for i, seed in enumerate([0, 0, 1]))
        np.testing.assert_array_equal(once, again)
        assert not np.array_equal(once, other)

    @pytest.mark.parametrize("name", NAMES)
    def test_every_step_has_one_update(self, name, tmp_path, stable_baselines3, monkeypatch):
        kind = getattr(stable_baselines3, name.split("+")[0].upper())
        updates, plain = [], kind.train

        def counted(self, gradient_steps, batch_size):
            updates.append(gradient_steps)
            plain(self, gradient_steps, batch_size)

        monkeypatch.setattr(kind, "train", counted)
        train(name, tmp_path)
        assert updates == [1] * STEPS

    def test_relabelled_arrivals_end_the_episode(self, monkeypatch, tmp_path):
        kept, plain = [], baselines._replay

        def kept_replay():
            class Kept(plain()):
                def sample(self, batch_size, env=None):
                    kept.append(super().sample(batch_size, env))
                    return kept[-1]

            return Kept

        monkeypatch.setattr(baselines, "_replay", kept_replay)
        train("ddpg+her", tmp_path)
        env = PointMazeEnv(**MAZE)
        for samples in kept:
            after = samples.next_observations
            reached = env.compute_terminated(after["achieved_goal"].numpy(), after["desired_goal"].numpy())
            np.testing.assert_array_equal(samples.dones.numpy()[:, 0], reached)
        assert 0 < np.mean([samples.dones.numpy() for samples in kept]) < 1

    def test_global_generators_are_left_as_they_were(self, tmp_path):
        import torch

        def states():
            return repr((random.getstate(), np.random.get_state(), torch.random.get_rng_state().tolist()))  # noqa: NPY002

        before = states()
        train("sac+her", tmp_path)
        assert states() == before

    def test_it_prints_nothing_but_the_bar(self, tmp_path, capsys):
        train("ddpg+her", tmp_path)
        assert capsys.readouterr() == ("", "")
        train_baseline("ddpg+her", MAZE, steps=STEPS, seed=1, progress=True, folder=tmp_path)
        printed, bar = capsys.readouterr()
        assert printed == "" and "ddpg+her: 100%" in bar and "80/80" in bar


@pytest.fixture
def no_training(monkeypatch):
    """Random weights instead of trained ones, for tests of what happens to files."""
    monkeypatch.setattr(baselines, "_train", lambda name, *_: baselines._untrained(name))


@pytest.mark.usefixtures("stable_baselines3")
class TestFiles:
    @pytest.mark.parametrize("name", NAMES)
    def test_a_loaded_policy_acts_identically(self, name, tmp_path):
        trained = train(name, tmp_path)
        (path,) = tmp_path.iterdir()
        np.testing.assert_array_equal(baselines._read(path)(*pairs()), trained(*pairs()))

    def test_finished_weights_are_loaded_and_not_trained_again(self, tmp_path, monkeypatch):
        trained = train("sac+her", tmp_path)
        monkeypatch.delattr(baselines, "_train")
        np.testing.assert_array_equal(train("sac+her", tmp_path)(*pairs()), trained(*pairs()))

    @pytest.mark.parametrize("change", [{"steps": STEPS + 1}, {"seed": 1}, {"maze": "Tree"}, {"action_noise": 0.5}])
    @pytest.mark.usefixtures("no_training")
    def test_weights_of_another_training_are_not_used_and_not_lost(self, change, tmp_path):
        train("ddpg+her", tmp_path)
        train("ddpg+her", tmp_path, **change)
        assert len(list(tmp_path.iterdir())) == 2

    @pytest.mark.usefixtures("no_training")
    def test_a_file_says_how_it_was_trained(self, tmp_path):
        from safetensors import safe_open

        train("ddpg+her", tmp_path)
        (path,) = tmp_path.iterdir()
        with safe_open(path, framework="np") as file:
            run = json.loads(file.metadata()["run"])
        assert (run["name"], run["steps"], run["seed"]) == ("ddpg+her", STEPS, 0)
        assert run["environment"]["max_episode_steps"] == 20 and run["environment"]["prob_near"] == 0.8

    @pytest.mark.parametrize(
        "run", [None, "", "{", "[]", "{}", '{"name": 3}', '{"name": "ppo"}', '{"name": "sac+her"}']
    )
    def test_a_file_of_the_right_format_without_weights_is_refused(self, tmp_path, run):
        import torch

        from sgm.learning.tensors import write_tensors

        path = tmp_path / "weights.safetensors"
        facts = {"format": "sgm-baseline-1", **({} if run is None else {"run": run})}
        write_tensors(path, {"a": torch.zeros(1)}, facts)
        with pytest.raises(sgm.StoreError, match="weights.safetensors holds no weights of a baseline.*move it away"):
            baselines._read(path)

    @pytest.mark.usefixtures("no_training")
    def test_a_file_under_a_wrong_name_is_refused(self, tmp_path):
        train("ddpg+her", tmp_path, seed=0)
        (one,) = tmp_path.iterdir()
        train("ddpg+her", tmp_path, seed=1)
        (two,) = set(tmp_path.iterdir()) - {one}
        one.replace(two)
        with pytest.raises(sgm.StoreError, match="move it away"):
            train("ddpg+her", tmp_path, seed=1)

    def test_what_is_no_baseline_is_refused(self, tmp_path):
        (tmp_path / "junk").write_bytes(b"junk")
        with pytest.raises(sgm.StoreError, match="not a safetensors file"):
            baselines._read(tmp_path / "junk")
        with pytest.raises(sgm.StoreError, match="does not exist"):
            baselines._read(tmp_path / "nothing")

    @pytest.mark.usefixtures("no_training")
    def test_shapes_that_do_not_fit_are_refused(self, tmp_path):
        policy = train("ddpg+her", tmp_path)
        with pytest.raises(sgm.InputError, match=r"\(7, 2\) and \(3, 2\): expected \(n, 2\)"):
            policy(pairs()[0], pairs(3)[1])
        with pytest.raises(sgm.InputError, match="expected"):
            policy(np.zeros(2), np.zeros(2))


class TestWithoutStableBaselines3:
    def test_an_unknown_name_is_refused(self, tmp_path):
        with pytest.raises(sgm.InputError, match="'ppo': expected one of 'ddpg\\+her', 'sac\\+her'"):
            train("ppo", tmp_path)

    @pytest.mark.parametrize("wrong", [{"steps": 0}, {"steps": 2.5}, {"seed": -1}, {"seed": True}])
    def test_a_wrong_number_is_refused(self, wrong, tmp_path):
        with pytest.raises(sgm.InputError, match="expected a whole number"):
            train("ddpg+her", tmp_path, **wrong)

    def test_a_missing_package_is_named_with_what_to_install(self, tmp_path, monkeypatch):
        pytest.importorskip("safetensors")
        monkeypatch.setitem(sys.modules, "stable_baselines3", None)
        with pytest.raises(sgm.SGMError, match=r"stable_baselines3.*sparse-graphical-memory\[baselines\]"):
            train("sac+her", tmp_path)

    def test_importing_the_module_imports_no_framework(self):
        probe = "import sys, sgm.benchmarks.point.baselines; print({'torch', 'stable_baselines3'} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "set()"
