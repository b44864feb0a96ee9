"""A call that was given up never acts: Redis refuses it, and nobody is told of an open outcome before."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from time import monotonic

import anyio
import pytest
from anyio.to_thread import run_sync
from redis.exceptions import ResponseError

from relay.core.errors import GivenUp, OpenOutcome, StoreUnavailable
from relay.core.outcomes import ClaimRequest, Extension, Verb, Verdict
from relay.core.timers import Change, ClaimedTimer, NewTimer
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.store import BulkStore
from relay.store.codec import envelope
from relay.store.dispatch.stream_groups import RedisGroups
from relay.store.keys import KeyNames
from relay.store.server import server_clock
from relay.store.server.blocking import BlockingServer
from relay.store.server.scripts import Scripts
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.verbs import timeline
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.settlements import end_of
from tests.store.fake import Line
from tests.store.test_verbs import CALLS
from tests.worlds.scripts.desk import BILLING
from tests.worlds.waiting import until

TTL = 0.5
"""Seconds that a call has which is to be given up. What must succeed has a minute: on a busy machine half a
second may be over before a call is sent, or comes to Redis."""
FIRST, SECOND_INTENT = 4_000_000_000_000_000, 4_100_000_000_000_000
"""Due times in a hundred years or so."""


def sha_of(verb: str) -> bytes:
    """How a script is called."""
    return Scripts(KeyNames()).named(verb).sha.encode()


def until_of(line: Line, verb: str) -> int:
    """The instant in the last call of a script that went over the line (microseconds)."""
    call = line.sent.rpartition(sha_of(verb))[2]
    parts = [part for part in call.split(b"\r\n") if part and not part.startswith(b"$")]
    return int(parts[1 + int(parts[0])])


async def left_open(call: Callable[[], Awaitable[object]]) -> OpenOutcome:
    """Make a call until one was sent and its outcome is open: its time may be over before it is sent."""
    with anyio.fail_after(60):
        while True:
            with pytest.raises(StoreUnavailable) as told:
                await call()
            if isinstance(told.value, OpenOutcome):
                return told.value
            assert isinstance(told.value, GivenUp)


def server_time(server: RunningServer) -> int:
    """By its own clock (microseconds)."""
    with server.client() as client:
        seconds, micros = client.time()
    return int(seconds) * 1_000_000 + int(micros)


@pytest.mark.every_server
@pytest.mark.parametrize("keep", [0, 5], ids=["", "journal"])
def test_every_script_that_changes_something_refuses_late_calls(
    keep: int, redis_server: RunningServer, keyspace: Keyspace
) -> None:
    """It says so with its time, and touches nothing. One that reads asks for no time."""
    scripts, topic = Scripts(KeyNames()), keyspace.topic()
    with redis_server.client() as client:
        for call in CALLS:
            prepared = scripts.prepare(call._replace(topic=topic), lambda _: keep)
            if not prepared.script.writes:
                assert prepared.command(1) == prepared.command(2), call.verb
                continue
            now = server_time(redis_server)
            with pytest.raises(ResponseError, match=r"^GIVENUP \d{16}$") as refused:
                client.execute_command(*prepared.command(now - 1, known=False))
            assert int(str(refused.value).split()[1]) >= now, call.verb
            assert [key for key in prepared.keys if client.exists(key)] == [], call.verb


async def test_a_late_schedule_does_not_undo_what_was_answered(
    valkey: RunningServer, keyspace: Keyspace
) -> None:
    """Race: a schedule is held up on its way and given up. It is repeated elsewhere, and the timer moved.
    Then the first call arrives, and would bring back the first due time."""
    topic, line = keyspace.topic(), Line(valkey.port)
    async with (
        line.open() as url,
        Server(url, timeout=60.0, write_ttl=TTL) as slow,
        Server(valkey.url, timeout=60.0) as other,
    ):
        await RedisStore(slow).get(topic, "a")
        line.holding = True
        await left_open(lambda: RedisStore(slow).schedule(topic, [NewTimer("a", b"1", due=FIRST)]))
        store = RedisStore(other)
        await store.schedule(topic, [NewTimer("a", b"1", due=FIRST)])
        await store.schedule(topic, [NewTimer("a", b"2", due=SECOND_INTENT)])
        assert b"GIVENUP" in await line.deliver()
        timer = await store.get(topic, "a")
    assert timer is not None
    assert (timer.due, timer.payload) == (SECOND_INTENT, b"2")


async def test_a_late_cancel_does_not_remove_a_newer_timer(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Race: a cancel is held up on its way, and repeated. Its id is scheduled anew. Then it arrives."""
    topic, line = keyspace.topic(), Line(valkey.port)
    async with (
        line.open() as url,
        Server(url, timeout=60.0, write_ttl=TTL) as slow,
        Server(valkey.url, timeout=60.0) as other,
    ):
        store = RedisStore(other)
        await store.schedule(topic, [NewTimer("a", b"1", due=FIRST)])
        await RedisStore(slow).get(topic, "a")
        line.holding = True
        await left_open(lambda: RedisStore(slow).cancel(topic, ["a"]))
        (cancelled,) = await store.cancel(topic, ["a"])
        assert cancelled.change is Change.CANCELLED
        await store.schedule(topic, [NewTimer("a", b"2", due=SECOND_INTENT)])
        assert b"GIVENUP" in await line.deliver()
        assert await store.get(topic, "a") is not None


async def test_a_late_batch_of_a_load_does_not_undo_what_was_answered(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Race: a batch of a load that replaces is held up on its way, and its task fails. The timer is moved.
    Then the batch arrives."""
    topic, line, stored = keyspace.topic(), Line(valkey.port), envelope.encode(b"1", {}, "")
    rows = PackedRows.of(LoadRows(0, ["a"], [FIRST], [stored], []))
    async with line.open() as url, Server(valkey.url, timeout=60.0) as other:
        with BulkStore(BlockingServer(url, timeout=60.0)) as load:
            await run_sync(load.register, topic)
            await run_sync(load.server.keep, topic)
            monkeypatch.setattr("relay.store.server.line.WRITE_TTL", TTL)
            line.holding = True
            await run_sync(load.replace, topic, rows)
            async with anyio.create_task_group() as group:
                group.start_soon(reset_once_sent, line, stored)
                with pytest.raises(StoreUnavailable):
                    await run_sync(load.flush)
        store = RedisStore(other)
        await store.schedule(topic, [NewTimer("a", b"2", due=SECOND_INTENT)])
        assert b"GIVENUP" in await line.deliver()
        timer = await store.get(topic, "a")
    assert timer is not None
    assert (timer.due, timer.payload) == (SECOND_INTENT, b"2")


@pytest.mark.parametrize("lost", ["reply", "request", "line"])
async def test_an_open_outcome_is_told_when_the_call_cannot_act_any_more(
    valkey: RunningServer, keyspace: Keyspace, lost: str
) -> None:
    """Whoever is told may try again at once: the clock of Redis is past the call's time by then."""
    topic, line = keyspace.topic(), Line(valkey.port)
    async with line.open() as url, Server(url, timeout=60.0, write_ttl=TTL) as server:
        store = RedisStore(server)
        await store.get(topic, "a")  # so that there is a connection
        line.losing, line.holding = lost == "reply", lost != "reply"
        async with anyio.create_task_group() as group:
            if lost == "line":
                group.start_soon(reset_once_sent, line, sha_of("timeline/schedule"))
            await left_open(lambda: store.schedule(topic, [NewTimer("a", b"", due=FIRST)]))
        assert server_time(valkey) >= until_of(line, "timeline/schedule")


class Claims(Line):
    """A line that loses the reply to a claim."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.lost = b""

    def loses(self, reply: bytes) -> bool:
        if self.losing:
            self.lost += reply
        return self.losing

    async def lose(self, server: Server, claim: Callable[[], Awaitable[object]]) -> OpenOutcome:
        """Make a claim that Redis takes, and whose reply is lost.

        Race: the claim's time is over when it comes to Redis, which refuses it then. Nothing was taken, and
        another claim is made.
        """
        with anyio.fail_after(60):
            while True:
                await server.ping()  # so that there is a connection
                self.losing, self.lost = True, b""
                told = await left_open(claim)
                self.losing = False
                if not self.lost.startswith(b"-GIVENUP"):
                    return told


@pytest.mark.usefixtures("patient")
async def test_a_claim_whose_reply_is_lost_is_found(valkey: RunningServer, keyspace: Keyspace) -> None:
    """The error says when it ran, if it did: by that the next call finds what it took, with the true end of
    the leases."""
    topic, line = keyspace.topic(), Claims(valkey.port)
    request = ClaimRequest(limit=9, lease=30_000_000, nonce=b"n" * 16, max_bytes=1 << 20)
    async with (
        line.open() as url,
        Server(url, timeout=60.0, write_ttl=TTL) as slow,
        Server(valkey.url, timeout=60.0, write_ttl=60.0) as server,
    ):
        store, losing = RedisStore(server), RedisStore(slow)
        await store.claim(topic, replace(request, nonce=b"m" * 16))  # so that the server knows the script
        await store.schedule(topic, [NewTimer("a", b"1", due=0), NewTimer("b", b"2", due=0)])
        before = server_time(valkey)
        lost = await line.lose(slow, lambda: losing.claim(topic, request))
        assert lost.until == until_of(line, "timeline/claim") <= server_time(valkey)
        assert 0 < lost.until - lost.since <= TTL * 1_000_000
        claim = await store.claimed(topic, request, since=lost.since, until=lost.until)
        assert [(timer.timer_id, timer.payload) for timer in claim.timers] == [("a", b"1"), ("b", b"2")]
        assert before <= claim.deadline - request.lease <= lost.until
        ends = [end_of(timer_id, request.nonce, Verb.ACK) for timer_id in ("a", "b")]
        assert await store.settle(topic, ends) == [Verdict.OK, Verdict.OK]


@pytest.mark.usefixtures("patient")
async def test_a_lost_claim_of_a_group_is_found(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Beside what another relay of the group has taken, and what this one has held and renewed."""
    topic, line = keyspace.topic(), Claims(valkey.port)
    request = ClaimRequest(limit=9, lease=30_000_000, nonce=b"n" * 16, max_bytes=1 << 20)
    async with (
        line.open() as url,
        Server(url, timeout=60.0, write_ttl=TTL) as slow,
        Server(valkey.url, timeout=60.0, write_ttl=60.0) as server,
    ):
        store, groups, other = RedisStore(server), *(RedisGroups(server, lambda _: BILLING) for _ in range(2))
        losing = RedisGroups(slow, lambda _: BILLING, consumer=groups.consumer)
        held: list[ClaimedTimer] = []
        for n, source in enumerate((groups, other)):
            await source.claim(topic, replace(request, nonce=bytes([n, 0]) * 8))
            await store.schedule(topic, [NewTimer("a", b"1", due=0)])
            held += (await source.claim(topic, replace(request, nonce=bytes([n, 1]) * 8))).timers
        await store.schedule(topic, [NewTimer("a", b"1", due=0), NewTimer("b", b"2", due=0)])
        before = server_time(valkey)
        lost = await line.lose(slow, lambda: losing.claim(topic, request))
        assert await groups.extend(topic, [Extension("a", held[0].proof)], lease=30_000_000) == [Verdict.OK]
        claim = await groups.claimed(topic, request, since=lost.since, until=lost.until)
        assert [(timer.timer_id, timer.payload) for timer in claim.timers] == [("a", b"1"), ("b", b"2")]
        assert before <= claim.deadline - request.lease <= lost.until
        ends = [end_of(timer.timer_id, timer.proof, Verb.ACK) for timer in claim.timers]
        assert await groups.settle(topic, ends) == [Verdict.OK, Verdict.OK]


async def reset_once_sent(line: Line, what: bytes) -> None:
    """The line is lost after the call went out that has this in it."""
    with anyio.fail_after(60):
        while what not in line.sent:
            await anyio.lowlevel.checkpoint()
    line.reset()


async def test_a_call_that_waited_too_long_is_never_sent(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Its time is over when a connection becomes free."""
    topic, line = keyspace.topic(), Line(valkey.port)
    waits = False

    async def wait() -> None:
        nonlocal waits
        waits = True
        with pytest.raises(GivenUp, match="before the call could be sent"):
            await RedisStore(server).schedule(topic, [NewTimer("a", b"", due=FIRST)])

    async with (
        line.open() as url,
        Server(url, timeout=60.0, write_ttl=TTL, connections=1) as server,
        anyio.create_task_group() as group,
    ):
        group.start_soon(server.ask, "BLPOP", f"{topic}-unused", 0)
        await until(lambda: b"BLPOP" in line.sent)
        group.start_soon(wait)
        await until(lambda: waits)
        over = monotonic() + TTL
        await until(lambda: monotonic() > over)
        with valkey.client() as client:
            client.rpush(f"{topic}-unused", b"")  # which ends what has the connection
    assert b"EVAL" not in line.sent


async def test_a_callers_scope_ends_its_call(valkey: RunningServer, keyspace: Keyspace) -> None:
    """What Redis is told is the sooner of the scope's end and `write_ttl`."""
    topic, line = keyspace.topic(), Line(valkey.port)
    async with line.open() as url, Server(url, timeout=60.0, write_ttl=60.0) as server:
        store = RedisStore(server)
        began, before = monotonic(), server_time(valkey)
        with anyio.fail_after(20):
            await store.schedule(topic, [NewTimer("a", b"", due=FIRST)])
        after, took = server_time(valkey), round((monotonic() - began) * 1_000_000)
        # By as long as the server's time was on its way, what is known of its clock is too low.
        assert before + 20_000_000 - took <= until_of(line, "timeline/schedule") <= after + 20_000_000
        await store.cancel(topic, ["a"])
        assert until_of(line, "timeline/cancel") >= before + 60_000_000 - took


async def test_the_server_is_asked_for_its_time_again(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first call after a while, and with the next one after a refusal: whoever slept knows it
    then."""
    topic, line = keyspace.topic(), Line(valkey.port)
    async with line.open() as url, Server(url, timeout=60.0, connections=1) as server:
        store = RedisStore(server)
        monkeypatch.setattr(server_clock, "RENEW", math.inf)
        await store.cancel(topic, ["a"])
        await store.cancel(topic, ["a"])
        assert len(re.findall(rb"\bTIME\r", line.sent)) == 1, "as the connection began"
        monkeypatch.setattr(server_clock, "RENEW", -1.0)
        await store.cancel(topic, ["a"])
        assert len(re.findall(rb"\bTIME\r", line.sent)) == 2


def test_a_loader_is_told_no_sooner(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of Spark whose connection is lost raises when Redis would refuse what it sent, and Spark may
    run its task again."""
    monkeypatch.setattr("relay.store.server.line.WRITE_TTL", TTL)
    topic = keyspace.topic()

    async def lose() -> int:
        line = Line(valkey.port)
        async with line.open() as url:
            with BlockingServer(url) as server:
                await run_sync(server.keep, topic)
                line.losing = True
                with pytest.raises(StoreUnavailable):
                    await run_sync(server.call, timeline.cancel(topic, ["a", ""]))
                return until_of(line, "timeline/cancel")

    until = anyio.run(lose)
    assert server_time(valkey) >= until


def test_a_loader_that_can_send_no_more_is_told_no_sooner(
    valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has sent ahead may still be on its way when the next command finds the connection lost."""
    monkeypatch.setattr("relay.store.server.line.WRITE_TTL", TTL)
    topic = keyspace.topic()

    async def lose() -> int:
        line = Line(valkey.port)
        async with line.open() as url:
            with BlockingServer(url) as server:
                prepared = await run_sync(server.prepare, timeline.cancel(topic, ["a", ""]))
                line.holding = True
                server.send(prepared.command(await run_sync(server.until)))
                while b"EVALSHA" not in line.sent:  # noqa: ASYNC110
                    await anyio.sleep(0.001)
                line.reset()
                with pytest.raises(StoreUnavailable):
                    await run_sync(send_until_refused, server)
                return until_of(line, "timeline/cancel")

    until = anyio.run(lose)
    assert server_time(valkey) >= until


def send_until_refused(server: BlockingServer) -> None:
    while True:
        server.send(("PING",))
