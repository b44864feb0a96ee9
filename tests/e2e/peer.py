"""faststream-redis-timers: its publisher as functions, its publisher and its worker as processes.

    python -m tests.e2e.peer --url redis://127.0.0.1:6379/0 --topic orders --events events.jsonl --work

subscribes to the topic until SIGTERM; `--publish 500` publishes so many timers named `peer-N` first,
which fall due evenly over `--spread` seconds.
"""

import argparse
import asyncio
import logging
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from faststream import Context
from faststream_redis_timers import TimersBroker
from faststream_redis_timers.message import TimerStreamMessage
from redis.asyncio import Redis

from tests.worlds.relay.application import Journal

LEASE = 12
"""Seconds of a worker's lease, which does not run out because the machine is busy."""


def publish(
    url: str,
    topic: str,
    timer_ids: Iterable[str],
    delay: float = 0.0,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Publish timers as the peer does."""
    with publisher(url) as peer:
        for timer_id in timer_ids:
            peer.schedule(topic, timer_id, delay=delay, headers=headers)


class Publisher:
    """The peer's publisher for code that is not async."""

    def __init__(self, portal: BlockingPortal, broker: TimersBroker) -> None:
        self._portal = portal
        self._broker = broker

    def schedule(
        self,
        topic: str,
        timer_id: str,
        body: Any = "peer",
        *,
        delay: float = 0.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._portal.call(
            partial(
                self._broker.publish,
                body,
                topic=topic,
                timer_id=timer_id,
                activate_in=timedelta(seconds=delay),
                headers=dict(headers or {}),
            )
        )

    def cancel(self, topic: str, timer_id: str) -> None:
        self._portal.call(self._broker.cancel_timer, topic, timer_id)


@contextmanager
def publisher(url: str) -> Iterator[Publisher]:
    """One on a loop of its own."""
    with start_blocking_portal() as portal:
        client = Redis.from_url(url)
        try:
            yield Publisher(portal, TimersBroker(client, logger=None))
        finally:
            portal.call(client.aclose)


async def serve(options: argparse.Namespace) -> None:
    journal = Journal(options.events)
    stopping = asyncio.Event()
    for stop in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(stop, stopping.set)
    async with Redis.from_url(options.url) as client:
        broker = TimersBroker(client, logger=None)
        if options.work:
            subscribe(broker, options, journal)
        async with broker:
            journal.write("ready")
            await publish_all(broker, options, journal)
            journal.write("published")
            if options.work:
                await stopping.wait()
    journal.write("stopped")


def subscribe(broker: TimersBroker, options: argparse.Namespace, journal: Journal) -> None:
    @broker.subscriber(
        options.topic, max_polling_interval=0.2, max_concurrent=options.concurrency, lease_ttl=LEASE
    )
    async def handle(_: Any, message: Annotated[TimerStreamMessage, Context("message")]) -> None:
        timer_id = message.raw_message["timer_id"]
        journal.write("start", topic=options.topic, timer_id=timer_id, headers=message.headers)
        await asyncio.sleep(options.sleep)
        journal.write("end", topic=options.topic, timer_id=timer_id, headers=message.headers)


async def publish_all(broker: TimersBroker, options: argparse.Namespace, journal: Journal) -> None:
    """The due times go to the journal, as they were asked for and before they were."""
    begin = time.time()
    for number in range(options.publish):
        due = datetime.fromtimestamp(begin + options.spread * number / options.publish, UTC)
        timer_id = f"peer-{number}"
        journal.write("publish", topic=options.topic, timer_id=timer_id, due=due.timestamp())
        body = {"sleep": options.sleep}  # for an application; a worker sleeps anyway
        await broker.publish(body, topic=options.topic, timer_id=timer_id, activate_at=due)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--events", required=True)
    parser.add_argument("--work", action="store_true")
    parser.add_argument("--concurrency", type=int, default=50)
    parser.add_argument("--publish", type=int, default=0)
    parser.add_argument("--spread", type=float, default=0.0)
    parser.add_argument("--sleep", type=float, default=0.0)
    logging.basicConfig(level=logging.INFO)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
