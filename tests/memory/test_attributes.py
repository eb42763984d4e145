"""Attributes: named arrays over the nodes, given with observations or set later, kept wherever the nodes go."""

from __future__ import annotations

import contextlib
import csv
import sqlite3

import networkx
import numpy as np
import pytest

import sgm
from tests.memory.test_store import SETTINGS, ImageDistance, images, same

SGM = sgm.SparseGraphicalMemory


def given(number: int, seed: int = 0) -> dict[str, np.ndarray]:
    """One attribute of every kind for so many observations."""
    random = np.random.default_rng(seed)
    return {
        "position": random.normal(size=(number, 2)).astype(np.float32),
        "heading": random.random(number),
        "room": random.integers(-5, 5, number),
        "seen": random.random(number) < 0.5,
        "thumbnail": images(number, seed=seed),
        "map": random.normal(size=(number, 3, 4)),
    }


def check(memory: SGM, expected: dict[str, np.ndarray]) -> None:
    assert set(memory.attributes) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(memory.attributes[name], values)
        assert memory.attributes[name].dtype == values.dtype


def test_a_node_has_the_attributes_of_the_observation_it_keeps():
    memory = SGM(ImageDistance(), **SETTINGS)
    first, second = given(50), given(40, seed=1)
    memory.extend(images(50), attributes=first)
    memory.extend(images(40, seed=1), episode=1, attributes=second)
    memory.add(images(1, seed=9)[0], attributes={name: values[0] for name, values in given(1, seed=2).items()})
    assert len(memory) < 91
    third = given(1, seed=2)
    everything = {name: np.concatenate([first[name], second[name], third[name]]) for name in first}
    check(memory, {name: values[memory.nodes] for name, values in everything.items()})


@pytest.mark.parametrize("criterion", ["two-way", "uniform", "none", "perceptual"])
def test_attributes_follow_every_criterion(criterion):
    size = {"size": 20} if criterion == "uniform" else {}
    memory = SGM(ImageDistance(), criterion=criterion, **size, **SETTINGS)
    attributes = given(60)
    memory.extend(images(60), attributes=attributes, block=7)
    check(memory, {name: values[memory.nodes] for name, values in attributes.items()})


def test_what_is_not_given_is_missing():
    memory = SGM(ImageDistance(), **SETTINGS)
    memory.extend(images(20))
    before = len(memory)
    memory.extend(images(20, seed=1), attributes=given(20, seed=1))
    between = len(memory)
    memory.extend(images(20, seed=2))
    for name, missing in (("position", np.nan), ("heading", np.nan), ("room", 0), ("seen", False), ("thumbnail", 0)):
        values = memory.attributes[name]
        shape = values.shape[1:]
        np.testing.assert_array_equal(values[:before], np.full((before, *shape), missing))
        np.testing.assert_array_equal(values[between:], np.full((len(memory) - between, *shape), missing))
        assert values[before:between].any()


def test_attributes_can_be_set_changed_and_removed_and_reading_gives_a_copy():
    memory = SGM(ImageDistance(), **SETTINGS)
    memory.extend(images(20))
    memory.attributes["position"] = [[node, 1.5] for node in range(len(memory))]
    memory.attributes["position"][0] = 99
    assert memory.attributes["position"][0].tolist() == [0, 1.5]
    memory.attributes["position"] = np.arange(len(memory))
    assert memory.attributes["position"].shape == (len(memory),)
    assert "position" in memory.attributes and "x" not in memory.attributes and len(memory.attributes) == 1
    assert "attributes position" in repr(memory) and "position" in repr(memory.attributes)
    del memory.attributes["position"]
    assert dict(memory.attributes) == {}
    with pytest.raises(sgm.InputError, match="no attribute is called 'position'; this memory has none"):
        memory.attributes["position"]
    assert memory.attributes.get("position") is None


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("x", [1, 2], "expected .* one for each observation"),
        ("x", ["a"] * 20, "expected numbers"),
        ("x", np.zeros((20, 0)), "expected numbers"),
        ("x", np.zeros(20, complex), "expected numbers"),
        ("x", 3, "one for each observation"),
        ("", np.zeros(20), "printable characters"),
        ("a\nb", np.zeros(20), "printable characters"),
        ("stream", np.zeros(20), "none of node, stream"),
        ("position", np.zeros((20, 3)), "those of this memory have dtype float64 and shape"),
        ("room", np.zeros(20), "those of this memory have dtype int64"),
    ],
)
def test_attributes_that_do_not_fit_are_refused_and_change_nothing(name, values, reason):
    memory = SGM(ImageDistance(), **SETTINGS)
    memory.extend(images(20), attributes={"position": np.zeros((20, 2)), "room": np.arange(20)})
    before = len(memory.assignment)
    with pytest.raises(sgm.InputError, match=reason):
        memory.extend(images(20, seed=1), attributes={name: values})
    assert len(memory.assignment) == before and set(memory.attributes) == {"position", "room"}


@pytest.mark.parametrize("live", [False, True])
def test_attributes_are_saved_and_live(tmp_path, live):
    path = tmp_path / "m.sgm"
    memory = SGM.open(path, ImageDistance(), **SETTINGS) if live else SGM(ImageDistance(), **SETTINGS)
    attributes = given(40)

    def compare():
        if not live:
            memory.save(path)
        back = SGM.load(path, ImageDistance())
        assert same(back, memory)
        check(back, dict(memory.attributes))

    memory.extend(images(40), attributes=attributes)
    compare()
    memory.extend(images(20, seed=1))
    compare()
    memory.attributes["position"] = np.arange(len(memory))
    memory.attributes["new"] = np.arange(3 * len(memory), dtype=np.int16).reshape(-1, 3)
    compare()
    del memory.attributes["thumbnail"]
    del memory.attributes["new"]
    compare()
    memory.extend(images(20, seed=2), attributes={"thumbnail": images(20, seed=2), "heading": np.zeros(20)})
    compare()
    memory.close()
    if live:
        with SGM.open(path, ImageDistance()) as again:
            again.extend(images(20, seed=3), attributes={"room": np.arange(20)})
            again.attributes["seen"] = np.ones(len(again), bool)
        check(SGM.load(path, ImageDistance()), dict(again.attributes))


def test_images_are_stored_compactly(tmp_path):
    memory = SGM(ImageDistance(), **SETTINGS)
    memory.extend(images(80), attributes={"thumbnail": images(80)})
    memory.save(tmp_path / "m.sgm")
    with contextlib.closing(sqlite3.connect(tmp_path / "m.sgm")) as connection:
        (stored,) = connection.execute("SELECT sum(length(rows)) FROM attribute_rows").fetchone()
    assert stored < 0.15 * memory.attributes["thumbnail"].nbytes


def test_an_extend_that_fails_takes_its_attributes_back():
    class Failing(ImageDistance):
        def __call__(self, starts, goals):
            if len(starts) == 7:
                raise RuntimeError("out of order")
            return super().__call__(starts, goals)

    memory = SGM(Failing(), **SETTINGS)
    memory.extend(images(20), attributes={"x": np.arange(20)})
    before = memory.attributes["x"].tolist()
    with pytest.raises(RuntimeError):
        memory.extend(images(27, seed=3), attributes={"x": np.arange(27), "y": np.arange(27)}, block=20)
    assert memory.attributes["x"].tolist() == before and list(memory.attributes) == ["x"]


def test_the_past_has_the_attributes_of_the_nodes_it_had():
    memory = SGM(ImageDistance(), **SETTINGS)
    memory.extend(images(20), attributes={"x": np.arange(20)})
    memory.record(*(int(end[0]) for end in memory.edges()[:2]), True)
    memory.extend(images(20, seed=1), attributes={"x": np.arange(20)})
    past = memory.at(1)
    assert len(past) < len(memory) and past.attributes["x"].tolist() == memory.attributes["x"][: len(past)].tolist()


def test_attributes_are_exported(tmp_path):
    memory = SGM(ImageDistance(), **SETTINGS)
    memory.extend(images(40), attributes=given(40))
    graph = memory.to_networkx()
    assert graph.nodes[3]["room"] == memory.attributes["room"][3]
    np.testing.assert_array_equal(graph.nodes[3]["position"], memory.attributes["position"][3])
    assert graph.nodes[3]["thumbnail"].shape == (12, 16, 3)

    memory.to_graphml(tmp_path / "m.graphml")
    read = networkx.read_graphml(tmp_path / "m.graphml").nodes["3"]
    assert read["position_1"] == pytest.approx(memory.attributes["position"][3, 1])
    assert read["seen"] == memory.attributes["seen"][3] and read["room"] == memory.attributes["room"][3]
    assert read["map_11"] == memory.attributes["map"][3, 2, 3] and "thumbnail_0" not in read

    nodes = memory.to_csv(tmp_path / "m.csv")
    assert nodes.name == "m.nodes.csv"
    with nodes.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(memory) and float(rows[3]["heading"]) == memory.attributes["heading"][3]
    assert rows[3]["stream"] == str(memory.nodes[3]) and rows[3]["node"] == "3"


def test_stats_and_html_name_the_attributes():
    memory = SGM(ImageDistance(), **SETTINGS)
    memory.extend(images(20), attributes={"<b>": np.zeros(20), "position": np.zeros((20, 2))})
    assert memory.stats().attributes["position"] == "float64 (2,)"
    shown = memory._repr_html_()
    assert "position" in shown and "<b>:" not in shown and "&lt;b&gt;" in shown
