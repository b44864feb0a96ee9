"""The scripts of `lua/layout`."""

from __future__ import annotations

from relay.store.server.scripts import Call


def begin(topic: str, partitions: int, known: str = "") -> Call[bytes]:
    """The reply: the topic's layout as text, empty if it has none."""
    return Call("layout/begin", topic, (partitions, known))


def change(topic: str, known: str, becomes: str, rate: int = 0) -> Call[bytes]:
    """Give a topic another layout than the one that is known. The reply: the one that it has now."""
    return Call("layout/change", topic, (known, becomes, rate))


def heartbeat(topic: str, relay: str, lasts: int) -> Call[list[bytes]]:
    """Say that a relay polls a topic, for `lasts` microseconds; with 0, that it does no more. The reply: the
    names of all that do."""
    return Call("layout/heartbeat", topic, (relay, lasts))


def tell_pause(partition: str, till: int) -> Call[bytes]:
    """Tell a partition whether its topic is paused, and until when (microseconds; 0: it is not)."""
    return Call("layout/tell_pause", partition, (till,))
