"""The report: whole, the same again, resumed where it was left, and nothing lost."""

import dataclasses
import html
import json
import math
import re
import shutil
import warnings

import numpy as np
import pytest
import toy_theory
from matplotlib.figure import Figure
from toy_theory import ERRATA, QUICK, ROWS, build, every_page, faults, register, toy

from cfljax.algorithms import REGISTRY, ifca
from cfljax.cards import CARDS
from cfljax.report import Scale
from cfljax.statements import Points, Preset, Status, Verdict, run, site
from cfljax.statements.site import Series, plot, prepare
from theory import __main__ as command
from theory import registry, sources
from theory.report.algorithms import Argument, algorithm_pages, arguments


@pytest.fixture(autouse=True)
def toy_registry(monkeypatch):
    register(monkeypatch, *ROWS, errata=ERRATA)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder


def contents(folder, *, timeless: bool = False) -> dict[str, str]:
    """All files of a site; times may be taken out of them, and digests of these."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8")
        if timeless:
            text = re.sub(r'("seconds": |class="time">)[\d.e-]+', r"\g<1>0", text)
            text = re.sub(r'("digest": )"\w{64}"', r"\g<1>0", text)
        found[path.relative_to(folder).as_posix()] = text
    return found


def text_of(folder, page: str) -> str:
    """The text of a page without its tags, spaces made single."""
    text = (folder / page).read_text(encoding="utf-8")
    text = re.sub(r"</(td|th|dt|dd|figcaption|h1|h2|p)>", " ", text)
    return " ".join(re.sub(r"<[^>]*>", "", text).split())


@pytest.mark.long
def test_every_page_is_whole_and_every_link_resolves(folder):
    assert len(every_page(folder)) == len(ROWS) + 3 + len(algorithm_pages())
    assert faults(folder) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('href="errata.html"', 'href="erratum.html"', "erratum.html"),
        ('href="#main"', 'href="#nain"', "#nain"),
        ("assets/site.js", "https://example.org/site.js", "https://example.org"),
        ("</main>", "</div></main>", "</div> closes another tag"),
        ("</main>", "", "</body> closes another tag"),
        ('id="summary"', 'id="reading"', "#reading twice"),
        ("<main", '<img src="errata.html"><main', "a picture without a text"),
    ],
)
def test_faults_in_pages_are_seen(folder, tmp_path, old, new, fault):
    """Control: each fault is found."""
    copy = shutil.copytree(folder, tmp_path / "site")
    text = (copy / "index.html").read_text(encoding="utf-8")
    assert old in text
    (copy / "index.html").write_text(text.replace(old, new, 1), encoding="utf-8")
    assert any(fault in found for found in faults(copy))


def test_the_index_tells_every_verdict(folder):
    text = (folder / "index.html").read_text(encoding="utf-8")
    for row in ROWS:
        pattern = rf'(<tr role="row" data-text="{row.id} .*?</tr>)'
        (cells,) = re.findall(pattern, text, re.S)
        status = "inconclusive" if row.id == "toy.surprise" else row.expected.value
        assert f'<span class="badge {status}">{status}</span>' in cells
        assert ("data-surprise" in cells) == (row.id == "toy.surprise")
    plain = text_of(folder, "index.html")
    assert "7 of 8 statements came out as expected" in plain
    assert "c1 = 1.25" in plain and "1 234 567" in plain and "0.30" in plain


def test_a_statement_page_has_all_its_parts(folder):
    text = text_of(folder, "statements/toy.a.html")
    for part in (
        "violated as expected",
        "The claim as printed |θ1−θ1*|≤c1d/n′ &amp; more",
        "where toy: Lemma &lt;1&gt;",
        "Corrected in toy.a.corrected holds",
        "As printed it is false.",
        "drawn &lt;in&gt; a line &amp; &#39;quoted&#39;, n′=5",
        "α&lt;12",  # a fraction
        "c1&gt;0, unnamed",
        "toy.E1 A the statement is false",
        "python -m theory check toy.a --preset quick --seed 0",
        "error rate 1 × 10−6",
    ):
        assert part in text, part
    corrected = text_of(folder, "statements/toy.a.corrected.html")
    assert "Corrects toy.a violated" in corrected
    assert "toy.asm: n′≥4logm 90 ≥ 30 60 3 yes" in corrected
    assert "toy.asm: x1≤1 2 ≤ 1 −1 0.5 no" in corrected
    assert "nothing to draw" in text_of(folder, "statements/toy.none.html")
    broken = text_of(folder, "statements/toy.surprise.html")
    assert "where holds was expected" in broken and "ZeroDivisionError" in broken


def test_logarithms_are_shown_as_what_they_stand_for(folder):
    text = text_of(folder, "statements/toy.powers.html")
    assert re.search(r"reported point [\d.]+ × 10−2\d ", text)


@pytest.mark.parametrize(
    ("place", "is_printed"),
    [("Released code, `f`", False), ("not in the paper: f", False), ("Lemma 1", True)],
)
def test_what_is_read_off_released_code_is_no_claim_as_printed(
    tmp_path, place, is_printed
):
    build(tmp_path, (dataclasses.replace(ROWS[4], place=place),))
    text = text_of(tmp_path, "statements/toy.none.html")
    assert "The claim" in text and ("as printed" in text) == is_printed


def test_errata_show_their_evidence(folder):
    text = text_of(folder, "errata.html")
    shown = "A toy.E1 Lemma 1 the statement is false printed |x|≤y instead |x|≤2y"
    assert shown in text
    assert "toy.a violated toy.a.corrected holds" in text
    assert "toy.elsewhere not in this report" in text


@pytest.mark.long
def test_errata_are_those_of_the_rows_shown(tmp_path, capsys, monkeypatch):
    other = dataclasses.replace(ERRATA[0], id="toy.E2", statements=("toy.powers",))
    register(monkeypatch, *ROWS, errata=(*ERRATA, other))
    for names, shown in (
        (("toy.a", "toy.powers"), ["toy.E1", "toy.E2"]),
        (("toy.powers",), ["toy.E2"]),
        (("toy.none",), []),
    ):
        out = tmp_path / names[-1]
        command.main(["report", *names, "--out", str(out)])
        page = (out / "errata.html").read_text("utf-8")
        assert re.findall(r'<article class="erratum" id="(.*?)"', page) == shown
        index = (out / "index.html").read_text("utf-8")
        counted = re.findall(r'errata.html#paper-toy">(\d+)</a>', index)
        assert counted == [str(len(shown))] * bool(shown)


@pytest.mark.long
def test_the_same_bytes_again(folder, tmp_path):
    first = contents(folder)
    build(folder)
    assert contents(folder, timeless=True).keys() == first.keys()
    build(tmp_path)
    first, second = (contents(f, timeless=True) for f in (folder, tmp_path))
    assert first == second
    build(tmp_path / "other", ROWS[:1], preset=Preset(seed=1))
    other = contents(tmp_path / "other", timeless=True)
    name = "data/toy.a.json"
    assert json.loads(first[name])["verdict"] != json.loads(other[name])["verdict"]
    assert first["plots/toy.a.svg"] != other["plots/toy.a.svg"]


@pytest.mark.slow
def test_outcomes_are_used_again_only_for_the_same_check(tmp_path, monkeypatch):
    good = (ROWS[0], ROWS[2], ROWS[4])

    def computed(**options) -> list[str]:
        records = build(tmp_path, good, **options)
        return [r.outcome.statement.id for r in records if r.is_new]

    everything = [row.id for row in good]
    assert computed() == everything
    assert computed() == []
    assert computed(preset=Preset(seed=1)) == everything
    assert computed(preset=Preset("full", 1)) == everything
    (tmp_path / "data" / "toy.a.json").write_text("{")
    assert computed(preset=Preset("full", 1)) == ["toy.a"]
    (tmp_path / "data" / "toy.band.json").unlink()
    assert computed(preset=Preset("full", 1)) == ["toy.band"]
    monkeypatch.setattr(toy_theory, "identity", lambda: "other")
    assert computed(preset=Preset("full", 1)) == everything


def test_what_is_read_is_what_was_written(tmp_path):
    for row in ROWS[:6]:
        ((written,), (read,)) = (
            list(site.kept([row], Preset(), tmp_path, sources="x")) for _ in range(2)
        )
        assert written.is_new and not read.is_new
        # As text, because not a number is not equal to itself.
        assert repr(written._replace(is_new=False)) == repr(read)


def test_a_check_that_raised_is_run_again(tmp_path):
    for _ in range(2):
        (record,) = site.kept([ROWS[6]], Preset(), tmp_path, sources="x")
        assert record.is_new and not record.outcome.as_expected


def test_the_fingerprint_sees_the_source(monkeypatch, tmp_path):
    packages = [tmp_path / "cfljax", tmp_path / "theory"]
    for folder in packages:
        folder.mkdir()
    monkeypatch.setattr(sources, "_PACKAGES", packages)
    found = []
    for text in ("x = 1", "x = 2"):
        (tmp_path / "theory" / "a.py").write_text(text)
        found += [sources.fingerprint.__wrapped__() for _ in range(2)]
    assert found[0] == found[1] != found[2] == found[3]


@pytest.mark.long
def test_an_interrupted_report_goes_on(tmp_path, monkeypatch, capsys):
    def interrupted(preset):
        raise KeyboardInterrupt

    rows = (*ROWS[:2], dataclasses.replace(ROWS[2], check=interrupted), ROWS[3])
    register(monkeypatch, *rows, errata=ERRATA)
    arguments = ["report", "--out", str(tmp_path / "site")]
    assert command.main(arguments) == 130
    error = capsys.readouterr().err
    assert error == "stopped; the same command goes on\n"
    assert len(list((tmp_path / "site" / "data").iterdir())) == 2
    register(monkeypatch, *ROWS[:4], errata=ERRATA)
    assert command.main(arguments) == 0
    assert "2 computed, 2 kept from before" in capsys.readouterr().out


@pytest.mark.long
def test_only_what_a_report_wrote_is_removed(tmp_path):
    build(tmp_path)
    foreign = [tmp_path / "statements" / "mine.html", tmp_path / "data" / "mine.json"]
    for path in foreign:
        path.write_text("mine")
    build(tmp_path, ROWS[:3], known=ROWS[:5])
    for row in ROWS:
        kept, drawn = row in ROWS[:3], row in ROWS[:3]
        assert (tmp_path / f"statements/{row.id}.html").exists() == kept
        assert (tmp_path / f"plots/{row.id}.svg").exists() == drawn
        known = row in ROWS[:5]
        assert (tmp_path / f"data/{row.id}.json").exists() == known
    assert all(path.read_text() == "mine" for path in foreign)


@pytest.mark.parametrize("where", ["file", "file/below", "foreign"])
def test_a_folder_that_cannot_be_used_is_one_line(tmp_path, capsys, where):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "index.html").write_text("mine")
    assert command.main(["report", "--out", str(tmp_path / where)]) == 2
    output = capsys.readouterr()
    assert not output.out and output.err.count("\n") == 1
    assert output.err.startswith(f"error: cannot use {tmp_path}")
    assert (tmp_path / "foreign" / "index.html").read_text() == "mine"


@pytest.mark.long
def test_the_command_reports(tmp_path, capsys):
    arguments = ["report", "--paper", "toy", "--out", str(tmp_path)]
    assert command.main(arguments) == 1  # one row raises
    assert f"report: {tmp_path / 'index.html'}" in capsys.readouterr().out
    assert command.main([*arguments, "toy.a", "--json", "--seed", "3"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["report"] == str(tmp_path / "index.html")
    assert document["computed"] == 2 and document["as_expected"]
    assert [row["id"] for row in document["statements"]] == ["toy.a", "toy.a.corrected"]
    assert document["statements"][1]["margins"][1]["holds"] is False
    assert document["statements"][0]["verdict"]["slack"] == 0.3
    assert faults(tmp_path) == []


def test_a_surprise_is_told_with_its_detail(tmp_path, monkeypatch, capsys):
    odd = toy("toy.odd", status=Status.INCONCLUSIVE)
    register(monkeypatch, odd, errata=ERRATA)
    assert command.main(["report", "--out", str(tmp_path)]) == 1
    output = capsys.readouterr().out
    assert "toy.odd: inconclusive where holds was expected" in output
    assert "(drawn <in> a line" in output


# The pages of algorithms, against cards and docstrings.


def words(text: str) -> set[str]:
    """Those of four letters or more, which typesetting leaves as they are."""
    return set(re.findall(r"[A-Za-z]{4,}", text))


def test_every_algorithm_has_a_page_with_all_its_parts(folder):
    names = [one.name for one in algorithm_pages()]
    assert names == list(REGISTRY) and sorted(names) == sorted(CARDS)
    for one in algorithm_pages():
        text = html.unescape(text_of(folder, f"algorithms/{one.name}.html"))
        assert one.card.title in text and one.card.citation in text
        assert f"import {one.name} " in text
        for part in ("what", "cost", "messages", "fails", "newcomers", "variants"):
            # Greek letters are set, and are not words any more.
            missing = words(getattr(one.card, part)) - words(text)
            assert missing <= {"alpha", "gamma"}, part
        for argument in one.arguments:
            shown = argument.name
            if argument.default is not None:
                shown += f" = {argument.default}"
            assert shown in text


def test_the_index_has_what_a_round_costs(folder):
    text = html.unescape(text_of(folder, "algorithms.html"))
    for one in algorithm_pages():
        numbers = [one.passes.forward, one.passes.backward]
        shown = " ".join(f"{number:g}" for number in numbers)
        assert re.search(rf"{one.name} .*? {shown} {one.ratio:.2f}", text)


def test_work_is_that_of_fedavg_and_more():
    """By hand, for 40 clients, 4 clusters and 10 steps."""
    ratios = {one.name: one.ratio for one in algorithm_pages()}
    assert ratios["fedavg"] == 1
    assert ratios["ifca"] == pytest.approx((14 + 20) / (11 + 20))
    assert ratios["federated_clustering"] == pytest.approx(120 / 31)


def test_arguments_are_read_from_the_docstring():
    found = arguments(ifca)
    assert [one.name for one in found][:3] == ["task", "num_clusters", "step_size"]
    number, option = found[1], found[3]
    assert number.default is None
    assert number.text.startswith("number of models k, at least 1. With 1 this is")
    assert option.default == "None" and option.text.startswith('"gradient" (I) or')


def test_defaults_are_shown_as_they_are_written():
    def one(plain: int, function: object = max, text: str = "a") -> None:
        """Something.

        Args:
          plain: of one line.
          function: of two
            lines.
          text: of one.

        Raises:
          ValueError: never.
        """

    assert arguments(one) == (
        Argument("plain", None, "of one line."),
        Argument("function", "builtins.max", "of two lines."),
        Argument("text", "'a'", "of one."),
    )


@pytest.mark.parametrize("described_as", ["other: no.", "plain: yes.\n  other: no."])
def test_a_docstring_of_other_arguments_is_refused(described_as):
    """Control: what is not described, and what is not there."""

    def one(plain: int) -> None:
        """To be replaced."""

    one.__doc__ = f"Something.\n\nArgs:\n  {described_as}\n"
    with pytest.raises(ValueError, match="other"):
        arguments(one)


def test_statements_are_those_below_a_card_s_beginnings():
    (clove,) = (one for one in algorithm_pages() if one.name == "clove")
    ids = ["clove.thm41", "clove.thm41.corrected", "clove.thm412", "ifca.thm1"]
    found = clove.statements(ids)
    assert found[:2] == ids[:2] and not set(found) & set(ids[2:])
    assert "clove.thm42" in found  # None of the report's: shown as such.


@pytest.mark.slow
def test_cards_name_statements_that_there_are(monkeypatch):
    monkeypatch.undo()  # of all papers
    ids = [row.id for row in registry.listed()]
    for name, card in CARDS.items():
        for start in card.statements:
            assert any(registry.is_under(one, start) for one in ids), (name, start)


# Plots and formulas, against what was measured.


def series(points: Points, status: Status = Status.HOLDS, **fields) -> Series:
    """The drawable points of a verdict with these points."""
    verdict = Verdict("toy.a", status, 0.5, (0.0, 1.0), 1e-6, 10, 0.1, points=points)
    found = prepare(verdict, **fields)
    assert found is not None
    return found


def line(bounds, low, high=None, **fields) -> Points:
    """Points from lists."""
    bounds, low, high = (np.array(part, float) for part in (bounds, low, high or low))
    return Points(bounds, low, high, **fields)


def drawn(figure: Figure, name: str) -> np.ndarray:
    """`[points, 2]`, where the legend's entry stands in the axes."""
    (axes,) = figure.axes
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert name in names, names
    wanted = {"truth": "o", "truth, violating": "X"}[name]
    places = [
        artist.get_xydata()
        for artist in axes.get_lines()
        if artist.get_marker() == wanted and artist.get_color() not in ("#7f7f7f",)
        if artist.get_markerfacecolor() != "none"
    ]
    return np.concatenate(places)


def test_violations_are_those_of_the_points():
    points = line([1, 2, 3, 4], [0.5, 2.5, 3.0, 3.0], [0.7, 2.6, 3.2, 5.0])
    assert series(points, Status.VIOLATED).violated.tolist() == [0, 1, 0, 0]
    assert not series(points, Status.HOLDS).violated.any()
    equal = points._replace(kind="equal")
    assert series(equal, Status.VIOLATED).violated.tolist() == [1, 1, 0, 0]
    band = points._replace(kind="band", upper=points.bounds + 1)
    assert series(band, Status.VIOLATED).violated.tolist() == [1, 0, 0, 0]


def test_a_violation_too_small_to_see_is_still_marked():
    points = line([1.0, 1.0], [1.0 - 1e-13, 1.0 + 1e-13])
    assert series(points, Status.VIOLATED).violated.tolist() == [0, 1]


def test_logarithms_become_decades():
    points = line([-np.log(1000)], [-np.log(10**6)], scale="log")
    found = series(points)
    np.testing.assert_allclose([found.bounds[0], found.low[0]], [-3, -6], rtol=1e-14)


def test_points_without_a_place_are_counted():
    nan, inf = math.nan, math.inf
    points = line([1, nan, inf, 2, 3], [0, 0, 0, nan, -inf], [1, 1, 1, nan, 3])
    found = series(points)
    assert found.bounds.tolist() == [1, 3] and found.undrawable == 3
    assert found.truth.tolist() == [0.5, 3.0]  # the end that is finite
    verdict = Verdict("toy.a", Status.HOLDS, 0.5, (0.0, 1.0), 0.0, 10, 0.1)
    assert prepare(verdict) is None
    undefined = line([1.0], [nan], [nan])
    assert prepare(dataclasses.replace(verdict, points=undefined)) is None
    band = line([-inf], [1.0], kind="band", upper=np.array([2.0]))
    assert series(band).bounds.tolist() == [-inf]


def test_few_of_many_points_are_those_that_tell_most():
    count = 20_000
    bounds = np.linspace(1, 1000, count)
    low = 0.1 * bounds
    low[[17, 9000]] = 3 * bounds[[17, 9000]]  # violations
    low[1234] = bounds[1234]  # the tightest of the others
    points = Points(bounds, low, low)
    numbers = (bounds[5], (low[5], low[5]), 0.0, count, 0.0)
    verdict = Verdict("toy.a", Status.VIOLATED, *numbers, points=points)
    found = prepare(verdict)
    assert found is not None and len(found.bounds) == 400
    assert found.total == count and found.undrawable == 0
    for index in (17, 9000, 1234, 5):
        assert bounds[index] in found.bounds
    assert found.violated.sum() == 2
    assert found.bounds[found.reported] == bounds[5]
    assert np.all(np.diff(found.bounds) > 0)
    gaps = np.diff(np.unique(found.bounds))
    assert gaps.max() < 10 and found.bounds[-1] == 1000  # even over the rest


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.0, 5.0], "linear"),
        ([1.0, 50.0], "log"),
        ([0.0, 50.0], "linear"),
        ([-1.0, 1.0, 1.5], "linear"),
        ([-1e5, 1e-3, 1.0, 2.0, 1e5], "symlog"),
    ],
)
def test_scales_follow_the_numbers(values, kind):
    assert plot.choose_scale([series(line(values, values))]).kind == kind


@pytest.mark.parametrize(("lowest", "kind"), [(-40.0, "linear"), (-1e6, "symlog")])
def test_scales_of_decades(lowest, kind):
    scale = plot.choose_scale([series(line([lowest, -1], [lowest, -1], scale="log"))])
    assert scale.kind == kind and scale.powers


@pytest.mark.parametrize("kind", ["linear", "log", "symlog"])
def test_scales_lead_there_and_back(kind):
    scale = Scale(kind, threshold=0.1)
    values = np.array([1e-3, 0.05, 0.1, 3.0, 1e4])
    values = values if kind == "log" else np.concatenate([-values[::-1], [0], values])
    places = scale.place(values)
    assert np.all(np.diff(places) > 0)
    np.testing.assert_allclose(scale.number(places), values, rtol=1e-12)
    low, high = scale.limits(values)
    assert low < values[0] and values[-1] < high


@pytest.mark.parametrize("scale", ["number", "log"])
@pytest.mark.parametrize("status", [Status.HOLDS, Status.VIOLATED])
def test_a_bound_is_drawn_on_its_side_of_the_diagonal(status, scale):
    row = toy(status=status, expected=status, scale=scale)
    check, control = prepare(row.check(QUICK)), prepare(row.control(QUICK))
    assert check is not None
    drawing = plot.draw(check, control)
    assert drawing.layout == "diagonal" and drawing.control_drawn
    places = drawn(drawing.figure, "truth")
    assert np.all(places[:, 1] < places[:, 0])
    assert len(places) == 7 - (status is Status.VIOLATED)
    if status is Status.VIOLATED:
        ((claim, truth),) = drawn(drawing.figure, "truth, violating")
        assert truth > claim


def test_other_claims_are_drawn_in_a_row():
    rows = (toy(kind="band"), toy(kind="equal", count=1), toy(count=2))
    for row in rows:
        check = prepare(row.check(QUICK))
        assert check is not None
        drawing = plot.draw(check, prepare(row.control(QUICK)))
        assert drawing.layout == "row"
        places = drawn(drawing.figure, "truth")
        np.testing.assert_allclose(places[:, 0], np.arange(len(check.bounds)))
        np.testing.assert_allclose(places[:, 1], check.truth)


def test_a_control_of_another_kind_is_left_out():
    check, control = (
        prepare(toy(kind=kind).check(QUICK)) for kind in ("bound", "equal")
    )
    assert check is not None
    assert not plot.draw(check, control).control_drawn
    assert not plot.draw(check, None).control_drawn


@pytest.mark.parametrize(
    "points",
    [
        line([math.inf, math.inf], [1.0, 2.0], [1.5, math.inf]),
        line([math.nan, math.nan], [1.0, 2.0], [1.5, 3.0]),
        line([-math.inf] * 2, [1, 2], [1, 3], kind="band", upper=np.full(2, math.inf)),
    ],
)
@pytest.mark.parametrize("status", [Status.VACUOUS, Status.VIOLATED])
def test_where_nothing_finite_is_claimed_the_truth_is_drawn_alone(
    tmp_path, points, status
):
    found = series(points, status)
    assert not found.claims.any() and not found.violated.any() and not found.undrawable
    drawing = plot.draw(found, None)
    assert drawing.layout == "row"
    np.testing.assert_allclose(drawn(drawing.figure, "truth")[:, 1], found.truth)
    assert drawing.figure.axes[0].get_ylabel() == "what is true"
    verdict = Verdict("toy.a", status, 0.5, (0.0, 1.0), 1e-6, 10, 0.1, points=points)
    row = dataclasses.replace(toy(), check=lambda preset: verdict)
    page = site.write_page(run(row), tmp_path / "a.html").read_text("utf-8")
    assert "What is true at each point; none has a finite number" in page


def test_a_claim_among_others_hides_points_without_one():
    """Control of the above: what has no place beside the others is counted."""
    found = series(line([math.inf, 1.0], [0.5, 0.5]))
    assert found.claims.all() and found.undrawable == 1


AWKWARD = {
    "no claim, decades": line([math.nan], [-2e7], scale="log"),
    "no claim, both signs": line([math.inf, math.inf], [-1e-9, 1e9]),
    "infinite intervals": line([1, 2, 3], [-math.inf, 1, 1], [1, math.inf, 2]),
    "nothing seen": line([0.1, 1e-3, 1e-6], [0, 0, 0], [1e-3, 1e-5, 1e-7]),
    "all alike": line([0.0, 0.0], [0.0, 0.0]),
    "one point": line([3.0], [2.0]),
    "both signs": line([-1e4, 1e-3, 1, 1, 1e5], [-1e5, 1e-4, 1, 0, 1]),
    "half a band": line([1], [2], kind="band", upper=np.array([math.inf])),
    "deep decades": line([-1e7, -5.0, -1.0], [-2e7, -6.0, -1.0], scale="log"),
    "one decade": line([-1.0, -1.1, -1.2], [-1.3, -1.4, -1.5], scale="log"),
    "tiny": line([1e-300, 2e-300, 3e-300], [1e-301, 1e-300, 1e-300]),
    "huge": line([1e300, 1e305, 2e305], [1e299, 1e300, 1e300]),
}


@pytest.mark.long
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_points_can_be_drawn(name):
    for status in (Status.HOLDS, Status.VIOLATED):
        found = series(AWKWARD[name], status)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            drawing = plot.draw(found, found)
            text = plot.svg(drawing.figure)
        assert "<svg" in text and "nan" not in text


def test_numbers_too_small_to_be_normal_have_a_place():
    points = line([1.0, 1e-310], [1e-322, 1e-320])
    assert plot.choose_scale([series(points)]).kind == "log"
    low, high = Scale("log").limits(points.low)
    assert np.finfo(float).tiny <= low < high
    plot.draw(series(points), None).figure.canvas.draw()
