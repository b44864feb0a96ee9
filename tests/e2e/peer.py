"""faststream-redis-timers: its publisher as a function, its subscriber as a process.

python -m tests.e2e.peer --url redis://127.0.0.1:6379/0 --topic orders --events events.jsonl --publish 500

publishes so many timers named `peer-N` while it subscribes to the topic, until SIGTERM.
"""

import argparse
import asyncio
import logging
import signal
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Annotated, Any

from faststream import Context
from faststream_redis_timers import TimersBroker
from faststream_redis_timers.message import TimerStreamMessage
from redis.asyncio import Redis

from tests.e2e.application import Journal


def publish(
    url: str,
    topic: str,
    timer_ids: Iterable[str],
    delay: float = 0.0,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Publish timers as the peer does."""

    async def run() -> None:
        async with Redis.from_url(url) as client, TimersBroker(client, logger=None) as broker:
            for timer_id in timer_ids:
                await broker.publish(
                    "peer",
                    topic=topic,
                    timer_id=timer_id,
                    activate_in=timedelta(seconds=delay),
                    headers=dict(headers or {}),
                )

    asyncio.run(run())


async def serve(options: argparse.Namespace) -> None:
    journal = Journal(options.events)
    stopping = asyncio.Event()
    for stop in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(stop, stopping.set)
    async with Redis.from_url(options.url) as client:
        broker = TimersBroker(client, logger=None)

        @broker.subscriber(options.topic, max_polling_interval=0.2, max_concurrent=20, lease_ttl=2)
        async def handle(_: Any, message: Annotated[TimerStreamMessage, Context("message")]) -> None:
            timer_id = message.raw_message["timer_id"]
            journal.write("start", topic=options.topic, timer_id=timer_id)
            await asyncio.sleep(options.sleep)
            journal.write("end", topic=options.topic, timer_id=timer_id)

        async with broker:
            journal.write("ready")
            for number in range(options.publish):
                await broker.publish(
                    "peer", topic=options.topic, timer_id=f"peer-{number}", activate_in=timedelta(0)
                )
            journal.write("published")
            await stopping.wait()
    journal.write("stopped")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--events", required=True)
    parser.add_argument("--publish", type=int, default=0)
    parser.add_argument("--sleep", type=float, default=0.0)
    logging.basicConfig(level=logging.INFO)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
