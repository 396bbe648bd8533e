"""The site: `sphinx-build -W --keep-going docs results/docs`, without a network.

Pages that follow from the code and from `figures` are written by the package `pages`
beside this file, before Sphinx reads any.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from pages import sources

import cfljax

project = "cfljax"
author = "the authors of cfljax"
release = version = cfljax.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.linkcode",
    "pages.extension",
]
exclude_patterns = ["pages"]
templates_path: list[str] = []

html_theme = "furo"
html_title = "cfljax"
html_theme_options = {
    "light_css_variables": {
        "sidebar-caption-font-size": "0.8125rem",
        "toc-title-font-size": "0.8125rem",
        "toc-font-size": "0.8125rem",
    }
}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("filter.js", {"defer": "defer"})]
html_math_renderer = "mathml"
html_copy_source = False
html_show_copyright = False

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
myst_links_external_new_tab = False

tutorials = [
    "heatmap",
    "own_theorem",
    "own_data",
    "own_algorithm",
    "results",
]
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 600  # seconds of a cell, on a machine that has other work
nb_execution_raise_on_error = True
nb_merge_streams = True

linkcode_resolve = sources.resolve
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
default_role = "code"
