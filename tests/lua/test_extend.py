"""timeline/extend.lua: renewals and receipts."""

from __future__ import annotations

import pytest

from relay.core.errors import StoreRefused
from relay.core.instants import SECOND
from relay.core.outcomes import Extension, Verb, Verdict
from relay.store.codec.lease_record import LEASED, PENDING
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, State, alone, own, record, score

DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1)


async def test_a_renewal(bench: Bench) -> None:
    """The lease ends later, under the same nonce; nothing else changes."""
    bench.put("a", DEADLINE, HELD)
    bench.now = NOW + 10 * SECOND
    assert await bench.extend("a", N1) is Verdict.OK
    later = own(NOW + 10 * SECOND + LEASE)
    assert bench.state() == alone("a", later, HELD._replace(score=later))


async def test_a_receipt(bench: Bench) -> None:
    """It is recorded, and a renewal without one does not take it back."""
    bench.put("a", DEADLINE, HELD)
    assert await bench.extend("a", N1, received=True) is Verdict.OK
    assert bench.state() == alone("a", DEADLINE, HELD._replace(received=1))
    assert await bench.extend("a", N1) is Verdict.OK
    assert bench.state() == alone("a", DEADLINE, HELD._replace(received=1))


async def test_one_operation_per_timer(bench: Bench) -> None:
    """A timer that comes twice is refused: the later entry would take the receipt of the earlier back."""
    bench.put("a", DEADLINE, HELD)
    before = bench.state()
    twice = [Extension("a", N1, received=True), Extension("a", N1)]
    with pytest.raises(StoreRefused, match="DUPLICATE a"):
        await bench.store.extend(bench.topic, twice, lease=LEASE)
    assert bench.state() == before


async def test_after_a_step_back(bench: Bench) -> None:
    """The lease ends a lease from now, by the clock of now; who sleeps until it ends is told."""
    bench.put("a", DEADLINE, HELD)
    bench.now = NOW - SECOND
    sooner = own(NOW - SECOND + LEASE)
    with bench.listening() as ear:
        assert await bench.extend("a", N1) is Verdict.OK
        assert bench.state() == alone("a", sooner, HELD._replace(score=sooner))
        assert ear.heard() == [sooner]


async def test_after_a_step_back_behind_the_due_time(bench: Bench) -> None:
    """No lease ends before the due time. Each renewal changes the score, which says that the relay lives."""
    bench.put("a", DEADLINE, HELD)
    bench.now = NOW - 3600 * SECOND
    for renewals in (1, 2):
        assert await bench.extend("a", N1) is Verdict.OK
        changed = own(NOW + LEASE + renewals)
        assert bench.state() == alone("a", changed, HELD._replace(score=changed))
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK


async def test_the_token_lives_on(bench: Bench) -> None:
    """An ACK after a renewal holds; a renewal after the ACK finds the timer gone."""
    bench.put("a", DUE)
    await bench.claim(N1)
    bench.now += SECOND
    assert await bench.extend("a", N1) is Verdict.OK
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK
    assert await bench.extend("a", N1) is Verdict.GONE
    assert bench.state() == EMPTY


async def test_a_renewed_lease_is_kept_from_others(bench: Bench) -> None:
    """Past the first deadline nobody else can claim it."""
    bench.put("a", DUE)
    await bench.claim(N1)
    bench.now = NOW + LEASE
    await bench.extend("a", N1)
    bench.now = NOW + LEASE + SECOND
    assert await bench.claimed(N2) == []


async def test_a_lapsed_lease_that_nobody_took_over(bench: Bench) -> None:
    """It can still be renewed."""
    bench.put("a", DEADLINE, HELD)
    bench.now = NOW + LEASE + SECOND
    assert await bench.extend("a", N1) is Verdict.OK
    later = own(bench.now + LEASE)
    assert bench.state() == alone("a", later, HELD._replace(score=later))


async def test_one_call_for_many(bench: Bench) -> None:
    """Each gets its own verdict; the reply begins with the deadline; strays are removed."""
    bench.put("ok", DEADLINE, HELD)
    bench.put("stale", DEADLINE, HELD)
    bench.put("pending", DUE)
    bench.put_record("gone", bytes(69))
    bench.now = NOW + SECOND
    ids = {"gone": N1, "pending": N1, "stale": N2, "ok": N1}
    extensions = [Extension(timer_id, nonce) for timer_id, nonce in ids.items()]
    verdicts = await bench.store.extend(bench.topic, extensions, lease=LEASE)
    assert verdicts == [Verdict.GONE, Verdict.STALE, Verdict.STALE, Verdict.OK]
    later = own(NOW + SECOND + LEASE)
    assert bench.state() == State(
        {"pending": DUE, "ok": later, "stale": DEADLINE},
        dict.fromkeys(("pending", "ok", "stale"), ENVELOPE),
        {"stale": HELD, "ok": HELD._replace(score=later)},
    )
    reply = await bench.run("timeline/extend", "", LEASE, "ok", N1, "")
    assert (float(reply[0]), reply[1:]) == (later, [b"OK"])


async def test_a_back_off_is_no_lease(bench: Bench) -> None:
    """After a NACK or release the token renews nothing."""
    for verb in (Verb.NACK, Verb.RELEASE):
        bench.put("a", DEADLINE, HELD)
        await bench.settle("a", N1, verb)
        before = bench.state()
        assert before.leases["a"].state == PENDING
        assert await bench.extend("a", N1, received=True) is Verdict.STALE
        assert bench.state() == before
