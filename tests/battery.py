"""A battery over everything that is trusted:

    python tests/battery.py [PART ...] [--seed N] [--minutes M] [--out figures/battery]

Each part does one kind of harm again and again, at places and times that the seed
decides, and counts how each ended; before that, it must be seen to fail where what it
is about is taken away. Batches of it run in processes that are forked from this one,
which has imported everything and never starts JAX. A batch that is done is noted, so
that a battery which was stopped goes on where it was; the table of all that was done
is written when it ends, for whatever reason.
"""

import argparse
import contextlib
import gc
import json
import os
import pathlib
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import battery_files
import battery_kills
import battery_lines
import battery_machines
from tally import BADLY, WELL, Batch, Part, Tally, cut, total
from trusted_files import SUBJECTS

from cfljax import report

SEED = 20261127
NOTES = pathlib.Path("results/battery")  # What is done.
OUT = pathlib.Path("figures/battery")
PATIENCE = 3600.0  # Seconds for one batch.


def _batches_of_files(play: Callable[..., Tally], sizes: Mapping[str, int]) -> Any:
    """Some of every subject first, then all of those that are read quickly."""
    slow = ("store", "ledger", "report", "state")
    found = []
    for name, number in sizes.items():
        for units in cut(number, 50 if name in slow else 250):
            do = lambda folder, seed, name=name, units=units: play(
                folder, seed, name, units
            )
            batch = Batch(f"{name} {units.start}", len(units), do)
            found.append((units.start if name in slow else 0, batch))
    return [batch for _, batch in sorted(found, key=lambda pair: pair[0])]


def _changes(folder: pathlib.Path, seed: int) -> list[Batch]:
    """Changes of all files."""
    file = folder / "sizes.json"
    if not file.exists():
        found = _forked(lambda: battery_files.sizes(folder, seed), PATIENCE)
        file.write_text(json.dumps(found))
    sizes = json.loads(file.read_text())
    return _batches_of_files(battery_files.play_changes, sizes)


def _damages(folder: pathlib.Path, seed: int) -> list[Batch]:
    del folder, seed
    each = dict.fromkeys(SUBJECTS, -(-2000 // len(SUBJECTS)))
    return _batches_of_files(battery_files.play_damage, each)


def _control_of_files(harm: str, play: Callable[..., Tally]) -> Callable[..., Tally]:
    name = battery_files.CONTROLS[harm].name
    return lambda folder, seed: play(folder, seed, name, range(500), harm)


PARTS: dict[str, Part] = {
    "changes": Part(
        "changes of every place of what files say, and of their bytes",
        2198,
        _changes,
        {
            harm: _control_of_files(harm, battery_files.play_changes)
            for harm in battery_files.CONTROLS
        },
    ),
    "damage": Part(
        "damage at random to files of every kind",
        2000,
        _damages,
        {
            harm: _control_of_files(harm, battery_files.play_damage)
            for harm in ("no place of blocks",)
        },
    ),
}
PARTS |= battery_kills.PARTS | battery_lines.PARTS | battery_machines.PARTS


# Processes


def _forked(work: Callable[[], Any], patience: float) -> Any:
    """What a function returns in a process of its own, as JSON has it."""
    with tempfile.TemporaryDirectory() as place:
        process = _begin(work, pathlib.Path(place))
        return _ended(process, pathlib.Path(place), time.monotonic() + patience)


def _begin(work: Callable[[], Any], place: pathlib.Path) -> int:
    """Fork a process, the leader of its own group, that leaves its answer in a folder;
    what it says is kept there too."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.setpgid(0, 0)
        with (place / "said").open("w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        answer = work()
        (place / "answer").write_text(json.dumps(answer))
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)


def _ended(process: int, place: pathlib.Path, deadline: float) -> Any:
    """The answer of a process; RuntimeError with the end of what it said without."""
    while os.waitpid(process, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            raise RuntimeError(f"no end; {_said(place)}")
        time.sleep(0.01)
    if not (place / "answer").exists():
        raise RuntimeError(_said(place))
    return json.loads((place / "answer").read_text())


def _said(place: pathlib.Path) -> str:
    text = (
        (place / "said").read_text(errors="replace")
        if (place / "said").exists()
        else ""
    )
    return " ".join(text[-600:].split())


class Notes:
    """What is done of a battery of one seed."""

    def __init__(self, folder: pathlib.Path, seed: int) -> None:
        self.folder, self.seed = folder / str(seed), seed
        self.folder.mkdir(parents=True, exist_ok=True)

    def of(self, part: str) -> list[dict[str, Any]]:
        """Batches and controls of a part that are done."""
        file = self.folder / f"{part}.jsonl"
        found = []
        for line in file.read_text().splitlines() if file.exists() else ():
            with contextlib.suppress(
                ValueError
            ):  # Half a line, of one that was killed.
                found.append(json.loads(line))
        return found

    def add(self, part: str, **entry: Any) -> None:
        """Note one more."""
        with (self.folder / f"{part}.jsonl").open("a") as file:
            file.write("\n" * bool(file.tell()) + json.dumps(entry))


def run(
    notes: Notes,
    names: Sequence[str],
    *,
    deadline: float,
    workers: int,
    tell: Callable[[str], object],
) -> None:
    """Do what is not done of some parts, until there is no time left."""
    for name in names:
        part = PARTS[name]
        known = {own["name"] for own in notes.of(name) if own["units"] or _is_seen(own)}
        controls = [
            Batch(f"control: {harm}", 0, play)
            for harm, play in part.controls.items()
            if f"control: {harm}" not in known
        ]
        if time.monotonic() > deadline:
            return
        todo = list(part.batches(notes.folder, notes.seed))
        done = sum(own.units for own in todo if own.name in known)
        whole = sum(own.units for own in todo)
        left = controls + [own for own in todo if own.name not in known]
        _run(notes, name, left, done, whole, deadline, workers, tell)


def _run(
    notes: Notes,
    name: str,
    left: list[Batch],
    done: int,
    whole: int,
    deadline: float,
    workers: int,
    tell: Callable[[str], object],
) -> None:
    """Batches of one part, so many at a time."""
    begin, first, bad = time.monotonic(), done, 0
    running: dict[int, tuple[Batch, tempfile.TemporaryDirectory, float]] = {}
    while left or running:
        while left and len(running) < workers and time.monotonic() < deadline:
            batch, place = left.pop(0), tempfile.TemporaryDirectory()
            play = lambda own=batch: own.play(notes.folder, notes.seed).as_dict()
            process = _begin(play, pathlib.Path(place.name))
            running[process] = batch, place, time.monotonic()
        if not running:
            return
        for process in list(running):
            batch, place, started = running[process]
            folder = pathlib.Path(place.name)
            if not _is_over(process) and time.monotonic() < started + PATIENCE:
                continue
            del running[process]
            try:
                tally = Tally.from_dict(_ended(process, folder, started + PATIENCE))
            except RuntimeError as error:
                tally = Tally()
                tally.add("traceback", "batch", str(error), case=batch.name, units=0)
            place.cleanup()
            seconds = time.monotonic() - started
            notes.add(
                name,
                name=batch.name,
                units=batch.units,
                seconds=round(seconds, 2),
                tally=tally.as_dict(),
            )
            if not batch.units:
                seen = "seen" if tally.num_bad else "NOT SEEN"
                tell(f"{name}: {batch.name}: {seen}, {seconds:.0f} s")
                begin = time.monotonic()
                continue
            done += batch.units
            bad += tally.num_bad
            for fault in tally.faults:
                tell(f"  {fault}")
            each = (time.monotonic() - begin) / max(1, done - first)
            minutes = each * (whole - done) / 60
            tell(
                f"{name}: {batch.name}: {done}/{whole}, {bad} bad, {each:.2f} s each, "
                f"{minutes:.0f} min left"
            )
        time.sleep(0.02)


def _is_seen(entry: Mapping[str, Any]) -> bool:
    """Whether something ended badly, as it must in a control, else due again."""
    return Tally.from_dict(entry["tally"]).num_bad > 0


def _is_over(process: int) -> bool:
    found = os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return found is not None


# What came out


def machine() -> str:
    """What it ran on."""
    info = pathlib.Path("/proc/cpuinfo")
    names = [
        line.partition(":")[2].strip()
        for line in (info.read_text().splitlines() if info.exists() else ())
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kind = names[0] if names else platform.machine()
    return f"{os.cpu_count()} cores, {kind}, {memory:.0f} GiB, {platform.system()}"


def rows(notes: Notes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """One of each part, and one of each end of each kind of thing."""
    table, details = [], []
    for name, part in PARTS.items():
        entries = notes.of(name)
        if not entries:
            continue
        batches = [entry for entry in entries if entry["units"]]
        controls = [entry for entry in entries if not entry["units"]]
        tally = total(Tally.from_dict(entry["tally"]) for entry in batches)
        seen = len({entry["name"] for entry in controls if _is_seen(entry)})
        row: dict[str, Any] = {"part": name, "does": part.does, "asked": part.asked}
        row["done"] = tally.done
        row |= {kind: tally.count(kind) for kind in (*WELL, *BADLY)}
        row["controls"] = f"{seen} of {len(part.controls)}"
        row["seconds"] = round(sum(entry["seconds"] for entry in entries))
        table.append({**row, "seed": notes.seed, "machine": machine()})
        for end, number in sorted(tally.ends.items()):
            details.append({"part": name, **end._asdict(), "number": number})
    return table, details


def write(notes: Notes, out: pathlib.Path) -> list[dict[str, Any]]:
    """Write `table.csv`, `details.csv` and `table.md`; the rows of the first."""
    table, details = rows(notes)
    if not table:
        return table
    report.write_csv(out / "table.csv", table)
    report.write_csv(out / "details.csv", details)
    names = [name for name in table[0] if name not in ("does", "machine")]
    short = [{name: row[name] for name in names} for row in table]
    told = [f"- {name}: {does}." for name, does in (WELL | BADLY).items()]
    parts = [f"- {row['part']}: {row['does']}." for row in table]
    text = [
        "# Battery\n",
        "`python tests/battery.py`, on " + table[0]["machine"] + ".\n",
        report.markdown(short),
        "\n".join(parts) + "\n",
        "How cases ended:\n",
        "\n".join(told) + "\n",
        "By what they were of, `details.csv`.\n",
    ]
    report.write_text(out / "table.md", "\n".join(text))
    return table


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if anything ended badly, or a control was not seen."""
    about = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    about.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    about.add_argument("--seed", type=int, default=SEED)
    about.add_argument("--minutes", type=float, default=float("inf"))
    about.add_argument("--workers", type=int, default=2, help="batches at a time")
    about.add_argument("--notes", type=pathlib.Path, default=NOTES)
    about.add_argument("--out", type=pathlib.Path, default=OUT)
    asked = about.parse_args(words)
    if unknown := sorted(set(asked.parts) - set(PARTS)):
        about.error(f"there is no part {unknown[0]}; parts: {', '.join(PARTS)}")
    notes = Notes(asked.notes.absolute(), asked.seed)
    gc.collect()
    gc.freeze()  # What processes share they need not copy.
    programs = asked.notes.absolute() / "programs"
    os.environ |= {"CFLJAX_CACHE": str(programs), "OMP_NUM_THREADS": "1"}
    os.environ.pop("CFLJAX_DATA", None)
    begin = time.monotonic()
    try:
        run(
            notes,
            asked.parts or list(PARTS),
            deadline=begin + 60 * asked.minutes,
            workers=asked.workers,
            tell=lambda line: print(line, flush=True),
        )
    except KeyboardInterrupt:
        print("stopped; start again to go on")
    table = write(notes, asked.out)
    good = all(
        not sum(row[kind] for kind in BADLY)
        and row["controls"].split()[0] == row["controls"].split()[-1]
        for row in table
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
