"""The site: its pages, what they show, and how numbers are written on them."""

import dataclasses
import functools
import inspect
import json
import math
import pathlib
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jinja2
import numpy as np
from markupsafe import Markup, escape

from cfljax.algorithms import REGISTRY
from cfljax.cards import Card, Passes, Sizes
from cfljax.report import replacing, write_text
from cfljax.statements import SEVERITIES, Erratum, Margin, Preset, Status
from theory.registry import is_under, paper_title
from theory.report import plot
from theory.report.records import Record, Series
from theory.report.typeset import typeset
from theory.sources import fingerprint, versions

EXAMPLE = Sizes(num_clients=40, num_clusters=4, num_steps=10, num_personal_steps=10)
_DATA = "data"
_MANIFEST = "manifest.json"
_HERE = pathlib.Path(__file__).parent
_PIXELS_PER_INCH = 96
_MOST_DIGITS = 300  # decades beyond which a mantissa says nothing


# The site as files in a folder: written whole, and nothing else touched.


def prepare_folder(folder: pathlib.Path) -> pathlib.Path:
    """Make sure that a report can be written, before hours go into its numbers; returns
    the folder of the outcomes' files.

    Raises:
      FileExistsError: if the folder holds an `index.html` that no report wrote.
      OSError: if the folder cannot be made or written to.
    """
    index = folder / "index.html"
    if index.exists() and "index.html" not in _listed(folder):
        raise FileExistsError(0, "is not a report's, and would be lost", str(index))
    data = folder / _DATA
    data.mkdir(parents=True, exist_ok=True)
    with replacing(data / "probe") as probe:
        probe.write_text("")
    (data / "probe").unlink()
    return data


def write_site(
    records: Sequence[Record],
    errata: Sequence[Erratum],
    preset: Preset,
    folder: pathlib.Path,
    *,
    known: Sequence[str],
    shown: Callable[[Sequence[Record]], Iterable[Record]] = lambda records: records,
) -> pathlib.Path:
    """Write all pages, plots and assets; returns the path of the first page. Of the
    files of an earlier run those are removed that its manifest lists, outcomes only of
    statements no longer `known`. The folder is made by `prepare_folder`, with the
    records' files in it; `shown` passes the records on while it shows how far the
    drawing is.

    Raises:
      OSError: if a file cannot be written.
    """
    names = [record.outcome.statement.id for record in records]
    pages = [f"statements/{name}.html" for name in names]
    plots = [f"plots/{r.outcome.statement.id}.svg" for r in records if r.check]
    assets = [f"assets/{path.name}" for path in sorted((_HERE / "static").iterdir())]
    listed = _listed(folder)
    kept = {f"{_DATA}/{name}.json" for name in known} & set(listed)
    data = {f"{_DATA}/{name}.json" for name in names} | kept
    algorithms = [one.name for one in algorithm_pages()]
    pages += ["index.html", "errata.html", "algorithms.html"]
    pages += [f"algorithms/{name}.html" for name in algorithms]
    files = [*assets, *pages, *plots, *sorted(data)]
    # Before the first page, so that none is left unlisted if this is interrupted.
    _write_manifest(folder, [*files, *listed])
    site = _Site(records, errata, preset)
    for name in assets:
        with replacing(folder / name) as temporary:
            shutil.copyfile(_HERE / "static" / name.removeprefix("assets/"), temporary)
    for record in shown(records):
        name = record.outcome.statement.id
        drawn = _draw(record, folder / f"plots/{name}.svg")
        write_text(folder / f"statements/{name}.html", site.statement(name, drawn))
    for name in algorithms:
        write_text(folder / f"algorithms/{name}.html", site.algorithm(name))
    write_text(folder / "algorithms.html", site.algorithms())
    write_text(folder / "errata.html", site.errata())
    write_text(folder / "index.html", site.index())
    for name in set(listed) - set(files):
        (folder / name).unlink(missing_ok=True)
    _write_manifest(folder, files)
    return folder / "index.html"


def _listed(folder: pathlib.Path) -> list[str]:
    """Files that an earlier run wrote, as far as they are below the folder."""
    try:
        names = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))["files"]
        paths = [pathlib.PurePosixPath(name) for name in names]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [str(p) for p in paths if not p.is_absolute() and ".." not in p.parts]


def _write_manifest(folder: pathlib.Path, files: Sequence[str]) -> None:
    document = {"report": "cfljax theory", "files": sorted(set(files))}
    write_text(folder / _MANIFEST, json.dumps(document, indent=1) + "\n")


# The pages.


class _Plot(NamedTuple):
    """A drawing's texts, and its size in pixels."""

    caption: str
    alternative: str
    width: int
    height: int


@dataclasses.dataclass(frozen=True)
class _Paper:
    """A paper's part of the report."""

    name: str
    records: list[Record]
    errata: list[Erratum]

    @property
    def title(self) -> str:
        """Authors and title."""
        return paper_title(self.name)

    @property
    def counts(self) -> dict[Status, int]:
        """Statements of each verdict."""
        found = [record.outcome.verdict.status for record in self.records]
        return {status: found.count(status) for status in Status}

    @property
    def num_surprises(self) -> int:
        """Statements whose verdict or control was not as expected."""
        return sum(not record.outcome.as_expected for record in self.records)


class _Site:
    """The pages' texts, as HTML."""

    def __init__(
        self, records: Sequence[Record], errata: Sequence[Erratum], preset: Preset
    ) -> None:
        self._records = {record.outcome.statement.id: record for record in records}
        self._errata = tuple(errata)
        papers = dict.fromkeys(record.outcome.statement.paper for record in records)
        self._shared: dict[str, Any] = {
            "papers": [
                _Paper(
                    name,
                    [r for r in records if r.outcome.statement.paper == name],
                    [erratum for erratum in errata if erratum.paper == name],
                )
                for name in papers
            ],
            "example": EXAMPLE,
            "preset": preset,
            "records": self._records,
            "severities": SEVERITIES,
            "sources": fingerprint(),
            "statuses": list(Status),
            "versions": versions(),
        }
        self._command = f"--preset {preset.name} --seed {preset.seed}"

    def index(self) -> str:
        """All statements, with the filter."""
        expected = sum(r.outcome.as_expected for r in self._records.values())
        return self._render("index", num_expected=expected)

    def errata(self) -> str:
        """All errata."""
        counts = [erratum.severity for erratum in self._errata]
        tally = {letter: counts.count(letter) for letter in SEVERITIES}
        return self._render("errata", counts=tally)

    def statement(self, name: str, plot: _Plot | None) -> str:
        """One statement's page."""
        record = self._records[name]
        outcome = record.outcome
        corrects = self._records.get(name.removesuffix(".corrected"))
        corrects = None if corrects is record else corrects
        corrected = self._records.get(f"{name}.corrected")
        family = ".".join(name.split(".")[:2])
        shown = [name, f"{name}.corrected", name.removesuffix(".corrected")]
        names = list(self._records)
        return self._render(
            "statement",
            root="../",
            record=record,
            sides=[(outcome.verdict, record.check), (outcome.control, record.control)],
            corrected=corrected,
            corrects=corrects,
            derived=name.count(".") > 1,
            family=[n for n in names if is_under(n, family) and n not in shown],
            errata=[e for e in self._errata if name in e.statements],
            plot=plot,
            command=f"python -m theory check {name} {self._command}",
            **_neighbours(names, name),
        )

    def algorithms(self) -> str:
        """All algorithms, with what a round of each costs."""
        return self._render("algorithms", algorithms=algorithm_pages())

    def algorithm(self, name: str) -> str:
        """One algorithm's page."""
        every = {one.name: one for one in algorithm_pages()}
        return self._render(
            "algorithm",
            root="../",
            algorithm=every[name],
            unit=every["fedavg"],
            statements=every[name].statements(self._records),
            **_neighbours(list(every), name),
        )

    def _render(self, here: str, *, root: str = "", **context: Any) -> str:
        template = _environment().get_template(f"{here}.html")
        return template.render(self._shared, here=here, root=root, **context)


def _neighbours(names: Sequence[str], name: str) -> dict[str, str | None]:
    """The pages before and after one."""
    place = names.index(name)
    return {
        "before": names[place - 1] if place else None,
        "after": names[place + 1] if place + 1 < len(names) else None,
    }


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    own = (_breakable, _decades, _factor, _grouped, _measured, _number, _searched)
    filters: dict[str, Any] = {one.__name__.removeprefix("_"): one for one in own}
    environment.filters.update(filters, typeset=typeset)
    return environment


def _breakable(name: str) -> Markup:
    """A dotted name that may be broken after its dots."""
    return Markup(".<wbr>").join(name.split("."))


def _number(number: float) -> Markup:
    """Four digits and a power of ten."""
    if math.isnan(number):
        return Markup('<span class="quiet">–</span>')
    if math.isinf(number):
        return Markup("∞" if number > 0 else "−∞")
    digits, _, power = f"{number:.4g}".replace("-", "−").partition("e")
    if not power:
        return escape(digits)
    sign = "−" if power.startswith("−") else ""
    power = sign + power.lstrip("+−0")
    return Markup("{}\u202f×\u202f10<sup>{}</sup>").format(digits, power)


def _measured(number: float, series: Series | None) -> Markup:
    """A number of a verdict, out of its logarithm if it is one."""
    if series is None or series.scale == "number" or not math.isfinite(number):
        return _number(number)
    decades = number / np.log(10.0)
    if abs(decades) < _MOST_DIGITS:
        return _number(10.0**decades)
    return Markup("10<sup>{}</sup>").format(f"{decades:.6g}".replace("-", "−"))


def _decades(number: float) -> Markup:
    if math.isnan(number) or abs(number) >= 100:
        return _number(number)
    shown = f"{number:.2f}"
    shown = "0.00" if shown == "-0.00" else shown
    return escape(shown.replace("-", "−"))


def _grouped(count: int) -> str:
    """An integer with its thousands apart."""
    return f"{count:,}".replace(",", "\u202f")


def _factor(margin: Margin) -> Markup:
    with np.errstate(divide="ignore", invalid="ignore"):
        return _number(margin.factor)


def _searched(record: Record) -> str:
    """What the search looks through, as written and as set."""
    row = record.outcome.statement
    texts = [row.place, row.text, row.note, row.claimed, *row.preconditions]
    seen = [typeset(text).striptags() for text in texts]
    return " ".join([row.id, *texts, *seen]).lower()


# Drawings and what is written below them.


def _draw(record: Record, path: pathlib.Path) -> _Plot | None:
    if record.check is None:
        return None
    drawing = plot.draw(record.check, record.control)
    plot.save_svg(drawing.figure, path)
    width, height = drawing.figure.get_size_inches() * _PIXELS_PER_INCH
    caption = _caption(drawing, record.check, record.control)
    violating = int(record.check.violated.sum())
    return _Plot(
        caption,
        f"Truth against claim of {record.outcome.statement.id} at "
        f"{len(record.check.bounds)} points, of which {violating or 'none'} violate. "
        f"{caption}",
        round(width),
        round(height),
    )


def _caption(drawing: plot.Drawing, main: Series, control: Series | None) -> str:
    side = {"bound": "on or below", "equal": "on", "band": "within"}[main.kind]
    if drawing.layout == "diagonal":
        text, where = "What is true against what is claimed.", "the line"
    else:
        text = "Each point's truth and claim."
        where = "its band" if main.kind == "band" else "its mark"
    parts = [text, f"A claim holds {side} {where}."]
    if np.any(main.high > main.low):
        parts.append("Bars are intervals.")
    drawn, all_points = len(main.bounds), main.total - main.undrawable
    if drawn < all_points:
        parts.append(
            f"{drawn} of {all_points} points are drawn, among them all that tell most."
        )
    if main.undrawable:
        parts.append(
            f"{main.undrawable} more have no place: without a claim, or undefined."
        )
    if drawing.control_drawn:
        parts.append("Grey: the control, a claim that is false.")
    elif control is not None:
        parts.append("The control makes another kind of claim and is not drawn.")
    return " ".join(parts)


# What the pages of algorithms show: cards, arguments, and what a round costs.


class Argument(NamedTuple):
    """One argument of a constructor."""

    name: str
    default: str | None  # as it would be written; None where it must be given
    text: str  # what the docstring says of it


class AlgorithmPage(NamedTuple):
    """An algorithm, as its page has it."""

    name: str  # in the registry
    card: Card
    paper: str  # where the registry places it
    arguments: tuple[Argument, ...]  # of its constructor
    passes: Passes  # of a client in a round of the size `EXAMPLE`
    ratio: float  # of their work to FedAvg's

    @property
    def summary(self) -> str:
        """The first two sentences."""
        return " ".join(re.split(r"(?<=[.]) ", self.card.what)[:2])

    def statements(self, ids: Iterable[str]) -> list[str]:
        """The ids that it is about; beginnings that none of them has as they are."""
        known, found = list(ids), []
        for start in self.card.statements:
            below = [name for name in known if is_under(name, start)]
            found += below or [start]
        return found


@functools.cache
def algorithm_pages() -> tuple[AlgorithmPage, ...]:
    """All registered algorithms."""
    unit = REGISTRY["fedavg"].card.passes(EXAMPLE).units
    found = []
    for name, row in REGISTRY.items():
        passes, rows = row.card.passes(EXAMPLE), arguments(row.constructor)
        ratio = passes.units / unit
        found.append(AlgorithmPage(name, row.card, row.paper, rows, passes, ratio))
    return tuple(found)


def arguments(constructor: Callable[..., Any]) -> tuple[Argument, ...]:
    """Arguments with the texts of the constructor's Google-style docstring.

    Raises:
      ValueError: where one is not described, or one that is described is not there.
    """
    texts = _described_arguments(inspect.getdoc(constructor) or "")
    parameters = inspect.signature(constructor).parameters
    if set(texts) != set(parameters):
        odd = sorted(set(texts) ^ set(parameters))
        raise ValueError(
            f"`constructor` must describe its arguments and no others, got "
            f"{', '.join(odd)} of {constructor.__name__} on one side only."
        )
    return tuple(
        Argument(name, _shown_default(parameter.default), texts[name])
        for name, parameter in parameters.items()
    )


def _shown_default(value: Any) -> str | None:
    if value is inspect.Parameter.empty:
        return None
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__.split('.')[0]}.{name}" if name else repr(value)


def _described_arguments(documentation: str) -> dict[str, str]:
    """What a docstring says of each argument, in one line each."""
    _, _, section = documentation.partition("Args:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if not line.startswith("  "):
            break
        if not line.startswith("   "):
            name, _, line = line.strip().partition(":")
            found[name] = ""
        found[name] = f"{found[name]} {line.strip()}".strip()
    return found
