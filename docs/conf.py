"""How Sphinx builds these pages: ``sphinx-build -W docs docs/_build/html``."""

import sys
from pathlib import Path

import ale

HERE = Path(__file__).parent
# Sphinx imports extensions by name; this one lives beside the pages that it makes.
sys.path.insert(0, str(HERE / "_ext"))

project = "ale"
author = "the authors of ale"
copyright = "the authors of ale, under the Apache License 2.0"
version = release = ale.__version__

extensions = [
    "myst_parser",
    "ale_reference",
]
exclude_patterns = ["_build", "_ext"]
templates_path: list[str] = []

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"ale {release}"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["ale.css"]
html_theme_options = {"sidebar_hide_name": False, "navigation_with_keys": True}
