"""The scripts of `lua/layout`."""

from __future__ import annotations

from relay.store.server.scripts import Call


def begin(topic: str, partitions: int, known: str = "") -> Call[bytes]:
    """The reply: the topic's layout as text, empty if it has none."""
    return Call("layout/begin", topic, (partitions, known))
