"""The ledger of published numbers, on made-up stores: verdicts, commands, files."""

import contextlib
import csv
import dataclasses
import json
import math
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from toy_experiments import digits

from cfljax.command import parse
from cfljax.engine import kept
from experiments import verdicts
from experiments.__main__ import PROGRAM, main
from experiments.arguments import configure
from experiments.clove import study
from experiments.clove.study import grids
from experiments.clove.tables import load
from experiments.ifca import rotated, table1
from experiments.ledger import entries, papers, stores
from experiments.ledger.write import write
from experiments.published import published
from experiments.registry import EXPERIMENTS

# Whole programs: half a second or more each, on a fresh machine.
pytestmark = pytest.mark.long

FEDAVG = "clove / Table 1 / MNIST / Label skew 1 / FedAvg / test accuracy %"
IFCA = "clove / Table {} / MNIST / Label skew 1 / IFCA / {}"


def clove_trial(method="fedavg", **changes) -> study.Trial:
    """Of label skew 1 of MNIST, in the paper's size."""
    trial = next(grids(load("clove.table1").preset("paper"), digits("mnist"))).trial
    return dataclasses.replace(trial, method=method, **changes)


def clove_outputs(trial, accuracy, index=math.nan) -> dict[str, Any]:
    """What one seed of CLoVE's study leaves; the index is reached in round 2."""
    rounds = np.full(trial.num_rounds, index)
    rounds[0] = 0
    tested = np.full(trial.num_rounds // trial.rounds_between, accuracy / 100)
    found = {"score": tested, "rand_index": rounds, "seen_rand_index": rounds}
    return found | dict.fromkeys(("stable", "received", "sent"), 0 * rounds)


def about(experiment, revision, fields, coords, outputs=(), **changes):
    """What a file says of itself."""
    meaning = {"experiment": experiment, "revision": revision, "seed": 0}
    meaning |= {"fields": fields, "coords": coords}
    axes = lambda name: [f"{name} {i}" for i in range(np.ndim(outputs[name]))]
    meaning |= {"dims": {name: axes(name) for name in outputs}}
    cell = {"cell": kept.key_of(meaning), "meaning": meaning, "fields": fields}
    commit = {"id": "0123456789abcdef", "dirty": False}
    own = {"layout": 1, **cell, "block": 0, "trials": 1, "code": "a", "commit": commit}
    own |= {"run": "x", "seconds": 1.0, "accepted": None}
    return own | changes


def put(folder, experiment, revision, fields, outputs, coords=None, **changes):
    """Write one cell of one trial; its file."""
    own = about(experiment, revision, fields, coords or {}, outputs, **changes)
    path = folder / "cells" / own["cell"] / "0.npz"
    kept.write(path, {k: np.asarray(v)[None] for k, v in outputs.items()}, own)
    return path


def put_clove(folder, trial, *accuracies, index=math.nan, revision=None, **changes):
    """Write the seeds of one trial."""
    for seed, accuracy in enumerate(accuracies):
        fields = dataclasses.asdict(dataclasses.replace(trial, repetition=seed))
        outputs = clove_outputs(trial, accuracy, index)
        own = study.REVISION if revision is None else revision
        put(folder, study.STUDY, own, fields, outputs, **changes)


def ledger(*folders) -> dict[str, dict[str, Any]]:
    """The rows by their keys."""
    rows, _ = entries.rows(stores.runs(stores.read(folders), papers.KINDS))
    return {row["key"]: row for row in rows}


# Against equations: what a made-up store says of the published numbers.


def test_the_published_numbers_in_the_papers_size_agree(tmp_path):
    put_clove(tmp_path, clove_trial(), 87.4, 87.4, 87.4)
    row = ledger(tmp_path)[FEDAVG]
    assert (row["verdict"], row["size"], row["seeds"]) == ("agrees", "paper", 3)
    assert (row["rounds"], row["commits"]) == (100, "0123456789")
    assert row["mean"] == pytest.approx(87.4) and row["std"] == pytest.approx(0)
    assert len(row["cells"].split()) == 3 and row["core_hours"] is None
    assert row["command"] == (
        "python -m experiments run clove.table1 --preset paper --datasets mnist "
        "--partitions label_skew_1 --methods fedavg"
    )


def test_ten_rounds_are_reduced_and_one_seed_has_no_spread(tmp_path):
    short = clove_trial(num_rounds=10)
    put_clove(tmp_path / "short", short, 87.4, 87.4, 87.4)
    put_clove(tmp_path / "one", clove_trial(), 87.4)
    put_clove(tmp_path / "far", short, 50.0)
    row = ledger(tmp_path / "short")[FEDAVG]
    assert row["verdict"] == "reduced (10 of 100 rounds)"
    assert "--num-rounds 10" in row["command"] and row["rounds"] == 10
    row = ledger(tmp_path / "one")[FEDAVG]
    assert (row["verdict"], row["std"]) == ("spread unknown", None)
    assert "--num-trials 1" in row["command"]
    row = ledger(tmp_path / "far")[FEDAVG]
    assert row["verdict"] == "reduced (10 of 100 rounds, 1 of 3 seeds), differs"
    assert row["difference"] == pytest.approx(-37.4)


def test_seeds_from_before_a_field_that_means_nothing_here_count_too(tmp_path):
    """A trial of images has no use for the length of texts."""
    put_clove(tmp_path, clove_trial(), 87.4, 87.4, 87.4)
    first, *others = stores.read([tmp_path])
    told = first.block.about
    with_about = lambda **own: first._replace(
        block=first.block._replace(about={**told, **own})
    )
    fields = dict(told["fields"])
    del fields["num_tokens"]
    (run,) = stores.runs([with_about(fields=fields), *others], papers.KINDS)
    assert run.num_seeds == 3
    # Control: what has a meaning parts them.
    meaning = told["meaning"]
    fields = {**meaning["fields"], "num_rounds": 99}
    other = with_about(meaning={**meaning, "fields": fields})
    assert len(stores.runs([other, *others], papers.KINDS)) == 2


def test_other_numbers_differ_and_a_listed_cause_is_named(tmp_path, monkeypatch):
    put_clove(tmp_path, clove_trial(), 80, 80, 80)
    row = ledger(tmp_path)[FEDAVG]
    assert row["verdict"] == "differs (open)"
    # The paper's 0.9 and none of ours.
    assert row["deviations"] == pytest.approx(-7.4 / (0.9 / math.sqrt(2)))
    found = tmp_path / "findings.csv"
    head, command = "key,kind,ours,finding,command\n", "python -m experiments x"
    monkeypatch.setattr(verdicts, "FINDINGS", found)
    found.write_text(f"{head}{FEDAVG},tried,,no slip,{command}\n")
    row = ledger(tmp_path)[FEDAVG]
    assert row["verdict"] == "differs (open)"
    assert row["note"] == f"tried: no slip, by `{command}`"
    verdicts.read_findings.cache_clear()
    found.write_text(f"{head}{FEDAVG},cause,80,a slip,{command}\n")
    row = ledger(tmp_path)[FEDAVG]
    assert row["verdict"] == "differs (tested cause: a slip)"
    assert row["note"] == f"cause tested by `{command}`"


def test_a_run_of_a_hundred_rounds_has_the_index_of_ten_and_the_first_round(tmp_path):
    put_clove(tmp_path, clove_trial("ifca"), 99.1, 99.1, 99.1, index=0.83)
    rows = ledger(tmp_path)
    for item, metric in ((1, "test accuracy %"), (2, "ARI"), (5, "ARI in 10 rounds")):
        assert rows[IFCA.format(item, metric)]["verdict"] == "agrees"
    first = rows[IFCA.format(5, "first round with ARI>=0.9")]
    assert (first["verdict"], first["mean"]) == ("agrees", None)  # Never, in both.
    assert "clove.table5" in first["command"]
    others = [row for row in rows.values() if row["kind"] != "not run"]
    assert len(others) == 4, "of Table 15's 50 clients these are none"


def test_public_code_that_has_the_number_is_the_cause(tmp_path):
    key = "clove / Table 1 / MNIST / Label skew 1 / FeSEM / test accuracy %"
    index = key.replace("Table 1", "Table 2").replace("test accuracy %", "ARI")
    paper = {row.key: row.mean or 0.0 for row in published()}
    wanted = paper[key], paper[index]
    put_clove(tmp_path, clove_trial("fesem"), *3 * [20.0], index=0.5)
    like = clove_trial("fesem_reference")
    rows = ledger(tmp_path)
    assert rows[key]["verdict"] == "differs (open)"
    put_clove(tmp_path, like, *3 * [wanted[0]], index=wanted[1])
    row = ledger(tmp_path)[key]
    assert row["verdict"].startswith("differs (tested cause: public code: FeSEM as in")
    assert row["mean"] == pytest.approx(20), "the number is that of its own form"
    assert "cause tested by `python -m experiments run clove.table1" in row["note"]
    assert "--methods fesem_reference" in row["note"]
    # Control: it differs in the accuracy, and so explains no index either.
    put_clove(tmp_path / "far", clove_trial("fesem"), *3 * [20.0], index=0.5)
    put_clove(tmp_path / "far", like, *3 * [50.0], index=wanted[1])
    rows = ledger(tmp_path / "far")
    early = index.replace("2", "5").replace("ARI", "ARI in 10 rounds")
    for other in (key, index, early):
        assert rows[other]["verdict"] == "differs (open)"


def test_the_papers_size_comes_first_and_nothing_is_mixed(tmp_path):
    put_clove(tmp_path, clove_trial(), 87.4)
    put_clove(tmp_path, clove_trial(num_rounds=10), *5 * [50.0])
    row = ledger(tmp_path)[FEDAVG]
    assert (row["seeds"], row["size"]) == (1, "paper")
    # Of two reduced ones the one with more seeds, then the longer.
    other = tmp_path / "other"
    put_clove(other, clove_trial(num_rounds=50), 1.0)
    put_clove(other, clove_trial(num_rounds=20), 1.0, 1.0)
    assert ledger(other)[FEDAVG]["rounds"] == 20
    put_clove(other, clove_trial(num_rounds=50), 1.0, 1.0)
    assert ledger(other)[FEDAVG]["rounds"] == 50
    # Before these, the one that is like the paper in more.
    put_clove(other, clove_trial(num_rounds=60, num_hidden=9), *3 * [1.0])
    assert ledger(other)[FEDAVG]["rounds"] == 50


def test_seeds_of_several_stores_and_versions_are_told(tmp_path):
    put_clove(tmp_path / "one", clove_trial(), 87.4)
    put_clove(tmp_path / "two", clove_trial(), 1.0, 87.4, 87.4, code="b")
    row = ledger(tmp_path / "one", tmp_path / "two")[FEDAVG]
    assert row["verdict"] == "agrees", "the first store's block counts"
    one, two = tmp_path / "one", tmp_path / "two"
    told = f"`{two}` has other numbers of these cells"
    assert row["note"] == f"{told}; seeds of 2 versions of the code"
    assert row["stores"] == f"{one} {two}"
    # Control: a copy has the same.
    shutil.copytree(one, tmp_path / "copy")
    row = ledger(one, tmp_path / "copy")[FEDAVG]
    assert (row["note"], row["stores"]) == (None, str(one))


def test_a_folder_that_is_no_store_is_refused(tmp_path, capsys):
    (tmp_path / "tables").mkdir()
    flags = ["--stores", str(tmp_path / "tables"), "--out", str(tmp_path / "out")]
    assert main(["ledger", *flags]) == 2
    assert "must be the folder of a store" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_store_of_another_revision_or_of_no_trial_is_stale(tmp_path):
    old = study.REVISION + 1
    put_clove(tmp_path / "old", clove_trial(), *3 * [87.4], revision=old)
    row = ledger(tmp_path / "old")[FEDAVG]
    assert (row["verdict"], row["mean"], row["seeds"]) == ("stale", None, None)
    assert row["core_hours"] > 0 and row["cells"]

    fields = dataclasses.asdict(clove_trial())
    outputs = clove_outputs(clove_trial(), 87.4)
    strange = fields | {"temperature": 1.0}
    put(tmp_path / "strange", study.STUDY, study.REVISION, strange, outputs)
    assert ledger(tmp_path / "strange")[FEDAVG]["verdict"] == "stale"
    # What is present wins.
    put_clove(tmp_path / "old", clove_trial(), 87.4)
    assert ledger(tmp_path / "old")[FEDAVG]["verdict"] == "spread unknown"

    del fields["partition"]
    put(tmp_path / "lost", study.STUDY, study.REVISION, fields, outputs)
    other = dict.fromkeys(outputs, 0.5)  # Of an older layout.
    put(tmp_path / "lost", study.STUDY, old, dataclasses.asdict(clove_trial()), other)
    summary = write([tmp_path / "lost"], tmp_path / "out")
    assert (summary["lost_runs"], summary["skipped_files"]) == (2, 0)
    assert {row["kind"] for row in summary["rows"]} == {"not run"}


ROTATED = rotated.Trial(
    algorithm="local",
    start="paper",
    images="mnist",
    checksum="",
    num_clients=4800,
    num_samples=50,
    num_test_clients=800,
    num_test_samples=50,
    num_local_clients=4800,
    num_released=0,
    num_clusters=4,
    network="mlp",
    num_channels=0,
    num_hidden=200,
    num_rounds=300,
    rounds_between=10,
    num_participants=4800,
    num_epochs=0,
    num_steps=10,
    batch_size=0,
    step_size=0.1,
    decay=1.0,
    clients_per_chunk=100,
    repetition=0,
)
LOCAL = "ifca / Table 1 / Rotated MNIST / clients x samples 4800 x 50 / local / {}"


def put_rotated(folder, trial, first, last, seeds=5):
    """Local models with an accuracy after 10 rounds, and one after all others."""
    rounds = list(range(10, trial.num_rounds + 1, 10))
    accuracy = np.full(len(rounds), last / 100)
    accuracy[0] = first / 100
    for seed in range(seeds):
        fields = dataclasses.asdict(dataclasses.replace(trial, repetition=seed))
        own = papers.MNIST, table1.MNIST_REVISION, fields, {"accuracy": accuracy}
        put(folder, *own, coords={"round": rounds})


def test_local_models_as_released_explain_the_papers(tmp_path, monkeypatch):
    none = tmp_path / "findings.csv"
    none.write_text("key,kind,ours,finding,command\n")
    monkeypatch.setattr(verdicts, "FINDINGS", none)
    key = LOCAL.format("test accuracy %")
    put_rotated(tmp_path / "all", ROTATED, 63.32, 64.5)
    row = ledger(tmp_path / "all")[key]
    assert row["verdict"] == "differs (tested cause: public code: as released)"
    assert (row["mean"], row["rounds"]) == (pytest.approx(64.5), 300)
    assert "--num-clients 4800 --num-samples 50" in row["command"]
    # Control: other models as released explain nothing.
    put_rotated(tmp_path / "other", ROTATED, 60.0, 64.5)
    assert ledger(tmp_path / "other")[key]["verdict"] == "differs (open)"
    short = dataclasses.replace(ROTATED, num_rounds=10)
    put_rotated(tmp_path / "ten", short, 63.32, 63.32)
    row = ledger(tmp_path / "ten")[key]
    assert (row["verdict"], row["size"]) == ("agrees", "paper, as released")


def test_three_of_five_seeds_are_reduced(tmp_path):
    put_rotated(tmp_path, ROTATED, 60.0, 63.32, seeds=3)
    row = ledger(tmp_path)[LOCAL.format("test accuracy %")]
    assert row["verdict"] == "reduced (3 of 5 seeds)"


# Against itself: plans, commands, files.


def test_there_is_a_plan_and_a_cost_for_every_number():
    plans = papers.plans()
    assert set(plans) == {number.key for number in published()}
    for number in published():
        assert entries.core_hours(number, plans[number.key]) > 0
    with entries.COSTS.open(newline="") as file:
        assert all(row["note"] for row in csv.DictReader(file))


def as_typed(command):
    """The configuration of a command."""
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "experiments"]
    return configure(parse(PROGRAM, words[3:]))


def test_commands_are_the_plans():
    first = {(n.paper, n.item, n.dataset, n.algorithm[:5]): n for n in published()}
    for number in list(first.values())[::3]:
        plan = papers.plans()[number.key]
        assert as_typed(entries.command(plan)) == plan.config


def campaign(folder, does: str) -> subprocess.Popen:
    """The campaign, of commands that are only written down and then do so."""
    command = folder / "command"
    command.write_text(f'#!/bin/sh\necho "$@" >>"{folder}/said"\n{does}\n')
    command.chmod(0o755)
    script = pathlib.Path(verdicts.__file__).parents[1] / "figures/ledger/campaign"
    return subprocess.Popen(
        [script, folder, "2"],
        env={**os.environ, "PYTHON": str(command), "STORE": str(folder / "store")},
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # It lowers the priority of its whole session.
    )


def lines(file) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_each_worker_of_the_campaign_has_its_share_of_every_command(tmp_path):
    assert campaign(tmp_path, ":").wait(60) == 0
    own = {}
    for worker in ("1/2", "2/2"):
        every = lines(tmp_path / "said")
        mine = [line for line in every if f"--shard {worker}" in line]
        own[worker] = [line.replace(f" --shard {worker}", "") for line in mine]
    assert own["1/2"] == own["2/2"] and len(own["1/2"]) > 20
    for line in own["1/2"]:
        arguments = parse(PROGRAM, shlex.split(line)[2:])
        assert EXPERIMENTS[arguments.id].has_jobs
        # What nothing is published of is no part of the ledger.
        is_published = arguments.id != "compare.all"
        assert (arguments.store == tmp_path / "store") == is_published
        configure(arguments)


def test_a_campaign_whose_commands_fail_goes_on_and_says_so(tmp_path):
    assert campaign(tmp_path, "exit 1").wait(60) == 1
    assert len(lines(tmp_path / "said")) > 40


@pytest.mark.parametrize(
    ("sign", "status"), [(signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_stopped_campaign_begins_nothing_more_and_leaves_nobody(
    tmp_path, sign, status
):
    if sign == signal.SIGKILL and shutil.which("setpriv") is None:
        pytest.skip("nobody tells a process that its parent was killed")
    running = campaign(tmp_path, f'echo $$ >>"{tmp_path}/ids"; exec sleep 600')
    ids = lambda: lines(tmp_path / "ids")
    try:
        wait_until(lambda: len(lines(tmp_path / "said")) == len(ids()) == 2)
        running.send_signal(sign)
        assert running.wait(60) == status
        wait_until(lambda: not any(map(is_alive, ids())))
        assert len(lines(tmp_path / "said")) == len(ids()) == 2
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError("it never was so")


def is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    "changes",
    [
        {"num_rounds": 20, "step_size": 0.01},
        {"num_clients": 10, "num_participants": 10, "num_samples": 100},
        {"num_channels": 4, "num_hidden": 32, "num_test_samples": 50},
    ],
)
def test_the_command_of_a_reduced_run_makes_it_again(tmp_path, changes):
    trial = clove_trial(**changes)
    put_clove(tmp_path, trial, 1.0, 2.0)
    row = ledger(tmp_path)[FEDAVG]
    config = as_typed(row["command"])
    assert config.num_trials == 2
    (grid,) = grids(config, digits("mnist"))
    assert grid.trial == trial


def test_damaged_files_are_counted_and_skipped(tmp_path, capsys):
    store, out = tmp_path / "store", tmp_path / "out"
    put_clove(store, clove_trial(), 87.4, 87.4, 87.4)
    file = next(store.glob("cells/*/*.npz"))
    file.write_bytes(file.read_bytes()[:-1])
    kept.write(store / "cells" / "x" / "0.npz", {"score": np.zeros(1)}, "a text")
    assert main(["ledger", "--stores", str(store), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("2 damaged files of the stores were skipped") == 1
    with (out / "ledger.csv").open(newline="") as opened:
        rows = {row["key"]: row for row in csv.DictReader(opened)}
    assert len(rows) == 770 and rows[FEDAVG]["verdict"] == "spread unknown"
    text = (out / "table.md").read_text()
    assert "| clove, Table 1 | 144 | 0 | 0 | 0 | 1 |" in text
    assert text.count("| not run |\n") == 769 + 1  # With the counts' heading.
    page = (out / "ledger.html").read_text()
    assert page.count("<tr data-paper=") == 770 and "http" not in page
    assert rows[FEDAVG]["command"] in page


def test_nothing_is_needed_and_json_is_one_document(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["ledger", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["counts"][-1]["not run"] == len(document["rows"]) == 770
    assert pathlib.Path("figures", "ledger", "ledger.csv").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--stores", "nowhere"], "`--stores` must be folders, got `nowhere`."),
        (
            ["--preset", "paper"],
            "unrecognized arguments: --preset paper; see python -m experiments ledger"
            " --help",
        ),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, flags, message):
    monkeypatch.chdir(tmp_path)
    assert main(["ledger", *flags]) == 2
    assert capsys.readouterr() == ("", f"error: {message}\n")
    assert not list(tmp_path.iterdir())
