"""The agent for pictures, in a corridor that can be looked at: what is seen is where one is."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import sgm
from sgm.navigation import BayesFilter, Cleaner, Navigator, NearestNode, RankedGoals, WithinSteps, evaluate

LENGTH = 30


class LineDistance:
    """Steps between places of a corridor; places a and b of `alike` look the same."""

    def __init__(self, alike: tuple[int, int] | None = None) -> None:
        self.alike = alike

    def embed(self, observations):
        places = np.asarray(observations, np.float32).reshape(-1, 1)
        if self.alike is not None:
            places = np.where(places == self.alike[1], np.float32(self.alike[0]), places)
        return places

    def __call__(self, starts, goals):
        return np.abs(starts[:, 0][:, None] - goals[:, 0])


class Corridor(gymnasium.vector.VectorEnv):
    """Robots in a corridor: action 0 stays, 1 goes right, 2 left; `wall` cannot be passed to the right."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    idle_action = -1

    def __init__(self, number: int, wall: int | None = None, limit: int = 60, dies_at: int | None = None) -> None:
        self.num_envs, self.wall, self.limit, self.dies_at = number, wall, limit, dies_at
        self.single_action_space = spaces.Discrete(3)
        self.place, self.goal = np.zeros(number, int), np.zeros(number, int)
        self.elapsed = np.zeros(number, int)
        self.clock = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        options = options or {}
        mask = np.asarray(options.get("reset_mask", np.ones(self.num_envs)), bool)
        draw = self.np_random.integers(LENGTH, size=(2, self.num_envs))
        starts, goals = options.get("starts", draw[0]), options.get("goals", draw[1])
        self.place[mask], self.elapsed[mask] = np.asarray(starts)[mask], 0
        self.goal[mask] = -1 if goals is None else np.asarray(goals)[mask]
        return self._observation(), {"pose": self.place.copy()}

    def step(self, actions):
        moving = actions >= 0
        move = np.where(actions == 1, 1, np.where(actions == 2, -1, 0)) * moving
        if self.wall is not None:
            move = np.where((self.place == self.wall) & (move > 0), 0, move)
        self.place = np.clip(self.place + move, 0, LENGTH - 1)
        self.elapsed += moving
        self.clock += 1
        lost = np.zeros(self.num_envs, bool)
        if self.clock == self.dies_at:
            lost[0] = True
        done = self.place == self.goal
        infos = {"pose": self.place.copy(), "lost": lost}
        return self._observation(), done.astype(float), done, (self.elapsed >= self.limit) | lost, infos

    def _observation(self):
        seen = self.place[:, None].astype(np.uint8)
        return {"observation": seen, "achieved_goal": seen, "desired_goal": self.goal[:, None].astype(np.uint8)}


class Tasks:
    def __init__(self, starts, goals):
        self.starts, self.goals = np.array(starts), np.array(goals)


def step_towards(observations, targets):
    return np.sign(targets[:, 0].astype(int) - observations[:, 0].astype(int)) % 3


def corridor_memory(distance=None, episode=None, **settings):
    memory = sgm.SparseGraphicalMemory(
        distance or LineDistance(),
        **{"criterion": "none", "max_dist": 1.5, "k": None, "keep_observations": True, **settings},
    )
    memory.extend(np.arange(LENGTH, dtype=np.uint8)[:, None], episode=episode)
    return memory


def agent(memory, ahead=2, cutoff=0.5, **options):
    parts = {"arrival": WithinSteps(cutoff), "router": RankedGoals(ahead=ahead)}
    return Navigator(memory, step_towards, **{"max_steps": 4, **parts, **options})


def test_more_tasks_than_environments_all_solved():
    env = Corridor(3)
    random = np.random.default_rng(0)
    starts, goals = random.permuted(np.tile(np.arange(LENGTH), (2, 1)), axis=1)[:, :10]
    result = evaluate(agent(corridor_memory()), env, tasks=Tasks(starts, goals), traces=2)
    assert result.successes.all() and (result.steps == np.maximum(1, np.abs(starts - goals))).all()
    assert result.traces[0].plans and result.traces[0].success
    assert int(result.traces[0].observations[0]) == starts[0]


def test_a_lost_simulator_is_a_lost_episode():
    result = evaluate(agent(corridor_memory()), Corridor(2, dies_at=3), tasks=Tasks([0, 0, 5], [20, 10, 9]))
    assert result.successes.tolist() == [False, True, True]
    assert result.reasons["simulator lost"] == 1


def test_evaluation_refuses_an_agent_that_cleans():
    with pytest.raises(sgm.InputError, match="cleans"):
        evaluate(agent(corridor_memory(), clean=True), Corridor(1), tasks=Tasks([0], [5]))


def test_waypoints_ahead_are_skipped():
    memory = corridor_memory()
    navigator = agent(memory, ahead=3)
    navigator.act_many(np.array([[5]], np.uint8), np.array([[12]], np.uint8))
    assert navigator.path(0).tolist() == list(range(5, 13))
    navigator.act_many(np.array([[8]], np.uint8), np.array([[12]], np.uint8))  # three waypoints in one step
    assert navigator.waypoint[0] == 9
    far = agent(memory, ahead=1)
    far.act_many(np.array([[5]], np.uint8), np.array([[12]], np.uint8))
    far.act_many(np.array([[8]], np.uint8), np.array([[12]], np.uint8))  # too far ahead to be looked at
    assert far.waypoint[0] == 6


def test_a_failed_edge_costs_more_in_the_episode_and_not_in_the_memory():
    memory = corridor_memory(max_dist=2.5)
    env = Corridor(1, wall=10, limit=40)
    navigator = agent(memory, removals="none")
    evaluate(navigator, env, tasks=Tasks([8], [15]))
    assert navigator.router._raised[0] and memory.records == 0


def test_a_wrong_goal_node_is_not_tried_again():
    # The goal looks like place 20 but is at 4: the nearest node is wrong, and the next one is tried after it.
    memory = corridor_memory(LineDistance(alike=(20, 4)), max_dist=1.5)
    navigator = agent(memory)
    result = evaluate(navigator, Corridor(1, limit=80), tasks=Tasks([15], [4]))
    assert 20 in navigator.router._ruled_out[0] or result.successes[0]


@pytest.mark.parametrize("blame", ["last", "doubtful"])
def test_who_is_blamed(blame):
    # The path goes 0, 1, 2, 3 …; 2 → 3 has never been tried, the others have proven themselves. The robot stands
    # before a wall behind 3: what fails is 3 → 4.
    memory = corridor_memory(policy=sgm.Belief(threshold=0.0))
    for node in range(LENGTH - 1):
        if node != 2:
            memory.record_many([node] * 3, [node + 1] * 3, np.ones(3, bool))
    navigator = agent(memory, blame=blame, clean=True, ahead=0)
    env = Corridor(1, wall=3)
    seen, _ = env.reset(options={"starts": np.array([0]), "goals": np.array([9])})
    while not navigator.blamed:
        action = navigator.act_many(seen["observation"], seen["desired_goal"])
        seen, *_ = env.step(action)
    assert navigator.blamed[0][1:] == ((3, 4) if blame == "last" else (2, 3))


def test_doubtful_blame_confirms_edges_only_after_a_few_more():
    memory = corridor_memory(policy=sgm.Belief(threshold=0.0))
    navigator = agent(memory, blame="doubtful", clean=True, ahead=0)
    for place in range(5):
        navigator.act_many(np.array([[place]], np.uint8), np.array([[9]], np.uint8))
    assert memory.evidence(0, 1).successes == 1 and memory.evidence(3, 4).successes == 0
    for place in range(5, 10):
        navigator.act_many(np.array([[place]], np.uint8), np.array([[9]], np.uint8))
    assert memory.evidence(8, 9).successes == 1  # arrived: nothing is left in doubt


@pytest.mark.parametrize("goals", ["random", "active"])
def test_cleanup_cuts_the_edges_through_a_wall(goals):
    memory = corridor_memory(policy="first-failure")
    navigator = agent(memory, clean=True, max_steps=3)
    cleaner = Cleaner(navigator, Corridor(4, wall=10), seed=0, options={"goals": None}, goals=goals, episode_steps=60)
    report = cleaner.run(3000)
    assert report.removed >= 1
    assert (10, 11) in {(int(u), int(v)) for u, v, _ in zip(*memory.removed(), strict=True)}


def test_time_tells_places_apart_that_look_alike():
    distance = LineDistance(alike=(5, 25))
    memory = corridor_memory(distance, episode=0)  # only time joins 24 and 25
    localiser = BayesFilter(sharpness=0.5, hops=1)
    agent(memory, localiser=localiser).reset(1)
    for place in (22, 23, 24, 25):
        localiser.see(np.array([[place]], np.uint8), np.array([True]))
    assert localiser.beliefs[0].argmax() == 25  # what is seen now fits 5 as well
    localiser.forget(np.array([True]))
    assert np.ptp(localiser.beliefs[0]) == 0
    assert localiser.beliefs[0].sum() == pytest.approx(1, abs=1e-4)


def test_a_memory_over_row_numbers_with_images_as_attributes_equals_a_memory_of_images():
    frames = np.arange(LENGTH, dtype=np.uint8)[:, None]
    distance = LineDistance()
    table = sgm.TableDistance(np.abs(np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))))
    by_number = sgm.SparseGraphicalMemory(table, criterion="none", max_dist=1.5, k=None)
    attributes = {"image": frames, "seen_as": distance.embed(frames)}
    by_number.extend(np.arange(LENGTH), attributes=attributes)
    tasks = Tasks([0, 20, 3], [12, 2, 29])
    localised = {"distance": distance, "localiser": NearestNode("seen_as"), "target": "image"}
    ours = evaluate(agent(by_number, **localised), Corridor(2), tasks=tasks)
    theirs = evaluate(agent(corridor_memory()), Corridor(2), tasks=tasks)
    assert ours.steps.tolist() == theirs.steps.tolist() and ours.successes.all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blame": "nobody"}, "blame"),
        ({"ahead": -1}, "ahead"),
        ({"max_steps": 0}, "max_steps"),
        ({"cutoff": -1}, "cutoff"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(sgm.InputError, match=message):
        agent(corridor_memory(), **options)


def test_bad_filter():
    with pytest.raises(sgm.InputError, match="sharpness"):
        BayesFilter(sharpness=0)
    with pytest.raises(sgm.InputError, match="leak"):
        BayesFilter(leak=0)
