"""The experiments' command line: what it writes, and one clear line for bad input."""

import ast
import csv
import dataclasses
import json
import pathlib
import re
import string
import subprocess
import sys
import types

import pytest
from toy_experiments import retyped, save_no_figures

from cfljax import report
from cfljax.command import parse
from cfljax.report import read_csv
from experiments import costs, flags, kept, registry
from experiments.__main__ import PROGRAM, main, plain
from experiments.arguments import configure
from experiments.commands import usual_folder
from experiments.ifca import fig3
from experiments.jobs import share_summary
from experiments.registry import BENCHMARKS, EXPERIMENTS, ORDER, PRESETS, Entry, read
from experiments.study import settings

ROOT = pathlib.Path(__file__).resolve().parents[1]
SAFE = {*string.ascii_letters, *string.digits, *"_.+-="}
TINY = [
    *("--num-features", "5", "--num-clients", "4", "--num-samples", "10"),
    *("--separation", "1", "2", "--noise", "0.1", "--num-trials", "3"),
    *("--num-restarts", "2", "--num-rounds", "5"),
]


@pytest.fixture
def command(tmp_path, capsys):
    """Runs a tiny panel with changes; returns exit status, stdout and stderr."""

    def run(*changes, out=tmp_path / "out", experiment="ifca.fig3a", tiny=TINY):
        words = retyped(["--out", str(out), *tiny], changes)
        status = main(["run", experiment, *words])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def replace_main(monkeypatch):
    """Once called, all experiments do something else."""
    load = Entry.load

    def replace(function):
        def other(entry):
            return types.SimpleNamespace(preset=load(entry).preset, main=function)

        monkeypatch.setattr(Entry, "load", other)

    return replace


def is_one_line(err, message=""):
    return err.startswith("error: ") and err.count("\n") == 1 and message in err


# Against itself: tables, figures, listing, help


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ((), "quick"),
        (("--num-trials", "2"), "quick"),  # As the preset has it.
        (
            ("--num-trials", "3", "--datasets", "mnist", "cifar10"),
            "quick-datasets=mnist+cifar10-num_trials=3",
        ),
    ],
)
def test_a_changed_setting_has_a_folder_that_names_it(
    replace_main, monkeypatch, tmp_path, words, name
):
    monkeypatch.chdir(tmp_path)
    folders = []

    def keep(config, options):
        del config
        folders.append(options.out)
        return {"headline": "", "files": []}

    replace_main(keep)
    assert main(["run", "clove.table1", *words]) == 0
    assert folders == [pathlib.Path("results", "clove.table1", name)]


def test_pictures_are_drawn_as_they_are_asked_for(command, replace_main):
    seen = []

    def look(config, options):
        del config, options
        seen.append(report.look())
        return {"headline": "", "files": []}

    replace_main(look)
    asked = ["--formats", "pdf", "--width", "3.5", "--font-size=8", "--caption"]
    assert command(*asked, tiny=[])[0] == command(tiny=[])[0] == 0
    assert seen == [report.Look(("pdf",), 3.5, 8.0, True), report.Look()]


@pytest.mark.parametrize("flag", ["--width", "--font-size"])
def test_a_picture_that_cannot_be_is_refused_at_once(command, replace_main, flag):
    replace_main(None)
    name = flag[2:].replace("-", "_")
    message = f"error: `{name}` must be positive, got 0.0.\n"
    assert command(f"{flag}=0", tiny=[]) == (2, "", message)


def test_names_of_folders_are_short_and_safe_and_differ():
    entry = EXPERIMENTS["clove.table1"]
    quick = entry.load().preset("quick")
    names = []
    for last in (200, 201):
        sizes = (*range(100, 160), last)
        other = dataclasses.replace(quick, num_samples=sizes, num_test_samples=sizes)
        names.append(usual_folder(entry, "quick", other).name)
    assert names[0] != names[1]
    assert all(len(name) <= 120 and set(name) <= SAFE for name in names)


@pytest.mark.long
def test_a_panel_writes_its_table_and_figures(command, tmp_path):
    status, out, _ = command("--convention", "reference", "paper")
    assert status == 0
    assert "/3" in out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"table.csv", "config.json", "heatmap.svg", "curves.png"} <= names
    rows = read_csv(tmp_path / "out" / "table.csv")
    assert [row["convention"] for row in rows] == 2 * ["reference"] + 2 * ["paper"]
    needed = {"convention", "separation", "noise", "clients", "samples", "trials"}
    assert needed | {"successes", "low", "high"} <= set(rows[0])
    assert all(row["low"] <= row["successes"] / 3 <= row["high"] for row in rows)


@pytest.mark.long
def test_results_say_which_runs_computed_them(command, tmp_path, monkeypatch):
    """Another command that reads the same store names the run that computed, and both
    say how they are made again, without a path of the machine."""
    save_no_figures(monkeypatch)
    store = str(tmp_path / "common")
    seed = ("--seed", "7", "--no-law")
    assert command(*seed, "--store", store)[0] == 0
    more = ("--store", store, "--precision", "1")
    status, out, _ = command(*seed, *more, out=tmp_path / "other")
    assert status == 0 and "provenance.json" in out
    files = [tmp_path / name / "provenance.json" for name in ("out", "other")]
    first, other = (json.loads(file.read_text())["runs"] for file in files)
    assert len(first) == len(other) == 2 and first[0] == other[0]
    assert first[0]["blocks"] == 2 and {"commit", "jax", "cores"} <= set(first[0])
    words = first[1]["command"].split()
    assert words[:5] == ["python", "-m", "experiments", "run", "ifca.fig3a"]
    assert (first[1]["preset"], first[1]["experiment"]) == ("quick", "ifca.fig3a")
    assert other[1]["command"] == first[1]["command"] + " --precision 1"
    again = configure(parse(PROGRAM, words[3:]))
    assert again == configure(parse(PROGRAM, ["run", "ifca.fig3a", *TINY, *seed]))
    assert str(tmp_path) not in "".join(file.read_text() for file in files)


@pytest.mark.long
def test_a_worker_writes_no_provenance(command, tmp_path):
    assert command("--shard", "1/2")[0] == 0
    assert not (tmp_path / "out" / "provenance.json").exists()


@pytest.mark.long
def test_json_is_one_document_and_a_second_run_is_the_same(command, monkeypatch):
    save_no_figures(monkeypatch)
    first = json.loads(command("--json")[1])
    again = json.loads(command("--json")[1])
    assert first["rows"] == again["rows"]
    assert len(first["rows"]) == 2


@pytest.mark.slow
def test_chunks_do_not_change_a_table(command, tmp_path):
    command("--chunk", "1", out=tmp_path / "one")
    command("--chunk", "3", out=tmp_path / "three")
    texts = [(tmp_path / name / "table.csv").read_bytes() for name in ("one", "three")]
    assert texts[0] == texts[1]


@pytest.mark.long
def test_an_interruption_resumes(command, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    save_no_figures(monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr("cfljax.engine.sweep", interrupt)
        status, _, err = command()
    assert status == 130
    assert "resume" in err
    assert command()[0] == 0


def test_listing(capsys):
    """By paper, with the same in both forms."""
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["list", "--json"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert both["experiments"]["ifca.fig3d"].endswith("k = 4")
    at = [lines.index(f"{title}:") for title in registry.PAPERS.values()]
    assert at == sorted(at)
    for kind in ("experiments", "benchmarks"):
        for id, title in both[kind].items():
            assert [line.split(None, 1) for line in lines].count([id, title]) == 1
    for id, size in both["results"].items():
        number = next(n for n, line in enumerate(lines) if line.split()[:1] == [id])
        told = f"results: {size} size" if size else "no results"
        assert lines[number + 1].endswith(told)
    assert main(["list", "everything"]) == 2


SHARDS = ["--shard 1/2", "then the table", "--num-trials 1000 --precision .2"]


FIG3 = ["--separation", "--num-clients", "[quick: 40; paper: 100]", "IFCA (Ghosh"]


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (["ifca.fig3a", "--help"], [*FIG3, "run ifca.fig3a --preset quick"]),
        (["--help"], SHARDS),
    ],
)
def test_help_shows_flags_and_examples(capsys, words, texts):
    assert main(["run", *words]) == 0
    shown = capsys.readouterr().out
    assert all(text in shown for text in texts)


def test_help_hides_what_would_be_refused(capsys):
    """A sweep's flags are no flags of an experiment without one."""
    for name, is_there in (("ifca.fig3a", True), ("reviews.k", False)):
        assert main(["run", name, "--help"]) == 0
        assert ("--shard" in capsys.readouterr().out) == is_there


# What a flag is, for whoever knows no symbol of the papers.


def says_enough(meaning):
    """Whether a text says more than a symbol, and begins with what it is of."""
    words = [word for word in re.findall("[-\\w']+", meaning) if len(word) > 1]
    return len(words) > 1 and words[0].lower() != "of"


@pytest.mark.parametrize(
    "entry",
    [
        *EXPERIMENTS.values(),
        *BENCHMARKS.values(),
        registry.COMPARISON,
    ],
    ids=lambda entry: entry.id or "compare",
)
def test_every_flag_is_explained(entry):
    told = {field.name: field.meaning for field in flags.fields_of(entry)}
    assert {n: text for n, text in told.items() if not says_enough(text)} == {}


def test_symbols_are_no_explanation():
    """Control."""
    for text in ("", "R", "d", "of everything", "Of an error", "limit", "T, l"):
        assert not says_enough(text)
    assert says_enough("number of clients (m)")


# What presets take is what the committed results tell.


def test_costs_are_those_of_the_committed_results():
    """Made by `python -m experiments.costs`."""
    with costs.FILE.open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == list(costs.measured(ROOT / "figures"))


@pytest.mark.parametrize(
    ("times", "minutes"),
    [
        ([("00:00", "00:10"), ("00:05", "00:20"), ("01:00", "01:01")], 21),
        ([("00:00", "00:10"), ("00:02", "00:03")], 10),
        ([("00:00", "00:10"), ("00:02", None)], None),
        ([], 0),
    ],
)
def test_minutes_are_those_in_which_some_run_worked(times, minutes):
    day = lambda clock: clock and f"2026-01-01T{clock}:00+00:00"
    runs = [{"started": day(one), "finished": day(two)} for one, two in times]
    assert costs._minutes(runs) == minutes


def test_help_tells_what_is_recorded_and_that_nothing_is(capsys):
    for name, told in (
        ("ifca.fig3a", "paper  11 minutes, memory not recorded"),
        ("ifca.fig3a", "quick  not recorded"),
        ("ifca.fig3d", "paper  time not recorded"),
    ):
        assert main(["run", name, "--help"]) == 0
        assert told in capsys.readouterr().out


# Settings that a run has written are read again.


def test_written_settings_are_read_back(tmp_path):
    typed = ["run", "ifca.fig3a", *TINY, "--seed", "7", "--no-law"]
    config = configure(parse(PROGRAM, typed))
    file = tmp_path / "config.json"
    file.write_text(settings(config, precision=None, source="data"))
    read = ["run", "ifca.fig3a", "--config", str(file)]
    assert configure(parse(PROGRAM, read)) == config
    changed = configure(parse(PROGRAM, [*read, "--seed", "8"]))
    assert changed == dataclasses.replace(config, seed=8)
    file.write_text(settings(config, precision=0.5))
    arguments = parse(PROGRAM, read)
    configure(arguments)
    assert (arguments.precision, arguments.preset) == (0.5, "quick")


@pytest.mark.long
@pytest.mark.parametrize("entry", [*EXPERIMENTS.values()], ids=lambda entry: entry.id)
@pytest.mark.parametrize("size", PRESETS)
def test_every_preset_is_read_back(entry, size, tmp_path):
    """And is known to be that preset."""
    file = tmp_path / "config.json"
    preset = entry.load().preset(size)
    file.write_text(settings(preset))
    arguments = parse(PROGRAM, ["run", entry.id, "--config", str(file)])
    assert configure(arguments) == preset
    assert entry.load().preset(arguments.preset) == preset


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"seed": 0', '"seed": 0.5', "`seed`: must be an integer, got '0.5'"),
        ('"seed": 0', '"seed": true', "`seed`: cannot be true"),
        ('"seed": 0', '"seed": [0]', "`seed`: must be one value"),
        ('"seed": 0', '"sead": 0', "has sead, which ifca.fig3a does not"),
        ('"law": true', '"law": 1', "`law`: must be true or false, got 1"),
        ('"init_unit": "one"', '"init_unit": "two"', "invalid choice 'two'"),
        ('"num_clusters": 2,', "", "lacks num_clusters"),
        ("{", "[", "is not JSON"),
        ("{", "", "is not JSON"),
    ],
)
def test_damaged_settings_are_refused(tmp_path, capsys, old, new, message):
    file = tmp_path / "config.json"
    text = settings(EXPERIMENTS["ifca.fig3a"].load().preset("quick"))
    assert old in text
    file.write_text(text.replace(old, new, 1))
    words = ["run", "ifca.fig3a", "--config", str(file), "--out", str(tmp_path / "o")]
    assert main(words) == 2
    assert is_one_line(capsys.readouterr().err, message)


def test_settings_that_are_not_there_are_refused(tmp_path, capsys):
    for more in ([], ["--preset", "paper"]):
        assert main(["run", "ifca.fig3a", "--config", str(tmp_path / "x"), *more]) == 2
        assert is_one_line(capsys.readouterr().err, "not allowed" if more else "cannot")


# What the fields' index says is what the modules say.


def test_the_index_is_made_once_and_not_of_other_sources(tmp_path, monkeypatch):
    entry, made = EXPERIMENTS["werner.fig1"], []
    read = flags._imported
    monkeypatch.setattr(kept, "path", lambda name: tmp_path / "flags.json")
    monkeypatch.setattr(flags, "_imported", lambda e: made.append(e) or read(e))
    first = flags.fields_of(entry)
    assert flags.fields_of(entry) == first and made == [entry]
    monkeypatch.setattr(kept, "sources", lambda: "other")
    assert flags.fields_of(entry) == first and len(made) == 2
    (tmp_path / "flags.json").write_text("{")
    assert flags.fields_of(entry) == first and len(made) == 3


HEAVY = {"jax", "xarray", "pandas", "scipy", "matplotlib"}
LOOK = """
import contextlib, os, sys
from experiments.__main__ import main
for argv in (
    ["list"], ["list", "--json"], ["list", "--help"], ["--help"], ["run", "--help"],
    ["bench", "--help"], ["compare", "--help"], ["launch", "--help"], ["run", "fig"],
    ["bench", "fig"], ["launch", "fig", "--workers", "2"], ["fig"], [],
    ["run", "ifca.fig3a", "--help"], ["run", "ifca.fig3a", "--nois", "1"],
    ["run", "werner.fig1", "--shard", "1/2"], ["run", "ifca.fig3a", "--shard", "3/2"],
    ["run", "ifca.fig3a", "--chunk", "0"], ["run", "ifca.fig3a", "--memory", "nan"],
    ["run", "ifca.fig3a", "--out", "/dev/null/out"], ["list", "--no-cache"],
    ["ledger", "--help"], ["ledger", "--stores", "/nowhere"], ["ledger", "--preset"],
):
    with open(os.devnull, "w") as nowhere, contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(contextlib.redirect_stderr(nowhere))
        stack.enter_context(contextlib.suppress(SystemExit))
        main(argv)
print(*sys.modules)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "found"), [("", set()), ("import jax, matplotlib, scipy, xarray", HEAVY)]
)
def test_listing_help_and_refusals_import_nothing_that_computes(first, found):
    """Control: what was imported is seen."""
    command = [sys.executable, "-c", f"{first}\n{LOOK}"]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=True, text=True)
    assert HEAVY & set(done.stdout.split()) == found


# The registry


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
@pytest.mark.parametrize("size", PRESETS)
def test_every_preset_is_valid(name, size):
    module = EXPERIMENTS[name].load()
    assert module.preset(size) == module.preset(size)
    assert callable(module.main)


def test_presets_are_the_published_grids():
    paper = EXPERIMENTS["ifca.fig3a"].load().preset("paper")
    assert (paper.num_clients, paper.num_samples) == ((100,), (100,))
    assert (paper.num_features, paper.num_trials) == (1000, 40)
    assert (paper.num_restarts, paper.num_rounds) == (10, 300)


def test_the_order_is_that_of_the_papers():
    ids = list(EXPERIMENTS)
    papers = list(dict.fromkeys(id.partition(".")[0] for id in ids))
    assert papers == ["ifca", "clove", "reviews", "werner", "compare"]
    tables = [id for id in ids if id.startswith("clove.table")]
    assert tables[9:11] == ["clove.table12", "clove.table13"]  # numbers, not letters
    assert ids[:6:5] == ["ifca.fig3a", "ifca.table1_cifar"]
    assert ids[-7] == "werner.table1" and ids[-2] == "werner.byzantine"
    every = (*EXPERIMENTS, *BENCHMARKS)
    assert all(any(id.startswith(start) for id in every) for start in ORDER)


def package(folder, **sources):
    """A package `own` of experiments in `papers`, with a comparison; its folder."""
    (folder / "own" / "papers").mkdir(parents=True)
    for name, source in {"compare": 'COMPARISON = {"title": "c"}', **sources}.items():
        (folder / "own" / "papers" / f"{name}.py").write_text(source)
    return folder / "own"


def reads_one_line(folder, message):
    with pytest.raises(ValueError) as error:
        read(folder)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_literals_are_found_and_sorted_without_an_import(tmp_path, monkeypatch):
    several = """raise ImportError
EXPERIMENTS: dict = {"new.fig10": {"title": "a"}, "werner.x": {"title": "b"},
    "new.fig9": {"title": "c", "is_sweep": True}}
def load(id):
    return id"""
    folder = package(
        tmp_path, several=several, one='BENCHMARKS = {"x": {"title": "d"}}'
    )
    experiments, benchmarks, comparison = read(folder)
    assert list(experiments) == ["werner.x", "new.fig9", "new.fig10"]
    entry = experiments["new.fig9"]
    assert entry == Entry("new.fig9", "own.papers.several", "c", is_sweep=True)
    assert (benchmarks["x"].title, comparison.module) == ("d", "own.papers.compare")
    assert not comparison.spreads_clients

    # Loaded, a module stands for itself, or its `load` for each of its experiments.
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError):
        entry.load()
    module = folder / "papers" / "several.py"
    module.write_text(several.replace("raise ImportError", ""))
    assert entry.load() == "new.fig9"
    (folder / "papers" / "other.py").write_text("from own.papers.several import load")
    other = dataclasses.replace(entry, module="own.papers.other").load()
    assert other.__name__ == "own.papers.other"


TITLED = "EXPERIMENTS = {'x': {'title': "


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (TITLED + "str(1)}}", "a.py must be a literal"),
        ("EXPERIMENTS = {'x': {'is_sweep': True}}", "a.py: 'x' has no title"),
        ("EXPERIMENTS = {'x': 'title'}", "'x' must be an id with a dict"),
        ("EXPERIMENTS = {1: {'title': ''}}", "1 must be an id with a dict"),
        ("EXPERIMENTS = {'x'}", "`EXPERIMENTS` of own/papers/a.py must be a dict"),
        (TITLED + "'', 'sweep': True}}", "key 'sweep'; known"),
        (TITLED + "1}}", "title must be a str, got 1"),
        (TITLED + "'', 'is_sweep': 1}}", "is_sweep must be a bool, got 1"),
        ("EXPERIMENTS = {'x': {}, 'x': {}}", "a.py has a key twice"),
        ("COMPARISON = {'title': ''}", "the comparison is in own.papers.a and"),
        ("BENCHMARKS = {", "own/papers/a.py, line 1: '{' was never closed"),
    ],
)
def test_faults_of_literals_are_one_clear_line(tmp_path, source, message):
    reads_one_line(package(tmp_path, a=source), message)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (
            dict.fromkeys("ab", "BENCHMARKS = {'x': {'title': ''}}"),
            "id 'x' is in own.papers.a and own.papers.b",
        ),
        ({"compare": ""}, "no module in own has `COMPARISON`"),
    ],
)
def test_faults_of_several_modules_are_one_clear_line(tmp_path, sources, message):
    reads_one_line(package(tmp_path, **sources), message)


def test_a_fault_of_a_literal_stops_every_command_in_one_line(monkeypatch, capsys):
    def fault():
        raise ValueError("id 'x' is in a and b.")

    monkeypatch.setattr("experiments.registry._own", fault)
    for argv in (["list"], ["run", "x"], ["compare"]):
        assert main(argv) == 2
        assert capsys.readouterr() == ("", "error: id 'x' is in a and b.\n")


# Against misuse


@pytest.mark.slow
def test_resampling_needs_samples_for_every_round(command):
    status, _, err = command("--resample", "--num-samples", "8")
    assert status == 2
    assert "multiple of 2 x `num_rounds`" in err
    assert command("--resample")[0] == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--num-clients", "5"], "4 or 6 would do"),
        (["--num-clients", "1"], "`num_clusters` must be at most `num_clients`"),
        (["--noise", "-0.1"], "--noise: must not be negative"),
        (["--noise", "nan"], "--noise: must be finite"),
        (["--separation", "1", "1"], "`separation` must hold different values"),
        (["--num-trials", "0"], "--num-trials: must be at least 1"),
        (["--error-rate", "2"], "--error-rate: must be in [1e-15, 1)"),
        (["--convention", "papr"], "invalid choice 'papr'"),
        (["--nois", "0.1"], "--nois"),
        (["--chunk", "0"], "`chunk` must be at least 1"),
        (["--memory", "nan"], "`--memory` must be in (0, 1e+09] GiB, got nan"),
        (["--memory", "1e300"], "`--memory` must be in (0, 1e+09] GiB, got 1e+300"),
        (["--devices", "1000000000"], "`number` of devices must be in 1..1024"),
        (["--memory", "1e-9"], "`memory` allows 1 bytes but one trial needs"),
        (["--num-trials", "1000000000000"], "trials would fit"),
        (["--num-trials", "many"], "many"),
    ],
)
def test_bad_input_gets_one_clear_line(command, tmp_path, changes, message):
    status, out, err = command(*changes)
    assert (status, out) == (2, "")
    assert is_one_line(err, message)
    assert not (tmp_path / "out" / "table.csv").exists()


@pytest.mark.parametrize(
    ("number", "message"),
    [("0", "`devices` must be at least 1, got 0"), ("4096", "at most")],
)
@pytest.mark.parametrize("experiment", ["ifca.table1_mnist", "ifca.fig3a"])
def test_impossible_devices_are_one_line(
    command, monkeypatch, number, message, experiment
):
    monkeypatch.setattr("cfljax.engine.use_cores", lambda number: 1)
    status, _, err = command("--devices", number, experiment=experiment, tiny=[])
    assert status == 2
    assert is_one_line(err, message)


def test_devices_reach_the_experiment(command, monkeypatch, replace_main):
    asked, seen = [], []
    monkeypatch.setattr("cfljax.engine.use_cores", lambda n: asked.append(n) or 2)

    def stop(config, options):
        seen.append(options.devices)
        raise ValueError("enough")

    replace_main(stop)
    for words in (["--devices", "2"], []):
        _, _, err = command(*words, experiment="ifca.table1_mnist", tiny=[])
        assert "devices" not in err  # Nobody watches.
    assert asked == seen == [2, None]
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    for words, used in ((["--devices", "1"], 1), ([], 2)):
        _, _, err = command(*words, experiment="ifca.table1_mnist", tiny=[])
        assert f"clients on {used} devices" in err
    asked.clear()
    command("--devices", "2")
    command()
    assert asked == [2]  # Not asked for: one device stays one.


def test_an_unknown_id_names_the_nearest(command):
    status, _, err = command(experiment="ifca.figure3a", tiny=[])
    assert status == 2
    assert "ifca.fig3a" in err


@pytest.mark.slow
def test_another_configuration_uses_the_same_store(command, tmp_path, monkeypatch):
    """Under another folder too; and what the first one stored is still there."""
    save_no_figures(monkeypatch)
    store = ("--store", str(tmp_path / "store"))
    table = lambda: (tmp_path / "out" / "table.csv").read_bytes()
    blocks = lambda: len(list((tmp_path / "store").rglob("*.npz")))
    assert command(*store)[0] == 0
    before, number = table(), blocks()
    assert command(*store, "--seed", "1")[0] == 0
    assert table() != before and blocks() == 2 * number > 0
    with monkeypatch.context() as patch:
        patch.setattr("experiments.ifca.fig3.REVISION", fig3.REVISION + 1)
        assert command(*store)[0] == 0
    assert blocks() == 3 * number and not (tmp_path / "out" / "store").exists()
    assert command(*store)[0] == 0
    assert table() == before and blocks() == 3 * number


def test_nowhere_to_write_is_said(command, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    status, _, err = command(out=blocked / "out")
    assert status == 2
    assert is_one_line(err)


@pytest.mark.long
def test_all_cells_failing_is_one_line(command, monkeypatch):
    def broken(*_):
        raise RuntimeError("out of order")

    monkeypatch.setattr("experiments.ifca.fig3.simulate", broken)
    status, _, err = command()
    assert status == 1
    assert "out of order" in err and "Traceback" not in err


def test_what_goes_wrong_outside_of_cells_is_not_hidden(
    command, replace_main, tmp_path, monkeypatch
):
    """Control: exit status 1 is that of cells alone."""

    def broken(*_):
        raise RuntimeError("out of order")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    replace_main(broken)
    status, _, err = command()
    assert status == 70
    assert is_one_line(err, "internal, RuntimeError: out of order")


@pytest.mark.parametrize("argv", [[], ["run"], ["run", "x", "--preset", "full"]])
def test_wrong_words_are_one_line(argv, capsys):
    assert main(argv) == 2
    assert is_one_line(capsys.readouterr().err)


def test_output_that_cannot_be_written_is_said():
    with pathlib.Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "experiments", "list"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=ROOT)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_json_knows_no_infinity():
    assert plain({"a": [float("inf"), 1.0], "b": float("nan")}) == {
        "a": [None, 1.0],
        "b": None,
    }


# The flags of sweeps, `--precision` and `--shard`: who takes them, what they say


RANGES = {"--precision": "in (0, 1]", "--shard": "I/N with 1 <= I <= N"}


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *(("--precision", value) for value in ("0.0", "1.1", "nan", "-inf")),
        *(("--shard", value) for value in ("0/2", "3/2", "0/0")),
    ],
)
def test_values_out_of_range_are_one_line(command, flag, value):
    message = f"`{flag[2:]}` must be {RANGES[flag]}, got {value}."
    assert command(f"{flag}={value}", tiny=[]) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize(
    "words",
    [
        ["--precision", "fine"],
        *(["--shard", text] for text in ("2", "1/-2", "-1/2", "1/2\n", "½/2")),
        ["--shard", "1/" + "9" * 5000],
        ["--shard"],
    ],
)
def test_unreadable_values_are_one_line(words, capsys):
    assert main(["run", "ifca.fig3a", *words, "--num-trials", "0"]) == 2
    assert is_one_line(capsys.readouterr().err, words[0])


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--devices", "2"), ("--precision", "0.1"), ("--shard", "1/2"), ("--data", "x")],
)
def test_flags_without_use_are_one_line(command, flag, value):
    told = command(flag, value, experiment="werner.fig1", tiny=[])
    message = f"`{flag}` has no use for werner.fig1, got {value}."
    assert told == (2, "", f"error: {message}\n")


@pytest.mark.parametrize("what", [["run", "reviews.k"], ["bench", "law"]])
@pytest.mark.parametrize("flag", ["--store", "--accept-code"])
def test_flags_of_stores_are_refused_without_one(what, flag, tmp_path, capsys):
    value = str(tmp_path / "store")
    assert main([*what, flag, value]) == 2
    message = f"`{flag}` has no use for {what[1]}, got {value}."
    assert capsys.readouterr() == ("", f"error: {message}\n")


def test_flags_of_stores_reach_whoever_has_one(command, replace_main):
    seen = []

    def look(config, options):
        seen.append((options.store, options.accept_code))
        return {"headline": "", "files": []}

    replace_main(look)
    words = ["--store", "here", "--accept-code", "why not"]
    for name in ("ifca.fig3a", "clove.table1", "reviews.crit", "werner.fig1"):
        assert command(*words, experiment=name, tiny=[])[0] == 0
    assert seen == 4 * [(pathlib.Path("here"), "why not")]


def names_called(path):
    """Of functions and methods that a module calls."""
    calls = (
        n.func for n in ast.walk(ast.parse(path.read_text())) if type(n) is ast.Call
    )
    return {getattr(call, "attr", getattr(call, "id", "")) for call in calls}


@pytest.mark.parametrize("name", [*EXPERIMENTS, *BENCHMARKS])
def test_whoever_sweeps_says_that_it_has_a_store(name):
    entry = {**EXPERIMENTS, **BENCHMARKS}[name]
    called = names_called(ROOT / (entry.module.replace(".", "/") + ".py"))
    assert entry.uses_store == ("sweep" in called or entry.has_jobs)


@pytest.mark.parametrize(
    "argv",
    [["compare", "--precision", "0.1"], ["bench", "law", "--shard", "1/2"]],
    ids=lambda argv: argv[0],
)
def test_others_know_no_flags_of_sweeps(argv, capsys, monkeypatch):
    monkeypatch.setattr("cfljax.engine.use_cores", lambda number: 1)
    assert main(argv) == 2
    assert is_one_line(capsys.readouterr().err, argv[-2])


def test_precision_and_shard_reach_every_sweep_and_nothing_else(command, replace_main):
    seen = []
    summary = share_summary("x", (2, 8), num_open=12, num_blocks=80, failed_cells=0)

    def look(config, options):
        seen.append((options.precision, options.shard))
        return summary

    sweeps = [name for name, entry in EXPERIMENTS.items() if entry.is_sweep]
    assert sweeps == ["ifca.fig3a", "ifca.fig3b", "ifca.fig3c", "ifca.fig3d"]
    replace_main(look)
    for name in sweeps:
        words = ["--precision", "0.25", "--shard", "2/8"]
        status, out, err = command(*words, experiment=name, tiny=[])
        assert (status, err) == (0, "")
        assert "12 of 80 blocks are open" in out
        command(experiment=name, tiny=[])
    assert seen == 4 * [(0.25, (2, 8)), (None, None)]


def test_a_worker_says_what_is_left_to_do():
    some = share_summary("x", (2, 8), num_open=12, num_blocks=80, failed_cells=0)
    assert some["headline"].endswith(
        "12 of 80 blocks are open; start the others, then run without --shard for "
        "table and figures"
    )
    assert (some["open_blocks"], some["blocks"], some["files"]) == (12, 80, [])
    none = share_summary("x", (2, 8), num_open=0, num_blocks=80, failed_cells=0)
    assert "none of 80 blocks is open; run without --shard" in none["headline"]
