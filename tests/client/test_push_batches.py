"""Push by `DeliverBatch`: the application listens, and a plain gRPC caller plays the relay.

Handlers and what they may do are in test_push.py; here is what is said of them on the wire.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from unittest.mock import AsyncMock

import grpc
import grpc.aio
import pytest

from relay.client import AckPolicy, Delivery, DeliveryLost, Nack, PushHandlers, UsageError
from relay.client.push import push_handlers
from relay.client.push.push_calls import SingleCall
from relay.client.push.push_places import PushPlace
from relay.v1 import delivery_service_pb2 as delivery_pb
from relay.v1 import timer_handler_pb2 as pb
from tests.client.test_push import ACK, CODES, NACK, REJECT, Caller, Gate, calling, served, waiting
from tests.worlds.waiting import PATIENCE


class Batch:
    """One call, and all that was said in it."""

    def __init__(self, caller: Caller, *names: str, topic: str = "t", timeout: float = PATIENCE) -> None:
        deliveries = [
            delivery_pb.Delivery(topic=topic, timer_id=name, attempt=1, token=name.encode()) for name in names
        ]
        self.call: Any = caller.stub.DeliverBatch(
            pb.TimerHandlerDeliverBatchRequest(deliveries=deliveries), timeout=timeout
        )
        self.messages: list[pb.TimerHandlerDeliverBatchResponse] = []
        self._changed = asyncio.Event()
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for message in self.call:
                self.messages.append(message)
                self._changed.set()
        finally:
            self._changed.set()

    @property
    def received(self) -> list[str]:
        """Names, as their receipts came."""
        return [token.decode() for each in self.messages for token in each.received]

    @property
    def refused(self) -> list[str]:
        return [token.decode() for each in self.messages for token in each.refused]

    @property
    def outcomes(self) -> dict[str, int]:
        """By name, as they came."""
        return {one.token.decode(): one.outcome for each in self.messages for one in each.settlements}

    async def until(self, condition: Any) -> None:
        """Until what has been said fulfils a condition."""
        async with asyncio.timeout(PATIENCE):
            while not condition(self):
                assert not self.reading.done(), (await self.call.code(), self.messages)
                self._changed.clear()
                await self._changed.wait()

    async def end(self) -> grpc.StatusCode:
        """The call's status."""
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([self.reading])
            code: grpc.StatusCode = await self.call.code()
            if code is not CODES.OK:
                assert self.reading.exception() is not None
        return code


class Named(Gate):
    """A gate at which each handler waits for its own name."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: dict[str, asyncio.Event] = {}

    def let(self, name: str) -> None:
        self.opened.setdefault(name, asyncio.Event()).set()

    async def __call__(self, delivery: Delivery) -> None:
        self.open = self.opened.setdefault(delivery.timer_id, asyncio.Event())
        await super().__call__(delivery)


async def test_quick_handlers_cost_two_messages_a_batch(push: PushHandlers, listen: str) -> None:
    """One with all receipts, one with all outcomes."""
    ran: list[str] = []

    @push.on("t")
    async def handle(delivery: Delivery) -> None:
        ran.append(delivery.timer_id)

    names = [f"n{i}" for i in range(100)]
    async with served(push, listen) as caller:
        batch = Batch(caller, *names)
        assert await batch.end() is CODES.OK
    assert ran == names
    assert batch.received == names
    assert batch.outcomes == dict.fromkeys(names, ACK)
    assert [(len(each.received), len(each.settlements)) for each in batch.messages] == [(100, 0), (0, 100)]


async def test_a_slow_handler_holds_up_no_other(push: PushHandlers, listen: str) -> None:
    """Outcomes leave as they come, each with what its handler said."""
    gate = Named()

    @push.on("t")
    async def handle(delivery: Delivery) -> None:
        if delivery.timer_id == "slow":
            await gate(delivery)
        if delivery.timer_id == "bad":
            raise Nack(reason="busy", retry_after=2)

    async with served(push, listen) as caller:
        batch = Batch(caller, "slow", "a", "bad")
        await batch.until(lambda each: each.outcomes.keys() == {"a", "bad"})
        assert gate.started == ["slow"]
        assert not batch.reading.done()
        gate.let("slow")
        assert await batch.end() is CODES.OK
    assert batch.outcomes == {"a": ACK, "bad": NACK, "slow": ACK}
    (bad,) = [one for each in batch.messages for one in each.settlements if one.token == b"bad"]
    assert (bad.reason, bad.retry_after.seconds) == ("busy", 2)


async def test_receipts_come_as_handlers_start(push: PushHandlers, listen: str) -> None:
    """None for what waits for a place; calls of both kinds share the places, first come, first served."""
    gate = Named()
    push.on("t", concurrency=2)(gate)
    async with served(push, listen) as caller:
        batch = Batch(caller, "a", "b", "c", "d")
        await gate.until(lambda: gate.started == ["a", "b"])
        await waiting(push, 2)
        single = caller.begin("single")
        await waiting(push, 3)
        late = Batch(caller, "late")
        await waiting(push, 4)
        await batch.until(lambda each: each.received == ["a", "b"])
        for done, started in (("b", "c"), ("a", "d"), ("d", "single"), ("c", "late")):
            assert started not in gate.started
            gate.let(done)
            await gate.until(lambda: started in gate.started)  # noqa: B023
        await batch.until(lambda each: each.received == ["a", "b", "c", "d"])
        assert await batch.end() is CODES.OK
        assert late.outcomes == {}
        gate.let("single")
        gate.let("late")
        assert (await single).outcome == ACK
        assert await late.end() is CODES.OK
    assert gate.started == ["a", "b", "c", "d", "single", "late"]


async def test_a_topic_without_a_handler_is_refused(push: PushHandlers, listen: str) -> None:
    """In words, not by a status: UNIMPLEMENTED would say that there is no such method."""
    push.on("t")(Gate())
    async with served(push, listen) as caller:
        batch = Batch(caller, "a", "b", topic="u")
        assert await batch.end() is CODES.OK
    assert sorted(batch.refused) == ["a", "b"]
    assert not batch.received
    assert not batch.outcomes


@pytest.mark.parametrize(
    ("topics", "tokens", "words"),
    [("tu", "ab", "several topics"), ("tt", "aa", "the same token")],
)
async def test_a_request_that_is_no_batch_names_its_field(
    push: PushHandlers, listen: str, topics: str, tokens: str, words: str
) -> None:
    push.on("t")(Gate())
    request = pb.TimerHandlerDeliverBatchRequest()
    for topic, token in zip(topics, tokens, strict=True):
        request.deliveries.add(topic=topic, timer_id=token, token=token.encode())
    async with served(push, listen) as caller:
        call: Any = caller.stub.DeliverBatch(request, timeout=PATIENCE)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is CODES.INVALID_ARGUMENT
        assert (caught.value.details() or "").startswith("deliveries: ")
        assert words in (caught.value.details() or "")
        assert await caller.stub.DeliverBatch(pb.TimerHandlerDeliverBatchRequest()).read() is grpc.aio.EOF


async def test_extend_is_refused_in_words(push: PushHandlers, listen: str) -> None:
    said: list[str] = []

    @push.on("t")
    async def handle(delivery: Delivery) -> None:
        with pytest.raises(UsageError) as caught:
            await delivery.extend()
        said.append(str(caught.value))

    async with served(push, listen) as caller:
        batch = Batch(caller, "a")
        assert await batch.end() is CODES.OK
    assert batch.outcomes == {"a": ACK}
    assert "delivery_timeout" in said[0]


async def test_manual_holds_the_batch_until_somebody_settles(push: PushHandlers, listen: str) -> None:
    """And `ack` returns when the outcome is on its way."""
    held: asyncio.Queue[Delivery] = asyncio.Queue()
    push.on("t", ack_policy=AckPolicy.MANUAL)(held.put)
    async with served(push, listen) as caller:
        batch = Batch(caller, "a", "b")
        first, second = await held.get(), await held.get()
        await second.reject("no")
        await batch.until(lambda each: each.outcomes == {"b": REJECT})
        assert not batch.reading.done()
        await first.ack()
        assert await batch.end() is CODES.OK
    assert batch.outcomes == {"b": REJECT, "a": ACK}


async def test_an_early_outcome_stands_and_the_end_waits_for_its_handler(
    push: PushHandlers, listen: str
) -> None:
    """The call ends with the last outcome; a handler that works on is waited for at the close."""
    go, done = asyncio.Event(), asyncio.Event()

    @push.on("t")
    async def handle(delivery: Delivery) -> None:
        await delivery.reject("first")
        await go.wait()
        done.set()

    async with served(push, listen) as caller:
        batch = Batch(caller, "a")
        assert await batch.end() is CODES.OK
        assert batch.outcomes == {"a": REJECT}
        assert not done.is_set()
        asyncio.get_running_loop().call_later(0.05, go.set)
    assert done.is_set()


# ------------------------------------------------------------------ calls that are cut off


@pytest.mark.parametrize("how", ["deadline", "connection"])
async def test_a_call_that_is_cut_off_cancels_what_has_no_outcome(listen: str, how: str) -> None:
    """Handlers that gave theirs early work on; what waits for a place never starts; the places are free."""
    timeouts = (0.5, 5.0, 50.0) if how == "deadline" else (PATIENCE,)
    for timeout in timeouts:  # the first that is long enough for what has to have happened by then
        if await is_cut_off(listen, how, timeout):
            return
    raise AssertionError(f"nothing happens within {timeouts[-1]:g} s")


async def is_cut_off(listen: str, how: str, timeout: float) -> bool:
    """The same, with a call that may take so many seconds; false if they were too few."""
    push = PushHandlers(shutdown_timeout=PATIENCE)
    gate, said, early, done = Named(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    raised: list[str] = []

    @push.on("t", concurrency=3)
    async def handle(delivery: Delivery) -> None:
        if delivery.timer_id == "early":
            await delivery.ack()
            said.set()
            await early.wait()
            done.set()
            return
        try:
            await gate(delivery)
        except asyncio.CancelledError:
            with pytest.raises(DeliveryLost):
                await delivery.ack()
            raised.append(delivery.timer_id)
            raise

    async with push.serve(listen):
        async with calling(listen) as caller:
            batch = Batch(caller, "early", "a", "b", "waits", timeout=timeout)
            while not (batch.outcomes.keys() == {"early"} and len(batch.received) == 3):
                if batch.reading.done():
                    early.set()
                    return False
                await asyncio.sleep(0.001)
            await said.wait()  # the outcome is here before the application knows that it has left
            if how == "deadline":
                assert await batch.end() is CODES.DEADLINE_EXCEEDED
        await gate.until(lambda: sorted(gate.cancelled) == ["a", "b"])
        batch.reading.cancel()
        await asyncio.gather(batch.reading, return_exceptions=True)
        async with calling(listen) as caller:
            gate.let("next")
            assert await Batch(caller, "next").end() is CODES.OK
        early.set()
    assert done.is_set()
    assert sorted(raised) == ["a", "b"]
    assert sorted(gate.started) == ["a", "b", "next"]
    return True


async def test_a_plain_handler_keeps_its_place_until_its_thread_ends(push: PushHandlers, listen: str) -> None:
    """A thread can't be cancelled: no receipt for what would only queue behind it. When it ends, what waited
    for its place and was cut off is not even looked at."""
    go, running = threading.Event(), threading.Event()
    lost: list[bool] = []

    @push.on("t", concurrency=1)
    def handle(delivery: Delivery) -> None:
        running.set()
        assert go.wait(PATIENCE)
        lost.append(delivery.lost)

    async with served(push, listen) as caller:
        cut = Batch(caller, "first", *(f"n{i}" for i in range(1_000)))
        assert await asyncio.to_thread(running.wait, PATIENCE)
        cut.call.cancel()
        await asyncio.wait([cut.reading])
        await waiting(push, 0)
        third = Batch(caller, "third")
        await waiting(push, 1)
        third.call.cancel()
        await asyncio.wait([third.reading])
        assert third.received == []
        await waiting(push, 0)
        go.set()
        batch = Batch(caller, "fourth")
        assert await batch.end() is CODES.OK
    assert lost == [True, False]


async def test_a_place_that_is_freed_passes_over_all_calls_that_were_cut_off(push: PushHandlers) -> None:
    """Any number of them, at once: with each, the search for one that can use it went a level deeper."""
    gate = Named()
    push.on("t", concurrency=1)(gate)
    place = PushPlace(push.registrations["t"])

    def single(name: str) -> asyncio.Task[pb.TimerHandlerDeliverResponse]:
        message = delivery_pb.Delivery(topic="t", timer_id=name, token=name.encode())
        return asyncio.create_task(SingleCall(place, message).run(AsyncMock()))

    first = single("first")
    late = [single(f"n{i}") for i in range(1_000)]
    behind = single("behind")
    await gate.until(lambda: gate.started == ["first"])
    gate.let("behind")
    gate.let("first")  # its handler ends before the others have heard that their connection broke
    for each in late:
        each.cancel()
    await asyncio.wait([first, *late], timeout=PATIENCE)
    async with asyncio.timeout(PATIENCE):
        assert (await behind).outcome == ACK
    assert gate.started == ["first", "behind"]
    assert place.workers.taken == 0


# -------------------------------------------------------------------------------- the end


async def test_the_end_is_orderly(push: PushHandlers, listen: str) -> None:
    """What runs ends and answers; what waits for a place is refused at once, beside it."""
    gate = Named()
    push.on("t", concurrency=1)(gate)
    async with calling(listen) as caller:
        async with push.serve(listen):
            batch = Batch(caller, "running", "waiting", "too")
            await gate.until(lambda: gate.started)

            async def let_go() -> None:
                await batch.until(lambda each: each.refused == ["waiting", "too"])
                late = Batch(caller, "late")
                assert await late.end() is CODES.OK
                assert late.refused == ["late"]
                assert not batch.outcomes
                gate.let("running")

            letting = asyncio.create_task(let_go())
        await letting
        assert await batch.end() is CODES.OK
    assert batch.outcomes == {"running": ACK}
    assert gate.started == ["running"]


async def test_handlers_that_take_too_long_are_cancelled(
    listen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each comes again, and an attempt counts; what the others said stands."""
    monkeypatch.setattr(push_handlers, "_LAST_WORDS", PATIENCE)  # their answers leave, however slow that is
    push, gate = PushHandlers(shutdown_timeout=0.2), Named()
    held: list[Delivery] = []
    push.on("t")(gate)

    @push.on("manual", ack_policy=AckPolicy.MANUAL)
    async def hold(delivery: Delivery) -> None:
        held.append(delivery)

    async with calling(listen) as caller:
        async with push.serve(listen):
            gate.let("quick")
            batch, manual = Batch(caller, "quick", "a", "b"), Batch(caller, "m", topic="manual")
            await gate.until(lambda: len(gate.started) == 3)
            await manual.until(lambda each: each.received)
            await batch.until(lambda each: each.outcomes == {"quick": ACK})
        assert await batch.end() is CODES.OK
        assert await manual.end() is CODES.OK
    assert batch.outcomes == {"quick": ACK, "a": NACK, "b": NACK}
    assert manual.outcomes == {"m": NACK}
    assert sorted(gate.cancelled) == ["a", "b"]
    (nack, *_) = [one for each in batch.messages for one in each.settlements if one.outcome == NACK]
    assert nack.reason == "the application stopped before its handler ended"
