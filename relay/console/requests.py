"""What a page is asked with, and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from relay.api.access import Access
from relay.api.history.calls import HistoryCalls
from relay.api.looking.moving import TimerMoves
from relay.api.looking.partitions import PartitionCalls
from relay.api.looking.people import ActionCalls
from relay.api.looking.searching import TimerSearches
from relay.api.recurring.calls import RecurrenceCalls
from relay.api.timers import TimerCalls
from relay.api.topics import TopicCalls
from relay.console.alerts import Alerts
from relay.console.live import Live
from relay.console.trends import Trends
from relay.core.errors import InvalidField
from relay.core.instants import SECOND

MOST_NAME = 1024
"""The characters of a field of a form, but for those that say otherwise."""


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """A setting as it holds for a topic: its name within the topic's entry, its value as people write it, and
    where it comes from: `topics.<name>`, `defaults`, or `built in`."""

    name: str
    value: str
    origin: str


SettingsOf = Callable[[str], "list[TopicSetting]"]


@dataclass(frozen=True, slots=True)
class Desk:
    """All that pages ask."""

    topics: TopicCalls
    timers: TimerCalls
    history: HistoryCalls
    recurrences: RecurrenceCalls
    searches: TimerSearches
    moves: TimerMoves
    partitions: PartitionCalls
    people: ActionCalls
    access: Access
    live: Live
    trends: Trends
    alerts: Alerts
    settings_of: SettingsOf
    relay_name: str = ""
    instance: str = ""
    trace_url: str = ""
    opens_sealed: bool = False
    """Whether this relay has a keyring, and so may read what must not be written again in the clear."""


@dataclass(frozen=True, slots=True)
class PageCall:
    """One request: its parameters, from the query of a GET or the form of a POST."""

    given: Mapping[str, str]
    principal: str

    def text(self, name: str, most: int = MOST_NAME) -> str:
        """A parameter; empty if it is missing. Raises `InvalidField` if it has over `most` characters."""
        said = self.given.get(name, "")
        if len(said) > most:
            raise InvalidField(name, f"has {len(said):,} characters; give {most:,} at most")
        return said

    def need(self, name: str) -> str:
        """A parameter that has to be there. Raises `InvalidField`."""
        if not (said := self.text(name)):
            raise InvalidField(name, "is missing; the address of this page names it")
        return said

    def instant(self, name: str) -> int | None:
        """An instant in microseconds: ISO 8601, in UTC where it names no zone; None if it is missing. Raises
        `InvalidField`."""
        said = self.text(name).strip()
        if not said:
            return None
        try:
            read = datetime.fromisoformat(said)
        except ValueError:
            raise InvalidField(name, "is not an instant; write it as 2026-11-24T08:00:00Z") from None
        aware = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
        since = aware - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds

    def need_instant(self, name: str) -> int:
        """The same of an instant that has to be there. Raises `InvalidField`."""
        if (found := self.instant(name)) is None:
            raise InvalidField(name, "is missing; write it as 2026-11-24T08:00:00Z")
        return found


def whole(name: str, said: str, most: int) -> int:
    """Read a whole number from 1 to `most`. Raises `InvalidField`."""
    if not said.isascii() or not said.isdigit() or not 1 <= int(said) <= most:
        raise InvalidField(name, f"is not a whole number from 1 to {most}")
    return int(said)


@dataclass(frozen=True, slots=True)
class Shown:
    """A page: a template, and what it shows."""

    template: str
    about: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Download:
    """Bytes that a browser saves and does not show."""

    content: bytes
    name: str


PageAnswer = Shown | Download
Handler = Callable[[Desk, PageCall], Awaitable[PageAnswer]]
