"""An agent in a folder: what is saved comes back and acts the same; what is hostile is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import sgm
from sgm.navigation import BayesFilter, NearestPair, Odometry, RankedGoals, WithinRadius, agents
from tests.navigation.test_rollout import Fixed, Line, controller, corridor


def saved(tmp_path, **options):
    agent = sgm.Navigator(corridor(), controller("discrete"), **options)
    agent.save(tmp_path / "agent")
    return agent, tmp_path / "agent"


def test_an_agent_of_ones_own_parts_comes_back(tmp_path):
    options = {"max_steps": 7, "cutoff": 0.5, "router": NearestPair("hops", math.inf, "nearest"), "replan": False}
    agent, folder = saved(tmp_path, **options)
    again = sgm.Navigator.load(folder, controller=agent.controller, memory_distance=Line())
    assert (again.max_steps, again.arrival, again.router, again.replan) == (7, agent.arrival, agent.router, False)
    one, other = (sgm.evaluate(each, Fixed(2, 9), 1) for each in (agent, again))
    assert one.steps.tolist() == other.steps.tolist() and other.successes.all()


def test_every_part_has_settings_that_can_be_kept(tmp_path):
    memory = corridor()
    memory.attributes["pose"] = np.zeros((len(memory), 2))
    agent = agents.consptm(memory, controller("discrete"), look=lambda rows: rows, penalty=3.0, tries=2)
    agent.save(tmp_path)
    given = {"controller": agent.controller, "memory_distance": Line()}
    with pytest.raises(sgm.InputError, match="give look="):
        sgm.Navigator.load(tmp_path, **given)
    again = sgm.Navigator.load(tmp_path, look=agent.look, **given)
    assert again.localiser == agent.localiser and isinstance(again.localiser, Odometry)
    assert again.router == RankedGoals(
        within=math.inf, ahead=3, penalty=3.0, tries=2
    ) and again.arrival == WithinRadius(0.3)
    saved(tmp_path, localiser=BayesFilter(sharpness=2.0))
    filtered = sgm.Navigator.load(tmp_path / "agent", **given)
    assert filtered.localiser.sharpness == 2.0


def test_what_the_folder_cannot_hold_is_asked_for(tmp_path):
    _, folder = saved(tmp_path)
    with pytest.raises(sgm.InputError, match="controller=…"):
        sgm.Navigator.load(folder, memory_distance=Line())
    with pytest.raises(sgm.InputError, match="memory_distance=…"):
        sgm.Navigator.load(folder, controller=controller("discrete"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content.update(format="other"), "expected format"),
        (lambda content: content.update(parts=[]), "expected format"),
        (lambda content: content["parts"].update(router={"kind": "os.system"}), "router"),
        (lambda content: content["parts"]["router"].update(wheels=4), "other settings"),
        (lambda content: content["networks"].update(controller="os:system"), "accepted: a class in"),
        (lambda content: content["networks"].update(controller="sgm.distances.table:__init__.x"), "accepted"),
        (lambda content: content["networks"].update(controller="sgm.distances.nothing:Thing"), "cannot be loaded"),
    ],
)
def test_a_folder_from_somebody_else_runs_nothing(tmp_path, change, reason):
    _, folder = saved(tmp_path)
    content = json.loads((folder / "agent.json").read_text())
    change(content)
    (folder / "agent.json").write_text(json.dumps(content))
    with pytest.raises(sgm.StoreError, match=reason):
        sgm.Navigator.load(folder, memory_distance=Line())


def test_an_empty_or_missing_folder_says_so(tmp_path):
    with pytest.raises(sgm.StoreError, match="holds no agent.json"):
        sgm.Navigator.load(tmp_path)
    (tmp_path / "agent.json").write_text("{")
    with pytest.raises(sgm.StoreError, match="is not JSON"):
        sgm.Navigator.load(tmp_path)


def test_numbers_of_numpy_are_kept_and_parts_of_ones_own_are_refused(tmp_path):
    agent, folder = saved(tmp_path, max_steps=np.int64(6), cutoff=np.float32(0.5))
    again = sgm.Navigator.load(folder, controller=agent.controller, memory_distance=Line())
    assert (again.max_steps, again.arrival.cutoff) == (6, 0.5)

    class Mine(NearestPair):
        pass

    with pytest.raises(sgm.InputError, match="Mine is a part of your own"):
        saved(tmp_path, router=Mine())
