"""Servers and keys that misbehave: a full Redis, a clock that steps back, a wrong type under a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from relay.core.errors import StoreError, StoreFull, WrongKeyType
from relay.core.instants import SECOND
from relay.core.outcomes import Settlement, Verb, Verdict
from relay.core.timers import Change, NewTimer
from relay.store.records import LEASED, PENDING
from tests.lua.bench import EMPTY, LEASE, N1, N2, NOW, Bench, alone, own, record, score

HOUR = 3600 * SECOND
DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1)

Call = Callable[[Bench], Awaitable[object]]
CALLS: dict[str, Call] = {
    "schedule": lambda bench: bench.store.schedule(bench.topic, [NewTimer("a", b"x", due=NOW)]),
    "cancel": lambda bench: bench.store.cancel(bench.topic, ["a"]),
    "get": lambda bench: bench.store.get(bench.topic, "a"),
    "list": lambda bench: bench.store.list(bench.topic, state=None, limit=5, cursor=""),
    "claim": lambda bench: bench.claim(N2),
    "settle": lambda bench: bench.settle("a", N1, Verb.ACK),
    "extend": lambda bench: bench.extend("a", N1),
}


# --------------------------------------------------------------------------- maxmemory


async def test_schedule_is_refused_whole(bench: Bench) -> None:
    """At maxmemory nothing is stored or replaced, and no lease is touched."""
    bench.put("held", DEADLINE, HELD)
    before = bench.state()
    timers = [NewTimer("new", b"x", due=NOW), NewTimer("held", b"x", due=NOW)]
    with bench.full():
        for _ in range(2):
            with pytest.raises(StoreFull):
                await bench.store.schedule(bench.topic, timers)
    assert bench.state() == before


async def test_a_claim_of_new_timers(bench: Bench) -> None:
    """Timers without a record are leased on a full Redis."""
    bench.put("a", DUE)
    with bench.full():
        assert await bench.claimed(N1) == ["a"]
    assert bench.state() == alone("a", DEADLINE, HELD)


async def test_outcomes_are_written(bench: Bench) -> None:
    """ACK, NACK and release drain a full Redis, each alone in its call."""
    for timer_id in ("ack", "nack", "release"):
        bench.put(timer_id, DEADLINE, HELD)
    with bench.full():
        assert await bench.settle("nack", N1, Verb.NACK, retry_after=SECOND) is Verdict.OK
        assert await bench.settle("release", N1, Verb.RELEASE) is Verdict.OK
        assert await bench.settle("ack", N1, Verb.ACK) is Verdict.OK
    assert set(bench.state().timeline) == {"nack", "release"}


async def test_a_lease_is_renewed(bench: Bench) -> None:
    """A full Redis costs no lease."""
    bench.put("a", DEADLINE, HELD)
    bench.now += SECOND
    with bench.full():
        assert await bench.extend("a", N1) is Verdict.OK
    assert bench.state().timeline == {"a": own(NOW + SECOND + LEASE)}


async def test_cancel_and_orphans(bench: Bench) -> None:
    """A full Redis lets go of cancelled timers and of orphans."""
    bench.put("a", DUE)
    bench.put("orphan", score(NOW - LEASE), stored=None)
    bench.now = NOW - LEASE
    with bench.full():
        assert (await bench.claim(N1)).parked == 1
        assert await bench.store.cancel(bench.topic, ["a"]) == [Change.CANCELLED]
    bench.now = NOW + HOUR
    with bench.full():
        assert (await bench.claim(N2)).orphans == ("orphan",)
    assert bench.state() == EMPTY


# ------------------------------------------------------------------- a clock that steps back


@pytest.mark.parametrize("verb", [Verb.NACK, Verb.RELEASE])
async def test_a_return_is_never_early(bench: Bench, verb: Verb) -> None:
    """After a step back of an hour NACK and release wait for the due time, just after it."""
    bench.put("a", DUE)
    await bench.claim(N1)
    bench.now = NOW - HOUR
    assert await bench.settle("a", N1, verb, retry_after=SECOND if verb is Verb.NACK else None) is Verdict.OK
    at = own(NOW - SECOND)
    attempts = int(verb is Verb.NACK)
    assert bench.state() == alone("a", at, record(PENDING, at, due=DUE, attempts=attempts))
    bench.now = NOW - SECOND - 1
    assert await bench.claimed(N2) == []


async def test_a_back_off_beyond_the_due_time(bench: Bench) -> None:
    """Where now and the delay end after the due time, the delay counts."""
    bench.put("a", DUE)
    await bench.claim(N1)
    bench.now = NOW - HOUR
    await bench.settle("a", N1, Verb.NACK, retry_after=2 * HOUR)
    assert bench.state().timeline == {"a": own(NOW + HOUR)}


async def test_a_parked_timer_is_never_early(bench: Bench) -> None:
    """A timer that is parked, gets its payload and meets a step back still waits for its due time."""
    bench.put("a", score(NOW), stored=None)
    await bench.claim(N1)
    bench.put_payload("a")
    bench.now = NOW - HOUR
    assert await bench.claimed(N2) == []


async def test_a_lease_outlives_a_step_back(bench: Bench) -> None:
    """It takes longer to lapse, and its token holds on."""
    bench.put("a", DUE)
    await bench.claim(N1)
    bench.now = NOW - HOUR
    assert await bench.claimed(N2) == []
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK


# --------------------------------------------------------------------------- wrong types


@pytest.mark.parametrize("broken", [0, 1, 2], ids=["timeline", "payloads", "leases"])
@pytest.mark.parametrize("verb", CALLS)
async def test_a_wrong_type(bench: Bench, verb: str, broken: int) -> None:
    """Each verb names the key and its type, and writes nothing under any key."""
    bench.put("a", DUE, HELD)
    keys = (bench.timeline, bench.payloads, bench.leases)
    bench.raw.delete(keys[broken])
    bench.raw.set(keys[broken], "somebody else's")
    before = [bench.raw.dump(key) for key in keys]
    with pytest.raises(StoreError) as refusal:
        await CALLS[verb](bench)
    assert refusal.type is WrongKeyType
    assert f"{keys[broken]} holds a string, not a {'hash' if broken else 'zset'}" in str(refusal.value)
    assert [bench.raw.dump(key) for key in keys] == before


# -------------------------------------------------------------------------------- hints


async def test_schedule_hints_at_an_earlier_head(bench: Bench) -> None:
    """The first timer, and each that comes before all others; none for the rest."""
    with bench.listening() as ear:
        for due in (NOW + 20, NOW + 30, NOW + 20, NOW + 10):
            await bench.store.schedule(bench.topic, [NewTimer(f"t{due}", b"", due=due)])
        assert ear.heard() == [score(NOW + 20), score(NOW + 10)]
        await bench.store.schedule(bench.topic, [NewTimer(f"n{n}", b"", due=NOW + n) for n in range(5)])
        assert ear.heard() == [score(NOW)]


async def test_schedule_later_gives_no_hint(bench: Bench) -> None:
    """Moving the first timer to a later time wakes nobody."""
    bench.put("a", score(NOW))
    with bench.listening() as ear:
        await bench.store.schedule(bench.topic, [NewTimer("a", b"", due=NOW + SECOND)])
        assert ear.heard() == []


async def test_scores_are_compared_as_numbers(bench: Bench) -> None:
    """As strings 10 would come before 9."""
    bench.put("a", 9.0)
    with bench.listening() as ear:
        bench.put("b", 10.0)
        await bench.store.schedule(bench.topic, [NewTimer("a", b"", due=11 * SECOND)])
        assert ear.heard() == []
        await bench.store.schedule(bench.topic, [NewTimer("c", b"", due=8 * SECOND)])
        assert ear.heard() == [8.0]


async def test_settle_hints_when_a_timer_comes_back_first(bench: Bench) -> None:
    """A release brings the head forward; an ACK and a NACK behind others do not."""
    for timer_id in ("ack", "nack", "release"):
        bench.put(timer_id, DEADLINE, HELD)
    with bench.listening() as ear:
        await bench.settle("ack", N1, Verb.ACK)
        await bench.settle("nack", N1, Verb.NACK, retry_after=2 * LEASE)
        assert ear.heard() == []
        await bench.settle("release", N1, Verb.RELEASE)
        assert ear.heard() == [own(NOW)]


async def test_no_hint_from_claims_renewals_and_cancels(bench: Bench) -> None:
    """None of them makes the head earlier."""
    bench.put("a", DUE)
    bench.put("b", DUE)
    with bench.listening() as ear:
        await bench.claim(N1)
        await bench.extend("a", N1)
        await bench.store.cancel(bench.topic, ["a"])
        await bench.store.settle(bench.topic, [Settlement("b", N2, Verb.RELEASE)])
        assert ear.heard() == []
