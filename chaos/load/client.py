"""A caller who schedules timers, changes its mind, moves them and cancels them.

    python -m chaos.load.client --targets 127.0.0.1:7451,127.0.0.1:7452 --ledgers DIR --name client-1 \\
        --timers 10000 --seconds 60 --seed 1 --level fsync --patience 3

An empty level asks for what the topic has.

It begins a timer's life every `seconds / timers` and goes on in that pace until SIGTERM; then it ends the
lives that it has begun. Each timer has one caller, and its calls come one after the other, numbered from 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from chaos.ledger import Ledger
from chaos.load.asked import asked
from chaos.load.calls import Insistent
from chaos.world import TOPIC
from relay.client import RelayClient
from relay.core.instants import SECOND

SOON, LATER = 0.05, 4.0
"""Seconds from a call to the due time that it names, at least and at most."""
FAR = 7200.0
"""The same of a timer that is to be moved before it is due."""
AT_ONCE = 400
"""Lives at the same time; where callers wait for a server that is away, no more are begun."""
PAYLOAD = '{"n":'
"""How every payload begins, a recurrence's as well, and nothing else that is said to a server."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Life:
    """All calls about one timer."""

    def __init__(self, caller: Insistent, timer_id: str, level: str, chance: Random) -> None:
        self._caller = caller
        self._id = timer_id
        self._level = level
        self._chance = chance
        self._n = 0

    async def live(self) -> None:
        """Schedule it, perhaps far ahead; move it up to twice; cancel some, and a half of these come back."""
        chance = self._chance
        moves = chance.choice((0, 0, 0, 0, 0, 1, 1, 2))
        far = moves > 0 and chance.random() < 0.5
        await self._schedule(FAR if far else None, last=not moves)
        for n in range(moves):
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            await self._schedule(None, last=n == moves - 1)
        if chance.random() < 0.1:
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            await self._cancel()
            if chance.random() < 0.5:
                await self._schedule(None, last=True)

    async def _schedule(self, ahead: float | None, *, last: bool) -> None:
        self._n += 1
        ahead = ahead or self._chance.uniform(SOON, LATER)
        due = int((time.time() + ahead) * SECOND)
        payload = json.dumps({"n": self._n, "due": due, **self._asks()}).encode()

        async def act(client: RelayClient, timeout: float) -> dict[str, Any]:
            stored = await client.schedule(
                TOPIC,
                payload,
                timer_id=self._id,
                due_time=EPOCH + timedelta(microseconds=due),
                durability=self._level,
                timeout=timeout,
            )
            return {"reached": stored.durability}

        once = not last and self._chance.random() < 0.5
        await self._caller.ask(
            self._id, act, once=once, n=self._n, what="schedule", due=due, level=self._level
        )

    async def _cancel(self) -> None:
        self._n += 1

        async def act(client: RelayClient, timeout: float) -> dict[str, Any]:
            change = await client.cancel(TOPIC, self._id, durability=self._level, timeout=timeout)
            return {"reached": change.durability}

        await self._caller.ask(self._id, act, n=self._n, what="cancel", level=self._level)

    def _asks(self) -> dict[str, Any]:
        """What a handler is to do: most just end, some take their time, some fail once, some are rejected."""
        number = self._chance.random()
        if number < 0.7:
            return {}
        if number < 0.9:
            return {"sleep": round(self._chance.uniform(0.0, 1.0), 3)}
        if number < 0.91:
            return {"sleep": 5.0}  # its lease is renewed meanwhile
        return {"nack": 1} if number < 0.97 else {"reject": True}


async def load(options: argparse.Namespace) -> None:
    """Begin lives until SIGTERM, and end them."""
    chance, stop, ledger = Random(options.seed), asyncio.Event(), Ledger(options.ledgers, options.name)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with AsyncExitStack() as stack:
        clients: Sequence[RelayClient] = [
            await stack.enter_async_context(RelayClient(target)) for target in options.targets.split(",")
        ]
        caller = Insistent(clients, ledger, options.patience)
        room = asyncio.Semaphore(AT_ONCE)

        async def live(number: int, seed: float) -> None:
            async with room:
                await Life(caller, f"{options.name}-{number}", options.level, Random(seed)).live()

        at, number = time.monotonic(), 0
        async with asyncio.TaskGroup() as lives:
            while not stop.is_set():
                number += 1
                lives.create_task(live(number, chance.random()))
                if number == options.timers:
                    ledger.write("written")
                at += options.seconds / options.timers
                await asyncio.sleep(max(at - time.monotonic(), 0.0))
                while room.locked() and not stop.is_set():
                    await asyncio.sleep(0.01)
                    at = time.monotonic()
    ledger.write("done")


def main() -> None:
    asyncio.run(load(asked(targets=str, seed=int, timers=int, seconds=float, level=str, patience=float)))


if __name__ == "__main__":
    main()
