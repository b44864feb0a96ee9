"""The ceiling: relay's own scripts driven by a bare loop, without gRPC, leases or an application.

Argument: `url`, `topic`, `timers`, `batch` (timers a script call), and `verb`: `drain` claims and settles,
`schedule` stores. `overlap` settles one batch while the next is claimed, on a second connection, as a
relay does. Says how long it took.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from bench.applications.tally import say
from relay.core.outcomes import ClaimRequest, nonces
from relay.core.policy import TopicPolicy
from relay.store.codec import envelope
from relay.store.server.scripts import Argument
from relay.store.server.server import Server
from relay.store.timeline.read_sizes import MOST
from relay.store.timeline.redis_store import PARK_GRACE
from relay.store.verbs import timeline

LEASE = 30_000_000
"""microseconds"""
CLAIM_BYTES = 2 << 20
LIMITS = TopicPolicy().limits


class Loop:
    """The scripts, called with what relay calls them with."""

    def __init__(self, server: Server, topic: str, batch: int, payload: int) -> None:
        self._server = server
        self._topic = topic
        self._batch = batch
        self._nonce = nonces()
        self._stored = envelope.encode(b"p" * payload, {}, "")

    async def claim(self) -> tuple[list[bytes], bytes]:
        """The ids of a batch, and the nonce of their lease."""
        nonce = self._nonce()
        reply = await self._server.call(
            timeline.claim(
                self._topic,
                ClaimRequest(self._batch, LEASE, nonce, CLAIM_BYTES, LIMITS),
                park_grace=PARK_GRACE,
                at_once=MOST,
            )
        )
        return list(reply.timers[::3]), nonce

    async def settle(self, ids: list[bytes], nonce: bytes) -> None:
        """Acknowledge them."""
        await self._server.call(timeline.settle(self._topic, LIMITS, (nonce, "ack", "", len(ids), *ids)))

    async def schedule(self, first: int) -> None:
        """Store a batch, due in an hour."""
        args: list[Argument] = []
        for number in range(first, first + self._batch):
            args += (f"timer-{number}", "+3600000000", self._stored)
        await self._server.call(timeline.schedule(self._topic, 0, args))

    async def drain(self, timers: int, *, overlap: bool) -> int:
        """Claim and settle so many; answers how many it were."""
        handled = 0
        settling = asyncio.ensure_future(asyncio.sleep(0))
        while handled < timers:
            ids, nonce = await self.claim()
            handled += len(ids)
            await settling
            settling = asyncio.ensure_future(self.settle(ids, nonce))
            if not overlap:
                await settling
        await settling
        return handled


async def main(
    url: str,
    topic: str,
    timers: int,
    batch: int,
    verb: str = "drain",
    payload: int = 200,
    *,
    overlap: bool = False,
) -> None:
    """Do so many, and say how long it took."""
    async with Server(url, connections=2, timeout=60) as server:
        loop = Loop(server, topic, batch, payload)
        began, cpu = time.perf_counter(), time.process_time()
        if verb == "drain":
            handled = await loop.drain(timers, overlap=overlap)
        else:
            handled = timers
            for first in range(0, timers, batch):
                await loop.schedule(first)
        seconds = time.perf_counter() - began
    cpu = time.process_time() - cpu
    say(seconds=seconds, handled=handled, again=0, cpu=cpu, lateness={})


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
