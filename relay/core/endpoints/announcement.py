"""What a relay says of itself now and then, so that others know that it lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Announcement:
    """One relay: an id that no two share, what it is called, its version, the seconds for which it has been
    there; its topic subscriptions by streams, and the topics that it pushes; how many deliveries the
    applications of the ones and of the others hold."""

    instance: str
    name: str
    version: str
    up: int = 0
    streams: int = 0
    held: int = 0
    pushes: int = 0
    push_held: int = 0


class Announcements(Protocol):
    """Where relays say that they live."""

    async def announce(self, relay: Announcement) -> None:
        """Say so. It holds for a while, by the server's clock. Raises `StoreError`."""
        ...

    async def leave(self, instance: str) -> None:
        """Say that a relay lives no more. Raises `StoreError`."""
        ...

    async def living(self) -> Sequence[Announcement]:
        """The relays that live, by their names. Raises `StoreError`."""
        ...
