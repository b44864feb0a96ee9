"""schedule with its options, cancel on condition and run, as `TimerStore` states them."""

from __future__ import annotations

from typing import Any

import pytest

from relay.core.instants import SECOND
from relay.core.outcomes import Limits, Verb, Verdict
from relay.core.timers import KEEP_EXISTING, Change, Changed, Condition, NewTimer, Scheduled, TimerState
from tests.contract.subject import Subject
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW

LATER = NOW + 60 * SECOND
PENDING = Condition(only_pending=True)
CREATED, REPLACED, UNCHANGED = Change.CREATED, Change.REPLACED, Change.UNCHANGED


async def schedule(subject: Subject, *timers: NewTimer, max_waiting: int = 0) -> list[Scheduled]:
    return await subject.store.schedule(subject.topic, timers, max_waiting=max_waiting)


def new(timer_id: str = "a", due: int = LATER, **options: Any) -> NewTimer:
    return NewTimer(timer_id, b"new", due)._replace(**options)


async def test_create_only(subject: Subject) -> None:
    """It stores where there is nothing; a call that is repeated changes nothing and answers the same time."""
    assert await schedule(subject, new(intent=KEEP_EXISTING)) == [Scheduled(LATER, CREATED)]
    again = new(due=NOW, payload=b"other", intent=KEEP_EXISTING)
    assert await schedule(subject, again) == [Scheduled(LATER, UNCHANGED)]
    assert ((await subject.get("a")).due, (await subject.get("a")).payload) == (LATER, b"new")


async def test_create_only_over_a_lease(subject: Subject) -> None:
    """The lease holds on, and the due time is that of the timer, not of its lease."""
    await subject.schedule("a", NOW - 5)
    await subject.claim(N1)
    told = await schedule(subject, new(intent=KEEP_EXISTING))
    assert told == [Scheduled(NOW - 5, UNCHANGED, delivery_under_way=True)]
    assert await subject.settle("a", N1, Verb.ACK) is Verdict.OK
    assert await schedule(subject, new(intent=KEEP_EXISTING)) == [Scheduled(LATER, CREATED)]


async def test_create_only_in_one_call(subject: Subject) -> None:
    """The first of two stands, and a plain one that follows replaces it."""
    timers = [
        new(intent=KEEP_EXISTING),
        new(due=NOW, intent=KEEP_EXISTING),
        new(due=NOW + 1),
        new(due=NOW, intent=KEEP_EXISTING),
    ]
    assert await schedule(subject, *timers) == [
        Scheduled(LATER, CREATED),
        Scheduled(LATER, UNCHANGED),
        Scheduled(NOW + 1, REPLACED),
        Scheduled(NOW + 1, UNCHANGED),
    ]


@pytest.mark.parametrize("held", [False, True], ids=["pending", "held"])
@pytest.mark.parametrize(
    ("condition", "pending", "leased"),
    [
        (Condition(), None, None),
        (PENDING, None, Change.IN_FLIGHT),
        (Condition(only_leased=True), UNCHANGED, None),
        (Condition(only_leased=True, due=NOW), UNCHANGED, None),
        (Condition(only_leased=True, due=NOW + 1), UNCHANGED, UNCHANGED),
        (Condition(due=NOW), None, None),
        (Condition(due=NOW + 1), UNCHANGED, UNCHANGED),
        (Condition(due=NOW - 1), UNCHANGED, UNCHANGED),
        (Condition(only_pending=True, due=NOW), None, Change.IN_FLIGHT),
        (Condition(only_pending=True, due=NOW + 1), UNCHANGED, Change.IN_FLIGHT),
    ],
)
async def test_conditions(
    subject: Subject, condition: Condition, pending: Change | None, leased: Change | None, *, held: bool
) -> None:
    """Both verbs ask alike, and what is refused changes nothing."""
    refusal = leased if held else pending
    for verb in ("schedule", "cancel"):
        await subject.schedule("a", payload=b"old")
        if held:
            await subject.claim(N1)
        before = await subject.get("a")
        if verb == "cancel":
            answer = await subject.store.cancel(subject.topic, ["a"], condition)
            assert answer == [Changed(refusal or Change.CANCELLED, held)]
        else:
            results = await schedule(subject, new(condition=condition))
            due, change = (NOW, refusal) if refusal else (LATER, REPLACED)
            assert results == [Scheduled(due, change, held)]
        if refusal:
            assert await subject.get("a") == before
        else:
            assert await subject.store.get(subject.topic, "a") != before
        if held:
            answered = {True: Verdict.OK, False: Verdict.GONE if verb == "cancel" else Verdict.STALE}
            assert await subject.settle("a", N1, Verb.ACK) is answered[refusal is not None]
        await subject.store.cancel(subject.topic, ["a"])


@pytest.mark.parametrize("verb", ["schedule", "cancel"])
@pytest.mark.parametrize(
    "changed", [{"payload": b"other"}, {"headers": {"a": "2"}}, {"content_type": "text/html"}]
)
async def test_a_condition_on_the_content(subject: Subject, verb: str, changed: dict[str, Any]) -> None:
    """It holds while payload, headers and content type are those that were read, however often the timer is
    scheduled again; where they are others nothing is changed."""
    old = new(payload=b"old", headers={"a": "1"}, content_type="text/plain")
    await schedule(subject, old)
    await schedule(subject, old)
    condition = Condition(content=(await subject.get("a")).digest)
    assert len(condition.content) == 40
    await schedule(subject, old._replace(**changed))
    after = await subject.get("a")

    async def change() -> Change:
        if verb == "cancel":
            return (await subject.store.cancel(subject.topic, ["a"], condition))[0].change
        return (await schedule(subject, old._replace(due=LATER + 1, condition=condition)))[0].change

    assert await change() is UNCHANGED
    assert await subject.get("a") == after
    await schedule(subject, old)
    assert await change() is (Change.CANCELLED if verb == "cancel" else REPLACED)
    assert await change() is (Change.GONE if verb == "cancel" else REPLACED)


async def test_a_condition_on_the_content_and_more(subject: Subject) -> None:
    """Each of its parts has to hold; and what this call has stored is another content."""
    await schedule(subject, new())
    digest = (await subject.get("a")).digest
    both = Condition(only_pending=True, due=LATER + 1, content=digest)
    assert await schedule(subject, new(condition=both)) == [Scheduled(LATER, UNCHANGED)]
    both = Condition(only_leased=True, due=LATER, content=digest)
    assert await schedule(subject, new(condition=both)) == [Scheduled(LATER, UNCHANGED)]
    both = Condition(only_pending=True, due=LATER, content=digest)
    assert await schedule(subject, new(due=LATER + 1, condition=both)) == [Scheduled(LATER + 1, REPLACED)]
    own = new(due=LATER, condition=Condition(content=digest))
    results = await schedule(subject, new(payload=b"other"), own)
    assert [each.change for each in results] == [REPLACED, UNCHANGED]


async def test_a_condition_after_a_back_off(subject: Subject) -> None:
    """The due time is the one that was asked for, whenever the next attempt is; it is not in flight."""
    await subject.schedule("a")
    await subject.claim(N1)
    await subject.settle("a", N1, Verb.NACK, retry_after=LEASE)
    condition = Condition(only_pending=True, due=NOW)
    assert await schedule(subject, new(condition=condition)) == [Scheduled(LATER, REPLACED)]
    assert (await subject.get("a")).attempts == 0


async def test_a_condition_on_nothing(subject: Subject) -> None:
    """There is no timer to change, and none is made."""
    condition = Condition(due=NOW)
    assert await schedule(subject, new(condition=condition)) == [Scheduled(None, Change.GONE)]
    assert await schedule(subject, new(condition=PENDING, intent=KEEP_EXISTING)) == [
        Scheduled(None, Change.GONE)
    ]
    assert await subject.store.cancel(subject.topic, ["a"], condition) == [Changed(Change.GONE)]
    assert await subject.everything() == []


async def test_a_condition_on_the_entry_before(subject: Subject) -> None:
    """In one call an entry meets what the ones before have left."""
    results = await schedule(subject, new(), new(due=NOW, condition=Condition(due=LATER)))
    assert results == [Scheduled(LATER, CREATED), Scheduled(NOW, REPLACED)]
    results = await schedule(subject, new(condition=PENDING), new(due=5, condition=Condition(due=NOW)))
    assert results == [Scheduled(LATER, REPLACED), Scheduled(LATER, UNCHANGED)]


async def test_a_full_topic(subject: Subject) -> None:
    """New timers beyond `max_waiting` are not stored; what replaces is, and what goes makes room."""
    await subject.schedule("held")
    await subject.claim(N1)
    timers = [new("a"), new("b"), new("held"), new("a", due=NOW)]
    assert await schedule(subject, *timers, max_waiting=2) == [
        Scheduled(LATER, CREATED),
        Scheduled(None, Change.FULL),
        Scheduled(LATER, REPLACED, delivery_under_way=True),
        Scheduled(NOW, REPLACED),
    ]
    assert [each.stored for each in await schedule(subject, new("b"), max_waiting=2)] == [False]
    await subject.store.cancel(subject.topic, ["a"])
    assert [each.stored for each in await schedule(subject, new("b"), max_waiting=2)] == [True]
    assert {timer.timer_id for timer in await subject.everything()} == {"held", "b"}


# ------------------------------------------------------------------- deliveries under way


@pytest.mark.parametrize("verb", ["schedule", "cancel", "run"])
@pytest.mark.parametrize("lapsed", [False, True], ids=["held", "lapsed"])
async def test_a_delivery_under_way(subject: Subject, verb: str, *, lapsed: bool) -> None:
    """It is told of the timer whose lease nobody has ended, also when that has run out, and of no other."""
    await subject.schedule("held")
    await subject.claim(N1)
    await subject.schedule("waiting", LATER)
    subject.now = NOW + lapsed * 2 * LEASE
    ids = ["waiting", "held", "nobody"]
    assert await under_way(subject, verb, ids) == [False, True, False]


@pytest.mark.parametrize("verb", ["schedule", "cancel", "run"])
@pytest.mark.parametrize("end", [Verb.NACK, Verb.RELEASE, Verb.RESCHEDULE])
async def test_a_delivery_that_has_ended(subject: Subject, verb: str, end: Verb) -> None:
    """Nothing is under way until the next claim, although the timer has a record of what has been tried."""
    await subject.schedule("a")
    await subject.claim(N1)
    await subject.settle("a", N1, end, again=NewTimer("a", b"", NOW + 5))
    assert await under_way(subject, verb, ["a"]) == [False]


async def test_what_the_call_itself_stored_is_not_under_way(subject: Subject) -> None:
    """Of an id that comes twice, only the first entry met the delivery."""
    await subject.schedule("a")
    await subject.claim(N1)
    told = await schedule(subject, new(), new(due=NOW), new(intent=KEEP_EXISTING))
    assert told == [
        Scheduled(LATER, REPLACED, delivery_under_way=True),
        Scheduled(NOW, REPLACED),
        Scheduled(NOW, UNCHANGED),
    ]
    await subject.claim(N2)
    assert await subject.store.cancel(subject.topic, ["a", "a"]) == [
        Changed(Change.CANCELLED, delivery_under_way=True),
        Changed(Change.GONE),
    ]


async def under_way(subject: Subject, verb: str, timer_ids: list[str]) -> list[bool]:
    """What the verb tells of each."""
    if verb == "schedule":
        return [each.delivery_under_way for each in await schedule(subject, *map(new, timer_ids))]
    change = subject.store.cancel if verb == "cancel" else subject.store.run
    return [each.delivery_under_way for each in await change(subject.topic, timer_ids)]


# ----------------------------------------------------------------------------------- run


async def test_run(subject: Subject) -> None:
    """A waiting timer is due now, and delivered as of now."""
    await subject.schedule("a", LATER)
    assert await subject.store.run(subject.topic, ["a", "nobody"]) == [
        Changed(Change.RUN),
        Changed(Change.GONE),
    ]
    timer = await subject.get("a")
    assert (timer.state, timer.due, timer.next_claim) == (TimerState.PENDING, NOW, NOW)
    subject.now = NOW + 1
    (taken,) = (await subject.claim()).timers
    assert (taken.due, taken.attempt) == (NOW, 1)


async def test_run_in_back_off(subject: Subject) -> None:
    """It waits no longer, and keeps due time, attempts and occurrence."""
    await subject.schedule("a", NOW - 5)
    (first,) = (await subject.claim(N1)).timers
    await subject.settle("a", N1, Verb.NACK, retry_after=LEASE)
    subject.now = NOW + 1
    assert await subject.store.run(subject.topic, ["a"]) == [Changed(Change.RUN)]
    subject.now = NOW + 2
    (taken,) = (await subject.claim(N2)).timers
    assert (taken.due, taken.attempt, taken.occurrence_id) == (NOW - 5, 2, first.occurrence_id)


async def test_run_in_flight(subject: Subject) -> None:
    """A lease stays, also where it has run out and nobody has taken over."""
    await subject.schedule("a")
    await subject.claim(N1)
    before = await subject.get("a")
    for instant in (NOW, NOW + 2 * LEASE):
        subject.now = instant
        assert await subject.store.run(subject.topic, ["a"]) == [
            Changed(Change.IN_FLIGHT, delivery_under_way=True)
        ]
        assert await subject.get("a") == before
    assert await subject.settle("a", N1, Verb.ACK) is Verdict.OK


async def test_run_keeps_the_expiry(subject: Subject) -> None:
    """It does not save what is of no use any more."""
    await schedule(subject, new(expires=NOW + SECOND))
    subject.now = NOW + SECOND
    await subject.store.run(subject.topic, ["a"])
    subject.now = NOW + SECOND + 1
    assert (await subject.claim(limits=Limits())).deaths == (("a", "expired"),)
