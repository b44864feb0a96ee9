"""The limits of what the callers of a listener may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """The limits of every listener."""

    connections: int
    """The most connections at a time."""
    header_bytes: int
    """The most bytes of the header of one request or call."""
    idle_timeout: float
    """Seconds that a connection may take to bring the whole header of a request or call."""


@dataclass(frozen=True, slots=True)
class CallBounds(ConnectionBounds):
    """The limits of the gRPC listener."""

    message_bytes: int
    connection_calls: int
    """The most calls at a time on one connection."""
    calls: int
    """The most calls at a time on all connections together."""
