"""Links from pages to other files of the repository.

Pages link to results, examples and sources as they do on a code host: `[figures](../results/point/results.json)`. On
the site Markdown and Python files become pages, folders become lists, and other files are copied.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

ROOT = Path(__file__).resolve().parents[2]
AS_PAGES = (".py", ".md", ".toml")
logger = logging.getLogger(__name__)


def address(path: Path) -> str:
    """Where a file or folder of the repository is on the site."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return f"files/{name}/index.html"
    return f"files/{name}.html" if path.suffix in AS_PAGES else f"files/{name}"


class RepositoryLinks(SphinxTransform):
    """Lead links that leave the folder of the pages to the copies of what they name."""

    default_priority = 500

    def apply(self, **_: Any) -> None:
        """Called by Sphinx for each page."""
        source = Path(self.env.doc2path(self.env.docname))
        for node in list(self.document.findall(addnodes.pending_xref)) + list(
            self.document.findall(addnodes.download_reference)
        ):
            target = node.get("reftarget", "").partition("#")[0]
            if node.get("refdomain") == "doc":  # MyST takes any Markdown file for a page, and leaves its ending out
                target += ".md"
            path = Path(os.path.normpath(source.parent / target))
            if not path.exists() and (ROOT / target).is_file():  # what CONTRIBUTING.md, included, links to
                path = ROOT / target
            if path.is_relative_to(ROOT / "docs") or not path.is_relative_to(ROOT):
                continue
            if not path.exists():
                logger.warning("%s is not in the repository", target, location=node)
                continue
            known = self.env.__dict__.setdefault("repository_files", {})
            known.setdefault(self.env.docname, set()).add(path)
            uri = posixpath.relpath(address(path), posixpath.dirname(self.env.docname) or ".")
            reference = nodes.reference("", "", internal=True, refuri=uri)
            reference += node.children
            node.replace_self(reference)


def shown(path: Path) -> str:
    """The text of a file, or the names in a folder, as HTML."""
    if path.is_dir():
        names = [entry.name + "/" * entry.is_dir() for entry in sorted(path.iterdir())]
        return "<ul>" + "".join(f"<li><code>{html.escape(name)}</code></li>" for name in names) + "</ul>"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return rendered(text)
    lexer = get_lexer_for_filename(path.name)
    return f'<div class="highlight">{highlight(text, lexer, HtmlFormatter(nowrap=False))}</div>'


def rendered(text: str) -> str:
    """A Markdown file as HTML. Links to other files of the repository, and images, are left out."""
    page = (
        MarkdownIt("commonmark", {"html": False})
        .enable("table")
        .render(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))
    )
    page = re.sub(r"<img[^>]*>", "", page)
    page = re.sub(r'<a href="(?!https://)[^"]*">(.*?)</a>', r"\1", page)
    page = re.sub(r"<th>.*?</th>", lambda found: found[0].replace("_", "_<wbr>"), page)
    page = page.replace("<table>", '<div class="table-wrapper"><table class="docutils">')
    return page.replace("</table>", "</table></div>")


def wanted(app: Sphinx) -> set[Path]:
    """All files and folders that pages link to."""
    known: dict[str, set[Path]] = getattr(app.env, "repository_files", {})
    return {path for paths in known.values() for path in paths}


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The pages of sources and folders."""
    for path in sorted(wanted(app)):
        if path.is_dir() or path.suffix in AS_PAGES:
            name = path.relative_to(ROOT).as_posix()
            title = f"<code>{html.escape(name)}</code>"
            text = shown(path)
            body = (f"<p>{title}</p>" if "<h1>" in text else f"<h1>{title}</h1>") + text
            yield address(path).removesuffix(".html"), {"title": name, "body": body}, "page.html"


def copy_files(app: Sphinx, error: Exception | None) -> None:
    """Copy what is not shown as a page."""
    if error or app.builder.format != "html":
        return
    for path in wanted(app):
        target = Path(app.outdir) / address(path)
        if path.is_file() and path.suffix not in AS_PAGES:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def forget(app: Sphinx, env: Any, docname: str) -> None:
    """A page is read anew: forget what it linked to."""
    env.__dict__.get("repository_files", {}).pop(docname, None)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_transform(RepositoryLinks)
    app.connect("env-purge-doc", forget)
    app.connect("html-collect-pages", pages)
    app.connect("build-finished", copy_files)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
