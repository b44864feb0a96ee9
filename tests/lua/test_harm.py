"""Servers and keys that misbehave: a full Redis, a clock that steps back, a wrong type under a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from relay.core.errors import StoreError, StoreFull, WrongKeyType
from relay.core.instants import LATEST, SECOND
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Limits, Verb, Verdict
from relay.core.partitions import Layout
from relay.core.timers import KEEP_EXISTING, Change, Changed, Condition, NewTimer
from relay.store.codec.lease_record import LEASED, PENDING
from relay.store.server.manifest import manifest
from relay.store.timeline.clocks import RedisClocks
from relay.store.verbs import timeline
from tests.settlements import end_of
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, Letter, alone, own, record, score

HOUR = 3600 * SECOND
DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1)
LETTER = Letter("a", "rejected", 1, 1, DUE, NOW, N1)

REQUEST = ClaimRequest(limit=1, lease=LEASE, nonce=N1, max_bytes=1)

Call = Callable[[Bench], Awaitable[object]]
CALLS: dict[str, Call] = {
    "timeline/schedule": lambda bench: bench.store.schedule(bench.topic, [NewTimer("a", b"x", due=NOW)]),
    "timeline/cancel": lambda bench: bench.store.cancel(bench.topic, ["a"]),
    "timeline/get": lambda bench: bench.store.get(bench.topic, "a"),
    "timeline/list": lambda bench: bench.store.list(Layout(bench.topic), state=None, limit=5, cursor=""),
    "timeline/claim": lambda bench: bench.claim(N2),
    "timeline/claimed": lambda bench: bench.store.claimed(bench.topic, REQUEST, since=NOW, until=NOW),
    "timeline/settle": lambda bench: bench.settle("a", N1, Verb.ACK),
    "timeline/extend": lambda bench: bench.extend("a", N1),
    "timeline/ahead": lambda bench: bench.redis.call(timeline.ahead(bench.topic, LEASE, "0", 5)),
    "timeline/recall": lambda bench: RedisClocks(bench.redis).recall(
        bench.topic, {"a": None}, lease=LEASE, back=0, limits=NO_LIMITS
    ),
    "timeline/run": lambda bench: bench.store.run(bench.topic, ["a"]),
    "people/letters": lambda bench: bench.topics.dead_page(bench.topic, limit=5, cursor=""),
    "people/redrive": lambda bench: bench.topics.redrive(bench.topic, ["1-0"]),
    "people/purge": lambda bench: bench.topics.purge(bench.topic, ["1-0"]),
    "people/trim": lambda bench: bench.topics.trim(bench.topic, max_count=1, max_age=1),
    "people/stats": lambda bench: bench.topics.stats(bench.topic),
    "people/pause": lambda bench: bench.topics.pause(bench.topic),
    "timeline/orphans": lambda bench: bench.topics.orphans(bench.topic, limit=5),
    "timeline/repair": lambda bench: bench.topics.repair(bench.topic, ["a"]),
}
TAKEN = [
    (verb, broken) for verb in CALLS for broken in range(len(manifest(verb).keys.keys() - {"marks", "cold"}))
]
"""Each verb and each of the keys that it takes, but for those that loads and sweeps write."""
TYPES = ("zset", "hash", "hash", "stream", "string")


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
        assert await bench.store.cancel(bench.topic, ["a"]) == [Changed(Change.CANCELLED)]
    bench.now = NOW + HOUR
    with bench.full():
        assert (await bench.claim(N2)).orphans == ("orphan",)
    assert bench.state() == EMPTY


async def test_a_conditional_call_that_stores_nothing(bench: Bench) -> None:
    """It needs no memory, so it is answered."""
    bench.put("a", DUE)
    timers = [
        NewTimer("a", b"x", NOW, intent=KEEP_EXISTING),
        NewTimer("b", b"", NOW, condition=Condition(due=NOW)),
    ]
    with bench.full():
        results = await bench.store.schedule(bench.topic, timers)
        with pytest.raises(StoreFull):
            await bench.store.schedule(bench.topic, [*timers, NewTimer("c", b"x", NOW, expires=NOW + 1)])
    assert [each.change for each in results] == [Change.UNCHANGED, Change.GONE]
    assert bench.state() == alone("a", DUE)


async def test_deaths(bench: Bench) -> None:
    """A full Redis takes dead letters: by REJECT, by the last NACK, and at a claim."""
    limits = Limits(max_attempts=1, keep=True, keep_expired=True)
    for timer_id in ("reject", "nack"):
        bench.put(timer_id, DEADLINE, HELD)
    bench.put("lapsed", own(NOW - 1), HELD._replace(score=own(NOW - 1), received=1))
    bench.put("expired", DUE, HELD._replace(score=DUE, state=PENDING, expires=DUE))
    with bench.full():
        await bench.settle("reject", N1, Verb.REJECT, limits=limits)
        await bench.settle("nack", N1, Verb.NACK, limits=limits)
        claim = await bench.claim(N2, limits=limits)
    assert sorted(claim.deaths) == [("expired", "expired"), ("lapsed", "attempts")]
    state = bench.state()
    assert [letter.timer_id for letter in state.dead] == ["reject", "nack", "expired", "lapsed"]
    assert state._replace(dead=()) == EMPTY


async def test_the_next_period(bench: Bench) -> None:
    """A full Redis costs no periodic timer, with a new payload either."""
    for timer_id in ("a", "b"):
        bench.put(timer_id, DEADLINE, HELD)
    with bench.full():
        for timer_id, new_content in (("a", False), ("b", True)):
            again = NewTimer(timer_id, b"new", delay=SECOND)
            answer = await bench.settle(timer_id, N1, Verb.RESCHEDULE, again=again, new_content=new_content)
            assert answer is Verdict.OK
    assert bench.state().timeline == dict.fromkeys("ab", score(NOW + SECOND))


async def test_what_people_do_to_a_full_redis(bench: Bench) -> None:
    """Run, redrive, purge, trim, pause, resume and repair work; whoever must wait may wait."""
    bench.put("a", score(NOW + LEASE))
    bench.put_payload("orphan")
    names = [bench.put_letter(LETTER._replace(timer_id=f"t{n}"), f"{n + 1}-0") for n in range(3)]
    with bench.full():
        assert await bench.store.run(bench.topic, ["a"]) == [Changed(Change.RUN)]
        assert await bench.topics.redrive(bench.topic, names[:1]) == [Change.RUN]
        assert await bench.topics.purge(bench.topic, names[1:2]) == 1
        assert await bench.topics.pause(bench.topic, duration=SECOND) == NOW + SECOND
        assert await bench.topics.pause(bench.topic) == LATEST
        assert (await bench.topics.stats(bench.topic)).timers == 2
        assert await bench.topics.trim(bench.topic, max_count=1, max_age=1) == 1
        assert await bench.topics.repair(bench.topic, ["orphan"]) == (1, 0)
        await bench.topics.resume(bench.topic)
    state = bench.state()
    assert (set(state.timeline), state.dead, state.pause) == ({"a", "t0"}, (), None)


async def test_what_a_full_redis_refuses(bench: Bench) -> None:
    """The registry and the lock grow, so they have to wait."""
    with bench.full():
        with pytest.raises(StoreFull):
            await bench.topics.register(bench.topic)
        with pytest.raises(StoreFull):
            await bench.topics.lock(bench.topic, ttl=SECOND)
    assert await bench.topics.topics() == []


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


@pytest.mark.parametrize(("verb", "broken"), TAKEN)
async def test_a_wrong_type(bench: Bench, verb: str, broken: int) -> None:
    """Each verb names the key and its type, and writes nothing under any key."""
    bench.put("a", DUE, HELD)
    bench.put_letter(LETTER, "1-0")
    bench.put_letter(LETTER, "2-0")
    bench.raw.delete(bench.keys[broken])
    bench.raw.rpush(bench.keys[broken], "somebody else's")
    before = [bench.raw.dump(key) for key in bench.keys]
    with pytest.raises(StoreError) as refusal:
        await CALLS[verb](bench)
    assert refusal.type is WrongKeyType
    assert f"{bench.keys[broken]} holds a list, not a {TYPES[broken]}" in str(refusal.value)
    assert [bench.raw.dump(key) for key in bench.keys] == before


async def test_a_wrong_type_under_the_dead(bench: Bench) -> None:
    """Reading one dead letter is a plain command, and says the same."""
    bench.raw.rpush(bench.dead, "somebody else's")
    with pytest.raises(WrongKeyType, match="another key prefix"):
        await bench.topics.dead_letter(bench.topic, "1-0")


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


async def test_a_hint_that_is_refused(bench: Bench) -> None:
    """A user that may not publish: the call does all the rest, and why there was no hint is told."""
    for bench.keep in (0, 9):
        with bench.mute():
            try:
                await bench.store.schedule(bench.topic, [NewTimer("a", b"x", due=NOW - bench.keep)])
            except StoreError as failure:
                pytest.fail(str(failure))
        (reason,) = bench.unheard
        assert "permission" in reason or "can't run this command" in reason
        bench.unheard.clear()
        assert set(bench.state().payloads) == {"a"}
        await bench.store.schedule(bench.topic, [NewTimer("a", b"x", due=NOW - bench.keep - 1)])
        assert bench.unheard == []


async def test_no_hint_from_claims_renewals_and_cancels(bench: Bench) -> None:
    """None of them makes the head earlier."""
    bench.put("a", DUE)
    bench.put("b", DUE)
    with bench.listening() as ear:
        await bench.claim(N1)
        await bench.extend("a", N1)
        await bench.store.cancel(bench.topic, ["a"])
        await bench.store.settle(bench.topic, [end_of("b", N2, Verb.RELEASE)])
        assert ear.heard() == []
