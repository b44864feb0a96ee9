"""Subjects where Redis is not one server that stays: a Cluster whose slots move, and a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from relay.core.errors import StoreUnavailable, SubjectForgotten
from relay.core.instants import SECOND
from relay.core.outcomes import ClaimRequest
from relay.core.timers import NewTimer
from relay.core.trust.sealing import Unopened
from relay.store.codec.subjects import KNOWN
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.layouts import RedisLayouts
from relay.store.partitions.timers import PartitionedTimers
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from tests.servers import start_server
from tests.store.test_resealing import contents
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.waiting import until

TOPIC, PARTITIONS = "orders", 8
NAMES = [f"t{n}" for n in range(32)]


class Desk:
    """A relay of a topic with several partitions, whose knowledge of subjects ends when the test says so."""

    def __init__(self, server: Server, directory: Path, partitions: int = PARTITIONS) -> None:
        self.server = server
        self.contents = contents(directory, "k1")
        self.layouts = RedisLayouts(server, lambda _: partitions)
        self.topics = RedisTopics(server, contents=self.contents)
        timers = RedisStore(server, contents=self.contents)
        self.timers = PartitionedTimers(timers, self.topics, self.layouts, server, Carrier(server))
        self._claims = 0
        self._now = 0.0
        assert self.contents.subjects is not None
        self.contents.subjects._now = lambda: self._now

    def know_nothing(self) -> None:
        self._now += KNOWN

    async def schedule(self, suffix: str = "", *who: str) -> None:
        """Timers of each subject, spread over all partitions, due at once."""
        layout = await self.layouts.ask(TOPIC)
        for n, name in enumerate(NAMES):
            subject = who[n % len(who)]
            timer = NewTimer(f"{subject}-{name}{suffix}", subject.encode(), due=1, seal_with=subject)
            await self.timers.schedule(layout.partition(timer.timer_id), [timer])

    async def claimed(self) -> dict[str, bytes | Unopened]:
        """All that is due: the payloads, or why they don't open."""
        found: dict[str, bytes | Unopened] = {}
        for partition in (await self.layouts.ask(TOPIC)).partitions:
            self._claims += 1
            request = ClaimRequest(500, 3600 * SECOND, b"%016d" % self._claims, 1 << 20)
            claim = await self.timers.claim(partition, request)
            found |= {each.timer_id: each.unopened or each.payload for each in claim.timers}
        return found


def told(found: dict[str, bytes | Unopened]) -> dict[str, set[str]]:
    """What became of the timers of each subject."""
    said: dict[str, set[str]] = {}
    for name, each in found.items():
        words = str(each) if isinstance(each, Unopened) else each.decode()
        said.setdefault(name.partition("-")[0], set()).add(words)
    return said


FORGOTTEN = "sealed for a subject that was forgotten"


async def test_subjects_on_a_cluster(tmp_path: Path) -> None:
    """The hash of a topic's subjects lies on one node, and its timers on both. Its slot moves to the other
    node and back, with keys given, read and removed before, between and behind."""
    with Cluster("valkey", masters=2) as cluster:
        async with Server(cluster.url, connections=2, timeout=60.0) as server:
            one, other = Desk(server, tmp_path), Desk(server, tmp_path)
            await one.schedule("", "ann", "ben", "cid")
            home = next(node for node in cluster.nodes if cluster.owner_of(TOPIC) is node)
            away = next(node for node in cluster.nodes if node is not home)
            assert {cluster.owner_of(f"{TOPIC}#{n}") for n in range(1, PARTITIONS)} == {home, away}
            assert await one.topics.forget_subject(TOPIC, "ann")
            await other.layouts.ask(TOPIC)
            cluster.begin_move(TOPIC, home, away)
            cluster.carry(TOPIC, home, away)  # whoever asks now waits until the slot is there
            under_way = asyncio.create_task(other.topics.forget_subject(TOPIC, "ben"))
            await until(lambda: "errorstat_ASK" in cluster.tell(home, "INFO", "errorstats"), "it waits")
            assert not under_way.done()
            cluster.end_move(TOPIC, away)
            assert await under_way
            other.know_nothing()
            with pytest.raises(SubjectForgotten):
                await other.schedule("", "ann")
            await other.schedule("-between", "cid", "dan")
            one.know_nothing()
            assert told(await one.claimed()) == {
                "ann": {FORGOTTEN},
                "ben": {FORGOTTEN},
                "cid": {"cid"},
                "dan": {"dan"},
            }
            cluster.migrate(TOPIC, home)
            for subject in ("ann", "ben"):
                one.know_nothing()
                with pytest.raises(SubjectForgotten):
                    await one.schedule("-behind", subject)
            await one.schedule("-behind", "cid")
            assert told(await other.claimed()) == {"cid": {"cid"}}


async def test_a_restart_between(tmp_path: Path) -> None:
    """Redis is killed between a key and its timers, and between forgetting and what follows: with a file that
    is written before each answer, keys are there again, and what was forgotten is not."""
    with start_server("valkey", config={"appendonly": "yes", "appendfsync": "always"}) as own:
        async with Server(own.url, connections=2, timeout=60.0) as server:
            desk = Desk(server, tmp_path, 1)
            await desk.schedule("", "ann", "ben")
            await reborn(own.kill, own.start, desk)
            desk.know_nothing()
            await desk.schedule("-later", "ben")
            assert await desk.topics.forget_subject(TOPIC, "ann")
            await reborn(own.kill, own.start, desk)
            desk.know_nothing()
            assert told(await desk.claimed()) == {"ann": {FORGOTTEN}, "ben": {"ben"}}
            with pytest.raises(SubjectForgotten):
                await desk.schedule("-again", "ann")


async def reborn(kill: object, start: object, desk: Desk) -> None:
    """Kill the server, start it again, and wait until the relay has its connections back."""
    assert callable(kill)
    assert callable(start)
    kill()
    start()

    async def answers() -> bool:
        try:
            await desk.server.ping()
        except StoreUnavailable:
            return False
        return True

    await until(answers, "the relay reaches Redis again")
