"""What can go wrong, as one tree.

    RelayError
    ├── InvalidField           bad input; names the field and says what to do
    │   ├── RuleOver           a recurrence's rule has fired for the last time
    │   ├── SubjectForgotten   a content is to be sealed for a subject that was forgotten
    │   └── UnknownCalendar    a rule names a calendar that does not exist
    ├── Unauthenticated        what the caller showed proves nothing
    ├── KeysAway               the keys of an issuer have never been fetched; try again
    ├── Denied                 the policy does not let the caller do it
    ├── OverBound              the caller costs more than the policy lets it; try again
    ├── TimerNotFound          no such timer
    ├── RecurrenceNotFound     no such recurrence
    ├── CalendarNotFound       no such calendar
    ├── OtherVersion           the recurrence has another version than the caller knows
    ├── TopicFull              the topic holds as many timers as it may
    ├── ContentSealed          the content is sealed, and does not open here
    ├── TooMany                more waits or is held than the relay keeps
    ├── OutOfTime              the time that the caller gave is over; try again
    ├── PartlyDone             a call for several timers failed for some of them
    ├── StoreError
    │   ├── StoreUnavailable   Redis can't be reached now; try again
    │   │   ├── GivenUp        the call was too late, and had no effect
    │   │   ├── OpenOutcome    the call was sent and never answered; it can't act any more
    │   │   └── DurabilityMissed the change is not as durable as was asked
    │   │       └── ReplicasAway it was not made: replicas are away that it would wait for
    │   ├── StoreFull          Redis is at `maxmemory` and refuses new data
    │   ├── WrongKeyType       somebody keeps something else under one of our keys
    │   ├── OtherLayout        the topic has other partitions than the caller believed
    │   └── StoreRefused       Redis answered with any other error
    │       └── NotOffered     the server can't give the durability that was asked for
    ├── UnfitServer            the server can't hold the promises; refuse to start
    └── CannotListen           an address can't be listened on; refuse to start

The first paragraph of a class's docstring is its default message.
"""

from __future__ import annotations

from typing import Any

MOST_BYTES = 900
"""The most bytes of an error's message, in UTF-8. A status of gRPC says it three times, in encodings that
make up to three bytes of one, and a caller refuses trailers of more than 8 KiB."""  # see 0109
_MOST_OF_A_FIELD = 100
_TAIL = 300
"""Bytes that stay of the end, which says what to do."""


def shortened(text: str, most: int = MOST_BYTES) -> str:
    """Return the text, or its beginning and its end if it has more than `most` bytes: it may quote what a
    caller sent, and that may be megabytes."""
    if 4 * len(text) <= most:
        return text
    raw = text.encode(errors="surrogatepass")
    if len(raw) <= most:
        return text
    tail = min(_TAIL, most // 3)
    head = raw[: most - tail - 5].decode(errors="ignore")
    return f"{head} … {raw[-tail:].decode(errors='ignore')}"


class ServiceError(Exception):
    """Relay could not do what was asked. The message has at most `MOST_BYTES`."""

    def __init__(self, message: str = "") -> None:
        first, _, _ = (type(self).__doc__ or "").partition("\n\n")
        super().__init__(shortened(message or first.strip()))


class InvalidField(ServiceError):
    """A field of the request is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        self.field = shortened(field, _MOST_OF_A_FIELD)
        self.problem = shortened(problem, MOST_BYTES - _MOST_OF_A_FIELD - 2)
        super().__init__(f"{self.field}: {self.problem}")


class RuleOver(InvalidField):
    """The rule of a recurrence has fired for the last time."""


class SubjectForgotten(InvalidField):
    """A content is to be sealed for a subject that was forgotten."""


class UnknownCalendar(InvalidField):
    """A rule names a calendar that does not exist.

    `without_nearest` is the problem for a caller who may not know which calendars there are.
    """

    def __init__(self, field: str, problem: str, without_nearest: str = "") -> None:
        super().__init__(field, problem)
        self.without_nearest = without_nearest or problem


class Unauthenticated(ServiceError):
    """The caller showed nothing that proves who it is."""


class KeysAway(ServiceError):
    """The keys by which callers are known can't be fetched now; try again."""


class Denied(ServiceError):
    """The policy does not let the caller do this.

    The message names verb and topic, and never says whether the topic exists.
    """


class OverBound(ServiceError):
    """The caller is over a bound of the policy.

    `bound` is its name, `retry_after` the seconds after which a retry may help.
    """

    def __init__(self, message: str, bound: str, retry_after: float) -> None:
        super().__init__(message)
        self.bound = bound
        self.retry_after = retry_after

    @classmethod
    def of(cls, principal: str, bound: str, most: float | None, retry_after: float) -> OverBound:
        """Make the error with the bound's name and number."""
        return cls(
            f"{principal} is over its {bound} of {most:.15g}, which the policy sets; try again later",
            bound,
            retry_after,
        )


class TimerNotFound(ServiceError):
    """There is no such timer."""

    @classmethod
    def of(cls, topic: str, timer_id: str, more: str = "") -> TimerNotFound:
        """Make the error with these names, and with `more` at the end."""
        return cls(f"topic {topic!r} has no timer {timer_id!r}" + (more and f"; {more}"))


class RecurrenceNotFound(ServiceError):
    """There is no such recurrence."""

    @classmethod
    def of(cls, topic: str, recurrence_id: str) -> RecurrenceNotFound:
        """Make the error with these names."""
        return cls(f"topic {topic!r} has no recurrence {recurrence_id!r}")


class CalendarNotFound(ServiceError):
    """There is no such calendar."""

    @classmethod
    def of(cls, name: str) -> CalendarNotFound:
        """Make the error with this name."""
        return cls(f"there is no calendar {name!r}")


class OtherVersion(ServiceError):
    """The recurrence has another version than the one that was to be changed; read it again."""

    @classmethod
    def of(cls, recurrence_id: str, wanted: int, found: int) -> OtherVersion:
        """Make the error with both versions; 0 is that of a recurrence that is not there."""
        return cls(
            f"if_version: recurrence {recurrence_id!r} has version {found}, not {wanted}; read it again"
        )


class TopicFull(ServiceError):
    """The topic holds as many timers as it may."""

    @classmethod
    def of(cls, topic: str, limit: int) -> TopicFull:
        """Make the error with the topic's name and its `max_waiting`."""
        return cls(f"topic {topic!r} holds {limit} timers, which is its max_waiting; wait, or raise it")


class ContentSealed(ServiceError):
    """The content is sealed, and this relay can't open it."""


class TooMany(ServiceError):
    """More calls wait, or more deliveries are held, than the relay keeps."""


class OutOfTime(ServiceError):
    """The call's time is over: it may have been done, has no effect from now on, and may be repeated."""


class PartlyDone(ServiceError):
    """The call failed for some of its timers.

    `results` has for each timer what came of it, or the error.
    """

    def __init__(self, results: list[Any]) -> None:
        super().__init__()
        self.results = results


class StoreError(ServiceError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """Redis can't be reached now; try again.

    `partition` is the one that could not be reached, if the call was meant for another: timers move.
    `place` is the node that could not be reached, where there are several: a call may have been sent on.
    """

    partition = ""
    place = ""


class GivenUp(StoreUnavailable):
    """The caller's time was over when the call reached Redis, which refused it; try again."""


class OpenOutcome(StoreUnavailable):
    """The call was sent, and no answer came: it may have been done, and can't be from now on; try again.

    If it was done, then between `since` and `until`, by the server's clock (microseconds).
    """

    def __init__(self, message: str, *, since: int, until: int) -> None:
        super().__init__(message)
        self.since = since
        self.until = until


class DurabilityMissed(StoreUnavailable):
    """The change is not as durable as was asked: it may stand, or be lost with the server; repeat the call
    under the same id."""


class ReplicasAway(DurabilityMissed):
    """Replicas are away that the change would have to wait for, so it was not made. This is known at once,
    where all else that is missed takes the caller's time: so a repeat takes a pause."""


class StoreFull(StoreError):
    """Redis is at its maxmemory and refuses new timers; free memory or raise the limit."""


class WrongKeyType(StoreError):
    """A key of the topic holds another type."""


class OtherLayout(StoreError):
    """The topic has other partitions than this call was made for; it had no effect. Make it again.

    `layout` is the text of the one that it has.
    """

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.layout = layout


class StoreRefused(StoreError):
    """Redis refused the command."""


class NotOffered(StoreRefused):
    """The server can't give the durability that was asked for; nothing was changed."""


class UnfitServer(ServiceError):
    """The server can't hold Relay's promises."""


LISTENERS = {
    "grpc.listen": "the gRPC API",
    "http.listen": "probes and metrics",
    "api.listen": "the JSON API",
}


class CannotListen(ServiceError):
    """An address can't be listened on."""

    def __init__(self, setting: str, listen: str, reason: str) -> None:
        variable = f"RELAY_{setting.replace('.', '__').upper()}"
        super().__init__(
            f"{setting}: can't listen on {listen} for {LISTENERS[setting]}: {reason}; "
            f"set another address there, or by {variable}"
        )
