"""Algorithm cards: the page of all, and one for each."""

from collections.abc import Mapping

from markupsafe import Markup

from cfljax import cards
from cfljax.statements import typeset
from pages.markdown import ROOT, rendered
from theory import registry
from theory.report.algorithms import EXAMPLE, AlgorithmPage, algorithm_pages

CARDS = ROOT / "cfljax" / "cards"


def sources(report: bool) -> Mapping[str, str]:
    """All pages."""
    every = algorithm_pages()
    ids = [row.id for row in registry.listed()]
    pages = {f"algorithms/{one.name}.md": _card(one, ids) for one in every}
    pages["algorithms/index.md"] = rendered(
        "algorithms.md", rows=list(map(_row, every)), example=EXAMPLE, every=every
    )
    return pages


def _row(one: AlgorithmPage) -> dict[str, object]:
    link = Markup('<a class="id" href="{0}.html"><code>{0}</code></a>')
    return {
        "algorithm": link.format(one.name),
        "what it does": typeset(one.summary),
        "forward": f"{one.passes.forward:g}",
        "backward": f"{one.passes.backward:g}",
        "work / FedAvg's": f"{one.ratio:.2f}",
    }


def _card(one: AlgorithmPage, ids: list[str]) -> str:
    """The card as it is, its ids of statements as links."""
    text = (CARDS / f"{one.name}.md").read_text("utf-8")
    body, _, _ = text.partition("\n## Statements")
    heads = list(cards.SECTIONS.values())
    before, after = body.split(f"\n## {heads[1]}")
    return rendered(
        "algorithm.md",
        one=one,
        before=Markup(before),
        after=Markup(f"## {heads[1]}{after}"),
        statements=one.statements(ids),
        example=EXAMPLE,
    )
