"""lua/move and lib/layout: a topic of two partitions moves into four, and what partition 1 gives away goes to
3. Each step may come twice, late or beside another's, and a timer is in one place, or on its way, and nowhere
else."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import pytest
from redis.exceptions import ResponseError

from relay.core.errors import InvalidField, OtherLayout, StoreError, StoreFull
from relay.core.instants import SECOND
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Extension, Verb, Verdict
from relay.core.timers import Change, Debounce, Intent, NewTimer, OnConflict, Scheduled
from relay.store.codec.lease_record import LEASED
from relay.store.keys import KeyNames
from relay.store.server.errors import Leaving, PauseUnknown
from relay.store.server.manifest import manifest
from relay.store.server.scripts import Argument, Call, Scripts, variants
from relay.store.verbs import layout, move
from tests.settlements import end_of
from tests.store.test_verbs import CALLS
from tests.worlds.scripts.asking import LEASE, N1, N2, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, Letter, State, alone, own, record, score

MOVING = "2 2 4"
OLD, NEW = f"1 {MOVING}", f"3 {MOVING}"
"""The two places: partition and layout."""
DUE = score(NOW - SECOND)
DEADLINE = own(NOW + LEASE)
HELD = record(LEASED, DEADLINE, due=DUE, nonce=N1)
LETTER = Letter("dead", "rejected", 1, 1, DUE, NOW, N1)
NAME = str(NOW).encode()
"""What the first batch is called."""

GATED = [
    call for call in CALLS if any("+layout" in name for name in variants(call.verb)) and call.topic == "t"
]
"""A call of each script that is called for partitions."""
ABOUT_TIMERS: dict[str, Callable[[Bench], Awaitable[object]]] = {
    "schedule": lambda place: place.store.schedule(place.topic, [NewTimer("a", b"new", due=NOW)]),
    "cancel": lambda place: place.store.cancel(place.topic, ["a"]),
    "run": lambda place: place.store.run(place.topic, ["a"]),
    "get": lambda place: place.store.get(place.topic, "a"),
    "settle": lambda place: place.store.settle(place.topic, [end_of("a", N1, Verb.ACK)]),
    "extend": lambda place: place.store.extend(place.topic, [Extension("a", N1, False)], lease=2 * LEASE),
}
"""The calls that are about timers which leave."""


def leaving(bench: Bench) -> Bench:
    return bench.at(f"{OLD} leaving")


def seen(place: Bench) -> bytes | None:
    """The layout that a partition has seen last."""
    found: bytes | None = place.raw.get(KeyNames().key("layout", place.topic))  # type: ignore[assignment]
    return found


def moves(place: Bench) -> dict[bytes, bytes]:
    """What a partition knows of moves."""
    found: dict[bytes, bytes] = place.raw.hgetall(KeyNames().key("move", place.topic))  # type: ignore[assignment]
    return found


async def leave(place: Bench, *names: str, kind: move.Kind = "t") -> Sequence[bytes]:
    return await place.redis.call(move.leave(place.topic, kind, names))


async def put(place: Bench, batch: Sequence[Argument]) -> Sequence[bytes]:
    return await place.redis.call(move.put(place.topic, batch))


async def void(place: Bench, name: bytes = NAME) -> bytes:
    return await place.redis.call(move.void(place.topic, name))


async def left(place: Bench, name: bytes = NAME) -> bytes:
    return await place.redis.call(move.left(place.topic, name))


async def back(place: Bench, batch: Sequence[Argument]) -> bytes:
    return await place.redis.call(move.back(place.topic, batch))


async def mark(place: Bench) -> Sequence[bytes]:
    return await place.redis.call(move.mark(place.topic))


async def carried(old: Bench, *names: str) -> Sequence[bytes]:
    """Carry timers to where they belong; the batch."""
    new = old.at(NEW)
    batch = await leave(old, *names)
    assert await put(new, batch) == [b"PUT"]
    assert await left(old, batch[0]) == b"1"
    return batch


# --------------------------------------------------------------------------- what a partition has seen


@pytest.mark.slow
@pytest.mark.parametrize("call", GATED, ids=lambda call: call.verb)
@pytest.mark.parametrize("journal", [0, 9], ids=["plain", "journal"])
async def test_an_older_layout(bench: Bench, call: Call[object], journal: int) -> None:
    """Whatever comes by it is refused, and writes nothing."""
    place = bench.at("1 3 4")
    place.put("a", DEADLINE, HELD)
    place.raw.set(KeyNames().key("layout", place.topic), "3 4")
    before = {key: place.raw.dump(key) for key in place.raw.keys("*")}
    for older in ("2 2 4", "1 2", "3 8", "2 2 4 leaving"):
        older_call = call._replace(topic=bench.at(f"1 {older}").topic)
        command = (
            Scripts(KeyNames(), bench.texts)
            .prepare(older_call, lambda _: journal)
            .command((int(time.time()) + 60) * SECOND, known=False)
        )
        with pytest.raises(ResponseError, match=r"^LAYOUT 3 4$"):
            bench.raw.execute_command(*command)
    assert {key: place.raw.dump(key) for key in place.raw.keys("*")} == before


async def test_an_older_layout_is_told(bench: Bench) -> None:
    """The caller hears which layout it is now."""
    await mark(bench.at("1 3 4"))
    with pytest.raises(OtherLayout) as refusal:
        await leaving(bench).store.schedule(leaving(bench).topic, [NewTimer("a", b"x", due=NOW)])
    assert refusal.value.layout == "3 4"


@pytest.mark.parametrize("call", [c for c in GATED if manifest(c.verb).writes], ids=lambda call: call.verb)
async def test_a_newer_layout_is_kept(bench: Bench, call: Call[object]) -> None:
    """By every script that changes something, whatever it does itself. What the partition knew of the move
    before is over."""
    old = bench.at(OLD)
    old.put("a", DUE)
    await leave(old, "a")
    newer = call._replace(topic=bench.at("1 3 4").topic)
    command = (
        Scripts(KeyNames(), bench.texts)
        .prepare(newer, lambda _: 0)
        .command((int(time.time()) + 60) * SECOND, known=False)
    )
    with suppress(ResponseError):  # its arguments stand for others
        bench.raw.execute_command(*command)
    assert (seen(old) or b"").removesuffix(b" ?") == b"3 4"
    assert b"note" not in moves(old)


async def test_a_newer_layout_stands(bench: Bench) -> None:
    """Whoever comes by the older one afterwards is refused."""
    await mark(bench.at("1 1 2"))
    assert (await leaving(bench).store.cancel(leaving(bench).topic, ["a"]))[0].change is Change.GONE
    assert seen(bench.at(OLD)) == b"2 2 4 ?"
    with pytest.raises(OtherLayout):
        await mark(bench.at("1 1 2"))


async def test_who_reads_keeps_no_layout(bench: Bench) -> None:
    """A script that only reads writes nothing at all."""
    await mark(bench.at("1 1 2"))
    newer = bench.at("1 3 4")
    assert await newer.store.get(newer.topic, "a") is None
    assert (await newer.topics.stats(newer.topic)).timers == 0
    assert seen(newer) == b"1 2 ?"


# --------------------------------------------------------------------------- pauses


async def test_a_partition_that_comes_into_use(bench: Bench) -> None:
    """It hands out nothing before it knows whether the topic is paused. An idle one need not know."""
    new = bench.at(NEW)
    assert await new.claimed() == []
    new.put("a", DUE)
    with pytest.raises(PauseUnknown):
        await new.claim()
    await new.redis.call(layout.tell_pause(new.topic, NOW + SECOND))
    assert await new.claimed() == []
    new.now += 2 * SECOND
    assert await new.claimed() == ["a"]
    assert seen(new) == MOVING.encode()


async def test_a_partition_that_was_in_use(bench: Bench) -> None:
    """By the layout before this one; in every other case it may have missed a pause, or the end of one."""
    new = bench.at(NEW)
    new.put("a", DUE)
    await new.redis.call(layout.tell_pause(new.topic, 0))
    assert await bench.at("3 3 4").claimed() == ["a"]
    await mark(bench.at("3 4 4 2"))
    assert seen(new) == b"4 4 2"
    for text in ("6 2 4", "7 4", "9 4", "10 4 8"):
        await mark(bench.at(f"3 {text}"))
        assert seen(new) == f"{text} ?".encode()
    await mark(bench.at("0 2 2 4"))
    assert seen(bench.at("0")) == b"2 2 4", "the first one is asked by the others"


async def test_a_pause_that_is_newer(bench: Bench) -> None:
    """What was read in the first partition does not undo what has been told to this one since."""
    new = bench.at(NEW)
    new.put("a", DUE)
    await new.topics.pause(new.topic, until=NOW + SECOND)
    await new.redis.call(layout.tell_pause(new.topic, 0))
    assert await new.claimed() == []
    await new.topics.resume(new.topic)
    await new.redis.call(layout.tell_pause(new.topic, NOW + SECOND))
    assert await new.claimed() == ["a"]


async def test_an_end_of_a_pause_is_told_too(bench: Bench) -> None:
    """A partition that comes again forgets the pause that it had."""
    new = bench.at(NEW)
    new.put("a", DUE)
    await new.topics.pause(new.topic)
    again = bench.at("3 6 2 4")
    await again.redis.call(layout.tell_pause(again.topic, 0))
    assert await again.claimed() == ["a"]


# --------------------------------------------------------------------------- timers that leave


@pytest.mark.parametrize("name", ABOUT_TIMERS)
async def test_a_timer_that_is_there(bench: Bench, name: str) -> None:
    """It is changed where it stands."""
    old = leaving(bench)
    old.put("a", DEADLINE, HELD)
    await ABOUT_TIMERS[name](old)
    assert name in ("get", "run") or old.state() != alone("a", DEADLINE, HELD)


@pytest.mark.parametrize("name", ABOUT_TIMERS)
async def test_a_timer_that_is_on_its_way(bench: Bench, name: str) -> None:
    """Nobody changes it, or says that there is none."""
    old = leaving(bench)
    old.put("a", DEADLINE, HELD)
    await leave(bench.at(OLD), "a")
    with pytest.raises(Leaving):
        await ABOUT_TIMERS[name](old)
    assert old.state() == EMPTY
    assert len(await mark(bench.at(OLD))) == 4


@pytest.mark.parametrize("name", ABOUT_TIMERS)
async def test_a_timer_beside_one_that_is_on_its_way(bench: Bench, name: str) -> None:
    """It is not kept waiting."""
    old = leaving(bench)
    old.put("a", DEADLINE, HELD)
    old.put("b", DUE)
    await leave(bench.at(OLD), "b")
    await ABOUT_TIMERS[name](old)


@pytest.mark.parametrize("intent", [*OnConflict, Debounce(), Debounce(5)])
async def test_nothing_is_taken_in(bench: Bench, intent: Intent) -> None:
    """What is not here comes to be where the move fills."""
    old = leaving(bench)
    (told,) = await old.store.schedule(old.topic, [NewTimer("a", b"x", delay=5, intent=intent)])
    assert told.change is Change.GONE
    assert old.state() == EMPTY


async def test_a_cancel_of_what_is_not_there(bench: Bench) -> None:
    """It is nobody's to clear, and nothing has happened."""
    old, bench.keep = leaving(bench), 100
    old.put_payload("a")
    (told,) = await old.store.cancel(old.topic, ["a"])
    assert told.change is Change.GONE
    assert (old.raw.hlen(old.payloads), old.raw.xlen(old.journal)) == (1, 0)


async def test_an_outcome_of_what_is_not_there(bench: Bench) -> None:
    """It is refused, if at all, where the timer is: the journal says nothing here."""
    old, bench.keep = leaving(bench), 100
    assert await old.settle("a", N1) is Verdict.GONE
    assert old.raw.xlen(old.journal) == 0


async def test_a_renewal_of_what_is_not_there(bench: Bench) -> None:
    """As an outcome."""
    old, bench.keep = leaving(bench), 100
    assert await old.extend("a", N1) is Verdict.GONE
    assert old.raw.xlen(old.journal) == 0
    old.put("a", DUE)
    assert await old.extend("a", N1) is Verdict.STALE
    assert old.raw.xlen(old.journal) == 1


# --------------------------------------------------------------------------- batches


async def test_all_of_a_timer_moves(bench: Bench) -> None:
    """Score, lease and envelope are what they were, and so is a timer without any; whoever has the lease ends
    it by the same nonce."""
    old, new = bench.at(OLD), bench.at(NEW)
    old.put("held", DEADLINE, HELD)
    old.put("plain", DUE)
    old.put("parked", 0.1 + 2**40, stored=None)
    before = old.state()
    batch = await carried(old, "held", "plain", "gone", "parked")
    assert (batch[0], batch[1::2]) == (NAME, [b"theld", b"tplain", b"tparked"])
    assert (old.state(), new.state()) == (EMPTY, before)
    assert await new.settle("held", N1) is Verdict.OK


async def test_a_batch_is_noted(bench: Bench) -> None:
    """Whoever comes after a death finds it, and nothing is left when it has arrived."""
    old = bench.at(OLD)
    old.put("a", DUE)
    batch = await leave(old, "a")
    assert await mark(old) == [NAME, *batch]
    assert await put(bench.at(NEW), batch) == [b"PUT"]
    assert await left(old) == b"1"
    assert await left(old) == b""
    assert await mark(old) == [NAME]
    assert moves(old) == {b"last": NAME}
    assert moves(bench.at(NEW)) == {b"arrived": NAME, b"as": b"PUT"}


async def test_a_bounded_rate_stays(bench: Bench) -> None:
    """It stands beside the batches, is no part of one, and outlasts them."""
    old = bench.at(OLD)
    await mark(old)  # which has the partition see the layout
    bench.raw.hset(KeyNames().key("move", old.topic), "rate", 100)
    old.put("a", DUE)
    batch = await leave(old, "a")
    assert batch[1::2] == [b"ta"]
    assert await mark(old) == [NAME, *batch]
    assert await put(bench.at(NEW), (await mark(old))[1:]) == [b"PUT"]
    assert await left(old) == b"1"
    assert moves(old) == {b"last": NAME, b"rate": b"100"}


async def test_a_batch_that_lies(bench: Bench) -> None:
    """A claim says so from a second on: who took it out may have died."""
    old = bench.at(OLD)
    await old.redis.call(layout.tell_pause(old.topic, 0))
    old.put("a", DUE)
    request = ClaimRequest(limit=1, lease=LEASE, nonce=N2, max_bytes=1 << 20, limits=NO_LIMITS)
    assert not (await old.store.claim(old.topic, request)).stranded
    batch = await leave(old, "a")
    for later, lies in ((SECOND - 1, False), (SECOND, True)):
        old.now = NOW + later
        assert (await old.store.claim(old.topic, request)).stranded is lies
    await put(bench.at(NEW), batch)
    await left(old)
    assert not (await old.store.claim(old.topic, request)).stranded


async def test_nothing_to_take(bench: Bench) -> None:
    """Then there is no batch, and the last one's name stays."""
    old = bench.at(OLD)
    assert await leave(old, "a") == []
    assert await mark(old) == [b""]


async def test_one_batch_at_a_time(bench: Bench) -> None:
    """Whoever would take another one out gets the one that is on its way."""
    old = bench.at(OLD)
    old.put("a", DUE)
    old.put("b", DUE)
    batch = await leave(old, "a")
    assert await leave(old, "b") == batch
    assert old.state() == alone("b", DUE)


async def test_a_batch_of_so_many_bytes(bench: Bench) -> None:
    """One that holds more than the bound takes no further timer, and none is held up by its size."""
    old = bench.at(OLD)
    for name in ("a", "b", "c"):
        old.put(name, DUE, stored=b"x" * 10)
    batch = await old.run("move/leave", "t", 15, "a", "b", "c")
    assert batch[1::2] == [b"ta", b"tb"]
    assert list(old.state().timeline) == ["c"]


async def test_each_batch_has_a_later_name(bench: Bench) -> None:
    """Though the clock stands still, or steps back; otherwise it would be taken for the one before."""
    old, new = bench.at(OLD), bench.at(NEW)
    for number, step in enumerate((0, 0, -SECOND, 0, SECOND)):
        old.now += step
        old.put(f"a{number}", DUE)
        await carried(old, f"a{number}")
        assert list(new.state().timeline) == [f"a{n}" for n in range(number + 1)]
    assert await mark(old) == [b"%d" % (NOW + 4)]
    old.now += SECOND
    old.put("last", DUE)
    assert (await carried(old, "last"))[0] == b"%d" % (NOW + SECOND)


async def test_another_batch_stays(bench: Bench) -> None:
    """A late call about one that has gone its way changes nothing."""
    old = bench.at(OLD)
    old.put("a", DUE)
    old.put("b", DUE)
    first = await carried(old, "a")
    second = await leave(old, "b")
    assert await left(old, first[0]) == b""
    assert await back(old, first) == b""
    assert await mark(old) == [second[0], *second]
    assert old.state() == EMPTY


async def test_a_batch_arrives_once(bench: Bench) -> None:
    """What has been cancelled since does not come again, whoever repeats the call, and however late."""
    old, new = bench.at(OLD), bench.at(NEW)
    old.put("a", DUE)
    old.put("b", DUE)
    first = await carried(old, "a")
    await new.store.cancel(new.topic, ["a"])
    assert await put(new, first) == [b"PUT"]
    assert new.state() == EMPTY
    await carried(old, "b")
    assert await put(new, first) == [b"OVER"]
    assert await void(new, first[0]) == b"OVER"
    assert new.state() == alone("b", DUE)


async def test_a_batch_that_goes_back(bench: Bench) -> None:
    """All of it is as it was, and the same timers may leave as another batch."""
    old, new = bench.at(OLD), bench.at(NEW)
    old.put("held", DEADLINE, HELD)
    before = old.state()
    batch = await leave(old, "held")
    assert await void(new) == b"VOID"
    with old.listening() as ear:
        assert await back(old, batch) == b"1"
        assert ear.heard() == [DEADLINE]
    assert (old.state(), new.state()) == (before, EMPTY)
    assert await back(old, batch) == b""
    await carried(old, "held")
    assert (old.state(), new.state()) == (EMPTY, before)


async def test_a_batch_that_was_refused(bench: Bench) -> None:
    """It stays so, though a call that would put it comes late."""
    old, new = bench.at(OLD), bench.at(NEW)
    old.put("a", DUE)
    batch = await leave(old, "a")
    assert await void(new) == b"VOID"
    assert await put(new, batch) == [b"VOID"]
    assert await void(new) == b"VOID"
    assert new.state() == EMPTY


async def test_a_batch_that_has_arrived(bench: Bench) -> None:
    """It stays so, though somebody else found no room for it, who hears of it, and gives nothing back."""
    old, new = bench.at(OLD), bench.at(NEW)
    old.put("a", DUE)
    assert await put(new, await leave(old, "a")) == [b"PUT"]
    assert await void(new) == b"PUT"
    assert new.state() == alone("a", DUE)


async def test_what_stands_where_a_batch_comes(bench: Bench) -> None:
    """It is newer, and stays."""
    old, new = bench.at(OLD), bench.at(NEW)
    old.put("a", DUE)
    new.put("a", DEADLINE, HELD, stored=b"newer")
    await carried(old, "a")
    assert new.state() == State({"a": DEADLINE}, {"a": b"newer"}, {"a": HELD})


async def test_a_batch_gives_a_hint(bench: Bench) -> None:
    """Where it arrives, if its first timer is the first there."""
    old, new = bench.at(OLD), bench.at(NEW)
    old.put("a", DUE)
    with new.listening() as ear:
        await carried(old, "a")
        assert ear.heard() == [DUE]


async def test_dead_letters_move(bench: Bench) -> None:
    """As they are, but for the ids of their entries, which the reply tells. So do those that come back."""
    old, new = bench.at(OLD), bench.at(NEW)
    names = [old.put_letter(LETTER), old.put_letter(LETTER._replace(timer_id="b"))]
    batch = await leave(old, names[0], "5-0", kind="d")
    assert old.state().dead == (LETTER._replace(timer_id="b"),)
    word, *entries = await put(new, batch)
    assert (word, [name.decode() for name in entries]) == (b"PUT", new.dead_ids())
    assert new.state().dead == (LETTER,)
    assert await put(new, batch) == [b"PUT"]
    await left(old)
    other = await leave(old, names[1], kind="d")
    assert old.state() == EMPTY
    assert await back(old, other) == b"1"
    assert old.state().dead == (LETTER._replace(timer_id="b"),)


async def test_a_full_place(bench: Bench) -> None:
    """It takes no batch in, and writes nothing of it; everything else that moves batches goes on."""
    old, new = bench.at(OLD), bench.at(NEW)
    old.put("a", DUE)
    old.put("b", DEADLINE, HELD)
    before = old.state()
    await mark(new)
    with bench.full():
        batch = await leave(old, "a", "b")
        with pytest.raises(StoreFull):
            await put(new, batch)
        assert new.state() == EMPTY
        assert await void(new) == b"VOID"
        assert await back(old, batch) == b"1"
        assert old.state() == before
        batch = await leave(old, "b")
        assert await left(old, batch[0]) == b"1"


# --------------------------------------------------------------------------- the layout's changes


async def change(bench: Bench, known: str, becomes: str, rate: int = 0) -> str:
    return (await bench.redis.call(layout.change(bench.topic, known, becomes, rate))).decode()


async def test_a_change_compares(bench: Bench) -> None:
    """Whoever comes second, or late, has done nothing, and reads what there is."""
    assert await change(bench, "", "2 1 2") == "2 1 2"
    assert await change(bench, "", "2 1 4") == "2 1 2"
    assert await change(bench, "2 1 2", "3 2") == "3 2"
    assert await change(bench, "2 1 2", "3 1") == "3 2"
    assert bench.raw.get(bench.leases) == b"3 2"


@pytest.mark.parametrize(("known", "becomes"), [("", "2 1 2"), ("1 2", "2 2 4"), ("1 2", "2 2 1")])
async def test_a_sweep_and_a_move(bench: Bench, known: str, becomes: str) -> None:
    """Whichever comes first keeps the other away; a move that has begun is ended all the same."""
    if known:
        bench.raw.set(bench.leases, known)
    place = bench.at(f"0 {known}") if known else bench
    place.open()
    with pytest.raises(InvalidField, match="while a sweep of the cold store is under way"):
        await change(bench, known, becomes)
    assert bench.raw.delete(place.marks)
    if not known:
        bench.put("a", DUE)
    assert await change(bench, known, becomes) == becomes
    with pytest.raises(OtherLayout):
        place.open()
    bench.raw.hset(bench.marks, "plan", "1")
    assert await change(bench, becomes, "3 2") == "3 2"


async def test_a_topic_gets_a_layout(bench: Bench) -> None:
    """Its leases go on in its first partition."""
    bench.put("a", DUE)
    assert await bench.claimed(N1) == ["a"]
    assert await change(bench, "", "2 1 2") == "2 1 2"
    first = bench.at("0 2 1 2")
    assert first.state() == alone("a", DEADLINE, record(LEASED, DEADLINE, due=DUE, nonce=N1))
    assert await first.settle("a", N2) is Verdict.STALE
    assert await first.settle("a", N1) is Verdict.OK


async def test_what_a_change_forgets(bench: Bench) -> None:
    """What the first partition knew of the move before; it is told how fast this one may be."""
    await change(bench, "", "2 1 2", rate=7)
    first = bench.at("0 2 1 2")
    assert moves(first) == {b"rate": b"7"}
    first.put("a", DUE)
    await leave(first, "a")
    await change(bench, "2 1 2", "3 2")
    assert moves(first) == {}


async def test_any_other_error_is_none_of_these(bench: Bench) -> None:
    """Wrong types are refused by each script of a move."""
    place = bench.at(OLD)
    place.raw.set(place.timeline, "x")
    for call in (mark, leave, left, void):
        with pytest.raises(StoreError, match=f"{place.timeline} holds a string"):
            await call(place)


async def test_a_search_names_its_server(bench: Bench) -> None:
    """Each part of it says which server has told it, behind which come the cursor and the ids."""
    place = bench.at(OLD)
    for timer_id in "abc":
        await place.store.schedule(place.topic, [NewTimer(timer_id, b"x", due=NOW)])
    server, cursor, *names = await place.redis.call(move.scan(place.topic, "0", 10))
    assert server.decode() == place.raw.info("server")["run_id"]
    assert (cursor, sorted(names)) == (b"0", [b"a", b"b", b"c"])


@pytest.mark.parametrize("way", ["there", "there and back"])
async def test_a_run_goes_on_where_the_move_takes_it(bench: Bench, way: str) -> None:
    """The limit goes with the timer: a debounced timer that moved meanwhile is not put off beyond it."""
    old = leaving(bench)
    at_rest, new = bench.at("1 1 2"), bench.at(NEW)
    timer = NewTimer("a", b"x", delay=30 * SECOND, intent=Debounce(40 * SECOND))
    await at_rest.store.schedule(at_rest.topic, [timer])
    old.now = new.now = NOW + 20 * SECOND
    batch = await leave(old, "a")
    place = new
    if way == "there":
        assert await put(place, batch) == [b"PUT"]
    else:
        assert await void(new, batch[0]) == b"VOID"
        assert await back(old, batch) == b"1"
        place = old
    (told,) = await place.store.schedule(place.topic, [timer])
    assert told == Scheduled(NOW + 40 * SECOND, Change.REPLACED)
