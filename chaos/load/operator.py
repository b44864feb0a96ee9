"""An operator, who puts recurrences of every second, and redrives what has died.

    python -m chaos.load.operator --targets 127.0.0.1:7451 --ledgers DIR --name operator --recurrences 5 \\
        --level fsync --patience 5

On SIGTERM it pauses its recurrences, and goes on redriving until it is killed.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from chaos.ledger import Ledger
from chaos.load.application import SEEN, seen
from chaos.load.asked import asked
from chaos.load.calls import Insistent
from chaos.world import TOPIC
from relay.client import CallError, NotFound, RelayClient

PAUSE = 0.5
"""Seconds between two looks for dead letters."""
PAGE = 200


class Recurring:
    """One recurrence of every second; every instant has to come."""

    def __init__(self, caller: Insistent, name: str, level: str) -> None:
        self._caller = caller
        self.name = name
        self._level = level

    async def put(self) -> None:
        """Keep it; the ledger has its first instant."""

        async def act(client: RelayClient, timeout: float) -> dict[str, Any]:
            put = await client.recur(
                self.name,
                topic=TOPIC,
                every=1,
                payload=b'{"n":0}',
                overlap="allow",
                catch_up="all",
                durability=self._level,
                timeout=timeout,
            )
            return {"next": put.next_time.timestamp() if put.next_time else None}

        await self._caller.ask(self.name, act, n=1, what="put")

    async def pause(self) -> None:
        """End it; the ledger has the first instant that does not come, or none if there is no such
        recurrence: servers may have lost it."""

        async def act(client: RelayClient, _: float) -> dict[str, Any]:
            try:
                stands = await client.recurrences.pause(TOPIC, self.name, durability=self._level)
            except NotFound:
                return {"next": None}
            return {"next": stands.next_time.timestamp() if stands.next_time else None}

        await self._caller.ask(self.name, act, n=2, what="pause")


class Redriver:
    """Redrives whatever is dead."""

    def __init__(self, clients: list[RelayClient], ledger: Ledger, ledgers: Path) -> None:
        self._clients = clients
        self._ledger = ledger
        self._ledgers = ledgers
        self._tries = 0

    async def step(self) -> int:
        """Redrive a page; return how many there were. An error is written down, and met by the next step."""
        client = self._clients[self._tries % len(self._clients)]
        self._tries += 1
        try:
            letters, _ = await client.topics.dead_page(TOPIC, page_size=PAGE)
            if letters:
                await self._redrive(client, {each.dead_id: each.timer_id for each in letters})
        except CallError as error:
            self._ledger.write("answer", id="", n=0, ok=False, code=error.code.name)
            return 1
        return len(letters)

    async def _redrive(self, client: RelayClient, letters: dict[str, str]) -> None:
        for timer_id in letters.values():
            seen(self._ledgers, timer_id).touch()
        self._ledger.write("redrive", ids=list(letters.values()))
        results = await client.topics.redrive(TOPIC, list(letters))
        said = {timer_id: each.value for timer_id, each in zip(letters.values(), results, strict=True)}
        self._ledger.write("redriven", results=said)


async def operate(options: argparse.Namespace) -> None:
    """Until SIGTERM."""
    ledger, stop = Ledger(options.ledgers, options.name), asyncio.Event()
    (options.ledgers / SEEN).mkdir(exist_ok=True)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(RelayClient(target, timeout=options.patience))
            for target in options.targets.split(",")
        ]
        caller = Insistent(clients, ledger, options.patience)
        recurring = [
            Recurring(caller, f"every-second-{n}", options.level) for n in range(options.recurrences)
        ]
        redriver = Redriver(clients, ledger, options.ledgers)
        for each in recurring:
            await each.put()
        while not stop.is_set():
            await redriver.step()
            await asyncio.sleep(PAUSE)
        for each in recurring:
            await each.pause()
        ledger.write("done")
        while True:  # until it is killed: what is rejected at the very end is redriven, too
            await redriver.step()
            await asyncio.sleep(PAUSE)


def main() -> None:
    asyncio.run(operate(asked(targets=str, recurrences=int, level=str, patience=float)))


if __name__ == "__main__":
    main()
