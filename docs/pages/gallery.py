"""The gallery: every experiment with its pictures, command and outcome."""

from collections.abc import Mapping
from typing import Any

from experiments.gallery import folders
from experiments.gallery.folders import Folder
from experiments.gallery.page import PAPERS, size
from experiments.registry import EXPERIMENTS, Entry
from pages.markdown import FIGURES, caption, rendered


def sources(report: bool) -> Mapping[str, str]:
    """The page."""
    sections = {
        title: [_part(entry) for id, entry in EXPERIMENTS.items()
                if id.startswith(f"{start}.")]
        for start, title in PAPERS.items()
    }  # fmt: skip
    return {"gallery.md": rendered("gallery.md", sections=sections)}


def _part(entry: Entry) -> dict[str, Any]:
    """What the template shows of an experiment."""
    folder = folders.read(FIGURES / entry.id, entry)
    usual = folders.command(entry, "paper")
    usual += " --data FOLDER" if entry.takes_data else ""
    part = {"entry": entry, "size": size(entry, folder), "command": usual}
    if folder is None:
        return part | {"pictures": {}, "files": [], "outcome": "", "made": ""}
    outcome = folder.path / "outcome.md"
    return part | {
        "command": folder.command or usual,
        "pictures": {
            path.name: caption(path) for path in folder.files(*folders.PICTURES)
        },
        "files": [path.name for path in folder.files(".csv", ".md", ".pdf", ".json")],
        "outcome": outcome.read_text("utf-8").strip() if outcome.exists() else "",
        "made": _made(folder),
    }


def _made(folder: Folder) -> str:
    """At which commits and on which day; the rest is in the provenance."""
    runs = folder.runs
    commits = dict.fromkeys(
        run["commit"]["id"][:10] + ("+" if run["commit"].get("dirty") else "")
        for run in runs
        if run.get("commit")
    )
    days = [run["finished"][:10] for run in runs if run.get("finished")]
    told = [f"commit {', '.join(commits)}"] if commits else []
    return ", ".join(told + days[-1:])
