"""Runs the demo in about 10 s, and for 20 s more where somebody may look at the console; exit 0 if everything
went as promised."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

from examples.demo.processes import Application, daemon, exit_after, free_port, valkey
from examples.demo.screen import Row, Screen
from relay.client import RelayClient

STAYS = 20.0
"""Seconds for which the console stays after the story."""

PATIENCE = 120.0 + STAYS
"""Seconds within which everything must end."""

TICKS = 6

Look = Callable[[Screen, str], Awaitable[None]]
"""Looks at the console, by its address, after the story."""


async def stay(screen: Screen, console: str) -> None:
    """Leave the console where it is for a while, if somebody sits at the terminal."""
    if sys.stdin.isatty():
        screen.say(f"\nThe console stays for {STAYS:.0f} s; Ctrl-C ends it.")
        await asyncio.sleep(STAYS)


async def main(look: Look = stay) -> int:
    """Start everything, play the story, and check it."""
    api = f"127.0.0.1:{free_port()}"
    console = f"http://{api}/console"
    settings = {
        "RELAY_NAME": "demo-relay",
        "RELAY_API__ENABLED": "true",
        "RELAY_API__LISTEN": api,
        "RELAY_TOPICS__demo__JOURNAL": "true",  # so that the console tells a timer's whole life
    }
    async with valkey() as redis_url, daemon(redis_url, **settings) as target:
        with Screen() as screen:
            screen.say(f"The console: {console}/topic?topic=demo")
            application = Application(target, screen.event)
            await application.start()
            try:
                async with RelayClient(target) as client:
                    await Story(client, screen, application).run()
            finally:
                await application.stop()
        code = summary(screen)
        await look(screen, console)
    return code


class Story:
    """What happens to the timers."""

    def __init__(self, client: RelayClient, screen: Screen, application: Application) -> None:
        self._client = client
        self._screen = screen
        self._application = application

    async def run(self) -> None:
        """Play all chapters at once, and wait for the end of every timer."""
        for number in range(1, TICKS + 1):
            await self._schedule(f"tick-{number}", 0.4 * number, "a timer like any other")
        chapters = (self._killed(), self._moved(), self._cancelled())
        await asyncio.gather(*chapters, *(self._committed(f"tick-{n}") for n in range(1, TICKS + 1)))

    async def _killed(self) -> None:
        await self._schedule("killed", 3.0, "its application is killed while it works on it", work=4.0)
        await self._until(self._row("killed").deliveries)
        await self._application.kill()
        self._screen.step("killed", "application killed")
        await self._application.start()
        await self._committed("killed")

    async def _moved(self) -> None:
        await self._schedule("moved", 0.6, "rescheduled while it is being delivered", work=0.8)
        await self._until(self._row("moved").deliveries)
        await self._client.schedule("demo", body(0.0), timer_id="moved", delay=2.0)
        self._screen.step("moved", "rescheduled in flight: +2 s")
        # The old delivery's acknowledgement comes now, and must not remove the new intent.
        await self._until_handled("moved", 1)
        if await self._client.get("demo", "moved") is not None:
            self._screen.step("moved", "old outcome void")
        await self._committed("moved")

    async def _cancelled(self) -> None:
        await self._schedule("cancelled", 10.0, "cancelled before it is due")
        await asyncio.sleep(0.5)
        await self._client.cancel("demo", "cancelled")
        row = self._row("cancelled")
        row.gone = True
        self._screen.step("cancelled", "cancelled")

    async def _schedule(self, timer_id: str, delay: float, plan: str, work: float = 0.0) -> None:
        self._screen.add(timer_id, f"in {delay:.1f} s, {plan}")
        await self._client.schedule("demo", body(work), timer_id=timer_id, delay=delay)

    async def _committed(self, timer_id: str) -> None:
        """Wait until the timer has left Redis."""
        while await self._client.get("demo", timer_id) is not None:
            await asyncio.sleep(0.05)
        self._row(timer_id).gone = True
        self._screen.step(timer_id, "committed")

    async def _until(self, deliveries: list[dict[str, object]]) -> None:
        while not deliveries:
            await asyncio.sleep(0.01)

    async def _until_handled(self, timer_id: str, times: int) -> None:
        while self._row(timer_id).handled < times:
            await asyncio.sleep(0.01)

    def _row(self, timer_id: str) -> Row:
        return self._screen.rows[timer_id]


def body(work_seconds: float) -> bytes:
    """Make the payload that the application understands."""
    return json.dumps({"work_seconds": work_seconds}).encode()


def summary(screen: Screen) -> int:
    """Say what happened and whether it is what was promised; return the exit code."""
    rows = screen.rows
    firsts = [row.deliveries[0]["lateness_ms"] for row in rows.values() if row.deliveries]
    checks = {
        "every timer ended": all(row.gone for row in rows.values()),
        "none was early": all(d["lateness_ms"] >= 0 for row in rows.values() for d in row.deliveries),
        "the killed application's timer came again, as attempt 2": rows["killed"].attempts == [1, 2],
        "the reschedule in flight won": rows["moved"].attempts == [1, 1] and rows["moved"].handled == 2,
        "the cancelled timer was never delivered": not rows["cancelled"].deliveries,
    }
    screen.say("")
    for promise, held in checks.items():
        screen.say(f"{'  ✓' if held else '  ✗ BROKEN:'} {promise}")
    screen.say(
        f"\n{len(rows)} timers, {sum(len(row.deliveries) for row in rows.values())} deliveries, "
        f"first deliveries {min(firsts):.1f} to {max(firsts):.1f} ms after their due time."
    )
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    exit_after(main(), PATIENCE)
