"""What people did, in a stream of Redis: the contract is that of `relay.core.trust.actions.ActionStore`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import fields

import anyio

from relay.core.durability import STORED, needed, needing
from relay.core.errors import InvalidField, StoreUnavailable
from relay.core.instants import LATEST
from relay.core.trust.actions import Action
from relay.store.server.scripts import ignore
from relay.store.server.server import Server
from relay.store.verbs import people

KEEPS = 100_000
"""The entries that the stream keeps, if nobody says otherwise; each action has two."""

_TIME = re.compile(r"[0-9]{1,18}")
_ENTRY = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")

PATIENCE = 3.0
"""Seconds for which an action waits for an entry, and no longer: who pauses a topic may be in a hurry."""

PAGE = 500
"""The entries of one reply."""

WRITTEN = tuple(each.name for each in fields(Action) if each.name not in ("time", "entry"))
"""The fields of an entry, in order; one that is empty is left out. The script adds the time."""


class RedisActions:
    """An `ActionStore` on a server; in a Cluster one key of one node. `trimmed` is told how many of the
    oldest entries were removed, beyond those that the stream `keeps`."""

    def __init__(
        self, server: Server, *, keeps: int = KEEPS, trimmed: Callable[[int], None] = ignore
    ) -> None:
        self._server = server
        self._keeps = keeps
        self._trimmed = trimmed

    async def append(self, action: Action, *, once: str = "") -> str:
        """See `ActionStore.append`. One script call. Raises `StoreUnavailable` if Redis is slow.

        On one server it does not wait for the caller's durability: the effect comes behind it in the same
        file and on the same way to the replicas, so a wait for the effect is one for the entry, too. A wait
        of its own would take as long again. Nodes of a Cluster have a file each.
        """
        written = [part for name in WRITTEN if (text := getattr(action, name)) for part in (name, text)]
        level = needed() if self._server.is_cluster else STORED
        try:
            with anyio.fail_after(PATIENCE), needing(level):
                entry, trimmed = await self._server.call(people.record(self._keeps, once, written))
        except TimeoutError:
            raise StoreUnavailable(f"Redis did not answer within {PATIENCE:g} s") from None
        if trimmed:
            self._trimmed(trimmed)
        return str(entry, "ascii")

    async def backwards(self) -> AsyncIterator[Action]:
        """All entries, the newest first. An XREVRANGE for each `PAGE`."""
        before = ""
        while found := await self.page(before, PAGE):
            for each in found:
                yield each
            before = found[-1].entry

    async def page(self, before: str, limit: int) -> list[Action]:
        """See `ActionStore.page`. One XREVRANGE. Raises `InvalidField`."""
        if before and not _ENTRY.fullmatch(before):
            raise InvalidField("before", "is not the id of an entry; start without one")
        return await self._page("XREVRANGE", f"({before}" if before else "+", "-", limit)

    async def behind(self, entry: str) -> AsyncIterator[Action]:
        """The entries behind an entry, in the order in which they were written. An XRANGE for each `PAGE`."""
        while found := await self._page("XRANGE", f"({entry}", "+"):
            for each in found:
                yield each
            entry = found[-1].entry

    async def _page(self, command: str, start: str, end: str, limit: int = PAGE) -> list[Action]:
        key = self._server.keys.actions
        return [
            read_action(*each) for each in await self._server.ask(command, key, start, end, "COUNT", limit)
        ]


def read_action(entry: bytes, flat: Sequence[bytes] | Mapping[bytes, bytes]) -> Action:
    """An entry; of fields that are not known here nothing is kept, and one that somebody else wrote is
    empty."""
    pairs = flat.items() if isinstance(flat, Mapping) else zip(flat[::2], flat[1::2], strict=True)
    said = {name.decode(errors="replace"): text.decode(errors="replace") for name, text in pairs}
    time = said.get("time", "")
    written = min(int(time), LATEST) if _TIME.fullmatch(time) else 0
    texts = {name: said.get(name, "") for name in WRITTEN}
    if not _ENTRY.fullmatch(texts["began"]):
        texts["began"] = ""
    return Action(**texts, time=written, entry=entry.decode())
