"""How pages are written: templates of Markdown, with parts of HTML."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from docutils.nodes import make_id
from markupsafe import Markup

from cfljax.statements import symbols, typeset
from theory import registry

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = ROOT / "figures"


def rendered(template: str, **context: Any) -> str:
    """A source of Sphinx from a template of this package."""
    return _environment().get_template(template).render(context)


def table(
    rows: Sequence[Mapping[str, Any]], *, numbers: Sequence[str] = (), name: str = ""
) -> Markup:
    """A table whose rows are stacked on a telephone, each value below its heading.

    Args:
      rows: the first column is what a row is about; all have the same keys, the
        headings. Markup stays what it is, None is empty.
      numbers: headings of the columns that are set to the right.
      name: class of the table.
    """
    return Markup(
        _environment()
        .get_template("table.html")
        .render(rows=rows, headings=list(rows[0]), numbers=numbers, name=name)
    )


def source_address(module: str) -> str:
    """Where the site has the source of a module, from its first page."""
    return f"_modules/{module.replace('.', '/')}.html"


def source_link(module: str, root: str = "") -> Markup:
    """A link to the source of a module from a page `root` below the first."""
    address = f"{root}{source_address(module)}"
    file = registry.source_file(module)
    return Markup('<a href="{}"><code>{}</code></a>').format(address, file)


def caption(picture: pathlib.Path) -> str:
    """What the text file beside a picture says of it; nothing if there is none."""
    text = picture.with_suffix(".txt")
    return text.read_text("utf-8").strip() if text.is_file() else ""


def statement_link(id: str, root: str = "../") -> Markup:
    """A link to a statement of the theory from a page `root` below the first."""
    paper = id.split(".")[0]
    address = f"{root}theory/{paper}.html#{make_id(id)}"
    return Markup('<a class="id" href="{}"><code>{}</code></a>').format(address, id)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"typeset": typeset, "anchor": make_id}
    environment.filters["constant"] = lambda name: typeset(symbols(name))
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    environment.filters["cause"] = lambda text: text.partition(": ")[2].rstrip(")")
    environment.tests["contains_item"] = lambda items, item: item in items
    environment.globals |= {
        "table": table,
        "statement_link": statement_link,
        "source_link": source_link,
        "list": list,
    }
    return environment
