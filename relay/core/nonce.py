"""Nonces: what makes each claim call's tokens its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import count


def nonces(instance: bytes | None = None) -> Callable[[], bytes]:
    """Return a source of 16-byte nonces: 8 random bytes of this instance and a sequence.

    They never repeat within an instance; two instances share one with a chance of 2^-64.
    """
    prefix = secrets.token_bytes(8) if instance is None else instance
    sequence = count(1)
    return lambda: prefix + next(sequence).to_bytes(8, "big")
