"""Formulas as MathML, which browsers set by themselves, without a script.

Where a machine has no font for mathematics, signs would be too small and indices too
low: the site brings one, STIX Two Math, whose licence (SIL OFL) allows that.
"""

import importlib.resources

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def setup(app: Sphinx) -> None:
    """Offer the renderer `mathml`, and copy its font."""
    fonts = importlib.resources.files("ziamath") / "fonts"
    app.config.html_static_path.append(str(fonts))  # type: ignore[attr-defined]
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _display(translator: HTML5Translator, node: nodes.math_block) -> None:
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="math">{formula}</div>')
    raise nodes.SkipNode
