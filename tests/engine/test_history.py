"""A history asks in three places, one after the other, while occurrences go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from relay.app import put_together
from relay.core.instants import SECOND
from relay.core.journal import Journals
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Limits, Verb
from relay.core.recurring.ends import Became, OccurrenceOutcome
from relay.core.recurring.recurrence import Overlap, Recurrence
from relay.core.recurring.rule import Rule
from relay.engine.engine import Engine
from relay.settings import Settings
from relay.store.keys import KeyNames
from relay.store.partitions.layouts import RedisLayouts
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.telemetry.metrics.provider import Metrics
from relay.telemetry.traces.tracing import Tracing
from tests.settlements import end_of
from tests.worlds.scripts.asking import N1

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

RARE = Recurrence("r", Rule(every=36_500 * 86_400 * SECOND), b"x", overlap=Overlap.ALLOW)
"""Counted from 1970: no instant falls due while a test runs, whatever the time of day."""
OUTCOME = OccurrenceOutcome


class Scene:
    """An engine and its topic, which has a journal."""

    def __init__(self, engine: Engine, server: Server, topic: str) -> None:
        self.engine, self.topic = engine, topic
        self.store = RedisStore(server)

    async def trigger(self) -> str:
        return await self.engine.recurrences.trigger(self.topic, "r")

    async def dead(self) -> str:
        """An occurrence that is dead."""
        timer_id = await self.trigger()
        request = ClaimRequest(500, 60 * SECOND, N1, 1 << 20, NO_LIMITS)
        assert len((await self.store.claim(self.topic, request)).timers) == 1
        await self.store.settle(self.topic, [end_of(timer_id, N1, Verb.REJECT)], limits=Limits(keep=True))
        return timer_id

    async def became(self) -> dict[str, Became]:
        kept = await self.engine.recurrences.get(self.topic, "r")
        passed = await self.engine.history.of(self.topic, kept, 16)
        return {each.past.timer_id: each.became for each in passed if each.became is not None}


@pytest.fixture
async def scene(valkey: RunningServer, keyspace: Keyspace) -> AsyncIterator[Scene]:
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}*")
    settings = Settings.model_validate({"topics": {topic: {"journal": True}}})
    metrics, policies = Metrics(), settings.policies()
    journals = Journals(lambda topic: policies(topic).journal_keeps)
    async with Server(valkey.url, connections=4, timeout=60.0, journals=journals) as server:
        layouts = RedisLayouts(server, lambda _: 1)
        hints = RedisHints(server)
        engine = put_together(settings, server, hints, layouts, metrics.instruments, Tracing())
        async with anyio.create_task_group() as tasks:
            await tasks.start(engine.run)
            await engine.recurrences.put(topic, RARE)
            yield Scene(engine, server, topic)
            tasks.cancel_scope.cancel()
    metrics.close()


async def test_redriven_as_it_is_asked_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not in the timeline; then it is redriven, so that there is no dead letter, either."""
    timer_id = await scene.dead()
    ended = RedisRecurrences.ended

    async def redriven(*given: Any, **named: Any) -> Mapping[str, Became]:
        (letter,) = (await scene.engine.topics.dead_page(scene.topic, limit=9, cursor="")).letters
        await scene.engine.redrive(scene.topic, [letter.dead_id])
        return await ended(*given, **named)

    monkeypatch.setattr(RedisRecurrences, "ended", redriven)
    assert await scene.became() == {timer_id: Became(OUTCOME.WAITING)}


async def test_removed_by_a_foreign_writer(scene: Scene, valkey: RunningServer) -> None:
    """Which nothing records: the journal believes it alive, and the timeline says that it is not."""
    timer_id = await scene.trigger()
    with valkey.client() as raw:
        raw.zrem(KeyNames().key("timeline", scene.topic), timer_id)
        raw.hdel(KeyNames().key("payloads", scene.topic), timer_id)
    assert await scene.became() == {timer_id: Became.unknown("not_recorded")}
