"""The keys of subjects: how they lie in Redis, and those that this process knows for a few seconds.

A topic has one hash of them. A field is a subject, by a hash of its name; its value is one of these:

    k2026-11 <sealed text>      its key, sealed with that key of the keyring
    !1767225600000000           when it was forgotten, in microseconds since 1970
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

from relay.core.errors import InvalidField, SubjectForgotten
from relay.core.partitions import topic_of
from relay.core.trust.sealing import SUBJECT, DoesNotOpen, Keyring, SubjectCipher, Unopened
from relay.store.codec.sealed import subject_key_of

KNOWN = 5.0
"""Seconds for which a subject's key is used before Redis is asked for it again: a forgotten subject is
unreadable everywhere after as many."""

MOST_KNOWN = 10_000
"""The number of subjects whose keys are known at a time."""

KEY_BYTES = 32
TOMBSTONE = b"!"
"""How the value of a subject begins that was forgotten. No key has such an id."""

FIELD = "seal_with"


def bound_key(topic: str, field: str) -> bytes:
    """What a subject's key is sealed for. No timer's content is bound to such a text."""
    return f"\0subject\0{topic}\0{field}".encode(errors="surrogateescape")


def forgotten_at(value: bytes) -> int | None:
    """When a subject was forgotten, in microseconds; None if it was not."""
    return int(value[len(TOMBSTONE) :]) if value.startswith(TOMBSTONE) else None


def wrapped(keyring: Keyring, topic: str, field: str, key: bytes) -> bytes:
    """The value of a subject that has this key."""
    key_id, (text,) = keyring.seal([bound_key(topic, field)], [key])
    return key_id.encode() + b" " + text


def parts_of(value: bytes) -> tuple[str, bytes]:
    """The id of the keyring's key that a subject's key is sealed with, and the sealed text."""
    key_id, _, text = value.partition(b" ")
    return key_id.decode(errors="replace"), text


@dataclass(frozen=True, slots=True)
class SubjectKey:
    """The key of a subject; `key_id` is what stands in contents that it seals."""

    key_id: str
    cipher: SubjectCipher


@dataclass(slots=True)
class _Known:
    value: bytes | None
    found: SubjectKey | Unopened
    until: float


class SubjectKeys:  # see 0116
    """What is known of the subjects of all topics. Nothing here asks Redis: whoever does says what it found
    (`learn`), and then contents are sealed and opened before anybody else gets a turn."""

    def __init__(self, keyring: Keyring, now: Callable[[], float] = monotonic) -> None:
        self._keyring = keyring
        self._now = now
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()

    def unknown(self, topic: str, fields: Iterable[str], *, for_sealing: bool = False) -> list[str]:
        """Those subjects that Redis has to be asked for, each once. One that seals must have a key."""
        now = self._now()
        return [field for field in dict.fromkeys(fields) if self._is_unknown(topic, field, now, for_sealing)]

    def _is_unknown(self, topic: str, field: str, now: float, for_sealing: bool) -> bool:
        known = self._known.get((topic, field))
        return known is None or known.until <= now or (for_sealing and known.value is None)

    def learn(self, topic: str, fields: Sequence[str], values: Sequence[bytes | None]) -> None:
        """Take what lies in Redis of subjects."""
        until = self._now() + KNOWN
        for field, value in zip(fields, values, strict=True):
            before = self._known.pop((topic, field), None)
            keeps = before is not None and before.value == value and isinstance(before.found, SubjectKey)
            found = before.found if before is not None and keeps else self._read(topic, field, value)
            self._known[topic, field] = _Known(value, found, until)
        while len(self._known) > max(MOST_KNOWN, len(fields)):
            self._known.popitem(last=False)

    def forget(self, topic: str, field: str) -> None:
        """Know nothing of a subject."""
        self._known.pop((topic, field), None)

    def keys_changed(self) -> None:
        """Ask again for the keys that did not open: the keyring has changed. One that did is still that of
        its subject."""
        there = ((name, known) for name, known in self._known.items() if isinstance(known.found, SubjectKey))
        self._known = OrderedDict(there)

    def _read(self, topic: str, field: str, value: bytes | None) -> SubjectKey | Unopened:
        if value is None:
            return Unopened(SUBJECT + field)
        if value.startswith(TOMBSTONE):
            return Unopened(SUBJECT + field, forgotten=True)
        key_id, text = parts_of(value)
        try:
            cipher = self._keyring.cipher(key_id, bound_key(topic, field), text)
        except DoesNotOpen as failure:
            return failure.why
        return SubjectKey(f"{SUBJECT}{field}.{cipher.mark}", cipher)

    def offered(self, topic: str, field: str) -> bytes:
        """The value that a subject is to have if Redis has none: a new key, or the one that is known. A
        failover may have lost that one after timers were sealed with it."""
        known = self._known.get((topic, field))
        if known is not None and known.value is not None and isinstance(known.found, SubjectKey):
            return known.value
        return wrapped(self._keyring, topic, field, os.urandom(KEY_BYTES))

    def has(self, topic: str, field: str) -> bool:
        """Whether Redis had a key of a known subject, or a tombstone."""
        return self._known[topic, field].value is not None

    def to_seal(self, topic: str, field: str) -> SubjectKey:
        """The key of a subject. Raises `SubjectForgotten`, and `InvalidField` if this keyring does not open
        it."""
        known = self._known[topic, field]
        if isinstance(known.found, SubjectKey):
            return known.found
        if known.found.forgotten:
            raise SubjectForgotten(
                FIELD, "names a subject that was forgotten, for good; give it another name"
            )
        raise InvalidField(
            FIELD,
            f"names a subject whose key is {known.found}: add that key to the keyring, and call again",
        )

    def sealing(self, key_id: str, partition: str) -> SubjectKey:
        """The key with this id. Raises `DoesNotOpen` if it is not there any more."""
        known = self._known.get((topic_of(partition), _field(key_id)))
        if known is None:
            raise DoesNotOpen(Unopened(key_id))
        if isinstance(known.found, Unopened):
            raise DoesNotOpen(known.found if known.value is not None else Unopened(key_id))
        if known.found.key_id != key_id:  # the hash was lost, and the subject has another key since
            raise DoesNotOpen(Unopened(key_id))
        return known.found


def _field(key_id: str) -> str:
    return key_id[len(SUBJECT) :].partition(".")[0]


def subjects_in(stored: Iterable[bytes]) -> set[str]:
    """The subjects whose keys contents are sealed with."""
    return {_field(key_id) for each in stored if (key_id := subject_key_of(each))}


def subjects_of(key_ids: Iterable[str]) -> set[str]:
    """The subjects of these keys, as far as they are subjects'."""
    return {_field(key_id) for key_id in key_ids if key_id.startswith(SUBJECT)}
