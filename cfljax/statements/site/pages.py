"""The site: its pages, what they show, and how numbers are written on them."""

import base64
import dataclasses
import functools
import inspect
import math
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jinja2
import numpy as np
from markupsafe import Markup, escape

from cfljax.base.sealed import unsealed, write_sealed
from cfljax.base.unpacking import read_file
from cfljax.report import replacing, write_text
from cfljax.statements.evaluation import Evaluation
from cfljax.statements.formulas import check_formulas, symbols, typeset
from cfljax.statements.margin import Margin, Real
from cfljax.statements.runner import Outcome
from cfljax.statements.site import plot
from cfljax.statements.site.records import Record, Series, kept, record_of, versions
from cfljax.statements.site.written import Written, read_written
from cfljax.statements.statement import (
    FAULTS,
    SEVERITIES,
    Erratum,
    Preset,
    Statement,
)
from cfljax.statements.verdict import Grade, Status, Verdict

_DATA = "data"
_FOLDERS = ("assets", _DATA, "plots", "proofs", "statements")
_MANIFEST = "manifest.json"
# Beginnings of places whose claims no paper has printed.
_UNPRINTED = ("not in the paper", "released code")
_HERE = pathlib.Path(__file__).parent
STYLE = _HERE / "static" / "style.css"
_PIXELS_PER_INCH = 96
_MOST_DIGITS = 300  # decades beyond which a mantissa says nothing


# What a caller hands over, and the three ways to write.


class Commands(NamedTuple):
    """Command lines that the pages name, with {id}, {preset}, {seed} and {sweep}."""

    check: str = ""  # of one statement
    evaluate: str = ""
    report: str = ""  # of the site


NO_COMMANDS = Commands()


class Page(NamedTuple):
    """A page beside those of the statements."""

    path: str  # in the site, such as "errata.html"
    template: str  # its file, in the folder `templates` of `write_site`
    context: Mapping[str, Any]  # what it shows besides what all pages know
    title: str = ""  # in the navigation, if it is there


def write_page(outcome: Outcome, path: str | pathlib.Path) -> pathlib.Path:
    """Write one statement's page as a file that needs no other: claim, verdicts,
    drawing, proof and parameters.

    Args:
      outcome: of `cfljax.statements.run`.
      path: of the file; missing folders are made.

    Raises:
      OSError: if it cannot be written.
    """
    site = _Site([record_of(outcome)], Preset(), alone=True)
    write_text(path, site.statement(outcome.statement.id, _draw(record_of(outcome))))
    return pathlib.Path(path)


def write_report(
    statements: Sequence[Statement],
    folder: str | pathlib.Path,
    preset: Preset | None = None,
) -> pathlib.Path:
    """Run all statements and write their site: an index with search and filters, a page
    and a drawing for each, and every number as JSON.

    Args:
      statements: with ids of their own.
      folder: of the site; made if missing. Files of an earlier report are replaced.
      preset: of the checks; quick, with seed 0, if None.

    Returns:
      Path of the first page.

    Raises:
      FileExistsError: if the folder holds an `index.html` that no report wrote, or one
        of a report's folders is a link to elsewhere.
      OSError: if a file cannot be written.
    """
    preset, folder = preset or Preset(), pathlib.Path(folder)
    records = list(kept(statements, preset, prepare_folder(folder)))
    return write_site(records, preset, folder)


def write_site(
    records: Sequence[Record],
    preset: Preset,
    folder: pathlib.Path,
    *,
    errata: Sequence[Erratum] = (),
    titles: Mapping[str, str] | None = None,
    folders: Mapping[str, pathlib.Path] | None = None,
    pages: Sequence[Page] = (),
    templates: pathlib.Path | None = None,
    commands: Commands = NO_COMMANDS,
    sources: str = "",
    files: Mapping[str, str] | None = None,
    repository: str = "",
    known: Sequence[str] = (),
    shown: Callable[[Sequence[Record]], Iterable[Record]] = lambda records: records,
) -> pathlib.Path:
    """Write all pages, plots and assets; returns the path of the first page.

    Of the files of an earlier run those are removed that its manifest lists, outcomes
    only of statements no longer `known`; none if the manifest is damaged or edited, and
    none outside the folder, whatever in it is a link.

    Args:
      records: of all statements, in the order of the index.
      preset: that they were made with.
      folder: made by `prepare_folder`, with the records' files in it.
      errata: of the papers; `pages` must then have an "errata.html".
      titles: of the papers, by their short names.
      folders: of the papers' written proofs, by their short names.
      pages: others than those of the statements.
      templates: folder of the pages' templates.
      commands: that are named where a check can be run again.
      sources: of the numbers, see `kept`.
      files: of the statements' source code, by their ids, as paths in the repository.
      repository: address that such a path is appended to, for a link to the file.
      known: ids whose outcomes stay though they are not in this report.
      shown: passes the records on while it shows how far the drawing is.

    Raises:
      FileExistsError: if a folder of it is a link to elsewhere.
      OSError: if a file cannot be written.
      ValueError: if a written proof is not there.
    """
    site = _Site(
        records,
        preset,
        errata=errata,
        titles=titles or {},
        folders=folders or {},
        pages=pages,
        templates=templates,
        commands=commands,
        sources=sources,
        files=files or {},
        repository=repository,
    )
    assets = [f"assets/{path.name}" for path in sorted(STYLE.parent.iterdir())]
    names = [record.id for record in records]
    listed = _listed(folder)
    data = {f"{_DATA}/{name}.json" for name in known} & set(listed)
    data |= {f"{_DATA}/{name}.json" for name in names}
    written = [*assets, "index.html", *(page.path for page in pages), *sorted(data)]
    written += [f"statements/{name}.html" for name in names]
    written += [f"plots/{record.id}.svg" for record in records if record.check]
    written += [f"proofs/{one.name}.html" for one in site.written]
    _check_own(folder, written)
    # Before the first page, so that none is left unlisted if this is interrupted.
    _write_manifest(folder, [*written, *listed])
    for name in assets:
        with replacing(folder / name) as temporary:
            shutil.copyfile(STYLE.parent / name.removeprefix("assets/"), temporary)
    for record in shown(records):
        drawn = _draw(record)
        if drawn:
            write_text(folder / f"plots/{record.id}.svg", drawn.svg)
        page = site.statement(record.id, drawn)
        write_text(folder / f"statements/{record.id}.html", page)
    for page in pages:
        write_text(folder / page.path, site.page(page))
    for one in site.written:
        write_text(folder / f"proofs/{one.name}.html", site.proof(one))
    write_text(folder / "index.html", site.index())
    for name in set(listed) - set(written):
        if (folder / name).is_file():
            (folder / name).unlink()
    _write_manifest(folder, written)
    return folder / "index.html"


# The site as files in a folder: written whole, and nothing else touched.


def prepare_folder(folder: pathlib.Path) -> pathlib.Path:
    """Make sure that a report can be written, before hours go into its numbers; returns
    the folder of the outcomes' files.

    Raises:
      FileExistsError: if the folder holds an `index.html` that no report wrote, or one
        of a report's folders is a link to elsewhere.
      OSError: if the folder cannot be made or written to.
    """
    index = folder / "index.html"
    if index.exists() and "index.html" not in _listed(folder):
        message = "is not known to be a report's, and would be lost; move it away"
        raise FileExistsError(0, message, str(index))
    _check_own(folder, [f"{name}/_" for name in _FOLDERS])
    data = folder / _DATA
    data.mkdir(parents=True, exist_ok=True)
    with replacing(data / "probe") as probe:
        probe.write_text("")
    (data / "probe").unlink()
    return data


def _listed(folder: pathlib.Path) -> list[str]:
    """Files that an earlier run wrote, as far as they are in the folder; none if its
    manifest is not, byte for byte, what it wrote."""
    try:
        found = unsealed(read_file(folder / _MANIFEST)) or {}
        return [name for name in found["files"] if _is_inside(folder, name)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _is_inside(folder: pathlib.Path, name: str) -> bool:
    """Whether a file lies in the folder or below it, wherever links lead."""
    parent = pathlib.Path(os.path.realpath((folder / name).parent))
    return parent.is_relative_to(os.path.realpath(folder))


def _check_own(folder: pathlib.Path, names: Iterable[str]) -> None:
    """Raises FileExistsError if a file of these names would be written elsewhere."""
    for name in names:
        if not _is_inside(folder, name):
            message = "is a link to elsewhere, where files would be lost; remove it"
            raise FileExistsError(0, message, str((folder / name).parent))


def _write_manifest(folder: pathlib.Path, files: Sequence[str]) -> None:
    document = {"report": "cfljax theory", "files": sorted(set(files))}
    write_sealed(folder / _MANIFEST, document)


# The pages.


@dataclasses.dataclass(frozen=True)
class _Paper:
    """A paper's part of the report."""

    name: str
    title: str
    records: list[Record]
    errata: list[Erratum]

    @property
    def counts(self) -> dict[Status, int]:
        """Statements of each verdict."""
        found = [record.outcome.verdict.status for record in self.records]
        return {status: found.count(status) for status in Status}

    @property
    def grades(self) -> dict[str, int]:
        """Statements of each kind of evidence."""
        found = [record.outcome.verdict.grade for record in self.records]
        return {_code(grade): found.count(grade) for grade in Grade}

    @property
    def faults(self) -> dict[str, int]:
        """Violated statements of each class."""
        found = [record.outcome.statement.fault for record in self.records]
        return {fault: found.count(fault) for fault in FAULTS}

    @property
    def num_surprises(self) -> int:
        """Statements that did not come out as expected."""
        return sum(not record.outcome.as_expected for record in self.records)


class _Site:
    """The pages' texts, as HTML; see `write_site`."""

    def __init__(
        self,
        records: Sequence[Record],
        preset: Preset,
        *,
        errata: Sequence[Erratum] = (),
        titles: Mapping[str, str] | None = None,
        folders: Mapping[str, pathlib.Path] | None = None,
        pages: Sequence[Page] = (),
        templates: pathlib.Path | None = None,
        commands: Commands = NO_COMMANDS,
        sources: str = "",
        files: Mapping[str, str] | None = None,
        repository: str = "",
        alone: bool = False,
    ) -> None:
        self._records = {record.id: record for record in records}
        self._errata = tuple(errata)
        self._environment = _environment(templates)
        self._proofs = _read_proofs(records, folders or {})
        self._commands = commands
        self._files = files or {}
        self._preset = {"preset": preset.name, "seed": preset.seed}
        statements = [record.outcome.statement for record in records]
        self._shared: dict[str, Any] = {
            "alone": alone,
            "errata": self._errata,
            "faults": FAULTS,
            "grades": {_code(grade): grade.value for grade in Grade},
            "navigation": [(page.path, page.title) for page in pages if page.title],
            "papers": [
                _Paper(
                    name,
                    (titles or {}).get(name, name),
                    [r for r in records if r.outcome.statement.paper == name],
                    [erratum for erratum in errata if erratum.paper == name],
                )
                for name in dict.fromkeys(row.paper for row in statements)
            ],
            "preset": preset,
            "records": self._records,
            "report": commands.report.format(**self._preset),
            "repository": repository,
            "severities": SEVERITIES,
            "sources": sources,
            "statuses": list(Status),
            "style": STYLE.read_text(encoding="utf-8") if alone else "",
            "versions": versions(),
        }

    @property
    def written(self) -> list[Written]:
        """The written proofs, each once."""
        return list({one.name: one for one in self._proofs.values()}.values())

    def index(self) -> str:
        """All statements, with the filter."""
        expected = sum(r.outcome.as_expected for r in self._records.values())
        return self._render("index.html", "index.html", num_expected=expected)

    def statement(self, name: str, plot: "_Plot | None") -> str:
        """One statement's page."""
        record = self._records[name]
        outcome = record.outcome
        row = outcome.statement
        check_formulas(name, row.prose)
        corrects = self._records.get(name.removesuffix(".corrected"))
        shown = [name, f"{name}.corrected", name.removesuffix(".corrected")]
        shown.append(row.other_reading)
        family = ".".join(name.split(".")[:2])
        names = list(self._records)
        sweep = _sweep(row.evaluation) if row.evaluation else ""
        told = self._preset | {"id": name, "sweep": sweep}
        return self._render(
            f"statements/{name}.html",
            "statement.html",
            record=record,
            sides=[(outcome.verdict, record.check), (outcome.control, record.control)],
            corrected=self._records.get(f"{name}.corrected"),
            corrects=None if corrects is record else corrects,
            reading=self._records.get(row.other_reading),
            read_otherwise=[
                other
                for other in self._records.values()
                if other.outcome.statement.other_reading == name
            ],
            derived=name.count(".") > 1 or row.place.lower().startswith(_UNPRINTED),
            family=[
                n for n in names if f"{n}.".startswith(f"{family}.") and n not in shown
            ],
            own_errata=[e for e in self._errata if name in e.statements],
            paper=next(p for p in self._shared["papers"] if p.name == row.paper),
            file=self._files.get(name, ""),
            plot=plot,
            paragraphs=_paragraphs(row),
            written=self._proofs.get(name),
            check=self._commands.check.format(**told),
            evaluate=self._commands.evaluate.format(**told) if sweep else "",
            **neighbours(names, name),
        )

    def page(self, page: Page) -> str:
        """One of the other pages."""
        return self._render(page.path, page.template, **page.context)

    def proof(self, written: Written) -> str:
        """A written proof, with the statements that it proves."""
        proved = [name for name, one in self._proofs.items() if one is written]
        path = f"proofs/{written.name}.html"
        return self._render(path, "proof.html", written=written, proved=proved)

    def _render(self, here: str, template: str, **context: Any) -> str:
        root = "../" * here.count("/")
        return self._environment.get_template(template).render(
            self._shared, here=here, root=root, **context
        )


def neighbours(names: Sequence[str], name: str) -> dict[str, str | None]:
    """The pages before and after one."""
    place = names.index(name)
    return {
        "before": names[place - 1] if place else None,
        "after": names[place + 1] if place + 1 < len(names) else None,
    }


def _read_proofs(
    records: Sequence[Record], folders: Mapping[str, pathlib.Path]
) -> dict[str, Written]:
    """The written proofs of the statements that have one, read once each.

    Raises:
      ValueError: if one is not there.
    """
    read = functools.cache(read_written)
    found = {}
    for record in records:
        row = record.outcome.statement
        if row.written_proof:
            path = folders.get(row.paper, pathlib.Path()) / row.written_proof
            if not path.is_file():
                raise ValueError(
                    f"`written_proof` must name a file, got {path} for {row.id}."
                )
            found[record.id] = read(path, row.paper)
    return found


def _paragraphs(row: Statement) -> list[str]:
    """What the docstring of the proof says, before it lists arguments."""
    text = inspect.getdoc(getattr(row.proof, "func", row.proof)) if row.proof else ""
    text = re.split(r"\n *(?:Args|Returns|Raises):\n", text or "")[0]
    parts = re.split(r"\n\s*\n|\n(?=\s*\d+\. )", text)
    return [" ".join(part.split()) for part in parts if part.strip()]


def _sweep(evaluation: Evaluation) -> str:
    """A parameter with a range of values, as an example."""
    counts = [one for one in evaluation.parameters if one.is_count]
    one = (counts or list(evaluation.parameters))[0]
    least = max(one.least, float(one.default) / 10)
    most = min(one.most, 10 * float(one.default))
    if one.is_count:
        return f"{one.name}={math.ceil(least)}:{math.floor(most)}:9"
    if one.open:  # the ends themselves have no meaning
        least, most = (0.9 * end + 0.1 * float(one.default) for end in (least, most))
    return f"{one.name}={least:.3g}:{most:.3g}:9"


@functools.cache
def _environment(templates: pathlib.Path | None) -> jinja2.Environment:
    folders = [*([templates] if templates else []), _HERE / "templates"]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    own = (_breakable, _code, _decades, _factor, _grouped, _loose, _measured, _number)
    own += (_rate, _searched, _short)
    filters: dict[str, Any] = {one.__name__.removeprefix("_"): one for one in own}
    environment.filters.update(filters, typeset=typeset, symbol=_symbol)
    return environment


def _breakable(name: str) -> Markup:
    """A dotted name that may be broken after its dots."""
    return Markup(".<wbr>").join(name.split("."))


def _symbol(name: str) -> Markup:
    """The name of a constant or parameter."""
    return typeset(symbols(name))


def _number(number: Real) -> Markup:
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


def _measured(
    number: float, series: Series | None, *, logarithmic: bool = False
) -> Markup:
    """A number of a verdict, out of its logarithm if it is one."""
    logarithmic = logarithmic or (series is not None and series.scale == "log")
    if not logarithmic or not math.isfinite(number):
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


def _loose(slack: float) -> Markup:
    """The factor of a slack in decades."""
    return _measured(slack * np.log(10.0), None, logarithmic=True)


def _rate(verdict: Verdict) -> Markup:
    """The error rate, and whether it is no promise."""
    nominal = verdict.grade is Grade.NOMINAL and verdict.error_rate > 0
    return _number(verdict.error_rate) + (" (nominal)" if nominal else "")


def _code(grade: Grade) -> str:
    """A grade in one word."""
    return grade.name.lower()


def _short(text: str) -> str:
    """What stands before a colon."""
    return text.split(":")[0]


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
    texts += [FAULTS.get(row.fault, ""), record.outcome.verdict.grade.value]
    seen = [typeset(text).striptags() for text in texts]
    return " ".join([row.id, *texts, *seen]).lower()


# Drawings and what is written below them.


class _Plot(NamedTuple):
    """A drawing, its texts, and its size in pixels."""

    svg: str
    caption: str
    alternative: str
    width: int
    height: int

    @property
    def address(self) -> str:
        """The drawing itself, for a page that needs no other file."""
        coded = base64.b64encode(self.svg.encode()).decode()
        return f"data:image/svg+xml;base64,{coded}"


def _draw(record: Record) -> _Plot | None:
    """The drawing of a check with its control, if it has points."""
    if record.check is None:
        return None
    drawing = plot.draw(record.check, record.control)
    width, height = drawing.figure.get_size_inches() * _PIXELS_PER_INCH
    caption = _caption(drawing, record)
    violating = int(record.check.violated.sum())
    return _Plot(
        plot.svg(drawing.figure),
        caption,
        f"Truth against claim of {record.id} at "
        f"{len(record.check.bounds)} points, of which {violating or 'none'} violate. "
        f"{caption}",
        round(width),
        round(height),
    )


def _caption(drawing: plot.Drawing, record: Record) -> str:
    """What is drawn, and how to read it."""
    main, control = record.check, record.control
    assert main is not None
    side = {"bound": "on or below", "equal": "on", "band": "within"}[main.kind]
    if not np.any(main.claims):
        parts = ["What is true at each point; none has a finite number to be held to."]
    elif drawing.layout == "diagonal":
        parts = ["What is true against what is claimed."]
        parts.append(f"A claim holds {side} the line.")
    else:
        where = "its band" if main.kind == "band" else "its mark"
        parts = ["Each point's truth and claim.", f"A claim holds {side} {where}."]
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
        word = record.outcome.statement.control_expected is Status.HOLDS
        parts.append(f"Grey: the control, a claim that is {str(word).lower()}.")
    elif control is not None:
        parts.append("The control makes another kind of claim and is not drawn.")
    return " ".join(parts)
