"""What a journal's records of one occurrence say of its end."""

from __future__ import annotations

import pytest

from relay.core.journal import JournalRecord, RecordKind
from relay.core.recurring.ends import Became, OccurrenceOutcome, Trail

K, OUTCOME = RecordKind, OccurrenceOutcome
THERE, BACK = "2:0>1:1767225600000000", "2:0>1:1767225600000001"


def record(kind: RecordKind, **fields: object) -> JournalRecord:
    return JournalRecord(kind, "r@2026-01-01T00:00:00Z", **fields)  # type: ignore[arg-type]


def followed(*records: JournalRecord, trail: Trail | None = None) -> Trail:
    """One that has taken these, at 1, 2, 3 and so on."""
    trail = Trail() if trail is None else trail
    for time, each in enumerate(records, 1):
        trail.take(each, time)
    return trail


MADE, CLAIMED = record(K.SCHEDULED), record(K.CLAIMED, attempts=0, claims=1)
FAILED = record(K.NACKED, attempts=1)
DEAD = record(K.DEAD, attempts=3, reason="attempts", dead_id="5-0")


@pytest.mark.parametrize(
    ("records", "became"),
    [
        ((CLAIMED, record(K.RECEIVED), record(K.ACKED)), Became(OUTCOME.ACKED, "", 1, 4)),
        ((CLAIMED, FAILED, record(K.CLAIMED, attempts=1), record(K.ACKED)), Became(OUTCOME.ACKED, "", 2, 5)),
        (
            (CLAIMED, record(K.RELEASED, attempts=0), CLAIMED, record(K.ACKED)),
            Became(OUTCOME.ACKED, "", 1, 5),
        ),
        ((CLAIMED, DEAD), Became(OUTCOME.DEAD, "attempts", 3, 3)),
        ((record(K.EXPIRED, expires=5),), Became(OUTCOME.EXPIRED, "", 0, 2)),
        ((CLAIMED, FAILED, record(K.CANCELLED)), Became(OUTCOME.CANCELLED, "", 1, 4)),
        ((record(K.PROMOTED),), Became(OUTCOME.PROMOTED, "", 0, 2)),
        ((record(K.PARKED), record(K.ORPHANED)), Became(OUTCOME.REMOVED, "no_payload", 0, 3)),
        ((CLAIMED, record(K.TAKEN)), Became(OUTCOME.REMOVED, "foreign", 0, 3)),
    ],
)
def test_its_end(records: tuple[JournalRecord, ...], became: Became) -> None:
    trail = followed(MADE, *records)
    assert trail.became == became
    assert trail.is_over is (became.outcome is not OUTCOME.DEAD), "a kept dead letter may be redriven"


@pytest.mark.parametrize("kind", [K.RESCHEDULED, K.REPLACED, K.REDRIVEN])
def test_a_new_life_begins_with_no_attempt(kind: RecordKind) -> None:
    """Whatever moves it, it is followed on."""
    before = DEAD if kind is K.REDRIVEN else FAILED
    trail = followed(MADE, CLAIMED, before, record(kind))
    assert (trail.became, trail.attempts, trail.is_over) == (None, 0, False)
    assert followed(CLAIMED, record(K.ACKED), trail=trail).became == Became(OUTCOME.ACKED, "", 1, 2)


def test_the_first_end_counts() -> None:
    """Another timer of its name is not the occurrence."""
    again = record(K.SCHEDULED), record(K.CANCELLED)
    assert followed(MADE, CLAIMED, record(K.ACKED), *again).became == Became(OUTCOME.ACKED, "", 1, 3)


@pytest.mark.parametrize("end", [record(K.ACKED), record(K.DEAD, reason="rejected", dead_id="9-0")])
def test_another_timer_of_the_name_of_a_dead_one(end: JournalRecord) -> None:
    """Somebody has scheduled it, and its end is its own, until that one is redriven."""
    trail = followed(MADE, CLAIMED, DEAD, MADE, CLAIMED, end)
    assert (trail.became, trail.is_over) == (Became(OUTCOME.DEAD, "attempts", 3, 3), False)
    followed(record(K.PURGED, dead_id="9-0"), record(K.REDRIVEN, dead_id="9-0"), record(K.ACKED), trail=trail)
    assert trail.became == Became(OUTCOME.DEAD, "attempts", 3, 3)
    followed(record(K.REDRIVEN, dead_id="5-0"), CLAIMED, record(K.ACKED), trail=trail)
    assert trail.became == Became(OUTCOME.ACKED, "", 1, 3)


def test_a_dead_one_moves_without_another_timer_of_its_name() -> None:
    """The other one leaves first, and comes first; both have letters then."""
    trail = followed(MADE, DEAD, MADE, record(K.LEFT, hand_over=BACK))
    assert (trail.left, trail.is_over) == ("", False)
    left = followed(record(K.LEFT, hand_over=THERE, dead_id="5-0"), trail=trail)
    there = followed(
        record(K.ARRIVED, hand_over=THERE, dead_id="6-0", previous_dead_id="5-0"),
        record(K.ACKED),
        trail=Trail(left),
    )
    assert there.became == Became(OUTCOME.DEAD, "attempts", 3, 2)
    followed(record(K.REDRIVEN, dead_id="6-0"), record(K.CANCELLED), trail=there)
    assert there.became == Became(OUTCOME.CANCELLED, "", 0, 2)


def test_a_letter_that_is_not_kept_or_was_purged_is_the_end() -> None:
    assert followed(MADE, record(K.DEAD, reason="rejected", attempts=1)).is_over
    assert followed(MADE, DEAD, record(K.PURGED, dead_id="5-0")).is_over


def test_what_changes_nothing() -> None:
    """Refused writes, receipts and renewals."""
    said = [record(kind) for kind in (K.STALE, K.GONE, K.RECEIVED, K.EXTENDED, K.REPAIRED, K.PURGED)]
    trail = followed(MADE, CLAIMED, *said)
    assert (trail.became, trail.attempts, trail.is_over) == (None, 0, False)


def test_attempts_that_are_not_known_are_not_counted() -> None:
    """Where the journal begins behind its claim."""
    assert followed(record(K.RECEIVED), record(K.ACKED)).became == Became(OUTCOME.ACKED, "", 0, 2)


def test_into_another_partition() -> None:
    """What was counted goes along; records there from before it came are not about it."""
    left = followed(MADE, CLAIMED, FAILED, record(K.LEFT, hand_over=THERE))
    assert (left.left, left.left_at, left.goes_to) == (THERE, 4, (1, 0))
    other = record(K.ARRIVED, hand_over=BACK), record(K.SCHEDULED), record(K.ACKED)
    there = followed(*other, trail=Trail(left))
    assert (there.seen, there.became) == (False, None)
    followed(record(K.ARRIVED, hand_over=THERE), record(K.CANCELLED), trail=there)
    assert (there.has_begun_here, there.became) == (False, Became(OUTCOME.CANCELLED, "", 1, 2))


def test_back_again() -> None:
    """There was no room for it: it goes on where it was, and may leave again."""
    left = followed(MADE, record(K.LEFT, hand_over=THERE))
    back = followed(record(K.LEFT, hand_over=THERE), record(K.RETURNED, hand_over=THERE), trail=Trail(left))
    assert (back.seen, back.left) == (True, "")
    followed(record(K.LEFT, hand_over=BACK), trail=back)
    assert back.left == BACK


def test_a_letter_moves() -> None:
    """It stays dead, and may be redriven where it came."""
    left = followed(MADE, DEAD, record(K.LEFT, hand_over=THERE, dead_id="5-0"))
    came = record(K.ARRIVED, hand_over=THERE, dead_id="6-0", previous_dead_id="5-0")
    there = followed(came, trail=Trail(left))
    assert there.became == Became(OUTCOME.DEAD, "attempts", 3, 2)
    assert followed(record(K.REDRIVEN), CLAIMED, record(K.ACKED), trail=there).became == Became(
        OUTCOME.ACKED, "", 1, 3
    )
