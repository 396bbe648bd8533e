"""What a comparison knows of an algorithm by its name: the registry's row, or one made
for a function of the user's own, `MODULE:FUNCTION`.

Such a function is called as the registry's constructors are, `(task, *, step_size,
...)`, and gives a `cfl.Algorithm`. It is told what it has arguments for of `update`,
`num_clusters`, true `clusters` and `num_classes`; others have defaults.
"""

import functools
import inspect
import typing
from typing import Any

from cfljax import engine
from cfljax.algorithms import REGISTRY, Registration
from cfljax.base import Algorithm
from cfljax.models import named_function

_TOLD = ("step_size", "update", "num_clusters", "clusters", "num_classes")


def is_own(name: str) -> bool:
    """Whether an algorithm is the user's own."""
    return ":" in name


def registration(name: str) -> Registration:
    """The row of an algorithm.

    Raises:
      ValueError: if it is a function of the user's own that cannot be called so.
      KeyError: if there is none of this name.
    """
    return _of_function(name) if is_own(name) else REGISTRY[name]


@functools.cache
def _of_function(name: str) -> Registration:
    found = named_function("algorithms", name)
    try:
        accepted = inspect.signature(found).parameters
        typing.get_type_hints(found)
    except Exception as error:  # Of annotations that mean nothing, any.
        raise ValueError(
            f"`algorithms`: {name} has arguments that cannot be read: {error}"
        ) from error
    others = list(accepted)[1:]
    missing = [n for n in others if accepted[n].default is inspect.Parameter.empty]
    strange = [n for n in missing if n not in _TOLD]
    if "step_size" not in others or strange:
        raise ValueError(
            f"`algorithms`: {name} must take (task, *, step_size), of "
            f"{', '.join(_TOLD[1:])} what it needs, and defaults of all others; it "
            f"takes ({', '.join(accepted)})."
        )

    @functools.wraps(found)
    def make(*positional: Any, **named: Any) -> Algorithm:
        try:
            algorithm = found(*positional, **named)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(
                f"`algorithms`: {name} raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(algorithm, Algorithm):
            raise ValueError(
                f"`algorithms`: {name} must give a `cfl.Algorithm`, got "
                f"{type(algorithm).__name__}."
            )
        return algorithm

    return Registration(
        make,
        paper="",
        needs_truth="clusters" in others,
        clustered="num_clusters" in others,
        needs_classes="num_classes" in others,
    )


@functools.cache
def code_of(name: str) -> str:
    """Digest of the code of a function of the user's own, and of what its module
    reaches that this one does not."""
    _of_function(name)  # From here on Python finds its module.
    return engine.module_digest(name.partition(":")[0], beside=registration)
