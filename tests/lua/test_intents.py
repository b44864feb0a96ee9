"""Timers of one id that meet: which one stands, and debounced timers with the limit of their run."""

from __future__ import annotations

import math
from time import monotonic
from typing import Any

import pytest

from relay.core.instants import LATEST, SECOND
from relay.core.outcomes import Verb, Verdict
from relay.core.timers import KEEP_EXISTING, Change, Condition, Debounce, NewTimer, OnConflict, Scheduled
from relay.store.codec import envelope
from relay.store.codec.lease_record import LEASED, PENDING
from tests.worlds.scripts.asking import LEASE, N1, N2, N3, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, alone, limited, own, record, score

CREATED, REPLACED, UNCHANGED = Change.CREATED, Change.REPLACED, Change.UNCHANGED
EARLIEST, LATEST_STANDS = OnConflict.KEEP_EARLIEST, OnConflict.KEEP_LATEST
DUE = NOW - SECOND
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=score(DUE), nonce=N1, attempts=3)
BACKED_OFF = record(PENDING, DEADLINE, due=score(DUE), attempts=3)
PAUSE, MOST = 30 * SECOND, 100 * SECOND


def new(due: int, payload: bytes = b"new", **options: Any) -> NewTimer:
    return NewTimer("a", payload, due)._replace(**options)


def debounced(payload: bytes = b"new", *, pause: int = PAUSE, at_most: int | None = MOST) -> NewTimer:
    return NewTimer("a", payload, delay=pause, intent=Debounce(at_most))


def stored(payload: bytes = b"new") -> bytes:
    return envelope.encode(payload, {}, "")


async def schedule(bench: Bench, *timers: NewTimer, max_waiting: int = 0) -> list[Scheduled]:
    return await bench.store.schedule(bench.topic, timers, max_waiting=max_waiting)


# ------------------------------------------------------------------ the earliest, the latest


@pytest.mark.parametrize(
    ("intent", "due", "change"),
    [
        (EARLIEST, NOW + 6, REPLACED),
        (EARLIEST, NOW + 7, UNCHANGED),
        (EARLIEST, NOW + 8, UNCHANGED),
        (LATEST_STANDS, NOW + 6, UNCHANGED),
        (LATEST_STANDS, NOW + 7, UNCHANGED),
        (LATEST_STANDS, NOW + 8, REPLACED),
    ],
)
async def test_which_one_stands(bench: Bench, intent: OnConflict, due: int, change: Change) -> None:
    """The first call stores; of the second the caller is told which due time stands, and what is refused
    leaves everything as it is."""
    assert await schedule(bench, new(NOW + 7, intent=intent)) == [Scheduled(NOW + 7, CREATED)]
    stands = due if change is REPLACED else NOW + 7
    assert await schedule(bench, new(due, b"other", intent=intent)) == [Scheduled(stands, change)]
    assert bench.state() == alone(
        "a", score(stands), stored=stored(b"other" if change is REPLACED else b"new")
    )


async def test_a_delay_is_compared_by_the_clock_of_redis(bench: Bench) -> None:
    """And the caller, who can't know when it ends, is told."""
    bench.put("a", score(NOW + 7))
    later = NewTimer("a", b"", delay=8, intent=EARLIEST)
    assert await schedule(bench, later) == [Scheduled(NOW + 7, UNCHANGED)]
    assert await schedule(bench, later._replace(delay=6)) == [Scheduled(NOW + 6, REPLACED)]


@pytest.mark.parametrize("intent", [EARLIEST, LATEST_STANDS])
async def test_a_timer_that_is_delivered_lives(bench: Bench, intent: OnConflict) -> None:
    """Its due time counts, not the end of its lease. What keeps it leaves the lease as it is; what replaces
    it makes the lease void."""
    for due in (DUE - 1, DUE + 1):
        change = REPLACED if (due < DUE) is (intent is EARLIEST) else UNCHANGED
        bench.put("a", DEADLINE, HELD)
        stands = due if change is REPLACED else DUE
        assert await schedule(bench, new(due, intent=intent)) == [Scheduled(stands, change, True)]
        settled = await bench.settle("a", N1, Verb.ACK)
        assert settled is (Verdict.STALE if change is REPLACED else Verdict.OK)


async def test_one_that_waits_for_its_next_attempt_keeps_it(bench: Bench) -> None:
    """By its due time it is the earlier one; its attempts stay."""
    bench.put("a", DEADLINE, BACKED_OFF)
    before = bench.state()
    assert await schedule(bench, new(NOW, intent=EARLIEST)) == [Scheduled(DUE, UNCHANGED)]
    assert bench.state() == before


async def test_several_of_one_id_in_a_call(bench: Bench) -> None:
    """Each meets what those before it have left."""
    timers = [new(NOW + due, intent=EARLIEST) for due in (5, 7, 3, 4)]
    timers += [new(NOW + due, intent=LATEST_STANDS) for due in (1, 9, 8)]
    assert await schedule(bench, *timers) == [
        Scheduled(NOW + 5, CREATED),
        Scheduled(NOW + 5, UNCHANGED),
        Scheduled(NOW + 3, REPLACED),
        Scheduled(NOW + 3, UNCHANGED),
        Scheduled(NOW + 3, UNCHANGED),
        Scheduled(NOW + 9, REPLACED),
        Scheduled(NOW + 9, UNCHANGED),
    ]
    assert bench.state() == alone("a", score(NOW + 9), stored=stored())


@pytest.mark.parametrize("at", [score(NOW + 7) + 2**-22, score(NOW + 7)])
async def test_a_foreign_due_time_counts(bench: Bench, at: float) -> None:
    """A publisher's or a worker's, whatever our record said before."""
    bench.put("a", at, BACKED_OFF._replace(due=score(NOW + 7), score=own(NOW + 8)))
    assert (await schedule(bench, new(NOW + 8, intent=EARLIEST)))[0].change is UNCHANGED
    assert (await schedule(bench, new(NOW + 6, intent=LATEST_STANDS)))[0].change is UNCHANGED
    assert await schedule(bench, new(NOW + 6, intent=EARLIEST)) == [Scheduled(NOW + 6, REPLACED)]


async def test_with_a_condition_both_must_hold(bench: Bench) -> None:
    """And without a timer there is nothing to hold the condition against."""
    pending = Condition(only_pending=True)
    timer = new(DUE - 1, intent=EARLIEST, condition=pending)
    assert await schedule(bench, timer) == [Scheduled(None, Change.GONE)]
    bench.put("a", DEADLINE, HELD)
    assert await schedule(bench, timer) == [Scheduled(DUE, Change.IN_FLIGHT, True)]
    bench.put("a", DEADLINE, BACKED_OFF)
    assert await schedule(bench, timer) == [Scheduled(DUE - 1, REPLACED)]


async def test_with_an_expiry(bench: Bench) -> None:
    """Which goes with the timer that stands."""
    timer = new(NOW + 7, intent=EARLIEST, expires_after=SECOND)
    assert await schedule(bench, timer, timer) == [Scheduled(NOW + 7, CREATED), Scheduled(NOW + 7, UNCHANGED)]
    kept = bench.state().leases["a"]
    assert kept.expires == score(NOW + 7 + SECOND)


async def test_a_full_topic(bench: Bench) -> None:
    """Which timer stands is no question of room; a new one needs some."""
    bench.put("b", score(NOW))
    assert await schedule(bench, new(NOW, intent=EARLIEST), max_waiting=1) == [Scheduled(None, Change.FULL)]
    assert await schedule(bench, debounced(), max_waiting=1) == [Scheduled(None, Change.FULL)]
    bench.put("a", score(NOW))
    assert (await schedule(bench, new(NOW - 1, intent=EARLIEST), max_waiting=1))[0].change is REPLACED


# -------------------------------------------------------------------------------- debounce


async def test_each_call_moves_it(bench: Bench) -> None:
    """To a pause from now, with the content of the last call; at the limit of the first call it stays."""
    assert await schedule(bench, debounced(b"0")) == [Scheduled(NOW + PAUSE, CREATED)]
    for n in range(1, 7):
        bench.now = NOW + n * 20 * SECOND
        due = min(bench.now + PAUSE, NOW + MOST)
        assert await schedule(bench, debounced(b"%d" % n)) == [Scheduled(due, REPLACED)]
        text = limited(score(due), score(NOW + MOST))
        assert bench.state() == alone("a", score(due), text, stored=stored(b"%d" % n))
    assert bench.now > NOW + MOST  # and nobody has claimed it


async def test_without_a_limit_nothing_is_kept(bench: Bench) -> None:
    """It is a timer like all others."""
    for n in range(3):
        bench.now = NOW + n
        assert (await schedule(bench, debounced(at_most=None)))[0].due == NOW + n + PAUSE
        assert bench.state() == alone("a", score(NOW + n + PAUSE), stored=stored())


async def test_the_first_limit_of_a_run_holds(bench: Bench) -> None:
    """Whatever later calls say; a run without one gets it from the first call that names one."""
    assert await schedule(bench, debounced(at_most=None)) == [Scheduled(NOW + PAUSE, CREATED)]
    bench.now = NOW + SECOND
    limit = NOW + SECOND + MOST
    for n, at_most in enumerate((MOST, None, PAUSE, 5 * MOST)):
        bench.now = NOW + (1 + n) * SECOND
        await schedule(bench, debounced(at_most=at_most))
        due = bench.now + PAUSE
        assert bench.state() == alone("a", score(due), limited(score(due), score(limit)), stored=stored())


async def test_a_run_in_one_call(bench: Bench) -> None:
    """Each entry goes on from those before; one that is not debounced ends the run."""
    bench.now = NOW
    await schedule(bench, debounced())
    bench.now = NOW + 10 * SECOND
    long = debounced(pause=2 * MOST, at_most=2 * MOST)
    told = await schedule(bench, long, long, new(NOW + 1), long, debounced(at_most=None))
    assert [each.due for each in told] == [
        NOW + MOST,
        NOW + MOST,
        NOW + 1,
        bench.now + 2 * MOST,
        bench.now + PAUSE,
    ]
    text = limited(score(bench.now + PAUSE), score(bench.now + 2 * MOST))
    assert bench.state() == alone("a", score(bench.now + PAUSE), text, stored=stored())


async def test_a_claim_ends_the_run(bench: Bench) -> None:
    """The next call makes the lease void and begins a run of its own: what it came for is delivered."""
    await schedule(bench, debounced())
    bench.now = NOW + PAUSE
    claimed = await bench.claim(N2)
    assert [each.timer_id for each in claimed.timers] == ["a"]
    kept = bench.state().leases["a"]
    assert (kept.state, kept.due) == (LEASED, score(NOW + PAUSE))
    told = await schedule(bench, debounced(pause=MOST))
    assert told == [Scheduled(bench.now + MOST, REPLACED, delivery_under_way=True)]
    assert await bench.settle("a", N2, Verb.ACK) is Verdict.STALE
    text = limited(score(bench.now + MOST), score(bench.now + MOST))
    assert bench.state() == alone("a", score(bench.now + MOST), text, stored=stored())


@pytest.mark.parametrize("end", ["cancel", "run", "replace", "keep"])
async def test_other_calls_end_the_run(bench: Bench, end: str) -> None:
    """If they change the timer. What is refused changes nothing."""
    await schedule(bench, debounced())
    before = bench.state()
    if end == "cancel":
        await bench.store.cancel(bench.topic, ["a"])
        assert bench.state() == EMPTY
    elif end == "run":
        await bench.store.run(bench.topic, ["a"])
    elif end == "replace":
        await schedule(bench, new(NOW + 1))
        assert bench.state() == alone("a", score(NOW + 1), stored=stored())
    else:
        kept = [(NOW + MOST, EARLIEST), (NOW, LATEST_STANDS), (NOW, KEEP_EXISTING)]
        told = await schedule(bench, *(new(due, intent=intent) for due, intent in kept))
        assert {each.change for each in told} == {UNCHANGED}
        assert bench.state() == before
    bench.now = NOW + 90 * SECOND
    (again,) = await schedule(bench, debounced())
    assert again.due == (NOW + MOST if end == "keep" else bench.now + PAUSE)


@pytest.mark.parametrize("at", [score(NOW + 7), score(NOW + 7) + 2**-22])
async def test_a_foreign_writer_ends_the_run(bench: Bench, at: float) -> None:
    """A publisher's timer is another one, and a worker's lease a delivery; both leave the limit there."""
    await schedule(bench, debounced())
    bench.raw.zadd(bench.timeline, {"a": at})
    bench.now = NOW + 90 * SECOND
    assert await schedule(bench, debounced()) == [Scheduled(bench.now + PAUSE, REPLACED)]
    bench.raw.zrem(bench.timeline, "a")
    bench.now = NOW + 180 * SECOND
    assert await schedule(bench, debounced()) == [Scheduled(bench.now + PAUSE, CREATED)]


async def test_limits_in_the_far_future(bench: Bench) -> None:
    """They end in 9999; the due time that is told is the one that was stored, in any year."""
    far = 7900 * 365 * 24 * 3600 * SECOND
    assert far < LATEST - NOW
    for pause, at_most in ((PAUSE, LATEST), (far, far), (far, LATEST), (10**16 + 1, far)):
        bench.raw.delete(*bench.keys)
        (told,) = await schedule(bench, debounced(pause=pause, at_most=at_most))
        timer = await bench.store.get(bench.topic, "a")
        assert timer is not None
        assert told == Scheduled(timer.due, CREATED)
        assert abs(timer.due - NOW - pause) < 64  # doubles are that coarse


async def test_what_is_refused_begins_no_run(bench: Bench) -> None:
    """Nor does it end one: the time of its caller was over."""
    await schedule(bench, debounced())
    before = bench.state()
    timers = [debounced(), NewTimer("b", b"", NOW)]
    told = await bench.store.schedule(bench.topic, timers, deadlines=[monotonic() - 1, math.inf])
    assert [each.change for each in told] == [Change.GIVEN_UP, CREATED]
    assert bench.state().limits == before.limits


# ------------------------------------------------------------------ occurrences that callers name


async def test_a_repeat_of_a_living_occurrence(bench: Bench) -> None:
    """The answer to a call was lost, and its timer is under way as the call is repeated: lease and attempts
    stay, and deliveries carry the name. After the end the repeat is the same occurrence once more."""
    named = new(NOW - 5, occurrence=N2)
    assert await schedule(bench, named) == [Scheduled(NOW - 5, CREATED)]
    (timer,) = (await bench.claim(N1)).timers
    assert timer.occurrence_id == f"a/{N2.hex()}"
    before = bench.state()
    (again,) = await schedule(bench, named._replace(due=NOW + 9, payload=b"other"))
    assert (again.due, again.change, again.delivery_under_way) == (NOW - 5, UNCHANGED, True)
    assert bench.state() == before
    assert await bench.settle("a", N1) is Verdict.OK
    assert await schedule(bench, named) == [Scheduled(NOW - 5, CREATED)]
    (timer,) = (await bench.claim(N3)).timers
    assert (timer.occurrence_id, timer.attempt) == (f"a/{N2.hex()}", 1)


async def test_occurrences_in_one_call(bench: Bench) -> None:
    """Another name, or none, is a new intent; the same name is not, also within a call, whatever stands."""
    results = await schedule(
        bench,
        new(NOW + 1, occurrence=N2),
        new(NOW + 2, b"other", occurrence=N2),
        new(NOW + 3, b"third", occurrence=N3),
        new(NOW + 4, b"fourth", occurrence=N3, intent=LATEST_STANDS),
    )
    assert [each.change for each in results] == [CREATED, UNCHANGED, REPLACED, UNCHANGED]
    at = score(NOW + 3)
    waiting = record(PENDING, own(NOW + 3), due=at, claims=0, occurrence=N3)
    assert bench.state() == alone("a", own(NOW + 3), waiting, stored=stored(b"third"))
    assert [each.change for each in await schedule(bench, new(NOW + 5))] == [REPLACED]
    assert bench.state() == alone("a", score(NOW + 5), stored=stored())
