"""Deaths, expiry and RESCHEDULE, as `TimerStore` states them."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, product
from typing import Any

import pytest

from relay.core.instants import LATEST, SECOND
from relay.core.outcomes import ACKED, Ending, Limits, Reason, Settled, Settlement, Verb, Verdict
from relay.core.timers import NewTimer, StoredTimer, TimerState
from tests.contract.subject import Subject
from tests.settlements import end_of
from tests.worlds.scripts.asking import LEASE, N1, N2, N3, NOW

HOUR = 3600 * SECOND


async def gone(subject: Subject, timer_id: str = "a") -> bool:
    return await subject.store.get(subject.topic, timer_id) is None


ENDS: dict[str, dict[str, Any]] = {
    "a": {"verb": Verb.ACK},
    "n": {"verb": Verb.NACK, "retry_after": HOUR},
    "l": {"verb": Verb.RELEASE, "received": True},
    "j": {"verb": Verb.REJECT},
    "r": {"verb": Verb.RESCHEDULE, "again": NewTimer("", b"", delay=HOUR)},
}


async def test_ends_of_all_kinds_in_one_call(subject: Subject) -> None:
    """Each timer stands as if it had been settled alone, in whatever order the ends come."""
    alone: dict[str, StoredTimer | None] = {}
    for order in chain.from_iterable(product(ENDS, repeat=length) for length in (1, 2, 3)):
        names = [f"{place}{end}" for place, end in enumerate(order)]
        for name in names:
            await subject.schedule(name)
        await subject.claim(N1)
        ends = [end_of(name, N1, **ENDS[end]) for name, end in zip(names, order, strict=True)]
        await subject.store.settle(subject.topic, ends)
        for name, end in zip(names, order, strict=True):
            timer = await subject.store.get(subject.topic, name)
            stands = timer and replace(timer, timer_id="")
            assert stands == alone.setdefault(end, stands), f"{end} in {order}"
        await subject.store.cancel(subject.topic, names)


# -------------------------------------------------------------------------------- deaths


@pytest.mark.parametrize("reason", [Reason.REJECTED, Reason.FAILED, Reason.UNREADABLE])
async def test_a_reject(subject: Subject, reason: Reason) -> None:
    """The answer is the reason that was given."""
    await subject.schedule("a")
    await subject.claim(N1)
    assert await subject.settle("a", N1, Verb.REJECT, reason=reason, error="no;no") is reason
    assert await gone(subject)


async def test_exactly_max_attempts(subject: Subject) -> None:
    """The last NACK that the policy allows is the death, however short the back-offs are."""
    limits = Limits(max_attempts=3)
    await subject.schedule("a")
    for n, answer in enumerate([Verdict.OK, Verdict.OK, Reason.ATTEMPTS]):
        subject.now = NOW + n
        nonce = bytes([n]) * 16
        (timer,) = (await subject.claim(nonce, limits=limits)).timers
        assert timer.attempt == n + 1
        assert await subject.settle("a", nonce, Verb.NACK, retry_after=0, limits=limits) is answer
    assert await gone(subject)


async def test_an_application_that_is_killed(subject: Subject) -> None:
    """Deliveries that were received and never settled use up the attempts; the next claim ends the timer."""
    limits = Limits(max_attempts=2)
    await subject.schedule("a")
    await subject.schedule("b", LATEST)
    for n in range(2):
        nonce = bytes([n]) * 16
        assert await subject.claimed(nonce, limits=limits) == ["a"]
        await subject.extend("a", nonce, received=True)
        subject.now = NOW + (n + 1) * HOUR
    claim = await subject.claim(N3, limits=limits)
    assert (list(claim.timers), claim.deaths, claim.next) == ([], (("a", "attempts"),), LATEST)
    assert await gone(subject)


async def test_an_application_that_is_away(subject: Subject) -> None:
    """Deliveries that nobody received count no attempt; claims are bounded by themselves."""
    limits = Limits(max_attempts=1, max_claims=3)
    await subject.schedule("a")
    for n in range(3):
        (timer,) = (await subject.claim(bytes([n]) * 16, limits=limits)).timers
        assert timer.attempt == 1
        subject.now = NOW + (n + 1) * HOUR
    assert (await subject.claim(N3, limits=limits)).deaths == (("a", "claims"),)


async def test_what_was_never_sent(subject: Subject) -> None:
    """It uses up no claim either."""
    limits = Limits(max_claims=1)
    await subject.schedule("a")
    for n in range(3):
        subject.now = NOW + n
        nonce = bytes([n]) * 16
        assert await subject.claimed(nonce, limits=limits) == ["a"]
        assert await subject.settle("a", nonce, Verb.RELEASE, unsent=True, limits=limits) is Verdict.OK
    subject.now = NOW + HOUR
    assert await subject.claimed(N1, limits=limits) == ["a"]
    assert await subject.settle("a", N1, Verb.RELEASE, limits=limits) is Verdict.OK
    subject.now = NOW + 2 * HOUR
    assert (await subject.claim(N2, limits=limits)).deaths == (("a", "claims"),)


async def test_max_age(subject: Subject) -> None:
    """No further attempt begins later than that after the due time; the first one may."""
    limits = Limits(max_age=HOUR)
    subject.now = NOW + 2 * HOUR
    await subject.schedule("a")
    assert await subject.claimed(N1, limits=limits) == ["a"]
    assert await subject.settle("a", N1, Verb.NACK, retry_after=0, limits=limits) is Reason.AGE
    subject.now = NOW
    for after, answer in ((HOUR, Verdict.OK), (HOUR + 1, Reason.AGE)):
        await subject.schedule("b")
        await subject.claim(N1, limits=limits)
        assert await subject.settle("b", N1, Verb.NACK, retry_after=after, limits=limits) is answer
    await subject.schedule("c")
    await subject.claim(N1, limits=limits)
    await subject.extend("c", N1, received=True)
    subject.now = NOW + HOUR + 1
    assert (await subject.claim(N2, limits=limits)).deaths == (("c", "age"),)


@pytest.mark.parametrize(
    ("received", "retry_after", "next_claim"),
    [(True, 9 * SECOND, NOW + 9 * SECOND), (True, None, NOW), (False, 9 * SECOND, NOW)],
)
async def test_a_release_with_a_back_off(
    subject: Subject, received: bool, retry_after: int | None, next_claim: int
) -> None:
    """Only what was received waits."""
    await subject.schedule("a")
    await subject.claim(N1)
    assert (
        await subject.settle("a", N1, Verb.RELEASE, received=received, retry_after=retry_after) is Verdict.OK
    )
    timer = await subject.get("a")
    assert (timer.attempts, timer.next_claim) == (int(received), next_claim)


@pytest.mark.parametrize("recorded", [False, True])
async def test_a_release_that_is_the_last_attempt(subject: Subject, recorded: bool) -> None:
    """It counts if it was received, and then it may be the end."""
    limits = Limits(max_attempts=1)
    await subject.schedule("a")
    await subject.claim(N1)
    if recorded:
        await subject.extend("a", N1, received=True)
    answer = await subject.settle("a", N1, Verb.RELEASE, limits=limits)
    assert answer is (Reason.ATTEMPTS if recorded else Verdict.OK)
    assert await gone(subject) is recorded


async def test_a_stale_token_kills_nothing(subject: Subject) -> None:
    """Whatever the limits say."""
    limits = Limits(max_attempts=1, max_claims=1, max_age=1)
    await subject.schedule("a")
    await subject.claim(N1)
    await subject.schedule("a")
    for verb in Verb:
        assert await subject.settle("a", N1, verb, limits=limits) is Verdict.STALE
    assert not await gone(subject)


async def test_a_new_intent_lives_anew(subject: Subject) -> None:
    """A timer that is replaced has all its attempts before it."""
    limits = Limits(max_attempts=2)
    await subject.schedule("a")
    await subject.claim(N1)
    await subject.settle("a", N1, Verb.NACK, retry_after=0, limits=limits)
    await subject.schedule("a")
    await subject.claim(N2)
    assert await subject.settle("a", N2, Verb.NACK, retry_after=0, limits=limits) is Verdict.OK


# -------------------------------------------------------------------------------- expiry


@pytest.mark.parametrize("distance", [False, True], ids=["instant", "distance"])
async def test_expiry(subject: Subject, distance: bool) -> None:
    """The last microsecond before it still counts; then the timer dies instead of being delivered."""
    timer = (
        NewTimer("a", b"", NOW, expires_after=10) if distance else NewTimer("a", b"", NOW, expires=NOW + 10)
    )
    for instant, delivered in ((NOW + 9, True), (NOW + 10, False), (NOW + HOUR, False)):
        subject.now = NOW - SECOND
        await subject.store.schedule(subject.topic, [timer])
        stored = await subject.get("a")
        assert (stored.due, stored.next_claim) == (NOW, NOW)
        subject.now = instant
        claim = await subject.claim(N1)
        assert bool(claim.timers) is delivered
        assert claim.deaths == (() if delivered else (("a", "expired"),))
        assert await gone(subject) is not delivered


async def test_an_expiry_after_a_delay(subject: Subject) -> None:
    """The distance counts from the due time that the delay comes to."""
    timer = NewTimer("a", b"", delay=SECOND, expires_after=SECOND)
    await subject.store.schedule(subject.topic, [timer])
    subject.now = NOW + 2 * SECOND - 1
    assert await subject.claimed(N1) == ["a"]
    await subject.settle("a", N1, Verb.NACK, retry_after=0)
    subject.now = NOW + 2 * SECOND
    assert (await subject.claim(N2)).deaths == (("a", "expired"),)


async def test_an_expiry_before_the_due_time(subject: Subject) -> None:
    """It is never delivered, and gone when it would have been."""
    await subject.store.schedule(subject.topic, [NewTimer("a", b"", NOW + 5, expires=NOW)])
    subject.now = NOW + 4
    assert (await subject.claim()).deaths == ()
    subject.now = NOW + 6
    assert (await subject.claim()).deaths == (("a", "expired"),)


async def test_a_delivery_may_outlast_its_expiry(subject: Subject) -> None:
    """What began in time is renewed and settled as ever; what comes back is dead."""
    await subject.store.schedule(
        subject.topic, [NewTimer(timer_id, b"", NOW - 5, expires=NOW + 1) for timer_id in "ab"]
    )
    await subject.claim(N1)
    subject.now = NOW + HOUR
    assert await subject.extend("a", N1) is Verdict.OK
    assert await subject.settle("a", N1, Verb.ACK) is Verdict.OK
    assert await subject.settle("b", N1, Verb.RELEASE) is Verdict.OK
    subject.now = NOW + 2 * HOUR
    assert (await subject.claim(N2)).deaths == (("b", "expired"),)


async def test_a_replacement_has_its_own_expiry(subject: Subject) -> None:
    """Or none."""
    await subject.store.schedule(subject.topic, [NewTimer("a", b"", NOW, expires=NOW + 1)])
    await subject.schedule("a")
    subject.now = NOW + HOUR
    assert await subject.claimed() == ["a"]


# ---------------------------------------------------------------------------- RESCHEDULE


async def again(subject: Subject, timer: NewTimer, *, new_content: bool = False) -> Settled:
    return await subject.settle("a", N1, Verb.RESCHEDULE, again=timer, new_content=new_content)


@pytest.mark.parametrize(
    ("due", "delay", "expected"),
    [(NOW + HOUR, None, NOW + HOUR), (NOW - 9, None, NOW - 9), (None, 7, NOW + 7), (None, LATEST, LATEST)],
)
async def test_a_new_due_time(subject: Subject, due: int | None, delay: int | None, expected: int) -> None:
    """The timer is pending again, with the content that it had and attempts from the start."""
    timer = NewTimer("a", b"old", NOW, None, {"k": "v"}, "text/plain")
    await subject.store.schedule(subject.topic, [timer])
    await subject.claim(N1)
    assert await again(subject, NewTimer("a", b"ignored", due, delay)) is Verdict.OK
    assert await subject.get("a") == StoredTimer(
        "a", TimerState.PENDING, expected, expected, 0, b"old", {"k": "v"}, "text/plain"
    )
    assert await again(subject, NewTimer("a", b"", NOW)) is Verdict.STALE


async def test_a_new_content(subject: Subject) -> None:
    """Payload, headers and content type, whatever they hold."""
    for payload in (b"", b"a;b;", b"\0;\xff"):
        await subject.schedule("a", payload=b"old")
        await subject.claim(N1)
        timer = NewTimer("a", payload, NOW, None, {"k;": ";v"}, "a;b")
        assert await again(subject, timer, new_content=True) is Verdict.OK
        stored = await subject.get("a")
        assert (stored.payload, stored.headers, stored.content_type) == (payload, {"k;": ";v"}, "a;b")


async def test_a_new_occurrence(subject: Subject) -> None:
    """It is another one, with all attempts, no suspicion, and no expiry."""
    await subject.store.schedule(subject.topic, [NewTimer("a", b"", NOW - 5, expires=NOW + SECOND)])
    (first,) = (await subject.claim(N1)).timers
    assert await again(subject, NewTimer("a", b"", delay=0)) is Verdict.OK
    subject.now = NOW + HOUR
    (second,) = (await subject.claim(N2, limits=Limits(max_attempts=1, max_claims=1))).timers
    assert (second.attempt, second.due, second.suspect) == (1, NOW, False)
    assert second.occurrence_id != first.occurrence_id


async def test_a_newer_intent_wins(subject: Subject) -> None:
    """What was scheduled or cancelled meanwhile is not undone."""
    await subject.schedule("a")
    await subject.claim(N1)
    await subject.schedule("a", NOW + HOUR, b"newer")
    assert await again(subject, NewTimer("a", b"x", NOW), new_content=True) is Verdict.STALE
    assert ((await subject.get("a")).due, (await subject.get("a")).payload) == (NOW + HOUR, b"newer")
    await subject.store.cancel(subject.topic, ["a"])
    assert await again(subject, NewTimer("a", b"x", NOW), new_content=True) is Verdict.GONE
    assert await gone(subject)


async def test_many_in_one_call(subject: Subject) -> None:
    """Deaths, new times and ends side by side."""
    for timer_id in "abcd":
        await subject.schedule(timer_id)
    await subject.claim(N1)
    settlements = [
        end_of("a", N1, Verb.RESCHEDULE, again=NewTimer("a", b"", NOW + 9)),
        end_of("b", N1, Verb.NACK),
        end_of("c", N1, Verb.REJECT),
        end_of("d", N1, Verb.ACK),
        end_of("e", N1, Verb.REJECT),
    ]
    answers = await subject.store.settle(subject.topic, settlements, limits=Limits(max_attempts=1))
    assert answers == [Verdict.OK, Reason.ATTEMPTS, Reason.REJECTED, Verdict.OK, Verdict.GONE]
    assert [(timer.timer_id, timer.due) for timer in await subject.everything()] == [("a", NOW + 9)]


async def test_many_that_end_alike(subject: Subject) -> None:
    """By the nonces of several claims; each timer is answered in its order."""
    for timer_id in "abcdef":
        await subject.schedule(timer_id)
    await subject.claim(N1, limit=4)
    await subject.claim(N2)
    await subject.schedule("b", NOW + HOUR)  # a newer intent
    settlements = [
        Settlement(N2, ACKED, ["e"]),
        Settlement(N1, ACKED, ["a", "b", "z"]),
        Settlement(N1, Ending(Verb.NACK, retry_after=HOUR), ["c"]),
        Settlement(N2, ACKED, ["f"]),
        Settlement(N3, ACKED, ["d"]),
    ]
    answers = await subject.store.settle(subject.topic, settlements)
    ok, stale = Verdict.OK, Verdict.STALE
    assert answers == [ok, ok, stale, Verdict.GONE, ok, ok, stale]
    left = {timer.timer_id: timer.state for timer in await subject.everything()}
    assert left == {"b": TimerState.PENDING, "c": TimerState.PENDING, "d": TimerState.LEASED}


async def test_deaths_beside_deliveries(subject: Subject) -> None:
    """One claim names both; nothing else of the topic is touched."""
    for timer_id in "ab":
        await subject.schedule(timer_id)
    await subject.claim(N1)
    await subject.settle("a", N1, Verb.NACK, retry_after=0)
    await subject.settle("b", N1, Verb.RELEASE)
    await subject.schedule("c", NOW + LEASE)
    subject.now = NOW + 1
    claim = await subject.claim(N2, limits=Limits(max_attempts=1))
    assert [timer.timer_id for timer in claim.timers] == ["b"]
    assert (claim.deaths, claim.next, claim.paused_until) == (
        (("a", "attempts"),),
        NOW + LEASE,
        None,
    )


async def test_an_expiry_at_the_beginning_of_time(subject: Subject) -> None:
    """It is one like any other, though a record says 0 where there is none."""
    await subject.store.schedule(subject.topic, [NewTimer("a", b"x", delay=0, expires=0)])
    subject.now = NOW + 1
    claim = await subject.claim(N1)
    assert (list(claim.timers), claim.deaths) == ([], (("a", "expired"),))
