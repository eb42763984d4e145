"""The documentation site: it builds without a warning, covers every public name, and no link leads nowhere."""

from __future__ import annotations

import argparse
import html
import importlib.util
import re
import subprocess
import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

from tests.once import once

for needed in ("sphinx", "myst_nb", "furo"):
    pytest.importorskip(needed, reason="the extra docs is not installed")

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# What pages may link to. Package registries are named nowhere in this repository.
HOSTS = {"arxiv.org", "docs.ray.io", "github.com", "keepachangelog.com", "pradyunsg.me", "www.python.org"}


def module(path: Path) -> ModuleType:
    """A module of the site's tools, which is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


class Page(HTMLParser):
    """Links, resources, images, anchors and text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.resources: list[str] = []
        self.images: list[tuple[str, str]] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("script", "img", "iframe", "source") and "src" in found:
            self.resources.append(found["src"])
        if tag == "link" and found.get("rel") in ("stylesheet", "preload", "icon") and "href" in found:
            self.resources.append(found["href"])
        if tag == "img":
            self.images.append((found.get("src", ""), found.get("alt", "")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once for all test processes."""

    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(DOCS), str(folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
        assert done.returncode == 0, done.stderr

    return once(tmp_path_factory, "site", build)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}


def test_every_kind_of_page_is_there(site, pages):
    for name in ("tutorials", "howto", "reference", "explanation"):
        assert (site / name / "index.html").exists()
    assert len(pages) > 60


def test_every_link_leads_somewhere(site, pages):
    wrong = []
    for path, page in pages.items():
        for link in page.links + page.resources:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                wrong.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and target in pages and parts.fragment not in pages[target].anchors:
                wrong.append(f"{path.relative_to(site)}: {link} has no such place")
    assert not wrong


def test_links_to_other_sites_are_well_formed(pages):
    links = {link for page in pages.values() for link in page.links if link.startswith(("http:", "https:", "//"))}
    assert links
    for link in links:
        parts = urllib.parse.urlsplit(link)
        assert parts.scheme == "https" and parts.hostname in HOSTS, link


def test_pages_load_nothing_from_elsewhere(pages):
    loaded = {resource for page in pages.values() for resource in page.resources}
    assert [resource for resource in loaded if re.match(r"(https?:)?//", resource)] == []


def test_every_image_has_a_text(pages):
    bare = {src for page in pages.values() for src, alt in page.images if len(alt.strip()) < 5}
    assert not bare


def test_markdown_files_that_pages_link_to_are_rendered(site):
    policy = (site / "files" / "SECURITY.md.html").read_text(encoding="utf-8")
    assert "<h2>" in policy and "## " not in policy
    figures = (site / "files" / "results" / "memory" / "bench.md.html").read_text(encoding="utf-8")
    assert '<table class="docutils">' in figures and "|---" not in figures


def test_formulas_are_drawn_by_the_browser_itself(site):
    text = (site / "explanation" / "method.html").read_text(encoding="utf-8")
    assert text.count("<math") > 10 and "$$" not in text
    assert not [resource for resource in Page(site / "explanation" / "method.html").resources if "athjax" in resource]


def test_every_public_name_has_a_docstring_and_a_place_in_the_reference(site):
    from sphinx.util.inventory import InventoryFile

    public = module(DOCS / "_ext" / "public.py")
    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, uri: uri)
    known = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    names = [found.path for found in public.public_names()]
    assert len(names) > 100 and {"sgm.SparseGraphicalMemory", "sgm.Navigator", "sgm.cleanup"} <= set(names)
    assert public.undocumented() == []
    assert [name for name in names if name not in known] == []


def test_every_name_that_sgm_exports_is_public():
    import sgm

    names = {found.path.rpartition(".")[2] for found in module(DOCS / "_ext" / "public.py").public_names()}
    modules = {"controllers", "data", "distances", "distributed", "navigation"}
    assert [name for name in sgm.__all__ if name not in names | modules | {"__version__"}] == []


def commands() -> dict[str, argparse.ArgumentParser]:
    """Every command with its options, such as "run point"."""
    from sgm import cli

    found: dict[str, argparse.ArgumentParser] = {}

    def walk(parser: argparse.ArgumentParser, names: tuple[str, ...]) -> None:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, inner in action.choices.items():
                    found[" ".join([*names, name])] = inner
                    walk(inner, (*names, name))

    walk(cli._parser([]), ())
    for name in list(found):
        walk(cli._parser([name]), ())
    return found


def test_every_command_and_option_is_in_the_reference(site):
    missing = []
    for name, parser in commands().items():
        page = site / "reference" / "generated" / f"command-{name.split()[0]}.html"
        text = html.unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))
        assert f"sgm {name}" in text
        options = [option for action in parser._actions for option in action.option_strings]
        missing += [f"{name} {option}" for option in options if option not in ("-h", "--help") and option not in text]
    assert not missing


def paragraphs(path: Path) -> set[str]:
    """Long paragraphs of a page, without tables, code and lists of links."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = (" ".join(block.split()) for block in text.split("\n\n"))
    return {block for block in found if len(block) > 160 and not block.startswith(("|", "!", "<"))}


def test_no_two_pages_have_the_same_text():
    pages = [ROOT / "README.md", *(path for path in DOCS.rglob("*.md") if "generated" not in path.parts)]
    seen: dict[str, Path] = {}
    twice = []
    for path in pages:
        for paragraph in paragraphs(path):
            if paragraph in seen:
                twice.append(f"{path.name} and {seen[paragraph].name}: {paragraph[:80]}")
            seen[paragraph] = path
    assert not twice
