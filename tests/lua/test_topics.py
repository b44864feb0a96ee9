"""people/pause, people/stats, timeline/orphans, timeline/repair: what people and the janitor do to topics."""

from __future__ import annotations

from relay.core.instants import LATEST, SECOND
from relay.core.outcomes import Limits, Verb, Verdict
from relay.core.timers import TopicStats
from relay.store.codec.lease_record import LEASED, PENDING
from relay.store.server.server import Server
from relay.store.timeline.topics import RedisTopics
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, Letter, State, alone, own, record, score

DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1)
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


# --------------------------------------------------------------------------------- pause


async def test_nothing_is_claimed_of_a_paused_topic(bench: Bench) -> None:
    """Until the instant given, to the microsecond; the claim says why and writes nothing."""
    bench.put("a", DUE)
    assert await bench.topics.pause(bench.topic, until=NOW + MINUTE) == NOW + MINUTE
    before = bench.state()
    assert before == alone("a", DUE)._replace(pause=NOW + MINUTE)
    for instant in (NOW, NOW + MINUTE - 1):
        bench.now = instant
        claim = await bench.claim(N1)
        assert (list(claim.timers), claim.paused_until, claim.next) == ([], NOW + MINUTE, NOW - SECOND)
        assert bench.state() == before
    bench.now = NOW + MINUTE
    claim = await bench.claim(N1)
    assert ([timer.timer_id for timer in claim.timers], claim.paused_until) == (["a"], None)


async def test_a_pause_without_an_end(bench: Bench) -> None:
    """It lasts until resume."""
    bench.put("a", DUE)
    assert await bench.topics.pause(bench.topic) == LATEST
    bench.now = NOW + 100_000 * HOUR
    assert await bench.claimed() == []
    await bench.topics.resume(bench.topic)
    assert bench.state() == alone("a", DUE)
    assert await bench.claimed() == ["a"]


async def test_a_pause_for_a_while(bench: Bench) -> None:
    """It counts from the server's now; the later word stands, also where it is shorter."""
    assert await bench.topics.pause(bench.topic, duration=HOUR) == NOW + HOUR
    assert await bench.topics.pause(bench.topic, duration=MINUTE) == NOW + MINUTE
    assert bench.state().pause == NOW + MINUTE


async def test_a_pause_until_the_past(bench: Bench) -> None:
    """It is none, and changes nothing: what is refused must not end the pause that stands."""
    for until in (0, NOW - 1, NOW):
        assert await bench.topics.pause(bench.topic, until=until) is None
    assert await bench.topics.pause(bench.topic, duration=0) is None
    assert bench.state() == EMPTY
    await bench.topics.pause(bench.topic, duration=HOUR)
    for until in (0, NOW - 1, NOW):
        assert await bench.topics.pause(bench.topic, until=until) is None
    assert await bench.topics.pause(bench.topic, duration=0) is None
    assert bench.state().pause == NOW + HOUR


async def test_a_pause_beyond_all_time(bench: Bench) -> None:
    """It ends with the year 9999, as far as instants go over the wire."""
    assert await bench.topics.pause(bench.topic, duration=LATEST) == LATEST


async def test_a_pause_where_nothing_is_due(bench: Bench) -> None:
    """A claim that leaves nothing says nothing of it."""
    bench.put("a", score(NOW + SECOND))
    await bench.topics.pause(bench.topic, duration=HOUR)
    assert (await bench.claim()).paused_until is None


async def test_what_is_in_flight_goes_on(bench: Bench) -> None:
    """Leases are renewed and settled; what comes back, and what lapses, waits, and counts later."""
    for timer_id in ("ack", "nack", "lapse"):
        bench.put(timer_id, DEADLINE, HELD)
    await bench.topics.pause(bench.topic, duration=HOUR)
    assert await bench.extend("lapse", N1, received=True) is Verdict.OK
    assert await bench.settle("ack", N1, Verb.ACK) is Verdict.OK
    assert await bench.settle("nack", N1, Verb.NACK, retry_after=0) is Verdict.OK
    bench.now = NOW + HOUR - 1
    claim = await bench.claim(N2, limits=Limits(max_attempts=1))
    assert (list(claim.timers), claim.deaths) == ([], ())
    bench.now += 1
    claim = await bench.claim(N2, limits=Limits(max_attempts=1))
    assert {timer_id for timer_id, _ in claim.deaths} == {"nack", "lapse"}


async def test_a_pause_and_a_clock_that_steps_back(bench: Bench) -> None:
    """It lasts until the clock says its end again, and a resume ends it at once."""
    bench.put("a", DUE)
    await bench.topics.pause(bench.topic, duration=MINUTE)
    bench.now = NOW + MINUTE
    bench.now = NOW - SECOND
    assert (await bench.claim()).paused_until == NOW + MINUTE
    await bench.topics.resume(bench.topic)
    assert await bench.claimed() == ["a"]


async def test_a_pause_ends_by_itself_in_redis(bench: Bench) -> None:
    """The key goes with the pause, so that no topic leaves one behind."""
    async with Server(bench.server.url, timeout=60.0) as server:  # whose texts go by the server's own clock
        until = await RedisTopics(server).pause(bench.topic, duration=HOUR)
    assert until is not None
    lives = bench.raw.pttl(bench.pause)
    seconds, micros = bench.raw.time()  # after it, or a slow machine makes the key seem short-lived
    left = until // 1000 - (seconds * 1000 + micros // 1000)
    assert left - 1 <= lives <= HOUR // 1000 + 1


async def test_resume_wakes_everybody(bench: Bench) -> None:
    """Pollers that wait for the end of the pause are told to look at once; an empty topic tells nobody."""
    channel = f"timers_wake:{bench.topic}"
    with bench.listening() as ear:
        await bench.run("people/pause", channel, "in", MINUTE)
        await bench.run("people/pause", channel, "end", 0)
        assert ear.heard() == []
        bench.put("a", DUE)
        await bench.run("people/pause", channel, "in", MINUTE)
        assert ear.heard() == []
        await bench.run("people/pause", channel, "end", 0)
        assert ear.heard() == [0.0]


async def test_somebody_else_wrote_the_pause(bench: Bench) -> None:
    """What is no instant there pauses nothing."""
    bench.put("a", DUE)
    bench.raw.set(bench.pause, "soon")
    before = bench.raw.dump(bench.timeline)
    claim = await bench.claim()
    assert ([timer.timer_id for timer in claim.timers], claim.paused_until) == (["a"], None)
    assert bench.raw.dump(bench.timeline) != before
    assert (await bench.topics.stats(bench.topic)).paused_until is None


# --------------------------------------------------------------------------------- stats


async def test_stats(bench: Bench) -> None:
    """How many there are, how many due, the next claim, the dead and the oldest of them, the pause, and how
    many come within a minute, an hour and a day."""
    assert await bench.topics.stats(bench.topic) == TopicStats(bench.topic, NOW, 0, 0, None, 0, None, None)
    bench.put("due", DUE)
    bench.put("now", score(NOW))
    bench.put("later", score(NOW + 1))
    bench.put("held", DEADLINE, HELD)
    bench.put("hour", score(NOW + HOUR))
    bench.put("day", score(NOW + HOUR + 1))
    for n in (5, 7):
        bench.put_letter(Letter("a", "rejected", 1, 1, DUE, NOW, N1), f"{NOW // 1000 + n}-0")
    await bench.topics.pause(bench.topic, duration=HOUR)
    before = bench.state()
    died = (NOW // 1000 + 5) * 1000
    assert await bench.topics.stats(bench.topic) == TopicStats(
        bench.topic, NOW, 6, 2, NOW - SECOND, 2, died, NOW + HOUR, coming=(2, 3, 4)
    )
    assert bench.state() == before
    bench.now = NOW + HOUR
    assert (await bench.topics.stats(bench.topic)).paused_until is None


# ------------------------------------------------------------------- orphans and repair


async def found(bench: Bench, limit: int = 10) -> list[str]:
    """All orphans, once round."""
    names: list[str] = []
    for _ in range(10_000):
        part, done = await bench.topics.orphans(bench.topic, limit=limit)
        names += part
        if done:
            return names
    raise AssertionError("it goes round for ever")


async def test_orphans_are_found(bench: Bench) -> None:
    """Payloads and records that have no timer, whatever their ids; looking changes nothing."""
    for n in range(20):
        bench.put(f"whole{n}", DUE, HELD)
    bench.put("parked", DUE, stored=None)
    bench.put_payload("payload")
    bench.put_record("record", bytes(69))
    bench.put_payload(b"\xff")
    bench.put_record("both", bytes(69))
    bench.put_payload("both")
    before = [bench.raw.dump(key) for key in bench.keys]
    assert sorted(await found(bench)) == ["both", "both", "payload", "record", "\udcff"]
    assert [bench.raw.dump(key) for key in bench.keys] == before


async def test_an_empty_topic_has_no_orphans(bench: Bench) -> None:
    """Nor does one that is whole."""
    assert await found(bench) == []
    bench.put("a", DUE, HELD)
    assert await found(bench) == []


async def test_large_topics_are_searched_by_parts(bench: Bench) -> None:
    """Each call looks at about as many as asked for; together they see all, more than 500 in a reply too."""
    with bench.raw.pipeline(transaction=False) as pipe:
        for n in range(3000):
            pipe.hset(bench.payloads, f"{n:04}", b"x")
            if n % 10:
                pipe.zadd(bench.timeline, {f"{n:04}": DUE})
        pipe.execute()
    parts = []
    while True:
        names, done = await bench.topics.orphans(bench.topic, limit=100)
        parts.append(names)
        if done:
            break
    assert len(parts) > 10
    assert sorted({name for names in parts for name in names}) == [f"{n:04}" for n in range(0, 3000, 10)]
    assert set(await found(bench, limit=5000)) == {f"{n:04}" for n in range(0, 3000, 10)}


async def test_repair(bench: Bench) -> None:
    """What is an orphan still goes and is counted; what has become a timer, or ever was one, stays."""
    bench.put("a", DUE, HELD)
    for timer_id in ("a", "b", "c"):
        bench.put_payload(timer_id)
    bench.put_record("c", bytes(69))
    bench.put("late", DUE)
    assert await bench.topics.repair(bench.topic, ["late", "a", "b", "c", "nobody"]) == (2, 1)
    assert bench.state() == State({"a": DUE, "late": DUE}, {"a": ENVELOPE, "late": ENVELOPE}, {"a": HELD})
    assert await bench.topics.repair(bench.topic, ["a"]) == (0, 0)


async def test_repair_of_ids_that_are_not_utf8(bench: Bench) -> None:
    """They go by the bytes that they have."""
    bench.put_payload(b"\xff;\x00")
    assert await bench.topics.repair(bench.topic, await found(bench)) == (1, 0)
    assert bench.state() == EMPTY


async def test_the_record_of_a_foreign_commit(bench: Bench) -> None:
    """It is garbage by then, and repaired; until then it does no harm to what is published anew."""
    bench.put("a", DUE)
    await bench.claim(N1)
    bench.raw.zrem(bench.timeline, "a")
    bench.raw.hdel(bench.payloads, "a")
    orphans = await found(bench)
    bench.put("a", score(NOW + 7))
    assert await bench.topics.repair(bench.topic, orphans) == (0, 0)
    assert await bench.settle("a", N1, Verb.ACK) is Verdict.STALE
    bench.raw.zrem(bench.timeline, "a")
    assert await bench.topics.repair(bench.topic, orphans) == (1, 1)
    assert bench.state() == EMPTY


async def test_a_timer_without_payload_is_the_claims(bench: Bench) -> None:
    """An orphan of the other kind is parked and removed by claims, and no look for orphans touches it."""
    bench.put("a", DUE, record(PENDING, DUE, due=DUE), stored=None)
    assert await found(bench) == []
    assert await bench.topics.repair(bench.topic, ["a"]) == (0, 0)
    assert bench.state().timeline == {"a": DUE}
