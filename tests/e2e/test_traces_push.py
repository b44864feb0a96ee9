"""Traces of pushed timers: the same tree, and the application's call carries the delivery's context."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from relay.v1 import timer_handler_pb2 as pb
from relay.v1.timer_handler_pb2_grpc import TimerHandlerServicer, add_TimerHandlerServicer_to_server
from tests.collector import Collector, collecting
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

TOPIC = "orders"


class Handler(TimerHandlerServicer):
    """Fails the first attempt, and keeps what each call carried."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def Deliver(
        self, request: pb.TimerHandlerDeliverRequest, context: grpc.ServicerContext
    ) -> pb.TimerHandlerDeliverResponse:
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        self.calls.append((request.delivery.headers["traceparent"], metadata["traceparent"]))
        if request.delivery.attempt == 1:
            context.abort(grpc.StatusCode.INTERNAL, "no")
        return pb.TimerHandlerDeliverResponse()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def test_push(stage: Stage, collector: Collector) -> None:
    """Each call has a delivery span, a child of the schedule span; one that fails is an error."""
    handler = Handler()
    server = grpc.server(ThreadPoolExecutor(4))
    add_TimerHandlerServicer_to_server(handler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        relay = stage.relay(
            settings={
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
                "OTEL_BSP_SCHEDULE_DELAY": "50",
                "RELAY_TOPICS__orders__DELIVERY__MODE": "push",
                "RELAY_TOPICS__orders__DELIVERY__TARGET": f"127.0.0.1:{port}",
                "RELAY_TOPICS__orders__LEASE_TTL": "10",
            }
        )
        stage.producer(relay).schedule(TOPIC, "1")
        (commit,) = eventually(lambda: collector.spans("commit orders"), "a commit")
        first, second = eventually(
            lambda: found if len(found := collector.spans("deliver orders")) == 2 else [], "two deliveries"
        )
    finally:
        server.stop(None).wait()
    (schedule,) = collector.spans("schedule orders")
    assert {(span.trace, span.parent) for span in (first, second)} == {(schedule.trace, schedule.span)}
    assert (first.failed, first.attributes["error.type"], first.words) == (True, "nack", "INTERNAL: no")
    assert not second.failed
    assert commit.parent == second.span
    for (header, metadata), deliver in zip(handler.calls, (first, second), strict=True):
        assert header == metadata
        assert header.split("-")[1:3] == [deliver.trace, deliver.span]
