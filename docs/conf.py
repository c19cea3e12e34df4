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

extensions = ["myst_parser", "sphinx_click"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["substitution", "colon_fence"]
myst_heading_anchors = 3
myst_substitutions = {name: make() for name, make in tables.TABLES.items()}

html_extra_path = [str(tables.EXAMPLES)]
html_theme = "furo"
html_title = f"tfmon {release}"
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": False}
