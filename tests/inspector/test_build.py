"""The built page: made from its sources, small, free of what it must not have. The wheel: test_release."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

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
