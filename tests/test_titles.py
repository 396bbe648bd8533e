"""Titles of figures: own settings never stand under the paper's name."""

import ast
import dataclasses
import pathlib
import re

import pytest

from experiments import registry
from experiments.titles import clusters, differences, title, values_of

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLACE = re.compile(r"\b(Figure|Tables?|appendix) [\dD]|in the paper|the paper's\b")
# Those that make figures of a paper; others are studies of our own.
OWN = re.compile(r"reviews\.|ifca\.phase|werner\.byzantine|compare\.")
IDS = [id for id in registry.EXPERIMENTS if not OWN.match(id)]


@dataclasses.dataclass(frozen=True)
class Config:
    num_clusters: int = 2
    noise: tuple[float, ...] = (0.0, 0.1)
    num_trials: int = 40
    seed: int = 0


# --- Against every experiment.


@pytest.mark.long
@pytest.mark.parametrize("id", IDS)
def test_only_the_papers_settings_have_its_name(id):
    experiment = registry.EXPERIMENTS[id].load()
    paper = experiment.preset("paper")
    changes = {"num_trials": 1, "num_rounds": 7, "num_clusters": 3}
    own = [experiment.preset("quick")]
    for name, value in changes.items():
        there = getattr(paper, name, None)
        if isinstance(there, int) and (there > value or name == "num_clusters"):
            own.append(changed(paper, name, value))
    assert all(PLACE.search(text) for text in experiment.titles(paper).values())
    assert all(PLACE.search(t) for t in experiment.titles(more(paper)).values())
    for config in own:
        if config is None or not differences(config, paper):
            continue
        for text in experiment.titles(config).values():
            assert not PLACE.search(text) and "own settings" in text


def changed(config, name, value):
    """Another value of one field, if such a configuration can be."""
    try:
        return dataclasses.replace(config, **{name: value})
    except ValueError:
        return None


def more(config):
    """The paper's settings with other random numbers."""
    return dataclasses.replace(config, seed=config.seed + 1)


def test_figure_3_states_every_size_and_the_clusters_that_it_has():
    for panel, words in (("a", "two"), ("b", "four")):
        own = registry.EXPERIMENTS[f"ifca.fig3{panel}"].load()
        paper = own.preset("paper")
        (sizes,) = paper.num_clients
        assert own.title(paper) == (
            f"IFCA, Figure 3({panel}): success with {words} clusters, m = {sizes}, "
            "n = 100, d = 1000"
        )
        three = dataclasses.replace(paper, num_clusters=3, num_clients=(99,))
        found = own.title(three)
        assert found.startswith("Success with three clusters, m = 99, n = 100, d = ")
        assert "Figure" not in found


@pytest.mark.long
def test_no_title_of_a_figure_is_written_beside_the_rule():
    """Whoever names a place of a paper does so through `titles.title`."""
    planted = ast.parse('report.curves(x, title="IFCA, Figure 4: identities")')
    assert named_places(planted)
    found = []
    for path in sorted((ROOT / "experiments").glob("*/*.py")):
        found += [
            f"{path.name}: {t}" for t in named_places(ast.parse(path.read_text()))
        ]
    assert found == [
        "criterion.py: Least squares with the true clusters, and what Figure 3 asks"
    ]  # Exact, of the paper's own settings whatever is run.


def named_places(tree):
    """Texts with a place of a paper that are handed on as a title as they are."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        texts = [k.value for k in node.keywords if k.arg in ("title", "legend_title")]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "suptitle":
            texts += node.args
        for text in texts:
            for part in ast.walk(text):
                own = part.value if isinstance(part, ast.Constant) else None
                if isinstance(own, str) and re.search(r"(Figure|Table) \d", own):
                    yield own


# --- Against itself.


def test_what_makes_settings_the_papers():
    paper = Config()
    same = (
        Config(),
        Config(seed=3),
        Config(num_trials=80),
        Config(noise=(0.1,)),
    )
    assert all(differences(own, paper) == {} for own in same)
    other = Config(num_clusters=3), Config(num_trials=39), Config(noise=(0.1, 0.2))
    assert all(len(differences(own, paper)) == 1 for own in other)
    assert title("IFCA, Figure 9", "what is seen", Config(seed=1), paper) == (
        "IFCA, Figure 9: what is seen"
    )
    own = Config(num_clusters=3, num_trials=10)
    assert title("IFCA, Figure 9", "what is seen", own, paper) == (
        "What is seen\nown settings: k = 3, 10 trials"
    )


def test_values_are_those_that_all_cells_share():
    assert values_of(Config(), "num_clusters", "noise") == "k = 2"
    assert values_of(Config(noise=(0.1,)), "noise") == "σ = 0.1"
    assert [clusters(number) for number in (1, 2, 7)] == [
        "1 cluster",
        "two clusters",
        "7 clusters",
    ]
