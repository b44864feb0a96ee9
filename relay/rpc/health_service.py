"""grpc.health.v1, whole."""

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health, health_pb2


class HealthService(health.aio.HealthServicer):
    """gRPC's own, and `List`, which that lacks: a call of it ended with UNIMPLEMENTED and wrote a stack trace into
    the log, so that any caller could fill it."""  # see 0109

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, int] = {}

    async def set(self, service: str, status: int) -> None:
        """Set the status of a service."""
        self._said[service] = status
        await super().set(service, status)

    async def List(self, _request: health_pb2.HealthListRequest, _context: Any) -> health_pb2.HealthListResponse:
        """Answer the status of each service."""
        statuses = {
            name: health_pb2.HealthCheckResponse(status=status)  # type: ignore[arg-type]
            for name, status in self._said.items()
        }
        return health_pb2.HealthListResponse(statuses=statuses)
