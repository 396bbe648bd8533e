"""The leaderboard of compare.all: its form, what is refused, what a board shows, the
commands."""

import copy
import dataclasses
import json
import os
import pathlib
import types
from typing import Any, get_args

import hypothesis.strategies as st
import jax
import jsonschema
import numpy as np
import pytest
from mutations_of_files import containers, edits, leaves
from properties import always
from scipy import stats
from test_compare import made_up
from test_compare_all import SIZES, drawn
from toy_experiments import save_no_figures

from cfljax import report
from cfljax.data import ImageSet
from experiments.__main__ import main
from experiments.compare import board, every, exports, standings, submissions
from experiments.compare.arms import Optimizer
from experiments.compare.every import Config
from experiments.compare.scenes import WORLDS
from experiments.compare.submissions import RefusedError, faults

OF_TESTS = {"num_trials": 3, "num_rounds": 20, "step_sizes": (0.3, 0.1, 0.03, 0.01)}
SHARES = [[0.90, 0.50, 0.70], [0.88, 0.47, 0.69], [0.91, 0.49, 0.72]]
COMPARISON = {
    "checksum": "0123abcd",
    "worlds": ["label_skew", "drift"],
    **{
        n: list(v) if isinstance(v, tuple) else v
        for n, v in vars(Config(**OF_TESTS)).items()
    },
}
for name in ("algorithms", "clients_per_chunk"):
    del COMPARISON[name]


def method(name="mine", test=SHARES[0], **changes):
    """A method of two worlds, of which it serves one."""
    results = {"chosen": "step 0.1", "validation": [0.5] * 3, "test": list(test)}
    results |= {"newcomers": [0.25, 0.5, 0.75], "received_mib": 1.5}
    worlds = {"label_skew": results, "drift": {"does_not_apply": "too slow"}}
    return {
        "name": name,
        "authors": ["Ada"],
        "contact": "ada@example.org",
        "code": {"link": "https://example.org/ada", "commit": "0a1b2c3"},
        "citation": "Ada, 2026",
        "licence": "MIT",
        "settings_tried": 4,
        "worlds": worlds,
    } | changes


def submission(*methods, **changes):
    """One of all right."""
    methods = list(methods) or [method()]
    return {"schema": 1, "comparison": COMPARISON | changes, "methods": methods}


def written(path, document):
    path.write_text(json.dumps(document))
    return path


def shown(*methods):
    """Rows of a board's first world, by method."""
    found = board.Board(COMPARISON, {own["name"]: own for own in methods})
    return {r["algorithm"]: r for r in standings.rows(found) if r["world"] != "drift"}


# Against equations


def test_differences_are_of_the_same_seeds():
    names = ("first", "second", "third")
    table = shown(*(method(n, test=own) for n, own in zip(names, SHARES, strict=True)))
    assert table["third"]["accuracy"] == pytest.approx(100 * 2.12 / 3)
    apart = 100 * (np.array(SHARES[1]) - np.array(SHARES[2]))
    rate = 0.05 / 2  # Two differences to the best.
    half = stats.t.ppf(1 - rate / 2, 2) * apart.std(ddof=1) / np.sqrt(3)
    row = table["second"]
    assert row["minus_best"] == pytest.approx(apart.mean())
    assert row["minus_best_low"] == pytest.approx(apart.mean() - half, rel=1e-5)
    assert row["minus_best_high"] == pytest.approx(apart.mean() + half, rel=1e-5)
    assert "minus_best" not in table["third"] and table["third"]["with_best"]


def test_a_small_difference_is_seen_where_seeds_differ_much():
    """Control: of the same numbers, in the order of other seeds, nobody is told
    apart."""
    always_below = [value - 0.01 for value in SHARES[0]]
    table = shown(method("best"), method("below", test=always_below))
    assert not table["below"]["with_best"]
    assert table["below"]["minus_best"] == pytest.approx(-1)
    turned = shown(method("best"), method("below", test=always_below[::-1]))
    assert turned["below"]["with_best"]
    assert turned["below"]["accuracy"] == pytest.approx(table["below"]["accuracy"])


def test_what_does_not_apply_or_failed_is_told():
    failed = method("lost", worlds={w: {"failed": "it diverged"} for w in WORLDS})
    found = board.Board(COMPARISON, {"lost": failed, "mine": method()})
    text = every.markdown(standings.rows(found), COMPARISON["worlds"])
    assert "| lost | failed | failed |" in text
    assert "| mine | **70.0** | does not apply |" in text
    assert "mine does not apply to drift: too slow" in text


# Against itself


def test_the_form_is_a_schema_of_what_the_comparison_has():
    form = submissions.form()
    jsonschema.Draft202012Validator.check_schema(form)
    own = form["$defs"]["comparison"]
    assert own["properties"].keys() == set(own["required"]) == COMPARISON.keys()
    names = {field.name for field in dataclasses.fields(Config)}
    left_out = names - COMPARISON.keys()
    assert left_out == {"algorithms", "clients_per_chunk"}
    choices = {n: own["properties"][n].get("enum") for n in ("dataset", "optimizer")}
    assert choices == {
        "dataset": list(get_args(ImageSet)),
        "optimizer": list(get_args(Optimizer)),
    }
    assert own["properties"]["worlds"]["items"]["enum"] == list(WORLDS)
    assert every.config_of(COMPARISON) == Config(**OF_TESTS)


@pytest.mark.long
def test_results_of_compare_all_make_its_table(tmp_path, monkeypatch):
    save_no_figures(monkeypatch)
    config = Config(algorithms=("fedavg", "ifca", "local"), **OF_TESTS)
    accuracies = [[[value] for value in own] for own in SHARES]
    seen = types.SimpleNamespace(contestants=config.contestants, num_rounds=20)
    results = made_up(("fedavg", "ifca", "local"), accuracies, seen)
    worlds = ["label_skew", "drift"]
    by_world = [{"label_skew": own, "drift": "too late"} for own in results]
    trial = types.SimpleNamespace(checksum="0123abcd")
    prepared = every.Prepared(trial, None, worlds, "", "")  # pyright: ignore
    text = every._submission(config, prepared, by_world)
    path = tmp_path / "results.json"
    path.write_text(text)
    document = submissions.read(path)
    assert submissions.text(document["comparison"], document["methods"]) == text
    found, files = board.add([path], tmp_path / "board")
    assert [file.name for file in files] == ["fedavg.json", "ifca.json", "local.json"]
    assert board.load(tmp_path / "board") == found
    table = standings.rows(found)
    wanted = [
        row
        for world in worlds
        for row in every.rows(world, [own[world] for own in by_world], config)
    ]
    for row, own in zip(table, wanted, strict=True):
        shared = row.keys() & own.keys()
        assert {"world", "algorithm"} < shared
        assert {n: row[n] for n in shared} == {n: own[n] for n in shared}
    assert {"accuracy_low", "minus_best_high", "newcomers", "sent_mib"} < table[
        0
    ].keys() | table[1].keys()
    drawn_once = standings.draw(found, tmp_path / "board")
    assert drawn_once["rows"] == table


def test_a_board_does_not_depend_on_who_came_first(tmp_path, monkeypatch):
    save_no_figures(monkeypatch)
    files = [
        written(tmp_path / f"{name}.json", submission(method(name, test=own)))
        for name, own in zip(("one", "two"), SHARES, strict=False)
    ]
    made = []
    for place, order in (("a", files), ("b", files[::-1])):
        for file in order:
            found, _ = board.add([file], tmp_path / place)
        standings.draw(found, tmp_path / place)
        made.append({f.name: f.read_bytes() for f in (tmp_path / place).iterdir()})
    assert made[0] == made[1]
    assert made[0].keys() == {"one.json", "two.json", "table.csv", "table.md"}


@pytest.mark.long
def test_exported_arrays_are_those_of_the_worlds(tmp_path):
    clients = drawn(repetitions=2)
    arrays = exports.arrays_of(clients, ["drift", "mixture"])
    cell = list(WORLDS).index("mixture") * 2 + 1
    own = jax.tree.map(lambda leaf: np.asarray(leaf)[cell], clients)
    np.testing.assert_array_equal(arrays["inputs"][1, 1], own.inputs)
    np.testing.assert_array_equal(arrays["new_test_mask"][1, 1], own.new_test.mask)
    number = SIZES.num_clients
    assert arrays["targets"].shape == (2, 2, 2, number, SIZES.num_samples)
    assert len(arrays) == 4 + 4 * 3


@pytest.mark.long
def test_the_command_exports_with_the_checksum(tmp_path, capsys):
    path = tmp_path / "worlds.npz"
    flags = ["--num-clients", "8", "--num-samples", "5", "--num-trials", "2"]
    assert main(["compare", "export", "--out", str(path), *flags, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    with np.load(path) as file:
        comparison = json.loads(str(file["comparison"]))
        assert file["inputs"].shape[:4] == (len(comparison["worlds"]), 2, 8, 5)
    assert comparison == summary["comparison"]
    assert comparison["num_samples"] == 5
    own = method(worlds={w: {"failed": "not run"} for w in comparison["worlds"]})
    assert faults({"schema": 1, "comparison": comparison, "methods": [own]}) == []


# Against misuse


def test_what_is_right_has_no_faults():
    assert faults(submission()) == []
    assert faults(submission(method("a"), method("b"))) == []


@pytest.mark.parametrize(
    ("place", "value", "line"),
    [
        ("schema", 2, "schema must be 1 (version of this form); got 2"),
        ("methods", [], "methods must be of at least 1 entries; got []"),
        ("methods.0.name", "a/b", "methods[0].name must be a name of letters"),
        ("methods.0.name", "../up", "methods[0].name must be a name of letters"),
        ("methods.0.name", "a\n", "methods[0].name must be text on one line"),
        ("methods.0.citation", "a\u2028b", "methods[0].citation must be text on one"),
        ("methods.0.citation", "\ud800", "methods[0].citation must be text on one"),
        ("methods.0.code.link", "javascript:x", "methods[0].code.link must be an add"),
        ("methods.0.code.link", "https://x)(y", "methods[0].code.link must be an add"),
        ("methods.0.settings_tried", 5, "settings_tried must be at most 4, the budget"),
        ("methods.0.worlds.drift", {}, "worlds.drift lacks chosen, validation, test"),
        ("methods.0.worlds.mixture", {"failed": "x"}, "worlds has mixture; the compar"),
        ("methods.0.worlds.label_skew.test", [0.5, 0.5], "test must have 3 entries, o"),
        ("methods.0.worlds.label_skew.test.1", 93.1, "test[1] must be at most 1 (an a"),
        ("methods.0.worlds.label_skew.test.1", -0.1, "test[1] must be at least 0 (an"),
        ("methods.0.worlds.label_skew.test.1", float("nan"), "number (an accuracy fro"),
        ("methods.0.worlds.label_skew.sent_mib", float("inf"), "sent_mib must be a nu"),
        ("methods.0.worlds.label_skew.test.1", True, "test[1] must be a number (an"),
        ("methods.0.worlds.label_skew.extra", 1, "has extra; only chosen, validation"),
        ("methods.0.worlds.drift.test", [1, 1, 1], "has test; only does_not_apply"),
        ("methods.0.worlds.label_skew.sent_mib", 10**400, "sent_mib must be at most"),
        (
            "comparison.num_clients",
            16.0,
            "num_clients must be a whole number; got 16.0",
        ),
        ("comparison.num_clients", 12, "num_clients must be a multiple of 8; got 12"),
        ("comparison.step_sizes", [1, 2, 3], "step_sizes must be an even number"),
        ("comparison.worlds", ["drift"] * 2, "comparison.worlds must be different"),
        ("comparison.worlds", ["moon"], "comparison.worlds[0] must be one of label_sk"),
    ],
)
def test_every_fault_is_told_with_its_place(place, value, line):
    document = copy.deepcopy(submission())
    *above, last = [int(p) if p.isdecimal() else p for p in place.split(".")]
    parent: Any = document
    for part in above:
        parent = parent[part]
    parent[last] = value
    assert any(line in found for found in faults(document)), faults(document)


def test_all_faults_are_told_at_once():
    document = submission(method(licence=7), method("b", authors=[]))
    found = faults(document)
    assert len(found) == 2 and "licence" in found[0] and "authors" in found[1]
    many = submission(method(authors=[0] * 100))
    assert faults(many)[-1] == "may have more that is wrong"


def taken(document):
    """Whether a submission is; then a board can be made and shown of it."""
    found = faults(document)
    assert all(isinstance(line, str) and "\n" not in line for line in found)
    assert all(len(line) < 1500 for line in found)
    if found:
        return False
    own = board.Board(
        document["comparison"], {m["name"]: m for m in document["methods"]}
    )
    table = standings.rows(own)
    every.markdown(table, own.comparison["worlds"])
    every.note(every.config_of(own.comparison))
    return True


@pytest.mark.long
def test_no_edit_of_a_file_is_an_error_of_the_program():
    """Each value in other forms, left out, renamed and twice."""
    document = submission()
    refused = accepted = 0
    for what, text in edits(document):
        try:
            changed = json.loads(text, object_pairs_hook=submissions._object)
        except ValueError as error:
            assert "twice" in what and "stands twice" in str(error)
            refused += 1
            continue
        if taken(changed):
            accepted += 1
        else:
            refused += 1
    # Texts may be others, and numbers within their ranges.
    assert refused > 3 * accepted > 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
PLACES = [*leaves(submission()), *containers(submission())]


@pytest.mark.long
@always(place=st.sampled_from(PLACES), value=JSON)
def test_anything_anywhere_is_taken_or_refused(place, value):
    document = copy.deepcopy(submission())
    parent: Any = document
    for part in place[:-1]:
        parent = parent[part]
    parent[place[-1]] = value
    taken(document)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "must be JSON"),
        (b"\xff\xfe", "must be JSON"),
        (b'{"schema": 1', "must be JSON"),
        (b"[" * 100_000, "must be JSON"),
        (b'{"schema": NaN}', "NaN is no number"),
        (b'{"schema": -Infinity}', "-Infinity is no number"),
        (b'{"schema": 1, "schema": 1}', "'schema' stands twice"),
        (b'{"schema": 1e999, "comparison": 0, "methods": 0}', "comparison must be an"),
        (b'{"schema": ' + b"9" * 5000 + b"}", "must be JSON"),
        (b" " * 2**20 + b"{}", "more than 1048576 bytes"),
        (b"[]", "the file must be an object"),
        (b"{}", "the file lacks schema, comparison, methods"),
    ],
)
def test_what_is_no_submission_is_refused(tmp_path, content, line):
    path = tmp_path / "sent.json"
    path.write_bytes(content)
    with pytest.raises(RefusedError) as refused:
        submissions.read(path)
    assert line in refused.value.lines[0]
    assert refused.value.lines[0].startswith(f"{path}: ")


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # Which to open would never end.
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(RefusedError, match="it is no file"):
            submissions.read(path)
    with pytest.raises(FileNotFoundError):
        submissions.read(tmp_path / "none.json")


def test_texts_of_others_are_neither_tags_nor_links():
    worlds = method()["worlds"] | {"drift": {"does_not_apply": "<b>[a](http://b)"}}
    own = method(
        citation="<script>x</script>", authors=["[a](http://b)"], worlds=worlds
    )
    found = board.Board(COMPARISON, {"mine": own})
    text = every.markdown(standings.rows(found), COMPARISON["worlds"])
    text += standings._who(found.methods)
    assert "<" not in text and "&lt;script&gt;" in text
    assert text.count("\\[a](http://b)") == text.count("[a](http://b)") == 2


class Submitting:
    """The command on a board of its own."""

    def __init__(self, folder: pathlib.Path, capsys) -> None:
        self.folder, self.capsys = folder, capsys

    def __call__(self, *words):
        """Exit status, and lines on what is wrong."""
        words = [str(word) for word in (*words, "--board", self.folder)]
        status = main(["compare", "submit", *words])
        out, err = self.capsys.readouterr()
        self.out = out
        return status, err.splitlines()

    @property
    def files(self):
        """What is on the board."""
        return {path.name: path.read_bytes() for path in self.folder.glob("*")}


@pytest.fixture
def submit(tmp_path, capsys, monkeypatch):
    save_no_figures(monkeypatch)
    return Submitting(tmp_path / "board", capsys)


def test_the_command_takes_refuses_and_replaces(tmp_path, submit):
    mine = written(tmp_path / "mine.json", submission())
    assert submit(mine, "--dry-run") == (0, []) and not submit.files
    assert "would write" in submit.out
    assert submit(mine) == (0, [])
    first = submit.files
    assert first.keys() == {"mine.json", "table.csv", "table.md"}
    assert submit(mine) == (0, []) and submit.files == first  # It is there already.
    assert submit() == (0, []) and submit.files == first  # Drawn again.
    other = written(tmp_path / "other.json", submission(method(test=SHARES[1])))
    status, lines = submit(other)
    assert status == 2 and "choose another name, or `--replace` it" in lines[0]
    assert submit.files == first
    assert submit(other, "--replace", "--json") == (0, [])
    row, _ = json.loads(submit.out)["rows"]
    assert row["accuracy"] == pytest.approx(100 * np.mean(SHARES[1]))
    assert submit.files["mine.json"] != first["mine.json"]


def test_nothing_is_taken_if_one_of_several_is_wrong(tmp_path, submit):
    good = written(tmp_path / "good.json", submission(method("good")))
    twice = written(tmp_path / "twice.json", submission(method("good")))
    bad = written(tmp_path / "bad.json", submission(method("bad", licence="")))
    status, lines = submit(good, bad, twice)
    assert status == 2 and not submit.files
    assert [line.split(": ")[1] for line in lines] == [str(bad), str(twice)]
    assert "licence must be of at least 1 letters" in lines[0]
    assert f"has good, which {good} has too" in lines[1]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"checksum": "ffff0000"}, 'checksum must be the same data, of "0123abcd"'),
        ({"num_rounds": 100}, "num_rounds must be 20, as all of this board; got 100"),
        ({"seed": 1}, "seed must be 0"),
        ({"error_rate": 0.1}, "error_rate must be 0.05"),
    ],
)
def test_another_comparison_needs_another_board(tmp_path, submit, changes, line):
    submit(written(tmp_path / "mine.json", submission()))
    before = submit.files
    other = written(tmp_path / "other.json", submission(method("other"), **changes))
    status, lines = submit(other)
    assert status == 2 and line in lines[0] and "a board of its own" in lines[1]
    assert submit.files == before
    submit.folder = tmp_path / "second"
    assert submit(other) == (0, [])


def test_a_board_that_somebody_changed_is_refused(tmp_path, submit):
    submit(written(tmp_path / "mine.json", submission()))
    for name, content, line in (
        ("renamed.json", submission(), "must hold renamed alone"),
        ("two.json", submission(method("two"), method("b")), "must hold two alone"),
        ("odd.json", {}, "the file lacks schema"),
        ("far.json", submission(method("far"), seed=3), "seed must be"),
    ):
        path = written(submit.folder / name, content)
        status, lines = submit()
        assert status == 2 and line in " ".join(lines), lines
        path.unlink()
    assert submit() == (0, [])


def test_an_empty_board_and_one_without_results_are_no_errors(tmp_path, submit):
    assert submit() == (0, []) and "no results yet" in submit.out
    lost = method(worlds={w: {"failed": "no"} for w in COMPARISON["worlds"]})
    assert submit(written(tmp_path / "lost.json", submission(lost))) == (0, [])
    assert "no results yet" in submit.out


def test_misuse_of_the_command_is_one_line(tmp_path, submit, capsys):
    status, lines = submit(tmp_path / "none.json")
    assert status == 2 and len(lines) == 1 and "No such file" in lines[0]
    assert main(["compare", "export", "--out", "worlds.csv"]) == 2
    assert "FILE.npz" in capsys.readouterr().err
    assert main(["compare", "export"]) == 2
    assert "--out" in capsys.readouterr().err


# Against reference


@pytest.mark.slow
def test_what_the_command_writes_is_its_own_table(tmp_path, capsys, monkeypatch):
    save_no_figures(monkeypatch)
    flags = ["--algorithms", "local", "ifca", "oracle", "--num-clients", "8"]
    flags += ["--num-rounds", "2", "--num-hidden", "4", "--num-trials", "2"]
    flags += ["--out", str(tmp_path)]
    assert main(["run", "compare.all", "--preset", "quick", *flags, "--json"]) == 0
    capsys.readouterr()
    words = [str(tmp_path / "results.json"), "--board", str(tmp_path / "board")]
    assert main(["compare", "submit", *words]) == 0
    key = lambda row: (row["world"], row["algorithm"])
    tables = [report.read_csv(tmp_path / f / "table.csv") for f in (".", "board")]
    ours, board_s = ({key(row): row for row in table} for table in tables)
    assert ours.keys() == board_s.keys() and len(ours) == 3 * 7
    for at, row in ours.items():
        for name in row.keys() & board_s[at].keys():
            is_unknown = isinstance(row[name], float) and np.isnan(row[name])
            assert board_s[at][name] == (None if is_unknown else row[name])
