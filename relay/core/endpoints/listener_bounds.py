"""What the callers of a listener may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Of any listener."""

    connections: int
    """At a time."""
    header_bytes: int
    """Of one request or call."""
    idle_timeout: float
    """Seconds that a connection may take to bring the whole header of a request or call."""


@dataclass(frozen=True, slots=True)
class CallBounds(ConnectionBounds):
    """Of the gRPC listener."""

    message_bytes: int
    connection_calls: int
    """At a time on one connection."""
    calls: int
    """At a time on all connections together."""
