"""What is installed besides: every file of the lock has a digest, and the page of
licences tells of every package."""

import copy
import re
import tomllib

import pytest
from pages import licences
from pages.licences import UNKNOWN, licence, needed

LOCK = tomllib.loads((licences.ROOT / "uv.lock").read_text("utf-8"))


def without_digest(lock):
    """Packages of a registry with a file of no SHA-256, or without a file."""
    found = set()
    for package in lock["package"]:
        files = [*package.get("wheels", ()), *filter(None, [package.get("sdist")])]
        digests = [re.match(r"sha256:[0-9a-f]{64}$", f.get("hash", "")) for f in files]
        if not (files and all(digests)):
            found.add(package["name"])
    return found


def test_every_file_of_the_lock_has_a_digest():
    assert without_digest(LOCK) == {"cfljax"}  # Which is this folder.


def test_a_file_without_a_digest_is_noticed():
    """Control."""
    for name in ("numpy", "pytest"):
        other = copy.deepcopy(LOCK)
        package = next(one for one in other["package"] if one["name"] == name)
        del package["wheels"][-1]["hash"]
        assert without_digest(other) == {"cfljax", name}


def told(text):
    """Rows of the page: versions, who needs it, and licence, by package."""
    return {name: rest for name, *rest in licences.told(text)[1:]}


def test_the_page_tells_of_every_package():
    rows = told(licences.PAGE.read_text("utf-8"))
    assert set(rows) == set(needed(LOCK)) and "numpy" in rows
    for row in licences.rows_of(LOCK, {}):
        versions, extras, own = rows[row.name]
        assert versions == ", ".join(row.versions)
        assert extras == (", ".join(row.extras) or "all") and own


def pointed_out(text):
    """Packages of the page's two short lists."""
    _, marked, unknown, _ = re.split(r"^## .*$", text, flags=re.M)
    names = lambda part: re.findall(r"(?:: |, )([a-z0-9-]+)(?=,|$)", part, re.M)
    return set(names(marked)), set(names(unknown))


def test_what_asks_for_more_is_pointed_out():
    text = licences.PAGE.read_text("utf-8")
    marked, unknown = pointed_out(text)
    owns = {name: own for name, (_, _, own) in told(text).items()}
    assert unknown == {name for name, own in owns.items() if own == UNKNOWN}
    assert marked >= {name for name, own in owns.items() if "GPL" in own}
    assert marked <= set(owns) - unknown and marked


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"license_expression": "MIT", "classifier": ["License :: x"]}, "MIT"),
        (
            {"classifier": ["License :: OSI Approved :: BSD License", "Topic :: x"]},
            "BSD License",
        ),
        ({"classifier": ["License :: OSI Approved"], "license": "ISC"}, "ISC"),
        ({"license": "Apache 2.0\n\nPermission is"}, UNKNOWN),
        ({"license": "x" * 61}, UNKNOWN),
        ({}, UNKNOWN),
    ],
)
def test_a_licence_is_what_the_package_says(metadata, expected):
    assert licence(metadata) == expected


def test_who_needs_a_package_is_found_along_what_asks_for_it():
    ask = lambda *names: [{"name": name} for name in names]
    lock = {
        "package": [
            {
                "name": "cfljax",
                "dependencies": [{"name": "a", "extra": ["x"]}],
                "optional-dependencies": {"log": ask("b", "e"), "dev": ask("e")},
            },
            {
                "name": "a",
                "version": "1",
                "optional-dependencies": {"x": ask("c"), "y": ask("d")},
            },
            {"name": "b", "version": "1", "dependencies": ask("a", "f")},
            *({"name": name, "version": "1"} for name in "cdef"),
        ]
    }
    for package in lock["package"]:
        package["version"] = "1"
    found = {"a": [], "b": ["log"], "c": [], "e": ["dev", "log"], "f": ["log"]}
    assert needed(lock) == found
    rows = licences.rows_of(lock, {"a": "GPL-3.0-only", "b": "MIT"})
    page = licences.page(rows)
    assert {row.name for row in rows} == set(found)
    assert pointed_out(page) == ({"a"}, {"c", "e", "f"})
    assert "\n- GPL-3.0-only (all): a\n" in page
    # What is not installed elsewhere is as it was, unless the lock has another.
    lock["package"][1]["version"] = "2"
    again = licences.rows_of(lock, {}, page)
    assert {row.name for row in again if row.licence == UNKNOWN} == {*"acef"}
