"""What a timer may cost, in calls, frames and spans: these don't depend on how busy the machine is.

One engine on a real server, without gRPC but for push, so that batches form the same way each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis.exceptions import MovedError

from bench.harness import scripts
from bench.harness.server import Server as Measured
from bench.harness.server import cluster, server
from bench.harness.timers import TOPIC, Headers, load_due, no_headers, traced
from relay.client import Delivery, PushHandlers
from relay.core.outcomes import ACKED, ClaimRequest, Extension, Verb
from relay.core.policy import Policies, TopicPolicy
from relay.core.ports import Stores
from relay.core.timers import NewTimer
from relay.engine.engine import Engine
from relay.rpc.application import Application
from relay.rpc.push import push
from relay.rpc.push_calls import PushBatch
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.telemetry.metrics.instruments import Instruments
from relay.telemetry.traces.tracing import Tracing
from tests.settlements import end_of

TIMERS = 3_000
CLAIM = TopicPolicy().claim_batch
CAPACITY = 1_000


@dataclass
class Cost:
    """What a drain took."""

    calls: dict[str, int]
    claims: scripts.Claims
    sent: int
    frames: int
    traced: int


@pytest.fixture
async def redis() -> AsyncIterator[Measured]:
    async with server() as running:
        yield running


@asynccontextmanager
async def engine_on(redis: Measured, tracing: Tracing, policies: Policies) -> AsyncIterator[Engine]:
    """A running engine."""
    async with Server(redis.url, connections=2, timeout=30) as own:
        store = RedisStore(own)
        hints = RedisHints(own)  # not run: nobody else schedules here
        instruments = Instruments(MeterProvider())
        topics = RedisTopics(own)
        engine = Engine(Stores(store, topics, hints, own.places), policies, instruments, tracing=tracing)
        async with anyio.create_task_group() as tasks:
            await tasks.start(engine.run)
            yield engine
            tasks.cancel_scope.cancel()


async def drained(redis: Measured, tracing: Tracing, headers: Headers) -> Cost:
    """Drain `TIMERS` due timers through an engine, acknowledging each frame as it comes."""
    await load_due(redis.url, TIMERS, 200, headers=headers)
    frames = spans = 0
    async with engine_on(redis, tracing, Policies(TopicPolicy())) as engine:
        session = engine.open([TOPIC], CAPACITY)
        before = await redis.calls()
        engine.attach(session)
        left = TIMERS
        while left:
            outgoing = await session.next()
            assert outgoing is not None
            frames += 1
            for lease in outgoing.leases:
                spans += lease.trace is not None
                engine.end(session, [lease.token], ACKED)
            left -= len(outgoing.leases)
        await engine.flush(session)
        after = await redis.calls()
        engine.detach(session, broken=False)
    assert await redis.left() == 0
    calls = scripts.since(after, before)
    return Cost(calls, scripts.claims(after, before), scripts.sent(after, before), frames, spans)


async def test_scripts_and_commands_for_a_drain(redis: Measured) -> None:
    """A full claim brings `claim_batch` timers; each batch costs a claim and a settle, and little else."""
    cost = await drained(redis, Tracing(), no_headers)
    batches = TIMERS // CLAIM
    assert cost.claims.useful <= batches + 2
    assert cost.claims.all <= batches + 4
    scripts_run = cost.calls[scripts.SCRIPT] + cost.calls.get("eval", 0)
    assert scripts_run <= 2 * batches + 8, "a claim and a settle for each batch"
    assert cost.sent <= 2 * batches + 20, cost.calls
    a_timer = sum(cost.calls.values()) / TIMERS
    assert a_timer <= 0.2, f"all commands take many timers at once: {cost.calls}"


async def test_frames_for_a_drain(redis: Measured) -> None:
    """Timers reach the stream in the batches in which they were claimed."""
    cost = await drained(redis, Tracing(), no_headers)
    assert cost.frames <= cost.claims.useful


async def test_calls_for_a_push(redis: Measured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A call a batch, and two messages in answer: all receipts, and all outcomes."""
    counts: Counter[str] = Counter()

    def counting(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def counted(*args: Any, **named: Any) -> Any:
            counts[name] += 1
            return real(*args, **named)

        monkeypatch.setattr(owner, name, counted)

    counting(Application, "call")
    counting(Application, "call_batch")
    counting(PushBatch, "_hear")
    monkeypatch.setattr("relay.rpc.push.SHORTLY", 60.0)  # the first timer goes alone to its end
    listen, handlers, done = f"unix:{tmp_path}/push.sock", PushHandlers(), anyio.Event()
    handled: set[str] = set()

    @handlers.on(TOPIC)
    async def handle(delivery: Delivery) -> None:
        handled.add(delivery.timer_id)
        if len(handled) == TIMERS:
            done.set()

    policy = TopicPolicy(target=listen)
    await load_due(redis.url, TIMERS, 200)
    async with (
        handlers.serve(listen),
        engine_on(redis, Tracing(), Policies(own={TOPIC: policy})) as engine,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(push, engine, lambda _: None)
        with anyio.fail_after(60):
            await done.wait()
        await engine.drain(60)
    assert await redis.left() == 0
    batches = TIMERS // policy.max_concurrent
    assert counts["call_batch"] <= batches + 3, "the first one alone, full ones, and the rest"
    assert counts["_hear"] <= 2 * counts["call_batch"]
    assert counts["call"] == 0


async def test_no_span_is_built_while_tracing_is_off(redis: Measured) -> None:
    """Even where every producer wants its timer traced."""
    cost = await drained(redis, Tracing(), traced(100))
    assert cost.traced == 0


async def test_spans_for_a_sampled_part(redis: Measured) -> None:
    """A delivery span for each sampled timer, none for the others, and one for each claim and settle call."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    cost = await drained(redis, Tracing(provider), traced(1))
    names = [span.name.partition(" ")[0] for span in exporter.get_finished_spans()]
    provider.shutdown()
    sampled = TIMERS // 100
    assert (cost.traced, names.count("deliver")) == (sampled, sampled)
    assert names.count("claim") <= cost.claims.useful
    assert len(names) <= sampled + 2 * cost.claims.useful + 4


async def test_how_claims_are_counted(redis: Measured) -> None:
    """One claim that finds nothing and one that finds something are told apart by the server's counters,
    and settlements, schedules and renewals are not taken for claims."""
    async with Server(redis.url, connections=1, timeout=30) as own:
        store = RedisStore(own)
        before = await redis.calls()
        await store.schedule(TOPIC, [NewTimer("later", b"", delay=3_600_000_000)])
        await claim(store, b"1" * 16)
        assert scripts.claims(await redis.calls(), before) == scripts.Claims(all=1, useful=0)
        await store.schedule(TOPIC, [NewTimer("now", b"", delay=0)])
        await claim(store, b"2" * 16)
        await store.extend(TOPIC, [Extension("now", b"2" * 16)], lease=30_000_000)
        await store.settle(TOPIC, [end_of("now", b"2" * 16, Verb.ACK)])
        assert scripts.claims(await redis.calls(), before) == scripts.Claims(all=2, useful=1)
        assert scripts.sent(await redis.calls(), before) == 6 + 4, "the server knew none of four scripts"


async def test_how_commands_to_a_wrong_node_are_counted() -> None:
    """The way to Redis sends none, whichever node has a topic. What one node sends on to the other is one."""
    async with cluster(2) as running:
        async with Server(running.url, connections=1, timeout=30) as own:
            store = RedisStore(own)
            for n in range(20):
                await store.schedule(f"{TOPIC}-{n}", [NewTimer("later", b"", delay=3_600_000_000)])
            await RedisTopics(own).register(TOPIC)
        assert await running.redirects() == 0
        assert await running.left() == 2 * 20, (
            "timeline and payloads of each topic, and not the set of topics"
        )
        for node in running.nodes:
            with suppress(MovedError):
                await node.execute_command("GET", "some key")
        assert await running.redirects() == 1


async def claim(store: RedisStore, nonce: bytes) -> None:
    await store.claim(TOPIC, ClaimRequest(limit=10, lease=30_000_000, nonce=nonce, max_bytes=1_000_000))
