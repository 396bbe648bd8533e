"""Folders of the gallery: what one holds, at which size, and whether it is whole."""

import dataclasses
import enum
import io
import json
import pathlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from PIL import Image

from experiments import study
from experiments.registry import PRESETS, Entry

LIMIT = 300_000  # Bytes of a file; larger ones are left out, and named.
PICTURES = (".svg", ".png")  # A PNG only where the SVG is too large.
TEXTS = (".csv", ".md", ".json", ".txt")
SETTINGS, ORIGIN, LEFT_OUT = "config.json", "provenance.json", "left_out"


class Size(enum.Enum):
    """How large an experiment is, by its command."""

    PAPER = "paper"
    QUICK = "quick"
    OTHER = "other"  # Neither preset.


@dataclasses.dataclass(frozen=True)
class Folder:
    """What the gallery has of an experiment.

    settings: its configuration; None if that cannot be read.
    runs: the entries of its provenance, none if that cannot be read.
    """

    path: pathlib.Path
    entry: Entry
    settings: Mapping[str, Any] | None
    runs: Sequence[Mapping[str, Any]]

    @property
    def run(self) -> Mapping[str, Any] | None:
        """The last entry of its provenance, of the command if that wrote one."""
        return self.runs[-1] if self.runs else None

    @property
    def command(self) -> str | None:
        """What made it; None where nothing tells.

        Folders that are older than such entries are told by their settings.
        """
        if self.run is not None and "command" in self.run:
            return self.run["command"]
        own = (name for name in PRESETS if self.agrees_with(name))
        return next((command(self.entry, name) for name in own), None)

    @property
    def size(self) -> Size | None:
        """By the command."""
        asked = self.command and self.command.removesuffix(" --data FOLDER")
        own = {command(self.entry, name): Size(name) for name in PRESETS}
        return own.get(asked, Size.OTHER) if asked else None

    @property
    def has_data(self) -> bool:
        """Whether it was made of real data that somebody named."""
        return self.command is not None and "--data FOLDER" in self.command

    def agrees_with(self, preset: str) -> bool:
        """Whether its settings are those that the preset has today, as far as both
        have them: new ones mean what was before, and others are of the run."""
        found = self.settings or {}
        wanted = json.loads(study.settings(self.entry.load().preset(preset)))
        both = found.keys() & wanted.keys()
        same = bool(both) and all(found[name] == wanted[name] for name in both)
        return same and found.get("precision") is None

    def files(self, *kinds: str) -> list[pathlib.Path]:
        """Of some suffixes, in the order of their names; `table` is the first."""
        every = (path for path in self.path.iterdir() if path.is_file())
        found = [path for path in every if path.suffix in kinds]
        return sorted(found, key=lambda path: (path.stem != "table", path.name))

    def left_out(self) -> Mapping[str, int]:
        """Bytes of the files that were too large, by name."""
        return (self.run or {}).get(LEFT_OUT, {})

    def fault(self) -> str | None:
        """What is missing or cut off; None if it is whole."""
        for name, content in ((SETTINGS, self.settings), (ORIGIN, self.run)):
            if content is None:
                return f"{name} is missing or damaged"
        pictures = {path.stem for path in self.files(*PICTURES)}
        printed = {path.stem for path in self.files(".pdf")}
        needed = {f"{stem}.pdf" for stem in pictures} | {"table.csv"}
        needed |= {f"{stem}.svg" for stem in printed - pictures}
        every = self.files(*PICTURES, ".pdf", *TEXTS)
        there = {path.name for path in every} | set(self.left_out())
        if lost := sorted(needed - there):
            return f"{lost[0]} is missing"
        cut = (path.name for path in every if not _is_whole(path))
        return next((f"{name} is damaged" for name in cut), None)


def command(entry: Entry, preset: str) -> str:
    """What makes a preset of an experiment, without its data."""
    return f"python -m experiments run {entry.id} --preset {preset}"


def _is_whole(path: pathlib.Path) -> bool:
    """Whether a file ends as its kind does."""
    ends = {".svg": b"</svg>\n", ".pdf": b"%%EOF\n", ".png": b"IEND\xaeB`\x82"}
    return path.read_bytes().endswith(ends.get(path.suffix, b"\n"))


def read(path: pathlib.Path, entry: Entry) -> Folder | None:
    """The folder of an experiment; None if there is none, or nothing in it."""
    if not path.is_dir() or not any(path.iterdir()):
        return None
    settings, origin = (_json(path / name) for name in (SETTINGS, ORIGIN))
    runs = origin.get("runs") if origin is not None else None
    is_whole = isinstance(runs, list) and all(map(_is_run, runs))
    return Folder(path, entry, settings, runs if is_whole and runs else ())


def _is_run(run: Any) -> bool:
    """Whether an entry of a provenance, which has no digest, can be read as one."""
    if not isinstance(run, dict):
        return False
    commit, sizes = run.get("commit") or {"id": ""}, run.get(LEFT_OUT, {})
    return (
        isinstance(run.get("command", ""), str)
        and isinstance(run.get("finished") or "", str)
        and isinstance(commit, dict)
        and isinstance(commit.get("id"), str)
        and isinstance(sizes, dict)
        and all(isinstance(size, int) for size in sizes.values())
    )


def _json(path: pathlib.Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text("utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def put(
    files: Iterable[pathlib.Path], target: pathlib.Path, places: Mapping[str, str]
) -> None:
    """Make a folder of copies of a run's files, or replace one that is there.

    It appears whole or not at all.

    Args:
      files: what the run wrote, `provenance.json` among them.
      target: the folder.
      places: paths of this machine, which no text is to hold, and what to call them.
    """
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    large = {}
    for file in files:
        if file.suffix not in (".svg", ".pdf", *TEXTS):
            continue
        content = file.read_bytes()
        if file.suffix in TEXTS:
            for place, name in places.items():
                content = content.replace(place.encode(), name.encode())
        if len(content) <= LIMIT:
            (partial / file.name).write_bytes(content)
            continue
        large[file.name] = len(content)
        if file.suffix == ".svg":
            smaller = file.with_suffix(".png")
            (partial / smaller.name).write_bytes(_in_few_colours(smaller))
    if large:
        origin = json.loads((partial / ORIGIN).read_text("utf-8"))
        origin["runs"][-1][LEFT_OUT] = large
        (partial / ORIGIN).write_text(json.dumps(origin, indent=1) + "\n", "utf-8")
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def _in_few_colours(file: pathlib.Path) -> bytes:
    """A PNG of lines and letters in half of its bytes."""
    buffer = io.BytesIO()
    with Image.open(file) as image:
        few = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        few.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
