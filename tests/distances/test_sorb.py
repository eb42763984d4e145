"""Distances from distributional critics: the table, the pairs, the file."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from hypothesis import example, given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import sgm  # noqa: E402
from sgm.controllers.d3pg import Actor  # noqa: E402
from sgm.distances.sorb import DistributionalDistance, GoalNetworks, Shape  # noqa: E402
from sgm.errors import InputError, MissingExtra, StoreError  # noqa: E402


def make_networks(seed: int = 0, size: int = 2, hidden: int = 64, scale: float = 3.0) -> GoalNetworks:
    """Random networks, `scale`d so that distances differ, with biases so that units switch inside the unit square."""
    generator = torch.Generator().manual_seed(seed)

    def layers(count: int, shape: Shape):
        flat = torch.empty(count, shape.size)
        shape.initialize(flat, generator)
        return shape.split(flat + torch.randn(flat.shape, generator=generator) * scale / hidden**0.5)

    return GoalNetworks(layers(1, Shape(2 * size, hidden, 0, 2)), layers(3, Shape(2 * size, hidden, 2, 20)), {"a": 1})


def points(count: int, seed: int = 0, size: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).random((count, size)).astype(np.float32)


def all_pairs(distance: DistributionalDistance, starts: np.ndarray, goals: np.ndarray) -> np.ndarray:
    rows, columns = np.indices((len(starts), len(goals))).reshape(2, -1)
    return distance.pairs(starts[rows], goals[columns]).reshape(len(starts), len(goals))


def rounding(scale: float) -> float:
    """What single precision may cost, steps: of either computation 0.0023 was seen at scale 10 (seed 203)."""
    return max(2e-3, 1e-3 * scale)


@given(st.integers(0, 1000), st.integers(1, 90), st.integers(1, 90), st.sampled_from([0.1, 3.0, 10.0]))
def test_the_table_holds_what_the_networks_say_pair_by_pair(seed, starts, goals, scale):
    distance = DistributionalDistance(make_networks(seed, scale=scale))
    a, b = points(starts, seed), points(goals, seed + 1)
    table = distance(a, b)
    assert table.shape == (starts, goals)
    assert table.dtype == np.float32
    np.testing.assert_allclose(table, all_pairs(distance, a, b), rtol=0, atol=rounding(scale))


def test_a_large_table_is_put_together_from_groups_of_tiles():
    distance = DistributionalDistance(make_networks(hidden=32))
    a, b = points(140), points(1500, 1)
    assert distance._tiles.worthwhile(len(a), len(b))
    np.testing.assert_allclose(distance(a, b), all_pairs(distance, a, b), rtol=0, atol=2e-3)


@example(203, 37, 66, 10.0)
@given(st.integers(0, 1000), st.integers(1, 90), st.integers(1, 90), st.sampled_from([0.1, 3.0, 10.0]))
def test_tiles_hold_what_the_networks_say_pair_by_pair(seed, starts, goals, scale):
    distance = DistributionalDistance(make_networks(seed, scale=scale))
    a, b = points(starts, seed), points(goals, seed + 1)
    with torch.inference_mode():
        table = distance._tiles(a, b, distance._combine)
    np.testing.assert_allclose(table, all_pairs(distance, a, b), rtol=0, atol=rounding(scale))


@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_the_table_is_right_for_observations_of_any_size(size):
    distance = DistributionalDistance(make_networks(size=size))
    a = points(70, size=size)
    np.testing.assert_allclose(distance(a, a), all_pairs(distance, a, a), rtol=0, atol=2e-3)


def test_equal_points_and_points_far_outside_the_training_range_are_no_special_case():
    distance = DistributionalDistance(make_networks())
    a = np.concatenate([np.full((50, 2), 0.5, np.float32), 100 * points(30)])
    np.testing.assert_allclose(distance(a, a), all_pairs(distance, a, a), rtol=0, atol=2e-3)


def test_pairs_agree_with_the_definition():
    networks = make_networks()
    distance = DistributionalDistance(networks)
    a, b = points(9), points(9, 1)
    x = torch.tensor(np.hstack([a, b]))

    def mlp(layers, index, extra):
        hidden = torch.relu(x @ layers.first[index, :-1] + layers.first[index, -1])
        hidden = torch.cat([hidden, extra], dim=1)
        hidden = torch.relu(hidden @ layers.second[index, :-1] + layers.second[index, -1])
        return hidden @ layers.third[index, :-1] + layers.third[index, -1]

    action = torch.tanh(mlp(networks.actor, 0, x[:, :0]))
    logits = torch.stack([mlp(networks.critics, index, action) for index in range(3)])
    steps = (torch.softmax(logits, 2) * torch.arange(1, 21)).sum(2).amax(0)
    np.testing.assert_allclose(distance.pairs(a, b), steps.numpy(), rtol=1e-5)


def test_the_maximum_over_the_ensemble_is_never_below_its_mean():
    networks, a = make_networks(), points(60)
    most, mean = (DistributionalDistance(networks, aggregate)(a, a) for aggregate in ("max", "mean"))
    assert (most >= mean - 1e-3).all()
    assert (most > mean + 1e-3).any()


def test_distances_lie_between_one_step_and_the_number_of_bins():
    table = DistributionalDistance(make_networks(scale=30.0))(points(60), points(60))
    assert table.min() >= 1 - 1e-4
    assert table.max() <= 20 + 1e-4


def test_the_embedding_is_the_observation():
    distance = DistributionalDistance(make_networks())
    embedding = distance.embed(points(5).astype(np.float64))
    assert embedding.dtype == np.float32
    np.testing.assert_array_equal(embedding, points(5))


def test_read_only_arrays_lists_and_empty_batches_are_fine():
    distance = DistributionalDistance(make_networks())
    a = points(40)
    a.flags.writeable = False
    assert distance(a, a).shape == (40, 40)
    assert distance.pairs([[0.1, 0.2]], [[0.3, 0.4]]).shape == (1,)
    empty = np.empty((0, 2), np.float32)
    assert distance(empty, a).shape == (0, 40)
    assert distance(a, empty).shape == (40, 0)
    assert distance.pairs(empty, empty).shape == (0,)


def test_a_memory_can_be_built_on_it_and_only_opens_with_the_same_weights(tmp_path):
    distance = DistributionalDistance(make_networks())
    memory = sgm.SparseGraphicalMemory(distance, tau_p=None)
    memory.extend(points(50))
    memory.save(tmp_path / "memory.sgm")
    sgm.SparseGraphicalMemory.load(tmp_path / "memory.sgm", DistributionalDistance(make_networks()))
    with pytest.raises(sgm.StoreError):
        sgm.SparseGraphicalMemory.load(tmp_path / "memory.sgm", DistributionalDistance(make_networks(1)))


def test_the_fingerprint_tells_weights_and_settings_apart():
    networks = make_networks()
    fingerprints = [
        DistributionalDistance(networks).fingerprint,
        DistributionalDistance(networks, "mean").fingerprint,
        DistributionalDistance(make_networks(1)).fingerprint,
    ]
    assert len(set(fingerprints)) == 3
    assert DistributionalDistance(make_networks()).fingerprint == fingerprints[0]


def test_a_file_gives_back_the_same_distance_and_says_how_it_was_trained(tmp_path):
    path, distance = tmp_path / "new" / "weights.safetensors", DistributionalDistance(make_networks())
    distance.networks.save(path)
    again = DistributionalDistance.load(path)
    assert again.fingerprint == distance.fingerprint
    assert again.networks.config == {"a": 1}
    assert [file.name for file in path.parent.iterdir()] == ["weights.safetensors"]
    np.testing.assert_array_equal(again(points(50), points(50)), distance(points(50), points(50)))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(StoreError, match="does not exist"):
        GoalNetworks.load(tmp_path / "none.safetensors")
    (tmp_path / "text").write_text("not safetensors at all")
    with pytest.raises(StoreError, match="not a safetensors file"):
        GoalNetworks.load(tmp_path / "text")
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(StoreError, match="format None"):
        GoalNetworks.load(tmp_path / "other.safetensors")


def test_wrong_input_is_named():
    distance = DistributionalDistance(make_networks())
    with pytest.raises(InputError, match=r"starts has shape \(4, 3\): expected \(n, 2\)"):
        distance(np.zeros((4, 3)), np.zeros((4, 2)))
    with pytest.raises(InputError, match="3 starts and 2 goals"):
        distance.pairs(np.zeros((3, 2)), np.zeros((2, 2)))
    with pytest.raises(InputError, match="NaN or infinity in row 1"):
        distance(points(3), [[0, 0], [np.nan, 0]])
    with pytest.raises(InputError, match="'max', 'mean'"):
        DistributionalDistance(make_networks(), "min")


def test_without_torch_the_error_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None; import sgm.{}"
    for module in ("distances.sorb", "controllers.d3pg"):
        done = subprocess.run([sys.executable, "-c", code.format(module)], capture_output=True, text=True)
        assert done.returncode != 0
        assert "pip install 'sparse-graphical-memory[learn]'" in done.stderr


@given(st.integers(0, 1000), st.integers(1, 6), st.sampled_from([0.1, 3.0, 10.0]), st.sampled_from(["max", "mean"]))
def test_compiled_pairs_and_actions_are_those_of_torch_up_to_rounding(seed, count, scale, aggregate):
    pytest.importorskip("numba")
    networks = make_networks(seed, scale=scale)
    a, b = points(count, seed), points(count, seed + 1)
    plain, compiled = (DistributionalDistance(networks, aggregate, compiled=on) for on in (False, True))
    steps = compiled.pairs(a, b)
    assert steps.shape == (count,) and steps.dtype == np.float32
    np.testing.assert_allclose(steps, plain.pairs(a, b), rtol=0, atol=rounding(scale))
    actions = Actor(networks, compiled=True)(a, b)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions, Actor(networks, compiled=False)(a, b), rtol=0, atol=1e-3)


def test_compiled_code_is_for_few_pairs_and_checks_what_it_is_given():
    pytest.importorskip("numba")
    networks = make_networks()
    plain, compiled = (DistributionalDistance(networks, compiled=on) for on in (False, True))
    a, b = points(40), points(40, 1)
    np.testing.assert_array_equal(compiled.pairs(a, b), plain.pairs(a, b))  # many pairs go through torch
    np.testing.assert_array_equal(compiled(a, b), plain(a, b))
    assert compiled.fingerprint == plain.fingerprint
    with pytest.raises(InputError, match="NaN"):
        compiled.pairs(np.full((1, 2), np.nan, np.float32), b[:1])


def test_compiled_code_without_numba_says_which_extra_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "sgm.distances.fast_pairs", raising=False)
    with pytest.raises(MissingExtra, match=r"\[fast\]"):
        DistributionalDistance(make_networks(), compiled=True)
    assert DistributionalDistance(make_networks())._single is None and Actor(make_networks())._single is None


def test_a_few_pairs_are_compiled_where_numba_is_unless_told_otherwise():
    pytest.importorskip("numba")
    networks = make_networks()
    assert DistributionalDistance(networks)._single is not None and Actor(networks)._single is not None
    assert DistributionalDistance(networks, compiled=False)._single is None


@given(st.integers(0, 1000), st.sampled_from([1, 5, 60, 1100]), st.sampled_from([3.0, 10.0]), st.floats(0.1, 4.0))
def test_pairs_that_differ_from_given_steps_are_those_that_pairs_says(seed, count, scale, slack):
    for aggregate, compiled in itertools.product(("max", "mean"), (None, False)):
        distance = DistributionalDistance(make_networks(seed, scale=scale), aggregate, compiled=compiled)
        a, b = points(count, seed), points(count, seed + 1)
        exact = distance.pairs(a, b)
        steps = (exact + np.random.default_rng(seed).normal(0, slack, count)).astype(np.float32)
        gaps = np.abs(exact - steps)
        clear = np.abs(gaps - slack) > rounding(scale)
        np.testing.assert_array_equal(distance.differ(a, b, steps, slack)[clear], (gaps >= slack)[clear])


@given(st.integers(0, 1000), st.integers(1, 40), st.integers(1, 150), st.booleans())
def test_the_nearest_is_the_least_of_the_table(seed, starts, goals, outgoing):
    for aggregate, compiled in itertools.product(("max", "mean"), (None, False)):
        distance = DistributionalDistance(make_networks(seed, scale=10.0), aggregate, compiled=compiled)
        a, b = points(starts, seed), points(goals, seed + 1)
        table = distance(a, b) if outgoing else distance(a, b).T
        node, steps = distance.nearest(a, b, outgoing=outgoing)
        np.testing.assert_allclose(steps, table.min(axis=1), rtol=0, atol=rounding(10.0))
        np.testing.assert_allclose(table[np.arange(len(node)), node], steps, rtol=0, atol=rounding(10.0))
