"""Command line of the experiments: `python -m experiments --help`.

JAX and what takes as long to import is left to whoever computes: listing, help and
refusals are there at once.
"""

import argparse
import contextlib
import dataclasses
import functools
import gc
import importlib
import json
import math
import os
import pathlib
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cfljax import command, cores
from cfljax.command import Command, Program
from experiments import arguments as flags_of
from experiments import registry
from experiments.arguments import (
    STORE,
    check_data,
    check_folder,
    check_use,
    configure,
    entry_of,
    find,
    folder_from_environment,
    look_of,
    options_of,
)
from experiments.options import Options
from experiments.registry import Entry


def plain(value: Any) -> Any:
    """A summary in JSON's own types: NaN and infinity become null."""
    import numpy as np

    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print(summary: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(plain(summary), indent=2, allow_nan=False))
    else:
        show(summary)


def show(summary: Mapping[str, Any]) -> None:
    """A summary for a person: its headline, then the files."""
    print(summary["headline"])
    for file in summary["files"]:
        print(f"wrote {file}")
    if summary.get("failed_cells"):
        print(f"{summary['failed_cells']} cells failed; start again to retry them")


def listing(arguments: argparse.Namespace) -> int:
    """Print all ids by paper; always 0."""
    from experiments import listing as listed

    print(listed.as_json() if arguments.json else listed.as_text())
    return 0


def data(arguments: argparse.Namespace) -> int:
    """Print which real data sets are here; always 0."""
    from experiments import datasets

    folder = check_data(arguments.data)
    found = list(datasets.look(folder))
    if arguments.json:
        print(json.dumps([one._asdict() for one in found], indent=2))
    else:
        print("\n".join([datasets.named(folder), *map(datasets.as_text, found)]))
    return 0


def ledger(arguments: argparse.Namespace) -> int:
    """Write the ledger of published numbers; always 0."""
    for folder in arguments.stores or ():
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"`--stores` must be folders, got `{folder}`.")
    check_folder(arguments.out)
    with _importing():
        from experiments.ledger.write import write
    _print(write(arguments.stores, arguments.out), as_json=arguments.json)
    return 0


def gallery(arguments: argparse.Namespace) -> int:
    """Make the folders that the gallery lacks, and its page; 1 if one failed."""
    ids = [find(registry.EXPERIMENTS, id).id for id in dict.fromkeys(arguments.ids)]
    data = check_data(arguments.data or folder_from_environment())
    if arguments.page and ids:
        raise ValueError(f"`--page` is of all experiments, got {' '.join(ids)}.")
    check_folder(arguments.out)
    with _importing():
        from experiments.gallery.make import write
    summary = write(
        [] if arguments.page else ids or list(registry.EXPERIMENTS),
        arguments.out,
        preset=arguments.preset,
        data=data,
        store=arguments.store or pathlib.Path(STORE),
        tell=(lambda line: None) if arguments.json else _say,
    )
    _print(summary, as_json=arguments.json)
    return 1 if summary["failed"] else 0


def compare(arguments: argparse.Namespace) -> int:
    """Compare algorithms, or serve the leaderboard; the exit status."""
    if arguments.action is None:
        return execute(arguments)
    return export(arguments) if arguments.action == "export" else submit(arguments)


def submit(arguments: argparse.Namespace) -> int:
    """Take submissions into a board and draw it; 2 if one of them is refused."""
    out = arguments.out or arguments.board
    check_folder(arguments.board)
    check_folder(out)
    from experiments.compare import board

    try:
        found, written = board.add(
            arguments.files,
            arguments.board,
            replaces=arguments.replace,
            is_rehearsal=arguments.dry_run,
        )
    except board.RefusedError as error:
        for line in error.lines:
            command.complain(line)
        return error.exit_status
    files = list(map(str, written))
    if arguments.dry_run:
        lines = [f"would write {file}" for file in files] or ["nothing is new"]
        summary = {"headline": "\n".join(["all is right", *lines]), "files": []}
    else:
        with _importing():
            from experiments.compare.standings import draw
        drawn = draw(found, out)
        summary = {**drawn, "files": [*files, *drawn["files"]]}
    _print(summary, as_json=arguments.json)
    return 0


def export(arguments: argparse.Namespace) -> int:
    """Write the data of `compare.all` for other frameworks; always 0."""
    if arguments.out.suffix != ".npz":
        raise ValueError(f"`--out` must name a file FILE.npz, got {arguments.out}.")
    data = check_data(arguments.data) or folder_from_environment()
    check_folder(arguments.out.parent)
    with _importing():
        from experiments.compare.exports import write
    options = Options(out=arguments.out.parent, data=data)
    summary = write(configure(arguments), options, arguments.out)
    _print(summary, as_json=arguments.json)
    return 0


def launch(arguments: argparse.Namespace) -> int:
    """Run an experiment by several workers; 1 if one of them failed here."""
    from experiments import launch as launched

    return launched.main(arguments)


def store(arguments: argparse.Namespace) -> int:
    """List, verify or repair a folder of results; 1 if something is damaged."""
    from experiments import stores

    return stores.main(arguments)


def _say(line: str) -> None:
    print(line, flush=True)


def execute(arguments: argparse.Namespace) -> int:
    """Run an experiment or benchmark; the exit status."""
    if arguments.coordinator is None:
        return _execute(arguments)
    entry = entry_of(arguments)
    check_use(entry, arguments)  # Before anybody is waited for.
    check_folder(options_of(arguments).out)
    if arguments.devices is not None:
        cores.make_devices(arguments.devices)
    from cfljax import engine

    is_auto = arguments.coordinator == "auto"
    address = None if is_auto else arguments.coordinator
    with (
        tempfile.TemporaryDirectory() as nowhere,
        engine.clients_over_processes(address, arguments.process),
    ):
        if not engine.is_first():
            arguments.out, arguments.store = pathlib.Path(nowhere, "out"), None
        return _execute(arguments)


def _execute(arguments: argparse.Namespace) -> int:
    entry = entry_of(arguments)
    is_own, is_run = arguments.command == "compare", arguments.command == "run"
    check_use(entry, arguments)
    options = options_of(arguments)
    check_folder(options.out)
    command.check_addresses()
    with _importing():
        found = _prepare_devices(entry, arguments.devices)  # From here on JAX is there.
        config = configure(arguments)
    options = dataclasses.replace(options, precision=arguments.precision)
    from cfljax import engine

    if engine.num_processes() > 1:
        _check_alike(entry, config, options)
        progress = options.progress and engine.is_first()
        options = dataclasses.replace(options, progress=progress)
    if arguments.out is None:
        from experiments.commands import usual_folder

        usual = (
            pathlib.Path("results", "compare", config.folder)
            if is_own
            else usual_folder(entry, arguments.preset, config)
        )
        options = dataclasses.replace(options, out=usual)
    engine.keep_programs()
    if found is not None and options.progress and sys.stderr.isatty():
        what = "clients" if entry.spreads_clients else "trials"
        print(f"{what} on {arguments.devices or found} devices", file=sys.stderr)
    if arguments.dask is not None:
        from experiments import cluster

        cluster.fill(arguments.dask, entry, config, options)
    is_whole = not arguments.plan and options.shard is None
    if is_whole and is_run:  # A benchmark has the cores for itself.
        _import_beside("matplotlib.backends.backend_pdf")
    with engine.origins() as origins, _looking(arguments):
        if arguments.log is None:
            summary = _summary(entry, config, options, plans=arguments.plan)
        else:
            summary = _logged(entry, config, options, arguments.log)
    if not engine.is_first():
        return 1 if summary.get("failed_cells") else 0
    if is_whole and summary["files"]:
        told = _told(entry, arguments, config, options)
        if is_own:
            told["source"] = summary["source"]
        file = origins.write(options.out, **told)
        summary = {**summary, "files": [*summary["files"], str(file)]}
    _print(summary, as_json=arguments.json)
    return 1 if summary.get("failed_cells") else 0


def _check_alike(entry: Entry, config: Any, options: Options) -> None:
    """Raises ValueError unless all processes run the same code on the same."""
    from cfljax import engine

    own = ("chunk", "devices", "precision")
    engine.check_alike(
        {
            "experiment": entry.id,
            **dataclasses.asdict(config),
            **{f"--{name}": getattr(options, name) for name in own},
            **engine.sources.describe(entry.load().main),
        }
    )


def _summary(
    entry: Entry, config: Any, options: Options, *, plans: bool
) -> Mapping[str, Any]:
    """Of what was asked for: what it would cost, a worker's share, or the whole."""
    module, name = entry.load(), entry.id or "compare"
    if plans:
        from experiments import plan

        return plan.plan(name, options, module.jobs(config, options))
    if options.shard is not None:
        from experiments import jobs

        return jobs.share_of(entry, config, options)
    return module.main(config, options)


def _logged(entry: Entry, config: Any, options: Options, kind: str) -> dict[str, Any]:
    """As `_summary` of the whole, with a log of its runs beside it; what cannot be
    logged is refused before it is run."""
    from cfljax import engine
    from experiments import jobs

    engine.check_log(kind)
    module = entry.load()
    jobs.check_logged(entry.id or "compare", module.jobs(config, options))
    with jobs.watching() as ran:
        summary = module.main(config, options)
    logs = jobs.log(ran, kind, options.out / "log")
    return {**summary, "files": [*summary["files"], *logs]}


def _told(
    entry: Entry, arguments: argparse.Namespace, config: Any, options: Options
) -> dict[str, Any]:
    """What a folder of results says of the command that wrote it."""
    from experiments.commands import typed

    is_own = entry is registry.COMPARISON
    asked = [arguments.command, *filter(None, [entry.id])]
    asked += [] if is_own else ["--preset", arguments.preset]
    further = []
    if options.data is not None and entry.takes_data:
        further += ["--data", "FOLDER"]
    if options.precision is not None:
        further += ["--precision", f"{options.precision:g}"]
    usual = entry.load().preset(arguments.preset)
    return {
        "experiment": entry.id or arguments.command,
        "preset": arguments.preset,
        "command": typed(asked, usual, config, *further),
    }


def _looking(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[Any]:
    """Draws pictures as was typed; refuses at once what cannot be drawn.

    Raises:
      ValueError: for a size that is not positive.
    """
    changes = look_of(arguments)
    if not changes:
        return contextlib.nullcontext()
    from cfljax import report

    return report.looking(**changes)


def _import_beside(module: str) -> None:
    """Import in a thread what is needed in the end, a third of a second of a core that
    waits for compiled programs."""
    importing = functools.partial(importlib.import_module, module)
    threading.Thread(target=importing, daemon=True).start()


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    """Modules live to the end: to search them for garbage takes a third of a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _prepare_devices(entry: Entry, wanted: int | None) -> int | None:
    """Make the devices that were asked for, before anything uses JAX; how many there
    are, None where nothing is spread over them."""
    if wanted is None and not entry.spreads_clients:
        return None
    from cfljax import engine

    found = engine.use_cores(wanted)
    if wanted is not None and wanted > found:
        raise ValueError(f"`--devices` must be at most {found} here, got {wanted}.")
    return found


_RESUMES = "stopped; start again to resume"
COMMANDS = (
    Command(
        "list",
        "list all experiments by paper, with what they take and which have results",
        flags_of.add_list,
        listing,
        examples=("list", "list --json"),
    ),
    Command(
        "run",
        "run an experiment: a table, a figure or a study of a paper",
        flags_of.add_run,
        execute,
        "ID [FLAGS]",
        (
            "run ifca.fig3a --help",
            "run ifca.fig3a --preset quick",
            "run ifca.fig3a --convention reference paper --noise 0.1 0.2",
            "run ifca.fig3a --num-trials 1000 --precision .2",
            "run werner.table1 --data FOLDER --loss probability",
            "run ifca.fig3c --preset paper --out FOLDER --shard 1/2   # and then 2/2,",
            "run ifca.fig3c --preset paper --out FOLDER   # and then the table",
            "run ifca.fig3c --preset paper --out FOLDER --dask tcp://10.0.0.1:8786",
            "run clove.table1 --coordinator 10.0.0.1:1234 --process 1/2   # and 2/2",
        ),
        stopped=_RESUMES,
    ),
    Command(
        "bench",
        "run a benchmark: how fast this library is here",
        flags_of.add_bench,
        execute,
        "ID [FLAGS]",
        ("bench linear", "bench neural --algorithms ifca,clove"),
        stopped=_RESUMES,
    ),
    Command(
        "compare",
        "compare algorithms on data and sizes of your own",
        flags_of.add_compare,
        compare,
        "[ALGORITHM ...|submit|export] [FLAGS]",
        (
            "compare fedavg ifca --dataset my.npz --task my_module:make",
            "compare --algorithms fedavg,ifca,ditto:penalty=.1 "
            "--dataset fashion_mnist --data FOLDER",
            "compare --dataset digits --algorithms local,fedavg,clove --num-samples 20 "
            "--step-sizes .1 .03",
            "compare --dataset digits --algorithms fedavg,ifca "
            "--search fedavg:proximal=0,.1",
            "compare submit mine.json   # to the leaderboard of compare.all;",
            "compare export --out worlds.npz   # its data, for any framework",
        ),
        stopped=_RESUMES,
    ),
    Command(
        "launch",
        "run an experiment by several workers, on a Slurm cluster or here",
        flags_of.add_launch,
        launch,
        "ID --workers N [FLAGS]",
        (
            "launch ifca.fig3a --workers 8 --preset paper --dry-run",
            "launch ifca.fig3a --workers 8 --preset paper --out FOLDER "
            "--partition NAME --cpus 4 --memory-gib 16",
            "launch ifca.fig3c --workers 2 --local --num-trials 100",
        ),
        stopped=_RESUMES,
    ),
    Command(
        "data",
        "tell which real data sets are here, and how to get the others",
        flags_of.add_data,
        data,
        examples=("data", "data --data FOLDER"),
    ),
    Command(
        "store",
        "list, verify or repair what runs have stored",
        flags_of.add_store,
        store,
        "ls|verify|repair PATH [FLAGS]",
        (
            "store ls results/store",
            "store verify results/store --json",
            "store repair results/store --dry-run",
        ),
    ),
    Command(
        "ledger",
        "write all published numbers beside ours, with verdicts and commands",
        flags_of.add_ledger,
        ledger,
        examples=("ledger", "ledger --stores FOLDER"),
    ),
    Command(
        "gallery",
        "make a folder of figures and tables for each experiment, and a page of all",
        flags_of.add_gallery,
        gallery,
        "[ID ...] [FLAGS]",
        (
            "gallery --data FOLDER",
            "gallery werner.fig4 clove.fig3 --out results/figures",
        ),
        stopped=_RESUMES,
    ),
)
PROGRAM = Program(
    "python -m experiments",
    "Regenerate the papers' tables and figures, and measure how fast that is.",
    COMMANDS,
    "A run that was cut off, by whatever, resumes where it stopped when it is started "
    "again.",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return command.main(PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
