"""The registry, the runner and the command line."""

import dataclasses
import json
import math

import jaxtyping
import numpy as np
import pytest
from rich.text import Text

from theory import __main__ as command
from theory import display, registry, runner
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict


def verdict(status: Status) -> Verdict:
    return Verdict("toy.a", status, 0.5, (0.0, math.inf), 1e-6, 10, 0.1)


def toy(
    name: str = "toy.a",
    *,
    found: Status = Status.HOLDS,
    expected: Status = Status.HOLDS,
    control: Status = Status.VIOLATED,
) -> Statement:
    return Statement(
        id=name,
        paper="toy",
        place="Lemma [1]",
        text="one [bold]is[/bold] at most two " * 8,
        check=lambda preset: verdict(found),
        control=lambda preset: verdict(control),
        expected=expected,
    )


def broken() -> Statement:
    def check(preset: Preset) -> Verdict:
        raise ZeroDivisionError("of a kind")

    return dataclasses.replace(toy("toy.broken"), check=check)


@pytest.fixture
def with_registry(monkeypatch):
    def replace(*statements: Statement) -> None:
        monkeypatch.setattr(registry, "all_statements", lambda: statements)

    return replace


def test_ids_are_unique_and_rows_complete():
    rows = registry.all_statements()
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert row.place and row.text and row.preconditions, row.id
        if row.expected is Status.VIOLATED:
            assert f"{row.id}.corrected" in {other.id for other in rows}, row.id


def test_a_row_must_name_its_paper():
    with pytest.raises(ValueError, match=r"^`id`"):
        dataclasses.replace(toy(), id="ifca.lem1")


def test_selection_goes_down_the_dots():
    def ids(*names: str, paper: str | None = None) -> list[str]:
        return [row.id for row in registry.select(names, paper=paper)]

    lemma = ["bound", "sharp", "stronger", "union"]
    assert ids("ifca.lem1") == [f"ifca.lem1.{part}" for part in lemma]
    assert ids("ifca.eq2") == ["ifca.eq2", "ifca.eq2.corrected"]
    assert ids("ifca.eq2.corrected") == ["ifca.eq2.corrected"]
    assert (
        ids("ifca.eq2", "ifca")
        == ids(paper="ifca")
        == [name for name in ids() if name.startswith("ifca.")]
    )
    for wrong in ("ifca.lem", "ifca.eq", "", "ifca."):
        with pytest.raises(KeyError):
            registry.select([wrong])
    with pytest.raises(KeyError):
        registry.select(paper="nobody")


def test_nearest_names_resemble():
    assert registry.nearest("ifca.lemma1")[0] == "ifca.lem1"
    assert len(registry.nearest("zzz")) == 3


def test_presets_draw_from_separate_streams():
    def draw(preset: Preset, *stream) -> float:
        return float(preset.generator(*stream).uniform())

    draws = [
        draw(Preset(seed=seed), name, *indices)
        for seed in (0, 1)
        for name in ("a", "b")
        for indices in ((), (0,), (1,), (0, 1))
    ]
    assert len(set(draws)) == len(draws)
    assert draw(Preset(seed=3), "a", 2) == draw(Preset("full", 3), "a", 2)
    with pytest.raises(ValueError, match=r"^`seed`"):
        Preset(seed=-1)
    with pytest.raises((ValueError, jaxtyping.TypeCheckError)):
        dataclasses.replace(Preset(), name="slow")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (toy(), 0),
        (toy(found=Status.VIOLATED, expected=Status.VIOLATED), 0),
        (toy(found=Status.VACUOUS, expected=Status.VACUOUS), 0),
        (toy(found=Status.INCONCLUSIVE), 1),
        (toy(found=Status.VIOLATED), 1),
        (toy(expected=Status.VIOLATED), 1),
        (toy(control=Status.HOLDS), 1),
        (toy(control=Status.INCONCLUSIVE), 1),
        (broken(), 1),
    ],
)
def test_exit_status_tells_surprises(with_registry, capsys, row, status):
    with_registry(toy("toy.first"), row)
    assert command.main(["check"]) == status
    assert command.main(["check", "--json"]) == status
    assert "Traceback" not in capsys.readouterr().err


def test_a_broken_check_is_recorded_and_the_others_run():
    first, last = runner.run([broken(), toy()], Preset())
    assert first.verdict.status is Status.INCONCLUSIVE
    assert "ZeroDivisionError" in first.verdict.detail
    assert "of a kind" in first.verdict.detail
    assert last.as_expected and last.verdict.seconds >= 0


def test_json_is_one_document_without_gaps(with_registry, capsys):
    with_registry(toy(), broken())
    assert command.main(["check", "--json", "--seed", "5"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["seed"] == 5 and document["preset"] == "quick"
    assert not document["as_expected"]
    good, bad = document["statements"]
    assert good["id"] == "toy.a" and good["as_expected"]
    assert good["verdict"]["interval"] == [0.0, None]
    assert bad["verdict"]["bound"] is None
    assert command.main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["statements"]
    assert [row["expected"] for row in rows] == ["holds", "holds"]


def test_tables_are_not_cut_when_piped(with_registry, capsys):
    with_registry(toy())
    assert command.main(["list"]) == 0
    listed = capsys.readouterr().out
    assert "one [bold]is[/bold] at most two " * 7 in listed and "Lemma [1]" in listed
    assert command.main(["check"]) == 0
    checked = capsys.readouterr().out
    assert "[0, inf]" in checked and "1 of 1 as expected" in checked


@pytest.mark.parametrize("width", [70, 100, 300])
def test_narrow_terminals_get_fewer_columns_uncut(
    with_registry, capsys, monkeypatch, width
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    with_registry(toy(), toy("toy.with.a.longer.name"))
    assert command.main(["check"]) == 0
    output = capsys.readouterr().out
    lines = [Text.from_ansi(line).plain for line in output.splitlines()]
    assert max(map(len, lines)) <= width
    assert any(line.startswith("toy.with.a.longer.name  holds") for line in lines)
    assert ("more columns" in output) == (width < 300)
    assert ("[0, inf]" in output) == (width >= 100)


def test_help_has_examples(capsys):
    for arguments in (["--help"], ["list", "--help"], ["check", "--help"]):
        assert command.main(arguments) == 0
        assert "python -m theory check" in capsys.readouterr().out


def test_progress_is_silent_without_a_terminal(capsys):
    with display.LateProgress() as progress:
        progress.advance(progress.add_task("checking", total=2))
    output = capsys.readouterr()
    assert not output.err and not output.out


def test_progress_appears_late(monkeypatch):
    progress = display.LateProgress()
    progress.add_task("checking", total=2)
    assert not list(progress.get_renderables())
    monkeypatch.setattr(progress, "delay", -1.0)
    assert list(progress.get_renderables())


def test_seeds_change_the_draws_and_nothing_else():
    row = registry.select(["ifca.eq2.corrected"])[0]
    first, again, other = (row.check(Preset(seed=seed)) for seed in (0, 0, 1))
    assert first == again
    assert first.status is other.status is Status.HOLDS
    assert not np.isclose(first.bound, other.bound, rtol=1e-12)
