"""The operations of the JSON API. The OpenAPI document is made from the tables of these, too."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote, unquote

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from relay.api.deliveries import Consumers, Taken
from relay.api.history.calls import HistoryCalls
from relay.api.recurring.calendars import CalendarCalls
from relay.api.recurring.calls import RecurrenceCalls
from relay.api.timers import TimerCalls
from relay.api.topics import TopicCalls
from relay.core.errors import InvalidField
from relay.web import forms

BOOL, BOOLEANS = FieldDescriptor.TYPE_BOOL, ("true", "false")


@dataclass(frozen=True, slots=True)
class Calls:
    """The services that the operations call."""

    timers: TimerCalls
    topics: TopicCalls
    recurrences: RecurrenceCalls
    calendars: CalendarCalls
    consumers: Consumers
    histories: HistoryCalls


@dataclass(slots=True)
class ApiCall:
    """One parsed request."""

    path: Mapping[str, str]
    """The decoded values of the path's template."""
    query: Mapping[str, str]
    body: Any
    trace: Mapping[str, str]
    """The caller's W3C trace context."""
    given: dict[str, str] = field(default_factory=dict)
    """The other names by which fields were given; see `forms.read`."""
    size: int = 0
    """The bytes of the body that have come."""

    def came(self, size: int) -> None:
        """Count bytes of the body."""
        self.size += size

    def read(
        self,
        message: Message,
        body: Any = None,
        *,
        path: str = "",
        without: tuple[str, ...] = (),
        also: tuple[str, ...] = (),
    ) -> None:
        """Fill `message` from the body, or from a part of it; see `forms.read`."""
        body = self.body if body is None else body
        self.given |= forms.read(message, body, path=path, without=without, also=also)

    def read_beside(self, request: Message, inner: Message, about: tuple[str, ...]) -> None:
        """Fill a message from the body, in which those of its fields that are named in `about` stand beside
        the fields of the message within it. What the path says may not be in the body."""
        body = self.body
        if isinstance(body, Mapping):
            self.read(request, {name: value for name, value in body.items() if name in about})
            body = {name: value for name, value in body.items() if name not in about}
        self.read(inner, body, without=tuple(self.path), also=about)

    def read_query(self, message: Message) -> bool:
        """Fill `message` from its parameters in the query; return whether there were any."""
        fields = message.DESCRIPTOR.fields_by_name
        mine = {
            name: text == "true" if fields[name].type == BOOL and text in BOOLEANS else text
            for name, text in self.query.items()
            if name in fields
        }
        forms.read(message, mine)
        return bool(mine)


@dataclass(slots=True)
class Answer:
    """The answer, with status 200 unless it says otherwise. `held` is false if a condition did not hold."""

    value: dict[str, Any]
    status: int = 200
    location: str = ""
    held: bool = True
    taken: Taken | None = None
    """The deliveries that it carries."""


class Handle(Protocol):
    """Performs an operation. It is a function, so that it has a name."""

    __name__: str
    __module__: str

    def __call__(self, calls: Calls, call: ApiCall, /) -> Awaitable[Answer]:
        """Perform the operation. Raises `RelayError`."""
        ...


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `query` names the fields of the messages that may be in the query.

    `body` and `answer` are the messages of `relay.v1` that go in and out. `schema` describes a body that is
    not such a message. `statuses` lists the successes, `problems` the errors beside those that every
    operation has.
    """

    method: str
    path: str
    handle: Handle
    summary: str
    answer: type[Message] | None
    body: type[Message] | None = None
    schema: Mapping[str, Any] | None = None
    query: Mapping[str, type[Message]] = field(default_factory=dict)
    statuses: Mapping[int, str] = field(default_factory=lambda: {200: "Done."})
    problems: tuple[int, ...] = ()
    takes_deliveries: bool = False
    """Whether the answer may carry deliveries."""
    has_own_time: bool = False
    """Whether it bounds its time by itself, and `Relay-Timeout` says nothing to it."""

    @property
    def name(self) -> str:
        """The name of the operation, such as `timers_get`."""
        return f"{self.handle.__module__.rpartition('.')[2]}_{self.handle.__name__}"

    @property
    def takes_body(self) -> bool:
        """Whether the operation has a body."""
        return self.body is not None or self.schema is not None

    @property
    def places(self) -> list[str]:
        """The names in the path's template."""
        return re.findall(r"\{(\w+)\}", self.path)

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern of undecoded paths; an id may hold a %2F."""
        parts = re.split(r"\{(\w+)\}", self.path)
        named = [f"(?P<{part}>[^/]*)" if index % 2 else re.escape(part) for index, part in enumerate(parts)]
        return re.compile("".join(named))


def decoded(segments: Mapping[str, str]) -> dict[str, str]:
    """Decode the segments of a path. Raises `InvalidField`."""
    found = {}
    for name, segment in segments.items():
        try:
            found[name] = unquote(segment, errors="strict")
        except UnicodeDecodeError:
            raise InvalidField(name, "is not UTF-8; give valid Unicode text, percent-encoded") from None
    return found


def queried(raw: bytes, known: Collection[str]) -> dict[str, str]:
    """Parse the parameters of a query, each of which may come once. Raises `InvalidField`."""
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, errors="strict")
    except ValueError:
        raise InvalidField("query", "is not UTF-8; give valid Unicode text, percent-encoded") from None
    found: dict[str, str] = {}
    for key, text in pairs:
        if key not in known:
            there = f"there are {', '.join(known)}" if known else "there is none"
            raise InvalidField(key, f"is not a parameter of this query; {there}")
        if key in found:
            raise InvalidField(key, "is in the query twice; give it once")
        found[key] = text
    return found


def timer_path(topic: str, timer_id: str) -> str:
    """Return the path of a timer."""
    return f"/v1/topics/{quote(topic, safe='')}/timers/{quote(timer_id, safe='')}"
