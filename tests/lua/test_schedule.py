"""timeline/schedule.lua and timeline/cancel.lua: new intents."""

from __future__ import annotations

import pytest

from relay.core.errors import InvalidField
from relay.core.instants import EXACT, LATEST, SECOND
from relay.core.outcomes import Verb, Verdict
from relay.core.timers import KEEP_EXISTING, Change, Changed, NewTimer, Scheduled
from relay.store.codec import envelope
from relay.store.codec.lease_record import LEASED, PENDING
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, State, alone, own, record, score

DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1, attempts=3)
NEW = envelope.encode(b"new", {"k": "v"}, "text/plain")


def new(timer_id: str, *, due: int | None = None, delay: int | None = None) -> NewTimer:
    return NewTimer(timer_id, b"new", due, delay, {"k": "v"}, "text/plain")


async def test_at_a_due_time(bench: Bench) -> None:
    """Timeline and payload are written, and no record."""
    due = NOW + 1_234_567
    assert await bench.store.schedule(bench.topic, [new("a", due=due)]) == [Scheduled(due, Change.CREATED)]
    assert bench.state() == alone("a", score(due), stored=NEW)


async def test_after_a_delay(bench: Bench) -> None:
    """The delay counts from the server's now, to the microsecond."""
    delay = 86_400 * SECOND + 1
    results = await bench.store.schedule(bench.topic, [new("a", delay=delay)])
    assert results == [Scheduled(NOW + delay, Change.CREATED)]
    assert bench.state() == alone("a", score(NOW + delay), stored=NEW)


async def test_what_is_told_is_what_is_there(bench: Bench) -> None:
    """Also of due times that no double holds exactly."""
    whens = [0, 1, SECOND, EXACT - NOW - 1, EXACT - NOW, EXACT + 7, 2**54 + 1, 2**57 + 17, LATEST - NOW]
    timers = [new(f"due-{when}", due=NOW + when) for when in whens]
    timers += [new(f"delay-{when}", delay=when) for when in whens]
    told = await bench.store.schedule(bench.topic, timers)
    assert all(result.change is Change.CREATED for result in told)
    found = [await bench.store.get(bench.topic, timer.timer_id) for timer in timers]
    assert [result.due for result in told] == [stored and stored.due for stored in found]
    again = await bench.store.schedule(bench.topic, timers)
    assert again == [Scheduled(result.due, Change.REPLACED) for result in told]


async def test_due_times_are_told_of_what_was_stored(bench: Bench) -> None:
    """Each goes to its own timer, whatever stands between: due times that callers know, and timers that were
    not stored."""
    bench.put("there", score(NOW + 5))
    spared = new("there", delay=9)._replace(intent=KEEP_EXISTING)
    expires = new("c", delay=3)._replace(expires_after=1)
    timers = [new("a", delay=1), new("b", due=NOW), spared, expires, new("d", due=EXACT + 2)]
    timers.append(new("a", delay=4))
    far = EXACT + 3  # in the score behind: doubles are 2 µs apart there
    assert await bench.store.schedule(bench.topic, timers) == [
        Scheduled(NOW + 1, Change.CREATED),
        Scheduled(NOW, Change.CREATED),
        Scheduled(NOW + 5, Change.UNCHANGED),
        Scheduled(NOW + 3, Change.CREATED),
        Scheduled(far, Change.CREATED),
        Scheduled(NOW + 4, Change.REPLACED),
    ]


async def test_over_another_timer(bench: Bench) -> None:
    """What lives under the id is replaced, payload, back-off and attempts."""
    bench.put("a", DEADLINE, record(PENDING, DEADLINE, due=DUE, attempts=3))
    bench.put("b", DEADLINE, HELD)
    assert await bench.store.schedule(bench.topic, [new("a", due=NOW)]) == [Scheduled(NOW, Change.REPLACED)]
    assert bench.state() == State({"a": score(NOW), "b": DEADLINE}, {"a": NEW, "b": ENVELOPE}, {"b": HELD})


async def test_over_a_lease(bench: Bench) -> None:
    """The lease is void: its token settles and extends nothing, and attempts start anew."""
    bench.put("a", DUE)
    await bench.claim(N1)
    await bench.store.schedule(bench.topic, [new("a", due=NOW + LEASE)])
    replaced = alone("a", score(NOW + LEASE), stored=NEW)
    assert bench.state() == replaced
    for verb in Verb:
        assert await bench.settle("a", N1, verb) is Verdict.STALE
    assert await bench.extend("a", N1, received=True) is Verdict.STALE
    assert bench.state() == replaced


async def test_at_the_very_score_of_a_lease(bench: Bench) -> None:
    """Even a due time that equals what the record holds is a new intent."""
    at = score(NOW + LEASE)
    bench.put("a", at, record(LEASED, at, due=DUE, nonce=N1))
    await bench.store.schedule(bench.topic, [new("a", due=NOW + LEASE)])
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.STALE
    assert bench.state() == alone("a", at, stored=NEW)


async def test_an_id_that_comes_twice(bench: Bench) -> None:
    """The later one stands, due time and payload."""
    timers = [NewTimer("a", b"old", due=NOW + SECOND), new("a", due=NOW)]
    assert await bench.store.schedule(bench.topic, timers) == [
        Scheduled(NOW + SECOND, Change.CREATED),
        Scheduled(NOW, Change.REPLACED),
    ]
    assert bench.state() == alone("a", score(NOW), stored=NEW)


async def test_a_delay_past_9999(bench: Bench) -> None:
    """It is refused, and nothing is written for others in the call."""
    timers = [new("a", due=NOW), new("b", delay=LATEST - NOW + SECOND)]
    with pytest.raises(InvalidField, match=r"^delay: "):
        await bench.store.schedule(bench.topic, timers)
    assert bench.state() == EMPTY
    assert await bench.store.schedule(bench.topic, [new("b", delay=LATEST - NOW)])


async def test_five_hundred_in_one_call(bench: Bench) -> None:
    """The most that a call may store is stored in one."""
    timers = [new(f"t{n}", due=NOW + n) for n in range(500)]
    assert [each.due for each in await bench.store.schedule(bench.topic, timers)] == [
        NOW + n for n in range(500)
    ]
    assert len(bench.state().payloads) == 500


@pytest.mark.parametrize("lease", [None, HELD, record(PENDING, DEADLINE, due=DUE)])
async def test_cancel_in_any_state(bench: Bench, lease: object) -> None:
    """The timer goes from all keys, and no other does; a second cancel finds nothing."""
    bench.put("a", DEADLINE, lease)  # type: ignore[arg-type]
    bench.put("b", DEADLINE, HELD)
    changes = await bench.store.cancel(bench.topic, ["a", "nobody", "a"])
    held = lease is HELD
    assert changes == [Changed(Change.CANCELLED, held), Changed(Change.GONE), Changed(Change.GONE)]
    assert bench.state() == alone("b", DEADLINE, HELD)


async def test_cancel_voids_the_lease(bench: Bench) -> None:
    """The token finds the timer gone, and stale once the id is scheduled anew."""
    bench.put("a", DUE)
    await bench.claim(N1)
    await bench.store.cancel(bench.topic, ["a"])
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.GONE
    await bench.store.schedule(bench.topic, [new("a", due=NOW)])
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.STALE
    assert bench.state() == alone("a", score(NOW), stored=NEW)


async def test_cancel_leaves_no_record(bench: Bench) -> None:
    """What a foreign publisher writes at our old score later is new: the old token must not fit."""
    bench.put("a", DEADLINE, HELD)
    await bench.store.cancel(bench.topic, ["a"])
    bench.put("a", DEADLINE)
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.STALE
    bench.now = NOW + LEASE + 1
    (timer,) = (await bench.claim(N2)).timers
    assert timer.attempt == 1


async def test_cancel_clears_orphans(bench: Bench) -> None:
    """A payload or a record alone is removed, and is no timer."""
    bench.put_payload("a")
    bench.put_record("b", bytes(69))
    assert await bench.store.cancel(bench.topic, ["a", "b"]) == [Changed(Change.GONE), Changed(Change.GONE)]
    assert bench.state() == EMPTY
