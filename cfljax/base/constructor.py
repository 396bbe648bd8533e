"""What every constructor of an algorithm does besides building it."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from jaxtyping import PRNGKeyArray

from cfljax.base.clients import check_concrete
from cfljax.base.ranges import ranged
from cfljax.base.types import Algorithm, ClientData

Settings = ParamSpec("Settings")


def constructor(build: Callable[Settings, Algorithm]) -> Callable[Settings, Algorithm]:
    """The constructor of algorithms that know their name and settings, and refuse data
    that are not finite, or labels outside the classes, where these are concrete, data
    that the algorithm's own check refuses, and arguments out of the ranges of their
    names."""
    checked = ranged(build)

    @functools.wraps(build)
    def construct(*arguments: Settings.args, **settings: Settings.kwargs) -> Algorithm:
        algorithm = checked(*arguments, **settings)
        task: Any = arguments[0] if arguments else settings["task"]

        def check(data: ClientData) -> None:
            check_concrete(task, data)
            algorithm.check(data)

        def init(key: PRNGKeyArray, data: ClientData) -> Any:
            check(data)
            return algorithm.init(key, data)

        given = {name: one for name, one in settings.items() if name != "task"}
        own = {"name": build.__name__, "settings": given}
        return algorithm._replace(init=init, check=check, **own)

    return construct
