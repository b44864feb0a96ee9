"""The application that the relay dials: one channel, and whether the application can be called now."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc
from grpc import ChannelConnectivity, StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc

from relay.rpc.unreadable import Count, answers
from relay.v1 import timer_handler_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["TimerHandler"].full_name
DELIVER, DELIVER_BATCH = f"/{SERVICE}/Deliver", f"/{SERVICE}/DeliverBatch"

# gRPC's own client-side health checking: the channel is ready only while it is connected and the
# server's grpc.health.v1 says SERVING; a server without that service counts as serving. It works
# with round_robin, which also spreads calls over all addresses of a headless Service.
SERVICE_CONFIG = {"healthCheckConfig": {"serviceName": ""}, "loadBalancingConfig": [{"round_robin": {}}]}

OPTIONS = (
    ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),  # http_proxy is for the outside world; the application is beside the relay
)

NEVER_BEGAN = ("connections to all backends failing", "failed to connect to all addresses")
"""How gRPC's details begin if a call found no connection; a test compares them with the library."""

REASON_TIMEOUT = 0.5
"""Seconds for the call that finds out why the application can't be called."""

log = logging.getLogger(__name__)


class Application:
    """A channel to `target` whose state is watched. `unreadable` is called for each answer that can't be
    parsed. With `credentials` it is dialled by TLS."""

    def __init__(
        self, target: str, unreadable: Count, credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        self.target = target
        self.connection = 0
        """The number of times that the application has become ready; each call remembers its own."""
        self.sends_receipts = False
        """Whether its handlers send receipts, as the last call that showed it did; see `timer_handler.proto`.
        It holds across connections, since a call that breaks at the beginning of one shows nothing."""
        self.one_by_one: set[str] = set()
        """The topics that are called by `Deliver`, since `DeliverBatch` was UNIMPLEMENTED on this connection.
        They are noted by topic, because an application may mean that it has no handler for one."""
        self._channel = (
            grpc.aio.insecure_channel(target, options=OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(target, credentials, options=OPTIONS)
        )
        # This is called as a stream of one answer: only then does gRPC give the initial metadata before the
        # end.
        self._deliver: Any = self._channel.unary_stream(
            DELIVER,
            request_serializer=pb.TimerHandlerDeliverRequest.SerializeToString,
            response_deserializer=answers(pb.TimerHandlerDeliverResponse, DELIVER[1:], unreadable),
        )
        self._deliver_batch: Any = self._channel.unary_stream(
            DELIVER_BATCH,
            request_serializer=pb.TimerHandlerDeliverBatchRequest.SerializeToString,
            response_deserializer=answers(pb.TimerHandlerDeliverBatchResponse, DELIVER_BATCH[1:], unreadable),
        )
        self._health: Any = health_pb2_grpc.HealthStub(self._channel)
        self.ready = False
        self.changed: list[Callable[[], None]] = []
        """Called when `ready` has changed."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def run(self) -> None:
        """Watch the channel until cancelled; connect whenever it is not connected."""
        said = None
        while True:
            state = self._channel.get_state(try_to_connect=True)
            ready = state is ChannelConnectivity.READY
            if ready is not self.ready:
                self._turn(ready=ready)
            settled = ready or state is ChannelConnectivity.TRANSIENT_FAILURE
            if settled and ready is not said:
                said = ready
                await self._tell(ready=ready)
            await self._channel.wait_for_state_change(state)
            if self.ready:  # it broke, even if it is connected again by now
                self._turn(ready=False)

    def _turn(self, *, ready: bool) -> None:
        if ready:
            self.connection += 1
            self.one_by_one.clear()
        self.ready = ready
        for tell in self.changed:
            tell()

    async def _tell(self, *, ready: bool) -> None:
        if ready:
            log.info("the application can be called", extra={"target": self.target})
            return
        reason = "no answer"
        try:  # a call fails at once and says why, which the channel's state does not
            await self._health.Check(health_pb2.HealthCheckRequest(), timeout=REASON_TIMEOUT)
        except grpc.aio.AioRpcError as failure:
            reason = failure.details() or failure.code().name
        log.warning(
            "the application can't be called; its timers wait",
            extra={"target": self.target, "reason": reason},
        )

    def call(self, request: pb.TimerHandlerDeliverRequest, *, timeout: float, metadata: Any) -> Any:
        """Begin a call. It fails at once if the application can't be reached."""
        return self._deliver(request, timeout=max(timeout, 0.001), metadata=metadata)

    def call_batch(self, request: pb.TimerHandlerDeliverBatchRequest, *, timeout: float) -> Any:
        """Begin a call with many deliveries."""
        return self._deliver_batch(request, timeout=max(timeout, 0.001))

    def never_began(self, failure: grpc.aio.AioRpcError, connection: int) -> bool:
        """Whether a call failed because there was no connection. The words of a handler's own call don't
        count."""
        return self.broke(failure, connection) and (failure.details() or "").startswith(NEVER_BEGAN)

    def broke(self, failure: grpc.aio.AioRpcError, connection: int) -> bool:
        """Whether the connection of a call broke, as opposed to a status that the application sent itself."""
        return failure.code() is StatusCode.UNAVAILABLE and not self._still(connection)

    def stopped(self, failure: grpc.aio.AioRpcError, connection: int) -> bool:
        """Whether the application stopped in order, and cut the call off or did not take it any more: gRPC's
        Python server answers in this way what comes in between."""
        return failure.code() is StatusCode.CANCELLED and not self._still(connection)

    def _still(self, connection: int) -> bool:
        return self._channel.get_state() is ChannelConnectivity.READY and connection == self.connection
