"""A producer that traces: schedules timers with relay.client inside a span of its own, and exports it.

python -m tests.e2e.traced_producer --target localhost:4020 --topic orders a b c [--batch]

Where the span goes, and whether it is sampled, OpenTelemetry's variables say.
"""

from __future__ import annotations

import argparse
import asyncio

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from relay.client import NewTimer, RelayClient
from tests.worlds.waiting import make_one_try

SPAN = "place order"


async def schedule(options: argparse.Namespace) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    async with RelayClient(options.target) as client:
        with provider.get_tracer("shop").start_as_current_span(SPAN):
            if options.batch:
                timers = [
                    NewTimer(topic=options.topic, payload=b"{}", delay=0, timer_id=name)
                    for name in options.names
                ]
                results = await client.schedule_batch(timers)
                assert all(result.ok for result in results), results
            else:
                for name in options.names:
                    await client.schedule(options.topic, b"{}", delay=0, timer_id=name)
    provider.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--batch", action="store_true")
    parser.add_argument("names", nargs="+")
    make_one_try()  # each try has a span of its own
    asyncio.run(schedule(parser.parse_args()))


if __name__ == "__main__":
    main()
