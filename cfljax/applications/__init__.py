"""The applications `theory` and `experiments`, which travel in this folder of a wheel.

Beside the library they would claim two names that others use too. In a checkout they
stand beside the library, and this folder has nothing else.
"""

import importlib
import pathlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

NAMES = ("theory", "experiments")
_HERE = pathlib.Path(__file__).parent


def find(name: str, folder: pathlib.Path = _HERE) -> ModuleType:
    """One of the applications, under its own name; from then on `import` knows it.

    Args:
      name: of `NAMES`.
      folder: where it is if it has travelled; else it is imported as anything is.

    Raises:
      ImportError: if something else has this name.
    """
    own = folder / name / "__init__.py"
    if not own.exists():
        return importlib.import_module(name)
    if name not in sys.modules:
        sys.path.insert(0, str(folder))  # Whatever else has this name stands behind it.
        try:
            importlib.import_module(name)
        finally:
            sys.path.remove(str(folder))
    found = sys.modules[name]
    if found.__file__ is None or pathlib.Path(found.__file__) != own:
        raise ImportError(f"`{name}` is another package here: {found.__file__}.")
    return found


def statements(ids: Sequence[str] = (), *, paper: str | None = None) -> Any:
    """The papers' statements, see `theory.registry.select`."""
    find("theory")
    from theory.registry import select

    return select(ids, paper=paper)
