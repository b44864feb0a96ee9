"""The scripts as a test has them: by a clock in its hand, and perhaps with a rule broken."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from relay.store.server.manifest import verbs
from relay.store.server.scripts import source, variants
from tests.worlds.scripts.rules import Break, replaced

SYSTEM_CLOCK = "  local t = redis.call('TIME')\n  return t[1] * 1000000 + t[2]\n"
INJECTED_CLOCK = (
    "  local held, t = redis.call('GET', KEYS[1] .. ':now'), redis.call('TIME')\n"
    "  return held and tonumber(held) or t[1] * 1000000 + t[2]\n"
)
BY_OUR_CLOCK = "return now_us > us or us > now_us + LONGEST_CALL"
BY_THE_SYSTEMS = "local t = redis.call('TIME')[1] * 1000000 return t > us or us > t + LONGEST_CALL"
"""Until when a call may act is told by the server's own clock, whatever the test's shows."""

EXPIRY = ", 'PXAT', string.format('%.0f', math.ceil(till / 1000))"  # goes by the server's own clock


def clocked(text: str) -> str:
    """A script that reads the time from `<first key>:now`."""
    return replaced(text, SYSTEM_CLOCK, INJECTED_CLOCK).replace(BY_OUR_CLOCK, BY_THE_SYSTEMS)


@lru_cache(maxsize=16)  # a broken set is of no use to the next test
def texts(rooms: tuple[str, ...], *breaks: Break) -> Mapping[str, str]:
    """All scripts, reading the time from `<first key>:now`; those in `rooms` have `breaks` applied."""
    scripts = {name: source(name) for verb in verbs() for name in variants(verb)}
    broken = {name: text for name, text in scripts.items() if name.startswith(rooms)}
    for each in breaks:
        broken = each.apply(broken)
    moved = {name: clocked(text) for name, text in (scripts | broken).items()}
    for name in (*variants("people/pause"), *variants("layout/tell_pause")):
        moved[name] = replaced(moved[name], EXPIRY, "")
    return moved
