"""Random streams: who draws from which part of a round's key.

`jax.random.fold_in(key, stream)` with the key of a round. The key itself, unfolded,
draws the participants, or the groups that talk to each other, so that everything else
of a round must fold it first.
"""

import enum


class Stream(enum.IntEnum):
    """Never renumber: every recorded number depends on these."""

    CLIENTS = 0  # Batches and noise of clients, see `local_update.client_key`.
    ALGORITHM = 1  # What the server, or a client beside its training, draws.
    ATTACKERS = 2  # What Byzantine clients send.
    RETURNING = 3  # Clients of `cfl_s` that walk the splits they missed.
