"""Tasks, and other functions, that a command line names: `my_module:make`."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from cfljax.base.types import ClientData, Task


def named_task(name: str, data: ClientData) -> Task:
    """The task that a function of the user's own makes for these data.

    Args:
      name: `MODULE:FUNCTION`, a module that Python finds, or a file in the working
        folder, which is looked at last; and a function of it, `data -> Task`.
      data: of all clients; what the function needs of it, such as shapes, it may look
        up.

    Returns:
      What the function gives.

    Raises:
      ValueError: if the text is not of this form, there is no such module or function,
        or it gives no task. What the user's own code raises is not caught.
    """
    make = named_function("task", name)
    task = make(data)
    if not isinstance(task, Task):
        raise ValueError(
            f"`task`: {name} must give a Task for the clients' data, such as "
            f"`cfl.task(...)` makes, got {type(task).__name__}."
        )
    return task


def named_function(argument: str, name: str) -> Callable[..., Any]:
    """A function of the user's own.

    Args:
      argument: what names it, for messages.
      name: `MODULE:FUNCTION`, as of `named_task`.

    Raises:
      ValueError: if the text is not of this form, or there is no such module or
        function. What the user's own code raises is not caught.
    """
    module_name, is_given, function_name = name.partition(":")
    is_module = all(map(str.isidentifier, module_name.split(".")))
    if not (is_module and is_given and function_name):
        raise ValueError(
            f"`{argument}` must be MODULE:FUNCTION, such as my_module:make, got "
            f"{name!r}."
        )
    if os.getcwd() not in sys.path:  # As for a program that lies elsewhere.
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # Something that the module itself imports.
        raise ValueError(
            f"`{argument}` names the module {module_name!r}, which Python does not "
            "find; start in the folder that holds it, or add that to PYTHONPATH."
        ) from error
    found = getattr(module, function_name, None)
    if not callable(found):
        known = [n for n, v in vars(module).items() if callable(v) and n[0] != "_"]
        raise ValueError(
            f"`{argument}` names {function_name!r}, which is no function of "
            f"{module_name}; it has {', '.join(known) or 'none'}."
        )
    return found
