"""What the documentation shows, works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def examples() -> list:
    found = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        blocks = re.findall(r"<!-- test -->\n```python\n(.*?)```", page.read_text(), re.DOTALL)
        found += [pytest.param(block, id=f"{page.name}-{number}") for number, block in enumerate(blocks)]
    return found


@pytest.mark.parametrize("code", examples())
def test_the_example_runs(code, tmp_path):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_there_are_examples_in_readme_and_docs():
    ids = [example.id for example in examples()]
    assert any(name.startswith("README") for name in ids)
    assert any(name.startswith("own-distance") for name in ids)


def test_every_file_that_readme_shows_exists():
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_promise_about_the_file_names_a_test_that_exists():
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "file.md").read_text())
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 25
    assert [name for name in named if f"def {name}(" not in written] == []
