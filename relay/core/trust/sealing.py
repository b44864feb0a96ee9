"""Sealing: what it needs of a keyring, and why a content may not open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from relay.core.partitions import hashed, topic_of


class Unopened(NamedTuple):
    """A content that does not open: the keyring lacks its key, or it is not what was sealed for this timer
    (`tampered`)."""

    key_id: str
    tampered: bool = False

    def __str__(self) -> str:
        if self.tampered:
            return f"sealed with key {self.key_id!r}, and not for this timer, or changed since"
        return f"sealed with key {self.key_id!r}, which the keyring lacks"


class DoesNotOpen(Exception):
    """A sealed text does not open."""

    def __init__(self, why: Unopened) -> None:
        super().__init__(str(why))
        self.why = why


class Keyring(Protocol):
    """Seals with one key, and opens with all that it has. Nothing of this waits.

    `bound` is what a text is sealed for, see `bound_to`: it opens only with the same.
    """

    def seal(self, bound: Sequence[bytes], plain: Sequence[bytes]) -> tuple[str, list[bytes]]:
        """Seal texts; return the key's id, and the sealed texts, each `overhead` bytes longer."""
        ...

    def open(self, key_id: str, bound: bytes, sealed: bytes) -> bytes:
        """Open a text that was sealed with this key. Raises `DoesNotOpen`."""
        ...


def bound_to(partition: str, timer_id: str) -> bytes:
    """What the content of a timer is sealed for: its topic and its id. An occurrence has its recurrence's id
    there, and so has the recurrence."""
    counted = hashed(timer_id) if "@" in timer_id else timer_id
    # No topic has a control character in its name, so that no two pairs are one text.
    return f"{topic_of(partition)}\0{counted}".encode(errors="surrogateescape")
