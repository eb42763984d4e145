"""Any Gymnasium environment goes through the door as it comes: single, vector, native; all modes, all action spaces."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

import sgm
from sgm.navigation import Driver, Stream

LENGTH, LIMIT = 12, 40
MODES = list(AutoresetMode)
SPACES = {
    "discrete": spaces.Discrete(3, start=5),
    "many": spaces.MultiDiscrete([3, 2], start=[1, 0]),
    "box": spaces.Box(0.5, 1.5, (1,), np.float32),
}


class Walk(gymnasium.Env):
    """A corridor of whole places; an action that is not in its space, or a step after the end, is an error."""

    def __init__(self, actions="discrete", success="terminated", limit=LIMIT):
        self.observation_space = spaces.Dict(
            {name: spaces.Box(0, LENGTH, (1,), np.float32) for name in ("observation", "achieved_goal", "desired_goal")}
        )
        self.action_space, self.kind, self.success, self.limit = SPACES[actions], actions, success, limit
        self.over, self.steps_taken = True, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = map(int, self.np_random.integers(LENGTH, size=2))
        self.elapsed, self.over = 0, False
        return self._see(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        assert not self.over, "stepped after the end"
        move = {"discrete": lambda: action - 6, "many": lambda: action[0] - 2, "box": lambda: 2 * (action[0] - 1)}
        self.place = int(np.clip(self.place + round(float(move[self.kind]())), 0, LENGTH - 1))
        self.elapsed += 1
        there = self.place == self.goal
        self.over = (there and self.success in ("terminated", "both")) or self.elapsed >= self.limit
        info = {"is_success": there} if self.success in ("info", "both") else {}
        return self._see(), 0.0, there and self.success in ("terminated", "both"), self.elapsed >= self.limit, info

    def _see(self):
        here = np.array([self.place], np.float32)
        return {"observation": here, "achieved_goal": here, "desired_goal": np.array([self.goal], np.float32)}


def controller(kind):
    """One place towards the target a step."""

    def act(observations, targets):
        sign = np.sign(targets[:, 0] - observations[:, 0])
        if kind == "discrete":
            return sign.astype(np.int64) + 6
        if kind == "many":
            return np.stack([sign.astype(np.int64) + 2, np.zeros(len(sign), np.int64)], axis=1)
        return (1 + sign / 2)[:, None].astype(np.float32)

    return act


class Line:
    """Exact steps along the corridor."""

    def embed(self, observations):
        return np.asarray(observations, np.float32).reshape(-1, 1)

    def __call__(self, starts, goals):
        return np.abs(starts[:, 0][:, None] - goals[:, 0])


def corridor():
    memory = sgm.SparseGraphicalMemory(Line(), criterion="none", max_dist=1.5, keep_observations=True)
    memory.extend(np.arange(LENGTH, dtype=np.float32)[:, None])
    return memory


def environment(shape, mode=AutoresetMode.DISABLED, **settings):
    if shape == "single":
        return Walk(**settings)
    kind = SyncVectorEnv if shape == "sync" else AsyncVectorEnv
    return kind([lambda: Walk(**settings)] * 3, autoreset_mode=mode)


@pytest.fixture(scope="module")
def expected():
    """Success and steps of seven episodes, one environment at a time."""
    return sgm.evaluate(sgm.Navigator(corridor(), controller("discrete")), Walk(), 7, seed=3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ["single", "sync", "async"])
def test_every_kind_and_mode_gives_the_same_episodes(shape, mode, expected):
    if shape == "single" and mode != AutoresetMode.DISABLED:
        pytest.skip("a single environment has no mode")
    env = environment(shape, mode)
    result = sgm.evaluate(sgm.Navigator(corridor(), controller("discrete")), env, 7, seed=3)
    env.close()
    assert result.episodes == 7 and result.successes.all()
    assert result.steps.tolist() == expected.steps.tolist()


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("mode", MODES)
def test_every_action_space_gets_valid_actions_only(kind, mode):
    env = environment("sync", mode, actions=kind)
    agent = sgm.Navigator(corridor(), controller(kind))
    assert sgm.evaluate(agent, env, 5, seed=0).successes.all()
    report = sgm.cleanup(agent, env, 200, progress=False)
    assert report.steps == 200 and report.arrived > 5 and report.removed == 0
    data = sgm.collect(env, 100, seed=1, progress=False)
    assert all(env.single_action_space.contains(action) for action in data.actions)


def test_fewer_episodes_than_environments():
    result = sgm.evaluate(sgm.Navigator(corridor(), controller("discrete")), environment("sync"), 2, seed=0)
    assert result.episodes == 2 and result.successes.all()
    with pytest.raises(sgm.InputError, match="episodes is 0"):
        sgm.evaluate(sgm.Navigator(corridor(), controller("discrete")), environment("sync"), 0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("success", ["info", "both"])
def test_success_is_what_info_says(success, mode):
    env = environment("sync", mode, success=success)
    result = sgm.evaluate(controller("discrete"), env, 6, seed=0)
    assert result.successes.all() and (result.steps < LIMIT).all()


def test_success_may_be_said_by_a_function_or_a_name():
    def halfway(observation, info):
        return observation["achieved_goal"][:, 0] >= LENGTH // 2

    goes_right = lambda observations, targets: np.full(len(observations), 7)  # noqa: E731
    assert sgm.evaluate(goes_right, environment("sync", success="none"), 6, success=halfway).successes.all()
    assert sgm.evaluate(controller("discrete"), environment("sync", success="info"), 6, success="is_success").rate == 1
    with pytest.raises(sgm.InputError, match="no such entry in any step"):
        sgm.evaluate(controller("discrete"), environment("sync"), 6, success="won")


def test_an_environment_that_never_tells_of_success_is_warned_about():
    with pytest.warns(UserWarning, match="none of 6 episodes succeeded, and it is unknown whether"):
        sgm.evaluate(controller("discrete"), environment("sync", success="none", limit=5), 6)


class Native(VectorEnv):
    """A native vector environment that resets itself and knows no reset_mask."""

    def __init__(self, mode, number=3, **settings):
        self.inner = SyncVectorEnv([lambda: Walk(**settings)] * number, autoreset_mode=mode)
        self.num_envs, self.metadata = number, {"autoreset_mode": mode}
        self.single_observation_space = self.inner.single_observation_space
        self.single_action_space, self.resets = self.inner.single_action_space, 0

    def reset(self, *, seed=None, options=None):
        assert not options and (seed is None or isinstance(seed, int))
        self.resets += 1
        return self.inner.reset(seed=seed)

    def step(self, actions):
        return self.inner.step(actions)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_environment_that_resets_itself_is_never_reset_in_part(mode):
    env = Native(mode)
    agent = sgm.Navigator(corridor(), controller("discrete"))
    result = sgm.evaluate(agent, env, 10, seed=0)
    assert result.episodes == 10 and result.successes.all() and env.resets == 1
    assert sgm.cleanup(agent, env, 150, progress=False).arrived > 5
    data = sgm.collect(env, 90, progress=False)
    assert len(data) == 90 + data.number_of_episodes


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_nothing_is_planned_from_the_end_of_the_episode_before(mode):
    memory = corridor()
    agent = sgm.Navigator(memory, controller("discrete"), max_steps=3)
    report = sgm.cleanup(agent, Native(mode, limit=7), 1_500, progress=False)
    assert report.removed == 0 and report.arrived > 20


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_an_episode_that_is_counted_before_it_ends_is_waited_for(mode):
    result = sgm.evaluate(controller("discrete"), Native(mode, success="info", limit=15), 7)
    assert result.successes.all() and (result.steps < 15).all()
    assert (sgm.evaluate(controller("discrete"), Native(mode, limit=9), 7, max_steps=1).steps == 1).all()


def test_a_vector_without_shared_memory_is_not_told_to_begin():
    env = AsyncVectorEnv([lambda: Walk(limit=5)] * 2, shared_memory=False, autoreset_mode=AutoresetMode.NEXT_STEP)
    data = sgm.collect(env, 60, progress=False)
    env.close()
    assert all((np.abs(np.diff(episode.observations[:, 0])) <= 1).all() for episode in data)


def test_a_goal_that_is_reached_at_once_in_the_only_environment():
    memory = sgm.SparseGraphicalMemory(Line(), criterion="none", max_dist=1.5, keep_observations=True)
    memory.extend(np.full((1, 1), 3.0, np.float32))
    assert sgm.cleanup(sgm.Navigator(memory, controller("discrete")), Fixed(3, 9), 20, progress=False).arrived > 0


class Rare(Walk):
    """Says "success" only where there is one; ends without it, too."""

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        ends = terminated or self.elapsed >= 6
        self.over = ends
        return observation, reward, ends, truncated, {"success": True} if terminated else {}


def test_an_end_is_no_success_where_info_tells_of_success():
    result = sgm.evaluate(controller("discrete"), Rare(), 12, seed=0)
    assert 0 < result.successes.sum() < 12
    assert (result.steps[~result.successes] == 6).all()


@pytest.mark.parametrize("said", ["no", float("nan"), [True, False], {"a": 1}])
def test_success_that_is_no_truth_value_is_refused(said):
    class Odd(Walk):
        def step(self, action):
            *rest, _ = super().step(action)
            return *rest, {"success": said}

    with pytest.raises(sgm.InputError, match="expected \\(1,\\) True or False"):
        sgm.evaluate(controller("discrete"), Odd(), 1)
    assert len(sgm.collect(Odd(), 5, progress=False)) >= 6


def test_success_of_a_function_is_one_for_each():
    with pytest.raises(sgm.InputError, match="one for each sub-environment"):
        sgm.evaluate(controller("discrete"), environment("sync"), 3, success=lambda observation, info: True)


@pytest.mark.parametrize(
    "act",
    [
        lambda o, t: np.full(len(o) + 1, 6),
        lambda o, t: np.full((len(o), 1), 6),
        lambda o, t: np.full(len(o), 6.5),
        lambda o, t: None,
        lambda o, t: 6,
    ],
)
def test_actions_that_do_not_fit_are_refused(act):
    with pytest.raises(sgm.InputError, match="expected"):
        sgm.evaluate(act, environment("sync"), 3)
    with pytest.raises(sgm.InputError, match="expected"):
        sgm.evaluate(sgm.Navigator(corridor(), act), environment("sync"), 3)


def test_tuples_lists_and_missing_entries_are_named():
    with pytest.raises(sgm.InputError, match="tuples"):
        sgm.collect(gymnasium.make_vec("Blackjack-v1", 2, vectorization_mode="sync"), 5)
    with pytest.raises(sgm.InputError, match="acts_on is 'camera': observations have observation"):
        sgm.evaluate(sgm.Navigator(corridor(), controller("discrete"), acts_on="camera"), Walk(), 1)
    agent = sgm.Navigator(corridor(), controller("discrete"))
    assert agent.act_many([[1.0], [2.0]], [[9.0], [9.0]]).tolist() == [7, 7]
    with pytest.raises(sgm.InputError, match="2 observations and 3 goals"):
        agent.act_many([[1.0], [2.0]], [[9.0]] * 3)
    with pytest.raises(sgm.InputError, match="expected a SparseGraphicalMemory"):
        sgm.Navigator(None, controller("discrete"))
    with pytest.raises(sgm.EmptyMemory):
        sgm.Navigator(sgm.SparseGraphicalMemory(Line()), controller("discrete"), router="ranked").act([1.0], [2.0])
    with pytest.raises(sgm.InputError, match="episodes is 2.5"):
        sgm.evaluate(agent, Walk(), 2.5)


# Collecting


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ["single", "sync"])
def test_experience_is_what_happened(shape, mode):
    env = environment(shape, mode, limit=9)
    data = sgm.collect(env, 60, seed=2, progress=False)
    assert len(data) == 60 + data.number_of_episodes
    for episode in data:
        moves = np.diff(episode.observations[:, 0])
        wanted = np.clip(episode.observations[:-1, 0] + episode.actions[:-1] - 6, 0, LENGTH - 1)
        assert (episode.observations[1:, 0] == wanted).all() and (np.abs(moves) <= 1).all()
        assert len(episode) <= 10
        assert (episode.achieved_goals == episode.observations).all()


def test_a_behaviour_acts_and_episodes_may_be_cut():
    right = lambda observation: np.full(len(observation["observation"]), 7)  # noqa: E731
    data = sgm.collect(environment("sync", success="info"), 30, behaviour=right, episode_steps=4, progress=False)
    assert (data.actions == 7).all() and {len(episode) for episode in data} <= {5, 3}
    held = sgm.collect(Walk(success="info"), 40, hold=5, progress=False).actions
    assert (held[:5] == held[0]).all()


@pytest.mark.parametrize(
    ("mix", "hold", "low", "high"), [(0.0, 3, 0.0, 0.0), (0.5, 1, 0.25, 0.42), (0.5, 4, 0.2, 0.45)]
)
def test_behaviour_and_random_actions_are_mixed_by_stretches(mix, hold, low, high):
    right = lambda observation: np.full(len(observation["observation"]), 7)  # noqa: E731
    env = environment("sync", success="info")
    data = sgm.collect(env, 1_200, behaviour=right, mix=mix, hold=hold, seed=4, progress=False)
    other = np.concatenate([part.actions[:-1] for part in data]) != 7
    assert low <= other.mean() <= high  # a third of the random actions are the behaviour's too
    for part in data:
        changes = np.flatnonzero(np.diff(part.actions[:-1])) + 1
        assert (changes % hold == 0).all()


def test_all_random_is_the_same_with_and_without_a_behaviour_to_mix():
    right = lambda observation: np.full(len(observation["observation"]), 7)  # noqa: E731
    one, two = (
        sgm.collect(Walk(), 60, hold=2, seed=3, progress=False, **more)
        for more in ({}, {"behaviour": right, "mix": 1.0})
    )
    assert (one.actions == two.actions).all() and (one.observations == two.observations).all()


@pytest.mark.parametrize("mode", MODES)
def test_rewards_and_positions_are_kept(mode):
    class Paid(Walk):
        def step(self, action):
            seen, _, *rest = super().step(action)
            return seen, 10.0 * self.place, *rest

    env = SyncVectorEnv([Paid] * 3, autoreset_mode=mode)
    data = sgm.collect(env, 120, position_key="achieved_goal", seed=1, progress=False)
    for part in data:
        assert (part.rewards[:-1] == 10 * part.observations[1:, 0]).all()
    assert (data.positions == data.achieved_goals).all()
    with pytest.raises(sgm.InputError, match="position_key is 'xy': observations have observation"):
        sgm.collect(Walk(), 5, position_key="xy", progress=False)


def test_experience_names_the_environment_it_comes_from():
    assert sgm.collect(gymnasium.make("CartPole-v1"), 5, progress=False).source == "gym:CartPole-v1"
    assert sgm.collect(Walk(), 5, progress=False).source == ""


def test_wrong_arguments_say_what_is_accepted():
    with pytest.raises(sgm.InputError, match="mix is 2: expected a share from 0 to 1"):
        sgm.collect(Walk(), 5, behaviour=lambda observation: observation, mix=2)
    with pytest.raises(sgm.InputError, match="mix is 0.5 without a behaviour"):
        sgm.collect(Walk(), 5, mix=0.5)
    with pytest.raises(sgm.InputError, match="steps is 0"):
        sgm.collect(Walk(), 0)
    with pytest.raises(sgm.InputError, match="key is 'image': observations have observation"):
        sgm.collect(Walk(), 5, key="image", progress=False)
    with pytest.raises(sgm.InputError, match="expected a Gymnasium environment"):
        Driver("PointMaze")
    plain = gymnasium.make("CartPole-v1")
    with pytest.raises(sgm.InputError, match="an array, and info has no goal .* expected a goal environment"):
        sgm.evaluate(lambda observations, targets: observations, plain, 2)
    assert sgm.collect(plain, 30, progress=False).achieved_goals is None


def test_a_stream_gives_transitions_and_leaves_out_resets():
    kept, ends = {}, {}
    for mode in MODES:
        stream = Stream(environment("sync", mode, limit=4))
        stream.begin(0)
        steps = [stream.step(np.full(3, 6)) for _ in range(12)]
        kept[mode] = int(sum(step.kept.sum() for step in steps))
        for step in steps:
            same = step.before["observation"][step.kept] == step.after["observation"][step.kept]
            assert same.all()  # action 6 stays, also in the last step of an episode
        ends[mode] = int(sum((step.ended & step.kept).sum() for step in steps))
    assert kept[AutoresetMode.SAME_STEP] == kept[AutoresetMode.DISABLED] == 36 > kept[AutoresetMode.NEXT_STEP]
    assert min(ends.values()) > 3


# Failures say why


def test_reasons_tell_the_truth():
    memory = corridor()
    for u, v in ((5, 6), (6, 5)):
        memory.record(u, v, False)
    cut = sgm.evaluate(sgm.Navigator(memory, controller("discrete")), Fixed(1, 10), 1)
    assert cut.failures.tolist() == ["start not connected to goal"] or cut.successes.all()
    stuck = sgm.evaluate(sgm.Navigator(corridor(), lambda o, t: np.full(len(o), 6), max_steps=4), Fixed(3, 9), 1)
    assert stuck.failures.tolist() == ["waypoint not reached"] and stuck.stuck_at.tolist() == [4]
    short = sgm.evaluate(sgm.Navigator(corridor(), controller("discrete")), Fixed(0, 11, limit=5), 1)
    assert short.failures.tolist() == ["time"]
    few = sgm.SparseGraphicalMemory(Line(), criterion="none", max_dist=1.5, keep_observations=True)
    few.extend(np.arange(8, LENGTH, dtype=np.float32)[:, None])
    far = sgm.evaluate(sgm.Navigator(few, lambda o, t: np.full(len(o), 6)), Fixed(0, 11), 1)
    assert far.failures.tolist() == ["no node near the start"]
    assert "no node near the start" in repr(far)


class Fixed(Walk):
    """From one given place to another."""

    def __init__(self, start, goal, limit=LIMIT):
        super().__init__(limit=limit)
        self.ends = start, goal

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = self.ends
        return self._see(), {}


def test_a_robot_that_is_carried_away_later_did_not_start_far_from_nodes():
    result = sgm.evaluate(sgm.Navigator(corridor(), controller("discrete"), max_steps=3), Blown(2, 9), 1)
    assert not result.successes.any() and "no node near the start" not in result.failures


class Blown(Fixed):
    """After two steps the robot is far from every node for the rest of the episode."""

    def _see(self):
        seen = super()._see()
        return {**seen, "observation": seen["observation"] + 50} if self.elapsed > 2 else seen


def test_a_robot_that_gets_on_and_then_fails_is_not_reported_as_cut_off():
    memory = corridor()
    for u, v in ((0, 1), (1, 0)):  # node 0, where the robot starts, leads nowhere: the plan begins at node 1
        memory.record(u, v, False)

    def until_five(observations, targets):
        return np.where(observations[:, 0] < 5, 7, 6)

    result = sgm.evaluate(sgm.Navigator(memory, until_five, max_steps=4), Fixed(0, 11), 1)
    assert result.failures.tolist() == ["waypoint not reached"] and result.stuck_at[0] > 5


def test_what_is_no_agent_is_refused_in_words():
    for wrong, message in (
        (lambda: sgm.evaluate("x", Fixed(0, 1)), "expected a Navigator, or a controller"),
        (lambda: sgm.cleanup(controller("discrete"), Fixed(0, 1), 10), "expected a Navigator"),
        (lambda: sgm.cleanup(sgm.Navigator(corridor(), len), Fixed(0, 1), 10, episode_steps=0), "episode_steps is 0"),
        (lambda: sgm.Navigator(corridor(), len, max_steps="x"), "max_steps is 'x'"),
        (lambda: sgm.Navigator(corridor(), len, clean="no"), "clean is 'no'"),
        (lambda: sgm.Navigator(corridor(), len, localiser="odometry"), "needs 'radius'"),
    ):
        with pytest.raises(sgm.InputError, match=message):
            wrong()


def test_the_plain_router_goes_by_what_a_filter_believes():
    agent = sgm.Navigator(corridor(), controller("discrete"), localiser="filter", cutoff=0.5)
    agent.act([3.0], [9.0])
    agent.localiser.beliefs[0] = 1e-6
    agent.localiser.beliefs[0, 7] = 1.0
    start, goal = agent.router.plan(np.array([0]), np.array([[9.0]]), None)
    assert (start.tolist(), goal.tolist()) == ([7], [9])


def test_a_changed_goal_is_planned_for_at_once():
    agent = sgm.Navigator(corridor(), controller("discrete"))
    assert agent.act([3.0], [9.0]) == 7 and agent.path(0).tolist() == [3, 4, 5, 6, 7, 8, 9]
    assert agent.act([4.0], [1.0]) == 5 and agent.goal_node[0] == 1 and agent.planned == [0]
    assert agent.act([3.0], [1.0]) == 5 and agent.planned == []


@pytest.mark.parametrize("localiser", ["nearest", "filter"])
def test_a_memory_may_grow_while_it_is_used(localiser):
    memory = sgm.SparseGraphicalMemory(Line(), criterion="none", max_dist=1.5, keep_observations=True)
    half, rest = np.split(np.arange(LENGTH, dtype=np.float32)[:, None], 2)
    memory.extend(half, attributes={"achieved_goal": half})
    agent = sgm.Navigator(memory, controller("discrete"), localiser=localiser, cutoff=0.5)
    assert sgm.evaluate(agent, Fixed(0, 4), 1).successes.all()
    memory.extend(rest, attributes={"achieved_goal": rest})
    assert sgm.evaluate(agent, Fixed(2, 11), 1).successes.all()
    assert agent.goal_node[0] == 11
    memory.extend(np.full((1, 1), 20.0, np.float32))
    with pytest.raises(sgm.InputError, match="1 nodes have no 'achieved_goal'"):
        agent.locate([[3.0]])


def test_cleanup_of_a_memory_that_has_grown():
    memory = sgm.SparseGraphicalMemory(Line(), criterion="none", max_dist=1.5)
    places = np.arange(LENGTH, dtype=np.float32)[:, None]
    memory.extend(places[:3], attributes={"achieved_goal": places[:3]})
    agent = sgm.Navigator(memory, controller("discrete"))
    memory.extend(places[3:], attributes={"achieved_goal": places[3:]})
    assert sgm.cleanup(agent, environment("sync"), 200, goals="active", progress=False).arrived > 0
