"""A sample application, played by its timers: each payload says what its handler does.

    python -m tests.worlds.relay.application --target 127.0.0.1:7451 --topic orders --events events.jsonl

With `--listen unix:/path` it does not dial for deliveries but is pushed to. SIGUSR1 then holds every
further call back before its handler, and notes `held` once all that came before have started theirs;
SIGUSR2 lets them go. With `--one-by-one` it has no `DeliverBatch`.

A payload that is no JSON object means {}: be handled at once. What an object may hold:

    sleep: seconds          work for so long
    gate: path              work until this file is there
    hang: true              work for ever
    hang_until: attempt     … only in attempts before this one (always, if left out)
    die: "start" | "end"    SIGKILL itself, before or after the handler's work
    die_until: attempt      … only in attempts before this one (always, if left out)
    nack_until: attempt     NACK attempts before this one
    retry_after: seconds    … with this pause
    reject: true            REJECT
    every: seconds          RESCHEDULE for so much later; `period` counts them from 0
    until: path             … until this file is there
    extend: seconds         say EXTEND so often while it sleeps
    again: seconds          schedule its own id anew, this far from now, on attempt 1 of the first occurrence

Every event is appended to the file as one JSON line by one `write`, so that none is lost with the process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections import Counter
from typing import Any

import grpc
import grpc.aio
from opentelemetry import propagate

from relay.client import Delivery, Nack, PushHandlers, Reject, RelayClient, Reschedule
from relay.client.push.health import HealthService
from tests.worlds.waiting import make_one_try

Start = tuple[str, int]
"""A timer's name and attempt."""


class Journal:
    """Appends events to a file that several processes may share."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.starts: Counter[Start] = Counter()
        """The handlers that have started in this process."""

    def write(self, event: str, **fields: Any) -> None:
        line = {"event": event, "at": time.time(), "pid": os.getpid(), **fields}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def note(self, event: str, delivery: Delivery) -> None:
        """One event of a delivery. `late` (seconds) is by this machine's clock, which is Redis's too."""
        if event == "start":
            self.starts[delivery.timer_id, delivery.attempt] += 1
        self.write(
            event,
            topic=delivery.topic,
            timer_id=delivery.timer_id,
            attempt=delivery.attempt,
            occurrence=delivery.occurrence_id,
            late=time.time() - delivery.due_time.timestamp(),
            due=delivery.due_time.timestamp(),
            approximate=delivery.due_time_approximate,
            headers=delivery.headers,
            period=asked(delivery.payload).get("period", 0),
            current=current_trace(),
        )


def current_trace() -> str:
    """The `traceparent` of what is current in this task; empty if nothing is."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent", "")


def asked(payload: bytes) -> dict[str, Any]:
    """What a payload asks for; nothing, if it is no JSON object."""
    if not payload.startswith(b"{"):
        return {}
    asks: dict[str, Any] = json.loads(payload)
    return asks


class Handler:
    """Does what the payload asks for."""

    def __init__(self, client: RelayClient, journal: Journal) -> None:
        self._client = client
        self._journal = journal
        self._renewed: set[str] = set()

    async def __call__(self, delivery: Delivery) -> None:
        asks = asked(delivery.payload)
        self._journal.note("start", delivery)
        self._die(asks, "start", delivery)
        await self._work(asks, delivery)
        if "again" in asks and delivery.timer_id not in self._renewed:
            self._renewed.add(delivery.timer_id)
            await self._client.schedule(
                delivery.topic, b"again", delay=asks["again"], timer_id=delivery.timer_id
            )
        self._journal.note("end", delivery)
        self._die(asks, "end", delivery)
        if delivery.attempt < asks.get("nack_until", 0):
            raise Nack(retry_after=asks.get("retry_after"), reason="as asked")
        if asks.get("reject"):
            raise Reject("as asked")
        if "every" in asks and not os.path.exists(asks["until"]):  # noqa: ASYNC240, PTH110
            again = json.dumps({**asks, "period": asks.get("period", 0) + 1}).encode()
            raise Reschedule(delay=asks["every"], payload=again)

    async def _work(self, asks: dict[str, Any], delivery: Delivery) -> None:
        if asks.get("hang") and delivery.attempt < asks.get("hang_until", sys.maxsize):
            await asyncio.Event().wait()
        while "gate" in asks and not os.path.exists(asks["gate"]):  # noqa: ASYNC110, ASYNC240, PTH110
            await asyncio.sleep(0.01)
        end = time.monotonic() + asks.get("sleep", 0.0)
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, asks.get("extend", left)))
            if "extend" in asks:
                await delivery.extend()

    def _die(self, asks: dict[str, Any], when: str, delivery: Delivery) -> None:
        if asks.get("die") == when and delivery.attempt < asks.get("die_until", sys.maxsize):
            os.kill(os.getpid(), signal.SIGKILL)


async def tell_ready(client: RelayClient, journal: Journal) -> None:
    await client.wait_ready()
    journal.write("ready")


async def tell_stopping(client: RelayClient, journal: Journal) -> None:
    await client._stop.wait()
    journal.write("stopping")


class Gate(grpc.aio.ServerInterceptor):
    """Holds calls back before their handlers; with `one_by_one` there are no batches."""

    def __init__(self, journal: Journal, *, one_by_one: bool) -> None:
        self._journal = journal
        self._one_by_one = one_by_one
        self._open = asyncio.Event()
        self._open.set()
        self._inside: Counter[Start] = Counter()

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        service, _, method = details.method.rpartition("/")
        if not service.endswith("TimerHandler"):
            return await continuation(details)
        if method == "DeliverBatch" and self._one_by_one:
            return None
        inner = await continuation(details)
        make = (
            grpc.unary_stream_rpc_method_handler
            if inner.unary_stream
            else grpc.unary_unary_rpc_method_handler
        )
        behaviour = inner.unary_stream or inner.unary_unary

        async def deliver(request: Any, context: Any) -> Any:
            await self._open.wait()
            deliveries = request.deliveries if inner.unary_stream else [request.delivery]
            starts = [(each.timer_id, each.attempt) for each in deliveries]
            self._inside.update(starts)
            try:
                return await behaviour(request, context)
            finally:
                self._inside.subtract(starts)

        return make(deliver, inner.request_deserializer, inner.response_serializer)

    def close(self) -> None:
        self._open.clear()
        self._closing = asyncio.create_task(self._tell())

    def open(self) -> None:
        self._open.set()

    async def _tell(self) -> None:
        while not +self._inside <= self._journal.starts:  # noqa: ASYNC110  (nobody gives an event for it)
            await asyncio.sleep(0.001)
        self._journal.write("held")


async def serve_pushed(options: argparse.Namespace) -> None:
    journal = Journal(options.events)
    gate = Gate(journal, one_by_one=options.one_by_one)
    server = grpc.aio.server(interceptors=[gate], options=[("grpc.so_reuseport", 0)])
    push, healthy = (
        PushHandlers(shutdown_timeout=options.shutdown_timeout),
        HealthService("relay.v1.TimerHandler"),
    )
    healthy.add_to(server)
    async with RelayClient(options.target) as client:
        for topic in options.topic:
            push.on(topic, concurrency=options.concurrency)(Handler(client, journal))
        push.add_to(server)
        server.add_insecure_port(options.listen)
        await server.start()
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGUSR1, gate.close)
        loop.add_signal_handler(signal.SIGUSR2, gate.open)
        journal.write("ready")
        await stop.wait()
        healthy.stop()
        await push.aclose()
        healthy.end()
        await server.stop(5)
    journal.write("stopped")


async def serve(options: argparse.Namespace) -> None:
    client = RelayClient(options.target, shutdown_timeout=options.shutdown_timeout)
    journal = Journal(options.events)
    for topic in options.topic:
        client.on(topic, concurrency=options.concurrency, prefetch=options.prefetch)(Handler(client, journal))
    async with client:
        telling = [asyncio.create_task(tell(client, journal)) for tell in (tell_ready, tell_stopping)]
        await client.run()
        for each in telling:
            each.cancel()
    journal.write("stopped")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--topic", required=True, action="append")
    parser.add_argument("--events", required=True)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--prefetch", type=int)
    parser.add_argument("--listen")
    parser.add_argument("--one-by-one", action="store_true")
    parser.add_argument("--shutdown-timeout", type=float, default=30.0)
    logging.basicConfig(level=logging.INFO)
    options = parser.parse_args()
    make_one_try()  # tests count what `again` schedules
    asyncio.run(serve_pushed(options) if options.listen else serve(options))


if __name__ == "__main__":
    main()
