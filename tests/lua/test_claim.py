"""timeline/claim.lua: what is taken, and what a claim leaves behind."""

from __future__ import annotations

import math
from itertools import takewhile

from relay.core.instants import SECOND
from relay.core.outcomes import ClaimRequest
from relay.store.codec import envelope
from relay.store.codec.lease_record import LEASED, PENDING
from relay.store.timeline.redis_store import RedisStore
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, ENVELOPE, State, alone, own, record, score

DUE = score(NOW - SECOND)
LAPSED = own(NOW - 1)


async def test_a_due_timer_is_leased(bench: Bench) -> None:
    """The score moves to the lease's end, and the record keeps nonce, due time and occurrence."""
    bench.put("a", DUE)
    claim = await bench.claim(N1)
    (timer,) = claim.timers
    assert (timer.timer_id, timer.payload, timer.due, timer.attempt) == ("a", b"payload", NOW - SECOND, 1)
    assert (timer.approximate, timer.suspect, timer.readable) == (False, False, True)
    assert (claim.now, claim.deadline, claim.next) == (NOW, NOW + LEASE, NOW + LEASE)
    deadline = own(NOW + LEASE)
    assert bench.state() == alone("a", deadline, record(LEASED, deadline, due=DUE, nonce=N1))


async def test_never_before_the_due_time(bench: Bench) -> None:
    """One microsecond early nothing is taken or written; at the due time it is."""
    bench.put("a", score(NOW))
    bench.now = NOW - 1
    claim = await bench.claim()
    assert (list(claim.timers), claim.next) == ([], NOW)
    assert bench.state() == alone("a", score(NOW))
    bench.now = NOW
    assert await bench.claimed() == ["a"]


async def test_an_empty_topic(bench: Bench) -> None:
    """There is nothing to take and no next timer."""
    claim = await bench.claim()
    assert (list(claim.timers), claim.now, claim.next, claim.parked, claim.orphans) == ([], NOW, None, 0, ())
    assert bench.state() == EMPTY


async def test_the_earliest_first_up_to_the_limit(bench: Bench) -> None:
    """The rest stays untouched, and `next` is the first of it."""
    for n in range(5):
        bench.put(f"t{n}", score(NOW - n * SECOND))
    claim = await bench.claim(limit=3)
    assert [timer.timer_id for timer in claim.timers] == ["t4", "t3", "t2"]
    assert claim.next == NOW - SECOND
    state = bench.state()
    assert set(state.leases) == {"t4", "t3", "t2"}
    assert (state.timeline["t1"], state.timeline["t0"]) == (score(NOW - SECOND), score(NOW))


async def test_equal_scores_in_the_order_of_ids(bench: Bench) -> None:
    """Ties are broken by the bytes of the ids."""
    for timer_id in ("b", "a", "B", "é"):
        bench.put(timer_id, DUE)
    assert await bench.claimed() == ["B", "a", "b", "é"]


async def test_the_byte_bound(bench: Bench) -> None:
    """A claim stops before the timer that would exceed the bytes; the first goes whatever its size."""
    big = envelope.encode(b"x" * 1000, {}, "")
    for n in range(4):
        bench.put(f"t{n}", score(NOW - 4 + n), stored=big)
    assert await bench.claimed(N1, max_bytes=2 * len(big)) == ["t0", "t1"]
    assert bench.state().timeline["t2"] == score(NOW - 2)
    assert await bench.claimed(N2, max_bytes=10) == ["t2"]


async def test_few_payloads_are_read_in_vain(bench: Bench) -> None:
    """However many timers are due, only as many as fit, and one more: the server copies what is read."""
    big = envelope.encode(b"x" * 1000, {}, "")
    for n in range(40):
        bench.put(f"t{n:02}", score(NOW - 40 + n), stored=big)
    with bench.raw.monitor() as monitor:
        assert len(await bench.claimed(N1, max_bytes=2 * len(big))) == 2
        bench.raw.echo("that was it")
        commands = takewhile(lambda told: "that was it" not in told["command"], monitor.listen())
        reads = [told["command"].split() for told in commands if bench.payloads in told["command"]]
    assert sum(len(words) - 2 for words in reads if words[0] == "HMGET") == 3


async def test_few_are_read_in_vain_behind_a_small_one(bench: Bench) -> None:
    """The first says nothing of those behind it: no more are read at a time than may be 16 MiB."""
    store = RedisStore(bench.redis, largest=lambda _: 4 << 20)
    bench.put("t00", score(NOW - 41), stored=b"")
    for n in range(1, 40):
        bench.put(f"t{n:02}", score(NOW - 40 + n), stored=b"x" * 1000)
    with bench.raw.monitor() as monitor:
        claim = await store.claim(bench.topic, ClaimRequest(limit=100, lease=LEASE, nonce=N1, max_bytes=2000))
        bench.raw.echo("that was it")
        commands = takewhile(lambda told: "that was it" not in told["command"], monitor.listen())
        reads = [told["command"].split() for told in commands if bench.payloads in told["command"]]
    assert len(claim.timers) == 3
    assert [len(words) - 2 for words in reads if words[0] == "HMGET"] == [1, 4]


async def test_large_payloads_behind_small_ones(bench: Bench) -> None:
    """What was read and does not fit stays where it is."""
    for n in range(40):
        bench.put(
            f"t{n:02}", score(NOW - 40 + n), stored=envelope.encode(b"x" * (1000 if n > 3 else 1), {}, "")
        )
    assert len(await bench.claimed(N1, max_bytes=5000)) == 8
    assert len(bench.state().leases) == 8
    assert len(await bench.claimed(N2, max_bytes=50_000)) == 32


async def test_five_hundred_in_one_call(bench: Bench) -> None:
    """The most that a call may take is taken in one."""
    for n in range(501):
        bench.put(f"t{n:03}", DUE)
    assert await bench.claimed(limit=500) == [f"t{n:03}" for n in range(500)]
    assert len(bench.state().leases) == 500


async def test_a_live_lease_is_not_taken(bench: Bench) -> None:
    """Until its deadline a leased timer is nobody else's, to the microsecond."""
    bench.put("a", DUE)
    await bench.claim(N1)
    before = bench.state()
    bench.now = NOW + LEASE
    assert await bench.claimed(N2) == []
    assert bench.state() == before
    bench.now += 1
    assert await bench.claimed(N2) == ["a"]


async def test_a_lapse_without_receipt_counts_nothing(bench: Bench) -> None:
    """Nobody received the call, so the attempt is the first again; occurrence and due time stay."""
    bench.put("a", LAPSED, record(LEASED, LAPSED, due=DUE, nonce=N1, attempts=2, claims=5))
    (timer,) = (await bench.claim(N2)).timers
    assert (timer.attempt, timer.suspect, timer.due) == (3, False, NOW - SECOND)
    assert timer.occurrence_id == f"a/{N1.hex()}"
    deadline = own(NOW + LEASE)
    kept = record(LEASED, deadline, due=DUE, nonce=N2, attempts=2, claims=6, occurrence=N1)
    assert bench.state() == alone("a", deadline, kept)


async def test_a_lapse_after_a_receipt_counts(bench: Bench) -> None:
    """What may have killed its application has used up an attempt. Whether it goes alone: test_losses.py."""
    bench.put("a", LAPSED, record(LEASED, LAPSED, due=DUE, nonce=N1, received=1))
    (timer,) = (await bench.claim(N2)).timers
    assert (timer.attempt, timer.suspect) == (2, False)
    deadline = own(NOW + LEASE)
    kept = record(LEASED, deadline, due=DUE, nonce=N2, attempts=1, claims=2)
    assert bench.state() == alone("a", deadline, kept)


async def test_a_suspect_stays_one_until_it_is_settled(bench: Bench) -> None:
    """A lapse without receipt does not clear the flag."""
    bench.put("a", LAPSED, record(LEASED, LAPSED, due=DUE, nonce=N1, suspect=1))
    (timer,) = (await bench.claim(N2)).timers
    assert timer.suspect


async def test_a_timer_after_a_back_off(bench: Bench) -> None:
    """Attempts, due time and occurrence survive."""
    bench.put("a", LAPSED, record(PENDING, LAPSED, due=DUE, attempts=4, claims=4, occurrence=N1))
    (timer,) = (await bench.claim(N2)).timers
    assert (timer.attempt, timer.due, timer.occurrence_id) == (5, NOW - SECOND, f"a/{N1.hex()}")
    deadline = own(NOW + LEASE)
    kept = record(LEASED, deadline, due=DUE, nonce=N2, attempts=4, claims=5, occurrence=N1)
    assert bench.state() == alone("a", deadline, kept)


async def test_every_digit_of_a_due_time(bench: Bench) -> None:
    """Scores are written with all the digits of a double, into the timeline and into the record."""
    due = score(NOW - 876_543)
    bench.put("a", due)
    bench.now = NOW + 123_457
    claim = await bench.claim(lease=LEASE + 1)
    deadline = own(NOW + 123_457 + LEASE + 1)
    assert claim.timers[0].due == NOW - 876_543
    assert claim.deadline == claim.next == NOW + 123_457 + LEASE + 1
    assert bench.state() == alone("a", deadline, record(LEASED, deadline, due=due, nonce=N1))


async def test_scores_that_no_clock_shows(bench: Bench) -> None:
    """Minus infinity and negative scores are due since 1970; infinity never is."""
    bench.put("low", float("-inf"))
    bench.put("negative", -5.0)
    bench.put("high", float("inf"))
    timers = (await bench.claim()).timers
    assert [(timer.timer_id, timer.due) for timer in timers] == [("low", 0), ("negative", 0)]
    deadline = own(NOW + LEASE)
    lease = record(LEASED, deadline, due=0.0, nonce=N1)
    assert bench.state() == State(
        {"low": deadline, "negative": deadline, "high": float("inf")},
        dict.fromkeys(("low", "negative", "high"), ENVELOPE),
        {"low": lease, "negative": lease},
    )


async def test_ids_that_foreign_writers_may_choose(bench: Bench) -> None:
    """An id that is not UTF-8 and an empty one are leased like others, and can be settled."""
    bench.put(b"\xff\xfe", DUE)
    bench.put("", DUE)
    timers = {timer.timer_id: timer.readable for timer in (await bench.claim()).timers}
    assert timers == {"\udcff\udcfe": False, "": True}
    deadline = own(NOW + LEASE)
    lease = record(LEASED, deadline, due=DUE, nonce=N1)
    ids = ("\udcff\udcfe", "")
    expected = State(dict.fromkeys(ids, deadline), dict.fromkeys(ids, ENVELOPE), dict.fromkeys(ids, lease))
    assert bench.state() == expected


async def test_records_that_cannot_be_read(bench: Bench) -> None:
    """One of another size or an older version counts as none, and is replaced."""
    bench.put("cut", DUE)
    bench.put_record("cut", b"\x01\x01short")
    bench.put("new", DUE, record(LEASED, DUE, due=DUE, nonce=N2, attempts=7)._replace(version=1))
    assert [timer.attempt for timer in (await bench.claim(N1)).timers] == [1, 1]
    deadline = own(NOW + LEASE)
    lease = record(LEASED, deadline, due=DUE, nonce=N1)
    assert bench.state().leases == {"cut": lease, "new": lease}


async def test_what_lies_around_does_no_harm(bench: Bench) -> None:
    """A payload and a record without a timer are neither delivered nor touched."""
    bench.put("a", DUE)
    bench.put_payload("lonely")
    stray = record(LEASED, LAPSED, due=DUE, nonce=N2)
    bench.put("gone", LAPSED, stray, stored=None)
    bench.raw.zrem(bench.timeline, "gone")
    assert await bench.claimed(N1) == ["a"]
    state = bench.state()
    assert (state.payloads["lonely"], state.leases["gone"]) == (ENVELOPE, stray)


async def test_records_with_odd_numbers(bench: Bench) -> None:
    """Foreign writers reach them: an attempt has to fit into the message, and what is no time is some time.
    Those beside them are claimed as ever."""
    bench.put("a", LAPSED, record(PENDING, LAPSED, due=DUE))
    bench.put("b", LAPSED, record(PENDING, LAPSED, due=math.nan, attempts=7))
    bench.put("c", LAPSED, record(PENDING, LAPSED, due=DUE, attempts=0xFFFFFFFE))
    timers = (await bench.claim(N1)).timers
    assert [(timer.timer_id, timer.due, timer.attempt) for timer in timers] == [
        ("a", NOW - SECOND, 1),
        ("b", 0, 8),
        ("c", NOW - SECOND, 0xFFFFFFFF),
    ]
