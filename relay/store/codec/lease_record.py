"""The lease record in Python. `lua/lib/prelude.lua` writes it, and says what it means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from relay.core.instants import from_score

_RECORD = Struct("<BBBBBIIddd16s16s")
VERSION = 2
NONCE_SIZE = 16
NO_NONCE = bytes(NONCE_SIZE)
PENDING, LEASED, PARKED = 0, 1, 2


class LeaseRecord(NamedTuple):
    """One lease record. `score`, `due` and `expires` (0: never) are unix seconds."""

    version: int
    state: int
    received: int
    suspect: int
    approximate: int
    attempts: int
    claims: int
    score: float
    due: float
    expires: float
    nonce: bytes
    occurrence: bytes


_CLAIMED = Struct("<3xBBII8xd8x16x16s")


read_claimed: Callable[[bytes], tuple[int, int, int, int, float, bytes]] = _CLAIMED.unpack
"""The fields of a claimed timer's record that a delivery needs, since there are many of them: `suspect`,
`approximate`, `attempts`, `claims`, `due` and `occurrence`."""


def read(raw: bytes) -> LeaseRecord:
    """Unpack a record that a script returned."""
    return LeaseRecord._make(_RECORD.unpack(raw))


def due_of(raw: bytes) -> int | None:
    """Return a record's due time in microseconds; None if it is not a record of ours."""
    if len(raw) != _RECORD.size or raw[0] != VERSION:
        return None
    return from_score(read(raw).due)


OFF_GRID = 2.0**-21
"""Seconds past a whole microsecond at which every score lies that a script writes beside a record."""


def fresh(due: float, expires: float) -> tuple[float, bytes]:
    """The score and the record of a timer that expires and that nothing has happened to: as
    `timeline/schedule.lua` writes them. Both arguments in unix seconds."""
    score = math.ceil(due * 1e6) / 1e6 + OFF_GRID  # no publisher's: the record must not explain theirs
    expires = max(expires, 1e-6)  # 0 is never
    record = _RECORD.pack(VERSION, PENDING, 0, 0, 0, 0, 0, score, due, expires, NO_NONCE, NO_NONCE)
    return score, record


def text_of(raw: bytes) -> tuple[str, bool]:
    """A timer_id, and whether it is UTF-8; foreign writers are free to use anything."""
    try:
        return raw.decode(), True
    except UnicodeDecodeError:
        return raw.decode(errors="surrogateescape"), False


def texts_of(raw: Sequence[bytes]) -> tuple[list[str], list[bool]]:
    """The same of many."""
    try:
        return [each.decode() for each in raw], [True] * len(raw)
    except UnicodeDecodeError:
        texts, readable = zip(*map(text_of, raw), strict=True)
        return list(texts), list(readable)
