"""timeline/schedule and timeline/cancel: create only, conditions, expiry, and the most that a topic holds."""

from __future__ import annotations

from typing import Any

import pytest

from relay.core.errors import InvalidField
from relay.core.instants import LATEST, SECOND, from_score
from relay.core.outcomes import Verb, Verdict
from relay.core.timers import KEEP_EXISTING, REPLACE, Change, Changed, Condition, NewTimer, Scheduled
from relay.store.codec import envelope
from relay.store.codec.lease_record import LEASED, NO_NONCE, PENDING, LeaseRecord
from relay.store.timeline.redis_store import digest_of
from tests.worlds.scripts.asking import LEASE, N1, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, State, alone, own, record, score

DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1, attempts=3)
BACKED_OFF = record(PENDING, DEADLINE, due=DUE, attempts=3)
NEW = envelope.encode(b"new", {}, "")
PENDING_ONLY = Condition(only_pending=True)
DUE_THEN = Condition(due=NOW - SECOND)
BOTH = Condition(only_pending=True, due=NOW - SECOND)

CREATED, REPLACED, UNCHANGED = Change.CREATED, Change.REPLACED, Change.UNCHANGED
OVER_HELD = Scheduled(NOW + SECOND, REPLACED, delivery_under_way=True)


def new(timer_id: str = "a", due: int = NOW + SECOND, **options: Any) -> NewTimer:
    return NewTimer(timer_id, b"new", due)._replace(**options)


async def schedule(bench: Bench, *timers: NewTimer, max_waiting: int = 0) -> list[Scheduled]:
    return await bench.store.schedule(bench.topic, timers, max_waiting=max_waiting)


def waiting(expires: int, due: int = NOW + SECOND) -> State:
    """The topic with the timer `new()`, which expires then."""
    at = own(due)
    kept = record(PENDING, at, due=score(due), claims=0, occurrence=NO_NONCE, expires=score(expires))
    return alone("a", at, kept, stored=NEW)


# -------------------------------------------------------------------------- create only


async def test_create_only(bench: Bench) -> None:
    """The first call stores; the same call again changes nothing, and tells the due time that stands."""
    assert await schedule(bench, new(intent=KEEP_EXISTING)) == [Scheduled(NOW + SECOND, CREATED)]
    before = bench.state()
    assert before == alone("a", score(NOW + SECOND), stored=NEW)
    again = new(due=NOW + 9, payload=b"other", intent=KEEP_EXISTING, expires=NOW + 10)
    assert await schedule(bench, again) == [Scheduled(NOW + SECOND, UNCHANGED)]
    assert bench.state() == before


@pytest.mark.parametrize("lease", [HELD, BACKED_OFF, None], ids=["held", "backed off", "foreign"])
async def test_create_only_over_any_state(bench: Bench, lease: LeaseRecord | None) -> None:
    """Whatever lives there stays, lease and attempts too; its due time is told, not its score."""
    bench.put("a", DEADLINE, lease)
    before = bench.state()
    due = NOW + LEASE if lease is None else NOW - SECOND
    assert await schedule(bench, new(intent=KEEP_EXISTING)) == [Scheduled(due, UNCHANGED, lease is HELD)]
    assert bench.state() == before


async def test_create_only_twice_in_one_call(bench: Bench) -> None:
    """The first one stands, with its payload, due time and expiry."""
    timers = [
        new(intent=KEEP_EXISTING, expires_after=SECOND),
        new(due=NOW, payload=b"", intent=KEEP_EXISTING, expires=NOW + 5),
    ]
    assert await schedule(bench, *timers) == [
        Scheduled(NOW + SECOND, CREATED),
        Scheduled(NOW + SECOND, UNCHANGED),
    ]
    assert bench.state() == waiting(NOW + 2 * SECOND)


async def test_create_only_after_a_replacement_in_one_call(bench: Bench) -> None:
    """What came before in the call is what stands."""
    bench.put("a", DEADLINE, HELD)
    results = await schedule(bench, new(expires=NOW + LEASE), new(due=NOW, intent=KEEP_EXISTING))
    assert results == [OVER_HELD, Scheduled(NOW + SECOND, UNCHANGED)]
    assert bench.state() == waiting(NOW + LEASE)


async def test_create_only_over_an_orphan(bench: Bench) -> None:
    """A payload or a record alone is no timer."""
    bench.put_payload("a")
    bench.put_record("a", bytes(69))
    assert await schedule(bench, new(intent=KEEP_EXISTING)) == [Scheduled(NOW + SECOND, CREATED)]
    assert bench.state() == alone("a", score(NOW + SECOND), stored=NEW)


# --------------------------------------------------------------------------- conditions


@pytest.mark.parametrize("condition", [PENDING_ONLY, DUE_THEN, BOTH], ids=["pending", "due", "both"])
async def test_a_condition_that_holds(bench: Bench, condition: Condition) -> None:
    """Rescheduling replaces, cancelling removes."""
    bench.put("a", DEADLINE, BACKED_OFF)
    assert await schedule(bench, new(condition=condition)) == [Scheduled(NOW + SECOND, REPLACED)]
    assert bench.state() == alone("a", score(NOW + SECOND), stored=NEW)
    bench.put("a", DEADLINE, BACKED_OFF)
    assert await bench.store.cancel(bench.topic, ["a"], condition) == [Changed(Change.CANCELLED)]
    assert bench.state() == EMPTY


@pytest.mark.parametrize(
    ("condition", "change"),
    [
        (PENDING_ONLY, Change.IN_FLIGHT),
        (BOTH, Change.IN_FLIGHT),
        (Condition(only_pending=True, due=NOW), Change.IN_FLIGHT),
        (Condition(due=NOW), UNCHANGED),
        (Condition(due=NOW - SECOND - 1), UNCHANGED),
        (Condition(due=NOW - SECOND + 1), UNCHANGED),
        (Condition(due=NOW + LEASE), UNCHANGED),
    ],
)
async def test_a_condition_that_does_not_hold(bench: Bench, condition: Condition, change: Change) -> None:
    """Nothing is written, and the lease holds on; the due time is the one that survives claims."""
    bench.put("a", DEADLINE, HELD)
    before = bench.state()
    told = await schedule(bench, new(condition=condition))
    assert told == [Scheduled(NOW - SECOND, change, delivery_under_way=True)]
    changed = Changed(change, delivery_under_way=True)
    assert await bench.store.cancel(bench.topic, ["a"], condition) == [changed]
    assert bench.state() == before
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK


async def test_a_condition_on_a_lease(bench: Bench) -> None:
    """What is listed as leased is removed only while it is: a delivery may end, and another attempt follow,
    before the call comes."""
    condition = Condition(only_leased=True, due=NOW - SECOND)
    bench.put("a", DEADLINE, BACKED_OFF)
    before = bench.state()
    assert await schedule(bench, new(condition=condition)) == [Scheduled(NOW - SECOND, UNCHANGED)]
    assert await bench.store.cancel(bench.topic, ["a"], condition) == [Changed(UNCHANGED)]
    assert bench.state() == before
    bench.put("a", DEADLINE, HELD)
    cancelled = Changed(Change.CANCELLED, delivery_under_way=True)
    assert await bench.store.cancel(bench.topic, ["a"], condition) == [cancelled]
    assert bench.state() == EMPTY


async def test_a_due_time_that_holds_under_a_lease(bench: Bench) -> None:
    """Asked for the due time alone, a timer in flight is changed, and its delivery finds out."""
    bench.put("a", DEADLINE, HELD)
    assert await schedule(bench, new(condition=DUE_THEN)) == [OVER_HELD]
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.STALE
    bench.put("a", DEADLINE, HELD)
    cancelled = Changed(Change.CANCELLED, delivery_under_way=True)
    assert await bench.store.cancel(bench.topic, ["a"], DUE_THEN) == [cancelled]
    assert bench.state() == EMPTY


@pytest.mark.parametrize("condition", [PENDING_ONLY, DUE_THEN, BOTH], ids=["pending", "due", "both"])
async def test_a_condition_on_nothing(bench: Bench, condition: Condition) -> None:
    """There is nothing to reschedule and nothing to cancel."""
    assert await schedule(bench, new(condition=condition)) == [Scheduled(None, Change.GONE)]
    assert await schedule(bench, new(condition=condition, intent=KEEP_EXISTING)) == [
        Scheduled(None, Change.GONE)
    ]
    assert await bench.store.cancel(bench.topic, ["a"], condition) == [Changed(Change.GONE)]
    assert bench.state() == EMPTY


async def test_a_condition_on_a_content_that_is_another(bench: Bench) -> None:
    """Somebody has stored other bytes for the same instant since they were read: those stand."""
    bench.put("a", score(NOW))
    condition = Condition(content=digest_of(NEW))
    before = bench.state()
    assert await schedule(bench, new(condition=condition)) == [Scheduled(NOW, UNCHANGED)]
    assert await bench.store.cancel(bench.topic, ["a"], condition) == [Changed(UNCHANGED)]
    assert bench.state() == before


async def test_a_condition_on_the_content_before_this_call(bench: Bench) -> None:
    """What an entry of the same call has stored is another content."""
    bench.put("a", score(NOW))
    timers = [new(due=NOW + 7), new(due=NOW + 8, condition=Condition(content=digest_of(ENVELOPE)))]
    assert await schedule(bench, *timers) == [Scheduled(NOW + 7, REPLACED), Scheduled(NOW + 7, UNCHANGED)]


async def test_a_condition_on_what_the_call_stored(bench: Bench) -> None:
    """It is held against the timer as the entries before have left it."""
    bench.put("a", DEADLINE, HELD)
    timers = [
        new(due=NOW + 7),
        new(due=NOW + 8, condition=BOTH),
        new(due=NOW + 9, condition=Condition(only_pending=True, due=NOW + 7)),
    ]
    assert await schedule(bench, *timers) == [
        Scheduled(NOW + 7, REPLACED, delivery_under_way=True),
        Scheduled(NOW + 7, UNCHANGED),
        Scheduled(NOW + 9, REPLACED),
    ]
    assert bench.state() == alone("a", score(NOW + 9), stored=NEW)


@pytest.mark.parametrize(
    "at",
    [
        score(NOW) + 2**-22,
        score(NOW) + 2**-21,
        1_767_225_599.999_999_7,
        1_100_000_000.000_000_7,
        2_200_000_000.000_001_4,
        9_999_999_999.5 + 2**-19,
        -3.25,
        float("-inf"),
        float("inf"),
        4e11,
    ],
)
async def test_a_condition_on_a_due_time_between_microseconds(bench: Bench, at: float) -> None:
    """A foreign due time is told in whole microseconds, and taken so in a condition."""
    bench.put("a", at)
    timer = await bench.store.get(bench.topic, "a")
    assert timer is not None
    assert timer.due == from_score(at)
    for other in (timer.due - 1, timer.due + 1):
        if 0 <= other < 2**33 * SECOND:  # beyond, doubles are coarser than microseconds
            assert await bench.store.cancel(bench.topic, ["a"], Condition(due=other)) == [Changed(UNCHANGED)]
    assert await schedule(bench, new(condition=Condition(due=timer.due))) == [
        Scheduled(NOW + SECOND, REPLACED)
    ]


@pytest.mark.parametrize("due", [0, 1, 1_100_000_000_123_457, 2_200_000_000_123_459, LATEST - 1, LATEST])
async def test_a_condition_on_our_own_due_times(bench: Bench, due: int) -> None:
    """What Schedule answered can be given back, in any year."""
    (scheduled,) = await schedule(bench, new(due=due, expires=LATEST))
    assert await bench.store.cancel(bench.topic, ["a"], Condition(due=scheduled.due)) == [
        Changed(Change.CANCELLED)
    ]


async def test_a_condition_and_a_foreign_worker(bench: Bench) -> None:
    """Its lease is none of ours: the timer counts as pending, with the due time that we know."""
    foreign = score(NOW + 5 * SECOND) + 2**-22
    bench.put("a", foreign, HELD)
    assert await bench.store.cancel(bench.topic, ["a"], Condition(due=NOW)) == [Changed(UNCHANGED)]
    assert await bench.store.cancel(bench.topic, ["a"], BOTH) == [Changed(Change.CANCELLED)]


async def test_a_condition_and_a_foreign_publisher(bench: Bench) -> None:
    """Its due time is the one that counts, and nothing is in flight any more."""
    bench.put("a", score(NOW + 7), HELD)
    assert await bench.store.cancel(bench.topic, ["a"], BOTH) == [Changed(UNCHANGED)]
    condition = Condition(only_pending=True, due=NOW + 7)
    assert await schedule(bench, new(condition=condition)) == [Scheduled(NOW + SECOND, REPLACED)]


async def test_cancel_on_condition_of_many(bench: Bench) -> None:
    """Each by itself; an id that comes twice is cancelled once."""
    bench.put("held", DEADLINE, HELD)
    bench.put("other", score(NOW))
    bench.put("a", DUE)
    ids = ["held", "a", "nobody", "other", "a"]
    assert await bench.store.cancel(bench.topic, ids, BOTH) == [
        Changed(Change.IN_FLIGHT, delivery_under_way=True),
        Changed(Change.CANCELLED),
        Changed(Change.GONE),
        Changed(UNCHANGED),
        Changed(Change.GONE),
    ]
    assert bench.state() == State(
        {"other": score(NOW), "held": DEADLINE}, dict.fromkeys(("held", "other"), ENVELOPE), {"held": HELD}
    )


# ---------------------------------------------------------------- deliveries under way


async def test_which_deliveries_are_told(bench: Bench) -> None:
    """Those of a lease that nobody has ended, also past its deadline. A record tells of none if it says that
    the timer waits, or if somebody has written another score since."""
    found = {
        "held": (DEADLINE, HELD, True),
        "lapsed": (own(NOW - 9), HELD._replace(score=own(NOW - 9)), True),
        "backed off": (DEADLINE, BACKED_OFF, False),
        "republished": (score(NOW + LEASE), HELD, False),
        "leased by a foreign worker": (score(NOW + 5 * SECOND) + 2**-22, HELD, False),
        "new": (DUE, None, False),
    }
    wanted = [under_way for _, _, under_way in found.values()]
    for intent in (KEEP_EXISTING, REPLACE):
        for timer_id, (at, lease, _) in found.items():
            bench.put(timer_id, at, lease)
        told = await schedule(bench, *(new(timer_id, intent=intent) for timer_id in found))
        assert [each.delivery_under_way for each in told] == wanted
    for timer_id, (at, lease, _) in found.items():
        bench.put(timer_id, at, lease)
    cancelled = await bench.store.cancel(bench.topic, list(found))
    assert cancelled == [Changed(Change.CANCELLED, under_way) for under_way in wanted]


async def test_what_a_call_has_stored_is_not_under_way(bench: Bench) -> None:
    """The delivery is told to the entry that found it."""
    bench.put("a", DEADLINE, HELD)
    told = await schedule(bench, new(), new(due=NOW), new(intent=KEEP_EXISTING))
    assert told == [OVER_HELD, Scheduled(NOW, REPLACED), Scheduled(NOW, UNCHANGED)]


# -------------------------------------------------------------------------- max_waiting


async def test_a_topic_that_is_full(bench: Bench) -> None:
    """New timers are refused one by one; those that replace are taken, in any order in the call."""
    bench.put("held", DEADLINE, HELD)
    bench.put("parked", DEADLINE, stored=None)
    timers = [
        new("held"),
        new("b"),
        new("c"),
        new("b", due=NOW),
        new("c", due=NOW),
        new("d", intent=KEEP_EXISTING),
    ]
    assert await schedule(bench, *timers, max_waiting=3) == [
        OVER_HELD,
        Scheduled(NOW + SECOND, CREATED),
        Scheduled(None, Change.FULL),
        Scheduled(NOW, REPLACED),
        Scheduled(None, Change.FULL),
        Scheduled(None, Change.FULL),
    ]
    state = bench.state()
    assert set(state.timeline) == {"held", "parked", "b"}
    assert set(state.payloads) == {"held", "b"}
    assert state.leases == {}
    assert await schedule(bench, new("e"), max_waiting=2) == [Scheduled(None, Change.FULL)]
    assert await schedule(bench, new("e", condition=DUE_THEN), max_waiting=2) == [
        Scheduled(None, Change.GONE)
    ]
    assert await schedule(bench, new("e")) == [Scheduled(NOW + SECOND, CREATED)]


# ------------------------------------------------------------------------------ the rest


async def test_nothing_stored_gives_no_hint(bench: Bench) -> None:
    """A call that changes nothing wakes nobody, and writes nothing at all."""
    bench.put("a", score(NOW + LEASE))
    with bench.listening() as ear, bench.full():
        await schedule(bench, new(intent=KEEP_EXISTING), new("b", condition=DUE_THEN))
        assert ear.heard() == []
    with bench.listening() as ear:
        await schedule(bench, new(expires=NOW + LEASE))
        assert ear.heard() == [own(NOW + SECOND)]


async def test_a_delay_past_9999_with_options(bench: Bench) -> None:
    """It is refused before anything is asked, also where the timer would not have been stored."""
    bench.put("a", DUE)
    before = bench.state()
    with pytest.raises(InvalidField, match=r"^delay: "):
        await schedule(bench, new("b"), NewTimer("a", b"", delay=LATEST, intent=KEEP_EXISTING))
    assert bench.state() == before


async def test_five_hundred_with_all_options(bench: Bench) -> None:
    """The most that a call may take, each with an expiry and half of them there already."""
    for n in range(0, 500, 2):
        bench.put(f"t{n}", DUE)
    timers = [
        new(
            f"t{n}",
            expires=NOW + LEASE,
            intent=KEEP_EXISTING if n % 2 else REPLACE,
            condition=Condition() if n % 2 else BOTH,
        )
        for n in range(500)
    ]
    results = await schedule(bench, *timers, max_waiting=500)
    assert [each.change for each in results] == [REPLACED, CREATED] * 250
    assert len(bench.state().leases) == 500
