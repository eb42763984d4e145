"""`memory.view()`: the inspector's page in a notebook, of a live memory or of a copy."""

from __future__ import annotations

import gc
import importlib.util
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import sgm

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.inspector.client import ask


class Plane:
    """Euclid's distance."""

    fingerprint = "plane"

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        return np.linalg.norm(starts[:, None] - goals, axis=-1)


PLACES = np.random.default_rng(0).uniform(0, 10, (60, 2)).astype(np.float32)


def fill(memory):
    memory.extend(PLACES, attributes={"position": PLACES})
    return memory


def test_a_memory_is_shown_as_it_is_and_the_page_ends():
    memory = fill(sgm.SparseGraphicalMemory(Plane(), tau_a=0.5, max_dist=4.0))
    with memory.view(height=500) as page:
        told = ask(page.url).json()
        assert told["nodes"] == len(memory) and told["layout"]["kind"] == "positions" and not told["write"]
        shown = page._repr_html_()
        assert shown.startswith("<iframe") and page.url in shown and "height: 500px" in shown
        assert page.is_running and "frame-ancestors" in ask(page.url, "/").headers["content-security-policy"]
    page.close()
    assert not page.is_running and "closed" in page._repr_html_() and "closed" in repr(page)
    with pytest.raises(ConnectionError):
        ask(page.url)


def test_a_live_memory_is_followed_and_its_writer_closes_cleanly_while_it_is_shown(tmp_path):
    path = tmp_path / "live.sgm"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        memory = fill(sgm.SparseGraphicalMemory.open(path, Plane(), tau_a=0.5, max_dist=4.0, policy="first-failure"))
        with memory.view() as page:
            assert ask(page.url).json()["removed"] == 0
            edges = memory.edges()
            memory.record(int(edges.source[0]), int(edges.target[0]), False)
            memory.close()
            for _ in range(200):
                if ask(page.url).json()["removed"]:
                    break
                time.sleep(0.05)
            assert ask(page.url).json()["removed"] == 1
    assert [each.name for each in tmp_path.iterdir()] == ["live.sgm"]


def test_a_page_that_nobody_holds_ends():
    page = fill(sgm.SparseGraphicalMemory(Plane(), tau_a=0.5, max_dist=4.0)).view()
    process = page._process
    del page
    gc.collect()
    assert process.wait(20) == 0


def test_without_the_extra_it_says_which_one(monkeypatch):
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else known(name))
    memory = fill(sgm.SparseGraphicalMemory(Plane(), tau_a=0.5, max_dist=4.0))
    with pytest.raises(sgm.errors.MissingExtra, match=r"memory\.view\(\) needs uvicorn: pip install '.*\[inspect\]'"):
        memory.view()


def test_a_height_that_is_none_is_refused():
    with pytest.raises(sgm.InputError, match="height is '5 cm': expected 100 to 10,000 pixels"):
        fill(sgm.SparseGraphicalMemory(Plane(), tau_a=0.5, max_dist=4.0)).view(height="5 cm")


def test_a_file_that_is_gone_is_told(tmp_path):
    from sgm.inspector.notebook import show

    with pytest.raises(sgm.StoreError, match="there is no"):
        show(None, Path(tmp_path / "gone.sgm"))
