"""Tutorials run as they are printed."""

import json
import pathlib
import re

import matplotlib
import pytest
from toy_experiments import save_no_figures

from experiments.__main__ import main
from experiments.compare.submissions import faults

DOCS = pathlib.Path(__file__).parents[1] / "docs"


def blocks(name):
    """The Python of a tutorial, block by block."""
    found = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), flags=re.S)
    return [compile(code, f"{name}, block {i}", "exec") for i, code in enumerate(found)]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(matplotlib, "rcParams", matplotlib.rcParams.copy())
    matplotlib.use("Agg")


@pytest.mark.slow
def test_own_data(capsys, tmp_path):
    names = {}
    first, *rest = blocks("own_data.md")
    exec(first, names)
    table = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert [*table] == ["local", "fedavg", "ifca", "ditto", "fedpac"]
    right = {name: float(share[:-1]) for name, share in table.items()}
    # One model for labels that contradict each other cannot do what clusters can.
    assert right["fedavg"] < right["ifca"]
    for block in rest:
        exec(block, names)
    printed = capsys.readouterr().out
    assert "ClientData(3 clients, 2 to 9 samples each: inputs float32[4]" in printed
    assert "`inputs` must be finite" in printed and "client 1." in printed
    assert "2 clients drift in round 20" in printed
    assert printed.splitlines()[-1] == "True"
    assert (tmp_path / "partition.pdf").stat().st_size > 1000


@pytest.mark.slow
def test_own_algorithm(capsys):
    names = {}
    for block in blocks("own_algorithm.md"):
        exec(block, names)
    away, shape = capsys.readouterr().out.splitlines()
    assert float(away) < 1e-5 and shape == "(2, 6, 5)"


def test_the_example_of_a_submission_is_right():
    text = (DOCS / "leaderboard.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", text, flags=re.S)
    document = json.loads(example)
    assert faults(document) == []
    document["methods"][0]["worlds"]["label_skew"]["test"][1] = 69.0
    document["methods"][0]["settings_tried"] = 4
    (line,) = faults(document)
    assert f"error: mine.json: {line}\n" in text


@pytest.mark.slow
def test_leaderboard(capsys, tmp_path, monkeypatch):
    """The example is `local`: in seven worlds, eight seeds do not tell them apart.

    Control: where the network starts otherwise, they do.
    """
    save_no_figures(monkeypatch)
    flags = ["--num-clients", "8", "--num-hidden", "16", "--num-rounds", "4"]
    flags += ["--num-trials", "8", "--step-sizes", ".3", ".1", "--error-rate", ".001"]
    assert main(["compare", "export", "--out", "worlds.npz", *flags]) == 0
    words = ["run", "compare.all", "--algorithms", "local", "--out", "out", *flags]
    assert main(words) == 0
    block = re.findall(
        r"```python\n(.*?)```", (DOCS / "leaderboard.md").read_text(), flags=re.S
    )[0]
    told_apart = {}
    for name, code in (
        ("as printed", block),
        ("otherwise", block.replace("-1 / root, 1 / root", "-3 / root, 3 / root")),
    ):
        exec(code, {})
        capsys.readouterr()
        files = ["mine.json", "out/results.json", "--board", name]
        assert main(["compare", "submit", *files, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert len(rows) == 2 * 7
        told_apart[name] = {row["world"] for row in rows if not row["with_best"]}
    assert told_apart["as printed"] == set() < told_apart["otherwise"]
