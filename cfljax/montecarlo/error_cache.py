"""Error cache: errors of models that a round on the samples may move.

Those just evaluated are there. A model that nobody chose in a round stays where it is,
and so do its errors. Runs that oscillate choose it a round or two later, so they are
kept until it moves.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from cfljax.montecarlo.samples import padded, power_of_two

# A run and a model of its own.
Key = tuple[int, int]

_LEAST = 16  # Columns kept at once.


class ErrorCache:
    """Columns of errors, and whose they are.

    Args:
      most: columns kept from earlier evaluations, at least 0.
      num_rows: m n.
    """

    def __init__(self, most: int, num_rows: int) -> None:
        self._kept = jnp.zeros((most, num_rows), jnp.float32)
        self._free = list(range(most))
        self._slots: dict[Key, int] = {}  # Of the kept ones, the oldest first.
        # Made once: a slice is compiled for each number of columns it is taken from.
        self._none = self._just = self._kept[:0]
        self._places: dict[Key, int] = {}  # Of those just evaluated.

    @property
    def errors(self) -> tuple[Array, ...]:
        """Those just evaluated, and those kept."""
        return self._just, self._kept

    def __contains__(self, key: Key) -> bool:
        return key in self._places or key in self._slots

    def place(self, key: Key) -> int:
        """Column of a model, numbered through all of `errors`."""
        if key in self._places:
            return self._places[key]
        return len(self._just) + self._slots[key]

    def add(self, errors: Float[Array, "columns rows"], places: dict[Key, int]) -> None:
        """Errors just evaluated, and whose they are, until the next `keep`."""
        self._just, self._places = errors, places
        for key in self._slots.keys() & places.keys():
            self._free.append(self._slots.pop(key))

    def keep(self, is_wanted: Bool[np.ndarray, "runs models"]) -> None:
        """Keeps columns of wanted models, as many as there is room; forgets others.

        Those just evaluated go before those kept, and these leave the oldest first.

        Args:
          is_wanted: of models that stay where they were evaluated. One that moves is
            unwanted in the next call, or evaluated anew before that.
        """
        for key in [key for key in self._slots if not is_wanted[key]]:
            self._free.append(self._slots.pop(key))
        keys = [key for key in self._places if is_wanted[key]][: len(self._kept)]
        while len(self._free) < len(keys):
            self._free.append(self._slots.pop(next(iter(self._slots))))
        if keys:
            slots = [self._free.pop() for _ in keys]
            self._slots |= dict(zip(keys, slots, strict=True))
            size = max(_LEAST, power_of_two(len(keys)))
            columns = padded(np.array([self._places[key] for key in keys]), size)
            to = padded(np.array(slots), size)
            self._kept = _copied(self._kept, self._just, columns, to)
        self._just, self._places = self._none, {}


@functools.partial(jax.jit, donate_argnums=0)
def _copied(
    kept: Float[Array, "most rows"],
    just: Float[Array, "columns rows"],
    columns: Int[Array, " some"],
    to: Int[Array, " some"],
) -> Float[Array, "most rows"]:
    """In place. Some may be there twice, which is the same twice."""
    return kept.at[to].set(just[columns])
