"""lua/people/record.lua: the action log is appended to, trimmed, and names a policy once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from relay.core.errors import WrongKeyType
from relay.core.timers import NewTimer
from relay.core.trust.actions import Action
from relay.core.trust.principals import Principal, caller
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline.actions import RedisActions
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench

PAUSE = Action("token:alice", "operate", "PauseTopic", "orders", note="“why”", before="not paused", relay="r")
POLICY = Action("relay", "admin", "TakeOverPolicy", "*", "policy.yaml", outcome="OK")


class Desk(RedisActions):
    """A record of this bench alone, by its clock, which keeps four entries."""

    def __init__(self, bench: Bench, server: Server) -> None:
        self.told: list[int] = []
        super().__init__(server, keeps=4, trimmed=self.told.append)
        self.bench, self.server, self.key = bench, server, server.keys.actions
        bench.raw.set(f"{self.key}:now", NOW)

    async def entries(self) -> list[Action]:
        return [replace(each, entry="") async for each in self.behind("0-0")]


@asynccontextmanager
async def desk(bench: Bench) -> AsyncIterator[Desk]:
    keys = KeyNames(topics=f"{KeyNames().topics}:{bench.topic}")
    async with Server(bench.server.url, keys, connections=1, timeout=60.0, texts=bench.texts) as server:
        yield Desk(bench, server)


async def test_entries_come_back(bench: Bench) -> None:
    """As they were written, with the server's time; from both ends."""
    async with desk(bench) as record:
        began = await record.append(PAUSE)
        ended = replace(PAUSE, outcome="OK", after="paused", began=began)
        last = await record.append(ended)
        assert await record.entries() == [replace(PAUSE, time=NOW), replace(ended, time=NOW)]
        assert [each.entry async for each in record.backwards()] == [last, began]
        assert [each.entry async for each in record.behind(began)] == [last]


async def test_the_oldest_entries_go(bench: Bench) -> None:
    """Which is told, so that it can be counted."""
    async with desk(bench) as record:
        for number in range(6):
            await record.append(replace(PAUSE, thing=str(number)))
        assert [each.thing for each in await record.entries()] == ["2", "3", "4", "5"]
        assert record.told == [1, 1]


async def test_a_policy_has_one_entry(bench: Bench) -> None:
    """However many relays take it over, until another one is; the entry says what was before."""
    async with desk(bench) as record:
        first, second = (replace(POLICY, after=after) for after in ("sha256:1", "sha256:2"))
        assert await record.append(first, once="sha256:1")
        assert not await record.append(first, once="sha256:1")
        assert await record.append(second, once="sha256:2")
        assert await record.append(first, once="sha256:1")
        assert [(each.before, each.after) for each in await record.entries()] == [
            ("", "sha256:1"),
            ("sha256:1", "sha256:2"),
            ("sha256:2", "sha256:1"),
        ]


async def test_a_full_redis_takes_an_entry(bench: Bench) -> None:
    """What makes room, such as a purge, must not fail for want of it."""
    async with desk(bench) as record:
        with bench.full():
            await record.append(PAUSE)
        assert len(await record.entries()) == 1


async def test_what_others_have_written(bench: Bench) -> None:
    """Is read as far as it is known; a key of another type is refused by name."""
    async with desk(bench) as record:
        bench.raw.xadd(
            record.key, {"principal": "token:bob", "of_tomorrow": "x", "time": "soon", "began": "x"}
        )
        assert await record.entries() == [Action("token:bob", "", "", "")]
        bench.raw.delete(record.key)
        bench.raw.set(record.key, "x")
        with pytest.raises(WrongKeyType, match="holds a string"):
            await record.append(PAUSE)
        bench.raw.delete(record.key)


async def test_the_journal_says_who_asked(bench: Bench) -> None:
    """Of what a person did and of what a caller scheduled, once for a batch; of all else, nothing."""
    bench.keep = 100
    await bench.schedule("a", NOW + 1)
    asked = caller.set(Principal("token:alice"))
    try:
        await bench.topics.pause(bench.topic)
        await bench.store.run(bench.topic, ["a"])
        await bench.schedule("b", NOW + 1)
    finally:
        caller.reset(asked)
    await bench.topics.resume(bench.topic)
    assert {batch.relay for batch in await bench.batches()} == {""}
    said = [(each.kind.name, each.principal) for batch in await bench.batches() for each in batch.records]
    assert said == [
        ("SCHEDULED", ""),
        ("PAUSED", "token:alice"),
        ("RUN", "token:alice"),
        ("SCHEDULED", "token:alice"),
        ("RESUMED", ""),
    ]


async def test_the_journal_says_which_relay(bench: Bench) -> None:
    """The name of the one that made a call, beside who asked for it; names of people may have spaces."""
    bench.keep = 100
    url, journals = bench.server.url, bench.journals
    async with Server(
        url, connections=1, timeout=60.0, journals=journals, texts=bench.texts, name="a-1"
    ) as one:
        await RedisStore(one).schedule(bench.topic, [NewTimer("a", b"", NOW + 1)])
        asked = caller.set(Principal("subject:CN=Alice Smith"))
        try:
            await RedisTopics(one).pause(bench.topic)
        finally:
            caller.reset(asked)
    said = [(batch.relay, each.principal) for batch in await bench.batches() for each in batch.records]
    assert said == [("a-1", ""), ("a-1", "subject:CN=Alice Smith")]
