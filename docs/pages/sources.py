"""The source files that pages name, as pages beside them: their links need no network.

A link to a public name of the library leads to its line.
"""

import inspect
import operator
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

from experiments.registry import EXPERIMENTS
from pages.markdown import ROOT, source_address
from theory import registry


def setup(app: Sphinx) -> None:
    """Have a page written for each file."""
    app.connect("html-collect-pages", _pages)


def resolve(domain: str, info: Mapping[str, str]) -> str | None:
    """Where the site has the source of a public name, from a page of the interface;
    None for what has none, such as a constant. It is `linkcode_resolve` of Sphinx."""
    del domain
    try:
        value = operator.attrgetter(info["fullname"])(sys.modules[info["module"]])
        value = inspect.unwrap(getattr(value, "fget", value))
        file = pathlib.Path(inspect.getsourcefile(value) or "").relative_to(ROOT)
        line = inspect.getsourcelines(value)[1]
    except (AttributeError, OSError, TypeError, ValueError):
        return None
    return f"../{source_address(_module(file))}#L-{max(line, 1)}"


def _module(file: pathlib.Path) -> str:
    return ".".join(file.with_suffix("").parts)


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Name, title and content of each page, and its template."""
    assert isinstance(app.builder, StandaloneHTMLBuilder)
    every = {row.module for row in registry.listed()}
    every |= {entry.module for entry in EXPERIMENTS.values()}
    every |= {_module(p.relative_to(ROOT)) for p in (ROOT / "cfljax").rglob("*.py")}
    for module in sorted(every):
        file = registry.source_file(module)
        text = (ROOT / file).read_text("utf-8")
        block = app.builder.highlighter.highlight_block
        code = Markup(block(text, "python", lineanchors="L"))
        body = Markup("<h1>{}</h1>{}").format(file, code)
        address = source_address(module).removesuffix(".html")
        yield address, {"title": file, "body": body}, "page.html"
