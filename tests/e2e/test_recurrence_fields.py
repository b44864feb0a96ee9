"""Each field of a recurrence wrong in turn, over gRPC against a real relay: the message names the field, and
says what would be right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from relay.v1 import recurrence_service_pb2 as pb
from relay.v1.recurrence_service_pb2_grpc import RecurrenceServiceStub
from tests.worlds.engine.stubs import named_field, unpacked
from tests.worlds.relay.stage import one_relay

DAY = 86_400
SETTINGS = {
    "RELAY_TOPICS__listed__DISPATCH": "list",
    "RELAY_TOPICS__calm__MIN_RECURRENCE_INTERVAL": "3600",
    "RELAY_DEFAULTS__MAX_PAYLOAD_BYTES": "1000",
}


@pytest.fixture(scope="module")
def recurrences() -> Iterator[Any]:
    with one_relay(SETTINGS) as relay, grpc.insecure_channel(relay.target) as channel:
        stub: Any = RecurrenceServiceStub(channel)
        stub.PutCalendar(pb.PutCalendarRequest(calendar=pb.Calendar(name="known")))
        yield stub


def spec(rule: dict[str, Any] | None = None, **fields: Any) -> pb.RecurrenceSpec:
    """A recurrence that is right but for these."""
    when = {} if {"cron", "rrule", "every"} & (rule or {}).keys() else {"cron": "0 3 * * *"}
    made = {"topic": "t", "recurrence_id": "r", **fields}
    return pb.RecurrenceSpec(**{"rule": pb.RecurrenceRule(**{**when, **(rule or {})}), **made})


def calendar(name: str, dates: Sequence[str] = ()) -> pb.PutCalendarRequest:
    return pb.PutCalendarRequest(calendar=pb.Calendar(name=name, dates=dates))


def seconds(count: int, nanos: int = 0) -> Duration:
    return Duration(seconds=count, nanos=nanos)


def at(count: int) -> Timestamp:
    return Timestamp(seconds=count)


WRONG: list[tuple[pb.RecurrenceSpec, str, str]] = [
    (spec(topic=""), "topic", "is empty; give it 1 to 256 bytes"),
    (spec(topic="a#1"), "topic", "contains a #, which names partitions; leave it out"),
    (spec(topic="a{b}"), "topic", "contains a brace; leave out { and }"),
    (
        spec(recurrence_id=""),
        "recurrence_id",
        "is 0 bytes long; give it 1 to 200: the names of occurrences are longer",
    ),
    (spec(recurrence_id="a\n"), "recurrence_id", "contains the control character U+000A; leave it out"),
    (
        spec(recurrence_id="é" * 101),
        "recurrence_id",
        "is 202 bytes long; give it 1 to 200: the names of occurrences are longer",
    ),
    (
        spec(recurrence_id="a@2026-11-24T08:00:00Z~2"),
        "recurrence_id",
        "ends as the name of an occurrence, with '@2026-11-24T08:00:00Z~2'; end it otherwise",
    ),
    (
        pb.RecurrenceSpec(topic="t", recurrence_id="r"),
        "rule",
        "has neither cron nor rrule nor every; set one of the three",
    ),
    (spec({"cron": ""}), "rule.cron", "is empty; give an expression"),
    (spec({"cron": "61 * * * *"}), "rule.cron", 'minute 61 in "61 * * * *": 0 to 59'),
    (
        spec({"cron": "0 0 30 2 *"}),
        "rule.cron",
        '"0 0 30 2 *" never fires: no month that it names has such a day',
    ),
    (spec({"rrule": ""}), "rule.rrule", "is empty; give an expression"),
    (
        spec({"rrule": "FREQ=SOMETIMES"}),
        "rule.rrule",
        'FREQ SOMETIMES in "FREQ=SOMETIMES": YEARLY, MONTHLY, WEEKLY, DAILY, HOURLY, MINUTELY, SECONDLY',
    ),
    (spec({"every": seconds(0)}), "rule.every", "is 0; give a length of time"),
    (spec({"every": seconds(-1)}), "rule.every", "is negative; give 0 or more"),
    (
        spec({"every": seconds(0, 1_000_000)}),
        "rule.every",
        "0.001 s apart; the topic allows 1 s and more: see its min_recurrence_interval",
    ),
    (
        spec({"cron": "*/30 * * * *"}, topic="calm"),
        "rule.cron",
        "1800 s apart; the topic allows 3600 s and more: see its min_recurrence_interval",
    ),
    (spec({"every": seconds(2**40)}), "rule.every", "ends after the year 9999; give a shorter one"),
    (
        spec({"every": seconds(60), "zone": "Europe/Berlin"}),
        "rule.zone",
        "a distance of time goes by no zone: leave it out, or write a cron expression",
    ),
    (
        spec({"zone": "Europe/Berlim"}),
        "rule.zone",
        "'Europe/Berlim' is not a time zone; the nearest name is 'Europe/Berlin'",
    ),
    (spec({"anchor_time": at(-1)}), "rule.anchor_time", "is before 1970; give a time from 1970 to 9999"),
    (spec({"start_time": at(2**40)}), "rule.start_time", "is after 9999; give a time from 1970 to 9999"),
    (spec({"end_time": at(-1)}), "rule.end_time", "is before 1970; give a time from 1970 to 9999"),
    (spec({"end_time": at(DAY)}), "rule.cron", "never fires from now on: rule.end_time is over"),
    (spec({"end_time": at(5)}), "rule.cron", "never fires: it has no instants"),
    (spec({"start_time": at(5), "end_time": at(5)}), "rule.end_time", "is not later than rule.start_time"),
    (spec({"gap": 9}), "rule.gap", "9 is not a policy; send SHIFT or SKIP"),
    (spec({"fold": 9}), "rule.fold", "9 is not a policy; send FIRST or SECOND or BOTH"),
    (
        spec({"leave_out": ["2026-12-24"] * 1_001}),
        "rule.leave_out",
        "has 1,001 dates; give at most 1,000",
    ),
    (
        spec({"leave_out": ["2026-12-24", "24.12.2026"]}),
        "rule.leave_out[1]",
        "'24.12.2026' is not a date such as 2026-12-24",
    ),
    (
        spec({"calendars": ["a", "b c"]}),
        "rule.calendars[1]",
        "is not the name of a calendar: 1 to 100 letters, digits, '.', '_' and '-', such as de-holidays",
    ),
    (spec({"calendars": ["a", "a"]}), "rule.calendars[1]", "'a' is there twice; name it once"),
    (spec({"calendars": [f"c{n}" for n in range(11)]}), "rule.calendars", "has 11 names; give at most 10"),
    (
        spec({"calendars": ["known", "unknown"]}),
        "rule.calendars[1]",
        "there is no calendar 'unknown'; the nearest name is 'known'; put it first, or leave it out",
    ),
    (spec(payload=b"x" * 1_001), "payload", "is 1001 bytes long; max_payload_bytes of this topic is 1000"),
    (spec(headers={"": "x"}), "headers", "has an empty name; name every header"),
    (spec(headers={"a": "x" * 65_536}), "headers", "are 65537 bytes long; at most 65536 are allowed"),
    (
        spec(headers={"Relay-Run": "1"}),
        "headers",
        "have 'Relay-Run'; names that begin with relay- are the relay's own",
    ),
    (spec(content_type="a\n"), "content_type", "contains the control character U+000A; leave it out"),
    (spec(overlap=9), "overlap", "9 is not a policy; send SKIP or BUFFER or ALLOW or CANCEL"),
    (
        spec(topic="listed"),
        "overlap",
        "is skip, and the topic's due timers go to a list, where nobody knows when they end; give allow",
    ),
    (spec(catch_up=9), "catch_up", "9 is not a policy; send LATEST or ALL or NONE"),
    (
        spec(catch_up_window=seconds(1)),
        "catch_up_window",
        "is set with LATEST, which has none; leave it out, or send ALL or NONE",
    ),
    (
        spec(catch_up=pb.CATCH_UP_POLICY_ALL, catch_up_window=seconds(-1)),
        "catch_up_window",
        "is negative; give 0 or more",
    ),
    (spec(jitter=seconds(DAY, 1)), "jitter", "is longer than a day; give a day or less"),
    (spec(jitter=seconds(-1)), "jitter", "is negative; give 0 or more"),
    (spec(expire_after=seconds(0)), "expire_after", "is 0; give more, or leave it out"),
    (spec(expire_after=seconds(-1)), "expire_after", "is negative; give 0 or more"),
    (spec(max_runs=-1), "max_runs", "is -1; give 0, which means no limit, or more"),
]


NAMES = [f"{field} {number}" for number, (_, field, _) in enumerate(WRONG)]


@pytest.mark.parametrize(("wrong", "field", "problem"), WRONG, ids=NAMES)
def test_a_wrong_field_is_named(recurrences: Any, wrong: pb.RecurrenceSpec, field: str, problem: str) -> None:
    """As the details say it, and as the message does."""
    with pytest.raises(grpc.RpcError) as caught:
        recurrences.PutRecurrence(pb.PutRecurrenceRequest(recurrence=wrong))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    message = caught.value.details() or ""
    assert named_field(message, unpacked(caught.value.trailing_metadata())) == f"recurrence.{field}"
    assert message.endswith(problem), message


ONE: dict[str, Any] = {"topic": "t", "recurrence_id": "known"}
PAST: dict[str, Any] = {"start_time": at(1_700_000_000), "end_time": at(1_700_086_400)}
CALLS: list[tuple[str, Any, str, str]] = [
    (
        "PutRecurrence",
        pb.PutRecurrenceRequest(recurrence=spec(), if_version=-1),
        "if_version",
        "give 0 or more",
    ),
    ("GetRecurrence", pb.GetRecurrenceRequest(topic="{"), "topic", "leave out { and }"),
    ("GetRecurrence", pb.GetRecurrenceRequest(topic="t"), "recurrence_id", "are longer"),
    ("ListRecurrences", pb.ListRecurrencesRequest(topic=""), "topic", "give it 1 to 256 bytes"),
    ("ListRecurrences", pb.ListRecurrencesRequest(topic="t", page_size=501), "page_size", "give 0 to 500"),
    (
        "ListRecurrences",
        pb.ListRecurrencesRequest(topic="t", page_token="$"),
        "page_token",
        "is not one that a page gave; start without one",
    ),
    ("PreviewRecurrence", pb.PreviewRecurrenceRequest(), "rule", "set one of the three"),
    (
        "PreviewRecurrence",
        pb.PreviewRecurrenceRequest(rule=spec({"cron": "* * 32 * *"}).rule),
        "rule.cron",
        'day 32 in "* * 32 * *": 1 to 31, L, LW, or a number with W',
    ),
    (
        "PreviewRecurrence",
        pb.PreviewRecurrenceRequest(rule=spec().rule, count=1_001),
        "count",
        "is 1001; give 0 to 1,000",
    ),
    (
        "PreviewRecurrence",
        pb.PreviewRecurrenceRequest(rule=spec().rule, after_time=at(-1)),
        "after_time",
        "give a time from 1970 to 9999",
    ),
    (
        "PreviewRecurrence",
        pb.PreviewRecurrenceRequest(rule=spec({"cron": "*/30 * * * *"}).rule, topic="calm"),
        "rule.cron",
        "1800 s apart; the topic allows 3600 s and more: see its min_recurrence_interval",
    ),
    (
        "PreviewRecurrence",
        pb.PreviewRecurrenceRequest(rule=spec().rule, topic="{"),
        "topic",
        "leave out { and }",
    ),
    (
        "PreviewRecurrence",
        pb.PreviewRecurrenceRequest(rule=spec({"calendars": ["unknown"]}).rule),
        "rule.calendars[0]",
        "put it first, or leave it out",
    ),
    ("PutCalendar", pb.PutCalendarRequest(), "calendar.name", "such as de-holidays"),
    ("PutCalendar", calendar("x" * 101), "calendar.name", "such as de-holidays"),
    ("PutCalendar", calendar("#revision"), "calendar.name", "such as de-holidays"),
    (
        "PutCalendar",
        calendar("c", ["2026-12-24", "24.12.2026"]),
        "calendar.dates[1]",
        "'24.12.2026' is not a date such as 2026-12-24",
    ),
    (
        "PutCalendar",
        calendar("c", ["2026-12-24"] * 1_001),
        "calendar.dates",
        "has 1,001 dates; give at most 1,000",
    ),
    ("GetCalendar", pb.GetCalendarRequest(name=""), "name", "such as de-holidays"),
    ("DeleteCalendar", pb.DeleteCalendarRequest(name="a b"), "name", "such as de-holidays"),
    (
        "PauseRecurrence",
        pb.PauseRecurrenceRequest(**ONE, note="é" * 513),
        "note",
        "at most 1,024 are allowed",
    ),
    (
        "BackfillRecurrence",
        pb.BackfillRecurrenceRequest(**ONE, end_time=at(5)),
        "start_time",
        "is not set; give an instant that has passed",
    ),
    (
        "BackfillRecurrence",
        pb.BackfillRecurrenceRequest(**ONE, start_time=at(5), end_time=at(5)),
        "end_time",
        "is not after start_time; give a later one",
    ),
    (
        "BackfillRecurrence",
        pb.BackfillRecurrenceRequest(**ONE, start_time=at(5), end_time=at(2**36)),
        "end_time",
        "is in the future; give an instant that has passed",
    ),
    (
        "BackfillRecurrence",
        pb.BackfillRecurrenceRequest(**ONE, start_time=at(0), end_time=at(1_700_000_000)),
        "end_time",
        "has more than 500 instants before it; give less time",
    ),
    (
        "BackfillRecurrence",
        pb.BackfillRecurrenceRequest(**ONE, **PAST, interval=seconds(-1)),
        "interval",
        "is negative; give 0 or more",
    ),
    (
        "BackfillRecurrence",
        pb.BackfillRecurrenceRequest(**ONE, **PAST, overlap=pb.OVERLAP_POLICY_SKIP),
        "overlap",
        "send ALLOW for all at once or BUFFER for one after another, or leave it out",
    ),
    (
        "BackfillRecurrence",
        pb.BackfillRecurrenceRequest(**ONE, **PAST, overlap=9),  # type: ignore[arg-type]
        "overlap",
        "send ALLOW for all at once or BUFFER for one after another, or leave it out",
    ),
    (
        "GetRecurrenceHistory",
        pb.GetRecurrenceHistoryRequest(**ONE, limit=17),
        "limit",
        "is 17; give 0 to 16",
    ),
    (
        "GetRecurrenceHistory",
        pb.GetRecurrenceHistoryRequest(**ONE, limit=-1),
        "limit",
        "is -1; give 0 to 16",
    ),
]


@pytest.mark.parametrize(
    ("call", "request_", "field", "problem"), CALLS, ids=[f"{call} {field}" for call, _, field, _ in CALLS]
)
def test_a_wrong_field_of_a_call(
    recurrences: Any, call: str, request_: Any, field: str, problem: str
) -> None:
    recurrences.PutRecurrence(pb.PutRecurrenceRequest(recurrence=spec(recurrence_id="known")))
    with pytest.raises(grpc.RpcError) as caught:
        getattr(recurrences, call)(request_)
    message = caught.value.details() or ""
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, message
    assert named_field(message, unpacked(caught.value.trailing_metadata())) == field
    assert message.endswith(problem), message


ABSENT: dict[str, Any] = {"topic": "t", "recurrence_id": "absent"}
ABOUT_ONE: list[tuple[str, Any]] = [
    ("GetRecurrence", pb.GetRecurrenceRequest(**ABSENT)),
    ("PauseRecurrence", pb.PauseRecurrenceRequest(**ABSENT)),
    ("ResumeRecurrence", pb.ResumeRecurrenceRequest(**ABSENT)),
    ("TriggerRecurrence", pb.TriggerRecurrenceRequest(**ABSENT)),
    ("BackfillRecurrence", pb.BackfillRecurrenceRequest(**ABSENT, **PAST)),
    ("GetRecurrenceHistory", pb.GetRecurrenceHistoryRequest(**ABSENT)),
]


@pytest.mark.parametrize(("call", "request_"), ABOUT_ONE, ids=[call for call, _ in ABOUT_ONE])
def test_what_is_not_there_is_not_found(recurrences: Any, call: str, request_: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        getattr(recurrences, call)(request_)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "topic 't' has no recurrence 'absent'"


def test_to_delete_what_is_not_there_is_no_error(recurrences: Any) -> None:
    assert not recurrences.DeleteRecurrence(pb.DeleteRecurrenceRequest(**ABSENT)).deleted


def test_another_version_is_a_failed_precondition(recurrences: Any) -> None:
    """Both versions are told; 0 is that of what is not there."""
    wanted = spec(recurrence_id="versions")
    with pytest.raises(grpc.RpcError) as caught:
        recurrences.PutRecurrence(pb.PutRecurrenceRequest(recurrence=wanted, if_version=3))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.details() == "if_version: recurrence 'versions' has version 0, not 3; read it again"
    made = recurrences.PutRecurrence(pb.PutRecurrenceRequest(recurrence=wanted, if_version=0))
    assert (made.recurrence.version, made.result) == (1, pb.PUT_RESULT_CREATED)
    with pytest.raises(grpc.RpcError) as caught:
        recurrences.PutRecurrence(pb.PutRecurrenceRequest(recurrence=wanted, if_version=0))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_every_field_comes_back_as_it_was_put(recurrences: Any) -> None:
    """Instants and lengths by the microsecond; and the relay says what it took for policies that were left
    open."""
    wanted = spec(
        {
            "every": seconds(90, 500_000_000),
            "anchor_time": at(5),
            "gap": pb.GAP_POLICY_SKIP,
            "fold": pb.FOLD_POLICY_BOTH,
            "start_time": at(4_000_000_000),
            "end_time": at(5_000_000_000),
            "leave_out": ["2096-12-24"],
        },
        recurrence_id="whole",
        payload=b"\x00\xff",
        headers={"a": "ü"},
        content_type="application/x",
        overlap=pb.OVERLAP_POLICY_BUFFER,
        catch_up=pb.CATCH_UP_POLICY_ALL,
        catch_up_window=seconds(0, 1_000),
        jitter=seconds(DAY),
        expire_after=seconds(60),
        max_runs=7,
    )
    made = recurrences.PutRecurrence(pb.PutRecurrenceRequest(recurrence=wanted)).recurrence
    assert made.spec == wanted
    assert made.next_time.seconds >= 4_000_000_000
    found = recurrences.GetRecurrence(pb.GetRecurrenceRequest(topic="t", recurrence_id="whole")).recurrence
    assert found == made
    (listed,) = recurrences.ListRecurrences(pb.ListRecurrencesRequest(topic="t", prefix="whole")).recurrences
    wanted.ClearField("payload")
    wanted.ClearField("headers")
    assert listed.spec == wanted
    bare = recurrences.PutRecurrence(pb.PutRecurrenceRequest(recurrence=spec(recurrence_id="bare")))
    assert bare.recurrence.spec == spec(
        {"cron": "0 3 * * *", "gap": pb.GAP_POLICY_SHIFT, "fold": pb.FOLD_POLICY_FIRST},
        recurrence_id="bare",
        overlap=pb.OVERLAP_POLICY_SKIP,
        catch_up=pb.CATCH_UP_POLICY_LATEST,
    )


def test_a_calendar_that_is_not_there_is_not_found(recurrences: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        recurrences.GetCalendar(pb.GetCalendarRequest(name="absent"))
    assert (caught.value.code(), caught.value.details()) == (
        grpc.StatusCode.NOT_FOUND,
        "there is no calendar 'absent'",
    )
    assert not recurrences.DeleteCalendar(pb.DeleteCalendarRequest(name="absent")).deleted
