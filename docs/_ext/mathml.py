"""Formulas as MathML, which every current browser draws by itself: no script, no font and no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def draw(self: Any, node: nodes.Element, block: bool) -> None:
    """Write a formula of a page as MathML."""
    tex = node.astext().strip()
    markup = tex2mathml(tex, as_block=block)
    markup = markup.replace("<math ", '<math role="math" ', 1)
    self.body.append(f'<div class="math">{markup}</div>' if block else markup)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_html_math_renderer(
        "mathml",
        (lambda self, node: draw(self, node, False), None),
        (lambda self, node: draw(self, node, True), None),
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
