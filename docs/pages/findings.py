"""The ten results that matter, each from what is committed.

Titles and what is put into words say what was found; every number is read from an
erratum, an experiment's `outcome.md`, the verdicts or the ledger. Pictures of
statements are those of the report, `python -m theory report IDS --out DIR`.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cfljax import report as results
from pages import ledger
from pages.markdown import FIGURES, rendered
from theory import registry

_FILE = Path(__file__).with_name("findings.toml")
_FIRST_ROUND = "first round with ARI>=0.9"


def sources(report: bool) -> Mapping[str, str]:
    """The page.

    Raises:
      ValueError: if a finding names an erratum, a statement or a picture that is none.
    """
    findings = tomllib.loads(_FILE.read_text("utf-8"))["finding"]
    errata = {erratum.id: erratum for erratum in registry.all_errata()}
    verdicts = {row["id"]: row for row in results.read_csv(FIGURES / "verdicts.csv")}
    for one in findings:
        _check(one, errata, verdicts)
    return {
        "findings.md": rendered(
            "findings.md",
            findings=findings,
            errata=errata,
            verdicts=verdicts,
            outcomes=_outcomes(findings),
            told=_told(ledger.rows()),
        )
    }


def _check(
    finding: Mapping[str, Any],
    errata: Mapping[str, Any],
    verdicts: Mapping[str, Any],
) -> None:
    """Whether all that a finding names is there."""
    lost = [name for name in finding.get("errata", ()) if name not in errata]
    lost += [name for name in finding.get("statements", ()) if name not in verdicts]
    picture = finding.get("picture")
    if picture and not (FIGURES / picture).is_file():
        lost.append(picture)
    if lost:
        raise ValueError(f"findings.toml names {', '.join(lost)}, which is not there.")


def _outcomes(findings: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Paragraphs of what came out of the experiments that findings name."""
    names = [one["experiment"] for one in findings if "experiment" in one]
    files = {name: FIGURES / name / "outcome.md" for name in names}
    return {
        name: file.read_text("utf-8").strip().split("\n\n")
        for name, file in files.items()
        if file.exists()
    }


def _told(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of the ledger that findings put into words."""
    own = [
        row
        for row in rows
        if row["algorithm"] == "CLoVE"
        and row["metric"] == _FIRST_ROUND
        and row["verdict"].startswith("differs (tested cause")
    ]
    kinds = [row["kind"] for row in rows]
    return {
        "first_round": own,
        "kinds": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "numbers": len(rows),
    }
