"""Distances that provably stay the same nearby: never claimed wrongly, and nobody notices that they are left out."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import sgm

torch = pytest.importorskip("torch")

from sgm.distances.fast_bounds import _compiled_lines, _tanh_lines, lines  # noqa: E402
from sgm.distances.sorb import DistributionalDistance  # noqa: E402
from sgm.memory.localise import reached  # noqa: E402
from tests.distances.test_sorb import make_networks, points  # noqa: E402


def partly_saturated(seed: int, compiled: bool | None = None) -> DistributionalDistance:
    """Random networks whose distances vary, about a third of them lying at the far end of the range."""
    networks = make_networks(seed, hidden=64, scale=6.0)
    networks.critics.third[:, -1, -1] += 15.0
    return DistributionalDistance(networks, compiled=compiled)


@pytest.mark.parametrize("compiled", [None, False])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("slack", [0.3, 1.0])
def test_what_is_proven_holds_everywhere_in_the_box(seed, slack, compiled):
    distance = partly_saturated(seed, compiled)
    goals, proven_somewhere = points(150, seed), 0
    random = np.random.default_rng(seed)
    for start in points(8, seed + 100):
        steps = distance(start[None], goals)[0]
        proven = distance.unchanged_nearby(start, goals, steps, slack)
        radius = distance.unchanged_radius
        corners = start + radius * np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
        inside = start + random.uniform(-radius, radius, (300, 2))
        moved = distance(np.concatenate([corners, inside]).astype(np.float32), goals)
        assert (np.abs(moved - steps)[:, proven] < slack).all()
        proven_somewhere += proven.sum()
    assert proven_somewhere > 20


@pytest.mark.parametrize("compiled", [None, False])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("slack", [0.1, 0.3, 1.0])
def test_what_is_decided_for_one_start_holds_for_it(seed, slack, compiled):
    distance = partly_saturated(seed, compiled)
    distance.unchanged_radius = 0.02
    goals, random, decided_more = points(150, seed), np.random.default_rng(seed), 0
    for start in points(8, seed + 100):
        steps = distance(start[None], goals)[0]
        near = distance.nearby(start, goals, steps, slack)
        corners = start + 0.02 * np.array([[-1, -1], [-1, 1], [1, -1], [1, 1], [0, 0]])
        starts = np.concatenate([corners, start + random.uniform(-0.02, 0.02, (60, 2))]).astype(np.float32)
        undecided = near.undecided(starts)
        assert (np.abs(distance(starts, goals) - steps)[~undecided] < slack).all()
        assert not (undecided & ~near.unproven).any()  # what is proven for the whole box is decided for each start
        decided_more += (near.unproven & ~undecided).sum()
    assert decided_more > 20


@pytest.mark.parametrize("seed", range(3))
def test_compiled_lines_are_those_of_torch_up_to_rounding(seed):
    pytest.importorskip("numba")
    networks, goals = partly_saturated(seed).networks, torch.from_numpy(points(130, seed))
    origin, radius = torch.from_numpy(points(1, seed + 50)), 0.02
    actor = [way(networks.actor, 0, origin, goals, radius, None) for way in (lines, _compiled_lines)]
    extra = _tanh_lines(actor[0], radius)
    critic = [way(networks.critics, 2, origin, goals, radius, extra) for way in (lines, _compiled_lines)]
    for plain, compiled in (actor, critic):
        for one, other in zip(plain, compiled, strict=True):
            assert one.shape == other.shape
            scale = float(one.abs().max())
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=0, atol=1e-5 * max(1.0, scale))


def test_where_nothing_is_left_to_prove_nothing_is_undecided():
    distance = DistributionalDistance(make_networks(0, hidden=64, scale=0.01))
    goals = points(30, 0)
    near = distance.nearby(goals[0], goals, distance(goals[:1], goals)[0], 1.0)
    assert not near.unproven.any() and not near.undecided(goals[:1]).any()
    assert near.undecided(goals[:0]).shape == (0, 30)


@pytest.mark.parametrize("compiled", [None, False])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cutoff", [0.2, 1.0])
def test_a_waypoint_is_reached_exactly_when_all_nodes_say_so(seed, cutoff, compiled):
    distance = partly_saturated(seed, compiled)
    memory = sgm.SparseGraphicalMemory(distance, criterion="none", max_dist=15.0)
    nodes = points(120, seed)
    memory.extend(nodes)
    random = np.random.default_rng(seed)
    waypoints = random.integers(0, 120, 1500)
    offsets = random.normal(size=(1500, 2)) * random.choice([0.001, 0.01, 0.05, 0.2], (1500, 1))
    states = np.clip(nodes[waypoints] + offsets, 0, 1).astype(np.float32)
    gaps = np.abs(distance(states, nodes) - distance(nodes, nodes)[waypoints]).max(axis=1)
    clear = np.abs(gaps - cutoff) > 1e-3
    fast, plain = memory.reached(states, waypoints, cutoff), reached(distance, nodes, states, waypoints, cutoff)
    np.testing.assert_array_equal(plain, gaps < np.float32(cutoff))
    np.testing.assert_array_equal(fast[clear], plain[clear])
    assert 50 < fast.sum() < 1500
    one_by_one = [memory.reached(states[i : i + 1], waypoints[i : i + 1], cutoff)[0] for i in range(300)]
    np.testing.assert_array_equal(np.array(one_by_one)[clear[:300]], plain[:300][clear[:300]])
    assert memory._waypoint_test._proofs  # which have left nodes out
    again = pickle.loads(pickle.dumps(memory._waypoint_test))  # as a copy for another process, without what is large
    assert not again._proofs and not again._rows


def test_a_distance_may_prove_for_the_whole_box_only():
    class OnlyBoxes:
        """One that has `unchanged_nearby`, and no `nearby`."""

        def __init__(self, distance):
            self.embed, self.pairs, self.unchanged_radius = distance.embed, distance.pairs, distance.unchanged_radius
            self.unchanged_nearby, self._distance = distance.unchanged_nearby, distance

        def __call__(self, starts, goals):
            return self._distance(starts, goals)

    distance, nodes, random = partly_saturated(1), points(120, 1), np.random.default_rng(1)
    waypoints = random.integers(0, 10, 600)
    states = np.clip(nodes[waypoints] + random.normal(0, 0.004, (600, 2)), 0, 1).astype(np.float32)
    gaps = np.abs(distance(states, nodes) - distance(nodes, nodes)[waypoints]).max(axis=1)
    memory = sgm.SparseGraphicalMemory(OnlyBoxes(distance), criterion="none", max_dist=15.0)
    memory.extend(nodes)
    clear = np.abs(gaps - 1) > 1e-3
    np.testing.assert_array_equal(memory.reached(states, waypoints, 1.0)[clear], gaps[clear] < 1)
    assert memory._waypoint_test._proofs


def test_the_mean_of_an_ensemble_proves_nothing():
    mean = DistributionalDistance(partly_saturated(0).networks, "mean")
    goals = points(40, 0)
    assert not mean.unchanged_nearby(goals[0], goals, mean(goals[:1], goals)[0], 1.0).any()


@pytest.mark.parametrize("compiled", [None, False])
def test_bounds_that_underflow_prove_nothing(compiled):
    networks = make_networks(2, hidden=64, scale=6.0)
    networks.critics.third.mul_(2_000.0)
    distance = DistributionalDistance(networks, compiled=compiled)
    goals, random = points(150, 2), np.random.default_rng(0)
    start = goals[0]
    steps = distance(start[None], goals)[0]
    near = distance.nearby(start, goals, steps, 1.0)
    starts = (start + random.uniform(-0.0129, 0.0129, (100, 2))).astype(np.float32)
    differs = np.abs(distance(starts, goals) - steps) >= 1.0
    assert differs.any()
    assert not (differs & ~near.undecided(starts)).any()


@pytest.mark.parametrize("compiled", [None, False])
def test_differ_takes_as_many_starts_as_goals(compiled):
    distance = partly_saturated(0, compiled)
    some = points(6, 0)
    with pytest.raises(sgm.InputError, match="6 starts and 1 goals"):
        distance.differ(some, some[:1], np.zeros(6, np.float32), 3.0)
    same = distance.pairs(some, some[::-1])
    np.testing.assert_array_equal(distance.differ(some, some[::-1], np.float32(2), 1.0), np.abs(same - 2) >= 1.0)


def test_a_distance_is_never_asked_about_no_pairs():
    class Plane:
        def embed(self, observations):
            return np.asarray(observations, np.float32)

        def __call__(self, starts, goals):
            return np.abs(starts[:, None] - goals).max(axis=2)

        def pairs(self, starts, goals):
            assert len(starts)
            return np.abs(starts - goals).max(axis=1)

    memory = sgm.SparseGraphicalMemory(Plane(), tau_a=1.0, max_dist=2.0)
    memory.extend(np.zeros((1, 2)))
    assert memory.reached(np.zeros((1, 2)), [0]).all()
