"""The lease record as Python sees it; `lua/prelude.lua` writes it, and says what it means."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

_RECORD = Struct("<BBBBBIIddd16s16s")
NONCE_SIZE = 16
NO_NONCE = bytes(NONCE_SIZE)
PENDING, LEASED, PARKED = 0, 1, 2


class Record(NamedTuple):
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


def read_claimed(raw: bytes) -> tuple[int, int, int, int, float, bytes]:
    """Of a claimed timer's record only what a delivery needs, since there are many of them: `suspect`,
    `approximate`, `attempts`, `claims`, `due` and `occurrence`."""
    return _CLAIMED.unpack(raw)


def read(raw: bytes) -> Record:
    """Unpack a record that a script returned."""
    return Record._make(_RECORD.unpack(raw))


def text_of(raw: bytes) -> tuple[str, bool]:
    """A timer_id, and whether it is UTF-8; foreign writers are free to use anything."""
    try:
        return raw.decode(), True
    except UnicodeDecodeError:
        return raw.decode(errors="surrogateescape"), False
