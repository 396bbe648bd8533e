"""Plants every error of `mutations.toml` and tells what no verdict sees.

    python tests/plant.py [NAME...] [--workers N] [--programs FOLDER]

Of a name, all entries that begin with it are planted; without names all. Printed are
the counts for each paper, and each entry that somebody has to mend: an error that
survives or leaves a verdict open, an `equivalent` that is seen, a text that does not
stand exactly once in its file, a row that is not as expected without any error, a check
that raises, a command that fails.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import queue
import sys
import tempfile
from collections.abc import Mapping, Sequence

from planting import ROOT, Mutation, Planter, mutations


def stands_once(one: Mutation) -> bool:
    """Whether the text to be changed does."""
    path = ROOT / one["file"]
    return path.exists() and path.read_text(encoding="utf-8").count(one["old"]) == 1


def wanted(one: Mutation) -> str:
    """What should be found of an entry."""
    return "survives" if "equivalent" in one else "caught"


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
            if outcome != wanted(one):
                print(f"{one['name']}: {outcome}", flush=True)
    for _ in range(workers):
        with planters.get():
            pass
    return found


def show_counts(chosen: Sequence[Mutation], found: Mapping[str, str]) -> None:
    """Outcomes by paper, the first part of names."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    for one in chosen:
        outcome = found[one["name"]]
        same = "equivalent" in one and outcome == "survives"
        paper = one["name"].partition(".")[0]
        counts[paper]["equivalent" if same else outcome] += 1
    for paper, each in counts.items():
        told = ", ".join(
            f"{number} {outcome}" for outcome, number in sorted(each.items())
        )
        print(f"{paper}: {sum(each.values())} planted, {told}")


def main() -> int:
    """Run the command line; 1 if something has to be mended."""
    about = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    about.add_argument("names", nargs="*", metavar="NAME")
    about.add_argument("--workers", type=int, default=2)
    about.add_argument("--programs", type=pathlib.Path, help="keeps compiled programs")
    asked = about.parse_args()
    chosen = [
        one
        for one in mutations()
        if not asked.names or one["name"].startswith(tuple(asked.names))
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = plant_all(chosen, asked.workers, asked.programs or pathlib.Path(folder))
    show_counts(chosen, found)
    return int(any(found[one["name"]] != wanted(one) for one in chosen))


if __name__ == "__main__":
    sys.exit(main())
