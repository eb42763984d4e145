"""The page for everybody: axe-core, narrow windows, dark and light, less motion, and colour that is never alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.inspector import browser as browsers
from tests.inspector.browser import copied, inspected, places

AXE = Path(__file__).parents[2] / "inspector" / "node_modules" / "axe-core" / "axe.min.js"


def audit(page) -> list[str]:
    """What axe-core finds on the page."""
    page.tab.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
    found = page.tab.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {one['help']}: {node['html']}" for one in found["violations"] for node in one["nodes"]]


needs_axe = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: npm ci in inspector/")


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [browsers.LAPTOP, browsers.PHONE], ids=["laptop", "phone"])
def test_axe_finds_no_violation_on_any_screen(browser, tmp_path, scheme, size):
    path = copied("point", tmp_path)
    with inspected(browser, path, write=True, color_scheme=scheme, viewport=size) as page:
        for place in places(path):
            page.open(place)
            assert audit(page) == [], place
        page.tab.keyboard.press("?")
        assert audit(page) == []


@needs_axe
def test_axe_finds_no_violation_where_there_are_images(world):
    page, _ = world
    for place in ("screen=suspects", "screen=node&node=0", "screen=episode&episode=0&step=3"):
        page.open(place)
        assert audit(page) == [], place


@pytest.mark.parametrize("width", [360, 390, 768, 1024, 1280, 1920])
def test_nothing_sticks_out_of_the_window(browser, tmp_path, width):
    path = copied("safety", tmp_path)
    with inspected(browser, path, viewport={"width": width, "height": 800}) as page:
        for place in ("screen=map", "screen=suspects", "screen=episode&episode=0", "screen=guarantee"):
            page.open(place)
            assert page.tab.evaluate("document.documentElement.scrollWidth") <= width
            box = page.tab.locator("#above").bounding_box()
            assert box["width"] > 0.45 * width or box["width"] > 330
            assert box["height"] > 200


def test_dark_and_light_follow_the_system(browser, tmp_path):
    path = copied("point", tmp_path)
    shades = {}
    for scheme in ("light", "dark"):
        with inspected(browser, path, color_scheme=scheme) as page:
            page.open()
            shades[scheme] = (
                page.png()[2, 2].mean(),
                page.tab.evaluate("getComputedStyle(document.body).backgroundColor"),
            )
            page.tab.emulate_media(color_scheme="dark" if scheme == "light" else "light")
            page.tab.wait_for_timeout(200)
            assert abs(page.png()[2, 2].mean() - shades[scheme][0]) > 100
    assert shades["light"][0] > 200 > 60 > shades["dark"][0]


def test_the_camera_jumps_where_motion_is_unwanted_and_slides_elsewhere(browser, tmp_path):
    path = copied("point", tmp_path)
    watch = """async () => {
        const camera = sgmInspector.camera, seen = new Set();
        camera.zoom(6, 100, 100);
        document.querySelector('#fit').click();
        const end = performance.now() + 1500;
        while (performance.now() < end) { seen.add(camera.scale); await new Promise(requestAnimationFrame) }
        return seen.size;
    }"""
    for motion, most in (("reduce", 1), ("no-preference", 1000)):
        with inspected(browser, path, reduced_motion=motion) as page:
            page.open()
            assert page.tab.evaluate(watch) <= most
            if motion != "reduce":
                page.open()
                assert page.tab.evaluate(watch) > 1


def test_colour_is_never_alone(point):
    page, path = point
    page.open("colour=evidence")
    widths = re.findall(r'stroke-width="([\d.]+)"', page.tab.inner_html("#legend"))
    assert len(set(widths)) >= 3
    assert 'stroke-dasharray="5 4"' in page.tab.inner_html("#legend")  # removed
    page.go("screen=edge&edge=" + places(path)[5].split("edge=")[1])
    assert "✕ removed" in page.fact("state")
