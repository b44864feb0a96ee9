"""timeline/settle.lua: how a lease ends."""

from __future__ import annotations

import pytest

from relay.core.errors import StoreRefused
from relay.core.instants import SECOND
from relay.core.outcomes import Reason, Settled, Verb, Verdict
from relay.core.timers import NewTimer
from relay.store.codec.lease_record import LEASED, PENDING
from tests.settlements import end_of
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, State, alone, own, record, score

DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1)
HEAD = ("channel", 9, 9, 0, "", "")  # the arguments before the first timer's


@pytest.mark.parametrize(
    ("verb", "answer"), [(Verb.ACK, Verdict.OK), (Verb.REJECT, Reason.REJECTED)], ids=["ack", "reject"]
)
async def test_the_end(bench: Bench, verb: Verb, answer: Settled) -> None:
    """ACK and REJECT remove the timer from all keys, and no other."""
    bench.put("a", DEADLINE, HELD)
    bench.put("b", DUE)
    assert await bench.settle("a", N1, verb) is answer
    assert bench.state() == alone("b", DUE)


async def test_nack_with_a_delay(bench: Bench) -> None:
    """Due again after the delay, with one attempt more; flags are cleared and the nonce with them."""
    bench.put("a", DEADLINE, HELD._replace(received=1, suspect=1, attempts=1))
    assert await bench.settle("a", N1, Verb.NACK, retry_after=7 * SECOND) is Verdict.OK
    at = own(NOW + 7 * SECOND)
    assert bench.state() == alone("a", at, record(PENDING, at, due=DUE, attempts=2))


async def test_nack_without_a_delay(bench: Bench) -> None:
    """Due again when the lease would have ended."""
    bench.put("a", DEADLINE, HELD)
    assert await bench.settle("a", N1, Verb.NACK) is Verdict.OK
    assert bench.state() == alone("a", DEADLINE, record(PENDING, DEADLINE, due=DUE, attempts=1))


async def test_release_before_a_receipt(bench: Bench) -> None:
    """Due now, and no attempt counts."""
    bench.put("a", DEADLINE, HELD)
    assert await bench.settle("a", N1, Verb.RELEASE) is Verdict.OK
    assert bench.state() == alone("a", own(NOW), record(PENDING, own(NOW), due=DUE))


async def test_release_after_a_receipt(bench: Bench) -> None:
    """The record's flag makes the attempt count, and is cleared."""
    bench.put("a", DEADLINE, HELD._replace(received=1))
    assert await bench.settle("a", N1, Verb.RELEASE) is Verdict.OK
    assert bench.state() == alone("a", own(NOW), record(PENDING, own(NOW), due=DUE, attempts=1))


async def test_release_that_knows_of_the_receipt(bench: Bench) -> None:
    """So does the relay's word; both together count once; a suspect is marked."""
    for flag in (0, 1):
        bench.put("a", DEADLINE, HELD._replace(received=flag))
        assert await bench.settle("a", N1, Verb.RELEASE, received=True, suspect=True) is Verdict.OK
        kept = record(PENDING, own(NOW), due=DUE, attempts=1, suspect=1)
        assert bench.state() == alone("a", own(NOW), kept)


async def test_release_clears_the_suspicion(bench: Bench) -> None:
    """What was delivered alone and released in order is no suspect any more."""
    bench.put("a", DEADLINE, HELD._replace(suspect=1))
    await bench.settle("a", N1, Verb.RELEASE)
    assert bench.state().leases["a"].suspect == 0


async def test_a_lease_that_nobody_took_over(bench: Bench) -> None:
    """A late outcome still holds after the deadline."""
    bench.put("a", DEADLINE, HELD)
    bench.now = NOW + LEASE + SECOND
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK
    assert bench.state() == EMPTY


async def test_every_digit_of_a_back_off(bench: Bench) -> None:
    """The score is written with all the digits of a double."""
    bench.put("a", DEADLINE, HELD)
    bench.now = NOW + 123_456
    await bench.settle("a", N1, Verb.NACK, retry_after=1_000_001)
    at = own(NOW + 1_123_457)
    assert bench.state() == alone("a", at, record(PENDING, at, due=DUE, attempts=1))


async def test_one_call_for_many(bench: Bench) -> None:
    """Each timer gets its own verdict, in the order asked; the reply begins with the next score."""
    for timer_id in ("ack", "nack", "release", "stale"):
        bench.put(timer_id, DEADLINE, HELD)
    settlements = [
        end_of("gone", N1, Verb.ACK),
        end_of("stale", N2, Verb.ACK),
        end_of("release", N1, Verb.RELEASE),
        end_of("nack", N1, Verb.NACK, retry_after=SECOND),
        end_of("ack", N1, Verb.ACK),
    ]
    verdicts = await bench.store.settle(bench.topic, settlements)
    assert verdicts == [Verdict.GONE, Verdict.STALE, Verdict.OK, Verdict.OK, Verdict.OK]
    later = own(NOW + SECOND)
    assert bench.state() == State(
        {"release": own(NOW), "nack": later, "stale": DEADLINE},
        dict.fromkeys(("release", "nack", "stale"), ENVELOPE),
        {
            "release": record(PENDING, own(NOW), due=DUE),
            "nack": record(PENDING, later, due=DUE, attempts=1),
            "stale": HELD,
        },
    )
    reply = await bench.run("timeline/settle", *HEAD, N1, "ack", "", 2, "stale", "gone")
    assert (float(reply[0]), reply[1:]) == (own(NOW), [2, b"GONE"])


async def test_a_reschedule_beside_a_nack(bench: Bench) -> None:
    """One leaves no record and the other does: the record is written, whichever comes first."""
    for timer_id in ("a", "b"):
        bench.put(timer_id, DEADLINE, HELD)
    again = NewTimer("a", b"", NOW + SECOND)
    ends = [end_of("a", N1, Verb.RESCHEDULE, again=again), end_of("b", N1, Verb.NACK)]
    assert await bench.store.settle(bench.topic, ends) == [Verdict.OK, Verdict.OK]
    state = bench.state()
    assert state.leases == {"b": record(PENDING, DEADLINE, due=DUE, attempts=1)}
    assert state.timeline == {"a": score(NOW + SECOND), "b": DEADLINE}


async def test_five_hundred_in_one_call(bench: Bench) -> None:
    """The most that a call may settle is settled in one."""
    for n in range(500):
        bench.put(f"t{n}", DEADLINE, HELD)
    settlements = [end_of(f"t{n}", N1, Verb.ACK) for n in range(500)]
    assert await bench.store.settle(bench.topic, settlements) == [Verdict.OK] * 500
    assert bench.state() == EMPTY


async def test_gone_is_not_stale(bench: Bench) -> None:
    """A timer that is not there is gone; what is left of its record is removed."""
    bench.put_record("a", bytes(69))
    bench.put("b", DUE)
    for verb in Verb:
        assert await bench.settle("a", N1, verb) is Verdict.GONE
    assert bench.state() == alone("b", DUE)


async def test_one_operation_per_timer(bench: Bench) -> None:
    """An id that comes twice is refused, and nothing is written for any."""
    bench.put("a", DEADLINE, HELD)
    bench.put("b", DEADLINE, HELD)
    before = bench.state()
    twice = [end_of(timer_id, N1, Verb.ACK) for timer_id in ("b", "a", "a")]
    with pytest.raises(StoreRefused, match="DUPLICATE a"):
        await bench.store.settle(bench.topic, twice)
    assert bench.state() == before


async def test_an_unknown_verb(bench: Bench) -> None:
    """It is refused, and nothing is written for others in the call."""
    bench.put("a", DEADLINE, HELD)
    bench.put("b", DEADLINE, HELD)
    before = bench.state()
    with pytest.raises(StoreRefused, match="BADVERB keep"):
        await bench.run("timeline/settle", *HEAD, N1, "ack", "", 1, "a", N1, "keep", "", 1, "b")
    assert bench.state() == before


async def test_a_delay_that_is_no_number(bench: Bench) -> None:
    """It fails before anything is written."""
    bench.put("a", DEADLINE, HELD)
    bench.put("b", DEADLINE, HELD)
    before = bench.state()
    with pytest.raises(StoreRefused):
        await bench.run("timeline/settle", *HEAD, N1, "ack", "", 1, "a", N1, "nack", "soon;", 1, "b")
    assert bench.state() == before
