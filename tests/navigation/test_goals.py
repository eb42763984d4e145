"""Where cleanup goes: random goals are the paper's, active ones lead over what is doubtful and much used."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import sgm
from sgm.navigation import ActiveGoals, Cleaner, Navigator, NearestPair, RandomGoals, cleanup
from sgm.navigation.goals import Survey, doubt
from speed.goals import GraphWorld, go, rooms, run
from tests.conftest import plane

ALL = 10**6


def build(steps, policy="first-failure", **settings):
    distance = sgm.TableDistance(steps)
    memory = sgm.SparseGraphicalMemory(distance, criterion="none", tau_p=None, policy=policy, **settings)
    memory.extend(np.arange(len(steps)))
    return memory


def graph(nodes, *edges, **options):
    """A memory with exactly these edges (u, v), each a step long."""
    steps = np.where(np.eye(nodes), 0.0, 99.0)
    for u, v in edges:
        steps[u, v] = 1.0
    return build(steps, max_dist=1.5, k=None, **options)


def both_ways(*edges):
    return [*edges, *((v, u) for u, v in edges)]


# Two branches from 0, alike in everything: 1, 2, 3 and 4, 5, 6.
FORK = both_ways((0, 1), (1, 2), (2, 3), (0, 4), (4, 5), (5, 6))
LEFT, RIGHT = {1, 2, 3}, {4, 5, 6}


def agent(memory, robots=1, by="distance", **options):
    router = NearestPair(by)
    navigator = Navigator(memory, go, **{"max_steps": 9, "cutoff": 0.25, "clean": True, "router": router, **options})
    navigator.reset(robots)
    return navigator


def draw(goals, memory, starts, seed=0):
    places = np.asarray(starts, np.float32)[:, None]
    return goals.draw(agent(memory, len(places)), np.random.default_rng(seed), places).tolist()


def survey(memory, candidates=ALL, **options):
    return Survey(agent(memory, **options), np.random.default_rng(0), candidates)


class Kept:
    """Goals that remember what they drew."""

    def __init__(self, goals):
        self.goals, self.drawn = goals, []

    def draw(self, navigator, random, observations):
        self.drawn.append(self.goals.draw(navigator, random, observations).tolist())
        return np.array(self.drawn[-1])


WORLD = rooms(150, np.random.default_rng(0))


def clean(goals, seed=0, steps=1000, policy="first-failure", **options):
    memory = build(WORLD.steps, policy, max_dist=3.0, k=6)
    cleanup(agent(memory, **options), GraphWorld(5, WORLD), steps, seed=seed, goals=goals, progress=False)
    return memory


def removed(memory):
    return [column.tolist() for column in memory.removed()[:2]]


def test_random_goals_are_what_cleanup_always_drew():
    goals = Kept(RandomGoals())
    cleaned = clean(goals, seed=3)
    random = np.random.default_rng(3)
    random.integers(2**31)  # seeds the environment
    assert len(goals.drawn) > 5
    assert goals.drawn == [random.integers(150, size=len(some)).tolist() for some in goals.drawn]
    by_default = build(WORLD.steps, max_dist=3.0, k=6)
    cleanup(agent(by_default), GraphWorld(5, WORLD), 1000, seed=3, progress=False)
    assert removed(cleaned) == removed(clean("random", seed=3)) == removed(by_default) != [[], []]


def test_active_goals_find_false_edges_that_matter_sooner():
    random, active = (
        sum(run("rooms", 200, seed, goals, 1200).steps_to(0.5) for seed in range(4)) for goals in ("random", "active")
    )
    assert active < 0.75 * random


def test_active_goals_try_more_edges():
    assert len(clean("active", steps=2000).tried()) > len(clean("random", steps=2000).tried())


def test_the_same_seed_sets_the_same_goals():
    goals = [Kept(ActiveGoals()) for _ in range(3)]
    for kept, seed in zip(goals, (1, 1, 2), strict=True):
        clean(kept, seed)
    assert goals[0].drawn == goals[1].drawn != goals[2].drawn
    again = Kept(goals[0].goals)  # what it was used for before leaves no trace
    clean(again, 1)
    assert again.drawn == goals[0].drawn


@pytest.mark.parametrize("policy", ["first-failure", "second-failure", "belief", sgm.FirstFailure(guard=True)])
@pytest.mark.parametrize("by", ["distance", "hops"])
def test_active_goals_go_with_every_policy(policy, by):
    memory = clean("active", policy=policy, by=by)
    assert sum(known.failures for known in memory.tried().values()) > 0


def test_doubt_settles_with_tries():
    assert doubt(0, 0) == pytest.approx(1 / 36)
    assert doubt(3, 1) == doubt(1, 3)
    assert (np.diff(doubt(np.arange(50), 0)) < 0).all()
    # What a try is expected to take off the variance of Beta(1 + s, 1 + f), by its definition.
    variance = lambda s, f: (1 + s) * (1 + f) / ((2 + s + f) ** 2 * (3 + s + f))  # noqa: E731
    after = (3 * variance(3, 1) + 2 * variance(2, 2)) / 5
    assert doubt(2, 1) == pytest.approx(variance(2, 1) - after)


@pytest.mark.parametrize("by", ["distance", "hops"])
def test_use_counts_the_plans_that_run_over_an_edge(by):
    memory = build(plane(40)[1], max_dist=6.0, k=4)
    measured = survey(memory, by=by)
    counts = dict.fromkeys(zip(*(end.tolist() for end in memory.edges()[:2]), strict=True), 0)
    for start, goal in itertools.product(range(40), range(40)):
        try:
            nodes = memory.plan_nodes(start, goal, by=by).nodes.tolist()
        except sgm.NoPath:
            continue
        for edge in itertools.pairwise(nodes):
            counts[edge] += 1
    assert measured.use.tolist() == list(counts.values())


def test_what_is_known_is_left_for_what_is_not():
    memory = graph(7, *FORK)
    for u, v in ((0, 1), (1, 2), (2, 3)):
        memory.record_many([u] * 5, [v] * 5, [True] * 5)
    assert survey(memory).best_goal(0) in RIGHT


def test_robots_spread_over_what_there_is_to_try():
    first, second = draw(ActiveGoals(), graph(7, *FORK), [0, 0])
    assert {first in LEFT, second in LEFT} == {True, False}


def test_what_is_on_the_way_of_a_robot_is_left_to_it():
    memory = graph(7, *FORK)
    navigator = agent(memory, robots=2)
    places = np.zeros((2, 1), np.float32)
    navigator.act_many(places, places + 3, active=np.array([True, False]))
    assert navigator.path(0).tolist() == [0, 1, 2, 3]
    chosen = ActiveGoals().draw(navigator, np.random.default_rng(0), places[1:])
    assert chosen[0] in RIGHT


def test_edges_that_were_removed_are_no_reason_to_go_anywhere():
    memory = graph(7, *FORK)
    known = [edge for edge in FORK if edge != (0, 1)]
    for u, v in known:
        memory.record_many([u] * 20, [v] * 20, [True] * 20)
    assert survey(memory).best_goal(0) in LEFT
    before = survey(memory)
    memory.record(0, 1, False)
    for plans in (before, survey(memory)):
        assert plans.best_goal(0) in RIGHT


def test_a_robot_without_a_way_is_not_sent_to_the_end_of_a_removed_edge():
    memory = graph(4, (0, 1), (0, 2))
    before = survey(memory)
    memory.record(0, 1, False)
    random = np.random.default_rng(0)
    assert {plans.goal_from(3, random) for plans in (before, survey(memory)) for _ in range(20)} == {2}


def test_a_memory_in_which_all_is_settled_still_has_goals():
    memory = graph(7, *FORK)
    sources, targets = np.array(FORK * 300).T
    memory.record_many(sources, targets, np.ones(len(sources), bool))
    chosen = draw(ActiveGoals(), memory, [0] * 40)
    assert set(chosen) <= LEFT | RIGHT
    assert len(set(chosen)) > 1


def test_a_memory_of_one_node_has_one_goal():
    memory = graph(1)
    assert draw(ActiveGoals(), memory, [0, 0]) == [0, 0]
    world = rooms(1, np.random.default_rng(0))
    report = cleanup(agent(memory), GraphWorld(2, world), 20, goals="active", progress=False)
    assert report.arrived > 0


def test_goals_are_where_a_robot_can_go():
    memory = graph(9, *FORK, *both_ways((7, 8)))
    assert draw(ActiveGoals(), memory, [7, 8]) == [8, 7]
    assert set(draw(ActiveGoals(), memory, [0, 3, 6])) <= LEFT | RIGHT | {0}


def test_a_robot_without_a_way_is_sent_to_the_end_of_a_doubtful_edge():
    memory = graph(4, (0, 1), (0, 2))
    memory.record_many([0] * 1000, [2] * 1000, np.ones(1000, bool))
    chosen = [draw(ActiveGoals(), memory, [3], seed)[0] for seed in range(50)]
    assert chosen.count(1) > 45
    assert set(draw(ActiveGoals(), graph(4), [3] * 50)) == {0, 1, 2, 3}


def test_many_robots_may_share_few_edges():
    assert set(draw(ActiveGoals(), graph(4, (0, 1), (1, 2), (0, 2)), [3] * 800)) == {1, 2}
    assert set(draw(ActiveGoals(), graph(7, *FORK), [0] * 800)) <= LEFT | RIGHT


def test_the_memory_is_surveyed_again_after_a_while_and_when_it_grows(monkeypatch):
    made = []
    monkeypatch.setattr("sgm.navigation.goals.Survey", lambda *given: made.append(given) or Survey(*given))
    memory, random, here = graph(7, *FORK), np.random.default_rng(0), np.zeros((1, 1), np.float32)
    navigator, goals = agent(memory), ActiveGoals(refresh=3)
    for _ in range(7):
        goals.draw(navigator, random, here)
    assert len(made) == 3
    memory.extend(np.array([2]))
    goals.draw(navigator, random, here)
    assert len(made) == 4


@pytest.mark.parametrize("goals", ["clever", None, ActiveGoals, 3])
def test_goals_of_no_kind_are_refused(goals):
    memory = graph(7, *FORK)
    with pytest.raises(sgm.InputError, match="'random', 'active' or an object with draw"):
        Cleaner(agent(memory), GraphWorld(1, WORLD), goals=goals)


@pytest.mark.parametrize("options", [{"candidates": 0}, {"candidates": 2.5}, {"refresh": 0}, {"refresh": True}])
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(sgm.InputError, match="expected a whole number, 1 or more"):
        ActiveGoals(**options)
