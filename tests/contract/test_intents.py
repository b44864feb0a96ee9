"""schedule, cancel and get, as `TimerStore` states them."""

from __future__ import annotations

import pytest

from relay.core.errors import InvalidField
from relay.core.instants import LATEST, SECOND
from relay.core.outcomes import Verb, Verdict
from relay.core.timers import Change, Changed, NewTimer, Scheduled, StoredTimer, TimerState
from tests.contract.subject import Subject
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW


async def test_a_stored_timer_is_what_was_given(subject: Subject) -> None:
    """Ids, payload, headers and content type come back unchanged, whatever they hold."""
    headers = {"trace": "00-ab", "naïve": "日本", "empty": ""}
    timer = NewTimer("ключ-🔑", bytes(range(256)), NOW + SECOND, None, headers, "application/x-ü")
    assert await subject.store.schedule(subject.topic, [timer]) == [Scheduled(NOW + SECOND, Change.CREATED)]
    assert await subject.get("ключ-🔑") == StoredTimer(
        timer_id="ключ-🔑",
        state=TimerState.PENDING,
        due=NOW + SECOND,
        next_claim=NOW + SECOND,
        attempts=0,
        payload=bytes(range(256)),
        headers=headers,
        content_type="application/x-ü",
    )


async def test_an_empty_payload(subject: Subject) -> None:
    """A timer may carry nothing."""
    await subject.schedule("a", payload=b"")
    assert (await subject.get("a")).payload == b""
    assert (await subject.claim()).timers[0].payload == b""


async def test_a_delay_counts_from_the_stores_now(subject: Subject) -> None:
    """The stored due time is the store's now plus the delay; zero is now."""
    timers = [NewTimer("a", b"", delay=1_500_001), NewTimer("b", b"", delay=0)]
    results = await subject.store.schedule(subject.topic, timers)
    assert [each.due for each in results] == [NOW + 1_500_001, NOW]
    assert (await subject.get("a")).due == NOW + 1_500_001


@pytest.mark.parametrize("due", [0, 1, NOW - 1, NOW + 1, 4_102_444_799_999_999, 8_589_934_591_999_999])
async def test_due_times_to_the_microsecond(subject: Subject, due: int) -> None:
    """From 1970 to 2242 no due time is rounded."""
    results = await subject.store.schedule(subject.topic, [NewTimer("a", b"", due)])
    assert results == [Scheduled(due, Change.CREATED)]
    timer = await subject.get("a")
    assert (timer.due, timer.next_claim) == (due, due)


@pytest.mark.parametrize("held", [False, True])
async def test_replacing(subject: Subject, held: bool) -> None:
    """A new timer of the same id starts anew, whatever state the old one is in."""
    await subject.schedule("a")
    await subject.claim(N1)
    if not held:
        await subject.settle("a", N1, Verb.NACK, retry_after=SECOND)
    results = await subject.store.schedule(subject.topic, [NewTimer("a", b"new", NOW + 5)])
    assert results == [Scheduled(NOW + 5, Change.REPLACED, delivery_under_way=held)]
    assert await subject.get("a") == StoredTimer("a", TimerState.PENDING, NOW + 5, NOW + 5, 0, b"new")
    assert await subject.settle("a", N1, Verb.ACK) is Verdict.STALE
    assert (await subject.get("a")).payload == b"new"


async def test_the_later_of_two_stands(subject: Subject) -> None:
    """Where one call names an id twice, the second replaces the first."""
    timers = [NewTimer("a", b"1", NOW), NewTimer("b", b"b", NOW), NewTimer("a", b"2", NOW + 9)]
    results = await subject.store.schedule(subject.topic, timers)
    assert [each.change for each in results] == [Change.CREATED, Change.CREATED, Change.REPLACED]
    assert ((await subject.get("a")).payload, (await subject.get("a")).due) == (b"2", NOW + 9)


async def test_a_delay_past_9999_writes_nothing(subject: Subject) -> None:
    """The whole call is refused with the field's name; the last instant of 9999 is taken."""
    timers = [NewTimer("a", b"", NOW), NewTimer("b", b"", delay=LATEST - NOW + SECOND)]
    with pytest.raises(InvalidField, match=r"^delay: .*9999"):
        await subject.store.schedule(subject.topic, timers)
    assert await subject.everything() == []
    assert await subject.store.schedule(subject.topic, [NewTimer("b", b"", delay=LATEST - NOW)])


async def test_cancel(subject: Subject) -> None:
    """It answers what was there, pending or leased, once."""
    for timer_id in ("pending", "leased", "other"):
        await subject.schedule(timer_id, NOW if timer_id == "leased" else NOW + SECOND)
    await subject.claim(N1)
    answers = await subject.store.cancel(subject.topic, ["leased", "nobody", "pending", "pending"])
    assert answers == [
        Changed(Change.CANCELLED, delivery_under_way=True),
        Changed(Change.GONE),
        Changed(Change.CANCELLED),
        Changed(Change.GONE),
    ]
    assert [timer.timer_id for timer in await subject.everything()] == ["other"]


async def test_a_cancelled_lease(subject: Subject) -> None:
    """Its token finds the timer gone, and stale if another timer lives under the id."""
    await subject.schedule("a")
    await subject.claim(N1)
    await subject.store.cancel(subject.topic, ["a"])
    assert await subject.settle("a", N1, Verb.ACK) is Verdict.GONE
    assert await subject.extend("a", N1) is Verdict.GONE
    await subject.schedule("a")
    assert await subject.settle("a", N1, Verb.NACK) is Verdict.STALE
    assert await subject.extend("a", N1, received=True) is Verdict.STALE
    assert (await subject.get("a")).attempts == 0
    assert (await subject.claim(N2)).timers[0].attempt == 1


async def test_get_of_nothing(subject: Subject) -> None:
    """None, in a topic that holds other timers and in one that nobody has used."""
    await subject.schedule("a")
    assert await subject.store.get(subject.topic, "b") is None
    assert await subject.store.get(f"{subject.topic}-unused", "a") is None


async def test_get_of_a_lease(subject: Subject) -> None:
    """State, deadline and due time are told apart."""
    await subject.schedule("a", NOW - 7)
    await subject.claim(N1)
    timer = await subject.get("a")
    assert (timer.state, timer.due, timer.next_claim) == (TimerState.LEASED, NOW - 7, NOW + LEASE)


async def test_topics_are_apart(subject: Subject) -> None:
    """The same id in two topics is two timers."""
    await subject.schedule("a")
    other = Subject(subject.store, f"{subject.topic}-unused", subject.set_clock, subject.ledger)
    assert await other.everything() == []
    assert await subject.store.cancel(other.topic, ["a"]) == [Changed(Change.GONE)]
    assert len(await subject.everything()) == 1
