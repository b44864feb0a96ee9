"""timeline/claim.lua and timeline/settle.lua: how a timer dies, and what is kept of it."""

from __future__ import annotations

import pytest

from relay.core.errors import StoreError
from relay.core.instants import SECOND
from relay.core.outcomes import ClaimRequest, Limits, Reason, Verb, Verdict
from relay.store.codec import envelope
from relay.store.codec.lease_record import LEASED, NO_NONCE, PARKED, PENDING
from relay.store.timeline.redis_store import RedisStore
from tests.settlements import end_of
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, Letter, State, alone, own, record, score

DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
LAPSED = own(NOW - 1)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1)
KEEP = Limits(keep=True)
FORBIDDEN = "(?i)xadd|permission|can't run this command"


def buried(letter: Letter) -> State:
    """Nothing but this dead letter."""
    return EMPTY._replace(dead=(letter,))


# ------------------------------------------------------------------------ by an outcome


@pytest.mark.parametrize("reason", [Reason.REJECTED, Reason.FAILED, Reason.UNREADABLE])
async def test_a_rejected_timer_is_kept(bench: Bench, reason: Reason) -> None:
    """All of it moves to the dead letters, with the reason, the error and the attempt that it was."""
    bench.put("a", DEADLINE, HELD._replace(attempts=2, claims=7, occurrence=N2))
    assert await bench.settle("a", N1, Verb.REJECT, limits=KEEP, reason=reason, error="no") is reason
    assert bench.state() == buried(Letter("a", reason.value, 3, 7, DUE, NOW, N2, b"no"))


async def test_a_topic_that_keeps_none(bench: Bench) -> None:
    """The answer is the same, and nothing is left."""
    for verb, reason, limits in (
        (Verb.REJECT, Reason.REJECTED, Limits()),
        (Verb.NACK, Reason.ATTEMPTS, Limits(max_attempts=1)),
        (Verb.NACK, Reason.ATTEMPTS, Limits(max_attempts=1, keep_expired=True)),
    ):
        bench.put("a", DEADLINE, HELD)
        assert await bench.settle("a", N1, verb, limits=limits) is reason
        assert bench.state() == EMPTY


async def test_the_last_attempt(bench: Bench) -> None:
    """The NACK that uses up the attempts is a death; the one before it is a back-off."""
    bench.put("a", DEADLINE, HELD._replace(attempts=1))
    limits = Limits(max_attempts=3, keep=True)
    assert await bench.settle("a", N1, Verb.NACK, retry_after=0, limits=limits) is Verdict.OK
    assert bench.state() == alone("a", own(NOW), record(PENDING, own(NOW), due=DUE, attempts=2))
    bench.now = NOW + 1
    await bench.claim(N2, limits=limits)
    answer = await bench.settle("a", N2, Verb.NACK, limits=limits, retry_after=0, error="again")
    assert answer is Reason.ATTEMPTS
    assert bench.state() == buried(Letter("a", "attempts", 3, 2, DUE, NOW + 1, N1, b"again"))


async def test_a_release_of_what_was_received(bench: Bench) -> None:
    """It counts, so it can be the last attempt; one that was not received counts nothing."""
    limits = Limits(max_attempts=1, max_claims=1, keep=True)
    bench.put("a", DEADLINE, HELD)
    assert await bench.settle("a", N1, Verb.RELEASE, limits=limits) is Verdict.OK
    bench.put("a", DEADLINE, HELD._replace(received=1))
    assert await bench.settle("a", N1, Verb.RELEASE, limits=limits) is Reason.ATTEMPTS
    text = b"the delivery ended without an outcome"
    assert bench.state() == buried(Letter("a", "attempts", 1, 1, DUE, NOW, N1, text))


async def test_a_release_after_a_while(bench: Bench) -> None:
    """What was received, or could not be sent, waits as it is told; all else is due now. What was unsent uses
    no claim."""
    bench.put("a", DEADLINE, HELD._replace(claims=3))
    assert await bench.settle("a", N1, Verb.RELEASE, retry_after=SECOND, received=True) is Verdict.OK
    later = own(NOW + SECOND)
    assert bench.state() == alone("a", later, record(PENDING, later, due=DUE, attempts=1, claims=3))
    bench.put("a", DEADLINE, HELD._replace(claims=3))
    assert await bench.settle("a", N1, Verb.RELEASE, retry_after=SECOND, unsent=True) is Verdict.OK
    assert bench.state() == alone("a", later, record(PENDING, later, due=DUE, claims=2))
    bench.put("a", DEADLINE, HELD._replace(claims=3))
    assert await bench.settle("a", N1, Verb.RELEASE, retry_after=SECOND) is Verdict.OK
    assert bench.state() == alone("a", own(NOW), record(PENDING, own(NOW), due=DUE, claims=3))
    bench.put("a", DEADLINE, HELD._replace(claims=0))
    assert await bench.settle("a", N1, Verb.RELEASE, unsent=True) is Verdict.OK
    assert bench.state().leases["a"].claims == 0


async def test_the_oldest_further_attempt(bench: Bench) -> None:
    """A back-off may end `max_age` after the due time, and not a microsecond later."""
    for after, answer in ((4 * SECOND, Verdict.OK), (4 * SECOND + 1, Reason.AGE)):
        bench.put("a", DEADLINE, HELD)
        limits = Limits(max_age=5 * SECOND)
        assert await bench.settle("a", N1, Verb.NACK, retry_after=after, limits=limits) is answer


@pytest.mark.parametrize("year", [1.1e9, 2.2e9], ids=["2004", "2039"])
async def test_ages_in_other_years(bench: Bench, year: float) -> None:
    """To the microsecond wherever a double's digits fall."""
    for micro in range(40):
        due = int(year) * SECOND + micro
        bench.now = due + 10 * SECOND
        for after, answer in ((2 * SECOND, Verdict.OK), (2 * SECOND + 1, Reason.AGE)):
            deadline = own(bench.now + LEASE)
            bench.put("a", deadline, record(LEASED, deadline, due=score(due), nonce=N1))
            limits = Limits(max_age=12 * SECOND)
            assert await bench.settle("a", N1, Verb.NACK, retry_after=after, limits=limits) is answer


async def test_a_stale_reject_buries_nothing(bench: Bench) -> None:
    """Nor does one for a timer that is gone."""
    bench.put("a", score(NOW + 5 * SECOND), HELD)
    before = bench.state()
    assert await bench.settle("a", N1, Verb.REJECT, limits=KEEP) is Verdict.STALE
    assert await bench.settle("b", N1, Verb.REJECT, limits=KEEP) is Verdict.GONE
    assert bench.state() == before


ERRORS = ["", "a;b;;c", ";", "nul\0nul", "naïve 🔑", "\udcff\udcfe", "x" * 70_000]


@pytest.mark.parametrize("verb", [Verb.REJECT, Verb.NACK])
@pytest.mark.parametrize("error", ERRORS, ids=["empty", "semicolons", ";", "nul", "unicode", "bytes", "long"])
async def test_any_error_text(bench: Bench, verb: Verb, error: str) -> None:
    """It is kept as it came, to the byte; also where it is no UTF-8."""
    bench.put("a", DEADLINE, HELD)
    limits = Limits(max_attempts=1, keep=True)
    await bench.settle("a", N1, verb, retry_after=0, limits=limits, error=error)
    (letter,) = bench.state().dead
    assert letter.error == error.encode(errors="surrogateescape")
    (shown,) = (await bench.topics.dead_page(bench.topic, limit=5, cursor="")).letters
    assert shown.error == error.encode(errors="surrogateescape").decode(errors="replace")


IDS = [b"a b", b"\xff\xfe", b"", b"a;b", b"a\x00b", "é 🔑".encode()]


@pytest.mark.parametrize("raw", IDS, ids=repr)
async def test_any_id(bench: Bench, raw: bytes) -> None:
    """It dies and comes back under the very bytes that it had."""
    bench.put(raw, DUE)
    (timer,) = (await bench.claim(N1)).timers
    await bench.settle(timer.timer_id, N1, Verb.REJECT, limits=KEEP)
    (name,) = bench.dead_ids()
    await bench.topics.redrive(bench.topic, [name])
    assert bench.raw.zrange(bench.timeline, 0, -1) == [raw]
    assert bench.raw.hkeys(bench.payloads) == [raw]


ENVELOPES = [b"", b";", b"at;1;x", b"\0" * 7, bytes(range(256)), b"\x00;\xff" * (1 << 18)]


@pytest.mark.parametrize("stored", ENVELOPES, ids=["empty", ";", "words", "nul", "bytes", "768 KiB"])
async def test_any_content(bench: Bench, stored: bytes) -> None:
    """It dies and comes back byte by byte."""
    bench.put("a", DUE, stored=stored)
    await bench.claim(N1)
    await bench.settle("a", N1, Verb.REJECT, limits=KEEP)
    (name,) = bench.dead_ids()
    letter = await bench.topics.dead_letter(bench.topic, name)
    assert letter is not None
    assert letter.payload == envelope.decode(stored).payload
    await bench.topics.redrive(bench.topic, [name])
    assert bench.state().payloads == {"a": stored}


async def test_two_deaths_of_one_timer(bench: Bench) -> None:
    """Each is kept by itself, in the order in which they came."""
    for n in (1, 2):
        bench.put("a", DEADLINE, HELD, stored=envelope.encode(b"%d" % n, {}, ""))
        await bench.settle("a", N1, Verb.REJECT, limits=KEEP, error=str(n))
    assert [letter.error for letter in bench.state().dead] == [b"1", b"2"]
    assert len(set(bench.dead_ids())) == 2


async def test_many_deaths_in_one_call(bench: Bench) -> None:
    """They are told apart, and others in the call get what is theirs."""
    for n in range(500):
        bench.put(f"t{n:03}", DEADLINE, HELD)
    settlements = [
        end_of(f"t{n:03}", N1, Verb.REJECT if n % 2 else Verb.ACK, error=f"{n}") for n in range(500)
    ]
    answers = await bench.store.settle(bench.topic, settlements, limits=KEEP)
    assert answers == [Reason.REJECTED if n % 2 else Verdict.OK for n in range(500)]
    state = bench.state()
    assert state._replace(dead=()) == EMPTY
    assert [letter.error for letter in state.dead] == [b"%d" % n for n in range(1, 500, 2)]
    assert len(set(bench.dead_ids())) == 250


async def test_who_may_not_write_dead_letters(bench: Bench) -> None:
    """An account without XADD loses no timer by a death: the call is refused and nothing has changed."""
    bench.put("a", DEADLINE, HELD)
    bench.put("b", LAPSED, record(LEASED, LAPSED, due=DUE, nonce=N2, received=1))
    before = bench.state()
    bench.raw.execute_command("ACL", "SETUSER", "half", "on", ">secret", "~*", "+@all", "-xadd")
    port = bench.raw.connection_pool.connection_kwargs["port"]
    redis = bench.connect(f"redis://half:secret@127.0.0.1:{port}/0")
    store = RedisStore(redis)
    limits = Limits(max_attempts=1, keep=True)
    try:
        with pytest.raises(StoreError, match=FORBIDDEN):
            await store.settle(bench.topic, [end_of("a", N1, Verb.REJECT)], limits=limits)
        with pytest.raises(StoreError, match=FORBIDDEN):
            await store.claim(
                bench.topic, ClaimRequest(limit=5, lease=LEASE, nonce=N1, max_bytes=1 << 20, limits=limits)
            )
    finally:
        await redis.aclose()
        bench.raw.execute_command("ACL", "DELUSER", "half")
    assert bench.state() == before


# --------------------------------------------------------------------------- at a claim


async def test_a_lapse_that_was_the_last_attempt(bench: Bench) -> None:
    """Nobody settled, since the application was killed: the next claim counts, and ends it."""
    bench.put("a", LAPSED, record(LEASED, LAPSED, due=DUE, nonce=N1, received=1, attempts=1))
    claim = await bench.claim(N2, limits=Limits(max_attempts=2, keep=True))
    assert (list(claim.timers), claim.deaths, claim.next) == ([], (("a", "attempts"),), None)
    assert bench.state() == buried(Letter("a", "attempts", 2, 1, DUE, NOW, N1))


async def test_a_lapse_that_nobody_received(bench: Bench) -> None:
    """It counts no attempt, but its claim does, until those are used up."""
    held = record(LEASED, LAPSED, due=DUE, nonce=N1, claims=3)
    bench.put("a", LAPSED, held)
    assert await bench.claimed(N2, limits=Limits(max_attempts=1, max_claims=4, keep=True)) == ["a"]
    bench.put("a", LAPSED, held._replace(claims=4))
    claim = await bench.claim(N2, limits=Limits(max_attempts=1, max_claims=4, keep=True))
    assert claim.deaths == (("a", "claims"),)
    assert bench.state() == buried(Letter("a", "claims", 0, 4, DUE, NOW, N1))


async def test_too_old_for_a_further_attempt(bench: Bench) -> None:
    """Age ends what has failed before, and never a first delivery, however late it is."""
    limits = Limits(max_age=SECOND - 1, keep=True)
    bench.put("returned", LAPSED, record(PENDING, LAPSED, due=DUE))
    assert await bench.claimed(N1, limits=limits) == ["returned"]
    await bench.settle("returned", N1, Verb.ACK)
    bench.put("new", DUE)
    bench.put("old", LAPSED, record(PENDING, LAPSED, due=DUE, attempts=1))
    claim = await bench.claim(N1, limits=limits)
    assert ([timer.timer_id for timer in claim.timers], claim.deaths) == (["new"], (("old", "age"),))
    assert bench.state() == alone("new", DEADLINE, HELD)._replace(
        dead=(Letter("old", "age", 1, 1, DUE, NOW, N1),)
    )
    bench.put("old", LAPSED, record(PENDING, LAPSED, due=DUE, attempts=1))
    assert await bench.claimed(N1, limits=Limits(max_age=SECOND)) == ["old"]


async def test_deaths_beside_the_living(bench: Bench) -> None:
    """Within one claim each gets what is its own; what dies frees no place for others."""
    bench.put("dead", LAPSED, record(PENDING, LAPSED, due=DUE, attempts=9))
    bench.put("alive", score(NOW))
    bench.put("parked", score(NOW), stored=None)
    claim = await bench.claim(N1, limits=Limits(max_attempts=9))
    assert ([timer.timer_id for timer in claim.timers], claim.deaths) == (["alive"], (("dead", "attempts"),))
    assert claim.parked == 1
    state = bench.state()
    assert set(state.timeline) == set(state.leases) == {"alive", "parked"}


async def test_a_death_of_a_timer_without_payload(bench: Bench) -> None:
    """It is put aside like any other, since its payload may still come; as an orphan it is no death."""
    spent = record(PENDING, LAPSED, due=DUE, attempts=9, expires=DUE)
    bench.put("a", LAPSED, spent, stored=None)
    limits = Limits(max_attempts=9, keep=True, keep_expired=True)
    claim = await bench.claim(N1, limits=limits)
    assert (claim.deaths, claim.parked) == ((), 1)
    assert bench.state().leases["a"].state == PARKED
    bench.now += 3600 * SECOND
    claim = await bench.claim(N2, limits=limits)
    assert (claim.deaths, claim.orphans) == ((), ("a",))
    assert bench.state() == EMPTY


async def test_a_payload_that_is_lost_under_a_lease(bench: Bench) -> None:
    """What its application rejects then is kept without content."""
    bench.put("a", DEADLINE, HELD, stored=None)
    assert await bench.settle("a", N1, Verb.REJECT, limits=KEEP) is Reason.REJECTED
    assert bench.state() == buried(Letter("a", "rejected", 1, 1, DUE, NOW, N1, envelope=b""))


async def test_a_foreign_worker_spares_a_timer(bench: Bench) -> None:
    """What it holds does not die; when its lease has run out, the attempts that we knew of count."""
    bench.put("a", DEADLINE, HELD._replace(attempts=1, received=1))
    foreign = score(NOW + 5 * SECOND) + 2**-22
    bench.put("a", foreign)
    limits = Limits(max_attempts=2, keep=True)
    assert (await bench.claim(N2, limits=limits)).deaths == ()
    bench.now = NOW + 5 * SECOND + 1
    assert (await bench.claim(N2, limits=limits)).deaths == (("a", "attempts"),)
    assert bench.state() == buried(Letter("a", "attempts", 2, 1, DUE, bench.now, N1))


async def test_a_foreign_republish_of_a_spent_timer(bench: Bench) -> None:
    """It is a new intent with attempts of its own, and does not die of the old one's."""
    bench.put("a", DEADLINE, HELD._replace(attempts=8, received=1))
    bench.put("a", score(NOW))
    claim = await bench.claim(N2, limits=Limits(max_attempts=9, max_claims=1, keep=True))
    assert ([timer.attempt for timer in claim.timers], claim.deaths) == ([1], ())


async def test_limits_that_became_lower(bench: Bench) -> None:
    """A timer that waits with more attempts than the topic allows by now dies instead of being delivered."""
    bench.put("a", LAPSED, record(PENDING, LAPSED, due=DUE, attempts=5, claims=5, occurrence=NO_NONCE))
    claim = await bench.claim(N1, limits=Limits(max_attempts=5, keep=True))
    assert claim.deaths == (("a", "attempts"),)
    assert bench.state() == buried(Letter("a", "attempts", 5, 5, DUE, NOW, NO_NONCE))
