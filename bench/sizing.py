"""What timers and relays cost: the figures behind docs/how-to/kubernetes.md#sizing. `python -m bench.sizing`

Bytes per timer are measured with the real store on a real server, one relay with a real `relay serve`; idle
relays are whole engines over real connections, many in a process, each with a stream open for every topic.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import anyio
from opentelemetry.metrics import NoOpMeterProvider

from relay.core.policy import Policies, TopicPolicy
from relay.core.ports import Stores
from relay.core.timers import NewTimer
from relay.engine.engine import Engine
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.telemetry.metrics.instruments import Instruments
from tests.servers import RunningServer, start_server
from tests.worlds.relay.processes import Application, Journal, Relay

TIMERS = 100_000
TOPICS = [f"topic-{number}" for number in range(10)]
HOUR = 3_600_000_000


def info(server: RunningServer, section: str) -> dict[str, Any]:
    with server.client() as client:
        return cast("dict[str, Any]", client.info(section))


async def bytes_per_timer(payload: int, ids: int) -> float:
    """Of Redis's memory, for one timer that waits; ids of so many characters."""
    with start_server("valkey") as server:
        before = info(server, "memory")["used_memory"]
        redis = Server(server.url, connections=1, timeout=10.0)
        store = RedisStore(redis)
        for first in range(0, TIMERS, 500):
            timers = [
                NewTimer(f"{number:0{ids}d}", os.urandom(payload), delay=HOUR + number)
                for number in range(first, first + 500)
            ]
            await store.schedule("t", timers)
        after = info(server, "memory")["used_memory"]
        await redis.aclose()
        return float(after - before) / TIMERS


async def idle_relay(url: str, tasks: anyio.abc.TaskGroup) -> None:
    """A relay with a stream for each topic; it runs until the tasks are cancelled."""
    server = Server(url, timeout=5.0)
    hints, store, topics = RedisHints(server), RedisStore(server), RedisTopics(server)
    count = Instruments(NoOpMeterProvider())
    engine = Engine(Stores(store, topics, hints, server.places), Policies(TopicPolicy(), {}, False), count)
    tasks.start_soon(hints.run)
    await tasks.start(engine.run)
    engine.attach(engine.open(TOPICS, 100))


async def run_engines(url: str, number: int) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(number):
            await idle_relay(url, tasks)
        print("ready", flush=True)
        await anyio.sleep_forever()


def idle_relays(number: int, processes: int, seconds: float) -> None:
    """What so many idle relays ask of one Redis."""
    with start_server("valkey") as server:
        command = [
            sys.executable,
            "-m",
            "bench.sizing",
            "--engines",
            str(number // processes),
            "--url",
            server.url,
        ]
        before = info(server, "memory")["used_memory"]
        children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
        try:
            for child in children:
                assert child.stdout is not None
                assert child.stdout.readline() == b"ready\n"
            time.sleep(15.0)  # until what a start asks for is over
            first, cpu = info(server, "commandstats"), info(server, "cpu")
            begun = time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - begun
            last, spent = info(server, "commandstats"), info(server, "cpu")
            calls = {
                name.removeprefix("cmdstat_"): (
                    last[name]["calls"] - (first[name]["calls"] if name in first else 0)
                )
                / took
                for name in last
            }
            clients = info(server, "clients")["connected_clients"] - 1
            memory = info(server, "memory")["used_memory"] - before
        finally:
            for child in children:
                child.kill()
                child.wait()
    busy = sum(spent[f"used_cpu_{kind}"] - cpu[f"used_cpu_{kind}"] for kind in ("user", "sys")) / took
    print(f"{number} idle relays of {len(TOPICS)} topics, in {processes} processes, over {took:.0f} s:")
    print(f"  connections {clients}, of which memory {memory / clients / 1024:.1f} KiB each")
    print(f"  server busy {100 * busy:.1f} % of a core")
    for name, rate in sorted(calls.items(), key=lambda item: -item[1]):
        if rate >= 0.05:
            print(f"  {name:28} {rate:8.1f}/s  {rate / number:6.2f} a relay")


def one_relay(deliveries: int) -> None:
    """Memory and CPU of `relay serve`: idle, with ten topics, and after many deliveries."""
    directory = Path(tempfile.mkdtemp(prefix="relay-sizing-"))
    with start_server("valkey") as server:
        relay = Relay(directory, "relay", server.url, "127.0.0.1:0", {})
        relay.start()
        print(f"one relay, idle: {rss(relay.pid):.0f} MiB")
        journal = Journal(directory / "events.jsonl")
        application = Application(directory, "application", relay.target, TOPICS, journal)
        application.start()
        begun, cpu = time.monotonic(), seconds_of_cpu(relay.pid)
        time.sleep(20.0)
        share = (seconds_of_cpu(relay.pid) - cpu) / (time.monotonic() - begun)
        print(
            f"  with a stream for {len(TOPICS)} topics: {rss(relay.pid):.0f} MiB, {1000 * share:.0f}m of CPU"
        )
        cpu = seconds_of_cpu(relay.pid)
        asyncio.run(schedule_now(server.url, deliveries))
        with server.client() as client:
            while client.zcard("timers_timeline:topic-0"):
                time.sleep(0.1)
        spent = seconds_of_cpu(relay.pid) - cpu
        each = 1e6 * spent / deliveries
        print(f"  after {deliveries} deliveries: {rss(relay.pid):.0f} MiB, {each:.0f} µs of CPU each")
        application.kill()
        relay.kill()


async def schedule_now(url: str, number: int) -> None:
    redis = Server(url, connections=1, timeout=10.0)
    store = RedisStore(redis)
    for first in range(0, number, 500):
        await store.schedule(
            "topic-0", [NewTimer(f"t{n}", b"x" * 200, delay=0) for n in range(first, first + 500)]
        )
    await redis.aclose()


def rss(pid: int) -> float:
    (line,) = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")
    ]
    return int(line.split()[1]) / 1024


def seconds_of_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description="What timers and relays cost.")
    parser.add_argument(
        "--engines", type=int, help="run so many idle relays in this process (used by itself)"
    )
    parser.add_argument("--url", default="", help="the Redis of --engines")
    parser.add_argument("--relays", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    if options.engines:
        asyncio.run(run_engines(options.url, options.engines))
        return
    for payload, ids in ((0, 16), (100, 16), (200, 36), (1000, 36)):
        each = asyncio.run(bytes_per_timer(payload, ids))
        print(f"a timer with {payload} bytes of payload and an id of {ids}: {each:.0f} bytes")
    one_relay(20_000)
    for number in (10, options.relays):
        idle_relays(number, 2, options.seconds)


if __name__ == "__main__":
    main()
