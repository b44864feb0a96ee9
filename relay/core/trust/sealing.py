"""Sealing: what it needs of a keyring, and why a content may not open."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from relay.core.partitions import hashed, topic_of

SUBJECT = "subject:"
"""How the id of a subject's key begins. No key of a keyring has a colon in its id."""


class Unopened(NamedTuple):
    """A content that does not open: the keyring, or Redis, lacks its key; or it is not what was sealed for
    this timer (`tampered`); or its subject was forgotten, and it never opens again (`forgotten`)."""

    key_id: str
    tampered: bool = False
    forgotten: bool = False

    def __str__(self) -> str:
        if self.forgotten:
            return "sealed for a subject that was forgotten"
        if self.tampered:
            return f"sealed with key {self.key_id!r}, and not for this timer, or changed since"
        if self.key_id.startswith(SUBJECT):
            return f"sealed with the key {self.key_id!r} of a subject, which Redis lacks"
        return f"sealed with key {self.key_id!r}, which the keyring lacks"


class DoesNotOpen(Exception):
    """A sealed text does not open."""

    def __init__(self, why: Unopened) -> None:
        super().__init__(str(why))
        self.why = why


class SubjectCipher(Protocol):
    """The key of one subject. `mark` tells it from another key that the subject had, and nothing about it."""

    @property
    def mark(self) -> str: ...

    def seal(self, bound: Sequence[bytes], plain: Sequence[bytes]) -> list[bytes]:
        """Seal texts, each for what it is bound to."""
        ...

    def open(self, bound: bytes, sealed: bytes) -> bytes | None:
        """Open a text; None if it was sealed by another key, for something else, or is changed."""
        ...


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

    def cipher(self, key_id: str, bound: bytes, sealed: bytes) -> SubjectCipher:
        """Open a subject's key, which was sealed as any text. Raises `DoesNotOpen`."""
        ...


NAME_BYTES = 16
"""The bytes of its name's hash by which a subject is known."""


def subject_id(topic: str, subject: str) -> str:
    """What stands for a subject wherever its name is not to stand: 22 characters of a hash of both names."""
    named = hashlib.sha256(f"{topic}\0{subject}".encode(errors="surrogateescape")).digest()
    return base64.urlsafe_b64encode(named[:NAME_BYTES]).decode().rstrip("=")


def bound_to(partition: str, timer_id: str) -> bytes:
    """What the content of a timer is sealed for: its topic and its id. An occurrence has its recurrence's id
    there, and so has the recurrence."""
    counted = hashed(timer_id) if "@" in timer_id else timer_id
    # No topic has a control character in its name, so that no two pairs are one text.
    return f"{topic_of(partition)}\0{counted}".encode(errors="surrogateescape")
