"""Where lines may break: not inside numbers with their unit or interval, but after the underscores of long names."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

SPACE, JOIN = "\N{NO-BREAK SPACE}", "\N{WORD JOINER}"
INTERVAL = re.compile(r"\[[-+−]?[\d.]+(?:–|, )[-+−]?[\d.]+\]")
LONG = 12  # characters of a name in code that may be broken


def joined(text: str) -> str:
    """A text in which 93.1 %, ± 1.2, 3 × 300 and [85.2–89.3] stay on one line each."""
    text = INTERVAL.sub(lambda found: found[0].replace("–", f"–{JOIN}").replace(", ", f",{SPACE}"), text)
    text = re.sub(r"(?<=\d) (?=%)|(?<=±) (?=\d)|(?<=\d) (?=× \d)|(?<=\d ×) (?=\d)", SPACE, text)
    return re.sub(rf"(?<=\d{SPACE}×) (?=\d)", SPACE, text)


def set_breaks(app: Sphinx, document: nodes.document, name: str) -> None:
    """Called by Sphinx for each page before it is written."""
    code = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw, nodes.comment)
    for text in list(document.findall(nodes.Text)):
        above = text.parent
        while above is not None and not isinstance(above, code):
            above = above.parent
        if above is None and text.parent is not None and (kept := joined(text.astext())) != text.astext():
            text.parent.replace(text, nodes.Text(kept))
    for literal in list(document.findall(nodes.literal)):
        parts = re.split(r"(?<=[_/.])(?=\w)", literal.astext())
        if len(literal.children) == 1 and len(literal.astext()) > LONG and len(parts) > 1:
            broken: list[nodes.Node] = [nodes.Text(parts[0])]
            for part in parts[1:]:
                broken += [nodes.raw("", "<wbr>", format="html"), nodes.Text(part)]
            literal.children = []
            literal.extend(broken)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("doctree-resolved", set_breaks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
