"""The agent that looks only to know where it is, in a corridor with continuous places."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import sgm
from sgm.navigation import Cleaner, agents, evaluate, run_episodes

LENGTH = 20


class PictureDistance:
    """Steps between what is seen; the two of `alike` are taken for close to each other."""

    def __init__(self, alike: tuple[int, int] | None = None) -> None:
        self.alike = alike

    def embed(self, observations):
        return np.asarray(observations, np.float32).reshape(-1, 1)

    def __call__(self, starts, goals):
        steps = np.abs(starts[:, 0][:, None] - goals[:, 0])
        for one, other in (self.alike, self.alike[::-1]) if self.alike else ():
            steps[np.ix_(starts[:, 0] == one, goals[:, 0] == other)] = 0.5
        return steps


class Hall(gymnasium.vector.VectorEnv):
    """Robots that move by up to 0.5 a step; nobody passes `wall` in either direction."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    idle_action = np.nan

    def __init__(self, number: int, wall: float | None = None, limit: int = 120) -> None:
        self.num_envs, self.wall, self.limit = number, wall, limit
        self.place, self.goal = np.zeros(number), np.full(number, np.nan)
        self.elapsed = np.zeros(number, int)
        self.single_action_space = spaces.Box(-0.5, 0.5, (1,))
        self.looks = self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        options = options or {}
        mask = np.asarray(options.get("reset_mask", np.ones(self.num_envs)), bool)
        draw = self.np_random.uniform(0, LENGTH - 1, size=self.num_envs)
        self.place[mask] = np.asarray(options.get("starts", draw), float)[mask]
        goals = options.get("goals")
        self.goal[mask] = np.nan if goals is None else np.asarray(goals, float)[mask]
        self.elapsed[mask] = 0
        return self._observation(), {"pose": self.place[:, None].copy()}

    def step(self, actions):
        moving = ~np.isnan(actions[:, 0])
        to = np.clip(self.place + np.clip(np.nan_to_num(actions[:, 0]), -0.5, 0.5), 0, LENGTH - 1)
        if self.wall is not None:
            to = np.where((self.place < self.wall) != (to < self.wall), self.place, to)
        self.place = np.where(moving, to, self.place)
        self.elapsed += moving
        self.steps += int(moving.sum())
        done = np.abs(self.place - self.goal) < 0.4
        infos = {"pose": self.place[:, None].copy()}
        return self._observation(), done.astype(float), done, self.elapsed >= self.limit, infos

    def look(self, rows):
        self.looks += len(rows)
        return self.place[rows].round().astype(np.uint8)[:, None]

    def _observation(self):
        goals = np.nan_to_num(self.goal).round().astype(np.uint8)[:, None]
        return {"odometry": np.stack([self.place, np.zeros(self.num_envs)], axis=1), "desired_goal": goals}


class Tasks:
    def __init__(self, starts, goals):
        self.starts, self.goals = np.array(starts, float), np.array(goals, float)


def towards(odometry, places):
    return (places - odometry)[:, :1]


def hall_memory(distance=None, **settings):
    memory = sgm.SparseGraphicalMemory(
        distance or PictureDistance(),
        **{"criterion": "none", "max_dist": 1.5, "k": None, "policy": "first-failure", **settings},
    )
    memory.extend(np.arange(LENGTH, dtype=np.uint8)[:, None])
    return memory


PLACES = np.stack([np.arange(LENGTH, dtype=float), np.zeros(LENGTH)], axis=1)


def agent_in(env, memory, places=PLACES, **settings):
    memory.attributes["pose"] = places
    return agents.consptm(memory, towards, look=env.look, **{"max_steps": 6, "radius": 0.3, **settings})


def test_it_reaches_goals_and_looks_once_an_episode():
    env = Hall(4)
    result = evaluate(agent_in(env, hall_memory()), env, tasks=Tasks([0, 19, 3.4, 7, 12], [15, 2, 9, 7.2, 0]))
    assert result.successes.all()
    assert env.looks == 5


def test_robots_whose_episode_is_over_are_left_alone():
    env = Hall(2)
    result = evaluate(agent_in(env, hall_memory()), env, tasks=Tasks([0, 0], [18, 1]))
    assert env.steps == result.steps.sum()


def test_a_plain_agent_repeats_what_failed_and_a_persistent_one_takes_the_other_way():
    # Places 4 and 15 look alike: the way from 0 to 18 seems to lead through there.
    def success(**settings):
        env = Hall(1, limit=60)
        memory = hall_memory(PictureDistance(alike=(4, 15)))
        return evaluate(agent_in(env, memory, **settings), env, tasks=Tasks([0], [18])).successes[0]

    assert not success()
    assert success(penalty=50.0)


class SameGoals(PictureDistance):
    """Goals at 15 are taken for 4, and for 15 only then."""

    def __call__(self, starts, goals):
        steps = super().__call__(starts, goals)
        steps[np.ix_(starts[:, 0] == 4, goals[:, 0] == 15)] = -0.0
        steps[np.ix_(starts[:, 0] == 15, goals[:, 0] == 15)] = 0.1
        return steps


def test_a_wrong_goal_node_is_passed_over():
    def success(**settings):
        env = Hall(1)
        return evaluate(agent_in(env, hall_memory(SameGoals()), **settings), env, tasks=Tasks([1], [15])).successes[0]

    assert not success(penalty=50.0, tries=1)
    assert success(penalty=50.0, tries=4)


def test_a_wrong_goal_node_is_outvoted_by_the_nearest_ones():
    env = Hall(1)

    def success(agreeing):
        agent = agent_in(env, hall_memory(SameGoals()), penalty=50.0, agreeing=agreeing)
        return evaluate(agent, env, tasks=Tasks([1], [15])).successes[0]

    assert not success(1) and not success(2) and success(4)
    agent = agent_in(env, hall_memory(SameGoals()), agreeing=4)
    goal = np.array([[[15]]], np.uint8)[0]
    steps = agent.localiser.from_nodes(goal)[0]
    assert steps.argmin() == 15  # of 4, 15, 14 and 16 it is the one in the middle
    assert steps[4] == 5.5  # 0 to the goal, 11 from there
    assert agent_in(env, hall_memory(SameGoals())).localiser.from_nodes(goal)[0].argmin() == 4
    with pytest.raises(sgm.InputError, match="agreeing is 0"):
        agent_in(env, hall_memory(), agreeing=0)


def test_a_goal_is_where_the_nodes_that_agree_on_it_are_in_the_mean():
    env, places = Hall(1), PLACES.copy()
    places[10, 0], places[12, 0] = 10.5, 40.0
    agent = agent_in(env, hall_memory(), places, agreeing=5)
    goal = np.array([[10]], np.uint8)
    rows, nodes = np.zeros(1, np.int64), np.array([10])
    assert agent.localiser.goal_places(rows, goal, nodes)[0].tolist() == [9.625, 0]  # 10.5, 9, 11 and 8, not 40
    assert agent.localiser.goal_places(rows, goal, nodes + 1)[0].tolist() == [11, 0]  # sent elsewhere
    assert agent.localiser.goal_places(rows, None, nodes)[0].tolist() == [10.5, 0]  # the node itself is the goal
    agent.reset(1)  # another episode, another goal
    assert agent.localiser.goal_places(rows, goal + 6, nodes + 6)[0].tolist() == [16, 0]


def test_nodes_that_agree_make_up_for_one_whose_place_is_wrong():
    def success(agreeing):
        env, places = Hall(1), PLACES.copy()
        places[10, 0] = 9.0
        agent = agent_in(env, hall_memory(), places, agreeing=agreeing)
        return evaluate(agent, env, tasks=Tasks([0], [10])).successes[0]

    assert not success(1)
    assert success(5)


def test_nodes_that_nothing_leads_to_are_not_asked_where_a_goal_is():
    def result(agreeing):
        env, memory = Hall(1), hall_memory(max_dist=2.5)
        for source in (13, 14, 16, 17):
            memory.record(source, 15, reached=False)
        assert memory.parts().tolist() == [0] * 15 + [1] + [0] * 4
        return evaluate(agent_in(env, memory, agreeing=agreeing), env, tasks=Tasks([1], [15])).successes[0]

    assert not result(1)
    assert result(4)


def test_goals_in_a_part_of_a_memory_that_was_cut_are_found_there():
    def solved(agreeing):
        env, memory = Hall(1), hall_memory()
        memory.record(8, 9, reached=False)
        memory.record(9, 8, reached=False)
        agent = agent_in(env, memory, agreeing=agreeing)
        return [evaluate(agent, env, tasks=Tasks([2], [goal])).successes[0] for goal in (4, 5, 6)]

    assert all(solved(1)) and all(solved(3)) and all(solved(5))
    one_way = hall_memory(PictureDistance())
    for node in range(1, LENGTH):
        one_way.record(node, node - 1, reached=False)
    env = Hall(1)  # every part is a single node
    assert evaluate(agent_in(env, one_way, agreeing=3), env, tasks=Tasks([2], [9])).successes[0]


def test_a_node_without_a_place_is_refused():
    places = PLACES.copy()
    places[3] = np.nan
    with pytest.raises(sgm.InputError, match="1 nodes have no position"):
        agent_in(Hall(1), hall_memory(), places)


def test_nodes_near_the_goal_that_were_passed_on_the_way_are_not_tried():
    env = Hall(1)
    agent = agent_in(env, hall_memory(SameGoals()), tries=4)
    agent.reset(1)
    env.reset(options={"starts": [2.0], "goals": [15.0]})
    for _ in range(8):
        observation = env._observation()
        env.step(agent.act_many(observation, observation["desired_goal"]))
    assert {2, 3, 4}.issuperset(agent.router._ruled_out[0]) and 4 in agent.router._ruled_out[0]


def test_cleanup_removes_the_edges_that_do_not_work_and_no_others():
    memory = hall_memory()
    env = Hall(8, wall=9.5)
    report = Cleaner(agent_in(env, memory, clean=True), env, seed=1, options={"goals": None}).run(6_000)
    assert report.steps == 6_000 and report.arrived > 20
    removed = memory.removed()
    assert {(9, 10), (10, 9)} == set(zip(removed.source.tolist(), removed.target.tolist(), strict=True))
    assert env.looks < report.steps / 3


def test_a_waypoint_that_was_skipped_proves_nothing():
    places = PLACES.copy()
    places[6, 1] = 10.0  # node 6 looks as if it were between 5 and 7, and was seen far away
    memory, env = hall_memory(policy="belief"), Hall(1)
    agent = agent_in(env, memory, places, radius=1.2, clean=True)
    agent.reset(1)
    env.reset(options={"starts": [4.0], "goals": [12.0]})
    for _ in range(30):
        observation = env._observation()
        env.step(agent.act_many(observation, observation["desired_goal"]))
    tried = {edge for edge, known in memory.tried().items() if known.successes}
    assert (8, 9) in tried and not {(5, 6), (6, 7)} & tried


def test_a_robot_without_a_way_stays_and_says_so():
    memory, env = hall_memory(), Hall(2, limit=20)
    edges = memory.edges()
    for u, v in zip(edges.source.tolist(), edges.target.tolist(), strict=True):
        if v in (12, 13):
            memory.record(u, v, False)
    result = evaluate(agent_in(env, memory), env, tasks=Tasks([3, 5], [12, 8]))
    assert result.successes.tolist() == [False, True] and result.reasons["start not connected to goal"] == 1
    assert env.place[0] == pytest.approx(3, abs=0.01)


def test_a_path_over_an_edge_that_another_robot_removed_is_given_up():
    memory, env = hall_memory(), Hall(1)
    agent = agent_in(env, memory, clean=True)
    agent.reset(1)
    env.reset(options={"starts": [0.0], "goals": [12.0]})
    for step in range(20):
        observation = env._observation()
        env.step(agent.act_many(observation, observation["desired_goal"]))
        if step == 4:
            memory.record(6, 7, False)
            assert 7 in agent.path(0)
    assert env.looks == 2 and 6 not in agent.path(0)


def test_a_blocked_edge_is_in_the_trace():
    env = Hall(1, wall=9.5, limit=40)
    result = run_episodes(agent_in(env, hall_memory(), clean=True), env, tasks=Tasks([5], [12]), traces=1)
    assert (9, 10) in {(u, v) for _, u, v in result.traces[0].cuts}


def test_active_goals_find_their_way_without_looking():
    memory, env = hall_memory(), Hall(4)
    Cleaner(agent_in(env, memory, clean=True), env, options={"goals": None}, goals="active").run(400)
    assert memory.tried()


@pytest.mark.parametrize("places", [np.zeros(LENGTH), np.zeros((LENGTH, 1))])
def test_positions_have_two_numbers_or_more(places):
    with pytest.raises(sgm.InputError, match="'pose' has shape"):
        agent_in(Hall(1), hall_memory(), places)


def test_odometry_needs_positions_and_a_look():
    with pytest.raises(sgm.InputError, match="no attribute 'pose'"):
        agents.consptm(hall_memory(), towards, look=lambda rows: rows)
    memory = hall_memory()
    memory.attributes["pose"] = PLACES
    with pytest.raises(sgm.InputError, match="needs look"):
        agents.consptm(memory, towards)


def test_tries_must_be_a_whole_number():
    with pytest.raises(sgm.InputError, match="tries is 0"):
        agent_in(Hall(1), hall_memory(), tries=0)
