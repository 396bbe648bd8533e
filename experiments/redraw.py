"""Redraw: pictures of folders of results once more, from their tables alone.

    python -m experiments.redraw [ID ...]

Of `figures`, or of those ids. What needs more than a table, as curves over rounds,
stays as it is, and is named. Nothing is computed and no table is touched.
"""

import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from cfljax import report
from experiments.registry import EXPERIMENTS
from experiments.study import Rows

FOLDER = pathlib.Path("figures")
USUAL = ("svg", "pdf")  # Of a picture that was not there.


def configuration(folder: pathlib.Path, id: str) -> Any:
    """That of some results; a field that was added since has its usual value."""
    usual = EXPERIMENTS[id].load().preset("paper")
    stored = json.loads((folder / "config.json").read_text("utf-8"))
    own = {name: _tuples(stored[name]) for name in vars(usual) if name in stored}
    return type(usual)(**own)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def drawn(id: str, config: Any, tables: Mapping[str, Rows]) -> dict[str, Figure]:
    """The figures that an experiment makes of its tables alone, by name."""
    experiment = EXPERIMENTS[id].load()
    if (study := getattr(experiment, "STUDY", None)) is not None:  # A review.
        return study.figures(config, tables["table"])
    own = getattr(experiment, "redraw", None)
    return {} if own is None else own(config, tables)


def redraw(folder: pathlib.Path, id: str) -> tuple[list[pathlib.Path], list[str]]:
    """Write the pictures of a folder again, in the formats that it has.

    Returns:
      What was written, and the names of pictures that stay.
    """
    tables = {file.stem: report.read_csv(file) for file in folder.glob("*.csv")}
    found = drawn(id, configuration(folder, id), tables)
    written = []
    for name, figure in found.items():
        there = tuple(f for f in report.FORMATS if (folder / f"{name}.{f}").is_file())
        with report.looking(formats=there or USUAL):
            written += report.save(figure, folder / name)
    every = {file.stem for file in folder.glob("*.pdf")}
    return written, sorted(every - set(found))


def main(ids: Sequence[str]) -> int:
    """Redraw what was asked for; 2 for an id that is unknown."""
    asked = ids or [id for id in EXPERIMENTS if (FOLDER / id / "config.json").is_file()]
    for id in asked:
        if id not in EXPERIMENTS:
            print(f"error: unknown id {id!r}; see `list`.", file=sys.stderr)
            return 2
        written, left = redraw(FOLDER / id, id)
        stays = f"; not of tables alone: {', '.join(left)}" if left else ""
        print(f"{id}: {len(written)} files{stays}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
