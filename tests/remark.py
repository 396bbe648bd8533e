"""Plants every error of `mutations.toml` and marks anew what no verdict sees.

    python tests/remark.py [NAME...] [--workers N] [--programs FOLDER] [--dry]

An entry whose error is caught loses its mark, one that survives or leaves a verdict
open gets it. Entries marked `equivalent` stay as they are. Printed are the changes, the
counts for each paper, and what somebody has to mend by hand: a text that does not stand
exactly once in its file, a row that is not as expected without any error, a check that
raises, a command that fails, and an `equivalent` that is seen. Of a name, all entries
that begin with it are planted; without names all.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import queue
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence

from planting import ROOT, TABLE, Mutation, Planter, mutations

MARKED = ("survives", "undecided")
_START = "\n[[mutation]]\n"


def blocks(text: str) -> list[str]:
    """The entries of the table, each up to the next."""
    return text.split(_START)[1:]


def names(text: str) -> list[str]:
    """Of its entries, in their order."""
    found = [re.match(r'name = "(.*)"\n', block) for block in blocks(text)]
    return [match[1] for match in found if match]


def with_marks(text: str, found: Mapping[str, str]) -> str:
    """The table with the marks of what was found: outcomes by name."""
    head, *entries = text.split(_START)
    for index, (name, block) in enumerate(zip(names(text), entries, strict=True)):
        if name not in found:
            continue
        lines = [
            line
            for line in block.splitlines()
            if line not in [f"{mark} = true" for mark in MARKED]
        ]
        if found[name] in MARKED:
            after = next(i for i, line in enumerate(lines) if line.startswith("rows"))
            while "]" not in lines[after]:
                after += 1
            lines.insert(after + 1, f"{found[name]} = true")
        end = block[len(block.rstrip("\n")) :]
        entries[index] = "\n".join(lines).rstrip("\n") + end
    return _START.join([head, *entries])


def stands_once(one: Mutation) -> bool:
    """Whether the text to be changed does."""
    path = ROOT / one["file"]
    return path.exists() and path.read_text(encoding="utf-8").count(one["old"]) == 1


def mark(one: Mutation) -> str:
    """What an entry says will be found."""
    return next((name for name in (*MARKED, "equivalent") if one.get(name)), "caught")


def plant_all(
    chosen: Sequence[Mutation], workers: int, programs: pathlib.Path
) -> dict[str, str]:
    """What was found of every entry, or the last line of why nothing was."""
    planters: queue.SimpleQueue[Planter] = queue.SimpleQueue()
    for _ in range(workers):
        planters.put(Planter(programs))

    def clean(row: str) -> str:
        planter = planters.get()
        try:
            return "" if planter.check([row]).code == 0 else f"{row} is odd without it"
        except RuntimeError as error:
            return str(error).strip().splitlines()[-1]
        finally:
            planters.put(planter)

    def plant(one: Mutation) -> str:
        if not stands_once(one):
            return "does not stand once"
        if wrong := [odd[row] for row in one["rows"] if odd[row]]:
            return wrong[0]
        planter = planters.get()
        try:
            return planter.plant(one).outcome
        except RuntimeError as error:
            return str(error).strip().splitlines()[-1]
        finally:
            planters.put(planter)

    found = {}
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        rows = list(dict.fromkeys(row for one in chosen for row in one["rows"]))
        # A row that is not as expected anyway would seem to see every error.
        odd = dict(zip(rows, pool.map(clean, rows), strict=True))
        for one, outcome in zip(chosen, pool.map(plant, chosen), strict=True):
            found[one["name"]] = outcome
            if outcome != mark(one) and (outcome, mark(one)) != (
                "survives",
                "equivalent",
            ):
                print(f"{one['name']}: {mark(one)} before, now {outcome}", flush=True)
    for _ in range(workers):
        with planters.get():
            pass
    return found


def show_counts(found: Mapping[str, str]) -> None:
    """Outcomes by paper, of the whole table."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    for one in mutations():
        outcome = found.get(one["name"], mark(one))
        if one.get("equivalent") and outcome == "survives":
            outcome = "equivalent"
        counts[one["name"].partition(".")[0]][outcome] += 1
    for paper, each in counts.items():
        told = ", ".join(
            f"{number} {outcome}" for outcome, number in sorted(each.items())
        )
        print(f"{paper}: {sum(each.values())} planted, {told}")


def main() -> int:
    """Run the command line; 1 if something has to be mended by hand."""
    about = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    about.add_argument("names", nargs="*", metavar="NAME")
    about.add_argument("--workers", type=int, default=2)
    about.add_argument("--programs", type=pathlib.Path, help="keeps compiled programs")
    about.add_argument("--dry", action="store_true", help="write nothing")
    asked = about.parse_args()
    chosen = [
        one
        for one in mutations()
        if not asked.names or one["name"].startswith(tuple(asked.names))
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = plant_all(chosen, asked.workers, asked.programs or pathlib.Path(folder))
    marks = {
        one["name"]: found[one["name"]]
        for one in chosen
        if mark(one) != "equivalent" and found[one["name"]] in (*MARKED, "caught")
    }
    if not asked.dry:
        text = TABLE.read_text(encoding="utf-8")
        TABLE.write_text(with_marks(text, marks), encoding="utf-8")
    show_counts(found)
    odd = [
        f"{one['name']}: {found[one['name']]}"
        for one in chosen
        if one["name"] not in marks
        and (mark(one), found[one["name"]]) != ("equivalent", "survives")
    ]
    print(*(["by hand:", *odd] if odd else []), sep="\n")
    return int(bool(odd))


if __name__ == "__main__":
    sys.exit(main())
