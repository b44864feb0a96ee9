"""Messages that can't be parsed, whether they come from a relay that the client calls or that calls it.

gRPC logs a stack trace for each message whose parser raises, so these parsers don't raise.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from relay.client import errors

_log = logging.getLogger("relay.client")

UNREADABLE: Any = object()
"""What stands in the place of a message that could not be parsed."""

_EVERY = 60.0
"""Seconds between two lines of the log about requests that can't be read."""

_next_line = 0.0
"""When the next such line may be written, by the monotonic clock."""


def reader(kind: type[Message]) -> Callable[[bytes], Any]:
    """Return a parser of messages of this kind, which returns `UNREADABLE` for bytes that it can't parse."""

    def read(raw: bytes) -> Any:
        try:
            return kind.FromString(raw)
        except DecodeError:
            return UNREADABLE

    return read


def readable(answer: Any, kind: type[Message]) -> Any:
    """Return the answer of a relay. Raises `CallError` if it could not be parsed."""
    if answer is UNREADABLE:
        message = f"the answer is not a {kind.DESCRIPTOR.full_name}; check what listens at the target"
        raise errors.make(grpc.StatusCode.INTERNAL, message)
    return answer


async def refuse_unreadable(request: Any, context: Any, kind: str) -> None:
    """End a call whose request could not be parsed, with INVALID_ARGUMENT."""
    global _next_line  # noqa: PLW0603
    if request is not UNREADABLE:
        return
    now = time.monotonic()
    if now >= _next_line:
        _next_line = now + _EVERY
        _log.warning("a request is not a %s; is it a relay that calls?", kind)
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"message: not a {kind}; check what sends it")
