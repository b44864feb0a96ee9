"""Push by `DeliverBatch`: each timer has an end of its own, whatever becomes of its batch.

What holds for a call of one timer too is in test_push.py and test_push_unhappy.py, for both kinds of calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from relay.core.outcomes import Extension, Verb
from relay.core.policy import RetryPolicy
from relay.rpc import push_calls
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_handler_pb2 as pb
from tests.rpc.handler import Batcher, Handler, InBatch, Server, Wire, pushing, serve
from tests.rpc.test_push import attempts, gone, left, schedule
from tests.settlements import End
from tests.worlds.engine.served import Served
from tests.worlds.engine.stubs import ACK, EXTEND, LATER, NACK, settlement
from tests.worlds.waiting import PATIENCE, until

FROM_LATER: Any = 77
"""An outcome that this relay does not know."""

Script = Callable[[pb.TimerHandlerDeliverBatchRequest, Any], Awaitable[None]]


@dataclass(eq=False)
class Scripted(Batcher):
    """Answers a batch of several by `script`, and each alone with an ACK. Sends receipts."""

    receipts: bool = True
    script: Script | None = None
    answered: list[list[str]] = field(default_factory=list)
    """The batches that the script had."""

    async def DeliverBatch(self, request: pb.TimerHandlerDeliverBatchRequest, context: Any) -> None:
        names = [each.timer_id for each in request.deliveries]
        if len(names) == 1 or self.script is None:
            await super().DeliverBatch(request, context)
        else:
            self.batches.append(names)
            self.answered.append(names)
            await self.script(request, context)


@pytest.fixture
async def handler() -> Handler:
    return Scripted()


def said(**fields: Any) -> pb.TimerHandlerDeliverBatchResponse:
    return pb.TimerHandlerDeliverBatchResponse(**fields)


def settlements(relay: Served) -> dict[str, End]:
    """What was settled first of each timer."""
    return {each.timer_id: each for each in reversed(relay.store.settlements())}


def receipts(relay: Served) -> set[str]:
    """The timers whose receipts are written."""
    written = [each for each in relay.store.items("extend") if isinstance(each, Extension)]
    return {each.timer_id for each in written if each.received}


def only_a_starts(handler: Batcher) -> None:
    """And never ends; but the first one does both."""

    async def act(each: delivery.Delivery, _: Any) -> Any:
        if each.timer_id != "first":
            await anyio.sleep_forever()

    async def started(each: delivery.Delivery) -> bool:
        return each.timer_id == "first" or each.timer_id.startswith("a")

    handler.act, handler.starts_now = act, started


async def after_the_first(relay: Served, *names: str) -> None:
    """Schedule these once one has shown that a handler lives."""
    await schedule(relay, "first")
    await gone(relay)
    await schedule(relay, *names)


# Batches


async def test_what_is_ready_goes_in_one_call(relay: Served, handler: Batcher, application: Server) -> None:
    """After the first timer, which goes alone: it shows whether a handler lives."""
    names = [f"n{i}" for i in range(50)]
    await schedule(relay, *names)
    async with pushing(relay, application.address):
        await gone(relay)
    assert len(handler.batches[0]) == 1
    assert len(handler.batches) <= 3, "a call at least once, and the rest as it is claimed"
    assert handler.starts == dict.fromkeys(names, 1)


async def test_a_slow_handler_holds_up_no_other(relay: Served, handler: Batcher, application: Server) -> None:
    """Of its own batch the others are committed, and their places filled, while it is still at work."""
    release = asyncio.Event()

    async def act(each: delivery.Delivery, _: Any) -> Any:
        if each.timer_id == "a-slow":
            await release.wait()

    handler.act = act
    async with pushing(relay, application.address, max_concurrent=4):
        await after_the_first(relay, "a-slow", *(f"n{i}" for i in range(40)))
        async with asyncio.timeout(60):
            while await left(relay) > 1:  # noqa: ASYNC110  (the relay gives no event for it)
                await anyio.sleep(0.005)
        assert handler.active == 1
        assert "a-slow" in next(batch for batch in handler.batches if len(batch) > 1)
        release.set()
        await gone(relay)
    assert handler.peak <= 4
    assert handler.starts.total() == 42


async def test_a_batch_is_bounded_by_what_may_be_under_way(
    relay: Served, handler: Batcher, application: Server
) -> None:
    """Over all calls, as outcomes come piece by piece; and each place that is freed is taken."""
    release = asyncio.Semaphore(0)

    async def act(_: delivery.Delivery, __: Any) -> Any:
        await release.acquire()

    handler.act = act
    async with pushing(relay, application.address, max_concurrent=5):
        await schedule(relay, *(f"n{i}" for i in range(30)))
        for done in range(30):
            await until(lambda: handler.active == min(5, 30 - done), "all places are taken")  # noqa: B023
            release.release()
            await until(lambda: handler.starts.total() - handler.active == done + 1, "it is done")  # noqa: B023
        await gone(relay)
    assert handler.peak == 5
    assert max(map(len, handler.batches)) <= 5


# Applications without it


async def test_an_application_without_it_is_asked_once_a_connection(relay: Served) -> None:
    """Its timers go by Deliver at once, and none is released for it; the next connection is asked anew."""
    old = Handler()
    asked: list[str] = []

    class Watched(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            asked.append(details.method.rpartition("/")[2])
            return await continuation(details)

    server = await serve(old, healthy=True, interceptors=[Watched()])
    new = Batcher()
    async with pushing(relay, server.address, "t", "u"):
        await schedule(relay, *(f"n{i}" for i in range(20)))
        await gone(relay)
        await schedule(relay, *(f"n{i}" for i in range(20)))
        await gone(relay)
        assert (asked.count("DeliverBatch"), asked.count("Deliver")) == (1, 40)
        assert {each.verb for each in settlements(relay).values()} == {Verb.ACK}
        await server.stop()
        server = await serve(new, server.address, healthy=True)
        await schedule(relay, *(f"n{i}" for i in range(20)))
        await gone(relay)
    await server.stop()
    assert {each.attempt for each in old.seen} == {1}
    assert sum(map(len, new.batches)) == 20


async def test_a_topic_that_is_called_one_by_one_leaves_others_their_batches(
    relay: Served, handler: Scripted, application: Server
) -> None:
    """UNIMPLEMENTED of a batch may be about its topic only."""

    async def act(each: delivery.Delivery, context: Any) -> Any:
        if each.topic == "u" and isinstance(context, InBatch):
            await context.context.abort(grpc.StatusCode.UNIMPLEMENTED, "not by batch")

    handler.act, handler.receipts = act, False
    async with pushing(relay, application.address, "t", "u"):
        await schedule(relay, *(f"u{i}" for i in range(5)), topic="u")
        await until(lambda: sum(handler.starts[f"u{i}"] for i in range(5)) >= 6, "u is served")
        await after_the_first(relay, *(f"n{i}" for i in range(20)))
        await gone(relay)
    assert max(map(len, handler.batches)) > 1
    assert {len(batch) for batch in handler.batches if batch[0].startswith("u")} == {1}


# Connections that break


async def test_of_a_batch_that_breaks_what_had_started_counts(
    relay: Served, handler: Batcher, wire: Wire
) -> None:
    """By their receipts; only those are suspects, and come again alone, as attempt 2, which is the last."""
    release = asyncio.Event()

    async def act(each: delivery.Delivery, _: Any) -> Any:
        if each.attempt == 1 and each.timer_id != "first":
            await release.wait()

    async def started(each: delivery.Delivery) -> bool:
        return each.timer_id in ("first", "a", "b")

    handler.act, handler.starts_now = act, started
    async with pushing(relay, wire.address, retry=RetryPolicy(max_attempts=2)):
        await after_the_first(relay, *"abcdef")
        await until(lambda: handler.active == 2, "two have started, four wait")
        await until(lambda: sorted(handler.batches[-1]) == list("abcdef"), "they are in one batch")
        await until(lambda: {"a", "b"} <= receipts(relay), "the receipts are written")
        assert not settlements(relay).keys() & set("abcdef")
        await wire.cut()
        await until(lambda: settlements(relay).keys() >= set("abcdef"), "all are released")
        released = settlements(relay)
        assert {name: released[name].received for name in "abcdef"} == dict.fromkeys(
            "ab", True
        ) | dict.fromkeys("cdef", False)
        assert {name for name in "abcdef" if released[name].broken} == {"a", "b"}
        await until(lambda: handler.active == 0, "the handlers are cut off")
        release.set()
        handler.starts_now = None
        handler.batches.clear()
        await wire.lay()
        await gone(relay)
    assert (handler.attempts("a"), handler.attempts("b")) == ([1, 2], [1, 2])
    assert {name: handler.attempts(name) for name in "cdef"} == {name: [1] for name in "cdef"}
    assert sorted(batch for batch in handler.batches if set(batch) & {"a", "b"}) == [["a"], ["b"]]


async def test_without_receipts_all_of_a_batch_that_breaks_counts(
    relay: Served, handler: Batcher, wire: Wire
) -> None:
    """Nobody can tell which handlers had begun."""
    release = asyncio.Event()

    async def act(each: delivery.Delivery, _: Any) -> Any:
        if each.attempt == 1 and each.timer_id != "first":
            await release.wait()

    handler.act, handler.receipts = act, False
    async with pushing(relay, wire.address):
        await after_the_first(relay, *"abc")
        await until(lambda: handler.active == 3, "all are at work")
        await wire.cut()
        await until(lambda: settlements(relay).keys() >= set("abc"), "all are released")
        assert all(settlements(relay)[name].received and settlements(relay)[name].broken for name in "abc")
        release.set()


# Odd ends


async def test_a_batch_that_ends_without_all_outcomes(
    relay: Served, handler: Scripted, application: Server
) -> None:
    """Status OK: what has none counts as NACK."""

    async def script(request: pb.TimerHandlerDeliverBatchRequest, context: Any) -> None:
        one, *_ = request.deliveries
        await context.write(said(settlements=[settlement(one.token)]))

    handler.script = script
    async with pushing(relay, application.address, retry=LATER):
        await after_the_first(relay, *"abc")
        await until(lambda: settlements(relay).keys() >= set("abc"), "all are settled")
    verbs = sorted(settlements(relay)[name].verb.value for name in "abc")
    assert verbs == ["ack", "nack", "nack"]
    assert {each.error for each in settlements(relay).values()} == {"", "the call ended without an outcome"}


async def test_outcomes_that_can_t_be_used(
    relay: Served, handler: Scripted, application: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Unknown tokens and second outcomes change nothing and are said; wrong outcomes are NACK; no other timer
    of the batch hears of it, and the topic goes on."""

    async def script(request: pb.TimerHandlerDeliverBatchRequest, context: Any) -> None:
        tokens = {each.timer_id: each.token for each in request.deliveries}
        await context.write(
            said(
                received=[b"nonsense", *tokens.values()],
                settlements=[
                    settlement(b"nonsense"),
                    settlement(tokens["ok"]),
                    settlement(tokens["ok"], NACK),
                    settlement(tokens["extend"], EXTEND),
                    delivery.Settlement(token=tokens["unset"]),
                    settlement(tokens["later"], FROM_LATER),
                    settlement(tokens["wrong"], NACK, retry_after=Duration(seconds=-1)),
                    settlement(
                        tokens["again"], ACK, reschedule=delivery.Reschedule(delay=Duration(seconds=9))
                    ),
                ],
                refused=[b"nonsense"],
            )
        )

    handler.script = script
    names = ["ok", "extend", "unset", "later", "wrong", "again"]
    async with pushing(relay, application.address, retry=LATER):
        await after_the_first(relay, *names)
        await until(lambda: settlements(relay).keys() >= set(names), "all are settled")
        await relay.engine._settler.flush()
        verbs = {name: settlements(relay)[name].verb for name in names}
        assert verbs == {"ok": Verb.ACK} | dict.fromkeys(names[1:], Verb.NACK)
        await schedule(relay, "next")
        await until(lambda: handler.starts["next"] == 1, "the topic goes on")
    (odd,) = [vars(each) for each in caplog.records if "names deliveries" in each.getMessage()]
    assert odd["count"] == 4
    assert "no handler" not in caplog.text


@pytest.mark.parametrize("receipts", [True, False])
async def test_a_status_that_ends_a_batch_is_about_nobody_knows_which(
    relay: Served, handler: Scripted, application: Server, *, receipts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """INVALID_ARGUMENT rejects none of several: each comes again alone, and there it means its timer."""

    async def script(request: pb.TimerHandlerDeliverBatchRequest, context: Any) -> None:
        tokens = {each.timer_id: each.token for each in request.deliveries}
        if receipts:
            await context.write(said(received=[tokens["a"], tokens["done"]]))
        await context.write(said(settlements=[settlement(tokens["done"])]))
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "one of them is bad")

    async def act(each: delivery.Delivery, context: Any) -> Any:
        if each.timer_id == "bad":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this one")

    handler.script, handler.act, handler.receipts = script, act, receipts
    async with pushing(relay, application.address):
        await after_the_first(relay, "done", "a", "bad")
        await gone(relay)
    first = settlements(relay)
    assert first["done"].verb is Verb.ACK
    assert [(first[name].verb, first[name].suspect) for name in ("a", "bad")] == [(Verb.RELEASE, True)] * 2
    assert (first["a"].received, first["bad"].received) == (True, not receipts)
    assert sorted(handler.batches[2:]) == [["a"], ["bad"]]
    assert handler.attempts("a") == [2]
    assert handler.attempts("bad") == [1 if receipts else 2]
    last = [each for each in relay.store.items("settle") if isinstance(each, End)]
    assert next(each for each in reversed(last) if each.timer_id == "bad").verb is Verb.REJECT
    assert "come again one by one" in caplog.text


async def test_a_deadline_counts_for_those_that_had_started(
    relay: Served, handler: Batcher, application: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others waited in the application, which says by its receipts that it had no place for them."""
    only_a_starts(handler)
    a = b = ""
    async with pushing(relay, application.address, retry=LATER):
        await after_the_first(relay)
        for seconds in (0.5, 5.0, 50.0):  # the first that is long enough for a handler to start
            monkeypatch.setattr(relay.engine, "time_left", lambda _: seconds)  # noqa: B023
            a, b = f"a-{seconds}", f"b-{seconds}"
            await schedule(relay, a, b)
            await until(lambda: settlements(relay).keys() >= {a, b}, "both are settled")  # noqa: B023
            if a in receipts(relay):
                break
        ends = settlements(relay)
        assert (ends[a].verb, ends[b].verb) == (Verb.NACK, Verb.RELEASE)
        assert (ends[b].received, ends[b].suspect) == (False, False)
        assert ends[a].error.startswith("DEADLINE_EXCEEDED")


async def test_refused_timers_are_released_and_the_topic_waits(
    relay: Served,
    handler: Scripted,
    application: Server,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No attempt counts for them, and the outcomes of the others stand."""
    monkeypatch.setattr("relay.rpc.push.FIRST_RETRY", 600.0)
    monkeypatch.setattr("relay.rpc.push.LAST_RETRY", 600.0)

    async def script(request: pb.TimerHandlerDeliverBatchRequest, context: Any) -> None:
        tokens = {each.timer_id: each.token for each in request.deliveries}
        await context.write(said(received=[tokens["ok"]], refused=[tokens["a"], tokens["b"]]))
        await until(lambda: settlements(relay).keys() >= set("ab"), "they are released")
        await context.write(said(settlements=[settlement(tokens["ok"])]))

    handler.script = script
    async with pushing(relay, application.address):
        await after_the_first(relay, "ok", "a", "b")
        await until(lambda: "no handler for the topic" in caplog.text, "it is said")
        await until(lambda: "ok" in settlements(relay), "the other is settled")
        ends = settlements(relay)
        assert ends["ok"].verb is Verb.ACK
        assert all(ends[name].verb is Verb.RELEASE and not ends[name].received for name in "ab")
        assert {await attempts(relay, name) for name in "ab"} == {0}
        assert len(handler.batches) == 2, "nothing is tried before the wait is over"


async def test_an_answer_that_can_t_be_read(relay: Served, caplog: pytest.LogCaptureFixture) -> None:
    """The batch comes again timer by timer, and each counts by itself: even where receipts are sent, and none
    of theirs came. The answers are counted, and the log has no stack trace."""
    calls: list[int] = []

    async def garbage(request: Any, context: Any) -> None:
        calls.append(len(request.deliveries))
        one, *_ = request.deliveries
        if one.timer_id == "first":
            answer = said(received=[one.token], settlements=[settlement(one.token)])
            await context.write(answer.SerializeToString())
        else:
            await context.write(b"\xff\xff\xff")

    server = grpc.aio.server()
    method = grpc.unary_stream_rpc_method_handler(
        garbage, pb.TimerHandlerDeliverBatchRequest.FromString, lambda raw: raw
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("relay.v1.TimerHandler", {"DeliverBatch": method}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async def counted() -> bool:
        return [await attempts(relay, name) for name in "ab"] == [1, 1]

    try:
        async with pushing(relay, f"127.0.0.1:{port}", retry=LATER):
            await after_the_first(relay, "a", "b")
            await until(lambda: calls == [1, 2, 1, 1], "a batch, and each alone")
            await until(counted, "each has counted")
    finally:
        await server.stop(0)
    assert not any(settlements(relay)[name].received for name in "ab")
    assert relay.counts.total["messages.unreadable relay.v1.TimerHandler/DeliverBatch"] == 3
    assert not [record for record in caplog.records if record.exc_info]


async def test_the_answer_for_one_that_can_t_be_read(relay: Served, caplog: pytest.LogCaptureFixture) -> None:
    """From an application that takes no batches: a failed attempt that says why."""

    async def garbage(_: Any, __: Any) -> bytes:
        return b"\xff\xff\xff"

    server = grpc.aio.server()
    method: Any = grpc.unary_unary_rpc_method_handler(garbage)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("relay.v1.TimerHandler", {"Deliver": method}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async def counted() -> bool:
        return await attempts(relay, "a") == 1

    try:
        async with pushing(relay, f"127.0.0.1:{port}", retry=LATER):
            await schedule(relay, "a")
            await until(counted, "it has counted")
    finally:
        await server.stop(0)
    assert settlements(relay)["a"].error == "the application's answer can't be read"
    assert relay.counts.total["messages.unreadable relay.v1.TimerHandler/Deliver"] == 1
    assert not [record for record in caplog.records if record.exc_info]


# The end


async def test_a_drain_waits_for_the_whole_batch(
    relay: Served, handler: Batcher, application: Server
) -> None:
    """And what has its outcome meanwhile is written; nothing more is sent."""
    go = {name: asyncio.Event() for name in "ab"}

    async def act(each: delivery.Delivery, _: Any) -> Any:
        if each.timer_id in go:
            await go[each.timer_id].wait()

    handler.act = act
    async with pushing(relay, application.address, max_concurrent=2), anyio.create_task_group() as tasks:
        await after_the_first(relay, *"abc")
        await until(lambda: handler.active == 2, "two are at work")
        tasks.start_soon(relay.engine.drain, 30.0)
        await until(lambda: relay.engine.draining, "it drains")
        go["a"].set()
        await until(lambda: "a" in settlements(relay), "a is settled")
        assert handler.active == 1
        assert relay.engine._dispatcher.sessions()
        go["b"].set()
    assert {name: each.verb for name, each in settlements(relay).items()} == dict.fromkeys(
        ("first", "a", "b"), Verb.ACK
    )
    assert await left(relay) == 1


async def test_a_call_that_goes_on_behind_its_last_outcome_is_cut_off(
    relay: Served, handler: Scripted, application: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It carries nothing any more, and must not hold up a drain until `delivery_timeout`."""
    monkeypatch.setattr(push_calls, "END_PATIENCE", 0.05)
    cut_off = asyncio.Event()

    async def script(request: Any, context: Any) -> None:
        tokens = [each.token for each in request.deliveries]
        await context.write(said(received=tokens, settlements=[settlement(token) for token in tokens]))
        try:
            await anyio.sleep_forever()
        finally:
            cut_off.set()

    handler.script = script
    async with pushing(relay, application.address):
        await after_the_first(relay, *"abc")
        await gone(relay)
        await relay.engine.drain(PATIENCE)
        async with asyncio.timeout(PATIENCE):
            await cut_off.wait()
    assert {each.verb for each in settlements(relay).values()} == {Verb.ACK}


async def test_a_drain_that_times_out_gives_back_what_is_unsettled(
    relay: Served, handler: Batcher, application: Server
) -> None:
    """A receipt had come of one of them: that was an attempt."""
    only_a_starts(handler)
    async with pushing(relay, application.address):
        await after_the_first(relay, "a", "b")
        await until(lambda: bool(relay.store.items("extend")), "a has started")
        await relay.engine.drain(0.05)
        assert (await attempts(relay, "a"), await attempts(relay, "b")) == (1, 0)
