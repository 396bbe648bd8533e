"""The command `python -m experiments gallery`: make what is missing, and the page.

Each experiment is a process of its own, the `run` that a person would start, so that
one that fails, or takes all memory, stops no other. Its results stay in `SCRATCH`, and
a run that was killed goes on from there.
"""

import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from cfljax import report
from experiments.gallery import folders, page
from experiments.gallery.folders import Size
from experiments.registry import EXPERIMENTS, Entry

SCRATCH = pathlib.Path("results", "gallery")


def write(
    ids: Sequence[str],
    out: pathlib.Path,
    *,
    preset: str,
    data: pathlib.Path | None,
    store: pathlib.Path | str,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Make the folders that experiments lack, one after the other; a summary.

    A folder of the paper's size stays, whatever the preset. One of another size or of
    other settings than the preset's, or that was made of stand-in data where there are
    data now, or that is damaged, is made again.

    Args:
      ids: of the experiments.
      out: folder of all folders, made if missing, and of the page.
      preset: of what is made.
      data: folder of real data, if there is one.
      store: folder, or place in a bucket, in which sweeps look for what is computed.
      tell: what to do with one line on each experiment.
    """
    made, kept, failed = [], [], {}
    for id in ids:
        entry, started = EXPERIMENTS[id], time.perf_counter()
        try:
            why = reason(entry, out / id, preset, has_data=data is not None)
            if why is None:
                kept.append(id)
                tell(f"{id}: kept")
                continue
            tell(f"{id}: {why}, running")
            make(entry, out / id, preset, data=data, store=store)
        except ValueError as error:
            failed[id] = str(error)
            tell(f"{id}: failed: {error}")
            continue
        made.append(id)
        seconds = time.perf_counter() - started
        tell(f"{id}: made in {seconds:.0f} s")
        report.write_text(out / page.NAME, page.text(out))
    report.write_text(out / page.NAME, page.text(out))
    counts = f"{len(made)} made, {len(kept)} kept, {len(failed)} failed"
    return {
        "headline": "\n".join([counts, *(f"{id}: {failed[id]}" for id in failed)]),
        "files": [str(out / page.NAME)],
        "made": made,
        "kept": kept,
        "failed": failed,
    }


def reason(
    entry: Entry, path: pathlib.Path, preset: str, *, has_data: bool
) -> str | None:
    """Why to make a folder; None where it is what is wanted.

    Raises:
      ValueError: if it is damaged and must not be replaced.
    """
    found = folders.read(path, entry)
    if found is None:
        return "missing"
    fault, size = found.fault(), found.size
    if size is None:
        what = fault or f"{folders.SETTINGS} is of no preset"
        raise ValueError(f"`{path}` does not tell its size ({what}): remove it first.")
    if size is Size.PAPER:
        if fault is None or preset == "paper":
            return fault
        raise ValueError(
            f"`{path}` has the paper's size and is damaged ({fault}): make it again "
            "with `--preset paper`, or remove it first."
        )
    if fault is not None:
        return fault
    if size is not Size(preset):
        return f"of another size than {preset}"
    if not found.agrees_with(preset):
        return f"of other settings than {preset} has today"
    if has_data and entry.takes_data and not found.has_data:
        return "of stand-in data"
    return None


def make(
    entry: Entry,
    path: pathlib.Path,
    preset: str,
    *,
    data: pathlib.Path | None,
    store: pathlib.Path | str,
) -> None:
    """Run a preset of an experiment and make the folder of what it writes.

    Raises:
      ValueError: if the run fails; what it has computed stays.
    """
    scratch = SCRATCH / entry.id
    flags = ["--preset", preset, "--out", str(scratch)]
    if entry.uses_store:
        flags += ["--store", str(store)]
    places = {str(pathlib.Path.home()): "~"}
    if data is not None and entry.takes_data:
        place = str(data.absolute())  # Which, other than a name, is no common word.
        flags += ["--data", place]
        places = {place: "FOLDER", **places}
    files = run(entry.id, flags)
    folders.put([pathlib.Path(file) for file in files], path, places)


def run(id: str, flags: Sequence[str]) -> list[str]:
    """Run an experiment in a process of its own; the files that it wrote.

    Raises:
      ValueError: with what it says, if it fails.
    """
    command = [sys.executable, "-m", "cfljax", "run", id, *flags, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout)["files"]
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode == 1 and done.stdout:  # Tables of what did not fail.
        number = json.loads(done.stdout)["failed_cells"]
        raise ValueError(f"{number} cells failed; start again to retry them.")
    *_, last = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    raise ValueError(last.removeprefix("error: "))
