"""The agent in a maze it knows exactly, with a distance that does not see walls at close range."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import sgm
from sgm.envs.point.env import PointMazeEnv, PointMazeVectorEnv
from sgm.envs.point.mazes import load_maze
from sgm.navigation import (
    Cleaner,
    Navigator,
    NearestPair,
    PolicyAgent,
    WithinSteps,
    agents,
    cleanup,
    evaluate,
    paired_difference,
    run_episodes,
    wilson,
)

MAZE = load_maze("FourRooms", resize=3, thin=True)
NOISE = {"action_noise": 0.2}


class BlindDistance:
    """Steps along corridors, but straight through walls at three cells or less."""

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def pairs(self, starts, goals):
        a, b = (np.clip(x * MAZE.size, 0, MAZE.size - 1e-6) for x in (starts, goals))
        straight = np.linalg.norm(a - b, axis=-1)
        ids = MAZE.cell_ids(a), MAZE.cell_ids(b)
        around = np.where((ids[0] >= 0) & (ids[1] >= 0), MAZE.distances[ids], 99)
        return np.where(straight <= 3.0, straight, np.maximum(straight, around)).astype(np.float32)

    def __call__(self, starts, goals):
        rows = [self.pairs(np.broadcast_to(start, goals.shape), goals) for start in starts]
        return np.stack(rows) if rows else np.empty((0, len(goals)), np.float32)


def straight_on(observations, goals):
    """A controller that knows no walls."""
    return np.clip((np.asarray(goals) - observations) * MAZE.size, -1, 1)


def envs(number, steps=200, **settings):
    return PointMazeVectorEnv(number, MAZE, autoreset_mode="Disabled", max_episode_steps=steps, **{**NOISE, **settings})


def build(policy="first-failure", **settings):
    memory = sgm.SparseGraphicalMemory(
        BlindDistance(), tau_p=0.05, tau_a=2.5, max_dist=5.0, k=8, policy=policy, **settings
    )
    memory.extend(envs(400).reset(seed=1, options={"uniform": True})[0]["observation"])
    return memory


def agent(memory, by="distance", within=math.inf, candidates="nearest", **options):
    router = NearestPair(by, within, candidates)
    return Navigator(
        memory, straight_on, **{"max_steps": 15, "cutoff": 1.5, "replan": False, "router": router, **options}
    )


HARD = {"difficulty": 0.9}


@pytest.fixture(scope="module")
def cleaned():
    memory = build()
    before = evaluate(agent(memory), envs(40), seed=5, options=HARD)
    report = cleanup(agent(memory, clean=True), envs(20, None), 6000, seed=3, options={"uniform": True}, progress=False)
    return memory, before, report


def test_cleanup_turns_failure_into_success(cleaned):
    memory, before, report = cleaned
    after = evaluate(agent(memory), envs(40), seed=5, options=HARD)
    assert before.rate < 0.5
    assert after.rate > 0.9
    assert report.steps == 6000
    assert report.removed == len(memory.removed().source) > 0
    assert report.arrived > 0


def share_blocked(memory, edges):
    """The share of edges whose straight line meets a wall."""
    places = memory.embeddings * MAZE.size
    along = np.linspace(0, 1, 50)[:, None, None]
    line = places[edges.source] + along * (places[edges.target] - places[edges.source])
    return float((~MAZE.is_free(line).all(axis=0)).mean())


def test_what_cleanup_removes_is_mostly_what_walls_block(cleaned):
    memory, _, _ = cleaned
    assert share_blocked(memory, memory.removed()) > 0.7
    assert share_blocked(memory, memory.edges()) < 0.2


def test_without_a_memory_the_controller_is_lost():
    result = evaluate(PolicyAgent(straight_on), envs(40), seed=5, options=HARD)
    assert result.rate < 0.2
    assert result.reasons["time"] == (~result.successes).sum() == sum(result.reasons.values())


def test_one_robot_decides_like_many(cleaned):
    memory, _, _ = cleaned
    batch = evaluate(agent(memory), envs(6), seed=11, options=HARD, traces=6)
    for number in range(6):
        navigator = agent(memory)
        env = PointMazeEnv(MAZE, max_episode_steps=200, **NOISE)
        seen, _ = env.reset(seed=11 + number, options=HARD)
        navigator.reset(1)
        waypoints, terminated, steps = [], False, 0
        while not terminated and steps < 200:
            action = navigator.act(seen["observation"], seen["desired_goal"])
            waypoints.append(int(navigator.waypoint[0]) if navigator.phase[0] == 1 else -1)
            seen, _, terminated, _, _ = env.step(action)
            steps += 1
        assert terminated == batch.successes[number]
        assert steps == batch.steps[number]
        assert waypoints == batch.traces[number].waypoints


def test_evaluation_leaves_the_memory_alone_and_refuses_one_that_cleans():
    memory = build()
    evaluate(agent(memory, replan=True), envs(10), seed=5, options=HARD)
    assert memory.records == 0
    with pytest.raises(sgm.InputError, match="clean=True"):
        evaluate(agent(memory, clean=True), envs(2), seed=0)
    with pytest.raises(sgm.InputError, match="clean=True"):
        Cleaner(agent(memory), envs(2))


def test_cleanup_takes_an_agent_that_does_not_clean_and_leaves_it_so():
    memory = build()
    navigator = agent(memory)
    cleanup(navigator, envs(10, None), 500, options={"uniform": True}, progress=False)
    assert memory.records > 0 and not navigator.clean
    evaluate(navigator, envs(2), seed=5, options=HARD)


def legs(nodes):
    return list(itertools.pairwise(nodes))


def test_an_edge_that_fails_is_blamed_and_the_next_plan_avoids_it():
    memory = build()
    trials = (run_episodes(agent(memory, clean=True), envs(1), seed=n, options=HARD, traces=1) for n in range(30))
    trace = next(result.traces[0] for result in trials if result.traces[0].cuts and result.traces[0].success)
    for step, u, v in trace.cuts:
        assert (u, v) in zip(*(end.tolist() for end in memory.removed()[:2]), strict=True)
        planned_before = [nodes for at, nodes in trace.plans if at < step]
        planned_then = [nodes for at, nodes in trace.plans if at == step]
        assert (u, v) in legs(planned_before[-1])
        assert planned_then
        assert (u, v) not in legs(planned_then[0])
    assert trace.asdict()["success"] is True


def test_the_way_to_the_first_waypoint_is_blamed_on_no_edge():
    memory = build()
    navigator = agent(memory, max_steps=5, cutoff=1e-9, clean=True)  # no waypoint is ever reached
    run_episodes(navigator, envs(5, 60), seed=3, options=HARD)
    assert navigator.given_up.min() > 5
    assert memory.records == 0


def test_successes_are_recorded_for_policies_that_want_them():
    memory = build(policy="belief")
    cleanup(agent(memory, clean=True), envs(10, None), 1500, seed=0, options={"uniform": True}, progress=False)
    known = memory.tried().values()
    assert sum(item.successes for item in known) > 0
    assert sum(item.failures for item in known) > 0


def test_cleanup_is_the_same_for_the_same_seed_and_takes_exactly_the_steps_it_was_given():
    removed = []
    for seed in (1, 1, 2):
        memory = build()
        report = cleanup(
            agent(memory, clean=True), envs(7, None), 1000, seed=seed, options={"uniform": True}, progress=False
        )
        assert report.steps == 1000
        removed.append([column.tolist() for column in memory.removed()[:2]])
    assert removed[0] == removed[1] != removed[2]


def test_a_cleaner_goes_on_where_it_was():
    memory = build()
    cleaner = Cleaner(agent(memory, clean=True), envs(10, None), seed=1, options={"uniform": True})
    first, second = cleaner.run(300), cleaner.run(305)
    assert (first.steps, second.steps, cleaner.steps) == (300, 305, 605)


def test_reasons_of_failure_add_up():
    memory = build()
    memory.filter(2)
    result = evaluate(agent(memory, within=None), envs(30), seed=5, options=HARD)
    assert sum(result.reasons.values()) == (~result.successes).sum() > 0
    facts = result.asdict()
    assert facts["successes"] == result.successes.sum()
    assert facts["ci95"][0] <= facts["success_rate"] <= facts["ci95"][1]


def test_an_agent_without_a_path_says_so():
    memory = build()
    edges = memory.edges()
    memory.record_many(edges.source, edges.target, np.zeros(len(edges.source), bool))
    result = evaluate(agent(memory, within=None), envs(10, 30), seed=5, options=HARD)
    assert result.reasons["start not connected to goal"] > 0


@pytest.mark.parametrize("by", ["distance", "hops"])
def test_sorb_hops_from_waypoint_to_waypoint(by, cleaned):
    memory, _, _ = cleaned
    navigator = agents.sorb(memory, straight_on, router=NearestPair(by, None, "all"))
    result = evaluate(navigator, envs(10), seed=5, options=HARD)
    assert result.episodes == 10


def test_whole_numbers_as_a_goal_do_not_round_waypoints():
    class Cells(BlindDistance):
        def embed(self, observations):
            return np.asarray(observations, np.float32) / MAZE.size.astype(np.float32)

    memory = sgm.SparseGraphicalMemory(Cells(), tau_p=0.05, tau_a=2.5, max_dist=5.0, keep_observations=True)
    memory.extend(sample_cells(300))
    seen = []
    navigator = Navigator(memory, lambda observations, goals: seen.append(goals) or np.zeros((len(observations), 2)))
    navigator.act([1.5, 1.5], [30, 30])
    assert seen[0].dtype.kind == "f"
    assert seen[0][0].tolist() in memory.observations.tolist()


def sample_cells(number):
    return envs(number).reset(seed=2, options={"uniform": True})[0]["observation"] * MAZE.size


def test_waypoints_that_are_no_observations_are_refused():
    class Wide(BlindDistance):
        def embed(self, observations):
            return np.tile(np.asarray(observations, np.float32), 4)

        def pairs(self, starts, goals):
            return super().pairs(starts[:, :2], goals[:, :2])

    memory = sgm.SparseGraphicalMemory(Wide(), tau_p=0.05)
    memory.extend(sample_cells(50) / MAZE.size)
    with pytest.raises(sgm.InputError, match="keep_observations=True"):
        Navigator(memory, straight_on).act([0.1, 0.1], [0.9, 0.9])


def test_steps_straight_to_the_goal_are_not_held_against_the_edge():
    table = np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]], np.float32)

    class Line(sgm.TableDistance):
        def embed(self, observations):
            return super().embed(np.asarray(observations)[:, 0])

    memory = sgm.SparseGraphicalMemory(Line(table), criterion="none", max_dist=1.5, keep_observations=True)
    memory.extend([[0], [1], [2]])
    navigator = Navigator(
        memory, lambda o, g: np.zeros((len(o), 1)), max_steps=3, arrival=WithinSteps(None), hopping=True, clean=True
    )
    for _ in range(12):
        navigator.act([1], [2])  # the goal is within MaxDist all the time, and never reached
    assert memory.removed().source.tolist() == []


def test_bad_arguments_are_named():
    memory = build()
    for options, reason in (
        ({"arrival": "near"}, "arrival is 'near'"),
        ({"localiser": NearestPair}, "localiser is <class"),
        ({"arrival": WithinSteps(2.0), "cutoff": 2.0}, "cutoff goes with"),
        ({"by": "time"}, "by is 'time'"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"candidates": "some"}, "candidates is 'some'"),
        ({"cutoff": float("nan")}, "cutoff is nan"),
    ):
        with pytest.raises(sgm.InputError, match=reason):
            agent(memory, **options)
    assert agent(memory, max_steps=None, cutoff=1.5).max_steps == 16  # 3 × MaxDist and the cutoff, rounded
    with pytest.raises(sgm.EmptyMemory):
        Cleaner(agent(sgm.SparseGraphicalMemory(BlindDistance()), clean=True), envs(2))


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (95, 100, 0.8882, 0.9785)],
)
def test_wilson_intervals_are_the_textbook_ones(successes, trials, low, high):
    assert wilson(successes, trials) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))
    with pytest.raises(sgm.InputError):
        wilson(3, 2)
    assert math.isclose(sum(wilson(5, 10)), 1.0)


def test_paired_differences_are_the_textbook_ones():
    # Approval of a prime minister in two surveys of the same 1,600 people: Agresti, Categorical Data Analysis, 10.1.
    first, second = np.repeat([[1, 1, 0, 0], [1, 0, 1, 0]], [794, 150, 86, 570], axis=1).astype(bool)
    assert paired_difference(first, second) == pytest.approx((0.04, 0.021, 0.059), abs=5e-4)
    # The same in a smaller survey, where the half outcomes matter: the example of R's PropCIs::diffpropci.mp.
    few = np.repeat([[1, 1, 0, 0], [1, 0, 1, 0]], [53, 20, 40, 47], axis=1).astype(bool)
    assert paired_difference(*few) == pytest.approx((-0.125, -0.216017, -0.030896), abs=1e-6)
    assert paired_difference(second, first) == pytest.approx((-0.04, -0.059, -0.021), abs=5e-4)
    same, low, high = paired_difference(first, first)
    assert same == 0 and low == -high != 0
    assert paired_difference(np.ones(3, bool), np.zeros(3, bool))[2] == 1
    with pytest.raises(sgm.InputError, match="shapes \\(2,\\) and \\(3,\\): expected the same tasks"):
        paired_difference(np.ones(2, bool), np.ones(3, bool))
