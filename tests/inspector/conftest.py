"""A browser and the pages of three memories, started once for all tests that need them."""

from __future__ import annotations

import pytest

from tests.inspector import browser as browsers


@pytest.fixture(scope="session")
def browser():
    """A running Chromium."""
    with browsers.chromium() as running:
        yield running


@pytest.fixture(scope="module", params=browsers.WORLDS)
def world(request, browser, tmp_path_factory):
    """The page of a PointEnv, a ViZDoom and a SafetyGym memory, and the memory."""
    path = browsers.copied(request.param, tmp_path_factory.mktemp(request.param))
    with browsers.inspected(browser, path) as page:
        yield page, browsers.load(path)
        assert not page.faults


@pytest.fixture
def point(browser, tmp_path):
    """The page of a PointEnv memory in a tab of its own, and the path of its file."""
    path = browsers.copied("point", tmp_path)
    with browsers.inspected(browser, path) as page:
        yield page, path
        assert not page.faults
