"""The action log, where it is written: in Redis, before the effect and behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import anyio
import pytest

from relay.api.people.actions import Actions
from relay.api.people.policy_record import PolicyRecord
from relay.core.durability import Durability, needed, needing
from relay.core.errors import InvalidField, OpenOutcome
from relay.core.trust.actions import Action, joined
from relay.core.trust.principals import Principal, caller
from relay.core.trust.verbs import AccessVerb
from relay.store.keys import KeyNames
from relay.store.server import server as server_module
from relay.store.server.server import Server
from relay.store.timeline import actions as actions_module
from relay.store.timeline.actions import RedisActions
from relay.store.timeline.topics import RedisTopics
from tests.keyspace import Keyspace
from tests.servers import RunningServer, start_server
from tests.worlds.waiting import PATIENCE, until

PAUSE = (AccessVerb.OPERATE, "PauseTopic", "orders")


class Record:
    """A record of its own in Redis."""

    def __init__(self, server: Server) -> None:
        self.server, self.store = server, RedisActions(server)
        self.actions = Actions(self.store, "pod-1", unwritten=self.count)
        self.unwritten = 0

    def count(self) -> None:
        self.unwritten += 1

    async def entries(self) -> list[Action]:
        return [each async for each in self.store.behind("0-0")]

    async def said(self) -> list[tuple[str, str, str]]:
        return [(each.before, each.outcome, each.after) for each in joined(await self.entries())]


@pytest.fixture
async def record(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Record]:
    monkeypatch.setattr(actions_module, "PATIENCE", PATIENCE)  # a busy machine takes longer
    keys = KeyNames(topics=f"timers_topics:{keyspace.topic()}")
    async with Server(valkey.url, keys, connections=1, timeout=60.0) as server:
        yield Record(server)


async def test_an_action_is_said_twice(record: Record) -> None:
    """So that one of the two is there wherever its relay dies; for the caller of the running task."""
    asked = caller.set(Principal("token:alice"))
    async with record.actions.record(*PAUSE, note="why") as action:
        await action.begin("not paused")
        (began,) = await record.entries()
        action.after = "paused"
    caller.reset(asked)
    assert (began.outcome, began.before, began.note, began.relay) == ("", "not paused", "why", "pod-1")
    _, ended = await record.entries()
    assert (ended.began, ended.outcome, ended.after) == (began.entry, "OK", "paused")
    assert {began.principal, ended.principal} == {"token:alice"}


async def test_an_action_log_that_can_t_be_written_stops_nobody(
    record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    """What it lacks is counted, and stands in the relay's log with all that it would have said."""
    key = record.server.keys.actions
    await record.server.ask("SET", key, "x")
    async with record.actions.record(*PAUSE, note="why") as action:
        await action.begin("not paused")
        (line,) = caplog.records
        assert (line.levelname, record.unwritten) == ("ERROR", 1)
        said = {name: line.__dict__[name] for name in ("principal", "method", "topic", "note", "before")}
        assert list(said.values()) == ["anonymous", "PauseTopic", "orders", "why", "not paused"]
        assert key in line.__dict__["reason"]
        await record.server.ask("DEL", key)
        await action.begin("not paused")
        action.after = "paused"
    assert await record.said() == [("not paused", "OK", "paused")]
    assert record.unwritten == 1


async def test_an_action_waits_a_moment_for_its_entry() -> None:
    """The node of the log hangs: the caller has time left for what the call is for. An entry that was given
    up is not written afterwards."""
    with start_server("valkey") as away:
        async with Server(away.url, connections=1, timeout=60.0) as server:
            store, unwritten = RedisActions(server), []
            actions = Actions(store, unwritten=lambda: unwritten.append(1))
            await server.ask("PING")
            away.freeze()
            with anyio.fail_after(15.0):
                async with actions.record(*PAUSE) as action:
                    await action.begin("not paused")
            away.thaw()
            assert [each async for each in store.backwards()] == []
    assert len(unwritten) == 2


async def test_an_entry_is_waited_for_with_its_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies before the effect in the same file. A wait of its own would take as long as that of the
    effect, and with replicas' disks that is seconds: a call would end before both."""
    monkeypatch.setattr(actions_module, "PATIENCE", PATIENCE)
    monkeypatch.setattr(server_module, "DURABLE_TTL", PATIENCE)
    with start_server("valkey", config={"appendonly": "yes", "appendfsync": "always"}) as synced:
        async with Server(synced.url, connections=1, timeout=60.0) as server:
            store = RedisActions(server)
            with needing(Durability(fsync=True)):
                async with Actions(store).record(*PAUSE) as action:
                    await action.begin("not paused")
                    assert "cmdstat_waitaof" not in synced.control.info("commandstats")
                    assert needed().fsync, "the effect waits"
                    await RedisTopics(server).pause("orders", duration=60_000_000)
                    assert "cmdstat_waitaof" in synced.control.info("commandstats")
            assert [each.before async for each in store.backwards()] == ["not paused"] * 2


async def test_a_call_that_was_cut_off_stays_open(record: Record) -> None:
    """Its caller goes away in the middle of it: nobody knows whether it had its effect."""
    inside = asyncio.Event()

    async def call() -> None:
        async with record.actions.record(*PAUSE) as action:
            await action.begin("not paused")
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(call())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await record.said() == [("not paused", "", "")]


async def test_a_failure_is_said(record: Record) -> None:
    """By the status that the caller has got: an outcome that is open may have been an effect."""

    async def call() -> None:
        async with record.actions.record(*PAUSE) as action:
            await action.begin("not paused")
            raise OpenOutcome("no answer", since=0, until=0)

    with pytest.raises(OpenOutcome):
        await call()
    assert await record.said() == [("not paused", "UNAVAILABLE", "")]


async def test_an_end_that_can_t_be_said_fails_nothing(
    record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    """The effect has happened; the action stays open, and the log says how it ended."""
    key = record.server.keys.actions
    async with record.actions.record(*PAUSE) as action:
        await action.begin("not paused")
        await record.server.ask("RENAME", key, f"{key}:aside")
        await record.server.ask("SET", key, "x")
        action.after = "paused"
    (line,) = caplog.records
    assert (line.__dict__["outcome"], line.__dict__["method"]) == ("OK", "PauseTopic")
    assert line.__dict__["began"]


async def test_what_changes_nothing_is_not_recorded(record: Record) -> None:
    async with record.actions.record(*PAUSE):
        pass
    with pytest.raises(InvalidField, match=r"^note: is 1025 bytes long; at most 1,024 are allowed"):
        record.actions.record(*PAUSE, note="x" * 1025)
    assert await record.entries() == []


async def test_what_was_not_expected_is_said_behind_it(record: Record) -> None:
    """It seemed that nothing would change, and somebody has changed it meanwhile."""
    async with record.actions.record(*PAUSE) as action:
        action.after = "paused"
    (said,) = await record.entries()
    assert (said.began, said.before, said.outcome, said.after) == ("", "", "OK", "paused")


async def test_a_policy_that_can_t_be_recorded_is_recorded_later(
    record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    """That it is not yet is one line of the log, however often it is tried."""
    await record.server.ask("SET", record.server.keys.actions, "x")
    policies = PolicyRecord()
    policies.hear("policy.yaml", "sha256:1")
    recording = asyncio.create_task(policies.run(record.actions))
    await until(lambda: caplog.records, "it is said")
    await record.server.ask("DEL", record.server.keys.actions)
    await until(record.entries, "it is recorded")
    recording.cancel()
    assert ["recorded later" in line.getMessage() for line in caplog.records] == [True]
    assert await record.said() == [("", "OK", "sha256:1")]
