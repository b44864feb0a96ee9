"""The gRPC server: its services, health, reflection and address."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from relay.api.access import Access
from relay.api.call_time import CallTime
from relay.core.endpoints.listener_bounds import CallBounds
from relay.core.trust.usage import Bounds
from relay.engine.engine import Engine
from relay.rpc.binding import UNIX, Binding, bind
from relay.rpc.delivery_service import DeliveryService
from relay.rpc.health_service import ListedHealth
from relay.rpc.recurrence_service import RecurrenceService
from relay.rpc.timer_service import TimerService
from relay.rpc.topic_service import TopicService
from relay.rpc.unreadable import Admit, Guard
from relay.v1 import (
    delivery_service_pb2,
    recurrence_service_pb2,
    timer_service_pb2,
    topic_service_pb2,
)
from relay.v1 import delivery_service_pb2_grpc as delivery_base
from relay.v1 import recurrence_service_pb2_grpc as recurrence_base
from relay.v1 import timer_service_pb2_grpc as timer_base
from relay.v1 import topic_service_pb2_grpc as topic_base

SERVICES = (
    timer_service_pb2.DESCRIPTOR.services_by_name["TimerService"].full_name,
    delivery_service_pb2.DESCRIPTOR.services_by_name["DeliveryService"].full_name,
    topic_service_pb2.DESCRIPTOR.services_by_name["TopicService"].full_name,
    recurrence_service_pb2.DESCRIPTOR.services_by_name["RecurrenceService"].full_name,
)
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
CALLER_WENT = "ExecuteBatchError raised in core by servicer method"
"""How a traceback of gRPC begins whose caller's connection has broken while the answer was written."""


@dataclass(slots=True)
class RpcServer:
    """A started server. `address` is what clients dial, with the actual port."""

    address: str
    _server: grpc.aio.Server
    _health: ListedHealth

    async def say_healthy(self, healthy: bool) -> None:
        """Set what grpc.health.v1 answers for the server as a whole and for each service."""
        for service in ("", *SERVICES):
            await self._health.set(service, SERVING if healthy else NOT_SERVING)

    async def stop(self, grace: float) -> None:
        """Take no new calls. Those under way have `grace` seconds to end."""
        await self._server.stop(grace)
        if self.address.startswith(UNIX):
            await anyio.Path(self.address.removeprefix(UNIX)).unlink(missing_ok=True)


async def start(
    engine: Engine,
    *,
    binding: Binding,
    bounds: CallBounds,
    call_time: CallTime,
    unreadable: Callable[[str], None],
    admit: Admit | None = None,
    access: Access | None = None,
    bounds_of_callers: Bounds | None = None,
) -> RpcServer:
    """Serve where `binding` says. Raises `CannotListen`.

    `unreadable` is called with the method of each message that could not be parsed. `admit` knows the
    callers; without it all are anonymous. `access` says what they may do; without it everything is allowed.
    `bounds_of_callers` says what they may cost; without it nothing is counted.
    """
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_about_the_relay)
    server = grpc.aio.server(options=_options(bounds), maximum_concurrent_rpcs=bounds.calls)
    guard: Any = Guard(server, unreadable, admit, bounds_of_callers)
    timer_base.add_TimerServiceServicer_to_server(TimerService(engine, call_time, access), guard)
    delivery_base.add_DeliveryServiceServicer_to_server(
        DeliveryService(engine, access, bounds_of_callers), guard
    )
    topic_base.add_TopicServiceServicer_to_server(TopicService(engine, call_time, access), guard)
    recurrence_base.add_RecurrenceServiceServicer_to_server(
        RecurrenceService(engine, call_time, access), guard
    )
    healthy = ListedHealth()
    health_pb2_grpc.add_HealthServicer_to_server(healthy, guard)
    described = reflection.aio.ReflectionServicer((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME))
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(described, guard)  # type: ignore[no-untyped-call]
    address = bind(server, binding)
    started = RpcServer(address, server, healthy)
    await started.say_healthy(False)
    await server.start()
    return started


def _is_about_the_relay(record: logging.LogRecord) -> bool:
    """Leave out what a caller causes that goes away. gRPC leaves it out itself where it hears of the broken
    connection before it writes the answer."""
    return not str(record.msg).startswith(CALLER_WENT)


def _options(bounds: CallBounds) -> list[tuple[str, Any]]:
    idle = round(bounds.idle_timeout * 1000)
    return [
        ("grpc.so_reuseport", 0),  # two relays must not share a port by accident
        ("grpc.max_receive_message_length", bounds.message_bytes),
        ("grpc.max_send_message_length", -1),
        # The first of the two refuses some connections from its value on, the second refuses all.
        ("grpc.max_metadata_size", bounds.header_bytes),
        ("grpc.absolute_max_metadata_size", bounds.header_bytes),
        ("grpc.max_allowed_incoming_connections", bounds.connections),
        ("grpc.max_concurrent_streams", bounds.connection_calls),
        ("grpc.server_handshake_timeout_ms", idle),
        ("grpc.max_connection_idle_ms", idle),
        ("grpc.keepalive_time_ms", idle),  # finds out that a caller has gone during its call
        ("grpc.keepalive_timeout_ms", idle),
        ("grpc.http2.ping_timeout_ms", idle),
    ]
