"""Tutorials: Markdown whose blocks of Python are run when the site is built.

They stay what everybody can read, and what tests run as it is printed; Sphinx gets them
as notebooks.
"""

import re

from sphinx.application import Sphinx

_HEAD = """\
---
file_format: mystnb
kernelspec:
  name: python3
  language: python
---

"""
_SET_UP = """\
```{code-cell} python
:tags: [remove-cell]
%matplotlib inline
%config InlineBackend.figure_formats = ["svg"]
```

"""


def setup(app: Sphinx) -> None:
    """Register the setting `tutorials`, names of pages, and what makes notebooks."""
    app.add_config_value("tutorials", [], "env", (list,))
    app.connect("source-read", _as_notebook)


def _as_notebook(app: Sphinx, name: str, source: list[str]) -> None:
    """The source of a page, in place: of a tutorial, a notebook."""
    if name in app.config.tutorials:
        before, opening, after = source[0].partition("```python\n")
        cells = re.sub(
            r"^```python$", "```{code-cell} python", opening + after, flags=re.MULTILINE
        )
        source[0] = _HEAD + before + _SET_UP + cells
