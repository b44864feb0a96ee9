"""How many script calls of which kind were made, read from what the server counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LOOKS = "zrangebyscore"
"""lua/claim.lua runs it once a call, and no other script does."""
FINDS = "get"
"""lua/claim.lua runs it once if something is due, and only `stats` does besides. `tests/bench` holds both."""
SCRIPT = "evalsha"


@dataclass(frozen=True)
class Claims:
    """Claim calls: all of them, and those that found something due."""

    all: int
    useful: int


def since(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """How often each command has run in between."""
    return {name: count - before.get(name, 0) for name, count in now.items()}


def claims(now: Mapping[str, int], before: Mapping[str, int]) -> Claims:
    """The claim calls in between."""
    ran = since(now, before)
    return Claims(ran.get(LOOKS, 0), ran.get(FINDS, 0))
