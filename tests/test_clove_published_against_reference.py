"""The published numbers that stand beside CLoVE's experiments."""

import csv
import pathlib

from experiments.clove import rows


def test_published_numbers_are_the_papers(shared):
    path = pathlib.Path(rows.__file__).with_name("published.csv")
    with (shared / "published" / "numbers.csv").open(newline="") as file:
        wanted = [row for row in csv.DictReader(file) if row.pop("paper") == "clove"]
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert found == wanted and len(found) == 724
    assert found[0] != found[1]
