"""Recurrences between protobuf messages and core's values. Checks raise `InvalidField` with the field of the
message, such as `rule.zone`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.timestamp_pb2 import Timestamp

from relay.api import times
from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.partitions import hashed
from relay.core.recurring.calendars import MOST_DATES, calendar_names
from relay.core.recurring.ends import OccurrenceOutcome
from relay.core.recurring.nominal import Nominal
from relay.core.recurring.recurrence import CatchUp, Overlap, Recurrence, StoredRecurrence
from relay.core.recurring.rule import Fold, Gap, Rule
from relay.engine.recurring.history import Passed
from relay.v1 import recurrence_service_pb2 as pb

MOST_NAME_BYTES = 200
"""What is left of a timer's name when the instant of an occurrence and the number of its run stand behind
it."""

MOST_JITTER = 86_400 * SECOND
"""The largest jitter, in microseconds: a day."""

OWN_HEADERS = "relay-"
"""How the names of headers begin that only the relay gives."""

GAPS = {
    pb.GAP_POLICY_UNSPECIFIED: Gap.SHIFT,
    pb.GAP_POLICY_SHIFT: Gap.SHIFT,
    pb.GAP_POLICY_SKIP: Gap.SKIP,
}
FOLDS = {
    pb.FOLD_POLICY_UNSPECIFIED: Fold.FIRST,
    pb.FOLD_POLICY_FIRST: Fold.FIRST,
    pb.FOLD_POLICY_SECOND: Fold.SECOND,
    pb.FOLD_POLICY_BOTH: Fold.BOTH,
}
OVERLAPS = {
    pb.OVERLAP_POLICY_UNSPECIFIED: Overlap.SKIP,
    pb.OVERLAP_POLICY_SKIP: Overlap.SKIP,
    pb.OVERLAP_POLICY_BUFFER: Overlap.BUFFER,
    pb.OVERLAP_POLICY_ALLOW: Overlap.ALLOW,
    pb.OVERLAP_POLICY_CANCEL: Overlap.CANCEL,
}
BACKFILLS = {
    pb.OVERLAP_POLICY_UNSPECIFIED: None,
    pb.OVERLAP_POLICY_BUFFER: Overlap.BUFFER,
    pb.OVERLAP_POLICY_ALLOW: Overlap.ALLOW,
}
CATCH_UPS = {
    pb.CATCH_UP_POLICY_UNSPECIFIED: CatchUp.LATEST,
    pb.CATCH_UP_POLICY_LATEST: CatchUp.LATEST,
    pb.CATCH_UP_POLICY_ALL: CatchUp.ALL,
    pb.CATCH_UP_POLICY_NONE: CatchUp.NONE,
}
OUTCOMES = {
    OccurrenceOutcome.WAITING: pb.OCCURRENCE_OUTCOME_WAITING,
    OccurrenceOutcome.LEASED: pb.OCCURRENCE_OUTCOME_LEASED,
    OccurrenceOutcome.ACKED: pb.OCCURRENCE_OUTCOME_ACKED,
    OccurrenceOutcome.DEAD: pb.OCCURRENCE_OUTCOME_DEAD,
    OccurrenceOutcome.EXPIRED: pb.OCCURRENCE_OUTCOME_EXPIRED,
    OccurrenceOutcome.CANCELLED: pb.OCCURRENCE_OUTCOME_CANCELLED,
    OccurrenceOutcome.PROMOTED: pb.OCCURRENCE_OUTCOME_PROMOTED,
    OccurrenceOutcome.REMOVED: pb.OCCURRENCE_OUTCOME_REMOVED,
    OccurrenceOutcome.UNKNOWN: pb.OCCURRENCE_OUTCOME_UNKNOWN,
}
# The other way each policy has one number, the last one above.
_GAP = {policy: number for number, policy in GAPS.items()}
_FOLD = {policy: number for number, policy in FOLDS.items()}
_OVERLAP = {policy: number for number, policy in OVERLAPS.items()}
_CATCH_UP = {policy: number for number, policy in CATCH_UPS.items()}

_Number = TypeVar("_Number", bound=int)
_Policy = TypeVar("_Policy", bound=Enum)

NAMES = {"rule.anchor": "rule.anchor_time", "rule.starts": "rule.start_time", "rule.ends": "rule.end_time"}
"""What fields of core's rules are called in messages."""


@contextmanager
def fields_of(path: str) -> Generator[None, None, None]:
    """Within the block, errors name fields of a message that stands under `path`, such as `recurrence.`."""
    try:
        yield
    except InvalidField as failure:
        field, problem = NAMES.get(failure.field, failure.field), failure.problem
        for core, here in NAMES.items():
            problem = problem.replace(core, here)
        raise type(failure)(path + field, problem) from None


# Messages to values


def wanted(spec: pb.RecurrenceSpec, max_payload_bytes: int, *, sealed: bool) -> Recurrence:
    """Check and translate what is to recur, but for its topic, which is `sealed` or not."""
    catch_up = _policy("catch_up", spec.catch_up, CATCH_UPS, pb.CatchUpPolicy)
    return Recurrence(
        recurrence_id=name(spec.recurrence_id),
        rule=rule(spec.rule),
        payload=validate.payload(spec.payload, max_payload_bytes),
        headers=_headers(dict(spec.headers)),
        content_type=validate.content_type(spec.content_type),
        overlap=_policy("overlap", spec.overlap, OVERLAPS, pb.OverlapPolicy),
        catch_up=catch_up,
        window=_window(spec, catch_up),
        jitter=_jitter(spec),
        expires_after=_expires_after(spec),
        max_runs=_max_runs(spec),
        seal_with=validate.seal_with(spec.seal_with, sealed=sealed),
    )


def name(recurrence_id: str) -> str:
    """Check a recurrence_id."""
    size = len(recurrence_id.encode())
    if not 1 <= size <= MOST_NAME_BYTES:
        problem = f"is {size} bytes long; give it 1 to {MOST_NAME_BYTES}: the names of occurrences are longer"
        raise InvalidField("recurrence_id", problem)
    validate.name("recurrence_id", recurrence_id)
    if (counted := hashed(recurrence_id)) != recurrence_id:  # its occurrences would be in another partition
        end = recurrence_id[len(counted) :]
        problem = f"ends as the name of an occurrence, with {end!r}; end it otherwise"
        raise InvalidField("recurrence_id", problem)
    return recurrence_id


def rule(message: pb.RecurrenceRule) -> Rule:
    """Translate a rule, whose instants are checked; `relay.rules` checks the rest."""
    when = message.WhichOneof("when")
    if when is None:
        raise InvalidField("rule", "has neither cron nor rrule nor every; set one of the three")
    if when != "every" and not getattr(message, when):
        raise InvalidField(f"rule.{when}", "is empty; give an expression")
    if (dates := len(message.leave_out)) > MOST_DATES:
        raise InvalidField("rule.leave_out", f"has {dates:,} dates; give at most {MOST_DATES:,}")
    return Rule(
        cron=message.cron,
        rrule=message.rrule,
        every=_every(message),
        anchor=_instant(message, "anchor_time"),
        zone=message.zone,
        gap=_policy("rule.gap", message.gap, GAPS, pb.GapPolicy),
        fold=_policy("rule.fold", message.fold, FOLDS, pb.FoldPolicy),
        starts=_instant(message, "start_time"),
        ends=_instant(message, "end_time"),
        leave_out=tuple(message.leave_out),
        calendars=calendar_names("rule.calendars", message.calendars),
    )


def _every(message: pb.RecurrenceRule) -> int | None:
    if not message.HasField("every"):
        return None
    length = validate.delay(times.length("rule.every", message.every), "rule.every")
    if not length:
        raise InvalidField("rule.every", "is 0; give a length of time")
    return length


def _instant(message: pb.RecurrenceRule, name: str) -> int | None:
    if not message.HasField(name):
        return None
    return validate.due(times.instant(f"rule.{name}", getattr(message, name)), f"rule.{name}")


def _policy(field: str, number: _Number, known: Mapping[_Number, _Policy], names: EnumTypeWrapper) -> _Policy:
    found = known.get(number)
    if found is None:
        words = " or ".join(name.rpartition("_POLICY_")[2] for name in names.keys()[1:])
        raise InvalidField(field, f"{number} is not a policy; send {words}")
    return found


def _headers(said: Mapping[str, str]) -> Mapping[str, str]:
    for name in said:
        if name.lower().startswith(OWN_HEADERS):
            problem = f"have {name!r}; names that begin with {OWN_HEADERS} are the relay's own"
            raise InvalidField("headers", problem)
    return validate.headers(said)


def _window(spec: pb.RecurrenceSpec, catch_up: CatchUp) -> int | None:
    if not spec.HasField("catch_up_window"):
        return None
    if catch_up is CatchUp.LATEST:
        raise InvalidField(
            "catch_up_window", "is set with LATEST, which has none; leave it out, or send ALL or NONE"
        )
    return validate.delay(times.length("catch_up_window", spec.catch_up_window), "catch_up_window")


def _jitter(spec: pb.RecurrenceSpec) -> int:
    jitter = times.length("jitter", spec.jitter)
    if jitter > MOST_JITTER:
        raise InvalidField("jitter", "is longer than a day; give a day or less")
    return jitter


def _expires_after(spec: pb.RecurrenceSpec) -> int | None:
    if not spec.HasField("expire_after"):
        return None
    after = validate.delay(times.length("expire_after", spec.expire_after), "expire_after")
    if not after:
        raise InvalidField("expire_after", "is 0; give more, or leave it out")
    return after


def _max_runs(spec: pb.RecurrenceSpec) -> int:
    if spec.max_runs < 0:
        raise InvalidField("max_runs", f"is {spec.max_runs}; give 0, which means no limit, or more")
    return spec.max_runs


def between(request: pb.BackfillRecurrenceRequest) -> tuple[int, int]:
    """The time to fill in, in microseconds since 1970: from the first to before the second."""
    for name in ("start_time", "end_time"):
        if not request.HasField(name):
            raise InvalidField(name, "is not set; give an instant that has passed")
    since = validate.due(times.instant("start_time", request.start_time), "start_time")
    until = validate.due(times.instant("end_time", request.end_time), "end_time")
    if until <= since:
        raise InvalidField("end_time", "is not after start_time; give a later one")
    return since, until


def backfill_overlap(request: pb.BackfillRecurrenceRequest) -> Overlap | None:
    """Whether the occurrences of a backfill come all at once, or one after another; None: as the recurrence
    has it."""
    if request.overlap not in BACKFILLS:
        problem = "is not one for a backfill, of which nothing is left out or cancelled"
        right = "send ALLOW for all at once or BUFFER for one after another, or leave it out"
        raise InvalidField("overlap", f"{problem}; {right}")
    return BACKFILLS[request.overlap]


# Values to messages


def recurrence(
    topic: str, kept: StoredRecurrence, *, brief: bool = False, missing: Sequence[str] = ()
) -> pb.Recurrence:
    """A recurrence as it stands; a brief one has neither payload nor headers, and does not name its subject.
    `missing` are calendars that its rule names and that do not exist."""
    standing = kept.standing
    message = pb.Recurrence(
        spec=_spec(topic, kept.recurrence, brief),
        version=standing.version,
        next_time=moment(standing.next),
        last_timer_id=standing.last,
        last_time=moment(standing.last_nominal),
        last_waits=kept.stands,
        runs=standing.runs,
        left_out={reason.value: count for reason, count in standing.left_out.items()},
        buffered_time=moment(standing.buffered),
        to_fill=standing.to_fill,
        pause_time=moment(standing.paused),
        pause_note=standing.note,
        tzdata=standing.tzdata,
        missing_calendars=missing,
    )
    if kept.forgotten:
        message.forgotten = True
    return message


def _spec(topic: str, wanted: Recurrence, brief: bool) -> pb.RecurrenceSpec:
    return pb.RecurrenceSpec(
        topic=topic,
        recurrence_id=wanted.recurrence_id,
        rule=_rule(wanted.rule),
        payload=b"" if brief else wanted.payload,
        headers={} if brief else wanted.headers,
        content_type=wanted.content_type,
        overlap=_OVERLAP[wanted.overlap],
        catch_up=_CATCH_UP[wanted.catch_up],
        catch_up_window=span(wanted.window),
        jitter=span(wanted.jitter or None),
        expire_after=span(wanted.expires_after),
        max_runs=wanted.max_runs,
        seal_with="" if brief else wanted.seal_with,
    )


def _rule(rule: Rule) -> pb.RecurrenceRule:
    message = pb.RecurrenceRule(
        every=span(rule.every),
        anchor_time=moment(rule.anchor),
        zone=rule.zone,
        gap=_GAP[rule.gap],
        fold=_FOLD[rule.fold],
        start_time=moment(rule.starts),
        end_time=moment(rule.ends),
        leave_out=rule.leave_out,
        calendars=rule.calendars,
    )
    if rule.cron:
        message.cron = rule.cron
    elif rule.rrule:
        message.rrule = rule.rrule
    return message


def shown(nominal: Nominal) -> pb.NominalInstant:
    """An instant of a rule, and what its zone's clocks show then."""
    zone = timezone(timedelta(seconds=nominal.offset))
    local = datetime.fromtimestamp(0, zone) + timedelta(microseconds=nominal.instant)
    return pb.NominalInstant(
        time=moment(nominal.instant),
        local_time=local.isoformat(),
        left_out=nominal.left_out,
        shifted=span(nominal.shifted * SECOND or None),
    )


def past(each: Passed) -> pb.PastInstant:
    """What came of an instant."""
    past, became = each
    message = pb.PastInstant(
        time=moment(past.nominal),
        timer_id=past.timer_id,
        left_out="" if past.left_out is None else past.left_out.value,
        lateness=span(max(past.lateness, 0)),
    )
    if became is not None:
        message.outcome = OUTCOMES[became.outcome]
        message.reason, message.attempts = became.reason, became.attempts
        if became.ended is not None:
            message.end_time.CopyFrom(times.timestamp(became.ended))
    return message


def no_journal(topic: str) -> str:
    """Why it is not known how occurrences of a topic ended, and what to do."""
    return (
        f"topic {topic!r} has no journal, so nothing records how an occurrence ends; set journal: true for "
        "the topic in the settings of its relays, and it is known of those that come from then on"
    )


def moment(instant: int | None) -> Timestamp | None:
    """Microseconds since 1970 as a Timestamp."""
    return None if instant is None else times.timestamp(instant)


def span(length: int | None) -> Duration | None:
    """Microseconds as a Duration."""
    if length is None:
        return None
    seconds, rest = divmod(length, SECOND)
    return Duration(seconds=seconds, nanos=rest * 1_000)
