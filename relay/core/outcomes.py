"""What is written back about a lease, and what the store says to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verb(Enum):
    """How a lease ends. ACK, NACK and REJECT come from the application, RELEASE from the relay."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"
    RELEASE = "release"


class Verdict(Enum):
    """What a token was worth: it held; it was stale; the timer is no longer there."""

    OK = "OK"
    STALE = "STALE"
    GONE = "GONE"


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of one lease, to be written by `TimerStore.settle`.

    `retry_after` (microseconds) goes with NACK; None leaves the timer where its lease ends.
    `received` and `suspect` go with RELEASE: whether the application had received the call, so
    that the attempt counts, and whether the next delivery is to go alone.
    """

    timer_id: str
    nonce: bytes
    verb: Verb
    retry_after: int | None = None
    received: bool = False
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class Extension:
    """A lease to be renewed; `received` records the application's receipt in the same step."""

    timer_id: str
    nonce: bytes
    received: bool = False
