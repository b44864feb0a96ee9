"""How many calls of which kind were made, read from what the server counts.

It counts a command that a script runs like one that was sent. So what was sent is what no script of relay's
runs; a lock's SET goes unseen thereby, once in some minutes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from relay.store.server.manifest import verbs
from relay.store.server.scripts import source

LOOKS = "zrangebyscore"
"""lua/timeline/claim.lua runs it once a call, and no other script does."""
FINDS = "get"
"""timeline/claim.lua runs it once if something is due; only people/stats.lua does besides (`tests/bench`)."""
SCRIPT = "evalsha"
VERBS = tuple(
    name for name in verbs() if name.startswith(("timeline/", "people/")) or name == "stream/redrive"
)
"""The scripts of what is measured here."""
OURS = ("info", "client", "config", "command", "dbsize", "exists")
"""What the bench sends itself, with whatever stands behind a `|`."""


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


def calls(now: Mapping[str, int], before: Mapping[str, int]) -> int:
    """How many script calls were made in between; one that the server did not know yet counts twice."""
    ran_since = since(now, before)
    return ran_since.get(SCRIPT, 0) + ran_since.get("eval", 0)


def sent(now: Mapping[str, int], before: Mapping[str, int]) -> int:
    """How many commands relays have sent in between."""
    unseen = {*inner(), *OURS}
    return sum(count for name, count in since(now, before).items() if name.partition("|")[0] not in unseen)


def ran(now: Mapping[str, int], before: Mapping[str, int]) -> int:
    """How many commands the server has run for them in between, within scripts too."""
    return sum(count for name, count in since(now, before).items() if name.partition("|")[0] not in OURS)


@cache
def inner() -> frozenset[str]:
    """The commands that scripts run."""
    text = "\n".join(map(source, VERBS))
    return frozenset(name.lower() for name in re.findall(r"redis\.p?call\(\s*'(\w+)'", text))
