"""Settings of Sphinx. `make docs` builds the manual; every page is Markdown."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import tables

import tfmon

project = "tfmon"
author = "The tfmon authors"
copyright = author
version = release = tfmon.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True
# Types of the signatures in the API reference; the manual has no page for most of them.
nitpick_ignore_regex = [("py:.*", ".*")]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"

myst_enable_extensions = ["substitution", "colon_fence"]
myst_heading_anchors = 3
myst_substitutions = {name: make() for name, make in tables.TABLES.items()}

html_extra_path = [str(tables.EXAMPLES)]
html_theme = "furo"
html_title = f"tfmon {release}"
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": False}
