"""Many concurrent calls become few store calls, and none harms another."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from relay.core.errors import GivenUp, InvalidField, ServiceError, StoreUnavailable, TooMany
from relay.core.loop.call_ends import CallEnds, call_deadline
from relay.core.trust.principals import Principal, caller
from relay.engine.clock import Clock, SystemClock
from relay.engine.coalescing.coalescer import Coalescer
from relay.engine.coalescing.lane import AT_ONCE, CROWD, LINGER, LINGER_EACH, MAX_BYTES
from tests.worlds.engine.doubles import Doors, GatedPlaces
from tests.worlds.engine.fake_clock import FakeClock, settle


def chained(parts: Sequence[list[str]]) -> list[str]:
    return [item for part in parts for item in part]


class Store:
    """Writes strings; refuses `bad`, and does not return while `open` is not set."""

    def __init__(self, clock: Clock, most: int = 0) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.deadlines: list[list[float]] = []
        """Those of each call."""
        self.bounds: list[float] = []
        """Until when each call was made itself."""
        self.principals: list[str] = []
        """For whom each call was made."""
        self.open = asyncio.Event()
        self.open.set()
        self.slow_from = 1
        self.error: Exception | None = None
        self.lost = 0
        self.given_up: set[str] = set()
        self.places = GatedPlaces(Doors())
        self.coalescer: Coalescer[list[str], str] = Coalescer(
            self.write, self.sizes, list, chained, clock, self.places, most=most
        )
        self.weighed = 0

    def sizes(self, items: Sequence[str]) -> list[int]:
        self.weighed += len(items)
        return [len(item) for item in items]

    async def write(
        self, topic: str, items: Sequence[str], deadlines: Sequence[float]
    ) -> list[str | ServiceError]:
        self.calls.append((topic, list(items)))
        self.deadlines.append(list(deadlines))
        self.bounds.append(call_deadline())
        self.principals.append(caller.get().name)
        if len(self.calls) >= self.slow_from:
            await self.open.wait()
        if self.error is not None:
            raise self.error
        if "bad" in items:
            raise InvalidField("item", "is bad")
        told: list[str | ServiceError] = [
            GivenUp() if item in self.given_up else item.upper() for item in items
        ]
        return told[self.lost :]

    def written(self) -> list[str]:
        return [item for _, items in self.calls for item in items]


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with running(SystemClock()) as store:
        yield store


@asynccontextmanager
async def running(clock: Clock) -> AsyncIterator[Store]:
    store = Store(clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.coalescer.run)
        yield store
        tasks.cancel_scope.cancel()


def call(store: Store, item: str, topic: str = "t") -> asyncio.Task[str]:
    return asyncio.create_task(store.coalescer.submit(topic, [item]))


async def submit(store: Store, items: Sequence[tuple[str, str]]) -> list[str | ServiceError]:
    """Those of each topic together; the results in the order of the items."""
    topics: dict[str, list[str]] = {}
    for topic, item in items:
        topics.setdefault(topic, []).append(item)
    results = {topic: iter(some) for topic, some in (await store.coalescer.submit_many(topics)).items()}
    return [next(results[topic]) for topic, _ in items]


async def test_concurrent_calls_share_store_calls(store: Store) -> None:
    """A thousand callers, two calls, each with its own result, in their order."""
    tasks = [call(store, f"x{n}") for n in range(1000)]
    results = await asyncio.gather(*tasks)
    assert results == [f"X{n}" for n in range(1000)]
    assert [len(items) for _, items in store.calls] == [500, 500]
    assert store.written() == [f"x{n}" for n in range(1000)]


@pytest.mark.parametrize(
    ("names", "told"),
    [(("a", "a", "a"), "a"), (("a", "b", "a"), "anonymous"), (("a", "anonymous", "a"), "anonymous")],
)
async def test_a_call_is_made_for_whoever_all_its_callers_are(
    store: Store, names: Sequence[str], told: str
) -> None:
    """For nobody in particular where they are several; and each call by itself."""

    async def ask(name: str, item: str) -> str:
        caller.set(Principal(name))
        return await call(store, item)

    store.open.clear()
    first = asyncio.create_task(ask("first", "x"))
    await settle()
    others = [asyncio.create_task(ask(name, item)) for name, item in zip(names, "bcd", strict=True)]
    await settle()
    store.open.set()
    await asyncio.gather(first, *others)
    assert store.calls == [("t", ["x"]), ("t", ["b", "c", "d"])]
    assert store.principals == ["first", told]


async def test_what_comes_during_a_call_goes_with_the_next(store: Store) -> None:
    """A call under way is all that a lone caller ever waits for."""
    store.open.clear()
    first = call(store, "a")
    await settle()
    others = [call(store, name) for name in "bcd"]
    await settle()
    assert store.calls == [("t", ["a"])]
    store.open.set()
    await asyncio.gather(first, *others)
    assert store.calls == [("t", ["a"]), ("t", ["b", "c", "d"])]


async def test_who_calls_alone_never_waits_for_company() -> None:
    """One producer that calls again and again: each call is written at once."""
    async with running(FakeClock()) as store:
        for name in "abc":
            assert await call(store, name) == name.upper()
    assert [len(items) for _, items in store.calls] == [1, 1, 1]


async def test_a_batch_is_one_caller() -> None:
    """One producer of batches is as alone as one of single timers, also where they are of several topics, and
    where one of them takes more than one store call."""
    async with running(FakeClock()) as store:
        with anyio.fail_after(60):
            for size in (2, 50, 50, 99, 3):
                await submit(store, [("t", "x")] * size)
            await submit(store, [("t", "x"), ("u", "x"), ("t", "x")])
            await submit(store, [("t", "x")] * 510)
            assert await call(store, "alone") == "ALONE"
    assert [len(items) for _, items in store.calls] == [2, 50, 50, 99, 3, 2, 1, 500, 10, 1]


async def test_batches_that_are_a_crowd_wait_for_nobody() -> None:
    """After two callers a third is waited for, unless what they bring is enough for one call."""
    async with running(FakeClock()) as store:
        for _ in range(3):
            half = [("t", "x")] * (CROWD // 2)
            await asyncio.gather(submit(store, half), submit(store, half))
    assert [len(items) for _, items in store.calls] == [CROWD] * 3


async def test_after_company_a_call_waits_for_more() -> None:
    """Producers that call again and again come to share one call a round."""
    async with running(FakeClock()) as store:
        await asyncio.gather(*(call(store, name) for name in "abc"))
        early = [call(store, name) for name in "def"]
        await settle()
        assert len(store.calls) == 1
        await asyncio.gather(*early, call(store, "g"))
    assert [len(items) for _, items in store.calls] == [3, 4]


async def test_company_that_stays_away_is_not_waited_for_long() -> None:
    """Who remains waits once, and then no more."""
    clock = FakeClock()
    async with running(clock) as store:
        await asyncio.gather(call(store, "a"), call(store, "b"))
        alone = call(store, "c")
        await clock.advance(2.9 * LINGER_EACH)
        assert len(store.calls) == 1
        await clock.advance(0.2 * LINGER_EACH)
        assert await alone == "C"
        assert await call(store, "d") == "D"
    assert [len(items) for _, items in store.calls] == [2, 1, 1]


async def test_however_much_company_is_wanted_the_wait_is_short() -> None:
    """A crowd that has gone keeps the last one for a moment."""
    clock = FakeClock()
    async with running(clock) as store:
        await asyncio.gather(*(call(store, f"x{n}") for n in range(400)))
        last = call(store, "last")
        await clock.advance(1.01 * LINGER)
        assert await last == "LAST"


async def test_the_rest_of_a_big_batch_waits_for_nobody() -> None:
    """It is there already; and a crowd is company enough."""
    async with running(FakeClock()) as store:
        await asyncio.gather(*(call(store, f"x{n}") for n in range(520)))
        await asyncio.gather(*(call(store, f"x{n}") for n in range(300)))
        await asyncio.gather(*(call(store, f"x{n}") for n in range(CROWD)))
    assert [len(items) for _, items in store.calls] == [500, 20, 300, CROWD]


async def test_a_call_carries_no_more_than_its_bytes(store: Store) -> None:
    """Large payloads must not hold the server up."""
    half = "x" * (MAX_BYTES // 2)
    await asyncio.gather(*(call(store, half) for _ in range(5)))
    assert [len(items) for _, items in store.calls] == [2, 2, 1]


async def test_a_bad_item_fails_alone(store: Store) -> None:
    """The others are written, in their order, in few calls."""
    results = await submit(store, [("t", f"x{n}") for n in range(200)] + [("t", "bad")])
    assert results[:200] == [f"X{n}" for n in range(200)]
    assert isinstance(results[200], InvalidField)
    assert len(store.calls) < 30


async def test_the_callers_of_one_bad_item_do_not_meet(store: Store) -> None:
    """Only its own caller gets the error."""
    good, bad = call(store, "a"), call(store, "bad")
    assert await good == "A"
    with pytest.raises(InvalidField, match="is bad"):
        await bad


async def test_an_absent_store_fails_all_callers_of_the_call(store: Store) -> None:
    """Nothing is known about it; the next ones try again."""
    store.error = StoreUnavailable("away")
    tasks = [call(store, name) for name in "ab"]
    assert [type(e) for e in await asyncio.gather(*tasks, return_exceptions=True)] == [StoreUnavailable] * 2
    store.error = None
    assert await call(store, "c") == "C"


async def test_an_error_that_nobody_thought_of_reaches_its_callers(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """They are not left waiting, and the loop goes on."""
    store.error = RuntimeError("what is this")
    with pytest.raises(ServiceError, match="what is this"):
        await call(store, "a")
    assert "RuntimeError: what is this" in caplog.text
    store.error = None
    assert await call(store, "b") == "B"


async def test_a_caller_that_gives_up_before_the_call_is_left_out(store: Store) -> None:
    """While Redis hangs, callers time out: their timers must not pile up and be written later."""
    store.open.clear()
    first = call(store, "a")
    await settle()
    gone, stays = call(store, "gone"), call(store, "stays")
    await settle()
    gone.cancel()
    await settle()
    store.open.set()
    assert await stays == "STAYS"
    assert await first == "A"
    assert store.written() == ["a", "stays"]


async def test_a_caller_that_gives_up_while_its_call_waits_is_left_out(store: Store) -> None:
    """Also where its batch has been gathered, and waits for room or for an earlier one of its name."""
    store.open.clear()
    first = asyncio.create_task(submit(store, crowd("a", "x")))
    await settle()
    gone, stays = call(store, "x"), call(store, "stays")
    await settle()
    assert len(store.calls) == 1
    gone.cancel()
    await settle()
    store.open.set()
    await asyncio.gather(first, stays)
    assert store.calls[1:] == [("t", ["stays"])]


async def test_a_caller_that_gives_up_while_it_waits_for_a_name_makes_way(store: Store) -> None:
    """What waits behind it, of other topics, doesn't wait for the call that it waited for."""
    store.open.clear()
    first = asyncio.create_task(submit(store, crowd("a", "x")))
    await settle()
    gone, other = call(store, "x"), call(store, "other", "another topic")
    await settle()
    assert len(store.calls) == 1
    gone.cancel()
    await settle()
    assert store.calls[1:] == [("another topic", ["other"])]
    store.open.set()
    await asyncio.gather(first, other)


async def test_a_share_that_is_cut_keeps_its_order_and_its_places(store: Store) -> None:
    """By items and by bytes; each caller has its own results."""
    half = "y" * (MAX_BYTES // 2)
    requests = [[f"a{n}" for n in range(700)], ["b", half, "c", half, half, "d"], ["e"] * 501]
    callers = (submit(store, [("t", item) for item in items]) for items in requests)
    results = await asyncio.gather(*callers)
    assert results == [[item.upper() for item in items] for items in requests]
    assert store.written() == [item for items in requests for item in items]
    assert [len(items) for _, items in store.calls] == [500, 204, 500, 3]


async def test_a_big_batch_is_weighed_once(store: Store) -> None:
    """And not what is left of it anew for each store call."""
    items = [("t", f"x{n}") for n in range(10_000)]
    assert await submit(store, items) == [item.upper() for _, item in items]
    assert store.weighed == len(items)


async def test_topics_that_alternate_go_apart(store: Store) -> None:
    """A request may name them in any order: a store call for each, and every caller has its own results."""
    items = [(f"t{n % 3}", f"x{n}") for n in range(300)]
    assert await submit(store, items) == [item.upper() for _, item in items]
    assert [(topic, len(some)) for topic, some in store.calls] == [("t0", 100), ("t1", 100), ("t2", 100)]


async def test_a_store_that_answers_too_few_fails_its_callers_alone(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """None waits for ever, and the next ones are served."""
    store.lost = 1
    results = await submit(store, [("t", "a"), ("t", "b")])
    assert ["1 results for 2 items" in str(result) for result in results] == [True, True]
    assert "failed unexpectedly" in caplog.text
    store.lost = 0
    assert await call(store, "c") == "C"


async def test_a_caller_that_gives_up_during_the_call_harms_no_other(store: Store) -> None:
    """Its item is written; nobody hears of it."""
    store.open.clear()
    gone, stays = call(store, "gone"), call(store, "stays")
    await settle()
    gone.cancel()
    await settle()
    store.open.set()
    assert await stays == "STAYS"
    assert gone.cancelled()


async def test_a_batch_whose_caller_gives_up_leaves_nothing_behind(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where some of its items have failed already: no complaint about errors nobody heard."""
    store.error = StoreUnavailable("away")
    store.open.clear()
    store.slow_from = 3
    items = [("t", "a")] * 501 + [("u", "b")]
    batch = asyncio.create_task(submit(store, items))
    await settle()
    assert [topic for topic, _ in store.calls] == ["t", "u", "t"], "u has failed, and t's last is awaited"
    batch.cancel()
    await settle()
    store.open.set()
    await settle()
    store.error = None  # its traceback knows everybody
    del batch
    gc.collect()
    assert caplog.text == ""


async def test_a_batch_speaks_of_several_topics(store: Store) -> None:
    """One call each, results in the order of the request."""
    results = await submit(store, [("t", "a"), ("u", "b"), ("t", "c")])
    assert results == ["A", "B", "C"]
    assert store.calls == [("t", ["a", "c"]), ("u", ["b"])]


async def test_a_busy_topic_does_not_starve_another(store: Store) -> None:
    """One call each in turn."""
    store.open.clear()
    many = [call(store, f"{n}", "busy") for n in range(2000)]
    other = call(store, "a", "calm")
    await settle()
    store.open.set()
    await asyncio.gather(other, *many)
    assert [topic for topic, _ in store.calls[:2]] == ["busy", "calm"]


def crowd(first: str, *more: str) -> list[tuple[str, str]]:
    """A batch that fills a store call, of names that nobody else has but `more`."""
    names = [*more, *(f"{first}{n}" for n in range(500 - len(more)))]
    return [("t", name) for name in names]


async def test_big_batches_overlap(store: Store) -> None:
    """The next one is on its way while the store is at the one before; not a third."""
    store.open.clear()
    tasks = [asyncio.create_task(submit(store, crowd(name))) for name in "abc"]
    await settle()
    assert len(store.calls) == AT_ONCE == 2
    store.open.set()
    assert [len(results) for results in await asyncio.gather(*tasks)] == [500] * 3
    assert [items[0] for _, items in store.calls] == ["a0", "b0", "c0"]


async def test_small_batches_gather_while_a_big_one_is_under_way(store: Store) -> None:
    """One of them overlaps it; what comes then shares the next call."""
    store.open.clear()
    big = asyncio.create_task(submit(store, crowd("a")))
    small = [call(store, "b")]
    await settle()
    small += [call(store, name) for name in "cd"]
    await settle()
    assert [items[0] for _, items in store.calls] == ["a0", "b"]
    store.open.set()
    await asyncio.gather(big, *small)
    assert store.calls[2:] == [("t", ["c", "d"])]


@pytest.mark.parametrize("later", [["x"], [*"abcdefgh", "x"], ["x", *(f"c{n}" for n in range(499))]], ids=len)
async def test_timers_of_one_name_never_overtake_each_other(store: Store, later: list[str]) -> None:
    """The later one stands: its call begins when the earlier one's has ended, whatever else is free."""
    store.open.clear()
    first = asyncio.create_task(submit(store, crowd("a", "x")))
    again = asyncio.create_task(submit(store, [("t", name) for name in later]))
    await settle()
    assert len(store.calls) == 1
    store.open.set()
    await asyncio.gather(first, again)
    assert [len(items) for _, items in store.calls] == [500, len(later)]


async def test_one_request_names_a_timer_twice(store: Store) -> None:
    """In two of its store calls, and in a third one that need not wait."""
    store.open.clear()
    items = [*crowd("a", "x"), *crowd("b", "x"), *crowd("c")]
    request = asyncio.create_task(submit(store, items))
    await settle()
    assert len(store.calls) == 1
    store.open.set()
    assert await request == [item.upper() for _, item in items]
    assert store.written() == [item for _, item in items]


async def test_a_name_on_another_topic_is_another_timer(store: Store) -> None:
    """Nobody waits for it."""
    store.open.clear()
    first = asyncio.create_task(submit(store, crowd("a", "x")))
    other = call(store, "x", "u")
    await settle()
    assert [topic for topic, _ in store.calls] == ["t", "u"]
    store.open.set()
    await asyncio.gather(first, other)


async def test_a_big_batch_that_fails_makes_room(store: Store) -> None:
    """Its callers hear of it, and its names are free."""
    store.error = StoreUnavailable("away")
    for _ in range(AT_ONCE + 1):
        failed = await submit(store, crowd("a"))
        assert {type(result) for result in failed} == {StoreUnavailable}
    store.error = None
    assert await submit(store, crowd("a")) == [item.upper() for _, item in crowd("a")]


# ------------------------------------------------------------- deadlines


async def within(store: Store, deadline: float, *items: str) -> list[str | ServiceError]:
    """A caller that waits until then."""
    with CallEnds().bound(deadline):
        return (await store.coalescer.submit_many({"t": list(items)}))["t"]


async def test_each_item_goes_with_the_deadline_of_its_caller(store: Store) -> None:
    """The callers share a call, and wait for it until different instants."""
    soon, later = anyio.current_time() + 1_000.0, anyio.current_time() + 2_000.0
    async with anyio.create_task_group() as callers:
        callers.start_soon(within, store, soon, "a", "b")
        callers.start_soon(store.coalescer.submit, "t", ["c"])
        callers.start_soon(within, store, later, "d")
    assert store.calls == [("t", ["a", "b", "c", "d"])]
    assert store.deadlines == [[soon, soon, math.inf, later]]


async def test_a_lane_that_a_call_has_begun_works_for_others(store: Store) -> None:
    """It has no deadline of its own, which would be the first caller's for as long as that waits."""
    await settle()
    await within(store, soon := anyio.current_time() + 1_000.0, "a")
    assert (store.deadlines, store.bounds) == ([[soon]], [math.inf])


async def test_where_all_wait_for_as_long_as_it_takes_nothing_is_said(store: Store) -> None:
    await asyncio.gather(*(call(store, name) for name in "ab"))
    assert store.deadlines == [[]]


async def test_deadlines_stay_with_their_items_when_a_call_is_halved(store: Store) -> None:
    """Bad input of one of them is refused alone."""
    soon = anyio.current_time() + 1_000.0
    async with anyio.create_task_group() as callers:
        callers.start_soon(within, store, soon, "a", "bad")
        callers.start_soon(store.coalescer.submit, "t", ["b"])
    said = [dict(zip(items, store.deadlines[n], strict=False)) for n, (_, items) in enumerate(store.calls)]
    assert said == [
        {"a": soon, "bad": soon, "b": math.inf},
        {"a": soon, "bad": soon},
        {"a": soon},
        {"bad": soon},
        {},
    ]


async def test_an_item_that_the_store_refuses_fails_alone(store: Store) -> None:
    """Its caller's time was over when the call came; the other's was not."""
    store.given_up.add("late")
    late, in_time = call(store, "late"), call(store, "in time")
    with pytest.raises(GivenUp):
        await late
    assert await in_time == "IN TIME"


# ---------------------------------------------------------------- places


async def test_each_place_has_its_calls_at_once(store: Store) -> None:
    """However many of another one hang."""
    store.places.put(t="east", u="west")
    store.open.clear()
    hang = [asyncio.create_task(submit(store, crowd(name))) for name in "abc"]
    await settle()
    assert len(store.calls) == AT_ONCE
    other = call(store, "x", "u")
    await settle()
    assert store.calls[AT_ONCE:] == [("u", ["x"])]
    store.open.set()
    await asyncio.gather(other, *hang)


async def test_a_batch_of_several_places_is_answered_as_one(store: Store) -> None:
    """Each result in the place of its item; one place that fails, or hangs, costs no other its call."""
    store.places.put(t="east", u="west")
    assert await submit(store, [("t", "a"), ("u", "b"), ("t", "c")]) == ["A", "B", "C"]
    store.open.clear()
    hang = asyncio.create_task(submit(store, [("t", "d"), ("u", "e"), ("v", "f")]))
    await settle()
    assert sorted(store.calls[2:]) == [("t", ["d"]), ("u", ["e"]), ("v", ["f"])]
    store.open.set()
    assert await hang == ["D", "E", "F"]
    for name in "gh":  # who calls alone never waits for company, in any place
        assert await call(store, name, "u") == name.upper()


async def test_a_topic_that_moves_takes_what_waits_with_it(store: Store) -> None:
    """What waits behind a call to the old place goes on at the new one, in its order."""
    store.places.put(t="east", u="east")
    store.open.clear()
    hangs = call(store, "x", "u")
    await settle()
    waits = [call(store, name) for name in "ab"]
    gone = call(store, "gone")
    await settle()
    assert len(store.calls) == 1
    store.places.put(t="west")
    gone.cancel()
    await settle()
    assert store.calls[1:] == [("t", ["a", "b"])]
    store.open.set()
    await asyncio.gather(hangs, *waits)
    assert store.coalescer.waiting == 0


async def test_the_earlier_intent_stays_the_earlier_one_though_its_topic_moves(store: Store) -> None:
    """The race: a call that names a timer is under way at the old place. The next one must not overtake it at
    the new place: the store may send the earlier one on."""
    store.places.put(t="east", u="east")
    store.open.clear()
    first = asyncio.create_task(submit(store, crowd("a", "x")))
    await settle()
    store.places.put(t="west")
    later = call(store, "x")
    await settle()
    assert len(store.calls) == 1
    store.open.set()
    await asyncio.gather(first, later)
    assert store.calls[1:] == [("t", ["x"])]


async def test_a_batch_that_waits_for_room_is_not_overtaken_at_the_topic_s_new_place(store: Store) -> None:
    """The race: it has been gathered, and names a timer that the next call names, too."""
    store.places.put(t="east", u="east")
    store.open.clear()
    others = [asyncio.create_task(submit(store, [("u", f"{n}{m}") for n in range(500)])) for m in "ab"]
    await settle()
    first = asyncio.create_task(submit(store, crowd("c", "x")))
    await settle()
    assert [topic for topic, _ in store.calls] == ["u"] * AT_ONCE
    store.places.put(t="west")
    later = call(store, "x")
    await settle()
    assert len(store.calls) == AT_ONCE
    store.open.set()
    await asyncio.gather(first, later, *others)
    assert [len(items) for topic, items in store.calls if topic == "t"] == [500, 1]


async def test_a_topic_that_stayed_for_a_call_moves_when_that_is_over(store: Store) -> None:
    """Whatever then hangs at its old place is nothing to it."""
    store.places.put(t="east", u="east")
    store.open.clear()
    stays = call(store, "a")
    await settle()
    store.places.put(t="west")
    store.open.set()
    assert await stays == "A"
    await settle()
    store.open.clear()
    hangs = call(store, "h", "u")
    await settle()
    goes = call(store, "b")
    await settle()
    assert store.calls[1:] == [("u", ["h"]), ("t", ["b"])]
    store.open.set()
    await asyncio.gather(hangs, goes)


async def test_a_caller_that_gives_up_at_the_new_place_makes_way(store: Store) -> None:
    """What it waits for there, it waits for no more."""
    store.places.put(t="east", u="east", v="west")
    store.open.clear()
    hangs = call(store, "h", "u")
    await settle()
    first = asyncio.create_task(submit(store, crowd("a", "x")))
    await settle()
    gone = call(store, "x")
    await settle()
    assert len(store.calls) == 1
    store.places.put(t="west")
    await settle()
    other = call(store, "o", "v")
    await settle()
    assert [topic for topic, _ in store.calls] == ["u", "t"], "the second x waits for the first one"
    gone.cancel()
    await settle()
    assert store.calls[2:] == [("v", ["o"])]
    store.open.set()
    await asyncio.gather(hangs, first, other)


async def test_what_is_one_too_many() -> None:
    """A single item is refused by an error. Of many, each has it as its result: those that go elsewhere in
    the same request may be taken."""
    store = Store(SystemClock(), most=1)
    waits = call(store, "a")
    await settle()
    with pytest.raises(TooMany, match="1 timers wait already"):
        await store.coalescer.submit("t", ["b"])
    refused = await submit(store, [("t", "b"), ("u", "c"), ("t", "d")])
    assert [type(each) for each in refused] == [TooMany] * 3
    assert store.coalescer.waiting == 1
    waits.cancel()
