"""Settings of the site, for Sphinx: ``make docs`` builds it into .build/site."""

from __future__ import annotations

import sys
from pathlib import Path

from pygments.lexers.special import TextLexer

sys.path.insert(0, str(Path(__file__).parent))
import site_pages

import bigsap

project = "BigSAP"
author = "BigSAP developers"
copyright = author
version = release = bigsap.__version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinx_design"]
source_suffix = {".md": "markdown"}
# developers/lab.md takes the place of its index.
exclude_patterns = ["_static", "lab/README.md"]
# The documents' own shell blocks have no language.
highlight_language = "text"
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
# JSON of the command line may hold Infinity, which the lexer refuses.
suppress_warnings = ["misc.highlighting_failure"]

# The docstrings say what may be given, in words.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_theme_options = {
    "light_css_variables": {"color-code-background": "#f3f5f7"},
    "dark_css_variables": {"color-code-background": "#23262a"},
}
html_title = f"BigSAP {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
# Summaries are fetched, which a browser refuses for pages that are opened as files.
html_show_search_summary = False
html_permalinks_icon = "#"
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True


def setup(app):
    app.add_lexer("mermaid", TextLexer)
    site_pages.setup(app)
