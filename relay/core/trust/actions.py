"""What people did: who changed what, and what was before and after. See docs/how-to/what-people-did.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from relay.core.trust.principals import Principal

RELAY = Principal("relay")
"""What a relay does by itself, such as to take over a changed policy. No caller has this name."""

TAKE_OVER_POLICY = "TakeOverPolicy"
"""What stands in a method's place where a relay has taken over a policy."""

DONE = "OK"
"""The outcome of an action that has had its effect."""


@dataclass(frozen=True, slots=True)
class Action:
    """One entry of the record: an action that has begun, or one that has ended, with all that was known as it
    began. `outcome` is empty until it has ended.

    `method` is the method of the API, or `TakeOverPolicy`; `topic` is `*` for what belongs to no topic;
    `thing` names what is meant of it: a timer, dead letters, a recurrence, a calendar. `before` and `after`
    are a few words for people. `outcome` is `OK`, or the name of a gRPC status.
    """

    principal: str
    verb: str
    method: str
    topic: str
    thing: str = ""
    note: str = ""
    before: str = ""
    relay: str = ""
    outcome: str = ""
    after: str = ""
    time: int = 0
    """When the entry was written: microseconds since 1970 by the clock of Redis."""
    entry: str = ""
    """Its id in the stream."""
    began: str = ""
    """The id of the entry with which it began, if this is not that one; empty too where nothing was noted
    before the effect."""

    @property
    def kind(self) -> str:
        """The kind of the principal: spiffe, dns, subject, jwt, token, anonymous, or relay."""
        return self.principal.partition(":")[0]

    @property
    def since(self) -> int:
        """When it began: microseconds since 1970, to the millisecond."""
        return int((self.began or self.entry).partition("-")[0]) * 1_000

    @property
    def is_open(self) -> bool:
        """Whether it has only begun."""
        return not self.outcome


class ActionStore(Protocol):
    """Keeps what people did."""

    async def append(self, action: Action, *, once: str = "") -> str:
        """Write an entry, and return its id. With `once`, only if the last entry that was written with one
        had another, which becomes the entry's `before`; the id is empty otherwise. Raises `StoreError`."""
        ...

    async def page(self, before: str, limit: int) -> list[Action]:
        """Return up to `limit` entries, the newest first; those before an entry, if `before` is not empty.
        Raises `StoreError`."""
        ...


def joined(entries: Iterable[Action]) -> list[Action]:
    """One entry for each action, in the order in which they were written: of one that has ended, only the
    entry that says how."""
    found = list(entries)
    ended = {each.began for each in found if each.began}
    return [each for each in found if not (each.is_open and each.entry in ended)]
