"""Written proofs: Markdown with formulas between dollar signs, as HTML."""

import pathlib
import re
from typing import Literal, NamedTuple

from markdown_it import MarkdownIt
from markupsafe import Markup

from cfljax.statements.formulas import FORMULA, mathml


class Written(NamedTuple):
    """A written proof.

    name: of its page, such as "ifca/theorem1".
    title: its first heading, or the file's name.
    html: what stands below.
    """

    name: str
    title: Markup
    html: Markup


def read_written(path: pathlib.Path, paper: str) -> Written:
    """Read a Markdown file.

    Args:
      path: of the file.
      paper: short name of the paper.

    Raises:
      OSError: if it cannot be read.
      ValueError: if a formula cannot.
    """
    text = path.read_text(encoding="utf-8")
    title = re.match(r"\s*# +(.+)", text)
    body = text[title.end() :] if title else text
    heading = _html(title.group(1).strip(), "renderInline") if title else path.stem
    return Written(f"{paper}/{path.stem}", Markup(heading), rendered(body))


def rendered(text: str) -> Markup:
    """HTML of Markdown with formulas as MathML; HTML in the text itself is escaped.

    Raises:
      ValueError: if a formula cannot be read.
    """
    return Markup(_html(text, "render"))


def _html(text: str, method: Literal["render", "renderInline"]) -> str:
    formulas: dict[str, str] = {}

    def put_aside(match: re.Match[str]) -> str:
        if match["code"]:
            return match["code"]
        place = f"\ue000{len(formulas)}\ue001"  # letters that no text has
        display = match["display"] is not None
        formula = match["display"] if display else match["inline"]
        html = mathml(formula.strip(), display=display)
        formulas[place] = f'<span class="display">{html}</span>' if display else html
        return place

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    html = getattr(markdown, method)(FORMULA.sub(put_aside, text))
    return re.sub("\ue000\\d+\ue001", lambda match: formulas[match.group()], html)
