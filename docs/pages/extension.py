"""The extension of Sphinx that writes the pages.

    sphinx-build docs DIR                              the site
    sphinx-build -D theory_report=REPORT docs DIR      with the full report in it

Each module makes the sources of one part, as Markdown from a template. A file that
would not change is not written, so that Sphinx reads again only what did.
"""

import logging
import pathlib
import shutil
from typing import Any

from sphinx.application import Sphinx

from pages import (
    algorithms,
    docstrings,
    findings,
    gallery,
    glossary,
    interface,
    ledger,
    mathml,
    sources,
    statements,
    tutorials,
)
from pages.markdown import FIGURES

PARTS = (gallery, algorithms, statements, findings, ledger, interface, glossary)
COMMITTED = ("*.svg", "*.png", "*.pdf", "*.csv", "*.md", "*.json")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what makes the pages, and the mathematics."""
    app.add_config_value("theory_report", "", "html", (str,))
    app.connect("builder-inited", _write_sources)
    app.connect("autodoc-process-docstring", docstrings.as_text, priority=400)
    app.connect("autodoc-process-signature", docstrings.as_signature)
    app.connect("build-finished", _copy_results)
    mathml.setup(app)
    sources.setup(app)
    tutorials.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _write_sources(app: Sphinx) -> None:
    """All generated sources, and none that an earlier build has left."""
    report = bool(app.config.theory_report)
    for part in PARTS:
        own = {app.srcdir / name: text for name, text in part.sources(report).items()}
        for folder in {path.parent for path in own} - {pathlib.Path(app.srcdir)}:
            for path in set(folder.glob("*.md")) - set(own):
                path.unlink()
        for path, text in own.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_text("utf-8") != text:
                path.write_text(text, "utf-8")


def _copy_results(app: Sphinx, exception: Exception | None) -> None:
    """Pictures and tables beside the pages, and the full report if it was named."""
    if exception is not None or app.builder.format != "html":
        return
    for folder in sorted(path for path in FIGURES.iterdir() if path.is_dir()):
        for path in sorted(p for kind in COMMITTED for p in folder.glob(kind)):
            target = app.outdir / "figures" / path.relative_to(FIGURES)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    shutil.copyfile(FIGURES / "verdicts.csv", app.outdir / "figures" / "verdicts.csv")
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # of PDFs
    findings.draw(app.outdir / "drawn")
    if report := app.config.theory_report:
        shutil.copytree(report, app.outdir / "report", dirs_exist_ok=True)
