"""Files that appear whole or not at all."""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """A temporary path that becomes `path` when the block ends without an error.

    Whoever reads `path` meanwhile finds the old file, never half of the new one.
    After an error the old file stays and the temporary one is gone. Missing folders
    are made. The temporary name keeps the suffix, by which writers choose a format.

    Args:
      path: the file to write or replace.
    """
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".writing-") as folder:
        temporary = pathlib.Path(folder) / target.name
        yield temporary
        os.replace(temporary, target)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8 with plain line ends, whole or not at all.

    Args:
      path: the file; missing folders are made.
      text: its content.
    """
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
