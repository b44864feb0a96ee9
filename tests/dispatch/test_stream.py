"""Groups of a stream: what each gets, whose word counts, and what becomes of what the dead leave behind."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, cast

import pytest

from relay.api import frames
from relay.core.dispatch import Reclaim
from relay.core.errors import StoreError
from relay.core.instants import SECOND
from relay.core.journal import RecordKind
from relay.core.outcomes import ACKED, Limits, Reason, Settlement, Verb, Verdict
from relay.core.timers import NewTimer
from relay.store.dispatch import promotions
from relay.store.verbs import stream
from tests.settlements import end_of
from tests.worlds.engine.leased import leased
from tests.worlds.scripts.asking import LEASE, N1, NOW
from tests.worlds.scripts.desk import Desk

KEEP = Limits(max_attempts=2, keep=True)


async def test_every_group_gets_each(fan: Desk) -> None:
    """And the relays of one group share them."""
    one, two, audit = fan.reader("one"), fan.reader("two"), fan.reader("one", "audit")
    assert await one.names() == await audit.names() == []  # each group is there before the first timer
    await fan.store.schedule(fan.topic, [NewTimer(f"t{n}", b"", NOW - 9 + n) for n in range(6)])
    first, second = await one.names(limit=4), await two.names(limit=4)
    assert first + second == [f"t{n}" for n in range(6)]
    assert await audit.names() == [f"t{n}" for n in range(6)]
    assert fan.left() == (0, 0, 0)


async def test_what_a_delivery_has(fan: Desk) -> None:
    """All that one from the timeline has, the same on every redelivery and in every group."""
    one, audit = fan.reader(), fan.reader(group="audit")
    await audit.claim()
    await fan.schedule("a", NOW - 7, b"\x00payload", headers={"k": "v"}, content_type="text/plain")
    timer = await one.one()
    assert (timer.timer_id, timer.payload, timer.headers, timer.content_type, timer.due, timer.attempt) == (
        *("a", b"\x00payload", {"k": "v"}, "text/plain"),
        *(NOW - 7, 1),
    )
    assert (await audit.one()).occurrence_id == timer.occurrence_id
    await one.settle(timer, Verb.NACK, retry_after=0)
    again = await one.one()
    assert (again.occurrence_id, again.attempt, again.due) == (timer.occurrence_id, 2, timer.due)


def recall(fan: Desk, *idle: int) -> None:
    """Run stream/recall, within the millisecond in which the entries get these idle times, if any."""
    known = fan.raw.xpending_range(fan.stream, "billing", "-", "+", 10)
    with fan.raw.pipeline(transaction=True) as pipe:
        for each, milliseconds in zip(cast("list[Any]", known), idle, strict=False):
            entries = [each["message_id"]]
            pipe.xclaim(fan.stream, "billing", each["consumer"], 0, entries, idle=milliseconds, justid=True)
        until = round((time.time() + 60) * SECOND)
        pipe.eval(fan.texts["stream/recall"], 1, fan.stream, until, "billing", "-", 10)
        assert pipe.execute()[-1] == b""


async def test_idle_times_that_have_begun(fan: Desk) -> None:
    """They go on when the server's clock has stepped back."""
    one = fan.reader()
    await one.claim()
    await fan.schedule("a")
    await one.one()
    recall(fan, 60_000)
    (left,) = cast("list[Any]", fan.raw.xpending_range(fan.stream, "billing", "-", "+", 10))
    assert left["time_since_delivered"] >= 60_000


async def test_idle_times_begin(fan: Desk) -> None:
    """The entries stay with their consumers, and no delivery counts for it."""
    one, two = fan.reader("one"), fan.reader("two")
    await one.claim()
    await fan.store.schedule(fan.topic, [NewTimer(f"t{n}", b"", NOW) for n in range(2)])
    await one.one(limit=1)
    await two.one(limit=1)
    recall(fan, 0, 0)
    assert one.pending() == [("one", 1), ("two", 1)]


async def test_never_early(fan: Desk) -> None:
    """The claim says when to come again."""
    one = fan.reader()
    await fan.schedule("a", NOW + 1)
    claim = await one.claim()
    assert (list(claim.timers), claim.next) == ([], NOW + 1)
    fan.now = NOW + 1
    assert await one.names() == ["a"]


async def test_a_promoter_and_a_reader(fan: Desk) -> None:
    """What another relay has promoted is there for the next claim; the journal says who is not lost."""
    fan.keep = 100
    one = fan.reader()
    await fan.schedule("a")
    assert (await fan.promote()).promoted == 1
    assert await one.names() == ["a"]
    assert (await fan.records())[-1].kind is RecordKind.PROMOTED


@pytest.mark.parametrize("by_claim", [True, False])
async def test_a_sweep_is_told(fan: Desk, *, by_claim: bool) -> None:
    """Whoever promotes marks what has left the timeline, while a sweep is under way."""
    one = fan.reader()
    await one.claim()
    fan.raw.hset(fan.marks, "any", "0")
    await fan.schedule("a")
    assert (await one.names() if by_claim else (await fan.promote()).promoted) in (["a"], 1)
    assert fan.raw.hexists(fan.marks, "ta")


async def test_an_ack_ends_it_for_the_group_alone(fan: Desk) -> None:
    one, audit = fan.reader(), fan.reader(group="audit")
    await audit.claim()
    await fan.schedule("a")
    timer, other = await one.one(), await audit.one()
    assert await one.settle(timer) is Verdict.OK
    assert (one.pending(), audit.pending()) == ([], [("one", 1)])
    assert await one.settle(timer) is Verdict.GONE
    assert await audit.settle(other) is Verdict.OK


async def test_many_that_end_alike(fan: Desk) -> None:
    """Each by its own proof; it is answered in its order."""
    one = fan.reader()
    for name in "abc":
        await fan.schedule(name)
    a, b, c = await one.take()
    nacked = end_of(b.timer_id, b.proof, Verb.NACK, retry_after=SECOND)
    acknowledged = Settlement(b"", ACKED, ["c", "a"], [c.proof, a.proof])
    answers = await one.source.settle(fan.topic, [nacked, acknowledged])
    assert answers == [Verdict.OK, Verdict.OK, Verdict.OK]
    again = Settlement(b"", ACKED, ["a", "b"], [a.proof, b.proof])
    assert await one.source.settle(fan.topic, [again]) == [Verdict.GONE, Verdict.STALE]
    fan.later(1)
    assert await one.names() == ["b"]


async def test_the_dead_leave_their_entries(fan: Desk) -> None:
    """Not before they have been idle for as long as a lease; nobody has received them, so nothing counts."""
    one, two = fan.reader("one"), fan.reader("two")
    await fan.schedule("a")
    lost = await one.one()
    one.idle(10.0)  # and not a moment before the end of the lease: the server's clock goes on
    assert await two.names() == []
    one.idle(30.0)
    timer = await two.one()
    assert (timer.attempt, timer.suspect, timer.claims) == (1, False, 2)
    assert two.pending() == [("two", 2)]
    assert await one.settle(lost) is Verdict.STALE
    assert await one.extend(lost) is Verdict.STALE
    assert await two.settle(timer) is Verdict.OK


async def test_an_entry_that_was_moved(fan: Desk) -> None:
    """A plain consumer of the group has taken it over, without a delivery: it is theirs to acknowledge."""
    one = fan.reader()
    await fan.schedule("a")
    timer = await one.one()
    (entry,) = cast("list[Any]", fan.raw.xpending_range(fan.stream, "billing", "-", "+", 1))
    fan.raw.xclaim(fan.stream, "billing", "plain", 0, [entry["message_id"]], justid=True)
    assert one.pending() == [("plain", 1)]
    assert await one.settle(timer) is Verdict.STALE
    assert await one.extend(timer) is Verdict.STALE
    assert one.pending() == [("plain", 1)]


async def test_who_comes_back_to_its_own_entry(fan: Desk) -> None:
    """The same relay may take an entry again that it had given up: only the newest delivery counts."""
    one = fan.reader()
    await fan.schedule("a")
    old = await one.one()
    one.idle(30.0)
    new = await one.one()
    assert await one.settle(old) is Verdict.STALE
    assert await one.settle(new) is Verdict.OK


async def test_a_receipt_counts(fan: Desk) -> None:
    """What a dead relay's application had received is an attempt; what is lost like this again goes alone."""
    one, two = fan.reader("one"), fan.reader("two")
    await fan.schedule("a")
    timer = await one.one()
    assert await one.extend(timer, received=True) is Verdict.OK
    one.idle(30.0)
    again = await two.one()
    assert (again.attempt, again.suspect) == (2, False)
    two.idle(30.0)
    timer = await one.one()
    assert timer.attempt == 2  # once, and not for every claim
    assert await one.extend(timer, received=True) is Verdict.OK
    one.idle(30.0)
    last = await two.one()
    assert (last.attempt, last.suspect) == (3, True)  # and the first one stays counted


async def test_a_renewal_keeps_it(fan: Desk) -> None:
    """It sets the idle time back, and nothing else: the token stays good."""
    one, two = fan.reader("one"), fan.reader("two")
    await fan.schedule("a")
    timer = await one.one()
    one.idle(10.0)
    assert await one.extend(timer) is Verdict.OK
    (entry,) = cast("list[Any]", fan.raw.xpending_range(fan.stream, "billing", "-", "+", 1))
    assert entry["time_since_delivered"] < 10_000
    assert await two.names() == []
    assert await one.settle(timer) is Verdict.OK


async def test_a_nack_waits(fan: Desk) -> None:
    """For as long as it says, however long that is; whoever is idle does not get it sooner."""
    one, two = fan.reader("one"), fan.reader("two")
    await fan.schedule("a")
    timer = await one.one()
    assert await one.settle(timer, Verb.NACK, retry_after=600 * SECOND, error="busy") is Verdict.OK
    assert await one.settle(timer) is Verdict.STALE
    one.idle(500.0)
    claim = await two.claim()
    assert (list(claim.timers), claim.next) == ([], NOW + 600 * SECOND)
    fan.later(600)
    again = await two.one()
    assert again.attempt == 2
    assert await two.settle(again) is Verdict.OK
    assert two.traces() == (0, 0)


async def test_a_nack_without_a_delay(fan: Desk) -> None:
    """Comes again when its lease would have ended."""
    one = fan.reader()
    await fan.schedule("a")
    timer = await one.one()
    one.idle(10.0)
    await one.settle(timer, Verb.NACK)
    following = (await one.claim()).next
    assert following is not None
    assert NOW < following <= NOW + 20 * SECOND


@pytest.mark.parametrize("verb", [Verb.NACK, Verb.RELEASE])
async def test_a_retry_is_never_early(fan: Desk, verb: Verb) -> None:
    """Where the clock of Redis has stepped back, it waits for the due time."""
    one = fan.reader()
    await fan.schedule("a")
    timer = await one.one()
    fan.now = NOW - 3600 * SECOND
    await one.settle(timer, verb, retry_after=0)
    claim = await one.claim()
    assert (list(claim.timers), claim.next) == ([], NOW)
    fan.now = NOW
    assert await one.names() == ["a"]


@pytest.mark.parametrize("due_time", [f"{NOW / 1e3:.0f}", "inf", "1e300", "nan"])
async def test_a_retry_of_what_others_added(fan: Desk, due_time: str) -> None:
    """A foreign entry may claim any due time: another try is due in time."""
    one = fan.reader()
    await one.claim()
    fan.raw.xadd(fan.stream, {"timer_id": "a", "due_time": due_time})
    await one.settle(await one.one(), Verb.NACK, retry_after=SECOND)
    assert (await one.claim()).next == NOW + SECOND
    fan.now = NOW + SECOND
    assert await one.names() == ["a"]


@pytest.mark.parametrize(
    ("flags", "attempt", "claims"),
    [
        ({"unsent": True}, 1, 1),
        ({}, 1, 2),
        ({"received": True}, 2, 2),
        ({"suspect": True}, 1, 2),
        ({"broken": True}, 1, 2),
    ],
)
async def test_a_release(fan: Desk, flags: dict[str, Any], attempt: int, claims: int) -> None:
    """It is due at once; the attempt counts if it was received, the claim if it was sent."""
    one, two = fan.reader("one"), fan.reader("two")
    await fan.schedule("a")
    await one.settle(await one.one(), Verb.RELEASE, **flags)
    again = await two.one()
    assert (again.attempt, again.claims, again.suspect) == (attempt, claims, "suspect" in flags)


async def test_out_of_attempts(fan: Desk) -> None:
    """It dies in this group, and the others know nothing of it."""
    one, audit = fan.reader(), fan.reader(group="audit")
    await audit.claim()
    await fan.schedule("a", NOW, b"payload")
    await one.settle(await one.one(), Verb.NACK, retry_after=0, limits=KEEP)
    last = await one.one(limits=KEEP)
    assert await one.settle(last, Verb.NACK, retry_after=0, error="no", limits=KEEP) is Reason.ATTEMPTS
    assert (one.pending(), one.traces()) == ([], (0, 0))
    assert await audit.names() == ["a"]
    page = await fan.topics.dead_page(fan.topic, limit=10, cursor="")
    (letter,) = page.letters
    assert (letter.timer_id, letter.reason, letter.attempts, letter.error) == ("a", "attempts", 2, "no")
    assert (letter.group, letter.occurrence_id) == ("billing", last.occurrence_id)


async def test_a_reject(fan: Desk) -> None:
    one = fan.reader()
    await fan.schedule("a")
    assert await one.settle(await one.one(), Verb.REJECT, error="no", limits=KEEP) is Reason.REJECTED
    assert fan.raw.xlen(fan.dead) == 1
    assert one.pending() == []


async def test_the_last_lapse_is_a_death(fan: Desk) -> None:
    """Nobody settles for a relay that died: the claim after it finds that it was the last attempt."""
    one = fan.reader()
    await fan.schedule("a")
    await one.settle(await one.one(), Verb.NACK, retry_after=0)
    await one.extend(await one.one(), received=True)
    one.idle(30.0)
    claim = await one.claim(limits=KEEP)
    assert (list(claim.timers), claim.deaths) == ([], (("a", "attempts"),))
    assert (one.pending(), one.traces(), fan.raw.xlen(fan.dead)) == ([], (0, 0), 1)


async def test_the_expired_die(fan: Desk) -> None:
    """In the timeline, and behind it."""
    one = fan.reader()
    await fan.schedule("a", NOW - 5, expires=NOW)
    await fan.schedule("b", NOW - 5, expires=NOW + SECOND)
    await fan.promote()
    fan.later(1)
    claim = await one.claim()
    assert (list(claim.timers), claim.deaths) == ([], (("b", "expired"),))


async def test_a_redriven_letter_is_its_groups(fan: Desk) -> None:
    """The group in which it died gets it again, as the same occurrence; no other does."""
    one, audit = fan.reader(), fan.reader(group="audit")
    await audit.claim()
    await fan.schedule("a", NOW, b"payload", headers={"k": "v"})
    first = await one.one()
    await one.settle(first, Verb.REJECT, limits=KEEP)
    await audit.settle(await audit.one())
    (dead_id,) = [name.decode() for name, _ in cast("list[Any]", fan.raw.xrange(fan.dead))]
    assert [change.name for change in await fan.topics.redrive(fan.topic, [dead_id, "1-1"])] == [
        "RUN",
        "GONE",
    ]
    assert fan.raw.exists(fan.dead) == 0
    again = await one.one()
    assert (again.attempt, again.occurrence_id, again.payload, again.headers) == (
        *(1, first.occurrence_id),
        *(b"payload", {"k": "v"}),
    )
    assert await audit.names() == []
    assert audit.pending() == []
    await one.settle(again)
    assert one.traces() == (0, 0)


async def test_a_reschedule_is_its_groups(fan: Desk) -> None:
    """It comes again then, to this group alone, as a new occurrence; the stream can be trimmed meanwhile."""
    one, audit = fan.reader(), fan.reader(group="audit")
    await audit.claim()
    await fan.schedule("a", NOW, b"old")
    first = await one.one()
    await audit.settle(await audit.one())
    later = NewTimer("a", b"new", NOW + 90 * SECOND, headers={"k": "v"})
    assert await one.settle(first, Verb.RESCHEDULE, again=later, new_content=True) is Verdict.OK
    assert await one.settle(first) is Verdict.GONE
    assert (one.pending(), one.traces()) == ([], (1, 1))
    assert (await fan.tidy()).trimmed == 1
    claim = await one.claim()
    assert (list(claim.timers), claim.next) == ([], NOW + 90 * SECOND)
    fan.later(90)
    again = await one.one()
    assert (again.timer_id, again.payload, again.attempt, again.due) == ("a", b"new", 1, NOW + 90 * SECOND)
    assert again.occurrence_id != first.occurrence_id
    assert await audit.names() == []
    await one.settle(again)
    assert (one.traces(), audit.pending()) == ((0, 0), [])


async def test_equal_ids_come_again_as_two_occurrences(fan: Desk) -> None:
    """Also in one claim: whoever deduplicates by the occurrence would lose one."""
    one = fan.reader()
    await one.claim()
    for _ in range(2):
        await fan.schedule("a")
        timer = await one.one()
        later = NewTimer("a", b"", NOW + SECOND)
        assert await one.settle(timer, Verb.RESCHEDULE, again=later) is Verdict.OK
    await fan.schedule("a", NOW + SECOND)
    fan.later(1)
    again = await one.take()
    assert len({timer.occurrence_id for timer in again}) == len(again) == 3


async def test_equal_messages_arrive_twice(fan: Desk) -> None:
    """Also of one id, in one batch: each has its own lease."""
    one = fan.reader()
    for _ in range(2):
        await fan.schedule("a", NOW, b"again")
        await fan.promote(N1)
    first, second = await one.take()
    assert (first.timer_id, second.timer_id) == ("a", "a")
    await one.settle(first, Verb.NACK, retry_after=0)
    assert await one.settle(second) is Verdict.OK
    assert await one.names() == ["a"]


async def test_a_pause_holds(fan: Desk) -> None:
    """Nothing is promoted and nothing taken; what is in flight goes on."""
    one = fan.reader()
    await fan.schedule("a")
    await fan.schedule("b", NOW + SECOND)
    timer = await one.one()
    await fan.topics.pause(fan.topic, duration=10 * SECOND)
    fan.later(5)
    claim = await one.claim()
    assert (list(claim.timers), claim.paused_until) == ([], NOW + 10 * SECOND)
    assert (await fan.promote()).promoted == 0
    assert await one.settle(timer) is Verdict.OK
    fan.later(10)
    assert await one.names() == ["b"]


async def test_a_round_goes_in_a_circle(fan: Desk) -> None:
    """However much is pending and alive, what a dead one left behind it is found, step by step."""
    one, two = fan.reader("one"), fan.reader("two")
    await fan.store.schedule(fan.topic, [NewTimer(f"t{n:03}", b"", NOW - 500 + n) for n in range(500)])
    await fan.store.schedule(fan.topic, [NewTimer("last", b"", NOW)])
    alive = await one.take(limit=500)
    left = await one.take()
    assert (len(alive), [timer.timer_id for timer in left]) == (500, ["last"])
    one.idle(30.0)
    for start in range(0, 500, 500):
        extensions = alive[start : start + 500]
        for timer in extensions:
            assert await one.extend(timer) is Verdict.OK
    found: list[str] = []
    for _ in range(5):
        found += await two.names()
    assert found == ["last"]


async def test_a_round_goes_on_after_claims_without_room(fan: Desk) -> None:
    """Retries that fill a claim do not send the round back to its start: its end might never be reached."""
    one, two = fan.reader("one"), fan.reader("two")
    await fan.store.schedule(fan.topic, [NewTimer(f"t{n}", b"", NOW - 9 + n) for n in range(4)])
    await one.take()
    one.idle(30.0)
    first = await two.one(limit=1)
    found = [first.timer_id]
    for _ in range(3):
        await two.settle(first, Verb.NACK, retry_after=0)
        first = await two.one(limit=1)
        two.idle(30.0)
        found += await two.names(limit=1)
    assert found == ["t0", "t1", "t2", "t3"]


@pytest.mark.parametrize("fields", [{"only_group": "audit"}, {"expires": "1"}])
async def test_what_is_not_for_us_is_taken_in_steps(fan: Desk, fields: dict[Any, Any]) -> None:
    """A group that was away may find any number of entries that have expired, or that are another group's."""
    one = fan.reader()
    await one.claim()
    with fan.raw.pipeline() as pipe:
        for n in range(9_000):
            pipe.xadd(fan.stream, {"timer_id": f"t{n}", **fields})
        pipe.xadd(fan.stream, {"timer_id": "last"})
        pipe.execute()
    claims = 0
    while (claim := await one.claim(limits=KEEP)).next == NOW:
        assert (list(claim.timers), len(claim.deaths)) == ([], 500 if "expires" in fields else 0)
        claims += 1
    assert claims == 18
    assert [timer.timer_id for timer in claim.timers] == ["last"]
    assert one.pending() == [("one", 1)]


async def test_more_is_taken_at_once(fan: Desk) -> None:
    """While the stream holds more than there was room for, the next claim is due now; then it is not."""
    one = fan.reader()
    await one.claim()
    await fan.store.schedule(fan.topic, [NewTimer(f"t{n}", b"", NOW) for n in range(20)])
    await fan.promote()
    claims = [await one.claim(limit=10) for _ in range(2)]
    assert [(len(claim.timers), claim.next) for claim in claims] == [(10, NOW), (10, None)]
    await fan.schedule("later", NOW + SECOND)
    assert (await one.claim()).next == NOW + SECOND


async def test_when_to_look_again(fan: Desk) -> None:
    """While something is pending, soon; else not for that."""
    one = fan.reader()
    assert (await one.claim()).look_at is None
    await fan.schedule("a")
    claim = await one.claim()
    assert claim.look_at is not None
    assert NOW < claim.look_at <= NOW + SECOND
    assert claim.deadline == NOW + LEASE


@pytest.mark.parametrize(
    ("reclaim", "new", "left"),
    [(Reclaim.ALL, ["b"], ["a"]), (Reclaim.DEDICATED, [], ["a"]), (Reclaim.OFF, ["b"], [])],
)
async def test_who_reclaims(fan: Desk, reclaim: Reclaim, new: list[str], left: list[str]) -> None:
    """`all` take both what is new and what was left, a `dedicated` one what was left, `off` what is new."""
    dead = fan.reader("dead")
    await fan.schedule("a")
    assert await dead.names() == ["a"]
    dead.idle(30.0)
    await fan.schedule("b")
    assert sorted(await fan.reader("two", reclaim=reclaim).names()) == sorted(new + left)


async def test_a_dedicated_one_takes_retries(fan: Desk) -> None:
    """What waits for another try is nobody's: the next who looks takes it, whoever that is."""
    one = fan.reader()
    await fan.schedule("a")
    await one.settle(await one.one(), Verb.NACK, retry_after=0)
    assert await fan.reader("two", reclaim=Reclaim.DEDICATED).names() == ["a"]


async def test_trimmed_is_what_all_have_acknowledged(fan: Desk) -> None:
    """And nothing else: what one group has not read, or not finished, stays."""
    one, audit = fan.reader(), fan.reader(group="audit")
    await audit.claim()
    await fan.store.schedule(fan.topic, [NewTimer(f"t{n}", b"", NOW - 5 + n) for n in range(5)])
    for timer in await one.take():
        await one.settle(timer)
    assert (await fan.tidy()).trimmed == 0
    held = await audit.take()
    for timer in (held[0], held[1], held[3]):
        await audit.settle(timer)
    assert (await fan.tidy()).trimmed == 2
    await audit.settle(held[4])
    await audit.settle(held[2])
    assert (await fan.tidy()).trimmed == 3
    assert fan.raw.xlen(fan.stream) == 0
    await fan.schedule("next")
    assert (await one.names(), await audit.names()) == (["next"], ["next"])


@pytest.mark.slow
async def test_many_are_trimmed(fan: Desk) -> None:
    """Whole nodes and the rest."""
    one = fan.reader()
    for start in range(0, 1250, 250):
        await fan.store.schedule(fan.topic, [NewTimer(f"t{start + n}", b"", NOW) for n in range(250)])
    taken = []
    while timers := await one.take(limit=500):
        taken += timers
    assert len(taken) == 1250
    for timer in taken[:-3]:
        await one.settle(timer)
    assert (await fan.tidy()).trimmed == 1247
    assert fan.raw.xlen(fan.stream) == 3


@pytest.mark.slow
async def test_more_is_trimmed_at_once(fan: Desk) -> None:
    """However many were acknowledged since the last round; a limit drops none in their place."""
    one = fan.reader()
    await one.claim()
    count = 2 * promotions.TRIM + 3
    with fan.raw.pipeline(transaction=False) as pipe:
        for _ in range(count):
            pipe.xadd(fan.stream, {"a": ""})
        pipe.execute()
    last = cast("list[Any]", fan.raw.xrevrange(fan.stream, count=4))[-1][0]
    fan.raw.xgroup_setid(fan.stream, "billing", last)
    fan.policy = type(fan.policy)(
        dispatch=fan.policy.dispatch, stream=type(fan.policy.stream)("billing", max_length=3)
    )
    tidied = await fan.tidy()
    assert (tidied.trimmed, tidied.dropped) == (count - 3, 0)
    assert fan.raw.xlen(fan.stream) == 3


async def test_a_limit_drops_and_says_so(fan: Desk) -> None:
    """By `max_length`, which asks for it; what was pending then is given up, and counted."""
    one = fan.reader()
    abandoned = fan.reader(group="abandoned")
    await abandoned.claim()
    await fan.store.schedule(fan.topic, [NewTimer(f"t{n}", b"", NOW - 5 + n) for n in range(5)])
    taken = await one.take()
    await one.extend(taken[0], received=True)
    fan.policy = type(fan.policy)(
        dispatch=fan.policy.dispatch, stream=type(fan.policy.stream)("billing", max_length=2)
    )
    one.idle(30.0)
    tidied = await fan.tidy()
    assert (tidied.trimmed, tidied.dropped) == (0, 3)
    assert await abandoned.names() == ["t3", "t4"]
    found = await fan.reader("two").claim()
    assert sorted(timer.timer_id for timer in found.timers) == ["t3", "t4"]
    assert found.missing == 3
    assert one.traces() == (0, 0)
    assert one.pending() == [("two", 2), ("two", 2)]
    assert await one.settle(taken[0]) is Verdict.GONE


@pytest.mark.parametrize("verb", [Verb.RESCHEDULE, Verb.NACK])
async def test_what_was_dropped_can_t_come_again(fan: Desk, verb: Verb) -> None:
    """Whoever asks for it is told so; it has not died of its age, either."""
    one = fan.reader()
    await fan.schedule("a")
    timer = await one.one()
    fan.raw.xtrim(fan.stream, maxlen=0)
    again = NewTimer("a", b"", NOW + SECOND) if verb is Verb.RESCHEDULE else None
    limits = Limits(max_age=SECOND, keep=True)
    assert await one.settle(timer, verb, again=again, limits=limits) is Verdict.GONE
    assert (one.pending(), one.traces()) == ([], (0, 0))


async def test_consumers_that_are_gone(fan: Desk) -> None:
    """Are removed once they hold nothing; one that holds something stays, and what it holds too."""
    one, two = fan.reader("one"), fan.reader("two")
    await fan.schedule("a")
    assert (await one.names(), await two.names()) == (["a"], [])
    names = {"one", "two"}
    consumers = fan.raw.xinfo_consumers(fan.stream, "billing")
    assert {each["name"].decode() for each in cast("list[Any]", consumers)} <= names
    reply = await fan.redis.call(stream.tidy(fan.topic, "billing", -1, 0, 100))
    left = cast("list[Any]", fan.raw.xinfo_consumers(fan.stream, "billing"))
    assert [each["name"] for each in left] == [b"one"]
    assert reply[2] == len(cast("list[Any]", consumers)) - 1
    assert one.pending() == [("one", 1)]
    assert (await fan.tidy()).consumers == 0


async def test_other_peoples_entries(fan: Desk) -> None:
    """Whoever else writes to the stream is delivered too, under the entry's name."""
    one = fan.reader()
    await one.claim()
    entry = cast("bytes", fan.raw.xadd(fan.stream, {"whatever": "x"}, id="5-1"))
    timer = await one.one()
    assert (timer.timer_id, timer.payload, timer.due, timer.approximate) == (entry.decode(), b"", 5_000, True)
    assert await one.settle(timer) is Verdict.OK


async def test_other_peoples_occurrence_ids_are_text(fan: Desk) -> None:
    """Else no message could carry them."""
    one = fan.reader()
    await one.claim()
    fan.raw.xadd(fan.stream, {"timer_id": "a", "occurrence_id": b"\xff/1"})
    timer = await one.one()
    assert (timer.readable, timer.occurrence_id) == (True, "\\xff/1")
    assert await one.settle(timer) is Verdict.OK


async def test_other_peoples_entries_can_be_told(fan: Desk) -> None:
    """Whatever stands in them: an application's stream must not break of it. Who can't be named dies."""
    one = fan.reader()
    await one.claim()
    odd: list[dict[Any, Any]] = [
        {"timer_id": "a", "occurrence_id": b"\xff"},
        {"timer_id": "b", "due_time": "nan", "__data__": b"\x89BIN\r\n\x1a\n\xff"},
        {"timer_id": "c", "due_time": "-inf", "__data__": b'{"data": "\\ud800"}'},
        {"timer_id": "", "due_time": "1e999", "expires": "nan"},
        {"timer_id": b"\xff"},
    ]
    for fields in odd:
        fan.raw.xadd(fan.stream, fields)
    timers = await one.take()
    assert [timer.readable for timer in timers] == [True, True, True, True, False]
    assert len(frames.deliveries(leased(*timers[:4])).deliveries) == 4
    assert (
        await one.settle(timers[4], Verb.REJECT, reason=Reason.UNREADABLE, limits=KEEP) is Reason.UNREADABLE
    )
    for timer in timers[:4]:
        assert await one.settle(timer) is Verdict.OK


async def test_a_plain_consumer_ends_what_waits(fan: Desk) -> None:
    """Its XACK is the end of an entry that waits for another try, and no loss."""
    one = fan.reader()
    await fan.schedule("a")
    await one.settle(await one.one(), Verb.NACK, retry_after=SECOND)
    (entry,) = cast("list[Any]", fan.raw.xrange(fan.stream))
    assert fan.raw.xack(fan.stream, "billing", entry[0]) == 1
    fan.later(1)
    claim = await one.claim()
    assert (list(claim.timers), claim.missing) == ([], 0)
    assert one.traces() == (0, 0)


async def test_how_long_a_retry_has_waited_in_vain(fan: Desk) -> None:
    """By the server's clock; a group that nobody runs shows by that."""
    one = fan.reader()
    await fan.schedule("a")
    await one.settle(await one.one(), Verb.NACK, retry_after=0)
    retries = fan.keys_of()[0]
    (group,) = (await fan.promotions.state(fan.topic)).groups
    assert (group.waiting, group.consumers) == (1, 1)
    seconds, part = fan.raw.time()
    assert group.overdue == pytest.approx(seconds + part / 1e6 - NOW / 1e6, abs=60.0)
    (entry,) = cast("list[bytes]", fan.raw.zrange(retries, 0, -1))
    fan.raw.zadd(retries, {entry: 1e12})
    (group,) = (await fan.promotions.state(fan.topic)).groups
    assert (group.waiting, group.overdue) == (1, 0.0)
    await one.claim()
    fan.raw.delete(retries)
    (group,) = (await fan.promotions.state(fan.topic)).groups
    assert (group.waiting, group.overdue) == (0, 0.0)


async def test_a_plain_consumer_is_left_at_work(fan: Desk) -> None:
    """On an entry that waits for another try, and that it has claimed, as long as it may be alive."""
    one = fan.reader()
    await fan.schedule("a")
    await one.settle(await one.one(), Verb.NACK, retry_after=SECOND)
    (entry,) = cast("list[Any]", fan.raw.xrange(fan.stream))
    fan.raw.xclaim(fan.stream, "billing", "plain", 0, [entry[0]])
    fan.later(1)
    claim = await one.claim()
    assert (list(claim.timers), one.pending()) == ([], [("plain", 2)])
    assert claim.next is not None
    assert NOW + 29 * SECOND < claim.next <= NOW + 31 * SECOND
    fan.now = claim.next
    fan.raw.xclaim(fan.stream, "billing", "plain", 0, [entry[0]], idle=29_000, justid=True)
    claim = await one.claim()
    assert list(claim.timers) == []
    assert claim.next is not None
    fan.now = claim.next
    fan.raw.xclaim(fan.stream, "billing", "plain", 0, [entry[0]], idle=30_000, justid=True)  # it is dead
    timer = await one.one()
    assert (timer.attempt, one.pending()) == (2, [("one", 3)])
    assert await one.settle(timer) is Verdict.OK
    assert one.traces() == (0, 0)


async def test_who_is_gone_is_told(fan: Desk) -> None:
    """Stream and group are removed under a delivery."""
    one = fan.reader()
    await fan.schedule("a")
    timer = await one.one()
    fan.raw.delete(fan.stream)
    assert await one.settle(timer) is Verdict.GONE
    assert await one.extend(timer) is Verdict.GONE
    assert await one.names() == []  # and the group is made anew
    await fan.schedule("b")
    assert await one.names() == ["b"]


async def test_a_group_that_was_lost(fan: Desk) -> None:
    """By a failover, say: what was added until it is made anew is for it, too. Nobody can tell any more what
    it has had; so it gets all that is kept."""
    one, audit = fan.reader(), fan.reader(group="audit")
    await audit.claim()
    await fan.schedule("before")
    assert await audit.names() == ["before"]
    assert await one.names() == []  # a group that is new has nothing to do with it
    fan.raw.xgroup_destroy(fan.stream, "billing")
    await fan.schedule("between")
    assert await audit.names() == ["between"]
    assert await one.names() == ["before", "between"]
    assert await one.names() == []


async def test_a_group_that_was_lost_is_promoted_to(fan: Desk) -> None:
    """Also where no application is there: promoter and reader know of each other's groups."""
    audit, one = fan.reader(group="audit"), fan.reader()
    one.source._known_groups = fan.promotions._known_groups
    await audit.claim()
    assert (await fan.promote()).promoted == 0  # makes the group
    fan.raw.xgroup_destroy(fan.stream, "billing")
    await fan.schedule("between")
    assert await audit.names() == ["between"]
    assert (await fan.promote()).promoted == 0
    assert await one.names() == ["between"]


async def test_a_wait_in_a_group_that_was_lost(fan: Desk) -> None:
    """What waited for another try is no longer pending, and comes as if it were new."""
    one, audit = fan.reader(), fan.reader(group="audit")
    await audit.claim()
    await one.claim()
    await fan.schedule("a")
    await one.settle(await one.one(), Verb.NACK, retry_after=SECOND)
    fan.raw.xgroup_destroy(fan.stream, "billing")
    fan.later(1)
    timer = await one.one()
    assert (timer.timer_id, timer.attempt) == ("a", 1)
    assert await one.settle(timer) is Verdict.OK
    assert one.traces() == (0, 0)


async def test_bounded_by_bytes(fan: Desk) -> None:
    """A claim does not carry many times what it may."""
    one = fan.reader()
    await one.claim()
    timers = [NewTimer(f"t{n:02}", bytes(20_000), NOW - 60 + n) for n in range(60)]
    await fan.store.schedule(fan.topic, timers)
    assert (await fan.promote()).promoted == 60
    got = [await one.names(max_bytes=400_000) for _ in range(4)]
    assert [len(names) for names in got] == [20, 20, 20, 0]
    assert [name for names in got for name in names] == [timer.timer_id for timer in timers]


async def test_large_ones_behind_small_ones(fan: Desk) -> None:
    """The first say nothing of those behind them, and all that is read has to be taken."""
    one = fan.reader()
    one.policy = replace(one.policy, max_payload_bytes=8 << 20)
    await one.claim()
    await fan.store.schedule(fan.topic, [NewTimer(f"s{n:02}", b"", NOW - 90 + n) for n in range(8)])
    for n in range(12):
        await fan.schedule(f"t{n:02}", NOW - 50 + n, bytes(1 << 20))
    fan.policy = replace(fan.policy, max_payload_bytes=8 << 20)
    while (await fan.promote()).promoted:
        pass
    got = [await one.names(max_bytes=1 << 20) for _ in range(3)]
    assert [len(names) for names in got] == [10, 2, 2]


async def test_a_full_redis_drains(fan: Desk) -> None:
    """At its maxmemory timers are promoted, taken, tried again, buried and acknowledged."""
    one = fan.reader()
    await one.claim()
    await fan.schedule("a")
    await fan.schedule("b")
    fan.raw.config_set("maxmemory", 1)
    try:
        first, second = await one.take()
        assert await one.extend(first, received=True) is Verdict.OK
        assert await one.settle(first, Verb.NACK, retry_after=0) is Verdict.OK
        assert await one.settle(second, Verb.REJECT, limits=KEEP) is Reason.REJECTED
        again = await one.one()
        assert await one.settle(again, Verb.RESCHEDULE, again=NewTimer("a", b"", delay=0)) is Verdict.OK
        assert await one.settle(await one.one()) is Verdict.OK
    finally:
        fan.raw.config_set("maxmemory", 0)
    assert fan.raw.xlen(fan.dead) == 1


async def test_many_relays_at_once(fan: Desk) -> None:
    """Whatever the interleaving, each group has each timer once."""
    readers = [fan.reader(f"r{n}", group) for group in ("billing", "audit") for n in range(4)]
    for reader in readers:
        await reader.claim()
    await fan.store.schedule(fan.topic, [NewTimer(f"t{n}", b"", NOW) for n in range(500)])
    found = await asyncio.gather(*(each.names(limit=30) for each in readers for _ in range(6)))
    by_group: dict[str, list[str]] = {"billing": [], "audit": []}
    for n, names in enumerate(found):
        by_group["billing" if n < 24 else "audit"] += names
    expected = sorted(f"t{n}" for n in range(500))
    assert sorted(by_group["billing"]) == sorted(by_group["audit"]) == expected


async def test_a_key_of_another_type(fan: Desk) -> None:
    one = fan.reader()
    await fan.schedule("a")
    fan.raw.set(fan.stream, "theirs")
    with pytest.raises(StoreError, match="holds a string, not a stream"):
        await one.claim()
    assert fan.left()[:2] == (1, 1)
