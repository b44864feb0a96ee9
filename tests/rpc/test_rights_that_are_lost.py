"""Streams that are open while a policy changes."""

from __future__ import annotations

import anyio
import grpc
import pytest

from relay.api.access import Access
from relay.client import CallError, Delivery, RelayClient
from relay.core.trust.access import AccessPolicy, AccessRule
from relay.core.trust.globs import Glob
from relay.core.trust.verbs import AccessVerb
from relay.rpc import delivery_service
from tests.worlds.engine.served import Served, gone, put, served
from tests.worlds.engine.stubs import Stream
from tests.worlds.waiting import PATIENCE

DENIED = "the policy does not give anonymous the verb deliver on topic 'u'"


def allowing(*topics: str) -> AccessPolicy:
    verbs = frozenset(AccessVerb)
    return AccessPolicy([AccessRule("it", [Glob("anonymous")], [Glob(each) for each in topics], verbs)])


async def ended(stream: Stream) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.finish_reading()
    return caught.value


async def test_a_stream_that_loses_a_topic_settles_what_it_has_and_is_told_why() -> None:
    """It gets nothing more, of its other topics neither. A stream that loses nothing goes on."""
    access = Access(allowing("t", "u"))
    async with served(access=access) as relay:
        loses, keeps = await relay.stream().open("t", "u"), await relay.stream().open("t")
        await put(relay, "a", topic="u")
        (delivery,) = await loses.deliveries(1)
        access.use(allowing("t"))
        assert (await loses.next()).WhichOneof("message") == "drain"
        await put(relay, "b")
        assert (await keeps.delivery()).timer_id == "b"
        await loses.ack([delivery])
        await loses.call.done_writing()
        why = await ended(loses)
        assert (why.code(), why.details()) == (grpc.StatusCode.PERMISSION_DENIED, DENIED)
        access.use(allowing("u", "t"))
        await gone(relay, "a", topic="u")


async def test_a_stream_that_does_not_go_by_itself_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has is released, and no attempt counts against what was not received."""
    monkeypatch.setattr(delivery_service, "LEAVE", 0.05)
    access = Access(allowing("u"))
    async with served(access=access) as relay:
        stream = await relay.stream().open("u")
        await put(relay, "a", topic="u")
        await stream.deliveries(1)
        access.use(allowing("t"))
        assert (await ended(stream)).details() == DENIED
        access.use(allowing("u"))
        again = await (await relay.stream().open("u")).delivery()
        assert (again.timer_id, again.attempt) == ("a", 1)


async def test_the_client_finishes_its_handler_and_says_why_it_ends() -> None:
    """The policy changes in the midst of a handler, whose outcome counts."""
    access = Access(allowing("u"))
    async with served(access=access) as relay:
        await in_the_midst(relay, access)


async def in_the_midst(relay: Served, access: Access) -> None:
    began, may_end = anyio.Event(), anyio.Event()
    client = RelayClient(relay.server.address)

    @client.on("u")
    async def handle(_: Delivery) -> None:
        began.set()
        await may_end.wait()

    async def run() -> None:
        with pytest.raises(CallError) as caught:
            await client.run()
        assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED
        assert caught.value.message == DENIED

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await put(relay, "a", topic="u")
            await began.wait()
            access.use(allowing("t"))
            may_end.set()
    access.use(allowing("u"))
    await gone(relay, "a", topic="u")
