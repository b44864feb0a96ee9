"""The outbox by itself, with a stream whose writes end when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from relay.client.calls.backoff import RetryBackoff
from relay.client.handling import settlements
from relay.client.handling.lease import DeliveryLease
from relay.client.handling.outbox import MAX_FRAME, Outbox, of_a_stream
from relay.v1 import delivery_service_pb2 as pb
from tests.worlds.waiting import PATIENCE


class SlowCall:
    """A stream that takes one message at a time and holds it until `end_write`."""

    def __init__(self) -> None:
        self.written: list[pb.DeliverRequest] = []
        self._writing: asyncio.Queue[None] = asyncio.Queue()
        self.half_closed = False
        self._gate: asyncio.Future[None] | None = None

    async def write(self, request: pb.DeliverRequest) -> None:
        assert self._gate is None, "two writes at a time"
        self._writing.put_nowait(None)
        self._gate = asyncio.get_running_loop().create_future()
        await self._gate
        self._gate = None
        self.written.append(request)

    async def next_write(self) -> None:
        """Wait until a write has begun."""
        async with asyncio.timeout(PATIENCE):
            await self._writing.get()

    async def done_writing(self) -> None:
        self.half_closed = True

    def end_write(self, error: Exception | None = None) -> None:
        assert self._gate is not None
        if error is None:
            self._gate.set_result(None)
        else:
            self._gate.set_exception(error)


class Desk:
    """An outbox at work, and what it called back."""

    def __init__(self, *, acknowledged: bool = False) -> None:
        self.call = SlowCall()
        self.started: list[bytes] = []
        self.unstarted: list[bytes] = []
        self.outbox = Outbox(
            lambda leases: self.started.extend(each.token for each in leases),
            lambda leases: self.unstarted.extend(each.token for each in leases),
            partial(of_a_stream, acknowledged=acknowledged),
        )
        self.running = asyncio.create_task(self.outbox.run(cast("Any", self.call)))

    def receipt(self, token: bytes) -> None:
        self.outbox.gather().add_receipt(DeliveryLease(pb.Delivery(token=token), cast("Any", None)))

    def outcome(self, token: bytes, settlement: pb.Settlement = settlements.ACK) -> None:
        self.outbox.gather().add_settlement(token, settlement)

    async def close(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    """Of a stream to a relay that reads settlements alone."""
    desk = Desk()
    yield desk
    await desk.close()


@pytest.fixture
async def newer() -> AsyncIterator[Desk]:
    """Of a stream to a relay that reads `acknowledged`."""
    desk = Desk(acknowledged=True)
    yield desk
    await desk.close()


async def test_handlers_start_when_the_write_of_their_receipts_has_ended(desk: Desk) -> None:
    """Not when it is queued, and not while it is under way."""
    desk.receipt(b"a")
    await desk.call.next_write()
    desk.receipt(b"b")
    assert desk.started == []
    desk.call.end_write()
    await desk.call.next_write()
    assert desk.started == [b"a"]


async def test_what_comes_during_a_write_shares_the_next_message(desk: Desk) -> None:
    """Receipts and outcomes gather by themselves; Drain goes alone and keeps its place."""
    desk.outcome(b"a")
    await desk.call.next_write()
    desk.outcome(b"b")
    desk.receipt(b"c")
    desk.outcome(b"d")
    desk.outbox.put(pb.DeliverRequest(drain=pb.Drain()))
    desk.outcome(b"e")
    desk.outbox.finish()
    for _ in range(3):
        desk.call.end_write()
        await desk.call.next_write()
    desk.call.end_write()
    await desk.running
    tokens = [
        (list(each.settle.received), [one.token for one in each.settle.settlements])
        for each in desk.call.written
    ]
    assert tokens == [([], [b"a"]), ([b"c"], [b"b", b"d"]), ([], []), ([], [b"e"])]
    assert desk.call.written[2].HasField("drain")
    assert desk.call.half_closed


async def test_what_is_acknowledged_is_a_list_where_the_relay_reads_one(newer: Desk) -> None:
    """And a message has no more outcomes than before, whichever way each is said."""
    for number in range(MAX_FRAME):
        newer.outcome(b"%d" % number, settlements.EXTEND if number % 2 else settlements.ACK)
    newer.outcome(b"over")
    newer.outbox.finish()
    for _ in range(2):
        await newer.call.next_write()
        newer.call.end_write()
    await newer.running
    first, second = (each.settle for each in newer.call.written)
    assert list(first.acknowledged) == [b"%d" % number for number in range(0, MAX_FRAME, 2)]
    assert {each.outcome for each in first.settlements} == {pb.OUTCOME_EXTEND}
    assert len(first.settlements) == MAX_FRAME // 2
    assert (list(second.acknowledged), list(second.settlements)) == ([b"over"], [])


async def test_a_broken_write_starts_nothing(desk: Desk) -> None:
    """What was not written, and what waited behind it, is given back; who waits is told."""
    desk.receipt(b"a")
    told = asyncio.ensure_future(desk.outbox.gather().wait())
    await desk.call.next_write()
    desk.receipt(b"b")
    later = asyncio.ensure_future(desk.outbox.gather().wait())
    await asyncio.sleep(0)  # both have begun to wait
    desk.call.end_write(grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, cast("Any", ()), cast("Any", ())))
    await desk.running
    assert [await told, await later] == [False, False]
    assert (desk.started, desk.unstarted) == ([], [b"a", b"b"])
    assert desk.outbox.closed
    assert not desk.call.half_closed


def test_backoff_doubles_up_to_its_longest_and_begins_anew() -> None:
    """Between half a span and a whole one, so that many clients spread out."""
    low = RetryBackoff(0.1, 0.5, draw=lambda: 0.0)
    assert [low.next() for _ in range(5)] == pytest.approx([0.05, 0.1, 0.2, 0.25, 0.25])
    low.reset()
    assert low.next() == pytest.approx(0.05)
    assert RetryBackoff(0.1, 0.5, draw=lambda: 1.0).next() == pytest.approx(0.1)
