"""Measure how long the corridors of the house are: what a timer runs through, and what a change touches.

It runs the daemon's own parts (`relay.app.serve`) on an embedded Valkey, with a Python application in a
process of its own, and lets timers go through. It speaks to loopback only, and leaves nothing behind.

- A function is known by its file, in relay/, and its qualified name. It counts if it is entered or goes on
  after an `await`. Left out are comprehensions; relay/v1 and relay/journal, which are generated;
  relay/client, the application's side; and what dataclasses generate, which has no file. `sys.setprofile`
  looks at the event loop's thread: no other thread of the relay has a part in the journey.
- The one Schedule stores a timer that is not its topic's first, so that no wake hint belongs to it. Its
  window lasts from before the application is told to schedule until it has its answer.
- The way from claim to ACK begins `LEAD` before the timer is due. It ends when Redis has forgotten the timer
  and the relay has read that. The application sends a receipt, and acknowledges at once.
- A move is a call of a function whose nearest caller within relay/ stands in another file; asyncio, gRPC or
  contextlib may stand between the two. A coroutine that goes on after an `await` is called again by the one
  that awaits it. What the event loop calls has no such caller, and is not a move. The table has the
  median of the windows.
- Background work (janitor, lease keeper, health, hints) is told apart by repetition: only what ran in each of
  `REPEATS` windows counts, after `WARM_UPS` that nobody looks at. A window takes some milliseconds: a loop
  that ticks once a second does not hit them all. The loop's own `PunctualSelector.select` does, and counts.
- Product files are the hand-written ones: relay/**/*.py without relay/v1 and relay/journal, lua/**/*.lua,
  proto/**/*.proto. They name `content_type` as a whole word; they name the verb `purge` and the outcome
  `reschedule` in any case and form, as in PurgeDeadLetters.
- Lines are all lines, blank ones as well, of the hand-written Python under relay/ and Lua under lua/.

Run it from the root: `python -m tools.journey`; `--json` is for programs, and lists the functions by name.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from statistics import median_low
from types import FrameType
from typing import Any, Self

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from redis.asyncio import Redis

from relay.app import serve
from relay.cli.daemon.embedded import embedded_valkey
from relay.client import Delivery, RelayClient
from relay.engine.event_loop import loop_factory
from relay.settings import load
from relay.settings.keys import key_names

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ("relay/v1/", "relay/journal/")
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}

TOPIC = "journey"
WARM_UPS, REPEATS = 3, 5
TIMEOUT = 60.0
"""Seconds for everything that is traced; it takes about four."""

DELAY, LEAD = 0.3, 0.005
"""Seconds until a timer is due, and before that from which on its window counts."""


@cache
def relays(filename: str) -> str:
    """The file's path from the root, such as `relay/app.py`; empty if it is not on the relay's side."""
    path = filename.removeprefix(f"{ROOT}/")
    return path if path.startswith("relay/") and not path.startswith((*GENERATED, "relay/client/")) else ""


def file_of(function: str) -> str:
    """Where it stands."""
    return function.partition(" ")[0]


@dataclass
class Window:
    """What this thread calls on the relay's side within a `with`, from `begin` (Unix seconds) on."""

    begin: float = 0.0
    calls: list[tuple[str, str]] = field(default_factory=list)
    """The function of each call, such as `relay/app.py serve`, and the file of the nearest caller, if any."""

    def __enter__(self) -> Self:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        path = relays(code.co_filename)
        if event != "call" or not path or code.co_name in COMPREHENSIONS or time.time() < self.begin:
            return
        caller = frame.f_back
        while caller is not None and not relays(caller.f_code.co_filename):
            caller = caller.f_back
        self.calls.append((f"{path} {code.co_qualname}", relays(caller.f_code.co_filename) if caller else ""))

    @property
    def functions(self) -> set[str]:
        """What was called."""
        return {function for function, _ in self.calls}

    def moves(self, among: set[str]) -> int:
        """How often one of these functions was called out of another file."""
        return sum(
            bool(caller) and caller != file_of(function)
            for function, caller in self.calls
            if function in among
        )


Traced = list[tuple[Window, Window]]
"""One Schedule of each repetition, and the way of another timer from its claim to its settled ACK."""


class Stage:
    """The application's process, and a connection to Valkey that is not the relay's."""

    def __init__(self, process: Process, redis: Redis, payloads: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._said = BufferedByteReceiveStream(process.stdout)
        self._tell = process.stdin
        self._redis, self._payloads = redis, payloads
        self._heard: Counter[str] = Counter()

    async def hear(self, word: str) -> None:
        """Until the application says so, or has said so before."""
        while not self._heard[word]:
            self._heard[(await self._said.receive_until(b"\n", 100)).decode()] += 1
        self._heard[word] -= 1

    async def schedule(self, timer_id: str, due: float) -> None:
        """Let the application store a timer that is due at this time (Unix seconds)."""
        await self._tell.send(f"{timer_id} {due}\n".encode())
        await self.hear("scheduled")

    async def caught_up(self) -> None:
        """Until the relay has read what Valkey has said to it: that lies before two further answers to us."""
        for _ in range(2):
            await self._redis.execute_command("PING")

    async def deliver(self, timer_id: str) -> Window | None:
        """One timer from its claim to its settled ACK; None if the window opened too late for the claim."""
        due = time.time() + DELAY
        await self.schedule(timer_id, due)
        await self.caught_up()  # its wake hint is not a part of the way
        with Window(due - LEAD) as window:
            late = time.time() >= window.begin
            await self.hear("handled")
            while await self._redis.execute_command("HEXISTS", self._payloads, timer_id):
                pass  # each look is a round trip, during which the relay goes on
            await self.caught_up()
        return None if late else window

    async def play(self) -> Traced:
        """All repetitions."""
        traced: Traced = []
        await self.hear("ready")
        later = time.time() + 3600
        await self.schedule("first", later)
        while len(traced) < WARM_UPS + REPEATS:
            with Window() as scheduled:
                await self.schedule(f"another-{len(traced)}", later + 1)
            delivered = await self.deliver("due")
            if delivered is not None:
                traced.append((scheduled, delivered))
        return traced[WARM_UPS:]


async def trace(url: str) -> Traced | None:
    """Run a relay on this Valkey, and timers through it; None if a signal ended the relay before."""
    local = dict.fromkeys(("grpc.listen", "http.listen", "api.listen"), "127.0.0.1:0")
    settings = load(environ={}, overrides={**local, "redis.url": url})
    serving = asyncio.get_running_loop().create_future()
    traced = None
    with anyio.fail_after(TIMEOUT):
        async with anyio.create_task_group() as tasks, Redis.from_url(url) as redis:

            async def relay() -> None:
                await serve(settings, serving.set_result)
                tasks.cancel_scope.cancel()

            tasks.start_soon(relay)
            command = [sys.executable, "-m", "tools.journey", "--application", (await serving).grpc]
            async with await anyio.open_process(command, stderr=None, cwd=ROOT) as process:
                traced = await Stage(process, redis, key_names(settings.redis).of(TOPIC)[1]).play()
            signal.raise_signal(signal.SIGTERM)
    return traced


async def application(target: str) -> None:
    """The other side: store the timers that standard input names, with their due times, acknowledge all."""
    client = RelayClient(target)

    @client.on(TOPIC)
    async def handle(_: Delivery) -> None:
        print("handled", flush=True)

    async with client:
        await client.wait_ready(TIMEOUT)
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            timer_id, due = line.split()
            at = datetime.fromtimestamp(float(due), UTC)
            await client.schedule(TOPIC, b"payload", timer_id=timer_id, due_time=at)
            print("scheduled", flush=True)


def product(root: Path = ROOT) -> dict[str, str]:
    """The text of each hand-written file of the product, by its path from the root."""
    kinds = ("relay/**/*.py", "lua/**/*.lua", "proto/**/*.proto")
    files = {str(file.relative_to(root)): file for kind in kinds for file in root.glob(kind)}
    return {path: file.read_text("utf-8") for path, file in files.items() if not path.startswith(GENERATED)}


def naming(files: dict[str, str], pattern: str) -> int:
    """How many files have a match."""
    return sum(re.search(pattern, text) is not None for text in files.values())


def lines(files: dict[str, str], suffix: str) -> int:
    """How many lines the files with this suffix have, as `wc -l` counts."""
    return sum(text.count("\n") for path, text in files.items() if path.endswith(suffix))


def ran(functions: set[str]) -> dict[str, Any]:
    """A row of what was called."""
    files = {file_of(function) for function in functions}
    return {"functions": len(functions), "files": len(files), "names": sorted(functions)}


def rows(traced: Traced, files: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The table: of each thing measured, numbers by their unit."""
    schedules, deliveries = zip(*traced, strict=True)
    out, back = (set.intersection(*(each.functions for each in some)) for some in (schedules, deliveries))
    python, lua = (lines(files, suffix) for suffix in (".py", ".lua"))
    return {
        "one Schedule": ran(out),
        "both ways": ran(out | back),
        "content_type": {"files": naming(files, r"\bcontent_type\b")},
        "a verb: purge": {"files": naming(files, "(?i)purge")},
        "an outcome: reschedule": {"files": naming(files, "(?i)reschedule")},
        "claim to ACK": {"moves": median_low(window.moves(back) for window in deliveries)},
        "lines": {"Python": python, "Lua": lua, "in all": python + lua},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how long the corridors of the house are.")
    parser.add_argument("--json", action="store_true", help="for programs, with the functions' names")
    parser.add_argument("--application", metavar="TARGET", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.application:
        asyncio.run(application(arguments.application))
        return
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[name]  # who traces takes another way
    # Until the relay takes the signal over: Valkey must end with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with embedded_valkey(None) as url:
        traced = anyio.run(trace, url, backend_options={"loop_factory": loop_factory})
    if traced is None:
        sys.exit("the relay was told to stop")
    table = rows(traced, product())
    if arguments.json:
        print(json.dumps(table, indent=2))
        return
    for what, row in table.items():
        told = ", ".join(f"{row[unit]:,} {unit}" for unit in row if unit != "names")
        print(f"{what:<24}{told}")


if __name__ == "__main__":
    main()
