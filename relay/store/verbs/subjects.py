"""The scripts of `lua/subjects`."""

from __future__ import annotations

from collections.abc import Sequence

from relay.store.server.scripts import Argument, Call


def keep(topic: str, keys: Sequence[Argument]) -> Call[list[bytes]]:
    """Take for each subject its field and the key that it is to have. The reply: what each has."""
    return Call("subjects/keep", topic, keys)


def forget(topic: str, field: str) -> Call[bytes]:
    """Take the subject's field. The reply: since when it is forgotten, empty for none of that field."""
    return Call("subjects/forget", topic, (field,))
