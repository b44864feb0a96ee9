"""The measured application that relays dial: `TimerHandler` by relay.client, at its defaults.

Argument: `port`, `topic`, `timers` to wait for, `batches` (false: without `DeliverBatch`, as applications in
other languages may be). Says `{"ready": true}`, then how it went.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc.aio

from bench.applications.tally import Tally, say
from relay.client import Delivery, PushHandlers


class Deliver:
    """A server, of whose handlers one is left out: what is called there is UNIMPLEMENTED."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """All but `DeliverBatch`."""
        self._server.add_generic_rpc_handlers([cast("Any", Without(each)) for each in handlers])

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Nothing: grpc.aio does nothing with them either."""


class Without:
    """Finds no `DeliverBatch`."""

    def __init__(self, handler: grpc.GenericRpcHandler) -> None:
        self._handler = handler

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """What serves a method."""
        return None if details.method.endswith("/DeliverBatch") else self._handler.service(details)


@asynccontextmanager
async def one_by_one(push: PushHandlers, listen: str) -> AsyncIterator[None]:
    """Serve handlers without batches."""
    server = grpc.aio.server()
    push.add_to(cast("Any", Deliver(server)))
    server.add_insecure_port(listen)
    await server.start()
    yield
    await push.aclose()
    await server.stop(5)


async def main(port: int, topic: str, timers: int, *, batches: bool = True) -> None:
    """Handle so many timers and say how it went."""
    tally = Tally(timers)
    push = PushHandlers()

    @push.on(topic)
    async def count(delivery: Delivery) -> None:
        tally.count(delivery.timer_id)

    listen = f"127.0.0.1:{port}"
    async with push.serve(listen) if batches else one_by_one(push, listen):
        say(ready=True)
        await tally.done.wait()
        seconds = tally.seconds
    tally.report(seconds)


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
