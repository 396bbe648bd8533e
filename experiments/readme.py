"""What is generated in the README.

Command:   python -m experiments.readme
"""

import pathlib
import re
from collections.abc import Mapping

from cfljax import report
from cfljax.algorithms import REGISTRY
from cfljax.statements import FAULTS, Grade, Statement, Status
from experiments.verdicts import DIFFERS, Kind
from theory.registry import all_statements

FEW = 20  # Statements of a paper below which it has no line of its own.
SPECIFICATION = ("CLoVE",)  # Papers of one algorithm that have a line of their own.
# The papers' tables of a line: the paper's short name, and their numbers.
LEDGER: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "CLoVE, Tables 1, 2, 5, 8 to 10: images": ("clove", (1, 2, 5, 8, 9, 10)),
    "CLoVE, Tables 3, 11, 12: texts": ("clove", (3, 11, 12)),
    "CLoVE, Tables 4, 16: no labels": ("clove", (4, 16)),
    "CLoVE, Tables 13 to 15, 17": ("clove", (13, 14, 15, 17)),
    "IFCA, Table 1": ("ifca", (1,)),
    "IFCA, Table 2": ("ifca", (2,)),
    "Werner et al., Table 1": ("werner", (1,)),
}
README = pathlib.Path(__file__).resolve().parents[1] / "README.md"
# What `python -m theory check --csv` prints.
VERDICTS = README.parent / "figures" / "verdicts.csv"
LEDGER_FILE = README.parent / "figures" / "ledger" / "ledger.csv"


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
    """How many statements of each paper are checked: by verdict, those that are
    violated by whose fault it is, and by evidence. Papers with few share a line."""
    found = {row["id"]: row["evidence"] for row in report.read_csv(VERDICTS)}
    papers: dict[str, list[Statement]] = {}
    for row in all_statements():
        papers.setdefault(row.paper, []).append(row)
    few = [paper for paper, own in papers.items() if len(own) < FEW]
    lines = {paper: own for paper, own in papers.items() if paper not in few}
    if few:
        lines[", ".join(few)] = [row for paper in few for row in papers[paper]]
    rows = []
    for paper, own in lines.items():
        verdicts = [row.expected for row in own]
        faults = [row.fault for row in own]
        counts = {
            status.value: verdicts.count(status)
            for status in (Status.HOLDS, Status.VACUOUS, Status.INCONCLUSIVE)
        }
        counts |= {
            text.split(":")[0]: faults.count(one) for one, text in FAULTS.items()
        }
        evidence = [found.get(row.id) for row in own]
        counts |= {grade.value: evidence.count(grade.value) for grade in Grade}
        rows.append({"paper": paper, "statements": len(own)} | counts)
    return report.markdown(rows)


def ledger() -> str:
    """How many published numbers have which verdict, in the committed ledger."""
    every, rows = report.read_csv(LEDGER_FILE), []
    for name, (paper, numbers) in LEDGER.items():
        items = [f"Table {number}" for number in numbers]
        own = [r for r in every if r["paper"] == paper and r["item"] in items]
        kinds = [row["kind"] for row in own]
        counts = {kind.value: kinds.count(kind.value) for kind in Kind}
        del counts[Kind.NOTHING.value]
        rows.append({"published": name, "numbers": len(own)} | counts)
    return report.markdown(rows)


def results() -> str:
    """One sentence of what came out, of the committed verdicts and ledger."""
    verdicts = report.read_csv(VERDICTS)
    proved = sum(row["evidence"] == Grade.PROVED.value for row in verdicts)
    papers = {row.paper for row in all_statements()}
    faults = [row.fault for row in all_statements()]
    numbers = report.read_csv(LEDGER_FILE)
    full = sum(row["size"] == "paper" for row in numbers)
    kinds = [row["kind"] for row in numbers]
    told = [kinds.count(one.value) for one in (Kind.AGREES, *DIFFERS)]
    return (
        f"Of {len(verdicts)} statements of {len(papers)} papers {proved} are decided "
        f"by a proof that a computer checks; {faults.count('printed')} are false as\n"
        f"printed, each with what holds instead. Of {len(numbers)} published numbers "
        f"{full} are run at full size: of those\nwith a spread {told[0]} agree, "
        f"{told[1]} differ for a tested cause, {told[2]} are open "
        "([ledger](figures/ledger/table.md)).\n"
    )


def refreshed(text: str) -> str:
    """The README's text with all tables made anew."""
    for make in (results, algorithms, statements, ledger):
        name, table = make.__name__, make()
        block = f"<!-- {name} -->\n{table}<!-- end -->"
        text, found = re.subn(
            rf"<!-- {name} -->\n.*?<!-- end -->", lambda _, b=block: b, text, flags=re.S
        )
        assert found == 1, f"the README has {found} places for {name}"
    return text


if __name__ == "__main__":
    README.write_text(refreshed(README.read_text()))
