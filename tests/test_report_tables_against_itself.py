"""Tables: what is written is read back, and a failure leaves the old file."""

import csv
import math

import numpy as np
import pytest

from cfljax.report import markdown, read_csv, write_csv, write_text
from cfljax.report.files import replacing


def test_rows_survive_a_file(tmp_path):
    rows = [
        {"name": "ifca", "clients": 100, "noise": 0.1, "won": True, "cell": "8/10"},
        {"name": 'a, "b"', "clients": -3, "noise": 1 / 3, "won": False, "cell": None},
        {"name": "c\nd", "clients": 0, "noise": 1e-300, "won": True, "cell": "10/10"},
    ]
    path = tmp_path / "new" / "table.csv"
    write_csv(path, rows)
    assert read_csv(path) == rows
    write_csv(path, rows[:1])
    assert read_csv(path) == rows[:1]
    assert [entry.name for entry in path.parent.iterdir()] == ["table.csv"]


def test_every_digit_survives(tmp_path):
    values = np.random.default_rng(0).normal(size=200)
    singles = values.astype(np.float32)
    rows = [{"x": x, "y": y} for x, y in zip(values, singles, strict=True)]
    write_csv(tmp_path / "table.csv", rows)
    read = read_csv(tmp_path / "table.csv")
    assert [row["x"] for row in read] == values.tolist()
    assert [np.float32(row["y"]) for row in read] == singles.tolist()
    rounded = [float(f"{x:.15g}") for x in values]
    assert rounded != values.tolist()  # Control: 15 digits would not be enough.


def test_special_values_survive(tmp_path):
    row = {"nan": np.float32(np.nan), "inf": -math.inf, "one": np.int32(1)}
    write_csv(tmp_path / "table.csv", [row])
    (read,) = read_csv(tmp_path / "table.csv")
    assert math.isnan(read["nan"])
    assert (read["inf"], read["one"]) == (-math.inf, 1)


def test_columns_keep_their_first_order(tmp_path):
    write_csv(tmp_path / "table.csv", [{"b": 1, "a": 2}, {"c": 3, "a": 4}])
    with (tmp_path / "table.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    assert lines == [["b", "a", "c"], ["1", "2", ""], ["", "4", "3"]]


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "table.csv"
    write_csv(path, [{"a": 1}])
    with pytest.raises(ValueError, match="shape"):
        write_csv(path, [{"a": 2}, {"a": np.zeros(3)}])
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert read_csv(path) == [{"a": 1}]
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.csv"]


def test_text_survives(tmp_path):
    write_text(tmp_path / "new" / "note.txt", "σ\nline\n")
    assert (tmp_path / "new" / "note.txt").read_bytes() == "σ\nline\n".encode()


def test_markdown_against_a_table_written_by_hand():
    rows = [
        {"name": "a|b", "rate": 0.123456, "count": 12345},
        {"name": "c", "rate": float("nan"), "count": None},
    ]
    assert markdown(rows) == (
        "| name | rate | count |\n"
        "| --- | ---: | ---: |\n"
        "| a\\|b | 0.123 | 12345 |\n"
        "| c | nan |  |\n"
    )
    chosen = markdown(rows, {"count": "number", "name": "who"}, digits=1)
    assert chosen.splitlines()[0] == "| number | who |"


def test_misuse_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`rows`"):
        write_csv(tmp_path / "table.csv", [])
    with pytest.raises(ValueError, match="`columns`"):
        markdown([{"a": 1}], ["b"])
    with pytest.raises(ValueError, match="`digits`"):
        markdown([{"a": 1}], digits=0)
