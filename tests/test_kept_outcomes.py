"""Outcomes, manifests and indexes as files: what was written, or as good as missing."""

import copy
import dataclasses
import hashlib
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from mutations_of_files import leaves
from toy_theory import ERRATA, QUICK, ROWS, build, register, toy

from cfljax import base
from cfljax.base.durable import replacing
from cfljax.base.sealed import sealed, unsealed, write_sealed
from cfljax.statements import (
    Constant,
    Evaluation,
    Margin,
    Parameter,
    Preset,
    Statement,
    Step,
    exact,
    site,
)
from cfljax.statements.site import records
from theory import __main__ as command
from theory import sources

FULL = toy(
    "toy.full",
    kind="band",
    count=2,
    constants={"c1": 1.25},
    note="It has whatever an outcome can have.",
    margins=lambda: (Margin("toy.asm: $n > 4$", 90.0, 30.0),),
    proof=lambda: [Step("a step", "algebra", True, "by hand")],
    proof_control=lambda: [Step("a step", "algebra", False)],
    evaluation=Evaluation(
        quantity="$P(x_1 > t)$",
        parameters=(Parameter("n", "samples", 20, least=1),),
        bound=lambda n, c: c / n,
        truth=lambda n: exact(0.1 / n),
        constants={"c": Constant(2.0, 1.5, 2.0, "certified")},
    ),
)
OTHER = dataclasses.replace(FULL, id="toy.other")


def kept(
    folder: pathlib.Path,
    statement: Statement = FULL,
    preset: Preset = QUICK,
    code: str = "code",
) -> site.Record:
    """What the folder keeps of a statement, or else what it comes to keep."""
    (record,) = site.kept([statement], preset, folder, sources=code)
    return record


def told(record: site.Record) -> dict[str, Any]:
    """All that a record says, but for the seconds that it took."""
    found = site.outcome_document(record.outcome)
    for name in ("verdict", "control"):
        del found[name]["seconds"]
    return json.loads(json.dumps(site.encoded(found)))


def edited(document: dict[str, Any], path: tuple) -> dict[str, Any]:
    """The document with something else of the same kind in one place."""
    changed = copy.deepcopy(document)
    *above, last = path
    place: Any = changed
    for name in above:
        place = place[name]
    before = place[last]
    if isinstance(before, bool):
        place[last] = not before
    elif isinstance(before, str):
        place[last] = before.replace(before[:1], "9", 1) if before else "9"
        place[last] += "9" * (place[last] == before)
    elif isinstance(before, int | float):
        place[last] = before + 90_000_000
    else:
        place[last] = [9]
    assert changed != document
    return changed


# Against itself: what is sealed


DOCUMENT = {"a": 1, "b": [True, None, "é\n\ud800"], "digest of b": {"c": float("inf")}}


def test_what_was_sealed_comes_back():
    whole = sealed(DOCUMENT).encode()
    assert json.loads(whole).keys() == {*DOCUMENT, "digest"}
    assert unsealed(whole) == DOCUMENT
    assert sealed(DOCUMENT).encode() == whole


def test_whatever_byte_is_changed_lost_or_added_breaks_the_seal():
    whole = sealed(DOCUMENT).encode()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        assert unsealed(bytes(changed)) is None
        assert unsealed(whole[:place]) is None
        assert unsealed(whole[:place] + whole[place + 1 :]) is None
        assert unsealed(whole[:place] + b" " + whole[place:]) is None
    assert unsealed(whole) is not None


@pytest.mark.parametrize("body", ["", "{", '{"a": 1, ', "[1, 2", "[" * 100_000])
def test_a_seal_of_no_document_is_none(body):
    """Whoever knows how may seal anything; it must be refused all the same."""
    tail = sealed({"a": 1}).encode().removeprefix(b'{"a": 1')
    digest = hashlib.sha256(body.encode()).hexdigest().encode()
    whole = body.encode() + tail[: len(tail) - 67] + digest + tail[-3:]
    assert len(whole) == len(body) + len(tail) and unsealed(whole) is None


def test_a_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "new" / "a.json"
    write_sealed(path, {"a": 1})
    with pytest.raises(RuntimeError), replacing(path) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert unsealed(path.read_bytes()) == {"a": 1}
    assert list(path.parent.iterdir()) == [path]


# Against failures: outcomes


def test_an_untouched_file_is_used(tmp_path):
    """Control of all below: without a change nothing is computed again."""
    first = kept(tmp_path)
    path = tmp_path / "toy.full.json"
    before = path.read_bytes()
    again = kept(tmp_path)
    assert first.is_new and not again.is_new and path.read_bytes() == before
    assert repr(again.outcome) == repr(first.outcome)
    path.write_text(json.dumps(json.loads(before)) + "\n")
    assert not kept(tmp_path).is_new, "written as the changed ones below"
    found = unsealed(before)
    assert found is not None
    write_sealed(path, found)
    assert not kept(tmp_path).is_new, "sealed as the ones of others below"


@pytest.mark.long
def test_every_single_edit_is_noticed(tmp_path):
    expected = told(kept(tmp_path))
    path = tmp_path / "toy.full.json"
    places = list(leaves(json.loads(path.read_bytes())))
    assert ("verdict", "num_trials") in places and ("digest",) in places
    assert ("control", "points", "upper", 1) in places
    assert ("proof", "steps", 0, "holds") in places
    for place in places:
        whole = json.loads(path.read_bytes())
        path.write_text(json.dumps(edited(whole, place)) + "\n")
        record = kept(tmp_path)
        assert record.is_new and told(record) == expected, place
    assert len(places) > 80 and not kept(tmp_path).is_new


def test_a_member_that_stands_twice_is_noticed(tmp_path):
    kept(tmp_path)
    path = tmp_path / "toy.full.json"
    path.write_text(path.read_text().replace("{", '{"preset": "quick", ', 1))
    assert kept(tmp_path).is_new


def of_another(path: pathlib.Path) -> None:
    kept(path.parent, OTHER)
    (path.parent / "toy.other.json").replace(path)


DAMAGES: dict[str, Callable[[pathlib.Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "without its digest": lambda path: path.write_text(
        json.dumps(unsealed(path.read_bytes())) + "\n"
    ),
    "another's": of_another,
    "no text": lambda path: path.write_bytes(b"\xff" * 200),
    "missing": lambda path: path.unlink(),
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to("nowhere")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_as_good_as_missing(tmp_path, damage):
    expected = told(kept(tmp_path))
    DAMAGES[damage](tmp_path / "toy.full.json")
    record = kept(tmp_path)
    assert record.is_new and told(record) == expected
    assert not kept(tmp_path).is_new


@pytest.mark.long
def test_a_sound_file_of_something_else_is_not_used(tmp_path):
    """Whatever an outcome is identified by is compared, each by itself."""
    kept(tmp_path)
    path = tmp_path / "toy.full.json"
    found = unsealed(path.read_bytes())
    assert found is not None
    names = {*site.described(FULL), "preset", "seed", "sources", "versions"}
    assert {"id", "expected", "latex", "constants"} < names <= found.keys()
    for name in sorted(names):
        for place in leaves(found[name], (name,)):
            write_sealed(path, edited(found, place))
            assert kept(tmp_path).is_new, place
            assert not kept(tmp_path).is_new


def test_another_check_is_another_outcome(tmp_path, monkeypatch):
    kept(tmp_path)
    changed = dataclasses.replace(FULL, text="another claim")
    others: list[dict[str, Any]] = [
        {"preset": Preset(seed=1)},
        {"preset": Preset("full")},
        {"code": "other code"},
        {"statement": changed},
    ]
    for options in others:
        assert kept(tmp_path, **options).is_new, options
        assert kept(tmp_path).is_new, "which was replaced"
    now = {**records.versions(), "numpy": "0"}
    monkeypatch.setattr(records, "versions", lambda: now)
    assert kept(tmp_path).is_new and not kept(tmp_path).is_new


def test_outcomes_know_packages_flags_and_precision(monkeypatch):
    """Those that compute: of proofs, too."""
    assert {"python", "numpy", "jax", "sympy", "python-flint"} <= {*site.versions()}
    before = sources.identity()
    assert before == sources.identity() != sources.fingerprint()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert sources.identity() != before
    monkeypatch.undo()
    monkeypatch.setattr(sources, "fingerprint", lambda: "other code")
    assert sources.identity() != before


def test_check_reports_nothing_of_an_edited_file(tmp_path, monkeypatch, capsys):
    register(monkeypatch, FULL, OTHER)
    arguments = ["check", "--csv", "--keep", str(tmp_path)]
    assert command.main(arguments) == 0
    expected = capsys.readouterr().out
    assert expected.count(",1234567,") == 2
    path = tmp_path / "quick-0" / "toy.full.json"
    whole = path.read_text()
    path.write_text(whole.replace('"num_trials": 1234567', '"num_trials": 91234567'))
    assert path.read_text() != whole
    assert command.main(arguments) == 0
    output = capsys.readouterr()
    assert output.out == expected and not output.err
    assert json.loads(path.read_text())["verdict"]["num_trials"] == 1234567


# Against failures: the report


@pytest.fixture
def toy_registry(monkeypatch):
    register(monkeypatch, *ROWS, errata=ERRATA)


@pytest.mark.long
@pytest.mark.usefixtures("toy_registry")
def test_a_report_shows_nothing_of_an_edited_file(tmp_path):
    build(tmp_path, ROWS[:1])
    path, page = tmp_path / "data/toy.a.json", tmp_path / "statements/toy.a.html"
    whole = path.read_text()
    path.write_text(whole.replace("1234567", "91234567"))
    (record,) = build(tmp_path, ROWS[:1])
    assert record.is_new and "1 234 567" in page.read_text().replace("\u202f", " ")
    assert "91" not in path.read_text().split('"num_trials": ')[1][:8]
    (record,) = build(tmp_path, ROWS[:1])
    assert not record.is_new


def link(folder: pathlib.Path, name: str, outside: pathlib.Path) -> None:
    """Move a folder away, and leave a link to it."""
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside, target_is_directory=True)


@pytest.mark.long
@pytest.mark.usefixtures("toy_registry")
def test_nothing_vanishes_through_a_link(tmp_path):
    """Not what the manifest lists, nor what would be written again."""
    site_folder, outside = tmp_path / "site", tmp_path / "outside"
    build(site_folder, ROWS[:3])
    (site_folder / "more").mkdir()
    (site_folder / "more" / "mine.html").write_text("mine")
    manifest = site_folder / "manifest.json"
    document = unsealed(manifest.read_bytes())
    assert document is not None
    names = ["more/mine.html", "../outside.html", str(tmp_path / "outside.html"), ""]
    document["files"] += [*names, "more", "loop/mine.html"]
    (tmp_path / "outside.html").write_text("mine")
    (site_folder / "loop").symlink_to("loop")
    for is_link in (True, False):
        write_sealed(manifest, document)
        if is_link:
            link(site_folder, "more", outside)
        build(site_folder, ROWS[:1])
        assert (tmp_path / "outside.html").read_text() == "mine"
        assert (outside / "mine.html").exists() == is_link
        assert not (site_folder / "statements/toy.band.html").exists()
        if is_link:
            (site_folder / "more").unlink()
            outside.rename(site_folder / "more")
    # Control: where nothing is a link, what is listed does vanish.
    assert not (site_folder / "more" / "mine.html").exists()


@pytest.mark.long
@pytest.mark.usefixtures("toy_registry")
@pytest.mark.parametrize("name", ["statements", "data", "plots", "assets", "more"])
def test_a_folder_of_the_report_that_leads_elsewhere_is_refused(tmp_path, name, capsys):
    folder, outside = tmp_path / "site", tmp_path / "outside"
    build(folder, ROWS[:3])
    (folder / "more").mkdir()
    link(folder, name, outside)
    before = {path: path.read_bytes() for path in outside.iterdir()}
    status = command.main(["report", "toy.equal", "--out", str(folder)])
    error = capsys.readouterr().err
    assert {path: path.read_bytes() for path in outside.iterdir()} == before
    if name == "more":  # Control: of no concern to the report.
        assert status == 0 and not error
    else:
        assert status == 2 and error.count("\n") == 1
        assert error.startswith(f"error: cannot use {folder / name}: is a link")


@pytest.mark.long
@pytest.mark.usefixtures("toy_registry")
def test_a_link_within_the_report_or_to_all_of_it_is_used(tmp_path):
    folder = tmp_path / "site"
    build(folder, ROWS[:3])
    link(folder, "statements", folder / "elsewhere")
    (tmp_path / "link").symlink_to(folder, target_is_directory=True)
    build(tmp_path / "link", ROWS[:1])
    left = sorted(path.name for path in (folder / "elsewhere").iterdir())
    assert left == ["toy.a.html"]


@pytest.mark.long
@pytest.mark.usefixtures("toy_registry")
def test_a_manifest_that_does_not_check_deletes_nothing(tmp_path, capsys):
    build(tmp_path, ROWS[:3])
    manifest, mine = tmp_path / "manifest.json", tmp_path / "mine.html"
    mine.write_text("mine")
    whole = manifest.read_text()
    for damaged in (
        whole.replace('"errata.html"', '"mine.html", "errata.html"'),
        "",
        whole[:-1],
        sealed({"files": 1}),
        (tmp_path / "data" / "toy.a.json").read_text(),
    ):
        assert damaged != whole
        manifest.write_text(damaged)
        before = sorted(tmp_path.rglob("*"))
        assert command.main(["report", "toy.a", "--out", str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "move it away" in error
        assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "index.html").rename(tmp_path / "old.html")
    assert command.main(["report", "toy.a", "--out", str(tmp_path)]) == 0
    assert mine.exists() and (tmp_path / "statements/toy.band.html").exists()


# Against itself: what is kept beside the bytecode


def test_an_index_is_of_its_sources_and_name_or_made_again(tmp_path):
    made = []

    def make(*, value: Any = (1, "é")) -> Any:
        made.append(value)
        return value

    path = tmp_path / "new" / "a.json"
    for _ in range(2):
        assert base.remembered(path, "x", make) == [1, "é"]  # As JSON has it.
    assert len(made) == 1
    whole = path.read_text()
    changes: dict[str, Callable[[], Any]] = {
        "edited": lambda: path.write_text(whole.replace("[1, ", "[2, ")),
        "truncated": lambda: path.write_text(whole[:-1]),
        "empty": lambda: path.write_text(""),
        "another's": lambda: (
            base.remembered(path.with_name("b.json"), "x", lambda: 5),
            path.with_name("b.json").replace(path),
        ),
        "of something else": lambda: write_sealed(path, {"value": 1}),
        "of nothing": lambda: write_sealed(path, {"made": ["a.json", "x"]}),
    }
    for number, (name, change) in enumerate(changes.items(), 1):
        change()
        assert base.remembered(path, "x", make) == [1, "é"], name
        assert len(made) == number + 1 and path.read_text() == whole
    assert base.remembered(path, "y", make) == [1, "é"]
    assert len(made) == len(changes) + 2
    assert [file.name for file in path.parent.iterdir()] == ["a.json"]
    for _ in range(2):  # Where nothing can be kept.
        assert base.remembered(pathlib.Path("/dev/null/a"), "x", make) == [1, "é"]
    assert len(made) == len(changes) + 4


def test_an_index_needs_neither_numpy_nor_jax():
    code = (
        "import sys\nfrom cfljax import base\nbase.remembered\n"
        "print({'numpy', 'jax'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
