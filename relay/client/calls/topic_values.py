"""Topics and dead letters as an operator sees them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self, TypedDict

from google.protobuf.timestamp_pb2 import Timestamp

from relay.client import arguments
from relay.v1 import topic_service_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """The state of one consumer group of a stream."""

    group: str
    pending: int
    """The entries that it was given and has not acknowledged."""
    unread: int | None
    """The entries that it was not given yet; None if Redis can't tell."""
    waiting: int
    """The timers that wait for another attempt in this group."""
    consumers: int

    @classmethod
    def from_proto(cls, group: pb.TopicGroup) -> Self:
        """Read the message from the wire."""
        return cls(
            group=group.group,
            pending=group.pending,
            unread=group.unread if group.HasField("unread") else None,
            waiting=group.waiting,
            consumers=group.consumers,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """The state of a topic. All instants are aware and in UTC; None stands where there is no such instant."""

    topic: str
    timers: int
    """The timers that it holds, in whatever state."""
    due: int
    """The timers that could be claimed now."""
    next_claim_time: datetime | None
    """When the first timer can be claimed, or could have been."""
    dead: int
    """The dead letters that it holds."""
    oldest_death_time: datetime | None
    paused: bool
    paused_until: datetime | None
    """When the pause ends. None while it is paused means that the pause lasts until somebody resumes the
    topic."""
    error: str = ""
    """In a listing, why the state of this topic can't be read. The rest is empty then."""
    dispatch: str = "lease"
    """Where its due timers go, by the relay's settings: `lease`, `list` or `stream`."""
    ready: int = 0
    """With a list: the entries that wait in it."""
    processing: int = 0
    """With a list: the entries that workers keep in the processing list."""
    entries: int = 0
    """With a stream: the entries that it holds."""
    groups: tuple[GroupInfo, ...] = ()
    """With a stream: the state of each of its consumer groups."""
    partitions: int = 1
    """The number of its partitions."""
    moving_to: int = 0
    """The number of partitions that its timers move into; 0 unless they move."""
    scheduled_here: int | None = None
    """The timers that were scheduled through this relay since it began: two looks tell a rate. None where the
    relay does not count by topic."""
    delivered_here: int | None = None
    """The deliveries that have begun at this relay since it did. None as above."""

    @classmethod
    def from_proto(cls, topic: pb.Topic) -> Self:
        """Read the message from the wire."""
        return cls(
            topic=topic.topic,
            timers=topic.timers,
            due=topic.due,
            next_claim_time=_instant(topic, "next_claim_time"),
            dead=topic.dead,
            oldest_death_time=_instant(topic, "oldest_death_time"),
            paused=topic.paused,
            paused_until=_instant(topic, "paused_until"),
            error=topic.error,
            dispatch=topic.dispatch or "lease",
            ready=topic.ready,
            processing=topic.processing,
            entries=topic.entries,
            groups=tuple(GroupInfo.from_proto(group) for group in topic.groups),
            partitions=topic.partitions or 1,
            moving_to=topic.moving_to,
            scheduled_here=topic.scheduled_here if topic.HasField("scheduled_here") else None,
            delivered_here=topic.delivered_here if topic.HasField("delivered_here") else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastInterval:
    """One interval of a forecast. Instants are aware and in UTC."""

    start_time: datetime
    end_time: datetime
    """The first instant behind it."""
    timers: int
    """The timers that can be claimed from an instant in it on: their due time, or where an attempt has
    failed, the time of the next one."""
    occurrences: int
    """The timers that recurrences will make by their rules, and that fall due in it."""
    cold: int = 0
    """The timers that rest in cold stores, and fall due in it."""

    @property
    def total(self) -> int:
        """All that falls due in it."""
        return self.timers + self.occurrences + self.cold

    @classmethod
    def from_proto(cls, interval: pb.ForecastInterval) -> Self:
        """Read the message from the wire."""
        return cls(
            start_time=arguments.to_datetime(interval.start_time),
            end_time=arguments.to_datetime(interval.end_time),
            timers=interval.timers,
            occurrences=interval.occurrences,
            cold=interval.cold,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdForecast:
    """What rests in cold stores, apart from what the intervals say. Sweeps count by the hour for 8 days, by
    the day for 400 days, and by 30 days behind that; within such a time timers are taken to be due evenly."""

    count_time: datetime
    """When sweeps have counted, the oldest of them; aware and in UTC. What was written or cancelled there
    since is not in it."""
    overdue: int
    """The timers that were due when the forecast begins, and that no sweep has brought."""
    later: int
    """The timers that fall due at the end of the horizon or behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What falls due in a topic. Each timer is counted once: as overdue, as leased, in one interval, or as
    later. It is exact where nothing is scheduled, moved or cancelled meanwhile."""

    topic: str
    as_of: datetime
    """The instant from which it looks ahead, by the clock of Redis; aware and in UTC."""
    overdue: int
    """The timers that could be claimed then."""
    leased: int | None
    """The timers that are being delivered, under a lease. None if the topic keeps too many records of leases
    and retries to look at each (more than 1,000 in a partition): a leased timer is counted then where its
    lease ends."""
    intervals: tuple[ForecastInterval, ...]
    later: int
    """The timers that fall due at the end of the horizon or behind it, without those that recurrences will
    make."""
    occurrences_until: datetime | None
    """Up to when `occurrences` are counted, where that is before the end of the horizon: from there on there
    may be more."""
    unread_recurrences: int
    """The recurrences within the horizon that the relay can't read; they are counted nowhere."""
    cold: ColdForecast | None = None
    """What rests in cold stores; None if no sweep has left counts in the last 7 days. None of these timers is
    in another number."""

    @classmethod
    def from_proto(cls, found: pb.ForecastResponse) -> Self:
        """Read the message from the wire."""
        return cls(
            topic=found.topic,
            as_of=arguments.to_datetime(found.as_of),
            overdue=found.overdue,
            leased=found.leased if found.HasField("leased") else None,
            intervals=tuple(ForecastInterval.from_proto(each) for each in found.intervals),
            later=found.later,
            occurrences_until=_instant(found, "occurrences_until"),
            unread_recurrences=found.unread_recurrences,
            cold=_cold(found.cold) if found.HasField("cold") else None,
        )


class _DeadLetterFields(TypedDict):
    topic: str
    timer_id: str
    dead_id: str
    reason: str
    attempts: int
    last_error: str
    due_time: datetime
    death_time: datetime
    occurrence_id: str
    group: str


def _read_info(letter: pb.DeadLetter) -> _DeadLetterFields:
    return {
        "topic": letter.topic,
        "timer_id": letter.timer_id,
        "dead_id": letter.dead_id,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "last_error": letter.last_error,
        "due_time": arguments.to_datetime(letter.due_time),
        "death_time": arguments.to_datetime(letter.death_time),
        "occurrence_id": letter.occurrence_id,
        "group": letter.group,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterInfo:
    """A timer that died, without its content."""

    topic: str
    timer_id: str
    dead_id: str
    """Distinguishes this death from others of the same timer."""
    reason: str
    """Why it died: `attempts`, `claims`, `age`, `expired`, `rejected`, `failed` or `unreadable`."""
    attempts: int
    """How many attempts had counted."""
    last_error: str
    """What went wrong last, in the application's words."""
    due_time: datetime
    death_time: datetime
    occurrence_id: str
    group: str = ""
    """The consumer group in which it died, if the topic has a stream; otherwise empty."""

    @classmethod
    def from_proto(cls, letter: pb.DeadLetter) -> Self:
        """Read the message from the wire."""
        return cls(**_read_info(letter))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(DeadLetterInfo):
    """A timer that died, with its content."""

    payload: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    content_type: str = ""
    content_withheld: bool = False
    """Whether the content is left out because the relay's policy does not let the caller see it."""

    @classmethod
    def from_proto(cls, letter: pb.DeadLetter) -> Self:
        """Read the message from the wire."""
        return cls(
            **_read_info(letter),
            payload=letter.payload,
            headers=dict(letter.headers),
            content_type=letter.content_type,
            content_withheld=letter.content_withheld,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Selects dead letters: all conditions that are given must hold."""

    timer_id: str = ""
    reason: str = ""
    died_since: datetime | None = None
    """Died at or after this instant; aware."""
    died_before: datetime | None = None
    """Died before this instant; aware."""

    def __call__(self, letter: DeadLetterInfo) -> bool:
        """Whether the letter is selected. The relay decides in the same way."""
        return (
            self.timer_id in ("", letter.timer_id)
            and self.reason in ("", letter.reason)
            and (self.died_since is None or self.died_since <= letter.death_time)
            and (self.died_before is None or letter.death_time < self.died_before)
        )

    def to_proto(self) -> pb.DeadLetterFilter:
        """Return the message for the wire. Raises `InvalidArgument`."""
        arguments.check_text(self.timer_id, "timer_id")
        arguments.check_text(self.reason, "reason")
        message = pb.DeadLetterFilter(timer_id=self.timer_id, reason=self.reason)
        if self.died_since is not None:
            message.died_since.CopyFrom(arguments.to_timestamp(self.died_since, "died_since"))
        if self.died_before is not None:
            message.died_before.CopyFrom(arguments.to_timestamp(self.died_before, "died_before"))
        return message


ALL_DEAD = DeadLetterFilter()


class RedriveResult(enum.Enum):
    """The fate of one dead letter."""

    REDRIVEN = "redriven"
    """It lives again and is due now."""
    NOT_FOUND = "not_found"
    """There is no such dead letter, or not any more. A call that was repeated after a lost answer says this,
    too."""
    CONFLICT = "conflict"
    """A timer with its id exists. Both the timer and the dead letter are left alone."""
    UNKNOWN = "unknown"
    """A result that a newer relay knows and this client doesn't."""


RESULTS = {
    pb.REDRIVE_RESULT_REDRIVEN: RedriveResult.REDRIVEN,
    pb.REDRIVE_RESULT_NOT_FOUND: RedriveResult.NOT_FOUND,
    pb.REDRIVE_RESULT_CONFLICT: RedriveResult.CONFLICT,
}


def _cold(found: pb.ColdForecast) -> ColdForecast:
    count_time = arguments.to_datetime(found.count_time)
    return ColdForecast(count_time=count_time, overdue=found.overdue, later=found.later)


def _instant(topic: pb.Topic | pb.ForecastResponse, name: str) -> datetime | None:
    moment: Timestamp = getattr(topic, name)
    return arguments.to_datetime(moment) if topic.HasField(name) else None
