"""Settings from data: what is proposed follows from the distance, the controller and connectivity, and says why."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

import sgm
from sgm.errors import MemoryWarning
from sgm.memory.choose_measures import Rows, measure_reach
from sgm.memory.choose_search import Search


class Plane:
    """Steps of length 1 in the plane; noise by pair, clipped at `far`."""

    def __init__(self, far=None, level=0.0, noise=None):
        self.limit, self.level = math.inf if far is None else far, level
        if far is not None:
            self.far = far
        if noise is not None:
            self.noise = noise

    def embed(self, observations):
        return np.asarray(observations, np.float32)[:, :2]

    def __call__(self, starts, goals):
        exact = np.linalg.norm(starts[:, None] - goals, axis=2)
        odd = np.sin(9173 * starts.sum(axis=1))[:, None] * np.cos(7919 * goals.sum(axis=1))
        return np.clip(exact + 1.4 * self.level * odd, 0, self.limit)


def walks(number=20, length=100, size=20.0, hold=8, seed=0):
    """Random walks in a square: full speed, a direction held for some steps."""
    random = np.random.default_rng(seed)
    places, actions = [], []
    for _ in range(number):
        here = random.uniform(0, size, 2)
        for step in range(length):
            if step % hold == 0:
                angle = random.uniform(0, 2 * np.pi)
                action = np.array([np.cos(angle), np.sin(angle)])
            places.append(here)
            actions.append(action)
            here = np.clip(here + action, 0, size)
    return sgm.Experience(np.array(places, np.float32), np.repeat(np.arange(number), length), np.array(actions))


DATA = walks()


def choose(distance, data=DATA, controller=None, **settings):
    return sgm.choose(data, distance, controller, progress=False, **settings)


def straight(observations, targets):
    gap = np.asarray(targets) - observations
    return gap / np.maximum(np.linalg.norm(gap, axis=1, keepdims=True), 1e-6)


def test_a_clipped_distance_gives_a_connected_memory_with_reasons():
    choice = choose(Plane(far=15.0, level=0.2))
    assert choice.max_dist == pytest.approx(5.0, rel=1e-3) and choice.tau_a == pytest.approx(2.5, rel=1e-3)
    assert choice.connected >= 0.98 and 10 < choice.nodes < 400 and choice.tau_p is None
    memory = choice.memory
    assert memory.settings.max_dist == choice.max_dist and memory.settings.k == choice.k
    assert memory.observations.shape == (choice.nodes, 2) and "one_step" in memory.attributes
    text = repr(choice)
    assert "a third of the 15 steps" in text and "Noise of the distance" in text and "k " in text
    assert json.loads(json.dumps(choice.asdict()))["nodes"] == choice.nodes


def test_the_same_memory_comes_from_the_settings_and_the_same_choice_from_the_seed():
    choice, again = choose(Plane(far=15.0)), choose(Plane(far=15.0))
    memory = sgm.SparseGraphicalMemory(Plane(far=15.0), **choice.settings)
    memory.extend(DATA)
    memory = memory.consolidated(DATA)
    assert np.array_equal(memory.embeddings, choice.memory.embeddings)
    assert all(np.array_equal(a, b) for a, b in zip(again.memory.edges(), choice.memory.edges(), strict=True))
    for other in (memory, again.memory):
        assert np.array_equal(other.nodes, choice.memory.nodes)


@pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")  # there is room for few nodes
def test_without_far_maxdist_is_the_papers_and_noise_raises_it():
    few = DATA[::8]
    assert choose(Plane(), few).max_dist == 10.0
    assert choose(Plane(noise=5.0), few).max_dist == 15.0
    assert choose(Plane(far=1e9), few).max_dist == 10.0  # clipped nowhere that the data reaches


def test_a_known_reach_and_given_settings_are_kept():
    assert choose(Plane(far=15.0), reach=6.0).max_dist == pytest.approx(choose_over(6.0), rel=0.2)
    choice = choose(Plane(), max_dist=6.0, tau_a=2.0, k=None)
    assert (choice.max_dist, choice.tau_a, choice.k) == (6.0, 2.0, None)
    assert sum("given" in reason for reason in choice.why) == 3


def choose_over(steps):
    """What the distance says, in the middle, of observations so many steps apart."""
    rows = np.arange(len(DATA) - int(steps))
    rows = rows[DATA.episodes[rows] == DATA.episodes[rows + int(steps)]]
    places = DATA.observations
    return float(np.median(np.linalg.norm(places[rows + int(steps)] - places[rows], axis=1)))


def test_a_controller_is_good_as_far_as_its_actions_agree_with_the_data():
    def near_only(observations, targets):
        """Right for targets within two steps, at random beyond."""
        far = np.linalg.norm(targets - observations, axis=1) > 2.2
        wild = np.random.default_rng(0).normal(size=targets.shape)
        return np.where(far[:, None], wild, straight(observations, targets))

    rows = Rows.of(walks(size=300.0))
    whole, near = measure_reach(rows, straight, 0), measure_reach(rows, near_only, 0)
    assert whole.at_least and whole.steps >= 8
    assert not near.at_least and near.steps in (2, 3)
    assert measure_reach(rows, lambda o, t: -straight(o, t), 0) is None
    choice = choose(Plane(far=15.0), controller=near_only)
    assert choice.reach == near.steps and choice.tried[0].max_dist == pytest.approx(near.steps, rel=0.2)
    assert "as far as the controller is good" in repr(choice)


@pytest.mark.parametrize("hold", [1, 10])
def test_controllers_that_know_nothing_are_not_good_where_all_actions_are_positive(hold):
    random = np.random.default_rng(0)
    actions = np.repeat(random.random((6_000 // hold, 2)), hold, axis=0)
    places = np.cumsum(actions - 0.5, axis=0) - (
        actions - 0.5
    )  # both wheels forwards: the mean action stays where it is
    rows = Rows.of(sgm.Experience(places, np.arange(6_000) // 100, actions))
    assert measure_reach(rows, lambda seen, goals: np.full((len(seen), 2), 0.5), 0) is None
    assert measure_reach(rows, lambda seen, goals: actions.mean(axis=0) + np.zeros((len(seen), 2)), 0) is None
    assert measure_reach(rows, lambda seen, goals: random.random((len(seen), 2)), 0) is None
    assert measure_reach(rows, lambda seen, goals: 0.5 + 0.4 * straight(seen, goals), 0).steps >= min(hold, 8)


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        (lambda seen: np.full((len(seen), 2), np.nan), "not finite"),
        (lambda seen: np.zeros((len(seen), 3)), r"returned float64 of shape \(512, 3\)"),
        (lambda seen: np.zeros(2), r"expected \(512, 2\)"),
    ],
)
def test_what_is_no_action_of_a_controller_is_refused(actions, words):
    with pytest.raises(sgm.InputError, match=words):
        choose(Plane(far=15.0), controller=lambda seen, goals: actions(seen))


def test_lags_that_a_report_has_no_number_for_are_left_out():
    report = SimpleNamespace(lags=[1, 2, 4], controller=np.array([0.1, np.nan, 0.2]), constant=np.ones(3))
    assert measure_reach(Rows.of(DATA), report, 0).steps == 4
    report.controller = np.full(3, np.nan)
    assert measure_reach(Rows.of(DATA), report, 0) is None


def test_maxdist_stays_below_where_the_distance_is_clipped_however_far_the_controller_is_good():
    data = walks(number=5, size=100.0, hold=100)  # straight lines, whose length the distance tells up to 15 steps only

    def begin(controller=None, reach=None, max_dist=None):
        search = Search(Rows.of(data), Plane(far=15.0), 1_000, 0.98, 0)
        search.begin(controller, reach, max_dist, None)
        return search

    search = begin(straight)
    assert search.reach >= 12 and search.max_dist == pytest.approx(7.5, rel=1e-3)
    assert any("half of the 15 steps at which the distance is clipped" in reason for reason in search.why)
    assert begin(reach=64.0).max_dist == pytest.approx(7.5, rel=1e-3)
    assert begin(max_dist=12.0).max_dist == 12.0  # who asks for it gets it


@pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")  # there is room for few nodes
def test_maxdist_is_below_half_of_far_even_where_the_data_does_not_reach_it():
    small = walks(number=10, length=50, size=1.0)  # 1.41 steps from corner to corner
    choice = choose(Plane(far=2.0), small)
    assert choice.tried[0].max_dist == 1.0 and any("half of the 2 steps" in reason for reason in choice.why)


def test_a_maxdist_over_half_of_far_is_at_most_065_of_it_and_warned_about():
    line = np.stack([8.5 * np.arange(40), np.zeros(40)], axis=1)  # falls apart below 8.5 steps
    with pytest.warns(MemoryWarning, match="is over half of the 15 steps"):
        assert choose(Plane(far=15.0), line, reach=64.0).max_dist == pytest.approx(0.65 * 15)
    with pytest.warns(MemoryWarning, match="strongly connected") as heard:  # many of the line are merged
        assert choose(Plane(far=15.0), line, max_dist=12.0).max_dist == 12.0  # who asks for it gets it
    assert not any("over half" in str(each.message) for each in heard)


@pytest.mark.parametrize(("thinned", "least"), [(1, 0.9), (5, 0.8)])
def test_plans_count_the_steps_between_nodes_and_not_between_their_nearest_observations(thinned, least):
    memory = choose(Plane(far=15.0), data=DATA[::thinned]).memory
    edges, places = memory.edges(), memory.embeddings
    apart = np.linalg.norm(places[edges.source] - places[edges.target], axis=1)
    assert (edges.weight >= np.minimum(apart, int(memory.settings.max_dist)) - 1e-4).all()
    plan = memory.plan([1.0, 1.0], [19.0, 19.0])
    assert 18 * 2**0.5 * least <= plan.length <= 18 * 2**0.5 * 1.5


class Torn(Plane):
    """Steps in the plane, but clipped from one half to the other: an error that episodes contradict."""

    def __call__(self, starts, goals):
        return np.where((starts[:, :1] < 10) != (goals[:, 0] < 10), self.limit, super().__call__(starts, goals))


def test_edges_in_time_are_no_longer_than_maxdist_where_the_distance_is_clipped():
    choice = choose(Torn(far=15.0, noise=0.3), max_dist=5.5, k=None)
    edges, places = choice.memory.edges(), choice.memory.embeddings
    across = (places[edges.source, 0] < 10) != (places[edges.target, 0] < 10)
    assert across.any() and (edges.weight[across] == 5).all() and edges.weight.max() <= 5.5
    assert any("edges in time count as MaxDist" in reason for reason in choice.why)


@pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")  # over ten steps the distance varies much
def test_gaps_in_the_data_that_are_longer_than_maxdist_are_told():
    sparse = DATA[::10]
    choice = choose(Plane(), data=sparse, max_dist=6.0, k=None)
    assert choice.memory.edges().weight.max() == 10
    assert any("are longer than MaxDist, 6" in reason for reason in choice.why)


def test_edges_in_time_of_more_steps_than_a_memory_keeps_are_told():
    class Slow(Plane):
        def __call__(self, starts, goals):
            return 100 * super().__call__(starts, goals)

    choice = choose(Slow(), max_dist=600.0, k=None)
    assert any("edges in time count as 255 steps" in reason for reason in choice.why)


def test_noise_does_not_take_maxdist_beyond_what_the_controller_is_good_over():
    choice = choose(Plane(far=15.0, noise=1.5), reach=2.0)
    assert choice.tried[0].max_dist == pytest.approx(choose_over(2.0), rel=0.2)
    assert any("the controller is good over no more" in reason for reason in choice.why)
    assert choose(Plane(far=15.0, noise=2.5)).max_dist == pytest.approx(7.5, rel=1e-3)


def test_discrete_actions_are_compared_too():
    turned = sgm.Experience(
        DATA.observations, DATA.episodes, (np.arctan2(*DATA.actions.T[::-1]) // (np.pi / 2)).astype(np.int64)
    )

    def act(observations, targets):
        return (np.arctan2(*(targets - observations).T[::-1]) // (np.pi / 2)).astype(np.int64)

    assert measure_reach(Rows.of(turned), act, 0).steps >= 5


def test_a_report_of_held_out_episodes_tells_the_reach():
    report = SimpleNamespace(
        measure="accuracy", lags=[1, 2, 4, 8], controller=np.array([0.9, 0.85, 0.8, 0.3]), constant=np.full(4, 0.25)
    )
    assert measure_reach(Rows.of(DATA), report, 0).steps == 4
    report.measure, report.controller, report.constant = "error", np.array([0.1, 0.2, 0.9, 0.9]), np.ones(4)
    assert measure_reach(Rows.of(DATA), report, 0).steps == 2


def test_the_number_of_nodes_has_an_end_as_far_as_maxdist_allows():
    dense = choose(Plane(), DATA[::2], max_dist=6.0)
    few = choose(Plane(), DATA[::2], max_dist=6.0, nodes=dense.nodes - 1)
    assert dense.tau_a == 3.0 < few.tau_a <= 3.6 and few.nodes < dense.nodes
    none = choose(Plane(), DATA[::2], max_dist=6.0, nodes=2)
    assert none.nodes > 2 and any("Over 2 nodes" in reason for reason in none.why)


def test_data_that_falls_apart_is_warned_about_and_says_so():
    apart = np.concatenate([DATA.observations[:300:4] + 1000 * place for place in range(6)])
    with pytest.warns(MemoryWarning, match="largest strongly connected component"):
        choice = choose(Plane(), data=apart)
    assert choice.connected < 0.5 and any("No graph had 98%" in reason for reason in choice.why)
    assert len({each.max_dist for each in choice.tried}) == 3
    assert math.isnan(choice.noise) and choice.asdict()["noise"] is None


@pytest.mark.parametrize(
    ("data", "distance", "settings", "words"),
    [
        (walks(2, 50, size=0.0), Plane(far=15.0), {}, ["hardly any observations apart", "0 steps", "Collect data"]),
        (
            DATA[:200],
            Plane(far=15.0),
            {"max_dist": 14.0, "tau_a": 12.0},
            ["There are only", "smaller max_dist (now 14)"],
        ),
        (DATA[::4], Plane(far=15.0, noise=9.0), {}, ["very noisy: 9 steps over one step", "by hand"]),
        (
            DATA,
            Plane(far=15.0, noise=2.5),
            {"reach": 2.0},
            ["noisy: 2.5 steps over one step, for edges of up to 2 "],
        ),
        (
            np.concatenate([DATA.observations[::4] + place for place in (0, 0, 0, 1000)]),
            Plane(far=15.0),
            {"max_dist": 5.0},
            ["pieces (strongly", "raise max_dist"],
        ),
    ],
)
def test_what_nothing_good_can_be_chosen_from_is_warned_about(data, distance, settings, words):
    with pytest.warns(MemoryWarning) as heard:
        choose(distance, data, **settings)
    (said,) = [str(each.message) for each in heard]
    assert all(word in said for word in words), said


def test_long_data_is_thinned_by_steps_and_by_episodes():
    choice = choose(Plane(far=15.0), most=500, sample=200)
    assert 350 <= len(choice.rows) <= 500
    gaps = np.diff(choice.rows)[np.diff(DATA.episodes[choice.rows]) == 0]
    assert set(gaps.tolist()) == {2}  # at most half of MaxDist, 5; the rest are whole episodes
    assert len(np.unique(DATA.episodes[choice.rows])) < 20
    assert "of 2,000 observations" in repr(choice)
    assert choice.memory.assignment.shape == choice.rows.shape


def test_achieved_goals_and_positions_become_attributes():
    data = sgm.Experience(
        DATA.observations, DATA.episodes, DATA.actions, DATA.observations[:, ::-1], positions=DATA.observations * 2
    )
    memory = choose(Plane(far=15.0), data=data, most=500).memory
    assert np.array_equal(memory.attributes["achieved_goal"], memory.embeddings[:, ::-1])
    assert np.array_equal(memory.attributes["position"], memory.embeddings * 2)
    with pytest.raises(sgm.InputError, match="keeps no observations"):
        _ = memory.observations


def test_what_cannot_be_chosen_from_is_named():
    with pytest.raises(sgm.InputError, match="got 0 observations"):
        choose(Plane(), data=np.empty((0, 2)))
    with pytest.raises(sgm.InputError, match="distance None"):
        choose(None)
    with pytest.raises(sgm.InputError, match="distance is 'x': expected a distance"):
        choose("x")
    with pytest.raises(sgm.InputError, match="controller is 'x': expected a function"):
        choose(Plane(), controller="x")
    with pytest.raises(sgm.InputError, match="nodes is 0"):
        choose(Plane(), nodes=0)


def test_at_most_so_many_observations_are_taken_even_of_one_long_episode():
    for most in (5, 30):
        rows = Rows.of(DATA).thinned(most, 5)
        assert 0 < len(rows) <= most and len(np.unique(rows)) == len(rows)
    long = sgm.Experience(DATA.observations, np.zeros(len(DATA), np.int64))
    rows = Rows.of(long).thinned(100, 5)
    assert len(rows) == 100 and rows[-1] > 1_900  # from all over


@pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")
def test_episodes_of_one_observation_are_not_called_no_episodes():
    choice = choose(Plane(), sgm.Experience(DATA.observations[:600], np.arange(600)))
    assert any("no episodes of two observations or more" in reason for reason in choice.why)


def test_noise_of_rows_is_told_as_such_and_each_sentence_begins_with_a_capital():
    with pytest.warns(MemoryWarning) as heard:
        choose(Plane(level=6.0, noise=0.0), DATA[::4], max_dist=3.0)
    (said,) = [str(each.message) for each in heard]
    assert said.startswith("The distance is very noisy: after one step, distances to other observations have changed")
    assert all(sentence[0].isupper() for sentence in said.split(". ")), said
