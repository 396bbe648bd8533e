"""The gallery's page: every experiment by paper, as a picture, a command and files."""

import html
import pathlib
from collections.abc import Iterator
from urllib.parse import quote

from cfljax import report
from experiments.gallery import folders
from experiments.gallery.folders import Folder, Size
from experiments.registry import EXPERIMENTS, PAPERS, Entry

NAME = "README.md"
NOTE = """\
# Gallery

Every experiment as figures, tables and their provenance. **Quick** marks a small size,
which shows what comes out and is not to be compared with a paper's numbers; a picture
leads to itself. What is missing is made, and this page written, by

```bash
python -m experiments gallery --data FOLDER
```

"""
_WIDTH = 400  # Pixels of a picture.


def text(out: pathlib.Path) -> str:
    """The page of the folders in `out`: the same for the same folders."""
    found = {id: folders.read(out / id, entry) for id, entry in EXPERIMENTS.items()}
    sections, counts = [], []
    for start, title in PAPERS.items():
        own = {id: folder for id, folder in found.items() if id.startswith(f"{start}.")}
        counts.append({"paper": title} | _counts(list(own.values())))
        parts = [_part(EXPERIMENTS[id], folder) for id, folder in own.items()]
        sections.append("\n".join([f"## {title}\n", *parts]))
    return NOTE + report.markdown(counts) + "\n" + "\n".join(sections)


def _counts(own: list[Folder | None]) -> dict[str, int]:
    sizes = [folder.size for folder in own if folder is not None]
    return {
        "experiments": len(own),
        "full size": sizes.count(Size.PAPER),
        "quick": sizes.count(Size.QUICK),
        "another size": sizes.count(Size.OTHER),
        "damaged": sizes.count(None),
        "not yet made": own.count(None),
    }


def _part(entry: Entry, folder: Folder | None) -> str:
    """One experiment."""
    lines = [f"### {entry.id}\n", f"{entry.title}: **{size(entry, folder)}**\n"]
    made = folder.command if folder is not None else None
    if folder is None:
        usual = folders.command(entry, "paper")
        made = usual + (" --data FOLDER" if entry.takes_data else "")
    if made is not None:
        lines.append(f"```bash\n{made}\n```\n")
    if folder is not None:
        pictures = [_picture(entry, path) for path in folder.files(*folders.PICTURES)]
        lines += ["\n".join(pictures) + "\n"] if pictures else []
        lines.append(", ".join(_links(entry, folder)) + "\n")
    return "\n".join(lines)


def size(entry: Entry, folder: Folder | None) -> str:
    if folder is None:
        return "not yet made"
    if folder.size is None:
        return "damaged"
    full = "the larger size" if entry.id.startswith("reviews.") else "the paper's size"
    named = {Size.PAPER: full, Size.OTHER: "another size"}
    stands_in = entry.takes_data and not folder.has_data
    size = named.get(folder.size, folder.size.value)
    return size + (", on data that stand in for the paper's" if stands_in else "")


def _picture(entry: Entry, path: pathlib.Path) -> str:
    """A picture of any size that leads to the file, over what it says of itself."""
    place = quote(f"{entry.id}/{path.name}")
    picture = f'<img src="{place}" width="{_WIDTH}" alt="{entry.id}: {path.stem}">'
    own = path.with_suffix(".txt")
    text = html.escape(own.read_text("utf-8").strip()) if own.is_file() else ""
    return f'<a href="{place}">{picture}</a>' + (f"<br>{text}<br>" if text else "")


def _links(entry: Entry, folder: Folder) -> Iterator[str]:
    """To all files but pictures, and what was left out."""
    for kind in (".csv", ".md", ".pdf", ".json"):
        for path in folder.files(kind):
            yield f"[{path.name}]({quote(f'{entry.id}/{path.name}')})"
    for name, size in folder.left_out().items():
        yield f"without {name} ({size / 1e6:.1f} MB)"
    commit = (folder.run or {}).get("commit")
    if commit is not None:
        yield f"commit {commit['id'][:10]}{'+' if commit.get('dirty') else ''}"
