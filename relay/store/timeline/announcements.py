"""Which relays live, in a stream of Redis: the contract is that of `relay.core.endpoints.announcement`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields

from relay.core.endpoints.announcement import Announcement
from relay.store.server.server import Server

LASTS = 25_000
"""Milliseconds for which a relay's word holds: two may be late or lost. By the clock of the server, which
gives each entry its time; the newest entry says what time it is."""

KEEPS = 2_000
"""The entries of the stream: those of 800 relays that say each 10 s that they live."""

PAGE = 500
"""The entries of one reply."""

_NUMBER = re.compile(r"[0-9]{1,12}")
_TEXTS, _NUMBERS = ("instance", "name", "version"), ("up", "streams", "held", "pushes", "push_held")

MOST_TEXT = 300
"""The characters of a text that somebody else may have written."""


class RedisAnnouncements:
    """`Announcements` on a server; in a Cluster one key of one node. A word that comes late does no harm: it
    holds for as long as any other, and changes nothing else."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def announce(self, relay: Announcement) -> None:
        """See `Announcements.announce`. One XADD."""
        said = [part for each in fields(relay) for part in (each.name, str(getattr(relay, each.name)))]
        await self._add(said)

    async def leave(self, instance: str) -> None:
        """See `Announcements.leave`. One XADD."""
        await self._add(["left", instance])

    async def living(self) -> Sequence[Announcement]:
        """See `Announcements.living`. An XREVRANGE for each `PAGE` entries of the last 25 s, 4 at most."""
        newest: dict[str, Announcement | None] = {}
        before, oldest = "+", 0
        for _ in range(KEEPS // PAGE):
            found = await self._server.ask("XREVRANGE", self._server.keys.alive, before, "-", "COUNT", PAGE)
            for entry, flat in found:
                at = int(entry.partition(b"-")[0])
                oldest = oldest or at - LASTS
                if at < oldest:
                    break
                instance, said = _read(flat)
                newest.setdefault(instance, said)
            else:
                if len(found) == PAGE:
                    before = f"({found[-1][0].decode()}"
                    continue
            break
        return sorted((each for each in newest.values() if each), key=lambda each: (each.name, each.instance))

    async def _add(self, said: Sequence[str]) -> None:
        key = self._server.keys.alive
        await self._server.ask("XADD", key, "MAXLEN", "~", KEEPS, "*", *said)


def _read(flat: Sequence[bytes] | Mapping[bytes, bytes]) -> tuple[str, Announcement | None]:
    """Whose word an entry is, and what it says; None if that relay has left. What is not known here is
    overlooked."""
    pairs = flat.items() if isinstance(flat, Mapping) else zip(flat[::2], flat[1::2], strict=True)
    said = {name.decode(errors="replace"): text.decode(errors="replace")[:MOST_TEXT] for name, text in pairs}
    if "left" in said:
        return said["left"], None
    instance, name, version = (said.get(each, "") for each in _TEXTS)
    numbers = {each: int(said[each]) for each in _NUMBERS if _NUMBER.fullmatch(said.get(each, ""))}
    return instance, Announcement(instance, name, version, **numbers)
