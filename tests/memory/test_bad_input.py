"""Bad input: an error that names the value and what is accepted, and nothing changed."""

from __future__ import annotations

import numpy as np
import pytest

import sgm
from tests.conftest import plane
from tests.memory.test_store import same

SETTINGS = {"tau_p": 1.0, "max_dist": 6.0}


class Points:
    """Euclidean distance between points, with a fault to switch on."""

    def __init__(self):
        self.fault = None
        self.calls = 0

    def embed(self, observations):
        points = np.asarray(observations, np.float32)
        return self.fault(points) if self.fault and self.fault.__name__ == "embed" else points

    def __call__(self, starts, goals):
        self.calls += 1
        steps = np.linalg.norm(starts[:, None] - goals, axis=-1)
        return self.fault(steps) if self.fault and self.fault.__name__ == "call" else steps


def put(value):
    def call(steps):
        steps = steps.copy()
        steps[-1, 0] = value
        return steps

    return call


def shape(array):
    def call(steps):
        return array

    return call


def embedding(function):
    def embed(points):
        return function(points)

    return embed


FAULTS = {
    "NaN": (put(np.nan), "returned nan from start"),
    "infinite": (put(np.inf), "returned inf from start"),
    "negative": (put(-0.5), r"returned -0.5 from start \d+ to goal 0 .* finite number of steps, 0 or more"),
    "transposed shape": (shape(np.zeros((3, 1))), r"returned an array of shape \(3, 1\) for"),
    "one number": (shape(np.float32(3)), r"shape \(\)"),
    "complex": (shape(np.zeros((9, 9), complex)), "dtype complex128"),
    "text": (shape(np.array([["a"]])), "dtype <U1"),
    "NaN embedding": (embedding(lambda p: p * np.nan), "distance.embed returned nan"),
    "flat embedding": (embedding(lambda p: p[:, 0]), r"returned an array of shape \(\d+,\)"),
    "wider embedding": (embedding(lambda p: np.tile(p, 2)), "embeddings of size 4, but this memory holds .* size 2"),
    "fewer embeddings": (embedding(lambda p: p[1:]), r"expected \(20, e\)"),
}


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_distance_is_named_and_changes_nothing(fault, live, tmp_path):
    points, _ = plane(60)
    distance = Points()
    memory = (
        sgm.SparseGraphicalMemory.open(tmp_path / "m.sgm", distance, **SETTINGS)
        if live
        else sgm.SparseGraphicalMemory(distance, **SETTINGS)
    )
    untouched = sgm.SparseGraphicalMemory(Points(), **SETTINGS)
    for each in (memory, untouched):
        each.extend(points[:40])
    distance.fault, reason = FAULTS[fault]
    with pytest.raises(sgm.DistanceError, match=reason):
        memory.extend(points[40:])
    with pytest.raises(sgm.DistanceError):
        memory.plan(points[0], points[1])
    distance.fault = None
    assert same(memory, untouched)
    if live:
        assert same(sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", Points()), untouched)
    for each in (memory, untouched):
        each.extend(points[40:])
    assert same(memory, untouched)
    memory.close()


@pytest.mark.parametrize("average", [0.0, 0.05])
@pytest.mark.parametrize("when", [1, 2, 5, 7])
def test_a_distance_that_raises_in_the_middle_leaves_nothing_half_done(when, average, tmp_path):
    points, _ = plane(200, side=8)
    distance = Points()
    settings = {**SETTINGS, "tau_a": 1.0, "max_dist": 3.0, "feature_average": average}
    memory = sgm.SparseGraphicalMemory.open(tmp_path / "m.sgm", distance, **settings)
    untouched = sgm.SparseGraphicalMemory(Points(), **settings)
    for each in (memory, untouched):
        each.extend(points[:100], episode=3)

    def call(steps):
        if distance.calls >= start + when:
            raise RuntimeError("out of memory")
        return steps

    start, distance.fault = distance.calls, call
    with pytest.raises(RuntimeError, match="out of memory"):
        memory.extend(points[100:], block=20, episode=3)
    distance.fault = None
    assert same(memory, untouched)
    assert same(sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", Points()), untouched)
    for each in (memory, untouched):
        each.extend(points[100:], episode=3)
    assert same(memory, untouched)
    memory.close()


BAD_SETTINGS = [
    ({"criterion": "both"}, "criterion is 'both': expected one of 'two-way', 'incoming'"),
    ({"scope": "all"}, "scope is 'all'"),
    ({"tau_a": -1.0}, "tau_a is -1.0: expected a number from 0"),
    ({"tau_a": float("nan")}, "tau_a is nan"),
    ({"tau_p": -0.1}, "tau_p is -0.1"),
    ({"max_dist": float("inf")}, "max_dist is inf: expected a finite"),
    ({"max_dist": "10"}, "max_dist is '10'"),
    ({"k": 0}, "k is 0: expected a whole number, 1 or more; None keeps every edge"),
    ({"k": 2.5}, "k is 2.5"),
    ({"k": True}, "k is True"),
    ({"feature_average": 1.5}, "feature_average is 1.5: expected a number from 0 to 1"),
    ({"criterion": "uniform"}, "size is None"),
    ({"size": 5}, "goes with criterion"),
    ({"seed": -1}, "seed is -1"),
    ({"keep_observations": 1}, "keep_observations is 1"),
    ({"policy": "third-failure"}, "policy is 'third-failure': expected one of 'guarded'"),
]


@pytest.mark.parametrize(("settings", "reason"), BAD_SETTINGS)
def test_bad_settings_are_named(settings, reason):
    with pytest.raises(sgm.InputError, match=reason):
        sgm.SparseGraphicalMemory(Points(), **settings)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"threshold": 1.2}, r"threshold is 1\.2"),
        ({"threshold": "3"}, "threshold is '3'"),
        ({"max_steps": -1}, "max_steps is -1"),
        ({"max_steps": float("inf")}, "max_steps is inf"),
        ({"guard": "yes"}, "guard is 'yes'"),
    ],
)
def test_bad_parameters_of_a_policy_are_named(parameters, reason):
    with pytest.raises(sgm.InputError, match=reason):
        sgm.Belief(**parameters)


def test_a_policy_may_be_made_of_numpy_scalars_and_saved(tmp_path):
    policy = sgm.Belief(max_steps=np.int64(30), guard=np.True_, threshold=np.float32(0.25))
    sgm.SparseGraphicalMemory(Points(), policy=policy).save(tmp_path / "m.sgm")
    assert sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", Points()).policy == policy


def test_settings_may_be_numpy_scalars():
    memory = sgm.SparseGraphicalMemory(Points(), tau_a=np.float32(2), k=np.int64(3), max_dist=np.int32(4))
    assert (memory.settings.tau_a, memory.settings.k, memory.settings.max_dist) == (2.0, 3, 4.0)


def test_something_that_is_no_distance_or_feature_function_is_refused():
    for distance in (lambda a, b: 0, Points):
        with pytest.raises(sgm.InputError, match="expected an object with embed"):
            sgm.SparseGraphicalMemory(distance)
    with pytest.raises(sgm.InputError, match="features is 3"):
        sgm.SparseGraphicalMemory(Points(), features=3)


def test_a_setting_that_does_not_exist_is_named_for_new_files_too(tmp_path):
    with pytest.raises(sgm.InputError, match="foo is not a setting"):
        sgm.SparseGraphicalMemory.open(tmp_path / "m.sgm", Points(), foo=3)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_memory_says_so():
    memory = sgm.SparseGraphicalMemory(Points())
    assert (
        len(memory) == 0 and memory.largest_part() == 0 and len(memory.parts()) == 0 and len(memory.edges().source) == 0
    )
    for call in (lambda: memory.plan([0, 0], [1, 1]), lambda: memory.localise([[0, 0]])):
        with pytest.raises(sgm.EmptyMemory, match=r"extend\(\) first"):
            call()
    with pytest.raises(sgm.UnknownNode, match="the memory is empty"):
        memory.plan_nodes(0, 0)
    assert issubclass(sgm.EmptyMemory, sgm.NoPath)


@pytest.fixture
def built():
    points, _ = plane(60)
    memory = sgm.SparseGraphicalMemory(Points(), **SETTINGS)
    memory.extend(points)
    return memory


def test_unknown_nodes_and_edges_are_named(built):
    last = len(built) - 1
    for call in (
        lambda: built.plan_nodes(0, 999),
        lambda: built.record(999, 0, True),
        lambda: built.next_nodes([0], [999]),
        lambda: built.reached([[0, 0]], [999]),
    ):
        with pytest.raises(sgm.UnknownNode, match=f"999 is not a node of this memory; its nodes are 0 to {last}"):
            call()
    with pytest.raises(sgm.UnknownNode, match="expected node ids, whole numbers"):
        built.plan_nodes(0.5, 1)
    far = int(np.linalg.norm(built.embeddings - built.embeddings[0], axis=1).argmax())
    with pytest.raises(sgm.UnknownEdge, match=f"no edge leads from node 0 to node {far}"):
        built.record(0, far, False)
    assert built.records == 0


def test_empty_batches_are_fine(built):
    none = np.empty((0, 2))
    assert built.extend(none).added == 0
    assert built.plan_many(none, none) == []
    assert built.record_many([], [], []) == []
    assert len(built.localise(none).node) == 0


def test_arguments_of_the_wrong_form_are_named(built):
    points, _ = plane(60)
    u, v = (int(end[0]) for end in built.edges()[:2])
    for call, reason in (
        (lambda: built.record(u, v, 0.7), "expected True or False"),
        (lambda: built.record_many([u], [v, v], [True]), "shapes"),
        (lambda: built.record_many([u, 999], [v, 0], [True, True]), "999 is not a node"),
        (lambda: built.restore(u), "both ends"),
        (lambda: built.plan([0, 0], [1, 1], by="time"), "by is 'time': expected one of 'distance', 'hops'"),
        (lambda: built.plan_many([[0, 0]], [[1, 1], [2, 2]]), "got 1 starts and 2 goals"),
        (lambda: built.next_nodes([0, 1], [0]), "nodes has shape"),
        (lambda: built.reached([[0, 0]], [0, 1]), "waypoints has shape"),
        (lambda: built.extend(5), "call add"),
        (lambda: built.extend([[0, 0]], block=0), "block is 0"),
        (lambda: built.extend([[0, 0]], episode=[1, 2]), "episode has dtype"),
        (lambda: built.extend([[0, 0]], episode="a"), "episode has dtype"),
        (lambda: built.extend([[0, 0]], block=True), "block is True"),
        (lambda: built.extend([[0, 0]], episode=2**63), "episode"),
        (lambda: built.plan([0, 0], [1, 1], within=float("nan")), "within is nan"),
        (lambda: built.plan([0, 0], [1, 1], within=-1), "within is -1"),
        (lambda: built.reached([[0, 0]], [0], cutoff="a"), "cutoff is 'a'"),
        (lambda: built.localise(np.zeros((2, 5)), embedded=True), "shape \\(2, 5\\)"),
        (lambda: built.attach(np.zeros((1, 3), np.float32), np.array([0])), "to_nodes has shape"),
        (lambda: built.attach(np.full((1, len(built)), np.nan), [0]), "to_nodes holds NaN in row 0"),
        (lambda: built.attach(np.zeros((1, len(built))), np.full((1, len(built)), np.nan)), "goals holds NaN"),
        (lambda: built.steps_to_nodes([[0, np.nan]], embedded=True), "embedded observation 0 holds nan"),
        (lambda: built.save(5), "the path is 5: expected the name of a memory file"),
        (lambda: built.save(b"m.sgm"), "the path is b'm.sgm': expected"),
        (lambda: built.certificate(points, pairs=-1), "pairs is -1"),
        (lambda: built.certificate(points, seed=-1), "seed is -1"),
        (lambda: built.filter(0), "k is 0"),
    ):
        with pytest.raises(sgm.InputError, match=reason):
            call()
    assert built.records == 0 and built.settings.k == 5


def test_how_to_plan_is_checked_for_nobody_too(built):
    none, nowhere = np.empty((0, 2)), np.empty((0, len(built)))
    for call in (
        lambda by: built.plan_many(none, none, by=by),
        lambda by: built.attach(nowhere, nowhere, by=by),
        lambda by: built.next_nodes([], [], by=by),
    ):
        with pytest.raises(sgm.InputError, match="by is 'time'"):
            call("time")
    with pytest.raises(sgm.InputError, match="within is -1"):
        built.plan_many(none, none, within=-1)


def test_a_policy_that_is_none_is_the_callers_mistake_and_not_the_files(built, tmp_path):
    built.save(tmp_path / "m.sgm")
    for read in (sgm.SparseGraphicalMemory.load, sgm.SparseGraphicalMemory.open):
        with pytest.raises(sgm.InputError, match="policy is 5: expected one of 'guarded'"):
            read(tmp_path / "m.sgm", Points(), policy=5)


def test_a_full_uniform_memory_still_refuses_what_it_could_not_keep():
    memory = sgm.SparseGraphicalMemory(Points(), criterion="uniform", size=3, keep_observations=True)
    memory.extend(np.zeros((5, 2)))
    assert memory.extend(np.ones((4, 2))).dropped == 4
    for observations, reason in (
        (np.zeros((2, 3)), "embeddings of size 3"),
        (np.full((2, 2), np.nan), "returned nan"),
        (np.zeros((2, 2), np.float32), "dtype float32 .* do not fit those kept"),
    ):
        with pytest.raises(sgm.InputError, match=reason):
            memory.extend(observations)
    assert len(memory.assignment) == 9


def test_observations_that_do_not_fit_the_kept_ones_are_refused():
    class Any(Points):
        def embed(self, observations):
            return np.asarray(observations, np.float32).reshape(len(observations), -1)[:, :2]

    memory = sgm.SparseGraphicalMemory(Any(), keep_observations=True, **SETTINGS)
    memory.extend(np.zeros((3, 2)))
    with pytest.raises(sgm.InputError, match=r"shape \(3,\) do not fit those kept: dtype float64, shape \(2,\)"):
        memory.extend(np.ones((3, 3)))
    assert len(memory.assignment) == 3


def test_tables_that_are_none_are_refused():
    for matrix, reason in (
        (np.zeros((2, 3)), "square"),
        ([[0, -1], [1, 0]], r"holds -1.0 at \[0, 1\]"),
        ([[0, np.nan], [1, 0]], "holds nan"),
        ([["a"]], "array of numbers"),
        ([[1, 2], [3]], "array of numbers"),
    ):
        with pytest.raises(sgm.DistanceError, match=reason):
            sgm.TableDistance(matrix)
    table = sgm.TableDistance(np.zeros((3, 3)))
    for rows, reason in (([3], "row 3"), ([-1], "row -1"), ([0.5], "row 0.5"), ([[1, 2]], "row numbers")):
        with pytest.raises(sgm.InputError, match=reason):
            table.embed(rows)
    memory = sgm.SparseGraphicalMemory(table, criterion="none")
    memory.extend([0, 1, 2])
    with pytest.raises(sgm.InputError, match="an embedding is not in the table: rows are whole numbers from 0 to 2"):
        memory.localise([[3]], embedded=True)
