"""The page in a real browser while its file changes, with --write, and with hostile text."""

from __future__ import annotations

import json

import numpy as np

import sgm
from tests.inspector.browser import copied, inspected, load, places
from tests.inspector.worlds import plane


def test_a_change_of_the_file_comes_to_the_page_by_itself(point):
    page, path = point
    page.open("screen=map")
    with sgm.SparseGraphicalMemory.open(path, None) as memory:
        edges = memory.edges()
        u, v = int(edges.source[0]), int(edges.target[0])
        before = len(memory.removed().source)
        memory.remove(u, v)
        page.tab.wait_for_function(
            "count => document.querySelector('#counts').innerText.endsWith(`${count} removed`)", arg=before + 1
        )
    assert "changed" in page.text("#message")


def test_a_file_that_is_gone_damaged_and_back_is_a_line_on_the_page_each_time(point):
    page, path = point
    page.open("screen=map")
    kept = path.read_bytes()
    path.unlink()
    page.tab.wait_for_selector("#message.fault")
    gone = page.text("#message")
    path.write_bytes(b"this is no memory" * 100)
    page.tab.wait_for_function(
        "gone => document.querySelector('#message.fault span')?.innerText !== gone",
        arg=gone.removesuffix(" ✕"),
    )
    assert page.tab.locator("#panel h2").inner_text() == "Map"
    path.write_bytes(kept)
    page.tab.wait_for_selector("#message.news")
    assert page.click(0).text("#panel h2").startswith("Node")


def test_reading_is_the_default_and_then_no_edge_can_be_removed(point):
    page, path = point
    page.open(places(path)[4])
    assert "Remove edge" not in page.text()


def test_with_write_an_edge_is_removed_and_restored_after_a_question(browser, tmp_path):
    path = copied("point", tmp_path)
    edges = load(path).edges()
    u, v = int(edges.source[0]), int(edges.target[0])
    with inspected(browser, path, write=True) as page:
        page.open(f"screen=edge&edge={u}-{v}")
        page.tab.click("text=Remove edge")
        page.tab.click("#confirm >> text=Cancel")
        assert "in use" in page.fact("state")
        page.tab.click("text=Remove edge")
        page.tab.click("#confirm button.danger")
        page.tab.wait_for_selector("text=Restore edge")
        assert "removed" in page.fact("state")
        assert load(path).events().kind[-1] == "removed"
        page.tab.click("text=Restore edge")
        page.tab.click("#confirm button.danger")
        page.tab.wait_for_selector("text=Remove edge")
        assert list(load(path).events().kind[-2:]) == ["removed", "restored"]
        assert not page.faults


def test_a_server_that_ends_and_starts_again_is_noticed_and_its_state_is_loaded(browser, tmp_path):
    from sgm.inspector import serve

    path = copied("point", tmp_path)
    with inspected(browser, path) as page, serve(path) as first:
        page.url, port = first.url.rstrip("/"), int(first.url.rstrip("/").rsplit(":", 1)[1])
        page.open("screen=map")
        first.close()
        page.tab.wait_for_selector("#message.fault")
        assert "does not answer" in page.text("#message")
        with serve(path, port=port):
            page.tab.wait_for_selector("#message.news")
            assert "answers again" in page.text("#message")


def test_hostile_text_in_a_memory_is_text(browser, tmp_path):
    evil = "<img src=x onerror=window.hit=1><script>window.hit=1</script>"
    path = tmp_path / "<b onload=window.hit=1>.sgm"
    memory = plane(40)
    memory.attributes[evil] = np.zeros(40)
    memory.save(path)
    said = {"schema": 1, "applies": None, "reason": evil}
    path.with_suffix(".guarantee.json").write_text(json.dumps(said), encoding="utf-8")
    with inspected(browser, path) as page:
        for place in ("screen=node&node=3", "screen=map", f"screen=episode&episode={evil}", "screen=suspects"):
            page.open(place)
            assert page.tab.evaluate("window.hit") is None
        for place in ("screen=node&node=3", "screen=guarantee"):
            page.open(place)
            assert evil in page.text()
        assert page.tab.evaluate("window.hit") is None
        assert page.tab.locator("#panel script, header b, #panel img").count() == 0
        assert not page.faults


def test_the_page_asks_nobody_but_its_server_and_breaks_no_content_policy(world):
    page, _ = world
    page.open("screen=suspects")
    page.open("screen=episode&episode=0")
    assert page.asked
    assert all(address.startswith((page.url, "data:", "blob:", "about:")) for address in page.asked)
    assert not page.faults
