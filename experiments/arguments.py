"""What each command of the experiments takes, and an experiment's own flags."""

import argparse
import contextlib
import dataclasses
import difflib
import importlib.util
import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cfljax.command import Parser, at_least, integer, number, shown
from experiments import costs, flags, registry
from experiments.options import Options
from experiments.registry import Entry

MINUTES = 240  # Of a worker on a cluster; it is queued again when they are over.
STORE = "results/store"  # Of whatever is run without `--out`.
USUAL = "quick"  # The preset, unless one is named.
# What `study.settings` writes beside the fields of a configuration, and who says it.
_BESIDE = ("source", "precision")
_MOST_MEMORY = 1e9  # GiB.
_FOLDER: dict[str, Any] = {"type": pathlib.Path, "metavar": "FOLDER"}
# What `compare` does for the leaderboard, and what follows the word.
_OF_BOARD = {"submit": "[FILE ...] [FLAGS]", "export": "--out FILE [FLAGS]"}
_BUCKET = "s3://BUCKET/PREFIX"


def add_list(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `list`."""
    del words
    _add_json(parser)


def add_run(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `run`, and of the experiment that the words name."""
    entry = _asked(parser, words, registry.EXPERIMENTS)
    _add_preset(parser)
    _add_all(parser, words, entry)


def add_bench(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `bench`, and of the benchmark that the words name."""
    entry = _asked(parser, words, registry.BENCHMARKS)
    _add_preset(parser)
    _add_all(parser, words, entry)


def add_compare(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `compare`, or of what the first word asks of the leaderboard."""
    action = next(iter(words), None)
    parser.set_defaults(action=action if action in _OF_BOARD else None)
    if action in _OF_BOARD:
        parser.add_argument("action", choices=(action,), help=argparse.SUPPRESS)
        parser.usage = f"{parser.prog} {action} {_OF_BOARD[action]}"
        add = _add_submit if action == "submit" else _add_export
        return add(parser)
    parser.set_defaults(id="", preset=None)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="ALGORITHM",
        help="algorithms to compare, as --algorithms has them",
    )
    _add_config(parser.add_argument_group("the size of the whole"))
    _add_all(parser, words, registry.COMPARISON)


def _add_submit(parser: Parser) -> None:
    """The flags of `compare submit`."""
    parser.description = (
        "Check submissions to the leaderboard of compare.all, add them to it and draw "
        "it; without\nany, draw it again."
    )
    parser.epilog = (
        f"examples:\n  {parser.prog} submit mine.json --dry-run\n"
        f"  {parser.prog} submit results/compare.all/quick/results.json mine.json "
        "--board FOLDER"
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=pathlib.Path,
        metavar="FILE",
        help="submissions, in the form that docs/leaderboard.md explains",
    )
    parser.add_argument(
        "--board",
        default=pathlib.Path("figures", "leaderboard"),
        help="folder of the board, with a file for each method, all of one comparison; "
        "made by its first submission (default: figures/leaderboard)",
        **_FOLDER,
    )
    parser.add_argument(
        "--out",
        help="folder that table and figure are written to (default: that of --board)",
        **_FOLDER,
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="put methods in the place of others of their name, which are refused else",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what is wrong, or what would be written, and write nothing",
    )
    _add_json(parser)


def _add_export(parser: Parser) -> None:
    """The flags of `compare export`."""
    parser.description = (
        "Write the data of all worlds and seeds of compare.all, for algorithms of your "
        "own in any\nframework; flags are those of `run compare.all`."
    )
    parser.epilog = (
        f"examples:\n  {parser.prog} export --out worlds.npz\n"
        f"  {parser.prog} export --preset paper --data FOLDER --out worlds.npz"
    )
    parser.set_defaults(id="compare.all")
    _add_preset(parser)
    flags.add_fields(parser, flags.fields_of(registry.EXPERIMENTS["compare.all"]))
    _add_data(parser)
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        required=True,
        metavar="FILE",
        help="file of NumPy that is written, FILE.npz",
    )
    _add_json(parser)


def add_launch(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `launch`, and of the experiment that its workers run."""
    parser.set_defaults(words=tuple(words))
    entry = _asked(parser, words, registry.EXPERIMENTS)
    add_workers(parser)
    _add_preset(parser)
    _add_all(parser, words, entry, for_workers=True)


def add_data(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `data`."""
    del words
    _add_data(parser)
    _add_json(parser)


def add_ledger(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `ledger`."""
    del words
    parser.add_argument(
        "--stores",
        nargs="+",
        help="folders with results of runs, as `run --store` names them "
        "(default: figures/ledger/store, if it is there)",
        **_FOLDER,
    )
    parser.add_argument(
        "--out",
        default=pathlib.Path("figures", "ledger"),
        help="folder that the ledger's files are written to (default: figures/ledger)",
        **_FOLDER,
    )
    _add_json(parser)


def add_gallery(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `gallery`."""
    del words
    parser.add_argument(
        "ids",
        nargs="*",
        metavar="ID",
        help="experiments, as `list` names them (default: all of them)",
    )
    parser.add_argument(
        "--out",
        default=pathlib.Path("figures"),
        help="folder of the gallery; what is there of the paper's size stays, what is "
        "damaged or of another size is made again (default: figures)",
        **_FOLDER,
    )
    parser.add_argument(
        "--preset",
        choices=registry.PRESETS,
        default=USUAL,
        help="size of the experiments that are run (default: quick)",
    )
    parser.add_argument(
        "--page", action="store_true", help="run nothing, only write the page again"
    )
    _add_data(parser)
    parser.add_argument(
        "--store",
        type=_store,
        metavar="FOLDER",
        help=f"folder, or {_BUCKET}, in which runs look for what is computed, and put "
        "the rest (default: results/store)",
    )
    _add_json(parser)


def add_store(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `store`."""
    del words
    parser.add_argument(
        "action",
        choices=("ls", "verify", "repair"),
        help="ls: what is there; verify: whether every file is what its place says; "
        "repair: delete what is damaged or left over, and nothing else",
    )
    parser.add_argument(
        "path",
        type=_store,
        metavar="PATH",
        help=f"a store, {_BUCKET} too; a folder that `run --out` wrote, a "
        "study's folder of cells, or the file of a checkpoint",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what `repair` would delete, and delete nothing",
    )
    _add_json(parser)


def _asked(
    parser: Parser, words: Sequence[str], entries: Mapping[str, Entry]
) -> Entry | None:
    """The experiment that the words name: the first of them, or if that is a flag the
    first that is an id; None where there is none, for the parser to complain of."""
    first = next(iter(entries))
    named = parser.add_argument(
        "id", metavar="ID", help=f"what to run, as `list` names it, such as {first}"
    )
    named.completer = lambda **_: list(entries)  # type: ignore[attr-defined]
    if words and not words[0].startswith("-"):
        return find(entries, words[0])
    return next((entries[word] for word in words if word in entries), None)


def _add_all(
    parser: Parser,
    words: Sequence[str],
    entry: Entry | None,
    *,
    for_workers: bool = False,
) -> None:
    """What every run takes, and the experiment's own flags if it is known."""
    if "--no-cache" in words:  # To ask for the flags may already import JAX.
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    if entry is None:
        name = parser.prog.split()[-1]
        parser.description = (
            f"{parser.description}\n`{name} ID --help` shows the flags of one of them, "
            "with its values and what it takes."
        )
    else:
        paper = registry.PAPERS.get(entry.id.partition(".")[0])
        title = f"{paper}: {entry.title}" if paper else entry.title
        parser.description = "\n".join([title, *_costs(entry)])
        flags.add_fields(parser, flags.fields_of(entry))
        if entry.id:
            parser.usage = (
                f"{parser.prog} {entry.id} {'--workers N ' * for_workers}[FLAGS]"
            )
            parser.epilog = _examples(parser.prog, entry)
    _add_results(parser, entry, for_workers=for_workers)
    if not for_workers:
        _add_look(parser)
    _add_machine(parser, entry, for_workers=for_workers)


def _costs(entry: Entry) -> list[str]:
    """Lines of what the presets take."""
    is_paper = entry.id in registry.EXPERIMENTS
    lines = costs.lines(entry.id) if is_paper else []
    if entry.has_jobs:
        lines.append("`--plan` measures here what is left to do, before it is started.")
    return ["", *lines] if lines else []


def _examples(prog: str, entry: Entry) -> str:
    """Commands of one experiment that can be typed."""
    own = f"{prog} {entry.id}"
    data = " --data FOLDER" if entry.takes_data else ""
    if prog.endswith(" launch"):
        lines = [f"--workers 2 --local{data}", f"--workers 8 --preset paper{data}"]
    else:
        lines = [f"--preset quick{data}", f"--preset paper{data}"]
        lines += [f"--config results/{entry.id}/quick/config.json{data}"]
    return "\n".join(["examples:", *(f"  {own} {line}" for line in lines)])


def _add_json(parser: Any) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document, for programs"
    )


def _add_data(parser: Any, *, is_used: bool = True) -> None:
    parser.add_argument(
        "--data",
        help=_used(
            is_used,
            "folder with the real data sets; `data` lists them (default: CFLJAX_DATA)",
        ),
        **_FOLDER,
    )


def _add_config(group: Any) -> None:
    group.add_argument(
        "--config",
        type=pathlib.Path,
        metavar="FILE",
        help="start from the settings of a `config.json` that a run has written; "
        "flags that are typed change them",
    )


def _add_preset(parser: Parser) -> None:
    """Where the values come from that no flag gives."""
    group = parser.add_argument_group("the size of the whole")
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "--preset",
        choices=registry.PRESETS,
        help="all settings at once: quick, for a first look in minutes, or paper, as "
        f"published (default: {USUAL})",
    )
    _add_config(where)


def _add_results(parser: Parser, entry: Entry | None, *, for_workers: bool) -> None:
    """Where data come from and results go."""
    group = parser.add_argument_group("data and results")
    _add_data(group, is_used=entry is None or entry.takes_data)
    group.add_argument(
        "--out",
        help="folder that tables and figures are written to (default: one below "
        "`results` that is named after the settings)",
        **_FOLDER,
    )
    group.add_argument(
        "--store",
        type=_store,
        metavar="FOLDER",
        help=_used(
            entry is None or entry.uses_store,
            "folder of what is computed already, which is looked up and added to "
            "(default: `store` in the folder of --out, else results/store, where all "
            f"experiments find each other's); or {_BUCKET} of an object store, whose "
            "server and credentials are those of AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID "
            "and so on",
        ),
    )
    group.add_argument(
        "--accept-code",
        metavar="WHY",
        help=_used(
            entry is None or entry.uses_store,
            "complete what another version of the code has begun in the store; the "
            "reason that you give is recorded",
        ),
    )
    parser.set_defaults(json=False, log=None)
    if not for_workers:
        group.add_argument(
            "--log",
            choices=("csv", "tensorboard", "wandb", "mlflow"),
            help=_used(
                entry is None or entry.has_jobs,
                "write what each run measured by round as well, to `log` in the folder "
                "of --out; all but csv need the extra `log`",
            ),
        )
        _add_json(group)


def _add_look(parser: Parser) -> None:
    """How pictures are drawn, which changes no number."""
    group = parser.add_argument_group("pictures")
    group.add_argument(
        "--formats",
        nargs="+",
        choices=("svg", "pdf", "png"),
        help="files that a picture is written to (default: all three)",
    )
    group.add_argument(
        "--width",
        type=number,
        metavar="INCHES",
        help="width of a picture, such as 3.5 for a column (default: what its panels "
        "need)",
    )
    group.add_argument(
        "--font-size",
        type=number,
        metavar="POINTS",
        help="size of a picture's letters (default: 10)",
    )
    group.add_argument(
        "--caption",
        action="store_true",
        help="draw the title into the picture, which else stands in a text file beside "
        "it",
    )


def look_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was typed of pictures, by field of `report.Look`."""
    typed = {
        "formats": arguments.formats and tuple(dict.fromkeys(arguments.formats)),
        "width": arguments.width,
        "font_size": arguments.font_size,
        "caption": arguments.caption or None,
    }
    return {name: value for name, value in typed.items() if value is not None}


def _add_machine(parser: Parser, entry: Entry | None, *, for_workers: bool) -> None:
    """What the machine may be used for."""
    is_sweep = entry is None or entry.is_sweep
    has_jobs = entry is None or entry.has_jobs
    group = parser.add_argument_group("the machine")
    group.add_argument(
        "--devices",
        type=integer,
        metavar="N",
        help=_used(
            is_sweep or has_jobs or (entry is not None and entry.spreads_clients),
            "cores or accelerators to use; results do not depend on it (default: all "
            "for neural networks, one for everything else)",
        ),
    )
    group.add_argument(
        "--memory",
        type=number,
        metavar="GIB",
        help="most memory that trials computed together may take, in GiB (default: "
        "half of what is free)",
    )
    group.add_argument(
        "--chunk",
        type=integer,
        metavar="N",
        help="trials computed together; results do not depend on it (default: as many "
        "as fit in the memory)",
    )
    group.add_argument(
        "--no-cache",
        action="store_true",
        help="compile everything anew, rather than use programs that earlier runs have "
        "kept in CFLJAX_CACHE (default: `cfljax` in the user's cache)",
    )
    group.add_argument(
        "--precision",
        type=number,
        metavar="W",
        help=_used(
            is_sweep,
            "stop repeating a setting once its confidence interval is shorter than W "
            "(default: never)",
        ),
    )
    shares = entry is None or entry.is_sweep or entry.has_jobs
    group.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help=_used(
            shares and not for_workers,
            "be worker I of N that fill one store together, and write no table; run "
            "without it for that, when all have ended",
        ),
    )
    parser.set_defaults(
        plan=False, wait=False, dask=None, coordinator=None, process=None
    )
    if not for_workers:
        group.add_argument(
            "--wait",
            action="store_true",
            help=_used(
                shares,
                "where another run computes what is left, stay until it has, and do "
                "what it leaves undone, instead of ending with status 2",
            ),
        )
        group.add_argument(
            "--dask",
            metavar="ADDRESS",
            help=_used(
                shares,
                "have the workers of a dask cluster fill the store, which all machines "
                "must see, and write the table at the end; the address of its "
                "scheduler, such as tcp://10.0.0.1:8786",
            ),
        )
        group.add_argument(
            "--coordinator",
            metavar="HOST:PORT",
            help=_used(
                shares,
                "spread clients, or trials, over several processes that are started "
                "with the same words but --process; the address where the first "
                "listens, or `auto` as Slurm or Open MPI have started them",
            ),
        )
        group.add_argument(
            "--process",
            type=_shard,
            metavar="I/N",
            help=_used(
                shares,
                "be process I of N; the first has the store and writes the table",
            ),
        )
        group.add_argument(
            "--plan",
            action="store_true",
            help=_used(
                has_jobs,
                "compute nothing; measure a round or two, and print what is to do, "
                "what the store has, and the core-hours to the end",
            ),
        )


def _used(is_used: bool, text: str) -> str:
    """Help of a flag, hidden where it would be refused."""
    return text if is_used else argparse.SUPPRESS


def _store(text: str) -> pathlib.Path | str:
    """A folder, or a place in a bucket."""
    if "://" in text and not text.startswith("s3://"):
        raise argparse.ArgumentTypeError(
            f"must be a folder or {_BUCKET}, got {shown(text)}"
        )
    return text if text.startswith("s3://") else pathlib.Path(text)


def _shard(text: str) -> tuple[int, int]:
    """`(I, N)` of "I/N"; their range is checked with the other options."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(f"must be like 2/8, got {shown(text)}")
    return int(match[1]), int(match[2])


def add_workers(parser: Parser) -> None:
    """What `launch` takes for itself; all else is each worker's."""
    group = parser.add_argument_group("the workers")
    count: dict[str, Any] = {"type": at_least(1)}
    group.add_argument(
        "--workers",
        required=True,
        metavar="N",
        help="how many processes share the work",
        **count,
    )
    for name, unit, text in (
        ("--time", "MINUTES", f"limit of a worker (default: {MINUTES} on a cluster)"),
        ("--cpus", "N", "processor cores of a worker (default: the cluster's)"),
        ("--gpus", "N", "accelerators of a worker (default: none)"),
        ("--memory-gib", "GIB", "memory of a worker (default: the cluster's)"),
    ):
        group.add_argument(name, metavar=unit, help=text, **count)
    group.add_argument(
        "--partition", metavar="NAME", help="partition of the Slurm cluster"
    )
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "--local", action="store_true", help="run all workers here, and wait for them"
    )
    where.add_argument(
        "--dry-run",
        action="store_true",
        help="print the script for the cluster, and submit nothing",
    )


def find(entries: Mapping[str, Entry], name: str) -> Entry:
    """The entry of an id; ValueError naming the nearest ids if there is none."""
    if name in entries:
        return entries[name]
    near = difflib.get_close_matches(name, entries, n=3, cutoff=0.4) or list(entries)
    raise ValueError(f"unknown id {shown(name)}; nearest: {', '.join(near)}.")


def entry_of(arguments: argparse.Namespace) -> Entry:
    """What is to be run."""
    if arguments.command == "compare" and not arguments.id:
        return registry.COMPARISON
    is_bench = arguments.command == "bench"
    entries = registry.BENCHMARKS if is_bench else registry.EXPERIMENTS
    return find(entries, arguments.id)


def check_use(entry: Entry, arguments: argparse.Namespace) -> None:
    """Refuse flags that an experiment has no use for, and data that are not there.

    Raises:
      ValueError: for such a flag, or if what one needs is not installed.
      FileNotFoundError: if `--data` names no folder.
    """
    shard = arguments.shard and "/".join(map(str, arguments.shard))
    process = arguments.process and "/".join(map(str, arguments.process))
    is_long = entry.has_jobs or entry.spreads_clients
    for flag, value, is_used in (
        ("--devices", arguments.devices, entry.is_sweep or is_long),
        ("--precision", arguments.precision, entry.is_sweep),
        ("--plan", arguments.plan or None, entry.has_jobs),
        ("--shard", shard, entry.is_sweep or entry.has_jobs),
        ("--wait", arguments.wait or None, entry.is_sweep or entry.has_jobs),
        ("--dask", arguments.dask, entry.is_sweep or entry.has_jobs),
        ("--coordinator", arguments.coordinator, entry.is_sweep or entry.has_jobs),
        ("--process", process, entry.is_sweep or entry.has_jobs),
        ("--store", arguments.store, entry.uses_store),
        ("--accept-code", arguments.accept_code, entry.uses_store),
        ("--data", arguments.data, entry.takes_data),
        ("--log", arguments.log, entry.has_jobs),
    ):
        if value is not None and not is_used:
            name = arguments.id or "compare"
            raise ValueError(f"`{flag}` has no use for {name}, got {value}.")
    if arguments.log and (shard or arguments.plan):
        raise ValueError(
            "`--log` is of whole runs: leave it to a command without "
            f"`{'--shard' if shard else '--plan'}`."
        )
    if arguments.dask is not None:
        given = (
            ("--shard", shard),
            ("--plan", arguments.plan),
            ("--log", arguments.log),
        )
        for flag, value in given:
            if value:
                raise ValueError(f"`{flag}` and `--dask` exclude each other.")
        if importlib.util.find_spec("distributed") is None:
            raise ValueError(
                "`--dask` needs distributed; install the extra `dask`, or it alone: "
                "`python -m pip install distributed`."
            )
    _check_processes(arguments, process)
    check_data(arguments.data)


def _check_processes(arguments: argparse.Namespace, process: str | None) -> None:
    """Raises ValueError unless it is clear who computes together."""
    if arguments.coordinator is None:
        if process is not None:
            raise ValueError(
                f"`--process {process}` needs `--coordinator HOST:PORT`, where the"
                " first one listens."
            )
        return
    if (arguments.coordinator == "auto") != (process is None):
        raise ValueError(
            "`--coordinator HOST:PORT` needs `--process I/N`, and `--coordinator auto`"
            f" has no use for it, got {shown(arguments.coordinator)} and {process}."
        )
    for flag in ("shard", "plan", "dask"):
        if getattr(arguments, flag):
            raise ValueError(f"`--{flag}` and `--coordinator` exclude each other.")


def options_of(arguments: argparse.Namespace) -> Options:
    """How to run, as it was typed; the folder is the usual one's parent if none was.

    Raises:
      ValueError: if a number is out of its range.
    """
    memory = arguments.memory
    if memory is not None and not 0 < memory <= _MOST_MEMORY:
        raise ValueError(
            f"`--memory` must be in (0, {_MOST_MEMORY:g}] GiB, got {memory:g}."
        )
    return Options(
        out=arguments.out or pathlib.Path("results", arguments.id),
        store=arguments.store or (None if arguments.out else pathlib.Path(STORE)),
        accept_code=arguments.accept_code,
        chunk=arguments.chunk,
        memory=None if memory is None else int(memory * 2**30),
        data=arguments.data or folder_from_environment(),
        progress=not arguments.json,
        devices=arguments.devices,
        precision=arguments.precision,
        shard=arguments.shard,
        waits=arguments.wait,
    )


def check_data(data: pathlib.Path | None) -> pathlib.Path | None:
    """The folder of real data; FileNotFoundError if one is named that is not there."""
    if data is not None and not os.path.isdir(os.path.expanduser(data)):
        raise FileNotFoundError(f"`--data` must name a folder that exists, got {data}.")
    return data


def folder_from_environment() -> pathlib.Path | None:
    """The folder of data that CFLJAX_DATA names."""
    folder = os.environ.get("CFLJAX_DATA")
    return pathlib.Path(folder) if folder else None


def check_folder(out: pathlib.Path) -> None:
    """OSError where a file is in the way of a folder, or it cannot be named, before
    anything is computed."""
    for path in (out, *out.absolute().parents):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.lstat()  # Of a link that leads nowhere as well: nothing can be made.
            break
    if not path.is_dir():
        raise NotADirectoryError(f"cannot write to `{out}`: `{path}` is no folder.")


def configure(arguments: argparse.Namespace) -> Any:
    """The experiment's configuration: a preset, or what a file says, changed by flags
    that were typed. Sets `arguments.preset` to the preset that is most like it.

    Raises:
      ValueError: if a value is out of its range, or the file is not of this experiment.
      OSError: if the file cannot be read.
    """
    entry = entry_of(arguments)
    module, fields = entry.load(), flags.fields_of(entry)
    typed = flags.typed_fields(arguments, fields)
    if names := getattr(arguments, "names", None):
        if "algorithms" in typed:
            raise ValueError(
                "algorithms are words or behind `--algorithms`, not both, got "
                f"{' '.join(names)} besides."
            )
        typed["algorithms"] = tuple(names)
    if arguments.config is None:
        arguments.preset = arguments.preset or USUAL
        return dataclasses.replace(module.preset(arguments.preset), **typed)
    presets = {name: module.preset(name) for name in registry.PRESETS}
    read = _read_config(arguments.config, entry, fields)
    precision = read.pop("precision", None)
    if precision is not None and arguments.precision is None:
        arguments.precision = precision
    kind = type(presets[USUAL])
    needed = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    }
    if missing := sorted(needed - {*read, *typed}):
        raise ValueError(f"`--config`: {arguments.config} lacks {', '.join(missing)}.")
    config = kind(**{**read, **typed})
    unlike = lambda name: sum(
        getattr(config, field.name) != getattr(presets[name], field.name)
        for field in dataclasses.fields(kind)
    )
    arguments.preset = min(registry.PRESETS, key=unlike)
    return config


def _read_config(
    path: pathlib.Path, entry: Entry, fields: Sequence[flags.Field]
) -> dict[str, Any]:
    """Fields that a file of settings has, and `precision`."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"`--config`: {path} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"`--config`: {path} must hold one JSON object.")
    known = {field.name for field in fields}
    if strange := sorted(set(document) - known - set(_BESIDE)):
        raise ValueError(
            f"`--config`: {path} has {', '.join(strange)}, which "
            f"{entry.id or 'compare'} does not; it is of another experiment."
        )
    found = flags.read_fields(document, fields, f"`--config`: {path}")
    precision = document.get("precision")
    if precision is not None and (
        isinstance(precision, bool) or not isinstance(precision, int | float)
    ):
        raise ValueError(f"`--config`: {path}: `precision` must be a number or null.")
    return {**found, "precision": precision}
