"""Models of Stable-Baselines3 as controllers and distances: exact for known critics, and the same from a file."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import sgm

pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

import stable_baselines3 as baselines
import torch

from sgm.distances.sb3 import Returns, SB3Distance
from sgm.learning.device import resolve_device
from sgm.learning.sb3 import GoalPolicy

LENGTH = 5.0


class Corridor(gymnasium.Env):
    """A point in a corridor of length 5: position and a useless number are seen, the goal is a position."""

    def __init__(self, discrete: bool = False, rewards: tuple[float, float] = (-1.0, 0.0)) -> None:
        self.rewards, self.discrete = rewards, discrete
        goal = spaces.Box(0.0, LENGTH, (1,), np.float32)
        seen = spaces.Box(-LENGTH, LENGTH, (2,), np.float32)
        self.observation_space = spaces.Dict({"observation": seen, "achieved_goal": goal, "desired_goal": goal})
        self.action_space = spaces.Discrete(3) if discrete else spaces.Box(-0.5, 0.5, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(0, LENGTH, (2, 1)).astype(np.float32)
        self.left = 15
        return self._observation(), {"success": False}

    def step(self, action):
        push = (np.array([action]) - 1) * 0.5 if self.discrete else np.asarray(action)
        self.place = np.clip(self.place + push, 0, LENGTH).astype(np.float32)
        self.left -= 1
        reward = self.compute_reward(self.place, self.goal, {})
        success = bool(reward == self.rewards[1])
        return self._observation(), float(reward), success, self.left == 0, {"success": success}

    def compute_reward(self, achieved, desired, info):
        near = np.abs(np.asarray(achieved) - np.asarray(desired))[..., 0] < 0.4
        return np.where(near, self.rewards[1], self.rewards[0])

    def _observation(self):
        noise = self.np_random.normal(0, 0.1, 1).clip(-1, 1)
        seen = np.concatenate([noise, self.place]).astype(np.float32)
        return {"observation": seen, "achieved_goal": self.place.copy(), "desired_goal": self.goal.copy()}


def make(name: str, steps: int = 0, **settings):
    """A model with tiny networks, trained for a few steps with hindsight."""
    discrete = name == "DQN"
    model = getattr(baselines, name)(
        "MultiInputPolicy",
        Corridor(discrete, settings.pop("rewards", (-1.0, 0.0))),
        replay_buffer_class=baselines.HerReplayBuffer,
        policy_kwargs={"net_arch": [32, 32]},
        learning_starts=100,
        buffer_size=5_000,
        learning_rate=3e-3,
        batch_size=64,
        gamma=0.9,
        seed=0,
        device="cpu",
        **settings,
    )
    if steps:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.learn(steps)
    return model


@pytest.fixture(scope="module")
def data() -> sgm.Experience:
    return sgm.collect(Corridor(), 400, seed=0, progress=False)


@pytest.fixture(scope="module", params=["SAC", "TD3", "DDPG", "DQN"])
def model(request):
    special = {
        "SAC": {"ent_coef": 0.01},
        "DQN": {"exploration_fraction": 0.5, "target_update_interval": 100, "train_freq": 1},
    }.get(request.param, {})
    return make(request.param, 600, **special)


def test_a_trained_model_gives_a_controller_and_a_distance_for_an_agent(model, data, tmp_path: Path):
    controller = sgm.controllers.from_sb3(model, data=data)
    distance = sgm.distances.from_sb3(model, data=data)
    actions = controller(data.observations[:7], data.goals[10:17])
    assert actions.shape == ((7,) if isinstance(model, baselines.DQN) else (7, 1))
    for row in range(7):  # as the model itself acts
        seen = {
            "observation": data.observations[row],
            "achieved_goal": data.goals[row],
            "desired_goal": data.goals[10 + row],
        }
        np.testing.assert_allclose(model.predict(seen, deterministic=True)[0], actions[row], atol=1e-5)
    starts, goals = distance.embed(data.observations[:50]), distance.embed_goal(data.goals[100:130])
    table = distance(starts, goals)
    assert table.shape == (50, 30) and table.min() >= 1 and table.max() <= distance.far
    np.testing.assert_allclose(distance.pairs(starts[:30], goals), np.diagonal(table), atol=1e-4)
    # A goal is the observation that achieves it, for the distance.
    np.testing.assert_allclose(distance(starts, distance.embed(data.observations[100:130])), table, atol=1e-4)
    # Nearer goals are nearer: it has learned something in a thousand steps.
    gaps = np.abs(data.goals[:50] - data.goals[100:130].T)
    assert np.corrcoef(gaps.ravel(), table.ravel())[0, 1] > 0.5
    assert np.isfinite(distance.noise) and 1 < distance.far <= 1 + np.log(0.05) / np.log(0.9)

    memory = sgm.SparseGraphicalMemory(distance, tau_a=2.0, tau_p=None, max_dist=6.0, k=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sgm.errors.MemoryWarning)
        memory.extend(data[::4])
    agent = sgm.Navigator(memory, controller, arrival="distance", cutoff=2.0)
    agent.save(tmp_path / "agent")
    back = sgm.Navigator.load(tmp_path / "agent")
    results = [sgm.evaluate(who, Corridor(isinstance(model, baselines.DQN)), 10, seed=0) for who in (agent, back)]
    np.testing.assert_array_equal(results[0].steps, results[1].steps)
    again = back.memory.distance
    assert again.fingerprint == distance.fingerprint and again.noise == distance.noise and again.far == distance.far
    np.testing.assert_array_equal(again(starts, goals), table)
    np.testing.assert_array_equal(
        back.controller(data.observations, data.goals), controller(data.observations, data.goals)
    )


class Known(torch.nn.Module):
    """A critic that knows: half a unit a step, the value of that many steps; the second one is more pessimistic."""

    def __init__(self, returns: Returns) -> None:
        super().__init__()
        self.returns = returns

    def forward(self, seen, actions):
        gap = (seen["achieved_goal"] - seen["desired_goal"]).abs()
        values = [torch.tensor([[self.returns.value(float(2 * more * g))] for g in gap]) for more in (1.0, 1.5)]
        return tuple(values)


@pytest.mark.parametrize(
    "returns",
    [
        Returns(0.9),
        Returns(0.9, -1.0, -1.0),
        Returns(0.95, 0.0, 1.0),
        Returns(0.95, 0.0, 1.0, ends=False),
        Returns(1.0, -1.0, 0.0),
    ],
)
def test_known_critics_give_exact_steps(returns):
    model = make("SAC")
    networks = GoalPolicy.of(model, [1], None)
    networks.policy.critic = Known(returns)
    places = np.array([[0.0, 0.5], [0.0, 1.0], [0.0, 4.0]], np.float32)
    wanted = np.array([[1.5], [3.0], [0.5]], np.float32)
    gaps = 2 * np.abs(places[:, 1:] - wanted.T)
    for aggregate, expected in (("max", 1.5 * gaps), ("min", gaps)):
        distance = SB3Distance(networks, returns, aggregate=aggregate, far=8.0)
        table = distance(distance.embed(places), distance.embed_goal(wanted))
        np.testing.assert_allclose(table, np.clip(expected, 1, 8), rtol=1e-3)
    sums = Returns(0.9, -1.0, -1.0)
    assert sums.value(3) == pytest.approx(-(1 - 0.9**3) / (1 - 0.9))  # −1 for each of three steps
    assert Returns(0.9).value(3) == pytest.approx(-1.9)  # the step that arrives costs nothing
    assert Returns(0.9, 0.0, 1.0).value(3) == pytest.approx(0.81)
    assert Returns(0.9, 0.0, 1.0, ends=False).value(3) == pytest.approx(8.1)


def test_steps_that_critics_add_to_every_distance_are_measured_and_taken_off(data, tmp_path: Path):
    class Late(Known):
        def forward(self, seen, actions):
            gap = (seen["achieved_goal"] - seen["desired_goal"]).abs()
            return (torch.tensor([[self.returns.value(float(2 * g + 1 + 3))] for g in gap]),)

    returns = Returns(0.9)
    networks = GoalPolicy.of(make("SAC"), [1], None)
    trained, networks.policy.critic = networks.policy.critic, Late(returns)
    distance = SB3Distance(networks, returns)
    starts = distance.embed(np.array([[0.0, 0.5]], np.float32))
    goals = distance.embed_goal(np.array([[0.5], [1.5], [5.0]], np.float32))
    np.testing.assert_allclose(distance(starts, goals), [[4, 6, 13]], rtol=1e-3)
    distance.measure(data)
    assert distance.offset == pytest.approx(3, abs=1e-3) and distance.far == pytest.approx(11, abs=1.0)
    np.testing.assert_allclose(distance(starts, goals), [[1, 3, min(10, distance.far)]], rtol=1e-3)
    networks.policy.critic = trained
    distance.save(tmp_path / "d.safetensors")
    assert SB3Distance.load(tmp_path / "d.safetensors").offset == distance.offset


def test_what_is_achieved_is_seen_from_data_from_the_replay_buffer_or_told(data):
    fresh = make("SAC")
    fresh.replay_buffer = None
    with pytest.raises(sgm.InputError, match=r"shape \(2,\) and goals \(1,\).*give data="):
        sgm.controllers.from_sb3(fresh)
    with pytest.raises(sgm.InputError, match=r"achieved is \[5\]: expected 1 columns of observations, 0 to 1"):
        sgm.controllers.from_sb3(fresh, achieved=[5])
    by_data = sgm.controllers.from_sb3(fresh, data=data)
    by_hand = sgm.controllers.from_sb3(fresh, achieved=[1])
    by_function = sgm.controllers.from_sb3(fresh, achieved=lambda seen: seen[:, 1:])
    assert by_data.networks.columns.tolist() == by_hand.networks.columns.tolist() == [1]
    expected = by_data(data.observations, data.goals)
    for other in (by_hand, by_function):
        np.testing.assert_array_equal(other(data.observations, data.goals), expected)
    by_buffer = sgm.controllers.from_sb3(make("SAC", 60))
    assert by_buffer.networks.columns.tolist() == [1]


def test_a_function_of_the_users_own_works_but_is_asked_for_again(data, tmp_path: Path):
    model = make("SAC")
    given = {"achieved": lambda seen: seen[:, 1:]}
    distance, controller = sgm.distances.from_sb3(model, **given), sgm.controllers.from_sb3(model, **given)
    by_columns = sgm.distances.from_sb3(model, achieved=[1])
    starts, goals = data.observations[:5], data.goals[5:9]
    table = distance(distance.embed(starts), distance.embed_goal(goals))
    np.testing.assert_array_equal(table, by_columns(by_columns.embed(starts), by_columns.embed_goal(goals)))
    assert not controller.can_be_saved
    with pytest.raises(sgm.InputError, match="cannot be kept"):
        controller.save(tmp_path / "c.safetensors")
    memory = sgm.SparseGraphicalMemory(distance, tau_a=0.5, tau_p=None, max_dist=30.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sgm.errors.MemoryWarning)
        memory.extend(data[:20])
    sgm.Navigator(memory, controller).save(tmp_path / "agent")
    with pytest.raises(sgm.InputError, match="does not hold the agent's controller"):
        sgm.Navigator.load(tmp_path / "agent")
    sgm.Navigator.load(tmp_path / "agent", controller=controller, memory_distance=distance)


def test_training_on_leaves_a_distance_as_it_is(data):
    model = make("SAC", 120)
    distance = sgm.distances.from_sb3(model, data=data)
    before = distance.fingerprint
    model.learn(20, reset_num_timesteps=False)
    assert distance.fingerprint == before != sgm.distances.from_sb3(model, data=data).fingerprint


def test_goals_that_are_images_go_through_with_their_channels_last():
    class Images(Corridor):
        def __init__(self) -> None:
            super().__init__(discrete=True)
            image = spaces.Box(0, 255, (36, 36, 3), np.uint8)
            self.observation_space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), image))

        def _observation(self):
            def draw(place):
                image = np.zeros((36, 36, 3), np.uint8)
                image[:, : 1 + int(6 * place.item())] = 255
                return image

            here = draw(self.place)
            return {"observation": here, "achieved_goal": here, "desired_goal": draw(self.goal)}

    model = baselines.DQN("MultiInputPolicy", Images(), buffer_size=10, seed=0, device="cpu")
    controller, distance = sgm.controllers.from_sb3(model), sgm.distances.from_sb3(model, far=50.0)
    env = Images()
    seen = [env.reset(seed=seed)[0] for seed in range(4)]
    here, there = (np.stack([entry[name] for entry in seen]) for name in ("observation", "desired_goal"))
    assert controller(here, there).tolist() == [int(model.predict(entry, deterministic=True)[0]) for entry in seen]
    assert distance(distance.embed(here), distance.embed_goal(there)).shape == (4, 4)


def test_what_tells_no_steps_is_refused(data):
    with pytest.raises(sgm.InputError, match="rewards such as 1: expected -1 for a step and 0 on arrival"):
        sgm.distances.from_sb3(make("SAC", 80, rewards=(0.0, 1.0)), data=data)
    sgm.distances.from_sb3(make("SAC", 80, rewards=(0.0, 1.0)), data=data, step_reward=0.0, arrival_reward=1.0)
    with pytest.raises(sgm.InputError, match="make arriving worth more"):
        Returns(0.9, 0.0, 0.0)
    with pytest.raises(sgm.InputError, match="a discount under 1"):
        Returns(1.0, 0.0, 1.0)
    with pytest.raises(sgm.InputError, match="expected a trained model"):
        sgm.controllers.from_sb3(data)
    plain = baselines.PPO("MlpPolicy", "CartPole-v1", device="cpu")
    with pytest.raises(sgm.InputError, match="expected Dict observations"):
        sgm.controllers.from_sb3(plain)
    acting = baselines.PPO("MultiInputPolicy", Corridor(), device="cpu")
    assert sgm.controllers.from_sb3(acting, achieved=[1])(data.observations, data.goals).shape == (len(data), 1)
    with pytest.raises(sgm.InputError, match="no critic whose values are steps: expected one of SAC"):
        sgm.distances.from_sb3(acting, achieved=[1])
    distance = sgm.distances.from_sb3(make("SAC"), achieved=[1])
    with pytest.raises(sgm.InputError, match=r"observations are float32 of shape \(3, 7\): expected numbers \(n, 2\)"):
        distance.embed(np.zeros((3, 7), np.float32))
    with pytest.raises(sgm.InputError, match=r"starts has shape \(3, 7\): expected embeddings \(n, 2\)"):
        distance(np.zeros((3, 7)), np.zeros((1, 2)))
    with pytest.raises(sgm.InputError, match="3 observations and 2 targets"):
        sgm.controllers.from_sb3(make("SAC"), achieved=[1])(np.zeros((3, 2)), np.zeros((2, 1)))


def test_the_device_may_be_left_to_the_machine_and_one_that_is_not_here_is_refused(data):
    model = make("SAC")
    for make_one in (sgm.controllers.from_sb3, sgm.distances.from_sb3):
        made = make_one(model, achieved=[1], device="auto")
        assert made.networks.policy.device.type == resolve_device("auto").type
        with pytest.raises(sgm.InputError, match="device is 'cuda:99', which is not here: expected 'auto', 'cpu'"):
            make_one(model, achieved=[1], device="cuda:99")
    controller = sgm.controllers.from_sb3(model, achieved=[1], device="auto")
    expected = sgm.controllers.from_sb3(model, achieved=[1])(data.observations, data.goals)
    np.testing.assert_allclose(controller(data.observations, data.goals), expected, atol=1e-5)


def test_a_file_of_anything_else_is_refused_and_the_extra_is_named(tmp_path: Path, monkeypatch):
    controller = sgm.controllers.from_sb3(make("TD3"), achieved=[1])
    controller.save(tmp_path / "c.safetensors")
    with pytest.raises(sgm.StoreError, match="expected 'sgm-sb3-distance-1'"):
        SB3Distance.load(tmp_path / "c.safetensors")
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(sgm.SGMError, match=r"needs stable_baselines3: pip install 'sparse-graphical-memory\[sb3\]'"):
        type(controller).load(tmp_path / "c.safetensors")
