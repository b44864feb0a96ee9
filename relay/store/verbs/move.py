"""The scripts of `lua/move`, for partitions of which a move takes some timers away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from relay.store.server.scripts import Argument, Call
from relay.store.verbs.terms import Words

Kind = Literal["t", "c", "d"]
"""What moves: timers, recurrences, or dead letters."""

BATCH_BYTES = 1 << 20
"""The content after which a batch ends, roughly."""


def mark(partition: str) -> Call[Words]:
    """The reply: the name of the last batch, or nothing; then the batch that is on its way."""
    return Call("move/mark", partition, ())


def scan(partition: str, cursor: Argument, step: int, match: Argument = "*") -> Call[Words]:
    """The reply: the server's run_id, the next cursor; then timer_ids."""
    return Call("move/scan", partition, (cursor, step, match))


def leave(partition: str, kind: Kind, names: Sequence[Argument]) -> Call[Words]:
    """Take timers or letters out. The reply: the batch that is on its way now."""
    return Call("move/leave", partition, (kind, BATCH_BYTES, *names))


def put(partition: str, batch: Sequence[Argument]) -> Call[Words]:
    """Take a batch in. The reply: what has become of it, then the ids of its letters' entries."""
    return Call("move/put", partition, batch, hints=True)


def void(partition: str, name: Argument) -> Call[bytes]:
    """Refuse a batch. The reply: what has become of it."""
    return Call("move/void", partition, (name,))


def left(partition: str, name: Argument) -> Call[bytes]:
    """Forget a batch that has arrived."""
    return Call("move/left", partition, (name,))


def back(partition: str, batch: Sequence[Argument]) -> Call[bytes]:
    """Take a batch in again."""
    return Call("move/back", partition, batch, hints=True)
