"""What the commands do: list, show, check, check under many seeds, and report."""

import dataclasses
import pathlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from cfljax.statements import Outcome, Preset, Statement, site
from theory import display, documents, registry
from theory.documents import Rotation
from theory.sources import identity

Item = TypeVar("Item")


def list_statements(rows: Sequence[registry.Listed], *, as_json: bool) -> int:
    """Print what is registered; always 0."""
    if as_json:
        print(documents.statements_document(rows))
    else:
        display.show_statements(rows)
    return 0


def show(statements: Sequence[Statement], preset: Preset, *, as_json: bool) -> int:
    """Print all about each statement, with its verdict; 0 if all are as expected, else
    1."""
    start = time.perf_counter()
    outcomes = list(_shown(_outcomes(statements, preset, None), len(statements)))
    if as_json:
        seconds = time.perf_counter() - start
        print(documents.outcomes_document(outcomes, preset, seconds=seconds))
    else:
        for outcome in outcomes:
            display.show_all(outcome)
    return int(not all(outcome.as_expected for outcome in outcomes))


def check(
    statements: Sequence[Statement],
    preset: Preset,
    *,
    form: Literal["table", "json", "csv"],
    keep: pathlib.Path | None,
) -> int:
    """Run checks and controls, and print their verdicts; 0 if all are as expected.

    Else 1. Outcomes are kept in the folder `keep`, if there is one, as they finish, and
    found again.

    Raises:
      OSError: if an outcome cannot be kept.
    """
    start = time.perf_counter()
    outcomes = list(_shown(_outcomes(statements, preset, keep), len(statements)))
    seconds = time.perf_counter() - start
    if form == "json":
        print(documents.outcomes_document(outcomes, preset, seconds=seconds))
    elif form == "csv":
        display.print_csv(list(map(documents.verdict_row, outcomes)))
    else:
        display.show_outcomes(outcomes)
        display.show_summary(outcomes, preset, seconds=seconds)
    return int(not all(outcome.as_expected for outcome in outcomes))


def rotations(
    statements: Sequence[Statement],
    preset: Preset,
    count: int,
    *,
    as_json: bool,
    keep: pathlib.Path | None,
) -> int:
    """As `check`, for `count` seeds from the preset's on; prints what they changed.

    Raises:
      ValueError: if `count` is below 1.
      OSError: if an outcome cannot be kept.
    """
    if count < 1:
        raise ValueError(f"`count` must be at least 1, got {count}.")
    start = time.perf_counter()
    presets = [dataclasses.replace(preset, seed=preset.seed + i) for i in range(count)]
    turned = (
        Rotation(one.seed, outcome)
        for one in presets
        for outcome in _outcomes(statements, one, keep)
    )
    found = list(_shown(turned, count * len(statements)))
    seconds = time.perf_counter() - start
    if as_json:
        print(documents.rotations_document(found, preset, count, seconds=seconds))
    else:
        display.show_rotations(found, preset, count, seconds=seconds)
    return int(not all(rotation.outcome.as_expected for rotation in found))


def report(
    statements: Sequence[Statement],
    preset: Preset,
    folder: pathlib.Path,
    *,
    as_json: bool,
) -> int:
    """Check what is not checked already, and write the site; 0 if all are as expected.

    Else 1. The folder is made if missing.

    Raises:
      OSError: if the folder or a file in it cannot be written.
      ValueError: if a paper's errata are not as they should be.
    """
    from theory.report import pages  # brings Matplotlib and the algorithms

    start = time.perf_counter()
    data = site.prepare_folder(folder)
    ids = {row.id for row in statements}
    errata = [one for one in registry.all_errata() if ids & set(one.statements)]
    kept = site.kept(statements, preset, data, sources=identity())
    found = list(_shown(kept, len(statements)))
    index = pages.write_site(
        found,
        errata,
        preset,
        folder,
        known=[row.id for row in registry.listed()],
        shown=lambda rows: _shown(rows, len(rows), doing="drawing"),
    )
    seconds = time.perf_counter() - start
    outcomes = [record.outcome for record in found]
    computed = sum(record.is_new for record in found)
    if as_json:
        more = {"report": str(index), "computed": computed}
        print(documents.outcomes_document(outcomes, preset, seconds=seconds, **more))
    else:
        display.show_summary(outcomes, preset, seconds=seconds)
        print(f"{computed} computed, {len(found) - computed} kept from before")
        print(f"report: {index}")
    return int(not all(outcome.as_expected for outcome in outcomes))


def _outcomes(
    statements: Sequence[Statement], preset: Preset, keep: pathlib.Path | None
) -> Iterator[Outcome]:
    """Outcomes of one seed, kept in a folder of its own if any are."""
    folder = keep and keep / f"{preset.name}-{preset.seed}"
    for record in site.kept(statements, preset, folder, sources=identity()):
        yield record.outcome


def _shown(
    items: Iterable[Item], total: int, *, doing: str = "checking"
) -> Iterator[Item]:
    """The same items, with a bar for whoever waits for them."""
    from cfljax.engine import Bar

    with Bar(doing, visible=True, delay=5.0) as bar:
        bar.expect(total)
        for item in items:
            bar.advance(1)
            yield item
