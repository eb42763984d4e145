"""What fails in an episode is not tried again in it; clipped distances attach nothing; the memory is left as it is."""

from __future__ import annotations

import itertools
import math

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import sgm
from sgm.navigation import Navigator, NearestPair, RankedGoals, agents
from sgm.navigation.localise import clipped_at
from sgm.navigation.navigator import FOLLOWING

SIZE = 9
CELLS = np.array([(x, y) for x in range(SIZE) for y in range(SIZE)], np.float32)


class Room(gymnasium.Env):
    """A square of cells with a wall from the left side to the last column, x = 8, between y = 3 and y = 4."""

    observation_space = spaces.Dict(
        {name: spaces.Box(0, SIZE, (2,), np.float32) for name in ("observation", "achieved_goal", "desired_goal")}
    )
    action_space = spaces.Discrete(5)
    MOVES = np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)])

    def __init__(self, start=(4, 1), goal=(4, 7), gap=8, limit=120):
        self.ends, self.gap, self.limit = (np.array(start), np.array(goal)), gap, limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.elapsed = self.ends[0], 0
        return self._see(), {}

    def step(self, action):
        there = np.clip(self.place + self.MOVES[action], 0, SIZE - 1)
        crosses = {int(self.place[1]), int(there[1])} == {3, 4} and self.place[0] != self.gap
        self.place, self.elapsed = self.place if crosses else there, self.elapsed + 1
        done = bool((self.place == self.ends[1]).all())
        return self._see(), 0.0, done, self.elapsed >= self.limit, {"success": done}

    def _see(self):
        here, goal = self.place.astype(np.float32), self.ends[1].astype(np.float32)
        return {"observation": here, "achieved_goal": here, "desired_goal": goal}


class Blind:
    """Steps in the plane, as if there were no wall; clipped at `far`, if that is given."""

    def __init__(self, far=None):
        if far is not None:
            self.far = far
        self._far = math.inf if far is None else far

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        return np.minimum(np.abs(starts[:, None] - goals).sum(axis=2), self._far)


def towards(observations, targets):
    """One cell towards the target, up and down before right and left."""
    gap = np.asarray(targets) - np.asarray(observations)
    vertical = np.where(gap[:, 1] > 0, 3, np.where(gap[:, 1] < 0, 4, 0))
    return np.where(vertical > 0, vertical, np.where(gap[:, 0] > 0, 1, np.where(gap[:, 0] < 0, 2, 0)))


def memory_of(cells=CELLS, distance=None):
    memory = sgm.SparseGraphicalMemory(
        distance or Blind(), criterion="none", max_dist=1.5, k=None, keep_observations=True
    )
    memory.extend(cells)
    return memory


def navigator(memory, **options):
    return Navigator(memory, towards, **{"arrival": "distance", "cutoff": 0.5, "max_steps": 3, **options})


@pytest.mark.parametrize("router", ["nearest", "ranked"])
def test_edges_that_failed_are_not_planned_over_again_and_the_memory_keeps_them(router):
    memory = memory_of()
    before = memory.edges()
    one_penalty = RankedGoals(penalty=0.0) if router == "ranked" else router
    stays = sgm.evaluate(navigator(memory, router=one_penalty, removals="none"), Room(), 2)
    agent = navigator(memory, router=router)
    goes = sgm.evaluate(agent, Room(), 2)
    assert stays.rate == 0 and goes.rate == 1
    assert goes.steps[0] == goes.steps[1]  # the second episode begins anew, and finds out for itself
    assert memory.records == 0 and all(np.array_equal(a, b) for a, b in zip(memory.edges(), before, strict=True))


def test_what_fails_in_one_row_of_a_batch_does_not_hold_in_another():
    env = SyncVectorEnv(
        [lambda: Room(goal=(4, 6)), lambda: Room(gap=4), lambda: Room(gap=4)], autoreset_mode=AutoresetMode.DISABLED
    )
    result = sgm.evaluate(navigator(memory_of()), env, 3)
    assert result.successes.all()
    assert result.steps[1] == result.steps[2] == 6 < result.steps[0]  # straight through the gap


def test_plans_of_an_episode_lack_what_failed_in_it():
    memory = memory_of()
    agent = navigator(memory)
    result = sgm.evaluate(agent, Room(), 1, traces=1)
    (*_, (_, last)) = result.traces[0].plans
    crossings = [(a, b) for a, b in itertools.pairwise(last) if {CELLS[a][1], CELLS[b][1]} == {3, 4}]
    assert [CELLS[a][0] for a, _ in crossings] == [8]
    assert len(result.traces[0].plans) > 2


def test_a_failed_bridge_is_tried_again_when_nothing_else_is_left():
    line = CELLS[CELLS[:, 0] == 0][:4]
    agent = navigator(memory_of(line))
    agent.reset(1)
    here, goal = line[1], line[3]
    for _ in range(12):  # the robot does not move: the only edge fails again and again
        agent.act(here, goal)
        assert agent.phase[0] == FOLLOWING
    assert agent.given_up[0] >= 2 and agent.waypoint[0] == 2


def test_removals_do_not_hold_while_the_memory_is_cleaned():
    agent = navigator(memory_of(), clean=True)
    assert not agent.removes
    agent.clean = False
    assert agent.removes and not navigator(memory_of(), removals="none").removes


@pytest.mark.parametrize("router", ["nearest", "ranked"])
def test_a_first_waypoint_that_is_not_reached_is_not_the_first_again(router):
    # The nearest node, (4, 4), is behind the wall and one step away; the nearest on this side, (6, 3), is two away.
    memory = memory_of(CELLS[(CELLS[:, 1] >= 4) | (CELLS[:, 0] >= 6)])
    room = Room(start=(4, 3), goal=(4, 7))
    stays = sgm.evaluate(navigator(memory, router=router, first_leg=False), room, 1)
    agent = navigator(memory, router=router)
    goes = sgm.evaluate(agent, room, 2)
    assert stays.failures.tolist() == ["waypoint not reached"]
    assert goes.rate == 1 and goes.steps[0] == goes.steps[1]
    assert not agent.router._failures[0].starts  # the robot has passed edges since


def test_the_papers_agents_do_none_of_this():
    for make in (agents.sgm, agents.sorb, agents.sptm, agents.ours):
        agent = make(memory_of(), towards)
        assert not agent.removes and not agent.first_leg and agent.router.within in (math.inf, None)


def test_switches_are_kept_in_a_folder_and_wrong_ones_are_named(tmp_path):
    navigator(memory_of(), removals="none", first_leg=False).save(tmp_path)
    again = Navigator.load(tmp_path, controller=towards, memory_distance=Blind())
    assert again.removals == "none" and again.first_leg is False and again.router.within == "auto"
    with pytest.raises(sgm.InputError, match="removals is 'always': expected one of 'episode', 'none'"):
        navigator(memory_of(), removals="always")
    with pytest.raises(sgm.InputError, match="within is 'near'"):
        NearestPair(within="near")


# Clipped distances


@pytest.mark.parametrize("router", [NearestPair(), RankedGoals()])
@pytest.mark.parametrize(
    ("start", "goal", "reason"),
    [((8, 8), (0, 0), "no node near the start"), ((0, 0), (8, 8), "no node near the goal")],
)
def test_a_clipped_distance_attaches_nothing_and_the_reason_says_so(router, start, goal, reason):
    near = CELLS[(CELLS < 4).all(axis=1)]
    memory = memory_of(near, Blind(far=5.0))
    lazy = Navigator(memory, lambda o, t: np.zeros(len(o), int), router=router, max_steps=3)
    result = sgm.evaluate(lazy, Room(start, goal, limit=9), 1)
    assert result.failures.tolist() == [reason] and result.reasons[reason] == 1
    anywhere = type(router)(within=math.inf)
    lazy = Navigator(memory, lambda o, t: np.zeros(len(o), int), router=anywhere, max_steps=3, removals="none")
    sgm.evaluate(lazy, Room(start, goal, limit=9), 1)
    assert lazy.start_node[0] >= 0  # attached to an arbitrary one of those that are equally far


def test_a_ceiling_is_found_where_the_distance_does_not_say_it():
    quiet = Blind(far=5.0)
    del quiet.far
    assert clipped_at(quiet, CELLS) == 5.0
    assert clipped_at(Blind(), CELLS) == math.inf
    assert clipped_at(quiet, CELLS[:40]) == math.inf  # too few to tell
    memory = memory_of(CELLS[(CELLS < 8).all(axis=1)], quiet)
    assert navigator(memory).localiser.ceiling == 5.0


def test_plans_refuse_clipped_ends_unless_told_otherwise():
    memory = memory_of(CELLS[(CELLS < 4).all(axis=1)], Blind(far=5.0))
    here, away = np.zeros(2), np.full(2, 8.0)
    with pytest.raises(sgm.NoPath, match="no node near the goal: all are 5 steps away or more"):
        memory.plan(here, away)
    with pytest.raises(sgm.NoPath, match="no node near the start"):
        memory.plan(away, here)
    assert len(memory.plan(here, away, within=math.inf)) >= 1
    assert memory.plan_many([here], [away]) == [None]
