"""The gallery: what is missing is made, nothing better is lost, the page is current.

Where nothing else is said, what runs an experiment is replaced by something that writes
made-up files in no time.
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from cfljax import report
from experiments import listing, study
from experiments.__main__ import main
from experiments.gallery import folders, make, page
from experiments.registry import EXPERIMENTS

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIGURES = ROOT / "figures"
FREE, LARGER, IMAGES = "werner.fig4", "clove.fig3", "ifca.fig4"  # The last takes data.
HOME = str(pathlib.Path.home())


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A figure in its three forms, drawn once."""
    panel = report.HeatMap(np.eye(2), [1, 2], [1, 2], "noise σ", "separation R")
    return report.save(
        report.heatmaps([panel]), tmp_path_factory.mktemp("drawn") / "heatmap"
    )


class Runner:
    """In the place of `make.run`: writes what an experiment would, and notes the ids.

    Attributes may be changed between runs: `fails` has ids and what they raise, `more`
    files and their contents.
    """

    def __init__(self, drawn):
        self.drawn, self.ran, self.fails, self.more = drawn, [], {}, {}
        self.asked = {}  # Flags of the last run of an id.

    def __call__(self, id, flags):
        self.ran.append(id)
        if id in self.fails:
            raise self.fails[id]
        asked = self.asked[id] = dict(zip(flags[::2], flags[1::2], strict=True))
        out, entry = pathlib.Path(asked["--out"]), EXPERIMENTS[id]
        out.mkdir(parents=True, exist_ok=True)
        for file in self.drawn:
            shutil.copy(file, out)
        data = " --data FOLDER" if "--data" in asked and entry.takes_data else ""
        made = folders.command(entry, asked["--preset"]) + data
        commit = {"id": 40 * "c", "dirty": False}
        runs = [{"run": "a"}, {"run": "b", "command": made, "commit": commit}]
        source = f"original files in {asked.get('--data')}/mnist, or {HOME}/mnist"
        texts = {
            "table.csv": "a,b\n1,2\n",
            "table.md": f"images: {source}\n",
            "config.json": study.settings(entry.load().preset(asked["--preset"])),
            "provenance.json": json.dumps({"runs": runs}) + "\n",
            **self.more,
        }
        for name, text in texts.items():
            (out / name).write_text(text)
        return [str(out / name) for name in (*[p.name for p in self.drawn], *texts)]


@pytest.fixture
def runner(drawn, tmp_path, monkeypatch):
    """Instead of experiments; the gallery is `figures` in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    own = Runner(drawn)
    monkeypatch.setattr(make, "run", own)
    return own


def gallery(*words):
    return main(["gallery", *words])


def contents(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def part(id):
    """What the page says of an experiment."""
    text = pathlib.Path("figures", "README.md").read_text()
    return text.split(f"### {id}\n")[1].split("\n##")[0]


# Against itself: what is missing is made, once


def test_what_is_missing_is_made_and_then_kept(runner, capsys):
    assert gallery(FREE, LARGER, FREE) == 0
    assert runner.ran == [FREE, LARGER]
    made = contents(f"figures/{FREE}")
    names = {"heatmap.svg", "heatmap.pdf", "table.csv", "table.md", "config.json"}
    assert set(made) == names | {"provenance.json"}
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"{FREE}: missing, running"
    assert printed[-2:] == ["2 made, 0 kept, 0 failed", "wrote figures/README.md"]
    before = pathlib.Path("figures", "README.md").read_bytes()
    assert gallery(FREE, LARGER, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["made"], summary["kept"]) == ([], [FREE, LARGER])
    assert runner.ran == [FREE, LARGER]
    assert contents(f"figures/{FREE}") == made
    assert pathlib.Path("figures", "README.md").read_bytes() == before


def test_the_page_shows_each_experiment_at_its_size(runner):
    gallery(FREE, IMAGES)
    gallery(LARGER, "--preset", "paper")
    made = part(FREE)
    assert f"{EXPERIMENTS[FREE].title}: **quick**" in made
    assert f"python -m experiments run {FREE} --preset quick\n" in made
    assert f'<img src="{FREE}/heatmap.svg"' in made
    for name in ("table.csv", "table.md", "heatmap.pdf", "provenance.json"):
        assert f"[{name}]({FREE}/{name})" in made
    assert made.rstrip().endswith("commit cccccccccc")
    assert "**the paper's size**" in part(LARGER)
    assert "**quick, on data that stand in for the paper's**" in part(IMAGES)
    missing = part("ifca.table1_mnist")
    assert "**not yet made**" in missing and "--preset paper --data FOLDER" in missing
    text = pathlib.Path("figures", "README.md").read_text()
    assert text.count("\n### ") == len(EXPERIMENTS)
    assert "| Werner et al., TMLR 2023 | 6 | 0 | 1 | 0 | 0 | 5 |" in text
    assert text.index("### ifca.fig3a") < text.index("### clove.table1")


def test_a_gallery_that_was_killed_goes_on(runner, capsys):
    runner.fails[LARGER] = KeyboardInterrupt()
    assert gallery(FREE, LARGER) == 130
    assert "resume" in capsys.readouterr().err
    assert "**quick**" in part(FREE) and "**not yet made**" in part(LARGER)
    # As a kill in the middle of copying leaves it.
    partial = pathlib.Path("figures", f".{LARGER}.partial")
    partial.mkdir()
    (partial / "table.csv").write_text("half")
    runner.fails.clear()
    assert gallery(FREE, LARGER) == 0
    assert runner.ran == [FREE, LARGER, LARGER]
    assert not partial.exists()
    assert contents(f"figures/{LARGER}")["table.csv"] == b"a,b\n1,2\n"


def test_one_that_fails_is_named_and_the_others_are_made(runner, capsys):
    runner.fails[FREE] = ValueError("3 cells failed; start again to retry them.")
    assert gallery(FREE, LARGER) == 1
    printed = capsys.readouterr().out.splitlines()
    assert f"{FREE}: 3 cells failed; start again to retry them." in printed
    assert "1 made, 0 kept, 1 failed" in printed
    assert not pathlib.Path("figures", FREE).exists()
    assert gallery(FREE, LARGER, "--json") == 1
    assert list(json.loads(capsys.readouterr().out)["failed"]) == [FREE]


DAMAGES = {
    "config.json": b"{",
    "provenance.json": None,
    "table.csv": b"",
    "heatmap.svg": None,
    "heatmap.pdf": b"%PDF-1.4\nhalf",
}


def damage(folder, name):
    """Cut a file of a folder off, or remove it."""
    path = pathlib.Path("figures", folder, name)
    content = DAMAGES[name]
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_made_again(runner, capsys, name):
    gallery(FREE)
    whole = contents(f"figures/{FREE}")
    damage(FREE, name)
    assert gallery(FREE) == 0
    assert f"{FREE}: {name} is" in capsys.readouterr().out
    assert contents(f"figures/{FREE}") == whole and runner.ran == [FREE, FREE]


def test_an_empty_folder_is_no_folder(runner):
    pathlib.Path("figures", FREE).mkdir(parents=True)
    assert gallery(FREE) == 0 and runner.ran == [FREE]


def test_the_papers_size_is_never_replaced_by_quick(runner):
    gallery(FREE, "--preset", "paper")
    paper = contents(f"figures/{FREE}")
    assert gallery(FREE) == 0
    assert contents(f"figures/{FREE}") == paper and runner.ran == [FREE]
    gallery(LARGER)
    assert gallery(LARGER, "--preset", "paper") == 0  # But the other way round.
    assert runner.ran[1:] == [LARGER, LARGER]
    assert "**the paper's size**" in part(LARGER)


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_one_of_the_papers_size_stays_and_is_named(runner, capsys, name):
    gallery(FREE, "--preset", "paper")
    damage(FREE, name)
    left = contents(f"figures/{FREE}")
    assert gallery(FREE) == 1
    assert "has the paper's size and is damaged" in capsys.readouterr().out
    assert contents(f"figures/{FREE}") == left and runner.ran == [FREE]
    assert gallery(FREE, "--preset", "paper") == 0 and runner.ran == [FREE, FREE]


def test_a_folder_that_tells_no_size_stays_and_is_named(runner, capsys):
    gallery(FREE, "--preset", "paper")
    for name in ("config.json", "provenance.json"):
        damage(FREE, name)
    left = contents(f"figures/{FREE}")
    assert gallery(FREE) == 1
    assert "does not tell its size" in capsys.readouterr().out
    assert contents(f"figures/{FREE}") == left
    assert "**damaged**" in part(FREE)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"runs": 5}',
        '{"runs": [{"command": 5, "preset": [], "left_out": 5}]}',
        '{"runs": [{"left_out": {"a.svg": "x"}, "commit": 5}]}',
    ],
    ids=["deep", "no list", "kinds", "more"],
)
def test_a_folder_whose_provenance_says_anything_is_read(runner, text):
    """By the gallery and by `list`."""
    gallery(FREE)
    folder = pathlib.Path("figures", FREE)
    (folder / "provenance.json").write_text(text + "\n")
    found = folders.read(folder, EXPERIMENTS[FREE])
    assert found is not None and found.size is not folders.Size.PAPER
    found.fault()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "_RESULTS", folder.parent)
        assert listing.size(EXPERIMENTS[FREE]) in (None, "quick", "unknown")


def change_json(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value) + "\n")


def test_settings_of_another_day_are_made_again(runner, capsys):
    """The preset has changed since; fields that are new mean what was before."""
    gallery(FREE)
    file = pathlib.Path("figures", FREE, "config.json")
    change_json(file, lambda settings: settings.pop("box"))
    assert gallery(FREE) == 0 and runner.ran == [FREE]
    change_json(file, lambda settings: settings.update(num_trials=11))
    assert gallery(FREE) == 0 and runner.ran == [FREE, FREE]
    assert "of other settings than quick has today" in capsys.readouterr().out


def test_another_size_is_made_again(runner):
    gallery(FREE)

    def lengthen(origin):
        origin["runs"][-1]["command"] += " --num-trials 11"

    change_json(pathlib.Path("figures", FREE, "provenance.json"), lengthen)
    assert gallery("--page") == 0
    assert "**another size**" in part(FREE) and "--num-trials 11" in part(FREE)
    assert gallery(FREE) == 0 and runner.ran == [FREE, FREE]


def test_without_a_command_the_settings_tell_the_size(runner):
    """As in folders that are older than such entries."""
    gallery(FREE, "--preset", "paper")
    file = pathlib.Path("figures", FREE, "provenance.json")
    change_json(file, lambda origin: origin["runs"].pop())
    assert gallery(FREE) == 0 and runner.ran == [FREE]
    assert "**the paper's size**" in part(FREE)


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_real_data_replace_what_stands_in_for_them(runner, monkeypatch, by):
    pathlib.Path("data").mkdir()
    flags = ["--data", "data"] if by == "flag" else []
    gallery(IMAGES, FREE)
    if by == "environment":
        monkeypatch.setenv("CFLJAX_DATA", "data")
    assert gallery(IMAGES, FREE, *flags) == 0
    assert runner.ran == [IMAGES, FREE, IMAGES]
    assert "**quick**" in part(IMAGES) and "--data FOLDER" in part(IMAGES)
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    assert gallery(IMAGES) == 0 and runner.ran == [IMAGES, FREE, IMAGES]


def test_whoever_has_a_store_is_told_which(runner):
    assert gallery(FREE, "reviews.k", "--store", "here") == 0
    assert runner.asked[FREE]["--store"] == "here"
    assert "--store" not in runner.asked["reviews.k"]


def test_no_path_of_the_machine_is_copied(runner):
    pathlib.Path("data").mkdir()
    gallery(IMAGES, "--data", "data")
    text = pathlib.Path("figures", IMAGES, "table.md").read_text()
    assert text == "images: original files in FOLDER/mnist, or ~/mnist\n"


def test_large_files_are_left_out_and_named(runner, drawn):
    """Of a figure whose SVG is large there is a PNG to look at, and the PDF."""
    runner.more = {
        "runs.csv": "a\n" + "1\n" * folders.LIMIT,
        "heatmap.svg": drawn[0].read_text().replace("</svg>", " " * 300_000 + "</svg>"),
    }
    assert gallery(FREE) == 0
    made = contents(f"figures/{FREE}")
    assert {"runs.csv", "heatmap.svg"}.isdisjoint(made) and "heatmap.pdf" in made
    assert max(map(len, made.values())) <= folders.LIMIT
    with (
        Image.open(f"figures/{FREE}/heatmap.png") as small,
        Image.open(drawn[2]) as own,
    ):
        difference = np.asarray(small.convert("RGB"), int) - own.convert("RGB")
    assert np.abs(difference).mean() < 1  # Of 255.
    shown = part(FREE)
    assert f'<img src="{FREE}/heatmap.png"' in shown
    assert "without runs.csv (0.6 MB)" in shown and "without heatmap.svg" in shown
    assert gallery(FREE) == 0 and runner.ran == [FREE]


def test_files_that_were_not_written_by_the_run_are_not_copied(runner):
    scratch = make.SCRATCH / FREE
    scratch.mkdir(parents=True)
    (scratch / "former.csv").write_text("a\n1\n")
    gallery(FREE)
    assert "former.csv" not in contents(f"figures/{FREE}")


@pytest.mark.slow
def test_an_experiment_is_run_and_copied(tmp_path, monkeypatch):
    """The quickest one, by the process that a person would start."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    assert gallery("werner.fig2") == 0
    made = contents("figures/werner.fig2")
    assert {"constants.pdf", "table.csv", "table.md", "provenance.json"} <= set(made)
    runs = json.loads(made["provenance.json"])["runs"]
    assert [run.get("preset") for run in runs] == [None, "quick"]
    monkeypatch.setattr(make, "run", None)
    assert gallery("werner.fig2") == 0


# Against failures of the process that runs


def child(monkeypatch, program):
    """Let a program stand for `python -m experiments run`."""
    usual = make.subprocess.run

    def run(command, **how):
        return usual([sys.executable, "-c", program], **how)

    monkeypatch.setattr(make.subprocess, "run", run)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("print('{\"failed_cells\": 3}'); exit(1)", "3 cells failed"),
        (
            "import sys; print('a\\nerror: no data', file=sys.stderr); exit(2)",
            "no data",
        ),
        ("raise TypeError('broken')", "TypeError: broken"),
        ("import os; os.kill(os.getpid(), 9)", "exit status -9"),
    ],
)
def test_a_failure_says_why_in_one_line(monkeypatch, program, message):
    child(monkeypatch, program)
    with pytest.raises(ValueError, match=f"^{message}"):
        make.run(FREE, [])


def test_an_interrupted_process_interrupts_all(monkeypatch):
    child(monkeypatch, "exit(130)")
    with pytest.raises(KeyboardInterrupt):
        make.run(FREE, [])


# Against misuse


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([FREE, "werner.fig44"], "unknown id 'werner.fig44'; nearest: werner.fig4"),
        ([FREE, "--num-trials", "3"], "unrecognized arguments: --num-trials 3"),
        ([FREE, "--data", "nowhere"], "`--data` must name a folder that exists, got "),
        ([FREE, "--out", "file"], "`file` is no folder"),
        ([FREE, "--page"], "`--page` is of all experiments, got werner.fig4"),
    ],
)
def test_bad_input_is_one_line(runner, capsys, words, message):
    pathlib.Path("file").touch()
    assert main(["gallery", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err
    assert runner.ran == [] and not pathlib.Path("figures").exists()


# The committed gallery


def test_the_page_is_what_its_folders_give():
    """Also: every experiment has a folder, or is told to have none."""
    text = (FIGURES / page.NAME).read_text()
    assert text == page.text(FIGURES), "run: python -m experiments gallery --page"
    for id in EXPERIMENTS:
        has_none = "**not yet made**" in text.split(f"### {id}\n")[1].split("###")[0]
        assert (FIGURES / id).is_dir() != has_none


def test_another_folder_gives_another_page(tmp_path):
    """Control: the comparison above sees a file that comes and one that goes."""
    shutil.copytree(FIGURES / "ifca.fig3a", tmp_path / "ifca.fig3a")
    before = page.text(tmp_path)
    (tmp_path / "ifca.fig3a" / "more.csv").write_text("a\n1\n")
    assert page.text(tmp_path) != before
    shutil.rmtree(tmp_path / "ifca.fig3a")
    assert page.text(tmp_path) != before


def test_committed_folders_are_whole_small_and_of_no_machine():
    for id, entry in EXPERIMENTS.items():
        found = folders.read(FIGURES / id, entry)
        if found is None:
            continue
        assert found.fault() is None and found.size is not None
        for name, content in contents(found.path).items():
            assert len(content) <= folders.LIMIT, name
            if name.endswith(folders.TEXTS):
                assert HOME.encode() not in content and b"/tmp/" not in content, name
    every = [path for path in FIGURES.rglob("*") if path.is_file()]
    kept = [path for path in every if "states" not in path.parts]  # Never committed.
    sizes = dict.fromkeys((False, True), 0)
    for path in kept:
        sizes["ledger" in path.parts] += path.stat().st_size
    assert sizes[False] < 14e6 and sizes[True] < 20 * 2**20
