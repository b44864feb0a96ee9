"""timeline/settle.lua's RESCHEDULE and timeline/run.lua: a new due time for a timer that lives on."""

from __future__ import annotations

import pytest

from relay.core.errors import StoreRefused
from relay.core.instants import LATEST, SECOND
from relay.core.outcomes import Limits, Settled, Verb, Verdict
from relay.core.timers import Change, Changed, NewTimer
from relay.store.codec import envelope
from relay.store.codec.lease_record import LEASED, NO_NONCE, PARKED, PENDING
from tests.settlements import end_of
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import GRACE, Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, State, alone, own, record, score

DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1, attempts=3, received=1, suspect=1, expires=score(NOW + 5))
BACKED_OFF = record(PENDING, DEADLINE, due=DUE, attempts=3, suspect=1, expires=score(NOW + 5))


async def again(bench: Bench, timer: NewTimer, *, new_content: bool = False, nonce: bytes = N1) -> Settled:
    return await bench.settle(timer.timer_id, nonce, Verb.RESCHEDULE, again=timer, new_content=new_content)


# ---------------------------------------------------------------------------- RESCHEDULE


@pytest.mark.parametrize(
    ("due", "delay", "expected"),
    [
        (NOW + LEASE, None, NOW + LEASE),
        (NOW - LEASE, None, NOW - LEASE),
        (0, None, 0),
        (LATEST, None, LATEST),
        (None, 0, NOW),
        (None, 1_500_001, NOW + 1_500_001),
        (None, LATEST, LATEST),
    ],
)
async def test_a_new_due_time(bench: Bench, due: int | None, delay: int | None, expected: int) -> None:
    """The timer starts anew, like one that a publisher wrote, with the payload that it had."""
    bench.put("a", DEADLINE, HELD)
    assert await again(bench, NewTimer("a", b"ignored", due, delay)) is Verdict.OK
    assert bench.state() == alone("a", score(expected))


async def test_a_new_payload(bench: Bench) -> None:
    """It is replaced in the same step, whatever it holds."""
    for payload in (b"", b";", b"at;1;", b"\0;\0", b"x;" * (1 << 19)):
        bench.put("a", DEADLINE, HELD)
        timer = NewTimer("a", payload, NOW, None, {"k;": "v;"}, "a;b")
        assert await again(bench, timer, new_content=True) is Verdict.OK
        stored = envelope.encode(payload, {"k;": "v;"}, "a;b")
        assert bench.state() == alone("a", score(NOW), stored=stored)


async def test_a_new_occurrence(bench: Bench) -> None:
    """Attempts and claims begin anew, the occurrence is another, and the old token is worth nothing."""
    bench.put("a", DUE)
    await bench.claim(N1)
    assert await again(bench, NewTimer("a", b"", delay=0)) is Verdict.OK
    before = bench.state()
    for verb in Verb:
        assert await bench.settle("a", N1, verb, again=NewTimer("a", b"", NOW)) is Verdict.STALE
    assert bench.state() == before
    (timer,) = (await bench.claim(N2, limits=Limits(max_attempts=1, max_claims=1, max_age=1))).timers
    assert (timer.attempt, timer.due, timer.suspect) == (1, NOW, False)
    assert timer.occurrence_id == f"a/{N2.hex()}"


async def test_a_period_at_our_own_deadline(bench: Bench) -> None:
    """The next period may begin at the very microsecond at which the lease would have ended."""
    bench.put("a", DEADLINE, HELD)
    assert await again(bench, NewTimer("a", b"", NOW + LEASE)) is Verdict.OK
    bench.now = NOW + LEASE
    (timer,) = (await bench.claim(N2)).timers
    assert (timer.due, timer.attempt) == (NOW + LEASE, 1)


async def test_a_foreign_publisher_was_first(bench: Bench) -> None:
    """Its due time and payload are the newer intent: the reschedule is stale and changes nothing."""
    for at in (score(NOW + LEASE), score(NOW + 7), score(NOW - LEASE)):
        bench.put("a", DEADLINE, HELD)
        bench.put("a", at, stored=b"theirs")
        before = bench.state()
        assert await again(bench, NewTimer("a", b"ours", NOW), new_content=True) is Verdict.STALE
        assert bench.state() == before


async def test_a_foreign_worker_was_first(bench: Bench) -> None:
    """It has taken the timer over after our lease, and will end it."""
    bench.put("a", score(NOW + 5 * SECOND) + 2**-22, HELD)
    before = bench.state()
    assert await again(bench, NewTimer("a", b"ours", NOW), new_content=True) is Verdict.STALE
    assert bench.state() == before


async def test_a_foreign_commit_was_first(bench: Bench) -> None:
    """The timer is gone, and does not come back by a reschedule."""
    bench.put_record("a", bytes(69))
    assert await again(bench, NewTimer("a", b"x", NOW), new_content=True) is Verdict.GONE
    assert bench.state() == EMPTY


async def test_among_others(bench: Bench) -> None:
    """One call ends some leases and gives new times to others."""
    for timer_id in ("keep", "change", "end"):
        bench.put(timer_id, DEADLINE, HELD)
    settlements = [
        end_of("keep", N1, Verb.RESCHEDULE, again=NewTimer("keep", b"x", NOW + 1)),
        end_of("change", N1, Verb.RESCHEDULE, again=NewTimer("change", b"x", delay=2), new_content=True),
        end_of("end", N1, Verb.ACK),
    ]
    assert await bench.store.settle(bench.topic, settlements) == [Verdict.OK] * 3
    new = envelope.encode(b"x", {}, "")
    assert bench.state() == State(
        {"keep": score(NOW + 1), "change": score(NOW + 2)}, {"keep": ENVELOPE, "change": new}, {}
    )


async def test_a_reschedule_hints(bench: Bench) -> None:
    """An earlier first timer wakes those who sleep; a later one does not."""
    bench.put("a", DEADLINE, HELD)
    bench.put("b", DEADLINE, HELD)
    with bench.listening() as ear:
        await again(bench, NewTimer("a", b"", NOW + 2 * LEASE))
        assert ear.heard() == []
        await again(bench, NewTimer("b", b"", NOW + SECOND))
        assert ear.heard() == [score(NOW + SECOND)]


@pytest.mark.parametrize("detail", ["", "at", "at;", "at;soon;x", "in;;x"])
async def test_what_is_no_reschedule(bench: Bench, detail: str) -> None:
    """It fails before anything is written, for others in the call too."""
    bench.put("a", DEADLINE, HELD)
    bench.put("b", DEADLINE, HELD)
    before = bench.state()
    with pytest.raises(StoreRefused):
        await bench.run(
            "timeline/settle", "channel", 9, 9, 0, "", "", "b", N1, "ack", "", "a", N1, "reschedule", detail
        )
    assert bench.state() == before


# ----------------------------------------------------------------------------------- run


async def test_run_a_waiting_timer(bench: Bench) -> None:
    """Due now, with a due time that is now; nothing has happened to it yet."""
    bench.put("a", score(NOW + LEASE))
    assert await bench.store.run(bench.topic, ["a"]) == [Changed(Change.RUN)]
    kept = record(PENDING, own(NOW), due=score(NOW), claims=0, occurrence=NO_NONCE)
    assert bench.state() == alone("a", own(NOW), kept)
    bench.now += 1
    (timer,) = (await bench.claim(N1)).timers
    assert (timer.due, timer.attempt) == (NOW, 1)


async def test_run_a_timer_in_back_off(bench: Bench) -> None:
    """What has been tried keeps its due time, attempts, occurrence, suspicion and expiry."""
    bench.put("a", DEADLINE, BACKED_OFF)
    assert await bench.store.run(bench.topic, ["a"]) == [Changed(Change.RUN)]
    assert bench.state() == alone("a", own(NOW), BACKED_OFF._replace(score=own(NOW)))


async def test_run_a_leased_timer(bench: Bench) -> None:
    """Nothing changes, also where the lease is over and nobody has taken over."""
    bench.put("a", DEADLINE, HELD)
    before = bench.state()
    for instant in (NOW, NOW + LEASE + 1):
        bench.now = instant
        assert await bench.store.run(bench.topic, ["a"]) == [
            Changed(Change.IN_FLIGHT, delivery_under_way=True)
        ]
        assert bench.state() == before
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.OK


async def test_run_many(bench: Bench) -> None:
    """Each gets its own answer; an id that comes twice runs once."""
    bench.put("held", DEADLINE, HELD)
    bench.put("a", score(NOW + LEASE))
    ids = ["nobody", "held", "a", "a"]
    assert await bench.store.run(bench.topic, ids) == [
        Changed(Change.GONE),
        Changed(Change.IN_FLIGHT, delivery_under_way=True),
        Changed(Change.RUN),
        Changed(Change.RUN),
    ]
    bench.now += 1
    assert await bench.claimed(N2) == ["a"]


async def test_run_a_due_timer(bench: Bench) -> None:
    """Its due time stays: it is late, and stays late."""
    bench.put("a", DUE)
    assert await bench.store.run(bench.topic, ["a"]) == [Changed(Change.RUN)]
    assert bench.state().leases["a"].due == DUE


async def test_run_a_timer_without_payload(bench: Bench) -> None:
    """Its payload may still come: it gets a grace period of its own, instead of what was left of the last."""
    bench.put("a", DUE, stored=None)
    assert (await bench.claim(N1)).parked == 1
    assert bench.state().leases["a"].state == PARKED
    assert await bench.store.run(bench.topic, ["a"]) == [Changed(Change.RUN)]
    bench.now += 1
    claim = await bench.claim(N2)
    assert (claim.parked, claim.orphans, claim.next) == (1, (), NOW + 1 + GRACE)
    bench.put_payload("a")
    assert await bench.store.run(bench.topic, ["a"]) == [Changed(Change.RUN)]
    bench.now += 1
    assert await bench.claimed(N2) == ["a"]


async def test_run_and_foreign_writers(bench: Bench) -> None:
    """A worker's lease is taken away; a publisher's new time, even this microsecond, is a new intent."""
    foreign = score(NOW + 5 * SECOND) + 2**-22
    bench.put("a", foreign, BACKED_OFF)
    assert await bench.store.run(bench.topic, ["a"]) == [Changed(Change.RUN)]
    assert bench.state() == alone("a", own(NOW), BACKED_OFF._replace(score=own(NOW), approximate=0))
    bench.put("a", score(NOW))
    stored = await bench.store.get(bench.topic, "a")
    assert stored is not None
    assert (stored.due, stored.attempts) == (NOW, 0)


async def test_run_after_a_step_back(bench: Bench) -> None:
    """Now is what the server's clock says, never before what it was due at."""
    bench.put("a", DEADLINE, BACKED_OFF)
    bench.now = NOW - 3600 * SECOND
    assert await bench.store.run(bench.topic, ["a"]) == [Changed(Change.RUN)]
    assert bench.state().timeline == {"a": own(bench.now)}
    assert bench.state().leases["a"].due == score(bench.now)


async def test_run_hints(bench: Bench) -> None:
    """It wakes whoever sleeps until later."""
    bench.put("a", score(NOW + LEASE))
    bench.put("held", DEADLINE, HELD)
    with bench.listening() as ear:
        await bench.store.run(bench.topic, ["held", "nobody"])
        assert ear.heard() == []
        await bench.store.run(bench.topic, ["a"])
        assert ear.heard() == [own(NOW)]


async def test_run_five_hundred(bench: Bench) -> None:
    """The most that a call may take."""
    for n in range(500):
        bench.put(f"t{n}", score(NOW + LEASE))
    ids = [f"t{n}" for n in range(500)]
    assert await bench.store.run(bench.topic, ids) == [Changed(Change.RUN)] * 500
    assert set(bench.state().timeline.values()) == {own(NOW)}
