"""The page of licences: of every package that the lock names.

`PYTHONPATH=docs python -m pages.licences [REPORT]` writes `docs/licences.md`. A licence
is what the installed package says of itself, or in REPORT, which pip writes of packages
that are not installed: `pip install --dry-run --no-deps --report REPORT NAME==VERSION`;
of the others it is what the page had, where the lock's versions are the same.
"""

import collections
import importlib.metadata
import json
import pathlib
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "licences.md"
UNKNOWN = "not known here"
_LONGEST = 60  # Letters of a licence's name; what is longer is its text.
_CLASSIFIER = "License :: "
_ABOUT = (
    "cfljax is under the Apache License 2.0, and brings none of these packages along: "
    "they are installed beside it. `uv.lock` names {}, with the SHA-256 of every file; "
    "{} are needed by every installation, the others by extras, some of them on other "
    "systems or Pythons only. Licences are what packages say of themselves, read by"
)
# Whoever passes such packages on has more to do than to name their authors.
_MARKED = re.compile(r"GPL|General Public|Propriet|^LicenseRef-NVIDIA|EULA", re.I)


class Row(NamedTuple):
    """A package.

    versions: that the lock has, one for each range of Pythons.
    extras: that need it; empty if all installations do.
    """

    name: str
    versions: Sequence[str]
    extras: Sequence[str]
    licence: str


def needed(lock: Mapping[str, Any], own: str = "cfljax") -> dict[str, list[str]]:
    """Every package that an installation may need, on whatever system, by name, and the
    extras that it is for; none if it is always needed."""
    asks = collections.defaultdict(set)  # By name and extra, "" for none.
    for package in lock["package"]:
        optional = package.get("optional-dependencies", {})
        for extra, all in {"": package.get("dependencies", []), **optional}.items():
            for one in all:
                whats = [(one["name"], extra) for extra in one.get("extra", [])]
                asks[package["name"], extra] |= {(one["name"], ""), *whats}
    always = _reached(asks, (own, ""))
    found: dict[str, list[str]] = {name: [] for name in always}
    for _, extra in sorted(key for key in asks if key[0] == own and key[1]):
        for name in _reached(asks, (own, extra)) - always:
            found.setdefault(name, []).append(extra)
    del found[own]
    return dict(sorted(found.items()))


def _reached(
    asks: Mapping[tuple[str, str], set[tuple[str, str]]], first: tuple[str, str]
) -> set[str]:
    """Names of what one asks for, and what that asks for."""
    seen, waiting = {first}, [first]
    while waiting:
        fresh = asks.get(waiting.pop(), set()) - seen
        seen |= fresh
        waiting += fresh
    return {name for name, _ in seen}


def licence(metadata: Mapping[str, Any]) -> str:
    """What a package's metadata, as JSON has them, say: an expression of SPDX, else its
    classifiers, else a short name; `UNKNOWN` if they say nothing, or a whole text."""
    if expression := metadata.get("license_expression"):
        return expression
    known = [c for c in metadata.get("classifier", ()) if c.startswith(_CLASSIFIER)]
    names = [one.split(" :: ")[-1] for one in known if one.count("::") > 1]
    if names:
        return ", ".join(names)
    text = metadata.get("license", "").strip()
    return text if 0 < len(text) <= _LONGEST and "\n" not in text else UNKNOWN


def read(report: pathlib.Path | None) -> dict[str, str]:
    """Licences by the names of packages: of those installed, and those of a report."""
    rows = [] if report is None else json.loads(report.read_text("utf-8"))["install"]
    told = [row["metadata"] for row in rows]
    told += [one.metadata.json for one in importlib.metadata.distributions()]
    return {_normal(str(own["name"])): licence(own) for own in told}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def rows_of(
    lock: Mapping[str, Any], licences: Mapping[str, str], before: str = ""
) -> list[Row]:
    """What the page tells, by name; `before` is the page as it was."""
    versions = collections.defaultdict(list)
    for package in lock["package"]:
        versions[package["name"]].append(package.get("version", ""))
    known = {(name, version): own for name, version, _, own in told(before)}
    return [
        Row(
            name,
            own := versions[name],
            extras,
            licences.get(name, known.get((name, ", ".join(own)), UNKNOWN)),
        )
        for name, extras in needed(lock).items()
    ]


def told(text: str) -> list[tuple[str, ...]]:
    """Name, versions, extras and licence of each package on a page."""
    return re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.M)


def page(rows: Sequence[Row]) -> str:
    """The page."""
    always = sum(not row.extras for row in rows)
    marked = [row for row in rows if _MARKED.search(row.licence)]
    unknown = [row for row in rows if row.licence == UNKNOWN]
    return "\n".join(
        [
            "# Licences",
            "",
            *textwrap.wrap(_ABOUT.format(len(rows), always), 110),
            "",
            "```bash",
            "python -m uv sync --all-extras",
            "PYTHONPATH=docs python -m uv run --no-sync python -m pages.licences",
            "```",
            "",
            "and, of those of other systems, from a report of pip.",
            "",
            "## Which ask for more than a notice",
            "",
            *_by_licence(marked),
            "",
            "## Which say nothing",
            "",
            *_by_licence(unknown),
            "",
            "## All",
            "",
            "| package | version | needed by | licence |",
            "|---|---|---|---|",
            *(
                f"| {row.name} | {', '.join(row.versions)} | {_whose(row)} | "
                f"{row.licence} |"
                for row in rows
            ),
            "",
        ]
    )


def _by_licence(rows: Iterable[Row]) -> list[str]:
    """A line for each licence, and who it is of."""
    found = collections.defaultdict(list)
    for row in rows:
        found[f"{row.licence} ({_whose(row)})"].append(row.name)
    lines = [f"- {what}: {', '.join(names)}" for what, names in sorted(found.items())]
    return lines or ["None."]


def _whose(row: Row) -> str:
    return ", ".join(row.extras) or "all"


def main(words: Sequence[str]) -> int:
    """Write the page."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    report = pathlib.Path(words[0]) if words else None
    before = PAGE.read_text("utf-8") if PAGE.exists() else ""
    PAGE.write_text(page(rows_of(lock, read(report), before)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
