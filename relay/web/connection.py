"""One HTTP connection: what it may cost, and what is answered to bytes that are not HTTP.

uvicorn's own protocol answers such bytes in plain text, lets a header come as slowly as it likes, and takes
any number of connections.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from relay.core.endpoints.listener_bounds import ConnectionBounds
from relay.web import problems
from relay.web.handshakes import Handshakes
from relay.web.problems import Refused

LINGER = 1.0
"""Seconds that a caller who is still sending has to read why the connection was refused."""

CERTIFICATE = "certificate"
"""The name of the caller's certificate (DER) in the state of a request."""

Count = Callable[[str], None]
"""Called with the reason why a connection was refused: `unreadable`, `header`, `slow` or `full`."""

log = logging.getLogger(__name__)


class Connection(H11Protocol):
    """A connection that closes itself when it costs more than `bounds`. `listener` is its name in the log."""

    def __init__(
        self,
        *args: Any,
        listener: str,
        bounds: ConnectionBounds,
        count: Count,
        handshakes: Handshakes | None = None,
        **others: Any,
    ) -> None:
        super().__init__(*args, **others)
        self.conn = _Parser(bounds.header_bytes)
        self.idle_since: float | None = None
        """When it began to wait for a request, by the loop's clock; None while it has one."""
        self._listener = listener
        self._bounds = bounds
        self._count = count
        self._deadline: asyncio.TimerHandle | None = None
        self._refused = False
        if handshakes is not None:
            self._count_handshake(handshakes)

    # What asyncio calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._note_certificate(transport)
        self._wait_for_request()
        live = self._live()
        if len(live) > self._bounds.connections:
            self._make_room([each for each in live if each is not self])

    def data_received(self, data: bytes) -> None:
        if not self._refused:  # otherwise it is thrown away: the caller has yet to read the answer
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._set_deadline(None)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_deadline(self._out_of_time)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._set_deadline(None if self.idle_since is None else self._out_of_time)

    # What uvicorn calls

    def handle_events(self) -> None:
        super().handle_events()
        if self._answering() and self.idle_since is not None:
            self.idle_since = None
            self._set_deadline(None)

    def on_response_complete(self) -> None:
        self._wait_for_request()
        super().on_response_complete()

    def shutdown(self) -> None:
        """Close the connection because the server stops. uvicorn would fail on an answer that it did not
        write, and then stop no other connection."""
        if self._refused:
            self.close()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that h11 could not parse."""
        failure = sys.exception()
        status = failure.error_status_hint if isinstance(failure, h11.RemoteProtocolError) else 400
        if status == 431:
            most = self._bounds.header_bytes
            title, detail = "The header is too large", f"the header has more than {most} bytes; send less"
            self._refuse("header", Refused(431, "header-too-large", title, detail))
        else:
            detail = "the bytes are not an HTTP request; check what sends them"
            self._refuse("unreadable", Refused(status, "not-http", "This is not an HTTP request", detail))

    # What this class adds

    def _note_certificate(self, transport: asyncio.Transport) -> None:
        """Hand the caller's certificate, which TLS has verified, to the application with each request."""
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        if certificate is not None:
            self.app_state = {**self.app_state, CERTIFICATE: certificate}

    def close(self) -> None:
        """Close the connection at once, whatever its caller still wants to read."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _answering(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is not None and not cycle.response_complete

    def _wait_for_request(self) -> None:
        self.idle_since = self.loop.time()
        self._set_deadline(self._out_of_time)

    def _set_deadline(self, then: Callable[[], None] | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if then is None else self.loop.call_later(self._bounds.idle_timeout, then)

    def _out_of_time(self) -> None:
        """Refuse the connection because no request came, or because nothing of an answer was taken."""
        begun, _ = self.conn.trailing_data
        if self.idle_since is not None and begun:
            detail = f"the header did not come within {self._bounds.idle_timeout:g} s; send it whole"
            self._refuse("slow", Refused(408, "too-slow", "The header did not come", detail))
        else:
            self.close()

    def _live(self) -> list[Connection]:
        return [
            each
            for each in self.connections
            if isinstance(each, Connection) and not each.transport.is_closing()
        ]

    def _count_handshake(self, handshakes: Handshakes) -> None:
        """Count the connection before it is made. A full listener has no room for the oldest handshake, else
        for the connection that has waited longest, else for this one, which can't be told so."""
        handshakes.begin()
        live = self._live()
        if len(live) + len(handshakes) <= self._bounds.connections:
            return
        log.warning("a listener is full", extra={"listener": self._listener, "connections": len(live)})
        self._count("full")
        if handshakes.close_oldest():
            return
        waiting = [each for each in live if each.idle_since is not None]
        if waiting:
            min(waiting, key=lambda each: each.idle_since or 0.0).close()
        else:
            handshakes.close_own()

    def _make_room(self, others: list[Connection]) -> None:
        waiting = [each for each in others if each.idle_since is not None]
        log.warning("a listener is full", extra={"listener": self._listener, "connections": len(others)})
        if waiting:
            self._count("full")
            min(waiting, key=lambda each: each.idle_since or 0.0).close()
        else:
            detail = f"{len(others)} connections have a request under way; try again"
            refused = Refused(
                503, "too-many-connections", "All connections are in use", detail, retry_after="1"
            )
            self._refuse("full", refused)

    def _refuse(self, reason: str, refused: Refused) -> None:
        """Answer with the reason, and read no more."""
        self._count(reason)
        self._refused = True
        if self._answering():
            self.cycle.disconnected = True  # the request's handler has nobody to answer
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # it is in the middle of an answer
            self.close()
            return
        answer = problems.of_refusal(refused, "")
        headers = [*answer.raw_headers, (b"connection", b"close")]
        self.transport.write(self.conn.send(h11.Response(status_code=refused.status, headers=headers)) or b"")
        with suppress(h11.LocalProtocolError):  # an answer to HEAD has no content
            self.transport.write(self.conn.send(h11.Data(data=bytes(answer.body))) or b"")
        if self.transport.can_write_eof():  # with TLS it can't: then the end of LINGER closes it
            self.transport.write_eof()
        self._set_deadline(None)
        self._deadline = self.loop.call_later(LINGER, self.close)


class _Parser(h11.Connection):
    """Check the size of a header. h11's limit is for headers that come in pieces; this one holds for all.
    Raises `RemoteProtocolError`."""

    def __init__(self, most: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=most)
        self._most = most

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            size = len(event.target) + sum(len(name) + len(text) for name, text in event.headers)
            if size > self._most:
                raise h11.RemoteProtocolError("header too large", error_status_hint=431)
        return event
