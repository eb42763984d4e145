"""Choosing a threshold: the node count asked for, the best connected graph, and the memory one would build by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

import sgm
from tests.memory.test_store import same

SIDE, MAX_DIST = 20.0, 5.0
pytestmark = pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")  # many graphs here are hardly connected


class Plane:
    """Euclidean distance, longer upwards than downwards, and a count of what was embedded."""

    fingerprint = "plane-1"

    def __init__(self):
        self.embedded = 0

    def embed(self, observations):
        self.embedded += len(observations)
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        gap = goals - starts[:, None]
        return np.hypot(gap[..., 0], gap[..., 1]) + 0.3 * np.maximum(gap[..., 1], 0)


def points(n=800, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, SIDE, (n, 2)).astype(np.float32)


def double(observations):
    return 2 * np.asarray(observations, np.float32)


def choose(observations, nodes, **settings) -> sgm.ThresholdChoice:
    return sgm.choose_threshold(Plane(), observations, nodes, **{"max_dist": MAX_DIST, **settings})


def rebuilt(choice, observations, episode=None, features=None) -> sgm.SparseGraphicalMemory:
    """The memory made by hand from the settings and the order of a choice."""
    how = choice.memory.settings.asdict()
    memory = sgm.SparseGraphicalMemory(Plane(), features, policy=choice.memory.policy, **how)
    memory.extend(observations[choice.order], episode=None if episode is None else episode[choice.order])
    return memory


CASES = {
    "uniform": ({"criterion": "uniform"}, "size"),
    "perceptual": ({"criterion": "perceptual"}, "tau_p"),
    "perceptual features": ({"criterion": "perceptual", "features": double}, "tau_p"),
    "incoming": ({"criterion": "incoming"}, "tau_a"),
    "outgoing": ({"criterion": "outgoing"}, "tau_a"),
    "two-way": ({"criterion": "two-way"}, "tau_a"),
    "two-way, Eq. 3": ({"criterion": "two-way", "scope": "memory"}, "tau_a"),
    "two-way, given tau_p": ({"criterion": "two-way", "tau_p": 3.0, "features": double}, "tau_a"),
    "two-way, auto tau_p": ({"criterion": "two-way", "tau_p": "auto", "features": double}, "tau_a"),
}


@pytest.mark.parametrize("case", CASES)
def test_every_criterion_gives_the_nodes_asked_for_and_the_memory_one_would_build(case, tmp_path):
    settings, name = CASES[case]
    observations = points()
    choice = choose(observations, 160, **settings)
    assert choice.within_tolerance and 152 <= choice.nodes == len(choice.memory) <= 168
    assert choice.name == name and choice.value == getattr(choice.memory.settings, name)
    assert choice.edges == len(choice.memory.edges().source)
    assert choice.largest_part == choice.memory.largest_part()
    assert same(choice.memory, rebuilt(choice, observations, features=settings.get("features")))

    choice.memory.save(tmp_path / "m.sgm")
    loaded = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", Plane(), settings.get("features"))
    assert same(loaded, choice.memory) and loaded.fingerprint == "plane-1"
    loaded.extend(points(50, seed=1))


def test_nodes_lead_back_to_the_given_observations():
    observations = points()
    choice = choose(observations, 160, criterion="uniform", orders=5)
    assert sorted(choice.order) == list(range(800))
    assert choice.stream.tolist() == choice.order[choice.memory.nodes].tolist()
    np.testing.assert_array_equal(observations[choice.stream], choice.memory.embeddings)
    choice.memory.localise(points(5, seed=1))


def test_observations_are_embedded_once():
    distance, seen = Plane(), []

    def features(observations):
        seen.append(len(observations))
        return double(observations)

    choice = sgm.choose_threshold(distance, points(), 100, features=features, tau_p="auto", max_dist=MAX_DIST)
    assert len(choice.tried) > 1
    assert distance.embedded == sum(seen) == 800
    assert choice.memory.distance is distance


def test_the_seed_decides_everything():
    # Few long edges: hardly any graph is connected, so every order is tried.
    choices = [choose(points(), 160, criterion="perceptual", k=2, seed=seed) for seed in (3, 3, 4)]
    assert same(choices[0].memory, choices[1].memory) and choices[0].tried == choices[1].tried
    assert choices[0].tried != choices[2].tried
    assert {attempt.redrawn for attempt in choices[0].tried} == set(range(10))


def test_the_given_order_is_kept_if_it_does():
    choice = choose(points(), 160)
    assert choice.largest_part == choice.nodes
    assert choice.order.tolist() == list(range(800))
    assert [attempt.redrawn for attempt in choice.tried] == [0] * len(choice.tried)


@pytest.mark.parametrize("criterion", ["uniform", "perceptual", "two-way"])
def test_of_the_hits_the_best_connected_is_chosen_then_the_closest(criterion):
    choice = choose(points(), 160, criterion=criterion, k=2)
    hits = [attempt for attempt in choice.tried if attempt.within_tolerance]
    assert len(hits) > 1
    assert choice.chosen in hits
    share = choice.largest_part / choice.nodes
    assert share == max(hit.largest_part / hit.nodes for hit in hits)
    assert share > min(hit.largest_part / hit.nodes for hit in hits)
    equals = [hit for hit in hits if hit.largest_part / hit.nodes == share]
    assert abs(choice.nodes - 160) == min(abs(hit.nodes - 160) for hit in equals)


def grid(side=12) -> np.ndarray:
    """Points in rows: neighbours are exactly 1 apart, so the count is 144, 72 or 36 unless the order is mixed."""
    return np.stack(np.divmod(np.arange(side * side), side), axis=1).astype(np.float32)


def test_the_order_is_redrawn_when_the_count_jumps_over_the_target():
    choice = choose(grid(), 52, criterion="perceptual")
    assert choice.within_tolerance and choice.chosen.redrawn > 0
    assert {72, 36} <= {attempt.nodes for attempt in choice.tried if attempt.redrawn == 0}
    assert same(choice.memory, rebuilt(choice, grid()))


def test_a_target_inside_a_jump_gives_the_closest_and_a_warning():
    with pytest.warns(UserWarning, match="The count jumps over it: allow more orders or a larger tolerance"):
        choice = choose(grid(), 52, criterion="perceptual", orders=1)
    assert not choice.within_tolerance and choice.nodes == 36


@pytest.mark.parametrize(("scope", "orders"), [("neighbors", 1), ("memory", 1), ("neighbors", 5), ("memory", 5)])
def test_tau_p_found_automatically_is_as_strong_as_the_consistency(scope, orders):
    observations = points()
    choice = choose(observations, 160, tau_p="auto", scope=scope, k=2, connected=1.0, orders=orders)
    assert (choice.chosen.redrawn > 0) == (orders > 1)
    found = choice.memory.settings
    alone = {}
    for criterion, tau_p in (("perceptual", found.tau_p), ("two-way", None)):
        memory = sgm.SparseGraphicalMemory(
            Plane(), criterion=criterion, tau_a=found.tau_a, tau_p=tau_p, max_dist=MAX_DIST, scope=scope
        )
        memory.extend(observations[choice.order])
        alone[criterion] = len(memory)
    assert 0.94 < alone["perceptual"] / alone["two-way"] < 1.06
    assert max(alone.values()) < choice.nodes


def test_a_tau_p_that_cannot_be_as_strong_is_said():
    def coarse(observations):
        return np.floor(np.asarray(observations)[:, :1] / 5)

    with pytest.warns(
        UserWarning, match="tau_p=.* is not as strong as tau_a=.*: alone it keeps .* Give tau_p yourself"
    ):
        choose(points(), 160, tau_p="auto", features=coarse, orders=2, tolerance=0.2)


def test_graphs_that_grow_too_large_are_given_up():
    choice = choose(points(4000), 20, max_dist=10.0)
    given_up = [attempt for attempt in choice.tried if not attempt.complete]
    assert given_up and all(20 < attempt.nodes < 4000 for attempt in given_up)
    assert all(attempt.largest_part == attempt.edges == 0 for attempt in given_up)


def test_episodes_move_whole_and_join_as_they_did():
    observations = points()
    episode = np.repeat(np.arange(40), 20)
    choice = choose(observations, 160, criterion="uniform", k=2, episode=episode, seed=1)
    assert choice.chosen.redrawn > 0
    pieces = choice.order.reshape(40, 20)
    assert (np.diff(pieces, axis=1) == 1).all() and (pieces[:, 0] % 20 == 0).all()
    assert same(choice.memory, rebuilt(choice, observations, episode))


def test_a_single_episode_has_only_its_own_order():
    choice = choose(points(), 160, criterion="uniform", k=1, episode=0)
    assert len(choice.tried) == 1 and choice.largest_part < choice.nodes


def test_observations_can_be_kept():
    observations = points()
    choice = choose(observations, 160, criterion="uniform", k=2, keep_observations=True)
    np.testing.assert_array_equal(choice.memory.observations, observations[choice.stream])
    choice.memory.extend(points(5, seed=1))


def test_policy_and_averaging_are_those_of_the_memory():
    observations = points(300)
    choice = choose(
        observations,
        60,
        criterion="perceptual",
        feature_average=0.05,
        policy="belief",
        tolerance=0.1,
        keep_observations=True,
    )
    assert choice.memory.policy == sgm.Belief().bound_to(MAX_DIST)
    by_hand = sgm.SparseGraphicalMemory(Plane(), policy="belief", **choice.memory.settings.asdict())
    by_hand.extend(observations[choice.order])
    assert same(choice.memory, by_hand)


def test_a_choice_can_be_written_down():
    choice = choose(points(), 160, tau_p="auto")
    report = json.loads(json.dumps(choice.asdict()))
    assert report["name"] == "tau_a" and report["value"] == choice.value and report["asked"] == 160
    assert report["nodes"] == choice.nodes and report["largest_part"] == choice.largest_part
    assert len(report["tried"]) == len(choice.tried)
    assert report["settings"]["tau_a"] == choice.value and (report["tolerance"], report["seed"]) == (0.05, 0)


def test_as_many_nodes_as_observations_is_no_threshold_at_all():
    choice = choose(points(300), 300, tolerance=0.0)
    assert choice.nodes == 300
    assert choose(points(1), 1).nodes == 1


def test_a_single_node_can_be_asked_for():
    assert choose(points(300), 1, scope="memory", max_dist=100.0).nodes == 1


def test_equal_observations_give_what_there_is_and_a_warning():
    with pytest.warns(UserWarning, match=r"asked for 10 nodes within 5.0%; .* No tau_p keeps more: .* equal\?"):
        choice = choose(np.zeros((50, 2)), 10, criterion="perceptual")
    assert not choice.within_tolerance and choice.nodes == 1


def test_a_count_that_no_threshold_reaches_gives_the_closest_and_a_warning():
    with pytest.warns(UserWarning, match="asked for 20 nodes .* No tau_a keeps fewer: raise max_dist or tau_p"):
        choice = choose(points(400), 20, tau_p=1.0)
    assert not choice.within_tolerance
    assert choice.nodes == len(choice.memory) > 40 and choice.largest_part == choice.memory.largest_part()
    assert same(choice.memory, rebuilt(choice, points(400)))


def test_progress_of_embedding_and_building_is_shown_unless_it_is_switched_off(capsys):
    choose(points(300), 60, progress=False)
    assert capsys.readouterr().err == ""
    choose(points(300), 60)
    shown = capsys.readouterr().err
    assert "embed" in shown and "choose" in shown


def test_a_choice_is_shown_in_a_few_lines():
    choice = choose(points(300), 60, progress=False)
    shown = repr(choice)
    assert shown.count("\n") < 5 and max(map(len, shown.splitlines())) < 120
    assert f"tau_a={choice.value:.6g}: {choice.nodes} nodes (asked for 60 ± 5%), {choice.edges} edges" in shown
    assert repr(choice.memory) in shown


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"nodes": 301}, "nodes is 301, but there are 300 observations"),
        ({"nodes": 0}, "nodes is 0: expected a whole number, 1 or more"),
        ({"nodes": 2.5}, "nodes is 2.5"),
        ({"criterion": "none"}, "'none': expected one of 'two-way', .* keeps every observation"),
        ({"criterion": "sparse"}, "criterion is 'sparse': expected one of 'two-way'"),
        ({"criterion": "perceptual", "tau_p": 1.0}, "tau_p is 1.0: .* with 'perceptual' leave it out"),
        ({"criterion": "uniform", "tau_p": "auto"}, "with 'uniform' leave it out"),
        ({"tau_p": "some"}, "tau_p is 'some': expected a number, None .* or 'auto'"),
        ({"tau_p": -1.0}, "tau_p is -1.0"),
        ({"tolerance": -0.1}, "tolerance is -0.1"),
        ({"orders": 0}, "orders is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"scope": "all"}, "scope is 'all'"),
        ({"policy": "none"}, "policy is 'none'"),
        ({"distance": None}, "distance is None"),
        ({"episode": [0, 1]}, "episode has dtype"),
        ({"episode": np.arange(300) % 2}, "episode 0 stops and continues later"),
        ({"observations": 5}, "expected a batch"),
        ({"observations": np.zeros((0, 2))}, "nodes is 60, but there are 0 observations"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_built(settings, reason):
    distance = Plane()
    arguments = {"distance": distance, "observations": points(300), "nodes": 60, **settings}
    with pytest.raises(sgm.InputError, match=reason):
        sgm.choose_threshold(**arguments)
    assert distance.embedded == 0
