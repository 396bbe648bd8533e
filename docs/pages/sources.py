"""The source files that pages name, as pages beside them: their links need no network.

Sphinx's `viewcode` has those of the library, this those of statements and experiments.
"""

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup
from sphinx.application import Sphinx

from experiments.registry import EXPERIMENTS
from pages.markdown import ROOT, source_address
from theory import registry


def setup(app: Sphinx) -> None:
    """Have a page written for each file."""
    app.connect("html-collect-pages", _pages)


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Name, title and content of each page, and its template."""
    named = {row.module for row in registry.listed()}
    named |= {entry.module for entry in EXPERIMENTS.values()}
    for module in sorted(named):
        file = f"{module.replace('.', '/')}.py"
        text = (ROOT / file).read_text("utf-8")
        code = app.builder.highlighter.highlight_block(text, "python")
        body = Markup("<h1>Source code of {}</h1>{}").format(file, Markup(code))
        address = source_address(module).removesuffix(".html")
        yield address, {"title": file, "body": body}, "page.html"
