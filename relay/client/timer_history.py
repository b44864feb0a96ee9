"""One timer's life, as a relay tells it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from google.protobuf.timestamp_pb2 import Timestamp

from relay.client import arguments
from relay.client.calls.channel import TIMER_HISTORY
from relay.client.calls.timer_calls import Steps, call
from relay.client.calls.timer_values import TimerInfo
from relay.client.calls.topic_values import DeadLetterInfo
from relay.v1 import timer_history_pb2
from relay.v1 import timer_service_pb2 as pb


class TimerStanding(enum.Enum):
    """How a timer stands."""

    WAITING = "waiting"
    """It waits for its due time, or for the end of a back-off."""
    DUE = "due"
    """It can be claimed, and no relay has done so."""
    LEASED = "leased"
    """A relay delivers it."""
    DEAD = "dead"
    """It died, and is kept as a dead letter."""
    ABSENT = "absent"
    """It is not there: it has ended, or it never was."""
    UNKNOWN = "unknown"
    """The relay is newer than this client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerEvent:
    """One thing that happened to a timer. What is empty or None has no meaning for the kind, or was not
    recorded. Instants are aware datetimes in UTC, by the clock of Redis."""

    time: datetime
    kind: str
    """A kind of the journal in lower case, such as `scheduled`, `claimed` or `acked`."""
    relay: str = ""
    """The relay through which it came, or which did it, by its name."""
    principal: str = ""
    """The principal who asked for it, where a person did and is known."""
    due_time: datetime | None = None
    previous_due_time: datetime | None = None
    next_claim_time: datetime | None = None
    """When it could be claimed again: the end of the lease, or of the back-off."""
    expire_time: datetime | None = None
    attempts: int = 0
    """How many attempts had counted."""
    claims: int = 0
    received: bool = False
    reason: str = ""
    """Why it died, as a word."""
    error: str = ""
    """What went wrong: the first 200 bytes of it."""
    lease: str = ""
    """32 hex digits: what has the same ones belongs to one delivery."""
    occurrence_id: str = ""
    dead_id: str = ""
    """The dead letter that was made, brought back or removed."""
    adopted: str = ""
    """What a foreign writer had done before: `intent` or `lease`."""
    refused: str = ""
    """What was refused of a lease that was not valid, such as `acked`."""
    recurrence_id: str = ""
    """The recurrence that made the timer."""
    partition: int = 0
    """The partition in whose journal it is."""
    other_partition: int | None = None
    """Where it went to, or came from."""
    entry: str = ""
    """The entry of the journal."""

    @classmethod
    def from_proto(cls, event: timer_history_pb2.TimerEvent) -> Self:
        """Read the message from the wire."""

        def moment(name: str) -> datetime | None:
            stamp: Timestamp = getattr(event, name)
            return arguments.to_datetime(stamp) if event.HasField(name) else None

        return cls(
            time=arguments.to_datetime(event.time),
            kind=event.kind,
            relay=event.relay,
            principal=event.principal,
            due_time=moment("due_time"),
            previous_due_time=moment("previous_due_time"),
            next_claim_time=moment("next_claim_time"),
            expire_time=moment("expire_time"),
            attempts=event.attempts,
            claims=event.claims,
            received=event.received,
            reason=event.reason,
            error=event.error,
            lease=event.lease,
            occurrence_id=event.occurrence_id,
            dead_id=event.dead_id,
            adopted=event.adopted,
            refused=event.refused,
            recurrence_id=event.recurrence_id,
            partition=event.partition,
            other_partition=event.other_partition if event.HasField("other_partition") else None,
            entry=event.entry,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerNow:
    """How a timer stands, as of an instant by the clock of Redis."""

    standing: TimerStanding
    as_of_time: datetime
    timer: TimerInfo | None = None
    """The timer, if it is there."""
    dead_letters: Sequence[DeadLetterInfo] = ()
    """Its dead letters, the newest first, at most 10."""
    paused_until_time: datetime | None = None
    """Until when its topic is paused; None if it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerHistory:
    """A page of a timer's life."""

    now: TimerNow | None
    """How it stands; None on all pages but the first."""
    events: Sequence[TimerEvent]
    """What happened to it, by the topic's journal, the newest first."""
    next_page_token: str
    """Pass it on for the next page; empty at the end."""
    events_missing: str
    """Why events are missing, and what to do; empty if nothing is known to be missing."""

    @classmethod
    def from_proto(cls, response: pb.GetTimerHistoryResponse) -> Self:
        """Read the message from the wire."""
        now = None
        if response.standing:
            paused = response.paused_until_time if response.HasField("paused_until_time") else None
            now = TimerNow(
                standing=_STANDINGS.get(response.standing, TimerStanding.UNKNOWN),
                as_of_time=arguments.to_datetime(response.as_of_time),
                timer=TimerInfo.from_proto(response.timer) if response.HasField("timer") else None,
                dead_letters=[DeadLetterInfo.from_proto(each) for each in response.dead_letters],
                paused_until_time=paused and arguments.to_datetime(paused),
            )
        return cls(
            now=now,
            events=[TimerEvent.from_proto(event) for event in response.events],
            next_page_token=response.next_page_token,
            events_missing=response.events_missing,
        )


_STANDINGS = {
    timer_history_pb2.TIMER_STANDING_WAITING: TimerStanding.WAITING,
    timer_history_pb2.TIMER_STANDING_DUE: TimerStanding.DUE,
    timer_history_pb2.TIMER_STANDING_LEASED: TimerStanding.LEASED,
    timer_history_pb2.TIMER_STANDING_DEAD: TimerStanding.DEAD,
    timer_history_pb2.TIMER_STANDING_ABSENT: TimerStanding.ABSENT,
}


def history(
    topic: str, timer_id: str, page_size: int, page_token: str, timeout: float
) -> Steps[TimerHistory]:
    """Read a page of a timer's life. Raises `InvalidArgument` or another `CallError`."""
    arguments.check_name(topic, "topic")
    arguments.check_name(timer_id, "timer_id")
    arguments.check_count(page_size, "page_size", 1, 500)
    request = pb.GetTimerHistoryRequest(
        topic=topic, timer_id=timer_id, page_size=page_size, page_token=page_token
    )
    return TimerHistory.from_proto((yield from call(TIMER_HISTORY, request, timeout)))
