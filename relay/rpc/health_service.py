"""grpc.health.v1, whole."""

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health, health_pb2

_messages: Any = health_pb2  # whose types lack those of List


class ListedHealth(health.aio.HealthServicer):
    """gRPC's own, and `List`, which that lacks: a call of it wrote a stack trace into the log, so that any
    caller could fill it."""  # see 0109

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, int] = {}

    async def set(self, service: str, status: Any) -> None:
        """Set the status of a service."""
        self._said[service] = status
        await super().set(service, status)

    async def List(self, _request: Any, _context: Any) -> Any:
        """Answer the status of each service."""
        statuses = {name: _messages.HealthCheckResponse(status=status) for name, status in self._said.items()}
        return _messages.HealthListResponse(statuses=statuses)
