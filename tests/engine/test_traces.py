"""Spans of the engine: one a delivery, from its hand-out to its end, whichever way it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Decision, StaticSampler
from opentelemetry.trace import StatusCode

from relay.core.errors import StoreFull, StoreRefused, StoreUnavailable
from relay.core.outcomes import ACKED, Verb, Verdict
from relay.core.timers import Claim, ClaimedTimer, ClaimedTimers, NewTimer, NewTimers, StoredTimer
from relay.engine.engine import Engine
from relay.telemetry.traces.export import LinksDecide
from relay.telemetry.traces.tracing import LONG, Tracing
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import TOPIC, App, World

SAMPLED = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
UNSAMPLED = {"traceparent": f"00-{'e' * 32}-{'f' * 16}-00"}


class Spans:
    """What an engine's tracing has exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=LinksDecide(DEFAULT_ON), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.provider = provider

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == f"{name} {TOPIC}"]

    def names(self) -> list[str]:
        return [span.name.split()[0] for span in self._exporter.get_finished_spans()]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
async def engine(world: World, spans: Spans) -> Engine:
    """A relay that traces, on the world's store."""
    return await world.relay(tracing=Tracing(spans.provider, now=lambda: world.clock.server() / 1e6))


async def app(world: World, engine: Engine) -> App:
    return await world.app(engine=engine)


async def put(world: World, *names: str, headers: Mapping[str, str] = SAMPLED) -> None:
    await world.store.inner.schedule(
        TOPIC, [NewTimer(name, b"x", delay=0, headers=headers) for name in names]
    )


def said(span: ReadableSpan) -> tuple[object, object, StatusCode]:
    assert span.attributes is not None
    return span.attributes.get("error.type"), span.attributes.get("relay.outcome"), span.status.status_code


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def linked(span: ReadableSpan) -> Sequence[int]:
    return [link.context.span_id for link in span.links]


@pytest.mark.parametrize(
    ("verb", "error", "call"),
    [(Verb.ACK, None, "commit"), (Verb.NACK, "nack", "nack"), (Verb.REJECT, "reject", "reject")],
)
async def test_outcomes(
    world: World,
    engine: Engine,
    spans: Spans,
    caplog: pytest.LogCaptureFixture,
    verb: Verb,
    error: str | None,
    call: str,
) -> None:
    """An error names the outcome and says the application's words; the log names the trace."""
    caplog.set_level("DEBUG", "relay")
    await put(world, "1")
    application = await app(world, engine)
    lease = application.one()
    assert spans.names() == ["claim"], "the delivery's span is open, and the commit is yet to come"
    application.end(lease, verb, error="busy")
    await settle()
    deliver = spans.one("deliver")
    status = StatusCode.ERROR if error else StatusCode.UNSET
    assert said(deliver) == (error, verb.value, status)
    assert deliver.status.description == ("busy" if error else None)
    assert parent(spans.one(call)) == deliver.context.span_id
    assert parent(deliver) == parent(spans.one("claim")) == int("b" * 16, 16)
    traces = [record.__dict__["trace_id"] for record in caplog.records if hasattr(record, "trace_id")]
    assert traces == (["a" * 32] if error else [])


async def test_a_claim_of_traced_timers_and_others(world: World, engine: Engine, spans: Spans) -> None:
    """Each span is that of its own timer, and ends with it, in whatever order they end."""
    for name in "abcde":
        await put(world, name, headers=SAMPLED if name in "bd" else UNSAMPLED if name == "c" else {})
    application = await app(world, engine)
    leases = {lease.timer_id: lease for lease in application.take()}
    assert sorted(leases) == [*"abcde"]
    named = [
        name for name, lease in leases.items() if lease.timer.headers.get("traceparent", "").endswith("-01")
    ]
    assert sorted(named) == ["b", "d"]
    for name in "ecdab":
        application.end(leases[name], Verb.ACK)
        await settle()
        ended = [
            span.attributes["messaging.message.id"] for span in spans.named("deliver") if span.attributes
        ]
        assert ended == [each for each in "db" if each in "ecdab"[: "ecdab".index(name) + 1]]


async def test_a_stream_that_breaks(world: World, engine: Engine, spans: Spans) -> None:
    """What was sent is broken, what was not has had no delivery; what is left at a drain is released."""
    await put(world, "1")
    application = await app(world, engine)
    application.one()
    await put(world, "2")
    await world.advance(10)  # claimed, and never taken by a writer
    assert len(application.session.leases) == 2
    await application.leave(broken=True)
    assert said(spans.one("deliver")) == ("broken", "release", StatusCode.ERROR)
    again = await app(world, engine)
    again.take()
    await again.leave()
    assert [said(span)[0] for span in spans.named("deliver")] == ["broken", "released", "released"]


async def test_silence(world: World, engine: Engine, spans: Spans) -> None:
    world.tune(delivery_timeout=60.0, lease_ttl=30.0)
    await put(world, "1")
    application = await app(world, engine)
    application.one()
    await world.advance(200)
    assert said(spans.named("deliver")[0]) == ("silent", None, StatusCode.ERROR)


async def test_a_newer_intent(world: World, engine: Engine, spans: Spans) -> None:
    """An ACK that changes nothing is no failure of the delivery, but the span says so."""
    await put(world, "1")
    application = await app(world, engine)
    lease = application.one()
    await world.put("1", delay=100)
    application.end(lease)
    await settle()
    deliver = spans.one("deliver")
    assert said(deliver) == (None, "ack", StatusCode.UNSET)
    assert (deliver.attributes or {})["relay.verdict"] == "stale"


async def test_a_lost_lease_that_is_given_up(world: World, engine: Engine, spans: Spans) -> None:
    world.tune(lease_ttl=30.0)
    await put(world, "1")
    application = await app(world, engine)
    application.one()
    await world.put("1", delay=10_000)
    await world.advance(60)
    assert said(spans.one("deliver")) == ("lost", None, StatusCode.ERROR)


async def test_a_settlement_that_waits_for_redis(world: World, engine: Engine, spans: Spans) -> None:
    """The delivery's span lasts until its outcome is written, and a lost reply is no failure."""
    await put(world, "1")
    application = await app(world, engine)
    lease = application.one()
    door = world.store.fail("settle", StoreUnavailable(), after=True, times=1)
    application.end(lease)
    await settle()
    assert door.reached == 1
    assert spans.named("deliver") == []
    await world.advance(10)
    assert said(spans.one("deliver")) == (None, "ack", StatusCode.UNSET)
    assert "relay.verdict" not in (spans.one("deliver").attributes or {})
    assert len(spans.named("commit")) == 1


async def test_a_settlement_that_redis_refuses(world: World, engine: Engine, spans: Spans) -> None:
    await put(world, "1")
    application = await app(world, engine)
    lease = application.one()
    world.store.fail("settle", StoreRefused("no"), times=1)
    application.end(lease)
    await settle()
    assert said(spans.one("deliver"))[0] == said(spans.one("commit"))[0] == "StoreRefused"


async def test_many_in_one_call(world: World, engine: Engine, spans: Spans) -> None:
    """Calls that serve many have no parent, and link; those without a sampled context count only."""
    other = {"traceparent": f"00-{'c' * 32}-{'d' * 16}-01"}
    await put(world, "1")
    await put(world, "2", headers=other)
    await put(world, "3", headers=UNSAMPLED)
    await put(world, "4", headers={})
    application = await app(world, engine)
    leases = application.take()
    assert len(leases) == 4
    claim = spans.one("claim")
    assert parent(claim) is None
    assert sorted(linked(claim)) == [int("b" * 16, 16), int("d" * 16, 16)]
    assert (claim.attributes or {})["messaging.batch.message_count"] == 4
    for lease in leases:
        application.end(lease, Verb.NACK if lease.timer.timer_id == "2" else Verb.ACK)
    await settle()
    call = spans.one("settle")
    assert set(linked(call)) == {span.context.span_id for span in spans.named("deliver")}
    assert len(spans.named("deliver")) == 2


async def test_headers(world: World, engine: Engine) -> None:
    """A traced delivery's headers name its span; all others go out as they came."""
    await put(world, "1", headers={**SAMPLED, "tracestate": "v=1", "tenant": "a"})
    await put(world, "2", headers=UNSAMPLED)
    odd = {"traceparent": "00-zz-11-01", "tracestate": "?"}
    await put(world, "3", headers=odd)
    first, second, third = (await app(world, engine)).take()
    assert first.trace is not None
    assert first.trace.span is not None
    context = first.trace.span.get_span_context()
    assert first.timer.headers == {
        "traceparent": f"00-{'a' * 32}-{context.span_id:016x}-01",
        "tracestate": "v=1",
        "tenant": "a",
    }
    assert second.timer.headers == UNSAMPLED
    assert third.timer.headers == odd


async def test_schedule(world: World, engine: Engine, spans: Spans) -> None:
    """One span a call, whose context is stored, with the instant at which the trace was first seen."""
    await engine.schedule(TOPIC, NewTimer("1", b"x", delay=10**9, headers={"tenant": "a"}))
    root = spans.one("schedule")
    stored = await world.get("1")
    assert stored is not None
    ids = f"{root.context.trace_id:032x}-{root.context.span_id:016x}"
    assert stored.headers == {
        "tenant": "a",
        "traceparent": f"00-{ids}-{root.context.trace_flags:02x}",
        "tracestate": f"relay={world.clock.server() // 10**6}",
    }
    assert parent(root) is None
    for headers in (UNSAMPLED, {"traceparent": "nonsense", "tracestate": "relay=1"}):
        await engine.schedule(TOPIC, NewTimer("2", b"x", delay=10**9, headers=headers))
        stored = await world.get("2")
        assert stored is not None
        assert stored.headers == headers
    assert len(spans.named("schedule")) == 1


async def test_a_batch(world: World, engine: Engine, spans: Spans) -> None:
    """One span for each topic and context, which the headers of its own timers name."""
    sampled = [NewTimer(name, b"x", delay=10**9, headers=SAMPLED) for name in "acd"]
    others = [NewTimer("b", b"x", delay=10**9), NewTimer("e", b"x", delay=10**9, headers=UNSAMPLED)]
    mixed = NewTimers.of(sorted([*sampled, *others], key=lambda timer: timer.timer_id))
    await engine.schedule_many({TOPIC: mixed, "u": NewTimers.of(sampled[:1])})
    counts = dict(map(counted, spans.named("schedule")))
    assert sorted(counts.values()) == [1, 3]
    assert spans.names() == ["schedule"] * 3
    named = {name: (await stored(world, name)).headers["traceparent"][3:-3] for name in "abcde"}
    assert named["a"] == named["c"] == named["d"]
    assert counts[named["a"]] == 3
    assert named["a"].startswith("a" * 32)
    assert counts[named["b"]] == 1
    assert not named["b"].startswith("a" * 32)
    assert named["e"] in UNSAMPLED["traceparent"]


def counted(span: ReadableSpan) -> tuple[str, int]:
    """How a timer's headers name it, and how many timers it is of."""
    assert span.attributes is not None
    count = span.attributes["messaging.batch.message_count"]
    assert isinstance(count, int)
    return f"{span.context.trace_id:032x}-{span.context.span_id:016x}", count


async def stored(world: World, name: str) -> StoredTimer:
    timer = await world.get(name)
    assert timer is not None
    return timer


async def test_a_schedule_that_fails(world: World, engine: Engine, spans: Spans) -> None:
    world.store.fail("schedule", StoreFull())
    with pytest.raises(StoreFull):
        await engine.schedule(TOPIC, NewTimer("1", b"x", delay=0))
    many = {TOPIC: NewTimers.of([NewTimer("1", b"x", delay=0)])}
    ((result,),) = (await engine.schedule_many(many)).values()
    assert isinstance(result, StoreFull)
    assert [said(span)[0] for span in spans.named("schedule")] == ["StoreFull", "StoreFull"]


@pytest.mark.slow
@pytest.mark.parametrize(("age", "same"), [(LONG - 2, True), (LONG + 2, False)])
async def test_age(world: World, engine: Engine, spans: Spans, age: float, same: bool) -> None:
    """A delivery leaves a trace that is too old, and its claim with it; both link back."""
    await engine.schedule(TOPIC, NewTimer("1", b"x", delay=round(age * 1e6)))
    application = await app(world, engine)
    await world.advance(age + 0.1)
    application.end(application.one())
    await settle()
    schedule, claim, deliver = spans.one("schedule"), spans.one("claim"), spans.one("deliver")
    assert (deliver.context.trace_id == schedule.context.trace_id) is same
    assert claim.context.trace_id == deliver.context.trace_id == spans.one("commit").context.trace_id
    assert parent(deliver) == (schedule if same else claim).context.span_id
    assert linked(deliver) == linked(claim) == ([] if same else [schedule.context.span_id])


async def test_without_a_provider(world: World) -> None:
    """The default does nothing: headers stay as they are."""
    await world.engine.schedule(TOPIC, NewTimer("1", b"x", delay=0, headers=SAMPLED))
    application = await world.app()
    lease = application.one()
    assert lease.trace is None
    assert lease.timer.headers == SAMPLED


class Asked(StaticSampler):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__(Decision.DROP)
        self.names: list[str] = []

    def should_sample(self, parent_context: Any, trace_id: int, name: str, *rest: Any, **more: Any) -> Any:
        self.names.append(name.split(maxsplit=1)[0])
        return super().should_sample(parent_context, trace_id, name, *rest, **more)


@pytest.mark.parametrize(("by_flag", "asked"), [(True, []), (False, ["schedule", "claim", "deliver"])])
async def test_the_flag_decides_alone(world: World, by_flag: bool, asked: list[str]) -> None:
    """A timer without it costs no call into the SDK, unless the sampler is one that wants to be asked."""
    sampler = Asked()
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    engine = await world.relay(tracing=Tracing(provider, by_flag=by_flag))
    await engine.schedule(TOPIC, NewTimer("1", b"x", delay=0, headers=UNSAMPLED))
    application = await app(world, engine)
    await world.advance(0.1)
    lease = application.one()
    assert lease.timer.headers == UNSAMPLED
    application.end(lease)
    await settle()
    assert sampler.names == asked


def test_calls_have_their_true_start(spans: Spans) -> None:
    """Their spans are made when they have come back."""
    tracing = Tracing(spans.provider)
    timer = ClaimedTimer("1", b"", SAMPLED, "", due=0, attempt=1, occurrence_id="o")
    (trace,) = tracing.claimed(TOPIC, Claim(ClaimedTimers.of([timer]), 1, None, 2), began=1_000).values()
    trace.start(timer.headers, 0.0)
    end = trace, ACKED, Verdict.OK
    tracing.settled(TOPIC, 2_000, [end], count=1)
    assert (spans.one("claim").start_time, spans.one("commit").start_time) == (1_000, 2_000)
