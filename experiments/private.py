"""Folders whose files somebody executes: nobody else may have written them."""

import os
import pathlib
import stat


def private_folder(folder: pathlib.Path) -> pathlib.Path:
    """A folder that its owner alone reads and writes, made if missing.

    Raises:
      PermissionError: if it is there and belongs to somebody else, or others may write
        to it, or it is a link.
      NotADirectoryError: if a file is in the way.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        check_private(folder)
    return folder


def check_private(folder: pathlib.Path) -> None:
    """Raises PermissionError unless nobody else may write to a folder."""
    status = folder.lstat()
    if stat.S_ISREG(status.st_mode):
        raise NotADirectoryError(f"`{folder}` must be a folder, a file is in the way.")
    is_own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    if not stat.S_ISDIR(status.st_mode):
        fault = "is no folder itself"
    elif not is_own:
        fault = "belongs to somebody else"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        fault = "may be written by others"
    else:
        return
    raise PermissionError(
        f"`{folder}` {fault}, and what lies there is executed; remove it, or choose "
        "another folder by `--out`."
    )
