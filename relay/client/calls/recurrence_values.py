"""Recurrences as an application sees them: what is to recur, and where it stands."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypedDict

from google.protobuf.duration_pb2 import Duration
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.timestamp_pb2 import Timestamp

from relay.client import arguments, errors
from relay.client.arguments import Seconds
from relay.v1 import recurrence_service_pb2 as pb

Gap: TypeAlias = Literal["shift", "skip"]
"""What becomes of a local time that its zone leaves out: it fires later by the length of the gap, or is left
out."""
Fold: TypeAlias = Literal["first", "second", "both"]
"""When a local time fires that comes twice."""
Overlap: TypeAlias = Literal["skip", "buffer", "allow", "cancel"]
"""What happens where an occurrence is to come while the one before it has not ended: none comes; one is kept
until then; it comes all the same; the one before is cancelled."""
CatchUp: TypeAlias = Literal["latest", "all", "none"]
"""Which of several nominal instants that have passed still have an occurrence: the latest; all that are not
older than `catch_up_window`, a day unless it is given; none that is older than `catch_up_window`, a minute
unless it is given."""

BackfillOverlap: TypeAlias = Literal["buffer", "allow"]
"""How the occurrences of a backfill come: one after another, the next one when the last one has ended; or all
at once."""

MAX_NAME_BYTES = 200
MAX_RUNS = 2**63 - 1

DEFAULT = 1
"""The number of every policy that counts where none is given."""

UNKNOWN = "unknown"
"""Stands for a policy or an outcome that a newer relay knows and this client doesn't."""

_UNITS = {
    "ms": 0.001,
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("m", "min", "minute"), 60.0),
    **dict.fromkeys(("h", "hour"), 3_600.0),
    **dict.fromkeys(("d", "day"), 86_400.0),
    **dict.fromkeys(("w", "week"), 604_800.0),
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)", re.ASCII)


class RuleFields(TypedDict, total=False):
    """The arguments that say when a recurrence fires. Exactly one of `cron`, `rrule` and `every` is given."""

    cron: str
    """Five fields, or six with seconds first, or `@daily` and its like, or `@every 90s`."""
    rrule: str
    """A recurrence rule of RFC 5545, such as `FREQ=MONTHLY;BYDAY=-1FR`."""
    every: Seconds | str
    """A length of time: seconds, a timedelta, or a text such as `10 minutes` or `1h30m`."""
    anchor_time: datetime
    """An instant from which `every` is counted; aware."""
    zone: str
    """An IANA name such as `Europe/Berlin`. Without it, UTC."""
    gap: Gap
    fold: Fold
    start_time: datetime
    """The first instant at which it may fire; aware."""
    end_time: datetime
    """The instant from which on it does not fire any more; aware."""
    leave_out: Sequence[date | str]
    """Dates in the zone on which it does not fire."""
    calendars: Sequence[str]
    """Names of calendars on whose dates it does not fire either."""


class RecurFields(RuleFields, total=False):
    """The keyword arguments of `recur` beside its topic and payload; see `RelayClient.recur`."""

    headers: Mapping[str, str]
    content_type: str
    overlap: Overlap
    catch_up: CatchUp
    catch_up_window: Seconds
    jitter: Seconds
    """Each occurrence is due up to this much after its nominal instant, at most a day."""
    expire_after: Seconds
    """An occurrence becomes useless this long after its due time."""
    max_runs: int
    """The number of occurrences after which it has ended; 0 means no limit."""
    seal_with: str
    """Whom the payload is about, in a sealed topic. Once this subject is forgotten the recurrence ends, and
    its payload and headers never open again."""


class RecurOptions(RecurFields, total=False):
    """The keyword arguments of `recur` beside its topic; see `RelayClient.recur`."""

    payload: bytes


class PutResult(enum.Enum):
    """What became of a recurrence that was put."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    UNKNOWN = "unknown"
    """A result that a newer relay knows and this client doesn't."""


PUTS = {
    pb.PUT_RESULT_CREATED: PutResult.CREATED,
    pb.PUT_RESULT_REPLACED: PutResult.REPLACED,
    pb.PUT_RESULT_UNCHANGED: PutResult.UNCHANGED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrenceInfo:
    """A recurrence as it stands in Redis, without its payload and headers. All instants are aware and in UTC;
    None stands where there is no such instant or length."""

    topic: str
    recurrence_id: str
    cron: str
    """Empty unless it is the rule, as is `rrule`."""
    rrule: str
    every: timedelta | None
    anchor_time: datetime | None
    zone: str
    """Empty for UTC."""
    gap: str
    fold: str
    start_time: datetime | None
    end_time: datetime | None
    leave_out: tuple[str, ...]
    calendars: tuple[str, ...]
    content_type: str
    overlap: str
    catch_up: str
    catch_up_window: timedelta | None
    jitter: timedelta
    expire_after: timedelta | None
    max_runs: int
    version: int
    """Grows with each change that somebody asks for, from 1 on."""
    next_time: datetime | None
    """The next nominal instant; None once it has ended."""
    last_timer_id: str
    """The name of its last occurrence; empty before the first."""
    last_time: datetime | None
    """The nominal instant of the last occurrence."""
    last_waits: bool
    """Whether that occurrence has not ended yet."""
    runs: int
    """How many occurrences there were."""
    left_out: Mapping[str, int]
    """How many nominal instants had none, by reason: `gap`, `calendar`, `paused`, `overlap`, `catch_up`,
    `forgotten`."""
    buffered_time: datetime | None
    """The nominal instant whose occurrence is kept until the last one has ended."""
    to_fill: int
    """How many nominal instants of backfills still wait for their turn."""
    pause_time: datetime | None
    """Since when it is paused; None unless it is."""
    pause_note: str
    tzdata: str
    """The version of the time zones by which `next_time` was computed."""
    missing_calendars: tuple[str, ...]
    """Calendars that the rule names and that do not exist: they leave out nothing. Only `get` and `list` tell
    them."""
    forgotten: bool
    """Whether its subject was forgotten: its content is unreadable for good, and it ends by its next
    instant."""

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self.pause_time is not None

    @classmethod
    def from_proto(cls, recurrence: pb.Recurrence) -> Self:
        """Read the message from the wire."""
        return cls(**_read(recurrence))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence(RecurrenceInfo):
    """A recurrence as it stands in Redis, with the payload and the headers of its occurrences."""

    payload: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    seal_with: str = field(default="", repr=False)
    """The subject with whose key it is sealed; empty for none."""
    content_withheld: bool = False
    """Whether all three are left out because the relay's policy does not let the caller see them."""

    @classmethod
    def from_proto(cls, recurrence: pb.Recurrence) -> Self:
        """Read the message from the wire."""
        return cls(**_read_whole(recurrence))


@dataclass(frozen=True, slots=True, kw_only=True)
class PutRecurrence(Recurrence):
    """A recurrence as it stands once it was put, and what became of it."""

    result: PutResult

    @classmethod
    def from_response(cls, response: pb.PutRecurrenceResponse) -> Self:
        """Read the message from the wire."""
        result = PUTS.get(response.result, PutResult.UNKNOWN)
        return cls(**_read_whole(response.recurrence), result=result)


@dataclass(frozen=True, slots=True, kw_only=True)
class NominalInstant:
    """An instant of a rule."""

    time: datetime
    """Aware, in UTC."""
    local_time: datetime
    """The same with the offset of the rule's zone."""
    left_out: str
    """Why it does not fire: `gap`, `calendar`; empty where it fires."""
    shifted: timedelta
    """By how much it fires later than the rule says, since its zone leaves that time out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastInstant:
    """What came of a nominal instant."""

    time: datetime
    """Aware, in UTC."""
    timer_id: str
    """The name of its occurrence; empty if it has none."""
    left_out: str
    """Why it has none; empty if it has one."""
    lateness: timedelta
    """How long after it the occurrence was made, or left out."""
    outcome: str
    """What became of its occurrence: `waiting`, `leased` (being delivered), `acked`, `dead`, `expired`,
    `cancelled`, `promoted` (to the topic's list or stream), `removed`, `unknown`; empty if it has none, or if
    the relay is of a version that does not tell."""
    reason: str
    """Why it is dead or was removed; why the outcome is unknown: `no_journal`, `trimmed`, `not_recorded`,
    `too_far`; empty otherwise."""
    attempts: int
    """How many attempts there were; 0 also where that is not known."""
    end_time: datetime | None
    """When the occurrence ended; None where it has not, or where that is not known."""


class RecurrenceHistory(list[PastInstant]):
    """The latest nominal instants, the latest one at the end."""

    outcomes_missing: str
    """Why it is not known how occurrences ended, and what to do; empty where the topic has a journal."""

    def __init__(self, instants: Iterable[PastInstant], outcomes_missing: str = "") -> None:
        super().__init__(instants)
        self.outcomes_missing = outcomes_missing


class Backfilled(NamedTuple):
    """How many occurrences were made or wait for their turn, the nominal instants of the first and the last,
    None if none, and how many of them wait."""

    occurrences: int
    first_time: datetime | None
    last_time: datetime | None
    waiting: int


class DeletedRecurrence(NamedTuple):
    """Whether there was such a recurrence, and how many of its occurrences were cancelled."""

    deleted: bool
    cancelled: int

    def __bool__(self) -> bool:
        return self.deleted


# What is asked for


def to_spec(topic: str, recurrence_id: str, options: RecurOptions) -> pb.RecurrenceSpec:
    """Return the message for the wire. Raises `InvalidArgument` for what is plainly wrong."""
    check_names(topic, recurrence_id)
    _check_known(options, RecurOptions.__optional_keys__)
    if subject := _text(options, "seal_with"):
        arguments.check_name(subject, "seal_with")
    runs = options.get("max_runs", 0)
    arguments.check_count(runs, "max_runs", 0, MAX_RUNS)
    return pb.RecurrenceSpec(
        topic=topic,
        recurrence_id=recurrence_id,
        rule=_rule(options),
        payload=arguments.check_payload(options.get("payload", b"")),
        headers=arguments.check_headers(options.get("headers") or {}),
        content_type=_text(options, "content_type"),
        overlap=_policy(options, "overlap", pb.OverlapPolicy, "OVERLAP_POLICY_"),
        catch_up=_policy(options, "catch_up", pb.CatchUpPolicy, "CATCH_UP_POLICY_"),
        catch_up_window=_duration(options, "catch_up_window"),
        jitter=_duration(options, "jitter"),
        expire_after=_duration(options, "expire_after"),
        max_runs=runs,
        seal_with=subject,
    )


def to_rule(options: RuleFields) -> pb.RecurrenceRule:
    """Return the message for the wire. Raises `InvalidArgument` for what is plainly wrong."""
    _check_known(options, RuleFields.__optional_keys__)
    return _rule(options)


def _rule(options: Mapping[str, Any]) -> pb.RecurrenceRule:
    given = [name for name in ("cron", "rrule", "every") if options.get(name) is not None]
    if len(given) != 1:
        raise errors.InvalidArgument(
            f"exactly one of cron, rrule and every must be given, not {' and '.join(given) or 'none'}",
            field=given[1] if given else "cron",
        )
    rule = pb.RecurrenceRule(
        every=_length(options["every"]) if "every" in given else None,
        anchor_time=_timestamp(options, "anchor_time"),
        zone=_text(options, "zone"),
        gap=_policy(options, "gap", pb.GapPolicy, "GAP_POLICY_"),
        fold=_policy(options, "fold", pb.FoldPolicy, "FOLD_POLICY_"),
        start_time=_timestamp(options, "start_time"),
        end_time=_timestamp(options, "end_time"),
        leave_out=[
            day_of(each, f"leave_out[{place}]") for place, each in enumerate(options.get("leave_out") or ())
        ],
        calendars=_names(options.get("calendars") or ()),
    )
    if "cron" in given:
        rule.cron = _text(options, "cron")
    elif "rrule" in given:
        rule.rrule = _text(options, "rrule")
    return rule


def check_names(topic: str, recurrence_id: str) -> None:
    """Require a topic, and a recurrence_id of at most 200 bytes. Raises `InvalidArgument`."""
    arguments.check_name(topic, "topic")
    arguments.check_name(recurrence_id, "recurrence_id")
    if (size := len(recurrence_id.encode())) > MAX_NAME_BYTES:
        raise errors.InvalidArgument(
            f"recurrence_id has {size} bytes; at most {MAX_NAME_BYTES} are allowed", field="recurrence_id"
        )


def length_of(text: str, field: str = "every") -> timedelta:
    """Read a length of time such as `10 minutes`, `90s` or `1h30m`. Raises `InvalidArgument`."""
    parts = _PART.findall(text)
    seconds = [_seconds(number, unit) for number, unit in parts]
    if not parts or _PART.sub("", text).strip() or None in seconds:
        wanted = "a length of time such as '10 minutes', '90s' or '1h30m'"
        raise errors.InvalidArgument(f"{field} must be {wanted}, not {text!r}", field=field)
    try:
        return timedelta(seconds=sum(each for each in seconds if each is not None))
    except OverflowError:
        raise errors.InvalidArgument(f"{field} is too long: {text!r}", field=field) from None


def _seconds(number: str, unit: str) -> float | None:
    unit = unit.lower()
    known = _UNITS.get(unit.removesuffix("s") if len(unit) > 2 else unit)
    return None if known is None else float(number) * known


def _length(given: Seconds | str) -> Duration:
    return arguments.to_duration(length_of(given) if isinstance(given, str) else given, "every")


def _check_known(options: Mapping[str, Any], known: frozenset[str]) -> None:
    for name in options:
        if name not in known:
            raise TypeError(f"there is no argument {name!r}; there are {', '.join(sorted(known))}")


def _text(options: Mapping[str, Any], name: str) -> str:
    text: str = options.get(name) or ""
    arguments.check_text(text, name)
    return text


def _duration(options: Mapping[str, Any], name: str) -> Duration | None:
    given = options.get(name)
    return None if given is None else arguments.to_duration(given, name)


def _timestamp(options: Mapping[str, Any], name: str) -> Timestamp | None:
    given = options.get(name)
    return None if given is None else arguments.to_timestamp(given, name)


def day_of(day: date | str, field: str) -> str:
    """A date as the relay takes it. Raises `InvalidArgument`."""
    if isinstance(day, date):
        return day.isoformat()[:10]  # a datetime is a date, too
    arguments.check_text(day, field)
    return day


def to_overlap(overlap: BackfillOverlap | None) -> Any:
    """Return the number for the wire. Raises `InvalidArgument`."""
    return _policy({"overlap": overlap}, "overlap", pb.OverlapPolicy, "OVERLAP_POLICY_")


def _names(names: Sequence[str]) -> list[str]:
    if isinstance(names, str):
        raise errors.InvalidArgument("calendars must be a list of names, not one text", field="calendars")
    for place, name in enumerate(names):
        arguments.check_text(name, f"calendars[{place}]")
    return list(names)


def _policy(options: Mapping[str, Any], name: str, policies: EnumTypeWrapper, prefix: str) -> Any:
    given = options.get(name)
    if given is None:
        return 0
    known = {each.removeprefix(prefix).lower(): number for each, number in policies.items() if number}
    if not isinstance(given, str) or given not in known:
        raise errors.InvalidArgument(f"{name} must be {' or '.join(known)}, not {given!r}", field=name)
    return known[given]


# What is answered


def _read(recurrence: pb.Recurrence) -> dict[str, Any]:
    spec, rule = recurrence.spec, recurrence.spec.rule
    return {
        "topic": spec.topic,
        "recurrence_id": spec.recurrence_id,
        "cron": rule.cron,
        "rrule": rule.rrule,
        "every": _span(rule, "every"),
        "anchor_time": _moment(rule, "anchor_time"),
        "zone": rule.zone,
        "gap": _word(pb.GapPolicy, "GAP_POLICY_", rule.gap),
        "fold": _word(pb.FoldPolicy, "FOLD_POLICY_", rule.fold),
        "start_time": _moment(rule, "start_time"),
        "end_time": _moment(rule, "end_time"),
        "leave_out": tuple(rule.leave_out),
        "calendars": tuple(rule.calendars),
        "content_type": spec.content_type,
        "overlap": _word(pb.OverlapPolicy, "OVERLAP_POLICY_", spec.overlap),
        "catch_up": _word(pb.CatchUpPolicy, "CATCH_UP_POLICY_", spec.catch_up),
        "catch_up_window": _span(spec, "catch_up_window"),
        "jitter": _span(spec, "jitter") or timedelta(0),
        "expire_after": _span(spec, "expire_after"),
        "max_runs": spec.max_runs,
        "version": recurrence.version,
        "next_time": _moment(recurrence, "next_time"),
        "last_timer_id": recurrence.last_timer_id,
        "last_time": _moment(recurrence, "last_time"),
        "last_waits": recurrence.last_waits,
        "runs": recurrence.runs,
        "left_out": dict(recurrence.left_out),
        "buffered_time": _moment(recurrence, "buffered_time"),
        "to_fill": recurrence.to_fill,
        "pause_time": _moment(recurrence, "pause_time"),
        "pause_note": recurrence.pause_note,
        "tzdata": recurrence.tzdata,
        "missing_calendars": tuple(recurrence.missing_calendars),
        "forgotten": recurrence.forgotten,
    }


def _read_whole(recurrence: pb.Recurrence) -> dict[str, Any]:
    spec = recurrence.spec
    return {
        **_read(recurrence),
        "payload": spec.payload,
        "headers": dict(spec.headers),
        "seal_with": spec.seal_with,
        "content_withheld": recurrence.content_withheld,
    }


def read_instant(instant: pb.NominalInstant) -> NominalInstant:
    """Read the message from the wire."""
    return NominalInstant(
        time=arguments.to_datetime(instant.time),
        local_time=datetime.fromisoformat(instant.local_time),
        left_out=instant.left_out,
        shifted=instant.shifted.ToTimedelta(),
    )


def read_history(response: pb.GetRecurrenceHistoryResponse) -> RecurrenceHistory:
    """Read the message from the wire."""
    return RecurrenceHistory(map(_past, response.instants), response.outcomes_missing)


def _past(instant: pb.PastInstant) -> PastInstant:
    return PastInstant(
        time=arguments.to_datetime(instant.time),
        timer_id=instant.timer_id,
        left_out=instant.left_out,
        lateness=instant.lateness.ToTimedelta(),
        outcome=_outcome(instant.outcome),
        reason=instant.reason,
        attempts=instant.attempts,
        end_time=_moment(instant, "end_time"),
    )


def _outcome(number: int) -> str:
    return _word(pb.OccurrenceOutcome, "OCCURRENCE_OUTCOME_", number) if number else ""


def read_backfilled(response: pb.BackfillRecurrenceResponse) -> Backfilled:
    """Read the message from the wire."""
    first, last = _moment(response, "first_time"), _moment(response, "last_time")
    return Backfilled(response.occurrences, first, last, response.waiting)


def _word(policies: EnumTypeWrapper, prefix: str, number: int) -> str:
    try:
        return policies.Name(number or DEFAULT).removeprefix(prefix).lower()
    except ValueError:
        return UNKNOWN


def _moment(message: Any, name: str) -> datetime | None:
    return arguments.to_datetime(getattr(message, name)) if message.HasField(name) else None


def _span(message: Any, name: str) -> timedelta | None:
    if not message.HasField(name):
        return None
    found: timedelta = getattr(message, name).ToTimedelta()
    return found
