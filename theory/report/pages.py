"""The papers' site: their statements, what they have wrong, and the algorithms."""

import importlib.metadata
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from cfljax.statements import SEVERITIES, Erratum, Preset, site
from theory.registry import listed, paper_title, source_file
from theory.report.algorithms import EXAMPLE, algorithm_pages
from theory.sources import identity

_HERE = pathlib.Path(__file__).parent
_TEMPLATES = _HERE / "templates"


def write_site(
    records: Sequence[site.Record],
    errata: Sequence[Erratum],
    preset: Preset,
    folder: pathlib.Path,
    *,
    known: Sequence[str],
    shown: Callable[[Sequence[site.Record]], Iterable[site.Record]] = lambda r: r,
) -> pathlib.Path:
    """Write all pages, plots and assets into a folder made by `site.prepare_folder`;
    returns the path of the first page. See `site.write_site`; `errata` are those for
    which records carry the evidence.

    Raises:
      OSError: if a file cannot be written.
    """
    ids = [record.id for record in records]
    papers = dict.fromkeys(record.outcome.statement.paper for record in records)
    return site.write_site(
        records,
        preset,
        folder,
        errata=errata,
        titles={paper: paper_title(paper) for paper in papers},
        folders={paper: _HERE.parent / paper for paper in papers},
        pages=[_errata(errata), *_algorithms(ids)],
        templates=_TEMPLATES,
        commands=site.Commands(
            check="python -m theory check {id} --preset {preset} --seed {seed}",
            evaluate="python -m theory evaluate {id} --sweep {sweep}",
            report="python -m theory report --preset {preset} --seed {seed} "
            "--out FOLDER",
        ),
        sources=identity(),
        files={row.id: source_file(row.module) for row in listed() if row.id in ids},
        repository=_repository(),
        known=known,
        shown=shown,
    )


def _repository() -> str:
    """Address of the repository's files, if the installed package says one in its
    project URL "Files"."""
    urls = importlib.metadata.metadata("cfljax").get_all("Project-URL") or []
    found = dict(url.split(", ", 1) for url in urls)
    return found.get("Files", "")


def _errata(errata: Sequence[Erratum]) -> site.Page:
    """What the papers have wrong."""
    found = [erratum.severity for erratum in errata]
    counts = {letter: found.count(letter) for letter in SEVERITIES}
    return site.Page("errata.html", "errata.html", {"counts": counts}, "Errata")


def _algorithms(ids: Sequence[str]) -> Iterator[site.Page]:
    """All algorithms with what a round of each costs, and one by one."""
    every = {one.name: one for one in algorithm_pages()}
    shared = {"example": EXAMPLE, "unit": every["fedavg"]}
    context = shared | {"algorithms": list(every.values())}
    yield site.Page("algorithms.html", "algorithms.html", context, "Algorithms")
    for name, one in every.items():
        context = shared | {"algorithm": one, "statements": one.statements(ids)}
        context |= site.neighbours(list(every), name)
        yield site.Page(f"algorithms/{name}.html", "algorithm.html", context)
