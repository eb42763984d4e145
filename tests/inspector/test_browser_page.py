"""The page in a real browser: keys, links, files, two memories, and what it does without positions or WebGL."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import sgm
from tests.inspector.browser import copied, inspected, load, places
from tests.inspector.worlds import Straight

SCREENS = [
    "map", "node", "edge", "plan", "why", "suspects", "components", "time", "compare", "episode", "guarantee",
]  # fmt: skip


def test_the_tabs_are_walked_with_arrow_keys_and_each_shows_its_screen(point):
    page, _ = point
    page.open()
    page.tab.focus("#tab-map")
    for screen in SCREENS[1:]:
        page.tab.keyboard.press("ArrowDown")
        page.settled()
        assert page.tab.evaluate("document.activeElement.id") == f"tab-{screen}"
        assert page.tab.get_attribute(f"#tab-{screen}", "aria-selected") == "true"
        assert page.tab.inner_text("#panel h2").lower() == screen
        assert f"screen={screen}" in page.tab.url


def test_everything_is_reached_with_the_tab_key(point):
    page, path = point
    page.open(places(path)[4])
    page.tab.focus("#query")
    seen = set()
    for _ in range(60):
        seen.add(page.tab.evaluate("document.activeElement.id || document.activeElement.tagName"))
        page.tab.keyboard.press("Tab")
    assert {"query", "fit", "png", "svg", "keys", "tab-edge", "above", "colour", "removed", "floor", "panel"} <= seen


def test_a_plan_is_made_with_keys_alone(point):
    page, path = point
    page.open()
    for query, key in (("0", "s"), ("40", "g")):
        page.tab.keyboard.press("/")
        assert page.tab.evaluate("document.activeElement.id") == "query"
        page.tab.fill("#query", query)
        page.tab.keyboard.press("Enter")
        page.tab.wait_for_function(
            "node => document.querySelector('#panel h2')?.innerText === `Node ${node}`", arg=query
        )
        page.tab.keyboard.press(key)
        page.settled()
    page.tab.wait_for_selector("#waypoints")
    assert [int(node) for node in page.text("#waypoints").split("→")] == list(load(path).plan_nodes(0, 40).nodes)
    page.tab.keyboard.press("Escape")
    page.settled()
    assert page.tab.inner_text("#panel h2") == "Map"
    assert not page.shapes("path", "plan")


def test_find_goes_to_an_edge_and_says_when_nothing_is_found(point):
    page, path = point
    edges = load(path).edges()
    page.open()
    page.tab.fill("#query", f"{edges.source[5]} → {edges.target[5]}")
    page.tab.keyboard.press("Enter")
    page.tab.wait_for_function("() => document.querySelector('#panel h2')?.innerText.startsWith('Edge')")
    assert page.text("#panel h2") == f"Edge {edges.source[5]} → {edges.target[5]}"
    page.tab.fill("#query", "no such thing")
    page.tab.keyboard.press("Enter")
    page.tab.wait_for_selector("#message:not([hidden])")


def test_the_map_is_used_with_keys_alone(point):
    page, _ = point
    page.open()
    page.tab.focus("#above")
    page.tab.keyboard.press("Enter")
    page.tab.wait_for_function("() => location.hash.includes('node=')")
    first = page.settled().text("#panel h2")
    page.tab.focus("#above")
    page.tab.keyboard.press("Shift+ArrowRight")
    page.tab.wait_for_function("first => document.querySelector('#panel h2').innerText !== first", arg=first)
    here, there = (int(text.split()[1]) for text in (first, page.settled().text("#panel h2")))
    assert page.where(there)[0] > page.where(here)[0]
    before = page.tab.evaluate("sgmInspector.camera.scale")
    page.tab.focus("#above")
    page.tab.keyboard.press("+")
    assert page.tab.evaluate("sgmInspector.camera.scale") > before


def test_a_question_mark_lists_the_keys_and_escape_closes_the_list(point):
    page, _ = point
    page.open()
    page.tab.keyboard.press("?")
    assert "show everything" in page.text("#help")
    page.tab.keyboard.press("Escape")
    assert not page.tab.is_visible("#help")


def test_removed_edges_and_colours_have_keys(point):
    page, _ = point
    page.open()
    page.tab.keyboard.press("r")
    assert not page.settled().tab.is_checked("#removed")
    page.tab.keyboard.press("c")
    assert page.settled().tab.input_value("#colour") == "evidence"


def test_every_place_opens_again_from_its_address_and_back_goes_back(point):
    page, path = point
    for place in places(path):
        page.open(place)
        title, text = page.text("#panel h2"), page.text()
        address = page.tab.url
        page.tab.goto("about:blank")
        page.tab.goto(address)
        page.tab.wait_for_selector("body[data-ready]")
        assert (page.settled().text("#panel h2"), page.text()) == (title, text)
    page.open("screen=node&node=3")
    page.tab.click("#tab-plan")
    page.settled()
    page.tab.go_back()
    page.tab.wait_for_function("() => document.querySelector('#panel h2').innerText === 'Node 3'")


@pytest.mark.parametrize(
    "place",
    [
        "screen=node&node=99999",
        "screen=edge&edge=0-99999",
        "screen=nothing",
        "from=x&to=y",
        "screen=time&at=999999999",
        "episode=none",
        "%F0%9F=1&node=-1",
    ],
)
def test_an_address_that_names_nothing_gives_a_sentence_or_the_map(point, place):
    page, _ = point
    page.open(place)
    assert page.text()


def test_the_png_is_the_view_and_the_svg_is_the_plan(point):
    page, path = point
    page.open("from=0&to=40")
    picture = page.png()
    assert picture.shape[:2] == tuple(
        page.tab.evaluate("[document.querySelector('#graph').height, document.querySelector('#graph').width]")
    )
    assert page.pixel(picture, 0) == (0x15, 0x50, 0xD8)
    with page.tab.expect_download() as saved:
        page.tab.click("#svg")
    assert saved.value.suggested_filename == "sgm-plan-0-40.svg"
    root = ET.fromstring(Path(saved.value.path()).read_text(encoding="utf-8"))
    name = "{http://www.w3.org/2000/svg}"
    lines = [line for line in root.iter(f"{name}polyline") if line.get("stroke") == "rgb(21, 80, 216)"]
    assert len(lines[-1].get("points").split()) == len(load(path).plan_nodes(0, 40).nodes)
    assert {text.text for text in root.iter(f"{name}text")} == {"start 0", "goal 40"}


def test_without_a_plan_the_svg_button_says_what_is_missing(point):
    page, _ = point
    page.open()
    page.tab.click("#svg")
    assert "Choose a start and a goal" in page.text("#message")


def test_two_memories_of_one_stream_are_compared_and_drawn(browser, tmp_path):
    before, after = copied("point", tmp_path), tmp_path / "after.sgm"
    shutil.copy(before, after)
    with sgm.SparseGraphicalMemory.open(after, None) as memory:
        edges = memory.edges()
        gone = [(int(edges.source[i]), int(edges.target[i])) for i in (3, 30)]
        for u, v in gone:
            memory.remove(u, v)
    with inspected(browser, before, after) as page:
        page.open("screen=compare")
        assert page.fact("removed") == "2"
        assert {row[0] for row in page.rows("Removed")} == {f"{u} → {v}" for u, v in gone}
        assert len(page.shapes("path", "failed")) == 2
        assert not page.faults


def test_memories_of_two_streams_are_not_compared_and_a_sentence_says_why(browser, tmp_path):
    with inspected(browser, copied("point", tmp_path), copied("doom", tmp_path)) as page:
        page.open("screen=compare")
        assert len(page.tab.locator("#panel .notice").inner_text()) > 20


def test_a_computed_layout_is_labelled_as_such(browser, tmp_path):
    memory = sgm.SparseGraphicalMemory(Straight(), criterion="none", max_dist=4.0, k=5)
    memory.extend(np.random.default_rng(0).uniform(0, 10, (50, 2)).astype(np.float32))
    memory.save(tmp_path / "bare.sgm")
    with inspected(browser, tmp_path / "bare.sgm") as page:
        page.open()
        assert page.tab.is_visible("#layout")
        assert page.text("#layout") == "Layout computed from path lengths, not from positions"
        page.open("screen=node&node=3")
        assert page.text(".tile") == "no image"
        assert not page.faults


def test_without_webgl_the_same_map_is_drawn_on_a_plain_canvas(point):
    page, _ = point
    page.open("removed=0")
    shader = page.png().astype(int)
    page.open("removed=0&renderer=2d")
    assert page.tab.evaluate("sgmInspector.timings.renderer") == "canvas2d"
    plain = page.png().astype(int)
    nodes = range(len(page.tab.evaluate("[...sgmInspector.graph().component]")))
    same = [np.abs(np.subtract(page.pixel(shader, node), page.pixel(plain, node))).max() < 40 for node in nodes]
    assert np.mean(same) > 0.95
    paper = np.array([0xFB, 0xFA, 0xF7])
    inks = [np.mean(np.abs(picture - paper).max(axis=2) > 40) for picture in (shader, plain)]
    assert inks[1] == pytest.approx(inks[0], rel=0.4)


def test_a_lost_graphics_context_does_not_end_the_map(point):
    page, _ = point
    page.open()
    page.tab.evaluate(
        "document.querySelector('#graph').getContext('webgl2').getExtension('WEBGL_lose_context').loseContext()"
    )
    page.tab.wait_for_selector("#message.fault")
    assert page.tab.evaluate("sgmInspector.timings.renderer") == "canvas2d"
    assert len(np.unique(page.png().reshape(-1, 3), axis=0)) > 10
