"""Functions around each delivery: their order, what they see, and where they run."""

from __future__ import annotations

import asyncio
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from relay.client import (
    AckPolicy,
    CallNext,
    Delivery,
    InvalidArgument,
    Nack,
    PushHandlers,
    Reject,
    RelayClient,
    SyncRelayClient,
    UsageError,
)
from relay.client.testing import InMemoryRelay, Outcome, SyncInMemoryRelay
from tests.worlds.relay.stage import one_relay
from tests.worlds.waiting import PATIENCE

if TYPE_CHECKING:
    from relay.client.handling.handlers import Handlers

current: ContextVar[str] = ContextVar("current", default="")


@dataclass
class Order:
    number: int


class Seen:
    """Notes what happens, in its order."""

    def __init__(self) -> None:
        self.steps: list[Any] = []

    def use(self, handlers: Handlers) -> None:
        """Put two functions around each delivery; the outer one sets a context variable meanwhile."""

        @handlers.use
        async def outer(delivery: Delivery, call_next: CallNext) -> None:
            token = current.set(delivery.timer_id)
            self.steps.append("outer")
            try:
                await call_next(delivery)
            except Exception as error:
                self.steps.append(type(error))
                raise
            finally:
                current.reset(token)
                self.steps.append("end")

        @handlers.use
        async def inner(delivery: Delivery, call_next: CallNext) -> None:
            await asyncio.sleep(0)  # as one that opens a database session
            if delivery.headers.get("skip"):
                self.steps.append("skipped")
                return
            self.steps.append("inner")
            await call_next(delivery)

    async def handle(self, order: Order) -> None:
        """An async handler."""
        self.steps.append((current.get(), order.number))
        if order.number == 0:
            raise Nack(retryable=False)

    def handle_plainly(self, order: Order, delivery: Delivery) -> None:
        """A handler that is not async."""
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        self.steps += [(current.get(), order.number), threading.current_thread()]
        if order.number == 0:
            raise Reject("nothing")

    def taken(self) -> list[Any]:
        """Return the steps since the last call."""
        steps, self.steps = self.steps, []
        return steps


@pytest.mark.parametrize("end", [RelayClient, PushHandlers])
async def test_the_first_is_the_outermost_and_sees_how_the_handler_ends(end: Any) -> None:
    """… by a stream and by push, around handlers that are async and not; the payload is read inside."""
    handlers, seen = end(), Seen()
    seen.use(handlers)
    handlers.on("a")(seen.handle)
    handlers.on("b")(seen.handle_plainly)
    async with InMemoryRelay(handlers) as relay:
        for topic in ("a", "b"):
            orders = relay.client.topic(topic, Order)
            await orders.schedule(Order(1), delay=0, timer_id="one")
            (well,) = await relay.run_due()
            assert well.outcome is Outcome.ACK
            steps = [step for step in seen.taken() if not isinstance(step, threading.Thread)]
            assert steps == ["outer", "inner", ("one", 1), "end"]

            await orders.schedule(Order(0), delay=0, timer_id="none")
            (badly,) = await relay.run_due()
            assert badly.outcome is (Outcome.NACK if topic == "a" else Outcome.REJECT)
            steps = [step for step in seen.taken() if not isinstance(step, threading.Thread)]
            ended = Nack if topic == "a" else Reject
            assert steps == ["outer", "inner", ("none", 0), ended, "end"]

            await relay.client.schedule(topic, b"{}", delay=0)
            (unfit,) = await relay.run_due()
            assert unfit.outcome is Outcome.REJECT
            assert seen.taken() == ["outer", "inner", Reject, "end"]

            await relay.client.schedule(topic, b"{}", delay=0, headers={"skip": "1"})
            (skipped,) = await relay.run_due()
            assert skipped.outcome is Outcome.ACK
            assert seen.taken() == ["outer", "skipped", "end"]
    assert current.get() == ""


def test_a_plain_handler_keeps_the_thread_of_its_test() -> None:
    """… and sees no event loop, although the functions around it run on one."""
    timers, push, seen = SyncRelayClient(), PushHandlers(), Seen()
    seen.use(push)
    push.on("b")(seen.handle_plainly)
    push.on("c")(
        lambda delivery: seen.handle(Order(len(delivery.payload)))
    )  # a coroutine, of a plain function
    with SyncInMemoryRelay(timers, push) as relay:
        timers.topic("b", Order).schedule(Order(1), delay=0, timer_id="one")
        timers.schedule("c", b"12", delay=0, timer_id="two")
        assert [each.outcome for each in relay.run_due()] == [Outcome.ACK] * 2
    assert seen.taken() == [
        *("outer", "inner", ("one", 1), threading.current_thread(), "end"),
        *("outer", "inner", ("two", 2), "end"),
    ]


async def test_what_cannot_stand_around_a_delivery_is_refused() -> None:
    client = RelayClient()

    def plain(delivery: Delivery, call_next: CallNext) -> Any: ...

    with pytest.raises(InvalidArgument, match="middleware must be an async function"):
        client.use(plain)
    async with client:

        async def late(delivery: Delivery, call_next: CallNext) -> None: ...

        with pytest.raises(UsageError, match="before deliveries begin"):
            client.use(late)


async def test_a_function_may_call_again_raise_or_swallow() -> None:
    """… and a reason names only the type of what was raised, by whomever: its message may hold content."""
    client, calls = RelayClient(), []

    @client.use
    async def again(delivery: Delivery, call_next: CallNext) -> None:
        try:
            await call_next(delivery)
        except KeyError:
            await call_next(delivery)
        except LookupError as error:
            raise OSError(delivery.payload.decode()) from error
        except ArithmeticError:
            return

    raised = {"twice": KeyError, "other": LookupError, "well": ArithmeticError}

    @client.on("a", ack_policy=AckPolicy.REJECT_ON_ERROR)
    async def handle(text: str, delivery: Delivery) -> None:
        calls.append(text)
        if calls.count(text) == 1:
            raise raised[text](text)

    async with InMemoryRelay(client) as relay:
        for text in raised:
            await client.topic("a", str).schedule(text, delay=0, timer_id=text)
        outcomes = {each.timer_id: each.outcome for each in await relay.run_due()}
        assert outcomes == {"twice": Outcome.ACK, "other": Outcome.REJECT, "well": Outcome.ACK}
        assert [each.last_error for each in relay.dead] == ["OSError"]
    assert sorted(calls) == ["other", "twice", "twice", "well"]


async def empty(client: RelayClient, topic: str) -> None:
    """Wait until the topic has no timers."""
    deadline = time.monotonic() + PATIENCE
    while [timer async for timer in client.list(topic)]:
        assert time.monotonic() < deadline, f"{topic} has timers"
        await asyncio.sleep(0.01)  # a process can only be asked


async def test_beside_a_real_relay(listen: str) -> None:
    """Typed timers come by a stream and by push, through the functions around them, in other threads where
    handlers are plain; one that does not fit is a dead letter with its reason, after one attempt."""
    push, stream, pushed = PushHandlers(), Seen(), Seen()
    settings = {
        "RELAY_TOPICS__pushed__DELIVERY__MODE": "push",
        "RELAY_TOPICS__pushed__DELIVERY__TARGET": listen,
    }
    pushed.use(push)
    push.topic("pushed", Order).on()(pushed.handle)
    with one_relay(settings) as relay:
        client = RelayClient(relay.target)
        stream.use(client)
        orders = client.topic("streamed", Order)
        orders.on()(stream.handle_plainly)
        async with push.serve(listen), client:
            await orders.schedule(Order(7), delay=0, timer_id="seven")
            await client.topic("pushed", Order).schedule(Order(8), delay=0, timer_id="eight")
            for topic in ("streamed", "pushed"):
                await client.schedule(topic, b'{"number": "4111-1111"}', delay=0, timer_id="unfit")
                await empty(client, topic)
                (letter,) = [each async for each in client.topics.dead_letters(topic)]
                assert (letter.timer_id, letter.reason, letter.attempts) == ("unfit", "rejected", 1)
                assert letter.last_error == "payload is not Order: number (int_parsing)"
    assert ("seven", 7) in stream.steps
    (thread,) = [step for step in stream.steps if isinstance(step, threading.Thread)]
    assert thread is not threading.current_thread()
    assert ("eight", 8) in pushed.steps
    for seen in (stream, pushed):
        assert seen.steps.count("outer") == seen.steps.count("end") == 2
        assert seen.steps.count(Reject) == 1
