"""What stands beside a memory: the floor plan, episodes and the guarantee."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import sgm
import sgm.inspector
from sgm.inspector import records
from sgm.inspector.records import Records
from sgm.inspector.view import View, drawn_at
from sgm.navigation.beside import read_episodes, read_floor, read_guarantee
from tests.inspector.client import ask

DATA = Path(__file__).parents[1] / "data" / "inspector"


@pytest.fixture(params=["point", "doom", "safety"])
def shown(request):
    path = DATA / f"{request.param}.sgm"
    memory = sgm.SparseGraphicalMemory.load(path, None)
    kept = Records.read(path, len(memory))
    assert kept.problems == []
    return path, View(memory, axes=kept.axes), kept


def test_the_floor_plan_is_drawn_in_the_axes_of_the_nodes(shown):
    path, view, kept = shown
    lines = np.array(records.floor(kept)["lines"]).reshape(-1, 2)
    np.testing.assert_allclose(lines, drawn_at(read_floor(path).lines.reshape(-1, 2), kept.axes), atol=1e-3)
    low, high = lines.min(axis=0), lines.max(axis=0)
    assert ((view.places.xy >= low - 1e-3) & (view.places.xy <= high + 1e-3)).all()


def test_an_episode_is_told_step_by_step(shown):
    path, view, kept = shown
    listed = records.episodes(view, kept)["episodes"]
    assert len(listed) == len(read_episodes(path)) > 0
    for line, one in zip(listed, kept.episodes, strict=True):
        told = records.episode(view, kept, line["id"])
        json.dumps(told, allow_nan=False)
        assert (told["title"], told["success"], len(told["steps"])) == (one.title, one.success, len(one))
        assert [step["waypoint"] for step in told["steps"]] == [None if node < 0 else node for node in one.waypoints]
        pictures = [step["t"] for step in told["steps"] if step["image"]]
        assert pictures == sorted(one.images)
        for t, u, v in one.cuts:
            assert (f"edge {u}→{v} failed" if u >= 0 else f"node {v} was not reached") in told["steps"][t]["event"]
        assert (told["gave_up"] is None) == (one.gave_up is None)
        if one.gave_up:
            assert "gave up" in told["steps"][one.gave_up[0]]["event"]
        assert ("reached its goal after" in told["text"]) == one.success
    with pytest.raises(sgm.SGMError, match="no episode"):
        records.episode(view, kept, len(listed))


def test_the_guarantee_has_its_conditions_or_why_it_is_not_there(shown):
    path, view, kept = shown
    told, known = records.guarantee(view, kept), read_guarantee(path)
    json.dumps(told, allow_nan=False)
    if known["applies"] is None:
        assert told["holds"] is None and told["text"] == known["reason"]
    else:
        assert {condition["name"] for condition in told["conditions"]} == set(known["conditions"])
        assert told["holds"] == known["applies"] and told["numbers"] == known["numbers"]


def test_a_guarantee_from_before_an_edge_was_removed_does_not_hold(shown):
    _, view, kept = shown
    memory = view.memory
    kept.guarantee = {
        "applies": True, "conditions": {records.NO_REMOVAL: True, "another": True}, "numbers": {}, "text": "measured",
    }  # fmt: skip
    if not len(memory.removed().source):
        memory.remove(*(int(end[0]) for end in memory.edges()[:2]))
    told = records.guarantee(View(memory), kept)
    assert told["holds"] is False and "has changed since" in told["text"]
    assert [condition["holds"] for condition in told["conditions"]] == [False, True]


def test_without_a_certificate_that_is_said(shown):
    _, view, _ = shown
    told = records.guarantee(view, Records())
    assert told["holds"] is None and "no certificate" in told["text"] and len(told["conditions"]) == 3
    assert records.floor(Records()) is None and records.episodes(view, Records())["text"]


def test_damaged_files_beside_a_memory_are_told_and_the_rest_is_shown(tmp_path):
    shutil.copy(DATA / "point.sgm", tmp_path / "m.sgm")
    (tmp_path / "floor.json").write_text("{")
    (tmp_path / "episodes.npz").write_bytes(b"junk")
    (tmp_path / "guarantee.json").write_text('{"schema": 7}')
    with sgm.inspector.serve(tmp_path / "m.sgm") as server:
        facts = ask(server.url).json()
        assert len([text for text in facts["warnings"] if str(tmp_path) in text]) == 3
        assert (facts["floor"], facts["episodes"], facts["guarantee"]) == (False, 0, False)
        assert ask(server.url, "/api/floor").status == 404


def test_images_of_nodes_and_steps_are_sent_as_png():
    with sgm.inspector.serve(DATA / "doom.sgm") as server:
        answer = ask(server.url, "/api/image/3")
        assert answer.status == 200 and answer.headers["content-type"] == "image/png" and answer.body[:4] == b"\x89PNG"
        step = next(step for step in ask(server.url, "/api/episode/0").json()["steps"] if step["image"])
        assert ask(server.url, step["image"]).body[:4] == b"\x89PNG"
        assert ask(server.url, "/api/episode/0/image/999999").status == 404
