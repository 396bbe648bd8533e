"""Records what a change must not move, and compares two records byte for byte.

    python tests/record.py write FOLDER [--parts algorithms statements experiments]
    python tests/record.py compare BEFORE AFTER

A record holds three rounds of every algorithm in every variant of the conformance
tests (digests of all leaves, and the bytes that clients received and sent), the
verdict, bound, interval and detail of every statement at seed 0, and the tables of
quick runs of one experiment of each family. Both records must come from one machine:
the last bits of a product depend on its processor.
"""

import argparse
import csv
import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("OMP_NUM_THREADS", "1")

PARTS = ("algorithms", "statements", "experiments")
FAMILIES = (
    "ifca.fig3a",
    "ifca.table1_mnist",
    "ifca.fig4",
    "ifca.table2_femnist",
    "clove.table3",
    "clove.fig3",
    "clove.fig5",
    "clove.unknown_k",
    "reviews.tuning",
    "reviews.resample",
    "werner.table1",
    "werner.fig3",
    "werner.fig4",
    "werner.byzantine",
)
TIMED = ("second", "minute")  # Parts of names of columns that hold times.


def digest(leaf: Any) -> str:
    """Shape, type and bytes of an array in one word."""
    import jax
    import numpy as np

    if hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.ascontiguousarray(leaf)
    code = hashlib.sha256(array.tobytes()).hexdigest()[:16]
    return f"{array.dtype}{list(array.shape)} {code}"


def algorithms() -> Iterator[tuple[str, Any]]:
    """Digests of the start and of three rounds, and the bytes of each, by case."""
    import conformance_cases as cases
    import jax

    for name, index in cases.PAIRS:
        data, truth = cases.problem(name)
        algorithm = cases.build(name, truth, **cases.CHANGES[name][index])
        state = jax.jit(algorithm.init)(jax.random.key(0), data)
        found: dict[str, Any] = {
            "start": [digest(leaf) for leaf in jax.tree.leaves(state)]
        }
        step = jax.jit(algorithm.step)
        for number in range(3):
            state, info = step(jax.random.key(number + 1), state, data)
            found[f"round {number}"] = {
                "state": [digest(leaf) for leaf in jax.tree.leaves(state)],
                "info": [digest(leaf) for leaf in jax.tree.leaves(info)],
                "received": info.received.tolist(),
                "sent": info.sent.tolist(),
            }
        answers = jax.jit(algorithm.predict)(state, data, data.inputs)
        found["answers"] = [digest(leaf) for leaf in jax.tree.leaves(answers)]
        yield f"{name}-{'-'.join(cases.CHANGES[name][index]) or 'default'}", found


def command(*arguments: str, check: bool = True) -> str:
    """Standard output of a command of the project."""
    line = (sys.executable, "-m", *arguments)
    run = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    if check and run.returncode:
        raise SystemExit(f"{' '.join(line)} failed:\n{run.stderr}")
    return run.stdout


def without_seconds(value: Any) -> Any:
    """The value without fields that hold times, numbers as Python writes them."""
    if isinstance(value, dict):
        pairs = value.items()
        return {k: without_seconds(v) for k, v in pairs if k != "seconds"}
    if isinstance(value, list):
        return [without_seconds(entry) for entry in value]
    return repr(value)


def statements() -> Iterator[tuple[str, Any]]:
    """Everything that `theory check --json` says of each statement, but seconds."""
    found = json.loads(command("theory", "check", "--json", check=False))
    for row in found["statements"]:
        yield row["id"], without_seconds(row)


def untimed(table: list[list[str]]) -> list[list[str]]:
    """The table without the columns that hold times."""
    heads = table[0] if table else []
    kept = [i for i, h in enumerate(heads) if not any(part in h for part in TIMED)]
    return [[row[i] for i in kept] for row in table]


def experiments(folder: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """The tables of quick runs; the runs themselves stay in the folder."""
    for name in FAMILIES:
        out = folder / "runs" / name
        command("experiments", "run", name, "--preset", "quick", "--out", str(out))
        for path in sorted(out.rglob("*.csv")):
            table = list(csv.reader(path.read_text().splitlines()))
            yield f"{name}/{path.relative_to(out)}", untimed(table)


def write(folder: pathlib.Path, parts: list[str]) -> None:
    """Write one JSON file for each part, in which nothing depends on the time."""
    folder.mkdir(parents=True, exist_ok=True)
    makers = {
        "algorithms": algorithms,
        "statements": statements,
        "experiments": lambda: experiments(folder),
    }
    for part in parts:
        rows = {}
        for name, found in makers[part]():
            rows[name] = found
            print(f"{part}: {name}", flush=True)
        target = folder / f"{part}.json"
        target.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


def compare(before: pathlib.Path, after: pathlib.Path) -> int:
    """Print what differs in the parts that both records have; 1 if anything does."""
    files = [f"{p}.json" for p in PARTS if (before / f"{p}.json").exists()]
    files = [name for name in files if (after / name).exists()]
    if not files:
        raise SystemExit(f"error: {before} and {after} have no part in common.")
    differences = 0
    for name in files:
        old, new = (json.loads((f / name).read_text()) for f in (before, after))
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                absent = {True: "gone", False: "differs"}[key not in new]
                print(f"{name}: {key} {'is new' if key not in old else absent}")
                differences += 1
        print(f"{name}: {len(old)} rows before, {len(new)} after")
    print(f"{differences} differences")
    return int(differences > 0)


def main() -> int:
    """Run the command line; the exit status."""
    about = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = about.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("folder", type=pathlib.Path)
    writing.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=pathlib.Path)
    comparing.add_argument("after", type=pathlib.Path)
    chosen = about.parse_args()
    if chosen.command == "compare":
        return compare(chosen.before, chosen.after)
    write(chosen.folder, chosen.parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
