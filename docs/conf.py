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
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_parser",
    "ale_reference",
]
exclude_patterns = ["_build", "_ext", "reference/generated/parts"]
templates_path: list[str] = []

# A name in single backticks in a docstring: a link where it is documented, else plain code.
default_role = "py:obj"
python_use_unqualified_type_names = True
add_module_names = False
python_maximum_signature_line_length = 80
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_custom_sections = [("Raises (on entry)", "Raises")]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"ale {release}"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["ale.css"]
html_theme_options = {"sidebar_hide_name": False, "navigation_with_keys": True}
