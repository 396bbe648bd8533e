"""The theory: every statement in the order of its paper, and the errata.

Verdicts are those of `figures/verdicts.csv`; all else is what the registry knows
without running a check, so that the pages take seconds.
"""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from cfljax import report as results
from cfljax.statements import FAULTS, SEVERITIES, Grade, Status
from pages import outline
from pages.markdown import FIGURES, ROOT, rendered
from theory import registry
from theory.registry import Listed

PAPERS = {
    "ifca": "IFCA",
    "clove": "CLoVE",
    "werner": "Werner et al.",
    "fedem": "FedEM",
    "feddrift": "FedDrift",
}
MEANINGS = {
    Status.HOLDS: "the whole interval is on the claimed side",
    Status.VIOLATED: "the whole interval is on the other side",
    Status.VACUOUS: "the bound excludes nothing, or nothing meets its preconditions",
    Status.INCONCLUSIVE: "neither, or some value was undefined",
}
EVIDENCE = {
    Grade.PROVED: "for all parameters, each step checked by computer",
    Grade.EXACT: "computed up to rounding, at the points of the check",
    Grade.SEARCHED: "computed, at the worst case that optimisation found",
    Grade.SAMPLED: "the error rate holds at every sample size",
    Grade.NOMINAL: "the error rate is approached as samples grow",
}


def sources(report: bool) -> Mapping[str, str]:
    """The pages of the papers, of their errata and of their written proofs."""
    rows = registry.listed()
    errata = registry.all_errata()
    verdicts = {row["id"]: row for row in results.read_csv(FIGURES / "verdicts.csv")}
    papers = {
        name: [row for row in rows if row.paper == name]
        for name in dict.fromkeys([*PAPERS, *(row.paper for row in rows)])
    }
    written = [
        (name, path)
        for name in papers
        for path in sorted((ROOT / "theory" / name).glob("*.md"))
    ]
    shared: dict[str, Any] = {
        "verdicts": verdicts,
        "faults": FAULTS,
        "report": report,
        "written": {row.id: row for row in registry.all_statements()},
        "titles": PAPERS | {n: n for n in papers if n not in PAPERS},
    }
    pages = {
        f"theory/{name}.md": rendered(
            "statements.md",
            paper=name,
            long_title=registry.paper_title(name),
            parts=outline.parts(name, own),
            ids={row.id for row in own},
            errata=[erratum for erratum in errata if erratum.paper == name],
            statuses=_told(verdicts, own, "verdict", Status),
            grades=_told(verdicts, own, "evidence", Grade),
            proofs=[path.stem for paper, path in written if paper == name],
            **shared,
        )
        for name, own in papers.items()
    }
    pages["theory/errata.md"] = rendered(
        "errata.md", papers=papers, errata=errata, severities=SEVERITIES, **shared
    )
    pages["theory/index.md"] = rendered(
        "theory.md",
        counts=[_counts(name, own, verdicts) for name, own in papers.items()],
        statuses={status.value: text for status, text in MEANINGS.items()},
        grades={grade.value: text for grade, text in EVIDENCE.items()},
        papers=papers,
        proofs=[f"{paper}_{path.stem}" for paper, path in written],
        **shared,
    )
    for paper, path in written:
        proved = [row for row in papers[paper] if row.written_proof == path.name]
        pages[f"theory/proofs/{paper}_{path.stem}.md"] = rendered(
            "proof.md", text=Markup(path.read_text("utf-8")), proved=proved
        )
    return pages


def _told(
    verdicts: Mapping[str, Mapping[str, Any]], rows: list[Listed], key: str, kind: Any
) -> list[str]:
    """The values of an enumeration that some rows have, in its order."""
    found = {verdicts[row.id][key] for row in rows if row.id in verdicts}
    return [one.value for one in kind if one.value in found]


def _counts(
    name: str, rows: list[Listed], verdicts: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """How many statements of a paper have which verdict and which evidence."""
    own = [verdicts[row.id] for row in rows if row.id in verdicts]
    link = Markup('<a href="{}.html">{}</a>').format(name, PAPERS.get(name, name))
    counts = {"paper": link, "statements": len(rows)}
    for key, kind in (("verdict", Status), ("evidence", Grade)):
        found = [row[key] for row in own]
        counts |= {one.value: found.count(one.value) for one in kind}
    return counts
