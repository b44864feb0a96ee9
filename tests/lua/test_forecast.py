"""people/forecast: what falls due, against a count of all timers one by one."""

from __future__ import annotations

import random
from typing import Any

from relay.core.instants import SECOND
from relay.core.outcomes import Verb
from relay.core.partitions import Layout
from relay.core.recurring.forecast import Forecast, Window
from relay.core.timers import Page, TimerState
from relay.store.codec.lease_record import LEASED
from relay.store.partitions.forecasts import RedisForecasts
from relay.store.server.scripts import Call
from relay.store.verbs.people import ForecastReply
from tests.lua.test_recur import put, read, turned, write
from tests.settlements import end_of
from tests.worlds.scripts.asking import N1, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import own, record, score

MINUTE = 60 * SECOND
WINDOW = Window(horizon=10 * MINUTE, resolution=3 * MINUTE)


async def forecast(bench: Bench, window: Window = WINDOW) -> Forecast:
    return await RedisForecasts(bench.redis).read(Layout(bench.topic), window)


async def asked(bench: Bench, most_records: int = 9, most_recurrences: int = 9) -> ForecastReply:
    """The script's own answer, with other bounds."""
    args = ("", WINDOW.horizon, WINDOW.resolution, most_records, most_recurrences, 1 << 20)
    return await bench.redis.call(Call("people/forecast", bench.topic, args, ForecastReply.read))


async def counted(bench: Bench, window: Window) -> Forecast:
    """The same by a look at each timer: when it can be claimed, and whether it is leased until then."""
    page: Page = await bench.store.list(Layout(bench.topic), state=None, limit=500, cursor="")
    assert not page.cursor
    ranged: Any = bench.raw.zrange(bench.timeline, 0, -1, withscores=True)
    scores = dict(ranged)
    timers, overdue, leased, later = [0] * window.intervals, 0, 0, 0
    for each in page.timers:
        if scores[each.timer_id.encode()] <= score(bench.now):
            overdue += 1
        elif each.state is TimerState.LEASED:
            leased += 1
        elif each.next_claim >= bench.now + window.horizon:
            later += 1
        else:
            timers[(each.next_claim - bench.now) // window.resolution] += 1
    return Forecast(bench.now, overdue, leased, tuple(timers), later)


async def test_a_timer_at_each_border_is_counted_once(bench: Bench) -> None:
    """What is due now is overdue; an interval has its first microsecond, and not that behind its last."""
    for n, due in enumerate((NOW - MINUTE, NOW, NOW + 1)):
        bench.put(f"a{n}", score(due))
    for n in range(1, 5):
        at = NOW + min(n * 3 * MINUTE, 10 * MINUTE)
        bench.put(f"b{n}", score(at - 1))
        bench.put(f"c{n}", score(at))
    found = await forecast(bench)
    assert (found.since, found.overdue, found.leased, found.later) == (NOW, 2, 0, 1)
    assert list(found.timers) == [2, 2, 2, 2]
    assert found == await counted(bench, WINDOW)
    assert list((await forecast(bench, Window(MINUTE, 2 * MINUTE))).timers) == [1]


async def test_what_is_leased_is_told_apart(bench: Bench) -> None:
    """It stands in the timeline where its lease ends. One whose lease has run out, one that a publisher has
    given a new time, and one that waits for another attempt are timers like others."""
    deadline = own(NOW + MINUTE)
    held = record(LEASED, deadline, due=score(NOW - SECOND), nonce=N1)
    bench.put("held", deadline, held)
    bench.put(
        "long", own(NOW + 11 * MINUTE), record(LEASED, own(NOW + 11 * MINUTE), due=score(NOW), nonce=N1)
    )
    bench.put("over", own(NOW - 1), record(LEASED, own(NOW - 1), due=score(NOW - SECOND), nonce=N1))
    bench.put("republished", score(NOW + 4 * MINUTE), held)
    bench.put("waiting", score(NOW + MINUTE))
    found = await forecast(bench)
    assert (found.overdue, found.leased, list(found.timers), found.later) == (1, 2, [1, 1, 0, 0], 0)
    assert found == await counted(bench, WINDOW)


async def test_too_many_records_to_tell_leases_apart(bench: Bench) -> None:
    """A leased timer is counted then where its lease ends, and the answer says so."""
    for n, minutes in enumerate((1, 4)):
        assert (await asked(bench, most_records=1)).leased == n
        at = own(NOW + minutes * MINUTE)
        bench.put(f"t{n}", at, record(LEASED, at, due=score(NOW), nonce=N1))
    found = await asked(bench, most_records=1)
    assert (found.leased, list(found.timers)) == (None, [1, 1, 0, 0])
    assert (await forecast(bench)).leased == 2


async def test_what_a_recurrence_has_made_is_no_instant_of_it_any_more(bench: Bench) -> None:
    """One script sees the timeline and the recurrences: before its tick and behind it there is one of each
    instant. Those that come behind the horizon are not read, nor are more than some."""
    kept = await put(bench, "r", NOW + MINUTE)
    await put(bench, "s", NOW + 10 * MINUTE)
    before = await forecast(bench)
    assert (sum(before.timers), [each.recurrence.recurrence_id for each in before.recurrences]) == (0, ["r"])
    bench.now = NOW + MINUTE
    await write(bench, turned(kept, bench.now))
    found = await forecast(bench)
    assert found.overdue == 1
    assert [each.standing.next for each in found.recurrences] == [NOW + 2 * MINUTE, NOW + 10 * MINUTE]
    assert found.until is None
    assert (await read(bench)).standing == found.recurrences[0].standing


async def test_few_recurrences_are_read(bench: Bench) -> None:
    """The forecast says from when on some are missing."""
    for minutes in (3, 1, 2):
        await put(bench, f"r{minutes}", NOW + minutes * MINUTE)
    found = await asked(bench, most_recurrences=2)
    assert [name.decode() for name in found.recurrences[::4]] == ["r1", "r2"]
    assert found.until == NOW + 3 * MINUTE


async def test_any_topic(bench: Bench) -> None:
    """Timers of any times, of which some are delivered, fail, are released, are cancelled: at each step the
    forecast is what a look at each of them says, to the microsecond."""
    for seed in range(12):
        await a_topic(bench, random.Random(seed))


async def a_topic(bench: Bench, chance: random.Random) -> None:
    horizon = chance.choice([SECOND, 7 * SECOND + 1, MINUTE, 400 * MINUTE])
    window = Window(horizon, chance.choice([horizon, horizon // 3, horizon // 7 + 1, horizon // 499 + 1]))
    names = [f"t{n}" for n in range(30)]
    for step in range(8):
        for name in chance.sample(names, 12):
            edge = chance.randrange(-1, window.intervals + 2) * window.resolution
            await bench.schedule(name, bench.now + edge + chance.choice([-1, 0, 1, chance.randrange(SECOND)]))
        nonce = bytes([step + 1]) * 16
        claim = await bench.claim(
            nonce, limit=5, lease=chance.choice([1, horizon // 2, horizon, 2 * horizon])
        )
        verbs = {
            each.timer_id: chance.choice([None, Verb.ACK, Verb.NACK, Verb.RELEASE]) for each in claim.timers
        }
        ends = [
            end_of(name, nonce, verb, retry_after=chance.randrange(1, horizon) if verb is Verb.NACK else None)
            for name, verb in verbs.items()
            if verb is not None
        ]
        if ends:
            await bench.store.settle(bench.topic, ends)
        await bench.store.cancel(bench.topic, chance.sample(names, 2))
        assert await forecast(bench, window) == await counted(bench, window)
        bench.now += chance.choice([0, 1, window.resolution, horizon // 2])
