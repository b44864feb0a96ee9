"""How long the pages of the console take, and what they cost, over one large topic: alone, beside timers of
another topic, and beside timers of the same one; in milliseconds, at the other end of a connection.

The topic has timers for the coming month, dead letters and recurrences, and the action log is full of what
people did to it. Pages are asked for one after the other, by a connection that stays open. Alone, the CPU
of relay and of the server is divided by the requests. An open page hears once a second how things stand.
At the end there are more topics, as many as a relay looks at, and the overview is asked for once more.
"""

from __future__ import annotations

import asyncio
import http.client
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlencode

from bench.harness.processes import application, cpu_seconds, free_port, running
from bench.harness.quantiles import milliseconds
from bench.harness.recurrences import AT_ONCE, keep
from bench.harness.rows import Row
from bench.harness.server import Server
from bench.harness.timers import TOPIC, load_at
from bench.harness.world import Relay, World, Wrong, listening
from relay.core.instants import SECOND
from relay.core.recurring.recurrence import Recurrence, Standing
from relay.core.recurring.rule import Rule
from relay.store.codec import envelope
from relay.store.keys import ACTIONS, KeyNames

MEASURE = "pages"
OTHER = "other"
"""The topic whose timers pass beside."""
AHEAD, HOUR, DAY = 30 * 86_400, 3_600, 86_400
"""Seconds over which the timers are spread, from an hour on."""
A_FEW = 10
"""Timers of a topic that is one of many."""
Fields = dict[Any, Any]
"""Of an entry of a stream."""
ACTIONS_KEPT = 2_000
OPEN = 50
"""pages that listen at the same time"""
QUANTILES = ("p50", "p99")
CPU, SERVER_CPU, SHARE = "CPU of relay", "CPU of the server", "share"
RULE = Rule(cron="30 9 * * 1-5", zone="Europe/Berlin")

BESIDES = {
    "beside another topic": OTHER,
    "beside the same topic": TOPIC,
}


def took(page: str, beside: str = "alone") -> str:
    """The row of how long a page took."""
    return f"{page}, {beside}"


def open_pages(count: int) -> str:
    """The row of what open pages cost."""
    return f"CPU of relay, {count} open pages"


async def measure(world: World) -> AsyncIterator[Row]:
    """Alone, with open pages, and beside timers; then the overview of many topics."""
    plan = world.plan
    first = await fill(world)
    paths = pages(first)
    address = f"127.0.0.1:{free_port()}"
    env = {
        "RELAY_API__ENABLED": "on",
        "RELAY_API__LISTEN": address,
        f"RELAY_TOPICS__{TOPIC}__MAX_WAITING": "0",
    }
    async with world.relay(**env) as relay:
        await listening(address)
        await asyncio.sleep(plan.pages_settled)
        note = f"{plan.pages_timers:,} timers, {plan.pages_dead:,} dead letters, {plan.pages_asked} requests"
        async for row in alone(world, relay, address, paths, note):
            yield row
        for count in (0, OPEN):
            share = await opened(relay, address, count, plan.pages_time)
            yield Row(MEASURE, open_pages(count), share, "% of a core", SHARE)
        async for row in beside(world, relay, address, paths):
            yield row
        await crowd(world.server, plan.pages_topics)
        many = {f"overview, with {plan.pages_topics} other topics": "/console"}
        await shown(address, "/console", crowded(0))
        async for row in alone(world, relay, address, many, f"{plan.pages_asked} requests"):
            yield row
        async for row in beside(world, relay, address, many):
            yield row
    await world.server.clear()


async def alone(
    world: World, relay: Relay, address: str, paths: Mapping[str, str], note: str
) -> AsyncIterator[Row]:
    """How long pages take, and what they cost. The note stands beside the first one."""
    asked = world.plan.pages_asked
    for page, path in paths.items():
        server, own = await world.server.cpu_seconds(), cpu_seconds(relay.pid)
        seconds = await ask(address, path, asked)
        own = (cpu_seconds(relay.pid) - own) / asked * 1000
        server = (await world.server.cpu_seconds() - server) / asked * 1000
        for row in rows(took(page), seconds, note):
            yield row
        note = ""
        yield Row(MEASURE, took(page), own, "ms", CPU)
        yield Row(MEASURE, took(page), server, "ms", SERVER_CPU)


async def beside(world: World, relay: Relay, address: str, paths: Mapping[str, str]) -> AsyncIterator[Row]:
    """How long pages take while timers pass."""
    plan = world.plan
    for besides, topic in BESIDES.items():
        command = application(
            "paced", target=relay.target, topic=topic, rate=plan.pages_rate, payload=plan.payload
        )
        async with running("timers beside", command) as child:
            await child.hear()
            found = [(page, await ask(address, path, plan.pages_asked)) for page, path in paths.items()]
            await child.tell(enough=True)
            reached = (await child.hear())["rate"]
        note = f"{reached:,.0f} timers/s pass"
        for page, seconds in found:
            for row in rows(took(page, besides), seconds, note):
                yield row
            note = ""


def rows(name: str, seconds: Sequence[float], note: str) -> list[Row]:
    """One for each quantile."""
    found = milliseconds(seconds)
    return [Row(MEASURE, name, found[stat], "ms", stat, note) for stat in QUANTILES]


def pages(first: float) -> dict[str, str]:
    """The addresses, by what the page shows. `first` is when the first timer is due."""

    def at(path: str, **given: object) -> str:
        return f"/console{path}?{urlencode({'topic': TOPIC, **given})}"

    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first + AHEAD / 2))
    after = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first + AHEAD / 2 + HOUR))
    return {
        "overview": "/console",
        **{f"topic, {ahead} ahead": at("/topic", ahead=ahead) for ahead in ("hour", "day", "week", "month")},
        "timers": at("/timers"),
        "timers of a window": at("/timers", since=since, before=after),
        "timers by prefix, found": at("/timers", prefix="timer-1"),
        "timers by prefix, not found": at("/timers", prefix="nobody"),
        "timers by prefix in a window, not found": at("/timers", prefix="nobody", since=since),
        "timers by state, not found": at("/timers", state="leased", since=since),
        "timers by header, not found": at("/timers", header="tenant=north", since=since),
        "timer": at("/timer", id="timer-17"),
        "timer that is not there": at("/timer", id="nobody"),
        "timer's life": at("/timer/life", id="timer-17"),
        "before a timer is moved": at("/timer/move", id="timer-17"),
        "dead letters": at("/dead"),
        "dead letters of a timer, not found": at("/dead", id="nobody"),
        "before all are redriven": at("/dead/redrive", reason="*"),
        "before a group is purged": at("/dead/purge", reason="rejected", shape="nobody"),
        "recurrences": at("/recurrences"),
        "recurrences by prefix": at("/recurrences", prefix="r9"),
        "recurrence": at("/recurrence", id="r17"),
        "rule tried": at("/recurrence/preview", rule=RULE.cron, zone=RULE.zone),
        "rule tried, each 10 s": at("/recurrence/preview", rule="*/10 * * * * *"),
        "rule tried, RRULE": at(
            "/recurrence/preview", rule="FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", zone=RULE.zone
        ),
        "rule tried, a leap day": at("/recurrence/preview", rule="0 0 29 2 1#5", zone=RULE.zone),
        "people": "/console/people",
        "people, of the topic": at("/people"),
        "first event of an open page": at("/live"),
    }


async def ask(address: str, path: str, count: int) -> list[float]:
    """The seconds that each of `count` requests took, until the last byte of its answer. A request for a
    stream has a connection of its own, and ends with the first event."""
    return await asyncio.to_thread(_ask, address, path, count)


def _ask(address: str, path: str, count: int) -> list[float]:
    streams = path.startswith("/console/live")
    found = []
    connection = http.client.HTTPConnection(address, timeout=60)
    _read(connection, path, streams=streams)  # so that the templates are there
    for _ in range(count):
        if streams:
            connection.close()
        began = time.perf_counter()
        _read(connection, path, streams=streams)
        found.append(time.perf_counter() - began)
    connection.close()
    return found


def _read(connection: http.client.HTTPConnection, path: str, *, streams: bool) -> None:
    connection.request("GET", path)
    answer = connection.getresponse()
    if answer.status not in (200, 404):
        raise Wrong(f"{path} was answered {answer.status}")
    if not streams:
        answer.read()
        return
    while not answer.readline().startswith(b"data:"):
        pass


async def opened(relay: Relay, address: str, count: int, seconds: float) -> float:
    """The percentage of a core that relay takes while `count` pages are open, half of them overviews."""
    host, _, port = address.rpartition(":")
    async with AsyncExitStack() as stack:
        for number in range(count):
            reader, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            path = "/console/live" if number % 2 else f"/console/live?topic={TOPIC}"
            writer.write(f"GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n".encode())
            await reader.readuntil(b"data:")
            task = asyncio.create_task(_drain(reader))
            stack.callback(task.cancel)
        await asyncio.sleep(1.0)
        spent, began = cpu_seconds(relay.pid), time.perf_counter()
        await asyncio.sleep(seconds)
        return (cpu_seconds(relay.pid) - spent) / (time.perf_counter() - began) * 100


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def fill(world: World) -> float:
    """Write all that the pages show; return when the first timer is due."""
    plan, first = world.plan, time.time() + HOUR
    step = AHEAD / plan.pages_timers
    await load_at(world.server.url, plan.pages_timers, plan.payload, lambda number: first + number * step)
    await bury(world.server, plan.pages_dead, plan.payload)
    await keep(world.server, TOPIC, daily(plan.pages_recurrences))
    await act(world.server)
    return first


async def bury(server: Server, count: int, payload: int) -> None:
    """Write dead letters as `lua/lib/letters.lua` does."""
    dead, stored = KeyNames().of(TOPIC)[3], envelope.encode(b"p" * payload, {}, "")
    now = time.time_ns() // 1_000
    for begin in range(0, count, AT_ONCE):
        pipe = server.redis.pipeline(transaction=False)
        for number in range(begin, min(begin + AT_ONCE, count)):
            fields: Fields = {
                "timer_id": f"dead-{number}",
                "reason": ("rejected", "attempts")[number % 2],
                "attempts": "3",
                "claims": "3",
                "due": str(now / SECOND - 60),
                "died": str(now),
                "occurrence": number.to_bytes(16, "big"),
                "error": f"SMTP 55{number % 5}: mailbox 'user{number}@example.com' of {number} unavailable",
                "envelope": stored,
            }
            pipe.xadd(dead, fields)
        await pipe.execute()


def daily(count: int) -> Iterator[tuple[Recurrence, Standing]]:
    """Recurrences that come once a day, the first time tomorrow."""
    following = (int(time.time()) + DAY) * SECOND
    for number in range(count):
        yield (
            Recurrence(f"r{number}", RULE, b"p" * 200),
            Standing(version=1, next=following, settled=following - 1),
        )


async def crowd(server: Server, count: int) -> None:
    """Write topics with a few timers each, all of them due tomorrow."""
    names, due = KeyNames(), time.time() + DAY
    pipe = server.redis.pipeline(transaction=False)
    for number in range(count):
        timeline, payloads = names.of(crowded(number))[:2]
        timers = [f"timer-{each}" for each in range(A_FEW)]
        pipe.zadd(timeline, dict.fromkeys(timers, due))
        pipe.hset(payloads, mapping=dict.fromkeys(timers, envelope.encode(b"p", {}, "")))
        pipe.sadd(names.topics, crowded(number))
    await pipe.execute()


def crowded(number: int) -> str:
    """The name of a topic of the crowd."""
    return f"many-{number:03}"


async def shown(address: str, path: str, text: str) -> None:
    """Until the page has this text: a relay learns the names of topics now and then."""
    while text not in await asyncio.to_thread(_text, address, path):
        await asyncio.sleep(0.5)


def _text(address: str, path: str) -> str:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


async def act(server: Server) -> None:
    """Write what people did, as an action log has it."""
    key = KeyNames().key(ACTIONS, "")
    pipe = server.redis.pipeline(transaction=False)
    for number in range(ACTIONS_KEPT):
        fields: Fields = {
            "principal": "jwt:ops@example.com",
            "verb": "operate",
            "method": "RunNow",
            "topic": TOPIC,
            "thing": f"timer-{number}",
            "note": "the bank asked for it",
            "outcome": "OK",
            "relay": "relay-1",
            "time": str(time.time_ns() // 1_000),
        }
        pipe.xadd(key, fields)
    await pipe.execute()
