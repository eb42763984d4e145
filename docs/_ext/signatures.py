"""Signatures as people write them: `NDArray[int64]` instead of its expansion, `...` for defaults that are made anew."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

ANY_SHAPE = r"~?(?:\w+\.)*ndarray\[~?tuple\[~?(?:\w+\.)*Any, \.\.\.\], ~?(?:\w+\.)*dtype\[~?(?:\w+\.)*"
ARRAY = re.compile(ANY_SHAPE + r"(?:Any|(\w+?)_?)\]\]")


def shorter(text: str | None) -> str | None:
    """A signature or a type with short names of arrays."""
    if not text:
        return text
    text = ARRAY.sub(lambda found: f"NDArray[{found[1]}]" if found[1] else "NDArray", text)
    return re.sub(r"~(?:\w+\.)*(?=\w)", "", text).replace("<factory>", "...")


def of_functions(app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str, returned: str) -> Any:
    """Called by autodoc for each class and function."""
    return shorter(signature), shorter(returned)


def of_properties(app: Sphinx, document: nodes.document, name: str) -> None:
    """Types of properties and attributes, which autodoc writes without asking; names in them are resolved by now."""
    for node in list(document.findall(addnodes.desc_annotation)):
        text = node.astext()
        if (short := shorter(text)) != text:
            node.children = [nodes.Text(short or "")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", of_functions)
    app.connect("doctree-resolved", of_properties)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
