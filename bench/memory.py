"""What a waiting timer takes of a server's memory, and where. `python -m bench.memory` prints the table of
docs/performance/limits.md, with `--write` it puts it there. It takes half a minute.

100,000 timers of 200 bytes of payload, with ids of 42 characters, are stored by the real store on each kind
of server that is here: `used_memory` before and after, over their number. What else is in the table is the
same with one thing left out or kept otherwise, written by plain commands: a row is a difference of two
measurements.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import redis

from bench.report.tables import number
from relay.core.timers import NewTimer
from relay.store.codec import envelope
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.servers import Kind, RunningServer, binary, server_id, start_server

TIMERS, PAYLOAD, ID = 100_000, 200, 42
TOPIC = "t"
HOUR = 3_600_000_000
BATCH = 500
KINDS: tuple[Kind, ...] = ("redis-6", "redis-system", "redis-8", "valkey")
SMALL = 30
"""timers in a small hash: 8 KiB, which is what the allocator gives"""
PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance" / "limits.md"
BEGIN, END = "<!-- Written by `python -m bench.memory --write`. -->", "<!-- That is all of it. -->"

Write = Callable[[redis.Redis], None]


def main() -> None:
    """Measure on each server, print, and write if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    options = parser.parse_args()
    text = table({server_id(kind): measured(kind) for kind in KINDS if binary(kind)})
    print(text)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        between = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
        PAGE.write_text(between.sub(lambda _: f"{BEGIN}\n\n{text}\n\n{END}", page), encoding="utf-8")


def measured(kind: Kind) -> dict[str, float]:
    """The bytes of one timer on one kind of server, by what they are for."""
    with start_server(kind) as server:
        whole = grown(server, lambda _: asyncio.run(by_the_store(server.url)))
        timeline, payloads = grown(server, ids_and_scores), grown(server, envelopes)
        bare, small = grown(server, payloads_alone), grown(server, small_hashes)
    contents = {"the payload": float(PAYLOAD), "the id, in both keys": 2.0 * ID, "the score": 8.0}
    frame = float(len(stored(0)) - PAYLOAD)
    return {
        "a timer, as it waits": whole,
        "… in the timeline, a sorted set": timeline,
        "… in the payloads, a hash": payloads,
        **{f"of it {name}": size for name, size in contents.items()},
        "of it the frame of FastStream's envelope": frame,
        "of it the server's own: entries, buckets, rounding": whole - sum(contents.values()) - frame,
        "saved by payloads without that frame": payloads - bare,
        f"saved by payloads in hashes of {SMALL}, as listpacks": payloads - small,
    }


def grown(server: RunningServer, write: Write) -> float:
    """The memory of one timer; the server is empty again behind it."""
    with server.client() as client:
        before = used(client)
        write(client)
        after = used(client)
        client.execute_command("FLUSHALL", "SYNC")  # Valkey frees in the background otherwise
    return (after - before) / TIMERS


def used(client: redis.Redis) -> int:
    """The server's memory, without what it keeps for this connection."""
    about = client.info("memory")
    return int(about["used_memory"]) - int(about.get("mem_clients_normal", 0))


def named(number_: int) -> str:
    """An id of 42 characters."""
    return f"{number_:0{ID}d}"


def stored(_: int) -> bytes:
    """An envelope of its own."""
    return envelope.encode(os.urandom(PAYLOAD), {}, "")


async def by_the_store(url: str) -> None:
    """As a relay does."""
    async with Server(url, connections=1, timeout=60.0) as server:
        store = RedisStore(server)
        for numbers in batches():
            new = [NewTimer(named(each), os.urandom(PAYLOAD), delay=HOUR + each) for each in numbers]
            await store.schedule(TOPIC, new)


def batches() -> Iterator[range]:
    """Numbers of timers, many at a time."""
    return (range(first, first + BATCH) for first in range(0, TIMERS, BATCH))


def ids_and_scores(client: redis.Redis) -> None:
    """The timeline alone."""
    for numbers in batches():
        client.zadd(KeyNames().key("timeline", TOPIC), {named(each): 4e9 + each / 1e6 for each in numbers})


def envelopes(client: redis.Redis) -> None:
    """The payloads alone."""
    for numbers in batches():
        client.hset(
            KeyNames().key("payloads", TOPIC), mapping={named(each): stored(each) for each in numbers}
        )


def payloads_alone(client: redis.Redis) -> None:
    """The payloads without FastStream's envelope, which foreign workers read."""
    for numbers in batches():
        key = KeyNames().key("payloads", TOPIC)
        client.hset(key, mapping={named(each): os.urandom(PAYLOAD) for each in numbers})


def small_hashes(client: redis.Redis) -> None:
    """The payloads in many small hashes, on a server that is set to pack those."""
    for name in ("hash-max-ziplist-value", "hash-max-listpack-value"):
        try:
            client.config_set(name, 512)
        except redis.ResponseError:  # it goes by the other name
            continue
    for first in range(0, TIMERS, SMALL):
        numbers = range(first, min(first + SMALL, TIMERS))
        key = f"{KeyNames().key('payloads', TOPIC)}:{first // SMALL}"
        client.hset(key, mapping={named(each): stored(each) for each in numbers})


def table(found: dict[str, dict[str, float]]) -> str:
    """In Markdown: a column for each server."""
    lines = [f"| bytes | {' | '.join(found)} |", "|---|" + "--:|" * len(found)]
    for name in next(iter(found.values())):
        cells = (number(round(sizes[name])) for sizes in found.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
