"""Toy statements, a registry and a site of them, and a reader that finds its faults."""

import dataclasses
import functools
import inspect
import itertools
import math
import pathlib
import sys
import types
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Literal
from urllib.parse import urlsplit

import numpy as np
import pytest

from cfljax.statements import (
    Erratum,
    Grade,
    Margin,
    Points,
    Preset,
    Statement,
    Status,
    Verdict,
    site,
)
from theory import registry
from theory.report.pages import write_site
from theory.sources import identity

QUICK = Preset()
_VOID = {"meta", "link", "img", "input", "br", "wbr", "hr"}
Kind = Literal["bound", "equal", "band"]


def toy(
    name: str = "toy.a",
    *,
    status: Status = Status.HOLDS,
    expected: Status = Status.HOLDS,
    kind: Kind | None = "bound",
    scale: Literal["number", "log"] = "number",
    count: int = 7,
    control: Status | None = None,
    grade: Grade = Grade.NOMINAL,
    **fields,
) -> Statement:
    """A row whose verdict is decided beforehand, with points of any kind; its control
    comes out as it must unless it is said how."""
    if control is None:
        violated = expected is Status.VIOLATED
        control = Status.HOLDS if violated else Status.VIOLATED

    def judge(preset: Preset, status: Status) -> Verdict:
        points, bound, interval = None, 0.5, (0.25, math.inf)
        if kind:
            points = _points(preset, kind, scale, count, status)
            bound, low, high = (float(part[0]) for part in points[:3])
            interval = low, high
        return Verdict(
            statement=name,
            status=status,
            bound=bound,
            interval=interval,
            error_rate=1e-6,
            num_trials=1234567,
            resolution=0.01,
            detail="drawn <in> a line & 'quoted', $n' = 5$",
            grade=grade,
            slack=0.3 if kind == "bound" else math.nan,
            points=points,
        )

    return Statement(
        id=name,
        paper=name.split(".")[0],
        place="Lemma <1>",
        text=r"$|\theta_1 - \theta_1^*| \le c_1 \sqrt{d/n'}$ & more",
        check=functools.partial(judge, status=status),
        control=functools.partial(judge, status=control),
        expected=expected,
        preconditions=(r"$n' \ge 1$", r"$\alpha < \frac{1}{2}$"),
        **fields,
    )


def _points(
    preset: Preset, kind: Kind, scale: Literal["number", "log"], count: int, found
) -> Points:
    """Points on the claimed side, one of them on the other if that is the verdict."""
    bounds = preset.generator("toy").uniform(0.1, 100.0, count)
    truth = bounds.copy() if kind == "equal" else 0.7 * bounds
    if found is Status.VIOLATED:
        truth[count // 2] = 1.6 * bounds[count // 2]
    upper = None
    if kind == "band":
        bounds, upper = 0.5 * bounds, bounds
    if scale == "log":
        bounds, truth = np.log(bounds) - 50.0, np.log(truth) - 50.0
        return Points(bounds, truth, truth, scale="log")
    where = {
        "n": np.arange(count),
        "share": bounds / 100,
        "law": np.array(["t"] * count),
    }
    ends = 0.95 * truth, 1.05 * truth
    return Points(bounds, *ends, kind=kind, upper=upper, coordinates=where)


def _broken(preset: Preset) -> Verdict:
    raise ZeroDivisionError("of a kind")


BROKEN = dataclasses.replace(toy("toy.surprise"), check=_broken)
ROWS = (
    toy(
        status=Status.VIOLATED,
        expected=Status.VIOLATED,
        fault="printed",
        note="As printed it is false.",
        claimed="$c_1 > 0$, unnamed",
    ),
    toy(
        "toy.a.corrected",
        constants={"c1": 1.25e-7},
        margins=lambda: (
            Margin(r"toy.asm: $n' \ge 4 \log m$", 90.0, 30.0),
            Margin(r"toy.asm: $x_1 \le 1$", 2.0, 1.0, at_least=False),
        ),
    ),
    toy(
        "toy.band",
        kind="band",
        grade=Grade.EXACT,
        note="Nothing remarkable about the unicorn.",
    ),
    toy("toy.equal", kind="equal", count=1),
    toy("toy.none", kind=None, status=Status.VACUOUS, expected=Status.VACUOUS),
    toy("toy.powers", scale="log", count=900),
    BROKEN,
    toy("zoo.long.name.of.a.statement.that.fills.a.narrow.page"),
)
ERRATA = (
    Erratum(
        id="toy.E1",
        paper="toy",
        place="Lemma 1",
        severity="A",
        printed=r"$|x| \le y$",
        correction=r"$|x| \le 2 y$",
        counterexample="$x = 3$, $y = 2$",
        statements=("toy.a", "toy.a.corrected", "toy.elsewhere"),
    ),
)


def register(
    patch: pytest.MonkeyPatch, *rows: Statement, errata: tuple[Erratum, ...] = ()
) -> None:
    """Make the registry know these alone, and keep no index of them."""
    module = types.SimpleNamespace(STATEMENTS=rows)
    patch.setitem(sys.modules, "toy_rows", module)
    patch.setattr(registry, "_modules", lambda: ["toy_rows"])
    patch.setattr(registry, "_index_file", lambda: pathlib.Path("/dev/null/index"))
    patch.setattr(registry, "all_errata", lambda: errata)


def build(
    folder: pathlib.Path,
    rows: tuple[Statement, ...] = ROWS,
    *,
    preset: Preset = QUICK,
    known: tuple[Statement, ...] = ROWS,
) -> list[site.Record]:
    """Write the site of the rows into a folder."""
    data = site.prepare_folder(folder)
    records = list(site.kept(rows, preset, data, sources=identity()))
    write_site(records, ERRATA, preset, folder, known=[row.id for row in known])
    return records


def every_page(folder: pathlib.Path) -> list[pathlib.Path]:
    """All pages of a site."""
    return sorted(folder.rglob("*.html"))


class _Page(HTMLParser):
    """Anchors, links and unbalanced tags of a page."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.faults += [f"<{tag}> is not closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag brings."""
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("href", "src"):
                self.links.append(value or "")
            elif name in ("aria-labelledby", "for"):
                self.links.append(f"#{value}")
        if tag == "img" and not dict(attrs).get("alt"):
            self.faults.append("a picture without a text")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the last tag, which must be this one."""
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> closes another tag")


def faults(folder: pathlib.Path) -> list[str]:
    """What is wrong in the pages of a site: links into nowhere, tags, pictures."""
    read = {path.resolve(): _Page(path) for path in every_page(folder)}
    found = []
    for path, page in read.items():
        wrong = list(page.faults)
        wrong += [f"#{name} twice" for name in page.ids if page.ids.count(name) > 1]
        wrong += [link for link in page.links if not _resolves(link, path, read)]
        found += [f"{path.name}: {text}" for text in wrong]
    return found


def _resolves(link: str, path: pathlib.Path, read: dict[pathlib.Path, _Page]) -> bool:
    """Whether a link leads to a file of the site, and to an anchor that is there."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return parts.scheme == "data"  # nothing may be asked of a network
    target = (path.parent / parts.path).resolve() if parts.path else path
    if not target.is_file():
        return False
    return not parts.fragment or parts.fragment in read[target].ids


def each(check: Callable[..., Verdict], *, slow: bool = False, **told: tuple):
    """Cases of a check, called with every combination of what it is told."""
    needed = inspect.signature(check).parameters
    told = {one: ("toy.a",) for one in ("name", "statement") if one in needed} | told
    for values in itertools.product(*told.values()):
        changed = dict(zip(told, values, strict=True))
        said = [f"{key}={value}" for key, value in changed.items() if value != "toy.a"]
        name = "-".join([check.__module__.split(".")[-1], check.__name__, *said])
        call = functools.partial(check, QUICK, **changed)
        yield pytest.param(call, marks=[pytest.mark.slow] * slow, id=name[:80])
