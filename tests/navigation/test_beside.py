"""The files beside a memory: found by name, read as they were written, refused when they are damaged or hostile."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import pytest

import sgm
from sgm.data.archive import write_archive
from sgm.navigation.beside import (
    EPISODES,
    FLOOR,
    GUARANTEE,
    Episode,
    Floor,
    read_episodes,
    read_floor,
    read_guarantee,
    write_episodes,
    write_floor,
    write_guarantee,
)
from sgm.navigation.guarantee import guarantee

STEPS = 4


def episode(kind="evaluation", **changes) -> Episode:
    known = Episode(
        title="one",
        kind=kind,
        success=False,
        reason="waypoint not reached",
        goal_node=2,
        goal_position=np.array([3.0, 4.0]),
        positions=np.array([[0, 0], [1, 0], [np.nan, np.nan], [2, 2]], np.float32),
        nodes=np.array([-1, 0, 0, 1], np.int32),
        waypoints=np.array([0, 1, 1, -1], np.int32),
        plans=[(0, [0, 1, 2])],
        cuts=[(2, 0, 1)],
        gave_up=(3, 1, 2),
        images={0: np.full((6, 8, 3), 7, np.uint8), 3: np.zeros((6, 8, 3), np.uint8)},
    )
    return dataclasses.replace(known, **changes)


def same(one: Episode, other: Episode) -> bool:
    plain = [field.name for field in dataclasses.fields(Episode)]
    arrays = ("goal_position", "positions", "nodes", "waypoints", "images")
    for name in ("goal_position", "positions", "nodes", "waypoints"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.images.keys() == other.images.keys()
    assert all((one.images[step] == other.images[step]).all() for step in one.images)
    return all(getattr(one, name) == getattr(other, name) for name in plain if name not in arrays)


def test_episodes_are_read_as_they_were_written(tmp_path):
    write_episodes(tmp_path / EPISODES, [episode(), episode("cleanup", gave_up=None, goal_position=None, images={})])
    first, second = read_episodes(tmp_path / "memory.sgm", nodes=3)
    assert same(first, episode())
    assert same(second, episode("cleanup", gave_up=None, goal_position=None, images={}))
    assert len(first) == STEPS


def test_new_episodes_take_the_place_of_those_of_their_kind_only(tmp_path):
    path = tmp_path / EPISODES
    write_episodes(path, [episode("cleanup", title="cleaned"), episode(title="old")])
    write_episodes(path, [episode(title="new"), episode(title="newer")])
    assert [each.title for each in read_episodes(tmp_path / "memory.sgm")] == ["new", "newer", "cleaned"]
    path.write_bytes(b"damaged")
    write_episodes(path, [episode(title="again")])
    assert [each.title for each in read_episodes(tmp_path / "memory.sgm")] == ["again"]


def test_a_memory_has_the_files_of_its_own_name_before_those_of_its_folder(tmp_path):
    assert read_floor(tmp_path / "one.sgm") is None and read_episodes(tmp_path / "one.sgm") == []
    assert read_guarantee(tmp_path / "one.sgm") is None
    write_floor(tmp_path / FLOOR, Floor(np.array([[0.0, 0, 1, 1]]), "rc", "cells"))
    write_floor(tmp_path / f"one.{FLOOR}", Floor(np.array([[5.0, 0, 1, 1], [0, 0, 2, 2]])))
    assert read_floor(tmp_path / "one.sgm").lines.tolist() == [[5, 0, 1, 1], [0, 0, 2, 2]]
    other = read_floor(tmp_path / "other.sgm")
    assert (other.lines.tolist(), other.axes, other.unit) == ([[0, 0, 1, 1]], "rc", "cells")


def test_episodes_of_another_memory_are_refused(tmp_path):
    write_episodes(tmp_path / EPISODES, [episode()])
    with pytest.raises(sgm.StoreError, match="node 2, and the memory has 2: it belongs to another memory"):
        read_episodes(tmp_path / "memory.sgm", nodes=2)


ARRAYS = {
    "positions": np.zeros((STEPS, 2), np.float32),
    "nodes": np.zeros(STEPS, np.int32),
    "waypoints": np.zeros(STEPS, np.int32),
    "images": np.zeros((1, 6, 8, 3), np.uint8),
    "image_steps": np.zeros(1, np.int64),
}
FACTS = {
    "title": "one",
    "kind": "cleanup",
    "success": True,
    "reason": "",
    "goal_node": 0,
    "goal_position": [1, 2],
    "gave_up": None,
    "plans": [[0, [0]]],
    "cuts": [],
    "steps": STEPS,
}


def put(path, facts=FACTS, arrays=ARRAYS, **about):
    content = json.dumps({"schema": 1, "episodes": [facts], **about}).encode()
    with path.open("wb") as file:
        write_archive(file, {"about": np.frombuffer(content, np.uint8), **arrays}, {}, compress=True)


def test_what_the_hostile_files_below_are_made_from_is_accepted(tmp_path):
    put(tmp_path / EPISODES)
    (found,) = read_episodes(tmp_path / "memory.sgm")
    assert found.success and len(found.images) == 1


@pytest.mark.parametrize(
    ("facts", "arrays"),
    [
        ({"steps": 10**9}, {}),
        ({"steps": 2}, {}),
        ({"steps": True}, {}),
        ({"title": "x" * 1_000}, {}),
        ({"title": 5}, {}),
        ({"kind": "party"}, {}),
        ({"success": 1}, {}),
        ({"goal_node": -2}, {}),
        ({"goal_node": 1e300}, {}),
        ({"goal_position": [1, "2"]}, {}),
        ({"goal_position": [1, 1e300]}, {}),
        ({"plans": [[0, ["x"]]]}, {}),
        ({"plans": {"a": 1}}, {}),
        ({"plans": None}, {}),
        ({"cuts": [[9, 0, 1]]}, {}),
        ({"gave_up": [0, -2, 1]}, {}),
        ({}, {"nodes": np.full(STEPS, -2, np.int32)}),
        ({}, {"nodes": np.full(STEPS, 2**40)}),
        ({}, {"nodes": np.zeros(STEPS)}),
        ({}, {"waypoints": np.zeros(STEPS + 1, np.int32)}),
        ({}, {"positions": np.zeros((STEPS, 3), np.float32)}),
        ({}, {"images": np.zeros((1, 6, 8), np.uint8)}),
        ({}, {"images": np.zeros((1, 6, 8, 3), np.float32)}),
        ({}, {"image_steps": np.array([STEPS])}),
        ({}, {"image_steps": np.array([0, 1])}),
    ],
)
def test_hostile_episodes_are_refused_with_a_sentence(tmp_path, facts, arrays):
    put(tmp_path / EPISODES, {**FACTS, **facts}, {**ARRAYS, **arrays})
    with pytest.raises(sgm.StoreError, match=r"episodes\.npz .*remove the file"):
        read_episodes(tmp_path / "memory.sgm")


def test_a_small_file_that_declares_much_is_refused_before_memory_is_taken_for_it(tmp_path):
    put(tmp_path / EPISODES, arrays={**ARRAYS, "images": np.zeros((20_000, 64, 64, 3), np.uint8)})
    assert (tmp_path / EPISODES).stat().st_size < 2_000_000
    with pytest.raises(sgm.StoreError, match=r"245,7\d\d,\d\d\d bytes, over"):
        read_episodes(tmp_path / "memory.sgm")


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "flipped", "pickle", "schema", "missing"])
def test_damaged_episodes_are_refused_with_a_sentence(tmp_path, damage):
    path = tmp_path / EPISODES
    write_episodes(path, [episode()])
    whole = path.read_bytes()
    if damage == "pickle":
        np.savez(path, about=np.array([{"a": 1}], object), allow_pickle=True)
    elif damage == "schema":
        put(path, schema=2)
    elif damage == "missing":
        put(path, arrays={name: values for name, values in ARRAYS.items() if name != "nodes"})
    else:
        half = len(whole) // 2
        flipped = whole[:half] + bytes(byte ^ 255 for byte in whole[half : half + 40]) + whole[half + 40 :]
        path.write_bytes({"cut": whole[:half], "empty": b"", "text": b"hello", "flipped": flipped}[damage])
    with pytest.raises(sgm.StoreError, match=r"episodes\.npz"):
        read_episodes(tmp_path / "memory.sgm")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b'{"schema": 2}',
        b'{"schema": 1, "axes": "xy", "unit": "", "lines": [[0, 0, 1]]}',
        b'{"schema": 1, "axes": "xy", "unit": "", "lines": [[0, 0, 1, NaN]]}',
        b'{"schema": 1, "axes": "xy", "unit": "", "lines": [[0, 0, 1, true]]}',
        b'{"schema": 1, "axes": "zz", "unit": "", "lines": []}',
        b'{"schema": 1, "axes": "xy", "unit": 5, "lines": []}',
        b'{"schema": 1, "axes": "xy", "unit": "", "lines": 7}',
        b'{"schema": 1, "axes": ["xy"], "unit": "", "lines": []}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_hostile_floor_is_refused_with_a_sentence(tmp_path, content):
    (tmp_path / FLOOR).write_bytes(content)
    with pytest.raises(sgm.StoreError, match=r"floor\.json"):
        read_floor(tmp_path / "memory.sgm")


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"applies": None},
        {"applies": None, "reason": "x" * 5_000},
        {"applies": "yes"},
        {"applies": True, "text": "", "conditions": {"a": 1}, "numbers": {}},
        {"applies": True, "text": "", "conditions": {"a": True}, "numbers": {"tau": "large"}},
    ],
)
def test_a_hostile_guarantee_is_refused_with_a_sentence(tmp_path, content):
    write_guarantee(tmp_path / GUARANTEE, content)
    with pytest.raises(sgm.StoreError, match=r"guarantee\.json"):
        read_guarantee(tmp_path / "memory.sgm")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    for name in (FLOOR, EPISODES, GUARANTEE):
        os.mkfifo(tmp_path / name)
    for read in (read_floor, read_episodes, read_guarantee):
        with pytest.raises(sgm.StoreError, match="not a regular file"):
            read(tmp_path / "memory.sgm")


def line(number=60, **settings):
    steps = np.abs(np.arange(number)[:, None] - np.arange(number)).astype(np.float32)
    memory = sgm.SparseGraphicalMemory(
        sgm.TableDistance(steps), **{"tau_a": 1.0, "max_dist": 6.0, "k": None, **settings}
    )
    memory.extend(np.arange(number))
    return memory


def test_the_guarantee_is_the_certificate_in_numbers(tmp_path):
    memory = line()
    write_guarantee(tmp_path / GUARANTEE, guarantee(memory, np.arange(60)))
    found = read_guarantee(tmp_path / "memory.sgm")
    certificate = memory.certificate(np.arange(60))
    assert found["conditions"] == certificate.conditions and found["applies"] == certificate.applies
    assert found["numbers"]["tau"] == certificate.tau
    assert found["numbers"]["merges"] == len(certificate.merged)
    assert 0 <= found["numbers"]["largest_gap"] <= certificate.gap.max()
    assert "effective tau" in found["text"]


def test_where_there_is_no_guarantee_it_says_why(tmp_path):
    memory = line()
    for observations, seconds, why in (
        (None, 10.0, "not kept"),
        (np.arange(60), 0.0, "more than the 0 s"),
        (np.arange(59), 10.0, "59 observations, but the memory was given 60"),
    ):
        write_guarantee(tmp_path / GUARANTEE, guarantee(memory, observations, seconds))
        found = read_guarantee(tmp_path / "memory.sgm")
        assert found["applies"] is None and why in found["reason"]
