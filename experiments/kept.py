"""Arrays that are computed once: files named after all that they depend on."""

import hashlib
import json
import pathlib
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cfljax.report import replacing


class Kept:
    """A folder, made if missing, of named arrays, one `.npz` file for each key.

    A key is plain data that holds everything its arrays depend on. Files appear whole
    or not at all; a damaged one counts as missing. Several processes may share the
    folder.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def path(self, key: Any) -> pathlib.Path:
        """The file of a key, named by the digest of its JSON with sorted names."""
        text = json.dumps(key, sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.npz"

    def read(self, key: Any) -> dict[str, np.ndarray] | None:
        """What is kept, or None if it is missing or damaged."""
        try:
            with (
                self.path(key).open("rb") as file,
                np.load(file, allow_pickle=False) as arrays,
            ):
                return {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            return None

    def remembered(
        self, key: Any, compute: Callable[[], Mapping[str, Any]]
    ) -> dict[str, np.ndarray]:
        """What is kept, else what `compute` gives, which is kept from now on.

        Raises:
          OSError: if the file cannot be written.
        """
        found = self.read(key)
        if found is None:
            found = {name: np.asarray(value) for name, value in compute().items()}
            with replacing(self.path(key)) as temporary, temporary.open("wb") as file:
                np.savez(file, allow_pickle=False, **found)
        return found
