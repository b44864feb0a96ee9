"""The lease record as Python sees it; `lua/prelude.lua` writes it, and says what it means."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

_RECORD = Struct("<BBBBBIIdd16s16s")
NONCE_SIZE = 16
NO_NONCE = bytes(NONCE_SIZE)
PENDING, LEASED, PARKED = 0, 1, 2


class Record(NamedTuple):
    """One lease record. `score` and `due` are unix seconds."""

    version: int
    state: int
    received: int
    suspect: int
    approximate: int
    attempts: int
    claims: int
    score: float
    due: float
    nonce: bytes
    occurrence: bytes


def read(raw: bytes) -> Record:
    """Unpack a record that a script returned."""
    return Record._make(_RECORD.unpack(raw))
