"""D3PG: what it learns from, how it updates, and that a run can be repeated and resumed."""

from __future__ import annotations

import dataclasses

import gymnasium as gym
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from gymnasium.vector import AutoresetMode  # noqa: E402

from sgm.controllers.d3pg import D3PG, Actor, D3PGConfig, Replay, one_step_more, one_thread, train  # noqa: E402
from sgm.controllers.d3pg_reference import ReferenceD3PG  # noqa: E402
from sgm.distances.sorb import DistributionalDistance  # noqa: E402
from sgm.errors import InputError, StoreError  # noqa: E402
from sgm.navigation.rollout import Stream  # noqa: E402

TINY = D3PGConfig(iterations=60, batch_size=8, hidden=16, initial_steps=40, checkpoint_every=20)


class BoxEnv(gym.Env):
    """A point in the unit square; an action moves it by up to 0.2; the goal is reached within 0.15."""

    def __init__(self, steps: int = 8):
        self.steps = steps
        box = gym.spaces.Box(0, 1, (2,), np.float32)
        self.observation_space = gym.spaces.Dict(
            {"observation": box, "achieved_goal": box, "desired_goal": box},
        )
        self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def _observe(self):
        place = self.place.astype(np.float32)
        return {"observation": place, "achieved_goal": place.copy(), "desired_goal": self.goal}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.random(2), self.np_random.random(2).astype(np.float32)
        self.elapsed = 0
        return self._observe(), {}

    def step(self, action):
        self.place = np.clip(self.place + 0.2 * np.asarray(action), 0, 1)
        self.elapsed += 1
        reached = bool(np.linalg.norm(self.place - self.goal) < 0.15)
        return self._observe(), 0.0 if reached else -1.0, reached, self.elapsed >= self.steps, {}


def make_env(count: int = 4, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> gym.vector.VectorEnv:
    return gym.vector.SyncVectorEnv([BoxEnv] * count, autoreset_mode=mode)


def make_stream(count: int = 4, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> Stream:
    return Stream(make_env(count, mode))


def batch_for(learner: D3PG, count: int, seed: int = 0) -> torch.Tensor:
    random = np.random.default_rng(seed)
    places, goals, following = random.random((3, count, 2))
    return learner.transitions.pack(
        places, goals, random.uniform(-1, 1, (count, 2)), following, random.random(count) < 0.3
    )


def weights(learner: D3PG) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in learner.networks.tensors().values()])


# What it learns from


def test_one_step_more_moves_the_distribution_up_and_the_last_bin_keeps_what_would_leave():
    following = torch.tensor([[[0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]]])
    expected = torch.tensor([[[0.0, 0.1, 0.2, 0.7], [1.0, 0.0, 0.0, 0.0]]])
    assert torch.allclose(one_step_more(following, torch.tensor([0.0, 1.0])), expected)


def test_targets_are_distributions():
    learner = D3PG(2, 2, TINY)
    targets = learner.targets(batch_for(learner, 50))
    assert targets.shape == (3, 50, 20)
    assert torch.allclose(targets.sum(2), torch.ones(3, 50))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_only_real_steps_are_stored_and_a_time_limit_is_not_an_arrival(mode, monkeypatch):
    stored = []
    monkeypatch.setattr(Replay, "add", lambda self, rows, add=Replay.add: (stored.append(rows), add(self, rows)))
    config = dataclasses.replace(TINY, initial_steps=800, iterations=5)
    learner = train(make_stream(mode=mode), config, progress=False)
    rows, columns = torch.cat(stored), learner.transitions
    now, following, reached = rows[:, columns.now], rows[:, columns.next], rows[:, -1].bool()
    assert torch.allclose(following[:, :2], (now[:, :2] + 0.2 * rows[:, columns.action]).clamp(0, 1), atol=1e-6)
    assert torch.equal(now[:, 2:], following[:, 2:])
    assert torch.equal(reached, (following[:, :2] - following[:, 2:4]).norm(dim=1) < 0.15)
    assert 0 < reached.sum() < len(reached) / 2


def test_the_replay_buffer_overwrites_the_oldest_and_samples_what_it_holds():
    replay, generator = Replay(4, 1), torch.Generator().manual_seed(0)
    replay.add(torch.tensor([[1.0], [2.0], [3.0]]))
    assert set(replay.sample(100, generator).flatten().tolist()) == {1, 2, 3}
    replay.add(torch.tensor([[4.0], [5.0], [6.0]]))
    assert set(replay.sample(100, generator).flatten().tolist()) == {3, 4, 5, 6}
    replay.add(torch.arange(10.0, 20.0)[:, None])
    assert set(replay.sample(100, generator).flatten().tolist()) == {16, 17, 18, 19}


# How it updates


def test_stacked_critics_and_separate_critics_have_the_same_losses_and_gradients():
    learner = D3PG(2, 2, TINY)
    for kind in (learner._critics, learner._actors):
        # Away from the tiny initial outputs, for which all gradients are alike.
        kind.online.add_(0.3 * torch.randn(kind.online.shape, generator=torch.Generator().manual_seed(1)))
        kind.move_targets(1.0)
    plain, batch = ReferenceD3PG(learner), batch_for(learner, 8)
    expected = learner.losses(batch)
    critic_loss, _ = plain.update(batch)
    learner.update(batch[None])
    assert critic_loss == pytest.approx(expected["critic"], rel=1e-5)
    for ours, modules in [(learner._actors, plain.actors[:1]), (learner._critics, plain.critics[0])]:
        for index, module in enumerate(modules):
            parts = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
            for gradient, part in zip(ours.gradients, parts, strict=True):
                separately = torch.cat([part.weight.grad.T, part.bias.grad[None]])
                assert separately.abs().max() > 1e-3
                assert torch.allclose(gradient[index], separately, rtol=1e-3, atol=1e-6)


def test_after_many_updates_of_both_their_losses_are_the_same():
    learner = D3PG(2, 2, D3PGConfig(hidden=16, batch_size=8, learning_rate=1e-3))
    plain = ReferenceD3PG(learner)
    for seed in range(0, 20, 5):
        batches = torch.stack([batch_for(learner, 8, seed + index) for index in range(5)])
        learner.update(batches)
        for batch in batches:
            plain.update(batch)
    unseen = batch_for(learner, 8, 99)
    expected = learner.losses(unseen)
    assert plain._actor_loss(unseen[:, learner.transitions.now][:, :-1]).item() == pytest.approx(expected["actor"])
    assert plain.update(unseen)[0] == pytest.approx(expected["critic"])


def test_several_batches_at_once_are_the_same_as_one_after_the_other():
    together, single = D3PG(2, 2, TINY), D3PG(2, 2, TINY)
    batches = torch.stack([batch_for(together, 8, seed) for seed in range(5)])
    together.update(batches)
    for batch in batches:
        single.update(batch[None])
    assert torch.allclose(weights(together), weights(single), atol=1e-6)
    assert torch.allclose(together._critics.targets, single._critics.targets, atol=1e-6)


def test_target_networks_move_every_target_period_only():
    learner = D3PG(2, 2, TINY)
    before = learner._critics.targets.clone()
    for seed in range(4):
        learner.update(batch_for(learner, 8, seed)[None])
    assert torch.equal(learner._critics.targets, before)
    learner.update(batch_for(learner, 8, 4)[None])
    assert torch.allclose(learner._critics.targets, before.lerp(learner._critics.online, 0.05))


def test_it_learns_to_reach_goals_and_to_tell_near_from_far():
    config = D3PGConfig(iterations=1500, batch_size=32, hidden=48, bins=8, initial_steps=500, learning_rate=2e-3)
    learner = train(make_stream(20), config, progress=False)
    reached = {name: play(act) for name, act in {"actor": learner.actor, "random": random_actions()}.items()}
    assert reached["actor"] > 0.8 > 0.6 > reached["random"]
    starts, near, far = np.array([[0.2, 0.2]]), np.array([[0.3, 0.3]]), np.array([[0.9, 0.9]])
    distance = learner.distance()
    assert distance.pairs(starts, near)[0] + 1 < distance.pairs(starts, far)[0]


def random_actions():
    random = np.random.default_rng(0)
    return lambda observations, goals: random.uniform(-1, 1, np.shape(goals))


def play(act, count: int = 100, steps: int = 8) -> float:
    """The share of episodes that reach their goal."""
    env = make_env(count)
    observation, _ = env.reset(seed=5)
    reached, over = np.zeros(count, bool), np.zeros(count, bool)
    for _ in range(steps):
        actions = act(observation["observation"], observation["desired_goal"])
        observation, _, terminated, truncated, _ = env.step(actions)
        reached |= terminated & ~over
        over |= terminated | truncated
    return float(reached.mean())


# Repeating and resuming


def test_one_seed_gives_one_result_and_another_seed_another():
    first, second, other = (weights(train(make_stream(), TINY, seed=seed, progress=False)) for seed in (3, 3, 4))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_a_checkpoint_changes_nothing_and_a_finished_run_is_not_run_again(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    learner = train(make_stream(), TINY, progress=False, checkpoint=path)
    assert torch.equal(weights(learner), weights(train(make_stream(), TINY, progress=False)))
    again = train(make_stream(), TINY, progress=False, checkpoint=path, resume=True)
    assert again.iteration == 60
    assert torch.equal(weights(learner), weights(again))


@pytest.mark.parametrize("capacity", [30, 1000])
@pytest.mark.parametrize("stop", [20, 27, 41])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_by_bit(tmp_path, monkeypatch, stop, capacity):
    config = dataclasses.replace(TINY, capacity=capacity, noise_damping=0.5)
    path = tmp_path / "checkpoint.safetensors"
    update = D3PG.update

    def interrupted(self, batches):
        if self.iteration >= stop:
            raise KeyboardInterrupt
        update(self, batches)

    monkeypatch.setattr(D3PG, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(make_stream(), config, seed=1, progress=False, checkpoint=path)
    monkeypatch.setattr(D3PG, "update", update)
    resumed = train(make_stream(), config, seed=1, progress=False, checkpoint=path, resume=True)
    whole = train(make_stream(), config, seed=1, progress=False)
    assert torch.equal(weights(resumed), weights(whole))
    assert torch.equal(resumed._critics.moments, whole._critics.moments)


def test_resume_without_a_checkpoint_starts_from_scratch(tmp_path):
    learner = train(make_stream(), TINY, progress=False, checkpoint=tmp_path / "new.safetensors", resume=True)
    assert torch.equal(weights(learner), weights(train(make_stream(), TINY, progress=False)))


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    train(make_stream(), TINY, progress=False, checkpoint=path)
    other = dataclasses.replace(TINY, batch_size=9)
    for settings in ({"config": other}, {"config": TINY, "seed": 1}):
        with pytest.raises(StoreError, match="is a checkpoint of"):
            train(make_stream(), progress=False, checkpoint=path, resume=True, **settings)


def test_weights_in_a_file_give_the_same_actor_and_the_same_distance(tmp_path):
    learner = train(make_stream(), TINY, progress=False)
    learner.save(tmp_path / "weights.safetensors")
    places, goals = np.random.default_rng(0).random((2, 7, 2))
    actor = Actor.load(tmp_path / "weights.safetensors")
    np.testing.assert_array_equal(actor(places, goals), learner.actor(places, goals))
    distance = DistributionalDistance.load(tmp_path / "weights.safetensors")
    assert distance.fingerprint == learner.distance().fingerprint
    assert actor.networks.config["iterations"] == 60


def test_training_leaves_the_number_of_threads_and_denormal_numbers_as_they_were():
    threads = torch.get_num_threads()
    train(make_stream(), TINY, progress=False)
    assert torch.get_num_threads() == threads
    assert (torch.tensor(1e-39) * 1).item() > 0
    with one_thread():
        train(make_stream(), TINY, progress=False)
        assert torch.get_num_threads() == 1
        assert (torch.tensor(1e-39) * 1).item() == 0


def test_progress_is_shown_only_on_request(capsys):
    train(make_stream(), TINY, progress=False)
    assert capsys.readouterr().err == ""
    train(make_stream(), TINY, progress=True)
    assert "60/60" in capsys.readouterr().err


# Errors


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("iterations", 0),
        ("iterations", 7),
        ("batch_size", 2.5),
        ("bins", 1),
        ("learning_rate", -1.0),
        ("learning_rate", float("nan")),
        ("target_rate", 2.0),
        ("noise", -0.1),
        ("hidden", "256"),
        ("capacity", True),
    ],
)
def test_a_bad_hyper_parameter_is_named(field, value):
    with pytest.raises(InputError, match=field):
        D3PGConfig(**{field: value})


def test_numpy_numbers_are_fine_as_hyper_parameters():
    assert D3PGConfig(iterations=np.int64(10), noise=np.float32(0)).noise == 0.0


def test_an_environment_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="observation and desired_goal"):
        train(Stream(gym.make_vec("Pendulum-v1", num_envs=1)), TINY, progress=False)
    stream = make_stream()
    stream.single_action_space = gym.spaces.Box(0, 1, (2,), np.float32)
    with pytest.raises(InputError, match="RescaleAction"):
        train(stream, TINY, progress=False)
    with pytest.raises(InputError, match=r"expected sgm\.navigation\.rollout\.Stream\(env\)"):
        train(make_env(), TINY, progress=False)


def test_batches_that_do_not_fit_are_refused():
    learner = D3PG(2, 2, TINY)
    learner.update(batch_for(learner, 16).unflatten(0, (2, 8)))
    for batches in (batch_for(learner, 9)[None], batch_for(learner, 32).unflatten(0, (4, 8)), batch_for(learner, 8)):
        with pytest.raises(InputError, match=r"expected \(k, 8, 13\), k ≤ 3"):
            learner.update(batches)


@pytest.mark.parametrize("seed", [-1, 0.5, True])
def test_a_bad_seed_is_named(seed):
    with pytest.raises(InputError, match="seed"):
        train(make_stream(), TINY, seed=seed, progress=False)


def test_an_actor_names_shapes_it_cannot_use():
    actor = D3PG(2, 2, TINY).actor
    assert actor(np.zeros((5, 2)), np.ones((5, 2))).shape == (5, 2)
    assert actor(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0, 2)
    for places, goals in [(np.zeros(2), np.zeros(2)), (np.zeros((3, 2)), np.zeros((4, 2))), (0.5, 0.5)]:
        with pytest.raises(InputError, match=r"expected \(n, 2\) each"):
            actor(places, goals)
