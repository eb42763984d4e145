"""A real browser for tests of the inspector's page: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sgm

DATA = Path(__file__).parents[1] / "data" / "inspector"
WORLDS = ("point", "doom", "safety")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Mesa's llvmpipe draws: without a graphics card the pictures are the same and only slower.
FLAGS = [
    "--headless=new", "--no-sandbox", "--use-gl=angle", "--use-angle=gl-egl", "--ignore-gpu-blocklist",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
LAPTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
# Every screen with something on it, in the PointEnv memory.
PLACES = [
    "screen=map", "screen=map&colour=evidence", "screen=map&colour=visits", "screen=node&node=3",
    "screen=edge&edge={edge}", "screen=edge&edge={removed}", "from=0&to=40", "screen=why&from=0&to=40",
    "screen=suspects&suspect=1", "screen=components",
    "screen=time&at=40", "screen=compare", "screen=episode", "screen=episode&episode=0&step=5", "screen=guarantee",
]  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser; the test is skipped with a sentence where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: as root, on Debian, apt-get install chromium")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Page:
    """The inspector's page of one memory.

    Attributes:
        tab: Playwright's page.
        url: of the server.
        faults: what went wrong in the page: scripts that failed, and what the content policy refused.
        asked: every address that the page asked for.
    """

    def __init__(self, tab: Any, url: str) -> None:
        """Take over a new tab."""
        self.tab, self.url = tab, url.rstrip("/")
        self.faults: list[str] = []
        self.asked: list[str] = []
        tab.set_default_timeout(30_000)
        tab.on("pageerror", lambda fault: self.faults.append(str(fault)))
        tab.on("console", lambda line: self._heard(line))
        tab.on("request", lambda request: self.asked.append(request.url))

    def _heard(self, line: Any) -> None:
        if "Content Security Policy" in line.text or (line.type == "error" and "status of" not in line.text):
            self.faults.append(line.text)

    def open(self, place: str = "") -> Page:
        """Load the page at a place, the part of the address behind #."""
        self.tab.goto("about:blank")
        self.tab.goto(f"{self.url}/#{place}")
        self.tab.wait_for_selector("body[data-ready]")
        return self.settled()

    def go(self, place: str) -> Page:
        """Go to a place without loading the page again."""
        self.tab.evaluate("place => { location.hash = place }", place)
        self.tab.wait_for_function("place => location.hash === '#' + place", arg=place)
        return self.settled()

    def settled(self) -> Page:
        """Wait until the panel shows what the address says."""
        self.tab.wait_for_timeout(50)
        self.tab.wait_for_selector("#panel:not([aria-busy])")
        return self

    def text(self, selector: str = "#panel") -> str:
        """What is written there, with single spaces."""
        return " ".join(self.tab.inner_text(selector).split())

    def fact(self, name: str) -> str:
        """The value of a fact of the panel."""
        row = self.tab.locator("#panel dt", has_text=name).first
        return " ".join(row.evaluate("row => row.nextElementSibling.innerText").split())

    def rows(self, caption: str) -> list[list[str]]:
        """The cells of the table whose caption begins so."""
        return self.tab.evaluate(
            """caption => {
                const tables = [...document.querySelectorAll("#panel table")];
                const table = tables.find(one => one.caption.innerText.startsWith(caption));
                if (!table) return null;
                return [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.innerText.trim()));
            }""",
            caption,
        )

    def where(self, node: int) -> tuple[float, float]:
        """Where a node is in the window, in pixels."""
        x, y = self.tab.evaluate("node => sgmInspector.where(node)", node)
        box = self.tab.locator("#above").bounding_box()
        return box["x"] + x, box["y"] + y

    def click(self, node: int) -> Page:
        """Click a node of the map."""
        self.tab.mouse.click(*self.where(node))
        return self.settled()

    def shapes(self, kind: str, colour: str) -> list[dict[str, Any]]:
        """What lies above the map: paths or marks of a colour."""
        shapes = self.tab.evaluate("sgmInspector.shapes()")
        return [one for one in shapes if one["kind"] == kind and one.get("colour") == colour]

    def png(self) -> np.ndarray:
        """The file that the PNG button saves: (h, w, 3) uint8."""
        image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install pillow")
        with self.tab.expect_download() as saved:
            self.tab.click("#png")
        file = Path(saved.value.path()).read_bytes()
        return np.asarray(image.open(io.BytesIO(file)).convert("RGB"))

    def pixel(self, picture: np.ndarray, node: int) -> tuple[int, int, int]:
        """The colour in the middle of a node, in a picture of the map."""
        x, y = self.tab.evaluate("node => sgmInspector.where(node)", node)
        return tuple(int(value) for value in picture[round(y - 0.5), round(x - 0.5)])


@contextmanager
def inspected(browser: Any, *paths: Path, **options: Any) -> Iterator[Page]:
    """The page of a memory file, or of two; `write` is the server's, all else the browser's."""
    from sgm.inspector import serve

    write = options.pop("write", False)
    options = {"viewport": LAPTOP, "reduced_motion": "reduce", "accept_downloads": True, **options}
    with serve(*paths, write=write) as server:
        context = browser.new_context(**options)
        page = context.new_page()
        if write:
            page.goto(server.address)
            assert "token" not in page.url
        yield Page(page, server.url)
        context.close()


def copied(world: str, folder: Path) -> Path:
    """A world's memory with all files beside it, as a copy that may be changed."""
    for file in DATA.glob(f"{world}.*"):
        shutil.copy(file, folder)
    return folder / f"{world}.sgm"


def load(path: Path) -> sgm.SparseGraphicalMemory:
    """The memory of a file, to look at."""
    return sgm.SparseGraphicalMemory.load(path, None)


def places(path: Path) -> list[str]:
    """An address of every screen with something on it."""
    memory = load(path)
    edges, removed = memory.edges(), memory.removed()
    one = {"edge": f"{edges.source[0]}-{edges.target[0]}", "removed": f"{removed.source[0]}-{removed.target[0]}"}
    return [place.format(**one) for place in PLACES]
