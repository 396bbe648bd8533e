"""Tutorials run as they are printed."""

import pathlib
import re

import matplotlib
import pytest

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
