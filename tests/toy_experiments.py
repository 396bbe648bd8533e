"""What tests of several experiments share: made-up data, a second run, comparisons."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest

from cfljax import report
from cfljax.command import parse
from cfljax.data.writers import Writers
from experiments.__main__ import PROGRAM
from experiments.arguments import configure
from experiments.clove.sources import Source, load_source
from experiments.ifca.fig3_trial import Trial
from experiments.options import Options
from experiments.registry import EXPERIMENTS


def configured(name: str, flags: str, preset: str = "quick") -> Any:
    """Configuration of an experiment or a benchmark: a preset, and flags as typed."""
    command = "run" if name in EXPERIMENTS else "bench"
    words = [command, name, "--preset", preset, *flags.split()]
    return configure(parse(PROGRAM, words))


def retyped(usual: Sequence[str], changes: Sequence[str]) -> list[str]:
    """Usual flags with changes, and no flag twice."""
    name = lambda word: word.partition("=")[0]
    changed = {name(word) for word in changes if word.startswith("--")}
    kept, is_kept = [], True
    for word in usual:
        if word.startswith("--"):
            is_kept = name(word) not in changed
        kept += [word] * is_kept
    return [*kept, *changes]


def digits(name: str = "digits") -> Source:
    """The embedded images, by another name for tests of what stands beside it."""
    options = Options(out=pathlib.Path("unused"))
    own = load_source("digits", options, fall_back=False, num_words=1, num_tokens=1)
    return dataclasses.replace(own, name=name)


def trial_of_fig3(**changes: Any) -> Trial:
    """A small one of IFCA's Figure 3."""
    usual: dict[str, Any] = {"num_clients": 10, "num_samples": 20, "num_clusters": 2}
    usual |= {"num_features": 30, "num_restarts": 3, "num_rounds": 60}
    usual |= {"convention": "reference", "separation": 1.0, "noise": 0.2}
    usual |= {"init_scale": 1.0, "init_unit": "one"}
    usual |= {"normalise": "all", "resample": False}
    return Trial(**(usual | changes))


def some_writers(*counts: int) -> Writers:
    """Of 4 x 4 images: each has as many as counted to train on and two to test."""
    random, number = np.random.default_rng(8), len(counts)
    owners = [np.repeat(np.arange(number), n) for n in (counts, number * [2])]
    images = [random.integers(0, 256, (len(o), 4, 4)).astype(np.uint8) for o in owners]
    labels = [random.integers(0, 3, len(o)).astype(np.int32) for o in owners]
    first, second = zip(images, labels, owners, strict=True)
    return Writers(*first, *second, tuple("abcdefg"[:number]), 3, "made up")


def run_twice(
    main: Callable[..., dict[str, Any]],
    config: Any,
    out: pathlib.Path,
    refuse_work: Callable[[], None],
) -> dict[str, Any]:
    """Summary of a run without failures; the second one computes nothing."""
    options = Options(out=out, progress=False)
    summary = main(config, options)
    refuse_work()
    assert json.dumps(main(config, options)["rows"]) == json.dumps(summary["rows"])
    assert summary["failed_cells"] == 0
    return summary


def save_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn and not written, which takes longer than a small run."""
    monkeypatch.setattr(report, "save", lambda figure, path: [])


def files(summary: dict[str, Any]) -> set[str]:
    """Names of what was written."""
    return {pathlib.Path(path).name for path in summary["files"]}


def labels(axes: Any) -> list[str]:
    """Names of the curves that a legend shows."""
    names = [str(line.get_label()) for line in axes.get_lines()]
    return [name for name in names if not name.startswith("_")]


def pick(tree: Any, index: Any) -> Any:
    """The same tree with `leaf[index]` for every leaf."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def assert_close(one: Any, other: Any, **tolerance: Any) -> None:
    """Leaf by leaf."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)
