"""Checks that many constructors make."""

from collections.abc import Callable, Sequence
from typing import Any, get_args

from jax.core import Tracer

from cfljax.base.ranges import COUNT, UNBOUNDED, Range
from cfljax.base.types import ClientData, Task, Threat


def is_traced(value: Any) -> bool:
    """Whether a transformation hides the value, so that nothing can be checked."""
    return isinstance(value, Tracer)


def check_cluster_sizes(
    cluster_sizes: Sequence[int], *, name: str = "cluster_sizes", **totals: int
) -> None:
    """Raises ValueError unless sizes are positive, as many as `num_clusters` and of the
    sum that another of the totals is, where these are given."""
    sizes = tuple(cluster_sizes)
    if not sizes or min(sizes) < 1:
        raise ValueError(f"`{name}` must be 1 or more for every cluster, got {sizes}.")
    for total, number in totals.items():
        found = len(sizes) if total == "num_clusters" else sum(sizes)
        if found != number:
            what = "be as many as" if total == "num_clusters" else "add up to"
            raise ValueError(
                f"`{name}` must {what} `{total}`, {number}, got {sizes}: {found}."
            )


def check_fit(task: Task) -> None:
    """Raises ValueError if gradients of the task's losses are not what it trains on."""
    if task.fit is not None:
        raise ValueError(
            "`task` must train on the losses it is judged by: clustered gradients have "
            "no place for dropout, augmentation or batch statistics."
        )


def check_member(allowed: Any, **names: str) -> None:
    """Raises ValueError, naming the first argument that a Literal does not have."""
    for name, value in names.items():
        if value not in get_args(allowed):
            raise ValueError(f"`{name}` must be in {get_args(allowed)}, got {value!r}.")


def check_not_negative(**numbers: Any) -> None:
    """Raises ValueError, naming the first that is given, not traced, and negative or
    no number."""
    check_in(UNBOUNDED, **numbers)


def check_positive(**numbers: Any) -> None:
    """Raises ValueError, naming the first argument that is given and no whole number
    from 1 on."""
    check_in(COUNT, **numbers)


def check_in(allowed: Range, /, **numbers: Any) -> None:
    """Raises ValueError, naming the first that is given, not traced, and out of a range
    that its name does not say."""
    for name, value in numbers.items():
        if value is not None and (fault := allowed.fault(value)):
            raise ValueError(f"`{name}` {fault}")


def at_most_clients(num_clusters: int | None) -> Callable[[ClientData], None]:
    """An `Algorithm.check` of what finds clusters among the clients: there cannot be
    more of them than clients."""

    def check(data: ClientData) -> None:
        number = data.mask.shape[0]
        check_at_most(number, "the number of clients", num_clusters=num_clusters)

    return check


def check_at_most(most: int, what: str, **numbers: int | None) -> None:
    """Raises ValueError, naming the first that is given and above what data allow."""
    for name, value in numbers.items():
        if value is not None and value > most:
            raise ValueError(f"`{name}` must be at most {most}, {what}, got {value}.")


def check_threat(
    threat: Threat | None, num_clients: int, num_clusters: int | None = None
) -> None:
    """Raises ValueError if a threat is to other clients, or to a cluster there is not;
    `num_clusters` is None where clients claim none."""
    if threat is None:
        return
    if threat.num_clients != num_clients:
        raise ValueError(
            f"`threat` must say of each of {num_clients} clients whether it is "
            f"Byzantine, got {threat.num_clients}."
        )
    if num_clusters is not None and threat.target >= num_clusters:
        raise ValueError(
            f"`target` of the threat must be one of {num_clusters} clusters, from 0 "
            f"on, got {threat.target}."
        )
