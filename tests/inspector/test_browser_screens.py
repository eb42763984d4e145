"""Every screen of the page, on memories of PointEnv, ViZDoom and SafetyGym, in a real browser."""

from __future__ import annotations

import json
import re
import urllib.request

import numpy as np
import pytest

import sgm

COMPONENT_COLOURS = ["33699e", "c2571a", "2c8157", "8a4fb0", "a8323e", "72703a", "0e7c93", "a04a83"]
NUMBER = re.compile(r"-?[\d,]*\.?\d+")


def number(text: str) -> float:
    """The first number in a text."""
    return float(NUMBER.search(text).group().replace(",", ""))


def asked(page, path: str):
    """The server's answer at a path."""
    with urllib.request.urlopen(page.url + path) as answer:
        return json.load(answer)


def far_plan(memory) -> tuple[int, int]:
    """Two nodes between which there is a plan of several legs."""
    nodes = [int(node) for node in np.flatnonzero(memory.parts() == 0)]
    return max(nodes, key=lambda node: len(memory.plan_nodes(node, nodes[0]).nodes)), nodes[0]


def an_edge(page, state: int) -> tuple[int, int] | None:
    """An edge in a state: 0 stands, 2 removed."""
    source, target, states = page.tab.evaluate(
        "['source', 'target', 'state'].map(name => [...sgmInspector.graph()[name]])"
    )
    return next(((u, v) for u, v, its in zip(source, target, states, strict=True) if its == state), None)


def test_the_map_has_every_node_at_its_place_in_the_colour_of_its_component(world):
    page, memory = world
    page.open("removed=0&floor=0")
    component = page.tab.evaluate("[...sgmInspector.graph().component]")
    places = np.array([page.tab.evaluate("i => sgmInspector.where(i)", i) for i in range(len(memory))])
    position = np.array([memory.attributes["position"][i] for i in range(len(memory))], float)[:, :2]
    assert len(component) == len(memory)
    assert (
        abs(
            np.corrcoef(np.linalg.norm(places - places[0], axis=1), np.linalg.norm(position - position[0], axis=1))[
                0, 1
            ]
        )
        > 0.999
    )
    picture = page.png()
    right = 0
    for node, part in enumerate(component):
        wanted = bytes.fromhex(COMPONENT_COLOURS[part % len(COMPONENT_COLOURS)])
        right += np.abs(np.array(page.pixel(picture, node)) - list(wanted)).max() < 40
    assert right > 0.75 * len(memory)  # some lie under others
    assert f"{len(memory)} nodes" in page.text("#counts")


def test_the_map_draws_walls_edges_and_removed_edges_that_can_be_switched_off(world):
    page, memory = world
    page.open("colour=evidence")
    shown = page.png()
    page.tab.uncheck("#floor")
    bare = page.settled().png()
    walls = np.abs(shown.astype(int) - bare).max(axis=2) > 20
    assert walls.sum() > 500
    page.tab.uncheck("#removed")
    without = page.settled().png()
    changed = np.abs(bare.astype(int) - without).max(axis=2) > 20
    assert changed.any() == bool(len(memory.removed().source))
    ink = (np.abs(without.astype(int) - np.array([0xFB, 0xFA, 0xF7])).max(axis=2) > 20).sum()
    assert ink > 1_000
    page.tab.check("#removed")
    page.tab.check("#floor")


@pytest.mark.parametrize(
    ("mode", "words"),
    [("component", "nodes"), ("evidence", "not tried"), ("age", "newest"), ("visits", "observations")],
)
def test_each_way_of_colouring_changes_the_picture_and_has_a_legend_with_words(world, mode, words):
    page, memory = world
    page.open("colour=component" if mode != "component" else "colour=age")
    before = page.png()
    colours = [page.pixel(before, node) for node in range(len(memory))]
    page.tab.select_option("#colour", mode)
    assert words in page.settled().text("#legend")
    after = page.png()
    changed = sum(page.pixel(after, node) != colour for node, colour in enumerate(colours))
    assert changed > len(memory) / 2
    assert mode == "component" or f"colour={mode}" in page.tab.url


def test_pan_zoom_and_fit_move_the_map_and_bring_it_back(world):
    page, _ = world
    page.open()
    start = page.where(0)
    page.tab.focus("#above")
    page.tab.keyboard.press("ArrowRight")
    assert page.where(0)[0] == pytest.approx(start[0] - 80)
    page.tab.mouse.move(600, 300)
    page.tab.mouse.wheel(0, -600)
    page.tab.wait_for_timeout(100)
    assert page.tab.evaluate("sgmInspector.camera.scale") > 0
    page.tab.mouse.down()
    page.tab.mouse.move(640, 340, steps=4)
    page.tab.mouse.up()
    page.tab.keyboard.press("f")
    page.tab.wait_for_timeout(100)
    assert page.where(0) == pytest.approx(start, abs=1)


def test_a_click_on_a_node_shows_its_image_attributes_observations_and_edges(world):
    page, _ = world
    page.open()
    node = asked(page, "/api/components")["components"][0]["sample"][0]
    page.click(node)
    shown = int(re.search(r"Node (\d+)", page.text()).group(1))
    facts = asked(page, f"/api/node/{shown}")
    assert page.tab.locator("#panel figure img").count() == (facts["image"] is not None)
    assert page.tab.locator("#panel .tile").count() == (facts["image"] is None)
    if facts["image"]:
        image = page.tab.locator("#panel img")
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    for name in facts["attributes"]:
        assert page.fact(name)
    assert f"{facts['visits']} observation" in page.text()
    assert len(page.rows("Edges out")) == len(facts["out"])
    assert len(page.rows("Edges in")) == len(facts["in"])


def test_an_edge_shows_both_images_weight_price_tries_and_belief_with_its_interval(world):
    page, _ = world
    page.open()
    u, v = an_edge(page, 0)
    page.go(f"screen=edge&edge={u}-{v}")
    facts = asked(page, f"/api/edge/{u}/{v}")
    figures = page.tab.locator("#panel .pair figure")
    assert figures.count() == 2
    assert figures.locator("img, .tile").count() == 2
    assert number(page.fact("weight")) == pytest.approx(facts["weight"], abs=0.006)
    assert number(page.fact("cost")) == pytest.approx(facts["price"], abs=0.006)
    assert number(page.fact("tries")) == facts["successes"] + facts["failures"]
    assert number(page.fact("successes")) == facts["successes"]
    shown = [int(text) for text in re.findall(r"(\d+) %", page.fact("belief"))]
    assert shown == pytest.approx([100 * facts["belief"][name] for name in ("mean", "low", "high")], abs=0.51)
    assert "in use" in page.fact("state")
    assert len(page.shapes("path", "chosen")) == 1


def test_a_removed_edge_says_when_and_by_which_rule(world):
    page, _ = world
    page.open()
    ends = an_edge(page, 2)
    if ends is None:
        pytest.skip("this memory has no removed edge")
    u, v = ends
    page.go(f"screen=edge&edge={u}-{v}")
    facts = asked(page, f"/api/edge/{u}/{v}")
    assert "removed" in page.fact("state")
    assert f"event {facts['removed_event']['sequence']:,}" in page.text()
    assert page.fact("rule") == facts["rule"]
    assert page.fact("cost").startswith("∞")
    assert page.shapes("path", "chosen")[0]["dash"]
    assert [row[1] for row in page.rows("History")] == [event["kind"] for event in facts["events"]]


def test_two_clicks_show_the_plan_that_the_memory_makes(world):
    page, memory = world
    start, goal = far_plan(memory)
    page.open("screen=plan")
    spread = [page.where(start), page.where(goal)]
    page.click(start)
    assert "Now click the goal" in page.text()
    page.click(goal)
    chosen = re.search(r"from=(\d+)&to=(\d+)", page.tab.url)
    assert chosen, spread
    start, goal = int(chosen.group(1)), int(chosen.group(2))
    plan = memory.plan_nodes(start, goal)
    assert [int(node) for node in page.text("#waypoints").split("→")] == list(plan.nodes)
    assert number(page.text("#cost")) == pytest.approx(plan.cost, abs=0.006)


def test_a_deep_link_shows_the_plan_with_an_image_a_price_and_evidence_for_each_waypoint(world):
    page, memory = world
    start, goal = far_plan(memory)
    page.open(f"from={start}&to={goal}")
    plan = memory.plan_nodes(start, goal)
    assert [int(node) for node in page.text("#waypoints").split("→")] == list(plan.nodes)
    items = page.tab.locator("#panel .strip li")
    assert items.count() == len(plan.nodes) > 2
    assert items.locator("img, .tile").count() == len(plan.nodes)
    legs = page.rows("Edges in order")
    assert len(legs) == len(plan.nodes) - 1
    assert sum(number(leg[1]) for leg in legs) == pytest.approx(plan.cost, abs=0.006 * len(legs))
    assert all("reached" in leg[3] or "not tried" in leg[3] for leg in legs)
    path = page.shapes("path", "plan")[-1]
    assert len(path["points"]) == len(plan.nodes)
    assert page.tab.evaluate("sgmInspector.shapes().at(-1).colour") == "plan"  # above everything


def test_no_path_is_a_sentence(world):
    page, memory = world
    parts = asked(page, "/api/components")["components"]
    if len(parts) < 2:
        pytest.skip("this memory is strongly connected")
    for one in parts[1:]:
        start, goal = parts[0]["sample"][0], one["sample"][0]
        try:
            memory.plan_nodes(start, goal)
        except sgm.NoPath:
            page.open(f"from={start}&to={goal}")
            assert (
                page.tab.locator("#panel .notice").inner_text()
                == asked(page, f"/api/plan?from={start}&to={goal}")["error"]
            )
            return
    pytest.skip("every component can be reached from the largest")


def a_difference(page, memory) -> tuple[int, int] | None:
    """Two nodes whose plan is not the shortest way."""
    nodes = np.flatnonzero(memory.parts() == 0)
    random = np.random.default_rng(0)
    for _ in range(150):
        start, goal = (int(node) for node in random.choice(nodes, 2, replace=False))
        why = asked(page, f"/api/why?from={start}&to={goal}")
        if why["chosen"] and not why["same"] and why["difference"] > 0.01:
            return start, goal
    return None


def test_why_shows_both_ways_on_both_scales_and_causes_that_add_up(world):
    page, memory = world
    page.open()
    ends = a_difference(page, memory) or far_plan(memory)
    page.go(f"screen=why&from={ends[0]}&to={ends[1]}")
    why = asked(page, f"/api/why?from={ends[0]}&to={ends[1]}")
    assert page.text("#because") == why["text"]
    (_, chosen_weight, chosen_price, _), (_, shortest_weight, shortest_price, _) = page.rows("Weight and cost of both")
    assert number(chosen_weight) == pytest.approx(why["chosen"]["weight"], abs=0.006)
    assert number(chosen_price) == pytest.approx(why["chosen"]["price"], abs=0.006)
    assert number(shortest_weight) == pytest.approx(why["shortest"]["weight"], abs=0.006)
    assert shortest_price == "∞" if why["shortest"]["price"] is None else number(shortest_price)
    if why["same"]:
        assert "The same path" in page.text()
        return
    *causes, total = page.rows("Steps each cause adds")
    assert len(causes) == len(why["causes"])
    assert sum(number(cause[2]) for cause in causes) == pytest.approx(number(total[2]), abs=0.006 * len(causes) + 0.006)
    assert number(total[2]) == pytest.approx(number(chosen_weight) - number(shortest_weight), abs=0.02)
    assert page.shapes("path", "other")[0]["dash"]


def test_suspects_are_ranked_with_reasons_and_followed_by_keys(world):
    page, _ = world
    page.open("screen=suspects")
    found = asked(page, "/api/suspects?limit=200")["suspects"]
    rows = page.rows("The first")
    assert [row[1] for row in rows] == [f"{one['source']} → {one['target']}" for one in found]
    assert found[0]["reasons"][0] in page.text()
    assert page.tab.locator("#panel .pair figure").count() == 2
    for key, rank in (("n", 1), ("n", 2), ("n", 3), ("p", 2)):
        page.tab.keyboard.press(key)
        page.tab.wait_for_function(
            "rank => document.querySelector('#suspect')?.innerText.startsWith(`Suspect ${rank} of`)", arg=rank
        )
    assert f"{found[1]['source']} → {found[1]['target']}" in page.text("#suspect")
    assert "suspect=1" in page.tab.url


def test_components_are_listed_by_size_with_the_removed_edges_that_joined_them(world):
    page, memory = world
    page.open("screen=components")
    found = asked(page, "/api/components")
    sizes = [number(row[1]) for row in page.rows("Strongly connected")]
    assert sizes == sorted(np.unique(memory.parts(), return_counts=True)[1], reverse=True)[: len(sizes)]
    cut = page.rows("Removed edges") or []
    assert [row[0] for row in cut] == [f"{one['edge']['source']} → {one['edge']['target']}" for one in found["cut"]]
    page.go("screen=components&component=0")
    assert page.tab.locator("#panel tr:has([aria-current]) td").first.inner_text() == "0"


def test_the_scrubber_shows_the_memory_as_it_was(world):
    page, memory = world
    last = int(memory.events().sequence[-1]) if len(memory.events().sequence) else 0
    page.open("screen=time")
    if not last:
        assert "no events" in page.text()
        return
    for event in (last, last // 2, last // 3, 1):
        page.open(f"screen=time&at={event}")
        then = memory.at(event)
        page.tab.wait_for_function(
            "at => document.querySelector('#event')?.innerText.startsWith(`Event ${at}`)", arg=f"{event:,}"
        )
        assert number(page.text("#counted")) == len(then.removed().source)
        states = page.tab.evaluate("[...sgmInspector.graph().state]")
        assert states.count(0) + states.count(1) == len(then.edges().source)
        assert page.rows("Events up to here")[0][0] == f"{event:,}"
    page.tab.focus("#panel input[type=range]")
    page.tab.keyboard.press("ArrowLeft")
    page.tab.wait_for_function("at => location.hash.includes(`at=${at}`)", arg=0)


def test_compare_says_how_to_compare_when_one_memory_is_open(world):
    page, _ = world
    page.open("screen=compare")
    assert "sgm inspect FIRST SECOND" in page.text()


def test_an_episode_is_followed_step_by_step(world):
    page, _ = world
    page.open("screen=episode")
    episodes = asked(page, "/api/episodes")["episodes"]
    assert [row[0] for row in page.rows(str(len(episodes)))] == [one["title"] for one in episodes]
    failed = next((one for one in episodes if one["success"] is False), episodes[0])
    page.tab.click(f"#panel a:text-is('{failed['title']}')")
    page.settled()
    facts = asked(page, f"/api/episode/{failed['id']}")
    assert facts["text"] in page.text()
    last = len(facts["steps"]) - 1
    assert page.tab.locator("#panel .pair figure").count() == 2
    page.tab.focus("#panel input[type=range]")
    page.tab.keyboard.press("End")
    assert page.text("#step").startswith(f"Step {facts['steps'][last]['t']:,}")
    position = facts["steps"][last]["position"]
    if position:
        assert number(page.fact("position")) == pytest.approx(position[0], abs=0.006)
    assert len(page.shapes("mark", "chosen")) == 1
    assert (page.fact("gave up") != "no") == (facts["gave_up"] is not None)
    assert bool(page.shapes("mark", "failed")) == (facts["gave_up"] is not None)
    assert f"step={last}" in page.tab.url


def test_the_guarantee_is_shown_with_its_conditions_or_why_it_is_not_there(world):
    page, _ = world
    page.open("screen=guarantee")
    found = asked(page, "/api/guarantee")
    assert {True: "holds", False: "does not hold", None: "no certificate"}[found["holds"]] in page.text(
        "#holds"
    ).lower()
    assert " ".join(found["text"].split()) in page.text()
    assert page.tab.locator("#panel .conditions li").count() == len(found["conditions"])
    for condition in found["conditions"]:
        assert condition["name"] in page.text()
