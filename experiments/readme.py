"""The README's generated tables.

Command:   python -m experiments.readme
"""

import pathlib
import re

from cfljax import report
from cfljax.algorithms import REGISTRY
from cfljax.statements import Status
from theory.registry import all_statements

SPECIFICATION = ("CLoVE",)  # Papers of one algorithm that have a line of their own.
README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


def algorithms() -> str:
    """All registered algorithms by paper, each with its place in it.

    Papers of one algorithm, the baselines, share the last line.
    """
    papers: dict[str, list[str]] = {}
    for name, row in REGISTRY.items():
        papers.setdefault(row.paper.rsplit(", ", 1)[0], []).append(name)
    lines: dict[str, list[str]] = {}
    for paper, names in papers.items():
        for name in names:
            place = REGISTRY[name].paper.rsplit(", ", 1)[1]
            alone = len(names) == 1 and paper not in SPECIFICATION
            line, where = ("others", paper) if alone else (paper, place)
            lines.setdefault(line, []).append(f"`{name}` ({where})")
    lines["others"] = lines.pop("others")
    rows = [
        {"paper": paper, "in `cfljax`": ", ".join(names)}
        for paper, names in lines.items()
    ]
    return report.markdown(rows)


def statements() -> str:
    """How many statements of each paper are checked, by expected verdict."""
    papers = dict.fromkeys(row.paper for row in all_statements())
    rows = []
    for paper in papers:
        verdicts = [row.expected for row in all_statements() if row.paper == paper]
        counts = {status.value: verdicts.count(status) for status in Status}
        rows.append({"paper": paper, "statements checked": len(verdicts)} | counts)
    return report.markdown(rows)


def refreshed(text: str) -> str:
    """The README's text with both tables made anew."""
    for name, table in (("algorithms", algorithms()), ("statements", statements())):
        block = f"<!-- {name} -->\n{table}<!-- end -->"
        text, found = re.subn(
            rf"<!-- {name} -->\n.*?<!-- end -->", lambda _, b=block: b, text, flags=re.S
        )
        assert found == 1, f"the README has {found} places for {name}"
    return text


if __name__ == "__main__":
    README.write_text(refreshed(README.read_text()))
