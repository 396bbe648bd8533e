"""The ten results that matter, each from what is committed.

Titles and what is put into words say what was found; every number is read from an
erratum, an experiment's `outcome.md`, the verdicts or the ledger. Pictures are those of
`figures`, where `findings` has what `pictures` has simulated, or drawn here where that
takes no time.
"""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cfljax import report as results
from cfljax import statements
from experiments.verdicts import Kind
from pages import ledger
from pages.markdown import FIGURES, caption, rendered
from theory import registry

_FILE = Path(__file__).with_name("findings.toml")
_FIRST_ROUND = "first round with ARI>=0.9"


def sources(report: bool) -> Mapping[str, str]:
    """The page.

    Raises:
      ValueError: if a finding names an erratum, a statement or a picture that is none.
    """
    findings = _findings()
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


def draw(folder: Path) -> None:
    """The pictures that no run has left, into a folder: bound and truth of statements
    whose law is known, and the ledger's counts."""
    for one in _findings():
        if "evaluated" in one:
            data = statements.evaluate(one["evaluated"], sweep=one["sweep"])
            results.save(statements.figure(data), folder / one["evaluated"])
    kinds = _told(ledger.rows())["kinds"]
    names = [kind.value for kind in Kind if kind.value in kinds]
    counts = np.array([kinds[name] for name in names])
    panel = results.BarPanel(names, {"published numbers": counts}, "published numbers")
    results.save(results.bars([panel]), folder / "ledger")


@functools.cache
def _findings() -> list[dict[str, Any]]:
    """What the file has, each with its picture's address in the site."""
    found = tomllib.loads(_FILE.read_text("utf-8"))["finding"]
    for one in found:
        one["address"] = (
            f"figures/{one['picture']}"
            if "picture" in one
            else (f"drawn/{one.get('evaluated', 'ledger')}.svg")
        )
        one["caption"] = caption(FIGURES / one.get("picture", ""))
        if "evaluated" in one:
            ((name, values),) = one["sweep"].items()
            sweep = f"{name}={','.join(map(str, values))}"
            told = f"evaluate {one['evaluated']} --sweep {sweep} --figure FILE"
            one["command"] += f"\npython -m theory {told}"
    return found


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
