"""How the site is built: `make docs`. Nothing is fetched while it is built, and nothing while it is read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import sgm  # noqa: E402

project = "Sparse Graphical Memory"
author = "The Sparse Graphical Memory developers"
copyright = author
version = release = sgm.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "mathml",
    "reference",
    "repository",
    "signatures",
    "typography",
]
exclude_patterns = ["_ext", "_static", "**.ipynb_checkpoints"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
default_role = "code"  # docstrings put names in single backticks
nitpicky = False
smartquotes_action = "qe"  # no dashes: options begin with two hyphens
suppress_warnings = ["ref.python"]  # attributes of the same name in several classes

myst_enable_extensions = ["attrs_inline", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # outputs are committed; `make notebooks` makes them anew, and a test compares
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True}
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False

html_theme = "furo"
html_title = f"Sparse Graphical Memory {release}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"sidebar_hide_name": False, "top_of_page_buttons": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
