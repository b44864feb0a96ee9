"""`seal rotate`: every content gets the key that seals now. Nothing else changes, wherever it is killed."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from relay.core.errors import StoreFull, StoreRefused
from relay.core.outcomes import ClaimRequest, Limits, Verb
from relay.core.recurring.recurrence import Recurrence, Standing
from relay.core.recurring.rule import Rule
from relay.core.timers import NewTimer
from relay.core.trust.sealing import SUBJECT, subject_id
from relay.store.bulk.resealing import FORGOTTEN, PLAIN, Resealing, Sealed
from relay.store.bulk.store import BulkStore
from relay.store.codec.contents import Contents
from relay.store.keys import KeyNames
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.layouts import RedisLayouts
from relay.store.partitions.moves import RedisMoves
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.partitions.timers import PartitionedTimers
from relay.store.server.blocking import BlockingServer
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.subjects import Subjects
from relay.store.timeline.topics import RedisTopics
from relay.store.verbs import reseal
from relay.store.verbs import subjects as of_subjects
from relay.trust.keyring import FileKeyring
from tests.keyspace import Keyspace
from tests.servers import RunningServer, start_server
from tests.settlements import end_of
from tests.store.moving import nothing

SECOND = 1_000_000
LATER = 4_000_000_000 * SECOND
N1 = b"relay-1-nonce-01"
KEYS = {"k1": bytes(range(32)), "k2": bytes(range(1, 33))}
WAITING, DEAD = [f"w{n}" for n in range(7)], [f"d{n}" for n in range(5)]


def contents(directory: Path, writes: str, *others: str) -> Contents:
    file = directory / f"{writes}{others}.json"
    keys = {each: {"base64": base64.b64encode(KEYS[each]).decode()} for each in (writes, *others)}
    file.write_text(json.dumps({"write": writes, "keys": keys}))
    return Contents(FileKeyring(file), lambda _: True)


class Desk:
    """A topic with plain contents and such with an old key, and whoever gives them the new one."""

    def __init__(self, url: str, topic: str, old: Contents, both: Contents, partitions: int) -> None:
        self.url, self.topic, self.both = url, topic, both
        self.server = Server(url, connections=2, timeout=60.0)
        self.layouts = RedisLayouts(self.server, lambda _: partitions)
        self.old, self.plain = RedisStore(self.server, contents=old), RedisStore(self.server)
        self.topics = RedisTopics(self.server, contents=both)
        self.recurrences = RedisRecurrences(self.server, Carrier(self.server), old)
        self.partitions: tuple[str, ...] = ()
        self.kept: dict[str, bytes | None] = {}

    async def fill(self) -> None:
        """Timers that wait, one that is leased, dead letters, recurrences; about half of all in the clear."""
        layout = await self.layouts.ask(self.topic)
        self.partitions = layout.partitions
        carrier = Carrier(self.server)
        claiming = PartitionedTimers(self.plain, self.topics, self.layouts, self.server, carrier)
        for n, name in enumerate([*DEAD, "leased"]):
            store, where = (self.plain, self.old)[n % 2], layout.partition(name)
            await store.schedule(where, [NewTimer(name, name.encode(), due=1)])
            await claiming.claim(where, ClaimRequest(500, 3600 * SECOND, N1, 1 << 20))
            if name in DEAD:
                await store.settle(where, [end_of(name, N1, Verb.REJECT)], limits=Limits(keep=True))
        for n, name in enumerate(WAITING):
            store = (self.plain, self.old)[n % 2]
            await store.schedule(layout.partition(name), [NewTimer(name, name.encode(), due=LATER)])
        for name in ("ann", "ben"):
            await self.old.schedule(layout.partition(name), [NewTimer(name, b"s", due=LATER, seal_with=name)])
        assert await self.topics.forget_subject(self.topic, "ben")
        await self.plain.cancel(layout.partition("ben"), ["ben"])
        for name, kept in (
            ("r1", self.recurrences),
            ("r2", RedisRecurrences(self.server, Carrier(self.server))),
        ):
            wanted = Recurrence(name, Rule(every=SECOND), name.encode(), {"h": name})
            assert await kept.keep(layout.partition(name), None, wanted, Standing(1, 1, 0), 0, reason="put")

    async def keep(self) -> None:
        """Remember the contents as they are sealed now."""
        names = [
            self.server.keys.key(name, each)
            for each in self.partitions
            for name in ("payloads", "rules", "dead")
        ] + [self.server.keys.key("subjects", self.topic)]
        self.kept = {key: await self.server.ask("DUMP", key) for key in names}

    async def bring_back(self) -> None:
        for key, dump in self.kept.items():
            if dump is not None:
                await self.server.ask("RESTORE", key, 0, dump, "REPLACE")

    def rotate(self, die_at: int | None = None, after: bool = False) -> tuple[int, Counter[Sealed]]:
        """Rotate; the process dies at a script's call, before it is sent or after it was answered. Return the
        number of calls, and what was done."""
        with BulkStore(BlockingServer(self.url)) as store:
            call, calls = store.call, 0

            def mortal(each: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == die_at and not after:
                    raise Killed
                answer = call(each)
                if calls == die_at:
                    raise Killed
                return answer

            store.call = mortal  # type: ignore[assignment, method-assign]
            return calls, Resealing(store).rotate(self.topic, self.both, "k2").changed

    def count(self) -> dict[Sealed, Counter[str]]:
        with BulkStore(BlockingServer(self.url)) as store:
            return Resealing(store).count(self.topic)

    async def held(self) -> Any:
        """All that is there, with the contents opened: the same, whatever is sealed with which key."""
        found: dict[str, Any] = {}
        keys = KeyNames()
        for partition in self.partitions:
            for name in ("timeline", "leases", "standings", "ticks"):
                key = keys.key(name, partition)
                kind = await self.server.ask("TYPE", key)
                if kind == b"zset":
                    found[key] = await self.server.ask("ZRANGE", key, 0, -1, "WITHSCORES")
                elif kind == b"hash":
                    found[key] = await self.server.ask("HGETALL", key)
            stored = await self.server.ask("HGETALL", keys.key("payloads", partition))
            await Subjects(self.server, self.both).look(partition, stored.values())
            found[f"payloads {partition}"] = {
                name: self.both.decode(partition, name.decode(), each) for name, each in stored.items()
            }
            for entry, fields in await self.server.ask("XRANGE", keys.key("dead", partition), "-", "+"):
                name = fields[b"timer_id"].decode()
                content = self.both.decode(partition, name, fields[b"envelope"])
                found[f"dead {partition} {entry}"] = {**fields, b"envelope": content}
        kept = RedisRecurrences(self.server, Carrier(self.server), self.both)
        for name in ("r1", "r2"):
            layout = await self.layouts.ask(self.topic)
            one = await kept.get(layout.partition(name), name)
            found[name] = one[1]
        return found


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture(params=[1, 4], ids=["whole", "partitions"])
async def desk(
    request: pytest.FixtureRequest, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> AsyncIterator[Desk]:
    topic = keyspace.topic("sealed")
    keyspace.allow(f"*{topic}*")
    desk = Desk(valkey.url, topic, contents(tmp_path, "k1"), contents(tmp_path, "k2", "k1"), request.param)
    await desk.fill()
    yield desk
    await desk.server.aclose()


NEW = {
    Sealed.SUBJECTS: Counter({"k2": 1, FORGOTTEN: 1}),
    Sealed.TIMERS: Counter({"k2": len(WAITING) + 1, SUBJECT: 1}),
    Sealed.RECURRENCES: Counter({"k2": 2}),
    Sealed.DEAD_LETTERS: Counter({"k2": len(DEAD)}),
}


async def test_all_get_the_new_key_and_nothing_else_changes(desk: Desk) -> None:
    """Not a lease, not a due time, not a dead letter's id; a second run finds nothing to do."""
    before = await desk.held()
    assert desk.count() == {
        Sealed.SUBJECTS: Counter({"k1": 1, FORGOTTEN: 1}),
        Sealed.TIMERS: Counter({PLAIN: 4, "k1": 4, SUBJECT: 1}),
        Sealed.RECURRENCES: Counter({"k1": 1, PLAIN: 1}),
        Sealed.DEAD_LETTERS: Counter({PLAIN: 3, "k1": 2}),
    }
    _, changed = desk.rotate()
    assert changed == {Sealed.SUBJECTS: 1, Sealed.TIMERS: 8, Sealed.RECURRENCES: 2, Sealed.DEAD_LETTERS: 5}
    assert desk.count() == NEW
    assert await desk.held() == before
    assert desk.rotate() == (0, Counter())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_it_may_be_killed_at_each_call(desk: Desk, after: bool) -> None:
    """Nothing is lost or doubled, and a second run ends it."""
    before, calls = await desk.held(), 0
    await desk.keep()
    while True:
        calls += 1
        try:
            desk.rotate(calls, after)
        except Killed:
            assert await desk.held() == before
        else:
            break
        desk.rotate()
        assert await desk.held() == before
        assert desk.count() == NEW
        await desk.bring_back()
    assert calls > 5


async def test_what_changes_beside_it_stays_as_somebody_else_made_it(desk: Desk) -> None:
    """Between the read and the exchange a timer and a recurrence get another content, and a timer ends: none
    of that is undone."""
    layout = await desk.layouts.ask(desk.topic)
    at = layout.partition
    keys, numbers = desk.server.keys, count()

    def exchange(name: str, each: str, call: Callable[[str, list[bytes]], Any]) -> int:
        with BulkStore(BlockingServer(desk.url)) as store:
            read = store.server.ask("HGET", keys.key(name, at(each)), each)
            race()
            done: int = store.call(call(at(each), [each.encode(), read, b"resealed"]))
            return done

    with BulkStore(BlockingServer(desk.url)) as other:

        def race() -> None:
            for name, each in (("payloads", "w0"), ("rules", "r1")):
                other.server.ask("HSET", keys.key(name, at(each)), each, f"newer {next(numbers)}")
            other.server.ask("HDEL", keys.key("payloads", at("w1")), "w1")

        assert exchange("payloads", "w0", reseal.contents) == 0
        assert exchange("rules", "r1", reseal.rules) == 0
        subjects, ann = keys.key("subjects", desk.topic), subject_id(desk.topic, "ann")
        read = other.server.ask("HGET", subjects, ann)
        assert other.call(of_subjects.forget(desk.topic, ann)).startswith(b"!")
        assert other.call(reseal.subjects(desk.topic, [ann.encode(), read, b"resealed"])) == 0
        assert other.server.ask("HGET", subjects, ann).startswith(b"!")
        assert other.server.ask("HGET", keys.key("payloads", at("w0")), "w0") == b"newer 2"
        assert other.server.ask("HGET", keys.key("rules", at("r1")), "r1") == b"newer 3"
        assert other.call(reseal.contents(at("w1"), [b"w1", b"gone", b"resealed"])) == 0
        assert not other.server.ask("HEXISTS", keys.key("payloads", at("w1")), "w1")


async def test_dead_letters_that_come_and_go_beside_the_copying(desk: Desk) -> None:
    """Between the last copy and the swap one is purged and one dies: the swap waits until the copy has what
    is there, and no more."""
    layout = await desk.layouts.ask(desk.topic)
    name, others = DEAD[0], [each for each in DEAD if layout.partition(each) == layout.partition(DEAD[0])]
    where, swaps = layout.partition(name), 0
    with BulkStore(BlockingServer(desk.url)) as store, BulkStore(BlockingServer(desk.url)) as other:
        key, call = desk.server.keys.key("dead", where), store.call

        def raced(each: Any) -> Any:
            nonlocal swaps
            if each.verb == "reseal/swap" and each.topic == where and (swaps := swaps + 1) == 1:
                ((entry, fields),) = other.server.ask("XRANGE", key, "-", "+", "COUNT", 1)
                other.server.ask("XADD", key, "*", *fields)
                other.server.ask("XDEL", key, entry)
            return call(each)

        store.call = raced  # type: ignore[assignment, method-assign]
        Resealing(store).rotate(desk.topic, desk.both, "k2")
        assert swaps > 1
        entries = other.server.ask("XRANGE", key, "-", "+")
        found = [
            dict(zip(fields[::2], fields[1::2], strict=True))[b"timer_id"].decode() for _, fields in entries
        ]
        assert found == [*others[1:], name]
    assert desk.count()[Sealed.DEAD_LETTERS] == Counter({"k2": len(DEAD)})


@pytest.mark.parametrize("moves_at", [1, 2, 3])
async def test_a_topic_that_moves_beside_it(desk: Desk, moves_at: int) -> None:
    """It gets twice the partitions before the first partition is looked at, after it, or before the next one
    is: what has moved gets the key, too."""
    loop, looks = asyncio.get_running_loop(), 0
    moves = RedisMoves(desk.server, desk.layouts, Carrier(desk.server))

    async def move() -> None:
        layout = await desk.layouts.ask(desk.topic)
        moving = await moves.begin(desk.topic, 2 * layout.count)
        assert moving.towards
        await moves.run(moving, nothing)

    def run() -> None:
        with BulkStore(BlockingServer(desk.url)) as store:
            ask = store.server.ask

            def raced(command: str, *arguments: Any) -> Any:
                nonlocal looks
                looks += command == "HSCAN"
                if looks == moves_at and command == "HSCAN":
                    asyncio.run_coroutine_threadsafe(move(), loop).result()
                return ask(command, *arguments)

            store.server.ask = raced  # type: ignore[assignment, method-assign]
            Resealing(store).rotate(desk.topic, desk.both, "k2")

    await asyncio.to_thread(run)
    assert desk.count() == NEW


async def test_letters_that_are_trimmed_all_the_time(desk: Desk) -> None:
    """A death beside each call takes the oldest letter with it: the copy is not compared from its beginning
    each time, which would never end."""
    layout = await desk.layouts.ask(desk.topic)
    where, verbs = layout.partition(DEAD[0]), list[str]()
    with BulkStore(BlockingServer(desk.url)) as store, BulkStore(BlockingServer(desk.url)) as other:
        key, call = desk.server.keys.key("dead", where), store.call

        def raced(each: Any) -> Any:
            if each.topic == where and each.verb in ("reseal/copy", "reseal/drop") and len(verbs) < 20:
                verbs.append(each.verb)
                ((entry, fields),) = other.server.ask("XRANGE", key, "-", "+", "COUNT", 1)
                if each.verb == "reseal/drop" or len(verbs) == 1:
                    other.server.ask("XADD", key, "*", *fields)
                    answer = call(each)
                    other.server.ask("XDEL", key, entry)
                    return answer
            return call(each)

        store.call = raced  # type: ignore[assignment, method-assign]
        Resealing(store).rotate(desk.topic, desk.both, "k2")
    assert set(verbs) == {"reseal/copy"}
    assert desk.count()[Sealed.DEAD_LETTERS] == Counter({"k2": len(DEAD)})


async def test_a_letter_that_goes_from_the_midst_of_the_copy(desk: Desk) -> None:
    """One dies and is copied, and is purged as the next one dies."""
    layout = await desk.layouts.ask(desk.topic)
    where, swaps, verbs = layout.partition(DEAD[0]), 0, set[str]()
    with BulkStore(BlockingServer(desk.url)) as store, BulkStore(BlockingServer(desk.url)) as other:
        key, call = desk.server.keys.key("dead", where), store.call

        def raced(each: Any) -> Any:
            nonlocal swaps
            verbs.add(each.verb)
            if each.verb == "reseal/swap" and each.topic == where and (swaps := swaps + 1) <= 2:
                ((entry, fields),) = other.server.ask("XREVRANGE", key, "+", "-", "COUNT", 1)
                other.server.ask("XADD", key, "*", *fields)
                if swaps == 2:
                    other.server.ask("XDEL", key, entry)
            return call(each)

        store.call = raced  # type: ignore[assignment, method-assign]
        Resealing(store).rotate(desk.topic, desk.both, "k2")
    assert "reseal/drop" in verbs
    assert desk.count()[Sealed.DEAD_LETTERS] == Counter({"k2": len(DEAD) + 1})


async def test_no_copy_outlives_its_letters(desk: Desk) -> None:
    """A run is killed while it copies, and the letters are purged before the next run: what was purged lies
    nowhere."""
    with BulkStore(BlockingServer(desk.url)) as store:
        call = store.call

        def mortal(each: Any) -> Any:
            if each.verb == "reseal/swap":
                raise Killed
            return call(each)

        store.call = mortal  # type: ignore[assignment, method-assign]
        with pytest.raises(Killed):
            Resealing(store).rotate(desk.topic, desk.both, "k2")
    assert await copies(desk)
    for where in desk.partitions:
        key = desk.server.keys.key("dead", where)
        for entry, _ in await desk.server.ask("XRANGE", key, "-", "+"):
            await desk.topics.purge(where, [entry.decode()])
    desk.rotate()
    assert not await copies(desk)


async def test_a_copy_does_not_fill_redis(tmp_path: Path) -> None:
    """Redis is full before the letters are copied: what was copied of them is removed again."""
    with start_server("valkey") as own:
        desk = Desk(own.url, "orders", contents(tmp_path, "k1"), contents(tmp_path, "k2", "k1"), 1)
        await desk.fill()
        before = await desk.held()
        with own.client() as operator, BulkStore(BlockingServer(own.url)) as store:
            call = store.call

            def filled(each: Any) -> Any:
                if each.verb == "reseal/copy":
                    operator.config_set("maxmemory", 1)
                return call(each)

            store.call = filled  # type: ignore[assignment, method-assign]
            with pytest.raises(StoreFull):
                Resealing(store).rotate(desk.topic, desk.both, "k2")
        assert not await copies(desk)
        assert await desk.held() == before
        await desk.server.aclose()


async def copies(desk: Desk) -> list[str]:
    keys = [desk.server.keys.key("copy", where) for where in desk.partitions]
    return [key for key in keys if await desk.server.ask("EXISTS", key)]


async def test_two_runs_do_not_mix_their_copies(desk: Desk) -> None:
    """The second takes over, and the first is refused at its next call."""
    layout = await desk.layouts.ask(desk.topic)
    where = layout.partition(DEAD[0])
    before = await desk.held()
    with BulkStore(BlockingServer(desk.url)) as store:
        call = store.call

        def raced(each: Any) -> Any:
            if each.verb in ("reseal/copy", "reseal/swap") and each.topic == where:
                call(reseal.begin(where, "another"))
            return call(each)

        store.call = raced  # type: ignore[assignment, method-assign]
        with pytest.raises(StoreRefused, match="another `relay seal rotate` has begun"):
            Resealing(store).rotate(desk.topic, desk.both, "k2")
    assert await desk.held() == before


async def test_what_does_not_open_is_left_and_told(desk: Desk, tmp_path: Path) -> None:
    """A key that is missing, and a content that somebody has changed."""
    only = contents(tmp_path, "k2")
    with BulkStore(BlockingServer(desk.url)) as store:
        done = Resealing(store).rotate(desk.topic, only, "k2")
        lacks = "sealed with key 'k1', which the keyring lacks"
        assert done.closed == {lacks: 4 + 1 + 2, f"the key of a subject, {lacks}": 1}
        found = Resealing(store).count(desk.topic)
    assert found[Sealed.TIMERS] == Counter({"k1": 4, "k2": 4, SUBJECT: 1})
