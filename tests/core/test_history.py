"""What journals tell of one timer, in one order."""

from __future__ import annotations

from relay.core.history.events import HistoryPage, TimerEvent, entry_before, events_of
from relay.core.history.ordering import newest_first
from relay.core.journal import JournalBatch, JournalRecord, RecordKind

TO_1, TO_3, BACK = "2:0>1:100", "4:1>3:200", "6:3>1:300"


def event(partition: int, millisecond: int, kind: str, hand_over: str = "", dead_id: str = "") -> TimerEvent:
    record = JournalRecord(RecordKind[kind], "a", hand_over=hand_over, dead_id=dead_id)
    return TimerEvent(millisecond * 1000, f"{millisecond}-0", partition, record)


def test_hand_overs_are_in_order_whatever_the_clocks_show() -> None:
    """The clock of partition 1 is ahead of all others by 500 ms, and that of partition 3 behind them."""
    life = [
        event(0, 900, "SCHEDULED"),
        event(0, 905, "ACKED"),
        event(1, 1_480, "SCHEDULED"),
        event(1, 1_490, "CANCELLED"),
        event(0, 1_000, "SCHEDULED"),
        event(0, 1_010, "LEFT", TO_1),
        event(1, 1_512, "ARRIVED", TO_1),
        event(1, 1_520, "CLAIMED"),
        event(1, 1_530, "LEFT", TO_3),
        event(3, 540, "ARRIVED", TO_3),
        event(3, 550, "ACKED"),
        event(3, 1_060, "SCHEDULED"),
        event(3, 1_070, "LEFT", BACK),
        event(1, 2_072, "ARRIVED", BACK),
    ]
    streams = {n: [each for each in reversed(life) if each.partition == n] for n in (0, 1, 3)}
    assert newest_first(streams)[::-1] == life
    by_time = sorted(life, key=lambda each: each.time)
    assert by_time != life, "time alone tells it wrongly"


def test_a_departure_whose_arrival_is_missing() -> None:
    """It is on its way, or the other journal was trimmed: all is told all the same."""
    left, before = event(0, 20, "LEFT", TO_1), event(0, 10, "SCHEDULED")
    assert newest_first({0: [left, before], 1: []}) == [left, before]
    arrived = event(1, 30, "ARRIVED", TO_1)
    assert newest_first({0: [], 1: [arrived]}) == [arrived]


def test_occurrences_name_the_tick_that_made_them() -> None:
    """And who asked for it. Another recurrence's tick in the same batch, or before it, is not meant."""
    batch = JournalBatch(
        "5-0#3",
        5_000,
        1,
        4,
        (
            JournalRecord(RecordKind.SCHEDULED, "b@1"),
            JournalRecord(RecordKind.TICKED, "a", principal="token:alice"),
            JournalRecord(RecordKind.SCHEDULED, "a@1"),
            JournalRecord(RecordKind.TICKED, "b"),
        ),
        "relay-0",
    )
    (made,) = events_of(batch, "a@1")
    told = made.recurrence_id, made.principal, made.relay, made.partition, made.entry
    assert told == ("a", "token:alice", "relay-0", 3, "5-0")
    (other,) = events_of(batch, "b@1")
    assert (other.recurrence_id, other.principal) == ("", "")
    assert events_of(batch, "a") == [], "a recurrence is no timer"


def test_whether_it_lives_and_which_letters_are_kept() -> None:
    """By the newest change. What was refused, or happened to a dead letter, is none."""
    late, acked = event(0, 3, "GONE"), event(0, 2, "ACKED")
    assert HistoryPage([late, acked]).lives is False
    assert HistoryPage([late]).lives is None
    died, redriven = event(0, 4, "DEAD", dead_id="4-0"), event(0, 5, "REDRIVEN", dead_id="4-0")
    again = event(0, 6, "DEAD", dead_id="6-0")
    assert (HistoryPage([redriven, died]).lives, HistoryPage([redriven, died]).letters) == (True, [])
    assert HistoryPage([again, redriven, died]).letters == ["6-0"]
    purged = event(0, 7, "PURGED", dead_id="6-0")
    assert HistoryPage([purged, again]).letters == []
    assert HistoryPage([purged, again]).lives is False


def test_the_entry_before() -> None:
    assert [entry_before("5-3"), entry_before("5-0")] == ["5-2", "4-9999999999999999999"]
