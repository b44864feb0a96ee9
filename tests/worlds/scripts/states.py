"""What a topic's keys hold, as values that a test writes down and compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from relay.store.codec import envelope, lease_record
from relay.store.codec.lease_record import NO_NONCE, LeaseRecord
from tests.worlds.scripts.asking import N1

ENVELOPE = envelope.encode(b"payload", {}, "")


def score(instant: int) -> float:
    """A whole microsecond, as publishers write it."""
    return instant / 1e6


def own(instant: int) -> float:
    """The score that only Relay writes: a whole microsecond + 2^-21 s."""
    return instant / 1e6 + 2**-21


def record(state: int, score: float, *, due: float, nonce: bytes = NO_NONCE, **rest: Any) -> LeaseRecord:
    """A record; what is not given is zero, and `claims` is 1."""
    fields = {"received": 0, "suspect": 0, "approximate": 0, "attempts": 0, "claims": 1, "occurrence": N1}
    fields |= {"expires": 0.0}
    return LeaseRecord(version=2, state=state, score=score, due=due, nonce=nonce, **{**fields, **rest})


def limited(at: float, limit: float) -> str:
    """What stands in the place of the record of a debounced timer with a limit; see 0090."""
    return f"debounced {at:.17g} until {limit:.17g}"


def packed(found: LeaseRecord | str) -> bytes:
    """The bytes of that."""
    return found.encode() if isinstance(found, str) else lease_record._RECORD.pack(*found)


class Letter(NamedTuple):
    """A dead letter but for its id, which the server makes; `due` in unix seconds, `died` in microseconds."""

    timer_id: str
    reason: str
    attempts: int
    claims: int
    due: float
    died: int
    occurrence: bytes
    error: bytes = b""
    envelope: bytes = ENVELOPE


class State(NamedTuple):
    """All that a topic's keys hold but for the journal; ids that are not UTF-8 come as surrogate escapes."""

    timeline: dict[str, float]
    payloads: dict[str, bytes]
    leases: dict[str, LeaseRecord]
    dead: tuple[Letter, ...] = ()
    pause: int | None = None
    limits: Mapping[str, str] = {}
    """What stands in the places of records."""

    def of(self, timer_id: str) -> tuple[float | None, bytes | None, LeaseRecord | None]:
        """What they hold of one timer."""
        return self.timeline.get(timer_id), self.payloads.get(timer_id), self.leases.get(timer_id)


EMPTY = State({}, {}, {})


def alone(
    timer_id: str, at: float, lease: LeaseRecord | str | None = None, *, stored: bytes = ENVELOPE
) -> State:
    """The state of a topic with one timer."""
    records = {timer_id: lease} if isinstance(lease, LeaseRecord) else {}
    limits = {timer_id: lease} if isinstance(lease, str) else {}
    return State({timer_id: at}, {timer_id: stored}, records, limits=limits)


def text_of_id(timer_id: bytes) -> str:
    return timer_id.decode(errors="surrogateescape")


def written(value: str | bytes | float) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else repr(value)).encode(errors="surrogateescape")


def letter_of(fields: Mapping[bytes, bytes]) -> Letter:
    return Letter(
        timer_id=text_of_id(fields[b"timer_id"]),
        reason=fields[b"reason"].decode(),
        attempts=int(fields[b"attempts"]),
        claims=int(fields[b"claims"]),
        due=float(fields[b"due"]),
        died=int(fields[b"died"]),
        occurrence=fields[b"occurrence"],
        error=fields[b"error"],
        envelope=fields[b"envelope"],
    )
