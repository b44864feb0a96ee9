"""claim, settle and extend, as `TimerStore` states them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.core.instants import SECOND
from relay.core.outcomes import Extension, Reason, Settled, Verb, Verdict
from relay.core.timers import NewTimer, TimerState
from tests.contract.subject import Subject
from tests.settlements import end_of
from tests.worlds.scripts.asking import LEASE, N1, N2, N3, NOW

HOUR = 3600 * SECOND


async def test_a_claim(subject: Subject) -> None:
    """It brings the timer whole, the store's time, the deadline and what comes next."""
    timer = NewTimer("a", b"payload", NOW - 3, None, {"k": "ü"}, "text/plain")
    await subject.store.schedule(subject.topic, [timer])
    await subject.schedule("b", NOW + 4)
    claim = await subject.claim(N1)
    (taken,) = claim.timers
    assert (taken.timer_id, taken.payload, taken.headers) == ("a", b"payload", {"k": "ü"})
    assert (taken.content_type, taken.due, taken.attempt) == ("text/plain", NOW - 3, 1)
    assert (taken.suspect, taken.approximate, taken.readable) == (False, False, True)
    assert (claim.now, claim.deadline, claim.next) == (NOW, NOW + LEASE, NOW + 4)
    assert (claim.parked, claim.orphans) == (0, ())


async def test_never_before_the_due_time(subject: Subject) -> None:
    """Not one microsecond, after a step of the clock in any direction either."""
    await subject.schedule("a")
    for instant in (NOW - 1, NOW - HOUR, 0):
        subject.now = instant
        claim = await subject.claim()
        assert (list(claim.timers), claim.next) == ([], NOW)
    subject.now = NOW
    assert await subject.claimed() == ["a"]


async def test_the_earliest_first(subject: Subject) -> None:
    """Up to the limit, by due time and then by id."""
    for timer_id, due in {"c": NOW, "b": NOW, "a": NOW, "z": NOW - 1}.items():
        await subject.schedule(timer_id, due)
    assert await subject.claimed(N1, limit=3) == ["z", "a", "b"]
    assert await subject.claimed(N2, limit=3) == ["c"]


async def test_a_relay_that_stays_behind_leaves_timers_to_others(subject: Subject) -> None:
    """Until their time has been there for so long; and it hears of the first one that it has left."""
    await subject.schedule("older", NOW - SECOND)
    await subject.schedule("a", NOW)
    claim = await subject.claim(N1, behind=SECOND)
    assert ([each.timer_id for each in claim.timers], claim.next) == (["older"], NOW)
    assert await subject.claimed(N2, behind=1) == []
    assert await subject.claimed(N2) == ["a"]


async def test_the_byte_bound(subject: Subject) -> None:
    """Payloads sum up to about `max_bytes`; one goes whatever its size."""
    for timer_id in "abc":
        await subject.schedule(timer_id, payload=bytes(10_000))
    assert await subject.claimed(N1, max_bytes=25_000) == ["a", "b"]
    assert await subject.claimed(N2, max_bytes=1) == ["c"]


async def test_one_live_lease(subject: Subject) -> None:
    """A leased timer is not claimed until its lease is over; then the old token is stale."""
    await subject.schedule("a")
    await subject.claim(N1)
    subject.now = NOW + LEASE - 1
    assert await subject.claimed(N2) == []
    subject.now = NOW + LEASE + 1
    assert await subject.claimed(N2) == ["a"]
    before = await subject.everything()
    for verb in Verb:
        assert await subject.settle("a", N1, verb) is Verdict.STALE
    assert await subject.extend("a", N1, received=True) is Verdict.STALE
    assert await subject.everything() == before
    assert await subject.settle("a", N2, Verb.ACK) is Verdict.OK


async def test_a_lease_that_ran_out_unnoticed(subject: Subject) -> None:
    """As long as nobody else claims, its token settles and extends."""
    await subject.schedule("a")
    await subject.claim(N1)
    subject.now = NOW + LEASE + HOUR
    assert await subject.extend("a", N1) is Verdict.OK
    assert await subject.settle("a", N1, Verb.ACK) is Verdict.OK


@pytest.mark.parametrize(
    ("verb", "answer"), [(Verb.ACK, Verdict.OK), (Verb.REJECT, Reason.REJECTED)], ids=["ack", "reject"]
)
async def test_the_end(subject: Subject, verb: Verb, answer: Settled) -> None:
    """The timer is gone, and stays gone for every token."""
    await subject.schedule("a")
    await subject.schedule("b")
    await subject.claim(N1)
    assert await subject.settle("a", N1, verb) is answer
    for again in Verb:
        assert await subject.settle("a", N1, again) is Verdict.GONE
    assert [timer.timer_id for timer in await subject.everything()] == ["b"]


@pytest.mark.parametrize(
    ("verb", "retry_after", "next_claim", "attempts"),
    [
        (Verb.NACK, 5 * SECOND, NOW + 5 * SECOND, 1),
        (Verb.NACK, 0, NOW, 1),
        (Verb.NACK, None, NOW + LEASE, 1),
        (Verb.RELEASE, None, NOW, 0),
    ],
)
async def test_a_return(
    subject: Subject, verb: Verb, retry_after: int | None, next_claim: int, attempts: int
) -> None:
    """When it is due again, how many attempts counted; its due time stays, and its token is worth nothing."""
    await subject.schedule("a", NOW - 9)
    await subject.claim(N1)
    assert await subject.settle("a", N1, verb, retry_after=retry_after) is Verdict.OK
    timer = await subject.get("a")
    assert (timer.state, timer.due) == (TimerState.PENDING, NOW - 9)
    assert (timer.next_claim, timer.attempts) == (next_claim, attempts)
    for again in Verb:
        assert await subject.settle("a", N1, again) is Verdict.STALE
    subject.now = next_claim + 1
    (taken,) = (await subject.claim(N2)).timers
    assert (taken.attempt, taken.due) == (attempts + 1, NOW - 9)


@pytest.mark.parametrize("verb", [Verb.NACK, Verb.RELEASE])
async def test_a_return_is_never_early(subject: Subject, verb: Verb) -> None:
    """Where the clock stepped back, it waits for the due time."""
    await subject.schedule("a")
    await subject.claim(N1)
    subject.now = NOW - HOUR
    await subject.settle("a", N1, verb, retry_after=0 if verb is Verb.NACK else None)
    assert (await subject.get("a")).next_claim == NOW
    subject.now = NOW - 1
    assert await subject.claimed(N2) == []


async def test_attempts_on_release(subject: Subject) -> None:
    """They count where a receipt was recorded or is told, once for both."""
    for recorded in (False, True):
        for told in (False, True):
            await subject.schedule("a")
            await subject.claim(N1)
            if recorded:
                await subject.extend("a", N1, received=True)
                await subject.extend("a", N1)
            await subject.settle("a", N1, Verb.RELEASE, received=told)
            assert (await subject.get("a")).attempts == int(recorded or told)


async def test_attempts_on_a_lapse(subject: Subject) -> None:
    """A lease that runs out counts if the call was received, and each only once."""
    await subject.schedule("a")
    await subject.claim(N1)
    await subject.extend("a", N1, received=True)
    subject.now = NOW + 2 * LEASE
    (second,) = (await subject.claim(N2)).timers
    assert (second.attempt, second.suspect) == (2, False)
    subject.now = NOW + 4 * LEASE
    (third,) = (await subject.claim(N3)).timers
    assert (third.attempt, third.suspect) == (2, False)
    await subject.extend("a", N3, received=True)
    subject.now = NOW + 6 * LEASE
    (fourth,) = (await subject.claim(b"4" * 16)).timers
    assert (fourth.attempt, fourth.suspect) == (3, True), "it was lost again"


async def test_suspects(subject: Subject) -> None:
    """A release may mark one, and a stream that broke once more; NACK and an unmarked release clear it."""
    await subject.schedule("a")
    instant, nonce = NOW, N1
    await subject.claim(nonce)
    for settlement, expected in (
        (end_of("a", b"", Verb.RELEASE, suspect=True), True),
        (end_of("a", b"", Verb.NACK, retry_after=0), False),
        (end_of("a", b"", Verb.RELEASE, suspect=True), True),
        (end_of("a", b"", Verb.RELEASE), False),
        (end_of("a", b"", Verb.RELEASE, broken=True), True),
    ):
        held = replace(settlement, nonce=nonce)
        assert await subject.store.settle(subject.topic, [held]) == [Verdict.OK]
        instant, nonce = instant + 1, bytes([nonce[0] + 1]) * 16
        subject.now = instant
        (timer,) = (await subject.claim(nonce)).timers
        assert timer.suspect is expected


async def test_occurrences(subject: Subject) -> None:
    """The same id on every redelivery, another after a reschedule, and never that of another timer."""
    await subject.schedule("a")
    await subject.schedule("b")
    first, other = (timer.occurrence_id for timer in (await subject.claim(N1)).timers)
    assert first != other
    await subject.settle("a", N1, Verb.NACK, retry_after=0)
    subject.now = NOW + 1
    assert [timer.occurrence_id for timer in (await subject.claim(N2)).timers] == [first]
    subject.now = NOW + 2 * LEASE
    again = {timer.timer_id: timer.occurrence_id for timer in (await subject.claim(N3)).timers}
    assert again == {"a": first, "b": other}
    await subject.schedule("a", NOW)
    (renewed,) = (await subject.claim(N2)).timers
    assert renewed.occurrence_id != first


async def test_a_renewal(subject: Subject) -> None:
    """The lease ends a lease from now, and not before the due time; the same token settles it."""
    await subject.schedule("a")
    await subject.claim(N1)
    subject.now = NOW + SECOND
    assert await subject.extend("a", N1) is Verdict.OK
    assert (await subject.get("a")).next_claim == NOW + SECOND + LEASE
    for instant, lease, end in (
        (NOW + SECOND, 1, NOW + SECOND + 1),
        (NOW - HOUR, LEASE, NOW + SECOND + 2),  # the due time lies ahead: it changes, and that is all
    ):
        subject.now = instant
        assert await subject.extend("a", N1, lease=lease) is Verdict.OK
        assert (await subject.get("a")).next_claim == end
    assert await subject.settle("a", N1, Verb.ACK) is Verdict.OK
    assert await subject.extend("a", N1) is Verdict.GONE


async def test_many_in_one_call(subject: Subject) -> None:
    """Verdicts come in the order asked, and a bad token spoils no other."""
    for timer_id in "abcd":
        await subject.schedule(timer_id)
    await subject.claim(N1)
    extensions = [Extension("x", N1), Extension("b", N2), Extension("a", N1)]
    verdicts = await subject.store.extend(subject.topic, extensions, lease=LEASE)
    assert verdicts == [Verdict.GONE, Verdict.STALE, Verdict.OK]
    settlements = [
        end_of("x", N1, Verb.ACK),
        end_of("d", N2, Verb.ACK),
        end_of("c", N1, Verb.RELEASE),
        end_of("b", N1, Verb.NACK, retry_after=SECOND),
        end_of("a", N1, Verb.ACK),
    ]
    answers = await subject.store.settle(subject.topic, settlements)
    assert answers == [Verdict.GONE, Verdict.STALE, Verdict.OK, Verdict.OK, Verdict.OK]
    states = {timer.timer_id: timer.state for timer in await subject.everything()}
    assert states == {"b": TimerState.PENDING, "c": TimerState.PENDING, "d": TimerState.LEASED}
