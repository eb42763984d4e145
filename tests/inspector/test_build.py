"""The built page: made from its sources, small, free of what it must not have, and in the wheel."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.inspector.browser import Page, copied

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "inspector"
STATIC = ROOT / "sgm" / "inspector" / "static"
FILES = ("app.css", "app.js", "index.html")
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (SOURCES / "node_modules" / "esbuild").exists(),
    reason="node or the page's build tools are not installed: npm ci in inspector/",
)


@needs_node
def test_the_built_files_are_what_the_sources_build(tmp_path):
    subprocess.run(["node", "build.mjs", str(tmp_path)], cwd=SOURCES, check=True, timeout=120)
    assert (
        sorted(file.name for file in tmp_path.iterdir())
        == sorted(file.name for file in STATIC.iterdir())
        == list(FILES)
    )
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (STATIC / name).read_bytes(), f"{name} is old: make inspector"


@needs_node
def test_the_sources_have_right_types():
    done = subprocess.run(
        ["node", "node_modules/typescript/bin/tsc"], cwd=SOURCES, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout


def test_the_page_is_at_most_60_kB_on_the_wire():
    size = sum(len(gzip.compress((STATIC / name).read_bytes(), mtime=0)) for name in FILES)
    print(f"{size} bytes")
    assert size <= 60_000


@pytest.mark.parametrize("name", FILES)
def test_the_built_files_name_no_other_host_and_parse_no_text_as_html(name):
    text = (STATIC / name).read_text(encoding="utf-8")
    hosts = set(re.findall(r"https?://[^\s\"'`)]+", text))
    assert hosts <= {"http://www.w3.org/2000/svg"}
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\sstyle=|\son\w+=", text
    )


def test_the_lock_file_names_no_registry():
    text = (SOURCES / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in text
    assert "http" not in re.sub(r'"url": "[^"]*"', "", text)


def test_a_wheel_with_the_extra_inspect_opens_the_page_in_a_clean_environment(browser, tmp_path):
    wheel = built_wheel(tmp_path / "wheel")
    python = clean_python(tmp_path / "clean")
    install = [python, "-m", "pip", "install", "-qq", "--no-index", "--disable-pip-version-check", f"{wheel}[inspect]"]
    subprocess.run(install, check=True, timeout=300)
    command = [python, "-I", "-m", "sgm", "inspect", str(copied("point", tmp_path)), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = next(found.group() for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
            page = Page(browser.new_page(), address).open("from=0&to=40")
            assert page.text("#waypoints").startswith("0 →")
            assert not page.faults
            page.tab.close()
        finally:
            server.terminate()


def built_wheel(folder: Path) -> Path:
    """A wheel of the package as it is here."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=300)
    return next(folder.glob("*.whl"))


def clean_python(folder: Path) -> str:
    """The Python of a new environment that has what sgm[inspect] needs and nothing else; nothing is downloaded."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    for name in needed():
        files = metadata.distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            (packages / top).symlink_to(metadata.distribution(name).locate_file(top))
    return python


def needed() -> set[str]:
    """Names of the packages that sgm[inspect] needs, and those that these need."""
    tomllib = pytest.importorskip("tomllib", reason="pyproject.toml is read with tomllib, which Python 3.10 has not")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [Requirement(text) for text in declared["dependencies"] + declared["optional-dependencies"]["inspect"]]
    found: set[str] = set()
    while waiting:
        name = canonicalize_name(waiting.pop().name)
        if name in found:
            continue
        found.add(name)
        more = [Requirement(text) for text in metadata.requires(name) or []]
        waiting += [one for one in more if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found
