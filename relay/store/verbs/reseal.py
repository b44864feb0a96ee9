"""The scripts of `lua/reseal`."""

from __future__ import annotations

from collections.abc import Sequence

from relay.store.server.scripts import Argument, Call


def contents(partition: str, exchanges: Sequence[Argument]) -> Call[int]:
    """Take for each timer its id, the content that was read, and the one that it is to have. The reply: how
    many have it now."""
    return Call("reseal/contents", partition, exchanges)


def rules(partition: str, exchanges: Sequence[Argument]) -> Call[int]:
    """The same of recurrences, and what is to recur."""
    return Call("reseal/rules", partition, exchanges)


def subjects(topic: str, exchanges: Sequence[Argument]) -> Call[int]:
    """The same of the keys of subjects."""
    return Call("reseal/subjects", topic, exchanges)


def begin(partition: str, run: str) -> Call[bytes]:
    """Begin a copy of the dead letters. With an empty `run`, only remove one that was left."""
    return Call("reseal/begin", partition, (run,))


def copy(partition: str, run: str, letters: Sequence[Argument]) -> Call[bytes]:
    """Take for each letter the entry's id and its content. The reply is a word."""
    return Call("reseal/copy", partition, (run, *letters))


def drop(partition: str, run: str, entries: Sequence[Argument]) -> Call[bytes]:
    """Take entries' ids. The reply is a word."""
    return Call("reseal/drop", partition, (run, *entries))


def swap(partition: str, run: str) -> Call[bytes]:
    """The reply is a word."""
    return Call("reseal/swap", partition, (run,))
